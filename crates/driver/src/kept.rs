//! The state that one run of the driver keeps for the next: the control path, the splits of the front panel, and the sizes of
//! tables.

use crate::splits;
use lanyard_asic::platform::Platform;
use lanyard_plane::{Breakout, ChipSettings, ControlPath, PortSettings};
use std::path::Path;

/// The file of the run directory that keeps what the next run needs before it has read a configuration: the control path and
/// the splits, without which it would make other netdevs, and the sizes of tables, which the chip has kept.
pub(crate) const FILE: &str = "chip-panel";

/// Stores the settings that the next run needs.
pub(crate) fn write(file: &Path, settings: &ChipSettings) {
    let mut text = format!("control-path {}\n", settings.control_path.name());
    for (name, port) in &settings.ports {
        if let Some(Breakout { parts, speed_mbps }) = port.breakout {
            text += &format!("breakout {name} {parts} {speed_mbps}\n");
        }
    }
    for (path, units) in &settings.sizes {
        text += &format!("size {path} {units}\n");
    }
    // Without the file the next run makes netdevs anew once it has read its configuration.
    let _ = std::fs::write(file, text);
}

/// The state that an earlier run has kept; the defaults when there is none, or none that the platform allows.
pub(crate) fn read(file: &Path, platform: &Platform) -> ChipSettings {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut settings = ChipSettings::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["control-path", "tun"] => settings.control_path = ControlPath::Tun,
            ["control-path", "kernel"] => settings.control_path = ControlPath::Kernel,
            ["breakout", name, parts, speed] => {
                if let (Ok(parts), Ok(speed_mbps)) = (parts.parse(), speed.parse()) {
                    let breakout = Some(Breakout { parts, speed_mbps });
                    settings
                        .ports
                        .insert((*name).to_owned(), PortSettings { breakout, ..Default::default() });
                }
            }
            ["size", path, units] => {
                if let Ok(units) = units.parse() {
                    settings.sizes.insert((*path).to_owned(), units);
                }
            }
            _ => {}
        }
    }
    if splits::active(platform, &settings).is_ok() { settings } else { ChipSettings::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECTRUM: &str = include_str!("../../../platforms/spectrum-like.toml");

    #[test]
    fn the_panel_is_kept() {
        let platform = Platform::parse(SPECTRUM).expect("a platform");
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(FILE);
        assert_eq!(read(&file, &platform), ChipSettings::default());
        let breakout = Some(Breakout { parts: 4, speed_mbps: 25_000 });
        let mut settings = ChipSettings { control_path: ControlPath::Tun, ..ChipSettings::default() };
        settings.ports.insert("swp1".into(), PortSettings { breakout, ..PortSettings::default() });
        settings.sizes.insert("kvd/linear".into(), 4096);
        write(&file, &settings);
        assert_eq!(read(&file, &platform), settings);
        std::fs::write(&file, "breakout swp2 4 25000\ngarbage").expect("written");
        assert_eq!(read(&file, &platform), ChipSettings::default(), "the platform allows no such split");
    }
}
