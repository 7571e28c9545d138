//! Bulk load: a whole tree from sorted entries, each page written once.

use std::borrow::Borrow;

use crate::error::{Result, TreeError};
use crate::key::{Entries, Key, common_prefix};
use crate::latch;
use crate::page::{Fences, ROOM, ROOT, bytes_needed, ident};
use crate::restructure::{ASCENDING_FILL, border_at, first_key};
use crate::tree::{Tree, check_len};

/// Bytes of a page that are filled.
const GOAL: usize = (ROOM as f64 * ASCENDING_FILL) as usize;

/// The page of one level that is being filled.
#[derive(Default)]
struct Filling {
    entries: Entries,
    lower: Option<Vec<u8>>,
    /// Bytes the keys have in common with the lower fence.
    prefix: usize,
    bytes: usize,
    pages: usize,
}

/// Levels from the leaves up, and the pages made so far.
#[derive(Default)]
struct Builder {
    levels: Vec<Filling>,
    pids: Vec<u32>,
}

impl<K: Key + ?Sized> Tree<K> {
    /// Fills an empty tree with strictly ascending keys; gives how many there were.
    ///
    /// Pages are filled to 15/16. On an error the tree is empty again.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`], [`TreeError::Unsorted`], [`TreeError::KeyTooLong`]; or if pages cannot
    /// be written to make room in the pool.
    pub fn bulk_load<Q: Borrow<K>>(
        &mut self,
        entries: impl IntoIterator<Item = (Q, u64)>,
    ) -> Result<u64> {
        let root = self.root().0;
        if root.level() > 0 || root.count::<K>() > 0 {
            return Err(TreeError::NotEmpty);
        }
        let mut builder = Builder::default();
        match self.build(&mut builder, entries) {
            Ok(count) => {
                self.gate.pass().count(count as i64);
                Ok(count)
            }
            Err(error) => {
                builder.pids.into_iter().for_each(|pid| self.pool.discard(pid));
                Err(error)
            }
        }
    }

    fn build<Q: Borrow<K>>(
        &self,
        builder: &mut Builder,
        entries: impl IntoIterator<Item = (Q, u64)>,
    ) -> Result<u64> {
        builder.levels.push(Filling::default());
        let mut count = 0;
        let mut last = Vec::new();
        for (key, value) in entries {
            let key = key.borrow();
            check_len(key)?;
            key.with_bytes(|key| {
                if count > 0 && last.as_slice() >= key {
                    return Err(TreeError::Unsorted { position: count });
                }
                last.clear();
                last.extend_from_slice(key);
                self.push(builder, 0, key, value)
            })?;
            count += 1;
        }
        self.finish(builder)?;
        Ok(count as u64)
    }

    fn push(&self, builder: &mut Builder, level: usize, key: &[u8], value: u64) -> Result<()> {
        if level == builder.levels.len() {
            builder.levels.push(Filling::default());
        }
        let filling = &mut builder.levels[level];
        filling.add::<K>(key, value);
        while builder.levels[level].bytes > GOAL && builder.levels[level].entries.len() > 1 {
            self.emit(builder, level)?;
        }
        Ok(())
    }

    /// Writes all but the last entries of a level into a page.
    fn emit(&self, builder: &mut Builder, level: usize) -> Result<()> {
        let filling = &builder.levels[level];
        let entries = &filling.entries;
        let mut at = entries.len() - 1;
        let (border, fences) = loop {
            let border = border_at::<K>(entries, at, level as u8);
            let fences = Fences::new(filling.lower.as_deref(), Some(border));
            // The border may share less with the lower fence than the keys below it do.
            if at == 1 || bytes_needed(entries, 0..at, &fences, K::FIXED) <= ROOM {
                break (border.to_vec(), fences);
            }
            at -= 1;
        };
        self.write_page(builder, level, at, &fences)?;
        let filling = &mut builder.levels[level];
        let rest = std::mem::take(&mut filling.entries);
        let pages = filling.pages;
        *filling = Filling { lower: Some(border), pages, ..Filling::default() };
        for index in at..rest.len() {
            filling.add::<K>(rest.key(index), rest.value(index));
        }
        Ok(())
    }

    /// Makes a page of the first entries of a level, and tells the level above.
    fn write_page(
        &self,
        builder: &mut Builder,
        level: usize,
        count: usize,
        fences: &Fences,
    ) -> Result<()> {
        let mut reserve = self.pool.reserve(1)?;
        let page = reserve.make(level as u8);
        let pid = page.pid();
        page.rewrite::<K>(&builder.levels[level].entries, 0..count, fences);
        latch::release_changed(page.latch());
        drop(reserve);
        builder.pids.push(pid);
        builder.levels[level].pages += 1;
        let lower = fences.lower.as_deref().unwrap_or(first_key::<K>());
        self.push(builder, level + 1, lower, u64::from(pid))
    }

    fn finish(&self, builder: &mut Builder) -> Result<()> {
        let mut level = 0;
        // A level with one page is the root.
        while builder.levels[level].pages > 0 {
            let filling = &builder.levels[level];
            let fences = Fences::new(filling.lower.as_deref(), None);
            let count = filling.entries.len();
            // Without an upper fence keys have no common prefix, and may need more room.
            if bytes_needed(&filling.entries, 0..count, &fences, K::FIXED) > ROOM {
                self.emit(builder, level)?;
                continue;
            }
            self.write_page(builder, level, count, &fences)?;
            level += 1;
        }
        let (root, _) = self.root();
        latch::latch(root.latch());
        let entries = &builder.levels[level].entries;
        root.set_ident(ident::<K>(ROOT, level as u8));
        root.rewrite::<K>(entries, 0..entries.len(), &Fences::default());
        root.set_dirty(true);
        latch::release_changed(root.latch());
        Ok(())
    }
}

impl Filling {
    fn add<K: Key + ?Sized>(&mut self, key: &[u8], value: u64) {
        self.entries.push(key, value);
        if K::FIXED {
            self.bytes += 16;
            return;
        }
        let lower = self.lower.as_deref();
        let prefix = lower.map_or(0, |lower| common_prefix(lower, key));
        let size = |key: &[u8], prefix: usize| 20 + key.len().saturating_sub(prefix + 8);
        if self.entries.len() > 1 && prefix >= self.prefix {
            self.bytes += size(key, self.prefix);
            return;
        }
        // Rare: the keys of a page grow apart a few times at most.
        self.prefix = prefix;
        let fences = lower.map_or(0, <[u8]>::len);
        let keys = (0..self.entries.len()).map(|index| size(self.entries.key(index), prefix));
        self.bytes = keys.sum::<usize>() + 2 * fences;
    }
}
