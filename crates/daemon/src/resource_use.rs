//! How much of the machine this process takes, for the balancer.

use std::fs;

use mds::ResourceUse;
use rustix::time::{ClockId, clock_gettime};
use types::{Clock, Moment, Span};

/// How often CPU is measured: a tick is to have it up to then. That is one call to the kernel.
const INTERVAL: Span = Span::from_millis(20);
/// The process serves with one thread: more than one processor's time is no use to it.
const PROCESSORS: f64 = 1.0;
/// The interval between looks at memory and at the limits of the process, which may change.
const LIMITS: Span = Span::from_millis(1000);

/// Measures this process.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Processors, and bytes of memory, that it may use.
    processors: f64,
    memory_bytes: f64,
    page_bytes: f64,
    last: Option<(Moment, f64)>,
    limits_read: Option<Moment>,
    /// The sums so far. CPU time is divided by the processors that the process may use: with a
    /// tenth of a processor, a tenth of a second counts as one second.
    vitals: ResourceUse,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let (processors, memory_bytes) = (processors(), memory_bytes());
        #[allow(clippy::cast_precision_loss, reason = "a page has some KiB")]
        let page_bytes = rustix::param::page_size() as f64;
        let (last, limits_read, vitals) = (None, None, ResourceUse::default());
        Self { processors, memory_bytes, page_bytes, last, limits_read, vitals }
    }

    /// So many messages were waiting.
    pub(crate) fn note_arrived(&mut self, messages: u64) {
        if messages > 0 {
            self.vitals.found += messages;
            self.vitals.looks += 1;
        }
    }

    /// The sums up to now, if the last measurement is some time ago.
    pub(crate) fn measure(&mut self, clock: Clock) -> Option<ResourceUse> {
        let now = clock.now;
        if self.last.is_some_and(|(at, _)| now.since(at) < INTERVAL) {
            return None;
        }
        let cpu_seconds = cpu_seconds();
        if let Some((_, before)) = self.last {
            self.vitals.cpu_seconds += (cpu_seconds - before) / self.processors;
        }
        self.last = Some((now, cpu_seconds));
        if self.limits_read.is_none_or(|at| now.since(at) >= LIMITS) {
            self.limits_read = Some(now);
            self.processors = processors();
            let resident = resident_pages() * self.page_bytes;
            self.vitals.mem_percent = (resident / self.memory_bytes * 100.0).min(100.0);
        }
        Some(self.vitals)
    }
}

/// CPU time of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "seconds of years fit 52 bits")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// The second number of `statm`.
fn resident_pages() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default()
}

/// The processors that this process may use: the limit of its control group, and at most as many as
/// it can keep busy.
fn processors() -> f64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = quota(&groups, |file| fs::read_to_string(file).ok());
    allowed.unwrap_or(PROCESSORS).min(PROCESSORS)
}

/// The memory in bytes that the process may use: the limit of its control group, else the memory of
/// the machine.
fn memory_bytes() -> f64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim();
        kib.parse::<f64>().ok()
    });
    let machine = total.map_or(f64::MAX, |kib| kib * 1024.0);
    memory(&groups, |file| fs::read_to_string(file).ok()).unwrap_or(machine).min(machine)
}

/// The path of the process in the hierarchy of a controller, or in the unified one, from
/// `/proc/self/cgroup`.
fn group<'a>(groups: &'a str, controller: Option<&str>) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match controller {
            Some(controller) => controllers.split(',').any(|known| known == controller),
            None => controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

/// Processors that the control group of the process allows.
fn quota(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let unified = || {
        let path = group(groups, None)?;
        let text = read(&format!("/sys/fs/cgroup{path}/cpu.max"))?;
        let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().ok());
        Some(numbers.next()?? / numbers.next()??)
    };
    let first = || {
        let path = group(groups, Some("cpu"))?;
        let number = |name: &str| {
            read(&format!("/sys/fs/cgroup/cpu{path}/{name}"))?.trim().parse::<f64>().ok()
        };
        Some(number("cpu.cfs_quota_us")? / number("cpu.cfs_period_us")?)
    };
    unified().or_else(first).filter(|share| *share > 0.0)
}

/// Bytes of memory that it allows.
fn memory(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let number = |file: String| read(&file)?.trim().parse::<f64>().ok();
    let unified = || number(format!("/sys/fs/cgroup{}/memory.max", group(groups, None)?));
    let first = || {
        let path = group(groups, Some("memory"))?;
        number(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"))
    };
    unified().or_else(first).filter(|bytes| *bytes > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "4:memory:/jobs/1\n3:cpu,cpuacct:/ranks/2\n0::/\n";
    const V2: &str = "0::/ranks/2\n";

    #[test]
    fn limits_of_control_groups_are_read_in_both_versions() {
        let v1 = |file: &str| match file {
            "/sys/fs/cgroup/cpu/ranks/2/cpu.cfs_quota_us" => Some("20000\n".to_owned()),
            "/sys/fs/cgroup/cpu/ranks/2/cpu.cfs_period_us" => Some("100000\n".to_owned()),
            "/sys/fs/cgroup/memory/jobs/1/memory.limit_in_bytes" => Some("4096\n".to_owned()),
            _ => None,
        };
        assert_eq!((quota(V1, v1), memory(V1, v1)), (Some(0.2), Some(4096.0)));
        let v2 = |file: &str| match file {
            "/sys/fs/cgroup/ranks/2/cpu.max" => Some("50000 100000\n".to_owned()),
            "/sys/fs/cgroup/ranks/2/memory.max" => Some("8192\n".to_owned()),
            _ => None,
        };
        assert_eq!((quota(V2, v2), memory(V2, v2)), (Some(0.5), Some(8192.0)));
    }

    #[test]
    fn no_limit_is_none() {
        let v1 = |file: &str| {
            let value = if file.ends_with("quota_us") { "-1\n" } else { "100000\n" };
            Some(value.to_owned())
        };
        assert_eq!(quota(V1, v1), None);
        assert_eq!(quota(V2, |_| Some("max 100000\n".to_owned())), None);
        assert_eq!(memory(V2, |_| Some("max\n".to_owned())), None);
        assert_eq!(quota("", |_| None), None);
    }

    #[test]
    fn cpu_seconds_are_scaled_by_the_quota_of_the_process() {
        let mut meter = Meter::new();
        let at = |millis: u64| Clock { now: Moment(millis * 1_000_000), time: types::Timestamp(0) };
        assert_eq!(meter.measure(at(1)).map(|vitals| vitals.cpu_seconds), Some(0.0));
        meter.processors = 0.001;
        let before = cpu_seconds();
        while cpu_seconds() - before < 0.002 {}
        let vitals = meter.measure(at(101)).expect("some time has passed");
        assert!(vitals.cpu_seconds >= 2.0, "{vitals:?}");
    }

    #[test]
    fn this_process_is_measured() {
        let mut meter = Meter::new();
        let at = |millis: u64| Clock { now: Moment(millis * 1_000_000), time: types::Timestamp(0) };
        assert_eq!(meter.measure(at(1)).map(|vitals| vitals.cpu_seconds), Some(0.0));
        assert_eq!(meter.measure(at(2)), None);
        meter.note_arrived(3);
        meter.note_arrived(0);
        meter.note_arrived(1);
        let before = cpu_seconds();
        while cpu_seconds() - before < 0.01 {}
        let vitals = meter.measure(at(1001)).expect("a second has passed");
        assert!(vitals.mem_percent > 0.0 && vitals.cpu_seconds >= 0.01, "{vitals:?}");
        assert_eq!((vitals.found, vitals.looks), (4, 2));
    }
}
