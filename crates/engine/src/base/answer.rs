//! What statements give back.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::base::error::Result;

/// What a statement gives back.
pub enum Answer {
    /// Rows, as they are computed. Dropping the stream stops the query.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream },
    /// Something was done; `rows` were written or removed.
    Done { message: String, rows: Option<u64> },
}

/// Something was done to so many rows.
pub(crate) fn done(message: String, rows: Option<u64>) -> Answer {
    Answer::Done { message, rows }
}

/// Rows of these columns.
pub(crate) fn rows_answer(columns: Vec<(&str, ArrayRef)>) -> Result<Answer> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .map_err(DataFusionError::from)?;
    let schema = batch.schema();
    let stream = MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?;
    Ok(Answer::Rows { schema, stream: Box::pin(stream) })
}

/// The same rows under other column names.
pub(crate) fn with_schema(
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
) -> SendableRecordBatchStream {
    if stream.schema() == schema {
        return stream;
    }
    let renamed = Arc::clone(&schema);
    let rows = stream.map(move |batch| {
        Ok(RecordBatch::try_new(Arc::clone(&renamed), batch?.columns().to_vec())?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The number in the first row, which is how many rows a statement has counted or written.
pub(crate) fn first_count(batches: &[RecordBatch]) -> u64 {
    let Some(column) = batches.iter().find(|b| b.num_rows() > 0).map(|b| b.column(0)) else {
        return 0;
    };
    match column.data_type() {
        DataType::UInt64 => column.as_any().downcast_ref::<UInt64Array>().map_or(0, |a| a.value(0)),
        _ => column
            .as_any()
            .downcast_ref::<Int64Array>()
            .map_or(0, |a| u64::try_from(a.value(0)).unwrap_or_default()),
    }
}
