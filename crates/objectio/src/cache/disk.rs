//! The disk tier: extents in segment files, written by one thread in the order they come.
//!
//! Segments are appended to, sealed when full, and evicted whole, oldest first; extents that were
//! read meanwhile are written again at the front. So every write is sequential, the sum of the files
//! is known without asking the file system, and eviction is one deletion.
//!
//! # Invariants
//! - The files together never exceed the limit: space is reserved before it is written and given
//!   back only when a file is deleted.
//! - An error of the file system turns the tier off, with a warning; it fails no read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::thread;

use bytes::Bytes;
use object_store::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::extents::{Extents, MOST_EXTENT, ObjectId};
use super::record::{Record, SEGMENT_MAGIC, checksums, decode_index, encode_index};
use super::segment::{Place, Segment, index_path, scan, segment_path};
use super::warnings::Warnings;
use crate::private;

const MOST_SEGMENT: u64 = 64 << 20;
/// Bytes that wait to be written; beyond, extents are dropped (and counted), or their giver waits.
const QUEUE_BYTES: usize = 64 << 20;
const QUEUE_JOBS: usize = 16 << 10;
/// A disk has this much to do at once; more readers wait, too many are told to ask the store.
const READERS: usize = 4;
const READ_JOBS: usize = 256;
/// Read errors in a row that turn the tier off.
const MOST_ERRORS: u32 = 3;

/// What became of a read from disk.
#[derive(Debug)]
pub(super) enum FromDisk {
    Bytes(Bytes),
    /// The bytes are wrong or cannot be read.
    Lost,
    /// Too many wait already.
    Busy,
}

#[derive(Debug)]
enum Job {
    Write {
        object: ObjectId,
        start: u64,
        bytes: Bytes,
        may_evict: bool,
        _queued: OwnedSemaphorePermit,
    },
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct ReadJob {
    place: Place,
    within: Range<u64>,
    answer: oneshot::Sender<io::Result<Option<Bytes>>>,
}

/// The tier's handle.
#[derive(Debug)]
pub(super) struct Disk {
    shared: Arc<Shared>,
    queue: Arc<Semaphore>,
    /// Until it is closed.
    jobs: Option<SyncSender<Job>>,
    writer: Option<thread::JoinHandle<()>>,
    reads: SyncSender<ReadJob>,
    errors: AtomicU32,
}

impl Drop for Disk {
    /// What waits in the queue is given up; what is written is sealed, and the folder is free again.
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    extents: Arc<Mutex<Extents>>,
    warnings: Arc<Warnings>,
    folder: PathBuf,
    limit: u64,
    segment: u64,
    used: Arc<AtomicU64>,
    is_off: AtomicBool,
    is_closing: AtomicBool,
    /// Extents that found no room.
    dropped: AtomicU64,
    /// Held as long as the tier is used.
    _lock: File,
}

impl Shared {
    fn turn_off(&self, error: &io::Error) {
        if !self.is_off.swap(true, Ordering::AcqRel) {
            self.extents.lock().drop_disk();
            self.warnings.add(format!(
                "the disk cache in {} is off: {error}; reads go to the store",
                self.folder.display()
            ));
        }
    }
}

impl Disk {
    /// Opens the tier in `folder` and tells `extents` what is there.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or another process uses it.
    pub(super) fn open(
        folder: &FilePath,
        limit: u64,
        extents: &Arc<Mutex<Extents>>,
        warnings: &Arc<Warnings>,
    ) -> io::Result<Self> {
        private::create_folder(folder)?;
        let lock = private::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process uses it")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        let shared = Arc::new(Shared {
            extents: Arc::clone(extents),
            warnings: Arc::clone(warnings),
            folder: folder.to_owned(),
            limit,
            segment: (limit / 16).min(MOST_SEGMENT),
            used: Arc::default(),
            is_off: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            _lock: lock,
        });
        let writer = Writer::recover(Arc::clone(&shared))?;
        let (jobs, todo) = sync_channel(QUEUE_JOBS);
        let name = "uplake-cache-write".to_owned();
        let writer = thread::Builder::new().name(name).spawn(move || writer.run(&todo))?;
        let (reads, todo) = sync_channel::<ReadJob>(READ_JOBS);
        let todo = Arc::new(StdMutex::new(todo));
        for i in 0..READERS {
            let todo = Arc::clone(&todo);
            thread::Builder::new().name(format!("uplake-cache-read-{i}")).spawn(move || {
                loop {
                    let job = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(ReadJob { place, within, answer }) = job else { return };
                    if !answer.is_closed() {
                        let _ = answer.send(place.read(&within));
                    }
                }
            })?;
        }
        let queue = Arc::new(Semaphore::new(QUEUE_BYTES));
        Ok(Self {
            shared,
            queue,
            jobs: Some(jobs),
            writer: Some(writer),
            reads,
            errors: AtomicU32::new(0),
        })
    }

    pub(super) fn is_off(&self) -> bool {
        self.shared.is_off.load(Ordering::Acquire)
    }

    /// Bytes of its files, those being written included.
    pub(super) fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Acquire)
    }

    /// Bytes that wait to be written.
    pub(super) fn queued(&self) -> u64 {
        QUEUE_BYTES.saturating_sub(self.queue.available_permits()) as u64
    }

    pub(super) fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Extents that were given and found no room.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Acquire)
    }

    /// Longest extent it takes.
    pub(super) fn most_extent(&self) -> u64 {
        MOST_EXTENT.min(self.shared.segment / 4)
    }

    /// Queues an extent to be written; false if the queue is full. Only if it `may_evict` are others
    /// pushed out for it.
    pub(super) fn offer(
        &self,
        object: ObjectId,
        start: u64,
        bytes: &Bytes,
        may_evict: bool,
    ) -> bool {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match Arc::clone(&self.queue).try_acquire_many_owned(len) {
            Ok(queued) => self.send(object, start, bytes, may_evict, queued),
            Err(_) => false,
        }
    }

    /// The same, waiting for the queue and pushing nothing out.
    pub(super) async fn give(&self, object: ObjectId, start: u64, bytes: &Bytes) -> bool {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match Arc::clone(&self.queue).acquire_many_owned(len).await {
            Ok(queued) => self.send(object, start, bytes, false, queued),
            Err(_) => false,
        }
    }

    fn send(
        &self,
        object: ObjectId,
        start: u64,
        bytes: &Bytes,
        may_evict: bool,
        queued: OwnedSemaphorePermit,
    ) -> bool {
        let bytes = bytes.clone();
        let job = Job::Write { object, start, bytes, may_evict, _queued: queued };
        !self.is_off() && self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }

    /// Waits until everything given so far is written or dropped.
    pub(super) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        let mut job = Job::Flush(done);
        let Some(jobs) = &self.jobs else { return };
        while let Err(TrySendError::Full(back)) = jobs.try_send(job) {
            job = back;
            tokio::task::yield_now().await;
        }
        let _ = wait.await;
    }

    /// Reads the bytes `within` an extent.
    pub(super) async fn read(&self, place: Place, within: Range<u64>) -> FromDisk {
        let (answer, wait) = oneshot::channel();
        if self.reads.try_send(ReadJob { place, within, answer }).is_err() {
            return FromDisk::Busy;
        }
        match wait.await {
            Ok(Ok(Some(bytes))) => {
                self.errors.store(0, Ordering::Relaxed);
                FromDisk::Bytes(bytes)
            }
            Ok(Err(error)) => {
                if self.errors.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_ERRORS {
                    self.shared.turn_off(&error);
                }
                FromDisk::Lost
            }
            Ok(Ok(None)) => FromDisk::Lost,
            Err(_) => FromDisk::Busy,
        }
    }
}

/// What may be pushed out for an extent.
enum Evict<'a> {
    Nothing,
    /// Whole segments, but what was read of them is handed out to be written again.
    Keeping(&'a mut VecDeque<(ObjectId, u64, Bytes)>),
    All,
}

/// The thread that owns the files.
struct Writer {
    shared: Arc<Shared>,
    sealed: VecDeque<Arc<Segment>>,
    active: Option<Active>,
    next: u32,
}

struct Active {
    segment: Arc<Segment>,
    len: u64,
    /// Headers and the offsets of their data, for the index.
    records: Vec<(Vec<u8>, u64)>,
}

impl Writer {
    /// Reads what an earlier process left.
    fn recover(shared: Arc<Shared>) -> io::Result<Self> {
        let mut numbers: Vec<u32> = Vec::new();
        for entry in fs::read_dir(&shared.folder)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            numbers.extend(name.strip_suffix(".seg").and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        let mut writer = Self {
            next: numbers.last().map_or(0, |last| last.wrapping_add(1)),
            shared,
            sealed: VecDeque::new(),
            active: None,
        };
        // The newest are the ones to keep if the limit was lowered.
        let mut recovered = Vec::new();
        for number in numbers.into_iter().rev() {
            let read = writer.recover_segment(number);
            match read {
                Ok(Some((segment, records))) => recovered.push((segment, records)),
                Ok(None) | Err(_) => {
                    let _ = fs::remove_file(segment_path(&writer.shared.folder, number));
                    let _ = fs::remove_file(index_path(&writer.shared.folder, number));
                }
            }
        }
        let mut extents = writer.shared.extents.lock();
        for (segment, records) in recovered.into_iter().rev() {
            for (record, offset) in records {
                let place = Place {
                    segment: Arc::clone(&segment),
                    offset,
                    len: record.len,
                    crcs: record.crcs.into(),
                };
                let object = extents.object(&record.meta.location, &record.meta);
                let range = record.start..record.start + u64::from(record.len);
                extents.placed(object, &range, place);
            }
            writer.sealed.push_back(segment);
        }
        drop(extents);
        Ok(writer)
    }

    /// One segment of an earlier process; `None` if it is of no use.
    #[allow(clippy::type_complexity)] // a pair and a list of pairs
    fn recover_segment(
        &self,
        number: u32,
    ) -> io::Result<Option<(Arc<Segment>, Vec<(Record, u64)>)>> {
        let folder = &self.shared.folder;
        let file = File::open(segment_path(folder, number))?;
        let len = file.metadata()?.len();
        let sealed = fs::read(index_path(folder, number)).ok();
        let sealed = sealed.and_then(|bytes| Some((decode_index(&bytes)?, bytes.len() as u64)));
        let (records, index) = match sealed {
            Some(sealed) => sealed,
            None => {
                let records = scan(&file, len)?;
                let headers: Option<Vec<_>> =
                    records.iter().map(|(record, at)| Some((record.encode()?, *at))).collect();
                let Some(headers) = headers else { return Ok(None) };
                let index = encode_index(&headers);
                private::write(&index_path(folder, number), &index)?;
                (records, index.len() as u64)
            }
        };
        let reserved = len + index;
        let fits = |(record, at): &(Record, u64)| at.saturating_add(u64::from(record.len)) <= len;
        let is_room = self.shared.used.load(Ordering::Acquire) + reserved <= self.shared.limit;
        if records.is_empty() || !records.iter().all(fits) || !is_room {
            return Ok(None);
        }
        self.shared.used.fetch_add(reserved, Ordering::AcqRel);
        let segment = Segment::over(folder, number, file, reserved, &self.shared.used);
        Ok(Some((Arc::new(segment), records)))
    }

    fn run(mut self, todo: &Receiver<Job>) {
        while let Ok(job) = todo.recv() {
            match job {
                Job::Flush(done) => drop(done.send(())),
                Job::Write { .. }
                    if self.shared.is_off.load(Ordering::Acquire)
                        || self.shared.is_closing.load(Ordering::Acquire) => {}
                Job::Write { object, start, bytes, may_evict, _queued } => {
                    if let Err(error) = self.write(object, start, &bytes, may_evict) {
                        self.shared.turn_off(&error);
                    }
                }
            }
        }
        let _ = self.seal();
    }

    fn write(
        &mut self,
        object: ObjectId,
        start: u64,
        bytes: &Bytes,
        may_evict: bool,
    ) -> io::Result<()> {
        let mut hot = VecDeque::new();
        let evict = if may_evict { Evict::Keeping(&mut hot) } else { Evict::Nothing };
        self.append(object, start, bytes, evict)?;
        // What was read since it was written goes to the front again, once.
        for (object, start, bytes) in hot {
            self.append(object, start, &bytes, Evict::All)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        object: ObjectId,
        start: u64,
        bytes: &Bytes,
        mut evict: Evict<'_>,
    ) -> io::Result<()> {
        let Some(meta) = self.meta(object) else { return Ok(()) };
        let crcs = checksums(bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let record = Record { meta, start, len, crcs };
        let Some(header) = record.encode() else { return Ok(()) };
        // The header is written twice: here and in the index. 28 bytes begin the two files.
        let need = 2 * header.len() as u64 + 8 + bytes.len() as u64 + 28;
        while self.shared.used.load(Ordering::Acquire) + need > self.shared.limit {
            if !self.evict(&mut evict) {
                self.shared.dropped.fetch_add(1, Ordering::AcqRel);
                return Ok(());
            }
        }
        self.shared.used.fetch_add(need, Ordering::AcqRel);
        let active = match &mut self.active {
            Some(active) => active,
            none => {
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                none.insert(Active::create(&self.shared, number)?)
            }
        };
        active.segment.reserve(need);
        let offset = active.len + header.len() as u64;
        active.segment.write_at(&header, active.len)?;
        active.segment.write_at(bytes, offset)?;
        active.len = offset + bytes.len() as u64;
        active.records.push((header, offset));
        let segment = Arc::clone(&active.segment);
        let is_full = active.len >= self.shared.segment;
        let place = Place { segment, offset, len, crcs: record.crcs.into() };
        let range = start..start + u64::from(len);
        self.shared.extents.lock().placed(object, &range, place);
        if is_full { self.seal() } else { Ok(()) }
    }

    fn meta(&self, object: ObjectId) -> Option<ObjectMeta> {
        self.shared.extents.lock().describe(object).map(|(_, meta)| meta.clone())
    }

    /// Writes the active segment's index; from now on it can be evicted.
    fn seal(&mut self) -> io::Result<()> {
        let Some(active) = self.active.take() else { return Ok(()) };
        let index = encode_index(&active.records);
        let written =
            private::write(&index_path(&self.shared.folder, active.segment.number), &index);
        self.sealed.push_back(active.segment);
        written
    }

    /// Deletes the oldest segment, or fails to because there is none or it must not. What was read of
    /// it lately is kept, up to half of a segment.
    fn evict(&mut self, how: &mut Evict<'_>) -> bool {
        if matches!(how, Evict::Nothing) {
            return false;
        }
        let Some(segment) = self.sealed.pop_front() else { return false };
        let touched = self.shared.extents.lock().drop_segment(segment.number);
        if let Evict::Keeping(hot) = how {
            let kept: u64 = hot.iter().map(|(_, _, bytes)| bytes.len() as u64).sum();
            let mut room = (self.shared.segment / 2).saturating_sub(kept);
            for (object, range, place) in touched {
                let len = range.end - range.start;
                if len > room {
                    break;
                }
                if let Ok(Some(bytes)) = place.read(&(0..len)) {
                    room -= len;
                    hot.push_back((object, range.start, bytes));
                }
            }
        }
        segment.doom();
        true
    }
}

impl Active {
    fn create(shared: &Shared, number: u32) -> io::Result<Self> {
        let segment = Arc::new(Segment::create(&shared.folder, number, &shared.used)?);
        Ok(Self { segment, len: SEGMENT_MAGIC.len() as u64, records: Vec::new() })
    }
}
