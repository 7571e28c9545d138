//! Files into a table, in one commit.
//!
//! ```text
//! units of the inputs ─► [ thread: decode, fit, split ] ─► buffers ─► [ same thread: sort, encode, upload ]
//!                        one per core                                 when a partition is full
//! ```
//!
//! # Invariants
//! - All rows of a load appear in one commit, or none.
//! - A label is loaded once, however often and by however many processes it is tried.
//! - Memory is bounded by [`LoadOptions::memory_bytes`], whatever the inputs' size.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use arrow::datatypes::{Field, Schema, SchemaRef};
use deltalake_core::kernel::Add;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use tokio::runtime::Handle;

use crate::as_of::AsOf;
use crate::commit::{self, Change, CommitError};
use crate::decode::{BadRow, Decoder, Fit, Input, InputFile, Progress, TextOptions, Unit};
use crate::definition::{TableDefinition, check_definition, check_new_columns};
use crate::error::{Result, TableError};
use crate::id_domain::IdDomainSpec;
use crate::index::IndexSpec;
use crate::lake::Lake;
use crate::layout::{Layout, OnConflict};
use crate::names::check_table_name;
use crate::primary_key;
use crate::schema::{type_name, widens};
use crate::snapshot::Snapshot;
use crate::thread::on_thread;
use crate::write::{Sequence, TableWriter};

/// Columns of a table: memory and the log's bounds grow with them, whatever they hold.
const MOST_COLUMNS: usize = 10_000;
/// Inputs that are open before their turn, each with its first records.
const KEPT_OPEN: usize = 8;
/// Commits tried when other writers keep changing the schema in between.
const COMMIT_ATTEMPTS: usize = 100;
/// Share of the memory budget for buffered rows; the rest is for decoding, sorting and encoding.
const BUFFER_SHARE: usize = 3;

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

/// Loads files into a table, creating it if needed.
///
/// Dropping the future commits nothing; its threads end soon and remove what they have written.
///
/// # Errors
/// Bad rows, type clashes, unreadable files and a full disk end the load with nothing committed.
pub async fn load(
    lake: &Lake,
    table: &str,
    files: &[InputFile],
    options: &LoadOptions,
    progress: &Arc<Progress>,
) -> Result<LoadSummary> {
    check_table_name(table)?;
    check_rejects(&options.on_error, files)?;
    let lock = lake.lock_for_writing(table).await?;
    let loaded = load_locked(lake, table, files, options, progress).await;
    lock.release().await;
    lake.keep_dictionaries().await;
    loaded
}

async fn load_locked(
    lake: &Lake,
    table: &str,
    files: &[InputFile],
    options: &LoadOptions,
    progress: &Arc<Progress>,
) -> Result<LoadSummary> {
    let base = match lake.has_table(table).await? {
        true => Some(lake.snapshot(table, &AsOf::Latest).await?),
        false => None,
    };
    if let (Some(label), Some(base)) = (&options.label, &base)
        && base.has_label(label).await?
    {
        // Whoever loaded it may have been killed before the commit was on the disk.
        commit::sync_log(lake, table).await?;
        return Ok(already_loaded(base));
    }
    let plan = Plan::new(lake, table, base, files, options, progress)?;
    let writer = Arc::new(TableWriter::new(
        lake,
        plan.layout.clone(),
        Handle::current(),
        options.memory_bytes / BUFFER_SHARE,
        options.now_millis,
    ));
    writer.ids().open().await?;
    let _stop = StopOnDrop(Arc::clone(&writer));
    let written = {
        let (writer, mut options, progress) =
            (Arc::clone(&writer), options.clone(), Arc::clone(progress));
        if !plan.layout.primary_key.is_empty() {
            // Which row of a key is the last one is a matter of order.
            options.threads = 1;
        }
        let (inputs, schema) = (plan.inputs, SchemaRef::clone(&plan.layout.schema));
        let (lake, runtime) = (lake.clone(), Handle::current());
        on_thread(move || {
            let written = run_threads(inputs, &schema, &writer, &options, &progress);
            if writer.is_stopped() {
                let (table, files) = (&writer.layout().table, writer.take_files());
                runtime.block_on(commit::discard(&lake, table, &files));
            }
            written
        })
        .await
    };
    let mut adds = writer.take_files_as_written();
    if let Err(error) = written {
        commit::discard(lake, table, &adds).await;
        return Err(error);
    }
    let mut replaced_rows = writer.repeated_rows.load(Ordering::Relaxed);
    if !plan.layout.primary_key.is_empty() {
        let (left, dropped) =
            primary_key::among_new(lake, &plan.layout, adds, options.now_millis).await?;
        adds = left;
        replaced_rows += dropped;
    }
    adds.sort_by(|a, b| a.path.cmp(&b.path));
    let (base, definition, new_columns) = (plan.base, plan.definition, plan.new_columns);
    let finished =
        finish(lake, table, base, definition, new_columns, adds, options, progress).await;
    finished.map(|summary| LoadSummary {
        replaced_rows: summary.replaced_rows + replaced_rows,
        ..summary
    })
}

/// Ends the threads of a load that is dropped.
struct StopOnDrop(Arc<TableWriter>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The rejects file is made anew: it must not be one of the inputs.
fn check_rejects(on_error: &OnError, files: &[InputFile]) -> Result<()> {
    let OnError::Skip { rejects } = on_error else { return Ok(()) };
    let Ok(target) = std::fs::canonicalize(rejects) else { return Ok(()) };
    let same = |f: &&InputFile| {
        f.path.as_ref().is_some_and(|p| std::fs::canonicalize(p).is_ok_and(|p| p == target))
    };
    match files.iter().find(same) {
        None => Ok(()),
        Some(file) => Err(TableError::Invalid(format!(
            "--rejects {} is the input {}; name another file",
            rejects.display(),
            file.name
        ))),
    }
}

fn already_loaded(base: &Snapshot) -> LoadSummary {
    LoadSummary {
        version: None,
        created: false,
        rows: 0,
        bad_rows: 0,
        files: 0,
        bytes: 0,
        schema: SchemaRef::clone(base.schema()),
        new_columns: Vec::new(),
        replaced_rows: 0,
    }
}

/// The opened inputs and the table they are to become.
struct Plan {
    base: Option<Snapshot>,
    definition: TableDefinition,
    new_columns: Vec<String>,
    layout: Layout,
    inputs: Vec<Input>,
}

impl Plan {
    fn new(
        lake: &Lake,
        table: &str,
        base: Option<Snapshot>,
        files: &[InputFile],
        options: &LoadOptions,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let total: u64 = files
            .iter()
            .filter_map(|f| std::fs::metadata(f.path.as_ref()?).ok())
            .map(|m| m.len())
            .sum();
        progress.bytes_total.store(total, Ordering::Relaxed);
        let declared = options.schema.as_deref();
        let mut columns = match &base {
            Some(base) => Columns::of_table(base.schema(), declared)?,
            None => Columns::default(),
        };
        let mut inputs = Vec::with_capacity(files.len());
        // A table that is there says itself what is not NULL.
        let key = if base.is_none() { options.primary_key.as_slice() } else { &[] };
        for file in files {
            let hints = columns.hints(declared);
            let open = if inputs.len() < KEPT_OPEN { Input::open } else { Input::open_later };
            let input = open(file, &options.text, hints.as_ref(), key, progress)?;
            let may_add = inputs.is_empty() && base.is_none() || options.allow_new_columns;
            let known = columns.fields.len();
            columns.merge(&input.file.name, &input.schema, declared, may_add)?;
            check_new_columns(&Schema::new(columns.fields[known..].to_vec()))?;
            inputs.push(input);
        }
        columns.check_declared(declared)?;
        if base.is_some() {
            // Rows that are there have NULL in new columns.
            let is_asked = |name: &str| {
                declared
                    .and_then(|s| s.field_with_name(name).ok())
                    .is_some_and(|f| !f.is_nullable())
            };
            let Columns { fields, added } = &mut columns;
            for field in fields.iter_mut().filter(|field| added.contains(field.name())) {
                if is_asked(field.name()) {
                    return Err(TableError::Invalid(format!(
                        "column `{}` is new to table `{table}`, whose rows have NULL there; leave \
                         out NOT NULL",
                        field.name()
                    )));
                }
                field.set_nullable(true);
            }
        }
        let definition = definition(&base, &columns, options)?;
        check_definition(&definition)?;
        if definition.primary_key.is_empty() && options.on_conflict == OnConflict::Ignore {
            return Err(TableError::Invalid(format!(
                "table `{table}` has no primary key, so no row is in conflict with another; leave \
                 --on-conflict out, or make the table with --primary-key"
            )));
        }
        let on_conflict = options.on_conflict;
        let layout = Layout { on_conflict, ..Layout::new(lake, table, &definition)? };
        let new_columns = if base.is_some() { columns.added } else { Vec::new() };
        Ok(Self { base, definition, new_columns, layout, inputs })
    }
}

/// The layout is the table's; what the command line says must agree with it.
fn definition(
    base: &Option<Snapshot>,
    columns: &Columns,
    options: &LoadOptions,
) -> Result<TableDefinition> {
    let mut fields = columns.fields.clone();
    if base.is_none() {
        for field in &mut fields {
            let in_key = options.primary_key.contains(field.name());
            field.set_nullable(field.is_nullable() && !in_key);
        }
    }
    let schema = Arc::new(Schema::new(fields));
    let Some(base) = base else {
        return Ok(TableDefinition {
            schema,
            partition_columns: options.partition_by.clone(),
            cluster_by: options.cluster_by.clone(),
            indexes: options.indexes.clone(),
            id_domains: options.id_domains.clone(),
            primary_key: options.primary_key.clone(),
        });
    };
    if !options.id_domains.is_empty() && options.id_domains != base.id_domains() {
        let has: Vec<String> = base.id_domains().iter().map(ToString::to_string).collect();
        return Err(TableError::Invalid(format!(
            "table `{}` exists with {}; leave --id-domain out, or load into a new table",
            base.table(),
            if has.is_empty() {
                "no id domains".into()
            } else {
                format!("--id-domain {}", has.join(" "))
            }
        )));
    }
    if !options.indexes.is_empty() && options.indexes != base.indexes() {
        return Err(TableError::Invalid(format!(
            "table `{0}` exists with other indexes; leave --index out, and change them with \
             uplake table reindex {0} --index COLUMN",
            base.table()
        )));
    }
    for (flag, asked, has) in [
        ("--partition-by", &options.partition_by, base.partition_columns()),
        ("--cluster-by", &options.cluster_by, base.cluster_by()),
        ("--primary-key", &options.primary_key, base.primary_key()),
    ] {
        if !asked.is_empty() && asked.as_slice() != has {
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            return Err(TableError::Invalid(format!(
                "table `{}` exists with {flag} {has}; leave the option out",
                base.table()
            )));
        }
    }
    Ok(TableDefinition {
        schema,
        partition_columns: base.partition_columns().to_vec(),
        cluster_by: base.cluster_by().to_vec(),
        indexes: base.indexes().to_vec(),
        id_domains: base.id_domains().to_vec(),
        primary_key: base.primary_key().to_vec(),
    })
}

/// The table's columns as they grow while files are opened.
#[derive(Default)]
struct Columns {
    fields: Vec<Field>,
    added: Vec<String>,
}

impl Columns {
    fn of_table(schema: &Schema, declared: Option<&Schema>) -> Result<Self> {
        for wanted in declared.map(Schema::fields).into_iter().flatten() {
            if let Ok(field) = schema.field_with_name(wanted.name())
                && field.data_type() != wanted.data_type()
            {
                return Err(TableError::Invalid(format!(
                    "--schema says column `{}` is {}, but the table has {}",
                    wanted.name(),
                    type_name(wanted.data_type()),
                    type_name(field.data_type())
                )));
            }
        }
        let fields = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        Ok(Self { fields, added: Vec::new() })
    }

    /// The columns whose types are settled: the table's so far, then what `--schema` declares.
    fn hints(&self, declared: Option<&Schema>) -> Option<Schema> {
        let mut fields = self.fields.clone();
        for field in declared.map(Schema::fields).into_iter().flatten() {
            if !fields.iter().any(|f| f.name() == field.name()) {
                fields.push(field.as_ref().clone());
            }
        }
        (!fields.is_empty()).then(|| Schema::new(fields))
    }

    /// A declared column that neither the table nor a file has is a slip of the pen.
    fn check_declared(&self, declared: Option<&Schema>) -> Result<()> {
        let unknown = declared
            .map(Schema::fields)
            .into_iter()
            .flatten()
            .find(|d| !self.fields.iter().any(|f| f.name() == d.name()));
        match unknown {
            None => Ok(()),
            Some(field) => {
                let known: Vec<&str> = self.fields.iter().map(|f| f.name().as_str()).collect();
                Err(TableError::Invalid(format!(
                    "--schema names column `{}`, which no file has; the columns are {}",
                    field.name(),
                    known.join(", ")
                )))
            }
        }
    }

    fn merge(
        &mut self,
        file: &str,
        found: &Schema,
        declared: Option<&Schema>,
        may_add: bool,
    ) -> Result<()> {
        let count = found.fields().len();
        if count > MOST_COLUMNS {
            return Err(TableError::Input {
                file: file.to_owned(),
                reason: format!(
                    "has {count} columns, and a table has at most {MOST_COLUMNS}; keys that differ from \
                     record to record belong in a column of values, not in names"
                ),
            });
        }
        for field in found.fields() {
            if let Some(known) = self.fields.iter().find(|f| f.name() == field.name()) {
                if !widens(field.data_type(), known.data_type()) {
                    return Err(TableError::TypeClash {
                        file: file.to_owned(),
                        column: field.name().clone(),
                        found: type_name(field.data_type()),
                        expected: type_name(known.data_type()),
                    });
                }
                continue;
            }
            if !may_add {
                return Err(TableError::NewColumn {
                    file: file.to_owned(),
                    column: field.name().clone(),
                    type_name: type_name(field.data_type()),
                });
            }
            let target = declared.and_then(|s| s.field_with_name(field.name()).ok());
            self.fields.push(target.unwrap_or(field).clone());
            self.added.push(field.name().clone());
        }
        Ok(())
    }
}

/// The next unit to decode, from whichever input is being read.
struct Units {
    inputs: VecDeque<(usize, Input, Fit)>,
    /// Of the first of them, once it is read.
    decoder: Option<Decoder>,
    unit: usize,
}

impl Units {
    fn next(&mut self) -> Result<Option<(Sequence, Unit, Decoder)>> {
        while let Some((number, input, fit)) = self.inputs.front_mut() {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                none => none.insert(input.decoder(fit)?),
            };
            if let Some(unit) = input.next_unit()? {
                let sequence = Sequence { input: *number, unit: self.unit, batch: 0 };
                self.unit += 1;
                return Ok(Some((sequence, unit, decoder.clone())));
            }
            self.inputs.pop_front();
            self.decoder = None;
        }
        Ok(None)
    }
}

struct Shared<'a> {
    units: Mutex<Units>,
    writer: &'a TableWriter,
    rejects: Option<Rejects>,
    decoded: Barrier,
    failed: AtomicBool,
    error: Mutex<Option<TableError>>,
    progress: &'a Progress,
}

fn run_threads(
    inputs: Vec<Input>,
    schema: &SchemaRef,
    writer: &TableWriter,
    options: &LoadOptions,
    progress: &Progress,
) -> Result<()> {
    let inputs = inputs
        .into_iter()
        .enumerate()
        .map(|(number, input)| {
            let fit = input.fit(schema)?;
            Ok((number, input, fit))
        })
        .collect::<Result<VecDeque<_>>>()?;
    let rejects = match &options.on_error {
        OnError::Abort => None,
        OnError::Skip { rejects } => Some(Rejects::create(rejects)?),
    };
    let shared = Shared {
        units: Mutex::new(Units { inputs, decoder: None, unit: 0 }),
        writer,
        rejects,
        decoded: Barrier::new(options.threads.max(1)),
        failed: AtomicBool::new(false),
        error: Mutex::new(None),
        progress,
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            scope.spawn(|| shared.work());
        }
        shared.work();
    });
    let error = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner);
    match error {
        Some(error) => Err(error),
        None => shared.rejects.map_or(Ok(()), Rejects::finish),
    }
}

impl Shared<'_> {
    fn work(&self) {
        self.keep_error(guarded(|| self.decode_all()));
        // A buffer is final only when nobody decodes any more; flushing earlier would cut small files.
        self.decoded.wait();
        self.keep_error(guarded(|| self.flush_all()));
    }

    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.writer.is_stopped()
    }

    fn keep_error(&self, result: Result<()>) {
        if let Err(error) = result {
            self.failed.store(true, Ordering::Relaxed);
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }

    fn decode_all(&self) -> Result<()> {
        while !self.is_over() {
            let next = self.units.lock().unwrap_or_else(PoisonError::into_inner).next()?;
            let Some((mut sequence, unit, decoder)) = next else { return Ok(()) };
            let max_bad = if self.rejects.is_some() { usize::MAX } else { 1 };
            let bad = decoder.decode(unit, max_bad, self.progress, &mut |batch| {
                if self.writer.is_stopped() {
                    return Err(TableError::Stopped);
                }
                sequence.batch += 1;
                self.writer.push(sequence, &batch)?;
                let written = self.writer.bytes_written.load(Ordering::Relaxed);
                self.progress.bytes_written.store(written, Ordering::Relaxed);
                Ok(())
            })?;
            self.reject(bad)?;
        }
        Ok(())
    }

    fn flush_all(&self) -> Result<()> {
        while !self.is_over() && self.writer.flush_one()? {
            let written = self.writer.bytes_written.load(Ordering::Relaxed);
            self.progress.bytes_written.store(written, Ordering::Relaxed);
        }
        Ok(())
    }

    fn reject(&self, bad: Vec<BadRow>) -> Result<()> {
        self.progress.bad_rows.fetch_add(bad.len() as u64, Ordering::Relaxed);
        match &self.rejects {
            Some(rejects) => rejects.write(&bad),
            None => match bad.into_iter().next() {
                Some(row) => Err(TableError::BadRow(Box::new(row))),
                None => Ok(()),
            },
        }
    }
}

/// A panic becomes an error: the other threads wait for this one at the barrier.
fn guarded(work: impl FnOnce() -> Result<()>) -> Result<()> {
    // What the panic left half-done is not used: an error ends the load.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(TableError::Panicked("loading")))
}

/// The file of rejected rows: CSV with file, line, column, value, reason, record.
struct Rejects {
    path: PathBuf,
    file: Mutex<std::io::BufWriter<std::fs::File>>,
}

impl Rejects {
    fn create(path: &PathBuf) -> Result<Self> {
        let fail = |e| TableError::io(format!("writing rejects to {}", path.display()), e);
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(fail)?);
        writeln!(file, "file,line,column,value,reason,record").map_err(fail)?;
        Ok(Self { path: path.clone(), file: Mutex::new(file) })
    }

    fn write(&self, rows: &[BadRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let fields = [
                row.file.clone(),
                row.line.to_string(),
                row.column.clone().unwrap_or_default(),
                row.value.clone().unwrap_or_default(),
                row.problem.clone(),
                row.record.clone(),
            ];
            let line: Vec<String> =
                fields.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
            writeln!(file, "{}", line.join(",")).map_err(|e| {
                TableError::io(format!("writing rejects to {}", self.path.display()), e)
            })?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let mut file = self.file.into_inner().unwrap_or_else(PoisonError::into_inner);
        file.flush()
            .map_err(|e| TableError::io(format!("writing rejects to {}", self.path.display()), e))
    }
}

#[expect(clippy::too_many_arguments, reason = "one call, every part of the plan is used once")]
async fn finish(
    lake: &Lake,
    table: &str,
    base: Option<Snapshot>,
    definition: TableDefinition,
    new_columns: Vec<String>,
    adds: Vec<Add>,
    options: &LoadOptions,
    progress: &Progress,
) -> Result<LoadSummary> {
    let mut summary = LoadSummary {
        version: Some(0),
        created: base.is_none(),
        rows: progress.rows.load(Ordering::Relaxed),
        bad_rows: progress.bad_rows.load(Ordering::Relaxed),
        files: adds.len(),
        bytes: adds.iter().map(|a| a.size as u64).sum(),
        schema: SchemaRef::clone(&definition.schema),
        new_columns,
        replaced_rows: 0,
    };
    match commit_load(lake, table, base, &definition, &adds, options).await {
        Ok(Committed { version, created, schema, replaced_rows }) => {
            summary.replaced_rows = replaced_rows;
            summary.version = Some(version);
            summary.created = created;
            summary.schema = schema;
            Ok(summary)
        }
        Err(CommitError::LabelTaken) => {
            commit::discard(lake, table, &adds).await;
            Ok(already_loaded(&lake.snapshot(table, &AsOf::Latest).await?))
        }
        Err(CommitError::Conflict(reason)) => {
            commit::discard(lake, table, &adds).await;
            Err(TableError::Conflict { table: table.to_owned(), reason })
        }
        Err(CommitError::Failed(error)) => {
            commit::discard(lake, table, &adds).await;
            Err(error)
        }
    }
}

struct Committed {
    version: u64,
    created: bool,
    schema: SchemaRef,
    replaced_rows: u64,
}

/// Commits; when another writer was first, fits the change to what the table has become.
async fn commit_load(
    lake: &Lake,
    table: &str,
    mut base: Option<Snapshot>,
    definition: &TableDefinition,
    adds: &[Add],
    options: &LoadOptions,
) -> Result<Committed, CommitError> {
    let label = options.label.as_deref();
    let mut last = String::new();
    for _ in 0..COMMIT_ATTEMPTS {
        let attempt = match &base {
            None => {
                let added = adds.to_vec();
                commit::create(lake, table, definition, added, label, options.now_millis).await.map(
                    |()| Committed {
                        version: 0,
                        created: true,
                        schema: SchemaRef::clone(&definition.schema),
                        replaced_rows: 0,
                    },
                )
            }
            Some(base) => append(lake, base, definition, adds, options).await,
        };
        match attempt {
            Err(CommitError::Conflict(reason)) => {
                last = reason;
                let newer = lake.snapshot(table, &AsOf::Latest).await?;
                if let Some(label) = label
                    && newer.has_label(label).await?
                {
                    commit::sync_log(lake, table).await?;
                    return Err(CommitError::LabelTaken);
                }
                base = Some(newer);
            }
            other => return other,
        }
    }
    Err(CommitError::Conflict(last))
}

async fn append(
    lake: &Lake,
    base: &Snapshot,
    definition: &TableDefinition,
    adds: &[Add],
    options: &LoadOptions,
) -> Result<Committed, CommitError> {
    if base.partition_columns() != definition.partition_columns
        || base.cluster_by() != definition.cluster_by
        || base.id_domains() != definition.id_domains
        || base.primary_key() != definition.primary_key
    {
        return Err(CommitError::Failed(TableError::Conflict {
            table: base.table().to_owned(),
            reason: "it was made with another partitioning, clustering, id domain or primary key"
                .into(),
        }));
    }
    let merged = merged_schema(base, &definition.schema)?;
    let changed = merged.fields().len() != base.schema().fields().len();
    let change = Change {
        add: adds.to_vec(),
        remove: Vec::new(),
        schema: changed.then(|| SchemaRef::clone(&merged)),
        indexes: None,
        on_these_files_only: false,
        label: options.label.clone(),
        operation: DeltaOperation::Write {
            mode: SaveMode::Append,
            partition_by: (!base.partition_columns().is_empty())
                .then(|| base.partition_columns().to_vec()),
            predicate: None,
        },
        now_millis: options.now_millis,
    };
    let (version, replaced_rows) = if base.primary_key().is_empty() {
        (commit::commit(lake, base, change).await?, 0)
    } else {
        let schema = SchemaRef::clone(&merged);
        let layout = Layout { schema, on_conflict: options.on_conflict, ..Layout::of(base) };
        primary_key::commit(lake, &layout, base, adds, change).await?
    };
    Ok(Committed { version, created: false, schema: merged, replaced_rows })
}

/// The table's columns with the load's new ones; a column both have must have one type.
fn merged_schema(base: &Snapshot, loaded: &SchemaRef) -> Result<SchemaRef> {
    let mut fields: Vec<Field> =
        base.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    for field in loaded.fields() {
        match fields.iter().find(|f| f.name() == field.name()) {
            Some(known) if known.data_type() != field.data_type() => {
                return Err(TableError::Conflict {
                    table: base.table().to_owned(),
                    reason: format!(
                        "it made column `{}` {}, this load has {}",
                        field.name(),
                        type_name(known.data_type()),
                        type_name(field.data_type())
                    ),
                });
            }
            Some(_) => {}
            None => fields.push(field.as_ref().clone()),
        }
    }
    if fields.len() == base.schema().fields().len() {
        return Ok(SchemaRef::clone(base.schema()));
    }
    Ok(Arc::new(Schema::new(fields)))
}
