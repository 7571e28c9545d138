//! Rows as messages of Flight.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::DataType;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use futures::{Stream, StreamExt};
use uplake_engine::PartError;

/// Bytes of rows in a message.
const MESSAGE_BYTES: usize = 2 << 20;

/// Rows as messages, of which the first has their columns.
pub(super) fn encoded(
    rows: impl Stream<Item = Result<RecordBatch, PartError>> + Send + 'static,
) -> FlightDataEncoder {
    messages(rows.map(|batch| match batch {
        Ok(batch) => compacted(&batch).map_err(FlightError::from),
        Err(error) => Err(FlightError::ExternalError(Box::new(error))),
    }))
}

/// The same of rows whose texts hold no bytes of others.
pub(super) fn messages(
    rows: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> FlightDataEncoder {
    let lz4 = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
    FlightDataEncoderBuilder::new()
        .with_options(lz4.unwrap_or_default())
        .with_dictionary_handling(DictionaryHandling::Resend)
        .with_max_flight_data_size(MESSAGE_BYTES)
        .build(rows)
}

/// The batch, whose texts hold no bytes of others: views share what they were read from.
fn compacted(batch: &RecordBatch) -> Result<RecordBatch, arrow::error::ArrowError> {
    let column = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    };
    let columns = batch.columns().iter().map(column).collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &rows)
}
