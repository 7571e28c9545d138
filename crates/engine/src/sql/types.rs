//! What names of types stand for where DataFusion has none, or another type than tables keep.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, TimezoneInfo};

/// TIMESTAMP and TIMESTAMPTZ without a precision are of microseconds; the zone is the one that sessions have.
/// BINARY, whose length nobody counts, is BYTEA.
#[derive(Debug)]
pub(crate) struct StoredTypes;

impl TypePlanner for StoredTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        use TimezoneInfo::{None as NoZone, Tz, WithTimeZone, WithoutTimeZone};
        use ast::DataType::{Binary, Blob, Datetime, Timestamp, Varbinary};
        let data_type = match sql_type {
            Timestamp(None, NoZone | WithoutTimeZone) | Datetime(None) => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            Timestamp(None, Tz | WithTimeZone) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
            }
            Binary(None) | Varbinary(None) | Blob(None) => DataType::Binary,
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
