//! The tables of MPEG-TS: the PAT, and the PMT of the first program (ISO/IEC 13818-1, 2.4.4).

use super::packet::{PACKET, TsPacket};
use crate::media::codecs;
use crate::media::held_input::big_endian;

/// Bytes of a section (2.4.4.5): its header of three bytes, and the maximum of its length field.
const SECTION_MAX: usize = 1021 + 3;
/// Packets of a table: a section, and pointers and adaptation fields of up to half a packet.
const TABLE_PACKETS_MAX: usize = 16;

/// A section, with the packets that contain it.
#[derive(Debug, Default)]
struct TsTable {
    /// The last complete section.
    section: Vec<u8>,
    packets: Vec<u8>,
    /// The section that is being received.
    partial: Vec<u8>,
    partial_packets: Vec<u8>,
}

impl TsTable {
    /// Adds a packet. Returns whether a section with this table id is complete now.
    fn push(&mut self, packet: &[u8; PACKET], fields: &TsPacket<'_>, table_id: u8) -> bool {
        let payload = if fields.begins {
            self.partial.clear();
            self.partial_packets.clear();
            let pointer = fields.payload.first().map_or(0, |&pointer| usize::from(pointer) + 1);
            fields.payload.get(pointer..).unwrap_or_default()
        } else if self.partial_packets.is_empty() {
            return false;
        } else {
            fields.payload
        };
        self.partial.extend_from_slice(payload);
        self.partial_packets.extend_from_slice(packet);
        let Some(size) = big_endian(&self.partial, 1, 2).map(|size| (size as usize & 0xfff) + 3) else {
            return false;
        };
        let too_long = size > SECTION_MAX || self.partial_packets.len() > TABLE_PACKETS_MAX * PACKET;
        let section = match self.partial.get(..size) {
            Some(section) if !too_long => section,
            None if !too_long => return false,
            _ => {
                self.partial_packets.clear();
                return false;
            }
        };
        // Bit 0 of the sixth byte: the section is valid now, and not only later.
        let valid = section.first() == Some(&table_id)
            && section.get(5).is_some_and(|flags| flags & 1 == 1)
            && (section == self.section || crc32(section) == 0);
        if valid {
            self.section.clear();
            self.section.extend_from_slice(section);
            std::mem::swap(&mut self.packets, &mut self.partial_packets);
        }
        self.partial_packets.clear();
        valid
    }

    /// The section without header and check sum.
    fn body(&self) -> &[u8] {
        self.section.get(8..self.section.len().saturating_sub(4)).unwrap_or_default()
    }
}

/// The first program of a stream.
#[derive(Debug, Default)]
pub(super) struct Program {
    pat: TsTable,
    pmt: TsTable,
    pmt_pid: Option<u16>,
    /// The sections of the head that was reported last.
    reported: Option<(Vec<u8>, Vec<u8>)>,
    /// PID and type of the first video stream.
    pub(super) video: Option<(u16, u8)>,
    audio: Option<u16>,
    /// The codecs of all audio streams that the PMT names.
    pub(super) codecs: Vec<Box<str>>,
}

impl Program {
    /// Returns whether packets of `pid` are tables.
    pub(super) fn reads(&self, pid: u16) -> bool {
        pid == 0 || Some(pid) == self.pmt_pid
    }

    /// Returns the PID of the stream whose frames begin units.
    pub(super) fn leading(&self) -> Option<u16> {
        self.video.map(|(pid, _)| pid).or(self.audio)
    }

    pub(super) const fn is_known(&self) -> bool {
        self.reported.is_some()
    }

    /// The packets of PAT and PMT.
    pub(super) fn head(&self) -> Vec<u8> {
        [self.pat.packets.as_slice(), self.pmt.packets.as_slice()].concat()
    }

    /// Reads a packet of a table. Returns whether there is a new head.
    pub(super) fn read(&mut self, packet: &[u8; PACKET], fields: &TsPacket<'_>) -> bool {
        if fields.pid == 0 {
            if self.pat.push(packet, fields, 0) {
                // Program 0 is the network.
                let programs = self.pat.body().as_chunks::<4>().0;
                let pid = programs.iter().find_map(|&[n1, n0, p1, p0]| {
                    ((n1, n0) != (0, 0)).then(|| u16::from_be_bytes([p1 & 0x1f, p0]))
                });
                if pid != self.pmt_pid {
                    self.pmt_pid = pid.filter(|&pid| pid != 0);
                    self.pmt = TsTable::default();
                }
            }
            return false;
        }
        if !self.pmt.push(packet, fields, 2) {
            return false;
        }
        let same = self
            .reported
            .as_ref()
            .is_some_and(|(pat, pmt)| *pat == self.pat.section && *pmt == self.pmt.section);
        if !same {
            self.reported = Some((self.pat.section.clone(), self.pmt.section.clone()));
            self.read_streams();
        }
        !same
    }

    fn read_streams(&mut self) {
        (self.video, self.audio) = (None, None);
        self.codecs.clear();
        let body = self.pmt.body();
        let descriptors = big_endian(body, 2, 2).unwrap_or_default() as usize & 0xfff;
        let mut streams = body.get(4 + descriptors..).unwrap_or_default();
        while let Some((&[kind, p1, p0, l1, l0], rest)) = streams.split_first_chunk() {
            let pid = u16::from_be_bytes([p1 & 0x1f, p0]);
            let size = usize::from(u16::from_be_bytes([l1 & 0xf, l0])).min(rest.len());
            let (descriptors, rest) = rest.split_at(size);
            streams = rest;
            let codec: Option<Box<str>> = match kind {
                0x01 | 0x02 | 0x10 | 0x1b | 0x24 | 0x33 => {
                    self.video = self.video.or(Some((pid, kind)));
                    continue;
                }
                0x03 | 0x04 => Some("mp3".into()),
                // AAC in ADTS and LATM: low complexity is the rule.
                0x0f | 0x11 => Some(codecs::aac_of(2)),
                0x81 => Some("ac-3".into()),
                0x87 => Some("ec-3".into()),
                0x06 => private_codec(descriptors),
                _ => None,
            };
            if codec.is_some() {
                self.audio = self.audio.or(Some(pid));
            }
            self.codecs.extend(codec);
        }
    }
}

/// The codec of a stream of private data, by its descriptors (tag, length, content).
fn private_codec(mut descriptors: &[u8]) -> Option<Box<str>> {
    while let Some((&[tag, len], rest)) = descriptors.split_first_chunk() {
        let (content, rest) = rest.split_at_checked(usize::from(len))?;
        match (tag, content) {
            (0x05, b"Opus") => return Some("opus".into()),
            (0x05, b"AC-3") | (0x6a, _) => return Some("ac-3".into()),
            (0x05, b"EAC3") | (0x7a, _) => return Some("ec-3".into()),
            _ => descriptors = rest,
        }
    }
    None
}

/// The check sum of a section, which is 0 if it includes its own (annex A).
fn crc32(section: &[u8]) -> u32 {
    section.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}
