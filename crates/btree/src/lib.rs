//! A concurrent B+ tree over checked pages, and the buffer pool that keeps them in memory.
//!
//! [`Tree`] maps keys (`u64` or bytes) to `u64` in key order. It lives in one [`PageFile`] and in a
//! fixed amount of memory, is read and written by any number of threads, and comes back after a
//! crash as it was at its last [`Tree::checkpoint`], or says that it must be rebuilt. A
//! [`DurableTree`] has a log beside it, and comes back with every write it acknowledged.
//!
//! | module | job |
//! |---|---|
//! | `raw` | memory and the hot loops: all unsafe code |
//! | `latch`, `gate` | who may change a page, and when a checkpoint has the tree to itself |
//! | `page`, `key` | bytes of a page; finding, adding and removing entries in it |
//! | `pool`, `blocks`, `file` | which pages are in memory, where they are in the file, checkpoints |
//! | `log`, `durable` | writes that are durable one by one |
//! | `tree`, `restructure` | one key at a time; splits, merges, borrowing |
//! | `batch`, `scan`, `bulk` | many keys at a time |
//! | `long` | keys of up to 64 KiB, as entries of a tree |
//! | `inspect` | statistics, and a check of the whole tree |
//!
//! # Invariants
//! - An answer is right or an error: every page read is checked against a checksum that the
//!   checkpoint's header vouches for, and then for its shape.
//! - Memory is [`Options::pool_bytes`] plus 8 bytes per page of the tree.
//!
//! # Not here
//! What keys mean, and object stores. Applications whose source can be read again need no log: what
//! came after the last checkpoint is theirs to replay, from the position they gave.

pub mod error;
pub mod file;

mod batch;
mod blocks;
mod bulk;
mod durable;
mod gate;
mod inspect;
mod key;
mod latch;
mod log;
mod long;
mod page;
mod pool;
#[allow(unsafe_code)]
mod raw;
mod restructure;
mod scan;
mod sync;
mod tree;

pub use durable::{DurableTree, LogStats, Ticket};
pub use error::{Result, TreeError};
pub use file::{MemoryFile, PageFile};
pub use inspect::TreeStats;
pub use key::{Key, MAX_KEY_BYTES};
pub use long::{LongTree, MAX_LONG_KEY_BYTES};
pub use pool::PoolStats;
pub use raw::PAGE_BYTES;
pub use scan::Direction;
pub use tree::{Options, Tree};
