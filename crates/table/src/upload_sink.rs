//! Bytes of one file on their way to storage, from a thread that writes as to a disk.

use std::io::Write;
use std::time::Duration;

use object_store::MultipartUpload;
use tokio::runtime::Handle;

use crate::checksums::Summing;
use crate::lock::AtWork;

/// An upload part. Larger than the 5 MiB that S3 demands, small enough to overlap with encoding.
pub(super) const PART_BYTES: usize = 8 << 20;
/// Longest wait until the parts of a file that was given up are deleted.
const ABORT_TIME: Duration = Duration::from_secs(5);

/// Bytes of a file on their way to the store, a part at a time. For threads outside the async runtime.
pub(crate) struct UploadSink {
    /// Until it is complete.
    pub(super) upload: Option<Box<dyn MultipartUpload>>,
    pub(super) buffer: Vec<u8>,
    pub(super) runtime: Handle,
    pub(super) bytes: u64,
    pub(super) sums: Summing,
    /// Dropped after the upload is aborted.
    pub(super) _at_work: AtWork,
}

impl UploadSink {
    fn send(&mut self) -> std::io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.buffer, Vec::with_capacity(PART_BYTES + (1 << 20)));
        let Some(upload) = &mut self.upload else {
            return Err(std::io::Error::other("the file is complete"));
        };
        self.runtime.block_on(upload.put_part(part.into())).map_err(std::io::Error::other)
    }

    pub(super) fn finish(&mut self) -> std::io::Result<()> {
        self.send()?;
        let Some(upload) = &mut self.upload else { return Ok(()) };
        self.runtime.block_on(upload.complete()).map_err(std::io::Error::other)?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for UploadSink {
    /// The parts of a file that nobody completes take room on a disk and cost money in a bucket: who
    /// hears of the error finds them gone, even if the process ends right after. A store that does not
    /// answer keeps nobody waiting for long.
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            let (done, wait) = std::sync::mpsc::sync_channel(1);
            self.runtime.spawn(async move {
                // An error leaves garbage, which is allowed.
                let _ = upload.abort().await;
                let _ = done.send(());
            });
            // A runtime that is shutting down drops the task and with it the sender.
            let _ = wait.recv_timeout(ABORT_TIME);
        }
    }
}

impl Write for UploadSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.sums.update(bytes);
        self.bytes += bytes.len() as u64;
        if self.buffer.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
