//! The clients that may publish and subscribe, as a sentence, and as the credentials of a command.

use encke_assembly::settings::{Act, Settings};
use encke_io::Address;

/// The way to the right to publish or to subscribe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ChannelAccess {
    /// Every client has the right.
    Open,
    /// Clients have the right by one of these means. Empty: no client has it.
    By(Vec<CredentialKind>),
}

/// The credential for a right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CredentialKind {
    /// A token, which is valid for this channel.
    Token(String),
    /// A client certificate, which is valid for this channel.
    Certificate(String),
    /// The permission of the authorization endpoint, for credentials that only the application knows.
    Endpoint,
}

/// The channel of the commands, unless the rights name other channels.
pub(super) const CHANNEL: &str = "news";

/// Returns the way to a right. Without a settings file only this machine has it, on loopback listeners.
pub(super) fn access(settings: &Settings, addresses: &[Address], act: Act) -> ChannelAccess {
    if settings.open || (settings.file.is_none() && is_local(addresses)) {
        return ChannelAccess::Open;
    }
    let auth = &settings.auth;
    if settings.file.is_none() {
        return ChannelAccess::By(Vec::new());
    }
    if auth.anonymous.contains(&act) {
        return ChannelAccess::Open;
    }
    let mut means = Vec::new();
    // Messages come first: a token of live streams only is for other programs.
    let patterns = || auth.tokens.iter().flat_map(|token| token.patterns(act));
    let token =
        patterns().find(|pattern| stream_of(settings, pattern).is_none()).or_else(|| patterns().next());
    // The rights of a signed token are in it.
    if !auth.keys.is_empty() || auth.jwks.is_some() {
        means.push(CredentialKind::Token(CHANNEL.into()));
    } else if let Some(pattern) = token {
        means.push(CredentialKind::Token(channel_of(pattern)));
    }
    let requests_certificates = settings
        .server
        .listen
        .iter()
        .any(|listen| listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
    let pattern = auth.certificates.iter().find_map(|one| one.patterns(act).first());
    if let Some(pattern) = pattern.filter(|_| requests_certificates) {
        means.push(CredentialKind::Certificate(channel_of(pattern)));
    }
    if auth.ask.is_some() {
        means.push(CredentialKind::Endpoint);
    }
    ChannelAccess::By(means)
}

/// Describes the rights to publish and subscribe.
pub(super) fn sentence(settings: &Settings, addresses: &[Address]) -> String {
    if settings.open {
        return "all clients may publish and subscribe (--open)".into();
    }
    if settings.file.is_none() {
        return if is_local(addresses) {
            "only clients on this machine may publish and subscribe".into()
        } else {
            "no client may publish or subscribe: --open permits all, [auth] in a settings file permits some"
                .into()
        };
    }
    let way = |act| access(settings, addresses, act);
    match (way(Act::Publish), way(Act::Subscribe)) {
        (ChannelAccess::Open, ChannelAccess::Open) => "all clients may publish and subscribe".into(),
        (ChannelAccess::Open, ChannelAccess::By(means)) => {
            format!("all clients may publish; subscriptions {}", needs(&means))
        }
        (ChannelAccess::By(means), ChannelAccess::Open) => {
            format!("all clients may subscribe; messages {}", needs(&means))
        }
        (ChannelAccess::By(messages), ChannelAccess::By(subscriptions)) => {
            if messages.is_empty() && subscriptions.is_empty() {
                return "messages and subscriptions are rejected: [auth] has no tokens, keys or anonymous rights"
                    .into();
            }
            let (messages, subscriptions) = (needs(&messages), needs(&subscriptions));
            if messages == subscriptions {
                format!("messages and subscriptions {messages}")
            } else {
                format!("messages {messages}; subscriptions {subscriptions}")
            }
        }
    }
}

fn needs(means: &[CredentialKind]) -> String {
    let words: Vec<&str> = means
        .iter()
        .map(|one| match one {
            CredentialKind::Token(_) => "a token",
            CredentialKind::Certificate(_) => "a client certificate",
            CredentialKind::Endpoint => "the permission of auth.ask",
        })
        .collect();
    match words.split_last() {
        None => "are rejected: no rule of [auth] permits them".into(),
        Some((last, [])) => format!("need {last}"),
        Some((last, others)) => format!("need {} or {last}", others.join(", ")),
    }
}

/// The stream of a channel, without the prefix, if live streams have that channel.
pub(super) fn stream_of<'a>(settings: &Settings, channel: &'a str) -> Option<&'a str> {
    let prefix = settings.live.prefix.trim_start_matches('/');
    channel.strip_prefix(prefix).filter(|_| settings.live.enabled)
}

/// A channel that fits a pattern: each star becomes a name. The characters of a pattern need no escapes in URLs and shells.
fn channel_of(pattern: &str) -> String {
    let named: Vec<&str> =
        pattern.split('/').map(|segment| if segment.starts_with('*') { CHANNEL } else { segment }).collect();
    named.join("/")
}

fn is_local(addresses: &[Address]) -> bool {
    let is_loopback = |address: &Address| matches!(address, Address::Inet(inet) if inet.ip().is_loopback());
    addresses.iter().all(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use encke_assembly::settings::AuthSettings;

    fn at(text: &str) -> Address {
        Address::Inet(text.parse().expect("an address"))
    }

    fn with(anonymous: &[Act], ask: Option<&str>, jwks: Option<&str>) -> Settings {
        Settings {
            file: Some("encke.toml".into()),
            auth: AuthSettings {
                anonymous: anonymous.to_vec(),
                ask: ask.map(|url| url.parse().expect("a URL")),
                jwks: jwks.map(Into::into),
                ..AuthSettings::default()
            },
            ..Settings::default()
        }
    }

    fn parse(text: &str) -> Settings {
        let settings = Settings::parse("t", text).unwrap_or_else(|problems| panic!("{problems}"));
        Settings { file: Some("encke.toml".into()), ..settings }
    }

    #[test]
    fn rights_are_told_in_a_sentence() {
        let here = [at("127.0.0.1:80"), at("[::1]:80")];
        let told = |settings: &Settings| sentence(settings, &here);
        let none = Settings::default();
        assert!(told(&none).starts_with("only clients on this machine may"));
        for elsewhere in [at("0.0.0.0:80"), Address::Unix("/s".into())] {
            assert!(sentence(&none, &[at("127.0.0.1:80"), elsewhere]).starts_with("no client may"));
        }
        assert!(told(&Settings { open: true, ..none }).starts_with("all clients may publish"));

        let (publish, subscribe) = (Act::Publish, Act::Subscribe);
        let (url, keys) = (Some("http://127.0.0.1:3000/may"), Some("keys.json"));
        for (settings, expected) in [
            (
                with(&[], None, None),
                "messages and subscriptions are rejected: [auth] has no tokens, keys or anonymous rights",
            ),
            (with(&[], None, keys), "messages and subscriptions need a token"),
            (
                with(&[subscribe], url, None),
                "all clients may subscribe; messages need the permission of auth.ask",
            ),
            (
                with(&[publish], url, keys),
                "all clients may publish; subscriptions need a token or the permission of auth.ask",
            ),
            (with(&[publish, subscribe], None, None), "all clients may publish and subscribe"),
            (
                parse("[auth]\n[[auth.tokens]]\ntoken = \"0123456789abcdef\"\npublish = [\"**\"]"),
                "messages need a token; subscriptions are rejected: no rule of [auth] permits them",
            ),
            (
                parse(
                    "[auth]\n[[auth.certificates]]\nsubject = \"*\"\npublish = [\"**\"]\nsubscribe = [\"**\"]",
                ),
                "messages and subscriptions are rejected: [auth] has no tokens, keys or anonymous rights",
            ),
            (
                parse(
                    "[server]\nlisten = { address = 1, tls = { cert = \"c\", key = \"k\", client_ca = \"a\" } }\n\
                     [auth]\njwks = \"j\"\nask = \"http://app/\"\n\
                     [[auth.certificates]]\nsubject = \"*\"\npublish = [\"**\"]\nsubscribe = [\"**\"]",
                ),
                "messages and subscriptions need a token, a client certificate or the permission of auth.ask",
            ),
        ] {
            assert_eq!(told(&settings), expected);
        }
    }

    #[test]
    fn a_token_is_used_for_a_channel_that_it_permits() {
        for (pattern, channel) in
            [("**", "news"), ("orders/**", "orders/news"), ("a/*/b", "a/news/b"), ("orders", "orders")]
        {
            let text = format!("[[auth.tokens]]\ntoken = \"0123456789abcdef\"\npublish = [\"{pattern}\"]");
            let way = access(&parse(&text), &[], Act::Publish);
            assert_eq!(way, ChannelAccess::By(vec![CredentialKind::Token(channel.into())]), "{pattern}");
            assert_eq!(access(&parse(&text), &[], Act::Subscribe), ChannelAccess::By(vec![]));
        }
        let both = "[[auth.tokens]]\ntoken = \"0123456789abcdef\"\npublish = [\"live/**\", \"orders/**\"]";
        let way = access(&parse(both), &[], Act::Publish);
        assert_eq!(way, ChannelAccess::By(vec![CredentialKind::Token("orders/news".into())]));
    }
}
