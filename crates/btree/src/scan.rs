//! Ranges, in both directions.
//!
//! A scan copies up to 64 entries of a leaf, asks whether the leaf is still what it was, and only
//! then shows them. From leaf to leaf it goes by the fence between them, from the root again: pages
//! know no neighbours, which would have to be kept right at every split and merge. That costs some
//! 100 ns per 200 entries.

use std::ops::{Bound, ControlFlow};

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
        let mut chunk = Entries::default();
        while !matches!(place, Place::End) {
            let (page, version) = self.leaf_at(&place, is_forward)?;
            let mut at = position::<K>(page, &place, is_forward);
            loop {
                chunk.clear();
                let (range, next) = if is_forward {
                    let end = page.count::<K>().min(at + CHUNK);
                    (at..end.max(at), end)
                } else {
                    let at = at.min(page.count::<K>());
                    (at.saturating_sub(CHUNK)..at, at.saturating_sub(CHUNK))
                };
                page.copy_entries::<K>(range, &mut chunk);
                let is_last = if is_forward { next >= page.count::<K>() } else { next == 0 };
                let fence = if is_last { fence(page, is_forward) } else { None };
                if !latch::validate(page.latch(), version) {
                    break;
                }
                for index in 0..chunk.len() {
                    let index = if is_forward { index } else { chunk.len() - 1 - index };
                    let flow = K::from_bytes(chunk.key(index), |key| {
                        if is_beyond(key, to, is_forward) {
                            return ControlFlow::Break(());
                        }
                        visit(key, chunk.value(index))
                    });
                    if flow.is_break() {
                        return Ok(());
                    }
                }
                if is_last {
                    // The upper fence itself is still to come; so is what is below the lower one.
                    place = match fence {
                        Some(key) => Place::Key { key, is_open: is_forward },
                        None => Place::End,
                    };
                    break;
                }
                let shown = if is_forward { chunk.len() - 1 } else { 0 };
                place = Place::Key { key: chunk.key(shown).to_vec(), is_open: false };
                at = next;
            }
        }
        Ok(())
    }

    /// The leaf a scan goes on in, and its version.
    fn leaf_at(&self, place: &Place, is_forward: bool) -> Result<(Page<'_>, u64)> {
        match place {
            Place::Key { key, is_open } if is_forward || *is_open => {
                K::from_bytes(key, |key| self.leaf(key))
            }
            Place::Key { key, .. } => K::from_bytes(key, |key| self.leaf_by(Seek::Before(key))),
            _ => self.leaf_by(if is_forward { Seek::First } else { Seek::Last }),
        }
    }

    fn leaf_by(&self, seek: Seek<'_, K>) -> Result<(Page<'_>, u64)> {
        let path = self.path(seek, 0)?;
        let leaf = path.last().expect("every tree has level 0");
        Ok((leaf.page, leaf.version))
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
    match K::from_bytes(key, |key| page.search(key)) {
        Ok(index) => index + usize::from(*is_open != is_forward),
        Err(index) => index,
    }
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
