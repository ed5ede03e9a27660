//! `[cluster]`: where the streams are that several nodes share.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU16};
use std::path::{Path, PathBuf};

use encke_hub::limits::STREAMS_MAX;
use encke_hub::{Pattern, Queueing, Streams};
use encke_settings::{ByteSize, Contradiction, OrOff, Period, Secret, Section};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// `[cluster]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    /// NATS servers with JetStream, 2.10 or later: one or a list, as `nats://host:4222`, or `tls://host:4222` for TLS alone.
    /// Without any, this server is a node by itself. *start*
    #[serde(deserialize_with = "texts")]
    #[schemars(schema_with = "texts_schema")]
    pub nats: Vec<String>,
    /// What people call this node; else the name of the machine. *start*
    pub name: Option<String>,
    /// A token by which NATS lets nodes in. *start*
    pub token: Option<Secret>,
    /// Name of a user of NATS. *start*
    pub user: Option<String>,
    /// That user's password. *start*
    pub password: Option<Secret>,
    /// A credentials file of NATS (`.creds`), which holds a token and its key. *start*
    pub credentials: Option<PathBuf>,
    /// The authority, as PEM, that vouches for the servers, if it is a private one. Else those that the system trusts.
    /// *start*
    pub ca: Option<PathBuf>,
    /// Name of the stream; its subjects begin with it. Nodes of one stream are one cluster. It is made if it is not there, by
    /// the next four keys; once it is there it stays as it is. *start*
    pub stream: String,
    /// On how many NATS servers it is kept: 1, 3 or 5. *start*
    pub replicas: NonZeroU8,
    /// Where they keep it. *start*
    pub storage: StreamStorage,
    /// How long it keeps messages. *start*
    pub age: Period,
    /// How many bytes it keeps. *start*
    pub bytes: ByteSize,
    /// How long a publish may wait for its place in the stream; then it is a 503. *start*
    pub publish_time: Period,
    /// By how many filters at most this node asks for what its clients want: one a channel while they are few, then one for
    /// all whose names begin with the same segment, then one for everything. With 1 it always reads the whole stream. *start*
    pub filters: NonZeroU16,
    /// How long a channel that nobody here wants any more may go on coming, in case somebody wants it again. *start*
    pub linger: Period,
    /// What messages may take in memory that wait while the stream cannot be reached: publishers are answered with a 202
    /// and no id; or `off`: with a 503. They are gone if this node is killed. *start*
    pub queue: OrOff<ByteSize>,
    /// How long a message may wait; then it is dropped, and counted. *start*
    pub queue_age: Period,
    /// Streams for some of the channels, each with limits of its own: at most 7. All other channels are of `stream`. *start*
    pub streams: Vec<StreamSettings>,
}

/// `[[cluster.streams]]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// Its name; its subjects begin with it. *start*
    pub name: String,
    /// Patterns of its channels: `*` is one segment, `**` the rest. A channel is of the first stream with one that matches.
    /// *start*
    pub channels: Vec<String>,
    /// On how many NATS servers it is kept; else `cluster.replicas`. *start*
    pub replicas: Option<NonZeroU8>,
    /// Where they keep it; else `cluster.storage`. *start*
    pub storage: Option<StreamStorage>,
    /// How long it keeps messages; else `cluster.age`. *start*
    pub age: Option<Period>,
    /// How many bytes it keeps; else `cluster.bytes`. *start*
    pub bytes: Option<ByteSize>,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            nats: Vec::new(),
            name: None,
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

/// Where a stream is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamStorage {
    /// On disk.
    #[default]
    File,
    /// In memory: gone when all of its servers are.
    Memory,
}

impl ClusterSettings {
    /// Whether this server is one of several.
    pub fn is_on(&self) -> bool {
        !self.nats.is_empty()
    }

    /// Files that it names.
    fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let secrets = [&mut self.token, &mut self.password].into_iter().flatten();
        let secrets = secrets.filter_map(|secret| match secret {
            Secret::File(path) => Some(path),
            _ => None,
        });
        secrets.chain(&mut self.credentials).chain(&mut self.ca)
    }

    /// What may wait for the stream.
    pub(crate) fn queueing(&self) -> Queueing {
        match self.queue {
            OrOff::Off => Queueing::default(),
            OrOff::On(size) => {
                Queueing { bytes: size.bytes(), age_ms: self.queue_age.nanoseconds() / 1_000_000 }
            }
        }
    }

    /// Which channel is of which stream.
    ///
    /// # Errors
    /// The place in the list of what cannot be, and why.
    pub fn streams(&self) -> Result<Streams, (usize, String)> {
        if self.streams.len() >= STREAMS_MAX {
            let most = STREAMS_MAX - 1;
            let text = format!(
                "there are {} cluster.streams; at most {most} are allowed: join some",
                self.streams.len()
            );
            return Err((most, text));
        }
        let mut known: Vec<(&str, Pattern)> = Vec::new();
        let mut all = Vec::new();
        for (place, stream) in self.streams.iter().enumerate() {
            let wrong = |text: String| (place, text);
            let name = &stream.name;
            check_name("cluster.streams name", name).map_err(wrong)?;
            let earlier = self.streams[..place].iter().any(|other| other.name == *name);
            if earlier || *name == self.stream {
                return Err(wrong(format!(
                    "there are two streams {name:?}: name one of them otherwise, or join them"
                )));
            }
            if stream.channels.is_empty() {
                return Err(wrong(format!(
                    "the stream {name:?} has no channels: add channels = [\"{name}/**\"]"
                )));
            }
            let mut patterns = Vec::new();
            for text in &stream.channels {
                let pattern: Pattern = text
                    .parse()
                    .map_err(|error| wrong(format!("channels {text:?} of the stream {name:?}: {error}")))?;
                if let Some((owner, earlier)) = known.iter().find(|(_, earlier)| earlier.covers(&pattern)) {
                    return Err(wrong(format!(
                        "{text:?} of the stream {name:?} never matches, because {earlier} of {owner:?} comes first: leave it \
                         out, or put its stream before that one"
                    )));
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
        // A stream remembers no message for longer than it keeps one.
        let ages = self.streams.iter().filter_map(|stream| stream.age).chain([self.age]);
        let age = ages.map(Period::duration).min().unwrap_or_default();
        if self.queue.on().is_some() && self.queue_age.duration().saturating_mul(2) > age {
            let text = "cluster.queue_age must be at most half of cluster.age, and of the age of each of cluster.streams: for twice \
                        as long a stream has to know what it was sent before";
            wrong("queue_age", text.into());
        }
        if let Err(text) = check_name("cluster.stream", &self.stream) {
            wrong("stream", text);
        }
        if let Err((place, text)) = self.streams() {
            found.push(Contradiction::at(&["streams", &place.to_string()], text));
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for path in self.files_mut() {
            *path = folder.join(&*path);
        }
    }
}

/// NATS compares each pair of filters whenever a node wants something else: 128 take it some 3 ms,
/// twice as many three times that.
const FILTERS: NonZeroU16 = NonZeroU16::new(128).expect("not nought");

/// So many take NATS a tenth of a second.
const FILTERS_MAX: u16 = 1_000;
/// Whether NATS and its subjects take the name of a stream.
fn check_name(key: &str, name: &str) -> Result<(), String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || name.len() > STREAM_BYTES_MAX || !name.chars().all(plain) {
        return Err(format!("{key} {name:?} must have 1 to {STREAM_BYTES_MAX} letters, digits, - and _"));
    }
    Ok(())
}

/// NATS advises at most 32 characters for a stream's name, of which folders are made.
const STREAM_BYTES_MAX: usize = 32;

/// A text, or a list of them.
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
