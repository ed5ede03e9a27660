//! NATS servers: one as in the broker's tests, three as one JetStream cluster, and direct requests to them.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use encke_io::testing::{own_host, wait_for, wait_until};
use serde_json::{Value, json};

#[path = "../../../encke-broker/tests/server/mod.rs"]
pub(crate) mod server;

pub(crate) use server::Nats;

/// Returns the address without a scheme.
pub(crate) fn address(nats: &Nats) -> String {
    nats.url().trim_start_matches("nats://").to_owned()
}

/// Three servers that store a stream with three replicas.
pub(crate) struct Trio(pub(crate) Vec<Nats>);

impl Trio {
    /// Starts the servers, and returns when they can store a stream.
    pub(crate) fn start(name: &str) -> Self {
        // Each server must know the others' ports before they start. An address of their own has all of them free.
        let host = own_host();
        let route = |number: u16| format!("nats://{host}:{}", 6222 + number);
        let routes: Vec<String> = (0..3).map(route).collect();
        let routes = routes.join(",");
        let one = |number: u16| {
            let name = format!("{name}-{number}");
            let arguments =
                ["--name", &name, "--cluster_name", "trio", "--cluster", &route(number), "--routes", &routes];
            Nats::start(&name, &arguments)
        };
        let trio = Self((0..3).map(one).collect());
        // If a probe can be stored with three replicas, a stream can, too.
        let probe = json!({ "name": "probe", "subjects": ["probe"], "num_replicas": 3, "storage": "memory" });
        wait_until("a stream of three replicas can be created", || {
            api(&trio.0[0], "STREAM.CREATE.probe", &probe).is_ok_and(|told| told["error"].is_null())
        });
        api(&trio.0[0], "STREAM.DELETE.probe", &json!({})).expect("it has just answered");
        trio
    }

    /// Returns the URLs as a TOML list.
    pub(crate) fn urls(&self) -> String {
        format!("{:?}", self.0.iter().map(Nats::url).collect::<Vec<_>>())
    }

    /// Waits until the stream has a leader, and returns its index.
    pub(crate) fn leader(&self, stream: &str) -> usize {
        let leader = |nats: &Nats| {
            let told = api(nats, &format!("STREAM.INFO.{stream}"), &json!({})).unwrap_or_default();
            told["cluster"]["leader"].as_str()?.rsplit('-').next()?.parse().ok()
        };
        wait_for(&format!("the stream {stream} has a leader"), || self.0.iter().find_map(leader))
    }
}

/// Sends a JetStream API request, which may be repeated: servers without a leader drop it. Returns the response.
///
/// # Errors
/// The server cannot be reached, or does not respond.
pub(crate) fn api(nats: &Nats, subject: &str, question: &Value) -> io::Result<Value> {
    let asked = |_| api_once(nats, subject, question);
    let is_over = |answer: &io::Result<Value>| {
        !answer
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    (0..60).map(asked).find(is_over).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
}

/// Sends a request by the NATS protocol, which consists of lines of text.
fn api_once(nats: &Nats, subject: &str, question: &Value) -> io::Result<Value> {
    let mut stream = BufReader::new(TcpStream::connect(address(nats))?);
    stream.get_ref().set_read_timeout(Some(Duration::from_secs(2)))?;
    let question = question.to_string();
    let length = question.len();
    let asked = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB $JS.API.{subject} answer {length}\r\n{question}\r\n"
    );
    stream.get_mut().write_all(asked.as_bytes())?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !line.starts_with("MSG ") {
            continue;
        }
        let length = line.trim_end().rsplit(' ').next().and_then(|length| length.parse().ok());
        let mut answer = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
        stream.read_exact(&mut answer)?;
        return Ok(serde_json::from_slice(&answer)?);
    }
}
