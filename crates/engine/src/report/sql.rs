//! The SQL of a moments query: one row per exposed user with the user's numbers.
//!
//! ```text
//! exposed: exposures ─► GROUP BY user ─► arm, first time, dimensions and cluster then
//!          LEFT JOIN activating rows ─► the first of them as the time from which rows count
//! m0, m1…: each metric table ─► JOIN exposed ─► GROUP BY user ─► numbers
//! exposed LEFT JOIN m0, m1…
//! ```
//!
//! When days are asked for, numbers that grow with time come as lists of daily sums, so that one
//! pass answers for every day. With switchbacks a "user" is a region and the stretch of time a row
//! is in.
//!
//! # Not here
//! What the numbers mean after SQL (caps, thresholds): `collect`.

use std::fmt::Write;

use chrono::{DateTime, Utc};
use uplake_experiment::definition::{Exposures, Unit, UserRows};
use uplake_experiment::query::{Aggregate, MomentsQuery, Other, SEVERAL_ARMS, UserColumn};

use super::time::Times;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::functions::funnel::STEPS_MAX;

/// Column names that no user's expression can clash with.
pub(super) const USER: &str = "__up_user";
pub(super) const TIME: &str = "__up_time";
pub(super) const VARIANT: &str = "__up_variant";
pub(super) const LAST_VARIANT: &str = "__up_last_variant";
/// First exposure, where [`TIME`] is a later activation.
const EXPOSED: &str = "__up_exposed";
/// The variant of users whom a definition excludes, and the number of the exclusion.
pub(super) const EXCLUDED: &str = "__up_excluded";
pub(super) const CLUSTER: &str = "__up_cluster";
const DIMENSION: &str = "__up_dimension";
/// What a NULL variant, dimension value or cluster is called.
pub(super) const NULL_NAME: &str = "(null)";

/// Rows that one pass over a table turns into numbers per user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub kind: SourceKind,
    /// Into the query's columns, at least one.
    pub columns: Vec<usize>,
    /// What it gives besides the user, in this order.
    pub outputs: Vec<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceKind {
    /// All aggregates but distinct counts, of columns with the same table, user and time.
    Shared,
    /// One distinct count: first a row per user and value.
    Distinct,
}

/// A column of the per-user rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Output {
    /// The number, known at first exposure or asked for at the end only.
    Number { column: usize },
    /// The local day on which the number becomes 1.
    FirstDay { column: usize },
    /// Times at which steps were passed; per column how many it needs. `grows`: with time.
    Steps { columns: Vec<(usize, usize)>, grows: bool },
    /// A list of days with a sum for each of the columns. `active`: days with rows that count.
    Days { columns: Vec<usize>, active: bool },
    /// A list of days with the first or last number of each. Later days do not change which is first.
    OnePerDay { column: usize, last: bool },
}

/// Writes the SQL of a moments query.
pub(super) struct Sql<'a> {
    pub query: &'a MomentsQuery,
    pub times: &'a Times,
    start: Option<String>,
    end: Option<String>,
    pub sources: Vec<Source>,
}

impl<'a> Sql<'a> {
    /// # Errors
    /// [`EngineError::Report`] for a funnel that is too long, or a switchback without times.
    pub fn new(query: &'a MomentsQuery, times: &'a Times) -> Result<Self> {
        let (start, end) = match times.period {
            Some((start, end)) => (Some(timestamp_literal(start)), Some(timestamp_literal(end))),
            None => (None, None),
        };
        let mut sql = Self { query, times, start, end, sources: Vec::new() };
        sql.sources = sql.find_sources();
        for column in &query.columns {
            sql.check(column)?;
        }
        Ok(sql)
    }

    pub fn check(&self, column: &UserColumn) -> Result<()> {
        match &column.aggregate {
            Aggregate::One | Aggregate::Given { .. } => return Ok(()),
            Aggregate::Steps { steps, .. } if steps.len() > STEPS_MAX => {
                let message = format!(
                    "a funnel has {} steps, at most {STEPS_MAX} can be told apart",
                    steps.len()
                );
                return Err(EngineError::report(SqlState::ProgramLimitExceeded, message));
            }
            _ => {}
        }
        if self.switchback().is_some() && column.time.is_none() {
            let message = format!(
                "a metric over `{}` has no time, which regions that switch need",
                column.table
            );
            return Err(EngineError::report(SqlState::InvalidParameterValue, message));
        }
        Ok(())
    }

    /// One row per user, with all sources.
    pub fn per_user(&self) -> String {
        let mut select = format!("SELECT e.{VARIANT}, e.{LAST_VARIANT}, e.{TIME}");
        for dimension in 0..self.query.dimensions.len() {
            let _ = write!(select, ", e.{DIMENSION}{dimension}");
        }
        let clusters = matches!(self.query.exposures.unit, Unit::Cluster { .. });
        if clusters {
            let _ = write!(select, ", e.{CLUSTER}");
        }
        let _ = write!(select, ", CAST(e.{USER} AS VARCHAR) AS {USER}");
        let mut joins = String::new();
        for (number, source) in self.sources.iter().enumerate() {
            for (place, _) in source.outputs.iter().enumerate() {
                let _ = write!(select, ", m{number}.c{place} AS m{number}c{place}");
            }
            let _ = write!(joins, "\nLEFT JOIN m{number} ON m{number}.{USER} = e.{USER}");
        }
        // Users of a cluster come one after the other, so that one cluster is held at a time.
        let order =
            if clusters { format!("\nORDER BY {CLUSTER}, {VARIANT}") } else { String::new() };
        format!("{}\n{select}\nFROM exposed e{joins}{order}", self.tables())
    }

    /// The WITH clause: exposed users, then sources.
    pub fn tables(&self) -> String {
        let mut text = format!("WITH exposed AS (\n{}\n)", self.exposed());
        for (number, source) in self.sources.iter().enumerate() {
            let _ = write!(text, ",\nm{number} AS (\n{}\n)", self.source(source));
        }
        text
    }

    /// Whether a user of `exposed`, by this name, is in exactly one arm, and that has a name.
    fn exposed_in_one_arm(&self, exposed: &str) -> String {
        let names: Vec<String> =
            self.query.variants.iter().map(|v| text_literal(&v.value)).collect();
        let variant = format!("{exposed}.{VARIANT}");
        format!("{variant} = {exposed}.{LAST_VARIANT} AND {variant} IN ({})", names.join(", "))
    }

    /// The same, and the user's rows count from some time on: with activations, from one.
    pub fn in_one_arm(&self, exposed: &str) -> String {
        let in_an_arm = self.exposed_in_one_arm(exposed);
        match self.query.exposures.activated_by {
            Some(_) => format!("{in_an_arm} AND {exposed}.{TIME} IS NOT NULL"),
            None => in_an_arm,
        }
    }

    /// Whether a user of the exposed rows, called `exposed`, is among those of a column; `None`: all are.
    pub fn is_complete(&self, column: &UserColumn, exposed: &str) -> Option<String> {
        let (length, observed) = (column.complete_ms?, self.times.observed?);
        Some(format!(
            "{exposed}.{TIME} + INTERVAL '{length} milliseconds' <= {}",
            timestamp_literal(observed)
        ))
    }

    /// The value of a dimension in the exposed users' rows.
    pub fn dimension(number: usize) -> String {
        format!("e.{DIMENSION}{number}")
    }

    pub fn switchback(&self) -> Option<(&'a str, i64)> {
        match &self.query.exposures.unit {
            Unit::Switchback { region, every_ms } => Some((region, *every_ms)),
            _ => None,
        }
    }

    /// Who a row is about: the user, or the region and stretch of time.
    fn key(&self, user: &str, time: Option<&str>) -> String {
        let (Some((region, every_ms)), Some(time)) = (self.switchback(), time) else {
            return user.to_owned();
        };
        let stretch = format!(
            "date_bin(INTERVAL '{every_ms} milliseconds', {}, TIMESTAMP '1970-01-01')",
            as_timestamp(time)
        );
        format!("CAST({region} AS VARCHAR) || ' ' || CAST({stretch} AS VARCHAR)")
    }

    /// One row per user: first and last variant by name (different if there are several), the time from
    /// which rows count, dimensions and cluster at first exposure.
    pub fn exposed(&self) -> String {
        match &self.query.exposures.activated_by {
            Some(rows) => self.activated(rows),
            None => self.first_exposed(),
        }
    }

    /// Exposed users with the first row at or after first exposure that activates them, or NULL.
    fn activated(&self, rows: &UserRows) -> String {
        let time = as_timestamp(rows.time.as_deref().unwrap_or("NULL"));
        let mut conditions = vec![format!("({}) IS NOT NULL", rows.user)];
        conditions.extend(rows.filter.iter().map(|f| format!("({f})")));
        conditions.extend(self.start.iter().map(|s| format!("{time} >= {s}")));
        conditions.extend(self.end.iter().map(|e| format!("{time} < {e}")));
        let kept: String = (self.at_exposure().iter())
            .map(|(name, _)| format!(", min(e.{name}) AS {name}"))
            .collect();
        format!(
            "  SELECT e.{USER}, min(e.{VARIANT}) AS {VARIANT}, min(e.{LAST_VARIANT}) AS {LAST_VARIANT},\n    \
             min(CASE WHEN x.{TIME} >= e.{TIME} THEN x.{TIME} END) AS {TIME},\n    \
             min(e.{TIME}) AS {EXPOSED}{kept}\n  FROM (\n{}\n  ) e\n  \
             LEFT JOIN (SELECT {} AS {USER}, {time} AS {TIME}\n    FROM {}\n    WHERE {}) x\n  \
             ON x.{USER} = e.{USER}\n  GROUP BY e.{USER}",
            self.first_exposed(),
            rows.user,
            rows.table,
            conditions.join(" AND "),
        )
    }

    fn first_exposed(&self) -> String {
        let mut firsts = String::new();
        for (name, _) in self.at_exposure() {
            let _ = write!(
                firsts,
                ",\n    first_value({name} ORDER BY {TIME} NULLS LAST, {name}) AS {name}"
            );
        }
        format!(
            "  SELECT {USER}, min({VARIANT}) AS {VARIANT}, max({VARIANT}) AS {LAST_VARIANT},\n    \
             min({TIME}) AS {TIME}{firsts}\n  FROM ({})\n  GROUP BY {USER}",
            self.exposure_rows(),
        )
    }

    /// What is taken at first exposure: dimensions, and the cluster.
    fn at_exposure(&self) -> Vec<(String, &str)> {
        let dimensions = self.query.dimensions.iter().enumerate();
        let mut named: Vec<(String, &str)> =
            dimensions.map(|(i, d)| (format!("{DIMENSION}{i}"), d.sql.as_str())).collect();
        if let Unit::Cluster { key } = &self.query.exposures.unit {
            named.push((CLUSTER.to_owned(), key));
        }
        named
    }

    /// The exposures that count: user, variant by name, time, and what is taken at the first.
    pub fn exposure_rows(&self) -> String {
        let mut conditions = vec![format!("({}) IS NOT NULL", self.exposed_user())];
        if let (Some(time), Some(start)) = (self.exposure_time(), &self.start) {
            conditions.push(format!("{time} >= {start}"));
        }
        if let (Some(time), Some(end)) = (self.exposure_time(), &self.end) {
            conditions.push(format!("{time} < {end}"));
        }
        self.exposures_where(conditions)
    }

    /// The same with those that have no user or no time, or lie before the period.
    pub fn all_exposure_rows(&self) -> String {
        let mut conditions = Vec::new();
        if let (Some(time), Some(end)) = (self.exposure_time(), &self.end) {
            conditions.push(format!("({time} < {end} OR {time} IS NULL)"));
        }
        self.exposures_where(conditions)
    }

    fn exposures_where(&self, mut conditions: Vec<String>) -> String {
        let exposures = &self.query.exposures;
        conditions.extend(exposures.filter.iter().map(|f| format!("({f})")));
        let mut values = String::new();
        for (name, sql) in self.at_exposure() {
            let _ =
                write!(values, ",\n    coalesce(CAST({sql} AS VARCHAR), '{NULL_NAME}') AS {name}");
        }
        let conditions = match conditions.as_slice() {
            [] => String::new(),
            some => format!("\n    WHERE {}", some.join(" AND ")),
        };
        let mut variant = variant_of(exposures);
        if !exposures.exclude.is_empty() {
            let excluded: String = (0..exposures.exclude.len())
                .map(|i| format!(" WHEN {EXCLUDED}_user{i} IS NOT NULL THEN '{EXCLUDED}{i}'"))
                .collect();
            variant = format!("CASE{excluded} ELSE {variant} END");
        }
        format!(
            "SELECT {} AS {USER},\n    {variant} AS {VARIANT},\n    \
             {} AS {TIME}{values}\n    FROM {}{}{}{conditions}",
            self.exposed_user(),
            self.exposure_time().unwrap_or_else(|| "CAST(NULL AS TIMESTAMP)".into()),
            exposures.table,
            self.excluded_users(),
            self.others(),
        )
    }

    fn exposed_user(&self) -> String {
        let exposures = &self.query.exposures;
        self.key(&exposures.user, exposures.time.as_deref())
    }

    fn exposure_time(&self) -> Option<String> {
        self.query.exposures.time.as_deref().map(as_timestamp)
    }

    /// One row: how many exposures have no user, and how many no time.
    pub fn left_out(&self) -> String {
        let is_timed = self.query.exposures.time.is_some();
        let (no_time, counts) = match &self.start {
            _ if !is_timed => ("false".to_owned(), "true".to_owned()),
            None => (format!("{TIME} IS NULL"), format!("{TIME} IS NOT NULL")),
            Some(start) => (format!("{TIME} IS NULL"), format!("{TIME} >= {start}")),
        };
        format!(
            "SELECT sum(CASE WHEN {USER} IS NULL AND {counts} THEN 1 END) AS without_user,\n  \
             sum(CASE WHEN {no_time} THEN 1 END) AS without_time\n\
             FROM ({})\nWHERE {USER} IS NULL OR {no_time}",
            self.all_exposure_rows(),
        )
    }

    /// A row if a user was exposed before the period; `None` without one.
    pub fn any_before(&self) -> Option<String> {
        let start = self.start.as_ref().filter(|_| self.query.exposures.time.is_some())?;
        let rows = self.all_exposure_rows();
        Some(format!("SELECT 1 AS one FROM ({rows})\nWHERE {TIME} < {start} LIMIT 1"))
    }

    /// How many users of the arms were exposed before the period, too; `None` without one.
    pub fn users_before(&self) -> Option<String> {
        let start = self.start.as_ref().filter(|_| self.query.exposures.time.is_some())?;
        Some(format!(
            "SELECT count(*) AS users\n\
             FROM (\n  SELECT {USER}, min(CASE WHEN {TIME} >= {start} THEN {VARIANT} END) AS {VARIANT},\n    \
             max(CASE WHEN {TIME} >= {start} THEN {VARIANT} END) AS {LAST_VARIANT},\n    \
             sum(CASE WHEN {TIME} < {start} THEN 1 ELSE 0 END) AS early\n  \
             FROM ({})\n  WHERE {USER} IS NOT NULL\n  GROUP BY {USER}) e\nWHERE e.early > 0 AND {}",
            self.all_exposure_rows(),
            self.exposed_in_one_arm("e"),
        ))
    }

    /// Joins of the users of each exclusion.
    fn excluded_users(&self) -> String {
        let join = |(i, rows): (usize, &UserRows)| {
            let UserRows { table, user, filter, .. } = rows;
            let filter = filter.as_ref().map(|f| format!(" AND ({f})")).unwrap_or_default();
            format!(
                "\n    LEFT JOIN (SELECT DISTINCT {user} AS {EXCLUDED}_user{i} FROM {table} \
                 WHERE ({user}) IS NOT NULL{filter}) {EXCLUDED}{i}\n    \
                 ON {EXCLUDED}_user{i} = ({})",
                self.query.exposures.user
            )
        };
        self.query.exposures.exclude.iter().enumerate().map(join).collect()
    }

    /// Joins of the users of other experiments, with their arms there by name.
    fn others(&self) -> String {
        let join = |(i, other): (usize, &Other)| {
            let Exposures { table, user, time, filter, .. } = &other.exposures;
            let mut conditions = vec![format!("({user}) IS NOT NULL")];
            conditions.extend(filter.iter().map(|f| format!("({f})")));
            if let (Some(time), Some((start, end))) = (time, self.times.others[i]) {
                let time = as_timestamp(time);
                conditions.push(format!("{time} >= {}", timestamp_literal(start)));
                conditions.push(format!("{time} < {}", timestamp_literal(end)));
            }
            let names: String = (other.variants.iter())
                .map(|arm| {
                    format!(" WHEN {} THEN {}", text_literal(&arm.value), text_literal(&arm.name))
                })
                .collect();
            let arm = Other::column(i);
            format!(
                "\n    LEFT JOIN (SELECT {USER} AS __up_other_user{i}, \
                 CASE WHEN min({VARIANT}) <> max({VARIANT}) THEN '{SEVERAL_ARMS}' \
                 ELSE CASE min({VARIANT}){names} END END AS {arm}\n      \
                 FROM (SELECT {user} AS {USER}, {} AS {VARIANT} FROM {table} WHERE {})\n      \
                 GROUP BY {USER}) __up_other{i}\n    ON __up_other_user{i} = ({})",
                variant_of(&other.exposures),
                conditions.join(" AND "),
                self.query.exposures.user
            )
        };
        self.query.others.iter().enumerate().map(join).collect()
    }

    /// Columns that read the same table by the same user and time columns share a pass over it, and
    /// each distinct count has its own.
    fn find_sources(&self) -> Vec<Source> {
        let columns = &self.query.columns;
        let mut sources: Vec<Source> = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            let own_pass = match column.aggregate {
                Aggregate::One | Aggregate::Given { .. } => continue,
                Aggregate::Distinct => true,
                _ => false,
            };
            if own_pass {
                let output = if self.grows(column) {
                    Output::Days { columns: vec![number], active: false }
                } else {
                    Output::Number { column: number }
                };
                let kind = SourceKind::Distinct;
                sources.push(Source { kind, columns: vec![number], outputs: vec![output] });
            }
            // A distinct count takes part in the shared pass for the days with rows only.
            if own_pass && !self.has_days(column) {
                continue;
            }
            let same = sources.iter_mut().find(|source| {
                let first = &columns[source.columns[0]];
                source.kind == SourceKind::Shared
                    && (&first.table, &first.user, &first.time)
                        == (&column.table, &column.user, &column.time)
            });
            match same {
                Some(source) => source.columns.push(number),
                None => sources.push(Source {
                    kind: SourceKind::Shared,
                    columns: vec![number],
                    outputs: Vec::new(),
                }),
            }
        }
        for source in sources.iter_mut().filter(|s| s.kind == SourceKind::Shared) {
            source.outputs = self.find_outputs(&source.columns);
        }
        sources
    }

    fn find_outputs(&self, numbers: &[usize]) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut daily = Vec::new();
        for number in numbers {
            let column = &self.query.columns[*number];
            let grows = self.grows(column);
            match &column.aggregate {
                Aggregate::Sum | Aggregate::Days if grows => daily.push(*number),
                Aggregate::Any if grows => outputs.push(Output::FirstDay { column: *number }),
                Aggregate::First | Aggregate::Last if grows => {
                    let last = column.aggregate == Aggregate::Last;
                    outputs.push(Output::OnePerDay { column: *number, last });
                }
                Aggregate::Sum
                | Aggregate::Any
                | Aggregate::Days
                | Aggregate::First
                | Aggregate::Last => outputs.push(Output::Number { column: *number }),
                Aggregate::Steps { reached, .. } => {
                    let same = outputs.iter_mut().find_map(|output| match output {
                        Output::Steps { columns, .. } => {
                            let known = &self.query.columns[columns[0].0];
                            same_funnel(known, column).then_some(columns)
                        }
                        _ => None,
                    });
                    match same {
                        Some(columns) => columns.push((*number, *reached)),
                        None => outputs
                            .push(Output::Steps { columns: vec![(*number, *reached)], grows }),
                    }
                }
                Aggregate::Distinct | Aggregate::One | Aggregate::Given { .. } => {}
            }
        }
        if numbers.iter().any(|number| self.has_days(&self.query.columns[*number])) {
            outputs.push(Output::Days { columns: daily, active: true });
        }
        outputs
    }

    /// Do rows and exposures have times that can be compared?
    pub fn timed(&self, column: &UserColumn) -> bool {
        column.time.is_some() && self.query.exposures.time.is_some()
    }

    /// Does the number differ from day to day, and are days asked for? That of complete users does not:
    /// until then they have none.
    pub fn grows(&self, column: &UserColumn) -> bool {
        self.has_days(column) && column.complete_ms.is_none()
    }

    /// Do its rows make days with rows, if days are asked for?
    pub fn has_days(&self, column: &UserColumn) -> bool {
        let ends_at_exposure = column.window.and_then(|w| w.end_ms).is_some_and(|end| end <= 0);
        // What counts from first exposure although users are activated later is asked for at the end only.
        let grows = !ends_at_exposure && !column.from_exposure;
        self.times.days.is_some() && self.timed(column) && grows
    }

    pub fn source(&self, source: &Source) -> String {
        let first = &self.query.columns[source.columns[0]];
        let columns: Vec<&UserColumn> =
            source.columns.iter().map(|number| &self.query.columns[*number]).collect();
        let outputs: Vec<String> = source
            .outputs
            .iter()
            .enumerate()
            .map(|(place, output)| format!("{} AS c{place}", self.output(output, source)))
            .collect();
        if source.kind == SourceKind::Shared {
            let mut values = String::new();
            let shared = |number: &usize| {
                let later = |output: &Output| match output {
                    Output::Steps { columns, .. } => columns[1..].iter().any(|(n, _)| n == number),
                    _ => false,
                };
                source.outputs.iter().any(later)
            };
            for number in source.columns.iter().filter(|number| !shared(number)) {
                if let Some(value) = self.value(*number) {
                    let _ = write!(values, ",\n    {value} AS v{number}");
                }
            }
            return format!(
                "  SELECT x.{USER}, {}\n  FROM {}\n  GROUP BY x.{USER}",
                outputs.join(",\n    "),
                self.joined(first, &columns, &values),
            );
        }
        let number = source.columns[0];
        let value = filtered(&first.value, first.filter.as_deref());
        let mut condition = format!("x.v{number} IS NOT NULL");
        if let Some(window) = self.window_condition(first) {
            let _ = write!(condition, " AND {window}");
        }
        format!(
            "  SELECT x.{USER}, {}\n  FROM (SELECT x.{USER}, x.v{number}, min(x.{TIME}) AS {TIME}\n  \
             FROM {}\n  WHERE {condition}\n  GROUP BY x.{USER}, x.v{number}) x\n  GROUP BY x.{USER}",
            outputs.join(",\n    "),
            self.joined(first, &columns, &format!(", {value} AS v{number}")),
        )
    }

    /// The rows `x` of a table that may count, with `values` of each, and the exposures of their users.
    pub fn joined(&self, first: &UserColumn, columns: &[&UserColumn], values: &str) -> String {
        let user = self.key(&first.user, first.time.as_deref());
        let time = first.time.as_deref().map_or("CAST(NULL AS TIMESTAMP)".into(), as_timestamp);
        let mut conditions = vec![format!("({user}) IS NOT NULL")];
        conditions
            .extend(row_filters(columns).map(|filters| format!("({})", filters.join(" OR "))));
        if first.time.is_some() {
            conditions.extend(self.end.iter().map(|e| format!("{time} < {e}")));
            if !looks_back(columns) {
                conditions.extend(self.start.iter().map(|s| format!("{time} >= {s}")));
            }
        }
        format!(
            "(SELECT {user} AS {USER}, {time} AS {TIME}{values}\n    FROM {}\n    WHERE {}) x\n  \
             JOIN exposed ON exposed.{USER} = x.{USER}",
            first.table,
            conditions.join(" AND "),
        )
    }

    /// What a row adds, before windows; NULL for nothing.
    pub fn value(&self, number: usize) -> Option<String> {
        let column = &self.query.columns[number];
        let filter = column.filter.as_deref();
        match &column.aggregate {
            Aggregate::Sum
            | Aggregate::Any
            | Aggregate::Days
            | Aggregate::First
            | Aggregate::Last => Some(number_of(column)),
            Aggregate::Steps { steps, .. } => {
                let bit = |(step, condition): (usize, &String)| {
                    format!("CASE WHEN {condition} THEN {} ELSE 0 END", 1_i64 << step)
                };
                let bits: Vec<String> = steps.iter().enumerate().map(bit).collect();
                Some(filtered(&format!("CAST({} AS BIGINT)", bits.join(" + ")), filter))
            }
            Aggregate::Distinct | Aggregate::One | Aggregate::Given { .. } => None,
        }
    }

    fn output(&self, output: &Output, source: &Source) -> String {
        let column = |number: usize| &self.query.columns[number];
        let within = |number: usize, value: String| match self.window_condition(column(number)) {
            Some(condition) => format!("CASE WHEN {condition} THEN {value} END"),
            None => value,
        };
        let day = format!("local_day(x.{TIME}, '{}')", self.times.zone);
        match output {
            Output::Number { .. } if source.kind == SourceKind::Distinct => {
                "CAST(count(*) AS DOUBLE)".to_owned()
            }
            Output::Days { .. } if source.kind == SourceKind::Distinct => {
                format!("daily_sums({day}, 1.0)")
            }
            Output::Number { column: number } => {
                let value = within(*number, format!("x.v{number}"));
                let by_time = |function: &str| {
                    let order = format!("ORDER BY x.{TIME}, x.v{number}");
                    let counts = format!("x.{TIME} IS NOT NULL AND {}", is_finite(&value));
                    format!("{function}(x.v{number} {order}) FILTER (WHERE {counts})")
                };
                match column(*number).aggregate {
                    Aggregate::Any => format!("max(CASE WHEN {value} <> 0 THEN 1.0 ELSE 0.0 END)"),
                    Aggregate::Days => {
                        let day = format!("CASE WHEN {value} IS NOT NULL THEN {day} END");
                        format!("CAST(count(DISTINCT {day}) AS DOUBLE)")
                    }
                    Aggregate::First => by_time("first_value"),
                    Aggregate::Last => by_time("last_value"),
                    _ => format!("exact_sum({value})"),
                }
            }
            Output::OnePerDay { column: number, last } => {
                let value = within(*number, format!("x.v{number}"));
                let function = if *last { "daily_last" } else { "daily_first" };
                format!("{function}({day}, x.{TIME}, {value})")
            }
            Output::FirstDay { column: number } => {
                let value = within(*number, format!("x.v{number}"));
                format!("min(CASE WHEN {value} <> 0 THEN {day} END)")
            }
            Output::Steps { columns, .. } => {
                let number = columns[0].0;
                let time = format!("coalesce(x.{TIME}, {})", as_timestamp("'1970-01-01'"));
                format!("funnel({time}, {})", within(number, format!("x.v{number}")))
            }
            Output::Days { columns, .. } => {
                let day = self.counted_day(&day, source);
                let values = columns.iter().map(|n| within(*n, format!("x.v{n}")));
                let values: String = values.map(|value| format!(",\n      {value}")).collect();
                format!("daily_sums({day}{values})")
            }
        }
    }

    /// The day of a row that lies in the window of any column that grows.
    fn counted_day(&self, day: &str, source: &Source) -> String {
        let mut windows = Vec::new();
        for number in &source.columns {
            let column = &self.query.columns[*number];
            if !self.has_days(column) {
                continue;
            }
            let Some(window) = self.window_condition(column) else { return day.to_owned() };
            if !windows.contains(&window) {
                windows.push(window);
            }
        }
        format!("CASE WHEN {} THEN {day} END", windows.join(" OR "))
    }

    pub fn window_condition(&self, column: &UserColumn) -> Option<String> {
        if !self.timed(column) || self.switchback().is_some() {
            return None;
        }
        let from = if column.from_exposure { EXPOSED } else { TIME };
        let after = |ms: i64| match ms {
            0 => format!("exposed.{from}"),
            ms => format!("exposed.{from} + INTERVAL '{ms} milliseconds'"),
        };
        let start = column.window.map_or(0, |w| w.start_ms);
        let end = column.window.and_then(|w| w.end_ms);
        let mut condition = format!("x.{TIME} >= {}", after(start));
        if let Some(end) = end {
            let _ = write!(condition, " AND x.{TIME} < {}", after(end));
        }
        Some(condition)
    }
}

/// The variant of an exposure by name.
fn variant_of(exposures: &Exposures) -> String {
    format!("coalesce(CAST({} AS VARCHAR), '{NULL_NAME}')", exposures.variant)
}

/// A row's value as a double, NULL if the column's filter does not let it pass.
pub(super) fn number_of(column: &UserColumn) -> String {
    filtered(&format!("CAST({} AS DOUBLE)", column.value), column.filter.as_deref())
}

fn is_finite(number: &str) -> String {
    format!("abs({number}) < CAST('Infinity' AS DOUBLE)")
}

fn filtered(value: &str, filter: Option<&str>) -> String {
    match filter {
        Some(filter) => format!("CASE WHEN {filter} THEN {value} END"),
        None => value.to_owned(),
    }
}

/// Rows that can matter to a column; `None`: all.
fn row_filter(column: &UserColumn) -> Option<String> {
    match (&column.filter, &column.aggregate) {
        (Some(filter), _) => Some(format!("({filter})")),
        (None, Aggregate::Steps { steps, .. }) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("({step})")).collect();
            Some(steps.join(" OR "))
        }
        (None, _) => None,
    }
}

/// The different filters of which a row must pass one to matter to any of `columns`; `None`: all do.
pub(super) fn row_filters(columns: &[&UserColumn]) -> Option<Vec<String>> {
    let mut different: Vec<String> = Vec::new();
    for column in columns {
        let filter = row_filter(column)?;
        if !different.contains(&filter) {
            different.push(filter);
        }
    }
    Some(different)
}

/// Do rows from before the period count?
pub(super) fn looks_back(columns: &[&UserColumn]) -> bool {
    columns.iter().any(|column| column.window.is_some_and(|window| window.start_ms < 0))
}

fn same_funnel(a: &UserColumn, b: &UserColumn) -> bool {
    let steps = |column: &UserColumn| match &column.aggregate {
        Aggregate::Steps { steps, .. } => Some(steps.clone()),
        _ => None,
    };
    let when = |column: &UserColumn| (column.window, column.complete_ms, column.from_exposure);
    (steps(a), &a.filter, when(a)) == (steps(b), &b.filter, when(b))
}

/// Times compare as UTC instants without a zone, whatever the column's own type.
pub(super) fn as_timestamp(expression: &str) -> String {
    format!("arrow_cast({expression}, 'Timestamp(Microsecond, None)')")
}

pub(super) fn timestamp_literal(instant: DateTime<Utc>) -> String {
    format!("TIMESTAMP '{}'", instant.format("%Y-%m-%d %H:%M:%S%.6f"))
}

/// Text in SQL quotes.
pub(super) fn text_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
