//! What the program tells its workers.

use std::sync::Arc;
use std::time::Duration;

use encke_io::socket::Listener;

use crate::closing::ClosingListener;
use crate::link::Link;
use crate::listener::DoorKind;
use crate::operate::Order;
use crate::plan::Plan;

/// What the program tells a worker.
pub(crate) enum Command {
    /// Accept here, too.
    Listen(Listener, DoorKind),
    /// Accept there no longer; connections stay. The value is dropped when the listener is closed.
    Unlisten(ClosingListener),
    /// New settings.
    Reload(Arc<Plan>),
    /// An operator's order.
    Operate(Order),
    /// All workers have started: these are their letter boxes, by number.
    Meet(Arc<[Arc<Link>]>),
    /// Stop: say so for `delay`, then take nothing new, and end within `time`.
    Drain {
        /// During which `/readyz` already answers 503.
        delay: Duration,
        /// For what is going on to end.
        time: Duration,
    },
}
