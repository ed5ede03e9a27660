//! The state of upstreams across a reload.

use encke_server::{Exchange, Outcome, Reply, Request};

use super::*;
use crate::fault::GatewayFault;

fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::error(404))
}

fn gateway(to: &[&str], counts: [usize; 2]) -> Gateway {
    let to = to.iter().map(|url| url.parse().expect("a URL")).collect();
    let mut upstream = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    // The authorities of this machine are of no account here.
    upstream.tls.insecure = true;
    let [a, b] = counts;
    let apps = [AppCount { name: "a", count: a }, AppCount { name: "b", count: b }];
    Gateway::with_apps(Arc::new(none), &[], &[upstream], &[], &apps, &AppPlaces::default())
        .expect("valid settings")
}

fn urls(gateway: &Gateway) -> Vec<String> {
    gateway.upstreams[0].targets.targets.iter().map(|target| target.url().to_string()).collect()
}

#[test]
fn a_reload_that_moves_a_process_to_another_application_opens_new_targets() {
    let apps = ["app:a", "app:b"];
    let old = gateway(&apps, [1, 2]);
    let expected = urls(&gateway(&apps, [2, 1]));
    assert_ne!(urls(&old), expected);
    assert_eq!(urls(&gateway(&apps, [2, 1]).with_figures_of(&old)), expected);
    let same = gateway(&apps, [1, 2]).with_figures_of(&old);
    assert!(Arc::ptr_eq(&same.upstreams[0], &old.upstreams[0]), "nothing has changed");
}

#[test]
fn targets_with_tls_keep_their_state_across_a_reload() {
    let to = ["https://127.0.0.1:1", "https://127.0.0.1:2", "https://127.0.0.1:3"];
    let old = gateway(&to, [1, 1]);
    let usages = |gateway: &Gateway| -> Vec<_> {
        gateway.upstreams[0].targets.targets.iter().map(|target| target.usage(0)).collect()
    };
    let [drained, ejected, failing] = &old.upstreams[0].targets.targets[..] else { panic!("three targets") };
    assert!(drained.state.drain());
    assert!((0..3).any(|_| ejected.failed(0, GatewayFault::Unreachable)));
    assert_eq!(failing.state.checked(false, (2, 1), 0), Some(false));
    let expected = usages(&old);
    let new = gateway(&to, [1, 1]).with_figures_of(&old);
    assert!(!Arc::ptr_eq(&new.upstreams[0], &old.upstreams[0]), "its authorities are read again");
    assert_eq!(usages(&new), expected);
    // Requests from before the reload and after it see one state.
    assert!(new.upstreams[0].targets.targets[0].state.resume(0));
    assert!(!drained.state.is_drained());
    let other = gateway(&to[..2], [1, 1]).with_figures_of(&new);
    assert_eq!(usages(&other), usages(&gateway(&to[..2], [1, 1])), "other settings begin anew");
}
