//! The local copy of a dictionary: one file of frames, in a folder that may be deleted at any time.
//!
//! FORMAT.md draws the frames. A frame holds keys of one run in order of their ids, with a checksum
//! over all of it. A file is read until a frame is not whole or does not continue the one before:
//! that is what counts, and the rest comes from the log again. So a torn tail, a flipped byte or a
//! full disk costs reading, and never an answer. For the same reason nothing waits for the disk.
//!
//! One process may write, the one that holds the lock on `lock`; others read the file once, when
//! they open, and keep what comes later in their memory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::dictionary::{Dictionary, Position};
use crate::keys::{Keys, MAX_KEY_BYTES};
use crate::run::MAX_IDS;

const FILE_NAME: &str = "keys.log";
const LOCK_NAME: &str = "lock";
const MAGIC: [u8; 8] = *b"UPLKDKEY";
const FORMAT: u16 = 1;
const FRAME_HEADER_BYTES: usize = 80;
/// A frame is closed at so many keys or bytes of keys, so that reading needs little memory.
const FRAME_KEYS: usize = 1 << 18;
const FRAME_KEY_BYTES: usize = 8 << 20;
/// What a frame may have at most: lengths, keys up to the limit, and the one that went over it.
const MAX_BODY_BYTES: u64 = (4 * FRAME_KEYS + FRAME_KEY_BYTES + MAX_KEY_BYTES) as u64;
/// In place of the length of all keys: each has its own.
const VARIED: u32 = u32::MAX;

/// Who keeps the local file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalState {
    /// No folder was given.
    None,
    /// This process keeps the file.
    Writer,
    /// Another process keeps the file; this one has read it.
    Reader,
    /// The file cannot be kept; what comes is in memory only.
    Failed,
}

/// The local file of a domain.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) state: LocalState,
    path: PathBuf,
    file: Option<File>,
    /// Held while this process may write.
    _lock: Option<File>,
    /// Bytes of whole frames.
    pub(crate) bytes: u64,
    /// Whether the last of them has only a part of its run.
    pub(crate) is_partial: bool,
    pub(crate) warning: Option<String>,
}

impl Local {
    /// No local file.
    pub(crate) fn none() -> Self {
        Self {
            state: LocalState::None,
            path: PathBuf::new(),
            file: None,
            _lock: None,
            bytes: 0,
            is_partial: false,
            warning: None,
        }
    }

    /// Takes the folder, and fills an empty dictionary with what its file holds.
    pub(crate) fn open(folder: &Path, dictionary: &mut Dictionary) -> Self {
        let mut local = Self { path: folder.join(FILE_NAME), ..Self::none() };
        match lock(folder) {
            Ok(Some(lock)) => {
                local.state = LocalState::Writer;
                local._lock = Some(lock);
            }
            Ok(None) => local.state = LocalState::Reader,
            Err(error) => local.fail(&format!("locking {}: {error}", folder.display())),
        }
        if local.state == LocalState::Writer {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            match options.open(&local.path) {
                Ok(file) => local.file = Some(file),
                Err(error) => local.fail(&format!("opening {}: {error}", local.path.display())),
            }
        }
        local.read(dictionary);
        local
    }

    /// The folder, if there is one.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
    }

    /// Fills an empty dictionary with what the file holds now.
    pub(crate) fn read_again(&self, dictionary: &mut Dictionary) {
        let mut again = Self { path: self.path.clone(), ..Self::none() };
        if self.state != LocalState::None {
            again.read(dictionary);
        }
    }

    fn read(&mut self, dictionary: &mut Dictionary) {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.fail(&format!("opening {}: {error}", self.path.display())),
        };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let mut frames = Frames { file: BufReader::new(file), left: length, body: Vec::new() };
        // The rest of the file looks like what came before, so one resize is enough.
        let mut first = true;
        while let Some(frame) = frames.next(dictionary) {
            if first {
                let keys = frame.header.count as u64;
                let frame_bytes = FRAME_HEADER_BYTES as u64 + frame.header.body_bytes;
                let expected = (length / frame_bytes.max(1)).saturating_mul(keys);
                dictionary.reserve(expected.min(length) as usize);
                first = false;
            }
            self.bytes += FRAME_HEADER_BYTES as u64 + frame.header.body_bytes;
            dictionary.extend(&frame, 0..frame.len());
            dictionary.position.domain = frame.header.position.domain;
            self.is_partial = !frame.header.last;
            if frame.header.last {
                dictionary.position = frame.header.position;
            }
        }
        if self.bytes < length && self.state == LocalState::Writer {
            self.warning = Some(format!(
                "{}: {} bytes after {} were not whole and were read from the log again",
                self.path.display(),
                length - self.bytes,
                self.bytes
            ));
        }
    }

    /// Forgets what the file holds.
    pub(crate) fn reset(&mut self) {
        self.bytes = 0;
        self.is_partial = false;
        if self.state == LocalState::Reader {
            // The file is not of this log, or damaged: its writer will see to it.
            return;
        }
        if let Some(file) = &self.file
            && let Err(error) = file.set_len(0)
        {
            self.fail(&format!("clearing {}: {error}", self.path.display()));
        }
    }

    /// Writes the keys from id `from` on, which are all that runs up to `position` brought.
    pub(crate) fn append(&mut self, dictionary: &Dictionary, from: u32, position: Position) {
        if self.state != LocalState::Writer {
            return;
        }
        if let Err(error) = self.write(dictionary, from as usize, position) {
            let path = self.path.display().to_string();
            if let Some(file) = &self.file {
                // Whether or not this works: what is not whole is not read.
                let _ = file.set_len(self.bytes);
            }
            self.fail(&format!("writing {path}: {error}"));
        }
    }

    fn write(
        &mut self,
        dictionary: &Dictionary,
        from: usize,
        position: Position,
    ) -> io::Result<()> {
        let mut file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut written = self.bytes;
        let keys = &dictionary.keys;
        let mut at = from;
        loop {
            let first_id = at as u32;
            let mut body = Body::default();
            while at < keys.len() && !body.is_full() {
                body.push(keys.key(at));
                at += 1;
            }
            let last = at == keys.len();
            let frame = body.frame(position, first_id, last);
            file.write_all(&frame)?;
            written += frame.len() as u64;
            if last {
                break;
            }
        }
        // What an interrupted write left behind the last whole frame.
        file.set_len(written)?;
        self.bytes = written;
        Ok(())
    }

    fn fail(&mut self, what: &str) {
        self.state = LocalState::Failed;
        self.file = None;
        self.warning = Some(format!("{what}; new keys are kept in memory only"));
    }
}

/// The lock of a folder, unless another process has it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(LOCK_NAME);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A frame's keys, while it is made.
#[derive(Default)]
struct Body {
    lengths: Vec<u32>,
    keys: Vec<u8>,
}

impl Body {
    fn push(&mut self, key: &[u8]) {
        self.lengths.push(key.len() as u32);
        self.keys.extend_from_slice(key);
    }

    fn is_full(&self) -> bool {
        self.lengths.len() == FRAME_KEYS || self.keys.len() >= FRAME_KEY_BYTES
    }

    fn frame(self, position: Position, first_id: u32, last: bool) -> Vec<u8> {
        let width = self.lengths.first().copied().unwrap_or(0);
        let is_uniform = self.lengths.iter().all(|&length| length == width);
        let mut body = Vec::with_capacity(4 * self.lengths.len() + self.keys.len());
        if !is_uniform {
            body.extend(self.lengths.iter().flat_map(|length| length.to_le_bytes()));
        }
        body.extend_from_slice(&self.keys);
        let header = FrameHeader {
            last,
            position,
            first_id,
            count: self.lengths.len() as u32,
            body_bytes: body.len() as u64,
            width: if is_uniform { width } else { VARIED },
            body_crc: crc32fast::hash(&body),
        };
        let mut frame = header.to_bytes();
        frame.append(&mut body);
        frame
    }
}

#[derive(Debug, Clone, Copy)]
struct FrameHeader {
    /// Whether the run of `position` is complete with this frame.
    last: bool,
    position: Position,
    first_id: u32,
    count: u32,
    body_bytes: u64,
    width: u32,
    body_crc: u32,
}

impl FrameHeader {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.last), 0]);
        out.extend_from_slice(&self.position.run.to_le_bytes());
        out.extend_from_slice(&self.position.nonce.to_le_bytes());
        out.extend_from_slice(&self.position.domain.to_le_bytes());
        out.extend_from_slice(&self.first_id.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        out.extend_from_slice(&self.width.to_le_bytes());
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.resize(FRAME_HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// `None` if the bytes are not a frame's header of this format.
    fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u128_at = |at: usize| Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let crc = crc32fast::hash(&bytes[..FRAME_HEADER_BYTES - 4]);
        let is_ours = bytes.starts_with(&MAGIC)
            && bytes[8..10] == FORMAT.to_le_bytes()
            && crc == u32_at(FRAME_HEADER_BYTES - 4)?;
        let position = Position { run: u32_at(12)?, nonce: u128_at(16)?, domain: u128_at(32)? };
        let header = Self {
            last: bytes[10] == 1,
            position,
            first_id: u32_at(48)?,
            count: u32_at(52)?,
            body_bytes: u64_at(56)?,
            width: u32_at(64)?,
            body_crc: u32_at(68)?,
        };
        (is_ours && header.body_bytes <= MAX_BODY_BYTES).then_some(header)
    }
}

/// Reads frames one after another.
struct Frames {
    file: BufReader<File>,
    left: u64,
    body: Vec<u8>,
}

/// A frame that is whole.
struct Frame<'a> {
    header: FrameHeader,
    /// Where its keys end in `keys`, unless all are of one length.
    ends: Vec<u32>,
    keys: &'a [u8],
}

impl Keys for Frame<'_> {
    fn len(&self) -> usize {
        self.header.count as usize
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        let width = self.header.width as usize;
        if width != VARIED as usize {
            return &self.keys[row * width..(row + 1) * width];
        }
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.keys[start as usize..self.ends[row] as usize]
    }
}

impl Frames {
    /// The next frame, if it is whole and continues the dictionary.
    fn next(&mut self, dictionary: &Dictionary) -> Option<Frame<'_>> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.file.read_exact(&mut bytes).ok()?;
        let header = FrameHeader::parse(&bytes)?;
        self.left = self.left.checked_sub(FRAME_HEADER_BYTES as u64 + header.body_bytes)?;
        let Position { run, domain, .. } = dictionary.position;
        let continues = header.first_id == dictionary.next_id()
            && header.position.run > run
            && (run == 0 || domain == header.position.domain);
        self.body.resize(header.body_bytes as usize, 0);
        self.file.read_exact(&mut self.body).ok()?;
        let is_whole = crc32fast::hash(&self.body) == header.body_crc;
        if continues && is_whole { Frame::of(header, &self.body) } else { None }
    }
}

impl<'a> Frame<'a> {
    /// `None` if its lengths are not those of its keys.
    fn of(header: FrameHeader, body: &'a [u8]) -> Option<Self> {
        let count = header.count as usize;
        let last_id = u64::from(header.first_id) + count as u64;
        if count > FRAME_KEYS || last_id > MAX_IDS {
            return None;
        }
        if header.width != VARIED {
            let total = u64::from(header.width) * count as u64;
            let fits = header.width as usize <= MAX_KEY_BYTES && total == body.len() as u64;
            return fits.then_some(Self { header, ends: Vec::new(), keys: body });
        }
        let (lengths, keys) = body.split_at_checked(4 * count)?;
        let mut ends = Vec::with_capacity(count);
        let mut end = 0;
        for length in lengths.as_chunks().0 {
            let length = u32::from_le_bytes(*length);
            if length as usize > MAX_KEY_BYTES {
                return None;
            }
            end += u64::from(length);
            ends.push(u32::try_from(end).ok()?);
        }
        (end == keys.len() as u64).then_some(Self { header, ends, keys })
    }
}
