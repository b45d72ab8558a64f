//! `location ...`: the places that LLDP-MED reports to telephones.

use lanyard_lldp::location::{Civic, Location};
use std::collections::BTreeMap;

/// The highest number of a location.
pub const MAX_LOCATION: u16 = 4095;
/// The value of the field `what` for the location of the client (RFC 4776, 3.1), here the telephone.
const OF_THE_CLIENT: u8 = 2;

/// The locations, by number, 1 to [`MAX_LOCATION`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locations {
    /// `location elin-location`: 10 to 25 digits.
    pub elin: BTreeMap<u16, String>,
    /// `location civic-location`.
    pub civic: BTreeMap<u16, CivicLocation>,
}

/// A civic address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CivicLocation {
    /// `country`: two capital letters. An address without it is not sent.
    pub country: Option<String>,
    /// The other elements, by CAtype (RFC 4776, 3.4).
    pub elements: BTreeMap<u8, String>,
}

impl CivicLocation {
    /// The location as LLDP-MED sends it; `None` without a country.
    #[must_use]
    pub fn sent(&self) -> Option<Civic> {
        let elements = self.elements.iter().map(|(kind, value)| (*kind, value.clone())).collect();
        Some(Civic { what: OF_THE_CLIENT, country: self.country.clone()?, elements })
    }
}

impl Locations {
    /// The locations with these numbers, as LLDP-MED sends them. A location that does not exist or has no
    /// country is left out.
    #[must_use]
    pub fn sent(&self, civic: Option<u16>, elin: Option<u16>) -> Vec<Location> {
        let civic = civic.and_then(|number| self.civic.get(&number)).and_then(CivicLocation::sent);
        let elin = elin.and_then(|number| self.elin.get(&number)).cloned();
        civic.map(Location::Civic).into_iter().chain(elin.map(Location::Elin)).collect()
    }
}
