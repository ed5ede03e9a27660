//! Open mode: who may do everything without a token, because nobody has said otherwise and nobody else can be
//! meant.
//!
//! ```text
//!  no settings file · listens on this machine only ── Loopback: each request must come from a loopback address,
//!                                                     through no proxy, to a loopback name, from no foreign page
//!  --open ─────────────────────────────────────────── Everybody: … to a name that no foreign page can have, from
//!                                                     no foreign page
//!  all else ───────────────────────────────────────── Shut
//! ```
//! Each condition closes a way by which somebody else could speak with this machine's voice: a proxy in front, a
//! page of another site in a browser here, a name of another site that is made to resolve to here (rebinding).

use std::net::{Ipv4Addr, Ipv6Addr};

use encke_io::{Address, Peer};
use encke_wire::field::Known;
use encke_wire::http1::Version;
use encke_wire::target::{self, Authority};

use super::origins::Page;
use encke_server::Request;

/// To whom the server is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openness {
    /// To nobody: a token, or what `anonymous` names.
    Shut(Shut),
    /// To programs and pages of this machine.
    Loopback,
    /// To all who reach it.
    Everybody,
}

/// Why somebody is not let in without a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shut {
    /// There is a settings file, which says who may.
    Settings,
    /// The server can be reached from elsewhere.
    Listener,
    /// The request comes from elsewhere, or through a Unix socket.
    Peer,
    /// It has passed a proxy.
    Proxy,
    /// It names a host that is not this machine.
    Host,
    /// A page of another site sends it.
    Origin,
}

impl Shut {
    pub(super) const ALL: [Self; 6] =
        [Self::Settings, Self::Listener, Self::Peer, Self::Proxy, Self::Host, Self::Origin];

    /// What to do about it.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Settings => "send a token, or see [auth] in the settings file",
            Self::Listener => {
                "this server can be reached from other machines: start it with --open for a demonstration, or with \
                 a settings file that says in [auth] who may"
            }
            Self::Peer => {
                "without a settings file only this machine may, by a loopback address: say in [auth] who else"
            }
            Self::Proxy => "the request came through a proxy: say in [auth] of a settings file who may",
            Self::Host => {
                "the request names another host than this machine: say in [auth] of a settings file who may"
            }
            Self::Origin => {
                "the request comes from a page of another site: name it in push.origins of a settings file"
            }
        }
    }
}

impl Openness {
    /// To whom a server is open that was started with these addresses.
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
        // Whoever connects to a Unix socket is most likely a proxy.
        let here =
            |address: &Address| matches!(address, Address::Inet(address) if address.ip().is_loopback());
        if listeners.into_iter().all(here) { Self::Loopback } else { Self::Shut(Shut::Listener) }
    }

    /// Whether a request may do everything; `page` is where it comes from.
    pub(super) fn admits(self, request: &Request<'_>, page: Page<'_>) -> Result<(), Shut> {
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
                } else if !matches!(page, Page::None) && !page.is_loopback() {
                    Err(Shut::Origin)
                } else {
                    Ok(())
                }
            }
            Self::Everybody => {
                if !host.is_ok_and(is_unforgeable) {
                    Err(Shut::Host)
                } else if matches!(page, Page::Foreign(_)) {
                    Err(Shut::Origin)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Whether a proxy says that it has passed the request on, or it looks as if one had.
fn is_proxied(request: &Request<'_>) -> bool {
    const X_FORWARDED: &[u8] = b"x-forwarded-";
    // nginx says nothing of itself unless it is told to, and then Host is ours, too. But it speaks HTTP/1.0 to what
    // is behind it (until 1.29.7), as no browser has for 25 years.
    request.version() == Version::Http10
        || request.known(Known::Forwarded).is_some()
        || request.known(Known::Via).is_some()
        || request.fields().any(|(name, _)| {
            let start = name.get(..X_FORWARDED.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(X_FORWARDED))
                || name.eq_ignore_ascii_case(b"x-real-ip")
        })
}

/// Whether no site in the Internet can have this name: an address, a name of one part, one of the loopback or of
/// the local network (RFC 6762 §3).
fn is_unforgeable(authority: Authority<'_>) -> bool {
    let host = std::str::from_utf8(authority.host).unwrap_or_default();
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    authority.is_loopback()
        || address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok()
        || name.ends_with(".local")
        // `2130706433` and `0x7f000001` are addresses to some resolvers, and so not names of anybody's either.
        || !name.contains('.')
}
