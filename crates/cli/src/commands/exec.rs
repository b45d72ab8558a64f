//! The commands of exec mode except `show`.

use super::{
    access, access_list, aggregation, archive, discovery, dot1x, files, guard, line, need, port_security,
    session, show, show_ip, show_stp, snooping, vrf,
};
use crate::args::{Args, Kind, MAX_WORD};
use crate::backend::{MacFilter, Refusal};
use crate::exec::{Exec, MAX_HISTORY};
use crate::line::MAX_LINE;
use crate::mode::{ConfigMode, Mode};
use crate::outcome::{Capture, Outcome, Program};
use crate::tree::{Node, arg, kw, number};
use crate::view::EventKind;
use lanyard_config::InterfaceName;

/// The commands of user and privileged exec mode (`>` and `#`).
pub const TREE: &[Node] = &[
    archive::ARCHIVE,
    kw("brctl", "The commands of bridge-utils").privileged().then(&[arg(
        Kind::Line(MAX_LINE),
        "A command of bridge-utils, such as: addif br0 eth1",
    )
    .exec(brctl)]),
    CLEAR,
    session::CONFIGURE,
    files::COPY,
    show_stp::DEBUG,
    access::EXEC_DISABLE,
    access::EXEC_ENABLE,
    files::ERASE,
    kw("exit", "Exit from the EXEC").level(0).exec(close),
    kw("logout", "Exit from the EXEC").level(0).exec(close),
    kw("monitor", "Watch the switch").then(&[
        CAPTURE,
        kw("events", "Print events as they occur, one JSON object per line").exec(monitor).then(&[
            kw("discovery", "Neighbors found by LLDP and CDP").exec(monitor_one),
            kw("fdb", "Addresses learned, moved and aged out").exec(monitor_one),
            kw("link", "Ports going up and down").exec(monitor_one),
            kw("multicast", "Multicast groups and the ports of their members").exec(monitor_one),
            kw("neighbor", "Neighbours of the kernel's tables").exec(monitor_one),
            kw("resource", "Tables filling up").exec(monitor_one),
            kw("route", "Routes of the kernel's tables").exec(monitor_one),
            kw("stp", "Spanning tree").exec(monitor_one),
        ]),
    ]),
    PING,
    kw("quit", "Exit from the EXEC").level(0).exec(close),
    archive::RELOAD,
    archive::ROLLBACK,
    show::TREE,
    TERMINAL,
    kw("traceroute", "Trace route to destination").then(&[
        kw("ip", "IPv4 trace").then(&[arg(Kind::Host, "Destination").exec(traceroute)]),
        kw("ipv6", "IPv6 trace").then(&[arg(Kind::Host, "Destination").exec(traceroute)]),
        kw("vrf", "Select a VRF").then(&[vrf::NAME.then(&[arg(Kind::Host, "Destination").exec(traceroute)])]),
        arg(Kind::Host, "Destination").exec(traceroute),
    ]),
    files::WRITE,
];

const PING_OPTIONS: &[Node] = &[
    kw("repeat", "Number of echo requests").then(&[number(1, 100_000, "Repeat count")]),
    kw("size", "Datagram size").then(&[number(36, 9216, "Datagram size in bytes, IP header included")]),
    kw("timeout", "How long to wait for a reply").then(&[number(1, 3600, "Seconds")]),
    kw("source", "Where to send from").then(&[arg(Kind::Interface, "Interface")]),
];

const PING: Node = kw("ping", "Send echo messages").then(&[
    kw("ip", "IPv4 echo").then(&[arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS)]),
    kw("ipv6", "IPv6 echo").then(&[arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS)]),
    kw("vrf", "Select a VRF").then(&[vrf::NAME.then(&[
        kw("ip", "IPv4 echo").then(&[arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS)]),
        kw("ipv6", "IPv6 echo").then(&[arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS)]),
        arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS),
    ])]),
    arg(Kind::Host, "Ping destination").exec(ping).options(PING_OPTIONS),
]);

const CLEAR: Node = kw("clear", "Reset functions").privileged().then(&[
    access_list::CLEAR,
    show_ip::CLEAR_ARP,
    dot1x::CLEAR,
    discovery::CLEAR_CDP,
    archive::CLEAR_LOCK,
    kw("counters", "Clear counters on one or all interfaces").exec(clear_counters).then(&[arg(
        Kind::Interface,
        "Interface",
    )
    .exec(clear_counters)]),
    kw("ip", "IP").then(&[guard::CLEAR_DHCP, snooping::CLEAR_IGMP]),
    show_ip::CLEAR_IPV6,
    aggregation::CLEAR_LACP,
    discovery::CLEAR_LLDP,
    line::CLEAR,
    kw("logging", "Clear logging buffer").exec(clear_logging),
    kw("mac", "MAC configuration").then(&[kw("address-table", "MAC forwarding table").then(&[kw(
        "dynamic",
        "Remove learned addresses",
    )
    .exec(clear_mac)
    .options(show::MAC_FILTERS)])]),
    port_security::CLEAR,
    show_stp::CLEAR,
]);

const TERMINAL: Node = kw("terminal", "Set terminal line parameters").then(&[
    kw("history", "Command history").then(&[kw("size", "Lines of history to keep").then(&[number(
        0,
        MAX_HISTORY as u64,
        "Lines",
    )
    .exec(history_size)])]),
    kw("length", "Set number of lines on a screen").then(&[number(
        0,
        512,
        "Number of lines on screen (0 for no pausing)",
    )
    .exec(length)]),
    kw("monitor", "Copy log messages to this session").exec(terminal_monitor),
    kw("no", "Turn something off")
        .then(&[kw("monitor", "Copy no log messages to this session").exec(terminal_no_monitor)]),
    kw("width", "Set width of the display terminal").then(&[number(
        20,
        512,
        "Number of characters on a screen line",
    )
    .exec(width)]),
]);

fn done() -> Result<Outcome, Refusal> {
    Ok(Outcome::Text(String::new()))
}

fn close(_: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    Ok(Outcome::Close)
}

fn brctl(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let line = need(args.text())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    crate::brctl::run(&words, exec.backend).map(Outcome::Text)
}

/// `end` in a configuration mode.
pub fn end(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    super::shared::leave_configuration(exec);
    done()
}

/// `exit` in a configuration mode: leads to the outer mode ([`ConfigMode::outer`]), and from global configuration to exec mode.
pub fn exit(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    match &mut exec.session.mode {
        Mode::Config { at, .. } if *at != ConfigMode::Global => {
            *at = std::mem::replace(at, ConfigMode::Global).outer();
            done()
        }
        _ => end(exec, args),
    }
}

/// `monitor capture ...`.
const CAPTURE: Node = kw("capture", "Capture packets in the pcapng format").privileged().then(&[kw(
    "interface",
    "Capture the frames that a port receives and sends",
)
.then(&[arg(Kind::Interface, "Port").exec(capture).then(&[kw("file", "Write to a file of the switch")
    .then(&[arg(Kind::Word("FILE", MAX_WORD), "Name of the file").exec(capture)])])])]);

fn capture(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let InterfaceName::Netdev(interface) = need(args.interface())? else {
        return Err("Every frame of a VLAN interface passes its netdev: capture there with tcpdump".into());
    };
    let file = args.texts().pop();
    if file.is_none() && exec.session.login.interactive {
        return Err(
            "A capture is not text: name a file, or run `lanyard cli -c` with its output going to Wireshark"
                .into(),
        );
    }
    Ok(Outcome::Capture(Capture { interface, file }))
}

fn monitor(_: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    Ok(Outcome::Stream(EventKind::ALL.to_vec()))
}

fn monitor_one(_: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let kind = need(args.among(&EventKind::ALL.map(|kind| (kind.name(), kind))))?;
    Ok(Outcome::Stream(vec![kind]))
}

/// The option for the program, `-4` after the keyword `ip` or `-6` after `ipv6`; `None` if the line has neither.
fn family(args: &Args) -> Option<String> {
    args.among(&[("ip", "-4"), ("ipv6", "-6")]).map(str::to_owned)
}

/// The command prefix that runs a program in the VRF of the line; empty without a VRF.
fn inside(exec: &Exec<'_>, args: &Args) -> Result<Vec<String>, Refusal> {
    let vrf = vrf::known(exec.backend.running(), args)?;
    Ok(vrf.map_or_else(Vec::new, |vrf| vec!["nsenter".into(), format!("--net=/run/netns/{vrf}")]))
}

/// The host of the line: its last text, because `vrf V` comes before it.
fn host(args: &Args) -> Result<String, Refusal> {
    need(args.texts().pop())
}

fn ping(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut argv = inside(exec, args)?;
    argv.push("ping".to_owned());
    argv.extend(family(args));
    let is_v6 = match args.among(&[("ip", false), ("ipv6", true)]) {
        Some(is_v6) => is_v6,
        None => host(args)?.contains(':'),
    };
    let overhead = if is_v6 { 48 } else { 28 };
    let mut numbers = args.numbers().into_iter();
    let mut repeat = 5;
    let mut timeout = 2;
    for word in &args.words {
        match *word {
            "repeat" => repeat = numbers.next().unwrap_or(repeat),
            "timeout" => timeout = numbers.next().unwrap_or(timeout),
            "size" => {
                let bytes = numbers.next().unwrap_or(100).saturating_sub(overhead);
                argv.extend(["-s".to_owned(), bytes.to_string()]);
            }
            _ => {}
        }
    }
    argv.extend(["-c".to_owned(), repeat.to_string(), "-W".to_owned(), timeout.to_string()]);
    if let Some(interface) = args.interface() {
        argv.extend(["-I".to_owned(), interface.to_string()]);
    }
    argv.push(host(args)?);
    Ok(Outcome::Run(Program { argv }))
}

fn traceroute(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut argv = inside(exec, args)?;
    argv.push("traceroute".to_owned());
    argv.extend(family(args));
    argv.push(host(args)?);
    Ok(Outcome::Run(Program { argv }))
}

fn clear_counters(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let interface = args.interface();
    exec.backend.clear_counters(interface.as_ref())?;
    exec.backend.clear_service_policies(interface.map(|name| name.to_string()).as_deref());
    done()
}

fn clear_logging(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.backend.clear_logging();
    done()
}

fn clear_mac(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let filter = MacFilter { kind: Some("dynamic"), ..show::mac_filter(exec, args)? };
    exec.backend.clear_mac_table(&filter);
    done()
}

fn length(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.session.terminal.length = need(args.number())? as u16;
    done()
}

fn width(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    exec.session.terminal.width = need(args.number())? as u16;
    done()
}

fn terminal_monitor(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.session.terminal.monitor = true;
    done()
}

fn terminal_no_monitor(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    exec.session.terminal.monitor = false;
    done()
}

fn history_size(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let size = need(args.number())? as usize;
    exec.session.history_size = size;
    while exec.session.history.len() > size {
        exec.session.history.pop_front();
    }
    done()
}
