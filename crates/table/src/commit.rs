//! One Delta commit: files in, files out, schema changed, label remembered — all or nothing.
//!
//! # Invariants
//! - A commit names only files that are there: they are looked up just before.
//! - Appends of two writers both succeed; two writers that remove the same file do not.
//! - Whoever ends a statement knows from its [`Payer`] whether a commit was sent, and none is sent afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path as LocalPath;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow::datatypes::{Field, Schema};
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::kernel::transaction::{CommitBuilder, CommitProperties, TransactionError};
use deltalake_core::kernel::{
    Action, Add, CommitInfo, MetadataExt, Protocol, Remove, StructType, Transaction,
    contains_timestampntz,
};
use deltalake_core::logstore::{LogStoreRef, StorageConfig, logstore_with};
use deltalake_core::operations::create::CreateBuilder;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::{Value, json};
use uplake_domain::log_folder;
use uplake_objectio::Payer;

use crate::as_of::AsOf;
use crate::changed_rows::{ChangedRows, METRICS};
use crate::data_file::DataFile;
use crate::definition::{TableDefinition, check_definition, check_new_columns};
use crate::error::{Result, TableError, already_exists};
use crate::id_domain::{self, IdDomainSpec, stored_schema};
use crate::index::{index_path, property};
use crate::lake::{Lake, Place};
use crate::names::store_path;
use crate::properties::{
    CLUSTER_BY, COMMENT, ID_DOMAINS, INDEXES, LABEL, PRIMARY_KEY, label_app_id,
};
use crate::sealed::SealedLog;
use crate::snapshot::{Snapshot, rows_of};
use crate::thread::on_thread;

/// By then a system has written a file to its disk, asked or not: dirty pages wait for half a minute. Asking
/// about each run of a domain of thousands would take a fifth of a second.
const SYNCED_AFTER: Duration = Duration::from_secs(3600);
/// Versions tried before giving up: as many writers may commit while one does.
const COMMIT_ATTEMPTS: usize = 100;
/// Requests at once while checking that a commit's files are there.
const CHECKS_AT_ONCE: usize = 32;

/// A change to a table, not yet committed.
#[derive(Debug)]
pub(crate) struct Change {
    pub add: Vec<Add>,
    pub remove: Vec<Remove>,
    /// The whole new schema without ids, if columns were added.
    pub schema: Option<Arc<Schema>>,
    /// Properties that the table has from now on, as they are kept; an empty one is gone.
    pub properties: Vec<(&'static str, String)>,
    /// The columns that become others, if there are such.
    pub columns: Option<ColumnChange>,
    /// What is said of the table or of a column, from now on.
    pub comment: Option<Comment>,
    /// Is it made for exactly the files that the table had?
    pub on_these_files_only: bool,
    pub label: Option<String>,
    pub operation: DeltaOperation,
    /// What it does to rows; of files that only come, the log's counts say it.
    pub rows: Option<ChangedRows>,
    /// What the log calls it, where Delta's reader has no operation of that name.
    pub called: Option<Called>,
    pub now_millis: i64,
}

impl Change {
    /// Nothing yet, by this operation.
    pub fn nothing(operation: DeltaOperation, now_millis: i64) -> Self {
        Self {
            add: Vec::new(),
            remove: Vec::new(),
            schema: None,
            properties: Vec::new(),
            columns: None,
            comment: None,
            on_these_files_only: false,
            label: None,
            operation,
            rows: None,
            called: None,
            now_millis,
        }
    }
}

/// Columns of a table that are gone, or have other names.
#[derive(Clone, Debug)]
pub(crate) struct ColumnChange {
    /// Their names before, with what they are called now; nothing if they are gone.
    pub names: BTreeMap<String, Option<String>>,
    pub id_domains: Vec<IdDomainSpec>,
}

impl ColumnChange {
    /// What a column is called now, if it is there.
    pub fn name(&self, column: String) -> Option<String> {
        match self.names.get(&column) {
            Some(name) => name.clone(),
            None => Some(column),
        }
    }
}

/// An operation by the name that Delta's documents have for it, with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub operation: &'static str,
    pub parameters: Vec<(&'static str, String)>,
}

/// What is said of a column, or of the table; nothing any more if there is no text.
#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub column: Option<String>,
    pub text: Option<String>,
}

/// Why a commit did not happen.
pub(crate) enum CommitError {
    /// The label is taken: someone committed this load already.
    LabelTaken,
    /// Someone else changed what this commit builds on; look again.
    Conflict(String),
    /// Anything else.
    Failed(TableError),
}

impl CommitError {
    /// Of a commit that has no label which could be taken.
    pub fn without_label(self, table: &str) -> TableError {
        let reason = match self {
            Self::Failed(error) => return error,
            Self::Conflict(reason) => reason,
            Self::LabelTaken => String::new(),
        };
        TableError::Conflict { table: table.to_owned(), reason }
    }
}

impl From<TableError> for CommitError {
    fn from(error: TableError) -> Self {
        Self::Failed(error)
    }
}

/// Makes the table and commits its first files in one step.
pub(crate) async fn create(
    lake: &Lake,
    table: &str,
    definition: &TableDefinition,
    add: Vec<Add>,
    label: Option<&str>,
    now_millis: i64,
) -> Result<(), CommitError> {
    lake.check_promise().await?;
    lake.initialise().await?;
    if let Place::Folder(folder) = lake.place() {
        std::fs::create_dir_all(folder.join(table))
            .map_err(|e| TableError::io(format!("creating table `{table}`"), e))?;
    }
    check_files(lake, table, &add).await?;
    sync_domains(lake, &definition.id_domains, now_millis).await?;
    let files: Vec<String> = add.iter().map(|a| a.path.clone()).collect();
    let stored = stored_schema(&definition.schema, &definition.id_domains);
    let kernel = kernel_schema(table, &stored)?;
    let said = said("CREATE TABLE", rows_of_all(&add), label);
    let mut builder = CreateBuilder::new()
        .with_log_store(log_store(lake, table)?)
        .with_save_mode(SaveMode::ErrorIfExists)
        .with_columns(kernel.fields().cloned())
        // One attempt: a retry would put this table's definition on top of another's.
        .with_commit_properties(CommitProperties::default().with_max_retries(0).with_metadata(said))
        .with_actions(add.into_iter().map(Action::Add).chain(transaction(label, now_millis)));
    if !definition.partition_columns.is_empty() {
        builder = builder.with_partition_columns(definition.partition_columns.clone());
    }
    let set = layout_properties(definition).into_iter().filter(|(_, value)| !value.is_empty());
    let configuration: HashMap<String, Option<String>> =
        set.map(|(name, value)| (name.to_owned(), Some(value))).collect();
    if !configuration.is_empty() {
        builder = builder.with_raise_if_key_not_exists(false).with_configuration(configuration);
    }
    sends(table)?;
    match builder.await {
        Ok(_) => sync_commit(lake, table, files).await,
        Err(e) if already_exists(&e) => {
            was_refused();
            Err(CommitError::Conflict(e.to_string()))
        }
        Err(e) => outcome(lake, table, files, e).await.map(drop),
    }
}

/// The properties that say how a table is laid out; what it has not is empty.
pub(crate) fn layout_properties(definition: &TableDefinition) -> Vec<(&'static str, String)> {
    vec![
        (CLUSTER_BY, definition.cluster_by.join(",")),
        (INDEXES, property(&definition.indexes)),
        (ID_DOMAINS, id_domain::property(&definition.id_domains)),
        (PRIMARY_KEY, definition.primary_key.join(",")),
    ]
}

/// From here on whoever waits cannot be told that nothing was committed.
fn sends(table: &str) -> Result<()> {
    let may = Payer::current().is_none_or(|payer| payer.sends_commit(table));
    if may { Ok(()) } else { Err(TableError::Stopped) }
}

/// What was sent has no effect: another commit was first.
fn was_refused() {
    if let Some(payer) = Payer::current() {
        payer.commit_was_refused();
    }
}

/// What became of a commit that ended with an error: reading the log again after it was written may
/// have failed, or its answer was lost.
///
/// The version that has its files, if there is one. In a bucket a commit may also take effect later, and
/// anywhere it may be impossible to read it back: then its files stay, and a vacuum decides.
async fn outcome(
    lake: &Lake,
    table: &str,
    files: Vec<String>,
    error: DeltaTableError,
) -> Result<u64, CommitError> {
    let newest = lake.snapshot(table, &AsOf::Latest).await;
    if let Ok(newest) = &newest
        && newest.files().iter().any(|f| files.contains(&f.path))
    {
        return Ok(newest.version());
    }
    let is_known = match newest {
        Ok(_) | Err(TableError::NoSuchTable { .. }) => !lake.is_remote(),
        Err(_) => false,
    };
    if is_known || is_refusal(&error) {
        return Err(CommitError::Failed(TableError::delta(table, error)));
    }
    Err(unknown(lake, table, files, error.to_string()))
}

/// Nobody knows whether a commit with these files took effect, so nobody removes them.
fn unknown(lake: &Lake, table: &str, files: Vec<String>, reason: String) -> CommitError {
    lake.doubt(files);
    CommitError::Failed(TableError::OutcomeUnknown { table: table.to_owned(), reason })
}

/// Was the commit never sent?
fn is_refusal(error: &DeltaTableError) -> bool {
    match error {
        DeltaTableError::Transaction { source } => {
            !matches!(source, TransactionError::ObjectStore { .. })
        }
        DeltaTableError::ObjectStore { source } => matches!(
            source,
            object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. }
        ),
        _ => false,
    }
}

/// Brings files and folders of a local lake to the disk, and the folders that they are in: a commit must
/// not outlive a power cut that its data does not. What a bucket took is durable.
async fn sync(lake: &Lake, table: &str, relative: Vec<String>) -> Result<()> {
    let Place::Folder(folder) = lake.place() else { return Ok(()) };
    let (lake, root) = (folder.clone(), folder.join(table));
    on_thread(move || {
        let mut folders = BTreeSet::new();
        for path in relative.iter().map(|r| root.join(r)) {
            sync_path(&path)?;
            let above = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&lake));
            folders.extend(above.map(LocalPath::to_owned));
        }
        // What is within a folder before the folder's own name.
        folders.iter().rev().try_for_each(|folder| sync_path(folder))
    })
    .await
}

fn sync_path(path: &LocalPath) -> Result<()> {
    std::fs::File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|e| TableError::io(format!("writing {} to disk", path.display()), e))
}

/// Puts the names of a table's commits on the disk.
///
/// # Errors
/// [`TableError::Io`].
pub(crate) async fn sync_log(lake: &Lake, table: &str) -> Result<()> {
    sync(lake, table, vec!["_delta_log".to_owned()]).await
}

/// The same of what was copied into a lake, from its root.
pub(crate) async fn sync_copied(lake: &Lake, relative: Vec<String>) -> Result<()> {
    sync(lake, "", relative).await
}

/// The same of the name of a commit with these new `files`, whose bytes are on the disk already; whether it
/// is durable is not known if it fails.
async fn sync_commit(lake: &Lake, table: &str, files: Vec<String>) -> Result<(), CommitError> {
    let synced = sync_log(lake, table).await;
    synced.map_err(|error| unknown(lake, table, files, error.to_string()))
}

impl Lake {
    /// Brings what is new in a domain's log to the disk, so that what it stands for can be removed.
    ///
    /// # Errors
    /// [`TableError::Io`].
    pub async fn sync_domain(&self, name: &str, now_millis: i64) -> Result<()> {
        let spec = IdDomainSpec { column: String::new(), domain: name.to_owned() };
        sync_domains(self, &[spec], now_millis).await
    }
}

/// The same of the logs of id domains: ids that data files have must not be given to others.
async fn sync_domains(lake: &Lake, specs: &[IdDomainSpec], now_millis: i64) -> Result<()> {
    let Place::Folder(folder) = lake.place() else { return Ok(()) };
    let log =
        |spec: &IdDomainSpec| folder.join(log_folder(&Path::default(), &spec.domain).as_ref());
    let (root, logs) = (folder.clone(), specs.iter().map(log).collect::<Vec<_>>());
    let now = Duration::from_millis(u64::try_from(now_millis).unwrap_or_default());
    on_thread(move || {
        for log in logs.iter().filter(|log| log.is_dir()) {
            let failed = |e| TableError::io(format!("writing {} to disk", log.display()), e);
            let sync = |path: &std::path::Path| std::fs::File::open(path)?.sync_all();
            let sync_new = |entry: std::fs::DirEntry| {
                let modified = entry.metadata()?.modified()?.duration_since(UNIX_EPOCH);
                let age = modified.map(|modified| now.saturating_sub(modified)).unwrap_or_default();
                if age < SYNCED_AFTER { sync(&entry.path()) } else { Ok(()) }
            };
            for entry in std::fs::read_dir(log).map_err(failed)? {
                match entry.and_then(sync_new) {
                    // A vacuum's, or another writer's that is not done.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    synced => synced.map_err(failed)?,
                }
            }
            let mut above = log.ancestors().take_while(|folder| folder.starts_with(&root));
            above.try_for_each(sync).map_err(failed)?;
        }
        Ok(())
    })
    .await
}

/// Commits a change on top of `base`, or of a later version that it still fits.
///
/// The log's own conflict check is not enough (it lets two writers replace one file when one of them is a
/// compaction), so every attempt is for one version only, and what the change rests on is looked at
/// again before the next.
pub(crate) async fn commit(
    lake: &Lake,
    base: &Snapshot,
    change: Change,
) -> Result<u64, CommitError> {
    let table = base.table();
    lake.check_promise().await?;
    let is_same = lake.is_same(base);
    let ((), is_same) = futures::try_join!(check_files(lake, table, &change.add), is_same)?;
    if !is_same {
        return Err(made_again(table));
    }
    if !change.add.is_empty() {
        sync_domains(lake, base.id_domains(), change.now_millis).await?;
    }
    let files = || change.add.iter().map(|a| a.path.clone()).collect();
    let mut current = base.clone();
    for _ in 0..COMMIT_ATTEMPTS {
        sends(table)?;
        match attempt(lake, &current, &change).await {
            Ok(version) => {
                sync_commit(lake, table, files()).await?;
                return Ok(version);
            }
            Err(DeltaTableError::Transaction {
                source: TransactionError::MaxCommitAttempts(_) | TransactionError::CommitConflict(_),
            }) => {
                was_refused();
                current = lake.snapshot(table, &AsOf::Latest).await?;
                still_fits(base, &current, &change).await?;
            }
            Err(other) => {
                return outcome(lake, table, files(), other).await;
            }
        }
    }
    Err(CommitError::Conflict(format!("{COMMIT_ATTEMPTS} other commits came first")))
}

async fn attempt(lake: &Lake, on: &Snapshot, change: &Change) -> Result<u64, DeltaTableError> {
    let table = on.table();
    let generic = |e: TableError| DeltaTableError::Generic(e.to_string());
    let state = on.eager().map_err(generic)?;
    let mut actions: Vec<Action> = Vec::with_capacity(change.add.len() + change.remove.len() + 1);
    let mut metadata = state.metadata().clone();
    let mut comments = on.comments().clone();
    let mut says = false;
    match &change.comment {
        None => {}
        Some(Comment { column: None, text }) => {
            metadata = metadata.with_description(text.clone().unwrap_or_default())?;
            says = true;
        }
        Some(Comment { column: Some(column), text }) => {
            comments.remove(column);
            comments.extend(text.clone().map(|text| (column.clone(), text)));
            says = true;
        }
    }
    let mut id_domains = on.id_domains();
    if let Some(columns) = &change.columns {
        let said = comments.into_iter();
        comments = said.filter_map(|(c, text)| Some((columns.name(c)?, text))).collect();
        id_domains = &columns.id_domains;
    }
    if says || change.schema.is_some() {
        let schema = change.schema.as_ref().unwrap_or(on.schema());
        let stored = with_comments(&stored_schema(schema, id_domains), &comments);
        let kernel = kernel_schema(table, &stored).map_err(generic)?;
        let protocol = with_times(state.protocol(), &kernel).map_err(generic)?;
        actions.extend(protocol.map(Action::Protocol));
        metadata = metadata.with_schema(&kernel)?;
    }
    for (name, value) in &change.properties {
        metadata = match value.is_empty() {
            true => metadata.remove_config_key(name)?,
            false => metadata.add_config_key((*name).to_owned(), value.clone())?,
        };
    }
    if says || change.schema.is_some() || !change.properties.is_empty() {
        actions.push(Action::Metadata(metadata));
    }
    actions.extend(change.remove.iter().cloned().map(Action::Remove));
    actions.extend(change.add.iter().cloned().map(Action::Add));
    if let Some(called) = &change.called {
        actions.insert(0, Action::CommitInfo(commit_info(change, called)));
    }
    let name = change.called.as_ref().map_or(change.operation.name(), |called| called.operation);
    let rows = change.rows.or_else(|| match change.remove.is_empty() {
        true => rows_of_all(&change.add),
        false => None,
    });
    let said = said(name, rows, change.label.as_deref());
    let mut properties = CommitProperties::default().with_max_retries(0).with_metadata(said);
    if let Some(label) = &change.label {
        properties =
            properties.with_application_transaction(label_transaction(label, change.now_millis));
    }
    let commit = CommitBuilder::from(properties)
        .with_actions(actions)
        .build(Some(state), log_store(lake, table).map_err(generic)?, change.operation.clone())
        .await?;
    Ok(commit.version())
}

/// The rows of files that are added, if they count them and there are any.
fn rows_of_all(add: &[Add]) -> Option<ChangedRows> {
    let inserted = add.iter().map(rows_of).sum::<Option<u64>>().filter(|_| !add.is_empty())?;
    Some(ChangedRows { inserted, ..ChangedRows::default() })
}

/// What the log says of a commit beside its actions: rows, a load's label, for whom it was made.
fn said(operation: &str, rows: Option<ChangedRows>, label: Option<&str>) -> Vec<(String, Value)> {
    let rows = rows.map(|rows| (METRICS.to_owned(), rows.metrics(operation)));
    let label = label.map(|label| ("operationParameters".to_owned(), json!({ LABEL: label })));
    let name = Payer::current().and_then(|payer| payer.name().map(Value::from));
    let user = name.map(|name| ("userName".to_owned(), name));
    rows.into_iter().chain(label).chain(user).collect()
}

/// What the log says of a commit whose operation it calls by another name.
fn commit_info(change: &Change, called: &Called) -> CommitInfo {
    let parameter = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone().into());
    CommitInfo {
        timestamp: Some(change.now_millis),
        operation: Some(called.operation.to_owned()),
        operation_parameters: Some(called.parameters.iter().map(parameter).collect()),
        ..change.operation.get_commit_info()
    }
}

fn log_store(lake: &Lake, table: &str) -> Result<LogStoreRef> {
    let sealed = SealedLog::new(lake.storage().charged());
    let sealed = match lake.place() {
        Place::Folder(folder) => sealed.in_folder(folder.join(table).join("_delta_log")),
        Place::Url(_) => sealed,
    };
    logstore_with(Arc::new(sealed), &lake.table_url(table)?, StorageConfig::default())
        .map_err(|e| TableError::delta(table, e))
}

/// What was made for one table is not for another of its name.
fn made_again(table: &str) -> CommitError {
    let reason = "it was dropped and made again".to_owned();
    CommitError::Failed(TableError::Conflict { table: table.to_owned(), reason })
}

/// May a change that was made on `base` be committed on `newer`?
async fn still_fits(base: &Snapshot, newer: &Snapshot, change: &Change) -> Result<(), CommitError> {
    if let Some(label) = &change.label
        && newer.has_label(label).await?
    {
        return Err(CommitError::LabelTaken);
    }
    let conflict = |what: &str| Err(CommitError::Conflict(what.to_owned()));
    if base.eager()?.metadata().id() != newer.eager()?.metadata().id() {
        return Err(made_again(base.table()));
    }
    if base.schema() != newer.schema() || base.id_domains() != newer.id_domains() {
        return conflict("its columns changed");
    }
    let layouts_differ = base.cluster_by() != newer.cluster_by()
        || base.primary_key() != newer.primary_key()
        || base.declared_indexes() != newer.declared_indexes();
    // Such a change says anew what the layout is.
    if change.columns.is_some() && layouts_differ {
        return conflict("its layout changed");
    }
    let had: HashSet<&str> = base.files().iter().map(|f| f.path.as_str()).collect();
    let new = newer.files().iter().any(|f| !had.contains(f.path.as_str()));
    if change.on_these_files_only && new {
        return conflict("rows came that it does not know");
    }
    let live: HashSet<&str> = newer.files().iter().map(|f| f.path.as_str()).collect();
    match change.remove.iter().find(|r| !live.contains(r.path.as_str())) {
        Some(_) => conflict("a file that this replaces was replaced"),
        None => Ok(()),
    }
}

fn transaction(label: Option<&str>, now_millis: i64) -> Option<Action> {
    label.map(|label| Action::Txn(label_transaction(label, now_millis)))
}

fn label_transaction(label: &str, now_millis: i64) -> Transaction {
    Transaction::new_with_last_update(label_app_id(label), 1, Some(now_millis))
}

/// The protocol that a table needs for its first column of times without a zone, which are a feature of Delta's own:
/// without it no reader opens the table. `None` if it has it already or needs it not.
fn with_times(protocol: &Protocol, schema: &StructType) -> Result<Option<Protocol>> {
    const TIMES: &str = "timestampNtz";
    if !contains_timestampntz(schema.fields()) {
        return Ok(None);
    }
    let failed = |e: serde_json::Error| TableError::Invalid(format!("the log's protocol: {e}"));
    let known = serde_json::to_value(protocol).map_err(failed)?;
    // From 3 to 6 a version stands for features, which 7 lists by their names.
    if (3..7).contains(&known["minWriterVersion"].as_i64().unwrap_or_default()) {
        return Err(TableError::Invalid(
            "the table is of an older protocol of Delta, made by another writer, and takes no column of times \
             without a zone; use timestamptz"
                .into(),
        ));
    }
    let mut needed = known.clone();
    for (version, least, features) in
        [("minReaderVersion", 3, "readerFeatures"), ("minWriterVersion", 7, "writerFeatures")]
    {
        let mut named = needed[features].as_array().cloned().unwrap_or_default();
        if !named.iter().any(|name| name == TIMES) {
            named.push(TIMES.into());
        }
        needed[version] = least.into();
        needed[features] = named.into();
    }
    match needed == known {
        true => Ok(None),
        false => serde_json::from_value(needed).map(Some).map_err(failed),
    }
}

/// The schema with what is said of its columns, where Delta keeps it.
fn with_comments(schema: &Schema, comments: &BTreeMap<String, String>) -> Schema {
    let field = |field: &Arc<Field>| {
        let mut metadata = field.metadata().clone();
        let said = comments.get(field.name()).map(|text| (COMMENT.to_owned(), text.clone()));
        metadata.extend(said);
        field.as_ref().clone().with_metadata(metadata)
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

fn kernel_schema(table: &str, schema: &Schema) -> Result<StructType> {
    schema
        .try_into_kernel()
        .map_err(|e: arrow::error::ArrowError| TableError::arrow(format!("table `{table}`"), e))
}

/// A file that vanished before its commit (a vacuum without retention) must not be named by it.
async fn check_files(lake: &Lake, table: &str, add: &[Add]) -> Result<()> {
    let prefix = lake.table_prefix(table)?;
    let paths =
        add.iter().map(|a| store_path(table, &prefix, &a.path)).collect::<Result<Vec<_>>>()?;
    futures::stream::iter(paths)
        .map(|path| async move {
            lake.store().head(&path).await.map(drop).map_err(|e| {
                TableError::store(format!("a new data file is gone before its commit: {path}"), e)
            })
        })
        .buffer_unordered(CHECKS_AT_ONCE)
        .try_collect::<()>()
        .await?;
    sync(lake, table, add.iter().map(|a| a.path.clone()).collect()).await
}

/// `data_change` is false when the same rows come back in other files (compaction).
pub(crate) fn remove_action(file: &DataFile, now_millis: i64, data_change: bool) -> Remove {
    Remove {
        path: file.path.clone(),
        data_change,
        deletion_timestamp: Some(now_millis),
        extended_file_metadata: Some(true),
        partition_values: Some(file.partition_values.clone()),
        size: Some(i64::try_from(file.size).unwrap_or(i64::MAX)),
        ..Remove::default()
    }
}

/// Can files be removed from the log? A removal that is not spelled as the file was added removes nothing,
/// and of names with other letters than these, writers spell some in their own ways.
///
/// # Errors
/// [`TableError::Invalid`] for such a file of another writer.
pub(crate) fn check_removable<'f>(
    table: &str,
    files: impl IntoIterator<Item = &'f DataFile>,
) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=%".contains(&byte);
    let is_strange = |file: &&DataFile| file.crc32.is_none() && !file.path.bytes().all(is_plain);
    match files.into_iter().find(is_strange) {
        None => Ok(()),
        Some(file) => Err(TableError::Invalid(format!(
            "table `{table}` has a file of another writer, {}, whose name that writer may spell in \
             another way; such files can be read here, but not rewritten",
            file.path
        ))),
    }
}

/// Deletes files that no commit will name. Best effort: what stays is garbage for vacuum.
pub(crate) async fn discard(lake: &Lake, table: &str, files: &[Add]) {
    let Ok(prefix) = lake.table_prefix(table) else { return };
    for file in files.iter().filter(|f| !lake.is_doubtful(&f.path)) {
        if let Ok(path) = store_path(table, &prefix, &file.path) {
            // An error leaves garbage, which is allowed.
            let _ = lake.store().delete(&path).await;
        }
        if let Ok(path) = index_path(table, &prefix, &file.path) {
            let _ = lake.store().delete(&path).await;
        }
    }
}

/// Creates an empty table.
///
/// # Errors
/// [`TableError::TableExists`], [`TableError::Invalid`] for a definition that cannot be laid out.
pub async fn create_table(
    lake: &Lake,
    table: &str,
    definition: &TableDefinition,
    now_millis: i64,
) -> Result<()> {
    crate::names::check_table_name(table)?;
    check_definition(definition)?;
    check_new_columns(&definition.schema)?;
    lake.refuse_view(table).await?;
    match create(lake, table, definition, Vec::new(), None, now_millis).await {
        Ok(()) => Ok(()),
        Err(CommitError::Conflict(_) | CommitError::LabelTaken) => {
            Err(TableError::TableExists { name: table.to_owned() })
        }
        Err(CommitError::Failed(e)) => Err(e),
    }
}
