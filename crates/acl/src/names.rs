//! The names that IOS has for protocols, ports, ICMP types and DSCP values. Of several names of a value the first is printed.
//!
//! Numbers: the IANA registries of protocol numbers, service names and ICMP parameters; RFC 2474, 2597 and 3246 for DSCP.

/// Names and their values.
pub type Names<T> = &'static [(&'static str, T)];

/// Protocols of IPv4.
pub const PROTOCOLS: Names<u8> = &[
    ("ahp", 51),
    ("eigrp", 88),
    ("esp", 50),
    ("gre", 47),
    ("icmp", 1),
    ("igmp", 2),
    ("ipinip", 4),
    ("nos", 94),
    ("ospf", 89),
    ("pcp", 108),
    ("pim", 103),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
];

/// The full name of a protocol of [`PROTOCOLS`] or [`PROTOCOLS6`].
pub fn protocol_help(name: &str) -> &'static str {
    match name {
        "ahp" => "Authentication header (RFC 4302)",
        "eigrp" => "Enhanced Interior Gateway Routing Protocol",
        "esp" => "Encapsulating security payload (RFC 4303)",
        "gre" => "Generic routing encapsulation",
        "icmp" => "Internet Control Message Protocol",
        "igmp" => "Internet Group Management Protocol",
        "ipinip" => "IP in IP",
        "nos" => "KA9Q NOS, IP over IP",
        "ospf" => "Open Shortest Path First",
        "pcp" => "IP payload compression (RFC 3173)",
        "pim" => "Protocol Independent Multicast",
        "sctp" => "Stream Control Transmission Protocol",
        "tcp" => "Transmission Control Protocol",
        "udp" => "User Datagram Protocol",
        _ => "A protocol",
    }
}

/// Protocols of IPv6.
pub const PROTOCOLS6: Names<u8> =
    &[("ahp", 51), ("esp", 50), ("icmp", 58), ("pcp", 108), ("sctp", 132), ("tcp", 6), ("udp", 17)];

/// Ports of TCP.
pub const TCP_PORTS: Names<u16> = &[
    ("bgp", 179),
    ("chargen", 19),
    ("cmd", 514),
    ("daytime", 13),
    ("discard", 9),
    ("domain", 53),
    ("echo", 7),
    ("exec", 512),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("gopher", 70),
    ("hostname", 101),
    ("ident", 113),
    ("irc", 194),
    ("klogin", 543),
    ("kshell", 544),
    ("login", 513),
    ("lpd", 515),
    ("nntp", 119),
    ("pim-auto-rp", 496),
    ("pop2", 109),
    ("pop3", 110),
    ("smtp", 25),
    ("sunrpc", 111),
    ("tacacs", 49),
    ("talk", 517),
    ("telnet", 23),
    ("time", 37),
    ("uucp", 540),
    ("whois", 43),
    ("www", 80),
];

/// Ports of UDP.
pub const UDP_PORTS: Names<u16> = &[
    ("biff", 512),
    ("bootpc", 68),
    ("bootps", 67),
    ("discard", 9),
    ("dnsix", 195),
    ("domain", 53),
    ("echo", 7),
    ("isakmp", 500),
    ("mobile-ip", 434),
    ("nameserver", 42),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ss", 139),
    ("non500-isakmp", 4500),
    ("ntp", 123),
    ("pim-auto-rp", 496),
    ("rip", 520),
    ("snmp", 161),
    ("snmptrap", 162),
    ("sunrpc", 111),
    ("syslog", 514),
    ("tacacs", 49),
    ("talk", 517),
    ("tftp", 69),
    ("time", 37),
    ("who", 513),
    ("xdmcp", 177),
];

/// Types of ICMP, with the code where the name includes one.
pub const ICMP: Names<(u8, Option<u8>)> = &[
    ("administratively-prohibited", (3, Some(13))),
    ("dod-host-prohibited", (3, Some(10))),
    ("dod-net-prohibited", (3, Some(9))),
    ("echo", (8, None)),
    ("echo-reply", (0, None)),
    ("host-redirect", (5, Some(1))),
    ("host-unknown", (3, Some(7))),
    ("host-unreachable", (3, Some(1))),
    ("net-redirect", (5, Some(0))),
    ("net-unreachable", (3, Some(0))),
    ("packet-too-big", (3, Some(4))),
    ("parameter-problem", (12, None)),
    ("port-unreachable", (3, Some(3))),
    ("protocol-unreachable", (3, Some(2))),
    ("redirect", (5, None)),
    ("router-advertisement", (9, None)),
    ("router-solicitation", (10, None)),
    ("source-quench", (4, None)),
    ("time-exceeded", (11, None)),
    ("timestamp-reply", (14, None)),
    ("timestamp-request", (13, None)),
    ("ttl-exceeded", (11, Some(0))),
    ("unreachable", (3, None)),
];

/// Types of ICMPv6, with the code where the name includes one.
pub const ICMPV6: Names<(u8, Option<u8>)> = &[
    ("echo-reply", (129, None)),
    ("echo-request", (128, None)),
    ("mld-query", (130, None)),
    ("mld-reduction", (132, None)),
    ("mld-report", (131, None)),
    ("mldv2", (143, None)),
    ("nd-na", (136, None)),
    ("nd-ns", (135, None)),
    ("no-route", (1, Some(0))),
    ("packet-too-big", (2, None)),
    ("parameter-problem", (4, None)),
    ("port-unreachable", (1, Some(4))),
    ("redirect", (137, None)),
    ("router-advertisement", (134, None)),
    ("router-solicitation", (133, None)),
    ("time-exceeded", (3, None)),
    ("unreachable", (1, None)),
];

/// Types of IGMP.
pub const IGMP: Names<u8> = &[
    ("dvmrp", 0x13),
    ("host-query", 0x11),
    ("pim", 0x14),
    ("trace", 0x15),
    ("v2-host-report", 0x16),
    ("v2-leave", 0x17),
    ("v3-host-report", 0x22),
];

/// Values of the differentiated services field.
pub const DSCP: Names<u8> = &[
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("default", 0),
    ("ef", 46),
];

/// Values of the IP precedence field.
pub const PRECEDENCE: Names<u8> = &[
    ("critical", 5),
    ("flash", 3),
    ("flash-override", 4),
    ("immediate", 2),
    ("internet", 6),
    ("network", 7),
    ("priority", 1),
    ("routine", 0),
];

/// Flags of TCP, as bits of byte 13 of its header.
pub const TCP_FLAGS: Names<u8> =
    &[("ack", 0x10), ("fin", 0x01), ("psh", 0x08), ("rst", 0x04), ("syn", 0x02), ("urg", 0x20)];

/// EtherTypes that IOS has names for.
pub const ETHERTYPES: Names<u16> = &[
    ("aarp", 0x80f3),
    ("appletalk", 0x809b),
    ("arp", 0x0806),
    ("decnet-iv", 0x6003),
    ("diagnostic", 0x6005),
    ("etype-6000", 0x6000),
    ("etype-8042", 0x8042),
    ("lat", 0x6004),
    ("lavc-sca", 0x6007),
    ("mop-console", 0x6002),
    ("mop-dump", 0x6001),
    ("vines-ip", 0x0bad),
    ("xns-idp", 0x0600),
];

/// The value of a name.
#[must_use]
pub fn value<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The name of a value.
#[must_use]
pub fn name<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    names.iter().find(|(_, known)| known == value).map(|(name, _)| *name)
}
