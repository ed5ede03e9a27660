//! Files during transmission: large files to slow readers, and files that change meanwhile.

use encke_server::CloseReason;

use crate::rig::handlers::{PATTERN_BYTES_MAX, pattern};
use crate::rig::{End, Folder, Sites, Stand};

on_every_back_end! {
    a_large_file_arrives_whole_at_several_readers_at_once,
    a_file_that_shrinks_on_its_way_ends_in_a_reset,
    a_file_that_is_replaced_is_the_new_one_from_then_on,
    a_file_that_is_replaced_on_its_way_is_finished_as_it_began,
    a_part_of_a_large_file_is_that_part,
}

on_two_stands! {
    head_is_answered_like_get_without_the_content,
    a_method_that_a_file_does_not_have_is_405_with_those_it_has,
}

const LEN: usize = PATTERN_BYTES_MAX;

fn a_large_file_arrives_whole_at_several_readers_at_once(stand: Stand) {
    let content = pattern(LEN);
    let folder = Folder::new().with("large", content).with("small", "small");
    let rig = stand.serve_site(&folder);
    let mut readers = [rig.client(), rig.client(), rig.client()];
    for reader in &mut readers {
        reader.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(reader.head().field("Content-Length"), Some(LEN.to_string().as_str()));
    }
    // Readers alternate, so that each response waits for its reader repeatedly.
    let mut small = rig.client();
    let mut read = 0;
    while read < LEN {
        let piece = (1 << 20).min(LEN - read);
        for reader in &mut readers {
            assert!(reader.read_exact(piece) == content[read..read + piece], "at byte {read}");
        }
        read += piece;
        assert_eq!(small.get("/small").text(), "small", "others are served meanwhile");
    }
    for mut reader in readers {
        assert_eq!(reader.get("/small").text(), "small");
    }
}

fn a_file_that_shrinks_on_its_way_ends_in_a_reset(stand: Stand) {
    let folder = Folder::new().with("large", pattern(LEN)).with("small", "small");
    let rig = stand.serve_site(&folder);
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    folder.shrink("large", 1_000_000);
    let (rest, end) = client.rest();
    // The client must be able to detect that the content is incomplete.
    assert_eq!(end, End::Reset);
    assert!(rest.len() < LEN);
    rig.wait_for_closes(CloseReason::FileShrunk, 1);
    assert_eq!(rig.client().get("/small").text(), "small", "the worker lives");
    assert_eq!(rig.client().get("/large").body.len(), 1_000_000, "and knows the file as it is now");
}

fn a_file_that_is_replaced_is_the_new_one_from_then_on(stand: Stand) {
    let folder = Folder::new().with("file", "old");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for round in 0..100 {
        let before = client.get("/file");
        let content = match round % 3 {
            0 => format!("new {round}"),
            1 => "large".repeat(10_000),
            _ => String::new(),
        };
        folder.replace("file", &content);
        // A turn that had already begun may serve the request before the notification; the next turn has it.
        let mut after = client.get("/file");
        if after.text() != content {
            after = client.get("/file");
        }
        assert!(after.text() == content, "round {round}: the file as it was before");
        assert_ne!(before.field("ETag"), after.field("ETag"));
    }
}

fn a_file_that_is_replaced_on_its_way_is_finished_as_it_began(stand: Stand) {
    let content = pattern(16 << 20);
    let folder = Folder::new().with("large", content);
    let rig = stand.serve_site(&folder);
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    folder.replace("large", "another");
    assert!(client.read_exact(content.len()) == content);
    rig.wait(|| client.get("/large").text() == "another", "the new content is served");
}

fn a_part_of_a_large_file_is_that_part(stand: Stand) {
    let content = pattern(LEN);
    let folder = Folder::new().with("large", content);
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for (first, last) in [(0, 0), (1, 1_000_000), (LEN - 1, LEN - 1), (12_345_678, 45_678_901)] {
        let request = format!("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{last}\r\n\r\n");
        let answer = client.ask(request);
        assert_eq!(answer.status, 206);
        assert!(answer.body == content[first..=last], "bytes {first} to {last}");
    }
}

fn head_is_answered_like_get_without_the_content(stand: Stand) {
    let folder = Folder::new().with("index.html", "<p>hello").with("large", vec![b'x'; 100_000]);
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for path in ["/", "/large", "/absent"] {
        let get = client.get(path);
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let head = client.answer_to_head();
        assert_eq!(head.status, get.status, "{path}");
        for (name, value) in get.fields.iter().filter(|(name, _)| name != "Date") {
            assert_eq!(head.field(name), Some(value.as_str()), "{path}");
        }
    }
    // No byte of the content remains on the connection.
    assert_eq!(client.get("/").text(), "<p>hello");
}

fn a_method_that_a_file_does_not_have_is_405_with_those_it_has(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let answer = client.ask(format!("{method} /file HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(answer.status, 405, "{method}");
        let allow = answer.field("Allow").expect("a 405 says what is allowed");
        assert!(allow.contains("GET") && allow.contains("HEAD") && !allow.contains(method), "{allow}");
    }
}
