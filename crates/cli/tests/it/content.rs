//! File content that was altered in the store: commands and the library reject it, and `scrub` and
//! `fsck` find it.

use cudele::{Errno, Fs};
use serde_json::Value;

use crate::cluster::Cluster;

const STRIPE: usize = 4 << 20;

fn content() -> Vec<u8> {
    (0..2 * STRIPE + 50_000).map(|at| (at % 251).to_le_bytes()[0] | 1).collect()
}

fn objects(cluster: &Cluster) -> std::sync::Arc<dyn objstore::Store> {
    objstore::open_existing(cluster.dir.join("store").to_str().unwrap()).unwrap()
}

fn put(store: &dyn objstore::ObjectStore, name: &str, bytes: &[u8]) {
    let put = store.put(name, bytes, objstore::Expect::Any).unwrap();
    assert!(matches!(put, objstore::PutOutcome::Done(_)));
}

fn read(fs: &Fs, path: &str) -> cudele::Result<Vec<u8>> {
    let (mut all, attr) = (Vec::new(), fs.stat(path)?);
    fs.read_file(&attr, &mut |piece| {
        all.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(all)
}

/// The findings of a command: codes and paths.
fn found(cluster: &Cluster, command: &str) -> Vec<(String, String)> {
    let output = cluster.command(&["--json", command]).output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = value["findings"].as_array().unwrap();
    assert_eq!(output.status.success(), findings.is_empty(), "{value:#}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    findings.iter().map(|finding| (text(&finding["code"]), text(&finding["path"]))).collect()
}

/// The files of the condition `CONTENT_DAMAGED`; `--check` exits with 2 if there is one.
fn damaged_inodes(cluster: &Cluster) -> Vec<u64> {
    let (checks, status) = cluster.health();
    let damaged = checks.iter().filter(|it| it["code"] == "CONTENT_DAMAGED");
    let texts = damaged.map(|it| it["text"].as_str().unwrap().to_owned());
    let inodes: Vec<u64> = texts
        .map(|text| {
            text.strip_prefix("inode ").unwrap().split(':').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(status, if inodes.is_empty() { 0 } else { 2 }, "{checks:?}");
    inodes
}

#[test]
fn content_that_was_altered_in_the_store_is_an_error_and_is_found() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/dir"]);
    let whole = content();
    cluster.run_with_input(&["cp", "-", "/dir/file"], &whole);
    let store = objects(&cluster);
    let ino = cluster.mount().stat("/dir/file").unwrap().ino;
    let stripe = metastore::data_name(ino, types::Pool::USUAL, 1);
    let (bytes, _) = store.get(&stripe).unwrap();
    let mut flipped = bytes.clone();
    flipped[1_000_000] ^= 4;
    let zeros = vec![0; STRIPE];
    let damages: [(&str, Option<&[u8]>); 4] = [
        ("flipped", Some(&flipped)),
        ("cut", Some(&bytes[..STRIPE / 2])),
        ("zeroed", Some(&zeros)),
        ("removed", None),
    ];
    for (damage, altered) in damages {
        match altered {
            Some(altered) => put(&*store, &stripe, altered),
            None => assert!(store.delete(&stripe).unwrap()),
        }
        let error = read(&cluster.mount(), "/dir/file").unwrap_err();
        assert_eq!(error.errno, Errno::Io, "{damage}");
        assert!(error.to_string().contains(&format!("inode {}", ino.0)), "{damage}: {error}");
        let copied = cluster.command(&["cp", "/dir/file", "-"]).output().unwrap();
        assert!(!copied.status.success(), "{damage}");
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(said.contains("checksum") && said.contains("block "), "{damage}: {said}");
        assert_eq!(damaged_inodes(&cluster), [ino.0], "{damage}: the reader reported the file");
        store.delete(metastore::DAMAGED_FILES_NAME).unwrap();
        let codes: Vec<String> = found(&cluster, "scrub").into_iter().map(|it| it.0).collect();
        assert_eq!(codes, ["content"], "{damage}");
        assert_eq!(damaged_inodes(&cluster), [ino.0], "{damage}: the scrub reported the file");
    }
    cluster.run(&["down"]);
    assert_eq!(found(&cluster, "fsck"), [("content".to_owned(), "/dir/file".to_owned())]);
    put(&*store, &stripe, &bytes);
    assert!(found(&cluster, "fsck").is_empty());
    cluster.start();
    assert!(read(&cluster.mount(), "/dir/file").unwrap() == whole);
    assert!(cluster.run(&["cp", "/dir/file", "-"]) == whole);
    assert_eq!(damaged_inodes(&cluster), [ino.0], "no scrub has read the file since");
    cluster.run(&["scrub"]);
    assert!(damaged_inodes(&cluster).is_empty());
}

#[test]
fn files_without_checksums_are_read_and_a_policy_switches_them_off() {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "/off"]);
    cluster.run_with_input(&["policy", "set", "/off", "-"], b"checksums: off\n");
    let whole = content();
    for path in ["/off/file", "/on"] {
        cluster.run_with_input(&["cp", "-", path], &whole);
    }
    let (store, fs) = (objects(&cluster), cluster.mount());
    let sums = |path| metastore::sums_name(fs.stat(path).unwrap().ino, types::Pool::USUAL, 0);
    assert!(store.stat(&sums("/off/file")).is_err());
    let bytes = store.get(&sums("/on")).unwrap().0;
    assert_eq!(bytes.len(), whole.len().div_ceil(16 << 10) * 16);
    // A file of a release without checksums.
    assert!(store.delete(&sums("/on")).unwrap());
    for path in ["/off/file", "/on"] {
        assert!(read(&fs, path).unwrap() == whole, "{path}");
    }
    assert!(found(&cluster, "scrub").is_empty());
}
