//! [`Store`]: the layers together, behind `object_store`'s interface.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use futures::future::ready;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use url::Url;

use crate::cache::{Admit, Cache, Warnings};
use crate::clock::Clock;
use crate::conditional::Conditional;
use crate::counted::Counted;
use crate::counters::{Counters, Counts, Reading, Scope, count};
use crate::dice::Dice;
use crate::error::StoreError;
use crate::options::StorageOptions;
use crate::ranges::Ranges;
use crate::uploads::{UnfinishedUpload, Uploads};

/// Every byte from and to object storage.
///
/// Cheap to share: [`Store::scoped`] gives a query a handle with counters of its own on the same
/// cache, limits and connections.
///
/// # Examples
/// ```
/// use object_store::{ObjectStoreExt, path::Path};
/// use uplake_objectio::{StorageOptions, Store};
/// # futures::executor::block_on(async {
/// let store = Store::open("memory:///", &StorageOptions::default())?;
/// let query = store.scoped();
/// query.put(&Path::from("a"), "hello".into()).await?;
/// assert_eq!(query.get_range(&Path::from("a"), 1..3).await?, "el");
/// assert_eq!((query.counts().puts, query.counts().gets), (1, 1));
/// assert_eq!(store.total().requests(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    layers: Arc<Layers>,
    scope: Scope,
}

/// Bytes in the cache's tiers; a tier that is off has the limit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUsage {
    /// Bytes kept in memory.
    pub memory_bytes: u64,
    /// At most so many.
    pub memory_limit: u64,
    /// Bytes of the files on disk, those being written included.
    pub disk_bytes: u64,
    /// At most so many.
    pub disk_limit: u64,
    /// Extents the disk had no room for.
    pub dropped: u64,
}

/// A provider's client, files or memory.
pub(crate) struct Bottom {
    /// Counts its own requests.
    pub store: Arc<dyn ObjectStore>,
    /// Is it worth the reading layers?
    pub is_remote: bool,
    pub uploads: Option<Uploads>,
}

#[derive(Debug)]
struct Layers {
    url: Url,
    prefix: Path,
    /// What is below the reading layers: the provider's client, files or memory.
    bottom: Arc<dyn ObjectStore>,
    /// `None` where nobody leaves any.
    uploads: Option<Uploads>,
    /// `None` for files and memory, which have no round trips to save.
    ranges: Option<Arc<Ranges>>,
    /// `None` as well, and if the settings ask for none.
    cache: Option<Arc<Cache>>,
    warnings: Arc<Warnings>,
    /// `None` as well: files and memory lose no answers.
    conditional: Option<Conditional>,
    total: Arc<Counters>,
    clock: Arc<dyn Clock>,
    options: StorageOptions,
}

impl Store {
    /// A store over `inner`, which answers as slowly and unreliably as a network; for tests and for
    /// clients of other providers. Counts calls of `inner` as requests.
    ///
    /// # Errors
    /// [`StoreError::Setting`] if the options contradict each other.
    pub fn layered(
        inner: Arc<dyn ObjectStore>,
        options: &StorageOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, StoreError> {
        let url = Url::parse("memory:///").expect("a constant");
        let bottom = Bottom { store: Arc::new(Counted(inner)), is_remote: true, uploads: None };
        Self::assemble(url, Path::default(), bottom, options, clock)
    }

    pub(crate) fn assemble(
        url: Url,
        prefix: Path,
        bottom: Bottom,
        options: &StorageOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, StoreError> {
        options.check()?;
        let Bottom { store: bottom, is_remote, uploads } = bottom;
        let total: Arc<Counters> = Arc::default();
        let ranges = is_remote
            .then(|| Arc::new(Ranges::new(Arc::clone(&bottom), options, Arc::clone(&clock))));
        let warnings: Arc<Warnings> = Arc::default();
        let cache = ranges.as_ref().and_then(|ranges| Cache::open(ranges, options, &warnings));
        let conditional = is_remote.then(|| {
            Conditional::new(Arc::clone(&bottom), Arc::clone(&clock), Dice::new(options.seed))
        });
        let scope = Scope::new(&[Arc::clone(&total)]);
        let options = options.clone();
        let layers = Layers {
            url,
            prefix,
            bottom,
            uploads,
            ranges,
            cache,
            warnings,
            conditional,
            total,
            clock,
            options,
        };
        Ok(Arc::new(Self { layers: Arc::new(layers), scope }))
    }

    /// A handle that counts for itself too; cache, limits and connections are shared.
    #[must_use]
    pub fn scoped(&self) -> Arc<Self> {
        Arc::new(Self { layers: Arc::clone(&self.layers), scope: self.scope.child() })
    }

    /// A handle that counts for whoever pays now, in whichever task it is asked: for libraries that begin tasks
    /// of their own.
    #[must_use]
    pub fn charged(&self) -> Arc<Self> {
        Arc::new(self.of_now())
    }

    fn of_now(&self) -> Self {
        Self { layers: Arc::clone(&self.layers), scope: self.scope.charged() }
    }

    /// What was asked through this handle and handles scoped from it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.scope.own().counts()
    }

    /// What was asked through all handles.
    #[must_use]
    pub fn total(&self) -> Counts {
        self.layers.total.counts()
    }

    /// Reads through all handles that are under way now.
    #[must_use]
    pub fn reads_under_way(&self) -> usize {
        usize::try_from(self.layers.total.reads_under_way()).unwrap_or(usize::MAX)
    }

    /// Estimated US dollars of what was asked through this handle.
    #[must_use]
    pub fn dollars(&self) -> f64 {
        self.counts().dollars(&self.layers.options.prices)
    }

    /// The URL of the store's root, without the path that was opened: `s3://bucket/`.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.layers.url
    }

    /// The path of the URL that was opened, within the store.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.layers.prefix
    }

    /// The options the store was opened with.
    #[must_use]
    pub fn options(&self) -> &StorageOptions {
        &self.layers.options
    }

    /// Reads that may be under way at once now; 0 for stores without a limit of ours.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.layers.ranges.as_ref().map_or(0, |ranges| ranges.limit())
    }

    /// What the cache holds, if there is one.
    #[must_use]
    pub fn cache_usage(&self) -> Option<CacheUsage> {
        let cache = self.layers.cache.as_ref()?;
        let [memory_bytes, memory_limit, disk_bytes, disk_limit] = cache.usage();
        let dropped = cache.dropped();
        Some(CacheUsage { memory_bytes, memory_limit, disk_bytes, disk_limit, dropped })
    }

    /// Waits until the disk cache has written what it was given; for tests and clean ends.
    pub async fn flush_cache(&self) {
        if let Some(cache) = &self.layers.cache {
            cache.flush().await;
        }
    }

    /// Forgets what is cached of `location`; for objects that others rewrote against the rule.
    pub fn forget(&self, location: &Path) {
        if let Some(cache) = &self.layers.cache {
            cache.forget(location);
        }
    }

    /// Reads `ranges` of the version of an object that a listing told of, through the cache whatever
    /// its name: what is kept is of exactly this size and ETag. `None` if the store has another version
    /// by now, or its listings have no ETags.
    ///
    /// # Errors
    /// As a read of the object.
    pub async fn read_version(
        &self,
        meta: &ObjectMeta,
        ranges: &[Range<u64>],
    ) -> Result<Option<Vec<Bytes>>> {
        let Some(cache) = self.layers.cache.as_ref().filter(|_| meta.e_tag.is_some()) else {
            return Ok(None);
        };
        let read = async {
            let _reading = self.reading();
            let read = cache.read_version(meta, ranges).await?;
            let bytes = read.iter().flatten().map(|part| part.len() as u64).sum();
            count(|c| &c.bytes_asked, bytes);
            Ok(read)
        };
        self.scope.run(read).await
    }

    /// Uploads in parts below `folder` that are not complete: under way, or left by a writer that was
    /// killed. None where uploads leave nothing that stays: files, memory, Azure.
    ///
    /// # Errors
    /// As a listing; many who may list objects may not list these.
    pub async fn unfinished_uploads(&self, folder: &Path) -> Result<Vec<UnfinishedUpload>> {
        match &self.layers.uploads {
            Some(uploads) => self.scope.run(uploads.list(folder)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Deletes the parts of such an upload. Whoever is at work on it will not be able to complete it.
    ///
    /// # Errors
    /// As a deletion.
    pub async fn end_upload(&self, upload: &UnfinishedUpload) -> Result<()> {
        match &self.layers.uploads {
            Some(uploads) => self.scope.run(uploads.end(upload)).await,
            None => Ok(()),
        }
    }

    /// What a user should be told since the last call, such as a disk cache that is off.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        self.layers.warnings.take()
    }

    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.layers.cache.as_ref()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.layers.clock
    }

    /// Runs `work` so that it counts for this handle.
    pub(crate) fn run<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.scope.run(work)
    }

    fn reading(&self) -> Reading {
        self.scope.reading(&self.layers.clock)
    }

    async fn read(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let suffix = match options.range {
            Some(GetRange::Suffix(len)) => Some((len, options.clone())),
            _ => None,
        };
        match (self.read_once(location, options).await, suffix) {
            // Azure has no reads from the end: its size is asked first.
            (Err(Error::NotSupported { .. }), Some((len, options))) => {
                let head = GetOptions { range: None, head: true, ..options.clone() };
                let size = self.read_once(location, head).await?.meta.size;
                let range = Some(GetRange::Bounded(size - size.min(len)..size));
                self.read_once(location, GetOptions { range, ..options }).await
            }
            (read, _) => read,
        }
    }

    async fn read_once(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let reading = self.reading();
        let head = options.head;
        let mut result = match (&self.layers.cache, &self.layers.ranges) {
            (Some(cache), _) => cache.get(location, options).await?,
            (None, Some(ranges)) => ranges.get(location, options).await?,
            (None, None) => self.layers.bottom.get_opts(location, options).await?,
        };
        if !head {
            count(|c| &c.bytes_asked, result.range.end - result.range.start);
            if let GetResultPayload::Stream(body) = result.payload {
                let body = Body { body: self.scope.stream(body), _reading: reading };
                result.payload = GetResultPayload::Stream(body.boxed());
            }
        }
        Ok(result)
    }

    async fn read_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let _reading = self.reading();
        let cache = self.layers.cache.as_ref().filter(|cache| cache.takes(location));
        let bytes = match (cache, &self.layers.ranges) {
            (Some(cache), _) => cache.read(location, ranges, Admit::Usual).await?.bytes,
            (None, Some(reader)) => {
                reader.read(location, ranges, &GetOptions::default()).await?.bytes
            }
            (None, None) => self.layers.bottom.get_ranges(location, ranges).await?,
        };
        count(|c| &c.bytes_asked, bytes.iter().map(|part| part.len() as u64).sum());
        Ok(bytes)
    }
}

/// Forgets what is cached of an object when a write to it ends, however it ends.
struct Stale<'a>(&'a Store, &'a Path);

impl Drop for Stale<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// A body and the mark that its reader waits for storage.
struct Body {
    body: BoxStream<'static, Result<Bytes>>,
    _reading: Reading,
}

impl Stream for Body {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.body.as_mut().poll_next(cx)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.layers.url)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let _stale = Stale(self, location);
        match &self.layers.conditional {
            Some(conditional) => self.scope.run(conditional.put(location, payload, opts)).await,
            None => self.scope.run(self.layers.bottom.put_opts(location, payload, opts)).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.scope.run(self.layers.bottom.put_multipart_opts(location, opts)).await?;
        let store = self.of_now();
        Ok(Box::new(Upload { upload, store, location: location.clone(), len: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.scope.run(self.read(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.scope.run(self.read_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let deleted = self.layers.bottom.delete_stream(locations).inspect(move |deleted| {
            if let Ok(location) = deleted {
                store.forget(location);
            }
        });
        self.scope.stream(deleted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let bottom = Arc::clone(&self.layers.bottom);
        let prefix = prefix.cloned();
        self.scope.stream(lazily(move || bottom.list(prefix.as_ref())))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let bottom = Arc::clone(&self.layers.bottom);
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        self.scope.stream(lazily(move || {
            let listed = bottom.list_with_offset(prefix.as_ref(), &offset);
            // Some stores list from the start all the same: Azurite up to 3.35, and Azure's API before
            // 2026-02-06. What comes before the offset would be taken for newer commits.
            let is_after = move |object: &Result<ObjectMeta>| {
                ready(object.as_ref().map_or(true, |object| object.location > offset))
            };
            listed.filter(is_after).boxed()
        }))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.scope.run(self.layers.bottom.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _stale = Stale(self, to);
        self.scope.run(self.layers.bottom.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _stale = (Stale(self, from), Stale(self, to));
        self.scope.run(self.layers.bottom.rename_opts(from, to, options)).await
    }
}

/// The stream `make` makes when it is first polled, so that making it counts for its reader.
fn lazily<T: Send + 'static>(
    make: impl FnOnce() -> BoxStream<'static, T> + Send + 'static,
) -> BoxStream<'static, T> {
    futures::stream::once(async move { make() }).flatten().boxed()
}

/// An upload whose requests count for whoever began it.
#[derive(Debug)]
struct Upload {
    upload: Box<dyn MultipartUpload>,
    store: Store,
    location: Path,
    len: u64,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.len += data.content_length() as u64;
        Box::pin(self.store.scope.run(self.upload.put_part(data)))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _stale = Stale(&self.store, &self.location);
        let lost = match self.store.scope.run(self.upload.complete()).await {
            Err(Error::NotFound { path, source }) => Error::NotFound { path, source },
            outcome => return outcome,
        };
        // The store does not know the upload: if the answer to the first request was lost and the
        // connections asked again, it is because the upload is complete.
        match self.store.head(&self.location).await {
            Ok(meta) if meta.size == self.len => {
                Ok(PutResult { e_tag: meta.e_tag, version: meta.version })
            }
            _ => Err(lost),
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.scope.run(self.upload.abort()).await
    }
}
