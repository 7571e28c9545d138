//! A domain: the dictionary, and how it follows and extends the log.
//!
//! Whoever changes the dictionary holds `writer`; who looks up holds a read lock for a few thousand
//! keys at a time. The log decides: ids in memory come from runs that are in the log, either because
//! this process put them there or because it read them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use futures::future::{join, try_join_all};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::sync::Mutex as AsyncMutex;

use crate::dictionary::{Dictionary, Distinct, UNKNOWN};
use crate::error::{DomainError, Result};
use crate::key_file::Held;
use crate::keys::{KeyHeap, Keys, check_len, sorted_rows};
use crate::local::Local;
use crate::log::{Found, Log, Put, check_name};
use crate::position::Position;
use crate::run::{self, Head, Header, Kind, MAX_IDS};

/// Rows looked up under one read lock: 1 to 2 ms, which is how long a writer may wait.
const LOOKUP_ROWS: usize = 8192;
/// Keys added under one write lock.
const EXTEND_KEYS: usize = 16 << 10;
/// Keys and bytes of keys of one run; more become several. One put of 256 MiB is what stores take
/// without parts, and what a reader holds in memory.
const MAX_RUN_KEYS: usize = 4 << 20;
const MAX_RUN_KEY_BYTES: usize = 256 << 20;
/// Runs read one by one before a listing is asked for; then so many, and bytes, at once.
const PROBES: u32 = 4;
const READ_AHEAD_RUNS: usize = 32;
const READ_AHEAD_BYTES: u64 = 64 << 20;
/// Runs lost to others, or puts of unknown outcome, before an error.
const MAX_ATTEMPTS: u32 = 100;
const MAX_FAILURES: u32 = 3;
/// 2^128 divided by the golden ratio, odd.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
/// Why a look-up may not fail.
const USE_TRY: &str = "a domain with a limit of memory is asked by the `try_` methods";
/// Listings in a row that named a base which was gone when it was read.
const MAX_LISTINGS: u32 = 4;

/// How far a dictionary is read. Sent after every object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
    /// Keys known so far.
    pub keys: u64,
}

/// Who hears about progress.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// What a domain needs to know of its process.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// A random number that no other writer has: the runs of this process are known by it.
    pub writer: u128,
    /// Called while the dictionary is read from the log.
    pub progress: Option<OnProgress>,
    /// Bytes of memory for the dictionary, about. Without a limit all keys are in memory, and
    /// opening the domain reads the local files. With one, opening reads little; keys and their
    /// index are read when they are asked for, and where all keys would be more than the limit,
    /// they stay in the file but for a cache of pages. The index is in memory in any case, 9 to 11
    /// bytes a key, and so are the new keys of one batch. Of no meaning without a local folder.
    ///
    /// Look-ups then may find the files damaged: see [`Domain::try_lookup_many`].
    pub memory_bytes: Option<u64>,
    /// Ids there are; less only in tests.
    pub(crate) max_ids: u64,
}

impl Options {
    /// `writer`: a random number, such as a version 4 UUID.
    #[must_use]
    pub fn new(writer: u128) -> Self {
        Self { writer, progress: None, memory_bytes: None, max_ids: MAX_IDS }
    }
}

/// An id domain, open. Shared by any number of threads.
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use object_store::{memory::InMemory, path::Path};
/// # use uplake_domain::{Domain, Options};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Arc::new(InMemory::new());
/// let users = Domain::create(store, &Path::from("lake"), "users", None, Options::new(1)).await?;
/// let mut ids = Vec::new();
/// users.encode(&["anna", "bob", "anna"], &mut ids).await?;
/// assert_eq!(ids, [0, 1, 0]);
/// assert_eq!(users.key_of(1), Some(b"bob".to_vec()));
/// assert_eq!(users.id_of(b"carl"), None);
/// # Ok::<(), uplake_domain::DomainError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Domain {
    pub(crate) name: String,
    pub(crate) log: Log,
    pub(crate) options: Options,
    seed: u64,
    dictionary: RwLock<Dictionary>,
    pub(crate) writer: AsyncMutex<Writer>,
    /// New keys of callers that wait for `writer`: who has it puts them all into one run.
    wanted: Mutex<KeyHeap>,
    /// Whether a look-up found the local files damaged: they are to be read from the log again.
    is_damaged: AtomicBool,
}

/// What only the holder of the lock changes.
pub(crate) struct Writer {
    pub(crate) local: Local,
    nonces: u128,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Domain {
    /// Opens a domain that exists, and reads its log to the end.
    ///
    /// `root` is the lake's place in the store. `local` is a folder for this domain alone; without
    /// one the dictionary is read from the log every time. What is wrong with the folder is
    /// never an error: see [`crate::Description::warning`].
    ///
    /// # Errors
    /// [`DomainError::Name`], [`DomainError::Missing`]; or if the log cannot be read.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        name: &str,
        local: Option<PathBuf>,
        options: Options,
    ) -> Result<Arc<Self>> {
        check_name(name)?;
        let domain = Self::over(Log::new(store, root, name), name, local, options).await?;
        if domain.position().run == 0 {
            return Err(DomainError::Missing { name: name.to_owned() });
        }
        Ok(Arc::new(domain))
    }

    /// As [`Domain::open`], but makes the domain if it does not exist.
    ///
    /// # Errors
    /// [`DomainError::Name`]; or if the log cannot be read or written.
    pub async fn create(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        name: &str,
        local: Option<PathBuf>,
        options: Options,
    ) -> Result<Arc<Self>> {
        check_name(name)?;
        let domain = Self::over(Log::new(store, root, name), name, local, options).await?;
        if domain.position().run == 0 {
            let mut writer = domain.writer.lock().await;
            let mut tries = Tries::default();
            while domain.position().run == 0 {
                domain.publish(&mut writer, &KeyHeap::default(), &mut tries).await?;
            }
        }
        Ok(Arc::new(domain))
    }

    pub(crate) async fn over(
        log: Log,
        name: &str,
        folder: Option<PathBuf>,
        options: Options,
    ) -> Result<Self> {
        let mut dictionary = Dictionary::new(seed_of(&options));
        let local = match &folder {
            Some(folder) => Local::open(folder, options.memory_bytes, &mut dictionary),
            None => Local::none(),
        };
        Self::with(log, name, local, dictionary, options).await
    }

    /// Over a dictionary that is the local file's.
    pub(crate) async fn with(
        log: Log,
        name: &str,
        local: Local,
        dictionary: Dictionary,
        options: Options,
    ) -> Result<Self> {
        let had_local = dictionary.position != Position::default();
        let domain = Self {
            name: name.to_owned(),
            log,
            seed: seed_of(&options),
            dictionary: RwLock::new(dictionary),
            writer: AsyncMutex::new(Writer { local, nonces: 0 }),
            options,
            wanted: Mutex::default(),
            is_damaged: AtomicBool::new(false),
        };
        let mut writer = domain.writer.lock().await;
        match domain.catch_up_checked(&mut writer).await {
            Err(
                DomainError::Corrupt { .. }
                | DomainError::Replaced { .. }
                | DomainError::Local { .. },
            ) if had_local => {
                // The local file is not of this log, or wrong in spite of its checksums. If the
                // log is what is wrong, this says so.
                domain.start_over(&mut writer).await?;
            }
            done => done?,
        }
        if writer.local.wants_checkpoint(true) {
            writer.local.checkpoint(&domain.read());
        }
        drop(writer);
        Ok(domain)
    }

    pub(crate) fn into_parts(self) -> (Dictionary, Local) {
        let dictionary = self.dictionary.into_inner();
        let dictionary = dictionary.expect("what changes the dictionary does not panic");
        (dictionary, self.writer.into_inner().local)
    }

    /// Catches up after making sure that the dictionary is of this log.
    async fn catch_up_checked(&self, writer: &mut Writer) -> Result<()> {
        let position = self.position();
        let replaced = || DomainError::Replaced { name: self.name.clone() };
        if position.run == 0 {
            self.catch_up(writer).await?;
        } else {
            let (known, next) =
                join(self.log.run_header(position.run), self.log.run(position.run + 1)).await;
            let is_same =
                |header: Header| (header.nonce, header.domain) == (position.nonce, position.domain);
            if !known?.is_some_and(is_same) {
                return Err(replaced());
            }
            // Nearly always nothing is next, and this was the only round trip.
            if next?.is_some() {
                self.catch_up(writer).await?;
            }
        }
        // Ids of a run that the log does not have: without it they are nobody's.
        if writer.local.is_partial && self.position().run == position.run {
            return Err(replaced());
        }
        writer.local.is_partial = false;
        Ok(())
    }

    async fn start_over(&self, writer: &mut Writer) -> Result<()> {
        let mut fresh = Dictionary::new(self.seed);
        writer.local.reset(&mut fresh);
        self.change(|dictionary| *dictionary = fresh);
        self.catch_up(writer).await
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Dictionary> {
        self.dictionary.read().expect("what changes the dictionary does not panic")
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Dictionary) -> T) -> T {
        change(&mut self.dictionary.write().expect("what changes the dictionary does not panic"))
    }

    pub(crate) fn position(&self) -> Position {
        self.read().position
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Are all ids up to this one known here, without damage that [`Domain::refresh`] would mend?
    #[must_use]
    pub fn has_ids_to(&self, id: u32) -> bool {
        !self.is_damaged.load(Relaxed) && self.read().next_id() > id
    }

    /// How many keys are known here.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.read().keys.len() as u64
    }

    /// The id of a key that is known here; another process may have given it one since
    /// [`Domain::refresh`].
    ///
    /// # Panics
    /// With [`Options::memory_bytes`], where [`Domain::try_id_of`] gives an error.
    #[must_use]
    pub fn id_of(&self, key: &[u8]) -> Option<u32> {
        self.try_id_of(key).expect(USE_TRY)
    }

    /// As [`Domain::id_of`], for a domain with a limit of memory.
    ///
    /// # Errors
    /// As [`Domain::try_lookup_many`].
    pub fn try_id_of(&self, key: &[u8]) -> Result<Option<u32>> {
        self.noted(self.read().find(key))
    }

    /// Ids of keys that are known here, in the order of the keys.
    ///
    /// # Panics
    /// With [`Options::memory_bytes`], where [`Domain::try_lookup_many`] gives an error.
    pub fn lookup_many<K: Keys + ?Sized>(&self, keys: &K, ids: &mut Vec<Option<u32>>) {
        self.try_lookup_many(keys, ids).expect(USE_TRY);
    }

    /// As [`Domain::lookup_many`], for a domain with a limit of memory. Reads files on the caller's
    /// thread.
    ///
    /// # Errors
    /// [`DomainError::Local`] if what it read is damaged. The next [`Domain::refresh`] or
    /// [`Domain::encode`] reads the log instead; then ask again. Never without a limit of memory.
    pub fn try_lookup_many<K: Keys + ?Sized>(
        &self,
        keys: &K,
        ids: &mut Vec<Option<u32>>,
    ) -> Result<()> {
        let mut found = Vec::new();
        self.find_all(keys, &mut found)?;
        ids.clear();
        ids.extend(found.into_iter().map(|id| (id != UNKNOWN).then_some(id)));
        Ok(())
    }

    fn find_all<K: Keys + ?Sized>(&self, keys: &K, ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        ids.resize(keys.len(), UNKNOWN);
        for (chunk, ids) in ids.chunks_mut(LOOKUP_ROWS).enumerate() {
            let first = chunk * LOOKUP_ROWS;
            self.noted(self.read().find_many(keys, first..first + ids.len(), ids))?;
        }
        Ok(())
    }

    /// Remembers that the local files are damaged.
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(DomainError::Local { .. }) = &result {
            self.is_damaged.store(true, Relaxed);
        }
        result
    }

    /// The key of an id that is known here.
    ///
    /// # Panics
    /// With [`Options::memory_bytes`], where [`Domain::try_key_of`] gives an error.
    #[must_use]
    pub fn key_of(&self, id: u32) -> Option<Vec<u8>> {
        self.try_key_of(id).expect(USE_TRY)
    }

    /// As [`Domain::key_of`], for a domain with a limit of memory.
    ///
    /// # Errors
    /// As [`Domain::try_lookup_many`].
    pub fn try_key_of(&self, id: u32) -> Result<Option<Vec<u8>>> {
        let mut held = Held::default();
        let dictionary = self.read();
        let found = self.noted(dictionary.keys.read(id, &mut held))?;
        Ok(found.map(<[u8]>::to_vec))
    }

    /// Gives `each` the key of every id, or `None`, in the order of the ids.
    ///
    /// A writer waits meanwhile: `each` should only copy.
    ///
    /// # Panics
    /// With [`Options::memory_bytes`], where [`Domain::try_keys_of`] gives an error.
    pub fn keys_of(&self, ids: &[u32], each: impl FnMut(Option<&[u8]>)) {
        self.try_keys_of(ids, each).expect(USE_TRY);
    }

    /// As [`Domain::keys_of`], for a domain with a limit of memory.
    ///
    /// # Errors
    /// As [`Domain::try_lookup_many`]; some keys may have been given by then.
    pub fn try_keys_of(&self, ids: &[u32], mut each: impl FnMut(Option<&[u8]>)) -> Result<()> {
        for ids in ids.chunks(LOOKUP_ROWS) {
            let dictionary = self.read();
            if dictionary.keys.is_in_memory() {
                ids.iter().for_each(|&id| each(dictionary.keys.get(id)));
                continue;
            }
            let mut held = Held::default();
            for &id in ids {
                each(self.noted(dictionary.keys.read(id, &mut held))?);
            }
        }
        Ok(())
    }

    /// Reads what other writers have added since, and the log from its start if the local files
    /// were found damaged.
    ///
    /// One request if there is nothing. Dropping the future is safe.
    ///
    /// # Errors
    /// If the log cannot be read; what was read before stays.
    pub async fn refresh(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        if !self.is_damaged.load(Relaxed) {
            match self.noted(self.catch_up(&mut writer).await) {
                Err(DomainError::Local { .. }) => {}
                done => return done,
            }
        }
        self.read_anew(&mut writer, self.options.progress.clone()).await?;
        self.is_damaged.store(false, Relaxed);
        Ok(())
    }

    /// Writes the index of the keys into the local folder, so that the next to open the domain need
    /// not make it. A load that gave many ids does well to do this at its end; without, it is done
    /// when a quarter of the keys are new. Trouble with the folder is a warning in
    /// [`Domain::describe`].
    pub async fn checkpoint(&self) {
        let mut writer = self.writer.lock().await;
        writer.local.checkpoint(&self.read());
    }

    /// The ids of `keys`, in their order; keys that have none get one first.
    ///
    /// New keys are numbered in the order of their first rows and are in the log before this
    /// returns. Callers on several threads share runs. Dropping the future is safe: keys may have
    /// got ids that nobody uses. The work is done, and the local file written, on the caller's
    /// thread.
    ///
    /// # Errors
    /// [`DomainError::KeyTooLong`] and [`DomainError::Full`] before anything is written;
    /// [`DomainError::Contended`]; or if the log cannot be read or written.
    pub async fn encode<K: Keys + ?Sized>(&self, keys: &K, ids: &mut Vec<u32>) -> Result<()> {
        match self.noted(self.encode_here(keys, ids).await) {
            Err(DomainError::Local { .. }) => {
                self.refresh().await?;
                self.encode_here(keys, ids).await
            }
            done => done,
        }
    }

    async fn encode_here<K: Keys + ?Sized>(&self, keys: &K, ids: &mut Vec<u32>) -> Result<()> {
        let known = self.read().next_id();
        self.find_all(keys, ids)?;
        let unknown: Vec<u32> = rows_of(ids, UNKNOWN).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let mut fresh = Distinct::new(keys, self.seed, unknown.len());
        let mut places = Vec::with_capacity(unknown.len());
        for &row in &unknown {
            check_len(keys.key(row as usize))?;
            places.push(fresh.push(row as usize));
        }
        let given = self.give_ids(keys, &fresh.rows, known).await?;
        for (row, place) in unknown.into_iter().zip(places) {
            ids[row as usize] = given[place as usize];
        }
        Ok(())
    }

    /// Ids for the different keys of `rows`, which had none when there were `known` ids.
    async fn give_ids<K: Keys + ?Sized>(
        &self,
        keys: &K,
        rows: &[u32],
        mut known: u32,
    ) -> Result<Vec<u32>> {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(_) => {
                self.want(keys, rows);
                self.writer.lock().await
            }
        };
        let mut given = vec![UNKNOWN; rows.len()];
        let mut tries = Tries::default();
        loop {
            let (fresh, missing, first_id) = {
                let dictionary = self.read();
                let first_id = dictionary.next_id();
                if known != first_id {
                    // Others have given ids meanwhile, perhaps to these keys.
                    fill(&dictionary, keys, rows, &mut given)?;
                }
                let missing: Vec<u32> = rows_of(&given, UNKNOWN).collect();
                if missing.is_empty() {
                    return Ok(given);
                }
                self.check_room(&dictionary, missing.len())?;
                let own = missing.iter().map(|&at| keys.key(rows[at as usize] as usize));
                (self.fresh_keys(&dictionary, own)?, missing, first_id)
            };
            if self.publish(&mut writer, &fresh, &mut tries).await? {
                // Its own keys come first in the run, in this order.
                for (&at, id) in missing.iter().zip(first_id..first_id + fresh.len() as u32) {
                    given[at as usize] = id;
                }
                known = first_id + fresh.len() as u32;
            }
        }
    }

    fn check_room(&self, dictionary: &Dictionary, wanted: usize) -> Result<()> {
        let (keys, wanted) = (u64::from(dictionary.next_id()), wanted as u64);
        let (name, limit) = (self.name.clone(), self.options.max_ids);
        if keys + wanted <= limit {
            return Ok(());
        }
        Err(DomainError::Full { name, keys, wanted, limit })
    }

    /// Leaves keys to whoever writes the next run, as far as there is room in one.
    fn want<K: Keys + ?Sized>(&self, keys: &K, rows: &[u32]) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        for &row in rows {
            if is_full(&wanted) {
                return;
            }
            wanted.push(keys.key(row as usize));
        }
    }

    /// Keys for one run: of the caller, then of those who wait.
    fn fresh_keys<'k>(
        &self,
        dictionary: &Dictionary,
        own: impl Iterator<Item = &'k [u8]>,
    ) -> Result<KeyHeap> {
        let wanted =
            std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        let mut fresh = KeyHeap::default();
        for key in own {
            fresh.push(key);
            if is_full(&fresh) {
                return Ok(fresh);
            }
        }
        if wanted.is_empty() {
            return Ok(fresh);
        }
        let mut ids = vec![UNKNOWN; wanted.len()];
        dictionary.find_many(&wanted, 0..wanted.len(), &mut ids)?;
        let own = fresh.clone();
        let both = Chained { first: &own, second: &wanted };
        let mut distinct = Distinct::new(&both, self.seed, both.len());
        for row in 0..own.len() {
            distinct.push(row);
        }
        for row in rows_of(&ids, UNKNOWN) {
            distinct.push(own.len() + row as usize);
        }
        for &row in &distinct.rows[own.len()..] {
            // Others' keys must not make this caller fail: those who wait ask again.
            let room = self.options.max_ids - u64::from(dictionary.next_id());
            if is_full(&fresh) || fresh.len() as u64 >= room {
                break;
            }
            fresh.push(both.key(row as usize));
        }
        Ok(fresh)
    }

    /// Tries to put the next run with `keys`, which have no ids; true if that is what the log has
    /// now. Else others' runs have been read, and it is to be looked again what is missing.
    async fn publish(
        &self,
        writer: &mut Writer,
        keys: &KeyHeap,
        tries: &mut Tries,
    ) -> Result<bool> {
        tries.attempts += 1;
        if tries.attempts > MAX_ATTEMPTS {
            let (name, attempts) = (self.name.clone(), MAX_ATTEMPTS);
            return Err(DomainError::Contended { name, attempts });
        }
        let (header, bytes) = self.make_run(writer, keys)?;
        let path = self.log.run_path(header.number);
        match self.log.put_new(&path, bytes).await {
            Put::Done => {
                self.apply_new(writer, &header, keys, 0);
                return Ok(true);
            }
            Put::Taken => self.catch_up(writer).await?,
            // The run may be there all the same, or come later. Reading it back tells. Whose it is
            // does not matter: its keys and ids are what counts now.
            Put::Unknown(error) => {
                self.catch_up(writer).await?;
                if self.position().run < header.number {
                    tries.failures += 1;
                    if tries.failures == MAX_FAILURES {
                        return Err(DomainError::store("writing", &path)(error));
                    }
                }
            }
        }
        // If the run there is ours after all, it was read like any other, and its keys are found.
        Ok(false)
    }

    fn make_run(&self, writer: &mut Writer, keys: &KeyHeap) -> Result<(Header, Vec<u8>)> {
        let (position, first_id) = {
            let dictionary = self.read();
            (dictionary.position, dictionary.next_id())
        };
        // Runs of writers with neighbouring numbers keep apart, should somebody count them.
        let nonce = self.options.writer.wrapping_mul(SPREAD).wrapping_add(writer.nonces);
        writer.nonces += 1;
        let number = position.run + 1;
        let domain = if position.run == 0 { nonce } else { position.domain };
        let head = Head { kind: Kind::Run, number, nonce, domain, first_id };
        let bytes = run::encode(head, keys, &sorted_rows(keys));
        let header = Header::parse(self.log.run_path(number).as_ref(), &bytes)?;
        Ok((header, bytes))
    }

    /// Takes over a run's keys, of which some may be there from a part of it.
    fn apply<K: Keys + ?Sized>(
        &self,
        writer: &mut Writer,
        header: &Header,
        keys: &K,
    ) -> Result<()> {
        let path = match header.kind {
            Kind::Run => self.log.run_path(header.number),
            Kind::Base => self.log.base_path(header.number),
        };
        let corrupt = |what: &str| DomainError::corrupt(path.as_ref(), what);
        let there = {
            let dictionary = self.read();
            let (position, next_id) = (dictionary.position, dictionary.next_id());
            if position.run > 0 && header.domain != position.domain {
                return Err(DomainError::Replaced { name: self.name.clone() });
            }
            let end = u64::from(header.first_id) + keys.len() as u64;
            if header.first_id > next_id || end < u64::from(next_id) {
                return Err(corrupt("its ids do not follow those of the run before"));
            }
            let there = (next_id - header.first_id) as usize;
            let mut held = Held::default();
            for row in 0..there {
                let id = header.first_id + row as u32;
                if dictionary.keys.read(id, &mut held)? != Some(keys.key(row)) {
                    return Err(corrupt("it gives ids to keys that other runs gave to others"));
                }
            }
            if next_id > 0 {
                let mut ids = vec![UNKNOWN; keys.len() - there];
                dictionary.find_many(keys, there..keys.len(), &mut ids)?;
                if ids.iter().any(|&id| id != UNKNOWN) {
                    return Err(corrupt("it gives a second id to a key"));
                }
            }
            there
        };
        self.apply_new(writer, header, keys, there);
        Ok(())
    }

    /// Takes over a run's keys from row `there` on, which have no ids.
    fn apply_new<K: Keys + ?Sized>(
        &self,
        writer: &mut Writer,
        header: &Header,
        keys: &K,
        there: usize,
    ) {
        let position = self.position();
        assert!(header.number > position.run, "the log is read forwards");
        self.change(|dictionary| dictionary.reserve(keys.len() - there));
        let mut row = there;
        while row < keys.len() {
            let end = keys.len().min(row + EXTEND_KEYS);
            self.change(|dictionary| dictionary.extend(keys, row..end));
            row = end;
        }
        let reached = Position { run: header.number, nonce: header.nonce, domain: header.domain };
        self.change(|dictionary| dictionary.position = reached);
        let first = header.first_id + there as u32;
        let places = writer.local.append(&self.read(), first, reached);
        if let Some(limit) = writer.local.limit() {
            self.change(|dictionary| dictionary.filed(&places, limit));
        }
        if writer.local.wants_checkpoint(false) {
            writer.local.checkpoint(&self.read());
        }
    }

    /// Reads the log to its end.
    pub(crate) async fn catch_up(&self, writer: &mut Writer) -> Result<()> {
        let mut probed = 0;
        loop {
            let position = self.position();
            if position.run == 0 || probed == PROBES {
                probed = 0;
                if !self.read_listed(writer, false).await? {
                    return Ok(());
                }
                continue;
            }
            match self.log.run(position.run + 1).await? {
                None => return Ok(()),
                Some((Found::Whole(run), _)) => self.apply(writer, &run.header, &run)?,
                Some((Found::Emptied(_), _)) => {
                    self.read_listed(writer, true).await?;
                }
            }
            probed += 1;
        }
    }

    /// Reads what a listing names: the newest base if there is nothing yet or if it `must`, then
    /// the runs, many at a time. Whether there was anything new.
    async fn read_listed(&self, writer: &mut Writer, must: bool) -> Result<bool> {
        let mut must = must;
        let start = self.position();
        for _ in 0..MAX_LISTINGS {
            let listing = self.log.list().await?;
            let base = listing.bases.last_key_value().filter(|(number, _)| {
                (must || self.position().run == 0) && **number > self.position().run
            });
            let first = base.map_or(self.position().run, |(number, _)| *number) + 1;
            let runs: Vec<(u32, u64)> = listing
                .runs
                .range(first..)
                .map(|(number, object)| (*number, object.size))
                .collect();
            let total = base.map_or(0, |(_, object)| object.size)
                + runs.iter().map(|(_, size)| size).sum::<u64>();
            let mut done = 0;
            if let Some((&number, _)) = base {
                // A newer base may have replaced it since the listing.
                let Some((run, bytes)) = self.log.base(number).await? else { continue };
                self.apply(writer, &run.header, &run)?;
                done += bytes;
                self.report(done, total);
            }
            if self.read_runs(writer, &runs, done, total).await? {
                return Ok(self.position() != start);
            }
            must = true;
        }
        let folder = self.log.run_path(self.position().run + 1);
        Err(DomainError::corrupt(folder.as_ref(), "its keys were moved to a base that is missing"))
    }

    /// Reads runs by number and size; false if one of them was emptied.
    async fn read_runs(
        &self,
        writer: &mut Writer,
        runs: &[(u32, u64)],
        mut done: u64,
        total: u64,
    ) -> Result<bool> {
        let mut rest = runs;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, size): &&(u32, u64)| {
                bytes += size;
                bytes <= READ_AHEAD_BYTES
            };
            let count = rest.iter().take(READ_AHEAD_RUNS).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            let found = try_join_all(now.iter().map(|(number, _)| self.log.run(*number))).await?;
            for (found, (number, _)) in found.into_iter().zip(now) {
                if *number != self.position().run + 1 {
                    let path = self.log.run_path(self.position().run + 1);
                    return Err(DomainError::corrupt(path.as_ref(), "it is missing"));
                }
                match found {
                    Some((Found::Whole(run), size)) => {
                        self.apply(writer, &run.header, &run)?;
                        done += size;
                        self.report(done, total);
                    }
                    Some((Found::Emptied(_), _)) => return Ok(false),
                    None => {
                        let path = self.log.run_path(*number);
                        return Err(DomainError::corrupt(path.as_ref(), "it is missing"));
                    }
                }
            }
            rest = later;
        }
        Ok(true)
    }

    fn report(&self, done_bytes: u64, total_bytes: u64) {
        if let Some(progress) = &self.options.progress {
            let total_bytes = total_bytes.max(done_bytes);
            progress(Progress { done_bytes, total_bytes, keys: self.keys() });
        }
    }
}

fn seed_of(options: &Options) -> u64 {
    (options.writer ^ (options.writer >> 64)) as u64
}

/// How often a run was tried.
#[derive(Default)]
struct Tries {
    attempts: u32,
    failures: u32,
}

/// Looks the keys of `rows` up that are not in `given` yet.
fn fill<K: Keys + ?Sized>(
    dictionary: &Dictionary,
    keys: &K,
    rows: &[u32],
    given: &mut [u32],
) -> Result<()> {
    let missing: Vec<u32> = rows_of(given, UNKNOWN).collect();
    let mut found = vec![UNKNOWN; missing.len()];
    let wanted = missing.iter().map(|&at| rows[at as usize] as usize);
    dictionary.find_many(keys, wanted, &mut found)?;
    for (at, id) in missing.into_iter().zip(found) {
        given[at as usize] = id;
    }
    Ok(())
}

fn is_full(keys: &KeyHeap) -> bool {
    keys.len() >= MAX_RUN_KEYS || keys.bytes() >= MAX_RUN_KEY_BYTES
}

/// The places of `ids` that hold `id`.
fn rows_of(ids: &[u32], id: u32) -> impl Iterator<Item = u32> {
    ids.iter().enumerate().filter(move |&(_, it)| *it == id).map(|(row, _)| row as u32)
}

/// The rows of one batch, then those of another.
struct Chained<'a> {
    first: &'a KeyHeap,
    second: &'a KeyHeap,
}

impl Keys for Chained<'_> {
    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        match row.checked_sub(self.first.len()) {
            None => self.first.key(row),
            Some(row) => self.second.key(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn names(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|n| format!("user_{n}")).collect()
    }

    async fn small(store: &Arc<InMemory>, max_ids: u64) -> Arc<Domain> {
        let options = Options { max_ids, ..Options::new(1) };
        let store = Arc::clone(store) as Arc<dyn ObjectStore>;
        Domain::create(store, &Path::default(), "users", None, options).await.expect("create")
    }

    #[tokio::test]
    async fn a_full_domain_refuses_new_keys_before_anything_is_written() {
        let store = Arc::new(InMemory::new());
        let users = small(&store, 10).await;
        let mut ids = Vec::new();
        users.encode(&names(0..8), &mut ids).await.expect("room");
        let error = users.encode(&names(5..11), &mut ids).await.expect_err("no room");
        let expected = "Full { name: \"users\", keys: 8, wanted: 3, limit: 10 }";
        assert_eq!(format!("{error:?}"), expected);
        assert_eq!(users.describe().await.expect("describe").runs, 2);
        users.encode(&names(5..10), &mut ids).await.expect("just enough");
        assert_eq!(ids, [5, 6, 7, 8, 9]);
        users.encode(&names(0..10), &mut ids).await.expect("known keys go on");
    }

    #[tokio::test]
    async fn who_waits_is_served_by_who_writes() {
        let store = Arc::new(InMemory::new());
        let users = small(&store, MAX_IDS).await;
        let writing = users.writer.lock().await;
        let keys = [names(0..4), names(2..6), names(0..1)];
        let mut ids = [Vec::new(), Vec::new(), Vec::new()];
        let waiting = keys.iter().zip(&mut ids).map(|(keys, ids)| users.encode(keys, ids));
        let waiting = futures::future::join_all(waiting);
        // All three have said what they want by the time the first gets the lock.
        let (done, ()) = join(waiting, async { drop(writing) }).await;
        assert!(done.iter().all(Result::is_ok));
        assert_eq!(ids, [vec![0, 1, 2, 3], vec![2, 3, 4, 5], vec![0]]);
        assert_eq!(users.describe().await.expect("describe").runs, 2, "one run for all");
    }

    #[tokio::test]
    async fn what_others_want_does_not_make_a_caller_fail() {
        let store = Arc::new(InMemory::new());
        let users = small(&store, 5).await;
        let (mut few, mut many) = (Vec::new(), Vec::new());
        let writing = users.writer.lock().await;
        let (wanted, more) = (names(0..4), names(10..14));
        let waiting = join(users.encode(&wanted, &mut few), users.encode(&more, &mut many));
        let ((first, second), ()) = join(waiting, async { drop(writing) }).await;
        first.expect("its keys fit");
        assert!(matches!(second, Err(DomainError::Full { .. })));
        assert_eq!(few, [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn a_log_that_contradicts_itself_is_an_error() {
        let store = Arc::new(InMemory::new());
        let users = small(&store, MAX_IDS).await;
        users.encode(&names(0..8), &mut Vec::new()).await.expect("encode");
        let domain = users.position().domain;
        let forged = |first_id: u32, keys: &[String]| {
            let head = Head { kind: Kind::Run, number: 3, nonce: 9, domain, first_id };
            run::encode(head, keys, &sorted_rows(keys))
        };
        let path = users.log.run_path(3);
        for (first_id, keys) in
            [(8, names(7..9)), (9, names(20..22)), (7, names(20..22)), (2, names(2..3))]
        {
            store
                .put_opts(&path, forged(first_id, &keys).into(), Default::default())
                .await
                .expect("put");
            let refused = users.refresh().await;
            assert!(matches!(refused, Err(DomainError::Corrupt { .. })), "{first_id} {keys:?}");
            assert_eq!(users.keys(), 8, "nothing of it is taken");
            let report = users.check().await.expect("check");
            assert!(report.problems[0].contains("00000003.run is corrupt"), "{report:?}");
        }
        store
            .put_opts(&path, forged(8, &names(8..9)).into(), Default::default())
            .await
            .expect("put");
        users.refresh().await.expect("this one is right");
        assert_eq!(users.id_of(b"user_8"), Some(8));
    }
}
