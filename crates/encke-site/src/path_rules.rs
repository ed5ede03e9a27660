//! The rules of a site for paths that another handler serves, such as an application.

use std::sync::Arc;

use encke_server::Fields;

use super::Site;
use super::find::SiteRoot;
use super::rules::RuleSet;

/// The rules of one site, for paths whose responses are not its files.
#[derive(Clone, Debug)]
pub struct PathRules {
    rules: Arc<RuleSet>,
}

/// The fields that the rules of a site give a response.
#[derive(Clone, Default)]
pub struct PathFields {
    /// Fields that replace all others of their names.
    pub set: Fields,
    /// Names of fields that are removed.
    pub removed: Vec<String>,
}

impl Site {
    /// Returns the rules of a site, by its number; `None` if the site has none that concern other responses than its files.
    pub fn path_rules(&self, site: usize) -> Option<PathRules> {
        let rules = self.grounds.get(site).map(SiteRoot::rules)?;
        rules.concern_all_responses().then_some(PathRules { rules })
    }
}

impl PathRules {
    /// Returns the number of characters besides stars in the pattern of the redirect for a decoded path. `None`: the path is not
    /// redirected.
    pub fn redirect_weight(&self, path: &str) -> Option<usize> {
        self.rules.redirect_weight(path)
    }

    /// Whether `status` of `paths` rejects requests for a decoded path.
    pub fn rejects(&self, path: &str) -> bool {
        self.rules.rejects(path)
    }

    /// Returns the fields of `headers` for a decoded path, and of `hsts` if the response leaves over TLS.
    pub fn fields(&self, path: &str, secure: bool) -> PathFields {
        let policy = self.rules.policy(path);
        let mut set = policy.fields;
        if let Some(hsts) = self.rules.hsts().filter(|_| secure) {
            set.extend(hsts);
        }
        PathFields { set, removed: policy.removed }
    }
}
