//! Status codes (RFC 9110 §15): their reason phrases, and the responses that have no content.
//!
//! A status is a plain `u16` between 100 and 999, because handlers may send codes that are not listed here.

/// The reason phrase of a registered status; empty for any other (the phrase is optional, RFC 9112 §4).
#[must_use]
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// Whether a response with this status never has content (RFC 9112 §6.3 item 1): 1xx, 204 and 304. Such a response has neither
/// `Content-Length` nor `Transfer-Encoding`. (A 304 may have the `Content-Length` of the corresponding 200.)
#[inline]
#[must_use]
pub const fn has_no_content(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_plain_text_that_fits_a_status_line() {
        for status in 0..=999 {
            assert!(reason(status).bytes().all(|byte| byte.is_ascii_alphabetic() || b" -".contains(&byte)));
        }
        assert_eq!(reason(404), "Not Found");
        assert_eq!(reason(299), "");
    }

    #[test]
    fn interim_empty_and_not_modified_answers_have_no_content() {
        let empty: Vec<u16> = (100..600).filter(|&status| has_no_content(status)).collect();
        assert_eq!(empty, (100..200).chain([204, 304]).collect::<Vec<u16>>());
    }
}
