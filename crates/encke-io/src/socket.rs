//! Sockets that no reactor owns yet: listeners, streams to connect, and descriptors to watch.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::sys::net::{self, Handle};

pub use crate::sys::net::{HAS_UNIX_SOCKETS, LocalStream};

/// An address to listen on or connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix domain socket, by path.
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Options of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Maximum number of connections that wait to be accepted (listen(2)). The system silently caps it at net.core.somaxconn,
    /// see [`crate::host::backlog_limit`].
    pub backlog: u32,
    /// Whether several listeners share the address, with the kernel distributing connections among them (SO_REUSEPORT). No
    /// effect unless [`Listener::SHARES_ADDRESS`].
    pub shared: bool,
    /// Permission bits of a Unix socket's file.
    pub mode: Option<u32>,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) handle: Handle,
    pub(crate) address: Address,
}

/// A stream socket that no reactor owns yet.
#[derive(Debug)]
pub struct Stream {
    pub(crate) handle: Handle,
}

/// A descriptor whose readability is reported.
#[derive(Debug)]
pub struct Watched {
    pub(crate) handle: Handle,
}

impl Listener {
    /// Whether this system supports [`ListenOptions::shared`]. Where it does not, workers use handles of one listener
    /// ([`Listener::duplicate`]).
    pub const SHARES_ADDRESS: bool = net::SHARES_ADDRESS;

    /// Binds and listens.
    ///
    /// Removes the stale file of a Unix socket without a listener. A live socket at the path is an error.
    ///
    /// # Errors
    /// The system's reason: the port is in use, not permitted, or the address does not belong to this machine.
    pub fn bind(address: &Address, options: ListenOptions) -> io::Result<Self> {
        let (handle, address) = net::listen(address, options)?;
        Ok(Self { handle, address })
    }

    /// Lets listeners with [`ListenOptions::shared`] bind the address of this one, which was bound without it. No effect unless
    /// [`Listener::SHARES_ADDRESS`].
    ///
    /// # Errors
    /// The system's reason.
    pub fn share_address(&self) -> io::Result<()> {
        net::share_address(net::borrowed(&self.handle)).map_err(io::Error::from)
    }

    /// Another handle to the same queue, for the next worker, where the address cannot be bound twice.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()?, address: self.address.clone() })
    }

    /// The bound address, with the port that the system chose if port 0 was requested.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A listener of the simulator.
    pub(crate) fn simulated(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { handle: net::placeholder()?, address: Address::Inet(address) })
    }
}

impl Stream {
    /// Adopts a connected stream socket.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn connected(handle: Handle) -> io::Result<Self> {
        net::make_nonblocking(net::borrowed(&handle))?;
        Ok(Self { handle })
    }

    /// A stream of the simulator.
    pub(crate) fn simulated() -> io::Result<Self> {
        Ok(Self { handle: net::placeholder()? })
    }
}

impl Watched {
    /// Adopts a descriptor that poll(2) supports; on Windows a socket.
    pub fn new(handle: Handle) -> Self {
        Self { handle }
    }
}

/// Creates a stream socket for [`crate::Op::Connect`] to `peer`, bound to `source` if given. With port 0 the system picks any
/// port that gives a unique connection. Nagle's algorithm stays enabled until the first send that it could delay.
///
/// # Errors
/// Out of descriptors, or `source` does not belong to this machine.
pub fn unconnected(peer: &SocketAddr, source: Option<SocketAddr>) -> io::Result<Stream> {
    Ok(Stream { handle: net::unconnected(peer, source)? })
}

/// Creates a stream connected to the Unix socket at `path`. The connection is established without waiting.
///
/// # Errors
/// Out of descriptors, no listener at `path`, or its queue is full (`WouldBlock`, connect(2) under EAGAIN). On Windows always:
/// Unix sockets are not supported there.
pub fn connected_local(path: &Path) -> io::Result<Stream> {
    Ok(Stream { handle: net::connected_local(path)? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::offload::Pool;
    use crate::op::{Event, Op, Segment, Send, Token};
    use crate::reactor::{Reactor, ReactorSource};

    /// Takes turns until an event of the connection satisfies `wanted`.
    fn until(reactor: &mut impl Reactor, wanted: impl Fn(&Event<'_>) -> bool) {
        loop {
            reactor.wait(None).expect("the system waits");
            while let Some(event) = reactor.next() {
                assert!(!matches!(event, Event::Failed { .. }), "it failed");
                if wanted(&event) {
                    return;
                }
            }
        }
    }

    /// Whether Nagle's algorithm is off after each send of a new connection. A send is a number of bytes and its `more` flag.
    fn is_off<R: Reactor>(mut reactor: R, sends: &[(usize, bool)]) -> Vec<bool> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = unconnected(&address, None).expect("a socket");
        let eye = stream.handle.try_clone().expect("a descriptor");
        let token: Token = reactor.adopt(ReactorSource::Stream(stream)).expect("room for a source");
        reactor.submit(token, Op::Connect(address));
        until(&mut reactor, |event| matches!(event, Event::Connected { .. }));
        let sends = sends.iter().map(|(len, more)| {
            let segments = vec![Segment::Bytes(vec![b'x'; *len])];
            reactor.submit(token, Op::Send(Send { segments, more: *more }));
            until(&mut reactor, |event| matches!(event, Event::Sent { .. }));
            rustix::net::sockopt::tcp_nodelay(&eye).expect("a TCP socket")
        });
        sends.collect()
    }

    #[test]
    fn nagles_algorithm_is_off_before_it_could_hold_anything_back() {
        for (sends, off) in [
            (&[(1, false)][..], &[false][..]),
            (&[(536, false), (1, false), (1, false)], &[false, true, true]),
            (&[(537, false), (1, false)], &[true, true]),
            (&[(1, true), (1, false)], &[true, true]),
        ] {
            let pool = Pool::start(1, 1).expect("room for a thread");
            assert_eq!(is_off(crate::PollReactor::new(pool.clone()).expect("poll"), sends), off);
            assert_eq!(is_off(crate::EpollLevelReactor::new(pool.clone()).expect("epoll"), sends), off);
            assert_eq!(is_off(crate::EpollEdgeReactor::new(pool.clone()).expect("epoll"), sends), off);
            assert_eq!(is_off(crate::UringReactor::new(pool.clone()).expect("io_uring"), sends), off);
            pool.close();
        }
    }

    #[test]
    fn an_address_is_shared_only_after_its_first_listener_allows_it() {
        use std::io::Read as _;
        use std::net::TcpStream;

        let any_port = Address::Inet("127.0.0.1:0".parse().expect("an address"));
        let options = ListenOptions { backlog: 128, shared: false, mode: None };
        let first = Listener::bind(&any_port, options).expect("a free port");
        let address = first.address().clone();
        let options = ListenOptions { shared: true, ..options };
        let refused = Listener::bind(&address, options).expect_err("the first is alone");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        first.share_address().expect("allowed");
        let second = Listener::bind(&address, options).expect("shared");
        let Address::Inet(inet) = address else { unreachable!("it was one") };
        // The kernel chooses by a hash of both addresses: each way of 32 connections to one listener alone is one in 2^31.
        let clients: Vec<TcpStream> =
            (0..32).map(|_| TcpStream::connect(inet).expect("a listener")).collect();
        let (mut one, mut other) = (0, 0);
        while one + other < clients.len() {
            one += accept_all(&first);
            other += accept_all(&second);
        }
        assert!(one > 0 && other > 0, "{one} and {other}");
        for mut client in clients {
            assert_eq!(client.read(&mut [0]).expect("closed"), 0);
        }
    }

    /// Accepts and closes the connections that wait at a listener.
    fn accept_all(listener: &Listener) -> usize {
        std::iter::from_fn(|| net::accept(net::borrowed(&listener.handle)).ok()).count()
    }
}
