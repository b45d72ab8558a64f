//! The targets of configuration lines: a line changes every interface, VLAN, VRF, tracked object or MST region that its mode
//! names, or none of them.

use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::refusal::Refusal;
use crate::setting::{Change, Target};
use lanyard_config::dot1x::RadiusServer;
use lanyard_config::layer3::{Track, Vrf};
use lanyard_config::tacacs::TacacsServer;
use lanyard_config::{Config, Interface, InterfaceName, Vlan};
use lanyard_stp::MstRegion;
use lanyard_types::VlanId;

impl Target for Interface {
    type Key = InterfaceName;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        edit.each_interface(change)
    }
}

impl Target for Config {
    type Key = ();
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let mut next = edit.config.clone();
        change(&mut next, &())?;
        *edit.config = next;
        Ok(())
    }
}

impl Target for Vlan {
    type Key = VlanId;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        edit.each_vlan(|settings, vlan| change(settings, &vlan))
    }
}

impl Target for Vrf {
    type Key = String;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::Vrf { name, .. } = &*edit.mode else {
            return Err("this command needs a VRF mode: enter vrf definition first".into());
        };
        let mut vrf = edit.config.vrfs.get(name).cloned().unwrap_or_default();
        change(&mut vrf, name)?;
        edit.config.vrfs.insert(name.clone(), vrf);
        Ok(())
    }
}

impl Target for Track {
    type Key = u16;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::Track(number) = *edit.mode else {
            return Err("this command needs a tracked object's mode: enter track first".into());
        };
        let missing = || Refusal(format!("there is no tracked object {number}"));
        let mut track = edit.config.tracks.get(&number).cloned().ok_or_else(missing)?;
        change(&mut track, &number)?;
        edit.config.tracks.insert(number, track);
        Ok(())
    }
}

impl Target for RadiusServer {
    type Key = String;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::RadiusServer(name) = &*edit.mode else {
            return Err("this command needs a RADIUS server's mode: enter radius server first".into());
        };
        let missing = || Refusal(format!("there is no RADIUS server {name}"));
        let mut server = edit.config.radius.server(name).cloned().ok_or_else(missing)?;
        change(&mut server, name)?;
        if let Some(held) = edit.config.radius.server_mut(name) {
            *held = server;
        }
        Ok(())
    }
}

impl Target for TacacsServer {
    type Key = String;
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let ConfigMode::TacacsServer(name) = &*edit.mode else {
            return Err("this command needs a TACACS+ server's mode: enter tacacs server first".into());
        };
        let missing = || Refusal(format!("there is no TACACS+ server {name}"));
        let mut server = edit.config.tacacs.server(name).cloned().ok_or_else(missing)?;
        change(&mut server, name)?;
        if let Some(held) = edit.config.tacacs.server_mut(name) {
            *held = server;
        }
        Ok(())
    }
}

impl Target for MstRegion {
    type Key = ();
    fn each(edit: &mut Edit<'_>, change: Change<'_, Self>) -> Result<(), Refusal> {
        let mut region = edit.config.spanning_tree.region.clone();
        change(&mut region, &())?;
        edit.config.spanning_tree.region = region;
        Ok(())
    }
}
