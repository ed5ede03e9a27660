//! An exchange: one request and the right to answer it, from any thread.
//!
//! ```text
//! Handler::call(&Request, Exchange) ─┬─► Outcome::Now(reply)      answered within the call
//!                                    └─► Outcome::Later           the handler keeps the Exchange:
//!                                          interim(103) · read_more() → Handler::body(key, Piece)
//!                                          answer(reply) · wake() for a stream that had nothing
//!                                          dropped unanswered: the client gets a 500
//! ```

use std::sync::Arc;

use crate::inbox::{Inbox, WorkerMessage};
use crate::reply::{Fields, Reply};
use crate::takeover::Takeover;

/// Names an exchange among those of its worker. Stream 0 is the only one of an HTTP/1 connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeKey {
    /// Place in the worker's table of open exchanges.
    pub slot: u32,
    /// Which use of the place.
    pub generation: u32,
    /// Stream of the connection.
    pub stream: u32,
}

impl ExchangeKey {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

/// The right to answer one request.
pub struct Exchange {
    link: Arc<Inbox>,
    key: ExchangeKey,
    open: bool,
    /// What every answer has besides its own fields.
    fields: Fields,
}

impl Exchange {
    pub(crate) fn new(link: Arc<Inbox>, key: ExchangeKey) -> Self {
        Self { link, key, open: true, fields: Fields::new() }
    }

    /// Adds fields to the answer, whoever gives it.
    pub fn add_fields(&mut self, fields: &Fields) {
        self.fields.extend(fields);
    }

    /// Its name: what [`crate::Handler::body`] is called with.
    pub fn key(&self) -> ExchangeKey {
        self.key
    }

    /// Answers. If the client has gone meanwhile, nothing happens.
    ///
    /// ```
    /// use encke_server::{Exchange, Options, Outcome, Reply, Request, Server};
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
    /// let server = server.mount("/", |_: &Request<'_>, exchange: Exchange| {
    ///     std::thread::spawn(move || exchange.answer(Reply::text(200, "from a thread")));
    ///     Outcome::Later
    /// });
    /// let running = server.start()?;
    /// let response = ask(&running, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    /// assert!(response.ends_with("\r\n\r\nfrom a thread"), "{response}");
    /// running.stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn answer(mut self, mut reply: Reply) {
        self.open = false;
        reply.fields.extend(&self.fields);
        self.link.send(WorkerMessage::Answer(self.key, Box::new(reply)));
    }

    /// The exchange's name and reply, for a worker that is given both.
    pub(crate) fn into_reply(mut self, mut reply: Reply) -> (ExchangeKey, Reply) {
        self.open = false;
        reply.fields.extend(&self.fields);
        (self.key, reply)
    }

    /// Gives the request's connection to a resident. If the client has gone meanwhile, nothing happens.
    pub fn take_over(mut self, takeover: Takeover) {
        self.open = false;
        self.link.send(WorkerMessage::Takeover(self.key, takeover));
    }

    /// Sends an interim answer (RFC 9110 §15.2), such as 103 with early hints. HTTP/1.0 clients get none.
    pub fn interim(&self, status: u16, fields: Fields) {
        debug_assert!((102..200).contains(&status));
        self.link.send(WorkerMessage::Interim(self.key, status, fields));
    }

    /// Asks for the next piece of the request's body, which comes by [`crate::Handler::body`]. The first one
    /// sends `100 Continue` if the client waits for it; without it the client is not read from.
    pub fn read_more(&self) {
        self.link.send(WorkerMessage::ReadMore(self.key));
    }

    /// A handle that wakes this exchange's stream ([`crate::reply::Pulled::Pending`]) after it was answered.
    pub fn wake_handle(&self) -> WakeStream {
        WakeStream { link: Arc::clone(&self.link), key: self.key }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.open && !self.link.dropped_in_call(self.key) {
            self.link.send(WorkerMessage::Dropped(self.key));
        }
    }
}

/// Tells a worker that a stream has more.
#[derive(Clone)]
pub struct WakeStream {
    link: Arc<Inbox>,
    key: ExchangeKey,
}

impl WakeStream {
    /// Has the stream pulled again. Harmless after its end.
    pub fn wake(&self) {
        self.link.send(WorkerMessage::Wake(self.key));
    }
}
