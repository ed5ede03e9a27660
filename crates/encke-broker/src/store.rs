//! The store: one redb file, one transaction a commit.
//!
//! ```text
//!  numbers   format, epoch, newest, ceiling, forgotten, …            name ─► number
//!  messages  of durable channels                        (channel, offset) ─► record
//!  lost      of durable channels                                 channel  ─► offset
//!  rings     of all other channels, at a planned end    (channel, offset) ─► record
//!  ring_lost                                                     channel  ─► offset
//! ```
//! A commit is synced before it returns. An error closes the file; the next commit opens it again, so that what a full
//! disk or a moment's fault has broken is mended when there is space, or the disk is back.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use encke_hub::limits::CEILING;
use encke_hub::{Commit, Epoch, Name, Saved, SavedChannel, Stored};
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, StorageError, TableDefinition, TableError,
    WriteTransaction,
};

use crate::record;

type Numbers = TableDefinition<'static, &'static str, u64>;
type Records = TableDefinition<'static, (&'static str, u64), &'static [u8]>;

const NUMBERS: Numbers = TableDefinition::new("numbers");
const MESSAGES: Records = TableDefinition::new("messages");
const LOST: Numbers = TableDefinition::new("lost");
const RINGS: Records = TableDefinition::new("rings");
const RING_LOST: Numbers = TableDefinition::new("ring_lost");
const DURABILITY: TableDefinition<&str, &str> = TableDefinition::new("durability");

/// What this code writes. Another number is another arrangement.
const FORMAT: u64 = 1;

/// Bytes of pages that are kept in memory. All messages are in the rings anyway; a commit touches a few dozen pages.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Opens the file, as often as that is needed.
pub type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// Messages on disk.
pub struct Store {
    /// What errors call it.
    place: PathBuf,
    opener: Opener,
    /// `None` after an error, until the next commit.
    database: Option<Database>,
}

/// What was in a store.
#[derive(Debug)]
pub struct Contents {
    /// Where the stream goes on.
    pub saved: Saved,
    /// Offsets up to here may be given before the first commit.
    pub ceiling: u64,
    /// How the life before this one ended.
    pub end: End,
}

/// How the life before this one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There was none.
    New,
    /// By [`Store::close`]: nothing is lost.
    Planned,
    /// Without warning: what was only in memory is lost.
    Abrupt,
}

impl Store {
    /// Opens the store in a file, which is made if it is not there. `fresh` names the stream if another one has to
    /// begin.
    ///
    /// # Errors
    /// Another process has it, it is no store or one of another format, or the system's own.
    pub fn open(path: &Path, fresh: Epoch) -> Result<(Self, Contents), StoreError> {
        let file = path.to_owned();
        let opener = move || Database::builder().set_cache_size(CACHE_BYTES).create(&file);
        Self::open_by(path, Box::new(opener), fresh)
    }

    /// As [`Store::open`], by an opener.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_by(place: &Path, opener: Opener, fresh: Epoch) -> Result<(Self, Contents), StoreError> {
        let mut store = Self { place: place.to_owned(), opener, database: None };
        let contents = store.attempt(|database| begin(database, fresh))?;
        Ok((store, contents))
    }

    /// Stores a commit, whole or not at all: when this returns, it survives the loss of power.
    ///
    /// # Errors
    /// The disk is full or failed. Whether it was stored is not known then.
    pub fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let store = |database: &Database| {
            let transaction = database.begin_write()?;
            write(&transaction, commit)?;
            Ok(transaction.commit()?)
        };
        match self.attempt(store) {
            // Pages that the last commit has freed are there for the next one but one, or when the file is opened anew.
            Err(error) if error.is_full() => self.attempt(store),
            other => other,
        }
    }

    /// Stores what is left to store, and the rings of channels that are not durable: the next life begins where this
    /// one ends.
    ///
    /// # Errors
    /// As [`Store::commit`]; the next life begins as after an end without warning.
    pub fn close(&mut self, commit: Option<&Commit>, saved: &Saved) -> Result<(), StoreError> {
        self.attempt(|database| {
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
        })?;
        self.database = None;
        Ok(())
    }

    /// Does something with the file; after an error it is opened anew the next time.
    fn attempt<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        let done = match self.database.take() {
            Some(database) => Ok(database),
            None => (self.opener)().map_err(Fault::from),
        };
        let done = done.and_then(|database| act(&database).map(|value| (database, value)));
        match done {
            Ok((database, value)) => {
                self.database = Some(database);
                Ok(value)
            }
            Err(fault) => Err(StoreError { place: self.place.clone(), fault }),
        }
    }
}

/// Reads what is there, and begins a life: from here on an end without warning is one.
fn begin(database: &Database, fresh: Epoch) -> Result<Contents, Fault> {
    let reading = database.begin_read()?;
    let contents = match numbers(&reading)? {
        Some(numbers) => read(&reading, &numbers, fresh)?,
        None => Contents {
            saved: Saved {
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
    // A ring is good for one planned restart.
    transaction.delete_table(RINGS)?;
    transaction.delete_table(RING_LOST)?;
    transaction.commit()?;
    Ok(contents)
}

/// What a store says of itself.
struct Known {
    epoch: Epoch,
    newest: u64,
    ceiling: u64,
    forgotten_to: u64,
    ring_forgotten_to: u64,
    early: bool,
    planned: bool,
}

/// `None`: nothing was ever stored.
fn numbers(reading: &ReadTransaction) -> Result<Option<Known>, Fault> {
    let numbers = match reading.open_table(NUMBERS) {
        Ok(numbers) => numbers,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let number = |name| Ok::<_, Fault>(numbers.get(name)?.map(|value| value.value()));
    let must =
        |name: &'static str| number(name)?.ok_or_else(|| Fault::Broken(format!("it has no number {name:?}")));
    let format = must("format")?;
    if format != FORMAT {
        return Err(Fault::Format(format));
    }
    Ok(Some(Known {
        epoch: Epoch(must("epoch")?),
        newest: number("newest")?.unwrap_or(0),
        ceiling: must("ceiling")?,
        forgotten_to: must("forgotten_to")?,
        ring_forgotten_to: number("ring_forgotten_to")?.unwrap_or(0),
        early: must("early")? != 0,
        planned: must("planned")? != 0,
    }))
}

fn read(reading: &ReadTransaction, known: &Known, fresh: Epoch) -> Result<Contents, Fault> {
    let mut channels = channels(reading, (MESSAGES, LOST), true, known.forgotten_to)?;
    if known.planned {
        channels.extend(self::channels(reading, (RINGS, RING_LOST), false, known.ring_forgotten_to)?);
    }
    // The least recently used first; a channel was used last when it got its newest message.
    channels.sort_by_key(|channel| channel.messages.last().map(|stored| stored.message.offset));
    let newest = if known.planned { known.newest } else { known.ceiling };
    let durability = match reading.open_table(DURABILITY)?.get("")? {
        Some(text) => text.value().into(),
        None => Box::default(),
    };
    Ok(Contents {
        saved: Saved {
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

/// Channels with their messages, from one pair of tables.
fn channels(
    reading: &ReadTransaction,
    (records, lost): (Records, Numbers),
    durable: bool,
    forgotten_to: u64,
) -> Result<Vec<SavedChannel>, Fault> {
    let (records, lost) = (reading.open_table(records)?, reading.open_table(lost)?);
    let mut channels: Vec<SavedChannel> = Vec::new();
    let named = |text: &str| {
        Name::parse(text.as_bytes()).map_err(|_| Fault::Broken(format!("{text:?} is no channel's name")))
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
            .ok_or_else(|| Fault::Broken(format!("message {offset} of {text} is no message")))?;
        channel.messages.push(stored);
    }
    // Nothing is left of some but what they have lost.
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

fn write(transaction: &WriteTransaction, commit: &Commit) -> Result<(), Fault> {
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
    for (channel, to) in &commit.lost {
        messages.retain_in((channel.as_str(), 0)..=(channel.as_str(), *to), |_, _| false)?;
        lost.insert(channel.as_str(), to)?;
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
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Redb(redb::Error),
    Format(u64),
    Broken(String),
}

impl StoreError {
    /// There is no space left, by the disk or by a quota.
    pub fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        matches!(&self.fault, Fault::Redb(redb::Error::Io(error)) if full.contains(&error.kind()))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display();
        match &self.fault {
            Fault::Redb(redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch) => {
                write!(f, "{place} is in use by another process: give each server a state_dir of its own")
            }
            Fault::Redb(redb::Error::Io(error)) => write!(f, "{place}: {error}"),
            Fault::Redb(redb::Error::Corrupted(what)) => {
                write!(f, "{place} is damaged ({what}): move it away to begin anew, or take it from a backup")
            }
            Fault::Redb(error) => write!(f, "{place}: {error}"),
            Fault::Format(found) => write!(
                f,
                "{place} has format {found}, and this version knows {FORMAT}: use the version that wrote it, or \
                 another state_dir"
            ),
            Fault::Broken(what) => {
                write!(f, "{place} is damaged: {what}; move it away to begin anew, or take it from a backup")
            }
        }
    }
}

impl std::error::Error for StoreError {}

macro_rules! from {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::Redb(error.into())
            }
        })*
    };
}

from!(DatabaseError, StorageError, TableError, redb::TransactionError, redb::CommitError);
