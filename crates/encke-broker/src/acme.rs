//! A certificate from an authority that gives them away by itself (ACME, RFC 8555): one order, from the account to the
//! chain.
//!
//! ```text
//!  account ─► order ─► each name: its challenge ─► Stage::show ─► "look" ─► the directory looks ─┬─ sees it ─► CSR ─► chain
//!                                                                                                └─ not ────► Refused
//! ```
//! When to order, where keys and certificates are kept, and how a challenge is answered is not decided here ([`Stage`]). It
//! waits for the network: it is called on a thread that nobody waits for. Tokio runs on that thread for as long as an
//! order takes, and nowhere else.

use std::error::Error as _;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use tokio::runtime;

/// Everything together: three round trips a name, validation, and the signature. Let's Encrypt takes some ten seconds; a
/// directory that has not answered after three minutes is tried again later.
const ORDER_TIME: Duration = Duration::from_secs(180);
/// How long a validation, and afterwards a signature, may take. It is asked for after half a second first, then after a
/// second, two, four and so on.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(2.0)
    .timeout(Duration::from_secs(80));

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// URL of the directory (RFC 8555 §7.1.1), with https.
    pub directory: &'a str,
    /// A file with the authority, as PEM, that vouches for the directory; else those that the system trusts.
    pub root: Option<&'a Path>,
    /// Whom the directory may write to; told when an account is made.
    pub email: Option<&'a str>,
    /// The account, as [`Stage::remember`] was told; else one is made.
    pub account: Option<&'a str>,
    /// Names that the certificate is for.
    pub names: &'a [String],
    /// How it is proved that they are ours.
    pub challenge: Challenge,
    /// The certificate signing request for those names (RFC 2986, DER).
    pub csr: &'a [u8],
}

/// How a name is proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Challenge {
    /// By a certificate that answers the application protocol `acme-tls/1` on port 443 (RFC 8737).
    TlsAlpn,
    /// By a page on port 80 (RFC 8555 §8.3).
    Http,
}

/// What must be seen where a name leads to.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// A self-signed certificate for `name` with this digest (SHA-256) in its extension acmeIdentifier.
    TlsAlpn {
        /// The name that is proved.
        name: &'a str,
        /// What the extension holds.
        digest: [u8; 32],
    },
    /// `content` at `/.well-known/acme-challenge/` + `token`.
    Http {
        /// The last segment of the path.
        token: &'a str,
        /// The body of the answer.
        content: &'a str,
    },
}

/// What an order needs of the server whose names are to be proved.
pub trait Stage {
    /// An account was made: it is what [`Request::account`] wants from now on. It holds a private key.
    fn remember(&self, account: &str);

    /// From now on `proof` is seen where the name leads to. It may be forgotten when the order has ended.
    fn show(&self, proof: &Proof<'_>);
}

/// Why there is no certificate.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcmeError {
    /// The directory was not reached, or what it said was no ACME; with every cause.
    Unreachable(String),
    /// The directory does not know the account, or no longer: another one has to be made.
    NoAccount,
    /// The directory does not give it, in its own words.
    Refused(String),
    /// The directory does not offer that challenge for a name.
    NotOffered(String, Challenge),
    /// It took longer than it may.
    Time,
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the directory is out of reach: {why}"),
            Self::NoAccount => f.write_str("the directory does not know our account"),
            Self::Refused(why) => write!(f, "the directory refuses: {why}"),
            Self::NotOffered(name, challenge) => {
                write!(f, "the directory does not offer {} for {name}", challenge.name())
            }
            Self::Time => write!(f, "it took longer than {} s", ORDER_TIME.as_secs()),
        }
    }
}

impl std::error::Error for AcmeError {}

impl Challenge {
    /// As RFC 8555 and RFC 8737 call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TlsAlpn => "tls-alpn-01",
            Self::Http => "http-01",
        }
    }

    fn kind(self) -> ChallengeType {
        match self {
            Self::TlsAlpn => ChallengeType::TlsAlpn01,
            Self::Http => ChallengeType::Http01,
        }
    }
}

/// Fetches a certificate: the chain, as PEM. It takes up to three minutes.
///
/// # Errors
/// See [`AcmeError`].
pub fn order(request: &Request<'_>, stage: &dyn Stage) -> Result<String, AcmeError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| AcmeError::Unreachable(error.to_string()))?;
    let limited = async { tokio::time::timeout(ORDER_TIME, fetch(request, stage)).await };
    runtime.block_on(limited).unwrap_or(Err(AcmeError::Time))
}

async fn fetch(request: &Request<'_>, stage: &dyn Stage) -> Result<String, AcmeError> {
    let account = account(request, stage).await?;
    let names: Vec<Identifier> = request.names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let mut proofs = order.authorizations();
    while let Some(proof) = proofs.next().await {
        let mut proof = proof?;
        // One that was proved lately need not be proved again.
        if proof.status == instant_acme::AuthorizationStatus::Valid {
            continue;
        }
        let name = proof.identifier().to_string();
        let Some(mut challenge) = proof.challenge(request.challenge.kind()) else {
            return Err(AcmeError::NotOffered(name, request.challenge));
        };
        let key = challenge.key_authorization();
        stage.show(&match request.challenge {
            Challenge::TlsAlpn => {
                let mut digest = [0; 32];
                digest.copy_from_slice(key.digest().as_ref());
                Proof::TlsAlpn { name: &name, digest }
            }
            Challenge::Http => Proof::Http { token: &challenge.token, content: key.as_str() },
        });
        challenge.set_ready().await?;
    }
    match order.poll_ready(&POLL).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(AcmeError::Refused(reasons(&mut order).await.unwrap_or_else(no_reason))),
        Err(error) => {
            let reasons = reasons(&mut order).await;
            return Err(reasons.map_or_else(|| error.into(), AcmeError::Refused));
        }
    }
    order.finalize_csr(request.csr).await?;
    Ok(order.poll_certificate(&POLL).await?)
}

fn no_reason() -> String {
    "it gives no reason".into()
}

/// The account that is known, or one that is made now.
async fn account(request: &Request<'_>, stage: &dyn Stage) -> Result<Account, AcmeError> {
    let builder = || -> Result<AccountBuilder, Error> {
        request.root.map_or_else(Account::builder, Account::builder_with_root)
    };
    if let Some(known) = request.account {
        // One that cannot be read is as good as none.
        let known: AccountCredentials = serde_json::from_str(known).map_err(|_| AcmeError::NoAccount)?;
        return Ok(builder()?.from_credentials(known).await?);
    }
    let contact = request.email.map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder()?.create(&new, request.directory.to_owned(), None).await?;
    stage.remember(&serde_json::to_string(&credentials).map_err(Error::from)?);
    Ok(account)
}

/// What the directory saw of challenges that failed, if any has.
async fn reasons(order: &mut Order) -> Option<String> {
    let mut reasons = Vec::new();
    let mut proofs = order.authorizations();
    while let Some(proof) = proofs.next().await {
        let mut proof = proof.ok()?;
        let name = proof.identifier().to_string();
        let seen = proof.refresh().await.ok()?;
        let problems = seen.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{name}: {}", told(problem))));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// A problem (RFC 7807) on one line.
fn told(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let detail = problem.detail.as_deref().unwrap_or_default();
    let parts = problem.subproblems.iter().map(|part| format!(", {part}"));
    format!("{kind}: {detail}{}", parts.collect::<String>())
}

impl From<Error> for AcmeError {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => {
                let kind = problem.r#type.as_deref().unwrap_or_default();
                if kind.ends_with(":accountDoesNotExist") {
                    Self::NoAccount
                } else {
                    Self::Refused(told(&problem))
                }
            }
            Error::Timeout(_) => Self::Time,
            error => {
                // What goes wrong on the way is wrapped several times, and the last cause is what helps.
                let mut text = error.to_string();
                let mut cause = error.source();
                while let Some(error) = cause {
                    let part = error.to_string();
                    if !text.contains(&part) {
                        text = text + ": " + &part;
                    }
                    cause = error.source();
                }
                Self::Unreachable(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Stage for Nothing {
        fn remember(&self, account: &str) {
            panic!("no directory, no account: {account}");
        }

        fn show(&self, proof: &Proof<'_>) {
            panic!("no directory, nothing to prove: {proof:?}");
        }
    }

    #[test]
    fn a_directory_that_is_out_of_reach_is_told_with_the_last_cause() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let directory = format!("https://{}/directory", closed.expect("a port that was free"));
        let request = Request {
            directory: &directory,
            root: None,
            email: None,
            account: None,
            names: &["a.example".into()],
            challenge: Challenge::Http,
            csr: &[],
        };
        let error = order(&request, &Nothing).expect_err("nobody listens there").to_string();
        assert!(error.contains("out of reach") && error.contains("refused"), "{error}");
        let broken = Request { account: Some("{"), ..request };
        let error = order(&broken, &Nothing).expect_err("no account");
        assert!(matches!(error, AcmeError::NoAccount), "{error}");
        let absent = Request { root: Some(Path::new("absent.pem")), ..request };
        let error = order(&absent, &Nothing).expect_err("no such authority").to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_directory() {
        let problem = Problem {
            r#type: Some("urn:ietf:params:acme:error:rejectedIdentifier".into()),
            detail: Some("not ours to give".into()),
            status: Some(400),
            subproblems: Vec::new(),
        };
        let error = AcmeError::from(Error::Api(problem.clone())).to_string();
        assert_eq!(error, "the directory refuses: rejectedIdentifier: not ours to give");
        let gone =
            Problem { r#type: Some("urn:ietf:params:acme:error:accountDoesNotExist".into()), ..problem };
        assert!(matches!(AcmeError::from(Error::Api(gone)), AcmeError::NoAccount));
    }
}
