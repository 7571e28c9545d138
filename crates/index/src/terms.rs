//! The terms that a question is about, and the rows of their lists.
//!
//! # Invariants
//! - Every list of a plan is asked for before it is read: [`parts`] names its blocks.

use std::ops::Range;

use uplake_postings::{
    Dictionary, Heap, Lookup, Outline, Parts, Posting, Run, Scratch, Selection, TermId,
};

use crate::error::IndexError;
use crate::format::{ColumnInfo, Kind, Section};
use crate::query::Query;
use crate::words::{self, Word};
use crate::{grams, zones};

/// Grams of a pattern that are looked at, the rarest first: the next one hardly ever rules out a
/// block that eight have not, and costs a fetch.
const MAX_GRAMS: usize = 8;

type Result<T> = std::result::Result<T, IndexError>;

/// What a question asks of an index of one kind.
pub(crate) enum Asked<'q> {
    /// These terms. Rows may have to be rechecked.
    Keys(Keys<'q>, bool),
    /// Words, of which some are prefixes.
    Prefixes(Vec<Word>, bool),
    /// A range or a prefix.
    Ordered,
    /// Blocks of rows.
    Zones,
    /// Nothing that it knows.
    Vague,
}

/// Terms to look up.
#[derive(Debug, Clone)]
pub(crate) enum Keys<'q> {
    /// Any of these.
    Integers(&'q [u64]),
    /// Any of these.
    Strings(&'q [&'q [u8]]),
    /// All of these.
    Grams(Vec<u64>),
    /// All of these; none is a prefix.
    Words(Vec<Word>),
}

impl<'q> Asked<'q> {
    /// # Errors
    /// [`IndexError::WrongKind`] if an index of this kind does not answer such queries.
    pub(crate) fn of(info: &ColumnInfo, query: &Query<'q>) -> Result<Self> {
        let words = |words: Vec<Word>, recheck| match words {
            words if words.is_empty() => Self::Vague,
            words if words.iter().any(|word| word.is_prefix) => Self::Prefixes(words, recheck),
            words => Self::Keys(Keys::Words(words), recheck),
        };
        Ok(match (info.kind, query) {
            (Kind::Integers, Query::IntegerIn(ids)) => Self::Keys(Keys::Integers(ids), false),
            (Kind::Strings, Query::StringIn(strings)) => Self::Keys(Keys::Strings(strings), false),
            (Kind::Integers, Query::IntegerBetween(_)) => Self::Ordered,
            (Kind::Strings, Query::StringPrefix(_)) => Self::Ordered,
            (Kind::Words, Query::Match(text)) => words(words::of_query(text), false),
            (Kind::Words, &Query::Like { pattern, escape }) => {
                let (found, is_exact) = words::of_pattern(pattern, escape);
                words(found, !is_exact)
            }
            (Kind::Grams, &Query::Like { pattern, escape }) => {
                match grams::of_pattern(pattern, escape) {
                    grams if grams.is_empty() => Self::Vague,
                    grams => Self::Keys(Keys::Grams(grams), true),
                }
            }
            (Kind::Zones, Query::KeyBetween(_)) => Self::Zones,
            (kind, _) => {
                let (column, kind) = (info.name.clone(), kind.name());
                return Err(IndexError::WrongKind { column, kind });
            }
        })
    }
}

impl Keys<'_> {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Integers(ids) => ids.len(),
            Self::Strings(strings) => strings.len(),
            Self::Grams(grams) => grams.len(),
            Self::Words(words) => words.len(),
        }
    }

    fn find(
        &self,
        at: usize,
        outline: &Outline,
        parts: &impl Parts,
        missing: &mut Vec<Range<u64>>,
    ) -> Result<Lookup> {
        Ok(match self {
            Self::Integers(ids) => outline.find_integer(ids[at], parts, missing),
            Self::Grams(grams) => outline.find_integer(grams[at], parts, missing),
            Self::Strings(strings) => outline.find_bytes(strings[at], parts, missing),
            Self::Words(words) => outline.find_bytes(words[at].text.as_bytes(), parts, missing),
        }?)
    }
}

/// Look-ups of a few terms, which go on as bytes come in.
#[derive(Debug, Clone)]
pub(crate) struct Lookups<'q> {
    keys: Keys<'q>,
    /// Those of which nothing is known yet.
    open: Vec<usize>,
    found: Vec<Option<Posting>>,
}

impl<'q> Lookups<'q> {
    pub(crate) fn new(keys: Keys<'q>) -> Self {
        let count = keys.count();
        Self { keys, open: (0..count).collect(), found: vec![None; count] }
    }

    /// Goes on with the parts of `section` that are at hand; gives the blocks that are missing,
    /// none when all is known.
    pub(crate) fn step(
        &mut self,
        outline: &Outline,
        section: &Section,
        parts: &impl Parts,
    ) -> Result<Vec<Range<u64>>> {
        let (mut missing, mut open) = (Vec::new(), Vec::new());
        for at in self.open.drain(..) {
            match self.keys.find(at, outline, parts, &mut missing)? {
                Lookup::Found(posting) => self.found[at] = Some(posting),
                Lookup::Absent => {}
                Lookup::Missing => open.push(at),
            }
        }
        self.open = open;
        Ok(section.joined_blocks(&missing))
    }

    /// Postings in groups, of each of which a row must have one; when all is known.
    pub(crate) fn take_groups(&mut self) -> Vec<Vec<Posting>> {
        let found = std::mem::take(&mut self.found).into_iter();
        if matches!(self.keys, Keys::Integers(_) | Keys::Strings(_)) {
            return vec![found.flatten().collect()];
        }
        let Some(mut all) = found.collect::<Option<Vec<Posting>>>() else {
            return vec![Vec::new()];
        };
        if matches!(self.keys, Keys::Grams(_)) {
            all.sort_by_key(Posting::weight);
            all.truncate(MAX_GRAMS);
        }
        all.into_iter().map(|posting| vec![posting]).collect()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Terms {
    /// Rows of any of these.
    Any(Vec<TermId>),
    /// Rows that every group has a posting of.
    All(Vec<Vec<Posting>>),
    /// Known without any list.
    Blocks(Selection),
    /// Known without any list, as rows; of how many terms.
    Rows { rows: Selection, terms: usize },
}

impl Terms {
    /// Words with prefixes among them, from a dictionary at hand.
    pub(crate) fn of_prefixes(dictionary: &Dictionary<'_>, words: &[Word]) -> Result<Self> {
        let mut groups = Vec::new();
        for Word { text, is_prefix } in words {
            let terms: Vec<TermId> = if *is_prefix {
                nth(dictionary, dictionary.bytes_with_prefix(text.as_bytes())?)?
            } else {
                dictionary.lookup_bytes(text.as_bytes())?.into_iter().collect()
            };
            if terms.is_empty() {
                return Ok(Self::All(vec![Vec::new()]));
            }
            let group = terms.into_iter().map(|term| dictionary.posting(term));
            groups.push(group.collect::<std::result::Result<_, _>>()?);
        }
        Ok(Self::All(groups))
    }

    /// A range of integers or a prefix of strings; `None` if the dictionary has no order.
    pub(crate) fn of_range(dictionary: &Dictionary<'_>, query: &Query<'_>) -> Result<Option<Self>> {
        if !dictionary.is_ordered() {
            return Ok(None);
        }
        let positions = match query {
            Query::IntegerBetween(range) => dictionary.integers_in(range.clone())?,
            Query::StringPrefix(prefix) => dictionary.bytes_with_prefix(prefix)?,
            _ => return Ok(None),
        };
        Ok(Some(Self::Any(nth(dictionary, positions)?)))
    }

    /// Blocks whose keys meet a range.
    pub(crate) fn of_zones(zones: &[u8], query: &Query<'_>) -> Option<Self> {
        let Query::KeyBetween(keys) = query else { return None };
        Some(Self::Blocks(zones::blocks_with(zones, keys)))
    }

    /// Number of different lists.
    pub(crate) fn list_count(&self) -> usize {
        match self {
            Self::Any(terms) => terms.len(),
            Self::All(groups) => groups.iter().map(Vec::len).sum(),
            Self::Blocks(_) => 0,
            Self::Rows { terms, .. } => *terms,
        }
    }

    /// The blocks of the heap that the lists lie in.
    pub(crate) fn parts(
        &self,
        heap: &Section,
        dictionary: &Dictionary<'_>,
    ) -> Result<Vec<Range<u64>>> {
        match self {
            Self::Any(terms) => {
                parts(heap, terms.iter().map(|&term| Ok(dictionary.posting(term)?)))
            }
            Self::All(groups) => parts(heap, groups.iter().flatten().copied().map(Ok)),
            Self::Blocks(_) | Self::Rows { .. } => Ok(Vec::new()),
        }
    }
}

/// The blocks of the heap that lists lie in, joined where they touch.
pub(crate) fn parts(
    heap: &Section,
    postings: impl Iterator<Item = Result<Posting>>,
) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    for posting in postings {
        if let Posting::List(list) = posting? {
            ranges.push(list.heap_range());
        }
    }
    if ranges.iter().any(|range| range.end > heap.bytes) {
        return Err(IndexError::corrupt("a list is outside its heap", heap.offset));
    }
    Ok(heap.joined_blocks(&ranges))
}

/// The terms at `positions` in term order.
fn nth(dictionary: &Dictionary<'_>, positions: Range<u32>) -> Result<Vec<TermId>> {
    Ok(positions.map(|position| dictionary.nth(position)).collect::<std::result::Result<_, _>>()?)
}

/// The rows that every one of `groups` has a posting of.
pub(crate) fn rows_of_all(
    info: &ColumnInfo,
    outline: &Outline,
    groups: &[Vec<Posting>],
    heap: &FetchedHeap<'_>,
    scratch: &mut Scratch,
) -> Result<Selection> {
    let rows = match groups {
        [one] => outline.union(one, heap, scratch)?,
        groups => outline.intersect(groups, heap, scratch)?,
    };
    Ok(if info.block_rows == 1 { rows } else { rows_of_blocks(info, &rows) })
}

/// The rows of blocks, which are units of `block_rows`.
pub(crate) fn rows_of_blocks(info: &ColumnInfo, blocks: &Selection) -> Selection {
    let (size, rows) = (u64::from(info.block_rows), u64::from(info.file_rows));
    let row = |block: u32| (u64::from(block) * size).min(rows) as u32;
    let runs = blocks.runs().map(|run| Run::new(row(run.start), row(run.end)));
    Selection::from_runs(runs.collect(), info.file_rows)
}

/// Parts of a heap, by where they start; disjoint.
pub(crate) struct FetchedHeap<'f> {
    pub(crate) parts: Vec<(u64, &'f [u8])>,
}

impl Heap for FetchedHeap<'_> {
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let after = self.parts.partition_point(|(start, _)| *start <= range.start);
        let (start, bytes) = self.parts.get(after.checked_sub(1)?)?;
        bytes.bytes(range.start - start..range.end - start)
    }
}
