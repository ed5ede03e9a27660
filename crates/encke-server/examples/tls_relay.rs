//! A plaintext port in front of a TLS server, so that test clients without TLS can be used on it.
//!
//! `tls_relay ADDRESS:PORT --ca FILE [--alpn PROTOCOL]`
//!
//! The relay prints the address it listens on, and runs until it is killed. The server must present a certificate for
//! `localhost`, signed by `--ca`. The end of one side is forwarded to the other, while the opposite direction stays open:
//!
//! ```text
//! client ── bytes ──► relay ── records ──────► server
//!        ── FIN ────►       ── close_notify ─►
//!        ◄─ FIN ─────       ◄─ close_notify ──
//!        ◄─ reset ───       ◄─ FIN without close_notify: somebody may have cut the answer
//! ```
//! The relay is no proxy: each connection has exactly one connection to the server, and its content is not examined.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Size of one read: the maximum of a record.
const PIECE_BYTES: usize = 16 * 1024;

fn main() -> ExitCode {
    match relay() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tls_relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn relay() -> Result<(), Box<dyn std::error::Error>> {
    let mut target = None;
    let mut roots = RootCertStore::empty();
    let mut alpn = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--ca" => roots.add(CertificateDer::from_pem_file(value()?)?)?,
            "--alpn" => alpn.push(value()?.into_bytes()),
            _ if target.is_none() => target = Some(argument.parse::<SocketAddr>()?),
            _ => return Err(format!("unexpected argument: {argument}").into()),
        }
    }
    let target = target.ok_or("to where?  tls_relay ADDRESS:PORT --ca FILE")?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn;
    let config = Arc::new(config);

    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for near in listener.incoming() {
        let (near, config) = (near?, Arc::clone(&config));
        // Errors of a connection are visible to its two ends, so they are ignored here.
        thread::spawn(move || join(near, target, config));
    }
    Ok(())
}

/// Relays one connection until both directions have ended.
fn join(near: TcpStream, target: SocketAddr, config: Arc<ClientConfig>) -> io::Result<()> {
    let mut far = TcpStream::connect(target)?;
    for socket in [&near, &far] {
        socket.set_nodelay(true)?;
    }
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut far)?;
    }
    let session = Mutex::new(session);
    thread::scope(|scope| {
        scope.spawn(|| {
            if outward(&near, &far, &session).is_err() {
                end(&near, &far);
            }
        });
        if inward(&far, &near, &session).is_err() {
            end(&near, &far);
        }
    });
    Ok(())
}

/// From the client to the server. All records are sent here: the server never requires one in return.
fn outward(mut near: &TcpStream, mut far: &TcpStream, session: &Mutex<ClientConnection>) -> io::Result<()> {
    let mut piece = [0; PIECE_BYTES];
    let mut records = Vec::new();
    loop {
        let count = near.read(&mut piece)?;
        {
            // Not locked while waiting for the socket: the other direction must continue meanwhile.
            let mut session = lock(session);
            match count {
                0 => session.send_close_notify(),
                _ => session.writer().write_all(&piece[..count])?,
            }
            records.clear();
            while session.wants_write() {
                session.write_tls(&mut records)?;
            }
        }
        far.write_all(&records)?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// From the server to the client.
fn inward(mut far: &TcpStream, mut near: &TcpStream, session: &Mutex<ClientConnection>) -> io::Result<()> {
    let mut piece = [0; PIECE_BYTES];
    let mut plain = Vec::new();
    // The handshake may have received some records already.
    let mut records: &[u8] = &[];
    loop {
        let state = {
            let mut session = lock(session);
            while !records.is_empty() {
                session.read_tls(&mut records)?;
                session.process_new_packets().map_err(io::Error::other)?;
            }
            let state = session.process_new_packets().map_err(io::Error::other)?;
            plain.resize(state.plaintext_bytes_to_read(), 0);
            session.reader().read_exact(&mut plain)?;
            state
        };
        near.write_all(&plain)?;
        if state.peer_has_closed() {
            return near.shutdown(Shutdown::Write);
        }
        let count = far.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        records = &piece[..count];
    }
}

/// Aborts both connections. The client's is reset once both directions have released it.
fn end(near: &TcpStream, far: &TcpStream) {
    // Either connection may have ended already, so errors are ignored.
    let _gone = sockopt::set_socket_linger(near, Some(Duration::ZERO));
    let _gone = near.shutdown(Shutdown::Read);
    let _gone = far.shutdown(Shutdown::Both);
}

/// Locks a session. It is consistent wherever a thread could panic.
fn lock(session: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
