//! The rig of the engine's tests, extended by sites and channels.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]
#![allow(missing_docs, unreachable_pub, reason = "a test: nobody uses it as a library")]

#[path = "../../../encke-server/tests/rig/mod.rs"]
mod engine;

use std::cell::RefCell;
use std::sync::Arc;

use encke_assembly::settings::{AuthSettings, PushSettings};
use encke_push::{PushError, PushPlan};
use encke_rights::{Openness, Shut};
use encke_server::{Running, Server};
use encke_site::{Site, SiteSettings};

pub use engine::*;

/// Creates a site of a directory.
pub fn site(folder: &Folder) -> Site {
    let settings = SiteSettings { root: folder.path().to_owned(), ..SiteSettings::default() };
    Site::new(&[settings], Vec::new()).expect("a folder that can be read")
}

/// An extension of [`Stand`] by sites.
pub trait Sites {
    /// Starts a server with only this directory.
    fn serve_site(self, folder: &Folder) -> Rig;
}

impl Sites for Stand {
    fn serve_site(self, folder: &Folder) -> Rig {
        let site = site(folder);
        self.serve(|server| server.mount("/", site))
    }
}

thread_local! {
    /// The channels that this case mounted last.
    static CHANNELS: RefCell<Option<Arc<PushPlan>>> = const { RefCell::new(None) };
}

/// A server with channels.
pub trait Channels: Sized {
    /// Mounts channels. The addresses must be set before. Channels are open to this machine only, unless the settings differ.
    fn push(self, push: &PushSettings, auth: &AuthSettings) -> Result<Self, PushError>;
}

impl Channels for Server {
    fn push(self, push: &PushSettings, auth: &AuthSettings) -> Result<Self, PushError> {
        let openness = Openness::of(false, false, self.doors().iter().map(|door| &door.address));
        let plan = Arc::new(PushPlan::new(push, auth, openness)?);
        CHANNELS.set(Some(Arc::clone(&plan)));
        Ok(self.mount_all(plan.mounts()))
    }
}

/// The channels that this case has mounted last.
pub fn channels() -> Arc<PushPlan> {
    CHANNELS.with_borrow(Option::clone).expect("the case has mounted channels")
}

/// A server with reloadable channels.
pub trait Reloads {
    /// Reloads the channels of this case with other settings; messages and rates stay.
    fn reload_push(&self, push: &PushSettings, auth: &AuthSettings) -> Result<(), PushError>;
}

impl Reloads for Running {
    fn reload_push(&self, push: &PushSettings, auth: &AuthSettings) -> Result<(), PushError> {
        let old = channels();
        let plan = PushPlan::new(push, auth, Openness::Shut(Shut::Settings))?;
        let plan = Arc::new(plan.with_epoch_of(&old));
        self.replace(plan.mounts());
        CHANNELS.set(Some(plan));
        Ok(())
    }
}
