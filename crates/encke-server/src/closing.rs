//! Addresses whose listeners are being closed. A reload that binds such an address again waits here.
//!
//! ```text
//!  reload A to B: begin(A) ─► a ClosingListener for each worker ─► Retire ─► RETIRE_NS ─► Close ─► Closed: drop ─┐
//!  reload B to A: wait(A) ◄── notified ─────────────────────────────────────────────────────────────────────────┘
//! ```
//! Only the thread that reloads waits; workers do not.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use encke_io::Address;
use encke_io::lock;

use crate::error::ServerError;

/// Maximum wait for a listener: it is retired for 200 ms, and closed in the worker's next turn.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The addresses, with one entry per listener.
#[derive(Default)]
pub(crate) struct ClosingAddresses {
    addresses: Mutex<Vec<Address>>,
    closed: Condvar,
}

/// A listener that is being closed, until the value is dropped.
pub(crate) struct ClosingListener {
    address: Address,
    closing: Arc<ClosingAddresses>,
}

impl ClosingAddresses {
    /// Records a listener that a worker is to close.
    pub(crate) fn begin(self: &Arc<Self>, address: &Address) -> ClosingListener {
        self.lock().push(address.clone());
        ClosingListener { address: address.clone(), closing: Arc::clone(self) }
    }

    /// Waits until no closing listener prevents `wanted` from being bound. Returns the address of a listener that is still open
    /// after [`WAIT_MAX`].
    pub(crate) fn wait(&self, wanted: &Address) -> Option<Address> {
        let conflicts = |addresses: &mut Vec<Address>| addresses.iter().any(|own| conflict(own, wanted));
        let waited = self.closed.wait_timeout_while(self.lock(), WAIT_MAX, conflicts);
        let (addresses, _) = waited.unwrap_or_else(PoisonError::into_inner);
        addresses.iter().find(|own| conflict(own, wanted)).cloned()
    }

    /// Explains an "address in use" error that this server causes itself: it is `closing` a listener there, or one of its
    /// `open` ones has the address.
    pub(crate) fn explain(
        &self,
        error: ServerError,
        wanted: &Address,
        closing: Option<Address>,
        open: &[Address],
    ) -> ServerError {
        let own = open.iter().find(|own| conflict(own, wanted));
        let wanted = wanted.clone();
        match (closing, own) {
            (Some(own), _) => ServerError::Closing { wanted, own },
            (None, Some(own)) => ServerError::OwnListener { wanted, own: own.clone() },
            (None, None) => error,
        }
    }

    /// Locks the list. It is consistent wherever a thread could panic, so a poisoned lock is usable.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Address>> {
        lock(&self.addresses)
    }
}

impl ClosingListener {
    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for ClosingListener {
    fn drop(&mut self) {
        let mut addresses = self.closing.lock();
        if let Some(place) = addresses.iter().position(|address| *address == self.address) {
            addresses.swap_remove(place);
        }
        drop(addresses);
        self.closing.closed.notify_all();
    }
}

/// Whether a listener on one address may prevent the other from being bound: both are the same socket file, or have the same
/// port and IP address. An unspecified IP address conflicts with every address.
fn conflict(own: &Address, wanted: &Address) -> bool {
    match (own, wanted) {
        (Address::Inet(own), Address::Inet(wanted)) => {
            own.port() == wanted.port()
                && (own.ip() == wanted.ip() || own.ip().is_unspecified() || wanted.ip().is_unspecified())
        }
        _ => own == wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn at(text: &str) -> Address {
        text.parse().map(Address::Inet).expect("an address")
    }

    #[test]
    fn a_listener_that_is_being_closed_is_waited_for() {
        let closing = Arc::<ClosingAddresses>::default();
        let two = [closing.begin(&at("127.0.0.1:80")), closing.begin(&at("127.0.0.1:80"))];
        let other = closing.begin(&at("127.0.0.1:81"));
        assert_eq!(closing.wait(&at("127.0.0.2:80")), None, "another address");
        let dropping = std::thread::spawn(move || two.into_iter().for_each(drop));
        // A wait of a stopped machine may give up.
        while closing.wait(&at("0.0.0.0:80")).is_some() {}
        dropping.join().expect("no panic");
        let still = closing.wait(&at("127.0.0.1:81"));
        assert_eq!(still, Some(at("127.0.0.1:81")));
        let error = ServerError::Listen(at("127.0.0.1:81"), io::ErrorKind::AddrInUse.into());
        let explained = closing.explain(error, &at("127.0.0.1:81"), still, &[]).to_string();
        assert!(explained.contains("still closing its listener on 127.0.0.1:81"), "{explained}");
        drop(other);
        assert_eq!(closing.wait(&at("127.0.0.1:81")), None);
    }

    #[test]
    fn an_address_in_use_names_this_server_only_if_it_uses_it() {
        let closing = ClosingAddresses::default();
        let error = || ServerError::Listen(at("0.0.0.0:80"), io::ErrorKind::AddrInUse.into());
        let explain = |open: &[Address]| closing.explain(error(), &at("0.0.0.0:80"), None, open).to_string();
        let other = explain(&[at("127.0.0.1:81")]);
        assert!(other.contains("another program listens there"), "{other}");
        let own = explain(&[at("127.0.0.1:81"), at("127.0.0.1:80")]);
        assert_eq!(
            own,
            "cannot listen on 0.0.0.0:80: this server itself listens on 127.0.0.1:80: restart it to change that"
        );
    }
}
