//! Policies for routes and access lists that a table has no room for: the configured ones as the resource manager takes
//! them, and their defaults.

use lanyard_asic::object::Object;
use lanyard_asic::platform::Platform;
use lanyard_offload::{Hardware, Manager, Policy};
use lanyard_plane::{ChipSettings, TablePolicy};
use std::collections::{BTreeMap, BTreeSet};

/// The manager's policy for a configured one.
fn policy_of(policy: TablePolicy) -> Policy {
    match policy {
        TablePolicy::Sync => Policy::Sync,
        TablePolicy::Hybrid => Policy::Hybrid,
        TablePolicy::Bypass => Policy::Bypass,
    }
}

/// The kinds of objects that are routes.
const ROUTES: [Object; 5] =
    [Object::Ipv4Host, Object::Ipv6Host, Object::Ipv4Prefix, Object::Ipv6Prefix64, Object::Ipv6Prefix128];

/// The kinds of objects that are access lists.
const LISTS: [Object; 2] = [Object::AclIpv4, Object::AclIpv6];

/// The default policy of a table with these objects; `None` if it holds neither routes nor access lists. Lists are not diverted
/// by default: a list that the software judges makes its ports slow, so that is the user's choice.
pub(crate) fn default_of(objects: impl IntoIterator<Item = Object>) -> Option<TablePolicy> {
    let policies = objects.into_iter().filter_map(|object| match object {
        object if ROUTES.contains(&object) => Some(TablePolicy::Hybrid),
        object if LISTS.contains(&object) => Some(TablePolicy::Sync),
        _ => None,
    });
    policies.max_by_key(|policy| *policy == TablePolicy::Hybrid)
}

/// The manager's policies: that of all kinds of objects without a policy of their own, and those of single kinds.
///
/// # Errors
/// When a policy is configured for something that is not a table with routes or access lists.
pub(crate) fn lower(
    platform: &Platform,
    settings: &ChipSettings,
) -> Result<(Policy, BTreeMap<Object, Policy>), String> {
    let kinds = kinds(platform, settings)?;
    // Without feedback a refusal is to have no consequence, so nothing may be hidden.
    Ok(if settings.feedback { (Policy::Hybrid, kinds) } else { (Policy::Sync, BTreeMap::new()) })
}

/// Gives the manager its policies. A chip that fails meanwhile is repaired by the manager later.
pub(crate) fn apply(manager: &mut Manager<dyn Hardware>, policy: Policy, kinds: &BTreeMap<Object, Policy>) {
    for object in ROUTES.into_iter().chain(LISTS) {
        let _ = manager.set_policy(object, kinds.get(&object).copied().unwrap_or(policy));
    }
}

/// The policy of each kind of route and access list.
fn kinds(platform: &Platform, settings: &ChipSettings) -> Result<BTreeMap<Object, Policy>, String> {
    let path_of = |object: Object| {
        platform.table_of(object).map(|(memory, table, _)| format!("{}/{}", memory.name, table.name))
    };
    let known: BTreeSet<String> = ROUTES.into_iter().chain(LISTS).filter_map(path_of).collect();
    if let Some(path) = settings.policies.keys().find(|path| !known.contains(*path)) {
        let known: Vec<String> = known.into_iter().collect();
        let known = known.join(", ");
        return Err(format!("{path} is no table that holds routes or access lists: this chip has {known}"));
    }
    let of = |object: Object| {
        let configured = settings.policies.get(&path_of(object)?).copied();
        Some((object, policy_of(configured.or_else(|| default_of([object]))?)))
    };
    Ok(ROUTES.into_iter().chain(LISTS).filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECTRUM: &str = include_str!("../../../platforms/spectrum-like.toml");

    #[test]
    fn policies_are_of_tables_that_hold_routes() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let with = |path: &str| {
            let policies = [(path.to_owned(), TablePolicy::Bypass)].into_iter().collect();
            kinds(&platform, &ChipSettings { policies, ..ChipSettings::default() })
        };
        let error = with("nowhere/nothing").expect_err("there is none");
        assert!(
            error.contains("nowhere/nothing is no table that holds routes or access lists: this chip has "),
            "{error}"
        );
        let (memory, table, _) = platform.table_of(Object::Ipv4Prefix).expect("a table");
        let found = with(&format!("{}/{}", memory.name, table.name)).expect("a table of routes");
        assert_eq!(found.get(&Object::Ipv4Prefix), Some(&Policy::Bypass));
        assert_eq!(found.get(&Object::AclIpv4), Some(&Policy::Sync), "lists are refused by default");
        let (memory, table, _) = platform.table_of(Object::AclIpv4).expect("a table");
        let found = with(&format!("{}/{}", memory.name, table.name)).expect("a table of lists");
        assert_eq!(found.get(&Object::AclIpv4), Some(&Policy::Bypass));
    }
}
