//! A dictionary from terms to the rows that hold them, used in its bytes.
//!
//! A term has an ordinal; the ordinal has a posting. Terms are 64-bit integers or byte strings.
//! They are found by hash, many at a time, and by order where the dictionary keeps it.
//!
//! Where every term's rows are one run and no two runs overlap (a column that the file is sorted
//! by), ordinals count the runs in row order and a posting is 4 bytes: the row where its run
//! starts; it ends where the next one does. Where there are very many such terms, and nobody asks
//! for their order, the hash table itself holds the runs (`inline.rs`), because a second cache miss
//! for each would cost more than sorting them. Otherwise a posting is 8 bytes and holds one run
//! **inline**, or says where in the heap the rows are and how: runs (8 bytes each), rows (4 bytes
//! each), or portable Roaring bytes, whichever is smallest.
//!
//! # The bytes
//! ```text
//! header, 64 bytes
//!    0  "UPLKPOST"
//!    8  u16 format 2          10  u16 flags              12  u32 rows of the file
//!   16  u32 ordinals          20  u32 terms              24  u32 buckets
//!   28  u32 probes            32  u64 seed               40  u64 smallest integer
//!   48  u64 bytes of heap     56  u32 bytes of terms     60  u8 tag bits, u8 length bits
//!   62  u16 0
//! buckets    64 bytes each, see `table.rs`; INLINE: `inline.rs`
//! postings   CLUSTERED: u32 first row × (ordinals + 1); INLINE: none; otherwise u64 × ordinals
//! keys       KEYS: u32 (EXACT: minus the smallest) or u64 × ordinals
//!            BYTES: u32 where the term starts × (ordinals + 1)
//! order      ORDER: u32 ordinal × terms, in term order
//! terms      BYTES: the terms, one after the other
//!
//! flags      1 BYTES   terms are byte strings
//!            2 EXACT   a tag is the integer minus the smallest: nothing to verify
//!            4 CLUSTERED
//!            8 KEYS    integers are there to be verified or ordered
//!           16 ORDER   terms have an order, listed
//!           32 SORTED  terms have an order: that of the ordinals
//!           64 INLINE  with EXACT alone: ordinals number the slots of the hash table, full or
//!                      not, 8 a bucket; tag bits and length bits are 0 without it
//! posting    bits 0-1 kind, 2-32 count, 33-63 place
//!            0 run: place is its first row, count its rows
//!            1 runs, 2 rows: place is a heap offset / 4, count how many
//!            3 Roaring: place is a heap offset / 4, count its bytes / 4, rounded up
//! ```
//! Format 1 had no INLINE. All numbers are little-endian. Gaps between the runs of a clustered dictionary are ordinals
//! that no term has.
//!
//! # Invariants
//! - Opening looks at the header and compares lengths, nothing more; every offset, ordinal and row
//!   is checked when used. Hostile bytes give an error or rows of this file, never a panic.
//!
//! # Not here
//! Checksums (the file around the dictionary has them) and the building: [`crate::build`].

use std::cmp::Ordering;
use std::ops::{Bound, Range, RangeBounds};

use crate::error::PostingsError;
use crate::hash;
use crate::header::{BYTES, CLUSTERED, EXACT, Head, INLINE, KEYS, ORDER, SORTED};
use crate::inline::{self, Inline};
use crate::list::{Bounds, Heap, ListKind, Posting};
use crate::portable::View;
use crate::row_set::RowSet;
use crate::run::Run;
use crate::run::unpack;
use crate::table::{BUCKET_BYTES, Key, Table};

/// Look-ups between asking for a cache line and reading it: 100 M rows take 89 µs with 32, 121 with
/// 16 and 159 without.
const AHEAD: usize = 32;

type Result<T> = std::result::Result<T, PostingsError>;

/// The ordinal of a term in its dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermId(pub(crate) u32);

/// A term, as [`Dictionary::term`] gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term<'a> {
    /// Of a dictionary of integers.
    Integer(u64),
    /// Of a dictionary of byte strings.
    Bytes(&'a [u8]),
}

/// A dictionary in its bytes. Cheap to make (microseconds) and to copy.
///
/// For speed the bytes should start at a multiple of 64 in memory, as mapped files do: a bucket is
/// then one cache line.
///
/// # Examples
/// ```
/// use uplake_postings::{Dictionary, IntegersBuilder, Options, Run, Scratch, Selection};
/// let mut builder = IntegersBuilder::new(Options::default());
/// builder.push_column(0, &[7, 7, 7, 4, 4, 9])?;
/// let encoded = builder.finish(6)?;
/// let dictionary = Dictionary::parse(&encoded.dictionary)?;
/// let found = dictionary.union_integers(&[9, 7, 5], &encoded.heap, &mut Scratch::default())?;
/// assert_eq!(found, Selection::Runs(vec![Run::new(0, 3), Run::new(5, 6)]));
/// # Ok::<(), uplake_postings::PostingsError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Dictionary<'a> {
    pub(crate) bounds: Bounds,
    pub(crate) ordinals: u32,
    terms: u32,
    seed: u64,
    base: u64,
    table: Table<'a>,
    pub(crate) postings: Postings<'a>,
    keys: Keys<'a>,
    order: Order<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Postings<'a> {
    /// One more than there are ordinals.
    Clustered(&'a [[u8; 4]]),
    Mixed(&'a [[u8; 8]]),
    /// In the hash table.
    Inline(Inline<'a>),
}

#[derive(Debug, Clone, Copy)]
enum Keys<'a> {
    /// Tags are the keys.
    Tags,
    Narrow(&'a [[u8; 4]]),
    /// Whether tags are the keys, too, does not matter for 64-bit keys: they are not.
    Wide(&'a [[u8; 8]]),
    Bytes {
        starts: &'a [[u8; 4]],
        terms: &'a [u8],
    },
}

#[derive(Debug, Clone, Copy)]
enum Order<'a> {
    None,
    Ordinals,
    Listed(&'a [[u8; 4]]),
}

/// Cuts sections off the front of the bytes.
struct Sections<'a>(&'a [u8]);

impl<'a> Sections<'a> {
    fn take<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]]> {
        let bytes = count.checked_mul(N).and_then(|bytes| self.0.split_at_checked(bytes));
        let (head, rest) = bytes
            .ok_or(PostingsError::corrupt("the dictionary is cut off", self.0.len() as u64))?;
        self.0 = rest;
        Ok(head.as_chunks().0)
    }
}

/// Calls `find` with each item and its position, and `ask` for the cache line [`AHEAD`] of it.
#[inline]
fn ahead<T>(
    items: &[T],
    ask: impl Fn(&T),
    mut find: impl FnMut(usize, &T) -> Result<()>,
) -> Result<()> {
    items.iter().take(AHEAD).for_each(&ask);
    for (position, item) in items.iter().enumerate() {
        if let Some(item) = items.get(position + AHEAD) {
            ask(item);
        }
        find(position, item)?;
    }
    Ok(())
}

impl<'a> Dictionary<'a> {
    /// Opens a dictionary. Looks at the header and at how long the bytes are.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if the header contradicts itself or the length, and
    /// [`PostingsError::TooNew`] if a newer version wrote it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let cut_off = PostingsError::corrupt("no room for a header", bytes.len() as u64);
        let (header, rest) = bytes.split_first_chunk().ok_or(cut_off)?;
        let head = Head::parse(header)?;
        let has = |flag: u16| head.has(flag);
        let mut sections = Sections(rest);
        let no_table = PostingsError::corrupt("no hash table has these numbers", 24);
        let slots = sections.take::<BUCKET_BYTES>(head.buckets as usize)?;
        let table = Table::new(slots, head.probes).ok_or(no_table.clone())?;
        let count = head.ordinals as usize;
        let postings = if has(INLINE) {
            let inline = Inline::new(slots, head.probes, head.seed as u32, head.bits);
            let inline = inline.filter(|_| slots.len() * inline::SLOTS == count);
            Postings::Inline(inline.ok_or(no_table)?)
        } else if has(CLUSTERED) {
            Postings::Clustered(sections.take(count + 1)?)
        } else {
            Postings::Mixed(sections.take(count)?)
        };
        let mut keys = match (has(BYTES), has(KEYS), has(EXACT)) {
            (true, ..) => Keys::Bytes { starts: sections.take(count + 1)?, terms: &[] },
            (_, true, true) => Keys::Narrow(sections.take(count)?),
            (_, true, false) => Keys::Wide(sections.take(count)?),
            (_, false, _) => Keys::Tags,
        };
        let order = match (has(ORDER), has(SORTED)) {
            (true, _) => Order::Listed(sections.take(head.terms as usize)?),
            (_, true) => Order::Ordinals,
            _ => Order::None,
        };
        let text = sections.take::<1>(head.text_bytes as usize)?.as_flattened();
        if let Keys::Bytes { terms, .. } = &mut keys {
            *terms = text;
        }
        if !sections.0.is_empty() || (!text.is_empty() && !has(BYTES)) {
            return Err(PostingsError::corrupt("bytes after the dictionary", bytes.len() as u64));
        }
        Ok(Self {
            bounds: head.bounds(),
            ordinals: head.ordinals,
            terms: head.terms,
            seed: head.seed,
            base: head.base,
            table,
            postings,
            keys,
            order,
        })
    }

    /// Number of terms.
    #[must_use]
    pub fn term_count(&self) -> u32 {
        self.terms
    }

    /// Rows of the file.
    #[must_use]
    pub fn file_rows(&self) -> u32 {
        self.bounds.file_rows
    }

    /// Bytes of the heap that belongs to the dictionary.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.bounds.heap_bytes
    }

    /// Whether every term's rows are one run and no two terms share a row.
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        !matches!(self.postings, Postings::Mixed(_))
    }

    /// Whether the hash table holds the runs themselves. [`Dictionary::union_integers`] is then
    /// faster than looking terms up and uniting them later.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        matches!(self.postings, Postings::Inline(_))
    }

    /// Whether terms can be found by range and prefix.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !matches!(self.order, Order::None)
    }

    fn check(&self, ordinal: u32) -> Result<TermId> {
        if ordinal < self.ordinals {
            return Ok(TermId(ordinal));
        }
        Err(PostingsError::corrupt("an ordinal is too large", u64::from(ordinal)))
    }

    /// Tag and hash of an integer; `None` if no term of an exact table can be it.
    #[inline]
    fn integer_key(&self, id: u64) -> Option<Key> {
        let hash = hash::integer(self.seed, id);
        match self.keys {
            Keys::Wide(_) => Some(Key { hash, tag: hash as u32 }),
            _ => self.narrow(id).map(|tag| Key { hash, tag }),
        }
    }

    /// The integer minus the smallest, if it is not too far from it.
    #[inline]
    fn narrow(&self, id: u64) -> Option<u32> {
        u32::try_from(id.wrapping_sub(self.base)).ok()
    }

    #[inline]
    fn find_integer(&self, id: u64) -> Option<u32> {
        match self.postings {
            Postings::Inline(inline) => inline.find(self.narrow(id)?),
            _ => self.find_in_table(id),
        }
    }

    #[inline]
    fn find_in_table(&self, id: u64) -> Option<u32> {
        let key = self.integer_key(id)?;
        match self.keys {
            Keys::Wide(keys) => self.table.find(key, |ordinal| {
                keys.get(ordinal as usize).is_some_and(|&key| u64::from_le_bytes(key) == id)
            }),
            _ => self.table.find(key, |_| true),
        }
    }

    #[inline]
    fn find_bytes(&self, term: &[u8]) -> Option<u32> {
        let hash = hash::bytes(self.seed, term);
        let is_it = |ordinal| self.text(ordinal) == Some(term);
        self.table.find(Key { hash, tag: hash as u32 }, is_it)
    }

    fn text(&self, ordinal: u32) -> Option<&'a [u8]> {
        let Keys::Bytes { starts, terms } = self.keys else { return None };
        let bounds = starts.get(ordinal as usize..)?.first_chunk::<2>()?;
        let [start, end] = bounds.map(|bound| u32::from_le_bytes(bound) as usize);
        terms.get(start..end)
    }

    fn wants_integers(&self) -> Result<()> {
        match self.keys {
            Keys::Bytes { .. } => Err(PostingsError::WrongTerms { holds: "byte strings" }),
            _ => Ok(()),
        }
    }

    fn wants_bytes(&self) -> Result<()> {
        match self.keys {
            Keys::Bytes { .. } => Ok(()),
            _ => Err(PostingsError::WrongTerms { holds: "integers" }),
        }
    }

    /// The term that is `id`.
    ///
    /// # Errors
    /// [`PostingsError::WrongTerms`] if the dictionary holds byte strings, and
    /// [`PostingsError::Corrupt`].
    pub fn lookup_integer(&self, id: u64) -> Result<Option<TermId>> {
        self.wants_integers()?;
        self.find_integer(id).map(|ordinal| self.check(ordinal)).transpose()
    }

    /// The term that is `term`.
    ///
    /// # Errors
    /// As [`Dictionary::lookup_integer`].
    pub fn lookup_bytes(&self, term: &[u8]) -> Result<Option<TermId>> {
        self.wants_bytes()?;
        self.find_bytes(term).map(|ordinal| self.check(ordinal)).transpose()
    }

    /// Looks many integers up, each cache line asked for before it is needed; calls `each` with the
    /// position in `ids` and the term, for those that there are.
    ///
    /// # Errors
    /// As [`Dictionary::lookup_integer`].
    #[inline]
    pub fn lookup_integers(&self, ids: &[u64], mut each: impl FnMut(usize, TermId)) -> Result<()> {
        self.wants_integers()?;
        if let Postings::Inline(inline) = self.postings {
            let ask = |&id: &u64| inline.prefetch(id.wrapping_sub(self.base) as u32);
            return ahead(ids, ask, |position, &id| {
                if let Some(slot) = self.narrow(id).and_then(|key| inline.find(key)) {
                    each(position, TermId(slot));
                }
                Ok(())
            });
        }
        let ask = |&id: &u64| self.table.prefetch(hash::integer(self.seed, id));
        ahead(ids, ask, |position, &id| {
            if let Some(ordinal) = self.find_in_table(id) {
                each(position, self.check(ordinal)?);
            }
            Ok(())
        })
    }

    /// The runs of many integers, packed for a sort, from an inline table; unchecked.
    pub(crate) fn inline_runs(
        &self,
        inline: Inline<'_>,
        ids: &[u64],
        runs: &mut Vec<u64>,
    ) -> Result<()> {
        runs.resize(ids.len(), 0);
        let (mut count, slots) = (0, &mut runs[..]);
        let ask = |&id: &u64| inline.prefetch(id.wrapping_sub(self.base) as u32);
        ahead(ids, ask, |_, &id| {
            // Written where the next one belongs, found or not: no branch depends on it.
            let slot = self.narrow(id).and_then(|key| inline.find_slot(key)).unwrap_or(0);
            slots[count] = slot;
            count += usize::from(slot != 0);
            Ok(())
        })?;
        runs.truncate(count);
        runs.iter_mut().for_each(|run| *run = inline.unpack(*run));
        Ok(())
    }

    /// Looks many byte strings up; see [`Dictionary::lookup_integers`].
    ///
    /// # Errors
    /// As [`Dictionary::lookup_integer`].
    pub fn lookup_all_bytes<T: AsRef<[u8]>>(
        &self,
        terms: &[T],
        mut each: impl FnMut(usize, TermId),
    ) -> Result<()> {
        self.wants_bytes()?;
        let ask = |term: &T| self.table.prefetch(hash::bytes(self.seed, term.as_ref()));
        ahead(terms, ask, |position, term| {
            if let Some(ordinal) = self.find_bytes(term.as_ref()) {
                each(position, self.check(ordinal)?);
            }
            Ok(())
        })
    }

    /// Where the rows of `term` are.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if the term is of another dictionary, or its run not in the file.
    #[inline]
    pub fn posting(&self, term: TermId) -> Result<Posting> {
        let at = term.0 as usize;
        let unknown = || PostingsError::corrupt("no such ordinal", u64::from(term.0));
        match self.postings {
            Postings::Clustered(starts) => {
                let bounds = starts.get(at..).and_then(<[_]>::first_chunk::<2>);
                let [start, end] = bounds.ok_or_else(unknown)?.map(u32::from_le_bytes);
                if start >= end || end > self.bounds.file_rows {
                    return Err(PostingsError::corrupt("a run is beyond the file", start.into()));
                }
                Ok(Posting::Run(Run::new(start, end)))
            }
            Postings::Inline(inline) => {
                let Run { start, end } = unpack(inline.run(term.0).ok_or_else(unknown)?);
                if end > self.bounds.file_rows {
                    return Err(PostingsError::corrupt("a run is beyond the file", start.into()));
                }
                Ok(Posting::Run(Run::new(start, end)))
            }
            Postings::Mixed(postings) => {
                let posting = postings.get(at).ok_or_else(unknown)?;
                Posting::decode(u64::from_le_bytes(*posting), self.bounds.file_rows)
            }
        }
    }

    /// The rows of `term`.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`], and [`PostingsError::NotFetched`] if the heap lacks them.
    pub fn rows(&self, term: TermId, heap: &(impl Heap + ?Sized)) -> Result<RowSet> {
        let list = match self.posting(term)? {
            Posting::Run(run) => return Ok(RowSet::from_runs([run])),
            Posting::List(list) => list,
        };
        let bytes = self.bounds.list_bytes(list, heap)?;
        if list.kind == ListKind::Roaring {
            let set = View::parse(bytes)?.to_row_set()?;
            // Rows ascend, so the last decides.
            let inside = set.runs().last().is_none_or(|run| run.end <= self.bounds.file_rows);
            let beyond = PostingsError::corrupt("a row is beyond the file", list.place.into());
            return if inside { Ok(set) } else { Err(beyond) };
        }
        let mut runs = Vec::with_capacity(list.count as usize);
        self.bounds.for_each_run(list, bytes, |run| runs.push(run))?;
        Ok(RowSet::from_runs(runs))
    }

    /// The term itself; `None` if the dictionary does not keep its integers (it is not ordered), or
    /// if the term is of another dictionary.
    #[must_use]
    pub fn term(&self, term: TermId) -> Option<Term<'a>> {
        let at = term.0 as usize;
        match self.keys {
            Keys::Tags => None,
            Keys::Narrow(keys) => {
                let key = u64::from(u32::from_le_bytes(*keys.get(at)?));
                Some(Term::Integer(self.base.wrapping_add(key)))
            }
            Keys::Wide(keys) => Some(Term::Integer(u64::from_le_bytes(*keys.get(at)?))),
            Keys::Bytes { .. } => self.text(term.0).map(Term::Bytes),
        }
    }

    /// The term at `position` in term order.
    ///
    /// # Errors
    /// [`PostingsError::NotOrdered`], and [`PostingsError::Corrupt`] if there are not so many.
    pub fn nth(&self, position: u32) -> Result<TermId> {
        match self.order {
            Order::None => Err(PostingsError::NotOrdered),
            Order::Ordinals => self.check(position),
            Order::Listed(order) => {
                let ordinal = order.get(position as usize).copied().map(u32::from_le_bytes);
                self.check(ordinal.unwrap_or(u32::MAX))
            }
        }
    }

    /// Positions in term order of the integers in `bounds`, for [`Dictionary::nth`].
    ///
    /// # Errors
    /// [`PostingsError::NotOrdered`], [`PostingsError::WrongTerms`] and [`PostingsError::Corrupt`].
    pub fn integers_in(&self, bounds: impl RangeBounds<u64>) -> Result<Range<u32>> {
        self.wants_integers()?;
        self.between(bounds.start_bound().map(|&id| Term::Integer(id)), {
            bounds.end_bound().map(|&id| Term::Integer(id))
        })
    }

    /// Positions in term order of the byte strings between two bounds, compared byte by byte.
    ///
    /// # Errors
    /// As [`Dictionary::integers_in`].
    pub fn bytes_in(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Range<u32>> {
        self.wants_bytes()?;
        self.between(lower.map(Term::Bytes), upper.map(Term::Bytes))
    }

    /// Positions in term order of the byte strings that start with `prefix`.
    ///
    /// # Errors
    /// As [`Dictionary::integers_in`].
    pub fn bytes_with_prefix(&self, prefix: &[u8]) -> Result<Range<u32>> {
        // The first term after all of them: the prefix with its last byte that can grow grown.
        let keep = prefix.iter().rposition(|&byte| byte < u8::MAX);
        let mut after = prefix[..keep.map_or(0, |at| at + 1)].to_vec();
        match after.last_mut() {
            Some(last) => *last += 1,
            None => return self.bytes_in(Bound::Included(prefix), Bound::Unbounded),
        }
        self.bytes_in(Bound::Included(prefix), Bound::Excluded(&after))
    }

    fn between(&self, lower: Bound<Term<'_>>, upper: Bound<Term<'_>>) -> Result<Range<u32>> {
        let start = match lower {
            Bound::Unbounded => 0,
            Bound::Included(term) => self.partition(|order| order.is_lt(), term)?,
            Bound::Excluded(term) => self.partition(|order| order.is_le(), term)?,
        };
        let end = match upper {
            Bound::Unbounded => self.terms,
            Bound::Included(term) => self.partition(|order| order.is_le(), term)?,
            Bound::Excluded(term) => self.partition(|order| order.is_lt(), term)?,
        };
        if !self.is_ordered() {
            return Err(PostingsError::NotOrdered);
        }
        Ok(start..end.max(start))
    }

    /// Number of terms whose order against `term` is `before`.
    fn partition(&self, before: impl Fn(Ordering) -> bool, term: Term<'_>) -> Result<u32> {
        let (mut low, mut high) = (0, self.terms);
        while low < high {
            let middle = low + (high - low) / 2;
            let at = self.nth(middle)?;
            let found = self.term(at).ok_or(PostingsError::corrupt("no such term", at.0.into()))?;
            if before(found.cmp(&term)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
