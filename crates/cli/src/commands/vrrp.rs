//! `vrrp N ...` under an interface: virtual routers, which keepalived runs for the switch (RFC 3768).

use super::{ip, need};
use crate::args::{Args, Form, Kind};
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::setting::Line;
use crate::tree::{Node, arg, kw, number};
use lanyard_config::layer3::{DEFAULT_DECREMENT, Vrrp};
use lanyard_config::{Interface, InterfaceName};
use std::net::{IpAddr, Ipv4Addr};

/// The maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 80;
/// The maximum number of virtual addresses of a group.
const MAX_ADDRESSES: usize = 20;
/// The maximum number of groups per interface: the number of virtual MAC addresses that planes support.
const MAX_GROUPS: usize = lanyard_pipeline::route::VIRTUAL_MACS;

/// Under an interface.
pub const LINES: &[Line<Interface>] = &[Line::Own {
    under: "",
    node: TREE,
    print: |interface| interface.layer3.vrrp.iter().flat_map(|(group, vrrp)| print(*group, vrrp)).collect(),
}];

const TREE: Node =
    kw("vrrp", "VRRP Interface configuration commands").then(&[number(1, 255, "Group number")
        .no(remove)
        .then(&[
            kw("description", "Group specific description").no(description).then(&[arg(
                Kind::Line(MAX_DESCRIPTION),
                "Up to 80 characters describing this group",
            )
            .run(description)]),
            kw("ip", "Enable Virtual Router Redundancy Protocol (VRRP) for IP").no(address).then(&[arg(
                Kind::Ipv4,
                "VRRP group IP address",
            )
            .run(address)
            .then(&[kw("secondary", "Specify an additional VRRP address for this group").run(address)])]),
            kw("preempt", "Enable preemption of lower priority Master").run(preempt).then(&[kw(
                "delay",
                "Wait before preempting",
            )
            .then(&[kw("minimum", "Delay at least this long").then(&[number(
                0,
                1000,
                "Number of seconds to delay",
            )
            .run(preempt_delay)])])]),
            kw("priority", "Priority of this VRRP group").no(priority).then(&[number(
                1,
                254,
                "Priority level",
            )
            .run(priority)]),
            kw("shutdown", "Disable VRRP Configuration").run(shutdown),
            kw("timers", "Set the VRRP timers").then(&[kw("advertise", "Set the Advertisement timer")
                .no(advertise)
                .then(&[number(1, 255, "Advertisement interval in seconds").run(advertise)])]),
            kw("track", "Event Tracking").then(&[number(1, super::track::MAX, "Track object number")
                .run(track)
                .then(&[kw("decrement", "Priority decrement").then(&[number(
                    1,
                    255,
                    "Priority decrement",
                )
                .run(track)])])]),
        ])]);

fn print(group: u8, vrrp: &Vrrp) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let default = Vrrp::default();
    words.extend(vrrp.description.iter().map(|text| format!("description {text}")));
    for (at, address) in vrrp.addresses.iter().enumerate() {
        words.push(format!("ip {address}{}", if at == 0 { "" } else { " secondary" }));
    }
    if vrrp.advertise_s != default.advertise_s {
        words.push(format!("timers advertise {}", vrrp.advertise_s));
    }
    if vrrp.preempt_delay_s != 0 {
        words.push(format!("preempt delay minimum {}", vrrp.preempt_delay_s));
    }
    if vrrp.priority != default.priority {
        words.push(format!("priority {}", vrrp.priority));
    }
    for (object, decrement) in &vrrp.tracks {
        words.push(match *decrement {
            DEFAULT_DECREMENT => format!("track {object}"),
            decrement => format!("track {object} decrement {decrement}"),
        });
    }
    if vrrp.shutdown {
        words.push("shutdown".into());
    }
    let mut lines: Vec<String> = words.into_iter().map(|words| format!("vrrp {group} {words}")).collect();
    if !vrrp.preempt {
        lines.push(format!("no vrrp {group} preempt"));
    }
    lines
}

/// The number of a line behind that of its group.
fn second_number<T: TryFrom<u64>>(args: &Args) -> Result<T, Refusal> {
    need(args.numbers().get(1).and_then(|n| T::try_from(*n).ok()))
}

/// Edits the group of the line on every interface of the mode. A group without any setting is removed.
fn each(
    edit: &mut Edit<'_>,
    args: &Args,
    mut set: impl FnMut(&mut Vrrp, &Interface, &InterfaceName) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let group = need(args.number().and_then(|n| u8::try_from(n).ok()))?;
    edit.each_interface(|interface, name| {
        ip::layer3(interface, name)?;
        let mut vrrp = interface.layer3.vrrp.get(&group).cloned().unwrap_or_default();
        set(&mut vrrp, interface, name)?;
        if vrrp == Vrrp::default() {
            interface.layer3.vrrp.remove(&group);
        } else {
            interface.layer3.vrrp.insert(group, vrrp);
        }
        if interface.layer3.vrrp.len() > MAX_GROUPS {
            return Err(format!("{name} has {MAX_GROUPS} VRRP groups already").into());
        }
        Ok(())
    })
}

fn remove(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    each(edit, args, |vrrp, _, _| {
        *vrrp = Vrrp::default();
        Ok(())
    })
}

fn description(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let text = if args.form == Form::Set { Some(need(args.text())?) } else { None };
    each(edit, args, |vrrp, _, _| {
        vrrp.description.clone_from(&text);
        Ok(())
    })
}

fn address(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let address = match args.addresses().first() {
        Some(IpAddr::V4(address)) => Some(*address),
        _ => None,
    };
    let secondary = args.has("secondary");
    if args.form != Form::Set {
        return each(edit, args, |vrrp, _, name| match address {
            None => {
                vrrp.addresses.clear();
                Ok(())
            }
            Some(address) => match vrrp.addresses.iter().position(|other| *other == address) {
                None => Err(format!("{address} is not a virtual address of {name}").into()),
                Some(0) if vrrp.addresses.len() > 1 => {
                    Err("Must delete secondary before deleting primary".into())
                }
                Some(at) => {
                    vrrp.addresses.remove(at);
                    Ok(())
                }
            },
        });
    }
    let address: Ipv4Addr = need(address)?;
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || address.is_broadcast() {
        return Err(format!("Not a valid host address - {address}").into());
    }
    let mut notices = Vec::new();
    each(edit, args, |vrrp, interface, name| {
        if !interface.ipv4.is_empty() && !interface.ipv4.iter().any(|net| net.contains(&address)) {
            notices.push(format!("% Warning: address {address} is not within a subnet on {name}"));
        }
        if interface.ipv4.iter().any(|net| net.addr() == address) {
            return Err(format!(
                "{address} is an address of {name} itself: enter another address for the group"
            )
            .into());
        }
        match (secondary, vrrp.addresses.is_empty()) {
            (true, true) => return Err(format!("the group has no primary address yet on {name}").into()),
            (true, false) if vrrp.addresses[0] == address => {
                return Err(format!("{address} is already the primary address of the group").into());
            }
            (true, false) => {
                vrrp.addresses.retain(|other| *other != address);
                vrrp.addresses.push(address);
            }
            (false, _) if vrrp.addresses.iter().skip(1).any(|other| *other == address) => {
                return Err(format!("{address} is already a secondary address of the group").into());
            }
            (false, true) => vrrp.addresses.push(address),
            (false, false) => vrrp.addresses[0] = address,
        }
        if vrrp.addresses.len() > MAX_ADDRESSES {
            return Err(format!("the group has {MAX_ADDRESSES} addresses already").into());
        }
        Ok(())
    })?;
    edit.notices.append(&mut notices);
    Ok(())
}

fn preempt(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    each(edit, args, |vrrp, _, _| {
        (vrrp.preempt, vrrp.preempt_delay_s) = (args.form != Form::No, 0);
        Ok(())
    })
}

fn preempt_delay(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let delay_s: u16 = second_number(args)?;
    each(edit, args, |vrrp, _, _| {
        match args.form {
            Form::Set => (vrrp.preempt, vrrp.preempt_delay_s) = (true, delay_s),
            // The `no` form removes the delay only; preemption stays on or off.
            Form::No | Form::Default => vrrp.preempt_delay_s = 0,
        }
        Ok(())
    })
}

fn priority(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let priority = match args.form {
        Form::Set => second_number(args)?,
        _ => Vrrp::default().priority,
    };
    each(edit, args, |vrrp, _, _| {
        vrrp.priority = priority;
        Ok(())
    })
}

fn shutdown(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    each(edit, args, |vrrp, _, _| {
        vrrp.shutdown = args.form == Form::Set;
        Ok(())
    })
}

fn advertise(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let seconds = match args.form {
        Form::Set => second_number(args)?,
        _ => Vrrp::default().advertise_s,
    };
    each(edit, args, |vrrp, _, _| {
        vrrp.advertise_s = seconds;
        Ok(())
    })
}

fn track(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let object: u16 = second_number(args)?;
    let decrement = args.numbers().get(2).and_then(|n| u8::try_from(*n).ok()).unwrap_or(DEFAULT_DECREMENT);
    each(edit, args, |vrrp, _, _| {
        if args.form == Form::Set {
            vrrp.tracks.insert(object, decrement);
        } else {
            vrrp.tracks.remove(&object);
        }
        Ok(())
    })
}
