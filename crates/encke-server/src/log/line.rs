//! Lines of the access log: in the combined format, or one JSON object each.
//!
//! A line begins when its request is parsed, and ends when the last byte of the response is sent. Status, bytes and duration
//! are in its middle (in JSON, at its end), so an entry keeps the text before them and the text after them:
//!
//! ```text
//! combined   203.0.113.9 - ann [21/Nov/2026:21:26:03 +0000] "GET / HTTP/1.1" │ 200 13 │ "-" "curl/8.5.0"
//! JSON       {"time":"…","client":"…","method":"GET",…,"user_agent":"…"    │ ,"status":200,…,"reason":null}
//! ```
//! No value from a client escapes from its field: quotes, backslashes and control characters are escaped. Tokens are masked in
//! every field, wherever the name of a token appears: in a query, a path, a fragment, or a URL within a URL.

use std::io::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU32;

use encke_io::{Now, Peer};
use encke_wire::civil::Civil;
use encke_wire::field::Known;
use encke_wire::http1::Version;

use super::reason;
use super::resting::{Resting, Texts};
use crate::log::{LogFormat, LogLabel, LogOutput};
use crate::request::Request;
use crate::request_id::{self, ID_BYTES, IdPrefix};

/// An unfinished line.
pub(crate) struct LogEntry(LineState);

enum LineState {
    /// A line with its own text.
    Open(PartialLine),
    /// A line that shares its texts with equal lines, to save memory: for an exchange that stays open long, such as that of a
    /// subscriber.
    Resting { line: Resting, unix_ns: u64, status: u16, format: LogFormat, output: LogOutput },
    /// A line together with a JSON line for tails.
    Tailed(Box<Tailed>),
}

/// A line that is also shown in tails ([`LogTail`](super::LogTail)): live views of the log for operators.
struct Tailed {
    /// The line of the log; `None` if the log is off or in the JSON format.
    own: Option<LogEntry>,
    json: LogEntry,
    /// Whether the log is on.
    logged: bool,
    path: Box<[u8]>,
    status: u16,
    output: LogOutput,
}

/// The known part of a line's text.
#[derive(Default)]
struct PartialLine {
    text: Vec<u8>,
    unix_ns: u64,
    /// Position in `text` after the address and the time.
    start: u32,
    /// Position in `text` after the request; the fields about the client follow.
    middle: u32,
    status: u16,
    format: LogFormat,
    output: LogOutput,
}

/// The facts that end a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineEnd {
    /// Bytes of the response's content.
    pub(crate) sent_bytes: u64,
    /// Time from the request to the last byte of the response.
    pub(crate) duration_ns: u64,
    /// The reason why the request was refused, or its response cut short; `None` for a regular end.
    pub(crate) reason: Option<&'static str>,
}

// With its header the allocation has 64 bytes. A resting line owns no other memory.
const _: () = assert!(size_of::<LogEntry>() <= 56);

impl Default for LogEntry {
    fn default() -> Self {
        Self(LineState::Open(PartialLine::default()))
    }
}

/// The bytes of a combined line up to its request, without the address and the user: ` - `, ` [`, the time, `] `.
pub(super) const COMBINED_GAPS: usize = 3 + 2 + COMBINED_TIME + 2;
const COMBINED_TIME: usize = 26;

/// Length of a JSON line up to the address, in bytes.
pub(super) const JSON_START: usize = "{\"time\":\"2026-11-21T21:26:03.042Z\",\"client\":\"".len();

/// Maximum length of a logged value in bytes; `...` replaces the rest. A line then has at most some 70 KiB, even if every byte
/// is escaped, and usually 200 bytes.
const VALUE_BYTES_MAX: usize = 4 * 1024;

/// Capacity in bytes that an entry keeps for its next use.
const ENTRY_BYTES_KEPT: usize = 1024;

/// The members of a JSON line that are `null` for a request that could not be parsed.
const NAMES_OF_REFUSED: [&str; 12] = [
    "method",
    "target",
    "version",
    "host",
    "site",
    "referer",
    "user_agent",
    "tls",
    "cipher",
    "server_name",
    "certificate",
    "request_id",
];

/// Text after this name is a secret, with any separator (RFC 6750 §2.3).
const SECRET: &[u8] = b"access_token";
/// Text after this name, or after a name that ends in it, is a secret if `=` or `:` separates the two. Examples are `?token=`
/// of the admin listener, and `id_token`. The path `/tokens/1` holds no secret.
const SECRET_IF_GIVEN: &[u8] = b"token";
const MASK: &[u8] = b"***";

impl LogEntry {
    pub(crate) fn set_status(&mut self, to: u16) {
        match &mut self.0 {
            LineState::Open(PartialLine { status, .. }) | LineState::Resting { status, .. } => *status = to,
            LineState::Tailed(tailed) => {
                tailed.status = to;
                tailed.json.set_status(to);
                if let Some(own) = &mut tailed.own {
                    own.set_status(to);
                }
            }
        }
    }

    /// Sets the output of the line.
    pub(super) fn set_output(&mut self, to: LogOutput) {
        match &mut self.0 {
            LineState::Open(PartialLine { output, .. }) | LineState::Resting { output, .. } => *output = to,
            LineState::Tailed(tailed) => tailed.output = to,
        }
    }

    /// The output of the line.
    pub(super) fn output(&self) -> LogOutput {
        match &self.0 {
            LineState::Open(PartialLine { output, .. }) | LineState::Resting { output, .. } => *output,
            LineState::Tailed(tailed) => tailed.output,
        }
    }

    /// Appends the complete line.
    pub(crate) fn finish(&self, prefix: &IdPrefix, end: &LineEnd, out: &mut Vec<u8>) {
        match &self.0 {
            LineState::Open(open) => {
                let (before, behind) = open.text.split_at(open.split());
                out.extend_from_slice(before);
                put_end(open.format, open.status, end, behind, out);
            }
            LineState::Resting { line, unix_ns, status, format, .. } => {
                let (user, request) = line.request.bytes().split_at(line.user_len as usize);
                // The writer of new lines caches the date of the present second; this line began earlier.
                let mut writer = Writer::new();
                let behind = match format {
                    LogFormat::Combined => {
                        writer.put_start(*unix_ns, line.client, |text| text.extend_from_slice(user), out);
                        out.extend_from_slice(request);
                        line.behind.bytes()
                    }
                    LogFormat::Json => {
                        put_resting_json(line, *unix_ns, prefix, out);
                        b""
                    }
                };
                put_end(*format, *status, end, behind, out);
            }
            LineState::Tailed(tailed) => {
                if tailed.logged {
                    tailed.own.as_ref().unwrap_or(&tailed.json).finish(prefix, end, out);
                }
            }
        }
    }

    /// Adds members to a JSON line.
    pub(super) fn note(&mut self, prefix: &IdPrefix, texts: &mut Texts, members: &[u8]) {
        match &mut self.0 {
            LineState::Open(open) if open.format == LogFormat::Json => open.text.extend_from_slice(members),
            LineState::Resting { format: LogFormat::Json, .. } => {
                self.unshare(prefix, texts);
                self.note(prefix, texts, members);
            }
            LineState::Open(_) | LineState::Resting { .. } => {}
            LineState::Tailed(tailed) => tailed.json.note(prefix, texts, members),
        }
    }

    /// Gives a JSON line with shared texts a text of its own.
    fn unshare(&mut self, prefix: &IdPrefix, texts: &mut Texts) {
        let LineState::Resting { line, unix_ns, status, format, output } =
            std::mem::replace(&mut self.0, LineState::Open(PartialLine::default()))
        else {
            return;
        };
        let mut open = PartialLine { unix_ns, status, format, output, ..PartialLine::default() };
        put_resting_json(&line, unix_ns, prefix, &mut open.text);
        texts.release(line);
        self.0 = LineState::Open(open);
    }

    /// An entry with a JSON line for tails. `own` is the line of a log in another format.
    pub(super) fn tailed(own: Option<Self>, json: Self, logged: bool, path: &[u8]) -> Self {
        let tailed = Tailed { own, json, logged, path: path.into(), status: 0, output: LogOutput::default() };
        Self(LineState::Tailed(Box::new(tailed)))
    }

    /// Status, path and JSON line, if tails show this line.
    pub(super) fn tail(&self) -> Option<(u16, &[u8], &Self)> {
        match &self.0 {
            LineState::Tailed(tailed) => Some((tailed.status, &tailed.path, &tailed.json)),
            LineState::Open(_) | LineState::Resting { .. } => None,
        }
    }

    /// Returns the request's target, as the line has it: truncated and escaped, with tokens masked. `None` for a request that
    /// could not be parsed.
    pub(crate) fn target(&self) -> Option<String> {
        let target = |format, request: &[u8]| {
            let text = String::from_utf8_lossy(request);
            let target = match format {
                LogFormat::Combined => text.split(' ').nth(1)?,
                LogFormat::Json => text.split("\"target\":\"").nth(1)?.split("\",\"").next()?,
            };
            Some(target.to_owned())
        };
        match &self.0 {
            LineState::Open(open) => {
                target(open.format, open.text.get(open.start as usize..open.middle as usize)?)
            }
            LineState::Resting { line, format, .. } => {
                target(*format, line.request.bytes().get(usize::from(line.user_len)..)?)
            }
            LineState::Tailed(tailed) => tailed.json.target(),
        }
    }

    /// Whether the log has this line.
    pub(super) fn is_logged(&self) -> bool {
        !matches!(&self.0, LineState::Tailed(tailed) if !tailed.logged)
    }

    /// Returns the line with its texts shared. Returns `None` if it is shared already, or does not have the usual form.
    pub(super) fn at_rest(&self, prefix: &IdPrefix, texts: &mut Texts) -> Option<Self> {
        let open = match &self.0 {
            LineState::Open(open) => open,
            LineState::Resting { .. } => return None,
            LineState::Tailed(tailed) => {
                let json = tailed.json.at_rest(prefix, texts)?;
                let own = tailed.own.as_ref().and_then(|own| own.at_rest(prefix, texts));
                let mut resting = Self::tailed(own, json, tailed.logged, &tailed.path);
                resting.set_status(tailed.status);
                resting.set_output(tailed.output);
                return Some(resting);
            }
        };
        let PartialLine { unix_ns, status, format, output, .. } = *open;
        let (text, id_number) = without_own_id(format, &open.text, unix_ns, prefix);
        let mut line = Resting::of(format, text, open.start as usize, open.middle as usize, texts)?;
        line.id_number = id_number;
        Some(Self(LineState::Resting { line, unix_ns, status, format, output }))
    }

    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.0, LineState::Resting { .. })
    }

    /// Releases the texts of a finished line. Returns the entry, emptied for another line, if it has a text of its own.
    pub(super) fn recycle(mut self: Box<Self>, texts: &mut Texts) -> Option<Box<Self>> {
        match &mut self.0 {
            LineState::Open(open) => {
                open.text.clear();
                open.text.shrink_to(ENTRY_BYTES_KEPT);
                *open = PartialLine { text: std::mem::take(&mut open.text), ..PartialLine::default() };
                Some(self)
            }
            LineState::Resting { .. } => {
                if let LineState::Resting { line, .. } = self.0 {
                    texts.release(line);
                }
                None
            }
            LineState::Tailed(_) => {
                let LineState::Tailed(tailed) = self.0 else { return None };
                let Tailed { own, json, .. } = *tailed;
                let own = own.and_then(|own| Box::new(own).recycle(texts));
                Box::new(json).recycle(texts).or(own)
            }
        }
    }

    /// Returns the entry's own text. Entries that are kept for later requests have one; others are replaced.
    fn open(&mut self) -> &mut PartialLine {
        if !matches!(self.0, LineState::Open(_)) {
            *self = Self::default();
        }
        match &mut self.0 {
            LineState::Open(open) => open,
            LineState::Resting { .. } | LineState::Tailed(_) => unreachable!("replaced above"),
        }
    }
}

impl PartialLine {
    /// Position in `text` at which status, bytes and duration are to be inserted.
    fn split(&self) -> usize {
        match self.format {
            LogFormat::Combined => self.middle as usize,
            LogFormat::Json => self.text.len(),
        }
    }
}

/// Splits an own id off the end of a JSON line. Returns the text before it, and its number.
fn without_own_id<'a>(
    format: LogFormat,
    text: &'a [u8],
    unix_ns: u64,
    prefix: &IdPrefix,
) -> (&'a [u8], Option<NonZeroU32>) {
    let own = || {
        let before = text.strip_suffix(b"\"")?;
        let (before, id) = before.split_at_checked(before.len().checked_sub(ID_BYTES)?)?;
        let number = request_id::number(id)?;
        let before = before.strip_suffix(b",\"request_id\":\"")?;
        (request_id::id(prefix, unix_ns, number) == *id).then_some((before, number))
    };
    match own() {
        Some((before, number)) if format == LogFormat::Json => (before, Some(number)),
        _ => (text, None),
    }
}

/// Appends a JSON line with shared texts, except its end.
fn put_resting_json(line: &Resting, unix_ns: u64, prefix: &IdPrefix, out: &mut Vec<u8>) {
    Writer::new().put_json_start(unix_ns, line.client, out);
    out.extend_from_slice(line.request.bytes());
    out.extend_from_slice(line.behind.bytes());
    if let Some(number) = line.id_number {
        put_json(out, "request_id", Some(&request_id::id(prefix, unix_ns, number)));
    }
}

/// Appends status, bytes, duration, reason and the rest of the line.
fn put_end(format: LogFormat, status: u16, end: &LineEnd, behind: &[u8], out: &mut Vec<u8>) {
    let LineEnd { sent_bytes, duration_ns, reason } = *end;
    let written = match format {
        LogFormat::Combined => write!(out, " {status} {sent_bytes}"),
        LogFormat::Json => {
            let duration_us = duration_ns / 1_000;
            write!(out, ",\"status\":{status},\"sent_bytes\":{sent_bytes},\"duration_us\":{duration_us}")
        }
    };
    written.expect("a Vec takes everything");
    if format == LogFormat::Json {
        put_reason(reason, out);
        out.push(b'}');
    }
    out.extend_from_slice(behind);
    out.push(b'\n');
}

/// Appends the reason, and the setting of the limit that it names.
fn put_reason(reason: Option<&'static str>, out: &mut Vec<u8>) {
    let Some(reason) = reason else { return out.extend_from_slice(b",\"reason\":null") };
    out.extend_from_slice(b",\"reason\":\"");
    put_json_escaped(out, reason.as_bytes());
    if let Some(setting) = reason::setting_of(reason) {
        for part in [" (", setting, ")"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.push(b'"');
}

/// A writer of lines, which caches the date of the present second.
pub(crate) struct Writer {
    second: u64,
    combined: [u8; COMBINED_TIME],
    rfc3339: [u8; 19],
}

impl Writer {
    pub(crate) fn new() -> Self {
        let epoch = Civil::of(0);
        Self { second: 0, combined: epoch.combined(), rfc3339: epoch.rfc3339() }
    }

    /// Writes the line except status, bytes and duration.
    pub(crate) fn begin(
        &mut self,
        format: LogFormat,
        (request, label, id): (&Request<'_>, LogLabel<'_>, &[u8]),
        entry: &mut LogEntry,
    ) {
        let entry = entry.open();
        entry.format = format;
        entry.unix_ns = request.now().unix_ns;
        let version: &[u8] = match request.version() {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
            Version::Http2 => b"HTTP/2.0",
        };
        let client = request.origin().client;
        let tls = request.tls();
        let certificate = tls.and_then(|tls| tls.client.as_ref()).map(|client| client.name.as_bytes());
        let guarded = request.user().filter(|user| !user.is_empty()).map(str::as_bytes);
        let user = guarded.or(certificate);
        let referer = request.known(Known::Referer);
        let user_agent = request.known(Known::UserAgent);
        match format {
            LogFormat::Combined => {
                let put_user = |text: &mut Vec<u8>| put_word(text, user.unwrap_or(b"-"));
                self.put_start(entry.unix_ns, client, put_user, &mut entry.text);
                entry.start = here(&entry.text);
                entry.text.push(b'"');
                put_value(&mut entry.text, request.method_text(), put_escaped);
                entry.text.push(b' ');
                put_value(&mut entry.text, request.target(), put_escaped);
                entry.text.push(b' ');
                entry.text.extend_from_slice(version);
                entry.text.push(b'"');
                entry.middle = here(&entry.text);
                entry.text.extend_from_slice(b" \"");
                put_value(&mut entry.text, referer.unwrap_or(b"-"), put_escaped);
                entry.text.extend_from_slice(b"\" \"");
                put_value(&mut entry.text, user_agent.unwrap_or(b"-"), put_escaped);
                entry.text.push(b'"');
            }
            LogFormat::Json => {
                self.put_json_start(entry.unix_ns, client, &mut entry.text);
                entry.start = here(&entry.text);
                put_json(&mut entry.text, "method", Some(request.method_text()));
                put_json(&mut entry.text, "target", Some(request.target()));
                put_json(&mut entry.text, "version", Some(version));
                put_json(&mut entry.text, "host", Some(request.authority()).filter(|host| !host.is_empty()));
                put_json(&mut entry.text, "site", label.site.map(str::as_bytes));
                entry.middle = here(&entry.text);
                put_json(&mut entry.text, "referer", referer);
                put_json(&mut entry.text, "user_agent", user_agent);
                put_json(&mut entry.text, "tls", tls.map(|tls| tls.version.as_bytes()));
                put_json(&mut entry.text, "cipher", tls.map(|tls| tls.cipher.as_bytes()));
                let server_name = tls.and_then(|tls| tls.server_name.as_deref());
                put_json(&mut entry.text, "server_name", server_name.map(str::as_bytes));
                put_json(&mut entry.text, "certificate", certificate);
                if guarded.is_some() {
                    put_json(&mut entry.text, "user", guarded);
                }
                // Last, so that a pending line can store an own id as a number.
                put_json(&mut entry.text, "request_id", Some(id));
            }
        }
    }

    /// Writes the known facts about a request that could not be parsed: peer and time.
    pub(crate) fn begin_refused(&mut self, format: LogFormat, peer: Peer, now: Now, entry: &mut LogEntry) {
        let entry = entry.open();
        entry.format = format;
        entry.unix_ns = now.unix_ns;
        let client = match peer {
            Peer::Inet(address) => Some(address.ip()),
            Peer::Local => None,
        };
        match format {
            LogFormat::Combined => {
                self.put_start(entry.unix_ns, client, |text| text.push(b'-'), &mut entry.text);
                entry.start = here(&entry.text);
                entry.text.extend_from_slice(b"\"-\"");
                entry.middle = here(&entry.text);
                entry.text.extend_from_slice(b" \"-\" \"-\"");
            }
            LogFormat::Json => {
                self.put_json_start(entry.unix_ns, client, &mut entry.text);
                entry.start = here(&entry.text);
                entry.middle = entry.start;
                for key in NAMES_OF_REFUSED {
                    put_json(&mut entry.text, key, None);
                }
            }
        }
    }

    fn put_start(
        &mut self,
        unix_ns: u64,
        client: Option<IpAddr>,
        put_user: impl FnOnce(&mut Vec<u8>),
        text: &mut Vec<u8>,
    ) {
        self.tell_time(unix_ns);
        put_address(text, client);
        text.extend_from_slice(b" - ");
        put_user(text);
        text.extend_from_slice(b" [");
        text.extend_from_slice(&self.combined);
        text.extend_from_slice(b"] ");
    }

    fn put_json_start(&mut self, unix_ns: u64, client: Option<IpAddr>, text: &mut Vec<u8>) {
        self.tell_time(unix_ns);
        text.extend_from_slice(b"{\"time\":\"");
        text.extend_from_slice(&self.rfc3339);
        let milliseconds = unix_ns / 1_000_000 % 1_000;
        write!(text, ".{milliseconds:03}Z\",\"client\":\"").expect("a Vec takes everything");
        put_address(text, client);
        text.push(b'"');
    }

    fn tell_time(&mut self, unix_ns: u64) {
        let second = unix_ns / 1_000_000_000;
        if second != self.second {
            self.second = second;
            let civil = Civil::of(self.second);
            self.combined = civil.combined();
            self.rfc3339 = civil.rfc3339();
        }
    }
}

/// The length of a text, which has at most some 70 KiB.
fn here(text: &[u8]) -> u32 {
    text.len() as u32
}

/// Returns the client's address in a line of the JSON format; `None` for a Unix socket whose peer reports none.
pub(super) fn client_of(json: &[u8]) -> Option<IpAddr> {
    let rest = json.get(JSON_START..)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

/// Appends an address, or `-` for a Unix socket whose peer reports none.
fn put_address(text: &mut Vec<u8>, address: Option<IpAddr>) {
    match address {
        Some(address) => write!(text, "{address}").expect("a Vec takes everything"),
        None => text.push(b'-'),
    }
}

/// Appends `,"key":"value"`, or `null` as the value for `None`.
pub(super) fn put_json(text: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    text.extend_from_slice(b",\"");
    text.extend_from_slice(key.as_bytes());
    match value {
        Some(value) => {
            text.extend_from_slice(b"\":\"");
            put_value(text, value, put_json_escaped);
            text.push(b'"');
        }
        None => text.extend_from_slice(b"\":null"),
    }
}

/// Appends a value that a client sent: truncated, with tokens masked, escaped by `put`.
fn put_value(text: &mut Vec<u8>, value: &[u8], put: fn(&mut Vec<u8>, &[u8])) {
    let (mut rest, end) = if value.len() <= VALUE_BYTES_MAX {
        (value, &b""[..])
    } else {
        (&value[..VALUE_BYTES_MAX], &b"..."[..])
    };
    while let Some((shown, hidden)) = secret(rest) {
        put(text, shown);
        text.extend_from_slice(MASK);
        rest = &rest[shown.len() + hidden..];
    }
    put(text, rest);
    text.extend_from_slice(end);
}

/// Finds the first token in a value. Returns the text up to and including its name, and the token's length. The token extends
/// to the next `&` or space. An escaped `&` does not end it, because tokens may contain one.
fn secret(value: &[u8]) -> Option<(&[u8], usize)> {
    if !may_hold_secret(value) {
        return None;
    }
    let mut at = 0;
    while let Some((_, next)) = decoded(value, at) {
        let Some(name_end) = secret_name(value, at) else {
            at = next;
            continue;
        };
        let mut start = name_end;
        while let Some((b'=' | b':' | b' ' | b'"' | b'\'', next)) = decoded(value, start) {
            start = next;
        }
        let rest = &value[start..];
        let hidden = rest.iter().position(|byte| matches!(byte, b'&' | b' ')).unwrap_or(rest.len());
        if start > name_end || hidden > 0 {
            return Some((&value[..start], hidden));
        }
        at = name_end;
    }
    None
}

/// A fast filter, because most values hold no token. Every value with a token has an escape, or the name in plain text. The
/// filter searches for the name's rarest letter.
fn may_hold_secret(value: &[u8]) -> bool {
    let is_token = |(at, byte): (usize, &u8)| {
        let word = at.checked_sub(2).and_then(|start| value.get(start..start + SECRET_IF_GIVEN.len()));
        matches!(byte, b'k' | b'K') && word.is_some_and(|word| word.eq_ignore_ascii_case(SECRET_IF_GIVEN))
    };
    value.contains(&b'%') || value.iter().enumerate().any(is_token)
}

/// Returns the end of a token's name that begins at `at`.
fn secret_name(value: &[u8], at: usize) -> Option<usize> {
    spelled(value, at, SECRET).or_else(|| {
        let end = spelled(value, at, SECRET_IF_GIVEN)?;
        matches!(decoded(value, end), Some((b'=' | b':', _))).then_some(end)
    })
}

/// Returns the end of `word` if it begins at `at`, in any case and escaped or not. A client must not be able to trick a server
/// that decodes names into logging their values.
fn spelled(value: &[u8], mut at: usize, word: &[u8]) -> Option<usize> {
    for expected in word {
        let (byte, next) = decoded(value, at)?;
        if !byte.eq_ignore_ascii_case(expected) {
            return None;
        }
        at = next;
    }
    Some(at)
}

/// Returns the byte at a position, and the position of the next one. A URL within a URL is escaped more than once: `%61`,
/// `%2561` and `%252561` are all `a`.
fn decoded(value: &[u8], at: usize) -> Option<(u8, usize)> {
    let byte = *value.get(at)?;
    if byte != b'%' {
        return Some((byte, at + 1));
    }
    let mut digits = at + 1;
    while value[digits..].starts_with(b"25") {
        digits += 2;
    }
    let escaped = match value[digits..] {
        [high, low, ..] => hex(high).zip(hex(low)),
        _ => None,
    };
    Some(escaped.map_or((b'%', at + 1), |(high, low)| (high << 4 | low, digits + 2)))
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Escapes quotes, backslashes and everything that is not printable ASCII as `\xHH`, so that a value cannot end its line or its
/// quoted field.
fn put_escaped(text: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        if byte == b'"' || byte == b'\\' || !(b' '..=b'~').contains(&byte) {
            text.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            text.push(byte);
        }
    }
}

/// Escapes like [`put_escaped`], and spaces as well, because log readers split lines at spaces.
fn put_word(text: &mut Vec<u8>, value: &[u8]) {
    for (count, word) in value.split(|&byte| byte == b' ').enumerate() {
        if count > 0 {
            text.extend_from_slice(b"\\x20");
        }
        put_value(text, word, put_escaped);
    }
}

/// Escapes by RFC 8259 §7. Invalid UTF-8 becomes U+FFFD.
fn put_json_escaped(text: &mut Vec<u8>, value: &[u8]) {
    for chunk in value.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
                0..=0x1f | 0x7f => {
                    let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                    text.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
                }
                _ => text.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            text.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests;
