//! Times of 96 bits, which Spark writes: read as microseconds, because nanoseconds of 64 bits end in 2262.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::errors::Result;

use crate::store_file::StoreFile;
use crate::unpanicked::unpanicked;

/// What a reader of a data file needs to know.
///
/// # Errors
/// If it is no readable Parquet file.
pub(crate) fn reader_metadata(file: &StoreFile) -> Result<ArrowReaderMetadata> {
    unpanicked(|| with_microseconds(file))
}

fn with_microseconds(file: &StoreFile) -> Result<ArrowReaderMetadata> {
    let found = ArrowReaderMetadata::try_new(file.footer()?, ArrowReaderOptions::new())?;
    let columns = found.parquet_schema().columns();
    let is_wide = |name: &str| {
        columns.iter().any(|c| c.physical_type() == Type::INT96 && c.path().parts() == [name])
    };
    if !found.schema().fields().iter().any(|field| is_wide(field.name())) {
        return Ok(found);
    }
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(_, zone) if is_wide(field.name()) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            Arc::new(field.as_ref().clone().with_data_type(micros))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<_> = found.schema().fields().iter().map(field).collect();
    let schema = Schema::new_with_metadata(fields, found.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(found.metadata()), options)
}
