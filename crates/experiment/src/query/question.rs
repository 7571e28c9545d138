//! What a report needs to know about the data.

use super::expressions::of_other;
use crate::assignment::Assignment;
use crate::definition::{
    Cap, DefinitionError, Dimension, Experiment, Exposures, Path, Period, Transform, Unit,
    UserRows, Variant, Window,
};
use crate::expression::Expression;

/// What a report needs to know about the data.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MomentsQuery {
    pub exposures: Exposures,
    pub variants: Vec<Variant>,
    pub period: Option<Period>,
    pub time_zone: String,
    /// One number per exposed user each.
    pub columns: Vec<UserColumn>,
    /// Per metric the columns whose joint moments it needs, in this order; none for quantiles.
    pub groups: Vec<Vec<usize>>,
    /// Per group the name of its metric.
    pub metrics: Vec<String>,
    pub quantiles: Vec<QuantileQuery>,
    /// Every cell comes once for everyone and once per value of each of these.
    pub dimensions: Vec<Dimension>,
    /// Each has a dimension, whose values are the other experiment's arms.
    pub others: Vec<Other>,
    /// Count users whose arm is not the one this assigns.
    pub assignment: Option<Assignment>,
    /// Also cells as of the end of every day of the period. Needs exposure times.
    pub days: bool,
    pub paths: Vec<Path>,
    pub conversion_times: Vec<ConversionQuery>,
    /// All SQL of the definition that answers this, as it is written there.
    pub expressions: Vec<Expression>,
    /// Up to when the data are known, if the definition says: a local time as of the period.
    pub observed_until: Option<String>,
    /// Metrics by days since each user's first exposure.
    pub since: Vec<DaySince>,
}

/// One metric on one day of 24 hours since each user's first exposure, of users for whom that day is
/// over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DaySince {
    /// Index into the query's metrics.
    pub metric: usize,
    /// From 0.
    pub day: u32,
    /// As in the metric's group, without CUPED's.
    pub columns: Vec<usize>,
}

impl MomentsQuery {
    /// For another process of this version; `None` if it would read something else, as of a number that is none.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let bytes = serde_json::to_vec(self).ok()?;
        (Self::from_bytes(&bytes).as_ref() == Some(self)).then_some(bytes)
    }

    /// What [`Self::to_bytes`] wrote; `None` of anything else, and of a query whose numbers name what it does not have.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let query: Self = serde_json::from_slice(bytes).ok()?;
        query.is_consistent().then_some(query)
    }

    /// Do all numbers of columns, metrics, dimensions and steps name some?
    fn is_consistent(&self) -> bool {
        let (columns, metrics) = (self.columns.len(), self.metrics.len());
        let caps = self.columns.iter().filter_map(|column| match column.cap {
            Some(Cap::OfColumn(other)) => Some(other),
            _ => None,
        });
        let of_groups = self.groups.iter().flatten().copied();
        let of_since = self.since.iter().flat_map(|since| since.columns.iter().copied());
        let of_quantiles = self.quantiles.iter().map(|quantile| quantile.metric);
        let of_days = self.since.iter().map(|since| since.metric);
        let of_conversions = self.conversion_times.iter().map(|one| &one.column);
        let all_columns = self.columns.iter().chain(of_conversions);
        let mut steps = all_columns.filter_map(|column| match &column.aggregate {
            Aggregate::Steps { steps, reached } => Some((1..=steps.len()).contains(reached)),
            _ => None,
        });
        self.groups.len() == metrics
            && steps.all(|is_one| is_one)
            && caps.chain(of_groups).chain(of_since).all(|column| column < columns)
            && of_quantiles.chain(of_days).all(|metric| metric < metrics)
            && self.others.iter().all(|other| other.dimension < self.dimensions.len())
    }

    /// When after the exposure the window of a metric is over, milliseconds; `None`: it has no end.
    pub fn window_end_ms(&self, metric: usize) -> Option<i64> {
        self.figure(metric)?.window?.end_ms
    }

    /// The same, if users of whom it is not over are left out of the metric.
    pub fn complete_ms(&self, metric: usize) -> Option<i64> {
        self.figure(metric)?.complete_ms
    }

    /// Does it matter up to when the data are known?
    pub fn needs_end_of_data(&self) -> bool {
        let is_asked = |metric| self.window_end_ms(metric).is_some();
        (0..self.groups.len()).any(is_asked) || !self.since.is_empty()
    }

    /// The first column of a metric's figure.
    fn figure(&self, metric: usize) -> Option<&UserColumn> {
        let quantile = || self.quantiles.iter().find(|quantile| quantile.metric == metric);
        match self.groups[metric].first() {
            Some(column) => self.columns.get(*column),
            None => quantile().map(|quantile| &quantile.column),
        }
    }

    /// The tables it reads, each once.
    pub fn tables(&self) -> Vec<String> {
        let columns = self.columns.iter().filter(|column| column.aggregate != Aggregate::One);
        let columns = columns.chain(self.quantiles.iter().map(|quantile| &quantile.column));
        let mut tables = vec![self.exposures.table.clone()];
        tables.extend(self.user_rows().map(|rows| rows.table.clone()));
        tables.extend(self.others.iter().map(|other| other.exposures.table.clone()));
        tables.extend(columns.map(|column| column.table.clone()));
        tables.extend(self.paths.iter().map(|path| path.table.clone()));
        tables.sort();
        tables.dedup();
        tables
    }

    /// The same for some of the metrics, by their numbers, ascending; without paths.
    pub fn of_metrics(&self, metrics: &[usize]) -> Self {
        let mut columns: Vec<usize> =
            metrics.iter().flat_map(|metric| self.groups[*metric].iter().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        let group = |metric: &usize| {
            let places = self.groups[*metric].iter().map(|c| columns.binary_search(c));
            places.filter_map(Result::ok).collect()
        };
        let quantiles = self.quantiles.iter().filter_map(|quantile| {
            let metric = metrics.binary_search(&quantile.metric).ok()?;
            Some(QuantileQuery { metric, ..quantile.clone() })
        });
        Self {
            groups: metrics.iter().map(group).collect(),
            metrics: metrics.iter().map(|metric| self.metrics[*metric].clone()).collect(),
            quantiles: quantiles.collect(),
            paths: Vec::new(),
            since: Vec::new(),
            conversion_times: self
                .conversion_times
                .iter()
                .filter(|one| columns.iter().any(|column| self.columns[*column] == one.column))
                .cloned()
                .collect(),
            columns: columns.iter().map(|column| self.columns[*column].clone()).collect(),
            ..self.clone()
        }
    }

    /// Rows that say which of the exposed users count.
    fn user_rows(&self) -> impl Iterator<Item = &UserRows> {
        self.exposures.exclude.iter().chain(&self.exposures.activated_by)
    }

    /// Also tells apart what users are in another experiment: one more dimension, whose values are the
    /// names of its arms, [`SEVERAL_ARMS`], and [`NOT_THERE`] for users whom it does not have, or
    /// only in arms that it does not define.
    ///
    /// # Errors
    /// [`DefinitionError::NoUsers`] where either has no users, but regions or figures.
    pub fn tell_apart(&mut self, other: &Experiment) -> Result<(), DefinitionError> {
        for (unit, name) in [(&self.exposures.unit, None), (&other.exposures.unit, Some(other))] {
            if matches!(unit, Unit::Switchback { .. } | Unit::Summary { .. }) {
                let name = name.map_or("this experiment", |other| &other.name).to_owned();
                return Err(DefinitionError::NoUsers { name });
            }
        }
        let dimension = self.dimensions.len();
        self.dimensions.push(Dimension {
            name: format!("arm in {}", other.name),
            sql: format!("coalesce({}, '{NOT_THERE}')", Other::column(self.others.len())),
        });
        self.others.push(Other {
            dimension,
            name: other.name.clone(),
            exposures: other.exposures.clone(),
            variants: other.variants.clone(),
            period: other.period.clone(),
            time_zone: other.time_zone.clone(),
        });
        self.expressions.extend(of_other(other));
        Ok(())
    }
}

/// The value of users whom another experiment does not have.
pub const NOT_THERE: &str = "(not in it)";

/// The value of users who are in several arms of another experiment.
pub const SEVERAL_ARMS: &str = "(several)";

/// Another experiment that the same users may be in.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Other {
    /// Its place among the query's dimensions.
    pub dimension: usize,
    pub name: String,
    pub exposures: Exposures,
    pub variants: Vec<Variant>,
    pub period: Option<Period>,
    pub time_zone: String,
}

impl Other {
    /// The column with a user's arm in the other of this number, beside the exposures' own; NULL of
    /// users whom it does not have.
    pub fn column(number: usize) -> String {
        format!("__up_arm{number}")
    }
}

/// A number per exposed user: `aggregate` of `value` over the user's rows of `table` that pass
/// `filter` and lie in the window and the period. A user without such rows has 0.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct UserColumn {
    pub table: String,
    pub user: String,
    pub time: Option<String>,
    pub filter: Option<String>,
    pub value: String,
    pub aggregate: Aggregate,
    /// `None`: from first exposure to the end of the period.
    pub window: Option<Window>,
    /// The number is at most this.
    pub cap: Option<Cap>,
    /// What becomes of the number after its cap.
    pub transform: Option<Transform>,
    /// The number becomes 1 if it is at least this, otherwise 0.
    pub at_least: Option<f64>,
    /// Of users only whose first exposure (or activation) was so many milliseconds ago when the data end.
    pub complete_ms: Option<i64>,
    /// Counts from first exposure, although users are activated later.
    pub from_exposure: bool,
}

/// How a user's rows become one number.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Aggregate {
    /// Sum of the values; NULL adds nothing.
    Sum,
    /// 1 if any row has a value that is not NULL, false or 0; otherwise 0.
    Any,
    /// Number of different values that are not NULL.
    Distinct,
    /// Number of different local days of rows whose value is not NULL. Rows without time have no day.
    Days,
    /// The value of the first row by time, the least of several then; of rows without time, and of
    /// values that are NULL or not finite, none.
    First,
    /// Of the last row, the greatest of several then.
    Last,
    /// 1 if rows passed the first `reached` of these filters in this order, each no earlier than
    /// the one before and each by another row; otherwise 0.
    Steps { steps: Vec<String>, reached: usize },
    /// 1 for every user, whatever the rows: the number of users of a cluster.
    One,
    /// Given as a mean over users with this variance; without one, a share of users.
    Given { variance: Option<String> },
}

/// A quantile per cell: of the column's number per user (zeros included), or of its single values
/// that are not NULL.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct QuantileQuery {
    /// Index into the query's metrics.
    pub metric: usize,
    /// `Aggregate::Sum`; without cap.
    pub column: UserColumn,
    pub level: f64,
    /// Of single values, with users as clusters.
    pub per_row: bool,
}

/// How long users took from the first step of a funnel to the last.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ConversionQuery {
    pub funnel: String,
    /// `Aggregate::Steps` that all are reached: among the query's columns, too.
    pub column: UserColumn,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    const DEFINITION: &str = r#"
name = "t"
start = "2026-10-12"
end = "2026-11-09"
days_since_exposure = 3
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
[[metric]]
name = "median"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
[[metric]]
name = "way"
type = "funnel"
table = "events"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = "event = 'buy'" }]
"#;

    fn query() -> MomentsQuery {
        let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
        let mut query = plan(&experiment, &[], None).unwrap();
        query.tell_apart(&experiment).unwrap();
        query
    }

    #[test]
    fn a_query_arrives_as_it_was() {
        let asked = query();
        let bytes = asked.to_bytes().unwrap();
        assert_eq!(MomentsQuery::from_bytes(&bytes), Some(asked));
        assert_eq!(MomentsQuery::from_bytes(b"{}"), None);
        assert_eq!(MomentsQuery::from_bytes(&[&bytes, b"x".as_slice()].concat()), None);
    }

    #[test]
    fn numbers_that_name_what_is_not_there_are_refused() {
        let steps = |query: &mut MomentsQuery, reached: usize| {
            let mut columns = query.columns.iter_mut();
            let of_steps = columns.find_map(|column| match &mut column.aggregate {
                Aggregate::Steps { reached, .. } => Some(reached),
                _ => None,
            });
            *of_steps.unwrap() = reached;
        };
        let check = |what: &str, change: &dyn Fn(&mut MomentsQuery)| {
            let mut asked = query();
            change(&mut asked);
            assert_eq!(asked.to_bytes(), None, "{what}");
            let bytes = serde_json::to_vec(&asked).unwrap();
            assert_eq!(MomentsQuery::from_bytes(&bytes), None, "{what}");
        };
        check("a column of a metric", &|query| query.groups[0].push(usize::MAX));
        check("a metric without name", &|query| query.groups.push(Vec::new()));
        check("a quantile", &|query| query.quantiles[0].metric = 77);
        check("a cap", &|query| query.columns[0].cap = Some(Cap::OfColumn(77)));
        check("an arm elsewhere", &|query| query.others[0].dimension = query.dimensions.len());
        check("a metric by days", &|query| query.since[0].metric = usize::MAX);
        check("its column", &|query| query.since[0].columns.push(77));
        check("no step", &|query| steps(query, 0));
        check("a step", &|query| steps(query, 3));
    }
}
