//! Rows as files and streams hold them: CSV, JSON lines, Parquet, an Arrow stream.
//!
//! The command and the server write with these, so that both have the same bytes for the same rows.
//!
//! # Not here
//! Tables for people (the command); one JSON object for a whole answer ([`document`]).

mod document;
mod non_finite;

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;

pub(crate) use document::Document;
use non_finite::NonFinite;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated values with a header line; NULL is empty.
    Csv,
    /// One JSON object a line.
    JsonLines,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC stream.
    Arrow,
}

/// Rows that a format cannot hold, or what they are written to fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// As CSV, JSON or Arrow.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// As Parquet.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

/// Writes batches of one schema.
pub struct RowWriter<W: Write + Send>(Inner<W>);

enum Inner<W: Write + Send> {
    Csv(Box<arrow::csv::Writer<W>>),
    JsonLines(arrow::json::LineDelimitedWriter<W>),
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<arrow::ipc::writer::StreamWriter<W>>),
}

impl<W: Write + Send> RowWriter<W> {
    /// Begins: what a format has before its first row is written, so that it is there without rows, too.
    ///
    /// # Errors
    /// A schema that the format cannot hold, or an error of `out`.
    pub fn new(format: RowFormat, schema: &SchemaRef, out: W) -> Result<Self, FormatError> {
        Ok(Self(match format {
            RowFormat::Csv => {
                let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(out);
                // The header is there even if there are no rows.
                writer.write(&flat_batch(&RecordBatch::new_empty(Arc::clone(schema)))?)?;
                Inner::Csv(Box::new(writer))
            }
            RowFormat::JsonLines => {
                let writer = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
                let writer = writer.with_encoder_factory(Arc::new(NonFinite)).build(out);
                Inner::JsonLines(writer)
            }
            RowFormat::Parquet => {
                let plain = plain_schema(schema);
                Inner::Parquet(Box::new(ArrowWriter::try_new(out, plain, None)?))
            }
            RowFormat::Arrow => {
                let plain = plain_schema(schema);
                Inner::Arrow(Box::new(arrow::ipc::writer::StreamWriter::try_new(out, &plain)?))
            }
        }))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows that the format cannot hold, or an error of what is written to.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        match &mut self.0 {
            Inner::Csv(writer) => writer.write(&flat_batch(batch)?)?,
            Inner::JsonLines(writer) => writer.write(batch)?,
            Inner::Parquet(writer) => writer.write(&plain_batch(batch)?)?,
            Inner::Arrow(writer) => writer.write(&plain_batch(batch)?)?,
        }
        Ok(())
    }

    /// Writes what a format has behind its last row.
    ///
    /// # Errors
    /// Those of what is written to.
    pub fn finish(self) -> Result<(), FormatError> {
        match self.0 {
            Inner::Csv(_) => {}
            Inner::JsonLines(mut writer) => writer.finish()?,
            Inner::Parquet(writer) => drop(writer.close()?),
            Inner::Arrow(mut writer) => writer.finish()?,
        }
        Ok(())
    }
}

/// CSV has no lists, structs and maps: they are written as text.
///
/// # Errors
/// A type that has no text.
pub fn flat_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let options = FormatOptions::default().with_null("NULL");
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !field.data_type().is_nested() {
            fields.push(field.as_ref().clone());
            columns.push(Arc::clone(column));
            continue;
        }
        let texts = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let text = |row: usize| column.is_valid(row).then(|| texts.value(row).to_string());
        fields.push(field.as_ref().clone().with_data_type(DataType::Utf8));
        columns.push(Arc::new((0..column.len()).map(text).collect::<StringArray>()) as ArrayRef);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// Views are an in-memory form; files hold plain strings, which every reader knows.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

fn plain_schema(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_data_type(plain_type(f.data_type())));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn plain_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = plain_schema(&batch.schema());
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| arrow::compute::cast(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(schema, columns)
}
