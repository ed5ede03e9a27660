//! Tests of the choice of a target: its order, shares, and exceptions. The connections are those of `tests/balance.rs`.

use std::collections::BTreeMap;

use super::*;
use crate::fault::GatewayFault;
use crate::target::NewTarget;
use crate::target_state::{EJECTED_NS, EJECTED_NS_MAX};

/// Targets with these weights; 0: a backup.
fn targets(balance: Balance, weights: &[u32], slow_start_ns: u64) -> TargetSet {
    let target = |(number, weight): (usize, &u32)| NewTarget {
        url: format!("http://10.0.0.{}:80", number + 1).parse().expect("a URL"),
        addresses: Vec::new(),
        weight: (*weight).max(1),
        is_backup: *weight == 0,
        sessions: None,
        place: None,
    };
    TargetSet::new(weights.iter().enumerate().map(target).collect(), balance, slow_start_ns)
}

fn tried(tried: u64) -> TargetWish {
    TargetWish { tried, ..TargetWish::default() }
}

fn key(key: u64) -> TargetWish {
    TargetWish { key: Some(mix(key)), ..TargetWish::default() }
}

/// Chooses among targets of which all are free.
fn choose(targets: &TargetSet, mask: u64, now_ns: u64) -> Option<usize> {
    targets.choose(&tried(mask), now_ns, |_| true).free()
}

fn eject(targets: &TargetSet, place: usize) {
    assert!(
        (0..3).any(|_| targets.targets[place].failed(0, GatewayFault::Unreachable)),
        "three failures eject a target"
    );
}

/// The number of choices of each target among `count`, for a request that `wish` makes of the number.
fn shares(targets: &TargetSet, count: u64, now_ns: u64, wish: impl Fn(u64) -> TargetWish) -> Vec<u64> {
    let mut shares = vec![0; targets.len()];
    for number in 0..count {
        let chosen = targets.choose(&wish(number), now_ns, |_| true).free().expect("all are free");
        shares[chosen] += 1;
    }
    shares
}

#[test]
fn requests_go_where_the_fewest_are_and_take_turns() {
    let targets = targets(Balance::Least, &[1, 1, 1], 0);
    let turns: Vec<_> = (0..6).filter_map(|_| choose(&targets, 0, 0)).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    targets.get(1).expect("a target").begin();
    assert!((0..6).all(|_| choose(&targets, 0, 0) != Some(1)));
    assert_eq!(choose(&targets, 0b101, 0), Some(1), "the others have failed");
    assert_eq!(choose(&targets, 0b111, 0), None);
}

#[test]
fn a_weight_is_a_share_of_turns_and_of_load() {
    let targets = targets(Balance::Two, &[3, 1, 0], 0);
    let turns: Vec<_> = (0..8).filter_map(|_| choose(&targets, 0, 0)).collect();
    assert_eq!(turns, [0, 0, 0, 1, 0, 0, 0, 1]);
    (0..2).for_each(|_| targets.targets[0].begin());
    targets.targets[1].begin();
    assert!((0..8).all(|_| choose(&targets, 0, 0) == Some(0)), "2 of 3 are less than 1 of 1");
}

#[test]
fn a_target_that_fails_is_ejected_for_longer_each_time_and_returns() {
    const SECOND: u64 = EJECTED_NS;
    let targets = targets(Balance::Two, &[1, 0], 0);
    assert_eq!(choose(&targets, 0, 0), Some(0), "the other one is a backup");
    let target = targets.get(0).expect("a target");
    assert_eq!(
        (0..4).map(|_| target.failed(0, GatewayFault::Unreachable)).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    for (now_ns, chosen) in [(0, 1), (SECOND - 1, 1), (SECOND, 0)] {
        assert_eq!(choose(&targets, 0, now_ns), Some(chosen), "at {now_ns} ns");
    }
    assert!(
        target.failed(SECOND, GatewayFault::Unreachable),
        "each failure after its return ejects it again"
    );
    for (now_ns, chosen) in [(3 * SECOND - 1, 1), (3 * SECOND, 0)] {
        assert_eq!(choose(&targets, 0, now_ns), Some(chosen), "at {now_ns} ns");
    }
    let mut now_ns = 3 * SECOND;
    for _ in 0..60 {
        assert!(target.failed(now_ns, GatewayFault::Unreachable));
        now_ns += EJECTED_NS_MAX;
    }
    assert_eq!(choose(&targets, 0, now_ns - 1), Some(1));
    assert_eq!(choose(&targets, 0, now_ns), Some(0));
    assert!(target.succeeded(now_ns), "it had been left out");
    assert!(!target.succeeded(now_ns));
    assert_eq!(choose(&targets, 0, 0), Some(0));
}

#[test]
fn no_backup_or_ejected_target_replaces_a_busy_one() {
    for balance in [Balance::Two, Balance::Least, Balance::RoundRobin] {
        let targets = targets(balance, &[1, 1, 0], 0);
        let only = |free: usize| targets.choose(&tried(0), 0, move |target| target == free);
        assert_eq!(only(1), TargetChoice::Free(1));
        assert_eq!(only(2), TargetChoice::Busy, "the backup is free");
        eject(&targets, 1);
        assert_eq!(only(1), TargetChoice::Busy, "the ejected target is free");
        let is_choice = |target| targets.is_choice(&tried(0), target, 0);
        assert!(is_choice(0) && !is_choice(1) && !is_choice(2));
        eject(&targets, 0);
        assert_eq!(only(2), TargetChoice::Free(2), "all others are ejected");
        assert_eq!(targets.choose(&tried(0b111), 0, |_| true), TargetChoice::None);
    }
}

#[test]
fn a_failing_target_is_the_last_resort_and_a_drained_one_is_none() {
    let targets = targets(Balance::Two, &[1, 1, 0], 0);
    let all: Vec<_> = (0..3).map(|place| &targets.targets[place].state).collect();
    assert_eq!(all[0].checked(false, (1, 1), 0), Some(false));
    assert!((0..6).all(|_| choose(&targets, 0, 0) == Some(1)));
    assert!(all[1].drain());
    assert!((0..6).all(|_| choose(&targets, 0, 0) == Some(2)), "the backup is in use");
    assert!(all[2].drain());
    assert!((0..6).all(|_| choose(&targets, 0, 0) == Some(0)), "no other target is left");
    assert!(all[0].drain());
    assert_eq!(targets.choose(&tried(0), 0, |_| true), TargetChoice::None);
    assert!(!targets.has_other(&tried(0)));
    assert!(all[0].resume(0) && targets.has_other(&tried(0)));
    let single = super::tests::targets(Balance::Two, &[1], 0);
    eject(&single, 0);
    assert_eq!(choose(&single, 0, 0), Some(0), "an ejected target that is alone stays in use");
    assert!(single.targets[0].state.drain());
    assert_eq!(single.choose(&tried(0), 0, |_| true), TargetChoice::None);
}

#[test]
fn two_choices_keep_loads_even_and_follow_weights() {
    let targets = targets(Balance::Two, &[4, 2, 1, 1], 0);
    let drawn = shares(&targets, 8_000, 0, |_| tried(0));
    for (place, share) in [4_000, 2_000, 1_000, 1_000_u64].into_iter().enumerate() {
        assert!(drawn[place].abs_diff(share) < share / 8, "idle targets are drawn by weight: {drawn:?}");
    }
    for _ in 0..800 {
        let chosen = choose(&targets, 0, 0).expect("all are free");
        targets.targets[chosen].begin();
    }
    let loads: Vec<_> = targets.targets.iter().map(UpstreamTarget::busy).collect();
    for (place, load) in [400, 200, 100, 100_u32].into_iter().enumerate() {
        assert!(loads[place].abs_diff(load) <= load / 20 + 2, "{loads:?}");
    }
    // The one with by far the highest load is chosen only against itself, which two distinct draws exclude.
    (0..1_000).for_each(|_| targets.targets[2].begin());
    assert_eq!(shares(&targets, 1_000, 0, |_| tried(0))[2], 0);
}

#[test]
fn turns_are_smooth_and_a_returning_target_catches_up_on_nothing() {
    let targets = targets(Balance::RoundRobin, &[3, 1, 1], 0);
    let turns: Vec<_> = (0..500).filter_map(|_| choose(&targets, 0, 0)).collect();
    for window in turns.windows(5) {
        let mut counts = [0; 3];
        window.iter().for_each(|place| counts[*place] += 1);
        assert!(counts[0] >= 2 && counts[0] <= 4, "{window:?}");
    }
    let count = |turns: &[usize], place| turns.iter().filter(|turn| **turn == place).count();
    assert_eq!([0, 1, 2].map(|place| count(&turns, place)), [300, 100, 100]);
    assert!(targets.targets[1].state.drain());
    let turns: Vec<_> = (0..400).filter_map(|_| choose(&targets, 0, 0)).collect();
    assert_eq!([0, 1, 2].map(|place| count(&turns, place)), [300, 0, 100]);
    assert!(targets.targets[1].state.resume(0));
    let turns: Vec<_> = (0..50).filter_map(|_| choose(&targets, 0, 0)).collect();
    assert!(count(&turns, 1) <= 11, "{turns:?}");
    // The requests in progress do not matter.
    (0..100).for_each(|_| targets.targets[0].begin());
    let turns: Vec<_> = (0..50).filter_map(|_| choose(&targets, 0, 0)).collect();
    assert!(count(&turns, 0) >= 29, "{turns:?}");
}

#[test]
fn turns_survive_the_end_of_the_counter() {
    let targets = targets(Balance::RoundRobin, &[1, 1, 1], 0);
    let late = u64::MAX - 5 * STRIDE;
    targets.progress.store(late, Ordering::Relaxed);
    targets.targets.iter().for_each(|target| target.progress.store(late, Ordering::Relaxed));
    assert_eq!(shares(&targets, 300, 0, |_| tried(0)), [100, 100, 100]);
}

#[test]
fn a_hash_leads_to_one_target_and_moves_few_requests() {
    const KEYS: u64 = 8_000;
    let targets = targets(Balance::Hash(crate::BalanceKey::Address), &[2, 1, 1, 0], 0);
    let homes = |now_ns| -> Vec<_> {
        (0..KEYS).map(|number| targets.choose(&key(number), now_ns, |_| true).free()).collect()
    };
    let before = homes(0);
    assert_eq!(before, homes(0));
    let drawn = shares(&targets, KEYS, 0, key);
    for (place, share) in [4_000, 2_000, 2_000, 0_u64].into_iter().enumerate() {
        assert!(drawn[place].abs_diff(share) <= share / 10, "{drawn:?}");
    }
    assert!(targets.targets[1].state.drain());
    let mut moved = BTreeMap::new();
    for (before, after) in before.iter().zip(homes(0)) {
        assert!(*before == after || *before == Some(1), "only requests of the missing target move");
        *moved.entry(after).or_insert(0) += usize::from(*before != after);
    }
    assert!(moved[&Some(0)] > 0 && moved[&Some(2)] > 0, "{moved:?}");
    assert!(targets.targets[1].state.resume(0));
    assert_eq!(before, homes(0), "they return with it");
    // A request waits for a busy target, but not for one that it has tried.
    let busy = before[7].expect("a target");
    let choose = |wish: &TargetWish| targets.choose(wish, 0, |target| target != busy);
    assert_eq!(choose(&key(7)), TargetChoice::Busy);
    assert!((0..3).all(|target| targets.is_choice(&key(7), target, 0) == (target == busy)));
    let other = choose(&TargetWish { tried: 1 << busy, ..key(7) });
    assert!(matches!(other, TargetChoice::Free(target) if target < 3), "{other:?}");
    assert!(matches!(choose(&tried(0)), TargetChoice::Free(_)), "a request without a key waits for none");
    // The place of a target in the list does not matter.
    let forward = self::targets(Balance::Hash(crate::BalanceKey::Address), &[1, 1], 0);
    let mut backward = self::targets(Balance::Hash(crate::BalanceKey::Address), &[1, 1], 0);
    backward.targets.reverse();
    for number in 0..100 {
        let [one, other] = [&forward, &backward].map(|set| set.choose(&key(number), 0, |_| true).free());
        assert_eq!(one.map(|place| 1 - place), other);
    }
}

#[test]
fn a_cookie_leads_to_its_target_while_that_is_a_good_one() {
    let targets = targets(Balance::Least, &[1, 1, 1, 0], 0);
    let sticky = |target: usize| TargetWish {
        sticky: targets.find_digest(targets.targets[target].digest()),
        ..TargetWish::default()
    };
    assert_eq!(targets.find_digest(1), None);
    targets.targets[2].begin();
    for _ in 0..6 {
        assert_eq!(targets.choose(&sticky(2), 0, |_| true), TargetChoice::Free(2), "whatever its load");
    }
    assert_eq!(targets.choose(&sticky(2), 0, |target| target != 2), TargetChoice::Busy);
    let wish = TargetWish { tried: 0b100, ..sticky(2) };
    assert!(matches!(targets.choose(&wish, 0, |_| true), TargetChoice::Free(0 | 1)));
    eject(&targets, 2);
    assert!(matches!(targets.choose(&sticky(2), 0, |_| true), TargetChoice::Free(0 | 1)));
    assert!(matches!(targets.choose(&sticky(3), 0, |_| true), TargetChoice::Free(0 | 1)), "a backup");
}

#[test]
fn a_returning_target_begins_with_a_tenth_of_its_share() {
    const SLOW: u64 = 100 * EJECTED_NS;
    for (balance, weights) in [
        (Balance::Two, vec![1; 2]),
        (Balance::Two, vec![1; 4]),
        (Balance::Least, vec![1; 4]),
        (Balance::RoundRobin, vec![1; 4]),
    ] {
        let count = weights.len() as u64;
        let targets = targets(balance.clone(), &weights, SLOW);
        eject(&targets, 0);
        for (after_ns, share) in [(0, 0.1), (SLOW / 2, 0.55), (SLOW, 1.0)] {
            let chosen = shares(&targets, 8_000, EJECTED_NS + after_ns, |_| tried(0))[0];
            let expected = 8_000.0 * share / (share + (count - 1) as f64);
            let error = (chosen as f64 - expected).abs() / expected;
            assert!(error < 0.2, "{balance:?} of {count} after {after_ns} ns: {chosen}, expected {expected}");
        }
    }
}
