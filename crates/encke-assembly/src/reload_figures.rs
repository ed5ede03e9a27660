//! Metrics of reloads. A service manager that sends a signal does not learn the outcome, so it is a metric.

use encke_stats::{Counter, Family, Gauge, Source};

use crate::settings_access::ReloadResult;

/// The outcomes of all reloads of this process.
#[derive(Debug, Default)]
pub(crate) struct ReloadFigures {
    applied: Counter,
    rejected: Counter,
    /// 1 while the settings file on disk has been rejected.
    is_rejected: Gauge,
}

impl ReloadFigures {
    /// Counts a reload. `keeps_file` is false for a request of the console, which restores the old file after a failure.
    pub(crate) fn count(&self, result: &ReloadResult, keeps_file: bool) {
        match result {
            Ok(_) => {
                self.applied.add(1);
                self.is_rejected.set(0);
            }
            Err(_) => {
                self.rejected.add(1);
                if keeps_file {
                    self.is_rejected.set(1);
                }
            }
        }
    }
}

impl Source for ReloadFigures {
    fn name(&self) -> &'static str {
        "reloads"
    }

    fn families(&self) -> Vec<Family> {
        vec![
            Family::counter("encke_reloads_total", "Reloads of the settings, by outcome.")
                .with(&[("outcome", "applied")], self.applied.value())
                .with(&[("outcome", "rejected")], self.rejected.value()),
            Family::gauge(
                "encke_reload_rejected",
                "1 if the last reload rejected the settings file, and older settings are in force.",
            )
            .with(&[], self.is_rejected.value()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use encke_console::ApplyError;

    #[test]
    fn a_rejected_file_stays_reported_until_a_reload_applies_one() {
        let figures = ReloadFigures::default();
        let rejected = || Err(ApplyError::Rejected("line 3".into()));
        let values = || (figures.applied.value(), figures.rejected.value(), figures.is_rejected.value());
        figures.count(&rejected(), false);
        assert_eq!(values(), (0, 1, 0), "the console has restored the file");
        figures.count(&rejected(), true);
        assert_eq!(values(), (0, 2, 1));
        figures.count(&rejected(), false);
        assert_eq!(values(), (0, 3, 1));
        figures.count(&Ok(Vec::new()), true);
        assert_eq!(values(), (1, 3, 0));
    }
}
