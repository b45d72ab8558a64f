//! The settings of the appliance, as opposed to its network: names of interfaces.

use std::collections::BTreeMap;

/// Settings of the appliance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Appliance {
    /// `platform interface-name NETDEV NAME`: the names of Catalyst's interfaces by netdev.
    pub interface_names: BTreeMap<String, String>,
}

impl Appliance {
    /// The netdev that a Catalyst's name of an interface stands for, such as `GigabitEthernet1/0/1`, `gi1/0/1` or
    /// `Gi1/0/1.100`. `None` when no name matches, or several do.
    #[must_use]
    pub fn netdev_of(&self, name: &str) -> Option<String> {
        let (kind, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let (number, subinterface) = rest.split_once('.').map_or((rest, None), |(n, sub)| (n, Some(sub)));
        if kind.len() < 2 || !kind.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        let is = |ios: &str| {
            let at = ios.find(|c: char| c.is_ascii_digit()).unwrap_or(ios.len());
            let (of, its) = ios.split_at(at);
            let begins = of.get(..kind.len()).is_some_and(|head| head.eq_ignore_ascii_case(kind));
            begins && its == number
        };
        let mut found = self.interface_names.iter().filter(|(_, ios)| is(ios)).map(|(netdev, _)| netdev);
        let netdev = found.next().filter(|_| found.next().is_none())?;
        Some(subinterface.map_or_else(|| netdev.clone(), |number| format!("{netdev}.{number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces() {
        let names = [
            ("eth1", "GigabitEthernet1/0/1"),
            ("eth11", "GigabitEthernet1/0/11"),
            ("xe0", "TenGigabitEthernet1/1/1"),
            ("xe1", "TwentyFiveGigE1/1/1"),
            ("xe2", "TwoGigabitEthernet1/1/1"),
        ];
        let interface_names = names.map(|(netdev, name)| (netdev.to_owned(), name.to_owned())).into();
        let appliance = Appliance { interface_names };
        let check = |name: &str, netdev: Option<&str>| {
            assert_eq!(appliance.netdev_of(name).as_deref(), netdev, "{name}");
        };
        for name in ["GigabitEthernet1/0/1", "gigabitethernet1/0/1", "Gi1/0/1", "gig1/0/1"] {
            check(name, Some("eth1"));
        }
        check("Gi1/0/11", Some("eth11"));
        check("Gi1/0/1.100", Some("eth1.100"));
        check("Te1/1/1", Some("xe0"));
        check("Twe1/1/1", Some("xe1"));
        for name in
            ["Tw1/1/1", "G1/0/1", "Gi1/0/2", "Gi", "1/0/1", "FastEthernet1/0/1", "", "gigabitethernets1/0/1"]
        {
            check(name, None);
        }
    }
}
