//! Facts about a connection that the kernel keeps anyway: its local address, its bytes, and its last activity.
//!
//! Each call makes system calls, so it is for the few connections that an operator looks at.

use crate::socket::Address;
use crate::sys::net::{self, HandleRef};

/// Facts about a connected stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamFacts {
    /// The address at which the connection was accepted.
    pub local: Option<Address>,
    /// Facts about TCP; `None` for other streams, and if the system does not report them.
    pub tcp: Option<TcpFacts>,
}

/// Facts about a TCP connection (TCP_INFO, tcp(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFacts {
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Bytes that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Time since data was last sent, in ms. A peer whose window is closed is sent none.
    pub since_sent_ms: u32,
    /// Time since data was last received, in ms.
    pub since_received_ms: u32,
    /// The smoothed round-trip time, in µs.
    pub round_trip_us: u32,
}

/// Returns the facts about a stream.
pub(crate) fn stream_facts(stream: HandleRef<'_>) -> StreamFacts {
    StreamFacts { local: net::local_address(stream), tcp: net::tcp_facts(stream) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernel_counts_what_both_sides_have_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        client.write_all(&[1; 3_000]).expect("room");
        server.read_exact(&mut [0; 3_000]).expect("3,000 bytes");
        server.write_all(&[2; 70_000]).expect("room");
        client.read_exact(&mut [0; 70_000]).expect("70,000 bytes");
        // The client's next bytes carry its acknowledgement of all that it has read.
        client.write_all(b"!").expect("room");
        server.read_exact(&mut [0]).expect("a byte");
        let facts = stream_facts(server.as_fd());
        assert_eq!(facts.local, Some(Address::Inet(address)));
        let tcp = facts.tcp.expect("Linux reports them");
        assert_eq!((tcp.received_bytes, tcp.acknowledged_bytes), (3_001, 70_000));
        assert!(tcp.since_received_ms < 60_000 && tcp.since_sent_ms < 60_000, "{tcp:?}");
        assert!(tcp.round_trip_us < 1_000_000, "{tcp:?}");
    }

    #[test]
    fn a_unix_socket_has_no_facts_of_tcp() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(stream_facts(one.as_fd()).tcp, None);
    }
}
