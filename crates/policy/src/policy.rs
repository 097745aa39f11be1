//! The policy of a subtree as a value, and its canonical texts.
//!
//! Module `file` reads policy files; [`Cell`] has the guarantees of a composition. Invariant: the
//! text [`Policy::to_yaml`] writes reads back as an equal policy.

use std::fmt::Write as _;

use types::{INLINE_BYTES, Pool, Span, Stripe};

use crate::option::{
    Ack, Cache, Check, Checksums, InterferePolicy, Limit, MergeBy, MergeTrigger, Sharing,
};
use crate::warning::{self, PolicyWarning};
use crate::{Cell, Composition, Mechanism, effective, option};

/// The number of inodes a subtree is provisioned with unless its policy says otherwise.
pub const ALLOCATED_INODES_DEFAULT: u64 = 100;

/// The largest number of inodes a policy may ask for.
pub const ALLOCATED_INODES_MAX: u64 = 1 << 40;

/// The policy of a subtree: the mechanisms that carry, persist and publish its updates, and the
/// terms of its decoupling. The default behaves like POSIX.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How updates are carried and shown; by default `rpcs`.
    pub consistency: Composition,
    /// How updates are kept; by default `stream`.
    pub durability: Composition,
    /// How many files the application intends to create, from 1 to [`ALLOCATED_INODES_MAX`];
    /// by default [`ALLOCATED_INODES_DEFAULT`].
    pub allocated_inodes: u64,
    /// The reply to requests of other clients while the subtree is decoupled; by default allowed
    ///
    pub interfere: InterferePolicy,
    /// When operations are acknowledged; by default when applied.
    pub ack: Ack,
    /// How clients may cache the subtree's directories; by default with capabilities.
    pub cache: Cache,
    /// Whether creates beyond `allocated_inodes` fail with EDQUOT; by default another range is
    /// granted instead. Written `limit: hard` or `limit: soft`.
    pub hard_limit: bool,
    /// Where a merge checks existence; by default nowhere.
    pub check: Check,
    /// When updates are merged, if the policy applies them at all; by default at the end (P-03).
    pub merge: MergeTrigger,
    /// The form in which a merge sends changes; by default event by event.
    pub merge_by: MergeBy,
    /// The largest content, in bytes, that stays in its inode, up to [`types::INLINE_BYTES_MAX`];
    /// by default [`INLINE_BYTES`].
    pub inline_bytes: u32,
    /// How the content of new files is striped if it is not kept in their inodes; by default
    /// [`Stripe::DEFAULT`]. Written `stripe_bytes: 4194304`.
    pub stripe: Stripe,
    /// How soon clients with a file open see each other's writes; by default at once.
    pub sharing: Sharing,
    /// The pool of the object store for content of new files outside their inodes, by name; by
    /// default the store's own pool. Written `data_pool: fast`, and `data_pool: fast#3` once the
    /// store has resolved the name to number 3: then [`Stripe::pool`] of `stripe` is 3 (E-03).
    pub data_pool: Option<String>,
    /// Whether file content outside the inodes gets checksums; the default is `on`, and only `off`
    /// is written.
    pub checksums: Checksums,
    /// How long a tree that is removed at once can be restored; without it, its room is given back
    /// at once. Written `trash: 1d`, only if the policy says so.
    pub trash: Option<Span>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            consistency: Mechanism::Rpcs.into(),
            durability: Mechanism::Stream.into(),
            allocated_inodes: ALLOCATED_INODES_DEFAULT,
            interfere: InterferePolicy::default(),
            ack: Ack::default(),
            cache: Cache::default(),
            hard_limit: false,
            check: Check::default(),
            merge: MergeTrigger::default(),
            merge_by: MergeBy::default(),
            inline_bytes: INLINE_BYTES,
            stripe: Stripe::DEFAULT,
            sharing: Sharing::default(),
            data_pool: None,
            checksums: Checksums::default(),
            trash: None,
        }
    }
}

impl Policy {
    /// The policy of a cell of Table II, with defaults for everything else (P-01).
    #[must_use]
    pub fn of_cell(cell: Cell) -> Self {
        let (consistency, durability) = cell.expressions();
        Self { consistency, durability, ..Self::default() }
    }

    /// What runs: the mechanisms of both expressions in their effective order (P-13). The
    /// consistency expression up to the mechanism that carries updates, then the durability
    /// expression, then the rest of the consistency expression.
    #[must_use]
    pub fn effective(&self) -> Composition {
        effective::effective(&self.consistency, &self.durability)
    }

    /// Whether a client works on the subtree with a journal of its own.
    #[must_use]
    pub fn is_decoupled(&self) -> bool {
        self.contains(Mechanism::AppendClientJournal)
    }

    /// Whether the metadata server journals the subtree's updates.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.contains(Mechanism::Stream)
    }

    /// Whether clients keep logs of the requests that they make: `rpcs` with `local_persist`.
    #[must_use]
    pub fn logs_requests(&self) -> bool {
        self.contains(Mechanism::Rpcs) && self.contains(Mechanism::LocalPersist)
    }

    /// Whether the system makes a client's journal visible to other clients.
    #[must_use]
    pub fn applies(&self) -> bool {
        self.any(Mechanism::applies)
    }

    /// Whether a client's journal is persisted outside its memory.
    #[must_use]
    pub fn persists(&self) -> bool {
        self.any(Mechanism::persists)
    }

    fn any(&self, kind: fn(Mechanism) -> bool) -> bool {
        self.consistency.mechanisms().chain(self.durability.mechanisms()).any(kind)
    }

    /// Whether either expression contains the mechanism.
    #[must_use]
    pub fn contains(&self, mechanism: Mechanism) -> bool {
        self.consistency.contains(mechanism) || self.durability.contains(mechanism)
    }

    /// The cell of Table II that the effective composition gives once it is complete (M-10), or
    /// `None` if no single cell describes it. See [`Cell::of`].
    #[must_use]
    pub fn cell(&self) -> Option<Cell> {
        Cell::of(&self.effective())
    }

    /// Parts of the policy that have no effect or an unexpected one (P-12).
    #[must_use]
    pub fn warnings(&self) -> Vec<PolicyWarning> {
        let effective = self.effective();
        let mut warnings = warning::warnings(&effective);
        let kinds = |kind: fn(Mechanism) -> bool| effective.mechanisms().any(kind);
        let keeps = effective.contains(Mechanism::Stream)
            || effective.contains(Mechanism::NonvolatileApply)
            || kinds(Mechanism::persists);
        if self.ack == Ack::Safe && !keeps {
            warnings.push(PolicyWarning::SafeAckNeverComes);
        }
        if self.cache == Cache::Lease && self.ack == Ack::Async {
            warnings.push(PolicyWarning::NeverExclusive);
        }
        if self.merge != MergeTrigger::AtEnd && !kinds(Mechanism::applies) {
            warnings.push(PolicyWarning::MergeTriggerUnused);
        }
        if self.merge == MergeTrigger::OnDemand && self.interfere == InterferePolicy::Block {
            warnings.push(PolicyWarning::NobodyAsks);
        }
        if self.check != Check::None && !self.is_decoupled() {
            warnings.push(PolicyWarning::CheckUnused);
        }
        if self.merge_by == MergeBy::Reference {
            if !kinds(Mechanism::applies) {
                warnings.push(PolicyWarning::ReferenceUnused);
            } else if self.check == Check::Merge {
                warnings.push(PolicyWarning::ReferenceChecked);
            }
        }
        warnings
    }

    /// The name of its pool, and the number, if the store has said it.
    fn pool_text(&self, name: &str) -> String {
        match self.stripe.pool() {
            Pool::USUAL => name.to_owned(),
            Pool(number) => format!("{name}#{number}"),
        }
    }

    /// The canonical text, with every key in a fixed order, a pool only if the policy names one; it
    /// reads back as an equal policy. Policies are stored in this form.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.members() {
            // The values are mechanism names, operators, digits and single words, none of which
            // YAML reads as anything but text or a number where they stand.
            writeln!(text, "{key}: {value}").expect("writing to a string cannot fail");
        }
        text
    }

    /// The same members as [`Policy::to_yaml`] as a JSON object, which reads back as well. Numbers
    /// are numbers.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        for (key, value) in self.members() {
            object.insert(key.to_owned(), value.into());
        }
        object.insert("allocated_inodes".to_owned(), self.allocated_inodes.into());
        object.insert("inline_bytes".to_owned(), self.inline_bytes.into());
        object.insert("stripe_bytes".to_owned(), self.stripe.bytes().into());
        object.into()
    }

    fn members(&self) -> impl Iterator<Item = (&'static str, String)> {
        let limit = if self.hard_limit { Limit::Hard } else { Limit::Soft };
        [
            ("consistency", self.consistency.to_string()),
            ("durability", self.durability.to_string()),
            ("allocated_inodes", self.allocated_inodes.to_string()),
            ("interfere_policy", self.interfere.to_string()),
            ("ack", self.ack.to_string()),
            ("cache", self.cache.to_string()),
            ("limit", limit.to_string()),
            ("check", self.check.to_string()),
            ("merge", self.merge.to_string()),
            ("merge_by", self.merge_by.to_string()),
            ("inline_bytes", self.inline_bytes.to_string()),
            ("stripe_bytes", self.stripe.bytes().to_string()),
            ("sharing", self.sharing.to_string()),
        ]
        .into_iter()
        .chain(self.data_pool.as_ref().map(|name| ("data_pool", self.pool_text(name))))
        .chain(
            (self.checksums == Checksums::Off).then(|| ("checksums", self.checksums.to_string())),
        )
        .chain(self.trash.map(|span| ("trash", option::trash_name(span))))
    }
}

#[cfg(test)]
mod tests;
