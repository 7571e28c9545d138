//! Times in microseconds, as tables have them, and functions that make the times they promise.
//!
//! DataFusion takes TIMESTAMP for nanoseconds, which end in 2262, and compares a column of microseconds with
//! them as nanoseconds. Its `to_timestamp` of a column of text gives times without the zone that it says
//! they have, which fails.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, make_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use datafusion::sql::sqlparser::ast::{self, TimezoneInfo};

/// TIMESTAMP without a precision and a zone is of microseconds.
#[derive(Debug)]
pub(crate) struct Microseconds;

impl TypePlanner for Microseconds {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        use TimezoneInfo::{None as NoZone, WithoutTimeZone};
        Ok(match sql_type {
            ast::DataType::Timestamp(None, NoZone | WithoutTimeZone)
            | ast::DataType::Datetime(None) => {
                let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
                Some(Arc::new(Field::new("", data_type, true)))
            }
            _ => None,
        })
    }
}

/// The function, whose times have the zone that it promises.
pub(super) fn zoned(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Zoned { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Zoned {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(zoned(Arc::new(self.function.inner().with_updated_config(config)?)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let promised = args.return_field.data_type().clone();
        match self.function.invoke_with_args(args)? {
            ColumnarValue::Array(times) => Ok(ColumnarValue::Array(in_zone(times, promised)?)),
            ColumnarValue::Scalar(time) => Ok(ColumnarValue::Scalar(time.cast_to(&promised)?)),
        }
    }
}

/// The same moments: only what is said of their zone changes.
fn in_zone(times: ArrayRef, promised: DataType) -> Result<ArrayRef> {
    match (times.data_type(), &promised) {
        (DataType::Timestamp(unit, _), DataType::Timestamp(wanted, _)) if unit == wanted => {
            Ok(make_array(times.to_data().into_builder().data_type(promised).build()?))
        }
        _ => Ok(times),
    }
}

/// `generate_series` or `range`, which takes times of microseconds for the nanoseconds that it knows.
pub(super) fn series(function: &TableFunction) -> TableFunction {
    let of_nanoseconds = Series(Arc::clone(function.function()));
    TableFunction::new(function.name().to_owned(), Arc::new(of_nanoseconds))
}

#[derive(Debug)]
struct Series(Arc<dyn TableFunctionImpl>);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let nanoseconds = |expr: &Expr| match expr {
            Expr::Literal(time, metadata) => match time.data_type() {
                DataType::Timestamp(_, zone) => {
                    let time = time.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone))?;
                    Ok(Expr::Literal(time, metadata.clone()))
                }
                _ => Ok(expr.clone()),
            },
            other => Ok(other.clone()),
        };
        let exprs = args.exprs().iter().map(nanoseconds).collect::<Result<Vec<_>>>()?;
        self.0.call_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}
