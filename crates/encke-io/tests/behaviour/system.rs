//! Options of the peers' sockets that the standard library does not set.

#[cfg(unix)]
pub use unix::{connect, reset_on_close, was_reset};
#[cfg(windows)]
pub use windows::{connect, reset_on_close, was_reset};

#[cfg(unix)]
mod unix {
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketType, sockopt};

    /// Connects with a receive buffer of about `window` bytes.
    pub fn connect(address: &SocketAddr, window: Option<usize>) -> TcpStream {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        if let Some(window) = window {
            sockopt::set_socket_recv_buffer_size(&socket, window).expect("a buffer of that size");
        }
        rustix::net::connect(&socket, address).expect("a listener");
        TcpStream::from(socket)
    }

    /// Whether the end of the stream that a read has reported was a reset: the read has reported it itself.
    pub fn was_reset(_: &TcpStream) -> bool {
        false
    }

    /// Makes a close send a reset.
    pub fn reset_on_close(stream: &TcpStream) {
        sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("a socket");
    }
}

#[cfg(windows)]
#[allow(unsafe_code, reason = "the standard library sets neither option")]
mod windows {
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream};
    use std::os::windows::io::{AsRawSocket, FromRawSocket};

    use windows_sys::Win32::Networking::WinSock as ws;

    fn set_option<T>(stream: &TcpStream, option: i32, value: &T) {
        let socket = stream.as_raw_socket() as ws::SOCKET;
        let pointer = std::ptr::from_ref(value).cast();
        // SAFETY: pointer and length belong to `value`.
        let result =
            unsafe { ws::setsockopt(socket, ws::SOL_SOCKET, option, pointer, size_of::<T>() as i32) };
        assert_eq!(result, 0, "a socket has option {option}");
    }

    /// Connects with a receive buffer of about `window` bytes.
    pub fn connect(address: &SocketAddr, window: Option<usize>) -> TcpStream {
        let Some(window) = window else { return TcpStream::connect(address).expect("a listener") };
        // SAFETY: the call takes no pointers but a null one.
        let socket = unsafe {
            ws::WSASocketW(
                ws::AF_INET.into(),
                ws::SOCK_STREAM,
                0,
                std::ptr::null(),
                0,
                ws::WSA_FLAG_OVERLAPPED,
            )
        };
        assert_ne!(socket, ws::INVALID_SOCKET, "a socket");
        // SAFETY: the socket was created above, and nothing else knows of it.
        let stream = unsafe { TcpStream::from_raw_socket(socket as _) };
        set_option(&stream, ws::SO_RCVBUF, &(window as i32));
        let SocketAddr::V4(v4) = address else { panic!("listeners of the stage have addresses of IPv4") };
        let name = ws::SOCKADDR_IN {
            sin_family: ws::AF_INET,
            sin_port: v4.port().to_be(),
            sin_addr: ws::IN_ADDR { S_un: ws::IN_ADDR_0 { S_addr: u32::from_ne_bytes(v4.ip().octets()) } },
            sin_zero: [0; 8],
        };
        // SAFETY: pointer and length belong to `name`.
        let result =
            unsafe { ws::connect(socket, (&raw const name).cast(), size_of::<ws::SOCKADDR_IN>() as i32) };
        assert_eq!(result, 0, "a listener");
        stream
    }

    /// Whether the end of the stream that a read has reported was a reset. Windows reports it by the read, wine 8 by the next
    /// write only. So this sends a byte.
    pub fn was_reset(mut stream: &TcpStream) -> bool {
        stream.write(b"?").is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
    }

    /// Makes a close send a reset.
    pub fn reset_on_close(stream: &TcpStream) {
        set_option(stream, ws::SO_LINGER, &ws::LINGER { l_onoff: 1, l_linger: 0 });
    }
}
