//! Tests of the log's ways: from workers to the writer, and to tails.

use super::*;
use std::sync::mpsc;

use crate::request::{Asker, Origin};
use encke_io::testing::wait_until;
use encke_wire::http1::{Head, HeadLimits};

const NOW: Now = Now { mono_ns: 0, unix_ns: 1_795_296_363_000_000_000 };

fn settings(access: LogTarget) -> LogSettings {
    LogSettings { access, level: Level::Error, ..LogSettings::default() }
}

fn log_line(access: &mut Access, status: u16) {
    if let Some(mut entry) = access.begin_refused(Peer::Local, NOW) {
        entry.set_status(status);
        access.finish(entry, &LineEnd::default());
    }
}

fn expected(status: u16) -> String {
    format!("- - - [21/Nov/2026:21:26:03 +0000] \"-\" {status} 0 \"-\" \"-\"\n")
}

/// The results of a scripted writer's writes, and the channel that reports the written bytes.
struct Script {
    answers: mpsc::Receiver<io::Result<usize>>,
    wrote: mpsc::Sender<Vec<u8>>,
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.answers.recv() {
            Ok(Ok(most)) => {
                let taken = most.min(bytes.len());
                self.wrote.send(bytes[..taken].to_vec()).expect("the test listens");
                Ok(taken)
            }
            Ok(Err(error)) => Err(error),
            Err(_test_over) => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Answers = mpsc::Sender<io::Result<usize>>;

fn scripted(path: Option<PathBuf>) -> (AccessLog, Answers, mpsc::Receiver<Vec<u8>>) {
    let (answer, answers) = mpsc::channel();
    let (wrote, written) = mpsc::channel();
    let log = AccessLog::start(&settings(LogTarget::Off), &[]).expect("nothing to open");
    let control = &log.0;
    let output = Output::new(path, Box::new(Script { answers, wrote }));
    control.start_writer(&mut lock(&control.state)).expect("a thread");
    control.switch(LogOutput::MAIN, output);
    control.shared.mode.store(COMBINED, Ordering::Relaxed);
    (log, answer, written)
}

fn text(written: &mpsc::Receiver<Vec<u8>>) -> String {
    String::from_utf8(written.recv().expect("something is written")).expect("UTF-8")
}

const ALL: io::Result<usize> = Ok(usize::MAX);

#[test]
fn lines_of_several_workers_reach_the_file_whole() {
    let path = std::env::temp_dir().join(format!("encke-access-{}.log", std::process::id()));
    let log = AccessLog::start(&settings(LogTarget::File(path.clone())), &[]).expect("opened");
    thread::scope(|scope| {
        for worker in 0..3u16 {
            let mut access = log.access();
            scope.spawn(move || {
                for turn in 0..100 {
                    log_line(&mut access, 200 + worker);
                    if turn % 7 == 0 {
                        access.flush();
                    }
                }
            });
        }
    });
    let dropped = log.dropped();
    log.finish_within(Duration::from_secs(60));
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("it was made here");
    assert_eq!(dropped, 0);
    for worker in 0..3 {
        assert_eq!(text.lines().filter(|line| format!("{line}\n") == expected(200 + worker)).count(), 100);
    }
    assert_eq!(text.lines().count(), 300);
}

#[test]
fn a_log_that_is_off_makes_no_lines() {
    let log = AccessLog::start(&settings(LogTarget::Off), &[]).expect("nothing to open");
    for mut access in [log.access(), AccessLog::silent().access(), Access::default()] {
        assert!(access.begin_refused(Peer::Local, NOW).is_none());
        access.flush();
    }
    log.finish();
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let path = PathBuf::from("/nonexistent-folder/access.log");
    let error = AccessLog::start(&settings(LogTarget::File(path)), &[]).err().expect("no such folder");
    assert!(error.to_string().contains("/nonexistent-folder/access.log cannot be opened"), "{error}");
}

#[test]
fn a_moved_file_is_left_alone_after_reopening() {
    let folder = std::env::temp_dir().join(format!("encke-reopen-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
    let log = AccessLog::start(&settings(LogTarget::File(path.clone())), &[]).expect("opened");
    let mut access = log.access();
    log_line(&mut access, 200);
    access.flush();
    // The first line is written before the file is moved. The queue keeps its order, and the end is awaited below.
    wait_until("the first line is written", || !std::fs::read_to_string(&path).expect("there").is_empty());
    std::fs::rename(&path, &moved).expect("moved");
    log.reopen().expect("opened again");
    log_line(&mut access, 201);
    drop(access);
    log.finish_within(Duration::from_secs(60));
    assert_eq!(std::fs::read_to_string(&moved).expect("there"), expected(200));
    assert_eq!(std::fs::read_to_string(&path).expect("made again"), expected(201));
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

#[test]
fn a_reload_turns_the_log_on_to_another_place_and_off() {
    let folder = std::env::temp_dir().join(format!("encke-relog-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let (one, two) = (folder.join("one.log"), folder.join("two.log"));
    let log = AccessLog::start(&settings(LogTarget::Off), &[]).expect("nothing to open");
    let mut access = log.access();
    log.turn(log.prepare(&settings(LogTarget::File(one.clone())), &[]).expect("opened"));
    log_line(&mut access, 200);
    access.flush();
    let json = LogSettings { format: LogFormat::Json, ..settings(LogTarget::File(two.clone())) };
    log.turn(log.prepare(&json, &[]).expect("opened"));
    log_line(&mut access, 201);
    access.flush();
    let nowhere = settings(LogTarget::File("/nonexistent-folder/access.log".into()));
    assert!(log.prepare(&nowhere, &[]).is_err());
    log_line(&mut access, 202);
    access.flush();
    log.turn(log.prepare(&settings(LogTarget::Off), &[]).expect("nothing to open"));
    log_line(&mut access, 203);
    drop(access);
    log.finish_within(Duration::from_secs(60));
    let read = |path| std::fs::read_to_string(path).expect("written");
    let statuses: Vec<u64> = read(&two)
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON")["status"]
                .as_u64()
                .expect("a number")
        })
        .collect();
    assert_eq!(statuses, [201, 202]);
    assert_eq!(read(&one), expected(200));
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

#[test]
fn a_reader_that_goes_away_ends_the_log_quietly() {
    let (log, answer, written) = scripted(None);
    let mut access = log.access();
    answer.send(ALL).expect("the writer lives");
    answer.send(Err(io::ErrorKind::BrokenPipe.into())).expect("the writer lives");
    log_line(&mut access, 200);
    access.flush();
    assert_eq!(text(&written), expected(200));
    log_line(&mut access, 201);
    access.flush();
    wait_until("the log has ended", || access.begin_refused(Peer::Local, NOW).is_none());
    assert_eq!(log.dropped(), 0);
    log.finish_within(Duration::from_secs(60));
    assert!(written.try_recv().is_err());
}

#[test]
fn a_full_disk_loses_counted_lines_and_recovers_on_a_line_of_its_own() {
    let (log, answer, written) = scripted(Some("test.log".into()));
    let mut access = log.access();
    // The first write is cut short within the line, then the disk is full; then there is room again.
    for result in
        [Ok(10), Err(io::ErrorKind::StorageFull.into()), Err(io::ErrorKind::StorageFull.into()), ALL, ALL]
    {
        answer.send(result).expect("the writer lives");
    }
    log_line(&mut access, 200);
    access.flush();
    assert_eq!(text(&written), expected(200)[..10]);
    log_line(&mut access, 201);
    log_line(&mut access, 202);
    access.flush();
    log_line(&mut access, 203);
    access.flush();
    assert_eq!(text(&written), "\n");
    assert_eq!(text(&written), expected(203));
    assert_eq!(log.dropped(), 3);
    log.finish_within(Duration::from_secs(60));
}

#[test]
fn a_writer_that_stands_still_stops_no_worker() {
    let (log, answer, written) = scripted(None);
    let mut access = log.access();
    let line_bytes = expected(200).len();
    let turns = BATCHES_MAX + 2 * BATCH_BYTES_MAX / line_bytes;
    for _ in 0..turns {
        log_line(&mut access, 200);
        access.flush();
    }
    // One batch is being written or queued, the queue is full, and the worker has one batch.
    let dropped = log.dropped();
    let kept = turns as u64 - dropped;
    assert!(dropped > 0 && kept >= BATCHES_MAX as u64, "{dropped} of {turns}");
    drop(answer);
    drop(access);
    drop(written);
    log.finish_within(Duration::from_secs(60));
}

#[test]
fn closing_waits_no_longer_than_it_is_told() {
    let (log, answer, written) = scripted(None);
    let mut access = log.access();
    log_line(&mut access, 200);
    access.flush();
    let ended = finish(log, Duration::from_millis(1));
    // The writer gets no result before this. A `finish` that waits for the writer fails here.
    ended.recv_timeout(Duration::from_secs(60)).expect("it does not wait for the writer");
    assert!(written.try_recv().is_err(), "nothing is written yet");
    answer.send(ALL).expect("the writer lives");
    assert_eq!(text(&written), expected(200));
}

/// Ends a log on a separate thread, which reports when `finish_within` has returned.
fn finish(log: AccessLog, patience: Duration) -> mpsc::Receiver<()> {
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || {
        log.finish_within(patience);
        ended.send(()).expect("the test waits");
    });
    wait
}

#[test]
fn closing_waits_until_everything_is_written() {
    let (log, answer, written) = scripted(None);
    let mut access = log.access();
    log_line(&mut access, 200);
    drop(access);
    let ended = finish(log, Duration::from_secs(60));
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty), "the writer stands still");
    answer.send(ALL).expect("the writer lives");
    ended.recv().expect("it ends");
    assert_eq!(written.try_recv().expect("written before the end").as_slice(), expected(200).as_bytes());
}

/// The request fields that Chromium sends for `new EventSource("/push/news")`.
const BROWSER: &str = "Host: example.org\r\nAccept: text/event-stream\r\nCache-Control: no-cache\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Referer: https://example.org/live/scores\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n";

/// The compact pending line of a subscriber.
fn rest(access: &mut Access, address: u32, now: Now, target: &str) -> Box<LogEntry> {
    let text = format!("GET {target} HTTP/1.1\r\n{BROWSER}\r\n");
    let mut head = Head::new();
    head.feed(text.as_bytes(), &HeadLimits::default());
    let client = Some(std::net::Ipv4Addr::from_bits(address).into());
    let origin = Origin {
        peer: Peer::Local,
        client,
        forwards: false,
        hidden: false,
        secure: false,
        tls: None,
        local: false,
    };
    let request = Request {
        head: &head,
        bytes: text.as_bytes(),
        asker: Asker::Known(&origin),
        now,
        user: None,
        passed: None,
    };
    let entry = access
        .begin(&request, LogLabel { site: Some("example.org"), ..LogLabel::default() }, None, || {
            NonZeroU32::MIN
        })
        .expect("the log is on");
    access.at_rest(entry)
}

/// Writes the line of a request for a site whose lines have this output.
fn site_line(access: &mut Access, output: LogOutput, status: u16) {
    let text = format!("GET / HTTP/1.1\r\n{BROWSER}\r\n");
    let mut head = Head::new();
    head.feed(text.as_bytes(), &HeadLimits::default());
    let origin = Origin {
        peer: Peer::Local,
        client: None,
        forwards: false,
        hidden: false,
        secure: false,
        tls: None,
        local: false,
    };
    let request = Request {
        head: &head,
        bytes: text.as_bytes(),
        asker: Asker::Known(&origin),
        now: NOW,
        user: None,
        passed: None,
    };
    let label = LogLabel { site: Some("example.org"), output };
    if let Some(mut entry) = access.begin(&request, label, None, || NonZeroU32::MIN) {
        entry.set_status(status);
        access.finish(entry, &LineEnd::default());
    }
}

#[test]
fn each_output_gets_the_lines_of_its_sites() {
    let folder = std::env::temp_dir().join(format!("encke-outputs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let [main, own, moved] = ["main.log", "own.log", "own.log.1"].map(|name| folder.join(name));
    let (target, off) = (LogTarget::File(own.clone()), LogTarget::Off);
    let others = [target.clone(), off.clone(), target.clone()];
    let statuses = |path: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split("\" ").nth(1)?[..3].to_owned())).collect()
    };
    let log = AccessLog::start(&settings(LogTarget::File(main.clone())), &others).expect("opened");
    let (other, none) = (log.output(&target), log.output(&off));
    assert_eq!((none, log.output(&LogTarget::File(moved.clone()))), (LogOutput::OFF, LogOutput::MAIN));
    let mut access = log.access();
    for (output, status) in
        [(LogOutput::MAIN, 200), (other, 201), (none, 202), (other, 203), (LogOutput::MAIN, 204)]
    {
        site_line(&mut access, output, status);
    }
    access.flush();
    wait_until("two lines are written", || statuses(&own).len() >= 2);
    std::fs::rename(&own, &moved).expect("moved");
    log.reopen().expect("opened again");
    site_line(&mut access, other, 205);
    // The log of the server ends, and the logs of sites continue.
    log.turn(log.prepare(&settings(LogTarget::Off), &others).expect("nothing to open"));
    site_line(&mut access, LogOutput::MAIN, 206);
    site_line(&mut access, other, 207);
    // Without an output nothing is logged.
    log.turn(log.prepare(&settings(LogTarget::Off), &[]).expect("nothing to open"));
    site_line(&mut access, other, 208);
    drop(access);
    log.finish_within(Duration::from_secs(60));
    assert_eq!(statuses(&main), ["200", "204"]);
    assert_eq!(statuses(&moved), ["201", "203"]);
    assert_eq!(statuses(&own), ["205", "207"]);
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

#[test]
fn a_pending_line_of_a_subscriber_takes_at_most_64_bytes() {
    const COUNT: u32 = 2_000;
    let (log, answer, _written) = scripted(None);
    drop(answer);
    for mode in [COMBINED, JSON] {
        log.0.shared.mode.store(mode, Ordering::Relaxed);
        let mut access = log.access();
        let later = |number: u32| Now { unix_ns: NOW.unix_ns + u64::from(number) * 7_000_000, ..NOW };
        let pending: Vec<Box<LogEntry>> = (0..COUNT)
            .map(|number| {
                let target = format!("/push/news?access_token={number}");
                rest(&mut access, number, later(number), &target)
            })
            .collect();
        let open = access.0.as_ref().expect("on");
        let own: usize = pending.iter().map(|entry| size_of_val(&**entry)).sum();
        assert!(pending.iter().all(|entry| entry.is_at_rest()));
        let each = (own + open.texts.bytes()).div_ceil(pending.len());
        assert!(each <= 64, "{each} bytes; {} texts", open.texts.len());
        assert_eq!(open.texts.len(), 2);
        assert_eq!(open.texts.holders(), 2 * (pending.len() + 1), "each line holds the texts of the table");
        assert_eq!(open.entries.len(), 1, "an entry with a text of its own is used again");

        // A different path adds one text, as long as its line is pending.
        let other = rest(&mut access, 0, NOW, "/push/other");
        assert_eq!(access.0.as_ref().expect("on").texts.len(), 3);
        access.finish(other, &LineEnd::default());
        assert_eq!(access.0.as_ref().expect("on").texts.len(), 2);
        pending.into_iter().for_each(|entry| access.finish(entry, &LineEnd::default()));
        assert_eq!(access.0.as_ref().expect("on").texts.len(), 0);
    }
    log.finish_within(Duration::from_secs(60));
}

#[test]
fn a_tail_gets_json_lines_whatever_the_log_has() {
    let (log, answer, written) = scripted(None);
    for mode in [OFF, COMBINED, JSON] {
        log.0.shared.set_format(mode);
        let tail = log.tail(TailFilter::default(), || {}).expect("room");
        let mut access = log.access();
        let entry = rest(&mut access, 7, NOW, "/push/news");
        assert_eq!(tail.try_next(), None, "a line is pending as long as its subscriber");
        access.finish(entry, &LineEnd { sent_bytes: 3, ..LineEnd::default() });
        access.flush();
        let line = tail.try_next().expect("a line").line;
        assert!(line.starts_with(b"{") && line.ends_with(b"}"), "{}", String::from_utf8_lossy(&line));
        if mode != OFF {
            answer.send(ALL).expect("the writer lives");
            let text = text(&written);
            assert_eq!(text.starts_with('{'), mode == JSON, "{text}");
            assert!(text.contains("/push/news") && text.matches('\n').count() == 1, "{text}");
        }
        drop(tail);
        assert_eq!(access.is_on(), mode != OFF);
        assert_eq!(access.0.as_ref().expect("on").texts.len(), 0);
    }
    drop(answer);
    log.finish_within(Duration::from_secs(60));
}

#[test]
fn a_pending_line_knows_the_target_of_its_request() {
    let log = AccessLog::silent();
    for mode in [COMBINED, JSON, COMBINED | TAILED] {
        log.0.shared.set_format(mode);
        let mut access = log.access();
        let entry = rest(&mut access, 7, NOW, "/push/news?after=3&access_token=secret");
        assert_eq!(entry.target().as_deref(), Some("/push/news?after=3&access_token=***"), "{mode}");
        let refused = access.begin_refused(Peer::Local, Now::default()).expect("the log is on");
        assert_eq!(refused.target(), None, "{mode}");
    }
}

#[test]
fn notes_of_a_handler_are_members_of_json_lines_only() {
    let (log, answer, written) = scripted(None);
    let notes =
        || LogNotes::default().text("app", Some("a\"b")).number("app_us", Some(7)).number("app_no", None);
    for (mode, is_tailed) in [(COMBINED, false), (JSON, false), (COMBINED, true)] {
        log.0.shared.set_format(mode);
        let tail = is_tailed.then(|| log.tail(TailFilter::default(), || {}).expect("room"));
        let mut access = log.access();
        assert_eq!(access.notes_mode().is_on(), mode == JSON || is_tailed);
        let plain = rest(&mut access, 7, NOW, "/push/news");
        let mut noted = rest(&mut access, 7, NOW, "/push/news");
        access.note(&mut noted, &notes());
        let mut lines = Vec::new();
        for entry in [plain, noted] {
            access.finish(entry, &LineEnd::default());
            access.flush();
            answer.send(ALL).expect("the writer lives");
            let line = text(&written);
            let shown = tail.as_ref().map(|tail| tail.try_next().expect("a line").line);
            lines.push(shown.map_or(line, |line| String::from_utf8(line.to_vec()).expect("text")));
        }
        let members = r#","app":"a\"b","app_us":7,"app_no":null,"status":"#;
        let expected = lines[0].replace(",\"status\":", members);
        assert_eq!(lines[1], expected, "the other members are the same");
        assert_eq!(lines[1] == lines[0], mode == COMBINED && !is_tailed, "{}", lines[1]);
        assert_eq!(access.0.as_ref().expect("on").texts.len(), 0, "no text is left");
    }
    drop(answer);
    log.finish_within(Duration::from_secs(60));
}

#[test]
fn batches_and_entries_are_used_again() {
    let (log, answer, written) = scripted(None);
    let mut access = log.access();
    let seen = Mutex::new(std::collections::HashSet::new());
    for status in 200..210 {
        answer.send(ALL).expect("the writer lives");
        log_line(&mut access, status);
        let open = access.0.as_ref().expect("on");
        seen.lock().expect("one thread").insert(open.batch.bytes().as_ptr() as usize);
        assert_eq!(open.entries.len(), 1);
        access.flush();
        assert_eq!(text(&written), expected(status));
    }
    assert!(seen.lock().expect("one thread").len() <= 4, "ten turns took more than four batches");
    drop(answer);
    log.finish_within(Duration::from_secs(60));
}
