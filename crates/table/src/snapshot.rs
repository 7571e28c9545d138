//! What a table holds at one version: its schema and its data files.
//!
//! # Invariants
//! - A snapshot never changes. Reading it twice reads the same rows.
//! - A table that uses a feature we would read wrongly is refused when the snapshot is made.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use chrono::DateTime;
use deltalake_core::kernel::{Add, EagerSnapshot};
use deltalake_core::logstore::LogStoreRef;
use deltalake_core::{DeltaTable, DeltaTableBuilder, DeltaTableError};
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use uplake_domain::Mark;

use crate::as_of::AsOf;
use crate::changed_rows::ChangedRows;
use crate::checksums::{Checksums, TAIL_TAG};
use crate::commit_stamp::CommitStamp;
use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::id_domain::{self, DomainMark, IdDomainSpec, id_column, stored_schema};
use crate::index::{self, IndexSpec, parse_property};
use crate::lake::Lake;
use crate::log_reader::LogReader;
use crate::names::{commit_path, store_path};
use crate::properties::{
    CLUSTER_BY, COMMENT, CRC32_TAG, ID_DOMAINS, ID_MARKS_TAG, ID_QUANTILES_TAG, IDS_TAG, INDEXES,
    LABEL, PRIMARY_KEY, label_app_id,
};
use crate::sealed::{DamagedCommit, SealedLog};

/// Reader features this version reads correctly. Anything else is refused.
const READABLE_FEATURES: [&str; 3] = ["timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"];

/// What a snapshot takes of memory without columns and files, about: the log's listing, protocol and metadata. Measured with
/// one column and one file: 34 KB.
const LOG_BYTES: usize = 28 << 10;
/// And each column: its field in the schemas of Arrow and of Delta.
const COLUMN_BYTES: usize = 1 << 10;

/// One version of one table.
#[derive(Clone, Debug)]
pub struct Snapshot {
    table: String,
    delta: DeltaTable,
    schema: SchemaRef,
    partition_columns: Vec<String>,
    cluster_by: Vec<String>,
    indexes: Vec<IndexSpec>,
    declared_indexes: Vec<IndexSpec>,
    primary_key: Vec<String>,
    id_domains: Vec<IdDomainSpec>,
    /// What is said of columns, by their names.
    comments: Arc<BTreeMap<String, String>>,
    files: Arc<Vec<DataFile>>,
    /// Domains whose ids are not to be believed.
    lost_domains: Vec<String>,
    prefix: Path,
    /// Tells a table from a later one of its name.
    stamp: Option<CommitStamp>,
}

/// One commit, newest first in [`Snapshot::history`].
#[derive(Clone, Debug)]
pub struct Commit {
    /// Commit number.
    pub version: u64,
    /// Milliseconds since 1970, UTC.
    pub timestamp_millis: Option<i64>,
    /// `WRITE`, `DELETE`, `OPTIMIZE`, …
    pub operation: String,
    /// What the writer said about it.
    pub parameters: Vec<(String, String)>,
    /// The label of a load.
    pub label: Option<String>,
    /// Who made it, if the writer knew.
    pub user: Option<String>,
    /// What it did to rows, if the writer said so.
    pub rows: Option<ChangedRows>,
}

/// What is enough of a snapshot to ask whether there is a newer one ([`Lake::is_newest`]).
#[derive(Clone, Debug)]
pub struct SeenVersion {
    pub(crate) table: String,
    pub(crate) version: u64,
    pub(crate) stamp: Option<CommitStamp>,
}

impl Snapshot {
    /// What is to be kept of it by who only wants to know whether it is the newest.
    pub fn seen(&self) -> SeenVersion {
        let (table, version) = (self.table.clone(), self.version());
        SeenVersion { table, version, stamp: self.stamp.clone() }
    }

    /// Reads the log, through `log` if there is one.
    pub(crate) async fn load(
        lake: &Lake,
        table: &str,
        as_of: &AsOf,
        log: Option<&Arc<LogReader>>,
    ) -> Result<Self> {
        let delta = |e| TableError::delta(table, e);
        let store: Arc<dyn ObjectStore> = match log {
            Some(log) => Arc::<LogReader>::clone(log),
            // What reads the log for us does it in tasks of its own.
            None => lake.storage().charged(),
        };
        if let AsOf::Version(version) = as_of {
            must_be_reached(&store, lake, table, *version).await?;
        }
        let store = Arc::new(SealedLog::new(store));
        let builder = DeltaTableBuilder::from_url(lake.table_url(table)?)
            .map_err(delta)?
            .with_storage_backend(Arc::<SealedLog>::clone(&store), lake.table_url(table)?);
        let builder = match as_of {
            AsOf::Latest => builder,
            AsOf::Version(version) => builder.with_version(*version),
            AsOf::TimestampMillis(millis) => {
                let instant = DateTime::from_timestamp_millis(*millis).ok_or_else(|| {
                    TableError::Invalid(format!("{millis} ms is outside the calendar"))
                })?;
                builder.with_timestamp(instant)
            }
        };
        let explain = |error| match store.take_damage() {
            Some(DamagedCommit { file, what }) => {
                TableError::DamagedLog { table: table.to_owned(), file, what }
            }
            None => explain_load(table, as_of, error),
        };
        let loaded = match builder.load().await {
            Ok(loaded) => loaded,
            Err(error) => {
                store.look_at_checkpoint(&lake.path_of(&format!("{table}/_delta_log"))?).await;
                return Err(explain(error));
            }
        };
        store.has_been_read().await;
        if let AsOf::TimestampMillis(asked) = as_of {
            check_not_before(table, &loaded, *asked)?;
        }
        Self::of(lake, table, loaded, log).await
    }

    async fn of(
        lake: &Lake,
        table: &str,
        delta: DeltaTable,
        log: Option<&Arc<LogReader>>,
    ) -> Result<Self> {
        let state = delta.snapshot().map_err(|e| TableError::delta(table, e))?.snapshot().clone();
        check_features(table, &state)?;
        let prefix = lake.table_prefix(table)?;
        let log_store = delta.log_store();
        let version = delta.version().unwrap_or_default();
        let commit = lake.path_of(&commit_path(table, version))?;
        let stamp = async {
            match log.and_then(|log| log.listed(&commit)) {
                Some(listed) => Ok(Some(CommitStamp::of(&listed))),
                None => lake.commit_stamp(table, version).await,
            }
        };
        let (files, stamp) =
            futures::try_join!(data_files(table, &state, &log_store, &prefix), stamp)?;
        let cluster_by = state
            .metadata()
            .configuration()
            .get(CLUSTER_BY)
            .map(|text| text.split(',').map(|c| c.trim().to_owned()).collect())
            .unwrap_or_default();
        let primary_key = state.metadata().configuration().get(PRIMARY_KEY);
        let primary_key = primary_key.map(|text| text.split(',').map(str::to_owned).collect());
        let declared_indexes = state.metadata().configuration().get(INDEXES);
        let declared_indexes: Vec<IndexSpec> =
            declared_indexes.map(|text| parse_property(text)).unwrap_or_default();
        let schema = state.arrow_schema();
        let id_domains = state.metadata().configuration().get(ID_DOMAINS);
        let id_domains = id_domains.map(|text| id_domain::parse_property(text, &schema));
        let id_domains = id_domains.unwrap_or_default();
        let is_ids = |name: &str| id_domains.iter().any(|spec| id_column(&spec.column) == name);
        let said = |f: &Arc<Field>| Some((f.name().clone(), f.metadata().get(COMMENT)?.clone()));
        let comments = schema.fields().iter().filter_map(said).collect();
        // What is said of a column makes no other column of it.
        let silent = |field: &Arc<Field>| {
            let mut metadata = field.metadata().clone();
            metadata.remove(COMMENT);
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        };
        let fields = schema.fields().iter().filter(|f| !is_ids(f.name())).map(silent);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let partition_columns: Vec<String> =
            state.metadata().partition_columns().iter().map(ToString::to_string).collect();
        let fits = |spec: &&IndexSpec| index::fits(spec, &schema, &partition_columns);
        let indexes = declared_indexes.iter().filter(fits).cloned().collect();
        Ok(Self {
            stamp,
            table: table.to_owned(),
            delta,
            schema,
            partition_columns,
            cluster_by,
            indexes,
            declared_indexes,
            primary_key: primary_key.unwrap_or_default(),
            id_domains,
            comments: Arc::new(comments),
            files: Arc::new(files),
            lost_domains: Vec::new(),
            prefix,
        })
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Commit number.
    pub fn version(&self) -> u64 {
        self.delta.version().unwrap_or_default()
    }

    /// All columns, partition columns included, in the table's order. Columns of ids are not among
    /// them: see [`Self::stored_schema`].
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What is said of the table.
    pub fn comment(&self) -> Option<&str> {
        let metadata = self.delta.snapshot().ok()?.metadata();
        metadata.description().filter(|text| !text.is_empty())
    }

    /// What is said of columns, by their names.
    pub fn comments(&self) -> &BTreeMap<String, String> {
        &self.comments
    }

    /// Columns whose values are in the log, not in the files.
    pub fn partition_columns(&self) -> &[String] {
        &self.partition_columns
    }

    /// Columns the rows of each file are sorted by; empty if they keep their arrival order.
    pub fn cluster_by(&self) -> &[String] {
        &self.cluster_by
    }

    /// The indexes that each data file should have.
    pub fn indexes(&self) -> &[IndexSpec] {
        &self.indexes
    }

    /// The same with those whose columns another writer changed or removed since.
    pub(crate) fn declared_indexes(&self) -> &[IndexSpec] {
        &self.declared_indexes
    }

    /// The columns of the primary key; empty if there is none.
    pub fn primary_key(&self) -> &[String] {
        &self.primary_key
    }

    /// The columns whose values are keys of an id domain.
    pub fn id_domains(&self) -> &[IdDomainSpec] {
        &self.id_domains
    }

    /// Where the ids of a column are from, if every file has them and from the same log: then equal
    /// ids are equal keys. `None` also if there is no file.
    pub fn ids_of(&self, column: &str) -> Option<&str> {
        let first = self.files.first()?.ids.get(column)?;
        let spec = self.id_domains.iter().find(|spec| spec.column == column)?;
        let same = self.files.iter().all(|f| f.ids.get(column) == Some(first));
        let ours = first.strip_prefix(spec.domain.as_str()).is_some_and(|r| r.starts_with(':'));
        (same && ours && !self.lost_domains.contains(&spec.domain)).then_some(first)
    }

    /// The same without the ids of these domains, which are not to be believed: keys are compared instead.
    #[must_use]
    pub fn without_ids_of(mut self, domains: Vec<String>) -> Self {
        self.lost_domains = domains;
        self
    }

    /// How far the logs went that the ids are from, of those that are believed.
    pub(crate) fn id_marks(&self) -> Vec<DomainMark> {
        let mut newest: HashMap<(&str, u128), HashSet<Mark>> = HashMap::new();
        for (file, spec) in
            self.files.iter().flat_map(|f| self.id_domains.iter().map(move |s| (f, s)))
        {
            let source = file.ids.get(&spec.column).and_then(|source| source.split_once(':'));
            let log = source.and_then(|(_, log)| u128::from_str_radix(log, 16).ok());
            let (Some(log), Some(mark)) = (log, file.id_marks.get(&spec.column)) else { continue };
            if self.lost_domains.contains(&spec.domain) {
                continue;
            }
            let marks = newest.entry((&spec.domain, log)).or_default();
            // Two of one run, of different logs, cannot both be kept.
            let run = marks.iter().next().map_or(0, |other| other.run);
            if mark.run > run {
                marks.clear();
            }
            if mark.run >= run {
                marks.insert(*mark);
            }
        }
        let of_log = |((domain, log), marks): ((&str, u128), HashSet<Mark>)| {
            let domain = domain.to_owned();
            marks.into_iter().map(move |mark| DomainMark { domain: domain.clone(), log, mark })
        };
        newest.into_iter().flat_map(of_log).collect()
    }

    /// The columns as any Delta reader sees them: [`Self::schema`], then the columns of ids.
    pub fn stored_schema(&self) -> SchemaRef {
        stored_schema(&self.schema, &self.id_domains)
    }

    /// The same without files that a change would remove, and with those that it would add.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a path that is not the table's.
    pub(crate) fn changed(&self, remove: &[DataFile], add: &[Add]) -> Result<Self> {
        let is_left = |file: &&DataFile| !remove.iter().any(|gone| gone.path == file.path);
        let mut files: Vec<DataFile> = self.files.iter().filter(is_left).cloned().collect();
        for add in add {
            files.push(data_file(&self.table, &self.prefix, add.clone(), rows_of(add))?);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files: Arc::new(files), ..self.clone() })
    }

    /// The data files.
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// The same for who keeps them.
    pub fn shared_files(&self) -> &Arc<Vec<DataFile>> {
        &self.files
    }

    /// What it takes of memory, about: the log's metadata, and each file as Delta's reader and as we have it.
    pub fn memory_bytes(&self) -> usize {
        let files: usize = self.files.iter().map(DataFile::memory_bytes).sum();
        LOG_BYTES + self.schema.fields().len() * COLUMN_BYTES + files
    }

    /// Bytes of all data files.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }

    /// Rows, if every file's count is in the log.
    pub fn rows(&self) -> Option<u64> {
        self.files.iter().map(|f| f.rows).sum()
    }

    /// Has a load with this label been committed?
    ///
    /// # Errors
    /// [`TableError::Delta`].
    pub async fn has_label(&self, label: &str) -> Result<bool> {
        let version = self
            .eager()?
            .transaction_version(self.delta.log_store().as_ref(), label_app_id(label))
            .await
            .map_err(|e| TableError::delta(&self.table, e))?;
        Ok(version.is_some())
    }

    /// The commits whose log files are still there, newest first.
    ///
    /// # Errors
    /// [`TableError::Delta`].
    pub async fn history(&self, limit: Option<usize>) -> Result<Vec<Commit>> {
        let newest = self.version();
        let infos: Vec<_> = self
            .delta
            .history(limit)
            .try_collect()
            .await
            .map_err(|e| TableError::delta(&self.table, e))?;
        Ok(infos
            .into_iter()
            .enumerate()
            .map(|(age, info)| {
                let mut parameters: Vec<(String, String)> = info
                    .operation_parameters
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(k, v)| (k, v.as_str().map_or_else(|| v.to_string(), str::to_owned)))
                    .collect();
                parameters.sort();
                let label = parameters.iter().position(|(name, _)| name == LABEL);
                let label = label.map(|at| parameters.remove(at).1);
                let operation = info.operation.unwrap_or_else(|| "UNKNOWN".to_owned());
                Commit {
                    version: newest.saturating_sub(age as u64),
                    timestamp_millis: info.timestamp,
                    rows: ChangedRows::of(&operation, &info.info),
                    operation,
                    parameters,
                    label,
                    user: info.user_name,
                }
            })
            .collect())
    }

    /// Which object this version's commit is; `None` if it was gone.
    pub(crate) fn stamp(&self) -> Option<&CommitStamp> {
        self.stamp.as_ref()
    }

    pub(crate) fn delta(&self) -> &DeltaTable {
        &self.delta
    }

    pub(crate) fn eager(&self) -> Result<&EagerSnapshot> {
        Ok(self.delta.snapshot().map_err(|e| TableError::delta(&self.table, e))?.snapshot())
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }
}

/// Refuses a version that the table has not had yet: what reads the log would look for a checkpoint from there downwards,
/// a thousand versions at a time.
async fn must_be_reached(
    store: &Arc<dyn ObjectStore>,
    lake: &Lake,
    table: &str,
    version: u64,
) -> Result<()> {
    let log = lake.path_of(&format!("{table}/_delta_log"))?;
    let mut later = store.list_with_offset(Some(&log), &log.clone().join(format!("{version:020}")));
    while let Some(file) = later.try_next().await.map_err(|e| TableError::delta(table, e.into()))? {
        if file
            .location
            .filename()
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Ok(());
        }
    }
    Err(TableError::NoSuch(format!(
        "table `{table}` has no version {version} (any more); see: uplake table history {table}"
    )))
}

fn explain_load(table: &str, as_of: &AsOf, error: DeltaTableError) -> TableError {
    match as_of {
        AsOf::Latest => TableError::delta(table, error),
        AsOf::Version(v) => TableError::NoSuch(format!(
            "table `{table}` has no version {v} (any more); see: uplake table history {table} ({error})"
        )),
        AsOf::TimestampMillis(_) => TableError::NoSuch(format!(
            "table `{table}` has no version at that time; see: uplake table history {table} ({error})"
        )),
    }
}

/// The log's reader takes its oldest version for a time before it; we do not.
fn check_not_before(table: &str, loaded: &DeltaTable, asked: i64) -> Result<()> {
    let state = loaded.snapshot().map_err(|e| TableError::delta(table, e))?;
    let version = loaded.version().unwrap_or_default();
    match state.version_timestamp(version) {
        Some(made) if made > asked => Err(TableError::NoSuch(format!(
            "table `{table}` has no version at that time: the oldest that can be read is \
             {version}, made later; see: uplake table history {table}"
        ))),
        _ => Ok(()),
    }
}

fn check_features(table: &str, state: &EagerSnapshot) -> Result<()> {
    let refuse =
        |feature: String| Err(TableError::UnsupportedFeature { table: table.to_owned(), feature });
    for feature in state.protocol().reader_features().unwrap_or_default() {
        let name = feature.to_string();
        // A table may declare the deletion vector feature without having one: files tell below.
        let checked_later = name == "deletionVectors" || name == "columnMapping";
        if !READABLE_FEATURES.contains(&name.as_str()) && !checked_later {
            return refuse(name);
        }
    }
    let mode = state.metadata().configuration().get("delta.columnMapping.mode");
    match mode.map(String::as_str) {
        None | Some("none") => Ok(()),
        Some(_) => refuse("columnMapping".to_owned()),
    }
}

async fn data_files(
    table: &str,
    state: &EagerSnapshot,
    log_store: &LogStoreRef,
    prefix: &Path,
) -> Result<Vec<DataFile>> {
    let views: Vec<_> = state
        .file_views(log_store.as_ref(), None)
        .try_collect()
        .await
        .map_err(|e| TableError::delta(table, e))?;
    let mut files = Vec::with_capacity(views.len());
    for view in views {
        if view.deletion_vector_descriptor().is_some() {
            return Err(TableError::UnsupportedFeature {
                table: table.to_owned(),
                feature: "deletionVectors".to_owned(),
            });
        }
        #[expect(deprecated, reason = "the only public way to an Add's tags in deltalake-core 1.1")]
        let mut add = view.add_action();
        add.path = view.path().into_owned();
        let rows = view.num_records().map(|n| n as u64);
        files.push(data_file(table, prefix, add, rows)?);
    }
    // The log replays newest first; a fixed order makes plans and reports repeatable.
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The file of an action of the log, whose path is decoded.
fn data_file(table: &str, prefix: &Path, add: Add, rows: Option<u64>) -> Result<DataFile> {
    let mut tags = add.tags.unwrap_or_default();
    let mut tag = |name: &str| tags.remove(name).flatten();
    let size = u64::try_from(add.size).unwrap_or_default();
    Ok(DataFile {
        store_path: store_path(table, prefix, &add.path)?,
        index_path: index::index_path(table, prefix, &add.path)?,
        path: add.path,
        size,
        modified_millis: add.modification_time,
        rows,
        partition_values: add.partition_values,
        stats: add.stats,
        crc32: tag(CRC32_TAG).and_then(|hex| u32::from_str_radix(&hex, 16).ok()),
        checksums: tag(TAIL_TAG).and_then(|tag| Checksums::from_tag(&tag, size)),
        ids: tag(IDS_TAG).map(|text| id_domain::parse_tag(&text)).unwrap_or_default(),
        id_marks: tag(ID_MARKS_TAG).map(|text| id_domain::parse_marks(&text)).unwrap_or_default(),
        id_quantiles: tag(ID_QUANTILES_TAG)
            .map(|text| id_domain::parse_quantiles(&text))
            .unwrap_or_default(),
    })
}

/// Rows of a file of ours, as its statistics say.
pub(crate) fn rows_of(add: &Add) -> Option<u64> {
    let stats: serde_json::Value = serde_json::from_str(add.stats.as_deref()?).ok()?;
    stats.get("numRecords")?.as_u64()
}
