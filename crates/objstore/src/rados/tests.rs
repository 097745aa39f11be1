use super::*;

const DF: &str = r#"{"stats":{"total_bytes":100},"pools":[
    {"name":"a","id":1,"stats":{"stored":10,"objects":1,"max_avail":40}},
    {"name":"b","id":2,"stats":{"stored":5,"objects":1,"max_avail":30}}]}"#;

fn space(pools: &[&str]) -> Option<Space> {
    let pools: Vec<String> = pools.iter().map(|pool| (*pool).to_owned()).collect();
    space_of(DF.as_bytes(), &pools)
}

#[test]
fn the_room_left_is_that_of_the_fullest_pool() {
    assert_eq!(space(&["a"]), Some(Space::of_bytes(50, 40)));
    assert_eq!(space(&["a", "b"]), Some(Space::of_bytes(45, 30)));
    assert_eq!(space(&["c"]), None);
    assert_eq!(space_of(b"?", &["a".into()]), None);
    let empty = br#"{"pools":[{"name":"a","stats":{"stored":0,"max_avail":0}}]}"#;
    assert_eq!(space_of(empty, &["a".into()]), None, "without a manager all is 0");
}

#[test]
fn errors_say_what_to_do() {
    for (code, errno, words) in [
        (-28, Errno::NoSpace, "ceph df"),
        (-122, Errno::NoSpace, "quota"),
        (-108, Errno::Stale, "shut out"),
        (-110, Errno::TimedOut, "op_timeout"),
        (-1, Errno::Access, "ceph auth get"),
        (-5, Errno::Io, "ceph health"),
        (-9999, Errno::Io, "error 9999"),
    ] {
        let error = to_error("journal/x", "write", Code(code));
        assert_eq!((error.errno, &*error.subject), (errno, "journal/x"), "{code}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
}
