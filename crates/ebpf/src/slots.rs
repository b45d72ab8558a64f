//! Which slots of the arrays of arrays may hold an array.
//!
//! Before Linux 6.8 a look-up in an array of arrays by a system call waits for a grace period (`bpf_map_copy_value` in the kernel's
//! kernel/bpf/syscall.c): 10 to 20 ms, for each of the 2,200 slots of lists and routing tables. A plane that this process has made
//! has empty slots, so those into which nothing has been put are not looked up. The slots of routing tables that an earlier process
//! has used are in `Meta::fib_slots`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The slots into which an array has been put, by array of arrays and index; `None`: an earlier process may have put some there.
#[derive(Debug)]
pub(crate) struct Slots(Option<Mutex<BTreeSet<(&'static str, u32)>>>);

impl Slots {
    /// `new` is true if this process has made the maps, so that every slot is empty, and false if an earlier process has.
    pub(crate) fn new(new: bool) -> Self {
        Self(new.then(Mutex::default))
    }

    /// Records that an array is put into a slot.
    pub(crate) fn put(&self, kind: &'static str, slot: u32) {
        if let Some(slots) = &self.0 {
            slots.lock().unwrap_or_else(PoisonError::into_inner).insert((kind, slot));
        }
    }

    /// False if the slot is known to be empty.
    pub(crate) fn may_hold(&self, kind: &'static str, slot: u32) -> bool {
        let held = |slots: &Mutex<BTreeSet<_>>| {
            slots.lock().unwrap_or_else(PoisonError::into_inner).contains(&(kind, slot))
        };
        self.0.as_ref().is_none_or(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_slots_are_empty_until_something_is_put_there() {
        let new = Slots::new(true);
        assert!(!new.may_hold("fib_small", 3));
        new.put("fib_small", 3);
        assert!(
            new.may_hold("fib_small", 3) && !new.may_hold("fib_medium", 3) && !new.may_hold("fib_small", 4)
        );
        assert!(Slots::new(false).may_hold("fib_small", 3), "of an earlier process");
    }
}
