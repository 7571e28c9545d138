//! One bit per row of a file: what scattered rows become.
//!
//! # Invariants
//! - Bits at and after `rows` are 0.

use std::ops::Range;

use crate::run::Run;

/// Words of a bitmap of one chunk of rows.
pub(crate) const WORDS: usize = 1024;

/// A set of rows as one bit each, lowest bit first: what Arrow calls a boolean buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    words: Vec<u64>,
    rows: u32,
}

impl Mask {
    /// No row of a file of `rows` rows.
    #[must_use]
    pub fn new(rows: u32) -> Self {
        Self { words: vec![0; (rows as usize).div_ceil(64)], rows }
    }

    /// Number of rows of the file, set or not.
    #[must_use]
    pub fn file_rows(&self) -> u32 {
        self.rows
    }

    /// Row `64 * w + b` is bit `b` of word `w`.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words, for an Arrow buffer without a copy.
    #[must_use]
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// Whether `row` is set; rows beyond the file are not.
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Number of rows set.
    #[must_use]
    pub fn cardinality(&self) -> u64 {
        count(&self.words)
    }

    /// Number of maximal runs.
    #[must_use]
    pub fn run_count(&self) -> u64 {
        let mut carry = 0;
        let starts = self.words.iter().map(|&word| {
            let starts = word & !(word << 1 | carry);
            carry = word >> 63;
            u64::from(starts.count_ones())
        });
        starts.sum()
    }

    /// Whether there are more than `most` maximal runs. Stops counting where the answer is known.
    pub(crate) fn has_more_runs_than(&self, most: u64) -> bool {
        let (mut carry, mut count) = (0, 0);
        for words in self.words.chunks(256) {
            let starts = words.iter().map(|&word| {
                let starts = word & !(word << 1 | carry);
                carry = word >> 63;
                u64::from(starts.count_ones())
            });
            count += starts.sum::<u64>();
            if count > most {
                return true;
            }
        }
        false
    }

    /// The first run that ends after `from`, without the rows below `from`.
    pub(crate) fn next_run(&self, from: u32) -> Option<Run> {
        let edge = |from: u32, flip: u64| {
            let mut index = from as usize / 64;
            let mut word = (self.words.get(index)? ^ flip) & (!0 << (from % 64));
            while word == 0 {
                index += 1;
                word = self.words.get(index)? ^ flip;
            }
            Some(index as u32 * 64 + word.trailing_zeros())
        };
        let start = edge(from, 0)?;
        Some(Run::new(start, edge(start, !0).unwrap_or(self.rows).min(self.rows)))
    }

    /// Clears the rows that are not in `other`.
    pub(crate) fn keep(&mut self, other: &Self) {
        let common = self.words.len().min(other.words.len());
        self.words[common..].fill(0);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Clears the rows that are not in `runs`, which ascend and do not overlap.
    pub(crate) fn keep_runs(&mut self, runs: &[Run]) {
        let mut done = 0;
        for run in runs {
            clear(&mut self.words, done, run.start.min(self.rows));
            done = run.end.min(self.rows);
        }
        clear(&mut self.words, done, self.rows);
    }

    /// The words of a chunk, fewer at the end of the file; none after it.
    pub(crate) fn chunk_mut(&mut self, key: u16) -> &mut [u64] {
        let start = (usize::from(key) * WORDS).min(self.words.len());
        let end = (start + WORDS).min(self.words.len());
        &mut self.words[start..end]
    }

    /// Clears the chunks in `keys`.
    pub(crate) fn clear_chunks(&mut self, keys: Range<u32>) {
        let at = |key: u32| (key as usize * WORDS).min(self.words.len());
        let (start, end) = (at(keys.start), at(keys.end.max(keys.start)));
        self.words[start..end].fill(0);
    }

    /// Sets `run`, cut at the end of the file.
    pub fn set_run(&mut self, run: Run) {
        fill(&mut self.words, run.start, run.end.min(self.rows));
    }

    /// Sets `row`; false if the file has no such row.
    #[inline]
    #[must_use]
    pub fn set(&mut self, row: u32) -> bool {
        if row >= self.rows {
            return false;
        }
        self.words[row as usize / 64] |= 1 << (row % 64);
        true
    }

    /// Sets the rows of a word; false if one of them is beyond the file.
    #[must_use]
    pub(crate) fn set_word(&mut self, index: usize, word: u64) -> bool {
        let first = index as u64 * 64;
        let inside = u64::from(self.rows).saturating_sub(first);
        if word == 0 {
            return true;
        }
        if inside < 64 && word >> inside != 0 {
            return false;
        }
        self.words[index] |= word;
        true
    }

    /// The rows as sorted maximal runs.
    #[must_use]
    pub fn to_runs(&self) -> Vec<Run> {
        let mut edges = Vec::new();
        find_edges(&self.words, &mut edges);
        pairs(&edges)
    }
}

/// Ones in `words`.
pub(crate) fn count(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Sets the bits `start..end`, which lie inside `words`.
#[inline]
pub(crate) fn fill(words: &mut [u64], start: u32, end: u32) {
    if start >= end {
        return;
    }
    let (first, last) = (start as usize / 64, (end - 1) as usize / 64);
    let (head, tail) = (!0 << (start % 64), !0 >> (63 - (end - 1) % 64));
    if first == last {
        words[first] |= head & tail;
    } else {
        words[first] |= head;
        words[first + 1..last].fill(!0);
        words[last] |= tail;
    }
}

/// Clears the bits `start..end`, which lie inside `words`.
#[inline]
fn clear(words: &mut [u64], start: u32, end: u32) {
    if start >= end {
        return;
    }
    let (first, last) = (start as usize / 64, (end - 1) as usize / 64);
    let (head, tail) = (!0 << (start % 64), !0 >> (63 - (end - 1) % 64));
    if first == last {
        words[first] &= !(head & tail);
    } else {
        words[first] &= !head;
        words[first + 1..last].fill(0);
        words[last] &= !tail;
    }
}

/// The places where bits change from 0 to 1 or back: start, end, start, end …
///
/// A change is a 1 in `word ^ (word << 1)`, so runs cost one step per edge and equal words one
/// comparison, whatever the run lengths. Eight places are written at a time, needed or not: a
/// branch per place would be mispredicted once a word. One instruction to count and to find ones
/// (`popcnt`, `bmi1`) would save 7 % of a union, which is not worth unsafe code.
pub(crate) fn find_edges(words: &[u64], edges: &mut Vec<u32>) {
    const GROUP: usize = 8;
    let mut count = 0;
    let mut carry = 0;
    for (index, &word) in words.iter().enumerate() {
        let change = word ^ (word << 1 | carry);
        carry = word >> 63;
        if change == 0 {
            continue;
        }
        if edges.len() < count + 64 {
            edges.resize(2 * count + 1024, 0);
        }
        let mut rest = change;
        for group in edges[count..count + 64].as_chunks_mut::<GROUP>().0 {
            for edge in group {
                *edge = index as u32 * 64 + rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
            }
            if rest == 0 {
                break;
            }
        }
        count += change.count_ones() as usize;
    }
    edges.truncate(count);
    if carry == 1 {
        edges.push(words.len() as u32 * 64);
    }
}

/// Edges two by two.
pub(crate) fn pairs(edges: &[u32]) -> Vec<Run> {
    edges.as_chunks::<2>().0.iter().map(|&[start, end]| Run::new(start, end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_into_a_mask_and_come_out() {
        for pairs in [
            vec![],
            vec![(0, 1)],
            vec![(63, 65)],
            vec![(0, 64), (65, 128), (130, 200)],
            vec![(1, 63), (64, 65), (127, 193), (199, 200)],
            vec![(0, 200)],
        ] {
            let runs: Vec<Run> = pairs.iter().map(|&(a, b)| Run::new(a, b)).collect();
            let mut mask = Mask::new(200);
            for &run in &runs {
                mask.set_run(run);
            }
            assert_eq!(mask.to_runs(), runs);
            assert_eq!(mask.cardinality(), crate::run::rows(&runs));
            for row in 0..210 {
                assert_eq!(mask.contains(row), runs.iter().any(|run| run.contains(row)));
            }
        }
    }

    #[test]
    fn rows_beyond_the_file_are_refused() {
        let mut mask = Mask::new(70);
        assert!(mask.set(69));
        assert!(!mask.set(70));
        assert!(mask.set_word(1, 0x3f));
        assert!(!mask.set_word(1, 0x40));
        assert!(!mask.set_word(2, 1));
        mask.set_run(Run::new(60, 1000));
        assert_eq!(mask.cardinality(), 10);
    }
}
