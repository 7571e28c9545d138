//! Row sets as bytes: the portable Roaring format, written canonically and read in place.
//!
//! Any Roaring library reads what [`RowSet::to_bytes`] writes. Each container takes its smallest
//! form, so equal sets have equal bytes. [`View`] answers from the bytes as they lie, in memory or
//! in a mapped file; parsing it looks at the header only, everything else is checked when used.
//!
//! ```text
//! with a run container:  u16 12347, u16 containers - 1, run flags (1 bit each)
//! without:               u32 12346, u32 containers
//! per container:         u16 key, u16 rows - 1
//! per container:         u32 offset from the first byte; left out with runs and < 4 containers
//! array                  u16 row …, ascending
//! bitmap                 8192 bytes, lowest bit first
//! runs                   u16 runs, then per run u16 first row, u16 rows - 1
//! ```
//! All numbers are little-endian.
//!
//! # Source
//! <https://github.com/RoaringBitmap/RoaringFormatSpec>

use crate::container::{BITMAP_BYTES, CHUNK_ROWS, Container, Form, MAX_ARRAY, best};
use crate::error::PostingsError;
use crate::mask::WORDS;
use crate::mask::{self, Mask};
use crate::row_set::{Chunk, RowSet};
use crate::run::{self, Run};

const COOKIE_PLAIN: u32 = 12346;
const COOKIE_RUNS: u16 = 12347;
/// Below this many containers the format leaves the offsets out if there are run containers.
const MIN_OFFSETS: usize = 4;

type Result<T> = std::result::Result<T, PostingsError>;

/// Bytes of a run list in the portable format. Does not build the containers.
pub(crate) fn size_of_runs(runs: &[Run]) -> usize {
    let (mut containers, mut has_runs, mut body) = (0usize, false, 0);
    let (mut key, mut rows, mut pieces) = (u32::MAX, 0, 0);
    let mut close = |rows: &mut u32, pieces: &mut u32| {
        if *rows > 0 {
            let (form, bytes) = best(*rows, *pieces);
            containers += 1;
            has_runs |= form == Form::Runs;
            body += bytes;
        }
        (*rows, *pieces) = (0, 0);
    };
    for &run in runs {
        let mut start = run.start;
        while start < run.end {
            if start / CHUNK_ROWS != key {
                close(&mut rows, &mut pieces);
                key = start / CHUNK_ROWS;
            }
            let length = (run.end - start).min(CHUNK_ROWS - start % CHUNK_ROWS);
            rows += length;
            pieces += 1;
            start += length;
        }
    }
    close(&mut rows, &mut pieces);
    header_bytes(containers, has_runs) + body
}

fn header_bytes(containers: usize, has_runs: bool) -> usize {
    let cookie = if has_runs { 4 + containers.div_ceil(8) } else { 8 };
    let offsets = if has_runs && containers < MIN_OFFSETS { 0 } else { 4 * containers };
    cookie + 4 * containers + offsets
}

fn form(container: &Container) -> Form {
    match container {
        Container::Array(_) => Form::Array,
        Container::Bitmap(_) => Form::Bitmap,
        Container::Runs(_) => Form::Runs,
    }
}

fn container_bytes(container: &Container) -> usize {
    match container {
        Container::Array(rows) => 2 * rows.len(),
        Container::Bitmap(_) => BITMAP_BYTES,
        Container::Runs(runs) => 2 + 4 * runs.len(),
    }
}

impl RowSet {
    /// The set in the portable Roaring format; equal sets give equal bytes.
    ///
    /// # Examples
    /// ```
    /// use uplake_postings::RowSet;
    /// let set: RowSet = (5..5000).collect();
    /// let bytes = set.to_bytes();
    /// assert_eq!(bytes.len(), 15);
    /// assert_eq!(RowSet::from_bytes(&bytes)?, set);
    /// # Ok::<(), uplake_postings::PostingsError>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// Appends what [`RowSet::to_bytes`] returns.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let chunks = self.chunks();
        let has_runs = chunks.iter().any(|chunk| form(&chunk.container) == Form::Runs);
        if has_runs {
            out.extend_from_slice(&COOKIE_RUNS.to_le_bytes());
            // At most 65,536 containers, at least one.
            out.extend_from_slice(&((chunks.len() - 1) as u16).to_le_bytes());
            for group in chunks.chunks(8) {
                let flag = |(bit, chunk): (usize, &Chunk)| {
                    u8::from(form(&chunk.container) == Form::Runs) << bit
                };
                out.push(group.iter().enumerate().map(flag).fold(0, |a, b| a | b));
            }
        } else {
            out.extend_from_slice(&COOKIE_PLAIN.to_le_bytes());
            out.extend_from_slice(&(chunks.len() as u32).to_le_bytes());
        }
        for chunk in chunks.iter() {
            out.extend_from_slice(&chunk.key.to_le_bytes());
            out.extend_from_slice(&((chunk.container.cardinality() - 1) as u16).to_le_bytes());
        }
        if !has_runs || chunks.len() >= MIN_OFFSETS {
            let mut offset = header_bytes(chunks.len(), has_runs);
            for chunk in chunks.iter() {
                out.extend_from_slice(&(offset as u32).to_le_bytes());
                offset += container_bytes(&chunk.container);
            }
        }
        chunks.iter().for_each(|chunk| write_container(&chunk.container, out));
    }

    /// Reads a set in the portable Roaring format, whoever wrote it; bytes after it are an error.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if anything is not as the format says, or if the set holds row
    /// 4,294,967,295, which is not a row here.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (set, end) = View::parse(bytes)?.decode()?;
        if end != bytes.len() {
            return Err(PostingsError::corrupt("bytes after the last container", end as u64));
        }
        Ok(set)
    }
}

fn write_container(container: &Container, out: &mut Vec<u8>) {
    match container {
        Container::Array(rows) => {
            rows.iter().for_each(|row| out.extend_from_slice(&row.to_le_bytes()))
        }
        Container::Bitmap(words) => {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        Container::Runs(runs) => {
            out.extend_from_slice(&(runs.len() as u16).to_le_bytes());
            for run in runs {
                out.extend_from_slice(&(run.start as u16).to_le_bytes());
                out.extend_from_slice(&((run.len() - 1) as u16).to_le_bytes());
            }
        }
    }
}

/// A row set in portable Roaring bytes, used where it lies.
///
/// # Examples
/// ```
/// use uplake_postings::{RowSet, portable::View};
/// let set: RowSet = (0..100_000).step_by(7).collect();
/// let bytes = set.to_bytes();
/// let view = View::parse(&bytes)?;
/// assert!(view.contains(77)? && !view.contains(78)?);
/// assert_eq!(view.cardinality(), set.cardinality());
/// # Ok::<(), uplake_postings::PostingsError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
    containers: usize,
    /// Run flags; empty if there are none.
    flags: &'a [u8],
    /// Key and rows - 1 of each container.
    heads: &'a [[u8; 4]],
    /// Offsets, or nothing if the format leaves them out.
    offsets: &'a [[u8; 4]],
    /// Where the first container starts.
    body: usize,
}

/// One container's bytes and what its head says.
struct Part<'a> {
    base: u32,
    rows: u32,
    form: Form,
    bytes: &'a [u8],
    at: usize,
}

/// Takes `count` bytes off the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest
        .split_at_checked(count)
        .ok_or(PostingsError::corrupt("the bytes end within the header", count as u64))?;
    *rest = tail;
    Ok(head)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found
        .copied()
        .map(u16::from_le_bytes)
        .ok_or(PostingsError::corrupt("offset outside", at as u64))
}

impl<'a> View<'a> {
    /// Looks at the header: the cookie, the number of containers and their keys, which must
    /// ascend. Takes time in the number of containers, not of rows.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if the header is not as the format says.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut rest = bytes;
        let cookie = take(&mut rest, 4)?;
        let (low, high) = (u16_at(cookie, 0)?, u16_at(cookie, 2)?);
        let (containers, flags) = if low == COOKIE_RUNS {
            let containers = usize::from(high) + 1;
            (containers, take(&mut rest, containers.div_ceil(8))?)
        } else if u32::from(low) == COOKIE_PLAIN && high == 0 {
            let count = take(&mut rest, 4)?;
            let count = u32::from(u16_at(count, 0)?) | u32::from(u16_at(count, 2)?) << 16;
            if count > CHUNK_ROWS {
                return Err(PostingsError::corrupt("more containers than keys", 4));
            }
            (count as usize, &[][..])
        } else {
            return Err(PostingsError::corrupt("not a Roaring bitmap: unknown cookie", 0));
        };
        let heads = take(&mut rest, 4 * containers)?.as_chunks().0;
        let has_offsets = flags.is_empty() || containers >= MIN_OFFSETS;
        let offsets = take(&mut rest, if has_offsets { 4 * containers } else { 0 })?.as_chunks().0;
        let body = bytes.len() - rest.len();
        let view = Self { bytes, containers, flags, heads, offsets, body };
        let ascending = (1..containers).all(|i| view.key(i - 1) < view.key(i));
        if ascending { Ok(view) } else { Err(PostingsError::corrupt("keys do not ascend", 4)) }
    }

    fn key(&self, i: usize) -> u16 {
        u16::from_le_bytes([self.heads[i][0], self.heads[i][1]])
    }

    fn rows(&self, i: usize) -> u32 {
        u32::from(u16::from_le_bytes([self.heads[i][2], self.heads[i][3]])) + 1
    }

    fn form(&self, i: usize) -> Form {
        match self.flags.get(i / 8) {
            Some(flags) if flags >> (i % 8) & 1 == 1 => Form::Runs,
            _ if self.rows(i) <= MAX_ARRAY => Form::Array,
            _ => Form::Bitmap,
        }
    }

    /// Bytes of container `i`, which starts at `at`.
    fn length(&self, i: usize, at: usize) -> Result<usize> {
        Ok(match self.form(i) {
            Form::Array => 2 * self.rows(i) as usize,
            Form::Bitmap => BITMAP_BYTES,
            Form::Runs => 2 + 4 * usize::from(u16_at(self.bytes, at)?),
        })
    }

    fn part(&self, i: usize) -> Result<Part<'a>> {
        let at = match self.offsets.get(i) {
            Some(offset) => u32::from_le_bytes(*offset) as usize,
            None => (0..i).try_fold(self.body, |at, before| Ok(at + self.length(before, at)?))?,
        };
        let end = at + self.length(i, at)?;
        let outside = PostingsError::corrupt("a container lies outside the bytes", at as u64);
        let bytes = if at < self.body { None } else { self.bytes.get(at..end) };
        let bytes = bytes.ok_or(outside)?;
        let base = u32::from(self.key(i)) * CHUNK_ROWS;
        Ok(Part { base, rows: self.rows(i), form: self.form(i), bytes, at })
    }

    fn parts(&self) -> impl Iterator<Item = Result<Part<'a>>> + '_ {
        (0..self.containers).map(|i| self.part(i))
    }

    /// Number of rows, as the header says.
    #[must_use]
    pub fn cardinality(&self) -> u64 {
        (0..self.containers).map(|i| u64::from(self.rows(i))).sum()
    }

    /// Whether `row` is in the set. Reads one container.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if that container lies outside the bytes.
    pub fn contains(&self, row: u32) -> Result<bool> {
        let key = (row / CHUNK_ROWS) as u16;
        let at = self.heads.partition_point(|head| u16::from_le_bytes([head[0], head[1]]) < key);
        if at == self.containers || self.key(at) != key {
            return Ok(false);
        }
        let part = self.part(at)?;
        let low = (row % CHUNK_ROWS) as u16;
        Ok(match part.form {
            Form::Array => {
                let rows = part.bytes.as_chunks::<2>().0;
                rows.binary_search_by_key(&low, |&row| u16::from_le_bytes(row)).is_ok()
            }
            Form::Bitmap => part.bytes[usize::from(low) / 8] >> (low % 8) & 1 == 1,
            Form::Runs => {
                let spans = part.bytes[2..].as_chunks::<4>().0;
                let after =
                    spans.partition_point(|&[a, b, _, _]| u16::from_le_bytes([a, b]) <= low);
                after > 0 && {
                    let [a, b, c, d] = spans[after - 1];
                    low - u16::from_le_bytes([a, b]) <= u16::from_le_bytes([c, d])
                }
            }
        })
    }

    /// Sets the rows in `mask`.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if a row is beyond the mask's file or a container outside the
    /// bytes; the mask may then hold some of the rows.
    pub fn set_in(&self, mask: &mut Mask) -> Result<()> {
        self.parts().try_for_each(|part| part?.set_in(mask))
    }

    /// Clears the rows of `mask` that are not in the set.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if a container lies outside the bytes or its rows outside their
    /// chunk; rows beyond the mask's file go unnoticed.
    pub(crate) fn keep_in(&self, mask: &mut Mask) -> Result<()> {
        let mut done = 0;
        for i in 0..self.containers {
            let key = self.key(i);
            mask.clear_chunks(done..u32::from(key));
            done = u32::from(key) + 1;
            let words = mask.chunk_mut(key);
            if words.iter().any(|&word| word != 0) {
                self.part(i)?.keep_in(words)?;
            }
        }
        mask.clear_chunks(done..CHUNK_ROWS);
        Ok(())
    }

    /// The rows of `runs`, sorted and maximal, that are in the set, as such runs.
    ///
    /// # Errors
    /// As [`View::keep_in`].
    pub(crate) fn and_runs(&self, runs: &[Run]) -> Result<Vec<Run>> {
        let mut out = Vec::new();
        let mut rest = runs;
        let mut words = [0; WORDS];
        for i in 0..self.containers {
            let base = u32::from(self.key(i)) * CHUNK_ROWS;
            // The last chunk ends at 2^32, of which no row is the last one.
            let end = base.saturating_add(CHUNK_ROWS);
            rest = &rest[run::seek(rest, 0, base)..];
            let here = rest.partition_point(|run| run.start < end);
            if here == 0 {
                continue;
            }
            words.fill(0);
            for run in &rest[..here] {
                mask::fill(&mut words, run.start.max(base) - base, run.end.min(end) - base);
            }
            self.part(i)?.keep_in(&mut words)?;
            let mut edges = Vec::new();
            mask::find_edges(&words, &mut edges);
            for found in mask::pairs(&edges) {
                run::push(&mut out, Run::new(base + found.start, base.saturating_add(found.end)));
            }
        }
        Ok(out)
    }

    /// Calls `each` with the rows as ascending runs; runs of neighbouring containers may touch.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if a container is not as the format says.
    pub(crate) fn for_each_run(&self, mut each: impl FnMut(Run)) -> Result<()> {
        for part in self.parts() {
            let part = part?;
            for run in part.container()?.to_runs() {
                each(Run::new(part.base + run.start, part.base + run.end));
            }
        }
        Ok(())
    }

    /// The set as a value, every byte of it checked; bytes after the last container are left alone.
    ///
    /// # Errors
    /// [`PostingsError::Corrupt`] if anything is not as the format says.
    pub fn to_row_set(&self) -> Result<RowSet> {
        Ok(self.decode()?.0)
    }

    /// The set, and where its bytes end.
    fn decode(&self) -> Result<(RowSet, usize)> {
        let mut chunks = Vec::with_capacity(self.containers);
        let mut end = self.body;
        for (i, part) in self.parts().enumerate() {
            let part = part?;
            end = end.max(part.at + part.bytes.len());
            chunks.push(Chunk { key: self.key(i), container: part.container()? });
        }
        Ok((RowSet::from_chunks(chunks), end))
    }
}

impl Part<'_> {
    fn corrupt(&self, what: &'static str) -> PostingsError {
        PostingsError::corrupt(what, self.at as u64)
    }

    /// Spans of a run container: first row and the row after the last, within the chunk.
    fn spans(&self) -> impl Iterator<Item = Run> + '_ {
        self.bytes.get(2..).unwrap_or_default().as_chunks::<4>().0.iter().map(|&[a, b, c, d]| {
            let start = u32::from(u16::from_le_bytes([a, b]));
            Run::new(start, start + u32::from(u16::from_le_bytes([c, d])) + 1)
        })
    }

    /// Clears the rows of `words`, those of the chunk or fewer at the end of the file, that are not
    /// in the container.
    fn keep_in(&self, words: &mut [u64]) -> Result<()> {
        if self.form == Form::Bitmap {
            let other = self.bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
            words.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
            return Ok(());
        }
        let mut other = [0; WORDS];
        self.set_words(&mut other)?;
        words.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
        Ok(())
    }

    /// Sets the container's rows in the words of its chunk.
    fn set_words(&self, words: &mut [u64; WORDS]) -> Result<()> {
        match self.form {
            Form::Array => {
                for &row in self.bytes.as_chunks().0 {
                    let row = usize::from(u16::from_le_bytes(row));
                    words[row / 64] |= 1 << (row % 64);
                }
            }
            Form::Bitmap => {
                let other = self.bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
                words.iter_mut().zip(other).for_each(|(word, other)| *word |= other);
            }
            Form::Runs => {
                for run in self.spans() {
                    if run.end > CHUNK_ROWS {
                        return Err(self.corrupt("a row is beyond its chunk"));
                    }
                    mask::fill(words, run.start, run.end);
                }
            }
        }
        Ok(())
    }

    fn set_in(&self, mask: &mut Mask) -> Result<()> {
        let end = u64::from(self.base) + u64::from(CHUNK_ROWS);
        if end <= u64::from(mask.file_rows())
            && let Some(words) = mask.chunk_mut((self.base / CHUNK_ROWS) as u16).first_chunk_mut()
        {
            return self.set_words(words);
        }
        let inside = match self.form {
            Form::Array => self.bytes.as_chunks().0.iter().all(|&row| {
                // A chunk's rows are below `base + 65,536`, which is at most 2^32.
                mask.set(self.base | u32::from(u16::from_le_bytes(row)))
            }),
            Form::Bitmap => {
                let first = self.base as usize / 64;
                let words = self.bytes.as_chunks().0.iter().enumerate();
                words
                    .into_iter()
                    .all(|(i, &word)| mask.set_word(first + i, u64::from_le_bytes(word)))
            }
            Form::Runs => self.spans().all(|run| {
                let end = u64::from(self.base) + u64::from(run.end);
                let inside = run.end <= CHUNK_ROWS && end <= u64::from(mask.file_rows());
                if inside {
                    mask.set_run(Run::new(self.base + run.start, end as u32));
                }
                inside
            }),
        };
        if inside { Ok(()) } else { Err(self.corrupt("a row is beyond the file")) }
    }

    /// The container, every byte checked, in its smallest form.
    fn container(&self) -> Result<Container> {
        let found = match self.form {
            Form::Array => {
                let rows = self.bytes.as_chunks().0.iter().map(|&row| u16::from_le_bytes(row));
                let rows: Vec<u16> = rows.collect();
                if !rows.windows(2).all(|pair| pair[0] < pair[1]) {
                    return Err(self.corrupt("rows of an array do not ascend"));
                }
                Container::from_array(rows)
            }
            Form::Bitmap => {
                let mut words = Box::new([0; WORDS]);
                for (word, &bytes) in words.iter_mut().zip(self.bytes.as_chunks().0) {
                    *word = u64::from_le_bytes(bytes);
                }
                Container::from_words(words)
            }
            Form::Runs => {
                let mut runs: Vec<Run> = Vec::with_capacity(self.bytes.len() / 4);
                for span in self.spans() {
                    let ordered = runs.last().is_none_or(|last| last.end <= span.start);
                    if !ordered || span.end > CHUNK_ROWS {
                        return Err(self.corrupt("runs overlap or leave their chunk"));
                    }
                    run::push(&mut runs, span);
                }
                Container::from_runs(runs)
            }
        };
        let container = found.ok_or(self.corrupt("an empty container"))?;
        if container.cardinality() != self.rows {
            return Err(self.corrupt("a container's rows are not as many as its head says"));
        }
        if self.base / CHUNK_ROWS == u32::from(u16::MAX) && container.contains(u16::MAX) {
            return Err(self.corrupt("row 4294967295 is not a row"));
        }
        Ok(container)
    }
}
