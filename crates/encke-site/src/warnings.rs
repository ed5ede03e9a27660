//! Settings of a site that are valid, but probably not meant: error pages without a file, redirects without an end.

use encke_settings::Contradiction;
use encke_wire::host::{HostPattern, bare_host};
use encke_wire::target::decode_path;

use super::rules::RuleSet;
use super::settings::SiteTable;

/// Number of redirects after which a chain counts as endless. Browsers give up after 20.
const REDIRECTS_MAX: usize = 10;

/// Returns the warnings about a site. Reads the file system. Empty if the settings are invalid.
pub(super) fn warnings<R>(settings: &SiteTable<R>) -> Vec<Contradiction> {
    let Ok(rules) = RuleSet::of(settings) else { return Vec::new() };
    let mut found = Vec::new();
    for (status, path) in &settings.errors {
        let mut decoded = String::new();
        if decode_path(path.as_bytes(), &mut decoded).is_err() {
            continue;
        }
        let Some((number, name)) = rules.place(&decoded) else { continue };
        let file = rules.places[number].folder.join(name);
        if !file.is_file() {
            let text = format!("site.errors: the page for {status} does not exist: {}", file.display());
            found.push(Contradiction::at(&["errors", status], text));
        }
    }
    for (number, rule) in settings.redirects.iter().enumerate() {
        if let Some(path) = endless(settings, &rules, number) {
            let text = format!("site.redirects: {path} is redirected again and again: {} is, too", rule.to);
            found.push(Contradiction::at(&["redirects", &number.to_string()], text));
        }
    }
    for (key, is_set) in [("spa_dots", settings.spa_dots), ("spa_wildcards", settings.spa_wildcards)] {
        if is_set && !settings.spa {
            found.push(Contradiction::at(&[key], format!("site.{key}: no effect without spa = true")));
        }
    }
    found
}

/// A path that a redirect rule sends from redirect to redirect, if there is one.
fn endless<R>(settings: &SiteTable<R>, rules: &RuleSet, number: usize) -> Option<String> {
    let first = rules.redirect_sample(number)?;
    let mut path = first.clone();
    for _ in 0..REDIRECTS_MAX {
        let (_, target, _) = rules.moved(&path)?;
        path = path_here(settings, &target)?;
    }
    Some(first)
}

/// The decoded path of a redirect's target, if the target is in the same site.
fn path_here<R>(settings: &SiteTable<R>, target: &str) -> Option<String> {
    let rest = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"));
    let path = match rest {
        None => target,
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            let host = bare_host(authority.as_bytes());
            let mut names = settings.host.iter().filter_map(|name| name.parse::<HostPattern>().ok());
            if !names.any(|name| !name.is_below() && name.matches(host)) {
                return None;
            }
            path
        }
    };
    let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
    let mut decoded = String::new();
    decode_path(path.as_bytes(), &mut decoded).ok()?;
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Redirect, SiteSettings};

    fn told(settings: &SiteSettings) -> Vec<String> {
        warnings(settings).into_iter().map(|one| one.path.join(".")).collect()
    }

    #[test]
    fn settings_of_spa_without_it_are_reported() {
        let settings = SiteSettings { spa_dots: true, ..SiteSettings::default() };
        assert_eq!(told(&settings), ["spa_dots"]);
        let settings = SiteSettings { spa: true, spa_wildcards: true, ..settings };
        assert!(told(&settings).is_empty());
    }

    #[test]
    fn an_error_page_without_a_file_is_reported() {
        let folder = std::env::temp_dir().join(format!("encke-site-warnings-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("pages/sub")).expect("a temporary folder");
        std::fs::write(folder.join("pages/a b.html"), "gone").expect("a temporary file");
        let page = |path: &str| SiteSettings {
            root: folder.clone(),
            aliases: vec![crate::settings::Alias { path: "/e/".into(), to: folder.join("pages") }],
            errors: [("404".to_owned(), path.to_owned())].into(),
            ..SiteSettings::default()
        };
        for path in ["/pages/a%20b.html", "/e/a%20b.html"] {
            assert!(told(&page(path)).is_empty(), "{path}");
        }
        for path in ["/404.html", "/pages/sub", "/e/404.html"] {
            assert_eq!(told(&page(path)), ["errors.404"], "{path}");
        }
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }

    #[test]
    fn redirects_without_an_end_are_reported() {
        let site = |rules: &[(&str, &str)]| SiteSettings {
            host: vec!["example.org".into(), "*.example.net".into()],
            redirects: rules
                .iter()
                .map(|(from, to)| Redirect { from: (*from).into(), to: (*to).into(), status: 301 })
                .collect(),
            ..SiteSettings::default()
        };
        for (rules, endless) in [
            (&[("/a", "/a")][..], &["redirects.0"][..]),
            (&[("/**", "/new")], &["redirects.0"]),
            (&[("/old/**", "/old/new/$1")], &["redirects.0"]),
            (&[("/a", "/b?x"), ("/c", "/d"), ("/b", "/a")], &["redirects.0", "redirects.2"]),
            (&[("/**", "https://Example.org:443/$1")], &["redirects.0"]),
            (&[("/a b", "/a%20b")], &["redirects.0"]),
            (&[("/old/*", "/new/$1"), ("/**/*.htm", "/$2.html")], &[]),
            (&[("/**", "https://example.com/$1"), ("/x", "https://www.example.net/x")], &[]),
            (&[("/a", "/b"), ("/b", "/c")], &[]),
        ] {
            assert_eq!(told(&site(rules)), endless, "{rules:?}");
        }
    }
}
