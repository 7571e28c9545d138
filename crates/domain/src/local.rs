//! The local copy of a dictionary: keys and their index, in a folder that may be deleted at any
//! time.
//!
//! FORMAT.md draws the files. A frame of the key file holds keys of one run in order of their ids,
//! with checksums over all of it. The file is read until a frame is not whole or does not continue
//! the one before: that is what counts, and the rest comes from the log again. So a torn tail, a
//! flipped byte or a full disk costs reading, and never an answer. For the same reason nothing waits
//! for the disk.
//!
//! Without a limit of memory everything is read and checked at once. With one, only what is needed
//! to find keys is, and a page is checked when it is read.
//!
//! One process may write, the one that holds the lock on `lock`; others read the files once, when
//! they open, and keep what comes later in their memory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dictionary::Dictionary;
use crate::error::Result;
use crate::frame::{Frame, HEADER_BYTES, Header, Page, PageEntry};
use crate::index::Index;
use crate::index_file::{self, IndexFile};
use crate::key_file::{Held, KeyFile, Place, read_exact_at};
use crate::key_table::KeyTable;
use crate::position::Position;
use crate::private;

const FILE_NAME: &str = "keys.log";
const LOCK_NAME: &str = "lock";
/// New keys that are worth a checkpoint of the index; and which part of the old ones, so that all
/// checkpoints together write the index five times.
const CHECKPOINT_KEYS: u32 = 1 << 16;
const CHECKPOINT_PART: u32 = 4;
/// The same when the domain is opened: the next to open it gains.
const OPENING_KEYS: u32 = 1 << 14;
const OPENING_PART: u32 = 16;

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

/// The local files of a domain.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) state: LocalState,
    path: PathBuf,
    file: Option<Arc<File>>,
    /// Held while this process may write.
    lock: Option<File>,
    /// Bytes of memory that the dictionary may take; without, all of it is in memory.
    limit: Option<u64>,
    /// Bytes of whole frames.
    pub(crate) bytes: u64,
    /// Keys in them, and in the checkpoint of the index.
    keys: u32,
    indexed: u32,
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
            lock: None,
            limit: None,
            bytes: 0,
            keys: 0,
            indexed: 0,
            is_partial: false,
            warning: None,
        }
    }

    /// Takes the folder, and fills an empty dictionary with what its files hold.
    pub(crate) fn open(folder: &Path, limit: Option<u64>, dictionary: &mut Dictionary) -> Self {
        let mut local = Self { path: folder.join(FILE_NAME), limit, ..Self::none() };
        match lock(folder) {
            Ok(Some(lock)) => {
                local.state = LocalState::Writer;
                local.lock = Some(lock);
            }
            Ok(None) => local.state = LocalState::Reader,
            Err(error) => local.fail(&format!("locking {}: {error}", folder.display())),
        }
        if local.state == LocalState::Writer {
            let mut options = private::options();
            options.read(true).write(true).create(true).truncate(false);
            match options.open(&local.path) {
                Ok(file) => local.file = Some(Arc::new(file)),
                Err(error) => local.fail(&format!("opening {}: {error}", local.path.display())),
            }
        }
        if let Err(error) = local.read(dictionary) {
            // A page that is needed at once is damaged.
            *dictionary = Dictionary::new(dictionary.hash(b""));
            local.reset(dictionary);
            if local.warning.is_none() {
                local.warning = Some(error.to_string());
            }
        }
        local
    }

    /// In place of one that could not be brought up to the dictionary.
    pub(crate) fn lost(folder: Option<PathBuf>, why: &str) -> Self {
        let path = folder.map(|folder| folder.join(FILE_NAME)).unwrap_or_default();
        let mut local = Self { path, ..Self::none() };
        local.fail(why);
        local
    }

    /// The folder, if there is one.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
    }

    /// The limit of memory, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Fills an empty dictionary with what the files hold now.
    ///
    /// # Errors
    /// With a limit of memory, if what has to be read at once is damaged.
    fn read(&mut self, dictionary: &mut Dictionary) -> Result<()> {
        let file = match File::open(&self.path) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.fail(&format!("opening {}: {error}", self.path.display()));
                return Ok(());
            }
        };
        // Before the keys: a writer meanwhile adds the keys first.
        let index = self.folder().and_then(|folder| IndexFile::open(&folder));
        let mut walk = Walk::new(Arc::clone(&file));
        let mut keys = KeyTable::default();
        let (mut places, mut key_bytes, mut has_indexed) = (Vec::new(), 0, false);
        while let Some(step) = walk.step() {
            if self.limit.is_none() {
                let Some(body) = walk.body(&step) else { break };
                step.pages(&body, |_, page| keys.push_page(page));
            }
            walk.pass(&step);
            has_indexed |= index.as_ref().is_some_and(|index| step.header.ends(&index.header));
            key_bytes += step.places.iter().map(|place| place.entry.key_bytes()).sum::<u64>();
            if self.limit.is_some() {
                places.extend(step.places);
            }
            self.is_partial = !step.header.last;
        }
        (self.bytes, self.keys) = (walk.at, walk.next_id);
        if self.bytes < walk.length && self.state == LocalState::Writer {
            self.warning = Some(format!(
                "{}: {} bytes after {} were not whole and were read from the log again",
                self.path.display(),
                walk.length - self.bytes,
                self.bytes
            ));
        }
        if self.limit.is_some() {
            let mut key_file = KeyFile::new(file, self.path.clone());
            key_file.extend(&places);
            keys = KeyTable::open(key_file, key_bytes)?;
        }
        dictionary.position = walk.position;
        let index = index.filter(|index| has_indexed && index.header.keys > 0);
        self.indexed = index.as_ref().map_or(0, |index| index.header.keys);
        self.resume(dictionary, keys, index)
    }

    fn resume(
        &mut self,
        dictionary: &mut Dictionary,
        keys: KeyTable,
        file: Option<IndexFile>,
    ) -> Result<()> {
        let Some(limit) = self.limit else {
            let index = file.and_then(|file| {
                let header = file.header;
                let index = Index::over(file);
                index.load_all().ok()?;
                Some((index, header.seed, header.keys))
            });
            self.indexed = index.as_ref().map_or(0, |(_, _, keys)| *keys);
            return dictionary.resume(keys, index);
        };
        let index = file.map(|file| {
            let header = file.header;
            (Index::over(file), header.seed, header.keys)
        });
        dictionary.resume(keys, index)?;
        dictionary.filed(&[], limit);
        Ok(())
    }

    /// Compares the file with the dictionary. What is wrong, if anything is.
    pub(crate) fn compare(&self, dictionary: &Dictionary) -> Result<Option<String>> {
        let Ok(file) = File::open(&self.path) else { return Ok(None) };
        let (mut walk, mut held) = (Walk::new(Arc::new(file)), Held::default());
        let (mut wrong, mut trouble) = (None, None);
        while let Some(step) = walk.step() {
            let Some(body) = walk.body(&step) else { break };
            step.pages(&body, |first_id, page| {
                for at in 0..page.len() {
                    let id = first_id + at as u32;
                    match dictionary.keys.read(id, &mut held) {
                        Ok(Some(key)) if key == page.key(at) => {}
                        // A reader may be behind the file.
                        Ok(None) if self.state != LocalState::Writer => {}
                        Ok(_) => wrong = wrong.or(Some(id)),
                        Err(error) => trouble = Some(error),
                    }
                }
            });
            if let Some(error) = trouble {
                return Err(error);
            }
            walk.pass(&step);
        }
        if let Some(id) = wrong {
            return Ok(Some(format!("the local file has another key for id {id}; rebuild it")));
        }
        let (found, expected) = (walk.next_id, dictionary.next_id());
        let differs = self.state == LocalState::Writer && found != expected;
        Ok(differs.then(|| {
            format!("the local file has {found} keys, the dictionary {expected}; rebuild it")
        }))
    }

    /// Forgets what the files hold, and starts others in their place; who reads the old ones may
    /// go on. `dictionary` is what will be appended.
    pub(crate) fn reset(&mut self, dictionary: &mut Dictionary) {
        (self.bytes, self.keys, self.indexed, self.is_partial) = (0, 0, 0, false);
        let (LocalState::Writer, Some(folder)) = (self.state, self.folder()) else {
            // The file is not of this log, or damaged: its writer will see to it.
            return;
        };
        match self.start_anew(&folder) {
            Ok(file) => {
                if self.limit.is_some() {
                    let path = self.path.clone();
                    dictionary.keys.attach(KeyFile::new(Arc::clone(&file), path));
                }
                self.file = Some(file);
            }
            Err(error) => self.fail(&format!("clearing {}: {error}", self.path.display())),
        }
    }

    fn start_anew(&self, folder: &Path) -> io::Result<Arc<File>> {
        let is_ours = self.lock.as_ref().is_some_and(|lock| is_at(lock, &folder.join(LOCK_NAME)));
        if !is_ours {
            return Err(io::Error::other("the folder is not the one that was locked"));
        }
        IndexFile::remove(folder);
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = private::options();
        Ok(Arc::new(options.read(true).write(true).create_new(true).open(&self.path)?))
    }

    /// Writes the keys from id `from` on, which are all that runs up to `position` brought. Where
    /// they are, if they all are.
    pub(crate) fn append(
        &mut self,
        dictionary: &Dictionary,
        from: u32,
        position: Position,
    ) -> Vec<Place> {
        if self.state != LocalState::Writer {
            return Vec::new();
        }
        match self.write(dictionary, from as usize, position) {
            Ok(places) => places,
            Err(error) => {
                let path = self.path.display().to_string();
                if let Some(file) = &self.file {
                    // Whether or not this works: what is not whole is not read.
                    let _ = file.set_len(self.bytes);
                }
                self.fail(&format!("writing {path}: {error}"));
                Vec::new()
            }
        }
    }

    fn write(
        &mut self,
        dictionary: &Dictionary,
        from: usize,
        position: Position,
    ) -> io::Result<Vec<Place>> {
        let mut file = self.file.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let (mut written, mut at, mut places) = (self.bytes, from, Vec::new());
        let keys = dictionary.keys.tail();
        loop {
            let frame = Frame::make(&keys, at, position);
            // The header comes last, so that who reads meanwhile finds a frame or none.
            file.seek(SeekFrom::Start(written + HEADER_BYTES as u64))?;
            file.write_all(&frame.rest)?;
            file.seek(SeekFrom::Start(written))?;
            file.write_all(&frame.header_bytes())?;
            places.extend(places_of(&frame.header, &frame.entries, written));
            written += frame.header.frame_bytes();
            at += frame.header.count as usize;
            if frame.header.last {
                break;
            }
        }
        // What an interrupted write left behind the last whole frame.
        file.set_len(written)?;
        (self.bytes, self.keys) = (written, at as u32);
        Ok(places)
    }

    /// Whether a checkpoint of the index is worth it now.
    pub(crate) fn wants_checkpoint(&self, is_opening: bool) -> bool {
        let new = self.keys - self.indexed;
        let (keys, part) = match is_opening {
            true => (OPENING_KEYS, OPENING_PART),
            false => (CHECKPOINT_KEYS, CHECKPOINT_PART),
        };
        self.state == LocalState::Writer && new >= keys && new >= self.indexed / part
    }

    /// Writes a checkpoint of the index, if the files are up to the dictionary. What goes wrong
    /// with that is a warning: the next to open the folder hashes the keys.
    pub(crate) fn checkpoint(&mut self, dictionary: &Dictionary) {
        let is_current = self.keys == dictionary.next_id() && !self.is_partial;
        let (LocalState::Writer, true, Some(folder)) = (self.state, is_current, self.folder())
        else {
            return;
        };
        if self.keys == self.indexed {
            return;
        }
        let written = dictionary.whole_index().map_err(|error| error.to_string());
        let written = written.and_then(|(index, seed)| {
            let (position, keys) = (dictionary.position, self.keys);
            let header = index_file::Header { position, keys, seed };
            IndexFile::write(&folder, header, index.shards()).map_err(|error| error.to_string())
        });
        match written {
            Ok(()) => self.indexed = self.keys,
            Err(error) => {
                self.warning = Some(format!("writing the index in {}: {error}", folder.display()));
            }
        }
    }

    fn fail(&mut self, what: &str) {
        self.state = LocalState::Failed;
        self.file = None;
        self.warning = Some(format!("{what}; new keys are kept in memory only"));
    }
}

impl Header {
    /// Whether the index is of the keys up to the end of this frame.
    fn ends(&self, index: &index_file::Header) -> bool {
        self.last && self.position == index.position && self.first_id + self.count == index.keys
    }
}

/// The lock of a folder, unless another process has it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    private::create_folder(folder)?;
    let path = folder.join(LOCK_NAME);
    let file = private::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether the open file is the one at `path` now.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, there) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    open.is_ok_and(|open| there.is_ok_and(|there| there == open))
}

/// A file that is open stays where it is.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Where the pages of a frame are that starts at `at`.
fn places_of<'a>(
    header: &Header,
    entries: &'a [PageEntry],
    at: u64,
) -> impl Iterator<Item = Place> + use<'a> {
    let (mut first_id, mut offset) = (header.first_id, at);
    offset += (HEADER_BYTES + header.table_bytes()) as u64;
    entries.iter().map(move |entry| {
        let place = Place { first_id, entry: *entry, offset };
        first_id += u32::from(entry.keys);
        offset += u64::from(entry.bytes);
        place
    })
}

/// Goes from frame to frame, as long as they are whole and follow each other.
struct Walk {
    file: Arc<File>,
    length: u64,
    /// Where the next frame starts, and with which id.
    at: u64,
    next_id: u32,
    position: Position,
}

/// A frame of which header and table are right.
struct Step {
    header: Header,
    places: Vec<Place>,
}

impl Step {
    /// Gives `each` the pages of a body that is right, and their first ids.
    fn pages(&self, body: &[u8], mut each: impl FnMut(u32, &Page<'_>)) {
        let mut rest = body;
        for place in &self.places {
            let (page, later) = rest.split_at(place.entry.bytes as usize);
            if let Some(page) = place.entry.page_as_is(page) {
                each(place.first_id, &page);
            }
            rest = later;
        }
    }
}

impl Walk {
    fn new(file: Arc<File>) -> Self {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        Self { file, length, at: 0, next_id: 0, position: Position::default() }
    }

    /// The next frame, if there is one that continues those before.
    fn step(&self) -> Option<Step> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact_at(&self.file, &mut bytes, self.at).ok()?;
        let header = Header::parse(&bytes)?;
        self.length.checked_sub(self.at)?.checked_sub(header.frame_bytes())?;
        let Position { run, domain, .. } = self.position;
        let continues = header.first_id == self.next_id
            && header.position.run > run
            && (run == 0 || domain == header.position.domain);
        if !continues {
            return None;
        }
        let mut table = vec![0; header.table_bytes()];
        read_exact_at(&self.file, &mut table, self.at + HEADER_BYTES as u64).ok()?;
        let entries = header.table(&table)?;
        Some(Step { places: places_of(&header, &entries, self.at).collect(), header })
    }

    /// The bytes of the frame's pages, if they are all right.
    fn body(&self, step: &Step) -> Option<Vec<u8>> {
        let mut body = vec![0; step.header.body_bytes()];
        if let Some(first) = step.places.first() {
            read_exact_at(&self.file, &mut body, first.offset).ok()?;
        }
        let mut rest = &body[..];
        for place in &step.places {
            let (page, later) = rest.split_at_checked(place.entry.bytes as usize)?;
            place.entry.page(page)?;
            rest = later;
        }
        Some(body)
    }

    /// Goes on behind the frame.
    fn pass(&mut self, step: &Step) {
        self.at += step.header.frame_bytes();
        self.next_id += step.header.count;
        self.position.domain = step.header.position.domain;
        if step.header.last {
            self.position = step.header.position;
        }
    }
}
