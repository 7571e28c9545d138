//! Does a Parquet file say twice the same about times with and without a zone?
//!
//! Whether a time is one of UTC is one bit of the footer. Writers of Arrow's family put the columns' Arrow types beside
//! it, so that one flipped bit is noticed; files of others have nothing to compare with.
//!
//! # Source
//! parquet.thrift (`TimestampType.isAdjustedToUTC`); Arrow's `ARROW:schema` entry.

use arrow::datatypes::{DataType, Schema};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::root_as_message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescriptor;

/// What stands before a message of Arrow's streams: 255 four times, and the length.
const PREFIX_BYTES: usize = 8;

/// Compares the zones of the columns that are no parts of others.
///
/// # Errors
/// If a column is in UTC for Parquet and without a zone for Arrow.
pub(crate) fn check_zones(parsed: &ParquetMetaData) -> Result<()> {
    let file = parsed.file_metadata();
    let entries = file.key_value_metadata().into_iter().flatten();
    let mut stored = entries.filter(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    // What cannot be read of it is told by whoever reads the file's columns.
    let Some(stored) = stored.next().and_then(|entry| decode(entry.value.as_deref()?)) else {
        return Ok(());
    };
    for column in file.schema_descr().columns() {
        let [name] = column.path().parts() else { continue };
        let in_utc = is_in_utc(column);
        let Ok(field) = stored.field_with_name(name) else { continue };
        if in_utc && matches!(field.data_type(), DataType::Timestamp(_, None)) {
            let words = format!(
                "it is damaged: whether times of column {name} are UTC is said in two ways"
            );
            return Err(ParquetError::General(words));
        }
    }
    Ok(())
}

/// Are these times of UTC? The older of the two ways to say that they are times says so alone.
fn is_in_utc(column: &ColumnDescriptor) -> bool {
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(about)), _) => about.is_adjusted_to_u_t_c,
        (None, ConvertedType::TIMESTAMP_MICROS | ConvertedType::TIMESTAMP_MILLIS) => true,
        _ => false,
    }
}

fn decode(text: &str) -> Option<Schema> {
    let bytes = BASE64.decode(text).ok()?;
    let message = match bytes.get(..4) {
        Some([255, 255, 255, 255]) => bytes.get(PREFIX_BYTES..)?,
        _ => bytes.as_slice(),
    };
    // Damaged schemas panic in the conversion.
    let schema = || Some(fb_to_schema(root_as_message(message).ok()?.header_as_schema()?));
    std::panic::catch_unwind(schema).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
    use arrow::datatypes::Field;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::encode_arrow_schema;
    use parquet::basic::Type as PhysicalType;
    use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaDataReader};
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::*;

    /// A file's footer with a time, in a zone or not.
    fn footer(zone: Option<&str>) -> Vec<u8> {
        let times = TimestampMicrosecondArray::from(vec![1, 2]).with_timezone_opt(zone);
        let columns: Vec<(&str, ArrayRef)> = vec![("at", Arc::new(times))];
        let batch = RecordBatch::try_from_iter(columns).expect("columns alike");
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).expect("a writer");
        writer.write(&batch).expect("written");
        writer.close().expect("closed");
        let end = file.len() - 8;
        let length = u32::from_le_bytes(file[end..end + 4].try_into().expect("four"));
        file[end - length as usize..end].to_vec()
    }

    fn check(footer: &[u8]) -> Result<bool> {
        let parsed = ParquetMetaDataReader::decode_metadata(footer)?;
        check_zones(&parsed)?;
        Ok(is_in_utc(&parsed.file_metadata().schema_descr().column(0)))
    }

    #[test]
    fn sound_files_say_the_same_twice() {
        assert!(!check(&footer(None)).expect("no zone"));
        assert!(check(&footer(Some("UTC"))).expect("a zone"));
        assert!(check(&footer(Some("Europe/Berlin"))).expect("a zone"));
    }

    /// What is left when a bit of the newer way to say it is flipped.
    #[test]
    fn times_that_lost_their_logical_type_are_refused() {
        let naive = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
        let stored = |data_type: &DataType| {
            let schema = Schema::new(vec![Field::new("at", data_type.clone(), true)]);
            let entry = KeyValue::new(ARROW_SCHEMA_META_KEY.into(), encode_arrow_schema(&schema));
            let column = Type::primitive_type_builder("at", PhysicalType::INT64)
                .with_converted_type(ConvertedType::TIMESTAMP_MICROS);
            let fields = vec![Arc::new(column.build().expect("a column"))];
            let root = Type::group_type_builder("root").with_fields(fields).build();
            let columns = Arc::new(SchemaDescriptor::new(Arc::new(root.expect("a schema"))));
            let file = FileMetaData::new(2, 0, None, Some(vec![entry]), columns, None);
            check_zones(&ParquetMetaData::new(file, Vec::new()))
        };
        let error = stored(&naive).expect_err("said in two ways").to_string();
        assert!(error.contains("times of column at"), "{error}");
        let zoned =
            DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
        stored(&zoned).expect("the same twice");
    }
}
