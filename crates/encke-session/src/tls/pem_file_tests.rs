//! Certificates and keys that cannot be used: each error names the file and its cause.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::TlsIdentity;
use encke_settings::TlsSettings;

/// A certificate of version 1, by openssl x509 -req without extensions, and its key.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBHzCBxQIUUVUPfbSsOAFSplK2BM+J5O6CAj4wCgYIKoZIzj0EAwIwETEPMA0G
A1UEAwwGYS50ZXN0MCAXDTI2MTEyODIyNDM1OVoYDzIxMjYxMTA0MjI0MzU5WjAR
MQ8wDQYDVQQDDAZhLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR9TuHQ
7NPkxKEFLs7vXhunysXuYngNuq8Ve8VBMyGe+K2aIFlF+o/8s1nAWQDNmxRXXP2X
pblKjVdL+jNSAIE1MAoGCCqGSM49BAMCA0kAMEYCIQDRp2kHI85x+adafhA7AR8i
5oAUSESYdlW7qqDj3tlGlwIhAIKOdl3geKCulRDreC6PftpS2E0INAdGIAEDb9Sg
dXWd
-----END CERTIFICATE-----
";
const KEY_OF_VERSION_1: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQglQ5RpNy9QA2SFBTZ
StTEJZO/nnJerSYGrO1QU3V4umOhRANCAAR9TuHQ7NPkxKEFLs7vXhunysXuYngN
uq8Ve8VBMyGe+K2aIFlF+o/8s1nAWQDNmxRXXP2XpblKjVdL+jNSAIE1
-----END PRIVATE KEY-----
";

/// The same key with a passphrase, by openssl pkey -aes256 and openssl ec -aes128.
const ENCRYPTED: &str = "\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgAznZPmaosEAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEN5CWyCfQNHUj7TWYfhe8hMEgZCw
Fb03rOQNULQuQVYQVbo2BO77K6wXJbtr2zGnuotim0t7TdzEomoBmvZv9xnZouFU
AF2Nk7k7sPmhQhNjVEC7FkYLnc9oaZnteq1xK8SBC+j0hlcyDj8we2t+BYFh59o8
17Yh5aLz7i4IE6uuzdCFim1J6HxSwwUjhpfPjIYF/CRxDm0Hk/0jeCBnRNMX/rw=
-----END ENCRYPTED PRIVATE KEY-----
";
const ENCRYPTED_BY_OPENSSL_EC: &str = "\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,61D59E87524C44A4430635F5285412C9

D4giH3gd0nz5Hd+GVnoToHhjpyqv9hgMPpoeV4v3Z643L3GRslt61gLYr0fO9dyV
4CNciCTbFJhSwxoYH4LND1WUaunmVL9qvv04uV8Gb+R7szkVD4zIy3BdnJLl08sF
euaNhTpshwZWos3RHg0iYoIfxpU57q5/1wiqnRpPd5E=
-----END EC PRIVATE KEY-----
";

/// The result of a listener with these two files: its names, or the error without the directory.
fn outcome(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Vec<String>, String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("encke-pem-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder: PathBuf = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a directory");
    let write = |name: &str, content: &[u8]| {
        let file = folder.join(name);
        fs::write(&file, content).expect("written");
        Some(file)
    };
    let settings = TlsSettings {
        cert: write("cert.pem", certificate.as_ref()),
        key: write("key.pem", key.as_ref()),
        ..TlsSettings::default()
    };
    let read = TlsIdentity::read(&settings, &mut Vec::new());
    let outcome = read.map(|identity| identity.names()).map_err(|error| error.to_string());
    fs::remove_dir_all(&folder).expect("made here");
    outcome.map_err(|text| text.replace(&format!("{}/", folder.display()), ""))
}

/// A certificate of version 3 for this name, and its key.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().expect("randomness");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

/// Fails unless each certificate, with this key, is rejected for the expected reason.
fn assert_certificates(cases: &[(&[u8], &str)], key: &str) {
    for (content, expected) in cases {
        let error = outcome(content, key).expect_err(expected);
        assert!(error.contains(expected), "{error}\nis not\n{expected}");
    }
}

#[test]
fn certificates_that_cannot_be_read_are_named_by_their_cause() {
    let (certificate, key) = pair("a.test");
    let cut = certificate.split("-----END").next().expect("the first part");
    let cut_later = format!("{certificate}{cut}");
    let wide: Vec<u8> = certificate.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked_wide = [&[0xff, 0xfe][..], &wide].concat();
    let indented = format!("  {}", certificate.replace('\n', "\n  "));
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let cases: &[(&[u8], &str)] = &[
        (b"", "cert.pem: there is no certificate in it: the file is empty"),
        (b"\r\n", "the file is empty"),
        (b"hello", "the file has no PEM section"),
        (key.as_bytes(), "the file has only PRIVATE KEY"),
        (cut.as_bytes(), "the file is cut off, -----END CERTIFICATE----- is missing"),
        (cut_later.as_bytes(), "the file is cut off, -----END CERTIFICATE----- is missing"),
        (&wide, "the file is UTF-16"),
        (&marked_wide, "the file is UTF-16"),
        (indented.as_bytes(), "its lines are indented"),
        (&der, "the file is binary, not PEM (-----BEGIN …): convert DER by openssl x509"),
    ];
    assert_certificates(cases, &key);
}

#[test]
fn certificates_that_do_not_fit_are_named_by_their_cause() {
    let (certificate, key) = pair("a.test");
    let (other, _) = pair("other.test");
    let second = format!("{other}{certificate}");
    let malformed = format!("{certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let cases: &[(&[u8], &str)] = &[
        (second.as_bytes(), "cert.pem: certificate 2 of the file belongs to the key: place it first"),
        (malformed.as_bytes(), "cert.pem: certificate 2 of the file is malformed"),
        (other.as_bytes(), "key.pem: it is not the key of the certificate in cert.pem"),
        (VERSION_1.as_bytes(), "key.pem: it is not the key of the certificate in cert.pem"),
    ];
    assert_certificates(cases, &key);
    let version = "cert.pem: the certificate has version 1 of X.509";
    assert_certificates(&[(VERSION_1.as_bytes(), version)], KEY_OF_VERSION_1);
}

#[test]
fn keys_that_cannot_be_read_are_named_by_their_cause() {
    let (certificate, key) = pair("a.test");
    let cut = key.split("-----END").next().expect("the first part");
    let ssh = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    let cases: &[(&[u8], &str)] = &[
        (b"", "key.pem: there is no private key in it: the file is empty"),
        (ENCRYPTED.as_bytes(), "the key is encrypted"),
        (ENCRYPTED_BY_OPENSSL_EC.as_bytes(), "the key is encrypted"),
        (certificate.as_bytes(), "the file has only CERTIFICATE"),
        (ssh.as_bytes(), "the file has only OPENSSH PRIVATE KEY"),
        (cut.as_bytes(), "the file is cut off, -----END PRIVATE KEY----- is missing"),
        (b"\x30\x81\x87\x02\x01\x00", "convert DER by openssl pkey"),
    ];
    for (content, expected) in cases {
        let error = outcome(&certificate, content).expect_err(expected);
        assert!(error.contains(expected), "{error}\nis not\n{expected}");
        assert!(error.starts_with("tls: key.pem: "), "{error}");
    }
}

#[test]
fn files_of_windows_editors_are_read() {
    let (certificate, key) = pair("a.test");
    let (issuer, _) = pair("issuer.test");
    let marked = |text: &str| format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(outcome(marked(&certificate), marked(&key)).as_deref(), Ok(&["a.test".to_owned()][..]));
    // Without the first certificate, that of the issuer would come first.
    let chain = marked(&format!("{certificate}{issuer}"));
    assert_eq!(outcome(chain, &key).as_deref(), Ok(&["a.test".to_owned()][..]));
    let commented = format!("Bag Attributes\n    friendlyName: a\n{certificate}");
    assert!(outcome(commented, format!("{certificate}{key}")).is_ok());
}
