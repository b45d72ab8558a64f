//! TACACS+ servers as text, in IOS's form.

use crate::view::TacacsServers;
use std::fmt::Write;

/// `show tacacs`.
pub fn servers(view: &TacacsServers) -> String {
    let mut text = String::new();
    for server in &view.servers {
        text.push_str("\nTacacs+ Server -  public  :\n");
        // Writing to a string does not fail.
        let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:>26}: {value}");
        line("Server name", &server.name);
        line("Server address", &server.address);
        line("Server port", &server.port.to_string());
        line("Server state", &server.state.to_uppercase());
        for (name, value) in [
            ("Socket opens", server.socket_opens),
            ("Socket closes", server.socket_closes),
            ("Socket aborts", server.socket_aborts),
            ("Socket errors", server.socket_errors),
            ("Socket Timeouts", server.socket_timeouts),
            ("Failed Connect Attempts", server.failed_connects),
            ("Total Packets Sent", server.packets_sent),
            ("Total Packets Recv", server.packets_received),
            ("Invalid Packets Recv", server.invalid),
            ("Accepted", server.accepts),
            ("Rejected", server.rejects),
        ] {
            line(name, &value.to_string());
        }
    }
    text
}
