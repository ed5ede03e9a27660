//! The clip of `encke demo --live`: a short WebM file (live.sh writes it) that is repeated without an end.
//!
//! ```text
//! file    head │ Cluster 0.000 │ Cluster 1.981 │ Cluster 3.981 │ Cluster 5.981
//! stream  head │ Cluster 0.000 │ Cluster 1.981 │ Cluster 3.981 │ Cluster 5.981 │ Cluster 8.000 │ …
//! ```
//! A block states its time relative to its Cluster, so blocks are sent unchanged, and each Cluster gets a new Timestamp. Clusters
//! are sent with unknown size (RFC 8794, section 6.2), because their blocks are sent at their times.

/// The time between the first pictures of two repetitions.
pub(crate) const LENGTH_MS: u64 = 8_000;

const SEGMENT: u32 = 0x1853_8067;
const CLUSTER: u32 = 0x1F43_B675;
const TIMESTAMP: u32 = 0xE7;
const SIMPLE_BLOCK: u32 = 0xA3;
/// A Cluster of unknown size, and a Timestamp of 8 bytes.
const CLUSTER_HEADER: [u8; 14] =
    [0x1F, 0x43, 0xB6, 0x75, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xE7, 0x88];

/// A WebM file, taken apart.
#[derive(Debug)]
pub(crate) struct Clip<'a> {
    /// All before the first Cluster.
    head: &'a [u8],
    pieces: Vec<ClipPiece<'a>>,
}

#[derive(Debug)]
enum ClipPiece<'a> {
    /// The header of a Cluster with this time.
    Cluster(u64),
    /// A block, and its time.
    Block(u64, &'a [u8]),
}

/// The position in a clip that is repeated.
#[derive(Debug)]
pub(crate) struct ClipPlayer<'a> {
    clip: &'a Clip<'a>,
    /// Whether the head was returned.
    has_begun: bool,
    next: usize,
    /// The begin of the present repetition.
    base_ms: u64,
}

/// An EBML element with known size, or the header of one with unknown size.
struct Element<'a> {
    id: u32,
    /// `None`: unknown size.
    body: Option<&'a [u8]>,
    /// Bytes of the header, and of the body if its size is known.
    len: usize,
}

impl<'a> Clip<'a> {
    /// Parses a file. `None` if its structure is not the one that live.sh writes.
    pub(crate) fn parse(file: &'a [u8]) -> Option<Self> {
        let mut at = Element::parse(file)?.len;
        let segment = Element::parse(file.get(at..)?)?;
        if segment.id != SEGMENT || segment.body.is_some() {
            return None;
        }
        at += segment.len;
        let mut head_len = None;
        let mut pieces = Vec::new();
        while at < file.len() {
            let element = Element::parse(file.get(at..)?)?;
            if element.id == CLUSTER {
                head_len.get_or_insert(at);
                cluster(element.body?, &mut pieces)?;
            } else if head_len.is_some() || element.body.is_none() {
                return None;
            }
            at += element.len;
        }
        Some(Self { head: file.get(..head_len?)?, pieces })
    }

    /// Returns a player at the begin of the clip.
    pub(crate) const fn player(&'a self) -> ClipPlayer<'a> {
        ClipPlayer { clip: self, has_begun: false, next: 0, base_ms: 0 }
    }
}

/// Adds the pieces of a Cluster.
fn cluster<'a>(body: &'a [u8], pieces: &mut Vec<ClipPiece<'a>>) -> Option<()> {
    let first = Element::parse(body)?;
    if first.id != TIMESTAMP {
        return None;
    }
    let time_ms =
        first.body?.iter().try_fold(0_u64, |time, byte| Some(time.checked_mul(256)? + u64::from(*byte)))?;
    pieces.push(ClipPiece::Cluster(time_ms));
    let mut at = first.len;
    while at < body.len() {
        let rest = body.get(at..)?;
        let block = Element::parse(rest)?;
        // The number of the track in one byte, and the time in two.
        let time = block.body?.get(1..3)?.try_into().ok()?;
        if block.id != SIMPLE_BLOCK {
            return None;
        }
        let time_ms = time_ms.saturating_add_signed(i16::from_be_bytes(time).into());
        pieces.push(ClipPiece::Block(time_ms, rest.get(..block.len)?));
        at += block.len;
    }
    Some(())
}

impl ClipPlayer<'_> {
    /// Appends all bytes that are due at this time since the begin.
    pub(crate) fn play(&mut self, until_ms: u64, bytes: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            bytes.extend_from_slice(self.clip.head);
        }
        loop {
            let Some(piece) = self.clip.pieces.get(self.next) else {
                if self.clip.pieces.is_empty() {
                    return;
                }
                self.next = 0;
                self.base_ms += LENGTH_MS;
                continue;
            };
            let (ClipPiece::Cluster(time_ms) | ClipPiece::Block(time_ms, _)) = piece;
            let time_ms = self.base_ms + time_ms;
            if time_ms > until_ms {
                return;
            }
            match piece {
                ClipPiece::Cluster(_) => {
                    bytes.extend_from_slice(&CLUSTER_HEADER);
                    bytes.extend_from_slice(&time_ms.to_be_bytes());
                }
                ClipPiece::Block(_, block) => bytes.extend_from_slice(block),
            }
            self.next += 1;
        }
    }
}

impl<'a> Element<'a> {
    /// Parses the element at the begin of `bytes` (RFC 8794, section 4).
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let id_len = bytes.first()?.leading_zeros() as usize + 1;
        if id_len > 4 {
            return None;
        }
        let id = bytes.get(..id_len)?.iter().fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
        let first = *bytes.get(id_len)?;
        let size_len = first.leading_zeros() as usize + 1;
        if size_len > 8 {
            return None;
        }
        let start = id_len + size_len;
        let value = bytes.get(id_len..start)?.iter().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
        // Without the bit that marks the length. All other bits are set: unknown.
        let most = (1_u64 << (7 * size_len)) - 1;
        let size = value & most;
        if size == most {
            return Some(Self { id, body: None, len: start });
        }
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        Some(Self { id, body: Some(bytes.get(start..end)?), len: end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("live.webm");

    /// A block: its track, its time, and whether a decoder can start with it.
    type Block = (u8, u64, bool);

    /// Returns the times of the Clusters of a stream, and its blocks, in their order.
    fn times(stream: &[u8]) -> (Vec<u64>, Vec<Block>) {
        let (mut clusters, mut blocks) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < stream.len() {
            let element = Element::parse(&stream[at..]).expect("an element");
            match element.id {
                CLUSTER | SEGMENT => assert!(element.body.is_none(), "of unknown size"),
                TIMESTAMP => {
                    let time = element.body.expect("of known size").try_into().expect("8 bytes");
                    clusters.push(u64::from_be_bytes(time));
                }
                SIMPLE_BLOCK => {
                    let block = element.body.expect("of known size");
                    let time = i16::from_be_bytes([block[1], block[2]]);
                    let cluster = clusters.last().expect("a block is in a Cluster");
                    let time = cluster.checked_add_signed(time.into()).expect("a time");
                    blocks.push((block[0] & 0x7F, time, block[3] & 0x80 != 0));
                }
                _ => assert!(clusters.is_empty(), "{:x} behind the head", element.id),
            }
            at += element.len;
        }
        (clusters, blocks)
    }

    #[test]
    fn times_increase_evenly_over_repetitions() {
        let clip = Clip::parse(FILE).expect("the file of live.sh");
        let mut player = clip.player();
        let mut stream = Vec::new();
        // In steps as the demo takes them.
        for until_ms in (0..3 * LENGTH_MS).step_by(50) {
            player.play(until_ms, &mut stream);
        }
        let (clusters, blocks) = times(&stream);
        let expected: Vec<u64> =
            (0..3).flat_map(|round| [0, 1_981, 3_981, 5_981].map(|time| round * LENGTH_MS + time)).collect();
        assert_eq!(clusters, expected);
        // The first picture of each Cluster.
        let key_frames: Vec<u64> =
            blocks.iter().filter(|(track, _, is_key)| *track == 1 && *is_key).map(|block| block.1).collect();
        assert_eq!(key_frames, (0..12).map(|number| number * 2_000 + 7).collect::<Vec<u64>>());
        for (track, frame_ms) in [(1, 40), (2, 20)] {
            let of_track: Vec<u64> =
                blocks.iter().filter(|block| block.0 == track).map(|block| block.1).collect();
            let count = of_track.len() as u64;
            assert!(count >= 3 * LENGTH_MS / frame_ms - 2, "track {track}: {count} blocks");
            for pair in of_track.windows(2) {
                // The first packet of Opus begins before the picture, and its time is rounded up to 0.
                let step_ms = pair[1].checked_sub(pair[0]).expect("times increase");
                assert!(step_ms.abs_diff(frame_ms) <= 7, "track {track}: {pair:?}");
            }
        }
    }

    #[test]
    fn a_piece_is_sent_at_its_time_and_once() {
        let clip = Clip::parse(FILE).expect("the file of live.sh");
        let mut player = clip.player();
        let mut whole = Vec::new();
        player.play(LENGTH_MS - 1, &mut whole);
        // The same blocks as in the file: only the headers of the four Clusters differ.
        let blocks: Vec<&[u8]> = clip
            .pieces
            .iter()
            .filter_map(|piece| match piece {
                ClipPiece::Block(_, block) => Some(*block),
                ClipPiece::Cluster(_) => None,
            })
            .collect();
        assert_eq!(blocks.len(), 600);
        let sent = clip.head.len() + 4 * 22 + blocks.iter().copied().map(<[u8]>::len).sum::<usize>();
        assert_eq!(whole.len(), sent);
        let mut more = Vec::new();
        player.play(LENGTH_MS - 1, &mut more);
        assert!(more.is_empty());
        player.play(LENGTH_MS, &mut more);
        assert!(more.windows(14).any(|bytes| bytes == CLUSTER_HEADER), "the clip is repeated");
    }

    #[test]
    fn files_with_another_structure_are_rejected() {
        assert!(Clip::parse(&FILE[..FILE.len() - 1]).is_none(), "an incomplete block");
        assert!(Clip::parse(&FILE[..100]).is_none(), "no Cluster");
        assert!(Clip::parse(b"").is_none());
        let mut grouped = FILE.to_vec();
        let block = FILE.windows(4).position(|id| id == [0x1F, 0x43, 0xB6, 0x75]).expect("a Cluster") + 10;
        assert_eq!(grouped[block], 0xA3);
        grouped[block] = 0xA0;
        assert!(Clip::parse(&grouped).is_none(), "a BlockGroup");
    }
}
