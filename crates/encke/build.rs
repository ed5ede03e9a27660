//! Tells the program for which target it is built: `encke --version` says so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ENCKE_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}
