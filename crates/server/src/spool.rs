//! What lies between a statement that computes and a client that reads: a slow reader holds no slot and no memory.
//!
//! A statement's encoded rows go through a queue. While the client keeps up, the queue is short and the statement
//! waits for it; once the client has not taken anything for [`PATIENCE`], the statement runs ahead into memory, then
//! into a file without a name, and ends. The client reads the rest at its pace.
//!
//! # Invariants
//! - Chunks come out in the order in which they went in, all of them before the end or the error.
//! - All spools together hold at most [`SpoolRoom`]'s bytes in files, and those of a tenant its [`Share`]; a statement that would need more waits for its
//!   client, with its slot, and is stopped if that takes nothing for as long as the room says.
//! - What a spool holds is given back when its reader is dropped.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::statements::Cause;

/// Bytes that wait for a client that keeps up.
const AHEAD_BYTES: usize = 512 << 10;
/// How long a statement waits for its client before it runs ahead.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that then wait in memory before a file is made.
const MEMORY_BYTES: usize = 4 << 20;
/// Bytes in the file of one statement.
const FILE_BYTES: u64 = 4 << 30;
/// How long a client may take nothing once its spool is full.
pub(crate) const SLOW_READER: Duration = Duration::from_secs(60);
/// What is read back at once.
const READ_BYTES: usize = 256 << 10;

/// What all spools may hold in files, together, and where.
#[derive(Debug)]
pub(crate) struct SpoolRoom {
    folder: PathBuf,
    limit: u64,
    slow_reader: Duration,
    used: AtomicU64,
    /// Of tenants that have a limit.
    tenants: Mutex<HashMap<Arc<str>, u64>>,
}

/// Whose rows a spool keeps, and how many bytes of files all of them may have together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    pub tenant: Option<Arc<str>>,
    pub limit: u64,
}

impl SpoolRoom {
    /// At most `limit` bytes of files in `folder`; who takes nothing for `slow_reader` while there is no more room
    /// is stopped.
    pub fn new(folder: PathBuf, limit: u64, slow_reader: Duration) -> Arc<Self> {
        let (used, tenants) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { folder, limit, slow_reader, used, tenants })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes in files, as of now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes room for bytes of a file; false if there is none.
    pub fn take(&self, share: &Share, bytes: u64) -> bool {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let own =
            share.tenant.as_ref().map(|tenant| (tenant, tenants.get(tenant).unwrap_or(&0) + bytes));
        if own.is_some_and(|(_, own)| own > share.limit) {
            return false;
        }
        let taken = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let fits = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok();
        if let Some((tenant, own)) = own.filter(|_| fits) {
            tenants.insert(Arc::clone(tenant), own);
        }
        fits
    }

    pub fn give_back(&self, share: &Share, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let Some(tenant) = &share.tenant else { return };
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = tenants.get_mut(tenant) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                tenants.remove(tenant);
            }
        }
    }
}

/// Both ends of a new spool; bytes that go to a file are added to `spooled`.
pub(crate) fn spool(
    room: &Arc<SpoolRoom>,
    share: Share,
    spooled: Arc<AtomicU64>,
) -> (SpoolWriter, SpoolReader) {
    let shared = Arc::new(Shared {
        room: Arc::clone(room),
        share,
        spooled,
        state: Mutex::default(),
        written: Notify::new(),
        taken: Notify::new(),
    });
    (SpoolWriter(Arc::clone(&shared)), SpoolReader(shared))
}

#[derive(Debug)]
struct Shared {
    room: Arc<SpoolRoom>,
    share: Share,
    spooled: Arc<AtomicU64>,
    state: Mutex<State>,
    written: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What comes before the file.
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Everything that is written while there is something in it goes there.
    file: Option<Spilled>,
    /// The client did not keep up.
    runs_ahead: bool,
    end: Option<Result<(), Failure>>,
    reader_gone: bool,
    /// Times that the reader took something.
    takes: u64,
}

#[derive(Debug)]
struct Spilled {
    file: Arc<File>,
    written: u64,
    read: u64,
}

/// Where a chunk went, or that there is no room.
enum Put {
    Done,
    Full(Bytes),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, chunk: Bytes) -> Result<Put, Failure> {
        let mut state = self.lock();
        let memory = if state.runs_ahead { MEMORY_BYTES } else { AHEAD_BYTES };
        // A chunk of any size goes into an empty queue.
        if state.file.is_none() && (state.queue.is_empty() || state.queued + chunk.len() <= memory)
        {
            state.queued += chunk.len();
            state.queue.push_back(chunk);
            return Ok(Put::Done);
        }
        if !state.runs_ahead {
            return Ok(Put::Full(chunk));
        }
        let (at, length) = (state.file.as_ref().map_or(0, |file| file.written), chunk.len() as u64);
        if at + length > FILE_BYTES || !self.room.take(&self.share, length) {
            return Ok(Put::Full(chunk));
        }
        let written = self.write(&mut state, at, &chunk);
        if written.is_err() {
            self.room.give_back(&self.share, length);
        }
        written.map_err(|error| {
            Failure::new("53100", format!("rows could not be kept for a slow reader: {error}"))
        })?;
        Ok(Put::Done)
    }

    fn write(&self, state: &mut State, at: u64, chunk: &[u8]) -> io::Result<()> {
        let file = match &mut state.file {
            Some(spilled) => spilled,
            none => {
                let file = Arc::new(tempfile::tempfile_in(&self.room.folder)?);
                none.insert(Spilled { file, written: 0, read: 0 })
            }
        };
        file.file.write_all_at(chunk, at)?;
        file.written += chunk.len() as u64;
        self.spooled.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The statement's end. Dropped without [`Self::finish`], the client hears that the statement is lost.
#[derive(Debug)]
pub(crate) struct SpoolWriter(Arc<Shared>);

impl SpoolWriter {
    /// Hands out a chunk.
    ///
    /// # Errors
    /// 57014 if the client takes nothing, or is gone; 53100 if the disk is full.
    pub async fn push(&self, chunk: Bytes) -> Result<(), Failure> {
        let mut chunk = chunk;
        let mut waits = PATIENCE;
        loop {
            let taken = self.0.taken.notified();
            let takes = {
                let state = self.0.lock();
                if state.reader_gone {
                    return Err(Cause::Socket.failure());
                }
                state.takes
            };
            chunk = match self.0.put(chunk)? {
                Put::Done => {
                    self.0.written.notify_one();
                    return Ok(());
                }
                Put::Full(chunk) => chunk,
            };
            if tokio::time::timeout(waits, taken).await.is_ok() || self.0.lock().takes != takes {
                continue;
            }
            let mut state = self.0.lock();
            if state.runs_ahead {
                // Memory and file are full, and the client has taken nothing for long.
                return Err(Cause::SlowReader.failure());
            }
            state.runs_ahead = true;
            waits = self.0.room.slow_reader;
        }
    }

    /// All has been handed out, or it ended with a failure.
    pub fn finish(self, end: Result<(), Failure>) {
        self.0.lock().end = Some(end);
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.end.get_or_insert_with(|| Err(Failure::bug("the statement ended without an answer")));
        drop(state);
        self.0.written.notify_one();
    }
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct SpoolReader(Arc<Shared>);

/// What is to be read.
enum Next {
    Chunk(Bytes),
    File { file: Arc<File>, at: u64, length: usize },
    End(Option<Failure>),
    Nothing,
}

impl SpoolReader {
    /// The next chunk; `None` at the end. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            match self.look() {
                Next::Chunk(chunk) => {
                    self.0.taken.notify_one();
                    return Some(Ok(chunk));
                }
                Next::File { file, at, length } => return Some(self.read(&file, at, length)),
                Next::End(end) => return end.map(Err),
                Next::Nothing => self.0.written.notified().await,
            }
        }
    }

    /// Is there something to read now, or the end?
    pub fn is_ready(&self) -> bool {
        let state = self.0.lock();
        !state.queue.is_empty() || state.file.is_some() || state.end.is_some()
    }

    fn look(&self) -> Next {
        let mut state = self.0.lock();
        if let Some(chunk) = state.queue.pop_front() {
            state.queued -= chunk.len();
            state.takes += 1;
            return Next::Chunk(chunk);
        }
        if let Some(spilled) = &state.file {
            let length = (spilled.written - spilled.read).min(READ_BYTES as u64) as usize;
            return Next::File { file: Arc::clone(&spilled.file), at: spilled.read, length };
        }
        match &mut state.end {
            // It is told once.
            Some(end) => Next::End(std::mem::replace(end, Ok(())).err()),
            None => Next::Nothing,
        }
    }

    /// Reads back, from the page cache mostly: a file that a slow reader reads is small or far ahead.
    fn read(&self, file: &File, at: u64, length: usize) -> Result<Bytes, Failure> {
        let mut chunk = vec![0; length];
        let read = file.read_exact_at(&mut chunk, at);
        let mut state = self.0.lock();
        state.takes += 1;
        if let Some(spilled) = &mut state.file {
            spilled.read += length as u64;
            if spilled.read == spilled.written {
                self.0.room.give_back(&self.0.share, spilled.written);
                state.file = None;
            }
        }
        drop(state);
        self.0.taken.notify_one();
        read.map_err(|error| {
            Failure::new("58030", format!("rows that were kept cannot be read: {error}"))
        })?;
        Ok(chunk.into())
    }
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reader_gone = true;
        state.queue.clear();
        if let Some(spilled) = state.file.take() {
            self.0.room.give_back(&self.0.share, spilled.written);
        }
        drop(state);
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(limit: u64) -> (tempfile::TempDir, Arc<SpoolRoom>) {
        let folder = tempfile::tempdir().unwrap();
        let room = SpoolRoom::new(folder.path().to_owned(), limit, Duration::from_millis(200));
        (folder, room)
    }

    fn chunk(number: u32, length: usize) -> Bytes {
        let mut bytes = vec![7; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes.into()
    }

    async fn all(mut reader: SpoolReader) -> (Vec<u8>, Option<Failure>) {
        let mut bytes = Vec::new();
        while let Some(next) = reader.next().await {
            match next {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(failure) => return (bytes, Some(failure)),
            }
        }
        (bytes, None)
    }

    /// What comes out is what went in, whether the reader is fast or begins when all is written.
    #[tokio::test]
    async fn chunks_come_out_in_order_from_memory_and_file() {
        for waits in [false, true] {
            let (_folder, room) = room(1 << 30);
            let (writer, reader) = spool(&room, Share::default(), Arc::default());
            let chunks: Vec<Bytes> = (0..40).map(|number| chunk(number, 256 << 10)).collect();
            let expected = chunks.concat();
            let write = async move {
                for chunk in chunks {
                    writer.push(chunk).await.unwrap();
                }
                writer.finish(Ok(()));
            };
            let (found, failure) = if waits {
                write.await;
                assert!(room.used() > 0);
                all(reader).await
            } else {
                tokio::join!(all(reader), write).0
            };
            assert!(failure.is_none());
            assert!(found == expected, "waits: {waits}");
            assert_eq!(room.used(), 0);
        }
    }

    #[tokio::test]
    async fn a_failure_comes_after_the_rows_and_a_lost_writer_is_one() {
        let (_folder, room) = room(1 << 30);
        for finishes in [true, false] {
            let (writer, reader) = spool(&room, Share::default(), Arc::default());
            writer.push(chunk(1, 8)).await.unwrap();
            match finishes {
                true => writer.finish(Err(Failure::new("22012", "division by zero"))),
                false => drop(writer),
            }
            let (found, failure) = all(reader).await;
            assert_eq!(found.len(), 8);
            assert_eq!(failure.unwrap().code, if finishes { "22012" } else { "XX000" });
        }
    }

    #[tokio::test]
    async fn a_full_spool_waits_then_stops_and_everything_is_given_back() {
        let (_folder, room) = room(1 << 20);
        let (writer, reader) = spool(&room, Share::default(), Arc::default());
        let failure = async {
            for number in 0.. {
                if let Err(failure) = writer.push(chunk(number, 256 << 10)).await {
                    return failure;
                }
            }
            unreachable!()
        };
        assert_eq!(failure.await.code, "57014");
        assert_eq!(room.used(), 1 << 20);
        drop(reader);
        assert_eq!(room.used(), 0);
        // Nobody reads any more.
        assert_eq!(writer.push(chunk(0, 8)).await.unwrap_err().code, "57014");
    }

    async fn until_full(writer: &SpoolWriter) -> Failure {
        for number in 0.. {
            if let Err(failure) = writer.push(chunk(number, 256 << 10)).await {
                return failure;
            }
        }
        unreachable!()
    }

    #[tokio::test]
    async fn a_tenant_has_its_part_and_leaves_the_rest_to_others() {
        let (_folder, room) = room(4 << 20);
        let share = Share { tenant: Some("growth".into()), limit: 1 << 20 };
        let (writer, reader) = spool(&room, share.clone(), Arc::default());
        assert_eq!(until_full(&writer).await.code, "57014");
        assert_eq!(room.used(), 1 << 20);
        let (other, other_reader) = spool(&room, Share::default(), Arc::default());
        assert_eq!(until_full(&other).await.code, "57014");
        assert_eq!(room.used(), 4 << 20, "the tenant's limit is not theirs");
        drop((reader, other_reader));
        assert_eq!(room.used(), 0);
        assert!(room.tenants.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_fails_one_statement_alone() {
        let (folder, room) = room(1 << 30);
        let (kept, kept_reader) = spool(&room, Share::default(), Arc::default());
        for number in 0..40 {
            kept.push(chunk(number, 256 << 10)).await.unwrap();
        }
        kept.finish(Ok(()));
        drop(folder);
        let (writer, _reader) = spool(&room, Share::default(), Arc::default());
        assert_eq!(until_full(&writer).await.code, "53100");
        let (found, failure) = all(kept_reader).await;
        assert!(found.len() == 40 * (256 << 10) && failure.is_none());
        assert_eq!(room.used(), 0);
    }
}
