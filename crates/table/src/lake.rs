//! A lake: a folder or a prefix of a bucket with Delta tables, and a small `_uplake` folder beside them.
//!
//! All that a lake holds is read and written through one [`Store`]. What costs a system call in a
//! folder and a round trip in a bucket (is this snapshot the newest?) asks the folder itself, if
//! there is one: see [`Place`].
//!
//! # Invariants
//! - `<lake>/<table>/_delta_log` makes a table; nothing else does.
//! - Names are plain identifiers, so a table name is a folder name and a SQL name at once.
//!
//! # Not here
//! What the logs of tables say (`tables`), how a table goes (`drop_table`), id domains (`id_domain`).

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use deltalake_core::DeltaResult;
use deltalake_core::logstore::{
    LogStore, LogStoreFactory, ObjectStoreRef, StorageConfig, default_logstore, logstore_factories,
};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use tokio::sync::OnceCell;
use uplake_objectio::{StorageOptions, Store};
use url::Url;

use crate::error::{Result, TableError};
use crate::id_domain::{OpenDomains, ReportDomain};
use crate::names::{check_table_name, is_commit_name};

/// The lake format this version writes.
const LAKE_FORMAT: u64 = 1;

/// What makes a folder a lake, below its root.
const LAKE_FILE: &str = "_uplake/lake.json";
/// Tables that are looked for at once.
const LOOKS_AT_ONCE: usize = 16;

/// A folder, or prefix of a bucket, of tables.
#[derive(Clone, Debug)]
pub struct Lake {
    place: Place,
    /// The lake's root in the store.
    root: StorePath,
    storage: Arc<Store>,
    store: Arc<dyn ObjectStore>,
    domains: Arc<OpenDomains>,
    state: Arc<State>,
}

/// Where a lake lies.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A local folder, absolute. Small questions are asked of the file system itself.
    Folder(PathBuf),
    /// Anything else: a URL that ends with `/`.
    Url(Url),
}

/// What a process knows of a lake that is not a folder.
#[derive(Debug, Default)]
struct State {
    /// Was `lake.json` looked at? Is it there?
    format: OnceCell<bool>,
    /// Was the store seen to keep its promise?
    keeps_promise: OnceCell<()>,
    /// Data files that a commit names of which it is not known whether it took effect.
    doubtful: Mutex<HashSet<String>>,
}

impl Lake {
    /// Opens a lake in a local folder, or at a URL with the usual settings. It need not exist yet.
    ///
    /// # Errors
    /// As [`Lake::open_with`].
    pub fn open(location: &str) -> Result<Self> {
        Self::open_with(location, &StorageOptions::default())
    }

    /// Opens a lake: a path, or a URL that [`Store::open`] knows. Makes no request yet.
    ///
    /// # Errors
    /// [`TableError::TooNew`] for a folder of a later format, [`TableError::Storage`] for a URL or
    /// settings that mean nothing.
    pub fn open_with(location: &str, options: &StorageOptions) -> Result<Self> {
        let folder = match location.split_once("://") {
            Some(("file", rest)) => PathBuf::from(rest),
            Some(_) => return Self::over(Store::open(location, options)?),
            None => PathBuf::from(location),
        };
        let folder = std::path::absolute(&folder)
            .and_then(without_dots)
            .map_err(|e| TableError::io(format!("the lake path {}", folder.display()), e))?;
        if folder.is_file() {
            return Err(TableError::Invalid(format!(
                "{} is a file; a lake is a folder",
                folder.display()
            )));
        }
        let root = StorePath::from_absolute_path(&folder)
            .map_err(|e| TableError::Invalid(format!("the lake path {}: {e}", folder.display())))?;
        check_folder_format(&folder)?;
        Ok(Self::of(Place::Folder(folder), root, Store::open("file:///", options)?))
    }

    /// The lake at the path that a store was opened with.
    ///
    /// # Errors
    /// [`TableError::Invalid`] if the store's URL cannot have paths.
    pub fn over(storage: Arc<Store>) -> Result<Self> {
        let root = storage.prefix().clone();
        let mut url = storage.url().clone();
        {
            let refuse = || TableError::Invalid(format!("{} cannot hold a lake", storage.url()));
            let mut segments = url.path_segments_mut().map_err(|()| refuse())?;
            segments.pop_if_empty().extend(root.parts().map(|part| part.as_ref().to_owned()));
            segments.push("");
        }
        let scheme = Url::parse(&format!("{}://", url.scheme()))
            .map_err(|e| TableError::Invalid(format!("{url} cannot hold a lake: {e}")))?;
        logstore_factories().entry(scheme).or_insert_with(|| Arc::new(LogStores));
        Ok(Self::of(Place::Url(url), root, storage))
    }

    fn of(place: Place, root: StorePath, storage: Arc<Store>) -> Self {
        let store: Arc<dyn ObjectStore> = Arc::<Store>::clone(&storage);
        Self { place, root, storage, store, domains: Arc::default(), state: Arc::default() }
    }

    /// The lake with a folder for what can be made anew at any time, the dictionaries of id domains;
    /// `report` hears how far one is read, should that be needed.
    #[must_use]
    pub fn with_cache(self, folder: Option<PathBuf>, report: Option<ReportDomain>) -> Self {
        Self { domains: Arc::new(OpenDomains::new(folder, report)), ..self }
    }

    /// A lake within this one, below `relative`: tables that are not among its own, in the same store.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a path that cannot be.
    pub fn within(&self, relative: &str) -> Result<Self> {
        let root = self.path_of(relative)?;
        let place = match &self.place {
            Place::Folder(folder) => Place::Folder(folder.join(relative)),
            Place::Url(_) => Place::Url(self.table_url(relative)?),
        };
        Ok(Self::of(place, root, Arc::clone(&self.storage)))
    }

    pub(crate) fn domains(&self) -> &OpenDomains {
        &self.domains
    }

    /// Where this machine keeps what it knows of the lake, if it does.
    pub fn local_folder(&self) -> Option<PathBuf> {
        let lake = match &self.place {
            Place::Folder(folder) => hash(folder.as_os_str().as_encoded_bytes()),
            Place::Url(url) => hash(url.as_str().as_bytes()),
        };
        let lake = format!("{lake:016x}");
        Some(self.domains.cache.as_ref()?.join(lake))
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The folder, absolute, or the URL.
    pub fn location(&self) -> String {
        match &self.place {
            Place::Folder(folder) => folder.display().to_string(),
            Place::Url(url) => url.as_str().trim_end_matches('/').to_owned(),
        }
    }

    /// Is the lake elsewhere than in a local folder, so that each look at it is a round trip?
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Url(_))
    }

    /// The store that the lake is read and written through; paths in it are from the store's root,
    /// those of a local folder absolute.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The same as what it is: with counters, a cache to forget and to warm.
    pub fn storage(&self) -> &Arc<Store> {
        &self.storage
    }

    /// The lake's root within [`Lake::store`].
    pub fn root(&self) -> &StorePath {
        &self.root
    }

    /// A path within [`Lake::store`] of what lies at `relative` in the lake.
    pub(crate) fn path_of(&self, relative: &str) -> Result<StorePath> {
        let path = match self.root.as_ref() {
            "" => relative.to_owned(),
            root => format!("{root}/{relative}"),
        };
        StorePath::parse(path)
            .map_err(|e| TableError::Invalid(format!("{relative} in {}: {e}", self.location())))
    }

    /// Names of the tables, sorted.
    ///
    /// # Errors
    /// [`TableError::Io`] or [`TableError::Store`] if the lake cannot be listed; a missing folder is
    /// an empty lake.
    pub async fn table_names(&self) -> Result<Vec<String>> {
        if let Place::Folder(folder) = &self.place {
            return tables_in_folder(folder);
        }
        let failed = |e| TableError::store(format!("listing {}", self.location()), e);
        let found = self.store.list_with_delimiter(Some(&self.root)).await.map_err(failed)?;
        let mut looks = Vec::new();
        for folder in &found.common_prefixes {
            looks.extend(folder.filename().map(|name| self.named_table(name.to_owned())));
        }
        let found: Vec<Option<String>> =
            futures::stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect().await?;
        let mut names: Vec<String> = found.into_iter().flatten().collect();
        names.sort();
        Ok(names)
    }

    /// Is there a lake, with tables or without?
    ///
    /// # Errors
    /// [`TableError::Store`] if the store cannot be asked.
    pub async fn is_there(&self) -> Result<bool> {
        match &self.place {
            Place::Folder(folder) => Ok(folder.join(LAKE_FILE).exists()),
            Place::Url(_) => self.is_marked().await,
        }
    }

    /// Is there such a table? A log without a commit (a crash while the table was made) is none.
    ///
    /// # Errors
    /// [`TableError::Store`] if the store cannot be asked.
    pub async fn has_table(&self, name: &str) -> Result<bool> {
        if check_table_name(name).is_err() {
            return Ok(false);
        }
        if let Place::Folder(folder) = &self.place {
            return Ok(folder_has_table(folder, name));
        }
        let log = self.path_of(&format!("{name}/_delta_log"))?;
        let mut objects = self.store.list(Some(&log));
        let failed = |e| TableError::store(format!("listing {log}"), e);
        while let Some(object) = objects.try_next().await.map_err(failed)? {
            if object.location.filename().is_some_and(is_commit_name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn named_table(&self, name: String) -> Result<Option<String>> {
        Ok(self.has_table(&name).await?.then_some(name))
    }

    pub(crate) fn table_url(&self, name: &str) -> Result<Url> {
        match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                Url::from_directory_path(&path).map_err(|()| {
                    TableError::Invalid(format!(
                        "{} cannot be written as a file URL",
                        path.display()
                    ))
                })
            }
            Place::Url(url) => url
                .join(&format!("{name}/"))
                .map_err(|e| TableError::Invalid(format!("table `{name}` in {url}: {e}"))),
        }
    }

    /// The path of the table's folder within [`Lake::store`].
    pub(crate) fn table_prefix(&self, name: &str) -> Result<StorePath> {
        match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                StorePath::from_absolute_path(&path)
                    .map_err(|e| TableError::Invalid(format!("table path {}: {e}", path.display())))
            }
            Place::Url(_) => self.path_of(name),
        }
    }

    /// Makes the folder and `_uplake/lake.json` if they are not there.
    ///
    /// The file appears whole or not at all: others open the lake meanwhile.
    pub(crate) async fn initialise(&self) -> Result<()> {
        let marked = match &self.place {
            Place::Folder(folder) => folder.join(LAKE_FILE).exists(),
            Place::Url(_) => self.is_marked().await?,
        };
        if marked {
            return Ok(());
        }
        if let Place::Folder(folder) = &self.place {
            // The store would make the folder, too, but says less clearly why it cannot.
            create_folder(&folder.join("_uplake")).map_err(|e| {
                TableError::io(format!("creating the lake {}", folder.display()), e)
            })?;
        }
        let mark = format!("{{\"format\": {LAKE_FORMAT}}}\n");
        let path = self.path_of(LAKE_FILE)?;
        match self.store.put_opts(&path, mark.into(), PutMode::Create.into()).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(e) => Err(TableError::store(format!("creating the lake {}", self.location()), e)),
        }
    }

    /// Refuses stores on which a commit could be lost: of two writers that create one object, exactly
    /// one must be told that it did. Asked once per process, before its first write to a lake.
    ///
    /// This finds stores that ignore the condition. Those that check first and write later are found by
    /// `uplake lake probe`, with many more races.
    pub(crate) async fn check_promise(&self) -> Result<()> {
        if !self.is_remote() {
            return Ok(());
        }
        self.state.keeps_promise.get_or_try_init(|| self.create_twice()).await.copied()
    }

    async fn create_twice(&self) -> Result<()> {
        let path = self.path_of(&format!("_uplake/probe-{}", uuid::Uuid::new_v4().simple()))?;
        let put = || self.store.put_opts(&path, "is it there?\n".into(), PutMode::Create.into());
        let refuse = |reason: &str| {
            let (lake, reason) = (self.location(), reason.to_owned());
            Err(TableError::UnsafeStore { lake, reason })
        };
        let failed = |e| TableError::store(format!("writing {path}"), e);
        match put().await {
            Ok(_) => {}
            Err(object_store::Error::NotImplemented { .. }) => {
                return refuse("it cannot create an object only if it is not there");
            }
            Err(e) => return Err(failed(e)),
        }
        let again = put().await;
        // What stays is a few bytes.
        let _ = self.store.delete(&path).await;
        match again {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(e) => Err(failed(e)),
            Ok(_) => refuse(
                "two writers created one object and both were told that they did, so that a commit \
                 could be lost to another (the store ignores `If-None-Match`)",
            ),
        }
    }

    /// Is there a `lake.json`? One of a later format is refused. A folder's was read when it was opened.
    pub(crate) async fn is_marked(&self) -> Result<bool> {
        if !self.is_remote() {
            return Ok(true);
        }
        self.state.format.get_or_try_init(|| self.look_for_mark()).await.copied()
    }

    async fn look_for_mark(&self) -> Result<bool> {
        let path = self.path_of(LAKE_FILE)?;
        let failed = |e| TableError::store(format!("reading {path}"), e);
        let bytes = match self.store.get(&path).await {
            Ok(found) => found.bytes().await.map_err(failed)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(e) => return Err(failed(e)),
        };
        let at = PathBuf::from(format!("{}/{LAKE_FILE}", self.location()));
        check_format(at, &String::from_utf8_lossy(&bytes))?;
        Ok(true)
    }

    /// Remembers that a commit may have taken effect that names these data files.
    pub(crate) fn doubt(&self, files: impl IntoIterator<Item = String>) {
        let mut doubtful = self.state.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        doubtful.extend(files);
    }

    /// May a commit name this data file, although it failed?
    pub(crate) fn is_doubtful(&self, file: &str) -> bool {
        self.state.doubtful.lock().unwrap_or_else(PoisonError::into_inner).contains(file)
    }
}

/// Logs in buckets: commits are puts that succeed only if the object is not there yet.
struct LogStores;

impl LogStoreFactory for LogStores {
    fn with_options(
        &self,
        prefixed_store: ObjectStoreRef,
        root_store: ObjectStoreRef,
        location: &Url,
        options: &StorageConfig,
    ) -> DeltaResult<Arc<dyn LogStore>> {
        Ok(default_logstore(prefixed_store, root_store, location, options))
    }
}

/// Makes a folder and those above it that are not there, and puts their names on the disk.
fn create_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_folder(above)?;
    }
    match std::fs::create_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made?,
    }
    match folder.parent().map(std::fs::File::open) {
        Some(Ok(above)) => above.sync_all(),
        // It may be written to and not be read.
        Some(Err(_)) | None => Ok(()),
    }
}

/// FNV-1a: the same in every version, which the standard library's hasher is not.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The path without `..`, which names the folder above the one that a link leads to.
fn without_dots(path: PathBuf) -> std::io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part != Component::ParentDir {
            plain.push(part);
            continue;
        }
        match std::fs::canonicalize(&plain) {
            Ok(real) => plain = real,
            // One that is not there leads nowhere.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        plain.pop();
    }
    Ok(plain)
}

fn tables_in_folder(folder: &Path) -> Result<Vec<String>> {
    let failed = |e| TableError::io(format!("listing {}", folder.display()), e);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if check_table_name(&name).is_ok() && folder_has_table(folder, &name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

pub(crate) fn folder_has_table(folder: &Path, name: &str) -> bool {
    let is_commit = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| is_commit_name(&e.file_name().to_string_lossy()))
    };
    std::fs::read_dir(folder.join(name).join("_delta_log"))
        .is_ok_and(|mut entries| entries.any(is_commit))
}

fn check_folder_format(folder: &Path) -> Result<()> {
    let path = folder.join(LAKE_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => check_format(path, &text),
        Err(_) => Ok(()),
    }
}

fn check_format(path: PathBuf, text: &str) -> Result<()> {
    let found = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|v| v.get("format")?.as_u64())
        .ok_or_else(|| {
            TableError::Damaged(format!(
                "{} is not readable; it should be {{\"format\": {LAKE_FORMAT}}}",
                path.display()
            ))
        })?;
    if found > LAKE_FORMAT {
        return Err(TableError::TooNew { path, found, supported: LAKE_FORMAT });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lake_of_a_later_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("_uplake")).unwrap();
        std::fs::write(dir.path().join("_uplake/lake.json"), "{\"format\": 99}").unwrap();
        let error = Lake::open(dir.path().to_str().unwrap()).unwrap_err();
        assert!(matches!(error, TableError::TooNew { found: 99, .. }), "{error}");
    }

    #[test]
    fn a_lake_that_others_make_opens_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let lakes: Vec<_> = (0..200).map(|i| dir.path().join(format!("lake {i}"))).collect();
        let start = std::sync::Barrier::new(4);
        let make_all = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let make = |lake: &PathBuf| {
                start.wait();
                let lake = Lake::open(lake.to_str().unwrap()).map_err(|e| e.to_string())?;
                runtime.block_on(lake.initialise()).map_err(|e| e.to_string())
            };
            lakes.iter().filter_map(|lake| make(lake).err()).collect::<Vec<_>>()
        };
        let errors: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make_all)).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(errors, Vec::<String>::new());
    }
}
