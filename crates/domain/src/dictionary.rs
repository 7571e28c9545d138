//! The dictionary in memory: a hash index over the keys in order of their ids.
//!
//! A look-up is two misses of the cache: the bucket and the key, which is always compared, so that
//! an answer is never a guess. A batch takes 32 keys through each step together, and because the
//! steps of different keys do not depend on each other, the processor waits for all at once.
//!
//! With a limit of memory, parts of both may be in files still ([`crate::key_table`],
//! [`crate::index_file`]); then keys go through the steps one by one, in order of their ids.

use std::hint::black_box;
use std::ops::Range;

use crate::error::Result;
use crate::hash::hash;
use crate::index::Index;
use crate::key_file::{Held, Place};
use crate::key_table::KeyTable;
use crate::keys::{KeyHeap, Keys};
use crate::position::Position;

/// Keys that go through the steps together: more than a core can have misses under way.
const GROUP: usize = 32;
/// So many keys looked up at once need most of the index and of the keys: all of it is read.
const MANY: usize = 1024;
/// Keys of a file hashed together.
const HASH_BYTES: usize = 1 << 20;
/// In place of an id: the key has none.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// Keys and ids, both ways.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    pub(crate) position: Position,
    pub(crate) keys: KeyTable,
    index: Index,
    seed: u64,
}

impl Dictionary {
    /// An empty dictionary; `seed` keeps chosen keys from colliding.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The id that the next new key gets.
    pub(crate) fn next_id(&self) -> u32 {
        self.keys.len() as u32
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    /// Whether nothing is in files only.
    #[inline]
    fn is_in_memory(&self) -> bool {
        self.index.is_in_memory() && self.keys.is_in_memory()
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<u32>> {
        let hash = self.hash(key);
        if self.is_in_memory() {
            return Ok(self.find_hashed(hash, key));
        }
        self.find_in_file(hash, key, &mut Held::default())
    }

    fn find_in_file(&self, hash: u64, key: &[u8], held: &mut Held) -> Result<Option<u32>> {
        self.index.load(hash)?;
        let mut trouble = None;
        let is_it = |id: u32| match self.keys.read(id, held) {
            Ok(found) => found == Some(key),
            Err(error) => {
                trouble = Some(error);
                true
            }
        };
        let found = self.index.find(hash, is_it);
        trouble.map_or(Ok(found), Err)
    }

    #[inline]
    fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |id| self.keys.get(id) == Some(key))
    }

    /// Ids of the keys of some rows, [`UNKNOWN`] where there is none.
    ///
    /// # Errors
    /// Those of reading what is in files only.
    ///
    /// # Panics
    /// If `ids` is not as long as `rows`.
    pub(crate) fn find_many<K: Keys + ?Sized>(
        &self,
        keys: &K,
        rows: impl ExactSizeIterator<Item = usize>,
        ids: &mut [u32],
    ) -> Result<()> {
        assert_eq!(rows.len(), ids.len(), "one id per row");
        if !self.is_in_memory() {
            if rows.len() >= MANY {
                self.index.load_all()?;
                self.keys.load_all()?;
            }
            if !self.is_in_memory() {
                return self.find_many_in_file(keys, rows, ids);
            }
        }
        let mut rows = rows;
        for ids in ids.chunks_mut(GROUP) {
            let mut group: [&[u8]; GROUP] = [&[]; GROUP];
            for (key, row) in group.iter_mut().zip(rows.by_ref().take(ids.len())) {
                *key = keys.key(row);
            }
            self.find_group(&group[..ids.len()], ids);
        }
        Ok(())
    }

    /// The same with keys in the file: in order of their ids, so that a page is read once.
    fn find_many_in_file<K: Keys + ?Sized>(
        &self,
        keys: &K,
        rows: impl Iterator<Item = usize>,
        ids: &mut [u32],
    ) -> Result<()> {
        let mut order = Vec::with_capacity(ids.len());
        for (at, row) in rows.enumerate() {
            let hash = self.hash(keys.key(row));
            self.index.load(hash)?;
            let (first, is_all) = self.index.first(hash);
            ids[at] = UNKNOWN;
            if first.is_some() || !is_all {
                order.push((first.unwrap_or(UNKNOWN), at as u32, row as u32, hash));
            }
        }
        order.sort_unstable();
        let mut held = Held::default();
        for (_, at, row, hash) in order {
            let found = self.find_in_file(hash, keys.key(row as usize), &mut held)?;
            ids[at as usize] = found.unwrap_or(UNKNOWN);
        }
        Ok(())
    }

    /// Each loop is short, so that the processor has the misses of many keys under way at once.
    #[inline]
    fn find_group(&self, keys: &[&[u8]], ids: &mut [u32]) {
        let mut hashes = [0; GROUP];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key);
        }
        let hashes = &hashes[..keys.len()];
        black_box(hashes.iter().fold(0, |touched, hash| touched ^ self.index.touch(*hash)));
        let mut is_all = [false; GROUP];
        for ((id, is_all), hash) in ids.iter_mut().zip(&mut is_all).zip(hashes) {
            let (first, last) = self.index.first(*hash);
            (*id, *is_all) = (first.unwrap_or(UNKNOWN), last);
        }
        black_box(ids.iter().fold(0, |touched, id| touched ^ self.keys.touch_place(*id)));
        let mut candidates: [&[u8]; GROUP] = [&[]; GROUP];
        let mut touched = 0;
        for (candidate, id) in candidates.iter_mut().zip(ids.iter()) {
            *candidate = self.keys.get(*id).unwrap_or_default();
            touched ^= candidate.first().unwrap_or(&0) ^ candidate.last().unwrap_or(&0);
        }
        black_box(touched);
        for (at, (id, key)) in ids.iter_mut().zip(keys).enumerate() {
            if *id == UNKNOWN || candidates[at] != *key {
                let found = if is_all[at] { None } else { self.find_hashed(hashes[at], key) };
                *id = found.unwrap_or(UNKNOWN);
            }
        }
    }

    /// Gives the next ids to the keys of `rows`, which have none, in their order.
    ///
    /// # Panics
    /// Unless they were looked up before: that reads what of the index is in a file only.
    pub(crate) fn extend<K: Keys + ?Sized>(&mut self, keys: &K, rows: Range<usize>) {
        let mut hashes = [0; GROUP];
        for first in rows.clone().step_by(GROUP) {
            let hashes = &mut hashes[..GROUP.min(rows.end - first)];
            for (row, hash) in (first..).zip(&mut *hashes) {
                *hash = self.hash(keys.key(row));
            }
            black_box(hashes.iter().fold(0, |touched, hash| touched ^ self.index.touch(*hash)));
            for (row, hash) in (first..).zip(&*hashes) {
                self.index.insert(*hash, self.next_id());
                self.keys.push(keys.key(row), rows.end - row - 1);
            }
        }
    }

    /// Makes room for more keys.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.index.reserve(more);
    }

    /// Bytes of memory: of the index and of the keys.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.index.bytes(), self.keys.bytes())
    }

    /// Takes keys and the index of the first `indexed` of them, made with `seed`, from files; the
    /// rest of the keys is indexed here.
    pub(crate) fn resume(
        &mut self,
        keys: KeyTable,
        index: Option<(Index, u64, u32)>,
    ) -> Result<()> {
        self.keys = keys;
        let mut indexed = 0;
        if let Some((index, seed, keys)) = index {
            (self.index, self.seed, indexed) = (index, seed, keys);
        }
        if self.keys.len() - indexed as usize >= MANY {
            self.index.load_all()?;
        }
        self.index.reserve(self.keys.len() - indexed as usize);
        let (index, seed) = (&mut self.index, self.seed);
        let (mut heap, mut trouble) = (KeyHeap::default(), Ok(()));
        let mut insert = |heap: &mut KeyHeap, end: u32| {
            let first = end - heap.len() as u32;
            let hashes: Vec<u64> = (0..heap.len()).map(|row| hash(seed, heap.key(row))).collect();
            for (group, hashes) in hashes.chunks(GROUP).enumerate() {
                black_box(hashes.iter().fold(0, |touched, hash| touched ^ index.touch(*hash)));
                for (id, hash) in (first + (group * GROUP) as u32..).zip(hashes) {
                    index.load(*hash)?;
                    index.insert(*hash, id);
                }
            }
            heap.clear();
            Ok(())
        };
        self.keys.for_each_from(indexed, |id, key| {
            heap.push(key);
            if heap.bytes() >= HASH_BYTES && trouble.is_ok() {
                trouble = insert(&mut heap, id + 1);
            }
        })?;
        trouble?;
        insert(&mut heap, self.keys.len() as u32)
    }

    /// The index whole, for a checkpoint, and the seed of its hashes.
    pub(crate) fn whole_index(&self) -> Result<(&Index, u64)> {
        self.index.load_all()?;
        Ok((&self.index, self.seed))
    }

    /// Notes that keys are in the file, and keeps to `limit` bytes as far as the index lets it.
    pub(crate) fn filed(&mut self, places: &[Place], limit: u64) {
        self.keys.filed(places, limit.saturating_sub(self.index_bytes()));
    }

    /// Bytes of the index when all of it is in memory.
    fn index_bytes(&self) -> u64 {
        // What is in a file only will take about 9.4 bytes a key.
        (self.index.bytes() as u64).max(self.keys.len() as u64 * 47 / 5)
    }
}

/// Rows of a batch that hold different keys, the first of each.
pub(crate) struct Distinct<'k, K: ?Sized> {
    keys: &'k K,
    index: Index,
    seed: u64,
    /// The rows, in their order.
    pub(crate) rows: Vec<u32>,
}

impl<'k, K: Keys + ?Sized> Distinct<'k, K> {
    /// Over `keys`, of which about `expected` different rows will be pushed.
    pub(crate) fn new(keys: &'k K, seed: u64, expected: usize) -> Self {
        let mut index = Index::default();
        index.reserve(expected);
        Self { keys, index, seed, rows: Vec::new() }
    }

    /// Notes a row unless its key was there. Where in `rows` the key's first row is.
    pub(crate) fn push(&mut self, row: usize) -> u32 {
        let key = self.keys.key(row);
        let hash = hash(self.seed, key);
        let rows = &self.rows;
        let is_it = |at: u32| self.keys.key(rows[at as usize] as usize) == key;
        if let Some(at) = self.index.find(hash, is_it) {
            return at;
        }
        let at = self.rows.len() as u32;
        self.index.insert(hash, at);
        self.rows.push(row as u32);
        at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_batch_finds_what_single_look_ups_find() {
        let key = |n: usize| format!("user_{:x}{}", n * n, "x".repeat(n % 4)).into_bytes();
        let known: Vec<Vec<u8>> = (0..40_000).map(key).collect();
        let mut dictionary = Dictionary::new(3);
        dictionary.extend(&known, 0..10);
        dictionary.reserve(known.len());
        dictionary.extend(&known, 10..known.len());
        let asked: Vec<Vec<u8>> = (0..50_001).rev().map(key).chain([Vec::new()]).collect();
        let mut ids = vec![7; asked.len()];
        dictionary.find_many(&asked, 0..asked.len(), &mut ids).expect("in memory");
        let find = |key: &[u8]| dictionary.find(key).expect("in memory");
        let model: HashMap<&[u8], u32> = known.iter().map(Vec::as_slice).zip(0..).collect();
        for (key, id) in asked.iter().zip(ids) {
            let expected = model.get(&key[..]).copied();
            assert_eq!((id != UNKNOWN).then_some(id), expected);
            assert_eq!(find(key), expected);
        }
        assert_eq!(find(&known[39_999]), Some(39_999));
        assert_eq!(find(&key(40_000)), None);
    }

    #[test]
    fn distinct_rows_are_the_first_of_their_keys() {
        let keys = ["b", "a", "b", "", "a", "", "c"];
        let mut distinct = Distinct::new(&keys, 1, 2);
        let places: Vec<u32> = (0..keys.len()).map(|row| distinct.push(row)).collect();
        assert_eq!(distinct.rows, [0, 1, 3, 6]);
        assert_eq!(places, [0, 1, 0, 2, 1, 2, 3]);
    }
}
