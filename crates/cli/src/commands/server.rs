//! The common parts of the lines of RADIUS and TACACS+ servers: named servers in the order in which they are tried, addresses,
//! keys.

use super::access::reveal;
use super::need;
use crate::args::{Args, Form, Kind, MAX_WORD};
use crate::backend::Refusal;
use crate::tree::{Node, arg, kw};
use std::net::IpAddr;

/// The keyword before a key in plain text.
pub(super) const KEY_0: Node = kw("0", "Specifies an UNENCRYPTED key will follow");
/// The keyword before a key of type 7.
pub(super) const KEY_7: Node = kw("7", "Specifies HIDDEN key will follow");
/// The argument for a key of type 7.
pub(super) const HIDDEN_KEY: Node = arg(Kind::Word("HIDDEN", MAX_WORD), "The HIDDEN shared key");

/// Removes the server that a `no` line names, or adds one for a plain line unless there is one already. Returns its name if the
/// line leads to it.
pub(super) fn enter<T: Default>(
    servers: &mut Vec<(String, T)>,
    args: &Args,
    (kind, keyword, max): (&str, &str, usize),
) -> Result<Option<String>, Refusal> {
    let name = need(args.text())?;
    if args.form != Form::Set {
        servers.retain(|(held, _)| *held != name);
        return Ok(None);
    }
    if !servers.iter().any(|(held, _)| *held == name) {
        if servers.len() >= max {
            let text = format!(
                "there are {max} {kind} servers, as many as the switch asks: remove one with no {keyword} server"
            );
            return Err(text.into());
        }
        servers.push((name.clone(), T::default()));
    }
    Ok(Some(name))
}

/// The first address of a line, which must be unicast to be the address of a server.
pub(super) fn address(args: &Args) -> Result<IpAddr, Refusal> {
    let made = need(args.addresses().first().copied())?;
    if made.is_unspecified() || made.is_multicast() {
        return Err(format!("{made} is not the address of a server: enter a unicast address").into());
    }
    Ok(made)
}

/// The key of a line, the last text in it, in plain text; `None` for a `no` line.
pub(super) fn key(args: &Args) -> Result<Option<String>, Refusal> {
    if args.form != Form::Set {
        return Ok(None);
    }
    let text = need(args.texts().pop())?;
    if args.among(&[("0", false), ("7", true)]) == Some(true) {
        return reveal(&text).map(Some);
    }
    if text.starts_with("6 ") {
        return Err("an encrypted key cannot be used: enter the key itself, after 0".into());
    }
    Ok(Some(text))
}
