//! Checks whether an application responds: one request on a connection of its own. Blocks, for a thread of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use encke_wire::fastcgi;

use crate::settings::AppProtocol;

/// Bytes of a status line up to the status: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// Whether an application responds, each step within `patience`. `page`: the path that must exist; without it, any response will do.
pub(crate) fn responds(
    address: SocketAddr,
    patience: Duration,
    protocol: AppProtocol,
    page: Option<&str>,
) -> bool {
    let Ok(stream) = connect(address, patience) else { return false };
    match protocol {
        AppProtocol::Http => status(stream, page.unwrap_or("/"))
            .is_ok_and(|status| page.is_none() || (200..400).contains(&status)),
        AppProtocol::FastCgi => reports_values(stream).unwrap_or(false),
    }
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    // The system rejects a time of zero.
    let patience = patience.max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// The status of a page.
fn status(mut stream: TcpStream, page: &str) -> io::Result<u16> {
    let request = format!(
        "GET {page} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: encke (check)\r\nConnection: \
         close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut head = [0; STATUS_BYTES];
    stream.read_exact(&mut head)?;
    let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| std::str::from_utf8(rest.get(2..)?).ok());
    status.and_then(|status| status.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether the application responds to a query for its limits (FastCGI §4.1).
fn reports_values(mut stream: TcpStream) -> io::Result<bool> {
    let mut query = Vec::new();
    fastcgi::put_query(&mut query);
    stream.write_all(&query)?;
    let mut head = [0; fastcgi::HEAD_BYTES];
    stream.read_exact(&mut head)?;
    Ok(fastcgi::is_result(&head))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The result of a check of an application that sends this response.
    fn check(response: &'static [u8], protocol: AppProtocol, page: Option<&str>) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("the check connects");
                let mut buffer = [0; 512];
                let read = stream.read(&mut buffer).expect("the check asks");
                assert!(read > 0);
                stream.write_all(response).expect("the check reads");
            });
            responds(address, PATIENCE, protocol, page)
        })
    }

    #[test]
    fn any_response_will_do_without_a_page_and_a_page_must_exist() {
        for (response, any, page) in [
            (&b"HTTP/1.1 200 OK\r\n\r\n"[..], true, true),
            (b"HTTP/1.0 302 Found\r\n\r\n", true, true),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", true, false),
            (b"HTTP/1.1 500 Oops\r\n\r\n", true, false),
            (b"HTTP/1.1", false, false),
            (b"", false, false),
            (b"SSH-2.0-OpenSSH_9.2p1\r\n", false, false),
        ] {
            assert_eq!(check(response, AppProtocol::Http, None), any, "{response:?}");
            assert_eq!(check(response, AppProtocol::Http, Some("/health")), page, "{response:?}");
        }
    }

    #[test]
    fn an_application_of_fastcgi_reports_its_limits() {
        assert!(check(b"\x01\x0a\0\0\0\0\0\0", AppProtocol::FastCgi, None));
        assert!(!check(b"\x01\x0b\0\0\0\0\0\0", AppProtocol::FastCgi, None));
        assert!(!check(b"HTTP/1.1 400 Bad Request\r\n\r\n", AppProtocol::FastCgi, None));
    }

    #[test]
    fn an_address_without_a_listener_does_not_respond() {
        // A service of 1988 (RFC 1078), on a port that no test gets from the system.
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(!responds(address, PATIENCE, AppProtocol::Http, None));
        assert!(!responds(address, PATIENCE, AppProtocol::FastCgi, None));
    }
}
