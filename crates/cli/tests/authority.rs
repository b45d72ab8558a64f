//! Which session may enter which command, by privilege level, command and way in; and the levels that `enable` gives.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Fake;
use lanyard_cli::backend::Configuration;
use lanyard_cli::{Login, Outcome, Session, apply_text, text};
use lanyard_config::Config;

/// `privilege` lines that give commands other levels than the declared ones.
const PRIVILEGES: &str = "privilege exec level 5 clear counters\n\
    privilege exec level 7 configure terminal\n\
    privilege exec level 7 show running-config\n\
    privilege exec level 10 show version\n\
    privilege configure level 7 interface\n\
    privilege interface level 7 shutdown\n\
    privilege interface level 7 description\n";

fn switch(config: &str) -> Fake {
    let (config, errors) = apply_text(config, &Config::default());
    assert_eq!(errors, vec![]);
    Fake { config, ..Fake::new(&["eth0", "eth1"]) }
}

fn login(level: u8, limit: u8, line: &str, host: &str) -> Login {
    Login { line: line.into(), user: "ann".into(), host: host.into(), level, limit, ..Login::default() }
}

/// True when a new session may enter the last of `lines`. Panics if a line before it is refused.
fn may(fake: &mut Fake, login: &Login, lines: &[&str]) -> bool {
    let mut session = Session::new(login.clone());
    let (last, before) = lines.split_last().unwrap();
    for line in before {
        if let Outcome::Refused(text) = session.execute(line, fake) {
            panic!("{line} at level {}: {text}", login.level);
        }
    }
    !matches!(session.execute(last, fake), Outcome::Refused(_))
}

/// The ways in: the owner's socket, a group's socket, a network login, a console. A way in decides the level that a session
/// begins with and the highest it may reach, and nothing else.
fn ways(level: u8) -> Vec<Login> {
    vec![
        login(level, 15, "vty 0", "local"),
        login(level, level, "vty 1", "local"),
        login(level, 15, "vty 2", "192.0.2.1"),
        login(level, 15, "con 0", "console"),
    ]
}

/// Each command, and the lowest level that may enter it: as declared, and with [`PRIVILEGES`].
const EXEC: &[(&str, u8, u8)] = &[
    ("exit", 0, 0),
    ("disable 0", 0, 0),
    ("show clock", 1, 1),
    ("show vlan", 1, 1),
    ("show version", 1, 10),
    ("sh ver", 1, 10),
    ("show version | json", 1, 10),
    ("show privilege", 1, 1),
    ("terminal length 0", 1, 1),
    ("monitor events link", 1, 1),
    ("clear counters", 15, 5),
    ("clear counters eth0", 15, 5),
    ("clear mac address-table dynamic", 15, 15),
    ("clear logging", 15, 15),
    ("configure terminal", 15, 7),
    ("configure", 15, 15),
    ("configure session s", 15, 15),
    ("configure replace startup-config", 15, 15),
    ("show running-config", 15, 7),
    ("show startup-config", 15, 15),
    ("show archive log config all", 15, 15),
    ("write memory", 15, 15),
    ("copy running-config startup-config", 15, 15),
    ("erase startup-config", 15, 15),
    ("reload cancel", 15, 15),
    ("brctl show", 15, 15),
    ("monitor capture interface eth0", 15, 15),
];

#[test]
fn exec_commands_by_level_and_way_in() {
    let base = "interface eth0\n switchport\n";
    let changed = format!("{base}{PRIVILEGES}");
    let mut checked = 0;
    for level in 0..=15 {
        for login in ways(level) {
            for (command, declared, with_lines) in EXEC {
                for (config, needed) in [(base, declared), (changed.as_str(), with_lines)] {
                    let mut fake = switch(config);
                    fake.startup = "hostname sw1\n".into();
                    fake.reload.in_s = Some(60);
                    let allowed = may(&mut fake, &login, &[command]);
                    assert_eq!(allowed, level >= *needed, "{command} at level {level} on {}", login.line);
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 16 * 4 * EXEC.len() * 2);
}

#[test]
fn configuration_commands_by_level() {
    for (lines, needed) in [
        (&["configure terminal", "end"][..], 7),
        (&["configure terminal", "exit"], 7),
        (&["configure terminal", "do show clock"], 7),
        (&["configure terminal", "interface eth0"], 7),
        (&["configure terminal", "interface eth0", "shutdown"], 7),
        (&["configure terminal", "interface eth0", "no shutdown"], 7),
        (&["configure terminal", "interface eth0", "description text"], 7),
        (&["configure terminal", "interface eth0", "no description"], 7),
        (&["configure terminal", "interface eth0", "switchport access vlan 10"], 15),
        (&["configure terminal", "interface eth0", "default shutdown"], 7),
        (&["configure terminal", "interface eth0", "hostname sw2"], 15),
        (&["configure terminal", "hostname sw2"], 15),
        (&["configure terminal", "no hostname"], 15),
        (&["configure terminal", "vlan 10"], 15),
        (&["configure terminal", "username eve privilege 15 secret tiger"], 15),
        (&["configure terminal", "enable secret tiger"], 15),
        (&["configure terminal", "privilege exec level 0 configure"], 15),
        (&["configure terminal", "do write memory"], 15),
    ] {
        for level in 7..=15 {
            for login in ways(level) {
                let mut fake = switch(&format!("interface eth0\n switchport\n{PRIVILEGES}"));
                let before = fake.config.clone();
                let allowed = may(&mut fake, &login, lines);
                assert_eq!(allowed, level >= needed, "{lines:?} at level {level} on {}", login.line);
                assert!(allowed || fake.config == before, "{lines:?} at level {level}");
            }
        }
    }
}

/// A session does not see the commands that it may not enter: in `?` and at TAB.
#[test]
fn help_and_completion_list_only_permitted_commands() {
    let fake = switch(PRIVILEGES);
    let shown = |level, line: &str| {
        let session = Session::new(login(level, 15, "vty 0", "local"));
        (session.help(line, &fake).join("\n"), session.complete(line, &fake).candidates.join(" "))
    };
    assert!(!shown(1, "").0.contains("configure"));
    assert!(shown(7, "").0.contains("configure"), "it leads to configure terminal");
    let (help, words) = shown(7, "configure ");
    assert!(help.contains("terminal") && !help.contains("session") && !help.contains("<cr>"), "{help}");
    assert_eq!(words, "terminal");
    assert_eq!(shown(15, "configure ").1, "confirm replace session terminal");
    assert_eq!(shown(5, "clear ").1, "counters");
    assert_eq!(shown(0, "").1, "disable enable exit logout quit");
}

#[test]
fn enable_needs_the_secret_of_the_level() {
    let hash = "$9$2MJBozw/9R3UsU$2lFhcKvpghcyw8deP25GOfyZaagyUOGBymkryvOdfo6";
    let mut fake = switch(&format!("enable secret 9 {hash}\nenable secret level 7 9 {hash}\n"));
    let mut run = |login: &Login, lines: &[&str]| {
        let mut session = Session::new(login.clone());
        let mut outcomes: Vec<Outcome> = lines.iter().map(|line| session.execute(line, &mut fake)).collect();
        (outcomes.pop().unwrap(), session.level())
    };
    let user = login(1, 15, "vty 0", "192.0.2.1");
    assert_eq!(run(&user, &["enable"]), (Outcome::Password(15), 1));
    assert_eq!(run(&user, &["enable 7"]), (Outcome::Password(7), 1));
    assert_eq!(run(&user, &["enable 0"]), (Outcome::Text(String::new()), 0));
    let (outcome, level) = run(&user, &["enable 8"]);
    assert!(matches!(outcome, Outcome::Refused(text) if text.contains("No password set")));
    assert_eq!(level, 1);
    // A session whose login gave it level 15 returns to this level without a secret.
    let root = login(15, 15, "vty 0", "local");
    assert_eq!(run(&root, &["disable", "enable"]), (Outcome::Text(String::new()), 15));
    assert_eq!(run(&root, &["disable"]).1, 1);
    let (outcome, level) = run(&root, &["disable 3", "disable 7"]);
    assert!(matches!(outcome, Outcome::Refused(_)) && level == 3);
    // `enable` cannot raise the level of a session on the socket of a read-only group.
    let (outcome, _) = run(&login(1, 1, "vty 0", "local"), &["enable"]);
    assert!(matches!(outcome, Outcome::Refused(text) if text.contains("at most level 1")));
    let mut session = Session::new(user);
    session.raise(7);
    assert_eq!((session.level(), session.prompt(&fake)), (7, "Lanyard#".into()));
}

/// Secrets are hashed before they are in any configuration, and are in no log.
#[test]
fn secrets_are_hashed_and_not_logged() {
    let mut fake = switch("");
    let mut session = common::session();
    for line in [
        "configure terminal",
        "username ann privilege 7 secret tiger one",
        "username bob password 7 094F471A1A0A",
        "enable algorithm-type sha256 secret level 3 tiger",
        "end",
        "configure session s",
        "enable secret 0 tiger",
        "hostname sw2",
    ] {
        let outcome = session.execute(line, &mut fake);
        assert!(matches!(outcome, Outcome::Text(_)), "{line}: {outcome:?}");
    }
    let Outcome::Text(diff) = session.execute("show diff", &mut fake) else { panic!("no difference") };
    assert!(diff.contains("+enable secret 9 $9$"), "{diff}");
    // A change by another session makes the switch apply the recorded lines of the configuration session once more.
    let mut other = common::session();
    other.execute("configure terminal", &mut fake);
    other.execute("vlan 20", &mut fake);
    assert!(matches!(session.execute("commit", &mut fake), Outcome::Text(_)));
    let printed = text::render(fake.running());
    for wanted in [
        "username ann privilege 7 secret 9 $9$",
        "username bob secret 9 $9$",
        "enable secret level 3 8 $8$",
        "enable secret 9 $9$",
        "hostname sw2",
        "vlan 20",
    ] {
        assert!(printed.contains(wanted), "{wanted} in {printed}");
    }
    let everything = format!("{printed}{diff}{:?}{:?}", fake.audited, fake.log);
    for secret in ["tiger", "cisco", "094F471A1A0A"] {
        assert!(!everything.contains(secret), "{secret} in {everything}");
    }
    assert!(fake.audited.contains(&"root vty 0 local: username ann privilege 7 secret *****".to_owned()));
    assert!(fake.audited.contains(&"root vty 0 local: !exec: configure session s".to_owned()));
}

#[test]
fn invalid_secrets_and_passwords_are_refused_with_a_reason() {
    for (line, reason) in [
        ("enable secret 5 tiger", "not a hash of type 5"),
        (
            "enable secret 8 $9$2MJBozw/9R3UsU$2lFhcKvpghcyw8deP25GOfyZaagyUOGBymkryvOdfo6",
            "not a hash of type 8",
        ),
        ("enable secret 9 two words", "begins like a type of secret"),
        ("enable secret 7 094F471A1A0A", "begins like a type of secret"),
        ("enable secret level", "begins like a level"),
        ("enable secret level 7", "begins like a level"),
        ("enable secret level 16 tiger", "begins like a level"),
        ("enable secret lev 0 tiger", "begins like a level"),
        ("enable secret level 7 level 8 tiger", "begins like a level"),
        ("enable password level 7 tiger", "begins like a level"),
        ("enable algorithm-type sha256 secret level 7", "begins like a level"),
        ("username ann password 7 09", "not a password of type 7"),
        ("privilege exec level 5 nonsense", "not a keyword"),
    ] {
        let (config, errors) = apply_text(line, &Config::default());
        assert_eq!(config, Config::default(), "{line}");
        assert!(errors.iter().any(|error| error.reason.contains(reason)), "{line}: {errors:?}");
    }
}
