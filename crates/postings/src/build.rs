//! Building a dictionary from the rows of a file.
//!
//! A builder takes terms with runs of rows, in ascending row order for each term, and joins runs
//! that touch. Memory: about 50 bytes a term besides the term itself, and 12 bytes for every run
//! but a term's last (a column that is sorted has none of those; a random one has one a row).
//!
//! # Invariants
//! - The same terms and rows give the same bytes, whatever order the terms came in.
//!
//! # Not here
//! What a term is: tokenizers and the encoding of dates belong to whoever owns the column.

use std::collections::HashMap;

use crate::error::PostingsError;
use crate::hash::{self, Fold};
use crate::header::{
    BYTES, CLUSTERED, EXACT, FORMAT, HEADER_BYTES, INLINE, KEYS, MAGIC, ORDER, SORTED,
};
use crate::inline;
use crate::list::{List, ListKind, MAX_FILE_ROWS, Posting};
use crate::portable::size_of_runs;
use crate::row_set::RowSet;
use crate::run::Run;
use crate::table::{self, Built, Key};

/// Terms of one dictionary; ordinals and gaps between them are `u32`.
const MAX_TERMS: usize = 1 << 30;
/// Bytes of all terms together; where a term starts is a `u32`.
const MAX_TERM_BYTES: usize = u32::MAX as usize;
/// Bytes of heap; places are 31 bits in units of 4.
const MAX_HEAP_BYTES: usize = 1 << 33;
/// Terms from which the runs of a clustered dictionary lie in its hash table: looking up and
/// sorting 10,000 of them then takes less than the cache misses of a second array.
const INLINE_TERMS: usize = 1 << 18;
/// A list shorter than this in rows or runs is not worth the headers of Roaring containers.
const MIN_ROARING_BYTES: usize = 64;

type Result<T> = std::result::Result<T, PostingsError>;

/// What a dictionary is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether terms can be found by range and prefix, and integers be read back. Costs 4 or 8
    /// bytes a term, and 4 more if the rows are not in term order.
    pub ordered: bool,
}

/// A dictionary and its heap, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// For [`crate::Dictionary::parse`].
    pub dictionary: Vec<u8>,
    /// Lists that do not fit a posting; empty for a clustered dictionary.
    pub heap: Vec<u8>,
}

/// Runs by term; terms are numbered as they come.
#[derive(Debug, Default)]
struct Lists {
    /// The run of each term that may still grow.
    open: Vec<Run>,
    /// Runs that cannot, ascending for each term.
    closed: Vec<(u32, Run)>,
}

impl Lists {
    fn push(&mut self, term: u32, run: Run) -> Result<()> {
        let Some(open) = self.open.get_mut(term as usize) else {
            self.open.push(run);
            return Ok(());
        };
        if run.start > open.end {
            self.closed.push((term, *open));
            *open = run;
        } else if run.start >= open.start {
            open.end = open.end.max(run.end);
        } else {
            let Run { start, end } = run;
            return Err(PostingsError::OutOfOrder { start, end, last: open.start });
        }
        Ok(())
    }

    /// Whether every term has one run and no two terms share a row; `by_row` is the terms in the
    /// order of their runs.
    fn is_clustered(&self, by_row: &[u32]) -> bool {
        let run = |term: u32| self.open[term as usize];
        self.closed.is_empty() && by_row.windows(2).all(|two| run(two[0]).end <= run(two[1]).start)
    }

    /// The runs of all terms, one term after the other in the given order, and where each starts.
    fn by_term(&self, order: &[u32]) -> (Vec<u32>, Vec<Run>) {
        let mut next = vec![0u32; order.len()];
        for &(term, _) in &self.closed {
            next[term as usize] += 1;
        }
        let mut starts = Vec::with_capacity(order.len() + 1);
        let mut sum = 0;
        for &term in order {
            starts.push(sum);
            sum += std::mem::replace(&mut next[term as usize], sum) + 1;
        }
        starts.push(sum);
        let mut runs = vec![Run::new(0, 0); sum as usize];
        let rest = self.open.iter().enumerate().map(|(term, &run)| (term as u32, run));
        for (term, run) in self.closed.iter().copied().chain(rest) {
            let at = &mut next[term as usize];
            runs[*at as usize] = run;
            *at += 1;
        }
        (starts, runs)
    }
}

/// Builds a dictionary of 64-bit integers.
#[derive(Debug)]
pub struct IntegersBuilder {
    options: Options,
    inline_terms: usize,
    numbers: HashMap<u64, u32, Fold>,
    ids: Vec<u64>,
    lists: Lists,
}

impl Default for IntegersBuilder {
    fn default() -> Self {
        let (numbers, ids, lists) = Default::default();
        Self { options: Options::default(), inline_terms: INLINE_TERMS, numbers, ids, lists }
    }
}

impl IntegersBuilder {
    /// A builder without terms.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Number of terms from which a clustered dictionary without order keeps the runs in its hash
    /// table. The default is where that was measured to be faster; tests say 0.
    #[must_use]
    pub fn inline_from(mut self, terms: usize) -> Self {
        self.inline_terms = terms;
        self
    }

    /// Number of terms so far.
    #[must_use]
    pub fn term_count(&self) -> usize {
        self.ids.len()
    }

    /// Adds the rows `run` to `id`; an empty run adds nothing.
    ///
    /// # Errors
    /// [`PostingsError::OutOfOrder`] if the run starts before the last one of this id, and
    /// [`PostingsError::TooLarge`] if a limit of the format is passed.
    pub fn push(&mut self, id: u64, run: Run) -> Result<()> {
        check_run(run, self.ids.len())?;
        if run.is_empty() {
            return Ok(());
        }
        let number = *self.numbers.entry(id).or_insert(self.ids.len() as u32);
        if number as usize == self.ids.len() {
            self.ids.push(id);
        }
        self.lists.push(number, run)
    }

    /// Adds a column, or the part of it that starts at `first_row`: one id a row.
    ///
    /// # Errors
    /// As [`IntegersBuilder::push`].
    pub fn push_column(&mut self, first_row: u32, ids: &[u64]) -> Result<()> {
        let mut row = u64::from(first_row);
        for equal in ids.chunk_by(|a, b| a == b) {
            let end = row + equal.len() as u64;
            let limit = u64::from(MAX_FILE_ROWS);
            if end > limit {
                return Err(PostingsError::TooLarge { what: "rows", found: end, limit });
            }
            self.push(equal[0], Run::new(row as u32, end as u32))?;
            row = end;
        }
        Ok(())
    }

    /// The dictionary of a file of `file_rows` rows.
    ///
    /// # Errors
    /// [`PostingsError::TooLarge`] if a row is not below `file_rows`, or a limit is passed.
    pub fn finish(self, file_rows: u32) -> Result<Encoded> {
        let Self { options, inline_terms, ids, lists, numbers } = self;
        drop(numbers);
        let mut by_term: Vec<u32> = (0..ids.len() as u32).collect();
        by_term.sort_unstable_by_key(|&number| ids[number as usize]);
        let base = by_term.first().map_or(0, |&number| ids[number as usize]);
        let span = by_term.last().map_or(0, |&number| ids[number as usize] - base);
        let exact = span <= u64::from(u32::MAX);
        let layout = Layout::new(lists, by_term, file_rows)?;
        if exact && !options.ordered && layout.clustered && ids.len() >= inline_terms {
            let key = |number: u32| (ids[number as usize] - base) as u32;
            if let Some(encoded) = layout.encode_inline(base, key) {
                return Ok(encoded);
            }
        }
        // Tags that are keys need nothing to verify them by; wide keys always do.
        let keep = options.ordered || !exact;
        let mut keys = Vec::new();
        if keep {
            for slot in &layout.slots {
                let id = slot.map_or(base, |number| ids[number as usize]);
                let bytes = if exact { (id - base).to_le_bytes() } else { id.to_le_bytes() };
                keys.extend_from_slice(&bytes[..if exact { 4 } else { 8 }]);
            }
        }
        let flags = if exact { EXACT } else { 0 } | if keep { KEYS } else { 0 };
        let key = |seed: u64, number: u32| {
            let id = ids[number as usize];
            let hash = hash::integer(seed, id);
            Key { hash, tag: if exact { (id - base) as u32 } else { hash as u32 } }
        };
        layout.encode(Terms { flags, base, ordered: options.ordered, keys, text: &[] }, key)
    }
}

/// Builds a dictionary of byte strings.
#[derive(Debug, Default)]
pub struct BytesBuilder {
    options: Options,
    numbers: HashMap<Box<[u8]>, u32, Fold>,
    lists: Lists,
    bytes: usize,
}

impl BytesBuilder {
    /// A builder without terms.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Number of terms so far.
    #[must_use]
    pub fn term_count(&self) -> usize {
        self.numbers.len()
    }

    /// Adds the rows `run` to `term`; an empty run adds nothing.
    ///
    /// # Errors
    /// As [`IntegersBuilder::push`].
    pub fn push(&mut self, term: &[u8], run: Run) -> Result<()> {
        check_run(run, self.numbers.len())?;
        if run.is_empty() {
            return Ok(());
        }
        if let Some(&number) = self.numbers.get(term) {
            return self.lists.push(number, run);
        }
        self.bytes += term.len();
        if self.bytes > MAX_TERM_BYTES {
            let (found, limit) = (self.bytes as u64, MAX_TERM_BYTES as u64);
            return Err(PostingsError::TooLarge { what: "bytes of terms", found, limit });
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(term.into(), number);
        self.lists.push(number, run)
    }

    /// The dictionary of a file of `file_rows` rows.
    ///
    /// # Errors
    /// As [`IntegersBuilder::finish`].
    pub fn finish(self, file_rows: u32) -> Result<Encoded> {
        let mut terms: Vec<(&[u8], u32)> =
            self.numbers.iter().map(|(term, &number)| (&**term, number)).collect();
        terms.sort_unstable();
        let mut of_number: Vec<&[u8]> = vec![&[]; terms.len()];
        for &(term, number) in &terms {
            of_number[number as usize] = term;
        }
        let by_term = terms.iter().map(|&(_, number)| number).collect();
        drop(terms);
        let layout = Layout::new(self.lists, by_term, file_rows)?;
        let (mut keys, mut text) = (Vec::new(), Vec::with_capacity(self.bytes));
        for slot in &layout.slots {
            keys.extend_from_slice(&(text.len() as u32).to_le_bytes());
            text.extend_from_slice(slot.map_or(&[], |number| of_number[number as usize]));
        }
        keys.extend_from_slice(&(text.len() as u32).to_le_bytes());
        let ordered = self.options.ordered;
        layout.encode(
            Terms { flags: BYTES, base: 0, ordered, keys, text: &text },
            |seed, number| {
                let hash = hash::bytes(seed, of_number[number as usize]);
                Key { hash, tag: hash as u32 }
            },
        )
    }
}

fn check_run(run: Run, terms: usize) -> Result<()> {
    let (what, found, limit) = if run.end > MAX_FILE_ROWS {
        ("rows", u64::from(run.end), u64::from(MAX_FILE_ROWS))
    } else if terms >= MAX_TERMS {
        ("terms", terms as u64, MAX_TERMS as u64)
    } else {
        return Ok(());
    };
    Err(PostingsError::TooLarge { what, found, limit })
}

/// The header of a dictionary, in the order of its bytes.
struct Header {
    flags: u16,
    /// Rows of the file, ordinals, terms, buckets, probes.
    counts: [u32; 5],
    /// Seed, smallest integer, bytes of heap.
    words: [u64; 3],
    term_bytes: u32,
    /// Tag bits and length bits.
    bits: [u8; 2],
}

impl Header {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        self.counts.iter().for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
        self.words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.term_bytes.to_le_bytes());
        out.extend_from_slice(&self.bits);
        out.extend_from_slice(&[0; 2]);
        debug_assert_eq!(out.len(), HEADER_BYTES);
    }
}

/// What the two kinds of terms bring to the bytes.
struct Terms<'a> {
    flags: u16,
    base: u64,
    ordered: bool,
    /// The `keys` section.
    keys: Vec<u8>,
    /// The `terms` section.
    text: &'a [u8],
}

/// Which ordinal a term gets, and all postings. Terms are still numbered as they came.
struct Layout {
    file_rows: u32,
    clustered: bool,
    /// The term of each ordinal; `None` for a gap between runs.
    slots: Vec<Option<u32>>,
    /// Terms in term order.
    by_term: Vec<u32>,
    postings: Vec<u8>,
    heap: Vec<u8>,
}

impl Layout {
    fn new(lists: Lists, by_term: Vec<u32>, file_rows: u32) -> Result<Self> {
        let rows = lists.open.iter().map(|run| run.end).max().unwrap_or(0);
        if rows > file_rows || file_rows > MAX_FILE_ROWS {
            let limit = u64::from(file_rows.min(MAX_FILE_ROWS));
            let found = u64::from(rows.max(file_rows));
            return Err(PostingsError::TooLarge { what: "rows", found, limit });
        }
        let mut by_row: Vec<u32> = Vec::new();
        if lists.closed.is_empty() {
            by_row.extend(&by_term);
            // Stable: runs that start together overlap, so the answer is no either way.
            by_row.sort_by_key(|&number| lists.open[number as usize].start);
        }
        if by_row.len() == by_term.len() && lists.is_clustered(&by_row) {
            return Ok(Self::clustered(&lists, &by_row, by_term, file_rows));
        }
        Self::mixed(lists, by_term, file_rows)
    }

    fn clustered(lists: &Lists, by_row: &[u32], by_term: Vec<u32>, file_rows: u32) -> Self {
        let mut slots = Vec::with_capacity(by_row.len());
        let mut postings = Vec::with_capacity(4 * by_row.len() + 4);
        let mut end = 0;
        for &number in by_row {
            let run = lists.open[number as usize];
            if run.start > end {
                postings.extend_from_slice(&end.to_le_bytes());
                slots.push(None);
            }
            postings.extend_from_slice(&run.start.to_le_bytes());
            slots.push(Some(number));
            end = run.end;
        }
        postings.extend_from_slice(&end.to_le_bytes());
        Self { file_rows, clustered: true, slots, by_term, postings, heap: Vec::new() }
    }

    fn mixed(lists: Lists, by_term: Vec<u32>, file_rows: u32) -> Result<Self> {
        let (starts, runs) = lists.by_term(&by_term);
        drop(lists);
        let mut heap = Vec::new();
        let mut postings = Vec::with_capacity(8 * by_term.len());
        for bounds in starts.windows(2) {
            let list = &runs[bounds[0] as usize..bounds[1] as usize];
            let posting = match list {
                [run] => Posting::Run(*run),
                _ => Posting::List(write_list(list, &mut heap)),
            };
            if heap.len() > MAX_HEAP_BYTES {
                let (found, limit) = (heap.len() as u64, MAX_HEAP_BYTES as u64);
                return Err(PostingsError::TooLarge { what: "bytes of lists", found, limit });
            }
            postings.extend_from_slice(&posting.encode().to_le_bytes());
        }
        let slots = by_term.iter().copied().map(Some).collect();
        Ok(Self { file_rows, clustered: false, slots, by_term, postings, heap })
    }

    /// The dictionary with the runs in its hash table; `None` if they do not fit there.
    fn encode_inline(&self, base: u64, key: impl Fn(u32) -> u32) -> Option<Encoded> {
        let rows = self.postings.as_chunks::<4>().0;
        let row = |at: usize| u32::from_le_bytes(rows[at]);
        let terms = self.slots.iter().enumerate().filter_map(|(at, slot)| {
            slot.map(|number| (key(number), Run::new(row(at), row(at + 1))))
        });
        let terms: Vec<(u32, Run)> = terms.collect();
        let built = inline::build(&terms, self.file_rows)?;
        let buckets = (built.bytes.len() / table::BUCKET_BYTES) as u32;
        let slots = buckets * inline::SLOTS as u32;
        let header = Header {
            flags: EXACT | INLINE,
            counts: [self.file_rows, slots, terms.len() as u32, buckets, built.probes],
            words: [u64::from(built.seed), base, 0],
            term_bytes: 0,
            bits: [built.tag_bits as u8, built.length_bits as u8],
        };
        let mut dictionary = Vec::with_capacity(HEADER_BYTES + built.bytes.len());
        header.write_to(&mut dictionary);
        dictionary.extend_from_slice(&built.bytes);
        Some(Encoded { dictionary, heap: Vec::new() })
    }

    fn encode(self, terms: Terms<'_>, key: impl Fn(u64, u32) -> Key) -> Result<Encoded> {
        let full = |(ordinal, slot): (usize, &Option<u32>)| slot.map(|_| ordinal as u32);
        let ordinals: Vec<u32> = self.slots.iter().enumerate().filter_map(full).collect();
        let number = |ordinal: u32| self.slots[ordinal as usize].unwrap_or_default();
        let Built { bytes: buckets, probes, seed } =
            table::build(ordinals.iter().copied(), |seed, ordinal| key(seed, number(ordinal)))?;

        let mut flags = terms.flags | if self.clustered { CLUSTERED } else { 0 };
        let mut order = Vec::new();
        if terms.ordered {
            let in_order = self.slots.len() == self.by_term.len()
                && self.slots.iter().zip(&self.by_term).all(|(slot, term)| *slot == Some(*term));
            flags |= if in_order { SORTED } else { ORDER };
            if !in_order {
                let mut ordinal_of = vec![0u32; self.by_term.len()];
                ordinals.iter().for_each(|&ordinal| ordinal_of[number(ordinal) as usize] = ordinal);
                let ordinals = self.by_term.iter().map(|&number| ordinal_of[number as usize]);
                order.extend(ordinals.flat_map(u32::to_le_bytes));
            }
        }

        let mut out = Vec::with_capacity(HEADER_BYTES + buckets.len() + self.postings.len());
        let buckets_count = (buckets.len() / table::BUCKET_BYTES) as u32;
        let [ordinals, count] = [self.slots.len(), self.by_term.len()].map(|count| count as u32);
        let header = Header {
            flags,
            counts: [self.file_rows, ordinals, count, buckets_count, probes],
            words: [seed, terms.base, self.heap.len() as u64],
            term_bytes: terms.text.len() as u32,
            bits: [0, 0],
        };
        header.write_to(&mut out);
        for section in [&buckets, &self.postings, &terms.keys, &order, terms.text] {
            out.extend_from_slice(section);
        }
        Ok(Encoded { dictionary: out, heap: self.heap })
    }
}

/// Appends a list of two or more runs in its smallest form.
fn write_list(runs: &[Run], heap: &mut Vec<u8>) -> List {
    let rows: usize = runs.iter().map(|run| run.len() as usize).sum();
    let place = (heap.len() / 4) as u32;
    let flat = (4 * rows).min(8 * runs.len());
    if flat >= MIN_ROARING_BYTES && size_of_runs(runs) < flat {
        RowSet::from_runs(runs.iter().copied()).write_to(heap);
        heap.resize(heap.len().next_multiple_of(4), 0);
        let count = (heap.len() / 4) as u32 - place;
        return List { kind: ListKind::Roaring, place, count };
    }
    if 4 * rows <= 8 * runs.len() {
        for row in runs.iter().flat_map(|run| run.start..run.end) {
            heap.extend_from_slice(&row.to_le_bytes());
        }
        return List { kind: ListKind::Rows, place, count: rows as u32 };
    }
    for run in runs {
        heap.extend_from_slice(&run.start.to_le_bytes());
        heap.extend_from_slice(&run.end.to_le_bytes());
    }
    List { kind: ListKind::Runs, place, count: runs.len() as u32 }
}
