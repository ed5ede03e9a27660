//! Valid settings files, and the errors for invalid ones.

use std::num::NonZeroU32;

use super::*;

fn parse(text: &str) -> Settings {
    Settings::parse("encke.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn refused(text: &str) -> String {
    match Settings::parse("encke.toml", text) {
        Ok(settings) => panic!("it was taken: {settings:?}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn an_empty_file_is_the_default() {
    // The positions differ: they name a file.
    let values = |text| Settings { source: SourceMap::default(), ..parse(text) };
    assert_eq!(values(""), Settings::default());
    assert_eq!(values("[server]\n[limits]\n[log]\n"), Settings::default());
    let default = Settings::default();
    assert_eq!(default.policy(1_000).limits.head_time, ConnLimits::default().limits.head_time);
    let addresses = default.server.listen[0].address.addresses().expect("no name to ask for");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.1:8080", "[::1]:8080"]);
}

#[test]
fn every_key_is_read() {
    let settings = parse(
        r#"
        [server]
        listen = ["8080", { address = "unix:/run/encke.sock", mode = "0660" },
                  { address = ":443", proxy_protocol = true }]
        workers = 2
        backend = "poll"
        backlog = 511
        admin = { address = "127.0.0.1:9000", metrics = "open", hosts = ["encke-1"], token = { env = "TOKEN" } }
        state_dir = "/var/lib/encke"
        trusted_proxies = ["10.0.0.0/8", "::1"]
        forwarded_field = "Forwarded"
        drain_delay = "5s"
        drain_time = "1m"
        pid_file = "/run/encke.pid"
        offload_threads = 4
        [limits]
        head_time = "5s"
        head_bytes = "16KiB"
        uri_bytes = 8192
        fields = 64
        body_bytes = "off"
        body_rate = "1KiB/s"
        write_rate = "2kB/s"
        idle_time = "15s"
        linger_time = "500ms"
        requests_per_connection = 1000
        connections = 5000
        connections_per_address = 50
        upstreams = 300
        [log]
        access = "/var/log/encke/access.log"
        format = "json"
        level = "debug"
        "#,
    );
    let server = &settings.server;
    assert_eq!(server.listen.len(), 3);
    assert_eq!(server.listen[1].mode, Some(FileMode(0o660)));
    assert!(server.listen[2].proxy_protocol);
    assert_eq!(server.workers.to_string(), "2");
    assert_eq!(server.backend, OrAuto::Set(Backend::Poll));
    assert_eq!(server.backlog, 511);
    let admin = server.admin.clone().on().expect("on");
    assert_eq!(admin.hosts, ["encke-1".parse().expect("a name")]);
    assert_eq!((admin.metrics, admin.token), (MetricsAccess::Open, Some(Secret::Env("TOKEN".into()))));
    assert_eq!(server.drain_time.duration().as_secs(), 60);
    let policy = settings.policy(77);
    let head = policy.limits.head();
    assert_eq!((head.head_bytes, head.uri_bytes, head.fields), (16_384, 8_192, 64));
    let limits = &policy.limits;
    assert_eq!(limits.body_bytes, OrOff::Off);
    assert_eq!((limits.body_rate, limits.write_rate), (ByteRate::of(1_024), ByteRate::of(2_000)));
    assert_eq!((limits.idle_time, limits.linger_time), (Period::seconds(15), Period::milliseconds(500)));
    let (requests, per_address) = (limits.requests_per_connection, limits.connections_per_address);
    assert_eq!(
        (requests.on().map(NonZeroU32::get), per_address.on().map(NonZeroU32::get)),
        (Some(1_000), Some(50))
    );
    assert_eq!(limits.upstreams.get(), 300);
    assert_eq!((policy.connections, policy.trusted_proxies.len()), (77, 2));
    assert_eq!(policy.dialect, ForwardingField::Forwarded);
    assert_eq!(settings.log.access, LogTarget::File("/var/log/encke/access.log".into()));
    assert_eq!((settings.log.format, settings.log.level), (LogFormat::Json, Level::Debug));
}

#[test]
fn listen_is_one_or_many() {
    let one = |text: &str| parse(&format!("[server]\nlisten = {text}")).server.listen;
    assert_eq!(one("8080"), one("\"8080\""));
    assert_eq!(one("8080"), one("[8080]"));
    assert_eq!(one("{ address = 8080 }"), one("[8080]"));
    assert_eq!(parse("[[server.listen]]\naddress = \"8080\"").server.listen, one("8080"));
}

#[test]
fn a_listener_redirects_to_one_port_and_only_in_the_clear() {
    let listen = |text: &str| Settings::parse("t", &format!("[server]\nlisten = [{text}]"));
    let port = |text: &str| listen(text).expect("settings").policy(1).https_port;
    assert_eq!(port("8080"), 443);
    assert_eq!(port("{ address = 8080, redirect = \"https\" }"), 443);
    assert_eq!(port("8081, { address = 8080, redirect = \"https:8443\" }"), 8443);
    // Without a port in the setting: that of the listener with TLS.
    let to_https = "{ address = 8080, redirect = \"https\" }";
    let tls = |address: &str| format!("{{ address = {address}, tls = {{ cert = \"c\", key = \"k\" }} }}");
    for (listeners, expected) in [
        (format!("{to_https}, {}", tls("8443")), 8443),
        (format!("{to_https}, {}, {}", tls("8444"), tls("\":8443\"")), 8444),
        (format!("{}, {}, {to_https}", tls("8444"), tls("\":443\"")), 443),
        (format!("{to_https}, {}", tls("\"unix:s\"")), 443),
        (format!("{to_https}, {}, {}", tls("\"127.0.0.1:0\""), tls("8443")), 8443),
        (format!("{{ address = 8080, redirect = \"https:443\" }}, {}", tls("8443")), 443),
    ] {
        assert_eq!(port(&listeners), expected, "{listeners}");
    }
    for (text, said) in [
        ("{ address = 1, redirect = \"http\" }", "https:PORT"),
        (
            "{ address = 1, redirect = \"https\" }, { address = 2, redirect = \"https:3\" }",
            "to the same port",
        ),
        ("{ address = 1, redirect = \"https\", tls = { cert = \"c\", key = \"k\" } }", "cannot redirect"),
    ] {
        let problems = listen(text).expect_err(text).to_string();
        assert!(problems.contains(said), "{text}: {problems}");
    }
}

#[test]
fn admin_is_an_address_a_table_or_off() {
    let admin = |text: &str| parse(&format!("[server]\nadmin = {text}")).server.admin;
    assert_eq!(admin("\"off\""), OrOff::Off);
    assert_eq!(admin("\"127.0.0.1:9\""), admin("{ address = \"127.0.0.1:9\" }"));
    assert_eq!(
        admin("{ metrics = \"open\" }").on().expect("on").address(),
        ListenAddress::Inet(ADMIN_DEFAULT)
    );
    let told = refused("[server]\nadmin = { hosts = [\"encke-1:8081\"] }");
    assert!(
        told.contains("invalid host name `encke-1:8081`: expected a name without scheme and port"),
        "{told}"
    );
}

#[test]
fn an_unknown_key_names_its_place_and_what_was_meant() {
    assert_eq!(
        refused("[server]\nworkers = 1\nlissen = \"8080\"\n"),
        "error: unknown key `lissen` in [server]\n  --> encke.toml:3:1\n   |\n 3 | lissen = \"8080\"\n   | \
         ^^^^^^ did you mean `listen`?\n"
    );
    assert!(refused("[sever]\n").contains("did you mean `server`?"));
    assert!(
        refused("[server]\nadmin = { adress = \"9\" }").contains("unknown key `adress` in [server.admin]")
    );
    let nested = refused("[server]\nlisten = [{ address = \"1\", proxy-protocol = true }]\n");
    assert!(nested.contains("unknown key `proxy-protocol` in [server.listen]"), "{nested}");
    assert!(nested.contains("did you mean `proxy_protocol`?"), "{nested}");
    assert!(nested.contains("encke.toml:2:28\n"), "{nested}");
}

#[test]
fn a_key_in_the_wrong_section_is_sent_to_its_own() {
    assert!(refused("[server]\nidle_time = \"1s\"\n").contains("`idle_time` belongs in [limits]"));
    assert!(refused("listen = \"8080\"\n").contains("`listen` belongs in [server]"));
}

#[test]
fn a_section_that_does_not_exist_yet_is_unknown() {
    let told = refused("[proxy]\n");
    assert!(told.contains("unknown key `proxy`"), "{told}");
}

#[test]
fn a_cluster_that_could_not_be_is_refused_with_its_reason() {
    let nats = "[cluster]\nnats = \"nats://host:4222\"\n";
    let streams = |streams: &[(&str, &str)]| {
        let one = |(name, channel): &(&str, &str)| {
            format!("[[cluster.streams]]\nname = \"{name}\"\nchannels = [\"{channel}\"]\n")
        };
        format!("{nats}{}", streams.iter().map(one).collect::<String>())
    };
    for (text, reason) in [
        ("[cluster]\nnats = \"host:4222\"", "is no NATS server"),
        ("[cluster]\nnats = [\"nats://host\", \"nats://\"]", "is no NATS server"),
        (&format!("{nats}user = \"ann\""), "belong together"),
        (&format!("{nats}token = \"t\"\ncredentials = \"c\""), "three ways in"),
        (&format!("{nats}stream = \"a.b\""), "cluster.stream"),
        (&format!("{nats}address = \"http://0.0.0.0:8080\""), "other nodes cannot reach http://0.0.0.0:8080"),
        (&format!("{nats}address = \"http://unix:/run/a\""), "as http://node-a:8080"),
        (&format!("{nats}address = \"fcgi://node-a:9000\""), "as http://node-a:8080"),
        (&format!("{nats}address = \"app:shop\""), "as http://node-a:8080"),
        (&format!("{nats}address = \"http://node-a/live/\""), "invalid URL"),
        (&streams(&[("a.b", "a")]), "cluster.streams name \"a.b\" must have 1 to 32"),
        (&streams(&[("encke", "a")]), "two streams \"encke\""),
        (&streams(&[("one", "a"), ("one", "b")]), "two streams \"one\""),
        (
            &format!("{nats}[[cluster.streams]]\nname = \"one\""),
            "has no channels: add channels = [\"one/**\"]",
        ),
        (&streams(&[("one", "a*")]), "channels \"a*\" of the stream \"one\""),
        (&streams(&[("one", "a/**"), ("two", "a/*/b")]), "\"a/*/b\" of the stream \"two\" never matches"),
        (&streams(&[("one", "a"), ("one", "a")]), "two streams"),
        (
            &streams(&["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, name))),
            "at most 7 are allowed",
        ),
        (&format!("{nats}[[push.channel]]\npattern = \"a\"\nack = \"memory\""), "no id until the stream"),
        (&format!("{nats}[[push.channel]]\npattern = \"a\"\nack = \"local\""), "set cluster.queue"),
        ("[[push.channel]]\npattern = \"a\"\nack = \"local\"", "requires a cluster"),
        (&format!("{nats}queue = \"1MiB\"\nage = \"119s\""), "at most half of cluster.age"),
    ] {
        let told = refused(text);
        assert!(told.contains(reason), "{text}: {told}");
    }
}

#[test]
fn a_bad_value_names_its_key_its_place_and_what_is_expected() {
    for (text, place, reason) in [
        ("[limits]\nhead_time = 10", "2:13", "limits.head_time: `10` has no unit; write 10s"),
        ("[limits]\nhead_time = \"soon\"", "2:13", "limits.head_time: invalid duration `soon`"),
        ("[limits]\nhead_time = true", "2:13", "limits.head_time: expected a number and a unit"),
        ("[limits]\nhead_bytes = \"64KiB\"", "2:14", "64KiB is more than 65535B, the most that is allowed"),
        ("[limits]\nhead_bytes = 100", "2:14", "100B is less than 256B"),
        ("[limits]\nhead_bytes = -1", "2:14", "limits.head_bytes: expected a number of bytes"),
        ("[limits]\nfields = 129", "2:10", "129 is more than 128"),
        ("[limits]\nbody_bytes = false", "2:14", "write \"off\" instead of false"),
        ("[limits]\nbody_bytes = \"of\"", "2:14", "invalid size `of`"),
        ("[limits]\nbody_rate = \"1KiB\"", "2:13", "invalid rate `1KiB`"),
        ("[limits]\nconnections = 0", "2:15", "auto or a number from 1"),
        ("[server]\nworkers = \"two\"", "2:11", "auto or a number from 1"),
        ("[server]\nbackend = \"kqueue\"", "2:11", "auto, uring, epoll-edge, epoll-level or poll"),
        ("[server]\nbacklog = 0", "2:11", "0 is less than 1"),
        ("[server]\nlisten = [\"80\", \"eighty\"]", "2:17", "invalid address `eighty`"),
        ("[server]\nlisten = true", "2:10", "an address in quotes, a table"),
        ("[server]\ntrusted_proxies = [\"10.0.0.1/8\"]", "2:20", "write 10.0.0.0/8"),
        ("[server]\nadmin = { metrics = \"opne\" }", "2:21", "did you mean `open`?"),
        ("[server]\nlisten = { address = \"unix:/x\", mode = 660 }", "2:40", "in quotes, such as \"0660\""),
        ("[auth]\nanonymous = [\"publihs\"]", "2:14", "did you mean `publish`?"),
        ("[auth]\nask = \"ftp://app/may\"", "2:7", "expected http://HOST[:PORT]/PATH, https://HOST"),
        ("[log]\nlevel = \"warning\"", "2:9", "log.level cannot be `warning`"),
        ("server = 5", "1:10", "server: expected"),
    ] {
        let told = refused(text);
        assert!(told.contains(&format!("encke.toml:{place}\n")), "{text}: {told}");
        assert!(told.contains(reason), "{text}: {told}");
    }
}

/// Each kind of value that TOML has, and some that no setting takes.
const VALUES: [&str; 15] = [
    "true",
    "7",
    "-7",
    "99999999999999999999",
    "1.5",
    "\"text\"",
    "\"\"",
    "[]",
    "[7]",
    "[\"text\"]",
    "[[7]]",
    "[{ a = 7 }]",
    "{}",
    "{ a = 7 }",
    "1979-05-27",
];

/// Terms of serde and of its formats, which a user of the file does not know.
const TERMS: [&str; 20] = [
    "sequence", " map", "struct", "boolean", "integer", "floating", "newtype", "variant", "nonzero",
    "untagged", "enum", "unit ", "element", "tuple", "string", "u16", "u32", "u64", "usize", "i128",
];

#[test]
fn no_error_of_any_setting_has_a_term_of_serde() {
    let tables = reference::tables::<Settings>();
    let mut errors = 0;
    for table in &tables {
        // The headings of the tables around it: `[server]`, `[server.listen]`.
        let around = tables
            .iter()
            .filter(|other| table.path == other.path || table.path.starts_with(&format!("{}.", other.path)));
        let headings: String = around.map(|other| format!("{}\n", other.heading)).collect();
        for key in &table.keys {
            for value in VALUES {
                let text = format!("{headings}{key} = {value}\n");
                let Err(problems) = Settings::parse("encke.toml", &text) else { continue };
                for problem in problems.iter() {
                    errors += 1;
                    let told = &problem.message;
                    // A name in backquotes is from the file.
                    let words: String = told.split('`').step_by(2).collect();
                    let found: Vec<_> = TERMS.iter().filter(|term| words.contains(**term)).collect();
                    assert!(found.is_empty(), "{text}: {told}: {found:?}");
                }
            }
        }
    }
    assert!(errors > 1_000, "{errors} errors: the values are not tried");
}

#[test]
fn type_errors_are_in_the_words_of_the_file() {
    for (text, said) in [
        ("site = 5", "site: expected a list: [ … ], found the number 5"),
        ("server = true", "server: expected a table: { … }, found true"),
        ("[[site]]\nlist = \"yes\"", "site.list: expected true or false, found text \"yes\""),
        ("[[site]]\nindex = { a = 1 }", "site.index: expected a list: [ … ], found a table"),
        ("[[site]]\nhsts = true", "site.hsts: expected text in quotes, found true"),
        (
            "[limits]\nfields = 1.5",
            "limits.fields: expected a whole number from 0 to 65535, found the number 1.5",
        ),
        ("[limits]\nhead_bytes = -1", "or a number and a unit, such as 64KiB or 1MB, found the number -1"),
        ("[log]\nformat = 5", "log.format: expected text in quotes"),
    ] {
        let told = refused(text);
        assert!(told.contains(said), "{text}: {told}");
    }
}

#[test]
fn certificates_that_are_fetched_need_names_consent_and_a_place() {
    let listen =
        |acme: &str| format!("[server]\nlisten = {{ address = \":443\", tls = {{ acme = {acme} }} }}\n");
    let with = |acme: &str| listen(acme) + "state_dir = \"state\"\n";
    let settings = parse(&with("{ domains = [\"www.example.org\"], agree = true, ca = \"root.pem\" }"));
    let tls = settings.server.listen[0].tls.as_ref().expect("named");
    let acme = tls.acme.as_ref().expect("named");
    assert_eq!(acme.directory, "https://acme-v02.api.letsencrypt.org/directory");
    assert_eq!(acme.folder, Path::new("state/acme"));
    assert_eq!(tls.pairs(), [], "nobody else keeps a pair");
    assert_eq!(tls.files().collect::<Vec<_>>(), [acme.file()]);
    for (text, reason) in [
        (with("{}"), "needs domains ="),
        (with("{ domains = [\"a.example\"] }"), "needs agree = true"),
        (with("{ domains = [\"*.a.example\"], agree = true }"), "name each host"),
        (with("{ domains = [\"127.0.0.1\"], agree = true }"), "it is no name in the DNS"),
        (
            with("{ domains = [\"a.example\"], agree = true, directory = \"http://a\" }"),
            "must begin with https://",
        ),
        (with("{ domains = [\"a.example\"], agree = true, challenge = \"dns-01\" }"), "challenge"),
        (listen("{ domains = [\"a.example\"], agree = true }"), "server.state_dir, which is not set"),
        (
            "[server]\nstate_dir = \"state\"\nlisten = [\
             { address = \":1\", tls = { acme = { domains = [\"a.example\"], agree = true } } },\
             { address = \":2\", tls = { acme = { domains = [\"a.example\", \"b.example\"], agree = true } } }]\n"
                .into(),
            "but differ in the rest",
        ),
    ] {
        let told = refused(&text);
        assert!(told.contains(reason), "{text}: {told}");
    }
}

#[test]
fn several_problems_are_told_at_once_in_their_order() {
    let told = refused("[limits]\nhead_time = 10\nfeilds = 3\n[log]\nformat = \"xml\"\n[servre]\n");
    let places: Vec<&str> = told.lines().filter(|line| line.contains("-->")).collect();
    assert_eq!(
        places,
        ["  --> encke.toml:2:13", "  --> encke.toml:3:1", "  --> encke.toml:5:10", "  --> encke.toml:6:2"],
        "{told}"
    );
}

#[test]
fn no_number_of_problems_is_too_many() {
    let text: String = (0..500).map(|number| format!("key{number} = 1\n")).collect();
    let told = refused(&text);
    assert_eq!(told.matches("-->").count(), 20);
    assert!(told.ends_with("\nand at least 80 more errors\n"), "{told}");
    // Serde reads the keys in alphabetical order.
    let keys: Vec<String> = (0..30).rev().map(|number| format!("key{number:02}")).collect();
    let told = refused(&keys.iter().map(|key| format!("{key} = 1\n")).collect::<String>());
    let shown: Vec<&str> =
        told.lines().filter_map(|line| line.strip_prefix("error: unknown key `")).collect();
    let first: Vec<String> = keys[..20].iter().map(|key| format!("{key}`")).collect();
    assert_eq!(shown, first);
    assert!(told.ends_with("\nand 10 more errors\n"), "{told}");
}

#[test]
fn a_section_that_is_written_as_a_list_occurs_once() {
    let hint = "write [server] once; [[site]], [[upstream]], [[app]], [[access]], [[rate]] may be repeated";
    for text in
        ["[[server]]\nlisten = 80\nserver_name = \"a\"\nroot = \"a\"\n", "[[server]]\naddress = \":80\"\n"]
    {
        let told = refused(text);
        assert!(
            told.starts_with("error: `server` is one section, not a list\n  --> encke.toml:1:3\n"),
            "{told}"
        );
        assert!(told.contains(hint) && told.matches("-->").count() == 1, "{told}");
    }
    for again in ["[server]", "[[server]]"] {
        let told = refused(&format!("[server]\nlisten = 80\n{again}\nlisten = 81\n"));
        assert!(told.contains("duplicate key\n  --> encke.toml:3:") && told.contains(hint), "{told}");
    }
    for text in ["server = []\n", "limits = [80]\n", "push = [\"a\", { b = 1 }]\n"] {
        let told = refused(text);
        assert!(told.contains("` is one section, not a list\n  --> encke.toml:1:1\n"), "{told}");
        assert_eq!(told.matches("-->").count(), 1, "{told}");
    }
    let told = refused("[[site]]\n[site]\n");
    assert!(told.contains("write [[site]] for each"), "{told}");
    let tables = reference::tables::<Settings>();
    let lists = tables.iter().filter(|table| table.heading.starts_with("[[") && !table.path.contains('.'));
    let lists: Vec<&str> = lists.map(|table| table.path.as_str()).collect();
    assert_eq!(lists, Settings::LISTS);
}

#[test]
fn a_path_of_windows_in_double_quotes_is_an_error_with_the_remedy() {
    for path in [r"C:\Web", r"C:\users\ann"] {
        let said = refused(&format!("[[site]]\nroot = \"{path}\"\n"));
        assert!(said.contains("encke.toml:2:") && said.contains("in single quotes"), "{said}");
    }
    assert_eq!(parse("[[site]]\nroot = 'C:\\Web'\n").site[0].root, Path::new(r"C:\Web"));
}

#[test]
fn what_is_not_toml_is_told_where_it_ends_to_be() {
    for (text, line) in
        [("[server\nworkers = 1\n", 1), ("[server]\nworkers = \n", 2), ("a = 1\na = 2\n", 2), ("= 1", 1)]
    {
        let told = refused(text);
        assert!(told.contains(&format!("encke.toml:{line}:")), "{text}: {told}");
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (text, place, reason) in [
        ("[limits]\nhead_bytes = \"1KiB\"\nuri_bytes = \"2KiB\"", "3:13", "of which it is a part"),
        ("[server]\nlisten = []", "2:10", "must not be empty"),
        ("[server]\nlisten = [8080, \"8080\"]", "2:17", "contains 8080 twice"),
        ("[server]\nlisten = { address = \"8080\", mode = \"0660\" }", "2:10", "mode requires a Unix socket"),
        ("[auth]\n[[auth.keys]]\nkid = \"a\"", "2:1", "either `secret` or `pem`"),
        (
            "[[auth.tokens]]\ntoken = \"x\"\npublish = [\"a//b\"]",
            "3:11",
            "invalid channel pattern `a//b`: empty segment",
        ),
        ("[auth]\ncookie = \"a b\"", "2:10", "not the name of a cookie"),
        ("[[site]]\n[[site]]\nindex = [\"a/b\"]", "3:9", "site.index: `a/b` is not the name of a file"),
        (
            "[[site]]\nhost = [\"x\"]\n[[site.cache]]\npattern = \"a\"\ncache_control = \"\"",
            "3:1",
            "site.cache: ",
        ),
    ] {
        let told = refused(text);
        assert!(told.contains(reason) && told.contains(place), "{text}: {told}");
    }
}

#[test]
fn a_change_that_waits_for_the_next_start_is_named() {
    let old = Settings::default();
    let new = parse("[server]\nworkers = 3\nlisten = 9090\n[limits]\nidle_time = \"1s\"");
    assert_eq!(old.waiting_for_start(&new), ["server.workers"]);
    assert!(old.waiting_for_start(&old).is_empty());
}

#[test]
fn paths_start_at_the_folder_of_the_file() {
    let folder = std::env::temp_dir().join(format!("encke-settings-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("docs")).expect("a temporary folder");
    let path = folder.join("encke.toml");
    std::fs::write(
        &path,
        "[server]\nlisten = [\"unix:a.sock\", \"unix:/b.sock\"]\nstate_dir = \"state\"\npid_file = \"pid\"\n\
         admin = { token = { file = \"token\" } }\n[log]\naccess = \"access.log\"\n\
         [[site]]\nroot = \"public\"\naliases = [{ path = \"/docs/\", to = \"docs\" }]\n[[site]]\nhost = [\"x\"]\n\
         [auth]\njwks = \"keys.json\"\n[[auth.keys]]\npem = \"key.pem\"\n",
    )
    .expect("a temporary file");
    let settings = Settings::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(settings.server.listen[0].address, ListenAddress::Unix(folder.join("a.sock")));
    assert_eq!(settings.server.listen[1].address, ListenAddress::Unix(folder.join(Path::new("/b.sock"))));
    assert_eq!(settings.server.state_dir, Some(folder.join("state")));
    assert_eq!(settings.server.pid_file, Some(folder.join("pid")));
    assert_eq!(settings.server.admin.on().expect("on").token, Some(Secret::File(folder.join("token"))));
    assert_eq!(settings.log.access, LogTarget::File(folder.join("access.log")));
    assert_eq!(settings.site[0].root, folder.join("public"));
    assert_eq!(settings.site[0].aliases[0].to, folder.join("docs"));
    assert_eq!(settings.site[1].root, folder.join("."));
    assert_eq!(settings.auth.keys[0].pem, Some(folder.join("key.pem")));
    assert_eq!(settings.auth.jwks, Some(folder.join("keys.json")));
    assert_eq!(settings.file, Some(path));
    std::fs::remove_dir_all(&folder).expect("it was made here");
    let told = Settings::read(&folder.join("encke.toml")).expect_err("gone").to_string();
    assert!(told.contains("cannot read settings file"), "{told}");
}

#[test]
fn the_schema_knows_every_key_and_refuses_others() {
    let schema = schema();
    let text = schema.to_string();
    for key in ["listen", "trusted_proxies", "connections_per_address", "access", "proxy_protocol"] {
        assert!(text.contains(&format!("\"{key}\"")), "{key}");
    }
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["$defs"]["LimitSettings"]["properties"]["head_time"]["default"], "10s");
}

#[test]
fn the_reference_tells_every_key_with_its_default() {
    let page = markdown();
    for row in ["| `head_time` | `\"10s\"` |", "| `listen` | `[\"8080\"]` |", "| `access` | `\"stdout\"` |"] {
        assert!(page.contains(row), "{row} is missing in\n{page}");
    }
    for heading in [
        "## `[server]`",
        "## `[limits]`",
        "## `[log]`",
        "## `[[site]]`",
        "### `[server.admin]`, as a table",
        "### `[[site.cache]]`",
        "## `[auth]`",
        "### `[[auth.keys]]`",
        "### `[[auth.tokens]]`",
    ] {
        assert!(page.contains(&format!("{heading}\n")), "{heading} is missing in\n{page}");
    }
    let empty = page.lines().filter(|line| line.ends_with("|  |")).collect::<Vec<_>>();
    assert!(empty.is_empty(), "keys without a comment: {empty:?}");
}
