//! The buffer pool: which pages are in memory, and how they come and go.
//!
//! A table of one word per page says where the page is: in a frame, in a block of the file, or
//! being read. A resident page is therefore found with one load and no lock, and using it writes
//! nothing but, once per round of the clock, its `touched` word. Only misses take locks, and those
//! are per shard of the frames.
//!
//! # Invariants
//! - Nobody waits for a frame or for the file while holding a page's latch.
//! - A frame is unused so far, or belongs to one of: a page (its entry in the table says so), a free
//!   list, or the thread that took it. Only the holder of its latch changes that.
//! - A clean page equals the image at its home; a page without a home is dirty.
//!
//! # Not here
//! What pages mean: `page` and `tree`. Which blocks are free: `blocks`.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::blocks::Blocks;
use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::key::sealed::Sealed;
use crate::latch;
use crate::log::Base;
use crate::page::{COLD, FRESH, Fences, HOT, NO_PID, Page, ROOT, has_magic, ident};
use crate::raw::{Arena, PAGE_BYTES, zeroed_words};

/// Fewest frames of a pool: a path, a split and a few readers for some 4 threads.
pub(crate) const MIN_FRAMES: usize = 32;
/// Pages written by one call at most: 1 MiB.
const WRITE_BATCH: usize = 256;
/// Dirty pages written when a frame is needed.
const EVICTION_BATCH: usize = 32;
/// Frames the clock looks at before it gives those a second chance that it has just passed.
const WINDOW: usize = 64;
/// Rounds over all shards before a pool counts as full. A page that is hot survives one round, one
/// that is latched is free 50 ns later.
const MAX_ROUNDS: usize = 1000;
const WAITERS: usize = 16;

const RESIDENT: u64 = 1 << 63;
const LOADING: u64 = 1 << 62;
/// Block and checksum of an entry.
const HOME: u64 = LOADING - 1;

struct Shard {
    /// Frames nobody uses any more.
    free: Vec<u32>,
    /// The first frame nobody has used yet: its memory is not touched before it must be.
    unused: u32,
    /// The shard's frames.
    frames: Range<u32>,
    hand: u32,
}

#[derive(Default)]
struct Waiter {
    lock: Mutex<()>,
    changed: Condvar,
}

/// What the pool did since the tree was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames, each of which holds one page of [`crate::PAGE_BYTES`].
    pub frames: usize,
    /// Shards of the frames.
    pub shards: usize,
    /// Pages read from the file.
    pub reads: u64,
    /// Pages written to the file.
    pub writes: u64,
    /// Pages that left memory for others.
    pub evictions: u64,
}

pub(crate) struct Pool<K: ?Sized> {
    arena: Arena,
    table: Box<[AtomicU64]>,
    shards: Vec<Mutex<Shard>>,
    shard_frames: usize,
    pids: Mutex<Pids>,
    blocks: Mutex<Blocks>,
    waiters: [Waiter; WAITERS],
    file: Box<dyn PageFile>,
    is_stopped: AtomicBool,
    turn: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    evictions: AtomicU64,
    key: PhantomData<fn(&K)>,
}

struct Pids {
    free: Vec<u32>,
    next: u32,
}

/// Frames and pids that were taken for pages to come; what is left over is given back.
pub(crate) struct Reserve<'a, K: Sealed + ?Sized> {
    pool: &'a Pool<K>,
    frames: Vec<u32>,
    pids: Vec<u32>,
}

/// What [`Pool::fetch`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The page is in memory, or was a moment ago.
    LookAgain,
    /// There is no page with this pid where it was expected.
    NotThere,
}

/// What a page's parent says of it.
pub(crate) struct Expected {
    pub(crate) fences: Fences,
    /// `None` for the root, which tells the height of the tree.
    pub(crate) level: Option<u8>,
}

impl Expected {
    fn is(&self, page: Page<'_>) -> bool {
        self.level.is_none_or(|level| level == page.level()) && self.fences == page.fences()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while one of these locks is held is a bug of ours; the data itself is whole between
    // statements, and the latches would not be released anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Sealed + ?Sized> Pool<K> {
    /// A pool of `frames` frames over `file`, whose pages are at `map`.
    pub(crate) fn new(
        frames: usize,
        shards: usize,
        max_pages: u32,
        file: Box<dyn PageFile>,
        blocks: Blocks,
        map: &[u64],
    ) -> Result<Self> {
        let arena = Arena::new(frames).ok_or_else(|| TreeError::Options {
            what: format!("no memory for a pool of {frames} pages; lower Options::pool_bytes"),
        })?;
        let table = zeroed_words(max_pages as usize);
        let mut free_pids = Vec::new();
        for (pid, home) in map.iter().enumerate() {
            table[pid].store(*home, Relaxed);
            if *home == 0 {
                free_pids.push(pid as u32);
            }
        }
        let shard_frames = frames.div_ceil(shards);
        let shards = (0..frames)
            .step_by(shard_frames)
            .map(|start| {
                let frames = start as u32..(start + shard_frames).min(frames) as u32;
                Mutex::new(Shard {
                    free: Vec::new(),
                    unused: frames.start,
                    hand: frames.start,
                    frames,
                })
            })
            .collect();
        Ok(Self {
            arena,
            table,
            shards,
            shard_frames,
            pids: Mutex::new(Pids { free: free_pids, next: map.len() as u32 }),
            blocks: Mutex::new(blocks),
            waiters: Default::default(),
            file,
            is_stopped: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            key: PhantomData,
        })
    }

    /// The page and its version if the page is in memory, whoever holds its latch now being done.
    ///
    /// The answer is worth something only if the page that named `pid` validates afterwards.
    #[inline(always)]
    pub(crate) fn resident(&self, pid: u32, level: u8) -> Option<(Page<'_>, u64)> {
        let entry = self.table.get(pid as usize)?.load(Acquire);
        if entry & RESIDENT == 0 {
            return None;
        }
        let page = Page::new(self.arena.frame(entry as u32));
        page.prefetch_start();
        let version = latch::read(page.latch());
        if page.ident() != ident::<K>(pid, level) {
            return None;
        }
        page.touch();
        Some((page, version))
    }

    /// The frame of a resident page, whose words may not be looked at yet.
    #[inline(always)]
    pub(crate) fn peek(&self, pid: u32) -> Option<Page<'_>> {
        let entry = self.table.get(pid as usize)?.load(Acquire);
        (entry & RESIDENT != 0).then(|| Page::new(self.arena.frame(entry as u32)))
    }

    /// The page in a frame the caller knows to stay what it is.
    #[inline(always)]
    pub(crate) fn page_in(&self, frame: u32) -> Page<'_> {
        Page::new(self.arena.frame(frame))
    }

    /// Where a page is in memory.
    pub(crate) fn frame_of(&self, pid: u32) -> Option<u32> {
        let entry = self.table[pid as usize].load(Acquire);
        (entry & RESIDENT != 0).then_some(entry as u32)
    }

    /// Brings a page into memory, if it is not and if it has these fences and this level. The caller
    /// holds no latch, and looks again.
    ///
    /// # Errors
    /// If it cannot be read or fails its checks, or if no frame is free.
    #[cold]
    pub(crate) fn fetch(&self, pid: u32, expected: &Expected) -> Result<Fetched> {
        let Some(slot) = self.table.get(pid as usize) else {
            return Ok(Fetched::NotThere);
        };
        let entry = slot.load(Acquire);
        if entry == 0 {
            return Ok(Fetched::NotThere);
        }
        if entry & RESIDENT != 0 {
            return Ok(Fetched::LookAgain);
        }
        if entry & LOADING != 0 {
            self.wait_while_loading(pid);
            return Ok(Fetched::LookAgain);
        }
        let frame = self.take_frame()?;
        if slot.compare_exchange(entry, entry | LOADING, AcqRel, Relaxed).is_err() {
            self.give_frame(frame);
            return Ok(Fetched::LookAgain);
        }
        let read = self.read_into(frame, pid, entry, expected);
        match read {
            Ok(Fetched::LookAgain) => slot.store(RESIDENT | u64::from(frame), Release),
            _ => slot.store(entry, Release),
        }
        let waiter = &self.waiters[pid as usize % WAITERS];
        drop(lock(&waiter.lock));
        waiter.changed.notify_all();
        if !matches!(read, Ok(Fetched::LookAgain)) {
            self.give_frame(frame);
        }
        read
    }

    fn wait_while_loading(&self, pid: u32) {
        let is_loading =
            || self.table[pid as usize].load(Acquire) & (RESIDENT | LOADING) == LOADING;
        let waiter = &self.waiters[pid as usize % WAITERS];
        let mut guard = lock(&waiter.lock);
        while is_loading() {
            guard = waiter.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read_into(&self, frame: u32, pid: u32, entry: u64, expected: &Expected) -> Result<Fetched> {
        let mut image = [0; PAGE_BYTES];
        let block = (entry & HOME) >> 32;
        self.file
            .read_at(block * PAGE_BYTES as u64, &mut image)
            .map_err(TreeError::file("reading a page of"))?;
        self.reads.fetch_add(1, Relaxed);
        if crc32fast::hash(&image) != entry as u32 {
            return Err(TreeError::corrupt(format!("page {pid} fails its checksum")));
        }
        let page = self.page_in(frame);
        latch::latch(page.latch());
        page.read_image(&image);
        let checked = match page.check::<K>() {
            Ok(()) if page.pid() != pid || !has_magic(&image) => Err("another page's image"),
            checked => checked,
        };
        page.set_home(entry & HOME);
        page.set_dirty(false);
        page.set_touched(FRESH);
        let is_expected = checked.is_ok() && expected.is(page);
        if !is_expected {
            page.set_no_page();
        }
        latch::release_changed(page.latch());
        match checked {
            Ok(()) if is_expected => Ok(Fetched::LookAgain),
            Ok(()) => Ok(Fetched::NotThere),
            Err(what) => Err(TreeError::corrupt(format!("page {pid}: {what}"))),
        }
    }

    /// Takes frames for pages that a change of the tree may need, before it latches anything.
    ///
    /// # Errors
    /// If no frame is free, or a dirty page cannot be written.
    pub(crate) fn reserve(&self, count: usize) -> Result<Reserve<'_, K>> {
        let mut reserve = Reserve { pool: self, frames: Vec::new(), pids: Vec::new() };
        for _ in 0..count {
            reserve.frames.push(self.take_frame()?);
            reserve.pids.push(self.take_pid()?);
        }
        Ok(reserve)
    }

    fn take_pid(&self) -> Result<u32> {
        let mut pids = lock(&self.pids);
        match pids.free.pop() {
            Some(pid) => Ok(pid),
            None if (pids.next as usize) < self.table.len() => {
                pids.next += 1;
                Ok(pids.next - 1)
            }
            None => Err(TreeError::TooManyPages { limit: self.table.len() as u32 }),
        }
    }

    /// Frees the page whose latch the caller holds, and releases the latch.
    pub(crate) fn free(&self, page: Page<'_>) {
        let (pid, home) = (page.pid(), page.home());
        self.table[pid as usize].store(0, Release);
        page.set_no_page();
        page.set_dirty(false);
        page.set_home(0);
        latch::release_changed(page.latch());
        if home != 0 {
            lock(&self.blocks).release((home >> 32) as u32);
        }
        lock(&self.pids).free.push(pid);
        self.give_frame(self.arena.number(page.words()));
    }

    fn shard_of(&self, frame: u32) -> &Mutex<Shard> {
        &self.shards[frame as usize / self.shard_frames]
    }

    fn give_frame(&self, frame: u32) {
        lock(self.shard_of(frame)).free.push(frame);
    }

    /// A frame that now belongs to the caller.
    fn take_frame(&self) -> Result<u32> {
        // In turn, so that one busy thread uses all of the pool.
        let first = self.turn.fetch_add(1, Relaxed) as usize;
        let mut dirty = Vec::new();
        for round in 0..MAX_ROUNDS {
            for shard in 0..self.shards.len() {
                let shard = &self.shards[(first + shard) % self.shards.len()];
                let mut shard = lock(shard);
                if let Some(frame) = shard.free.pop() {
                    return Ok(frame);
                }
                if shard.unused < shard.frames.end {
                    shard.unused += 1;
                    return Ok(shard.unused - 1);
                }
                if let Some(frame) = self.sweep(&mut shard, &mut dirty) {
                    return Ok(frame);
                }
                // The next sweep shall begin with the pages that are about to be clean.
                if let Some(first) = dirty.first() {
                    shard.hand = *first;
                    drop(shard);
                    self.write_back(&mut dirty)?;
                    dirty.clear();
                }
            }
            if round > 8 {
                std::thread::yield_now();
            }
        }
        Err(TreeError::PoolFull { frames: self.arena.len() })
    }

    /// Moves the clock's hand until a clean cold page is evicted; notes dirty cold ones passed.
    ///
    /// A window in which all pages are hot is passed twice: what was not used even between the two
    /// passes goes. So a miss costs two windows at most, however large and hot the pool is.
    fn sweep(&self, shard: &mut Shard, dirty: &mut Vec<u32>) -> Option<u32> {
        let start = shard.hand;
        for step in 0..2 * WINDOW.min(shard.frames.len()) {
            if step == WINDOW.min(shard.frames.len()) {
                if !dirty.is_empty() {
                    return None;
                }
                shard.hand = start;
            }
            let frame = shard.hand;
            shard.hand += 1;
            if shard.hand == shard.frames.end {
                shard.hand = shard.frames.start;
            }
            let page = self.page_in(frame);
            let Some(version) = latch::try_read(page.latch()) else { continue };
            let pid = page.pid();
            // The root is on every path: its frame is known and stays.
            if pid == NO_PID || pid == ROOT {
                continue;
            }
            if page.touched() != COLD {
                page.set_touched(COLD);
            } else if page.is_dirty() {
                dirty.push(frame);
                if dirty.len() == EVICTION_BATCH {
                    return None;
                }
            } else if self.evict(page, version) {
                return Some(frame);
            }
        }
        None
    }

    /// Makes the page's frame the caller's, if the page is still clean.
    fn evict(&self, page: Page<'_>, version: u64) -> bool {
        if !latch::try_latch(page.latch(), version) {
            return false;
        }
        let pid = page.pid();
        if pid == NO_PID || page.is_dirty() {
            latch::release_unchanged(page.latch());
            return false;
        }
        self.table[pid as usize].store(page.home(), Release);
        page.set_no_page();
        latch::release_changed(page.latch());
        self.evictions.fetch_add(1, Relaxed);
        true
    }

    /// Writes the dirty pages among these frames to new blocks. A page that changes meanwhile stays
    /// dirty; no latch is held while the file is busy.
    fn write_back(&self, frames: &mut Vec<u32>) -> Result<()> {
        if self.is_stopped.load(Acquire) {
            return Err(TreeError::Poisoned);
        }
        let mut images: Vec<u8> = Vec::with_capacity(frames.len() * PAGE_BYTES);
        let mut versions = Vec::with_capacity(frames.len());
        frames.retain(|&frame| {
            let page = self.page_in(frame);
            let Some(version) = latch::try_read(page.latch()) else { return false };
            if !page.is_dirty() || page.pid() == NO_PID {
                return false;
            }
            let start = images.len();
            images.resize(start + PAGE_BYTES, 0);
            page.write_image(&mut images[start..]);
            let is_whole = latch::validate(page.latch(), version);
            if is_whole {
                versions.push(version);
            } else {
                images.truncate(start);
            }
            is_whole
        });
        let taken = lock(&self.blocks).take(frames.len())?;
        if let Err(error) = self.write_runs(&taken, &images) {
            let mut blocks = lock(&self.blocks);
            taken.iter().for_each(|block| blocks.release(*block));
            return Err(error);
        }
        let mut released = Vec::new();
        for (i, (&frame, version)) in frames.iter().zip(versions).enumerate() {
            let image = &images[i * PAGE_BYTES..(i + 1) * PAGE_BYTES];
            let home = u64::from(taken[i]) << 32 | u64::from(crc32fast::hash(image));
            let page = self.page_in(frame);
            if !latch::try_latch(page.latch(), version) {
                released.push(taken[i]);
                continue;
            }
            // Another thread may have written the same image meanwhile.
            if page.is_dirty() {
                if page.home() != 0 {
                    released.push((page.home() >> 32) as u32);
                }
                page.set_home(home);
                page.set_dirty(false);
            } else {
                released.push(taken[i]);
            }
            latch::release_unchanged(page.latch());
        }
        let mut blocks = lock(&self.blocks);
        released.into_iter().for_each(|block| blocks.release(block));
        Ok(())
    }

    /// Writes images to ascending blocks, neighbours together.
    fn write_runs(&self, blocks: &[u32], images: &[u8]) -> Result<()> {
        let mut start = 0;
        while start < blocks.len() {
            let mut end = start + 1;
            while end < blocks.len() && blocks[end] == blocks[end - 1] + 1 {
                end += 1;
            }
            self.file
                .write_at(
                    u64::from(blocks[start]) * PAGE_BYTES as u64,
                    &images[start * PAGE_BYTES..end * PAGE_BYTES],
                )
                .map_err(TreeError::file("writing pages of"))?;
            self.writes.fetch_add((end - start) as u64, Relaxed);
            start = end;
        }
        Ok(())
    }

    /// Writes all dirty pages, and says how many there were.
    fn flush(&self) -> Result<usize> {
        let mut batch = Vec::with_capacity(WRITE_BATCH);
        let mut found = 0;
        for shard in &self.shards {
            let used = {
                let shard = lock(shard);
                shard.frames.start..shard.unused
            };
            for frame in used {
                if self.page_in(frame).is_dirty() {
                    found += 1;
                    batch.push(frame);
                }
                if batch.len() == WRITE_BATCH {
                    self.write_back(&mut batch)?;
                    batch.clear();
                }
            }
        }
        self.write_back(&mut batch)?;
        Ok(found)
    }

    /// Writes dirty pages while others write on, so that a checkpoint finds few.
    ///
    /// # Errors
    /// Of the file.
    pub(crate) fn flush_some(&self) -> Result<()> {
        self.flush().map(|_| ())
    }

    /// Makes the present state of all pages the last checkpoint. The caller keeps writers out.
    ///
    /// The outer error says that nothing has happened; the inner one that nobody knows.
    pub(crate) fn checkpoint(&self, position: u64, entries: u64) -> Result<Result<()>> {
        while self.flush()? > 0 {}
        let map = self.map();
        let (draft, bytes) = lock(&self.blocks).draft(&map, position, entries)?;
        let written = self
            .file
            .write_at(draft.map_offset(), &bytes)
            .map_err(TreeError::file("writing the page map of"));
        if let Err(error) = written {
            lock(&self.blocks).discard(draft);
            return Err(error);
        }
        let (offset, header) = draft.header();
        let switched = self.file.sync().and_then(|()| self.file.write_at(offset, &header));
        if let Err(error) = switched.and_then(|()| self.file.sync()) {
            return Ok(Err(TreeError::file("synchronizing")(error)));
        }
        let mut blocks = lock(&self.blocks);
        blocks.commit(draft);
        if let Some(len) = blocks.trim() {
            // Under the lock, so that nobody writes behind the new end meanwhile. A refusal only
            // leaves the file longer than it need be.
            let _ = self.file.set_len(u64::from(len) * PAGE_BYTES as u64);
        }
        Ok(Ok(()))
    }

    /// Writes nothing any more.
    pub(crate) fn stop_writing(&self) {
        self.is_stopped.store(true, Release);
    }

    /// Frees a page nobody else knows.
    pub(crate) fn discard(&self, pid: u32) {
        loop {
            let entry = self.table[pid as usize].load(Acquire);
            if entry & RESIDENT != 0 {
                let page = self.page_in(entry as u32);
                latch::latch(page.latch());
                if page.pid() == pid {
                    return self.free(page);
                }
                latch::release_unchanged(page.latch());
            } else if entry != 0 {
                self.table[pid as usize].store(0, Release);
                lock(&self.blocks).release(((entry & HOME) >> 32) as u32);
                lock(&self.pids).free.push(pid);
                return;
            }
        }
    }

    /// Where every page's image is; all pages are clean.
    fn map(&self) -> Vec<u64> {
        let pages = lock(&self.pids).next;
        (0..pages as usize).map(|pid| self.home_of(pid)).collect()
    }

    fn home_of(&self, pid: usize) -> u64 {
        loop {
            let entry = self.table[pid].load(Acquire);
            if entry & RESIDENT == 0 {
                return entry & HOME;
            }
            // Readers may evict the page while we look.
            let page = Page::new(self.arena.frame(entry as u32));
            let version = latch::read(page.latch());
            let (found, home) = (page.pid(), page.home());
            if found as usize == pid && latch::validate(page.latch(), version) {
                assert!(home != 0 && !page.is_dirty(), "page {pid} is not in the file");
                return home;
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            frames: self.arena.len(),
            shards: self.shards.len(),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
        }
    }

    /// The last checkpoint's epoch and checksum, as a log has to know them.
    pub(crate) fn base(&self) -> Base {
        let header = *lock(&self.blocks).header();
        Base { generation: header.epoch, checksum: header.checksum() }
    }

    /// Blocks of the file, free blocks, and the position of the last checkpoint.
    pub(crate) fn file_usage(&self) -> (u32, u32, u64) {
        let blocks = lock(&self.blocks);
        let (all, free) = blocks.usage();
        (all, free, blocks.header().position)
    }
}

impl<'a, K: Sealed + ?Sized> Reserve<'a, K> {
    /// A new page, latched, formatted and dirty. It is reachable once its pid is in another page.
    ///
    /// # Panics
    /// If more pages are made than were reserved.
    pub(crate) fn make(&mut self, level: u8) -> Page<'a> {
        let pool = self.pool;
        let pid = self.pids.pop().expect("callers reserve what they use");
        let frame = self.frames.pop().expect("callers reserve what they use");
        let page = Page::new(pool.arena.frame(frame));
        latch::latch(page.latch());
        page.format::<K>(pid, level);
        page.set_home(0);
        page.set_dirty(true);
        page.set_touched(HOT);
        pool.table[pid as usize].store(RESIDENT | u64::from(frame), Release);
        page
    }
}

impl<K: Sealed + ?Sized> Drop for Reserve<'_, K> {
    fn drop(&mut self) {
        for frame in self.frames.drain(..) {
            self.pool.give_frame(frame);
        }
        if !self.pids.is_empty() {
            lock(&self.pool.pids).free.append(&mut self.pids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::MemoryFile;

    fn pool(frames: usize, shards: usize) -> Pool<u64> {
        let (file, blocks) = (Box::new(MemoryFile::default()), Blocks::new(1));
        Pool::new(frames, shards, 1000, file, blocks, &[]).expect("a pool")
    }

    fn whole() -> Expected {
        Expected { fences: Fences::default(), level: Some(0) }
    }

    #[test]
    fn a_pool_whose_frames_are_all_taken_says_so_and_recovers() {
        let pool = pool(32, 2);
        let reserve = pool.reserve(32).expect("32 frames");
        let full = pool.reserve(1).map(|_| ());
        assert!(matches!(full, Err(TreeError::PoolFull { frames: 32 })), "{full:?}");
        drop(reserve);
        assert!(pool.reserve(32).is_ok());
    }

    #[test]
    fn pages_that_left_come_back_as_they_were() {
        let pool = pool(32, 1);
        let pids: Vec<u32> = (0..200)
            .map(|value| {
                let mut reserve = pool.reserve(1).expect("a frame");
                let page = reserve.make(0);
                assert!(page.insert(0, &7u64, value));
                let pid = page.pid();
                latch::release_changed(page.latch());
                pid
            })
            .collect();
        assert!(pool.stats().evictions > 150, "{:?}", pool.stats());
        for (value, pid) in pids.iter().enumerate() {
            pool.fetch(*pid, &whole()).map(|_| ()).expect("fetch");
            let (page, _) = pool.resident(*pid, 0).expect("it was just read");
            assert_eq!(page.value::<u64>(0), value as u64);
        }
        // What is not as its parent says is not let in.
        let expected = Expected { fences: Fences::new(Some(&[0; 8]), None), level: Some(0) };
        let gone = pids.iter().copied().find(|pid| pool.frame_of(*pid).is_none());
        let gone = gone.expect("most pages are not in memory");
        let fetched = pool.fetch(gone, &expected).expect("fetch");
        assert!(fetched == Fetched::NotThere && pool.frame_of(gone).is_none());
        assert!(pool.fetch(gone, &whole()).expect("fetch") == Fetched::LookAgain);
    }

    #[test]
    fn hot_pages_stay_and_cold_ones_go() {
        let pool = pool(64, 1);
        let make = || {
            let mut reserve = pool.reserve(1).expect("a frame");
            let page = reserve.make(0);
            latch::release_changed(page.latch());
            page.pid()
        };
        let _root = make();
        let hot: Vec<u32> = (0..16).map(|_| make()).collect();
        let others: Vec<u32> = (0..400).map(|_| make()).collect();
        let use_page = |pid| {
            if pool.resident(pid, 0).is_none() {
                pool.fetch(pid, &whole()).map(|_| ()).expect("fetch");
                assert!(pool.resident(pid, 0).is_some());
            }
        };
        hot.iter().chain(&hot).for_each(|pid| use_page(*pid));
        let mut extra = 0;
        for other in &others {
            use_page(*other);
            let before = pool.stats().reads;
            hot.iter().for_each(|pid| use_page(*pid));
            extra += pool.stats().reads - before;
        }
        assert!(extra < 40, "{extra} reads of 16 pages that are used all the time");
    }
}
