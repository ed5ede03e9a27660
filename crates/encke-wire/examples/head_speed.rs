//! The time of the head parser, compared with `httparse`: `cargo run --release -p encke-wire --example head_speed`.
//!
//! There are three requests: the shortest one of a load generator (35 bytes), `ab -k` (106), a browser (703). Each round times
//! both parsers in turn. The result is the shortest of 40 rounds, which is the least disturbed one on a shared machine. With
//! arguments (`… head_speed browser 1000`) the example only parses that request as many times, for `valgrind --tool=callgrind`,
//! whose counts do not depend on other processes. The difference between two runs, divided by the difference in requests, gives
//! the instructions per request:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null head_speed browser 1000
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null head_speed browser 2000
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use encke_wire::http1::{Head, HeadLimits, Progress};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => compare(),
        [name, count] => {
            let request = REQUESTS.iter().find(|(known, _)| known == name);
            let (Some((_, request)), Ok(count)) = (request, count.parse()) else { usage() };
            let mut head = Head::new();
            (0..count).for_each(|_| encke(&mut head, request));
        }
        _ => usage(),
    }
}

fn usage() -> ! {
    let names: Vec<_> = REQUESTS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: head_speed [{} COUNT]", names.join("|"));
    std::process::exit(2);
}

fn compare() {
    println!("{:>10} {:>6} {:>10} {:>12} {:>6}", "request", "bytes", "encke ns", "httparse ns", "ratio");
    let mut head = Head::new();
    for (name, request) in REQUESTS {
        let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            ours = ours.min(time(|| encke(&mut head, request)));
            theirs = theirs.min(time(|| httparse(request)));
        }
        let nanos = |time: Duration| time.as_nanos() as f64 / f64::from(PER_ROUND);
        let (ours, theirs) = (nanos(ours), nanos(theirs));
        println!("{name:>10} {:>6} {ours:>10.1} {theirs:>12.1} {:>6.2}", request.len(), ours / theirs);
    }
}

fn time(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..PER_ROUND {
        work();
    }
    start.elapsed()
}

fn encke(head: &mut Head, request: &[u8]) {
    head.reset();
    let progress = head.feed(black_box(request), &HeadLimits::default());
    assert_eq!(progress, Progress::Done { head_bytes: request.len() });
    black_box(head);
}

/// 32 fields: `httparse` needs a new array for each request.
fn httparse(request: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut fields);
    let status = parsed.parse(black_box(request)).expect("these are valid requests");
    assert_eq!(status, httparse::Status::Complete(request.len()));
    black_box(&parsed);
}

const ROUNDS: u32 = 40;
const PER_ROUND: u32 = 20_000;

const REQUESTS: [(&str, &[u8]); 4] = [
    ("shortest", b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"),
    (
        "ab",
        b"GET /index.html HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: localhost\r\nUser-Agent: ApacheBench/2.3\r\nA: */*\r\n\r\n",
    ),
    ("h2load", b"GET /hello.txt HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: h2load nghttp2/1.52.0\r\n\r\n"),
    (
        "browser",
        b"GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg HTTP/1.1\r\n\
Host: www.kittyhell.com\r\n\
User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) Gecko/20100401 Firefox/3.6.3 Pathtraq/0.9\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
Accept-Encoding: gzip,deflate\r\n\
Accept-Charset: Shift_JIS,utf-8;q=0.7,*;q=0.7\r\n\
Keep-Alive: 115\r\n\
Connection: keep-alive\r\n\
Cookie: wp_ozh_wsa_visits=2; wp_ozh_wsa_visit_lasttime=xxxxxxxxxx; __utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; __utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.livedoor.com|utmcct=/reader/|utmcmd=referral\r\n\r\n",
    ),
];
