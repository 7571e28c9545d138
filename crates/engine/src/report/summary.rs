//! Figures that somebody else computed: per row an arm, a count of users, means and variances.
//!
//! # Invariants
//! - A row holds what was known at its time, of all users until then: rows of different times are
//!   never added up. A metric without a row at a time keeps its last.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use futures::TryStreamExt;
use uplake_experiment::Moments;
use uplake_experiment::definition::Unit;
use uplake_experiment::query::{Aggregate, Cell, DayCells, MomentsQuery, MomentsTable, UserColumn};

use super::decode::{as_type, doubles, text};
use super::sql::{NULL_NAME, TIME, VARIANT};
use super::time::Times;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::functions::local_day::{LocalDays, day_text};

/// Rows of one column: at most this many times. A time more often than hourly for ten years is not
/// what daily figures are kept for.
const TIMES_MAX: usize = 100_000;

/// One column's rows in the order of time: the time's text, and per arm what is new.
type Series = Vec<(String, BTreeMap<usize, Moments>)>;

impl Session {
    /// A query whose unit is [`Unit::Summary`].
    pub(super) async fn summary(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<MomentsTable> {
        let mut unknown = BTreeMap::new();
        let mut columns = Vec::new();
        for column in &query.columns {
            columns.push(self.series(query, times, column, &mut unknown).await?);
        }
        let mut order: Vec<&str> =
            columns.iter().flatten().map(|(time, _)| time.as_str()).collect();
        order.sort_by(|a, b| by_time(a, b));
        order.dedup();
        let mut now: Vec<Vec<Moments>> =
            vec![vec![Moments::new(1); query.variants.len()]; columns.len()];
        let mut days: Vec<DayCells> = Vec::new();
        for day in order {
            for (series, now) in columns.iter().zip(&mut now) {
                let Some((_, new)) = series.iter().find(|(time, _)| time == day) else { continue };
                new.iter().for_each(|(variant, moments)| now[*variant].clone_from(moments));
            }
            days.push(DayCells { day: day.to_owned(), cells: cells(query, &now) });
        }
        Ok(MomentsTable {
            cells: cells(query, &now),
            days: if query.days { days } else { Vec::new() },
            unknown_variants: unknown.into_iter().collect(),
            ..MomentsTable::default()
        })
    }

    async fn series(
        &self,
        query: &MomentsQuery,
        times: &Times,
        column: &UserColumn,
        unknown: &mut BTreeMap<String, u64>,
    ) -> Result<Series> {
        let mut local_days = LocalDays::new(times.zone);
        let mut series: Series = Vec::new();
        let mut last_times = HashMap::new();
        let mut rows = self.definition_rows(&column_sql(query, column)).await?;
        while let Some(batch) = rows.try_next().await? {
            let (variants, written) = (text(batch.column(0))?, text(batch.column(1))?);
            let labels = labels(batch.column(1), &written, &mut local_days)?;
            let numbers = (2..5).map(|i| doubles(batch.column(i))).collect::<Result<Vec<_>>>()?;
            for (row, day) in labels.into_iter().enumerate() {
                let number = |i: usize| numbers[i].is_valid(row).then(|| numbers[i].value(row));
                let (Some(users), Some(mean)) = (number(0), number(1)) else { continue };
                let name = variants.value(row);
                let Some(variant) = query.variants.iter().position(|v| v.value == name) else {
                    let most = unknown.entry(name.to_owned()).or_default();
                    *most = (*most).max(users as u64);
                    continue;
                };
                let moments = given(column, users, mean, number(2))?;
                let time = written.is_valid(row).then(|| written.value(row).to_owned());
                let same_day = series.last().is_some_and(|(last, _)| *last == day);
                if !same_day {
                    if series.len() == TIMES_MAX {
                        let message = format!("the summary has more than {TIMES_MAX} times");
                        return Err(EngineError::report(SqlState::ProgramLimitExceeded, message));
                    }
                    series.push((day, BTreeMap::new()));
                }
                let Some((_, arms)) = series.last_mut() else { continue };
                arms.insert(variant, moments);
                if last_times.insert(variant, time.clone()).as_ref() == Some(&time) {
                    let message = format!(
                        "the summary `{}` has two rows for arm `{name}`{}",
                        query.exposures.table,
                        time.map(|time| format!(" at {time}")).unwrap_or_default(),
                    );
                    return Err(EngineError::report(SqlState::CardinalityViolation, message)
                        .with_hint("choose one of them with `where`"));
                }
            }
        }
        Ok(series)
    }
}

/// Days are in the order of their text, and numbers (days since the start) in their own.
fn by_time(a: &str, b: &str) -> Ordering {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    }
}

/// The statements of a summary, one per column.
pub(super) fn summary_sql(query: &MomentsQuery) -> Vec<(String, String)> {
    let statement = |column: &UserColumn| {
        (
            format!("Arm, time, users, mean and variance of {}", column.value),
            column_sql(query, column),
        )
    };
    query.columns.iter().map(statement).collect()
}

fn column_sql(query: &MomentsQuery, column: &UserColumn) -> String {
    let users = match &query.exposures.unit {
        Unit::Summary { users } => users,
        _ => "NULL",
    };
    let variance = match &column.aggregate {
        Aggregate::Given { variance: Some(variance) } => variance,
        _ => "NULL",
    };
    let mut conditions = vec!["true".to_owned()];
    conditions.extend(query.exposures.filter.iter().map(|f| format!("({f})")));
    conditions.extend(column.filter.iter().map(|f| format!("({f})")));
    format!(
        "SELECT coalesce(CAST({} AS VARCHAR), '{NULL_NAME}') AS {VARIANT},\n  {} AS {TIME},\n  \
         CAST(CAST({users} AS BIGINT) AS DOUBLE) AS users,\n  CAST({} AS DOUBLE) AS mean,\n  \
         CAST({variance} AS DOUBLE) AS variance\nFROM {}\nWHERE {}\nORDER BY {TIME}, {VARIANT}",
        query.exposures.variant,
        query.exposures.time.as_deref().unwrap_or("NULL"),
        column.value,
        query.exposures.table,
        conditions.join(" AND "),
    )
}

/// Times as local days, or as they are written if they are no times.
fn labels(
    times: &datafusion::arrow::array::ArrayRef,
    written: &datafusion::arrow::array::StringArray,
    local_days: &mut LocalDays,
) -> Result<Vec<String>> {
    let as_written = |row: usize| {
        if written.is_valid(row) { written.value(row).to_owned() } else { String::new() }
    };
    if !matches!(times.data_type(), DataType::Timestamp(_, _)) {
        return Ok((0..times.len()).map(as_written).collect());
    }
    let micros = as_type(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let label = |row: usize| {
        let day = micros.is_valid(row).then(|| local_days.day(micros.value(row))).flatten();
        day.map_or_else(|| as_written(row), day_text)
    };
    Ok((0..times.len()).map(label).collect())
}

fn given(column: &UserColumn, users: f64, mean: f64, variance: Option<f64>) -> Result<Moments> {
    if users < 0.0 || variance.is_some_and(|variance| variance < 0.0) {
        let message = format!(
            "the summary has a negative number of users or a negative variance beside `{}`",
            column.value
        );
        return Err(EngineError::report(SqlState::NumericValueOutOfRange, message));
    }
    let users = users as u64;
    let variance = match (&column.aggregate, variance) {
        (_, Some(variance)) => variance,
        // Of a share of users, as of their zeros and ones.
        (Aggregate::Given { variance: None }, None) if users > 1 => {
            mean * (1.0 - mean) * users as f64 / (users - 1) as f64
        }
        (Aggregate::Given { variance: None }, None) => 0.0,
        _ => f64::NAN,
    };
    Ok(Moments::from_summary(users, &[mean], &[variance]))
}

fn cells(query: &MomentsQuery, now: &[Vec<Moments>]) -> Vec<Cell> {
    let cell = |variant: usize| {
        let group = |columns: &Vec<usize>| {
            columns.first().map_or_else(|| Moments::new(0), |column| now[*column][variant].clone())
        };
        let groups: Vec<Moments> = query.groups.iter().map(group).collect();
        let users = groups.iter().map(Moments::count).max().unwrap_or(0);
        Cell { slice: None, variant, users, groups }
    };
    (0..query.variants.len()).map(cell).collect()
}
