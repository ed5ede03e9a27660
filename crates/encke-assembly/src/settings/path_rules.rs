//! Rules by host and path, for the checks that access and rates have in common.

use encke_settings::Contradiction;

use super::{RoutedSite, Settings};

/// A rule of `[[access]]` or `[[rate]]`.
pub(super) struct GuardedPath<'a> {
    pub(super) section: &'static str,
    number: usize,
    pub(super) host: &'a [String],
    pub(super) pattern: &'a str,
}

impl Settings {
    /// All rules of access and rates, with their sections.
    pub(super) fn path_rules(&self) -> impl Iterator<Item = GuardedPath<'_>> {
        let access = self.access.iter().enumerate().map(|(number, rule)| GuardedPath {
            section: "access",
            number,
            host: &rule.host,
            pattern: &rule.pattern,
        });
        let rates = self.rate.iter().enumerate().map(|(number, rule)| GuardedPath {
            section: "rate",
            number,
            host: &rule.host,
            pattern: &rule.pattern,
        });
        access.chain(rates)
    }
}

impl GuardedPath<'_> {
    /// The rule in a message.
    pub(super) fn name(&self) -> String {
        format!("the rule of [[{}]] for {:?}", self.section, self.pattern)
    }

    /// A message about a key of the rule.
    pub(super) fn at(&self, key: &str, message: String) -> Contradiction {
        Contradiction::at(&[self.section, &self.number.to_string(), key], message)
    }

    /// Whether the rule applies to a host of the site.
    pub(super) fn applies_to(&self, site: &RoutedSite) -> bool {
        let has = |host: &String| self.host.iter().any(|name| name.eq_ignore_ascii_case(host));
        self.host.is_empty() || site.host.is_empty() || site.host.iter().any(has)
    }
}
