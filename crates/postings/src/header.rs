//! The first 64 bytes of a dictionary, and how long its sections are.
//!
//! `dictionary.rs` draws the bytes.

use crate::error::PostingsError;
use crate::list::{Bounds, MAX_FILE_ROWS};
use crate::table::BUCKET_BYTES;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;

pub(crate) const MAGIC: [u8; 8] = *b"UPLKPOST";
pub(crate) const FORMAT: u16 = 2;

pub(crate) const BYTES: u16 = 1;
pub(crate) const EXACT: u16 = 2;
pub(crate) const CLUSTERED: u16 = 4;
pub(crate) const KEYS: u16 = 8;
pub(crate) const ORDER: u16 = 16;
pub(crate) const SORTED: u16 = 32;
pub(crate) const INLINE: u16 = 64;
const ALL_FLAGS: u16 = 127;

fn u16_of(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_of(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from(u16_of(bytes, at)) | u32::from(u16_of(bytes, at + 2)) << 16
}

fn u64_of(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_of(bytes, at)) | u64::from(u32_of(bytes, at + 4)) << 32
}

/// What a header says, which does not contradict itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    flags: u16,
    file_rows: u32,
    pub(crate) ordinals: u32,
    pub(crate) terms: u32,
    pub(crate) buckets: u32,
    pub(crate) probes: u32,
    pub(crate) seed: u64,
    pub(crate) base: u64,
    heap_bytes: u64,
    pub(crate) text_bytes: u32,
    /// Tag bits and length bits.
    pub(crate) bits: [u32; 2],
}

/// Bytes of the sections after the header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) buckets: u64,
    pub(crate) postings: u64,
    pub(crate) keys: u64,
    pub(crate) order: u64,
    pub(crate) text: u64,
}

impl Head {
    pub(crate) fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, PostingsError> {
        if header[..8] != MAGIC {
            return Err(PostingsError::corrupt("not a dictionary: wrong magic", 0));
        }
        let (format, flags) = (u16_of(header, 8), u16_of(header, 10));
        if format == 0 || format > FORMAT {
            return Err(PostingsError::TooNew { found: format, supported: FORMAT });
        }
        let [file_rows, ordinals, terms, buckets, probes] =
            [12, 16, 20, 24, 28].map(|at| u32_of(header, at));
        let has = |flag: u16| flags & flag != 0;
        // Integers need their tags or keys, order needs keys or terms.
        let sound = flags & !ALL_FLAGS == 0
            && file_rows <= MAX_FILE_ROWS
            && terms <= ordinals
            && ordinals < u32::MAX
            && (has(INLINE) || u32_of(header, 60) == 0)
            && (flags == INLINE | EXACT || !has(INLINE))
            && u16_of(header, 62) == 0
            && !(has(BYTES) && (has(EXACT) || has(KEYS)))
            && (has(BYTES) || has(EXACT) || has(KEYS))
            && !(has(ORDER) && has(SORTED))
            && (has(BYTES) || has(KEYS) || !(has(ORDER) || has(SORTED)))
            && (terms == ordinals || !has(SORTED));
        if !sound {
            return Err(PostingsError::corrupt("the header contradicts itself", 10));
        }
        let (seed, base, heap_bytes) = (u64_of(header, 32), u64_of(header, 40), u64_of(header, 48));
        let (text_bytes, bits) = (u32_of(header, 56), [header[60], header[61]].map(u32::from));
        Ok(Self {
            flags,
            file_rows,
            ordinals,
            terms,
            buckets,
            probes,
            seed,
            base,
            heap_bytes,
            text_bytes,
            bits,
        })
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { file_rows: self.file_rows, heap_bytes: self.heap_bytes }
    }

    pub(crate) fn lengths(&self) -> Lengths {
        let count = u64::from(self.ordinals);
        Lengths {
            buckets: u64::from(self.buckets) * BUCKET_BYTES as u64,
            postings: match (self.has(INLINE), self.has(CLUSTERED)) {
                (true, _) => 0,
                (_, true) => 4 * (count + 1),
                _ => 8 * count,
            },
            keys: match (self.has(BYTES), self.has(KEYS), self.has(EXACT)) {
                (true, ..) => 4 * (count + 1),
                (_, true, true) => 4 * count,
                (_, true, false) => 8 * count,
                _ => 0,
            },
            order: if self.has(ORDER) { 4 * u64::from(self.terms) } else { 0 },
            text: u64::from(self.text_bytes),
        }
    }
}
