//! The lake's own files, which a statement that names files does not reach unless its user may.
//!
//! A data file that is read in place has the rows and columns that a policy leaves out, and what is written among them
//! is no commit's. So where a path of a statement ends up is looked at, links followed: once when it is named, for an
//! error that says why, and at each access of a fenced session, for folders and patterns that lead there.
//!
//! # Not here
//! Who may (`guard` asks); tables, which are read by a reader of their own and through no store of these.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::object_store::{
    DefaultObjectStoreRegistry, ObjectStoreRegistry, ObjectStoreUrl,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path as StorePath;
use datafusion::object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result as StoreResult,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use uplake_table::{Lake, is_address, is_address_within};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::scan::storage::store_url;

const LOCAL: &str = "file";

/// Is what a statement names a file or folder of the lake itself? In a bucket, where folders are listed whole, one that
/// holds the lake is, too.
pub(crate) fn are_own(lake: &Lake, named: &str) -> bool {
    if is_address(named) {
        let root = lake.storage().url();
        return lake.is_remote() && is_address_within(named, root.as_str(), lake.root());
    }
    // What is no path is no file either.
    let Ok(url) = ListingTableUrl::parse(named) else { return false };
    if lake.is_remote() {
        let is_its_store = store_url(lake).is_ok_and(|own| own == url.object_store());
        let (root, named) = (lake.root(), url.prefix());
        return is_its_store && (named.prefix_matches(root) || root.prefix_matches(named));
    }
    url.scheme() == LOCAL && is_within(&on_disk(url.prefix()), &folder(lake))
}

/// What is said to who may not.
pub(crate) fn refused(named: &str) -> EngineError {
    let message = format!("permission denied: `{named}` is in the lake's own folder");
    EngineError::statement(SqlState::InsufficientPrivilege, message).with_hint(
        "rows are read and written by the names of tables, of which policies and rights say who sees what; \
         files of the lake itself are for members of admin",
    )
}

/// The same runtime, which reads and writes files of this machine outside of the lake alone.
pub(crate) fn fenced(runtime: &Arc<RuntimeEnv>, lake: &Lake) -> Arc<RuntimeEnv> {
    if lake.is_remote() {
        return Arc::clone(runtime);
    }
    // There is no other store.
    let stores = DefaultObjectStoreRegistry::new();
    let outside = Outside { files: LocalFileSystem::new(), own: folder(lake) };
    stores.register_store(ObjectStoreUrl::local_filesystem().as_ref(), Arc::new(outside));
    Arc::new(RuntimeEnv { object_store_registry: Arc::new(stores), ..runtime.as_ref().clone() })
}

/// The folder of a lake that is in one.
fn folder(lake: &Lake) -> PathBuf {
    on_disk(lake.root())
}

/// A path of the store of all local files.
fn on_disk(path: &StorePath) -> PathBuf {
    Path::new("/").join(path.as_ref())
}

/// Does a path lead into the folder? Both may go over links, and what is written is not there yet.
fn is_within(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
}

/// The path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    // A link that leads nowhere is written through.
    if let Ok(target) = path.read_link() {
        let from = path.parent().unwrap_or(Path::new("/"));
        // Links in a circle are not written through, and end nowhere.
        return lexical(&from.join(target));
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// The same, of a link's target: its folder without links.
fn lexical(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            parent.canonicalize().unwrap_or_else(|_| parent.to_owned()).join(name)
        }
        _ => path.to_owned(),
    }
}

/// Files of this machine but those in a folder.
#[derive(Debug)]
struct Outside {
    files: LocalFileSystem,
    own: PathBuf,
}

impl Outside {
    fn check(&self, location: &StorePath) -> StoreResult<()> {
        let path = on_disk(location);
        if !is_within(&path, &self.own) {
            return Ok(());
        }
        Err(denied(&path))
    }
}

fn denied(path: &Path) -> StoreError {
    let path = path.display().to_string();
    let source = Box::new(refused(&path));
    StoreError::PermissionDenied { path, source }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.files, f)
    }
}

#[async_trait]
impl ObjectStore for Outside {
    async fn get_opts(&self, location: &StorePath, options: GetOptions) -> StoreResult<GetResult> {
        self.check(location)?;
        self.files.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &StorePath,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.check(location)?;
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &StorePath,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.check(location)?;
        self.files.put_multipart_opts(location, options).await
    }

    /// No statement removes files.
    fn delete_stream(
        &self,
        _: BoxStream<'static, StoreResult<StorePath>>,
    ) -> BoxStream<'static, StoreResult<StorePath>> {
        futures::stream::iter([Err(StoreError::NotImplemented {
            operation: "delete".to_owned(),
            implementer: self.to_string(),
        })])
        .boxed()
    }

    /// What is known of a file by its name, such as its footer, may be kept: it is not found here at all. A link to one is
    /// refused, and not left out of what is read.
    fn list(&self, prefix: Option<&StorePath>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let own = self.own.clone();
        let seen = move |found: StoreResult<ObjectMeta>| {
            let seen = found.and_then(|file| {
                let path = on_disk(&file.location);
                if path.starts_with(&own) {
                    return Ok(None);
                }
                if is_within(&path, &own) { Err(denied(&path)) } else { Ok(Some(file)) }
            });
            std::future::ready(seen.transpose())
        };
        self.files.list(prefix).filter_map(seen).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&StorePath>) -> StoreResult<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &StorePath,
        to: &StorePath,
        options: CopyOptions,
    ) -> StoreResult<()> {
        self.check(from)?;
        self.check(to)?;
        self.files.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_path_is_where_its_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for made in ["lake/t", "lakes", "other"] {
            std::fs::create_dir_all(path(made)).unwrap();
        }
        std::fs::write(path("lake/t/x.csv"), "a\n1\n").unwrap();
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(path(to), path(at)).unwrap();
        link("lake", "other/folder");
        link("lake/t/x.csv", "other/x.csv");
        link("lake/new.csv", "other/new.csv");
        link("other/round.csv", "other/round.csv");
        link("lake", "way");
        std::os::unix::fs::symlink("../lake/new.csv", path("other/relative.csv")).unwrap();
        let lake = Lake::open(path("way").to_str().unwrap()).unwrap();
        let named = |name: &str| are_own(&lake, path(name).to_str().unwrap());
        for own in [
            "lake",
            "lake/",
            "lake/t/x.csv",
            "lake/t/*.csv",
            "lake/t/new.csv",
            "lake/u/v/new.csv",
            "way/t/x.csv",
            "other/folder/t/x.csv",
            "other/folder/new.csv",
            "other/x.csv",
            "other/new.csv",
            "other/relative.csv",
            "other/../lake/t/x.csv",
            "lakes/../other/folder/t/",
            "./lake/t/x.csv",
        ] {
            assert!(named(own), "{own}");
        }
        for other in
            ["lakes/x.csv", "lake.csv", "other/", "*.csv", "other/round.csv", "lakes/../x.csv"]
        {
            assert!(!named(other), "{other}");
        }
        let file = format!("file://{}/lake/t/x.csv", folder.path().display());
        let encoded = format!("file://{}/l%61ke/t/x.csv", folder.path().display());
        assert!(are_own(&lake, &file) && are_own(&lake, &encoded));
        assert!(!are_own(&lake, "s3://bucket/lake/t/x.csv") && !are_own(&lake, "t"));
    }
}
