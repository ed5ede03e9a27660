//! The last check of the settings file: pages ask for it every few seconds, and it parses the whole file.

use super::control::SettingsCheck;

/// Time after which a check is repeated, although file and settings in force are the same: `include` may match another file.
const AGE_MAX_NS: u64 = 2_000_000_000;

/// The last check, with the key of what was checked and its time.
#[derive(Debug, Default)]
pub(crate) struct CheckCache {
    last: Option<(u64, u64, SettingsCheck)>,
}

impl CheckCache {
    /// Returns the last check if it has this key and is not too old, and makes a new one otherwise.
    pub(crate) fn get(
        &mut self,
        key: u64,
        now_ns: u64,
        check: impl FnOnce() -> SettingsCheck,
    ) -> SettingsCheck {
        if let Some((known, at_ns, last)) = &self.last
            && *known == key
            && now_ns.saturating_sub(*at_ns) < AGE_MAX_NS
        {
            return last.clone();
        }
        let new = check();
        self.last = Some((key, now_ns, new.clone()));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_repeated_for_other_settings_and_after_its_time() {
        let mut cache = CheckCache::default();
        let mut made = 0;
        let mut counts = Vec::new();
        for (key, now_ns) in [(1, 0), (1, AGE_MAX_NS - 1), (1, AGE_MAX_NS), (2, AGE_MAX_NS), (1, AGE_MAX_NS)]
        {
            let check = cache.get(key, now_ns, || {
                made += 1;
                SettingsCheck { set: vec![made.to_string()], ..SettingsCheck::default() }
            });
            counts.push(check.set.concat());
        }
        assert_eq!(counts, ["1", "1", "2", "3", "4"]);
    }
}
