//! A back end whose every stream is acknowledged late: nothing else of it may be different.

use encke_io::offload::Pool;
use encke_io::{Backend, EpollEdgeReactor, Event, Fault, Now, Occupancy, Op, Reactor, Source, Token, Waker};

use crate::loopback::{BackEnd, EpollEdge};

/// A reactor that asks for it before each receive.
pub struct Late<R>(R);

/// Edge-triggered epoll(7): of the back ends that delay, all there are.
pub struct LateEpollEdge;

impl BackEnd for LateEpollEdge {
    type Reactor = Late<EpollEdgeReactor>;
    const BURST: usize = EpollEdge::BURST;
    const DELAYS: bool = EpollEdge::DELAYS;
    const GATHERS: bool = EpollEdge::GATHERS;

    fn open(pool: Pool) -> Self::Reactor {
        Late(EpollEdge::open(pool))
    }
}

impl<R: Reactor> Reactor for Late<R> {
    fn backend(&self) -> Backend {
        self.0.backend()
    }

    fn adopt(&mut self, source: Source) -> Result<Token, Fault> {
        self.0.adopt(source)
    }

    fn submit(&mut self, token: Token, op: Op) {
        if matches!(op, Op::Recv) {
            self.0.submit(token, Op::DelayAck);
        }
        self.0.submit(token, op);
    }

    fn wait(&mut self, until: Option<u64>) -> Result<Now, Fault> {
        self.0.wait(until)
    }

    fn next(&mut self) -> Option<Event<'_>> {
        self.0.next()
    }

    fn now(&mut self) -> Now {
        self.0.now()
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn unsent(&self, token: Token) -> u64 {
        self.0.unsent(token)
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        self.0.unacknowledged(token)
    }

    fn buffered(&self, token: Token) -> Option<u64> {
        self.0.buffered(token)
    }

    fn listen_drops(&self, listener: Token) -> Option<u32> {
        self.0.listen_drops(listener)
    }

    fn occupancy(&self) -> Occupancy {
        self.0.occupancy()
    }
}
