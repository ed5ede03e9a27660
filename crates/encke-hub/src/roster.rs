//! Who is in a channel, by name. The same name may come several times: two tabs, a poll that overlaps the next.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The members of a channel, and how often each is there.
#[derive(Debug, Default)]
pub(crate) struct Roster(BTreeMap<Arc<str>, u32>);

impl Roster {
    /// Somebody came; says whether nobody of that name was there.
    pub(crate) fn joins(&mut self, member: &Arc<str>) -> bool {
        let times = self.0.entry(Arc::clone(member)).or_insert(0);
        *times += 1;
        *times == 1
    }

    /// Somebody went; says whether nobody of that name is left.
    pub(crate) fn leaves(&mut self, member: &Arc<str>) -> bool {
        let Some(times) = self.0.get_mut(member) else { return false };
        *times -= 1;
        if *times > 0 {
            return false;
        }
        self.0.remove(member);
        true
    }

    /// Whether somebody of that name is there.
    pub(crate) fn has(&self, member: &Arc<str>) -> bool {
        self.0.contains_key(member)
    }

    /// All names, in the order of the alphabet.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.0.keys().cloned().collect()
    }
}

/// What the channel is told when a name comes or goes: `{"name":"Ada"}`.
pub(crate) fn told(member: &str) -> Box<[u8]> {
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

/// The name that was told, if it was told by [`told`].
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
    fn a_name_is_there_from_its_first_coming_to_its_last_going() {
        let mut roster = Roster::default();
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        assert!(!roster.leaves(&ada));
        assert!(roster.joins(&bob) && roster.joins(&ada) && !roster.joins(&ada));
        assert_eq!(roster.names(), [ada.clone(), bob.clone()]);
        assert!(roster.has(&ada));
        assert!(!roster.leaves(&ada) && roster.leaves(&ada) && !roster.leaves(&ada));
        assert!(roster.leaves(&bob));
        assert!(!roster.has(&bob) && roster.names().is_empty());
    }

    #[test]
    fn names_are_told_as_json_whatever_is_in_them() {
        assert_eq!(&*told("Ada"), b"{\"name\":\"Ada\"}");
        for name in ["Ada", "", "a\"\\\n\u{1f}\u{e9}\u{1f98a}"] {
            assert_eq!(named(&told(name)).as_deref(), Some(name));
        }
        assert_eq!(named(b"{\"name\":1}"), None);
        assert_eq!(&*told("a\"\\\n\u{e9}"), "{\"name\":\"a\\\"\\\\\\u000a\u{e9}\"}".as_bytes());
    }
}
