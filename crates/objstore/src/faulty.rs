//! A wrapper that breaks on demand.
//!
//! For tests and simulations: rules, which can be changed while the store is in use, pick
//! operations by kind, name and count and choose their fate. To lose unsynced writes, wrap a
//! [`crate::Memory`] and call its `crash` from the test or from an [`Action::Call`]; to delay an
//! operation, block inside an [`Action::Call`]. Nothing here sleeps or draws random numbers.
//!
//! Invariant: without a matching rule the wrapper changes nothing.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{ClientId, Errno, Error, Pool, Result};

use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Operation, Pools, Presence, PutOutcome,
    Reserved, Space, Stat, Sweeping, Swept, SyncScope, Tuned, Version, forward::forward,
};

/// A test's code that runs while an operation waits; it gets the operation and the object.
pub type OperationHook = Arc<dyn Fn(Operation, &str) + Send + Sync>;

/// The fate of an operation that a rule picks.
#[derive(Clone)]
pub enum Action {
    /// The store does not execute the operation, and the caller gets an error.
    Fail(Errno),
    /// The store executes it, but its caller gets an error, as when an answer is lost.
    FailAfter(Errno),
    /// The closure runs first, on the caller's thread and with no lock held; then the operation.
    Call(OperationHook),
    /// A sync does nothing and reports success: a disk that lies. Other operations are unharmed.
    PretendSync,
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(errno) => write!(f, "Fail({})", errno.symbol()),
            Self::FailAfter(errno) => write!(f, "FailAfter({})", errno.symbol()),
            Self::Call(_) => f.write_str("Call(..)"),
            Self::PretendSync => f.write_str("PretendSync"),
        }
    }
}

/// Which operations an action happens to.
#[derive(Clone, Debug)]
pub struct Rule {
    operation: Option<Operation>,
    prefix: String,
    skip: u64,
    remaining: u64,
    action: Action,
}

impl Rule {
    /// A rule for every operation.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { operation: None, prefix: String::new(), skip: 0, remaining: u64::MAX, action }
    }

    /// Only operations of this kind.
    #[must_use]
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only objects (or locks, or listed prefixes) whose name starts so. A sync of everything has
    /// the empty name.
    #[must_use]
    pub fn named(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_string();
        self
    }

    /// Lets the first `count` matching operations pass.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Happens to `count` operations, then no more.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.remaining = count;
        self
    }

    /// Counts a matching operation; returns whether the action happens to it.
    fn fires(&mut self, operation: Operation, name: &str) -> bool {
        let kind_matches = self.operation.is_none_or(|kind| kind == operation);
        if !kind_matches || !name.starts_with(&self.prefix) || self.remaining == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.remaining -= 1;
        true
    }
}

/// The rules in force, shared between the test that sets them and the stores that obey; clones are
/// the same rules.
#[derive(Clone, Debug, Default)]
pub struct FaultRules(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    rules: Vec<Rule>,
    fired: u64,
}

impl FaultRules {
    /// Adds a rule. The first rule that fires on an operation decides; later ones do not count it.
    pub fn add(&self, rule: Rule) {
        self.plan().rules.push(rule);
    }

    /// Removes all rules: the store works again.
    pub fn clear(&self) {
        self.plan().rules.clear();
    }

    /// How many times any rule has fired.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.plan().fired
    }

    fn decide(&self, operation: Operation, name: &str) -> Option<Action> {
        let mut plan = self.plan();
        let rule = plan.rules.iter_mut().find_map(|rule| {
            let fires = rule.fires(operation, name);
            fires.then(|| rule.action.clone())
        })?;
        plan.fired += 1;
        Some(rule)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies the rules of a [`FaultRules`] to the store inside.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: FaultRules,
}

impl<S> Faulty<S> {
    /// Wraps a store.
    pub fn new(inner: S, faults: FaultRules) -> Self {
        Self { inner, faults }
    }

    fn run<T>(
        &self,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&S) -> Result<T>,
    ) -> Result<T> {
        self.execute(self.faults.decide(operation, name), operation, name, act)
    }

    fn execute<T>(
        &self,
        action: Option<Action>,
        operation: Operation,
        name: &str,
        act: impl FnOnce(&S) -> Result<T>,
    ) -> Result<T> {
        match action {
            None | Some(Action::PretendSync) => act(&self.inner),
            Some(Action::Fail(errno)) => Err(injected(operation, name, errno)),
            Some(Action::FailAfter(errno)) => {
                act(&self.inner)?;
                Err(injected(operation, name, errno))
            }
            Some(Action::Call(call)) => {
                call(operation, name);
                act(&self.inner)
            }
        }
    }
}

fn injected(operation: Operation, name: &str, errno: Errno) -> Error {
    Error::new(errno, name, format!("injected into {}: {}", operation.word(), errno.text()))
}

impl<S: ObjectStore> ObjectStore for Faulty<S> {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        self.run(Operation::Put, name, |inner| inner.put(name, data, expect))
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        self.run(Operation::Append, name, |inner| inner.append(name, data))
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.run(Operation::WriteRange, name, |inner| inner.write_range(name, offset, data))
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        self.run(Operation::Get, name, |inner| inner.get(name))
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.run(Operation::ReadRange, name, |inner| inner.read_range(name, offset, length))
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        self.run(Operation::Stat, name, |inner| inner.stat(name))
    }

    fn delete(&self, name: &str) -> Result<bool> {
        self.run(Operation::Delete, name, |inner| inner.delete(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.run(Operation::List, prefix, |inner| inner.list(prefix))
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        let name = match scope {
            SyncScope::Object(name) | SyncScope::Prefix(name) => name,
            SyncScope::All => "",
        };
        let action = self.faults.decide(Operation::Sync, name);
        if matches!(action, Some(Action::PretendSync)) {
            return Ok(());
        }
        self.execute(action, Operation::Sync, name, |inner| inner.sync(scope))
    }
}

impl<S: Tuned> Tuned for Faulty<S> {
    fn bytes_at_once(&self) -> usize {
        self.inner.bytes_at_once()
    }

    fn lists_what_it_finds(&self) -> bool {
        self.inner.lists_what_it_finds()
    }

    fn period(&self) -> u32 {
        self.inner.period()
    }
}

forward!(Capacity for Faulty<S>, self => self.inner);
forward!(Pools for Faulty<S>, self => self.inner);

impl<S: Fencing> Fencing for Faulty<S> {
    fn enter(&self, client: ClientId) -> Result<Presence> {
        self.inner.enter(client)
    }

    fn shut_out(&self, client: ClientId) -> Result<bool> {
        self.inner.shut_out(client)
    }

    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        self.run(Operation::Lock, name, |inner| inner.lock(name, owner))
    }
}

forward!(Sweeping for Faulty<S>, self => self.inner);
