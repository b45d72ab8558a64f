//! `show ip igmp snooping ...` and `show ipv6 mld snooping ...` as text, in IOS's form.

use super::table::columns;
use crate::view::{Snooping, SnoopingGroups, SnoopingQueriers, SnoopingRouters};
use std::fmt::Write;

fn on(on: bool) -> &'static str {
    if on { "Enabled" } else { "Disabled" }
}

/// `show ... snooping`.
pub fn snooping(view: &Snooping) -> String {
    let mut text = String::new();
    let igmp = view.protocol == "igmp";
    let (name, suppression, last) = if igmp {
        ("IGMP", "Report suppression", "Last member")
    } else {
        ("MLD", "Listener message suppression", "Last listener")
    };
    let enabled = match (view.enabled, view.supported) {
        (true, false) => "Enabled, but this plane has no table of groups: it floods them",
        (is, _) => on(is),
    };
    // Writing to a string does not fail.
    let _ =
        writeln!(text, "Global {name} Snooping configuration:\n-------------------------------------------");
    let _ = writeln!(text, "{:<28} : {enabled}", format!("{name} snooping"));
    let _ = writeln!(text, "{suppression:<28} : {}", on(view.report_suppression));
    let _ = writeln!(text, "{:<28} : {}", "Proxy reporting", on(view.proxy));
    if igmp {
        let _ = writeln!(text, "{:<28} : {}", "TCN solicit query", on(view.tcn_query_solicit));
    }
    let _ = writeln!(text, "{:<28} : {}", "TCN flood query count", view.tcn_flood_query_count);
    let _ = writeln!(text, "{:<28} : {} of {}", "Memberships", view.memberships, view.max_memberships);
    for vlan in &view.vlans {
        let title = format!("Vlan {}:", vlan.vlan);
        let _ = writeln!(text, "\n{title}\n{}", "-".repeat(title.len()));
        let _ = writeln!(text, "{:<28} : {}", format!("{name} snooping"), on(vlan.enabled));
        if !vlan.enabled {
            // No settings are in force.
            let _ = writeln!(text, "{:<28} : flooded", "All groups");
            continue;
        }
        let _ = writeln!(text, "{:<28} : {}", "Immediate leave", on(vlan.immediate_leave));
        let _ = writeln!(text, "{:<28} : {}", "Robustness variable", vlan.robustness);
        let _ = writeln!(text, "{:<28} : {}", format!("{last} query count"), vlan.last_member_query_count);
        let interval = vlan.last_member_query_interval_ms;
        let _ = writeln!(text, "{:<28} : {interval} ms", format!("{last} query interval"));
        let unregistered = if vlan.unregistered == "flood" { "flooded" } else { "to multicast routers only" };
        let _ = writeln!(text, "{:<28} : {unregistered}", "Unregistered groups");
        let why = match vlan.flooding {
            "all" => "all groups, since the topology has changed",
            "unregistered" => "unregistered groups, since entries were refused",
            _ => "none",
        };
        let _ = writeln!(text, "{:<28} : {why}", "Flooded temporarily");
        for (name, count) in vlan.counters.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "{:<28} : {count}", format!("Messages, {}", name.replace('_', " ")));
        }
    }
    text
}

/// `show ... snooping groups`.
pub fn groups(view: &SnoopingGroups) -> String {
    let rows: Vec<Vec<String>> = view
        .groups
        .iter()
        .map(|group| {
            let sources: Vec<String> = group.sources.iter().map(ToString::to_string).collect();
            let mode = match (group.mode, sources.is_empty()) {
                ("any", _) => "any".to_owned(),
                (mode, true) => mode.to_owned(),
                (mode, false) => format!("{mode} {}", sources.join(",")),
            };
            vec![
                group.vlan.to_string(),
                group.group.0.to_string(),
                mode,
                group.expires_s.map_or_else(|| "static".into(), |seconds| seconds.to_string()),
                group.ports.join(", "),
            ]
        })
        .collect();
    columns(&["Vlan", "Group", "Sources", "Expires (s)", "Port List"], &rows, &[])
}

/// `show ... snooping mrouter`.
pub fn routers(view: &SnoopingRouters) -> String {
    let row = |router: &crate::view::SnoopingRouter| {
        vec![router.vlan.to_string(), format!("{}({})", router.interface, router.kind)]
    };
    columns(&["Vlan", "ports"], &view.mrouters.iter().map(row).collect::<Vec<_>>(), &[])
}

/// `show ... snooping querier`.
pub fn queriers(view: &SnoopingQueriers) -> String {
    let row = |vlan: &crate::view::SnoopingVlanQuerier| {
        let querier = &vlan.querier;
        let address = querier.querier_address.map_or_else(|| "none".into(), |address| address.to_string());
        let who = match (querier.querier_address.is_some(), querier.querier_is_self) {
            (true, true) => "Switch",
            (true, false) => "Other",
            (false, _) => "-",
        };
        vec![
            vlan.vlan.to_string(),
            address,
            who.into(),
            // Only the version of the switch's own queries is known.
            if querier.querier_enabled { format!("v{}", querier.querier_version) } else { "-".into() },
            querier.query_interval_s.to_string(),
        ]
    };
    let rows: Vec<_> = view.queriers.iter().map(row).collect();
    columns(&["Vlan", "IP Address", "Querier", "Version", "Interval (s)"], &rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{SnoopingQuerier, SnoopingVlan, SnoopingVlanQuerier};

    #[test]
    fn a_vlan_that_is_not_snooped_has_no_settings() {
        let vlan = SnoopingVlan { vlan: 20, flooding: "all", ..SnoopingVlan::default() };
        let view = Snooping { protocol: "igmp", enabled: true, vlans: vec![vlan], ..Snooping::default() };
        let text = snooping(&view);
        let (_, shown) = text.split_once("Vlan 20:\n").expect("the VLAN");
        let want =
            "--------\nIGMP snooping                : Disabled\nAll groups                   : flooded\n";
        assert_eq!(shown, want);
    }

    #[test]
    fn a_version_is_shown_only_of_own_queries() {
        let querier = SnoopingQuerier { query_interval_s: 125, ..SnoopingQuerier::default() };
        let own = SnoopingQuerier { querier_enabled: true, querier_version: 2, ..querier.clone() };
        let one = |vlan, querier| SnoopingVlanQuerier { vlan, querier };
        let text = queriers(&SnoopingQueriers { queriers: vec![one(1, querier), one(10, own)] });
        assert_eq!(
            text,
            "Vlan  IP Address  Querier  Version  Interval (s)\n1     none        -        -        125\n\
             10    none        -        v2       125\n"
        );
    }
}
