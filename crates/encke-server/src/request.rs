//! What a handler sees of a request: a view of method, path, authority and fields, never of buffers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use encke_io::{Now, Peer};
use encke_session::tls::TlsKnown;
use encke_wire::conditional::Conditions;
use encke_wire::field::Known;
use encke_wire::forwarded::{self, Dialect};
use encke_wire::http1::{Form, Framing, Head, HeadLimits, Progress, Values, Version};
use encke_wire::method::Method;

use crate::peer::PackedPeer;
use crate::policy::Policy;
use crate::reply::Fields;

/// A request, lent to a handler for the length of its call; [`Request::keep`] makes a copy that stays.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub(crate) head: &'a Head,
    /// The buffer that `head` was parsed from.
    pub(crate) bytes: &'a [u8],
    pub(crate) asker: Asker<'a>,
    pub(crate) now: Now,
    /// The user's name, if a guard has authenticated the request.
    pub(crate) user: Option<&'a Arc<str>>,
}

/// From what a request's origin is told, once somebody asks: most handlers do not.
#[derive(Clone, Copy)]
pub(crate) enum Asker<'a> {
    /// The connection's peer, whether it is encrypted, what TLS knows of it, and whose word counts.
    Peer(PackedPeer, bool, Option<&'a Arc<TlsKnown>>, &'a Policy),
    /// Told before.
    Known(&'a Origin),
}

/// Where a request came from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The other end of the connection, or who it is according to a PROXY header.
    pub peer: Peer,
    /// The client's address: the peer's, or behind a trusted proxy what that proxy says. `None` for a Unix
    /// socket whose peer says nothing.
    pub client: Option<IpAddr>,
    /// The request came encrypted, to us or to a trusted proxy.
    pub secure: bool,
    /// What TLS knows of the connection, if it is ours that speaks it.
    pub tls: Option<Arc<TlsKnown>>,
    /// The connection itself comes from this machine (loopback address or Unix socket).
    pub local: bool,
}

impl<'a> Request<'a> {
    /// The method; [`Method::Other`] for those that have no name here.
    pub fn method(&self) -> Method {
        self.head.method()
    }

    /// The method as sent.
    pub fn method_text(&self) -> &'a [u8] {
        self.head.method_text(self.bytes)
    }

    /// Major and minor version; HTTP/1.x above 1.1 count as 1.1.
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// The request target as sent.
    pub fn target(&self) -> &'a [u8] {
        self.head.target(self.bytes)
    }

    /// Which of the four forms the target has (RFC 9112 §3.2).
    pub fn form(&self) -> Form {
        self.head.form()
    }

    /// The path as sent: not decoded, dots not resolved; `*` for an asterisk-form.
    pub fn path(&self) -> &'a [u8] {
        self.head.path(self.bytes)
    }

    /// The query as sent, without `?`.
    pub fn query(&self) -> Option<&'a [u8]> {
        self.head.query(self.bytes)
    }

    /// The authority that the request is for, `host[:port]`; empty if the client gave none.
    pub fn authority(&self) -> &'a [u8] {
        self.head.host(self.bytes)
    }

    /// The first value of a well-known field.
    pub fn known(&self, name: Known) -> Option<&'a [u8]> {
        self.head.known(self.bytes, name)
    }

    /// Every value of a well-known field, in order.
    pub fn all(&self, name: Known) -> Values<'a> {
        self.head.all(self.bytes, name)
    }

    /// The first value of any field; names are compared without regard to case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.field(self.bytes, name)
    }

    /// Every field, name and value, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.head.fields(self.bytes)
    }

    /// Whether there is any precondition or range to look at (RFC 9110 §13, §14): almost never.
    pub fn is_conditional(&self) -> bool {
        self.head.is_conditional()
    }

    /// The preconditions, to be evaluated against what would be answered.
    pub fn conditions(&self) -> Conditions<'a, Values<'a>> {
        self.head.conditions(self.bytes)
    }

    /// Whether a body follows the head, and how its end is known.
    pub fn framing(&self) -> Framing {
        self.head.framing()
    }

    /// Where it came from.
    pub fn origin(&self) -> Origin {
        match self.asker {
            Asker::Peer(peer, secure, tls, policy) => {
                Origin { tls: tls.cloned(), ..self.tell_origin(peer.unpack(), secure, policy) }
            }
            Asker::Known(origin) => origin.clone(),
        }
    }

    /// What TLS knows of the connection: [`Origin::tls`], for those who want nothing else.
    pub fn tls(&self) -> Option<&'a TlsKnown> {
        match self.asker {
            Asker::Peer(_, _, tls, _) => tls.map(|tls| &**tls),
            Asker::Known(origin) => origin.tls.as_deref(),
        }
    }

    /// Who asks: the peer, or whom a trusted proxy names.
    fn tell_origin(&self, peer: Peer, secure: bool, policy: &Policy) -> Origin {
        let (address, local) = match peer {
            Peer::Inet(address) => (Some(address.ip()), address.ip().is_loopback()),
            Peer::Local => (None, true),
        };
        let mut origin = Origin { peer, client: address, secure, tls: None, local };
        let trusted = |ip| policy.trusted_proxies.iter().any(|network| network.contains(ip));
        // Whoever reaches a Unix socket was let in by its permissions: a proxy of ours.
        let proxy = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if policy.trusted_proxies.is_empty() || address.is_some() && !trusted(proxy) {
            return origin;
        }
        let field = match policy.dialect {
            Dialect::Forwarded => Known::Forwarded,
            Dialect::XForwardedFor => Known::XForwardedFor,
        };
        let is_trusted = |ip| ip == proxy || trusted(ip);
        let client = forwarded::client(proxy, policy.dialect, self.all(field), is_trusted);
        if address.is_some() || client.address != proxy {
            origin.client = Some(client.address);
        }
        origin.secure |= client
            .proto
            .or_else(|| self.known(Known::XForwardedProto))
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
        origin
    }

    /// The moment at which the worker's present turn began.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The user's name, if a guard has authenticated the request.
    pub fn user(&self) -> Option<&'a str> {
        self.user.map(|user| &**user)
    }

    /// A copy that outlives the call.
    pub fn keep(&self) -> Kept {
        Kept {
            head: Box::new(self.head.clone()),
            // A body or further requests may follow the head.
            bytes: self.bytes.get(..self.head.head_bytes()).unwrap_or(self.bytes).into(),
            origin: self.origin(),
            now: self.now,
            user: self.user.cloned(),
        }
    }
}

/// A request that was kept.
pub struct Kept {
    head: Box<Head>,
    bytes: Box<[u8]>,
    origin: Origin,
    now: Now,
    user: Option<Arc<str>>,
}

impl Kept {
    /// A request that no client has sent, from this machine: for explanations. `None`: it is no valid HTTP request.
    pub fn sample(method: &str, target: &str, host: &str, fields: &Fields) -> Option<Self> {
        let lines = String::from_utf8_lossy(fields.lines());
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n").into_bytes();
        let mut head = Box::new(Head::new());
        match head.feed(&bytes, &HeadLimits::default()) {
            Progress::Done { head_bytes } if head_bytes == bytes.len() => {}
            _ => return None,
        }
        let origin = Origin { peer: Peer::Local, client: None, secure: false, tls: None, local: true };
        Some(Self { head, bytes: bytes.into(), origin, now: Now::default(), user: None })
    }

    /// The view it was made from.
    pub fn view(&self) -> Request<'_> {
        Request {
            head: &self.head,
            bytes: &self.bytes,
            asker: Asker::Known(&self.origin),
            now: self.now,
            user: self.user.as_ref(),
        }
    }
}
