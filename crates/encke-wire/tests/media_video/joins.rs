//! A listener that joins at a start receives the frames that follow, by the verdict of independent demultiplexers.

use super::demuxers::{Frames, frames};
use super::record::{Kind, Record, split, streams};

/// Returns whether each tail is the end of the whole stream's frames.
fn is_end<E>(tail: &Result<Frames, E>, whole: &Frames) -> bool {
    tail.as_ref().is_ok_and(|tail| !tail.is_empty() && whole.ends_with(tail))
}

/// How many frames of the leading track apart starts are. The files have a key frame each ten frames. In one file a fragment
/// has all frames up to the next key frame. In that of H.265 some frames are shown earlier than the key frame before them.
fn apart(name: &str, record: &Record) -> usize {
    let video = record.info.as_ref().is_some_and(|info| info.video);
    if video && name != "h264-aac.mp4" && !name.contains("h265") { 10 } else { 1 }
}

fn joins(kind: Kind, bytes: &[u8]) -> (Record, Frames) {
    let record = split(kind, [bytes]);
    let whole = frames(kind, bytes).expect("the file is valid");
    assert!(whole.len() >= 2);
    (record, whole)
}

#[test]
fn every_join_has_the_head_and_all_frames_from_a_key_frame_on() {
    for (name, kind, bytes) in streams() {
        let (record, whole) = joins(kind, &bytes);
        let tails = record.tails(0);
        let mut last = usize::MAX;
        for (at, (head, tail)) in tails.iter().enumerate() {
            let found = frames(kind, &[&head[..], tail].concat());
            assert!(is_end(&found, &whole), "{name}, join {at}: {:?}", found.map(|found| found.len()));
            let found = found.unwrap_or_default();
            assert!(at > 0 || found.len() == whole.len(), "{name}: the first start is the first frame");
            assert!(found.len() < last, "{name}, join {at}: fewer frames than before");
            assert_eq!(
                (whole.len() - found.len()) % apart(&name, &record),
                0,
                "{name}, join {at}: no key frame"
            );
            last = found.len();
        }
    }
}

#[test]
fn a_join_without_the_head_is_not_a_stream() {
    for (name, kind, bytes) in streams() {
        let (record, whole) = joins(kind, &bytes);
        for (_, tail) in record.tails(0) {
            match kind {
                // The tables come again, but the first frame is lost, unless they are in front of it.
                Kind::Ts => {
                    let found = frames(kind, &tail).expect("packets");
                    assert!(found.len() < whole.len() || found.is_empty(), "{name}");
                }
                _ => assert!(!is_end(&frames(kind, &tail), &whole), "{name}"),
            }
        }
    }
}

#[test]
fn a_join_one_unit_late_has_no_key_frame_first() {
    for (name, kind, bytes) in streams() {
        let (record, whole) = joins(kind, &bytes);
        if apart(&name, &record) == 1 {
            continue;
        }
        let late = record.tails(1).into_iter().filter(|(head, tail)| {
            let found = frames(kind, &[&head[..], tail].concat());
            !is_end(&found, &whole) || !(whole.len() - found.unwrap_or_default().len()).is_multiple_of(10)
        });
        let (late, all) = (late.count(), record.tails(1).len());
        // Matroska: the next Cluster may be a start, and a demultiplexer skips blocks up to the next Cluster.
        match (kind, name.as_str()) {
            (Kind::Matroska, "h264-aac.mkv") => assert!(late > 0),
            (Kind::Matroska, _) => {}
            _ => assert!(late == all && all > 1, "{name}: {late} of {all}"),
        }
    }
}
