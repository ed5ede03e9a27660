//! A build without TLS: no certificate is ordered.

use std::io;
use std::sync::Arc;

use encke_session::tls::Proofs;
use encke_settings::AcmeSettings;
use encke_stats::Source;

use crate::exchange::Exchange;
use crate::handler::Outcome;
use crate::reply::Reply;
use crate::request::Request;

/// What would fetch certificates.
#[derive(Debug, Default)]
pub struct Acme(Arc<Proofs>);

impl Acme {
    pub fn care(self: &Arc<Self>, _: Vec<AcmeSettings>) -> io::Result<()> {
        Ok(())
    }

    pub fn end(&self) {}

    pub fn proofs(&self) -> &Arc<Proofs> {
        &self.0
    }

    pub fn answer(&self, _: &Request<'_>, _: Exchange) -> Outcome {
        Outcome::Now(Reply::error(404))
    }
}

impl Source for Acme {
    fn name(&self) -> &'static str {
        "acme"
    }
}
