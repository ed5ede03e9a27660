//! The response of a CGI program (RFC 3875 §6): its head, as the head of an HTTP/1.1 response.
//!
//! ```text
//!  Status: 404 Not Found LF                    HTTP/1.1 404 Not Found CRLF
//!  Content-Type: text/html LF      ─────►      Content-Type: text/html CRLF
//!  LF                                          CRLF
//! ```
//! Programs end lines with LF or CRLF, and name the status in a field. Everything else is checked by the parser of HTTP/1
//! responses, which reads the result.

use crate::limits::HEAD_BYTES_MAX;

/// Collects the head of one response.
#[derive(Debug, Default)]
pub struct CgiHead {
    bytes: Vec<u8>,
}

/// Why output is no head of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgiFault {
    /// The head is longer than [`HEAD_BYTES_MAX`].
    TooLarge,
    /// The field Status has no number from 200 to 599, or occurs twice.
    Status,
    /// A line is no field.
    Line,
}

impl std::fmt::Display for CgiFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the head of the program's response is too long",
            Self::Status => "the program's field Status is no status",
            Self::Line => "a line in the head of the program's response is no field",
        })
    }
}

impl std::error::Error for CgiFault {}

impl CgiHead {
    /// Adds output of the program. Returns the HTTP/1.1 head once it is complete, and the number of bytes of `output` that belong
    /// to it. The collector is then ready for the next response.
    ///
    /// ```
    /// use encke_wire::cgi::CgiHead;
    ///
    /// let mut head = CgiHead::default();
    /// assert_eq!(head.take(b"Status: 404 Not Fou")?, None);
    /// let (bytes, used) = head.take(b"nd\nX: y\n\nbody")?.expect("complete");
    /// assert_eq!((&bytes[..], used), (&b"HTTP/1.1 404 Not Found\r\nX: y\r\n\r\n"[..], 9));
    /// # Ok::<(), encke_wire::cgi::CgiFault>(())
    /// ```
    ///
    /// # Errors
    /// See [`CgiFault`].
    pub fn take(&mut self, output: &[u8]) -> Result<Option<(Vec<u8>, usize)>, CgiFault> {
        if self.bytes.is_empty()
            && let Some(head) = whole_head(output)
        {
            return Ok(Some((as_http(head)?, head.len())));
        }
        for (place, &byte) in output.iter().enumerate() {
            self.bytes.push(byte);
            if byte == b'\n' && is_complete(&self.bytes) {
                let bytes = std::mem::take(&mut self.bytes);
                return Ok(Some((as_http(&bytes)?, place + 1)));
            }
            if self.bytes.len() > HEAD_BYTES_MAX as usize {
                return Err(CgiFault::TooLarge);
            }
        }
        Ok(None)
    }

    /// Whether no output has been added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The head at the start of the output, if it is complete and short enough. Most programs send it in one piece.
fn whole_head(output: &[u8]) -> Option<&[u8]> {
    let output = output.get(..HEAD_BYTES_MAX as usize).unwrap_or(output);
    let mut end = 0;
    loop {
        end += output.get(end..)?.iter().position(|&byte| byte == b'\n')? + 1;
        let head = output.get(..end)?;
        if is_complete(head) {
            return Some(head);
        }
    }
}

/// Whether the bytes end with an empty line.
fn is_complete(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n\n") || bytes.ends_with(b"\n\r\n") || matches!(bytes, b"\n" | b"\r\n")
}

fn as_http(head: &[u8]) -> Result<Vec<u8>, CgiFault> {
    let mut status: Option<&[u8]> = None;
    let mut has_location = false;
    let mut lines = Vec::with_capacity(head.len() + 32);
    for line in head.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':').ok_or(CgiFault::Line)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"status") {
            if status.replace(value).is_some() {
                return Err(CgiFault::Status);
            }
            continue;
        }
        // The connection and its framing are the server's, not the program's.
        if name.eq_ignore_ascii_case(b"transfer-encoding") || name.eq_ignore_ascii_case(b"connection") {
            continue;
        }
        has_location |= name.eq_ignore_ascii_case(b"location");
        lines.extend_from_slice(line);
        lines.extend_from_slice(b"\r\n");
    }
    let status = match status {
        Some(status) => {
            let number = status.split(|&byte| byte == b' ').next().unwrap_or_default();
            if !matches!(number, [b'2'..=b'5', b'0'..=b'9', b'0'..=b'9']) {
                return Err(CgiFault::Status);
            }
            status
        }
        // RFC 3875 §6.2.3: a redirect for the client.
        None if has_location => b"302 Found",
        None => b"200 OK",
    };
    let mut http = Vec::with_capacity(lines.len() + status.len() + 16);
    http.extend_from_slice(b"HTTP/1.1 ");
    http.extend_from_slice(status);
    if !status.contains(&b' ') {
        http.push(b' ');
    }
    http.extend_from_slice(b"\r\n");
    http.extend_from_slice(&lines);
    http.extend_from_slice(b"\r\n");
    Ok(http)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The HTTP head, and the rest of the output.
    type Taken = Result<Option<(String, Vec<u8>)>, CgiFault>;

    fn take(pieces: &[&[u8]]) -> Taken {
        let mut head = CgiHead::default();
        for (number, piece) in pieces.iter().enumerate() {
            if let Some((bytes, used)) = head.take(piece)? {
                assert!(head.is_empty());
                let rest = [&[&piece[used..]], &pieces[number + 1..]].concat().concat();
                return Ok(Some((String::from_utf8(bytes).expect("text"), rest)));
            }
        }
        Ok(None)
    }

    fn every_way(output: &[u8]) -> Taken {
        let whole = take(&[output]);
        assert_eq!(take(&output.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
        for cut in 0..=output.len() {
            assert_eq!(take(&[&output[..cut], &output[cut..]]), whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn lines_end_with_lf_or_crlf() {
        for end in ["\n", "\r\n"] {
            let output = format!("Status: 404 Not Found{end}Content-Type: text/html{end}{end}\nbody\r\n\r\n");
            let (head, rest) = every_way(output.as_bytes()).expect("a head").expect("complete");
            assert_eq!(head, "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n");
            assert_eq!(rest, b"\nbody\r\n\r\n");
        }
    }

    #[test]
    fn the_status_is_200_or_that_of_a_redirect() {
        let head = |output: &str| every_way(output.as_bytes()).expect("a head").expect("complete").0;
        assert_eq!(head("A: b\n\n"), "HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
        assert_eq!(head("\n"), "HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(head("Location: /x\n\n"), "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n");
        assert_eq!(head("location: /x\nstatus: 303\n\n"), "HTTP/1.1 303 \r\nlocation: /x\r\n\r\n");
    }

    #[test]
    fn fields_of_the_connection_are_dropped() {
        let (head, _) = every_way(b"Transfer-Encoding: chunked\nConnection: close\nX: y\n\n")
            .expect("a head")
            .expect("complete");
        assert_eq!(head, "HTTP/1.1 200 OK\r\nX: y\r\n\r\n");
    }

    #[test]
    fn malformed_heads_are_refused() {
        for (output, fault) in [
            ("Status: abc\n\n", CgiFault::Status),
            ("Status: 2000\n\n", CgiFault::Status),
            ("Status: 101 Switching\n\n", CgiFault::Status),
            ("Status: 200\nStatus: 200\n\n", CgiFault::Status),
            ("no field\n\n", CgiFault::Line),
        ] {
            assert_eq!(every_way(output.as_bytes()), Err(fault), "{output:?}");
        }
        let endless = vec![b'a'; HEAD_BYTES_MAX as usize + 1];
        assert_eq!(take(&[&endless]), Err(CgiFault::TooLarge));
        assert_eq!(every_way(b"A: b\n"), Ok(None), "incomplete");
    }
}
