//! Class maps, policy maps and `mls qos` as configured.

use crate::qos_text::{actions, criterion, kind};
use lanyard_config::{Config, PolicyMap, QosTrust};
use serde::Serialize;

/// `show class-map`.
#[derive(Debug, Clone, Serialize)]
pub struct ClassMaps {
    /// The class maps, by name.
    pub class_maps: Vec<ClassMapView>,
}

/// One class map.
#[derive(Debug, Clone, Serialize)]
pub struct ClassMapView {
    /// Its name.
    pub name: String,
    /// `match-all` or `match-any`.
    pub kind: &'static str,
    /// `description`.
    pub description: Option<String>,
    /// The words after `match` in each line, such as `dscp ef`.
    pub criteria: Vec<String>,
    /// The policy maps that use it.
    pub policy_maps: Vec<String>,
}

/// `show class-map [NAME]`.
#[must_use]
pub fn class_maps(config: &Config, only: Option<&str>) -> ClassMaps {
    let users = |name: &str| {
        let uses = |policy: &PolicyMap| policy.classes.iter().any(|(class, _)| class == name);
        let policies = config.qos.policies.iter().filter(|(_, policy)| uses(policy));
        policies.map(|(name, _)| name.clone()).collect()
    };
    let maps = config.qos.classes.iter().filter(|(name, _)| only.is_none_or(|only| *name == only));
    let view = |(name, class): (&String, &lanyard_config::ClassMap)| ClassMapView {
        name: name.clone(),
        kind: kind(class),
        description: class.description.clone(),
        criteria: class.criteria.iter().map(criterion).collect(),
        policy_maps: users(name),
    };
    ClassMaps { class_maps: maps.map(view).collect() }
}

/// `show policy-map`.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyMaps {
    /// The policy maps, by name.
    pub policy_maps: Vec<PolicyMapView>,
}

/// One policy map.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyMapView {
    /// Its name.
    pub name: String,
    /// `description`.
    pub description: Option<String>,
    /// Its classes in the order in which a frame is compared with them; `class-default` is the last.
    pub classes: Vec<PolicyClassView>,
    /// The interfaces at which it is attached, each with the direction `input` or `output`.
    pub interfaces: Vec<Attached>,
}

/// One class of a policy map.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyClassView {
    /// The class map.
    pub class: String,
    /// The lines of its actions.
    pub actions: Vec<String>,
}

/// A place where a policy map is attached.
#[derive(Debug, Clone, Serialize)]
pub struct Attached {
    /// The interface.
    pub interface: String,
    /// `input` or `output`.
    pub direction: &'static str,
}

/// `show policy-map [NAME]`.
#[must_use]
pub fn policy_maps(config: &Config, only: Option<&str>) -> PolicyMaps {
    let attached = |name: &str| {
        let of = config.interfaces.iter().flat_map(|(interface, settings)| {
            [("input", &settings.qos.input), ("output", &settings.qos.output)]
                .map(|(direction, policy)| (interface, direction, policy))
        });
        of.filter(|(_, _, policy)| policy.as_deref() == Some(name))
            .map(|(interface, direction, _)| Attached { interface: interface.to_string(), direction })
            .collect()
    };
    let maps = config.qos.policies.iter().filter(|(name, _)| only.is_none_or(|only| *name == only));
    let view = |(name, policy): (&String, &PolicyMap)| PolicyMapView {
        name: name.clone(),
        description: policy.description.clone(),
        classes: policy
            .actions()
            .map(|(class, of)| PolicyClassView { class: class.to_owned(), actions: actions(of) })
            .collect(),
        interfaces: attached(name),
    };
    PolicyMaps { policy_maps: maps.map(view).collect() }
}

/// `show mls qos`.
#[derive(Debug, Clone, Serialize)]
pub struct MlsQos {
    /// `mls qos`.
    pub enabled: bool,
    /// `mls qos map cos-dscp`: the DSCP by class of service.
    pub cos_dscp: [u8; 8],
    /// The interfaces that trust the class of service or the DSCP of received frames.
    pub interfaces: Vec<Trusting>,
}

/// An interface with `mls qos trust`.
#[derive(Debug, Clone, Serialize)]
pub struct Trusting {
    /// The interface.
    pub interface: String,
    /// `cos` or `dscp`.
    pub trust: &'static str,
}

/// `show mls qos`.
#[must_use]
pub fn mls_qos(config: &Config) -> MlsQos {
    let trusting = config.interfaces.iter().filter_map(|(interface, settings)| {
        let trust = match settings.qos.trust? {
            QosTrust::Cos => "cos",
            QosTrust::Dscp => "dscp",
        };
        Some(Trusting { interface: interface.to_string(), trust })
    });
    MlsQos { enabled: config.qos.untrusted, cos_dscp: config.qos.cos_dscp, interfaces: trusting.collect() }
}
