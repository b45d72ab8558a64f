//! Bounded sets of VLANs and ports, as bitmaps.

use crate::{MAX_PORTS, MAX_VLANS, PortId, VlanId};
use std::fmt;

macro_rules! bitmap_set {
    ($(#[$doc:meta])* $name:ident, $item:ty, $bits:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name([u64; $bits / 64]);

        impl $name {
            /// The empty set.
            pub const EMPTY: Self = Self([0; $bits / 64]);

            /// True when the set holds `item`.
            #[must_use]
            pub const fn contains(&self, item: $item) -> bool {
                self.0[item.index() / 64] >> (item.index() % 64) & 1 == 1
            }
            /// Adds `item`; returns false when the set held it already.
            pub fn insert(&mut self, item: $item) -> bool {
                let was = self.contains(item);
                self.0[item.index() / 64] |= 1 << (item.index() % 64);
                !was
            }
            /// Removes `item`; returns false when the set did not hold it.
            pub fn remove(&mut self, item: $item) -> bool {
                let was = self.contains(item);
                self.0[item.index() / 64] &= !(1 << (item.index() % 64));
                was
            }
            /// How many items the set holds.
            #[must_use]
            pub fn len(&self) -> usize {
                self.0.iter().map(|word| word.count_ones() as usize).sum()
            }
            /// True when the set holds nothing.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.iter().all(|word| *word == 0)
            }
            /// The items, ascending.
            pub fn iter(&self) -> impl Iterator<Item = $item> + '_ {
                self.0.iter().enumerate().flat_map(|(at, word)| {
                    let mut rest = *word;
                    std::iter::from_fn(move || {
                        let bit = rest.trailing_zeros() as usize;
                        (bit < 64).then(|| {
                            rest &= rest - 1;
                            (at * 64 + bit) as u16
                        })
                    })
                }).filter_map(<$item>::new)
            }
            /// The bitmap, 64 items per word, the lowest item in the lowest bit.
            #[must_use]
            pub const fn words(&self) -> &[u64; $bits / 64] {
                &self.0
            }
            /// The set with this bitmap. A bit that stands for no item is left out.
            #[must_use]
            pub fn from_words(words: [u64; $bits / 64]) -> Self {
                Self(words).iter().collect()
            }
            /// The items that are in both sets.
            #[must_use]
            pub fn intersection(&self, other: &Self) -> Self {
                self.zip(other, |a, b| a & b)
            }
            /// The items that are in at least one of the sets.
            #[must_use]
            pub fn union(&self, other: &Self) -> Self {
                self.zip(other, |a, b| a | b)
            }
            /// The items that are in this set and not in `other`.
            #[must_use]
            pub fn difference(&self, other: &Self) -> Self {
                self.zip(other, |a, b| a & !b)
            }
            fn zip(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
                let mut out = Self::EMPTY;
                for (at, word) in out.0.iter_mut().enumerate() {
                    *word = op(self.0[at], other.0[at]);
                }
                out
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::EMPTY
            }
        }

        impl FromIterator<$item> for $name {
            fn from_iter<T: IntoIterator<Item = $item>>(items: T) -> Self {
                let mut set = Self::EMPTY;
                for item in items {
                    set.insert(item);
                }
                set
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{{{self}}}")
            }
        }

        /// Prints ascending ranges as IOS does: `1,10,20-30`.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut items = self.iter().map(|item| item.get()).peekable();
                let mut separator = "";
                while let Some(first) = items.next() {
                    let mut last = first;
                    while let Some(next) = items.next_if_eq(&(last + 1)) {
                        last = next;
                    }
                    match last - first {
                        0 => write!(f, "{separator}{first}")?,
                        1 => write!(f, "{separator}{first},{last}")?,
                        _ => write!(f, "{separator}{first}-{last}")?,
                    }
                    separator = ",";
                }
                Ok(())
            }
        }
    };
}

bitmap_set!(
    /// A set of VLANs.
    VlanSet,
    VlanId,
    MAX_VLANS
);
bitmap_set!(
    /// A set of ports.
    PortSet,
    PortId,
    MAX_PORTS
);

/// JSON contains the same text; the empty string for the empty set.
impl serde::Serialize for VlanSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for VlanSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        if text.is_empty() { Ok(Self::EMPTY) } else { text.parse().map_err(serde::de::Error::custom) }
    }
}

/// Why a VLAN list was refused; the message names the part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseVlanSetError {
    /// A part that is neither a number nor a range of VLANs.
    #[error("{0:?} in the VLAN list is not a VLAN (1 to 4094) or a range of them")]
    Part(String),
    /// A range whose end comes before its start.
    #[error("VLAN range {0:?} ends before it starts")]
    Backwards(String),
    /// A VLAN named twice.
    #[error("VLAN {0} is in the list twice")]
    Overlap(VlanId),
}

impl VlanSet {
    /// All 4,094 VLANs. A constant, because it is part of every port's default settings.
    #[must_use]
    pub const fn all() -> Self {
        let mut words = [u64::MAX; MAX_VLANS / 64];
        words[0] &= !1;
        words[MAX_VLANS / 64 - 1] &= u64::MAX >> 1;
        Self(words)
    }
}

impl std::str::FromStr for VlanSet {
    type Err = ParseVlanSetError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let mut set = Self::EMPTY;
        for part in s.split(',') {
            let wrong = || ParseVlanSetError::Part(part.chars().take(40).collect());
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: VlanId = first.trim().parse().map_err(|_| wrong())?;
            let last: VlanId = last.trim().parse().map_err(|_| wrong())?;
            if last < first {
                return Err(ParseVlanSetError::Backwards(part.to_owned()));
            }
            for vlan in (first.get()..=last.get()).filter_map(VlanId::new) {
                if !set.insert(vlan) {
                    return Err(ParseVlanSetError::Overlap(vlan));
                }
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for text in ["1", "1,10,20-30", "1-4094", "5,6", "63-65,4094"] {
            assert_eq!(text.parse::<VlanSet>().map(|set| set.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(VlanSet::all(), VlanId::all().collect());
        assert_eq!(VlanSet::all().len(), 4094);
        assert_eq!(VlanSet::from_words([u64::MAX; MAX_VLANS / 64]), VlanSet::all());
    }

    #[test]
    fn lists_refused() {
        use ParseVlanSetError::{Backwards, Overlap, Part};
        let seven = VlanId::new(7).map(Overlap);
        for (text, want) in [
            ("0", Some(Part("0".into()))),
            ("4095", Some(Part("4095".into()))),
            ("1,,2", Some(Part(String::new()))),
            ("9-3", Some(Backwards("9-3".into()))),
            ("5-9,7", seven),
        ] {
            assert_eq!(text.parse::<VlanSet>().err(), want, "{text}");
        }
    }
}
