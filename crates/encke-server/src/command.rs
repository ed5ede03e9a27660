//! Commands of the program to its workers.
//!
//! A command waits in the worker's [`CommandQueue`]. A [`WorkerMessage::Command`] in the worker's inbox marks its place among
//! the other messages. [`Inbox`] wakes the worker and handles no commands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use encke_io::lock;
use encke_io::socket::Listener;

use crate::closing::ClosingListener;
use crate::inbox::{Inbox, WorkerMessage};
use crate::listener::ListenerKind;
use crate::operate::OperatorCommand;
use crate::plan::WorkerPlan;
use crate::plan_progress::PlanReceipt;

/// A command of the program to a worker.
pub(crate) enum WorkerCommand {
    /// Accept on this listener.
    Listen(Listener, ListenerKind),
    /// Stop accepting on a listener; its connections stay open. The value is dropped when the listener is closed.
    Unlisten(ClosingListener),
    /// Apply new settings. The receipt is dropped once they are applied.
    Reload(Arc<WorkerPlan>, PlanReceipt),
    /// Execute an operator's command.
    Operate(OperatorCommand),
    /// All workers have started. Contains their inboxes, by worker number.
    Meet(Arc<[Arc<Inbox>]>),
    /// Drain: report it for `delay`, then accept nothing new, and stop within `time`.
    Drain {
        /// Time during which `/readyz` returns 503 and the server keeps serving.
        delay: Duration,
        /// Time for open exchanges to finish.
        time: Duration,
    },
}

/// The commands that a worker has not executed, shared by the program and the worker.
pub(crate) struct CommandQueue {
    link: Arc<Inbox>,
    /// `None` once the worker has ended.
    commands: Mutex<Option<VecDeque<WorkerCommand>>>,
}

impl CommandQueue {
    pub(crate) fn new(link: Arc<Inbox>) -> Arc<Self> {
        Arc::new(Self { link, commands: Mutex::new(Some(VecDeque::new())) })
    }

    /// The worker's inbox.
    pub(crate) fn link(&self) -> &Arc<Inbox> {
        &self.link
    }

    /// Sends a command to the worker. Drops it if the worker has ended.
    pub(crate) fn send(&self, command: WorkerCommand) {
        let mut queue = lock(&self.commands);
        let Some(commands) = queue.as_mut() else {
            // A dropped ticket calls its function, which may need this lock.
            drop(queue);
            return drop(command);
        };
        commands.push_back(command);
        // Marked under the lock: commands of two threads have the same order here and in the inbox.
        self.link.send(WorkerMessage::Command);
    }

    /// Takes the command of a [`WorkerMessage::Command`].
    pub(crate) fn take(&self) -> WorkerCommand {
        let command = lock(&self.commands).as_mut().and_then(VecDeque::pop_front);
        command.expect("each message follows its command")
    }

    /// The worker has ended: drops its commands, and all later ones. Otherwise a status that outlives the worker would keep
    /// their tickets from ending.
    pub(crate) fn close(&self) {
        let left = lock(&self.commands).take();
        drop(left);
    }
}

/// The command queues of all workers, by number, once all workers have started.
#[derive(Default)]
pub(crate) struct WorkerQueues(OnceLock<Vec<Arc<CommandQueue>>>);

impl WorkerQueues {
    /// All workers have started: operators' requests reach them from now on.
    pub(crate) fn begin(&self, queues: Vec<Arc<CommandQueue>>) {
        // A server starts once.
        let _first = self.0.set(queues);
    }

    /// Sends an operator's request to a worker. While the workers start, or after the worker has ended, its ticket is dropped.
    pub(crate) fn order(&self, worker: usize, order: OperatorCommand) {
        if let Some(commands) = self.0.get().and_then(|queues| queues.get(worker)) {
            commands.send(WorkerCommand::Operate(order));
        }
    }

    /// Sends an operator's request to each worker.
    pub(crate) fn order_all(&self, order: impl Fn() -> OperatorCommand) {
        for worker in self.0.get().into_iter().flatten() {
            worker.send(WorkerCommand::Operate(order()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::ExchangeKey;
    use crate::operate::FeatureVerbs;
    use encke_io::Reactor as _;
    use encke_stats::Ticket;

    #[test]
    fn a_worker_that_has_ended_drops_every_command() {
        let world = encke_io::sim::World::new(1);
        let commands = CommandQueue::new(Inbox::new(world.reactor().waker()));
        let (send, ends) = std::sync::mpsc::channel();
        let order = |number: u32| {
            let send = send.clone();
            let ticket = Ticket::new(move |verbs: Option<Vec<FeatureVerbs>>| {
                send.send((number, verbs.is_some())).expect("the test waits");
            });
            commands.send(WorkerCommand::Operate(OperatorCommand::Verbs(ticket)));
        };
        order(1);
        assert!(ends.try_recv().is_err());
        commands.close();
        order(2);
        assert_eq!(ends.try_iter().collect::<Vec<_>>(), [(1, false), (2, false)]);
    }

    #[test]
    fn commands_keep_their_place_among_the_messages_of_their_thread() {
        const COUNT: u32 = 500;
        let world = encke_io::sim::World::new(1);
        let commands = CommandQueue::new(Inbox::new(world.reactor().waker()));
        std::thread::scope(|scope| {
            for slot in 0..2 {
                let commands = &commands;
                scope.spawn(move || {
                    for generation in 0..COUNT {
                        let delay = Duration::new(slot.into(), generation);
                        commands.send(WorkerCommand::Drain { delay, time: Duration::ZERO });
                        let key = ExchangeKey { slot, generation, stream: 0 };
                        commands.link().send(WorkerMessage::Wake(key));
                    }
                });
            }
        });
        let mut messages = Vec::new();
        assert!(!commands.link().take(usize::MAX, &mut messages));
        let mut received = [Vec::new(), Vec::new()];
        for message in messages {
            let (slot, number, is_command) = match message {
                WorkerMessage::Command => match commands.take() {
                    WorkerCommand::Drain { delay, .. } => {
                        (delay.as_secs() as u32, delay.subsec_nanos(), true)
                    }
                    _ => panic!("a command that was not sent"),
                },
                WorkerMessage::Wake(key) => (key.slot, key.generation, false),
                _ => panic!("a message that was not sent"),
            };
            received[slot as usize].push((number, is_command));
        }
        let sent: Vec<(u32, bool)> =
            (0..COUNT).flat_map(|number| [(number, true), (number, false)]).collect();
        assert_eq!(received, [sent.clone(), sent]);
    }
}
