//! Any settings file is accepted, or rejected with positions within the file. Accepted settings are valid, and every quantity
//! parses back from its text.

#![no_main]

use encke_assembly::settings::{ByteRate, ByteSize, ListenAddress, Period, Settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Settings::parse("fuzz.toml", text) {
        Ok(settings) => {
            let head = settings.policy(1_000).limits.head();
            assert!(head.uri_bytes <= head.head_bytes);
            assert!(!settings.server.listen.is_empty());
        }
        Err(problems) => {
            let (lines, told) = (text.split('\n').count(), problems.to_string());
            assert!(problems.iter().count() > 0);
            for problem in problems.iter() {
                let (line, column) = problems.place(problem);
                assert!((1..=lines).contains(&line) && column >= 1, "{told}");
                assert!(!problem.message.is_empty(), "{told}");
            }
        }
    }
    reads_back::<Period>(text);
    reads_back::<ByteSize>(text);
    reads_back::<ByteRate>(text);
    reads_back::<ListenAddress>(text);
});

fn reads_back<T: std::str::FromStr + std::fmt::Display + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let shown = value.to_string();
        assert!(shown.parse::<T>().is_ok_and(|again| again == value), "{text:?} is shown as {shown:?}");
    }
}
