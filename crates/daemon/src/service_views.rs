//! The commands that show tracked objects, virtual routers, the DHCP relays and the FPM server.

use crate::core::Core;
use crate::{tracking, vrrp};
use lanyard_cli::backend::Services;
use lanyard_cli::view;
use lanyard_types::Family;

impl Services for Core {
    fn tracks(&mut self) -> view::Tracks {
        tracking::view(&self.ctx)
    }
    fn vrrp(&mut self) -> view::Vrrps {
        vrrp::view(&self.ctx, &self.children)
    }
    fn dhcp_relay(&mut self, family: Family) -> view::Relay {
        self.relaying.view(family)
    }
    fn fpm(&mut self) -> view::Fpm {
        self.fpm.view(&self.ctx)
    }
    fn erspan(&mut self, session: u16) -> view::ErspanState {
        self.erspan.view(&mut self.ctx, session)
    }
    fn erspan_received(&mut self, session: u16) -> view::ErspanReceived {
        self.erspan_destinations.view(&self.ctx, session)
    }
    fn sflow(&mut self) -> view::SflowView {
        self.sflow.view(&self.ctx)
    }
}
