//! The file's blocks: which are free, which a checkpoint needs, and the header that names it.
//!
//! ```text
//! block 0, 1   headers, written in turn; the valid one with the higher epoch counts
//! block 2..    images of pages, and runs of blocks with page maps
//!
//! header       magic 8, version u32, page bytes u32, epoch u64, position u64, entries u64,
//!              file blocks u64, map at u32, pages in the map u32, map checksum u32, kind u32,
//!              zeros, checksum of bytes 0..124 u32 at 124
//! page map     for each pid a u64: 0 = no page, else block << 32 | checksum of the image
//! ```
//!
//! A page is never overwritten: its new image goes to a free block, and the block of the old one
//! becomes free when no durable checkpoint names it. As the header holds the map's checksum and the
//! map that of every page, a page that is torn, stale or of another place is noticed, never used.
//!
//! # Invariants
//! - A free block is named neither by the last durable checkpoint nor by the current map.
//! - A header is written after everything it names is durable.

use std::collections::BTreeSet;

use crate::error::{Result, TreeError};
use crate::file::PageFile;
use crate::raw::PAGE_BYTES;

const MAGIC: [u8; 8] = *b"uplkTREE";
/// Version of the file format.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 128;
pub(crate) const FIRST_BLOCK: u32 = 2;
/// Blocks are numbered with 30 bits: 4 TiB.
const MAX_BLOCKS: u32 = 1 << 30;

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) epoch: u64,
    pub(crate) position: u64,
    pub(crate) entries: u64,
    pub(crate) blocks: u32,
    pub(crate) map_at: u32,
    pub(crate) pages: u32,
    pub(crate) map_checksum: u32,
    pub(crate) kind: u8,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((PAGE_BYTES as u32).to_le_bytes());
        for word in [self.epoch, self.position, self.entries, u64::from(self.blocks)] {
            bytes.extend(word.to_le_bytes());
        }
        for word in [self.map_at, self.pages, self.map_checksum, u32::from(self.kind)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES - 4, 0);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(PAGE_BYTES, 0);
        bytes
    }

    /// `None`: not a whole header.
    fn decode(bytes: &[u8]) -> Option<Result<Self>> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if !bytes.starts_with(&MAGIC)
            || u32_at(HEADER_BYTES - 4)? != crc32fast::hash(bytes.get(..HEADER_BYTES - 4)?)
        {
            return None;
        }
        for (field, at, supported) in [("format", 8, VERSION), ("page size", 12, PAGE_BYTES as u32)]
        {
            let found = u32_at(at)?;
            if found != supported {
                let (found, supported) = (u64::from(found), u64::from(supported));
                return Some(Err(TreeError::Incompatible { field, found, supported }));
            }
        }
        Some(Ok(Self {
            epoch: u64_at(16)?,
            position: u64_at(24)?,
            entries: u64_at(32)?,
            blocks: u32::try_from(u64_at(40)?).ok()?,
            map_at: u32_at(48)?,
            pages: u32_at(52)?,
            map_checksum: u32_at(56)?,
            kind: u8::try_from(u32_at(60)?).ok()?,
        }))
    }

    /// Tells this checkpoint from others of the same epoch.
    pub(crate) fn checksum(&self) -> u32 {
        // Not of the whole: a checksum over bytes that end with their own checksum is always the same.
        crc32fast::hash(&self.encode()[..HEADER_BYTES - 4])
    }

    fn map_blocks(&self) -> u32 {
        (self.pages as usize * 8).div_ceil(PAGE_BYTES) as u32
    }

    fn offset(&self) -> u64 {
        self.epoch % 2 * PAGE_BYTES as u64
    }
}

/// See the module.
pub(crate) struct Blocks {
    /// Ascending, so that files stay short.
    free: BTreeSet<u32>,
    /// Blocks that are not needed now, but by the last durable checkpoint.
    retired: Vec<u32>,
    /// Which blocks the last durable checkpoint needs.
    durable: Vec<bool>,
    /// Blocks of the file, free ones included.
    blocks: u32,
    /// The last durable checkpoint.
    header: Header,
}

/// What writing a header may need to undo.
pub(crate) struct Draft {
    header: Header,
    map: Vec<u32>,
    homes: Vec<u32>,
}

impl Blocks {
    /// For a file that holds nothing yet. Its first checkpoint has epoch 1.
    pub(crate) fn new(kind: u8) -> Self {
        let header = Header {
            epoch: 0,
            position: 0,
            entries: 0,
            blocks: FIRST_BLOCK,
            map_at: 0,
            pages: 0,
            map_checksum: 0,
            kind,
        };
        Self {
            free: BTreeSet::new(),
            retired: Vec::new(),
            durable: vec![true; FIRST_BLOCK as usize],
            blocks: FIRST_BLOCK,
            header,
        }
    }

    /// Reads the last checkpoint: its header and page map.
    pub(crate) fn open(file: &dyn PageFile, kind: u8, max_pages: u32) -> Result<(Self, Vec<u64>)> {
        let len = file.len().map_err(TreeError::file("measuring"))?;
        let header = read_header(file, len)?;
        if header.kind != kind {
            let (found, supported) = (u64::from(header.kind), u64::from(kind));
            return Err(TreeError::Incompatible { field: "key kind", found, supported });
        }
        if header.pages > max_pages {
            return Err(TreeError::TooManyPages { limit: max_pages });
        }
        let map_end = u64::from(header.map_at) + u64::from(header.map_blocks());
        if header.blocks > MAX_BLOCKS
            || header.map_at < FIRST_BLOCK
            || map_end > u64::from(header.blocks)
            || map_end * PAGE_BYTES as u64 > len
            || header.pages == 0
        {
            return Err(TreeError::corrupt("the header names blocks outside the file"));
        }
        let mut bytes = vec![0; header.pages as usize * 8];
        file.read_at(u64::from(header.map_at) * PAGE_BYTES as u64, &mut bytes)
            .map_err(TreeError::file("reading the page map of"))?;
        if crc32fast::hash(&bytes) != header.map_checksum {
            return Err(TreeError::corrupt("the page map fails its checksum"));
        }
        let map: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let mut durable = vec![false; header.blocks as usize];
        let homes = map.iter().filter(|home| **home != 0).map(|home| (home >> 32) as u32);
        let needed = (0..FIRST_BLOCK).chain(header.map_at..map_end as u32).chain(homes);
        for block in needed {
            match durable.get_mut(block as usize) {
                Some(needed) if !*needed => *needed = true,
                _ => {
                    return Err(TreeError::corrupt(
                        "two pages in one block, or one outside the file",
                    ));
                }
            }
        }
        let free = (0..header.blocks).filter(|block| !durable[*block as usize]).collect();
        let blocks = header.blocks;
        Ok((Self { free, retired: Vec::new(), durable, blocks, header }, map))
    }

    /// The last durable checkpoint.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Blocks of the file and how many of them are free.
    pub(crate) fn usage(&self) -> (u32, u32) {
        (self.blocks, self.free.len() as u32)
    }

    /// Takes `count` blocks in ascending order.
    pub(crate) fn take(&mut self, count: usize) -> Result<Vec<u32>> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match self.free.pop_first() {
                Some(block) => taken.push(block),
                None if self.blocks < MAX_BLOCKS => {
                    taken.push(self.blocks);
                    self.blocks += 1;
                }
                None => {
                    self.free.extend(taken);
                    return Err(TreeError::TooManyPages { limit: MAX_BLOCKS });
                }
            }
        }
        Ok(taken)
    }

    /// Takes `count` blocks in a row.
    fn take_run(&mut self, count: u32) -> Result<Vec<u32>> {
        let mut run: Vec<u32> = Vec::new();
        for &block in &self.free {
            if run.last().is_some_and(|last| last + 1 != block) {
                run.clear();
            }
            run.push(block);
            if run.len() == count as usize {
                let range = run[0]..=block;
                self.free.retain(|block| !range.contains(block));
                return Ok(run);
            }
        }
        if MAX_BLOCKS - self.blocks < count {
            return Err(TreeError::TooManyPages { limit: MAX_BLOCKS });
        }
        let start = self.blocks;
        self.blocks += count;
        Ok((start..self.blocks).collect())
    }

    /// The current map no longer names this block.
    pub(crate) fn release(&mut self, block: u32) {
        if self.durable.get(block as usize).copied().unwrap_or(false) {
            self.retired.push(block);
        } else {
            let is_new = self.free.insert(block);
            assert!(is_new, "block {block} was free already");
        }
    }

    /// Prepares the checkpoint of `map`: takes the blocks for it and makes up the header.
    pub(crate) fn draft(
        &mut self,
        map: &[u64],
        position: u64,
        entries: u64,
    ) -> Result<(Draft, Vec<u8>)> {
        let mut bytes: Vec<u8> = map.iter().flat_map(|home| home.to_le_bytes()).collect();
        let map_checksum = crc32fast::hash(&bytes);
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let run = self.take_run((bytes.len() / PAGE_BYTES) as u32)?;
        let header = Header {
            epoch: self.header.epoch + 1,
            position,
            entries,
            blocks: self.blocks,
            map_at: run[0],
            pages: map.len() as u32,
            map_checksum,
            kind: self.header.kind,
        };
        let homes = map.iter().filter(|home| **home != 0).map(|home| (home >> 32) as u32).collect();
        Ok((Draft { header, map: run, homes }, bytes))
    }

    /// The draft's map could not be written.
    pub(crate) fn discard(&mut self, draft: Draft) {
        self.free.extend(draft.map);
    }

    /// The draft's header is durable: blocks only the checkpoint before it needs are free now.
    pub(crate) fn commit(&mut self, draft: Draft) {
        let old_map = self.header.map_at..self.header.map_at + self.header.map_blocks();
        self.durable.clear();
        self.durable.resize(self.blocks as usize, false);
        let needed = (0..FIRST_BLOCK).chain(draft.map).chain(draft.homes);
        needed.for_each(|block| self.durable[block as usize] = true);
        let unneeded = std::mem::take(&mut self.retired).into_iter().chain(old_map);
        self.free.extend(unneeded);
        self.header = draft.header;
    }

    /// Gives free blocks at the end of the file up; the number of blocks that remain, if fewer.
    pub(crate) fn trim(&mut self) -> Option<u32> {
        let before = self.blocks;
        while self.free.last() == Some(&(self.blocks - 1)) {
            self.free.pop_last();
            self.blocks -= 1;
        }
        (self.blocks < before).then_some(self.blocks)
    }
}

impl Draft {
    /// Where the page map goes.
    pub(crate) fn map_offset(&self) -> u64 {
        u64::from(self.header.map_at) * PAGE_BYTES as u64
    }

    /// Where the header goes, and its bytes.
    pub(crate) fn header(&self) -> (u64, Vec<u8>) {
        (self.header.offset(), self.header.encode())
    }
}

/// The valid header with the higher epoch.
fn read_header(file: &dyn PageFile, len: u64) -> Result<Header> {
    let mut best: Option<Header> = None;
    let mut is_blank = true;
    for slot in 0..u64::from(FIRST_BLOCK) {
        let offset = slot * PAGE_BYTES as u64;
        let mut bytes = vec![0; len.saturating_sub(offset).min(HEADER_BYTES as u64) as usize];
        if !bytes.is_empty() {
            file.read_at(offset, &mut bytes).map_err(TreeError::file("reading the header of"))?;
        }
        is_blank &= bytes.iter().all(|byte| *byte == 0);
        if let Some(header) = Header::decode(&bytes) {
            let header = header?;
            if header.offset() == offset && best.is_none_or(|best| best.epoch < header.epoch) {
                best = Some(header);
            }
        }
    }
    best.ok_or_else(|| {
        if is_blank {
            TreeError::NoCheckpoint
        } else {
            TreeError::corrupt("no header passes its checksum")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::MemoryFile;

    #[test]
    fn blocks_of_the_last_checkpoint_are_not_reused_before_the_next() {
        let mut blocks = Blocks::new(1);
        let page = blocks.take(1).expect("a block")[0];
        let (draft, _) = blocks.draft(&[u64::from(page) << 32], 7, 1).expect("a draft");
        blocks.commit(draft);
        blocks.release(page);
        let next = blocks.take(2).expect("two blocks");
        assert!(!next.contains(&page));
        let (draft, _) = blocks.draft(&[u64::from(next[0]) << 32], 8, 1).expect("a draft");
        blocks.release(next[1]);
        blocks.commit(draft);
        assert!(blocks.take(8).expect("blocks").contains(&page));
    }

    #[test]
    fn headers_survive_the_file_and_damage_is_seen() {
        let header = Header {
            epoch: 5,
            position: 99,
            entries: 3,
            blocks: 10,
            map_at: 4,
            pages: 2,
            map_checksum: 1,
            kind: 2,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes).expect("whole").expect("known"), header);
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Header::decode(&damaged).is_none(), "byte {at}");
        }
        let mut file = vec![0; 2 * PAGE_BYTES];
        file[PAGE_BYTES..].copy_from_slice(&bytes);
        assert_eq!(read_header(&MemoryFile::new(file.clone()), 8192).expect("one valid"), header);
        file.rotate_left(PAGE_BYTES);
        let misplaced = read_header(&MemoryFile::new(file), 8192);
        assert!(matches!(misplaced, Err(TreeError::Corrupt { .. })));
    }

    #[test]
    fn files_without_a_checkpoint_are_told_from_damaged_ones() {
        for (bytes, is_blank) in [(vec![], true), (vec![0; 9000], true), (vec![1; 9000], false)] {
            let file = MemoryFile::new(bytes);
            match Blocks::open(&file, 1, 10).map(|_| ()) {
                Err(TreeError::NoCheckpoint) => assert!(is_blank),
                Err(TreeError::Corrupt { .. }) => assert!(!is_blank),
                other => panic!("{other:?}"),
            }
        }
    }
}
