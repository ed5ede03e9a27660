//! The cost of compressing a message, and the savings: `cargo run --release -p encke-wire --example deflate_speed`.
//!
//! Messages are envelopes as channels send them: a few constant fields, and text made of words from a dictionary of some
//! hundred. Random text would not shrink, and one repeated line would shrink to almost nothing.

use std::hint::black_box;
use std::time::Instant;

use encke_wire::websocket::{Deflater, Inflater, MessageKind};

const SIZES: [usize; 10] = [64, 96, 128, 192, 256, 512, 1_024, 4_096, 65_536, 1_048_576];
const LEVELS: [u32; 4] = [1, 3, 6, 9];
/// Each figure is the best of this number of rounds.
const ROUNDS: usize = 7;
/// Approximate number of bytes compressed per round.
const ROUND_BYTES: usize = 1 << 22;

fn main() {
    println!(
        "{:>9}  {:>5}  {:>9}  {:>6}  {:>10}  {:>10}",
        "bytes", "level", "becomes", "share", "deflate", "inflate"
    );
    for size in SIZES {
        let message = envelope(size);
        for level in LEVELS {
            let mut deflater = Deflater::new(level);
            let mut payload = Vec::new();
            let repeats = (ROUND_BYTES / size).clamp(1, 5_000);
            let deflate_us = best_us(repeats, || {
                payload.clear();
                deflater.put(black_box(&message), &mut payload);
            });
            let (mut inflater, mut out) = (Inflater::new(), Vec::new());
            let inflate_us = best_us(repeats, || {
                out.clear();
                let most = message.len() as u64;
                inflater
                    .feed(black_box(&payload), MessageKind::Text, true, most, &mut out)
                    .expect("its own deflate");
            });
            assert_eq!(out, message);
            let share = payload.len() as f64 / size as f64;
            println!(
                "{size:>9}  {level:>5}  {:>9}  {share:>5.0}%  {deflate_us:>7.1} µs  {inflate_us:>7.1} µs",
                payload.len(),
                share = share * 100.0
            );
        }
    }
}

/// The time per call in µs, in the shortest round.
fn best_us(repeats: usize, mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..repeats).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e6 / repeats as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// An envelope of `bytes` bytes.
fn envelope(bytes: usize) -> Vec<u8> {
    let mut text = String::from(
        "{\"id\":\"9f8e7d6c5b4a3921-1047\",\"channel\":\"chat/lobby\",\"time\":1795312345678,\"data\":\"",
    );
    let mut random = 1_u32;
    while text.len() < bytes {
        // A linear congruential generator (Numerical Recipes), sufficient to select words.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = (random >> 16) % 300;
        for place in 0..2 + word % 6 {
            text.push(char::from(b'a' + ((word * 7 + place * place * 11) % 26) as u8));
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text.into_bytes()
}
