//! The user at the other end of a local socket, from the kernel's peer credentials (SO_PEERCRED, unix(7)); never from a name
//! that the client sends.
//!
//! Invariant: no system service is asked for a name, because management must not wait for one: names come from /etc/passwd.

use lanyard_cli::Login;
use lanyard_config::access::{LEVEL_MAX, LEVEL_USER, SocketGroup};

/// The largest /etc/passwd or /etc/group that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A Unix socket of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocalSocket {
    /// The control socket, for the user of the daemon and root.
    Owner,
    /// The socket of `platform socket group`.
    Group(SocketGroup),
}

/// Why a local user gets no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPermitted {
    #[error("uid {0} may not use this control socket: it belongs to uid {1}")]
    Stranger(u32, u32),
    #[error("the kernel does not report which user is connected")]
    Unknown,
}

/// The login of the user with `uid` over `socket`; the daemon runs as `own`.
///
/// # Errors
/// When the user may not use the socket.
pub(crate) fn login(socket: &LocalSocket, uid: Option<u32>, own: u32) -> Result<Login, NotPermitted> {
    let uid = uid.ok_or(NotPermitted::Unknown)?;
    let user = user_name(uid);
    let login = Login { user, ..Login::default() };
    if uid == 0 || uid == own {
        return Ok(login);
    }
    match socket {
        LocalSocket::Owner => Err(NotPermitted::Stranger(uid, own)),
        LocalSocket::Group(SocketGroup { level: Some(level), .. }) => {
            Ok(Login { level: *level, limit: LEVEL_MAX, ..login })
        }
        LocalSocket::Group(SocketGroup { level: None, .. }) => {
            Ok(Login { level: LEVEL_USER, limit: LEVEL_USER, ..login })
        }
    }
}

/// The name of a user.
fn user_name(uid: u32) -> String {
    let name = entry("/etc/passwd", |fields| fields.get(2) == Some(&uid.to_string().as_str()));
    name.map_or_else(|| format!("uid {uid}"), |fields| fields[0].clone())
}

/// The number of a Unix group; `None` when the system has none of this name.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    entry("/etc/group", |fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

/// The fields of the first line of a file that `is` accepts.
fn entry(path: &str, is: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| is(fields))?;
    Some(fields.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_their_levels() {
        let group = |level| LocalSocket::Group(SocketGroup { name: "staff".into(), level });
        let levels = |socket, uid| login(&socket, Some(uid), 77).map(|login| (login.level, login.limit)).ok();
        for (socket, uid, want) in [
            (LocalSocket::Owner, 0, Some((15, 15))),
            (LocalSocket::Owner, 77, Some((15, 15))),
            (LocalSocket::Owner, 78, None),
            (group(None), 0, Some((15, 15))),
            (group(None), 78, Some((1, 1))),
            (group(Some(7)), 78, Some((7, 15))),
            (group(Some(0)), 78, Some((0, 15))),
        ] {
            assert_eq!(levels(socket.clone(), uid), want, "{socket:?} {uid}");
        }
        assert_eq!(login(&LocalSocket::Owner, None, 0), Err(NotPermitted::Unknown));
    }

    #[test]
    fn names_of_the_system() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "uid 4000000000");
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("lanyard-test-absent"), None);
    }
}
