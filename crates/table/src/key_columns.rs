//! Keys of rows, in tables with a primary key.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::{Result, TableError};
use crate::layout::{Layout, OnConflict};

/// The key of rows of a data file, as bytes that are equal if the keys are.
pub(crate) struct KeyColumns {
    pub names: Vec<String>,
    converter: RowConverter,
}

impl KeyColumns {
    pub fn new(schema: &Schema, layout: &Layout) -> Result<Self> {
        let names: Vec<String> = layout
            .primary_key
            .iter()
            .filter(|column| !layout.partition_columns.contains(column))
            .cloned()
            .collect();
        let mut fields = Vec::with_capacity(names.len());
        for name in &names {
            let field = schema
                .field_with_name(name)
                .map_err(|e| TableError::arrow("reading the primary key", e))?;
            fields.push(SortField::new(field.data_type().clone()));
        }
        let converter = RowConverter::new(fields)
            .map_err(|e| TableError::arrow("reading the primary key", e))?;
        Ok(Self { names, converter })
    }

    pub fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let arrow = |e| TableError::arrow("reading the primary key", e);
        let mut columns = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let at = batch.schema().index_of(name).map_err(arrow)?;
            let column = Arc::clone(batch.column(at));
            if column.null_count() > 0 {
                return Err(TableError::Null { column: name.clone(), is_key: true });
            }
            columns.push(column);
        }
        self.converter.convert_columns(&columns).map_err(arrow)
    }
}

/// One row of each key: the last, or the first. Batches are in the order of the input.
pub(crate) fn without_repeats(
    batches: Vec<RecordBatch>,
    layout: &Layout,
    dropped: &AtomicU64,
) -> Result<Vec<RecordBatch>> {
    let Some(first) = batches.first() else { return Ok(batches) };
    let keys = KeyColumns::new(&first.schema(), layout)?;
    let rows = batches.iter().map(|b| keys.rows(b)).collect::<Result<Vec<_>>>()?;
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let mut kept: Vec<Vec<bool>> = rows.iter().map(|r| vec![false; r.num_rows()]).collect();
    let all = (0..rows.len()).flat_map(|b| (0..rows[b].num_rows()).map(move |r| (b, r)));
    let mut take = |(batch, row): (usize, usize)| {
        kept[batch][row] = seen.insert(rows[batch].row(row).data());
    };
    match layout.on_conflict {
        OnConflict::Ignore => all.for_each(&mut take),
        OnConflict::Replace => {
            let places: Vec<(usize, usize)> = all.collect();
            places.into_iter().rev().for_each(&mut take);
        }
    }
    let total: usize = kept.iter().map(Vec::len).sum();
    if seen.len() == total {
        return Ok(batches);
    }
    dropped.fetch_add((total - seen.len()) as u64, Ordering::Relaxed);
    batches
        .iter()
        .zip(kept)
        .map(|(batch, kept)| {
            filter_record_batch(batch, &BooleanArray::from(kept))
                .map_err(|e| TableError::arrow("leaving repeated keys out", e))
        })
        .collect()
}
