//! The rights of a key, per subtree and mechanism.
//!
//! A key without rules has every right of its kind. With rules it has the rights that they give,
//! each in the subtree of its rule, and no other. A rule gives no user the rights of another:
//! owners and permissions of files count as without rules.

use std::fmt;
use std::str::FromStr;

use crate::Path;

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u16);

impl Rights {
    /// To read names, attributes and content.
    pub const READ: Self = Self(1);
    /// To change them.
    pub const WRITE: Self = Self(1 << 1);
    /// To take a subtree for a job, and to give it back.
    pub const DECOUPLE: Self = Self(1 << 2);
    /// To merge a journal. Each event is checked, unless the key may also merge unchecked.
    pub const MERGE: Self = Self(1 << 3);
    /// To merge a journal by its order alone (`check: none`).
    pub const MERGE_UNCHECKED: Self = Self(1 << 4);
    /// To merge by a list of runs that the client stored.
    pub const MERGE_BY_REFERENCE: Self = Self(1 << 5);
    /// To set policies.
    pub const POLICY: Self = Self(1 << 6);
    /// To take snapshots, and to merge branches.
    pub const BRANCH: Self = Self(1 << 7);
    /// To take over the decoupled subtree of another client.
    pub const RECOVER: Self = Self(1 << 8);
    /// To move and split directories; in the whole namespace, to put a balancer in force.
    pub const BALANCE: Self = Self(1 << 9);
    /// In the whole namespace: to stop the cluster and its servers, and to remove ranks.
    pub const ADMIN: Self = Self(1 << 10);

    /// Every right, with its word.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::READ, "read"),
        (Self::WRITE, "write"),
        (Self::DECOUPLE, "decouple"),
        (Self::MERGE, "merge"),
        (Self::MERGE_UNCHECKED, "merge-unchecked"),
        (Self::MERGE_BY_REFERENCE, "merge-by-reference"),
        (Self::POLICY, "policy"),
        (Self::BRANCH, "branch"),
        (Self::RECOVER, "recover"),
        (Self::BALANCE, "balance"),
        (Self::ADMIN, "admin"),
    ];

    /// Whether each of these rights is in the set.
    #[must_use]
    pub fn has(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// The rights of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The rights that are in both sets.
    #[must_use]
    pub fn shared(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::ALL.iter().filter(|(right, _)| self.has(*right)).map(|(_, word)| *word);
        f.write_str(&words.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Rights {
    type Err = String;

    /// Words with commas between.
    ///
    /// # Errors
    /// A sentence about a word that is no right.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').try_fold(Self::default(), |rights, word| {
            let known = Self::ALL.iter().find(|(_, known)| *known == word);
            known.map(|(right, _)| rights.and(*right)).ok_or_else(|| {
                let words: Vec<&str> = Self::ALL.iter().map(|(_, word)| *word).collect();
                format!("{word:?} is no right; the rights are {}", words.join(", "))
            })
        })
    }
}

/// Rights in a subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The rights.
    pub rights: Rights,
    /// The root of the subtree.
    pub subtree: Path,
}

impl KeyRule {
    /// From the words of a person: `read,write:/users/alice`. The path is taken as it is.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (rights, path) = text
            .split_once(':')
            .ok_or_else(|| format!("{text:?} has no path; write read,write:/PATH"))?;
        if !path.starts_with('/') {
            return Err(format!("{path:?} does not begin with /"));
        }
        let subtree = Path::parse(path).map_err(|errno| format!("{path:?}: {errno}"))?;
        Ok(Self { rights: rights.parse()?, subtree })
    }
}

impl fmt::Display for KeyRule {
    /// `read,write:/users/alice`, with bytes of the path other than letters, digits and `/._~-` as
    /// `%` and two hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.rights)?;
        self.subtree.to_bytes().iter().try_for_each(|byte| match byte {
            b'/' | b'.' | b'_' | b'~' | b'-' => write!(f, "{}", char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => write!(f, "{}", char::from(*byte)),
            byte => write!(f, "%{byte:02x}"),
        })
    }
}

impl FromStr for KeyRule {
    type Err = ();

    /// Reads the text that `Display` writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (rights, path) = text.split_once(':').ok_or(())?;
        let mut bytes = Vec::new();
        let mut rest = path.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            if *first != b'%' {
                bytes.push(*first);
                continue;
            }
            let (digits, tail) = rest.split_at_checked(2).ok_or(())?;
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex).ok_or(())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(drop)?);
            rest = tail;
        }
        let rights = rights.parse().map_err(drop)?;
        Ok(Self { rights, subtree: Path::parse(bytes).map_err(drop)? })
    }
}

/// The rules of a key, of which one that gives a right is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRules {
    all: Vec<KeyRule>,
    /// The rights that every rule gives; of a narrowed key, that those of the wider key give, too.
    common: Rights,
}

/// Rules of one key, and their bytes as text: they are in its certificate, which every handshake
/// carries.
const RULES_MAX: usize = 16;
const RULES_BYTES_MAX: usize = 8 << 10;

impl KeyRules {
    /// Rules; `None` without one, with more than 16, or with more than 8 KiB of text.
    #[must_use]
    pub fn new(rules: Vec<KeyRule>) -> Option<Self> {
        let is_few = (1..=RULES_MAX).contains(&rules.len());
        let common = rules.iter().map(|rule| rule.rights).reduce(Rights::shared)?;
        let rules = is_few.then_some(Self { all: rules, common })?;
        (rules.to_string().len() <= RULES_BYTES_MAX).then_some(rules)
    }

    /// The rules of a key that is narrowed from one with these rules, or from one without rules;
    /// `None` if one of them gives more. A key without rules commands no cluster.
    #[must_use]
    pub fn narrowed(mut self, wider: Option<&Self>) -> Option<Self> {
        let commands = |rule: &KeyRule| {
            rule.rights.has(Rights::ADMIN)
                || (rule.rights.has(Rights::BALANCE) && rule.subtree.is_root())
        };
        let is_given = |rule: &KeyRule| {
            wider.map_or(!commands(rule), |it| it.giving(rule.rights, &rule.subtree).is_some())
        };
        self.common = self.common.shared(wider.map_or(self.common, |it| it.common));
        self.all.iter().all(is_given).then_some(self)
    }

    /// To read everything, and nothing else.
    #[must_use]
    pub fn reading() -> Self {
        let all = vec![KeyRule { rights: Rights::READ, subtree: Path::root() }];
        Self { all, common: Rights::READ }
    }

    /// The rules.
    #[must_use]
    pub fn all(&self) -> &[KeyRule] {
        &self.all
    }

    /// The first rule that gives these rights at a path.
    #[must_use]
    pub fn giving(&self, rights: Rights, path: &Path) -> Option<&KeyRule> {
        self.all.iter().find(|rule| rule.rights.has(rights) && path.starts_with(&rule.subtree))
    }

    /// Whether a path leads to the subtree of a rule: a process must walk there.
    #[must_use]
    pub fn lead_over(&self, path: &Path) -> bool {
        self.all.iter().any(|rule| rule.subtree.starts_with(path))
    }

    /// Whether every rule gives these rights. An inode with several names may be in the subtree of
    /// any of them.
    #[must_use]
    pub fn all_give(&self, rights: Rights) -> bool {
        self.common.has(rights)
    }

    /// Whether no rule gives more than to read.
    #[must_use]
    pub fn only_read(&self) -> bool {
        self.all.iter().all(|rule| rule.rights == Rights::READ)
    }
}

impl fmt::Display for KeyRules {
    /// The rules with spaces between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<String> = self.all.iter().map(ToString::to_string).collect();
        f.write_str(&rules.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["read:/", "read,write,merge-unchecked:/a/b", "admin:/a b%\u{e9};:x"] {
            let rule = KeyRule::parse(text).unwrap();
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()), "{rule}");
            assert!(rule.to_string().is_ascii() && !rule.to_string().contains([' ', ';']));
        }
        assert_eq!(KeyRule::parse("read:/a b").unwrap().to_string(), "read:/a%20b");
        let all: Vec<&str> = Rights::ALL.iter().map(|(_, word)| *word).collect();
        assert_eq!(all.join(",").parse::<Rights>().unwrap().to_string(), all.join(","));
    }

    #[test]
    fn text_that_is_no_rule_is_refused_with_a_reason() {
        for (text, reason) in [
            ("read", "no path"),
            ("read:a", "begin with /"),
            ("reed:/a", "\"reed\" is no right"),
            (":/a", "is no right"),
            ("read:/a/../b", "/a/../b"),
        ] {
            let refused = KeyRule::parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        for text in ["read:/%", "read:/%4", "read:/%zz", "read:/%+1", "read", "read:/%00"] {
            assert_eq!(text.parse::<KeyRule>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_rule_counts_in_its_subtree_only() {
        let rules = ["read:/", "read,write:/users/alice"].map(|text| KeyRule::parse(text).unwrap());
        let rules = KeyRules::new(rules.to_vec()).unwrap();
        assert!(rules.giving(Rights::READ, &path("/etc")).is_some());
        assert!(rules.giving(Rights::WRITE, &path("/users/alice/x")).is_some());
        for other in ["/", "/users", "/users/alicex", "/users/bob"] {
            assert!(rules.giving(Rights::WRITE, &path(other)).is_none(), "{other}");
        }
        assert!(rules.all_give(Rights::READ) && !rules.all_give(Rights::WRITE));
        assert!(KeyRules::reading().only_read() && !rules.only_read());
        assert!(rules.giving(Rights::READ.and(Rights::WRITE), &path("/users/alice")).is_some());
    }

    #[test]
    fn a_path_to_a_subtree_leads_there() {
        let rules = KeyRules::new(vec![KeyRule::parse("read:/users/alice").unwrap()]).unwrap();
        assert!(rules.lead_over(&path("/")) && rules.lead_over(&path("/users/alice")));
        assert!(!rules.lead_over(&path("/users/bob")) && !rules.lead_over(&path("/users/alice/x")));
    }

    #[test]
    fn a_key_has_some_rules() {
        let rule = KeyRule::parse("read:/").unwrap();
        assert_eq!(KeyRules::new(Vec::new()), None);
        assert_eq!(KeyRules::new(vec![rule.clone()]), Some(KeyRules::reading()));
        assert_eq!(KeyRules::new(vec![rule.clone(); RULES_MAX + 1]), None);
        let long = Path::parse([b'a', b'/'].repeat(2000)).unwrap();
        let long = KeyRule { subtree: long, ..rule };
        assert!(KeyRules::new(vec![long.clone(); 2]).is_some());
        assert_eq!(KeyRules::new(vec![long; 3]), None);
    }

    #[test]
    fn a_narrowed_key_gets_nothing_that_the_wider_one_has_not() {
        let rules = |texts: &[&str]| {
            KeyRules::new(texts.iter().map(|it| KeyRule::parse(it).unwrap()).collect()).unwrap()
        };
        let wider = rules(&["read:/", "read,write,merge:/job"]);
        for within in [&["read:/"][..], &["write:/job"], &["read:/a", "read,merge:/job/x"]] {
            assert!(rules(within).narrowed(Some(&wider)).is_some(), "{within:?}");
        }
        for more in [&["write:/"][..], &["read:/", "policy:/job"], &["write:/jobs"]] {
            assert!(rules(more).narrowed(Some(&wider)).is_none(), "{more:?}");
        }
        // A file with several names may be where the wider key must not write.
        let narrowed = rules(&["write:/job"]).narrowed(Some(&wider)).unwrap();
        assert!(rules(&["write:/job"]).all_give(Rights::WRITE));
        assert!(!narrowed.all_give(Rights::WRITE));
        // A key without rules has all rights but those to command.
        assert!(rules(&["write,recover:/", "balance:/a"]).narrowed(None).is_some());
        assert!(rules(&["admin:/"]).narrowed(None).is_none());
        assert!(rules(&["read,balance:/"]).narrowed(None).is_none());
        let operator = rules(&["admin,balance:/"]);
        assert!(rules(&["admin:/"]).narrowed(Some(&operator)).is_some());
    }
}
