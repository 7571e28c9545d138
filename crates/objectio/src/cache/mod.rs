//! Bytes that were read once, in memory and on disk.
//!
//! [`extents`] knows what is where, [`disk`] keeps files, [`segment`] is one, [`record`] its format; this module
//! reads: what is there from where it is, what is missing from the store, both at once, and what
//! another reader is fetching already from that reader; both pay for it, each by the bytes that it asked for.
//!
//! # Invariants
//! - A read returns the bytes of one version. If the store has another than the cache, the cache
//!   forgets and the read begins again.
//! - Whatever goes wrong with the cache, the read goes to the store.
//! - Only objects that never change are kept: their names end as the settings say, and they lie
//!   outside of `_delta_log`. What lies there is kept for readers who name the version they want.

mod disk;
mod extents;
mod record;
mod segment;
mod warnings;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared, join_all};
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, Result,
};
use parking_lot::Mutex;

use crate::counters::{Share, Shares, count, current};
use crate::error::again;
use crate::options::StorageOptions;
use crate::ranges::{Ranges, Read};
use crate::version::is_same_version;
use disk::{Disk, FromDisk};
use extents::{Extents, MOST_EXTENT, Part};
pub(crate) use warnings::Warnings;

/// A longer single range is streamed past the cache: it would have to be held in one piece.
const MOST_RANGE: u64 = 64 << 20;
/// Times a read begins again because the object changed.
const MOST_VERSIONS: usize = 3;

/// How eagerly what was fetched is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Where there is room; what pushes others out must be small or read a second time.
    Usual,
    /// Somebody asked for it to be kept: wait for the disk, but push nothing out.
    Asked,
}

type Fetch = Shared<BoxFuture<'static, Result<Arc<Read>, Arc<Error>>>>;
type WeakFetch = WeakShared<BoxFuture<'static, Result<Arc<Read>, Arc<Error>>>>;

/// Both tiers above the reads of one store.
#[derive(Debug)]
pub(crate) struct Cache {
    ranges: Arc<Ranges>,
    extents: Arc<Mutex<Extents>>,
    disk: Option<Disk>,
    flights: Mutex<HashMap<Path, Vec<Flight>>>,
    /// Times anything was forgotten.
    forgotten: AtomicU64,
    suffixes: Vec<String>,
}

/// Ranges some reader is fetching.
#[derive(Debug)]
struct Flight {
    ranges: Arc<[Range<u64>]>,
    fetch: WeakFetch,
    shares: Arc<Shares>,
    /// The object was written meanwhile: what is fetched is not kept.
    is_stale: Arc<AtomicBool>,
}

/// Where a missing part comes from.
struct Awaited {
    fetch: Fetch,
    /// Which of the fetch's ranges, and the part within it.
    index: usize,
    within: Range<u64>,
    _share: Option<Share>,
}

impl Cache {
    /// The cache the settings ask for, if any. A disk tier that cannot be opened is a warning.
    pub(crate) fn open(
        ranges: &Arc<Ranges>,
        options: &StorageOptions,
        warnings: &Arc<Warnings>,
    ) -> Option<Arc<Self>> {
        if options.memory_cache.0 == 0 && options.disk_cache.0 == 0 {
            return None;
        }
        let extents = Arc::new(Mutex::new(Extents::new(options.memory_cache.0)));
        let folder = options.disk_cache_path.as_ref().filter(|_| options.disk_cache.0 > 0);
        let disk = folder.and_then(|folder| {
            Disk::open(folder, options.disk_cache.0, &extents, warnings)
                .map_err(|error| {
                    let folder = folder.display();
                    warnings.add(format!("the disk cache in {folder} is not used: {error}"));
                })
                .ok()
        });
        Some(Arc::new(Self {
            ranges: Arc::clone(ranges),
            extents,
            disk,
            flights: Mutex::default(),
            forgotten: AtomicU64::new(0),
            suffixes: options.immutable_suffixes.clone(),
        }))
    }

    /// Whether objects of this name are kept.
    pub(crate) fn takes(&self, path: &Path) -> bool {
        let name = path.as_ref();
        self.suffixes.iter().any(|suffix| name.ends_with(suffix.as_str()))
            && !path.parts().any(|part| part.as_ref() == "_delta_log")
    }

    /// Forgets `path`: it was written or deleted.
    pub(crate) fn forget(&self, path: &Path) {
        if self.takes(path) {
            for flight in self.flights.lock().remove(path).into_iter().flatten() {
                flight.is_stale.store(true, Ordering::Release);
            }
            self.forgotten.fetch_add(1, Ordering::AcqRel);
            self.extents.lock().forget(path);
        }
    }

    fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref().filter(|disk| !disk.is_off())
    }

    /// Bytes and limit of memory, bytes and limit of disk.
    pub(crate) fn usage(&self) -> [u64; 4] {
        let extents = self.extents.lock();
        let (used, limit) = self.disk.as_ref().map_or((0, 0), |disk| (disk.used(), disk.limit()));
        [extents.memory_used(), extents.memory_limit(), used, limit]
    }

    /// Extents the disk had no room for.
    pub(crate) fn dropped(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::dropped)
    }

    /// Bytes that can be kept without pushing others out.
    pub(crate) fn room(&self) -> u64 {
        match self.disk() {
            // Headers and the last, unfinished segment take some.
            Some(disk) => {
                (disk.limit() - disk.limit() / 64).saturating_sub(disk.used() + disk.queued())
            }
            None => {
                let extents = self.extents.lock();
                extents.memory_limit() - extents.memory_used()
            }
        }
    }

    /// Bytes of `range` that are kept.
    pub(crate) fn covered(&self, path: &Path, range: &Range<u64>) -> u64 {
        self.extents.lock().covered(path, range)
    }

    /// Waits until the disk has written what it was given.
    pub(crate) async fn flush(&self) {
        if let Some(disk) = self.disk() {
            disk.flush().await;
        }
    }

    /// A read of `object_store`'s interface.
    pub(crate) async fn get(
        self: &Arc<Self>,
        path: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let is_plain = options.if_match.is_none()
            && options.if_none_match.is_none()
            && options.if_modified_since.is_none()
            && options.if_unmodified_since.is_none()
            && options.version.is_none()
            && !options.head;
        let range = options.range.as_ref().filter(|_| is_plain && self.takes(path));
        let known = range.and_then(|_| self.extents.lock().meta(path).cloned());
        let range = match (range, &known) {
            (Some(GetRange::Bounded(range)), _) => range.clone(),
            (Some(GetRange::Suffix(len)), Some(meta)) => meta.size - meta.size.min(*len)..meta.size,
            (Some(GetRange::Suffix(len)), None) if *len <= MOST_EXTENT => {
                return self.first_suffix(path, options).await;
            }
            _ => return self.ranges.get(path, options).await,
        };
        let is_inside = known.as_ref().is_none_or(|meta| range.start < meta.size);
        if range.is_empty() || range.end - range.start > MOST_RANGE || !is_inside {
            return self.ranges.get(path, options).await;
        }
        let read = self.read(path, std::slice::from_ref(&range), Admit::Usual).await?;
        let (Some(meta), Some(bytes)) = (read.meta, read.bytes.into_iter().next()) else {
            return self.ranges.get(path, options).await;
        };
        let range = range.start..range.start + bytes.len() as u64;
        Ok(result(meta, range, bytes))
    }

    /// The end of an object whose size is not known yet: a footer, as a rule.
    async fn first_suffix(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let before = self.forgotten.load(Ordering::Acquire);
        let got = self.ranges.get(path, options).await?;
        let (meta, range) = (got.meta.clone(), got.range.clone());
        let bytes = got.bytes().await?;
        count(|c| &c.bytes_missed, bytes.len() as u64);
        if self.forgotten.load(Ordering::Acquire) == before {
            self.admit(path, &meta, &range, &bytes, Admit::Usual).await;
        }
        Ok(result(meta, range, bytes))
    }

    /// Reads `ranges` of one version of the object, in the order asked.
    pub(crate) async fn read(
        self: &Arc<Self>,
        path: &Path,
        ranges: &[Range<u64>],
        admit: Admit,
    ) -> Result<Read> {
        for _ in 0..MOST_VERSIONS {
            if let Some(read) = self.try_read(path, ranges, admit).await? {
                return Ok(read);
            }
        }
        self.ranges.read(path, ranges, &GetOptions::default()).await
    }

    /// Reads `ranges` of this version, which may be of an object that the cache does not take by its
    /// name; `None` if the store has another one.
    pub(crate) async fn read_version(
        self: &Arc<Self>,
        meta: &ObjectMeta,
        ranges: &[Range<u64>],
    ) -> Result<Option<Vec<Bytes>>> {
        // What is known of another version is forgotten.
        self.extents.lock().object(&meta.location, meta);
        let read = self.read(&meta.location, ranges, Admit::Usual).await?;
        let is_it = read.meta.is_some_and(|found| is_same_version(&found, meta));
        Ok(is_it.then_some(read.bytes))
    }

    /// The version that is known, and where each range's parts are; `None` if a range lies outside
    /// of the object, of which the store may think otherwise.
    #[allow(clippy::type_complexity)] // the parts of each range
    fn look(
        &self,
        path: &Path,
        ranges: &[Range<u64>],
    ) -> Option<(Option<ObjectMeta>, Vec<Vec<(Range<u64>, Part)>>)> {
        let mut extents = self.extents.lock();
        let known = extents.meta(path).cloned();
        let size = known.as_ref().map_or(u64::MAX, |meta| meta.size);
        if ranges.iter().any(|range| !range.is_empty() && range.start >= size) {
            return None;
        }
        let cut = |range: &Range<u64>| range.start..range.end.min(size);
        let parts = ranges.iter().map(|range| extents.lookup(path, &cut(range))).collect();
        Some((known, parts))
    }

    /// `None` if the store has another version than the one the read began with.
    async fn try_read(
        self: &Arc<Self>,
        path: &Path,
        ranges: &[Range<u64>],
        admit: Admit,
    ) -> Result<Option<Read>> {
        let Some((known, mut parts)) = self.look(path, ranges) else {
            return self.ranges.read(path, ranges, &GetOptions::default()).await.map(Some);
        };
        let mut from_disk = Vec::new();
        let mut missing = Vec::new();
        for (i, parts) in parts.iter().enumerate() {
            for (j, (range, part)) in parts.iter().enumerate() {
                let len = range.end - range.start;
                match part {
                    Part::Memory(_) => count(|c| &c.bytes_from_memory, len),
                    Part::Missing => missing.push((i, j, range.clone())),
                    Part::Disk { object, start, place, within } => {
                        let (place, within) = (place.clone(), within.clone());
                        let at = (i, j, range.clone(), *object, *start);
                        from_disk.push(async move {
                            let read = match self.disk() {
                                Some(disk) => disk.read(place, within).await,
                                None => FromDisk::Busy,
                            };
                            (at, read)
                        });
                    }
                }
            }
        }
        let gaps: Vec<Range<u64>> = missing.iter().map(|(_, _, range)| range.clone()).collect();
        let (found, fetched) = futures::join!(join_all(from_disk), self.fetch(path, &gaps, admit));
        let mut fetched = fetched?;
        let mut again = Vec::new();
        for ((i, j, range, object, start), read) in found {
            match read {
                FromDisk::Bytes(bytes) => {
                    count(|c| &c.bytes_from_disk, range.end - range.start);
                    let mut extents = self.extents.lock();
                    let worth = extents.is_worth(object, start, bytes.len() as u64);
                    // Refused unless it is the whole extent: parts would need one of their own.
                    if start == range.start {
                        extents.remember(object, start, &bytes, worth);
                    }
                    drop(extents);
                    parts[i][j].1 = Part::Memory(bytes);
                }
                FromDisk::Lost => {
                    count(|c| &c.cache_corrupt, 1);
                    self.extents.lock().lost(object, start);
                    again.push((i, j, range));
                }
                FromDisk::Busy => again.push((i, j, range)),
            }
        }
        if !again.is_empty() {
            let gaps: Vec<Range<u64>> = again.iter().map(|(_, _, range)| range.clone()).collect();
            fetched.extend(self.fetch(path, &gaps, admit).await?);
            missing.extend(again);
        }
        let mut meta = known;
        for ((i, j, _), (found, bytes)) in missing.into_iter().zip(fetched) {
            if let Some(found) = found {
                if meta.as_ref().is_some_and(|meta| !is_same_version(meta, &found)) {
                    self.extents.lock().object(path, &found);
                    return Ok(None);
                }
                meta.get_or_insert(found);
            }
            parts[i][j].1 = Part::Memory(bytes);
        }
        Ok(Some(Read { meta, bytes: parts.into_iter().map(join).collect() }))
    }

    /// Fetches `gaps`, or waits for readers who fetch them already; in the order given.
    async fn fetch(
        self: &Arc<Self>,
        path: &Path,
        gaps: &[Range<u64>],
        admit: Admit,
    ) -> Result<Vec<(Option<ObjectMeta>, Bytes)>> {
        if gaps.is_empty() {
            return Ok(Vec::new());
        }
        let awaited: Vec<Awaited> = {
            let mut flights = self.flights.lock();
            let known = flights.entry(path.clone()).or_default();
            known.retain(|flight| flight.fetch.upgrade().is_some());
            let mut awaited: Vec<Option<Awaited>> =
                gaps.iter().map(|gap| known.iter().find_map(|flight| flight.covers(gap))).collect();
            let shared = awaited.iter().filter(|found| found.is_some()).count();
            count(|c| &c.reads_shared, shared as u64);
            let own: Arc<[Range<u64>]> = gaps
                .iter()
                .zip(&awaited)
                .filter(|(_, found)| found.is_none())
                .map(|(gap, _)| gap.clone())
                .collect();
            if !own.is_empty() {
                count(|c| &c.bytes_missed, own.iter().map(|gap| gap.end - gap.start).sum());
                let is_stale: Arc<AtomicBool> = Arc::default();
                let shares: Arc<Shares> = Arc::default();
                let gaps = Arc::clone(&own);
                let fetch = self.begin(path, gaps, admit, Arc::clone(&is_stale), &shares);
                for (index, slot) in awaited.iter_mut().filter(|slot| slot.is_none()).enumerate() {
                    let _share = shares.join(own[index].end - own[index].start);
                    let (fetch, within) = (fetch.clone(), 0..u64::MAX);
                    *slot = Some(Awaited { fetch, index, within, _share });
                }
                if let Some(weak) = fetch.downgrade() {
                    known.push(Flight { ranges: own, fetch: weak, shares, is_stale });
                }
            }
            awaited.into_iter().flatten().collect()
        };
        let landed = Landed { cache: self, path };
        let mut fetched = Vec::with_capacity(awaited.len());
        for outcome in join_all(awaited.into_iter().map(Awaited::take)).await {
            fetched.push(outcome.map_err(|error| again(&error))?);
        }
        drop(landed);
        Ok(fetched)
    }

    fn begin(
        self: &Arc<Self>,
        path: &Path,
        gaps: Arc<[Range<u64>]>,
        admit: Admit,
        is_stale: Arc<AtomicBool>,
        shares: &Arc<Shares>,
    ) -> Fetch {
        let (cache, path, paid) = (Arc::clone(self), path.clone(), Arc::clone(shares));
        let fetch = async move {
            let read = cache.ranges.read(&path, &gaps, &GetOptions::default()).await;
            paid.pay();
            let read = read.map_err(Arc::new)?;
            if let Some(meta) = read.meta.as_ref().filter(|_| !is_stale.load(Ordering::Acquire)) {
                for (gap, bytes) in gaps.iter().zip(&read.bytes) {
                    let range = gap.start..gap.start + bytes.len() as u64;
                    cache.admit(&path, meta, &range, bytes, admit).await;
                }
            }
            Ok::<_, Arc<Error>>(Arc::new(read))
        };
        match current() {
            Some(scope) => scope.shared(shares).run(fetch).boxed().shared(),
            None => fetch.boxed().shared(),
        }
    }

    /// Keeps `bytes`, where the tiers want them.
    async fn admit(
        &self,
        path: &Path,
        meta: &ObjectMeta,
        range: &Range<u64>,
        bytes: &Bytes,
        admit: Admit,
    ) {
        let disk = self.disk();
        let longest = disk.map_or(MOST_EXTENT, Disk::most_extent);
        let (object, free) = {
            let mut extents = self.extents.lock();
            let object = extents.object(path, meta);
            (object, extents.uncovered(object, range, longest))
        };
        for part in free {
            let from = (part.start - range.start) as usize;
            let to = (part.end - range.start) as usize;
            let len = part.end - part.start;
            let is_asked = admit == Admit::Asked;
            // A copy of its own: a slice would keep the whole piece it was read with.
            let own = Bytes::copy_from_slice(&bytes[from..to]);
            let is_worth = {
                let mut extents = self.extents.lock();
                let is_worth =
                    !is_asked && extents.is_worth(object, part.start, range.end - range.start);
                if !is_asked || disk.is_none() {
                    extents.remember(object, part.start, &own, is_worth);
                }
                is_worth
            };
            let Some(disk) = disk else { continue };
            if is_asked {
                if self.room() >= len && !disk.give(object, part.start, &own).await {
                    count(|c| &c.cache_dropped, 1);
                }
            } else if (is_worth || self.room() >= len)
                && !disk.offer(object, part.start, &own, is_worth)
            {
                count(|c| &c.cache_dropped, 1);
            }
        }
    }
}

impl Flight {
    fn covers(&self, gap: &Range<u64>) -> Option<Awaited> {
        let covers = |range: &Range<u64>| range.start <= gap.start && gap.end <= range.end;
        let index = self.ranges.iter().position(covers)?;
        let start = self.ranges[index].start;
        let within = gap.start - start..gap.end - start;
        let fetch = self.fetch.upgrade()?;
        Some(Awaited { fetch, index, within, _share: self.shares.join(gap.end - gap.start) })
    }
}

impl Awaited {
    async fn take(self) -> Result<(Option<ObjectMeta>, Bytes), Arc<Error>> {
        let read = self.fetch.await?;
        let bytes = &read.bytes[self.index];
        let at = |offset: u64| (offset.min(bytes.len() as u64)) as usize;
        Ok((read.meta.clone(), bytes.slice(at(self.within.start)..at(self.within.end))))
    }
}

/// Takes a path's ended flights off the list, also when its reader is dropped.
struct Landed<'a> {
    cache: &'a Cache,
    path: &'a Path,
}

impl Drop for Landed<'_> {
    fn drop(&mut self) {
        let mut flights = self.cache.flights.lock();
        if let Some(known) = flights.get_mut(self.path) {
            known.retain(|flight| {
                flight.fetch.upgrade().is_some_and(|fetch| fetch.peek().is_none())
            });
            if known.is_empty() {
                flights.remove(self.path);
            }
        }
    }
}

fn result(meta: ObjectMeta, range: Range<u64>, bytes: Bytes) -> GetResult {
    let stream = futures::stream::iter([Ok(bytes)]);
    GetResult {
        payload: GetResultPayload::Stream(Box::pin(stream)),
        meta,
        range,
        attributes: Attributes::new(),
    }
}

/// The parts of one range together.
fn join(parts: Vec<(Range<u64>, Part)>) -> Bytes {
    let mut bytes = parts.into_iter().filter_map(|(_, part)| match part {
        Part::Memory(bytes) => Some(bytes),
        Part::Disk { .. } | Part::Missing => None,
    });
    let Some(first) = bytes.next() else { return Bytes::new() };
    let mut rest = bytes.peekable();
    if rest.peek().is_none() {
        return first;
    }
    let mut whole = BytesMut::from(first);
    rest.for_each(|part| whole.extend_from_slice(&part));
    whole.freeze()
}
