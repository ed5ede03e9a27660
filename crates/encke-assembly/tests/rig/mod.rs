//! The rig of the engine's tests, with sites.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]
#![allow(missing_docs, unreachable_pub, reason = "a test: nobody uses it as a library")]

#[path = "../../../encke-server/tests/rig/mod.rs"]
mod engine;

use encke_site::{Site, SiteSettings};

pub use engine::*;

/// A site of a folder.
pub fn site(folder: &Folder) -> Site {
    let settings = SiteSettings { root: folder.path().to_owned(), ..SiteSettings::default() };
    Site::new(&[settings], Vec::new()).expect("a folder that can be read")
}

/// A stand with sites.
pub trait Sites {
    /// A server of nothing but a folder.
    fn serve_site(self, folder: &Folder) -> Rig;
}

impl Sites for Stand {
    fn serve_site(self, folder: &Folder) -> Rig {
        let site = site(folder);
        self.serve(|server| server.mount("/", site))
    }
}
