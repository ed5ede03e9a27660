//! The store: one redb file, one transaction per commit.
//!
//! ```text
//!  numbers   format, epoch, newest, ceiling, forgotten, …            name ─► number
//!  messages  of durable channels                        (channel, offset) ─► record
//!  lost      of durable channels                                 channel  ─► offset
//!  rings     of all other channels, at a planned end    (channel, offset) ─► record
//!  ring_lost                                                     channel  ─► offset
//!  reserve   bytes that a commit on a full disk may use             number ─► zeros
//! ```
//! A commit is synced before it returns. An error closes the file, and the next commit opens it again. The store therefore
//! recovers from a full disk once there is space, and from other faults once the disk works.
//!
//! **A delete can be committed on a full disk.** redb copies the pages that it changes, so removing messages needs free pages
//! first. Two measures provide them:
//!
//! - All blocks of the file are allocated when it grows ([`Preallocated`]), so the disk can be full only at that moment.
//! - A table of [`RESERVE_BYTES`] is dropped when a commit that only removes messages finds no free page.
//!
//! Commits with messages leave the few pages free that dropping the table takes, and restore the table. If they cannot, they
//! fail as on a full disk.
//!
//! **A damaged file is an error, never a panic.** redb trusts a file that was closed cleanly and may panic on a damaged one.
//! The first opening therefore verifies all checksums, and every call runs under [`contained`].

use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use encke_hub::limits::CEILING;
use encke_hub::{Commit, Epoch, Name, SavedChannel, SavedHistories, Stored};
use redb::backends::FileBackend;
use redb::{
    BackendError, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend, StorageError, TableDefinition, TableError, WriteTransaction,
};

use crate::ErrorOrigin;
use crate::record;

type NumbersTable = TableDefinition<'static, &'static str, u64>;
type RecordsTable = TableDefinition<'static, (&'static str, u64), &'static [u8]>;

const NUMBERS: NumbersTable = TableDefinition::new("numbers");
const MESSAGES: RecordsTable = TableDefinition::new("messages");
const LOST: NumbersTable = TableDefinition::new("lost");
const RINGS: RecordsTable = TableDefinition::new("rings");
const RING_LOST: NumbersTable = TableDefinition::new("ring_lost");
const DURABILITY: TableDefinition<&str, &str> = TableDefinition::new("durability");

/// The file format that this version writes. A change of the layout needs a new number.
const FORMAT: u64 = 1;

/// redb's page cache in bytes. All messages are in the rings anyway; a commit touches a few dozen pages.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

const RESERVE: TableDefinition<u64, &[u8]> = TableDefinition::new("reserve");

/// Exists only within a transaction.
const HEADROOM: TableDefinition<u64, &[u8]> = TableDefinition::new("headroom");

/// Rows of the reserve.
const RESERVE_ROWS: u64 = 16;

/// Bytes of a row: with redb's header of a page just below 64 KiB, the size of its page.
const RESERVE_ROW_BYTES: usize = 65_536 - 256;

/// Size of the reserve: 1 MiB. A commit that removes everything lists the pages that it frees, 8 bytes each. With the default
/// `push.memory` of 256 MiB in pages of 4 KiB that is 512 KiB, and the changed pages come on top.
pub const RESERVE_BYTES: u64 = RESERVE_ROWS * 65_536;

/// Opens the database, and reopens it after an error. The argument tells whether to verify all of its checksums.
pub type Opener = Box<dyn Fn(bool) -> Result<Database, DatabaseError> + Send>;

/// Allocates the blocks of a file between two offsets in bytes, if the file system supports it.
pub type Allocate = fn(&File, u64, u64) -> io::Result<()>;

/// Messages on disk.
pub struct Store {
    /// The path in error messages.
    place: PathBuf,
    opener: Opener,
    /// `None` after an error, until the next commit.
    database: Option<Database>,
}

/// The contents of a store when it is opened.
#[derive(Debug)]
pub struct Contents {
    /// State from which the sequencer continues the stream.
    pub saved: SavedHistories,
    /// Offsets up to here may be assigned before the first commit.
    pub ceiling: u64,
    /// How the previous run ended.
    pub end: End,
}

/// How the previous run of the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There was no previous run: the store is new.
    New,
    /// By [`Store::close`]: nothing is lost.
    Planned,
    /// By a crash: messages that were only in memory are lost.
    Abrupt,
}

impl Store {
    /// Opens the store in a file, and creates the file if it does not exist. `fresh` is the epoch if a new stream has to begin.
    ///
    /// # Errors
    /// The file is in use by another process, empty, damaged or of another format; or an error of the operating system.
    pub fn open(path: &Path, allocate: Allocate, fresh: Epoch) -> Result<(Self, Contents), StoreError> {
        let prepared = match fs::metadata(path) {
            Ok(found) if found.len() == 0 => Err(StoreErrorKind::Empty),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => contained(|| create(path, allocate)),
            Err(error) => Err(StoreErrorKind::Redb(redb::Error::Io(error))),
        };
        prepared.map_err(|fault| StoreError { place: path.to_owned(), fault })?;
        let file = path.to_owned();
        Self::open_by(path, Box::new(move |verify| open_file(&file, allocate, verify)), fresh)
    }

    /// Opens a store by an opener, like [`Store::open`]. `place` is the path in error messages.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_by(place: &Path, opener: Opener, fresh: Epoch) -> Result<(Self, Contents), StoreError> {
        let mut store = Self { place: place.to_owned(), opener, database: None };
        let contents = match store.attempt_verified(|database| begin(database, fresh, true)) {
            Err(error) if error.is_full() => store.on_reserve(|database| begin(database, fresh, false)),
            other => other,
        }?;
        Ok((store, contents))
    }

    /// Stores a commit atomically: when this returns, the commit survives a power loss. A commit that only removes messages may
    /// use the reserve.
    ///
    /// # Errors
    /// The disk is full or failed. Whether the commit was stored is then unknown.
    pub fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let store = |database: &Database| {
            let transaction = database.begin_write()?;
            write(&transaction, commit)?;
            if !commit.only_removes() {
                keep_reserve(&transaction)?;
            }
            Ok(transaction.commit()?)
        };
        match self.attempt_twice(store) {
            Err(error) if error.is_full() && commit.only_removes() => self.on_reserve(store),
            other => other,
        }
    }

    /// Stores the last commit, and the rings of channels that are not durable, so that the next run loses no message.
    ///
    /// # Errors
    /// As [`Store::commit`]. The next run then starts as after a crash.
    pub fn close(&mut self, commit: Option<&Commit>, saved: &SavedHistories) -> Result<(), StoreError> {
        let store = |database: &Database| {
            let transaction = database.begin_write()?;
            if let Some(commit) = commit {
                write(&transaction, commit)?;
            }
            {
                let mut numbers = transaction.open_table(NUMBERS)?;
                numbers.insert("planned", 1)?;
                numbers.insert("newest", saved.newest)?;
                numbers.insert("ring_forgotten_to", saved.forgotten_to)?;
                let mut rings = transaction.open_table(RINGS)?;
                let mut lost = transaction.open_table(RING_LOST)?;
                let mut bytes = Vec::new();
                for channel in saved.channels.iter().filter(|channel| !channel.durable) {
                    lost.insert(channel.name.as_str(), channel.lost_to)?;
                    for stored in &channel.messages {
                        bytes.clear();
                        record::put(&mut bytes, stored);
                        rings.insert((channel.name.as_str(), stored.message.offset), &*bytes)?;
                    }
                }
            }
            Ok(transaction.commit()?)
        };
        match self.attempt_twice(store) {
            Err(error) if error.is_full() => self.on_reserve(store),
            other => other,
        }?;
        self.database = None;
        Ok(())
    }

    /// Drops the reserve, then retries an action that found the disk full.
    fn on_reserve<T>(
        &mut self,
        act: impl Fn(&Database) -> Result<T, StoreErrorKind>,
    ) -> Result<T, StoreError> {
        self.attempt_twice(|database| {
            let transaction = database.begin_write()?;
            transaction.delete_table(RESERVE)?;
            Ok(transaction.commit()?)
        })?;
        self.attempt_twice(act)
    }

    /// Runs an action, and retries it once if the disk is full. Pages freed by the last commit are available for the next one
    /// but one, or after the file is reopened.
    fn attempt_twice<T>(
        &mut self,
        act: impl Fn(&Database) -> Result<T, StoreErrorKind>,
    ) -> Result<T, StoreError> {
        match self.attempt(&act) {
            Err(error) if error.is_full() => self.attempt(act),
            other => other,
        }
    }

    /// Runs an action on the file. After an error the next action reopens the file.
    fn attempt<T>(
        &mut self,
        act: impl FnOnce(&Database) -> Result<T, StoreErrorKind>,
    ) -> Result<T, StoreError> {
        self.attempt_on(false, act)
    }

    /// Like [`Store::attempt`], after verifying all checksums of the file.
    fn attempt_verified<T>(
        &mut self,
        act: impl FnOnce(&Database) -> Result<T, StoreErrorKind>,
    ) -> Result<T, StoreError> {
        self.attempt_on(true, act)
    }

    fn attempt_on<T>(
        &mut self,
        verify: bool,
        act: impl FnOnce(&Database) -> Result<T, StoreErrorKind>,
    ) -> Result<T, StoreError> {
        let Self { database, opener, .. } = self;
        let database = database.take();
        let done = contained(|| {
            let database = match database {
                Some(database) => database,
                None => opener(verify)?,
            };
            act(&database).map(|value| (database, value))
        });
        match done {
            Ok((database, value)) => {
                self.database = Some(database);
                Ok(value)
            }
            Err(fault) => Err(StoreError { place: self.place.clone(), fault }),
        }
    }
}

/// Creates the file with an empty database in it. The file gets its name once it is complete, so an empty file of that name was
/// damaged later.
fn create(path: &Path, allocate: Allocate) -> Result<(), StoreErrorKind> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = Path::new(&unfinished);
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(unfinished)?;
    drop(builder().create_with_backend(Preallocated::of(file, allocate)?)?);
    fs::rename(unfinished, path)?;
    // The name must survive a power loss as well.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?)
}

/// Opens the file, which must exist: a running server must not replace a deleted file by an empty one.
fn open_file(path: &Path, allocate: Allocate, verify: bool) -> Result<Database, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() == 0 {
        return Err(DatabaseError::Storage(StorageError::Corrupted("the file is empty".into())));
    }
    let backend = Preallocated::of(file, allocate)?;
    builder().set_check_integrity_on_open(verify).create_with_backend(backend)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// A file whose blocks are allocated when it grows, so that writes within it never find the disk full. (A copy-on-write file
/// system gives no such guarantee.)
#[derive(Debug)]
struct Preallocated {
    backend: FileBackend,
    /// A second handle of the file, for `allocate`.
    file: File,
    allocate: Allocate,
}

impl Preallocated {
    fn of(file: File, allocate: Allocate) -> Result<Self, DatabaseError> {
        Ok(Self { backend: FileBackend::new(file.try_clone()?)?, file, allocate })
    }
}

impl StorageBackend for Preallocated {
    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.backend.len()?;
        if len > before
            && let Err(error) = (self.allocate)(&self.file, before, len)
        {
            // Releases the blocks that were allocated before the error.
            let _reported_below = self.backend.set_len(before);
            return Err(error);
        }
        self.backend.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}

thread_local! {
    /// Whether a panic of this thread is caught, and reported as an error.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls redb and returns its panics as errors, without a message on standard error. The database is dropped while the panic
/// unwinds, so no half-changed state is used again.
fn contained<T>(act: impl FnOnce() -> Result<T, StoreErrorKind>) -> Result<T, StoreErrorKind> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                report(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(act));
    CAUGHT.set(false);
    done.unwrap_or_else(|payload| Err(StoreErrorKind::Panicked(panic_text(&*payload))))
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").lines().next().unwrap_or_default().to_owned()
}

/// Restores the reserve if it was dropped, and ensures that enough pages stay free to drop it again. This is the last step of a
/// transaction.
fn keep_reserve(transaction: &WriteTransaction) -> Result<(), StoreErrorKind> {
    let mut reserve = transaction.open_table(RESERVE)?;
    for row in reserve.len()?..RESERVE_ROWS {
        reserve.insert(row, &*vec![0; RESERVE_ROW_BYTES])?;
    }
    // Pages that a transaction allocates and frees are free at once. This step proves that there are 16, or lets the file grow.
    transaction.open_table(HEADROOM)?.insert_reserve(0, RESERVE_ROW_BYTES)?;
    transaction.delete_table(HEADROOM)?;
    Ok(())
}

/// Reads the contents and marks the store as in use: without a planned end, the next start reports [`End::Abrupt`].
fn begin(database: &Database, fresh: Epoch, reserve: bool) -> Result<Contents, StoreErrorKind> {
    let reading = database.begin_read()?;
    let contents = match numbers(&reading)? {
        Some(numbers) => read(&reading, &numbers, fresh)?,
        None => Contents {
            saved: SavedHistories {
                epoch: fresh,
                newest: 0,
                forgotten_to: 0,
                durable_forgotten_to: 0,
                durability: Box::default(),
                channels: Vec::new(),
            },
            ceiling: CEILING,
            end: End::New,
        },
    };
    drop(reading);
    let transaction = database.begin_write()?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert("format", FORMAT)?;
        numbers.insert("epoch", contents.saved.epoch.0)?;
        numbers.insert("ceiling", contents.ceiling)?;
        numbers.insert("forgotten_to", contents.saved.durable_forgotten_to)?;
        numbers.insert("early", 0)?;
        numbers.insert("planned", 0)?;
        transaction.open_table(MESSAGES)?;
        transaction.open_table(LOST)?;
        transaction.open_table(DURABILITY)?;
    }
    if reserve {
        keep_reserve(&transaction)?;
    }
    // Rings are valid for one planned restart.
    transaction.delete_table(RINGS)?;
    transaction.delete_table(RING_LOST)?;
    transaction.commit()?;
    Ok(contents)
}

/// The values of table `numbers`.
struct StoredNumbers {
    epoch: Epoch,
    newest: u64,
    ceiling: u64,
    forgotten_to: u64,
    ring_forgotten_to: u64,
    early: bool,
    planned: bool,
}

/// Reads table `numbers`; `None` if the store is new.
fn numbers(reading: &ReadTransaction) -> Result<Option<StoredNumbers>, StoreErrorKind> {
    let numbers = match reading.open_table(NUMBERS) {
        Ok(numbers) => numbers,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let number = |name| Ok::<_, StoreErrorKind>(numbers.get(name)?.map(|value| value.value()));
    let must = |name: &'static str| {
        number(name)?.ok_or_else(|| StoreErrorKind::Broken(format!("it has no number {name:?}")))
    };
    let format = must("format")?;
    if format != FORMAT {
        return Err(StoreErrorKind::Format(format));
    }
    Ok(Some(StoredNumbers {
        epoch: Epoch(must("epoch")?),
        newest: number("newest")?.unwrap_or(0),
        ceiling: must("ceiling")?,
        forgotten_to: must("forgotten_to")?,
        ring_forgotten_to: number("ring_forgotten_to")?.unwrap_or(0),
        early: must("early")? != 0,
        planned: must("planned")? != 0,
    }))
}

fn read(reading: &ReadTransaction, known: &StoredNumbers, fresh: Epoch) -> Result<Contents, StoreErrorKind> {
    let mut channels = channels(reading, (MESSAGES, LOST), true, known.forgotten_to)?;
    if known.planned {
        channels.extend(self::channels(reading, (RINGS, RING_LOST), false, known.ring_forgotten_to)?);
    }
    // Least recently used first. A channel's last use is its newest message.
    channels.sort_by_key(|channel| channel.messages.last().map(|stored| stored.message.offset));
    let newest = if known.planned { known.newest } else { known.ceiling };
    let durability = match reading.open_table(DURABILITY)?.get("")? {
        Some(text) => text.value().into(),
        None => Box::default(),
    };
    Ok(Contents {
        saved: SavedHistories {
            epoch: if known.early && !known.planned { fresh } else { known.epoch },
            newest,
            forgotten_to: if known.planned { known.ring_forgotten_to } else { newest },
            durable_forgotten_to: known.forgotten_to,
            durability,
            channels,
        },
        ceiling: newest.saturating_add(CEILING),
        end: if known.planned { End::Planned } else { End::Abrupt },
    })
}

/// Reads channels and their messages from one pair of tables.
fn channels(
    reading: &ReadTransaction,
    (records, lost): (RecordsTable, NumbersTable),
    durable: bool,
    forgotten_to: u64,
) -> Result<Vec<SavedChannel>, StoreErrorKind> {
    let (records, lost) = (reading.open_table(records)?, reading.open_table(lost)?);
    let mut channels: Vec<SavedChannel> = Vec::new();
    let named = |text: &str| {
        Name::parse(text.as_bytes())
            .map_err(|_| StoreErrorKind::Broken(format!("{text:?} is no channel's name")))
    };
    for entry in records.range::<(&str, u64)>(..)? {
        let (key, value) = entry?;
        let (text, offset) = key.value();
        if channels.last().is_none_or(|last| last.name.as_str() != text) {
            let lost_to = lost.get(text)?.map_or(forgotten_to, |value| value.value());
            channels.push(SavedChannel { name: named(text)?, lost_to, durable, messages: Vec::new() });
        }
        let channel = channels.last_mut().expect("pushed above");
        let stored: Stored = record::read(&channel.name, offset, value.value())
            .ok_or_else(|| StoreErrorKind::Broken(format!("message {offset} of {text} is no message")))?;
        channel.messages.push(stored);
    }
    // Channels without messages have only their lost offset.
    let known: HashSet<Name> = channels.iter().map(|channel| channel.name.clone()).collect();
    for entry in lost.range::<&str>(..)? {
        let (key, value) = entry?;
        let name = named(key.value())?;
        if !known.contains(&name) {
            channels.push(SavedChannel { name, lost_to: value.value(), durable, messages: Vec::new() });
        }
    }
    Ok(channels)
}

fn write(transaction: &WriteTransaction, commit: &Commit) -> Result<(), StoreErrorKind> {
    let mut numbers = transaction.open_table(NUMBERS)?;
    numbers.insert("ceiling", commit.ceiling)?;
    numbers.insert("early", u64::from(commit.early))?;
    numbers.insert("forgotten_to", commit.forgotten_to)?;
    transaction.open_table(DURABILITY)?.insert("", &*commit.durability)?;
    let mut messages = transaction.open_table(MESSAGES)?;
    let mut lost = transaction.open_table(LOST)?;
    for (channel, offset) in &commit.void {
        messages.remove((channel.as_str(), *offset))?;
    }
    for (channel, to) in commit.lost.iter().chain(&commit.deleted) {
        messages.retain_in((channel.as_str(), 0)..=(channel.as_str(), *to), |_, _| false)?;
        // After a delete with an unknown outcome, the store may know a higher lost offset than the sequencer.
        let known = lost.get(channel.as_str())?.map_or(0, |value| value.value());
        lost.insert(channel.as_str(), known.max(*to))?;
    }
    for channel in &commit.forgotten {
        lost.remove(channel.as_str())?;
    }
    let mut bytes = Vec::new();
    for stored in &commit.messages {
        bytes.clear();
        record::put(&mut bytes, stored);
        messages.insert((stored.message.channel.as_str(), stored.message.offset), &*bytes)?;
    }
    Ok(())
}

/// Why a store could not be opened or written.
#[derive(Debug)]
pub struct StoreError {
    place: PathBuf,
    fault: StoreErrorKind,
}

#[derive(Debug)]
enum StoreErrorKind {
    Redb(redb::Error),
    Format(u64),
    Broken(String),
    Empty,
    Panicked(String),
}

impl StoreError {
    /// Returns whether the disk, a quota or the file size limit leaves no space.
    pub fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        matches!(&self.fault, StoreErrorKind::Redb(redb::Error::Io(error)) if full.contains(&error.kind()))
    }

    /// Returns whether another process has the store open.
    pub fn is_in_use(&self) -> bool {
        matches!(
            &self.fault,
            StoreErrorKind::Redb(redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch)
        )
    }

    /// The origin of the error.
    pub fn origin(&self) -> ErrorOrigin {
        match &self.fault {
            StoreErrorKind::Redb(redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch) => {
                ErrorOrigin::Settings
            }
            StoreErrorKind::Redb(redb::Error::Io(error)) if !is_damage(error) => ErrorOrigin::System,
            StoreErrorKind::Redb(_)
            | StoreErrorKind::Format(_)
            | StoreErrorKind::Broken(_)
            | StoreErrorKind::Empty
            | StoreErrorKind::Panicked(_) => ErrorOrigin::File,
        }
    }

    /// Whether a retry may succeed without a change by an administrator: the disk may have space again, or work again.
    pub fn is_transient(&self) -> bool {
        self.origin() == ErrorOrigin::System
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display();
        match &self.fault {
            StoreErrorKind::Redb(redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch) => {
                write!(
                    f,
                    "{place} is in use by another process: stop that process, or give each server a state_dir of its own"
                )
            }
            StoreErrorKind::Redb(redb::Error::Io(error)) if is_damage(error) => {
                write!(f, "{place} is damaged ({error}): {REMEDY}")
            }
            StoreErrorKind::Redb(redb::Error::Io(error)) => write!(f, "{place}: {error}"),
            StoreErrorKind::Redb(error) => write!(f, "{place} is damaged ({error}): {REMEDY}"),
            StoreErrorKind::Format(found) => write!(
                f,
                "{place} has format {found}, but this version supports {FORMAT}: use the version that wrote it, or \
                 another state_dir"
            ),
            StoreErrorKind::Broken(what) => write!(f, "{place} is damaged ({what}): {REMEDY}"),
            StoreErrorKind::Empty => write!(f, "{place} is damaged (it is empty): {REMEDY}"),
            StoreErrorKind::Panicked(text) => {
                write!(f, "{place} is damaged (redb panicked: {text}): {REMEDY}")
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            StoreErrorKind::Redb(error) => Some(error),
            StoreErrorKind::Format(_)
            | StoreErrorKind::Broken(_)
            | StoreErrorKind::Empty
            | StoreErrorKind::Panicked(_) => None,
        }
    }
}

/// Whether an error is about the file's content. redb reports files of other programs as `InvalidData`, and a file that ends
/// within a page as `UnexpectedEof`.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

const REMEDY: &str = "move it away to start with an empty store, or restore it from a backup";

macro_rules! from {
    ($($error:ty),*) => {
        $(impl From<$error> for StoreErrorKind {
            fn from(error: $error) -> Self {
                Self::Redb(error.into())
            }
        })*
    };
}

from!(io::Error, DatabaseError, StorageError, TableError, redb::TransactionError, redb::CommitError);
