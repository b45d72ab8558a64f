//! Requests and replies on the control socket: reading is bounded, and malformed requests are refused.

use super::output::run;
use super::*;
use crate::connections::session;
use crate::identity::LocalSocket;
use crate::testing::{Bench, config};
use crate::users::MAX_USERS;
use lanyard_cli::Program;
use tokio::io::{AsyncRead, AsyncReadExt};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// The lines read from `pieces`, one piece at a time, and the reason why reading ended.
fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Ended) {
    block_on(async {
        let (mut writer, reader) = tokio::io::duplex(1);
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let sending = tokio::task::spawn_local(async move {
            for piece in pieces {
                if writer.write_all(&piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        let mut reader = BufReader::new(Box::pin(reader) as std::pin::Pin<Box<dyn AsyncRead>>);
        let (mut found, mut buffer) = (Vec::new(), Vec::new());
        let ended = loop {
            match read_line(&mut reader, &mut buffer, MAX_REQUEST).await {
                Ok(line) => found.push(line),
                Err(ended) => break ended,
            }
        };
        drop(reader);
        sending.await.expect("sent");
        (found, ended)
    })
}

#[test]
fn lines_are_put_together() {
    let (found, ended) = lines(&[b"one\ntw", b"o\n", b"\nthr"]);
    assert_eq!(found, [&b"one\n"[..], b"two\n", b"\n"]);
    assert!(matches!(ended, Ended::Gone), "a line without end is no request: {ended}");
}

#[test]
fn a_line_has_a_limit() {
    let mut exact = vec![b'x'; MAX_REQUEST - 1];
    exact.push(b'\n');
    assert_eq!(lines(&[&exact, &exact]).0.len(), 2, "each line counts for itself");
    exact.insert(0, b'x');
    let (found, ended) = lines(&[&exact]);
    assert!(found.is_empty());
    assert_eq!(ended.to_string(), format!("a request is longer than {MAX_REQUEST} bytes"));
    let (_, ended) = lines(&[&vec![b'x'; 4 * MAX_REQUEST]]);
    assert!(matches!(ended, Ended::TooLong), "refused although no line end has come: {ended}");
}

/// Cancelling a read loses no part of a request.
#[test]
fn a_partial_line_survives_a_cancelled_read() {
    block_on(async {
        let (mut writer, reader) = tokio::io::duplex(64);
        let (mut reader, mut buffer) = (BufReader::new(reader), Vec::new());
        for part in [&b"ab"[..], b"cd"] {
            writer.write_all(part).await.expect("sent");
            tokio::select! {
                biased;
                line = read_line(&mut reader, &mut buffer, MAX_REQUEST) => panic!("{line:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        writer.write_all(b"\n").await.expect("sent");
        assert_eq!(read_line(&mut reader, &mut buffer, MAX_REQUEST).await.expect("a line"), b"abcd\n");
    });
}

/// Sends these lines to a server and returns its replies. The client then closes.
fn talk(bench: &Bench, requests: &[&str]) -> Vec<Reply> {
    talk_to(bench, "hostname sw1", requests)
}

/// As [`talk`], with a switch of this configuration.
fn talk_to(bench: &Bench, text: &str, requests: &[&str]) -> Vec<Reply> {
    block_on(async {
        let mut core = bench.core();
        core.take(config(text)).expect("taken");
        let core = Rc::new(RefCell::new(core));
        let shared = Shared { core: core.clone(), changed: Rc::default(), detached: Rc::new(Notify::new()) };
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let serving = tokio::task::spawn_local(session(server, shared, &LocalSocket::Owner));
        client.write_all((requests.join("\n") + "\n").as_bytes()).await.expect("sent");
        client.shutdown().await.expect("closed");
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("answered");
        serving.await.expect("served");
        assert_eq!(core.borrow().users.view(0).users.len(), 0, "the session's line is free again");
        text.lines().map(|line| serde_json::from_str(line).expect("a reply")).collect()
    })
}

const HELLO: &str = r#"{"hello":{"user":"ann","interactive":false}}"#;

#[test]
fn a_session_answers_in_order() {
    let replies = talk(
        &Bench::new(),
        &[
            HELLO,
            r#"{"exec":{"line":"nonsense"}}"#,
            r#"{"complete":{"line":"sh"}}"#,
            r#"{"help":{"line":"show cl"}}"#,
        ],
    );
    let kinds: Vec<String> = replies
        .iter()
        .map(|reply| match reply {
            Reply::Done(done) => format!("done {} {}", done.refused, done.prompt),
            Reply::Completion { candidates, .. } => candidates.join(" "),
            Reply::Help(lines) => lines.first().cloned().unwrap_or_default(),
            Reply::Refusal(text) => text.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds[0], "done false sw1#");
    assert!(kinds[1].contains('%'), "{kinds:?}");
    assert_eq!(kinds[2..4], ["done true sw1#", "show"]);
    assert!(kinds[4].contains("clock"), "{kinds:?}");
}

#[test]
fn invalid_or_misplaced_requests_are_refused_with_a_reason() {
    for (requests, want) in [
        (&["[]"][..], "not a request: "),
        (&[r#"{"exec":{"line":"show clock"}}"#], "the first request must be hello"),
        (&[HELLO, HELLO], "not in a session"),
        (&[HELLO, r#""detach""#], "not in a session"),
        (
            &[HELLO, r#"{"exec":{"line":"monitor events link"}}"#, HELLO],
            "only interrupt may follow while events are",
        ),
    ] {
        let replies = talk(&Bench::new(), requests);
        let Some(Reply::Error(reason)) = replies.last() else { panic!("{want}: {replies:?}") };
        assert!(reason.starts_with(want), "{want}: {reason}");
    }
}

#[test]
fn a_stream_ends_with_an_interrupt() {
    let stream = r#"{"exec":{"line":"monitor events link"}}"#;
    let replies = talk(&Bench::new(), &[HELLO, stream, r#""interrupt""#, r#"{"exec":{"line":"exit"}}"#]);
    let done: Vec<_> = replies
        .iter()
        .filter_map(|reply| match reply {
            Reply::Done(done) => Some((done.refused, done.close)),
            _ => None,
        })
        .collect();
    assert_eq!(done, [(false, false), (false, false), (false, true)]);
}

#[test]
fn too_many_sessions() {
    let bench = Bench::new();
    let core = Rc::new(RefCell::new(bench.core()));
    for _ in 0..MAX_USERS {
        core.borrow_mut().users.add_vty("ann", "local", 0).expect("room");
    }
    let shared = Shared { core, changed: Rc::default(), detached: Rc::new(Notify::new()) };
    let answer = block_on(async {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let serving = tokio::task::spawn_local(session(server, shared, &LocalSocket::Owner));
        client.write_all(format!("{HELLO}\n").as_bytes()).await.expect("sent");
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("answered");
        serving.await.expect("served");
        text
    });
    assert_eq!(answer, format!("{{\"error\":\"{MAX_USERS} sessions are open already\"}}\n"));
}

#[test]
fn detach_without_a_session() {
    let bench = Bench::new();
    let replies = talk(&bench, &[r#""detach""#]);
    assert_eq!(replies, [Reply::Done(Done { close: true, ..Done::default() })]);
    assert!(!bench.paths().running_config().exists(), "its files are gone");
}

#[test]
fn a_bridge_command_without_a_session() {
    let replies = talk(&Bench::new(), &[r#"{"brctl":{"words":["show"]}}"#]);
    assert!(matches!(&replies[..], [Reply::Text(_), Reply::Done(done)] if done.close), "{replies:?}");
    let replies = talk(&Bench::new(), &[r#"{"brctl":{"words":["nonsense"]}}"#]);
    assert!(matches!(&replies[..], [Reply::Refusal(_), Reply::Done(done)] if done.refused), "{replies:?}");
}

/// A program's output is passed on, and its failure is reported as a refusal.
#[test]
fn a_program_runs_to_its_end() {
    let outcome = |argv: &[&str]| {
        let program = Program { argv: argv.iter().map(|&word| word.to_owned()).collect() };
        block_on(async {
            let (client, server) = UnixStream::pair().expect("a pair");
            let mut connection = Connection::new(server);
            let result = run(&mut connection, &program).await;
            drop(connection);
            let (mut client, mut text) = (client, String::new());
            client.read_to_string(&mut text).await.expect("answered");
            (result.expect("no protocol error").map_err(|error| error.to_string()), text)
        })
    };
    assert_eq!(outcome(&["echo", "hi"]), (Ok(()), "{\"stream\":\"hi\\n\"}\n".into()));
    assert_eq!(outcome(&["false"]).0, Err("false failed: exit status: 1".into()));
    let absent = outcome(&["/nonexistent/program"]).0.expect_err("there is none");
    assert!(absent.starts_with("/nonexistent/program: No such file"), "{absent}");
    assert_eq!(outcome(&[]).0, Err("no program".into()));
}

/// The number of static addresses of [`many`]: their list is longer than the buffers of a connection.
const MANY: u64 = 6000;

/// A configuration with many static addresses.
fn many() -> String {
    let address = |n| {
        let mac = lanyard_types::MacAddr::from_u64(0x0200_0000_0000 + n * 7919 % MANY);
        format!("mac address-table static {mac} vlan 10 drop\n")
    };
    (0..MANY).map(address).fold("vlan 10\n".to_owned(), |text, line| text + &line)
}

fn exec(line: &str) -> String {
    format!("{{\"exec\":{{\"line\":\"{line}\"}}}}")
}

/// The texts of the replies between two `Done`s, without the first, which answers `hello`.
fn outputs(replies: &[Reply]) -> Vec<String> {
    let texts = |replies: &[Reply]| {
        replies.iter().map(|reply| if let Reply::Text(text) = reply { text.as_str() } else { "" }).collect()
    };
    replies.split(|reply| matches!(reply, Reply::Done(_))).skip(1).map(texts).collect()
}

/// A listing arrives in order and complete, and requests that were sent meanwhile are answered after it, also for a client that
/// has closed its sending side.
#[test]
fn a_listing_and_the_lines_behind_it() {
    let requests = [
        HELLO.to_owned(),
        exec("show mac address-table"),
        exec("show mac address-table | count 10"),
        exec("show mac address-table | json"),
        exec("show history"),
    ];
    let replies = talk_to(&Bench::new(), &many(), &requests.each_ref().map(String::as_str));
    let outputs = outputs(&replies);
    let rows: Vec<&str> = outputs[0].lines().filter(|line| line.contains("STATIC")).collect();
    assert_eq!(rows.len() as u64, MANY);
    assert!(rows.is_sorted_by(|a, b| a < b), "in order");
    assert!(outputs[0].ends_with(&format!("criterion: {MANY}\n")));
    assert_eq!(outputs[1], format!("Number of lines which match regexp = {MANY}\n"));
    let json: serde_json::Value = serde_json::from_str(&outputs[2]).expect("JSON");
    assert_eq!(
        (json["entries"].as_array().map(Vec::len), &json["total"]),
        (Some(MANY as usize), &MANY.into())
    );
    assert!(outputs[3].contains("show mac address-table | json"), "{}", outputs[3]);
    for reply in &replies {
        assert!(!matches!(reply, Reply::Text(text) if text.len() > MAX_PIECE));
    }
}

#[test]
fn an_interrupt_ends_a_listing() {
    let list = exec("show mac address-table");
    let requests = [HELLO, &list, r#""interrupt""#, &exec("show history")].map(str::to_owned);
    let replies = talk_to(&Bench::new(), &many(), &requests.each_ref().map(String::as_str));
    let outputs = outputs(&replies);
    assert!(outputs[0].starts_with("          Mac Address Table") && !outputs[0].contains("criterion"));
    assert_eq!(outputs[1], "  show mac address-table\n  show history\n");
}

/// A client that does not read a listing delays neither the switch nor another session, and gets the rest later. When a client
/// disconnects, its listing ends.
#[test]
fn a_reader_of_a_listing_that_has_stopped() {
    block_on(async {
        let mut core = Bench::new().core();
        core.take(config(&many())).expect("taken");
        let core = Rc::new(RefCell::new(core));
        let shared = Shared { core: core.clone(), changed: Rc::default(), detached: Rc::new(Notify::new()) };
        let open = async |requests: &[String]| {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let serving = tokio::task::spawn_local(session(server, shared.clone(), &LocalSocket::Owner));
            client.write_all((requests.join("\n") + "\n").as_bytes()).await.expect("sent");
            (client, serving)
        };
        let list = [HELLO.to_owned(), exec("show mac address-table | json")];
        let (mut slow, slow_served) = open(&list).await;
        let (gone, gone_served) = open(&list).await;
        let (mut quick, quick_served) = open(&[HELLO.to_owned(), exec("show history"), exec("exit")]).await;
        let mut text = String::new();
        quick.read_to_string(&mut text).await.expect("answered");
        quick_served.await.expect("served");
        assert!(text.contains("show history"), "{text}");
        drop(gone);
        gone_served.await.expect("the listing has ended with its client");
        assert_eq!(core.borrow().users.view(0).users.len(), 1, "only the slow one is left");
        slow.shutdown().await.expect("closed");
        text.clear();
        slow.read_to_string(&mut text).await.expect("answered");
        slow_served.await.expect("served");
        let replies: Vec<Reply> =
            text.lines().map(|line| serde_json::from_str(line).expect("a reply")).collect();
        let json: serde_json::Value = serde_json::from_str(&outputs(&replies)[0]).expect("JSON");
        assert_eq!(json["total"], MANY);
    });
}

/// The client of a program has to read; that of a user may wait at a page for as long as the user's session may be idle.
#[test]
fn how_long_a_client_may_read_nothing() {
    let mut core = Bench::new().core();
    let lines =
        "line vty 0\n exec-timeout 5 0\nline vty 1\n exec-timeout 0 10\nline vty 2\n exec-timeout 0 0";
    core.take(config(lines)).expect("taken");
    let core = Rc::new(RefCell::new(core));
    let shared = Shared { core, changed: Rc::default(), detached: Rc::new(Notify::new()) };
    let patience = |number| Seat { line: LineName::Vty(number), shared: shared.clone() }.patience();
    assert_eq!([0, 1, 2].map(patience), [Duration::from_secs(300), STALL, Duration::MAX]);
}
