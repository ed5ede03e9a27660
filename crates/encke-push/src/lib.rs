//! Push: channels over HTTP. Publish with any body, read by long poll, server-sent events, NDJSON or WebSocket.
//!
//! ```text
//! request ─► Pusher (a handler: parses requests, holds incomplete bodies only)
//!              │ PushRequest (publish, info, list …)│ Outcome::Takeover
//!              ▼                                    ▼
//!            PushWorker: hub ◄─ feed ─ sequencer (on the first worker)
//!              │ deliveries
//!              ▼
//!            connections: one send each, of bytes shared by all subscribers at the same position
//! ```
//! This crate covers push from the path to the frame. `negotiate` parses requests, `form` and `envelope` encode messages, and
//! `push_worker` connects hub and connections. `resident` implements the calls of the worker, `socket` implements WebSocket
//! commands, and `figures` counts. Authorization is in `encke-rights`.

use std::sync::Arc;

use encke_rights::{AuthSettings, Openness};
use encke_server::Server;

mod address_rates;
mod admission;
mod archive;
mod channel_point;
mod client;
mod cluster;
mod command;
mod console;
mod draft;
mod envelope;
mod error;
mod figures;
mod form;
mod handler;
mod head_request;
mod listing;
mod log_out;
mod log_out_scan;
mod negotiate;
mod page;
mod parked;
mod plan;
mod publisher;
mod push_worker;
mod reject;
mod resident;
mod sampling;
mod settings;
mod side;
#[cfg(test)]
mod simulation;
mod socket;
mod source;
mod subscriber;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use channel_point::{ChannelPoint, PointBody, PointHandler, PointRead, PointStream};
pub use encke_broker::{CLAIMS_MAX, ClaimError, SourceBoard, SourceHolder};
pub use encke_hub::{
    ChannelRules, Draft, Flags, IdempotencyKey, Name, NameError, Overrun, Pattern, PatternError, Position,
    PublishError, Published,
};
pub use error::{PushError, PushErrorOrigin};
pub use page::page;
pub use plan::PushPlan;
pub use publisher::{Accepted, PublishFailure, PushPublisher};
pub use settings::cluster::{ClusterSettings, StreamSettings, StreamStorage};
pub use settings::{
    AckMode, ChannelRuleError, ChannelSettings, OverrunPolicy, PushSettings, StreamSettingsError,
};
pub use source::sources_without_push;

/// Mounts channels on a server. Add the listeners first: unless the settings grant rights, channels are open to this machine
/// alone, and only if the server listens nowhere else.
///
/// ```
/// use encke_push::PushSettings;
/// use encke_rights::AuthSettings;
/// use encke_server::{Options, Server};
///
/// # fn ask(running: &encke_server::Running, request: &str) -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut client = std::net::TcpStream::connect(running.addresses()[0].to_string())?;
/// #     client.write_all(request.as_bytes())?;
/// #     let mut response = String::new();
/// #     client.read_to_string(&mut response)?;
/// #     Ok(response)
/// # }
/// let server = Server::new(Options::default()).listen("127.0.0.1:0".parse()?);
/// let server = encke_push::mount(server, &PushSettings::default(), &AuthSettings::default())?;
/// let running = server.start()?;
/// let post = "POST /push/news HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
/// assert!(ask(&running, post)?.starts_with("HTTP/1.1 201 "));
/// let get = "GET /push/news?since=all HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// assert!(ask(&running, get)?.ends_with("\r\n\r\nhello"));
/// running.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The settings contradict themselves, or the system has no random bytes.
pub fn mount(server: Server, push: &PushSettings, auth: &AuthSettings) -> Result<Server, PushError> {
    mount_with_publisher(server, push, auth).map(|(server, _)| server)
}

/// Mounts channels as [`mount`] does, and returns a publisher for messages of the program.
///
/// # Errors
/// See [`mount`].
pub fn mount_with_publisher(
    server: Server,
    push: &PushSettings,
    auth: &AuthSettings,
) -> Result<(Server, PushPublisher), PushError> {
    let openness = Openness::of(false, false, server.doors().iter().map(|door| &door.address));
    let plan = Arc::new(PushPlan::new(push, auth, openness)?);
    Ok((server.mount_all(plan.mounts()), plan.publisher()))
}
