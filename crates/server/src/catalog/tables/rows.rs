//! Rows of small tables, by the names of their columns.
//!
//! # Invariants
//! - A column that a row says nothing of is NULL if the table of columns marks it so, else 0, false, empty.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, ListBuilder, RecordBatch, RecordBatchOptions, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use crate::catalog::state::ONE_CHARACTER;

/// A value of a catalog table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Truth(bool),
    Number(i64),
    Float(f64),
    Text(String),
    /// Microseconds since 1970.
    Time(i64),
    /// A list of any type but texts.
    Numbers(Vec<i64>),
    Texts(Vec<String>),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Truth(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// What a row says of some columns.
pub(super) type Row = HashMap<&'static str, Value>;

/// A row of `column => value` pairs.
macro_rules! row {
    ($($column:literal => $value:expr),* $(,)?) => {
        $crate::catalog::tables::rows::Row::from([$(($column, $value.into())),*])
    };
}
pub(super) use row;

/// The columns of a table.
#[derive(Debug)]
pub(in crate::catalog) struct Columns {
    pub schema: SchemaRef,
    /// Postgres' types of them.
    pub types: Vec<String>,
    /// Which are NULL where nothing is said.
    nulls: Vec<bool>,
}

impl Columns {
    /// Reads `name type?, name type`.
    fn of(text: &str) -> Self {
        let (mut fields, mut types, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
        for column in text.split(',').map(str::trim).filter(|column| !column.is_empty()) {
            let (name, written) =
                column.split_once(char::is_whitespace).unwrap_or((column, "text"));
            let plain = written.trim().trim_end_matches('?');
            // Whatever a plan does with them, a NULL is allowed.
            let field = Field::new(name, arrow_type(plain), true);
            fields.push(match plain {
                "char" => field.with_metadata([(ONE_CHARACTER.into(), String::new())].into()),
                _ => field,
            });
            types.push(plain.to_owned());
            nulls.push(written.ends_with('?'));
        }
        Self { schema: Arc::new(Schema::new(fields)), types, nulls }
    }

    /// The rows as a batch.
    pub(super) fn batch(&self, rows: &[Row]) -> Result<RecordBatch, ArrowError> {
        debug_assert!(
            rows.iter().flat_map(Row::keys).all(|name| self.schema.index_of(name).is_ok())
        );
        let columns = self.schema.fields().iter().zip(&self.nulls).map(|(field, null)| {
            let default = if *null { Value::Null } else { default(field.data_type()) };
            let values = rows.iter().map(|row| row.get(field.name().as_str()).unwrap_or(&default));
            array(field.data_type(), values)
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options)
    }
}

/// Tables and their columns, as `columns.txt` has them: `schema.table`, then lines that are indented.
pub(in crate::catalog) fn read(text: &str) -> BTreeMap<(String, String), Columns> {
    let mut found: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut table = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with(' ') {
            if let Some(columns) = table.as_ref().and_then(|table| found.get_mut(table)) {
                columns.push_str(line);
            }
        } else if let Some((schema, name)) = line.split_once('.') {
            let named = (schema.to_owned(), name.trim().to_owned());
            found.insert(named.clone(), String::new());
            table = Some(named);
        }
    }
    found.into_iter().map(|(table, columns)| (table, Columns::of(&columns))).collect()
}

/// What carries a type of Postgres here. Numbers of objects are 64 bits, so that they join with each other and
/// with what is written without casts.
fn arrow_type(name: &str) -> DataType {
    let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, true)));
    match name {
        "int2vector" | "_int2" => list(DataType::Int16),
        "oidvector" | "_oid" | "_regtype" => list(DataType::Int64),
        name if name.starts_with('_') => list(DataType::Utf8),
        "oid" | "int8" | "xid" => DataType::Int64,
        "int4" => DataType::Int32,
        "int2" => DataType::Int16,
        "bool" => DataType::Boolean,
        "float4" => DataType::Float32,
        "float8" | "numeric" => DataType::Float64,
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        _ => DataType::Utf8,
    }
}

fn default(data_type: &DataType) -> Value {
    match data_type {
        DataType::Boolean => Value::Truth(false),
        DataType::Utf8 => Value::Text(String::new()),
        DataType::List(_) => Value::Numbers(Vec::new()),
        DataType::Timestamp(..) => Value::Null,
        _ => Value::Number(0),
    }
}

fn array<'a>(data_type: &DataType, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    let number = |value: &Value| match value {
        Value::Number(value) | Value::Time(value) => Some(*value),
        _ => None,
    };
    let text = |value: &Value| match value {
        Value::Text(value) => Some(value.clone()),
        _ => None,
    };
    let float = |value: &Value| match value {
        Value::Float(value) => Some(*value),
        Value::Number(value) => Some(*value as f64),
        _ => None,
    };
    macro_rules! plain {
        ($builder:ty, $of:expr) => {{
            let mut builder = <$builder>::new();
            values.for_each(|value| builder.append_option($of(value)));
            Arc::new(builder.finish())
        }};
    }
    macro_rules! list {
        ($builder:ty, $of:expr) => {{
            let mut builder = ListBuilder::new(<$builder>::new());
            for value in values {
                if let Value::Numbers(items) = value {
                    items.iter().for_each(|item| builder.values().append_option($of(*item)));
                }
                builder.append(matches!(value, Value::Numbers(_)));
            }
            Arc::new(builder.finish())
        }};
    }
    match data_type {
        DataType::Boolean => plain!(BooleanBuilder, |value: &Value| match value {
            Value::Truth(value) => Some(*value),
            _ => None,
        }),
        DataType::Int64 => plain!(Int64Builder, number),
        DataType::Int32 => {
            plain!(Int32Builder, |v: &Value| number(v).and_then(|n| i32::try_from(n).ok()))
        }
        DataType::Int16 => {
            plain!(Int16Builder, |v: &Value| number(v).and_then(|n| i16::try_from(n).ok()))
        }
        DataType::Float32 => plain!(Float32Builder, |v: &Value| float(v).map(|n| n as f32)),
        DataType::Float64 => plain!(Float64Builder, float),
        DataType::Timestamp(..) => {
            let mut builder = TimestampMicrosecondBuilder::new().with_data_type(data_type.clone());
            values.for_each(|value| builder.append_option(number(value)));
            Arc::new(builder.finish())
        }
        DataType::List(item) if *item.data_type() == DataType::Int16 => {
            list!(Int16Builder, |item: i64| i16::try_from(item).ok())
        }
        DataType::List(item) if *item.data_type() == DataType::Int64 => {
            list!(Int64Builder, Some)
        }
        DataType::List(_) => {
            let mut builder = ListBuilder::new(StringBuilder::new());
            for value in values {
                match value {
                    Value::Texts(items) => {
                        items.iter().for_each(|item| builder.values().append_value(item));
                    }
                    Value::Numbers(items) => {
                        items
                            .iter()
                            .for_each(|item| builder.values().append_value(item.to_string()));
                    }
                    _ => {}
                }
                builder.append(matches!(value, Value::Texts(_) | Value::Numbers(_)));
            }
            Arc::new(builder.finish())
        }
        _ => plain!(StringBuilder, text),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn rows_have_what_they_say_and_defaults_for_the_rest() {
        let tables = read(
            "# a comment\ns.t\n  oid oid, name name, note text?, of int2,\n  key int2vector, is bool\n",
        );
        let columns = &tables[&("s".to_owned(), "t".to_owned())];
        let key = Value::Numbers(vec![1, 2]);
        let batch = columns
            .batch(&[
                row! {"oid" => 7, "name" => "a", "key" => key},
                row! {"is" => true, "note" => "b"},
            ])
            .unwrap();
        assert_eq!(batch.num_rows(), 2);
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[7, 0]);
        assert_eq!(batch.column(1).as_string::<i32>().value(1), "");
        assert!(batch.column(2).is_null(0));
        assert_eq!(batch.column(4).as_list::<i32>().value_length(0), 2);
        assert!(batch.column(5).as_boolean().value(1));
        assert_eq!(columns.batch(&[]).unwrap().num_rows(), 0);
    }
}
