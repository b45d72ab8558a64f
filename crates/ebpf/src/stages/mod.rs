//! Tables of single stages: the file with a stage's name contains the mirror of the stage's header (`bpf/stages/NAME.h`), and
//! converts a port's settings to rows. `stages!` lists these stages; the rest of the crate names none of them.
//!
//! A file has:
//!
//! * `Row` and `ROWS`: the element and the number of elements of the table, which has the stage's name and is a mapped array;
//! * `IDLE`: a row of a port at which the stage is not configured. The programs read it only for a moment,
//!   while the port's flags change;
//! * `flags`: the flags of [`abi::Port`](crate::abi::Port) that follow from a port's settings;
//! * `rows`: the rows of a port, as index and contents;
//! * `same`: true if a row has the same settings as a new one, so that the state that the programs have written into it may stay;
//! * `CONSTANTS` and `STRUCTURES`: the header, for the test that compares them.

pub(crate) mod guard;
mod learn;
mod mirror;
mod sample;
mod storm;

pub(crate) use sample::sampled;

use crate::error::Result;
use crate::shared::{Shared, is_zero};
use lanyard_pipeline::state::PortState;
use lanyard_types::PortId;
use libbpf_rs::MapHandle;

/// A table of a stage, as the stage's header declares it.
pub(crate) struct Table {
    /// The name of the map and of its pin.
    pub name: &'static str,
    /// The size of a row in bytes.
    pub row: usize,
    /// The number of rows.
    pub rows: usize,
}

macro_rules! stages {
    ($($stage:ident)*) => {
        /// The stages' tables.
        pub(crate) const TABLES: [Table; [$(stringify!($stage)),*].len()] = [$(Table {
            name: stringify!($stage),
            row: size_of::<$stage::Row>(),
            rows: $stage::ROWS,
        }),*];

        /// The stages' tables, mapped.
        #[derive(Debug)]
        pub(crate) struct StageTables {
            $($stage: Shared<$stage::Row>,)*
        }

        impl StageTables {
            /// Opens the tables. `map` finds the map with a name; `new` is true if this process has made the maps.
            pub(crate) fn open<'a>(map: &dyn Fn(&str) -> Result<&'a MapHandle>, new: bool) -> Result<Self> {
                Ok(Self { $($stage: Shared::of(stringify!($stage), map(stringify!($stage))?, new)?,)* })
            }
            /// Writes the rows of a port; `None`: the rows of a port that the state does not have.
            pub(crate) fn write(&self, id: PortId, port: Option<&PortState>) {
                $(for (at, row) in $stage::rows(id, port) {
                    let blank = self.$stage.is_blank(at) && is_zero(&row);
                    if !blank && !$stage::same(&self.$stage.get(at), &row) {
                        self.$stage.set(at, &row);
                    }
                })*
            }
            /// Visits the rows of ports at which a stage is configured: table, index, contents.
            #[cfg(test)]
            pub(crate) fn dump(&self, row: &mut dyn FnMut(&'static str, usize, &[u8])) {
                use zerocopy::IntoBytes;
                $(for at in 0..$stage::ROWS {
                    let held = self.$stage.get(at);
                    if held.as_bytes() != $stage::IDLE.as_bytes() {
                        row(stringify!($stage), at, held.as_bytes());
                    }
                })*
            }
        }

        /// The flags of a port that follow from its settings of the stages.
        pub(crate) fn flags(port: &PortState) -> u32 {
            [$($stage::flags(port)),*].into_iter().fold(0, |all, flags| all | flags)
        }

        /// Every constant of the stages' headers and its value.
        #[cfg(test)]
        pub(crate) const CONSTANTS: &[&[(&str, u64)]] = &[$($stage::CONSTANTS),*];

        /// Every structure of the stages' headers.
        #[cfg(test)]
        pub(crate) const STRUCTURES: &[&[crate::abi::Structure]] = &[$($stage::STRUCTURES),*];
    };
}

stages! { storm guard learn mirror sample }
