//! Sessions: the effects of a refusal, several sessions at once, the caret of interactive sessions, settings.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::mode::Mode;
use lanyard_cli::{Login, Outcome, Session, Terminal};

/// Runs `lines`; all but the last must be accepted. Returns the outcome of the last.
fn run(session: &mut Session, fake: &mut Fake, lines: &[&str]) -> Outcome {
    let (last, before) = lines.split_last().unwrap();
    for line in before {
        let outcome = session.execute(line, fake);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{line}: {outcome:?}");
    }
    session.execute(last, fake)
}

#[test]
fn a_refused_commit_changes_nothing() {
    let mut fake = Fake { refuses: Some("mtu 9216".into()), ..Fake::new(&["eth0", "eth1"]) };
    let mut session = session();
    run(&mut session, &mut fake, &["conf t", "interface range eth0 - 1", "switchport"]);
    let (config, mode) = (fake.config.clone(), session.mode().clone());
    let outcome = run(&mut session, &mut fake, &["mtu 9216"]);
    assert_eq!(outcome, Outcome::Refused("% the fake refuses mtu 9216\n".into()));
    assert_eq!((&fake.config, session.mode()), (&config, &mode));
    // A configuration session whose commit is refused stays, so that the user can correct it.
    run(&mut session, &mut fake, &["end", "configure session s", "interface eth0", "mtu 9216", "commit"]);
    assert_eq!(fake.config, config);
    assert!(matches!(session.mode(), Mode::Config { session: Some(_), .. }));
    assert_eq!(run(&mut session, &mut fake, &["mtu 9000", "commit"]), Outcome::Text(String::new()));
    assert!(lanyard_cli::text::render(&fake.config).contains("mtu 9000"));
    assert_eq!(fake.log.len(), 2);
}

#[test]
fn a_commit_applies_a_session_to_the_running_configuration() {
    let mut fake = Fake::new(&["eth0", "eth1"]);
    let (mut one, mut two) = (session(), session());
    run(
        &mut one,
        &mut fake,
        &["configure session s", "interface range eth0 - 1", "switchport access vlan 10", "end"],
    );
    run(&mut two, &mut fake, &["configure terminal", "hostname other", "vlan 20", "end"]);
    run(&mut two, &mut fake, &["configure session s", "vlan 10", "name users", "commit"]);
    let text = lanyard_cli::text::render(&fake.config);
    for wanted in
        ["hostname other", "vlan 20", "vlan 10\n name users", "interface eth1\n switchport access vlan 10"]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
fn a_session_that_no_longer_fits_is_refused() {
    let mut fake = Fake::new(&["eth0"]);
    let (mut one, mut two) = (session(), session());
    run(&mut one, &mut fake, &["configure session s", "interface vlan 10", "ip address 10.0.0.1/24"]);
    run(&mut two, &mut fake, &["configure terminal", "interface vlan 20", "ip address 10.0.0.2/24"]);
    let Outcome::Refused(text) = run(&mut one, &mut fake, &["commit"]) else { panic!("taken") };
    assert!(
        text.starts_with(
            "% the running configuration has changed, and session s can no longer be applied to it"
        ),
        "{text}"
    );
    assert!(!lanyard_cli::text::render(&fake.config).contains("10.0.0.1"));
    assert_eq!(run(&mut one, &mut fake, &["abort"]), Outcome::Text(String::new()));
    assert_eq!(*one.mode(), Mode::Privileged);
}

#[test]
fn sessions_are_bounded() {
    let (mut fake, mut session) = (Fake::default(), session());
    let most = lanyard_cli::sessions::MAX_SESSIONS;
    for n in 0..most - 1 {
        run(&mut session, &mut fake, &[&format!("configure session s{n}"), "hostname other", "end"]);
    }
    // A session without lines makes room for another.
    for name in ["empty", "more"] {
        let opened = run(&mut session, &mut fake, &[&format!("configure session {name}"), "end"]);
        assert_eq!(opened, Outcome::Text(String::new()), "{name}");
    }
    assert!(
        !fake.sessions.contains("empty") && fake.sessions.contains("more") && fake.sessions.contains("s0")
    );
    run(&mut session, &mut fake, &["configure session more", "hostname other", "end"]);
    let Outcome::Refused(_) = run(&mut session, &mut fake, &["configure session last"]) else {
        panic!("taken")
    };
}

#[test]
fn the_caret_is_printed_under_the_refused_word() {
    let mut fake = Fake::default();
    let login = Login { line: "vty 1".into(), user: "root".into(), interactive: true, ..Login::default() };
    let mut session = Session::new(login);
    let Outcome::Refused(text) = session.execute("show \u{e9}vln", &mut fake) else { panic!("taken") };
    // `Lanyard#show évln`
    let way_out = "% Enter ? in place of \u{e9}vln to list the words that fit.\n";
    assert_eq!(text, format!("{}^\n% Invalid input detected at '^' marker.\n{way_out}", " ".repeat(13)));
    let Outcome::Text(text) = session.execute("configure terminal", &mut fake) else { panic!("refused") };
    assert_eq!(text, "Enter configuration commands, one per line.  End with CNTL/Z.\n");
}

/// Entered one by one without indentation, a refused line that protects the network changes nothing, because the user
/// reads the answer. In a pasted text, indented or not, it leaves the interface shut down.
#[test]
fn a_pasted_interface_without_its_protection_is_left_shut_down() {
    for (pasted, line, down) in [
        (false, "access-session port-control auto", false),
        (false, " access-session port-control auto", true),
        (true, "access-session port-control auto", true),
    ] {
        let (mut fake, mut session) = (Fake::new(&["eth0"]), session());
        session.set_pasted(pasted);
        run(&mut session, &mut fake, &["configure terminal", "interface eth0", "switchport mode trunk"]);
        let Outcome::Refused(text) = session.execute(line, &mut fake) else { panic!("taken") };
        assert_eq!(text.contains("is left shut down"), down, "{text}");
        session.execute(if line.starts_with(' ') { " no shutdown" } else { "no shutdown" }, &mut fake);
        let eth0 = &fake.config.interfaces[&lanyard_config::InterfaceName::Netdev("eth0".into())];
        assert_eq!(eth0.shutdown, down, "pasted {pasted}: {line}");
    }
}

/// Pasted lines for an interface that does not exist are not run, and shut no other interface down.
#[test]
fn pasted_lines_of_an_absent_interface_run_nowhere() {
    let (mut fake, mut session) = (Fake::new(&["eth0"]), session());
    session.set_pasted(true);
    run(&mut session, &mut fake, &["configure terminal", "interface eth0", "switchport mode trunk"]);
    let before = fake.config.clone();
    for line in ["interface lo/7", "switchport mode access", "access-session port-control auto", "shutdown"] {
        let Outcome::Refused(_) = session.execute(line, &mut fake) else { panic!("taken: {line}") };
    }
    assert_eq!(fake.config, before);
}

#[test]
fn banners_are_shown_when_a_terminal_connects() {
    let (mut fake, mut session) = (Fake::default(), session());
    run(
        &mut session,
        &mut fake,
        &[
            "configure terminal",
            "banner exec #run#",
            "banner motd #",
            "of the day",
            "#",
            "banner login #log in#",
        ],
    );
    let interactive =
        Login { line: "vty 1".into(), user: "root".into(), interactive: true, ..Login::default() };
    assert_eq!(Session::new(interactive).greeting(&fake), "\nof the day\nlog in\nrun\n");
    assert_eq!(session.greeting(&fake), "", "a program is shown none");
}

#[test]
fn settings() {
    let (mut fake, mut session) = (Fake::default(), session());
    run(&mut session, &mut fake, &["terminal length 0", "terminal width 132", "terminal monitor"]);
    assert_eq!(session.terminal(), Terminal { length: 0, width: 132, monitor: true });
    run(&mut session, &mut fake, &["terminal no monitor"]);
    assert!(!session.terminal().monitor);
    assert_eq!(
        run(&mut session, &mut fake, &["conf t", "vlan 7", "end", "end", ""]),
        Outcome::Text(String::new())
    );
    assert_eq!(session.prompt(&fake), "Lanyard#");
    assert_eq!(fake.log, ["Configured from vty 0 by root"]);
    assert_eq!(run(&mut session, &mut fake, &["disable", "exit"]), Outcome::Close);
    assert_eq!(session.prompt(&fake), "Lanyard>");
}

#[test]
fn commit_confirmed_waits_in_the_session() {
    let mut fake = Fake::new(&["eth0"]);
    let mut session = session();
    run(&mut session, &mut fake, &["configure session s", "vlan 10", "commit confirmed 1"]);
    assert_eq!(fake.rollback.as_ref().map(|(_, seconds)| *seconds), Some(60));
    run(&mut session, &mut fake, &["commit confirmed 2"]);
    let (back, seconds) = fake.rollback.clone().unwrap();
    assert_eq!((back.vlans.len(), seconds), (1, 120));
    for command in ["write memory", "write", "copy running-config startup-config"] {
        let Outcome::Refused(text) = run(&mut session, &mut fake, &[&format!("do {command}")]) else {
            panic!("{command} saved what may be rolled back")
        };
        assert!(text.starts_with("% the running configuration awaits confirmation"), "{text}");
        assert_eq!(fake.startup, "", "{command}");
    }
    run(&mut session, &mut fake, &["commit"]);
    assert!(fake.rollback.is_none());
    run(&mut session, &mut fake, &["write memory"]);
    assert!(fake.startup.contains("vlan 10"), "{}", fake.startup);
    assert_eq!(fake.config.vlans.len(), 2);
    assert_eq!(*session.mode(), Mode::Privileged);
}

/// The words that handlers query with `Args::has`, which must be optional: a line that leads to the mode (empty for exec mode), a
/// line that ends with the word and its values, and the number of words at its end without which it is still a valid line. A
/// choice between several words uses `Args::among` instead.
const OPTIONAL: &[(&str, &str, usize)] = &[
    ("", "show spanning-tree mst configuration digest", 1),
    ("", "show ip route vrf red", 2),
    ("", "configure replace good.cfg list", 1),
    ("interface eth0", "vrrp 1 ip 10.0.0.2 secondary", 1),
    ("interface eth0", "ipv6 nd prefix 2001:db8::/64 86400 86400 no-advertise", 1),
    ("interface eth0", "ipv6 nd prefix 2001:db8::/64 86400 86400 off-link", 1),
    ("interface eth0", "ipv6 nd prefix 2001:db8::/64 86400 86400 no-autoconfig", 1),
    ("hostname sw1", "ip route 192.0.2.0 255.255.255.0 10.0.0.9 name up", 2),
    ("hostname sw1", "ip route 192.0.2.0 255.255.255.0 10.0.0.9 permanent", 1),
    ("", "show dot1x all", 1),
    ("", "show authentication sessions details", 1),
    ("hostname sw1", "username ann secret tiger", 2),
    ("hostname sw1", "username ann password tiger", 2),
    ("hostname sw1", "ntp server 192.0.2.1 iburst", 1),
    ("hostname sw1", "ntp server 192.0.2.1 prefer", 1),
];

#[test]
fn keywords_that_a_handler_tests_are_optional() {
    let mut asked = std::collections::BTreeSet::new();
    let commands = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands");
    for file in std::fs::read_dir(commands).unwrap().flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap();
        for (at, _) in text.match_indices(".has(") {
            let word = text[at..].strip_prefix(".has(\"").and_then(|rest| rest.split('"').next());
            asked.insert(word.unwrap_or_else(|| panic!("{file:?}: a word that is not literal")).to_owned());
        }
    }
    for (lead, line, less) in OPTIONAL {
        let words: Vec<&str> = line.split(' ').collect();
        let (shorter, rest) = words.split_at(words.len() - less);
        asked.remove(rest[0]);
        for line in [*line, &shorter.join(" ")] {
            let mut fake = Fake::new(&["eth0"]);
            let mut session = session();
            fake.files.insert("good.cfg".into(), "vlan 30\n".into());
            let ready = ["configure terminal", "vrf definition red", "interface eth0", "no switchport"];
            let addresses = ["ip address 10.0.0.1 255.255.255.0", "vrrp 1 ip 10.0.0.3"];
            run(&mut session, &mut fake, &[&ready[..], &addresses].concat());
            let before: &[&str] = if lead.is_empty() { &["end"] } else { &[lead] };
            let outcome = run(&mut session, &mut fake, &[before, &[line]].concat());
            assert!(!matches!(outcome, Outcome::Refused(_)), "{line}: {outcome:?}");
        }
    }
    assert!(asked.is_empty(), "no line shows that {asked:?} may be left out");
}

#[test]
fn a_session_that_ends_in_a_configuration_mode_leaves_it() {
    let (mut fake, mut session) = (Fake::new(&["eth0"]), session());
    run(&mut session, &mut fake, &["configure terminal", "hostname sw2"]);
    fake.log.clear();
    session.close(&mut fake);
    assert_eq!(fake.checkpoints.len(), 1);
    assert!(fake.checkpoints[0].contains("hostname sw2"), "{:?}", fake.checkpoints);
    assert!(fake.log.iter().any(|line| line.contains("Configured from vty 0 by root")), "{:?}", fake.log);
    session.close(&mut fake);
    run(&mut session, &mut fake, &["configure terminal"]);
    session.close(&mut fake);
    assert_eq!(fake.checkpoints.len(), 1, "a second end, and a session without a change");
}
