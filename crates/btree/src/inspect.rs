//! What the tree looks like, and whether it is one.

use crate::error::{Result, TreeError};
use crate::key::{Entries, Key};
use crate::latch;
use crate::page::{Fences, ROOT, ident};
use crate::pool::{Expected, Fetched, PoolStats};
use crate::tree::{Seek, Tree};

/// A tree's shape and its pool's work.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeStats {
    /// Levels, leaves included.
    pub height: usize,
    /// Entries of the leaves.
    pub entries: u64,
    /// Pages per level, leaves first.
    pub pages: Vec<u64>,
    /// Mean filled part of a page per level, leaves first, 0 to 1.
    pub fill: Vec<f64>,
    /// Pages split since the tree was opened.
    pub splits: u64,
    /// Pages merged since the tree was opened.
    pub merges: u64,
    /// Times two neighbours were divided anew instead.
    pub shifts: u64,
    /// Blocks of [`crate::PAGE_BYTES`] of the file.
    pub blocks: u32,
    /// How many of them are free.
    pub free_blocks: u32,
    /// The buffer pool.
    pub pool: PoolStats,
}

impl<K: Key + ?Sized> Tree<K> {
    /// Visits every page, checks it and its place in the tree, and measures it. Reads the whole file
    /// through the pool. Nobody may write meanwhile.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] if the tree is not one; or if a page cannot be read.
    pub fn inspect(&self) -> Result<TreeStats> {
        let levels = usize::from(self.root().0.level()) + 1;
        let mut stats = self.counters();
        stats.height = levels;
        stats.pages = vec![0; levels];
        stats.fill = vec![0.0; levels];
        let expected = Expected { fences: Fences::default(), level: Some(levels as u8 - 1) };
        self.visit(ROOT, &expected, &mut stats)?;
        for (fill, pages) in stats.fill.iter_mut().zip(&stats.pages) {
            *fill /= *pages as f64;
        }
        if stats.entries != self.len() {
            let (found, counted) = (stats.entries, self.len());
            return Err(TreeError::corrupt(format!("{found} entries, {counted} were counted")));
        }
        // Reading the pages was part of the work.
        stats.pool = self.pool.stats();
        Ok(stats)
    }

    /// Numbers of the pages on the way to a key, the root first: what an access trace is made of. They
    /// are read if they are not in memory, and may have changed when this returns.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn pages_to(&self, key: &K) -> Result<Vec<u32>> {
        Ok(self.path(Seek::At(key), 0)?.iter().map(|step| step.page.pid()).collect())
    }

    /// What [`Tree::inspect`] gives without a visit: counts of events, the file and the pool.
    /// Everything about pages is zero or empty.
    pub fn counters(&self) -> TreeStats {
        let load =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        let (blocks, free_blocks, _) = self.pool.file_usage();
        TreeStats {
            height: 0,
            entries: 0,
            pages: Vec::new(),
            fill: Vec::new(),
            splits: load(&self.restructured.splits),
            merges: load(&self.restructured.merges),
            shifts: load(&self.restructured.shifts),
            blocks,
            free_blocks,
            pool: self.pool.stats(),
        }
    }

    fn visit(&self, pid: u32, expected: &Expected, stats: &mut TreeStats) -> Result<()> {
        let level = expected.level.unwrap_or(0);
        let wrong = |what: &str| Err(TreeError::corrupt(format!("page {pid}: {what}")));
        let (page, version) = loop {
            if self.pool.fetch(pid, expected)? == Fetched::NotThere {
                return wrong("it is not what its parent says");
            }
            if let Some(page) = self.pool.peek(pid) {
                let version = latch::read(page.latch());
                if page.pid() == pid {
                    break (page, version);
                }
            }
        };
        let is_ident_right = page.ident() == ident::<K>(pid, level);
        let checked = page.check::<K>();
        let fences = page.fences();
        let fill = page.fill::<K>();
        let mut entries = Entries::default();
        page.copy_entries::<K>(0..page.count::<K>(), &mut entries);
        if !latch::validate(page.latch(), version) {
            // Evicted while we looked: again. Nobody writes, so this ends.
            return self.visit(pid, expected, stats);
        }
        if !is_ident_right {
            return wrong("not of this level");
        }
        checked.or_else(wrong)?;
        if fences != expected.fences {
            return wrong("fences differ from the parent's borders");
        }
        stats.pages[usize::from(level)] += 1;
        stats.fill[usize::from(level)] += fill;
        if level == 0 {
            stats.entries += entries.len() as u64;
            return Ok(());
        }
        let all = entries.len();
        for index in 0..all {
            let lower = if index == 0 { fences.lower.as_deref() } else { Some(entries.key(index)) };
            let upper = if index + 1 == all {
                fences.upper.as_deref()
            } else {
                Some(entries.key(index + 1))
            };
            let fences = Fences::new(lower, upper);
            let expected = Expected { fences, level: Some(level - 1) };
            self.visit(entries.value(index) as u32, &expected, stats)?;
        }
        Ok(())
    }
}
