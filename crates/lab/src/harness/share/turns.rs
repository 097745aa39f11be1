//! When each group may use its share.
//!
//! The kernel begins the periods of a group at a random moment. Groups with close moments interrupt
//! each other on the one processor that they have, for as long as they exist; and work around a
//! tick of the scheduler costs more than work between two. So requests of one rank cost up to twice
//! as much as those of another, or in another run, at random. Here periods begin one after the
//! other, as if each group had a processor of its own, and each at the same time after a tick.
//! Nothing else of the groups changes, and their shares stay the same.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::{CpuSet, Errno, Error, Group, Result, failed, fs, sched_setaffinity};

/// How near to its turn is near enough.
const NEAR: Duration = Duration::from_micros(150);
/// A group begins this part of a tick after it: its share ends before the next one.
const BEHIND_TICK: f64 = 0.1;
/// The least ticks of a period, so that it is the same for all compared numbers of groups.
const TICKS_MIN: u32 = 8;
/// On a busy machine a look comes late.
const TRIES: u32 = 8;
/// Longer than any period.
const NEVER: Duration = Duration::from_secs(5);

/// Time since the machine was started.
type At = Duration;

/// The clock of the kernel's scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// Between two ticks.
    pub(crate) every: Duration,
    /// When one was, as time since the machine was started.
    pub(crate) at: At,
}

impl Tick {
    pub(crate) fn of_this_machine() -> Self {
        let every = span(clock_getres(ClockId::MonotonicCoarse)).max(Duration::from_millis(1));
        Self { every, at: span(clock_gettime(ClockId::MonotonicCoarse)) }
    }

    /// Enough ticks for the turns of this many groups, with a quota that is not below the kernel's
    /// minimum.
    pub(crate) fn period(self, groups: usize, least: Duration) -> Duration {
        let ticks = |count: u128| u32::try_from(count).unwrap_or(u32::MAX);
        let of_least = ticks(least.as_nanos().div_ceil(self.every.as_nanos()));
        self.every * of_least.max(ticks(groups as u128)).max(TICKS_MIN)
    }
}

/// Has the periods of groups begin one after the other, each a moment after a tick.
///
/// # Errors
/// `EIO` if a group's periods do not begin at all; the error of writing its files.
pub(crate) fn take_turns(groups: &[Group], tick: Tick) -> Result<()> {
    // A separate thread, outside the groups, which can watch them.
    let taken = thread::scope(|scope| scope.spawn(|| one_after_the_other(groups, tick)).join());
    taken.unwrap_or_else(|_| Err(Error::of(Errno::Io, "turns")))
}

fn one_after_the_other(groups: &[Group], tick: Tick) -> Result<()> {
    anywhere();
    let count = u128::try_from(groups.len()).unwrap_or(1).max(1);
    for (number, group) in (0..).zip(groups) {
        let _busy = Busy::in_group(group)?;
        group.limit(true)?;
        let period = group.period;
        let ticks = period.as_nanos() / tick.every.as_nanos() / count;
        let turn = tick.every * number * u32::try_from(ticks).unwrap_or(1);
        let turn = tick.at + tick.every.mul_f64(BEHIND_TICK) + turn;
        for _ in 0..TRIES {
            let began = group.next_period()?;
            // Whole periods, so that it is behind the present one.
            let ahead = turn + period * periods_until(turn, began, period);
            let late = remainder(ahead - began, period);
            if late <= NEAR || period - late <= NEAR {
                break;
            }
            // The end of this period is known; the next one is longer, and all later ones are as
            // before.
            group.set(Some(period + late))?;
            group.next_period()?;
            group.limit(true)?;
        }
        group.limit(false)?;
    }
    Ok(())
}

fn periods_until(from: At, to: At, period: Duration) -> u32 {
    let periods = to.saturating_sub(from).as_nanos() / period.as_nanos().max(1);
    u32::try_from(periods).unwrap_or(0) + 1
}

fn span(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

/// When periods of groups begin, in a period that all of them have.
#[cfg(test)]
pub(crate) fn phases(groups: &[Group]) -> Result<Vec<Duration>> {
    let phase = |group: &Group| {
        let _busy = Busy::in_group(group)?;
        group.limit(true)?;
        let began = group.next_period()?;
        group.limit(false)?;
        Ok(remainder(began, group.period))
    };
    groups.iter().map(phase).collect()
}

pub(crate) fn remainder(time: Duration, of: Duration) -> Duration {
    let nanos = time.as_nanos() % of.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// This thread may run on every processor, if that is allowed.
fn anywhere() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

impl Group {
    /// Waits until a period begins.
    fn next_period(&self) -> Result<At> {
        let before = self.periods()?;
        let start = span(clock_gettime(ClockId::Monotonic));
        loop {
            let seen = self.periods()?;
            let now = span(clock_gettime(ClockId::Monotonic));
            if seen != before {
                return Ok(now);
            }
            if now - start > NEVER {
                let cause = "nothing in the control group runs";
                return Err(Error::new(Errno::Io, self.dir.display().to_string(), cause));
            }
        }
    }

    /// How many periods there were.
    fn periods(&self) -> Result<u64> {
        let stat = self.dir.join("cpu.stat");
        let text = fs::read_to_string(&stat).map_err(|error| failed(&stat, &error))?;
        let line = text.lines().find_map(|line| line.strip_prefix("nr_periods "));
        Ok(line.and_then(|number| number.trim().parse().ok()).unwrap_or(0))
    }
}

/// A process that uses all of a group's share: periods are only counted while a process wants to
/// run.
struct Busy(Child);

impl Busy {
    fn in_group(group: &Group) -> Result<Self> {
        let procs = group.dir.join("cgroup.procs");
        let mut command = Command::new("sh");
        // It ends with this process, also if that is killed.
        let text = "while kill -0 $PPID 2>/dev/null; do :; done";
        command.args(["-c", text]).stdin(Stdio::null());
        let busy = command.spawn().map(Self).map_err(|error| failed(&procs, &error))?;
        fs::write(&procs, busy.0.id().to_string()).map_err(|error| failed(&procs, &error))?;
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
