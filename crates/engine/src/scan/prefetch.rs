//! Reading ahead: what a scan of a bucket will ask for is fetched before it asks.
//!
//! DataFusion's scan reads a file's footer, then columns, then decodes, then asks for the next row group
//! or file: one round trip after the other. An [`Ahead`] begins when the scan does. It fetches the
//! footers of the next files at once, asks their indexes, and from what these say fetches the columns'
//! bytes of the next row groups, as far as its room goes; readers find them under way or there.
//!
//! ```text
//! files ─► footers, answers of indexes (up to FOOTERS_AHEAD files before the readers)
//!             └─► byte ranges of row groups, one piece each ─► fetched while there is room
//!                                                                  └─► the file's reader takes them
//! ```
//!
//! # Invariants
//! - Only speed: a reader gets from here the bytes of the ranges it asks for, or reads them itself. A fetch
//!   that fails is none.
//! - Bounded: [`ROOM_BYTES`] and the session's memory; what does not fit in is not fetched ahead.
//! - Nobody waits for room: a reader that is faster reads for itself.
//! - Dropping the scan ends it.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::{
    CachedParquetMetaData, DFParquetMetadata,
};
use datafusion::datasource::physical_plan::parquet::{
    ParquetFileMetrics, ParquetFileReaderFactory,
};
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, RowSelection,
};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use uplake_table::{
    Checksums, check_chunk_types, footer_range, footer_within, io_threads, panic_text, reason,
    unpanicked,
};

use crate::scan::true_bounds::with_true_bounds;

/// Bytes fetched ahead of all readers of a scan, at most. A line of 10 Gbit/s brings them in 50 ms.
const ROOM_BYTES: usize = 64 << 20;
/// Of the session's memory, likewise.
const ROOM_SHARE: usize = 16;
/// Room is given out in units of so many bytes.
const UNIT: usize = 1 << 10;
/// Footers fetched at once; the store has a limit of its own.
const FOOTERS_AT_ONCE: usize = 32;
/// Files whose footers are fetched before a reader opens them.
const FOOTERS_AHEAD: usize = 128;
/// Of errors that say that bytes are not those that were written.
const CHECKSUMS: &str = "checksums";
/// Columns of rows that a condition may still leave out are fetched with the condition's own if they are
/// at most so many bytes: that takes about as long as asking again.
const SMALL_BYTES: u64 = 2 << 20;

/// A file's footer and page indexes, if possible with one request.
pub(crate) async fn read_footer(
    store: &dyn ObjectStore,
    file: &PartitionedFile,
    kept: &Arc<FileMetadataCache>,
    pages: Option<PageIndexPolicy>,
) -> Result<Arc<ParquetMetaData>> {
    let read = footer(store, file, kept, pages).await;
    read.map_err(|error| match error {
        DataFusionError::ParquetError(error) => {
            let (file, reason) = (&file.object_meta.location, reason(error.as_ref()));
            ParquetError::General(format!("the footer of {file}: {reason}")).into()
        }
        other => other,
    })
}

async fn footer(
    store: &dyn ObjectStore,
    file: &PartitionedFile,
    kept: &Arc<FileMetadataCache>,
    pages: Option<PageIndexPolicy>,
) -> Result<Arc<ParquetMetaData>> {
    let (checksums, file) = (file.extensions.get::<Checksums>(), &file.object_meta);
    let is_known = kept.get(&file.location).is_some_and(|found| found.is_valid_for(file));
    let footer = match checksums {
        Some(checksums) if !is_known => compared_footer(store, file, checksums, kept).await?,
        _ => {
            let guess = footer_range(file.size, None);
            let reader = DFParquetMetadata::new(store, file)
                .with_file_metadata_cache(Some(Arc::clone(kept)))
                .with_metadata_size_hint(Some((guess.end - guess.start) as usize))
                .with_page_index_policy(pages);
            // The footer of a damaged file may panic in what reads it.
            let footer = AssertUnwindSafe(reader.fetch_metadata()).catch_unwind().await;
            let footer = footer.unwrap_or_else(|panic| Err(damaged(panic.as_ref())))?;
            if !is_known {
                check_types(store, file, guess, &footer).await?;
            }
            footer
        }
    };
    if !is_known {
        // Also its schema, which is made into one of Arrow later on.
        let options = ArrowReaderOptions::new();
        unpanicked(|| ArrowReaderMetadata::try_new(Arc::clone(&footer), options))?;
    }
    if let Some(checksums) = checksums {
        checksums.learn(&footer)?;
    }
    Ok(with_true_bounds(footer, file, kept)?)
}

/// Compares types in a footer that has no checksum, whose bytes are asked for again: they are in the cache.
async fn check_types(
    store: &dyn ObjectStore,
    file: &ObjectMeta,
    guess: Range<u64>,
    footer: &ParquetMetaData,
) -> Result<()> {
    let tail = store.get_range(&file.location, guess.clone()).await?;
    let found = footer_within(file.size, &tail)?;
    let bytes = match found.start.checked_sub(guess.start) {
        Some(from) => tail.slice(from as usize..(found.end - guess.start) as usize),
        None => store.get_range(&file.location, found).await?,
    };
    Ok(check_chunk_types(&bytes, footer)?)
}

/// The same of a file whose log says how long its end is and which checksum it has; kept with page indexes, so
/// that these are not read by anybody who does not compare them.
async fn compared_footer(
    store: &dyn ObjectStore,
    file: &ObjectMeta,
    checksums: &Checksums,
    kept: &Arc<FileMetadataCache>,
) -> Result<Arc<ParquetMetaData>> {
    let range = footer_range(file.size, Some(checksums));
    let bytes = store.get_range(&file.location, range.clone()).await?;
    let footer = Arc::new(unpanicked(|| checksums.footer(&range, &bytes))?);
    let entry = Arc::new(CachedParquetMetaData::new(Arc::clone(&footer)));
    kept.put(&file.location, CachedFileMetadataEntry::new(file.clone(), entry));
    Ok(footer)
}

fn damaged(panic: &(dyn Any + Send)) -> DataFusionError {
    ParquetError::General(format!("it is damaged ({})", panic_text(panic))).into()
}

/// What a scan will ask of one row group.
pub(crate) struct Wanted {
    pub row_group: usize,
    /// Rows of it that are not ruled out.
    pub rows: Vec<Range<usize>>,
    /// Columns that are read of all these rows, and those that are read of fewer.
    pub columns: Arc<[HashSet<String>; 2]>,
}

/// Decides what of a file will be read: the part that knows the query.
pub(crate) trait PrefetchPlan: Send + Sync {
    /// The row groups of a file, in the order they are read.
    fn wanted<'a>(
        &'a self,
        file: &'a PartitionedFile,
        footer: &'a Arc<ParquetMetaData>,
    ) -> BoxFuture<'a, Result<Vec<Wanted>>>;
}

/// A scan's files, fetched ahead.
pub(crate) struct Ahead {
    work: Arc<Work>,
    _tasks: JoinSet<()>,
}

struct Work {
    store: Arc<dyn ObjectStore>,
    kept_footers: Arc<FileMetadataCache>,
    plan: Arc<dyn PrefetchPlan>,
    files: Vec<(PartitionedFile, Arc<FileAhead>)>,
    by_name: HashMap<(Path, i64), usize>,
    /// Files that readers opened so far.
    opened: watch::Sender<usize>,
    room: Arc<Semaphore>,
    room_units: usize,
    memory: MemoryReservation,
}

/// What is fetched of one file.
#[derive(Debug, Default)]
pub(crate) struct FileAhead {
    footer: OnceCell<Arc<ParquetMetaData>>,
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// By row group.
    pieces: Vec<Piece>,
    /// Where its reader has been so far, the last one is where it is now: a byte of each row group. They
    /// come in the file's order, or in another if the query wants the first rows of an order.
    been: Vec<u64>,
    /// Offsets at which row groups begin; none before the footer is read.
    starts: Vec<u64>,
    is_closed: bool,
}

type Fetched = Option<Arc<Vec<Bytes>>>;
/// What holds a range, which of its ranges, and where in that.
type Hit = (Shared<BoxFuture<'static, Fetched>>, usize, Range<usize>);

/// Bytes of one row group, there or under way.
#[derive(Debug)]
struct Piece {
    row_group: usize,
    /// In order, apart from each other.
    ranges: Arc<[Range<u64>]>,
    fetched: Shared<BoxFuture<'static, Fetched>>,
    /// Bytes that the reader has not asked for yet.
    left: u64,
    _task: SpawnedTask<()>,
    _room: OwnedSemaphorePermit,
    _memory: MemoryReservation,
}

/// Marks a file as opened by its reader, which is done with it when the last copy is dropped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<FileAhead>);

impl Drop for Opened {
    fn drop(&mut self) {
        let mut pieces = self.0.lock();
        pieces.is_closed = true;
        pieces.pieces.clear();
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("files", &self.work.files.len()).finish_non_exhaustive()
    }
}

impl Ahead {
    /// Begins to fetch for `files`, in the order they will be read. Must be called by a task.
    pub fn start(
        files: Vec<PartitionedFile>,
        plan: Arc<dyn PrefetchPlan>,
        store: Arc<dyn ObjectStore>,
        kept_footers: Arc<FileMetadataCache>,
        pool: &Arc<dyn MemoryPool>,
        memory_bytes: usize,
    ) -> Self {
        let name = |(at, file): (usize, &PartitionedFile)| (name_of(file), at);
        let by_name = files.iter().enumerate().map(name).collect();
        let room_units = ROOM_BYTES.min(memory_bytes / ROOM_SHARE) / UNIT;
        let work = Arc::new(Work {
            store,
            kept_footers,
            plan,
            files: files.into_iter().map(|file| (file, Arc::default())).collect(),
            by_name,
            opened: watch::channel(0).0,
            room: Arc::new(Semaphore::new(room_units)),
            room_units,
            memory: MemoryConsumer::new("read ahead").register(pool),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&work).fetch_footers());
        // Room is given back by scans, on threads that go on computing: whoever waits for it is woken elsewhere.
        let computes = Handle::current();
        let waits = io_threads().unwrap_or_else(|| computes.clone());
        tasks.spawn_on(Arc::clone(&work).fetch_pieces(computes), &waits);
        Self { work, _tasks: tasks }
    }

    /// A reader is about to open the file: the same file, so that it finds what was fetched.
    pub fn open(&self, mut file: PartitionedFile) -> PartitionedFile {
        if let Some(at) = self.work.by_name.get(&name_of(&file)) {
            self.work.opened.send_modify(|opened| *opened += 1);
            file.extensions.insert(Opened(Arc::clone(&self.work.files[*at].1)));
        }
        file
    }

    /// The footer of one of the files.
    pub async fn footer(&self, file: &PartitionedFile) -> Result<Arc<ParquetMetaData>> {
        match self.work.by_name.get(&name_of(file)) {
            Some(at) => self.work.footer(*at).await,
            None => {
                let (store, kept) = (self.work.store.as_ref(), &self.work.kept_footers);
                read_footer(store, file, kept, None).await
            }
        }
    }
}

/// What tells parts of one file from each other, too.
fn name_of(file: &PartitionedFile) -> (Path, i64) {
    (file.object_meta.location.clone(), file.range.as_ref().map_or(-1, |range| range.start))
}

impl Work {
    async fn footer(&self, at: usize) -> Result<Arc<ParquetMetaData>> {
        let (file, ahead) = &self.files[at];
        let read = || read_footer(self.store.as_ref(), file, &self.kept_footers, None);
        ahead.footer.get_or_try_init(read).await.cloned()
    }

    async fn fetch_footers(self: Arc<Self>) {
        let fetch = |at: usize| {
            let (work, mut opened) = (Arc::clone(&self), self.opened.subscribe());
            async move {
                if opened.wait_for(|opened| at < opened + FOOTERS_AHEAD).await.is_ok() {
                    // Its reader will say what is wrong.
                    let _ = work.footer(at).await;
                }
            }
        };
        futures::stream::iter(0..self.files.len())
            .for_each_concurrent(FOOTERS_AT_ONCE, fetch)
            .await;
    }

    /// Indexes are asked, and bounds compared, by threads of `computes`.
    async fn fetch_pieces(self: Arc<Self>, computes: Handle) {
        // Some files ahead, too.
        let plans = futures::stream::iter(0..self.files.len()).map(|at| {
            let work = Arc::clone(&self);
            let _there = computes.enter();
            SpawnedTask::spawn(async move {
                let mut opened = work.opened.subscribe();
                let near = opened.wait_for(|opened| at < opened + FOOTERS_AHEAD).await;
                near.ok()?;
                let footer = work.footer(at).await.ok()?;
                let wanted = work.plan.wanted(&work.files[at].0, &footer).await.ok()?;
                Some((at, footer, wanted))
            })
        });
        let mut plans = plans.buffered(FOOTERS_AT_ONCE);
        while let Some(planned) = plans.next().await {
            let Ok(Some((at, footer, wanted))) = planned else { continue };
            let (file, ahead) = &self.files[at];
            ahead.lock().starts =
                (0..footer.num_row_groups()).map(|group| start_of(&footer, group)).collect();
            for wanted in wanted {
                let ranges = wanted.ranges(&footer);
                let bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
                let units = (bytes as usize).div_ceil(UNIT);
                if bytes == 0 || units > self.room_units || ahead.is_past(wanted.row_group) {
                    continue;
                }
                let room = Arc::clone(&self.room).acquire_many_owned(units as u32).await;
                let Ok(room) = room else { return };
                let memory = self.memory.new_empty();
                if memory.try_grow(bytes as usize).is_err() {
                    continue;
                }
                ahead.begin(&self.store, file.clone(), wanted.row_group, ranges, room, memory);
            }
        }
    }
}

fn start_of(footer: &ParquetMetaData, group: usize) -> u64 {
    footer.row_group(group).columns().iter().map(|column| column.byte_range().0).min().unwrap_or(0)
}

impl Wanted {
    /// The bytes to fetch, in order.
    fn ranges(&self, footer: &ParquetMetaData) -> Vec<Range<u64>> {
        let [first, later] = self.columns.as_ref();
        let (mut ranges, mut rest) = (Vec::new(), Vec::new());
        let group = footer.row_group(self.row_group);
        let rows = usize::try_from(group.num_rows()).unwrap_or_default();
        let is_all = matches!(self.rows.as_slice(), [one] if *one == (0..rows));
        let selection = RowSelection::from_consecutive_ranges(self.rows.iter().cloned(), rows);
        let pages = footer.offset_index().and_then(|index| index.get(self.row_group));
        for (at, column) in group.columns().iter().enumerate() {
            let root = column.column_path().parts().first().map(String::as_str).unwrap_or_default();
            let ranges = match (first.contains(root), later.contains(root)) {
                (true, _) => &mut ranges,
                (_, true) => &mut rest,
                _ => continue,
            };
            let (start, length) = column.byte_range();
            match pages.and_then(|pages| pages.get(at)).filter(|_| !is_all) {
                Some(pages) => {
                    let pages = pages.page_locations();
                    let data = pages.first().map_or(start, |page| page.offset.unsigned_abs());
                    if data > start {
                        ranges.push(start..data);
                    }
                    ranges.extend(selection.scan_ranges(pages));
                }
                None => ranges.push(start..start + length),
            }
        }
        if first.is_empty() || rest.iter().map(|r| r.end - r.start).sum::<u64>() <= SMALL_BYTES {
            ranges.append(&mut rest);
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        // Pages beside each other are one range: whatever is done to each is done once.
        ranges.dedup_by(|next, last| {
            let is_beside = last.end == next.start;
            if is_beside {
                last.end = next.end;
            }
            is_beside
        });
        ranges
    }
}

impl FileAhead {
    fn lock(&self) -> MutexGuard<'_, Pieces> {
        // Nothing below panics half-way through a change.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Pieces::is_past`].
    fn is_past(&self, row_group: usize) -> bool {
        self.lock().is_past(row_group)
    }

    fn begin(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: PartitionedFile,
        row_group: usize,
        ranges: Vec<Range<u64>>,
        room: OwnedSemaphorePermit,
        memory: MemoryReservation,
    ) {
        let mut pieces = self.lock();
        if pieces.is_past(row_group) {
            return;
        }
        let ranges: Arc<[Range<u64>]> = ranges.into();
        let (store, wanted) = (Arc::clone(store), Arc::clone(&ranges));
        let fetched = async move {
            let read = compared_ranges(&store, &file, &wanted).await.ok()?;
            Some(Arc::new(read))
        };
        let fetched = fetched.boxed().shared();
        let task = fetched.clone().map(drop);
        pieces.pieces.push(Piece {
            row_group,
            left: ranges.iter().map(|range| range.end - range.start).sum(),
            ranges,
            fetched,
            _task: SpawnedTask::spawn(task),
            _room: room,
            _memory: memory,
        });
    }

    /// Those of `ranges` that were fetched ahead. `moves`: the reader has gone on to their row group.
    async fn take(&self, ranges: &[Range<u64>], moves: bool) -> Vec<Option<Bytes>> {
        let mut found: Vec<Option<Hit>> = Vec::with_capacity(ranges.len());
        // Those that are done with are dropped without the lock.
        let mut done = Vec::new();
        {
            let mut pieces = self.lock();
            if let Some(first) = ranges.first().filter(|_| moves) {
                done.extend(pieces.move_to(first.start));
            }
            for range in ranges {
                let hit = pieces.pieces.iter_mut().find_map(|piece| piece.find(range));
                found.push(hit);
            }
            done.extend(pieces.pieces.extract_if(.., |piece| piece.left == 0));
        }
        let mut taken = Vec::with_capacity(found.len());
        for hit in found {
            taken.push(match hit {
                None => None,
                Some((fetched, at, within)) => {
                    let bytes = fetched.await.and_then(|parts| parts.get(at).cloned());
                    bytes.filter(|bytes| within.end <= bytes.len()).map(|bytes| bytes.slice(within))
                }
            });
        }
        drop(done);
        taken
    }
}

impl Pieces {
    /// The row group of a byte; `None` before the footer is read.
    fn group_of(&self, byte: u64) -> Option<usize> {
        self.starts.partition_point(|start| *start <= byte).checked_sub(1)
    }

    /// Is the reader at this row group already, or done with it?
    fn is_past(&self, row_group: usize) -> bool {
        self.is_closed || self.been.iter().any(|at| self.group_of(*at) == Some(row_group))
    }

    /// The reader is at this byte now; what was fetched of row groups that it left.
    fn move_to(&mut self, byte: u64) -> Vec<Piece> {
        let now = self.group_of(byte);
        if now.is_some() && self.been.last().and_then(|at| self.group_of(*at)) == now {
            return Vec::new();
        }
        let left: Vec<_> = self.been.iter().map(|at| self.group_of(*at)).collect();
        self.been.push(byte);
        let is_left = |group| group != now && left.contains(&group);
        self.pieces.extract_if(.., |piece| is_left(Some(piece.row_group))).collect()
    }
}

impl Piece {
    /// Which of its ranges holds `range`, and where.
    fn find(&mut self, range: &Range<u64>) -> Option<Hit> {
        let at = self.ranges.partition_point(|piece| piece.start <= range.start).checked_sub(1)?;
        let whole = &self.ranges[at];
        if range.end > whole.end {
            return None;
        }
        self.left = self.left.saturating_sub(range.end - range.start);
        let start = (range.start - whole.start) as usize;
        let within = start..start + (range.end - range.start) as usize;
        Some((self.fetched.clone(), at, within))
    }
}

/// Ranges of a file from the store, compared with their checksums if it has some.
async fn compared_ranges(
    store: &Arc<dyn ObjectStore>,
    file: &PartitionedFile,
    ranges: &[Range<u64>],
) -> datafusion::object_store::Result<Vec<Bytes>> {
    let path = &file.object_meta.location;
    let Some(checksums) = file.extensions.get::<Checksums>() else {
        return store.get_ranges(path, ranges).await;
    };
    let failed = |error: ParquetError| datafusion::object_store::Error::Generic {
        store: CHECKSUMS,
        source: match &error {
            ParquetError::External(error) => format!("{path}: {error}").into(),
            error => format!("{path}: {}", reason(error)).into(),
        },
    };
    let units: Result<Vec<Range<u64>>, _> =
        ranges.iter().map(|range| checksums.whole_units(range)).collect();
    let units = units.map_err(failed)?;
    let read = store.get_ranges(path, &units).await?;
    let mut wanted = Vec::with_capacity(ranges.len());
    for ((range, units), bytes) in ranges.iter().zip(&units).zip(read) {
        checksums.compare_units(units, &bytes).map_err(failed)?;
        let start = (range.start - units.start) as usize;
        wanted.push(bytes.slice(start..start + (range.end - range.start) as usize));
    }
    Ok(wanted)
}

/// Ranges of a file, from what was fetched ahead and from the store.
pub(crate) async fn read_ranges(
    store: &Arc<dyn ObjectStore>,
    file: &PartitionedFile,
    ranges: &[Range<u64>],
    moves: bool,
) -> datafusion::object_store::Result<Vec<Bytes>> {
    let Some(opened) = file.extensions.get::<Opened>() else {
        return compared_ranges(store, file, ranges).await;
    };
    let mut taken = opened.0.take(ranges, moves).await;
    let missing = || taken.iter().enumerate().filter(|(_, found)| found.is_none());
    let numbers: Vec<usize> = missing().map(|(at, _)| at).collect();
    if !numbers.is_empty() {
        let wanted: Vec<Range<u64>> = numbers.iter().map(|at| ranges[*at].clone()).collect();
        let read = compared_ranges(store, file, &wanted).await?;
        for (at, bytes) in numbers.into_iter().zip(read) {
            taken[at] = Some(bytes);
        }
    }
    Ok(taken.into_iter().flatten().collect())
}

/// Makes readers that take what was fetched ahead.
#[derive(Debug)]
pub(crate) struct AheadReaders {
    pub store: Arc<dyn ObjectStore>,
    pub kept_footers: Arc<FileMetadataCache>,
}

impl ParquetFileReaderFactory for AheadReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let metrics =
            ParquetFileMetrics::new(partition, file.object_meta.location.as_ref(), metrics);
        let (store, kept_footers) = (Arc::clone(&self.store), Arc::clone(&self.kept_footers));
        Ok(Box::new(AheadReader { store, kept_footers, file, metrics }))
    }
}

struct AheadReader {
    store: Arc<dyn ObjectStore>,
    kept_footers: Arc<FileMetadataCache>,
    file: PartitionedFile,
    metrics: ParquetFileMetrics,
}

impl AheadReader {
    fn count(&self, bytes: u64) {
        let counter: &Count = &self.metrics.bytes_scanned;
        counter.add(bytes as usize);
    }
}

/// What a reader of a file says; of damage what and where, and nothing of the layers that brought it.
pub(crate) fn external(error: datafusion::object_store::Error) -> ParquetError {
    match error {
        datafusion::object_store::Error::Generic { store: CHECKSUMS, source } => {
            ParquetError::General(source.to_string())
        }
        error => ParquetError::External(Box::new(error)),
    }
}

impl AsyncFileReader for AheadReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.count(range.end - range.start);
        async move {
            let ranges = [range];
            let read = read_ranges(&self.store, &self.file, &ranges, false).await;
            let bytes = read.map_err(external)?.into_iter().next();
            bytes.ok_or_else(|| ParquetError::EOF("a range without bytes".into()))
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.count(ranges.iter().map(|range| range.end - range.start).sum());
        async move { read_ranges(&self.store, &self.file, &ranges, true).await.map_err(external) }
            .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let pages = options.map(ArrowReaderOptions::column_index_policy);
        async move {
            let (file, path) = (&self.file, &self.file.object_meta.location);
            let read = read_footer(self.store.as_ref(), file, &self.kept_footers, pages).await;
            read.map_err(|error| match error {
                DataFusionError::ParquetError(error) => *error,
                error => ParquetError::General(format!("the footer of {path}: {error}")),
            })
        }
        .boxed()
    }
}

impl Drop for AheadReader {
    /// As DataFusion's own reader does.
    fn drop(&mut self) {
        let ratio = &self.metrics.scan_efficiency_ratio;
        ratio.add_part(self.metrics.bytes_scanned.value());
        ratio.set_total(self.file.object_meta.size as usize);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;
    use datafusion::object_store::memory::InMemory;

    use super::*;

    /// A file of three row groups of 100 bytes, nothing of which is fetched yet.
    async fn file() -> (FileAhead, Arc<dyn ObjectStore>) {
        let store = InMemory::new();
        let bytes: Vec<u8> = (0..300u32).map(|n| (n % 251) as u8).collect();
        store.put(&Path::from("f"), bytes.into()).await.unwrap();
        (FileAhead::default(), Arc::new(store))
    }

    fn read_footer_of(ahead: &FileAhead) {
        ahead.lock().starts = vec![0, 100, 200];
    }

    fn fetch(ahead: &FileAhead, store: &Arc<dyn ObjectStore>, row_group: usize) {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let start = 100 * row_group as u64;
        let ranges = vec![start..start + 60, start + 70..start + 100];
        let memory = MemoryConsumer::new("test").register(&pool);
        ahead.begin(store, PartitionedFile::new("f", 300), row_group, ranges, room, memory);
    }

    async fn take(ahead: &FileAhead, range: Range<u64>) -> Option<Bytes> {
        ahead.take(std::slice::from_ref(&range), true).await.remove(0)
    }

    fn kept(ahead: &FileAhead) -> Vec<usize> {
        ahead.lock().pieces.iter().map(|piece| piece.row_group).collect()
    }

    #[tokio::test]
    async fn row_groups_may_be_read_in_any_order() {
        let (ahead, store) = file().await;
        read_footer_of(&ahead);
        (0..3).for_each(|group| fetch(&ahead, &store, group));
        let found = ahead.take(&[210..212, 290..291], true).await;
        assert_eq!(found, [Some(vec![210, 211].into()), Some(vec![39].into())]);
        assert_eq!(kept(&ahead), [0, 1, 2]);
        assert_eq!(take(&ahead, 0..2).await, Some(vec![0, 1].into()));
        assert_eq!(kept(&ahead), [0, 1], "the last one was left");
        fetch(&ahead, &store, 2);
        assert_eq!(kept(&ahead), [0, 1], "it is not fetched again");
        let rest = ahead.take(&[2..60, 70..100], true).await;
        assert!(rest.iter().all(Option::is_some));
        assert_eq!(kept(&ahead), [1], "all of it was taken");
        assert_eq!(take(&ahead, 160..170).await, None, "what was not fetched");
    }

    #[tokio::test]
    async fn a_row_group_that_is_read_before_the_footer_is_there_is_not_fetched() {
        let (ahead, store) = file().await;
        assert_eq!(take(&ahead, 130..140).await, None);
        read_footer_of(&ahead);
        (0..3).for_each(|group| fetch(&ahead, &store, group));
        assert_eq!(kept(&ahead), [0, 2]);
    }
}
