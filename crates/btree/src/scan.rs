//! Ranges, in both directions.
//!
//! A scan copies up to 64 entries of a leaf, asks whether the leaf is still what it was, and only
//! then shows them. Pages know no neighbours, which would have to be kept right at every split and
//! merge: forwards the next leaf is the parent's next child, if the parent has not changed; else,
//! and backwards, the scan goes by the fence, from the root again.

use std::ops::{Bound, ControlFlow, Range};

use crate::error::Result;
use crate::key::{Entries, Key};
use crate::latch;
use crate::page::Page;
use crate::tree::{Seek, Tree};

/// Entries copied at a time: a scan of few entries shall not copy a whole leaf.
const CHUNK: usize = 64;

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key to the greatest.
    Forward,
    /// From the greatest key to the smallest.
    Backward,
}

/// Entries left in a leaf at which the next one is asked for: what a short scan shows.
const SOON: usize = 128;

/// A leaf, and if there is one behind it in the same parent, that one's place: parent, its version,
/// and this leaf's index.
struct Leaf<'a> {
    page: Page<'a>,
    version: u64,
    parent: Option<(Page<'a>, u64, usize)>,
}

/// Where a scan goes on.
enum Place {
    Edge,
    /// At a key, which itself is still to come or not.
    Key {
        key: Vec<u8>,
        is_open: bool,
    },
    End,
}

impl<K: Key + ?Sized> Tree<K> {
    /// Shows the entries between two bounds to `visit`, until it breaks.
    ///
    /// The entries of one leaf are shown as they were at one moment; writes to others may or may not
    /// be seen. No latch is held while `visit` runs, so it may use the tree.
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    ///
    /// # Examples
    /// ```
    /// use std::ops::{Bound, ControlFlow};
    /// use uplake_btree::{Direction, MemoryFile, Options, Tree};
    /// let tree = Tree::<u64>::create(MemoryFile::default(), Options::default())?;
    /// for key in 0..100 {
    ///     tree.put(&key, key * key)?;
    /// }
    /// let mut last_two = Vec::new();
    /// tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Backward, |key, value| {
    ///     last_two.push((*key, value));
    ///     if last_two.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert_eq!(last_two, [(99, 9801), (98, 9604)]);
    /// # Ok::<(), uplake_btree::TreeError>(())
    /// ```
    pub fn scan(
        &self,
        lower: Bound<&K>,
        upper: Bound<&K>,
        direction: Direction,
        mut visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let is_forward = direction == Direction::Forward;
        let (from, to) = if is_forward { (lower, upper) } else { (upper, lower) };
        let mut place = start(from);
        let mut chunk = Chunk::default();
        let mut next = None;
        while !matches!(place, Place::End) {
            let (leaf, mut at) = match next.take() {
                Some(leaf) => (leaf, 0),
                None => {
                    let leaf = self.leaf_at(&place, is_forward)?;
                    let at = position::<K>(leaf.page, &place, is_forward);
                    (leaf, at)
                }
            };
            let (page, version) = (leaf.page, leaf.version);
            if is_forward {
                self.prefetch_next(&leaf, at);
            }
            loop {
                let count = page.count::<K>();
                let range = if is_forward {
                    at.min(count)..count.min(at + CHUNK)
                } else {
                    at.min(count).saturating_sub(CHUNK)..at.min(count)
                };
                let is_last = if is_forward { range.end == count } else { range.start == 0 };
                at = if is_forward { range.end } else { range.start };
                chunk.copy::<K>(page, range);
                let neighbour = leaf.parent.filter(|_| is_last && is_forward && chunk.len > 0);
                let fence =
                    if is_last && neighbour.is_none() { fence(page, is_forward) } else { None };
                if !latch::validate(page.latch(), version) {
                    break;
                }
                let flow = chunk.show::<K>(is_forward, |key, value| {
                    if is_beyond(key, to, is_forward) {
                        return ControlFlow::Break(());
                    }
                    visit(key, value)
                });
                if flow.is_break() {
                    return Ok(());
                }
                if is_last && neighbour.is_none() {
                    // The upper fence itself is still to come; so is what is below the lower one.
                    place = match fence {
                        Some(key) => Place::Key { key, is_open: is_forward },
                        None => Place::End,
                    };
                    break;
                }
                let shown = if is_forward { chunk.len - 1 } else { 0 };
                let key = chunk.key::<K, _>(shown, |key| reuse(place, key));
                place = Place::Key { key, is_open: false };
                if let Some((parent, version, child)) = neighbour {
                    // As long as the parent is what it was, so is the border to the next leaf.
                    next = self.child(parent, version, child + 1, 0)?.map(|(page, new)| {
                        let has_next = child + 2 < parent.count::<K>();
                        let parent = has_next.then_some((parent, version, child + 1));
                        Leaf { page, version: new, parent }
                    });
                    break;
                }
            }
        }
        Ok(())
    }

    /// Asks for the first lines of the leaf behind this one, if the scan may get there soon.
    fn prefetch_next(&self, leaf: &Leaf<'_>, at: usize) {
        let left = leaf.page.count::<K>().saturating_sub(at);
        let Some((parent, _, child)) = leaf.parent.filter(|_| left < SOON) else { return };
        if let Some(next) = self.pool.peek(parent.value::<K>(child + 1) as u32) {
            next.prefetch_first::<K>();
        }
    }

    /// The leaf a scan goes on in.
    fn leaf_at(&self, place: &Place, is_forward: bool) -> Result<Leaf<'_>> {
        let alone = |(page, version)| Leaf { page, version, parent: None };
        match place {
            Place::Key { key, .. } if is_forward => K::from_bytes(key, |key| self.leaf_below(key)),
            Place::Key { key, is_open: true } => {
                K::from_bytes(key, |key| self.leaf(key)).map(alone)
            }
            Place::Key { key, .. } => {
                K::from_bytes(key, |key| self.leaf_by(Seek::Before(key))).map(alone)
            }
            _ => self.leaf_by(if is_forward { Seek::First } else { Seek::Last }).map(alone),
        }
    }

    /// The leaf of a key, with its parent if there is a leaf behind it there.
    fn leaf_below(&self, key: &K) -> Result<Leaf<'_>> {
        'restart: loop {
            let ((mut page, mut version), mut parent) = (self.root(), None);
            let mut level = page.level();
            while level > 0 {
                level -= 1;
                let index = page.child_of(key);
                let Some(child) = self.child(page, version, index, level)? else {
                    continue 'restart;
                };
                parent = (index + 1 < page.count::<K>()).then_some((page, version, index));
                (page, version) = child;
            }
            return Ok(Leaf { page, version, parent });
        }
    }

    fn leaf_by(&self, seek: Seek<'_, K>) -> Result<(Page<'_>, u64)> {
        let path = self.path(seek, 0)?;
        let leaf = path.last().expect("every tree has level 0");
        Ok((leaf.page, leaf.version))
    }
}

/// Entries copied out of a leaf.
struct Chunk {
    len: usize,
    /// Keys that are their heads, and the values.
    heads: [u64; CHUNK],
    values: [u64; CHUNK],
    /// Other keys, and the values.
    entries: Entries,
}

impl Default for Chunk {
    fn default() -> Self {
        let (heads, values) = ([0; CHUNK], [0; CHUNK]);
        Self { len: 0, heads, values, entries: Entries::default() }
    }
}

impl Chunk {
    #[inline]
    fn copy<K: Key + ?Sized>(&mut self, page: Page<'_>, range: Range<usize>) {
        self.len = range.len();
        if K::FIXED {
            let (heads, values) = (&mut self.heads[..self.len], &mut self.values[..self.len]);
            page.copy_fixed::<K>(range.start, heads, values);
        } else {
            self.entries.clear();
            page.copy_entries::<K>(range, &mut self.entries);
        }
    }

    /// Calls `show` with each entry, in the order of the scan.
    #[inline]
    fn show<K: Key + ?Sized>(
        &self,
        is_forward: bool,
        mut show: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for step in 0..self.len {
            let index = if is_forward { step } else { self.len - 1 - step };
            if K::FIXED {
                K::from_head(self.heads[index], |key| show(key, self.values[index]))?;
            } else {
                let (key, value) = (self.entries.key(index), self.entries.value(index));
                K::from_bytes(key, |key| show(key, value))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn key<K: Key + ?Sized, R>(&self, index: usize, use_key: impl FnOnce(&[u8]) -> R) -> R {
        if K::FIXED {
            use_key(&self.heads[index].to_be_bytes())
        } else {
            use_key(self.entries.key(index))
        }
    }
}

fn start<K: Key + ?Sized>(from: Bound<&K>) -> Place {
    let place = |key: &K, is_open| Place::Key { key: key.with_bytes(<[u8]>::to_vec), is_open };
    match from {
        Bound::Unbounded => Place::Edge,
        Bound::Included(key) => place(key, true),
        Bound::Excluded(key) => place(key, false),
    }
}

/// The first entry to show (forward), or the one behind it (backward).
fn position<K: Key + ?Sized>(page: Page<'_>, place: &Place, is_forward: bool) -> usize {
    let Place::Key { key, is_open } = place else {
        return if is_forward { 0 } else { page.count::<K>() };
    };
    let search = |key: &K| {
        let start = page.prefetch_block(key);
        if is_forward && K::FIXED {
            page.prefetch_run::<K>(start);
        }
        page.search_in(start, key)
    };
    match K::from_bytes(key, search) {
        Ok(index) => index + usize::from(*is_open != is_forward),
        Err(index) => index,
    }
}

/// The key, in the place's memory if it has some.
fn reuse(place: Place, key: &[u8]) -> Vec<u8> {
    let mut bytes = if let Place::Key { key, .. } = place { key } else { Vec::new() };
    bytes.clear();
    bytes.extend_from_slice(key);
    bytes
}

fn fence(page: Page<'_>, is_forward: bool) -> Option<Vec<u8>> {
    let fences = page.fences();
    if is_forward { fences.upper } else { fences.lower }
}

fn is_beyond<K: Key + ?Sized>(key: &K, to: Bound<&K>, is_forward: bool) -> bool {
    match to {
        Bound::Unbounded => false,
        Bound::Included(to) => {
            if is_forward {
                key > to
            } else {
                key < to
            }
        }
        Bound::Excluded(to) => {
            if is_forward {
                key >= to
            } else {
                key <= to
            }
        }
    }
}
