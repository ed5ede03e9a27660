//! `https` for `encke load`: sessions of `encke-server`, where `encke-load` asks for any.

use std::fmt;
use std::io;

use encke_load::Protocol;
use encke_load::tls::{Session, Sessions};
use encke_server::{ClientSession, Trust};

use crate::client::Belief;

/// Sessions with a server of this name.
pub(super) struct Sealed {
    trust: Trust,
    name: String,
}

impl Sealed {
    /// Sessions with whom the flags have believed; each begins anew, or goes on with one of before.
    ///
    /// # Errors
    /// There is nobody to believe.
    pub(super) fn by(belief: &Belief, name: String, resumes: bool, protocol: Protocol) -> io::Result<Self> {
        let trust = belief.trust()?.clone();
        let trust = if resumes { trust } else { trust.forgetting() };
        let trust = if protocol == Protocol::Http2 { trust.for_http2() } else { trust };
        Ok(Self { trust, name })
    }
}

impl Sessions for Sealed {
    fn begin(&self) -> Result<Box<dyn Session>, String> {
        match self.trust.session(&self.name) {
            Ok(session) => Ok(Box::new(Link(session))),
            Err(distrust) => Err(distrust.to_string()),
        }
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One of them.
struct Link(ClientSession);

impl Session for Link {
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), String> {
        self.0.open(arrived, plain).map_err(|distrust| distrust.to_string())
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        self.0.seal(plain, out).map_err(|distrust| distrust.to_string())
    }

    fn output(&mut self, out: &mut Vec<u8>) {
        self.0.output(out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(out);
    }

    fn is_established(&self) -> bool {
        self.0.is_established()
    }

    fn is_ended(&self) -> bool {
        self.0.is_ended()
    }

    fn speaks_http2(&self) -> bool {
        self.0.speaks_http2()
    }

    fn is_resumed(&self) -> bool {
        self.0.is_resumed()
    }
}
