//! `lanyard version`: prints which planes this machine can run, and why others are not available.

use lanyard_soft::SoftPlane;
use std::io::Write;
use std::process::ExitCode;

/// Prints the report.
pub fn print() -> Result<ExitCode, String> {
    let mut text = format!("lanyard {}\n", lanyard_daemon::VERSION);
    let soft = match SoftPlane::new() {
        Ok(_) => "available".to_owned(),
        Err(error) => format!("not available: {error}"),
    };
    let planes = [
        ("ebpf", lanyard_ebpf::support()),
        ("soft", vec![soft]),
        ("asic", vec!["available: a virtual switch chip, with the limits of --platform".into()]),
    ];
    for (name, lines) in planes {
        for (at, line) in lines.iter().enumerate() {
            let name = if at == 0 { format!("plane {name}") } else { String::new() };
            text.push_str(&format!("{name:<12}{line}\n"));
        }
    }
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("writing the output: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
