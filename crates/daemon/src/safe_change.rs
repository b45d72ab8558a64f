//! Safe changes for the command line: checkpoints, the lock of the configuration, and the return to the startup-config.
//!
//! Invariant: a reload changes the running configuration as a start does, but the plane forwards on and sessions stay. The
//! configuration that it replaces is saved as a checkpoint first.

use crate::archive::CAPACITY;
use crate::clock::{until_time_of_day, wall_clock};
use crate::core::Core;
use crate::pending::{ConfigurationLock, Reload};
use crate::run;
use crate::startup;
use crate::users::LineName;
use lanyard_cli::backend::{Configuration, Files, MAX_CONFIG_BYTES, Refusal, ReloadTime, SafeChange};
use lanyard_cli::render::counted;
use lanyard_cli::{text, view};

impl SafeChange for Core {
    fn archive(&mut self) -> Result<view::Archive, Refusal> {
        let directory = self.archive.directory().display().to_string();
        let checkpoints = self.archive.list().map_err(|error| Refusal(format!("{directory}: {error}")))?;
        Ok(view::Archive { checkpoints, capacity: CAPACITY as u64, directory })
    }
    fn save_checkpoint(&mut self, user: &str) -> Result<u32, Refusal> {
        if let Some(seconds) = self.rollback_in_s() {
            return Err(format!(
                "the running configuration awaits confirmation and is rolled back in {seconds} seconds: enter configure \
                 confirm first"
            )
            .into());
        }
        let text = text::render(self.running());
        self.archive.save(&text, user, &wall_clock()).map_err(|error| {
            Refusal(format!("no checkpoint was saved in {}: {error}", self.archive.directory().display()))
        })
    }
    fn checkpoint(&mut self, number: u32) -> Result<String, Refusal> {
        let text = self.archive.text(number, MAX_CONFIG_BYTES);
        let text = text.map_err(|error| Refusal(format!("checkpoint {number}: {error}")))?;
        text.ok_or_else(|| format!("there is no checkpoint {number}: see show archive").into())
    }
    fn lock_configuration(&mut self) -> Result<(), Refusal> {
        self.check_lock()?;
        let Some(line) = self.users.current else {
            return Err("only a session can lock the configuration".into());
        };
        let since_ms = self.ctx.clock.now_ms();
        self.lock.get_or_insert(ConfigurationLock { line, since_ms });
        Ok(())
    }
    fn unlock_configuration(&mut self) {
        if let Some(line) = self.users.current {
            self.session_ended(line);
        }
    }
    fn clear_configuration_lock(&mut self) -> bool {
        self.lock.take().is_some()
    }
    fn configuration_lock(&self) -> view::ConfigurationLock {
        let Some(lock) = &self.lock else { return view::ConfigurationLock::default() };
        view::ConfigurationLock {
            locked: true,
            line: Some(lock.line.to_string()),
            user: self.users.name(lock.line).map(str::to_owned),
            since_s: Some(self.ctx.clock.now_ms().saturating_sub(lock.since_ms) / 1000),
        }
    }
    fn reload(&mut self, user: &str) -> Result<usize, Refusal> {
        self.check_lock()?;
        self.reload_now(user)
    }
    fn schedule_reload(&mut self, at: ReloadTime, user: &str, reason: Option<String>) -> Result<(), Refusal> {
        self.startup_text()?;
        let delay_ms = match at {
            ReloadTime::InMinutes(minutes) => u64::from(minutes) * 60_000,
            ReloadTime::At { hour, minute } => {
                let zone = self.running().appliance.timezone.as_ref();
                until_time_of_day(hour, minute, zone.map_or(0, |zone| zone.minutes))
            }
        };
        let at_ms = self.ctx.clock.now_ms() + delay_ms;
        self.reload = Some(Reload { at_ms, user: user.to_owned(), reason });
        let delay = counted(delay_ms.div_ceil(60_000), "minute");
        let text = format!("reload in {delay} requested by {user}");
        self.ctx.log("SYS", 5, "SCHEDULED_RELOAD", &text);
        Ok(())
    }
    fn cancel_reload(&mut self) -> bool {
        let was = self.reload.take().is_some();
        if was {
            self.ctx.log("SYS", 5, "SCHEDULED_RELOAD_CANCELLED", "the scheduled reload is cancelled");
        }
        was
    }
    fn scheduled_reload(&self) -> view::ScheduledReload {
        let Some(reload) = &self.reload else { return view::ScheduledReload::default() };
        view::ScheduledReload {
            in_s: Some(reload.at_ms.saturating_sub(self.ctx.clock.now_ms()).div_ceil(1000)),
            user: Some(reload.user.clone()),
            reason: reload.reason.clone(),
        }
    }
}

impl Core {
    /// Refuses a change by any session but the one that has locked the configuration.
    ///
    /// # Errors
    /// The name of the session with the lock.
    pub(crate) fn check_lock(&self) -> Result<(), Refusal> {
        match &self.lock {
            Some(lock) if self.users.current != Some(lock.line) => {
                let user = self.users.name(lock.line).unwrap_or("unknown");
                Err(format!(
                    "the configuration is locked by {user} on {}: wait until that session leaves configuration, or enter \
                     clear configuration lock",
                    lock.line
                )
                .into())
            }
            _ => Ok(()),
        }
    }
    /// Ends the lock of a session that has ended, or has left configuration.
    pub(crate) fn session_ended(&mut self, line: LineName) {
        self.lock.take_if(|lock| lock.line == line);
    }
    /// When [`Core::reload_if_due`] has something to do.
    pub(crate) fn reload_at_ms(&self) -> Option<u64> {
        self.reload.as_ref().map(|reload| reload.at_ms)
    }
    /// Carries out the scheduled reload when its time has come.
    pub(crate) fn reload_if_due(&mut self) {
        let now_ms = self.ctx.clock.now_ms();
        let Some(reload) = self.reload.take_if(|reload| reload.at_ms <= now_ms) else { return };
        if let Err(reason) = self.reload_now(&reload.user) {
            self.ctx.log("SYS", 2, "RELOAD", &format!("the scheduled reload failed: {reason}"));
        }
    }

    fn reload_now(&mut self, user: &str) -> Result<usize, Refusal> {
        let text = self.startup_text()?;
        // The reload replaces a change that awaits confirmation: cancel its rollback.
        self.confirmation.confirm();
        if let Err(reason) = self.save_checkpoint(user) {
            self.ctx.log("SYS", 3, "ARCHIVE", &reason.to_string());
        }
        let running = text::render(self.running());
        let refused = startup::load(&text, Some(&running), self);
        let file = self.startup_file.clone();
        run::report(self, &file, &refused);
        self.ctx.log(
            "SYS",
            5,
            "RELOAD",
            &format!("Reload requested by {user}: the startup-config is in force"),
        );
        if let Err(reason) = self.save_checkpoint(user) {
            self.ctx.log("SYS", 3, "ARCHIVE", &reason.to_string());
        }
        Ok(refused.len())
    }

    /// The startup-config. A switch that has none is not reloaded, because it would then have no port.
    fn startup_text(&mut self) -> Result<String, Refusal> {
        let text = self.load_startup()?;
        if text.is_empty() {
            return Err(format!(
                "there is no startup-config in {}: enter write memory first",
                self.startup_file.display()
            )
            .into());
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};

    /// Runs `work` as the session on this line.
    fn on<T>(core: &mut Core, line: usize, work: impl FnOnce(&mut Core) -> T) -> T {
        core.users.current = Some(LineName::Vty(line));
        let result = work(core);
        core.users.current = None;
        result
    }

    #[test]
    fn one_session_locks_the_configuration() {
        let mut core = Bench::new().core();
        for user in ["ann", "bob"] {
            core.users.add_vty(user, "local", 0).expect("a line");
        }
        on(&mut core, 0, |core| core.lock_configuration()).expect("locked");
        on(&mut core, 0, |core| core.lock_configuration()).expect("its own");
        let error = on(&mut core, 1, |core| core.lock_configuration()).expect_err("locked");
        assert!(error.to_string().contains("locked by ann on vty 0"), "{error}");
        assert!(on(&mut core, 1, |core| core.commit(config("hostname b"))).is_err());
        assert!(on(&mut core, 1, |core| core.commit_confirmed(config("hostname b"), 1)).is_err());
        assert!(core.commit(config("hostname c")).is_err(), "a program without a session");
        on(&mut core, 0, |core| core.commit(config("hostname a"))).expect("taken");
        on(&mut core, 1, |core| core.unlock_configuration());
        assert!(core.configuration_lock().locked, "another session's");
        core.session_ended(LineName::Vty(0));
        on(&mut core, 1, |core| core.commit(config("hostname b"))).expect("taken");
        assert!(!core.clear_configuration_lock());
    }

    #[test]
    fn a_reload_takes_the_startup_config_and_can_be_undone() {
        let bench = Bench::new();
        bench.kernel.add("eth1");
        let mut core = bench.core();
        let error = core.reload("ann").expect_err("nothing to load");
        assert!(error.to_string().contains("write memory"), "{error}");
        assert!(core.schedule_reload(ReloadTime::InMinutes(1), "ann", None).is_err());
        core.save_startup("hostname saved\nnonsense\ninterface eth1\n switchport\n").expect("written");
        core.commit(config("hostname changed")).expect("taken");
        assert_eq!(core.reload("ann"), Ok(1));
        assert_eq!(core.running().hostname, "saved");
        assert!(messages(&core.ctx).iter().any(|text| text.contains("1 line refused")));
        let checkpoints = SafeChange::archive(&mut core).expect("read").checkpoints;
        let first = checkpoints.first().expect("the configuration before").number;
        assert!(core.checkpoint(first).expect("read").contains("hostname changed"));
    }

    #[test]
    fn a_scheduled_reload_takes_place_once() {
        let bench = Bench::new();
        let mut core = bench.core();
        core.save_startup("hostname saved\n").expect("written");
        core.commit_confirmed(config("hostname changed"), 60).expect("taken");
        core.schedule_reload(ReloadTime::InMinutes(10), "ann", Some("test".into())).expect("scheduled");
        bench.clock.set(599_999);
        core.tick();
        assert_eq!((core.running().hostname.as_str(), core.scheduled_reload().in_s), ("changed", Some(1)));
        bench.clock.set(600_000);
        assert!(core.next_ms().is_some_and(|at_ms| at_ms <= 600_000));
        core.tick();
        assert_eq!((core.running().hostname.as_str(), core.scheduled_reload().in_s), ("saved", None));
        assert_eq!(core.rollback_in_s(), None, "the change that awaited confirmation is gone");
        core.schedule_reload(ReloadTime::At { hour: 0, minute: 0 }, "ann", None).expect("scheduled");
        assert!(core.scheduled_reload().in_s.is_some_and(|in_s| in_s <= 86_400));
        assert!(core.cancel_reload() && !core.cancel_reload());
    }

    #[test]
    fn a_confirmed_change_is_a_checkpoint_and_an_unconfirmed_one_is_none() {
        let mut core = Bench::new().core();
        core.users.add_vty("ann", "local", 0).expect("a line");
        core.commit_confirmed(config("hostname a"), 1).expect("taken");
        assert!(core.save_checkpoint("ann").is_err());
        assert!(on(&mut core, 0, |core| core.confirm()));
        let checkpoints = SafeChange::archive(&mut core).expect("read").checkpoints;
        assert_eq!(checkpoints.last().map(|checkpoint| checkpoint.user.as_str()), Some("ann"));
    }
}
