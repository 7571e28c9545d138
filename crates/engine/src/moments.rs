//! A [`MomentsQuery`] answered with ordinary SQL plans.
//!
//! ```text
//! exposures ─► one row per user: arm, first time, dimension ─┐
//! each metric table ─► one row per user: its numbers ────────┴─► LEFT JOIN ─► Moments per cell
//! ```
//!
//! # Invariants
//! - A user is in one arm or in none: users seen in several are counted and left out.
//! - An exposed user without events has zeros, and counts.
//! - Per-user sums are order-free (`exact_sum`) and moments are compensated, so the same snapshot gives
//!   the same bytes whatever the number of threads.
//!
//! # Not here
//! The one-scan operator; it will answer the same query behind the same function.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, LocalResult, NaiveDate, NaiveDateTime, TimeZone, Utc};
use chrono_tz::Tz;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType};
use futures::TryStreamExt;
use uplake_experiment::Moments;
use uplake_experiment::query::{Aggregate, Cell, MomentsQuery, MomentsTable, UserColumn};

use crate::error::{EngineError, Result};
use crate::session::{Answer, Session};
use crate::statement;

/// Column names that no user's expression can clash with.
const USER: &str = "__up_user";
const TIME: &str = "__up_time";
const VARIANT: &str = "__up_variant";
const LAST_VARIANT: &str = "__up_last_variant";
const DIMENSION: &str = "__up_dimension";
/// What a NULL variant or dimension value is called.
const NULL_NAME: &str = "(null)";
/// Values of a dimension in one report; beyond this the breakdown says nothing anyway.
const DIMENSION_VALUES_MAX: usize = 10_000;

impl Session {
    /// Runs a moments query.
    ///
    /// # Errors
    /// [`EngineError::Statement`] for an expression or a column of the definition that the tables do not
    /// have, [`EngineError::Report`] for a time zone or a period that cannot be read.
    pub async fn moments(&self, query: &MomentsQuery) -> Result<MomentsTable> {
        let zone = parse_zone(&query.time_zone)?;
        let sql = Sql::new(query, zone)?;
        let stream = self.rows(&sql.per_user()).await?;
        let mut collect = Collect::new(query, zone);
        let mut stream = stream;
        while let Some(batch) = stream.try_next().await? {
            collect.add(&batch)?;
        }
        collect.finish()
    }

    /// The SQL that [`Session::moments`] runs, for people who want to see or check it.
    ///
    /// # Errors
    /// As [`Session::moments`] for the time zone and the period.
    pub fn moments_sql(&self, query: &MomentsQuery) -> Result<String> {
        Ok(Sql::new(query, parse_zone(&query.time_zone)?)?.per_user())
    }

    async fn rows(&self, sql: &str) -> Result<datafusion::execution::SendableRecordBatchStream> {
        let parsed = statement::parse(sql).map_err(|e| in_definition(e, sql))?;
        let [only] = parsed.as_slice() else {
            return Err(EngineError::Report(
                "an expression of the definition holds a semicolon".into(),
            ));
        };
        match self.run(only).await.map_err(|e| in_definition(e, sql))? {
            Answer::Rows { stream, .. } => Ok(stream),
            Answer::Done { .. } => Err(EngineError::Report("the definition is not a query".into())),
        }
    }
}

/// A place in generated SQL means nothing to the reader of a definition; the text there does.
fn in_definition(error: EngineError, sql: &str) -> EngineError {
    match error {
        EngineError::Statement { message, position } => {
            let near = position.and_then(|p| {
                let line = sql.lines().nth(p.line.saturating_sub(1) as usize)?;
                let start = line.char_indices().nth(p.column.saturating_sub(1) as usize)?.0;
                Some(format!(" (near `{}`)", line[start..].chars().take(40).collect::<String>()))
            });
            EngineError::Report(format!(
                "an expression of the experiment's definition cannot be used: {message}{}",
                near.unwrap_or_default()
            ))
        }
        other => other,
    }
}

fn parse_zone(name: &str) -> Result<Tz> {
    name.parse().map_err(|_| {
        EngineError::Report(format!(
            "unknown time zone `{name}`; write an IANA name such as \"UTC\" or \"Asia/Shanghai\""
        ))
    })
}

/// A local date or date-time as a UTC instant. A time that the clock skips is moved to the next that exists;
/// one that it shows twice is the first.
fn instant(text: &str, zone: Tz) -> Result<DateTime<Utc>> {
    let local = NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .map(|d| d.and_time(chrono::NaiveTime::MIN))
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
        .map_err(|_| EngineError::Report(format!("`{text}` is not a date or a date and time")))?;
    let mut candidate = local;
    for _ in 0..=24 * 4 {
        match zone.from_local_datetime(&candidate) {
            LocalResult::Single(t) | LocalResult::Ambiguous(t, _) => {
                return Ok(t.with_timezone(&Utc));
            }
            LocalResult::None => candidate += chrono::Duration::minutes(15),
        }
    }
    Err(EngineError::Report(format!("`{text}` does not exist in {zone}")))
}

fn timestamp_literal(instant: DateTime<Utc>) -> String {
    format!("TIMESTAMP '{}'", instant.format("%Y-%m-%d %H:%M:%S%.6f"))
}

/// Writes the SQL of a moments query.
struct Sql<'a> {
    query: &'a MomentsQuery,
    start: Option<String>,
    end: Option<String>,
}

impl<'a> Sql<'a> {
    fn new(query: &'a MomentsQuery, zone: Tz) -> Result<Self> {
        let (mut start, mut end) = (None, None);
        if let Some(period) = &query.period {
            start = Some(timestamp_literal(instant(&period.start, zone)?));
            end = Some(timestamp_literal(instant(&period.end, zone)?));
        }
        Ok(Self { query, start, end })
    }

    fn per_user(&self) -> String {
        let mut ctes = format!("WITH exposed AS (\n{}\n)", self.exposed());
        let mut select = format!("SELECT e.{VARIANT}, e.{LAST_VARIANT}, e.{DIMENSION}, e.{TIME}");
        let mut joins = String::new();
        for (number, (source, columns)) in self.sources().iter().enumerate() {
            ctes.push_str(&format!(",\nm{number} AS (\n{}\n)", self.source(source, columns)));
            for column in columns {
                select.push_str(&format!(", m{number}.c{column}"));
            }
            joins.push_str(&format!("\nLEFT JOIN m{number} ON m{number}.{USER} = e.{USER}"));
        }
        format!("{ctes}\n{select}\nFROM exposed e{joins}")
    }

    /// One row per user: first and last variant by name (different if there are several), first time,
    /// dimension at that time.
    fn exposed(&self) -> String {
        let exposures = &self.query.exposures;
        let time = exposures.time.as_deref().map_or("CAST(NULL AS TIMESTAMP)".into(), as_timestamp);
        let dimension = self.query.dimension.as_ref().map_or("NULL", |d| &d.sql);
        let mut conditions = vec![format!("({}) IS NOT NULL", exposures.user)];
        conditions.extend(exposures.filter.iter().map(|f| format!("({f})")));
        if let Some(time) = &exposures.time {
            let time = as_timestamp(time);
            conditions.extend(self.start.iter().map(|s| format!("{time} >= {s}")));
            conditions.extend(self.end.iter().map(|e| format!("{time} < {e}")));
        }
        let first_dimension = if self.query.dimension.is_none() {
            "CAST(NULL AS VARCHAR)".to_owned()
        } else {
            format!("first_value({DIMENSION} ORDER BY {TIME} NULLS LAST, {DIMENSION})")
        };
        format!(
            "  SELECT {USER}, min({VARIANT}) AS {VARIANT}, max({VARIANT}) AS {LAST_VARIANT},\n    \
             min({TIME}) AS {TIME}, {first_dimension} AS {DIMENSION}\n  FROM (SELECT {} AS {USER},\n    \
             coalesce(CAST({} AS VARCHAR), '{NULL_NAME}') AS {VARIANT},\n    {time} AS {TIME},\n    \
             coalesce(CAST({dimension} AS VARCHAR), '{NULL_NAME}') AS {DIMENSION}\n    FROM {}\n    WHERE {})\n  GROUP BY {USER}",
            exposures.user,
            exposures.variant,
            exposures.table,
            conditions.join(" AND "),
        )
    }

    /// Columns that read the same table by the same user and time columns share a pass over it.
    fn sources(&self) -> Vec<(&'a UserColumn, Vec<usize>)> {
        let mut sources: Vec<(&UserColumn, Vec<usize>)> = Vec::new();
        for (number, column) in self.query.columns.iter().enumerate() {
            let same = sources.iter_mut().find(|(s, _)| {
                s.table == column.table && s.user == column.user && s.time == column.time
            });
            match same {
                Some((_, columns)) => columns.push(number),
                None => sources.push((column, vec![number])),
            }
        }
        sources
    }

    fn source(&self, source: &UserColumn, columns: &[usize]) -> String {
        let timed = source.time.is_some() && self.query.exposures.time.is_some();
        let time = source.time.as_deref().map_or("CAST(NULL AS TIMESTAMP)".into(), as_timestamp);
        let mut inner = format!("SELECT {} AS {USER}, {time} AS {TIME}", source.user);
        let mut any_filter: Option<Vec<String>> = Some(Vec::new());
        for number in columns {
            let column = &self.query.columns[*number];
            let value = format!("CAST({} AS DOUBLE)", column.value);
            let value = match &column.filter {
                Some(filter) => format!("CASE WHEN {filter} THEN {value} END"),
                None => value,
            };
            inner.push_str(&format!(",\n    {value} AS v{number}"));
            match (&mut any_filter, &column.filter) {
                (Some(filters), Some(filter)) => filters.push(format!("({filter})")),
                _ => any_filter = None,
            }
        }
        let mut conditions = vec![format!("({}) IS NOT NULL", source.user)];
        if let Some(mut filters) = any_filter {
            filters.dedup();
            conditions.push(format!("({})", filters.join(" OR ")));
        }
        if source.time.is_some() {
            conditions.extend(self.end.iter().map(|e| format!("{time} < {e}")));
            let looks_back = columns
                .iter()
                .any(|c| self.query.columns[*c].window.is_some_and(|w| w.start_ms < 0));
            if !looks_back {
                conditions.extend(self.start.iter().map(|s| format!("{time} >= {s}")));
            }
        }
        let aggregates: Vec<String> = columns.iter().map(|c| self.aggregate(*c, timed)).collect();
        format!(
            "  SELECT x.{USER}, {}\n  FROM ({inner}\n    FROM {}\n    WHERE {}) x\n  \
             JOIN exposed ON exposed.{USER} = x.{USER}\n  GROUP BY x.{USER}",
            aggregates.join(",\n    "),
            source.table,
            conditions.join(" AND "),
        )
    }

    fn aggregate(&self, number: usize, timed: bool) -> String {
        let column = &self.query.columns[number];
        let value = format!("x.v{number}");
        let value = match self.window_condition(column, timed) {
            Some(condition) => format!("CASE WHEN {condition} THEN {value} END"),
            None => value,
        };
        match column.aggregate {
            Aggregate::Sum => format!("exact_sum({value}) AS c{number}"),
            Aggregate::Any => {
                format!("max(CASE WHEN {value} <> 0 THEN 1.0 ELSE 0.0 END) AS c{number}")
            }
        }
    }

    fn window_condition(&self, column: &UserColumn, timed: bool) -> Option<String> {
        if !timed {
            return None;
        }
        let after = |ms: i64| match ms {
            0 => format!("exposed.{TIME}"),
            ms => format!("exposed.{TIME} + INTERVAL '{ms} milliseconds'"),
        };
        let start = column.window.map_or(0, |w| w.start_ms);
        let end = column.window.and_then(|w| w.end_ms);
        let mut condition = format!("x.{TIME} >= {}", after(start));
        if let Some(end) = end {
            condition.push_str(&format!(" AND x.{TIME} < {}", after(end)));
        }
        Some(condition)
    }
}

/// Times compare as UTC instants without a zone, whatever the column's own type.
fn as_timestamp(expression: &str) -> String {
    format!("arrow_cast({expression}, 'Timestamp(Microsecond, None)')")
}

/// Per-user rows to cells.
struct Collect<'a> {
    query: &'a MomentsQuery,
    zone: Tz,
    variants: HashMap<&'a str, usize>,
    /// Columns in the order the SQL gives them.
    order: Vec<usize>,
    total: Vec<Vec<Moments>>,
    by_value: BTreeMap<String, Vec<Vec<Moments>>>,
    users_in_many_variants: u64,
    unknown_variants: BTreeMap<String, u64>,
    first_exposures: BTreeMap<(NaiveDate, usize), u64>,
}

impl<'a> Collect<'a> {
    fn new(query: &'a MomentsQuery, zone: Tz) -> Self {
        let sql = Sql { query, start: None, end: None };
        Self {
            query,
            zone,
            variants: query
                .variants
                .iter()
                .enumerate()
                .map(|(i, v)| (v.value.as_str(), i))
                .collect(),
            order: sql.sources().into_iter().flat_map(|(_, columns)| columns).collect(),
            total: empty_cells(query),
            by_value: BTreeMap::new(),
            users_in_many_variants: 0,
            unknown_variants: BTreeMap::new(),
            first_exposures: BTreeMap::new(),
        }
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let text = |i: usize| cast(batch.column(i), &DataType::Utf8);
        let arrow = |e: datafusion::arrow::error::ArrowError| EngineError::Execution(e.to_string());
        let (first, last, dimension) =
            (text(0).map_err(arrow)?, text(1).map_err(arrow)?, text(2).map_err(arrow)?);
        let (first, last) = (first.as_string::<i32>(), last.as_string::<i32>());
        let dimension = dimension.as_string::<i32>();
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let time = cast(batch.column(3), &micros).map_err(arrow)?;
        let time = time.as_primitive::<TimestampMicrosecondType>();
        let numbers = (4..batch.num_columns())
            .map(|i| cast(batch.column(i), &DataType::Float64))
            .collect::<Result<Vec<_>, _>>()
            .map_err(arrow)?;
        let mut user = vec![0.0; self.query.columns.len()];
        for row in 0..batch.num_rows() {
            if first.value(row) != last.value(row) {
                self.users_in_many_variants += 1;
                continue;
            }
            let Some(variant) = self.variants.get(first.value(row)).copied() else {
                *self.unknown_variants.entry(first.value(row).to_owned()).or_default() += 1;
                continue;
            };
            for (array, column) in numbers.iter().zip(&self.order) {
                let array = array.as_primitive::<Float64Type>();
                let number = if array.is_valid(row) { array.value(row) } else { 0.0 };
                user[*column] = self.query.columns[*column].cap.map_or(number, |c| number.min(c));
            }
            if time.is_valid(row) {
                self.count_day(time.value(row), variant);
            }
            let value = (self.query.dimension.is_some() && dimension.is_valid(row))
                .then(|| dimension.value(row));
            self.add_user(variant, value, &user)?;
        }
        Ok(())
    }

    fn count_day(&mut self, micros: i64, variant: usize) {
        if let Some(utc) = DateTime::from_timestamp_micros(micros) {
            let day = utc.with_timezone(&self.zone).date_naive();
            *self.first_exposures.entry((day, variant)).or_default() += 1;
        }
    }

    fn add_user(&mut self, variant: usize, value: Option<&str>, user: &[f64]) -> Result<()> {
        let mut group = Vec::new();
        for (number, columns) in self.query.groups.iter().enumerate() {
            group.clear();
            group.extend(columns.iter().map(|c| user[*c]));
            self.total[variant][number].add(&group);
            let Some(value) = value else { continue };
            if !self.by_value.contains_key(value) {
                if self.by_value.len() == DIMENSION_VALUES_MAX {
                    return Err(EngineError::Report(format!(
                        "the dimension has more than {DIMENSION_VALUES_MAX} values; group them first"
                    )));
                }
                self.by_value.insert(value.to_owned(), empty_cells(self.query));
            }
            if let Some(cells) = self.by_value.get_mut(value) {
                cells[variant][number].add(&group);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<MomentsTable> {
        let cells_of = |value: Option<String>, cells: Vec<Vec<Moments>>| {
            cells.into_iter().enumerate().map(move |(variant, groups)| Cell {
                dimension_value: value.clone(),
                variant,
                groups,
            })
        };
        let mut cells: Vec<Cell> = cells_of(None, self.total).collect();
        for (value, values) in self.by_value {
            cells.extend(cells_of(Some(value), values));
        }
        Ok(MomentsTable {
            cells,
            users_in_many_variants: self.users_in_many_variants,
            unknown_variants: self.unknown_variants.into_iter().collect(),
            first_exposures: self
                .first_exposures
                .into_iter()
                .map(|((day, variant), users)| (day.to_string(), variant, users))
                .collect(),
        })
    }
}

fn empty_cells(query: &MomentsQuery) -> Vec<Vec<Moments>> {
    let groups = || query.groups.iter().map(|columns| Moments::new(columns.len())).collect();
    query.variants.iter().map(|_| groups()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_dates_become_utc_instants() {
        let check = |text: &str, zone: &str, expected: &str| {
            let got = instant(text, zone.parse().unwrap()).unwrap();
            assert_eq!(got.to_rfc3339(), expected, "{text} {zone}");
        };
        check("2026-11-01", "UTC", "2026-11-01T00:00:00+00:00");
        check("2026-11-01", "Asia/Shanghai", "2026-10-31T16:00:00+00:00");
        check("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:00:00+00:00");
        check("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00+00:00");
        assert!(parse_zone("Mars/Base").is_err());
        assert!(instant("tomorrow", Tz::UTC).is_err());
    }
}
