//! Views of port-channels: the first member of each is bundled, the others are suspended.

use super::Fake;
use lanyard_cli::backend::Aggregation;
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_types::{ChannelId, MacAddr};

impl Aggregation for Fake {
    fn channels(&mut self) -> view::Channels {
        let settings = &self.config.aggregation;
        let side = |system_priority, mac: u8, port, state: u8| view::LacpPort {
            system_priority,
            system: MacAddr([2, 0, 0, 0, 0, mac]),
            key: 1,
            port_priority: 32_768,
            port,
            state: lanyard_lacp::pdu::State(state).letters(),
            state_bits: state,
        };
        let member = |(at, (name, interface)): (usize, (&InterfaceName, &lanyard_config::Interface))| {
            let on = interface.aggregation.group.is_some_and(|(_, mode)| mode == lanyard_lacp::Mode::On);
            let (state, flag) = if at == 0 { ("bundled", 'P') } else { ("suspended", 's') };
            let lacp = view::LacpMember {
                actor: side(settings.system_priority, 1, at as u16 + 1, 0x3d),
                partner: side(32_768, 9, 7, 0x3f),
                receive: "current",
                mux: "distributing",
                actor_churn: "no_churn",
                partner_churn: "no_churn",
                sent: 12,
                received: 11,
                markers: 1,
                marker_responses: 1,
                errors: [("version", 2)].into(),
            };
            view::ChannelMember {
                interface: name.to_string(),
                mode: if on { "on" } else { "active" },
                bundled: at == 0,
                state,
                flag,
                buckets: if at == 0 { 256 } else { 0 },
                lacp: (!on).then_some(lacp),
            }
        };
        let channel = |(number, interface): (ChannelId, &lanyard_config::Interface)| {
            let members: Vec<_> = self.config.members(number).enumerate().map(member).collect();
            view::Channel {
                name: format!("port-channel{number}"),
                number: number.get(),
                protocol: if members.iter().any(|member| member.mode == "on") { "static" } else { "lacp" },
                up: members.iter().any(|member| member.bundled) && !interface.shutdown,
                shutdown: interface.shutdown,
                routed: interface.is_routed(),
                min_links: interface.aggregation.min_links,
                max_bundle: interface.aggregation.max_bundle,
                members,
            }
        };
        view::Channels {
            system: view::LacpSystem { priority: settings.system_priority, mac: MacAddr([2, 0, 0, 0, 0, 1]) },
            load_balance: view::ChannelBalance {
                method: settings.load_balance.keyword(),
                symmetric: settings.symmetric,
            },
            channels: self.config.channels().map(channel).collect(),
        }
    }
    fn clear_lacp_counters(&mut self) {
        self.cleared.push("lacp".into());
    }
}
