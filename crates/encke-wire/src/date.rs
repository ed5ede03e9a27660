//! HTTP dates (RFC 9110 §5.6.7): written as IMF-fixdate, read in all three standard formats.
//!
//! Times are whole seconds since 1970-01-01 00:00 UTC. No function here reads a clock.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

/// Length of `Sun, 06 Nov 1994 08:49:37 GMT` in bytes.
pub const DATE_BYTES: usize = 29;

/// Formats `unix`, in seconds since 1970, as IMF-fixdate. Times after the year 9998 become its last second.
#[must_use]
pub fn imf_fixdate(unix: u64) -> [u8; DATE_BYTES] {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(UNIX_MAX));
    let mut text = [b' '; DATE_BYTES];
    write!(&mut text[..], "{}", httpdate::HttpDate::from(time)).expect("an IMF-fixdate has 29 bytes");
    text
}

/// Parses IMF-fixdate, RFC 850 or asctime format into seconds since 1970. `None` if the text is invalid, or before 1970.
///
/// ```
/// use encke_wire::date::{imf_fixdate, parse_date};
///
/// assert_eq!(parse_date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
/// assert_eq!(&imf_fixdate(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
#[must_use]
pub fn parse_date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// 9998-12-31 23:59:59 UTC.
const UNIX_MAX: u64 = 253_370_764_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_imf_fixdate() {
        assert_eq!(&imf_fixdate(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&imf_fixdate(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&imf_fixdate(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&imf_fixdate(UNIX_MAX), b"Thu, 31 Dec 9998 23:59:59 GMT");
        assert_eq!(imf_fixdate(u64::MAX), imf_fixdate(UNIX_MAX));
    }

    #[test]
    fn all_three_formats_are_read() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(parse_date(b"Tue Nov 14 22:13:20 2023"), Some(1_700_000_000));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            &b""[..],
            b"yesterday",
            b"Sun, 06 Nov 1994 08:49:37 PST",
            b"Sun, 06 Nov 1994 25:49:37 GMT",
            b"Sun, 31 Feb 1994 08:49:37 GMT",
            b"1994-11-06T08:49:37Z",
            b"\xff\xfe",
            b"784111777",
            b"Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_date(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let days = (0..=UNIX_MAX).step_by(86_399 * 37);
        for unix in days.chain([UNIX_MAX]) {
            assert_eq!(parse_date(&imf_fixdate(unix)), Some(unix));
        }
    }
}
