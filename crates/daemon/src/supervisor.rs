//! What a service manager (systemd, `Type=notify`) is told about a daemon.

use sd_notify::NotifyState;

use crate::Log;

/// Says that this daemon answers requests: units that come after this one start now. Nothing is
/// said if no service manager asked for it (`NOTIFY_SOCKET`).
pub(crate) fn announce_ready(log: &Log) {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        log.warning(
            "server.unsupervised",
            format_args!("the service manager was not told of the start: {error}"),
        );
    }
}
