//! An application that decides: each connection is served by a function of the test.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test program uses its part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A time that no step takes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An application: each connection is served by the given function, on a thread of its own.
pub struct App {
    pub address: SocketAddr,
    /// The heads of the requests, with the number of the connection, in order of arrival.
    pub heads: Receiver<(usize, String)>,
}

/// A request, as an application sees it.
pub struct Call {
    pub stream: BufReader<TcpStream>,
    /// Number of the connection, and of the request on it.
    pub place: (usize, usize),
}

impl App {
    /// `serve` returns whether the connection stays open.
    pub fn start(serve: impl Fn(&mut Call) -> bool + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, heads) = channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (serve, sender) = (serve.clone(), sender.clone());
                let stream = stream.expect("a connection");
                stream.set_nodelay(true).expect("TCP");
                let mut call = Call { stream: BufReader::new(stream), place: (number, 0) };
                thread::spawn(move || {
                    while call.next(&sender) && serve(&mut call) {
                        call.place.1 += 1;
                    }
                });
            }
        });
        Self { address, heads }
    }

    pub fn url(&self) -> String {
        format!("http://{}/may?x=1", self.address)
    }

    pub fn head(&self) -> (usize, String) {
        self.heads.recv_timeout(PATIENCE).expect("a request arrives")
    }

    /// The numbers of the connections of all requests so far.
    pub fn connections(&self) -> Vec<usize> {
        self.heads.try_iter().map(|(number, _)| number).collect()
    }
}

impl Call {
    pub fn next(&mut self, heads: &Sender<(usize, String)>) -> bool {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(self.stream.read_line(&mut head), Ok(count) if count > 0) {
                return false;
            }
        }
        heads.send((self.place.0, head)).is_ok()
    }

    pub fn send(&mut self, bytes: &str) -> bool {
        self.stream.get_mut().write_all(bytes.as_bytes()).is_ok()
    }
}
