//! What can go wrong, and what to do about it.

use std::io;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The file holds no checkpoint: it is empty, or creating it was interrupted.
    #[error("the tree's file holds no checkpoint; create it anew and rebuild it from its source")]
    NoCheckpoint,
    /// Bytes that were read are not those that were written.
    #[error("the tree's file is corrupt ({what}); delete it and rebuild it from its source")]
    Corrupt {
        /// Which page or structure, and what is wrong with it.
        what: String,
    },
    /// The file was written by a newer version or with other options.
    #[error(
        "the tree's file has {field} {found}, this version reads {supported}; delete it and rebuild it"
    )]
    Incompatible {
        /// What differs.
        field: &'static str,
        /// What the file says.
        found: u64,
        /// What is understood.
        supported: u64,
    },
    /// A key is longer than a page can keep in order.
    #[error("a key of {found} bytes is longer than the limit of {limit}; shorten or hash it")]
    KeyTooLong {
        /// Bytes of the key.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Keys that had to be in strictly ascending order were not.
    #[error(
        "key number {position} is not greater than the one before; sort and de-duplicate the input"
    )]
    Unsorted {
        /// Position in the input, from 0.
        position: usize,
    },
    /// Bulk load found keys in the tree.
    #[error("bulk load needs an empty tree; use insert_sorted")]
    NotEmpty,
    /// No frame of the pool could be freed.
    #[error("all {frames} frames of the buffer pool are in use; give the pool more bytes")]
    PoolFull {
        /// Frames of the pool.
        frames: usize,
    },
    /// The tree or its file reached the limit set in the options.
    #[error("the tree has reached its limit of {limit} pages; raise Options::max_pages")]
    TooManyPages {
        /// Pages allowed.
        limit: u32,
    },
    /// An earlier write could not be made durable, so nobody knows what the file holds.
    #[error("an earlier write could not be made durable; open the file again to get what is")]
    Poisoned,
    /// Options that cannot work.
    #[error("{what}")]
    Options {
        /// What to change.
        what: String,
    },
    /// The file could not be read, written or synchronized.
    #[error("{doing} the tree's file")]
    File {
        /// Reading, writing, …
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl TreeError {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    pub(crate) fn file(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { doing, source }
    }
}

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, TreeError>;
