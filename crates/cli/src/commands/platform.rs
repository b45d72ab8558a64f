//! `platform ...`, `breakout`, `fec`: the configuration of a switch chip; the commands of `show platform` and `show interfaces`
//! about its pipeline, front panel and transceivers.

use super::need;
use super::shared::unknown;
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::exec::Exec;
use crate::field;
use crate::outcome::Outcome;
use crate::render;
use crate::setting::{Choice, Flag, Line, Setting};
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{
    Breakout, Config, ControlPath, Fec, Interface, InterfaceName, Strategy, TablePolicy, Thresholds,
};

/// In global configuration.
pub const LINES: &[Line<Config>] = &[
    Setting::of(
        "platform control-path",
        "How frames get between the chip's CPU port and interfaces",
        &Choice {
            field: field!(Config, chip.control_path),
            of: &[
                (
                    "auto",
                    ControlPath::Auto,
                    "In the kernel where it loads the programs, else through the daemon",
                ),
                ("kernel", ControlPath::Kernel, "By eBPF programs in the kernel"),
                ("tun", ControlPath::Tun, "Through the daemon and TAP netdevs"),
            ],
        },
    )
    .line(),
    Setting::of(
        "platform feedback",
        "Heed the chip's refusals; without it packets of refused routes take shorter prefixes",
        &Flag(field!(Config, chip.feedback)),
    )
    .line(),
    Line::own("platform", MANAGER, print_manager),
    Line::own("platform", POLICY, print_policies),
    Line::own("platform", RESOURCE, print_resources),
];

/// Help for keywords that end no line.
pub const GROUPS: &[(&str, &str)] = &[("platform", "Configure the switch chip")];

/// Under an interface.
pub const PORT: &[Line<Interface>] = &[
    Setting::of(
        "breakout",
        "Split this front-panel port into parts, swpNs0 and following",
        &Choice { field: field!(Interface, breakout), of: SPLITS },
    )
    .on(netdev)
    .line(),
    Setting::of(
        "fec",
        "Configure forward error correction",
        &Choice {
            field: field!(Interface, fec),
            of: &[
                ("auto", Fec::Auto, "What the speed and the medium usually have"),
                ("base-r", Fec::BaseR, "Fire code (IEEE 802.3, clause 74)"),
                ("off", Fec::Off, "None"),
                ("rs", Fec::Rs, "Reed-Solomon (IEEE 802.3, clauses 91 and 108)"),
            ],
        },
    )
    .on(netdev)
    .line(),
];

/// The condition of settings that VLAN interfaces do not have.
fn netdev(_: &mut Interface, name: &InterfaceName, _: Form, words: &str) -> Result<bool, Refusal> {
    match name {
        InterfaceName::Netdev(_) => Ok(true),
        InterfaceName::Vlan(vlan) => Err(format!("Vlan{vlan} is a VLAN interface: it has no {words}").into()),
    }
}

const fn split(parts: u8, gbps: u32) -> Option<Breakout> {
    Some(Breakout { parts, speed_mbps: gbps * 1000 })
}

const SPLITS: &[(&str, Option<Breakout>, &str)] = &[
    ("2x50g", split(2, 50), "Two parts of 50 Gbit/s"),
    ("2x100g", split(2, 100), "Two parts of 100 Gbit/s"),
    ("2x200g", split(2, 200), "Two parts of 200 Gbit/s"),
    ("4x10g", split(4, 10), "Four parts of 10 Gbit/s"),
    ("4x25g", split(4, 25), "Four parts of 25 Gbit/s"),
    ("4x50g", split(4, 50), "Four parts of 50 Gbit/s"),
    ("4x100g", split(4, 100), "Four parts of 100 Gbit/s"),
    ("8x50g", split(8, 50), "Eight parts of 50 Gbit/s"),
    ("8x100g", split(8, 100), "Eight parts of 100 Gbit/s"),
];

const STRATEGIES: &[(&str, Strategy)] = &[
    ("lockstep", Strategy::Lockstep),
    ("credit", Strategy::Credit),
    ("predict-flat", Strategy::PredictFlat),
    ("predict-model", Strategy::PredictModel),
    ("hybrid", Strategy::Hybrid),
];

const MANAGER: Node = kw("resource-manager", "How it is known what fits into the chip").no(manager).then(&[
    kw("credit", "A bucket that queries refill in the background").run(manager),
    kw("hybrid", "A twin of the chip, and large transactions").run(manager),
    kw("lockstep", "Ask the chip before each write").run(manager),
    kw("predict-flat", "Count units against the platform file").run(manager),
    kw("predict-model", "A twin of the chip").run(manager),
    kw("prefetch", "Fetch room in advance").then(&[number(1, 65_536, "Units at a time").run(manager)]),
]);

fn manager(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    edit.config.chip.strategy = match (args.form, args.number_u32()) {
        (Form::No | Form::Default, _) => Strategy::default(),
        (Form::Set, Some(units)) => Strategy::Prefetch(units),
        (Form::Set, None) => need(args.among(STRATEGIES))?,
    };
    Ok(())
}

fn print_manager(config: &Config) -> Vec<String> {
    match config.chip.strategy {
        strategy if strategy == Strategy::default() => Vec::new(),
        Strategy::Prefetch(units) => vec![format!("platform resource-manager prefetch {units}")],
        strategy => vec![format!("platform resource-manager {}", strategy.name())],
    }
}

const POLICIES: &[(&str, TablePolicy)] =
    &[("bypass", TablePolicy::Bypass), ("hybrid", TablePolicy::Hybrid), ("sync", TablePolicy::Sync)];

/// The maximum length of the path of a table, in bytes.
const MAX_PATH: usize = 64;

const POLICY: Node = kw("policy", "What becomes of routes or access lists that a table has no room for")
    .then(&[arg(Kind::Word("TABLE", MAX_PATH), "A table's path, as `show platform resources` lists it")
        .no(policy)
        .then(&[
            kw("bypass", "None is put into the chip").run(policy),
            kw("hybrid", "They are accepted, and the software forwards their packets, or judges them")
                .run(policy),
            kw("sync", "They are refused").run(policy),
        ])]);

fn policy(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let table = need(args.text())?;
    let policies = &mut edit.config.chip.policies;
    // The default is not stored: it depends on the contents of the table, which the platform file determines.
    match args.form {
        Form::Set => _ = policies.insert(table, need(args.among(POLICIES))?),
        Form::No | Form::Default => _ = policies.remove(&table),
    }
    Ok(())
}

fn print_policies(config: &Config) -> Vec<String> {
    let line =
        |(table, policy): (&String, &TablePolicy)| format!("platform policy {table} {}", policy.name());
    config.chip.policies.iter().map(line).collect()
}

/// The maximum size of a table, in units.
const MAX_UNITS: u64 = 1 << 24;

const RESOURCE: Node =
    kw("resource", "Configure a table").then(&[arg(
        Kind::Word("TABLE", MAX_PATH),
        "A table's path, as `show platform resources` lists it",
    )
    .then(&[
        kw("size", "Its part of the memory that it shares with other tables; by default the platform's")
            .no(size)
            .then(&[number(1, MAX_UNITS, "Units; no fewer than are in use").run(size)]),
        kw("threshold", "When its alarm is raised and cleared; by default at 90 % and below 80 %")
            .no(threshold)
            .then(&[number(1, 100, "Raise the alarm from this use on, in percent of the size")
                .then(&[number(0, 99, "Clear the alarm below this use, in percent: less than the first")
                    .run(threshold)])]),
    ])]);

fn size(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let table = need(args.text())?;
    let sizes = &mut edit.config.chip.sizes;
    match args.form {
        Form::Set => _ = sizes.insert(table, need(args.number_u32())?),
        Form::No | Form::Default => _ = sizes.remove(&table),
    }
    Ok(())
}

fn threshold(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let table = need(args.text())?;
    let percents: Vec<u8> = args.numbers().into_iter().filter_map(|n| u8::try_from(n).ok()).collect();
    let set = match (args.form, percents.as_slice()) {
        (Form::Set, [raise, clear]) if clear < raise => Thresholds { raise: *raise, clear: *clear },
        (Form::Set, [raise, clear]) => {
            return Err(format!(
                "thresholds {raise} {clear}: an alarm that is raised at {raise} % is cleared below a smaller value: at most {}",
                raise.saturating_sub(1)
            )
            .into());
        }
        _ => Thresholds::default(),
    };
    let thresholds = &mut edit.config.chip.thresholds;
    if set == Thresholds::default() {
        thresholds.remove(&table);
    } else {
        thresholds.insert(table, set);
    }
    Ok(())
}

fn print_resources(config: &Config) -> Vec<String> {
    let size = |(table, units): (&String, &u32)| format!("platform resource {table} size {units}");
    let threshold = |(table, Thresholds { raise, clear }): (&String, &Thresholds)| {
        format!("platform resource {table} threshold {raise} {clear}")
    };
    let sizes = config.chip.sizes.iter().map(size);
    sizes.chain(config.chip.thresholds.iter().map(threshold)).collect()
}

/// Under `show platform`.
pub const PIPELINE: Node =
    kw("pipeline", "The stages, what they match on, and the tables they use").exec(pipeline);
/// Under `show platform`.
pub const PORTS: Node = kw("ports", "The front panel").exec(ports);

/// Under `show interfaces`, before or after the name of an interface.
pub const TRANSCEIVER: Node = kw("transceiver", "Show interface transceiver").exec(transceiver);

fn pipeline(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.pipeline();
    Ok(exec.present(&view, render::pipeline))
}

fn ports(exec: &mut Exec<'_>, _: &Args) -> Result<Outcome, Refusal> {
    let view = exec.backend.front_panel()?;
    Ok(exec.present(&view, render::front_panel))
}

fn transceiver(exec: &mut Exec<'_>, args: &Args) -> Result<Outcome, Refusal> {
    let mut view = exec.backend.front_panel()?;
    if let Some(only) = args.interface() {
        view.ports.retain(|port| port.name == only.to_string());
        if view.ports.is_empty() {
            return Err(unknown(&only));
        }
    }
    let view = crate::view::Transceivers::of(&view);
    Ok(exec.present(&view, render::transceivers))
}
