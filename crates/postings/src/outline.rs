//! Looking terms up in a dictionary of which only parts are at hand.
//!
//! A look-up of a few terms touches a few hundred bytes of a dictionary that may be a hundred
//! megabytes. [`Outline`] knows from the header where they lie: it answers if they are at hand and
//! names them if they are not. Whoever asks fetches them and asks again; a term takes two rounds,
//! a byte string one more.
//!
//! # Invariants
//! - The answer is that of [`Dictionary`](crate::Dictionary) over all the bytes. On hostile bytes
//!   it is an error, or rows of this file.
//! - Asking again with what was named goes on, so a look-up ends after `2 * probes + 2` rounds.
//!
//! # Not here
//! Fetching; which blocks the bytes lie in; ranges and prefixes, which search all over the place.

use std::ops::Range;

use crate::error::PostingsError;
use crate::hash;
use crate::header::{BYTES, CLUSTERED, EXACT, HEADER_BYTES, Head, INLINE};
use crate::inline;
use crate::list::{Bounds, Heap, Posting};
use crate::run::Run;
use crate::run::unpack;
use crate::selection::Selection;
use crate::table::{self, BUCKET_BYTES, MAX_PROBES};
use crate::union::Scratch;

type Result<T> = std::result::Result<T, PostingsError>;

/// The parts of a dictionary that are at hand.
pub trait Parts {
    /// Fills `out` with the bytes from `at` on; false if not all of them are at hand.
    fn copy(&self, at: u64, out: &mut [u8]) -> bool;
}

impl Parts for [u8] {
    fn copy(&self, at: u64, out: &mut [u8]) -> bool {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..out.len()));
        from.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}

/// What became of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The term is there, and its rows are these.
    Found(Posting),
    /// There is no such term.
    Absent,
    /// Bytes are missing; they have been named.
    Missing,
}

/// Where the sections of a dictionary lie.
///
/// # Examples
/// ```
/// use uplake_postings::{IntegersBuilder, Lookup, Options, Outline, Posting, Run};
/// let mut builder = IntegersBuilder::new(Options::default());
/// builder.push_column(0, &[7, 7, 7, 4, 4, 9])?;
/// let bytes = builder.finish(6)?.dictionary;
/// let outline = Outline::parse(&bytes[..64], bytes.len() as u64)?;
/// let mut missing = Vec::new();
/// assert_eq!(outline.find_integer(4, &bytes[..64], &mut missing)?, Lookup::Missing);
/// assert_eq!(missing, [64..128]);
/// let found = outline.find_integer(4, &bytes[..], &mut missing)?;
/// assert_eq!(found, Lookup::Found(Posting::Run(Run::new(3, 5))));
/// # Ok::<(), uplake_postings::PostingsError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Outline {
    head: Head,
    postings: u64,
    keys: u64,
    text: u64,
}

impl Outline {
    /// Reads the header, the first [`HEADER_BYTES`] of a dictionary of `dictionary_bytes`.
    ///
    /// # Errors
    /// As [`Dictionary::parse`](crate::Dictionary::parse).
    pub fn parse(header: &[u8], dictionary_bytes: u64) -> Result<Self> {
        let cut_off = PostingsError::corrupt("no room for a header", header.len() as u64);
        let head = Head::parse(header.first_chunk().ok_or(cut_off)?)?;
        let lengths = head.lengths();
        let postings = HEADER_BYTES as u64 + lengths.buckets;
        let keys = postings + lengths.postings;
        let text = keys + lengths.keys + lengths.order;
        if text + lengths.text != dictionary_bytes || (lengths.text > 0 && !head.has(BYTES)) {
            return Err(PostingsError::corrupt("the dictionary is cut off", dictionary_bytes));
        }
        let sound = if head.has(INLINE) {
            inline::are_sound(head.buckets, head.probes, head.bits)
                && head.buckets * inline::SLOTS as u32 == head.ordinals
        } else {
            head.buckets > 0 && (1..=MAX_PROBES).contains(&head.probes)
        };
        if !sound {
            return Err(PostingsError::corrupt("no hash table has these numbers", 24));
        }
        Ok(Self { head, postings, keys, text })
    }

    /// Rows of the file.
    #[must_use]
    pub fn file_rows(&self) -> u32 {
        self.bounds().file_rows
    }

    /// Bytes of the heap that belongs to the dictionary.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.bounds().heap_bytes
    }

    fn bounds(&self) -> Bounds {
        self.head.bounds()
    }

    /// The rows of `id`; appends the ranges that are not at hand to `missing`.
    ///
    /// # Errors
    /// [`PostingsError::WrongTerms`] if the dictionary holds byte strings, and
    /// [`PostingsError::Corrupt`].
    pub fn find_integer(
        &self,
        id: u64,
        parts: &(impl Parts + ?Sized),
        missing: &mut Vec<Range<u64>>,
    ) -> Result<Lookup> {
        let head = &self.head;
        if head.has(BYTES) {
            return Err(PostingsError::WrongTerms { holds: "byte strings" });
        }
        let narrow = u32::try_from(id.wrapping_sub(head.base)).ok();
        let (hash, narrow) = (hash::integer(head.seed, id), narrow);
        let mut parts = Reading { parts, missing };
        match (head.has(EXACT), narrow) {
            (true, None) => Ok(Lookup::Absent),
            (true, Some(key)) if head.has(INLINE) => self.find_inline(key, &mut parts),
            (true, Some(key)) => self.find(hash, key, &mut parts, |_, _| Some(true)),
            (false, _) => self.find(hash, hash as u32, &mut parts, |ordinal, parts| {
                let key = parts.read(self.keys + u64::from(ordinal) * 8)?;
                Some(u64::from_le_bytes(key) == id)
            }),
        }
    }

    /// The rows of `term`; appends the ranges that are not at hand to `missing`.
    ///
    /// # Errors
    /// As [`Outline::find_integer`], for a dictionary of integers.
    pub fn find_bytes(
        &self,
        term: &[u8],
        parts: &(impl Parts + ?Sized),
        missing: &mut Vec<Range<u64>>,
    ) -> Result<Lookup> {
        if !self.head.has(BYTES) {
            return Err(PostingsError::WrongTerms { holds: "integers" });
        }
        let hash = hash::bytes(self.head.seed, term);
        let mut text = vec![0; term.len()];
        self.find(hash, hash as u32, &mut Reading { parts, missing }, |ordinal, parts| {
            let bounds: [u8; 8] = parts.read(self.keys + u64::from(ordinal) * 4)?;
            let [start, end] = [0, 4].map(|at| {
                u64::from(bounds[at..].first_chunk().copied().map_or(0, u32::from_le_bytes))
            });
            if end > u64::from(self.head.text_bytes)
                || end.checked_sub(start) != Some(term.len() as u64)
            {
                return Some(false);
            }
            Some(parts.fill(self.text + start, &mut text)? && text == term)
        })
    }

    /// Looks a tag up; `is_it` says whether an ordinal is the term's, `None` if bytes are missing.
    fn find<P: Parts + ?Sized>(
        &self,
        hash: u64,
        tag: u32,
        parts: &mut Reading<'_, P>,
        mut is_it: impl FnMut(u32, &mut Reading<'_, P>) -> Option<bool>,
    ) -> Result<Lookup> {
        let buckets = self.head.buckets as usize;
        let mut at = table::home(hash, buckets);
        for _ in 0..self.head.probes {
            let Some(bucket) = parts.bucket(at) else { return Ok(Lookup::Missing) };
            let (found, full) = table::probe(&bucket, tag);
            if let Some(ordinal) = found.checked_sub(1) {
                if ordinal >= self.head.ordinals {
                    return Err(PostingsError::corrupt("an ordinal is too large", ordinal.into()));
                }
                // Its posting comes in the same round as its key.
                let posting = self.posting(ordinal, parts)?;
                match (is_it(ordinal, parts), posting) {
                    (Some(false), _) => {}
                    (Some(true), Some(posting)) => return Ok(Lookup::Found(posting)),
                    _ => return Ok(Lookup::Missing),
                }
            }
            if !full {
                return Ok(Lookup::Absent);
            }
            at = inline::next(at, buckets);
        }
        Ok(Lookup::Absent)
    }

    fn find_inline<P: Parts + ?Sized>(
        &self,
        key: u32,
        parts: &mut Reading<'_, P>,
    ) -> Result<Lookup> {
        let buckets = self.head.buckets as usize;
        let permuted = hash::permute(self.head.seed as u32, key);
        let mut at = inline::home(permuted, buckets);
        for _ in 0..self.head.probes {
            let Some(bucket) = parts.bucket(at) else { return Ok(Lookup::Missing) };
            let (slot, full) = inline::slot_in(&bucket, self.head.bits[0], permuted);
            if let Some(slot) = slot {
                let run = unpack(inline::unpack(self.head.bits, slot));
                return self.run(run).map(|run| Lookup::Found(Posting::Run(run)));
            }
            if !full {
                return Ok(Lookup::Absent);
            }
            at = inline::next(at, buckets);
        }
        Ok(Lookup::Absent)
    }

    /// The posting of an ordinal; `None` if it is not at hand.
    fn posting<P: Parts + ?Sized>(
        &self,
        ordinal: u32,
        parts: &mut Reading<'_, P>,
    ) -> Result<Option<Posting>> {
        if !self.head.has(CLUSTERED) {
            let posting = parts.read(self.postings + u64::from(ordinal) * 8);
            let decode = |posting| Posting::decode(u64::from_le_bytes(posting), self.file_rows());
            return posting.map(decode).transpose();
        }
        // Where the run starts, and where the next one does.
        let Some(rows) = parts.read(self.postings + u64::from(ordinal) * 4) else {
            return Ok(None);
        };
        let rows = u64::from_le_bytes(rows);
        self.run(Run::new(rows as u32, (rows >> 32) as u32)).map(|run| Some(Posting::Run(run)))
    }

    /// `run`, if it is one and in the file.
    fn run(&self, run: Run) -> Result<Run> {
        if run.is_empty() || run.end > self.file_rows() {
            return Err(PostingsError::corrupt("a run is beyond the file", run.start.into()));
        }
        Ok(run)
    }

    /// The rows of all `postings`, in any order.
    ///
    /// # Errors
    /// [`PostingsError::NotFetched`] if the heap lacks a list, and [`PostingsError::Corrupt`].
    pub fn union(
        &self,
        postings: &[Posting],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        self.bounds().union_postings(postings, heap, scratch)
    }

    /// The rows that every one of `groups` has a posting of; none if there is no group.
    ///
    /// # Errors
    /// As [`Outline::union`].
    pub fn intersect(
        &self,
        groups: &[Vec<Posting>],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        self.bounds().intersect(groups, heap, scratch)
    }
}

/// Reads parts and notes what is missing.
struct Reading<'p, P: ?Sized> {
    parts: &'p P,
    missing: &'p mut Vec<Range<u64>>,
}

impl<P: Parts + ?Sized> Reading<'_, P> {
    fn fill(&mut self, at: u64, out: &mut [u8]) -> Option<bool> {
        let end = at + out.len() as u64;
        if out.is_empty() || self.parts.copy(at, out) {
            return Some(true);
        }
        self.missing.push(at..end);
        None
    }

    fn read<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(at, &mut bytes).map(|_| bytes)
    }

    fn bucket(&mut self, at: usize) -> Option<[u8; BUCKET_BYTES]> {
        self.read(HEADER_BYTES as u64 + at as u64 * BUCKET_BYTES as u64)
    }
}
