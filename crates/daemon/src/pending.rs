//! Pending events apart from confirmations: the lock of the configuration, and a scheduled reload.
//!
//! [`crate::safe_change`] sets and ends both.

/// The session that alone may change the configuration.
#[derive(Debug)]
pub(crate) struct ConfigurationLock {
    /// The number of its line.
    pub(crate) line: crate::users::LineName,
    /// When it was locked, on the daemon's clock.
    pub(crate) since_ms: u64,
}

/// A reload that takes place later.
#[derive(Debug)]
pub(crate) struct Reload {
    /// When, on the daemon's clock.
    pub(crate) at_ms: u64,
    pub(crate) user: String,
    pub(crate) reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use crate::core::Core;
    use crate::testing::{Bench, config, messages};
    use crate::users::LineName;
    use lanyard_cli::backend::{Configuration, Files, ReloadTime, SafeChange};

    /// A switch with a startup-config that names it `saved`, the running hostname `changed`, and a session of ann on vty 0.
    fn switch() -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        core.save_startup("hostname saved\n").expect("written");
        core.commit(config("hostname changed")).expect("taken");
        core.users.add_vty("ann", "local", 0).expect("a line");
        core.users.current = Some(LineName::Vty(0));
        (bench, core)
    }

    /// The hostname and the seconds until the reload after the clock has advanced to `now_ms`.
    fn at(bench: &Bench, core: &mut Core, now_ms: u64) -> (String, Option<u64>) {
        bench.clock.set(now_ms);
        core.users.current = None;
        core.tick();
        (core.running().hostname.clone(), core.scheduled_reload().in_s)
    }

    #[test]
    fn a_lock_shows_its_session_and_its_age_and_a_restart_ends_it() {
        let (bench, mut core) = switch();
        for now_ms in [5_000, 64_999] {
            bench.clock.set(now_ms);
            core.lock_configuration().expect("its own lock, whose age stays");
        }
        let shown = core.configuration_lock();
        assert_eq!(
            (shown.locked, shown.line.as_deref(), shown.user.as_deref(), shown.since_s),
            (true, Some("vty 0"), Some("ann"), Some(59))
        );
        drop(core);
        assert!(!bench.core().configuration_lock().locked);
    }

    #[test]
    fn a_later_reload_replaces_an_earlier_one_and_a_restart_cancels_it() {
        let (bench, mut core) = switch();
        core.schedule_reload(ReloadTime::InMinutes(10), "ann", Some("first".into())).expect("scheduled");
        core.schedule_reload(ReloadTime::InMinutes(20), "bob", None).expect("scheduled");
        let shown = core.scheduled_reload();
        assert_eq!((shown.user.as_deref(), shown.reason), (Some("bob"), None));
        assert_eq!(at(&bench, &mut core, 600_000), ("changed".into(), Some(600)));
        drop(core);
        let mut core = bench.core();
        core.take(config("hostname changed")).expect("taken");
        assert_eq!(at(&bench, &mut core, 1_200_000), ("changed".into(), None));
    }

    #[test]
    fn a_lock_does_not_stop_a_scheduled_reload_and_a_failed_one_is_not_repeated() {
        let (bench, mut core) = switch();
        core.lock_configuration().expect("locked");
        core.schedule_reload(ReloadTime::InMinutes(1), "bob", None).expect("scheduled");
        assert_eq!(at(&bench, &mut core, 60_000), ("saved".into(), None));
        assert!(core.configuration_lock().locked, "the session keeps the lock");
        core.schedule_reload(ReloadTime::InMinutes(1), "bob", None).expect("scheduled");
        let file = bench.paths().startup_config();
        std::fs::remove_file(&file).expect("removed");
        for now_ms in [120_000, 180_000] {
            assert_eq!(at(&bench, &mut core, now_ms), ("saved".into(), None));
        }
        let failed = format!(
            "RELOAD: the scheduled reload failed: there is no startup-config in {}: enter write memory first",
            file.display()
        );
        assert_eq!(messages(&core.ctx).into_iter().filter(|line| *line == failed).count(), 1);
    }
}
