//! [`Pool`]: numbers 0..capacity to give out, and those given back that a reader may still be standing on.

/// A pool of equal pieces of memory.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    capacity: u32,
    next: u32,
    free: Vec<u32>,
    /// Given back, and not yet known to be out of every reader's hands.
    limbo: Vec<u32>,
    high_water: u32,
}

impl Pool {
    /// A pool of `capacity` pieces, all free.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }
    /// Pieces there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// More pieces, at the end.
    pub fn grow(&mut self, capacity: u32) {
        self.capacity = self.capacity.max(capacity);
    }
    /// Pieces that can be taken now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.capacity - self.next + self.free.len() as u32
    }
    /// Pieces in use; those that wait for readers count as free.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.next - self.free.len() as u32 - self.limbo.len() as u32
    }
    /// The most that were in use.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water
    }
    /// Pieces that [`Pool::settle`] would free.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.limbo.len() as u32
    }
    /// Every reader that was under way when pieces were last given back has ended.
    pub fn settle(&mut self) {
        self.free.append(&mut self.limbo);
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let piece = self.free.pop().or_else(|| {
            let next = self.next;
            (next < self.capacity).then(|| {
                self.next += 1;
                next
            })
        });
        self.high_water = self.high_water.max(self.used());
        piece
    }
    pub(crate) fn give_back(&mut self, piece: u32) {
        self.limbo.push(piece);
    }
}
