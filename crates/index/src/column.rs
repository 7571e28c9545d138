//! Asking a column's index which rows to read.
//!
//! Nothing here reads: [`Column::plan`] says which bytes an answer needs, the caller fetches them,
//! all at once, and [`Column::answer`] gives the rows. With the dictionary at hand there is at most
//! that one round trip, and none if every list is a single run or the heap is small.
//!
//! # Invariants
//! - Bytes are checked against their checksums when they come in, before anything looks at them.
//! - An answer without `recheck` holds exactly the rows asked for; with it, it may hold more.

use std::ops::{Range, RangeInclusive};

use uplake_postings::{Dictionary, Heap, Posting, RowSet, Run, Scratch, Selection, TermId};

use crate::error::IndexError;
use crate::format::{BLOCK_BYTES, ColumnInfo, Kind, UNICODE};
use crate::grams;
use crate::words::{self, Word};
use crate::zones::{self, ZONE_BYTES};

/// Grams of a pattern that are looked at, the rarest first: the next one hardly ever rules out a
/// block that eight have not, and costs a fetch.
const MAX_GRAMS: usize = 8;

type Result<T> = std::result::Result<T, IndexError>;

/// A question to a column's index.
#[derive(Debug, Clone)]
pub enum Query<'q> {
    /// Rows that hold one of these integers; an index of integers answers it. Whoever wrote signed
    /// ones with [`crate::key_of_i64`] asks with it, too.
    IntegerIn(&'q [u64]),
    /// Rows that hold an integer in the range; an index of integers, if it is ordered.
    IntegerBetween(RangeInclusive<u64>),
    /// Rows that hold one of these strings; an index of strings.
    StringIn(&'q [&'q [u8]]),
    /// Rows that hold a string with this prefix; an index of strings, if it is ordered.
    StringPrefix(&'q [u8]),
    /// Rows that hold all words of this text; an index of words.
    Match(&'q str),
    /// Rows that may match this LIKE or ILIKE pattern; an index of grams, or one of words, which
    /// knows bigrams of Han and kana and whole words inside the pattern.
    Like {
        /// The pattern, with `%` and `_`.
        pattern: &'q str,
        /// What makes the character after it literal.
        escape: Option<char>,
    },
    /// Rows that may hold a key in the range; zone maps.
    KeyBetween(RangeInclusive<u64>),
}

/// What an answer needs.
#[derive(Debug, Clone)]
pub struct Plan {
    terms: Terms,
    /// Parts of the heap, by heap offset.
    parts: Vec<Range<u64>>,
    /// The same, by file offset.
    fetch: Vec<Range<u64>>,
    recheck: bool,
}

#[derive(Debug, Clone)]
enum Terms {
    /// Rows of any of these.
    Any(Vec<TermId>),
    /// Rows that every group has a term of.
    All(Vec<Vec<TermId>>),
    /// Known without any list.
    Blocks(RowSet),
    /// Known without any list, as rows; of how many terms.
    Rows { rows: Selection, terms: usize },
}

impl Plan {
    /// Ranges of the file to fetch for [`Column::answer`]: disjoint, ascending, whole blocks.
    #[must_use]
    pub fn fetch(&self) -> &[Range<u64>] {
        &self.fetch
    }

    /// Number of different lists that the answer is made of.
    #[must_use]
    pub fn list_count(&self) -> usize {
        match &self.terms {
            Terms::Any(terms) => terms.len(),
            Terms::All(groups) => groups.iter().map(Vec::len).sum(),
            Terms::Blocks(_) => 0,
            Terms::Rows { terms, .. } => *terms,
        }
    }
}

/// The rows to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Rows of the data file.
    pub rows: Selection,
    /// Whether some of the rows may not be wanted, so that the filter must be applied to them.
    pub recheck: bool,
}

/// A column's index with its first read at hand: bytes in memory or in a mapped file.
#[derive(Debug, Clone)]
pub struct Column<B> {
    info: ColumnInfo,
    bytes: B,
}

impl<B: AsRef<[u8]>> Column<B> {
    /// Opens a column with the bytes of [`ColumnInfo::first_read`]. Computes their checksums, once
    /// for all queries.
    ///
    /// # Errors
    /// [`IndexError::WrongRange`] if the bytes are not that many, [`IndexError::Corrupt`] if a
    /// checksum or the header is wrong, [`IndexError::OtherUnicode`], and [`IndexError::Postings`].
    pub fn open(info: &ColumnInfo, bytes: B) -> Result<Self> {
        let (range, found) = (info.first_read(), bytes.as_ref().len() as u64);
        if found != range.end - range.start {
            return Err(IndexError::WrongRange { start: range.start, end: range.end, found });
        }
        if matches!(info.kind, Kind::Words | Kind::Grams) && info.unicode != UNICODE {
            let words = |[major, minor, update, _]: [u8; 4]| format!("{major}.{minor}.{update}");
            let (found, ours) = (words(info.unicode), words(UNICODE));
            return Err(IndexError::OtherUnicode { found, ours });
        }
        let column = Self { info: info.clone(), bytes };
        info.dictionary.check(0, column.dictionary_bytes())?;
        if let Some(heap) = column.resident_heap() {
            info.heap.check(0, heap)?;
        }
        let units = info.file_rows.div_ceil(info.block_rows);
        let sound = if info.kind == Kind::Zones {
            column.dictionary_bytes().len() == units as usize * ZONE_BYTES
        } else {
            let dictionary = column.dictionary()?;
            dictionary.file_rows() == units && dictionary.heap_bytes() == info.heap.bytes
        };
        if sound {
            return Ok(column);
        }
        Err(IndexError::corrupt("a column is not that of its footer", range.start))
    }

    /// What the column's index is.
    #[must_use]
    pub fn info(&self) -> &ColumnInfo {
        &self.info
    }

    fn dictionary_bytes(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.info.dictionary.bytes as usize]
    }

    fn dictionary(&self) -> Result<Dictionary<'_>> {
        Ok(Dictionary::parse(self.dictionary_bytes())?)
    }

    /// The heap, if it came with the dictionary.
    fn resident_heap(&self) -> Option<&[u8]> {
        let start = self.info.heap.offset - self.info.dictionary.offset;
        (self.info.first_read().end == self.info.heap.range().end)
            .then(|| &self.bytes.as_ref()[start as usize..])
    }

    /// Which terms a query is about, and which bytes their lists need; `None` if the index cannot
    /// help (a pattern that says too little literally, a text without a word, a range of an index
    /// without order): then all rows are to be read.
    ///
    /// # Errors
    /// [`IndexError::WrongKind`] if an index of this kind does not answer such queries, and
    /// [`IndexError::Postings`] if the dictionary is corrupt.
    pub fn plan(&self, query: &Query<'_>) -> Result<Option<Plan>> {
        let (terms, recheck) = match (self.info.kind, query) {
            (Kind::Integers, Query::IntegerIn(ids)) if self.dictionary()?.is_inline() => {
                let mut scratch = Scratch::default();
                let rows = self.dictionary()?.union_integers(ids, &[][..], &mut scratch)?;
                (Terms::Rows { rows, terms: scratch.found_terms() }, false)
            }
            (Kind::Integers, Query::IntegerIn(ids)) => {
                let mut terms = Vec::with_capacity(ids.len());
                self.dictionary()?.lookup_integers(ids, |_, term| terms.push(term))?;
                (Terms::Any(terms), false)
            }
            (Kind::Strings, Query::StringIn(strings)) => {
                let mut terms = Vec::with_capacity(strings.len());
                self.dictionary()?.lookup_all_bytes(strings, |_, term| terms.push(term))?;
                (Terms::Any(terms), false)
            }
            (Kind::Integers, Query::IntegerBetween(_))
            | (Kind::Strings, Query::StringPrefix(_))
                if !self.dictionary()?.is_ordered() =>
            {
                return Ok(None);
            }
            (Kind::Integers, Query::IntegerBetween(range)) => {
                let dictionary = self.dictionary()?;
                let positions = dictionary.integers_in(range.clone())?;
                (Terms::Any(nth(&dictionary, positions)?), false)
            }
            (Kind::Strings, Query::StringPrefix(prefix)) => {
                let dictionary = self.dictionary()?;
                let positions = dictionary.bytes_with_prefix(prefix)?;
                (Terms::Any(nth(&dictionary, positions)?), false)
            }
            (Kind::Words, Query::Match(text)) => match words::of_query(text) {
                words if words.is_empty() => return Ok(None),
                words => (self.all_words(&words)?, false),
            },
            (Kind::Words, &Query::Like { pattern, escape }) => {
                match words::of_pattern(pattern, escape) {
                    words if words.is_empty() => return Ok(None),
                    words => (self.all_words(&words)?, true),
                }
            }
            (Kind::Grams, &Query::Like { pattern, escape }) => {
                match grams::of_pattern(pattern, escape) {
                    grams if grams.is_empty() => return Ok(None),
                    grams => (self.all_grams(&grams)?, true),
                }
            }
            (Kind::Zones, Query::KeyBetween(keys)) => {
                (Terms::Blocks(zones::blocks_with(self.dictionary_bytes(), keys)), true)
            }
            (kind, _) => {
                let (column, kind) = (self.info.name.clone(), kind.name());
                return Err(IndexError::WrongKind { column, kind });
            }
        };
        let parts = self.parts(&terms)?;
        let offset = self.info.heap.offset;
        let fetch = parts.iter().map(|part| part.start + offset..part.end + offset).collect();
        Ok(Some(Plan { terms, parts, fetch, recheck }))
    }

    fn all_words(&self, words: &[Word]) -> Result<Terms> {
        let dictionary = self.dictionary()?;
        let mut groups = Vec::new();
        for Word { text, is_prefix } in words {
            let group = if *is_prefix {
                nth(&dictionary, dictionary.bytes_with_prefix(text.as_bytes())?)?
            } else {
                dictionary.lookup_bytes(text.as_bytes())?.into_iter().collect()
            };
            if group.is_empty() {
                return Ok(Terms::Any(Vec::new()));
            }
            groups.push(group);
        }
        Ok(Terms::All(groups))
    }

    fn all_grams(&self, grams: &[u64]) -> Result<Terms> {
        let dictionary = self.dictionary()?;
        let mut terms = Vec::new();
        for &gram in grams {
            let Some(term) = dictionary.lookup_integer(gram)? else {
                return Ok(Terms::Any(Vec::new()));
            };
            // Blocks, or bytes of a list: both grow with how common the gram is.
            let weight = match dictionary.posting(term)? {
                Posting::Run(run) => u64::from(run.len()),
                Posting::List(list) => list.heap_range().end - list.heap_range().start,
            };
            terms.push((weight, term));
        }
        terms.sort_unstable();
        Ok(Terms::All(terms.into_iter().take(MAX_GRAMS).map(|(_, term)| vec![term]).collect()))
    }

    /// The parts of the heap that the lists of `terms` lie in: whole blocks, joined where they
    /// touch.
    fn parts(&self, terms: &Terms) -> Result<Vec<Range<u64>>> {
        let all: Box<dyn Iterator<Item = &TermId> + '_> = match terms {
            _ if self.resident_heap().is_some() => return Ok(Vec::new()),
            Terms::Any(terms) => Box::new(terms.iter()),
            Terms::All(groups) => Box::new(groups.iter().flatten()),
            Terms::Blocks(_) | Terms::Rows { .. } => return Ok(Vec::new()),
        };
        let (dictionary, heap) = (self.dictionary()?, &self.info.heap);
        let mut parts = Vec::new();
        for &term in all {
            if let Posting::List(list) = dictionary.posting(term)? {
                let range = list.heap_range();
                if range.end > heap.bytes {
                    return Err(IndexError::corrupt("a list is outside its heap", heap.offset));
                }
                parts.push(heap.blocks(&range));
            }
        }
        parts.sort_unstable_by_key(|part| part.start);
        parts.dedup_by(|next, last| {
            let touch = next.start <= last.end;
            if touch {
                last.end = last.end.max(next.end);
            }
            touch
        });
        Ok(parts)
    }

    /// The rows of a plan; `fetched` are the bytes of [`Plan::fetch`], range by range.
    ///
    /// # Errors
    /// [`IndexError::WrongRange`] if `fetched` are not those, [`IndexError::Corrupt`] if a checksum
    /// is wrong, and [`IndexError::Postings`].
    pub fn answer(
        &self,
        plan: &Plan,
        fetched: &[impl AsRef<[u8]>],
        scratch: &mut Scratch,
    ) -> Result<Answer> {
        let heap = self.fetched_heap(plan, fetched)?;
        let recheck = plan.recheck;
        let rows = match &plan.terms {
            Terms::Any(terms) if terms.is_empty() => Selection::Runs(Vec::new()),
            Terms::Any(terms) => self.dictionary()?.union_terms(terms, &heap, scratch)?,
            Terms::Blocks(blocks) => self.rows_of_blocks(blocks),
            Terms::Rows { rows, .. } => rows.clone(),
            Terms::All(groups) if groups.len() == 1 && self.info.block_rows == 1 => {
                self.dictionary()?.union_terms(&groups[0], &heap, scratch)?
            }
            Terms::All(groups) => {
                let dictionary = self.dictionary()?;
                let mut common: Option<RowSet> = None;
                for group in groups {
                    let rows = dictionary.union_terms(group, &heap, scratch)?.into_row_set();
                    let rows = common.map_or(rows.clone(), |common| common.and(&rows));
                    let done = rows.is_empty();
                    common = Some(rows);
                    if done {
                        break;
                    }
                }
                let common = common.unwrap_or_default();
                if self.info.kind == Kind::Grams {
                    self.rows_of_blocks(&common)
                } else {
                    common.into_selection(self.info.file_rows)
                }
            }
        };
        Ok(Answer { rows, recheck })
    }

    /// The rows of blocks, which are units of `block_rows`.
    fn rows_of_blocks(&self, blocks: &RowSet) -> Selection {
        let (size, rows) = (u64::from(self.info.block_rows), u64::from(self.info.file_rows));
        let row = |block: u32| (u64::from(block) * size).min(rows) as u32;
        let runs = blocks.runs().map(|run| Run::new(row(run.start), row(run.end)));
        RowSet::from_runs(runs).into_selection(self.info.file_rows)
    }

    fn fetched_heap<'f>(
        &'f self,
        plan: &Plan,
        fetched: &'f [impl AsRef<[u8]>],
    ) -> Result<FetchedHeap<'f>> {
        if let Some(heap) = self.resident_heap() {
            return Ok(FetchedHeap { parts: vec![(0, heap)] });
        }
        if fetched.len() != plan.parts.len() {
            let Range { start, end } = self.info.heap.range();
            let found = fetched.iter().map(|part| part.as_ref().len() as u64).sum();
            return Err(IndexError::WrongRange { start, end, found });
        }
        let mut parts = Vec::with_capacity(fetched.len());
        for ((part, range), bytes) in plan.parts.iter().zip(&plan.fetch).zip(fetched) {
            let bytes = bytes.as_ref();
            let found = bytes.len() as u64;
            if found != part.end - part.start {
                return Err(IndexError::WrongRange { start: range.start, end: range.end, found });
            }
            debug_assert!(part.start % BLOCK_BYTES == 0);
            self.info.heap.check(part.start, bytes)?;
            parts.push((part.start, bytes));
        }
        Ok(FetchedHeap { parts })
    }
}

/// The terms at `positions` in term order.
fn nth(dictionary: &Dictionary<'_>, positions: Range<u32>) -> Result<Vec<TermId>> {
    Ok(positions.map(|position| dictionary.nth(position)).collect::<std::result::Result<_, _>>()?)
}

/// Parts of a heap, by where they start; disjoint.
struct FetchedHeap<'f> {
    parts: Vec<(u64, &'f [u8])>,
}

impl Heap for FetchedHeap<'_> {
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let after = self.parts.partition_point(|(start, _)| *start <= range.start);
        let (start, bytes) = self.parts.get(after.checked_sub(1)?)?;
        bytes.bytes(range.start - start..range.end - start)
    }
}
