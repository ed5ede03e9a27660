//! `[live]`: live streams.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use encke_push::{ChannelRules, Name, Overrun, Pattern};
use encke_session::tls::{TlsError, Trust};
use encke_settings::{
    ByteSize, Contradiction, OrAuto, OrOff, Period, Secret, Section, ShortForm, TextOrTable, UpstreamTls,
    ValueError, text_or_table,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::pull_token::{self, PullTokenError};
use crate::pull_url::PullUrl;

/// `[live]`
#[derive(Clone, PartialEq, Debug, serde::Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LiveSettings {
    /// Whether the server has live streams. They need `push.enabled`. *start*
    pub enabled: bool,
    /// Path prefix of the streams. Paths below it never name files. The stream `/live/film` is the channel `live/film`, by which
    /// `[auth]` grants rights: *publish* to send it, *subscribe* to receive it. *start*
    pub prefix: String,
    /// TLS to the servers of `pull` with an `https` URL, and to nodes of the cluster with such an address.
    pub tls: UpstreamTls,
    /// Number of streams that are fetched from other servers at the same time. Listeners of further ones receive a 502.
    pub pulls: NonZeroU32,
    /// Rules for streams by pattern; the most specific pattern applies.
    pub channel: Vec<LiveChannelSettings>,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            prefix: "/live/".into(),
            tls: UpstreamTls::default(),
            pulls: NonZeroU32::new(1_000).unwrap_or(NonZeroU32::MIN),
            channel: Vec::new(),
        }
    }
}

/// `[[live.channel]]`
#[derive(Clone, PartialEq, Debug, serde::Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LiveChannelSettings {
    /// Pattern of the streams, without the prefix: `*` is one segment, `**` the rest, at least one segment.
    pub pattern: String,
    /// Time for which frames are gathered into one message. Each message costs one send per listener: 100 ms of 1 Mbit/s cost a
    /// tenth of the CPU of single frames. `auto` is 100 ms for video and 250 ms for sound; `0s` sends each frame at once.
    pub gather: OrAuto<Period>,
    /// Age of the key frame at which a listener starts, if so old a one is kept. A player fills its buffer at once with this much
    /// of the stream. `0s` is the newest key frame: the least delay.
    pub burst: Period,
    /// Memory for the newest part of the stream, in bytes. It must hold two groups of pictures (from one key frame to the next).
    pub ring: ByteSize,
    /// Time for which the stream is kept. A listener that is slower than that continues at the newest key frame.
    pub time: Period,
    /// Time for which listeners wait when a source is lost, before their streams end.
    pub hold: Period,
    /// Number of listeners. Further ones are sent to a `sibling`, or receive a 503. `off` sets no limit.
    pub listeners: OrOff<NonZeroU32>,
    /// URLs of the same stream on other servers, for listeners above the limit: they are redirected (302) to each in turn.
    pub siblings: Vec<String>,
    /// URLs of the stream on other servers (`https://node-a:8443/live/film`), for a stream without a source of its own. Encke
    /// fetches the stream from the first server that has it: from the first listener on, until 30 s after the last one has left. A
    /// URL that ends with a slash gets the name of the stream. A table has the token that the server requires:
    /// `{ url = "https://node-a:8443/live/", token = { file = "node-a.token" } }`.
    #[serde(deserialize_with = "text_or_table::list")]
    #[schemars(schema_with = "pulls_schema")]
    pub pull: Vec<PullSettings>,
    /// The stream that listeners receive while the source is absent, without the prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

impl Default for LiveChannelSettings {
    fn default() -> Self {
        Self {
            pattern: "**".into(),
            gather: OrAuto::Auto,
            burst: Period::seconds(1),
            ring: ByteSize::of(8 << 20),
            time: Period::seconds(30),
            hold: Period::seconds(10),
            listeners: OrOff::Off,
            siblings: Vec::new(),
            pull: Vec::new(),
            fallback: None,
        }
    }
}

/// A server to fetch a stream from, written as its URL or as a table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullSettings {
    /// The URL of the stream. One that ends with a slash gets the name of the stream.
    pub url: String,
    /// The token that the server requires, sent as `Authorization: Bearer TOKEN`. A server of another name or port, to which this one
    /// redirects, does not get it. Read for each connection, so a changed file applies to the next one.
    #[serde(default)]
    pub token: Option<Secret>,
}

impl FromStr for PullSettings {
    type Err = ValueError;

    /// [`LiveSettings`] checks the URL.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self { url: text.to_owned(), token: None })
    }
}

impl ShortForm for PullSettings {
    type Text = String;
    const EXPECTED: &'static str = "a URL in quotes, or a table { url = … }";
}

/// As its URL, or as a table if there is a token.
impl Serialize for PullSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { url, token } = self;
        let Some(token) = token else { return serializer.serialize_str(url) };
        let mut table = serializer.serialize_map(Some(2))?;
        table.serialize_entry("url", url)?;
        table.serialize_entry("token", token)?;
        table.end()
    }
}

fn pulls_schema(generator: &mut SchemaGenerator) -> Schema {
    let one = TextOrTable::<PullSettings>::json_schema(generator);
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// The shortest time that two groups of pictures take in practice: two key frames of 2 s each. At 8 Mbit/s they have 4 MB.
const GROUPS_BYTES: u64 = 1 << 20;

impl LiveSettings {
    /// Begin of the names of all channels: the prefix without its first slash.
    pub(crate) fn names(&self) -> &str {
        self.prefix.strip_prefix('/').unwrap_or_default()
    }

    /// Reads the authorities of `tls`, if a stream is pulled by https or they are set.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn try_trust(&self) -> Result<(), TlsError> {
        let mut urls = self.channel.iter().flat_map(|channel| &channel.pull);
        if self.tls.ca.is_none() && !urls.any(|pull| pull.url.starts_with("https://")) {
            return Ok(());
        }
        Trust::of(&self.tls).map(drop)
    }

    /// Reads the tokens of `pull`. Returns the unusable ones: the numbers of the channel and of the URL, and the reason.
    pub fn try_tokens(&self) -> Vec<(usize, usize, PullTokenError)> {
        let pulls = self.channel.iter().enumerate().flat_map(|(channel, rules)| {
            rules.pull.iter().enumerate().map(move |(number, pull)| (channel, number, pull))
        });
        pulls
            .filter_map(|(channel, number, pull)| {
                let error = pull_token::reveal(pull.token.as_ref()?).err()?;
                Some((channel, number, error))
            })
            .collect()
    }

    /// Returns the pattern of all channels.
    ///
    /// # Errors
    /// The prefix is invalid.
    pub fn channels(&self) -> Result<Pattern, encke_push::PatternError> {
        self.pattern("**")
    }

    /// Returns the pattern of the channels of a rule.
    fn pattern(&self, of: &str) -> Result<Pattern, encke_push::PatternError> {
        format!("{}{of}", self.names()).parse()
    }

    /// Returns the rules of the channels, for push.
    pub(crate) fn rules(&self) -> Vec<(Pattern, ChannelRules)> {
        let every = LiveChannelSettings::default();
        let all = std::iter::once(&every).chain(&self.channel);
        all.filter_map(|channel| Some((self.pattern(&channel.pattern).ok()?, channel.rules()))).collect()
    }

    /// Returns the patterns of `channel` with their rules, most specific first.
    pub(crate) fn by_pattern(&self) -> Vec<(Pattern, LiveChannelSettings)> {
        let mut all: Vec<(Pattern, LiveChannelSettings)> = self
            .channel
            .iter()
            .filter_map(|channel| Some((self.pattern(&channel.pattern).ok()?, channel.clone())))
            .collect();
        // The most specific pattern is the greatest one.
        all.sort_by(|(one, _), (other, _)| other.cmp(one));
        all
    }
}

impl LiveChannelSettings {
    fn rules(&self) -> ChannelRules {
        ChannelRules {
            messages: usize::MAX,
            bytes: self.ring.bytes(),
            age_ms: self.time.nanoseconds() / 1_000_000,
            policy: Overrun::Key,
            burst_ms: self.burst.nanoseconds() / 1_000_000,
            ..ChannelRules::default()
        }
    }
}

impl Section for LiveSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let prefix = &self.prefix;
        let is_prefix = prefix.len() > 2
            && prefix.starts_with('/')
            && prefix.ends_with('/')
            && Name::parse(format!("{}film", self.names()).as_bytes()).is_ok();
        if !is_prefix {
            let message = format!(
                "live.prefix {prefix:?} is invalid: use a slash, a channel name and a slash, such as /live/"
            );
            found.push(Contradiction::at(&["prefix"], message));
        }
        for (number, channel) in self.channel.iter().enumerate() {
            let place = number.to_string();
            let mut wrong = |key: &str, message: String| {
                found.push(Contradiction::at(&["channel", &place, key], message));
            };
            let pattern = &channel.pattern;
            if pattern.starts_with('/') {
                let text = format!(
                    "the pattern {pattern:?} begins with a slash: write the names behind {prefix}, such as \"film\""
                );
                wrong("pattern", text);
            } else if let Err(error) = pattern.parse::<Pattern>() {
                wrong("pattern", format!("invalid pattern {pattern:?}: {error}"));
            }
            if self.channel.iter().take(number).any(|other| other.pattern == *pattern) {
                let text =
                    format!("the pattern {pattern:?} occurs twice in [[live.channel]]: merge the two rules");
                wrong("pattern", text);
            }
            if let Some(fallback) = &channel.fallback
                && let Err(error) = Name::parse(fallback.as_bytes())
            {
                wrong("fallback", format!("invalid stream {fallback:?}: {error}"));
            }
            for url in &channel.siblings {
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    wrong("siblings", format!("{url:?} is no URL: expected http://HOST/live/NAME"));
                }
            }
            for PullSettings { url, .. } in
                channel.pull.iter().filter(|pull| PullUrl::of(pull, "film").is_none())
            {
                let text = format!(
                    "{url:?} is no URL to pull from: expected http://HOST:PORT/live/NAME or https://HOST:PORT/live/NAME, without user and password"
                );
                wrong("pull", text);
            }
            if channel.listeners == OrOff::Off && !channel.siblings.is_empty() {
                wrong("siblings", "siblings need a limit: set listeners, too".into());
            }
            if channel.ring.bytes() < GROUPS_BYTES {
                let text = "the ring is too small for two groups of pictures: at 2 Mbit/s with a key frame every 2 s they have 1 MB; \
                            use 1MiB or more";
                wrong("ring", text.into());
            }
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        if let Some(path) = &mut self.tls.ca {
            *path = folder.join(&*path);
        }
        for pull in self.channel.iter_mut().flat_map(|channel| &mut channel.pull) {
            if let Some(Secret::File(path)) = &mut pull.token {
                *path = folder.join(&*path);
            }
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        let tokens =
            self.channel.iter().flat_map(|channel| &channel.pull).filter_map(|pull| pull.token.as_ref());
        tokens
            .filter_map(|token| match token {
                Secret::File(path) => Some(path.clone()),
                Secret::Text(_) | Secret::Env(_) => None,
            })
            .collect()
    }

    fn start_only(&self, new: &Self) -> Vec<&'static str> {
        let keys = [("enabled", self.enabled != new.enabled), ("prefix", self.prefix != new.prefix)];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &[(&str, u64)]) -> LiveSettings {
        let channel = toml.iter().map(|(pattern, seconds)| LiveChannelSettings {
            pattern: (*pattern).to_owned(),
            hold: Period::seconds(*seconds),
            ..LiveChannelSettings::default()
        });
        LiveSettings { channel: channel.collect(), ..LiveSettings::default() }
    }

    #[test]
    fn the_most_specific_pattern_applies_in_whatever_order_they_are_written() {
        let rules = [("**", 1), ("x", 2), ("news/*", 3), ("news/today", 4)];
        for turned in 0..rules.len() {
            let mut order = rules;
            order.rotate_left(turned);
            let sorted = settings(&order).by_pattern();
            let of = |name: &str| {
                let name = Name::parse(format!("live/{name}").as_bytes()).expect("a name");
                let found =
                    sorted.iter().find(|(pattern, _)| pattern.matches(&name)).expect("** matches all");
                found.1.hold.nanoseconds() / 1_000_000_000
            };
            assert_eq!([of("film"), of("x"), of("news/old"), of("news/today")], [1, 2, 3, 4]);
        }
    }

    #[test]
    fn wrong_settings_are_named_with_their_key_and_a_remedy() {
        let wrong = |change: &dyn Fn(&mut LiveChannelSettings)| {
            let mut channel = LiveChannelSettings::default();
            change(&mut channel);
            let found = LiveSettings { channel: vec![channel], ..LiveSettings::default() }.check();
            found
                .iter()
                .map(|one| format!("{}: {}", one.path.join("."), one.message))
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(wrong(&|_| {}), "");
        assert!(wrong(&|channel| channel.pattern = "a//b".into()).starts_with("channel.0.pattern: "));
        assert!(wrong(&|channel| channel.fallback = Some("/x".into())).starts_with("channel.0.fallback: "));
        let pull = |url: &str| vec![PullSettings { url: url.into(), token: None }];
        assert!(wrong(&|channel| channel.pull = pull("rtmp://a/live/")).contains("or https://HOST"));
        assert!(wrong(&|channel| channel.siblings = vec!["http://a/".into()]).contains("set listeners"));
        assert!(wrong(&|channel| channel.ring = ByteSize::of(1000)).contains("two groups of pictures"));
        assert!(
            wrong(&|channel| channel.pattern = "/live/x".into()).contains("behind /live/, such as \"film\"")
        );
        let twice =
            LiveSettings { channel: vec![LiveChannelSettings::default(); 2], ..LiveSettings::default() };
        let found = twice.check();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, ["channel", "1", "pattern"]);
        assert!(found[0].message.contains("merge the two rules"), "{}", found[0].message);
        let prefix = LiveSettings { prefix: "live".into(), ..LiveSettings::default() };
        assert_eq!(prefix.check().len(), 1);
    }

    #[test]
    fn a_server_to_pull_from_is_a_url_or_a_table_and_its_token_is_never_shown() {
        let json = r#"{"pull": [
            "http://a/live/",
            {"url": "http://b/live/", "token": "hunter2"},
            {"url": "http://c/live/", "token": {"file": "c.token"}}
        ]}"#;
        let channel: LiveChannelSettings = serde_json::from_str(json).expect("valid settings");
        let mut live = LiveSettings { channel: vec![channel], ..LiveSettings::default() };
        live.anchor(Path::new("/etc/encke"));
        let file = Path::new("/etc/encke").join("c.token");
        let pull = &live.channel[0].pull;
        let tokens: Vec<_> = pull.iter().map(|pull| pull.token.clone()).collect();
        assert_eq!(tokens, [None, Some(Secret::Text("hunter2".into())), Some(Secret::File(file.clone()))]);
        assert_eq!(live.private_files(), [file]);
        let written = serde_json::to_string(pull).expect("JSON");
        assert!(
            written.starts_with(r#"["http://a/live/",{"url":"http://b/live/","token":"***"#),
            "{written}"
        );
        let urls: Vec<_> = pull.iter().map(|pull| PullUrl::of(pull, "film").expect("a URL")).collect();
        for shown in [written, format!("{pull:?}"), format!("{urls:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let wrong = live.try_tokens();
        let [(0, 2, error)] = &wrong[..] else { panic!("{wrong:?}") };
        assert!(error.to_string().contains("c.token"), "{error}");
        for one in [r#"{"pull": "http://a/live/"}"#, r#"{"pull": {"url": "http://a/live/"}}"#] {
            let channel: LiveChannelSettings = serde_json::from_str(one).expect("one server");
            assert_eq!(channel.pull, [PullSettings { url: "http://a/live/".into(), token: None }]);
        }
        assert!(serde_json::from_str::<LiveChannelSettings>(r#"{"pull": [{"token": "x"}]}"#).is_err());
    }
}
