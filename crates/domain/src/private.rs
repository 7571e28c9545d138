//! Files that hold users' ids: for this user alone.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a folder, and those above it, that only this user can look into; one that is there is closed to others.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        let mode = path.metadata()?.permissions().mode();
        if mode & 0o077 != 0 {
            // Another user's folder, which was given to this one on purpose, stays as it is.
            let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(mode & !0o077));
        }
    }
    Ok(())
}

/// Options to open a file with that only this user can read if it is made.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
