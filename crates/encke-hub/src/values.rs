//! Values that the sequencer and the hubs exchange. The queues between them must keep the order, and may delay it.

use std::sync::Arc;

use crate::message::Message;
use crate::name::Name;
use crate::preamble::ChannelPreamble;
use crate::subscriber::{Member, SubscriberId};

/// A value from the sequencer to a worker, in one order over all channels that the worker wants. After a message, an opening or
/// a head, all earlier messages of these channels have been fed or reported lost.
#[derive(Clone, Debug)]
pub enum Feed {
    /// The response to [`FeedRequest::Want`]: the current state of a channel.
    Opened {
        /// The channel.
        channel: Name,
        /// Messages of the channel up to this offset are lost.
        lost_to: u64,
        /// The worker has been fed everything up to this offset.
        head: u64,
        /// The kept messages of the channel up to `head`, oldest first.
        messages: Vec<Arc<Message>>,
        /// The preamble of the channel, which may have a higher offset than `head`.
        preamble: Option<Box<ChannelPreamble>>,
    },
    /// The next message.
    Message {
        /// The message, which names its channel.
        message: Arc<Message>,
        /// Messages of the channel up to this offset are lost.
        lost_to: u64,
    },
    /// Messages of a channel expired, were deleted or evicted, or were lost before this worker was fed.
    Lost {
        /// The channel.
        channel: Name,
        /// Messages up to this offset are lost.
        to: u64,
        /// The preamble of the channel, which may be among the lost messages or have a higher offset.
        preamble: Option<Box<ChannelPreamble>>,
    },
    /// No further messages for this worker exist up to this offset. An up-to-date subscriber may adopt it as its position,
    /// which stays valid for longer than an old one.
    Head {
        /// The head offset.
        to: u64,
    },
    /// The response to a [`FeedRequest::Newest`].
    Newest {
        /// The subscriber whose position is ahead.
        reader: SubscriberId,
        /// The number of the request.
        number: u64,
        /// No message has a higher offset yet. `u64::MAX` if other nodes may have such messages.
        to: u64,
    },
    /// The response to a [`FeedRequest::Recall`], which may arrive at any time.
    Recalled {
        /// The subscriber that backfills.
        reader: SubscriberId,
        /// The number of the request.
        number: u64,
        /// The messages and the losses.
        run: Recalled,
    },
}

/// Messages of some channels after an offset, read from the cluster stream instead of the rings.
#[derive(Clone, Debug, Default)]
pub struct Recalled {
    /// Messages up to this offset are lost.
    pub lost_to: u64,
    /// Messages of some of the channels are deleted up to this offset; 0 for none.
    pub gone_to: u64,
    /// Every message up to this offset is lost or contained in `messages`. If it is below the requested offset, the hub
    /// requests the rest. 0 if the stream cannot be read now.
    pub to: u64,
    /// The messages in offset order, about as many as fit into one run.
    pub messages: Vec<Arc<Message>>,
}

/// A request from a worker to the sequencer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedRequest {
    /// A local subscriber wants the channel: open it for this worker.
    Want {
        /// The channel.
        channel: Name,
    },
    /// The channel has had no local subscriber for a while.
    Unwant {
        /// The channel.
        channel: Name,
    },
    /// Subscribers joined and left a channel.
    Count {
        /// The channel.
        channel: Name,
        /// Number of subscribers that joined.
        joined: u32,
        /// Number of subscribers that left.
        left: u32,
    },
    /// Subscribers of a channel have lost messages because they were behind its ring. For operators only.
    Slow {
        /// The channel.
        channel: Name,
        /// Number of subscribers that were removed.
        ended: u32,
        /// Number of times that a subscriber stayed and skipped messages.
        skipped: u32,
    },
    /// A member joins; several subscribers may join under one name.
    Joined {
        /// The channel.
        channel: Name,
        /// The member.
        member: Member,
    },
    /// A member leaves. Each [`FeedRequest::Joined`] is followed by one of these.
    Left {
        /// The channel.
        channel: Name,
        /// The name of the member.
        member: Arc<str>,
    },
    /// Asks for the newest offset, for a subscriber whose position is ahead of everything fed to this worker. The response
    /// separates a lagging worker from a position that never existed.
    Newest {
        /// The subscriber.
        reader: SubscriberId,
        /// Number of the request; a later subscriber may have the same id.
        number: u64,
    },
    /// A subscriber is at a position before the rings and backfills ([`Rules::recalls`](crate::Rules::recalls)).
    Recall {
        /// The subscriber.
        reader: SubscriberId,
        /// Number of the request, unique on this worker.
        number: u64,
        /// The channels to read.
        channels: Vec<Name>,
        /// Read messages after this offset.
        after: u64,
        /// Read messages up to this offset.
        to: u64,
    },
}
