//! Service policies for the command line.

use crate::core::Core;
use lanyard_cli::backend::QualityOfService;
use lanyard_cli::view;

impl QualityOfService for Core {
    fn service_policies(&mut self) -> view::ServicePolicies {
        view::ServicePolicies::default()
    }
    fn clear_service_policies(&mut self, _interface: Option<&str>) {}
}
