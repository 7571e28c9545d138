//! Many keys at once.
//!
//! A look-up waits for memory three times per page that is not in a cache; a batch of them waits
//! for all at the same time. 16 keys go down together, level by level, each step asking for the
//! lines the next one reads. Sorted keys that are written share the way down and the latch.

use std::borrow::Borrow;

use crate::error::{Result, TreeError};
use crate::key::Key;
use crate::latch;
use crate::page::Page;
use crate::tree::{Present, Tree, check_len};

/// Keys that go down together. At 16 the lines on their way are as many as a core can wait for;
/// 32 gained nothing.
const GROUP: usize = 16;

impl<K: Key + ?Sized> Tree<K> {
    /// The values of many keys, in the order of the keys; every look-up is atomic by itself.
    ///
    /// # Errors
    /// If a page cannot be read or fails its checks.
    ///
    /// # Panics
    /// If `values` is not as long as `keys`.
    ///
    /// # Examples
    /// ```
    /// use uplake_btree::{MemoryFile, Options, Tree};
    /// let tree = Tree::<u64>::create(MemoryFile::default(), Options::default())?;
    /// tree.put(&7, 70)?;
    /// let mut values = [None; 2];
    /// tree.get_many(&[7, 8], &mut values)?;
    /// assert_eq!(values, [Some(70), None]);
    /// # Ok::<(), uplake_btree::TreeError>(())
    /// ```
    pub fn get_many<Q: Borrow<K>>(&self, keys: &[Q], values: &mut [Option<u64>]) -> Result<()> {
        assert_eq!(keys.len(), values.len(), "one value per key");
        for (keys, values) in keys.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.get_group(keys, values)?;
        }
        Ok(())
    }

    fn get_group<Q: Borrow<K>>(&self, keys: &[Q], values: &mut [Option<u64>]) -> Result<()> {
        let (root, version) = self.root();
        let mut level = root.level();
        let mut steps: [Option<(Page<'_>, u64)>; GROUP] = [Some((root, version)); GROUP];
        let steps = &mut steps[..keys.len()];
        let mut starts = [0; GROUP];
        while level > 0 {
            level -= 1;
            prefetch_blocks(keys, steps, &mut starts);
            let mut pids = [0; GROUP];
            for (at, (key, step)) in keys.iter().zip(steps.iter()).enumerate() {
                let Some((page, _)) = step else { continue };
                let index = page.child_in::<K>(starts[at], key.borrow());
                pids[at] = page.value::<K>(index) as u32;
                if let Some(child) = self.pool.peek(pids[at]) {
                    child.prefetch_start();
                }
            }
            for (step, pid) in steps.iter_mut().zip(pids) {
                let Some((page, version)) = *step else { continue };
                let child = self.pool.resident(pid, level);
                *step = child.filter(|_| latch::validate(page.latch(), version));
            }
        }
        if K::FIXED {
            return self.read_fixed(keys, steps, &mut starts, values);
        }
        prefetch_blocks(keys, steps, &mut starts);
        for ((key, step), start) in keys.iter().zip(steps.iter()).zip(starts) {
            let Some((page, _)) = step else { continue };
            page.prefetch_tail::<K>(start, key.borrow());
        }
        for (at, (key, value)) in keys.iter().zip(values).enumerate() {
            let found = steps[at].and_then(|(page, version)| {
                let found = page.search_in::<K>(starts[at], key.borrow());
                let value = found.ok().map(|index| page.value::<K>(index));
                latch::validate(page.latch(), version).then_some(value)
            });
            // Not in memory, or changed under way: this key goes alone.
            *value = match found {
                Some(value) => value,
                None => self.get(key.borrow())?,
            };
        }
        Ok(())
    }

    /// Reads the values in the leaves: where heads are keys, only the line with the value is asked
    /// for, not both that the block of heads has.
    fn read_fixed<Q: Borrow<K>>(
        &self,
        keys: &[Q],
        steps: &[Option<(Page<'_>, u64)>],
        starts: &mut [usize; GROUP],
        values: &mut [Option<u64>],
    ) -> Result<()> {
        for ((key, step), start) in keys.iter().zip(steps).zip(starts.iter_mut()) {
            let Some((page, _)) = step else { continue };
            *start = page.prefetch_heads::<K>(key.borrow());
        }
        let mut found = [None; GROUP];
        for (((key, step), start), found) in keys.iter().zip(steps).zip(starts).zip(&mut found) {
            let Some((page, _)) = step else { continue };
            *found = page.search_in::<K>(*start, key.borrow()).ok();
            if let Some(index) = *found {
                page.prefetch_value::<K>(index);
            }
        }
        for (((key, step), found), value) in keys.iter().zip(steps).zip(found).zip(values) {
            let read = step.and_then(|(page, version)| {
                let value = found.map(|index| page.value::<K>(index));
                latch::validate(page.latch(), version).then_some(value)
            });
            *value = match read {
                Some(value) => value,
                None => self.get(key.borrow())?,
            };
        }
        Ok(())
    }

    /// Sets the values of strictly ascending keys, and puts the value each had into `previous`.
    ///
    /// Every key is written atomically by itself. After an error those before some key are written.
    ///
    /// # Errors
    /// [`TreeError::Unsorted`] and [`TreeError::KeyTooLong`] before anything is written; or if a
    /// page cannot be read or written.
    ///
    /// # Panics
    /// If `previous` is not as long as `entries`.
    pub fn put_sorted<Q: Borrow<K>>(
        &self,
        entries: &[(Q, u64)],
        previous: &mut [Option<u64>],
    ) -> Result<()> {
        self.write_sorted(entries, previous, Present::Replace)
    }

    /// Sets the values of those of the strictly ascending keys that have none, and puts the value
    /// each of the others has into `previous`.
    ///
    /// # Errors
    /// As [`Tree::put_sorted`].
    ///
    /// # Panics
    /// If `previous` is not as long as `entries`.
    pub fn insert_sorted_if_absent<Q: Borrow<K>>(
        &self,
        entries: &[(Q, u64)],
        previous: &mut [Option<u64>],
    ) -> Result<()> {
        self.write_sorted(entries, previous, Present::Keep)
    }

    fn write_sorted<Q: Borrow<K>>(
        &self,
        entries: &[(Q, u64)],
        previous: &mut [Option<u64>],
        present: Present,
    ) -> Result<()> {
        assert_eq!(entries.len(), previous.len(), "one previous value per entry");
        for (position, pair) in entries.windows(2).enumerate() {
            if pair[0].0.borrow() >= pair[1].0.borrow() {
                return Err(TreeError::Unsorted { position: position + 1 });
            }
        }
        entries.iter().try_for_each(|(key, _)| check_len(key.borrow()))?;
        let mut next = 0;
        while next < entries.len() {
            // One leaf at a time passes the gate, so that a checkpoint need not wait for all.
            let pass = self.gate.pass();
            let key = entries[next].0.borrow();
            let (page, version) = self.leaf(key)?;
            if !latch::try_latch(page.latch(), version) {
                continue;
            }
            let rest = (&entries[next..], &mut previous[next..]);
            let (done, inserted) = write_leaf::<K, Q>(page, rest, present);
            pass.count(inserted);
            next += done;
            if done == 0 {
                self.make_room(key, 0, key.bytes_len())?;
            }
        }
        Ok(())
    }
}

/// Writes entries into a latched leaf until one belongs elsewhere or does not fit, and releases the
/// latch. Gives how many were written and how many of them are new.
fn write_leaf<K: Key + ?Sized, Q: Borrow<K>>(
    page: Page<'_>,
    (entries, previous): (&[(Q, u64)], &mut [Option<u64>]),
    present: Present,
) -> (usize, i64) {
    let (mut done, mut inserted, mut replaced) = (0, 0, 0);
    for ((key, value), previous) in entries.iter().zip(previous) {
        let key = key.borrow();
        if done > 0 && !page.is_below_upper(key) {
            break;
        }
        match page.search(key) {
            Ok(index) => {
                *previous = Some(page.value::<K>(index));
                if present == Present::Replace {
                    page.set_value::<K>(index, *value);
                    replaced += 1;
                }
            }
            Err(index) => {
                if !page.insert(index, key, *value) {
                    break;
                }
                *previous = None;
                inserted += 1;
            }
        }
        done += 1;
    }
    if inserted + replaced > 0 {
        page.set_dirty(true);
        latch::release_changed(page.latch());
    } else {
        latch::release_unchanged(page.latch());
    }
    (done, inserted)
}

#[inline(always)]
fn prefetch_blocks<K: Key + ?Sized, Q: Borrow<K>>(
    keys: &[Q],
    steps: &[Option<(Page<'_>, u64)>],
    starts: &mut [usize; GROUP],
) {
    for ((key, step), start) in keys.iter().zip(steps).zip(starts) {
        let Some((page, _)) = step else { continue };
        *start = page.prefetch_block::<K>(key.borrow());
    }
}
