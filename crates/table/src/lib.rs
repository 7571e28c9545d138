//! A Delta table on object storage: what it holds, how files get into it, how it is kept tidy.
//!
//! ```no_run
//! # async fn example() -> uplake_table::Result<()> {
//! use uplake_table::{AsOf, Lake};
//!
//! let lake = Lake::open("./lake")?;
//! let events = lake.snapshot("events", &AsOf::Latest).await?;
//! println!("{} files, {} bytes", events.files().len(), events.size_bytes());
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - Data files never change. A commit publishes new ones and retires old ones at once.
//! - Any Delta reader gets the same rows from a table that we do.
//!
//! # Not here
//! SQL and DataFusion (`engine`), experiments (`experiment`), how ids are given (`domain`).

#![forbid(unsafe_code)]

mod alter;
mod as_of;
mod changed_rows;
mod checksums;
mod chunk_types;
mod columns;
mod commit;
mod commit_stamp;
mod copy;
mod data_file;
mod decode;
mod definition;
mod documents;
mod drop_table;
mod encodings;
mod error;
mod experiments;
mod files_in_place;
mod id_domain;
mod id_sets;
mod index;
mod int96;
mod key_columns;
mod lake;
mod layout;
mod load;
mod load_options;
mod load_plan;
mod lock;
mod log_reader;
mod maintain;
mod names;
mod primary_key;
mod properties;
mod reindex;
mod remembered;
mod schema;
mod sealed;
mod snapshot;
mod staged;
mod stats;
mod store_file;
mod stored_zones;
mod tables;
mod thread;
mod unpanicked;
mod upload_sink;
mod vacuum;
mod versioned;
mod views;
mod warm;
mod write;
mod write_stream;

pub use alter::{NewColumns, add_columns, set_cluster_by, set_comment};
pub use as_of::AsOf;
pub use changed_rows::ChangedRows;
pub use checksums::{Checksums, DamagedBytes};
pub use chunk_types::{check_chunk_types, footer_within};
pub use commit::create_table;
pub use copy::{CopyOptions, CopySummary, copy_lake};
pub use data_file::{ColumnBounds, DataFile};
pub use decode::{
    BadRow, Header, InputFile, InputStores, Place, Progress, TextOptions, WebFiles,
    describe_schema, expand_inputs, is_address, is_address_within, keep_standard_input,
    unknown_address,
};
pub use definition::TableDefinition;
pub use documents::Numbered;
pub use error::{Result, TableError};
pub use experiments::PutDefinition;
pub use files_in_place::{TextFiles, TextPiece, TextRows};
pub use id_domain::{DomainProgress, ID_PREFIX, IdDomainSpec, LostIds, ReportDomain, id_column};
pub use id_sets::StoredIdSet;
pub use index::{Answered, Fallback, FileRows, IndexCache, IndexKind, IndexSpec, Question};
pub use lake::Lake;
pub use layout::OnConflict;
pub use load::load;
pub use load_options::{LoadOptions, LoadSummary, OnError};
pub use lock::writers_at_work;
pub use maintain::{CheckFinding, CheckReport, CompactOptions, CompactSummary, check, compact};
pub use names::{check_table_name, table_called};
pub use reindex::{ReindexOptions, ReindexSummary, reindex, repair_index};
pub use schema::{first_cut, may_be_cut, parse_schema, parse_type, stored_type, type_name};
pub use snapshot::{Commit, SeenVersion, Snapshot};
pub use staged::{StagedChanges, StagedWrite};
pub use unpanicked::{panic_text, reason, unpanicked};
pub use uplake_domain::{
    CheckReport as DomainCheck, Description as DomainDescription, Domain, DomainError,
    Progress as ReadProgress,
};
pub use uplake_index::{Selection, WordMatcher, key_of_f64, key_of_i64};
pub use uplake_objectio::{
    CacheUsage, Counts, Payer, Prices, StorageOptions, Store, StoreError, WarmOptions, Warmed,
    conformance, io_threads,
};
pub use vacuum::{VacuumSummary, vacuum};
pub use versioned::{Versioned, check_experiment_name};
pub use warm::{footer_range, preload, warm};
pub use write_stream::{StreamWriter, WriteKind};
