//! The log of a table in a bucket, read with few round trips.
//!
//! A snapshot asks for `_last_checkpoint`, then lists the log, then reads commits, some of them twice.
//! A [`LogReader`] stands between it and the store for the time of one snapshot. It lists the log while
//! the first question is under way, and answers the second from that. Commits and checkpoints of exactly
//! the version that was listed come from the cache, where they stay: they never change, but a table
//! that is dropped and made again has others of the same names.
//!
//! # Invariants
//! - A snapshot sees a state of the log not older than when it was begun: each has a reader of its own.
//! - A cached commit has the size and ETag that were listed for this snapshot.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use uplake_objectio::Store;

use crate::names::is_commit_name;

const LAST_CHECKPOINT: &str = "_last_checkpoint";
/// Objects in one page of a listing: looking at more would take another request.
const PAGE: usize = 1000;

/// A store as one snapshot reads it.
pub(crate) struct LogReader {
    store: Arc<Store>,
    /// The folder of the log.
    log: Path,
    first_page: Shared<BoxFuture<'static, FirstPage>>,
    /// The versions of commits and checkpoints that were listed.
    listed: Arc<Listed>,
    /// Is the listing one of another time?
    is_remembered: bool,
}

type Listed = Mutex<HashMap<Path, ObjectMeta>>;

/// The beginning of the log's listing; `None` if it failed.
type FirstPage = Option<Arc<Page>>;

#[derive(Debug)]
struct Page {
    objects: Vec<ObjectMeta>,
    /// Is there nothing after them?
    is_all: bool,
}

impl LogReader {
    /// For the log in the folder `log`.
    pub(crate) fn new(store: &Arc<Store>, log: Path) -> Arc<Self> {
        let first_page = first_page(Arc::clone(store), log.clone()).boxed().shared();
        Self::over(store, log, first_page, false)
    }

    /// The same with what [`LogReader::whole_listing`] was at another time.
    pub(crate) fn remembered(store: &Arc<Store>, log: Path, objects: Vec<ObjectMeta>) -> Arc<Self> {
        let page = Some(Arc::new(Page { objects, is_all: true }));
        Self::over(store, log, futures::future::ready(page).boxed().shared(), true)
    }

    fn over(
        store: &Arc<Store>,
        log: Path,
        first_page: Shared<BoxFuture<'static, FirstPage>>,
        is_remembered: bool,
    ) -> Arc<Self> {
        let (store, listed) = (Arc::clone(store), Arc::default());
        Arc::new(Self { store, log, first_page, listed, is_remembered })
    }

    /// All objects of the log; `None` if it could not be listed, or there are too many.
    pub(crate) async fn whole_listing(&self) -> Option<Vec<ObjectMeta>> {
        let page = self.first_page.clone().await?;
        page.is_all.then(|| page.objects.clone())
    }

    /// Is there a commit, so that this is a table? `None` if the log could not be listed.
    pub(crate) async fn has_commits(&self) -> Option<bool> {
        let page = self.first_page.clone().await?;
        let is_commit =
            |object: &ObjectMeta| object.location.filename().is_some_and(is_commit_name);
        Some(page.objects.iter().any(is_commit))
    }

    /// What was listed of an object.
    pub(crate) fn listed(&self, path: &Path) -> Option<ObjectMeta> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    async fn read(&self, path: &Path, options: &GetOptions) -> Result<Option<GetResult>> {
        let is_plain = options.if_match.is_none()
            && options.if_none_match.is_none()
            && options.if_modified_since.is_none()
            && options.if_unmodified_since.is_none()
            && options.version.is_none()
            && !options.head;
        let Some(meta) = self.listed(path).filter(|_| is_plain) else { return Ok(None) };
        let range = match &options.range {
            None => 0..meta.size,
            Some(GetRange::Bounded(range)) => range.start..range.end.min(meta.size),
            Some(_) => return Ok(None),
        };
        if range.is_empty() {
            return Ok(None);
        }
        let read = self.store.read_version(&meta, std::slice::from_ref(&range)).await?;
        let Some(bytes) = read.and_then(|parts| parts.into_iter().next()) else { return Ok(None) };
        let payload = GetResultPayload::Stream(futures::stream::iter([Ok(bytes)]).boxed());
        Ok(Some(GetResult { payload, meta, range, attributes: Attributes::new() }))
    }
}

/// What the first page says of the objects after `offset`, if that is all there are.
async fn after(
    page: Shared<BoxFuture<'static, FirstPage>>,
    offset: &Path,
) -> Option<Vec<ObjectMeta>> {
    let page = page.await.filter(|page| page.is_all)?;
    let from = page.objects.iter().filter(|object| object.location > *offset);
    let objects: Vec<ObjectMeta> = from.cloned().collect();
    // A reader that begins at a checkpoint may know of one that is younger than this page.
    let is_from_start = page.objects.len() == objects.len();
    let has_checkpoint = objects.iter().any(|object| is_checkpoint(&object.location));
    (is_from_start || has_checkpoint).then_some(objects)
}

fn is_checkpoint(path: &Path) -> bool {
    path.filename().is_some_and(|name| name.contains(".checkpoint."))
}

async fn first_page(store: Arc<Store>, log: Path) -> FirstPage {
    let objects: Vec<ObjectMeta> = store.list(Some(&log)).take(PAGE).try_collect().await.ok()?;
    let is_all = objects.len() < PAGE;
    Some(Arc::new(Page { objects, is_all }))
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("log", &self.log).finish_non_exhaustive()
    }
}

impl fmt::Display for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store)
    }
}

#[async_trait]
impl ObjectStore for LogReader {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_remembered && location.filename() == Some(LAST_CHECKPOINT) {
            // It only says where to begin to list, and all is listed.
            let source = "the listing is a remembered one".into();
            return Err(object_store::Error::NotFound { path: location.to_string(), source });
        }
        match self.read(location, &options).await? {
            Some(read) => Ok(read),
            None => self.store.get_opts(location, options).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if let Some(meta) = self.listed(location)
            && ranges.iter().all(|range| range.start < range.end && range.end <= meta.size)
            && let Some(read) = self.store.read_version(&meta, ranges).await?
        {
            return Ok(read);
        }
        self.store.get_ranges(location, ranges).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, listed, page) =
            (Arc::clone(&self.store), Arc::clone(&self.listed), self.first_page.clone());
        let is_log = prefix == Some(&self.log);
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        let objects = async move {
            let known = match is_log {
                true => after(page, &offset).await,
                false => None,
            };
            match known {
                Some(objects) => futures::stream::iter(objects).map(Ok).boxed(),
                None => store.list_with_offset(prefix.as_ref(), &offset),
            }
        };
        let remember = move |object: &ObjectMeta| {
            if object.location.filename().is_some_and(is_commit_name) {
                let mut listed = listed.lock().unwrap_or_else(PoisonError::into_inner);
                listed.insert(object.location.clone(), object.clone());
            }
        };
        futures::stream::once(objects).flatten().inspect_ok(remember).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
