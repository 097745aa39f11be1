//! Names in [`Ino::TRASH`]: each names a removed tree, its former directory and path, the user who
//! removed it, and the end of the time for which the server keeps the tree.
//!
//! ```text
//! until.inode.parent.uid.gid.path
//! ```
//!
//! The numbers are hexadecimal. The path is the whole one, with its slashes escaped, if it fits
//! into a name, and else only its last name.
//!
//! Invariant: [`TrashEntry::decode`] reads exactly the names that [`TrashEntry::encode`] writes.

use crate::{Errno, Ino, NAME_BYTES_MAX, Timestamp, hex};

/// A removed tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrashEntry {
    /// The time until which it can be restored; 0 if its room is being given back.
    pub until: Timestamp,
    /// Its root.
    pub ino: Ino,
    /// The directory that had its name.
    pub parent: Ino,
    /// The user that removed the tree.
    pub uid: u32,
    /// The group of that user.
    pub gid: u32,
    /// Its path, with a leading slash, or only its last name.
    pub path: Vec<u8>,
}

impl TrashEntry {
    /// The name in the trash. A path that is too long is cut to its last name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if even that does not fit into a name.
    pub fn encode(&self) -> Result<Vec<u8>, Errno> {
        let Self { until, ino, parent, uid, gid, path } = self;
        let numbers =
            [until.0.max(0).cast_unsigned(), ino.0, parent.0, (*uid).into(), (*gid).into()];
        let mut head = Vec::new();
        for number in numbers {
            head.extend_from_slice(format!("{number:x}.").as_bytes());
        }
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        [path.as_slice(), last]
            .into_iter()
            .map(|text| [head.as_slice(), &escaped(text)].concat())
            .find(|name| name.len() <= NAME_BYTES_MAX)
            .ok_or(Errno::NameTooLong)
    }

    /// Reads a name; `None` if it is not one of the trash.
    #[must_use]
    pub fn decode(name: &[u8]) -> Option<Self> {
        let mut parts = name.splitn(6, |byte| *byte == b'.');
        let mut number = || {
            let text = std::str::from_utf8(parts.next()?).ok()?;
            hex::padded(text, 1)
        };
        let until = Timestamp(i64::try_from(number()?).ok()?);
        let (ino, parent) = (Ino(number()?), Ino(number()?));
        let (uid, gid) = (u32::try_from(number()?).ok()?, u32::try_from(number()?).ok()?);
        let path = unescaped(parts.next()?)?;
        Some(Self { until, ino, parent, uid, gid, path })
    }

    /// The last name of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Whether it can be restored.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.until != Timestamp(0)
    }
}

/// A name must not have a slash.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'/' => name.extend_from_slice(b"%2f"),
            b'%' => name.extend_from_slice(b"%25"),
            other => name.push(*other),
        }
    }
    name
}

fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            path.push(*first);
            continue;
        }
        path.push(match rest.get(..2)? {
            b"2f" => b'/',
            b"25" => b'%',
            _ => return None,
        });
        rest = &rest[2..];
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn entry(path: &[u8]) -> TrashEntry {
        TrashEntry {
            until: Timestamp(1_790_000_000_000_000_000),
            ino: Ino(u64::MAX >> 1),
            parent: Ino(Ino::FIRST_FREE),
            uid: 1000,
            gid: u32::MAX,
            path: path.to_vec(),
        }
    }

    #[test]
    fn a_name_says_what_was_removed_and_from_where() {
        let entry = TrashEntry { until: Timestamp(255), ino: Ino(16), ..entry(b"/a/50%") };
        let name = entry.encode().unwrap();
        assert_eq!(name, b"ff.10.10000000000.3e8.ffffffff.%2fa%2f50%25");
        assert_eq!(TrashEntry::decode(&name), Some(entry.clone()));
        assert_eq!(entry.name(), b"50%");
    }

    #[test]
    fn random_paths_survive_the_round_trip() {
        let mut rng = Rng::new(7);
        for _ in 0..2000 {
            let length = rng.index(140);
            let path: Vec<u8> = (0..length).map(|_| rng.pick(b"/%.a\xff\n2f5")).collect();
            let mut id = || u32::try_from(rng.bits() >> 32).expect("32 bits");
            let (uid, gid) = (id(), id());
            let entry = TrashEntry {
                until: Timestamp(rng.below(1 << 62).cast_signed()),
                ino: Ino(rng.below(1 << 62)),
                parent: Ino(rng.below(1 << 62)),
                uid,
                gid,
                path,
            };
            let Ok(name) = entry.encode() else { continue };
            assert!(name.len() <= NAME_BYTES_MAX && !name.contains(&b'/'), "{entry:?}");
            let read = TrashEntry::decode(&name).expect("a written name");
            let whole = read.path == entry.path;
            assert!(whole || read.path == entry.name(), "{entry:?} {read:?}");
            assert_eq!(TrashEntry { path: entry.path.clone(), ..read }, entry);
        }
    }

    #[test]
    fn a_long_path_is_cut_to_its_name_and_a_long_name_does_not_fit() {
        let mut path = vec![b'/'; 100];
        path.extend_from_slice(&[b'x'; 150]);
        let read = TrashEntry::decode(&entry(&path).encode().unwrap()).unwrap();
        assert_eq!(read.path, [b'x'; 150]);
        assert_eq!(entry(&[b'x'; 250]).encode(), Err(Errno::NameTooLong));
    }

    #[test]
    fn other_names_are_not_read() {
        for name in [
            &b""[..],
            b"a",
            b"1.2.3.4.5",
            b"1.2.3.4.x.a",
            b"+1.2.3.4.5.a",
            b"01.2.3.4.5.a",
            b"1.2.3.4.100000000.a",
            b"1.2.3.4.5.%2",
            b"1.2.3.4.5.%41",
            b"ffffffffffffffff.2.3.4.5.a",
        ] {
            assert_eq!(TrashEntry::decode(name), None, "{name:?}");
        }
    }
}
