//! The folder that statements spill to, which goes with the process that made it.
//!
//! ```text
//! $TMPDIR/uplake-spill-<process>-<random>/lock     locked while the process lives
//!                                        /…        what DataFusion writes
//! ```
//!
//! A process that was killed lets go of its lock, and the next one removes its folder.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How the folders' names begin; a folder that is being made has a dot before it.
const PREFIX: &str = "uplake-spill-";
const LOCK: &str = "lock";

/// Of this process, with its lock.
static OURS: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

/// This process's folder, made when it is asked for first. Those that killed processes left are removed in the
/// background.
pub fn folder() -> std::io::Result<PathBuf> {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((folder, _)) = ours.as_ref() {
        return Ok(folder.clone());
    }
    let parent = std::env::temp_dir();
    // It gets its name when it is locked: until then nobody takes it for one that was left.
    let name = format!("{PREFIX}{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
    let (unlocked, folder) = (parent.join(format!(".{name}")), parent.join(&name));
    private_folder(&unlocked)?;
    let lock = File::create(unlocked.join(LOCK))?;
    lock.lock()?;
    std::fs::rename(&unlocked, &folder)?;
    *ours = Some((folder.clone(), lock));
    // Not worth waiting for, and what cannot be removed now stays for the next.
    std::thread::spawn(move || sweep(&parent));
    Ok(folder)
}

/// Removes this process's folder, whoever still writes there.
pub fn remove() {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((folder, _)) = ours {
        remove_folder(&folder);
    }
}

/// Removes folders whose processes are gone.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Another user's cannot be opened.
        let Ok(lock) = File::options().write(true).open(entry.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => remove_folder(&entry.path()),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

/// The lock goes last, so that what stays half-way is removed by the next.
fn remove_folder(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name() != LOCK {
            // Threads that are still at work may make files meanwhile; what stays is for the next.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let _ = std::fs::remove_file(folder.join(LOCK));
    let _ = std::fs::remove_dir_all(folder);
}

/// Rows are nobody else's business.
fn private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
