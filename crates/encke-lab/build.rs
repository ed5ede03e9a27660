//! Compiles the C specimens, and exports the compiler's name for the results, which depend on it.

use std::process::Command;

fn main() {
    let sources = ["accept.c", "files.c", "mux.c", "parser.c", "ring.c", "trigger.c"]
        .map(|name| format!("src/specimens/{name}"));
    let headers = ["parser.h", "parser_states.h", "system.h"].map(|name| format!("src/specimens/{name}"));
    for file in sources.iter().chain(&headers) {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    // Optimized as the reports compiled their programs. Each function starts a cache line; otherwise the linker's layout
    // decides which of two variants is faster. A debug build must not measure them at -O0.
    build
        .files(&sources)
        .opt_level(2)
        .flag_if_supported("-falign-functions=64")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(false);
    let compiler = build.get_compiler();
    build.compile("specimens");
    // On Windows sockets and TransmitFile are in libraries of their own.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "windows") {
        println!("cargo::rustc-link-lib=mswsock");
        println!("cargo::rustc-link-lib=ws2_32");
    }
    let told = Command::new(compiler.path()).arg("--version").output();
    let version = told.ok().and_then(|told| {
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    });
    println!(
        "cargo::rustc-env=LAB_COMPILER={}",
        version.as_deref().unwrap_or("a C compiler that does not tell its name")
    );
}
