//! Restarts: of the manager, while the chip continues to forward (warm boot), and of the chip.
//!
//! Invariant: until a warm boot ends nothing changes in the chip, so it forwards as before; then only the difference between its
//! entries and the configuration is written.

use super::{Manager, OutOfLine, Policy, object_of};
use crate::hardware::{Failure, Hardware, entries};
use crate::prefixes::Prefix;
use crate::strategy::Strategy;
use lanyard_asic::sdk::message::Event;

impl<H: Hardware + 'static> Manager<H> {
    /// A manager of a chip that may hold another manager's entries. Until [`Manager::end_warm_boot`],
    /// requests are stored in the configuration and nothing is written.
    ///
    /// # Errors
    /// When the chip cannot be read back.
    pub fn warm(hardware: H, strategy: Box<dyn Strategy>, policy: Policy) -> Result<Self, Failure> {
        let mut manager = Self::new(hardware, strategy, policy);
        manager.begin_warm_boot()?;
        Ok(manager)
    }
}

impl Manager<dyn Hardware> {
    fn begin_warm_boot(&mut self) -> Result<(), Failure> {
        // Another manager may have given tables other sizes.
        self.refresh();
        let found = entries(&mut self.hardware)?;
        self.strategy.resync(&found);
        // This manager has missed the chip's earlier events of learned addresses.
        self.strategy.received(&Event::Lost(1));
        self.adopt(&found);
        self.held = true;
        Ok(())
    }

    /// True while a warm boot has not ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Replaces the strategy.
    ///
    /// # Errors
    /// When the chip does not answer; the strategy is not replaced then.
    pub fn set_strategy(&mut self, strategy: Box<dyn Strategy>) -> Result<(), Failure> {
        self.drain();
        let found = entries(&mut self.hardware)?;
        self.strategy = strategy;
        // The new strategy starts with the sizes of the platform file.
        self.sizes.iter().for_each(|(path, units)| self.strategy.resized(path, *units));
        if !found.is_empty() {
            self.strategy.resync(&found);
            // The new strategy has not received the chip's events of learned addresses.
            self.strategy.received(&Event::Lost(1));
        }
        Ok(())
    }

    /// Ends a warm boot, because the configuration is complete: writes what the chip lacks, and removes entries that were not
    /// configured. A route that does not fit is hidden, whatever the policy, because it was accepted: [`Manager::place`] shows
    /// it.
    ///
    /// # Errors
    /// See [`Manager::settle`].
    pub fn end_warm_boot(&mut self) -> Result<(), OutOfLine> {
        if !self.held {
            return Ok(());
        }
        self.held = false;
        self.suspect = true;
        self.want_lists();
        self.settle()
    }

    /// While [`Manager::is_down`] is true, tries to connect to a chip and to write the whole configuration to it; returns true if
    /// a chip works. To be called about once a second.
    ///
    /// # Errors
    /// See [`Manager::settle`].
    pub fn revive(&mut self) -> Result<bool, OutOfLine> {
        if !self.down {
            return Ok(true);
        }
        if !self.reconnect() {
            return Ok(false);
        }
        self.down = false;
        self.suspect = true;
        let wanted = |prefix: &Prefix| self.policies.of(object_of(prefix.1)) != Policy::Bypass;
        let come: Vec<Prefix> = self.covers.hidden().keys().filter(wanted).collect();
        come.into_iter().for_each(|prefix| self.covers.program(prefix));
        self.want_lists();
        self.settle()?;
        Ok(!self.down)
    }

    /// Connects anew; returns false if no chip answers. A restarted chip may hash with another salt.
    pub(super) fn reconnect(&mut self) -> bool {
        if self.hardware.reconnect().is_err() {
            return false;
        }
        self.figures = None;
        self.activity = None;
        self.under_way.clear();
        self.strategy.restarted(self.hardware.welcome().salt);
        true
    }

    /// Gives up a chip that does not answer: hides all routes, so that the software plane forwards everything.
    pub(super) fn give_up(&mut self) {
        self.down = true;
        self.suspect = false;
        self.waiting.clear();
        self.figures = None;
        self.activity = None;
        self.under_way.clear();
        self.adopt(&[]);
        let programmed: Vec<Prefix> = self.covers.programmed().collect();
        programmed.into_iter().for_each(|prefix| self.covers.hide(prefix));
        self.diverted.clear();
    }
}
