//! What a run of subscribers does: how many, on what, what is said to them and how, and what befalls them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_io::{Address, Backend};
use encke_session::tls::Sessions;

use super::dialect::{Dialect, Transport};
use super::mark;
use super::paced::Paced;
use crate::dial::{self, Sources};
use crate::pace::Pace;
use crate::plan::Stop;
use crate::words;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub server: Address,
    /// Addresses that connections come from, each in its turn; none: as [`Plan::placed`] has it.
    pub sources: Vec<IpAddr>,
    /// What speaks TLS with it; none: nothing is sealed.
    pub tls: Option<Arc<dyn Sessions>>,
    /// What the server is called in `Host`.
    pub authority: String,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// How subscribers receive.
    pub transport: Transport,
    /// Names of channels; subscriber n listens to the n-th, round and round.
    pub channels: Vec<String>,
    /// Subscribers in all.
    pub subscribers: u32,
    /// When messages are published: on a schedule, or each publisher as soon as it is answered.
    pub pace: Pace,
    /// Connections that publish.
    pub publishers: u16,
    /// Bytes of a message, at least [`mark::BYTES`].
    pub payload_bytes: usize,
    /// When publishing ends; a count is one of messages.
    pub stop: Stop,
    /// Subscribers that connect a second, at the beginning; `None`: [`DIALS_MAX`] at a time.
    pub connect_rate: Option<crate::Rate>,
    /// Of the subscribers, the share that stops reading as soon as it is answered. They are not expected to
    /// receive anything.
    pub slow: f64,
    /// Of the subscribers, the share that leaves and comes back each second.
    pub churn: f64,
    /// At half time all are cut and come back at once. It needs a [`Stop::After`].
    pub storm: bool,
    /// In place of all that: all connect, one message, all receive it, all leave, a second's rest; so often.
    /// It needs one thread.
    pub cycles: Option<u32>,
    /// In place of all that: rounds of this kind, each begun from outside. They need one thread.
    pub paced: Option<Paced>,
    /// Threads; each has its share of the subscribers, the first one the publishers, too.
    pub threads: u16,
    /// Who is not connected and answered by then tries again; a publish that is not answered by then has failed.
    pub timeout: Duration,
    /// How long at the end what has not come is waited for.
    pub drain: Duration,
    /// How events are waited for.
    pub backend: Backend,
    /// Where chance begins.
    pub seed: u64,
    /// What tells messages of this run from those of others.
    pub run: u32,
    /// A process of this machine whose memory and processor time are told beside.
    pub watch: Option<u32>,
}

/// Subscribers that connect at a time where no rate is given: half of a listener's usual queue (512), so that
/// opening them is no test of that queue.
pub const DIALS_MAX: u32 = 256;

impl Plan {
    /// A thousand subscribers of one channel and ten messages of 64 bytes a second for ten seconds: what is meant
    /// where nothing else is said. The run's number is `run`.
    pub fn new(
        server: impl Into<Address>,
        authority: String,
        dialect: Dialect,
        transport: Transport,
        run: u32,
    ) -> Self {
        Self {
            server: server.into(),
            sources: Vec::new(),
            tls: None,
            authority,
            dialect,
            transport,
            channels: vec!["load".into()],
            subscribers: 1_000,
            pace: Pace::Open(crate::Rate::constant(10.0).expect("ten is a rate"), crate::Arrivals::Even),
            publishers: 1,
            payload_bytes: mark::BYTES.max(64),
            stop: Stop::After(Duration::from_secs(10)),
            connect_rate: None,
            slow: 0.0,
            churn: 0.0,
            storm: false,
            cycles: None,
            paced: None,
            threads: 1,
            timeout: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            backend: Backend::EpollEdge,
            seed: 1,
            run,
            watch: None,
        }
    }

    /// With the addresses that connections come from, where nobody has named some; see [`crate::Plan::placed`].
    #[must_use]
    pub fn placed(self) -> Self {
        Self { sources: Sources::of(&self.server, &self.sources, self.connections()), ..self }
    }

    /// Connections in all.
    pub(crate) fn connections(&self) -> u64 {
        u64::from(self.subscribers) + u64::from(self.publishers)
    }

    /// Sequences of messages. Each belongs to one channel and one publisher, which sends its messages one after the
    /// other: so they have an order that a receiver can check.
    pub(crate) fn lanes(&self) -> usize {
        self.channels.len().max(self.publishers.into())
    }
}

impl fmt::Display for Plan {
    /// What is done, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = words::plural(self.channels.len() as u64, "channel");
        let subscribers = words::plural(self.subscribers.into(), "subscriber");
        let publishers = words::plural(self.publishers.into(), "publisher");
        let pace = match (&self.pace, self.cycles) {
            (_, Some(rounds)) => format!("{} of one message", words::plural(rounds.into(), "round")),
            (Pace::Closed, None) => format!("{publishers}, each as soon as it is answered"),
            (Pace::Open(rate, _), None) => format!("{rate} from {publishers}"),
        };
        let bytes = words::count(self.payload_bytes as u64);
        let threads = words::plural(self.threads.into(), "thread");
        let (transport, backend) = (self.transport.name(), self.backend);
        let from = dial::from(&self.sources);
        write!(
            f,
            "{subscribers} of {channels} by {transport}{from}; {pace}, {bytes} B; {threads} ({backend})"
        )
    }
}
