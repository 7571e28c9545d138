//! Rows in the order in which they came, the last of them in memory: those of `system` tables until they are in the
//! lake, and a while longer.
//!
//! # Invariants
//! - Each row has a number of its own, from 1, one more than the row before.
//! - A row that is not in the lake is let go only for want of room, and counted.

use std::collections::VecDeque;

/// The last rows.
#[derive(Debug)]
pub(crate) struct Log<R> {
    rows: VecDeque<R>,
    most: usize,
    /// The number of the row that comes next.
    next: u64,
    /// The last that is in the lake, and all before it.
    stored: u64,
    lost: u64,
}

impl<R> Log<R> {
    /// No row yet; at most so many are kept.
    pub const fn new(most: usize) -> Self {
        Self { rows: VecDeque::new(), most, next: 1, stored: 0, lost: 0 }
    }

    /// One more.
    pub fn push(&mut self, row: R) {
        if self.rows.len() >= self.most {
            let first = self.first();
            self.lost += u64::from(first > self.stored);
            self.stored = self.stored.max(first);
            self.rows.pop_front();
        }
        self.rows.push_back(row);
        self.next += 1;
    }

    /// The number of the first that is here.
    fn first(&self) -> u64 {
        self.next - self.rows.len() as u64
    }

    /// The last number that is not here.
    pub fn before(&self) -> u64 {
        self.first() - 1
    }

    /// Those that are here, with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &R)> {
        (self.first()..).zip(&self.rows)
    }

    /// Those that are here.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &R> {
        self.rows.iter()
    }

    /// Those that are not in the lake.
    pub fn unstored(&self) -> impl Iterator<Item = (u64, &R)> {
        self.numbered().filter(|(number, _)| *number > self.stored)
    }

    /// Is more than half of the room taken by rows that are not in the lake?
    pub fn is_pressing(&self) -> bool {
        self.next - 1 - self.stored > self.most as u64 / 2
    }

    /// All up to this number are in the lake.
    pub fn store(&mut self, number: u64) {
        self.stored = self.stored.max(number);
    }

    /// Rows that were let go before they were in the lake.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_here_or_in_the_lake_or_counted() {
        let mut log = Log::new(3);
        let of =
            |log: &Log<u64>| -> Vec<u64> { log.unstored().map(|(number, _)| number).collect() };
        for row in 1..=3 {
            log.push(row);
        }
        assert_eq!((of(&log), log.before()), (vec![1, 2, 3], 0));
        assert!(log.is_pressing());
        log.store(2);
        assert!(!log.is_pressing());
        assert_eq!(of(&log), [3]);
        log.push(4);
        log.push(5);
        assert_eq!((of(&log), log.before(), log.lost()), (vec![3, 4, 5], 2, 0));
        log.push(6);
        assert_eq!((of(&log), log.before(), log.lost()), (vec![4, 5, 6], 3, 1));
        assert!(log.numbered().all(|(number, row)| number == *row));
    }
}
