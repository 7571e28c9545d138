//! Batches of per-user rows, as [`super::sql::Sql::per_user`] selects them, to values.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::DataFusionError;
use uplake_experiment::definition::Unit;
use uplake_experiment::query::MomentsQuery;

use super::sql::{Output, Source, Sql};
use super::user_row::{Change, UserRow, without_rows};
use crate::base::error::{EngineError, Result};
use crate::functions::local_day::LocalDays;

/// Which columns the per-user rows have.
pub(super) struct Table {
    /// Metric tables by first use.
    pub tables: Vec<String>,
    dimensions: usize,
    clustered: bool,
    /// With the place of the source's table in `tables`.
    outputs: Vec<(usize, Output)>,
    without_rows: Vec<f64>,
}

/// A batch with its types known.
pub(super) struct DecodedRows {
    pub first_variant: StringArray,
    pub last_variant: StringArray,
    time: TimestampMicrosecondArray,
    pub dimensions: Vec<StringArray>,
    pub cluster: Option<StringArray>,
    pub user: StringArray,
    values: Vec<(usize, Values)>,
    without_rows: Vec<f64>,
}

/// A column for a number, or for several.
pub(super) enum Values {
    Number { column: usize, values: Float64Array },
    FirstDay { column: usize, days: Date32Array },
    Steps { columns: Vec<(usize, usize)>, grows: bool, lists: ListArray },
    Days { columns: Vec<usize>, active: bool, lists: ListArray },
    OnePerDay { column: usize, last: bool, lists: ListArray },
}

impl Table {
    pub fn of(sql: &Sql<'_>) -> Self {
        let mut outputs = Vec::new();
        for source in &sql.sources {
            let table = table_place(sql, source);
            outputs.extend(source.outputs.iter().map(|output| (table, output.clone())));
        }
        Self {
            tables: tables(sql).into_iter().cloned().collect(),
            dimensions: sql.query.dimensions.len(),
            clustered: matches!(sql.query.exposures.unit, Unit::Cluster { .. }),
            outputs,
            without_rows: without_rows(sql.query),
        }
    }

    pub fn decode(&self, batch: &RecordBatch) -> Result<DecodedRows> {
        let mut columns = batch.columns().iter();
        let mut next =
            || columns.next().ok_or_else(|| EngineError::bug("a row per user is too short"));
        let first_variant = text(next()?)?;
        let last_variant = text(next()?)?;
        let time = as_type(next()?, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let dimensions = (0..self.dimensions).map(|_| text(next()?)).collect::<Result<Vec<_>>>()?;
        let cluster = if self.clustered { Some(text(next()?)?) } else { None };
        let user = text(next()?)?;
        let mut values = Vec::with_capacity(self.outputs.len());
        for (table, output) in &self.outputs {
            values.push((*table, Values::of(output, next()?)?));
        }
        Ok(DecodedRows {
            first_variant,
            last_variant,
            time: time.as_primitive::<TimestampMicrosecondType>().clone(),
            dimensions,
            cluster,
            user,
            values,
            without_rows: self.without_rows.clone(),
        })
    }
}

/// Metric tables by first use.
fn tables<'a>(sql: &'a Sql<'_>) -> Vec<&'a String> {
    let mut tables = Vec::new();
    for source in &sql.sources {
        let name = &sql.query.columns[source.columns[0]].table;
        if !tables.contains(&name) {
            tables.push(name);
        }
    }
    tables
}

/// The place of a source's table in [`Table::tables`].
pub(super) fn table_place(sql: &Sql<'_>, source: &Source) -> usize {
    let name = &sql.query.columns[source.columns[0]].table;
    tables(sql).iter().position(|table| *table == name).unwrap_or_default()
}

pub(super) fn as_type(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    cast(array, to).map_err(|e| DataFusionError::from(e).into())
}

/// A column as text.
pub(super) fn text(array: &ArrayRef) -> Result<StringArray> {
    Ok(as_type(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A column as doubles.
pub(super) fn doubles(array: &ArrayRef) -> Result<Float64Array> {
    Ok(as_type(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

impl Values {
    pub fn of(output: &Output, array: &ArrayRef) -> Result<Self> {
        Ok(match output {
            Output::Number { column } => Self::Number { column: *column, values: doubles(array)? },
            Output::FirstDay { column } => {
                let days = as_type(array, &DataType::Date32)?;
                Self::FirstDay { column: *column, days: days.as_primitive::<Date32Type>().clone() }
            }
            Output::Steps { columns, grows } => Self::Steps {
                columns: columns.clone(),
                grows: *grows,
                lists: array.as_list::<i32>().clone(),
            },
            Output::Days { columns, active } => Self::Days {
                columns: columns.clone(),
                active: *active,
                lists: array.as_list::<i32>().clone(),
            },
            Output::OnePerDay { column, last } => Self::OnePerDay {
                column: *column,
                last: *last,
                lists: array.as_list::<i32>().clone(),
            },
        })
    }
}

impl DecodedRows {
    pub fn len(&self) -> usize {
        self.user.len()
    }

    /// Reads a row into `user`, whose room is used again.
    pub fn read(
        &self,
        row: usize,
        query: &MomentsQuery,
        local_days: &mut LocalDays,
        user: &mut UserRow,
    ) {
        debug_assert_eq!(query.columns.len(), self.without_rows.len());
        user.time = self.time.is_valid(row).then(|| self.time.value(row));
        user.known.clone_from(&self.without_rows);
        user.changes.clear();
        user.active.clear();
        for (table, values) in &self.values {
            values.read(row, *table, local_days, user);
        }
        // Two passes over one table may name a day twice.
        user.active.sort_unstable();
        user.active.dedup();
    }
}

impl Values {
    /// Reads a row into `user`. `table`: the place of the source's.
    pub fn read(&self, row: usize, table: usize, local_days: &mut LocalDays, user: &mut UserRow) {
        match self {
            Self::Number { column, values } => {
                if values.is_valid(row) {
                    user.known[*column] = values.value(row);
                }
            }
            Self::FirstDay { column, days } => {
                if days.is_valid(row) {
                    let day = days.value(row);
                    user.changes.push(Change { day, column: *column, value: 1.0 });
                }
            }
            Self::Steps { columns, grows, lists } => {
                if lists.is_null(row) {
                    return;
                }
                let times = lists.value(row);
                let times = times.as_primitive::<TimestampMicrosecondType>().values();
                for (column, reached) in columns {
                    let Some(time) = times.get(reached.saturating_sub(1)) else { continue };
                    if *grows {
                        let day = local_days.day(*time).unwrap_or(i32::MIN);
                        user.changes.push(Change { day, column: *column, value: 1.0 });
                    } else {
                        user.known[*column] = 1.0;
                    }
                }
            }
            Self::Days { columns, active, lists } => {
                if lists.is_valid(row) {
                    read_days(lists, row, columns, active.then_some(table), user);
                }
            }
            Self::OnePerDay { column, last, lists } => {
                if lists.is_null(row) {
                    return;
                }
                let days = if *last { usize::MAX } else { 1 };
                let items = lists.value(row);
                let items = items.as_struct();
                let items_days = items.column(0).as_primitive::<Date32Type>().values();
                let values = items.column(1).as_primitive::<Float64Type>().values();
                let changes = items_days.iter().zip(values).take(days);
                user.changes.extend(changes.map(|(day, value)| Change {
                    day: *day,
                    column: *column,
                    value: *value,
                }));
            }
        }
    }
}

fn read_days(
    lists: &ListArray,
    row: usize,
    columns: &[usize],
    active: Option<usize>,
    user: &mut UserRow,
) {
    let places = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
    let items = lists.values().as_struct();
    let days = &items.column(0).as_primitive::<Date32Type>().values()[places.clone()];
    user.active.extend(active.into_iter().flat_map(|table| days.iter().map(move |d| (table, *d))));
    for (sums, column) in items.columns()[1..].iter().zip(columns) {
        let sums = &sums.as_primitive::<Float64Type>().values()[places.clone()];
        let changes = days.iter().zip(sums).filter(|(_, sum)| **sum != 0.0);
        user.changes.extend(changes.map(|(day, value)| Change {
            day: *day,
            column: *column,
            value: *value,
        }));
    }
}
