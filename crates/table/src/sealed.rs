//! Commits and checkpoints of which it is known whether they are whole.
//!
//! A commit file that is cut at the end of a line, or that changed places with another, is one like
//! any other to a reader of Delta logs: rows vanish, or come back. [`SealedLog`] stands between the log
//! and its store. A commit that is written gets a checksum of its name and all its bytes, as one more
//! field of its `commitInfo`, which every reader ignores; a commit that is read is compared with it. Of a checkpoint
//! `_last_checkpoint`, which leads to it, has the checksum as one of its `tags`.
//!
//! # Invariants
//! - Commits without a seal are other writers' and are read; not if they are empty or cut within a line.
//! - In a folder a commit's bytes are on the disk before its name is: a power cut leaves none, or all of it. So are
//!   a checkpoint's, and its name before the hint that leads to it.
//! - A checkpoint without a checksum, another writer's or one that the hint does not lead to, is read as it is.
//! - The rest of a sealed commit is what it would be without: cutting out the seal gives those bytes.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult,
};
use serde::de::IgnoredAny;

use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::names::is_commit_name;
use crate::thread::on_thread;

type StoreResult<T> = object_store::Result<T>;

/// The field, up to its value: eight hexadecimal digits and a quotation mark.
const SEAL: &[u8] = b",\"uplakeSeal\":\"";
const SEAL_DIGITS: usize = 8;
const COMMIT_INFO: &[u8] = b"{\"commitInfo\":{";

/// A commit file is not what was written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log's file {file} is damaged: {what}")]
pub(crate) struct DamagedCommit {
    pub file: String,
    pub what: &'static str,
}

/// Reads all commits of a table's log; those that are damaged.
///
/// # Errors
/// [`TableError::Store`] if the log cannot be listed, or a commit not be read.
pub(crate) async fn damaged_commits(lake: &Lake, table: &str) -> Result<Vec<DamagedCommit>> {
    let folder = lake.path_of(&format!("{table}/_delta_log"))?;
    let failed = |error| TableError::store(format!("reading the log of table `{table}`"), error);
    let listed = lake.store().list(Some(&folder)).map_ok(|object| object.location);
    let mut commits: Vec<Path> = listed.try_collect().await.map_err(failed)?;
    commits.retain(|path| commit_name(path).is_some());
    commits.sort();
    let log = SealedLog::new(Arc::clone(lake.store()));
    let mut damaged = Vec::new();
    // The hint has the checksum of the checkpoint that it leads to.
    if log.get(&folder.clone().join(HINT)).await.is_ok() {
        log.look_at_checkpoint(&folder).await;
        damaged.extend(log.take_damage());
    }
    for commit in commits {
        match log.commit(&commit, GetOptions::default()).await {
            Ok(_) => {}
            Err(error) => damaged.push(log.take_damage().ok_or_else(|| failed(error))?),
        }
    }
    Ok(damaged)
}

/// A store whose commits are sealed when they are written, and looked at when they are read.
#[derive(Debug)]
pub(crate) struct SealedLog {
    store: Arc<dyn ObjectStore>,
    /// Where the log is, in a lake that is a folder.
    folder: Option<PathBuf>,
    /// What was found last; the errors of those who read the log for us do not say what they come from.
    damage: Mutex<Option<DamagedCommit>>,
    /// The checksum of the checkpoint that was written, or that the hint leads to.
    checkpoint: Mutex<Option<(String, String)>>,
    /// That checkpoint's bytes, compared, while the log is read.
    compared: tokio::sync::Mutex<Option<(Path, ObjectMeta, Bytes)>>,
}

/// Leads to the newest checkpoint.
const HINT: &str = "_last_checkpoint";
/// The key in the hint's `tags`; its value is [`sum_of`].
const CHECKPOINT_TAG: &str = "uplake.checkpoint";

/// The name of a checkpoint in one file.
fn checkpoint_name(path: &Path) -> Option<&str> {
    path.filename().filter(|name| is_commit_name(name) && name.ends_with(".checkpoint.parquet"))
}

/// Length and checksum of a checkpoint.
fn sum_of(name: &str, bytes: &[u8]) -> String {
    format!("{} {:08x}", bytes.len(), checksum(name, &[bytes]))
}

/// The checkpoint that a hint leads to, and its checksum if it has one.
fn hinted(hint: &[u8]) -> Option<(String, Option<String>)> {
    let hint: serde_json::Value = serde_json::from_slice(hint).ok()?;
    let name = format!("{:020}.checkpoint.parquet", hint.get("version")?.as_u64()?);
    let sum = hint.pointer(&format!("/tags/{CHECKPOINT_TAG}")).and_then(|sum| sum.as_str());
    Some((name, sum.map(str::to_owned)))
}

/// The hint with the checksum of the checkpoint that it leads to.
fn with_sum(hint: &[u8], sum: &str) -> Option<Vec<u8>> {
    let mut hint: serde_json::Value = serde_json::from_slice(hint).ok()?;
    let fields = hint.as_object_mut()?;
    // One of the hint itself, as it was.
    fields.remove("checksum");
    let tags = fields.entry("tags").or_insert(serde_json::Value::Null);
    if tags.is_null() {
        *tags = serde_json::json!({});
    }
    tags.as_object_mut()?.insert(CHECKPOINT_TAG.to_owned(), sum.into());
    serde_json::to_vec(&hint).ok()
}

/// The name of a commit file in a log; `None` for others.
fn commit_name(path: &Path) -> Option<&str> {
    path.filename().filter(|name| is_commit_name(name) && name.ends_with(".json"))
}

/// The commit with its seal; as it is without a `commitInfo` that comes first.
fn sealed(name: &str, commit: &[u8]) -> Vec<u8> {
    let line = commit.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut out = Vec::with_capacity(commit.len() + SEAL.len() + SEAL_DIGITS + 1);
    let Some(info) = line.strip_suffix(b"}}").filter(|info| is_open(info)) else {
        return commit.to_vec();
    };
    out.extend_from_slice(info);
    out.extend_from_slice(SEAL);
    out.extend_from_slice(format!("{:08x}\"", checksum(name, &[commit])).as_bytes());
    out.extend_from_slice(&commit[info.len()..]);
    out
}

/// Has a `commitInfo` without its closing brackets other fields?
fn is_open(info: &[u8]) -> bool {
    info.len() > COMMIT_INFO.len() && info.starts_with(COMMIT_INFO)
}

fn checksum(name: &str, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name.as_bytes());
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// What is wrong with the bytes of a commit.
fn check(name: &str, commit: &[u8]) -> std::result::Result<(), &'static str> {
    let mut lines = commit.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    if let Some(at) = first.windows(SEAL.len()).rposition(|bytes| bytes == SEAL) {
        let value = at + SEAL.len();
        let rest = commit.get(value + SEAL_DIGITS + 1..).unwrap_or_default();
        let expected = format!("{:08x}\"", checksum(name, &[&commit[..at], rest]));
        return match commit[value..].starts_with(expected.as_bytes()) {
            true => Ok(()),
            false => Err("its checksum is another than it says"),
        };
    }
    let last = commit.split(|byte| *byte == b'\n').rfind(|line| !line.trim_ascii().is_empty());
    match last.map(serde_json::from_slice::<IgnoredAny>) {
        None => Err("it is empty"),
        Some(Err(_)) => Err("it is cut off"),
        Some(Ok(_)) => Ok(()),
    }
}

impl SealedLog {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            folder: None,
            damage: Mutex::default(),
            checkpoint: Mutex::default(),
            compared: tokio::sync::Mutex::default(),
        }
    }

    /// Of a log in this folder.
    pub(crate) fn in_folder(self, folder: PathBuf) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// The damaged commit that was found, if there was one.
    pub(crate) fn take_damage(&self) -> Option<DamagedCommit> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A whole commit.
    async fn commit(&self, path: &Path, options: GetOptions) -> StoreResult<(ObjectMeta, Bytes)> {
        let read = self.store.get_opts(path, GetOptions { range: None, ..options }).await?;
        let (meta, name) = (read.meta.clone(), path.filename().unwrap_or_default());
        let bytes = read.bytes().await?;
        match check(name, &bytes) {
            Ok(()) => Ok((meta, bytes)),
            Err(what) => Err(self.damaged(name, what)),
        }
    }

    fn damaged(&self, name: &str, what: &'static str) -> object_store::Error {
        let damage = DamagedCommit { file: name.to_owned(), what };
        let mut found = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        *found = Some(damage.clone());
        object_store::Error::Generic { store: "log", source: Box::new(damage) }
    }

    /// The checksum that a checkpoint has to have, if that is known.
    fn expected(&self, name: &str) -> Option<String> {
        let known = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(of, _)| of == name).map(|(_, sum)| sum.clone())
    }

    /// Finds out whether the checkpoint that the hint leads to is damaged: what is cut short fails before it is read.
    pub(crate) async fn look_at_checkpoint(&self, folder: &Path) {
        let name = {
            let known = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref().map(|(name, _)| name.clone())
        };
        let Some(name) = name else { return };
        let read = self.checkpoint(&folder.clone().join(name.as_str())).await;
        if let Err(object_store::Error::NotFound { .. }) = read {
            let _ = self.damaged(&name, "it is not there");
        }
    }

    fn expect(&self, name: String, sum: String) {
        let mut known = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((name, sum));
    }

    /// A whole checkpoint whose checksum is known; `None` for others.
    async fn checkpoint(&self, path: &Path) -> StoreResult<Option<(ObjectMeta, Bytes)>> {
        let Some(name) = checkpoint_name(path) else { return Ok(None) };
        let Some(sum) = self.expected(name) else { return Ok(None) };
        let mut compared = self.compared.lock().await;
        if let Some((_, meta, bytes)) = compared.as_ref().filter(|(of, ..)| of == path) {
            return Ok(Some((meta.clone(), bytes.clone())));
        }
        let read = self.store.get_opts(path, GetOptions::default()).await?;
        let meta = read.meta.clone();
        let bytes = read.bytes().await?;
        if sum_of(name, &bytes) != sum {
            return Err(self.damaged(name, "its checksum is another than _last_checkpoint has"));
        }
        *compared = Some((path.clone(), meta.clone(), bytes.clone()));
        Ok(Some((meta, bytes)))
    }

    /// Lets go of the checkpoint's bytes: the log has been read.
    pub(crate) async fn has_been_read(&self) {
        *self.compared.lock().await = None;
    }
}

/// Part of a file that is in memory.
fn part_of(meta: ObjectMeta, bytes: &Bytes, asked: Option<GetRange>) -> StoreResult<GetResult> {
    let range = match asked {
        None => 0..meta.size,
        Some(range) => range
            .as_range(meta.size)
            .map_err(|error| object_store::Error::Generic { store: "log", source: error.into() })?,
    };
    let part = bytes.slice(range.start as usize..range.end as usize);
    let payload = GetResultPayload::Stream(futures::stream::iter([Ok(part)]).boxed());
    Ok(GetResult { payload, meta, range, attributes: object_store::Attributes::new() })
}

/// Creates a file unless there is one, its bytes on the disk first.
fn create_synced(path: &LocalPath, bytes: &[u8]) -> StoreResult<PutResult> {
    let failed = |source: std::io::Error| {
        let at = path.display().to_string();
        match source.kind() {
            ErrorKind::AlreadyExists => {
                object_store::Error::AlreadyExists { path: at, source: source.into() }
            }
            ErrorKind::PermissionDenied => {
                object_store::Error::PermissionDenied { path: at, source: source.into() }
            }
            _ => object_store::Error::Generic { store: "log", source: source.into() },
        }
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    // Stores do not list such names, which are those of their own unfinished files.
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!("#{}", uuid::Uuid::new_v4().as_u128()));
    let written = File::create_new(&staged).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    // And the name of the commit before it.
    let before = || path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all());
    let linked = written.and_then(|()| before()).and_then(|()| std::fs::hard_link(&staged, path));
    // What stays is not seen by anybody.
    let _ = std::fs::remove_file(&staged);
    linked.map_err(failed)?;
    Ok(PutResult { e_tag: None, version: None })
}

/// Delta's kernel makes a URL of each file that is listed with `Url::set_path`, which leaves `%41` as it is and makes
/// `/` of a backslash; the path of that URL is decoded when the file is read.
fn as_set_in_url(mut listed: ObjectMeta) -> ObjectMeta {
    let path = listed.location.as_ref();
    if path.contains(['%', '\\'])
        && let Ok(escaped) = Path::parse(path.replace('%', "%25").replace('\\', "%5C"))
    {
        listed.location = escaped;
    }
    listed
}

impl fmt::Display for SealedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store)
    }
}

#[async_trait]
impl ObjectStore for SealedLog {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        if let Some(name) = checkpoint_name(location) {
            let bytes = Bytes::from(payload);
            self.expect(name.to_owned(), sum_of(name, &bytes));
            return self.store.put_opts(location, bytes.into(), options).await;
        }
        if location.filename() == Some(HINT) {
            let hint = Bytes::from(payload);
            let sum = hinted(&hint).and_then(|(name, _)| self.expected(&name));
            let hint = sum.and_then(|sum| with_sum(&hint, &sum)).unwrap_or_else(|| hint.into());
            return self.store.put_opts(location, hint.into(), options).await;
        }
        let Some(name) = commit_name(location) else {
            return self.store.put_opts(location, payload, options).await;
        };
        let commit = sealed(name, &Bytes::from(payload));
        match &self.folder {
            Some(folder) if options.mode == PutMode::Create => {
                let path = folder.join(name);
                let created = on_thread(move || Ok(create_synced(&path, &commit))).await;
                created.map_err(|error| object_store::Error::Generic {
                    store: "log",
                    source: error.into(),
                })?
            }
            _ => self.store.put_opts(location, commit.into(), options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if options.head {
            return self.store.get_opts(location, options).await;
        }
        if location.filename() == Some(HINT) && options.range.is_none() {
            let read = self.store.get_opts(location, options).await?;
            let meta = read.meta.clone();
            let hint = read.bytes().await?;
            if let Some((name, Some(sum))) = hinted(&hint) {
                self.expect(name, sum);
            }
            return part_of(meta, &hint, None);
        }
        if let Some((meta, bytes)) = self.checkpoint(location).await? {
            return part_of(meta, &bytes, options.range);
        }
        if commit_name(location).is_none() {
            return self.store.get_opts(location, options).await;
        }
        let asked = options.range.clone();
        let (meta, bytes) = self.commit(location, options).await?;
        part_of(meta, &bytes, asked)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        if commit_name(location).is_some() {
            self.commit(location, GetOptions::default()).await?;
        }
        if let Some((_, bytes)) = self.checkpoint(location).await? {
            let part = |range: &Range<u64>| {
                let end = (range.end as usize).min(bytes.len());
                bytes.slice((range.start as usize).min(end)..end)
            };
            return Ok(ranges.iter().map(part).collect());
        }
        self.store.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix).map_ok(as_set_in_url).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset).map_ok(as_set_in_url).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    const NAME: &str = "00000000000000000002.json";
    const COMMIT: &str = concat!(
        r#"{"commitInfo":{"operation":"WRITE","info":"a \"}} b"}}"#,
        "\n",
        r#"{"add":{"path":"a"}}"#,
        "\n",
        r#"{"add":{"path":"b"}}"#
    );

    fn whole() -> Vec<u8> {
        sealed(NAME, COMMIT.as_bytes())
    }

    #[test]
    fn any_other_byte_of_a_sealed_commit_is_noticed() {
        let whole = whole();
        assert_eq!(check(NAME, &whole), Ok(()));
        let seal = whole.windows(SEAL.len()).position(|bytes| bytes == SEAL).unwrap();
        for at in (0..whole.len()).filter(|at| !(seal..seal + SEAL.len()).contains(at)) {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                assert!(check(NAME, &other).is_err(), "bit {bit} of byte {at}");
            }
        }
        for line in std::str::from_utf8(&whole).unwrap().lines() {
            serde_json::from_str::<IgnoredAny>(line).unwrap();
        }
    }

    #[test]
    fn a_commit_that_is_cut_anywhere_or_at_another_place_is_noticed() {
        let whole = whole();
        for length in 0..whole.len() {
            assert!(check(NAME, &whole[..length]).is_err(), "{length} bytes");
        }
        assert!(check("00000000000000000003.json", &whole).is_err());
    }

    #[test]
    fn commits_of_others_are_read_unless_they_are_cut() {
        let lines: Vec<&str> = COMMIT.lines().collect();
        for commit in [COMMIT.to_owned(), format!("{}\n\n", lines[1]), lines.join("\r\n")] {
            assert_eq!(check(NAME, commit.as_bytes()), Ok(()), "{commit}");
        }
        for commit in ["", "\n", " \n\n", &COMMIT[..COMMIT.len() - 1], &COMMIT[..80]] {
            assert!(check(NAME, commit.as_bytes()).is_err(), "{commit:?}");
        }
        for commit in [lines[1], r#"{"commitInfo":{}}"#, "", r#"{"commitInfo":{"a":1}"#] {
            assert_eq!(sealed(NAME, commit.as_bytes()), commit.as_bytes());
        }
    }

    #[tokio::test]
    async fn one_of_two_that_create_a_commit_in_a_folder_is_refused_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("_delta_log");
        let store = SealedLog::new(Arc::new(InMemory::new())).in_folder(log.clone());
        let commit = Path::from(format!("t/_delta_log/{NAME}"));
        let create = || store.put_opts(&commit, COMMIT.into(), PutMode::Create.into());
        create().await.unwrap();
        let refused = create().await.unwrap_err();
        assert!(matches!(refused, object_store::Error::AlreadyExists { .. }), "{refused}");
        assert_eq!(std::fs::read(log.join(NAME)).unwrap(), whole());
        assert_eq!(std::fs::read_dir(&log).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_checkpoint_is_compared_with_what_the_hint_says() {
        let store = Arc::new(InMemory::new());
        let log = || SealedLog::new(Arc::<InMemory>::clone(&store));
        let path = Path::from("t/_delta_log/00000000000000000007.checkpoint.parquet");
        let hint = Path::from("t/_delta_log/_last_checkpoint");
        let bytes: Vec<u8> = (0..=255).collect();
        let writer = log();
        writer.put(&path, bytes.clone().into()).await.unwrap();
        writer.put(&hint, r#"{"version":7,"size":3}"#.into()).await.unwrap();
        // Who has not seen the hint does not know, nor who has seen that of another checkpoint.
        let reader = log();
        assert_eq!(reader.get_range(&path, 2..4).await.unwrap(), bytes[2..4]);
        reader.get(&hint).await.unwrap();
        assert_eq!(reader.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            store.put(&path, other.into()).await.unwrap();
            let reader = log();
            reader.get(&hint).await.unwrap();
            assert!(reader.get_range(&path, 2..4).await.is_err(), "byte {at}");
            assert!(reader.get_ranges(&path, std::slice::from_ref(&(2..4))).await.is_err());
            assert_eq!(reader.take_damage().unwrap().file, path.filename().unwrap());
        }
        let said = store.get(&hint).await.unwrap().bytes().await.unwrap();
        let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
        assert_eq!((said["version"].as_u64(), said["size"].as_u64()), (Some(7), Some(3)));
        // Of another writer.
        store.put(&path, vec![1, 2, 3].into()).await.unwrap();
        store.put(&hint, r#"{"version":7,"size":3}"#.into()).await.unwrap();
        let reader = log();
        reader.get(&hint).await.unwrap();
        assert_eq!(reader.get_range(&path, 0..3).await.unwrap(), vec![1, 2, 3]);
    }

    #[tokio::test]
    async fn commits_alone_are_sealed_and_looked_at() {
        let store = Arc::new(InMemory::new());
        let log = SealedLog::new(Arc::<InMemory>::clone(&store));
        let commit = Path::from(format!("t/_delta_log/{NAME}"));
        let hint = Path::from("t/_delta_log/_last_checkpoint");
        for path in [&commit, &hint] {
            log.put(path, COMMIT.into()).await.unwrap();
        }
        assert_eq!(store.get(&commit).await.unwrap().bytes().await.unwrap(), whole());
        assert_eq!(store.get(&hint).await.unwrap().bytes().await.unwrap(), COMMIT);
        assert_eq!(log.get(&commit).await.unwrap().bytes().await.unwrap(), whole());
        assert_eq!(log.get_range(&commit, 2..12).await.unwrap(), "commitInfo");
        let cut = whole().len() - 21;
        store.put(&commit, whole()[..cut].to_vec().into()).await.unwrap();
        assert!(log.get(&commit).await.is_err());
        assert!(log.get_range(&commit, 2..12).await.is_err());
        assert!(log.get_ranges(&commit, std::slice::from_ref(&(2..12))).await.is_err());
        assert_eq!(log.head(&commit).await.unwrap().size, cut as u64);
    }
}
