//! Logins that TACACS+ servers verify, and the levels that they give: with tacquito as the server, and with servers that answer
//! wrongly, late or not at all.

use crate::aaa::{Server, is_refused, level};
use crate::access::Client;
use crate::harness::{Bed, Plane, scenarios, wait_for};
use crate::ssh;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

scenarios! {
    users_of_a_tacacs_server: soft;
    servers_that_do_not_answer: soft;
    levels_of_a_tacacs_server_over_ssh: soft;
}

const CONFIG: &str = "interface range p1 - 2\n switchport\n\
    username ann privilege 15 secret tiger\n\
    line vty 0 15\n transport input telnet\n";
const T1: &str = "tacacs server T1\n address ipv4 127.0.0.1\n key 0 between-us\n timeout 2\nexit\n";
const METHODS: &str = "aaa authentication login default group tacacs+ local\n\
    aaa authorization exec default group tacacs+ local\n";

/// The Go module of the TACACS+ server: no package of Debian has one. The Go tools verify the module's checksum.
const MODULE: &str = "github.com/facebookincubator/tacquito/cmds/server@v0.0.0-20260814210148-7c6e7f81cf5a";

/// Builds the server if necessary; returns the path of the program, which is kept below the build directory.
///
/// # Errors
/// Why it cannot be built here.
fn tacquito() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tacquito");
        let program = directory.join("server");
        if program.exists() {
            return Ok(program);
        }
        let mut go = Command::new("go");
        go.args(["install", MODULE]).env("GOBIN", &directory).env("GOTOOLCHAIN", "local").current_dir("/");
        let output = go.stdin(Stdio::null()).output();
        let output = output
            .map_err(|_| "no TACACS+ server: it is built with Go, which is not installed".to_owned())?;
        if program.exists() {
            return Ok(program);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        Err(format!("no TACACS+ server: the Go module cannot be built here: {last}"))
    };
    match BUILT.get_or_init(build) {
        Ok(path) => Ok(path),
        Err(reason) => Err(reason),
    }
}

/// bcrypt's hashes of `river`, `rain` and `other` with 16 rounds, in hexadecimal, as the server wants them.
const RIVER: &str = "24326224303424714c2f6e4c5257513256612f325634486576525a6d4f503544323735744c4a71374c67654e6772416d775a67457648646263647943";
const RAIN: &str = "24326224303424544c2f38466962757a43667862786c4564394a6d672e6e7a36517356574a73784b563051506c394d73543133583977683366537275";
const OTHER: &str = "243262243034242f345368354e654c444a77452f444a6a7834345558754676305a6c722f5661665652772f616f3471624a2f5876536a4669786a734f";

/// Starts the server on port 49 with the key `between-us`; returns it with the socket that receives its messages for syslog.
fn start(bed: &Bed, program: &Path) -> (Server, UnixDatagram) {
    let directory = bed.file("tacacs");
    std::fs::create_dir_all(&directory).expect("made");
    let user = |name: &str, hash: &str, services: &str| {
        format!(
            " - name: {name}\n   scopes: [all]\n   authenticator: {{type: 1, options: {{hash: {hash}}}}}\n   services: [{services}]\n"
        )
    };
    let shell = |level: u8| format!("{{name: shell, set_values: [{{name: priv-lvl, values: [{level}]}}]}}");
    let odd = "{name: shell, set_values: [{name: idletime, values: [10]}]}";
    let config = format!(
        "users:\n{}{}{}{}{}\nsecrets:\n - name: all\n   secret: {{group: all, key: between-us}}\n   handler: {{type: 1}}\n   type: 1\n   \
         options: {{prefixes: '[\"127.0.0.0/8\"]'}}\n",
        user("rita", RIVER, &shell(15)),
        user("rolf", RAIN, &shell(7)),
        user("ann", OTHER, &shell(1)),
        user("nils", RIVER, ""),
        user("odin", RIVER, odd),
    );
    std::fs::write(directory.join("config.yaml"), config).expect("written");
    let log = std::fs::File::create(directory.join("log")).expect("made");
    // The server does not start without a receiver of its messages for syslog.
    let run = directory.join("run");
    std::fs::create_dir_all(&run).expect("made");
    let syslog = UnixDatagram::bind(run.join("syslog")).expect("bound");
    let script = format!(
        "mount --bind {} /run && exec {} -network tcp -address 127.0.0.1:49 -metrics-address 127.0.0.1:8049 -config {} -acct-log-path {}",
        run.display(),
        program.display(),
        directory.join("config.yaml").display(),
        directory.join("accounting").display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).stdout(Stdio::null()).stderr(log);
    let server = Server(bed.net.spawn(&mut command));
    wait_for("the TACACS+ server", || bed.net.run(|| TcpStream::connect("127.0.0.1:49")).ok());
    (server, syslog)
}

fn counters(bed: &Bed, name: &str) -> serde_json::Value {
    let view = bed.show("show tacacs");
    let servers = view["servers"].as_array().expect("a list");
    servers.iter().find(|server| server["name"] == name).unwrap_or_else(|| panic!("{view}")).clone()
}

fn users_of_a_tacacs_server(plane: Plane) {
    let program = match tacquito() {
        Ok(program) => program,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let bed = Bed::new(plane, 2, CONFIG);
    bed.configure(&format!("{T1}{METHODS}"));
    let config = bed.exec(&["show running-config"]);
    assert!(
        METHODS.lines().chain(T1.lines()).all(|line| line == "exit" || config.contains(line)),
        "{config}"
    );
    // No server listens yet: the users of the configuration apply.
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("%AAA-4-UNAVAILABLE: login group tacacs+: 127.0.0.1:49: no connection"), "{log}");
    assert!(log.contains("%AAA-4-UNAVAILABLE: exec group tacacs+"), "{log}");
    assert_eq!(counters(&bed, "T1")["failed_connects"], 2);
    let (server, _syslog) = start(&bed, program);
    assert_eq!(level(&bed, "rita", "river"), "15");
    assert_eq!(level(&bed, "rolf", "rain"), "7");
    // The server decides about a user that the configuration has as well, and after its rejection the configuration is not asked.
    assert_eq!(level(&bed, "ann", "other"), "1");
    is_refused(&bed, "ann", "tiger");
    is_refused(&bed, "rita", "rain");
    let log = bed.exec(&["show logging"]);
    assert!(
        log.contains("%TACACS-4-TACACS_ALIVE: TACACS+ server 127.0.0.1:49 is being marked alive."),
        "{log}"
    );
    assert!(
        log.contains("TACACS+ server 127.0.0.1:49 rejects user rita: the name or the secret is wrong"),
        "{log}"
    );
    let counted = counters(&bed, "T1");
    assert_eq!((&counted["accepts"], &counted["rejects"]), (&6.into(), &2.into()), "{counted}");
    assert_eq!((&counted["state"], &counted["invalid"]), (&"up".into(), &0.into()), "{counted}");
    // The secrets of these users are right, but the server gives one no shell, and the other an argument that the switch cannot
    // carry out.
    for (user, why) in [("nils", "does not permit a shell"), ("odin", "mandatory argument idletime=10")] {
        Client::login(&bed, user, "river").until("% Authorization failed.");
        let log = bed.exec(&["show logging"]);
        assert!(log.contains(why) && log.contains(&format!("user {user} from 127.0.0.1 may not")), "{log}");
    }
    // With another key the server counts as one that does not answer: the configuration decides.
    bed.configure("tacacs server T1\n key 7 0822455D0A16");
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    is_refused(&bed, "rita", "river");
    let all = bed.exec(&["show logging", "show archive log config all"]) + &bed.printed();
    assert!(
        all.contains("TACACS_DEAD") && all.contains("key 0 *****") && all.contains("key 7 *****"),
        "{all}"
    );
    assert!(!all.contains("between-us") && !all.contains("0822455D0A16") && !all.contains("river"), "{all}");
    drop(server);
}

/// Makes the reply of a server of [`fake`] from the header of the request.
type Reply = fn(&[u8; 12]) -> Vec<u8>;

/// Starts a server on a port of 127.0.0.1 that answers the first packet of each connection with `reply`, or not at all, and then
/// waits until the client sends more or closes the connection.
fn fake(bed: &Bed, port: u16, reply: Option<Reply>) {
    let listener = bed.net.run(|| TcpListener::bind(("127.0.0.1", port))).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut header = [0; 12];
            if stream.read_exact(&mut header).is_err() {
                continue;
            }
            let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
            let mut body = vec![0; length as usize];
            let _ = stream.read_exact(&mut body);
            if let Some(reply) = reply {
                let _ = stream.write_all(&reply(&header));
            }
            let _ = stream.read(&mut [0]);
        }
    });
}

/// The header of a reply with a body of six bytes.
fn header(request: &[u8; 12], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut reply = request.to_vec();
    reply[2] += 1;
    reply[8..].copy_from_slice(&6_u32.to_be_bytes());
    change(&mut reply);
    reply
}

fn servers_that_do_not_answer(plane: Plane) {
    let bed = Bed::new(plane, 2, CONFIG);
    const PASS: [u8; 6] = [1, 0, 0, 0, 0, 0];
    let servers: [(u16, Option<Reply>, &str, &str); 6] = [
        // A reply PASS in plain text.
        (
            4901,
            Some(|request| [header(request, |reply| reply[3] = 1), PASS.to_vec()].concat()),
            "invalid",
            "a reply in plain text",
        ),
        (
            4902,
            Some(|request| [header(request, |reply| reply[4] ^= 1), PASS.to_vec()].concat()),
            "invalid",
            "another session",
        ),
        (4903, Some(|request| header(request, |reply| reply[8] = 0xff)), "invalid", "the limit is 65536"),
        // A reply that is not encrypted with the switch's key.
        (
            4904,
            Some(|request| [header(request, |_| ()), vec![0x5a; 6]].concat()),
            "invalid",
            "compare the keys",
        ),
        // A reply of which only the header arrives.
        (4905, Some(|request| header(request, |_| ())), "socket_timeouts", "no answer within 1 s"),
        (4906, None, "socket_timeouts", "no answer within 1 s"),
    ];
    let mut lines = "tacacs-server key between-us\ntacacs-server timeout 1\n".to_owned();
    for (port, reply, ..) in servers {
        fake(&bed, port, reply);
        lines.push_str(&format!("tacacs server S{port}\n address ipv4 127.0.0.1\n port {port}\nexit\n"));
    }
    bed.configure(&lines);
    bed.configure("aaa authentication login default group tacacs+ local");
    let began = Instant::now();
    assert_eq!(level(&bed, "ann", "tiger"), "15");
    // The switch has waited for the timeout of two of the servers only.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let log = bed.exec(&["show logging"]);
    for (port, _, counter, why) in servers {
        assert_eq!(counters(&bed, &format!("S{port}"))[counter], 1, "S{port}");
        let text = format!("%TACACS-4-TACACS_DEAD: TACACS+ server 127.0.0.1:{port} is not responding: ");
        let line = log.lines().find(|line| line.contains(&text)).unwrap_or_else(|| panic!("{port}: {log}"));
        assert!(line.contains(why), "{line}");
        assert_eq!(counters(&bed, &format!("S{port}"))["state"], "dead");
    }
    is_refused(&bed, "nobody", "tiger");
    let shown = bed.exec(&["show tacacs"]);
    assert!(shown.contains("Server name: S4901\n") && shown.contains("Socket Timeouts: 2\n"), "{shown}");
    // While a login waits for a server, other sessions do not wait.
    let mut client = Client::login(&bed, "ann", "tiger");
    let began = Instant::now();
    assert!(bed.exec(&["show version"]).contains("Lanyard"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    client.until("Lanyard#");
}

fn levels_of_a_tacacs_server_over_ssh(plane: Plane) {
    let program = match tacquito() {
        Ok(program) => program,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let config = "username rolf privilege 15 secret tiger\nusername nils privilege 15 secret tiger\n\
        username eve privilege 15 secret tiger\n\
        privilege exec level 7 clear counters\nline vty 0 15\n transport input ssh\n";
    let Some(bed) = ssh::bed(plane, config) else { return };
    let (server, _syslog) = start(&bed, program);
    let line = ssh::make_key(&bed, "user", "ed25519");
    for user in ["rolf", "nils", "eve"] {
        ssh::permit_key(&bed, user, &line);
    }
    let may = |user: &str, command: &str| ssh::run(&bed, user, "user", command).0 == Some(0);
    assert!(may("rolf", "show running-config"), "the level of username");
    bed.configure(&format!("{T1}aaa authorization exec default group tacacs+ local"));
    // The key is that of the configuration, the level that of the server.
    assert!(may("rolf", "clear counters") && !may("rolf", "show running-config"));
    assert!(!may("nils", "show version"), "the server knows him, and gives him no shell");
    assert!(!may("eve", "show version"), "the server does not know her");
    // Consoles are exempt.
    let shown = ssh::on_console(&bed, "eve", 15, "show running-config");
    assert!(!shown.contains("Invalid input"), "{shown}");
    drop(server);
    assert!(may("eve", "show running-config"), "no server answers: the configuration decides");
}
