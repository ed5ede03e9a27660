//! `[cluster]`: the NATS servers and the streams that several nodes share.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU16};
use std::path::{Path, PathBuf};

#[cfg(feature = "nats")]
use encke_hub::Queueing;
use encke_hub::limits::SHARED_STREAMS_MAX;
use encke_hub::{Pattern, Streams};
use encke_settings::{ByteSize, Contradiction, OrOff, Period, Secret, Section, TargetScheme, TargetUrl};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::error::{StreamMistake, StreamNameError, StreamSettingsError};

/// `[cluster]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    /// NATS servers with JetStream, 2.10 or later: one or a list, as `nats://host:4222`, or `tls://host:4222` to require TLS.
    /// Without any, this server is not part of a cluster. *start*
    #[serde(deserialize_with = "texts")]
    #[schemars(schema_with = "texts_schema")]
    pub nats: Vec<String>,
    /// Name of this node for operators. The default is the machine's name. *start*
    pub name: Option<String>,
    /// URL under which the other nodes reach this one, as `http://node-a:8080`: they fetch live streams from it. Without it, the
    /// listeners of a stream whose source is on this node must use this node. *start*
    pub address: Option<TargetUrl>,
    /// Token for authentication at NATS. *start*
    pub token: Option<Secret>,
    /// User name for authentication at NATS. *start*
    pub user: Option<String>,
    /// Password of that user. *start*
    pub password: Option<Secret>,
    /// Credentials file of NATS (`.creds`), which holds a token and its key. *start*
    pub credentials: Option<PathBuf>,
    /// Certificate authority of the NATS servers, as PEM, if it is private. The default is the system's authorities. *start*
    pub ca: Option<PathBuf>,
    /// Name of the stream and prefix of its subjects. Nodes with the same stream form a cluster. If the stream does not exist,
    /// a node creates it with the next four keys. They do not change an existing stream. *start*
    pub stream: String,
    /// Number of NATS servers that store the stream: 1, 3 or 5. *start*
    pub replicas: NonZeroU8,
    /// Storage of the stream on these servers. *start*
    pub storage: StreamStorage,
    /// Time for which the stream keeps messages. *start*
    pub age: Period,
    /// Size of the stream, in bytes. Above it NATS drops the oldest messages. *start*
    pub bytes: ByteSize,
    /// Time for which a publish may wait for the stream. Then it is a 503. *start*
    pub publish_time: Period,
    /// Maximum number of filters by which this node consumes the channels of its clients, at most 1,000: one per channel while
    /// these are few, then one for all channels with the same first segment, then one for all channels. With 1 the node always
    /// consumes the whole stream. *start*
    pub filters: NonZeroU16,
    /// Time for which the node keeps consuming a channel without subscribers, in case a client subscribes again. *start*
    pub linger: Period,
    /// Memory for messages that wait while the stream is unreachable, in bytes. Publishers get 202 and no id; a message that
    /// does not fit is a 503. A killed node loses its queue. `off`: publishers get 503 during an outage. *start*
    pub queue: OrOff<ByteSize>,
    /// Time for which a message may wait in the queue. Then it is dropped and counted. *start*
    pub queue_age: Period,
    /// Separate streams for some channels, each with its own limits: at most 7. All other channels belong to `stream`. *start*
    pub streams: Vec<StreamSettings>,
}

/// `[[cluster.streams]]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// Name of the stream and prefix of its subjects. *start*
    pub name: String,
    /// Patterns of its channels: `*` is one segment, `**` the rest, at least one segment. A channel belongs to the first stream
    /// with a pattern that matches. *start*
    pub channels: Vec<String>,
    /// Number of NATS servers that store the stream. The default is `cluster.replicas`. *start*
    pub replicas: Option<NonZeroU8>,
    /// Storage of the stream on these servers. The default is `cluster.storage`. *start*
    pub storage: Option<StreamStorage>,
    /// Time for which the stream keeps messages. The default is `cluster.age`. *start*
    pub age: Option<Period>,
    /// Size of the stream, in bytes. The default is `cluster.bytes`. *start*
    pub bytes: Option<ByteSize>,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            nats: Vec::new(),
            name: None,
            address: None,
            token: None,
            user: None,
            password: None,
            credentials: None,
            ca: None,
            stream: "encke".into(),
            replicas: NonZeroU8::MIN,
            storage: StreamStorage::default(),
            age: Period::seconds(24 * 3600),
            bytes: ByteSize::of(1 << 30),
            publish_time: Period::seconds(5),
            filters: FILTERS,
            linger: Period::seconds(30),
            queue: OrOff::Off,
            queue_age: Period::seconds(60),
            streams: Vec::new(),
        }
    }
}

/// Storage of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamStorage {
    /// On disk.
    #[default]
    File,
    /// In memory: lost when all of its servers stop.
    Memory,
}

impl ClusterSettings {
    /// Whether this server is a node of a cluster.
    pub fn is_on(&self) -> bool {
        !self.nats.is_empty()
    }

    /// Returns the paths of the files that the section names.
    fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let secrets = [&mut self.token, &mut self.password].into_iter().flatten();
        let secrets = secrets.filter_map(|secret| match secret {
            Secret::File(path) => Some(path),
            _ => None,
        });
        secrets.chain(&mut self.credentials).chain(&mut self.ca)
    }

    /// Returns the limits of the queue for messages that wait for the stream.
    #[cfg(feature = "nats")]
    pub(crate) fn queueing(&self) -> Queueing {
        match self.queue {
            OrOff::Off => Queueing::default(),
            OrOff::On(size) => {
                Queueing { bytes: size.bytes(), age_ms: self.queue_age.nanoseconds() / 1_000_000 }
            }
        }
    }

    /// Returns the assignment of channels to streams.
    ///
    /// # Errors
    /// An entry of `streams` is invalid.
    pub fn streams(&self) -> Result<Streams, StreamSettingsError> {
        let wrong = |index, cause| StreamSettingsError { index, cause };
        if self.streams.len() >= SHARED_STREAMS_MAX {
            return Err(wrong(SHARED_STREAMS_MAX - 1, StreamMistake::Count(self.streams.len())));
        }
        let mut known: Vec<(&str, Pattern)> = Vec::new();
        let mut all = Vec::new();
        for (place, stream) in self.streams.iter().enumerate() {
            let wrong = |cause| wrong(place, cause);
            let name = &stream.name;
            check_name("cluster.streams name", name).map_err(|error| wrong(StreamMistake::Name(error)))?;
            let earlier = self.streams[..place].iter().any(|other| other.name == *name);
            if earlier || *name == self.stream {
                return Err(wrong(StreamMistake::Duplicate(name.clone())));
            }
            if stream.channels.is_empty() {
                return Err(wrong(StreamMistake::Empty(name.clone())));
            }
            let mut patterns = Vec::new();
            for text in &stream.channels {
                let (stream, text) = (name.clone(), text.clone());
                let pattern: Pattern = match text.parse() {
                    Ok(pattern) => pattern,
                    Err(cause) => return Err(wrong(StreamMistake::Pattern { stream, text, cause })),
                };
                if let Some((owner, earlier)) = known.iter().find(|(_, earlier)| earlier.covers(&pattern)) {
                    let (earlier, owner) = (earlier.to_string(), (*owner).to_owned());
                    return Err(wrong(StreamMistake::Covered { stream, text, earlier, owner }));
                }
                known.push((name, pattern.clone()));
                patterns.push(pattern);
            }
            all.push(patterns);
        }
        Ok(Streams::new(all))
    }
}

impl Section for ClusterSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |key: &str, text: String| found.push(Contradiction::at(&[key], text));
        for server in &self.nats {
            let host = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
            if host.is_none_or(str::is_empty) {
                wrong("nats", format!("{server:?} is no NATS server: write it as nats://host:4222"));
            }
        }
        if let Some(address) = &self.address
            && !is_for_others(address)
        {
            let text = format!(
                "other nodes cannot reach {address}: write the host name or address of this machine and the port of a listener, \
                 as http://node-a:8080"
            );
            wrong("address", text);
        }
        if self.user.is_some() != self.password.is_some() {
            wrong("user", "cluster.user and cluster.password belong together".into());
        }
        let ways = [self.token.is_some(), self.user.is_some(), self.credentials.is_some()];
        if ways.into_iter().filter(|way| *way).count() > 1 {
            let text = "cluster.token, cluster.user and cluster.credentials are three ways in: leave one";
            wrong("nats", text.into());
        }
        if self.filters.get() > FILTERS_MAX {
            wrong("filters", format!("cluster.filters is at most {FILTERS_MAX}"));
        }
        // The duplicate window of a stream cannot be longer than its age.
        let ages = self.streams.iter().filter_map(|stream| stream.age).chain([self.age]);
        let age = ages.map(Period::duration).min().unwrap_or_default();
        if self.queue.on().is_some() && self.queue_age.duration().saturating_mul(2) > age {
            let text = "cluster.queue_age must be at most half of cluster.age, and of the age of each of cluster.streams: for twice \
                        as long a stream has to know what it was sent before";
            wrong("queue_age", text.into());
        }
        if let Err(error) = check_name("cluster.stream", &self.stream) {
            wrong("stream", error.to_string());
        }
        if let Err(error) = self.streams() {
            found.push(Contradiction::at(&["streams", &error.index().to_string()], error.to_string()));
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for path in self.files_mut() {
            *path = folder.join(&*path);
        }
    }
}

/// Whether other machines may reach an address: no socket of this machine, no application, and not all addresses at once.
fn is_for_others(address: &TargetUrl) -> bool {
    let is_http = matches!(address.scheme(), TargetScheme::Http | TargetScheme::Https);
    let host = address.authority();
    let is_socket = address.clone().unix_path().is_some();
    let is_all = host.starts_with("0.0.0.0") || host.starts_with("[::]");
    is_http && address.app().is_none() && !is_socket && !is_all
}

/// NATS compares each pair of filters whenever a node's channels change: 128 filters take some 3 ms, twice as many three times
/// that.
const FILTERS: NonZeroU16 = NonZeroU16::new(128).expect("not nought");

/// 1,000 filters take NATS a tenth of a second.
const FILTERS_MAX: u16 = 1_000;

/// Whether NATS accepts the name for a stream and its subjects.
fn check_name(key: &'static str, name: &str) -> Result<(), StreamNameError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || name.len() > STREAM_BYTES_MAX || !name.chars().all(plain) {
        return Err(StreamNameError { key, name: name.to_owned() });
    }
    Ok(())
}

/// NATS recommends at most 32 characters for the name of a stream, because it names directories after it.
pub(super) const STREAM_BYTES_MAX: usize = 32;

/// Parses a text, or a list of them.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct OneOrMany;

    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a server in quotes, or a list of them")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                texts.push(text);
            }
            Ok(texts)
        }
    }

    deserializer.deserialize_any(OneOrMany)
}

fn texts_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
}
