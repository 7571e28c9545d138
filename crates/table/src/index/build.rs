//! Building the index of a data file from its rows.

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema,
};
use uplake_index::{
    BytesBuilder, GramsBuilder, IndexError, IntegersBuilder, Run, WordsBuilder, Writer,
    ZonesBuilder, key_of_f64, key_of_i64,
};

use super::file::identity;
use super::spec::{IndexKind, IndexSpec};
use crate::error::{Result, TableError};

/// Rows that one gram of the index stands for.
const GRAM_BLOCK_ROWS: u32 = 128;
/// Rows that have a least and a greatest value together: 16 bytes of index.
const ZONE_ROWS: u32 = 1024;

/// Collects what the rows of one data file hold, in their order.
pub(crate) struct IndexBuilder {
    columns: Vec<Column>,
    rows: u64,
}

struct Column {
    /// Position in the batches.
    position: usize,
    name: String,
    terms: Terms,
}

enum Terms {
    Integers(IntegersBuilder),
    Strings(BytesBuilder),
    Words(WordsBuilder),
    Grams(GramsBuilder),
    Zones(ZonesBuilder),
}

/// The columns that `specs` are about, each once.
pub(crate) fn column_names(specs: &[IndexSpec]) -> Vec<&str> {
    let mut names: Vec<&str> = specs.iter().map(|spec| spec.column.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl IndexBuilder {
    /// For batches of `schema`; `None` if nothing in it is indexed.
    pub fn new(specs: &[IndexSpec], schema: &Schema) -> Option<Self> {
        let column = |spec: &IndexSpec| {
            let position = schema.index_of(&spec.column).ok()?;
            let terms = match (spec.kind, schema.field(position).data_type()) {
                (IndexKind::Ids, DataType::Utf8) => Terms::Strings(BytesBuilder::default()),
                (IndexKind::Ids, _) => Terms::Integers(IntegersBuilder::default()),
                (IndexKind::Words, _) => Terms::Words(WordsBuilder::default()),
                (IndexKind::Zones, _) => Terms::Zones(ZonesBuilder::new(ZONE_ROWS)),
                (IndexKind::Ngrams, _) => Terms::Grams(GramsBuilder::new(GRAM_BLOCK_ROWS)),
            };
            Some(Column { position, name: spec.column.clone(), terms })
        };
        let columns: Vec<Column> = specs.iter().filter_map(column).collect();
        (!columns.is_empty()).then_some(Self { columns, rows: 0 })
    }

    /// Adds the next rows of the file.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let first = u32::try_from(self.rows).unwrap_or(u32::MAX);
        for column in &mut self.columns {
            let values = batch.column(column.position).as_ref();
            push(&mut column.terms, first, values)
                .map_err(|e| TableError::index(format!("indexing `{}`", column.name), e))?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// The index file of the data file at `relative` with `bytes`.
    pub fn finish(self, relative: &str, bytes: u64) -> Result<Vec<u8>> {
        let mut writer = Writer::new(identity(relative, bytes, self.rows)?);
        for Column { name, terms, .. } in self.columns {
            let added = match terms {
                Terms::Integers(builder) => writer.add_integers(&name, builder),
                Terms::Strings(builder) => writer.add_strings(&name, builder),
                Terms::Words(builder) => writer.add_words(&name, builder),
                Terms::Grams(builder) => writer.add_grams(&name, builder),
                Terms::Zones(builder) => writer.add_zones(&name, builder),
            };
            added.map_err(|e| TableError::index(format!("indexing `{name}`"), e))?;
        }
        writer.finish().map_err(|e| TableError::index(format!("indexing {relative}"), e))
    }
}

fn push(terms: &mut Terms, first: u32, values: &dyn Array) -> Result<(), IndexError> {
    match terms {
        Terms::Integers(builder) => match values.data_type() {
            DataType::Int8 => push_integers::<Int8Type>(builder, first, values),
            DataType::Int16 => push_integers::<Int16Type>(builder, first, values),
            DataType::Int32 => push_integers::<Int32Type>(builder, first, values),
            _ => push_integers::<Int64Type>(builder, first, values),
        },
        Terms::Strings(builder) => push_strings(builder, first, values.as_string()),
        Terms::Words(builder) => each_text(first, values, |row, text| builder.push(row, text)),
        Terms::Grams(builder) => each_text(first, values, |row, text| builder.push(row, text)),
        Terms::Zones(builder) => {
            match values.data_type() {
                DataType::Float32 => push_floats::<Float32Type>(builder, first, values),
                _ => push_floats::<Float64Type>(builder, first, values),
            }
            Ok(())
        }
    }
}

fn push_integers<T: ArrowPrimitiveType>(
    builder: &mut IntegersBuilder,
    first: u32,
    values: &dyn Array,
) -> Result<(), IndexError>
where
    T::Native: Into<i64>,
{
    let values = values.as_primitive::<T>();
    if values.null_count() == 0 {
        let keys: Vec<u64> = values.values().iter().map(|v| key_of_i64((*v).into())).collect();
        return Ok(builder.push_column(first, &keys)?);
    }
    for (row, value) in (first..).zip(values.iter()) {
        if let Some(value) = value {
            builder.push(key_of_i64(value.into()), Run::new(row, row.saturating_add(1)))?;
        }
    }
    Ok(())
}

fn push_floats<T: ArrowPrimitiveType>(builder: &mut ZonesBuilder, first: u32, values: &dyn Array)
where
    T::Native: Into<f64>,
{
    for (row, value) in (first..).zip(values.as_primitive::<T>().iter()) {
        let Some(value) = value else { continue };
        builder.push(row, key_of_f64(value.into()));
        let value: f64 = value.into();
        if value.is_nan() {
            // With its sign set, which is what 0 / 0 gives, the engine sorts it below all numbers.
            builder.push(row, 0);
        }
    }
}

/// Equal neighbours are pushed as one run.
fn push_strings(
    builder: &mut BytesBuilder,
    first: u32,
    values: &StringArray,
) -> Result<(), IndexError> {
    let mut at = 0;
    while at < values.len() {
        let start = at;
        at += 1;
        if values.is_null(start) {
            continue;
        }
        let value = values.value(start);
        while at < values.len() && values.is_valid(at) && values.value(at) == value {
            at += 1;
        }
        let row = |at: usize| first.saturating_add(at as u32);
        builder.push(value.as_bytes(), Run::new(row(start), row(at)))?;
    }
    Ok(())
}

fn each_text(
    first: u32,
    values: &dyn Array,
    mut push: impl FnMut(u32, &str) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    for (row, text) in (first..).zip(values.as_string::<i32>().iter()) {
        if let Some(text) = text {
            push(row, text)?;
        }
    }
    Ok(())
}
