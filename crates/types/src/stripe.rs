//! How large the objects are that the content of a file is striped over.

/// A file is striped over objects of so many bytes, unless its directory says otherwise.
pub const STRIPE_BYTES: u64 = Stripe::DEFAULT.bytes();

/// The size of the objects that a file's content is striped over: a power of two from 64 KiB to
/// 64 MiB. It is chosen when the file is created and never changes, because the names of the objects
/// follow from it. Every stripe has room for whatever may be inline
/// ([`INLINE_BYTES_MAX`](crate::INLINE_BYTES_MAX)), so that content leaves its inode as one object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(u8);

impl Stripe {
    /// The smallest: 64 KiB.
    pub const MIN: Self = Self(16);
    /// The usual one: 4 MiB.
    pub const DEFAULT: Self = Self(22);
    /// The largest: 64 MiB.
    pub const MAX: Self = Self(26);

    /// The stripe of so many bytes, if there is one.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        let all = Self::MIN.0..=Self::MAX.0;
        all.map(Self).find(|stripe| stripe.bytes() == bytes)
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// How many of these content of so many bytes takes.
    #[must_use]
    pub fn count(self, size: u64) -> u64 {
        size.div_ceil(self.bytes())
    }

    /// The binary logarithm of its bytes, and 0 for the usual one: formats leave out what is 0.
    #[must_use]
    pub fn code(self) -> u8 {
        if self == Self::DEFAULT { 0 } else { self.0 }
    }

    /// What [`Stripe::code`] made a number of.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        let code = u8::try_from(code).ok()?;
        match Self(code) {
            Self(0) => Some(Self::DEFAULT),
            stripe if (Self::MIN..=Self::MAX).contains(&stripe) => Some(stripe),
            _ => None,
        }
    }
}

impl Default for Stripe {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl std::fmt::Debug for Stripe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.bytes())
    }
}
