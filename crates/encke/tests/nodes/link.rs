//! A TCP proxy that can be cut or slowed down: real sockets, on which bytes wait meanwhile.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The treatment of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Bytes wait, and neither side sees an end of stream.
    Cut,
    /// Each piece waits this long.
    Slow(Duration),
}

/// A proxy to a server. While it is cut, connections are accepted but receive nothing.
pub(crate) struct Link {
    /// The address of the proxy.
    pub(crate) address: String,
    gate: Arc<Gate>,
}

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Link {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let gate = Arc::new(Gate { state: Mutex::new(State::Open), changed: Condvar::new() });
        let (gates, server) = (Arc::clone(&gate), server.to_owned());
        thread::spawn(move || {
            for near in listener.incoming() {
                let joined = near.and_then(|near| Ok((near, TcpStream::connect(&server)?)));
                if let Ok((near, far)) = joined {
                    gates.join(near, far).expect("sockets can be shared");
                }
            }
        });
        Self { address, gate }
    }

    pub(crate) fn cut(&self) {
        self.set(State::Cut);
    }

    pub(crate) fn slow_down(&self, by: Duration) {
        self.set(State::Slow(by));
    }

    pub(crate) fn mend(&self) {
        self.set(State::Open);
    }

    fn set(&self, state: State) {
        *self.gate.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn join(self: &Arc<Self>, near: TcpStream, far: TcpStream) -> io::Result<()> {
        for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            let gate = Arc::clone(self);
            thread::spawn(move || gate.carry(from, to));
        }
        Ok(())
    }

    /// Forwards bytes in one direction until end of stream.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut piece) {
            self.pass();
            if count == 0 || to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    /// Waits as long as the state requires.
    fn pass(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let slow = *state;
        let state = match slow {
            State::Slow(by) => {
                // Only a change of state ends the wait early.
                let waited = self.changed.wait_timeout_while(state, by, |state| *state == slow);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            _ => state,
        };
        drop(self.changed.wait_while(state, |state| *state == State::Cut));
    }
}
