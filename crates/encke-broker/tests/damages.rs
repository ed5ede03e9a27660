//! Damaged files: the store reports them with a remedy. It never panics, and never returns a message that was not stored.
//!
//! A file is damaged at random by the kinds below, after a planned end or a kill, and opened as at a server's start. Without
//! the store's checks, redb 4.5 panics on some of these files and trusts others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_broker::{Contents, ErrorOrigin, Store, StoreError};
use encke_hub::{Commit, Epoch, Flags, Message, Name, SavedHistories, Stored};
use encke_io::testing::Seeds;

/// Damages of each kind, for each of the two files; all together take a few seconds.
const SEEDS: u64 = 60;

const PAGE: usize = 4096;

type Damage = fn(&mut Vec<u8>, &mut Random);

const DAMAGES: [(&str, Damage); 9] = [
    ("one byte anywhere", |bytes, random| flip(bytes, random, 1, 0..usize::MAX)),
    ("many bytes anywhere", |bytes, random| flip(bytes, random, 500, 0..usize::MAX)),
    ("one byte of the header", |bytes, random| flip(bytes, random, 1, 0..320)),
    ("several bytes of the header", |bytes, random| flip(bytes, random, 8, 0..320)),
    ("bytes of the first pages", |bytes, random| flip(bytes, random, 20, PAGE..40 * PAGE)),
    ("a shorter file", |bytes, random| bytes.truncate(random.below(bytes.len() + 1))),
    ("a file shorter by pages", |bytes, random| {
        bytes.truncate((1 + random.below(bytes.len() / PAGE)) * PAGE);
    }),
    ("a zeroed page", |bytes, random| {
        let page = random.below(bytes.len() / PAGE) * PAGE;
        bytes[page..page + PAGE].fill(0);
    }),
    ("a page in the place of another", |bytes, random| {
        let [from, to] = [random.below(bytes.len() / PAGE) * PAGE, random.below(bytes.len() / PAGE) * PAGE];
        bytes.copy_within(from..from + PAGE, to);
    }),
];

/// Xorshift64*: a seed determines the damage.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most as u64) as usize
    }
}

/// Changes bytes of a range. Half of the bytes of a store are zeros of unused pages, which mostly stay.
fn flip(bytes: &mut [u8], random: &mut Random, count: usize, range: std::ops::Range<usize>) {
    let end = range.end.min(bytes.len());
    for _ in 0..count {
        let tries = [(); 8].map(|()| range.start + random.below(end - range.start));
        let at = tries.into_iter().find(|at| bytes[*at] != 0).unwrap_or(tries[0]);
        bytes[at] ^= 1 + random.below(255) as u8;
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("encke-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn open(path: &Path) -> Result<(Store, Contents), StoreError> {
    Store::open(path, |_, _, _| Ok(()), Epoch(7))
}

fn data(offset: u64) -> Vec<u8> {
    let length = if offset.is_multiple_of(50) { 30_000 } else { 100 };
    format!("message {offset}: ").bytes().cycle().take(length).collect()
}

fn commit(number: u64) -> Commit {
    let message = |offset| Stored {
        message: Arc::new(Message {
            offset,
            channel: name(["disk/a", "disk/b", "disk/c"][offset as usize % 3]),
            data: data(offset).into(),
            text: true,
            content_type: Some("text/plain".into()),
            event: None,
            unix_ms: 1,
            flags: Flags::default(),
        }),
        key: None,
    };
    Commit {
        epoch: Epoch(7),
        ceiling: 100_000,
        early: false,
        durability: "disk/*".into(),
        forgotten_to: 0,
        void: Vec::new(),
        lost: vec![(name("disk/a"), number)],
        deleted: Vec::new(),
        forgotten: Vec::new(),
        messages: (0..20).map(|place| message(number * 20 + place)).collect(),
    }
}

/// Returns the bytes of a store that was closed, or whose process was killed.
fn file(path: &Path, planned: bool) -> Vec<u8> {
    let _left_by_the_last_case = fs::remove_file(path);
    let (mut store, contents) = open(path).expect("nothing is there");
    for number in 1..=30 {
        store.commit(&commit(number)).expect("the disk is well");
    }
    let bytes = fs::read(path).expect("it is there");
    let saved = SavedHistories { newest: 1_000, ..contents.saved };
    store.close(None, &saved).expect("the disk is well");
    drop(store);
    if planned { fs::read(path).expect("it is there") } else { bytes }
}

#[test]
fn a_damaged_store_is_reported_with_a_remedy_and_never_panics() {
    let folder = Folder::new("damages");
    let path = folder.0.join("push.redb");
    let seeds = Seeds::of(SEEDS);
    let (mut reported, mut read) = (0, 0);
    for planned in [true, false] {
        let whole = file(&path, planned);
        for (kind, damage) in DAMAGES {
            for seed in seeds.range() {
                let mut bytes = whole.clone();
                damage(&mut bytes, &mut Random(seed * 0x9E37_79B9));
                fs::write(&path, &bytes).expect("written");
                let opened = std::panic::catch_unwind(|| open(&path).map(|(_, contents)| contents));
                let case = format!("{kind}, planned {planned}, seed {seed}");
                match opened.unwrap_or_else(|_| panic!("{case}: a panic")) {
                    Ok(contents) => {
                        read += 1;
                        for stored in contents.saved.channels.iter().flat_map(|channel| &channel.messages) {
                            let offset = stored.message.offset;
                            assert!(*stored.message.data == *data(offset), "{case}: message {offset}");
                        }
                    }
                    Err(error) => {
                        reported += 1;
                        let text = error.to_string();
                        let said = ["push.redb is damaged (", "move it away", "restore it from a backup"];
                        assert!(said.iter().all(|part| text.contains(part)), "{case}: {text}");
                    }
                }
            }
        }
    }
    println!("{reported} reported, {read} read");
    assert!(reported > 3 * seeds.count() && read > 0, "{reported} reported, {read} read");
}

#[test]
fn an_empty_store_file_is_reported_and_left_alone() {
    let folder = Folder::new("empty-store");
    let path = folder.0.join("push.redb");
    for content in [&b""[..], b"something else", &[0; 100_000]] {
        fs::write(&path, content).expect("written");
        let error = open(&path).map(drop).expect_err("no store");
        assert_eq!((error.origin(), error.is_transient()), (ErrorOrigin::File, false));
        let text = error.to_string();
        assert!(text.contains("push.redb is damaged (") && text.contains("move it away"), "{text}");
        assert_eq!(fs::read(&path).expect("still there"), content);
    }
}

#[test]
fn an_unfinished_creation_is_begun_anew() {
    let folder = Folder::new("unfinished-store");
    let path = folder.0.join("push.redb");
    fs::write(folder.0.join("push.redb.new"), "half of a store").expect("written");
    open(&path).map(drop).expect("it is created");
    let names: Vec<_> =
        fs::read_dir(&folder.0).expect("there").flatten().map(|one| one.file_name()).collect();
    assert_eq!(names, ["push.redb"]);
}
