//! A server that drains while its successor starts, and still holds an address or the state directory.

use std::path::Path;

use encke_io::Address;
use encke_io::drain_mark::{DrainingProcess, HeldResource};

use crate::settings::Settings;

/// A draining process that holds a resource of a new server.
#[derive(Debug)]
pub struct Predecessor {
    /// The process.
    pub process: DrainingProcess,
    /// The resource, for messages: an address, or the state directory.
    pub held: String,
}

impl Predecessor {
    /// Finds the draining process that holds an address or the state directory of `settings`.
    pub fn find(settings: &Settings) -> Option<Self> {
        let server = &settings.server;
        let admin = server.admin.as_ref().on().map(crate::settings::Admin::address);
        let listen = server.listen.iter().map(|listen| listen.address.clone()).chain(admin);
        let addresses = listen.filter_map(|address| address.addresses().ok()).flatten();
        let find = |(name, held): (String, HeldResource)| {
            Some(Self { process: DrainingProcess::find(&held)?, held: name })
        };
        let addresses = addresses.filter_map(|address| Some((address.to_string(), held_at(&address)?)));
        let folder = server.state_dir.as_deref();
        let folder = folder.and_then(|path| Some((path.display().to_string(), held_in(path)?)));
        addresses.chain(folder).find_map(find)
    }
}

/// The resources at these addresses and in this directory that exclude another server.
pub(crate) fn held(addresses: impl Iterator<Item = Address>, folder: Option<&Path>) -> Vec<HeldResource> {
    addresses.filter_map(|address| held_at(&address)).chain(folder.and_then(held_in)).collect()
}

fn held_at(address: &Address) -> Option<HeldResource> {
    match address {
        Address::Inet(address) if address.port() == 0 => None,
        Address::Inet(address) => Some(HeldResource::Port(address.port())),
        Address::Unix(path) => held_in(path),
    }
}

fn held_in(path: &Path) -> Option<HeldResource> {
    encke_io::files::id_of(path).map(HeldResource::File)
}
