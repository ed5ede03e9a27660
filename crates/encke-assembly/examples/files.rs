//! A site: the files of a directory, and a handler of the program.
//!
//! `cargo run -p encke-assembly --example files -- DIR`, then `curl http://127.0.0.1:8080/`

use std::path::PathBuf;

use encke_server::{Options, Outcome, Reply, Request, Server};
use encke_site::{Site, SiteError, SiteSettings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let server = Server::new(Options::default()).listen("127.0.0.1:8080".parse()?);
    let running = app(server, root.into())?.start()?;
    println!("http://{}/", running.addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn app(server: Server, root: PathBuf) -> Result<Server, SiteError> {
    let settings = SiteSettings { root, list: true, ..SiteSettings::default() };
    let site = Site::new(&[settings], Vec::new())?;
    Ok(server
        .mount("/", site)
        // The longest prefix wins.
        .mount("/api/version", |_: &Request<'_>, _| Outcome::Now(Reply::text(200, "1.0\n"))))
}
