//! Programs bound to one device, and a fault of the kernel that concerns them.
//!
//! The kernel remembers such a program by the address it had when it was passed to the kernel
//! (`bpf_prog_offload.prog`), and follows that pointer when the device is removed while the program still exists, even
//! if only a pin holds it: for example, a container ends, and its veth with it. But the verifier moves a program that
//! outgrows its pages, and constant blinding replaces it by another. The remembered address is then invalid, and the
//! kernel crashes while it holds its lock on all of networking (seen with 6.12 and 6.18). The program is therefore
//! loaded with spare room (`stay_in_place` in `bpf/lanyard.bpf.c`), and this module checks that it has stayed in its
//! place.

use crate::error::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Bytes of an instruction.
const INSN: u32 = 8;

/// Checks that the kernel's pointer to the program stays valid. The program was loaded with `handed_in`
/// instructions.
///
/// # Errors
/// The reason why the pointer may be invalid. The program must then be closed while its device exists.
pub(crate) fn stays_in_place(program: impl AsFd, handed_in: usize) -> io::Result<()> {
    if blinds()? {
        return Err(io::Error::other(
            "constant blinding (net.core.bpf_jit_harden) moves programs, and the kernel would crash when the device is removed",
        ));
    }
    let (held, had) = (length(&program)?, handed_in as u64 * u64::from(INSN));
    if u64::from(held) > had {
        return Err(io::Error::other(format!(
            "the kernel has moved the program ({held} bytes instead of {had}) and would crash when the device is removed"
        )));
    }
    Ok(())
}

/// Length of a program's instructions in the kernel, in bytes.
fn length(program: &impl AsFd) -> io::Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: a live descriptor, and room of the stated size; all pointers in it are null.
    check(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut info, &raw mut size)
    })?;
    Ok(info.xlated_prog_len)
}

/// Whether the kernel blinds constants of this process's programs. Only the initial network
/// namespace may read the setting, so the effect on one constant is examined.
fn blinds() -> io::Result<bool> {
    Ok(length(&constant()?)? > CONSTANT as u32 * INSN)
}

/// Number of instructions of [`constant`].
const CONSTANT: usize = 2;

/// A program that returns a constant.
fn constant() -> io::Result<OwnedFd> {
    let insn = |code: u32, imm: i32| libbpf_sys::bpf_insn { code: code as u8, imm, ..Default::default() };
    let insns: [_; CONSTANT] = [
        insn(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K, 0x1234),
        insn(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT, 0),
    ];
    // SAFETY: terminated strings and the stated number of instructions; the returned descriptor is owned by nobody
    // else.
    unsafe {
        let fd = check(libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            c"ly_constant".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            CONSTANT as _,
            std::ptr::null_mut(),
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_grew_in_the_kernel_is_refused() {
        let program = match constant() {
            Err(why) => return println!("skipped: no program: {why}"),
            Ok(program) => program,
        };
        if blinds().expect("its length") {
            return assert!(stays_in_place(program, CONSTANT).is_err());
        }
        stays_in_place(&program, CONSTANT).expect("as long as it was");
        stays_in_place(&program, CONSTANT + 1).expect("shorter");
        let why = stays_in_place(&program, CONSTANT - 1).expect_err("longer").to_string();
        assert!(why.contains("16 bytes instead of 8"), "{why}");
    }
}
