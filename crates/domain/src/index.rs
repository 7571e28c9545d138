//! From the hash of a key to its number, in [`SHARDS`] shards.
//!
//! The first 8 bits of a hash say which [`Shard`], the next 32 are its tag there. Shards are in
//! memory, or in a file until a key of theirs is asked for.
//!
//! # Invariants
//! - A tag that is found is a candidate: the caller compares the key.
//! - An index over a file answers only for shards that [`Index::load`] has read; the others look
//!   empty. Who inserts a hash has loaded its shard.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::error::Result;
use crate::index_file::IndexFile;
use crate::shard::{SHARDS, Shard};

static EMPTY: Shard = Shard::empty();

/// Numbers below 2^31 by the hashes of what they number.
#[derive(Debug)]
pub(crate) struct Index {
    /// Those that are not set are in the file.
    shards: Vec<OnceLock<Shard>>,
    /// How many are not set.
    missing: AtomicUsize,
    file: Option<IndexFile>,
}

impl Default for Index {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| OnceLock::from(Shard::default())).collect();
        Self { shards, missing: AtomicUsize::new(0), file: None }
    }
}

#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 24) as u32
}

impl Index {
    /// The index in a file.
    pub(crate) fn over(file: IndexFile) -> Self {
        let shards = (0..SHARDS).map(|_| OnceLock::new()).collect();
        Self { shards, missing: AtomicUsize::new(SHARDS), file: Some(file) }
    }

    /// Whether every shard is in memory.
    #[inline]
    pub(crate) fn is_in_memory(&self) -> bool {
        self.missing.load(Relaxed) == 0
    }

    /// Reads the shard of a hash, if it is not in memory.
    #[inline]
    pub(crate) fn load(&self, hash: u64) -> Result<()> {
        if self.shards[shard_of(hash)].get().is_some() {
            Ok(())
        } else {
            self.fetch(shard_of(hash))
        }
    }

    /// Reads every shard that is not in memory.
    pub(crate) fn load_all(&self) -> Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        (0..SHARDS)
            .filter(|shard| self.shards[*shard].get().is_none())
            .try_for_each(|n| self.fetch(n))
    }

    fn fetch(&self, number: usize) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // Another thread may be faster with the same.
        if self.shards[number].set(file.shard(number)?).is_ok() {
            self.missing.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        self.shards[shard_of(hash)].get().unwrap_or(&EMPTY)
    }

    /// The shards, all of which must be in memory.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        debug_assert!(self.is_in_memory(), "a checkpoint is of the whole index");
        self.shards.iter().map(|shard| shard.get().unwrap_or(&EMPTY))
    }

    /// Makes room for `more` entries at once, instead of step by step.
    pub(crate) fn reserve(&mut self, more: usize) {
        for shard in self.shards.iter_mut().filter_map(OnceLock::get_mut) {
            shard.reserve(more / SHARDS);
        }
    }

    /// Adds an entry, which must not be there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        let shard = self.shards[shard_of(hash)].get_mut().expect("who inserts has looked it up");
        shard.insert(tag_of(hash), number);
    }

    /// The number for which `is_it` says so, asked of those whose hash looks the same.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shard(hash).find(tag_of(hash), is_it)
    }

    /// The first candidate in the key's home, and whether the search may end with that one: a
    /// candidate that is the key is the answer, and a miss is an answer if this says so.
    #[inline]
    pub(crate) fn first(&self, hash: u64) -> (Option<u32>, bool) {
        self.shard(hash).first(tag_of(hash))
    }

    /// Reads a word of the key's home, so that its line is on the way while others are asked for.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        self.shard(hash).touch(tag_of(hash))
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.shards.iter().filter_map(OnceLock::get);
        shards.map(Shard::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes with few different tags and shards.
    fn crowded(number: u32) -> u64 {
        u64::from(number % 3) << 56 | u64::from(number % 7) << 24
    }

    fn spread(number: u32) -> u64 {
        u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn check(hash: impl Fn(u32) -> u64, reserved: bool) {
        let mut index = Index::default();
        if reserved {
            index.reserve(3000);
        }
        for number in 0..3000 {
            assert_eq!(index.find(hash(number), |it| it == number), None);
            index.insert(hash(number), number);
        }
        for number in 0..3000 {
            assert_eq!(index.find(hash(number), |it| it == number), Some(number));
            let (first, is_all) = index.first(hash(number));
            assert!(first.is_some() || !is_all, "{number} is there");
        }
    }

    #[test]
    fn every_entry_is_found_however_it_grew() {
        check(spread, false);
        check(spread, true);
    }

    #[test]
    fn entries_of_one_hash_are_told_apart_by_the_caller() {
        check(crowded, false);
        check(crowded, true);
    }
}
