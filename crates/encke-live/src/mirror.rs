//! Fallbacks: a stream whose source is absent carries the messages of another one.
//!
//! ```text
//! source of `pause` ─► pause ─┬─► listeners of pause
//!                             └─► film, while it has no source: a new head, then from the next start on
//! ```
//! In a cluster the source of `pause` may be on another node. While `film` has listeners here, and no source on any node, `pause` is
//! pulled from that node, and its pull is the source here.

use std::sync::Arc;

use encke_io::lock;
use encke_push::{Draft, Flags, Name, PushPublisher};
use encke_wire::media::Container;
use encke_wire::media::gather::{MediaPiece, PieceKind};

use crate::state::{LiveChannel, LiveChannelState, LiveState};

impl LiveState {
    /// Publishes a piece of a stream also to the streams that it replaces. `inner` is the state of the stream before the piece.
    pub(crate) fn mirror(
        &self,
        name: &Name,
        inner: &LiveChannelState,
        piece: &MediaPiece,
        publisher: &PushPublisher,
    ) {
        for (stream, names) in self.replaced_by(name) {
            // The other stream may be a fallback of this one, too; then its own source holds the lock.
            let Ok(mut other) = stream.inner.try_lock() else { continue };
            if other.source.is_some() {
                continue;
            }
            let container = inner.info.as_ref().map_or(Container::Unknown, |info| info.container);
            let head = if piece.kind == PieceKind::Head { &piece.data } else { &*inner.head };
            let begins = !other.falls_back && piece.start;
            if begins || (other.falls_back && piece.kind == PieceKind::Head) {
                other.falls_back = true;
                other.held_until_ns = None;
                other.info.clone_from(&inner.info);
                let flags = other.take_head(container, head);
                publisher.publish(Draft { flags, ..Draft::new(names.clone(), head.to_vec()) }, |_| {});
                other.wake();
            }
            if other.falls_back && piece.kind == PieceKind::Data {
                let draft = Draft { flags: flags_of(piece), ..Draft::new(names, piece.data.clone()) };
                publisher.publish(draft, |_| {});
            }
        }
    }

    /// The source of a stream is lost: the streams that it has replaced wait for `hold`, too.
    pub(crate) fn end_mirrors(&self, name: &Name, now_ns: u64) {
        for (stream, _) in self.replaced_by(name) {
            let hold_ns = self.rules_of(&stream.name).hold.nanoseconds();
            if let Ok(mut other) = stream.inner.try_lock()
                && std::mem::take(&mut other.falls_back)
            {
                other.held_until_ns = Some(now_ns.saturating_add(hold_ns));
            }
        }
    }

    /// Returns the fallback of a stream, if it is to be fetched from another node: the stream has no source in the cluster, and
    /// cannot be pulled from elsewhere, and its fallback has a source on a node that can be reached.
    pub(crate) fn fallback_elsewhere(&self, name: &Name, now_ns: u64) -> Option<Arc<LiveChannel>> {
        if !self.is_clustered() || self.holder_of(name).is_some() {
            return None;
        }
        let has_failed =
            || self.find(name).is_some_and(|stream| lock(&stream.inner).pull_failure(now_ns).is_some());
        if !self.rules_of(name).pull.is_empty() && !has_failed() {
            return None;
        }
        let fallback = self.fallback_of(name).filter(|fallback| fallback != name)?;
        self.places_of(&fallback).node?;
        let stream = self.found_or_made(&fallback);
        let is_here = lock(&stream.inner).source.is_some();
        (!is_here).then_some(stream)
    }

    /// Returns whether a stream replaces another one that has listeners.
    pub(crate) fn replaces_for_listeners(&self, name: &Name) -> bool {
        self.replaced_by(name)
            .iter()
            .any(|(stream, _)| stream.listeners.count() > 0 && lock(&stream.inner).source.is_none())
    }

    /// Returns the known streams whose fallback is this one.
    fn replaced_by(&self, name: &Name) -> Vec<(Arc<LiveChannel>, Name)> {
        if !self.has_fallbacks() {
            return Vec::new();
        }
        let replaced = self
            .all()
            .into_iter()
            .filter(|stream| stream.name != *name && self.fallback_of(&stream.name).as_ref() == Some(name));
        replaced.map(|stream| (Arc::clone(&stream), stream.name.clone())).collect()
    }
}

/// Returns the flags of a message with units.
pub(crate) fn flags_of(piece: &MediaPiece) -> Flags {
    let start = if piece.start { Flags::BINARY.with(Flags::KEY_FRAME) } else { Flags::BINARY };
    if piece.continues { start.with(Flags::CONTINUES) } else { start }
}
