//! Where a machine keeps what data files add up to in reports.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where runs are kept on this machine.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub folder: PathBuf,
    /// Files whose runs were there, and files whose runs are there now.
    pub used: AtomicU64,
    pub made: AtomicU64,
}

impl Shelf {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, used: AtomicU64::new(0), made: AtomicU64::new(0) }
    }

    /// Files that were not read, and files whose runs were kept.
    pub fn counts(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed))
    }
}
