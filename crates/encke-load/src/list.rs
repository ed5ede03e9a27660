//! Reads lists of requests: a file of URLs, or a server's access log.
//!
//! ```text
//!   3@/page                       Line: weight, method, target     chosen by weight
//!   POST http://h/form
//!
//!   … [21/Nov/2026:21:26:03 +0000] "GET /page HTTP/1.1" 200 …      Log: targets in order,
//!                                                                  and the number of requests per second
//! ```
//! This file parses texts. It opens no files and sends no requests.

use std::collections::HashMap;
use std::fmt;

use encke_wire::civil::Civil;
use encke_wire::field;

use crate::input::InputError;
use crate::url::Url;

/// A line of a file of URLs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrlLine {
    /// Relative frequency of the request.
    pub weight: u32,
    /// The method, if the line has one.
    pub method: Option<String>,
    /// Target of the request.
    pub place: LineTarget,
}

/// Target of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineTarget {
    /// Path and query, on the server given elsewhere.
    Target(String),
    /// A complete URL.
    Url(Url),
}

/// Why a file of URLs cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListError {
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub reason: InputError,
}

/// The requests of an access log that can be repeated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// Distinct requests: method and target.
    pub requests: Vec<(String, String)>,
    /// Indices into `requests`, in the order of time.
    pub order: Vec<u32>,
    /// Requests in each second, from the first second to the last.
    pub seconds: Vec<u64>,
    /// Lines left out: they contain no request, or a request that may have a body.
    pub left_out: u64,
}

/// Maximum time between the first and the last second of a log. A longer one is probably corrupt.
const SECONDS_MAX: u64 = 400 * 86_400;

/// Parses a file of URLs, one request per line: `[WEIGHT@][METHOD ]URL`. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// The first invalid line, or a file without any requests.
pub fn lines(text: &str) -> Result<Vec<UrlLine>, ListError> {
    let mut found = Vec::new();
    for (number, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        found.push(line(text).map_err(|reason| ListError { line: number + 1, reason })?);
    }
    if found.is_empty() {
        return Err(ListError { line: 1, reason: InputError::NoUrls });
    }
    Ok(found)
}

fn line(text: &str) -> Result<UrlLine, InputError> {
    let (weight, rest) = weight(text)?;
    let (method, place) = match rest.split_once(char::is_whitespace) {
        None => (None, rest),
        Some((method, _)) if !field::is_token(method.as_bytes()) => {
            return Err(InputError::Method(method.to_owned()));
        }
        Some((method, place)) => (Some(method.to_owned()), place.trim_start()),
    };
    let place = if place.starts_with('/') {
        // Only visible ASCII is valid in a URL. Anything else must not reach the lines of a request.
        if !place.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InputError::Path(place.to_owned()));
        }
        LineTarget::Target(place.to_owned())
    } else {
        LineTarget::Url(place.parse()?)
    };
    Ok(UrlLine { weight, method, place })
}

/// Splits a leading `WEIGHT@` off a text; without it the weight is 1.
///
/// # Errors
/// The weight is 0.
pub fn weight(text: &str) -> Result<(u32, &str), InputError> {
    let weighted = text.split_once('@').and_then(|(digits, rest)| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u32>().ok()).flatten().map(|weight| (weight, rest))
    });
    match weighted {
        Some((0, _)) => Err(InputError::Weight(text.to_owned())),
        Some((weight, rest)) => Ok((weight, rest)),
        None => Ok((1, text)),
    }
}

impl Log {
    /// Parses an access log in the common format (`%h %l %u %t "%r" …`) or an extension of it, such as the combined format.
    ///
    /// # Errors
    /// The log has no request that can be repeated, or it spans more than 400 days.
    pub fn read(text: &str) -> Result<Self, InputError> {
        let mut log = Self::default();
        let mut places: HashMap<(&str, &str), u32> = HashMap::new();
        let mut moments = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Some((second, method, target)) = entry(line) else {
                log.left_out += 1;
                continue;
            };
            let place = *places.entry((method, target)).or_insert_with(|| {
                log.requests.push((method.to_owned(), target.to_owned()));
                // A log of four billion different requests does not fit into memory.
                (log.requests.len() - 1) as u32
            });
            moments.push((second, place));
        }
        // A log line is written when its request ends, so requests may be out of order by their begin.
        moments.sort_by_key(|(second, _)| *second);
        let (Some((first, _)), Some((last, _))) = (moments.first(), moments.last()) else {
            return Err(InputError::NoRequests(log.left_out));
        };
        let span = last - first;
        if span > SECONDS_MAX {
            return Err(InputError::LongLog(span / 86_400));
        }
        log.seconds = vec![0; span as usize + 1];
        for (second, place) in &moments {
            log.seconds[(second - first) as usize] += 1;
            log.order.push(*place);
        }
        Ok(log)
    }
}

/// The time, method and target of a log line; `None` if the request cannot be repeated.
fn entry(line: &str) -> Option<(u64, &str, &str)> {
    let (_, dated) = line.split_once('[')?;
    let (date, behind) = dated.split_once(']')?;
    let (_, quoted) = behind.split_once('"')?;
    let (request, _) = quoted.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    // A log contains no bodies, and escapes non-plain text with a backslash.
    let plain =
        target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let whole = version.starts_with("HTTP/") && words.next().is_none();
    if !matches!(method, "GET" | "HEAD") || !plain || !whole {
        return None;
    }
    Some((Civil::seconds_of_combined(date.as_bytes())?, method, target))
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ListError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_weight_and_a_method_if_it_says_so() {
        let text = "# of the shop\n\n/a?b={seq}\n3@/b\nHEAD /c\n  2@POST  http://h:81/d \nhttp://h/@x\n";
        let told: Vec<String> = lines(text)
            .expect("lines")
            .iter()
            .map(|line| {
                let place = match &line.place {
                    LineTarget::Target(target) => target.clone(),
                    LineTarget::Url(url) => url.to_string(),
                };
                format!("{} {} {place}", line.weight, line.method.as_deref().unwrap_or("-"))
            })
            .collect();
        assert_eq!(
            told,
            ["1 - /a?b={seq}", "3 - /b", "1 HEAD /c", "2 POST http://h:81/d", "1 - http://h/@x"]
        );
    }

    #[test]
    fn what_is_no_line_is_told_with_its_number() {
        for (text, number, said) in [
            ("", 1, "no URL in the file"),
            ("# nothing\n\n", 1, "no URL in the file"),
            ("/a\n\nnowhere\n", 3, "invalid URL"),
            ("/a\n0@/b\n", 2, "1 or more"),
            ("G(T /a\n", 1, "invalid method"),
            ("GET /a b\n", 1, "invalid path"),
            ("/ä\n", 1, "invalid path"),
        ] {
            let wrong = lines(text).expect_err(text);
            assert!(wrong.line == number && wrong.to_string().contains(said), "{text:?}: {wrong}");
        }
    }

    const LOG: &str = r#"127.0.0.1 - - [21/Nov/2026:21:26:05 +0000] "GET /b HTTP/1.1" 200 5
127.0.0.1 - ann [21/Nov/2026:22:26:03 +0100] "GET /a?x={seq} HTTP/1.1" 200 5 "-" "curl/8 [x] \"y\""
127.0.0.1 - - [21/Nov/2026:21:26:03 +0000] "HEAD /a HTTP/1.0" 404 0
::1 - - [21/Nov/2026:21:26:05 +0000] "GET /b HTTP/2.0" 200 5
127.0.0.1 - - [21/Nov/2026:21:26:05 +0000] "POST /form HTTP/1.1" 201 0
127.0.0.1 - - [21/Nov/2026:21:26:05 +0000] "\x16\x03\x01" 400 0
127.0.0.1 - - [21/Nov/2026:21:26:05 +0000] "GET /\x22 HTTP/1.1" 400 0
127.0.0.1 - - [21/Nov/2026:21:26:05 +0000] "GET http://other/ HTTP/1.1" 400 0
127.0.0.1 - - [yesterday] "GET /b HTTP/1.1" 200 5
no line of a log
"#;

    #[test]
    fn a_log_is_its_requests_in_the_order_of_their_times() {
        let log = Log::read(LOG).expect("a log");
        let requests: Vec<_> =
            log.requests.iter().map(|(method, target)| format!("{method} {target}")).collect();
        assert_eq!(requests, ["GET /b", "GET /a?x={seq}", "HEAD /a"]);
        assert_eq!((log.order, log.seconds, log.left_out), (vec![1, 2, 0, 0], vec![2, 0, 2], 6));
    }

    #[test]
    fn a_log_without_requests_is_told_as_that() {
        for (text, said) in [
            ("", "no GET or HEAD that can be repeated in 0 lines"),
            ("x\ny\n", "no GET or HEAD that can be repeated in 2 lines"),
            (
                "- - - [21/Nov/2024:21:26:05 +0000] \"GET / HTTP/1.1\" 200 0\n\
                 - - - [21/Nov/2026:21:26:05 +0000] \"GET / HTTP/1.1\" 200 0\n",
                "730 days",
            ),
        ] {
            let error = Log::read(text).expect_err(text).to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_line_cut_anywhere_does_no_harm() {
        for at in 0..LOG.len() {
            if let Ok(log) = Log::read(&LOG[..at]) {
                assert_eq!(log.order.len() as u64, log.seconds.iter().sum::<u64>());
            }
        }
    }
}
