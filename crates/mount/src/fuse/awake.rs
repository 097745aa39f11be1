//! Keeping idle processors from deep sleep while programs use a mount.
//!
//! A request through a mount wakes a thread of the mount, and the answer wakes the program. On a
//! virtual machine, waking an idle processor costs some 30 µs, several times the work itself. The
//! kernel's interface for that, a request for latency (PM QoS, `/dev/cpu_dma_latency`), concerns
//! all processors of the machine, so it is held only while requests follow each other closely.

use std::fs::File;
use std::io::Write;

use types::{Errno, Error, Result};

/// The device of the kernel. Closing it ends the request.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// A request for this many microseconds demands nothing (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_DEMAND: u32 = 2_000_000_000;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Awake {
    device: File,
    limit_us: u32,
    is_held: bool,
}

impl Awake {
    /// Idle processors are to wake within `limit_us` microseconds; with 0 they do not sleep.
    ///
    /// # Errors
    /// `EACCES` without root's rights, `ENOENT` on a kernel without the device.
    pub(crate) fn new(limit_us: u32) -> Result<Self> {
        let device = File::options().write(true).open(DEVICE).map_err(|error| {
            let errno = error.raw_os_error().and_then(|code| u16::try_from(code).ok());
            let errno = errno.map_or(Errno::Io, Errno::from_code);
            Error::new(
                errno,
                format!("latency={limit_us}"),
                format!("cannot open {DEVICE}: {error}"),
            )
            .remedy("only root may keep processors awake; mount without this option, or as root")
        })?;
        Ok(Self { device, limit_us, is_held: false })
    }

    /// Requests follow each other closely, or not any more.
    pub(super) fn set(&mut self, is_busy: bool) {
        if is_busy == self.is_held {
            return;
        }
        let demand = if is_busy { self.limit_us } else { NO_DEMAND };
        // A refusal leaves the processors as they are, and is tried again with the next change.
        if self.device.write_all(&demand.to_ne_bytes()).is_ok() {
            self.is_held = is_busy;
        }
    }
}
