//! A merge releases a decoupled subtree to all clients.

use std::fs::File;
use std::process::Stdio;

use cudele::{ClientId, Errno, Fs, Ino, NewFile, Subtree};
use journal::{Create, Event, JournalBuffer, SegmentHeader, Writer};
use rustix::process::{Signal, kill_process};
use tar::Header;
use types::{Origin, Stripe, Timestamp};

use crate::fixture::World;
use crate::tools::{append, decouple, eventually, mount, seen, server, start};

const PLAIN: &str = "consistency: append_client_journal";
const CHECKED: &str = "consistency: append_client_journal\ncheck: merge";

/// A journal that its client did not write: one file in a directory. It claims to follow the
/// subtree's content.
fn forged(job: &mut Subtree, client: ClientId, place: (Ino, &[u8]), ino: Ino) -> Vec<u8> {
    forged_with(job, client, place, (ino, b""))
}

/// The same with this content in the file's inode.
fn forged_with(
    job: &mut Subtree,
    client: ClientId,
    (parent, name): (Ino, &[u8]),
    (ino, data): (Ino, &[u8]),
) -> Vec<u8> {
    let header = SegmentHeader::decode(&job.journals()[0]).unwrap();
    let writer = Writer::Client { client, subtree: job.root() };
    let mut events = JournalBuffer::new(header.first_seq, false);
    let (uid, gid, rdev, size) = (0, 0, 0, data.len() as u64);
    let stripe = Stripe::default();
    let (time, mtime, atime, mode) = (Timestamp(1), Timestamp(1), Timestamp(1), 0o100_644);
    events.append(
        Origin::default(),
        &Event::Create(Create {
            parent,
            name,
            ino,
            mode,
            uid,
            gid,
            rdev,
            stripe,
            size,
            time,
            mtime,
            atime,
            data,
            extra: &[],
        }),
    );
    events.close_block();
    let mut bytes = SegmentHeader { writer, ..header }.encode().to_vec();
    events.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
    bytes
}

#[track_caller]
fn refused(fs: &Fs, subtree: Ino, journal: &[u8], errno: Errno) {
    assert_eq!(fs.apply_journal(subtree, journal, false).unwrap_err().errno, errno);
}

#[test]
fn a_journal_with_foreign_numbers_is_refused_as_a_whole() {
    let world = World::new();
    let fs = mount(&world);
    let mut job = decouple(&fs, "/job", PLAIN);
    let own = append(&mut job, &["a"])[0];
    let (root, me, other) = (job.root(), fs.client(), ClientId(fs.client().0 + 1_000));
    let fine = forged(&mut job, me, (root, b"x"), own);
    let theirs = forged(&mut job, other, (root, b"x"), own);
    refused(&fs, root, &theirs, Errno::Invalid);
    let numbers = forged(&mut job, me, (root, b"x"), Ino(own.0 + 5_000_000));
    refused(&fs, root, &numbers, Errno::NotPermitted);
    let name = forged(&mut job, me, (root, b"x/y"), own);
    refused(&fs, root, &name, Errno::Invalid);
    let content = vec![7; cudele::INLINE_BYTES_MAX + 1];
    let large = forged_with(&mut job, me, (root, b"x"), (own, &content));
    refused(&fs, root, &large, Errno::TooBig);
    let mut damaged = fine.clone();
    *damaged.last_mut().unwrap() ^= 1;
    refused(&fs, root, &damaged, Errno::BadMessage);
    assert_eq!(seen(&world, "/job"), [""; 0]);
    // And not because it is forged.
    assert_eq!(fs.apply_journal(root, &fine, true).unwrap().created, 1);
    let most = forged_with(&mut job, me, (root, b"x"), (own, &content[1..]));
    assert_eq!(fs.apply_journal(root, &most, true).unwrap().created, 1);
}

#[test]
fn nothing_outside_the_subtree_is_touched() {
    let world = World::new();
    let fs = mount(&world);
    let outside = fs.make_dir("/outside", 0o755).unwrap().ino;
    let mut job = decouple(&fs, "/job", PLAIN);
    let own = append(&mut job, &["a"])[0];
    let root = job.root();
    let journal = forged(&mut job, fs.client(), (outside, b"x"), own);
    let report = fs.apply_journal(root, &journal, false).unwrap();
    assert_eq!((report.events, report.created, report.rejected), (1, 0, 1));
    assert_eq!(seen(&world, "/outside"), [""; 0]);
}

#[test]
fn whether_a_name_exists_is_not_checked_unless_the_policy_asks() {
    for (policy, created, replaced, rejected) in [(PLAIN, 3, 2, 0), (CHECKED, 2, 0, 1)] {
        let world = World::new();
        let (owner, other) = (mount(&world), mount(&world));
        let mut job = decouple(&owner, "/job", policy);
        let own = if policy == PLAIN {
            append(&mut job, &["both", "twice", "twice"])
        } else {
            append(&mut job, &["both", "once", "too"])
        };
        let dir = other.open_dir("/job").unwrap();
        let theirs = dir.create("both", &NewFile::default()).unwrap().ino;
        let report = job.merge().unwrap().merge.unwrap();
        assert_eq!(
            (report.created, report.replaced, report.rejected),
            (created, replaced, rejected)
        );
        let both = other.stat("/job/both").unwrap().ino;
        assert_eq!(both, if policy == PLAIN { own[0] } else { theirs });
    }
}

#[test]
fn a_dry_run_says_exactly_what_the_merge_does() {
    for policy in [PLAIN, CHECKED] {
        let world = World::new();
        let (owner, other) = (mount(&world), mount(&world));
        let kept = other.make_dir("/job/kept", 0o755).unwrap().ino;
        let removed = other.make_dir("/job/removed", 0o755).unwrap().ino;
        let mut job = decouple(&owner, "/job", policy);
        append(&mut job, &["a", "both"]);
        for (dir, name) in [(kept, b"in"), (removed, b"in")] {
            job.create(dir, name, &NewFile::default()).unwrap();
        }
        let dir = other.open_dir("/job").unwrap();
        dir.create("both", &NewFile::default()).unwrap();
        dir.rmdir("removed").unwrap();
        let before = seen(&world, "/job");
        let said = job.dry_run().unwrap();
        assert_eq!(seen(&world, "/job"), before);
        let did = job.merge().unwrap().merge.unwrap();
        assert_eq!((said.events, said.created), (did.events, did.created));
        assert_eq!((said.replaced, said.rejected), (did.replaced, did.rejected));
        assert_eq!(said.samples, did.samples);
        assert_eq!(did.replaced + did.rejected, 2);
    }
}

#[test]
fn events_in_removed_directories_are_left_out_and_the_rest_is_merged() {
    let world = World::new();
    let (owner, other) = (mount(&world), mount(&world));
    let [removed, moved] =
        ["/job/removed", "/job/moved"].map(|path| other.make_dir(path, 0o755).unwrap().ino);
    let mut job = decouple(&owner, "/job", PLAIN);
    for dir in [removed, moved] {
        job.create(dir, b"in", &NewFile::default()).unwrap();
    }
    append(&mut job, &["a"]);
    other.open_dir("/job").unwrap().rmdir("removed").unwrap();
    other.rename("/job/moved", "/away", cudele::RenameFlags::default()).unwrap();
    let report = job.merge().unwrap().merge.unwrap();
    assert_eq!((report.created, report.rejected), (1, 2));
    assert_eq!(seen(&world, "/job"), ["a"]);
    assert_eq!(seen(&world, "/away"), [""; 0]);
}

#[test]
fn where_the_store_has_the_journal_a_merge_is_all_or_nothing() {
    const FILES: u64 = 100_000;
    let world = World::new();
    let archive = world.path("files.tar");
    let mut files = tar::Builder::new(File::create(&archive).unwrap());
    for number in 0..FILES {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        files.append_data(&mut header, format!("f{number}"), &b""[..]).unwrap();
    }
    files.finish().unwrap();
    let archive = archive.to_str().unwrap();
    world.run(&["ingest", "--policy", "invisible-global", archive, "/job"]).done();
    let fs = mount(&world);
    let server = server(&world);
    let mut client = start(&world, &["merge", "/job"], Stdio::null());
    eventually("some of it is there", || fs.stat("/job").unwrap().size > 0);
    let part = fs.stat("/job").unwrap().size;
    kill_process(server, Signal::KILL).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    drop(fs);
    let store = world.store();
    eventually("the server is gone", || store.lock("rank/0000.lock", "test").is_ok());
    world.run(&["up"]).done();
    let fs = mount(&world);
    let size = || fs.stat("/job").unwrap().size;
    eventually("all of it or nothing is there", || [0, FILES].contains(&size()));
    println!("killed when {part} of {FILES} were there; afterwards {}", size());
    // Whichever it was, the client does not know, and merges again.
    let again = world.run(&["merge", "/job"]);
    assert!(again.ok || again.err.contains("ENOENT"), "{}", again.err);
    assert_eq!(size(), FILES);
}
