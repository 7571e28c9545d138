//! Counts the requests of a store that is not reached by HTTP: files, memory, and those of tests.
//!
//! Over HTTP the connections count, because only they see every request.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};

use crate::counters::count;

/// Counts what passes through.
#[derive(Debug)]
pub(crate) struct Counted(pub(crate) Arc<dyn ObjectStore>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for Counted {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        count(|c| &c.puts, 1);
        count(|c| &c.bytes_written, payload.content_length() as u64);
        self.0.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        count(|c| &c.puts, 1);
        Ok(Box::new(CountedUpload(self.0.put_multipart_opts(location, opts).await?)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        count(|c| &c.gets, 1);
        let head = options.head;
        let mut result = self.0.get_opts(location, options).await?;
        if !head {
            result.payload = match result.payload {
                GetResultPayload::Stream(body) => GetResultPayload::Stream(
                    body.inspect(|chunk| {
                        if let Ok(chunk) = chunk {
                            count(|c| &c.bytes_read, chunk.len() as u64);
                        }
                    })
                    .boxed(),
                ),
                // The reader reads the file itself; what it asked for is what it reads.
                file => {
                    count(|c| &c.bytes_read, result.range.end - result.range.start);
                    file
                }
            };
        }
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        count(|c| &c.gets, 1);
        let bytes = self.0.get_ranges(location, ranges).await?;
        count(|c| &c.bytes_read, bytes.iter().map(|part| part.len() as u64).sum());
        Ok(bytes)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations).inspect(|_| count(|c| &c.deletes, 1)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        count(|c| &c.lists, 1);
        self.0.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        count(|c| &c.lists, 1);
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        count(|c| &c.lists, 1);
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        count(|c| &c.puts, 1);
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        count(|c| &c.puts, 1);
        self.0.rename_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountedUpload(Box<dyn MultipartUpload>);

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let len = data.content_length() as u64;
        let part = self.0.put_part(data);
        Box::pin(async move {
            count(|c| &c.puts, 1);
            count(|c| &c.bytes_written, len);
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        count(|c| &c.puts, 1);
        self.0.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        count(|c| &c.deletes, 1);
        self.0.abort().await
    }
}
