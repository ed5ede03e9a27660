//! `parser` (report 004): the cost of parsing a request's head, from a switch per byte to vector instructions.

use std::hint::black_box;
use std::ops::Range;

use encke_wire::http1::{Head, HeadLimits, Progress};

use super::requests;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, DesignRow, Experiment, Judged, Load, LoadAxis, Way,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::bytewise::{ByteRing, Bytewise, CHead};
use crate::specimens::pico::Pico;
use crate::stopwatch;

/// A parser of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rival {
    Bytewise(Bytewise),
    Httparse,
    Pico,
    EnckeScalar,
    Encke,
}

/// In the order of the table.
const RIVALS: [(Rival, Way, &str); 9] = [
    (Rival::Bytewise(Bytewise::SwitchModulo), Way::Old, "switch, % 8124"),
    (Rival::Bytewise(Bytewise::SwitchMask), Way::Cure, "switch, & 8191"),
    (Rival::Bytewise(Bytewise::GotoModulo), Way::Cure, "computed goto, % 8124"),
    (Rival::Bytewise(Bytewise::GotoMask), Way::Cure, "computed goto, & 8191"),
    (Rival::Bytewise(Bytewise::ThreadedMask), Way::Cure, "threaded goto, & 8191"),
    (Rival::Httparse, Way::Peer, "httparse"),
    (Rival::Pico, Way::Peer, "picohttpparser"),
    (Rival::EnckeScalar, Way::Encke, "Encke without vectors"),
    (Rival::Encke, Way::Encke, "Encke"),
];

/// The experiment, with state that each parser keeps between requests.
pub(super) struct ParserExperiment {
    design: Design,
    requests: Vec<Vec<u8>>,
    /// By request, for the two sizes of a ring.
    rings: Vec<[(ByteRing, Range<u32>); 2]>,
    c_head: Box<CHead>,
    pico: Option<Pico>,
    head: Box<Head>,
}

impl ParserExperiment {
    pub(super) fn new(_pace: &RoundPace) -> Self {
        let (names, requests): (Vec<&str>, Vec<Vec<u8>>) = requests::all().into_iter().unzip();
        let rows = RIVALS.iter().map(|&(_, way, name)| DesignRow::new(way, name)).collect();
        let loads = names.iter().map(|&name| Load::kind(name)).collect();
        let rings = requests
            .iter()
            .map(|request| {
                [Bytewise::SwitchModulo, Bytewise::SwitchMask].map(|how| ByteRing::holding(request, 0, how))
            })
            .collect();
        Self {
            design: Design {
                name: "parser",
                unit: "a request",
                judged: Judged::Cpu,
                rows,
                loads,
                axis: LoadAxis::Kinds,
                drawn: Vec::new(),
            },
            requests,
            rings,
            c_head: Box::new(CHead::new()),
            pico: Pico::new(),
            head: Box::new(Head::new()),
        }
    }
}

impl Experiment for ParserExperiment {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let request = &self.requests[cell.load][..];
        let whole = request.len();
        Ok(match RIVALS[cell.row].0 {
            Rival::Bytewise(how) => {
                let is_mask =
                    matches!(how, Bytewise::SwitchMask | Bytewise::GotoMask | Bytewise::ThreadedMask);
                let (ring, place) = &self.rings[cell.load][usize::from(is_mask)];
                stopwatch::count(|| {
                    for _ in 0..count {
                        let bytes = how.parse(black_box(ring), place.clone(), &mut self.c_head);
                        assert_eq!(bytes, Some(whole), "{how:?}");
                        black_box(&self.c_head);
                    }
                })
            }
            Rival::Httparse => stopwatch::count(|| {
                for _ in 0..count {
                    // httparse needs a new array for each request.
                    let mut fields = [httparse::EMPTY_HEADER; 32];
                    let mut parsed = httparse::Request::new(&mut fields);
                    let status = parsed.parse(black_box(request));
                    assert_eq!(status, Ok(httparse::Status::Complete(whole)));
                    black_box(&parsed);
                }
            }),
            Rival::Pico => {
                let Some(pico) = &mut self.pico else {
                    return Err(Absent("requires an x86-64 processor with SSE4.2".into()));
                };
                stopwatch::count(|| {
                    for _ in 0..count {
                        assert_eq!(pico.parse(black_box(request)), Some(whole));
                        black_box(&*pico);
                    }
                })
            }
            Rival::EnckeScalar => stopwatch::count(|| {
                for _ in 0..count {
                    self.head.reset();
                    let progress = self.head.feed_scalar(black_box(request), &HeadLimits::default());
                    assert_eq!(progress, Progress::Done { head_bytes: whole });
                    black_box(&self.head);
                }
            }),
            Rival::Encke => stopwatch::count(|| {
                for _ in 0..count {
                    self.head.reset();
                    let progress = self.head.feed(black_box(request), &HeadLimits::default());
                    assert_eq!(progress, Progress::Done { head_bytes: whole });
                    black_box(&self.head);
                }
            }),
        })
    }

    /// A processor learns the branches of a request, and each parser follows another one's training.
    fn count_min(&self, cell: CellIndex) -> u64 {
        BYTES_MIN / self.requests[cell.load].len() as u64
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row =
            |rival| RIVALS.iter().position(|(known, _, _)| *known == rival).expect("every rival has a row");
        let [modulo, mask, computed] = [Bytewise::SwitchModulo, Bytewise::SwitchMask, Bytewise::GotoModulo]
            .map(|how| row(Rival::Bytewise(how)));
        let (pico, scalar, encke) = (row(Rival::Pico), row(Rival::EnckeScalar), row(Rival::Encke));
        let every_load = 0..self.requests.len();
        vec![
            Claim::all(every_load.map(|load| results.at_most(0.95, mask, modulo, load))),
            results.at_most(1.0, modulo, computed, BROWSER),
            Claim::all([AB, BROWSER].map(|load| results.at_most(0.55, encke, modulo, load))),
            results.at_most(0.9, encke, scalar, BROWSER),
            results.at_most(1.0, encke, pico, BROWSER),
            Claim::all([SHORTEST, AB].map(|load| results.at_most(1.1, encke, pico, load))),
        ]
    }
}

/// Minimum bytes that each parser reads in a round: some milliseconds, one for the fastest parser.
const BYTES_MIN: u64 = 1_500_000;

/// Indices of the loads.
const SHORTEST: usize = 0;
const AB: usize = 1;
const BROWSER: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed::Parsed;
    use crate::rounds::OrderRandom;
    use crate::specimens::bytewise;

    /// The head that Encke finds, with or without vector instructions.
    fn encke(text: &[u8], scalar: bool) -> Option<Parsed> {
        let mut head = Head::new();
        let limits = HeadLimits::default();
        let progress = if scalar { head.feed_scalar(text, &limits) } else { head.feed(text, &limits) };
        let Progress::Done { head_bytes } = progress else { return None };
        Some(Parsed {
            bytes: head_bytes,
            method: head.method_text(text).to_vec(),
            target: head.target(text).to_vec(),
            minor: u8::from(head.version() == encke_wire::http1::Version::Http11),
            fields: head.fields(text).map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        })
    }

    fn httparse(text: &[u8]) -> Option<Parsed> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(bytes) = request.parse(text).ok()? else { return None };
        Some(Parsed {
            bytes,
            method: request.method?.into(),
            target: request.path?.into(),
            minor: request.version?,
            fields: request.headers.iter().map(|field| (field.name.into(), field.value.to_vec())).collect(),
        })
    }

    /// The results of all parsers, by name.
    fn answers(text: &[u8]) -> Vec<(String, Option<Parsed>)> {
        let mut answers =
            vec![("Encke".to_owned(), encke(text, false)), ("scalar".into(), encke(text, true))];
        answers.push(("httparse".into(), httparse(text)));
        answers.extend(Pico::new().map(|mut pico| ("picohttpparser".to_owned(), pico.parsed(text))));
        for how in Bytewise::ALL {
            // At the ring's start, across its end, and where positions themselves wrap around.
            for at in [0, 8_100, 8_150, 3 * 8_124 - 7, 1 << 30] {
                answers.push((format!("{how:?} at {at}"), bytewise::parsed(how, text, at)));
            }
        }
        answers
    }

    /// Generates a valid request that all of these parsers accept.
    fn request(random: &mut OrderRandom) -> Vec<u8> {
        let methods = ["GET", "HEAD", "POST", "OPTIONS", "M-SEARCH"];
        let method = methods[random.below(methods.len() as u64) as usize];
        let text = |random: &mut OrderRandom, bytes: u64| -> String {
            (0..random.below(bytes) + 1).map(|_| (b'a' + random.below(26) as u8) as char).collect()
        };
        let minor = random.below(2);
        let mut request =
            format!("{method} /{} HTTP/1.{minor}\r\nHost: {}\r\n", text(random, 300), text(random, 40));
        for _ in 0..random.below(20) {
            let space = " ".repeat(random.below(4) as usize);
            let value = if random.below(8) == 0 { String::new() } else { text(random, 200) };
            request += &format!("x-{}:{space}{value}\r\n", text(random, 30));
        }
        (request + "\r\n").into_bytes()
    }

    #[test]
    fn every_parser_says_the_same_of_the_requests_of_the_table() {
        for (name, text) in requests::all() {
            let expected = encke(&text, false).expect(name);
            for (parser, answer) in answers(&text) {
                assert_eq!(answer.as_ref(), Some(&expected), "{parser}, {name}");
            }
        }
    }

    #[test]
    fn every_parser_says_the_same_of_valid_requests_by_seed() {
        for seed in 1..=300 {
            let mut random = OrderRandom::new(seed);
            let text = request(&mut random);
            let expected = encke(&text, false);
            assert!(expected.is_some(), "seed {seed}: {}", text.escape_ascii());
            for (parser, answer) in answers(&text) {
                assert_eq!(answer, expected, "{parser}, seed {seed}: {}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn no_parser_takes_a_head_for_whole_that_is_cut_anywhere() {
        for (name, text) in requests::all() {
            for end in 1..text.len() {
                // Some lengths of the cookie request are enough.
                if end > 800 && end % 101 != 0 {
                    continue;
                }
                for how in Bytewise::ALL {
                    assert_eq!(
                        bytewise::parsed(how, &text[..end], 8_100),
                        None,
                        "{how:?}, {name} cut at {end}"
                    );
                }
                assert_eq!(encke(&text[..end], true), None, "{name} cut at {end}");
            }
        }
    }

    #[test]
    fn each_cell_is_measured_and_each_text_has_its_claim() {
        let mut parser = ParserExperiment::new(&RoundPace::quick(1));
        for (row, (rival, ..)) in RIVALS.iter().enumerate() {
            for load in 0..parser.design.loads.len() {
                match parser.measure(CellIndex { row, load }, 3) {
                    Ok(sample) => assert!(sample.wall_ns > 0),
                    Err(absent) => assert_eq!(*rival, Rival::Pico, "{absent:?}"),
                }
            }
        }
    }
}
