//! The local file system as a store whose objects outlive a power cut once they are put.
//!
//! `object_store` 0.13 writes a file and gives it its name; the disk may have the name before the bytes, and
//! neither when the machine stops. Here an object's bytes are on the disk before its name is, its name before
//! whoever puts it goes on, and so are the folders that were made for it. Uploads in parts are not: who writes
//! large files syncs them together, before he commits them.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, Result,
};

/// What errors call it.
const STORE: &str = "LocalFileSystem";

/// The file system.
#[derive(Debug)]
pub(crate) struct Durable(Arc<LocalFileSystem>);

impl Durable {
    pub fn new() -> Self {
        Self(Arc::new(LocalFileSystem::new()))
    }
}

impl Display for Durable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for Durable {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_new = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return self.0.put_opts(location, payload, options).await,
        };
        if !options.attributes.is_empty() {
            return self.0.put_opts(location, payload, options).await;
        }
        let path = self.0.path_to_filesystem(location)?;
        on_thread(move || put(&path, &payload, is_new).map_err(|error| failed(&path, error)))
            .await?;
        let e_tag = self.0.head(location).await.ok().and_then(|meta| meta.e_tag);
        Ok(PutResult { e_tag, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = Arc::clone(&self.0);
        let deleted = self.0.delete_stream(locations).then(move |deleted| {
            let store = Arc::clone(&store);
            async move {
                let location = deleted?;
                let path = store.path_to_filesystem(&location)?;
                on_thread(move || match path.parent().map_or(Ok(()), sync) {
                    // The folder went with its last file.
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path, error)),
                    _ => Ok(()),
                })
                .await?;
                Ok(location)
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

/// Makes a file, or puts it in the place of another.
fn put(path: &LocalPath, payload: &PutPayload, is_new: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(LocalPath::new("/"));
    create_folder(folder)?;
    let (staged, mut file) = stage(path)?;
    let named = write(&mut file, payload).and_then(|()| match is_new {
        true => fs::hard_link(&staged, path),
        false => fs::rename(&staged, path),
    });
    if is_new || named.is_err() {
        // What stays is not seen by anybody.
        let _ = fs::remove_file(&staged);
    }
    named?;
    sync(folder)
}

fn write(file: &mut File, payload: &PutPayload) -> io::Result<()> {
    payload.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}

/// A file beside `path` under a name that stores do not list.
fn stage(path: &LocalPath) -> io::Result<(PathBuf, File)> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!("#{}", uuid::Uuid::new_v4().as_u128()));
    let staged = PathBuf::from(staged);
    let file = File::create_new(&staged)?;
    Ok((staged, file))
}

/// Makes a folder and those above it that are not there, and puts their names on the disk.
fn create_folder(folder: &LocalPath) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_folder(above)?;
    }
    match fs::create_dir(folder) {
        // Another was faster, and is about to put it on the disk.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made?,
    }
    folder.parent().map_or(Ok(()), sync)
}

/// Puts what a folder names on the disk. One that may not be read is another's.
fn sync(folder: &LocalPath) -> io::Result<()> {
    match File::open(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        opened => opened?.sync_all(),
    }
}

fn failed(path: &LocalPath, source: io::Error) -> Error {
    let (at, kind) = (path.display().to_string(), source.kind());
    match kind {
        ErrorKind::AlreadyExists => Error::AlreadyExists { path: at, source: source.into() },
        ErrorKind::NotFound => Error::NotFound { path: at, source: source.into() },
        ErrorKind::PermissionDenied => Error::PermissionDenied { path: at, source: source.into() },
        _ => Error::Generic { store: STORE, source: format!("{at}: {source}").into() },
    }
}

/// Blocking work on a thread of its own.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, wait) = tokio::sync::oneshot::channel();
    let spawned = std::thread::Builder::new().name("uplake-sync".into()).spawn(move || {
        // The receiver is gone only if the caller gave up; then nobody wants the result.
        let _ = done.send(work());
    });
    let lost =
        |source: Box<dyn std::error::Error + Send + Sync>| Error::Generic { store: STORE, source };
    spawned.map_err(|error| lost(error.into()))?;
    wait.await.map_err(|error| lost(error.into()))?
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn objects_are_made_once_or_replaced_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Durable::new();
        let root = Path::from_absolute_path(folder.path()).unwrap();
        let path = root.clone().join("a").join("b").join("c");
        let create =
            |text: &'static str| store.put_opts(&path, text.into(), PutMode::Create.into());
        let made = create("one").await.unwrap();
        let refused = create("two").await.unwrap_err();
        assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "one");
        let replaced = store.put(&path, "three".into()).await.unwrap();
        assert_ne!(made.e_tag, replaced.e_tag);
        assert_eq!(store.head(&path).await.unwrap().e_tag, replaced.e_tag);
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "three");
        let there: Vec<ObjectMeta> = store.list(Some(&root)).try_collect().await.unwrap();
        assert_eq!(there.len(), 1);
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
        store.delete(&path).await.unwrap();
        assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
        // A file where a folder would have to be.
        store.put(&root.clone().join("f"), "x".into()).await.unwrap();
        assert!(store.put(&root.join("f").join("g"), "x".into()).await.is_err());
    }
}
