//! Checks of the repository: `cargo xtask tidy`.
//!
//! The crate has no dependencies, so that it builds in a second and needs no network.

use std::process::ExitCode;

mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy     checks that the tree is as ARCHITECTURE.md says
       cargo xtask rules    names each rule";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(),
        ["rules"] => tidy::list(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
