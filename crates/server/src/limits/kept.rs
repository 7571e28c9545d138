//! What tenants have used, in a file of this machine, so that a restart does not give it back.
//!
//! ```text
//! <cache>/<lake>/server/used.json
//! ```
//!
//! # Invariants
//! - A file that is missing or cannot be read is one that says nothing: a server starts without.

use std::io;
use std::path::Path;

const FOLDER: &str = "server";
const FILE: &str = "used.json";

/// What was kept in this folder of a lake.
pub(crate) fn kept(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join(FOLDER).join(FILE)).ok()
}

/// Keeps a text in place of what was kept, whole or not at all.
///
/// # Errors
/// Those of the file system.
pub(crate) fn keep(folder: &Path, text: &str) -> io::Result<()> {
    let folder = folder.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let staged = tempfile::NamedTempFile::new_in(&folder)?;
    std::fs::write(staged.path(), text)?;
    staged.persist(folder.join(FILE))?;
    Ok(())
}
