//! The members of a channel, by name. Several subscribers may join under one name: two tabs, or a poll that overlaps the next.
//!
//! A name is *listed* once it is announced. The announcement waits for the join rate of its client, and for room below the
//! limit on members.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sequencer::MemberPresence;

/// The names in a channel, and the number of subscribers with each.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    names: BTreeMap<Arc<str>, MemberCount>,
    listed: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct MemberCount {
    times: u32,
    listed: bool,
}

impl Roster {
    /// Adds a subscriber with a name. Returns whether the name is new.
    pub(crate) fn joins(&mut self, member: &Arc<str>) -> bool {
        let presence = self.names.entry(Arc::clone(member)).or_default();
        presence.times += 1;
        presence.times == 1
    }

    /// Lists a present name if fewer than `most` are listed. Returns whether the name is newly listed.
    pub(crate) fn list(&mut self, member: &Arc<str>, most: usize) -> bool {
        let Some(presence) = self.names.get_mut(member).filter(|presence| !presence.listed) else {
            return false;
        };
        presence.listed = self.listed < most;
        self.listed += usize::from(presence.listed);
        presence.listed
    }

    /// Removes a subscriber with a name. Returns whether the name was listed and this was its last subscriber.
    pub(crate) fn leaves(&mut self, member: &Arc<str>) -> bool {
        let Some(presence) = self.names.get_mut(member) else { return false };
        presence.times -= 1;
        if presence.times > 0 {
            return false;
        }
        let listed = presence.listed;
        self.listed -= usize::from(listed);
        self.names.remove(member);
        listed
    }

    /// Returns whether a name is listed.
    pub(crate) fn has(&self, member: &Arc<str>) -> bool {
        self.names.get(member).is_some_and(|presence| presence.listed)
    }

    /// Returns all listed names, in alphabetical order.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.names.iter().filter(|(_, presence)| presence.listed).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Returns all listed names in alphabetical order, with the number of their subscribers.
    pub(crate) fn counts(&self) -> Vec<MemberPresence> {
        let listed = self.names.iter().filter(|(_, presence)| presence.listed);
        listed
            .map(|(name, presence)| MemberPresence { name: Arc::clone(name), count: presence.times })
            .collect()
    }
}

/// Returns the payload of a join or a leave: `{"name":"Ada"}`.
pub(crate) fn presence_payload(member: &str) -> Box<[u8]> {
    let mut json = String::with_capacity(member.len() + 11);
    json.push_str("{\"name\":\"");
    for char in member.chars() {
        match char {
            '"' | '\\' => json.extend(['\\', char]),
            // RFC 8259, section 7: control characters must be escaped.
            '\0'..='\u{1F}' => json.push_str(&format!("\\u{:04x}", char as u32)),
            _ => json.push(char),
        }
    }
    json.push_str("\"}");
    json.into_bytes().into()
}

/// Returns the name in a payload made by [`presence_payload`].
pub(crate) fn named(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    let mut chars = text.strip_prefix("{\"name\":\"")?.strip_suffix("\"}")?.chars();
    let mut name = String::new();
    while let Some(char) = chars.next() {
        name.push(match char {
            '\\' => match chars.next()? {
                'u' => {
                    let code = chars.as_str().get(..4).and_then(|code| u32::from_str_radix(code, 16).ok())?;
                    chars.nth(3);
                    char::from_u32(code)?
                }
                other => other,
            },
            other => other,
        });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_from_its_first_join_to_its_last_leave() {
        let mut roster = Roster::default();
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        assert!(!roster.leaves(&ada) && !roster.list(&ada, 9));
        assert!(roster.joins(&bob) && roster.joins(&ada) && !roster.joins(&ada));
        assert!(roster.names().is_empty() && !roster.has(&ada));
        assert!(roster.list(&ada, 9) && !roster.list(&ada, 9) && roster.list(&bob, 9));
        assert_eq!(roster.names(), [ada.clone(), bob.clone()]);
        assert!(!roster.leaves(&ada) && roster.has(&ada));
        assert!(roster.leaves(&ada) && !roster.leaves(&ada));
        assert!(roster.leaves(&bob));
        assert!(!roster.has(&bob) && roster.names().is_empty());
    }

    #[test]
    fn no_more_names_are_listed_than_may_be() {
        let mut roster = Roster::default();
        let [ada, bob, cid]: [Arc<str>; 3] = ["ada", "bob", "cid"].map(Into::into);
        let mut comes = |name: &Arc<str>| roster.joins(name) && roster.list(name, 2);
        assert!(comes(&ada) && comes(&bob) && !comes(&cid));
        assert_eq!(roster.names(), [ada.clone(), bob]);
        assert!(roster.leaves(&ada));
        assert!(!roster.leaves(&cid), "its join was not told");
        assert!(roster.joins(&ada) && roster.list(&ada, 2));
    }

    #[test]
    fn names_are_told_as_json_whatever_is_in_them() {
        assert_eq!(&*presence_payload("Ada"), b"{\"name\":\"Ada\"}");
        for name in ["Ada", "", "a\"\\\n\u{1f}\u{e9}\u{1f98a}"] {
            assert_eq!(named(&presence_payload(name)).as_deref(), Some(name));
        }
        assert_eq!(named(b"{\"name\":1}"), None);
        assert_eq!(&*presence_payload("a\"\\\n\u{e9}"), "{\"name\":\"a\\\"\\\\\\u000a\u{e9}\"}".as_bytes());
    }
}
