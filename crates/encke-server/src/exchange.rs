//! An exchange: one request and the right to respond to it, from any thread.
//!
//! ```text
//! Handler::call(&Request, Exchange) ─┬─► Outcome::Now(reply)      response within the call
//!                                    └─► Outcome::Later           the handler keeps the Exchange:
//!                                          interim(103) · read_more() → Handler::body(key, Piece)
//!                                          answer(reply) · wake() for a stream that had no data
//!                                          dropped without a response: the client receives a 500
//!                                          delegate(request, other handler) → Outcome, or Handler::delegated(key, reply)
//! ```

use std::sync::Arc;

use crate::inbox::{Inbox, WorkerMessage};
use crate::reply::{Fields, Reply};
use crate::takeover::Takeover;

/// Identifies an exchange on its worker. HTTP/1 connections only use stream 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeKey {
    /// Index in the worker's table of open exchanges.
    pub slot: u32,
    /// Generation of the table entry, which changes each time the entry is reused.
    pub generation: u32,
    /// HTTP/2 stream of the connection; 0 in HTTP/1.
    pub stream: u32,
}

impl ExchangeKey {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

/// The right to respond to one request.
pub struct Exchange {
    link: Arc<Inbox>,
    key: ExchangeKey,
    open: bool,
    /// Fields added to the response, whichever guard or handler gives it.
    fields: Fields,
    /// Fields of guards for the response, also for that of a resident.
    guard_fields: Fields,
    /// The response is for the handler that has delegated the request, not for the client.
    delegated: bool,
}

impl Exchange {
    pub(crate) fn new(link: Arc<Inbox>, key: ExchangeKey) -> Self {
        Self { link, key, open: true, fields: Fields::new(), guard_fields: Fields::new(), delegated: false }
    }

    /// Returns an exchange of the same request whose response goes to the handler that has this one.
    pub(crate) fn lend(&self) -> Self {
        let mut lent = Self::new(Arc::clone(&self.link), self.key);
        lent.delegated = true;
        lent
    }

    /// Runs a call of another handler with a lent exchange. Returns its result, and whether it dropped the exchange.
    pub(crate) fn lend_for<T>(&self, call: impl FnOnce(Self) -> T) -> (T, bool) {
        let lent = self.lend();
        self.link.call.within(self.key.word(), || call(lent))
    }

    /// Adds fields to the response, whichever guard or handler gives it.
    pub fn add_fields(&mut self, fields: &Fields) {
        self.fields.extend(fields);
    }

    /// Adds the fields of guards to the response.
    pub(crate) fn add_guard_fields(&mut self, fields: &Fields) {
        self.guard_fields.extend(fields);
    }

    fn complete(&self, reply: &mut Reply) {
        reply.add_guard_fields(&self.guard_fields);
        reply.fields.extend(&self.fields);
    }

    /// The exchange's key, as passed to [`crate::Handler::body`].
    pub fn key(&self) -> ExchangeKey {
        self.key
    }

    /// Responds. Does nothing if the client has disconnected.
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
        self.complete(&mut reply);
        let reply = Box::new(reply);
        self.link.send(if self.delegated {
            WorkerMessage::Delegated(self.key, reply)
        } else {
            WorkerMessage::Answer(self.key, reply)
        });
    }

    /// Returns the exchange's key and the complete reply, for a worker that executes both itself; `None` if the reply went to
    /// the handler that has delegated the request.
    pub(crate) fn into_reply(mut self, mut reply: Reply) -> Option<(ExchangeKey, Reply)> {
        if self.delegated {
            self.answer(reply);
            return None;
        }
        self.open = false;
        self.complete(&mut reply);
        Some((self.key, reply))
    }

    /// Returns the exchange's key and added fields, for another handler. `None` if the response is for the handler that has
    /// delegated the request: that one gets a 500.
    pub(crate) fn into_rerouted(mut self) -> Option<(ExchangeKey, Fields)> {
        if self.delegated {
            self.answer(Reply::error(500));
            return None;
        }
        self.open = false;
        let mut fields = std::mem::take(&mut self.guard_fields);
        fields.extend(&self.fields);
        Some((self.key, fields))
    }

    /// Passes the request's connection to a resident. Does nothing if the client has disconnected.
    pub fn take_over(mut self, mut takeover: Takeover) {
        self.open = false;
        takeover.fields.extend(&self.guard_fields);
        self.link.send(WorkerMessage::Takeover(self.key, takeover));
    }

    /// Sends an interim response (RFC 9110 §15.2), such as 103 with early hints. HTTP/1.0 clients receive none.
    pub fn interim(&self, status: u16, fields: Fields) {
        debug_assert!((102..200).contains(&status));
        self.link.send(WorkerMessage::Interim(self.key, status, fields));
    }

    /// Requests the next piece of the request's body, which [`crate::Handler::body`] receives. The first call sends `100
    /// Continue` if the client waits for it. The worker reads the body only after this call.
    pub fn read_more(&self) {
        self.link.send(WorkerMessage::ReadMore(self.key));
    }

    /// Lifts `limits.body_bytes` for the body of this request, for a source without end. `limits.body_rate` still applies. To be
    /// called before [`Exchange::read_more`].
    pub fn allow_endless_body(&self) {
        self.link.send(WorkerMessage::Endless(self.key));
    }

    /// Returns a handle that wakes this exchange's response stream ([`crate::reply::Pulled::Pending`]).
    pub fn wake_handle(&self) -> WakeStream {
        WakeStream { link: Arc::clone(&self.link), key: self.key }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.open && !self.link.call.drop_in_call(self.key.word()) {
            self.link.send(if self.delegated {
                WorkerMessage::Delegated(self.key, Box::new(Reply::error(500)))
            } else {
                WorkerMessage::Dropped(self.key)
            });
        }
    }
}

/// A handle to wake a response stream that had no data.
#[derive(Clone)]
pub struct WakeStream {
    link: Arc<Inbox>,
    key: ExchangeKey,
}

impl WakeStream {
    /// Makes the worker pull the stream again. Does nothing after the stream's end.
    pub fn wake(&self) {
        self.link.send(WorkerMessage::Wake(self.key));
    }
}
