//! The file below a tree: five operations, so that tests can put a failing disk there.

use std::fs::File;
use std::io;
use std::sync::{PoisonError, RwLock};

/// A file of bytes at offsets. All operations are whole or an error.
pub trait PageFile: Send + Sync {
    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    /// Of the system; reading beyond the end is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all bytes at `offset`, making the file longer if need be.
    ///
    /// # Errors
    /// Of the system. How much was written is then unknown.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written before will survive a crash.
    ///
    /// # Errors
    /// Of the system. What survives is then unknown.
    fn sync(&self) -> io::Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// Of the system.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or makes it longer by zeros.
    ///
    /// # Errors
    /// Of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// Of the system.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl<F: PageFile + ?Sized> PageFile for std::sync::Arc<F> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        (**self).set_len(len)
    }
}

#[cfg(unix)]
impl PageFile for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
}

/// A file in memory, for trees that need not survive and for tests.
#[derive(Debug, Default)]
pub struct MemoryFile {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryFile {
    /// A file with these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes) }
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PageFile for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(new.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.bytes.write().unwrap_or_else(PoisonError::into_inner).resize(len, 0);
        Ok(())
    }
}
