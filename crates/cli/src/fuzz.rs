//! The entry points of the command line's fuzz target.

use crate::apply_text;
use crate::args::NoNames;
use crate::commands;
use crate::help::Helper;
use crate::line::words;
use crate::mode::{ConfigMode, Mode};
use crate::parse::Reader;
use crate::pipe::{self, Pipe};
use crate::privilege::Authority;
use crate::text;
use lanyard_config::{Config, InterfaceName};
use lanyard_types::VlanSet;

/// Reads `data` as lines in every mode, asks for help at the end of each, and applies them as configuration.
///
/// # Panics
/// When configuration text, printed and read again, gives another configuration, or a refusal has no reason,
/// which is what the fuzzer looks for.
pub fn fuzz_line(data: &[u8]) {
    let input = String::from_utf8_lossy(data);
    let full = Authority { mode_of: commands::mode_of, ..Authority::full() };
    let interface = ConfigMode::Interface { names: vec![InterfaceName::Netdev("eth0".into())], range: false };
    let configs = [ConfigMode::Global, interface, ConfigMode::Vlan(VlanSet::EMPTY)];
    let sessions = [None, Some("s".to_owned())];
    let mut modes = vec![Mode::User, Mode::Privileged];
    for session in sessions {
        modes.extend(configs.iter().map(|at| Mode::Config { at: at.clone(), session: session.clone() }));
    }
    for line in input.lines().take(64) {
        for mode in &modes {
            let is_exec = matches!(mode, Mode::User | Mode::Privileged);
            let helper = Helper {
                root: commands::root(mode),
                names: &NoNames,
                authority: if *mode == Mode::User { Authority { level: 1, ..full } } else { full },
                is_exec,
                list: mode.list_kind(),
            };
            assert!(!helper.help(line).is_empty());
            let completion = helper.complete(line);
            assert!(line.is_char_boundary(completion.start));
            let Ok(words) = words(line) else { continue };
            if let Some(bar) = pipe::position(&words, is_exec).and_then(|at| words.get(at)) {
                let _ = Pipe::parse(line, bar.at).map(|pipe| pipe.filter(line.to_owned()));
            }
            let reader =
                Reader { line, words: &words, names: &NoNames, authority: full, exec: commands::TREES.exec };
            if let Err(failure) = reader.parse(&commands::root(mode)) {
                assert!(failure.message().starts_with("% "));
            }
        }
    }
    let (config, errors) = apply_text(&input, &Config::default());
    assert!(errors.iter().all(|error| !error.reason.is_empty()));
    let (again, errors) = apply_text(&text::render(&config), &Config::default());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(again, config);
}
