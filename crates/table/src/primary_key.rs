//! Tables with a primary key: a load replaces the rows whose keys it brings again.
//!
//! ```text
//! new rows ─► one of each key in a buffer ─► new files ─► one of each key among them
//!          ─► files of their partitions that hold some of the keys, written again without those rows
//!          ─► one commit: new files, rewritten files, the old ones out
//! ```
//!
//! Files are replaced as a whole, so any Delta reader gets the right rows.
//!
//! # Invariants
//! - The key holds the partition columns, so rows of one key are in one partition.
//! - A commit is for the files it looked at: if others came meanwhile, their keys are looked at, too.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use deltalake_core::kernel::Add;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::runtime::Handle;
use uplake_objectio::Store;

use crate::changed_rows::ChangedRows;
use crate::checksums::{Checksums, TAIL_TAG};
use crate::columns::fit;
use crate::commit::{self, Change, CommitError, check_removable, remove_action};
use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::int96::reader_metadata;
use crate::key_columns::KeyColumns;
use crate::lake::Lake;
use crate::layout::{Layout, OnConflict};
use crate::names::store_path;
use crate::snapshot::{Snapshot, rows_of};
use crate::store_file::StoreFile;
use crate::thread::on_thread;
use crate::write::TableWriter;

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;

/// What a commit of new rows is to be made of.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// New files, and what is left of rewritten ones.
    pub add: Vec<Add>,
    /// Files of the table that were rewritten.
    pub remove: Vec<DataFile>,
    /// Files written here, to discard if the commit fails.
    pub written: Vec<Add>,
    /// Rows left out.
    pub dropped: u64,
}

/// A data file, of the table or new.
#[derive(Clone)]
struct Source {
    path: String,
    location: Path,
    size: u64,
    checksums: Option<Arc<Checksums>>,
    partition: Vec<Option<String>>,
}

impl Source {
    fn of_new(layout: &Layout, add: &Add) -> Result<Self> {
        let value = |c: &String| add.partition_values.get(c).cloned().flatten();
        let size = u64::try_from(add.size).unwrap_or_default();
        let tag = add.tags.as_ref().and_then(|tags| tags.get(TAIL_TAG)?.as_deref());
        Ok(Self {
            path: add.path.clone(),
            location: store_path(&layout.table, &layout.prefix, &add.path)?,
            size,
            checksums: tag.and_then(|tag| Checksums::from_tag(tag, size)),
            partition: layout.partition_columns.iter().map(value).collect(),
        })
    }

    fn of_table(layout: &Layout, file: &DataFile) -> Self {
        let value = |c: &String| file.partition_values.get(c).cloned().flatten();
        Self {
            path: file.path.clone(),
            location: file.store_path.clone(),
            size: file.size,
            checksums: file.checksums.clone(),
            partition: layout.partition_columns.iter().map(value).collect(),
        }
    }
}

type KeySet = HashSet<Box<[u8]>>;

struct Work {
    writer: TableWriter,
    layout: Layout,
    keys: KeyColumns,
    /// A file's columns without ids.
    schema: SchemaRef,
    store: Arc<Store>,
    runtime: Handle,
    now: Resolved,
}

/// One row of each key among the files of a load, given in the order in which they were written;
/// returns the files that are left and the number of rows that are not.
pub(crate) async fn among_new(
    lake: &Lake,
    layout: &Layout,
    new: Vec<Add>,
    now_millis: i64,
) -> Result<(Vec<Add>, u64)> {
    let resolved = repeats_among(lake, layout, new.clone(), now_millis).await;
    let kept = resolved.as_ref().map_or(&[][..], |r| &r.add);
    let unused: Vec<Add> =
        new.iter().filter(|n| !kept.iter().any(|a| a.path == n.path)).cloned().collect();
    commit::discard(lake, &layout.table, &unused).await;
    resolved.map(|resolved| (resolved.add, resolved.dropped))
}

async fn repeats_among(
    lake: &Lake,
    layout: &Layout,
    new: Vec<Add>,
    now_millis: i64,
) -> Result<Resolved> {
    run(lake, layout, now_millis, move |work| {
        let mut sources = Vec::new();
        for add in new {
            sources.push((Source::of_new(&work.layout, &add)?, add));
        }
        if work.layout.on_conflict == OnConflict::Replace {
            sources.reverse();
        }
        for partition in partitions(&sources) {
            let here: Vec<_> = sources.iter().filter(|(s, _)| s.partition == partition).collect();
            let alone = here.len() == 1;
            let mut seen = KeySet::new();
            for (source, add) in here {
                if alone {
                    work.now.add.push(add.clone());
                    continue;
                }
                let repeated = work.find(source, &seen)?;
                work.collect(source, &mut seen)?;
                match repeated.is_empty() {
                    true => work.now.add.push(add.clone()),
                    false => work.rewrite(source, &repeated)?,
                }
            }
        }
        Ok(())
    })
    .await
}

/// Commits new rows on top of `base`, as `change` makes it of the files that come and go. A conflict
/// is for the caller to try again on what the table is by then; nothing is left of the attempt.
pub(crate) async fn commit(
    lake: &Lake,
    layout: &Layout,
    base: &Snapshot,
    new: &[Add],
    mut change: Change,
) -> Result<(u64, u64), CommitError> {
    let table = base.table();
    let now_millis = change.now_millis;
    let Resolved { add, remove, written, dropped } =
        against_table(lake, layout, base, new.to_vec(), now_millis).await?;
    let unused: Vec<Add> =
        new.iter().filter(|n| !add.iter().any(|a| a.path == n.path)).cloned().collect();
    let brought: Option<u64> = new.iter().map(rows_of).sum();
    change.rows = brought.map(|brought| ChangedRows {
        inserted: brought.saturating_sub(dropped),
        // Of a key that is there, the row that was or the one that came is left out.
        updated: if layout.on_conflict == OnConflict::Replace { dropped } else { 0 },
        deleted: 0,
    });
    change.add = add;
    if let Err(error) = check_removable(table, &remove) {
        commit::discard(lake, table, &written).await;
        return Err(error.into());
    }
    change.remove = remove.iter().map(|f| remove_action(f, now_millis, true)).collect();
    change.on_these_files_only = true;
    match commit::commit(lake, base, change).await {
        Ok(version) => {
            commit::discard(lake, table, &unused).await;
            Ok((version, dropped))
        }
        Err(error) => {
            commit::discard(lake, table, &written).await;
            Err(error)
        }
    }
}

/// The new files against those of the table.
async fn against_table(
    lake: &Lake,
    layout: &Layout,
    base: &Snapshot,
    new: Vec<Add>,
    now_millis: i64,
) -> Result<Resolved> {
    let files = base.files().to_vec();
    run(lake, layout, now_millis, move |work| {
        let mut sources = Vec::new();
        for add in new {
            sources.push((Source::of_new(&work.layout, &add)?, add));
        }
        for partition in partitions(&sources) {
            let here: Vec<_> = sources.iter().filter(|(s, _)| s.partition == partition).collect();
            let mut brought = KeySet::new();
            for (source, _) in &here {
                work.collect(source, &mut brought)?;
            }
            let mut there = KeySet::new();
            for file in &files {
                let source = Source::of_table(&work.layout, file);
                if source.partition != partition {
                    continue;
                }
                let found = work.find(&source, &brought)?;
                if found.is_empty() {
                    continue;
                }
                match work.layout.on_conflict {
                    OnConflict::Ignore => there.extend(found),
                    OnConflict::Replace => {
                        work.rewrite(&source, &found)?;
                        work.now.remove.push(file.clone());
                    }
                }
            }
            for (source, add) in here {
                let known =
                    if there.is_empty() { KeySet::new() } else { work.find(source, &there)? };
                match known.is_empty() {
                    true => work.now.add.push(add.clone()),
                    false => work.rewrite(source, &known)?,
                }
            }
        }
        Ok(())
    })
    .await
}

fn partitions(sources: &[(Source, Add)]) -> Vec<Vec<Option<String>>> {
    let mut found: Vec<Vec<Option<String>>> = Vec::new();
    for (source, _) in sources {
        if !found.contains(&source.partition) {
            found.push(source.partition.clone());
        }
    }
    found
}

async fn run(
    lake: &Lake,
    layout: &Layout,
    now_millis: i64,
    work: impl FnOnce(&mut Work) -> Result<()> + Send + 'static,
) -> Result<Resolved> {
    let runtime = Handle::current();
    let writer = TableWriter::new(lake, layout.clone(), runtime.clone(), 0, now_millis);
    writer.ids().open().await?;
    // Without ids, which are made again from the keys: the same ones, if the files had any.
    let given = layout.schema.fields().iter();
    let given = given.filter(|f| !layout.partition_columns.contains(f.name())).cloned();
    let schema = Arc::new(Schema::new(given.collect::<Vec<_>>()));
    let mut state = Work {
        keys: KeyColumns::new(&schema, layout)?,
        layout: layout.clone(),
        writer,
        schema,
        store: Arc::clone(lake.storage()),
        runtime,
        now: Resolved::default(),
    };
    let (lake, table) = (lake.clone(), layout.table.clone());
    let (result, now) = on_thread(move || {
        let result = work(&mut state);
        state.now.written.extend(state.writer.take_files());
        Ok((result, state.now))
    })
    .await?;
    if let Err(error) = result {
        commit::discard(&lake, &table, &now.written).await;
        return Err(error);
    }
    Ok(now)
}

impl Work {
    /// The file's rows; its key columns alone, or all.
    fn read(
        &self,
        source: &Source,
        keys_only: bool,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let parquet = |e| TableError::Parquet { file: source.path.clone(), source: e };
        let chunks = StoreFile::at(
            &self.store,
            source.location.clone(),
            source.size,
            source.checksums.clone(),
            &self.runtime,
        );
        let metadata = reader_metadata(&chunks).map_err(parquet)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, metadata);
        let (mask, schema) = if keys_only {
            let names = self.keys.names.iter().map(String::as_str);
            let of = |name: &String| self.schema.field_with_name(name).cloned();
            let fields = self
                .keys
                .names
                .iter()
                .map(of)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| TableError::arrow("reading the primary key", e))?;
            let mask = ProjectionMask::columns(builder.parquet_schema(), names);
            (mask, Arc::new(Schema::new(fields)))
        } else {
            (ProjectionMask::all(), Arc::clone(&self.schema))
        };
        let reader =
            builder.with_projection(mask).with_batch_size(BATCH_ROWS).build().map_err(parquet)?;
        let path = source.path.clone();
        Ok(reader.map(move |batch| {
            batch
                .and_then(|batch| fit(&batch, &schema))
                .map_err(|e| TableError::arrow(format!("reading {path}"), e))
        }))
    }

    /// Adds the file's keys to `keys`.
    fn collect(&self, source: &Source, keys: &mut KeySet) -> Result<()> {
        for batch in self.read(source, true)? {
            let rows = self.keys.rows(&batch?)?;
            keys.extend(rows.iter().map(|row| Box::from(row.data())));
        }
        Ok(())
    }

    /// Those of `keys` that the file holds.
    fn find(&self, source: &Source, keys: &KeySet) -> Result<KeySet> {
        let mut found = KeySet::new();
        if keys.is_empty() {
            return Ok(found);
        }
        for batch in self.read(source, true)? {
            let rows = self.keys.rows(&batch?)?;
            let held = rows.iter().filter(|row| keys.contains(row.data()));
            found.extend(held.map(|row| Box::from(row.data())));
        }
        Ok(found)
    }

    /// Writes the file again without the rows of these keys; not at all if none is left.
    fn rewrite(&mut self, source: &Source, without: &KeySet) -> Result<()> {
        let mut output = None;
        for batch in self.read(source, false)? {
            let batch = batch?;
            let rows = self.keys.rows(&batch)?;
            let stays = |at: usize| !without.contains(rows.row(at).data());
            let mask =
                BooleanArray::new(BooleanBuffer::collect_bool(batch.num_rows(), stays), None);
            let left = filter_record_batch(&batch, &mask)
                .map_err(|e| TableError::arrow("leaving replaced rows out", e))?;
            self.now.dropped += (batch.num_rows() - left.num_rows()) as u64;
            if left.num_rows() == 0 {
                continue;
            }
            let left = self.writer.ids().append(vec![left], &self.runtime)?;
            for rows in &left {
                let file = match &mut output {
                    Some(file) => file,
                    None => output.insert(self.writer.open_file(&source.partition, &left, rows)?),
                };
                file.write(rows)?;
            }
        }
        if let Some(file) = output {
            self.writer.close_file(file)?;
            let written = self.writer.take_files();
            self.now.add.extend(written.iter().cloned());
            self.now.written.extend(written);
        }
        Ok(())
    }
}
