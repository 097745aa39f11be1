//! Policy files: from a text to a [`Policy`], or to the first fault with its place.
//!
//! A file is YAML, JSON, or the brace form of the published policy files: like JSON, without commas
//! between members. Two readers, [`brace`] and [`yaml`], turn a text into members, a key and
//! a value each with its place; this module alone knows the meaning of keys and values. See
//! `docs/formats/policy.md`.
//!
//! Invariant: nothing is guessed or ignored. Every member of a file either sets one field of the
//! policy or is an error.

mod brace;
mod yaml;

use std::fmt;

use types::{Errno, Error, INLINE_BYTES_MAX, Pool, Stripe};

use crate::option::{
    Ack, Cache, Check, Checksums, InterferePolicy, Limit, MergeBy, MergeTrigger, Sharing,
};
use crate::policy::{ALLOCATED_INODES_MAX, Policy};
use crate::warning::{self, PolicyWarning};
use crate::{Composition, Mechanism, option, preset, text};

/// The largest policy file, in bytes.
pub const FILE_BYTES_MAX: usize = 64 * 1024;

/// The longest name of a pool, in bytes.
const POOL_NAME_MAX: usize = 128;

/// The keys of a policy file, in canonical order.
const KEYS: [&str; 16] = [
    "consistency",
    "durability",
    "allocated_inodes",
    "interfere_policy",
    "ack",
    "cache",
    "limit",
    "check",
    "merge",
    "merge_by",
    "inline_bytes",
    "stripe_bytes",
    "sharing",
    "data_pool",
    "checksums",
    "trash",
];

/// Why a text is not a policy, and where. Its error number is EINVAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The key it is about; empty where there is none.
    pub key: String,
    /// The cause, in words.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

impl PolicyError {
    /// The error for people, about a place in the named file, such as `job.yml:3:17`.
    #[must_use]
    pub fn in_file(self, file: &str) -> Error {
        let cause =
            if self.key.is_empty() { self.cause } else { format!("{}: {}", self.key, self.cause) };
        let subject = format!("{file}:{}:{}", self.line, self.column);
        Error::new(Errno::Invalid, subject, cause).remedy(self.remedy)
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.cause, self.remedy)
    }
}

impl std::error::Error for PolicyError {}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        error.in_file("policy")
    }
}

/// A policy that was read, and its warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The policy, with defaults for keys that the file leaves out.
    pub policy: Policy,
    /// Warnings about parts that have no effect or an unexpected one (P-12).
    pub warnings: Vec<PolicyWarning>,
}

impl Parsed {
    /// The policy, if there is nothing to warn about (P-12).
    ///
    /// # Errors
    /// EINVAL for the first warning.
    pub fn strict(self) -> types::Result<Policy> {
        warning::strict(&self.warnings).map(|()| self.policy)
    }
}

impl From<Policy> for Parsed {
    fn from(policy: Policy) -> Self {
        Self { warnings: policy.warnings(), policy }
    }
}

impl Policy {
    /// Reads a policy file: YAML, JSON or the brace form without commas. A missing key has
    /// its default, and so an empty file behaves like POSIX.
    ///
    /// # Errors
    /// [`PolicyError`] (EINVAL) for the first fault: malformed text, an unknown or repeated key, a
    /// value that is none of the key's, and a file of more than [`FILE_BYTES_MAX`] bytes.
    pub fn parse(text: &str) -> Result<Parsed, PolicyError> {
        if text.len() > FILE_BYTES_MAX {
            let cause = format!("a policy file has at most {FILE_BYTES_MAX} bytes");
            return Err(fault(text, FILE_BYTES_MAX, "", cause, "remove what is no policy"));
        }
        let scan = if brace::is_brace_form(text) { brace::scan(text) } else { yaml::scan(text) };
        // The members before a fault are looked at first, so that the first fault is reported.
        let policy = build(text, &scan.members)?;
        scan.fault.map_or(Ok(policy.into()), Err)
    }

    /// Reads a policy file of arbitrary bytes. See [`Policy::parse`].
    ///
    /// # Errors
    /// [`PolicyError`] as [`Policy::parse`], and for the first byte that is not UTF-8.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Parsed, PolicyError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let cause = "here is a byte that is not UTF-8";
                Err(fault(&before, before.len(), "", cause, "save the file as UTF-8 text"))
            }
        }
    }

    /// The policy a user means by a preset's name, by the name of a cell of Table II such as
    /// `weak-global`, or by the text of a policy file.
    ///
    /// # Errors
    /// [`PolicyError`] as [`Policy::parse`], and for a single word that names nothing.
    pub fn from_name_or_text(name_or_text: &str) -> Result<Parsed, PolicyError> {
        if let Some(policy) = preset::policy_named(name_or_text) {
            return Ok(policy.into());
        }
        let word = name_or_text.trim();
        let is_word =
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if word.is_empty() || !is_word || word.starts_with("--") {
            return Self::parse(name_or_text);
        }
        let cause = format!("{} names no preset", text::quoted(word));
        let names = preset::policy_names();
        let remedy = text::suggestion(&word.to_ascii_lowercase(), names.iter().map(String::as_str));
        Err(fault(name_or_text, 0, "", cause, remedy))
    }
}

/// A key with its value, as text, and the offsets at which their contents begin, in bytes.
struct Member {
    key: String,
    key_at: usize,
    value: String,
    value_at: usize,
}

/// The result of a reader: the members up to the first fault.
struct Scan {
    members: Vec<Member>,
    fault: Option<PolicyError>,
}

fn fault(
    source: &str,
    at: usize,
    key: &str,
    cause: impl Into<String>,
    remedy: impl Into<String>,
) -> PolicyError {
    let (line, column) = text::line_and_column(source, at);
    PolicyError { line, column, key: key.into(), cause: cause.into(), remedy: remedy.into() }
}

fn build(source: &str, members: &[Member]) -> Result<Policy, PolicyError> {
    let mut policy = Policy::default();
    let mut seen: Vec<String> = Vec::new();
    for member in members {
        let key = text::normalise(&member.key);
        if seen.contains(&key) {
            let cause = "the key occurs a second time";
            return Err(fault(source, member.key_at, &key, cause, "keep one of the two"));
        }
        set(&mut policy, source, &key, member)?;
        seen.push(key);
    }
    if !seen.iter().any(|key| key == "durability") {
        policy.durability = durability_left_out(&policy.consistency);
    }
    Ok(policy)
}

/// The durability where a file does not say. It is `stream` beside plain `rpcs`. Beside a
/// client journal, which stream cannot keep, and beside a consistency expression that says itself
/// how updates are kept, it is none.
fn durability_left_out(consistency: &Composition) -> Composition {
    let decoupled = consistency.contains(Mechanism::AppendClientJournal);
    let keeps = consistency.contains(Mechanism::Stream)
        || consistency.mechanisms().any(Mechanism::persists);
    if consistency.contains(Mechanism::Rpcs) && !decoupled && !keeps {
        Mechanism::Stream.into()
    } else {
        Composition::Nothing
    }
}

/// Sets the one field of the policy that a member is about. `key` is normalised.
fn set(policy: &mut Policy, source: &str, key: &str, member: &Member) -> Result<(), PolicyError> {
    let reader = Value { source, key, member };
    match key {
        "consistency" => policy.consistency = reader.composition()?,
        "durability" => policy.durability = reader.composition()?,
        "allocated_inodes" => policy.allocated_inodes = reader.inodes()?,
        "interfere_policy" => {
            let names = InterferePolicy::ALL.iter().map(|choice| choice.name());
            policy.interfere = reader.choice(InterferePolicy::from_name, names)?;
        }
        "ack" => {
            let names = Ack::ALL.iter().map(|choice| choice.name());
            policy.ack = reader.choice(Ack::from_name, names)?;
        }
        "cache" => {
            let names = Cache::ALL.iter().map(|choice| choice.name());
            policy.cache = reader.choice(Cache::from_name, names)?;
        }
        "limit" => {
            let names = Limit::ALL.iter().map(|choice| choice.name());
            policy.hard_limit = reader.choice(Limit::from_name, names)? == Limit::Hard;
        }
        "check" => {
            let names = Check::ALL.iter().map(|choice| choice.name());
            policy.check = reader.choice(Check::from_name, names)?;
        }
        "merge" => {
            let trigger = MergeTrigger::from_name(&member.value);
            let remedy = "use at_end, idle, on_demand, every 10s (or m, h; at most a week), or at 5000 updates";
            policy.merge = trigger.ok_or_else(|| reader.fault("is no merge trigger", remedy))?;
        }
        "merge_by" => {
            let names = MergeBy::ALL.iter().map(|choice| choice.name());
            policy.merge_by = reader.choice(MergeBy::from_name, names)?;
        }
        "inline_bytes" => policy.inline_bytes = reader.inline_bytes()?,
        "stripe_bytes" => {
            policy.stripe = reader.stripe()?.in_pool(policy.stripe.pool());
        }
        "sharing" => {
            let names = Sharing::ALL.iter().map(|choice| choice.name());
            policy.sharing = reader.choice(Sharing::from_name, names)?;
        }
        "checksums" => {
            let names = Checksums::ALL.iter().map(|choice| choice.name());
            policy.checksums = reader.choice(Checksums::from_name, names)?;
        }
        "trash" => {
            let kept = option::trash_from_name(&member.value);
            let remedy = "use off, or a time such as 1d (or s, m, h; at most 3650d)";
            policy.trash = kept.ok_or_else(|| reader.fault("is no time", remedy))?;
        }
        "data_pool" => {
            let (name, number) = reader.pool()?;
            policy.data_pool = Some(name);
            policy.stripe = policy.stripe.in_pool(number);
        }
        unknown => {
            let cause = format!("{} is no key of a policy", text::quoted(&member.key));
            let remedy = text::suggestion(unknown, KEYS.into_iter());
            return Err(fault(source, member.key_at, "", cause, remedy));
        }
    }
    Ok(())
}

/// The value of one member; its key decides how it is read.
struct Value<'a> {
    source: &'a str,
    key: &'a str,
    member: &'a Member,
}

impl Value<'_> {
    fn composition(&self) -> Result<Composition, PolicyError> {
        Composition::parse(&self.member.value).map_err(|error| {
            // Where the value was written with escapes or folded lines, offsets into it say
            // nothing about the source: point at its beginning instead.
            let verbatim = self
                .source
                .get(self.member.value_at..)
                .is_some_and(|rest| rest.starts_with(&self.member.value));
            let at = self.member.value_at + if verbatim { error.at } else { 0 };
            fault(self.source, at, self.key, error.cause, error.remedy)
        })
    }

    fn inodes(&self) -> Result<u64, PolicyError> {
        text::digits(self.member.value.trim())
            .filter(|count| (1..=ALLOCATED_INODES_MAX).contains(count))
            .ok_or_else(|| {
                let remedy = format!("write an integer from 1 to {ALLOCATED_INODES_MAX}");
                self.fault("is no number of inodes", remedy)
            })
    }

    fn inline_bytes(&self) -> Result<u32, PolicyError> {
        text::digits(self.member.value.trim())
            .and_then(|bytes| u32::try_from(bytes).ok())
            .filter(|bytes| *bytes as usize <= INLINE_BYTES_MAX)
            .ok_or_else(|| {
                let remedy = format!("write an integer from 0 to {INLINE_BYTES_MAX}");
                self.fault("is no length of inline content", remedy)
            })
    }

    fn stripe(&self) -> Result<Stripe, PolicyError> {
        text::digits(self.member.value.trim()).and_then(Stripe::of_bytes).ok_or_else(|| {
            let (least, most) = (Stripe::MIN.bytes(), Stripe::MAX.bytes());
            let remedy = format!("write a power of two from {least} to {most}");
            self.fault("is no size of stripes", remedy)
        })
    }

    /// The name of a pool, and the number that a store gave it, if the value has one.
    fn pool(&self) -> Result<(String, Pool), PolicyError> {
        let (name, number) = match self.member.value.trim().split_once('#') {
            None => (self.member.value.trim(), Some(Pool::USUAL)),
            Some((name, number)) => {
                let number = text::digits(number).and_then(|number| u8::try_from(number).ok());
                (name, number.map(Pool).filter(|number| *number != Pool::USUAL))
            }
        };
        // YAML takes a word that begins with a letter for text, with these exceptions.
        let is_text = |name: &str| {
            let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
            let other = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
            begins && !other.contains(&name.to_ascii_lowercase().as_str())
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = name.len() <= POOL_NAME_MAX && name.bytes().all(fits) && is_text(name);
        number.filter(|_| is_name).map(|number| (name.to_owned(), number)).ok_or_else(|| {
            let remedy = format!(
                "write a name of a letter and up to {} letters, digits, dots, hyphens and underscores",
                POOL_NAME_MAX - 1
            );
            self.fault("is no name of a pool", remedy)
        })
    }

    fn choice<T>(
        &self,
        from_name: fn(&str) -> Option<T>,
        names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<T, PolicyError> {
        from_name(&self.member.value).ok_or_else(|| {
            let spelling = text::normalise(&self.member.value);
            self.fault("is none of its values", text::suggestion(&spelling, names))
        })
    }

    /// The error about this value.
    fn fault(&self, what: &str, remedy: impl Into<String>) -> PolicyError {
        let cause = format!("{} {what}", text::quoted(&self.member.value));
        fault(self.source, self.member.value_at, self.key, cause, remedy)
    }
}

#[cfg(test)]
mod tests;
