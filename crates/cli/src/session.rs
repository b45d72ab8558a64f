//! A command-line session: its mode, its history, and the processing of a line.
//!
//! Invariant: a line is accepted or refused as a whole. Every [`Outcome::Refused`] has a line that starts with `%`, and
//! then neither the configuration nor the mode has changed, with two exceptions: a refused line that leads to a mode
//! leads to global configuration mode instead, so that the following lines run in no other mode; and a refused line of
//! a pasted text that protects the network leaves the interface shut down.

use crate::apply::{apply_text, is_safety, run_parsed};
use crate::args::{Args, Form, Names, short};
use crate::backend::{Backend, Entered};
use crate::commands::{self, banner::Capture, shared::leave_configuration};
use crate::edit::ConfigNames;
use crate::exec::{Exec, Login, State};
use crate::help::{Completion, Helper, incomplete};
use crate::line::{Failure, Word, words};
use crate::mode::{ConfigMode, Mode};
use crate::outcome::{Outcome, Terminal, lines};
use crate::parse::{Parsed, Reader};
use crate::pipe::{self, Pipe};
use crate::privilege::Authority;
use crate::refusal::Refusal;
use crate::section::{RefusedSection, Under, indent};
use crate::text;
use crate::tree::{Node, Run};
use crate::unsupported::{Place, explain, leads_to_mode};
use lanyard_config::{Banner, Config};

/// One session. Any number of sessions share one [`Backend`].
#[derive(Debug, Clone)]
pub struct Session {
    state: State,
    /// True while the lines belong to a text that was pasted or read from a file.
    is_pasted: bool,
    /// A banner whose text is being entered.
    banner: Option<Capture>,
    /// The section of a refused line that leads to a mode; the lines of the section are refused as well.
    section: Option<RefusedSection>,
    /// True after a refused line that protects the network has shut down the mode's interfaces, until the mode changes. Meanwhile
    /// `no shutdown` in a pasted or indented line is refused.
    is_held: bool,
}

/// The names of a switch's netdevs, and the priorities of `root primary`.
struct Known<'a>(&'a dyn Backend);

impl Names for Known<'_> {
    fn is_netdev(&self, name: &str) -> bool {
        ConfigNames(self.0.running()).is_netdev(name) || self.0.netdev_names().iter().any(|n| n == name)
    }
    fn netdev_of(&self, name: &str) -> Option<String> {
        self.0.running().appliance.netdev_of(name)
    }
    fn netdevs(&self) -> Vec<String> {
        let mut names = self.0.netdev_names();
        names.extend(ConfigNames(self.0.running()).netdevs());
        names.sort_by_key(|name| lanyard_config::InterfaceName::Netdev(name.clone()));
        names.dedup();
        names
    }
    fn netdev_refusal(&self, name: &str) -> Option<&'static str> {
        self.0.netdev_refusal(name)
    }
    fn root_primary(&self, tree: crate::view::TreeKey) -> Option<u16> {
        self.0.root_primary_priority(tree)
    }
}

impl Session {
    /// Returns a session in privileged exec mode.
    #[must_use]
    pub fn new(login: Login) -> Self {
        Self { state: State::new(login), is_pasted: false, banner: None, section: None, is_held: false }
    }

    /// The session's terminal settings.
    #[must_use]
    pub fn terminal(&self) -> Terminal {
        self.state.terminal
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        &self.state.mode
    }

    /// The user of the session.
    #[must_use]
    pub fn login(&self) -> &Login {
        &self.state.login
    }

    /// The text at the beginning of a session on a terminal: the banners motd, login and exec, in this order, as in
    /// IOS. Programs get none.
    #[must_use]
    pub fn greeting(&self, backend: &dyn Backend) -> String {
        let banners = &backend.running().banners;
        let shown = [Banner::Motd, Banner::Login, Banner::Exec].iter().filter_map(|which| banners.get(which));
        let line = |text: &String| format!("{}\n", text.strip_suffix('\n').unwrap_or(text));
        if self.state.login.interactive { shown.map(line).collect() } else { String::new() }
    }

    /// The privilege level, 0..=15.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.state.level
    }

    /// Raises the privilege level after [`Outcome::Password`], because the user has entered the level's secret.
    pub fn raise(&mut self, level: u8) {
        self.state.set_level(level);
    }

    /// Sets whether the following lines belong to a pasted text. Its sender does not read the answer to one line before
    /// it sends the next, so a refused line that protects the network leaves an interface shut down, whether or not the
    /// line is indented.
    pub fn set_pasted(&mut self, is_pasted: bool) {
        self.is_pasted = is_pasted;
    }

    fn is_text(&self, line: &str) -> bool {
        self.is_pasted || indent(line) > 0
    }

    /// The prompt, without a trailing blank.
    #[must_use]
    pub fn prompt(&self, backend: &dyn Backend) -> String {
        // The lines of a banner are text, for which IOS prints no prompt.
        if self.banner.is_some() {
            String::new()
        } else {
            self.state.mode.prompt(&backend.running().hostname)
        }
    }

    /// Parses and runs one line.
    pub fn execute(&mut self, line: &str, backend: &mut dyn Backend) -> Outcome {
        let line = line.trim_end_matches(['\r', '\n']);
        if let Some(mut banner) = self.banner.take() {
            if banner.feed(line) {
                return self.finish_banner(&banner, backend);
            }
            self.banner = Some(banner);
            return Outcome::Text(String::new());
        }
        let words = match words(line) {
            Ok(words) => words,
            Err(failure) => return self.refuse(line, &failure, backend),
        };
        if let Some(outcome) = self.under_refused(line, &words, &*backend) {
            return outcome;
        }
        let Some(first) = words.first() else { return Outcome::Text(String::new()) };
        // Ctrl-Z is sent as `end`, which has no effect in exec mode.
        let is_idle =
            first.text.starts_with('!') || (self.in_exec() && line.trim().eq_ignore_ascii_case("end"));
        if is_idle {
            return Outcome::Text(String::new());
        }
        self.remember(line);
        if line.ends_with('?') && !self.is_in_text(line, &*backend) {
            return Outcome::Text(lines(&self.help(line.strip_suffix('?').unwrap_or(line), &*backend)));
        }
        match self.run(line, &words, backend) {
            Ok(outcome) => outcome,
            Err(failure) => self.after_refusal(line, &words, failure, backend),
        }
    }

    /// The outcome of a line in the section of a refused line; `None` for a line that is to be run.
    fn under_refused(&mut self, line: &str, words: &[Word<'_>], backend: &dyn Backend) -> Option<Outcome> {
        if self.in_exec() {
            self.section = None;
        }
        let first = words.first()?.text;
        let leaves = ["end", "exit"].contains(&first.to_ascii_lowercase().as_str());
        // Exec commands such as `show diff` and `commit` are still carried out.
        let upto = pipe::position(words, self.in_exec()).unwrap_or(words.len());
        let parsed =
            self.reader(line, &words[..upto], &Known(backend)).parse(&commands::root(&self.state.mode));
        let is_exec = !leaves && parsed.is_ok_and(|parsed| matches!(parsed.run, Run::Exec(_)));
        // An exec command that is refused belongs to no section, either: it is refused for its own reason.
        let is_do = first.eq_ignore_ascii_case("do");
        let section = self.section.as_mut()?;
        if line.ends_with('?') || is_exec || is_do {
            return None;
        }
        match section.takes(line, words) {
            Under::Inside if first.starts_with('!') => Some(Outcome::Text(String::new())),
            Under::Inside => {
                let head = short(&section.line);
                let text = format!(
                    "% Not applied: it stands under \"{head}\", which was refused; enter exit to leave that section"
                );
                Some(Outcome::Refused(lines(&[text])))
            }
            Under::Ends => {
                self.section = None;
                Some(Outcome::Text(String::new()))
            }
            Under::Behind => {
                self.section = None;
                None
            }
        }
    }

    /// Processes a refused line. If it leads to a mode, the session is then in global configuration mode, and the lines
    /// under it are refused, too. If it protects the network in a pasted text, the mode's interfaces are shut down.
    fn after_refusal(
        &mut self,
        line: &str,
        words: &[Word<'_>],
        failure: Failure,
        backend: &mut dyn Backend,
    ) -> Outcome {
        let place = match &self.state.mode {
            Mode::User | Mode::Privileged => Place::Exec,
            Mode::Config { at, .. } => Place::of(at),
        };
        // In an exec mode a configuration command may begin with the name of an exec command that Lanyard lacks. Only a whole
        // keyword counts: `u all` is `undebug all`, and no abbreviated `username`.
        let is_keyword =
            |node: &Node| words.first().is_some_and(|word| node.label().eq_ignore_ascii_case(word.text));
        let is_configuration = place == Place::Exec
            && commands::TREES.global.iter().any(is_keyword)
            && commands::head_of(&self.reader(line, words, &Known(&*backend)), true)
                == Some("configure terminal");
        let failure = if is_configuration { failure } else { explain(failure, words, place) };
        let outcome = self.refuse(line, &failure, backend);
        if place == Place::Exec {
            return outcome;
        }
        if leads_to_mode(words) {
            self.section = Some(RefusedSection::of(line));
            if let Mode::Config { at, .. } = &mut self.state.mode {
                *at = std::mem::replace(at, ConfigMode::Global).behind_refused(words);
            }
            return outcome;
        }
        match outcome {
            Outcome::Refused(text) if place == Place::Interface && is_safety(words) && self.is_text(line) => {
                Outcome::Refused(text + &lines(&[self.hold(backend)]))
            }
            other => other,
        }
    }

    /// Shuts the mode's interfaces down because a line that protects the network was refused; returns a message that says so.
    fn hold(&mut self, backend: &mut dyn Backend) -> String {
        self.is_held = true;
        let shut = words("shutdown").and_then(|words| self.run("shutdown", &words, backend));
        match shut {
            Ok(_) => {
                "% The interface is left shut down, because the refused line protects the network: enter no \
                      shutdown to open it without that line"
                    .into()
            }
            Err(failure) => format!("% The interface can't be shut down: {}", failure.message()),
        }
    }

    /// Configures a banner whose text is complete.
    fn finish_banner(&mut self, banner: &Capture, backend: &mut dyn Backend) -> Outcome {
        let result = words(&banner.first).and_then(|words| {
            let mut parsed = {
                let known = Known(&*backend);
                self.reader(&banner.first, &words, &known).parse(&commands::root(&self.state.mode))?
            };
            banner.complete(&mut parsed);
            self.configure(&banner.lines(), &words, &parsed, backend)
        });
        result.unwrap_or_else(|failure| self.refuse(&banner.first, &failure, backend))
    }

    fn remember(&mut self, line: &str) {
        if self.state.history_size == 0 {
            return;
        }
        while self.state.history.len() >= self.state.history_size {
            self.state.history.pop_front();
        }
        self.state.history.push_back(line.trim().to_owned());
    }

    fn run(&mut self, line: &str, words: &[Word<'_>], backend: &mut dyn Backend) -> Result<Outcome, Failure> {
        let at_pipe = pipe::position(words, self.in_exec());
        let (command, pipe) = match at_pipe {
            Some(at) => {
                let Some(bar) = words.get(at) else { return Err(Failure::Incomplete(line.len())) };
                (&words[..at], Pipe::parse(line, bar.at)?)
            }
            None => (words, Pipe::default()),
        };
        let upto = at_pipe.and_then(|at| words.get(at)).map_or(line.len(), |bar| bar.at);
        let command_text = line.get(..upto).unwrap_or(line);
        let parsed = {
            let known = Known(&*backend);
            self.reader(command_text, command, &known).parse(&commands::root(&self.state.mode))?
        };
        let at = command.first().map_or(0, |word| word.at);
        if let Some(banner) = Capture::begin(line, &parsed) {
            let hint = format!("Enter TEXT message.  End with the character '{}'.\n", banner.delimiter());
            self.banner = Some(banner);
            return Ok(Outcome::Text(if self.state.login.interactive { hint } else { String::new() }));
        }
        let refused = |refusal: Refusal| Failure::Reason(at, refusal.0);
        match parsed.run {
            Run::Exec(handler) => {
                let outcome = handler(
                    &mut Exec { session: &mut self.state, backend, pipe: &pipe, apply: apply_text, execute },
                    &parsed.args,
                )
                .map_err(refused)?;
                if CHANGING.contains(&parsed.args.words.first().copied().unwrap_or_default()) {
                    self.audit(&format!("!exec: {}", command_text.trim()), backend);
                }
                match outcome {
                    Outcome::Text(text) => Ok(Outcome::Text(pipe.filter(text))),
                    Outcome::Listing(listing) => Ok(Outcome::Listing(listing.filtered(&pipe))),
                    other => Ok(other),
                }
            }
            Run::Edit(_) | Run::Set(_) => self.configure(line, command, &parsed, backend),
        }
    }

    /// Runs a configuration command on a copy, and commits the copy or stores it in the configuration
    /// session.
    fn configure(
        &mut self,
        line: &str,
        words: &[Word<'_>],
        parsed: &Parsed,
        backend: &mut dyn Backend,
    ) -> Result<Outcome, Failure> {
        let at = words.first().map_or(0, |word| word.at);
        let refused = |refusal: Refusal| Failure::Reason(at, refusal.0);
        let Mode::Config { at: mode, session } = self.state.mode.clone() else {
            return Err(Failure::Invalid(at));
        };
        let opens = parsed.args.form != Form::Set && parsed.args.words.first() == Some(&"shutdown");
        if self.is_held && opens && self.is_text(line) {
            return Err(Failure::Reason(
                at,
                "The interface stays shut down: a line that protects the network was refused".into(),
            ));
        }
        let mut next = mode.clone();
        let is_last = parsed.tree + 1 == commands::root(&self.state.mode).len();
        let (mut candidate, base) = match &session {
            Some(name) => {
                let running = backend.running().clone();
                let candidate =
                    backend.config_sessions().candidate(name, &running, apply_text).map_err(refused)?;
                (candidate.clone(), Some((running, candidate)))
            }
            None => (backend.running().clone(), None),
        };
        let notices = {
            let known = Known(&*backend);
            run_parsed(words, parsed, &mut candidate, &mut next, Some(&known))?
        };
        let has_plain = candidate.access.has_plain();
        if has_plain {
            backend.hash_secrets(&mut candidate).map_err(refused)?;
        }
        match (&session, base) {
            (Some(name), Some((running, before))) if candidate != before => {
                let from = if is_last { ConfigMode::Global } else { mode.clone() };
                let lines = if has_plain { hashed_lines(&before, &candidate) } else { recorded(&from, line) };
                backend.config_sessions().record(name, lines, &running, candidate).map_err(refused)?;
            }
            (None, _) if candidate != *backend.running() => {
                backend.commit(candidate).map_err(refused)?;
                self.state.changed = true;
            }
            _ => {}
        }
        self.audit(&without_secret(line.trim(), &parsed.args), backend);
        self.is_held &= next == mode;
        self.state.mode = Mode::Config { at: next, session };
        Ok(Outcome::Text(lines(&notices)))
    }

    /// Adds a command to the audit log.
    fn audit(&self, command: &str, backend: &mut dyn Backend) {
        let Login { user, line, host, .. } = &self.state.login;
        backend.audit(Entered { user, line, host, command });
    }

    /// Ends the session, whose connection has ended. Configuration modes are left as `end` leaves them, so that a change is logged
    /// and gets a checkpoint.
    pub fn close(&mut self, backend: &mut dyn Backend) {
        if !self.in_exec() {
            let pipe = Pipe::default();
            leave_configuration(&mut Exec {
                session: &mut self.state,
                backend,
                pipe: &pipe,
                apply: apply_text,
                execute,
            });
        }
    }

    fn in_exec(&self) -> bool {
        matches!(self.state.mode, Mode::User | Mode::Privileged)
    }

    fn reader<'a>(&self, line: &'a str, words: &'a [Word<'a>], names: &'a Known<'a>) -> Reader<'a> {
        Reader { line, words, names, authority: self.authority(names.0), exec: commands::TREES.exec }
    }

    fn authority<'a>(&self, backend: &'a dyn Backend) -> Authority<'a> {
        let privileges = &backend.running().access.privileges;
        Authority { level: self.state.level, privileges, mode_of: commands::mode_of }
    }

    /// An error in IOS's form: a caret under the position, and the message.
    fn refuse(&self, line: &str, failure: &Failure, backend: &dyn Backend) -> Outcome {
        let message = match failure {
            Failure::Incomplete(_) => self.incomplete(line, backend),
            _ => failure.message(),
        };
        let Failure::Invalid(at) = failure else { return Outcome::Refused(lines(&[message])) };
        let column = line.get(..*at).map_or(0, |before| before.chars().count());
        let mut answer = if self.state.login.interactive {
            let column = column + self.prompt(backend).chars().count();
            vec![format!("{}^", " ".repeat(column)), message]
        } else {
            let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
            vec![message, format!("  {shown}"), format!("  {}^", " ".repeat(column))]
        };
        answer.extend(self.way_out(line, *at, backend));
        Outcome::Refused(lines(&answer))
    }

    /// A hint about a line that is invalid at offset `at`: the command that is missing before it, or the words that are valid
    /// there. `None` if neither can be determined.
    fn way_out(&self, line: &str, at: usize, backend: &dyn Backend) -> Option<String> {
        let (before, rest) = line.split_at_checked(at)?;
        let known = Known(backend);
        let words = words(line).ok()?;
        if self.in_exec() && words.first()?.text.eq_ignore_ascii_case("do") {
            return Some("% Enter the command without do: this is an exec mode.".into());
        }
        if let Some(head) = commands::head_of(&self.reader(line, &words, &known), self.in_exec()) {
            return Some(format!("% Enter {head} before this command."));
        }
        self.helper(&known).instead(before, rest.split_whitespace().next()?)
    }

    /// The message about a line that ends too early, with the words that may follow.
    fn incomplete(&self, line: &str, backend: &dyn Backend) -> String {
        format!("% {}", incomplete(&self.helper(&Known(backend)).next_words(line)))
    }

    /// True when the end of the line is within free text, where `?` is an ordinary character.
    fn is_in_text(&self, line: &str, backend: &dyn Backend) -> bool {
        self.helper(&Known(backend)).is_in_text(line)
    }

    /// The lines that `?` shows at the end of `line` (which does not contain the `?`).
    #[must_use]
    pub fn help(&self, line: &str, backend: &dyn Backend) -> Vec<String> {
        self.helper(&Known(backend)).help(line)
    }

    /// The completions of TAB at the end of `line`.
    #[must_use]
    pub fn complete(&self, line: &str, backend: &dyn Backend) -> Completion {
        self.helper(&Known(backend)).complete(line)
    }

    fn helper<'a>(&self, names: &'a Known<'a>) -> Helper<'a> {
        Helper {
            root: commands::root(&self.state.mode),
            names,
            authority: self.authority(names.0),
            is_exec: self.in_exec(),
            list: self.state.mode.list_kind(),
        }
    }
}

/// Runs a line in a new session of `login`.
fn execute(login: &Login, line: &str, backend: &mut dyn Backend) -> Outcome {
    Session::new(login.clone()).execute(line, backend)
}

/// The first words of the exec commands that go into the audit log: those that change the switch or its files.
const CHANGING: &[&str] = &[
    "abort",
    "archive",
    "brctl",
    "clear",
    "commit",
    "configure",
    "copy",
    "enable",
    "erase",
    "reload",
    "rollback",
    "write",
];

/// A configuration line for the audit log: its secret, or its key, is replaced by `*****`, as by IOS's `hidekeys`.
fn without_secret(line: &str, args: &Args) -> String {
    let is_hidden = ["secret", "password", "key"].iter().any(|word| args.has(word));
    let text = args.texts().pop().filter(|_| is_hidden);
    match text.and_then(|text| line.rfind(&text)) {
        Some(at) => format!("{}*****", &line[..at]),
        None => line.to_owned(),
    }
}

/// The lines with hashed secrets that `after` has and `before` has not. A configuration session records these in place of a
/// line with a secret in plain text.
fn hashed_lines(before: &Config, after: &Config) -> Vec<String> {
    let (old, new) = (text::sections(before).concat(), text::sections(after).concat());
    let is_secret = |line: &String| line.starts_with("username ") || line.starts_with("enable ");
    std::iter::once("end".to_owned())
        .chain(new.into_iter().filter(|line| is_secret(line) && !old.contains(line)))
        .collect()
}

/// The lines that, entered in global configuration mode, have the same effect as `line` has in `mode`.
fn recorded(mode: &ConfigMode, line: &str) -> Vec<String> {
    let line = line.trim();
    let single = |name: &lanyard_config::InterfaceName| ConfigMode::Interface {
        names: vec![name.clone()],
        range: false,
    };
    if let ConfigMode::SshKeys(Some(user)) = mode {
        return ["ip ssh pubkey-chain", &format!(" username {user}"), &format!("  {line}")]
            .map(str::to_owned)
            .to_vec();
    }
    if let ConfigMode::PolicyClass(policy, class) | ConfigMode::Policer(policy, class) = mode {
        return vec![format!("policy-map {policy}"), format!(" class {class}"), format!("  {line}")];
    }
    if let ConfigMode::ErspanSourceDestination(number) = mode {
        let head = format!("monitor session {number} type erspan-source");
        return vec![head, " destination".to_owned(), format!("  {line}")];
    }
    if let ConfigMode::ErspanDestinationSource(number) = mode {
        let head = format!("monitor session {number} type erspan-destination");
        return vec![head, " source".to_owned(), format!("  {line}")];
    }
    let entries: Vec<String> = match mode {
        ConfigMode::Interface { names, .. } => names.iter().filter_map(|name| single(name).entry()).collect(),
        other => other.entry().into_iter().collect(),
    };
    if entries.is_empty() {
        return vec!["end".into(), line.to_owned()];
    }
    entries.into_iter().flat_map(|entry| [entry, format!(" {line}")]).collect()
}
