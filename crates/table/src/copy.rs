//! A whole lake copied to another place: backup and restore.
//!
//! What is read first is written last. The logs are listed, then data files and indexes, then the id
//! domains, sets, metrics, definitions and results; written are the domains, then data, then logs, each from its
//! checkpoints to its newest commit. So the copy never has a table whose rows or ids it lacks, wherever it is
//! stopped, and who goes on copies only what is missing.
//!
//! # Invariants
//! - An object of the copy is never replaced by that of another table, domain or history: the newest that both
//!   have is compared first, and a copy that is newer is refused.
//! - Data files are compared with their checksums on the way; one that is damaged is not copied, nor is its
//!   table's log, and the others are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, WriteMultipart};

use crate::as_of::AsOf;
use crate::commit::sync_copied;
use crate::error::{Result, TableError};
use crate::index;
use crate::lake::Lake;
use crate::sealed::damaged_commits;
use crate::vacuum::is_of_a_writer;
use crate::versioned::Versioned;

/// What lies beside the tables, in the order to write it: domains in a copy are never older than tables that have
/// their ids, nor metrics than definitions that use them.
const BESIDE: [&str; 6] = [
    "_uplake/domains",
    "_uplake/id_sets",
    crate::views::FOLDER,
    Versioned::Metric.folder(),
    "_uplake/experiments",
    Versioned::Result.folder(),
];
/// Objects copied at once.
const AT_ONCE: usize = 8;
/// Larger objects are uploaded in parts.
const PART_BYTES: u64 = 16 << 20;
/// What of a run of a domain says whose it is: the nonces of the run and of its log.
const RUN_NONCES: std::ops::Range<u64> = 16..48;

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Also compare the bytes of what is there already, and replace what differs: to mend a lake.
    pub compare: bool,
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySummary {
    /// Tables whose newest version the copy has.
    pub tables: usize,
    /// Objects written.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Objects that were there already.
    pub kept: u64,
    /// Tables of the copy that the lake has not.
    pub others: Vec<String>,
    /// What could not be copied because it is damaged, and so the newest version of its table.
    pub damaged: Vec<String>,
}

/// Copies `from` to `to`: tables at their newest versions and whatever of older ones is still there, indexes, id
/// domains, definitions, metrics, results and id sets.
///
/// # Errors
/// [`TableError::Invalid`] if one lies within the other, or if `to` has other or newer tables of these names;
/// [`TableError::NoSuch`] if `from` is no lake; [`TableError::Store`]. What was copied until then stays and is not copied again.
pub async fn copy_lake(
    from: &Lake,
    to: &Lake,
    options: CopyOptions,
    progress: impl Fn(&CopySummary) + Send + Sync,
) -> Result<CopySummary> {
    refuse_nested(from, to)?;
    let names = from.table_names().await?;
    if names.is_empty() && !from.is_there().await? {
        return Err(TableError::NoSuch(format!("there is no lake at {}", from.location())));
    }
    let copy = Copying { from, to, options, copied: AtomicU64::new(0), bytes: AtomicU64::new(0) };
    let mut tables = Vec::new();
    let mut summary = CopySummary::default();
    for name in &names {
        match copy.table(name).await {
            Ok(table) => tables.push(table),
            Err(error @ (TableError::DamagedLog { .. } | TableError::Delta { .. })) => {
                summary.damaged.push(format!("table {name}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    for table in &mut tables {
        table.data = copy.data(table).await?;
    }
    let beside = copy.beside().await?;
    // Nothing is written before all of it is known to be welcome.
    for table in &tables {
        copy.refuse_other(table).await?;
    }
    copy.refuse_other_domains(&beside).await?;
    copy.refuse_other_versions(Versioned::Metric, &beside).await?;
    copy.refuse_other_versions(Versioned::Result, &beside).await?;
    summary.others = to.table_names().await?;
    summary.others.retain(|name| !names.contains(name));

    to.check_promise().await?;
    to.initialise().await?;
    let show = |summary: &CopySummary| {
        let copied = copy.copied.load(Ordering::Relaxed);
        let copied_bytes = copy.bytes.load(Ordering::Relaxed);
        progress(&CopySummary { copied, copied_bytes, ..summary.clone() });
    };
    for objects in beside {
        // One after the other: a run is read only with those before it.
        for object in objects {
            summary.kept += u64::from(!copy.object(&object).await?);
        }
        show(&summary);
    }
    for table in &tables {
        let mut whole = true;
        let one = async |object| (object, copy.object(object).await);
        let mut copies =
            futures::stream::iter(table.data.iter().map(one)).buffer_unordered(AT_ONCE);
        while let Some((object, copied)) = copies.next().await {
            match copied {
                Ok(copied) => summary.kept += u64::from(!copied),
                Err(TableError::Damaged(reason)) if object.crc32.is_some() => {
                    whole = false;
                    summary.damaged.push(reason);
                }
                Err(error) => return Err(error),
            }
            show(&summary);
        }
        drop(copies);
        if !whole {
            continue;
        }
        let written: Vec<String> = table.data.iter().map(|o| o.relative.clone()).collect();
        sync_copied(to, written).await?;
        for object in &table.log {
            summary.kept += u64::from(!copy.object(object).await?);
        }
        sync_copied(to, table.log.iter().map(|o| o.relative.clone()).collect()).await?;
        summary.tables += 1;
        show(&summary);
    }
    summary.copied = copy.copied.load(Ordering::Relaxed);
    summary.copied_bytes = copy.bytes.load(Ordering::Relaxed);
    Ok(summary)
}

/// Of texts whose versions never change.
fn version_of(relative: &str) -> Option<(&str, u32)> {
    Versioned::Metric.version_of(relative).or_else(|| Versioned::Result.version_of(relative))
}

/// A lake within the other would be copied into itself.
fn refuse_nested(from: &Lake, to: &Lake) -> Result<()> {
    let ends = |lake: &Lake| format!("{}/", lake.location().trim_end_matches('/'));
    let (from, to) = (ends(from), ends(to));
    if from.starts_with(&to) || to.starts_with(&from) {
        return Err(TableError::Invalid(format!("{to} and {from} are within each other")));
    }
    Ok(())
}

struct Copying<'a> {
    from: &'a Lake,
    to: &'a Lake,
    options: CopyOptions,
    copied: AtomicU64,
    bytes: AtomicU64,
}

struct Table {
    name: String,
    /// The newest commit when it was listed.
    version: u64,
    /// In the order to write them.
    log: Vec<Object>,
    data: Vec<Object>,
}

/// Something to copy.
#[derive(Clone, Debug)]
struct Object {
    /// From the lake's root.
    relative: String,
    meta: ObjectMeta,
    /// What its bytes must have.
    crc32: Option<u32>,
    /// Its name stays and its bytes may not.
    may_change: bool,
}

impl Object {
    fn new(relative: String, meta: ObjectMeta) -> Self {
        Self { relative, meta, crc32: None, may_change: false }
    }

    fn name(&self) -> &str {
        self.relative.rsplit('/').next().unwrap_or_default()
    }
}

impl Copying<'_> {
    /// A table's log, up to its newest commit.
    async fn table(&self, name: &str) -> Result<Table> {
        // It can be read: its log is whole.
        let version = self.from.snapshot(name, &AsOf::Latest).await?.version();
        let folder = format!("{name}/_delta_log");
        let mut log = self.list(self.from, &folder).await?;
        let number = |object: &Object| -> Option<u64> {
            object.name().split('.').next().filter(|n| n.len() == 20)?.parse().ok()
        };
        let is_commit = |object: &Object| object.name().ends_with(".json");
        log.retain(|object| match number(object) {
            Some(number) => number <= version,
            None => object.name() == "_last_checkpoint" || object.relative.contains("/_sidecars/"),
        });
        for object in &mut log {
            object.may_change = object.name() == "_last_checkpoint";
        }
        log.sort_by_key(|object| match number(object) {
            None if !object.may_change => (0, 0),
            Some(number) if !is_commit(object) => (1, number),
            Some(number) => (2, number),
            None => (3, 0),
        });
        Ok(Table { name: name.to_owned(), version, log, data: Vec::new() })
    }

    /// Data files, of older versions, too, and indexes.
    async fn data(&self, table: &Table) -> Result<Vec<Object>> {
        let base = self.from.snapshot(&table.name, &AsOf::Version(table.version)).await?;
        let crc32: HashMap<&str, Option<u32>> =
            base.files().iter().map(|file| (file.path.as_str(), file.crc32)).collect();
        let mut found = Vec::new();
        let mut there = HashSet::new();
        for mut object in self.list(self.from, &table.name).await? {
            let path = object.relative.strip_prefix(&format!("{}/", table.name));
            let path = path.unwrap_or_default().to_owned();
            let is_index = index::data_file_of(&path).is_some();
            match crc32.get(path.as_str()) {
                Some(crc32) => object.crc32 = *crc32,
                None if is_index || is_of_a_writer(&path) => {}
                None => continue,
            }
            // An index may have been built anew.
            object.may_change = is_index;
            there.insert(path);
            found.push(object);
        }
        if let Some(file) = base.files().iter().find(|file| !there.contains(&file.path)) {
            let (name, path) = (&table.name, &file.path);
            return Err(TableError::Damaged(format!("table `{name}` lacks its data file {path}")));
        }
        Ok(found)
    }

    /// What lies beside the tables, in the order to write it: of a domain its bases, then its runs.
    async fn beside(&self) -> Result<Vec<Vec<Object>>> {
        let mut found = Vec::new();
        // What is written last is listed first.
        for folder in BESIDE.iter().rev() {
            let mut objects = self.list(self.from, folder).await?;
            objects.sort_by(|a, b| {
                let key = |object: &Object| {
                    (!object.name().starts_with("base-"), object.relative.clone())
                };
                key(a).cmp(&key(b))
            });
            for object in &mut objects {
                object.may_change =
                    !object.name().ends_with(".run") && version_of(&object.relative).is_none();
            }
            found.push(objects);
        }
        found.reverse();
        Ok(found)
    }

    async fn list(&self, lake: &Lake, folder: &str) -> Result<Vec<Object>> {
        let path = lake.path_of(folder)?;
        let failed = |e| TableError::store(format!("listing {path}"), e);
        let root = match lake.root().as_ref() {
            "" => String::new(),
            root => format!("{root}/"),
        };
        let listed: Vec<ObjectMeta> = match lake.store().list(Some(&path)).try_collect().await {
            Ok(listed) => listed,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(e) => return Err(failed(e)),
        };
        let object = |meta: ObjectMeta| {
            let relative = meta.location.as_ref().strip_prefix(&root)?.to_owned();
            Some(Object::new(relative, meta))
        };
        let mut objects: Vec<Object> = listed.into_iter().filter_map(object).collect();
        if !folder.ends_with("_delta_log") {
            objects.retain(|object| !object.relative.contains("/_delta_log/"));
        }
        objects.sort_by(|a, b| a.relative.cmp(&b.relative));
        Ok(objects)
    }

    /// Is the copy's table of this name an older version of it?
    async fn refuse_other(&self, table: &Table) -> Result<()> {
        if !self.to.has_table(&table.name).await? {
            return Ok(());
        }
        let is_commit =
            |object: &Object| object.name().len() == 25 && object.name().ends_with(".json");
        let of = |objects: &[Object]| -> BTreeMap<String, Object> {
            let commits = objects.iter().filter(|object| is_commit(object));
            commits.map(|object| (object.relative.clone(), object.clone())).collect()
        };
        let there = of(&self.list(self.to, &format!("{}/_delta_log", table.name)).await?);
        let ours = of(&table.log);
        // A damaged commit of a lake that is to be mended is no sign of another table.
        let damaged = match self.options.compare {
            true => damaged_commits(self.to, &table.name).await?,
            false => Vec::new(),
        };
        let is_damaged = |path: &str| damaged.iter().any(|commit| path.ends_with(&commit.file));
        let both = |path: &&String| ours.contains_key(*path) && !is_damaged(path);
        let is_same = match there.keys().rev().find(both) {
            Some(newest) => {
                self.bytes(self.from, newest).await? == self.bytes(self.to, newest).await?
            }
            None => true,
        };
        let (name, from, to) = (&table.name, self.from.location(), self.to.location());
        let refused = if !is_same {
            format!(
                "table `{name}` in {to} is another one of that name: it was dropped and made anew in \
                 between; take another place, or drop that one"
            )
        } else if there.keys().next_back() > ours.keys().next_back() {
            format!("table `{name}` in {to} is newer than the one in {from}")
        } else {
            return Ok(());
        };
        Err(TableError::Invalid(refused))
    }

    /// Are the copy's domains older states of these?
    async fn refuse_other_domains(&self, beside: &[Vec<Object>]) -> Result<()> {
        let [domains, ..] = beside else { return Ok(()) };
        let is_run = |object: &&Object| {
            object.name().ends_with(".run") && !object.name().starts_with("base-")
        };
        let ours: HashSet<&str> =
            domains.iter().filter(is_run).map(|object| object.relative.as_str()).collect();
        let there = self.list(self.to, BESIDE[0]).await?;
        let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
        for object in there.iter().filter(is_run) {
            let Some((folder, _)) = object.relative.rsplit_once('/') else { continue };
            let is_domain_here =
                domains.iter().any(|o| o.relative.starts_with(&format!("{folder}/")));
            if !is_domain_here {
                continue;
            }
            if !ours.contains(object.relative.as_str()) {
                return Err(TableError::Invalid(format!(
                    "id domain {folder} in {} is newer than the one in {}",
                    self.to.location(),
                    self.from.location()
                )));
            }
            newest.insert(folder, &object.relative);
        }
        for (folder, run) in newest {
            let nonces = async |lake: &Lake| {
                let path = lake.path_of(run)?;
                let failed = |e| TableError::store(format!("reading {path}"), e);
                lake.store().get_range(&path, RUN_NONCES).await.map_err(failed)
            };
            if nonces(self.from).await? != nonces(self.to).await? {
                return Err(TableError::Invalid(format!(
                    "id domain {folder} in {} is another one of that name; take another place",
                    self.to.location()
                )));
            }
        }
        Ok(())
    }

    /// Has the copy other texts of the same versions? The newest that both have is compared.
    async fn refuse_other_versions(&self, of: Versioned, beside: &[Vec<Object>]) -> Result<()> {
        if self.options.compare {
            return Ok(());
        }
        let there = self.list(self.to, of.folder()).await?;
        let there: HashSet<&str> = there.iter().map(|object| object.relative.as_str()).collect();
        let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
        for object in beside.iter().flatten() {
            let path = object.relative.as_str();
            if let Some((name, _)) = of.version_of(path).filter(|_| there.contains(path)) {
                // Paths are sorted.
                newest.insert(name, path);
            }
        }
        for path in newest.into_values() {
            if self.bytes(self.from, path).await? != self.bytes(self.to, path).await? {
                return Err(TableError::Invalid(format!(
                    "{path} in {} is another one than in {}; take another place",
                    self.to.location(),
                    self.from.location()
                )));
            }
        }
        Ok(())
    }

    async fn bytes(&self, lake: &Lake, relative: &str) -> Result<Bytes> {
        let path = lake.path_of(relative)?;
        let failed = |e| TableError::store(format!("reading {path}"), e);
        lake.store().get(&path).await.map_err(failed)?.bytes().await.map_err(failed)
    }

    /// False if it was there already.
    async fn object(&self, object: &Object) -> Result<bool> {
        let target = self.to.path_of(&object.relative)?;
        let failed = |e| TableError::store(format!("looking for {target}"), e);
        match self.to.store().head(&target).await {
            Ok(there) if self.is_copy(object, &there).await? => return Ok(false),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(e) => return Err(failed(e)),
        }
        self.write(object, &target).await?;
        self.copied.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    async fn is_copy(&self, object: &Object, there: &ObjectMeta) -> Result<bool> {
        let is_run = object.relative.ends_with(".run");
        if there.size != object.meta.size {
            // A run whose keys were put into a base is cut to its header.
            return Ok(is_run && there.size > object.meta.size && !self.options.compare);
        }
        if object.may_change && there.last_modified < object.meta.last_modified {
            return Ok(false);
        }
        if !self.options.compare {
            return Ok(true);
        }
        let theirs = self.checksum(self.to, &there.location).await?;
        let ours = match object.crc32 {
            Some(crc32) => crc32,
            None => self.checksum(self.from, &object.meta.location).await?,
        };
        Ok(theirs == ours)
    }

    async fn checksum(&self, lake: &Lake, path: &Path) -> Result<u32> {
        let failed = |e| TableError::store(format!("reading {path}"), e);
        let mut bytes = lake.store().get(path).await.map_err(failed)?.into_stream();
        let mut crc32 = crc32fast::Hasher::new();
        while let Some(bytes) = bytes.try_next().await.map_err(failed)? {
            crc32.update(&bytes);
        }
        Ok(crc32.finalize())
    }

    async fn write(&self, object: &Object, target: &Path) -> Result<()> {
        let source = &object.meta.location;
        let reading = |e| TableError::store(format!("reading {source}"), e);
        let writing = |e| TableError::store(format!("writing {target}"), e);
        let store: &Arc<dyn ObjectStore> = self.to.store();
        let mut bytes = self.from.store().get(source).await.map_err(reading)?.into_stream();
        let mut crc32 = crc32fast::Hasher::new();
        let mut size = 0;
        let check = |crc32: crc32fast::Hasher, size: u64| {
            let is_whole = size == object.meta.size
                && object.crc32.is_none_or(|expected| expected == crc32.finalize());
            if is_whole {
                return Ok(());
            }
            let path = &object.relative;
            Err(TableError::Damaged(format!(
                "{path} is damaged: its bytes do not have the checksum that the log says"
            )))
        };
        if object.meta.size <= PART_BYTES {
            let mut whole = Vec::with_capacity(object.meta.size as usize);
            while let Some(bytes) = bytes.try_next().await.map_err(reading)? {
                whole.extend_from_slice(&bytes);
            }
            crc32.update(&whole);
            size = whole.len() as u64;
            check(crc32, size)?;
            store.put(target, whole.into()).await.map_err(writing)?;
        } else {
            let upload = store.put_multipart(target).await.map_err(writing)?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES as usize);
            let copied = async {
                while let Some(bytes) = bytes.try_next().await.map_err(reading)? {
                    upload.wait_for_capacity(2).await.map_err(writing)?;
                    crc32.update(&bytes);
                    size += bytes.len() as u64;
                    upload.put(bytes);
                }
                check(crc32, size)
            };
            if let Err(error) = copied.await {
                // Parts that stay are garbage, which is allowed.
                let _ = upload.abort().await;
                return Err(error);
            }
            upload.finish().await.map_err(writing)?;
        }
        self.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(())
    }
}
