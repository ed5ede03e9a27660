//! Rates on a stand-in for a worker: the clock is the test's.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use encke_io::{Now, Peer};
use encke_server::testing::GuardStage;
use encke_server::{
    Body, Explain as _, Fields, Guard, GuardMount, GuardVerdict, HandlerContext, Kept, Origin, WorkerSetup,
};
use encke_settings::{Contradiction, Section as _};

use super::table::{RateAdmission, RateHasher, RateTable, prefix_mask};
use super::timer::DelayedRequests;
use super::{RateBy, RateRules, RateSettings, RateStage, RequestRate};

const NOW: Now = Now { mono_ns: 1_000_000_000_000, unix_ns: 1_790_000_000_000_000_000 };
const MS: u64 = 1_000_000;

fn settings(text: &str) -> Vec<RateSettings> {
    #[derive(serde::Deserialize)]
    struct Settings {
        rate: Vec<RateSettings>,
    }
    let text = if text.contains("[[rate]]") { text.to_owned() } else { format!("[[rate]]\n{text}") };
    let Settings { rate } = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    for rule in &rate {
        assert_eq!(rule.check(), [], "{text}");
    }
    rate
}

fn rules(text: &str) -> RateRules {
    RateRules::new(&settings(text), None).expect("valid rules")
}

fn stage(text: &str) -> GuardStage {
    GuardStage::open(NOW, &rules(text).early().expect("an early rule"))
}

fn from(address: &str) -> Origin {
    let client: Option<IpAddr> = (!address.is_empty()).then(|| address.parse().expect("an address"));
    Origin {
        peer: Peer::Local,
        client,
        forwards: false,
        hidden: false,
        secure: false,
        tls: None,
        local: client.is_none(),
    }
}

fn request(method: &str, path: &str, fields: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: example.org\r\n{fields}\r\n").into_bytes()
}

/// The result for a request: `-`, the status with the seconds to wait, or `held`.
fn verdict_of(stage: &mut GuardStage, bytes: &[u8], address: &str) -> String {
    let origin = from(address);
    if stage.passes(bytes, &origin) {
        return "-".into();
    }
    match stage.check(bytes, &origin) {
        Ok(GuardVerdict::Pass(_)) => "- slowly".into(),
        Ok(GuardVerdict::Refuse(reply)) => {
            let retry = reply.fields.value("Retry-After").expect("a time");
            format!("{} {}", reply.status, String::from_utf8_lossy(retry))
        }
        Err(_) => "held".into(),
    }
}

fn get(stage: &mut GuardStage, address: &str) -> String {
    verdict_of(stage, &request("GET", "/", ""), address)
}

/// Number of requests that pass before one does not.
fn passing(stage: &mut GuardStage, address: &str) -> usize {
    (0..100).take_while(|_| get(stage, address) == "-").count()
}

#[test]
fn an_event_source_above_the_rate_tries_again() {
    let mut stage = stage("limit = \"10/m\"\nburst = 1");
    let request = request("GET", "/", "Accept: text/event-stream\r\n");
    let origin = from("192.0.2.1");
    assert!(stage.passes(&request, &origin));
    assert!(!stage.passes(&request, &origin));
    let Ok(GuardVerdict::Refuse(reply)) = stage.check(&request, &origin) else { panic!("above the rate") };
    assert_eq!((reply.status, reply.reason()), (200, Some("rate")));
    let Body::Bytes(body) = reply.body else { panic!("a stream") };
    assert_eq!(String::from_utf8_lossy(&body), "retry: 6000\n\n");
}

#[test]
fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
    let mut stage = stage("limit = \"10/s\"\nburst = 20");
    assert_eq!(passing(&mut stage, "192.0.2.1"), 20);
    assert_eq!(get(&mut stage, "192.0.2.1"), "429 1");
    stage.pass(Duration::from_millis(99));
    assert_eq!(get(&mut stage, "192.0.2.1"), "429 1");
    stage.pass(Duration::from_millis(1));
    assert_eq!(passing(&mut stage, "192.0.2.1"), 1, "one request in 100 ms");
    stage.pass(Duration::from_secs(1));
    assert_eq!(passing(&mut stage, "192.0.2.1"), 10, "ten in a second");
    stage.pass(Duration::from_secs(3600));
    assert_eq!(passing(&mut stage, "192.0.2.1"), 20, "a burst again, and no more");
}

#[test]
fn a_rejected_request_learns_when_it_would_pass() {
    let mut stage = stage("limit = \"5/m\"");
    assert_eq!(passing(&mut stage, "192.0.2.1"), 5, "without burst, the number of the limit");
    assert_eq!(get(&mut stage, "192.0.2.1"), "429 12");
    stage.pass(Duration::from_millis(9_001));
    assert_eq!(get(&mut stage, "192.0.2.1"), "429 3");
    stage.pass(Duration::from_millis(2_999));
    assert_eq!(get(&mut stage, "192.0.2.1"), "-", "rejected requests do not count");
    assert_eq!(stage.refusals("rate"), 3);
}

#[test]
fn clients_have_limits_of_their_own_and_a_network_of_ipv6_has_one() {
    let mut one = stage("limit = \"1/h\"");
    for (address, expected) in [
        ("192.0.2.1", "-"),
        ("192.0.2.2", "-"),
        ("::ffff:192.0.2.1", "429 3600"),
        ("2001:db8::1", "-"),
        ("2001:db8::ffff:0:0:1", "429 3600"),
        ("2001:db8:0:1::1", "-"),
        ("", "-"),
        ("", "429 3600"),
    ] {
        assert_eq!(get(&mut one, address), expected, "{address}");
    }
    let mut narrow = stage("limit = \"1/h\"\nipv6_prefix = 128");
    assert_eq!([get(&mut narrow, "2001:db8::1"), get(&mut narrow, "2001:db8::2")], ["-", "-"]);
    let mut wide = stage("limit = \"1/h\"\nipv6_prefix = 1");
    assert_eq!([get(&mut wide, "2001:db8::1"), get(&mut wide, "3fff::2")], ["-", "429 3600"]);
    let mut all = stage("limit = \"1/h\"\nby = \"all\"");
    assert_eq!([get(&mut all, "192.0.2.1"), get(&mut all, "192.0.2.2")], ["-", "429 3600"]);
}

#[test]
fn a_field_is_a_key_and_requests_without_it_share_their_address() {
    let mut stage = stage("limit = \"1/h\"\nby = \"field:X-Api-Key\"");
    for (field, expected) in [
        ("X-Api-Key: a\r\n", "-"),
        ("x-api-key: a\r\n", "429 3600"),
        ("X-Api-Key: A\r\n", "-"),
        ("X-Api-Key:\r\n", "-"),
        ("", "-"),
        ("X-Other: a\r\n", "429 3600"),
    ] {
        assert_eq!(verdict_of(&mut stage, &request("GET", "/", field), "192.0.2.1"), expected, "{field}");
    }
}

#[test]
fn a_rule_counts_its_paths_methods_and_hosts_in_every_spelling() {
    let mut login = stage("limit = \"3/h\"\npattern = \"/login\"\nmethods = [\"POST\"]\nhost = [\"*.org\"]");
    for (method, path, expected) in [
        ("GET", "/login", "-"),
        ("POST", "/login/", "-"),
        ("POST", "/login", "-"),
        ("POST", "/%6cogin?a=b", "-"),
        ("POST", "/x/..//login", "-"),
        ("POST", "/login", "429 1200"),
        ("post", "/login", "-"),
        // It cannot be decoded, so it counts for every rule.
        ("POST", "/login%2F", "429 1200"),
    ] {
        let found = verdict_of(&mut login, &request(method, path, ""), "192.0.2.1");
        assert_eq!(found, expected, "{method} {path}");
    }
    let mut everything = stage("limit = \"1/h\"");
    for (path, expected) in [
        ("/.well-known/acme-challenge/a", "-"),
        ("/.well-known/acme-challenge/../../admin", "-"),
        ("/.well-known/acme-challenge/../../admin", "429 3600"),
        ("/.well-known/acme-challenge/b", "-"),
        ("/%zz", "429 3600"),
    ] {
        assert_eq!(verdict_of(&mut everything, &request("GET", path, ""), "192.0.2.1"), expected, "{path}");
    }
}

#[test]
fn all_rules_must_admit_a_request_and_a_rejected_one_uses_no_limit() {
    let mut stage = stage(
        "[[rate]]\nlimit = \"10/h\"\n[[rate]]\npattern = \"/a\"\nlimit = \"2/h\"\n[[rate]]\nlimit = \"11/h\"\n",
    );
    let ask = |stage: &mut GuardStage, path: &str| verdict_of(stage, &request("GET", path, ""), "192.0.2.1");
    assert_eq!([(); 2].map(|()| ask(&mut stage, "/a")), ["-", "-"]);
    for _ in 0..20 {
        assert_eq!(ask(&mut stage, "/a"), "429 1800");
    }
    assert_eq!((0..20).take_while(|_| ask(&mut stage, "/b") == "-").count(), 8);
}

#[test]
fn delayed_requests_pass_in_order_and_those_that_would_wait_too_long_do_not() {
    let rules = rules("limit = \"10/s\"\nburst = 2\ndelay = \"300ms\"");
    let mut stage = GuardStage::open(NOW, &rules.early().expect("a rule"));
    let ask = |stage: &mut GuardStage| verdict_of(stage, &request("GET", "/", ""), "192.0.2.1");
    let found = [(); 7].map(|()| ask(&mut stage));
    assert_eq!(found, ["-", "-", "held", "held", "held", "429 1", "429 1"]);
    // The time of a real worker passes without calls of the guard.
    stage.pass(Duration::from_millis(100));
    assert_eq!(ask(&mut stage), "held");
    stage.pass(Duration::from_millis(600));
    assert_eq!([(); 3].map(|()| ask(&mut stage)), ["-", "-", "held"]);
}

#[test]
fn a_worker_holds_so_many_requests_and_rejects_further_ones() {
    let text =
        "[[rate]]\nlimit = \"10/h\"\n[[rate]]\nlimit = \"10/s\"\nburst = 1\ndelay = \"30s\"\ndelayed = 2";
    let rules = rules(text);
    let mut stage = GuardStage::open(NOW, &rules.early().expect("rules"));
    let bytes = request("GET", "/", "");
    assert_eq!(get(&mut stage, "192.0.2.1"), "-");
    let held = [(); 2].map(|()| stage.check(&bytes, &from("192.0.2.1")).err().expect("held"));
    for _ in 0..20 {
        assert_eq!(get(&mut stage, "192.0.2.1"), "429 1");
    }
    assert_eq!(stage.refusals("delayed"), 20);
    // A rejected request and a disconnected client use no limit: 9 of 10 an hour are left.
    held.into_iter().for_each(|key| stage.gone(key));
    let passing = (0..20).take_while(|_| {
        stage.pass(Duration::from_millis(100));
        get(&mut stage, "192.0.2.1") == "-"
    });
    assert_eq!(passing.count(), 9);
}

#[test]
fn a_rate_of_get_counts_head_as_well() {
    let mut stage = stage("limit = \"2/h\"\nmethods = [\"GET\"]");
    let mut ask = |method: &str| verdict_of(&mut stage, &request(method, "/", ""), "192.0.2.1");
    assert_eq!(["HEAD", "GET", "HEAD", "GET", "POST"].map(&mut ask), ["-", "-", "429 1800", "429 1800", "-"]);
}

thread_local! {
    /// The held requests of the guard of [`Timed`], which a resident releases on a worker.
    static DELAYED: RefCell<Rc<RefCell<DelayedRequests>>> = RefCell::default();
}

/// Rates whose held requests the test releases.
struct Timed(RateStage);

impl GuardMount for Timed {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        let delayed = DELAYED.with_borrow(Rc::clone);
        Box::new(self.0.guard(context, worker.number(), Some(delayed)))
    }
}

#[test]
fn held_requests_are_released_at_their_time_and_forgotten_with_their_client() {
    let rules = rules("limit = \"10/s\"\nburst = 1\ndelay = \"1s\"");
    let mut stage = GuardStage::open(NOW, &Timed(rules.early().expect("a rule")));
    let bytes = request("GET", "/", "");
    assert!(stage.passes(&bytes, &from("192.0.2.1")));
    let held: Vec<_> = (0..3).map(|_| stage.check(&bytes, &from("192.0.2.1")).err().expect("held")).collect();
    stage.gone(held[1]);
    assert_eq!(stage.verdicts().len(), 1, "the ticket of the client that has gone");
    let mut elapsed_ns = 0;
    for (after_ms, expected) in [(99, None), (1, Some(held[0])), (199, None), (1, Some(held[2]))] {
        stage.pass(Duration::from_millis(after_ms));
        elapsed_ns += after_ms * MS;
        DELAYED.with_borrow(|delayed| delayed.borrow_mut().release(NOW.mono_ns + elapsed_ns));
        let released: Vec<_> = stage.verdicts().into_iter().map(|(key, _)| key).collect();
        assert_eq!(released, Vec::from_iter(expected), "after {after_ms} ms");
    }
}

#[test]
fn four_workers_admit_together_what_one_may() {
    const SECONDS: u64 = 20;
    // 100/s with a burst of 100.
    let table = RateTable::new(1, 10 * MS, 100);
    let (admitted, clock) = (AtomicU64::new(0), AtomicU64::new(0));
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                loop {
                    // Each request finds a later time, 0.1 ms apart, and the workers see the times in any order.
                    let now_ns = clock.fetch_add(MS / 10, Ordering::Relaxed);
                    if now_ns >= SECONDS * 1000 * MS {
                        break;
                    }
                    if let RateAdmission::After { .. } = table.admit(7, NOW.mono_ns + now_ns, 0) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (admitted, expected) = (admitted.into_inner(), 100 + SECONDS * 100);
    assert!(admitted.abs_diff(expected) * 20 <= expected, "{admitted} instead of {expected}");
}

#[test]
fn a_flood_of_addresses_displaces_no_client_at_its_limit() {
    let rules = rules("limit = \"10/h\"\nkeys = 1000");
    let mut stage = GuardStage::open(NOW, &rules.early().expect("a rule"));
    assert_eq!(passing(&mut stage, "192.0.2.1"), 10);
    let mut evicted = 0;
    for number in 0..100_000_u32 {
        let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes()).to_string();
        assert_eq!(get(&mut stage, &address), "-");
        evicted += 1;
    }
    assert!(evicted > 1000 && rules.figures().of_worker(0).evicted.value() > 90_000, "the table is full");
    assert_eq!(get(&mut stage, "192.0.2.1"), "429 360");
}

#[test]
fn a_table_holds_nearly_all_of_its_keys() {
    let hasher = RateHasher::new().expect("random bytes");
    let table = RateTable::new(4096, 3600 * 1000 * MS, 1);
    let hashes: Vec<u64> = (0..4096_u32).map(|key| hasher.text(&key.to_be_bytes())).collect();
    for hash in &hashes {
        table.admit(*hash, 1, 0);
    }
    let known =
        hashes.iter().filter(|hash| matches!(table.admit(**hash, 1, 0), RateAdmission::Rejected { .. }));
    let known = known.count();
    // The hashes are random: some 3,920, since a key that is not known displaces another one.
    assert!(known > 3700, "{known} of 4096 keys");
}

#[test]
fn hashes_differ_between_processes_and_between_keys() {
    let (one, other) = (RateHasher::new().expect("bytes"), RateHasher::new().expect("bytes"));
    let mapped = (0..10_000_u32).map(|number| 0xffff_0a00_0000 + u128::from(number));
    let networks = (0..10_000_u128).map(|number| (0x2001_0db8 << 96) | number << 64);
    let addresses: Vec<[u8; 16]> = mapped.chain(networks).map(u128::to_be_bytes).collect();
    let hashes = |hasher: &RateHasher| -> Vec<u64> {
        addresses.iter().map(|address| hasher.address(Some(*address), prefix_mask(64))).collect()
    };
    let (first, second) = (hashes(&one), hashes(&other));
    assert!(first.iter().zip(&second).all(|(first, second)| first != second));
    // The upper bits choose the set: 1024 sets with some 20 keys each.
    let mut sets = vec![0_u32; 1024];
    for hash in &first {
        sets[(*hash >> 54) as usize] += 1;
    }
    let most = sets.iter().max().copied().unwrap_or_default();
    assert!(most < 60, "{most} keys in one set");
    let mut distinct = first;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), addresses.len());
}

#[test]
fn a_reload_keeps_the_state_of_unchanged_rules_only() {
    let text = "[[rate]]\nlimit = \"1/h\"\npattern = \"/a\"\n[[rate]]\nlimit = \"1/h\"\npattern = \"/b\"\n";
    let old = rules(text);
    let used = |rules: &RateRules| {
        let mut stage = GuardStage::open(NOW, &rules.early().expect("rules"));
        ["/a", "/b"].map(|path| verdict_of(&mut stage, &request("GET", path, ""), "192.0.2.1") != "-")
    };
    assert_eq!(used(&old), [false, false]);
    let changed = text.replacen("1/h", "2/h", 1);
    let new = RateRules::new(&settings(&changed), Some(&old)).expect("valid rules");
    assert_eq!(used(&new), [false, true]);
    let again = RateRules::new(&settings(&changed), Some(&new)).expect("valid rules");
    assert_eq!(used(&again), [false, true], "the second of two");
    assert!(Arc::ptr_eq(&old.figures(), &again.figures()));
}

#[test]
fn rates_of_users_come_late_and_count_requests_without_a_user_by_address() {
    let rules = rules("limit = \"1/h\"\nby = \"user\"");
    assert!(rules.early().is_none());
    let mut stage = GuardStage::open(NOW, &rules.late().expect("a late rule"));
    let ask = |stage: &mut GuardStage, user: Option<&str>, address: &str| {
        let checked = stage.check_as(user, &request("GET", "/", ""), &from(address));
        matches!(checked, Ok(GuardVerdict::Pass(_)))
    };
    assert!(ask(&mut stage, Some("ann"), "192.0.2.1"));
    assert!(!ask(&mut stage, Some("ann"), "192.0.2.2"));
    assert!(ask(&mut stage, Some("bob"), "192.0.2.1"));
    assert!(ask(&mut stage, None, "192.0.2.1"));
    assert!(!ask(&mut stage, None, "192.0.2.1"));
}

#[test]
fn requests_that_an_earlier_guard_has_held_count_at_the_present() {
    let rules = rules("limit = \"1/s\"\nburst = 1\nby = \"user\"");
    let mut stage = GuardStage::open(NOW, &rules.late().expect("a late rule"));
    let bytes = request("GET", "/", "");
    let ask = |stage: &mut GuardStage, held_s: u64| match stage.check_after(
        Duration::from_secs(held_s),
        Some("ann"),
        &bytes,
        &from("192.0.2.1"),
    ) {
        Ok(GuardVerdict::Pass(_)) => "-".to_owned(),
        Ok(GuardVerdict::Refuse(reply)) => {
            String::from_utf8_lossy(reply.fields.value("Retry-After").expect("a time")).into_owned()
        }
        Err(_) => "held".to_owned(),
    };
    assert_eq!(ask(&mut stage, 0), "-");
    stage.pass(Duration::from_secs(10));
    assert_eq!(ask(&mut stage, 20), "-", "it arrived before the first, and its turn has come");
    assert_eq!(ask(&mut stage, 20), "1", "the time to wait from now");
    assert_eq!(ask(&mut stage, 5), "1", "its arrival gives it no turn of its own");
}

#[test]
fn open_requests_are_counted_until_their_end_and_across_workers() {
    let rules = rules("at_once = 2\nlimit = \"10/s\"\nburst = 3");
    let mut workers = [(); 2].map(|()| GuardStage::open(NOW, &rules.early().expect("a rule")));
    let bytes = request("GET", "/", "");
    let mut ask = |worker: usize, address: &str| {
        let origin = from(address);
        assert!(!workers[worker].passes(&bytes, &origin), "the end of the request must be known");
        match workers[worker].check(&bytes, &origin) {
            Ok(GuardVerdict::Pass(passage)) => Ok(passage),
            Ok(GuardVerdict::Refuse(reply)) => Err(reply.reason().unwrap_or_default().to_owned()),
            Err(_) => Err("held".to_owned()),
        }
    };
    let first = ask(0, "192.0.2.1").expect("the first");
    let second = ask(1, "192.0.2.1").expect("the second");
    for worker in [0, 1, 0, 1] {
        assert_eq!(ask(worker, "192.0.2.1").err().as_deref(), Some("at_once"));
    }
    assert!(ask(0, "192.0.2.2").is_ok(), "another client");
    drop(first);
    let third = ask(1, "192.0.2.1").expect("one has ended, and refused requests use no limit");
    drop(second);
    assert_eq!(ask(0, "192.0.2.1").err().as_deref(), Some("rate"));
    drop(third);
    assert_eq!(rules.open_keys(), 0, "no entry is left");
}

#[test]
fn an_explanation_lists_the_rates_of_a_request() {
    let rules =
        rules("[[rate]]\npattern = \"/a/**\"\nlimit = \"5/m\"\n[[rate]]\nlimit = \"10/s\"\nby = \"all\"");
    let kept = Kept::sample("GET", "/a/b", "example.org", &Fields::new()).expect("a request");
    let stage = rules.early().expect("rules");
    let steps: Vec<String> =
        stage.explained().explain(&kept.view()).iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["rate of /a/**, 5/m by address", "rate of /**, 10/s by all"]);
}

#[test]
fn values_are_written_as_they_are_read_and_errors_name_the_remedy() {
    for (text, interval_ns) in [("10/s", 100 * MS), ("5/m", 12_000 * MS), ("3600/h", 1000 * MS)] {
        let rate: RequestRate = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((rate.to_string().as_str(), rate.interval_ns()), (text, interval_ns));
    }
    for text in ["", "10", "/s", "10/", "10/d", "0/s", "-1/s", "+1/s", "1.5/s", "10 /sec", "99999999999/s"] {
        let error = text.parse::<RequestRate>().expect_err(text).to_string();
        assert!(error.contains("such as 10/s, 5/m or 100/h"), "{text}: {error}");
    }
    assert!("1000001/s".parse::<RequestRate>().expect_err("much").to_string().contains("at most 1000000"));
    for text in ["address", "user", "all", "field:X-Api-Key"] {
        assert_eq!(text.parse::<RateBy>().map(|by| by.to_string()).as_deref(), Ok(text));
    }
    for text in ["", "ip", "field:", "field:a b", "X-Api-Key"] {
        let error = text.parse::<RateBy>().expect_err(text).to_string();
        assert!(error.contains("field:X-Api-Key"), "{text}: {error}");
    }
}

#[test]
fn every_contradiction_of_a_rule_is_reported_with_its_place() {
    for (text, key, reason) in [
        ("pattern = \"login\"", "pattern", "begins with a slash"),
        ("host = [\"a\", \"b:80\"]", "host.1", "not a host name"),
        ("methods = [\"GET\", \"post\"]", "methods.1", "write \"POST\""),
        ("methods = [\"A B\"]", "methods.0", "is no method"),
        ("methods = [\"TRACE\"]", "methods.0", "Encke rejects every TRACE request"),
        ("methods = [\"POST\", \"PROPFIND\"]", "methods.1", "Encke rejects every PROPFIND request"),
        ("limit = \"1/h\"\nburst = 5200000", "burst", "more than ten years: expected at most 87600"),
        ("limit = \"10/s\"\ndelay = \"61s\"", "delay", "expected at most 1m"),
        ("burst = 3", "burst", "set limit"),
        ("delay = \"1s\"", "delay", "set limit"),
        ("ipv6_prefix = 0", "ipv6_prefix", "expected 1 to 128"),
        ("ipv6_prefix = 129", "ipv6_prefix", "expected 1 to 128"),
        ("keys = 0", "keys", "expected 1 to"),
        ("keys = 16777217", "keys", "expected 1 to"),
    ] {
        let rule: RateSettings = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = rule.check();
        let is_there = |one: &Contradiction| one.path.join(".") == key && one.message.contains(reason);
        assert!(found.len() == 1 && found.iter().all(is_there), "{text}: {found:?}");
    }
}
