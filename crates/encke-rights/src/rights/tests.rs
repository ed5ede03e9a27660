//! Tests of admission, and of every way in that must stay closed.

use std::net::SocketAddr;

use encke_io::{Address, Now, Peer};
use encke_server::{Certified, Origin, TlsKnown, testing};

use super::*;
use crate::keys::tests::{SECRET, signings};
use crate::limits::TOKEN_BYTES_MAX;
use crate::settings::KeySettings;
use crate::token::{ChannelClaims, Claims, NumericDate};
use encke_settings::{Secret, Section as _};

const NOW_S: u64 = 1_795_300_000;
const LOCAL: &str = "127.0.0.1:50000";
const REMOTE: &str = "203.0.113.9:50000";
const FIXED: &str = "0123456789abcdef";

/// A simulated request.
#[derive(Clone)]
pub(crate) struct Asked {
    line: String,
    fields: String,
    peer: Peer,
    secure: bool,
    tls: Option<Arc<TlsKnown>>,
    now_s: u64,
}

impl Asked {
    pub(crate) fn get(target: &str) -> Self {
        Self {
            line: format!("GET {target} HTTP/1.1\r\n"),
            fields: String::new(),
            peer: Peer::Inet(LOCAL.parse().expect("an address")),
            secure: false,
            tls: None,
            now_s: NOW_S,
        }
    }

    /// A request as curl on this machine sends it.
    pub(crate) fn here() -> Self {
        Self::get("/push/news").field("Host", "localhost:8080")
    }

    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        self.fields += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn secure(self) -> Self {
        Self { secure: true, ..self }
    }

    pub(crate) fn from(self, peer: &str) -> Self {
        let peer = peer.parse::<SocketAddr>().map_or(Peer::Local, Peer::Inet);
        Self { peer, ..self }
    }

    /// Adds a client certificate for `name`, which expires at [`NOW_S`] + 100.
    pub(crate) fn certified(self, name: &str) -> Self {
        let client =
            Certified { name: name.into(), expires_unix_s: NOW_S + 100, fingerprint: Box::default() };
        let known = TlsKnown::new("1.3", "", None, Some(client));
        Self { secure: true, tls: Some(Arc::new(known)), ..self }
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.field("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn at(self, now_s: u64) -> Self {
        Self { now_s, ..self }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Request<'_>) -> T) -> T {
        let bytes = format!("{}{}\r\n", self.line, self.fields).into_bytes();
        let (client, local) = match self.peer {
            Peer::Inet(address) => (Some(address.ip()), address.ip().is_loopback()),
            Peer::Local => (None, true),
        };
        let origin = Origin {
            peer: self.peer,
            client,
            forwards: false,
            hidden: false,
            secure: self.secure,
            tls: self.tls.clone(),
            local,
        };
        let now = Now { mono_ns: 0, unix_ns: self.now_s * 1_000_000_000 };
        testing::lend(&bytes, &origin, now, look)
    }

    fn identity(&self, rights: &Rights) -> Result<Principal, Denial> {
        self.identity_with(rights, &mut TokenCache::default())
    }

    fn identity_with(&self, rights: &Rights, cache: &mut TokenCache) -> Result<Principal, Denial> {
        self.look(|request| rights.identify(request, cache))
    }

    /// The acts that the request's identity may do on `news`.
    fn acts(&self, rights: &Rights) -> Vec<Act> {
        let may =
            |identity: Principal| Act::ALL.into_iter().filter(|act| identity.may(*act, &news())).collect();
        self.identity(rights).map(may).unwrap_or_default()
    }
}

fn news() -> Name {
    Name::parse(b"news").expect("a name")
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn rights(auth: &AuthSettings) -> Rights {
    Rights::new(auth, &[], Openness::Shut(Shut::Settings)).unwrap_or_else(|error| panic!("{error}"))
}

/// Settings with a secret key, a static token and a cookie.
fn settings() -> AuthSettings {
    AuthSettings {
        keys: vec![KeySettings { secret: Some(Secret::Text(SECRET.into())), ..KeySettings::default() }],
        tokens: vec![StaticToken {
            token: Secret::Text(FIXED.into()),
            name: Some("shop".into()),
            publish: vec!["news".into()],
            subscribe: Vec::new(),
            presence: Vec::new(),
            manage: Vec::new(),
        }],
        cookie: Some("session".into()),
        ..AuthSettings::default()
    }
}

/// A token that allows `ann` to read `news`.
fn signed(expires_unix_s: u64) -> String {
    let [hs256, ..] = signings();
    let encke = ChannelClaims { subscribe: vec!["news".into()], ..ChannelClaims::default() };
    let claims = Claims { sub: Some("ann".into()), exp: Some(NumericDate(expires_unix_s)), nbf: None, encke };
    token::sign(&claims, &hs256, None)
}

fn open() -> Rights {
    Rights::new(&AuthSettings::default(), &[], Openness::Loopback).expect("nothing to go wrong")
}

// ---- open mode: every way in that must stay closed ----

#[test]
fn this_machine_may_do_everything_where_nobody_has_said_otherwise() {
    for host in ["localhost:8080", "app.localhost", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "LOCALHOST"]
    {
        assert_eq!(Asked::get("/push/news").field("Host", host).acts(&open()), Act::ALL, "{host}");
    }
    for peer in [LOCAL, "127.1.2.3:1", "[::1]:50000"] {
        assert_eq!(Asked::here().from(peer).acts(&open()), Act::ALL, "{peer}");
    }
    for origin in ["http://localhost:8080", "http://localhost:5173", "https://127.0.0.1", "http://[::1]:3000"]
    {
        assert_eq!(Asked::here().field("Origin", origin).acts(&open()), Act::ALL, "{origin}");
    }
}

#[test]
fn a_settings_file_shuts_open_mode() {
    let listeners = [Address::Inet("127.0.0.1:8080".parse().expect("an address"))];
    let openness = Openness::of(false, true, &listeners);
    assert_eq!(openness, Openness::Shut(Shut::Settings));
    let rights = Rights::new(&AuthSettings::default(), &[], openness).expect("nothing to go wrong");
    assert_eq!(Asked::here().acts(&rights), []);
}

#[test]
fn a_listener_beyond_this_machine_shuts_open_mode() {
    let address = |text: &str| Address::Inet(text.parse().expect("an address"));
    let of = |listeners: &[Address]| Openness::of(false, false, listeners);
    assert_eq!(of(&[address("127.0.0.1:80"), address("[::1]:80")]), Openness::Loopback);
    for other in ["0.0.0.0:80", "[::]:80", "192.168.1.5:80", "[::ffff:0.0.0.0]:80"] {
        assert_eq!(of(&[address("127.0.0.1:80"), address(other)]), Openness::Shut(Shut::Listener), "{other}");
    }
    assert_eq!(of(&[Address::Unix("/run/encke.sock".into())]), Openness::Shut(Shut::Listener));
}

#[test]
fn a_peer_beyond_this_machine_is_not_let_in() {
    for peer in [REMOTE, "192.168.1.5:1", "[2001:db8::1]:1", "[::ffff:203.0.113.9]:1", "a Unix socket"] {
        assert_eq!(Asked::here().from(peer).acts(&open()), [], "{peer}");
    }
}

#[test]
fn what_came_through_a_proxy_on_this_machine_is_not_let_in() {
    for (name, value) in [
        ("Forwarded", "for=203.0.113.9"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("x-forwarded-host", "example.org"),
        ("X-FORWARDED-PROTO", "https"),
        ("X-Forwarded-Port", "443"),
        ("X-Real-IP", "203.0.113.9"),
        ("Via", "1.1 proxy"),
        // Also with an empty value, or with the address of this machine.
        ("X-Forwarded-For", ""),
        ("X-Forwarded-For", "127.0.0.1"),
    ] {
        assert_eq!(Asked::here().field(name, value).acts(&open()), [], "{name}: {value}");
    }
}

#[test]
fn a_proxy_that_says_nothing_but_speaks_http_1_0_is_not_let_in() {
    // nginx with `proxy_pass http://localhost:8080` and no other setting.
    let mut asked = Asked::here().field("Connection", "close");
    asked.line = "POST /push/news HTTP/1.0\r\n".into();
    assert_eq!(asked.acts(&open()), []);
}

#[test]
fn a_foreign_name_for_this_machine_is_not_let_in() {
    // DNS rebinding: the page's own name resolves to 127.0.0.1, so its origin equals the host.
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.5",
        "",
    ] {
        let asked = Asked::get("/push/news").field("Host", host);
        assert_eq!(asked.acts(&open()), [], "{host}");
        let page = asked.field("Origin", &format!("http://{host}"));
        assert_eq!(page.acts(&open()), [], "{host}");
    }
}

#[test]
fn a_foreign_page_on_this_machine_is_not_let_in() {
    for origin in
        ["https://evil.example", "http://localhost.evil.example", "null", "file://", "http://192.168.1.5"]
    {
        // `text/plain` needs no preflight: the browser sends it at once.
        let asked = Asked::here().field("Content-Type", "text/plain").field("Origin", origin);
        assert!(matches!(asked.identity(&open()), Err(Denial::ForeignOrigin(_))), "{origin}");
    }
    let two = Asked::here().field("Origin", "http://localhost:8080").field("Origin", "https://evil.example");
    assert!(matches!(two.identity(&open()), Err(Denial::ForeignOrigin(_))));
}

#[test]
fn whoever_is_not_let_in_is_told_why_and_what_to_do() {
    for (asked, hint) in [
        (Asked::here().from(REMOTE), "only this machine has access"),
        (Asked::here().field("Via", "1.1 x"), "came through a proxy"),
        (Asked::get("/push/news").field("Host", "example.org"), "names another host"),
    ] {
        let identity = asked.identity(&open()).expect("nobody");
        let Denial::Unauthorized(text) = identity.denial(Act::Publish, &news()) else {
            panic!("a token could help")
        };
        assert!(
            text.starts_with("a token is required to publish to news: ") && text.contains(hint),
            "{text}"
        );
    }
}

#[test]
fn a_demonstration_is_open_to_all_but_foreign_pages_and_names() {
    let listeners = [Address::Inet("0.0.0.0:8080".parse().expect("an address"))];
    let openness = Openness::of(true, true, &listeners);
    let rights = Rights::new(&AuthSettings::default(), &[], openness).expect("nothing to go wrong");
    let asked = |host: &str| Asked::get("/push/news").field("Host", host).from(REMOTE);
    for host in ["192.168.1.5:8080", "[fd00::5]:8080", "laptop:8080", "laptop.local", "localhost"] {
        assert_eq!(asked(host).acts(&rights), Act::ALL, "{host}");
        assert_eq!(asked(host).field("Origin", &format!("http://{host}")).acts(&rights), Act::ALL, "{host}");
        let foreign = asked(host).field("Origin", "https://evil.example");
        assert!(matches!(foreign.identity(&rights), Err(Denial::ForeignOrigin(_))), "{host}");
    }
    for host in ["evil.example", "laptop.local.evil.example", "192.168.1.5.evil.example"] {
        assert_eq!(asked(host).field("Origin", &format!("http://{host}")).acts(&rights), [], "{host}");
    }
}

// ---- tokens ----

#[test]
fn anybody_may_do_what_settings_name_and_nothing_else() {
    let auth = AuthSettings { anonymous: vec![Act::Subscribe], ..AuthSettings::default() };
    assert_eq!(Asked::here().from(REMOTE).acts(&rights(&auth)), [Act::Subscribe]);
    assert_eq!(Asked::here().from(REMOTE).acts(&rights(&AuthSettings::default())), []);
}

#[test]
fn a_token_is_taken_from_the_header_the_query_or_the_cookie() {
    let rights = rights(&settings());
    let token = signed(NOW_S + 60);
    for asked in [
        Asked::here().bearer(&token),
        Asked::here().field("Authorization", &format!("bearer   {token}")),
        Asked::get(&format!("/push/news?access_token={token}")).field("Host", "h"),
        Asked::get(&format!("/push/news?as=sse&acces%73_token={}", token.replace('.', "%2E")))
            .field("Host", "h"),
        Asked::here().field("Cookie", &format!("a=b; session={token}; c=d")),
        Asked::here().field("Cookie", &format!("session=\"{token}\"")),
        Asked::here().field("Cookie", "a=b").field("Cookie", &format!("session={token}")),
    ] {
        let identity = asked.identity(&rights).expect("a good token");
        assert_eq!(identity.name.as_deref(), Some("ann"));
        assert_eq!(identity.expires_unix_s, Some(NOW_S + 60));
        assert_eq!(asked.acts(&rights), [Act::Subscribe]);
    }
    let fixed = Asked::here().bearer(FIXED).identity(&rights).expect("a good token");
    assert_eq!((fixed.name.as_deref(), fixed.expires_unix_s), (Some("shop"), None));
    assert!(fixed.may(Act::Publish, &news()) && !fixed.may(Act::Publish, &name("other")));
    assert!(matches!(fixed.denial(Act::Manage, &news()), Denial::Forbidden(_)));
}

#[test]
fn the_first_place_that_has_a_token_counts() {
    let rights = rights(&settings());
    let target = format!("/push/news?access_token={FIXED}");
    let cookie = format!("session={}", signed(NOW_S + 60));
    let in_query = Asked::get(&target).field("Host", "h").field("Cookie", &cookie);
    assert_eq!(in_query.identity(&rights).expect("a token").name.as_deref(), Some("shop"));
    let in_header = in_query.bearer(&signed(NOW_S + 60));
    assert_eq!(in_header.identity(&rights).expect("a token").name.as_deref(), Some("ann"));
}

#[test]
fn a_bad_token_is_never_somebody_without_one() {
    let auth = AuthSettings { anonymous: vec![Act::Subscribe], ..settings() };
    let rights = rights(&auth);
    let other = token::sign(&Claims::default(), &signings()[1], None);
    let long = "a".repeat(TOKEN_BYTES_MAX + 1);
    for token in ["", "x", &FIXED[1..], "a b", "a\"b", "=", "a=b", &long, &other, &signed(NOW_S), &signed(0)]
    {
        let asked = Asked::here().bearer(token);
        assert!(matches!(asked.identity(&rights), Err(Denial::InvalidToken(_))), "{token}");
    }
    for target in ["/?access_token=", "/?access_token", "/?access_token=a%0d%0aX:y", "/?access_token=%F0%9F"]
    {
        let asked = Asked::get(target).field("Host", "h");
        assert!(matches!(asked.identity(&rights), Err(Denial::InvalidToken(_))), "{target}");
    }
}

#[test]
fn two_tokens_in_one_place_are_none() {
    let rights = rights(&settings());
    let (one, other) = (FIXED, signed(NOW_S + 60));
    for asked in [
        Asked::here().bearer(one).bearer(&other),
        Asked::get(&format!("/?access_token={one}&access_token={other}")).field("Host", "h"),
        Asked::here().field("Cookie", &format!("session={one}; session={other}")),
        Asked::here().field("Cookie", &format!("session={one}")).field("Cookie", &format!("session={other}")),
    ] {
        let Err(Denial::InvalidToken(text)) = asked.identity(&rights) else { panic!("one was taken") };
        assert!(text.contains("more than one"), "{text}");
    }
}

#[test]
fn what_is_meant_for_others_is_no_token() {
    let rights = rights(&settings());
    for asked in [
        Asked::here().field("Authorization", "Basic dXNlcjpwYXNz"),
        Asked::here().field("Authorization", "Bearerx"),
        Asked::here().field("Cookie", "mysession=x; session2=y; session"),
        Asked::here().field("Cookie", "session="),
        Asked::get("/push/news?token=x&Access_Token=y").field("Host", "h"),
    ] {
        assert!(asked.identity(&rights).expect("nobody").name.is_none());
    }
    let without_cookie = super::tests::rights(&AuthSettings { cookie: None, ..settings() });
    let asked = Asked::here().field("Cookie", &format!("session={}", signed(NOW_S + 60)));
    assert!(asked.identity(&without_cookie).expect("nobody").name.is_none());
}

#[test]
fn a_token_that_was_seen_is_not_verified_again_until_it_ends() {
    let rights = rights(&settings());
    let mut cache = TokenCache::default();
    let asked = Asked::here().bearer(&signed(NOW_S + 60));
    let first = asked.identity_with(&rights, &mut cache).expect("a good token");
    for now_s in [NOW_S, NOW_S + 59] {
        let again = asked.clone().at(now_s).identity_with(&rights, &mut cache).expect("a good token");
        assert!(Arc::ptr_eq(&first.0, &again.0), "it was verified anew");
    }
    let Err(Denial::InvalidToken(text)) = asked.at(NOW_S + 60).identity_with(&rights, &mut cache) else {
        panic!("it has ended")
    };
    assert!(text.contains("expired 0 s ago"), "{text}");
}

#[test]
fn what_was_seen_under_other_rights_is_forgotten() {
    let mut cache = TokenCache::default();
    let asked = Asked::here().bearer(FIXED);
    assert!(asked.identity_with(&rights(&settings()), &mut cache).is_ok());
    let without = AuthSettings { tokens: Vec::new(), ..settings() };
    assert!(asked.identity_with(&rights(&without), &mut cache).is_err());
}

#[test]
fn bad_tokens_are_not_remembered() {
    let rights = rights(&settings());
    let mut cache = TokenCache::default();
    for number in 0..100 {
        let asked = Asked::here().bearer(&format!("{number}"));
        assert!(asked.identity_with(&rights, &mut cache).is_err());
    }
    let memory = cache.memory(&rights);
    assert!(memory.tokens.find(&Digest::of(b"0")).is_none());
    assert!(memory.tokens.is_empty());
}

#[test]
fn a_reload_takes_rights_away_from_those_who_are_here() {
    let before = rights(&AuthSettings { anonymous: vec![Act::Subscribe], ..settings() });
    let identities = [
        Asked::here().identity(&before),
        Asked::here().bearer(FIXED).identity(&before),
        Asked::here().bearer(&signed(NOW_S + 60)).identity(&before),
    ];
    let [nobody, fixed, ann] = identities.map(|identity| identity.expect("let in"));
    let other = name("other");
    for identity in [&nobody, &fixed, &ann] {
        let same = before.renew(identity).expect("nothing has changed");
        assert!(same.may(Act::Subscribe, &other));
        assert_eq!((&same.name, same.expires_unix_s), (&identity.name, identity.expires_unix_s));
    }
    // The settings no longer allow anonymous reads; tokens keep their own rights.
    let after = rights(&settings());
    assert!(!after.renew(&nobody).expect("still nobody").may(Act::Subscribe, &other));
    let (fixed, ann) = (after.renew(&fixed).expect("there"), after.renew(&ann).expect("there"));
    assert!(fixed.may(Act::Publish, &news()) && !fixed.may(Act::Subscribe, &other));
    assert!(ann.may(Act::Subscribe, &news()) && !ann.may(Act::Subscribe, &other));
    // A new key, new patterns for the static token, then no static token.
    let mut changed = settings();
    changed.keys[0].secret = Some(Secret::Text("another secret that is long enough".into()));
    changed.tokens[0].publish = vec!["shop".into()];
    let after = rights(&changed);
    assert!(after.renew(&ann).is_none());
    assert!(!after.renew(&fixed).expect("there").may(Act::Publish, &news()));
    changed.tokens.clear();
    assert!(rights(&changed).renew(&fixed).is_none());
}

#[test]
fn whoever_came_through_an_open_door_loses_it_with_the_door() {
    let identity = Asked::here().identity(&open()).expect("open");
    assert!(open().renew(&identity).expect("still open").may(Act::Manage, &news()));
    let after = rights(&AuthSettings { anonymous: vec![Act::Subscribe], ..AuthSettings::default() });
    let renewed = after.renew(&identity).expect("nobody");
    assert!(renewed.may(Act::Subscribe, &news()) && !renewed.may(Act::Manage, &news()));
}

#[test]
fn a_publisher_is_a_user_or_else_an_address() {
    let rights = rights(&settings());
    let publisher = |asked: Asked| {
        let identity = asked.identity(&rights).expect("let in");
        asked.look(|request| identity.publisher(request))
    };
    assert_eq!(
        publisher(Asked::here().bearer(&signed(NOW_S + 60))),
        publisher(Asked::here().bearer(&signed(NOW_S + 90)).from(REMOTE))
    );
    assert_eq!(publisher(Asked::here().from(REMOTE)), publisher(Asked::here().from("203.0.113.9:1")));
    let different = [
        publisher(Asked::here().bearer(FIXED)),
        publisher(Asked::here().bearer(&signed(NOW_S + 60))),
        publisher(Asked::here()),
        publisher(Asked::here().from(REMOTE)),
        publisher(Asked::here().from("a Unix socket")),
    ];
    for (place, one) in different.iter().enumerate() {
        assert!(!different[..place].contains(one));
    }
}

// ---- pages of other sites ----

#[test]
fn a_page_of_another_site_cannot_use_a_cookie() {
    let cookie = format!("session={}", signed(NOW_S + 60));
    let asked = |origin: &str| Asked::here().field("Cookie", &cookie).field("Origin", origin);
    let rights = Rights::new(&settings(), &["https://shop.example".into()], Openness::Shut(Shut::Settings));
    let rights = rights.expect("good settings");
    for origin in ["https://evil.example", "null", "https://shop.example.evil.example", "http://shop.example"]
    {
        assert!(matches!(asked(origin).identity(&rights), Err(Denial::ForeignOrigin(_))), "{origin}");
        assert_eq!(asked(origin).look(|request| rights.share(request)), Share::Nobody, "{origin}");
    }
    let shop = "https://shop.example";
    for (origin, share) in [("http://localhost:8080", Share::Nobody), (shop, Share::Page(shop.into()))] {
        assert_eq!(asked(origin).acts(&rights), [Act::Subscribe], "{origin}");
        assert_eq!(asked(origin).look(|request| rights.share(request)), share, "{origin}");
    }
}

#[test]
fn a_star_lets_every_page_read_and_none_bring_its_cookies() {
    let origins = ["*".to_owned(), "https://shop.example".to_owned()];
    let rights = Rights::new(&AuthSettings::default(), &origins, Openness::Shut(Shut::Settings));
    let rights = rights.expect("nothing uses cookies");
    let share = |origin: &str| Asked::here().field("Origin", origin).look(|request| rights.share(request));
    assert_eq!(share("https://anything.example"), Share::Anybody);
    assert_eq!(share("https://shop.example"), Share::Page("https://shop.example".into()));
    assert_eq!(share("null"), Share::Nobody, "a page that hides where it is from");
    let twice = Asked::here().field("Origin", "https://a.example").field("Origin", "https://shop.example");
    assert_eq!(twice.look(|request| rights.share(request)), Share::Nobody, "which of them counts?");
}

#[test]
fn pages_of_this_machine_may_read_each_other_where_the_server_is_open() {
    let asked = Asked::here().field("Origin", "http://localhost:5173");
    assert_eq!(asked.look(|request| open().share(request)), Share::Anybody);
    assert_eq!(asked.from(REMOTE).look(|request| open().share(request)), Share::Nobody);
}

// ---- the application ----

fn asking() -> AuthSettings {
    AuthSettings { ask: Some("http://127.0.0.1:1/may".parse().expect("a URL")), ..settings() }
}

/// Returns the decision whether `asked` may read `news`.
fn decision(asked: &Asked, rights: &Rights, cache: &mut TokenCache) -> Decision {
    asked.look(|request| {
        let identity = rights.identify(request, cache).expect("somebody or nobody");
        rights.decide(&identity, Act::Subscribe, &news(), request, cache)
    })
}

#[test]
fn the_application_is_asked_only_where_nothing_here_allows() {
    let (rights, mut cache) = (rights(&asking()), TokenCache::default());
    let allowed = Asked::here().bearer(&signed(NOW_S + 60));
    assert!(matches!(decision(&allowed, &rights, &mut cache), Decision::Allowed));
    // The application's own token, unknown to this server.
    let asked = Asked::here().bearer("opaque").field("Cookie", "a=b").field("Cookie", "c=d");
    let Decision::Ask(question) = decision(&asked, &rights, &mut cache) else { panic!("nothing allows") };
    assert_eq!(question.authorization.as_deref(), Some(&b"Bearer opaque"[..]));
    assert_eq!(question.cookie.as_deref(), Some(&b"a=b; c=d"[..]));
    assert_eq!((question.act, &question.channel), (Act::Subscribe, &news()));
    let without = super::tests::rights(&settings());
    assert!(matches!(
        decision(&Asked::here(), &without, &mut cache),
        Decision::Denied(Denial::Unauthorized(_))
    ));
}

#[test]
fn a_token_in_the_query_reaches_the_application_as_a_field_and_as_nothing_else() {
    let (rights, mut cache) =
        (rights(&AuthSettings { ask: asking().ask, ..AuthSettings::default() }), TokenCache::default());
    for (target, authorization) in [
        ("/push/news?access_token=opaque", Some(&b"Bearer opaque"[..])),
        ("/push/news?access_token=a%0d%0aX-Encke-Action:%20manage", None),
        ("/push/news?access_token=a&access_token=b", None),
        ("/push/news", None),
    ] {
        let asked = Asked::get(target).field("Host", "h");
        let Decision::Ask(question) = decision(&asked, &rights, &mut cache) else { panic!("nothing allows") };
        assert_eq!(question.authorization.as_deref(), authorization, "{target}");
    }
}

#[test]
fn an_answer_is_remembered_for_the_same_question_while_it_lasts() {
    let (rights, mut cache) = (rights(&asking()), TokenCache::default());
    let asked = Asked::here().field("Cookie", "user=ann");
    let ask = |cache: &mut TokenCache, asked: &Asked| match decision(asked, &rights, cache) {
        Decision::Ask(question) => question,
        _ => panic!("it is not known"),
    };
    let question = ask(&mut cache, &asked);
    cache.learn(&question, &AskVerdict::Allowed { kept_s: 0 }, NOW_S);
    cache.learn(&question, &AskVerdict::Unanswered("x".into()), NOW_S);
    let question = ask(&mut cache, &asked);
    cache.learn(&question, &AskVerdict::Allowed { kept_s: 10 }, NOW_S);
    assert!(matches!(decision(&asked, &rights, &mut cache), Decision::Allowed));
    ask(&mut cache, &Asked::here().field("Cookie", "user=bob"));
    ask(&mut cache, &asked.clone().at(NOW_S + 10));
    let denial = Denial::Forbidden("no".into());
    cache.learn(&question, &AskVerdict::Denied { denial: denial.clone(), kept_s: 10 }, NOW_S);
    assert!(matches!(decision(&asked, &rights, &mut cache), Decision::Denied(given) if given == denial));
    // New settings, perhaps another application: verdicts are dropped, and one of an earlier query is not cached.
    let after = super::tests::rights(&asking());
    assert!(matches!(decision(&asked, &after, &mut cache), Decision::Ask(_)));
    cache.learn(&question, &AskVerdict::Allowed { kept_s: 10 }, NOW_S);
    assert!(matches!(decision(&asked, &after, &mut cache), Decision::Ask(_)));
}

// ---- invalid settings ----

#[test]
fn what_is_wrong_with_rights_is_told_at_the_start() {
    let with = |change: fn(&mut AuthSettings)| {
        let mut auth = settings();
        change(&mut auth);
        auth
    };
    let star = ["*".to_owned()];
    for (auth, origins, reason) in [
        (
            with(|auth| auth.keys[0].secret = Some(Secret::Text("short".into()))),
            &[][..],
            "auth.keys, number 1: a secret of 5 bytes",
        ),
        (with(|auth| auth.keys[0].pem = Some("x".into())), &[], "either `secret` or `pem`"),
        (
            with(|auth| auth.jwks = Some("/nonexistent/keys.json".into())),
            &[],
            "auth.jwks: key file /nonexistent/keys.json",
        ),
        (
            with(|auth| auth.tokens[0].token = Secret::Text("short".into())),
            &[],
            "auth.tokens, number 1: a token of 5 characters",
        ),
        (
            with(|auth| auth.tokens[0].token = Secret::Text("has a space in the middle".into())),
            &[],
            "letters, digits",
        ),
        (with(|auth| auth.tokens[0].publish = vec!["a//b".into()]), &[], "invalid channel pattern"),
        (settings(), &star, "name the origins"),
        (AuthSettings::default(), &["example.org".to_owned()], "push.origins: invalid origin `example.org`"),
    ] {
        let error = Rights::new(&auth, origins, Openness::Loopback).err().expect(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(Rights::new(&AuthSettings::default(), &star, Openness::Loopback).is_ok());
}

/// `ann` may publish to `news`; other clients with a certificate may read it.
fn with_certificates() -> AuthSettings {
    let text = "[[certificates]]\nsubject = \"ann\"\npublish = [\"news\"]\n\
                [[certificates]]\nsubject = \"*\"\nsubscribe = [\"news\"]\n";
    toml::from_str(text).expect("settings")
}

#[test]
fn a_certificate_may_what_its_subject_may() {
    let rights = rights(&with_certificates());
    for (subject, acts) in
        [("ann", vec![Act::Publish]), ("ben", vec![Act::Subscribe]), ("Ann", vec![Act::Subscribe])]
    {
        let asked = Asked::here().from(REMOTE).certified(subject);
        assert_eq!(asked.acts(&rights), acts, "{subject}");
        let identity = asked.identity(&rights).expect("somebody");
        assert_eq!(identity.name.as_deref(), Some(subject));
        assert_eq!(identity.expires_unix_s, Some(NOW_S + 100));
        assert!(identity.is_authenticated() && !identity.publishes_anonymously());
        assert!(matches!(identity.denial(Act::Manage, &news()), Denial::Forbidden(_)));
    }
    assert_eq!(Asked::here().from(REMOTE).acts(&rights), []);
    let without = Rights::new(&AuthSettings::default(), &[], Openness::Shut(Shut::Settings));
    assert_eq!(Asked::here().certified("ann").acts(&without.expect("settings")), []);
}

#[test]
fn a_certificate_that_expires_on_an_open_connection_is_rejected() {
    let rights = rights(&with_certificates());
    let certified = Asked::here().from(REMOTE).certified("ann");
    assert!(certified.clone().at(NOW_S + 99).identity(&rights).is_ok());
    let Err(Denial::Unauthorized(text)) = certified.clone().at(NOW_S + 100).identity(&rights) else {
        panic!("an expired certificate is accepted")
    };
    assert!(text.contains("certificate has expired"), "{text}");
    let anonymous = Asked::here().from(REMOTE).at(NOW_S + 100).identity(&rights);
    assert!(anonymous.is_ok_and(|identity| !identity.is_authenticated()));
}

#[test]
fn a_token_counts_in_place_of_a_certificate() {
    let token = StaticToken {
        token: Secret::Text(FIXED.into()),
        name: Some("robot".into()),
        publish: Vec::new(),
        subscribe: Vec::new(),
        presence: Vec::new(),
        manage: vec!["news".into()],
    };
    let rights = rights(&AuthSettings { tokens: vec![token], ..with_certificates() });
    let asked = Asked::here().from(REMOTE).certified("ann");
    assert_eq!(asked.clone().bearer(FIXED).acts(&rights), [Act::Manage]);
    // An invalid token is reported, not ignored in favor of the certificate.
    assert!(matches!(asked.bearer("abcdefabcdefabcdef").identity(&rights), Err(Denial::InvalidToken(_))));
}

#[test]
fn a_certificate_is_looked_at_anew_after_a_reload() {
    let before = rights(&with_certificates());
    let identity = Asked::here().certified("ann").identity(&before).expect("somebody");
    let after = rights(
        &toml::from_str("[[certificates]]\nsubject = \"ann\"\nmanage = [\"news\"]").expect("settings"),
    );
    let renewed = after.renew(&identity).expect("somebody");
    assert!(renewed.may(Act::Manage, &news()) && !renewed.may(Act::Publish, &news()));
    let nothing = rights(&AuthSettings::default()).renew(&identity).expect("somebody still");
    assert!(!nothing.may(Act::Manage, &news()));
}

#[test]
fn pages_of_others_cannot_use_a_certificate() {
    let rights = rights(&with_certificates());
    let asked = Asked::here().certified("ann").field("Origin", "https://evil.example");
    assert!(matches!(asked.identity(&rights), Err(Denial::ForeignOrigin(_))));
    let all = Rights::new(&with_certificates(), &["*".into()], Openness::Shut(Shut::Settings));
    assert!(all.is_err_and(|error| error.to_string().contains("auth.certificates")));
}

#[test]
fn certificates_are_named_once_and_their_patterns_are_looked_at() {
    for (text, said) in [
        ("[[certificates]]\nsubject = \"a\"\n[[certificates]]\nsubject = \"a\"", "twice"),
        ("[[certificates]]\nsubject = \"a\"\npublish = [\"a b\"]", "invalid channel pattern"),
    ] {
        let settings: AuthSettings = toml::from_str(text).expect("its shape holds");
        let problems = settings.check();
        assert!(problems.len() == 1 && problems[0].message.contains(said), "{text}: {problems:?}");
    }
}
