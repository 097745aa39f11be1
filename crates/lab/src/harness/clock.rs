//! The clocks that a measurement needs, in nanoseconds.

use rustix::time::ClockId;

/// The machine's monotonic clock, which all processes share, in nanoseconds.
pub(crate) fn clock_ns() -> u64 {
    nanos_of(ClockId::Monotonic)
}

/// Processor time of this process in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    nanos_of(ClockId::ProcessCPUTime)
}

fn nanos_of(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}
