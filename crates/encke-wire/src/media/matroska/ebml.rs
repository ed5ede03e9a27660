//! Elements of EBML (RFC 8794), and blocks of Matroska (RFC 9559, 10).

use crate::media::held_input::big_endian;

/// `EBML`
pub(super) const EBML: u32 = 0x1a45_dfa3;
/// `EBML\DocType`
pub(super) const DOC_TYPE: u32 = 0x4282;
/// `Segment`
pub(super) const SEGMENT: u32 = 0x1853_8067;
/// `Segment\Info`
pub(super) const INFO: u32 = 0x1549_a966;
/// `Segment\Info\TimestampScale`
pub(super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
/// `Segment\Tracks`
pub(super) const TRACKS: u32 = 0x1654_ae6b;
/// `Segment\Tracks\TrackEntry`
pub(super) const TRACK_ENTRY: u32 = 0xae;
/// `…\TrackNumber`
pub(super) const TRACK_NUMBER: u32 = 0xd7;
/// `…\TrackType`
pub(super) const TRACK_TYPE: u32 = 0x83;
/// `…\CodecID`
pub(super) const CODEC_ID: u32 = 0x86;
/// `…\CodecPrivate`
pub(super) const CODEC_PRIVATE: u32 = 0x63a2;
/// `Segment\Cluster`
pub(super) const CLUSTER: u32 = 0x1f43_b675;
/// `Segment\Cluster\Timestamp`
pub(super) const TIMESTAMP: u32 = 0xe7;
/// `Segment\Cluster\SimpleBlock`
pub(super) const SIMPLE_BLOCK: u32 = 0xa3;
/// `Segment\Cluster\BlockGroup`
pub(super) const BLOCK_GROUP: u32 = 0xa0;
/// `Segment\Cluster\BlockGroup\Block`
const BLOCK: u32 = 0xa1;
/// `Segment\Cluster\BlockGroup\ReferenceBlock`: the block depends on another one.
const REFERENCE_BLOCK: u32 = 0xfb;

/// Returns whether an element of `Segment`, or one above it, ends a Cluster of unknown size. All their ids have four bytes, and
/// no child of a Cluster does.
pub(super) const fn ends_cluster(id: u32) -> bool {
    id >= 0x1000_0000
}

/// Id and size of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementHeader {
    pub(super) id: u32,
    /// `None`: unknown, the element ends where an element of a higher level begins.
    pub(super) size: Option<u64>,
    /// Bytes of the header.
    pub(super) len: usize,
}

/// Why there is no header.
pub(super) enum NoHeader {
    /// The header needs this many bytes.
    Need(usize),
    /// The bytes are no header.
    Invalid,
}

impl ElementHeader {
    /// Reads the header at the begin of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, NoHeader> {
        let id_len = bytes.first().ok_or(NoHeader::Need(1))?.leading_zeros() as usize + 1;
        if id_len > 4 {
            return Err(NoHeader::Invalid);
        }
        let id = big_endian(bytes, 0, id_len).ok_or(NoHeader::Need(id_len + 1))? as u32;
        let first = bytes.get(id_len).ok_or(NoHeader::Need(id_len + 1))?;
        let len = id_len + first.leading_zeros() as usize + 1;
        if len > id_len + 8 {
            return Err(NoHeader::Invalid);
        }
        let (value, all_ones) =
            vint(bytes.get(id_len..len).ok_or(NoHeader::Need(len))?).ok_or(NoHeader::Invalid)?;
        Ok(Self { id, size: (!all_ones).then_some(value), len })
    }
}

/// Returns the value of a variable-size integer of exactly this many bytes, and whether all its bits are set.
fn vint(bytes: &[u8]) -> Option<(u64, bool)> {
    let bits = 7 * u32::try_from(bytes.len()).ok()?;
    let value = big_endian(bytes, 0, bytes.len())? & ((1 << bits) - 1);
    Some((value, value == (1 << bits) - 1))
}

/// The elements in a body. A truncated element has the bytes up to the truncation.
pub(super) fn elements(mut body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let header = ElementHeader::read(body).ok()?;
        let content = body.get(header.len..)?;
        let size = usize::try_from(header.size?).ok()?.min(content.len());
        let (content, rest) = content.split_at(size);
        body = rest;
        Some((header.id, content))
    })
}

/// Returns the unsigned integer of an element, at most 8 bytes.
pub(super) fn unsigned(content: &[u8]) -> Option<u64> {
    (content.len() <= 8).then(|| big_endian(content, 0, content.len()))?
}

/// The begin of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHead {
    pub(super) track: u64,
    /// Relative to the Cluster, in units of `TimestampScale`.
    pub(super) time: i16,
    /// Whether it depends on no other block.
    pub(super) key: bool,
}

/// The bytes of a `SimpleBlock` that [`BlockHead::of`] needs: track, time, flags.
pub(super) const BLOCK_HEAD_MAX: usize = 8 + 2 + 1;

impl BlockHead {
    /// Reads the content of a `SimpleBlock` or `BlockGroup`. A group must be whole for `key` to hold.
    pub(super) fn of(id: u32, content: &[u8]) -> Option<Self> {
        if id == SIMPLE_BLOCK {
            let (head, flags) = Self::read(content)?;
            return Some(Self { key: flags & 0x80 != 0, ..head });
        }
        let (_, block) = elements(content).find(|(id, _)| *id == BLOCK)?;
        let key = elements(content).all(|(id, _)| id != REFERENCE_BLOCK);
        Some(Self { key, ..Self::read(block)?.0 })
    }

    fn read(block: &[u8]) -> Option<(Self, u8)> {
        let len = block.first()?.leading_zeros() as usize + 1;
        let (track, _) = (len <= 8).then(|| vint(block.get(..len)?))??;
        let time = big_endian(block, len, 2)? as u16 as i16;
        Some((Self { track, time, key: false }, *block.get(len + 2)?))
    }
}
