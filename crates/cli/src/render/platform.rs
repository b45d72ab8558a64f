//! The front panel, transceivers and the pipeline of a switch chip as text.

use super::table::columns;
use crate::view::{FrontPanel, FrontPort, Pipeline, PipelineStage, Transceiver, Transceivers};

fn speed(mbps: u32) -> String {
    if mbps >= 1000 && mbps.is_multiple_of(1000) { format!("{}G", mbps / 1000) } else { format!("{mbps}M") }
}

/// `show platform ports`.
pub fn front_panel(view: &FrontPanel) -> String {
    let row = |port: &FrontPort| {
        let state = match &port.absent {
            Some(why) => why.clone(),
            None if port.link_up => format!("connected to {}", port.wire),
            None => "no link".to_owned(),
        };
        let splits = if port.splits.is_empty() { "-".to_owned() } else { port.splits.join(",") };
        let speeds: Vec<String> = port.speeds_mbps.iter().copied().map(speed).collect();
        vec![
            port.name.clone(),
            port.number.to_string(),
            port.connector.to_owned(),
            speed(port.speed_mbps),
            speeds.join(","),
            splits,
            state,
        ]
    };
    let rows: Vec<_> = view.ports.iter().map(row).collect();
    let head = ["Port", "Number", "Connector", "Speed", "Speeds", "Splits", "State"];
    format!("Platform: {}\n\n{}", view.platform, columns(&head, &rows, &[1, 3]))
}

/// `show interfaces transceiver`.
pub fn transceivers(view: &Transceivers) -> String {
    let row = |one: &Transceiver| {
        vec![
            one.interface.clone(),
            one.connector.to_owned(),
            one.module.to_owned(),
            one.wire.clone().unwrap_or_else(|| "-".into()),
            speed(one.speed_mbps),
            one.fec.to_owned(),
        ]
    };
    let rows: Vec<_> = view.interfaces.iter().map(row).collect();
    columns(&["Port", "Connector", "Module", "Connected to", "Speed", "FEC"], &rows, &[4])
}

/// `show platform pipeline`.
pub fn pipeline(view: &Pipeline) -> String {
    let row = |stage: &PipelineStage| {
        let tables = if stage.tables.is_empty() { "-".to_owned() } else { stage.tables.join(", ") };
        vec![stage.stage.to_owned(), stage.matches.to_owned(), tables]
    };
    let rows: Vec<_> = view.stages.iter().map(row).collect();
    columns(&["Stage", "Matches on", "Tables"], &rows, &[])
}
