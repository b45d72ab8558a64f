//! The entry point for fuzzers: any bytes from clients and servers, through both relays.

use crate::relay4::{Config4, Interface4, Policy, Relay4, Send4, Server4, Source4};
use crate::relay6::{Config6, Interface6, Relay6, Server6};
use crate::{Counter, Message};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The interfaces of the fuzzed relays.
const NAMES: [&str; 2] = ["vlan10", "eth1.20"];

fn relay4(seed: u8) -> Relay4 {
    let mut relay = Relay4::default();
    let interface = |n: u8| Interface4 {
        vrf: None,
        addresses: vec![[10, 0, n, 254].into()],
        servers: vec![Server4 {
            vrf: None,
            address: [192, 0, 2, 1].into(),
            source: (n == 1 && seed & 8 != 0).then_some(Ipv4Addr::new(203, 0, 113, 1)),
        }],
        trusted: seed & 4 != 0,
    };
    let policy = [Policy::Replace, Policy::Keep, Policy::Drop][usize::from(seed % 3)];
    let interfaces = NAMES.into_iter().zip(0u8..).map(|(name, n)| (name.to_owned(), interface(n))).collect();
    relay.configure(Config4 { interfaces, option: seed & 16 != 0, policy, ..Config4::default() });
    relay
}

fn relay6() -> Relay6 {
    let interface = |n: u16| Interface6 {
        vrf: None,
        addresses: vec![Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1)],
        servers: vec![Server6 { address: Ipv6Addr::LOCALHOST, interface: None }],
    };
    let mut relay = Relay6::default();
    let interfaces = NAMES.into_iter().zip(0u16..).map(|(name, n)| (name.to_owned(), interface(n))).collect();
    relay.configure(Config6 { interfaces });
    relay
}

/// Runs bytes through both relays.
///
/// # Panics
///
/// When a message is not counted exactly once, or when a message that is sent cannot be parsed or is too long: these
/// are bugs for the fuzzer to find.
pub fn fuzz(data: &[u8]) {
    let Some((&seed, datagram)) = data.split_first() else { return };
    let name = NAMES[usize::from(seed >> 7)];
    let mut relay = relay4(seed);
    let source = Source4 { vrf: None, address: [192, 0, 2, 1].into() };
    let sends = relay.handle(name, &source, datagram);
    for send in &sends {
        let (Send4::Server { message, .. } | Send4::Client { message, .. }) = send;
        assert!(Message::parse(message).is_some(), "sent what it could not read");
        assert!(message.len() <= datagram.len().max(crate::MAX_MESSAGE) + 64, "{} bytes", message.len());
    }
    let done = |counters: &crate::Counters| {
        counters.iter().filter(|(c, _)| *c != Counter::OptionTooLong).map(|(_, n)| n).sum::<u64>()
    };
    assert_eq!(done(relay.counters()), 1);
    assert_eq!(sends.is_empty(), relay.counters().iter().all(|(c, _)| c > Counter::OptionTooLong));
    let mut relay = relay6();
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5);
    for send in relay.handle(None, name, source, datagram) {
        // A relayed message that is sent back is unwrapped to the original message.
        if send.port == 547 && send.message.first() == Some(&12) {
            let mut back = send.message.clone();
            back[0] = 13;
            let returned = relay.handle(None, name, Ipv6Addr::LOCALHOST, &back);
            assert_eq!(returned.first().map(|send| send.message.as_slice()), Some(datagram));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..700)) {
            fuzz(&data);
        }

        #[test]
        fn nearly_messages(seed in any::<u8>(), op in 1u8..=2, hops in 0u8..20, options in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = vec![seed];
            bytes.extend(crate::bootp::tests::message(op, if hops & 1 == 0 { "10.0.1.254" } else { "" }, hops, &options));
            fuzz(&bytes);
            bytes[1] = 12 + op % 2;
            fuzz(&bytes);
        }
    }
}
