//! The rules of a site that also apply to its routes: redirects, rejected paths, and fields of responses.

use encke_server::{Fields, Reply};

use crate::field_changes::FieldChanges;

/// The rules of a site, for [`SiteRoutes`](crate::SiteRoutes).
pub trait SitePolicy: Send + Sync {
    /// Whether the site responds to requests for a decoded path in place of a route, by a redirect or a rejection. `weight` is the
    /// number of characters besides stars in the route's pattern.
    fn decides(&self, path: &str, weight: usize) -> bool;

    /// The fields of responses to requests for a decoded path. `secure`: over TLS.
    fn fields(&self, path: &str, secure: bool) -> SiteFields;
}

/// Fields that a site gives every response.
#[derive(Clone, Default)]
pub struct SiteFields {
    /// Fields that replace all fields of the same names.
    pub set: Fields,
    /// Names of fields that are removed.
    pub removed: Vec<String>,
}

impl SiteFields {
    /// Removes the fields that a route changes itself. Returns `None` if no field is left.
    pub(crate) fn less(self, changes: &FieldChanges) -> Option<Box<Self>> {
        let mut set = Fields::with_capacity(self.set.len_bytes());
        for (name, value) in self.set.iter().filter(|(name, _)| !changes.touches(name)) {
            if let Ok(name) = std::str::from_utf8(name) {
                // The name and the value were a field before.
                let _ = set.push(name, value);
            }
        }
        let mut removed = self.removed;
        removed.retain(|name| !changes.touches(name.as_bytes()));
        let is_empty = set.is_empty() && removed.is_empty();
        (!is_empty).then(|| Box::new(Self { set, removed }))
    }

    /// Changes the fields of a response.
    pub(crate) fn apply(&self, reply: &mut Reply) {
        let own = std::mem::take(&mut reply.fields);
        let mut fields = Fields::with_capacity(own.len_bytes() + self.set.len_bytes());
        for (name, value) in own.iter() {
            let is_replaced = self.set.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
                || self.removed.iter().any(|other| other.as_bytes().eq_ignore_ascii_case(name));
            if !is_replaced && let Ok(name) = std::str::from_utf8(name) {
                // The name and the value were a field before.
                let _ = fields.push(name, value);
            }
        }
        fields.extend(&self.set);
        reply.fields = fields;
    }
}

/// Gives a response the fields of the site.
pub(crate) fn dressed(site: Option<&SiteFields>, mut reply: Reply) -> Reply {
    if let Some(site) = site {
        site.apply(&mut reply);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::FieldRules;

    #[test]
    fn fields_of_a_site_replace_the_applications_unless_the_route_changes_them() {
        let rules = FieldRules { remove: vec!["X-Route".into()], ..FieldRules::default() };
        let changes = FieldChanges::of(&rules, false).expect("valid");
        let mut set = Fields::new();
        for (name, value) in [("X-Frame-Options", "DENY"), ("X-Route", "site")] {
            set.push(name, value.as_bytes()).expect("a field");
        }
        let site = SiteFields { set, removed: vec!["server".into(), "x-route".into()] };
        let site = site.less(&changes).expect("some fields are left");
        let mut reply = Reply::new(200)
            .with("x-frame-options", "SAMEORIGIN")
            .with("Server", "app")
            .with("X-Route", "route")
            .with("X-Kept", "1");
        site.apply(&mut reply);
        assert_eq!(
            String::from_utf8_lossy(reply.fields.lines()),
            "X-Route: route\r\nX-Kept: 1\r\nX-Frame-Options: DENY\r\n"
        );
        assert!(SiteFields::default().less(&changes).is_none());
    }
}
