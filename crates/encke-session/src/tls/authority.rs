//! A local certificate authority for a development machine: HTTPS at once, without an external authority.
//!
//! ```text
//!  nothing ──make──► authority, stored ──sign──► leaf, stored ──► a listener's certificate
//!                      ▲  ten years                ▲  a year
//!                      └─ replaced 30 days before  └─ signed again 30 days before its end, or if the machine has
//!                         its end: trust it again     another name
//! ```
//! Name constraints (RFC 5280 §4.2.1.10) limit its signatures to the names and addresses of this machine. A user who trusts it
//! need not fear that a stolen key impersonates a bank. It is unsuitable as a general authority: it revokes nothing and signs
//! for no other machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use encke_io::clock::Clock;
use encke_io::host;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::error::{TlsError, TlsFileError};
use super::identity::Life;
use super::pem_file::named;
use encke_settings::{CertSettings, is_dns_name, state};

/// Ten years: a user who has made three browsers and a telephone trust it should not have to do so often.
const AUTHORITY_LASTS_S: u64 = 10 * 365 * DAY_S;
/// A year: browsers reject certificates that last longer than 398 days (CA/Browser Forum, Baseline Requirements §6.3.2). Some
/// apply this to authorities that a user added as well.
const LEAF_LASTS_S: u64 = 365 * DAY_S;
/// Certificates that end sooner are replaced at a start.
const RENEWED_BEFORE_S: u64 = 30 * DAY_S;
/// Certificates begin a day ago, so that a device whose clock is slow accepts them.
const BACKDATED_S: u64 = DAY_S;
const DAY_S: u64 = 24 * 60 * 60;

/// Names that every leaf has.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A local authority, stored in the state directory, and the certificate that it signed for this machine.
#[derive(Debug)]
pub struct LocalAuthority {
    /// The authority's certificate, a PEM file that clients must trust.
    pub certificate: PathBuf,
    /// The listener's certificate and key, for the names of this machine.
    pub leaf: CertSettings,
    /// The authority was created by this call, so no client trusts it yet.
    pub is_new: bool,
}

impl LocalAuthority {
    /// Opens the authority in a state directory. Creates it if there is none, and signs a certificate for this machine if the
    /// present one ends soon or lacks a name.
    ///
    /// # Errors
    /// The directory cannot be written, or its contents cannot be read: the error names the file and the remedy.
    pub fn open(state_dir: &Path) -> Result<Self, TlsError> {
        Self::open_at(state_dir, host::name().as_deref(), Clock::new().now().unix_s())
    }

    /// Like [`LocalAuthority::open`], for a machine of this name, at a moment in seconds since 1970.
    fn open_at(state_dir: &Path, machine: Option<&str>, now_s: u64) -> Result<Self, TlsError> {
        state::prepare(state_dir)?;
        let folder = state_dir.join("authority");
        state::make_folder(&folder)?;
        let certificate = folder.join("authority.pem");
        let key = folder.join("authority.key");
        let file = folder.join("localhost.pem");
        let names = names(machine);

        let known = AuthorityCert::read(&certificate)?;
        let is_new = !known.as_ref().is_some_and(|known| {
            known.life.ends_s > now_s + RENEWED_BEFORE_S && names.iter().all(|name| known.may_sign(name))
        });
        if is_new {
            make(&certificate, &key, &names, now_s).map_err(|error| broken(&certificate, error))?;
        }
        let good = Life::read(&file).is_ok_and(|life| {
            life.ends_s > now_s + RENEWED_BEFORE_S && names.iter().all(|name| life.names.contains(name))
        });
        if is_new || !good {
            sign(&certificate, &key, &file, &names, now_s)?;
        }
        Ok(Self { certificate, leaf: CertSettings { cert: file.clone(), key: file, ocsp: None }, is_new })
    }
}

/// The stored certificate of an authority.
struct AuthorityCert {
    life: Life,
    /// The names in its constraints.
    permitted: Vec<String>,
}

impl AuthorityCert {
    /// Returns `None` if there is no certificate.
    fn read(certificate: &Path) -> Result<Option<Self>, TlsError> {
        match Life::read(certificate) {
            Ok(life) => Ok(Some(Self { permitted: life.permitted.clone(), life })),
            Err(_) if !certificate.exists() => Ok(None),
            Err(error) => Err(broken(certificate, error)),
        }
    }

    /// Whether the authority may sign for a name. Loopback is the only permitted address.
    fn may_sign(&self, name: &str) -> bool {
        LOOPBACK.contains(&name) || self.permitted.iter().any(|permitted| permitted == name)
    }
}

fn broken(file: &Path, error: TlsError) -> TlsError {
    TlsError::Authority { folder: parent(file).to_owned(), error: Box::new(error) }
}

fn parent(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// The names by which clients reach this machine.
fn names(machine: Option<&str>) -> Vec<String> {
    let machine = machine.map(str::to_ascii_lowercase);
    let machine = machine.filter(|name| is_dns_name(name) && !LOOPBACK.contains(&name.as_str()));
    LOOPBACK.into_iter().map(str::to_owned).chain(machine).collect()
}

/// Creates an authority for these names.
fn make(certificate: &Path, key: &Path, names: &[String], now_s: u64) -> Result<(), TlsError> {
    let mut tag = [0; 4];
    host::random(&mut tag).map_err(TlsError::Random)?;
    let mut params = lasting(Vec::new(), AUTHORITY_LASTS_S, now_s)?;
    let machine = names.iter().rfind(|name| is_dns_name(name)).map_or("localhost", String::as_str);
    // Clients would confuse two authorities with the same name.
    let tag = u32::from_le_bytes(tag);
    params.distinguished_name.push(DnType::CommonName, format!("Encke on {machine} ({tag:08x})"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let addresses = [
        CidrSubnet::from_v4_prefix([127, 0, 0, 0], 8),
        CidrSubnet::from_v6_prefix(std::net::Ipv6Addr::LOCALHOST.octets(), 128),
    ];
    let dns = names.iter().filter(|name| is_dns_name(name)).cloned().map(GeneralSubtree::DnsName);
    let permitted = dns.chain(addresses.map(GeneralSubtree::IpAddress));
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: permitted.collect(), excluded_subtrees: Vec::new() });
    let pair = KeyPair::generate().map_err(TlsError::library)?;
    let signed = params.self_signed(&pair).map_err(TlsError::library)?;
    // The key is stored first. Otherwise a crash in between would leave a certificate without its key, and the next start
    // could not sign.
    state::put_private(key, pair.serialize_pem().as_bytes())?;
    Ok(state::put_private(certificate, signed.pem().as_bytes())?)
}

/// Signs a certificate for these names with the authority.
fn sign(certificate: &Path, key: &Path, file: &Path, names: &[String], now_s: u64) -> Result<(), TlsError> {
    let text = |path: &Path| fs::read_to_string(path).map_err(|error| named(path, TlsFileError::Read(error)));
    let refused =
        |path: &Path, error: rcgen::Error| broken(path, named(path, TlsFileError::Unusable(error.into())));
    let pair = KeyPair::from_pem(&text(key)?).map_err(|error| refused(key, error))?;
    let issuer =
        Issuer::from_ca_cert_pem(&text(certificate)?, pair).map_err(|error| refused(certificate, error))?;
    let mut params = lasting(names.to_vec(), LEAF_LASTS_S, now_s)?;
    params.distinguished_name.push(DnType::CommonName, "localhost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let own = KeyPair::generate().map_err(TlsError::library)?;
    let signed = params.signed_by(&own, &issuer).map_err(|error| refused(certificate, error))?;
    Ok(state::put_private(file, (own.serialize_pem() + &signed.pem()).as_bytes())?)
}

fn lasting(names: Vec<String>, seconds: u64, now_s: u64) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(names).map_err(TlsError::library)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let moment = |at_s: u64| UNIX_EPOCH + Duration::from_secs(at_s);
    params.not_before = moment(now_s.saturating_sub(BACKDATED_S)).into();
    params.not_after = moment(now_s.saturating_add(seconds)).into();
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory of one test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-authority-{name}-{}", std::process::id()));
            let _left = fs::remove_dir_all(&path);
            Self(path)
        }

        fn open(&self, machine: &str, now_s: u64) -> LocalAuthority {
            LocalAuthority::open_at(&self.0, Some(machine), now_s).expect("a folder that can be written")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    fn content(file: &Path) -> String {
        fs::read_to_string(file).expect("it is there")
    }

    const NOW_S: u64 = 1_800_000_000;

    #[test]
    fn it_is_remembered_and_signs_again_when_that_is_due() {
        let folder = Folder::new("remembered");
        let first = folder.open("Laptop", NOW_S);
        assert!(first.is_new);
        let (authority, leaf) = (content(&first.certificate), content(&first.leaf.cert));
        let life = Life::read(&first.leaf.cert).expect("a certificate");
        assert_eq!(life.names, ["localhost", "127.0.0.1", "::1", "laptop"]);
        assert_eq!((life.begins_s, life.ends_s), (NOW_S - DAY_S, NOW_S + LEAF_LASTS_S));

        let later_s = NOW_S + LEAF_LASTS_S - RENEWED_BEFORE_S - 1;
        let same = folder.open("laptop", later_s);
        assert!(!same.is_new);
        assert_eq!((content(&same.certificate), content(&same.leaf.cert)), (authority.clone(), leaf.clone()));

        let renewed = folder.open("laptop", later_s + 1);
        assert!(!renewed.is_new);
        assert_eq!(content(&renewed.certificate), authority);
        assert_ne!(content(&renewed.leaf.cert), leaf);

        let after = folder.open("laptop", NOW_S + AUTHORITY_LASTS_S - RENEWED_BEFORE_S);
        assert!(after.is_new, "it would have ended soon");
        assert_ne!(content(&after.certificate), authority);
    }

    #[test]
    fn another_name_of_the_machine_takes_another_authority() {
        let folder = Folder::new("renamed");
        let first = content(&folder.open("one", NOW_S).certificate);
        let other = folder.open("two", NOW_S);
        assert!(other.is_new, "the first may not sign for that name");
        assert_ne!(content(&other.certificate), first);
        assert!(Life::read(&other.leaf.cert).expect("a certificate").names.contains(&"two".to_owned()));
        // A name that no certificate can contain is left out, and changes nothing.
        assert!(!folder.open("no_name", NOW_S).is_new);
        assert!(!folder.open("localhost", NOW_S).is_new);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_the_remedy() {
        let folder = Folder::new("broken");
        let authority = folder.open("laptop", NOW_S);
        let key = authority.certificate.with_extension("key");
        fs::write(&authority.leaf.cert, "half").expect("written");
        assert!(!folder.open("laptop", NOW_S).is_new, "a leaf is signed again");
        for (file, name) in [(&key, "authority.key"), (&authority.certificate, "authority.pem")] {
            fs::write(file, "nothing of the kind").expect("written");
            let _gone = fs::remove_file(&authority.leaf.cert);
            let error = LocalAuthority::open_at(&folder.0, Some("laptop"), NOW_S).expect_err("no authority");
            let error = error.to_string();
            assert!(error.contains(name) && error.contains("remove the directory"), "{error}");
        }
    }

    #[test]
    fn keys_are_their_owners_alone() {
        let folder = Folder::new("rights");
        let authority = folder.open("laptop", NOW_S);
        for file in [authority.certificate.with_extension("key"), authority.leaf.key] {
            assert!(encke_io::files::is_private(&file).expect("there"), "{}", file.display());
        }
    }
}
