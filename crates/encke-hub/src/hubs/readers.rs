//! Subscribers of all streams, as an operator sees them.

use super::{Hubs, SubscriberKind};
use crate::hub::ReaderState;
use crate::name::Name;
use crate::subscriber::SubscriberId;

impl Hubs {
    /// See [`Hub::reader_states`](crate::Hub::reader_states). Messages that a span holds until it is writable count as well.
    pub fn reader_states(&self, id: SubscriberId, only: Option<&Name>, most: usize) -> Vec<ReaderState> {
        let at = match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => {
                return self.hubs.get(stream).map_or_else(Vec::new, |hub| hub.reader_states(id, only, most));
            }
            SubscriberKind::Span(at) => at,
        };
        let mut states = Vec::new();
        for strand in
            self.spans.get(at).into_iter().flat_map(|span| &span.strands).filter(|strand| strand.here)
        {
            let Some(hub) = self.hubs.get(strand.stream) else { continue };
            let mut found = hub.reader_states(strand.id, only, most - states.len());
            for message in strand.pending_run.iter().flat_map(|run| &run.messages) {
                if let Some(state) = found.iter_mut().find(|state| state.channel == message.channel) {
                    state.behind += 1;
                    state.behind_bytes += message.data.len() as u64;
                    let since_ms = state.behind_since_ms.unwrap_or(u64::MAX).min(message.unix_ms);
                    state.behind_since_ms = Some(since_ms);
                }
            }
            states.append(&mut found);
        }
        states
    }

    /// See [`Hub::readers`](crate::Hub::readers).
    pub fn readers(&self, name: &Name) -> usize {
        self.hubs.get(self.streams.of(name)).map_or(0, |hub| hub.readers(name))
    }

    /// Returns the server's identifiers of the subscribers of a channel on this worker.
    pub fn reader_keys(&self, name: &Name) -> Vec<u64> {
        let Some(hub) = self.hubs.get(self.streams.of(name)) else { return Vec::new() };
        let own = |(key, is_part)| {
            // The key of a part is the index of its span.
            let span = || u32::try_from(key).ok().and_then(|at| self.spans.get(at)).map(|span| span.key);
            if is_part { span() } else { Some(key) }
        };
        hub.reader_keys(name).filter_map(own).collect()
    }
}
