//! Asking a column's index which rows to read.
//!
//! Nothing here reads: [`Column::plan`] says which bytes an answer needs, the caller fetches them,
//! all at once, and [`Column::answer`] gives the rows. With the dictionary at hand there is at most
//! that one round trip, and none if every list is a single run or the heap is small.
//!
//! # Invariants
//! - A block is checked against its checksum before anything looks at it: the header when a column
//!   is opened, others when a question first needs them. Opening takes microseconds.
//! - An answer without `recheck` holds exactly the rows asked for; with it, it may hold more.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uplake_postings::{Dictionary, Outline, Parts, Scratch, Selection};

use crate::error::IndexError;
use crate::format::{BLOCK_BYTES, ColumnInfo, Kind, Section, UNICODE};
use crate::query::Query;
use crate::terms::{Asked, FetchedHeap, Keys, Lookups, Terms, rows_of_all, rows_of_blocks};
use crate::zones::ZONE_BYTES;

type Result<T> = std::result::Result<T, IndexError>;

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

impl Plan {
    /// Ranges of the file to fetch for [`Column::answer`]: disjoint, ascending, whole blocks.
    #[must_use]
    pub fn fetch(&self) -> &[Range<u64>] {
        &self.fetch
    }

    /// Number of different lists that the answer is made of.
    #[must_use]
    pub fn list_count(&self) -> usize {
        self.terms.list_count()
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
    /// `None` for zone maps, which have no dictionary.
    outline: Option<Outline>,
    dictionary: Checked,
    heap: Checked,
}

/// Which blocks of a section have been checked: a bit each.
#[derive(Debug, Clone)]
struct Checked(Arc<[AtomicU64]>);

impl Checked {
    fn new(section: &Section) -> Self {
        let words = section.checksums.len().div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    // A bit says that bytes nobody writes are sound, so it orders nothing.
    fn has(&self, block: u64) -> bool {
        let word = self.0.get(block as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1)
    }

    fn blocks(range: &Range<u64>) -> Range<u64> {
        range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
    }

    /// Checks those of the blocks around `range` that were not; `bytes` are those of the section.
    fn check(&self, section: &Section, bytes: &[u8], range: &Range<u64>) -> Result<()> {
        for block in Self::blocks(range).filter(|&block| !self.has(block)) {
            let start = block * BLOCK_BYTES;
            let end = bytes.len().min((start + BLOCK_BYTES) as usize);
            section.check(start, bytes.get(start as usize..end).unwrap_or_default())?;
            if let Some(word) = self.0.get(block as usize / 64) {
                word.fetch_or(1 << (block % 64), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The blocks of a dictionary that have been checked.
struct Sound<'c> {
    bytes: &'c [u8],
    checked: &'c Checked,
}

impl Parts for Sound<'_> {
    fn copy(&self, at: u64, out: &mut [u8]) -> bool {
        Checked::blocks(&(at..at + out.len() as u64)).all(|block| self.checked.has(block))
            && self.bytes.copy(at, out)
    }
}

/// Reads the header of a column's dictionary, `None` for zone maps, and compares it with the footer.
pub(crate) fn outline_of(info: &ColumnInfo, header: &[u8]) -> Result<Option<Outline>> {
    if matches!(info.kind, Kind::Words | Kind::Grams) && info.unicode != UNICODE {
        let words = |[major, minor, update, _]: [u8; 4]| format!("{major}.{minor}.{update}");
        let (found, ours) = (words(info.unicode), words(UNICODE));
        return Err(IndexError::OtherUnicode { found, ours });
    }
    let units = info.file_rows.div_ceil(info.block_rows);
    let (outline, sound) = if info.kind == Kind::Zones {
        (None, info.dictionary.bytes == u64::from(units) * ZONE_BYTES as u64)
    } else {
        let outline = Outline::parse(header, info.dictionary.bytes)?;
        let sound = outline.file_rows() == units && outline.heap_bytes() == info.heap.bytes;
        (Some(outline), sound)
    };
    if sound {
        return Ok(outline);
    }
    Err(IndexError::corrupt("a column is not that of its footer", info.dictionary.offset))
}

impl<B: AsRef<[u8]>> Column<B> {
    /// Opens a column with the bytes of [`ColumnInfo::first_read`]. Checks the block of the header;
    /// questions check those that they need, each once.
    ///
    /// # Errors
    /// [`IndexError::WrongRange`] if the bytes are not that many, [`IndexError::Corrupt`] if a
    /// checksum or the header is wrong, [`IndexError::OtherUnicode`], and [`IndexError::Postings`].
    pub fn open(info: &ColumnInfo, bytes: B) -> Result<Self> {
        let (range, found) = (info.first_read(), bytes.as_ref().len() as u64);
        if found != range.end - range.start {
            return Err(IndexError::WrongRange { start: range.start, end: range.end, found });
        }
        let dictionary = Checked::new(&info.dictionary);
        let section = &bytes.as_ref()[..info.dictionary.bytes as usize];
        dictionary.check(&info.dictionary, section, &(0..info.dictionary.bytes.min(1)))?;
        let outline = outline_of(info, section)?;
        let heap = Checked::new(&info.heap);
        Ok(Self { info: info.clone(), bytes, outline, dictionary, heap })
    }

    /// What the column's index is.
    #[must_use]
    pub fn info(&self) -> &ColumnInfo {
        &self.info
    }

    fn dictionary_bytes(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.info.dictionary.bytes as usize]
    }

    /// The bytes of the dictionary, all of them checked.
    fn checked_dictionary(&self) -> Result<&[u8]> {
        let (section, bytes) = (&self.info.dictionary, self.dictionary_bytes());
        self.dictionary.check(section, bytes, &(0..section.bytes))?;
        Ok(bytes)
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
    /// [`IndexError::WrongKind`] if an index of this kind does not answer such queries,
    /// [`IndexError::Corrupt`] if a checksum is wrong, and [`IndexError::Postings`] if the
    /// dictionary is corrupt.
    pub fn plan(&self, query: &Query<'_>) -> Result<Option<Plan>> {
        let (terms, recheck) = match Asked::of(&self.info, query)? {
            Asked::Keys(keys, recheck) => (self.look_up(keys)?, recheck),
            Asked::Prefixes(words, recheck) => {
                let dictionary = Dictionary::parse(self.checked_dictionary()?)?;
                (Terms::of_prefixes(&dictionary, &words)?, recheck)
            }
            Asked::Ordered => {
                let dictionary = Dictionary::parse(self.checked_dictionary()?)?;
                match Terms::of_range(&dictionary, query)? {
                    Some(terms) => (terms, false),
                    None => return Ok(None),
                }
            }
            Asked::Zones => match Terms::of_zones(self.checked_dictionary()?, query) {
                Some(terms) => (terms, true),
                None => return Ok(None),
            },
            Asked::Vague => return Ok(None),
        };
        let parts = if self.resident_heap().is_some() {
            Vec::new()
        } else {
            terms.parts(&self.info.heap, &Dictionary::parse(self.dictionary_bytes())?)?
        };
        let fetch = self.info.heap.in_file(&parts);
        Ok(Some(Plan { terms, parts, fetch, recheck }))
    }

    /// Few terms are looked up one by one, in the blocks that they need; of thousands, which need
    /// all blocks, the next one's cache line is asked for while one is compared.
    fn look_up(&self, keys: Keys<'_>) -> Result<Terms> {
        match keys {
            Keys::Integers(ids) if !self.info.is_sparse(ids.len()) => {
                let dictionary = Dictionary::parse(self.checked_dictionary()?)?;
                if dictionary.is_inline() {
                    let mut scratch = Scratch::default();
                    let rows = dictionary.union_integers(ids, &[][..], &mut scratch)?;
                    return Ok(Terms::Rows { rows, terms: scratch.found_terms() });
                }
                let mut terms = Vec::with_capacity(ids.len());
                dictionary.lookup_integers(ids, |_, term| terms.push(term))?;
                Ok(Terms::Any(terms))
            }
            Keys::Strings(strings) if !self.info.is_sparse(strings.len()) => {
                let dictionary = Dictionary::parse(self.checked_dictionary()?)?;
                let mut terms = Vec::with_capacity(strings.len());
                dictionary.lookup_all_bytes(strings, |_, term| terms.push(term))?;
                Ok(Terms::Any(terms))
            }
            keys => {
                let bytes = self.dictionary_bytes();
                let sound = Sound { bytes, checked: &self.dictionary };
                let mut lookups = Lookups::new(keys);
                loop {
                    let unchecked = lookups.step(self.outline()?, &self.info.dictionary, &sound)?;
                    if unchecked.is_empty() {
                        return Ok(Terms::All(lookups.take_groups()));
                    }
                    for blocks in unchecked {
                        self.dictionary.check(&self.info.dictionary, bytes, &blocks)?;
                    }
                }
            }
        }
    }

    fn outline(&self) -> Result<&Outline> {
        let (column, kind) = (&self.info.name, self.info.kind.name());
        let wrong = || IndexError::WrongKind { column: column.clone(), kind };
        self.outline.as_ref().ok_or_else(wrong)
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
        let parts = match self.resident_heap() {
            Some(heap) => {
                // At most four blocks.
                let section = &self.info.heap;
                self.heap.check(section, heap, &(0..section.bytes))?;
                vec![(0, heap)]
            }
            None => self.info.heap.checked_parts(&plan.parts, fetched)?,
        };
        let heap = FetchedHeap { parts };
        let rows = match &plan.terms {
            Terms::Any(terms) if terms.is_empty() => Selection::Runs(Vec::new()),
            Terms::Any(terms) => {
                let dictionary = Dictionary::parse(self.dictionary_bytes())?;
                dictionary.union_terms(terms, &heap, scratch)?
            }
            Terms::All(groups) => rows_of_all(&self.info, self.outline()?, groups, &heap, scratch)?,
            Terms::Blocks(blocks) => rows_of_blocks(&self.info, blocks),
            Terms::Rows { rows, .. } => rows.clone(),
        };
        Ok(Answer { rows, recheck: plan.recheck })
    }
}
