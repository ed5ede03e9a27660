//! The cost of a rate: a server with one worker and a response of 6 bytes, without a rule or with a rule that admits every request.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null rate_cost none 1000
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null rate_cost none 2000
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null rate_cost 1000000/s 1000
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null rate_cost 1000000/s 2000
//! ```
//! The difference of two runs, divided by the difference in requests, gives the instructions per request of server and client. The
//! client's part is the same in all runs. A third argument is the pattern of the rule.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use encke_rights::{RateRules, RateSettings};
use encke_server::{Exchange, Options, Outcome, Reply, Request, Server};

const REQUEST: &[u8] =
    b"GET /api/items HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: rate_cost\r\nAccept: */*\r\n\r\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [limit, count, rest @ ..] = &arguments[..] else {
        return Err("usage: rate_cost none|RATE COUNT [PATTERN]".into());
    };
    let hello = |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, "hello\n"));
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let mut server = server.listen("127.0.0.1:0".parse()?).mount("/", hello);
    if limit != "none" {
        let mut rule = RateSettings { limit: Some(limit.parse()?), ..RateSettings::default() };
        if let [pattern, ..] = rest {
            rule.pattern.clone_from(pattern);
        }
        if let Some(rates) = RateRules::new(&[rule], None)?.early() {
            server = server.guard(rates);
        }
    }
    let running = server.start()?;
    let mut client = TcpStream::connect(running.addresses()[0].to_string())?;
    client.set_nodelay(true)?;
    let mut response = [0; 4096];
    for _ in 0..count.parse::<u32>()? {
        client.write_all(REQUEST)?;
        let length = client.read(&mut response)?;
        if !response[..length].starts_with(b"HTTP/1.1 200 ") {
            return Err("the rate rejects a request".into());
        }
    }
    drop(client);
    running.stop();
    Ok(())
}
