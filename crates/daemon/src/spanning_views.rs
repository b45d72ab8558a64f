//! The commands that show and clear spanning tree's state.

use crate::core::Core;
use crate::spanning;
use lanyard_cli::backend::{Refusal, SpanningTree};
use lanyard_cli::view;
use lanyard_config::InterfaceName;

impl SpanningTree for Core {
    fn spanning_tree(&mut self) -> view::SpanningTree {
        spanning::view(&self.ctx)
    }
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16> {
        spanning::root_primary(&self.ctx, tree)
    }
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        spanning::clear_protocols(&mut self.ctx, only)
    }
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        spanning::clear_bpdu_counters(&self.ctx, only)
    }
}
