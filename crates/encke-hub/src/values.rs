//! What the two machines tell one another. The queues between them keep the order, and may be as slow as they like.

use std::sync::Arc;

use crate::message::Message;
use crate::name::Name;
use crate::subscriber::{Member, SubscriberId};

/// What the sequencer tells a core, in one order over all channels that the core wants: when it has told a message, an
/// opening or a head, it has told everything of those channels up to there, or that it is lost.
#[derive(Clone, Debug)]
pub enum Feed {
    /// The answer to [`Request::Want`]: what there is.
    Opened {
        /// Which channel.
        channel: Name,
        /// Up to which offset messages of it were lost.
        lost_to: u64,
        /// Up to which offset the core has now been told everything.
        head: u64,
        /// What is kept of the channel up to `head`, oldest first.
        messages: Vec<Arc<Message>>,
    },
    /// The next message.
    Message {
        /// The message, which names its channel.
        message: Arc<Message>,
        /// Up to which offset messages of the channel are lost.
        lost_to: u64,
    },
    /// Messages of a channel expired, were deleted, made room for others, or were lost before this core could be
    /// told of them.
    Lost {
        /// Which channel.
        channel: Name,
        /// Up to which offset.
        to: u64,
    },
    /// There was nothing else up to here: whoever stands still on this core may call this its position, which lasts
    /// longer than an old one.
    Head {
        /// Up to which offset.
        to: u64,
    },
    /// The answer to a [`Request::Newest`].
    Newest {
        /// The subscriber that is ahead.
        reader: SubscriberId,
        /// The number of the request.
        number: u64,
        /// No message has an offset above this one yet; `u64::MAX` if other nodes may have such messages.
        to: u64,
    },
    /// The answer to a [`Request::Recall`], whenever it comes.
    Recalled {
        /// Who has asked.
        reader: SubscriberId,
        /// As it was asked.
        number: u64,
        /// What there is.
        run: Recalled,
    },
}

/// What is still there of some channels behind an offset, in other places than the rings.
#[derive(Clone, Debug, Default)]
pub struct Recalled {
    /// Up to which offset messages are lost.
    pub lost_to: u64,
    /// Up to which offset messages of some of the channels were forgotten, or 0.
    pub gone_to: u64,
    /// Up to which offset everything is lost or among the messages. It may be short of what was asked for: then the rest
    /// is asked for again. 0: it cannot be told now.
    pub to: u64,
    /// In their order; about as many as one run takes.
    pub messages: Vec<Arc<Message>>,
}

/// What a core asks of the sequencer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Somebody here subscribes: open the channel for this core.
    Want {
        /// Which channel.
        channel: Name,
    },
    /// For a while nobody here has subscribed.
    Unwant {
        /// Which channel.
        channel: Name,
    },
    /// Subscribers came and went.
    Count {
        /// Where.
        channel: Name,
        /// How many came.
        joined: u32,
        /// How many went.
        left: u32,
    },
    /// A member joins; the same name may join several times.
    Joined {
        /// Where.
        channel: Name,
        /// The member.
        member: Member,
    },
    /// Somebody with a name went, as often as it came.
    Left {
        /// Where.
        channel: Name,
        /// Who.
        member: Arc<str>,
    },
    /// A subscriber's position is ahead of all that was fed to this core. Asks for the newest offset, which tells a core
    /// that lags from a position that never was.
    Newest {
        /// The subscriber.
        reader: SubscriberId,
        /// Names the request: a later subscriber may have the same id.
        number: u64,
    },
    /// Somebody is at a place before what is kept here ([`Rules::recalls`](crate::Rules::recalls)).
    Recall {
        /// Who.
        reader: SubscriberId,
        /// Names what is asked: nothing else that this core asks for has it.
        number: u64,
        /// Which channels.
        channels: Vec<Name>,
        /// Behind which offset.
        after: u64,
        /// Up to which offset.
        to: u64,
    },
}
