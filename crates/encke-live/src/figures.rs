//! The metrics of live streams, and their list for operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use encke_io::clock::Clock;
use encke_io::lock;
use encke_push::SourceHolder;
use encke_stats::{Cell, Family, ListTicket, Query, Row, Source};
use serde_json::{Value, json};

use crate::state::{LiveChannel, LiveState};

/// The metrics and the list of all streams.
pub(crate) struct LiveReport {
    pub(crate) state: Arc<LiveState>,
    /// Begin of the names of all streams.
    pub(crate) names: String,
}

impl Source for LiveReport {
    fn name(&self) -> &'static str {
        "live"
    }

    fn families(&self) -> Vec<Family> {
        let figures = &self.state.figures;
        let streams = self.state.all();
        let live = streams.iter().filter(|stream| lock(&stream.inner).source.is_some()).count();
        let listeners: u64 = streams.iter().map(|stream| u64::from(stream.listeners.count())).sum();
        vec![
            Family::gauge("encke_live_streams", "Live streams with a source.").value(live as u64),
            Family::gauge("encke_live_listeners", "Listeners of live streams.").value(listeners),
            Family::counter("encke_live_source_bytes_total", "Bytes received from sources.")
                .value(figures.bytes.load(Ordering::Relaxed)),
            Family::counter("encke_live_sources_total", "Sources that began.")
                .value(figures.sources_begun.load(Ordering::Relaxed)),
            Family::counter("encke_live_sources_ended_total", "Sources that ended or were lost.")
                .value(figures.sources_ended.load(Ordering::Relaxed)),
            Family::counter(
                "encke_live_sources_refused_total",
                "Sources rejected because the stream had one (409), or the node announces 1,000 (503).",
            )
            .value(figures.sources_refused.load(Ordering::Relaxed)),
            Family::counter("encke_live_dropped_pieces_total", "Pieces of streams dropped by a busy server.")
                .value(figures.pieces_dropped.load(Ordering::Relaxed)),
        ]
    }

    fn status(&self) -> Option<Value> {
        let streams: Vec<Value> =
            self.state.all().iter().map(|stream| self.described_for_operator(stream)).collect();
        (!streams.is_empty()).then(|| json!({ "streams": streams }))
    }

    fn columns(&self) -> &'static [&'static str] {
        &[
            "stream",
            "channel",
            "state",
            "title",
            "container",
            "codecs",
            "bit_rate",
            "key_interval_s",
            "gaps",
            "pauses",
            "longest_pause_s",
            "idle_s",
            "listeners",
            "source",
            "program",
            "path",
            "node",
            "since_s",
            "in_bytes",
        ]
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        ticket.add(self.state.all().iter().map(|stream| self.row(stream)));
    }
}

impl LiveReport {
    fn row(&self, stream: &LiveChannel) -> Row {
        let json = self.described_for_operator(stream);
        let keys = self.columns().iter().filter_map(|column| {
            let key = match *column {
                "stream" => "name",
                "in_bytes" => "bytes",
                column => column,
            };
            let cell: Cell = match json.get(key)? {
                Value::String(text) => text.clone().into(),
                Value::Number(number) => match number.as_u64() {
                    Some(count) => count.into(),
                    None => number.as_f64()?.into(),
                },
                _ => return None,
            };
            Some((*column, cell))
        });
        Row(keys.collect())
    }

    /// Returns a stream as JSON, for operators: with the address, the program and the pauses of its source, and with its way.
    fn described_for_operator(&self, stream: &LiveChannel) -> Value {
        // The clock of the workers: a report is made outside of them.
        let now_ns = Clock::new().now().mono_ns;
        let mut json = described(stream, &self.names, now_ns);
        json["channel"] = stream.name.as_str().into();
        json["node"] = self.state.node().into();
        if let Some(source) = &lock(&stream.inner).source {
            let pauses = source.pauses;
            json["source"] = source.origin.as_str().into();
            json["program"] = source.program.as_deref().into();
            json["path"] = (!source.path.is_empty()).then_some(source.path.as_str()).into();
            json["pauses"] = pauses.count.into();
            json["longest_pause_s"] = seconds(pauses.longest_ns).into();
            let received_ns = Some(pauses.received_ns).filter(|received_ns| *received_ns > 0);
            json["idle_s"] =
                received_ns.map(|received_ns| seconds(now_ns.saturating_sub(received_ns))).into();
        }
        json
    }
}

/// Returns a time in seconds with three decimals.
fn seconds(ns: u64) -> f64 {
    (ns / 1_000_000) as f64 / 1e3
}

/// Returns a stream as JSON, for listeners.
pub(crate) fn described(stream: &LiveChannel, names: &str, now_ns: u64) -> Value {
    let listeners = stream.listeners.count();
    let inner = lock(&stream.inner);
    let mut json = json!({
        "name": stream.title(names),
        "state": inner.state(),
        "listeners": listeners,
    });
    if let Some(info) = &inner.info {
        json["container"] = container_name(info.container).into();
        json["type"] = info.container.media_type(info.video).into();
        json["video"] = info.video.into();
        json["codecs"] = info.codecs.join(", ").into();
        json["stated_bit_rate"] = info.bit_rate.into();
    }
    if let Some(source) = &inner.source {
        json["title"] = source.title.as_deref().into();
        json["bit_rate"] = source.bit_rate.into();
        json["key_interval_s"] = source.key_interval_us.map(|us| us as f64 / 1e6).into();
        json["gaps"] = source.gaps.into();
        json["bytes"] = source.bytes.into();
        json["since_s"] = (now_ns.saturating_sub(source.began_ns) / 1_000_000_000).into();
    }
    json
}

/// Returns a stream whose source is on another node as JSON. Nothing else is known of it here.
pub(crate) fn elsewhere(title: &str, holder: &SourceHolder) -> Value {
    json!({ "name": title, "state": "live", "listeners": 0, "node": holder.node })
}

/// Adds the streams whose source is on another node to a list, and names that node.
pub(crate) fn add_elsewhere(
    streams: &mut Vec<Value>,
    mut held: BTreeMap<Box<str>, SourceHolder>,
    may_read: impl Fn(&str) -> bool,
) {
    for stream in streams.iter_mut() {
        if let Some(holder) = stream["name"].as_str().and_then(|title| held.remove(title)) {
            stream["node"] = (*holder.node).into();
        }
    }
    for (title, holder) in held {
        if may_read(&title) {
            streams.push(elsewhere(&title, &holder));
        }
    }
}

/// Returns the name of a container in lists.
pub(crate) const fn container_name(container: encke_wire::media::Container) -> &'static str {
    use encke_wire::media::Container;
    match container {
        Container::MpegTs => "mpeg-ts",
        Container::Matroska => "matroska",
        Container::WebM => "webm",
        Container::FragmentedMp4 => "mp4",
        Container::Flv => "flv",
        Container::Mp3 => "mp3",
        Container::Adts => "adts",
        Container::Ogg => "ogg",
        Container::Unknown => "unknown",
    }
}
