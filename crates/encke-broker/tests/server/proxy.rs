//! A proxy before a nats-server. A test decides which frames of the protocol it changes or drops. This reproduces rare effects of
//! killed servers.
//!
//! ```text
//!  client ── PUB, HPUB ──► filter ──► server
//!  client ◄── filter ◄── MSG, HMSG ── server          all other lines pass unchanged
//! ```

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::Nats;

/// A message between client and server: `PUB subject …`, `HPUB`, `MSG` or `HMSG`.
pub(crate) struct Frame {
    /// The control line without its last word, the size.
    pub(crate) control: String,
    /// Headers, and the payload after them.
    pub(crate) body: Vec<u8>,
}

/// Decides about a frame: whether it passes.
type Filter = dyn FnMut(&mut Frame) -> bool + Send;

/// A running proxy. It ends with the test.
pub(crate) struct Proxy {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy before a server.
    pub(crate) fn start(nats: &Nats, filter: impl FnMut(&mut Frame) -> bool + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = (nats.host.clone(), nats.port);
        let filter: Arc<Mutex<Filter>> = Arc::new(Mutex::new(filter));
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect((&*server.0, server.1))) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("open"), to.try_clone().expect("open"));
                    let filter = Arc::clone(&filter);
                    thread::spawn(move || {
                        let _gone = relay(&from, &to, &filter);
                        let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
            }
        });
        Self { address, ends }
    }

    /// The proxy's URL.
    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _woken = TcpStream::connect(self.address);
    }
}

/// Relays one direction until it ends.
fn relay(from: &TcpStream, mut to: &TcpStream, filter: &Mutex<Filter>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let control = line.trim_end();
        let (Some(("PUB" | "HPUB" | "MSG" | "HMSG", _)), Some((control, size))) =
            (control.split_once(' '), control.rsplit_once(' '))
        else {
            to.write_all(line.as_bytes())?;
            continue;
        };
        let mut body = vec![0; size.parse().map_err(io::Error::other)?];
        from.read_exact(&mut body)?;
        from.read_exact(&mut [0; 2])?;
        let mut frame = Frame { control: control.into(), body };
        if (filter.lock().expect("no panic"))(&mut frame) {
            let mut bytes = format!("{} {}\r\n", frame.control, frame.body.len()).into_bytes();
            bytes.extend_from_slice(&frame.body);
            bytes.extend_from_slice(b"\r\n");
            to.write_all(&bytes)?;
        }
    }
}
