//! The bytes of an access list: [`PlaneList`].
//!
//! A list can have thousands of rules, so it is not written as JSON.
//!
//! Invariant: a list that is read satisfies everything that its compiler and its search rely on: halves in ascending order and in
//! range, ranges in ascending order, jumps forwards.

use super::MAX_MESSAGE;
use super::bytes::{Malformed, Reader, Writer, malformed};
use lanyard_acl::key::HALVES;
use lanyard_acl::{Condition, FlatRule, FrameFamily, MAX_RULES, PlaneList, Purpose, Verdict};

/// The most bytes of a list, half of a message, so that a transaction can contain other operations with it.
pub const MAX_LIST: usize = MAX_MESSAGE / 2;
/// The longest name of a list, in bytes.
const MAX_NAME: usize = 512;

const DENY: u8 = 0;
const PERMIT: u8 = 1;
const SKIP: u8 = 2;
const MASK: u8 = 0;
const RANGES: u8 = 1;

/// The number of bytes that a list takes in a message.
#[must_use]
pub fn length(list: &PlaneList) -> usize {
    let condition = |(_, condition): &(u8, Condition)| match condition {
        Condition::Mask { .. } => 6,
        Condition::Ranges(ranges) => 4 + 4 * ranges.len(),
    };
    let rule = |rule: &FlatRule| 12 + rule.conditions.iter().map(condition).sum::<usize>();
    let names: usize = list.names.iter().map(|name| 2 + name.len()).sum();
    8 + list.name.len() + names + list.rules.iter().map(rule).sum::<usize>()
}

pub(super) fn write(into: &mut Writer, list: &PlaneList) {
    into.text(&list.name);
    into.u8(list.family as u8);
    into.u8(u8::from(list.otherwise_permit));
    into.u16(list.names.len() as u16);
    list.names.iter().for_each(|name| into.text(name));
    into.u16(list.rules.len() as u16);
    for rule in &list.rules {
        let (kind, to) = match rule.verdict {
            Verdict::Deny => (DENY, 0),
            Verdict::Permit => (PERMIT, 0),
            Verdict::Skip(to) => (SKIP, to),
        };
        into.u8(kind);
        into.u16(to);
        into.u8(u8::from(rule.fragments));
        into.u8(u8::from(rule.log));
        into.u16(rule.list);
        into.u32(rule.seq);
        into.u8(rule.conditions.len() as u8);
        for (half, condition) in &rule.conditions {
            into.u8(*half);
            match condition {
                Condition::Mask { value, mask } => {
                    into.u8(MASK);
                    into.u16(*value);
                    into.u16(*mask);
                }
                Condition::Ranges(ranges) => {
                    into.u8(RANGES);
                    into.u16(ranges.len() as u16);
                    ranges.iter().for_each(|(low, high)| {
                        into.u16(*low);
                        into.u16(*high);
                    });
                }
            }
        }
    }
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<PlaneList, Malformed> {
    let name = text(from)?;
    let number = from.u8()?;
    let Some(family) = FrameFamily::ALL.into_iter().find(|family| *family as u8 == number) else {
        return malformed(format!("{number} is no family of frames"));
    };
    let otherwise_permit = from.flag()?;
    let count = count(from, "lists")?;
    let names = (0..count).map(|_| text(from)).collect::<Result<Vec<_>, _>>()?;
    let count = self::count(from, "rules")?;
    let mut rules = Vec::with_capacity(count.min(from.rest().len() / 12));
    for at in 0..count {
        rules.push(rule(from, at, names.len())?);
    }
    // A chip has no policy maps, so every list filters.
    Ok(PlaneList { name, purpose: Purpose::Filter, family, names, rules, otherwise_permit })
}

fn text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    match from.text()? {
        text if text.len() <= MAX_NAME => Ok(text.to_owned()),
        text => malformed(format!("an access list's name of {} bytes; {MAX_NAME} is the most", text.len())),
    }
}

fn count(from: &mut Reader<'_>, what: &str) -> Result<usize, Malformed> {
    match usize::from(from.u16()?) {
        count if count <= MAX_RULES => Ok(count),
        count => malformed(format!("an access list of {count} {what}; {MAX_RULES} is the most")),
    }
}

fn rule(from: &mut Reader<'_>, at: usize, lists: usize) -> Result<FlatRule, Malformed> {
    let (kind, to) = (from.u8()?, from.u16()?);
    let verdict = match (kind, usize::from(to)) {
        (DENY, 0) => Verdict::Deny,
        (PERMIT, 0) => Verdict::Permit,
        (SKIP, target) if target > at => Verdict::Skip(to),
        _ => return malformed(format!("{kind} with {to} is no verdict of rule {at}")),
    };
    let (fragments, log, list, seq) = (from.flag()?, from.flag()?, from.u16()?, from.u32()?);
    if usize::from(list) >= lists {
        return malformed(format!("rule {at} is of list {list}, and {lists} are named"));
    }
    let mut conditions: Vec<(u8, Condition)> = Vec::new();
    for _ in 0..from.u8()? {
        let half = from.u8()?;
        if usize::from(half) >= HALVES || conditions.last().is_some_and(|(last, _)| *last >= half) {
            return malformed(format!("rule {at} compares field {half} out of order, or there is none"));
        }
        conditions.push((half, condition(from)?));
    }
    // A chip sends no notes, so `log_input`, which is about their contents, is not transmitted.
    Ok(FlatRule { verdict, fragments, log, log_input: false, list, seq, conditions })
}

fn condition(from: &mut Reader<'_>) -> Result<Condition, Malformed> {
    match from.u8()? {
        MASK => {
            let (value, mask) = (from.u16()?, from.u16()?);
            if value & !mask != 0 {
                return malformed(format!("{value:#x} has bits that the mask {mask:#x} does not compare"));
            }
            Ok(Condition::Mask { value, mask })
        }
        RANGES => {
            let count = usize::from(from.u16()?);
            let mut ranges: Vec<(u16, u16)> = Vec::with_capacity(count.min(from.rest().len() / 4));
            for _ in 0..count {
                let (low, high) = (from.u16()?, from.u16()?);
                // A range must not be adjacent to the previous one: the two would be one range.
                let follows = ranges.last().is_none_or(|(_, last)| u32::from(*last) + 1 < u32::from(low));
                if low > high || !follows {
                    return malformed(format!("the range {low} to {high} is out of order"));
                }
                ranges.push((low, high));
            }
            Ok(Condition::Ranges(ranges))
        }
        other => malformed(format!("{other} is no kind of condition")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> PlaneList {
        let rule = |verdict, conditions| FlatRule {
            verdict,
            fragments: true,
            log: false,
            log_input: false,
            list: 0,
            seq: 10,
            conditions,
        };
        let ports = Condition::Ranges(vec![(1, 5), (80, 80)]);
        PlaneList {
            name: "vlan map m".into(),
            purpose: Purpose::Filter,
            family: FrameFamily::Ipv4,
            names: vec!["web".into()],
            rules: vec![
                rule(Verdict::Skip(2), vec![(0, Condition::Mask { value: 0x0a00, mask: 0xff00 })]),
                rule(Verdict::Permit, vec![(1, Condition::Mask { value: 1, mask: 3 }), (17, ports)]),
                rule(Verdict::Deny, Vec::new()),
            ],
            otherwise_permit: true,
        }
    }
    fn bytes(list: &PlaneList) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer, list);
        writer.0
    }

    #[test]
    fn a_list_survives_its_bytes() {
        let (list, bytes) = (list(), bytes(&list()));
        assert_eq!(bytes.len(), length(&list));
        let mut reader = Reader::new(&bytes);
        assert_eq!(read(&mut reader), Ok(list));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn every_shorter_text_is_refused() {
        let bytes = bytes(&list());
        for end in 0..bytes.len() {
            assert!(read(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_compiled_is_refused() {
        let refused = |change: fn(&mut PlaneList)| {
            let mut list = list();
            change(&mut list);
            let bytes = bytes(&list);
            let Err(Malformed(why)) = read(&mut Reader::new(&bytes)) else { unreachable!("{list:?}") };
            why
        };
        assert!(refused(|list| list.rules[0].verdict = Verdict::Skip(0)).contains("no verdict of rule 0"));
        assert!(refused(|list| list.rules[2].verdict = Verdict::Skip(2)).contains("no verdict of rule 2"));
        assert!(refused(|list| list.rules[1].list = 1).contains("of list 1, and 1 are named"));
        assert!(refused(|list| list.rules[1].conditions.swap(0, 1)).contains("field 1 out of order"));
        assert!(refused(|list| list.rules[1].conditions[1].0 = 24).contains("field 24"));
        assert!(
            refused(|list| list.rules[0].conditions[0].1 = Condition::Mask { value: 1, mask: 2 })
                .contains("does not compare")
        );
        assert!(
            refused(|list| list.rules[0].conditions[0].1 = Condition::Ranges(vec![(1, 2), (3, 4)]))
                .contains("3 to 4 is out of order")
        );
    }
}
