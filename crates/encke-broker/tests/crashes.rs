//! The store on a disk that loses power: each write that was not synced is lost or kept.
//!
//! A run publishes, trims, deletes and restarts at random through a real sequencer. The disk counts its syncs, and the power
//! fails at a random one. The store is then opened again and compared with the acknowledged messages.
//!
//! Planted faults show that the test finds them:
//!
//! | planted | where | the test's message |
//! |---|---|---|
//! | the commit is not synced (`Durability::None`) | `Store::commit` | a loss is silent, seed 1 |
//! | acknowledges even failed commits | `committed(…, Ok(()))` in this file | a loss is silent, seed 3 |
//! | no ceiling | `newest = known.newest` in `read` | an offset may come again, seed 1 |
//! | lost offsets are not written | no `lost.insert` in `write` | a loss is silent, seed 1 |

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use encke_broker::sim::Disk;
use encke_broker::{Contents, End, Store};
use encke_hub::{
    Ack, ChannelRules, Commit, Deletion, Draft, Epoch, Flags, HubNow, IdempotencyKey, Name, PublishError,
    PublishTicket, Publishing, Rules, Sequencer,
};

/// Xorshift64*: a seed determines the run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }
}

const NAMES: [&str; 4] = ["disk/a", "disk/b", "disk/c", "memory"];
const KEPT: usize = 4;
const STEPS: u64 = 60;

fn rules() -> Arc<Rules> {
    let mut rules = Rules::default();
    rules.default.messages = KEPT;
    let durable = ChannelRules { durable: true, ack: Ack::Stored, messages: KEPT, ..ChannelRules::default() };
    rules.set("disk/*".parse().expect("a pattern"), durable);
    Arc::new(rules)
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn now(step: u64) -> HubNow {
    HubNow { mono_ns: step * 300_000_000, unix_ms: 1_000_000 + step }
}

/// The publishers' knowledge.
#[derive(Default)]
struct Known {
    /// Acknowledged messages, by channel and offset.
    acknowledged: BTreeMap<(usize, u64), String>,
    /// Offset up to which a channel was deleted; the outcome may be unknown.
    deleted: BTreeMap<usize, u64>,
    /// Ticket of a channel's last delete in this run of the server: it deletes all messages published before it.
    deletes: BTreeMap<usize, PublishTicket>,
    offsets: HashSet<u64>,
}

#[derive(Default, Debug)]
struct Tally {
    crashes: u64,
    planned: u64,
    acknowledged: u64,
    restored: u64,
    losses: u64,
    full: u64,
}

/// Runs a server until its planned end (`Ok`), or until its disk fails (`Err`).
fn live(seed: u64, disk: &Disk, random: &mut Random, known: &mut Known, tally: &mut Tally) -> Result<(), ()> {
    let opened = Store::open_by(Path::new("a disk"), disk.opener(), Epoch(7));
    let (mut store, contents) = opened.map_err(drop)?;
    let Contents { saved, ceiling, end } = contents;
    check(seed, &saved, end, known, tally);
    let mut sequencer = Sequencer::restore(now(0), saved, ceiling, rules(), 1);
    let mut asked: BTreeMap<PublishTicket, (usize, String)> = BTreeMap::new();
    let mut number = 0;
    known.deletes.clear();
    for step in 1..=STEPS {
        for _ in 0..random.below(4) {
            let channel = random.below(NAMES.len() as u64) as usize;
            if random.below(20) == 0 {
                if let Deletion::Waits(ticket) = sequencer.delete(&name(NAMES[channel])) {
                    known.deleted.insert(channel, u64::MAX);
                    known.deletes.insert(channel, ticket);
                }
                continue;
            }
            number += 1;
            let text = format!("{step}-{number}-{}", random.below(1 << 30));
            let draft = Draft {
                channel: name(NAMES[channel]),
                data: text.as_bytes().into(),
                content_type: None,
                event: None,
                flags: Flags::default(),
                key: Some(IdempotencyKey { publisher: 1, key: text.as_str().into() }),
            };
            match sequencer.publish(now(step), draft).expect("within limits") {
                Publishing::Done(published) => {
                    assert_eq!(NAMES[channel], "memory");
                    assert!(
                        known.offsets.insert(published.position.offset),
                        "seed {seed}: an offset is given twice"
                    );
                }
                Publishing::Queued { .. } => panic!("a store has no queue"),
                Publishing::Waits(ticket) => drop(asked.insert(ticket, (channel, text))),
            }
        }
        // A delete is committed apart from the publishes around it.
        let Some(commit) = sequencer.take_commit(now(step)) else { continue };
        let outcome = store.commit(&commit);
        let refused = outcome
            .as_ref()
            .map_err(|error| if error.is_full() { PublishError::NoSpace } else { PublishError::NotStored });
        let full = refused == Err(PublishError::NoSpace);
        tally.full += u64::from(full);
        for (ticket, answer) in sequencer.committed(now(step), refused.copied()) {
            let Some((channel, text)) = asked.remove(&ticket) else { continue };
            if let Ok(published) = answer {
                let offset = published.position.offset;
                assert!(known.offsets.insert(offset), "seed {seed}: an offset is given twice");
                known.acknowledged.insert((channel, offset), text);
                if let Some(to) = known.deleted.get_mut(&channel)
                    && known.deletes.get(&channel).is_none_or(|delete| *delete < ticket)
                {
                    *to = (*to).min(offset - 1);
                }
                tally.acknowledged += 1;
            }
        }
        if outcome.is_err() && !full {
            return Err(());
        }
    }
    let commit = sequencer.take_commit(now(STEPS + 10));
    store.close(commit.as_deref(), &sequencer.save()).map_err(drop)
}

/// Compares the restored contents with the publishers' knowledge.
fn check(seed: u64, saved: &encke_hub::SavedHistories, end: End, known: &Known, tally: &mut Tally) {
    assert!(
        known.offsets.iter().all(|offset| *offset <= saved.newest),
        "seed {seed}: an offset may come again"
    );
    for (number, channel) in NAMES.iter().enumerate() {
        let durable = *channel != "memory";
        let found = saved.channels.iter().find(|saved| saved.name.as_str() == *channel);
        let forgotten = if durable { saved.durable_forgotten_to } else { saved.forgotten_to };
        let lost_to = found.map_or(forgotten, |found| found.lost_to);
        if !durable {
            assert!(end == End::Planned || found.is_none(), "seed {seed}: a ring of an earlier life");
            continue;
        }
        let kept: BTreeMap<u64, &[u8]> = found
            .iter()
            .flat_map(|found| &found.messages)
            .map(|stored| (stored.message.offset, &*stored.message.data))
            .collect();
        tally.restored += kept.len() as u64;
        let all = known.acknowledged.range((number, 0)..=(number, u64::MAX));
        let all: Vec<(u64, &String)> = all.map(|((_, offset), text)| (*offset, text)).collect();
        for (place, (offset, text)) in all.iter().enumerate() {
            match kept.get(offset) {
                Some(data) => assert_eq!(*data, text.as_bytes(), "seed {seed}"),
                None => {
                    tally.losses += 1;
                    assert!(*offset <= lost_to, "seed {seed}: {channel} {offset}: a loss is silent");
                    let evicted =
                        all.len() - place > KEPT || known.deleted.get(&number).is_some_and(|to| offset <= to);
                    // Messages without an acknowledgement may have evicted it, at most one commit of them.
                    let crowded = kept.len() + all.len() - place > KEPT;
                    assert!(
                        evicted || crowded,
                        "seed {seed}: {channel} {offset}: an acknowledged message is gone"
                    );
                }
            }
        }
        // A lost offset was assigned before, in this channel or a deleted one.
        assert!(lost_to <= saved.newest);
    }
}

#[test]
fn what_was_acknowledged_is_there_after_the_power_went_at_any_sync() {
    let mut tally = Tally::default();
    for seed in 1..=400 {
        let mut random = Random(seed * 0x9E37_79B9);
        let disk = Disk::default();
        let mut known = Known::default();
        for _ in 0..4 {
            if random.below(4) > 0 {
                disk.lose_power_at(1 + random.below(40));
            }
            match live(seed, &disk, &mut random, &mut known, &mut tally) {
                Ok(()) => tally.planned += 1,
                Err(()) => tally.crashes += 1,
            }
            disk.restart(|| random.below(2) == 0);
        }
    }
    println!("{tally:?}");
    let Tally { crashes, planned, acknowledged, restored, losses, .. } = tally;
    for (what, count) in [
        ("crash", crashes),
        ("planned end", planned),
        ("acknowledged message", acknowledged),
        ("restored message", restored),
        ("loss", losses),
    ] {
        assert!(count > 0, "no {what}: the test does not test it");
    }
}

#[test]
fn a_full_disk_refuses_and_takes_up_again_when_there_is_space() {
    let disk = Disk::default();
    let commit = |number: u64, bytes: usize| Commit {
        epoch: Epoch(7),
        ceiling: 1_000,
        early: false,
        durability: Box::default(),
        forgotten_to: 0,
        void: Vec::new(),
        lost: Vec::new(),
        deleted: Vec::new(),
        forgotten: Vec::new(),
        messages: vec![encke_hub::Stored {
            message: Arc::new(encke_hub::Message {
                offset: number,
                channel: name("disk/a"),
                data: vec![b'x'; bytes].into(),
                text: true,
                content_type: None,
                event: None,
                unix_ms: 0,
                flags: Flags::default(),
            }),
            key: None,
        }],
    };
    let (mut store, _) = Store::open_by(Path::new("a disk"), disk.opener(), Epoch(7)).expect("it opens");
    store.commit(&commit(1, 10)).expect("there is space");
    disk.fill(true);
    let mut refused = 0;
    for number in 2..40 {
        if let Err(error) = store.commit(&commit(number, 200_000)) {
            assert!(error.is_full(), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 0);
    disk.fill(false);
    store.commit(&commit(50, 200_000)).expect("there is space again");
    drop(store);
    let (_, contents) = Store::open_by(Path::new("a disk"), disk.opener(), Epoch(8)).expect("it opens");
    assert_eq!((contents.end, contents.saved.epoch), (End::Abrupt, Epoch(7)));
    let offsets: Vec<u64> =
        contents.saved.channels[0].messages.iter().map(|stored| stored.message.offset).collect();
    assert_eq!((offsets.first(), offsets.last()), (Some(&1), Some(&50)));
}

/// A commit of messages, by offset and size, or of deletes.
fn commit(bytes: &[(u64, usize)], deleted: &[(&str, u64)]) -> Commit {
    let stored = |&(offset, bytes): &(u64, usize)| encke_hub::Stored {
        message: Arc::new(encke_hub::Message {
            offset,
            channel: name(NAMES[offset as usize % 3]),
            data: vec![b'x'; bytes].into(),
            text: true,
            content_type: None,
            event: None,
            unix_ms: 0,
            flags: Flags::default(),
        }),
        key: None,
    };
    Commit {
        epoch: Epoch(7),
        ceiling: 1 << 40,
        early: false,
        durability: Box::default(),
        forgotten_to: 0,
        void: Vec::new(),
        lost: Vec::new(),
        deleted: deleted.iter().map(|(channel, to)| (name(channel), *to)).collect(),
        forgotten: Vec::new(),
        messages: bytes.iter().map(stored).collect(),
    }
}

#[test]
fn a_delete_is_stored_on_a_full_disk_and_makes_room() {
    for seed in 1..=100 {
        let mut random = Random(seed * 0x9E37_79B9);
        let disk = Disk::default();
        let reopened = || Store::open_by(Path::new("a disk"), disk.opener(), Epoch(7));
        let (mut store, _) = reopened().expect("it opens");
        let mut offset = 0;
        // The disk is full at some file size. Then whatever still fits is stored, down to the smallest message.
        for _ in 0..random.below(60) {
            offset += 1;
            let bytes = 1 << random.below(18);
            store.commit(&commit(&[(offset, bytes)], &[])).expect("there is space");
        }
        disk.fill(true);
        for bytes in [300_000, 60_000, 3_000, 30, 0] {
            for _ in 0..100_000 {
                offset += 1;
                let several = (0..1 + random.below(4)).map(|place| (offset + place, bytes));
                let several: Vec<(u64, usize)> = several.collect();
                offset += several.len() as u64;
                let done = store.commit(&commit(&several, &[]));
                if let Err(error) = done {
                    assert!(error.is_full(), "seed {seed}: {error}");
                    break;
                }
            }
        }
        if random.below(2) == 0 {
            // A restart, planned or not, must be possible as well.
            drop(store);
            if random.below(2) == 0 {
                disk.restart(|| random.below(2) == 0);
                disk.fill(true);
            }
            store = reopened().unwrap_or_else(|error| panic!("seed {seed}: {error}")).0;
        }
        for channel in ["disk/b", "disk/c", "disk/a"] {
            let deletes = commit(&[], &[(channel, offset)]);
            store.commit(&deletes).unwrap_or_else(|error| panic!("seed {seed}: {channel}: {error}"));
        }
        let message = commit(&[(offset + 1, 1_000)], &[]);
        store.commit(&message).unwrap_or_else(|error| panic!("seed {seed}: after the deletes: {error}"));
        drop(store);
        let (_, contents) = reopened().expect("it opens");
        let kept: Vec<u64> = contents
            .saved
            .channels
            .iter()
            .flat_map(|channel| &channel.messages)
            .map(|stored| stored.message.offset)
            .collect();
        assert_eq!(kept, [offset + 1], "seed {seed}");
    }
}

#[test]
fn the_reserve_suffices_to_delete_all_that_memory_holds() {
    let disk = Disk::default();
    let (mut store, _) = Store::open_by(Path::new("a disk"), disk.opener(), Epoch(7)).expect("it opens");
    // 64 MiB, each message in a page of its own: a quarter of the default memory, and a quarter of the reserve.
    for number in 0..16 {
        let several: Vec<(u64, usize)> =
            (1..=1_024).map(|place| ((number * 1_024 + place) * 3, 3_000)).collect();
        store.commit(&commit(&several, &[])).expect("there is space");
    }
    disk.fill(true);
    let fits = (1 << 29..).take_while(|place| store.commit(&commit(&[(place * 3, 3_000)], &[])).is_ok());
    assert!(fits.count() > 0, "the file had room");
    store.commit(&commit(&[], &[("disk/a", 1 << 30)])).expect("it is stored");
}
