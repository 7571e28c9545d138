//! Keys that are read from the key file when they are asked for.
//!
//! For each page of the file the memory holds where it is and its checksum, 24 bytes; pages that
//! were read are kept in a cache of fixed size. The file only ever grows below a reader, and whoever
//! starts it anew puts another one in its place, so what was once whole stays so.
//!
//! # Invariants
//! - Every page is checked when it is read; the error for one that is wrong is
//!   [`DomainError::Local`], and never a key that looks unknown.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{DomainError, Result};
use crate::frame::{Page, PageEntry};

/// Pages that may lie in one place of the cache; the one that was longest unused gives way.
const WAYS: usize = 8;
/// A cache's least size, in pages: 512 KiB.
const MIN_PAGES: usize = 128;
/// What a page of keys takes, with what the cache notes of it.
const CACHED_PAGE_BYTES: u64 = 4096 + 64;
/// Longer pages, of one long key each, are not kept.
const MAX_CACHED_BYTES: u32 = 4096;

/// Reads all of `buffer` from `offset`, whatever others do with the file's position.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    {
        std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
    }
    #[cfg(windows)]
    {
        let (mut buffer, mut offset) = (buffer, offset);
        while !buffer.is_empty() {
            let count = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (buffer, offset) = (&mut buffer[count..], offset + count as u64);
        }
        Ok(())
    }
}

/// Where a page is, and what is on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) first_id: u32,
    pub(crate) entry: PageEntry,
    pub(crate) offset: u64,
}

/// The file, its pages in order of ids, and the cache.
#[derive(Debug)]
pub(crate) struct KeyFile {
    file: Arc<File>,
    path: PathBuf,
    places: Vec<Place>,
    /// Ids below are in the file.
    len: u32,
    cache: Cache,
}

/// The page that was read last, so that its neighbours need not look for it.
#[derive(Debug, Default)]
pub(crate) struct Held(Option<(u32, Arc<[u8]>)>);

impl KeyFile {
    pub(crate) fn new(file: Arc<File>, path: PathBuf) -> Self {
        Self { file, path, places: Vec::new(), len: 0, cache: Cache::default() }
    }

    /// How many keys are in the file.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Notes pages that follow those known.
    pub(crate) fn extend(&mut self, places: &[Place]) {
        let Some(last) = places.last() else { return };
        debug_assert_eq!(places[0].first_id, self.len, "pages follow each other");
        self.places.extend_from_slice(places);
        self.len = last.first_id + u32::from(last.entry.keys);
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<Place>()) as u64 + self.cache.bytes()
    }

    /// Bytes of memory that do not depend on the cache.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<Place>()) as u64
    }

    /// Gives the cache about `bytes`, unless it has about that.
    pub(crate) fn resize_cache(&mut self, bytes: u64) {
        let now = self.cache.bytes();
        if now == 0 || bytes < now / 4 * 3 || bytes / 2 > now {
            self.cache = Cache::new(bytes);
        }
    }

    /// The key of an id that is in the file.
    pub(crate) fn read<'h>(&self, id: u32, held: &'h mut Held) -> Result<&'h [u8]> {
        let number = self.places.partition_point(|place| place.first_id <= id) - 1;
        let place = &self.places[number];
        let is_held = matches!(&held.0, Some((held, _)) if *held == number as u32);
        if !is_held {
            let bytes = match self.cache.get(number as u32) {
                Some(bytes) => bytes,
                None => self.fetch(number as u32, place)?,
            };
            held.0 = Some((number as u32, bytes));
        }
        let (_, bytes) = held.0.as_ref().ok_or_else(|| self.damaged(place))?;
        let page = place.entry.page_as_is(bytes).ok_or_else(|| self.damaged(place))?;
        Ok(page.key((id - place.first_id) as usize))
    }

    fn fetch(&self, number: u32, place: &Place) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; place.entry.bytes as usize];
        self.read_at(&mut bytes, place.offset)?;
        place.entry.page(&bytes).ok_or_else(|| self.damaged(place))?;
        let bytes = Arc::from(bytes);
        if place.entry.bytes <= MAX_CACHED_BYTES {
            self.cache.put(number, &bytes);
        }
        Ok(bytes)
    }

    /// Gives `each` the pages that hold the ids from `first` to below `end`, and their first ids.
    pub(crate) fn read_range(
        &self,
        first: u32,
        end: u32,
        mut each: impl FnMut(u32, &Page<'_>),
    ) -> Result<()> {
        /// Bytes read together: pages of a frame lie one after another.
        const TOGETHER: u64 = 1 << 20;
        let start = self.places.partition_point(|place| place.first_id <= first).max(1) - 1;
        let stop = self.places.partition_point(|place| place.first_id < end);
        let (mut rest, mut bytes) = (&self.places[start..stop], Vec::new());
        while let Some(head) = rest.first() {
            let mut reach = head.offset;
            let mut count = 0;
            for place in rest {
                if place.offset != reach || reach - head.offset >= TOGETHER {
                    break;
                }
                reach += u64::from(place.entry.bytes);
                count += 1;
            }
            let (now, later) = rest.split_at(count);
            let length = now.iter().map(|place| place.entry.bytes as usize).sum();
            bytes.resize(length, 0);
            self.read_at(&mut bytes, head.offset)?;
            for place in now {
                let at = (place.offset - head.offset) as usize;
                let page = &bytes[at..at + place.entry.bytes as usize];
                let page = place.entry.page(page).ok_or_else(|| self.damaged(place))?;
                each(place.first_id, &page);
            }
            rest = later;
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&self.file, bytes, offset).map_err(|error| DomainError::Local {
            path: self.path.display().to_string(),
            what: format!("reading at {offset}: {error}"),
        })
    }

    fn damaged(&self, place: &Place) -> DomainError {
        DomainError::Local {
            path: self.path.display().to_string(),
            what: format!("the page at {} fails its checksum", place.offset),
        }
    }
}

/// Pages that were read, by their number: sets of a few, each behind a lock of its own.
#[derive(Debug, Default)]
struct Cache {
    sets: Vec<Mutex<Set>>,
}

#[derive(Debug, Default)]
struct Set {
    ways: [Option<(u32, Arc<[u8]>)>; WAYS],
    /// When each was last used, in uses of the set.
    used: [u32; WAYS],
    now: u32,
}

impl Cache {
    fn new(bytes: u64) -> Self {
        let pages = (bytes / CACHED_PAGE_BYTES).max(MIN_PAGES as u64) as usize;
        Self { sets: (0..pages / WAYS).map(|_| Mutex::default()).collect() }
    }

    /// Bytes when it is full.
    fn bytes(&self) -> u64 {
        (self.sets.len() * WAYS) as u64 * CACHED_PAGE_BYTES
    }

    fn set(&self, page: u32) -> Option<std::sync::MutexGuard<'_, Set>> {
        // Fibonacci hashing: neighbours lie in different sets.
        let spread = u64::from(page.wrapping_mul(0x9E37_79B9));
        let set = self.sets.get(((spread * self.sets.len() as u64) >> 32) as usize)?;
        Some(set.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&self, page: u32) -> Option<Arc<[u8]>> {
        let mut set = self.set(page)?;
        let is_it = |way: &Option<(u32, _)>| matches!(way, Some((found, _)) if *found == page);
        let at = set.ways.iter().position(is_it)?;
        set.now = set.now.wrapping_add(1);
        set.used[at] = set.now;
        set.ways[at].as_ref().map(|(_, bytes)| Arc::clone(bytes))
    }

    fn put(&self, page: u32, bytes: &Arc<[u8]>) {
        let Some(mut set) = self.set(page) else { return };
        let (now, used) = (set.now.wrapping_add(1), set.used);
        let is_free = |way: &Option<_>| way.is_none();
        let oldest = || (0..WAYS).max_by_key(|way| now.wrapping_sub(used[*way])).unwrap_or(0);
        let at = set.ways.iter().position(is_free).unwrap_or_else(oldest);
        (set.now, set.used[at]) = (now, now);
        set.ways[at] = Some((page, Arc::clone(bytes)));
    }
}
