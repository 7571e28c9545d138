//! The index as a file: a checkpoint, so that opening a domain need not hash its keys again.
//!
//! FORMAT.md draws it. The file is written beside the old one and takes its place when it is whole.
//! It is believed only beside a key file that has a frame ending at the very run it names, and
//! each shard only with its checksum; a shard is read when a key of it is asked for. Its slots are
//! numbers, never answers: the key of a number is compared, wherever it lies.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{DomainError, Result};
use crate::key_file::read_exact_at;
use crate::position::Position;
use crate::private;
use crate::shard::{SHARDS, Shard};

const FILE_NAME: &str = "index";
const NEW_NAME: &str = "index.new";
const MAGIC: [u8; 8] = *b"UPLKDIDX";
/// Goes up with the layout, and with [`crate::hash`].
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 80;
const ENTRY_BYTES: usize = 12;
const TABLE_BYTES: usize = SHARDS * ENTRY_BYTES;

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The run that the last key is from.
    pub(crate) position: Position,
    /// Keys: the ids below are in the index.
    pub(crate) keys: u32,
    /// Of the hashes.
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    buckets: u32,
    used: u32,
    crc: u32,
}

/// An index in a file, of which the header and the table of shards were right.
#[derive(Debug)]
pub(crate) struct IndexFile {
    pub(crate) header: Header,
    file: File,
    path: PathBuf,
    shards: Vec<(u64, Entry)>,
}

impl IndexFile {
    /// The checkpoint in a folder, if there is one that can be read.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE_NAME);
        let file = File::open(&path).ok()?;
        let mut bytes = vec![0; HEADER_BYTES + TABLE_BYTES];
        read_exact_at(&file, &mut bytes, 0).ok()?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u128_at = |at: usize| Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[..HEADER_BYTES - 4]);
        crc.update(&bytes[HEADER_BYTES..]);
        let is_ours = bytes.starts_with(&MAGIC)
            && bytes[8..10] == FORMAT.to_le_bytes()
            && crc.finalize() == u32_at(HEADER_BYTES - 4)?;
        if !is_ours {
            return None;
        }
        let position = Position { run: u32_at(12)?, nonce: u128_at(16)?, domain: u128_at(32)? };
        let header = Header { position, keys: u32_at(48)?, seed: u64_at(56)? };
        let (mut shards, mut at) = (Vec::with_capacity(SHARDS), bytes.len() as u64);
        for shard in 0..SHARDS {
            let field = |field: usize| u32_at(HEADER_BYTES + shard * ENTRY_BYTES + 4 * field);
            let entry = Entry { buckets: field(0)?, used: field(1)?, crc: field(2)? };
            shards.push((at, entry));
            at += u64::from(entry.buckets) * Shard::BUCKET_BYTES as u64;
        }
        // A forged table must not make a shard larger than the file.
        let is_whole = file.metadata().is_ok_and(|metadata| metadata.len() == at);
        let used: u64 = shards.iter().map(|(_, entry)| u64::from(entry.used)).sum();
        let is_sound = is_whole && used == u64::from(header.keys);
        is_sound.then_some(Self { header, file, path, shards })
    }

    /// Deletes the checkpoint of a folder.
    pub(crate) fn remove(folder: &Path) {
        let _ = fs::remove_file(folder.join(FILE_NAME));
    }

    /// Puts a checkpoint into a folder: all the shards of an index, in order.
    pub(crate) fn write<'i>(
        folder: &Path,
        header: Header,
        shards: impl Iterator<Item = &'i Shard>,
    ) -> io::Result<()> {
        let new = folder.join(NEW_NAME);
        let mut file = BufWriter::with_capacity(
            1 << 20,
            private::options().write(true).create(true).truncate(true).open(&new)?,
        );
        file.write_all(&[0; HEADER_BYTES + TABLE_BYTES])?;
        let (mut table, mut bytes) = (Vec::with_capacity(TABLE_BYTES), Vec::new());
        for shard in shards {
            bytes.clear();
            shard.to_bytes(&mut bytes);
            table.extend_from_slice(&(shard.buckets() as u32).to_le_bytes());
            table.extend_from_slice(&(shard.used() as u32).to_le_bytes());
            table.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
            file.write_all(&bytes)?;
        }
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        io::Seek::rewind(&mut file)?;
        file.write_all(&header.to_bytes(&table))?;
        file.write_all(&table)?;
        file.sync_all()?;
        drop(file);
        fs::rename(new, folder.join(FILE_NAME))
    }

    /// Reads a shard.
    pub(crate) fn shard(&self, number: usize) -> Result<Shard> {
        let (offset, entry) = self.shards[number];
        let damaged = |what: String| {
            let path = self.path.display().to_string();
            DomainError::Local { path, what: format!("shard {number}: {what}") }
        };
        let mut bytes = vec![0; entry.buckets as usize * Shard::BUCKET_BYTES];
        read_exact_at(&self.file, &mut bytes, offset)
            .map_err(|error| damaged(format!("reading at {offset}: {error}")))?;
        if crc32fast::hash(&bytes) != entry.crc {
            return Err(damaged("it fails its checksum".to_owned()));
        }
        Shard::from_bytes(&bytes, entry.used as usize, self.header.keys)
            .ok_or_else(|| damaged("its slots are not as they should be".to_owned()))
    }
}

impl Header {
    fn to_bytes(self, table: &[u8]) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.position.run.to_le_bytes());
        out.extend_from_slice(&self.position.nonce.to_le_bytes());
        out.extend_from_slice(&self.position.domain.to_le_bytes());
        out.extend_from_slice(&self.keys.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&out);
        crc.update(table);
        out.extend_from_slice(&crc.finalize().to_le_bytes());
        out.try_into().expect("the fields are as long as the header")
    }
}
