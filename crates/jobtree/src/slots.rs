//! The threads that work in a region: each has a slot, which says whether it is inside.
//!
//! Epochs: a thread that enters notes the epoch; a freed record is used again two epochs later. The
//! epoch advances when every thread inside has noted the current one, so no thread can then have a
//! record in hand that was freed before.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::region::{
    Denied, HEAD_EPOCH, HEAD_GATE, HEAD_SLOT_HINT, HEAD_SLOTS_HIGH, Host, JobRegion, LIMBO_AT,
    LIMBO_ENTRIES, SLOT_BYTES, SLOTS, SLOTS_AT,
};

/// Process and thread in one word; 0 if the slot is free.
const OWNER: u64 = 0;
/// Counts the owners, so that a lock names one owner and not a slot.
const GENERATION: u64 = 8;
/// The epoch noted at the entry, and bit 0; 0 outside. On a line of its own: others read it.
const INSIDE: u64 = 64;
pub(crate) const ARENA_NEXT: u64 = 128;
pub(crate) const ARENA_END: u64 = 136;
pub(crate) const INO_NEXT: u64 = 144;
pub(crate) const INO_END: u64 = 152;
pub(crate) const STAMP: u64 = 160;
const LIMBO_FIRST: u64 = 168;
const LIMBO_NEXT: u64 = 176;
pub(crate) const FREE: u64 = 192;

/// The gate after the region was closed.
const CLOSED: u64 = u64::MAX;
/// Rounds of waiting before the owner of a lock is suspected to be dead.
const SUSPECT_AFTER: u32 = 64;
/// Rounds of waiting for other threads to leave before freed memory is given up.
const RECLAIM_ROUNDS: u32 = 200;
/// Freed records after which the epoch is advanced if possible.
const RECLAIM_EVERY: u64 = 64;
/// Free places in the limbo that one call may need.
const LIMBO_MARGIN: u64 = 16;

/// A thread at work in a region.
#[derive(Debug)]
pub struct Visit<'a, H> {
    pub(crate) region: &'a JobRegion,
    pub(crate) host: &'a H,
    slot: u32,
}

impl<H> Clone for Visit<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Visit<'_, H> {}

/// A thread is inside as long as it has this.
#[derive(Debug)]
#[must_use]
pub struct Guard<'a> {
    /// Nothing for a call inside another one, from a signal handler.
    inside: Option<&'a AtomicU64>,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(inside) = self.inside {
            inside.store(0, Ordering::Release);
        }
    }
}

/// A thread has the region to itself as long as it has this.
#[derive(Debug)]
#[must_use]
pub(crate) struct Exclusive<'a> {
    gate: &'a AtomicU64,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.gate.store(0, Ordering::SeqCst);
    }
}

fn owner_of(pid: u32, tid: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(tid)
}

impl<'a, H: Host> Visit<'a, H> {
    /// Claims a slot for a thread. `None` if every slot has a living owner.
    pub fn claim(region: &'a JobRegion, host: &'a H, pid: u32, tid: u32) -> Option<Self> {
        let start = region.word(HEAD_SLOT_HINT).load(Ordering::Relaxed);
        for round in 0..2 {
            for step in 0..SLOTS {
                let slot = (start + step) % SLOTS;
                let session = Self { region, host, slot: slot as u32 };
                let owner = session.own(OWNER).load(Ordering::Relaxed);
                let dead = || !host.is_alive((owner >> 32) as u32, owner as u32);
                if owner != 0 && owner != owner_of(pid, tid) && (round == 0 || !dead()) {
                    continue;
                }
                let mine = owner_of(pid, tid);
                let swap = session.own(OWNER).compare_exchange(
                    owner,
                    mine,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                if swap.is_err() {
                    continue;
                }
                session.own(GENERATION).fetch_add(1, Ordering::SeqCst);
                session.own(INSIDE).store(0, Ordering::SeqCst);
                region.word(HEAD_SLOTS_HIGH).fetch_max(slot + 1, Ordering::SeqCst);
                // The lowest free slots are used first: fewer are looked at by exclusive calls.
                region.word(HEAD_SLOT_HINT).store(0, Ordering::Relaxed);
                return Some(session);
            }
        }
        None
    }

    /// A thread that has claimed this slot before.
    #[must_use]
    pub fn at(region: &'a JobRegion, host: &'a H, slot: u32) -> Self {
        Self { region, host, slot: slot % SLOTS as u32 }
    }

    /// The number of the slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &'a JobRegion {
        self.region
    }

    /// Gives the slot back, for another thread.
    pub fn release(&self) {
        self.own(INSIDE).store(0, Ordering::SeqCst);
        self.own(GENERATION).fetch_add(1, Ordering::SeqCst);
        self.own(OWNER).store(0, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn own(&self, field: u64) -> &'a AtomicU64 {
        self.region.word(SLOTS_AT + u64::from(self.slot) * SLOT_BYTES + field)
    }

    fn of_slot(&self, slot: u64, field: u64) -> &'a AtomicU64 {
        self.region.word(SLOTS_AT + (slot % SLOTS) * SLOT_BYTES + field)
    }

    /// Enters beside other threads.
    ///
    /// # Errors
    /// [`Denied::Closed`].
    #[inline]
    pub fn enter(&self) -> Result<Guard<'a>, Denied> {
        let inside = self.own(INSIDE);
        if inside.load(Ordering::Relaxed) != 0 {
            return Ok(Guard { inside: None });
        }
        if self.limbo_len() >= RECLAIM_EVERY {
            self.reclaim();
        }
        let mut round = 0;
        loop {
            let epoch = self.region.word(HEAD_EPOCH).load(Ordering::Relaxed);
            // A swap: the gate must not be read before other threads can see this one inside.
            inside.swap(epoch << 1 | 1, Ordering::SeqCst);
            match self.region.word(HEAD_GATE).load(Ordering::SeqCst) {
                0 => return Ok(Guard { inside: Some(inside) }),
                gate => {
                    inside.store(0, Ordering::SeqCst);
                    if gate == CLOSED {
                        return Err(Denied::Closed);
                    }
                    if round >= SUSPECT_AFTER && self.is_dead(gate) {
                        drop(self.exclude());
                    }
                }
            }
            self.host.pause(round);
            round += 1;
        }
    }

    /// Whether the region is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.region.word(HEAD_GATE).load(Ordering::SeqCst) == CLOSED
    }

    /// Enters alone: no other thread is inside while the result exists. The calling thread must
    /// not be inside.
    ///
    /// # Errors
    /// [`Denied::Closed`]; [`Denied::Unable`] inside another call, from a signal handler.
    pub(crate) fn exclude(&self) -> Result<Exclusive<'a>, Denied> {
        if self.own(INSIDE).load(Ordering::Relaxed) != 0 {
            return Err(Denied::Unable);
        }
        let gate = self.region.word(HEAD_GATE);
        let mine = self.lock_owner();
        let mut round = 0;
        loop {
            let taken = gate.compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst);
            let Err(other) = taken else { break };
            if other == CLOSED {
                return Err(Denied::Closed);
            }
            if round >= SUSPECT_AFTER
                && self.is_dead(other)
                && gate.compare_exchange(other, mine, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                break;
            }
            self.host.pause(round);
            round += 1;
        }
        self.wait_until_empty();
        let alone = Exclusive { gate };
        self.complete_intent();
        Ok(alone)
    }

    /// Closes the region for good, with no thread inside when it returns. False if it was closed
    /// before.
    pub fn close(&self) -> bool {
        let Ok(alone) = self.exclude() else { return false };
        std::mem::forget(alone);
        self.region.word(HEAD_GATE).store(CLOSED, Ordering::SeqCst);
        true
    }

    /// Runs with no other thread inside. The calling thread must not be inside.
    ///
    /// # Errors
    /// [`Denied::Closed`]; [`Denied::Unable`] inside another call.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, Denied> {
        let alone = self.exclude()?;
        let done = work();
        drop(alone);
        Ok(done)
    }

    fn wait_until_empty(&self) {
        for slot in 0..self.region.word(HEAD_SLOTS_HIGH).load(Ordering::SeqCst).min(SLOTS) {
            let inside = self.of_slot(slot, INSIDE);
            let mut round = 0;
            while inside.load(Ordering::SeqCst) != 0 {
                if round >= SUSPECT_AFTER && round % SUSPECT_AFTER == 0 && !self.lives(slot) {
                    self.bury(slot);
                }
                self.host.pause(round);
                round += 1;
            }
        }
    }

    fn lives(&self, slot: u64) -> bool {
        let owner = self.of_slot(slot, OWNER).load(Ordering::SeqCst);
        owner != 0 && self.host.is_alive((owner >> 32) as u32, owner as u32)
    }

    /// The owner of a slot is dead: it is not inside any more, and its locks are free.
    fn bury(&self, slot: u64) {
        let owner = self.of_slot(slot, OWNER).load(Ordering::SeqCst);
        if owner != 0 && self.host.is_alive((owner >> 32) as u32, owner as u32) {
            return;
        }
        self.of_slot(slot, GENERATION).fetch_add(1, Ordering::SeqCst);
        self.of_slot(slot, INSIDE).store(0, Ordering::SeqCst);
        let _ = self.of_slot(slot, OWNER).compare_exchange(
            owner,
            0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// The name of this thread in a lock.
    fn lock_owner(&self) -> u64 {
        self.own(GENERATION).load(Ordering::Relaxed) << 16 | u64::from(self.slot + 1)
    }

    /// Whether the thread that a lock names is dead.
    fn is_dead(&self, owner: u64) -> bool {
        let Some(slot) = (owner & 0xffff).checked_sub(1) else { return false };
        self.of_slot(slot, GENERATION).load(Ordering::SeqCst) != owner >> 16 || !self.lives(slot)
    }

    /// Locks a word of the region for this thread, which is inside.
    ///
    /// # Errors
    /// [`Denied::Unable`] if the call that this one interrupts has it.
    #[inline]
    pub(crate) fn lock(&self, word: &'a AtomicU64) -> Result<Lock<'a>, Denied> {
        let mine = self.lock_owner();
        if word.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(Lock { word });
        }
        self.lock_slowly(word, mine)
    }

    #[cold]
    fn lock_slowly(&self, word: &'a AtomicU64, mine: u64) -> Result<Lock<'a>, Denied> {
        let mut round = 0;
        loop {
            match word.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Lock { word }),
                Err(owner) if owner == mine => return Err(Denied::Unable),
                Err(owner) => {
                    if round >= SUSPECT_AFTER
                        && self.is_dead(owner)
                        && word
                            .compare_exchange(owner, mine, Ordering::Acquire, Ordering::Relaxed)
                            .is_ok()
                    {
                        return Ok(Lock { word });
                    }
                }
            }
            self.host.pause(round);
            round += 1;
        }
    }

    fn limbo_len(&self) -> u64 {
        let next = self.own(LIMBO_NEXT).load(Ordering::Relaxed);
        next.wrapping_sub(self.own(LIMBO_FIRST).load(Ordering::Relaxed))
    }

    fn limbo(&self, index: u64) -> u64 {
        LIMBO_AT + (u64::from(self.slot) * LIMBO_ENTRIES + index % LIMBO_ENTRIES) * 16
    }

    /// A record that other threads may still be reading is free.
    pub(crate) fn retire(&self, offset: u64, class: u32) {
        if self.limbo_len() >= LIMBO_ENTRIES {
            // Too many at once: the memory is given up.
            return;
        }
        let next = self.own(LIMBO_NEXT).load(Ordering::Relaxed);
        let place = self.limbo(next);
        self.region.word(place).store(offset | u64::from(class), Ordering::Relaxed);
        let epoch = self.region.word(HEAD_EPOCH).load(Ordering::SeqCst);
        self.region.word(place + 8).store(epoch, Ordering::Relaxed);
        self.own(LIMBO_NEXT).store(next + 1, Ordering::Relaxed);
    }

    /// Makes freed records usable that no thread can be reading. The calling thread is outside.
    #[cold]
    fn reclaim(&self) {
        let mut round = 0;
        loop {
            self.advance();
            let epoch = self.region.word(HEAD_EPOCH).load(Ordering::SeqCst);
            let mut first = self.own(LIMBO_FIRST).load(Ordering::Relaxed);
            let next = self.own(LIMBO_NEXT).load(Ordering::Relaxed);
            while first != next {
                let place = self.limbo(first);
                if self.region.word(place + 8).load(Ordering::Relaxed) + 2 > epoch {
                    break;
                }
                let record = self.region.word(place).load(Ordering::Relaxed);
                first += 1;
                self.own(LIMBO_FIRST).store(first, Ordering::Relaxed);
                self.give((record & !63).max(64), (record & 63) as u32);
            }
            if self.limbo_len() + LIMBO_MARGIN < LIMBO_ENTRIES || round > RECLAIM_ROUNDS {
                return;
            }
            self.host.pause(round);
            round += 1;
            if round == RECLAIM_ROUNDS / 2 {
                self.bury_dead();
            }
        }
    }

    fn bury_dead(&self) {
        for slot in 0..self.region.word(HEAD_SLOTS_HIGH).load(Ordering::SeqCst).min(SLOTS) {
            if self.of_slot(slot, INSIDE).load(Ordering::SeqCst) != 0 && !self.lives(slot) {
                self.bury(slot);
            }
        }
    }

    fn advance(&self) {
        let word = self.region.word(HEAD_EPOCH);
        let epoch = word.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for slot in 0..self.region.word(HEAD_SLOTS_HIGH).load(Ordering::SeqCst).min(SLOTS) {
            let inside = self.of_slot(slot, INSIDE).load(Ordering::SeqCst);
            if inside != 0 && inside >> 1 != epoch {
                return;
            }
        }
        let _ = word.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// A locked word of the region.
#[derive(Debug)]
#[must_use]
pub(crate) struct Lock<'a> {
    word: &'a AtomicU64,
}

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}
