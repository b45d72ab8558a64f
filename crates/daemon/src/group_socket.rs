//! The control socket of a Unix group: `platform socket group`.
//!
//! The instance's own directory is closed to other users, because it holds more than the socket; so the group's socket is in
//! a directory of its own, [`directory`], with the group's rights.
//!
//! Invariant: the socket exists if and only if the running configuration has the line.

use crate::identity;
use crate::os;
use crate::paths::Paths;
use lanyard_config::access::SocketGroup;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::rc::Rc;
use tokio::sync::Notify;

/// Why a group gets no socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupSocketError {
    #[error("there is no Unix group {0}: create it first, for example with groupadd")]
    NoGroup(String),
    #[error("platform socket group: {}: {cause}", path.display())]
    Socket {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// A listening socket and its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Listening {
    group: SocketGroup,
    socket: Rc<StdListener>,
}

/// The group's socket.
#[derive(Debug, Default)]
pub(crate) struct GroupSocket {
    listening: Option<Listening>,
    changed: Rc<Notify>,
}

impl GroupSocket {
    /// Opens the socket for a configuration that is about to be taken. Returns the present socket if the group has the same
    /// name.
    ///
    /// # Errors
    /// When the system has no such group, or the socket cannot be made.
    pub(crate) fn prepare(
        &self,
        paths: &Paths,
        group: Option<&SocketGroup>,
    ) -> Result<Option<Listening>, GroupSocketError> {
        let Some(group) = group else { return Ok(None) };
        if let Some(present) = self.listening.as_ref().filter(|present| present.group.name == group.name) {
            return Ok(Some(Listening { group: group.clone(), ..present.clone() }));
        }
        let id =
            identity::group_id(&group.name).ok_or_else(|| GroupSocketError::NoGroup(group.name.clone()))?;
        let path = paths.group_socket();
        let socket = open(&path, id).map_err(|cause| GroupSocketError::Socket { path, cause })?;
        Ok(Some(Listening { group: group.clone(), socket: Rc::new(socket) }))
    }
    /// The socket to listen at, and its group; `None` when there is none.
    pub(crate) fn listening(&self) -> Option<(SocketGroup, StdListener)> {
        let listening = self.listening.as_ref()?;
        Some((listening.group.clone(), listening.socket.try_clone().ok()?))
    }
    /// Notified when [`GroupSocket::listening`] has changed.
    pub(crate) fn changed(&self) -> Rc<Notify> {
        self.changed.clone()
    }
    /// Uses the socket that was prepared. Sessions of another group's socket end with their clients.
    pub(crate) fn adopt(&mut self, paths: &Paths, listening: Option<Listening>) {
        let group = |of: &Option<Listening>| of.as_ref().map(|listening| listening.group.clone());
        if group(&self.listening) == group(&listening) {
            return;
        }
        if listening.is_none() {
            let _ = std::fs::remove_file(paths.group_socket());
        }
        self.listening = listening;
        self.changed.notify_one();
    }
}

/// Opens the socket so that nobody outside the group can connect at any time.
fn open(path: &std::path::Path, group: u32) -> io::Result<StdListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    }
    let new = path.with_extension("sock-new");
    for path in [&new, path] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let socket = os::private(|| StdListener::bind(&new))?;
    socket.set_nonblocking(true)?;
    std::os::unix::fs::chown(&new, None, Some(group))?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o660))?;
    std::fs::rename(&new, path)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_socket_follows_the_configuration() {
        let paths = Bench::new().paths();
        // The group of the process: an unprivileged user may give files to no other.
        let own = std::fs::metadata("/proc/self").expect("proc").gid();
        let text = std::fs::read_to_string("/etc/group").expect("read");
        let mine = |line: &&str| line.split(':').nth(2) == Some(&own.to_string());
        let Some(line) = text.lines().find(mine) else {
            println!("skipped: the group of this process has no name");
            return;
        };
        let name = line.split(':').next().expect("a name").to_owned();
        let group = SocketGroup { name, level: None };
        let mut sockets = GroupSocket::default();
        let listening = sockets.prepare(&paths, Some(&group)).expect("opened");
        sockets.adopt(&paths, listening);
        let meta = std::fs::metadata(paths.group_socket()).expect("there");
        assert_eq!((meta.mode() & 0o777, meta.gid()), (0o660, own));
        let level = SocketGroup { level: Some(7), ..group.clone() };
        let listening = sockets.prepare(&paths, Some(&level)).expect("the same socket");
        assert!(Rc::ptr_eq(
            &listening.as_ref().expect("one").socket,
            &sockets.listening.as_ref().expect("one").socket
        ));
        sockets.adopt(&paths, listening);
        let absent = SocketGroup { name: "lanyard-test-absent".into(), level: None };
        let error = sockets.prepare(&paths, Some(&absent)).expect_err("no group").to_string();
        assert!(error.starts_with("there is no Unix group lanyard-test-absent"), "{error}");
        sockets.adopt(&paths, None);
        assert!(!paths.group_socket().exists());
    }
}
