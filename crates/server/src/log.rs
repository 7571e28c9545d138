//! Rows in the order in which they came, the last of them in memory: those of `system` tables until they are in the
//! lake, and a while longer.
//!
//! # Invariants
//! - Each row has a number of its own, from 1, one more than the row before.
//! - A row that is not in the lake is let go only for want of room, and counted.
//! - Rows take no more memory than [`MOST_BYTES`], but for the newest.

use std::collections::VecDeque;

/// Memory of the rows of one log: 10,000 statements of 1 KiB take a third of it.
const MOST_BYTES: usize = 32 << 20;

/// What is kept in a log.
pub(crate) trait Row {
    /// What it takes of memory, about.
    fn memory_bytes(&self) -> usize;
}

/// The last rows.
#[derive(Debug)]
pub(crate) struct Log<R> {
    rows: VecDeque<R>,
    most: usize,
    bytes: usize,
    /// Of those that are not in the lake.
    unstored_bytes: usize,
    /// The number of the row that comes next.
    next: u64,
    /// The last that is in the lake, and all before it.
    stored: u64,
    lost: u64,
}

impl<R: Row> Log<R> {
    /// One more.
    pub fn push(&mut self, row: R) {
        let bytes = row.memory_bytes();
        while self.rows.len() >= self.most || self.bytes + bytes > MOST_BYTES {
            let first = self.first();
            let Some(gone) = self.rows.pop_front() else { break };
            let gone = gone.memory_bytes();
            self.bytes -= gone;
            if first > self.stored {
                (self.stored, self.lost) = (first, self.lost + 1);
                self.unstored_bytes -= gone;
            }
        }
        self.bytes += bytes;
        self.unstored_bytes += bytes;
        self.rows.push_back(row);
        self.next += 1;
    }

    /// All up to this number are in the lake.
    pub fn store(&mut self, number: u64) {
        self.stored = self.stored.max(number);
        self.unstored_bytes = self.unstored().map(|(_, row)| row.memory_bytes()).sum();
    }
}

impl<R> Log<R> {
    /// No row yet; at most so many are kept.
    pub const fn new(most: usize) -> Self {
        let rows = VecDeque::new();
        Self { rows, most, bytes: 0, unstored_bytes: 0, next: 1, stored: 0, lost: 0 }
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
        self.next - 1 - self.stored > self.most as u64 / 2 || self.unstored_bytes > MOST_BYTES / 2
    }

    /// Rows that were let go before they were in the lake.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Row for u64 {
        fn memory_bytes(&self) -> usize {
            size_of::<Self>()
        }
    }

    impl Row for String {
        fn memory_bytes(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn long_rows_make_room_sooner() {
        let mut log = Log::new(1000);
        let long = "x".repeat(MOST_BYTES / 4);
        for number in 1..=2 {
            log.push(long.clone());
            assert!(!log.is_pressing(), "{number}");
        }
        log.push(long.clone());
        assert!(log.is_pressing());
        log.store(2);
        assert!(!log.is_pressing());
        log.push(long.clone());
        log.push(long.clone());
        assert_eq!((log.before(), log.lost(), log.bytes), (1, 0, MOST_BYTES));
        log.push("x".repeat(MOST_BYTES + 1));
        assert_eq!((log.before(), log.lost(), log.all().count()), (5, 3, 1));
        log.push("short".into());
        assert_eq!((log.before(), log.lost(), log.bytes), (6, 4, 5));
        log.store(7);
        assert_eq!((log.unstored_bytes, log.is_pressing()), (0, false));
    }

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
