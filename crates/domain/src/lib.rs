//! An id domain: exact, dense `u32` numbers for the keys of one kind, such as users.
//!
//! The truth is a log of immutable runs in object storage; a [`Domain`] is the dictionary made of
//! it, in memory and, if it is given a folder, in a local file. Any number of processes give ids at
//! once: every key gets exactly one, everybody agrees which, and no id is used twice.
//!
//! ```text
//! keys ─► Domain::encode ─► known? the id, at the speed of memory
//!                       └─► new? run N+1, put if absent ─► won: ids; lost: read the winner's, try N+2
//! log  ─► Domain::refresh ─► dictionary ─► local file (derived; delete it at any time)
//! ```
//!
//! | module | job |
//! |---|---|
//! | `domain` | giving ids, following the log |
//! | `run`, `log` | bytes of a run; the folder of a domain in object storage |
//! | `dictionary`, `index`, `shard`, `key_table` | key to id and back, in memory |
//! | `local`, `frame` | the local folder; bytes of its key file |
//! | `index_file`, `key_file` | index and keys that are read when they are asked for |
//! | `maintain` | describe, check, rebuild, compact, vacuum |
//! | `mark` | points of the log that tables keep, and what has become of them |
//! | `keys`, `decimals`, `hash` | batches of keys, also of numbers; their order and hashes |
//!
//! # Invariants
//! - An id is in the log before anybody gets it, is never given twice and never taken back. Ids are
//!   dense; a crash leaves at most ids that no table uses.
//! - Bytes from the store and from the local file are checked before they are believed. Wrong local
//!   bytes are read from the log again; wrong bytes in the log are an error, never an answer.
//! - A domain has at most [`MAX_IDS`] keys of at most [`MAX_KEY_BYTES`] bytes.
//!
//! # Not here
//! Tables and SQL; what NULL means. Keys in order and by prefix: nobody asks yet, and the sorted
//! runs would bulk-load a tree of `btree` when somebody does.
#![forbid(unsafe_code)]

mod decimals;
mod dictionary;
mod domain;
mod error;
mod frame;
mod hash;
mod index;
mod index_file;
mod key_file;
mod key_table;
mod keys;
mod local;
mod log;
mod maintain;
mod mark;
mod position;
mod private;
mod run;
mod shard;

pub use decimals::{Decimals, parse_decimal};
pub use domain::{Domain, OnProgress, Options, Progress};
pub use error::{DomainError, Result};
pub use keys::{Columnar, Keys, MAX_KEY_BYTES, Offset};
pub use local::LocalState;
pub use log::{check_name, list, log_folder};
pub use maintain::{CheckReport, Description, Vacuumed};
pub use mark::{Mark, Marked};
pub use run::MAX_IDS;

impl Domain {
    /// Which log the ids are from: a domain that was deleted and made anew has another.
    #[must_use]
    pub fn identity(&self) -> u128 {
        self.position().domain
    }
}
