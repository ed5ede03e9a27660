//! What the program is told about its build: the target that `encke --version` names, and the files of the chat
//! that `encke demo` carries.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The files that are carried.
const CHAT: &str = "../../examples/chat";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ENCKE_TARGET={}", std::env::var("TARGET")?);
    println!("cargo::rerun-if-changed={CHAT}");
    let out = Path::new(&std::env::var("OUT_DIR")?).join("chat.rs");
    fs::write(out, table(CHAT)?)?;
    Ok(())
}

/// An expression: name and content of every file in a folder, in the order of their names.
fn table(folder: &str) -> Result<String, Box<dyn Error>> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    paths.sort();
    let mut table = String::from("&[");
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file's name is no text")?;
        let place = fs::canonicalize(&path)?;
        write!(table, "({name:?}, include_bytes!({place:?}).as_slice()),")?;
    }
    table.push(']');
    Ok(table)
}
