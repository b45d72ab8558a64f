//! `ntp server`: the servers with which a program of the machine, such as chrony, synchronizes the clock; `show ntp`.

use super::need;
use crate::args::{Args, Form, Kind, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::ntp::{NtpQuery, Wanted};
use crate::outcome::Outcome;
use crate::setting::Line;
use crate::tree::{Node, arg, kw};
use lanyard_config::{Config, MAX_NTP_SERVERS, NtpServer};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[Line::own("ntp", SERVER, print)];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("ntp", "Configure NTP")];

/// `show ntp`.
pub const SHOW: Node = kw("ntp", "Network time protocol").then(&[
    kw("associations", "NTP associations").exec(associations),
    kw("status", "NTP status").exec(status),
]);

fn associations(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    Ok(Outcome::Ntp(NtpQuery::new(Wanted::Associations, exec.pipe)))
}

fn status(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    Ok(Outcome::Ntp(NtpQuery::new(Wanted::Status, exec.pipe)))
}

const SERVER: Node = kw("server", "Configure NTP server").no(remove_all).then(&[arg(
    Kind::Host,
    "Hostname or IP address of the server",
)
.run(server)
.options(&[
    kw("iburst", "Send the first requests quickly"),
    kw("prefer", "Prefer this server when possible"),
])]);

fn remove_all(edit: &mut Edit<'_>, _: &Args) -> Result<(), Refusal> {
    edit.config.appliance.ntp_servers.clear();
    Ok(())
}

fn server(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let host = need(args.text())?;
    let list = &mut edit.config.appliance.ntp_servers;
    if args.form != Form::Set {
        list.retain(|server| server.host != host);
        return Ok(());
    }
    let server = NtpServer { host, prefer: args.has("prefer"), iburst: args.has("iburst") };
    if let Some(other) = list.iter_mut().find(|other| other.host == server.host) {
        *other = server;
        return Ok(());
    }
    if list.len() >= MAX_NTP_SERVERS {
        let host = short(&server.host);
        return Err(
            format!("{host}: there are {MAX_NTP_SERVERS} NTP servers already: remove one first").into()
        );
    }
    list.push(server);
    Ok(())
}

fn print(config: &Config) -> Vec<String> {
    let line = |server: &NtpServer| {
        let options = [(server.iburst, " iburst"), (server.prefer, " prefer")];
        let options: String = options.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect();
        format!("ntp server {}{options}", server.host)
    };
    config.appliance.ntp_servers.iter().map(line).collect()
}
