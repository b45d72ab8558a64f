//! Reads and writes the startup-config and other files of configuration text for commands.
//!
//! Invariant: a file is replaced as a whole, and a file longer than [`MAX_CONFIG_BYTES`] is not read.

use crate::core::Core;
use crate::files;
use lanyard_cli::backend::{Files, MAX_CONFIG_BYTES, Refusal};
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
        self.write(&self.startup_file, text)
    }
    fn read_file(&mut self, path: &str) -> Result<String, Refusal> {
        self.read(Path::new(path))
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
