//! Cuts a stream as listeners join it: `cargo run -p encke-wire --example media_joins -- FILE DIRECTORY [FAULT]`.
//!
//! Writes a file for each start of FILE: the head, and all bytes from this start on. FAULT `no-head` leaves out the head, and
//! `late` begins one unit later; a player must then fail. `tests/media/joins.sh` decodes the files with ffmpeg.

use std::path::Path;

use encke_wire::media::flv::FlvSplitter;
use encke_wire::media::fragmented_mp4::FragmentedMp4Splitter;
use encke_wire::media::matroska::MatroskaSplitter;
use encke_wire::media::mpeg_ts::MpegTsSplitter;
use encke_wire::media::{MediaSink, MediaUnit};

/// Head, start, and bytes of each unit.
#[derive(Default)]
struct JoinSink {
    head: Vec<u8>,
    units: Vec<(Vec<u8>, bool, Vec<u8>)>,
}

impl MediaSink for JoinSink {
    fn head(&mut self, head: &[u8]) {
        self.head = head.to_vec();
    }
    fn unit(&mut self, unit: MediaUnit) {
        self.units.push((self.head.clone(), unit.start, Vec::new()));
    }
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some((_, _, unit)) = self.units.last_mut() {
            unit.extend_from_slice(bytes);
        }
    }
}

macro_rules! split_with {
    ($bytes:expr, $sink:expr, $($splitter:ty),*) => {
        $(if <$splitter>::recognises($bytes) == Some(true) {
            let mut splitter = <$splitter>::new();
            splitter.push($bytes, $sink)?;
            splitter.finish($sink);
        })*
    };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, directory, fault @ ..] = &arguments[..] else { return Err("FILE DIRECTORY [FAULT]".into()) };
    let fault = fault.first().map(String::as_str).unwrap_or_default();
    let file = Path::new(file);
    let bytes = std::fs::read(file)?;
    let mut sink = JoinSink::default();
    split_with!(&bytes, &mut sink, MpegTsSplitter, MatroskaSplitter, FragmentedMp4Splitter, FlvSplitter);
    let mut count = 0;
    for (at, (head, start, _)) in sink.units.iter().enumerate() {
        let from = if fault == "late" { at + 1 } else { at };
        if !start || from >= sink.units.len() {
            continue;
        }
        let head = if fault == "no-head" { &[] } else { &head[..] };
        let tail = sink.units[from..].iter().map(|(_, _, unit)| &unit[..]);
        let joined = std::iter::once(head).chain(tail).collect::<Vec<_>>().concat();
        let stem = file.file_name().unwrap_or_default().to_string_lossy();
        std::fs::write(Path::new(directory).join(format!("{count:03}-{stem}")), joined)?;
        count += 1;
    }
    println!("{count} starts in {}", file.display());
    Ok(())
}
