//! A session of which the kernel has the sending half: it makes records of what is sent, and what arrives is opened here.
//!
//! ```text
//!  rustls ─► take_over ─┬─ keys for sending ──► the kernel ([`encke_io::ktls`]): plaintext and files in, records out
//!                       └─ keys for receiving ─► `open`: records in, plaintext out
//! ```
//! rustls gives its keys away only as a whole, and is no session any more then. So receiving goes on here, record by record,
//! with its decrypter. That is all that is left of TLS behind a handshake: data, alerts, and the peer's changes of its key.
//! A peer that asks us to change ours is left: kernels before 6.14 cannot, and no client of HTTP does.

use std::collections::VecDeque;

use encke_io::ktls::{Cipher, SendKeys, Version};
use encke_io::{Fault, Segment};
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    CipherSuite, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite,
};

use super::records::RECORD_BYTES;
use super::{Opened, TlsFault};

/// What may be sent with one key, in plaintext, where each segment counts for a record more than it has bytes: 2^23 full
/// records, half of what AES in Galois/counter mode is good for (RFC 8446 §5.5). The other half is for records that the
/// kernel ends early, when the socket takes no more. Beyond it the connection ends.
pub(super) const KEY_BYTES_MAX: u64 = (RECORD_BYTES as u64) << 23;

/// What a record has besides its plaintext, at most (RFC 5246 §6.2.3).
const EXPANSION_MAX: usize = 2048;

/// Changes of its key that a peer may make: more serve no purpose but to keep us busy.
const KEY_UPDATES_MAX: u32 = 32;

/// An alert: its level, and its description (RFC 8446 §6).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const UNEXPECTED_MESSAGE: [u8; 2] = [2, 10];
const BAD_RECORD_MAC: [u8; 2] = [2, 20];
const RECORD_OVERFLOW: [u8; 2] = [2, 22];
const INTERNAL_ERROR: [u8; 2] = [2, 80];

/// A handshake message that says: I change my key, change yours too or not (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// A session, half of which is the kernel's.
pub(super) struct KernelSession {
    rest: KernelConnection<ServerConnectionData>,
    decrypter: Box<dyn MessageDecrypter>,
    /// Records that have been opened with the current key.
    opened: u64,
    key_updates: u32,
    /// What has been sent, as [`KEY_BYTES_MAX`] counts.
    spent: u64,
    /// The beginning of a record of which the rest has not arrived.
    partial: Vec<u8>,
    /// To be sent before anything else.
    alert: Option<[u8; 2]>,
    ended: bool,
    broken: bool,
}

/// What both sides have agreed upon, if kernels know it.
pub(super) fn agreed(session: &UnbufferedServerConnection) -> Option<(Version, Cipher)> {
    let cipher = match session.negotiated_cipher_suite()?.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Cipher::Chacha20Poly1305,
        _ => return None,
    };
    Some((version(session.protocol_version()?)?, cipher))
}

const fn version(spoken: ProtocolVersion) -> Option<Version> {
    match spoken {
        ProtocolVersion::TLSv1_2 => Some(Version::Tls12),
        ProtocolVersion::TLSv1_3 => Some(Version::Tls13),
        _ => None,
    }
}

impl KernelSession {
    /// Takes the keys out of a session whose handshake is over, and which has nothing to say and nothing half received.
    ///
    /// # Errors
    /// It does not give them away.
    pub(super) fn take_over(
        session: UnbufferedServerConnection,
    ) -> Result<(Box<Self>, Box<SendKeys>), Error> {
        let (secrets, rest) = session.dangerous_into_kernel_connection()?;
        let version = version(rest.protocol_version()).ok_or(Error::HandshakeNotComplete)?;
        let (sequence, sending) = secrets.tx;
        let keys = Box::new(send_keys(version, sequence, &sending)?);
        let (opened, receiving) = secrets.rx;
        let decrypter = decrypter(rest.negotiated_cipher_suite(), receiving)?;
        let session = Self {
            rest,
            decrypter,
            opened,
            key_updates: 0,
            spent: 0,
            partial: Vec::new(),
            alert: None,
            ended: false,
            broken: false,
        };
        Ok((Box::new(session), keys))
    }

    /// Opens what has arrived: plaintext is appended to `plain`.
    pub(super) fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, TlsFault> {
        if self.broken {
            return Ok(Opened::default());
        }
        let ended = self.ended;
        let mut kept = std::mem::take(&mut self.partial);
        let arrived = if kept.is_empty() {
            arrived
        } else {
            kept.extend_from_slice(arrived);
            &mut kept[..]
        };
        let mut at = 0;
        while !self.ended {
            let Some(&[kind, major, minor, high, low]) = arrived[at..].first_chunk() else { break };
            let len = usize::from(u16::from_be_bytes([high, low]));
            if len > RECORD_BYTES + EXPANSION_MAX {
                return self.fail(RECORD_OVERFLOW, TlsFault::Protocol);
            }
            let Some(record) = arrived.get_mut(at + HEADER_BYTES..at + HEADER_BYTES + len) else { break };
            let version = ProtocolVersion::from(u16::from_be_bytes([major, minor]));
            let sealed = InboundOpaqueMessage::new(kind.into(), version, record);
            self.open_record(sealed, plain)?;
            at += HEADER_BYTES + len;
        }
        if !self.ended {
            self.partial = arrived[at..].to_vec();
        }
        Ok(Opened { established: false, ended: self.ended && !ended })
    }

    fn open_record(&mut self, sealed: InboundOpaqueMessage<'_>, plain: &mut Vec<u8>) -> Result<(), TlsFault> {
        // In TLS 1.3 everything behind a handshake is disguised as data; its decrypter does not look at that.
        if self.is_13() && sealed.typ != ContentType::ApplicationData {
            return self.fail(UNEXPECTED_MESSAGE, TlsFault::Protocol);
        }
        let Ok(message) = self.decrypter.decrypt(sealed, self.opened) else {
            return self.fail(BAD_RECORD_MAC, TlsFault::Protocol);
        };
        self.opened += 1;
        match (message.typ, message.payload) {
            (ContentType::ApplicationData, payload) => plain.extend_from_slice(payload),
            (ContentType::Alert, [_, 0]) => self.ended = true,
            (ContentType::Alert, _) => {
                self.broken = true;
                return Err(TlsFault::Refused);
            }
            (ContentType::Handshake, [message @ .., asked]) if self.is_13() && message == KEY_UPDATE => {
                return self.update_key(*asked);
            }
            // Least of all another handshake: TLS 1.2 would allow it to be refused in friendship.
            _ => return self.fail(UNEXPECTED_MESSAGE, TlsFault::Protocol),
        }
        Ok(())
    }

    /// The peer has changed its key, and may want us to change ours.
    fn update_key(&mut self, asked: u8) -> Result<(), TlsFault> {
        self.key_updates += 1;
        if asked != 0 || self.key_updates > KEY_UPDATES_MAX {
            return self.fail(INTERNAL_ERROR, TlsFault::Protocol);
        }
        let suite = self.rest.negotiated_cipher_suite();
        let next =
            self.rest.update_rx_secret().and_then(|(opened, keys)| Ok((opened, decrypter(suite, keys)?)));
        let Ok((opened, decrypter)) = next else { return self.fail(INTERNAL_ERROR, TlsFault::Protocol) };
        (self.opened, self.decrypter) = (opened, decrypter);
        Ok(())
    }

    fn is_13(&self) -> bool {
        self.rest.protocol_version() == ProtocolVersion::TLSv1_3
    }

    fn fail<T>(&mut self, alert: [u8; 2], fault: TlsFault) -> Result<T, TlsFault> {
        self.broken = true;
        self.alert = Some(alert);
        Err(fault)
    }

    /// Whether plaintext may be sent.
    pub(super) const fn may_speak(&self) -> bool {
        !self.broken
    }

    /// Whether it has something to say itself.
    pub(super) const fn has_alert(&self) -> bool {
        self.alert.is_some()
    }

    /// Moves what is to be sent to `out`, as it is: and behind what is the last of it, that it is.
    ///
    /// # Errors
    /// The key is worn out.
    pub(super) fn seal(
        &mut self,
        queue: &mut VecDeque<Segment>,
        last: bool,
        out: &mut Vec<Segment>,
    ) -> Result<(), Fault> {
        out.extend(self.alert.take().map(Segment::Alert));
        if self.broken {
            return Ok(());
        }
        for segment in std::mem::take(queue) {
            self.spent += segment.len() + RECORD_BYTES as u64;
            out.push(segment);
        }
        if self.spent > KEY_BYTES_MAX {
            return Err(Fault::Reset);
        }
        if last {
            out.push(Segment::Alert(CLOSE_NOTIFY));
        }
        Ok(())
    }
}

/// Type, version and length (RFC 8446 §5.1).
const HEADER_BYTES: usize = 5;

fn send_keys(version: Version, sequence: u64, secrets: &ConnectionTrafficSecrets) -> Result<SendKeys, Error> {
    let (cipher, from, nonce) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
        _ => return Err(unknown()),
    };
    let mut key = [0; 32];
    let from = from.as_ref().get(..cipher.key_bytes()).ok_or_else(unknown)?;
    key[..from.len()].copy_from_slice(from);
    let mut iv: [u8; 12] = nonce.as_ref().try_into().map_err(|_| unknown())?;
    if version == Version::Tls12 && cipher != Cipher::Chacha20Poly1305 {
        // rustls has numbered its records with these eight bytes XOR 0, 1, 2 …, and the kernel counts up from them: it
        // would use a nonce a second time. With the highest bit the other way it does not come near.
        iv[4] ^= 0x80;
    }
    Ok(SendKeys { version, cipher, key, iv, sequence })
}

fn decrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, Error> {
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        return Err(unknown());
    };
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, iv.as_ref().get(..fixed).ok_or_else(unknown)?)
        }
    })
}

fn unknown() -> Error {
    Error::General("a cipher that kernels do not know".into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::crypto::aws_lc_rs;
    use rustls::crypto::cipher::{AeadKey, Iv, MessageEncrypter, OutboundChunks, OutboundPlainMessage};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

    use super::super::records::Records;
    use super::*;

    /// A client, the server's half that stays here, and what the kernel would get.
    struct Pair {
        client: ClientConnection,
        session: Box<KernelSession>,
        keys: Box<SendKeys>,
        suite: SupportedCipherSuite,
    }

    /// A handshake with that suite, and some words each way.
    fn pair(suite: SupportedCipherSuite) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("randomness")).expect("made");
        let params = CertificateParams::new(vec!["localhost".into()]).expect("names");
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");

        let provider = Arc::new(rustls::crypto::CryptoProvider {
            cipher_suites: vec![suite],
            ..aws_lc_rs::default_provider()
        });
        let versions = &[suite.version()][..];
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a pair");
        config.enable_secret_extraction = true;
        let mut records =
            Records::new(UnbufferedServerConnection::new(Arc::new(config)).expect("a connection"));
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a connection");

        let mut plain = Vec::new();
        client.writer().write_all(b"before").expect("memory");
        while plain != b"before" {
            records.open(&mut said(&mut client), &mut plain).expect("agreed");
            hear(&mut client, &std::mem::take(&mut records.control));
        }
        for word in ["one", "two", "three"] {
            let mut sealed = Vec::new();
            records.seal(word.as_bytes(), &mut sealed).expect("established");
            hear(&mut client, &sealed);
        }
        assert!(records.is_settled());
        assert!(agreed(&records.session).is_some(), "{suite:?}");
        let (session, keys) = KernelSession::take_over(records.session).expect("settled");
        Pair { client, session, keys, suite }
    }

    fn said(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }

    fn hear(client: &mut ClientConnection, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).expect("memory");
            client.process_new_packets().expect("records");
        }
    }

    /// Those for which a key like that of [`pair`] signs.
    fn suites() -> Vec<SupportedCipherSuite> {
        let mut all = aws_lc_rs::default_provider().cipher_suites;
        all.retain(|suite| !suite.suite().as_str().is_some_and(|name| name.contains("_RSA_")));
        assert_eq!(all.len(), 6, "three ciphers in two versions");
        all
    }

    #[test]
    fn what_arrives_is_opened_as_before_however_it_is_cut() {
        for suite in suites() {
            for piece in [usize::MAX, 1, 7, 16_000] {
                let Pair { mut client, mut session, .. } = pair(suite);
                client.writer().write_all(&[7; 40_000]).expect("memory");
                let mut sent = said(&mut client);
                client.send_close_notify();
                sent.extend(said(&mut client));
                sent.extend(b"nothing of this is looked at");
                let mut plain = Vec::new();
                let mut ends = 0;
                for piece in sent.chunks_mut(piece) {
                    let opened = session.open(piece, &mut plain).expect("records");
                    ends += usize::from(opened.ended);
                }
                assert!(plain == [7; 40_000] && ends == 1, "{suite:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_kernel_gets_keys_with_which_it_goes_on_where_we_stopped() {
        for suite in suites() {
            let Pair { mut client, keys, suite, .. } = pair(suite);
            // A key of 128 bits cannot be made from outside of rustls.
            if keys.cipher == Cipher::Aes128Gcm {
                continue;
            }
            let (key, iv) = (AeadKey::from(keys.key), Iv::from(keys.iv));
            let mut kernel: Box<dyn MessageEncrypter> = match suite {
                SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
                SupportedCipherSuite::Tls12(suite) => {
                    let (fixed, explicit) = keys.iv.split_at(suite.aead_alg.key_block_shape().fixed_iv_len);
                    suite.aead_alg.encrypter(key, fixed, explicit)
                }
            };
            for number in 0..3 {
                let message = OutboundPlainMessage {
                    typ: ContentType::ApplicationData,
                    version: ProtocolVersion::TLSv1_2,
                    payload: OutboundChunks::Single(b"after "),
                };
                let record = kernel.encrypt(message, keys.sequence + number).expect("sealed");
                hear(&mut client, &record.encode());
            }
            let mut heard = [0; 64];
            let len = client.reader().read(&mut heard).expect("plaintext");
            let rest = client.reader().read(&mut heard[len..]).unwrap_or(0);
            let heard = String::from_utf8_lossy(&heard[..len + rest]);
            assert!(
                "onetwothreeafter after after ".starts_with(&*heard) && !heard.is_empty(),
                "{suite:?}: {heard}"
            );
        }
    }

    #[test]
    fn the_kernel_counts_nonces_up_from_where_rustls_has_used_none() {
        for explicit in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x0123_4567_89AB_CDEF] {
            let mut iv = [9; 12];
            iv[4..].copy_from_slice(&u64::to_be_bytes(explicit));
            let secrets =
                ConnectionTrafficSecrets::Aes256Gcm { key: AeadKey::from([3; 32]), iv: Iv::from(iv) };
            let keys = send_keys(Version::Tls12, 1_000, &secrets).expect("known");
            let first = u64::from_be_bytes(keys.iv[4..].try_into().expect("eight bytes"));
            let used: HashSet<u64> = (0..1_000).map(|sequence| explicit ^ sequence).collect();
            let again = (0..100_000).find(|number| used.contains(&first.wrapping_add(*number)));
            assert_eq!((again, keys.sequence), (None, 1_000), "from {explicit:#x}");
            // In TLS 1.3 nonces follow from the sequence number, on both sides alike.
            assert_eq!(send_keys(Version::Tls13, 1_000, &secrets).expect("known").iv, iv);
        }
    }

    #[test]
    fn what_breaks_the_rules_ends_it_with_an_alert() {
        for suite in suites() {
            let Pair { mut client, mut session, .. } = pair(suite);
            client.writer().write_all(b"altered").expect("memory");
            let mut sent = said(&mut client);
            *sent.last_mut().expect("a record") ^= 1;
            let mut plain = Vec::new();
            assert_eq!(session.open(&mut sent, &mut plain), Err(TlsFault::Protocol), "{suite:?}");
            assert!(plain.is_empty() && session.has_alert() && !session.may_speak());
            let (mut queue, mut out) = (VecDeque::from([Segment::Bytes(b"x".to_vec())]), Vec::new());
            session.seal(&mut queue, true, &mut out).expect("an alert alone");
            assert!(matches!(out[..], [Segment::Alert(BAD_RECORD_MAC)]), "{suite:?}");

            let Pair { mut session, .. } = pair(suite);
            let mut giant = [23, 3, 3, 0xFF, 0xFF];
            assert_eq!(session.open(&mut giant, &mut plain), Err(TlsFault::Protocol), "{suite:?}");
            assert_eq!(session.alert, Some(RECORD_OVERFLOW));
        }
    }

    #[test]
    fn a_peer_that_asks_for_a_new_key_of_ours_is_left() {
        for suite in suites().into_iter().filter(|suite| suite.tls13().is_some()) {
            let Pair { mut client, mut session, .. } = pair(suite);
            client.refresh_traffic_keys().expect("established");
            client.writer().write_all(b"under the new key").expect("memory");
            let mut plain = Vec::new();
            assert_eq!(
                session.open(&mut said(&mut client), &mut plain),
                Err(TlsFault::Protocol),
                "{suite:?}"
            );
            assert_eq!(session.alert, Some(INTERNAL_ERROR));
        }
    }

    #[test]
    fn a_key_is_not_used_for_longer_than_it_is_good_for() {
        let Pair { mut session, .. } = pair(suites()[0]);
        let mut out = Vec::new();
        session.spent = KEY_BYTES_MAX - RECORD_BYTES as u64 - 3;
        let mut queue = VecDeque::from([Segment::Bytes(b"abc".to_vec())]);
        session.seal(&mut queue, false, &mut out).expect("the last bytes");
        let mut queue = VecDeque::from([Segment::Bytes(b"d".to_vec())]);
        assert_eq!(session.seal(&mut queue, false, &mut out), Err(Fault::Reset));
    }
}
