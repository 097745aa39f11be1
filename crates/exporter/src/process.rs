//! The use of the machine by this process, with the names that all exporters use.

use std::fs;

use crate::{MetricDescription, MetricsPage};

static CPU: MetricDescription = MetricDescription::counter(
    "process_cpu_seconds",
    "The time that the process computed. A metadata server serves with one thread.",
    "a metadata server grows by 1 s each second: it is at its limit; add a rank",
);
static MEMORY: MetricDescription = MetricDescription::gauge(
    "process_resident_memory_bytes",
    "The memory of the process.",
    "near the memory of the machine, or of the control group",
);
static DESCRIPTORS: MetricDescription = MetricDescription::gauge(
    "process_open_fds",
    "The open descriptors of the process: connections, and files.",
    "near `process_max_fds`",
);
static LIMIT: MetricDescription =
    MetricDescription::gauge("process_max_fds", "How many descriptors the process can have.", "");

/// The metrics of a process.
pub(crate) static METRICS: [&MetricDescription; 4] = [&CPU, &MEMORY, &DESCRIPTORS, &LIMIT];

/// Adds the figures of the kernel about this process.
pub(crate) fn measure(page: &mut MetricsPage) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "seconds of years fit 52 bits")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    page.real(&CPU, Vec::new(), seconds);
    let resident = fs::read_to_string("/proc/self/statm").ok();
    let pages = resident.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    if let Some(pages) = pages {
        page.whole(&MEMORY, pages.saturating_mul(rustix::param::page_size() as u64));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.whole(&DESCRIPTORS, open.count() as u64);
    }
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    page.whole(&LIMIT, maximum.unwrap_or(u64::MAX));
}
