//! Tests of whole sites: requests as bytes in, responses out, over real directories.
//!
//! The stage acts as the worker. It passes requests and runs the jobs of the thread pool by hand. Before each request it
//! delivers notifications, as the reactor does when the descriptor of inotify(7) is readable. Time is a value.

// A changed file must be noticed at the next request, so changes must be reported at once, as by inotify(7).
#[cfg(unix)]
mod changing;
mod codings;
mod conditions;
mod keeping;
mod media;
mod names;
mod pages;

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use encke_io::changes::Changes;
use encke_io::files::FileId;
use encke_io::{Now, Segment};
use encke_server::{Body, ContentView, Mount as _, Prepared, Reply, testing};

use super::file_handler::FileHandler;
use super::{Site, SiteSettings};

/// A directory that contains a site and a place for secrets outside it; removed at the end.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("encke-site-{name}-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("site")).expect("a writable temporary folder");
        Self(path.canonicalize().expect("it was just made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("site").join(name)
    }

    /// Writes a file with an old modification time.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write_aged(name, content, Duration::from_secs(1_000));
    }

    fn write_aged(&self, name: &str, content: impl AsRef<[u8]>, age: Duration) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("below the site")).expect("made");
        std::fs::write(&path, content).expect("written");
        set_age(&path, age);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes a symbolic link. Returns false on Windows, where a program needs special rights to make one.
fn link(target: impl AsRef<Path>, name: impl AsRef<Path>) -> bool {
    #[cfg(unix)]
    std::os::unix::fs::symlink(&target, &name).expect("linked");
    let _windows = (target, name);
    cfg!(unix)
}

/// Lead of a stage's clock over the system's. Only the kernel sets the time of a file's last change (ctime), and with this lead
/// the file has settled.
const AHEAD: Duration = Duration::from_secs(60);

/// Maximum number of jobs until a path is cached. Windows cannot look a path up without a job, so the second look, once the
/// directories are watched, is one, too.
const COLD_JOBS: usize = if cfg!(windows) { 2 } else { 1 };

fn set_age(path: &Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(path).expect("opened");
    file.set_modified(SystemTime::now() + AHEAD - age).expect("the time is set");
}

/// A worker with a site.
struct Stage(testing::Stage);

impl Deref for Stage {
    type Target = testing::Stage;

    fn deref(&self) -> &testing::Stage {
        &self.0
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut testing::Stage {
        &mut self.0
    }
}

/// A response, as the client sees it.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// The response was prepared.
    prepared: bool,
}

/// A site whose root is the scene.
fn site(scene: &Scene, settings: &str) -> Site {
    let mut settings: SiteSettings = toml::from_str(settings).expect("valid settings");
    settings.root = scene.path("");
    Site::new(&[settings], Vec::new()).expect("a site")
}

impl Stage {
    fn new(scene: &Scene, settings: &str) -> Self {
        Self::forbidding(scene, settings, Vec::new())
    }

    fn forbidding(scene: &Scene, settings: &str, forbidden: Vec<FileId>) -> Self {
        let mut settings: SiteSettings = toml::from_str(settings).expect("valid settings");
        if settings.root == Path::new(".") {
            settings.root = scene.path("");
        }
        Self::of(&Site::new(&[settings], forbidden).expect("a site"))
    }

    fn of(site: &Site) -> Self {
        let mut stage = Self(testing::Stage::open(start(), |context, worker| site.open(context, worker)));
        let has_notices = Changes::new().is_ok();
        assert_eq!(stage.take_watches(), usize::from(has_notices), "it wants to hear of changes");
        stage
    }

    /// A worker without notifications of changes.
    fn deaf(scene: &Scene, settings: &str) -> Self {
        let site = site(scene, settings);
        Self(testing::Stage::open(start(), |context, _| {
            Box::new(FileHandler::new(Arc::clone(&site.shared), site.grounds.clone(), context, None))
        }))
    }

    /// Lets the worker notice changes. Where notifications arrive later than changes, or not at all, this takes a minute, after
    /// which files are looked up again.
    fn notice(&mut self) {
        if cfg!(windows) {
            self.pass(Duration::from_secs(61));
        }
    }

    fn get(&mut self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n"))
    }

    /// The prepared response for a path. The first request fills the kernel's caches through the pool: missing files (siblings)
    /// are not cached at first.
    fn ready(&mut self, path: &str) -> Arc<Prepared> {
        assert_eq!(self.get(path).status, 200);
        let reply = self.call(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n"), 0).expect("answered now");
        Arc::clone(testing::prepared(&reply).expect("ready-made"))
    }

    /// Sends GET with additional field lines, each ended by CRLF.
    fn get_with(&mut self, path: &str, lines: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}"))
    }

    /// Sends a request, given without the empty line at its end.
    fn ask(&mut self, request: &str) -> Answer {
        self.handler().watched();
        match self.call(request, 0) {
            Some(reply) => {
                self.run_jobs();
                answer(reply)
            }
            None => {
                self.run_jobs();
                let mut answers = self.answers();
                assert_eq!(answers.len(), 1, "{request}");
                answer(answers.remove(0).1)
            }
        }
    }

    /// Calls the handler; `None` if it responds later.
    fn call(&mut self, request: &str, slot: u32) -> Option<Reply> {
        self.0.call(format!("{request}\r\n").as_bytes(), slot)
    }
}

/// The initial time of a stage.
fn start() -> Now {
    let now = SystemTime::now() + AHEAD;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Now { mono_ns: 1_000_000_000, unix_ns: now.as_nanos() as u64 }
}

impl Answer {
    fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    fn etag(&self) -> &str {
        self.value("ETag").expect("a tag")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

fn answer(reply: Reply) -> Answer {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
    let pairs = |fields: &encke_server::Fields| {
        fields.iter().map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>()
    };
    let read = |file: &encke_io::files::OpenFile, offset: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(offset, &mut bytes).expect("read");
        bytes.truncate(read);
        bytes
    };
    if let Some(prepared) = testing::prepared(&reply) {
        let body = match prepared.content() {
            ContentView::Memory(bytes) => bytes.to_vec(),
            ContentView::File(file, range) => read(file, range.start, range.end - range.start),
        };
        return Answer { status: prepared.status(), fields: pairs(prepared.fields()), body, prepared: true };
    }
    let body = match reply.body {
        Body::Empty => Vec::new(),
        Body::Bytes(bytes) => bytes,
        Body::Shared(bytes) => bytes.to_vec(),
        Body::File(file, range) => read(&file, range.start, range.end - range.start),
        Body::Segments(segments) => segments
            .iter()
            .flat_map(|segment| match segment {
                Segment::File { file, offset, len } => read(file, *offset, *len),
                other => other.memory().expect("bytes").to_vec(),
            })
            .collect(),
        _ => panic!("files are not streamed"),
    };
    Answer { status: reply.status, fields: pairs(&reply.fields), body, prepared: false }
}
