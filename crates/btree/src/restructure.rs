//! Changes of the tree's shape: making room, and taking it back.
//!
//! All of them are one thing: the entries of two neighbours (or of one page) are taken out, divided
//! anew, and put back, and the parent learns the new border. A full leaf first gives to its left
//! neighbour and then to its right one; only if both are full it splits. So leaves filled in order
//! end more than 90 % full, and leaves filled at random about 80 %, not 69 %.
//!
//! # Invariants
//! - Every page that changes is latched from before the first change until all are changed.
//! - Whether a change fits is decided before anything is changed.

use crate::error::Result;
use crate::key::{Entries, Key, separator};
use crate::latch;
use crate::page::{Fences, Page, ROOM, ROOT, bytes_for_one, bytes_needed};
use crate::pool::Reserve;
use crate::tree::{Seek, Step, Tree, UNDERFULL, count};

/// How full the left page is left where keys arrive in ascending order. The rest is for keys that
/// come late; 240 entries become 228, or 18.0 bytes each.
pub(crate) const ASCENDING_FILL: f64 = 15.0 / 16.0;
/// A neighbour emptier than this is worth giving to: it takes at least 1/8 of a page.
const GIVE_BELOW: f64 = 0.75;
/// The same where keys arrive in ascending order, as all free bytes of the neighbour are filled.
const GIVE_ASCENDING_BELOW: f64 = 0.85;
/// A page made by merging is not fuller than this, or the next insert would split it.
const MERGED_FILL: f64 = 0.9;
/// Attempts to merge before it is left to the next removal.
const MERGE_ATTEMPTS: usize = 64;

/// A latched page; the drop releases it.
struct Latched<'a> {
    page: Page<'a>,
    is_changed: bool,
}

impl<'a> Latched<'a> {
    fn take(step: &Step<'a>) -> Option<Self> {
        // Not `then_some`: what is made in vain is dropped, and the drop releases the latch.
        latch::try_latch(step.page.latch(), step.version)
            .then(|| Self { page: step.page, is_changed: false })
    }

    /// A page that the caller has latched already.
    fn adopt(page: Page<'a>) -> Self {
        Self { page, is_changed: false }
    }

    fn change(&mut self) -> Page<'a> {
        self.is_changed = true;
        self.page.set_dirty(true);
        self.page
    }

    /// Leaves the latch to the caller.
    fn into_page(self) -> Page<'a> {
        let page = self.page;
        std::mem::forget(self);
        page
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            latch::release_changed(self.page.latch());
        } else {
            latch::release_unchanged(self.page.latch());
        }
    }
}

/// A page and its right neighbour, and where their border stands in the parent.
struct Neighbours<'l, 'a> {
    parent: &'l mut Latched<'a>,
    /// The right page's entry in the parent.
    border: usize,
    left: &'l mut Latched<'a>,
    right: &'l mut Latched<'a>,
}

/// How far a split got.
enum Split {
    Done,
    /// The parent cannot take the border; it has so many bytes.
    ParentFull(usize),
}

impl<K: Key + ?Sized> Tree<K> {
    /// Changes the page at `level` on the way to `key`, so that an entry with a key of `len` bytes
    /// may fit into it. The caller looks again.
    #[cold]
    pub(crate) fn make_room(&self, key: &K, level: u8, len: usize) -> Result<()> {
        loop {
            // Before anything is latched: a frame may have to be written first.
            let mut reserve = self.pool.reserve(2)?;
            let path = self.path(Seek::At(key), level)?;
            let Some((step, above)) = path.split_last() else { return Ok(()) };
            let Some(parent) = above.last() else {
                let Some(mut root) = Latched::take(step) else { continue };
                if !root.page.has_room::<K>(len, None) {
                    self.grow(&mut root, &mut reserve, key);
                }
                return Ok(());
            };
            let Some(mut upper) = Latched::take(parent) else { continue };
            let Some(mut page) = Latched::take(step) else { continue };
            if page.page.has_room::<K>(len, None) {
                return Ok(());
            }
            if level == 0 && self.give(&mut upper, parent.child, &mut page, key, len) {
                return Ok(());
            }
            match self.split(&mut upper, &mut page, &mut reserve, key) {
                Split::Done => return Ok(()),
                Split::ParentFull(border) => {
                    drop((page, upper, reserve));
                    self.make_room(key, level + 1, border)?;
                }
            }
        }
    }

    /// Gives the root two children with what it holds.
    fn grow(&self, root: &mut Latched<'_>, reserve: &mut Reserve<'_, K>, key: &K) {
        let page = root.change();
        let level = page.level();
        let mut entries = Entries::default();
        page.copy_entries::<K>(0..page.count::<K>(), &mut entries);
        let at = split_point::<K>(page, &entries, key);
        let border = border_at::<K>(&entries, at, level).to_vec();
        let mut left = Latched::adopt(reserve.make(level));
        let mut right = Latched::adopt(reserve.make(level));
        let all = entries.len();
        left.change().rewrite::<K>(&entries, 0..at, &Fences::new(None, Some(&border)));
        right.change().rewrite::<K>(&entries, at..all, &Fences::new(Some(&border), None));
        let mut children = Entries::default();
        children.push(first_key::<K>(), u64::from(left.page.pid()));
        children.push(&border, u64::from(right.page.pid()));
        page.set_ident(crate::page::ident::<K>(ROOT, level + 1));
        page.rewrite::<K>(&children, 0..2, &Fences::default());
        count(&self.restructured.splits);
    }

    fn split(
        &self,
        parent: &mut Latched<'_>,
        left: &mut Latched<'_>,
        reserve: &mut Reserve<'_, K>,
        key: &K,
    ) -> Split {
        let level = left.page.level();
        let mut entries = Entries::default();
        left.page.copy_entries::<K>(0..left.page.count::<K>(), &mut entries);
        let at = split_point::<K>(left.page, &entries, key);
        let border = border_at::<K>(&entries, at, level).to_vec();
        if !parent.page.has_room::<K>(border.len(), None) {
            return Split::ParentFull(border.len());
        }
        let fences = left.page.fences();
        let mut right = Latched::adopt(reserve.make(level));
        let upper = Fences::new(Some(&border), fences.upper.as_deref());
        let lower = Fences::new(fences.lower.as_deref(), Some(&border));
        right.change().rewrite::<K>(&entries, at..entries.len(), &upper);
        left.change().rewrite::<K>(&entries, 0..at, &lower);
        insert_child::<K>(parent.change(), &border, right.page.pid());
        count(&self.restructured.splits);
        Split::Done
    }

    /// Gives entries of a full leaf to a neighbour with room, the left one if possible, so that an
    /// entry with a key of `len` bytes fits in.
    fn give<'a>(
        &'a self,
        parent: &mut Latched<'a>,
        child: usize,
        page: &mut Latched<'a>,
        key: &K,
        len: usize,
    ) -> bool {
        let (Ok(at) | Err(at)) = page.page.search(key);
        let is_ascending = at >= page.page.count::<K>() / 8 * 7;
        let limit = if is_ascending { GIVE_ASCENDING_BELOW } else { GIVE_BELOW };
        if child > 0
            && let Some(mut left) = self.neighbour(parent.page, child - 1, limit)
        {
            let border = child;
            let both = Neighbours { parent, border, left: &mut left, right: page };
            return self.divide(both, is_ascending, Some((key, len)));
        }
        if !is_ascending
            && child + 1 < parent.page.count::<K>()
            && let Some(mut right) = self.neighbour(parent.page, child + 1, limit)
        {
            let border = child + 1;
            let both = Neighbours { parent, border, left: page, right: &mut right };
            return self.divide(both, false, Some((key, len)));
        }
        false
    }

    /// A child of the latched `parent`, latched, if it is in memory, free and not fuller than `limit`.
    fn neighbour(&self, parent: Page<'_>, child: usize, limit: f64) -> Option<Latched<'_>> {
        let pid = parent.value::<K>(child) as u32;
        let page = self.pool.peek(pid)?;
        let version = latch::try_read(page.latch())?;
        let neighbour = Latched::take(&Step { page, version, child: 0 })?;
        let is_it = page.ident() == crate::page::ident::<K>(pid, parent.level() - 1);
        (is_it && page.fill::<K>() <= limit).then_some(neighbour)
    }

    /// Divides the entries of two neighbours anew: evenly, or with the left page as full as pages
    /// get where keys arrive in ascending order. `false`: it would not fit or not help, because
    /// `wanted`, a key of so many bytes, would have no room after it. (Neighbours of few long keys
    /// could else give each other the same entry for ever.)
    fn divide(
        &self,
        both: Neighbours<'_, '_>,
        is_ascending: bool,
        wanted: Option<(&K, usize)>,
    ) -> bool {
        let Neighbours { parent, border, left, right } = both;
        let level = left.page.level();
        let (left_count, right_count) = (left.page.count::<K>(), right.page.count::<K>());
        let mut entries = Entries::default();
        left.page.copy_entries::<K>(0..left_count, &mut entries);
        right.page.copy_entries::<K>(0..right_count, &mut entries);
        let all = entries.len();
        let total: usize = (0..all).map(|i| size::<K>(&entries, i)).sum();
        let goal = if is_ascending { (ROOM as f64 * ASCENDING_FILL) as usize } else { total / 2 };
        let at = prefix_of_size::<K>(&entries, goal);
        if at == left_count || at == 0 || at >= all {
            return false;
        }
        let new_border = border_at::<K>(&entries, at, level).to_vec();
        let (lower, upper) = (left.page.fences().lower, right.page.fences().upper);
        let lower = Fences { lower, upper: Some(new_border.clone()) };
        let upper = Fences { lower: Some(new_border.clone()), upper };
        let is_left = |key: &K| key.with_bytes(|bytes| bytes < &new_border[..]);
        let (mut left_extra, mut right_extra) = (0, 0);
        if let Some((key, len)) = wanted.filter(|_| !K::FIXED) {
            let (extra, fences) =
                if is_left(key) { (&mut left_extra, &lower) } else { (&mut right_extra, &upper) };
            *extra = bytes_for_one(len, fences);
        }
        let fits = bytes_needed(&entries, 0..at, &lower, K::FIXED) + left_extra <= ROOM
            && bytes_needed(&entries, at..all, &upper, K::FIXED) + right_extra <= ROOM
            && parent.page.has_room::<K>(new_border.len(), Some(border));
        if !fits {
            return false;
        }
        left.change().rewrite::<K>(&entries, 0..at, &lower);
        right.change().rewrite::<K>(&entries, at..all, &upper);
        parent.change().remove::<K>(border);
        insert_child::<K>(parent.page, &new_border, right.page.pid());
        count(&self.restructured.shifts);
        true
    }

    /// Finds a partner for the underfull leaf on the way to `key`, and for its parents if they get
    /// underfull by that. Gives up when others are in the way: the next removal tries again.
    #[cold]
    pub(crate) fn rebalance(&self, key: &K) -> Result<()> {
        let mut level = 0;
        for _ in 0..MERGE_ATTEMPTS {
            let path = self.path(Seek::At(key), level)?;
            let Some((step, above)) = path.split_last() else { return Ok(()) };
            let (fill, children) = (step.page.fill::<K>(), step.page.count::<K>());
            let Some(parent) = above.last() else {
                if level > 0 && children == 1 {
                    self.shrink(step)?;
                    continue;
                }
                return Ok(());
            };
            let siblings = parent.page.count::<K>();
            if !latch::validate(step.page.latch(), step.version)
                || !latch::validate(parent.page.latch(), parent.version)
            {
                continue;
            }
            if fill >= UNDERFULL && (level == 0 || children > 1) {
                return Ok(());
            }
            if siblings == 1 {
                level += 1;
                continue;
            }
            let is_last = parent.child + 1 == siblings;
            let other = if is_last { parent.child - 1 } else { parent.child + 1 };
            let Some(other) = self.child(parent.page, parent.version, other, level)? else {
                continue;
            };
            let other = Step { page: other.0, version: other.1, child: 0 };
            let (left, right) = if is_last { (&other, step) } else { (step, &other) };
            let Some(mut upper) = Latched::take(parent) else { continue };
            let Some(mut left) = Latched::take(left) else { continue };
            let Some(mut right) = Latched::take(right) else { continue };
            let border = if is_last { parent.child } else { parent.child + 1 };
            if self.merge(&mut upper, border, &mut left, &right) {
                self.pool.free(right.into_page());
                level += 1;
                continue;
            }
            let (parent, left, right) = (&mut upper, &mut left, &mut right);
            self.divide(Neighbours { parent, border, left, right }, false, None);
            return Ok(());
        }
        Ok(())
    }

    /// Moves all entries of the right page to the left one, if they fit. The right page is then no
    /// longer part of the tree, and still latched.
    fn merge(
        &self,
        parent: &mut Latched<'_>,
        border: usize,
        left: &mut Latched<'_>,
        right: &Latched<'_>,
    ) -> bool {
        let mut entries = Entries::default();
        left.page.copy_entries::<K>(0..left.page.count::<K>(), &mut entries);
        right.page.copy_entries::<K>(0..right.page.count::<K>(), &mut entries);
        let fences = Fences { lower: left.page.fences().lower, upper: right.page.fences().upper };
        let needed = bytes_needed(&entries, 0..entries.len(), &fences, K::FIXED);
        if needed as f64 > MERGED_FILL * ROOM as f64 {
            return false;
        }
        left.change().rewrite::<K>(&entries, 0..entries.len(), &fences);
        parent.change().remove::<K>(border);
        count(&self.restructured.merges);
        true
    }

    /// Takes the only child of the root into the root.
    fn shrink(&self, step: &Step<'_>) -> Result<()> {
        let level = step.page.level().saturating_sub(1);
        let Some(child) = self.child(step.page, step.version, 0, level)? else { return Ok(()) };
        let child = Step { page: child.0, version: child.1, child: 0 };
        let Some(mut root) = Latched::take(step) else { return Ok(()) };
        if root.page.count::<K>() != 1 || root.page.level() == 0 {
            return Ok(());
        }
        let Some(child) = Latched::take(&child) else { return Ok(()) };
        let mut entries = Entries::default();
        child.page.copy_entries::<K>(0..child.page.count::<K>(), &mut entries);
        let page = root.change();
        page.set_ident(crate::page::ident::<K>(ROOT, level));
        page.rewrite::<K>(&entries, 0..entries.len(), &child.page.fences());
        self.pool.free(child.into_page());
        count(&self.restructured.merges);
        Ok(())
    }
}

/// The key of a first child that has no lower fence.
pub(crate) fn first_key<K: Key + ?Sized>() -> &'static [u8] {
    if K::FIXED { &[0; 8] } else { &[] }
}

/// The border between entries `at - 1` and `at`.
pub(crate) fn border_at<K: Key + ?Sized>(entries: &Entries, at: usize, level: u8) -> &[u8] {
    if level > 0 {
        entries.key(at)
    } else {
        separator(entries.key(at - 1), entries.key(at), K::FIXED)
    }
}

fn insert_child<K: Key + ?Sized>(parent: Page<'_>, border: &[u8], pid: u32) {
    K::from_bytes(border, |border| {
        let (Ok(at) | Err(at)) = parent.search(border);
        let fits = parent.insert(at, border, u64::from(pid));
        assert!(fits, "the parent has no room for a border it had room for");
    });
}

/// Bytes of an entry without its prefix, as far as dividing needs to know.
fn size<K: Key + ?Sized>(entries: &Entries, index: usize) -> usize {
    if K::FIXED { 16 } else { 20 + entries.key(index).len() }
}

/// How many entries from the first on have together `goal` bytes or less, at least one.
fn prefix_of_size<K: Key + ?Sized>(entries: &Entries, goal: usize) -> usize {
    let mut bytes = 0;
    let fits = (0..entries.len()).take_while(|&index| {
        bytes += size::<K>(entries, index);
        bytes <= goal
    });
    fits.count().max(1)
}

/// Where to divide the entries of a full page that `key` does not fit into.
fn split_point<K: Key + ?Sized>(page: Page<'_>, entries: &Entries, key: &K) -> usize {
    let all = entries.len();
    assert!(all >= 2, "a full page has at least two entries");
    let is_append = page.is_rightmost()
        && match page.search(key) {
            Ok(at) | Err(at) => at == all,
        };
    let total: usize = (0..all).map(|index| size::<K>(entries, index)).sum();
    let share = if is_append { ASCENDING_FILL } else { 0.5 };
    let mut at = prefix_of_size::<K>(entries, (total as f64 * share) as usize).min(all - 1);
    // With long keys the new fence may need what was free.
    let fences = page.fences();
    loop {
        let border = border_at::<K>(entries, at, page.level());
        let lower = Fences::new(fences.lower.as_deref(), Some(border));
        if at == 1 || bytes_needed(entries, 0..at, &lower, K::FIXED) <= ROOM {
            return at;
        }
        at -= 1;
    }
}
