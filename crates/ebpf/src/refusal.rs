//! Finds the reason why the kernel refuses a program, as one line. libbpf prints the verifier's log, which has
//! thousands of lines.
//!
//! Read first: `kernel/bpf/verifier.c` of Linux for the form of the log. Invariant: libbpf prints nothing to the
//! terminal while [`Messages`] lives.

use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

/// Collects what libbpf prints, for the error message.
pub(crate) struct Messages {
    before: Option<(PrintLevel, libbpf_rs::PrintCallback)>,
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Messages {
    /// Collects what libbpf prints until this value is dropped.
    pub(crate) fn listen() -> Self {
        let keep: libbpf_rs::PrintCallback = |_, text| {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            // The reason is at the end of a verifier's log, so the last messages are sufficient.
            if lines.len() >= 64 {
                lines.remove(0);
            }
            lines.push(text);
        };
        LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Self { before: libbpf_rs::set_print(Some((PrintLevel::Warn, keep))) }
    }

    /// The error, with the reason that libbpf and the verifier have printed for it.
    pub(crate) fn reason(&self, error: &libbpf_rs::Error) -> String {
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        reason(&lines.concat()).unwrap_or_else(|| error.to_string())
    }

    /// The kernel's message in answer to a netlink request, without the error number.
    pub(crate) fn kernel(&self) -> Option<String> {
        kernel(&LINES.lock().unwrap_or_else(PoisonError::into_inner).concat())
    }
}

/// Finds the kernel's message in the lines that libbpf has printed.
fn kernel(printed: &str) -> Option<String> {
    printed.lines().find_map(|line| Some(line.split_once("Kernel error message: ")?.1.trim().to_owned()))
}

impl Drop for Messages {
    fn drop(&mut self) {
        libbpf_rs::set_print(self.before);
    }
}

/// Finds the reason in libbpf's output: the verifier's about a program if there is one, else libbpf's first message.
fn reason(printed: &str) -> Option<String> {
    let messages: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let program = |line: &str| Some(line.split_once("prog '")?.1.split_once('\'')?.0.to_owned());
    let failed = messages.iter().position(|line| line.contains("BPF program load failed"));
    let Some(failed) = failed else {
        return messages.first().map(|line| line.trim_start_matches("libbpf: ").to_owned());
    };
    let error = messages[failed].rsplit_once("load failed: ").map_or(messages[failed], |(_, error)| error);
    let name = program(messages[failed]).unwrap_or_else(|| "a program".into());
    let log = &messages[failed + 1..];
    let log = &log[..log.iter().position(|line| line.contains("END PROG LOAD LOG")).unwrap_or(0)];
    let why = verdict(log).unwrap_or_else(|| error.to_owned());
    Some(format!("the kernel refuses the program {name}: {why}"))
}

/// The last instruction that the verifier printed and its objection: the lines after it, up to the
/// statistics.
fn verdict(log: &[&str]) -> Option<String> {
    let is_instruction = |line: &str| {
        line.split_once(": (").is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let end = log.iter().position(|line| line.starts_with("processed ")).unwrap_or(log.len());
    let log = &log[..end];
    let at = log.iter().rposition(|line| is_instruction(line));
    // Without an instruction the log is short, and begins with libbpf's own line.
    let wrong = at.map_or_else(|| log.get(1..).unwrap_or_default(), |at| &log[at + 1..]);
    let wrong: Vec<&str> = wrong.iter().filter(|line| !is_state(line)).copied().take(3).collect();
    let mut words: Vec<&str> = Vec::new();
    // The state of the registers follows the semicolon.
    words.extend(at.map(|at| log[at].split_once(" ; ").map_or(log[at], |(code, _)| code).trim()));
    words.extend(wrong);
    (!words.is_empty()).then(|| words.join(": "))
}

/// A line of the log with source text or with the state of the registers.
fn is_state(line: &str) -> bool {
    let from = line.starts_with("from ") || line.starts_with("caller") || line.starts_with("; ");
    from || line.split_once(": R").is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, want: Option<&str>) {
        assert_eq!(reason(printed).as_deref(), want);
    }

    #[test]
    fn a_refusal_by_the_verifier_is_one_line() {
        check(
            "libbpf: prog 'lanyard_tc': BPF program load failed: Permission denied\n\
             libbpf: prog 'lanyard_tc': -- BEGIN PROG LOAD LOG --\n\
             Validating tc_trap() func#8...\n\
             2187: (b7) r2 = 0                     ; R2_w=P0\n\
             2188: (85) call bpf_skb_load_bytes#26\n\
             invalid access to memory, mem_size=144 off=16 size=0\n\
             R3 min value is outside of the allowed memory range\n\
             processed 33423 insns (limit 1000000) max_states_per_insn 14 total_states 912 peak_states 912 mark_read 61\n\
             -- END PROG LOAD LOG --\n\
             libbpf: prog 'lanyard_tc': failed to load: -13\n\
             libbpf: failed to load object 'lanyard'\n",
            Some(
                "the kernel refuses the program lanyard_tc: 2188: (85) call bpf_skb_load_bytes#26: invalid access to \
                 memory, mem_size=144 off=16 size=0: R3 min value is outside of the allowed memory range",
            ),
        );
    }

    #[test]
    fn a_refusal_without_a_log_names_program_and_error() {
        check(
            "libbpf: prog 'lanyard_xdp': BPF program load failed: Invalid argument\n\
             libbpf: prog 'lanyard_xdp': failed to load: -22\n\
             libbpf: failed to load object 'lanyard'\n",
            Some("the kernel refuses the program lanyard_xdp: Invalid argument"),
        );
    }

    #[test]
    fn an_unknown_helper_is_named() {
        check(
            "libbpf: prog 'lanyard_flood': BPF program load failed: Invalid argument\n\
             libbpf: prog 'lanyard_flood': -- BEGIN PROG LOAD LOG --\n\
             ; bpf_loop(LY_PORTS + LY_FORMS * LY_PORT_WORDS + 1, flood_step, &s, 0);\n\
             12: (85) call unknown#181\n\
             invalid func unknown#181\n\
             processed 13 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n\
             -- END PROG LOAD LOG --\n",
            Some(
                "the kernel refuses the program lanyard_flood: 12: (85) call unknown#181: invalid func unknown#181",
            ),
        );
    }

    #[test]
    fn the_kernel_message_of_a_driver_is_extracted() {
        let printed = "libbpf: Kernel error message: MTU too large for XDP, max 3498\n";
        assert_eq!(kernel(printed).as_deref(), Some("MTU too large for XDP, max 3498"));
        assert_eq!(kernel("libbpf: something else\n"), None);
    }

    #[test]
    fn an_error_before_program_loading_is_the_first_message_of_libbpf() {
        check(
            "libbpf: map 'fdb': failed to create: Cannot allocate memory(-12)\nlibbpf: failed to load object 'lanyard'\n",
            Some("map 'fdb': failed to create: Cannot allocate memory(-12)"),
        );
        check("", None);
    }
}
