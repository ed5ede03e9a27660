//! Tells the service manager when the program serves and when it stops (sd_notify(3), `Type=notify`).
//!
//! Without `$NOTIFY_SOCKET`, which is nearly always, nothing happens. Sockets of the abstract name space (`@…`)
//! are not spoken to: service managers of today use a path.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// What the service manager wants to know.
pub(crate) enum State {
    /// Every listener accepts.
    Ready,
    /// New settings are being read.
    Reloading,
    /// It drains, then ends.
    Stopping,
}

/// The service manager, if there is one.
pub(crate) struct Manager(Option<PathBuf>);

impl Manager {
    /// The one that started this process.
    pub(crate) fn of_this_process() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from).filter(|path| path.is_absolute()))
    }

    /// Tells it. Nobody can do anything about a manager that does not listen, so that is no error.
    pub(crate) fn tell(&self, state: &State) {
        if let Some(socket) = &self.0 {
            let _nobody_listens = send(socket, state);
        }
    }
}

fn send(socket: &Path, state: &State) -> std::io::Result<()> {
    let text = match state {
        State::Ready => "READY=1\nSTATUS=serving",
        State::Reloading => "STATUS=reading the settings again",
        State::Stopping => "STOPPING=1\nSTATUS=draining",
    };
    let datagram = UnixDatagram::unbound()?;
    // A manager whose queue is full must not hold the server up.
    datagram.set_nonblocking(true)?;
    datagram.send_to(text.as_bytes(), socket).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_each_state_and_a_missing_one_is_no_error() {
        let path = std::env::temp_dir().join(format!("encke-notify-{}", std::process::id()));
        let heard = UnixDatagram::bind(&path).expect("a socket");
        let manager = Manager(Some(path.clone()));
        for (state, start) in
            [(State::Ready, "READY=1\n"), (State::Reloading, "STATUS="), (State::Stopping, "STOPPING=1\n")]
        {
            manager.tell(&state);
            let mut text = [0; 64];
            let length = heard.recv(&mut text).expect("it was sent");
            assert!(text[..length].starts_with(start.as_bytes()));
        }
        drop(heard);
        std::fs::remove_file(&path).expect("it was bound here");
        manager.tell(&State::Ready);
        Manager(None).tell(&State::Ready);
    }
}
