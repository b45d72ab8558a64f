//! Every transition of the machines, each with the condition of its figure in IEEE 802.1AX-2014, at the millisecond at which a
//! timer expires, and the absence of a transition one millisecond before.

use super::{churn, mux, periodic, receive};
use crate::config::{Mode, PortConfig};
use crate::pdu::{Lacpdu, PortInfo, State};
use crate::port::{ChurnState, MuxState, PeriodicState, Port, RxState, Selected};
use lanyard_types::MacAddr;

const NOW: u64 = 1_000_000;
const SYNC: u8 = State::SYNCHRONIZATION;
const COLL: u8 = State::COLLECTING;

/// A port with a link, active with the long timeout.
fn port() -> Port {
    let actor = PortInfo {
        system: MacAddr([2, 0, 0, 0, 0, 1]),
        key: 1,
        port: 1,
        state: State(State::ACTIVITY | State::AGGREGATION),
        ..PortInfo::default()
    };
    Port { enabled: true, actor, ..Port::default() }
}

/// A PDU of a partner that knows this port.
fn pdu(of: &Port, bits: u8) -> Lacpdu {
    let state = State(State::ACTIVITY | State::AGGREGATION | bits);
    let actor =
        PortInfo { system: MacAddr([2, 0, 0, 0, 0, 9]), key: 5, port: 3, state, ..PortInfo::default() };
    Lacpdu { actor, partner: of.actor, max_delay: 0 }
}

#[test]
fn receive_figure_6_18() {
    use RxState::{Current, Defaulted, Expired, Initialize, LacpDisabled, PortDisabled};
    let on = PortConfig { mode: Mode::On, ..PortConfig::default() };
    // From, with a link, mode, current_while, to.
    let cases = [
        (Initialize, true, Mode::Active, None, Some(PortDisabled)),
        (PortDisabled, true, Mode::Active, None, Some(Expired)),
        (PortDisabled, true, Mode::On, None, Some(LacpDisabled)),
        (PortDisabled, false, Mode::Active, None, None),
        (Expired, true, Mode::Active, Some(NOW), Some(Defaulted)),
        (Expired, true, Mode::Active, Some(NOW + 1), None),
        (Current, true, Mode::Active, Some(NOW), Some(Expired)),
        (Current, true, Mode::Active, Some(NOW + 1), None),
        (Defaulted, true, Mode::Active, None, None),
        (LacpDisabled, true, Mode::On, None, None),
        (Expired, false, Mode::Active, Some(NOW + 1), Some(PortDisabled)),
        (Current, false, Mode::Active, Some(NOW + 1), Some(PortDisabled)),
        (Defaulted, false, Mode::Active, None, Some(PortDisabled)),
        (LacpDisabled, false, Mode::On, None, Some(PortDisabled)),
    ];
    for (from, enabled, mode, current_while, to) in cases {
        let mut port = Port { rx: from, enabled, current_while, ..port() };
        port.config.mode = mode;
        port.selected = Selected::Selected;
        port.partner = pdu(&port, SYNC).actor;
        let what = format!("{from:?} enabled {enabled} {mode:?} {current_while:?}");
        assert_eq!(receive::run(&mut port, NOW), to.is_some(), "{what}");
        assert_eq!(port.rx, to.unwrap_or(from), "{what}");
        match to {
            None => assert!(port.partner.state.has(SYNC) && port.current_while == current_while, "{what}"),
            Some(PortDisabled) if from == Initialize => {}
            Some(PortDisabled) => assert!(!port.partner.state.has(SYNC), "{what}"),
            Some(Expired) => {
                // The partner is asked to send each second, and has Short_Timeout_Time.
                assert_eq!(port.current_while, Some(NOW + 3000), "{what}");
                assert!(!port.partner.state.has(SYNC) && port.partner.state.has(State::TIMEOUT), "{what}");
                assert!(port.actor.state.has(State::EXPIRED), "{what}");
                assert_eq!(port.selected, Selected::Selected, "{what}: the partner may come back");
            }
            Some(Defaulted) => {
                assert!(port.actor.state.has(State::DEFAULTED) && !port.actor.state.has(State::EXPIRED));
                assert_eq!(port.selected, Selected::Unselected, "{what}: update_Default_Selected");
                assert_eq!(port.partner, Port::partner_admin(), "{what}");
            }
            Some(LacpDisabled) => {
                assert_eq!((port.selected, port.config.mode), (Selected::Unselected, on.mode), "{what}");
                assert!(!port.partner.state.has(State::AGGREGATION), "{what}");
            }
            Some(Current | Initialize) => unreachable!("{what}"),
        }
    }
}

#[test]
fn receive_takes_pdus_in_three_states() {
    use RxState::{Current, Defaulted, Expired, Initialize, LacpDisabled, PortDisabled};
    for rx in [Initialize, PortDisabled, LacpDisabled] {
        let mut port = Port { rx, ..port() };
        let sent = pdu(&port, SYNC);
        receive::take(&mut port, &sent, NOW);
        assert_eq!((port.rx, port.partner), (rx, PortInfo::default()));
    }
    for rx in [Expired, Defaulted, Current] {
        for (short, timeout) in [(false, 90_000), (true, 3000)] {
            let mut port = Port { rx, ..port() };
            port.selected = Selected::Selected;
            port.actor.state.set(State::TIMEOUT, short);
            port.actor.state.set(State::EXPIRED | State::DEFAULTED, true);
            let sent = pdu(&port, SYNC);
            receive::take(&mut port, &sent, NOW);
            assert_eq!((port.rx, port.current_while), (Current, Some(NOW + timeout)), "{rx:?}");
            assert!(!port.actor.state.has(State::EXPIRED) && !port.actor.state.has(State::DEFAULTED));
            assert!(port.partner.state.has(SYNC));
            assert_eq!(port.selected, Selected::Unselected, "update_Selected: another partner than before");
            port.selected = Selected::Selected;
            port.ntt = false;
            let sent = pdu(&port, SYNC);
            receive::take(&mut port, &sent, NOW + 1);
            assert_eq!(
                (port.selected, port.ntt),
                (Selected::Selected, false),
                "the same partner, which knows all"
            );
        }
    }
}

/// update_NTT and recordPDU (6.4.9): a PDU is sent if the partner's information about the port is wrong, and the partner is in
/// sync only if its information is about this port.
#[test]
fn partner_information_about_the_port_determines_ntt_and_sync() {
    for (bits, ntt) in [(State::ACTIVITY, true), (State::TIMEOUT, true), (State::EXPIRED, false)] {
        let mut port = Port { rx: RxState::Current, ..port() };
        let mut sent = pdu(&port, SYNC);
        sent.partner.state = State(sent.partner.state.0 ^ bits);
        receive::take(&mut port, &sent, NOW);
        assert_eq!((port.ntt, port.partner.state.has(SYNC)), (ntt, true), "{bits:#x}");
    }
    let mut port = Port { rx: RxState::Current, ..port() };
    let mut sent = pdu(&port, SYNC);
    sent.partner.port = 77;
    receive::take(&mut port, &sent, NOW);
    assert!(port.ntt && !port.partner.state.has(SYNC));
}

#[test]
fn periodic_figure_6_19() {
    use PeriodicState::{Fast, None as Silent, Slow};
    // From, partner's timeout is short, enabled, timer, to, the timer afterwards, whether a PDU leaves.
    let cases = [
        (Silent, true, true, None, Fast, Some(1000), false),
        (Silent, false, true, None, Slow, Some(30_000), false),
        (Silent, true, false, None, Silent, None, false),
        (Fast, true, true, Some(0), Fast, Some(1000), true),
        (Fast, true, true, Some(1), Fast, Some(1), false),
        (Fast, false, true, Some(500), Slow, Some(30_000), false),
        (Fast, true, false, Some(500), Silent, None, false),
        (Slow, false, true, Some(0), Slow, Some(30_000), true),
        (Slow, false, true, Some(1), Slow, Some(1), false),
        (Slow, true, true, Some(20_000), Fast, Some(1000), true),
        (Slow, false, false, Some(500), Silent, None, false),
    ];
    for (from, short, enabled, timer, to, after, ntt) in cases {
        let mut port = Port { periodic: from, enabled, ..port() };
        port.partner.state.set(State::TIMEOUT, short);
        port.periodic_timer = timer.map(|ms| NOW + ms);
        let what = format!("{from:?} short {short} enabled {enabled} {timer:?}");
        periodic::run(&mut port, NOW);
        let found = (port.periodic, port.periodic_timer, port.ntt);
        assert_eq!(found, (to, after.map(|ms| NOW + ms), ntt), "{what}");
    }
    // A passive port is silent to a passive partner (6.4.13).
    let mut port = port();
    port.actor.state.set(State::ACTIVITY, false);
    periodic::run(&mut port, NOW);
    assert_eq!(port.periodic, PeriodicState::None);
    port.partner.state.set(State::ACTIVITY, true);
    periodic::run(&mut port, NOW);
    assert_eq!(port.periodic, PeriodicState::Slow);
}

#[test]
fn mux_figure_6_21() {
    use MuxState::{Attached, Collecting, Detached, Distributing, Waiting};
    use Selected::{Selected as Yes, Standby, Unselected as No};
    // From, Selected, Ready, the partner's bits, to.
    let cases = [
        (Detached, No, true, SYNC | COLL, Detached),
        (Detached, Yes, false, 0, Waiting),
        (Detached, Standby, false, 0, Waiting),
        (Waiting, Yes, false, SYNC, Waiting),
        (Waiting, Standby, true, SYNC, Waiting),
        (Waiting, No, true, SYNC, Detached),
        (Waiting, Yes, true, 0, Attached),
        (Attached, Yes, true, 0, Attached),
        (Attached, Yes, true, SYNC, Collecting),
        (Attached, No, true, SYNC, Detached),
        (Attached, Standby, true, SYNC, Detached),
        (Collecting, Yes, true, SYNC, Collecting),
        (Collecting, Yes, true, SYNC | COLL, Distributing),
        (Collecting, Yes, true, COLL, Attached),
        (Collecting, No, true, SYNC | COLL, Attached),
        (Collecting, Standby, true, SYNC | COLL, Attached),
        (Distributing, Yes, true, SYNC | COLL, Distributing),
        (Distributing, Yes, true, SYNC, Collecting),
        (Distributing, Yes, true, COLL, Collecting),
        (Distributing, No, true, SYNC | COLL, Collecting),
        (Distributing, Standby, true, SYNC | COLL, Collecting),
    ];
    let all = SYNC | COLL | State::DISTRIBUTING;
    for (from, selected, ready, partner, to) in cases {
        let mut port = Port { mux: from, selected, ..port() };
        // The values that the states before have set.
        let own = match from {
            Detached | Waiting => 0,
            Attached => SYNC,
            Collecting => SYNC | COLL,
            Distributing => all,
        };
        port.actor.state.set(own, true);
        port.partner.state = State(partner);
        let what = format!("{from:?} {selected:?} ready {ready} partner {partner:#x}");
        assert_eq!(mux::run(&mut port, ready, NOW), from != to, "{what}");
        assert_eq!(port.mux, to, "{what}");
        let bits = match to {
            _ if from == to => own,
            Detached | Waiting => 0,
            // Entered from COLLECTING, the port stops collecting; in both states it is in sync.
            Attached => SYNC,
            Collecting => SYNC | COLL,
            Distributing => all,
        };
        assert_eq!(port.actor.state.0 & all, bits, "{what}");
        assert_eq!(port.ntt, from != to && to != Waiting, "{what}");
        assert_eq!(port.wait_while, (from != to && to == Waiting).then_some(NOW + 2000), "{what}");
    }
}

#[test]
fn the_mux_waits_for_aggregate_wait_time() {
    let mut port = Port { selected: Selected::Selected, ..port() };
    mux::run(&mut port, false, NOW);
    assert_eq!((port.mux, mux::has_waited(&port, NOW)), (MuxState::Waiting, false));
    assert!(!mux::has_waited(&port, NOW + 1999) && mux::has_waited(&port, NOW + 2000));
    mux::run(&mut port, false, NOW + 2000);
    assert_eq!((port.mux, port.wait_while), (MuxState::Waiting, None), "others wait yet");
    mux::run(&mut port, true, NOW + 5000);
    assert_eq!(port.mux, MuxState::Attached);
}

#[test]
fn churn_figures_6_23_and_6_24() {
    use ChurnState::{Churn, Monitor, None as NoChurn};
    // Both machines at once: the actor's, and the partner's with the same inputs.
    let cases = [
        (Monitor, false, None, Monitor, Some(60_000), false),
        (Monitor, false, Some(1), Monitor, Some(1), false),
        (Monitor, false, Some(0), Churn, None, true),
        (Monitor, true, Some(1), NoChurn, None, false),
        (NoChurn, true, None, NoChurn, None, false),
        (NoChurn, false, None, Monitor, Some(60_000), false),
        (Churn, false, None, Churn, None, false),
        (Churn, true, None, NoChurn, None, false),
    ];
    for (from, in_sync, timer, to, after, found) in cases {
        let mut port = Port { actor_churn: from, partner_churn: from, ..port() };
        (port.actor_churn_timer, port.partner_churn_timer) =
            (timer.map(|ms| NOW + ms), timer.map(|ms| NOW + ms));
        port.actor.state.set(SYNC, in_sync);
        port.partner.state.set(SYNC, in_sync);
        let what = format!("{from:?} in sync {in_sync} {timer:?}");
        assert_eq!(churn::run(&mut port, NOW), found, "{what}");
        assert_eq!((port.actor_churn, port.partner_churn), (to, to), "{what}");
        let after = after.map(|ms| NOW + ms);
        assert_eq!((port.actor_churn_timer, port.partner_churn_timer), (after, after), "{what}");
    }
    // Without a link, or without LACP, nothing is monitored.
    for (enabled, mode) in [(false, Mode::Active), (true, Mode::On)] {
        let mut port = Port { actor_churn: Churn, enabled, ..port() };
        port.config.mode = mode;
        assert!(!churn::run(&mut port, NOW));
        assert_eq!((port.actor_churn, port.actor_churn_timer), (Monitor, None));
    }
}
