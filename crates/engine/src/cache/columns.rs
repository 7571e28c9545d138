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
//! - Queries come first: when they need memory, columns are let go ([`KeptColumns::let_go`]).
//! - Engines that share memory share its room for columns, but no column: paths in two lakes may be the same.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use datafusion::arrow::array::ArrayRef;
use datafusion::object_store::path::Path;

use crate::cache::predicates::{Generations, PredicateKey, PredicateRows};

/// Chunks whose cost so far is remembered, in 2 to 4 MB.
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
    /// In place of a chunk, the rows of a [side](crate::operators::build_side_cache) in so many partitions: no data file
    /// has an empty path.
    pub fn of_side(number: u64, partitions: usize) -> Self {
        Self { file: Path::default(), row_group: partitions, column: number.to_string() }
    }

    fn hashed(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Decoded chunks of all engines that share memory, the least recently used let go first.
pub(crate) struct KeptColumns {
    limit_bytes: usize,
    state: Mutex<State>,
    /// By engine.
    named: Mutex<HashMap<u64, Generations>>,
}

/// An engine's part of [`KeptColumns`], which goes with it.
pub(crate) struct ColumnCache {
    all: Arc<KeptColumns>,
    engine: u64,
}

#[derive(Default)]
struct State {
    /// By engine.
    parts: HashMap<u64, Part>,
    engines: u64,
    bytes: usize,
    clock: u64,
}

/// What is known of the chunks of one engine.
#[derive(Default)]
struct Part {
    kept: HashMap<Chunk, Kept>,
    /// Rows decoded of chunks that are not kept, by [`Chunk::hashed`]: where two are one, both are kept sooner.
    spent: HashMap<u64, u64>,
}

struct Kept {
    values: ArrayRef,
    bytes: usize,
    used: u64,
    /// Of a column of which it was asked.
    sorted_runs: OnceLock<Option<SortedRuns>>,
}

/// The longest stretches of rows of a chunk whose values are in order, one after the other: few for as many rows.
pub(crate) type SortedRuns = Arc<[Range<usize>]>;

impl fmt::Debug for KeptColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptColumns").field("limit_bytes", &self.limit_bytes).finish()
    }
}

impl fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnCache").field("engine", &self.engine).finish()
    }
}

impl KeptColumns {
    /// Room for at most so many bytes.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self { limit_bytes, state: Mutex::default(), named: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_named(&self) -> MutexGuard<'_, HashMap<u64, Generations>> {
        // Nor does anything there.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        let named: usize = self.lock_named().values().map(Generations::bytes).sum();
        self.lock().bytes + named
    }

    /// Lets go of so many bytes, or of all there are.
    pub fn let_go(&self, bytes: usize) {
        if bytes > 0 {
            let named: usize = self.lock_named().values_mut().map(Generations::clear).sum();
            self.lock().let_go(bytes.saturating_sub(named));
        }
    }
}

impl ColumnCache {
    /// For one more engine.
    pub fn new(all: &Arc<KeptColumns>) -> Self {
        let mut state = all.lock();
        state.engines += 1;
        Self { all: Arc::clone(all), engine: state.engines }
    }

    /// Of all engines that share memory.
    pub fn limit_bytes(&self) -> usize {
        self.all.limit_bytes
    }

    /// The rows that conditions name, if they are kept.
    pub fn named(&self, question: &PredicateKey) -> Option<Arc<PredicateRows>> {
        let mut named = self.all.lock_named();
        let limit = self.all.limit_bytes / NAMED_SHARE / named.len().max(1);
        named.get_mut(&self.engine)?.get(question, limit)
    }

    pub fn keep_named(&self, question: PredicateKey, named: Arc<PredicateRows>) {
        let mut all = self.all.lock_named();
        all.entry(self.engine).or_default();
        let limit = self.all.limit_bytes / NAMED_SHARE / all.len();
        if let Some(kept) = all.get_mut(&self.engine) {
            kept.keep(question, named, limit);
        }
    }

    /// Is it time to keep these chunks, or are they kept? Each comes with the rows that are to be
    /// decoded if not, and the rows that it has.
    pub fn worth_keeping(&self, chunks: &[(Chunk, u64, u64)]) -> bool {
        let mut state = self.all.lock();
        let Part { kept, spent } = state.parts.entry(self.engine).or_default();
        if spent.len() > REMEMBERED {
            spent.clear();
        }
        let (mut spent_before, mut all_rows) = (0, 0);
        for (chunk, cost, rows) in chunks {
            if kept.contains_key(chunk) {
                continue;
            }
            let spent = spent.entry(chunk.hashed()).or_default();
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
            let (state, limit_bytes) = (self.all.lock(), self.all.limit_bytes);
            if long && state.bytes + bytes > limit_bytes / LONG_TEXT_SHARE {
                return state.keeps_all(self.engine, chunks);
            }
            if state.bytes + bytes > limit_bytes {
                let all = || state.parts.values().flat_map(|part| part.kept.values());
                let since = state.clock.saturating_sub(SCANS_UNUSED * all().count() as u64);
                let unused = all().filter(|kept| kept.used < since);
                let room = limit_bytes + unused.map(|kept| kept.bytes).sum::<usize>();
                if state.bytes + bytes > room {
                    return state.keeps_all(self.engine, chunks);
                }
            }
        }
        self.worth_keeping(chunks)
    }

    /// Is this chunk kept?
    pub fn keeps(&self, chunk: &Chunk) -> bool {
        let state = self.all.lock();
        state.parts.get(&self.engine).is_some_and(|part| part.kept.contains_key(chunk))
    }

    /// Are all of these chunks kept?
    pub fn keeps_all(&self, chunks: &[(Chunk, u64, u64)]) -> bool {
        self.all.lock().keeps_all(self.engine, chunks)
    }

    /// A kept chunk.
    pub fn get(&self, chunk: &Chunk) -> Option<ArrayRef> {
        let mut state = self.all.lock();
        state.clock += 1;
        let now = state.clock;
        let kept = state.parts.get_mut(&self.engine)?.kept.get_mut(chunk)?;
        kept.used = now;
        Some(Arc::clone(&kept.values))
    }

    /// Where the values of a chunk are in order, if they are mostly: `find` looks at them. Found once for one that is kept.
    pub fn sorted_runs(
        &self,
        chunk: &Chunk,
        find: impl FnOnce() -> Option<SortedRuns>,
    ) -> Option<SortedRuns> {
        let known = |state: &State| {
            let kept = state.parts.get(&self.engine)?.kept.get(chunk)?;
            kept.sorted_runs.get().cloned()
        };
        if let Some(known) = known(&self.all.lock()) {
            return known;
        }
        let found = find();
        let state = self.all.lock();
        if let Some(kept) = state.parts.get(&self.engine).and_then(|part| part.kept.get(chunk)) {
            // Files never change: whoever was faster has found the same.
            let _ = kept.sorted_runs.set(found.clone());
        }
        found
    }

    /// Keeps a chunk of so many bytes, at the cost of others.
    pub fn keep(&self, chunk: Chunk, values: ArrayRef, bytes: usize) {
        if bytes > self.all.limit_bytes {
            return;
        }
        let mut state = self.all.lock();
        state.clock += 1;
        let used = state.clock;
        state.bytes += bytes;
        let part = state.parts.entry(self.engine).or_default();
        part.spent.remove(&chunk.hashed());
        let kept = Kept { values, bytes, used, sorted_runs: OnceLock::new() };
        if let Some(before) = part.kept.insert(chunk, kept) {
            state.bytes -= before.bytes;
        }
        let over = state.bytes.saturating_sub(self.all.limit_bytes);
        state.let_go(over);
    }
}

impl Drop for ColumnCache {
    fn drop(&mut self) {
        self.all.lock_named().remove(&self.engine);
        let mut state = self.all.lock();
        if let Some(part) = state.parts.remove(&self.engine) {
            state.bytes -= part.kept.values().map(|kept| kept.bytes).sum::<usize>();
        }
    }
}

impl State {
    fn keeps_all(&self, engine: u64, chunks: &[(Chunk, u64, u64)]) -> bool {
        let kept = self.parts.get(&engine).map(|part| &part.kept);
        chunks.iter().all(|(chunk, ..)| kept.is_some_and(|kept| kept.contains_key(chunk)))
    }

    fn let_go(&mut self, bytes: usize) {
        if bytes == 0 || self.bytes == 0 {
            return;
        }
        let of_part = |(engine, part): (&u64, &Part)| {
            let engine = *engine;
            let chunk = move |(chunk, kept): (&Chunk, &Kept)| (kept.used, engine, chunk.clone());
            part.kept.iter().map(chunk).collect::<Vec<_>>()
        };
        let mut oldest: Vec<(u64, u64, Chunk)> = self.parts.iter().flat_map(of_part).collect();
        oldest.sort_unstable_by_key(|(used, ..)| *used);
        let target = self.bytes.saturating_sub(bytes);
        for (_, engine, chunk) in oldest {
            if self.bytes <= target {
                break;
            }
            let part = self.parts.get_mut(&engine);
            if let Some(gone) = part.and_then(|part| part.kept.remove(&chunk)) {
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
        let all = KeptColumns::new(100);
        let cache = ColumnCache::new(&all);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let both = [(chunk(0), 5, 10), (chunk(1), 10, 10)];
        assert!(!cache.worth_keeping(&both) && !cache.worth_keeping(&both));
        assert!(cache.worth_keeping(&both));
        for n in 0..3 {
            cache.keep(chunk(n), Arc::clone(&values), 40);
        }
        assert!(cache.get(&chunk(0)).is_none() && all.bytes() == 80);
        assert!(cache.get(&chunk(1)).is_some());
        all.let_go(1);
        assert!(cache.get(&chunk(2)).is_none() && cache.get(&chunk(1)).is_some());
        cache.keep(chunk(9), values, 101);
        assert!(cache.get(&chunk(9)).is_none());
        all.let_go(usize::MAX);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn where_a_kept_column_is_in_order_is_looked_at_once() {
        let cache = ColumnCache::new(&KeptColumns::new(100));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let (looked, runs) = (std::cell::Cell::new(0), SortedRuns::from([0..1, 1..2]));
        let ask = |number: usize, found: Option<SortedRuns>| {
            cache.sorted_runs(&chunk(number), || {
                looked.set(looked.get() + 1);
                found
            })
        };
        cache.keep(chunk(0), Arc::clone(&values), 40);
        cache.keep(chunk(1), Arc::clone(&values), 40);
        for _ in 0..2 {
            assert_eq!(ask(0, Some(Arc::clone(&runs))), Some(Arc::clone(&runs)));
            assert_eq!(ask(1, None), None);
        }
        assert_eq!(looked.get(), 2);
        // One that is not kept, and one that is kept again.
        assert_eq!((ask(2, Some(Arc::clone(&runs))), ask(2, None)), (Some(runs), None));
        cache.keep(chunk(0), values, 40);
        assert_eq!(ask(0, None), None);
        assert_eq!(looked.get(), 5);
    }

    #[test]
    fn engines_share_room_and_no_column() {
        let all = KeptColumns::new(100);
        let (one, other) = (ColumnCache::new(&all), ColumnCache::new(&all));
        let values = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        one.keep(chunk(0), values(1), 40);
        assert!(other.get(&chunk(0)).is_none() && !other.keeps(&chunk(0)));
        other.keep(chunk(0), values(2), 40);
        let first = |cache: &ColumnCache| cache.get(&chunk(0)).map(|found| found.to_data());
        assert_eq!(first(&one), Some(values(1).to_data()));
        assert_eq!(first(&other), Some(values(2).to_data()));
        // The oldest goes, whose ever it is.
        other.keep(chunk(1), values(3), 40);
        assert!(first(&one).is_none() && first(&other).is_some());
        assert_eq!(all.bytes(), 80);
        drop(other);
        assert_eq!(all.bytes(), 0);
        let all = KeptColumns::new(1 << 20);
        let (one, other) = (ColumnCache::new(&all), ColumnCache::new(&all));
        let question =
            PredicateKey { file: Path::from("f"), row_group: Some(0), conditions: "id = 1".into() };
        one.keep_named(question.clone(), Arc::default());
        assert!(one.named(&question).is_some() && other.named(&question).is_none());
        drop(one);
        assert_eq!(all.bytes(), 0);
    }
}
