//! Tables as lists of columns, each with how a row's value is found.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

/// Milliseconds of a day.
const DAY_MILLIS: i64 = 86_400_000;

/// A column's type, and the value of a row; times are milliseconds since 1970, UTC.
pub(super) enum Values<R> {
    Text(fn(&R) -> Option<String>),
    Number(fn(&R) -> Option<u64>),
    Real(fn(&R) -> Option<f64>),
    Time(fn(&R) -> i64),
    /// The day of a time.
    Day(fn(&R) -> i64),
}

/// A column's name and values.
pub(super) type Column<R> = (&'static str, Values<R>);

/// The columns of a table.
pub(super) struct Columns<R> {
    pub schema: SchemaRef,
    columns: Vec<Column<R>>,
}

/// The number of the day since 1970 of a time.
pub(super) fn day(millis: i64) -> i32 {
    i32::try_from(millis.div_euclid(DAY_MILLIS)).unwrap_or(i32::MAX)
}

impl<R> Values<R> {
    fn data_type(&self) -> DataType {
        match self {
            Self::Text(_) => DataType::Utf8,
            Self::Number(_) => DataType::Int64,
            Self::Real(_) => DataType::Float64,
            Self::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Day(_) => DataType::Date32,
        }
    }

    fn array(&self, rows: &[R]) -> ArrayRef {
        let rows = rows.iter();
        match self {
            Self::Text(of) => Arc::new(rows.map(of).collect::<StringArray>()),
            Self::Number(of) => {
                let number = |row| of(row).map(|n| i64::try_from(n).unwrap_or(i64::MAX));
                Arc::new(rows.map(number).collect::<Int64Array>())
            }
            Self::Real(of) => Arc::new(rows.map(of).collect::<Float64Array>()),
            Self::Time(of) => {
                let micros = rows.map(|row| Some(of(row).saturating_mul(1000)));
                let times: TimestampMicrosecondArray = micros.collect();
                Arc::new(times.with_timezone("UTC"))
            }
            Self::Day(of) => Arc::new(rows.map(|row| Some(day(of(row)))).collect::<Date32Array>()),
        }
    }
}

impl<R> Columns<R> {
    pub fn new(columns: Vec<Column<R>>) -> Self {
        let field = |(name, values): &Column<R>| Field::new(*name, values.data_type(), true);
        let fields: Vec<Field> = columns.iter().map(field).collect();
        Self { schema: Arc::new(Schema::new(fields)), columns }
    }

    pub fn batch(&self, rows: &[R]) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter().map(|(_, values)| values.array(rows)).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}
