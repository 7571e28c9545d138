//! Asking a column's index about a few terms without its dictionary.
//!
//! A dictionary of a million strings is some 50 MB, of which a look-up touches four blocks. So the
//! first questions of a process fetch just those: [`Sparse`] is the header, a [`Probe`] a question
//! that says which ranges it needs next until it has the answer.
//!
//! # Invariants
//! - A block is checked against its checksum before anything looks at it.
//! - The answer is that of [`Column`](crate::Column).

use std::ops::Range;

use uplake_postings::{Outline, Parts, Posting, Scratch};

use crate::column::{Answer, outline_of};
use crate::error::IndexError;
use crate::format::{BLOCK_BYTES, ColumnInfo, Kind, Section};
use crate::query::Query;
use crate::terms::{Asked, FetchedHeap, Lookups, parts, rows_of_all};

type Result<T> = std::result::Result<T, IndexError>;

impl ColumnInfo {
    /// The bytes of the file to fetch for [`Sparse::open`]: the first block of the dictionary.
    #[must_use]
    pub fn header_read(&self) -> Range<u64> {
        let Range { start, end } = self.dictionary.range();
        start..end.min(start + BLOCK_BYTES)
    }

    /// Whether look-ups of so many terms touch less than half of the dictionary's blocks, so that
    /// [`Sparse`] reads less than [`Column`](crate::Column) does.
    #[must_use]
    pub fn is_sparse(&self, terms: usize) -> bool {
        // Bucket and posting; and where the term starts, and the term.
        let blocks = match self.kind {
            Kind::Integers | Kind::Grams => 2,
            Kind::Strings | Kind::Words => 4,
            Kind::Zones => return false,
        };
        (1 + terms as u64 * blocks).saturating_mul(2 * BLOCK_BYTES) < self.dictionary.bytes
    }
}

/// A column's index of which nothing but the header is at hand.
///
/// # Examples
/// ```
/// # use uplake_index::*;
/// # let data_file = DataFile { name: "part-0.parquet".into(), bytes: 1000, rows: 5 };
/// # let mut users = BytesBuilder::new(Options::default());
/// # for (row, user) in ["ann", "ann", "bob", "eve", "bob"].into_iter().enumerate() {
/// #     users.push(user.as_bytes(), Run::new(row as u32, row as u32 + 1))?;
/// # }
/// # let mut writer = Writer::new(data_file);
/// # writer.add_strings("user", users)?;
/// # let file = writer.finish()?;
/// # let (size, tail) = (file.len() as u64, tail_range(file.len() as u64));
/// # let get = |range: std::ops::Range<u64>| &file[range.start as usize..range.end as usize];
/// # let Tail::Footer(footer) = Footer::read(size, get(tail))? else { panic!("a short footer") };
/// let info = footer.column("user", Kind::Strings).expect("it has one");
/// let sparse = Sparse::open(info, get(info.header_read()))?;
/// let mut probe = sparse.ask(&Query::StringIn(&[b"bob"]))?.expect("look-ups are for it");
/// let mut fetched = Vec::new();
/// let answer = loop {
///     match probe.next(fetched)? {
///         Step::Need(ranges) => fetched = ranges.into_iter().map(get).collect(),
///         Step::Done(answer) => break answer,
///     }
/// };
/// assert_eq!(answer.rows.into_runs(), [Run::new(2, 3), Run::new(4, 5)]);
/// # Ok::<(), IndexError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sparse {
    info: ColumnInfo,
    outline: Outline,
}

/// What a [`Probe`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ranges of the file to fetch before the next step: disjoint, ascending, whole blocks.
    Need(Vec<Range<u64>>),
    /// The rows.
    Done(Answer),
}

impl Sparse {
    /// Opens a column with the bytes of [`ColumnInfo::header_read`].
    ///
    /// # Errors
    /// As [`Column::open`](crate::Column::open); [`IndexError::WrongKind`] for zone maps.
    pub fn open(info: &ColumnInfo, header: &[u8]) -> Result<Self> {
        let (Range { start, end }, found) = (info.header_read(), header.len() as u64);
        if found != end - start {
            return Err(IndexError::WrongRange { start, end, found });
        }
        info.dictionary.check(0, header)?;
        let (column, kind) = (info.name.clone(), info.kind.name());
        let outline = outline_of(info, header)?.ok_or(IndexError::WrongKind { column, kind })?;
        Ok(Self { info: info.clone(), outline })
    }

    /// A question; `None` if it takes the whole dictionary (ranges and prefixes do) or the index
    /// cannot help.
    ///
    /// # Errors
    /// [`IndexError::WrongKind`] if an index of this kind does not answer such queries.
    pub fn ask<'s, B: AsRef<[u8]>>(&'s self, query: &Query<'s>) -> Result<Option<Probe<'s, B>>> {
        let Asked::Keys(keys, recheck) = Asked::of(&self.info, query)? else { return Ok(None) };
        let (lookups, parts, asked) = (Lookups::new(keys), Vec::new(), Vec::new());
        Ok(Some(Probe { sparse: self, recheck, lookups, groups: None, parts, asked }))
    }
}

/// A question that fetches as it goes; `B` are the bytes that it is given.
#[derive(Debug)]
pub struct Probe<'s, B> {
    sparse: &'s Sparse,
    recheck: bool,
    lookups: Lookups<'s>,
    /// What was found, while its lists are fetched.
    groups: Option<Vec<Vec<Posting>>>,
    /// Parts of the dictionary, by where they start in it.
    parts: Vec<(u64, B)>,
    /// What was asked for last, by place in its section.
    asked: Vec<Range<u64>>,
}

impl<B: AsRef<[u8]>> Probe<'_, B> {
    /// Goes on with the bytes of the ranges that were needed, range by range; none at first.
    ///
    /// # Errors
    /// [`IndexError::WrongRange`] if `fetched` are not those, [`IndexError::Corrupt`] if a checksum
    /// is wrong, and [`IndexError::Postings`].
    pub fn next(&mut self, fetched: Vec<B>) -> Result<Step> {
        let Sparse { info, outline } = self.sparse;
        if let Some(groups) = &self.groups {
            let parts = info.heap.checked_parts(&self.asked, &fetched)?;
            return self.answer(groups, &FetchedHeap { parts });
        }
        info.dictionary.checked_parts(&self.asked, &fetched)?;
        self.parts.extend(self.asked.iter().map(|range| range.start).zip(fetched));
        self.parts.sort_by_key(|(start, _)| *start);
        self.asked = self.lookups.step(outline, &info.dictionary, &Fetched(&self.parts))?;
        if !self.asked.is_empty() {
            return Ok(Step::Need(info.dictionary.in_file(&self.asked)));
        }
        let groups = self.lookups.take_groups();
        self.asked = parts(&info.heap, groups.iter().flatten().copied().map(Ok))?;
        if self.asked.is_empty() {
            return self.answer(&groups, &FetchedHeap { parts: Vec::new() });
        }
        self.groups = Some(groups);
        Ok(Step::Need(info.heap.in_file(&self.asked)))
    }

    fn answer(&self, groups: &[Vec<Posting>], heap: &FetchedHeap<'_>) -> Result<Step> {
        let Sparse { info, outline } = self.sparse;
        let rows = rows_of_all(info, outline, groups, heap, &mut Scratch::default())?;
        Ok(Step::Done(Answer { rows, recheck: self.recheck }))
    }
}

/// Parts of a dictionary by where they start; later ones may hold what earlier ones do.
struct Fetched<'f, B>(&'f [(u64, B)]);

impl<B: AsRef<[u8]>> Parts for Fetched<'_, B> {
    fn copy(&self, at: u64, out: &mut [u8]) -> bool {
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            // The part that reaches furthest from here.
            let here = self.0.iter().take_while(|(start, _)| *start <= at);
            let bytes = here.filter_map(|(start, part)| part.as_ref().get((at - start) as usize..));
            let Some(bytes) = bytes.max_by_key(|bytes| bytes.len()).filter(|b| !b.is_empty())
            else {
                return false;
            };
            let count = bytes.len().min(rest.len());
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&bytes[..count]);
            (at, rest) = (at + count as u64, tail);
        }
        true
    }
}

impl Section {
    /// Whole blocks around `ranges`, joined where they touch.
    pub(crate) fn joined_blocks(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut blocks: Vec<_> = ranges.iter().map(|range| self.blocks(range)).collect();
        blocks.sort_unstable_by_key(|part| part.start);
        blocks.dedup_by(|next, last| {
            let touch = next.start <= last.end;
            if touch {
                last.end = last.end.max(next.end);
            }
            touch
        });
        blocks
    }

    /// Ranges of the section as ranges of the file.
    pub(crate) fn in_file(&self, parts: &[Range<u64>]) -> Vec<Range<u64>> {
        parts.iter().map(|part| part.start + self.offset..part.end + self.offset).collect()
    }

    /// `fetched` as the bytes of `parts`, which are whole blocks, checked.
    pub(crate) fn checked_parts<'f>(
        &self,
        parts: &[Range<u64>],
        fetched: &'f [impl AsRef<[u8]>],
    ) -> Result<Vec<(u64, &'f [u8])>> {
        let wrong =
            |Range { start, end }: Range<u64>, found| IndexError::WrongRange { start, end, found };
        if fetched.len() != parts.len() {
            let found = fetched.iter().map(|part| part.as_ref().len() as u64).sum();
            return Err(wrong(self.range(), found));
        }
        let mut checked = Vec::with_capacity(parts.len());
        for (part, bytes) in parts.iter().zip(fetched) {
            let bytes = bytes.as_ref();
            let found = bytes.len() as u64;
            if found != part.end - part.start {
                return Err(wrong(part.start + self.offset..part.end + self.offset, found));
            }
            debug_assert!(part.start % BLOCK_BYTES == 0);
            self.check(part.start, bytes)?;
            checked.push((part.start, bytes));
        }
        Ok(checked)
    }
}
