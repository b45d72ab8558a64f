//! The counters of access lists, for `show access-lists` and `clear access-list counters`.

use crate::access_lists::minute_now;
use crate::core::Core;
use lanyard_acl::time::Minute;
use lanyard_cli::backend::AccessLists;
use std::collections::BTreeMap;

impl AccessLists for Core {
    fn access_list_matches(&mut self, name: &str) -> BTreeMap<u32, u64> {
        let lists = self.ctx.plane.state().acls.clone();
        let mut sums = BTreeMap::new();
        for (id, list) in &lists {
            // The list of a policy map names the map's classes instead of access lists.
            if list.classifies() {
                continue;
            }
            let Some(number) = list.names.iter().position(|held| held == name) else { continue };
            // The last count is that of frames that no rule matched.
            for (rule, count) in list.rules.iter().zip(self.ctx.plane.acl_matches(*id)) {
                if usize::from(rule.list) == number {
                    *sums.entry(rule.seq).or_default() += count;
                }
            }
        }
        sums
    }
    fn clear_access_list_matches(&mut self, only: Option<&str>) {
        let lists = self.ctx.plane.state().acls.clone();
        let named = |list: &lanyard_acl::PlaneList| {
            !list.classifies() && only.is_none_or(|only| list.names.iter().any(|name| name == only))
        };
        for (id, list) in lists.iter().filter(|(_, list)| named(list)) {
            self.ctx.plane.clear_acl_matches(*id);
            self.access_lists.forget(&list.names);
        }
    }
    fn minute(&self) -> Minute {
        self.ctx.switch.config().appliance.local(minute_now())
    }
}
