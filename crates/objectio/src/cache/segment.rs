//! A file of the disk tier, and where the bytes of an extent lie in it.
//!
//! # Invariants
//! - Bytes that do not fit their checksum are never handed out.
//! - The space of a file is given back when it is deleted, and not before.
//!
//! # Not here
//! Which segments there are, and what is written to them: [`super::disk`]. Their format:
//! [`super::record`].

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::record::{CHUNK, PREAMBLE, Record, SEGMENT_MAGIC};
use crate::private;

/// One segment file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    folder: PathBuf,
    file: File,
    /// Bytes reserved for it, its index included.
    reserved: AtomicU64,
    used: Arc<AtomicU64>,
    /// Deleted when the last reader lets go of it.
    is_doomed: AtomicBool,
}

impl Segment {
    /// A new file of a number that no other has.
    pub(super) fn create(
        folder: &FilePath,
        number: u32,
        used: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let path = segment_path(folder, number);
        let file = private::options().create_new(true).read(true).write(true).open(path)?;
        write_all_at(&file, SEGMENT_MAGIC, 0)?;
        Ok(Self::over(folder, number, file, 0, used))
    }

    /// The segment in a file, with what is `reserved` for it of all that is `used`.
    pub(super) fn over(
        folder: &FilePath,
        number: u32,
        file: File,
        reserved: u64,
        used: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            folder: folder.to_owned(),
            file,
            reserved: AtomicU64::new(reserved),
            used: Arc::clone(used),
            is_doomed: AtomicBool::new(false),
        }
    }

    /// Counts `bytes` as its own, which are counted as used already.
    pub(super) fn reserve(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        write_all_at(&self.file, bytes, at)
    }

    /// Has it deleted when the last reader lets go of it.
    pub(super) fn doom(&self) {
        self.is_doomed.store(true, Ordering::Release);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.is_doomed.load(Ordering::Acquire) {
            let gone = fs::remove_file(segment_path(&self.folder, self.number));
            let _ = fs::remove_file(index_path(&self.folder, self.number));
            // A file that cannot be deleted still takes its space.
            if gone.is_ok() || gone.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                self.used.fetch_sub(self.reserved.load(Ordering::Acquire), Ordering::AcqRel);
            }
        }
    }
}

/// Where an extent's bytes lie.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) crcs: Arc<[u32]>,
}

impl Place {
    /// The bytes `within` the extent; `None` if they are not the ones that were written.
    pub(super) fn read(&self, within: &Range<u64>) -> io::Result<Option<Bytes>> {
        let from = within.start / CHUNK * CHUNK;
        let to = within.end.next_multiple_of(CHUNK).min(u64::from(self.len));
        let mut bytes = vec![0; (to - from) as usize];
        read_exact_at(&self.segment.file, &mut bytes, self.offset + from)?;
        let first = (from / CHUNK) as usize;
        let mut crcs = self.crcs[first..].iter();
        if !bytes.chunks(CHUNK as usize).all(|chunk| crcs.next() == Some(&crc32fast::hash(chunk))) {
            return Ok(None);
        }
        let start = (within.start - from) as usize;
        let len = (within.end - within.start) as usize;
        Ok(Some(Bytes::from(bytes).slice(start..start + len)))
    }
}

/// The records of a segment without an index, up to the first that is not whole.
pub(super) fn scan(file: &File, len: u64) -> io::Result<Vec<(Record, u64)>> {
    let mut magic = [0; SEGMENT_MAGIC.len()];
    if len < magic.len() as u64 {
        return Ok(Vec::new());
    }
    read_exact_at(file, &mut magic, 0)?;
    let mut records = Vec::new();
    let mut at = magic.len() as u64;
    while magic == *SEGMENT_MAGIC && at + PREAMBLE as u64 <= len {
        let mut header = vec![0; PREAMBLE];
        read_exact_at(file, &mut header, at)?;
        let Some(header_len) = Record::header_len(&header) else { break };
        if at + header_len as u64 > len {
            break;
        }
        header.resize(header_len, 0);
        read_exact_at(file, &mut header, at)?;
        let Some(record) = Record::decode(&header) else { break };
        let offset = at + header_len as u64;
        at = offset + u64::from(record.len);
        if at > len {
            break;
        }
        records.push((record, offset));
    }
    Ok(records)
}

pub(super) fn segment_path(folder: &FilePath, number: u32) -> PathBuf {
    folder.join(format!("{number:010}.seg"))
}

pub(super) fn index_path(folder: &FilePath, number: u32) -> PathBuf {
    folder.join(format!("{number:010}.idx"))
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Elsewhere files have one cursor; opening again gives another.
#[cfg(not(unix))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the disk cache needs a Unix system"))
}

#[cfg(not(unix))]
fn write_all_at(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the disk cache needs a Unix system"))
}
