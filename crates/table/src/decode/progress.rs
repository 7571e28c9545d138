//! How far inputs are read, and their rows written.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes and rows read and written so far; shared with whoever shows progress.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes taken from input files (compressed bytes for compressed text).
    pub bytes_read: AtomicU64,
    /// Sum of the input files' sizes; 0 if unknown (standard input).
    pub bytes_total: AtomicU64,
    /// Good rows decoded.
    pub rows: AtomicU64,
    /// Bad rows skipped.
    pub bad_rows: AtomicU64,
    /// Rows sorted and encoded, those left out for their key included; it reaches `rows`, when the last file is about
    /// to be completed.
    pub rows_written: Arc<AtomicU64>,
    /// Bytes of data files written.
    pub bytes_written: AtomicU64,
    /// What was taken for granted of inputs, which users should hear of.
    pub notes: Mutex<Vec<String>>,
}

/// Of thousands of files that are alike, the first ones are told of.
const MOST_NOTES: usize = 10;

impl Progress {
    pub(super) fn note(&self, text: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        match notes.len() {
            ..MOST_NOTES => notes.push(text),
            MOST_NOTES => notes.push("and there are others like these".to_owned()),
            _ => {}
        }
    }
}
