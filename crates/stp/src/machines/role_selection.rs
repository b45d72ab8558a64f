//! Port role selection, one machine for each tree: computes the roles from the information of all ports. IEEE
//! 802.1Q-2018, 13.36; 802.1D-2004, 17.28.
//!
//! Invariant: after a step, every port of the tree has selected set and none has reselect set.

use crate::entity::Entity;

/// Makes one transition: from ROLE_SELECTION to itself when any port's reselect is set.
pub(crate) fn step(e: &mut Entity, t: usize) -> bool {
    // clearReselectTree
    if !std::mem::take(&mut e.trees[t].reselect) {
        return false;
    }
    let roles_before = (t == 0 && e.trees.len() > 1).then(|| cist_roles(e));
    e.updt_roles_tree(t);
    // setSelectedTree
    for port in &mut e.ports {
        port.trees[t].selected = true;
    }
    e.trees[t].sync.valid = false;
    // At a boundary an MSTI's role is derived from the CIST's (13.29.34 h).
    if roles_before.is_some_and(|before| before != cist_roles(e)) {
        for tree in &mut e.trees[1..] {
            tree.reselect = true;
        }
    }
    true
}

fn cist_roles(e: &Entity) -> Vec<crate::vars::Role> {
    e.ports.iter().map(|port| port.trees[0].selected_role).collect()
}
