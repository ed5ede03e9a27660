//! The requests for the parsers: the shortest one of a load generator, ApacheBench's, a browser's, and one with many cookies.

/// The name and text of each request; the name tells its size.
pub(super) fn all() -> [(&'static str, Vec<u8>); 4] {
    [
        ("35 B", SHORTEST.to_vec()),
        ("106 B", AB.to_vec()),
        ("703 B", BROWSER.to_vec()),
        ("4 KB of cookies", jar()),
    ]
}

/// Sent by `htstress`.
const SHORTEST: &[u8] = b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";

/// Sent by `ab -k`.
const AB: &[u8] = b"GET /index.html HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: localhost\r\n\
    User-Agent: ApacheBench/2.3\r\nA: */*\r\n\r\n";

/// The request of picohttpparser's own benchmark.
pub(super) const BROWSER: &[u8] = b"GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg HTTP/1.1\r\n\
Host: www.kittyhell.com\r\n\
User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) Gecko/20100401 Firefox/3.6.3 Pathtraq/0.9\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
Accept-Encoding: gzip,deflate\r\n\
Accept-Charset: Shift_JIS,utf-8;q=0.7,*;q=0.7\r\n\
Keep-Alive: 115\r\n\
Connection: keep-alive\r\n\
Cookie: wp_ozh_wsa_visits=2; wp_ozh_wsa_visit_lasttime=xxxxxxxxxx; __utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; __utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.livedoor.com|utmcct=/reader/|utmcmd=referral\r\n\r\n";

/// A browser's request to a site that has set cookies for years.
fn jar() -> Vec<u8> {
    let mut request = b"GET /account HTTP/1.1\r\nHost: www.example.com\r\nAccept: */*\r\nCookie: ".to_vec();
    for number in 0.. {
        let cookie = format!("c{number}=0123456789abcdef0123456789abcdef0123456789abcdef; ");
        if request.len() + cookie.len() + END.len() > JAR_BYTES {
            break;
        }
        request.extend_from_slice(cookie.as_bytes());
    }
    // The last value fills the request up to its size.
    request.extend_from_slice(b"z=");
    request.resize(JAR_BYTES - END.len(), b'z');
    request.extend_from_slice(END);
    request
}

const JAR_BYTES: usize = 4096;
const END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_sizes_that_they_are_called_by() {
        assert_eq!(all().map(|(_, text)| text.len()), [35, 106, 703, 4096]);
    }
}
