//! A sink that records, and the files of this directory.

#![allow(dead_code, reason = "each test crate uses a part")]

use std::path::Path;

use encke_wire::media::{MediaError, MediaSink, MediaUnit};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Head(Vec<u8>),
    Unit(MediaUnit, Vec<u8>),
    /// An error, and the bytes of the source up to it.
    Error(MediaError),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recording(pub(crate) Vec<Recorded>);

impl Recording {
    /// The bytes of heads and units, in order.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let parts = self.0.iter().map(|part| match part {
            Recorded::Head(bytes) | Recorded::Unit(_, bytes) => bytes.as_slice(),
            Recorded::Error(_) => &[],
        });
        parts.collect::<Vec<_>>().concat()
    }

    pub(crate) fn units(&self) -> impl Iterator<Item = (MediaUnit, &[u8])> {
        self.0.iter().filter_map(|part| match part {
            Recorded::Unit(unit, bytes) => Some((*unit, bytes.as_slice())),
            _ => None,
        })
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(|part| match part {
            Recorded::Head(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Returns the bytes for a listener that joins, for each start: the head, and the units from the start up to the next head.
    pub(crate) fn joins(&self) -> Vec<Vec<u8>> {
        let mut joins = Vec::new();
        let mut head: &[u8] = &[];
        for (at, part) in self.0.iter().enumerate() {
            match part {
                Recorded::Head(bytes) => head = bytes,
                Recorded::Unit(unit, _) if unit.start => {
                    let units = self.0[at..].iter().map_while(|part| match part {
                        Recorded::Unit(_, bytes) => Some(bytes.as_slice()),
                        _ => None,
                    });
                    joins.push([head].into_iter().chain(units).collect::<Vec<_>>().concat());
                }
                _ => {}
            }
        }
        joins
    }
}

impl MediaSink for Recording {
    fn head(&mut self, head: &[u8]) {
        self.0.push(Recorded::Head(head.to_vec()));
    }

    fn unit(&mut self, unit: MediaUnit) {
        self.0.push(Recorded::Unit(unit, Vec::new()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let Some(Recorded::Unit(_, unit)) = self.0.last_mut() else { panic!("bytes without a unit") };
        unit.extend_from_slice(bytes);
    }
}

/// A file of this directory.
pub(crate) fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/media").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
