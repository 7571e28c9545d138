//! Decoded columns of data files, kept in memory that queries do not need.
//!
//! Taking rows out of a Parquet file costs as much as reading all pages they lie in, again for every
//! query. When queries have decoded as many rows of some columns as there are, these are decoded once more
//! and kept, so that all together never cost more than twice what was needed; rows are then picked
//! from memory.
//!
//! Scans of whole files go the same way: what two of them have decoded is kept, and later ones hand out
//! pieces of it. Text of few different values is kept as small numbers and a list of the values, other
//! text end to end, where words can be looked for in all of it at once.
//!
//! # Invariants
//! - Data files never change, so what is kept of one is right as long as it is kept.
//! - Queries come first: when they need memory, columns are let go ([`ColumnCache::let_go`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::ArrayRef;
use datafusion::object_store::path::Path;

use crate::cache::predicates::{Generations, Named, Question};

/// Chunks whose cost so far is remembered.
const REMEMBERED: usize = 100_000;
/// Of the limit, what may be taken when long text comes to be kept.
const LONG_TEXT_SHARE: usize = 2;
/// Of the limit, what rows that conditions name may take beside it.
const NAMED_SHARE: usize = 32;
/// A chunk that was not used while the others were used so often may go for what scans read.
const SCANS_UNUSED: u64 = 8;

/// One column of one row group of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chunk {
    pub file: Path,
    pub row_group: usize,
    pub column: String,
}

impl Chunk {
    /// In place of a chunk, the rows of a [side](crate::operators::build_sides) in so many partitions: no data file
    /// has an empty path.
    pub fn of_side(number: u64, partitions: usize) -> Self {
        Self { file: Path::default(), row_group: partitions, column: number.to_string() }
    }
}

/// Decoded chunks, the least recently used let go first.
pub(crate) struct ColumnCache {
    limit_bytes: usize,
    state: Mutex<State>,
    named: Mutex<Generations>,
}

#[derive(Default)]
struct State {
    kept: HashMap<Chunk, Kept>,
    /// Rows decoded of chunks that are not kept.
    spent: HashMap<Chunk, u64>,
    bytes: usize,
    clock: u64,
}

struct Kept {
    values: ArrayRef,
    bytes: usize,
    used: u64,
}

impl fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnCache").field("limit_bytes", &self.limit_bytes).finish()
    }
}

impl ColumnCache {
    /// A cache of at most so many bytes.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, state: Mutex::default(), named: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    fn lock_named(&self) -> MutexGuard<'_, Generations> {
        // Nor does anything there.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.lock().bytes + self.lock_named().bytes()
    }

    /// The rows that conditions name, if they are kept.
    pub fn named(&self, question: &Question) -> Option<Arc<Named>> {
        self.lock_named().get(question, self.limit_bytes / NAMED_SHARE)
    }

    pub fn keep_named(&self, question: Question, named: Arc<Named>) {
        self.lock_named().keep(question, named, self.limit_bytes / NAMED_SHARE);
    }

    /// Is it time to keep these chunks, or are they kept? Each comes with the rows that are to be
    /// decoded if not, and the rows that it has.
    pub fn worth_keeping(&self, chunks: &[(Chunk, u64, u64)]) -> bool {
        let mut state = self.lock();
        if state.spent.len() > REMEMBERED {
            state.spent.clear();
        }
        let (mut spent_before, mut all_rows) = (0, 0);
        for (chunk, cost, rows) in chunks {
            if state.kept.contains_key(chunk) {
                continue;
            }
            let spent = state.spent.entry(chunk.clone()).or_default();
            spent_before += *spent;
            all_rows += rows;
            *spent += cost;
        }
        spent_before >= all_rows
    }

    /// [`Self::worth_keeping`] for a scan of whole chunks, with the bytes of all: also says no if there
    /// is no room without letting go of what is in use. `long`: is there long text among them? It takes
    /// as much memory as many other columns, so it must leave room.
    pub fn worth_scanning(&self, chunks: &[(Chunk, u64, u64)], bytes: usize, long: bool) -> bool {
        {
            let state = self.lock();
            if long && state.bytes + bytes > self.limit_bytes / LONG_TEXT_SHARE {
                return chunks.iter().all(|(chunk, ..)| state.kept.contains_key(chunk));
            }
            if state.bytes + bytes > self.limit_bytes {
                let since = state.clock.saturating_sub(SCANS_UNUSED * state.kept.len() as u64);
                let unused = state.kept.values().filter(|kept| kept.used < since);
                let room = self.limit_bytes + unused.map(|kept| kept.bytes).sum::<usize>();
                if state.bytes + bytes > room {
                    return chunks.iter().all(|(chunk, ..)| state.kept.contains_key(chunk));
                }
            }
        }
        self.worth_keeping(chunks)
    }

    /// Is this chunk kept?
    pub fn keeps(&self, chunk: &Chunk) -> bool {
        self.lock().kept.contains_key(chunk)
    }

    /// Are all of these chunks kept?
    pub fn keeps_all(&self, chunks: &[(Chunk, u64, u64)]) -> bool {
        let state = self.lock();
        chunks.iter().all(|(chunk, ..)| state.kept.contains_key(chunk))
    }

    /// A kept chunk.
    pub fn get(&self, chunk: &Chunk) -> Option<ArrayRef> {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        let kept = state.kept.get_mut(chunk)?;
        kept.used = now;
        Some(Arc::clone(&kept.values))
    }

    /// Keeps a chunk of so many bytes, at the cost of others.
    pub fn keep(&self, chunk: Chunk, values: ArrayRef, bytes: usize) {
        if bytes > self.limit_bytes {
            return;
        }
        let mut state = self.lock();
        state.spent.remove(&chunk);
        state.clock += 1;
        let used = state.clock;
        state.bytes += bytes;
        if let Some(before) = state.kept.insert(chunk, Kept { values, bytes, used }) {
            state.bytes -= before.bytes;
        }
        let over = state.bytes.saturating_sub(self.limit_bytes);
        state.let_go(over);
    }

    /// Lets go of so many bytes, or of all there are.
    pub fn let_go(&self, bytes: usize) {
        if bytes > 0 {
            let named = self.lock_named().clear();
            self.lock().let_go(bytes.saturating_sub(named));
        }
    }
}

impl State {
    fn let_go(&mut self, bytes: usize) {
        if bytes == 0 || self.kept.is_empty() {
            return;
        }
        let mut oldest: Vec<(u64, Chunk)> =
            self.kept.iter().map(|(chunk, kept)| (kept.used, chunk.clone())).collect();
        oldest.sort_unstable_by_key(|(used, _)| *used);
        let target = self.bytes.saturating_sub(bytes);
        for (_, chunk) in oldest {
            if self.bytes <= target {
                break;
            }
            if let Some(gone) = self.kept.remove(&chunk) {
                self.bytes -= gone.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    fn chunk(row_group: usize) -> Chunk {
        Chunk { file: Path::from("f"), row_group, column: "c".into() }
    }

    #[test]
    fn the_oldest_chunks_are_let_go_first() {
        let cache = ColumnCache::new(100);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let both = [(chunk(0), 5, 10), (chunk(1), 10, 10)];
        assert!(!cache.worth_keeping(&both) && !cache.worth_keeping(&both));
        assert!(cache.worth_keeping(&both));
        for n in 0..3 {
            cache.keep(chunk(n), Arc::clone(&values), 40);
        }
        assert!(cache.get(&chunk(0)).is_none() && cache.bytes() == 80);
        assert!(cache.get(&chunk(1)).is_some());
        cache.let_go(1);
        assert!(cache.get(&chunk(2)).is_none() && cache.get(&chunk(1)).is_some());
        cache.keep(chunk(9), values, 101);
        assert!(cache.get(&chunk(9)).is_none());
        cache.let_go(usize::MAX);
        assert_eq!(cache.bytes(), 0);
    }
}
