//! `show mac address-table`: lists the entries by VLAN and address, in parts.
//!
//! The table is a hash and may have a million entries. It is walked in parts, once for each [`Window`] of entries, and a window
//! is printed in parts. Invariant: the entries are in order, and each address is listed at most once in a VLAN. An entry that is
//! in the table during the whole listing, and does not move meanwhile, is listed; others may be missing.

use crate::backend::{Backend, Fdb, MacFilter};
use crate::listing::{JsonList, PART, Source};
use crate::render;
use crate::view::{MacEntry, MacTotal};
use crate::window::Window;

/// The listing.
#[derive(Debug)]
pub struct MacTable {
    filter: MacFilter,
    json: Option<JsonList>,
    window: Window,
    does: Does,
    total: u64,
}

/// The work of the next part of the listing.
#[derive(Debug)]
enum Does {
    Begin,
    /// Walks the part of the table that begins here.
    Walk(u32),
    /// Prints the entries of the window.
    Print {
        entries: std::vec::IntoIter<MacEntry>,
        is_last: bool,
    },
}

impl MacTable {
    /// Lists the entries that match.
    pub fn new(filter: MacFilter, is_json: bool) -> Self {
        Self::within(Window::default(), filter, is_json)
    }
    fn within(window: Window, filter: MacFilter, is_json: bool) -> Self {
        Self { filter, json: is_json.then(JsonList::default), window, does: Does::Begin, total: 0 }
    }
    fn begin(&self, out: &mut String) {
        match &self.json {
            Some(list) => list.begin("entries", out),
            None => out.push_str(render::MAC_HEADING),
        }
    }
    fn end(&self, capacity: u64, out: &mut String) {
        let total = MacTotal { total: self.total, capacity };
        match &self.json {
            Some(list) => list.end(&total, out),
            None => render::mac_total(&total, out),
        }
    }
}

impl Source for MacTable {
    fn part(&mut self, backend: &mut dyn Backend, out: &mut String) -> bool {
        self.step(backend, out)
    }
}

impl MacTable {
    fn step(&mut self, table: &mut dyn Fdb, out: &mut String) -> bool {
        match &mut self.does {
            Does::Begin => {
                self.begin(out);
                self.does = Does::Walk(0);
            }
            Does::Walk(from) => {
                self.does = match table.mac_part(&self.filter, *from, &mut self.window) {
                    Some(next) => Does::Walk(next),
                    None => {
                        let (entries, is_last) = self.window.take();
                        Does::Print { entries: entries.into_iter(), is_last }
                    }
                };
            }
            Does::Print { entries, is_last } => {
                for entry in entries.by_ref() {
                    match &mut self.json {
                        Some(list) => list.element(&entry, out),
                        None => render::mac_entry(&entry, out),
                    }
                    self.total += 1;
                    if out.len() >= PART {
                        return true;
                    }
                }
                if *is_last {
                    self.end(table.mac_capacity(), out);
                    return false;
                }
                self.does = Does::Walk(0);
            }
        }
        true
    }
}

/// Every entry that matches, by VLAN and address.
pub fn all(filter: &MacFilter, backend: &mut dyn Backend) -> Vec<MacEntry> {
    let (mut window, mut next) = (Window::keeping(usize::MAX / 2), Some(0));
    while let Some(from) = next {
        next = backend.mac_part(filter, from, &mut window);
    }
    window.take().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{MacCount, Offload};
    use lanyard_types::{MacAddr, VlanId};
    use serde_json::Value;

    /// A table in parts of 10 entries.
    struct Table(Vec<MacEntry>);

    impl Fdb for Table {
        fn mac_part(&mut self, _: &MacFilter, from: u32, window: &mut Window) -> Option<u32> {
            let mut parts = self.0.chunks(10).skip(from as usize);
            parts.next()?.iter().for_each(|entry| window.offer(entry.clone()));
            parts.next().map(|_| from + 1)
        }
        fn mac_capacity(&self) -> u64 {
            5000
        }
        fn mac_count(&mut self, _: Option<VlanId>) -> MacCount {
            MacCount::default()
        }
        fn clear_mac_table(&mut self, _: &MacFilter) -> u64 {
            0
        }
    }

    fn entry(vlan: u16, mac: u64) -> MacEntry {
        MacEntry {
            mac: MacAddr::from_u64(mac),
            vlan,
            interface: Some("eth1".into()),
            kind: "dynamic",
            age_s: 0,
            offload: Offload::Offloaded,
        }
    }

    /// `count` entries in no order, in 7 VLANs.
    fn table(count: u64) -> Table {
        Table((0..count).map(|n| n * 7919 % count.max(1)).map(|n| entry((n % 7) as u16 + 1, n)).collect())
    }

    /// The parts of a listing with windows of 16 to 31 entries.
    fn parts(table: &mut Table, is_json: bool) -> Vec<String> {
        let mut listing = MacTable::within(Window::keeping(16), MacFilter::default(), is_json);
        let mut parts = Vec::new();
        loop {
            let mut part = String::new();
            let goes_on = listing.step(table, &mut part);
            parts.push(part);
            if !goes_on {
                return parts;
            }
        }
    }

    #[test]
    fn text_is_in_order_and_ends_with_the_number() {
        let parts = parts(&mut table(1000), false);
        let text = parts.concat();
        let rows: Vec<&str> = text.lines().skip(5).take(1000).collect();
        let (first, last) = (rows[0], rows[999]);
        assert_eq!(first, "   1    0000.0000.0000    DYNAMIC     eth1");
        assert_eq!(last, "   7    0000.0000.03e1    DYNAMIC     eth1");
        assert!(rows.is_sorted(), "by VLAN and address");
        assert_eq!(text.lines().last(), Some("Total Mac Addresses for this criterion: 1000"));
        assert_eq!(text.lines().count(), 1006);
    }

    #[test]
    fn a_part_is_bounded() {
        let mut listing = MacTable::new(MacFilter::default(), false);
        let (mut table, mut longest, mut all) = (table(5000), 0, 0);
        loop {
            let mut part = String::new();
            let goes_on = listing.step(&mut table, &mut part);
            longest = longest.max(part.len());
            all += part.len();
            if !goes_on {
                break;
            }
        }
        assert!(longest < PART + 200 && all > 5 * PART, "{longest} of {all}");
    }

    #[test]
    fn json_is_one_object() {
        for count in [0, 1, 1000] {
            let text = parts(&mut table(count), true).concat();
            let view: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!((&view["total"], &view["capacity"]), (&count.into(), &5000.into()));
            let entries = view["entries"].as_array().expect("a list");
            assert_eq!(entries.len() as u64, count);
            assert!(entries.is_sorted_by_key(|entry| (entry["vlan"].as_u64(), entry["mac"].to_string())));
        }
    }

    /// The table changes while the listing is made: the listing is in order, and has no address twice.
    #[test]
    fn a_table_that_changes() {
        let mut table = table(500);
        let (kept, mut listing) =
            (table.0.clone(), MacTable::within(Window::keeping(16), MacFilter::default(), false));
        let (mut text, mut number) = (String::new(), 1000);
        while listing.step(&mut table, &mut text) {
            number += 1;
            table.0.insert(0, entry(3, number * 7919 % 5000 + 1000));
            table.0.truncate(kept.len() + 20);
            table.0.rotate_right(3);
            table.0.retain(|entry| kept.contains(entry) || entry.mac.to_u64() % 2 == 0);
            table.0.extend(kept.iter().filter(|entry| !table.0.contains(entry)).cloned().collect::<Vec<_>>());
        }
        let rows: Vec<&str> = text.lines().skip(5).filter(|line| line.ends_with("eth1")).collect();
        assert!(rows.is_sorted_by(|a, b| a < b), "in order, and none twice");
    }
}
