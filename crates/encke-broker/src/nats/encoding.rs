//! The encoding of a message for NATS: subject, headers, payload.
//!
//! ```text
//!  channel a.b/c  ◄──►  subject PREFIX.a=b.c          a segment is a token; a dot would separate tokens, so it becomes `=`
//!  Content-Type, Encke-Event, Encke-Flags             present only if the message has them
//!  Nats-Msg-Id                                        one per publish, kept by its retries
//! ```
//! Other programs may write to the stream as well. A subject that maps to no channel is skipped, and a message without headers
//! is a plain one.

use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use encke_hub::{Announcement, Draft, Flags, IdempotencyKey, Name, NodeId};

const TYPE: &str = "Content-Type";
const EVENT: &str = "Encke-Event";
const FLAGS: &str = "Encke-Flags";
/// Marks a message that a node itself publishes; only such messages may use events named `encke.…` and the control flag. Any
/// program with write access to the stream can set this header, so NATS has to restrict that access.
const OFFICIAL: &str = "Encke-Official";

/// The subject of beacons. It has the prefix of channels, but no channel's name contains a `$`.
pub(super) fn beacon(prefix: &str) -> String {
    format!("{prefix}.$beacon")
}

/// The subject of a channel.
pub(super) fn subject(prefix: &str, channel: &Name) -> String {
    let mut subject = String::with_capacity(prefix.len() + 1 + channel.as_str().len());
    subject.push_str(prefix);
    subject.push('.');
    subject.extend(channel.as_str().chars().map(|letter| match letter {
        '/' => '.',
        '.' => '=',
        other => other,
    }));
    subject
}

/// The channel of a subject; `None` if it maps to no channel.
pub(super) fn channel(prefix: &str, subject: &str) -> Option<Name> {
    let tokens = subject.strip_prefix(prefix)?.strip_prefix('.')?;
    // In a subject a dot separates segments, never a slash.
    if tokens.contains('/') {
        return None;
    }
    let name: String = tokens
        .chars()
        .map(|letter| match letter {
            '.' => '/',
            '=' => '.',
            other => other,
        })
        .collect();
    Name::parse(name.as_bytes()).ok()
}

/// Encodes a draft under a message id.
pub(super) fn written(draft: &Draft, id: &str) -> PublishMessage {
    let mut message = PublishMessage::build().payload(draft.data.to_vec().into());
    if let Some(content_type) = &draft.content_type {
        message = message.header(TYPE, &**content_type);
    }
    if let Some(event) = &draft.event {
        message = message.header(EVENT, &**event);
    }
    if draft.flags != Flags::default() {
        message = message.header(FLAGS, draft.flags.bits().to_string().as_str());
    }
    if draft.flags.contains(Flags::CONTROL) {
        message = message.header(OFFICIAL, "1");
    }
    message.message_id(id)
}

/// Returns whether a node itself published the message.
pub(super) fn is_official(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(OFFICIAL).is_some())
}

/// Decodes a message, which may come from another program.
pub(super) fn read(channel: Name, headers: Option<&HeaderMap>, payload: &[u8]) -> Draft {
    let text = |name: &str| headers.and_then(|headers| headers.get(name)).map(|value| value.as_str().into());
    let flags: Option<Box<str>> = text(FLAGS);
    let flags = flags.and_then(|bits| bits.parse().ok()).map_or_else(Flags::default, Flags::from_bits);
    Draft { channel, data: payload.into(), content_type: text(TYPE), event: text(EVENT), flags, key: None }
}

/// The message id of a publish with an idempotency key: the same on every node, different for each channel and publisher.
pub(super) fn id(channel: &Name, key: &IdempotencyKey) -> String {
    format!("{channel} {:x} {}", key.publisher, key.key)
}

/// The message id of a keyless publish that a node may retry. Channel names contain no space, so it equals no other id.
pub(super) fn id_of_queued(node: NodeId, number: u64) -> String {
    format!(" {:x} {number}", node.0)
}

/// The message id of an announcement that several nodes may publish at once: that a member left with its node. An announcement
/// that only one node makes needs none.
pub(super) fn id_of(announcement: &Announcement) -> Option<String> {
    let Announcement { channel, member, after, .. } = announcement;
    after.map(|offset| format!("{channel} gone {offset} {member}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    #[test]
    fn a_channel_has_a_subject_of_its_own_and_is_found_by_it() {
        for (text, expected) in [
            ("news", "encke.m.news"),
            ("news/today", "encke.m.news.today"),
            ("a.b/c", "encke.m.a=b.c"),
            ("a/b.c", "encke.m.a.b=c"),
            ("~/-_", "encke.m.~.-_"),
            ("a../b", "encke.m.a==.b"),
        ] {
            let subject = subject("encke.m", &name(text));
            assert_eq!(subject, expected);
            assert_eq!(channel("encke.m", &subject), Some(name(text)));
        }
    }

    #[test]
    fn any_two_channels_have_different_subjects_of_legal_tokens() {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        println!("seed {seed}");
        let mut subjects = std::collections::HashMap::new();
        for _ in 0..100_000 {
            let mut text = String::new();
            for _ in 0..1 + seed % 7 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Similar names are more likely to collide, so these characters are.
                text.push(['a', '.', '/', '~', '-', '_', 'A', '.'][(seed >> 33) as usize % 8]);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let Ok(name) = Name::parse(text.as_bytes()) else { continue };
            let subject = subject("encke.m", &name);
            assert!(subject.split('.').all(|token| !token.is_empty()), "{subject}");
            assert!(!subject.contains(['*', '>', ' ', '/']), "{subject}");
            assert_eq!(channel("encke.m", &subject).as_ref(), Some(&name), "{subject}");
            let other = subjects.entry(subject).or_insert_with(|| name.clone());
            assert_eq!(*other, name);
        }
        assert!(subjects.len() > 1_000);
    }

    #[test]
    fn a_subject_of_somebody_else_is_no_channel() {
        for subject in [
            "",
            "encke.m",
            "encke.m.",
            "encke.mm.a",
            "other.m.a",
            "encke.m.a..b",
            "encke.m.=a",
            "encke.m.a/b",
            "encke.m.a$",
            &beacon("encke.m"),
        ] {
            assert_eq!(channel("encke.m", subject), None, "{subject}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for (content_type, event, flags) in [
            (None, None, Flags::default()),
            (Some("text/plain"), None, Flags::KEY_FRAME),
            (Some("a/b; c=\"ä\""), Some("märz x"), Flags::default()),
        ] {
            let draft = Draft {
                channel: name("a.b/c"),
                data: b"x\0\xff".as_slice().into(),
                content_type: content_type.map(Into::into),
                event: event.map(Into::into),
                flags,
                key: None,
            };
            let sent = written(&draft, "id").outbound_message(subject("p", &draft.channel));
            let back = read(channel("p", &sent.subject).expect("ours"), sent.headers.as_ref(), &sent.payload);
            let parts = |draft: &Draft| {
                let Draft { channel, data, content_type, event, flags, .. } = draft.clone();
                (channel, data, content_type, event, flags)
            };
            assert_eq!(parts(&back), parts(&draft));
        }
    }

    #[test]
    fn only_a_node_says_who_comes_and_goes() {
        let announcement =
            Announcement { channel: name("a"), member: "ann".into(), joins: false, after: Some(7) };
        let id = id_of(&announcement).expect("several may find it");
        // An id with a publisher's key starts with the channel and a hexadecimal number, and no channel's name contains a
        // space.
        assert_eq!(id, "a gone 7 ann");
        let sent = written(&announcement.draft(), &id).outbound_message("p.a");
        assert!(is_official(sent.headers.as_ref()));
        let sent = written(&Draft { flags: Flags::KEY_FRAME, ..announcement.draft() }, &id);
        assert!(!is_official(sent.outbound_message("p.a").headers.as_ref()));
        assert!(!is_official(None));
    }

    #[test]
    fn a_key_names_a_publish_in_its_channel_and_of_its_publisher() {
        let key = |publisher, key: &str| IdempotencyKey { publisher, key: key.into() };
        let ids = [
            id(&name("a"), &key(1, "k")),
            id(&name("b"), &key(1, "k")),
            id(&name("a"), &key(2, "k")),
            id(&name("a"), &key(1, "1 k")),
            id(&name("a"), &key(0x11, "k")),
        ];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| other != one), "{one}");
        }
    }
}
