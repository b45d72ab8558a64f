//! Tests of the core and the control socket, with a plane and a kernel in memory.

mod deadlines;
mod refusals;

use crate::client::{Client, Piece};
use crate::clock::Clock;
use crate::connections::serve;
use crate::core::{Core, Parts};
use crate::log::Log;
use crate::paths::Paths;
use crate::protocol::{MAX_REQUEST, Reply, Request, line};
use crate::protocols::Protocols;
use crate::protocols::keeper::Keeper;
use crate::protocols::trees::Trees;
use crate::server::Shared;
use crate::testing::{Bench, FakeKernel};
use lanyard_cli::backend::Configuration;
use lanyard_cli::view::EventKind;
use lanyard_config::Config;
use lanyard_soft::SoftPlane;
use lanyard_switch::{Facts, Identity, Record, Switch};
use lanyard_types::MacAddr;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;
use tokio::net::UnixListener;
use tokio::sync::Notify;

fn core(directory: &Path) -> Core {
    let (plane, _) = SoftPlane::in_memory().expect("a plane");
    core_over(directory, Box::new(plane))
}

fn core_over(directory: &Path, mut plane: Box<dyn lanyard_plane::Plane>) -> Core {
    let identity = Identity { instance: "test".into(), base_mac: MacAddr([2, 0, 0, 0, 0, 0]) };
    let switch = Switch::new(identity, Facts::default(), plane.state(), Record::default());
    let paths = Paths::below(directory);
    std::fs::create_dir_all(&paths.run).expect("made");
    let clock = Clock::start();
    let protocols = Protocols::new(&mut *plane, clock.clone(), |_| Trees::new(Keeper::new(&paths), None));
    Core::new(Parts {
        switch,
        plane,
        protocols: protocols.expect("a descriptor"),
        kernel: Box::new(FakeKernel::default()),
        clock,
        startup_file: paths.startup_config(),
        paths,
        log: Log::new(true),
        plane_since: SystemTime::now(),
        following: crate::routing::Following::new().expect("a descriptor"),
    })
}

fn named(hostname: &str) -> Config {
    Config { hostname: hostname.into(), ..Config::default() }
}

#[test]
fn an_unconfirmed_commit_rolls_back() {
    let bench = Bench::new();
    let mut core = bench.core();
    core.commit(named("first")).expect("taken");
    core.commit_confirmed(named("second"), 5).expect("taken");
    core.commit_confirmed(named("third"), 1).expect("taken");
    assert_eq!(core.rollback_in_s(), Some(60));
    bench.clock.set(59_999);
    core.tick();
    assert_eq!(core.running().hostname, "third", "not due yet");
    bench.clock.set(60_000);
    assert!(core.next_ms().is_some_and(|at_ms| at_ms <= 60_000));
    core.tick();
    assert_eq!(core.running().hostname, "first", "what ran before the first of them");
    assert_eq!(core.rollback_in_s(), None);

    core.commit_confirmed(named("fourth"), 1).expect("taken");
    assert!(core.confirm());
    assert!(!core.confirm());
    bench.clock.set(200_000);
    core.tick();
    assert_eq!(core.running().hostname, "fourth");
}

#[test]
fn the_kept_configuration_is_the_confirmed_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut core = core(directory.path());
    let kept = |core: &Core| std::fs::read_to_string(core.ctx.paths.running_config()).expect("kept");
    core.commit(named("first")).expect("taken");
    assert!(kept(&core).contains("hostname first"));
    core.commit_confirmed(named("second"), 5).expect("taken");
    assert!(kept(&core).contains("hostname first"), "a restart must not make it final");
    assert!(core.confirm());
    assert!(kept(&core).contains("hostname second"));
}

/// Runs a server on a socket below `directory`, and `client` on a thread of its own.
fn served<T: Send + 'static>(client: impl FnOnce(&Path) -> T + Send + 'static) -> T {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("run/cli.sock");
    let core = Rc::new(RefCell::new(core(directory.path())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let shared = Shared { core: core.clone(), changed: Rc::default(), detached: Rc::new(Notify::new()) };
        let listener = UnixListener::bind(&socket).expect("bound");
        tokio::task::spawn_local(serve(listener, shared, crate::identity::LocalSocket::Owner));
        tokio::task::spawn_local(async move {
            // Sends events until the listener has ended.
            for n in 0u64.. {
                let details = || -> Map<String, Value> { [("n".to_owned(), json!(n))].into_iter().collect() };
                for _ in 0..100 {
                    core.borrow_mut().ctx.bus.event(EventKind::Link, "change", details);
                }
                tokio::task::yield_now().await;
            }
        });
        tokio::task::spawn_blocking(move || client(&socket)).await.expect("the client")
    })
}

fn exec(client: &mut Client, command: &str) -> (bool, String) {
    let mut printed = String::new();
    let done = client.exec(command, &mut |piece| {
        if let Piece::Output(text) | Piece::Refusal(text) = piece {
            printed.push_str(text);
        }
        Ok(())
    });
    (!done.expect("answered").refused, printed)
}

#[test]
fn sessions_share_one_switch() {
    served(|socket| {
        let mut clients: Vec<Client> = (0..2).map(|_| Client::at(socket).expect("connected")).collect();
        for client in &mut clients {
            assert_eq!(client.hello("ann", false).expect("room").prompt, "Lanyard#");
        }
        let [first, second] = &mut clients[..] else { panic!("two clients") };
        assert!(exec(first, "configure terminal").0);
        assert_eq!(exec(first, "hostname sw7"), (true, String::new()));
        assert!(!exec(first, "nonsense").0);
        assert!(exec(second, "show running-config").1.contains("hostname sw7"));
        let users = exec(second, "show users").1;
        assert_eq!(users.matches("vty ").count(), 2, "{users}");
        assert!(!users.contains("ann"), "the kernel names the users, and not the clients: {users}");
    });
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_gets_a_loss_count() {
    served(|socket| {
        let mut slow = UnixStream::connect(socket).expect("connected");
        let hello = Request::Hello { user: "slow".into(), interactive: false };
        let monitor = Request::Exec { line: "monitor events link".into(), pasted: false };
        slow.write_all((line(&hello) + &line(&monitor)).as_bytes()).expect("sent");
        let mut other = Client::at(socket).expect("connected");
        other.hello("other", false).expect("room");
        // Long enough for more events than the queue and the socket hold.
        for _ in 0..2000 {
            assert!(exec(&mut other, "show clock").0);
        }
        let lost = BufReader::new(slow).lines().map_while(Result::ok).find_map(|text| {
            let Ok(Reply::Stream(event)) = serde_json::from_str(&text) else { return None };
            serde_json::from_str::<Value>(&event).ok()?["lost"].as_u64()
        });
        assert!(lost > Some(0), "what it missed is counted and reported");
    });
}

#[test]
fn a_message_that_is_no_request_ends_the_connection() {
    served(|socket| {
        let long = [b'x'].repeat(MAX_REQUEST + 1);
        for (bytes, want) in [
            (&b"GET / HTTP/1.1\n"[..], "not a request"),
            (b"\"interrupt\"\n", "the first request must be hello"),
            (&long, "longer than"),
        ] {
            let mut stream = UnixStream::connect(socket).expect("connected");
            stream.write_all(bytes).expect("sent");
            let mut answer = String::new();
            // The server may reset the rest of an overlong request; the answer is received before
            // that.
            let _ = stream.read_to_string(&mut answer);
            assert!(answer.contains(want), "{want}: {answer}");
        }
    });
}
