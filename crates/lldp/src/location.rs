//! Locations of LLDP-MED (ANSI/TIA-1057, 10.2.4), by which an emergency call is answered at the right place.

/// The most bytes of a civic location's body behind its length (TIA-1057, 10.2.4.3.2).
pub const MAX_CIVIC: usize = 255;
/// An ELIN has 10 to 25 digits (TIA-1057, 10.2.4.3.3).
pub const ELIN_DIGITS: std::ops::RangeInclusive<usize> = 10..=25;

const COORDINATES: u8 = 1;
const CIVIC: u8 = 2;
const ELIN: u8 = 3;

/// A location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Coordinates in the format of RFC 3825, kept as they were received.
    Coordinates([u8; 16]),
    /// A civic address.
    Civic(Civic),
    /// An emergency location identification number: the telephone number by which a place is known.
    Elin(String),
}

/// A civic location (RFC 4776, 3.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Civic {
    /// Whose location it is: 0 the DHCP server's, 1 that of the network element near the client, 2 the client's.
    pub what: u8,
    /// The country, two letters (ISO 3166).
    pub country: String,
    /// The elements, by CAtype (RFC 4776, 3.4): 3 is the city, 28 the room.
    pub elements: Vec<(u8, String)>,
}

impl Civic {
    /// The number of bytes of the body behind its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        3 + self.elements.iter().map(|(_, value)| 2 + value.len()).sum::<usize>()
    }
}

impl Location {
    /// The bytes of the TLV behind its subtype; `None` for a location that is too long, or whose country is not two bytes.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let civic = match self {
            Self::Coordinates(bytes) => return Some([&[COORDINATES][..], bytes].concat()),
            Self::Elin(digits) => {
                return ELIN_DIGITS
                    .contains(&digits.len())
                    .then(|| [&[ELIN][..], digits.as_bytes()].concat());
            }
            Self::Civic(civic) => civic,
        };
        let [a, b] = civic.country.as_bytes() else { return None };
        let length = u8::try_from(civic.bytes()).ok()?;
        let mut out = vec![CIVIC, length, civic.what, *a, *b];
        for (kind, value) in &civic.elements {
            out.extend([*kind, u8::try_from(value.len()).ok()?]);
            out.extend(value.as_bytes());
        }
        Some(out)
    }

    /// Reads the bytes of the TLV behind its subtype; `text` makes a neighbour's bytes printable. `None` for a wrong length.
    pub(crate) fn decode(value: &[u8], text: impl Fn(&[u8]) -> String) -> Option<Self> {
        match value {
            [COORDINATES, bytes @ ..] => Some(Self::Coordinates(bytes.try_into().ok()?)),
            [CIVIC, length, body @ ..] if usize::from(*length) == body.len() => {
                let [what, a, b, elements @ ..] = body else { return None };
                let mut civic = Civic { what: *what, country: text(&[*a, *b]), elements: Vec::new() };
                let mut rest = elements;
                while let [kind, length, behind @ ..] = rest {
                    let (value, behind) = behind.split_at_checked(usize::from(*length))?;
                    civic.elements.push((*kind, text(value)));
                    rest = behind;
                }
                rest.is_empty().then_some(Self::Civic(civic))
            }
            [ELIN, digits @ ..] if ELIN_DIGITS.contains(&digits.len()) => Some(Self::Elin(text(digits))),
            _ => None,
        }
    }
}

/// The CAtypes that have a keyword (RFC 4776, 3.4): number, keyword of IOS, description.
pub const ELEMENTS: &[(u8, &str, &str)] = &[
    (22, "additional-location-information", "Additional location information"),
    (32, "additional-code", "Additional code"),
    (36, "branch-road-name", "Branch road name"),
    (25, "building", "Building information"),
    (3, "city", "City name"),
    (2, "county", "County, parish or district"),
    (4, "division", "City division"),
    (27, "floor", "Floor number"),
    (21, "landmark", "Landmark information"),
    (16, "leading-street-dir", "Leading street direction"),
    (23, "name", "Resident name"),
    (5, "neighborhood", "Neighborhood or block"),
    (19, "number", "Street number"),
    (31, "post-office-box", "Post office box"),
    (24, "postal-code", "Postal code"),
    (30, "postal-community-name", "Postal community name"),
    (34, "primary-road-name", "Primary road name"),
    (35, "road-section", "Road section"),
    (28, "room", "Room information"),
    (33, "seat", "Seat, desk or cubicle"),
    (1, "state", "State, region or province"),
    (6, "street-group", "Group of streets, or street"),
    (39, "street-name-postmodifier", "Street name postmodifier"),
    (38, "street-name-premodifier", "Street name premodifier"),
    (20, "street-number-suffix", "Street number suffix"),
    (18, "street-suffix", "Street suffix"),
    (37, "sub-branch-road-name", "Sub branch road name"),
    (17, "trailing-street-suffix", "Trailing street suffix"),
    (29, "type-of-place", "Type of place"),
    (26, "unit", "Unit, apartment or suite"),
];

/// The keyword of a CAtype.
#[must_use]
pub fn keyword(kind: u8) -> Option<&'static str> {
    ELEMENTS.iter().find(|(number, ..)| *number == kind).map(|(_, keyword, _)| *keyword)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(value: &[u8]) -> Option<Location> {
        Location::decode(value, |bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn locations_are_read_as_they_are_written() {
        let elements = vec![(3, "Berlin".to_owned()), (28, String::new())];
        for location in [
            Location::Coordinates(std::array::from_fn(|at| at as u8)),
            Location::Elin("4930901820".into()),
            Location::Civic(Civic { what: 2, country: "DE".into(), elements }),
            Location::Civic(Civic { what: 1, country: "US".into(), elements: Vec::new() }),
        ] {
            assert_eq!(decode(&location.encode().expect("short")), Some(location.clone()), "{location:?}");
        }
        // RFC 4776, 3.1: length, what, country, then type, length and value of each element.
        let civic = Civic { what: 2, country: "DE".into(), elements: vec![(3, "Berlin".into())] };
        assert_eq!(Location::Civic(civic).encode(), Some(b"\x02\x0b\x02DE\x03\x06Berlin".to_vec()));
    }

    #[test]
    fn wrong_lengths_are_refused() {
        for value in [
            &b""[..],
            &[COORDINATES; 16],
            &[COORDINATES; 18],
            b"\x03123456789",
            b"\x0312345678901234567890123456",
            b"\x02\x02\x02D",
            b"\x02\x03\x02D",
            b"\x02\x05\x02DE\x03",
            b"\x02\x05\x02DE\x03\x01",
            b"\x02\x06\x02DE\x03\x01Bx",
            b"\x04",
        ] {
            assert_eq!(decode(value), None, "{value:?}");
        }
    }

    #[test]
    fn an_invalid_or_too_long_location_is_not_encoded() {
        let long = |length: usize| Civic {
            what: 2,
            country: "DE".into(),
            elements: vec![(3, "x".repeat(length / 2)), (28, "y".repeat(length - length / 2))],
        };
        let written = |civic: Civic| (civic.bytes(), Location::Civic(civic).encode().is_some());
        assert_eq!(written(long(248)), (MAX_CIVIC, true));
        assert_eq!(written(long(249)), (MAX_CIVIC + 1, false));
        assert_eq!(Location::Elin("123".into()).encode(), None);
        assert_eq!(Location::Civic(Civic { country: "DEU".into(), ..Civic::default() }).encode(), None);
    }

    #[test]
    fn each_element_has_one_keyword() {
        let numbers: std::collections::BTreeSet<_> = ELEMENTS.iter().map(|(number, ..)| number).collect();
        let words: std::collections::BTreeSet<_> = ELEMENTS.iter().map(|(_, word, _)| word).collect();
        assert_eq!((numbers.len(), words.len()), (ELEMENTS.len(), ELEMENTS.len()));
    }
}
