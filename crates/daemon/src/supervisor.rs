//! Messages of a daemon to its service manager (systemd, `Type=notify`).

use sd_notify::NotifyState;

use crate::Log;

/// Tells the service manager that this daemon does its work, and which: it starts the units behind
/// this one now. Without a service manager (`NOTIFY_SOCKET`) this does nothing.
pub fn announce_ready(log: &Log, status: &str) {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]) {
        log.warning(
            "server.unsupervised",
            format_args!("the service manager was not told of the start: {error}"),
        );
    }
}
