//! Files that an application names in its response: where they are, and the request that the site answers in place of the
//! client's.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use encke_io::Now;
use encke_server::{Fields, Kept, accepts_events_only};
use encke_wire::coding::AcceptEncoding;
use encke_wire::conditional::{ConditionResult, EntityTag, Validators, evaluate, if_range_holds};
use encke_wire::date::parse_date;
use encke_wire::field::{self, Known};
use encke_wire::http1::{Head, HeadLimits, Progress};
use encke_wire::limits::{FIELDS_MAX, HEAD_BYTES_MAX};
use encke_wire::method::Method;
use encke_wire::target::encode_path;

use crate::proxied_request::ProxiedRequest;

/// The host name and the escaped path under which the site serves the file at an absolute path; `None` if it is in none of the
/// directories, each with its host name.
pub(crate) fn app_file(directories: &[(PathBuf, Arc<str>)], path: &str) -> Option<(Arc<str>, String)> {
    let path = Path::new(path);
    let (rest, host) =
        directories.iter().find_map(|(directory, host)| Some((path.strip_prefix(directory).ok()?, host)))?;
    let mut plain = String::new();
    for part in rest.components() {
        let Component::Normal(name) = part else { return None };
        plain.push('/');
        plain.push_str(name.to_str()?);
    }
    if plain.is_empty() {
        return None;
    }
    let mut target = String::new();
    encode_path(&plain, &mut target);
    Some((Arc::clone(host), target))
}

/// The method with which a file is read in place of another resource.
pub(crate) const fn reading(method: Method) -> Method {
    if matches!(method, Method::Head) { Method::Head } else { Method::Get }
}

/// The client's head was within the limits of the settings. Now it may have more fields.
pub(crate) const HEAD_LIMITS: HeadLimits =
    HeadLimits { head_bytes: HEAD_BYTES_MAX, uri_bytes: HEAD_BYTES_MAX, fields: FIELDS_MAX };

/// The head of a request that was written for an application, parsed again.
pub(crate) struct AskedHead<'a> {
    head: Box<Head>,
    bytes: &'a [u8],
}

/// The conditions and the range of a client that the site evaluates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptConditions {
    None,
    All,
    /// The range only: the conditions were evaluated against the application's validators.
    Range,
}

/// The result of evaluating conditions against the application's validators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AppConditions {
    /// The response has this status (304 or 412), and no content.
    Unchanged(u16),
    Kept(KeptConditions),
}

impl<'a> AskedHead<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut head = Box::new(Head::new());
        match head.feed(bytes, &HEAD_LIMITS) {
            Progress::Done { .. } => Some(Self { head, bytes }),
            Progress::Partial | Progress::Refused(_) => None,
        }
    }

    /// The authority of the client's request.
    pub(crate) fn authority<'b>(&'b self, request: &'b ProxiedRequest) -> &'b [u8] {
        request.client.as_ref().map_or_else(|| self.head.host(self.bytes), |client| &client.authority)
    }

    /// The codings that the client accepts.
    pub(crate) fn codings(&self) -> AcceptEncoding {
        AcceptEncoding::of(self.head.all(self.bytes, Known::AcceptEncoding))
    }

    /// Whether the client is an `EventSource`.
    pub(crate) fn accepts_events_only(&self) -> bool {
        accepts_events_only(self.head.all(self.bytes, Known::Accept))
    }

    /// Whether If-None-Match has the weak form of a strong entity tag.
    pub(crate) fn names_weak(&self, tag: &[u8]) -> bool {
        let listed = self.head.all(self.bytes, Known::IfNoneMatch).flat_map(field::list);
        !tag.starts_with(b"W/") && listed.filter_map(|one| one.strip_prefix(b"W/")).any(|one| one == tag)
    }

    /// Evaluates the client's conditions against the entity tag in the application's `fields`, if there is one. Otherwise the
    /// site evaluates them against the file.
    pub(crate) fn conditions(&self, method: Method, fields: &Fields, now: Now) -> AppConditions {
        let Some(etag) = fields.value("etag").and_then(EntityTag::parse) else {
            return AppConditions::Kept(KeptConditions::All);
        };
        let last_modified = fields.value("last-modified").and_then(parse_date);
        let validators = Validators { etag: Some(etag), last_modified };
        match evaluate(&self.head.conditions(self.bytes), reading(method), &validators) {
            ConditionResult::NotModified => return AppConditions::Unchanged(304),
            ConditionResult::PreconditionFailed => return AppConditions::Unchanged(412),
            ConditionResult::Proceed => {}
        }
        let holds = match self.head.single(self.bytes, Known::IfRange) {
            Some(value) => if_range_holds(value, &validators, now.unix_s()),
            None => true,
        };
        AppConditions::Kept(if holds { KeptConditions::Range } else { KeptConditions::None })
    }

    /// The request for the site: the client's, with another target and host.
    pub(crate) fn for_site(
        &self,
        request: &ProxiedRequest,
        target: Option<&str>,
        host: &[u8],
        conditions: KeptConditions,
    ) -> Option<Kept> {
        let mut fields = Fields::new();
        for (name, value) in self.head.fields(self.bytes) {
            let keeps = match Known::of(name) {
                Some(
                    Known::Host
                    | Known::ContentLength
                    | Known::TransferEncoding
                    | Known::Connection
                    | Known::Expect,
                ) => false,
                Some(
                    Known::IfMatch
                    | Known::IfNoneMatch
                    | Known::IfModifiedSince
                    | Known::IfUnmodifiedSince
                    | Known::IfRange,
                ) => conditions == KeptConditions::All,
                Some(Known::Range) => conditions != KeptConditions::None,
                _ => !request.route.request.touches(name),
            };
            // The results of the guards have these fields.
            let keeps = keeps && !request.guarded.as_ref().is_some_and(|guarded| guarded.removes(name));
            if keeps && let Ok(name) = std::str::from_utf8(name) {
                // The parser has checked both.
                let _ = fields.push(name, value);
            }
        }
        let own =
            request.client.as_ref().map_or_else(|| self.head.target(self.bytes), |client| &client.target);
        let own = String::from_utf8_lossy(own);
        let method = if request.method == Method::Head { "HEAD" } else { "GET" };
        let kept = Kept::sample(method, target.unwrap_or(&own), &String::from_utf8_lossy(host), &fields)?;
        let kept = kept.from_origin(request.origin.clone(), request.started);
        Some(match &request.guarded {
            Some(guarded) => kept.with_guard_results((**guarded).clone()),
            None => kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_names_files_in_its_directories_only() {
        let directories = [("/srv/private", "a.invalid"), ("/srv/more", "b.invalid")]
            .map(|(directory, host)| (PathBuf::from(directory), Arc::<str>::from(host)));
        let found = |path: &str| app_file(&directories, path).map(|(host, path)| format!("{host}{path}"));
        assert_eq!(found("/srv/private/a b.pdf").as_deref(), Some("a.invalid/a%20b.pdf"));
        assert_eq!(found("/srv/more//x/y").as_deref(), Some("b.invalid/x/y"));
        for path in
            ["/srv/private", "/srv/private/../more/x", "/srv/privateer/x", "/etc/passwd", "relative", ""]
        {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn conditions_are_evaluated_against_the_applications_tag() {
        let asked = |lines: &str, etag: Option<&str>| {
            let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let mut fields = Fields::new();
            if let Some(etag) = etag {
                fields.push("ETag", etag.as_bytes()).expect("well-formed");
            }
            AskedHead::parse(bytes.as_bytes()).expect("a head").conditions(
                Method::Get,
                &fields,
                Now::default(),
            )
        };
        let tag = Some("\"v1\"");
        assert_eq!(asked("If-None-Match: \"v1\"\r\n", tag), AppConditions::Unchanged(304));
        assert_eq!(asked("If-Match: \"v2\"\r\n", tag), AppConditions::Unchanged(412));
        for (lines, etag, kept) in [
            ("If-None-Match: \"v1\"\r\n", None, KeptConditions::All),
            ("If-None-Match: \"v2\"\r\n", tag, KeptConditions::Range),
            ("Range: bytes=0-1\r\nIf-Range: \"v1\"\r\n", tag, KeptConditions::Range),
            ("Range: bytes=0-1\r\nIf-Range: \"v2\"\r\n", tag, KeptConditions::None),
        ] {
            assert_eq!(asked(lines, etag), AppConditions::Kept(kept), "{lines}");
        }
    }
}
