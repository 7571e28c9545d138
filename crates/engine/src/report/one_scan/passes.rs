//! Which passes over tables answer several experiments, and what each row is worth to them.

use std::fmt::Write;

use chrono_tz::Tz;
use uplake_experiment::query::{Aggregate, UserColumn};

use crate::report::decode::table_place;
use crate::report::sql::{
    Output, Source, SourceKind, Sql, TIME, USER, as_timestamp, looks_back, row_filters,
    timestamp_literal,
};

/// Values of one pass; a value's number is kept in 16 bits.
const VALUES_MAX: usize = 1 << 15;

/// One scan of a table, for all experiments that read it by the same user and time.
#[derive(Debug)]
pub(super) struct Pass {
    pub table: String,
    pub user: String,
    pub time: Option<String>,
    pub zone: Tz,
    /// Does any experiment ask for days?
    pub by_day: bool,
    pub values: Vec<Value>,
    /// Per experiment, the uses of the values by when rows count for them.
    pub groups: Vec<Vec<Group>>,
    /// A row must pass one of these to matter; `None`: all do.
    filters: Option<Vec<String>>,
    /// Rows from outside matter to nobody. Microseconds since 1970.
    start: i64,
    end: i64,
}

/// What a row adds; NULL for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub sql: String,
    pub kind: ValueKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Values are added up.
    Sum,
    /// 1 if any value is neither NULL nor 0.
    Any,
    /// The first by time that is finite, the least of several then.
    First,
    /// The last, the greatest of several then.
    Last,
}

/// Uses whose rows count at the same times.
#[derive(Debug)]
pub(super) struct Group {
    pub when: When,
    /// Per value of the pass, what it becomes.
    pub uses: Vec<Vec<Use>>,
}

/// When rows count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct When {
    /// After the user's first exposure, if that matters: half-open, in microseconds.
    window: Option<(i64, Option<i64>)>,
    /// Whoever the user is: half-open, in microseconds since 1970.
    start: Option<i64>,
    end: Option<i64>,
}

impl When {
    /// From when on and up to when the rows of a user count, exposed at `time`; `None`: never.
    /// [`NO_TIME`] lies within only if time does not matter.
    pub fn bounds(&self, time: Option<i64>) -> Option<(i64, i64)> {
        if (self.window, self.start, self.end) == (None, None, None) {
            return Some((NO_TIME, i64::MAX));
        }
        let (mut low, mut high) = (NO_TIME + 1, i64::MAX);
        if let Some((from, to)) = self.window {
            let exposed = time?;
            low = low.max(exposed.saturating_add(from));
            high = to.map_or(high, |to| exposed.saturating_add(to));
        }
        Some((low.max(self.start.unwrap_or(low)), high.min(self.end.unwrap_or(high))))
    }
}

/// The time of a row that has none.
pub(super) const NO_TIME: i64 = i64::MIN;

/// What the values of a user's rows become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A sum known at first exposure, or at the end only.
    Known { column: usize },
    /// Likewise, 1 if there is any.
    KnownAny { column: usize },
    /// The number of days with any, known at first exposure or at the end only.
    KnownDays { column: usize },
    /// The first or last value, likewise.
    KnownValue { column: usize, last: bool },
    /// A number that grows from day to day.
    Daily { column: usize },
    /// The first or last value, from day to day.
    DailyValue { column: usize, last: bool },
    /// A number that is 1 from the first such day on.
    FirstDay { column: usize },
    /// A day with rows that count, in this table of the layout.
    Active { table: usize },
}

/// What a pass cannot tell, as sources for SQL: distinct counts and ordered steps.
pub(super) fn asides(sql: &Sql<'_>) -> Vec<Source> {
    let mut asides = Vec::new();
    for source in &sql.sources {
        if source.kind == SourceKind::Distinct {
            asides.push(source.clone());
            continue;
        }
        let steps = source.outputs.iter().filter(|output| is_steps(output));
        let outputs: Vec<Output> = steps.cloned().collect();
        let columns = outputs.iter().flat_map(|output| match output {
            Output::Steps { columns, .. } => columns.iter().map(|(column, _)| *column).collect(),
            _ => Vec::new(),
        });
        let columns: Vec<usize> = columns.collect();
        if !outputs.is_empty() {
            asides.push(Source { kind: SourceKind::Shared, columns, outputs });
        }
    }
    asides
}

fn is_steps(output: &Output) -> bool {
    matches!(output, Output::Steps { .. })
}

/// The passes for some experiments, in the order of their first tables; `None` if there is too much
/// for one.
pub(super) fn passes(experiments: &[Sql<'_>]) -> Option<Vec<Pass>> {
    let mut passes: Vec<Pass> = Vec::new();
    for (number, sql) in experiments.iter().enumerate() {
        for source in &sql.sources {
            if source.kind == SourceKind::Distinct || source.outputs.iter().all(is_steps) {
                continue;
            }
            let first = &sql.query.columns[source.columns[0]];
            let same = passes.iter().position(|pass| {
                (&pass.table, &pass.user, &pass.time, pass.zone)
                    == (&first.table, &first.user, &first.time, sql.times.zone)
            });
            let place = same.unwrap_or_else(|| {
                passes.push(Pass::new(first, sql.times.zone, experiments.len()));
                passes.len() - 1
            });
            passes[place].add(number, sql, source);
        }
    }
    passes.iter().all(|pass| pass.values.len() <= VALUES_MAX).then_some(passes)
}

impl Pass {
    fn new(first: &UserColumn, zone: Tz, experiments: usize) -> Self {
        Self {
            table: first.table.clone(),
            user: first.user.clone(),
            time: first.time.clone(),
            zone,
            by_day: false,
            values: Vec::new(),
            groups: (0..experiments).map(|_| Vec::new()).collect(),
            filters: Some(Vec::new()),
            start: i64::MAX,
            end: i64::MIN,
        }
    }

    fn add(&mut self, experiment: usize, sql: &Sql<'_>, source: &Source) {
        let columns: Vec<&UserColumn> =
            source.columns.iter().map(|number| &sql.query.columns[*number]).collect();
        let micros = |time: chrono::DateTime<chrono::Utc>| time.timestamp_micros();
        let period = sql.times.period.filter(|_| self.time.is_some());
        let start = period.map(|(start, _)| micros(start)).filter(|_| !looks_back(&columns));
        let end = period.map(|(_, end)| micros(end));
        self.start = self.start.min(start.unwrap_or(i64::MIN));
        self.end = self.end.max(end.unwrap_or(i64::MAX));
        let counts_days = columns.iter().any(|column| column.aggregate == Aggregate::Days);
        self.by_day |= sql.times.days.is_some() || counts_days;
        let filters = row_filters(&columns);
        let matters = match &filters {
            Some(filters) => format!("CASE WHEN {} THEN 1.0 END", filters.join(" OR ")),
            None => "1.0".to_owned(),
        };
        match (&mut self.filters, filters) {
            (Some(known), Some(filters)) => {
                let new: Vec<_> = filters.into_iter().filter(|f| !known.contains(f)).collect();
                known.extend(new);
            }
            (known, None) => *known = None,
            (None, _) => {}
        }
        let when = |column: &UserColumn| {
            let micros = |ms: i64| ms.saturating_mul(1000);
            let window =
                column.window.map_or((0, None), |w| (micros(w.start_ms), w.end_ms.map(micros)));
            When { window: sql.timed(column).then_some(window), start, end }
        };
        for output in &source.outputs {
            match output {
                Output::Number { column } | Output::FirstDay { column } => {
                    let of = &sql.query.columns[*column];
                    let column = *column;
                    let feeds = match (output, &of.aggregate) {
                        (Output::FirstDay { .. }, _) => Use::FirstDay { column },
                        (_, Aggregate::Any) => Use::KnownAny { column },
                        (_, Aggregate::Days) => Use::KnownDays { column },
                        (_, Aggregate::First) => Use::KnownValue { column, last: false },
                        (_, Aggregate::Last) => Use::KnownValue { column, last: true },
                        _ => Use::Known { column },
                    };
                    self.add_use(experiment, when(of), sql.value(column), kind(of), feeds);
                }
                Output::OnePerDay { column, last } => {
                    let of = &sql.query.columns[*column];
                    let feeds = Use::DailyValue { column: *column, last: *last };
                    self.add_use(experiment, when(of), sql.value(*column), kind(of), feeds);
                }
                Output::Days { columns, active } => {
                    for column in columns {
                        let of = &sql.query.columns[*column];
                        let feeds = Use::Daily { column: *column };
                        self.add_use(experiment, when(of), sql.value(*column), kind(of), feeds);
                    }
                    let growing = source.columns.iter().map(|c| &sql.query.columns[*c]);
                    for column in growing.filter(|c| *active && sql.has_days(c)) {
                        let feeds = Use::Active { table: table_place(sql, source) };
                        let matters = Some(matters.clone());
                        self.add_use(experiment, when(column), matters, ValueKind::Any, feeds);
                    }
                }
                // `asides` has them.
                Output::Steps { .. } => {}
            }
        }
    }

    fn add_use(
        &mut self,
        experiment: usize,
        when: When,
        sql: Option<String>,
        kind: ValueKind,
        feeds: Use,
    ) {
        let Some(sql) = sql else { return };
        let value = Value { sql, kind };
        let value = self.values.iter().position(|known| *known == value).unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        });
        let groups = &mut self.groups[experiment];
        let group = groups.iter().position(|group| group.when == when).unwrap_or_else(|| {
            groups.push(Group { when, uses: Vec::new() });
            groups.len() - 1
        });
        let uses = &mut groups[group].uses;
        if uses.len() <= value {
            uses.resize_with(value + 1, Vec::new);
        }
        if !uses[value].contains(&feeds) {
            uses[value].push(feeds);
        }
    }

    /// The statement: user, time if there is one, values.
    pub fn sql(&self) -> String {
        let mut conditions = Vec::new();
        if let Some(time) = self.time.as_deref().map(as_timestamp) {
            let literal =
                |micros| chrono::DateTime::from_timestamp_micros(micros).map(timestamp_literal);
            if let Some(start) = literal(self.start).filter(|_| self.start > i64::MIN) {
                conditions.push(format!("{time} >= {start}"));
            }
            if let Some(end) = literal(self.end).filter(|_| self.end < i64::MAX) {
                conditions.push(format!("{time} < {end}"));
            }
        }
        self.sql_where(conditions)
    }

    /// The same of rows of all times.
    pub fn sql_of_all_times(&self) -> String {
        self.sql_where(Vec::new())
    }

    fn sql_where(&self, mut conditions: Vec<String>) -> String {
        let mut select = format!("SELECT {} AS {USER}", self.user);
        if let Some(time) = self.time.as_deref().map(as_timestamp) {
            let _ = write!(select, ", {time} AS {TIME}");
        }
        for (number, value) in self.values.iter().enumerate() {
            let _ = write!(select, ",\n  {} AS v{number}", value.sql);
        }
        if let Some(filters) = &self.filters {
            conditions.push(format!("({})", filters.join(" OR ")));
        }
        let conditions = match conditions.as_slice() {
            [] => String::new(),
            some => format!("\nWHERE {}", some.join(" AND ")),
        };
        format!("{select}\nFROM {}{conditions}", self.table)
    }

    /// Do rows between these times all matter by their time? `None`: nobody knows the times.
    pub fn takes_all_of(&self, times: Option<(i64, i64)>) -> bool {
        match times {
            _ if self.time.is_none() || (self.start, self.end) == (i64::MIN, i64::MAX) => true,
            Some((first, last)) => first >= self.start && last < self.end,
            None => false,
        }
    }

    /// What tells the runs of one pass from those of another.
    pub fn identity(&self) -> String {
        let kinds: Vec<ValueKind> = self.values.iter().map(|value| value.kind).collect();
        format!("{} {} {kinds:?}\n{}", self.zone, self.by_day, self.sql_of_all_times())
    }
}

fn kind(column: &UserColumn) -> ValueKind {
    match column.aggregate {
        Aggregate::Any | Aggregate::Days => ValueKind::Any,
        Aggregate::First => ValueKind::First,
        Aggregate::Last => ValueKind::Last,
        _ => ValueKind::Sum,
    }
}
