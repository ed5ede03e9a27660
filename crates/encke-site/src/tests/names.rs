//! Paths that must not lead out of the root.

use super::*;

#[test]
fn no_spelling_leads_out_of_the_root() {
    let scene = Scene::new("escape");
    std::fs::write(scene.0.join("secret"), "SECRET").expect("written");
    scene.write("dir/inner.txt", "inner");
    scene.write("file.txt", "file");
    let mut stage = Stage::new(&scene, "list = true");
    for path in [
        "/../secret",
        "/dir/../../secret",
        "/..%2fsecret",
        "/%2e%2e/secret",
        "/.%2e/secret",
        "/%252e%252e/secret",
        "//../secret",
        "/..%5csecret",
        "/dir/..%5c..%5csecret",
        "/%c0%ae%c0%ae/secret",
        "/..;/secret",
        "//etc/passwd",
        "/../../../../../../etc/passwd",
        "/file.txt/../../secret",
        "/%00",
        "/file.txt%00.html",
        "/dir%2finner.txt",
        "/%2e%2e%2fsecret",
        "/dir/%2e%2e/%2e%2e/secret",
        "/....//secret",
        "/%",
        "/%zz",
        "/%0a",
        "/dir%5cinner.txt",
        "/./../secret",
        "/dir/./../../secret",
    ] {
        let answer = stage.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(!answer.text().contains("SECRET") && !answer.text().contains("root:"), "{path}");
    }
    assert_eq!(stage.get("/dir/%2e%2e/file.txt").text(), "file", "dots within the root are fine");
    assert_eq!(stage.get("//file.txt").text(), "file");
}

// Windows: no program without special rights can make links.
#[cfg(unix)]
#[test]
fn links_obey_the_policy() {
    let scene = Scene::new("links");
    std::fs::write(scene.0.join("secret"), "SECRET").expect("written");
    scene.write("dir/inner.txt", "inner");
    link("../secret", scene.path("out"));
    link(scene.0.join("secret"), scene.path("absolute"));
    link("dir/inner.txt", scene.path("in"));
    link("..", scene.path("up"));
    link("loop", scene.path("loop"));
    for (policy, inside, outside) in [("beneath", 200, 403), ("deny", 403, 403), ("follow", 200, 200)] {
        let mut stage = Stage::new(&scene, &format!("symlinks = \"{policy}\""));
        for _ in 0..2 {
            assert_eq!(stage.get("/in").status, inside, "{policy}");
            for path in ["/out", "/absolute", "/up/secret"] {
                assert_eq!(stage.get(path).status, outside, "{path} with {policy}");
            }
            assert_eq!(stage.get("/loop").status, 403, "{policy}");
        }
    }
}

#[test]
fn dotfiles_are_not_there() {
    let scene = Scene::new("dot");
    for name in [".env", ".git/config", "a/.htpasswd", ".well-known/acme", ".well-known/.secret"] {
        scene.write(name, "x");
    }
    let mut stage = Stage::new(&scene, "list = true");
    for path in
        ["/.env", "/%2eenv", "/.git/config", "/.git/", "/.git", "/a/.htpasswd", "/.well-known/.secret"]
    {
        assert_eq!(stage.get(path).status, 404, "{path}");
    }
    assert_eq!(stage.get("/.well-known/acme").status, 200);
    let mut stage = Stage::new(&scene, "hidden = true");
    assert_eq!(stage.get("/.env").status, 200);
}

// Windows: no program without special rights can make links.
#[cfg(unix)]
#[test]
fn names_in_the_requested_path_decide_what_is_hidden() {
    let scene = Scene::new("dot-link");
    scene.write(".notes", "notes");
    scene.write("dir/x", "x");
    link(".notes", scene.path("notes"));
    link("dir", scene.path(".dir"));
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/notes").text(), "notes");
    for hidden in ["/.notes", "/.dir/x"] {
        assert_eq!(stage.get(hidden).status, 404, "{hidden}");
    }
    assert_eq!(Stage::new(&scene, "symlinks = \"deny\"").get("/notes").status, 403);
}

#[test]
fn settings_state_and_logs_are_served_by_no_name() {
    let scene = Scene::new("forbidden");
    scene.write("encke.toml", "keys");
    scene.write("state/deep/db", "db");
    scene.write("ok.txt", "ok");
    scene.write("x.css", "x");
    std::fs::hard_link(scene.path("encke.toml"), scene.path("harmless.txt")).expect("linked");
    std::fs::hard_link(scene.path("encke.toml"), scene.path("x.css.gz")).expect("linked");
    link("encke.toml", scene.path("link.txt"));
    link("state/deep", scene.path("stately"));
    let ids = ["encke.toml", "state"].map(|name| encke_io::files::id_of(&scene.path(name)).expect("there"));
    let mut stage = Stage::forbidding(&scene, "list = true\nsymlinks = \"follow\"", ids.to_vec());
    let paths = [
        "/encke.toml",
        "/harmless.txt",
        "/link.txt",
        "/state/deep/db",
        "/state/",
        "/state/deep/",
        "/stately/db",
        "/stately/",
    ];
    for path in paths {
        for _ in 0..2 {
            assert_eq!(stage.get(path).status, 404, "{path}");
        }
    }
    assert_eq!(stage.get("/ok.txt").status, 200);
    let css = stage.get_with("/x.css", "Accept-Encoding: gzip\r\n");
    assert_eq!((css.text(), css.value("Content-Encoding")), ("x", None), "nor as a sibling");
    let listing = stage.get("/?json");
    for name in ["encke.toml", "harmless", "link.txt", "state", "css.gz"] {
        assert!(
            !listing.text().contains(name) || name == "state" && listing.text().contains("stately"),
            "{name}"
        );
    }
}

#[test]
fn a_file_that_replaces_a_forbidden_one_by_a_rename_is_not_served() {
    let scene = Scene::new("renamed");
    scene.write("conf/encke.toml", "keys");
    scene.write("conf/ok.txt", "ok");
    link("conf/encke.toml", scene.path("link.txt"));
    let settings = "list = true\nsymlinks = \"follow\"";
    let mut settings: SiteSettings = toml::from_str(settings).expect("valid settings");
    settings.root = scene.path("");
    let paths = vec![scene.path("conf/encke.toml"), scene.path("conf/later")];
    let site = Site::new(&[settings], Vec::new()).expect("a site").never_serving(paths);
    let mut stage = Stage::of(&site);
    for round in 0..3 {
        for path in ["/conf/encke.toml", "/link.txt", "/conf/later"] {
            assert_eq!(stage.get(path).status, 404, "{path} in round {round}");
        }
        assert_eq!(stage.get("/conf/ok.txt").status, 200);
        for folder in ["/?json", "/conf/?json"] {
            let listing = stage.get(folder);
            for name in ["encke.toml", "link.txt", "later"] {
                assert!(!listing.text().contains(name), "{name} in round {round}");
            }
        }
        for name in ["conf/encke.toml", "conf/later"] {
            scene.write("conf/new", format!("keys {round}"));
            std::fs::rename(scene.path("conf/new"), scene.path(name)).expect("renamed");
        }
    }
}

#[test]
fn copies_beside_a_forbidden_file_are_not_served() {
    let scene = Scene::new("copies");
    let copies = ["access.log.1", "access.log-20260131", "key.old.pem", "state.old/part"];
    for name in
        copies.into_iter().chain(["access.log", "key.pem", "state/part", "access.html", "other/access.log.1"])
    {
        scene.write(name, "secret");
    }
    let mut settings: SiteSettings = toml::from_str("list = true").expect("valid settings");
    settings.root = scene.path("");
    let paths = ["access.log", "key.pem", "state"].map(|name| scene.path(name)).to_vec();
    let site = Site::new(&[settings], Vec::new()).expect("a site").never_serving(paths);
    let mut stage = Stage::of(&site);
    for path in copies {
        assert_eq!(stage.get(&format!("/{path}")).status, 404, "{path}");
    }
    let listing = stage.get("/?json");
    let listing = listing.text();
    assert!(["access.log", "key", "state"].iter().all(|name| !listing.contains(name)), "{listing}");
    // Another file, and one that is in another directory.
    for path in ["/access.html", "/other/access.log.1"] {
        assert_eq!(stage.get(path).status, 200, "{path}");
    }
}

// Windows: links need a privilege.
#[cfg(unix)]
#[test]
fn a_link_to_a_file_with_a_hidden_name_is_not_served() {
    let scene = Scene::new("hidden-names");
    for name in ["index.php", "page.html", "lib/part.php"] {
        scene.write(name, "source");
    }
    for (target, link) in [("index.php", "readme.txt"), ("page.html", "start.txt"), ("lib", "open")] {
        std::os::unix::fs::symlink(target, scene.path(link)).expect("linked");
    }
    let settings = SiteSettings { root: scene.path(""), ..SiteSettings::default() };
    for (hidden, statuses) in [(true, [404, 404, 404, 200]), (false, [200; 4])] {
        let site = Site::new(std::slice::from_ref(&settings), Vec::new()).expect("a site");
        let mut stage = Stage::of(&site.hiding(&[hidden], |name| name.ends_with(".php")));
        for (path, status) in
            ["/readme.txt", "/index.php", "/open/part.php", "/start.txt"].iter().zip(statuses)
        {
            assert_eq!(stage.get(path).status, status, "{path}");
        }
    }
}

// Windows: pipes and sockets have no names in directories.
#[cfg(unix)]
#[test]
fn only_files_and_folders_are_served() {
    let scene = Scene::new("devices");
    let pipe = std::process::Command::new("mkfifo").arg(scene.path("pipe")).status().expect("mkfifo(1)");
    assert!(pipe.success());
    let _socket = std::os::unix::net::UnixListener::bind(scene.path("socket")).expect("bound");
    let mut stage = Stage::new(&scene, "list = true");
    assert_eq!(stage.get("/pipe").status, 404);
    assert!(matches!(stage.get("/socket").status, 403 | 404));
    let listing = stage.get("/?json");
    assert!(!listing.text().contains("pipe") && !listing.text().contains("socket"));
}

// Windows: files have no modes.
#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new("unreadable");
    scene.write("a.txt", "a");
    std::fs::set_permissions(scene.path("a.txt"), std::fs::Permissions::from_mode(0o000)).expect("set");
    let mut stage = Stage::new(&scene, "");
    // Root may read everything.
    let expected = if std::fs::read(scene.path("a.txt")).is_ok() { 200 } else { 403 };
    assert_eq!(stage.get("/a.txt").status, expected);
}

#[test]
fn names_longer_than_any_file_are_not_found() {
    let scene = Scene::new("long");
    let mut stage = Stage::new(&scene, "cache = [{ pattern = \"/**/*.css\", cache_control = \"x\" }]");
    for length in [255, 256, 4_000, 4_096, 5_000, 16_000] {
        assert_eq!(stage.get(&format!("/{}", "a".repeat(length))).status, 404, "{length}");
        assert_eq!(stage.get(&"/a".repeat(length / 2)).status, 404, "{length}");
    }
}
