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
use crate::decode::{BadRow, Decoder, Fit, Input, InputFile, Progress, Unit};
use crate::definition::TableDefinition;
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::layout::Layout;
use crate::load_options::{LoadOptions, LoadSummary, OnError};
use crate::load_plan::Plan;
use crate::names::check_table_name;
use crate::primary_key;
use crate::schema::type_name;
use crate::snapshot::Snapshot;
use crate::thread::{on_thread, spawn_paid};
use crate::write::{Sequence, TableWriter};

/// Commits tried when other writers keep changing the schema in between.
const COMMIT_ATTEMPTS: usize = 100;
/// Share of the memory budget for buffered rows; the rest is for decoding, sorting and encoding.
const BUFFER_SHARE: usize = 3;

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
    let lock = lake.lock_for_writing(table).await?.commits();
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
        false => {
            lake.refuse_view(table).await?;
            None
        }
    };
    if let (Some(label), Some(base)) = (&options.label, &base)
        && base.has_label(label).await?
    {
        // Whoever loaded it may have been killed before the commit was on the disk.
        commit::sync_log(lake, table).await?;
        return Ok(already_loaded(base));
    }
    let plan = {
        let (lake, table, files) = (lake.clone(), table.to_owned(), files.to_vec());
        let (options, progress) = (options.clone(), Arc::clone(progress));
        // Files in buckets and pipes are waited for.
        on_thread(move || Plan::new(&lake, &table, base, &files, &options, &progress)).await?
    };
    let mut writer = TableWriter::new(
        lake,
        plan.layout.clone(),
        Handle::current(),
        options.memory_bytes / BUFFER_SHARE,
        options.now_millis,
    );
    writer.rows_written = Arc::clone(&progress.rows_written);
    let writer = Arc::new(writer);
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
        f.path().is_some_and(|p| std::fs::canonicalize(p).is_ok_and(|p| p == target))
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
            spawn_paid(scope, || shared.work());
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
    let fitted_to = base.as_ref().map(|base| SchemaRef::clone(base.schema()));
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
                if let Some(gone) = missing(fitted_to.as_deref(), newer.schema()) {
                    let reason = format!("its column `{gone}` is gone, or has another name");
                    return Err(CommitError::Conflict(reason));
                }
                base = Some(newer);
            }
            other => return other,
        }
    }
    Err(CommitError::Conflict(last))
}

/// The first column that a table had and has no more: a load that has it would make it anew.
fn missing<'s>(had: Option<&'s Schema>, has: &Schema) -> Option<&'s str> {
    let mut columns = had?.fields().iter().map(|field| field.name().as_str());
    columns.find(|column| has.field_with_name(column).is_err())
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
    let partitions = base.partition_columns();
    let operation = DeltaOperation::Write {
        mode: SaveMode::Append,
        partition_by: (!partitions.is_empty()).then(|| partitions.to_vec()),
        predicate: None,
    };
    let change = Change {
        add: adds.to_vec(),
        schema: changed.then(|| SchemaRef::clone(&merged)),
        label: options.label.clone(),
        ..Change::nothing(operation, options.now_millis)
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
