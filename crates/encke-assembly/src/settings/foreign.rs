//! Settings of nginx, nchan, Caddy, HAProxy and Centrifugo, and their equivalents: hints at unknown keys.
//!
//! One table for all sections, because users of other programs do not know the sections here, and because most keys without an
//! equivalent belong to none. A test holds the table against the schema.

use encke_settings::ForeignKey;

use encke_settings::Equivalent::{Always, Like, Missing, Setting};

const ONLY_HTTP: &str = "Encke reaches applications over HTTP/1.1 and FastCGI only";
const ROUTE: &str = "[[site.route]] has a pattern and an upstream, such as \"http://127.0.0.1:3000\"";
const PASSWORDS: &str = "[[access]] with pattern = \"/admin/**\" and passwords = \"admin.htpasswd\"";
const ASK: &str = "[[access]] with pattern = \"/**\" and ask = \"http://127.0.0.1:4000/check\"";
const RATES: &str = "[[rate]] with pattern = \"/login\" and limit = \"10/s\"";
const TLS: &str = "listen = { address = \":443\", tls = { cert = \"cert.pem\", key = \"key.pem\" } }";
const PATHS: &str = "paths = [{ pattern = \"/private/**\", status = 403 }]; there are no regular expressions";
const REDIRECTS: &str = "redirects = [{ from = \"/old/*\", to = \"/new/$1\" }]";
const HEADERS: &str = "headers = [{ pattern = \"/**\", set = { X-Frame-Options = \"DENY\" } }]";
const CACHE: &str = "cache = [{ pattern = \"/assets/**\", cache_control = \"max-age=31536000\" }]";
const KEYS: &str = "[[auth.keys]] with secret = \"…\"";
const TOKENS: &str = "[[auth.tokens]] with token = \"…\" and publish = [\"**\"]";
const CHANNEL: &str = "[[push.channel]] with pattern = \"**\"";
const NATS: &str =
    "nats = \"nats://host:4222\"; the nodes of a cluster share channels through NATS JetStream";
const SECTIONS: &str = "files belong to [[site]], listeners to [server], timeouts to [limits]";

/// The table. Keys are in lower case with `_` between words, in the order of the programs' topics.
pub(super) const FOREIGN: &[ForeignKey] = &[
    // Structure.
    ("http", Always(SECTIONS)),
    ("events", Always("the back end is server.backend, the number of connections limits.connections")),
    ("frontend", Always(SECTIONS)),
    ("defaults", Always("every key has a default; `encke schema --markdown` lists them")),
    ("global", Always(SECTIONS)),
    ("import", Setting("include")),
    ("config_includes", Setting("include")),
    // Listeners.
    ("bind", Setting("server.listen")),
    ("address", Like("server.listen", "listen = \"127.0.0.1:8080\"")),
    ("port", Like("server.listen", "listen = 8080")),
    ("http_port", Like("server.listen", "listen = \":80\"")),
    ("https_port", Like("server.listen", TLS)),
    ("http_server", Like("server.listen", "listen = \":8080\"")),
    ("real_ip_header", Setting("server.forwarded_field")),
    ("set_real_ip_from", Setting("server.trusted_proxies")),
    ("http2", Always("HTTP/2 is offered wherever TLS is, and accepted in the clear")),
    ("sendfile", Always("the kernel sends files wherever it can")),
    ("resolver", Always("the operating system resolves host names")),
    ("tcp_nodelay", Always("always on")),
    ("tcp_nopush", Always("head and content leave together")),
    ("etag", Always("files always have an ETag")),
    ("server_tokens", Always("Encke sends no Server field")),
    // TLS.
    ("ssl", Like("server.listen.tls", TLS)),
    ("crt", Like("server.listen.tls.cert", TLS)),
    ("ssl_certificate", Like("server.listen.tls.cert", TLS)),
    ("ssl_certificate_key", Like("server.listen.tls.key", TLS)),
    ("tls_cert", Like("server.listen.tls.cert", TLS)),
    ("tls_key", Like("server.listen.tls.key", TLS)),
    ("cert_file", Like("server.listen.tls.cert", TLS)),
    ("key_file", Like("server.listen.tls.key", TLS)),
    ("ssl_protocols", Like("server.listen.tls.min_version", "min_version = \"1.3\"")),
    ("ssl_ciphers", Always("all suites have forward secrecy and authenticated encryption")),
    ("ssl_session_cache", Always("TLS sessions resume by tickets")),
    ("ssl_client_certificate", Setting("server.listen.tls.client_ca")),
    ("ssl_verify_client", Setting("server.listen.tls.client")),
    ("ssl_stapling_file", Setting("server.listen.tls.ocsp")),
    ("ssl_stapling", Like("server.listen.tls.ocsp", "the file of an OCSP response")),
    (
        "auto_https",
        Like("server.listen.tls.acme", "tls = { acme = { domains = [\"example.org\"], agree = true } }"),
    ),
    ("acme_ca", Setting("server.listen.tls.acme.directory")),
    (
        "tls_autocert",
        Like("server.listen.tls.acme", "tls = { acme = { domains = [\"example.org\"], agree = true } }"),
    ),
    // The process.
    ("worker_processes", Setting("server.workers")),
    ("nbthread", Setting("server.workers")),
    ("worker_connections", Setting("limits.connections")),
    ("worker_shutdown_timeout", Setting("server.drain_time")),
    ("shutdown_timeout", Setting("server.drain_time")),
    ("grace_period", Setting("server.drain_time")),
    ("shutdown_delay", Setting("server.drain_delay")),
    ("hard_stop_after", Setting("server.drain_time")),
    ("pid", Setting("server.pid_file")),
    ("pidfile", Setting("server.pid_file")),
    ("daemon", Always("Encke stays in the foreground; systemd or `&` puts it in the background")),
    ("user", Always("start Encke as that user, such as by User= of systemd; cluster.user is for NATS")),
    ("use", Setting("server.backend")),
    ("stub_status", Like("server.admin", "the admin listener has status and metrics")),
    ("stats", Like("server.admin", "the admin listener has status and metrics")),
    ("prometheus", Like("server.admin.metrics", "the admin listener has /metrics")),
    ("health", Always("the admin listener has /healthz and /readyz")),
    ("admin_password", Setting("server.admin.token")),
    // Limits.
    ("client_max_body_size", Setting("limits.body_bytes")),
    ("request_body", Setting("limits.body_bytes")),
    ("max_size", Setting("limits.body_bytes")),
    ("client_header_buffer_size", Setting("limits.head_bytes")),
    ("large_client_header_buffers", Setting("limits.head_bytes")),
    ("client_header_timeout", Setting("limits.head_time")),
    ("timeout_http_request", Setting("limits.head_time")),
    ("read_header", Setting("limits.head_time")),
    ("client_body_timeout", Like("limits.body_rate", "a minimum rate, such as \"240B/s\"")),
    ("send_timeout", Like("limits.write_rate", "a minimum rate, such as \"240B/s\"")),
    ("keepalive_timeout", Setting("limits.idle_time")),
    ("timeout_client", Setting("limits.idle_time")),
    ("timeout_http_keep_alive", Setting("limits.idle_time")),
    ("timeouts", Like("limits.idle_time", "head_time, body_rate and write_rate are beside it")),
    ("timeout", Like("limits.idle_time", "head_time, body_rate and write_rate are beside it")),
    ("idle_timeout", Setting("limits.idle_time")),
    ("keepalive_requests", Setting("limits.requests_per_connection")),
    ("maxconn", Setting("limits.connections")),
    ("client_connection_limit", Setting("limits.connections")),
    ("limit_conn", Like("rate.at_once", "[[rate]] with at_once = 10")),
    ("limit_req", Like("rate.limit", RATES)),
    ("limit_req_zone", Like("rate.limit", RATES)),
    ("rate_limit", Like("rate.limit", RATES)),
    // Logs.
    ("access_log", Setting("log.access")),
    ("log_file", Setting("log.access")),
    ("log_format", Like("log.format", "combined or json")),
    ("log_level", Setting("log.level")),
    ("error_log", Like("log.level", "messages go to standard error")),
    // Sites.
    ("server_name", Like("site.host", "host = [\"example.org\"]")),
    ("default_server", Always("the site without `host` serves all names that no other site has")),
    ("file_server", Like("site.root", "every site serves the files of its root")),
    ("document_root", Setting("site.root")),
    ("autoindex", Like("site.list", "list = true")),
    ("browse", Like("site.list", "list = true")),
    ("alias", Like("site.aliases", "aliases = [{ path = \"/docs/\", to = \"docs\" }]")),
    ("location", Like("site.paths", PATHS)),
    ("handle", Like("site.paths", PATHS)),
    ("handle_path", Like("site.paths", PATHS)),
    ("respond", Like("site.paths", PATHS)),
    ("rewrite", Like("site.redirects", REDIRECTS)),
    ("return", Like("site.redirects", REDIRECTS)),
    ("redir", Like("site.redirects", REDIRECTS)),
    ("error_page", Like("site.errors", "errors = { 404 = \"/404.html\" }")),
    ("handle_errors", Like("site.errors", "errors = { 404 = \"/404.html\" }")),
    ("add_header", Like("site.headers", HEADERS)),
    ("header", Like("site.headers", HEADERS)),
    ("expires", Like("site.cache", CACHE)),
    ("cache_control", Like("site.cache", CACHE)),
    (
        "default_type",
        Like("site.paths.content_type", "paths = [{ pattern = \"/**\", content_type = \"text/plain\" }]"),
    ),
    ("disable_symlinks", Setting("site.symlinks")),
    ("hide", Always("names with a leading dot are hidden unless `hidden = true`")),
    ("open_file_cache", Setting("site.open_files")),
    ("gzip", Like("site.compression.on_the_fly", "on by default")),
    ("encode", Like("site.compression.on_the_fly", "on by default, with gzip and zstd")),
    ("compression_algo", Like("site.compression.on_the_fly", "on by default, with gzip and zstd")),
    ("gzip_static", Like("site.compression.siblings", "on by default")),
    ("precompressed", Like("site.compression.siblings", "on by default")),
    ("gzip_types", Setting("site.compression.types")),
    ("gzip_min_length", Setting("site.compression.min")),
    (
        "brotli",
        Like(
            "site.compression.siblings",
            "Encke sends FILE.br if it exists, and compresses with gzip and zstd",
        ),
    ),
    // Access.
    ("auth_basic", Like("access.realm", PASSWORDS)),
    ("auth_basic_user_file", Like("access.passwords", PASSWORDS)),
    ("basic_auth", Like("access.passwords", PASSWORDS)),
    ("basicauth", Like("access.passwords", PASSWORDS)),
    ("satisfy", Like("access.any", "any = true is satisfy any")),
    ("remote_ip", Like("access.allow", "[[access]] with allow = [\"10.0.0.0/8\"]")),
    // Applications.
    ("proxy_pass", Like("site.route", ROUTE)),
    ("reverse_proxy", Like("site.route", ROUTE)),
    ("default_backend", Like("site.route", ROUTE)),
    ("use_backend", Like("site.route", ROUTE)),
    ("backend", Like("upstream.to", "[[upstream]] has a name and a list of targets")),
    ("servers", Like("upstream.to", "[[upstream]] has a name and a list of targets")),
    ("balance", Always("a request goes to the target of the upstream with the fewest requests in progress")),
    (
        "lb_policy",
        Always("a request goes to the target of the upstream with the fewest requests in progress"),
    ),
    ("proxy_set_header", Like("site.route.request", "request = { set = { X-Real-IP = \"{client}\" } }")),
    ("header_up", Like("site.route.request", "request = { set = { X-Real-IP = \"{client}\" } }")),
    ("proxy_hide_header", Like("site.route.response", "response = { remove = [\"Server\"] }")),
    ("header_down", Like("site.route.response", "response = { remove = [\"Server\"] }")),
    ("proxy_connect_timeout", Setting("upstream.connect_time")),
    ("timeout_connect", Setting("upstream.connect_time")),
    ("proxy_read_timeout", Like("upstream.response_time", "idle_time is the same within a response")),
    ("timeout_server", Like("upstream.response_time", "idle_time is the same within a response")),
    ("timeout_tunnel", Setting("upstream.tunnel_time")),
    ("keepalive", Setting("upstream.keep")),
    ("proxy_next_upstream", Setting("upstream.retries")),
    ("proxy_intercept_errors", Setting("site.route.intercept_errors")),
    ("proxy_buffering", Always("responses of applications are not buffered")),
    ("proxy_send_timeout", Like("upstream.idle_time", "the time without a byte in either direction")),
    ("proxy_redirect", Missing("the fields Location of applications pass unchanged")),
    ("proxy_http_version", Always("requests to applications are HTTP/1.1")),
    ("proxy_request_buffering", Like("site.route.buffer", "buffer = \"64KiB\"; larger bodies stream")),
    ("internal_redirect", Like("site.route.rewrite", "rewrite = \"/new/$1\"")),
    ("x_sendfile", Like("site.route.sendfile", "sendfile = [\"/srv/files\"]")),
    (
        "try_files",
        Like("site.route.files", "files = \"first\"; for a page that routes in the browser: spa = true"),
    ),
    // Applications: keys in their tables.
    ("site.route.location", Setting("site.route.pattern")),
    ("site.route.path", Setting("site.route.pattern")),
    ("site.route.match", Setting("site.route.pattern")),
    ("site.route.from", Setting("site.route.pattern")),
    ("site.route.to", Setting("site.route.upstream")),
    ("site.route.url", Setting("site.route.upstream")),
    ("site.route.target", Setting("site.route.upstream")),
    ("site.route.backend", Setting("site.route.upstream")),
    ("site.route.proxy_pass", Setting("site.route.upstream")),
    ("site.route.reverse_proxy", Setting("site.route.upstream")),
    ("site.route.strip_prefix", Setting("site.route.strip")),
    ("site.route.uri", Setting("site.route.rewrite")),
    ("site.route.header", Like("site.route.response", "response = { set = { X-Frame-Options = \"DENY\" } }")),
    (
        "site.route.headers",
        Like("site.route.response", "response = { set = { X-Frame-Options = \"DENY\" } }"),
    ),
    (
        "site.route.add_header",
        Like("site.route.response", "response = { set = { X-Frame-Options = \"DENY\" } }"),
    ),
    (
        "site.route.error_page",
        Like("site.errors", "errors = { 502 = \"/502.html\" } of the site applies to its routes"),
    ),
    (
        "site.route.errors",
        Like("site.errors", "errors = { 502 = \"/502.html\" } of the site applies to its routes"),
    ),
    ("site.route.client_max_body_size", Setting("site.route.body_bytes")),
    ("site.route.max_body", Setting("site.route.body_bytes")),
    (
        "site.route.timeout",
        Like("upstream.response_time", "in [[upstream]], to which the route refers by its name"),
    ),
    ("site.route.websocket", Always("WebSockets pass through every route to an application")),
    ("site.route.upgrade", Always("WebSockets pass through every route to an application")),
    ("site.route.auth_basic", Like("access.passwords", PASSWORDS)),
    (
        "site.route.allow",
        Like("access.allow", "[[access]] with pattern = \"/admin/**\" and allow = [\"10.0.0.0/8\"]"),
    ),
    (
        "site.route.deny",
        Like("access.deny", "[[access]] with pattern = \"/admin/**\" and deny = [\"10.0.0.0/8\"]"),
    ),
    ("upstream.server", Setting("upstream.to")),
    ("upstream.servers", Setting("upstream.to")),
    ("upstream.target", Setting("upstream.to")),
    ("upstream.targets", Setting("upstream.to")),
    ("upstream.url", Setting("upstream.to")),
    ("upstream.urls", Setting("upstream.to")),
    ("upstream.address", Setting("upstream.to")),
    ("upstream.backend", Setting("upstream.to")),
    ("upstream.timeout", Like("upstream.response_time", "connect_time and idle_time are beside it")),
    ("upstream.connect_timeout", Setting("upstream.connect_time")),
    ("upstream.read_timeout", Setting("upstream.response_time")),
    ("upstream.keepalive_timeout", Setting("upstream.keep_time")),
    ("upstream.weight", Like("upstream.to.weight", "to = [{ url = \"http://127.0.0.1:3000\", weight = 2 }]")),
    (
        "upstream.backup",
        Like("upstream.to.backup", "to = [{ url = \"http://127.0.0.1:3000\", backup = true }]"),
    ),
    ("upstream.websocket", Always("WebSockets pass through every route to an application")),
    (
        "least_conn",
        Always("a request goes to the target of the upstream with the fewest requests in progress"),
    ),
    ("ip_hash", Missing("targets are chosen by their load; keep sessions in a place that all targets share")),
    ("sticky", Missing("targets are chosen by their load; keep sessions in a place that all targets share")),
    (
        "max_fails",
        Always("a target that fails three times in a row is left out, first for 1 s and at most for 30 s"),
    ),
    (
        "fail_timeout",
        Always("a target that fails three times in a row is left out, first for 1 s and at most for 30 s"),
    ),
    (
        "health_check",
        Always("a target that fails three times in a row is left out, and tried again by a request"),
    ),
    (
        "health_uri",
        Always("a target that fails three times in a row is left out, and tried again by a request"),
    ),
    // What does not exist.
    ("fastcgi_pass", Like("site.route.php", "php = \"/run/php/fpm.sock\"")),
    ("php_fastcgi", Like("site.route.php", "php = \"/run/php/fpm.sock\"")),
    ("uwsgi_pass", Missing(ONLY_HTTP)),
    ("grpc_pass", Missing(ONLY_HTTP)),
    ("proxy_cache", Missing("Encke caches files, and no responses of applications")),
    ("auth_request", Like("access.ask", ASK)),
    ("forward_auth", Like("access.ask", ASK)),
    ("templates", Missing("Encke sends files as they are")),
    ("ssi", Missing("Encke sends files as they are")),
    // Channels: Centrifugo.
    ("token_hmac_secret_key", Like("auth.keys.secret", KEYS)),
    ("hmac_secret_key", Like("auth.keys.secret", KEYS)),
    ("token_jwks_public_endpoint", Like("auth.jwks", "a file")),
    (
        "token_rsa_public_key",
        Missing("tokens are signed with HS256, ES256 or EdDSA: [[auth.keys]] with pem = \"key.pem\""),
    ),
    ("token_ecdsa_public_key", Setting("auth.keys.pem")),
    ("api_key", Like("auth.tokens.token", TOKENS)),
    ("http_api", Like("auth.tokens.token", TOKENS)),
    ("client_insecure", Like("auth.anonymous", "anonymous = [\"publish\", \"subscribe\"]")),
    ("allow_anonymous_connect_without_token", Like("auth.anonymous", "anonymous = [\"subscribe\"]")),
    ("allow_subscribe_for_client", Like("auth.anonymous", "anonymous = [\"subscribe\"]")),
    ("allow_publish_for_client", Like("auth.anonymous", "anonymous = [\"publish\"]")),
    ("allowed_origins", Setting("push.origins")),
    ("proxy_connect_endpoint", Setting("auth.ask")),
    ("proxy_subscribe_endpoint", Setting("auth.ask")),
    ("namespaces", Like("push.channel", "[[push.channel]] with pattern = \"news/*\"")),
    ("without_namespace", Like("push.channel", CHANNEL)),
    ("history_size", Like("push.channel.messages", CHANNEL)),
    ("history_ttl", Like("push.channel.age", CHANNEL)),
    ("history_meta_ttl", Like("push.channel.age", CHANNEL)),
    ("history_recover", Always("clients resume in every channel that keeps messages")),
    ("force_recovery", Always("clients resume in every channel that keeps messages")),
    ("join_leave", Like("push.channel.presence", CHANNEL)),
    ("client_channel_limit", Setting("push.channels_per_stream")),
    (
        "client_queue_max_size",
        Like("push.channel.policy", "a slow subscriber reads from the history; `policy` says what follows"),
    ),
    ("ping_interval", Setting("push.heartbeat")),
    ("websocket", Always("every channel has event streams, WebSockets, NDJSON and long polls")),
    ("sse", Always("every channel has event streams, WebSockets, NDJSON and long polls")),
    ("http_stream", Always("every channel has event streams, WebSockets, NDJSON and long polls")),
    ("websocket_compression", Setting("push.compress")),
    ("websocket_message_size_limit", Setting("push.message_bytes")),
    ("engine", Like("cluster.nats", NATS)),
    ("broker", Like("cluster.nats", NATS)),
    ("redis_address", Like("cluster.nats", NATS)),
    ("nats_url", Setting("cluster.nats")),
    // Channels: nchan.
    ("nchan_publisher", Like("push.prefix", "clients publish and subscribe at /push/CHANNEL")),
    ("nchan_subscriber", Like("push.prefix", "clients publish and subscribe at /push/CHANNEL")),
    ("nchan_pubsub", Like("push.prefix", "clients publish and subscribe at /push/CHANNEL")),
    ("nchan_channel_id", Always("the channel is the rest of the path: /push/CHANNEL")),
    ("nchan_message_buffer_length", Like("push.channel.messages", CHANNEL)),
    ("nchan_message_timeout", Like("push.channel.age", CHANNEL)),
    ("nchan_max_reserved_memory", Setting("push.memory")),
    ("nchan_shared_memory_size", Setting("push.memory")),
    ("nchan_websocket_ping_interval", Setting("push.heartbeat")),
    ("nchan_eventsource_ping_interval", Setting("push.heartbeat")),
    ("nchan_subscriber_first_message", Always("the client chooses: /push/CHANNEL?since=all, now or last:N")),
    ("nchan_access_control_allow_origin", Setting("push.origins")),
    ("nchan_authorize_request", Setting("auth.ask")),
    ("nchan_redis_url", Like("cluster.nats", NATS)),
    ("nchan_redis_pass", Like("cluster.nats", NATS)),
];

#[cfg(test)]
mod tests {
    use encke_settings::reference::tables;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn every_equivalent_is_a_setting() {
        let tables = tables::<Settings>();
        for (foreign, equivalent) in FOREIGN {
            let Some(path) = equivalent.path() else { continue };
            let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
            let exists =
                tables.iter().any(|table| table.path == parent && table.keys.iter().any(|one| one == key));
            assert!(exists, "{foreign}: {path} is no setting");
        }
    }

    #[test]
    fn every_setting_that_a_remark_names_exists() {
        let tables = tables::<Settings>();
        let sections: Vec<&str> = tables[0].keys.iter().map(String::as_str).collect();
        for (foreign, equivalent) in FOREIGN {
            let (Always(text) | Missing(text) | Like(_, text)) = equivalent else { continue };
            let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "._".contains(letter)));
            for word in words.map(|word| word.trim_end_matches('.')) {
                let Some((parent, key)) = word.rsplit_once('.') else { continue };
                let section = parent.split('.').next().unwrap_or_default();
                if !sections.contains(&section) {
                    continue;
                }
                // `[[push.channel]]` is a table, `push.channel` its key in the section.
                let exists = tables
                    .iter()
                    .any(|table| table.path == parent && table.keys.iter().any(|one| one == key));
                assert!(exists, "{foreign}: {word} is no setting");
            }
        }
    }

    #[test]
    fn foreign_keys_are_unique_and_written_as_they_are_compared() {
        for (place, (foreign, _)) in FOREIGN.iter().enumerate() {
            assert!(
                foreign.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.')),
                "{foreign}"
            );
            let tables = tables::<Settings>();
            let exists = |path| tables.iter().any(|table| table.path == path);
            assert!(
                foreign.rsplit_once('.').is_none_or(|(path, _)| exists(path)),
                "{foreign} is in no table"
            );
            assert!(FOREIGN[..place].iter().all(|(earlier, _)| earlier != foreign), "{foreign} occurs twice");
        }
    }

    #[test]
    fn the_section_of_an_equivalent_does_not_have_the_foreign_key() {
        let tables = tables::<Settings>();
        for (foreign, equivalent) in FOREIGN {
            let Some(path) = equivalent.path() else { continue };
            let section = path.split_once('.').map_or("", |(section, _)| section);
            let table = tables.iter().find(|table| table.path == section).expect("a section, or the file");
            assert!(!table.keys.iter().any(|key| key == foreign), "{foreign} is a key of [{section}]");
        }
    }

    /// The hint for a key in a file.
    fn hint(text: &str) -> String {
        let problems = Settings::parse("encke.toml", text).expect_err(text);
        problems
            .iter()
            .find_map(|problem| problem.hint.clone())
            .unwrap_or_else(|| panic!("{text}: {problems}"))
    }

    #[test]
    fn a_key_of_another_program_gets_its_equivalent() {
        for (text, said) in [
            ("[server]\nclient_max_body_size = \"10m\"\n", "in Encke it is `limits.body_bytes`"),
            ("[server]\nuser = \"www\"\n", "not a setting: start Encke as that user"),
            ("[http]\n", "not a setting: files belong to [[site]]"),
            ("[[site]]\nautoindex = true\n", "in Encke it is `list` in [[site]]: list = true"),
            ("[[site]]\ndefault_server = true\n", "not a setting: the site without `host` serves"),
            ("[server]\nresolver = \"::1\"\n", "not a setting: the operating system resolves"),
            ("[[site]]\nproxy_set_header = \"a\"\n", "in Encke it is `request` in [[site.route]]: "),
            ("[[site]]\nproxy_pass = \"http://a\"\n", "in Encke it is `route` in [[site]]: "),
            ("[[site]]\nfastcgi_pass = \"a\"\n", "in Encke it is `php` in [[site.route]]: "),
            ("[[site]]\n[[site.route]]\nlocation = \"/\"\n", "in Encke it is `pattern` in [[site.route]]"),
            ("[[site]]\nlocation = \"/\"\n", "in Encke it is `paths` in [[site]]: "),
            ("[[site]]\n[[site.route]]\nto = \"http://a\"\n", "in Encke it is `upstream` in [[site.route]]"),
            ("[[site]]\n[[site.route]]\nwebsocket = true\n", "not a setting: WebSockets pass through"),
            ("[push]\nwebsocket = true\n", "not a setting: every channel has"),
            ("[[site]]\n[[site.route]]\ntry_files = \"a\"\n", "in Encke it is `files` in [[site.route]]: "),
            ("[[upstream]]\nserver = \"a\"\n", "in Encke it is `to` in [[upstream]]"),
            ("[[upstream]]\ntimeout = \"1s\"\n", "in Encke it is `response_time` in [[upstream]]: "),
            (
                "[[upstream]]\nproxy_read_timeout = \"1s\"\n",
                "in Encke it is `response_time` in [[upstream]]: ",
            ),
            ("[[upstream]]\nip_hash = true\n", "not available yet: "),
            ("[[upstream]]\nmax_fails = 3\n", "not a setting: a target that fails three times"),
            ("[[site]]\nbasic-auth = { ann = \"x\" }\n", "in Encke it is `passwords` in [[access]]: "),
            ("[[site]]\nsatisfy = \"any\"\n", "in Encke it is `any` in [[access]]: any = true"),
            ("[push]\nhistory_size = 10\n", "in Encke it is `messages` in [[push.channel]]: "),
            ("[limits]\n\"timeout client\" = \"30s\"\n", "in Encke it is `limits.idle_time`"),
            ("worker_processes = 4\n", "in Encke it is `server.workers`"),
            ("token_hmac_secret_key = \"x\"\n", "in Encke it is `secret` in [[auth.keys]]: "),
        ] {
            let found = hint(text);
            assert!(found.starts_with(said), "{text}: {found}");
        }
    }

    #[test]
    fn a_line_of_another_programs_file_gets_its_equivalent() {
        for (text, said) in [
            ("[server]\nkeepalive_timeout 65;\n", "in Encke it is `limits.idle_time`"),
            ("timeout client 30s\n", "in Encke it is `limits.idle_time`"),
            ("reverse_proxy localhost:3000\n", "in Encke it is `route` in [[site]]: "),
            ("fastcgi_pass unix:a.sock;\n", "in Encke it is `php` in [[site.route]]: "),
            ("[server]\nlisten 80;\n", "settings are TOML: `listen = VALUE`"),
        ] {
            let found = hint(text);
            assert!(found.starts_with(said), "{text}: {found}");
        }
    }

    #[test]
    fn a_key_in_the_wrong_section_names_the_heading_of_its_own() {
        for (text, said) in [
            ("root = \"www\"\n", "`root` belongs in [[site]]"),
            ("[server]\nroot = \"www\"\n", "`root` belongs in [[site]]"),
            ("[[site]]\nlisten = 80\n", "`listen` belongs in [server]"),
            ("[[site]]\nallow = [\"::1\"]\n", "`allow` belongs in [[access]]"),
            ("[server]\ncert = \"a\"\n", "`cert` belongs in [server.listen.tls]"),
        ] {
            assert_eq!(hint(text), said, "{text}");
        }
    }
}
