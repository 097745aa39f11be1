use super::*;

/// Bytes before the fields of a request.
const HEADER_BYTES: usize = 40;

/// A request as the kernel sends it.
fn request(opcode: u32, fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + fields.len()).unwrap();
    let mut bytes = [length, opcode].map(u32::to_ne_bytes).concat();
    bytes.extend([7_u64, 42].map(u64::to_ne_bytes).concat());
    bytes.extend([1000_u32, 100, 4711, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(fields);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

#[test]
fn the_kind_of_a_lock_is_a_flag() {
    for (flags, is_flock) in [(0, false), (1, true)] {
        let fields = [words(&[5, 9, 10, 19]), halves(&[1, 4711, flags, 0])].concat();
        for (opcode, waits) in [(opcode::SETLK, false), (opcode::SETLKW, true)] {
            let bytes = request(opcode, &fields);
            let Request { unique, node, uid, gid, pid, op, .. } = Request::parse(&bytes).unwrap();
            assert_eq!((unique, node, uid, gid, pid), (7, 42, 1000, 100, 4711));
            let Op::SetLock(lock, waits_found) = op else { panic!("{op:?}") };
            let (handle, owner, start, end) = (5, 9, 10, 19);
            let wanted = LockAsked { handle, owner, start, end, mode: 1, pid: 4711, is_flock };
            assert_eq!((lock, waits_found), (wanted, waits));
        }
    }
}

#[test]
fn valid_attributes_are_changed_and_no_other() {
    let fields = |valid: u64| {
        let times = words(&[11, (-12_i64).cast_unsigned(), 13]);
        let rest = halves(&[1, 2, 3, 0o640, 0, 20, 30, 0]);
        [words(&[valid, 1, 4096, 0]), times, rest].concat()
    };
    let parse = |valid| {
        let bytes = request(opcode::SETATTR, &fields(valid));
        let Op::SetAttr(change) = Request::parse(&bytes).unwrap().op else { panic!("{valid}") };
        change
    };
    assert_eq!(parse(0), SetAttr::default());
    let all = SetAttr {
        mode: Some(0o640),
        uid: Some(20),
        gid: Some(30),
        size: Some(4096),
        atime: Some(Time::At(11, 1)),
        mtime: Some(Time::At(-12, 2)),
        is_open: true,
    };
    assert_eq!(parse(0x7f), all);
    let now = SetAttr { atime: Some(Time::Now), mtime: Some(Time::Now), ..SetAttr::default() };
    assert_eq!(parse(0x1b0), now);
}

#[test]
fn a_truncated_request_is_refused() {
    let fields = [words(&[1, 2, 3, 4, 5, 6, 7, 8]), b"name\0other\0".to_vec()].concat();
    for opcode in 0..60 {
        for length in 0..fields.len() {
            // The header gives the length of the truncated request, so the fields are missing.
            let bytes = request(opcode, &fields[..length]);
            assert!(Request::parse(&bytes).is_some());
            assert!(Request::parse(&bytes[..bytes.len() - 1]).is_none());
            assert!(Init::parse(&bytes).is_none() || opcode == opcode::INIT);
        }
        let is_unknown = |bytes: &[u8]| matches!(Request::parse(bytes).unwrap().op, Op::Unknown);
        let has_fields = !is_unknown(&request(opcode, &fields));
        let without = [
            opcode::GETATTR,
            opcode::READLINK,
            opcode::STATFS,
            opcode::FSYNC,
            opcode::FSYNCDIR,
            opcode::OPENDIR,
            opcode::DESTROY,
        ];
        if has_fields && !without.contains(&opcode) {
            assert!(is_unknown(&request(opcode, b"")), "{opcode}");
        }
    }
}

#[test]
fn names_and_data_are_delimited() {
    let renamed = [words(&[43]), halves(&[1, 0]), b"from\0to\0".to_vec()].concat();
    let bytes = request(opcode::RENAME2, &renamed);
    let op = Request::parse(&bytes).unwrap().op;
    let Op::Rename(from, to, flags) = op else { panic!("{op:?}") };
    assert_eq!(
        (from.as_encoded_bytes(), to.node, to.name.as_encoded_bytes(), flags),
        (&b"from"[..], 43, &b"to"[..], 1)
    );
    let written = [words(&[0, 4096]), halves(&[3, 4]), words(&[0]), halves(&[0o2001, 0])].concat();
    let bytes = request(opcode::WRITE, &[written.clone(), b"abc".to_vec()].concat());
    let Op::Write(write) = Request::parse(&bytes).unwrap().op else { panic!("no write") };
    let wanted =
        Write { offset: 4096, data: b"abc", flags: 0o2001, is_cached: false, drops_set_id: true };
    assert_eq!(write, wanted);
    // Less data than the request has according to its field.
    let bytes = request(opcode::WRITE, &[written, b"ab".to_vec()].concat());
    assert!(matches!(Request::parse(&bytes).unwrap().op, Op::Unknown));
}
