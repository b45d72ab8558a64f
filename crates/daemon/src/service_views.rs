//! The commands that show tracked objects, virtual routers, the DHCP relays and the FPM server.

use crate::core::Core;
use crate::{tracking, vrrp};
use lanyard_cli::backend::Services;
use lanyard_cli::view;
use lanyard_types::Family;

impl Services for Core {
    fn tracks(&mut self) -> view::Tracks {
        tracking::view(&self.ctx)
    }
    fn vrrp(&mut self) -> view::Vrrps {
        vrrp::view(&self.ctx, &self.children)
    }
    fn dhcp_relay(&mut self, family: Family) -> view::Relay {
        self.relaying.view(family)
    }
    fn fpm(&mut self) -> view::Fpm {
        self.fpm.view(&self.ctx)
    }
    fn erspan(&mut self, session: u16) -> view::ErspanState {
        self.erspan.view(&mut self.ctx, session)
    }
    fn erspan_received(&mut self, session: u16) -> view::ErspanReceived {
        self.erspan_destinations.view(&self.ctx, session)
    }
    fn sflow(&mut self) -> view::SflowView {
        self.sflow.view(&self.ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Module;
    use crate::fpm::Event;
    use crate::testing::{Bench, accept, config};
    use lanyard_cli::view::ErspanReceived;

    /// The configuration is accepted without being carried out, because this would start keepalived where it is installed.
    #[test]
    fn each_command_shows_the_state_of_its_service() {
        const TEXT: &str = "track 5 interface eth1 line-protocol\ninterface eth1\n no switchport\n \
            ip address 10.0.0.2 255.255.255.0\n vrrp 7 ip 10.0.0.1\n vrrp 7 track 5\n\
            interface eth2\n switchport\nsflow agent-ip 192.0.2.1\nsflow collector 127.0.0.1 port 9\n\
            monitor session 2 type erspan-destination\n destination interface eth2\n no shutdown\n source\n  \
            erspan-id 100\n  ip address 192.0.2.10";
        let bench = Bench::new();
        let mut core = bench.core();
        accept(&mut core.ctx, config(TEXT));
        core.sflow.configure(&mut core.ctx);
        core.erspan_destinations.configure(&mut core.ctx);

        let tracks = core.tracks().tracks;
        assert_eq!(tracks.len(), 1);
        assert_eq!((tracks[0].track, &tracks[0].tracked_by[..]), (5, &["VRRP eth1 7".to_owned()][..]));
        let groups = core.vrrp().groups;
        assert_eq!(groups.iter().map(|group| (group.group, group.state)).collect::<Vec<_>>(), [(7, "init")]);

        assert_eq!((core.fpm().client, core.fpm().since_s), (None, None));
        let client = "127.0.0.1:2620".parse().expect("an address");
        core.fpm_event(Event::Connected(client));
        bench.clock.set(5_000);
        assert_eq!((core.fpm().client.as_deref(), core.fpm().since_s), (Some("127.0.0.1:2620"), Some(5)));

        let sflow = core.sflow();
        assert_eq!((sflow.running, sflow.agent_address), (true, Some([192, 0, 2, 1].into())));
        assert_eq!(sflow.collectors.iter().map(|to| to.port).collect::<Vec<_>>(), [9]);

        // Without the right to raw sockets, and without the address, the session reports an error.
        let received = core.erspan_received(2);
        assert!(received.running || received.error.is_some(), "{received:?}");
        assert_eq!(core.erspan_received(3), ErspanReceived::default(), "there is no such session");
        assert_eq!((core.erspan(2).running, core.erspan(2).error), (false, None), "it sends nothing");
        for family in [Family::V4, Family::V6] {
            let relay = core.dhcp_relay(family);
            assert!(relay.interfaces.is_empty() && relay.error.is_none(), "no relay is configured");
        }
    }
}
