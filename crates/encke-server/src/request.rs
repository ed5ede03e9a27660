//! A handler's view of a request: method, path, authority and fields, never buffers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use encke_io::{Now, Peer};
use encke_session::tls::TlsKnown;
use encke_wire::conditional::Conditions;
use encke_wire::field::Known;
use encke_wire::forwarded::{self, ForwardingField};
use encke_wire::http1::{Framing, Head, HeadField, HeadLimits, Progress, TargetForm, Values, Version};
use encke_wire::method::Method;

use crate::passed_fields::PassedFields;
use crate::peer::PackedPeer;
use crate::policy::ConnLimits;
use crate::reply::Fields;
use crate::request_id;

/// A request, lent to a handler for its call. [`Request::keep`] returns an owned copy.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub(crate) head: &'a Head,
    /// The buffer that `head` was parsed from.
    pub(crate) bytes: &'a [u8],
    pub(crate) asker: Asker<'a>,
    pub(crate) now: Now,
    /// The user's name, if a guard has authenticated the request.
    pub(crate) user: Option<&'a Arc<str>>,
    /// Changes of guards to the fields for an application.
    pub(crate) passed: Option<&'a Arc<PassedFields>>,
}

/// The data from which a request's [`Origin`] is computed on demand: most handlers do not need it.
#[derive(Clone, Copy)]
pub(crate) enum Asker<'a> {
    /// The connection's peer, whether it is encrypted, its TLS facts, and the policy with the trusted proxies.
    Peer(PackedPeer, bool, Option<&'a Arc<TlsKnown>>, &'a ConnLimits),
    /// Computed before.
    Known(&'a Origin),
    /// Computed before, and another handler has passed the request here.
    Rerouted(&'a Origin),
}

/// The origin of a request.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The connection's peer, or the peer that a PROXY header names.
    pub peer: Peer,
    /// The client's address: the peer's, or the address that a trusted proxy reports. `None` for a Unix socket whose peer
    /// reports none, and if it is hidden.
    pub client: Option<IpAddr>,
    /// Whether the fields X-Forwarded-… of the request are those of a trusted proxy, not text of the client.
    pub forwards: bool,
    /// Whether a trusted proxy has reported a client without an address: `unknown`, `_hidden`, or malformed.
    pub hidden: bool,
    /// Whether the request was encrypted, to this server or to a trusted proxy.
    pub secure: bool,
    /// Facts about the client's TLS session, if this server terminates it.
    pub tls: Option<Arc<TlsKnown>>,
    /// Whether the connection itself comes from this machine (loopback address or Unix socket).
    pub local: bool,
}

impl Origin {
    /// Whether a trusted proxy has named the client.
    pub fn is_by_proxy(&self) -> bool {
        let peer = match self.peer {
            Peer::Inet(address) => Some(address.ip().to_canonical()),
            Peer::Local => None,
        };
        self.client.map(|address| address.to_canonical()) != peer
    }
}

impl<'a> Request<'a> {
    /// The method; [`Method::Other`] for methods without a variant.
    pub fn method(&self) -> Method {
        self.head.method()
    }

    /// The method as sent.
    pub fn method_text(&self) -> &'a [u8] {
        self.head.method_text(self.bytes)
    }

    /// The version; HTTP/1.x above 1.1 counts as 1.1.
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// The request target as sent.
    pub fn target(&self) -> &'a [u8] {
        self.head.target(self.bytes)
    }

    /// The form of the target, one of four (RFC 9112 §3.2).
    pub fn form(&self) -> TargetForm {
        self.head.form()
    }

    /// The path as sent: not decoded, dots not resolved; `*` for the asterisk form.
    pub fn path(&self) -> &'a [u8] {
        self.head.path(self.bytes)
    }

    /// The query as sent, without `?`.
    pub fn query(&self) -> Option<&'a [u8]> {
        self.head.query(self.bytes)
    }

    /// The authority of the request's target, `host[:port]`; empty if the client sent none.
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

    /// The first value of any field. Names are compared case-insensitively.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.field(self.bytes, name)
    }

    /// The name and value of every field, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.head.fields(self.bytes)
    }

    /// All fields with the parser's results, in order.
    pub fn head_fields(&self) -> impl Iterator<Item = HeadField<'a>> {
        self.head.head_fields(self.bytes)
    }

    /// Whether the request has preconditions or a range (RFC 9110 §13, §14). Requests rarely do.
    pub fn is_conditional(&self) -> bool {
        self.head.is_conditional()
    }

    /// The preconditions, to be evaluated against the selected representation.
    pub fn conditions(&self) -> Conditions<'a, Values<'a>> {
        self.head.conditions(self.bytes)
    }

    /// The framing of the request's body, if it has one.
    pub fn framing(&self) -> Framing {
        self.head.framing()
    }

    /// Returns the origin of the request.
    pub fn origin(&self) -> Origin {
        match self.asker {
            Asker::Peer(peer, secure, tls, policy) => {
                Origin { tls: tls.cloned(), ..self.tell_origin(peer.unpack(), secure, policy) }
            }
            Asker::Known(origin) | Asker::Rerouted(origin) => origin.clone(),
        }
    }

    /// The client's address, as in [`Origin::client`], without computing the rest of the origin.
    pub fn client(&self) -> Option<IpAddr> {
        match self.asker {
            Asker::Peer(peer, _, _, policy) if policy.trusted_proxies.is_empty() => match peer.unpack() {
                Peer::Inet(address) => Some(address.ip()),
                Peer::Local => None,
            },
            Asker::Peer(..) => self.origin().client,
            Asker::Known(origin) | Asker::Rerouted(origin) => origin.client,
        }
    }

    /// Whether a trusted proxy has hidden the client's address, as in [`Origin::hidden`].
    pub fn is_hidden(&self) -> bool {
        match self.asker {
            Asker::Peer(_, _, _, policy) if policy.trusted_proxies.is_empty() => false,
            Asker::Peer(..) => self.origin().hidden,
            Asker::Known(origin) | Asker::Rerouted(origin) => origin.hidden,
        }
    }

    /// The octets of the client's address, as in [`Origin::client`], with an IPv4 address in its IPv6-mapped form (RFC 4291
    /// §2.5.5.2).
    #[inline]
    pub fn client_octets(&self) -> Option<[u8; 16]> {
        match self.asker {
            Asker::Peer(peer, _, _, policy) if policy.trusted_proxies.is_empty() => peer.octets(),
            _ => self.client().map(|client| match client {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            }),
        }
    }

    /// Facts about the client's TLS session, as in [`Origin::tls`], without computing the rest of the origin.
    pub fn tls(&self) -> Option<&'a TlsKnown> {
        match self.asker {
            Asker::Peer(_, _, tls, _) => tls.map(|tls| &**tls),
            Asker::Known(origin) | Asker::Rerouted(origin) => origin.tls.as_deref(),
        }
    }

    /// The id that a trusted proxy has given the request.
    pub(crate) fn given_id(&self) -> Option<&'a [u8]> {
        let Asker::Peer(peer, _, _, policy) = self.asker else { return None };
        let trusted = match peer.unpack() {
            Peer::Inet(address) => {
                policy.trusted_proxies.iter().any(|network| network.contains(address.ip()))
            }
            // The permissions of a Unix socket admit only trusted peers: a local proxy.
            Peer::Local => !policy.trusted_proxies.is_empty(),
        };
        self.field("X-Request-Id").filter(|id| trusted && request_id::is_id(id))
    }

    /// Computes the origin: the peer, or the client that a trusted proxy reports.
    fn tell_origin(&self, peer: Peer, secure: bool, policy: &ConnLimits) -> Origin {
        let (address, local) = match peer {
            Peer::Inet(address) => (Some(address.ip()), address.ip().is_loopback()),
            Peer::Local => (None, true),
        };
        let mut origin =
            Origin { peer, client: address, forwards: false, hidden: false, secure, tls: None, local };
        let trusted = |ip| policy.trusted_proxies.iter().any(|network| network.contains(ip));
        // The permissions of a Unix socket admit only trusted peers: a local proxy.
        let proxy = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if policy.trusted_proxies.is_empty() || address.is_some() && !trusted(proxy) {
            return origin;
        }
        let field = match policy.dialect {
            ForwardingField::Forwarded => Known::Forwarded,
            ForwardingField::XForwardedFor => Known::XForwardedFor,
        };
        let is_trusted = |ip| ip == proxy || trusted(ip);
        let client = forwarded::client(proxy, policy.dialect, self.all(field), is_trusted);
        origin.hidden = client.address.is_none();
        if address.is_some() || client.address != Some(proxy) {
            origin.client = client.address;
        }
        let proto = match policy.dialect {
            // A proxy that writes this field passes on the client's X-Forwarded-Proto.
            ForwardingField::Forwarded => client.proto,
            ForwardingField::XForwardedFor => self.known(Known::XForwardedProto),
        };
        // A proxy that writes Forwarded passes on the client's X-Forwarded-….
        origin.forwards = policy.dialect == ForwardingField::XForwardedFor && origin.is_by_proxy();
        origin.secure |= proto.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"));
        origin
    }

    /// The time at the start of the worker's present turn.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Whether another handler has passed the request here, in place of the client's
    /// ([`HandlerContext::reroute`](crate::HandlerContext::reroute)). That handler decides what the client may do.
    pub const fn is_rerouted(&self) -> bool {
        matches!(self.asker, Asker::Rerouted(_))
    }

    /// The user's name, if a guard has authenticated the request.
    pub fn user(&self) -> Option<&'a str> {
        self.user.map(|user| &**user)
    }

    /// Changes of guards to the fields that an application gets. [`Request::fields`] returns the client's fields.
    pub fn passed_fields(&self) -> Option<&'a PassedFields> {
        self.passed.map(|passed| &**passed)
    }

    /// The results of the guards, for [`Kept::with_guard_results`]; `None` if there are none.
    pub fn guard_results(&self) -> Option<GuardResults> {
        let has_any = self.user.is_some() || self.passed.is_some();
        has_any.then(|| GuardResults { user: self.user.cloned(), passed: self.passed.cloned() })
    }

    /// Returns a copy that outlives the call.
    pub fn keep(&self) -> Kept {
        Kept {
            head: Box::new(self.head.clone()),
            // A body or further requests may follow the head.
            bytes: self.bytes.get(..self.head.head_bytes()).unwrap_or(self.bytes).into(),
            origin: self.origin(),
            now: self.now,
            user: self.user.cloned(),
            passed: self.passed.cloned(),
            is_rerouted: self.is_rerouted(),
        }
    }
}

/// The user of a request, and the changes to the fields that an application gets, as guards have determined them.
#[derive(Clone, Debug, Default)]
pub struct GuardResults {
    user: Option<Arc<str>>,
    passed: Option<Arc<PassedFields>>,
}

impl GuardResults {
    /// Whether the client's fields of this name do not reach an application. Names are compared case-insensitively.
    pub fn removes(&self, name: &[u8]) -> bool {
        self.passed.as_ref().is_some_and(|passed| passed.removes(name))
    }
}

/// An owned copy of a request.
pub struct Kept {
    head: Box<Head>,
    bytes: Box<[u8]>,
    origin: Origin,
    now: Now,
    user: Option<Arc<str>>,
    passed: Option<Arc<PassedFields>>,
    is_rerouted: bool,
}

impl Kept {
    /// Builds a request from this machine that no client has sent, for explanations. Returns `None` if it is no valid HTTP
    /// request.
    ///
    /// ```
    /// use encke_server::{Fields, Kept};
    ///
    /// let kept = Kept::sample("GET", "/orders?page=2", "example.org", &Fields::new()).expect("a valid request");
    /// assert_eq!(kept.view().path(), b"/orders");
    /// assert_eq!(kept.view().query(), Some(&b"page=2"[..]));
    /// ```
    pub fn sample(method: &str, target: &str, host: &str, fields: &Fields) -> Option<Self> {
        let lines = String::from_utf8_lossy(fields.lines());
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n").into_bytes();
        let mut head = Box::new(Head::new());
        match head.feed(&bytes, &HeadLimits::default()) {
            Progress::Done { head_bytes } if head_bytes == bytes.len() => {}
            _ => return None,
        }
        let origin = Origin {
            peer: Peer::Local,
            client: None,
            forwards: false,
            hidden: false,
            secure: false,
            tls: None,
            local: true,
        };
        Some(Self {
            head,
            bytes: bytes.into(),
            origin,
            now: Now::default(),
            user: None,
            passed: None,
            is_rerouted: false,
        })
    }

    /// Builds a request like [`Kept::sample`] for an absolute URL with the scheme `http` or `https`. A fragment is left out, as
    /// clients do.
    ///
    /// ```
    /// use encke_server::{Fields, Kept};
    ///
    /// let kept = Kept::for_url("GET", "https://example.org?page=2#top", &Fields::new()).expect("a valid request");
    /// assert_eq!(kept.view().authority(), b"example.org");
    /// assert_eq!(kept.view().target(), b"/?page=2");
    /// assert!(kept.view().origin().secure);
    /// ```
    pub fn for_url(method: &str, url: &str, fields: &Fields) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let slash = if target.starts_with('/') { "" } else { "/" };
        let kept = Self::sample(method, &format!("{slash}{target}"), host, fields)?;
        // A line break in the host would otherwise add fields.
        let is_host = !host.is_empty() && kept.view().authority() == host.as_bytes();
        is_host.then(|| if secure { kept.encrypted() } else { kept })
    }

    /// Sets the time of the request.
    pub(crate) fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Sets the client's address, for an explanation of a request from there. The address of this machine stays local.
    #[must_use]
    pub fn from_client(mut self, client: IpAddr) -> Self {
        let client = client.to_canonical();
        let peer = Peer::Inet((client, 0).into());
        let local = client.is_loopback();
        self.origin = Origin { peer, client: Some(client), local, ..self.origin };
        self
    }

    /// Marks the request as encrypted.
    fn encrypted(mut self) -> Self {
        self.origin.secure = true;
        self
    }

    /// Sets the origin, for a request that a handler makes in place of a client's.
    #[must_use]
    pub fn from_origin(mut self, origin: Origin, now: Now) -> Self {
        (self.origin, self.now) = (origin, now);
        self
    }

    /// Sets the results of the guards of a client's request, for a request that a handler makes in its place.
    #[must_use]
    pub fn with_guard_results(mut self, results: GuardResults) -> Self {
        (self.user, self.passed) = (results.user, results.passed);
        self
    }

    /// Marks the request as passed on by a handler.
    pub(crate) fn rerouted(mut self) -> Self {
        self.is_rerouted = true;
        self
    }

    /// Returns a view of the request.
    pub fn view(&self) -> Request<'_> {
        Request {
            head: &self.head,
            bytes: &self.bytes,
            asker: if self.is_rerouted { Asker::Rerouted(&self.origin) } else { Asker::Known(&self.origin) },
            now: self.now,
            user: self.user.as_ref(),
            passed: self.passed.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_a_request() {
        let fields = Fields::new();
        let parts = |url| {
            let kept = Kept::for_url("GET", url, &fields)?;
            let view = kept.view();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some((text(view.authority()), text(view.target()), view.origin().secure))
        };
        let is = |host: &str, target: &str, secure| Some((host.to_owned(), target.to_owned(), secure));
        assert_eq!(parts("http://a.example/b?c=d"), is("a.example", "/b?c=d", false));
        assert_eq!(parts("HTTPS://a.example:8443"), is("a.example:8443", "/", true));
        assert_eq!(parts("http://[::1]:80?c#d"), is("[::1]:80", "/?c", false));
        for wrong in
            ["/b", "ftp://a.example/", "http:///b", "http://a b/", "http://a\r\nX: y/", "http://a/ b"]
        {
            assert_eq!(parts(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_explained_request_comes_from_the_given_address() {
        let from = |client: &str| {
            let kept = Kept::sample("GET", "/", "a.example", &Fields::new()).expect("a valid request");
            kept.from_client(client.parse().expect("an address")).view().origin()
        };
        let origin = from("::ffff:192.0.2.1");
        assert_eq!((origin.client, origin.local), (Some([192, 0, 2, 1].into()), false));
        assert!(!origin.is_by_proxy());
        assert!(from("::1").local);
    }
}
