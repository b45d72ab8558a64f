//! The words that may follow inside a rule of an access list, for `?` and TAB.

use lanyard_acl::Kind;
use lanyard_acl::text::{Choice, expected};

/// The choices for the next word of a rule, and whether the rule may end before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Keywords and forms of arguments that fit the partial word.
    pub(crate) choices: Vec<Choice>,
    /// True if the rule is complete.
    pub(crate) complete: bool,
}

/// The choices for the word `partial` of a rule. `words` are the complete words of the line; the last `used` of them follow
/// `permit` or `deny`. The list is the numbered one that the line names, otherwise one of kind `mode`. No choices if the words
/// do not begin a rule.
pub(crate) fn rule(mode: Option<Kind>, words: &[&str], used: usize, partial: &str) -> Rule {
    let Some(action) = words.len().checked_sub(used + 1) else { return Rule::default() };
    let Some(kind) = numbered(words).or(mode) else { return Rule::default() };
    let Ok(found) = expected(kind, &words[action..]) else { return Rule::default() };
    let lower = partial.to_ascii_lowercase();
    let is_begun = |label: &str| is_keyword(label) && label.starts_with(&lower);
    let any_begun = !partial.is_empty() && found.choices.iter().any(|(label, _)| is_begun(label));
    // The grammar of rules determines whether a partial address or number fits, because only the grammar has the ranges.
    let fits = || !any_begun && expected(kind, &[&words[action..], &[partial]].concat()).is_ok();
    let choices = found
        .choices
        .into_iter()
        .filter(|(label, _)| is_begun(label) || (!is_keyword(label) && (partial.is_empty() || fits())));
    Rule { choices: choices.collect(), complete: found.complete && partial.is_empty() }
}

/// True for a keyword, false for the form of an argument such as `A.B.C.D` or `<0-255>`.
pub(crate) fn is_keyword(label: &str) -> bool {
    label.starts_with(|c: char| c.is_ascii_lowercase())
}

/// The kind of the list of an `access-list N` line.
fn numbered(words: &[&str]) -> Option<Kind> {
    let (command, number) = (words.first()?, words.get(1)?);
    // The shortest unique abbreviation of `access-list` in global configuration.
    let is_command = command.len() > 1 && "access-list".starts_with(&command.to_ascii_lowercase());
    if is_command { Kind::of_number(number) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(mode: Option<Kind>, line: &str, used: usize, partial: &str) -> (Vec<String>, bool) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rule = rule(mode, &words, used, partial);
        (rule.choices.into_iter().map(|(label, _)| label).collect(), rule.complete)
    }

    #[test]
    fn the_grammar_of_the_lists_kind_decides() {
        let extended = Some(Kind::Extended);
        assert_eq!(labels(extended, "permit", 0, "tc"), (vec!["tcp".into()], false));
        let (address, complete) = labels(extended, "permit tcp", 1, "");
        assert!(address.contains(&"any".into()) && address.contains(&"A.B.C.D".into()) && !complete);
        assert_eq!(labels(extended, "permit tcp", 1, "10.0.0.1").0, ["A.B.C.D"]);
        let (after, complete) = labels(extended, "10 permit tcp any any", 3, "");
        assert!(complete && ["eq", "established", "log"].iter().all(|word| after.contains(&(*word).into())));
        assert_eq!(labels(None, "access-list 10 deny", 0, "h"), (vec!["host".into()], false));
        assert_eq!(labels(extended, "permit nothing", 1, ""), (vec![], false));
        assert_eq!(labels(None, "permit", 0, ""), (vec![], false));
    }
}
