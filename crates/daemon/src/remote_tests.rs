//! Logins and sessions on remote terminals, with a kernel and a plane in memory. The wait after a wrong secret takes real time, so
//! these tests give wrong secrets to `verify`, which does not wait.

use super::*;
use crate::testing::{Bench, config, messages};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

const ANN: &str = "hostname sw1\nusername ann privilege 7 secret tiger\nusername eve privilege 15\n";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn switch(bench: &Bench, text: &str) -> Shared {
    let mut core = bench.core();
    core.take(config(text)).expect("taken");
    let core = Rc::new(RefCell::new(core));
    Shared { core, changed: Rc::default(), detached: Rc::new(Notify::new()) }
}

fn remote(host: &str) -> Origin {
    Origin { line: LineName::Vty(0), protocol: Protocol::Ssh, host: host.into() }
}

fn console() -> Origin {
    Origin { line: LineName::Console(0), protocol: Protocol::Serial, host: "ttyS0".into() }
}

/// The result of a login, and the log messages about it.
fn logged_in(shared: &Shared, login: impl AsyncFnOnce() -> Verified) -> (String, Vec<String>) {
    let before = messages(&shared.core.borrow().ctx).len();
    let result = match block_on(login()) {
        Verified::User(user) => format!("level {}", user.level),
        other => format!("{other:?}"),
    };
    (result, messages(&shared.core.borrow().ctx).split_off(before))
}

#[test]
fn the_methods_of_aaa_decide_about_a_login_and_its_level() {
    let success = "LOGIN_SUCCESS: Login Success [user: ann] [Source: 192.0.2.1] [line: vty]";
    let failure = "LOGIN_FAILED: Login failed [user: ann] [Source: 192.0.2.1] [line: vty]";
    let unverified = "UNAVAILABLE: login group tacacs+: no tacacs server has an address and a key";
    let unauthorized = "UNAVAILABLE: exec group tacacs+: no tacacs server has an address and a key";
    let denied = "NOT_AUTHORIZED: user ann from 192.0.2.1 may not have a session";
    let exec = "aaa authorization exec default group tacacs+";
    for (lines, given, result, log) in [
        ("", "tiger", "level 7", &[success][..]),
        ("", "lion", "Rejected", &[failure]),
        // No server can be asked: the next method decides.
        ("aaa authentication login default group tacacs+ local", "tiger", "level 7", &[unverified, success]),
        ("aaa authentication login default group tacacs+", "tiger", "Rejected", &[unverified, failure]),
        // The first method that has the user decides.
        ("aaa authentication login default local group tacacs+", "lion", "Rejected", &[failure]),
        ("aaa authorization exec default local", "tiger", "level 7", &[success]),
        (exec, "tiger", "NotAuthorized", &[success, unauthorized, denied]),
        (&format!("{exec} if-authenticated"), "tiger", "level 7", &[success, unauthorized]),
        (exec, "lion", "Rejected", &[failure]),
    ] {
        let shared = switch(&Bench::new(), &format!("{ANN}{lines}"));
        let origin = remote("192.0.2.1");
        let login = async || verify(&shared, &origin, "ann", given.to_owned()).await;
        let (found, logged) = logged_in(&shared, login);
        assert_eq!(found, result, "{lines}: {given}");
        assert_eq!(logged, log, "{lines}: {given}");
    }
    // Without `aaa authorization console`, a server that cannot be asked locks nobody out of the console.
    for (lines, result) in [("", "level 7"), ("\naaa authorization console", "NotAuthorized")] {
        let shared = switch(&Bench::new(), &format!("{ANN}{exec}{lines}"));
        let login = async || verify(&shared, &console(), "ann", "tiger".into()).await;
        assert_eq!(logged_in(&shared, login).0, result, "{lines}");
    }
    // Users that are not configured, and users without a secret.
    let shared = switch(&Bench::new(), ANN);
    for name in ["nobody", "eve"] {
        let login = async || verify(&shared, &console(), name, String::new()).await;
        assert_eq!(logged_in(&shared, login).0, "Rejected", "{name}");
    }
}

#[test]
fn a_public_key_is_that_of_its_user_only() {
    let keys = format!(
        "ip ssh pubkey-chain\n username eve\n  key-string {KEY}\n username guest\n  key-string {KEY}"
    );
    let shared = switch(&Bench::new(), &format!("{ANN}{keys}"));
    let key = PublicKey::parse(KEY).expect("a key");
    let other = PublicKey { data: key.data.replace("OMqq", "OMqr"), ..key.clone() };
    for (name, key, result) in [
        ("eve", Some(&key), "level 15"),
        ("eve", Some(&other), "Rejected"),
        ("eve", None, "Rejected"),
        ("ann", Some(&key), "Rejected"),
        // This user has a key, but there is no `username` of this name.
        ("guest", Some(&key), "Rejected"),
    ] {
        assert_eq!(key.is_some_and(|key| has_key(&shared, name, key)), result != "Rejected", "{name}");
        let origin = remote("192.0.2.1");
        let (found, logged) = logged_in(&shared, async || verify_key(&shared, &origin, name, key).await);
        assert_eq!((found.as_str(), logged.len()), (result, 1), "{name} {key:?}");
        let mnemonic = if result == "Rejected" { "LOGIN_FAILED" } else { "LOGIN_SUCCESS" };
        assert!(logged[0].starts_with(mnemonic), "{logged:?}");
    }
}

#[test]
fn failed_logins_block_their_host_for_a_minute() {
    let bench = Bench::new();
    let shared = switch(&bench, ANN);
    let fail = |host: &str, name: &str| {
        logged_in(&shared, async || verify_key(&shared, &remote(host), name, None).await).1
    };
    for _ in 1..lanyard_access::throttle::TRIES {
        assert_eq!(fail("192.0.2.1", "ann").len(), 1);
    }
    assert_eq!(blocked_s(&shared, &remote("192.0.2.1")), None);
    let long = "x".repeat(lanyard_config::access::MAX_NAME);
    let of = format!("[user: {long}] [Source: 192.0.2.1] [line: vty]");
    // The log shows no more of a name than a user's name may have.
    let want = [
        format!("LOGIN_FAILED: Login failed {of}"),
        format!("QUIET_MODE_ON: too many failed logins: blocked {of}"),
    ];
    assert_eq!(fail("192.0.2.1", &format!("{long}yz")), want);
    for (now_ms, left_s) in [(0, Some(60)), (1, Some(60)), (59_999, Some(1)), (60_000, None)] {
        bench.clock.set(now_ms);
        assert_eq!(blocked_s(&shared, &remote("192.0.2.1")), left_s, "{now_ms}");
        assert_eq!(blocked_s(&shared, &remote("192.0.2.2")), None, "another host");
    }
    // A login that succeeds ends the count.
    let login = async || verify(&shared, &remote("192.0.2.2"), "ann", "tiger".into()).await;
    for _ in 1..lanyard_access::throttle::TRIES {
        fail("192.0.2.2", "ann");
    }
    assert_eq!(logged_in(&shared, login).0, "level 7");
    fail("192.0.2.2", "ann");
    assert_eq!(blocked_s(&shared, &remote("192.0.2.2")), None);
}

/// Serves a console whose user types `input`; returns the output, to the end of the connection.
fn typed(shared: &Shared, input: &[u8]) -> String {
    block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(input).await.expect("sent");
        let (reader, writer) = tokio::io::split(server);
        let serving = serve(Box::new(reader), Box::new(writer), console(), shared.clone());
        let serving = tokio::task::spawn_local(serving);
        let mut text = String::new();
        // The limit turns a session that does not end into a failure.
        let reading = tokio::time::timeout(LOGIN_TIME, client.read_to_string(&mut text));
        reading.await.expect("an end").expect("answered");
        serving.await.expect("served");
        text
    })
}

/// A session: lines of the configuration, the input, texts that the output contains in this order, and texts that it does not
/// contain.
type Case<'a> = (&'a str, &'a [u8], &'a [&'a str], &'a [&'a str]);

#[test]
fn a_console_from_its_banners_to_the_end_of_the_session() {
    let banners = "banner motd #Morning#\nbanner login #Authorised only#\nbanner exec #Take care#\n";
    let ann = format!("{ANN}{banners}");
    let root = "hostname sw1\nusername ann privilege 15 secret tiger\n";
    let cases: [Case<'_>; 6] = [
        (
            &ann,
            b"ann\rtiger\rshow privilege\rshow users\rexit\r",
            &[
                "Morning\r\nAuthorised only\r\n",
                "User Access Verification\r\n",
                "Username: ann\r\nPassword: \r\n",
                "Take care\r\n",
                "sw1#",
                "privilege level is 7",
                "con 0",
                "ann",
                "ttyS0",
            ],
            &["tiger", "closed"],
        ),
        (
            "hostname sw1",
            b"",
            &["% No users are configured: configure username on the switch itself, with lanyard cli\r\n"],
            &["Username"],
        ),
        (
            "hostname sw1\nline console 0\n no login",
            b"show privilege\rexit\r",
            &["sw1>", "level is 1\r\n"],
            &["Username"],
        ),
        // A user gives up: nothing is verified.
        (&ann, b"\x03ann\r\x04\x1a", &["Username: ^C", "Password: ", "Username: ^Z"], &["Login", "sw1"]),
        (
            &format!("{root}aaa authorization exec default group tacacs+\naaa authorization console"),
            b"ann\rtiger\r",
            &["Password: \r\n% Authorization failed.\r\n"],
            &["sw1"],
        ),
        (
            root,
            b"ann\rtiger\rclear line console 0\r",
            &["sw1#", "% The session is closed: the line was cleared\r\n"],
            &[],
        ),
    ];
    for (text, input, wanted, unwanted) in cases {
        let output = typed(&switch(&Bench::new(), text), input);
        let mut rest = output.as_str();
        for piece in wanted {
            let found = rest.split_once(piece);
            assert!(found.is_some(), "{piece:?} is missing or in the wrong order: {output}");
            rest = found.map_or("", |(_, behind)| behind);
        }
        assert!(!unwanted.iter().any(|piece| output.contains(piece)), "{unwanted:?}: {output}");
    }
    // A host that is blocked is not asked for a name.
    let shared = switch(&Bench::new(), &ann);
    let now_ms = shared.core.borrow().ctx.clock.now_ms();
    while !shared.core.borrow_mut().throttle.failed(now_ms, "ttyS0") {}
    let output = typed(&shared, b"");
    assert!(output.ends_with("% Too many failed logins from ttyS0: wait 60 seconds\r\n"), "{output}");
}

/// Prints ten lines to a terminal with pages of `length` lines while the user types `keys`; returns the number of lines that
/// appeared, and whether the user has ended the output.
fn paged(length: usize, keys: &[u8]) -> (usize, bool) {
    block_on(async {
        let (mut client, server) = tokio::io::duplex(4096);
        client.write_all(keys).await.expect("sent");
        // A page more than expected would wait for a key that never comes.
        client.shutdown().await.expect("closed");
        let (reader, writer) = tokio::io::split(server);
        let opened = Terminal::open(Box::new(reader), Box::new(writer), false).await;
        let mut terminal = opened.expect("open");
        let mut pager = Pager { length, printed: 0, quits: false, idle_s: 0 };
        let text: String = (0..10).map(|number| format!("line {number}\n")).collect();
        // Pieces of an answer end anywhere.
        for piece in text.as_bytes().chunks(11) {
            let piece = std::str::from_utf8(piece).expect("ASCII");
            assert!(pager.print(&mut terminal, piece).await.is_ok(), "{keys:?}");
            if pager.quits {
                break;
            }
        }
        let quits = pager.quits;
        drop(terminal);
        let mut shown = String::new();
        client.read_to_string(&mut shown).await.expect("read");
        // The prompt of a page is wiped out again.
        let lines = shown.replace(" --More-- \r         \r", "").replace('\r', "");
        assert!(text.starts_with(&lines) && lines.ends_with('\n'), "{keys:?}: {lines}");
        (lines.matches('\n').count(), quits)
    })
}

#[test]
fn pages_wait_for_the_keys_of_ios() {
    for (length, keys, lines, quits) in [
        (5, &b"q"[..], 4, true),
        (5, b" q", 8, true),
        (5, b"\rq", 5, true),
        (5, b"\n\n\nq", 7, true),
        (5, b"  ", 10, false),
        (5, b" \r q", 10, false),
        (5, b"\x03", 4, true),
        // Pages of one line would have no room for text.
        (1, b"", 10, false),
        (0, b"", 10, false),
        (24, b"", 10, false),
    ] {
        assert_eq!(paged(length, keys), (lines, quits), "{length} {keys:?}");
    }
}
