//! Functions of lists that SQL of Postgres has under other names.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListBuilder, StringBuilder, new_null_array};
use arrow::datatypes::{DataType, Field};
use uplake_engine::AddedFunction;

use crate::catalog::state::OF_OIDS;
use crate::catalog::words;

use super::arguments::{Arguments, Looked, function, number};

/// A list of texts.
pub(super) fn texts() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))
}

/// A list of numbers of objects, which asyncpg must hear of as such: of other lists it asks what they are.
fn oids() -> DataType {
    let item = Field::new("item", DataType::Int64, true);
    DataType::List(Arc::new(item.with_metadata([(OF_OIDS.into(), String::new())].into())))
}

/// A list of texts for each row.
pub(super) fn lists_of<'a>(rows: impl Iterator<Item = Vec<&'a str>>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in rows {
        row.iter().for_each(|text| lists.values().append_value(text));
        lists.append(true);
    }
    Arc::new(lists.finish())
}

pub(super) fn functions() -> Vec<AddedFunction> {
    vec![
        // No function of Postgres: what `known` has in the place of a list that is always empty.
        function("no_texts", &[""], texts(), |call| {
            Ok(lists_of((0..call.rows).map(|_| Vec::new())))
        }),
        // Nor is this one: NULL, as a list of numbers of objects.
        function("no_oids", &[""], oids(), |call| Ok(new_null_array(&oids(), call.rows))),
        function("parse_ident", &["t", "tb"], texts(), |call| {
            let parts = |row: usize| {
                let written = Arguments { call, row, looked: &Looked::new() };
                written.text(0).map(words::parts).unwrap_or_default()
            };
            let rows: Vec<Vec<String>> = (0..call.rows).map(parts).collect();
            Ok(lists_of(rows.iter().map(|parts| parts.iter().map(String::as_str).collect())))
        }),
        number("array_upper", &["*n"], |a| Ok(length(a).filter(|length| *length > 0))),
        number("array_lower", &["*n"], |a| Ok(length(a).filter(|length| *length > 0).map(|_| 1))),
    ]
}

/// Items of the list, along its first dimension.
fn length(arguments: &Arguments<'_>) -> Option<i64> {
    let list = arguments.value(0)?.as_list_opt::<i32>()?;
    (arguments.number(1)? == 1).then_some(())?;
    Some(i64::from(list.value_length(arguments.row)))
}
