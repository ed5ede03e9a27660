//! The time to read one masked frame: `cargo run --release -p encke-wire --example frame_speed`.
//!
//! Binary payloads are only unmasked. Texts are also checked: one of ASCII, one of three-byte characters. The result is the
//! shortest of 30 rounds, which is the least disturbed one on a shared machine. Unmasking changes the frame, so each round
//! starts with a copy of it, whose time is included.

use std::hint::black_box;
use std::time::Instant;

use encke_wire::websocket::{Decoder, FrameRules, FrameSender, Opcode, put_masked};

fn main() {
    println!("{:>8} {:>8} {:>12} {:>8}", "payload", "bytes", "ns a frame", "GB/s");
    for bytes in [63, 1_023, 65_535] {
        for (name, opcode, unit) in
            [("bytes", Opcode::Binary, "x"), ("ascii", Opcode::Text, "x"), ("kanji", Opcode::Text, "語")]
        {
            let payload = unit.repeat(bytes / unit.len());
            let ns = quickest(opcode, payload.as_bytes());
            println!("{name:>8} {bytes:>8} {ns:>12.1} {:>8.2}", bytes as f64 / ns);
        }
    }
}

/// Nanoseconds per frame in the best round.
fn quickest(opcode: Opcode, payload: &[u8]) -> f64 {
    let rules = FrameRules::new(FrameSender::Client, 1 << 20);
    let mut frame = Vec::new();
    put_masked(&mut frame, opcode, payload, [0x37, 0xfa, 0x21, 0x3d]);
    let mut copy = frame.clone();
    let count = (4_000_000 / frame.len()).clamp(50, 20_000);
    let round = || {
        let start = Instant::now();
        for _ in 0..count {
            copy.copy_from_slice(&frame);
            let mut decoder = Decoder::new();
            let step = decoder.feed(black_box(&mut copy), &rules).expect("the frame is valid");
            assert_eq!(black_box(step.used), frame.len());
        }
        start.elapsed().as_nanos() as f64 / count as f64
    };
    std::iter::repeat_with(round).take(30).fold(f64::INFINITY, f64::min)
}
