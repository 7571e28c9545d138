//! Looking after a domain: describe, check, rebuild, compact, vacuum.

use std::path::PathBuf;

use object_store::ObjectMeta;

use crate::dictionary::{Dictionary, UNKNOWN};
use crate::domain::{Domain, OnProgress, Options, Writer};
use crate::error::{DomainError, Result};
use crate::key_file::Held;
use crate::keys::{KeyHeap, Keys, sorted_rows};
use crate::local::{Local, LocalState};
use crate::log::{Found, Listing, Put};
use crate::run::{self, HEADER_BYTES, Head, Kind, Run};

/// Bytes of a base: one put. Stores take 5 GB at once.
const MAX_BASE_BYTES: u64 = 4 << 30;
/// Bytes of keys looked up together when everything is.
const CHECK_BYTES: usize = 2 << 20;
/// Problems named by [`Domain::check`]; more are of the same kind.
const MAX_PROBLEMS: usize = 20;

/// What a domain is and takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its name.
    pub name: String,
    /// How many keys have ids: the ids are those below.
    pub keys: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Number of the last run read here.
    pub position: u32,
    /// Runs in the log, also emptied ones.
    pub runs: u64,
    /// Runs that a vacuum has emptied.
    pub emptied_runs: u64,
    /// The last run in the newest base.
    pub base: Option<u32>,
    /// Bytes in object storage.
    pub log_bytes: u64,
    /// Bytes of memory from keys to ids.
    pub index_bytes: u64,
    /// Bytes of memory from ids to keys.
    pub table_bytes: u64,
    /// Whether keys stay in the local file, for they are more than the limit of memory.
    pub is_paged: bool,
    /// The local folder.
    pub local: Option<PathBuf>,
    /// Who keeps its file.
    pub local_state: LocalState,
    /// Bytes of the file.
    pub local_bytes: u64,
    /// What is wrong with the local file. Answers are right all the same.
    pub warning: Option<String>,
}

/// What [`Domain::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Keys in the log.
    pub keys: u64,
    /// Runs read.
    pub runs: u64,
    /// Runs whose keys are only in a base.
    pub emptied_runs: u64,
    /// Bases read.
    pub bases: u64,
    /// Bytes read from the store.
    pub bytes: u64,
    /// What is wrong, the first few.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn complain(&mut self, problem: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem.into());
        }
    }
}

/// What [`Domain::vacuum`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuumed {
    /// Runs cut to their header.
    pub runs: u64,
    /// Bases deleted.
    pub bases: u64,
    /// Bytes that were freed.
    pub bytes: u64,
}

impl Domain {
    /// What the domain is and takes. Lists the log; reads none of it.
    ///
    /// # Errors
    /// If the log cannot be listed.
    pub async fn describe(&self) -> Result<Description> {
        let writer = self.writer.lock().await;
        let listing = self.log.list().await?;
        let is_emptied = |object: &&ObjectMeta| object.size == HEADER_BYTES as u64;
        let local = &writer.local;
        let dictionary = self.read();
        let (index_bytes, table_bytes) = dictionary.bytes();
        Ok(Description {
            name: self.name.clone(),
            keys: dictionary.keys.len() as u64,
            key_bytes: dictionary.keys.key_bytes(),
            position: dictionary.position.run,
            runs: listing.runs.len() as u64,
            // A run without keys is as short, but only a domain's first is that.
            emptied_runs: listing.runs.values().skip(1).filter(is_emptied).count() as u64,
            base: listing.bases.last_key_value().map(|(number, _)| *number),
            log_bytes: listing.bytes(),
            index_bytes: index_bytes as u64,
            table_bytes: table_bytes as u64,
            is_paged: dictionary.keys.is_paged(),
            local: local.folder(),
            local_state: local.state,
            local_bytes: local.bytes,
            warning: local.warning.clone(),
        })
    }

    /// Reads the dictionary from the log again, in memory and in the local file. Look-ups go on
    /// with the old one meanwhile.
    ///
    /// # Errors
    /// If the log cannot be read, or has lost runs; then nothing changes.
    pub async fn rebuild(&self, progress: Option<OnProgress>) -> Result<()> {
        let mut writer = self.writer.lock().await;
        self.read_anew(&mut writer, progress).await
    }

    pub(crate) async fn read_anew(
        &self,
        writer: &mut Writer,
        progress: Option<OnProgress>,
    ) -> Result<()> {
        let replaced = || DomainError::Replaced { name: self.name.clone() };
        let options = Options { progress, ..self.options.clone() };
        let is_kept = writer.local.state == LocalState::Writer;
        if writer.local.limit().is_none() || !is_kept {
            let fresh = Self::over(self.log.clone(), &self.name, None, options).await?;
            let (mut fresh, _) = fresh.into_parts();
            if fresh.position.run < self.position().run {
                return Err(replaced());
            }
            writer.local.reset(&mut fresh);
            writer.local.append(&fresh, 0, fresh.position);
            self.change(|dictionary| *dictionary = fresh);
            return Ok(());
        }
        // Keys do not fit in memory: they go to a new file as they come, and who looks up reads the
        // old one, which has lost its name, meanwhile.
        let folder = writer.local.folder();
        // Should this be given up half way, the new file is not for the old dictionary.
        let lost = Local::lost(folder, "reading the log anew was given up");
        let mut local = std::mem::replace(&mut writer.local, lost);
        let mut fresh = Dictionary::new(self.seed());
        local.reset(&mut fresh);
        let made = Self::with(self.log.clone(), &self.name, local, fresh, options).await;
        let made = made.and_then(|made| {
            let (fresh, local) = made.into_parts();
            let is_behind = fresh.position.run < self.position().run;
            if is_behind { Err(replaced()) } else { Ok((fresh, local)) }
        });
        let (fresh, local) = made?;
        writer.local = local;
        self.change(|dictionary| *dictionary = fresh);
        Ok(())
    }

    /// Writes all keys so far into one base, which later readers start from. Nothing is deleted.
    /// Returns the number of the last run in it.
    ///
    /// Two that compact at once write the same bytes. Keeps a processor busy for about a second per
    /// ten million keys, and new keys of this process wait; look-ups do not.
    ///
    /// # Errors
    /// [`DomainError::TooLarge`] above 4 GiB; or if the log cannot be read or written.
    pub async fn compact(&self) -> Result<u32> {
        let mut writer = self.writer.lock().await;
        self.catch_up(&mut writer).await?;
        let position = self.position();
        let path = self.log.base_path(position.run);
        let bytes = {
            let dictionary = self.read();
            let keys = self.noted(dictionary.keys.gather())?;
            let order = sorted_rows(&keys);
            let head = Head {
                kind: Kind::Base,
                number: position.run,
                nonce: position.nonce,
                domain: position.domain,
                first_id: 0,
            };
            run::encode(head, &keys, &order)
        };
        if bytes.len() as u64 > MAX_BASE_BYTES {
            let (found, limit) = (bytes.len() as u64, MAX_BASE_BYTES);
            let object = path.to_string();
            return Err(DomainError::TooLarge { object, what: "bytes", found, limit });
        }
        match self.log.put_new(&path, bytes).await {
            Put::Done | Put::Taken => Ok(position.run),
            Put::Unknown(error) => match self.log.base(position.run).await? {
                Some(_) => Ok(position.run),
                None => Err(DomainError::store("writing", &path)(error)),
            },
        }
    }

    /// Frees what the newest base has made superfluous: older bases, and the keys of its runs, if
    /// they and it were last changed before `before_ms` (milliseconds since 1970, UTC). The base is
    /// read and compared first. Runs keep their name and header for ever.
    ///
    /// A reader that is about to read such a run or base finds the newest base instead.
    ///
    /// # Errors
    /// If the log cannot be read or written, or the base differs from the dictionary; what was
    /// freed before stays freed.
    pub async fn vacuum(&self, before_ms: i64) -> Result<Vacuumed> {
        let mut writer = self.writer.lock().await;
        self.catch_up(&mut writer).await?;
        let listing = self.log.list().await?;
        let is_old = |object: &ObjectMeta| object.last_modified.timestamp_millis() < before_ms;
        let mut done = Vacuumed::default();
        // A base that others have made meanwhile is not for a dictionary that is behind it to judge.
        let newest = listing.bases.range(..=self.position().run).next_back();
        let Some((&number, object)) = newest else { return Ok(done) };
        if !is_old(object) {
            return Ok(done);
        }
        let Some((base, _)) = self.log.base(number).await? else { return Ok(done) };
        if let Some(problem) = self.differs(&base)? {
            let path = self.log.base_path(number);
            return Err(DomainError::corrupt(path.as_ref(), problem));
        }
        for (&number, object) in listing.runs.range(..=number) {
            if object.size <= HEADER_BYTES as u64 || !is_old(object) {
                continue;
            }
            let Some(header) = self.log.run_header(number).await? else { continue };
            let end = u64::from(header.first_id) + u64::from(header.count);
            if !header.emptied && end <= u64::from(base.header.count) {
                self.log.empty(header).await?;
                done.runs += 1;
                done.bytes += object.size - HEADER_BYTES as u64;
            }
        }
        for (&older, object) in listing.bases.range(..number) {
            if is_old(object) {
                self.log.delete(&self.log.base_path(older)).await?;
                done.bases += 1;
                done.bytes += object.size;
            }
        }
        Ok(done)
    }

    /// Reads the whole log again and compares: ids dense and in their runs' order, no key twice,
    /// bases equal to their runs, dictionary and local file equal to the log. New keys of this process
    /// wait meanwhile.
    ///
    /// # Errors
    /// If the store fails. What is wrong with the domain is in the report.
    pub async fn check(&self) -> Result<CheckReport> {
        let mut writer = self.writer.lock().await;
        let mut report = CheckReport::default();
        if let Err(problem) = problem_or(self.catch_up(&mut writer).await)? {
            report.complain(problem);
        }
        match self.check_all(&writer, &mut report).await {
            Err(error @ DomainError::Local { .. }) => report.complain(error.to_string()),
            done => done?,
        }
        Ok(report)
    }

    async fn check_all(&self, writer: &Writer, report: &mut CheckReport) -> Result<()> {
        let listing = self.log.list().await?;
        report.keys = self.keys();
        self.check_runs(&listing, report).await?;
        for &number in listing.bases.keys().filter(|number| **number <= self.position().run) {
            match problem_or(self.log.base(number).await)? {
                Err(problem) => report.complain(problem),
                Ok(None) => {}
                Ok(Some((base, bytes))) => {
                    report.bases += 1;
                    report.bytes += bytes;
                    if let Some(problem) = self.differs(&base)? {
                        report.complain(format!("{}: {problem}", self.log.base_path(number)));
                    }
                }
            }
        }
        self.check_both_ways(report)?;
        if let Some(problem) = self.noted(writer.local.compare(&self.read()))? {
            report.complain(problem);
        }
        Ok(())
    }

    async fn check_runs(&self, listing: &Listing, report: &mut CheckReport) -> Result<()> {
        let newest = |listing: &Listing| listing.bases.keys().last().copied().unwrap_or(0);
        let mut base = newest(listing);
        let mut next_id = 0;
        for number in 1..=self.position().run {
            let path = self.log.run_path(number);
            let header = match problem_or(self.log.run(number).await)? {
                Err(problem) => {
                    report.complain(problem);
                    continue;
                }
                Ok(None) => {
                    report.complain(format!("{path} is missing"));
                    continue;
                }
                Ok(Some((Found::Emptied(header), bytes))) => {
                    report.emptied_runs += 1;
                    report.bytes += bytes;
                    if number > base {
                        // A compaction and a vacuum may have been here since the listing.
                        base = newest(&self.log.list().await?);
                    }
                    if number > base {
                        report.complain(format!("{path} was emptied, and no base has its keys"));
                    }
                    header
                }
                Ok(Some((Found::Whole(run), bytes))) => {
                    report.runs += 1;
                    report.bytes += bytes;
                    if let Some(problem) = self.differs(&run)? {
                        report.complain(format!("{path}: {problem}"));
                    }
                    run.header
                }
            };
            if header.first_id != next_id {
                report.complain(format!(
                    "{path}: its ids start at {}, those of the run before end at {next_id}",
                    header.first_id
                ));
            }
            next_id = header.first_id + header.count;
        }
        if u64::from(next_id) != self.keys() {
            report.complain(format!("the log has {next_id} ids, the dictionary {}", self.keys()));
        }
        Ok(())
    }

    /// How a run of this log differs from the dictionary.
    fn differs(&self, run: &Run) -> Result<Option<&'static str>> {
        let dictionary = self.read();
        if run.header.domain != dictionary.position.domain {
            return Ok(Some("it is of another log"));
        }
        let mut held = Held::default();
        for row in 0..run.len() {
            let found = dictionary.keys.read(run.header.first_id + row as u32, &mut held);
            if self.noted(found)? != Some(run.key(row)) {
                return Ok(Some("an id has another key than in the dictionary"));
            }
        }
        Ok(None)
    }

    /// Every id's key must lead back to it: then no key has two ids.
    fn check_both_ways(&self, report: &mut CheckReport) -> Result<()> {
        let dictionary = self.read();
        let (mut keys, mut wrong) = (KeyHeap::default(), None);
        let mut look_up = |keys: &mut KeyHeap, end: u32| {
            let (first, mut ids) = (end - keys.len() as u32, vec![UNKNOWN; keys.len()]);
            let found = dictionary.find_many(keys, 0..keys.len(), &mut ids);
            keys.clear();
            let differs = |pair: &(u32, u32)| pair.0 != pair.1;
            wrong = wrong.or((first..end).zip(ids).find(differs));
            found
        };
        let mut trouble = Ok(());
        let read = dictionary.keys.for_each_from(0, |id, key| {
            keys.push(key);
            if keys.bytes() >= CHECK_BYTES && trouble.is_ok() {
                trouble = look_up(&mut keys, id + 1);
            }
        });
        self.noted(read.and(trouble))?;
        self.noted(look_up(&mut keys, dictionary.next_id()))?;
        if let Some((id, other)) = wrong {
            report.complain(format!("the key of id {id} has id {other} as well"));
        }
        Ok(())
    }
}

/// What is wrong with the domain as a value; what is wrong with the store as an error.
fn problem_or<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error @ DomainError::Store { .. }) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}
