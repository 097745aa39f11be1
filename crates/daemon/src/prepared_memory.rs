//! Memory that is ready before it is needed.
//!
//! The first touch of a page of memory is a trap into the kernel, which has to find and clear one;
//! on a virtual machine the host may have to do the same. A merge of a million files touches 140 MB
//! for the first time, and would spend a third of its time on that. So a server that has nothing
//! to do takes memory from the allocator, a little at a time, touches it and gives it back: the
//! allocator keeps it (see the settings that `cudele up` gives it) and hands it out later.
//!
//! Once per process, and until the server needs the memory: memory that the namespace frees later
//! stays mapped.

/// Bytes touched in one step: a fraction of a millisecond.
const STEP_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct PreparedMemory {
    wanted: usize,
    memory: Vec<u8>,
}

impl PreparedMemory {
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, memory: Vec::new() }
    }

    /// Whether there is something left to do when nothing else is.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// Frees the prepared memory for the server.
    pub(crate) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Touches a little more. Where there is no memory to spare, that is the end of it.
    pub(crate) fn step(&mut self) {
        let missing = self.wanted.saturating_sub(self.memory.len());
        let fits = self.memory.try_reserve_exact(missing).is_ok();
        if !fits || missing == 0 {
            return self.stop();
        }
        let touched = self.memory.len() + missing.min(STEP_BYTES);
        self.memory.resize(touched, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warming_ends_and_frees_its_memory() {
        let mut warm = PreparedMemory::new(3 * STEP_BYTES + 5);
        let mut steps = 0;
        while warm.is_wanted() {
            warm.step();
            steps += 1;
        }
        assert_eq!((steps, warm.memory.capacity()), (5, 0));
    }

    #[test]
    fn warming_more_memory_than_available_ends_at_once() {
        let mut warm = PreparedMemory::new(usize::MAX);
        warm.step();
        assert!(!warm.is_wanted());
    }
}
