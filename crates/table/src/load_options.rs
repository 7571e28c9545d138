//! What a load is told, and what it tells.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};

use crate::decode::TextOptions;
use crate::id_domain::IdDomainSpec;
use crate::index::IndexSpec;
use crate::layout::OnConflict;

/// What to do with rows that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Stop; nothing is committed.
    Abort,
    /// Load the good rows; write the bad ones, each with its reason, to this file (CSV).
    Skip { rejects: PathBuf },
}

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Types of columns, overriding what is inferred (and the whole column list of a new table if
    /// there is no header).
    pub schema: Option<Arc<Schema>>,
    /// For a new table: columns that split the files.
    pub partition_by: Vec<String>,
    /// For a new table: columns that rows are sorted by within a file.
    pub cluster_by: Vec<String>,
    /// For a new table: indexes that each data file gets.
    pub indexes: Vec<IndexSpec>,
    /// For a new table: columns whose values are keys of an id domain.
    pub id_domains: Vec<IdDomainSpec>,
    /// For a new table: columns of which no two rows have the same values.
    pub primary_key: Vec<String>,
    /// In a table with a primary key: what becomes of rows whose keys are there.
    pub on_conflict: OnConflict,
    /// May files bring columns the table does not have?
    pub allow_new_columns: bool,
    /// A load with the same label happens once.
    pub label: Option<String>,
    /// Bad rows.
    pub on_error: OnError,
    /// CSV and JSON details.
    pub text: TextOptions,
    /// Bytes of memory to use, all told.
    pub memory_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// The clock: milliseconds since 1970, UTC.
    pub now_millis: i64,
}

impl LoadOptions {
    /// Rows are added as their files and the table say: no row is skipped, and no column comes.
    ///
    /// `memory_bytes` for all of it, on so many `threads`; `now_millis` is milliseconds since 1970, UTC.
    pub fn new(memory_bytes: usize, threads: usize, now_millis: i64) -> Self {
        Self {
            schema: None,
            partition_by: Vec::new(),
            cluster_by: Vec::new(),
            indexes: Vec::new(),
            id_domains: Vec::new(),
            primary_key: Vec::new(),
            on_conflict: OnConflict::Replace,
            allow_new_columns: false,
            label: None,
            on_error: OnError::Abort,
            text: TextOptions::default(),
            memory_bytes,
            threads,
            now_millis,
        }
    }
}

/// What a load did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// The commit, or `None` if the label had been loaded before.
    pub version: Option<u64>,
    /// Was the table made by this load?
    pub created: bool,
    /// Rows committed.
    pub rows: u64,
    /// Rows rejected.
    pub bad_rows: u64,
    /// Data files written.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The table's columns after the load.
    pub schema: SchemaRef,
    /// Columns this load added to the table.
    pub new_columns: Vec<String>,
    /// Rows that another one of their primary key took the place of, in the table or in the files;
    /// with [`OnConflict::Ignore`] those that were left out.
    pub replaced_rows: u64,
}
