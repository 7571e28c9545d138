//! The tree: finding a key's leaf, reading it, changing it.
//!
//! Readers go down writing nothing: they note a page's version, read it, and check the version of
//! the parent after they have the child's, so that child was the right one when its version was
//! taken. Writers go down like readers and latch the leaf only. What changes more than a leaf is in
//! `restructure`.
//!
//! # Invariants
//! - The leaves' fences divide the key space; a page's children divide its part. Pages that change
//!   together stay latched until all are changed.
//! - The root is page 0 and never moves; a tree grows by giving the root two children.
//! - Latches are taken downwards, and only ever tried: whoever fails lets go of all and starts again.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use crate::blocks::Blocks;
use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::gate::Gate;
use crate::key::{Key, MAX_KEY_BYTES};
use crate::latch;
use crate::log::Base;
use crate::page::{Fences, Page, ROOT};
use crate::pool::{Expected, Fetched, MIN_FRAMES, Pool};
use crate::raw::PAGE_BYTES;

/// Times a reader starts again before it latches the leaf to get through.
const MAX_RESTARTS: usize = 100;
/// A leaf that gets emptier than this looks for a sibling to merge with.
pub(crate) const UNDERFULL: f64 = 0.4;
/// Frames a shard should have, and most shards. See docs/BENCHMARKS.md: more never paid on 2 cores.
const SHARD_FRAMES: usize = 256;
const MAX_SHARDS: usize = 12;

/// Limits of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Memory for pages, in bytes. At least 32 pages.
    pub pool_bytes: usize,
    /// Most pages of the tree. Costs 8 bytes of address space each, and memory once used. 2^24
    /// pages are 64 GiB of file.
    pub max_pages: u32,
    /// Shards of the pool's frames; `None` takes one per 256 frames, 12 at most.
    pub shards: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { pool_bytes: 256 << 20, max_pages: 1 << 24, shards: None }
    }
}

/// A concurrent map from keys to `u64`, in key order, kept in one file.
///
/// `Tree<[u8]>` has byte strings of up to [`MAX_KEY_BYTES`] as keys, `Tree<u64>` numbers. All
/// operations take `&self` and may run on any number of threads; each is atomic. What survives is
/// the last [`Tree::checkpoint`].
///
/// # Examples
/// ```
/// use uplake_btree::{MemoryFile, Options, Tree};
/// let tree = Tree::<[u8]>::create(MemoryFile::default(), Options::default())?;
/// assert_eq!(tree.put(b"anna", 1)?, None);
/// assert_eq!(tree.insert_if_absent(b"anna", 2)?, Some(1));
/// assert_eq!(tree.get(b"anna")?, Some(1));
/// # Ok::<(), uplake_btree::TreeError>(())
/// ```
pub struct Tree<K: Key + ?Sized> {
    pub(crate) pool: Pool<K>,
    pub(crate) gate: Gate,
    /// Whether a checkpoint failed half-way.
    checkpoint: Mutex<bool>,
    pub(crate) restructured: Restructured,
    root: u32,
}

/// Counts of changes of the tree's shape.
#[derive(Default)]
pub(crate) struct Restructured {
    pub(crate) splits: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) shifts: AtomicU64,
}

/// Where to go down to.
pub(crate) enum Seek<'k, K: ?Sized> {
    First,
    Last,
    At(&'k K),
    /// The leaf with the greatest key below this one.
    Before(&'k K),
}

impl<K: ?Sized> Clone for Seek<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K: ?Sized> Copy for Seek<'_, K> {}

/// A page on the way down.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) page: Page<'a>,
    pub(crate) version: u64,
    /// Which child was taken.
    pub(crate) child: usize,
}

/// What to do when the key is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    Replace,
    Keep,
}

impl<K: Key + ?Sized> Tree<K> {
    /// An empty tree in `file`, which loses what it held. Nothing survives before the first
    /// checkpoint.
    ///
    /// # Errors
    /// If the options cannot work or the file cannot be cut.
    pub fn create(file: impl PageFile + 'static, options: Options) -> Result<Self> {
        file.set_len(0).and_then(|()| file.sync()).map_err(TreeError::file("clearing"))?;
        let tree = Self::over(Box::new(file), options, Blocks::new(K::KIND), &[])?;
        let mut reserve = tree.pool.reserve(1)?;
        let root = reserve.make(0);
        assert_eq!(root.pid(), ROOT, "the first page is the root");
        latch::release_changed(root.latch());
        drop(reserve);
        tree.with_root()
    }

    /// The tree as it was at its last checkpoint.
    ///
    /// # Errors
    /// [`TreeError::NoCheckpoint`], [`TreeError::Corrupt`] and [`TreeError::Incompatible`] say that
    /// the tree must be created anew; others that the options or the file must change.
    pub fn open(file: impl PageFile + 'static, options: Options) -> Result<Self> {
        let (blocks, map) = Blocks::open(&file, K::KIND, options.max_pages)?;
        // After a process died, a checkpoint may be in the system's memory only. What the one before
        // it needs is written over from now on.
        file.sync().map_err(TreeError::file("synchronizing"))?;
        let tree = Self::over(Box::new(file), options, blocks, &map)?;
        tree.with_root()
    }

    fn over(
        file: Box<dyn PageFile>,
        options: Options,
        blocks: Blocks,
        map: &[u64],
    ) -> Result<Self> {
        let frames = options.pool_bytes / PAGE_BYTES;
        let frames = frames.min(u32::MAX as usize / 2);
        if frames < MIN_FRAMES {
            let least = MIN_FRAMES * PAGE_BYTES;
            return Err(TreeError::Options {
                what: format!("Options::pool_bytes must be at least {least}"),
            });
        }
        let shards = options.shards.unwrap_or((frames / SHARD_FRAMES).clamp(1, MAX_SHARDS));
        if shards == 0 || shards > frames / 8 {
            return Err(TreeError::Options {
                what: "Options::shards must leave each shard 8 frames".to_owned(),
            });
        }
        let entries = blocks.header().entries;
        Ok(Self {
            pool: Pool::new(frames, shards, options.max_pages.max(2), file, blocks, map)?,
            gate: Gate::new(entries),
            checkpoint: Mutex::new(false),
            restructured: Restructured::default(),
            root: 0,
        })
    }

    fn with_root(mut self) -> Result<Self> {
        let expected = Expected { fences: Fences::default(), level: None };
        if self.pool.fetch(ROOT, &expected)? == Fetched::NotThere {
            return Err(TreeError::corrupt("the root is missing"));
        }
        self.root = self.pool.frame_of(ROOT).expect("the root was fetched and is never evicted");
        Ok(self)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        for _ in 0..MAX_RESTARTS {
            let (page, version) = self.leaf(key)?;
            // The value's line is asked for while the heads are compared: one miss less in a row.
            let start = page.prefetch_block(key);
            let value = page.search_in(start, key).ok().map(|index| page.value::<K>(index));
            if latch::validate(page.latch(), version) {
                return Ok(value);
            }
        }
        self.get_latched(key)
    }

    /// Reads behind writers that never give an optimistic reader the time.
    #[cold]
    fn get_latched(&self, key: &K) -> Result<Option<u64>> {
        loop {
            let (page, _) = self.leaf(key)?;
            latch::latch(page.latch());
            // An unlatched leaf whose fences contain the key is its leaf, however we got here.
            let is_leaf = page.pid() != crate::page::NO_PID && page.level() == 0;
            let value = (is_leaf && key.with_bytes(|key| page.fences().contain(key)))
                .then(|| page.search(key).ok().map(|index| page.value::<K>(index)));
            latch::release_unchanged(page.latch());
            if let Some(value) = value {
                return Ok(value);
            }
        }
    }

    /// Sets the value of a key and returns the one it had.
    ///
    /// # Errors
    /// [`TreeError::KeyTooLong`]; or if a page cannot be read, or written to make room.
    #[inline]
    pub fn put(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, value, Present::Replace)
    }

    /// Sets the value of a key that has none; else returns the one it has, and changes nothing.
    ///
    /// # Errors
    /// As [`Tree::put`].
    #[inline]
    pub fn insert_if_absent(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, value, Present::Keep)
    }

    #[inline]
    fn write(&self, key: &K, value: u64, present: Present) -> Result<Option<u64>> {
        check_len(key)?;
        let pass = self.gate.pass();
        loop {
            let (page, version) = self.leaf(key)?;
            if !latch::try_latch(page.latch(), version) {
                continue;
            }
            match page.search(key) {
                Ok(index) => {
                    let old = page.value::<K>(index);
                    if present == Present::Keep {
                        latch::release_unchanged(page.latch());
                    } else {
                        page.set_value::<K>(index, value);
                        page.set_dirty(true);
                        latch::release_changed(page.latch());
                    }
                    return Ok(Some(old));
                }
                Err(index) => {
                    if page.insert(index, key, value) {
                        page.set_dirty(true);
                        latch::release_changed(page.latch());
                        pass.count(1);
                        return Ok(None);
                    }
                }
            }
            latch::release_unchanged(page.latch());
            self.make_room(key, 0, key.bytes_len())?;
        }
    }

    /// Takes a key out and returns the value it had.
    ///
    /// # Errors
    /// If a page cannot be read. When only merging fails, the key is gone and the error is left out.
    #[inline]
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        let pass = self.gate.pass();
        loop {
            let (page, version) = self.leaf(key)?;
            let Ok(index) = page.search(key) else {
                if latch::validate(page.latch(), version) {
                    return Ok(None);
                }
                continue;
            };
            if !latch::try_latch(page.latch(), version) {
                continue;
            }
            let value = page.value::<K>(index);
            page.remove::<K>(index);
            page.set_dirty(true);
            let is_underfull = page.fill::<K>() < UNDERFULL;
            latch::release_changed(page.latch());
            pass.count(-1);
            if is_underfull {
                // The removal stands whether or not the page finds a partner.
                let _ = self.rebalance(key);
            }
            return Ok(Some(value));
        }
    }

    /// Makes the present contents, together with `position`, what [`Tree::open`] will find.
    ///
    /// `position` is the application's: how far of its log the tree contains, say. Dirty pages are
    /// written first while writers go on; then writers wait until the rest is durable. Readers never
    /// wait.
    ///
    /// # Errors
    /// If the file cannot be written: the checkpoint before is the last one, and trying again is
    /// allowed. If it cannot be synchronized, or its header not be written, nobody knows which
    /// checkpoint is the last, and this and all later ones give [`TreeError::Poisoned`].
    pub fn checkpoint(&self, position: u64) -> Result<()> {
        let mut is_poisoned = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_poisoned {
            return Err(TreeError::Poisoned);
        }
        self.pool.flush_some()?;
        let closed = self.gate.close();
        let result = self.pool.checkpoint(position, self.gate.entries())?;
        // Blocks may not be reused any more, or the checkpoint that did survive is overwritten.
        *is_poisoned = result.is_err();
        if result.is_err() {
            self.pool.stop_writing();
        }
        drop(closed);
        result
    }

    /// Writes dirty pages, so that a checkpoint soon after finds few.
    pub(crate) fn flush_some(&self) -> Result<()> {
        self.pool.flush_some()
    }

    /// Whether a checkpoint failed half-way.
    pub(crate) fn is_poisoned(&self) -> bool {
        *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last checkpoint, as a log has to know it.
    pub(crate) fn base(&self) -> Base {
        self.pool.base()
    }

    /// Number of entries; exact while nobody writes.
    pub fn len(&self) -> u64 {
        self.gate.entries()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position the last checkpoint was made with; 0 before the first.
    pub fn position(&self) -> u64 {
        self.pool.file_usage().2
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> (Page<'_>, u64) {
        let root = self.pool.page_in(self.root);
        (root, latch::read(root.latch()))
    }

    /// The leaf for a key and its version. The leaf was right when the version was taken, so it is
    /// right as long as the version validates.
    #[inline(always)]
    pub(crate) fn leaf(&self, key: &K) -> Result<(Page<'_>, u64)> {
        'restart: loop {
            let (mut page, mut version) = self.root();
            let mut level = page.level();
            while level > 0 {
                level -= 1;
                let index = page.child_of(key);
                let Some(child) = self.child(page, version, index, level)? else {
                    continue 'restart;
                };
                (page, version) = child;
            }
            return Ok((page, version));
        }
    }

    /// A child and its version; `None` if the parent has changed.
    #[inline(always)]
    pub(crate) fn child(
        &self,
        parent: Page<'_>,
        version: u64,
        index: usize,
        level: u8,
    ) -> Result<Option<(Page<'_>, u64)>> {
        let pid = parent.value::<K>(index) as u32;
        let found = self.pool.resident(pid, level);
        if !latch::validate(parent.latch(), version) {
            return Ok(None);
        }
        if found.is_some() { Ok(found) } else { self.fetch_child(parent, version, index, level) }
    }

    #[cold]
    fn fetch_child(
        &self,
        parent: Page<'_>,
        version: u64,
        index: usize,
        level: u8,
    ) -> Result<Option<(Page<'_>, u64)>> {
        let pid = parent.value::<K>(index) as u32;
        let fences = parent.child_fences::<K>(index);
        if !latch::validate(parent.latch(), version) {
            return Ok(None);
        }
        let expected = Expected { fences, level: Some(level) };
        loop {
            let fetched = self.pool.fetch(pid, &expected)?;
            let found = self.pool.resident(pid, level);
            let other = self.pool.peek(pid).filter(|page| {
                let version = latch::read(page.latch());
                let is_other = page.pid() == pid && page.level() != level;
                is_other && latch::validate(page.latch(), version)
            });
            if !latch::validate(parent.latch(), version) {
                return Ok(None);
            }
            if found.is_some() {
                return Ok(found);
            }
            // The parent stood all the time, so the child must be what the parent says.
            if fetched == Fetched::NotThere || other.is_some() {
                return Err(TreeError::corrupt(format!(
                    "page {pid} is not the child it should be"
                )));
            }
        }
    }

    /// The pages from the root down to `level`; empty if the tree is not that high.
    pub(crate) fn path(&self, seek: Seek<'_, K>, level: u8) -> Result<Vec<Step<'_>>> {
        let mut path: Vec<Step<'_>> = Vec::with_capacity(8);
        'restart: loop {
            path.clear();
            let (mut page, mut version) = self.root();
            let mut at = page.level();
            if at < level {
                return Ok(path);
            }
            loop {
                let count = page.count::<K>();
                let child = match seek {
                    Seek::First => 0,
                    Seek::Last => count.saturating_sub(1),
                    Seek::At(key) => page.child_of(key),
                    Seek::Before(key) => page.child_before(key),
                };
                path.push(Step { page, version, child });
                if at == level {
                    return Ok(path);
                }
                at -= 1;
                match self.child(page, version, child, at)? {
                    Some(child) => (page, version) = child,
                    None => continue 'restart,
                }
            }
        }
    }
}

/// Refuses keys that pages cannot keep.
#[inline]
pub(crate) fn check_len<K: Key + ?Sized>(key: &K) -> Result<()> {
    let found = key.bytes_len();
    if found > MAX_KEY_BYTES {
        return Err(TreeError::KeyTooLong { found, limit: MAX_KEY_BYTES });
    }
    Ok(())
}

/// Adds one to a count of rare events.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
