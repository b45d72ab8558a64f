//! [`SourceMember`]: a host's membership of a multicast group for all sources but one, or for one source.

use super::Net;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is a member of a group and includes a source, or excludes it. The membership ends when this is dropped.
pub struct SourceMember(Child);

impl SourceMember {
    pub fn new(net: &Net, group: Ipv4Addr, source: &str, exclude: bool) -> Option<Self> {
        if !Path::new("/usr/bin/python3").exists() {
            println!("skipped: python3 is not installed");
            return None;
        }
        let options = match exclude {
            // IP_ADD_MEMBERSHIP, then IP_BLOCK_SOURCE.
            true => "s.setsockopt(0,35,g+i); s.setsockopt(0,38,g+i+a)",
            // IP_ADD_SOURCE_MEMBERSHIP.
            false => "s.setsockopt(0,39,g+i+a)",
        };
        let program = format!(
            "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); n=socket.inet_aton; \
             g=n('{group}'); i=n('0.0.0.0'); a=n('{source}'); {options}; time.sleep(600)"
        );
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", &program]).stdin(Stdio::null());
        Some(Self(net.spawn(&mut command)))
    }
}

impl Drop for SourceMember {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
