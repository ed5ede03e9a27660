//! Every request, split everywhere: whole, byte by byte, and in two at each position, with each piece read separately. The
//! responses must be equal.

use crate::rig::handlers::{Echo, hello, mirror};
use crate::rig::{Answer, Cut, End, Folder, Stand, site};
use encke_settings::ByteSize;

on_every_stand! {
    requests_mean_the_same_however_they_are_cut,
    refusals_are_the_same_however_a_request_is_cut,
}

fn requests_mean_the_same_however_they_are_cut(stand: Stand) {
    let folder = Folder::new().with("file", "0123456789");
    let site = site(&folder);
    let rig = stand.serve(|server| {
        server.mount("/", hello).mount("/echo", Echo).mount("/mirror", mirror).mount("/file", site)
    });
    for (request, said) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", &["Hello\n"][..]),
        ("\r\n\r\nGET /mirror?x HTTP/1.1\r\nhost:a\r\nX:\t y \r\n\r\n", &["GET a /mirror"]),
        ("GET http://b/mirror HTTP/1.1\r\nHost: a\r\n\r\n", &["GET b /mirror"]),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &[""]),
        ("GET /file HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n", &["234"]),
        ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345", &["12345"]),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             2;x=y\r\n12\r\n3\r\n345\r\n0\r\nTrailer: z\r\n\r\n",
            &["12345"],
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nGET / H", &["Hello\n"]),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &["Hello\n"]),
        (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\
             GET /file HTTP/1.1\r\nHost: a\r\n\r\n",
            &["Hello\n", "ab", "0123456789"],
        ),
    ] {
        let mut client = rig.client();
        for cut in Cut::all(request.as_bytes()) {
            client.send_cut(&rig, request.as_bytes(), cut);
            let answers = client.answers(said.len());
            let bodies: Vec<&str> = answers.iter().map(Answer::text).collect();
            assert_eq!(bodies, said, "{cut:?} of {request:?}");
            assert!(answers.iter().all(|answer| answer.status < 300), "{cut:?} of {request:?}: {answers:?}");
        }
        client.finish();
        assert_eq!(client.end(), End::Finished);
    }
}

fn refusals_are_the_same_however_a_request_is_cut(stand: Stand) {
    let rig = stand
        .serve_by(|policy| policy.limits.head_bytes = ByteSize::of(256), |server| server.mount("/", Echo));
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(300));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400),
        (&large, 431),
    ] {
        for cut in Cut::all(request.as_bytes()) {
            let mut client = rig.client();
            client.send_cut(&rig, request.as_bytes(), cut);
            let answer = client.answer();
            assert!(answer.status == status && answer.closes(), "{cut:?} of {request:?}: {answer:?}");
            client.finish();
            assert_eq!(client.end(), End::Finished, "{cut:?} of {request:?}");
        }
    }
}
