//! Request methods (RFC 9110 §9): the common registered ones by name, every other token as `Other`.
//!
//! Methods are case-sensitive: `get` is not `GET` but an unknown method, with status 501.

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`: as GET, without the content.
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`: a tunnel. The target is an authority.
    Connect,
    /// `OPTIONS`: the only method whose target may be `*`.
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH` (RFC 5789)
    Patch,
    /// Any other token.
    #[default]
    Other,
}

impl Method {
    /// The method called `name`; `Other` if it is not listed here.
    #[inline(always)]
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// The name of the method; empty for `Other`, whose text is in the head.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other => "",
        }
    }

    /// Whether the method is GET or HEAD: those for which conditions may yield 304, and to which ranges and files apply.
    #[inline]
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }

    /// Whether the method requests no change of state (RFC 9110 §9.2.1).
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: [Method; 9] = [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Connect,
        Method::Options,
        Method::Trace,
        Method::Patch,
    ];

    #[test]
    fn every_listed_method_is_known_by_its_name() {
        for method in LISTED {
            assert_eq!(Method::of(method.name().as_bytes()), method);
        }
    }

    #[test]
    fn methods_are_case_sensitive_and_match_whole() {
        for name in [&b"get"[..], b"Get", b"GE", b"GETS", b"", b"FOOBAR", b"PRI"] {
            assert_eq!(Method::of(name), Method::Other, "{name:?}");
        }
    }

    #[test]
    fn only_get_and_head_read() {
        let reading: Vec<_> = LISTED.into_iter().filter(|method| method.reads()).collect();
        assert_eq!(reading, [Method::Get, Method::Head]);
        assert!(Method::Options.is_safe());
        assert!(!Method::Other.is_safe());
    }
}
