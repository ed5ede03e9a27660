//! The simulator as a scene: a world without faults, in which data arrives late and in pieces.

use std::net::SocketAddr;
use std::time::Duration;

use encke_io::sim::{self, SimClient, World};
use encke_io::socket::Stream;
use encke_io::{Address, Listener, SimReactor};

use crate::stage::{End, PATIENCE, Peer, Scene, Stage};

pub struct Simulated {
    world: World,
    reactor: SimReactor,
    listeners: u16,
}

impl Scene for Simulated {
    type Reactor = SimReactor;
    type Peer = SimClient;
    // Data in transit arrives whenever its delay ends.
    const BURST: usize = 200;
    const TOO_MUCH: usize = 1 << 20;

    fn open() -> Self {
        let world = World::new(5);
        let reactor = world.reactor();
        Self { world, reactor, listeners: 0 }
    }

    fn reactor(&mut self) -> &mut SimReactor {
        &mut self.reactor
    }

    fn listener(&mut self) -> Listener {
        self.listeners += 1;
        self.world.listener(SocketAddr::from(([10, 0, 0, 2], self.listeners))).expect("a descriptor")
    }

    fn peer(&mut self, address: &Address, window: Option<usize>) -> SimClient {
        let mut client = self.world.connect(Stage::<Self>::inet(address));
        if let Some(window) = window {
            client.set_window(window);
        }
        client
    }

    fn unconnected(&mut self, _: &SocketAddr) -> Stream {
        self.world.stream().expect("a descriptor")
    }

    fn elapse(&mut self) -> bool {
        self.world.step().is_some()
    }

    fn settle(stage: &mut Stage<Self>) {
        // Twice, because the reactor may respond to an event by itself.
        for _ in 0..2 {
            stage.turn(Duration::ZERO);
            while !stage.scene.world.is_quiet() {
                stage.turn(PATIENCE);
            }
        }
    }
}

impl Peer for SimClient {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        self.send(bytes)
    }

    fn receive(&mut self, limit: usize, into: &mut Vec<u8>) {
        into.extend(self.take_at_most(limit));
    }

    fn end(&self) -> End {
        match self.end() {
            sim::SimReadState::Open => End::Open,
            sim::SimReadState::Finished => End::Finished,
            sim::SimReadState::Reset | sim::SimReadState::Refused => End::Reset,
        }
    }

    fn shutdown(&mut self) {
        self.shutdown();
    }

    fn reset(self) {
        self.reset();
    }
}
