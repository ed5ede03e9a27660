//! The settings of the gateway: `[[upstream]]` and `[[site.route]]` tables.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use encke_settings::{
    ByteSize, Contradiction, Period, Section, ShortForm, TextOrTable, UpstreamTls, ValueError, text_or_table,
};
use encke_wire::proxy::ProxyVersion;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::balance_settings::{self, Balance, CheckSettings};
use crate::field_changes::FieldChanges;
use crate::route::Rewrite;
use encke_settings::{TargetScheme, TargetUrl};

/// Applications that serve the same requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamSettings {
    /// The name by which routes refer to the upstream.
    pub name: String,
    /// The applications: one or a list, each as a URL such as `"http://127.0.0.1:3000"` or `"http://unix:/run/app.sock"`, or as a
    /// table with further keys.
    #[serde(deserialize_with = "text_or_table::list")]
    #[schemars(schema_with = "targets_schema")]
    pub to: Vec<TargetSettings>,
    /// The choice of the target for a request: `"two"` (of two targets that are drawn by weight, the one with fewer requests in
    /// progress), `"least"` (the fewest of all), `"round_robin"`, or `{ hash = "address" }`, by which requests of one client lead to
    /// one target. Other keys of a hash are `"path"`, `{ field = "X-User" }` and `{ cookie = "NAME" }`; requests without them are
    /// spread as by `"two"`.
    pub balance: Balance,
    /// The name of a cookie by which a client returns to the target of its first response, while that gets requests. Its value does
    /// not show the address of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<String>,
    /// Checks of the targets: the path of a GET such as `"/health"`, or a table with further keys. While the checks of a target
    /// fail, it gets requests only if there is no other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<TextOrTable<CheckSettings>>,
    /// Time in which the share of a target rises from 10 % to 100 % after it has returned; 0: at once.
    pub slow_start: Period,
    /// TLS to applications with an `https` URL.
    pub tls: UpstreamTls,
    /// Maximum number of connections to each target, of all workers together, including WebSockets and kept connections; 0: no
    /// limit. For an application with a fixed number of workers, use that number.
    pub connections: u32,
    /// Requests that wait for a connection, of all workers together; with `sticky` or a hash, for each target. Further ones get a
    /// 503.
    pub queue: u32,
    /// Time for which a request waits for a connection. Then it gets a 503.
    pub queue_time: Period,
    /// Connections to each target that a worker keeps for further requests: 64 without this key, and none for FastCGI, where an
    /// idle connection occupies a process. 0: each request has its own connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Time after which a kept connection is closed. It should be shorter than the application's own limit: Node closes a
    /// connection after 5 s.
    pub keep_time: Period,
    /// Time for a connection to be established.
    pub connect_time: Period,
    /// Time from the request, or its last byte, to the first byte of the response.
    pub response_time: Period,
    /// Time without a byte within a response. Servers of event streams send a comment more often than that.
    pub idle_time: Period,
    /// Time without a byte in both directions of a WebSocket.
    pub tunnel_time: Period,
    /// Further attempts for a request: with any method if no connection was established; with GET, HEAD and OPTIONS also after a
    /// lost or late response.
    pub retries: u32,
    /// Whether requests have the field Forwarded (RFC 7239), too, besides X-Forwarded-For, -Proto and -Host.
    pub forwarded: bool,
    /// Whether requests and responses name this server in the field Via (RFC 9110 §7.6.3).
    pub via: bool,
    /// Version of the PROXY header with the client's address that begins each connection: `"v1"` or `"v2"`. Each request then
    /// has its own connection, and the targets cannot use TLS. Without it, applications find the address in X-Forwarded-For.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// A version of the PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl From<ProxyProtocol> for ProxyVersion {
    fn from(setting: ProxyProtocol) -> Self {
        match setting {
            ProxyProtocol::V1 => Self::V1,
            ProxyProtocol::V2 => Self::V2,
        }
    }
}

impl UpstreamSettings {
    /// Connections to each target that a worker keeps. One that begins with a client's address is for its requests only, and one
    /// to a FastCGI application occupies a process of it.
    pub(crate) fn kept(&self) -> u32 {
        let default = if self.is_fastcgi() { 0 } else { KEEP };
        if self.proxy_protocol.is_some() { 0 } else { self.keep.unwrap_or(default) }
    }

    /// Whether the applications speak FastCGI.
    pub(crate) fn is_fastcgi(&self) -> bool {
        self.to.iter().any(|target| target.url.scheme() == TargetScheme::FastCgi)
    }

    /// Whether an application is reached over TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        self.to.iter().any(|target| target.url.secure_name().is_some())
    }
}

/// An application of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetSettings {
    /// The URL of the application.
    pub url: TargetUrl,
    /// Share of the requests, compared with the other applications.
    #[serde(default = "one")]
    pub weight: NonZeroU16,
    /// Whether the application gets requests only while all others fail.
    #[serde(default)]
    pub backup: bool,
}

const fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

impl From<TargetUrl> for TargetSettings {
    fn from(url: TargetUrl) -> Self {
        Self { url, weight: one(), backup: false }
    }
}

impl FromStr for TargetSettings {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse::<TargetUrl>().map(Self::from)
    }
}

impl ShortForm for TargetSettings {
    type Text = TargetUrl;
    const EXPECTED: &'static str = "a URL in quotes, or a table { url = … }";
}

fn targets_schema(generator: &mut SchemaGenerator) -> Schema {
    let one = TextOrTable::<TargetSettings>::json_schema(generator);
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            to: Vec::new(),
            balance: Balance::Two,
            sticky: None,
            check: None,
            slow_start: Period::seconds(0),
            tls: UpstreamTls::default(),
            connections: 0,
            queue: 256,
            queue_time: Period::seconds(5),
            keep: None,
            keep_time: Period::seconds(4),
            connect_time: Period::seconds(2),
            response_time: Period::seconds(60),
            idle_time: Period::seconds(60),
            tunnel_time: Period::seconds(3_600),
            retries: 2,
            forwarded: false,
            via: false,
            proxy_protocol: None,
        }
    }
}

/// Connections to each target that a worker keeps, without a setting.
const KEEP: u32 = 64;

/// Maximum number of targets: a request stores the failed ones in 64 bits.
pub const TARGETS_MAX: usize = 64;

impl Section for UpstreamSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.name.is_empty() || self.name.contains([':', '/']) {
            let message =
                "an upstream needs a name without : and /, by which routes refer to it: name = \"app\"";
            found.push(Contradiction::at(&["name"], message));
        }
        if self.to.is_empty() {
            found.push(Contradiction::at(
                &["to"],
                "an upstream needs a target: to = [\"http://127.0.0.1:3000\"]",
            ));
        }
        if self.proxy_protocol.is_some() && self.uses_tls() {
            let message = "a PROXY header cannot precede TLS to an application: use http:// targets, or X-Forwarded-For";
            found.push(Contradiction::at(&["proxy_protocol"], message));
        }
        if self.connections == 0 {
            let default = Self::default();
            let unused = [
                ("queue", self.queue != default.queue),
                ("queue_time", self.queue_time != default.queue_time),
            ];
            for (key, _) in unused.into_iter().filter(|(_, set)| *set) {
                let message = format!("{key} has no effect without a limit: connections = 8");
                found.push(Contradiction::at(&[key], message));
            }
        }
        let is_http = |target: &TargetSettings| target.url.scheme() != TargetScheme::FastCgi;
        if self.is_fastcgi() && self.to.iter().any(is_http) {
            let message = "the targets of an upstream speak one protocol: all fcgi://, or none";
            found.push(Contradiction::at(&["to"], message));
        }
        if self.is_fastcgi() && self.proxy_protocol.is_some() {
            let message =
                "FastCGI has no PROXY header: applications find the client's address in REMOTE_ADDR";
            found.push(Contradiction::at(&["proxy_protocol"], message));
        }
        if self.to.len() > TARGETS_MAX {
            let message =
                format!("an upstream has at most {TARGETS_MAX} targets, and this one has {}", self.to.len());
            found.push(Contradiction::at(&["to"], message));
        }
        found.extend(balance_settings::check(self));
        found
    }

    fn anchor(&mut self, folder: &Path) {
        let targets = self.to.iter_mut().filter_map(|target| target.url.unix_path());
        for path in targets.chain(&mut self.tls.ca) {
            *path = folder.join(&*path);
        }
    }
}

/// Requests of a site that an application serves, or that are served from another path.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteSettings {
    /// Paths, as in `cache`: `/api/**`. The matching pattern with the most characters besides stars applies;
    /// patterns with `internal` precede all others.
    pub pattern: String,
    /// The name of an `[[upstream]]`, or the URL of an application: `"http://127.0.0.1:3000"`. Without it, the files of the site
    /// are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Address of php-fpm: the path of its Unix socket with a slash, or `HOST:PORT`; or the name of an `[[upstream]]` with `fcgi://`
    /// targets, for several of them, or for limits and times of your own. A path that names a script of the site runs it: `/a.php`,
    /// `/a.php/more`, and `/dir/` with an `index.php`. Other files are sent, and all other paths run `front`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub php: Option<String>,
    /// The script for paths that name neither a script nor a file.
    pub front: String,
    /// Whether the files of the site are tried before (`first`) or after (`last`) the application. A 404 of the first leads
    /// to the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesOrder>,
    /// Prefix that is removed from the path: with `/api`, `/api/users` becomes `/users`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip: Option<String>,
    /// The path that replaces the request's, with `$1` … `$8` for the texts that the stars of the pattern matched. The query is
    /// kept. Clients do not see this path, unlike that of `redirects`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<String>,
    /// Whether only an application can send a client here, by `X-Accel-Redirect`. Requests of clients get a 404.
    pub internal: bool,
    /// Directories from which the application may send files, by `X-Sendfile` or `X-Lighttpd-Send-File` with an absolute path.
    /// A relative directory starts at the directory of the settings file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sendfile: Vec<PathBuf>,
    /// Paths of channels to which the application may subscribe its clients, by `X-Accel-Redirect`: `["/push/news"]`, or with
    /// stars as in `pattern`. The clients need no other right for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribe: Vec<String>,
    /// Maximum size of a request's body. Only less than `limits.body_bytes` has an effect: that is the limit of all requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<ByteSize>,
    /// Bytes of a request's body that are read before the application gets the request, so that a slow client does not occupy a
    /// worker of it. Without it, the application gets the body as it arrives. A body that fits is sent with its length, and without
    /// chunks. It takes that much memory for each request whose body is incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ByteSize>,
    /// Whether the site's `errors` replace the error pages of the application.
    pub intercept_errors: bool,
    /// Whether responses are compressed by the rules of the site's `compression`, unless the application has compressed them.
    /// Turn it off for pages that contain a secret and repeat text of the request: their size could reveal the secret (BREACH).
    pub compress: bool,
    /// Changes to the fields of requests. In values, `{client}` is the client's address, `{host}` the request's host with its
    /// port, `{scheme}` is `http` or `https`, and `{user}` the name of a user who has authenticated.
    pub request: FieldRules,
    /// Changes to the fields of responses.
    pub response: FieldRules,
}

impl Default for RouteSettings {
    fn default() -> Self {
        Self {
            pattern: "/**".into(),
            upstream: None,
            php: None,
            front: FRONT.into(),
            files: None,
            strip: None,
            rewrite: None,
            internal: false,
            sendfile: Vec::new(),
            subscribe: Vec::new(),
            body_bytes: None,
            buffer: None,
            intercept_errors: false,
            compress: true,
            request: FieldRules::default(),
            response: FieldRules::default(),
        }
    }
}

/// The place of a site's files in the order of attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FilesOrder {
    /// Files first; the application serves all other paths.
    First,
    /// The application first; if it responds with 404, the files.
    Last,
}

/// Changes to header fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FieldRules {
    /// Names and values that replace all fields of the name.
    pub set: BTreeMap<String, String>,
    /// Names and values that are added to fields of the name.
    pub add: BTreeMap<String, String>,
    /// Names of fields that are removed.
    pub remove: Vec<String>,
}

/// The usual script for all paths of an application in PHP.
const FRONT: &str = "/index.php";

impl RouteSettings {
    /// The name of the upstream of a route with `php`; `None` if it has an address.
    pub fn php_upstream(&self) -> Option<&str> {
        self.php.as_deref().filter(|text| !text.contains([':', '/']))
    }

    /// The target of a route whose `php` is an address; `None` if it is a name, or absent.
    ///
    /// # Errors
    /// The text is no address.
    pub fn php_url(&self) -> Result<Option<TargetUrl>, ValueError> {
        let Some(text) = self.php.as_ref().filter(|_| self.php_upstream().is_none()) else { return Ok(None) };
        let is_host = !text.contains('/') && text.contains(':');
        let url = if is_host { format!("fcgi://{text}") } else { format!("fcgi://unix:{text}") };
        url.parse().map(Some)
    }

    /// The name of the upstream; `None` if the route has a URL or no upstream.
    pub fn upstream_name(&self) -> Option<&str> {
        self.upstream.as_deref().filter(|text| !is_url(text))
    }

    /// The target of a route whose `upstream` is a URL; `None` if it is a name, or absent.
    ///
    /// # Errors
    /// The text is a URL that no application can have.
    pub fn url(&self) -> Result<Option<TargetUrl>, ValueError> {
        match &self.upstream {
            Some(text) if is_url(text) => text.parse().map(Some),
            _ => Ok(None),
        }
    }
}

/// Whether the text of `upstream` is a URL or a port, and no name.
fn is_url(text: &str) -> bool {
    text.contains([':', '/']) || text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Section for RouteSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |key: &str, message: String| found.push(Contradiction::at(&[key], message));
        let pattern = encke_wire::path_pattern::PathPattern::parse(&self.pattern);
        if let Err(error) = &pattern {
            wrong("pattern", format!("{:?} is no pattern of paths: {error}", self.pattern));
        }
        for text in &self.subscribe {
            if let Err(error) = encke_wire::path_pattern::PathPattern::parse(text) {
                wrong("subscribe", format!("{text:?} is no pattern of paths: {error}"));
            }
        }
        if let Err(error) = self.php_url() {
            wrong("php", error.to_string());
        }
        if self.php.is_some() {
            let others = [
                ("upstream", self.upstream.is_some()),
                ("strip", self.strip.is_some()),
                ("rewrite", self.rewrite.is_some()),
                ("files", self.files.is_some()),
            ];
            for (key, _) in others.into_iter().filter(|(_, set)| *set) {
                wrong(key, format!("a route has php or {key}, not both"));
            }
        } else if self.front != FRONT {
            wrong("front", "front has no effect without php".into());
        }
        if !self.front.starts_with('/') || !self.front.ends_with(".php") {
            wrong("front", "a script is named by its path in the site: front = \"/index.php\"".into());
        }
        if let Err(error) = self.url() {
            wrong("upstream", error.to_string());
        }
        if let (Ok(pattern), Some(text)) = (&pattern, &self.rewrite)
            && let Err(error) = Rewrite::parse(text, pattern)
        {
            wrong("rewrite", error.to_string());
        }
        if self.strip.as_ref().is_some_and(|strip| !strip.starts_with('/') || strip.ends_with('/')) {
            wrong("strip", "a prefix begins with a slash and ends without one: strip = \"/api\"".into());
        }
        if let Some(strip) = &self.strip
            && !self.pattern.starts_with(strip.as_str())
        {
            let text = format!("no path of the pattern {:?} begins with {strip:?}", self.pattern);
            wrong("strip", text);
        }
        if self.strip.is_some() && self.rewrite.is_some() {
            wrong("strip", "a route has strip or rewrite, not both".into());
        }
        if self.upstream.is_none() && self.php.is_none() {
            let unused = [
                ("files", self.files.is_some()),
                ("sendfile", !self.sendfile.is_empty()),
                ("subscribe", !self.subscribe.is_empty()),
                ("body_bytes", self.body_bytes.is_some()),
                ("buffer", self.buffer.is_some()),
                ("intercept_errors", self.intercept_errors),
                ("compress", !self.compress),
                ("request", self.request != FieldRules::default()),
                ("response", self.response != FieldRules::default()),
            ];
            for (key, _) in unused.into_iter().filter(|(_, set)| *set) {
                wrong(key, format!("{key} has no effect without an upstream"));
            }
            if self.rewrite.is_none() && self.strip.is_none() && !self.internal {
                let message = "a route needs an upstream, strip, rewrite or internal: upstream = \"http://127.0.0.1:3000\"";
                wrong("pattern", message.into());
            }
        }
        for (section, rules) in [("request", &self.request), ("response", &self.response)] {
            if let Err((key, error)) = FieldChanges::of(rules, section == "request") {
                found.push(Contradiction::at(&[section, key], error.to_string()));
            }
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        for path in &mut self.sendfile {
            *path = folder.join(&*path);
        }
        if let Some(text) = &self.php
            && text.contains('/')
        {
            self.php = Some(folder.join(text).to_string_lossy().into_owned());
        }
        if let Some(text) = &self.upstream
            && let Ok(mut url) = text.parse::<TargetUrl>()
            && text.contains("unix:")
            && let Some(path) = url.unix_path()
        {
            *path = folder.join(&*path);
            self.upstream = Some(url.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_queue_need_a_limit_on_connections() {
        let mut settings = UpstreamSettings {
            name: "app".into(),
            to: vec!["3000".parse().expect("a URL")],
            queue: 1,
            queue_time: Period::seconds(1),
            ..UpstreamSettings::default()
        };
        let found = settings.check();
        let keys: Vec<_> = found.iter().map(|one| one.path.join(".")).collect();
        assert_eq!(keys, ["queue", "queue_time"], "{found:?}");
        settings.connections = 8;
        assert!(settings.check().is_empty());
    }
}
