//! Named network namespaces, as iproute2 keeps them under /run/netns.

use std::fs::File;
use std::io;

/// Makes a named namespace.
pub fn create(name: &str) -> io::Result<()> {
    let _ = name;
    todo!()
}
/// Deletes a named namespace.
pub fn delete(name: &str) -> io::Result<()> {
    let _ = name;
    todo!()
}
/// The names there are.
pub fn list() -> io::Result<Vec<String>> {
    todo!()
}
/// Opens a named namespace.
pub fn open(name: &str) -> io::Result<File> {
    let _ = name;
    todo!()
}
/// Runs `f` on a fresh thread inside `ns`.
pub fn run_in<T: Send>(ns: &File, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    let _ = (ns, f);
    todo!()
}
