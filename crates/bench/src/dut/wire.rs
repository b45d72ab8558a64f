//! A wire by each mechanism of the kernel: `bpf/wire.bpf.c` between `p0` and `p1`, in both directions.

use super::Device;
use crate::bed::Bed;
use anyhow::{Result, anyhow, ensure};
use lanyard_tester::bpf::{self, Attached, LoadOptions};
use libbpf_rs::{MapCore, MapFlags, Object};
use zerocopy::IntoBytes;

/// The mechanism by which frames cross the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    Tc,
    TcPeer,
    Xdp,
}

/// The wire; cut when dropped.
pub struct Wire {
    _ways: [(Attached, Object); 2],
}

impl Wire {
    /// Joins `p0` and `p1`.
    pub fn up(bed: &Bed, means: Means) -> Result<Self> {
        ensure!(bed.outputs == 1, "a wire has two ends");
        Ok(Self { _ways: [one_way(bed, means, "p0", "p1")?, one_way(bed, means, "p1", "p0")?] })
    }
}

fn one_way(bed: &Bed, means: Means, from: &str, to: &str) -> Result<(Attached, Object)> {
    let (from, to) = (bed.switch.ifindex(from)?, bed.switch.ifindex(to)?);
    let program = match means {
        Means::Tc => "wire_tc",
        Means::TcPeer => "wire_tc_peer",
        Means::Xdp => "wire_xdp",
    };
    let options = LoadOptions { constants: to.as_bytes(), program: Some(program), ..Default::default() };
    let object = bpf::load(bpf::WIRE, &options)?;
    let _inside = bed.switch.enter()?;
    let attached = match means {
        Means::Tc | Means::TcPeer => bpf::attach_tc(&bpf::program(&object, program)?, from),
        Means::Xdp => {
            let map =
                object.maps().find(|m| m.name() == "devices").ok_or_else(|| anyhow!("no device map"))?;
            map.update(0u32.as_bytes(), to.as_bytes(), MapFlags::ANY)?;
            bpf::attach_xdp(&bpf::program(&object, program)?, from)
        }
    }?;
    Ok((attached, object))
}

impl Device for Wire {}
