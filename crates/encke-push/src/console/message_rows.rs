//! The lists of a channel's kept messages and of its members.

use encke_hub::{ChannelCursor, Message, Name, Position};
use encke_io::Now;
use encke_stats::{ListTicket, Query, Row};

use crate::push_worker::{PushWorker, hub_now};

/// The columns of messages, in the order of display.
pub(super) const MESSAGE_COLUMNS: &[&str] =
    &["channel", "id", "time_ms", "event", "content_type", "bytes", "text"];
/// The columns of members, in the order of display.
pub(super) const MEMBER_COLUMNS: &[&str] = &["channel", "member", "count"];

/// Limit of messages that become rows in a turn: about 0.1 ms.
const SLICE_MESSAGES: usize = 128;
/// Characters of a text that a row shows.
const TEXT_CHARS: usize = 200;
/// Limit of channels visited in a turn for their members: about 0.1 ms without members.
const SLICE_CHANNELS: u32 = 256;

/// The kept messages of one channel. Without a condition on the channel the list is empty: all messages of all channels may be
/// 256 MiB.
pub(crate) struct MessageRows {
    ticket: ListTicket,
    channel: Option<Name>,
    /// The next message follows this offset.
    after: u64,
    /// With the newest messages alone: their number. Cleared once their beginning is found.
    newest: Option<usize>,
}

impl MessageRows {
    pub(super) fn new(query: Query, ticket: ListTicket, only: Option<Option<Name>>) -> Self {
        let by_time = query.sort.as_ref().is_some_and(|sort| sort.column == "time_ms" && sort.descending);
        let is_plain = query.filter.is_none() && query.whole.len() <= 1;
        let newest = (by_time && is_plain).then_some(query.limit);
        Self { ticket, channel: only.flatten(), after: 0, newest }
    }

    /// Adds the next messages. Returns whether the list is complete.
    pub(super) fn advance(&mut self, worker: &PushWorker) -> bool {
        let Some(channel) = &self.channel else { return true };
        let Some(sequencer) = worker.sequencer_of(channel) else { return true };
        if let Some(most) = self.newest.take() {
            let (after, omitted) = sequencer.before_newest(channel, most);
            self.after = after;
            self.ticket.add_selected(Vec::new(), omitted);
        }
        let epoch = sequencer.newest().epoch;
        let mut count = 0;
        let messages = sequencer.kept_messages(channel, self.after, SLICE_MESSAGES);
        self.ticket.add(messages.map(|message| {
            count += 1;
            self.after = message.offset;
            message_row(message, Position { epoch, offset: message.offset })
        }));
        count < SLICE_MESSAGES
    }
}

fn message_row(message: &Message, id: Position) -> Row {
    let default_type = if message.text { "text/plain" } else { "application/octet-stream" };
    let text = if message.text { std::str::from_utf8(&message.data).unwrap_or_default() } else { "" };
    let text: String = text.chars().take(TEXT_CHARS).collect();
    Row(vec![
        ("channel", message.channel.as_str().to_owned().into()),
        ("id", id.to_string().into()),
        ("time_ms", message.unix_ms.into()),
        ("event", message.event.as_deref().unwrap_or_default().to_owned().into()),
        ("content_type", message.content_type.as_deref().unwrap_or(default_type).to_owned().into()),
        ("bytes", (message.data.len() as u64).into()),
        ("text", text.into()),
    ])
}

/// The members of one channel, or of all.
pub(crate) struct MemberRows {
    ticket: ListTicket,
    only: Option<Option<Name>>,
    cursor: ChannelCursor,
    /// The stream that the walk is in.
    stream: usize,
}

impl MemberRows {
    pub(super) fn new(ticket: ListTicket, only: Option<Option<Name>>) -> Self {
        Self { ticket, only, cursor: ChannelCursor::default(), stream: 0 }
    }

    /// Visits the next channels. Returns whether the list is complete.
    pub(super) fn advance(&mut self, worker: &PushWorker, now: Now) -> bool {
        if let Some(only) = &self.only {
            only.iter().for_each(|name| self.add(worker, name));
            return true;
        }
        let Some(sequencer) = worker.sequencers().nth(self.stream) else { return true };
        let mut found = Vec::new();
        let unix_ms = hub_now(now).unix_ms;
        let is_over = sequencer.each_channel(&mut self.cursor, SLICE_CHANNELS, unix_ms, |name, figures| {
            if figures.rules.presence {
                found.push(name.clone());
            }
        });
        found.iter().for_each(|name| self.add(worker, name));
        self.stream += usize::from(is_over);
        self.stream >= worker.sequencers().count()
    }

    fn add(&self, worker: &PushWorker, channel: &Name) {
        let members = worker.sequencer_of(channel).map(|sequencer| sequencer.member_counts(channel));
        self.ticket.add(members.into_iter().flatten().map(|member| {
            Row(vec![
                ("channel", channel.as_str().to_owned().into()),
                ("member", member.name.to_string().into()),
                ("count", u64::from(member.count).into()),
            ])
        }));
    }
}
