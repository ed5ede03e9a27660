//! `encke pub`: publishes one message, or each line of standard input, over one connection.
//!
//! ```text
//!            ┌──────────── next line, not before it is due (--rate) ◄──────────────┐
//!            ▼                                                                     │
//!  line ─► request ─── 200, 201 ──► print id and number of subscribers ────────────┘
//!            ▲ │─── 429, 503 with Retry-After ──► wait, then retry the same line
//!            └─┼─── an idle connection was closed ──► new connection, same line, same key
//!              └─── anything else ──► error
//! ```
//! Every message has an idempotency key, so that a retry publishes it once. Lines are published in order. Each line is sent
//! after the previous one was confirmed, so every printed id belongs to a published message.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use encke_io::host;
use encke_wire::method::Method;
use serde_json::Value;

use crate::arguments::PublishArgs;
use crate::client::refusal::{self, Attempt};
use crate::client::{
    self, ChannelsPath, ClientError, ClientRequest, ClientResponse, Connection, ServerLocation, TrustSettings,
};
use crate::error::{ArgumentError, CommandError, CommandResult};
use crate::output::{note, print};

/// Timeout of a publish. Subscribers can slow a server down and delay its confirmation, but not for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum size of a message or line, which is held in memory: 64 times a server's default limit.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// How many times in a row a server may ask for a retry, and the longest retry time that is accepted.
const POSTPONED_MAX: u32 = 10;
const POSTPONED_TIME_MAX: Duration = Duration::from_secs(60);
/// The shortest, so that `Retry-After: 0` causes no loop.
const POSTPONED_TIME_MIN: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &PublishArgs) -> CommandResult {
    let source = MessageSource::of(arguments)?;
    let channels = ChannelsPath::of([arguments.channel.as_str()], &arguments.reach.server)
        .map_err(CommandError::usage)?;
    client::end_at_interrupt()?;
    // A message whose first attempt had no effect according to the server, but was published, is not published again.
    let key = match &arguments.key {
        Some(key) => key.clone(),
        None => new_key()?,
    };
    let mut publisher = ChannelPublisher::new(arguments, channels);
    match source {
        MessageSource::Given(data) => publisher.publish(data.as_bytes(), &key)?,
        MessageSource::File(path) => publisher.publish(&content(&path)?, &key)?,
        MessageSource::Input => {
            let typed = io::stdin().is_terminal();
            if typed {
                note("reading the message from the terminal; ^D ends it");
            }
            let data = whole(&mut io::stdin().lock(), "standard input")?;
            // A terminal that disappears also ends the input, perhaps in the middle of the message.
            if typed && !io::stdin().is_terminal() {
                return Err(CommandError::system("the terminal disappeared; nothing was published"));
            }
            publisher.publish(&data, &key)?;
        }
        MessageSource::Lines => publisher.lines(&mut io::stdin().lock(), &key)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A publish rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PublishPace {
    /// Time between the starts of two messages.
    apart: Duration,
}

impl FromStr for PublishPace {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let wrong = || ArgumentError::Rate(text.to_owned());
        let (number, unit_s) = match text.split_once('/') {
            None => (text, 1.0),
            Some((number, "s")) => (number, 1.0),
            Some((number, "m")) => (number, 60.0),
            Some(_) => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        // The limits are one message per day and one per microsecond. The test also rejects NaN.
        let apart_s = unit_s / number;
        if !(1e-6..=86_400.0).contains(&apart_s) {
            return Err(wrong());
        }
        Ok(Self { apart: Duration::from_secs_f64(apart_s) })
    }
}

/// The source of the messages.
#[derive(PartialEq, Eq, Debug)]
enum MessageSource<'a> {
    Given(&'a str),
    File(PathBuf),
    /// All of standard input is one message.
    Input,
    /// Each line of standard input is one message.
    Lines,
}

impl<'a> MessageSource<'a> {
    fn of(arguments: &'a PublishArgs) -> Result<Self, CommandError> {
        let source = match (&arguments.data, &arguments.file) {
            (None, None) => Self::Input,
            (None, Some(path)) => Self::File(path.clone()),
            (Some(data), _) => match data.strip_prefix('@') {
                _ if data == "-" => Self::Lines,
                Some("") => {
                    return Err(CommandError::usage("`@` without a file name: expected @FILE"));
                }
                Some(path) => Self::File(path.into()),
                None => Self::Given(data),
            },
        };
        if arguments.rate.is_some() && source != Self::Lines {
            return Err(CommandError::usage("--rate requires lines: set DATA to `-`"));
        }
        Ok(source)
    }
}

fn content(path: &Path) -> Result<Vec<u8>, CommandError> {
    let name = path.display().to_string();
    let mut file = File::open(path).map_err(|error| unreadable(error, &name))?;
    whole(&mut file, &name)
}

fn whole(input: &mut impl Read, name: &str) -> Result<Vec<u8>, CommandError> {
    let mut data = Vec::new();
    input.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut data).map_err(|error| unreadable(error, name))?;
    held(data, name)
}

fn unreadable(error: io::Error, name: &str) -> CommandError {
    CommandError::system(error).context(format_args!("cannot read {name}"))
}

/// Rejects data that is too large for one message.
fn held(data: Vec<u8>, name: &str) -> Result<Vec<u8>, CommandError> {
    if data.len() as u64 > MESSAGE_BYTES_MAX {
        let text = format!("{name} is larger than {} MiB, the maximum of a message", MESSAGE_BYTES_MAX >> 20);
        return Err(CommandError::system(text));
    }
    Ok(data)
}

/// Reads the next line without its line end. Returns `None` at the end of the input.
fn line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, CommandError> {
    let mut line = Vec::new();
    input
        .take(MESSAGE_BYTES_MAX + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(error, "standard input"))?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    held(line, "the line").map(Some)
}

/// Publishes to the channels of one path.
struct ChannelPublisher<'a> {
    arguments: &'a PublishArgs,
    channels: ChannelsPath,
    authorization: Option<String>,
    trust: TrustSettings,
    /// The connection that is reused for the next message.
    connection: Option<Connection>,
}

impl<'a> ChannelPublisher<'a> {
    fn new(arguments: &'a PublishArgs, channels: ChannelsPath) -> Self {
        let reach = &arguments.reach;
        let authorization = reach.token.as_ref().map(|token| format!("Bearer {token}"));
        let belief = TrustSettings::new(reach.cacert.clone(), reach.insecure);
        Self { arguments, channels, authorization, trust: belief, connection: None }
    }

    /// Publishes each line, in order. The key of a line is `key` and its number.
    fn lines(&mut self, input: &mut impl BufRead, key: &str) -> Result<(), CommandError> {
        let mut due = client::now();
        let mut number = 0_u64;
        while let Some(data) = line(input)? {
            number += 1;
            if let Some(pace) = self.arguments.rate {
                client::pause(Duration::from_nanos(due.saturating_sub(client::now())));
                // Lines that arrived late are not sent faster to catch up: the rate protects readers.
                due = due.max(client::now()) + pace.apart.as_nanos() as u64;
            }
            self.publish(&data, &format!("{key}-{number}"))
                .map_err(|error| error.context(format_args!("line {number}")))?;
        }
        Ok(())
    }

    /// Publishes one message and prints its id.
    fn publish(&mut self, data: &[u8], key: &str) -> Result<(), CommandError> {
        let target = self.channels.target(&[]);
        let arguments = self.arguments;
        let fields: Vec<(&str, &str)> = [
            ("Authorization", self.authorization.as_deref()),
            ("Content-Type", arguments.content_type.as_deref()),
            ("Encke-Event", arguments.event.as_deref()),
            ("Idempotency-Key", Some(key)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let request = ClientRequest { method: Method::Post, target: &target, fields: &fields, body: data };
        let mut postponed = 0;
        loop {
            let server = &self.channels.server;
            let answer = ask(server, &self.trust, &mut self.connection, &request)
                .map_err(|trouble| trouble.of_server(server))?;
            match (answer.head.status(), answer.head.retry_after()) {
                (200..=202, _) => return self.tell(&answer),
                (429 | 503, Some(time)) if postponed < POSTPONED_MAX && time <= POSTPONED_TIME_MAX => {
                    postponed += 1;
                    // `Retry-After` has a resolution of 1 s, so a limit of ten messages per second also yields 1 s.
                    let time = time.max(POSTPONED_TIME_MIN);
                    note(&format!("{server} requests a wait of {} s", time.as_secs()));
                    client::pause(time);
                }
                _ => {
                    let has_token = self.authorization.is_some();
                    let path = &self.channels.path;
                    return Err(refusal::of(server, path, Attempt::Publish, has_token, &answer));
                }
            }
        }
    }

    fn tell(&self, answer: &ClientResponse) -> Result<(), CommandError> {
        let told: Value = serde_json::from_slice(&answer.body).map_err(|error| {
            let text = format!("invalid response from {} ({error}); is it Encke?", self.channels.server);
            CommandError::server(text)
        })?;
        print(&if self.arguments.json { format!("{told}\n") } else { plain(&told) })
    }
}

/// Sends a request over the kept connection, or over a new one.
fn ask(
    server: &ServerLocation,
    belief: &TrustSettings,
    kept: &mut Option<Connection>,
    request: &ClientRequest<'_>,
) -> Result<ClientResponse, ClientError> {
    if let Some(mut connection) = kept.take() {
        match connection.ask(request, PATIENCE) {
            // The server may have closed the idle connection just now. If it published the message nevertheless, the
            // idempotency key prevents a second publish.
            Err(trouble) if trouble.is_lost() => {}
            answer => {
                *kept = Some(connection).filter(|connection| answer.is_ok() && connection.reusable());
                return answer;
            }
        }
    }
    let mut connection = Connection::to(server, belief)?;
    let answer = connection.ask(request, PATIENCE)?;
    *kept = Some(connection).filter(Connection::reusable);
    Ok(answer)
}

/// Formats a response for people: `ID, 3 subscribers`.
fn plain(told: &Value) -> String {
    let id = told["id"].as_str().unwrap_or("?");
    match told["subscribers"].as_u64() {
        Some(1) => format!("{id}, 1 subscriber\n"),
        Some(count) => format!("{id}, {count} subscribers\n"),
        None => format!("{id}\n"),
    }
}

/// Returns a random key of 64 bits, which distinguishes messages of this run from messages of other runs.
fn new_key() -> Result<String, CommandError> {
    let mut bits = [0; 8];
    host::random(&mut bits).map_err(|error| CommandError::system(error).context("no random numbers"))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn publish(line: &str) -> PublishArgs {
        let words = std::iter::once("encke pub").chain(line.split_whitespace());
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            publish: PublishArgs,
        }
        <Only as clap::Parser>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).publish
    }

    #[test]
    fn a_message_comes_from_where_the_command_line_says() {
        for (line, source) in [
            ("news", MessageSource::Input),
            ("news hi", MessageSource::Given("hi")),
            ("news -5", MessageSource::Given("-5")),
            ("news -", MessageSource::Lines),
            ("news - --rate 5/s", MessageSource::Lines),
            ("news @a", MessageSource::File("a".into())),
            ("news --file a", MessageSource::File("a".into())),
        ] {
            let arguments = publish(line);
            let found = MessageSource::of(&arguments).unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!(found, source, "{line}");
        }
        for line in ["news @", "news hi --rate 5/s", "news --rate 5/s"] {
            assert!(matches!(MessageSource::of(&publish(line)), Err(CommandError::Usage(_))), "{line}");
        }
    }

    #[test]
    fn a_pace_is_messages_in_a_time() {
        for (text, apart_ms) in [("10/s", 100), ("10", 100), ("30/m", 2_000), ("0.5/s", 2_000)] {
            let pace = PublishPace { apart: Duration::from_millis(apart_ms) };
            assert_eq!(text.parse().ok(), Some(pace), "{text}");
        }
        for text in ["", "0/s", "-1/s", "NaN", "inf/s", "1/h", "/s", "s", "1e300/s", "1e-300/s"] {
            assert!(text.parse::<PublishPace>().is_err(), "{text}");
        }
    }

    #[test]
    fn lines_end_as_any_system_ends_them() {
        let mut input = &b"one\ntwo\r\n\n three \nlast"[..];
        let mut found = Vec::new();
        while let Some(data) = line(&mut input).unwrap_or_else(|failure| panic!("{failure}")) {
            found.push(String::from_utf8(data).expect("text"));
        }
        assert_eq!(found, ["one", "two", "", " three ", "last"]);
    }

    #[test]
    fn an_answer_is_told_in_a_line() {
        assert_eq!(plain(&json!({"id": "a-7", "subscribers": 0})), "a-7, 0 subscribers\n");
        assert_eq!(plain(&json!({"id": "a-7", "subscribers": 1})), "a-7, 1 subscriber\n");
        assert_eq!(plain(&json!({"id": "a-7"})), "a-7\n");
        assert_eq!(plain(&json!([])), "?\n");
    }
}
