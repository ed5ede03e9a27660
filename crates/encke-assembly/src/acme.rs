//! Renewal of certificates by ACME: orders a certificate when it is due, and retries with back-off.
//!
//! ```text
//!              ┌──────────── kept until two thirds of its lifetime are over ─────────────┐
//!              ▼                                                                         │
//!  settings ─► due ─► key, order ─┬─ chain ──► file ─► CertWatcher ─► used by handshakes ┘
//!     ▲         ▲                 └─ error ──► log ──► retry after 1, 2, 4 … minutes, at most a day
//!     │         └───────────────────────────────────────┘
//!   a reload orders immediately, regardless of failures; a restart keeps the retry time of the failed order
//! ```
//! A thread of its own processes one order after the other. Nothing waits for it, not even the end of the server. [`Acme`] is
//! shared with the workers: it has the challenge responses while an order is open, as certificates (RFC 8737) or as pages (RFC
//! 8555 §8.3). `encke_broker::acme` implements the order itself; the certificate watch detects the new file.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{fmt, fs, io};

use encke_broker::acme::{self, AcmeError, Challenge, OrderCallbacks, OrderRequest, Proof};
use encke_io::clock::Clock;
use encke_io::host;
use encke_session::tls::{Life, Proofs, SigningRequest, TlsError, date};
use encke_stats::{Counter, Family, Source};

use encke_io::lock;
use encke_server::{CHALLENGES, Exchange, Outcome, Reply};
use encke_settings::state::{self, StateError, StateStep};
use encke_settings::{AcmeChallenge, AcmeSettings, Level, notice};

use crate::error::ServiceError;

/// Maximum time between two readings of the clock, so that a suspended laptop or a changed clock is noticed within a minute.
const WAIT_S_MAX: u64 = 60;
/// Retry time after the first failure. It doubles with each further one.
const BACK_OFF_S: u64 = 60;
/// Certificate authorities limit failures per hour and per week; one per day is within all limits.
const BACK_OFF_S_MAX: u64 = 24 * 60 * 60;

/// The state that the ordering thread shares with the workers.
#[derive(Debug, Default)]
pub(crate) struct Acme {
    /// Certificates for handshakes with the challenge protocol, while an order is open.
    proofs: Arc<Proofs>,
    /// Challenge pages by token, while an order is open.
    pages: Mutex<HashMap<String, String>>,
    commands: Mutex<AcmeCommands>,
    /// Signals a change of `commands`.
    bell: Condvar,
    issued: Counter,
    failed: Counter,
}

/// Commands to the ordering thread, and whether it runs. Certificate orders are in [`CertTask`].
#[derive(Debug, Default)]
struct AcmeCommands {
    /// New certificates to maintain, until the thread takes them.
    wanted: Option<Vec<AcmeSettings>>,
    /// The thread was started.
    running: bool,
    /// The thread must end.
    over: bool,
}

/// The thread's next step.
enum AcmeStep {
    Care(Vec<AcmeSettings>),
    Look,
    End,
}

impl Acme {
    /// Replaces the certificates to maintain. Certificates that are due are ordered immediately.
    ///
    ///  # Errors
    /// The thread cannot be started.
    pub(crate) fn care(self: &Arc<Self>, mut wanted: Vec<AcmeSettings>) -> Result<(), ServiceError> {
        let mut commands = lock(&self.commands);
        if wanted.is_empty() && !commands.running {
            return Ok(());
        }
        // Several listeners may use the same certificate.
        let mut files = Vec::new();
        wanted.retain(|settings| {
            let file = settings.file();
            let first = !files.contains(&file);
            files.push(file);
            first
        });
        commands.wanted = Some(wanted);
        if !commands.running {
            let acme = Arc::clone(self);
            thread::Builder::new()
                .name("acme".into())
                .spawn(move || acme.run())
                .map_err(ServiceError::Thread)?;
            commands.running = true;
        }
        self.bell.notify_one();
        Ok(())
    }

    /// Starts no further order. Does not wait for an open one.
    pub(crate) fn end(&self) {
        lock(&self.commands).over = true;
        self.bell.notify_one();
    }

    /// The certificates for handshakes with the challenge protocol.
    pub(crate) fn proofs(&self) -> &Arc<Proofs> {
        &self.proofs
    }

    /// Responds to a request below [`CHALLENGES`].
    pub(crate) fn answer(&self, request: &encke_server::Request<'_>, _: Exchange) -> Outcome {
        let token = request.path().strip_prefix(CHALLENGES.as_bytes()).map(String::from_utf8_lossy);
        let page = token.and_then(|token| lock(&self.pages).get(token.as_ref()).cloned());
        Outcome::Now(page.map_or_else(|| Reply::error(404), |page| Reply::text(200, page)))
    }

    fn run(&self) {
        let mut clock = Clock::new();
        let mut tasks: Vec<CertTask> = Vec::new();
        let mut task_of: fn(AcmeSettings, u64) -> CertTask = CertTask::resumed;
        loop {
            let now_s = clock.now().unix_s();
            let due_s = tasks.iter().map(|task| task.due_s).min();
            let wait_s = due_s.map_or(WAIT_S_MAX, |due_s| due_s.saturating_sub(now_s).min(WAIT_S_MAX));
            match self.next(Duration::from_secs(wait_s)) {
                AcmeStep::End => return,
                AcmeStep::Care(wanted) => {
                    tasks = wanted.into_iter().map(|one| task_of(one, now_s)).collect();
                    task_of = CertTask::new;
                }
                AcmeStep::Look => {}
            }
            let now_s = clock.now().unix_s();
            let due = tasks.iter_mut().filter(|task| task.due_s <= now_s).min_by_key(|task| task.due_s);
            if let Some(task) = due {
                task.order(self, &mut clock);
            }
        }
    }

    /// Waits for the next command, for at most `time`.
    fn next(&self, time: Duration) -> AcmeStep {
        let quiet = |commands: &mut AcmeCommands| commands.wanted.is_none() && !commands.over;
        let waited = self.bell.wait_timeout_while(lock(&self.commands), time, quiet);
        let mut commands = waited.unwrap_or_else(PoisonError::into_inner).0;
        if commands.over {
            return AcmeStep::End;
        }
        commands.wanted.take().map_or(AcmeStep::Look, AcmeStep::Care)
    }
}

impl Source for Acme {
    fn name(&self) -> &'static str {
        "acme"
    }

    fn families(&self) -> Vec<Family> {
        let family = Family::counter("encke_acme_orders_total", "Certificate orders by outcome.")
            .with(&[("outcome", "issued")], self.issued.value())
            .with(&[("outcome", "failed")], self.failed.value());
        let running = lock(&self.commands).running;
        running.then_some(family).into_iter().collect()
    }
}

/// A certificate to maintain.
struct CertTask {
    settings: AcmeSettings,
    /// Time of the next order, in seconds since 1970.
    due_s: u64,
    /// Failed orders since the last success.
    failures: u32,
}

impl CertTask {
    fn new(settings: AcmeSettings, now_s: u64) -> Self {
        let whole =
            |life: &Life| settings.domains.iter().all(|name| life.names.contains(&name.to_ascii_lowercase()));
        let life = Life::read(&settings.file()).ok().filter(whole);
        let due_s = life.map_or(now_s, |life| renewal_s(&life, dice()));
        Self { settings, due_s, failures: 0 }
    }

    /// Creates a task with the failures that the previous process saved, so that restarts do not cause more orders.
    fn resumed(settings: AcmeSettings, now_s: u64) -> Self {
        let mut task = Self::new(settings, now_s);
        if let Some((failures, due_s)) = Self::remembered(&task.settings.failures())
            && due_s > task.due_s
        {
            // A retry time saved with a wrong clock is limited to the longest back-off.
            task.due_s = due_s.min(now_s + BACK_OFF_S_MAX * 5 / 4);
            task.failures = failures;
            let (names, due) = (task.settings.domains.join(", "), date(task.due_s));
            let failed = if failures == 1 { "order".into() } else { format!("{failures} orders") };
            let text = format!(
                "tls: the last {failed} for {names} failed; the next order is at {due}, or immediately after a reload"
            );
            notice::report(Level::Warn, &text);
        }
        task
    }

    /// Reads the number of failures in a row and the saved time of the next order. Returns `None` if the file is unreadable, so
    /// that nothing delays the order.
    fn remembered(file: &Path) -> Option<(u32, u64)> {
        let text = fs::read_to_string(file).ok()?;
        let (failures, due_s) = text.trim_end().split_once(' ')?;
        Some((failures.parse().ok()?, due_s.parse().ok()?))
    }

    /// Saves the failures for the next start, or removes the file if there are none.
    fn remember(&self) {
        let file = self.settings.failures();
        let kept = match self.failures {
            0 => fs::remove_file(&file).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(StateError::File(file, StateStep::Write, error)),
            }),
            failures => state::put_private(&file, format!("{failures} {}\n", self.due_s).as_bytes()),
        };
        if let Err(error) = kept {
            notice::report(Level::Warn, &format!("tls: cannot save the back-off of orders: {error}"));
        }
    }

    fn order(&mut self, acme: &Acme, clock: &mut Clock) {
        let names = self.settings.domains.join(", ");
        let directory = &self.settings.directory;
        let fetched = fetch(&self.settings, acme);
        // The challenge responses of this order are obsolete.
        acme.proofs.clear();
        lock(&acme.pages).clear();
        match fetched {
            Ok(life) => {
                acme.issued.increment();
                self.failures = 0;
                self.due_s = renewal_s(&life, dice());
                self.remember();
                let (ends, due) = (date(life.ends_s), date(self.due_s));
                let text = format!(
                    "tls: received a certificate for {names} from {directory}; it expires at {ends} and is renewed at {due}"
                );
                notice::report(Level::Info, &text);
            }
            Err(why) => {
                acme.failed.increment();
                self.failures += 1;
                let wait_s = back_off_s(self.failures, dice());
                self.due_s = clock.now().unix_s() + wait_s;
                self.remember();
                let again = date(self.due_s);
                let text =
                    format!("tls: no certificate for {names} from {directory}: {why}; retrying at {again}");
                notice::report(Level::Error, &text);
            }
        }
    }
}

/// Returns the renewal time of a certificate, in seconds since 1970: after two thirds of its lifetime, or up to a thirtieth of
/// the lifetime earlier, so that certificates issued together are not renewed together.
fn renewal_s(life: &Life, dice: u32) -> u64 {
    let whole_s = life.ends_s.saturating_sub(life.begins_s);
    let earlier_s = (whole_s / 30 * u64::from(dice)) >> 32;
    life.begins_s + whole_s * 2 / 3 - earlier_s
}

/// Returns the back-off after a number of failures: a minute, doubled each time up to a day, plus or minus a quarter.
fn back_off_s(failures: u32, dice: u32) -> u64 {
    let doubled_s = BACK_OFF_S << failures.saturating_sub(1).min(16);
    let middle_s = doubled_s.min(BACK_OFF_S_MAX);
    middle_s * 3 / 4 + ((middle_s / 2 * u64::from(dice)) >> 32)
}

/// Returns a random number. Without a source of randomness it is 0, and renewals are not spread.
fn dice() -> u32 {
    let mut bytes = [0; 4];
    let _or_nought = host::random(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// Why an order failed. It is retried after a back-off in every case.
#[derive(Debug)]
enum OrderError {
    /// This machine: the state directory.
    State(StateError),
    /// This machine: the key, or the certificate that was received.
    Tls(TlsError),
    /// The ACME directory, or the settings of its account: see [`AcmeError`].
    Acme(AcmeError),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Acme(error) => error.fmt(f),
        }
    }
}

impl Error for OrderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::State(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::Acme(error) => Some(error),
        }
    }
}

impl From<StateError> for OrderError {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl From<TlsError> for OrderError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<AcmeError> for OrderError {
    fn from(error: AcmeError) -> Self {
        Self::Acme(error)
    }
}

/// Orders a certificate and writes it with its key to the file.
fn fetch(settings: &AcmeSettings, acme: &Acme) -> Result<Life, OrderError> {
    let (file, account) = (settings.file(), settings.account());
    let folder = file.parent().unwrap_or(&settings.folder);
    state::make_folder(folder)?;

    let signing = SigningRequest::new(&settings.domains)?;

    let known = fs::read_to_string(&account).ok();
    let mut request = OrderRequest {
        directory: &settings.directory,
        root: settings.ca.as_deref(),
        email: settings.email.as_deref(),
        account: known.as_deref(),
        names: &settings.domains,
        challenge: match settings.challenge {
            AcmeChallenge::TlsAlpn => Challenge::TlsAlpn,
            AcmeChallenge::Http => Challenge::Http,
        },
        csr: signing.csr(),
    };
    let host_of_order = OrderHost { acme, account: &account };
    let chain = acme::order(&request, &host_of_order).or_else(|error| match error {
        AcmeError::NoAccount if known.is_some() => {
            request.account = None;
            acme::order(&request, &host_of_order)
        }
        error => Err(error),
    });
    // Key and certificate share one file, so that a reader never sees a mismatched pair.
    state::put_private(&file, (signing.key_pem() + &chain?).as_bytes())?;
    Ok(Life::read(&file)?)
}

/// The publisher of the challenge responses of an open order.
struct OrderHost<'a> {
    acme: &'a Acme,
    account: &'a Path,
}

impl OrderCallbacks for OrderHost<'_> {
    fn remember(&self, account: &str) {
        if let Err(error) = state::put_private(self.account, account.as_bytes()) {
            notice::report(Level::Warn, &format!("tls: cannot save the account: {error}"));
        }
    }

    fn show(&self, proof: &Proof<'_>) {
        match *proof {
            Proof::Http { token, content } => {
                lock(&self.acme.pages).insert(token.to_owned(), content.to_owned());
            }
            Proof::TlsAlpn { name, digest } => {
                if let Err(error) = self.acme.proofs.show(name, &digest) {
                    notice::report(
                        Level::Error,
                        &format!("tls: cannot create the challenge response for {name}: {error}"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 24 * 60 * 60;

    fn life(begins_s: u64, ends_s: u64) -> Life {
        Life { begins_s, ends_s, names: Vec::new(), permitted: Vec::new() }
    }

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_its_life_are_over_or_a_little_earlier() {
        let quarter = life(1_000, 1_000 + 90 * DAY_S);
        assert_eq!(renewal_s(&quarter, 0), 1_000 + 60 * DAY_S);
        assert_eq!(renewal_s(&quarter, u32::MAX), 1_000 + 57 * DAY_S + 1);
        // Six days, the shortest lifetime in use: renewed at the end of the fourth day.
        assert_eq!(renewal_s(&life(0, 6 * DAY_S), 0), 4 * DAY_S);
        assert_eq!(renewal_s(&life(5, 5), u32::MAX), 5, "one that never held is due at once");
        assert_eq!(renewal_s(&life(9, 5), u32::MAX), 9);
    }

    #[test]
    fn what_fails_is_tried_again_after_a_minute_two_four_and_so_on_up_to_a_day() {
        for (failures, middle_s) in
            [(1, 60), (2, 120), (3, 240), (11, 61_440), (12, DAY_S), (13, DAY_S), (u32::MAX, DAY_S)]
        {
            assert_eq!(back_off_s(failures, 0), middle_s * 3 / 4);
            assert_eq!(back_off_s(failures, 1 << 31), middle_s);
            assert_eq!(back_off_s(failures, u32::MAX), middle_s * 5 / 4 - 1);
        }
    }
    #[test]
    fn orders_are_shown_once_certificates_are_fetched() {
        let acme = Acme::default();
        assert!(acme.families().is_empty());
        lock(&acme.commands).running = true;
        acme.issued.add(3);
        acme.failed.add(1);
        let orders = Family::counter("encke_acme_orders_total", "Certificate orders by outcome.");
        let orders = orders.with(&[("outcome", "issued")], 3_u64).with(&[("outcome", "failed")], 1_u64);
        assert_eq!(acme.families(), [orders]);
    }
}
