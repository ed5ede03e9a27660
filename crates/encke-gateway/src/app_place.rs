//! The processes of supervised applications as targets. The address of such a target changes when its process is replaced.
//!
//! ```text
//!  supervisor ── AppPlaces::direct ─► AppPlace ── use_now ─► AddressUse, held by the permit of each connection
//!             ── AppPlaces::is_used ◄── the last AddressUse of an address is dropped
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use encke_io::{Address, lock};

/// The addresses of the processes of all supervised applications. Shared by the gateways before and after a reload.
#[derive(Default)]
pub struct AppPlaces {
    places: Mutex<BTreeMap<String, Vec<Arc<AppPlace>>>>,
}

/// The address of a process, which its replacement changes.
#[derive(Default)]
pub(crate) struct AppPlace {
    /// Counts the changes of the address.
    generation: AtomicU64,
    /// Whether there is an address.
    is_ready: AtomicBool,
    addresses: Mutex<PlaceAddresses>,
}

#[derive(Default)]
struct PlaceAddresses {
    /// The address for new connections; `None`: no process could respond.
    current: Option<Arc<SocketAddr>>,
    /// Earlier addresses that may be in use.
    earlier: Vec<Weak<SocketAddr>>,
}

/// The use of an address by a connection, from the dial to the close.
pub(crate) struct AddressUse {
    address: Arc<SocketAddr>,
    generation: u64,
}

impl AppPlaces {
    /// The places of an application, from the first to the one of number `count - 1`.
    pub(crate) fn of(&self, app: &str, count: usize) -> Vec<Arc<AppPlace>> {
        let mut places = lock(&self.places);
        let places = places.entry(app.to_owned()).or_default();
        while places.len() < count {
            places.push(Arc::default());
        }
        places.iter().take(count).cloned().collect()
    }

    /// Sends requests for a process of an application to an address from now on; `None`: there is none that could respond.
    /// Connections to the earlier address stay. `number` counts from 0.
    pub fn direct(&self, app: &str, number: usize, address: Option<SocketAddr>) {
        if let Some(place) = self.of(app, number + 1).get(number) {
            place.direct(address);
        }
    }

    /// Whether a connection to the address is open, or may still be opened: by a gateway from before a reload, which has requests.
    pub fn is_used(&self, address: SocketAddr) -> bool {
        let places = lock(&self.places);
        // The map has one reference, and each upstream another one.
        let may_be_opened = |place: &Arc<AppPlace>| Arc::strong_count(place) > 1 && place.is_at(address);
        places.values().flatten().any(|place| may_be_opened(place) || place.is_used(address))
    }
}

impl AppPlace {
    fn direct(&self, address: Option<SocketAddr>) {
        let mut addresses = lock(&self.addresses);
        if addresses.current.as_deref() == address.as_ref() {
            return;
        }
        let earlier = std::mem::replace(&mut addresses.current, address.map(Arc::new));
        addresses.earlier.retain(|earlier| earlier.strong_count() > 0);
        addresses.earlier.extend(earlier.as_ref().map(Arc::downgrade));
        self.is_ready.store(address.is_some(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Whether this is the present address.
    fn is_at(&self, address: SocketAddr) -> bool {
        lock(&self.addresses).current.as_deref() == Some(&address)
    }

    /// Whether a process could respond.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// The use of the present address; `None` if no process could respond.
    pub(crate) fn use_now(&self) -> Option<AddressUse> {
        let addresses = lock(&self.addresses);
        let address = Arc::clone(addresses.current.as_ref()?);
        Some(AddressUse { address, generation: self.generation.load(Ordering::Acquire) })
    }

    /// Whether the use is that of the present address.
    pub(crate) fn is_current(&self, of: &AddressUse) -> bool {
        of.generation == self.generation.load(Ordering::Acquire)
    }

    fn is_used(&self, address: SocketAddr) -> bool {
        let addresses = lock(&self.addresses);
        let current = addresses.current.iter().map(Arc::downgrade);
        let mut all = addresses.earlier.iter().cloned().chain(current);
        // The place itself holds the present address, and this test one more.
        all.any(|used| {
            used.upgrade().is_some_and(|used| {
                let own = addresses.current.iter().filter(|current| Arc::ptr_eq(current, &used)).count();
                *used == address && Arc::strong_count(&used) > 1 + own
            })
        })
    }
}

impl AddressUse {
    pub(crate) fn address(&self) -> Address {
        Address::Inet(*self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_used_until_its_last_connection_is_closed() {
        let [old, new]: [SocketAddr; 2] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let places = AppPlaces::default();
        let place = places.of("shop", 2).remove(1);
        assert!(place.use_now().is_none(), "no process was started");
        places.direct("shop", 1, Some(old));
        let [one, two] = [0, 1].map(|_| place.use_now().expect("an address"));
        assert!(place.is_current(&one));
        places.direct("shop", 1, Some(old));
        assert!(place.is_current(&one), "nothing has changed");
        places.direct("shop", 1, Some(new));
        assert!(!place.is_current(&one));
        assert_eq!(place.use_now().map(|used| used.address()), Some(Address::Inet(new)));
        drop(one);
        assert!(places.is_used(old));
        drop(two);
        assert!(!places.is_used(old));
        assert!(places.is_used(new), "an upstream may still open connections");
        let last = place.use_now();
        drop(place);
        assert!(places.is_used(new), "a connection is open");
        drop(last);
        assert!(!places.is_used(new));
        places.direct("shop", 1, None);
        assert!(places.of("shop", 2).remove(1).use_now().is_none());
    }
}
