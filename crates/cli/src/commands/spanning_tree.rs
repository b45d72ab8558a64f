//! `spanning-tree ...`: the settings of the whole bridge, of the MST region and of an interface.
//!
//! Settings of a mode that is not in force are kept, as in IOS. Modes stp and rstp have one tree, which `show
//! spanning-tree` calls VLAN0001: it has the settings of VLAN 1.

use super::need;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::setting::{Choice, Flag, Line, Number, Setting, Word};
use crate::tree::{Node, arg, kw, number};
use crate::view::TreeKey;
use lanyard_config::spanning_tree::{
    PortTree, SpanningTreePort, Times, instance_lines, mst_lines, port_tree_lines, vlan_lines,
};
use lanyard_config::{Config, Interface, InterfaceName};
use lanyard_stp::{Guard, LinkType, Mode, MstRegion, PathCostMethod, PortFast, ROOT_SECONDARY_PRIORITY};
use lanyard_types::{VlanId, VlanSet};
use std::collections::BTreeSet;

/// The maximum length of the name of an MST region, in bytes.
const MAX_REGION: usize = 32;

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Setting::of(
        "spanning-tree mode",
        "Spanning tree operating mode; off until one is chosen",
        &Choice {
            field: field!(Config, spanning_tree.mode),
            of: &[
                ("mst", Some(Mode::Mst), "Multiple spanning tree mode"),
                ("pvst", Some(Mode::Pvst), "Per-Vlan spanning tree mode"),
                ("rapid-pvst", Some(Mode::RapidPvst), "Per-Vlan rapid spanning tree mode"),
                ("rstp", Some(Mode::Rstp), "One rapid spanning tree for all VLANs"),
                ("stp", Some(Mode::Stp), "One spanning tree for all VLANs"),
            ],
        },
    )
    .line(),
    Setting::of(
        "spanning-tree pathcost method",
        "Method to calculate default port path cost",
        &Choice {
            field: field!(Config, spanning_tree.path_cost),
            of: &[
                ("long", PathCostMethod::Long, "Use 32 bit based values for default port path costs"),
                ("short", PathCostMethod::Short, "Use 16 bit based values for default port path costs"),
            ],
        },
    )
    .line(),
    Setting::of(
        "spanning-tree loopguard default",
        "Enable loopguard by default on all ports",
        &Flag(field!(Config, spanning_tree.loopguard_default)),
    )
    .line(),
    Setting::of(
        "spanning-tree portfast edge default",
        "Enable portfast edge by default on all access ports",
        PORTFAST_DEFAULT,
    )
    .line(),
    Setting::of("spanning-tree portfast edge bpduguard default", BPDUGUARD_HELP, BPDUGUARD_DEFAULT).line(),
    Setting::of("spanning-tree portfast edge bpdufilter default", BPDUFILTER_HELP, BPDUFILTER_DEFAULT).line(),
    Setting::of(
        "spanning-tree portfast default",
        "Enable portfast by default on all access ports",
        PORTFAST_DEFAULT,
    )
    .alias()
    .line(),
    Setting::of("spanning-tree portfast bpduguard default", BPDUGUARD_HELP, BPDUGUARD_DEFAULT).alias().line(),
    Setting::of("spanning-tree portfast bpdufilter default", BPDUFILTER_HELP, BPDUFILTER_DEFAULT)
        .alias()
        .line(),
    Setting::of(
        "spanning-tree guard counting",
        "Ignore information that circulates in a cycle of bridges (count to infinity); on by default",
        &Flag(field!(Config, spanning_tree.counting_guard)),
    )
    .line(),
    Setting::of(
        "spanning-tree transmit hold-count",
        "STP transmit hold count",
        &Number::any(field!(Config, spanning_tree.hold_count), 1, 20, "BPDUs a second and port"),
    )
    .line(),
    Line::own("spanning-tree", VLAN_TREES, |config| vlan_lines(&config.spanning_tree)),
    // This line sets the priority of VLAN 1, which the entry above prints.
    Line::unprinted("spanning-tree", PRIORITY),
    Line::own("spanning-tree", MST, |config| mst_lines(&config.spanning_tree)),
    Setting::of(
        "spanning-tree mst max-hops",
        "Set the max hops value for the spanning tree",
        &Number::any(
            field!(Config, spanning_tree.max_hops),
            1,
            255,
            "maximum number of hops a BPDU is valid",
        ),
    )
    .line(),
];

const PORTFAST_DEFAULT: &Flag<Config> = &Flag(field!(Config, spanning_tree.portfast_default));
const BPDUGUARD_DEFAULT: &Flag<Config> = &Flag(field!(Config, spanning_tree.bpduguard_default));
const BPDUGUARD_HELP: &str = "Enable bpdu guard by default on all portfast ports";
const BPDUFILTER_DEFAULT: &Flag<Config> = &Flag(field!(Config, spanning_tree.bpdufilter_default));
const BPDUFILTER_HELP: &str = "Enable bpdu filter by default on all portfast ports";

const VLAN_TREES: Node =
    kw("vlan", "VLAN Switch Spanning Tree").then(&[arg(Kind::VlanList, "vlan range, example: 1,3-5,7,9-11")
        .run(vlan_tree)
        .then(&[FORWARD_TIME, HELLO_TIME, MAX_AGE, PRIORITY, ROOT])]);

const FORWARD_TIME: Node = kw("forward-time", "Set the forward delay for the spanning tree")
    .no(forward_time)
    .then(&[number(4, 30, "number of seconds for the forward delay timer").run(forward_time)]);

const HELLO_TIME: Node = kw("hello-time", "Set the hello interval for the spanning tree")
    .no(hello_time)
    .then(&[number(1, 10, "number of seconds between generation of config BPDUs").run(hello_time)]);

const MAX_AGE: Node = kw("max-age", "Set the max age interval for the spanning tree")
    .no(max_age)
    .then(&[number(6, 40, "maximum number of seconds the information in a BPDU is valid").run(max_age)]);

const PRIORITY: Node = kw("priority", "Set the bridge priority for the spanning tree")
    .no(priority)
    .then(&[number(0, 61440, "bridge priority in increments of 4096").run(priority)]);

const ROOT: Node = kw("root", "Configure switch as root").no(priority).then(&[
    kw("primary", "Configure this switch as primary root for this spanning tree").set(root_primary),
    kw("secondary", "Configure switch as secondary root").set(root_secondary),
]);

const INSTANCES: Node = arg(Kind::Instances, "MST instance range, example: 0-3,5,7-9");

const MST: Node = kw("mst", "Multiple spanning tree configuration").then(&[
    kw("configuration", "Enter MST configuration submode").run(region),
    FORWARD_TIME,
    HELLO_TIME,
    MAX_AGE,
    INSTANCES.then(&[PRIORITY, ROOT]),
]);

/// `(config-mst)#`.
pub const REGION: &[Line<MstRegion>] = &[
    Setting::of(
        "name",
        "Set configuration name",
        &Word {
            field: field!(MstRegion, name),
            kind: Kind::Word("WORD", MAX_REGION),
            help: "Configuration name",
        },
    )
    .line(),
    Setting::of(
        "revision",
        "Set configuration revision number",
        &Number::any(field!(MstRegion, revision), 0, 65_535, "Configuration revision number"),
    )
    .line(),
    Line::own("", INSTANCE, instance_lines),
    Line::unprinted(
        "",
        kw("show", "Display region configurations").then(&[
            kw("current", "Display the region configuration that is in force").exec(show_region),
            kw("pending", "The same: a change takes effect when it is entered").exec(show_region),
        ]),
    ),
];

const INSTANCE: Node =
    kw("instance", "Map vlans to an MST instance").then(&[number(0, 4094, "MST instance id")
        .no(instance)
        .then(&[kw("vlan", "Range of vlans to add to the instance mapping").then(&[arg(
            Kind::VlanList,
            "vlan range ex: 1-65, 72, 300 -200",
        )
        .run(instance)])])]);

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "spanning-tree link-type",
        "Specify a link type for spanning tree protocol use",
        &Choice {
            field: field!(Interface, spanning_tree.link_type),
            of: &[
                ("point-to-point", LinkType::PointToPoint, "Consider the interface as point-to-point"),
                ("shared", LinkType::Shared, "Consider the interface as shared"),
            ],
        },
    )
    .on(bridged)
    .line(),
    Setting::of(
        "spanning-tree portfast",
        "Enable an interface to move directly to forwarding on link up",
        &Choice {
            field: field!(Interface, spanning_tree.portfast),
            of: &[
                ("edge", PortFast::Edge, "Enable portfast edge on the interface"),
                ("edge trunk", PortFast::Trunk, "Enable portfast edge on the interface even in trunk mode"),
                ("disable", PortFast::Disable, "Disable portfast for this interface"),
                ("", PortFast::Edge, ""),
                ("trunk", PortFast::Trunk, "Enable portfast on the interface even in trunk mode"),
            ],
        },
    )
    .on(bridged)
    .warning(|interface| match interface.spanning_tree.portfast {
        PortFast::Edge | PortFast::Trunk => Some(
            "portfast should only be enabled on ports connected to a single host: a switch there can make a \
             temporary bridging loop",
        ),
        _ => None,
    })
    .line(),
    Setting::of(
        "spanning-tree bpdufilter",
        "Don't send or receive BPDUs on this interface",
        &Choice {
            field: field!(Interface, spanning_tree.bpdu_filter),
            of: &[
                ("disable", Some(false), "Disable BPDU filtering for this interface"),
                ("enable", Some(true), "Enable BPDU filtering for this interface"),
            ],
        },
    )
    .on(bridged)
    .line(),
    Setting::of(
        "spanning-tree bpduguard",
        "Don't accept BPDUs on this interface",
        &Choice {
            field: field!(Interface, spanning_tree.bpdu_guard),
            of: &[
                ("disable", Some(false), "Disable BPDU guard for this interface"),
                ("enable", Some(true), "Enable BPDU guard for this interface"),
            ],
        },
    )
    .on(bridged)
    .line(),
    Setting::of(
        "spanning-tree guard",
        "Change an interface's spanning tree guard mode",
        &Choice {
            field: field!(Interface, spanning_tree.guard),
            of: &[
                ("loop", Guard::Loop, "Set guard mode to loop guard on interface"),
                ("none", Guard::None, "Set guard mode to none"),
                ("root", Guard::Root, "Set guard mode to root guard on interface"),
            ],
        },
    )
    .on(bridged)
    .line(),
    Line::Own {
        under: "",
        node: kw("spanning-tree", "Spanning Tree Subsystem").then(&[
            COST,
            kw("mst", "Multiple spanning tree").then(&[INSTANCES.then(&[COST, PORT_PRIORITY])]),
            PORT_PRIORITY,
            kw("vlan", "VLAN Switch Spanning Tree").then(&[arg(
                Kind::VlanList,
                "vlan range, example: 1,3-5,7,9-11",
            )
            .then(&[COST, PORT_PRIORITY])]),
        ]),
        print: |interface| port_tree_lines(&interface.spanning_tree),
    },
];

/// Help for keywords that end no line.
pub const PORT_GROUPS: &[(&str, &str)] = &[("spanning-tree", "Spanning Tree Subsystem")];

const COST: Node = kw("cost", "Change an interface's spanning tree port path cost")
    .no(port_cost)
    .then(&[number(1, 200_000_000, "port path cost").run(port_cost)]);
const PORT_PRIORITY: Node = kw("port-priority", "Change an interface's spanning tree port priority")
    .no(port_priority)
    .then(&[number(0, 240, "port priority in increments of 16").run(port_priority)]);

/// The value at the end of a line; `None` in its `no` and `default` forms.
fn value<T: TryFrom<u64>>(args: &Args) -> Result<Option<T>, Refusal> {
    if args.form != Form::Set {
        return Ok(None);
    }
    need(args.numbers().last().copied().and_then(|n| T::try_from(n).ok())).map(Some)
}

/// `spanning-tree vlan LIST`: gives the VLANs a tree; `no ...`: removes their trees and settings.
fn vlan_tree(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let list = need(args.vlans())?;
    let tree = &mut edit.config.spanning_tree;
    if args.form == Form::No {
        tree.no_tree = tree.no_tree.union(&list);
    } else {
        tree.no_tree = tree.no_tree.difference(&list);
    }
    if args.form != Form::Set {
        tree.vlans.retain(|vlan, _| !list.contains(*vlan));
    }
    Ok(())
}

/// The trees that a line applies to.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack of the line that is handled")]
enum Trees {
    /// The trees of VLANs.
    Vlans(VlanSet),
    /// Some MST instances.
    Instances(BTreeSet<u16>),
    /// All MST instances.
    Mst,
}

impl Trees {
    /// The trees that a line names; `otherwise` if it names none.
    fn of(args: &Args, otherwise: Self) -> Self {
        match (args.vlans(), args.instances()) {
            (Some(list), _) => Self::Vlans(list),
            (None, Some(list)) => Self::Instances(list),
            (None, None) => otherwise,
        }
    }
    /// The tree of VLAN 1, to which `spanning-tree priority` applies.
    fn first() -> Self {
        Self::Vlans([VlanId::DEFAULT].into_iter().collect())
    }
}

/// Adds a notice if a setting of `trees` has no effect in the spanning-tree mode in force.
fn heed(edit: &mut Edit<'_>, args: &Args, trees: &Trees) {
    let Some(mode) = edit.config.spanning_tree.mode.filter(|_| args.form == Form::Set) else { return };
    let idle = match (trees, mode) {
        (Trees::Vlans(list), Mode::Stp | Mode::Rstp) => !list.contains(VlanId::DEFAULT),
        (Trees::Vlans(_), mode) => !mode.per_vlan(),
        (Trees::Instances(_) | Trees::Mst, mode) => mode != Mode::Mst,
    };
    if idle {
        let tree = if mode.per_vlan() {
            "each VLAN has a tree: spanning-tree vlan ..."
        } else if mode == Mode::Mst {
            "trees are MST instances: spanning-tree mst ..."
        } else {
            "the only tree has the settings of VLAN 1: spanning-tree vlan 1 ..."
        };
        edit.notices.push(format!("% Kept, without effect in mode {}: {tree}", mode.name()));
    }
}

/// `vlan LIST priority N`, `mst LIST priority N`, and the `no` forms of `root`.
fn priority(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let wanted: Option<u16> = value(args)?;
    if wanted.is_some_and(|priority| priority % 4096 != 0) {
        return Err("Bridge Priority must be in increments of 4096: 0, 4096, 8192, ... 61440".into());
    }
    set_priority(edit, args, |_| Ok(wanted))
}

fn set_priority(
    edit: &mut Edit<'_>,
    args: &Args,
    wanted: impl Fn(TreeKey) -> Result<Option<u16>, Refusal>,
) -> Result<(), Refusal> {
    let mut tree = edit.config.spanning_tree.clone();
    let trees = Trees::of(args, Trees::first());
    match &trees {
        Trees::Vlans(list) => {
            for vlan in list.iter() {
                tree.vlans.entry(vlan).or_default().priority = wanted(TreeKey::Vlan(vlan))?;
            }
            tree.vlans.retain(|_, settings| *settings != Default::default());
        }
        Trees::Instances(list) => {
            for instance in list {
                match wanted(TreeKey::Mst(*instance))? {
                    Some(priority) => tree.instances.insert(*instance, priority),
                    None => tree.instances.remove(instance),
                };
            }
        }
        Trees::Mst => {
            return Err("a priority needs a list of instances: spanning-tree mst LIST priority".into());
        }
    }
    edit.config.spanning_tree = tree;
    heed(edit, args, &trees);
    Ok(())
}

/// `root primary`: sets a priority that is better than that of the present root.
fn root_primary(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let names = edit.exists;
    set_priority(edit, args, |key| {
        let lowest = names.map_or(Some(24576), |names| names.root_primary(key));
        let what = match key {
            TreeKey::Vlan(vlan) => format!("vlan {vlan}"),
            TreeKey::Mst(instance) => format!("mst {instance}"),
        };
        let failed =
            || Refusal(format!("Failed to make the bridge root for {what}: the root has priority 0"));
        lowest.ok_or_else(failed).map(Some)
    })
}

fn root_secondary(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    set_priority(edit, args, |_| Ok(Some(ROOT_SECONDARY_PRIORITY)))
}

fn hello_time(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    time(edit, args, |times| &mut times.hello_s)
}

fn forward_time(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    time(edit, args, |times| &mut times.forward_s)
}

fn max_age(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    time(edit, args, |times| &mut times.max_age_s)
}

/// Sets one of the times (hello, forward delay, maximum age) of the trees of VLANs, or of MST.
fn time(edit: &mut Edit<'_>, args: &Args, field: fn(&mut Times) -> &mut Option<u8>) -> Result<(), Refusal> {
    let wanted: Option<u8> = value(args)?;
    let trees = Trees::of(args, Trees::Mst);
    let tree = &mut edit.config.spanning_tree;
    match &trees {
        Trees::Vlans(list) => {
            list.iter().for_each(|vlan| *field(&mut tree.vlans.entry(vlan).or_default().times) = wanted);
            tree.vlans.retain(|_, settings| *settings != Default::default());
        }
        Trees::Instances(_) | Trees::Mst => *field(&mut tree.mst_times) = wanted,
    }
    heed(edit, args, &trees);
    Ok(())
}

fn region(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form == Form::Set {
        *edit.mode = ConfigMode::Mst;
    } else {
        edit.config.spanning_tree.region = MstRegion::default();
    }
    Ok(())
}

/// `instance N vlan LIST` moves the VLANs to the instance; `no instance N [vlan LIST]` moves them back to
/// instance 0.
fn instance(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let instance = need(args.number().and_then(|n| u16::try_from(n).ok()))?;
    let list = args.vlans();
    let mut region = edit.config.spanning_tree.region.clone();
    match (args.form, list) {
        (Form::Set, list) => {
            let list = need(list)?;
            region.instances.values_mut().for_each(|vlans| *vlans = vlans.difference(&list));
            if instance != 0 {
                let vlans = region.instances.entry(instance).or_default();
                *vlans = vlans.union(&list);
            }
        }
        (_, Some(list)) => {
            region.instances.entry(instance).and_modify(|vlans| *vlans = vlans.difference(&list));
        }
        (_, None) => drop(region.instances.remove(&instance)),
    }
    region.instances.retain(|_, vlans| !vlans.is_empty());
    let most = lanyard_types::InstanceId::MAX - 1;
    if region.instances.len() > most {
        return Err(format!(
            "{} MST instances: {most} beside instance 0 are possible",
            region.instances.len()
        )
        .into());
    }
    edit.config.spanning_tree.region = region;
    Ok(())
}

fn show_region(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = crate::config_view::mst_configuration(exec.backend.running());
    let text = crate::render::mst_configuration(&view, false);
    Ok(exec.present(&view, |_| text))
}

/// The condition of settings that VLAN interfaces do not have.
fn bridged(_: &mut Interface, name: &InterfaceName, _: Form, _: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => {
            Err(format!("Vlan{vlan} is a VLAN interface: configure spanning tree on its ports").into())
        }
    }
}

/// Edits the spanning-tree settings of every interface of the mode.
fn each_port(edit: &mut Edit<'_>, mut set: impl FnMut(&mut SpanningTreePort)) -> Result<(), Refusal> {
    edit.each_interface(|interface, name| {
        bridged(interface, name, Form::Set, "")?;
        set(&mut interface.spanning_tree);
        Ok(())
    })
}

/// `cost`: for all trees of the port, or in VLANs or MST instances.
fn port_cost(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let wanted: Option<u32> = value(args)?;
    port_tree(edit, args, |tree| tree.cost = wanted)
}

/// `port-priority`: for all trees of the port, or in VLANs or MST instances.
fn port_priority(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let wanted: Option<u8> = value(args)?;
    if wanted.is_some_and(|priority| priority % 16 != 0) {
        return Err("Port Priority in increments of 16 is required: 0, 16, 32, ... 240".into());
    }
    port_tree(edit, args, |tree| tree.priority = wanted)
}

fn port_tree(edit: &mut Edit<'_>, args: &Args, set: impl Fn(&mut PortTree)) -> Result<(), Refusal> {
    let (vlans, instances) = (args.vlans(), args.instances());
    each_port(edit, |port| {
        if let Some(list) = &vlans {
            list.iter().for_each(|vlan| set(port.vlans.entry(vlan).or_default()));
        } else if let Some(list) = &instances {
            list.iter().for_each(|instance| set(port.instances.entry(*instance).or_default()));
        } else {
            set(&mut port.all);
        }
        port.vlans.retain(|_, tree| *tree != PortTree::default());
        port.instances.retain(|_, tree| *tree != PortTree::default());
    })?;
    if vlans.is_some() || instances.is_some() {
        heed(edit, args, &Trees::of(args, Trees::Mst));
    }
    Ok(())
}
