//! The targets.

use std::fmt::Debug;
use std::io::Read;
use std::str::{FromStr, from_utf8};

use balancer::{
    BalancerPolicy, BalancerView, DecisionRecord, Heartbeat, Metrics, STATE_BYTES_MAX, State,
    decide,
};
use crc32c::crc32c;
use ingest::source::{EntrySink, Skip, SourceEntry, SourceKind, read_dump};
use metastore::{
    Branch, DamagedFiles, MovedName, ObjectName, ProofKey, Removal, Snapshots, Subtrees,
    decode_copy,
};
use types::acl::AccessList;
use types::quota::{QuotaLimits, QuotaReport};
use types::{
    ClientId, Cred, Epoch, IdRanges, Ino, KeyRule, Path, Rank, Tid, Timestamp, TrashEntry, hex,
};
use wire::{ClusterMap, Hello, Message, Op, ProtocolVersions, ReadOp, Request};

/// A decoder or parser for a fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and of the folder with its inputs.
    pub name: &'static str,
    /// Reads any bytes.
    pub run: fn(&[u8]),
    /// An input that has a meaning.
    pub sample: fn() -> Vec<u8>,
}

/// All targets, by name.
pub static TARGETS: [Target; 30] = [
    Target { name: "access-list", run: access_list, sample: access_list_sample },
    Target { name: "address", run: address, sample: || b"tcp:mon.example.org:6800".to_vec() },
    Target { name: "balancer-policy", run: balancer_policy, sample: balancer_policy_sample },
    Target { name: "balancer-record", run: balancer_record, sample: balancer_record_sample },
    Target { name: "balancer-state", run: balancer_state, sample: || State::Nothing.encode() },
    Target { name: "branch", run: branch, sample: || Branch::default().encode() },
    Target { name: "cluster-map", run: cluster_map, sample: cluster_map_sample },
    Target { name: "composition", run: composition, sample: || b"rpcs+stream||(a)".to_vec() },
    Target { name: "copy", run: copy, sample: || metastore::encode_copy(MAP, b"map") },
    Target { name: "damaged-files", run: damaged_files, sample: damaged_files_sample },
    Target { name: "dump", run: dump, sample: dump_sample },
    Target { name: "heartbeat", run: heartbeat, sample: heartbeat_sample },
    Target { name: "http", run: http, sample: http_sample },
    Target { name: "id-ranges", run: id_ranges, sample: || b"0,1000-1999,4242".to_vec() },
    Target { name: "journal", run: journal::fuzz::decode, sample: Vec::new },
    Target { name: "key", run: key, sample: key_sample },
    Target { name: "key-rule", run: key_rule, sample: || b"read,merge:/scratch/job9".to_vec() },
    Target { name: "metastore", run: metastore::fuzz::decode, sample: Vec::new },
    Target { name: "mount-options", run: mount_options, sample: mount_options_sample },
    Target { name: "moved-name", run: moved_name, sample: || MovedName::default().encode() },
    Target { name: "object-name", run: object_name, sample: || b"rank/0000/table".to_vec() },
    Target { name: "path", run: path, sample: || b"/a//b/../c".to_vec() },
    Target { name: "policy", run: policy_file, sample: policy_file_sample },
    Target { name: "quota", run: quota, sample: || b"inodes=100 bytes=4096".to_vec() },
    Target { name: "rank-table", run: rank_table, sample: Vec::new },
    Target { name: "snapshots", run: snapshots, sample: || Snapshots::default().encode() },
    Target { name: "strace", run: strace, sample: strace_sample },
    Target { name: "subtrees", run: subtrees, sample: || Subtrees::default().encode() },
    Target { name: "watch-position", run: text::<cudele::WatchPosition>, sample: watch_sample },
    Target { name: "wire", run: message, sample: message_sample },
];

const MAP: &str = "mon/map";

/// Reads bytes as they are, and with the right checksum at their end.
fn sealed(bytes: &[u8], read: impl Fn(&[u8])) {
    read(bytes);
    let crc = crc32c(bytes).to_le_bytes();
    read(&[bytes, &crc].concat());
    // An input that was whole before a change.
    if let Some((body, _)) = bytes.split_last_chunk::<4>() {
        read(&[body, &crc32c(body).to_le_bytes()].concat());
    }
}

/// A value that was read is the same after it was written and read again.
fn again<T: PartialEq + Debug, E: PartialEq + Debug>(
    value: Result<T, E>,
    write: impl Fn(&T) -> Vec<u8>,
    read: impl Fn(&[u8]) -> Result<T, E>,
) {
    if let Ok(value) = value {
        let read = read(&write(&value));
        assert_eq!(read.as_ref(), Ok(&value), "the written value is read back");
    }
}

/// The same of text: the shown value is read back.
fn text<T: PartialEq + Debug + FromStr + ToString>(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    if let Ok(value) = text.parse::<T>() {
        let shown = value.to_string();
        assert_eq!(shown.parse::<T>().ok().as_ref(), Some(&value), "{shown} is read back");
    }
}

fn access_list(bytes: &[u8]) {
    if let Some(list) = AccessList::decode(bytes) {
        assert_eq!(AccessList::decode(&list.encode()).as_ref(), Some(&list), "it is read back");
    }
}

fn access_list_sample() -> Vec<u8> {
    hex::decode(
        "0200000001000700ffffffff02000600e803000004000500ffffffff10000700ffffffff20000400ffffffff",
    )
    .unwrap_or_default()
}

fn address(bytes: &[u8]) {
    text::<net::Address>(bytes);
    let Ok(text) = from_utf8(bytes) else { return };
    if let Ok(value) = text.parse::<httpserver::HttpAddress>() {
        let argument = value.argument().into_string().unwrap_or_default();
        assert_eq!(argument.parse(), Ok(value), "{argument} is read back");
    }
}

fn balancer_policy(bytes: &[u8]) {
    // A policy is held against its limits on steps and memory, which take a while to reach.
    let Ok(policy) = BalancerPolicy::parse_bytes("fuzz", &bytes[..bytes.len().min(4096)]) else {
        return;
    };
    let view = BalancerView { ranks: vec![Metrics::default(); 3], ..BalancerView::default() };
    let decision = decide(&policy, &view, &State::Nothing);
    assert!(decision.targets.iter().all(|target| *target >= 0.0), "no rank gets less than nothing");
}

fn balancer_policy_sample() -> Vec<u8> {
    balancer::PRESETS.first().map(|preset| preset.text.as_bytes().to_vec()).unwrap_or_default()
}

fn balancer_record(bytes: &[u8]) {
    let read = |bytes: &[u8]| DecisionRecord::decode(bytes).map(|record| record.encode());
    again(read(bytes), Vec::clone, read);
}

fn balancer_record_sample() -> Vec<u8> {
    let what = balancer::RecordedEvent::Tick(balancer::TickRecord::default());
    DecisionRecord { rank: Rank(1), time: Timestamp(5), what }.encode()
}

fn balancer_state(bytes: &[u8]) {
    let read = |bytes: &[u8]| State::decode(bytes).map(|state| state.encode());
    again(read(bytes), Vec::clone, read);
    assert!(bytes.len() <= STATE_BYTES_MAX || State::decode(bytes).is_err(), "a state is bounded");
}

fn branch(bytes: &[u8]) {
    sealed(bytes, |bytes| {
        let read = |bytes: &[u8]| Branch::decode("b", bytes);
        again(read(bytes), Branch::encode, read);
    });
}

fn cluster_map(bytes: &[u8]) {
    sealed(bytes, |bytes| {
        again(mon::read_map(bytes).map_err(|_| ()), mon::map_bytes, |bytes| {
            mon::read_map(bytes).map_err(|_| ())
        });
    });
}

fn cluster_map_sample() -> Vec<u8> {
    mon::map_bytes(&ClusterMap::default())
}

fn composition(bytes: &[u8]) {
    if let Ok(text) = from_utf8(bytes)
        && let Ok(value) = policy::Composition::parse(text)
    {
        let shown = value.to_string();
        assert_eq!(policy::Composition::parse(&shown).as_ref(), Ok(&value), "{shown}");
    }
}

fn copy(bytes: &[u8]) {
    sealed(bytes, |bytes| {
        let read = |bytes: &[u8]| decode_copy(MAP, bytes).map(<[u8]>::to_vec);
        again(read(bytes), |data| metastore::encode_copy(MAP, data), read);
    });
}

fn damaged_files(bytes: &[u8]) {
    sealed(bytes, |bytes| {
        again(DamagedFiles::decode(bytes), DamagedFiles::encode, DamagedFiles::decode);
    });
    sealed(bytes, |bytes| {
        let read = |bytes: &[u8]| Removal::decode_list("r", bytes);
        again(read(bytes), |list| Removal::encode_list(list), read);
    });
}

fn damaged_files_sample() -> Vec<u8> {
    DamagedFiles::default().encode()
}

/// Refuses entries that leave the destination.
struct Judge;

impl EntrySink for Judge {
    fn take(&mut self, entry: &SourceEntry<'_>, content: &mut dyn Read) -> cudele::Result<()> {
        let is_below = |path: &[u8]| {
            !path.starts_with(b"/") && !path.split(|byte| *byte == b'/').any(|name| name == b"..")
        };
        assert!(is_below(entry.path), "an entry leaves the destination");
        if let SourceKind::HardLink(first) = entry.kind {
            assert!(is_below(first), "a link leaves the destination");
        }
        let read = std::io::copy(content, &mut std::io::sink());
        let read =
            read.map_err(|error| cudele::Error::new(cudele::Errno::Io, "", error.to_string()))?;
        if let SourceKind::File { size } = entry.kind {
            assert_eq!(read, size, "a file has its content");
        }
        Ok(())
    }

    fn skip(&mut self, _: Skip) {}
}

fn dump(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let _ = read_dump("fuzz", Box::new(bytes), &mut Judge);
    };
    read(bytes);
    // Chance makes no frame of zstd.
    if let Ok(packed) = zstd::bulk::compress(bytes, 1) {
        read(&packed);
    }
}

fn dump_sample() -> Vec<u8> {
    br#"{"cudele_dump":1,"path":"/a","branch":"dump-1","branch_is_temporary":true,"time_ns":5}
{"path":"","type":"directory","mode":"0755","uid":0,"gid":0,"size":0,"ino":1,"nlink":3,"mtime_ns":1,"atime_ns":2,"ctime_ns":3,"btime_ns":4}
{"path":"x","type":"file","mode":"4755","uid":7,"gid":8,"size":2,"ino":2,"nlink":2,"mtime_ns":-1,"atime_ns":2,"ctime_ns":3,"btime_ns":4,"data_hex":"6869","xattrs":[{"name":"user.a","value_hex":"00"}]}
{"path":"y","type":"file","mode":"4755","uid":7,"gid":8,"size":2,"ino":2,"nlink":2,"mtime_ns":-1,"atime_ns":2,"ctime_ns":3,"btime_ns":4,"same_as":"x"}
{"entries":3,"skipped":0,"end":true}
"#
    .to_vec()
}

fn heartbeat(bytes: &[u8]) {
    let read = |bytes: &[u8]| Heartbeat::decode(bytes).map(|heartbeat| heartbeat.encode());
    again(read(bytes), Vec::clone, read);
}

fn heartbeat_sample() -> Vec<u8> {
    Heartbeat { rank: Rank(1), epoch: Epoch(2), policy: 3, tick: 4, metrics: Metrics::default() }
        .encode()
}

fn http(bytes: &[u8]) {
    if let Ok(Some(request)) = httpserver::HttpRequest::parse(bytes) {
        let _ = (request.parameter("from"), request.fields("authorization").count());
    }
}

fn http_sample() -> Vec<u8> {
    b"GET /api/decoupled?from=1&find=a%20b HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 00\r\n\r\n"
        .to_vec()
}

fn id_ranges(bytes: &[u8]) {
    text::<IdRanges>(bytes);
}

fn key(bytes: &[u8]) {
    if let Ok(text) = from_utf8(bytes) {
        let _ = keys::narrowable("key", text);
    }
}

fn key_sample() -> Vec<u8> {
    b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n\
      -----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"
        .to_vec()
}

fn key_rule(bytes: &[u8]) {
    if let Ok(text) = from_utf8(bytes) {
        let _ = KeyRule::parse(text);
    }
}

fn watch_sample() -> Vec<u8> {
    b"0.7.1234+1.3.99".to_vec()
}

fn mount_options(bytes: &[u8]) {
    if let Ok(text) = from_utf8(bytes) {
        let _ = mount::MountOptions::default().parse(text);
    }
}

fn mount_options_sample() -> Vec<u8> {
    b"ro,uidmap=1000:101000:500,all_squash=3000:3000,valid=1.5,timeout=30".to_vec()
}

fn moved_name(bytes: &[u8]) {
    sealed(bytes, |bytes| again(MovedName::decode(bytes), MovedName::encode, MovedName::decode));
}

fn object_name(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    if let Some(name) = ObjectName::parse(text) {
        assert_eq!(name.to_string(), text, "a name parses only if it is canonical");
    }
    let _ = metastore::request::parse_rank_name(text);
    let _ = ProofKey::parse(text);
}

fn path(bytes: &[u8]) {
    if let Ok(path) = Path::parse(bytes) {
        assert_eq!(Path::parse(path.to_bytes()).as_ref(), Ok(&path), "it is read back");
    }
    let _ = TrashEntry::decode(bytes);
}

fn policy_file(bytes: &[u8]) {
    if let Ok(parsed) = policy::Policy::parse_bytes(bytes) {
        let text = parsed.policy.to_yaml();
        let read = policy::Policy::parse(&text).map(|parsed| parsed.policy);
        assert_eq!(read.as_ref(), Ok(&parsed.policy), "{text}");
    }
}

fn policy_file_sample() -> Vec<u8> {
    b"consistency: append_client_journal+volatile_apply\ndurability: local_persist\n\
      allocated_inodes: 10k\n"
        .to_vec()
}

fn quota(bytes: &[u8]) {
    let _ = QuotaLimits::parse(bytes);
    let _ = QuotaReport::parse_all(bytes);
}

fn rank_table(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let _ = mds::RankTable::decode(Rank(0), bytes);
    };
    read(bytes);
    // The checksum of a table includes its name.
    let name = metastore::request::rank_name(Rank(0));
    let crc = journal::checksum(&[name.as_bytes(), bytes].concat());
    read(&[bytes, &crc.to_le_bytes()].concat());
}

fn snapshots(bytes: &[u8]) {
    sealed(bytes, |bytes| again(Snapshots::decode(bytes), Snapshots::encode, Snapshots::decode));
}

fn strace(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    let trace = advise::Trace { text, cwd: Some(b"/job") };
    let _ = advise::Trace::read(&[trace], b"/job", true);
}

fn strace_sample() -> Vec<u8> {
    b"12 0.000100 openat(AT_FDCWD, \"/job/a\", O_WRONLY|O_CREAT, 0644) = 3\n\
      12 0.000200 write(3, \"x\", 1) = 1\n12 0.000300 close(3) = 0\n"
        .to_vec()
}

fn subtrees(bytes: &[u8]) {
    sealed(bytes, |bytes| again(Subtrees::decode(bytes), Subtrees::encode, Subtrees::decode));
}

fn message(bytes: &[u8]) {
    wire::fuzz::decode(bytes);
    let _ = ProtocolVersions::decode(bytes);
}

fn message_sample() -> Vec<u8> {
    let hello = Hello { client: ClientId(7), epoch: Epoch(3), unsafe_requests: 1 };
    let op = Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"a/b" });
    let request = Message::Request(Request::new(Tid(9), Tid(8), Cred::root(), op));
    [Message::Hello(hello), request, Message::Stop].iter().flat_map(Message::to_frame).collect()
}
