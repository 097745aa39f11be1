//! Quotas: limits of a directory with all that is below it, and their use.
//!
//! The limits are an extended attribute of the directory, [`LIMITS`]. A server answers a question
//! for the attribute [`REPORT`] of any directory with the quotas that hold there.
//!
//! Invariant: each form is read exactly as it is written, and reading never panics.

use std::fmt;
use std::str::FromStr;

use crate::Errno;

/// The extended attribute of a directory that has its limits, as text: see [`QuotaLimits`]. Linux
/// lets only root set or read attributes of this class.
pub const LIMITS: &[u8] = b"trusted.cudele.quota";
/// The extended attribute with which a server reports the quotas of a directory, as lines of text:
/// see [`QuotaReport`]. It is not stored, and not listed.
pub const REPORT: &[u8] = b"cudele.dir.quota";

/// Inodes and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// Files, directories and all other inodes. A file with several names counts once.
    pub inodes: u64,
    /// The lengths of files and of the texts of symbolic links, in bytes.
    pub bytes: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            inodes: self.inodes.saturating_add(other.inodes),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// The rest without the other, and not less than nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            inodes: self.inodes.saturating_sub(other.inodes),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The most that may be in a directory and below it; the directory itself does not count. As text:
/// `inodes=1000 bytes=1048576`, each part only if there is such a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Most inodes.
    pub inodes: Option<u64>,
    /// Most bytes.
    pub bytes: Option<u64>,
}

impl QuotaLimits {
    /// Reads the value of [`LIMITS`].
    ///
    /// # Errors
    /// `EINVAL` if it is not the text of limits.
    pub fn parse(text: &[u8]) -> Result<Self, Errno> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::Invalid)?;
        let mut limits = Self::default();
        for part in text.split_ascii_whitespace() {
            let (key, number) = part.split_once('=').ok_or(Errno::Invalid)?;
            let limit = match key {
                "inodes" => &mut limits.inodes,
                "bytes" => &mut limits.bytes,
                _ => return Err(Errno::Invalid),
            };
            let number = number.parse().map_err(|_| Errno::Invalid)?;
            if limit.replace(number).is_some() {
                return Err(Errno::Invalid);
            }
        }
        if limits == Self::default() { Err(Errno::Invalid) } else { Ok(limits) }
    }

    /// Whether this use is within the limits.
    #[must_use]
    pub fn admit(self, used: Usage) -> bool {
        self.inodes.is_none_or(|most| used.inodes <= most)
            && self.bytes.is_none_or(|most| used.bytes <= most)
    }
}

impl fmt::Display for QuotaLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("inodes", self.inodes), ("bytes", self.bytes)];
        let mut gap = "";
        for (key, limit) in parts {
            if let Some(limit) = limit {
                write!(f, "{gap}{key}={limit}")?;
                gap = " ";
            }
        }
        Ok(())
    }
}

/// A quota and its use, as a server reports it on one line of text:
///
/// ```text
/// used_inodes=5 used_bytes=10 reserved=0 counted=yes inodes=1000 path=/users/ada
/// ```
///
/// The path is the last part; `%` and control characters are escaped in it (`%0a`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport {
    /// The directory that has the limits.
    pub path: Vec<u8>,
    /// The limits.
    pub limits: QuotaLimits,
    /// The use. Before the first count is complete, the count so far.
    pub used: Usage,
    /// Inodes that decoupled subtrees may still bring.
    pub reserved: u64,
    /// Whether the use is exact. If not, the server is still counting.
    pub is_counted: bool,
}

impl fmt::Display for QuotaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, limits, used, reserved, is_counted } = self;
        let counted = if *is_counted { "yes" } else { "no" };
        write!(f, "used_inodes={} used_bytes={} ", used.inodes, used.bytes)?;
        write!(f, "reserved={reserved} counted={counted} {limits} path=")?;
        for byte in path {
            match byte {
                b'%' | 0..0x20 | 0x7f.. => write!(f, "%{byte:02x}")?,
                plain => write!(f, "{}", char::from(*plain))?,
            }
        }
        Ok(())
    }
}

impl FromStr for QuotaReport {
    type Err = Errno;

    fn from_str(line: &str) -> Result<Self, Errno> {
        let (numbers, path) = line.split_once("path=").ok_or(Errno::BadMessage)?;
        let mut report = Self { path: unescaped(path)?, ..Self::default() };
        let mut limits = String::new();
        for part in numbers.split_ascii_whitespace() {
            let (key, value) = part.split_once('=').ok_or(Errno::BadMessage)?;
            let number = || value.parse().map_err(|_| Errno::BadMessage);
            match key {
                "used_inodes" => report.used.inodes = number()?,
                "used_bytes" => report.used.bytes = number()?,
                "reserved" => report.reserved = number()?,
                "counted" => report.is_counted = value == "yes",
                _ => limits = limits + part + " ",
            }
        }
        report.limits = QuotaLimits::parse(limits.as_bytes()).map_err(|_| Errno::BadMessage)?;
        Ok(report)
    }
}

impl QuotaReport {
    /// The use above the limits.
    #[must_use]
    pub fn excess(&self) -> Usage {
        let above = |used: u64, most: Option<u64>| most.map_or(0, |most| used.saturating_sub(most));
        Usage {
            inodes: above(self.used.inodes, self.limits.inodes),
            bytes: above(self.used.bytes, self.limits.bytes),
        }
    }

    /// Reads the value of [`REPORT`]: the innermost quota first.
    ///
    /// # Errors
    /// `EBADMSG` if it is not the text of reports.
    pub fn parse_all(text: &[u8]) -> Result<Vec<Self>, Errno> {
        std::str::from_utf8(text).map_err(|_| Errno::BadMessage)?.lines().map(str::parse).collect()
    }
}

fn unescaped(text: &str) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    path.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let code = part.get(..2).ok_or(Errno::BadMessage)?;
        path.push(u8::from_str_radix(code, 16).map_err(|_| Errno::BadMessage)?);
        path.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let read = |text: &str| QuotaLimits::parse(text.as_bytes());
        let both = QuotaLimits { inodes: Some(7), bytes: Some(1 << 40) };
        assert_eq!(read(" bytes=1099511627776  inodes=7"), Ok(both));
        assert_eq!(read("inodes=0"), Ok(QuotaLimits { inodes: Some(0), bytes: None }));
        let wrong =
            ["", "inodes", "inodes=", "inodes=-1", "inodes=1 inodes=2", "files=1", "\u{ff}"];
        for text in wrong {
            assert_eq!(read(text), Err(Errno::Invalid), "{text}");
        }
        assert_eq!(QuotaLimits::parse(b"\xff"), Err(Errno::Invalid));
    }

    /// Bytes for paths and damaged texts, printed with their seed.
    fn random(rng: &mut Rng, most: u64) -> Vec<u8> {
        (0..rng.below(most)).map(|_| rng.byte()).collect()
    }

    #[test]
    fn reports_are_read_as_they_are_written() {
        for seed in 0..500 {
            let rng = &mut Rng::new(seed);
            let limits = QuotaLimits {
                inodes: Some(rng.bits()),
                bytes: rng.percent(50).then(|| rng.bits()),
            };
            let used = Usage { inodes: rng.bits(), bytes: rng.bits() };
            let (path, reserved, is_counted) = (random(rng, 40), rng.bits(), rng.percent(50));
            let report = QuotaReport { path, limits, used, reserved, is_counted };
            let text = format!("{report}\n{report}");
            assert_eq!(text.lines().count(), 2, "seed {seed}");
            let read = QuotaReport::parse_all(text.as_bytes());
            assert_eq!(read, Ok(vec![report.clone(), report]), "seed {seed}");
        }
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        let report = QuotaReport {
            path: b"/a%b".to_vec(),
            limits: QuotaLimits { inodes: Some(5), bytes: None },
            ..QuotaReport::default()
        };
        for seed in 0..5000 {
            let rng = &mut Rng::new(seed);
            let mut text = report.to_string().into_bytes();
            for _ in 0..rng.below(4) {
                let at = usize::try_from(rng.below(text.len() as u64)).unwrap();
                text[at] = rng.byte();
            }
            let _ = QuotaReport::parse_all(&text);
            let _ = QuotaLimits::parse(&text);
            let _ = QuotaReport::parse_all(&random(rng, 80));
        }
    }
}
