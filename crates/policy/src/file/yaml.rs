//! Reads policies in YAML's block form.
//!
//! The parser is a library's; this module restricts it to the needs of a policy, one flat mapping
//! of words to words, and turns its errors into ours. Invariant: the work per byte is bounded for
//! every document, because aliases, anchors, merge keys, nesting and further documents are all
//! rejected.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Options, Spanned};

use super::{FILE_BYTES_MAX, Member, Scan, fault};

/// The most keys and values in a document. A policy has far fewer; a second occurrence of a key
/// is reported long before.
const NODES_MAX: usize = 256;

/// The deepest nesting of a document. A policy has none, and a list or mapping as a value is
/// better reported as such than as too deep.
const DEPTH_MAX: usize = 4;

/// The library's messages are shortened to this many characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// Reads a whole document.
pub(super) fn scan(source: &str) -> Scan {
    match serde_saphyr::from_str_with_options::<Option<Document>>(source, options()) {
        Ok(None) => Scan { members: Vec::new(), fault: None },
        Ok(Some(document)) => members(source, document),
        Err(error) => {
            let location = error.location();
            let mut fault = fault(
                source,
                0,
                "",
                message(&error),
                "write one key with one word or number to a line, as in durability: stream",
            );
            if let Some(location) = location.filter(|location| location.line() > 0) {
                fault.line = usize::try_from(location.line()).unwrap_or(1);
                fault.column = usize::try_from(location.column()).unwrap_or(1).max(1);
            }
            Scan { members: Vec::new(), fault: Some(fault) }
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: FILE_BYTES_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        ignore_binary_tag_for_string: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn members(source: &str, document: Document) -> Scan {
    let mut members = Vec::with_capacity(document.0.len());
    for (key, value) in document.0 {
        let key_at = content_at(source, &key);
        let value_at = content_at(source, &value);
        let Some(value) = value.value else {
            let cause = format!("{} has no value", crate::text::quoted(&key.value));
            let remedy = "write one (none, for no mechanism), or remove the key for its default";
            return Scan { members, fault: Some(fault(source, key_at, "", cause, remedy)) };
        };
        members.push(Member { key: key.value, key_at, value, value_at });
    }
    Scan { members, fault: None }
}

/// Where the content of a word begins, in bytes: after its quote, if it has one.
fn content_at<T>(source: &str, word: &Spanned<T>) -> usize {
    let offset = word.referenced.span().byte_offset().unwrap_or(0);
    let at = usize::try_from(offset).unwrap_or(usize::MAX).min(source.len());
    let quoted = matches!(source.as_bytes().get(at), Some(b'"' | b'\''));
    at + usize::from(quoted)
}

/// The cause in the words of policies: the library's words are for programmers.
fn message(error: &serde_saphyr::Error) -> String {
    if matches!(error, serde_saphyr::Error::Unexpected { .. }) {
        return "keys with one word or number each are expected here".to_owned();
    }
    if matches!(error, serde_saphyr::Error::Budget { .. }) {
        return "a policy is one flat document, without anchors or nesting".to_owned();
    }
    if matches!(error, serde_saphyr::Error::DuplicateMappingKey { .. }) {
        return "the key occurs a second time".to_owned();
    }
    // The place follows the message, and we show it ourselves.
    let message = error.to_string();
    let line = message.lines().next().unwrap_or_default();
    let line = line.rsplit_once(" at line ").map_or(line, |(words, _)| words);
    let printable = line.chars().filter(|character| !character.is_control());
    format!("this is not YAML: {}", printable.take(MESSAGE_CHARS_MAX).collect::<String>())
}

/// The members of a mapping, in order and with repetitions.
struct Document(Vec<(Spanned<String>, Spanned<Option<String>>)>);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("keys with values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Document(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}
