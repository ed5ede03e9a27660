//! Open mode: which clients may do everything without a token.
//!
//! ```text
//!  no settings file · listens on this machine only ── Loopback: each request must come from a loopback address,
//!                                                     through no proxy, to a loopback name, from no foreign page
//!  --open ─────────────────────────────────────────── Everybody: … to a name that no foreign page can have, from
//!                                                     no foreign page
//!  otherwise ──────────────────────────────────────── Shut
//! ```
//! Each condition excludes one way in which a remote party could send requests through this machine. These ways are a
//! reverse proxy, a page of another site in a local browser, and a foreign name that resolves to this machine (DNS rebinding).

use std::net::{Ipv4Addr, Ipv6Addr};

use encke_io::{Address, Peer};
use encke_wire::field::Known;
use encke_wire::http1::Version;
use encke_wire::target::{self, Authority};

use super::origins::RequestPage;
use encke_server::Request;

/// The clients to which the server is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openness {
    /// None: every client needs a token, or has only the rights of `anonymous`.
    Shut(Shut),
    /// Programs and pages of this machine.
    Loopback,
    /// All clients that can reach the server.
    Everybody,
}

/// The reason why open mode does not admit a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shut {
    /// A settings file exists, so `[auth]` decides.
    Settings,
    /// The server can be reached from other machines.
    Listener,
    /// The request comes from another machine, or through a Unix socket.
    Peer,
    /// The request passed through a proxy.
    Proxy,
    /// The request names a host other than this machine.
    Host,
    /// The request comes from a page of another site.
    Origin,
}

impl Shut {
    pub(super) const ALL: [Self; 6] =
        [Self::Settings, Self::Listener, Self::Peer, Self::Proxy, Self::Host, Self::Origin];

    /// Returns the remedy, as a text for the client.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Settings => "send one, or grant the right in [auth] of the settings file",
            Self::Listener => {
                "this server accepts connections from other machines: start it with --open for a demonstration, or grant rights in [auth] of a settings file"
            }
            Self::Peer => {
                "without a settings file only this machine has access, by a loopback address: grant rights in [auth] of a settings file"
            }
            Self::Proxy => "the request came through a proxy: grant rights in [auth] of a settings file",
            Self::Host => {
                "the request names another host than this machine: grant rights in [auth] of a settings file"
            }
            Self::Origin => {
                "the request comes from a page of another site: add its origin to push.origins of a settings file"
            }
        }
    }
}

impl Openness {
    /// Returns the openness of a server that was started with these listeners. `open_flag` is `--open`.
    ///
    /// ```
    /// use encke_io::Address;
    /// use encke_rights::{Openness, Shut};
    ///
    /// let local: Address = std::net::SocketAddr::from(([127, 0, 0, 1], 8080)).into();
    /// let public: Address = std::net::SocketAddr::from(([0, 0, 0, 0], 8080)).into();
    /// assert_eq!(Openness::of(false, false, [&local]), Openness::Loopback);
    /// assert_eq!(Openness::of(false, false, [&local, &public]), Openness::Shut(Shut::Listener));
    /// ```
    pub fn of<'a>(
        open_flag: bool,
        has_settings_file: bool,
        listeners: impl IntoIterator<Item = &'a Address>,
    ) -> Self {
        if open_flag {
            return Self::Everybody;
        }
        if has_settings_file {
            return Self::Shut(Shut::Settings);
        }
        // A client on a Unix socket is most likely a reverse proxy.
        let here =
            |address: &Address| matches!(address, Address::Inet(address) if address.ip().is_loopback());
        if listeners.into_iter().all(here) { Self::Loopback } else { Self::Shut(Shut::Listener) }
    }

    /// Checks whether open mode admits a request; `page` is the page that sent it.
    pub(super) fn admits(self, request: &Request<'_>, page: RequestPage<'_>) -> Result<(), Shut> {
        let host = target::parse_authority(request.authority());
        match self {
            Self::Shut(shut) => Err(shut),
            Self::Loopback => {
                if !matches!(request.origin().peer, Peer::Inet(peer) if peer.ip().is_loopback()) {
                    Err(Shut::Peer)
                } else if is_proxied(request) {
                    Err(Shut::Proxy)
                } else if !host.is_ok_and(|host| host.is_loopback()) {
                    Err(Shut::Host)
                } else if !matches!(page, RequestPage::None) && !page.is_loopback() {
                    Err(Shut::Origin)
                } else {
                    Ok(())
                }
            }
            Self::Everybody => {
                if !host.is_ok_and(is_unforgeable) {
                    Err(Shut::Host)
                } else if matches!(page, RequestPage::Foreign(_)) {
                    Err(Shut::Origin)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Returns whether the request names a proxy, or looks as if it had passed one.
fn is_proxied(request: &Request<'_>) -> bool {
    const X_FORWARDED: &[u8] = b"x-forwarded-";
    // By default nginx adds no such field and sends our own name as Host. But until 1.29.7 it speaks HTTP/1.0 to upstreams, as
    // no browser has done for 25 years.
    request.version() == Version::Http10
        || request.known(Known::Forwarded).is_some()
        || request.known(Known::Via).is_some()
        || request.fields().any(|(name, _)| {
            let start = name.get(..X_FORWARDED.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(X_FORWARDED))
                || name.eq_ignore_ascii_case(b"x-real-ip")
        })
}

/// Returns whether no site on the Internet can have this name. True for an IP address, a name without a dot, and a loopback or
/// `.local` name (RFC 6762 §3).
fn is_unforgeable(authority: Authority<'_>) -> bool {
    let host = std::str::from_utf8(authority.host).unwrap_or_default();
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    authority.is_loopback()
        || address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok()
        || name.ends_with(".local")
        // Some resolvers treat `2130706433` and `0x7f000001` as addresses, so no site has them as names either.
        || !name.contains('.')
}
