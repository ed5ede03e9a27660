//! Limits of live pages: no user, and no number of users with the role `view`, takes all of them.

use std::fmt;
use std::sync::Arc;

use crate::settings::ConsoleRole;

/// Maximum number of open pages; of those, pages of one user, and pages of all users with the role `view`.
pub(crate) const PAGES_MAX: usize = 64;
const USER_PAGES_MAX: usize = 24;
const VIEWER_PAGES_MAX: usize = 48;
/// Maximum number of views of the log of all users with the role `view`: half of the server's limit.
const VIEWER_LOGS_MAX: usize = 8;

/// The share of a page in the limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PageShare {
    pub(crate) user: Arc<str>,
    pub(crate) role: ConsoleRole,
    /// Number of views of the log.
    pub(crate) logs: usize,
}

/// A limit that a new page exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageLimit {
    All,
    User,
    Viewers,
    ViewerLogs,
}

impl fmt::Display for PageLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "{PAGES_MAX} live pages"),
            Self::User => write!(f, "{USER_PAGES_MAX} live pages of one user"),
            Self::Viewers => write!(f, "{VIEWER_PAGES_MAX} live pages of users with the role view"),
            Self::ViewerLogs => write!(f, "{VIEWER_LOGS_MAX} views of the log by users with the role view"),
        }
    }
}

impl PageShare {
    /// Checks that this page may be opened besides the `open` ones.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn check(&self, open: &[Self]) -> Result<(), PageLimit> {
        let viewers = || open.iter().filter(|page| page.role < ConsoleRole::Admin);
        let viewer_logs = viewers().map(|page| page.logs).sum::<usize>();
        let is_viewer = self.role < ConsoleRole::Admin;
        if open.len() >= PAGES_MAX {
            Err(PageLimit::All)
        } else if open.iter().filter(|page| page.user == self.user).count() >= USER_PAGES_MAX {
            Err(PageLimit::User)
        } else if is_viewer && viewers().count() >= VIEWER_PAGES_MAX {
            Err(PageLimit::Viewers)
        } else if is_viewer && self.logs > 0 && viewer_logs + self.logs > VIEWER_LOGS_MAX {
            Err(PageLimit::ViewerLogs)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(user: &str, role: ConsoleRole, logs: usize) -> PageShare {
        PageShare { user: user.into(), role, logs }
    }

    /// Opens pages until a limit is reached. Returns the limit.
    fn fill(open: &mut Vec<PageShare>, new: &PageShare) -> PageLimit {
        loop {
            match new.check(open) {
                Ok(()) => open.push(new.clone()),
                Err(limit) => return limit,
            }
        }
    }

    #[test]
    fn viewers_leave_pages_and_views_of_the_log_to_administrators() {
        let mut open = Vec::new();
        let viewer = |user| page(user, ConsoleRole::View, 0);
        assert_eq!(fill(&mut open, &viewer("ben")), PageLimit::User);
        assert_eq!(fill(&mut open, &viewer("eva")), PageLimit::User);
        assert_eq!(fill(&mut open, &viewer("kim")), PageLimit::Viewers);
        assert_eq!(open.len(), VIEWER_PAGES_MAX);
        let before = open.clone();
        assert_eq!(fill(&mut open, &page("ann", ConsoleRole::Admin, 8)), PageLimit::All);
        assert_eq!(open.len() - before.len(), PAGES_MAX - VIEWER_PAGES_MAX);
    }

    #[test]
    fn views_of_the_log_by_viewers_are_counted_for_all_of_them() {
        let mut open = Vec::new();
        assert_eq!(fill(&mut open, &page("ben", ConsoleRole::View, 3)), PageLimit::ViewerLogs);
        assert_eq!(page("eva", ConsoleRole::View, 3).check(&open), Err(PageLimit::ViewerLogs));
        assert_eq!(page("eva", ConsoleRole::View, 2).check(&open), Ok(()));
        assert_eq!(page("eva", ConsoleRole::View, 0).check(&open), Ok(()));
        assert_eq!(page("ann", ConsoleRole::Admin, 8).check(&open), Ok(()));
    }
}
