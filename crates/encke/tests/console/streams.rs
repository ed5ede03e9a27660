//! Live streams in the API of the console: the health of a source, its listeners and relays, and the actions that end them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::running::{Folder, Running, encke, patiently};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server on which all clients may send and receive.
struct Station {
    server: Running,
    admin: String,
    _folder: Folder,
}

/// A head of FLV with a configuration of H.264 (Adobe FLV 10.1, annex E), and a frame.
fn flv_head() -> Vec<u8> {
    let config = tag(b"\x17\0\0\0\0\x01\x42\0\x1e\xff\xe1\0\0\x01\0\0", 0);
    [&b"FLV\x01\x01\0\0\0\x09\0\0\0\0"[..], &config].concat()
}

fn frame(number: u32) -> Vec<u8> {
    let kind: &[u8] = if number.is_multiple_of(10) { b"\x17\x01\0\0\0" } else { b"\x27\x01\0\0\0" };
    tag(&[kind, &[7; 2_000]].concat(), number * 100)
}

fn tag(content: &[u8], time_ms: u32) -> Vec<u8> {
    let size = u32::try_from(content.len()).expect("a small tag");
    let (size3, time) = (&size.to_be_bytes()[1..], time_ms.to_be_bytes());
    [&b"\x09"[..], size3, &time[1..], &time[..1], &[0; 3], content, &(11 + size).to_be_bytes()].concat()
}

impl Station {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        let settings = format!(
            "[server]\nadmin = {{ address = \"127.0.0.1:0\", token = \"{TOKEN}\" }}\n[auth]\nanonymous = [\"publish\", \
             \"subscribe\"]\n[log]\naccess = \"off\"\n[[site]]\nroot = \"public\"\n[[live.channel]]\npattern = \"**\"\ngather = \"0s\"\n"
        );
        let path = folder.write("encke.toml", &settings);
        let mut command = encke();
        command.args(["serve", "-l", "127.0.0.1:0", "-w", "2", "-c", &path]);
        let server = Running::start_command(&mut command);
        let (_, rest) = server.admin.split_once("://").expect("a URL");
        let admin = rest.split('/').next().expect("an address").to_owned();
        Self { server, admin, _folder: folder }
    }

    /// Sends a request of the API. Returns status and body of the response.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.admin).expect("it listens");
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("JSON"))
    }

    fn act(&self, action: &str, value: &Value) -> (u16, Value) {
        self.ask("POST", &format!("/actions/{action}"), &value.to_string())
    }

    /// Watches a list until it has a state, as a page does.
    fn rows(&self, list: &str, is_expected: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let watch = format!("lists/{list}").replace('?', "%3F").replace('&', "%26").replace('=', "%3D");
        let mut stream = TcpStream::connect(&self.admin).expect("it listens");
        let request = format!(
            "GET /api/v1/live?watch={watch}&every=250 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("more to come"));
        patiently(self.server.child.id(), || {
            loop {
                let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
                let list: Value = serde_json::from_str(&data.expect("the page stays open")).expect("JSON");
                let rows = list["rows"].as_array().expect("rows");
                if is_expected(rows) {
                    return rows.clone();
                }
            }
        })
    }

    /// Opens a connection with a request.
    fn client(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.server.site).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    }

    /// Becomes the source of `film`, and sends two seconds and a frame of it.
    fn source(&self) -> TcpStream {
        let mut source = self.client(
            "PUT /live/film HTTP/1.1\r\nHost: localhost\r\nUser-Agent: camera/1\r\nIce-Name: Comets\r\nTransfer-Encoding: \
             chunked\r\n\r\n",
        );
        send(&mut source, &flv_head());
        (0..=20).for_each(|number| send(&mut source, &frame(number)));
        source
    }

    /// Waits until the server has two seconds of `film`. Returns its row.
    fn film(&self) -> Value {
        self.rows("live", |rows| rows.first().is_some_and(|row| row["key_interval_s"] == 1.0)).remove(0)
    }

    fn listener(&self, fields: &str) -> TcpStream {
        self.client(&format!("GET /live/film HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"))
    }
}

fn send(source: &mut TcpStream, bytes: &[u8]) {
    source.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()).expect("sent");
}

/// Reads until the end.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it ends well");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a line of the body of a response, after its head.
fn answer(stream: TcpStream) -> (String, String) {
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("text"));
    let status = lines.next().expect("a status");
    let body = lines.skip_while(|line| !line.is_empty()).nth(1);
    (status, body.expect("a body"))
}

#[test]
fn a_source_is_listed_with_its_health_and_ended_by_an_operator() {
    let station = Station::start("streams-source");
    let source = station.source();
    let row = station.film();
    let of = |keys: &[&str]| keys.iter().map(|key| row[*key].clone()).collect::<Vec<_>>();
    assert_eq!(
        of(&["stream", "channel", "state", "title", "container", "program"]),
        ["film", "live/film", "live", "Comets", "flv", "camera/1"].map(Value::from)
    );
    assert_eq!(of(&["gaps", "pauses", "listeners", "path"]), [json!(0), json!(0), json!(0), Value::Null]);
    assert!(row["source"].as_str().is_some_and(|source| source.starts_with("127.0.0.1")), "{row}");
    assert!(
        row["idle_s"].is_number() && row["longest_pause_s"].is_number() && row["node"].is_string(),
        "{row}"
    );
    assert!(row["codecs"].as_str().is_some_and(|codecs| codecs.starts_with("avc1.")), "{row}");

    for wrong in [json!({}), json!({ "stream": "" }), json!({ "stream": 5 })] {
        assert_eq!(station.act("live/end", &wrong).0, 422, "{wrong}");
    }
    for wrong in ["none", "no//stream"] {
        assert_eq!(station.act("live/end", &json!({ "stream": wrong })).0, 409, "{wrong:?}");
    }
    let (status, report) = station.act("live/end", &json!({ "stream": "film" }));
    assert_eq!((status, &report["affected"]), (200, &json!(1)), "{report}");
    let (status, text) = answer(source);
    assert_eq!((&*status, &*text), ("HTTP/1.1 403 Forbidden", "an operator has ended the source"));
    station.rows("live", |rows| {
        rows.first().is_some_and(|row| row["state"] == "lost" && row["source"].is_null())
    });
    assert_eq!(station.act("live/end", &json!({ "stream": "film" })).0, 409, "it has no source");
    let (_, audit) = station.ask("GET", "/audit", "");
    let changes = audit["entries"].as_array().expect("entries");
    let ended = changes.iter().filter(|entry| entry["act"] == "POST /api/v1/actions/live/end");
    assert_eq!(
        ended.filter(|entry| entry["result"] == 200 && entry["user"] == "token").count(),
        1,
        "{audit}"
    );
}

#[test]
fn listeners_are_listed_with_their_relays_and_ended_one_by_one() {
    let station = Station::start("streams-listeners");
    let _source = station.source();
    station.film();
    let relay = station.listener("Encke-Hops: c3, b2\r\n");
    let listener = station.listener("");
    let rows = station.rows("subscribers?channel=live/film&sort=-relay", |rows| rows.len() == 2);
    let of = |key: &str| [&rows[0][key], &rows[1][key]];
    assert_eq!(of("relay"), [&json!("c3, b2"), &Value::Null]);
    assert_eq!(of("skipped"), [&json!(0); 2]);
    station.rows("live", |rows| rows.first().is_some_and(|row| row["listeners"] == 2));
    let (status, report) = station.act("connections/close", &json!({ "id": rows[0]["id"] }));
    assert_eq!((status, &report["affected"]), (200, &json!(1)), "{report}");
    assert!(rest(relay).contains("Encke-Hops: "), "a relay learns the nodes before it");
    let left = station.rows("subscribers?channel=live/film", |rows| rows.len() == 1);
    assert_eq!(left[0]["relay"], Value::Null);
    assert_eq!(left[0]["id"], rows[1]["id"]);
    drop(listener);
}
