//! `policy-map`, its classes and their actions.
//!
//! Invariant: no policy map of the configuration has an error ([`policy_error`]), and neither has any beginning of its lines. So
//! the running configuration, which prints child policies before their parents, can be entered again line by line.

use super::class_map::{DSCP, MAX_DESCRIPTION, NAME, PRECEDENCE, check_map_name};
use super::need;
use crate::args::{Args, Form, Kind, Value, short};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::qos_text::{actions as lines_of, dscp, precedence, rate};
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::{
    Bandwidth, CLASS_DEFAULT, ClassActions, Config, MAX_QOS_BPS, MAX_QOS_BURST, MAX_QOS_MAPS, MAX_QOS_RATIO,
    MAX_QUEUE_BYTES, MAX_QUEUE_PACKETS, MIN_QOS_BPS, MIN_QOS_BURST, MIN_QUEUE_BYTES, Police, PoliceAction,
    PolicyMap, Priority, QosRate, QueueLimit, SetIp, policy_error,
};

/// Under global configuration.
pub const LINES: &[Line<Config>] = &[Line::own(
    "",
    kw("policy-map", "Configure QoS Policy Map").then(&[arg(NAME, "Policy-map name").run(enter)]),
    print_policies,
)];

/// Inside `policy-map`.
pub const TREE: &[Node] = &[
    CLASS,
    kw("description", "Policy-Map description").no(describe).then(&[arg(
        Kind::Line(MAX_DESCRIPTION),
        "Policy-Map description",
    )
    .run(describe)]),
];

const CLASS: Node = kw("class", "Policy criteria").then(&[arg(
    NAME,
    "Class-map name; class-default is the class of all other frames",
)
.run(enter_class)]);

/// Inside `class`. As in IOS, the next class may be entered here.
pub const CLASS_TREE: &[Node] = &[
    kw("bandwidth", "Bandwidth").no(bandwidth).then(&[
        KBPS.run(bandwidth),
        kw("percent", "% of the port's speed").then(&[PERCENT.run(bandwidth)]),
        REMAINING,
    ]),
    CLASS,
    kw("conform-action", "Action when rate is within conform and conform + exceed burst")
        .no(police_action)
        .then(ACTION_LINES),
    kw("exceed-action", "Action when rate is within conform and conform + exceed burst")
        .no(police_action)
        .then(ACTION_LINES),
    POLICE,
    kw("priority", "Strict Scheduling Priority for this Class").run(priority).then(&[
        KBPS.run(priority),
        kw("level", "Multi-level Priority Queue").then(&[number(1, 2, "Level; 1 is served first")
            .run(priority)
            .then(&[
                KBPS.run(priority),
                kw("percent", "% of the port's speed").then(&[PERCENT.run(priority)]),
            ])]),
        kw("percent", "% of the port's speed").then(&[PERCENT.run(priority)]),
    ]),
    kw("queue-limit", "Queue Max Threshold for Tail Drop").no(queue_limit).then(&[number(
        1,
        MAX_QUEUE_BYTES as u64,
        "Packets (1-8192) or bytes (2000-512000000)",
    )
    .run(queue_limit)
    .then(&[kw("bytes", "in bytes").run(queue_limit), kw("packets", "in packets").run(queue_limit)])]),
    kw("service-policy", "Configure QoS Service Policy")
        .no(child)
        .then(&[arg(NAME, "Policy-map name").run(child)]),
    kw("set", "Set QoS values").then(&[
        kw("cos", "Set IEEE 802.1Q class of service")
            .no(set_cos)
            .then(&[number(0, 7, "Class of service").run(set_cos)]),
        kw("dscp", "Set DSCP in IP(v4) and IPv6 packets").no(set_ip).then(&[DSCP.run(set_ip)]),
        kw("ip", "Set IP specific values").then(&[
            kw("dscp", "The same as set dscp").no(set_ip).then(&[DSCP.run(set_ip)]),
            kw("precedence", "The same as set precedence").no(set_ip).then(&[PRECEDENCE.run(set_ip)]),
        ]),
        kw("precedence", "Set precedence in IP(v4) and IPv6 packets")
            .no(set_ip)
            .then(&[PRECEDENCE.run(set_ip)]),
    ]),
    kw("shape", "Traffic Shaping").no(shape).then(&[kw("average", "configure token bucket: CIR (bps)")
        .no(shape)
        .then(&[kw("percent", "% of the port's speed").then(&[PERCENT.run(shape)]), RATE.run(shape)])]),
    kw("violate-action", "Action when rate is greater than conform + exceed burst")
        .no(police_action)
        .then(ACTION_LINES),
];

const KBPS: Node = number(MIN_QOS_BPS / 1_000, MAX_QOS_BPS / 1_000, "Kilobits per second");
const PERCENT: Node = number(1, 100, "Percentage");
/// A rate. The name of the argument ends in `[k|m|g]` so that the round-trip test ([`crate::generate`]) enters numbers with a
/// suffix.
const RATE: Node = arg(Kind::Word("8000-100000000000[k|m|g]", 16), "Bits per second");
const BURST: Node = number(MIN_QOS_BURST as u64, MAX_QOS_BURST as u64, "Bytes");

const REMAINING: Node = kw("remaining", "percent/ratio of the remaining bandwidth").then(&[
    kw("percent", "% of Remaining Bandwidth").then(&[PERCENT.run(bandwidth)]),
    kw("ratio", "ratio for sharing excess bandwidth")
        .then(&[number(1, MAX_QOS_RATIO as u64, "Ratio").run(bandwidth)]),
]);

const POLICE: Node = kw("police", "Police").no(police).then(&[
    kw("cir", "Committed information rate").then(&[
        kw("percent", "% of the port's speed").then(&[PERCENT.run(police).options(POLICE_OPTIONS)]),
        RATE.run(police).options(POLICE_OPTIONS),
    ]),
    kw("rate", "Specify police rate").then(&[RATE.run(police).options(POLICE_OPTIONS)]),
    RATE.run(police).options(POLICE_OPTIONS).then(&[BURST.run(police).options(POLICE_OPTIONS)]),
]);

const POLICE_OPTIONS: &[Node] = &[
    kw("bc", "Conform burst").then(&[BURST]),
    kw("be", "Excess burst").then(&[BURST]),
    kw("conform-action", "Action when rate is less than conform burst").then(ACTIONS),
    kw("exceed-action", "Action when rate is within conform and conform + exceed burst").then(ACTIONS),
    kw("pir", "Peak Information Rate").then(&[RATE, kw("percent", "% of the port's speed").then(&[PERCENT])]),
    kw("violate-action", "Action when rate is greater than conform + exceed burst").then(ACTIONS),
];

const COS: Node = number(0, 7, "Class of service");
const ACTIONS: &[Node] = &[
    kw("drop", "Drop packet"),
    kw("set-cos-transmit", "Set class of service and send it").then(&[COS]),
    kw("set-dscp-transmit", "Set DSCP and send it").then(&[DSCP]),
    kw("set-prec-transmit", "Rewrite packet precedence and send it").then(&[PRECEDENCE]),
    kw("transmit", "Transmit packet"),
];
const ACTION_LINES: &[Node] = &[
    kw("drop", "Drop packet").run(police_action),
    kw("set-cos-transmit", "Set class of service and send it").then(&[COS.run(police_action)]),
    kw("set-dscp-transmit", "Set DSCP and send it").then(&[DSCP.run(police_action)]),
    kw("set-prec-transmit", "Rewrite packet precedence and send it").then(&[PRECEDENCE.run(police_action)]),
    kw("transmit", "Transmit packet").run(police_action),
];

fn print_policies(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    // Child policies come first, because a line that refers to a policy map that does not exist is refused.
    for has_child in [false, true] {
        let policies = config.qos.policies.iter().filter(|(_, of)| of.default.child.is_some() == has_child);
        for (name, policy) in policies {
            lines.push(format!("policy-map {name}"));
            lines.extend(policy.description.iter().map(|text| format!(" description {text}")));
            for (class, actions) in policy.actions() {
                if class != CLASS_DEFAULT || *actions != ClassActions::default() {
                    lines.push(format!(" class {class}"));
                    lines.extend(lines_of(actions).into_iter().map(|line| format!("  {line}")));
                }
            }
        }
    }
    lines
}

fn missing(name: &str) -> Refusal {
    format!("policy map {} not configured", short(name)).into()
}

/// Why a policy map cannot be removed; `None` if nothing refers to it.
fn user(config: &Config, name: &str) -> Option<String> {
    let uses = |of: &Option<String>| of.as_deref() == Some(name);
    let interface = config.interfaces.iter().find_map(|(interface, settings)| {
        let way = match &settings.qos {
            qos if uses(&qos.input) => "input",
            qos if uses(&qos.output) => "output",
            _ => return None,
        };
        Some(format!(
            "policy map {name} is in use: enter no service-policy {way} at interface {interface} first"
        ))
    });
    let parent = || {
        let (parent, _) = config.qos.policies.iter().find(|(_, policy)| uses(&policy.default.child))?;
        Some(format!("policy map {name} is in use: policy map {parent} has it as service-policy"))
    };
    interface.or_else(parent)
}

fn enter(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = need(args.text())?;
    check_map_name(&name)?;
    if args.form != Form::Set {
        if !edit.config.qos.policies.contains_key(&name) {
            return Err(missing(&name));
        }
        if let Some(reason) = user(edit.config, &name) {
            return Err(reason.into());
        }
        edit.config.qos.policies.remove(&name);
        return Ok(());
    }
    let policies = &mut edit.config.qos.policies;
    if policies.len() >= MAX_QOS_MAPS && !policies.contains_key(&name) {
        return Err(format!("there are {MAX_QOS_MAPS} policy maps already: remove one").into());
    }
    policies.entry(name.clone()).or_default();
    *edit.mode = ConfigMode::PolicyMap(name);
    Ok(())
}

/// Changes the policy map of the mode; undoes the change if the policy map then has an error. Returns the name of the policy map.
fn change(
    edit: &mut Edit<'_>,
    change: impl FnOnce(&mut PolicyMap) -> Result<(), Refusal>,
) -> Result<String, Refusal> {
    let (ConfigMode::PolicyMap(name) | ConfigMode::PolicyClass(name, _) | ConfigMode::Policer(name, _)) =
        &*edit.mode
    else {
        return Err("this command needs the mode of a policy map: enter policy-map first".into());
    };
    let name = name.clone();
    let policy = edit.config.qos.policies.get_mut(&name).ok_or_else(|| missing(&name))?;
    let mut new = policy.clone();
    change(&mut new)?;
    let old = std::mem::replace(policy, new);
    if let Some(error) = policy_error(edit.config, &name) {
        edit.config.qos.policies.insert(name, old);
        return Err(error.into());
    }
    Ok(name)
}

/// Changes the actions of the class that the mode configures.
fn change_class(
    edit: &mut Edit<'_>,
    set: impl FnOnce(&mut ClassActions) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (ConfigMode::PolicyClass(_, class) | ConfigMode::Policer(_, class)) = &*edit.mode else {
        return Err("this command needs the mode of a class: enter policy-map and class first".into());
    };
    let class = class.clone();
    let policy = change(edit, |policy| {
        let named = policy.classes.iter_mut().find(|(name, _)| *name == class).map(|(_, actions)| actions);
        let default = (class == CLASS_DEFAULT).then_some(&mut policy.default);
        set(named
            .or(default)
            .ok_or_else(|| Refusal::from(format!("class {class} does not exist any more")))?)
    })?;
    *edit.mode = ConfigMode::PolicyClass(policy, class);
    Ok(())
}

fn describe(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let text = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    change(edit, |policy| {
        policy.description = text;
        Ok(())
    })
    .map(drop)
}

fn enter_class(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let class = need(args.text())?;
    let set = args.form == Form::Set;
    let policy = change(edit, |policy| {
        let held = policy.classes.iter().position(|(name, _)| *name == class);
        match (set, held) {
            (true, Some(_)) => {}
            (true, None) if class == CLASS_DEFAULT => {}
            (true, None) => policy.classes.push((class.clone(), ClassActions::default())),
            (false, Some(at)) => drop(policy.classes.remove(at)),
            (false, None) if class == CLASS_DEFAULT => policy.default = ClassActions::default(),
            (false, None) => return Err(format!("the policy map has no class {}", short(&class)).into()),
        }
        Ok(())
    })?;
    *edit.mode = if set { ConfigMode::PolicyClass(policy, class) } else { ConfigMode::PolicyMap(policy) };
    Ok(())
}

fn set_ip(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let is_dscp = need(args.among(&[("dscp", true), ("precedence", false)]))?;
    let set = match (args.form, is_dscp) {
        (Form::Set, true) => Some(SetIp::Dscp(dscp(&need(args.text())?)?)),
        (Form::Set, false) => Some(SetIp::Precedence(precedence(&need(args.text())?)?)),
        _ => None,
    };
    change_class(edit, |actions| {
        // The `no` form with `precedence` leaves a DSCP as it is, and the reverse.
        if set.is_some() || matches!(actions.set, Some(SetIp::Dscp(_))) == is_dscp {
            actions.set = set;
        }
        Ok(())
    })
}

fn set_cos(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let cos = args.number().filter(|_| args.form == Form::Set).and_then(|cos| u8::try_from(cos).ok());
    change_class(edit, |actions| {
        actions.set_cos = cos;
        Ok(())
    })
}

/// The rate that `number` means: a percentage after the keyword `percent`, otherwise kilobits per second.
fn share(args: &Args, number: u64) -> QosRate {
    if args.among(&[("percent", ())]).is_some() {
        QosRate::Percent(u8::try_from(number).unwrap_or(100))
    } else {
        QosRate::Bps(number.saturating_mul(1_000))
    }
}

fn priority(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mut numbers = args.numbers().into_iter();
    let level = if args.among(&[("level", ())]).is_some() { need(numbers.next())? as u8 } else { 1 };
    let priority = Priority { level, rate: numbers.next().map(|number| share(args, number)) };
    let set = args.form == Form::Set;
    change_class(edit, |actions| {
        actions.priority = set.then_some(priority);
        Ok(())
    })
}

fn bandwidth(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = args.number().unwrap_or_default();
    let percent = || u8::try_from(number).unwrap_or(100);
    let bandwidth =
        match (args.among(&[("remaining", ())]).is_some(), args.among(&[("percent", ())]).is_some()) {
            (true, true) => Bandwidth::RemainingPercent(percent()),
            (true, false) => Bandwidth::RemainingRatio(u16::try_from(number).unwrap_or(MAX_QOS_RATIO)),
            (false, true) => Bandwidth::Percent(percent()),
            (false, false) => Bandwidth::Bps(number.saturating_mul(1_000)),
        };
    let set = args.form == Form::Set;
    change_class(edit, |actions| {
        actions.bandwidth = set.then_some(bandwidth);
        Ok(())
    })
}

fn shape(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let shape = match (args.form, args.text(), args.number()) {
        (Form::Set, Some(word), _) => Some(rate(&word)?),
        (Form::Set, None, Some(number)) => Some(share(args, number)),
        _ => None,
    };
    change_class(edit, |actions| {
        actions.shape = shape;
        Ok(())
    })
}

fn queue_limit(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let number = args.number().unwrap_or_default();
    let limit = if args.form != Form::Set {
        None
    } else if args.among(&[("bytes", ())]).is_some() {
        let bytes =
            u32::try_from(number).ok().filter(|bytes| (MIN_QUEUE_BYTES..=MAX_QUEUE_BYTES).contains(bytes));
        let wrong = format!("queue-limit {number} bytes: {MIN_QUEUE_BYTES} to {MAX_QUEUE_BYTES} bytes");
        Some(QueueLimit::Bytes(bytes.ok_or(wrong)?))
    } else {
        let packets = u16::try_from(number).ok().filter(|packets| (1..=MAX_QUEUE_PACKETS).contains(packets));
        let wrong = format!(
            "queue-limit {number} packets: 1 to {MAX_QUEUE_PACKETS} packets; enter bytes for a number of bytes"
        );
        Some(QueueLimit::Packets(packets.ok_or(wrong)?))
    };
    change_class(edit, |actions| {
        actions.queue_limit = limit;
        Ok(())
    })
}

fn child(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let name = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    change_class(edit, |actions| {
        actions.child = name;
        Ok(())
    })
}

/// The action of the keyword `word`; a keyword that sets a field takes the value from `values`.
fn action_of<'a>(word: &str, values: &mut impl Iterator<Item = &'a Value>) -> Result<PoliceAction, Refusal> {
    let mut value = || match values.next() {
        Some(Value::Text(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(Refusal::from("Incomplete command.")),
    };
    Ok(match word {
        "drop" => PoliceAction::Drop,
        "set-cos-transmit" => PoliceAction::SetCos(need(value()?.parse().ok())?),
        "set-dscp-transmit" => PoliceAction::SetDscp(dscp(&value()?)?),
        "set-prec-transmit" => PoliceAction::SetPrecedence(precedence(&value()?)?),
        _ => PoliceAction::Transmit,
    })
}

/// The policer of a `police` line. The second value is true if the line names an action.
fn read_police(args: &Args) -> Result<(Police, bool), Refusal> {
    let mut values = args.values.iter().peekable();
    let mut words = args.words.iter().copied().skip(1).peekable();
    let rate_is_next = |words: &mut std::iter::Peekable<_>, values: &mut dyn Iterator<Item = &Value>| {
        let is_percent = words.next_if(|word: &&str| *word == "percent").is_some();
        match values.next() {
            Some(Value::Number(number)) if is_percent => {
                Ok(QosRate::Percent(u8::try_from(*number).unwrap_or(100)))
            }
            Some(Value::Text(text)) => rate(text),
            _ => Err(Refusal::from("Incomplete command.")),
        }
    };
    words.next_if(|word| ["cir", "rate"].contains(word));
    let mut police = Police {
        cir: rate_is_next(&mut words, &mut values)?,
        bc: None,
        pir: None,
        be: None,
        conform: PoliceAction::Transmit,
        exceed: PoliceAction::Drop,
        violate: None,
    };
    let mut acts = false;
    // Every value after the rate follows a keyword, except a committed burst that is given without `bc`.
    let takes = |word: &&str| ["bc", "be", "pir"].contains(word) || word.starts_with("set-");
    let owned = words.clone().filter(takes).count();
    let burst = |value: Option<&Value>| match value {
        Some(Value::Number(number)) => need(u32::try_from(*number).ok()).map(Some),
        _ => Err("Incomplete command.".into()),
    };
    if values.len() > owned {
        police.bc = burst(values.next())?;
    }
    while let Some(word) = words.next() {
        match word {
            "bc" => police.bc = burst(values.next())?,
            "be" => police.be = burst(values.next())?,
            "pir" => police.pir = Some(rate_is_next(&mut words, &mut values)?),
            _ => {
                let action = action_of(words.next().unwrap_or_default(), &mut values)?;
                set_action(&mut police, word, Some(action));
                acts = true;
            }
        }
    }
    // As in IOS, a policer with two bursts has three colours, and drops frames that violate.
    if police.be.is_some() && police.pir.is_none() && police.violate.is_none() {
        police.violate = Some(PoliceAction::Drop);
    }
    Ok((police, acts))
}

/// Sets the action of the colour whose keyword is `word`; `None` restores the default.
fn set_action(police: &mut Police, word: &str, action: Option<PoliceAction>) {
    match word {
        "conform-action" => police.conform = action.unwrap_or(PoliceAction::Transmit),
        "exceed-action" => police.exceed = action.unwrap_or(PoliceAction::Drop),
        _ => police.violate = action,
    }
}

fn police(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    if args.form != Form::Set {
        return change_class(edit, |actions| {
            actions.police = None;
            Ok(())
        });
    }
    let (police, acts) = read_police(args)?;
    change_class(edit, |actions| {
        actions.police = Some(police);
        Ok(())
    })?;
    // As in IOS, a line without actions leads to the mode in which they are entered.
    if !acts {
        into_policer(edit);
    }
    Ok(())
}

fn into_policer(edit: &mut Edit<'_>) {
    if let ConfigMode::PolicyClass(policy, class) = &*edit.mode {
        *edit.mode = ConfigMode::Policer(policy.clone(), class.clone());
    }
}

/// `conform-action`, `exceed-action` and `violate-action`, each entered as a line.
fn police_action(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let mut words = args.words.iter().copied();
    let colour = need(words.next())?;
    let action = match args.form {
        Form::Set => Some(action_of(need(words.next())?, &mut args.values.iter())?),
        _ => None,
    };
    change_class(edit, |actions| {
        let police = actions.police.as_mut().ok_or_else(|| {
            Refusal::from(format!("the class has no policer for {colour}: enter police first"))
        })?;
        set_action(police, colour, action);
        Ok(())
    })?;
    into_policer(edit);
    Ok(())
}
