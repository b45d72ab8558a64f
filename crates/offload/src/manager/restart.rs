//! Restarts: of the manager under a chip that forwards on (warm boot), and of the chip under the manager.
//!
//! Invariant: until a warm boot ends nothing in the chip changes, so what it forwarded it forwards on; then only the difference between
//! what it holds and the configuration is written.

use super::{Manager, OutOfLine, Policy, object_of};
use crate::hardware::{Failure, Hardware, entries};
use crate::prefixes::Prefix;
use crate::strategy::Strategy;
use lanyard_asic::sdk::message::Event;

impl<H: Hardware + 'static> Manager<H> {
    /// A manager of a chip that may hold another manager's entries. Requests are taken into the configuration and nothing is
    /// written until [`Manager::end_warm_boot`].
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
        // The chip's events of learned addresses in the meantime are lost.
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

    /// Decides by another strategy from now on.
    ///
    /// # Errors
    /// When the chip does not answer; the strategy is as it was.
    pub fn set_strategy(&mut self, strategy: Box<dyn Strategy>) -> Result<(), Failure> {
        self.drain();
        let found = entries(&mut self.hardware)?;
        self.strategy = strategy;
        // It knows the platform's sizes only.
        self.sizes.iter().for_each(|(path, units)| self.strategy.resized(path, *units));
        if !found.is_empty() {
            self.strategy.resync(&found);
            // The new strategy has not received the chip's events of learned addresses.
            self.strategy.received(&Event::Lost(1));
        }
        Ok(())
    }

    /// The configuration is complete: writes what the chip lacks, and removes entries that were not configured. A route that does not fit is
    /// hidden, whatever the policy, because it was accepted: [`Manager::place`] shows it.
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

    /// After [`Manager::is_down`]: tries whether a chip answers again, and gives it everything. Answers whether one does. Call it
    /// every second or so.
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

    /// Connects anew; false when no chip answers. A chip that was started again may hash by another salt.
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

    /// No chip answers: everything is the software plane's.
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
