//! Ids of rows on their way into files.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Schema, SchemaRef};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use uplake_domain::{Columnar, Domain, DomainError, Mark};

use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::id_domain::{IdDomainSpec, IdSample, id_field, tag};
use crate::lake::Lake;

/// Rows whose keys are numbered together: one request if any of them is new.
const ENCODE_ROWS: usize = 1 << 20;

/// The id columns of a table, for those who write its files.
pub(crate) struct IdColumns {
    lake: Lake,
    columns: Vec<IdColumn>,
    /// The columns of a file: the given ones, then the ids.
    schema: SchemaRef,
}

struct IdColumn {
    spec: IdDomainSpec,
    /// Position of the keys among the given columns.
    keys: usize,
    domain: OnceCell<Arc<Domain>>,
    /// Which log the ids of the written files are from.
    log: OnceLock<u128>,
    /// How far the log went when the files were written whose ids are kept.
    kept: OnceLock<Mark>,
}

impl IdColumns {
    /// `given`: a file's columns without the ids.
    pub fn new(lake: &Lake, specs: &[IdDomainSpec], given: &SchemaRef) -> Self {
        let column = |spec: &IdDomainSpec| {
            Some(IdColumn {
                keys: given.index_of(&spec.column).ok()?,
                spec: spec.clone(),
                domain: OnceCell::new(),
                log: OnceLock::new(),
                kept: OnceLock::new(),
            })
        };
        let columns: Vec<IdColumn> = specs.iter().filter_map(column).collect();
        let schema = match columns.as_slice() {
            [] => Arc::clone(given),
            columns => {
                let ids = columns.iter().map(|c| id_field(&c.spec.column));
                Arc::new(Schema::new(given.fields().iter().cloned().chain(ids).collect::<Vec<_>>()))
            }
        };
        Self { lake: lake.clone(), columns, schema }
    }

    /// The columns of a file, ids included.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Opens the domains, so that trouble with them is known before rows are read.
    pub async fn open(&self) -> Result<()> {
        for column in &self.columns {
            self.domain(column).await?;
        }
        Ok(())
    }

    async fn domain<'a>(&self, column: &'a IdColumn) -> Result<&'a Arc<Domain>> {
        let open = || self.lake.domain_for_writing(&column.spec.domain);
        let domain = column.domain.get_or_try_init(open).await?;
        column.log.get_or_init(|| domain.identity());
        Ok(domain)
    }

    /// Ids of the files to merge are kept if they are all from one log, which is not `replaced`; else
    /// the domains are opened, and ids of other logs are made anew.
    pub async fn keep_ids_of(&self, files: &[DataFile], replaced: &[String]) -> Result<()> {
        for column in &self.columns {
            let first = files.first().and_then(|f| f.ids.get(&column.spec.column));
            let first = first.filter(|source| !replaced.contains(source));
            let log = first.and_then(|source| {
                let (domain, log) = source.split_once(':')?;
                let log = u128::from_str_radix(log, 16).ok()?;
                (domain == column.spec.domain).then_some(log)
            });
            let same = |f: &DataFile| f.ids.get(&column.spec.column) == first;
            match log.filter(|_| files.iter().all(same)) {
                Some(log) => {
                    column.log.get_or_init(|| log);
                    let marks = files.iter().filter_map(|f| f.id_marks.get(&column.spec.column));
                    if let Some(newest) = marks.max_by_key(|mark| mark.run) {
                        column.kept.get_or_init(|| *newest);
                    }
                }
                None => {
                    self.domain(column).await?;
                }
            }
        }
        Ok(())
    }

    /// Are the ids in the file those that a file written now would have?
    pub fn believes(&self, file: &DataFile) -> bool {
        self.columns.iter().all(|c| {
            let expected = c.log.get().map(|log| format!("{}:{log:032x}", c.spec.domain));
            expected.is_some() && file.ids.get(&c.spec.column) == expected.as_ref()
        })
    }

    /// The tag of a file written now; `None` without id columns.
    pub fn tag(&self) -> Option<String> {
        let ids: Option<Vec<(&IdDomainSpec, u128)>> =
            self.columns.iter().map(|c| Some((&c.spec, *c.log.get()?))).collect();
        ids.filter(|ids| !ids.is_empty()).map(|ids| tag(ids.into_iter()))
    }

    /// The tag that says how far the logs went; `None` without id columns. Called outside the async runtime.
    pub fn marks(&self, runtime: &Handle) -> Option<String> {
        let mark = |column: &IdColumn| {
            let now = column.domain.get().map(|domain| runtime.block_on(domain.mark()));
            let mark = now.or_else(|| column.kept.get().copied())?;
            Some(format!("{}:{mark}", column.spec.column))
        };
        let marks: Vec<String> = self.columns.iter().filter_map(mark).collect();
        (!marks.is_empty()).then(|| marks.join(","))
    }

    /// For a new file.
    pub fn sample(&self) -> IdSample {
        IdSample::new(self.columns.iter().map(|column| column.spec.column.as_str()))
    }

    /// The batches with their ids; keys that have none get one. Called outside the async runtime.
    pub fn append(&self, batches: Vec<RecordBatch>, runtime: &Handle) -> Result<Vec<RecordBatch>> {
        if self.columns.is_empty() {
            return Ok(batches);
        }
        let mut ids: Vec<Vec<ArrayRef>> =
            vec![Vec::with_capacity(self.columns.len()); batches.len()];
        for column in &self.columns {
            let mut from = 0;
            while from < batches.len() {
                let (mut to, mut rows) = (from, 0);
                while to < batches.len() && (to == from || rows < ENCODE_ROWS) {
                    rows += batches[to].num_rows();
                    to += 1;
                }
                let keys: Vec<&StringArray> =
                    batches[from..to].iter().map(|b| b.column(column.keys).as_string()).collect();
                let numbered = runtime.block_on(self.number(column, &keys))?;
                for (ids, numbers) in ids[from..to].iter_mut().zip(numbered) {
                    ids.push(Arc::new(numbers));
                }
                from = to;
            }
        }
        let with_ids = |(batch, ids): (RecordBatch, Vec<ArrayRef>)| {
            let columns = batch.columns().iter().cloned().chain(ids).collect();
            RecordBatch::try_new(Arc::clone(&self.schema), columns)
                .map_err(|e| TableError::arrow("adding ids to rows", e))
        };
        batches.into_iter().zip(ids).map(with_ids).collect()
    }

    async fn number(&self, column: &IdColumn, keys: &[&StringArray]) -> Result<Vec<Int32Array>> {
        let domain = self.domain(column).await?;
        let mut ids = Vec::new();
        let done = match keys {
            [only] if only.null_count() == 0 => {
                domain
                    .encode(&Columnar::new(only.value_offsets(), only.value_data()), &mut ids)
                    .await
            }
            keys => {
                let (offsets, data) = gathered(keys);
                domain.encode(&Columnar::new(&offsets, &data), &mut ids).await
            }
        };
        if let Err(source) = done {
            if matches!(source, DomainError::Replaced { .. }) {
                self.lake.forget_domain(&column.spec.domain).await;
            }
            let column = column.spec.column.clone();
            return Err(TableError::Keys { column, source: Box::new(source) });
        }
        let mut rest = ids.into_iter().map(|id| id as i32);
        Ok(keys.iter().map(|keys| scattered(keys.len(), keys.nulls(), &mut rest)).collect())
    }
}

/// The keys that are not NULL, one after another.
fn gathered(arrays: &[&StringArray]) -> (Vec<i64>, Vec<u8>) {
    let rows: usize = arrays.iter().map(|a| a.len() - a.null_count()).sum();
    let (mut offsets, mut data) = (Vec::with_capacity(rows + 1), Vec::new());
    offsets.push(0);
    for array in arrays {
        for key in array.iter().flatten() {
            data.extend_from_slice(key.as_bytes());
            offsets.push(data.len() as i64);
        }
    }
    (offsets, data)
}

/// The next ids at the rows that are not NULL.
fn scattered(
    rows: usize,
    nulls: Option<&NullBuffer>,
    ids: &mut impl Iterator<Item = i32>,
) -> Int32Array {
    match nulls {
        None => ids.take(rows).collect::<Vec<_>>().into(),
        Some(nulls) => {
            let values: Vec<i32> = nulls
                .iter()
                .map(|valid| if valid { ids.next().unwrap_or_default() } else { 0 })
                .collect();
            Int32Array::new(values.into(), Some(nulls.clone()))
        }
    }
}
