//! Notifies the service manager when the program is ready, reloads or stops: systemd (sd_notify(3), `Type=notify`) or that of
//! Windows.
//!
//! Does nothing without `$NOTIFY_SOCKET`, the usual case, and in a process that is no service of Windows. Abstract socket
//! addresses (`@…`) are not supported: current service managers use a path.

use std::path::{Path, PathBuf};

use encke_io::host;
use encke_io::service::{self, ServicePhase};
use encke_wire::civil::Civil;

/// A state that is reported to the service manager.
pub(crate) enum ServiceState {
    /// Every listener accepts connections.
    Ready,
    /// As ready, but with older settings: the last reload has rejected the file.
    Rejected {
        /// The time of the reload, in seconds since 1970.
        at_s: u64,
    },
    /// New settings are being read.
    Reloading,
    /// The server drains, then the process ends.
    Stopping,
}

/// The service manager, if there is one.
pub(crate) struct Manager(Option<PathBuf>);

impl Manager {
    /// The service manager that started this process, according to `$NOTIFY_SOCKET`.
    pub(crate) fn of_this_process() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from).filter(|path| path.is_absolute()))
    }

    /// Reports a state. Errors are ignored: the server works without the manager, and the user cannot fix a manager that does
    /// not read.
    pub(crate) fn tell(&self, state: &ServiceState) {
        service::set_phase(match state {
            // A service of Windows keeps serving while it reads its settings.
            ServiceState::Ready | ServiceState::Rejected { .. } | ServiceState::Reloading => {
                ServicePhase::Running
            }
            ServiceState::Stopping => ServicePhase::Stopping,
        });
        if let Some(socket) = &self.0 {
            let _nobody_listens = send(socket, state);
        }
    }
}

fn send(socket: &Path, state: &ServiceState) -> std::io::Result<()> {
    let text = match state {
        ServiceState::Ready => "READY=1\nSTATUS=serving".into(),
        // Every user may read the status: it has no text of the file.
        ServiceState::Rejected { at_s } => {
            let at = Civil::of(*at_s).rfc3339();
            let at = String::from_utf8_lossy(&at);
            format!(
                "READY=1\nSTATUS=serving with the old settings: the reload at {at}Z rejected those of the file, see the log"
            )
        }
        ServiceState::Reloading => "STATUS=reloading the settings".into(),
        ServiceState::Stopping => "STOPPING=1\nSTATUS=draining".to_owned(),
    };
    host::send_to_manager(socket, text.as_bytes())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn the_manager_hears_each_state_and_a_missing_one_is_no_error() {
        let path = std::env::temp_dir().join(format!("encke-notify-{}", std::process::id()));
        let heard = UnixDatagram::bind(&path).expect("a socket");
        let manager = Manager(Some(path.clone()));
        for (state, start) in [
            (ServiceState::Ready, "READY=1\n"),
            (ServiceState::Reloading, "STATUS="),
            (ServiceState::Rejected { at_s: 0 }, "READY=1\nSTATUS=serving with the old settings: "),
            (ServiceState::Stopping, "STOPPING=1\n"),
        ] {
            manager.tell(&state);
            let mut text = [0; 64];
            let length = heard.recv(&mut text).expect("it was sent");
            assert!(text[..length].starts_with(start.as_bytes()));
        }
        drop(heard);
        std::fs::remove_file(&path).expect("it was bound here");
        manager.tell(&ServiceState::Ready);
        Manager(None).tell(&ServiceState::Ready);
    }
}
