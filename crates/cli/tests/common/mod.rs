//! A backend that consists of a configuration and fixed views, for tests of sessions.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod aggregation;
pub mod machine;
mod neighbours;
mod routing;
mod security;
mod services;
mod switching;

use lanyard_cli::backend::{Access, Configuration, Entered, Files, Refusal, ReloadTime, SafeChange};
use lanyard_cli::sessions::ConfigSessions;
use lanyard_cli::{Login, Session, view};
use lanyard_config::Config;
use lanyard_types::MacAddr;
use std::collections::BTreeMap;

/// The fake backend.
#[derive(Default)]
pub struct Fake {
    pub config: Config,
    pub netdevs: Vec<String>,
    pub startup: String,
    pub files: BTreeMap<String, String>,
    pub sessions: ConfigSessions,
    pub rollback: Option<(Config, u64)>,
    /// The texts of the checkpoints 1, 2...
    pub checkpoints: Vec<String>,
    /// True while the session has the lock of the configuration.
    pub is_locked: bool,
    pub reload: view::ScheduledReload,
    pub log: Vec<String>,
    pub cleared: Vec<String>,
    /// The commands of the audit log, each as `USER LINE HOST: COMMAND`.
    pub audited: Vec<String>,
    /// A commit is refused if the text of its configuration contains this.
    pub refuses: Option<String>,
}

impl Fake {
    pub fn new(netdevs: &[&str]) -> Self {
        Self { netdevs: netdevs.iter().map(|n| (*n).to_owned()).collect(), ..Self::default() }
    }
}

/// A fixed, irregular sequence of choices.
pub fn picks(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |choices| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 16).unwrap_or(0) % choices.max(1)
    }
}

/// A privileged session without echo.
pub fn session() -> Session {
    Session::new(Login { line: "vty 0".into(), user: "root".into(), ..Login::default() })
}

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

impl Configuration for Fake {
    fn running(&self) -> &Config {
        &self.config
    }
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal> {
        if let Some(text) =
            self.refuses.as_ref().filter(|text| lanyard_cli::text::render(&candidate).contains(*text))
        {
            return Err(format!("the fake refuses {text}").into());
        }
        self.config = candidate;
        Ok(())
    }
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal> {
        let before = self.config.clone();
        self.commit(candidate)?;
        let back = self.rollback.take().map_or(before, |(config, _)| config);
        self.rollback = Some((back, u64::from(minutes) * 60));
        Ok(())
    }
    fn confirm(&mut self) -> bool {
        self.rollback.take().is_some()
    }
    fn rollback_in_s(&self) -> Option<u64> {
        self.rollback.as_ref().map(|(_, seconds)| *seconds)
    }
    fn config_sessions(&mut self) -> &mut ConfigSessions {
        &mut self.sessions
    }
}

impl SafeChange for Fake {
    fn archive(&mut self) -> Result<view::Archive, Refusal> {
        let checkpoint = |number| view::Checkpoint {
            number,
            time: format!("2026-01-31T12:00:0{number}.000Z"),
            user: "root".into(),
        };
        let checkpoints = (1..=self.checkpoints.len() as u32).map(checkpoint).collect();
        Ok(view::Archive { checkpoints, capacity: 50, directory: "/var/lib/lanyard/default/archive".into() })
    }
    fn save_checkpoint(&mut self, _user: &str) -> Result<u32, Refusal> {
        let text = lanyard_cli::text::render(&self.config);
        if self.checkpoints.last() != Some(&text) {
            self.checkpoints.push(text);
        }
        Ok(self.checkpoints.len() as u32)
    }
    fn checkpoint(&mut self, number: u32) -> Result<String, Refusal> {
        let text = self.checkpoints.get(number as usize - 1).cloned();
        text.ok_or_else(|| format!("there is no checkpoint {number}: see show archive").into())
    }
    fn lock_configuration(&mut self) -> Result<(), Refusal> {
        self.is_locked = true;
        Ok(())
    }
    fn unlock_configuration(&mut self) {
        self.is_locked = false;
    }
    fn clear_configuration_lock(&mut self) -> bool {
        std::mem::take(&mut self.is_locked)
    }
    fn configuration_lock(&self) -> view::ConfigurationLock {
        if !self.is_locked {
            return view::ConfigurationLock::default();
        }
        let (line, user) = (Some("vty 0".into()), Some("root".into()));
        view::ConfigurationLock { locked: true, line, user, since_s: Some(61) }
    }
    fn reload(&mut self, _user: &str) -> Result<usize, Refusal> {
        let (config, refused) = lanyard_cli::apply_text(&self.startup, &Config::default());
        self.config = config;
        Ok(refused.len())
    }
    fn schedule_reload(&mut self, at: ReloadTime, user: &str, reason: Option<String>) -> Result<(), Refusal> {
        let in_s = match at {
            ReloadTime::InMinutes(minutes) => u64::from(minutes) * 60,
            ReloadTime::At { hour, minute } => u64::from(hour) * 3600 + u64::from(minute) * 60,
        };
        self.reload = view::ScheduledReload { in_s: Some(in_s), user: Some(user.into()), reason };
        Ok(())
    }
    fn cancel_reload(&mut self) -> bool {
        std::mem::take(&mut self.reload).in_s.is_some()
    }
    fn scheduled_reload(&self) -> view::ScheduledReload {
        self.reload.clone()
    }
}

impl Files for Fake {
    fn load_startup(&mut self) -> Result<String, Refusal> {
        Ok(self.startup.clone())
    }
    fn save_startup(&mut self, text: &str) -> Result<(), Refusal> {
        self.startup = text.to_owned();
        Ok(())
    }
    fn read_file(&mut self, path: &str) -> Result<String, Refusal> {
        self.files.get(path).cloned().ok_or_else(|| format!("{path}: no such file").into())
    }
    fn write_file(&mut self, path: &str, text: &str) -> Result<(), Refusal> {
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }
}

impl Access for Fake {
    /// Replaces each secret by a text that depends on its algorithm only.
    fn hash_secrets(&mut self, config: &mut Config) -> Result<(), Refusal> {
        config.access.hash(|algorithm, _| {
            let (salt, hash) = ("a".repeat(14), "b".repeat(43));
            Ok::<_, Refusal>(format!("${}${salt}${hash}", algorithm.number()))
        })
    }
    fn audit(&mut self, entered: Entered<'_>) {
        let Entered { user, line, host, command } = entered;
        self.audited.push(format!("{user} {line} {host}: {command}"));
    }
    fn clear_line(&mut self, name: &str) -> bool {
        self.cleared.push(name.to_owned());
        name != "vty 7"
    }
    fn audit_log(&mut self) -> view::AuditLog {
        let entry = |text: &String| view::AuditEntry {
            time: "2026-01-01T00:00:00Z".into(),
            user: "root".into(),
            line: "vty 0".into(),
            host: "local".into(),
            command: text.split_once(": ").map_or(String::new(), |(_, command)| command.to_owned()),
        };
        view::AuditLog { commands: self.audited.iter().map(entry).collect(), capacity: 1000, overwritten: 0 }
    }
}
