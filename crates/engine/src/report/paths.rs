//! Sequences of events from one to another, and how long funnels take: a statement each, beside that of the
//! numbers per user.
//!
//! ```text
//! a path's table ─► JOIN exposed ─► GROUP BY user ─► event_path ─► GROUP BY sequence ─► users per arm
//! a funnel's table ─► JOIN exposed ─► GROUP BY user ─► funnel ─► GROUP BY arm ─► quantiles of seconds
//! ```
//!
//! # Invariants
//! - Rows count from the first exposure, or the activation, to the end of the period, of users in one arm.
//! - What a report tells of sequences is counted as rows come ([`Tally`]); they are grouped by DataFusion,
//!   which spills.

use std::fmt::Write;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use futures::TryStreamExt;
use uplake_experiment::definition::Path;
use uplake_experiment::paths::{ConversionTime, PathTable, Sequence, Tally};
use uplake_experiment::query::{Aggregate, ConversionQuery, MomentsQuery, UserColumn};

use super::decode::{doubles, text};
use super::ranked::only;
use super::sql::{Sql, TIME, USER, VARIANT, text_literal};
use super::time::Times;
use crate::base::error::{EngineError, Result};
use crate::engine::session::Session;

/// In place of no end: longer than any period.
const A_HUNDRED_YEARS: &str = "36500 days";

impl Session {
    /// One answer per path of the query.
    pub(super) async fn find_paths(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<Vec<PathTable>> {
        let mut found = Vec::with_capacity(query.paths.len());
        for path in &query.paths {
            let mut tally = Tally::new(path, query.variants.len());
            let mut rows = self.definition_rows(&path_statement(query, times, path)?).await?;
            while let Some(batch) = rows.try_next().await? {
                sequences(&batch)?.into_iter().for_each(|sequence| tally.add(sequence));
            }
            found.push(tally.finish());
        }
        Ok(found)
    }

    /// Per conversion time of the query, one of each arm.
    pub(super) async fn find_conversion_times(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<Vec<Vec<ConversionTime>>> {
        let mut found = Vec::with_capacity(query.conversion_times.len());
        for asked in &query.conversion_times {
            let mut of_arms = vec![ConversionTime::default(); query.variants.len()];
            let mut rows =
                self.definition_rows(&conversion_statement(query, times, asked)?).await?;
            while let Some(batch) = rows.try_next().await? {
                let names = text(batch.column(0))?;
                let numbers =
                    (1..4).map(|i| doubles(batch.column(i))).collect::<Result<Vec<_>>>()?;
                for (row, name) in names.iter().enumerate() {
                    let arms = query.variants.iter().zip(&mut of_arms);
                    for (_, time) in arms.filter(|(arm, _)| Some(arm.value.as_str()) == name) {
                        let number = |i: usize| numbers[i].value(row);
                        *time = ConversionTime {
                            users: number(0) as u64,
                            median: Some(number(1)),
                            p90: Some(number(2)),
                        };
                    }
                }
            }
            found.push(of_arms);
        }
        Ok(found)
    }
}

/// Comment and text of every statement.
pub(super) fn paths_sql(query: &MomentsQuery, times: &Times) -> Result<Vec<(String, String)>> {
    let mut statements = Vec::new();
    for path in &query.paths {
        let comment = format!("Sequences of events of the path `{}`, users per arm", path.name);
        statements.push((comment, path_statement(query, times, path)?));
    }
    for asked in &query.conversion_times {
        let comment = format!(
            "Seconds from the first step of the funnel `{}` to the last: users, median and 90 %",
            asked.funnel
        );
        statements.push((comment, conversion_statement(query, times, asked)?));
    }
    Ok(statements)
}

/// The rows of a path's table that may count, as those of a number per user.
fn rows_of(path: &Path) -> UserColumn {
    UserColumn {
        table: path.table.clone(),
        user: path.user.clone(),
        time: Some(path.time.clone()),
        filter: path.filter.clone(),
        value: "1".into(),
        aggregate: Aggregate::Sum,
        window: None,
        cap: None,
        transform: None,
        at_least: None,
        complete_ms: None,
        from_exposure: false,
    }
}

/// The same users, not told apart, with one number.
fn of_everybody(query: &MomentsQuery, column: UserColumn) -> MomentsQuery {
    let (dimensions, others) = (Vec::new(), Vec::new());
    MomentsQuery { dimensions, others, ..only(query, vec![column]) }
}

fn path_statement(query: &MomentsQuery, times: &Times, path: &Path) -> Result<String> {
    let column = rows_of(path);
    let query = of_everybody(query, column.clone());
    let times = Times { days: None, ..times.clone() };
    let sql = Sql::new(&query, &times)?;
    let values = format!(
        ",\n    CAST({} AS VARCHAR) AS event, ({}) AS starts, ({}) AS ends",
        path.event, path.from, path.to
    );
    let within =
        path.within_ms.map_or_else(|| A_HUNDRED_YEARS.into(), |ms| format!("{ms} milliseconds"));
    let mode = if path.collapse_repeats { ", 'collapse_repeats'" } else { "" };
    let mut conditions = sql.in_one_arm("exposed");
    if let Some(window) = sql.window_condition(&column) {
        let _ = write!(conditions, " AND {window}");
    }
    let mut users = String::new();
    for (number, variant) in query.variants.iter().enumerate() {
        let value = text_literal(&variant.value);
        let _ = write!(
            users,
            ",\n  CAST(count(*) FILTER (WHERE {VARIANT} = {value}) AS DOUBLE) AS users{number}"
        );
    }
    Ok(format!(
        "WITH exposed AS (\n{}\n),\npaths AS (\n  SELECT x.{USER}, exposed.{VARIANT},\n    \
         event_path(INTERVAL '{within}', {}{mode}, x.{TIME}, x.event, x.starts, x.ends) AS path\n  \
         FROM {}\n  WHERE {conditions}\n  GROUP BY x.{USER}, exposed.{VARIANT}\n),\n\
         sequences AS (\n  SELECT {VARIANT}, path['events'] AS events, path['reached'] AS reached, \
         path['truncated'] AS truncated\n  FROM paths WHERE path IS NOT NULL\n)\n\
         SELECT events, reached, truncated{users}\nFROM sequences\n\
         GROUP BY events, reached, truncated",
        sql.exposed(),
        path.steps,
        sql.joined(&column, &[&column], &values),
    ))
}

fn sequences(batch: &RecordBatch) -> Result<Vec<Sequence>> {
    let Some(lists) = batch.column(0).as_list_opt::<i32>() else {
        return Err(EngineError::bug("the events of a path are no list"));
    };
    let names = text(lists.values())?;
    let (reached, truncated) = (batch.column(1).as_boolean(), batch.column(2).as_boolean());
    let users = batch.columns()[3..].iter().map(doubles).collect::<Result<Vec<_>>>()?;
    let one = |row: usize| {
        let places = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
        Sequence {
            events: places.map(|place| names.value(place).to_owned()).collect(),
            reached: reached.value(row),
            truncated: truncated.value(row),
            users: users.iter().map(|users| users.value(row) as u64).collect(),
        }
    };
    Ok((0..lists.len()).map(one).collect())
}

fn conversion_statement(
    query: &MomentsQuery,
    times: &Times,
    asked: &ConversionQuery,
) -> Result<String> {
    let Aggregate::Steps { steps, .. } = &asked.column.aggregate else {
        return Err(EngineError::bug("a conversion time is of no funnel"));
    };
    let query = of_everybody(query, asked.column.clone());
    let times = Times { days: None, ..times.clone() };
    let sql = Sql::new(&query, &times)?;
    let mut users = sql.in_one_arm("e");
    if let Some(complete) = sql.is_complete(&asked.column, "e") {
        let _ = write!(users, " AND {complete}");
    }
    let last = steps.len();
    let micros = |step: usize| format!("arrow_cast(m0.c0[{step}], 'Int64')");
    let quantile =
        |level: &str| format!("percentile_cont({level}) WITHIN GROUP (ORDER BY f.seconds)");
    Ok(format!(
        "{}\nSELECT e.{VARIANT} AS variant, CAST(count(*) AS DOUBLE) AS users, {} AS median, \
         {} AS p90\nFROM exposed e JOIN (\n  SELECT {USER}, \
         CAST({} - {} AS DOUBLE) / 1000000 AS seconds\n  FROM m0 WHERE m0.c0[{last}] IS NOT NULL\n\
         ) f ON f.{USER} = e.{USER}\nWHERE {}\nGROUP BY e.{VARIANT}",
        sql.tables(),
        quantile("0.5"),
        quantile("0.9"),
        micros(last),
        micros(1),
        users,
    ))
}
