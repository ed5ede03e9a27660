//! TLS in the kernel: what is sent on a stream is plaintext, and the kernel makes records of it (kTLS, Linux
//! Documentation/networking/tls.rst).
//!
//! ```text
//!  support() ── once: which versions and ciphers, tried out on a connection to itself
//!  Op::Layer ─► TCP_ULP ─► nothing has changed ─► Op::Encrypt ─► TLS_TX ─► Op::Send: plaintext, files by sendfile(2)
//! ```
//! The handshake is not the kernel's, and what is received stays as it arrives. Kernels before 6.14 cannot change keys
//! that they have been given, so nobody asks them to.

use std::sync::OnceLock;

/// A version of TLS that kernels know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// A cipher that kernels know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// AES with a key of 128 bits, in Galois/counter mode.
    Aes128Gcm,
    /// AES with a key of 256 bits, in Galois/counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    Chacha20Poly1305,
}

impl Version {
    const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];
}

impl Cipher {
    const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// Bytes of its key.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }
}

/// With what the kernel encrypts, from the next record on.
pub struct SendKeys {
    /// The version that was agreed upon.
    pub version: Version,
    /// The cipher that was agreed upon.
    pub cipher: Cipher,
    /// The key, of which the first [`Cipher::key_bytes`] count.
    pub key: [u8; 32],
    /// What nonces are made of. With TLS 1.2 and GCM the last eight bytes are the explicit part of the first one, which
    /// the kernel counts up: whoever has sealed records with that key must be sure that it never gets to one of theirs.
    pub iv: [u8; 12],
    /// Records that have been sent with that key.
    pub sequence: u64,
}

impl Drop for SendKeys {
    fn drop(&mut self) {
        self.key.fill(0);
        // So that it is not left out as without effect.
        std::hint::black_box(&self.key);
    }
}

/// What the kernel can encrypt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Support(u8);

impl Support {
    const fn bit(version: Version, cipher: Cipher) -> u8 {
        1 << (version as u8 * 3 + cipher as u8)
    }

    /// Whether it can with these.
    pub const fn has(self, version: Version, cipher: Cipher) -> bool {
        self.0 & Self::bit(version, cipher) != 0
    }

    /// Whether it cannot at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What this kernel can encrypt with: found out by trying when it is first asked, and that stays.
pub fn support() -> Support {
    static FOUND: OnceLock<Support> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found = Support::default();
        for version in Version::ALL {
            for cipher in Cipher::ALL {
                if system::works(version, cipher) {
                    found.0 |= Support::bit(version, cipher);
                }
            }
        }
        found
    })
}

#[cfg(unix)]
pub(crate) use system::{encrypt, layer, send_alert};

#[cfg(target_os = "linux")]
mod system {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::fd::{AsFd, BorrowedFd};
    use rustix::io::Errno;
    use rustix::net::{self as sys, Shutdown};

    use super::{Cipher, SendKeys, Version};

    /// The content type of an alert (RFC 8446 §5.1).
    const ALERT: u8 = 21;

    /// Whether the kernel takes such keys, of a connection to itself.
    pub(super) fn works(version: Version, cipher: Cipher) -> bool {
        let attempt = || -> std::io::Result<()> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let stream = TcpStream::connect(listener.local_addr()?)?;
            layer(stream.as_fd())?;
            let keys = SendKeys { version, cipher, key: [1; 32], iv: [2; 12], sequence: 0 };
            Ok(encrypt(stream.as_fd(), &keys)?)
        };
        attempt().is_ok()
    }

    /// Has the kernel ready to encrypt what is sent. It must be connected, both ways.
    pub(crate) fn layer(stream: BorrowedFd<'_>) -> rustix::io::Result<()> {
        set(stream, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
    }

    /// Has the kernel encrypt what is sent from here on. If it does not, nothing is sent any more: who has asked for it
    /// will send plaintext.
    pub(crate) fn encrypt(stream: BorrowedFd<'_>, keys: &SendKeys) -> rustix::io::Result<()> {
        // struct tls12_crypto_info_…: version and cipher; nonce, key, salt and sequence number (linux/tls.h).
        let (version, cipher, salt_bytes): (u16, u16, usize) = match (keys.version, keys.cipher) {
            (version, Cipher::Aes128Gcm) => (number(version), 51, 4),
            (version, Cipher::Aes256Gcm) => (number(version), 52, 4),
            (version, Cipher::Chacha20Poly1305) => (number(version), 54, 0),
        };
        let (salt, iv) = keys.iv.split_at(salt_bytes);
        let mut info = [0; 56];
        let mut len = 0;
        for part in [
            &version.to_ne_bytes()[..],
            &cipher.to_ne_bytes(),
            iv,
            &keys.key[..keys.cipher.key_bytes()],
            salt,
            &keys.sequence.to_be_bytes(),
        ] {
            info[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        let result = set(stream, libc::SOL_TLS, libc::TLS_TX, &info[..len]);
        info.fill(0);
        std::hint::black_box(&info);
        if result.is_err() {
            let _gone_already = sys::shutdown(stream, Shutdown::Both);
        }
        result
    }

    const fn number(version: Version) -> u16 {
        match version {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        }
    }

    /// Sends an alert.
    ///
    /// The kernel may have taken plaintext whose records wait in it for room in TCP. They would be lost by a shutdown,
    /// which TCP is told at once, and by a close. Where the socket is writable, there is room for what waits, and a
    /// record that is sent goes behind it: so it is waited for, and nothing is left then.
    pub(crate) fn send_alert(stream: BorrowedFd<'_>, alert: [u8; 2]) -> rustix::io::Result<()> {
        let mut ready = [PollFd::new(&stream, PollFlags::OUT)];
        if rustix::event::poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Err(Errno::AGAIN);
        }
        /// A control message with one byte (cmsg(3)); its size is CMSG_SPACE(1), and CMSG_LEN(1) is without the padding.
        #[repr(C)]
        struct Control {
            header: libc::cmsghdr,
            kind: u8,
        }
        let part = libc::iovec { iov_base: alert.as_ptr().cast_mut().cast(), iov_len: alert.len() };
        // SAFETY: both are plain data of the kernel's, for which all zeros are a value.
        // WHY: their padding differs among C libraries, and has no name that all of them know.
        let (mut control, mut message) =
            unsafe { (std::mem::zeroed::<Control>(), std::mem::zeroed::<libc::msghdr>()) };
        control.header.cmsg_level = libc::SOL_TLS;
        control.header.cmsg_type = libc::TLS_SET_RECORD_TYPE;
        control.header.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
        control.kind = ALERT;
        message.msg_iov = (&raw const part).cast_mut();
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        // SAFETY: the message names one part and one control message, with their lengths; both live until the call
        // returns, and the kernel only reads them. The descriptor is open while borrowed.
        // WHY: rustix has no such control message.
        let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }

    fn set(
        stream: BorrowedFd<'_>,
        level: libc::c_int,
        name: libc::c_int,
        value: &[u8],
    ) -> rustix::io::Result<()> {
        // SAFETY: the kernel reads `value.len()` bytes from where `value` begins; the descriptor is open while borrowed.
        // WHY: rustix has no wrapper for these options.
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn last_errno() -> Errno {
        Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
    }
}

/// Other kernels do no such thing here.
#[cfg(all(unix, not(target_os = "linux")))]
mod system {
    use rustix::fd::BorrowedFd;
    use rustix::io::Errno;

    use super::{Cipher, SendKeys, Version};

    pub(super) fn works(_: Version, _: Cipher) -> bool {
        false
    }

    pub(crate) fn layer(_: BorrowedFd<'_>) -> rustix::io::Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    pub(crate) fn encrypt(_: BorrowedFd<'_>, _: &SendKeys) -> rustix::io::Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    pub(crate) fn send_alert(_: BorrowedFd<'_>, _: [u8; 2]) -> rustix::io::Result<()> {
        Err(Errno::OPNOTSUPP)
    }
}

#[cfg(not(unix))]
mod system {
    use super::{Cipher, Version};

    pub(super) fn works(_: Version, _: Cipher) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_version_and_cipher_has_a_bit_of_its_own() {
        let mut seen = 0;
        for version in Version::ALL {
            for cipher in Cipher::ALL {
                let bit = Support::bit(version, cipher);
                assert_eq!((bit.count_ones(), seen & bit), (1, 0), "{version:?} {cipher:?}");
                seen |= bit;
                assert!(Support(bit).has(version, cipher) && !Support(!bit).has(version, cipher));
            }
        }
        assert!(Support::default().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_stream_that_cannot_be_encrypted_sends_nothing_in_the_clear() {
        use std::io::{Read as _, Write as _};
        use std::net::{Ipv4Addr, TcpListener, TcpStream};
        use std::os::fd::AsFd as _;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut far, _) = listener.accept().expect("connected");
        near.write_all(b"before").expect("open");
        // Without the layer no kernel takes keys.
        let keys = SendKeys {
            version: Version::Tls13,
            cipher: Cipher::Aes128Gcm,
            key: [1; 32],
            iv: [2; 12],
            sequence: 0,
        };
        encrypt(near.as_fd(), &keys).expect_err("there is no layer");
        near.write_all(b"secret").expect_err("shut down");
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).expect("an orderly end");
        assert_eq!(heard, b"before");
    }
}
