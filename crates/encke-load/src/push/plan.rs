//! The plan of a push run: subscribers, channels, messages, and disturbances.

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

/// Settings of a push run.
#[derive(Clone, Debug)]
pub struct PushRunPlan {
    /// Address of the server.
    pub server: Address,
    /// Local addresses that connections are made from, in rotation. Empty: chosen by [`PushRunPlan::placed`].
    pub sources: Vec<IpAddr>,
    /// Creates the TLS sessions; `None` for plaintext.
    pub tls: Option<Arc<dyn Sessions>>,
    /// The server's name in `Host`.
    pub authority: String,
    /// Dialect of the server.
    pub dialect: Dialect,
    /// How subscribers receive messages.
    pub transport: Transport,
    /// Names of channels, assigned to subscribers in rotation.
    pub channels: Vec<String>,
    /// Subscribers, over all threads.
    pub subscribers: u32,
    /// When messages are published: on a schedule, or each publisher as soon as it has a response.
    pub pace: Pace,
    /// Connections that publish.
    pub publishers: u16,
    /// Bytes of a message, at least [`mark::BYTES`].
    pub payload_bytes: usize,
    /// When publishing ends; a count is a number of messages.
    pub stop: Stop,
    /// Subscribers that connect per second at the beginning; `None`: [`DIALS_MAX`] at a time.
    pub connect_rate: Option<crate::Rate>,
    /// The share of subscribers that stops reading once subscribed. No receipts are expected from them.
    pub slow: f64,
    /// The share of subscribers that leaves and reconnects each second.
    pub churn: f64,
    /// Cuts all subscribers halfway, so that they reconnect at once. Requires [`Stop::After`].
    pub storm: bool,
    /// Requires one thread. Runs this number of cycles instead: all connect, one message reaches all, all leave, and a second
    /// passes before the next cycle.
    pub cycles: Option<u32>,
    /// Runs paced rounds of this kind instead, each started by the caller. Requires one thread.
    pub paced: Option<Paced>,
    /// Threads; each has its share of the subscribers. The first one also has the publishers.
    pub threads: u16,
    /// Time for a subscriber to connect and subscribe before it retries, and for a publish before it fails.
    pub timeout: Duration,
    /// How long to wait for outstanding receipts at the end.
    pub drain: Duration,
    /// Reactor back end.
    pub backend: Backend,
    /// Seed of the random generator.
    pub seed: u64,
    /// Identifies messages of this run.
    pub run: u32,
    /// A local process whose memory and processor time are measured.
    pub watch: Option<u32>,
}

/// Maximum concurrent connects without a rate: half of a listener's usual queue (512), so that connecting does not test it.
pub const DIALS_MAX: u32 = 256;

impl PushRunPlan {
    /// The default plan: a thousand subscribers of one channel, and ten messages of 64 bytes per second for ten seconds. `run`
    /// identifies the run.
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
            backend: Backend::auto().0,
            seed: 1,
            run,
            watch: None,
        }
    }

    /// Fills in `sources` if none are given; see [`PushRunPlan::placed`].
    #[must_use]
    pub fn placed(self) -> Self {
        Self { sources: Sources::of(&self.server, &self.sources, self.connections()), ..self }
    }

    /// Connections of subscribers and publishers.
    pub(crate) fn connections(&self) -> u64 {
        u64::from(self.subscribers) + u64::from(self.publishers)
    }

    /// Number of lanes: sequences of messages. Each belongs to one channel and one publisher, which sends its messages one
    /// after the other. A receiver can therefore check their order.
    pub(crate) fn lanes(&self) -> usize {
        self.channels.len().max(self.publishers.into())
    }
}

impl fmt::Display for PushRunPlan {
    /// One line: subscribers, messages and threads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = words::plural(self.channels.len() as u64, "channel");
        let subscribers = words::plural(self.subscribers.into(), "subscriber");
        let publishers = words::plural(self.publishers.into(), "publisher");
        let pace = match (&self.pace, self.cycles) {
            (_, Some(rounds)) => format!("{} of one message", words::plural(rounds.into(), "round")),
            (Pace::Closed, None) => format!("{publishers}, each after its previous response"),
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
