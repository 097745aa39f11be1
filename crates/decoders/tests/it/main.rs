//! All targets on the kept inputs, and on changed ones.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "I/O edge: the kept inputs are files"
)]

use std::path::{Path, PathBuf};

use types::rng::Rng;

use decoders::TARGETS;

/// Changed inputs of a target in every run; `CUDELE_FUZZ` asks for another number.
const CHANGES: u64 = 300;
/// A kept input is not larger.
const INPUT_BYTES_MAX: usize = 4096;

/// The folder with the kept inputs of a target.
fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(target)
}

/// The kept inputs of a target, by file name.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let Ok(folder) = std::fs::read_dir(corpus(target)) else { return Vec::new() };
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Changes an input as transport errors and attackers do: bytes, numbers, lengths, pieces.
fn change(input: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(3) {
        let at = usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap();
        let random = u8::try_from(rng.below(256)).unwrap();
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random),
            2 => bytes.extend_from_slice(&input[at.min(input.len())..]),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][usize::from(random) % 5],
            _ if at < bytes.len() => bytes[at] ^= 1 << (random % 8),
            _ => bytes.push(random),
        }
    }
    bytes
}

#[test]
fn every_target_returns_for_kept_and_changed_inputs() {
    let wished = std::env::var("CUDELE_FUZZ").ok().and_then(|number| number.parse().ok());
    let changes: u64 = wished.unwrap_or(CHANGES);
    for (number, target) in (0u64..).zip(&TARGETS) {
        let mut inputs = kept(target.name);
        inputs.push((target.sample)());
        for (at, input) in (0u64..).zip(&inputs) {
            (target.run)(input);
            let mut rng = Rng::new(number << 32 | at);
            for _ in 0..changes / inputs.len() as u64 {
                (target.run)(&change(input, &mut rng));
            }
        }
    }
}

#[test]
fn targets_have_different_names_in_order_and_small_inputs() {
    assert!(TARGETS.is_sorted_by(|a, b| a.name < b.name));
    let writes = std::env::var_os("UPDATE_EXPECT").is_some();
    for target in &TARGETS {
        let sample = corpus(target.name).join("sample");
        if writes && kept(target.name).is_empty() {
            std::fs::create_dir_all(corpus(target.name)).unwrap();
            std::fs::write(sample, (target.sample)()).unwrap();
        }
        let inputs = kept(target.name);
        assert!(!inputs.is_empty(), "{}: UPDATE_EXPECT=1 writes its sample", target.name);
        for input in inputs {
            assert!(input.len() <= INPUT_BYTES_MAX, "{}: {} bytes", target.name, input.len());
        }
    }
    let folders = std::fs::read_dir(corpus("")).unwrap();
    let mut folders: Vec<_> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    assert_eq!(folders, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
}
