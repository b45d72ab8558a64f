//! Reads and writes the startup-config and other files of configuration text for commands.
//!
//! Invariant: a file is replaced as a whole, the startup-config keeps its previous content beside it, and a
//! file longer than [`MAX_CONFIG_BYTES`] is not read.

use crate::core::Core;
use crate::files;
use lanyard_cli::backend::{Files, MAX_CONFIG_BYTES, Refusal};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

impl Files for Core {
    fn load_startup(&mut self) -> Result<String, Refusal> {
        if self.startup_file.exists() { self.read(&self.startup_file) } else { Ok(String::new()) }
    }
    fn save_startup(&mut self, text: &str) -> Result<(), Refusal> {
        if let Some(parent) = self.startup_file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // The directory's parent must exist: a mistyped path must not create a tree.
            let base = if parent == self.ctx.paths.state { parent.parent() } else { None };
            base.map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| files::make_directory(parent))
                .map_err(|error| {
                    let (file, parent) = (self.startup_file.display(), parent.display());
                    Refusal(format!("{file}: making the directory {parent}: {error}"))
                })?;
        }
        files::replace_and_keep(&self.startup_file, text.as_bytes())
            .map_err(|error| Refusal(format!("{}: {error}", self.startup_file.display())))
    }
    fn read_file(&mut self, path: &str) -> Result<String, Refusal> {
        let path = Path::new(path);
        // Opening a FIFO waits for a writer, and all of management would wait with it.
        if path.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
            let path = path.display();
            return Err(Refusal(format!("{path}: is a FIFO: write the text to a file, and name that")));
        }
        self.read(path)
    }
    fn write_file(&mut self, path: &str, text: &str) -> Result<(), Refusal> {
        self.write(Path::new(path), text)
    }
}

impl Core {
    fn read(&self, path: &Path) -> Result<String, Refusal> {
        files::read_text(path, MAX_CONFIG_BYTES)
            .map_err(|error| Refusal(format!("{}: {error}", path.display())))
    }
    fn write(&self, path: &Path, text: &str) -> Result<(), Refusal> {
        files::replace(path, text.as_bytes()).map_err(|error| Refusal(format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn the_directory_of_the_startup_config_is_made() {
        let bench = Bench::new();
        let mut core = bench.core();
        core.startup_file = bench.directory.path().join("etc/default.cfg");
        core.save_startup("hostname a\n").expect("written, with its directory");
        core.save_startup("hostname b\n").expect("written again");
        assert_eq!(core.load_startup(), Ok("hostname b\n".into()));
    }

    #[test]
    fn the_startup_config_is_replaced_whole() {
        let bench = Bench::new();
        let mut core = bench.core();
        assert_eq!(core.load_startup(), Ok(String::new()), "absent is empty");
        core.save_startup("hostname a\n").expect("written, with its directory");
        assert_eq!(core.load_startup(), Ok("hostname a\n".into()));
        core.startup_file = bench.directory.path().join("no/such/directory");
        let why = core.save_startup("x").expect_err("no directory").to_string();
        assert!(why.contains("no/such/directory"), "{why}");
    }

    #[test]
    fn a_fifo_without_a_writer_is_not_waited_for() {
        let bench = Bench::new();
        let path = bench.directory.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("made");
        let name = path.to_str().expect("a name");
        let why = bench.core().read_file(name).expect_err("refused").to_string();
        assert_eq!(why, format!("{name}: is a FIFO: write the text to a file, and name that"));
    }

    #[test]
    fn other_files_are_written_whole_and_read_up_to_the_limit() {
        let bench = Bench::new();
        let mut core = bench.core();
        let path = bench.directory.path().join("copy.cfg");
        let name = path.to_str().expect("a name");
        core.write_file(name, "hostname a\n").expect("written");
        core.write_file(name, "hostname b\n").expect("replaced");
        assert_eq!(core.read_file(name), Ok("hostname b\n".into()));
        std::fs::write(&path, vec![b'!'; MAX_CONFIG_BYTES]).expect("written");
        assert_eq!(core.read_file(name).map(|text| text.len()), Ok(MAX_CONFIG_BYTES));
        std::fs::write(&path, vec![b'!'; MAX_CONFIG_BYTES + 1]).expect("written");
        let why = core.read_file(name).expect_err("too long").to_string();
        assert_eq!(why, format!("{name}: longer than {MAX_CONFIG_BYTES} bytes"));
        let why = core.write_file("/nonexistent/a.cfg", "").expect_err("no directory").to_string();
        assert!(why.starts_with("/nonexistent/a.cfg: No such file"), "{why}");
    }
}
