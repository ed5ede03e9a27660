//! Conditions and ranges.

use super::*;
use encke_io::files::{Links, Patience, Root};
use std::io::Write as _;

const OLD: &str = "Sat, 01 Jan 2000 00:00:00 GMT";
const NEW: &str = "Sat, 01 Jan 2050 00:00:00 GMT";

fn scene(name: &str) -> (Scene, Vec<u8>) {
    let scene = Scene::new(name);
    let content: Vec<u8> = (0..100).flat_map(|number| format!("{number:09}\n").into_bytes()).collect();
    scene.write("file.txt", &content);
    (scene, content)
}

#[test]
fn a_client_that_has_the_file_is_told_so() {
    let (scene, content) = scene("unchanged");
    let mut stage = Stage::new(&scene, "headers = [{ pattern = \"/**\", set = { \"X-A\" = \"1\" } }]");
    let whole = stage.get("/file.txt");
    let etag = whole.etag().to_owned();
    for condition in [
        format!("If-None-Match: {etag}"),
        format!("If-None-Match: \"x\", W/{etag}"),
        format!("If-None-Match: \"x\"\r\nIf-None-Match: {etag}"),
        "If-None-Match: *".into(),
        format!("If-Modified-Since: {NEW}"),
        format!("If-Modified-Since: {}", whole.value("Last-Modified").expect("a date")),
        format!("If-None-Match: {etag}\r\nIf-Modified-Since: {OLD}"),
    ] {
        let answer = stage.get_with("/file.txt", &format!("{condition}\r\n"));
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{condition}");
        assert_eq!(answer.etag(), etag);
        assert_eq!(answer.value("Cache-Control"), Some("no-cache"));
        assert_eq!((answer.value("X-A"), answer.value("Content-Type")), (Some("1"), None));
        assert!(answer.prepared, "browsers ask this all the time");
    }
    for condition in [
        "If-None-Match: \"x\"".into(),
        format!("If-Modified-Since: {OLD}"),
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {NEW}"),
        "If-Match: *".into(),
        format!("If-Match: \"x\", {etag}"),
        format!("If-Unmodified-Since: {NEW}"),
    ] {
        let answer = stage.get_with("/file.txt", &format!("{condition}\r\n"));
        assert_eq!((answer.status, &answer.body), (200, &content), "{condition}");
    }
    for condition in
        ["If-Match: \"x\"".into(), format!("If-Match: W/{etag}"), format!("If-Unmodified-Since: {OLD}")]
    {
        assert_eq!(stage.get_with("/file.txt", &format!("{condition}\r\n")).status, 412, "{condition}");
    }
}

#[test]
fn a_part_of_a_file_is_sent_as_such() {
    let (scene, content) = scene("part");
    scene.write("large.bin", vec![7; 50_000]);
    let mut stage = Stage::new(&scene, "");
    for (range, start, end) in
        [("0-9", 0, 10), ("-10", 990, 1_000), ("990-", 990, 1_000), ("0-9999", 0, 1_000)]
    {
        let answer = stage.get_with("/file.txt", &format!("Range: bytes={range}\r\n"));
        assert_eq!((answer.status, &answer.body[..]), (206, &content[start..end]), "{range}");
        let expected = format!("bytes {start}-{}/1000", end - 1);
        assert_eq!(answer.value("Content-Range"), Some(expected.as_str()));
        assert_eq!(answer.value("Content-Type"), Some("text/plain; charset=utf-8"));
        assert!(answer.value("ETag").is_some() && answer.value("Last-Modified").is_some());
    }
    let answer = stage.get_with("/large.bin", "Range: bytes=49999-\r\n");
    assert_eq!((answer.status, answer.body), (206, vec![7]));
}

#[test]
fn several_parts_come_as_multipart() {
    let (scene, content) = scene("multipart");
    scene.write("large.bin", vec![7; 50_000]);
    let mut stage = Stage::new(&scene, "");
    let answer = stage.get_with("/file.txt", "Range: bytes=0-0, 999-999\r\n");
    assert_eq!((answer.status, answer.value("Content-Range")), (206, None));
    let content_type = answer.value("Content-Type").expect("a type");
    let boundary =
        content_type.strip_prefix("multipart/byteranges; boundary=").expect("multipart").to_owned();
    let expected = format!(
        "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 0-0/1000\r\n\r\n{}\
         \r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 999-999/1000\r\n\r\n{}\
         \r\n--{boundary}--\r\n",
        char::from(content[0]),
        char::from(content[999])
    );
    assert_eq!(answer.text(), expected);
    let again = stage.get_with("/file.txt", "Range: bytes=0-0, 999-999\r\n");
    assert_ne!(again.value("Content-Type"), Some(content_type), "each answer has its own boundary");
    let large = stage.get_with("/large.bin", "Range: bytes=0-9, 40000-40009\r\n");
    assert_eq!(large.body.iter().filter(|&&byte| byte == 7).count(), 20);
}

#[test]
fn ranges_that_do_not_count_get_the_whole_file() {
    let (scene, content) = scene("whole");
    let mut stage = Stage::new(&scene, "");
    let many: Vec<_> = (0..100).map(|number| format!("{number}-{number}")).collect();
    for range in
        ["items=0-9".into(), "bytes=abc".into(), "bytes=9-0".into(), format!("bytes={}", many.join(","))]
    {
        let answer = stage.get_with("/file.txt", &format!("Range: {range}\r\n"));
        assert_eq!((answer.status, &answer.body), (200, &content), "{range}");
    }
    let answer = stage.get_with("/file.txt", "Range: bytes=5000-\r\n");
    assert_eq!((answer.status, answer.value("Content-Range")), (416, Some("bytes */1000")));
}

#[test]
fn if_range_holds_only_for_what_is_there() {
    let (scene, content) = scene("if-range");
    let mut stage = Stage::new(&scene, "");
    let whole = stage.get("/file.txt");
    let modified = whole.value("Last-Modified").expect("a date");
    for (value, status) in
        [(whole.etag(), 206), (modified, 206), ("\"other\"", 200), (OLD, 200), (NEW, 200), ("", 200)]
    {
        let answer = stage.get_with("/file.txt", &format!("Range: bytes=0-9\r\nIf-Range: {value}\r\n"));
        assert_eq!(answer.status, status, "{value}");
        assert_eq!(answer.body.len(), if status == 206 { 10 } else { content.len() });
    }
    let precondition = format!("If-None-Match: {}\r\nRange: bytes=0-9\r\n", whole.etag());
    assert_eq!(stage.get_with("/file.txt", &precondition).status, 304, "conditions come before ranges");
}

#[test]
fn a_tag_is_weak_until_the_file_has_settled() {
    let scene = Scene::new("weak");
    scene.write_aged("a.txt", "aaaa", Duration::ZERO);
    let mut stage = Stage::new(&scene, "");
    let fresh = stage.get("/a.txt");
    assert!(fresh.etag().starts_with("W/\""), "{}", fresh.etag());
    let range = format!("Range: bytes=0-1\r\nIf-Range: {}\r\n", fresh.etag());
    assert_eq!(stage.get_with("/a.txt", &range).status, 200, "a weak tag does not vouch for bytes");
    stage.pass(Duration::from_millis(2_100));
    let settled = stage.get("/a.txt");
    assert_eq!(Some(settled.etag()), fresh.etag().strip_prefix("W/"));
    let range = format!("Range: bytes=0-1\r\nIf-Range: {}\r\n", settled.etag());
    assert_eq!(stage.get_with("/a.txt", &range).status, 206);
    let cached = format!("If-None-Match: {}\r\n", fresh.etag());
    assert_eq!(stage.get_with("/a.txt", &cached).status, 304, "it is still the same file");
}

#[test]
fn new_content_with_the_old_time_has_a_new_tag() {
    let scene = Scene::new("same-time");
    scene.write("a.css", "old!");
    scene.write("a.css.gz", "OLD!");
    let times = ["a.css", "a.css.gz"].map(|name| {
        let metadata = std::fs::metadata(scene.path(name)).expect("it is there");
        (name, metadata.modified().expect("a time"))
    });
    let mut stage = Stage::new(&scene, "");
    let accepted = ["", "Accept-Encoding: gzip\r\n"];
    let before = accepted.map(|lines| stage.get_with("/a.css", lines));
    // The kernel's clock for files has ticks: write the same file until its time of change differs.
    let root = Root::new(&scene.path("")).expect("it is there");
    let changed = |name: &str| {
        let file = root.open(name.as_bytes(), Links::Deny, Patience::Patient).expect("it is there");
        file.metadata.changed_ns
    };
    for (name, modified) in times {
        let start = changed(name);
        while changed(name) == start {
            let mut file = std::fs::File::options().write(true).open(scene.path(name)).expect("opened");
            file.write_all(b"new!").expect("written");
            file.set_modified(modified).expect("the time is set");
        }
    }
    stage.notice();
    for (before, lines) in before.iter().zip(accepted) {
        let condition = format!("{lines}If-None-Match: {}\r\n", before.etag());
        let after = stage.get_with("/a.css", &condition);
        assert_eq!((after.status, after.text()), (200, "new!"), "{lines:?}");
        assert_eq!(after.value("Last-Modified"), before.value("Last-Modified"));
        assert_ne!(after.etag(), before.etag());
    }
}

#[test]
fn a_file_from_the_future_has_no_date_and_no_strong_tag() {
    let scene = Scene::new("future");
    scene.write("a.txt", "a");
    let file = std::fs::File::options().write(true).open(scene.path("a.txt")).expect("opened");
    file.set_modified(SystemTime::now() + Duration::from_secs(3_600)).expect("set");
    let mut stage = Stage::new(&scene, "");
    let answer = stage.get("/a.txt");
    assert_eq!(answer.value("Last-Modified"), None);
    assert!(answer.etag().starts_with("W/"));
    stage.pass(Duration::from_secs(3_700));
    assert!(stage.get("/a.txt").value("Last-Modified").is_some());
}

/// Writes copies of the same files, as on two servers with a deployment that keeps times in whole seconds.
fn copies(name: &str, seconds: u64) -> [Scene; 2] {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    [("one", 0), ("two", 999_999_999)].map(|(node, part)| {
        let scene = Scene::new(&format!("{name}-{node}"));
        for (name, content) in
            [("a.css", "a".repeat(5_000)), ("b.css", "b".repeat(5_000)), ("a.css.gz", "GZ".into())]
        {
            scene.write(name, content);
            let file = std::fs::File::options().write(true).open(scene.path(name)).expect("opened");
            file.set_modified(modified + Duration::from_nanos(part)).expect("the time is set");
        }
        scene
    })
}

#[test]
fn copies_on_two_servers_have_equal_tags_where_that_is_set() {
    let scenes = copies("copies", 0x1234_5678);
    let [mut one, mut two] = [&scenes[0], &scenes[1]].map(|scene| Stage::new(scene, "etag = \"portable\""));
    assert_eq!(one.get("/a.css").etag(), "\"12345678-1388\"", "as nginx writes it");
    for lines in ["", "Accept-Encoding: gzip\r\n"] {
        let tag = one.get_with("/a.css", lines).etag().to_owned();
        assert_eq!(two.get_with("/a.css", lines).etag(), tag);
        assert_eq!(two.get_with("/a.css", &format!("{lines}If-None-Match: {tag}\r\n")).status, 304);
        let range = format!("{lines}Range: bytes=0-0\r\nIf-Range: {tag}\r\n");
        assert_eq!(two.get_with("/a.css", &range).status, 206, "a download goes on at another server");
    }
    assert_eq!(one.get_with("/a.css", "Accept-Encoding: gzip\r\n").etag(), "\"12345678-2-gz\"");
    let [mut one, mut two] = [&scenes[0], &scenes[1]].map(|scene| Stage::new(scene, ""));
    assert_ne!(
        one.get("/a.css").etag(),
        two.get("/a.css").etag(),
        "the default tells states of one disk apart"
    );
}

#[test]
fn files_with_equal_tags_are_compressed_separately() {
    let [scene, _] = copies("equal-tags", 0x1234_5678);
    std::fs::remove_file(scene.path("a.css.gz")).expect("removed");
    let mut stage = Stage::new(&scene, "etag = \"portable\"");
    let gzip = "Accept-Encoding: gzip\r\n";
    for path in ["/a.css", "/b.css"] {
        stage.get_with(path, gzip);
    }
    let [one, other] = ["/a.css", "/b.css"].map(|path| stage.get_with(path, gzip));
    assert_eq!(one.value("Content-Encoding"), Some("gzip"));
    assert_eq!(one.etag(), other.etag());
    assert_ne!(one.body, other.body);
}

#[test]
fn new_content_of_equal_length_and_time_replaces_compressed_bytes_of_the_old() {
    let [scene, _] = copies("replaced", 0x1234_5678);
    std::fs::remove_file(scene.path("a.css.gz")).expect("removed");
    let mut stage = Stage::new(&scene, "etag = \"portable\"");
    let gzip = "Accept-Encoding: gzip\r\n";
    stage.get_with("/a.css", gzip);
    let before = stage.get_with("/a.css", gzip);
    std::fs::rename(scene.path("b.css"), scene.path("a.css")).expect("renamed");
    stage.notice();
    stage.get_with("/a.css", gzip);
    let after = stage.get_with("/a.css", gzip);
    assert_eq!((after.value("Content-Encoding"), after.etag()), (Some("gzip"), before.etag()));
    assert_ne!(after.body, before.body);
}

#[test]
fn files_with_the_time_of_reproducible_builds_keep_exact_tags() {
    for (seconds, is_equal) in [(0, false), (1, false), (2, true)] {
        let scenes = copies("no-time", seconds);
        let tags = [&scenes[0], &scenes[1]]
            .map(|scene| Stage::new(scene, "etag = \"portable\"").get("/a.css").etag().to_owned());
        assert_eq!(tags[0] == tags[1], is_equal, "{seconds}");
    }
}
