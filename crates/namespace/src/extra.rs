//! Data that few inodes have: content, extended attributes, a policy.

use types::FileType;
use types::acl::{ACCESS_LIST, AccessList, DEFAULT_LIST};
use types::bytes::{Malformed, Put, Reader};

const TAG_XATTR: u8 = 1;
const TAG_POLICY: u8 = 2;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Content of a small file, or target of a symbolic link.
    pub data: Vec<u8>,
    /// Extended attributes and the policy, encoded: a tag, then length-prefixed fields.
    encoded: Vec<u8>,
}

impl Extra {
    /// The data of an inode as the metadata store and events have it.
    #[must_use]
    pub fn from_parts(data: &[u8], encoded: &[u8]) -> Self {
        Self { data: data.to_vec(), encoded: encoded.to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.encoded.is_empty()
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.data.capacity() + self.encoded.capacity()
    }

    fn fields(&self) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
        let mut reader = Reader::new(&self.encoded);
        std::iter::from_fn(move || {
            if reader.is_at_end() {
                return None;
            }
            read_field(&mut reader).ok()
        })
    }

    /// Extended attributes: names and values.
    pub fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields().filter(|(tag, ..)| *tag == TAG_XATTR).map(|(_, name, value)| (name, value))
    }

    /// An extended attribute; a list as its record ([`types::acl`]).
    #[must_use]
    pub fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        self.xattrs().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether encoded attributes are access control lists that an inode with this mode may have,
    /// at most one of each kind, and nothing else.
    #[must_use]
    pub fn are_lists(encoded: &[u8], mode: u32) -> bool {
        let (mut access, mut default) = (0, 0);
        let mut reader = Reader::new(encoded);
        while !reader.is_at_end() {
            let Ok((TAG_XATTR, name, record)) = read_field(&mut reader) else { return false };
            match name {
                ACCESS_LIST => access += 1,
                DEFAULT_LIST => default += 1,
                _ => return false,
            }
            if AccessList::decode(record).is_none() {
                return false;
            }
        }
        let file_type = FileType::from_mode(mode);
        let access_max = usize::from(file_type != Some(FileType::Symlink));
        let default_max = usize::from(file_type == Some(FileType::Directory));
        access <= access_max && default <= default_max
    }

    /// The policy stored in this directory.
    #[must_use]
    pub fn policy(&self) -> Option<&[u8]> {
        self.fields().find(|(tag, ..)| *tag == TAG_POLICY).map(|(_, _, value)| value)
    }

    pub(crate) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.set_field(TAG_XATTR, name, value);
    }

    pub(crate) fn set_policy(&mut self, policy: &[u8]) {
        self.set_field(TAG_POLICY, b"", (!policy.is_empty()).then_some(policy));
    }

    fn set_field(&mut self, tag: u8, name: &[u8], value: Option<&[u8]>) {
        let mut encoded = Vec::with_capacity(self.encoded.len());
        let others = self.fields().filter(|(t, n, _)| (*t, *n) != (tag, name));
        for (tag, name, value) in others.chain(value.map(|value| (tag, name, value))) {
            put_field(&mut encoded, tag, name, value);
        }
        self.encoded = encoded;
    }
}

/// Adds an extended attribute to those of a new inode.
pub(crate) fn put_xattr(encoded: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_field(encoded, TAG_XATTR, name, value);
}

fn put_field(encoded: &mut Vec<u8>, tag: u8, name: &[u8], value: &[u8]) {
    encoded.put_u8(tag);
    encoded.put_bytes(name);
    encoded.put_bytes(value);
}

fn read_field<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8], &'a [u8]), Malformed> {
    Ok((reader.u8()?, reader.bytes()?, reader.bytes()?))
}
