//! The size and the pool of the objects over which the content of a file is striped.

use crate::Ino;

/// A file is striped over objects of so many bytes, unless its directory says otherwise.
pub const STRIPE_BYTES: u64 = Stripe::DEFAULT.bytes();

/// A pool of the object store, by the number that the store gave it; 0 is the store's default pool.
/// Stores without pools know only 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool(pub u8);

impl Pool {
    /// Where content goes unless a policy says otherwise.
    pub const USUAL: Self = Self(0);

    /// Names of objects in a chosen pool begin with `data/`, this word and the pool's number as two
    /// hexadecimal digits.
    pub const WORD: &str = "pool";

    /// The pool of an object, according to its name.
    #[must_use]
    pub fn of_object(name: &str) -> Self {
        let split = name.strip_prefix("data/").and_then(Self::split_name);
        split.map_or(Self::USUAL, |(pool, _)| pool)
    }

    /// Splits the part of a name behind `data/` into the chosen pool and the rest; `None` if the
    /// name has no chosen pool.
    #[must_use]
    pub fn split_name(part: &str) -> Option<(Self, &str)> {
        let (number, rest) = part.strip_prefix(Self::WORD)?.split_once('/')?;
        let pool = Self(u8::try_from(crate::hex::fixed(number, 2)?).ok()?);
        (pool != Self::USUAL).then_some((pool, rest))
    }
}

/// The size of the objects over which a file's content is striped, a power of two from 64 KiB to 64
/// MiB, and their pool (E-03). Both are chosen when the file is created and never change, because
/// the names of the objects follow from them. Every stripe has room for all content that may be
/// inline ([`INLINE_BYTES_MAX`](crate::INLINE_BYTES_MAX)), so that content leaves its inode as one
/// object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe {
    /// The binary logarithm of its bytes.
    log: u8,
    pool: Pool,
}

/// A file whose content is striped over objects of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripedFile {
    /// The file.
    pub ino: Ino,
    /// How its content is cut.
    pub stripe: Stripe,
}

impl StripedFile {
    /// A file with this stripe.
    #[must_use]
    pub const fn new(ino: Ino, stripe: Stripe) -> Self {
        Self { ino, stripe }
    }
}

impl Stripe {
    /// The smallest: 64 KiB.
    pub const MIN: Self = Self::of_log(16);
    /// The usual one: 4 MiB.
    pub const DEFAULT: Self = Self::of_log(22);
    /// The largest: 64 MiB.
    pub const MAX: Self = Self::of_log(26);

    const fn of_log(log: u8) -> Self {
        Self { log, pool: Pool::USUAL }
    }

    /// The stripe of so many bytes, if there is one, in the usual pool.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        let all = Self::MIN.log..=Self::MAX.log;
        all.map(Self::of_log).find(|stripe| stripe.bytes() == bytes)
    }

    /// The same in a pool.
    #[must_use]
    pub const fn in_pool(self, pool: Pool) -> Self {
        Self { log: self.log, pool }
    }

    /// The pool that the objects are in.
    #[must_use]
    pub const fn pool(self) -> Pool {
        self.pool
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.log
    }

    /// How many of these content of so many bytes takes.
    #[must_use]
    pub fn count(self, size: u64) -> u64 {
        size.div_ceil(self.bytes())
    }

    /// The binary logarithm of the stripe's bytes, or 0 for the default, plus 256 times the pool's
    /// number: formats leave out a value of 0.
    #[must_use]
    pub fn code(self) -> u32 {
        let log = if self.log == Self::DEFAULT.log { 0 } else { self.log };
        u32::from(log) | u32::from(self.pool.0) << 8
    }

    /// The reverse of [`Stripe::code`].
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        let [log, pool, 0, 0] = code.to_le_bytes() else { return None };
        let log = match log {
            0 => Self::DEFAULT.log,
            log if (Self::MIN.log..=Self::MAX.log).contains(&log) => log,
            _ => return None,
        };
        Some(Self { log, pool: Pool(pool) })
    }
}

impl Default for Stripe {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl std::fmt::Debug for Stripe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.bytes())?;
        if self.pool == Pool::USUAL { Ok(()) } else { write!(f, " in pool {}", self.pool.0) }
    }
}
