//! Build-time values of the program: the target and the cargo profile for `encke --version`, and the chat files for `encke
//! demo`.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The directory of the embedded files.
const CHAT: &str = "../../examples/chat";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ENCKE_TARGET={}", std::env::var("TARGET")?);
    println!("cargo::rerun-if-changed={CHAT}");
    let out = std::env::var("OUT_DIR")?;
    let out = Path::new(&out);
    println!("cargo::rustc-env=ENCKE_PROFILE={}", profile(out).ok_or("OUT_DIR contains no profile")?);
    fs::write(out.join("chat.rs"), table(CHAT)?)?;
    Ok(())
}

/// Returns the directory of the cargo profile in `OUT_DIR`, as in `target/quick/build/encke-…/out`; `debug` for the profile
/// `dev`. Cargo's variable `PROFILE` is `release` for every profile that inherits from it.
fn profile(out: &Path) -> Option<&str> {
    let build = out.ancestors().find(|path| path.ends_with("build"))?;
    build.parent()?.file_name()?.to_str()
}

/// Returns a Rust expression with name and content of every file in a directory, sorted by name.
fn table(folder: &str) -> Result<String, Box<dyn Error>> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    paths.sort();
    let mut table = String::from("&[");
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file name is not valid UTF-8")?;
        let place = fs::canonicalize(&path)?;
        write!(table, "({name:?}, include_bytes!({place:?}).as_slice()),")?;
    }
    table.push(']');
    Ok(table)
}
