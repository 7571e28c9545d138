//! The rows of one chunk of 65,536, in the smallest of three forms.
//!
//! The forms and their limits are Roaring's, so that a [`Container`] is written to the portable
//! format as it stands.
//!
//! # Invariants
//! - Never empty, and always the smallest form ([`best`]), so equal sets are equal containers.
//! - Arrays are ascending; spans are ascending, disjoint and not adjacent.
//!
//! # Source
//! Lemire, Ssi-Yan-Kai & Kaser, "Consistently faster and smaller compressed bitmaps with Roaring",
//! Software: Practice and Experience 46 (2016).

use crate::mask::{self, WORDS};
use crate::run::{self, Run};

/// Rows of a chunk.
pub(crate) const CHUNK_ROWS: u32 = 1 << 16;
/// Bytes of a bitmap container.
pub(crate) const BITMAP_BYTES: usize = WORDS * 8;
/// Rows above which an array is larger than a bitmap (2 bytes each against 8192).
pub(crate) const MAX_ARRAY: u32 = 4096;

/// The rows of one chunk, as offsets from its first row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Container {
    /// At most [`MAX_ARRAY`] rows.
    Array(Vec<u16>),
    /// More rows than an array may have.
    Bitmap(Box<[u64; WORDS]>),
    /// Runs within the chunk; `end` is at most 65,536.
    Runs(Vec<Run>),
}

/// A form of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Array,
    Bitmap,
    Runs,
}

/// The smallest form of `rows` rows in `runs` runs, and its size in bytes.
pub(crate) fn best(rows: u32, runs: u32) -> (Form, usize) {
    let spans = 2 + 4 * runs as usize;
    let (form, bytes) = if rows <= MAX_ARRAY {
        (Form::Array, 2 * rows as usize)
    } else {
        (Form::Bitmap, BITMAP_BYTES)
    };
    if spans < bytes { (Form::Runs, spans) } else { (form, bytes) }
}

fn runs_of_array(rows: &[u16]) -> Vec<Run> {
    let mut runs = Vec::new();
    for &row in rows {
        run::push(&mut runs, Run::new(u32::from(row), u32::from(row) + 1));
    }
    runs
}

fn runs_of_words(words: &[u64; WORDS]) -> Vec<Run> {
    let mut edges = Vec::new();
    mask::find_edges(words, &mut edges);
    mask::pairs(&edges)
}

fn zeros() -> Box<[u64; WORDS]> {
    Box::new([0; WORDS])
}

impl Container {
    /// The smallest container of a run list within the chunk; `None` if it is empty.
    pub(crate) fn from_runs(runs: Vec<Run>) -> Option<Self> {
        let rows = run::rows(&runs) as u32;
        if rows == 0 {
            return None;
        }
        Some(match best(rows, runs.len() as u32).0 {
            Form::Runs => Self::Runs(runs),
            Form::Array => {
                Self::Array(runs.iter().flat_map(|run| run.start..run.end).map(low).collect())
            }
            Form::Bitmap => {
                let mut words = zeros();
                for run in &runs {
                    mask::fill(&mut *words, run.start, run.end);
                }
                Self::Bitmap(words)
            }
        })
    }

    /// The smallest container of ascending rows; `None` if there are none.
    pub(crate) fn from_array(rows: Vec<u16>) -> Option<Self> {
        let runs = 1 + rows.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        match best(rows.len() as u32, runs as u32).0 {
            _ if rows.is_empty() => None,
            Form::Array => Some(Self::Array(rows)),
            _ => Self::from_runs(runs_of_array(&rows)),
        }
    }

    /// The smallest container of a bitmap; `None` if it is empty.
    pub(crate) fn from_words(words: Box<[u64; WORDS]>) -> Option<Self> {
        let rows = mask::count(&*words) as u32;
        let mut carry = 0;
        let mut runs = 0;
        for &word in &*words {
            runs += (word & !(word << 1 | carry)).count_ones();
            carry = word >> 63;
        }
        match best(rows, runs).0 {
            _ if rows == 0 => None,
            Form::Bitmap => Some(Self::Bitmap(words)),
            Form::Runs => Some(Self::Runs(runs_of_words(&words))),
            Form::Array => {
                let mut array = Vec::with_capacity(rows as usize);
                for (index, &word) in words.iter().enumerate() {
                    let mut rest = word;
                    while rest != 0 {
                        array.push((index as u32 * 64 + rest.trailing_zeros()) as u16);
                        rest &= rest - 1;
                    }
                }
                Some(Self::Array(array))
            }
        }
    }

    pub(crate) fn cardinality(&self) -> u32 {
        match self {
            Self::Array(rows) => rows.len() as u32,
            Self::Bitmap(words) => mask::count(&**words) as u32,
            Self::Runs(runs) => run::rows(runs) as u32,
        }
    }

    pub(crate) fn to_runs(&self) -> Vec<Run> {
        match self {
            Self::Array(rows) => runs_of_array(rows),
            Self::Bitmap(words) => runs_of_words(words),
            Self::Runs(runs) => runs.clone(),
        }
    }

    pub(crate) fn contains(&self, row: u16) -> bool {
        match self {
            Self::Array(rows) => rows.binary_search(&row).is_ok(),
            Self::Bitmap(words) => words[usize::from(row) / 64] >> (row % 64) & 1 == 1,
            Self::Runs(runs) => {
                let row = u32::from(row);
                runs.get(run::seek(runs, 0, row)).is_some_and(|run| run.start <= row)
            }
        }
    }

    /// Number of rows below `row`, which is at most 65,536.
    pub(crate) fn rank(&self, row: u32) -> u32 {
        match self {
            Self::Array(rows) => rows.partition_point(|&at| u32::from(at) < row) as u32,
            Self::Bitmap(words) => {
                let whole = row as usize / 64;
                let part = words.get(whole).map_or(0, |word| word & !(!0 << (row % 64)));
                mask::count(&words[..whole]) as u32 + part.count_ones()
            }
            Self::Runs(runs) => {
                runs.iter().map(|run| run.end.min(row).saturating_sub(run.start)).sum()
            }
        }
    }

    /// The row with `n` rows below it; `n` is below the cardinality.
    pub(crate) fn select(&self, mut n: u32) -> Option<u32> {
        match self {
            Self::Array(rows) => rows.get(n as usize).map(|&row| u32::from(row)),
            Self::Bitmap(words) => {
                for (index, &word) in words.iter().enumerate() {
                    if n < word.count_ones() {
                        let rest = (0..n).fold(word, |rest, _| rest & (rest - 1));
                        return Some(index as u32 * 64 + rest.trailing_zeros());
                    }
                    n -= word.count_ones();
                }
                None
            }
            Self::Runs(runs) => {
                for run in runs {
                    if n < run.len() {
                        return Some(run.start + n);
                    }
                    n -= run.len();
                }
                None
            }
        }
    }

    /// The first run that has a row at or above `from`, cut there. `hint` is where the last call
    /// with a smaller `from` stopped looking; start with 0.
    pub(crate) fn next_run(&self, from: u32, hint: &mut usize) -> Option<Run> {
        match self {
            Self::Array(rows) => {
                let start = (*hint..rows.len()).find(|&i| u32::from(rows[i]) >= from);
                // A few steps suffice for a walk; a jump searches.
                let mut i = match start {
                    Some(i) if i - *hint <= 8 => i,
                    _ => rows.partition_point(|&row| u32::from(row) < from),
                };
                let first = u32::from(*rows.get(i)?);
                let mut end = first + 1;
                i += 1;
                while rows.get(i).is_some_and(|&row| u32::from(row) == end) {
                    end += 1;
                    i += 1;
                }
                *hint = i;
                Some(Run::new(first, end))
            }
            Self::Bitmap(words) => {
                let start = next_bit(words, from, false)?;
                Some(Run::new(start, next_bit(words, start, true).unwrap_or(CHUNK_ROWS)))
            }
            Self::Runs(runs) => {
                *hint = run::seek(runs, *hint, from);
                let run = runs.get(*hint)?;
                Some(Run::new(run.start.max(from), run.end))
            }
        }
    }

    fn words(&self) -> Box<[u64; WORDS]> {
        let mut words = match self {
            Self::Bitmap(words) => return words.clone(),
            _ => zeros(),
        };
        self.set_in(&mut words);
        words
    }

    /// Sets the rows in `words`.
    pub(crate) fn set_in(&self, words: &mut [u64; WORDS]) {
        match self {
            Self::Array(rows) => {
                for &row in rows {
                    words[usize::from(row) / 64] |= 1 << (row % 64);
                }
            }
            Self::Bitmap(other) => words.iter_mut().zip(&**other).for_each(|(a, b)| *a |= b),
            Self::Runs(runs) => {
                runs.iter().for_each(|run| mask::fill(words, run.start, run.end));
            }
        }
    }

    pub(crate) fn or(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Array(a), Self::Array(b)) if a.len() + b.len() <= MAX_ARRAY as usize => {
                Self::from_array(merge(a, b))
            }
            (Self::Runs(_), Self::Runs(_) | Self::Array(_)) | (Self::Array(_), Self::Runs(_)) => {
                Self::from_runs(run::or(&self.to_runs(), &other.to_runs()))
            }
            _ => {
                let mut words = self.words();
                other.set_in(&mut words);
                Self::from_words(words)
            }
        }
    }

    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Array(a), Self::Array(b)) => {
                let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
                Self::from_array(intersect(short, long))
            }
            (Self::Array(rows), other) | (other, Self::Array(rows)) => {
                Self::from_array(rows.iter().copied().filter(|&row| other.contains(row)).collect())
            }
            (Self::Runs(a), Self::Runs(b)) => Self::from_runs(run::and(a, b)),
            _ => {
                let (mut words, other) = (self.words(), other.words());
                words.iter_mut().zip(&*other).for_each(|(a, b)| *a &= b);
                Self::from_words(words)
            }
        }
    }

    pub(crate) fn and_not(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Array(rows), other) => {
                Self::from_array(rows.iter().copied().filter(|&row| !other.contains(row)).collect())
            }
            (Self::Runs(a), Self::Runs(_) | Self::Array(_)) => {
                Self::from_runs(run::and_not(a, &other.to_runs()))
            }
            _ => {
                let (mut words, other) = (self.words(), other.words());
                words.iter_mut().zip(&*other).for_each(|(a, b)| *a &= !b);
                Self::from_words(words)
            }
        }
    }
}

/// A row within its chunk.
pub(crate) fn low(row: u32) -> u16 {
    (row % CHUNK_ROWS) as u16
}

/// The first bit at or above `from` that is 1, or 0 if `zero`.
fn next_bit(words: &[u64; WORDS], from: u32, zero: bool) -> Option<u32> {
    let flip = if zero { !0 } else { 0 };
    let mut index = from as usize / 64;
    let mut word = (words.get(index)? ^ flip) & (!0 << (from % 64));
    while word == 0 {
        index += 1;
        word = words.get(index)? ^ flip;
    }
    Some(index as u32 * 64 + word.trailing_zeros())
}

fn merge(a: &[u16], b: &[u16]) -> Vec<u16> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        out.push(x.min(y));
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
}

/// Rows in both; looks each row of `short` up when `long` is much longer.
fn intersect(short: &[u16], long: &[u16]) -> Vec<u16> {
    // A search costs about 6 mispredicted steps, a merge one step per row of the longer.
    if short.len() * 16 < long.len() {
        return short.iter().copied().filter(|row| long.binary_search(row).is_ok()).collect();
    }
    let mut out = Vec::with_capacity(short.len());
    let (mut i, mut j) = (0, 0);
    while i < short.len() && j < long.len() {
        let (x, y) = (short[i], long[j]);
        if x == y {
            out.push(x);
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out
}
