//! The parser of [`MatroskaSplitter`](super::MatroskaSplitter).

use super::ebml::{self, BlockHead, ElementHeader, NoHeader, unsigned};
use super::tracks::Tracks;
use crate::media::held_input::{ContainerParser, InputStep};
use crate::media::{Container, HELD_BYTES_MAX, MediaError, MediaSink, MediaUnit};

/// Bytes of a `BlockGroup` that contain the time of its block: two headers of at most 12 bytes, and the block's head.
const GROUP_HEAD_MAX: u64 = 12 + 12 + ebml::BLOCK_HEAD_MAX as u64;

/// The state of the parser.
#[derive(Debug, Default)]
pub(super) struct MatroskaParser {
    pub(super) phase: MatroskaPhase,
    pub(super) tracks: Tracks,
    /// The head as far as it was received, during `MatroskaPhase::Head`.
    head: Vec<u8>,
    /// Bytes of the current element that need no parsing.
    skip: u64,
    /// Whether that element is a block in a Cluster of unknown size, whose end is the end of a unit.
    in_block: bool,
    cluster: Cluster,
    /// The begin of a Cluster, while it is not known whether it is a start.
    undecided: Option<Vec<u8>>,
    /// The time of the current Cluster, in units of `TimestampScale`.
    cluster_time: u64,
}

/// The part of the stream that is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MatroskaPhase {
    #[default]
    Begin,
    Head,
    Clusters,
}

/// The Cluster whose children are parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cluster {
    #[default]
    None,
    /// The bytes left.
    Known(u64),
    Unknown,
}

impl ContainerParser for MatroskaParser {
    fn step(&mut self, window: &[u8], at: u64, sink: &mut impl MediaSink) -> Result<InputStep, MediaError> {
        if self.skip > 0 {
            let len = window.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= len as u64;
            return Ok(self.put(window.get(..len).unwrap_or(window), sink));
        }
        let container = self.tracks.container();
        let error = |what| Err(MediaError { container, at, what });
        let element = match ElementHeader::read(window) {
            Ok(element) => element,
            Err(NoHeader::Need(need)) => return Ok(InputStep::Need(need)),
            Err(NoHeader::Invalid) => return error("no EBML element, such as a Cluster or a block"),
        };
        if self.phase == MatroskaPhase::Begin && element.id != ebml::EBML {
            return error("an EBML header must begin the stream");
        }
        let in_cluster = match self.cluster {
            Cluster::None => false,
            Cluster::Known(_) => true,
            Cluster::Unknown => !ebml::ends_cluster(element.id),
        };
        if !in_cluster && self.cluster == Cluster::Unknown {
            self.decide(None, sink);
            self.cluster = Cluster::None;
        }
        let header = window.get(..element.len).unwrap_or(window);
        match element.id {
            ebml::SEGMENT if !in_cluster => return Ok(self.put(header, sink)),
            ebml::CLUSTER if !in_cluster => {
                if self.phase == MatroskaPhase::Head {
                    sink.head(&std::mem::take(&mut self.head));
                    self.phase = MatroskaPhase::Clusters;
                }
                self.undecided = Some(header.to_vec());
                self.cluster_time = 0;
                self.cluster = element.size.map_or(Cluster::Unknown, Cluster::Known);
                self.close(sink);
                return Ok(InputStep::Used(header.len()));
            }
            _ => {}
        }
        let Some(size) = element.size else {
            return error("only a Segment or a Cluster may have an unknown size");
        };
        let whole = size.saturating_add(element.len as u64);
        if in_cluster {
            return Ok(self.child(window, element, size, sink));
        }
        if element.id == ebml::EBML && self.phase != MatroskaPhase::Head {
            self.phase = MatroskaPhase::Head;
            self.tracks = Tracks::default();
        }
        if self.phase == MatroskaPhase::Head {
            if whole.saturating_add(self.head.len() as u64) > HELD_BYTES_MAX as u64 {
                return error("more than 4 MiB before the first Cluster: leave out attachments and pictures");
            }
            if matches!(element.id, ebml::EBML | ebml::INFO | ebml::TRACKS) {
                let Some(bytes) = window.get(..whole as usize) else {
                    return Ok(InputStep::Need(whole as usize));
                };
                self.tracks.read(element.id, bytes.get(element.len..).unwrap_or_default());
                return Ok(self.put(bytes, sink));
            }
        }
        self.skip = size;
        Ok(self.put(header, sink))
    }

    fn held(&self) -> usize {
        self.head.len() + self.undecided.as_ref().map_or(0, Vec::len)
    }

    fn container(&self) -> Container {
        self.tracks.container()
    }
}

impl MatroskaParser {
    /// Parses a child of a Cluster. One of known size is parsed only until it is decided whether it is a start.
    fn child(
        &mut self,
        window: &[u8],
        element: ElementHeader,
        size: u64,
        sink: &mut impl MediaSink,
    ) -> InputStep {
        let whole = size.saturating_add(element.len as u64);
        let undecided = self.undecided.is_some();
        let overruns = matches!(self.cluster, Cluster::Known(left) if left < whole);
        if undecided && (overruns || whole.saturating_add(self.held() as u64) > HELD_BYTES_MAX as u64) {
            self.decide(None, sink);
        } else {
            let needed = match element.id {
                ebml::TIMESTAMP if undecided => size.min(8),
                ebml::SIMPLE_BLOCK => size.min(ebml::BLOCK_HEAD_MAX as u64),
                ebml::BLOCK_GROUP if undecided => size,
                ebml::BLOCK_GROUP => size.min(GROUP_HEAD_MAX),
                _ => 0,
            };
            let needed = element.len + needed as usize;
            let Some(content) = window.get(element.len..needed) else { return InputStep::Need(needed) };
            match element.id {
                ebml::TIMESTAMP if undecided => self.cluster_time = unsigned(content).unwrap_or_default(),
                ebml::SIMPLE_BLOCK | ebml::BLOCK_GROUP => {
                    let block = BlockHead::of(element.id, content);
                    if !undecided {
                        sink.unit(MediaUnit { start: false, time_us: self.time_us(block) });
                    } else if let Some(block) =
                        block.filter(|block| self.tracks.video.is_none_or(|video| video == block.track))
                    {
                        self.decide(Some(block), sink);
                    }
                }
                _ => {}
            }
        }
        let left = match self.cluster {
            Cluster::Known(left) if self.undecided.is_none() => left,
            _ => whole,
        };
        let len = (window.len() as u64).min(left).min(element.len as u64);
        self.skip = left - len;
        let is_block = matches!(element.id, ebml::SIMPLE_BLOCK | ebml::BLOCK_GROUP);
        self.in_block = is_block && self.cluster == Cluster::Unknown && self.undecided.is_none();
        self.put(window.get(..len as usize).unwrap_or(window), sink)
    }

    /// Passes on the begin of a Cluster of unknown size, if its last element is complete.
    pub(super) fn finish(&mut self, sink: &mut impl MediaSink) {
        if self.cluster == Cluster::Unknown && self.skip == 0 {
            self.decide(None, sink);
        }
    }

    /// Begins the unit of the current Cluster, whose first block is `first`, if there is one.
    fn decide(&mut self, first: Option<BlockHead>, sink: &mut impl MediaSink) {
        if let Some(held) = self.undecided.take() {
            let start = self.tracks.video.is_none() || first.is_some_and(|block| block.key);
            sink.unit(MediaUnit { start, time_us: self.time_us(first) });
            sink.bytes(&held);
        }
    }

    fn time_us(&self, block: Option<BlockHead>) -> Option<u64> {
        let relative = block.map_or(0, |block| i64::from(block.time));
        let time = self.cluster_time.checked_add_signed(relative)?;
        u64::try_from(u128::from(time) * u128::from(self.tracks.scale_ns) / 1000).ok()
    }

    /// Passes on bytes: to the head, to the undecided begin of a Cluster, or to the sink.
    fn put(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> InputStep {
        match (&mut self.undecided, self.phase) {
            (Some(held), _) => held.extend_from_slice(bytes),
            (None, MatroskaPhase::Head) => self.head.extend_from_slice(bytes),
            (None, _) => sink.bytes(bytes),
        }
        if let Cluster::Known(left) = &mut self.cluster {
            *left = left.saturating_sub(bytes.len() as u64);
            self.close(sink);
        }
        if self.skip == 0 && std::mem::take(&mut self.in_block) {
            sink.end();
        }
        InputStep::Used(bytes.len())
    }

    /// Ends a Cluster of known size without bytes left.
    fn close(&mut self, sink: &mut impl MediaSink) {
        if self.cluster == Cluster::Known(0) {
            self.decide(None, sink);
            self.cluster = Cluster::None;
            sink.end();
        }
    }
}
