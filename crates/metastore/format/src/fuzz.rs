//! One entry for fuzzers: every decoder of the crate on arbitrary bytes.
//!
//! Invariant: returns for all bytes.

use types::DirFragId;

use crate::{Branch, Manifest, ObjectName, Removal, RunInfo, RunReader, Snapshots, merge, run};

/// Runs all decoders.
pub fn decode(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let name = ObjectName::parse(text).map(|name| name.to_string());
        assert!(name.is_none_or(|name| name == text), "a name parses only if it is canonical");
    }
    if let Ok(manifest) = Manifest::decode(data) {
        assert_eq!(manifest.encode(), data, "a manifest has one encoding");
        let missing = vec![Vec::new(); manifest.runs.len().min(4)];
        let _ = merge(&manifest, &missing);
    }
    if let Ok(snapshots) = Snapshots::decode(data) {
        assert_eq!(Snapshots::decode(&snapshots.encode()), Ok(snapshots), "it is read back");
    }
    if let Ok(branch) = Branch::decode("branch", data) {
        assert_eq!(Branch::decode("branch", &branch.encode()), Ok(branch), "it is read back");
    }
    if let Ok(list) = Removal::decode_list("removed", data) {
        assert_eq!(Removal::encode_list(&list), data, "a list of removals has one encoding");
    }
    // Without a checksum, which arbitrary bytes would not get past.
    run::fuzz_block(data);
    if let Ok(reader) = RunReader::open(data) {
        let mut cursor = reader.iter();
        while let Ok(Some(row)) = cursor.next_row() {
            let _ = reader.get(row.name);
        }
        let mut manifest = Manifest::new(DirFragId::default());
        manifest.dirfrag = reader.dirfrag();
        manifest.runs.push(RunInfo::of(&reader));
        let _ = merge(&manifest, &[data.to_vec()]);
    }
}
