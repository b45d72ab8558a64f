//! Platform files: the parts of a chip and its front panel, in TOML.
//!
//! A file is checked completely when it is read. In the result of [`Platform::parse`] every value is in range, every
//! kind of object is in exactly one table, every partition fits its memory, and every split uses only ports that the
//! file lists. The chip therefore never gets a platform that it cannot build. `platforms/*.toml` are examples;
//! docs/platforms.md explains each key.

use crate::object::{Object, TableKind, Width};
use lanyard_types::{MAX_PORTS, MacAddr, PortId};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The longest platform file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The most units of one memory: 16 Mi.
const MAX_UNITS: u32 = 1 << 24;
/// The slowest bus access that a file may specify, in microseconds: one second.
const MAX_LATENCY_US: u32 = 1_000_000;
/// The most parts of a split port.
const MAX_SPLIT: u8 = 8;

/// The reason why a platform file was refused, with the part of the file and the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// The file is longer than [`MAX_BYTES`].
    #[error("the platform file has {0} bytes; {MAX_BYTES} is the most")]
    TooLong(usize),
    /// The text is not TOML, or a key is missing, unknown or of the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// A value contradicts another one, or passes a limit.
    #[error("line {line}: {place}: {reason}")]
    Invalid {
        /// The line of the file where the place is, from 1.
        line: usize,
        /// The key, as a path: `memory kvd, table mac`.
        place: String,
        /// The error and the permitted values.
        reason: String,
    },
}

fn invalid<T>(place: impl Into<String>, reason: impl Into<String>) -> Result<T, PlatformError> {
    Err(PlatformError::Invalid { line: 1, place: place.into(), reason: reason.into() })
}

/// A chip and its front panel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// The platform's name, for `show platform`.
    pub name: String,
    /// The published device whose figures the platform follows, as information for readers.
    #[serde(default)]
    pub modelled_on: String,
    /// The first MAC address of the front panel: port `n` has this address plus `n`.
    pub mac_base: String,
    /// The cost of an access to the chip.
    #[serde(default)]
    pub bus: Bus,
    /// Packet memory and its slices.
    #[serde(default)]
    pub buffer: Buffer,
    /// Table memories.
    pub memory: Vec<Memory>,
    /// Front-panel ports, in the order of their numbers.
    pub port: Vec<FrontPort>,
}

/// The cost of an access to the chip over its bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bus {
    /// Microseconds that one write takes, 0-1,000,000.
    pub write_us: u32,
    /// Microseconds that one query of an occupancy or a counter takes, 0-1,000,000.
    pub query_us: u32,
    /// Entries that one write can carry, 1-4096.
    pub bulk: u32,
}

impl Default for Bus {
    fn default() -> Self {
        Self { write_us: 60, query_us: 35, bulk: 1 }
    }
}

/// The place where frames wait for a busy egress port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffering {
    /// At the ingress slice, one queue for each egress port (virtual output queues).
    Ingress,
    /// At the ingress slice, one queue for all egress ports: a busy port delays frames for the others.
    Fifo,
    /// At the egress slice.
    Egress,
}

/// Packet memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Buffer {
    /// The number of slices over which the ports are distributed, 1-64.
    pub slices: u16,
    /// The place where frames wait.
    pub at: Buffering,
    /// The most frames in one queue, 1-65536.
    pub queue: u32,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { slices: 1, at: Buffering::Ingress, queue: 1024 }
    }
}

/// A table memory: units that are divided among its tables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The name, the first part of a resource's path.
    pub name: String,
    /// Units of memory.
    pub size: u32,
    /// The size of a partition must be a multiple of this many units.
    #[serde(default = "one")]
    pub granularity: u32,
    /// Its tables; their sizes add up to [`Memory::size`] at most.
    pub table: Vec<Table>,
}

/// One table: a partition of a memory, the way in which its entries are found, and the objects it contains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The name, the last part of a resource's path.
    pub name: String,
    /// The way in which entries are found.
    pub kind: TableKind,
    /// Units at start.
    pub size: u32,
    /// Hash tables: slots per bucket, a power of two, 1-64.
    #[serde(default = "one")]
    pub ways: u32,
    /// Hash tables: banks, each with a hash of its own, 1-8.
    #[serde(default = "one")]
    pub banks: u32,
    /// Hash tables: the most entries that are moved to make room for one, 0-8.
    #[serde(default)]
    pub moves: u32,
    /// The units that an object of each kind takes.
    pub holds: BTreeMap<Object, Width>,
}

/// The connector of a front-panel port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connector {
    /// 8P8C copper.
    Rj45,
    /// SFP, SFP+ or SFP28: one lane.
    Sfp,
    /// QSFP+ or QSFP28: four lanes.
    Qsfp,
    /// QSFP-DD: eight lanes.
    QsfpDd,
}

impl Connector {
    /// The lanes of the connector, which are the most parts of a split.
    #[must_use]
    pub const fn lanes(self) -> u8 {
        match self {
            Self::Rj45 | Self::Sfp => 1,
            Self::Qsfp => 4,
            Self::QsfpDd => 8,
        }
    }
}

/// A front-panel port, or a row of identical ones.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontPort {
    /// The number of the first port: `swpN`.
    pub first: u16,
    /// The number of identical ports, 1 or more.
    #[serde(default = "one_port")]
    pub count: u16,
    /// The connector.
    pub connector: Connector,
    /// The possible speeds in Mbit/s, the greatest first.
    pub speeds: Vec<u32>,
    /// The possible splits: the number of parts, and the speed of each in Mbit/s.
    #[serde(default)]
    pub split: Vec<Split>,
    /// The distance to the port that becomes unusable after a split into more than two parts: 1 is the next port, -1
    /// the one before. 0: none.
    #[serde(default)]
    pub split_disables: i8,
}

/// One way to split a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The number of parts: 2, 4 or 8.
    pub parts: u8,
    /// Speed of each part in Mbit/s.
    pub speed: u32,
}

/// A port of the front panel as the kernel's driver of a real chip would present it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// Its number, which is also its port in operations.
    pub id: PortId,
    /// The name of its netdev: `swpN`.
    pub name: String,
    /// Its MAC address: the platform's base address plus its number.
    pub mac: MacAddr,
    /// The greatest speed in Mbit/s.
    pub speed_mbps: u32,
}

impl Front {
    /// The netdev to which the port is connected by default: `swpN-wire`.
    #[must_use]
    pub fn wire(&self) -> String {
        format!("{}-wire", self.name)
    }
}

/// The port number of the first part of split ports: half of [`MAX_PORTS`], above the numbers of all unsplit ports.
pub const FIRST_PART: u16 = (MAX_PORTS / 2) as u16;

const fn one() -> u32 {
    1
}
const fn one_port() -> u16 {
    1
}

impl Platform {
    /// Reads and checks a platform file.
    ///
    /// # Errors
    /// The first error, with its place in the file.
    pub fn parse(text: &str) -> Result<Self, PlatformError> {
        if text.len() > MAX_BYTES {
            return Err(PlatformError::TooLong(text.len()));
        }
        let platform: Self =
            toml::from_str(text).map_err(|error| PlatformError::Syntax(error.to_string()))?;
        match platform.check() {
            Err(PlatformError::Invalid { place, reason, .. }) => {
                Err(PlatformError::Invalid { line: line_of(text, &place), place, reason })
            }
            outcome => outcome.map(|()| platform),
        }
    }

    /// The first MAC address of the front panel.
    #[must_use]
    pub fn mac_base(&self) -> MacAddr {
        // `check` has parsed it successfully.
        self.mac_base.parse().unwrap_or(MacAddr([0x02, 0, 0, 0, 0, 0]))
    }

    /// Every front-panel port by its number.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &FrontPort)> {
        self.port
            .iter()
            .flat_map(|row| (row.first..row.first.saturating_add(row.count)).map(move |n| (n, row)))
    }

    /// Every front-panel port as a netdev: name, number, address.
    pub fn front(&self) -> impl Iterator<Item = Front> {
        self.ports().filter_map(|(number, row)| {
            let speed_mbps = row.speeds.iter().copied().max().unwrap_or(0);
            self.front_port(number, format!("swp{number}"), speed_mbps)
        })
    }
    /// Every part of every port of the front panel that can be split, whether it is split or not, each with the number of the
    /// port to which it belongs. Parts have numbers from [`FIRST_PART`] on, in the order of the ports and their lanes.
    pub fn parts(&self) -> impl Iterator<Item = (u16, Front)> {
        let lanes = |row: &FrontPort| row.split.iter().map(|split| split.parts).max().unwrap_or(0);
        let all =
            self.ports().flat_map(move |(number, row)| (0..lanes(row)).map(move |lane| (number, lane, row)));
        all.zip(FIRST_PART..).filter_map(|((parent, lane, row), number)| {
            let speed_mbps = row.split.iter().map(|split| split.speed).max().unwrap_or(0);
            Some((parent, self.front_port(number, format!("swp{parent}s{lane}"), speed_mbps)?))
        })
    }
    fn front_port(&self, number: u16, name: String, speed_mbps: u32) -> Option<Front> {
        let mac = MacAddr::from_u64(self.mac_base().to_u64() + u64::from(number));
        Some(Front { id: PortId::new(number)?, name, mac, speed_mbps })
    }

    /// The table that holds objects of a kind, with its memory and the units of one object.
    #[must_use]
    pub fn table_of(&self, object: Object) -> Option<(&Memory, &Table, Width)> {
        self.memory.iter().find_map(|memory| {
            let held = |table: &&Table| table.holds.contains_key(&object);
            memory.table.iter().find(held).map(|table| (memory, table, table.holds[&object]))
        })
    }

    fn check(&self) -> Result<(), PlatformError> {
        if self.name.is_empty() || self.name.len() > 64 {
            return invalid("name", "1 to 64 characters");
        }
        match self.mac_base.parse::<MacAddr>() {
            Ok(mac) if !mac.is_group() && !mac.is_zero() => {}
            _ => return invalid("mac_base", format!("{:?} is not the address of a station", self.mac_base)),
        }
        let bus = self.bus;
        if bus.write_us > MAX_LATENCY_US || bus.query_us > MAX_LATENCY_US {
            return invalid("bus", format!("an access takes at most {MAX_LATENCY_US} us"));
        }
        within("bus, bulk", bus.bulk, 1, 4096)?;
        within("buffer, slices", u32::from(self.buffer.slices), 1, 64)?;
        within("buffer, queue", self.buffer.queue, 1, 65_536)?;
        self.check_memories()?;
        self.check_ports()
    }

    fn check_memories(&self) -> Result<(), PlatformError> {
        let mut names = BTreeSet::new();
        let mut objects: BTreeMap<Object, String> = BTreeMap::new();
        for memory in &self.memory {
            let place = format!("memory {}", memory.name);
            if !names.insert(memory.name.clone()) {
                return invalid(place, "the name is used twice");
            }
            within(&format!("{place}, size"), memory.size, 1, MAX_UNITS)?;
            within(&format!("{place}, granularity"), memory.granularity, 1, memory.size)?;
            let used: u64 = memory.table.iter().map(|table| u64::from(table.size)).sum();
            if used > u64::from(memory.size) {
                return invalid(
                    place,
                    format!("its tables have {used} units, and the memory {}", memory.size),
                );
            }
            for table in &memory.table {
                let place = format!("memory {}, table {}", memory.name, table.name);
                if !names.insert(format!("{}/{}", memory.name, table.name)) {
                    return invalid(place, "the name is used twice");
                }
                table.check(&place, memory.granularity)?;
                for object in table.holds.keys() {
                    if let Some(other) = objects.insert(*object, place.clone()) {
                        return invalid(place, format!("{} is held by {other} already", object.name()));
                    }
                }
            }
        }
        let missing: Vec<&str> = Object::ALL
            .iter()
            .filter(|object| !objects.contains_key(object))
            .map(|object| object.name())
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            invalid("memory", format!("no table holds {}", missing.join(", ")))
        }
    }

    fn check_ports(&self) -> Result<(), PlatformError> {
        let mut seen = BTreeSet::new();
        for row in &self.port {
            let place = format!("port {}", row.first);
            // The planes number ports from 1. The upper half of the numbers is for the parts of split ports (`FIRST_PART`).
            let last = u32::from(row.first) + u32::from(row.count) - 1;
            if row.first == 0 || row.count == 0 || last as usize >= MAX_PORTS / 2 {
                return invalid(place, format!("ports are numbered 1 to {}", MAX_PORTS / 2 - 1));
            }
            if row.speeds.is_empty() || row.speeds.iter().any(|speed| !(10..=1_600_000).contains(speed)) {
                return invalid(place, "speeds: one or more, 10 to 1600000 Mbit/s");
            }
            for split in &row.split {
                let parts = split.parts;
                if parts < 2 || !parts.is_power_of_two() || parts > MAX_SPLIT.min(row.connector.lanes()) {
                    let lanes = row.connector.lanes();
                    return invalid(
                        place,
                        format!("a split into {parts}: 2 to {lanes} parts, a power of two"),
                    );
                }
                let whole = row.speeds.iter().copied().max().unwrap_or(0);
                if u64::from(split.speed) * u64::from(parts) > u64::from(whole) {
                    return invalid(
                        place,
                        format!("{parts} x {} Mbit/s is more than the port has", split.speed),
                    );
                }
            }
            for number in row.first..=row.first + (row.count - 1) {
                if !seen.insert(number) {
                    return invalid(place, format!("swp{number} is listed twice"));
                }
            }
        }
        for (number, row) in self.ports() {
            let other = i32::from(number) + i32::from(row.split_disables);
            if row.split_disables != 0 && !u16::try_from(other).is_ok_and(|other| seen.contains(&other)) {
                return invalid(
                    format!("port {number}"),
                    format!("a split disables swp{other}, which is not a port of the platform"),
                );
            }
        }
        if seen.is_empty() { invalid("port", "a platform has at least one port") } else { Ok(()) }
    }
}

/// The line number, from 1, of a place such as `memory kvd, table mac, size`: each part is searched from the line of the previous
/// part on.
fn line_of(text: &str, place: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let value = |line: &str| line.split_once('=').map_or("", |(_, value)| value.trim()).to_owned();
    let mut at = 0;
    for part in place.split(", ") {
        let named = part.split_once(' ');
        let is_here = |line: &&str| match named {
            Some(("memory" | "table", name)) => key(line) == "name" && value(line).trim_matches('"') == name,
            Some(("port", number)) => key(line) == "first" && value(line) == number,
            _ => key(line) == part || **line == format!("[{part}]") || **line == format!("[[{part}]]"),
        };
        at = lines.iter().skip(at).position(is_here).map_or(at, |found| at + found);
    }
    at + 1
}

fn within(place: &str, value: u32, least: u32, most: u32) -> Result<(), PlatformError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    invalid(place, format!("{value} is out of range: {least} to {most}"))
}

impl Table {
    fn check(&self, place: &str, granularity: u32) -> Result<(), PlatformError> {
        if !self.size.is_multiple_of(granularity) {
            return invalid(
                place,
                format!("size {} is not a multiple of the granularity {granularity}", self.size),
            );
        }
        if self.holds.is_empty() {
            return invalid(place, "holds nothing");
        }
        let widest = self.holds.values().map(|width| width.units()).max().unwrap_or(1);
        if self.kind == TableKind::Exact {
            within(&format!("{place}, ways"), self.ways, 1, 64)?;
            within(&format!("{place}, banks"), self.banks, 1, 8)?;
            within(&format!("{place}, moves"), self.moves, 0, 8)?;
            if !self.ways.is_power_of_two() || !self.size.is_multiple_of(self.ways * self.banks) {
                return invalid(place, "ways is a power of two, and ways x banks divides the size");
            }
            if widest > self.ways {
                return invalid(
                    place,
                    format!("an entry of {widest} units does not fit a bucket of {} ways", self.ways),
                );
            }
        } else if self.ways != 1 || self.banks != 1 || self.moves != 0 {
            return invalid(place, "ways, banks and moves belong to hash tables (kind = \"exact\")");
        }
        for (object, width) in &self.holds {
            if !object.fits(self.kind) {
                return invalid(place, format!("{} cannot be in a table of this kind", object.name()));
            }
            if width.units() == 0 || !width.units().is_power_of_two() || width.units() > 64 {
                return invalid(place, format!("{} takes 1 to 64 units, a power of two", object.name()));
            }
        }
        Ok(())
    }
}
