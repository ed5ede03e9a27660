//! Files, directories, listings, errors.

use super::*;

#[test]
fn a_small_file_is_answered_ready_made_from_memory() {
    let scene = Scene::new("small");
    scene.write("hello.txt", "Hello, world!");
    let mut stage = Stage::new(&scene, "");
    let first = stage.get("/hello.txt");
    assert_eq!((first.status, first.text()), (200, "Hello, world!"));
    assert_eq!(first.value("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(first.value("Cache-Control"), Some("no-cache"));
    assert_eq!(first.value("Accept-Ranges"), Some("bytes"));
    assert_eq!(first.value("X-Content-Type-Options"), Some("nosniff"));
    assert!(first.value("Last-Modified").is_some() && first.etag().starts_with('"'));
    assert!(first.prepared);
    assert_eq!(stage.get("/hello.txt"), first);
    assert_eq!(stage.get("/hello.txt?whatever"), first, "a query changes nothing about a file");
    assert_eq!(stage.get("/%68ello.txt"), first, "another spelling");
    let jobs = stage.jobs();
    stage.get("/hello.txt");
    assert_eq!(stage.jobs(), jobs, "the pool is not needed for what is known");
}

#[test]
fn a_large_file_is_sent_from_its_descriptor() {
    let scene = Scene::new("large");
    let content: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
    scene.write("large.bin", &content);
    let mut stage = Stage::new(&scene, "");
    assert!(matches!(stage.ready("/large.bin").content(), ContentView::File(..)));
    assert_eq!(stage.get("/large.bin").body, content);
}

#[test]
fn an_empty_file_is_whole() {
    let scene = Scene::new("empty");
    scene.write("empty.txt", "");
    let mut stage = Stage::new(&scene, "");
    let answer = stage.get("/empty.txt");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn head_is_answered_as_get() {
    let scene = Scene::new("head");
    scene.write("a.txt", "aaaa");
    let mut stage = Stage::new(&scene, "");
    // The worker omits the content; everything else is the same.
    let head = stage.ask("HEAD /a.txt HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(head, stage.get("/a.txt"));
    let ranged = stage.ask("HEAD /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n");
    assert_eq!(ranged.status, 200, "ranges are for GET");
}

#[test]
fn other_methods_are_told_what_can_be_done() {
    let scene = Scene::new("methods");
    scene.write("a.txt", "a");
    let mut stage = Stage::new(&scene, "");
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW", "get"] {
        let answer = stage.ask(&format!("{method} /a.txt HTTP/1.1\r\nHost: a\r\n"));
        assert_eq!((answer.status, answer.value("Allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
    }
    let options = stage.ask("OPTIONS /a.txt HTTP/1.1\r\nHost: a\r\n");
    assert_eq!((options.status, options.value("Allow")), (204, Some("GET, HEAD, OPTIONS")));
}

#[test]
fn a_folder_is_its_index_file() {
    let scene = Scene::new("index");
    scene.write("index.html", "<p>root");
    scene.write("a/index.html", "<p>a");
    scene.write("b/index.htm", "<p>b");
    scene.write("c/file.txt", "c");
    let mut stage = Stage::new(&scene, "index = [\"index.html\", \"index.htm\"]");
    assert_eq!(stage.get("/").text(), "<p>root");
    assert_eq!(stage.get("/").value("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(stage.get("/a/").text(), "<p>a");
    assert_eq!(stage.get("/a/.").text(), "<p>a");
    assert_eq!(stage.get("/b/").text(), "<p>b");
    assert_eq!(stage.get("/c/").status, 404, "folders are not listed unless that is set");
}

#[test]
fn a_folder_without_its_slash_is_redirected_within_the_site() {
    let scene = Scene::new("slash");
    scene.write("a b/index.html", "x");
    scene.write("evil.example/index.html", "x");
    let mut stage = Stage::new(&scene, "");
    let answer = stage.get("/a%20b?x=1&y=%2F");
    assert_eq!((answer.status, answer.value("Location")), (301, Some("/a%20b/?x=1&y=%2F")));
    for path in ["//evil.example", "///evil.example", "/%2e//evil.example", "/.//evil.example"] {
        let answer = stage.get(path);
        assert_eq!((answer.status, answer.value("Location")), (301, Some("/evil.example/")), "{path}");
    }
    assert_eq!(stage.get("/a%20b/index.html/").status, 404, "a file is no folder");
}

#[test]
fn a_single_page_application_gets_its_index_for_navigation_only() {
    let scene = Scene::new("spa");
    scene.write("index.html", "<p>app");
    scene.write("app.js", "1");
    let mut stage = Stage::new(&scene, "spa = true");
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let page = stage.get_with("/users/42", browser);
    assert_eq!((page.status, page.text()), (200, "<p>app"));
    let again = stage.get_with("/users/42", &format!("{browser}If-None-Match: {}\r\n", page.etag()));
    assert_eq!(again.status, 304);
    assert_eq!(stage.get_with("/missing.js", browser).status, 404, "a name with an extension");
    assert_eq!(stage.get_with("/users/42", "Accept: */*\r\n").status, 404, "a script that fetches data");
    assert_eq!(stage.get_with("/users/42", "Accept: text/html;q=0, */*\r\n").status, 404);
    assert_eq!(stage.get("/users/42").status, 404);
    assert_eq!(stage.get_with("/app.js", browser).text(), "1");
}

#[test]
fn a_single_page_application_chooses_names_and_clients() {
    let scene = Scene::new("spa-settings");
    scene.write("index.html", "<p>app");
    scene.write("app.js", "1");
    let browser = "Accept: text/html,*/*;q=0.8\r\n";
    for (dots, wildcards) in [(false, false), (true, false), (false, true), (true, true)] {
        let settings = format!("spa = true\nspa_dots = {dots}\nspa_wildcards = {wildcards}");
        let mut stage = Stage::new(&scene, &settings);
        for (path, lines, is_page) in [
            ("/users/42", browser, true),
            ("/users/j.doe", browser, dots),
            ("/v1.2/users", browser, true),
            ("/users/42", "Accept: */*\r\n", wildcards),
            ("/users/42", "Accept: text/*\r\n", wildcards),
            ("/users/42", "", wildcards),
            ("/users/j.doe", "Accept: */*\r\n", dots && wildcards),
            ("/users/42", "Accept: application/json\r\n", false),
            ("/users/42", "Accept: text/html;q=0, */*\r\n", false),
        ] {
            let answer = stage.get_with(path, lines);
            let expected = if is_page { (200, "<p>app") } else { (404, answer.text()) };
            assert_eq!((answer.status, answer.text()), expected, "{path} {lines} {settings}");
        }
        assert_eq!(stage.get("/app.js").text(), "1");
        let post = stage.ask("POST /users/42 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n");
        assert_eq!(post.status, 405);
    }
}

#[test]
fn errors_are_pages_for_browsers_and_text_for_others() {
    let scene = Scene::new("errors");
    let mut stage = Stage::new(&scene, "");
    let text = stage.get("/none");
    assert_eq!((text.status, text.text()), (404, "404 Not Found\n"));
    assert_eq!(text.value("Content-Type"), Some("text/plain; charset=utf-8"));
    let html = stage.get_with("/none", "Accept: text/html\r\n");
    assert_eq!(html.value("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(html.text().contains("<title>404 Not Found</title>"));
    assert!(!html.text().contains("{status}") && !html.text().contains("{text}"));
}

#[test]
fn errors_have_pages_of_the_sites_own() {
    let scene = Scene::new("own");
    scene.write("404.html", "<p>lost");
    scene.write("gone.html", "<p>gone");
    scene.write("big.html", vec![b'x'; 20_000]);
    let mut stage = Stage::new(
        &scene,
        r#"
        errors = { 404 = "/404.html", 410 = "/gone.html", 403 = "/missing.html", 405 = "/big.html" }
        paths = [{ pattern = "/old/**", status = 410 }, { pattern = "/no", status = 403 }]
        headers = [{ pattern = "/**", set = { "X-Frame-Options" = "DENY" } }]
        "#,
    );
    let lost = stage.get("/none");
    assert_eq!((lost.status, lost.text()), (404, "<p>lost"));
    assert_eq!(lost.value("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(lost.value("X-Frame-Options"), Some("DENY"));
    assert_eq!((lost.value("ETag"), lost.value("Last-Modified")), (None, None), "nobody is to keep it");
    let conditional = stage.get_with("/none", "If-None-Match: *\r\nRange: bytes=0-0\r\n");
    assert_eq!((conditional.status, conditional.text()), (404, "<p>lost"));
    assert_eq!(stage.get("/old/x").text(), "<p>gone");
    let missing = stage.get("/no");
    assert_eq!((missing.status, missing.text()), (403, "403 Forbidden\n"), "the page itself is missing");
    let page = stage.get("/404.html");
    assert_eq!((page.status, page.text()), (200, "<p>lost"));
}

#[test]
fn a_listing_shows_what_can_be_opened() {
    let scene = Scene::new("listing");
    // No name of Windows has `<`.
    let (markup, escaped) =
        if cfg!(windows) { ("&i.txt", "&amp;i.txt") } else { ("<i>.txt", "&lt;i&gt;.txt") };
    for name in ["b10.ogg", "b2.ogg", ".hidden", "sub/x", "secret/x", markup] {
        scene.write(&format!("music/{name}"), "12345");
    }
    std::fs::write(scene.0.join("outside"), "secret").expect("written");
    link("../../outside", scene.path("music/escape"));
    if !link("b2.ogg", scene.path("music/link.ogg")) {
        scene.write("music/link.ogg", "12345");
    }
    link("nowhere", scene.path("music/dangling"));
    let settings = "list = true\npaths = [{ pattern = \"/music/secret\", status = 404 }]";
    let mut stage = Stage::new(&scene, settings);
    let page = stage.get("/music/");
    assert_eq!((page.status, page.value("Content-Type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!((page.value("Cache-Control"), page.value("Vary")), (Some("no-cache"), Some("Accept")));
    assert!(page.text().contains("<a href=\"./b2.ogg\">b2.ogg</a>"), "{}", page.text());
    assert!(page.text().contains("<a href=\"./sub/\">sub/</a>"));
    assert!(page.text().contains(escaped) && !page.text().contains(markup));
    let names = |answer: &Answer| {
        let value: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!((&value["schema"], &value["path"]), (&1.into(), &"/music/".into()));
        let entries = value["entries"].as_array().expect("a list").iter();
        entries.map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let json = stage.get("/music/?json");
    assert_eq!(json.value("Content-Type"), Some("application/json"));
    assert_eq!(names(&json), ["sub", markup, "b2.ogg", "b10.ogg", "link.ogg"]);
    let json = stage.get_with("/music/?sort=-name", "Accept: application/json\r\n");
    assert_eq!(names(&json), ["sub", "link.ogg", "b10.ogg", "b2.ogg", markup]);
    scene.write("music/new.ogg", "1");
    assert!(names(&stage.get("/music/?json")).contains(&"new.ogg".to_owned()), "each time anew");
    assert_eq!(stage.get("/music").value("Location"), Some("/music/"));
}

#[test]
fn every_link_of_a_listing_can_be_opened() {
    let scene = Scene::new("odd-names");
    let mut good = vec![
        "100%",
        "%41",
        "%2F",
        "what?",
        "#1",
        "a;b",
        ":start",
        "java:x",
        "dot.",
        "a b",
        "+",
        "&amp;",
        "'q'",
        "\"q\"",
        "<i>",
        "ünï",
        "\u{85}",
        "\u{202e}abc",
        "~",
        "a=b",
        "[x]",
        "{x}",
        "|",
        "^",
        "`",
        "@",
        "!",
        "$",
        ",",
    ];
    let mut bad = vec!["back\\slash", "line\nbreak", "tab\tx", "bell\u{7}", "del\u{7f}"];
    if cfg!(windows) {
        let is_possible = |name: &&str| {
            let reserved = |letter: char| letter < ' ' || "\\:*?\"<>|".contains(letter);
            !name.contains(reserved) && !name.ends_with('.')
        };
        good.retain(is_possible);
        bad.retain(is_possible);
    }
    for name in &good {
        scene.write(&format!("odd/{name}"), *name);
    }
    for bad in bad {
        scene.write(&format!("odd/{bad}"), bad);
        std::fs::create_dir(scene.path(&format!("odd/{bad}.d"))).expect("made");
    }
    let mut stage = Stage::new(&scene, "list = true");
    let page = stage.get("/odd/");
    let links = page.text().split("href=\"./").skip(1).map(|rest| rest.split_once('"').expect("a link").0);
    let links: Vec<String> = links.map(str::to_owned).collect();
    let mut opened = Vec::new();
    for link in &links {
        let answer = stage.get(&format!("/odd/{link}"));
        assert_eq!(answer.status, 200, "{link}");
        opened.push(answer.text().to_owned());
    }
    good.sort_unstable();
    opened.sort_unstable();
    assert_eq!(opened, good);
    let json: serde_json::Value = serde_json::from_slice(&stage.get("/odd/?json").body).expect("JSON");
    assert_eq!(json["entries"].as_array().map(Vec::len), Some(good.len()));
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    let scene = Scene::new("bounded");
    std::fs::create_dir(scene.path("many")).expect("made");
    for number in 0..10_001 {
        std::fs::write(scene.path(&format!("many/{number}")), "").expect("written");
    }
    let mut stage = Stage::new(&scene, "list = true");
    let answer = stage.get("/many/?json");
    let value: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(value["truncated"], true);
    assert_eq!(value["entries"].as_array().map(Vec::len), Some(10_000));
    assert!(stage.get("/many/").text().contains("only 10000 are shown"));
}

#[test]
fn those_who_list_the_same_folder_share_one_job() {
    let scene = Scene::new("share-list");
    scene.write("a", "a");
    let mut stage = Stage::new(&scene, "list = true");
    stage.get("/");
    let jobs = stage.jobs();
    for slot in 0..5 {
        assert!(stage.call("GET / HTTP/1.1\r\nHost: a\r\n", slot).is_none());
    }
    stage.run_jobs();
    assert_eq!((stage.jobs() - jobs, stage.answers().len()), (1, 5));
}

#[test]
fn those_who_want_the_same_cold_file_share_one_job() {
    let scene = Scene::new("share-find");
    scene.write("a.txt", "aaaa");
    let mut stage = Stage::new(&scene, "");
    stage.get("/b.txt");
    let jobs = stage.jobs();
    for slot in 0..5 {
        assert!(
            stage.call("GET /a.txt HTTP/1.1\r\nHost: a\r\n", slot).is_none(),
            "its siblings are not in memory"
        );
    }
    stage.run_jobs();
    let answers = stage.answers();
    assert_eq!((stage.jobs() - jobs, answers.len()), (1, 5));
    assert!(answers.into_iter().all(|(_, reply)| answer(reply).text() == "aaaa"));
}

#[test]
fn listing_can_be_set_by_path() {
    let scene = Scene::new("list-path");
    scene.write("open/x", "x");
    scene.write("closed/x", "x");
    let mut stage = Stage::new(&scene, "paths = [{ pattern = \"/open/**\", list = true }]");
    assert_eq!((stage.get("/open/").status, stage.get("/closed/").status), (200, 404));
    let mut stage = Stage::new(&scene, "list = true\npaths = [{ pattern = \"/closed/**\", list = false }]");
    assert_eq!((stage.get("/open/").status, stage.get("/closed/").status), (200, 404));
}

#[test]
fn a_busy_pool_is_said_to_be_busy() {
    let scene = Scene::new("busy");
    scene.write("a", "a");
    let mut stage = Stage::new(&scene, "list = true");
    assert!(stage.call("GET / HTTP/1.1\r\nHost: a\r\n", 0).is_none());
    stage.refuse_jobs();
    let (_, reply) = stage.answers().remove(0);
    assert_eq!((reply.status, reply.fields.value("Retry-After")), (503, Some(&b"1"[..])));
}

#[test]
fn rules_decide_about_fields_types_and_refusals() {
    let scene = Scene::new("rules");
    for name in ["assets/a.css", "page.html", "data.json", "raw/x.html", "get/x.pdf", "private/x"] {
        scene.write(name, "x");
    }
    let mut stage = Stage::new(
        &scene,
        r#"
        cache = [{ pattern = "/assets/**", cache_control = "public, max-age=31536000, immutable" }]
        headers = [
            { pattern = "/**", set = { "Referrer-Policy" = "no-referrer" } },
            { pattern = "/raw/**", set = { "Referrer-Policy" = "", "X-Content-Type-Options" = "" } },
        ]
        paths = [
            { pattern = "/raw/**", content_type = "text/plain" },
            { pattern = "/get/**", download = true },
            { pattern = "/private/**", status = 403 },
        ]
        "#,
    );
    let css = stage.get("/assets/a.css");
    assert_eq!(css.value("Cache-Control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(css.value("Referrer-Policy"), Some("no-referrer"));
    let raw = stage.get("/raw/x.html");
    assert_eq!((raw.value("Content-Type"), raw.value("Referrer-Policy")), (Some("text/plain"), None));
    assert_eq!(raw.value("X-Content-Type-Options"), None);
    assert_eq!(stage.get("/get/x.pdf").value("Content-Disposition"), Some("attachment"));
    let refused = stage.get("/private/x");
    assert_eq!((refused.status, refused.value("Referrer-Policy")), (403, Some("no-referrer")));
}

#[test]
fn header_rules_apply_to_every_error() {
    let scene = Scene::new("rules-errors");
    scene.write("raw/x.html", "x");
    let mut stage = Stage::new(
        &scene,
        r#"
        headers = [{ pattern = "/raw/**", set = { "Referrer-Policy" = "same-origin", "X-Content-Type-Options" = "" } }]
        paths = [{ pattern = "/raw/private", status = 403 }]
        "#,
    );
    for (status, request) in [
        (403, "GET /raw/private HTTP/1.1\r\nHost: a\r\n"),
        (404, "GET /raw/none HTTP/1.1\r\nHost: a\r\n"),
        (404, "GET /raw/.hidden HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n"),
        (405, "POST /raw/x.html HTTP/1.1\r\nHost: a\r\n"),
        (412, "GET /raw/x.html HTTP/1.1\r\nHost: a\r\nIf-Match: \"other\"\r\n"),
        (416, "GET /raw/x.html HTTP/1.1\r\nHost: a\r\nRange: bytes=9-\r\n"),
    ] {
        let answer = stage.ask(request);
        assert_eq!(
            (answer.status, answer.value("Referrer-Policy")),
            (status, Some("same-origin")),
            "{request}"
        );
        assert_eq!(answer.value("X-Content-Type-Options"), None, "{request}");
    }
    let other = stage.get("/none");
    assert_eq!((other.status, other.value("X-Content-Type-Options")), (404, Some("nosniff")));
}

#[test]
fn every_error_names_the_rule_that_decided() {
    let scene = Scene::new("rules-named");
    scene.write("a.txt", "a");
    scene.write("folder/b.txt", "b");
    let has_link = link("/etc/passwd", scene.path("out"));
    let settings = r#"paths = [{ pattern = "/gone", status = 410 }, { pattern = "/private", status = 403 }]"#;
    let mut stage = Stage::new(&scene, settings);
    let long = format!("/{}", "x/".repeat(3_000));
    for (method, path, status, rule) in [
        ("GET", "/none", 404, "not_found"),
        ("GET", "/.git/config", 404, "hidden_name"),
        ("GET", "/folder/", 404, "no_index_and_no_listing"),
        (
            "GET",
            "/out",
            if has_link { 403 } else { 404 },
            if has_link { "permissions_or_symlinks" } else { "not_found" },
        ),
        ("GET", "/gone", 410, "path_rule"),
        ("GET", "/private", 403, "path_rule"),
        ("GET", &long, 404, "path_too_long"),
        ("GET", "/../x", 400, "above_root"),
        ("GET", "/a%2Fb", 400, "escaped_slash"),
        ("GET", "/a%zz", 400, "bad_escape"),
        ("POST", "/a.txt", 405, "method_of_file"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n");
        // The first request may need the pool; the result of the look-up is then cached.
        let answer = stage.ask(&request);
        assert_eq!(answer.status, status, "{path}");
        let reply = stage.call(&request, 0).expect("cached");
        assert_eq!(reply.reason(), Some(rule), "{path}");
        if status == 400 {
            assert_eq!(answer.text(), format!("400 Bad Request\n{rule}\n"));
        }
    }
}

#[test]
fn redirects_keep_the_query_and_cannot_be_split() {
    let scene = Scene::new("redirect");
    let settings = r#"redirects = [
        { from = "/old/*", to = "/new/$1", status = 308 },
        { from = "/q/*", to = "https://example.org/?page=$1", status = 302 },
    ]"#;
    let mut stage = Stage::new(&scene, settings);
    let answer = stage.get("/old/a%20b?x=1");
    assert_eq!((answer.status, answer.value("Location")), (308, Some("/new/a%20b?x=1")));
    let answer = stage.get("/q/a?x=1");
    assert_eq!((answer.status, answer.value("Location")), (302, Some("https://example.org/?page=a")));
    let answer = stage.get("/old/x%0d%0aSet-Cookie:%20a=b");
    assert_eq!((answer.status, answer.value("Location"), answer.value("Set-Cookie")), (400, None, None));
    let answer = stage.get("/old/x?%0d%0aSet-Cookie:%20a=b");
    assert_eq!(answer.value("Location"), Some("/new/x?%0d%0aSet-Cookie:%20a=b"), "escaped it is harmless");
}

#[test]
fn aliases_lead_to_other_folders_and_files() {
    let scene = Scene::new("alias");
    scene.write("docs/index.html", "shadowed");
    std::fs::create_dir_all(scene.0.join("elsewhere/deep")).expect("made");
    std::fs::write(scene.0.join("elsewhere/index.html"), "docs").expect("written");
    std::fs::write(scene.0.join("elsewhere/deep/x.txt"), "deep").expect("written");
    std::fs::write(scene.0.join("icon.ico"), "icon").expect("written");
    std::fs::write(scene.0.join("secret"), "secret").expect("written");
    let elsewhere = scene.0.join("elsewhere");
    let settings = format!(
        "aliases = [{{ path = \"/docs\", to = {elsewhere:?} }}, {{ path = \"/favicon.ico\", to = {:?} }}]",
        scene.0.join("icon.ico")
    );
    let mut stage = Stage::new(&scene, &settings);
    assert_eq!(stage.get("/docs/").text(), "docs");
    assert_eq!(stage.get("/docs/deep/x.txt").text(), "deep");
    assert_eq!(stage.get("/docs?a").value("Location"), Some("/docs/?a"));
    assert_eq!(stage.get("/docs/deep").value("Location"), Some("/docs/deep/"));
    assert_eq!(stage.get("/favicon.ico").text(), "icon");
    assert_eq!(stage.get("/docs/../secret").status, 404);
    assert_eq!(stage.get("/favicon.ico/../secret").status, 404);
}

#[test]
fn each_host_has_its_site() {
    let scene = Scene::new("hosts");
    scene.write("one/index.html", "one");
    scene.write("two/index.html", "two");
    let site = |host: &str, root: &str| SiteSettings {
        host: vec![host.into()],
        root: scene.path(root),
        ..SiteSettings::default()
    };
    let site =
        Site::new(&[site("one.example", "one"), site("*.two.example", "two")], Vec::new()).expect("sites");
    let mut stage = Stage::of(&site);
    let mut get = |target: &str, host: &str| stage.ask(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n"));
    for _ in 0..2 {
        assert_eq!(get("/", "one.example").text(), "one");
        assert_eq!(get("/", "ONE.example:8080").text(), "one");
        assert_eq!(get("/", "a.two.example").text(), "two");
        assert_eq!(get("/", "other.example").status, 421);
        assert_eq!(get("/", "").status, 421);
        assert_eq!(get("http://a.two.example/", "one.example").text(), "two", "the target's authority wins");
    }
}

#[test]
fn a_server_without_sites_has_no_files() {
    let mut stage = Stage::of(&Site::new::<crate::NoRoute>(&[], Vec::new()).expect("no site is no error"));
    for path in ["/", "/Cargo.toml", "/src/lib.rs"] {
        assert_eq!(stage.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_root_that_cannot_be_read_is_an_error_that_names_it() {
    let missing = SiteSettings { root: "/no/such/folder".into(), ..SiteSettings::default() };
    let error = Site::new(&[missing], Vec::new()).err().expect("no such folder").to_string();
    assert!(error.starts_with("site 1: root: /no/such/folder"), "{error}");
    let twice = [SiteSettings::default(), SiteSettings::default()];
    let error = Site::new(&twice, Vec::new()).err().expect("two defaults").to_string();
    assert!(error.starts_with("site 2: host:"), "{error}");
}

#[test]
fn every_link_of_the_example_site_leads_somewhere_in_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site");
    let settings = SiteSettings { root, ..SiteSettings::default() };
    let mut stage = Stage::of(&Site::new(&[settings], Vec::new()).expect("a site"));
    let mut pages = vec!["/".to_owned(), "/404.html".to_owned()];
    let mut seen = 0;
    while let Some(path) = pages.get(seen).cloned() {
        seen += 1;
        let page = stage.get(&path);
        assert_eq!(page.status, 200, "{path}");
        if page.value("Content-Type") != Some("text/html; charset=utf-8") {
            continue;
        }
        let folder = &path[..=path.rfind('/').expect("a path begins with a slash")];
        for part in page.text().split([' ', '<']) {
            let link = part.strip_prefix("href=\"").or_else(|| part.strip_prefix("src=\""));
            let Some(link) = link.and_then(|link| link.split('"').next()) else { continue };
            assert!(!link.contains(':'), "{link} in {path} is not of this site");
            let mut target = String::new();
            let full = if link.starts_with('/') { link.to_owned() } else { format!("{folder}{link}") };
            encke_wire::target::decode_path(full.as_bytes(), &mut target).expect("a path");
            if !pages.contains(&target) {
                pages.push(target);
            }
        }
    }
    assert!(seen >= 7, "{pages:?}");
}
