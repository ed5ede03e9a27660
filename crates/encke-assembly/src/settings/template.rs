//! The settings file of the packages, `dist/encke.toml`: its head, its values and the examples. All else is from the schema.

use encke_settings::template::SettingsTemplate;

pub(super) const TEMPLATE: SettingsTemplate = SettingsTemplate { head: HEAD, set: SET, examples: EXAMPLES };

const HEAD: &str = "\
Settings of Encke, made by `encke schema --toml`: every section and key, with its meaning and its default.

A line that begins with # and no space is a setting with its default: remove the # to change it. Settings marked *start* take \
effect at the next start, all others by `systemctl reload encke` or `kill -HUP PID`. Before, run `encke check FILE`.

Durations: \"250ms\", \"10s\", \"1m30s\", \"2h\". Sizes: \"64KiB\", \"1MB\", 4096. Relative paths start at the directory of this \
file. A secret is text, { file = \"PATH\" } (its first line) or { env = \"NAME\" }.

A section that begins with # [[ is a list without entries: remove the # of its line and of the keys that you set.

A line include = \"sites/*.toml\" above all sections adds the sections of other files.

As installed, this file serves /srv/encke on port 8080 of this machine only. The access log is /var/log/encke/access.log, which \
logrotate rotates; messages go to standard error, which systemd's journal keeps.";

/// The unit of systemd creates the directory of the log, and logrotate rotates the files in it.
const SET: &[(&str, &str)] =
    &[("log.access", "\"/var/log/encke/access.log\""), ("site.root", "\"/srv/encke\"")];

const EXAMPLES: &[(&str, &str)] = &[
    ("server.listen", "listen = [\"127.0.0.1:8080\", \"[::1]:8080\"]"),
    (
        "server.listen",
        "listen = [\n  { address = \":443\", tls = { cert = \"/etc/encke/example.org.pem\", key = \
         \"/etc/encke/example.org.key\" } },\n  { address = \":80\", redirect = \"https\" },\n]",
    ),
    (
        "server.listen",
        "state_dir = \"/var/lib/encke\"\nlisten = { address = \":443\", tls = { acme = { domains = [\"example.org\"], agree = \
         true } } }",
    ),
    (
        "server.listen",
        "listen = [\n  { address = \"unix:/run/encke/encke.sock\", mode = \"0660\" },\n  { address = \"10.0.0.5:8080\", \
         proxy_protocol = true },\n]",
    ),
    (
        "server.admin",
        "admin = { address = \"127.0.0.1:8081\", metrics = \"open\", token = { file = \"/etc/encke/admin.token\" } }",
    ),
    ("server.admin", "admin = { address = \":8081\", hosts = [\"encke-1\", \"*.internal\"] }"),
    ("server.state_dir", "state_dir = \"/var/lib/encke\""),
    ("server.trusted_proxies", "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]"),
    ("server.pid_file", "pid_file = \"/run/encke/encke.pid\""),
    ("limits.body_bytes", "body_bytes = \"16MiB\""),
    ("limits.connections_per_address", "connections_per_address = 100"),
    ("site.host", "host = [\"example.org\", \"*.example.org\"]"),
    (
        "site.cache",
        "cache = [{ pattern = \"/assets/**\", cache_control = \"public, max-age=31536000, immutable\" }]",
    ),
    ("site.headers", "headers = [{ pattern = \"/**\", set = { \"X-Frame-Options\" = \"DENY\" } }]"),
    ("site.access_log", "access_log = \"/var/log/encke/example.org.log\""),
    ("site.hsts", "hsts = \"max-age=300; includeSubDomains\""),
    ("site.redirects", "redirects = [{ from = \"/old/*\", to = \"/new/$1\", status = 301 }]"),
    ("site.aliases", "aliases = [{ path = \"/docs/\", to = \"/usr/share/doc\" }]"),
    ("site.paths", "paths = [{ pattern = \"/internal/**\", status = 404 }]"),
    ("site.errors", "errors = { 404 = \"/404.html\" }"),
    ("access.host", "host = [\"example.org\"]"),
    ("access.allow", "allow = [\"10.0.0.0/8\", \"::1\"]"),
    ("access.deny", "deny = [\"10.0.0.66\"]"),
    ("access.passwords", "passwords = \"/etc/encke/admin.htpasswd\""),
    ("access.ask", "ask = \"http://127.0.0.1:4000/check\""),
    ("access.ask_ca", "ask = \"https://auth.internal/check\"\nask_ca = \"/etc/encke/auth-ca.pem\""),
    ("access.copy", "ask = \"http://127.0.0.1:4000/check\"\ncopy = [\"X-User\", \"X-Groups\"]"),
    ("access.user", "ask = \"http://127.0.0.1:4000/check\"\nuser = \"X-User\""),
    ("rate.host", "host = [\"example.org\"]"),
    ("rate.methods", "methods = [\"POST\"]"),
    ("rate.limit", "limit = \"10/s\""),
    ("rate.burst", "limit = \"10/s\"\nburst = 20"),
    ("rate.at_once", "at_once = 10"),
    ("push.origins", "origins = [\"https://app.example.org\"]"),
    (
        "push.channel",
        "channel = [\n  { pattern = \"news/*\", messages = 1000, age = \"1h\" },\n  { pattern = \"rooms/**\", presence = true \
         },\n]",
    ),
    ("auth.anonymous", "anonymous = [\"subscribe\"]"),
    ("auth.keys", "keys = [{ kid = \"2026\", secret = { file = \"/etc/encke/token.key\" } }]"),
    ("auth.jwks", "jwks = \"/etc/encke/keys.json\""),
    (
        "auth.tokens",
        "tokens = [{ token = { file = \"/etc/encke/shop.token\" }, name = \"shop\", publish = [\"orders/**\"] }]",
    ),
    ("auth.certificates", "certificates = [{ subject = \"shop.internal\", publish = [\"orders/**\"] }]"),
    ("auth.cookie", "cookie = \"session\""),
    ("auth.ask", "ask = \"http://127.0.0.1:3000/may\""),
    ("cluster.nats", "nats = [\"nats://10.0.0.1:4222\", \"nats://10.0.0.2:4222\", \"nats://10.0.0.3:4222\"]"),
    ("cluster.name", "name = \"node-1\""),
    ("cluster.token", "token = { file = \"/etc/encke/nats.token\" }"),
    ("cluster.user", "user = \"encke\"\npassword = { env = \"ENCKE_NATS_PASSWORD\" }"),
    ("cluster.credentials", "credentials = \"/etc/encke/nats.creds\""),
    ("cluster.ca", "ca = \"/etc/encke/nats-ca.pem\""),
    ("cluster.queue", "queue = \"16MiB\""),
    (
        "cluster.streams",
        "streams = [{ name = \"ticks\", channels = [\"ticks/**\"], storage = \"memory\", age = \"10m\", bytes = \"256MiB\" }]",
    ),
    (
        "console.user",
        "user = [{ name = \"ann\", password = { file = \"/etc/encke/ann.hash\" }, role = \"admin\" }]",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, schema, template};

    /// The lines of a file; a setting that is commented out as itself.
    fn setting(line: &str) -> Option<&str> {
        line.strip_prefix('#').filter(|rest| rest.starts_with(|first: char| first.is_ascii_alphabetic()))
    }

    fn refused(text: &str) -> Option<String> {
        Settings::parse("encke.toml", text).err().map(|problems| problems.to_string())
    }

    #[test]
    fn every_default_can_be_uncommented_alone_and_with_all_others() {
        let file = template();
        assert_eq!(refused(&file), None);
        let lines: Vec<&str> = file.lines().collect();
        let settings: Vec<usize> = (0..lines.len()).filter(|&at| setting(lines[at]).is_some()).collect();
        assert!(settings.len() > 80, "{} settings", settings.len());
        for &at in &settings {
            let mut one = lines.clone();
            one[at] = setting(lines[at]).expect("a setting");
            assert_eq!(refused(&one.join("\n")), None, "{}", lines[at]);
        }
        let all: Vec<&str> = lines.iter().map(|line| setting(line).unwrap_or(line)).collect();
        assert_eq!(refused(&all.join("\n")), None);
    }

    #[test]
    fn every_section_and_key_is_in_the_file() {
        let (file, schema) = (template(), schema());
        let sections = schema["properties"].as_object().expect("sections");
        for (section, property) in sections {
            if section == "include" {
                assert!(file.contains("A line include = "), "a key above all sections");
                continue;
            }
            let list = property["type"] == "array";
            let header = match (list, section == "site") {
                (true, true) => format!("[[{section}]]"),
                (true, false) => format!("# [[{section}]]"),
                (false, _) => format!("[{section}]"),
            };
            let (_, part) = file.split_once(&format!("\n{header}\n")).expect(&header);
            let part = part.split("\n[").next().unwrap_or_default();
            let name = property["$ref"].as_str().or(property["items"]["$ref"].as_str()).expect("a table");
            let table = schema.pointer(name.trim_start_matches('#')).expect(name);
            for key in table["properties"].as_object().expect("keys").keys() {
                let is_told = part.lines().any(|line| {
                    let line = line.trim_start_matches(['#', ' ']).trim_start_matches("Example: ");
                    let rest = line.strip_prefix(key.as_str()).unwrap_or_default();
                    rest.starts_with([' ', '.'])
                });
                assert!(is_told, "{section}.{key}");
            }
        }
    }

    #[test]
    fn every_example_is_valid_and_belongs_to_a_key() {
        for (path, lines) in EXAMPLES {
            let (section, key) = path.split_once('.').expect("a section");
            let is_list = ["site", "upstream", "access", "rate"].contains(&section);
            let header = if is_list { format!("[[{section}]]") } else { format!("[{section}]") };
            let more = if section == "cluster" && key != "nats" { "nats = \"nats://h:4222\"\n" } else { "" };
            assert_eq!(refused(&format!("{header}\n{more}{lines}")), None, "{path}");
            assert!(lines.contains(&format!("{key} = ")), "{path}");
            assert!(template().contains(lines.lines().next().expect("a line")), "{path} is not in the file");
        }
        for (path, value) in SET {
            let (_, key) = path.split_once('.').expect("a section");
            assert!(template().contains(&format!("\n{key} = {value}\n")), "{path}");
        }
    }
}
