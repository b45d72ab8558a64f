//! The pages of docs/cli must equal those generated from the command tree. `UPDATE_DOCS=1` rewrites them.
#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli");
    for page in lanyard_cli::docs::pages() {
        let path = folder.join(&page.file);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &page.text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == page.text, "docs/cli/{} is out of date: run with UPDATE_DOCS=1", page.file);
    }
}
