//! A port in the clear before a server with TLS, so that what speaks no TLS can be let loose on one.
//!
//! `tls_relay ADDRESS:PORT --ca FILE [--alpn PROTOCOL]`
//!
//! It prints the address it listens on and relays until it is killed. The server must be `localhost` by a certificate of
//! `--ca`. Each side's end is told to the other one as an end, while the other way stays open:
//!
//! ```text
//! client ── bytes ──► relay ── records ──────► server
//!        ── FIN ────►       ── close_notify ─►
//!        ◄─ FIN ─────       ◄─ close_notify ──
//!        ◄─ reset ───       ◄─ FIN without close_notify: somebody may have cut the answer
//! ```
//! It is no proxy: one connection behind each one before it, and nothing is looked at.

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

/// Read at a time: what a record has at most.
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
        // What becomes of one connection is the two ends' business; they see it.
        thread::spawn(move || join(near, target, config));
    }
    Ok(())
}

/// Relays one connection until both ways have ended.
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

/// From the client to the server. All records are sent here: the server never asks for one in return.
fn outward(mut near: &TcpStream, mut far: &TcpStream, session: &Mutex<ClientConnection>) -> io::Result<()> {
    let mut piece = [0; PIECE_BYTES];
    let mut records = Vec::new();
    loop {
        let count = near.read(&mut piece)?;
        {
            // Not held while the socket waits: the other way must go on meanwhile.
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
    // The handshake may have brought some along.
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

/// Ends both without a farewell: the client's connection by a reset, once both directions have let go of it.
fn end(near: &TcpStream, far: &TcpStream) {
    // Either may be gone already, which is as well.
    let _gone = sockopt::set_socket_linger(near, Some(Duration::ZERO));
    let _gone = near.shutdown(Shutdown::Read);
    let _gone = far.shutdown(Shutdown::Both);
}

/// A session is whole wherever a thread could panic.
fn lock(session: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
