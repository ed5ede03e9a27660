//! The throughput of the splitters of media: `cargo run --release -p encke-wire --example media_speed -- FILE…`.
//!
//! Each file is read once, and given to its splitter again and again in pieces of 16 KiB, as a socket would deliver it. A file
//! that begins again is a new head, which is part of the figure. The result is the shortest of 30 rounds, which is the least
//! disturbed one on a shared machine.

use std::hint::black_box;
use std::time::Instant;

use encke_wire::media::adts::AdtsSplitter;
use encke_wire::media::flv::FlvSplitter;
use encke_wire::media::fragmented_mp4::FragmentedMp4Splitter;
use encke_wire::media::matroska::MatroskaSplitter;
use encke_wire::media::mpeg_audio::Mp3Splitter;
use encke_wire::media::mpeg_ts::MpegTsSplitter;
use encke_wire::media::ogg::OggSplitter;
use encke_wire::media::{MediaSink, MediaUnit};

const PIECE: usize = 16 * 1024;

#[derive(Default)]
struct CountingSink {
    bytes: usize,
    units: usize,
}

impl MediaSink for CountingSink {
    fn head(&mut self, head: &[u8]) {
        self.bytes += black_box(head).len();
    }
    fn unit(&mut self, _: MediaUnit) {
        self.units += 1;
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes += black_box(bytes).len();
    }
}

macro_rules! measure {
    ($name:expr, $bytes:expr, $($splitter:ty),*) => {
        $(if <$splitter>::recognises($bytes) == Some(true) {
            let repeats = (32_usize << 20).div_ceil($bytes.len());
            let stream = $bytes.repeat(repeats);
            let mut best = f64::INFINITY;
            let mut units = 0;
            for _ in 0..30 {
                let (mut splitter, mut sink) = (<$splitter>::new(), CountingSink::default());
                let start = Instant::now();
                for piece in stream.chunks(PIECE) {
                    splitter.push(black_box(piece), &mut sink)?;
                }
                splitter.finish(&mut sink);
                best = best.min(start.elapsed().as_nanos() as f64);
                units = sink.units;
                assert!(sink.bytes + stream.len() / 50 > stream.len());
            }
            println!("{:>24} {:>12} {:>8.2}", $name, stream.len() / units, stream.len() as f64 / best);
        })*
    };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>24} {:>12} {:>8}", "file", "bytes a unit", "GB/s");
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file)?;
        let name = file.rsplit('/').next().unwrap_or_default();
        measure!(
            name,
            &bytes,
            MpegTsSplitter,
            MatroskaSplitter,
            FragmentedMp4Splitter,
            FlvSplitter,
            Mp3Splitter,
            AdtsSplitter,
            OggSplitter
        );
    }
    Ok(())
}
