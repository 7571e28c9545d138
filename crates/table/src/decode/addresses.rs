//! From what users name to input files: paths and patterns of this machine, and addresses.
//!
//! An address in a bucket (`s3://`, `gs://`, `az://`) is an object, a folder, or a pattern, as a path is. One of a web
//! server (`https://`, `http://`) is what the server answers.
//!
//! # Not here
//! Local paths: `source`. How objects are read: `objects`.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use uplake_objectio::{ByteSize, StorageOptions, Store};

use super::objects::Object;
use super::source::{InputFile, Place, expand_inputs};
use super::web_files::WebFiles;
use crate::error::{Result, TableError};
use crate::lake::Lake;

/// Schemes of buckets.
const BUCKETS: [&str; 3] = ["s3", "gs", "az"];
const WEB: [&str; 2] = ["https", "http"];
/// What makes a pattern.
const GLOBS: [char; 3] = ['*', '?', '['];
/// Buckets that stay open: a process is asked for few.
const MOST_OPEN: usize = 32;
/// A pattern that more objects match was a mistake, and their names take memory.
const MOST_OBJECTS: usize = 100_000;

/// The stores that addresses lead to.
#[derive(Debug)]
pub struct InputStores {
    own: Arc<Store>,
    opened: Mutex<HashMap<String, Arc<Store>>>,
    web: Arc<WebFiles>,
}

/// A bucket and what is named in it.
struct InBucket<'a> {
    scheme: &'a str,
    bucket: &'a str,
    key: &'a str,
}

impl InBucket<'_> {
    fn root(&self) -> String {
        format!("{}://{}/", self.scheme, self.bucket)
    }

    /// The object or folder of this name.
    fn location(&self) -> Result<Path, object_store::path::Error> {
        Path::from_url_path(self.key.trim_end_matches('/'))
    }

    /// What has all that a pattern matches; `None` if it is none.
    fn folder(&self) -> Result<Option<Path>, object_store::path::Error> {
        if !self.key.contains(GLOBS) {
            return Ok(None);
        }
        let plain: Vec<&str> =
            self.key.split('/').take_while(|part| !part.contains(GLOBS)).collect();
        Path::parse(plain.join("/")).map(Some)
    }

    fn address(&self, location: &Path) -> String {
        format!("{}{location}", self.root())
    }
}

/// Is it an address, and no path of this machine?
pub fn is_address(named: &str) -> bool {
    let scheme = named.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| BUCKETS.contains(&scheme) || WEB.contains(&scheme))
}

/// What is said of an address of another kind; `None` of what is no address.
pub fn unknown_address(named: &str) -> Option<String> {
    let is_unknown =
        named.contains("://") && !is_address(named) && !std::path::Path::new(named).exists();
    is_unknown.then(|| {
        format!("{named} is no address that is known: they begin with s3://, gs://, az://, https:// or http://")
    })
}

/// Can what an address names be in the folder of a bucket, the root of whose store is `root`, or hold it?
pub fn is_address_within(named: &str, root: &str, folder: &Path) -> bool {
    let Ok(Some(at)) = in_bucket(named) else { return false };
    let is_there = |named: &Path| named.prefix_matches(folder) || folder.prefix_matches(named);
    let named = [at.location().ok(), at.folder().ok().flatten()];
    at.root().eq_ignore_ascii_case(root) && named.iter().flatten().any(is_there)
}

impl InputStores {
    /// That of the lake is opened already; others get its settings.
    pub fn new(lake: &Lake) -> Self {
        let own = Arc::clone(lake.storage());
        let web = Arc::new(WebFiles::new(without_cache(&own)));
        Self { own, opened: Mutex::default(), web }
    }

    /// Files of web servers, for whoever reads parts of them.
    pub fn web(&self) -> &Arc<WebFiles> {
        &self.web
    }

    /// The input files that paths, patterns, addresses and `-` (standard input) stand for, in order; a pattern's files
    /// are sorted by name, and so are a folder's, without those that begin with `.` or `_` and without folders in it.
    ///
    /// # Errors
    /// [`TableError::NoSuchFile`] for what matches nothing; what a store says of an address.
    pub async fn inputs(&self, named: &[String]) -> Result<Vec<InputFile>> {
        let mut files = Vec::new();
        for name in named {
            if is_address(name) {
                files.extend(self.objects(name).await?);
            } else if let Some(unknown) = unknown_address(name) {
                return Err(TableError::Invalid(unknown));
            } else {
                files.extend(expand_inputs(std::slice::from_ref(name))?);
            }
        }
        Ok(files)
    }

    /// The store of the bucket that an address lies in; `None` if it is none of a bucket.
    ///
    /// # Errors
    /// What the settings of the bucket lack.
    pub fn bucket(&self, address: &str) -> Result<Option<Arc<Store>>> {
        in_bucket(address)?.map(|at| self.open(&at.root())).transpose()
    }

    fn open(&self, root: &str) -> Result<Arc<Store>> {
        if self.own.url().as_str() == root {
            return Ok(Arc::clone(&self.own));
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(root) {
            return Ok(Arc::clone(store));
        }
        let store = Store::open(root, &self.options())?;
        if opened.len() >= MOST_OPEN {
            opened.clear();
        }
        opened.insert(root.to_owned(), Arc::clone(&store));
        Ok(store)
    }

    fn options(&self) -> StorageOptions {
        without_cache(&self.own)
    }

    async fn objects(&self, named: &str) -> Result<Vec<InputFile>> {
        let Some(at) = in_bucket(named)? else {
            let store = Store::open_address(named, &self.options())?;
            return Ok(vec![input(named.to_owned(), &store, Path::default(), None)]);
        };
        let store = self.open(&at.root())?;
        let location = at.location().map_err(|error| no_address(named, &error))?;
        let folder = at.folder().map_err(|error| no_address(named, &error))?;
        let of_objects = |objects: Vec<ObjectMeta>| -> Vec<InputFile> {
            let file = |object: ObjectMeta| {
                let address = at.address(&object.location);
                input(address, &store, object.location.clone(), Some(object))
            };
            objects.into_iter().map(file).collect()
        };
        if !at.key.is_empty() && !at.key.ends_with('/') {
            match store.head(&location).await {
                Ok(object) => return Ok(of_objects(vec![object])),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(TableError::store(format!("reading {named}"), error)),
            }
        }
        let found = match folder {
            Some(folder) => matching(&store, named, at.key, &folder).await?,
            None => of_folder(&store, named, &location).await?,
        };
        match found.is_empty() {
            true => Err(TableError::NoSuchFile { pattern: named.to_owned() }),
            false => Ok(of_objects(found)),
        }
    }
}

/// The lake's settings, whose cache is for the lake.
fn without_cache(own: &Store) -> StorageOptions {
    let none = ByteSize::default();
    let options = own.options().clone();
    StorageOptions { memory_cache: none, disk_cache: none, disk_cache_path: None, ..options }
}

fn input(name: String, store: &Arc<Store>, location: Path, meta: Option<ObjectMeta>) -> InputFile {
    let size = meta.map(|meta| meta.size);
    let (store, runtime) = (Arc::clone(store), Handle::current());
    let e_tag = OnceLock::new();
    let object = Object { address: name.clone(), store, location, size, e_tag, runtime };
    InputFile { name, place: Place::Object(Arc::new(object)) }
}

/// `None` for what is in no bucket.
fn in_bucket(named: &str) -> Result<Option<InBucket<'_>>> {
    let Some((scheme, rest)) = named.split_once("://") else { return Ok(None) };
    if !BUCKETS.contains(&scheme) {
        return Ok(None);
    }
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    // Everything has one address: other spellings would get around who looks at it.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if bucket.is_empty() || !bucket.chars().all(is_plain) {
        return Err(no_address(named, &format!("`{bucket}` is no name of a bucket")));
    }
    if key.starts_with('/') || key.contains("//") {
        return Err(no_address(named, &"there is a part without a name in it"));
    }
    Ok(Some(InBucket { scheme, bucket, key }))
}

fn no_address(named: &str, why: &dyn Display) -> TableError {
    TableError::Invalid(format!("{named} is no address of an object: {why}"))
}

/// The objects of a folder itself, but hidden ones and those that writers keep for themselves.
async fn of_folder(store: &Store, named: &str, folder: &Path) -> Result<Vec<ObjectMeta>> {
    let found = store.list_with_delimiter(Some(folder)).await;
    let found = found.map_err(|error| TableError::store(format!("listing {named}"), error))?;
    let is_meant = |object: &ObjectMeta| {
        let name = object.location.filename().unwrap_or_default();
        object.location != *folder && !name.starts_with(['.', '_'])
    };
    let mut objects: Vec<ObjectMeta> = found.objects.into_iter().filter(is_meant).collect();
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(objects)
}

/// The objects that a pattern matches, as the names of files on this machine would be.
async fn matching(
    store: &Store,
    named: &str,
    pattern: &str,
    folder: &Path,
) -> Result<Vec<ObjectMeta>> {
    let invalid = |error: &dyn Display| TableError::Invalid(format!("pattern `{named}`: {error}"));
    let compiled = Pattern::new(pattern).map_err(|error| invalid(&error))?;
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let failed = |error| TableError::store(format!("listing {named}"), error);
    let mut objects = Vec::new();
    let mut listed = store.list(Some(folder));
    while let Some(object) = listed.try_next().await.map_err(failed)? {
        if !compiled.matches_with(object.location.as_ref(), options) {
            continue;
        }
        if objects.len() == MOST_OBJECTS {
            return Err(invalid(&format!("matches more than {MOST_OBJECTS} objects")));
        }
        objects.push(object);
    }
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(folder: &std::path::Path) -> InputStores {
        InputStores::new(&Lake::open(folder.to_str().unwrap()).unwrap())
    }

    /// What a name stands for in a store with these objects.
    async fn found(objects: &[&str], pattern: &str) -> Vec<String> {
        let store = Store::open("memory:///", &StorageOptions::default()).unwrap();
        for object in objects {
            store.put(&Path::from(*object), "x".into()).await.unwrap();
        }
        let found = match pattern.strip_suffix('/') {
            Some(folder) => of_folder(&store, pattern, &Path::from(folder)).await,
            None => {
                let at = InBucket { scheme: "s3", bucket: "b", key: pattern };
                matching(&store, pattern, pattern, &at.folder().unwrap().unwrap()).await
            }
        };
        found.unwrap().into_iter().map(|object| object.location.to_string()).collect()
    }

    #[tokio::test]
    async fn patterns_and_folders_are_those_of_file_systems() {
        let objects = ["d/b.csv", "d/a.csv", "d/.h.csv", "d/_w.csv", "d/e/c.csv", "d/e/f/g.csv"];
        for (pattern, expected) in [
            ("d/*.csv", &["d/_w.csv", "d/a.csv", "d/b.csv"][..]),
            ("d/[ab].csv", &["d/a.csv", "d/b.csv"]),
            ("d/?.csv", &["d/a.csv", "d/b.csv"]),
            ("*/e/*.csv", &["d/e/c.csv"]),
            ("d/e/**/*.csv", &["d/e/c.csv", "d/e/f/g.csv"]),
            ("d/*.json", &[]),
            ("d/", &["d/a.csv", "d/b.csv"]),
            ("d/e/", &["d/e/c.csv"]),
            ("x/", &[]),
        ] {
            assert_eq!(found(&objects, pattern).await, expected, "{pattern}");
        }
    }

    #[test]
    fn what_may_be_in_a_folder_is_seen_from_its_address() {
        let within = |named: &str| is_address_within(named, "s3://b/", &Path::from("a/lake"));
        for named in [
            "s3://b/a/lake/t/x.csv",
            "s3://b/a/l%61ke/t/x.csv",
            "s3://b/a/*/t/x.csv",
            "s3://b/**/x.csv",
            "s3://b/a/l[a]ke/x.csv",
            "s3://b/a/lak?/x.csv",
            "s3://b",
            "s3://b/a/",
            "s3://b/a/lake",
            "s3://B/a/lake/x.csv",
            "s3://b/a/l%61ke/x*.csv",
        ] {
            assert!(within(named), "{named}");
        }
        for named in
            ["s3://c/a/lake/x.csv", "s3://b/a/lakes/x.csv", "s3://b/c/*.csv", "gs://b/a/lake/x.csv"]
        {
            assert!(!within(named), "{named}");
        }
        for named in [
            "s3://u@b/a/lake/x.csv",
            "s3://b:80/a",
            "s3:///a",
            "s3://b//a/lake",
            "s3://b/a//lake/x",
        ] {
            assert!(in_bucket(named).is_err() && !within(named), "{named}");
        }
    }

    #[tokio::test]
    async fn what_is_no_address_is_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let stores = stores(folder.path());
        assert!(!is_address("ftp://host/a.csv") && !is_address("a.csv") && is_address("s3://b"));
        let none = stores.inputs(&["nothing.csv".to_owned()]).await.unwrap_err();
        assert!(matches!(none, TableError::NoSuchFile { .. }), "{none}");
        let unknown = stores.inputs(&["ftp://host/a.csv".to_owned()]).await.unwrap_err();
        assert!(unknown.to_string().contains("ftp://host/a.csv is no address"), "{unknown}");
        let web = stores.inputs(&["https://host/a.csv?b=c".to_owned()]).await.unwrap();
        assert_eq!(web[0].name, "https://host/a.csv?b=c");
        assert!(stores.bucket("https://host/a.csv").unwrap().is_none());
    }
}
