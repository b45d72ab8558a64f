//! Views of the machine: its clock, the platform, and the system.

use super::Fake;
use lanyard_cli::backend::{Platform, Refusal, System};
use lanyard_cli::view;
use lanyard_config::InterfaceName;

/// A report of a program that sets the clock.
pub fn ntp() -> view::Ntp {
    let server = view::NtpAssociation {
        address: "192.0.2.1".into(),
        state: "selected",
        reference: Some(".GPS.".into()),
        stratum: Some(1),
        last_answer_s: Some(23),
        poll_s: 64,
        reach: 0o377,
        delay_s: Some(0.001_25),
        offset_s: Some(-0.000_5),
        dispersion_s: Some(0.001),
    };
    let silent = view::NtpAssociation {
        address: "2001:db8::7".into(),
        state: "unusable",
        poll_s: 1024,
        ..view::NtpAssociation::default()
    };
    let status = view::NtpStatus {
        client: "chrony",
        synchronized: true,
        stratum: Some(2),
        reference: Some("192.0.2.1".into()),
        reference_time: Some("2026-01-01T00:00:00Z".into()),
        offset_s: Some(0.000_012),
        root_delay_s: Some(0.001_25),
        root_dispersion_s: Some(0.000_75),
        frequency_ppm: Some(-1.5),
        skew_ppm: Some(0.25),
        update_interval_s: Some(64.5),
    };
    view::Ntp { status, associations: vec![server, silent] }
}

impl Platform for Fake {
    fn platform(&mut self) -> view::Platform {
        view::Platform {
            plane: "soft".into(),
            max_ports: 1023,
            notes: vec!["no hooks".into()],
            ..Default::default()
        }
    }
    fn resources(&mut self) -> view::Resources {
        let table = view::Resource {
            name: "fdb".into(),
            size: 10,
            used: 4,
            high_water: 5,
            bytes: 4096,
            unit: "entry".into(),
            ..Default::default()
        };
        view::Resources { tables: vec![table], manager: "none".into() }
    }
    fn pipeline(&mut self) -> view::Pipeline {
        let stage = |stage, matches, tables: &[&str]| view::PipelineStage {
            stage,
            matches,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
        };
        view::Pipeline {
            stages: vec![stage("parse", "lengths, tags", &[]), stage("learn", "source", &["fdb"])],
        }
    }
    fn front_panel(&mut self) -> Result<view::FrontPanel, Refusal> {
        let port = |number: u16, link_up, absent: Option<&str>| view::FrontPort {
            name: format!("swp{number}"),
            number,
            connector: "qsfp",
            speed_mbps: 100_000,
            speeds_mbps: vec![100_000, 40_000],
            autoneg: true,
            duplex: "full",
            fec: "auto",
            splits: vec!["2x50g".into(), "4x25g".into()],
            link_up,
            wire: format!("swp{number}-wire"),
            absent: absent.map(str::to_owned),
        };
        let ports = vec![port(1, true, None), port(2, false, None), port(3, false, Some("split into 4x25g"))];
        Ok(view::FrontPanel { platform: "test".into(), ports })
    }
    fn traps(&mut self) -> view::Traps {
        view::Traps {
            traps: vec![view::Trap {
                group: "stp",
                rate_pps: 1000,
                burst: 256,
                port_rate_pps: 100,
                port_burst: 64,
                trapped: 7,
                policed: 3,
                lost: 0,
            }],
            reasons: vec![
                view::TrapReason { reason: "bpdu", group: "stp", frames: 7 },
                view::TrapReason { reason: "pvst_bpdu", group: "stp", frames: 0 },
            ],
        }
    }
    fn packet_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, Refusal> {
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        Ok(view::PacketTrace {
            stages: vec![view::TraceStage { stage: "parse", detail: format!("{} bytes", frame.len()) }],
            verdict: "forwarded",
            reason: None,
            egress: vec![view::TraceEgress { interface: interface.to_string(), hex }],
        })
    }
}

impl System for Fake {
    fn version(&mut self) -> view::Version {
        view::Version {
            version: "0.1.0".into(),
            hostname: self.config.hostname.clone(),
            plane: "soft".into(),
            uptime_s: 3700,
            ..Default::default()
        }
    }
    fn users(&mut self) -> view::Users {
        let user = view::User {
            line: "vty 0".into(),
            user: "root".into(),
            host: "local".into(),
            idle_s: 61,
            own: true,
        };
        view::Users { users: vec![user], stalled: 0, turned_away: 0 }
    }
    fn logging(&mut self) -> view::Logging {
        let message = |text: &String| view::LogMessage {
            time: "2026-01-01T00:00:00Z".into(),
            severity: 5,
            facility: "SYS".into(),
            mnemonic: "CONFIG_I".into(),
            text: text.clone(),
        };
        let receiver = |host: &lanyard_config::LogHost| view::LogReceiver {
            host: host.address.to_string(),
            transport: host.transport.name(),
            port: host.port(),
            connected: true,
            sent: 7,
            ..view::LogReceiver::default()
        };
        view::Logging {
            messages: self.log.iter().map(message).collect(),
            capacity: 100,
            overwritten: 0,
            level: self.config.appliance.log_buffered,
            receivers: self.config.appliance.log_hosts.iter().map(receiver).collect(),
            rate_limit: self.config.appliance.log_rate.map(|rate| view::LogLimit {
                per_s: Some(rate.per_s),
                debugging: rate.debugging,
                except: rate.except,
                suppressed: 57,
            }),
            console_rate_limit: None,
            persistent: self.logging_persistent().map(|files| view::PersistentLog { lines: None, ..files }),
        }
    }
    fn logging_persistent(&mut self) -> Option<view::PersistentLog> {
        self.config.appliance.log_persistent.map(|limits| view::PersistentLog {
            directory: "/var/lib/lanyard/default/log".into(),
            size: limits.size,
            file_size: limits.file_size,
            files: 1,
            bytes: 51,
            written: 1,
            lines: Some(vec!["2026-01-01T00:00:00Z: %SYS-5-CONFIG_I: text".into()]),
            ..view::PersistentLog::default()
        })
    }
    fn clear_logging(&mut self) {
        self.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        assert_eq!((facility, severity, mnemonic), ("SYS", 5, "CONFIG_I"));
        self.log.push(text.to_owned());
    }
    fn clock(&self) -> view::Clock {
        view::Clock {
            time: "2026-01-01T00:00:00Z".into(),
            local: "00:00:00.000 UTC Thu Jan 1 2026".into(),
            timezone: "UTC".into(),
            utc_offset_minutes: 0,
            synchronized: false,
        }
    }
    fn processes(&mut self) -> view::Processes {
        let process = |pid, kind, name: &str| view::Process {
            pid,
            kind,
            name: name.into(),
            state: "S".into(),
            cpu_ms: 120,
            resident_kib: 9000,
        };
        view::Processes { processes: vec![process(7, "thread", "lanyard"), process(9, "child", "radvd")] }
    }
    fn inventory(&mut self) -> view::Inventory {
        let part = |name: &str, serial: &str| view::Part {
            name: name.into(),
            description: "a part".into(),
            product_id: Some("X1".into()),
            version: None,
            serial: Some(serial.into()),
        };
        view::Inventory { parts: vec![part("Chassis", "123"), part("eth1", "0200.0000.0001")] }
    }
}
