//! The settings of the appliance, as opposed to its network: names of interfaces, time, the log.

use lanyard_acl::time::Minute;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The maximum number of receivers of the log.
pub const MAX_LOG_HOSTS: usize = 8;

/// Settings of the appliance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appliance {
    /// `platform interface-name NETDEV NAME`: by netdev, the name that the interface has on a Catalyst.
    pub interface_names: BTreeMap<String, String>,
    /// `clock timezone`; `None` is UTC.
    pub timezone: Option<Timezone>,
    /// `logging buffered`: the buffer keeps messages up to this severity number, 0 (most important) to 7; `None`
    /// after `no logging buffered`.
    pub log_buffered: Option<u8>,
    /// `logging trap`: receivers get messages up to this severity number, 0 to 7; `None` after `no logging trap`.
    pub log_trap: Option<u8>,
    /// `logging host`, at most [`MAX_LOG_HOSTS`], each address once.
    pub log_hosts: Vec<LogHost>,
    /// `logging rate-limit`: the limit for all messages of the log.
    pub log_rate: Option<LogRate>,
    /// `logging rate-limit console`: the limit for messages that the daemon writes to stderr.
    pub log_console_rate: Option<LogRate>,
    /// `logging persistent`: the log in files.
    pub log_persistent: Option<LogPersistent>,
    /// `ntp server`, at most [`MAX_NTP_SERVERS`], each host once.
    pub ntp_servers: Vec<NtpServer>,
}

/// The maximum number of NTP servers.
pub const MAX_NTP_SERVERS: usize = 8;

/// `ntp server HOST [iburst] [prefer]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtpServer {
    /// The server's name or address.
    pub host: String,
    /// `iburst`: true if the first requests are sent in quick succession.
    pub iburst: bool,
    /// `prefer`: true if this server is preferred to the others.
    pub prefer: bool,
}

impl Appliance {
    /// Converts a minute in UTC to local time in the configured time zone.
    #[must_use]
    pub fn local(&self, utc: Minute) -> Minute {
        utc.in_zone(self.timezone.as_ref().map_or(0, |zone| zone.minutes))
    }
}

impl Default for Appliance {
    fn default() -> Self {
        Self {
            interface_names: BTreeMap::new(),
            timezone: None,
            log_buffered: Some(LOWEST_SEVERITY),
            log_trap: Some(TRAP_SEVERITY),
            log_hosts: Vec::new(),
            log_rate: None,
            log_console_rate: None,
            log_persistent: None,
            ntp_servers: Vec::new(),
        }
    }
}

/// Debugging, the severity of the least important messages.
pub const LOWEST_SEVERITY: u8 = 7;
/// Informational, the default of `logging trap`.
pub const TRAP_SEVERITY: u8 = 6;

/// `logging rate-limit [console] [all] N [except SEVERITY]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRate {
    /// The rate in messages per second, 1..=10,000. The burst is the messages of one second.
    pub per_s: u32,
    /// `all`: true if debugging messages are limited as well; false if they are exempt.
    pub debugging: bool,
    /// `except SEVERITY`: messages of this severity and of more important ones are not limited.
    pub except: Option<u8>,
}

impl LogRate {
    /// True when messages of this severity are limited.
    #[must_use]
    pub fn limits(&self, severity: u8) -> bool {
        let is_excepted = self.except.is_some_and(|highest| severity <= highest);
        !is_excepted && (self.debugging || severity < LOWEST_SEVERITY)
    }
}

/// `logging persistent [size BYTES] [filesize BYTES]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPersistent {
    /// The maximum length of all files together, in bytes.
    pub size: u64,
    /// The maximum length of one file, in bytes.
    pub file_size: u64,
}

impl Default for LogPersistent {
    fn default() -> Self {
        Self { size: 4 << 20, file_size: 256 << 10 }
    }
}

/// The maximum number of files of `logging persistent`.
pub const MAX_LOG_FILES: u64 = 10_000;

/// `clock timezone NAME HOURS [MINUTES]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timezone {
    /// The zone's name, such as `CET`.
    pub name: String,
    /// Minutes east of UTC, -1439..=1439.
    pub minutes: i32,
}

/// The transport protocol to a receiver of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogTransport {
    /// Syslog over UDP, RFC 5426.
    #[default]
    Udp,
    /// Syslog over TCP, RFC 6587.
    Tcp,
    /// Syslog over TLS, RFC 5425.
    Tls,
}

impl LogTransport {
    /// Its keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// `logging host ADDRESS [transport udp|tcp|tls] [port N] [name HOST]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHost {
    /// The receiver's address.
    pub address: IpAddr,
    /// The transport protocol.
    pub transport: LogTransport,
    /// The receiver's port; `None`: the default of the transport protocol.
    pub port: Option<u16>,
    /// For TLS: the name in the receiver's certificate; `None`: the certificate names the address.
    pub name: Option<String>,
}

impl LogHost {
    /// The receiver's port: by default 514 for UDP, 601 for TCP (RFC 3195, 9.2), 6514 for TLS (RFC 5425, 4.1), as
    /// in IOS.
    #[must_use]
    pub fn port(&self) -> u16 {
        let default = match self.transport {
            LogTransport::Udp => 514,
            LogTransport::Tcp => 601,
            LogTransport::Tls => 6514,
        };
        self.port.unwrap_or(default)
    }
}

impl Appliance {
    /// The netdev that a Catalyst's name of an interface stands for, such as `GigabitEthernet1/0/1`, `gi1/0/1` or
    /// `Gi1/0/1.100`. `None` when no name matches, or several do.
    #[must_use]
    pub fn netdev_of(&self, name: &str) -> Option<String> {
        let (kind, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let (number, subinterface) = rest.split_once('.').map_or((rest, None), |(n, sub)| (n, Some(sub)));
        if kind.len() < 2 || !kind.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        let is = |ios: &str| {
            let at = ios.find(|c: char| c.is_ascii_digit()).unwrap_or(ios.len());
            let (of, its) = ios.split_at(at);
            let begins = of.get(..kind.len()).is_some_and(|head| head.eq_ignore_ascii_case(kind));
            begins && its == number
        };
        let mut found = self.interface_names.iter().filter(|(_, ios)| is(ios)).map(|(netdev, _)| netdev);
        let netdev = found.next().filter(|_| found.next().is_none())?;
        Some(subinterface.map_or_else(|| netdev.clone(), |number| format!("{netdev}.{number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces() {
        let names = [
            ("eth1", "GigabitEthernet1/0/1"),
            ("eth11", "GigabitEthernet1/0/11"),
            ("xe0", "TenGigabitEthernet1/1/1"),
            ("xe1", "TwentyFiveGigE1/1/1"),
            ("xe2", "TwoGigabitEthernet1/1/1"),
        ];
        let interface_names = names.map(|(netdev, name)| (netdev.to_owned(), name.to_owned())).into();
        let appliance = Appliance { interface_names, ..Appliance::default() };
        let check = |name: &str, netdev: Option<&str>| {
            assert_eq!(appliance.netdev_of(name).as_deref(), netdev, "{name}");
        };
        for name in ["GigabitEthernet1/0/1", "gigabitethernet1/0/1", "Gi1/0/1", "gig1/0/1"] {
            check(name, Some("eth1"));
        }
        check("Gi1/0/11", Some("eth11"));
        check("Gi1/0/1.100", Some("eth1.100"));
        check("Te1/1/1", Some("xe0"));
        check("Twe1/1/1", Some("xe1"));
        for name in
            ["Tw1/1/1", "G1/0/1", "Gi1/0/2", "Gi", "1/0/1", "FastEthernet1/0/1", "", "gigabitethernets1/0/1"]
        {
            check(name, None);
        }
    }
}
