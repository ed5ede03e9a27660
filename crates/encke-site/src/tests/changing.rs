//! Files that change: the cache must follow.

use super::*;
use std::io::Write;

#[test]
fn a_file_written_anew_is_served_anew() {
    let scene = Scene::new("written");
    scene.write("a.txt", "one");
    let mut stage = Stage::new(&scene, "");
    let before = stage.get("/a.txt");
    std::fs::write(scene.path("a.txt"), "two!").expect("written");
    let after = stage.get("/a.txt");
    assert_eq!(after.text(), "two!");
    assert_ne!(after.etag(), before.etag());
}

#[test]
fn what_told_one_site_of_changes_tells_the_next_of_its_own() {
    let scene = Scene::new("handed-on");
    scene.write("a.txt", "one");
    let site = site(&scene, "");
    let mut stage = Stage::of(&site);
    for text in ["two", "three", "four"] {
        assert_eq!(stage.get("/a.txt").status, 200);
        // The next handler opens before the one before it ends, as in a reload.
        stage.reopen(|context, worker| site.open(context, worker));
        assert_eq!(stage.get("/a.txt").status, 200);
        scene.write("a.txt", text);
        assert_eq!(stage.get("/a.txt").text(), text);
    }
}

#[test]
fn a_file_replaced_by_rename_is_served_anew() {
    let scene = Scene::new("renamed");
    scene.write("a.txt", "one");
    scene.write("next.txt", "two");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a.txt").text(), "one");
    std::fs::rename(scene.path("next.txt"), scene.path("a.txt")).expect("renamed");
    assert_eq!(stage.get("/a.txt").text(), "two");
}

#[test]
fn a_file_that_grows_or_shrinks_is_served_as_it_is() {
    let scene = Scene::new("grows");
    scene.write("a.log", "one\n");
    scene.write("b.bin", vec![1; 50_000]);
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a.log").text(), "one\n");
    assert_eq!(stage.get("/b.bin").body.len(), 50_000);
    let mut log = std::fs::File::options().append(true).open(scene.path("a.log")).expect("opened");
    log.write_all(b"two\n").expect("written");
    assert_eq!(stage.get("/a.log").text(), "one\ntwo\n");
    let file = std::fs::File::options().write(true).open(scene.path("b.bin")).expect("opened");
    file.set_len(20_000).expect("cut");
    assert_eq!(stage.get("/b.bin").body.len(), 20_000);
    file.set_len(0).expect("cut");
    assert_eq!(stage.get("/b.bin").body.len(), 0);
}

#[test]
fn a_removed_file_is_gone_and_a_new_one_is_there() {
    let scene = Scene::new("removed");
    scene.write("a.txt", "one");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a.txt").status, 200);
    assert_eq!(stage.get("/new/b.txt").status, 404);
    std::fs::remove_file(scene.path("a.txt")).expect("removed");
    assert_eq!(stage.get("/a.txt").status, 404);
    scene.write("a.txt", "again");
    assert_eq!(stage.get("/a.txt").text(), "again");
    scene.write("new/b.txt", "new");
    assert_eq!(stage.get("/new/b.txt").text(), "new", "that it was missing is not kept");
}

#[test]
fn a_renamed_folder_takes_everything_below_along() {
    let scene = Scene::new("folder");
    scene.write("a/b/c/x.txt", "x");
    scene.write("a/b/y.txt", "y");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a/b/c/x.txt").text(), "x");
    assert_eq!(stage.get("/a/b/y.txt").text(), "y");
    std::fs::rename(scene.path("a"), scene.path("moved")).expect("renamed");
    assert_eq!((stage.get("/a/b/c/x.txt").status, stage.get("/a/b/y.txt").status), (404, 404));
    assert_eq!(stage.get("/moved/b/c/x.txt").text(), "x");
    scene.write("a/b/c/x.txt", "another");
    assert_eq!(stage.get("/a/b/c/x.txt").text(), "another");
    std::fs::write(scene.path("moved/b/c/x.txt"), "changed").expect("written");
    assert_eq!(stage.get("/moved/b/c/x.txt").text(), "changed");
    std::fs::remove_dir_all(scene.path("a")).expect("removed");
    assert_eq!(stage.get("/a/b/c/x.txt").status, 404);
}

#[test]
fn an_index_file_that_comes_or_goes_is_noticed() {
    let scene = Scene::new("index-comes");
    scene.write("a/index.htm", "htm");
    let mut stage = Stage::new(&scene, "index = [\"index.html\", \"index.htm\"]\nlist = true");
    assert_eq!(stage.get("/a/").text(), "htm");
    scene.write("a/index.html", "html");
    assert_eq!(stage.get("/a/").text(), "html");
    std::fs::remove_file(scene.path("a/index.html")).expect("removed");
    std::fs::remove_file(scene.path("a/index.htm")).expect("removed");
    assert!(stage.get("/a/").text().contains("<!doctype html>"), "listed");
}

#[test]
fn links_are_followed_anew_when_they_or_their_targets_change() {
    let scene = Scene::new("links-change");
    scene.write("releases/1/x.txt", "1");
    scene.write("releases/2/x.txt", "2");
    link("releases/1", scene.path("current"));
    link("current/x.txt", scene.path("latest.txt"));
    let mut stage = Stage::new(&scene, "");
    for path in ["/current/x.txt", "/latest.txt"] {
        assert_eq!(stage.get(path).text(), "1");
    }
    std::fs::write(scene.path("releases/1/x.txt"), "1b").expect("written");
    for path in ["/current/x.txt", "/latest.txt"] {
        assert_eq!(stage.get(path).text(), "1b", "{path}: the target has changed");
    }
    link("releases/2", scene.path("next"));
    std::fs::rename(scene.path("next"), scene.path("current")).expect("renamed");
    for path in ["/current/x.txt", "/latest.txt"] {
        assert_eq!(stage.get(path).text(), "2", "{path}: the link leads elsewhere");
    }
    std::fs::rename(scene.path("releases/2"), scene.path("releases/3")).expect("renamed");
    for path in ["/current/x.txt", "/latest.txt"] {
        assert_eq!(stage.get(path).status, 404, "{path}: the target has gone");
    }
}

#[test]
fn a_link_out_of_the_root_is_watched_where_it_leads() {
    let scene = Scene::new("outside");
    std::fs::create_dir(scene.0.join("elsewhere")).expect("made");
    std::fs::write(scene.0.join("elsewhere/x.txt"), "one").expect("written");
    link("../elsewhere/x.txt", scene.path("x.txt"));
    let mut stage = Stage::new(&scene, "symlinks = \"follow\"");
    assert_eq!(stage.get("/x.txt").text(), "one");
    std::fs::write(scene.0.join("elsewhere/x.txt"), "two").expect("written");
    assert_eq!(stage.get("/x.txt").text(), "two");
    std::fs::rename(scene.0.join("elsewhere"), scene.0.join("gone")).expect("renamed");
    assert_eq!(stage.get("/x.txt").status, 404);
}

#[test]
fn a_file_that_is_no_longer_readable_is_no_longer_served() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new("mode");
    scene.write("a.txt", "a");
    let mut stage = Stage::new(&scene, "");
    let before = stage.ready("/a.txt");
    std::fs::set_permissions(scene.path("a.txt"), std::fs::Permissions::from_mode(0o000)).expect("set");
    // Root may read everything; then the file must at least be looked up again.
    let may_read = std::fs::read(scene.path("a.txt")).is_ok();
    assert_eq!(stage.get("/a.txt").status, if may_read { 200 } else { 403 });
    assert_eq!(Arc::strong_count(&before), 1, "the shelf has let go of it");
}

#[test]
fn changes_elsewhere_take_nothing_off_the_shelf() {
    let scene = Scene::new("elsewhere");
    scene.write("a/x.txt", "x");
    let mut stage = Stage::new(&scene, "");
    stage.get("/a/x.txt");
    let before = stage.ready("/a/x.txt");
    scene.write("a/other.txt", "x");
    scene.write("b/x.txt", "x");
    std::fs::remove_file(scene.path("a/other.txt")).expect("removed");
    stage.handler().watched();
    assert!(Arc::ptr_eq(&before, &stage.ready("/a/x.txt")));
}

/// Gives a file a second name in an unwatched directory: a write through that name causes no notification.
fn unwatched_name(scene: &Scene, name: &str) -> PathBuf {
    let other = scene.0.join(format!("other-{name}"));
    std::fs::hard_link(scene.path(name), &other).expect("linked");
    other
}

#[test]
fn a_write_through_another_name_is_served_within_a_second() {
    let scene = Scene::new("another-name");
    scene.write("a.txt", "one");
    scene.write("index.html", "one");
    scene.write("b.css", "plain");
    scene.write("b.css.gz", "one");
    let gzip = "Accept-Encoding: gzip\r\n";
    let others = ["a.txt", "index.html", "b.css.gz"].map(|name| unwatched_name(&scene, name));
    let mut stage = Stage::new(&scene, "");
    let before = ["/a.txt", "/", "/b.css"].map(|path| stage.get_with(path, gzip));
    assert!(before.iter().all(|answer| answer.text() == "one"));
    others.iter().for_each(|other| std::fs::write(other, "two").expect("written"));
    stage.pass(Duration::from_secs(1));
    for (path, before) in ["/a.txt", "/", "/b.css"].into_iter().zip(&before) {
        let condition = format!("{gzip}If-None-Match: {}\r\n", before.etag());
        let after = stage.get_with(path, &condition);
        assert_eq!((after.status, after.text()), (200, "two"), "{path}");
        assert_ne!(after.etag(), before.etag());
    }
}

#[test]
fn the_tag_of_a_large_file_never_outlives_its_content() {
    let scene = Scene::new("large-name");
    for path in ["whole", "part", "if-match", "sibling"] {
        scene.write(&format!("{path}.txt"), vec![b'1'; 50_000]);
    }
    scene.write("sibling.txt.gz", vec![b'1'; 50_000]);
    let gzip = "Accept-Encoding: gzip\r\n";
    let mut stage = Stage::new(&scene, "compression = { on_the_fly = false }");
    for (path, lines, status) in [
        ("whole", "", 200),
        ("part", "Range: bytes=0-9\r\nIf-Range: ETAG\r\n", 200),
        ("if-match", "If-Match: ETAG\r\n", 412),
        ("sibling", gzip, 200),
    ] {
        let changed = format!("{path}.txt{}", if path == "sibling" { ".gz" } else { "" });
        let other = unwatched_name(&scene, &changed);
        stage.get_with(&format!("/{path}.txt"), gzip);
        let before = stage.get_with(&format!("/{path}.txt"), gzip);
        assert!(before.etag().starts_with('"') && before.body == [b'1'; 50_000], "{path}");
        std::fs::write(other, vec![b'2'; 50_000]).expect("written");
        // No time passes, and no notification arrives.
        let after = stage.get_with(&format!("/{path}.txt"), &lines.replace("ETAG", before.etag()));
        assert_eq!(after.status, status, "{path}");
        if status == 200 {
            assert!(after.etag() != before.etag() && after.body == [b'2'; 50_000], "{path}");
        }
    }
}

#[test]
fn a_check_of_an_unchanged_file_keeps_its_prepared_response() {
    let scene = Scene::new("checked");
    scene.write("a.txt", "one");
    scene.write("b.bin", vec![1; 50_000]);
    let mut stage = Stage::new(&scene, "");
    for path in ["/a.txt", "/b.bin"] {
        let before = stage.ready(path);
        for _ in 0..59 {
            stage.pass(Duration::from_secs(1));
            assert!(Arc::ptr_eq(&before, &stage.ready(path)), "{path}");
        }
    }
}

#[test]
fn the_time_between_checks_of_a_watched_file_is_a_setting() {
    let scene = Scene::new("checks-set");
    scene.write("a.txt", "one");
    let other = unwatched_name(&scene, "a.txt");
    let mut stage = Stage::new(&scene, "open_files = { revalidate = \"5s\" }");
    assert_eq!(stage.get("/a.txt").text(), "one");
    std::fs::write(other, "two").expect("written");
    stage.pass(Duration::from_millis(4_999));
    assert_eq!(stage.get("/a.txt").text(), "one");
    stage.pass(Duration::from_millis(1));
    assert_eq!(stage.get("/a.txt").text(), "two");
}

#[test]
fn a_file_system_that_tells_of_nothing_is_looked_at_by_the_pool_alone() {
    // procfs is not in the list of local file systems.
    let scene = Scene::new("far");
    let mut stage = Stage::new(&scene, "root = \"/proc/sys/kernel\"");
    assert_eq!(stage.get("/ostype").status, 200);
    assert_eq!(stage.jobs(), 1);
    assert_eq!(stage.get("/ostype").status, 200);
    assert_eq!(stage.jobs(), 1, "it is kept for a second");
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.get("/ostype").status, 200);
    // Another look-up of the file, and a check of the root.
    assert_eq!(stage.jobs(), 3);
}

#[test]
fn lost_notices_take_everything_off_the_shelf() {
    let scene = Scene::new("overflow");
    scene.write("a.txt", "one");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a.txt").text(), "one");
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("inotify(7)");
    let queue: usize = queue.trim().parse().expect("a number");
    let (one, other) = (scene.path("x"), scene.path("y"));
    std::fs::write(&one, "").expect("written");
    for _ in 0..queue / 4 + 1 {
        // Two notifications for each rename.
        std::fs::rename(&one, &other).expect("renamed");
        std::fs::rename(&other, &one).expect("renamed");
    }
    std::fs::write(scene.path("a.txt"), "two").expect("written");
    assert_eq!(stage.get("/a.txt").text(), "two");
}

#[test]
fn a_root_that_was_replaced_is_noticed_within_a_second() {
    let scene = Scene::new("root");
    std::fs::create_dir_all(scene.0.join("v1")).expect("made");
    std::fs::create_dir_all(scene.0.join("v2")).expect("made");
    std::fs::write(scene.0.join("v1/a.txt"), "one").expect("written");
    std::fs::write(scene.0.join("v2/a.txt"), "two").expect("written");
    link("v1", scene.0.join("current"));
    let root = scene.0.join("current");
    let mut stage = Stage::new(&scene, &format!("root = {root:?}"));
    assert_eq!(stage.get("/a.txt").text(), "one");
    link("v2", scene.0.join("next"));
    std::fs::rename(scene.0.join("next"), &root).expect("renamed");
    stage.pass(Duration::from_secs(1));
    stage.get("/a.txt");
    assert_eq!(stage.get("/a.txt").text(), "two");
    std::fs::remove_file(&root).expect("removed");
    stage.pass(Duration::from_secs(1));
    stage.get("/a.txt");
    assert_eq!(stage.get("/a.txt").text(), "two", "while it is being replaced, the old one serves");
}

#[test]
fn a_root_that_was_renamed_is_noticed_at_once() {
    let scene = Scene::new("root-renamed");
    scene.write("a.txt", "one");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get("/a.txt").text(), "one");
    std::fs::rename(scene.path(""), scene.0.join("old")).expect("renamed");
    scene.write("a.txt", "two");
    stage.get("/a.txt");
    assert_eq!(stage.get("/a.txt").text(), "two");
    std::fs::remove_dir_all(scene.path("")).expect("removed");
    assert_eq!(stage.get("/a.txt").status, 404);
    scene.write("a.txt", "three");
    stage.pass(Duration::from_secs(1));
    stage.get("/a.txt");
    assert_eq!(stage.get("/a.txt").text(), "three");
}

#[test]
fn warm_requests_need_the_pool_for_nothing() {
    let scene = Scene::new("warm");
    scene.write("a.txt", "one");
    let mut stage = Stage::new(&scene, "");
    stage.get("/a.txt");
    let jobs = stage.jobs();
    for _ in 0..59 {
        stage.pass(Duration::from_secs(1));
        stage.get("/a.txt");
    }
    assert_eq!(stage.jobs(), jobs);
}
