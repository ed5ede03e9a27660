//! An ACME client (RFC 8555): orders one certificate, from the account to the chain.
//!
//! ```text
//!  account ─► order ─► each name: its challenge ─► Stage::show ─► ready ─► the directory validates ─┬─ valid ───► CSR ─► chain
//!                                                                                                   └─ invalid ─► Refused
//! ```
//! The caller decides when to order, stores keys and certificates, and responds to challenges (see [`OrderCallbacks`]). [`order`] blocks
//! on the network, so it needs a thread that may block. Tokio runs only on that thread, and only during an order.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use tokio::runtime;

use crate::ErrorOrigin;
use crate::error::causes;

/// Limit of a whole order: three round trips per name, validation, and the signature. Let's Encrypt takes about ten seconds. If
/// a directory has not finished after three minutes, the server retries later.
const ORDER_TIME: Duration = Duration::from_secs(180);
/// Polling of the validation, and later of the signature, for at most 80 s each. The first poll follows after half a second,
/// the next ones after one, two, four seconds, and so on.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(2.0)
    .timeout(Duration::from_secs(80));

/// The parameters of an order.
#[derive(Clone, Copy, Debug)]
pub struct OrderRequest<'a> {
    /// URL of the directory (RFC 8555 §7.1.1), with https.
    pub directory: &'a str,
    /// PEM file with the CA certificates that the directory is verified with; `None` for the system's roots.
    pub root: Option<&'a Path>,
    /// Contact address for the directory, which receives it when an account is created.
    pub email: Option<&'a str>,
    /// The account, as passed to [`OrderCallbacks::remember`]; `None` creates one.
    pub account: Option<&'a str>,
    /// DNS names of the certificate.
    pub names: &'a [String],
    /// How control of the names is proved.
    pub challenge: Challenge,
    /// The certificate signing request for those names (RFC 2986, DER).
    pub csr: &'a [u8],
}

/// A method to prove control of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Challenge {
    /// A certificate served for the application protocol `acme-tls/1` on port 443 (RFC 8737).
    TlsAlpn,
    /// A page on port 80 (RFC 8555 §8.3).
    Http,
}

/// The response that the directory expects from the server of a name.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// A self-signed certificate for `name` with this SHA-256 digest in its extension acmeIdentifier (RFC 8737 §3).
    TlsAlpn {
        /// The name to be validated.
        name: &'a str,
        /// SHA-256 of the key authorization: the content of the extension.
        digest: [u8; 32],
    },
    /// `content` at `/.well-known/acme-challenge/` + `token`.
    Http {
        /// The last segment of the path.
        token: &'a str,
        /// The body of the response.
        content: &'a str,
    },
}

/// Callbacks of an order to the server whose names are validated.
pub trait OrderCallbacks {
    /// Stores a new account, for [`OrderRequest::account`] of later orders. The text contains a private key.
    fn remember(&self, account: &str);

    /// Serves `proof` from now on. The server may drop it when the order has ended.
    fn show(&self, proof: &Proof<'_>);
}

/// Why an order failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcmeError {
    /// The order could not be started on this machine.
    System(io::Error),
    /// The directory was not reached, or its response is not ACME.
    Unreachable(Error),
    /// The directory does not know the account, or the stored account cannot be parsed: create a new one.
    NoAccount,
    /// The directory rejected the order, for this reason.
    Refused(String),
    /// The directory does not offer that challenge for this name.
    NotOffered(String, Challenge),
    /// The order exceeded its time limit of 180 s.
    Time,
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "cannot start the order: {error}"),
            Self::Unreachable(error) => write!(f, "cannot reach the directory: {}", causes(error)),
            Self::NoAccount => f.write_str("the directory does not know the account"),
            Self::Refused(why) => write!(f, "the directory rejected the order: {why}"),
            Self::NotOffered(name, challenge) => {
                write!(f, "the directory does not offer {} for {name}", challenge.name())
            }
            Self::Time => write!(f, "the order took longer than {} s", ORDER_TIME.as_secs()),
        }
    }
}

impl std::error::Error for AcmeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Unreachable(error) => Some(error),
            Self::NoAccount | Self::Refused(_) | Self::NotOffered(..) | Self::Time => None,
        }
    }
}

impl AcmeError {
    /// The origin of the error.
    pub const fn origin(&self) -> ErrorOrigin {
        match self {
            Self::System(_) => ErrorOrigin::System,
            Self::Unreachable(_) | Self::NoAccount | Self::Refused(_) | Self::Time => ErrorOrigin::Upstream,
            Self::NotOffered(..) => ErrorOrigin::Settings,
        }
    }

    /// Whether the same order may succeed later. After [`AcmeError::NoAccount`] it needs another account; the other permanent
    /// errors need an administrator.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::System(_) | Self::Unreachable(_) | Self::Time)
    }
}

impl Challenge {
    /// The identifier of RFC 8555 and RFC 8737.
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

/// Orders a certificate, and returns its chain as PEM. Blocks for up to three minutes.
///
/// # Errors
/// See [`AcmeError`].
pub fn order(request: &OrderRequest<'_>, stage: &dyn OrderCallbacks) -> Result<String, AcmeError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(AcmeError::System)?;
    let limited = async { tokio::time::timeout(ORDER_TIME, fetch(request, stage)).await };
    runtime.block_on(limited).unwrap_or(Err(AcmeError::Time))
}

async fn fetch(request: &OrderRequest<'_>, stage: &dyn OrderCallbacks) -> Result<String, AcmeError> {
    let account = account(request, stage).await?;
    let names: Vec<Identifier> = request.names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let mut proofs = order.authorizations();
    while let Some(proof) = proofs.next().await {
        let mut proof = proof?;
        // A recent validation is still valid.
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
    "no reason given".into()
}

/// Loads the account of the request, or creates one.
async fn account(request: &OrderRequest<'_>, stage: &dyn OrderCallbacks) -> Result<Account, AcmeError> {
    let builder = || -> Result<AccountBuilder, Error> {
        request.root.map_or_else(Account::builder, Account::builder_with_root)
    };
    if let Some(known) = request.account {
        // An account that cannot be parsed counts as unknown.
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

/// The directory's errors for failed challenges, if any.
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

/// A problem document (RFC 7807) on one line.
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
            error => Self::Unreachable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl OrderCallbacks for Nothing {
        fn remember(&self, account: &str) {
            panic!("no directory, no account: {account}");
        }

        fn show(&self, proof: &Proof<'_>) {
            panic!("no directory, nothing to prove: {proof:?}");
        }
    }

    #[test]
    fn a_directory_that_is_out_of_reach_is_told_with_the_last_cause() {
        let request = OrderRequest {
            // A service of 1988 (RFC 1078), on a port that no test gets from the system.
            directory: "https://127.0.0.1:1/directory",
            root: None,
            email: None,
            account: None,
            names: &["a.example".into()],
            challenge: Challenge::Http,
            csr: &[],
        };
        let error = order(&request, &Nothing).expect_err("nobody listens there");
        assert_eq!((error.origin(), error.is_transient()), (ErrorOrigin::Upstream, true));
        let error = error.to_string();
        assert!(error.contains("cannot reach the directory") && error.contains("refused"), "{error}");
        let broken = OrderRequest { account: Some("{"), ..request };
        let error = order(&broken, &Nothing).expect_err("no account");
        assert!(matches!(error, AcmeError::NoAccount), "{error}");
        let absent = OrderRequest { root: Some(Path::new("absent.pem")), ..request };
        let error = order(&absent, &Nothing).expect_err("no such authority").to_string();
        // ENOENT and ERROR_FILE_NOT_FOUND.
        assert!(error.contains("(os error 2)"), "{error}");
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
        assert_eq!(error, "the directory rejected the order: rejectedIdentifier: not ours to give");
        let gone =
            Problem { r#type: Some("urn:ietf:params:acme:error:accountDoesNotExist".into()), ..problem };
        assert!(matches!(AcmeError::from(Error::Api(gone)), AcmeError::NoAccount));
    }
}
