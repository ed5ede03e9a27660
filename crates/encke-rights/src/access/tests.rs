//! Access rules on a stand-in for a worker: the clock and the jobs are the test's.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use encke_io::{Now, Peer};
use encke_server::testing::GuardStage;
use encke_server::{ExchangeKey, Explain as _, Fields, GuardVerdict, Kept, Origin};
use encke_settings::Section as _;
use encke_stats::Source as _;
use sha_crypt::{CustomizedPasswordHasher as _, Params, ShaCrypt};

use super::passwords::PasswordFile;
use super::{AccessError, AccessFigures, AccessRules, AccessSettings, PasswordFault, RejectedScheme};

const NOW: Now = Now { mono_ns: 1_000_000_000_000, unix_ns: 1_790_000_000_000_000_000 };

/// `htpasswd -nbB ann secret`, `htpasswd -nb5 ann secret`, `htpasswd -nb2 ann secret`, `openssl passwd -6 secret`.
const MADE_BY_OTHERS: [&str; 4] = [
    "$2y$05$HqSVoduwjpwHaALGE1Z0K.me61kMrwHYwIN1srp6DF/4HHJIpwMHi",
    "$6$cgxgqhRvqYawkJYr$n.Vsgjlc2jtM6MY33xt/pSnsIch1sTDOWI.ot4XCoDodmF/EaCwrn8..ffpzXrEpWq2HgXAOpXK0RaaWbMUdd/",
    "$5$sBN8SJxzXb.4BOZ4$s78Rb6NH37Lg3y/ra17WDVeKnsvXkgvI1g6JUwExlQA",
    "$6$SzKmPfJE1.Vv3lQc$i5J3NvCwiuGrD8GvBb9q/D.tuwg1y6EArrB91E7MDP7kYXEFTiH2fUx/jQlCEZ7I5aBB5dGDTidRhuDWmWYdZ1",
];

fn bcrypt_of(password: &str) -> String {
    bcrypt::hash(password, 4).expect("a hash")
}

fn sha_crypt_of(scheme: &str, password: &str) -> String {
    let params = Params::new(1_000).expect("enough rounds");
    let hash = ShaCrypt::default().hash_password_customized(
        password.as_bytes(),
        b"salt",
        Some(scheme),
        None,
        params,
    );
    hash.expect("a hash").as_str().to_owned()
}

/// A directory of password files, removed in the end.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("encke-access-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn with(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.0.join(name), text).expect("a temporary file");
        self
    }

    fn users(self, name: &str, users: &[(&str, &str)]) -> Self {
        let lines = users.iter().map(|(user, password)| format!("{user}:{}\n", bcrypt_of(password)));
        self.with(name, lines.collect::<String>())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _nobody_uses_it = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(files: &Files, text: &str) -> Vec<AccessSettings> {
    #[derive(serde::Deserialize)]
    struct Settings {
        access: Vec<AccessSettings>,
    }
    let Settings { mut access } = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    for rule in &mut access {
        assert_eq!(rule.check(), [], "{text}");
        rule.anchor(&files.0);
    }
    access
}

fn try_rules(files: &Files, text: &str) -> Result<AccessRules, AccessError> {
    AccessRules::new(&settings(files, text))
}

/// Rules of an `[[access]]` table, or of several that begin with `[[access]]`.
fn stage(files: &Files, text: &str) -> GuardStage {
    let text = if text.contains("[[access]]") { text.to_owned() } else { format!("[[access]]\n{text}") };
    let rules = try_rules(files, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
    GuardStage::open(NOW, &rules)
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

fn request(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n{fields}\r\n").into_bytes()
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", Base64::encode_string(format!("{user}:{password}").as_bytes()))
}

/// A short form of a verdict: the user, `-` without one, or the status and the reason.
fn short(verdict: &GuardVerdict) -> String {
    match verdict {
        GuardVerdict::Pass(passage) => passage.user.as_deref().unwrap_or("-").to_owned(),
        GuardVerdict::Refuse(reply) => format!("{} {}", reply.status, reply.reason().unwrap_or_default()),
    }
}

/// The verdict on a request from 192.0.2.1, after all jobs.
fn verdict(stage: &mut GuardStage, path: &str, fields: &str) -> String {
    short(&whole_verdict(stage, &request(path, fields), &from("192.0.2.1")))
}

fn whole_verdict(stage: &mut GuardStage, request: &[u8], origin: &Origin) -> GuardVerdict {
    match stage.check(request, origin) {
        Ok(verdict) => verdict,
        Err(held) => {
            stage.run_jobs();
            let mut verdicts = stage.verdicts();
            assert_eq!(verdicts.len(), 1);
            let (key, verdict) = verdicts.remove(0);
            assert_eq!(key, held);
            verdict.expect("no ticket is dropped")
        }
    }
}

fn verdict_from(stage: &mut GuardStage, address: &str) -> String {
    short(&whole_verdict(stage, &request("/", ""), &from(address)))
}

#[test]
fn a_client_that_a_proxy_hides_is_in_no_allow_and_in_every_deny() {
    let files = Files::new();
    let hidden = Origin { hidden: true, local: false, ..from("") };
    for (rule, of_hidden, of_socket) in [
        ("allow = [\"0.0.0.0/0\", \"::/0\"]", DENIED, DENIED),
        ("deny = [\"10.0.0.66\"]", DENIED, "-"),
        ("allow = []", DENIED, DENIED),
    ] {
        let mut stage = stage(&files, rule);
        for (origin, expected) in [(&hidden, of_hidden), (&from(""), of_socket)] {
            assert_eq!(short(&whole_verdict(&mut stage, &request("/", ""), origin)), expected, "{rule}");
        }
    }
}

#[test]
fn a_path_that_cannot_be_decoded_passes_no_rule() {
    let files = Files::new();
    let mut stage = stage(&files, "pattern = \"/a/**\"\nallow = []");
    for path in ["/a%2Fb", "/%ff", "/a/%zz", "/../a", "/a%00"] {
        assert_eq!(verdict(&mut stage, path, ""), "400 undecodable_path", "{path}");
    }
    assert_eq!(verdict(&mut stage, "/b", ""), "-");
}

const DENIED: &str = "403 address";
const CHALLENGED: &str = "401 password";

#[test]
fn networks_of_both_families_are_allowed_and_denied() {
    let files = Files::new();
    for (rule, cases) in [
        (
            "allow = [\"10.0.0.0/8\", \"::1\"]",
            &[
                ("10.1.2.3", "-"),
                ("::ffff:10.1.2.3", "-"),
                ("11.0.0.1", DENIED),
                ("::1", "-"),
                ("::2", DENIED),
            ][..],
        ),
        (
            "deny = [\"10.0.0.66\", \"2001:db8::/32\"]",
            &[("10.0.0.66", DENIED), ("10.0.0.65", "-"), ("2001:db8::1", DENIED), ("2001:db9::1", "-")],
        ),
        (
            "allow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.66\"]",
            &[("10.0.0.66", DENIED), ("10.0.0.67", "-"), ("192.0.2.1", DENIED)],
        ),
        ("allow = []", &[("127.0.0.1", DENIED), ("::1", DENIED)]),
    ] {
        let mut stage = stage(&files, rule);
        for (address, expected) in cases {
            assert_eq!(verdict_from(&mut stage, address), *expected, "{rule}: {address}");
        }
    }
}

#[test]
fn a_peer_without_an_address_passes_only_rules_without_allow() {
    let files = Files::new();
    for (rule, expected) in
        [("deny = [\"0.0.0.0/0\", \"::/0\"]", "-"), ("allow = [\"0.0.0.0/0\", \"::/0\"]", DENIED)]
    {
        assert_eq!(verdict_from(&mut stage(&files, rule), ""), expected, "{rule}");
    }
}

#[test]
fn a_rule_applies_to_its_hosts_and_decoded_paths_only() {
    let files = Files::new();
    let mut stage =
        stage(&files, "host = [\"example.org\", \"*.example.net\"]\npattern = \"/admin/**\"\nallow = []");
    for (path, expected) in [
        ("/admin/", DENIED),
        ("/%61dmin/x", DENIED),
        ("/x/../admin/y", DENIED),
        ("//admin//y", DENIED),
        ("/./admin/?a=/open", DENIED),
        ("http://example.org/admin/x", DENIED),
        ("/open", "-"),
        ("/admin", "-"),
        ("/administrator", "-"),
        ("/admin/../open", "-"),
        ("/ADMIN/", "-"),
        ("/admin%2Fx", "400 undecodable_path"),
        ("/admin/%zz", "400 undecodable_path"),
        ("/../admin/", "400 undecodable_path"),
    ] {
        assert_eq!(verdict(&mut stage, path, ""), expected, "{path}");
    }
    for (host, expected) in
        [("EXAMPLE.org.:80", DENIED), ("a.example.net", DENIED), ("example.net", "-"), ("localhost", "-")]
    {
        let request = format!("GET /admin/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let verdict = whole_verdict(&mut stage, request.as_bytes(), &from("192.0.2.1"));
        assert_eq!(short(&verdict), expected, "{host}");
    }
}

#[test]
fn challenges_of_certificate_authorities_are_never_protected() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "allow = []\npasswords = \"users\"");
    for (path, expected) in [
        ("/.well-known/acme-challenge/token", "-"),
        ("/.well-known/acme-challenge/../../admin", DENIED),
        ("/.well-known/acme-challenge", DENIED),
    ] {
        assert_eq!(verdict(&mut stage, path, ""), expected, "{path}");
    }
}

#[test]
fn a_request_without_valid_credentials_is_challenged() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"\nrealm = 'the \"inner\" \\ circle'");
    let twice = basic("ann", "secret").repeat(2);
    let long = basic("ann", &"x".repeat(513));
    for fields in [
        "",
        "Authorization: Bearer abc\r\n",
        "Authorization: Basic\r\n",
        "Authorization: Basic \r\n",
        "Authorization: Basic ?\r\n",
        "Authorization: Basic YW5u\r\n",
        "Authorization: Basic /zpz\r\n",
        "Authorization: BasicYW5uOnNlY3JldA==\r\n",
        &twice,
        &long,
    ] {
        let verdict = whole_verdict(&mut stage, &request("/", fields), &from("192.0.2.1"));
        let GuardVerdict::Refuse(reply) = verdict else { panic!("{fields} passes") };
        assert_eq!((reply.status, reply.reason()), (401, Some("password")), "{fields}");
        let challenge = reply.fields.value("WWW-Authenticate").expect("a challenge");
        assert_eq!(
            String::from_utf8_lossy(challenge),
            r#"Basic realm="the \"inner\" \\ circle", charset="UTF-8""#
        );
    }
    assert_eq!((stage.jobs_run(), stage.refusals("password")), (0, 10));
}

#[test]
fn passwords_of_both_schemes_are_verified() {
    let mut text = String::from("# users\n\n");
    let made = [bcrypt_of("secret"), sha_crypt_of("5", "secret"), sha_crypt_of("6", "secret")];
    for (number, hash) in made.iter().map(String::as_str).chain(MADE_BY_OTHERS).enumerate() {
        text.push_str(&format!("user{number}:{hash}:a remark\r\n"));
    }
    for version in ["$2a$", "$2b$", "$2y$"] {
        text.push_str(&format!("v{}:{}\n", &version[2..3], made[0].replacen("$2b$", version, 1)));
    }
    text.push_str(&format!("jörg:{}\n", bcrypt_of("übel: ja")));
    let mut stage = stage(&Files::new().with("users", text), "passwords = \"users\"");
    let users = ["user0", "user1", "user2", "user3", "user4", "user5", "user6", "va", "vb", "vy"];
    for user in users {
        assert_eq!(verdict(&mut stage, "/", &basic(user, "secret")), user);
        for wrong in ["", "Secret", "secret ", "secret\0", "user0"] {
            assert_eq!(verdict(&mut stage, "/", &basic(user, wrong)), CHALLENGED, "{user}: {wrong:?}");
        }
    }
    assert_eq!(verdict(&mut stage, "/", &basic("jörg", "übel: ja")), "jörg");
    let lower = basic("ann", "").replace("Basic", "bASIC").replace("YW5uOg==", "dXNlcjA6c2VjcmV0");
    assert_eq!(verdict(&mut stage, "/", &lower), "user0");
}

#[test]
fn an_unknown_user_costs_a_hash_like_a_known_one() {
    let files = Files::new().users("users", &[("ann", "secret"), ("bob", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    for (count, user) in ["ann", "bob", "eve", "", "Ann"].into_iter().enumerate() {
        let expected = if count < 2 { user } else { CHALLENGED };
        assert_eq!(verdict(&mut stage, "/", &basic(user, "secret")), expected, "{user}");
        assert_eq!(stage.jobs_run(), count + 1, "{user}");
    }
}

#[test]
fn every_rule_that_matches_must_pass() {
    let files = Files::new()
        .users("all", &[("ann", "secret"), ("bob", "secret"), ("cat", "one")])
        .users("few", &[("ann", "secret"), ("cat", "other")]);
    let mut stage = stage(
        &files,
        "[[access]]\npasswords = \"all\"\n[[access]]\npattern = \"/few/**\"\npasswords = \"few\"\nrealm = \"few\"\n\
         [[access]]\npattern = \"/few/local/**\"\nallow = [\"127.0.0.1\"]\n\
         [[access]]\npattern = \"/few/again/**\"\npasswords = \"all\"",
    );
    for (path, user, password, expected) in [
        ("/", "ann", "secret", "ann"),
        ("/", "bob", "secret", "bob"),
        ("/few/", "ann", "secret", "ann"),
        ("/few/again/", "ann", "secret", "ann"),
        ("/few/", "bob", "secret", CHALLENGED),
        ("/few/", "cat", "one", CHALLENGED),
        ("/few/", "cat", "other", CHALLENGED),
        ("/few/local/", "ann", "secret", DENIED),
    ] {
        assert_eq!(verdict(&mut stage, path, &basic(user, password)), expected, "{path} {user}");
    }
    let refused = whole_verdict(&mut stage, &request("/few/", &basic("bob", "secret")), &from("192.0.2.1"));
    let GuardVerdict::Refuse(reply) = refused else { panic!("bob passes") };
    let challenge = reply.fields.value("WWW-Authenticate").expect("a challenge");
    assert!(challenge.starts_with(b"Basic realm=\"few\""), "the rule that failed");
    assert_eq!(stage.refusals("address"), 1);
}

#[test]
fn with_any_an_allowed_address_needs_no_password() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    for (any, address, password, expected) in [
        (true, "10.0.0.1", None, "-"),
        (true, "10.0.0.1", Some("wrong"), "-"),
        (true, "10.0.0.66", None, CHALLENGED),
        (true, "192.0.2.1", None, CHALLENGED),
        (true, "192.0.2.1", Some("wrong"), CHALLENGED),
        (true, "192.0.2.1", Some("secret"), "ann"),
        (false, "10.0.0.1", None, CHALLENGED),
        (false, "10.0.0.1", Some("secret"), "ann"),
        (false, "192.0.2.1", Some("secret"), DENIED),
    ] {
        let text =
            format!("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.66\"]\npasswords = \"users\"\nany = {any}");
        let mut stage = stage(&files, &text);
        let fields = password.map(|password| basic("ann", password)).unwrap_or_default();
        let verdict = whole_verdict(&mut stage, &request("/", &fields), &from(address));
        assert_eq!(short(&verdict), expected, "any = {any}: {address}, {password:?}");
    }
}

#[test]
fn a_flood_of_one_wrong_password_costs_one_hash_a_second() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    let guess = request("/", &basic("ann", "guess"));
    let held: Vec<ExchangeKey> =
        (0..500).map(|_| stage.check(&guess, &from("192.0.2.1")).err().expect("held")).collect();
    assert_eq!(stage.jobs_waiting(), 1);
    stage.run_jobs();
    let verdicts = stage.verdicts();
    assert!(verdicts.iter().map(|(key, _)| *key).eq(held), "each request has a verdict");
    for (_, verdict) in verdicts {
        assert_eq!(short(&verdict.expect("no ticket is dropped")), CHALLENGED);
    }
    for _ in 0..500 {
        assert!(stage.check(&guess, &from("192.0.2.2")).is_ok_and(|one| short(&one) == CHALLENGED));
    }
    assert_eq!((stage.jobs_run(), stage.jobs_waiting()), (1, 0));
    assert_eq!(stage.refusals("password"), 1_000);
    stage.pass(Duration::from_millis(999));
    assert_eq!(verdict(&mut stage, "/", &basic("ann", "guess")), CHALLENGED);
    assert_eq!(stage.jobs_run(), 1);
    stage.pass(Duration::from_millis(1));
    assert_eq!(verdict(&mut stage, "/", &basic("ann", "guess")), CHALLENGED);
    assert_eq!(stage.jobs_run(), 2);
}

#[test]
fn a_verified_password_is_cached_for_a_minute() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    for (passed_ms, jobs) in [(0, 1), (59_999, 1), (1, 2), (1, 2)] {
        stage.pass(Duration::from_millis(passed_ms));
        assert_eq!(verdict(&mut stage, "/", &basic("ann", "secret")), "ann");
        assert_eq!(stage.jobs_run(), jobs);
    }
    // Neither of these has the cached credentials.
    for (user, password) in [("ann", "secre"), ("an", "nsecret"), ("ann:", "secret"), ("", "annsecret")] {
        assert_eq!(verdict(&mut stage, "/", &basic(user, password)), CHALLENGED, "{user}");
    }
}

#[test]
fn wrong_passwords_do_not_evict_verified_ones() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    assert_eq!(verdict(&mut stage, "/", &basic("ann", "secret")), "ann");
    for number in 0..1_100 {
        assert_eq!(verdict(&mut stage, "/", &basic("ann", &format!("{number}"))), CHALLENGED);
    }
    assert!(stage.check(&request("/", &basic("ann", "secret")), &from("192.0.2.1")).is_ok());
}

#[test]
fn one_password_is_verified_at_a_time_and_a_full_line_is_a_503() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    let guess = |number: usize| request("/", &basic("ann", &format!("guess {number}")));
    let mut held = Vec::new();
    // One is verified, the others wait.
    for number in 0..17 {
        held.push(stage.check(&guess(number), &from("192.0.2.1")).err().expect("held"));
        assert_eq!(stage.jobs_waiting(), 1);
    }
    let full = stage.check(&guess(17), &from("192.0.2.1")).expect("refused at once");
    assert_eq!(short(&full), "503 password_busy");
    assert!(stage.check(&guess(3), &from("192.0.2.1")).is_err(), "waits for a result that is due");
    // Clients that disconnect make room, and their passwords are not verified.
    held.drain(1..10).for_each(|key| stage.gone(key));
    assert!(stage.check(&guess(17), &from("192.0.2.1")).is_err());
    stage.run_jobs();
    let verdicts = stage.verdicts();
    assert_eq!(verdicts.iter().filter(|(_, verdict)| verdict.is_some()).count(), 17 - 9 + 2);
    assert_eq!(stage.jobs_run(), 17 - 9 + 2, "guess 3 still had a client");
}

#[test]
fn an_address_that_guesses_passwords_delays_another_one_by_one_hash() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    for number in 0..300 {
        let guess = request("/", &basic("ann", &format!("guess {number}")));
        // All addresses of an IPv6 network count as one client.
        let _held = stage.check(&guess, &from(&format!("2001:db8::{number:x}")));
    }
    let right = request("/", &basic("ann", "secret"));
    let key = stage.check(&right, &from("192.0.2.2")).err().expect("held");
    stage.verdicts();
    assert!(stage.run_job() && stage.run_job() && stage.run_job(), "one was running, and one has its turn");
    let verdicts = stage.verdicts();
    let (_, verdict) = verdicts.iter().find(|(other, _)| *other == key).expect("a verdict");
    assert_eq!(verdict.as_ref().map(short).as_deref(), Some("ann"));
}

#[test]
fn credentials_that_another_address_has_sent_too_keep_the_turn_of_each() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    let right = request("/", &basic("ann", "secret"));
    for number in 0..16 {
        let guess = request("/", &basic("ann", &format!("guess {number}")));
        assert!(stage.check(&guess, &from("192.0.2.1")).is_err());
    }
    assert!(stage.check(&right, &from("192.0.2.1")).is_err(), "the last of the line");
    let key = stage.check(&right, &from("192.0.2.2")).err().expect("held");
    assert!(stage.run_job() && stage.run_job() && stage.run_job());
    assert!(stage.verdicts().iter().any(|(other, verdict)| *other == key && verdict.is_some()));
    stage.run_jobs();
    assert_eq!(stage.jobs_run(), 17, "the shared credentials cost one hash");
}

#[test]
fn a_full_queue_has_room_for_further_addresses() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    for number in 0..16 * 17 {
        let guess = request("/", &basic("ann", &format!("guess {number}")));
        let _held = stage.check(&guess, &from(&format!("192.0.2.{}", number / 17)));
    }
    assert!(stage.verdicts().is_empty());
    let right = request("/", &basic("ann", "secret"));
    let key = stage.check(&right, &from("198.51.100.1")).err().expect("held");
    let [(evicted, Some(busy))] = &stage.verdicts()[..] else { panic!("one of the guesses loses its place") };
    assert!(*evicted != key);
    assert_eq!(short(busy), "503 password_busy");
    stage.run_jobs();
    let verdicts = stage.verdicts();
    let ours = verdicts.iter().find(|(other, _)| *other == key).and_then(|(_, verdict)| verdict.as_ref());
    assert_eq!(ours.map(short).as_deref(), Some("ann"));
}

#[test]
fn a_client_that_disconnects_during_its_verification_leaves_nothing() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    let right = request("/", &basic("ann", "secret"));
    let key = stage.check(&right, &from("192.0.2.1")).err().expect("held");
    stage.gone(key);
    stage.run_jobs();
    let verdicts: Vec<_> = stage.verdicts().into_iter().filter(|(_, verdict)| verdict.is_some()).collect();
    assert!(verdicts.is_empty());
    assert_eq!(verdict(&mut stage, "/", &basic("ann", "secret")), "ann");
    assert_eq!(stage.jobs_run(), 1, "the result was kept");
}

#[test]
fn a_job_without_a_result_is_a_503_and_not_cached() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let mut stage = stage(&files, "passwords = \"users\"");
    let right = request("/", &basic("ann", "secret"));
    assert!(stage.check(&right, &from("192.0.2.1")).is_err());
    stage.refuse_jobs();
    let [(_, Some(refused))] = &stage.verdicts()[..] else { panic!("one verdict") };
    assert_eq!(short(refused), "503 password_busy");
    assert_eq!(verdict(&mut stage, "/", &basic("ann", "secret")), "ann");
}

#[test]
fn rules_without_restrictions_need_no_guard() {
    let files = Files::new();
    assert!(AccessRules::new(&[]).expect("no rules").is_empty());
    let open = "[[access]]\npattern = \"/a\"\n[[access]]";
    assert!(try_rules(&files, open).expect("valid rules").is_empty());
    let warnings = settings(&files, open)[0].warnings();
    assert!(warnings[0].message.contains("restricts nothing"), "{warnings:?}");
    assert_eq!(settings(&files, open)[1].warnings(), []);
    assert!(!try_rules(&files, "[[access]]\nallow = []").expect("valid rules").is_empty());
}

#[test]
fn settings_that_cannot_be_meant_are_contradictions() {
    for (text, key, reason) in [
        ("pattern = \"admin\"", "pattern", "begins with a slash"),
        ("host = [\"a\", \"http://a\"]", "host.1", "not a host name"),
        ("realm = \"\"", "realm", "without control characters"),
        ("realm = \"a\\nb\"", "realm", "without control characters"),
        ("any = true\npasswords = \"users\"", "any", "set allow or deny"),
        ("any = true\ndeny = [\"::1\"]", "any", "set passwords"),
    ] {
        let rule: AccessSettings = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = rule.check();
        let is_there =
            |one: &encke_settings::Contradiction| one.path.join(".") == key && one.message.contains(reason);
        assert!(found.len() == 1 && found.iter().all(is_there), "{text}: {found:?}");
    }
}

#[test]
fn a_password_file_is_private_and_starts_at_the_settings_file() {
    let mut rule: AccessSettings = toml::from_str("passwords = \"users\"").expect("valid");
    rule.anchor(Path::new("/etc/encke"));
    assert_eq!(rule.private_files(), [Path::new("/etc/encke/users")]);
}

/// The error of a password file.
fn fault(name: &str, files: &Files) -> (String, PasswordFault) {
    let Err(error) = PasswordFile::read(&files.0.join(name)) else { panic!("{name} is valid") };
    let folder = files.0.join("").display().to_string();
    (error.to_string().replace(&folder, ""), error.fault)
}

#[test]
fn every_rejected_scheme_is_named_with_its_line_and_a_remedy() {
    for (hash, scheme, name) in [
        ("$apr1$YRL2IQfF$gpye1AWHc8cye0gBd5.No1", RejectedScheme::Apr1, "$apr1$ (MD5)"),
        ("$1$YRL2IQfF$gpye1AWHc8cye0gBd5.No1", RejectedScheme::Md5, "$1$ (MD5)"),
        ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", RejectedScheme::Sha1, "{SHA} (SHA-1)"),
        ("{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", RejectedScheme::Sha1, "{SHA} (SHA-1)"),
        ("$2x$05$HqSVoduwjpwHaALGE1Z0K.me61kMrwHYwIN1srp6DF/4HHJIpwMHi", RejectedScheme::OldBcrypt, "$2x$"),
        ("8uy3.wP9iVON.", RejectedScheme::Des, "crypt(3) (DES)"),
        ("$y$j9T$abc$def", RejectedScheme::Other, "not supported"),
        ("$argon2id$v=19$m=65536,t=2,p=1$abc$def", RejectedScheme::Other, "not supported"),
        ("secret", RejectedScheme::Plain, "plain text"),
        ("{PLAIN}secret", RejectedScheme::Plain, "plain text"),
        ("$ecret", RejectedScheme::Plain, "plain text"),
        ("", RejectedScheme::Plain, "plain text"),
    ] {
        let text = format!("# users\nbob:{}\nann:{hash}\n", bcrypt_of("x"));
        let (said, found) = fault("users", &Files::new().with("users", text));
        assert!(matches!(found, PasswordFault::Scheme(found) if found == scheme), "{hash}: {said}");
        assert!(said.starts_with("password file users:3: the password of \"ann\" is stored with "), "{said}");
        for part in [name, "`htpasswd -B users ann`", "`openssl passwd -6`"] {
            assert!(said.contains(part), "{said}: {part}");
        }
        assert!(hash.is_empty() || !said.contains(hash), "{said}: the error repeats the hash");
    }
}

#[test]
fn every_other_error_of_a_password_file_names_line_and_remedy() {
    let good = bcrypt_of("x");
    let short = &good[..59];
    let (cheap, dear) = (good.replacen("$04$", "$03$", 1), good.replacen("$04$", "$18$", 1));
    let sha = sha_crypt_of("6", "x");
    let (fast, slow) = (sha.replacen("1000", "999", 1), sha.replacen("1000", "10000001", 1));
    let cut = &sha[..sha.len() - 1];
    let (twice, long) =
        (format!("ann:{good}\nbob:{good}\nann:{good}"), format!("{}:{good}", "x".repeat(257)));
    for (text, said) in [
        ("".to_owned(), "users: no entries, so no client could pass: add one with `htpasswd -B users USER`"),
        ("# nobody\n\n".to_owned(), "users: no entries"),
        (format!("ann:{good}\nbob\n"), "users:2: no colon: expected USER:HASH"),
        (format!(":{good}"), "users:1: invalid user name"),
        (format!("a\tb:{good}"), "users:1: invalid user name"),
        (long, "users:1: invalid user name"),
        (twice, "users:3: the user \"ann\" is already in line 1: remove one of the lines"),
        (
            format!("ann:{short}"),
            "users:1: the hash of \"ann\" is damaged: replace it with `htpasswd -B users ann`",
        ),
        (format!("ann:{cut}"), "users:1: the hash of \"ann\" is damaged"),
        ("ann:$6$abc".into(), "users:1: the hash of \"ann\" is damaged"),
        (format!("ann:{cheap}"), "users:1: the hash of \"ann\" has a cost of 3: expected 4 to 17"),
        (format!("ann:{dear}"), "users:1: the hash of \"ann\" has a cost of 18: expected 4 to 17"),
        (
            format!("ann:{fast}"),
            "users:1: the hash of \"ann\" has an invalid number of rounds: expected 1000 to",
        ),
        (format!("ann:{slow}"), "users:1: the hash of \"ann\" has an invalid number of rounds"),
        ("ann:\u{e4}".repeat(300_000), "users: larger than 1 MiB"),
    ] {
        let (found, _) = fault("users", &Files::new().with("users", &text));
        assert!(found.starts_with(&format!("password file {said}")), "{found}\n{said}");
    }
    let files = Files::new().with("latin", b"ann:\xe4");
    assert_eq!(fault("latin", &files).0, "password file latin: not UTF-8: expected lines USER:HASH");
    let (absent, _) = fault("absent", &files);
    assert!(absent.ends_with("create it with `htpasswd -cB absent USER`"), "{absent}");
    let (directory, _) = fault("", &files);
    assert!(directory.contains("must be able to read it"), "{directory}");
    let error = try_rules(&files, "[[access]]\nallow = []\n[[access]]\npasswords = \"absent\"").err();
    let said = error.expect("the file is absent").to_string();
    assert!(said.starts_with("access, number 2: password file "), "{said}");
}

#[test]
fn an_explanation_lists_the_rules_of_a_request() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let text = "[[access]]\npattern = \"/a/**\"\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.66\"]\npasswords = \"users\"\n\
                any = true\n[[access]]\npasswords = \"users\"";
    let rules = try_rules(&files, text).expect("valid rules");
    let explained = |path: &str| -> Vec<String> {
        let kept = Kept::sample("GET", path, "example.org", &Fields::new()).expect("a request");
        rules.explained().explain(&kept.view()).iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        explained("/a/b"),
        [
            "access to /a/**, only from 10.0.0.0/8, not from 10.0.0.66/32, or with a password",
            "access to /**, with a password",
        ]
    );
    assert_eq!(explained("/b"), ["access to /**, with a password"]);
}

#[test]
fn checks_are_counted_by_outcome_across_a_reload() {
    let files = Files::new().users("users", &[("ann", "secret")]);
    let figures = Arc::new(AccessFigures::default());
    let rules = || {
        let rules = try_rules(&files, "[[access]]\npasswords = \"users\"").expect("valid rules");
        GuardStage::open(NOW, &rules.with_figures(&figures))
    };
    for _ in 0..2 {
        let mut stage = rules();
        for password in ["secret", "secret", "wrong"] {
            verdict(&mut stage, "/", &basic("ann", password));
        }
        assert!(stage.check(&request("/", &basic("bob", "x")), &from("::1")).is_err());
        stage.refuse_jobs();
    }
    let families = figures.families();
    let counts: Vec<String> =
        families[0].samples.iter().map(|sample| format!("{:?}", sample.value)).collect();
    assert!(counts.iter().all(|count| count.contains('2')), "{counts:?}");
}
