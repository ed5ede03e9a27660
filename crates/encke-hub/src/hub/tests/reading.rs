//! Unit tests of backfill: subscribers at positions before the rings, and a stream that has older messages.

use super::*;
use crate::limits::READERS_MAX;
use crate::values::Recalled;

/// A backfill request: subscriber, number, start offset and end offset.
type Asked = (SubscriberId, u64, u64, u64);

impl Rig {
    /// Creates six messages of `news`, of which rings keep two. Backfill is enabled.
    fn recalling(policy: Overrun) -> Self {
        let mut rules = rules(2, policy);
        rules.recalls = true;
        let mut rig = Self::new(&rules);
        for data in ["a", "b", "c", "d", "e", "f"] {
            rig.publish("news", data);
        }
        rig.passes(1);
        rig
    }

    /// Carries all values. Returns the backfill requests and the deliveries.
    fn asks(&mut self) -> (Vec<Asked>, Vec<String>) {
        let (mut asked, mut said) = (Vec::new(), Vec::new());
        loop {
            let mut requests = Vec::new();
            self.hub.take_requests(&mut requests);
            let mut others = 0;
            for request in requests {
                match request {
                    FeedRequest::Recall { reader, number, channels, after, to } => {
                        assert_eq!(channels, [name("news")]);
                        asked.push((reader, number, after, to));
                    }
                    other => {
                        others += 1;
                        self.sequencer.apply(self.now, 0, other);
                    }
                }
            }
            let told = self.told_now();
            if told.is_empty() && others == 0 && self.hub.requests.is_empty() {
                return (asked, said);
            }
            said.extend(told);
        }
    }

    /// Carries the feed, and returns the resulting deliveries. Requests are ignored.
    fn told_now(&mut self) -> Vec<String> {
        let mut feed = Vec::new();
        while self.sequencer.take_feed(0, 3, &mut feed) {}
        feed.into_iter().for_each(|item| self.hub.feed(self.now, item));
        let mut out = Vec::new();
        while self.hub.slice(self.now, 256, &mut self.encoder, &mut out) {}
        let words = |delivery: Delivery| match delivery.what {
            DeliveryContent::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            DeliveryContent::Last(bytes) => format!("last {}", String::from_utf8_lossy(&bytes)),
            DeliveryContent::Started { position, gap } => {
                format!("started {}{}", offset(&position), if gap.is_some() { " with a gap" } else { "" })
            }
            other => format!("{other:?}"),
        };
        out.into_iter().map(words).collect()
    }

    /// Delivers the result of a backfill request: messages with these offsets, up to an offset.
    fn comes(&mut self, reader: SubscriberId, number: u64, lost_to: u64, to: u64, offsets: &[u64]) {
        let message = |offset: &u64| {
            let data = offset.to_string();
            Arc::new(Message::placed(*offset, 1, draft("news", &data), false))
        };
        let messages = offsets.iter().map(message).collect();
        let run = Recalled { lost_to, to, messages, ..Recalled::default() };
        self.hub.feed(self.now, Feed::Recalled { reader, number, run });
    }
}

fn behind(offset: u64) -> Since {
    Since::After(Position { epoch: Epoch(7), offset }.into())
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_stream_reads_run_by_run_until_it_is_where_the_ring_begins() {
    let mut rig = Rig::recalling(Overrun::Disconnect);
    let id = rig.subscribe(&["news"], behind(1), Once::Never);
    let (asked, said) = rig.asks();
    assert_eq!((asked, said), (vec![], vec!["started 1".to_owned()]), "its head leaves first");
    rig.hub.sent(id);
    assert_eq!(rig.asks(), (vec![(id, 1, 1, 4)], vec![]));
    rig.comes(id, 1, 0, 3, &[2, 3]);
    assert_eq!(rig.asks(), (vec![], vec!["2:2 3:3 @3 +2".to_owned()]));
    // The ring advances meanwhile.
    rig.publish("news", "g");
    assert_eq!(rig.asks().1, NOTHING, "one thing after the other");
    rig.hub.sent(id);
    assert_eq!(rig.asks(), (vec![(id, 2, 3, 5)], vec![]));
    rig.comes(id, 2, 0, 5, &[4, 5]);
    assert_eq!(rig.asks().1, ["4:4 5:5 @5 +2"]);
    rig.hub.sent(id);
    assert_eq!(rig.asks(), (vec![], vec!["6:f 7:g @7".to_owned()]));
}

#[test]
fn a_poll_is_answered_with_the_first_run_and_is_gone() {
    for (once, answer) in [(Once::All, "last 2:2 3:3 4:4 @4 +2"), (Once::Oldest, "last 2:2 @2 +4")] {
        let mut rig = Rig::recalling(Overrun::Disconnect);
        let id = rig.subscribe(&["news"], behind(1), once);
        assert_eq!(rig.asks(), (vec![(id, 1, 1, 4)], vec![]));
        assert!(!rig.hub.waits(id), "it is about to be answered");
        rig.comes(id, 1, 0, 4, &[2, 3, 4]);
        assert_eq!(rig.asks().1, [answer]);
        assert_eq!(rig.hub.subscribers(), 0);
    }
}

#[test]
fn what_the_stream_has_lost_is_told_before_what_it_has() {
    let mut rig = Rig::recalling(Overrun::Disconnect);
    let id = rig.stream(&["news"], behind(1));
    assert_eq!(rig.asks().0, [(id, 1, 1, 4)]);
    rig.comes(id, 1, 3, 4, &[4]);
    assert_eq!(rig.asks().1, ["gap 1-3 @3 +3"]);
    rig.hub.sent(id);
    assert_eq!(rig.asks().1, ["4:4 @4 +2"]);
    rig.hub.sent(id);
    assert_eq!(rig.asks(), (vec![], vec!["5:e 6:f @6".to_owned()]));
    // All requested messages are lost: the gap is part of the poll's response, with the messages of the ring.
    let poll = rig.subscribe(&["news"], behind(2), Once::All);
    assert_eq!(rig.asks().0, [(poll, 2, 2, 4)]);
    rig.comes(poll, 2, 4, 4, &[]);
    assert_eq!(rig.asks().1, ["last gap 2-4 @4 +2"]);
}

#[test]
fn what_cannot_be_read_now_or_was_asked_by_somebody_else_is_asked_for_again() {
    let mut rig = Rig::recalling(Overrun::Disconnect);
    let gone = rig.stream(&["news"], behind(2));
    assert_eq!(rig.asks().0, [(gone, 1, 2, 4)]);
    rig.hub.leave(gone);
    let id = rig.stream(&["news"], behind(1));
    assert_eq!(id, gone, "the place is used again");
    assert_eq!(rig.asks().0, [(id, 2, 1, 4)]);
    rig.comes(id, 1, 0, 4, &[3, 4]);
    assert_eq!(rig.asks(), (vec![], vec![]), "that was for another");
    rig.comes(id, 2, 0, 0, &[]);
    assert_eq!(rig.asks().0, [(id, 3, 1, 4)]);
    rig.comes(id, 3, 0, 4, &[2, 3, 4]);
    assert_eq!(rig.asks().1, ["2:2 3:3 4:4 @4 +2"]);
}

#[test]
fn who_changes_its_channels_asks_anew() {
    let mut rig = Rig::recalling(Overrun::Disconnect);
    let id = rig.stream(&["news"], behind(1));
    assert_eq!(rig.asks().0, [(id, 1, 1, 4)]);
    rig.hub.change(rig.now, id, &[name("other")], &[]).expect("within limits");
    assert_eq!(rig.asks().0, [(id, 2, 1, 4)], "the new channel begins behind that");
    rig.comes(id, 1, 0, 4, &[2]);
    assert_eq!(rig.asks(), (vec![], vec![]));
    rig.comes(id, 2, 0, 4, &[2, 3, 4]);
    assert_eq!(rig.asks().1, ["2:2 3:3 4:4 @4 +2"]);
}

#[test]
fn where_only_the_latest_counts_or_who_is_too_slow_nothing_is_read() {
    let mut rig = Rig::recalling(Overrun::Latest);
    rig.subscribe(&["news"], behind(1), Once::All);
    assert_eq!(rig.asks(), (vec![], vec!["last 6:f @6".to_owned()]));
    for (policy, said) in [(Overrun::Disconnect, "Overrun"), (Overrun::Skip, "gap 6-7 @7")] {
        let mut rig = Rig::recalling(policy);
        let id = rig.stream(&["news"], behind(5));
        assert_eq!(rig.asks().1, ["6:f @6"]);
        for data in ["g", "h", "i"] {
            rig.publish("news", data);
        }
        rig.asks();
        rig.hub.sent(id);
        assert_eq!(rig.asks(), (vec![], vec![said.to_owned()]));
    }
}

#[test]
fn so_many_read_at_a_time_and_the_others_wait_for_their_turn() {
    let mut rig = Rig::recalling(Overrun::Disconnect);
    let ids: Vec<SubscriberId> =
        (0..READERS_MAX + 3).map(|_| rig.subscribe(&["news"], behind(1), Once::Never)).collect();
    rig.asks();
    ids.iter().for_each(|id| rig.hub.sent(*id));
    let (asked, _) = rig.asks();
    assert_eq!(asked.len(), READERS_MAX);
    // After the first delivery, while its bytes are sent, another subscriber may request.
    rig.comes(asked[0].0, asked[0].1, 0, 3, &[2, 3]);
    assert_eq!(rig.asks().0.iter().map(|asked| asked.0).collect::<Vec<_>>(), [ids[READERS_MAX]]);
    rig.hub.leave(asked[1].0);
    assert_eq!(rig.asks().0.iter().map(|asked| asked.0).collect::<Vec<_>>(), [ids[READERS_MAX + 1]]);
    // One of the queued subscribers leaves.
    rig.hub.leave(ids[READERS_MAX + 2]);
    rig.hub.leave(asked[2].0);
    assert_eq!(rig.asks().0, []);
    rig.hub.sent(asked[0].0);
    assert_eq!(rig.asks().0.iter().map(|asked| asked.0).collect::<Vec<_>>(), [asked[0].0]);
}
