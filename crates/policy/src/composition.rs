//! Compositions: the small language in which a policy says which mechanisms run, and in which
//! order.
//!
//! `+` runs its members one after the other, from left to right; `||` runs them at the same time
//! and binds tighter, so that `append_client_journal+local_persist||global_persist+volatile_apply`
//! persists twice at once between the append and the apply. Parentheses group.
//!
//! This module holds the order of mechanisms. Their guarantees are in [`crate::Cell`], and their
//! execution is not here. Invariant: a composition made by [`Composition::parse`],
//! [`Composition::serial`] or [`Composition::parallel`] is canonical: a group has at least two
//! members, and no member is empty or a group of the same kind. Two canonical compositions of the
//! same order are equal, and the text of a composition reads back as the same composition.

mod parse;

use std::fmt;

use crate::Mechanism;

pub use parse::{CompositionError, EXPRESSION_BYTES_MAX, MECHANISMS_MAX, NESTING_MAX};

/// Mechanisms and the order in which they run (P-09, P-10, M-10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Composition {
    /// No mechanism at all, written `none`.
    #[default]
    Nothing,
    /// A single mechanism.
    One(Mechanism),
    /// One after the other, each beginning when the one before it is complete (P-09).
    Serial(Vec<Composition>),
    /// All at the same time; complete when every one is (P-10).
    Parallel(Vec<Composition>),
}

impl Composition {
    /// Reads an expression (P-09, P-10, P-11). An empty text and `none` mean no mechanism.
    ///
    /// # Errors
    /// [`CompositionError`] (EINVAL) with the place: for an unknown word, which is never guessed
    /// at, a misplaced operator or parenthesis, and for an expression longer than
    /// [`EXPRESSION_BYTES_MAX`], deeper than [`NESTING_MAX`] or of more than [`MECHANISMS_MAX`]
    /// mechanisms.
    pub fn parse(text: &str) -> Result<Self, CompositionError> {
        parse::parse(text)
    }

    /// The parts one after the other.
    #[must_use]
    pub fn serial(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut members = Vec::new();
        for part in parts {
            match part {
                Self::Nothing => {}
                Self::Serial(inner) => members.extend(inner),
                Self::One(_) | Self::Parallel(_) => members.push(part),
            }
        }
        Self::group(members, Self::Serial)
    }

    /// The parts at the same time.
    #[must_use]
    pub fn parallel(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut members = Vec::new();
        for part in parts {
            match part {
                Self::Nothing => {}
                Self::Parallel(inner) => members.extend(inner),
                Self::One(_) | Self::Serial(_) => members.push(part),
            }
        }
        Self::group(members, Self::Parallel)
    }

    fn group(mut members: Vec<Self>, kind: fn(Vec<Self>) -> Self) -> Self {
        match members.len() {
            0 => Self::Nothing,
            1 => members.remove(0),
            _ => kind(members),
        }
    }

    /// Whether there is no mechanism in it.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.mechanisms().next().is_none()
    }

    /// Every mechanism, as often as it occurs, in the order in which they are written.
    pub fn mechanisms(&self) -> impl Iterator<Item = Mechanism> {
        let mut pending = vec![self];
        std::iter::from_fn(move || {
            loop {
                match pending.pop()? {
                    Self::Nothing => {}
                    Self::One(mechanism) => return Some(*mechanism),
                    Self::Serial(members) | Self::Parallel(members) => {
                        pending.extend(members.iter().rev());
                    }
                }
            }
        })
    }

    /// Whether the mechanism occurs anywhere in it.
    #[must_use]
    pub fn contains(&self, mechanism: Mechanism) -> bool {
        self.mechanisms().any(|member| member == mechanism)
    }

    fn write_member(&self, f: &mut fmt::Formatter<'_>, parenthesised: bool) -> fmt::Result {
        if parenthesised { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

impl From<Mechanism> for Composition {
    fn from(mechanism: Mechanism) -> Self {
        Self::One(mechanism)
    }
}

impl std::str::FromStr for Composition {
    type Err = CompositionError;
    fn from_str(text: &str) -> Result<Self, CompositionError> {
        Self::parse(text)
    }
}

/// The canonical text: canonical names, no spaces, parentheses only where they change the meaning.
impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::One(mechanism) => write!(f, "{mechanism}"),
            Self::Serial(members) => {
                for (index, member) in members.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "+" })?;
                    member.write_member(f, false)?;
                }
                Ok(())
            }
            Self::Parallel(members) => {
                for (index, member) in members.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "||" })?;
                    member.write_member(f, matches!(member, Self::Serial(_)))?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
