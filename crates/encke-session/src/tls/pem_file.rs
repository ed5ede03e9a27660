//! Certificates and keys in PEM files, and the reasons why a file has none.
//!
//! ```text
//!  file ─► bytes without a byte-order mark ─► PEM sections ─┬─► certificates, or a key
//!                                                           └─► none, or malformed ─► PemFault: what the file has instead
//! ```

use std::io::Read as _;
use std::path::Path;

use encke_io::files::open_regular;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::{PemFault, TlsError, TlsFileError};

/// Maximum size of a file. The authorities of a system take some 250 KB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of kinds of sections that an error lists.
const KINDS_MAX: usize = 4;

/// The kinds of PEM sections, in errors.
const CERTIFICATE: &str = "certificate";
const PRIVATE_KEY: &str = "private key";

/// Reads all certificates of a file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(failed(path, CERTIFICATE, &bytes, pem::Error::NoItemsFound)),
        Err(error) => Err(failed(path, CERTIFICATE, &bytes, error)),
    }
}

/// Reads the first private key of a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| failed(path, PRIVATE_KEY, &bytes, error))
}

/// Reads a file. Editors of Windows begin files with a byte-order mark, which would hide the first section.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| named(path, TlsFileError::Read(error)))?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

fn failed(path: &Path, what: &'static str, bytes: &[u8], error: pem::Error) -> TlsError {
    named(path, TlsFileError::Pem(what, PemFault::of(what, bytes, &error)))
}

/// An error about a file.
pub(super) fn named(path: &Path, error: TlsFileError) -> TlsError {
    TlsError::File(path.to_owned(), error)
}

impl PemFault {
    /// Finds out why a file has no `what`.
    fn of(what: &'static str, bytes: &[u8], error: &pem::Error) -> Self {
        let starts_wide = [[0xff, 0xfe], [0xfe, 0xff]].iter().any(|mark| bytes.starts_with(mark));
        if starts_wide || bytes.starts_with(b"-\0") || bytes.starts_with(b"\0-") {
            return Self::Utf16;
        }
        if bytes.trim_ascii().is_empty() {
            return Self::Empty;
        }
        // DER is a sequence (0x30) with its length. PKCS#12 as well.
        if bytes.starts_with(&[0x30]) && std::str::from_utf8(bytes).is_err() {
            return Self::Binary(what);
        }
        let lines = || bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
        let kind = |line: &[u8]| {
            let kind = line.strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----")?;
            Some(String::from_utf8_lossy(kind).into_owned())
        };
        let is_encrypted =
            lines().any(|line| line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED"));
        let mut kinds: Vec<String> = lines().filter_map(|line| kind(line.trim_ascii_end())).collect();
        if what == PRIVATE_KEY && (is_encrypted || kinds.iter().any(|kind| kind == "ENCRYPTED PRIVATE KEY")) {
            return Self::Encrypted;
        }
        match error {
            pem::Error::MissingSectionEnd { end_marker } => {
                return Self::Cut(String::from_utf8_lossy(end_marker).into_owned());
            }
            pem::Error::NoItemsFound => {}
            other => return Self::Malformed(other.to_string()),
        }
        if kinds.is_empty() {
            let is_indented = lines().any(|line| kind(line.trim_ascii()).is_some());
            return if is_indented { Self::Indented } else { Self::Absent(what) };
        }
        kinds.dedup();
        kinds.truncate(KINDS_MAX);
        Self::Others(what, kinds)
    }
}
