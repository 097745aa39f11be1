use super::*;

const TIME: &str = "2026-11-24T07:48:58.123Z";

fn event(level: LogLevel, name: &'static str) -> LogEvent {
    LogEvent::new(level, name, "cannot read \u{1b}[2J\nüber: gone")
}

#[test]
fn a_line_stays_one_line() {
    let event = event(LogLevel::Error, "store.failing").with("errno", "EIO").with("failures", 3);
    assert_eq!(
        text(TIME, "mds.0", 7, &event),
        "2026-11-24T07:48:58.123Z mds.0[7] error: cannot read \\u{1b}[2J\\nüber: gone\n"
    );
    assert_eq!(
        json(TIME, "mds.0", 7, &event),
        "{\"time\":\"2026-11-24T07:48:58.123Z\",\"level\":\"error\",\"daemon\":\"mds.0\",\"pid\":7,\
         \"event\":\"store.failing\",\"errno\":\"EIO\",\"failures\":3,\
         \"text\":\"cannot read \\u001b[2J\\nüber: gone\"}\n"
    );
}

#[test]
fn a_filter_admits_by_level_and_part() {
    let filter: LogFilter = "warning,store=debug,client=error".parse().unwrap();
    let admits = |level, name| filter.admits(level, name);
    assert!(admits(LogLevel::Warning, "server.active") && !admits(LogLevel::Info, "server.active"));
    assert!(admits(LogLevel::Debug, "store.full"));
    assert!(admits(LogLevel::Error, "client.fenced"));
    assert!(!admits(LogLevel::Warning, "client.fenced"));
    for wrong in ["", "loud", "info,", "info,disk=debug", "store=", "info;debug"] {
        let error = wrong.parse::<LogFilter>().expect_err(wrong);
        assert!(error.errno == Errno::Invalid && error.remedy.contains("transfer"), "{wrong}");
    }
    assert_eq!("xml".parse::<LogFormat>().unwrap_err().errno, Errno::Invalid);
}

#[test]
fn events_of_one_name_are_limited_and_counted() {
    let log = Log::of("mds.0");
    let now = Instant::now();
    let event = event(LogLevel::Warning, "request.slow");
    let written = (0..150).filter(|_| log.count(now, &event)).count();
    assert_eq!(written, 100);
    assert!(log.omitted(now).is_empty(), "the minute is not over");
    let omitted = log.omitted(now + MINUTE);
    assert_eq!(omitted.len(), 1);
    assert_eq!(omitted[0].fields, [("omitted", LogValue::Number(50))]);
    assert!(log.count(now + MINUTE, &event), "another minute");
    assert!(log.omitted(now + MINUTE + MINUTE).is_empty(), "nothing was left out in it");
}
