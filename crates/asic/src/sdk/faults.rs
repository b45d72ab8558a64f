//! A fault plan: the operations of a chip that fail, are slow, or end it. For tests and experiments.
//!
//! A plan is a text with one fault per line: `fail route every 3`, `fail operation at 7`, `slow 350 query every 1`,
//! `cut route at 5`, `die operation at 100`; `#` begins a comment. `operation` is every step of a transaction; other
//! kinds are those of [`OperationKind`]. Each line counts the operations of its kind from the moment at which the plan
//! is set.

use super::operation::OperationKind;

/// The most faults of a plan.
pub const MAX_FAULTS: usize = 64;
/// The longest delay of a slow operation, in microseconds: ten seconds.
const MAX_SLOW_US: u32 = 10_000_000;

/// The effect on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, and with it its whole transaction.
    Fail,
    /// It takes this many microseconds longer.
    Slow(u32),
    /// Its transaction is carried out, but the connection ends before the answer.
    Cut,
    /// The chip dies before the operation is carried out.
    Die,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    fault: Fault,
    /// The kind of operation that the line applies to; `None`: every step of a transaction.
    kind: Option<OperationKind>,
    /// True: the fault applies only to the operation `number`. False: to every operation whose number is a multiple of `number`.
    at: bool,
    number: u64,
    seen: u64,
}

/// See the module comment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan(Vec<Line>);

impl FaultPlan {
    /// Parses a plan.
    ///
    /// # Errors
    /// The line that is wrong, and the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            if lines.len() == MAX_FAULTS {
                return Err(format!("line {}: {MAX_FAULTS} faults are the most", at + 1));
            }
            let wrong = || {
                format!(
                    "line {}: {:?} is no fault: fail|slow MICROSECONDS|cut|die, operation or a kind of it, at|every NUMBER",
                    at + 1,
                    line.chars().take(60).collect::<String>()
                )
            };
            lines.push(Line::parse(&words).ok_or_else(wrong)?);
        }
        Ok(Self(lines))
    }

    /// The number of faults.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// True for a plan without faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the next operation of this kind; returns its delay in microseconds and its fault. Of several faults the worst
    /// applies; delays are added.
    pub fn next(&mut self, kind: OperationKind) -> (u32, Option<Fault>) {
        let (mut slow_us, mut worst) = (0_u32, None);
        for line in &mut self.0 {
            let any = kind.is_step();
            if line.kind.map_or(!any, |named| named != kind) {
                continue;
            }
            line.seen += 1;
            if if line.at { line.seen != line.number } else { line.seen % line.number != 0 } {
                continue;
            }
            let rank = |fault: Option<Fault>| match fault {
                None | Some(Fault::Slow(_)) => 0,
                Some(Fault::Cut) => 1,
                Some(Fault::Fail) => 2,
                Some(Fault::Die) => 3,
            };
            match line.fault {
                Fault::Slow(us) => slow_us = slow_us.saturating_add(us),
                fault if rank(Some(fault)) > rank(worst) => worst = Some(fault),
                _ => {}
            }
        }
        (slow_us, worst)
    }
}

impl Line {
    fn parse(words: &[&str]) -> Option<Self> {
        let (fault, rest) = match *words {
            ["fail", ref rest @ ..] => (Fault::Fail, rest),
            ["cut", ref rest @ ..] => (Fault::Cut, rest),
            ["die", ref rest @ ..] => (Fault::Die, rest),
            ["slow", us, ref rest @ ..] => {
                (Fault::Slow(us.parse().ok().filter(|us| *us <= MAX_SLOW_US)?), rest)
            }
            _ => return None,
        };
        let [kind, when, number] = *rest else { return None };
        let kind = match kind {
            "operation" => None,
            name => Some(OperationKind::ALL.into_iter().find(|kind| kind.name() == name)?),
        };
        let at = match when {
            "at" => true,
            "every" => false,
            _ => return None,
        };
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self { fault, kind, at, number, seen: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_fault_plan_counts_only_its_kind_of_operation() {
        let mut plan =
            FaultPlan::parse("fail route every 3 # comment\n\nslow 350 query every 1\ndie operation at 5")
                .expect("a plan");
        assert_eq!(plan.len(), 3);
        let mut next = |kind| plan.next(kind);
        assert_eq!(next(OperationKind::Route), (0, None));
        assert_eq!(next(OperationKind::Query), (350, None));
        assert_eq!(next(OperationKind::Route), (0, None));
        assert_eq!(next(OperationKind::Group), (0, None));
        assert_eq!(next(OperationKind::Route), (0, Some(Fault::Fail)));
        assert_eq!(next(OperationKind::Port), (0, Some(Fault::Die)));
    }

    #[test]
    fn an_invalid_line_of_a_fault_plan_is_refused_with_its_number() {
        for text in [
            "fail",
            "fail route",
            "fail route every 0",
            "slow route every 1",
            "burn route at 1",
            "fail moon at 1",
        ] {
            let error = FaultPlan::parse(&format!("fail route at 1\n{text}")).expect_err(text);
            assert!(error.starts_with("line 2: "), "{error}");
        }
        assert!(FaultPlan::parse(&"fail route at 1\n".repeat(65)).is_err());
    }
}
