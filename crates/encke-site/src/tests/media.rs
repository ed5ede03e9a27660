//! Media types and dates in responses.

use super::*;

const GZIP: &str = "Accept-Encoding: gzip\r\n";

#[test]
fn compressed_svg_has_its_coding_for_every_client() {
    let scene = Scene::new("svgz");
    let large: String = (0..9_000u32).map(|number| char::from(b' ' + (number * number % 64) as u8)).collect();
    scene.write("small.svgz", &large[..2_000]);
    scene.write("small.svgz.gz", "twice");
    scene.write("LARGE.SVGZ", &large);
    scene.write("a.svg", &large);
    let settings = "errors = { 404 = \"/small.svgz\" }\npaths = [{ pattern = \"/**\", compress = true }]";
    let mut stage = Stage::new(&scene, settings);
    for (path, len) in [("/small.svgz", 2_000), ("/LARGE.SVGZ", 9_000)] {
        for lines in ["", GZIP, "Accept-Encoding: identity\r\n"] {
            for _ in 0..2 {
                let answer = stage.get_with(path, lines);
                assert_eq!((answer.status, answer.body.len()), (200, len), "{path}: the file as it is");
                assert_eq!(answer.value("Content-Type"), Some("image/svg+xml"));
                assert_eq!(answer.value("Content-Encoding"), Some("gzip"));
                assert_eq!(answer.value("Vary"), None);
            }
        }
        let part = stage.get_with(path, "Range: bytes=0-9\r\n");
        assert_eq!((part.status, part.body.len(), part.value("Content-Encoding")), (206, 10, Some("gzip")));
    }
    let missing = stage.get("/missing");
    assert_eq!((missing.status, missing.value("Content-Encoding")), (404, Some("gzip")));
    stage.get_with("/a.svg", GZIP);
    assert_eq!(stage.get_with("/a.svg", GZIP).value("Vary"), Some("Accept-Encoding"));

    let retyped = "paths = [{ pattern = \"/small.svgz\", content_type = \"application/gzip\" }]";
    let answer = Stage::new(&scene, retyped).get("/small.svgz");
    assert_eq!(
        (answer.value("Content-Type"), answer.value("Content-Encoding")),
        (Some("application/gzip"), None)
    );
}

#[test]
fn fonts_and_json_and_xml_of_every_kind_are_compressed() {
    let scene = Scene::new("kinds");
    let text = "Comet Encke has the shortest period of all. ".repeat(100);
    let compressed = "a.otf b.ttf c.eot d.m3u8 e.geojson f.gltf g.kml h.wgsl i.webmanifest j.ipynb k.har l.ico m.ttc n.m3u o.cjs";
    let others = "a.woff2 b.mp4 c.zip d.bin";
    let mut stage = Stage::new(&scene, "");
    for (names, coding) in [(compressed, Some("gzip")), (others, None)] {
        for name in names.split(' ') {
            scene.write(name, &text);
            stage.get_with(&format!("/{name}"), GZIP);
            let answer = stage.get_with(&format!("/{name}"), GZIP);
            assert_eq!(answer.value("Content-Encoding"), coding, "{name}");
        }
    }
}

#[test]
fn a_time_that_reproducible_builds_give_to_every_file_is_not_sent() {
    let scene = Scene::new("epoch");
    for (seconds, is_sent) in [(0, false), (1, false), (2, true)] {
        scene.write("a.txt", "a");
        let file = std::fs::File::options().write(true).open(scene.path("a.txt")).expect("opened");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("set");
        let mut stage = Stage::new(&scene, "");
        let answer = stage.get("/a.txt");
        assert_eq!(answer.value("Last-Modified").is_some(), is_sent, "{seconds}");
        let date = "Thu, 01 Jan 1970 00:00:01 GMT";
        let status = |stage: &mut Stage, lines: &str| stage.get_with("/a.txt", lines).status;
        assert_eq!(status(&mut stage, &format!("If-Modified-Since: {date}\r\n")), 200);
        let range = format!("Range: bytes=0-0\r\nIf-Range: {date}\r\n");
        assert_eq!(status(&mut stage, &range), 200);
        let tag = format!("If-None-Match: {}\r\n", answer.etag());
        assert_eq!(status(&mut stage, &tag), 304);
    }
}
