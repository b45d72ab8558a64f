//! `spanning-tree ...`: the whole bridge's, the MST region's and an interface's settings; `errdisable recovery`.
//!
//! Settings of a mode that is not in force are kept, as in IOS. Modes stp and rstp have one tree, which `show
//! spanning-tree` calls VLAN0001: what is said of VLAN 1 is said of it.

use super::need;
use crate::args::{Args, Kind, Value};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::field;
use crate::mode::ConfigMode;
use crate::outcome::Outcome;
use crate::parse::Form;
use crate::session::Exec;
use crate::setting::{Choice, Line, Setting};
use crate::tree::{Node, arg, kw, number};
use crate::view::TreeKey;
use lanyard_config::spanning_tree::{
    ErrDisable, PortTree, SpanningTree, SpanningTreePort, Times, port_tree_lines,
};
use lanyard_config::{Interface, InterfaceName};
use lanyard_stp::{
    ErrCause, Guard, LinkType, Mode, MstRegion, PathCostMethod, PortFast, ROOT_SECONDARY_PRIORITY,
};
use lanyard_types::VlanId;

/// Longest name of an MST region, in bytes.
const MAX_REGION: usize = 32;

/// Under global configuration.
pub const ENTRY: Node = kw("spanning-tree", "Spanning Tree Subsystem").then(&[
    kw("guard", "Spanning tree guard options").then(&[kw(
        "counting",
        "Hold information that goes round in a cycle (count to infinity); on by default",
    )
    .run(counting_guard)]),
    kw("loopguard", "Spanning tree loopguard options").then(&[kw(
        "default",
        "Enable loopguard by default on all ports",
    )
    .run(default_flag)]),
    kw("mode", "Spanning tree operating mode; off until one is chosen").no(mode).then(&[
        kw("mst", "Multiple spanning tree mode").run(mode),
        kw("pvst", "Per-Vlan spanning tree mode").run(mode),
        kw("rapid-pvst", "Per-Vlan rapid spanning tree mode").run(mode),
        kw("rstp", "One rapid spanning tree for all VLANs").run(mode),
        kw("stp", "One spanning tree for all VLANs").run(mode),
    ]),
    MST,
    kw("pathcost", "Spanning tree pathcost options").then(&[kw(
        "method",
        "Method to calculate default port path cost",
    )
    .no(path_cost)
    .then(&[
        kw("long", "Use 32 bit based values for default port path costs").run(path_cost),
        kw("short", "Use 16 bit based values for default port path costs").run(path_cost),
    ])]),
    kw("portfast", "Spanning tree portfast options").then(&[
        BPDUFILTER_DEFAULT,
        BPDUGUARD_DEFAULT,
        kw("default", "Enable portfast by default on all access ports").run(default_flag),
        kw("edge", "Spanning tree portfast edge options").then(&[
            BPDUFILTER_DEFAULT,
            BPDUGUARD_DEFAULT,
            kw("default", "Enable portfast edge by default on all access ports").run(default_flag),
        ]),
    ]),
    PRIORITY,
    kw("transmit", "STP transmit parameters").then(&[kw("hold-count", "STP transmit hold count")
        .no(hold_count)
        .then(&[number(1, 20, "BPDUs a second and port").run(hold_count)])]),
    kw("vlan", "VLAN Switch Spanning Tree").then(&[arg(Kind::VlanList, "vlan range, example: 1,3-5,7,9-11")
        .run(vlan_tree)
        .then(&[FORWARD_TIME, HELLO_TIME, MAX_AGE, PRIORITY, ROOT])]),
]);

const BPDUFILTER_DEFAULT: Node = kw("bpdufilter", "Enable portfast bdpu filter on this switch").then(&[kw(
    "default",
    "Enable bpdu filter by default on all portfast ports",
)
.run(default_flag)]);
const BPDUGUARD_DEFAULT: Node = kw("bpduguard", "Enable portfast bpdu guard on this switch").then(&[kw(
    "default",
    "Enable bpdu guard by default on all portfast ports",
)
.run(default_flag)]);

const FORWARD_TIME: Node = kw("forward-time", "Set the forward delay for the spanning tree")
    .no(time)
    .then(&[number(4, 30, "number of seconds for the forward delay timer").run(time)]);

const HELLO_TIME: Node = kw("hello-time", "Set the hello interval for the spanning tree")
    .no(time)
    .then(&[number(1, 10, "number of seconds between generation of config BPDUs").run(time)]);

const MAX_AGE: Node = kw("max-age", "Set the max age interval for the spanning tree")
    .no(time)
    .then(&[number(6, 40, "maximum number of seconds the information in a BPDU is valid").run(time)]);

const PRIORITY: Node = kw("priority", "Set the bridge priority for the spanning tree")
    .no(priority)
    .then(&[number(0, 61440, "bridge priority in increments of 4096").run(priority)]);

const ROOT: Node = kw("root", "Configure switch as root").no(priority).then(&[
    kw("primary", "Configure this switch as primary root for this spanning tree").set(root),
    kw("secondary", "Configure switch as secondary root").set(root),
]);

const INSTANCES: Node = arg(Kind::Instances, "MST instance range, example: 0-3,5,7-9");

const MST: Node = kw("mst", "Multiple spanning tree configuration").then(&[
    kw("configuration", "Enter MST configuration submode").run(region),
    FORWARD_TIME,
    HELLO_TIME,
    MAX_AGE,
    kw("max-hops", "Set the max hops value for the spanning tree").no(max_hops).then(&[number(
        1,
        255,
        "maximum number of hops a BPDU is valid",
    )
    .run(max_hops)]),
    INSTANCES.then(&[PRIORITY, ROOT]),
]);

/// Under global configuration.
pub const ERRDISABLE: Node =
    kw("errdisable", "Error disable").then(&[kw("recovery", "Error disable recovery").then(&[
        kw("cause", "Enable error disable recovery for application").then(&[
            kw("all", "Enable timer to recover from all causes").run(recovery),
            kw("bpduguard", "Enable timer to recover from BPDU Guard error").run(recovery),
        ]),
        kw("interval", "Error disable recovery timer value").no(interval).then(&[number(
            30,
            86_400,
            "timer-interval(sec)",
        )
        .run(interval)]),
    ])]);

/// `(config-mst)#`.
pub const REGION: &[Node] = &[
    kw("instance", "Map vlans to an MST instance").then(&[number(0, 4094, "MST instance id")
        .no(instance)
        .then(&[kw("vlan", "Range of vlans to add to the instance mapping").then(&[arg(
            Kind::VlanList,
            "vlan range ex: 1-65, 72, 300 -200",
        )
        .run(instance)])])]),
    kw("name", "Set configuration name").no(name).then(&[arg(
        Kind::Word("WORD", MAX_REGION),
        "Configuration name",
    )
    .run(name)]),
    kw("revision", "Set configuration revision number").no(revision).then(&[number(
        0,
        65_535,
        "Configuration revision number",
    )
    .run(revision)]),
    kw("show", "Display region configurations").then(&[
        kw("current", "Display the region configuration that is in force").exec(show_region),
        kw("pending", "The same: a change takes effect when it is entered").exec(show_region),
    ]),
];

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
pub const GROUPS: &[(&str, &str)] = &[("spanning-tree", "Spanning Tree Subsystem")];

const COST: Node = kw("cost", "Change an interface's spanning tree port path cost")
    .no(port_tree)
    .then(&[number(1, 200_000_000, "port path cost").run(port_tree)]);
const PORT_PRIORITY: Node = kw("port-priority", "Change an interface's spanning tree port priority")
    .no(port_tree)
    .then(&[number(0, 240, "port priority in increments of 16").run(port_tree)]);

/// The numbers of a line, in order.
fn numbers(args: &Args) -> Vec<u64> {
    let number = |value: &Value| if let Value::Number(n) = value { Some(*n) } else { None };
    args.values.iter().filter_map(number).collect()
}

/// The value a line ends with; `None` in its `no` and `default` forms.
fn value<T: TryFrom<u64>>(args: &Args) -> Result<Option<T>, Refusal> {
    if args.form != Form::Set {
        return Ok(None);
    }
    need(numbers(args).last().copied().and_then(|n| T::try_from(n).ok())).map(Some)
}

fn mode(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let all = [Mode::Stp, Mode::Rstp, Mode::Mst, Mode::Pvst, Mode::RapidPvst];
    let chosen = all.into_iter().find(|mode| args.has(mode.name()));
    edit.config.spanning_tree.mode = chosen.filter(|_| args.form == Form::Set);
    Ok(())
}

fn default_flag(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let tree = &mut edit.config.spanning_tree;
    let flag = if args.has("loopguard") {
        &mut tree.loopguard_default
    } else if args.has("bpduguard") {
        &mut tree.bpduguard_default
    } else if args.has("bpdufilter") {
        &mut tree.bpdufilter_default
    } else {
        &mut tree.portfast_default
    };
    *flag = args.form == Form::Set;
    Ok(())
}

fn counting_guard(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.spanning_tree.counting_guard = args.form != Form::No;
    Ok(())
}

fn path_cost(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let long = args.form == Form::Set && args.has("long");
    edit.config.spanning_tree.path_cost = if long { PathCostMethod::Long } else { PathCostMethod::Short };
    Ok(())
}

fn hold_count(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let default = SpanningTree::default().hold_count;
    edit.config.spanning_tree.hold_count = value(args)?.unwrap_or(default);
    Ok(())
}

fn max_hops(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let default = SpanningTree::default().max_hops;
    edit.config.spanning_tree.max_hops = value(args)?.unwrap_or(default);
    Ok(())
}

/// `spanning-tree vlan LIST`: the VLANs have a tree; `no ...`: they have none, and no settings.
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

/// Says so when what is configured has no effect in the mode in force.
fn heed(edit: &mut Edit<'_>, args: &Args) {
    let Some(mode) = edit.config.spanning_tree.mode.filter(|_| args.form == Form::Set) else { return };
    let vlans = vlans(args);
    let idle = match (&vlans, mode) {
        (Some(list), Mode::Stp | Mode::Rstp) => !list.contains(VlanId::DEFAULT),
        (Some(_), mode) => !mode.per_vlan(),
        (None, mode) => mode != Mode::Mst,
    };
    if idle {
        let tree = if mode.per_vlan() {
            "each VLAN has a tree: spanning-tree vlan ..."
        } else if mode == Mode::Mst {
            "trees are MST instances: spanning-tree mst ..."
        } else {
            "the one tree is VLAN 1's: spanning-tree vlan 1 ..."
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
    set_priority(edit, args, |_| Ok(wanted))?;
    heed(edit, args);
    Ok(())
}

fn set_priority(
    edit: &mut Edit<'_>,
    args: &Args,
    wanted: impl Fn(TreeKey) -> Result<Option<u16>, Refusal>,
) -> Result<(), Refusal> {
    let mut tree = edit.config.spanning_tree.clone();
    if let Some(list) = vlans(args) {
        for vlan in list.iter() {
            tree.vlans.entry(vlan).or_default().priority = wanted(TreeKey::Vlan(vlan))?;
        }
        tree.vlans.retain(|_, settings| *settings != Default::default());
    } else {
        for instance in need(args.instances())? {
            match wanted(TreeKey::Mst(instance))? {
                Some(priority) => tree.instances.insert(instance, priority),
                None => tree.instances.remove(&instance),
            };
        }
    }
    edit.config.spanning_tree = tree;
    Ok(())
}

/// The VLANs a line is about: without any, VLAN 1, unless it is about MST.
fn vlans(args: &Args) -> Option<lanyard_types::VlanSet> {
    let one = || (!args.has("mst")).then(|| [VlanId::DEFAULT].into_iter().collect());
    args.vlans().or_else(one)
}

fn mstid(args: &Args) -> Result<u16, Refusal> {
    need(numbers(args).first().and_then(|n| u16::try_from(*n).ok()))
}

/// `root primary`: a priority that wins against the root as it is now; `root secondary`.
fn root(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let names = edit.exists;
    let primary = |key: TreeKey| {
        let lowest = names.map_or(Some(24576), |names| names.root_primary(key));
        let what = match key {
            TreeKey::Vlan(vlan) => format!("vlan {vlan}"),
            TreeKey::Mst(instance) => format!("mst {instance}"),
        };
        let failed =
            || Refusal(format!("Failed to make the bridge root for {what}: the root has priority 0"));
        lowest.ok_or_else(failed).map(Some)
    };
    if args.has("secondary") {
        set_priority(edit, args, |_| Ok(Some(ROOT_SECONDARY_PRIORITY)))?;
    } else {
        set_priority(edit, args, primary)?;
    }
    heed(edit, args);
    Ok(())
}

/// `hello-time`, `forward-time`, `max-age`, of VLANs or of MST.
fn time(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let wanted: Option<u8> = value(args)?;
    let set = |times: &mut Times| {
        if args.has("hello-time") {
            times.hello_s = wanted;
        } else if args.has("forward-time") {
            times.forward_s = wanted;
        } else {
            times.max_age_s = wanted;
        }
    };
    let tree = &mut edit.config.spanning_tree;
    match args.vlans() {
        Some(list) => {
            list.iter().for_each(|vlan| set(&mut tree.vlans.entry(vlan).or_default().times));
            tree.vlans.retain(|_, settings| *settings != Default::default());
        }
        None => set(&mut tree.mst_times),
    }
    heed(edit, args);
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

fn name(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = if args.form == Form::Set { need(args.text())? } else { String::new() };
    edit.config.spanning_tree.region.name = name;
    Ok(())
}

fn revision(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.spanning_tree.region.revision = value(args)?.unwrap_or(0);
    Ok(())
}

/// `instance N vlan LIST` adds to what the instance has and takes it from the others; `no instance N [vlan LIST]`
/// gives the VLANs back to instance 0.
fn instance(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let (instance, list) = (mstid(args)?, args.vlans());
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

fn recovery(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form == Form::Set {
        edit.config.errdisable.recovery.insert(ErrCause::BpduGuard);
    } else {
        edit.config.errdisable.recovery.remove(&ErrCause::BpduGuard);
    }
    Ok(())
}

fn interval(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.errdisable.interval_s = value(args)?.unwrap_or(ErrDisable::default().interval_s);
    Ok(())
}

/// For settings of the bridge's ports.
fn bridged(_: &mut Interface, name: &InterfaceName, _: Form, _: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => {
            Err(format!("Vlan{vlan} is a VLAN interface: spanning tree is about its ports").into())
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

/// `cost` and `port-priority`: the port's own, or those in VLANs or an MST instance.
fn port_tree(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let wanted: Option<u32> = value(args)?;
    let is_cost = args.has("cost");
    if !is_cost && wanted.is_some_and(|priority| priority % 16 != 0) {
        return Err("Port Priority in increments of 16 is required: 0, 16, 32, ... 240".into());
    }
    let set = |tree: &mut PortTree| {
        if is_cost {
            tree.cost = wanted;
        } else {
            tree.priority = wanted.and_then(|priority| u8::try_from(priority).ok());
        }
    };
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
    if vlans.is_some() || args.has("mst") {
        heed(edit, args);
    }
    Ok(())
}
