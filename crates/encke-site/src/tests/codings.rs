//! Compressed siblings and compression on the fly.

use super::*;
use std::io::Read;

const BROWSER: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

fn text() -> Vec<u8> {
    "Comet Encke has the shortest period of all comets that we know. ".repeat(500).into_bytes()
}

fn gunzipped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip");
    plain
}

#[test]
fn a_sibling_is_sent_to_those_who_accept_it() {
    let scene = Scene::new("siblings");
    for (name, content) in
        [("a.css", "plain"), ("a.css.br", "BR"), ("a.css.zst", "ZSTD"), ("a.css.gz", "GZIP")]
    {
        scene.write(name, content);
    }
    let mut stage = Stage::new(&scene, "");
    for _ in 0..2 {
        for (accepts, coding, content) in [
            ("gzip, deflate, br, zstd", Some("br"), "BR"),
            ("gzip, zstd", Some("zstd"), "ZSTD"),
            ("gzip", Some("gzip"), "GZIP"),
            ("gzip;q=1, br;q=0.5", Some("gzip"), "GZIP"),
            ("br;q=0, *", Some("zstd"), "ZSTD"),
            ("deflate", None, "plain"),
            ("identity, gzip;q=0.1", None, "plain"),
            ("identity;q=0", None, "plain"),
        ] {
            let answer = stage.get_with("/a.css", &format!("Accept-Encoding: {accepts}\r\n"));
            assert_eq!((answer.text(), answer.value("Content-Encoding")), (content, coding), "{accepts}");
            assert_eq!(answer.value("Vary"), Some("Accept-Encoding"));
            assert_eq!(answer.value("Content-Type"), Some("text/css; charset=utf-8"));
            assert!(answer.prepared);
        }
        assert_eq!(stage.get("/a.css").value("Vary"), Some("Accept-Encoding"), "the plain one varies, too");
        let two = stage.get_with("/a.css", "Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n");
        assert_eq!(two.text(), "BR", "two lines are one list");
    }
    assert!(stage.jobs() <= COLD_JOBS, "whoever has siblings has chosen: {}", stage.jobs());
    let by_name = stage.get_with("/a.css.gz", BROWSER);
    assert_eq!(by_name.value("Content-Type"), Some("application/gzip"));
    assert_eq!(by_name.value("Content-Encoding"), None);
}

#[test]
fn each_coding_has_its_own_tag_and_ranges() {
    let scene = Scene::new("tags");
    scene.write("a.css", "plain plain plain");
    scene.write("a.css.gz", "GZIPPED");
    let mut stage = Stage::new(&scene, "");
    let plain = stage.get("/a.css");
    let coded = stage.get_with("/a.css", BROWSER);
    assert_ne!(plain.etag(), coded.etag());
    assert!(coded.etag().ends_with("-gz\""), "{}", coded.etag());
    for (etag, accepts, status) in [
        (plain.etag(), "", 304),
        (coded.etag(), BROWSER, 304),
        (plain.etag(), BROWSER, 200),
        (coded.etag(), "", 200),
    ] {
        let answer = stage.get_with("/a.css", &format!("{accepts}If-None-Match: {etag}\r\n"));
        assert_eq!(answer.status, status, "{etag} {accepts}");
        assert_eq!(answer.value("Vary"), Some("Accept-Encoding"), "also with 304");
    }
    let part =
        stage.get_with("/a.css", &format!("{BROWSER}Range: bytes=0-3\r\nIf-Range: {}\r\n", coded.etag()));
    assert_eq!((part.status, part.text()), (206, "GZIP"));
    assert_eq!(part.value("Content-Encoding"), Some("gzip"));
    assert_eq!(part.value("Content-Range"), Some("bytes 0-3/7"));
    let mixed =
        stage.get_with("/a.css", &format!("{BROWSER}Range: bytes=0-3\r\nIf-Range: {}\r\n", plain.etag()));
    assert_eq!(
        (mixed.status, mixed.text()),
        (200, "GZIPPED"),
        "parts of two representations must not be mixed"
    );
}

#[test]
fn a_sibling_that_is_older_is_not_sent() {
    let scene = Scene::new("older");
    scene.write_aged("a.css", "new", Duration::from_secs(100));
    scene.write_aged("a.css.gz", "OLD", Duration::from_secs(200));
    scene.write("b.png", "png");
    scene.write("b.png.gz", "GZIP");
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get_with("/a.css", BROWSER).text(), "new");
    assert_eq!(stage.get_with("/b.png", BROWSER).text(), "png", "nobody compresses pictures");
    scene.write_aged("a.css.gz", "NEW", Duration::from_secs(50));
    stage.notice();
    assert_eq!(stage.get_with("/a.css", BROWSER).text(), "NEW", "that is noticed");
    std::fs::remove_file(scene.path("a.css.gz")).expect("removed");
    stage.notice();
    assert_eq!(stage.get_with("/a.css", BROWSER).text(), "new");
    let mut stage = Stage::new(&scene, "compression = { siblings = false }");
    scene.write_aged("a.css.gz", "NEW", Duration::from_secs(50));
    assert_eq!(stage.get_with("/a.css", BROWSER).text(), "new");
}

#[test]
fn a_sibling_whose_time_was_cut_to_seconds_is_not_older() {
    let scene = Scene::new("cut-times");
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let ns = Duration::from_nanos;
    for (name, file, sibling, sent) in [
        // brotli and tar cut times to seconds; Java cuts them to milliseconds, and other tools to microseconds.
        ("cut.css", ns(999_999_999), ns(0), "GZIP"),
        ("milli.css", ns(123_456_789), ns(123_000_000), "GZIP"),
        ("micro.css", ns(123_456_789), ns(123_456_000), "GZIP"),
        ("equal.css", ns(5), ns(5), "GZIP"),
        ("newer.css", ns(5), ns(1_000_000_000), "GZIP"),
        ("older.css", ns(1_000_000_000), ns(999_999_999), "plain"),
    ] {
        for (name, content, part) in
            [(name.to_owned(), "plain", file), (format!("{name}.gz"), "GZIP", sibling)]
        {
            scene.write(&name, content);
            let file = std::fs::File::options().write(true).open(scene.path(&name)).expect("opened");
            file.set_modified(second + part).expect("the time is set");
        }
        let mut stage = Stage::new(&scene, "");
        assert_eq!(stage.get_with(&format!("/{name}"), BROWSER).text(), sent, "{name}");
    }
}

#[test]
fn text_is_compressed_on_the_fly_from_the_second_request_on() {
    let scene = Scene::new("fly");
    scene.write("a.html", text());
    let mut stage = Stage::new(&scene, "");
    let gzip = "Accept-Encoding: gzip\r\n";
    stage.get("/a.html");
    let jobs = stage.jobs();
    let first = stage.get_with("/a.html", gzip);
    assert_eq!((first.value("Content-Encoding"), &first.body), (None, &text()));
    assert_eq!(first.value("Vary"), Some("Accept-Encoding"));
    assert_eq!(stage.jobs(), jobs + 1, "it is being compressed");
    let second = stage.get_with("/a.html", gzip);
    assert_eq!(second.value("Content-Encoding"), Some("gzip"));
    assert_eq!(second.value("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(second.value("Accept-Ranges"), None, "ranges are of the plain file");
    assert_eq!(gunzipped(&second.body), text());
    assert!(second.body.len() * 10 < first.body.len() && second.prepared);
    assert_eq!(second.etag(), format!("{}-gz\"", first.etag().trim_end_matches('"')));
    let again = stage.get_with("/a.html", &format!("{gzip}If-None-Match: {}\r\n", second.etag()));
    assert_eq!((again.status, again.value("Vary")), (304, Some("Accept-Encoding")));
    let part = stage.get_with("/a.html", &format!("{gzip}Range: bytes=0-4\r\n"));
    assert_eq!((part.status, part.text(), part.value("Content-Encoding")), (206, "Comet", None));
    assert_eq!(stage.get("/a.html").body, text());
    assert_eq!(stage.jobs(), jobs + 1);
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_goes_before_gzip_where_both_are_welcome() {
    let scene = Scene::new("zstd");
    scene.write("a.html", text());
    let mut stage = Stage::new(&scene, "");
    assert_eq!(stage.get_with("/a.html", BROWSER).value("Content-Encoding"), None);
    let second = stage.get_with("/a.html", BROWSER);
    assert_eq!(second.value("Content-Encoding"), Some("zstd"), "br is not made on the fly");
    assert_eq!(zstd::stream::decode_all(&second.body[..]).expect("zstd"), text());
    assert!(second.etag().ends_with("-zst\""));
}

#[test]
fn what_gains_nothing_is_not_compressed() {
    let scene = Scene::new("no-gain");
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    scene.write("noise.txt", noise.take(5_000).collect::<Vec<_>>());
    scene.write("small.txt", "small");
    scene.write("data.bin", text());
    scene.write("off/a.html", text());
    let settings = "paths = [{ pattern = \"/off/**\", compress = false }]";
    let mut stage = Stage::new(&scene, settings);
    let gzip = "Accept-Encoding: gzip\r\n";
    for path in ["/small.txt", "/data.bin", "/off/a.html", "/noise.txt"] {
        stage.get(path);
    }
    let jobs = stage.jobs();
    for path in ["/small.txt", "/data.bin", "/off/a.html"] {
        assert_eq!(stage.get_with(path, gzip).value("Vary"), None, "{path} never varies");
        assert_eq!(stage.get_with(path, gzip).value("Content-Encoding"), None, "{path}");
    }
    assert_eq!(stage.jobs(), jobs);
    for _ in 0..3 {
        assert_eq!(stage.get_with("/noise.txt", gzip).value("Content-Encoding"), None);
    }
    assert_eq!(stage.jobs(), jobs + 1, "it was tried once");
    let mut stage = Stage::new(&scene, "compression = { on_the_fly = false }");
    for _ in 0..3 {
        assert_eq!(stage.get_with("/noise.txt", gzip).value("Vary"), None);
    }
    assert!(stage.jobs() <= COLD_JOBS, "{}", stage.jobs());
}

#[test]
fn head_never_has_anything_compressed() {
    let scene = Scene::new("head-fly");
    scene.write("a.html", text());
    let mut stage = Stage::new(&scene, "");
    let head = "HEAD /a.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n";
    stage.get("/a.html");
    let jobs = stage.jobs();
    for _ in 0..3 {
        assert_eq!(stage.ask(head).value("Content-Encoding"), None);
    }
    assert_eq!(stage.jobs(), jobs);
    stage.get_with("/a.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(stage.ask(head).value("Content-Encoding"), Some("gzip"), "it says what GET would send now");
}

#[test]
fn a_changed_file_is_compressed_anew_and_an_unchanged_one_is_not() {
    let scene = Scene::new("anew");
    scene.write("a.html", text());
    let mut stage = Stage::new(&scene, "");
    let gzip = "Accept-Encoding: gzip\r\n";
    stage.get_with("/a.html", gzip);
    assert_eq!(stage.get_with("/a.html", gzip).value("Content-Encoding"), Some("gzip"));
    stage.pass(Duration::from_secs(61));
    assert_eq!(
        stage.get_with("/a.html", gzip).value("Content-Encoding"),
        Some("gzip"),
        "looked at, unchanged"
    );
    let jobs = stage.jobs();
    scene.write_aged("a.html", "x".repeat(20_000), Duration::from_secs(10));
    stage.notice();
    let changed = stage.get_with("/a.html", gzip);
    assert_eq!((changed.value("Content-Encoding"), changed.body.len()), (None, 20_000));
    let compressed = stage.get_with("/a.html", gzip);
    assert_eq!(gunzipped(&compressed.body), "x".repeat(20_000).into_bytes());
    assert!(stage.jobs() > jobs);
}

#[test]
fn a_file_that_may_still_change_is_not_compressed() {
    let scene = Scene::new("still");
    scene.write_aged("a.html", text(), Duration::ZERO);
    let mut stage = Stage::new(&scene, "");
    let gzip = "Accept-Encoding: gzip\r\n";
    stage.get_with("/a.html", gzip);
    let jobs = stage.jobs();
    assert_eq!((stage.get_with("/a.html", gzip).value("Content-Encoding"), stage.jobs()), (None, jobs));
    stage.pass(Duration::from_secs(3));
    stage.get_with("/a.html", gzip);
    assert_eq!(stage.get_with("/a.html", gzip).value("Content-Encoding"), Some("gzip"));
}

#[test]
fn memory_for_compressed_bytes_is_bounded() {
    let scene = Scene::new("made");
    let noise_text: String =
        (0..40_000u32).map(|number| char::from(b'a' + (number * number % 23) as u8)).collect();
    for number in 0..8 {
        scene.write(&format!("{number}.html"), format!("{number}{noise_text}"));
    }
    let mut stage = Stage::new(&scene, "compression = { memory = \"8KiB\" }");
    let gzip = "Accept-Encoding: gzip\r\n";
    let mut coded = 0;
    for number in 0..8 {
        stage.get_with(&format!("/{number}.html"), gzip);
    }
    for number in 0..8 {
        coded +=
            usize::from(stage.get_with(&format!("/{number}.html"), gzip).value("Content-Encoding").is_some());
        stage.lose_jobs();
    }
    assert!(coded < 8, "some of it was given up");
}
