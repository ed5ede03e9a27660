//! Writes the bytes for a listener that joins a stream, for each start: the head, and the units from the start up to the next
//! head. Input for decoders (`tests/media/audio_joins.sh`).
//!
//! ```text
//! cargo run -p encke-wire --example audio_joins -- FILE DIRECTORY [headless|torn]
//! ```
//! `headless` leaves the heads out, and `torn` begins in the middle of a unit: faults that a decoder must report.

use std::error::Error;
use std::path::Path;

use encke_wire::media::splitter::Splitter;
use encke_wire::media::{MediaSink, MediaUnit};

#[derive(Default)]
struct JoinSink {
    links: Vec<(Vec<u8>, JoinUnits)>,
}

/// The units after a head: start or not, and the bytes.
type JoinUnits = Vec<(bool, Vec<u8>)>;

impl MediaSink for JoinSink {
    fn head(&mut self, head: &[u8]) {
        // Containers repeat heads.
        if self.links.last().is_none_or(|(last, _)| last != head) {
            self.links.push((head.to_vec(), Vec::new()));
        }
    }

    fn unit(&mut self, unit: MediaUnit) {
        if self.links.is_empty() {
            self.links.push((Vec::new(), Vec::new()));
        }
        if let Some((_, units)) = self.links.last_mut() {
            units.push((unit.start, Vec::new()));
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if let Some((_, unit)) = self.links.last_mut().and_then(|(_, units)| units.last_mut()) {
            unit.extend_from_slice(bytes);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [file, directory, faults @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let has = |fault: &str| faults.iter().any(|argument| argument == fault);
    let (mut splitter, mut sink) = (Splitter::new(), JoinSink::default());
    splitter.push(&std::fs::read(file)?, &mut sink)?;
    splitter.finish(&mut sink);
    let mut number = 0;
    for (head, units) in &sink.links {
        for at in (0..units.len()).filter(|at| units.get(*at).is_some_and(|(start, _)| *start)) {
            let rest = units.get(at..).unwrap_or_default().iter().map(|(_, bytes)| bytes.as_slice());
            let head = if has("headless") { &[] } else { head.as_slice() };
            let mut units = rest.collect::<Vec<_>>().concat();
            if has("torn") {
                units.drain(..units.len().min(TORN_BYTES));
            }
            let join = [head, &units].concat();
            std::fs::write(Path::new(directory).join(format!("{number:04}")), join)?;
            number += 1;
        }
    }
    println!("{number} joins, {:?}", splitter.info());
    Ok(())
}

const USAGE: &str = "usage: audio_joins FILE DIRECTORY [headless|torn]";

/// Bytes of a unit that `torn` leaves out: more than the header of any page or frame.
const TORN_BYTES: usize = 100;
