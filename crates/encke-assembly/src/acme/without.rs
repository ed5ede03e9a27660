//! Stand-in for [`Acme`] in a build without TLS, which orders no certificates.

use std::sync::Arc;

use encke_server::{Exchange, Outcome, Reply, Request};
use encke_session::tls::Proofs;
use encke_settings::AcmeSettings;
use encke_stats::Source;

use crate::error::ServiceError;

/// Replaces the ACME client: orders no certificates, and rejects requests for challenges with 404.
#[derive(Debug, Default)]
pub(crate) struct Acme(Arc<Proofs>);

impl Acme {
    /// Ignores the certificates to maintain.
    pub(crate) fn care(self: &Arc<Self>, _: Vec<AcmeSettings>) -> Result<(), ServiceError> {
        Ok(())
    }

    pub(crate) fn end(&self) {}

    pub(crate) fn proofs(&self) -> &Arc<Proofs> {
        &self.0
    }

    pub(crate) fn answer(&self, _: &Request<'_>, _: Exchange) -> Outcome {
        Outcome::Now(Reply::error(404))
    }
}

impl Source for Acme {
    fn name(&self) -> &'static str {
        "acme"
    }
}
