//! Access control of ports as text, in IOS's form.

use super::ios_netdev;
use super::table::columns;
use crate::view::{AuthenticationSession, AuthenticationSessions, Dot1x, Mab, RadiusServers};
use std::fmt::Write;

const fn on(on: bool) -> &'static str {
    if on { "Enabled" } else { "Disabled" }
}

fn status(session: &AuthenticationSession) -> &'static str {
    match session.status {
        "authorized" => "Authz Success",
        "failed" => "Authz Failed",
        _ => "Running",
    }
}

/// `show authentication sessions`.
pub fn sessions(view: &AuthenticationSessions) -> String {
    if view.sessions.is_empty() {
        return "No Auth Manager contexts currently exist\n".into();
    }
    let row = |session: &AuthenticationSession| {
        vec![
            ios_netdev(&session.interface),
            session.mac.to_string(),
            session.method.into(),
            "DATA".into(),
            status(session).into(),
            session.session_id.clone(),
        ]
    };
    let rows: Vec<_> = view.sessions.iter().map(row).collect();
    columns(&["Interface", "MAC Address", "Method", "Domain", "Status", "Session ID"], &rows, &[])
}

/// `show authentication sessions details`.
pub fn details(view: &AuthenticationSessions) -> String {
    if view.sessions.is_empty() {
        return "No Auth Manager contexts match supplied criteria\n".into();
    }
    let mut text = String::new();
    for (number, session) in view.sessions.iter().enumerate() {
        if number > 0 {
            text.push_str("----------------------------------------\n\n");
        }
        // Writing to a string does not fail.
        let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:>20}:  {value}");
        line("Interface", &ios_netdev(&session.interface));
        line("MAC Address", &session.mac.to_string());
        line("User-Name", if session.user.is_empty() { "Unknown" } else { &session.user });
        line("Status", status(session));
        line("Domain", "DATA");
        line("Authorized By", session.authorized_by.unwrap_or("None"));
        line("Vlan", &session.vlan.map_or_else(|| "N/A".into(), |vlan| vlan.to_string()));
        line("Session timeout", &session.timeout_s.map_or_else(|| "N/A".into(), |left| format!("{left}s")));
        line("Timeout action", if session.timeout_s.is_some() { session.timeout_action } else { "N/A" });
        line("Session age", &format!("{}s", session.age_s));
        line("Common Session ID", &session.session_id);
        text.push_str("\nRunnable methods list:\n       Method   State\n");
        let state = match session.status {
            "authorized" => "Authc Success",
            "failed" => "Authc Failed",
            _ => "Running",
        };
        let _ = writeln!(text, "       {:<8} {state}\n", session.method);
    }
    text
}

/// `show dot1x`.
pub fn dot1x_brief(view: &Dot1x) -> String {
    format!(
        "Sysauthcontrol              {}\nDot1x Protocol Version            2\n",
        on(view.system_auth_control)
    )
}

/// `show dot1x all`, `show dot1x interface`.
pub fn dot1x(view: &Dot1x) -> String {
    let mut text = dot1x_brief(view);
    for port in &view.interfaces {
        let head = format!("Dot1x Info for {}", ios_netdev(&port.interface));
        let _ = writeln!(text, "\n{head}\n{}", "-".repeat(head.len()));
        let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:<26}= {value}");
        line("PAE", "AUTHENTICATOR");
        line("PortControl", &port.port_control.to_uppercase().replace('-', "_"));
        line("PortStatus", if port.authorized { "AUTHORIZED" } else { "UNAUTHORIZED" });
        line("HostMode", &port.host_mode.to_uppercase().replace('-', "_"));
        for (name, value) in [
            ("QuietPeriod", port.quiet_period_s),
            ("SuppTimeout", port.supp_timeout_s),
            ("ReAuthMax", port.max_reauth_req.into()),
            ("MaxReq", port.max_req.into()),
            ("TxPeriod", port.tx_period_s),
        ] {
            line(name, &value.to_string());
        }
        line("ReAuthentication", on(port.periodic));
        let period =
            port.reauthenticate_s.map_or_else(|| "From the server".into(), |period| period.to_string());
        line("ReAuthPeriod", &period);
    }
    text
}

/// `show mab`.
pub fn mab(view: &Mab) -> String {
    let mut text = String::new();
    for port in &view.interfaces {
        let head = format!("MAB details for {}", ios_netdev(&port.interface));
        let _ = writeln!(text, "{head}\n{}\nMac-Auth-Bypass           = Enabled", "-".repeat(head.len()));
        let of = |session: &&AuthenticationSession| session.interface == port.interface;
        for session in view.sessions.iter().filter(of) {
            let authorized = if session.status == "authorized" { "AUTHORIZED" } else { "UNAUTHORIZED" };
            let state = match session.status {
                "authorized" => "TERMINATE",
                "failed" => "HELD",
                _ => "AUTHENTICATING",
            };
            let _ = writeln!(
                text,
                "\nClient MAC                = {}\nMAB SM state              = {state}\nAuthen Status             = {authorized}",
                session.mac
            );
        }
        text.push('\n');
    }
    text
}

/// `show aaa servers`.
pub fn servers(view: &RadiusServers) -> String {
    let mut text = String::new();
    for (number, server) in view.servers.iter().enumerate() {
        let _ = writeln!(
            text,
            "RADIUS: id {}, priority {}, host {}, auth-port {}\n     State: current {}",
            number + 1,
            number + 1,
            server.address,
            server.auth_port,
            server.state.to_uppercase()
        );
        let _ = writeln!(
            text,
            "     Authen: request {}, timeouts {}, retransmission {}\n             Response: accept {}, reject {}, challenge {}\n             Response: incorrect {}\n",
            server.requests,
            server.timeouts,
            server.retransmissions,
            server.accepts,
            server.rejects,
            server.challenges,
            server.invalid
        );
    }
    text
}
