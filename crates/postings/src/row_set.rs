//! Sets of row numbers within one data file.
//!
//! A [`RowSet`] answers "which rows hold `country = 'DE'`?". It is a list of runs when rows are
//! clustered and Roaring containers when they are scattered.
//!
//! # Invariants
//! - A row is below [`MAX_ROWS`].
//! - The form follows from the set alone ([`prefers_runs`]), so equal sets are equal values and
//!   have equal bytes.
//!
//! # Not here
//! Bytes: see [`crate::portable`]. Dictionaries from terms to sets: see [`crate::dictionary`].

use std::borrow::Cow;
use std::iter::FusedIterator;

use crate::container::{CHUNK_ROWS, Container, low};
use crate::mask::Mask;
use crate::mask::WORDS;
use crate::run::{self, Run, pack, unpack};
use crate::sort::sort_packed;

/// Rows of a file: its row numbers are below this. `u32::MAX` itself is none, so that the end of
/// a run is a `u32` too.
pub const MAX_ROWS: u32 = u32::MAX;

/// Runs up to which a set is a run list whatever its rows: 256 bytes, less than the containers'
/// allocations cost.
pub(crate) const FEW_RUNS: usize = 32;

/// Rows of one file.
///
/// # Examples
/// ```
/// use uplake_postings::{RowSet, Run};
/// let paid = RowSet::from_runs([Run::new(10, 20), Run::new(40, 50)]);
/// let mobile: RowSet = [12, 15, 45, 99].into_iter().collect();
/// assert_eq!(paid.and(&mobile).rows().collect::<Vec<_>>(), [12, 15, 45]);
/// assert_eq!(paid.rank(42), 12);
/// assert_eq!(paid.select(12), Some(42));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSet {
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Runs(Vec<Run>),
    /// Ascending by key.
    Chunks(Vec<Chunk>),
}

/// A container and the number of its chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) key: u16,
    pub(crate) container: Container,
}

impl Chunk {
    fn first_row(&self) -> u32 {
        u32::from(self.key) * CHUNK_ROWS
    }
}

/// Whether a run list is to be preferred: it is short, or it is smaller than arrays (2 bytes a
/// row against 8 a run) and than bitmaps (8 KiB a chunk) would be.
///
/// Run containers would halve its bytes in memory, but a flat list is what a scan takes and what
/// unions are made of, without a conversion.
fn prefers_runs(runs: usize, rows: u64, chunks: usize) -> bool {
    runs <= FEW_RUNS || (4 * runs as u64 <= rows && runs <= chunks * WORDS)
}

/// Number of chunks that a run list touches.
fn chunks_touched(runs: &[Run]) -> usize {
    let mut next = 0;
    let mut chunks = 0;
    for run in runs {
        let (first, last) = (run.start / CHUNK_ROWS, (run.end - 1) / CHUNK_ROWS);
        chunks += (last + 1).saturating_sub(first.max(next)) as usize;
        next = last + 1;
    }
    chunks
}

fn chunks_of_runs(runs: &[Run]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut key = 0;
    let mut piece: Vec<Run> = Vec::new();
    let mut close = |key: u32, piece: &mut Vec<Run>| {
        if let Some(container) = Container::from_runs(std::mem::take(piece)) {
            chunks.push(Chunk { key: key as u16, container });
        }
    };
    for &run in runs {
        let mut start = run.start;
        while start < run.end {
            if start / CHUNK_ROWS != key {
                close(key, &mut piece);
                key = start / CHUNK_ROWS;
            }
            let base = key * CHUNK_ROWS;
            let length = (run.end - start).min(CHUNK_ROWS - (start - base));
            piece.push(Run::new(start - base, start - base + length));
            start += length;
        }
    }
    close(key, &mut piece);
    chunks
}

impl Default for RowSet {
    fn default() -> Self {
        Self::new()
    }
}

impl RowSet {
    /// No row.
    #[must_use]
    pub const fn new() -> Self {
        Self { form: Form::Runs(Vec::new()) }
    }

    /// The rows of `runs`, in any order, overlapping or not; empty runs are skipped.
    #[must_use]
    pub fn from_runs(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut runs: Vec<Run> = runs.into_iter().filter(|run| !run.is_empty()).collect();
        if !runs.is_sorted() {
            runs.sort_unstable();
        }
        let mut joined = Vec::with_capacity(runs.len());
        runs.into_iter().for_each(|run| run::push(&mut joined, run));
        Self::from_list(joined)
    }

    /// The rows of a mask.
    #[must_use]
    pub fn from_mask(mask: &Mask) -> Self {
        let mut chunks = Vec::new();
        for (key, words) in mask.words().chunks(WORDS).enumerate() {
            if words.iter().all(|&word| word == 0) {
                continue;
            }
            let mut whole = Box::new([0; WORDS]);
            whole[..words.len()].copy_from_slice(words);
            let container = Container::from_words(whole);
            chunks.extend(container.map(|container| Chunk { key: key as u16, container }));
        }
        Self::from_chunks(chunks)
    }

    /// The rows of a list that keeps the invariants of [`crate::run`].
    pub(crate) fn from_list(runs: Vec<Run>) -> Self {
        debug_assert!(runs.iter().all(|run| run.start < run.end));
        debug_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        if prefers_runs(runs.len(), run::rows(&runs), chunks_touched(&runs)) {
            return Self { form: Form::Runs(runs) };
        }
        Self { form: Form::Chunks(chunks_of_runs(&runs)) }
    }

    /// The rows of ascending, canonical chunks.
    pub(crate) fn from_chunks(chunks: Vec<Chunk>) -> Self {
        debug_assert!(chunks.windows(2).all(|pair| pair[0].key < pair[1].key));
        let count = chunks.len();
        let rows = chunks.iter().map(|chunk| u64::from(chunk.container.cardinality())).sum();
        let set = Self { form: Form::Chunks(chunks) };
        // Counting stops where the answer is known.
        let most = FEW_RUNS.max((rows as usize / 4).min(count * WORDS));
        let runs = set.runs().take(most + 1).count();
        if prefers_runs(runs, rows, count) {
            let runs = set.runs().collect();
            return Self { form: Form::Runs(runs) };
        }
        set
    }

    /// The rows as ascending containers, whatever the form.
    pub(crate) fn chunks(&self) -> Cow<'_, [Chunk]> {
        match &self.form {
            Form::Runs(runs) => Cow::Owned(chunks_of_runs(runs)),
            Form::Chunks(chunks) => Cow::Borrowed(chunks),
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.form {
            Form::Runs(runs) => runs.is_empty(),
            Form::Chunks(chunks) => chunks.is_empty(),
        }
    }

    /// Number of rows. Takes time in the number of runs or containers.
    #[must_use]
    pub fn cardinality(&self) -> u64 {
        match &self.form {
            Form::Runs(runs) => run::rows(runs),
            Form::Chunks(chunks) => {
                chunks.iter().map(|chunk| u64::from(chunk.container.cardinality())).sum()
            }
        }
    }

    /// Number of maximal runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        match &self.form {
            Form::Runs(runs) => runs.len(),
            Form::Chunks(_) => self.runs().count(),
        }
    }

    /// Bytes of memory behind the set.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Runs(runs) => size_of_val(runs.as_slice()),
            Form::Chunks(chunks) => {
                let inner = chunks.iter().map(|chunk| match &chunk.container {
                    Container::Array(rows) => size_of_val(rows.as_slice()),
                    Container::Bitmap(words) => size_of_val(&**words),
                    Container::Runs(runs) => size_of_val(runs.as_slice()),
                });
                size_of_val(chunks.as_slice()) + inner.sum::<usize>()
            }
        }
    }

    /// Whether `row` is in the set.
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        match &self.form {
            Form::Runs(runs) => {
                let at = runs.partition_point(|run| run.end <= row);
                runs.get(at).is_some_and(|run| run.start <= row)
            }
            Form::Chunks(chunks) => chunks
                .binary_search_by_key(&((row / CHUNK_ROWS) as u16), |chunk| chunk.key)
                .is_ok_and(|at| chunks[at].container.contains(low(row))),
        }
    }

    /// Number of rows of the set below `row`.
    #[must_use]
    pub fn rank(&self, row: u32) -> u64 {
        match &self.form {
            Form::Runs(runs) => runs
                .iter()
                .take_while(|run| run.start < row)
                .map(|run| u64::from(run.end.min(row) - run.start))
                .sum(),
            Form::Chunks(chunks) => chunks
                .iter()
                .take_while(|chunk| chunk.first_row() < row)
                .map(|chunk| {
                    let inside = (row - chunk.first_row()).min(CHUNK_ROWS);
                    u64::from(chunk.container.rank(inside))
                })
                .sum(),
        }
    }

    /// The row of the set that has `n` rows below it; `None` if there are not so many.
    #[must_use]
    pub fn select(&self, mut n: u64) -> Option<u32> {
        match &self.form {
            Form::Runs(runs) => {
                for run in runs {
                    if n < u64::from(run.len()) {
                        return Some(run.start + n as u32);
                    }
                    n -= u64::from(run.len());
                }
            }
            Form::Chunks(chunks) => {
                for chunk in chunks {
                    let rows = u64::from(chunk.container.cardinality());
                    if n < rows {
                        return Some(chunk.first_row() + chunk.container.select(n as u32)?);
                    }
                    n -= rows;
                }
            }
        }
        None
    }

    /// The rows as ascending maximal runs.
    #[must_use]
    pub fn runs(&self) -> Runs<'_> {
        Runs { set: self, index: 0, hint: 0, from: 0 }
    }

    /// The rows, ascending.
    #[must_use]
    pub fn rows(&self) -> Rows<'_> {
        Rows { runs: self.runs(), current: Run::new(0, 0) }
    }

    /// The rows below `file_rows` as a mask.
    #[must_use]
    pub fn to_mask(&self, file_rows: u32) -> Mask {
        let mut mask = Mask::new(file_rows);
        self.runs().for_each(|run| mask.set_run(run));
        mask
    }

    /// Rows in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if let (Form::Runs(a), Form::Runs(b)) = (&self.form, &other.form) {
            return Self::from_list(run::and(a, b));
        }
        let (a, b) = (self.chunks(), other.chunks());
        let mut out = Vec::new();
        let mut j = 0;
        for chunk in a.iter() {
            j += b[j..].partition_point(|other| other.key < chunk.key);
            if let Some(other) = b.get(j).filter(|other| other.key == chunk.key) {
                let container = chunk.container.and(&other.container);
                out.extend(container.map(|container| Chunk { key: chunk.key, container }));
            }
        }
        Self::from_chunks(out)
    }

    /// Rows in one of the sets or both.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        match (&self.form, &other.form) {
            (Form::Runs(a), Form::Runs(b)) => Self::from_list(run::or(a, b)),
            _ => Self::union([self, other]),
        }
    }

    /// Rows of this set that are not in the other.
    #[must_use]
    pub fn and_not(&self, other: &Self) -> Self {
        if let (Form::Runs(a), Form::Runs(b)) = (&self.form, &other.form) {
            return Self::from_list(run::and_not(a, b));
        }
        let (a, b) = (self.chunks(), other.chunks());
        let mut out = Vec::new();
        let mut j = 0;
        for chunk in a.iter() {
            j += b[j..].partition_point(|other| other.key < chunk.key);
            let container = match b.get(j).filter(|other| other.key == chunk.key) {
                Some(other) => chunk.container.and_not(&other.container),
                None => Some(chunk.container.clone()),
            };
            out.extend(container.map(|container| Chunk { key: chunk.key, container }));
        }
        Self::from_chunks(out)
    }

    /// Rows in any of the sets.
    ///
    /// Run lists are sorted together once; containers are joined chunk by chunk in one bitmap, so
    /// the cost does not grow with the number of sets times the size of the result.
    #[must_use]
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut packed, mut chunked) = (Vec::new(), Vec::new());
        for set in sets {
            match &set.form {
                Form::Runs(runs) => packed.extend(runs.iter().copied().map(pack)),
                Form::Chunks(chunks) => chunked.push(chunks.as_slice()),
            }
        }
        sort_packed(&mut packed, &mut Vec::new(), u32::BITS);
        let mut runs = Vec::with_capacity(packed.len());
        packed.into_iter().for_each(|run| run::push(&mut runs, unpack(run)));
        if chunked.is_empty() {
            return Self::from_list(runs);
        }
        let from_runs = chunks_of_runs(&runs);
        chunked.push(&from_runs);
        let mut all: Vec<&Chunk> = chunked.into_iter().flatten().collect();
        all.sort_by_key(|chunk| chunk.key);
        let groups = all.chunk_by(|a, b| a.key == b.key);
        Self::from_chunks(groups.filter_map(join).collect())
    }
}

/// The union of chunks of one key.
fn join(chunks: &[&Chunk]) -> Option<Chunk> {
    let key = chunks.first()?.key;
    let container = match chunks {
        [one] => Some(one.container.clone()),
        [one, other] => one.container.or(&other.container),
        more => {
            let mut words = Box::new([0; WORDS]);
            more.iter().for_each(|chunk| chunk.container.set_in(&mut words));
            Container::from_words(words)
        }
    };
    container.map(|container| Chunk { key, container })
}

impl FromIterator<u32> for RowSet {
    /// Rows in any order; [`MAX_ROWS`] itself is not a row and is skipped.
    fn from_iter<I: IntoIterator<Item = u32>>(rows: I) -> Self {
        let rows = rows.into_iter().filter(|&row| row < MAX_ROWS);
        Self::from_runs(rows.map(|row| Run::new(row, row + 1)))
    }
}

impl FromIterator<Run> for RowSet {
    fn from_iter<I: IntoIterator<Item = Run>>(runs: I) -> Self {
        Self::from_runs(runs)
    }
}

/// Ascending maximal runs of a [`RowSet`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    set: &'a RowSet,
    /// Run or chunk to look at next.
    index: usize,
    /// Where to look within the chunk.
    hint: usize,
    /// Rows below are done.
    from: u32,
}

impl Runs<'_> {
    /// Leaves out all rows below `row`; a run that holds it starts there. Never goes back.
    pub fn skip_to(&mut self, row: u32) {
        self.from = self.from.max(row);
    }

    /// The next run within a chunk, which may be continued by the next chunk's.
    fn next_piece(&mut self, chunks: &[Chunk]) -> Option<Run> {
        loop {
            let chunk = chunks.get(self.index)?;
            let base = chunk.first_row();
            if self.from.saturating_sub(base) < CHUNK_ROWS {
                let inside = self.from.saturating_sub(base);
                if let Some(run) = chunk.container.next_run(inside, &mut self.hint) {
                    // The last row of all is `MAX_ROWS - 1`, so the sum fits.
                    let run = Run::new(base + run.start, base + run.end);
                    self.from = run.end;
                    return Some(run);
                }
                self.index += 1;
            } else {
                let key = (self.from / CHUNK_ROWS) as u16;
                self.index += chunks[self.index..].partition_point(|chunk| chunk.key < key);
            }
            self.hint = 0;
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        match &self.set.form {
            Form::Runs(runs) => {
                self.index = run::seek(runs, self.index, self.from);
                let run = *runs.get(self.index)?;
                self.index += 1;
                Some(Run::new(run.start.max(self.from), run.end))
            }
            Form::Chunks(chunks) => {
                let mut run = self.next_piece(chunks)?;
                while run.end % CHUNK_ROWS == 0 {
                    let (index, hint) = (self.index, self.hint);
                    match self.next_piece(chunks) {
                        Some(more) if more.start == run.end => run.end = more.end,
                        _ => {
                            (self.index, self.hint, self.from) = (index, hint, run.end);
                            break;
                        }
                    }
                }
                Some(run)
            }
        }
    }
}

impl FusedIterator for Runs<'_> {}

/// Ascending rows of a [`RowSet`].
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    runs: Runs<'a>,
    current: Run,
}

impl Rows<'_> {
    /// Leaves out all rows below `row`. Never goes back.
    pub fn skip_to(&mut self, row: u32) {
        if row < self.current.end {
            self.current.start = self.current.start.max(row);
        } else {
            self.current = Run::new(0, 0);
            self.runs.skip_to(row);
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.current.is_empty() {
            self.current = self.runs.next()?;
        }
        self.current.start += 1;
        Some(self.current.start - 1)
    }
}

impl FusedIterator for Rows<'_> {}
