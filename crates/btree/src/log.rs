//! The log of single writes: batches of records behind the last checkpoint, each durable at once.
//!
//! ```text
//! batch    starts on a page and ends on one; zeros fill it up
//! byte 0   magic 8, generation u64, number u64, checksum of the checkpoint u32, length of the
//!          body u32, checksum of the body u32, checksum of bytes 0..36 u32
//! byte 40  body: records one behind the other; every further page starts with 8 zero bytes
//!
//! record   operation u8 (1 put, 2 remove), length of the key u16, value u64, key
//! ```
//!
//! The generation is the epoch of the checkpoint the log goes on from. After the next checkpoint the
//! log starts anew at byte 0; nothing need be cut or marked, because batches of older generations are
//! known by their number. Reading ends with the first batch that is not whole.
//!
//! Threads that wait for their records form groups: one writes and synchronizes what all of them have
//! appended, meanwhile the others append the next batch.
//!
//! # Invariants
//! - A batch is written after the one before it is durable. So one batch at most can be torn, and a
//!   whole batch behind a damaged one proves that acknowledged records were lost: an error.
//! - No two batches share a page, so a torn write harms nothing that was acknowledged.
//! - After a write or a sync that failed nothing is written any more: what is durable is unknown,
//!   and the system may take the next sync for a success.
//! - No page but a batch's first starts with the magic, so keys cannot pass for batches.
//!
//! # Not here
//! What the records do: `durable`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::key::MAX_KEY_BYTES;
use crate::raw::PAGE_BYTES;

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"uplkTLG1";
const HEADER_BYTES: usize = 40;
/// Zeros a further page starts with.
const MARGIN: usize = 8;
const RECORD_BYTES: usize = 11;
const PUT: u8 = 1;
const REMOVE: u8 = 2;
/// Records that nobody waits for yet: with more, the next writer waits. 4 MiB are 220,000 records of
/// `u64` keys, or 5 ms of a disk that writes 800 MB/s.
const MAX_PENDING_BYTES: usize = 4 << 20;
/// Bytes of the file that a new generation keeps to write over: that saves the file system's work
/// for a growing file. 64 MiB are 16,000 batches of one page.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// Turns the leader gives to others before it writes, as long as that makes the batch longer. The
/// threads the last sync woke are about to append; without this they miss every other sync: 64 threads
/// that wait for each insert share a sync by 32 then, by 55 to 64 with it.
const MAX_TURNS: usize = 16;

/// The checkpoint a log goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// The checkpoint's epoch.
    pub(crate) generation: u64,
    /// Checksum of the checkpoint's header: logs of other trees have another.
    pub(crate) checksum: u32,
}

/// One write of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Put(&'a [u8], u64),
    Remove(&'a [u8]),
}

/// See the module.
pub(crate) struct Log {
    file: Box<dyn PageFile>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    base: Base,
    /// Number of the next batch, and where it goes.
    number: u64,
    end: u64,
    /// The next batch, with room for its header; empty if it has no records.
    pending: Vec<u8>,
    /// Memory for the batch after it.
    spare: Vec<u8>,
    /// Records appended and durable since the log was opened.
    appended: u64,
    durable: u64,
    /// Batches written since the log was opened.
    batches: u64,
    is_writing: bool,
    is_failed: bool,
}

struct Header {
    base: Base,
    number: u64,
    body: usize,
    body_checksum: u32,
}

/// The leader of a group; whoever waits must not wait for ever if it panics.
struct Leader<'a> {
    log: &'a Log,
    is_done: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        state.is_writing = false;
        state.is_failed |= !self.is_done;
        drop(state);
        self.log.changed.notify_all();
    }
}

impl Log {
    /// An empty log behind a checkpoint, in a file that loses what it held.
    pub(crate) fn create(file: Box<dyn PageFile>, base: Base) -> Result<Self> {
        file.set_len(0)
            .and_then(|()| file.sync())
            .map_err(TreeError::file("clearing the log of"))?;
        Ok(Self::over(file, base, 0, 0))
    }

    /// Shows `apply` every record of the log behind a checkpoint, and goes on after the last.
    pub(crate) fn open(
        file: Box<dyn PageFile>,
        base: Base,
        mut apply: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<Self> {
        let len = file.len().map_err(TreeError::file("measuring the log of"))?;
        let (mut end, mut number) = (0, 0);
        let mut last = Vec::new();
        while let Some(batch) = read_batch(&*file, end, len, base, number)? {
            replay(&batch, &mut apply)?;
            end += batch.len() as u64;
            number += 1;
            last = batch;
        }
        refuse_later(&*file, end, len, base, number)?;
        if !last.is_empty() {
            // It may be in the system's memory only, and after a failed sync no later one would
            // write it. Written again it is as good as the others.
            let at = end - last.len() as u64;
            file.write_at(at, &last)
                .and_then(|()| file.sync())
                .map_err(TreeError::file("writing the log of"))?;
        }
        Ok(Self::over(file, base, number, end))
    }

    fn over(file: Box<dyn PageFile>, base: Base, number: u64, end: u64) -> Self {
        let state = State {
            base,
            number,
            end,
            pending: Vec::new(),
            spare: Vec::new(),
            appended: 0,
            durable: 0,
            batches: 0,
            is_writing: false,
            is_failed: false,
        };
        Self { file, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Who panics while holding it has changed nothing, or fails the log (see `Leader`).
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more record.
    ///
    /// # Errors
    /// If the log has failed.
    pub(crate) fn admit(&self) -> Result<()> {
        let ticket = {
            let state = self.lock();
            if state.is_failed {
                return Err(TreeError::Poisoned);
            }
            if state.pending.len() < MAX_PENDING_BYTES {
                return Ok(());
            }
            state.appended
        };
        self.wait(ticket)
    }

    /// Adds a record to the next batch, in memory; gives what to [`Self::wait`] for.
    pub(crate) fn append(&self, record: Record<'_>) -> u64 {
        let (operation, key, value) = match record {
            Record::Put(key, value) => (PUT, key, value),
            Record::Remove(key) => (REMOVE, key, 0),
        };
        let mut fixed = [0; RECORD_BYTES];
        fixed[0] = operation;
        fixed[1..3].copy_from_slice(&(key.len() as u16).to_le_bytes());
        fixed[3..].copy_from_slice(&value.to_le_bytes());
        let mut state = self.lock();
        if state.pending.is_empty() {
            state.pending.resize(HEADER_BYTES, 0);
        }
        push(&mut state.pending, &fixed);
        push(&mut state.pending, key);
        state.appended += 1;
        state.appended
    }

    /// Waiting for this is waiting for all records appended so far.
    pub(crate) fn appended(&self) -> u64 {
        self.lock().appended
    }

    /// Returns when the record with this number, and all before it, are durable.
    ///
    /// # Errors
    /// [`TreeError::File`] for the one whose write or sync failed, [`TreeError::Poisoned`] for all
    /// others and from then on.
    pub(crate) fn wait(&self, ticket: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.durable >= ticket {
                return Ok(());
            }
            if state.is_failed {
                return Err(TreeError::Poisoned);
            }
            if state.is_writing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_writing = true;
            drop(state);
            self.lead()?;
            state = self.lock();
        }
    }

    /// Makes everything appended durable; the caller has set `is_writing`.
    fn lead(&self) -> Result<()> {
        let mut leader = Leader { log: self, is_done: false };
        let mut state = self.gather();
        let spare = std::mem::take(&mut state.spare);
        let mut batch = std::mem::replace(&mut state.pending, spare);
        let (appended, end) = (state.appended, state.end);
        let (base, number) = (state.base, state.number);
        drop(state);
        seal(&mut batch, base, number);
        self.file
            .write_at(end, &batch)
            .and_then(|()| self.file.sync())
            .map_err(TreeError::file("writing the log of"))?;
        let mut state = self.lock();
        state.durable = appended;
        state.end += batch.len() as u64;
        state.number += 1;
        state.batches += 1;
        batch.clear();
        state.spare = batch;
        drop(state);
        leader.is_done = true;
        Ok(())
    }

    /// Lets others append while that helps.
    fn gather(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        for _ in 0..MAX_TURNS {
            let before = state.appended;
            drop(state);
            std::thread::yield_now();
            state = self.lock();
            if state.appended == before {
                break;
            }
        }
        state
    }

    /// Starts anew behind a checkpoint that is durable and has everything appended. The caller keeps
    /// writers out and has waited for all records.
    pub(crate) fn restart(&self, base: Base) {
        let mut state = self.lock();
        assert!(state.pending.is_empty() && !state.is_writing, "all records are durable");
        let is_long = state.end > MAX_KEPT_BYTES;
        (state.base, state.number, state.end) = (base, 0, 0);
        if is_long {
            // Under the lock, so that nobody writes meanwhile. Refused, the file is only longer.
            let _ = self.file.set_len(MAX_KEPT_BYTES);
        }
    }

    /// Accepts nothing any more.
    pub(crate) fn fail(&self) {
        self.lock().is_failed = true;
        self.changed.notify_all();
    }

    /// Bytes of this generation, and batches written since the log was opened.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let state = self.lock();
        (state.end, state.batches)
    }
}

/// Appends bytes to a batch, leaving out the margins of its pages.
fn push(batch: &mut Vec<u8>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        if batch.len().is_multiple_of(PAGE_BYTES) {
            batch.extend([0; MARGIN]);
        }
        let room = PAGE_BYTES - batch.len() % PAGE_BYTES;
        let (now, rest) = bytes.split_at(room.min(bytes.len()));
        batch.extend_from_slice(now);
        bytes = rest;
    }
}

/// Writes a batch's header, and fills its last page up.
fn seal(batch: &mut Vec<u8>, base: Base, number: u64) {
    let body = &batch[HEADER_BYTES..];
    let (len, body_checksum) = (body.len() as u32, crc32fast::hash(body));
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    header.extend(base.generation.to_le_bytes());
    header.extend(number.to_le_bytes());
    for word in [base.checksum, len, body_checksum] {
        header.extend(word.to_le_bytes());
    }
    header.extend(crc32fast::hash(&header).to_le_bytes());
    batch[..HEADER_BYTES].copy_from_slice(&header);
    batch.resize(batch.len().next_multiple_of(PAGE_BYTES), 0);
}

impl Header {
    /// `None`: these bytes do not start a batch.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Result<Self>> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if !bytes.starts_with(&MAGIC[..7]) || u32_at(36)? != crc32fast::hash(bytes.get(..36)?) {
            return None;
        }
        if bytes[7] != MAGIC[7] {
            let (found, supported) = (u64::from(bytes[7]), u64::from(MAGIC[7]));
            return Some(Err(TreeError::Incompatible { field: "log format", found, supported }));
        }
        Some(Ok(Self {
            base: Base { generation: u64_at(8)?, checksum: u32_at(24)? },
            number: u64_at(16)?,
            body: u32_at(28)? as usize,
            body_checksum: u32_at(32)?,
        }))
    }
}

fn read_header(file: &dyn PageFile, at: u64, len: u64) -> Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    if at + HEADER_BYTES as u64 > len {
        return Ok(None);
    }
    file.read_at(at, &mut bytes).map_err(TreeError::file("reading the log of"))?;
    Header::decode(&bytes).transpose()
}

/// The whole batch at a place, if it is the one that belongs there.
fn read_batch(
    file: &dyn PageFile,
    at: u64,
    len: u64,
    base: Base,
    number: u64,
) -> Result<Option<Vec<u8>>> {
    let Some(header) = read_header(file, at, len)? else { return Ok(None) };
    if header.base.generation == base.generation && header.base != base {
        return Err(TreeError::corrupt("the log belongs to another tree"));
    }
    let bytes = (HEADER_BYTES + header.body).next_multiple_of(PAGE_BYTES);
    if header.base != base || header.number != number || at + bytes as u64 > len {
        return Ok(None);
    }
    let mut batch = vec![0; bytes];
    file.read_at(at, &mut batch).map_err(TreeError::file("reading the log of"))?;
    let body = &batch[HEADER_BYTES..HEADER_BYTES + header.body];
    Ok((crc32fast::hash(body) == header.body_checksum).then_some(batch))
}

/// Makes sure that nothing was acknowledged behind the end of the log.
fn refuse_later(file: &dyn PageFile, end: u64, len: u64, base: Base, number: u64) -> Result<()> {
    for at in (end..len).step_by(PAGE_BYTES) {
        let Some(header) = read_header(file, at, len)? else { continue };
        if header.base.generation > base.generation {
            return Err(TreeError::corrupt("the log belongs to a later checkpoint"));
        }
        if header.base.generation == base.generation && header.number > number {
            return Err(TreeError::corrupt(format!("batch {number} of the log is damaged")));
        }
    }
    Ok(())
}

/// Shows the records of a batch whose checksums hold.
fn replay(batch: &[u8], apply: &mut impl FnMut(Record<'_>) -> Result<()>) -> Result<()> {
    let len = u32::from_le_bytes(*batch[28..].first_chunk().unwrap_or(&[0; 4])) as usize;
    let mut records = Vec::with_capacity(len);
    for (page, bytes) in batch[..HEADER_BYTES + len].chunks(PAGE_BYTES).enumerate() {
        let start = if page == 0 { HEADER_BYTES } else { MARGIN };
        records.extend_from_slice(bytes.get(start..).unwrap_or_default());
    }
    let mut rest = records.as_slice();
    while !rest.is_empty() {
        let record = split_record(&mut rest);
        apply(record.ok_or_else(|| TreeError::corrupt("a record of the log is malformed"))?)?;
    }
    Ok(())
}

/// Takes a record off the front.
fn split_record<'a>(rest: &mut &'a [u8]) -> Option<Record<'a>> {
    let (fixed, behind) = rest.split_first_chunk::<RECORD_BYTES>()?;
    let len = usize::from(u16::from_le_bytes(*fixed[1..].first_chunk()?));
    let value = u64::from_le_bytes(*fixed[3..].first_chunk()?);
    let key = behind.get(..len).filter(|key| key.len() <= MAX_KEY_BYTES)?;
    *rest = &behind[len..];
    match fixed[0] {
        PUT => Some(Record::Put(key, value)),
        REMOVE => Some(Record::Remove(key)),
        _ => None,
    }
}
