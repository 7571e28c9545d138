//! A tree whose single writes survive: a checkpointed tree and the log of what came after.
//!
//! # Invariants
//! - Records of one key are in the log in the order in which the tree was changed: both happen under
//!   the lock of the key's stripe.
//! - At a checkpoint no write is between tree and log: it closes the gate all writes pass.
//! - The log behind a checkpoint holds all that is acknowledged and not in the checkpoint, and
//!   nothing from before it.
//! - Once the log or a checkpoint has failed, nothing is acknowledged any more.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, PoisonError};

use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::gate::Gate;
use crate::inspect::TreeStats;
use crate::key::Key;
use crate::log::{Log, Record};
use crate::scan::Direction;
use crate::tree::{Options, Tree};

/// Locks that keys are spread over: with 64 threads, two seldom want the same.
const STRIPES: usize = 256;

/// A [`Tree`] beside a log, in which every acknowledged write survives a crash.
///
/// A write returns when it is on the disk; threads that write at the same time share one sync.
/// Others see a write as soon as it is in memory, a little before it is durable.
/// [`DurableTree::open`] gives the last checkpoint with the log applied to it: everything
/// acknowledged, and of what was under way when the machine stopped a first part, whole or not at all
/// for each write.
///
/// The log grows by a page (4 KiB) or more a sync until [`DurableTree::checkpoint`] lets it start
/// anew; how often is for the application to say.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uplake_btree::{DurableTree, MemoryFile, Options};
/// let (file, log) = (Arc::new(MemoryFile::default()), Arc::new(MemoryFile::default()));
/// let tree = DurableTree::<[u8]>::create(Arc::clone(&file), Arc::clone(&log), Options::default())?;
/// tree.put(b"anna", 1)?;
/// // Many at a time: start them all, then wait for the last.
/// tree.start_put(b"berta", 2)?;
/// let (_, ticket) = tree.start_put(b"carla", 3)?;
/// tree.wait(ticket)?;
/// drop(tree);
/// let tree = DurableTree::<[u8]>::open(file, log, Options::default())?;
/// assert_eq!(tree.get(b"berta")?, Some(2));
/// # Ok::<(), uplake_btree::TreeError>(())
/// ```
pub struct DurableTree<K: Key + ?Sized> {
    tree: Tree<K>,
    log: Log,
    gate: Gate,
    stripes: Vec<Mutex<()>>,
    checkpoint: Mutex<()>,
}

/// What to [`DurableTree::wait`] for; waiting for a later one is waiting for all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// How much the log was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes written since the last checkpoint, which opening has to read.
    pub bytes: u64,
    /// Batches written and synchronized since the tree was opened.
    pub syncs: u64,
}

enum Write {
    Put(u64),
    InsertIfAbsent(u64),
    Remove,
}

impl<K: Key + ?Sized> DurableTree<K> {
    /// An empty tree in `file` with its log in `log`; both lose what they held.
    ///
    /// # Errors
    /// As [`Tree::create`] and [`Tree::checkpoint`].
    pub fn create(
        file: impl PageFile + 'static,
        log: impl PageFile + 'static,
        options: Options,
    ) -> Result<Self> {
        // The tree first: without a checkpoint, nobody looks at the log.
        let tree = Tree::create(file, options)?;
        let log = Log::create(Box::new(log), tree.base())?;
        let durable = Self::over(tree, log);
        durable.checkpoint(0)?;
        Ok(durable)
    }

    /// The tree with everything that was acknowledged.
    ///
    /// # Errors
    /// As [`Tree::open`]; [`TreeError::Corrupt`] also if the log is another tree's, or damaged before
    /// its last batch. Damage of the last one cannot be told from a write a crash interrupted.
    pub fn open(
        file: impl PageFile + 'static,
        log: impl PageFile + 'static,
        options: Options,
    ) -> Result<Self> {
        let tree = Tree::open(file, options)?;
        let log = Log::open(Box::new(log), tree.base(), |record| apply(&tree, record))?;
        Ok(Self::over(tree, log))
    }

    fn over(tree: Tree<K>, log: Log) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Self { tree, log, gate: Gate::new(0), stripes, checkpoint: Mutex::new(()) }
    }

    /// [`Tree::put`], durable.
    ///
    /// # Errors
    /// As [`Tree::put`], and then nothing was written. [`TreeError::File`] while writing the log, and
    /// [`TreeError::Poisoned`] from then on: whether the write survives is unknown, and the tree must
    /// be opened again.
    pub fn put(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.finish(self.start_put(key, value)?)
    }

    /// [`Tree::insert_if_absent`], durable; so is a value that was there already.
    ///
    /// # Errors
    /// As [`DurableTree::put`].
    pub fn insert_if_absent(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.finish(self.start_insert_if_absent(key, value)?)
    }

    /// [`Tree::remove`], durable.
    ///
    /// # Errors
    /// As [`DurableTree::put`].
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.finish(self.start_remove(key)?)
    }

    /// [`DurableTree::put`] that returns at once; the write is durable after
    /// [`DurableTree::wait`]. At most some 4 MiB of writes are in memory only; then this waits.
    ///
    /// # Errors
    /// As [`DurableTree::put`].
    pub fn start_put(&self, key: &K, value: u64) -> Result<(Option<u64>, Ticket)> {
        self.write(key, Write::Put(value))
    }

    /// [`DurableTree::insert_if_absent`] that returns at once, as [`DurableTree::start_put`].
    ///
    /// # Errors
    /// As [`DurableTree::put`].
    pub fn start_insert_if_absent(&self, key: &K, value: u64) -> Result<(Option<u64>, Ticket)> {
        self.write(key, Write::InsertIfAbsent(value))
    }

    /// [`DurableTree::remove`] that returns at once, as [`DurableTree::start_put`].
    ///
    /// # Errors
    /// As [`DurableTree::put`].
    pub fn start_remove(&self, key: &K) -> Result<(Option<u64>, Ticket)> {
        self.write(key, Write::Remove)
    }

    /// Returns when a started write, and all started before it, are durable.
    ///
    /// # Errors
    /// [`TreeError::File`] or [`TreeError::Poisoned`] if they may not be; see [`DurableTree::put`].
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.log.wait(ticket.0)
    }

    fn finish(&self, (found, ticket): (Option<u64>, Ticket)) -> Result<Option<u64>> {
        self.wait(ticket)?;
        Ok(found)
    }

    fn write(&self, key: &K, write: Write) -> Result<(Option<u64>, Ticket)> {
        self.log.admit()?;
        let _pass = self.gate.pass();
        key.with_bytes(|bytes| {
            let stripe = crc32fast::hash(bytes) as usize % STRIPES;
            let _stripe = self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
            let (found, record) = match write {
                Write::Put(value) => (self.tree.put(key, value)?, Some(Record::Put(bytes, value))),
                Write::InsertIfAbsent(value) => {
                    let found = self.tree.insert_if_absent(key, value)?;
                    (found, found.is_none().then_some(Record::Put(bytes, value)))
                }
                Write::Remove => {
                    let found = self.tree.remove(key)?;
                    (found, found.map(|_| Record::Remove(bytes)))
                }
            };
            // What was found may itself not be durable yet.
            let ticket = record.map_or_else(|| self.log.appended(), |r| self.log.append(r));
            Ok((found, Ticket(ticket)))
        })
    }

    /// Puts everything into the tree's file, with `position` as [`Tree::checkpoint`] has it, and lets
    /// the log start anew. Writers wait while it lasts, readers do not.
    ///
    /// # Errors
    /// As [`Tree::checkpoint`]; and if the log cannot be written, from when on the tree is poisoned.
    pub fn checkpoint(&self, position: u64) -> Result<()> {
        let _one = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        self.tree.flush_some()?;
        let _closed = self.gate.close();
        // Whoever waits is served, and a checkpoint that fails has lost nothing.
        self.log.wait(self.log.appended())?;
        self.log.admit()?;
        let result = self.tree.checkpoint(position);
        match &result {
            Ok(()) => self.log.restart(self.tree.base()),
            // Nobody knows which checkpoint the log would have to go on from.
            Err(_) if self.tree.is_poisoned() => self.log.fail(),
            Err(_) => {}
        }
        result
    }

    /// [`Tree::get`]; the value may be durable only a moment later.
    ///
    /// # Errors
    /// As [`Tree::get`].
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        self.tree.get(key)
    }

    /// [`Tree::get_many`].
    ///
    /// # Errors
    /// As [`Tree::get_many`].
    ///
    /// # Panics
    /// If `values` is not as long as `keys`.
    pub fn get_many<Q: Borrow<K>>(&self, keys: &[Q], values: &mut [Option<u64>]) -> Result<()> {
        self.tree.get_many(keys, values)
    }

    /// [`Tree::scan`].
    ///
    /// # Errors
    /// As [`Tree::scan`].
    pub fn scan(
        &self,
        lower: Bound<&K>,
        upper: Bound<&K>,
        direction: Direction,
        visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        self.tree.scan(lower, upper, direction, visit)
    }

    /// Number of entries; exact while nobody writes.
    pub fn len(&self) -> u64 {
        self.tree.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// The position the last checkpoint was made with.
    pub fn position(&self) -> u64 {
        self.tree.position()
    }

    /// [`Tree::inspect`].
    ///
    /// # Errors
    /// As [`Tree::inspect`].
    pub fn inspect(&self) -> Result<TreeStats> {
        self.tree.inspect()
    }

    /// How much the log was used.
    pub fn log_stats(&self) -> LogStats {
        let (bytes, syncs) = self.log.usage();
        LogStats { bytes, syncs }
    }
}

/// Does again what a record says.
fn apply<K: Key + ?Sized>(tree: &Tree<K>, record: Record<'_>) -> Result<()> {
    let (key, value) = match record {
        Record::Put(key, value) => (key, Some(value)),
        Record::Remove(key) => (key, None),
    };
    if K::FIXED && key.len() != 8 {
        return Err(TreeError::corrupt("a record of the log has a key of another kind"));
    }
    K::from_bytes(key, |key| match value {
        Some(value) => tree.put(key, value),
        None => tree.remove(key),
    })?;
    Ok(())
}
