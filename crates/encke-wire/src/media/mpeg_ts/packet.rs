//! The packets of MPEG-TS (ISO/IEC 13818-1, 2.4.3.2).

/// Bytes of a packet.
pub(super) const PACKET: usize = 188;
/// The first byte of each packet.
pub(super) const SYNC: u8 = 0x47;

/// The fields of a packet.
pub(super) struct TsPacket<'a> {
    pub(super) pid: u16,
    /// `payload_unit_start_indicator`.
    pub(super) begins: bool,
    pub(super) random_access: bool,
    pub(super) payload: &'a [u8],
}

impl<'a> TsPacket<'a> {
    /// Reads the fields of a packet.
    pub(super) fn of(packet: &'a [u8; PACKET]) -> Self {
        let [_, high, low, control, rest @ ..] = packet;
        let adaptation = control & 0x20 != 0;
        let skipped = if adaptation { usize::from(rest[0]) + 1 } else { 0 };
        // Scrambled packets, and packets without payload, are not parsed.
        let readable = control & 0xd0 == 0x10;
        Self {
            pid: u16::from_be_bytes([high & 0x1f, *low]),
            begins: high & 0x40 != 0,
            random_access: adaptation && rest[0] > 0 && rest[1] & 0x40 != 0,
            payload: if readable { rest.get(skipped..).unwrap_or_default() } else { &[] },
        }
    }
}
