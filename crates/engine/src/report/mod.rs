//! A [`MomentsQuery`] answered: in one scan where users are the units ([`one_scan`]), otherwise with SQL.
//!
//! ```text
//! exposures ─► one row per user: arm, first time, dimensions ─┐
//! each metric table ─► one row per user: its numbers ─────────┴─► LEFT JOIN ─► Moments per cell
//! ```
//!
//! `sql` writes the statement, `decode` reads its rows, `collect` makes cells of them, and `ranked`
//! finds caps and quantiles by sorting, `paths`
//! sequences of events.
//!
//! # Invariants
//! - A user is in one arm or in none: users seen in several are counted and left out.
//! - An exposed user without events has zeros, and counts.
//! - Per-user sums are order-free (`exact_sum`) and moments are compensated, so the same snapshot gives
//!   the same bytes whatever the number of threads.
//! - With SQL, what is held in memory outside DataFusion's operators is cells, and one user or cluster.

mod cells;
mod collect;
mod collect_bytes;
mod complete;
mod decode;
mod end_of_data;
mod expressions;
mod left_out;
mod one_scan;
mod paths;
mod ranked;
mod sql;
mod summary;
mod time;
mod user_row;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::runtime::JoinSet;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;
use uplake_experiment::definition::{Cap, Unit};
use uplake_experiment::query::{Cell, MomentsQuery, MomentsTable};
use uplake_experiment::{OTHERS, visible};
use uplake_table::check_table_name;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::sql::statement::{self, Statement};
use crate::sql::words::split_version;
use cells::Layout;
use collect::Collect;
use one_scan::{KeyKind, NotScanned, ScanQuery};
use sql::Sql;
use time::Times;

impl Session {
    /// [`Session::moments_together`] now, whoever else computes.
    pub(crate) async fn moments_now(&self, queries: &[&MomentsQuery]) -> Vec<Result<MomentsTable>> {
        if let Err(error) = self.must_be_unguarded("reports") {
            return queries.iter().map(|_| Err(error.copy())).collect();
        }
        let mut answers: Vec<Option<Result<MomentsTable>>> = Vec::new();
        // By what users are told apart by, the queries that can share a scan.
        let mut together: BTreeMap<KeyKind, Vec<(usize, Times)>> = BTreeMap::new();
        for (number, query) in queries.iter().enumerate() {
            answers.push(None);
            let times = match self.refuse(query) {
                Ok(()) => self.times(query).await,
                Err(error) => Err(error),
            };
            let kind = match &times {
                Ok(times) => self.key_kind(query, times).await,
                Err(_) => Ok(None),
            };
            match (times, kind) {
                (Ok(times), Ok(Some(kind))) => {
                    together.entry(kind).or_default().push((number, times));
                }
                (Err(error), _) | (_, Err(error)) => answers[number] = Some(Err(error)),
                (Ok(_), Ok(None)) => {}
            }
        }
        // Of which nothing else is to be tried.
        let mut lost: BTreeMap<usize, EngineError> = BTreeMap::new();
        let mut groups: Vec<_> = together.into_iter().collect();
        while let Some((kind, mut asked)) = groups.pop() {
            match self.scan_together(&kind, queries, &asked, &mut answers).await {
                Ok(found) => found.into_iter().for_each(|(number, table)| {
                    answers[number] = Some(Ok(table));
                }),
                Err(NotScanned::Lost(error)) => {
                    let unanswered = asked.iter().map(|(number, _)| *number);
                    let unanswered = unanswered.filter(|number| answers[*number].is_none());
                    lost.extend(unanswered.map(|number| (number, error.copy())));
                }
                // Half of them need less memory, and one that fails keeps fewer others back.
                Err(NotScanned::Failed(_)) if asked.len() > 1 => {
                    let rest = asked.split_off(asked.len() / 2);
                    groups.extend([(kind.clone(), rest), (kind, asked)]);
                }
                // SQL can spill, and says what is wrong.
                Err(NotScanned::Failed(_)) => {}
            }
        }
        let mut all = Vec::with_capacity(queries.len());
        for (number, (answer, query)) in answers.into_iter().zip(queries).enumerate() {
            if let Some(error) = lost.remove(&number) {
                all.push(Err(error));
                continue;
            }
            let answer = match answer {
                Some(answer) => answer,
                None => self.moments_by_sql(query).await,
            };
            all.push(match answer {
                Err(error) => Err(self.explained(query, error).await),
                found => found,
            });
        }
        all
    }

    /// # Errors
    /// [`EngineError::Report`] for what is no expression about one row, and for files: definitions lie in
    /// the lake for everyone, and whoever asks for a report has not asked for files of his own to be read.
    fn refuse(&self, query: &MomentsQuery) -> Result<()> {
        self.check_expressions(query)?;
        let is_file = |name: &&str| check_table_name(split_version(name).0).is_err();
        match self.tables_in(query)?.iter().map(TableReference::table).find(is_file) {
            Some(file) => {
                let message = format!("a definition may not read the file '{file}'");
                Err(EngineError::report(SqlState::InsufficientPrivilege, message)
                    .with_hint("load it into a table first"))
            }
            None => Ok(()),
        }
    }

    /// What expressions of a definition read beside its tables: subqueries do.
    fn tables_in(&self, query: &MomentsQuery) -> Result<Vec<TableReference>> {
        // A table and a file are named after FROM.
        let has_query = |text: &&str| text.to_ascii_lowercase().contains("from");
        let expressions = query.expressions.iter().map(|expression| expression.sql.as_str());
        let mut tables = Vec::new();
        for text in expressions.filter(has_query) {
            for statement in &statement::parse(&format!("SELECT {text}"))? {
                tables.extend(self.references(&statement.parsed)?);
            }
        }
        Ok(tables)
    }

    /// Answers the queries `asked` of `queries` in one scan, or none of them if that cannot be. A query
    /// whose caps or quantiles cannot be found has its error among the `answers`.
    async fn scan_together(
        &self,
        kind: &KeyKind,
        queries: &[&MomentsQuery],
        asked: &[(usize, Times)],
        answers: &mut [Option<Result<MomentsTable>>],
    ) -> Result<Vec<(usize, MomentsTable)>, NotScanned> {
        let mut numbers = Vec::with_capacity(asked.len());
        let mut questions = Vec::with_capacity(asked.len());
        for (number, times) in asked {
            match self.find_caps(queries[*number], times).await {
                Ok(found) => {
                    let caps = caps(queries[*number], &found);
                    questions.push(ScanQuery { query: queries[*number], times, caps });
                    numbers.push((*number, found));
                }
                Err(error) => answers[*number] = Some(Err(error)),
            }
        }
        let tables = self.one_scan(kind, &questions).await?.unwrap_or_default();
        let mut all = Vec::with_capacity(tables.len());
        for (((number, caps), mut table), question) in
            numbers.into_iter().zip(tables).zip(questions)
        {
            table.caps = caps;
            match self.find_rest(question.query, question.times, &mut table).await {
                Ok(()) => all.push((number, table)),
                Err(error) => answers[number] = Some(Err(error)),
            }
        }
        Ok(all)
    }

    async fn moments_by_sql(&self, query: &MomentsQuery) -> Result<MomentsTable> {
        let times = self.times(query).await?;
        if matches!(query.exposures.unit, Unit::Summary { .. }) {
            let mut table = self.summary(query, &times).await?;
            self.explain_nothing(query, &mut table).await?;
            return Ok(table);
        }
        let sql = Sql::new(query, &times)?;
        let (text, found) = (sql.per_user(), self.find_caps(query, &times).await?);
        let layout = Arc::new(Layout::new(&sql, caps(query, &found)));
        let mut table = self.collect(&text, &layout).await?.finish()?;
        if let Some(of_others) = Layout::of_others(&sql, caps(query, &found), &table.cells) {
            let others = self.collect(&text, &Arc::new(of_others)).await?.finish()?.cells;
            let is_other = |cell: &Cell| cell.slice.as_ref().is_some_and(|(_, v)| v == OTHERS);
            table.others = others.into_iter().filter(is_other).collect();
        }
        table.caps = found;
        table.left_out = self.left_out_by_sql(&sql).await?;
        self.find_rest(query, &times, &mut table).await?;
        Ok(table)
    }

    /// What has statements of its own beside those of the cells.
    async fn find_rest(
        &self,
        query: &MomentsQuery,
        times: &Times,
        table: &mut MomentsTable,
    ) -> Result<()> {
        table.quantiles = self.find_quantiles(query, times, table).await?;
        table.paths = self.find_paths(query, times).await?;
        table.conversion_times = self.find_conversion_times(query, times).await?;
        self.explain_nothing(query, table).await
    }

    /// SQL that says what [`Session::moments`] answers, for people who want to see or check it.
    ///
    /// # Errors
    /// As [`Session::moments`] for expressions, the time zone, the period and up to when the data are known.
    pub async fn moments_sql(&self, query: &MomentsQuery) -> Result<String> {
        self.check_expressions(query)?;
        let statements = match &query.exposures.unit {
            Unit::Summary { .. } => summary::summary_sql(query),
            _ => {
                let times = self.times(query).await?;
                let mut statements = ranked::caps_sql(query, &times)?;
                let main = Sql::new(query, &times)?.per_user();
                let comment = "Per exposed user: arm, time and the numbers of the metrics";
                statements.push((comment.into(), main));
                statements.extend(ranked::quantiles_sql(query, &times)?);
                statements.extend(paths::paths_sql(query, &times)?);
                statements
            }
        };
        if let [(_, only)] = statements.as_slice() {
            return Ok(only.clone());
        }
        // A name with a line's end would go on as SQL.
        let with_comment =
            |(comment, text): &(String, String)| format!("-- {}.\n{text};", visible(comment));
        let texts: Vec<String> = statements.iter().map(with_comment).collect();
        Ok(texts.join("\n\n"))
    }

    /// Runs the statement per user, a thread per partition.
    async fn collect(&self, text: &str, layout: &Arc<Layout>) -> Result<Collect> {
        let plan = self.definition_plan(text).await?;
        gather(self.run_partitions(&plan).await?, layout).await
    }

    /// Rows of a generated statement.
    async fn definition_rows(&self, text: &str) -> Result<SendableRecordBatchStream> {
        let plan = self.definition_plan(text).await?;
        self.run_query(plan).await
    }

    async fn definition_plan(&self, text: &str) -> Result<LogicalPlan> {
        let planned = async { self.plan(&only_statement(text)?).await };
        planned.await.map_err(|error| near(error, text))
    }

    /// The same before the sets of ids and the domains that it names are looked at.
    async fn definition_as_written(&self, text: &str) -> Result<LogicalPlan> {
        let planned = async { self.parsed_plan(&only_statement(text)?).await };
        planned.await.map_err(|error| near(error, text))
    }
}

fn only_statement(text: &str) -> Result<Statement> {
    let parsed = statement::parse(text)?;
    <[Statement; 1]>::try_from(parsed).map(|[only]| only).map_err(|_| {
        let message = "an expression of the definition holds a semicolon";
        EngineError::statement(SqlState::SyntaxError, message)
    })
}

/// Per column the most a number can be.
fn caps(query: &MomentsQuery, found: &[(usize, f64)]) -> Vec<f64> {
    let found = |number: usize| {
        let cap = found.iter().find(|(column, _)| *column == number);
        cap.map_or(f64::INFINITY, |(_, cap)| *cap)
    };
    let of = |(number, cap): (usize, &Option<Cap>)| match cap {
        Some(Cap::Value(cap)) => *cap,
        Some(Cap::Quantile { .. }) => found(number),
        Some(Cap::OfColumn(other)) => found(*other),
        None => f64::INFINITY,
    };
    query.columns.iter().map(|column| &column.cap).enumerate().map(of).collect()
}

/// Collects every stream on its own task. Dropping this drops the tasks.
async fn gather(streams: Vec<SendableRecordBatchStream>, layout: &Arc<Layout>) -> Result<Collect> {
    let mut tasks = JoinSet::new();
    for (number, mut stream) in streams.into_iter().enumerate() {
        let mut collect = Collect::new(Arc::clone(layout));
        tasks.spawn(async move {
            while let Some(batch) = stream.try_next().await? {
                collect.add(&batch)?;
            }
            Ok::<_, EngineError>((number, collect))
        });
    }
    let mut parts = Vec::with_capacity(tasks.len());
    while let Some(part) = tasks.join_next().await {
        parts.push(part.map_err(|e| EngineError::bug(e.to_string()))??);
    }
    parts.sort_by_key(|(number, _)| *number);
    let mut whole = Collect::new(Arc::clone(layout));
    for (_, part) in parts {
        whole.merge(part)?;
    }
    Ok(whole)
}

/// A place in generated SQL means nothing to the reader of a definition; the text there does.
fn near(error: EngineError, sql: &str) -> EngineError {
    match error {
        EngineError::Statement(problem) => {
            let near = problem.position.and_then(|p| {
                let line = sql.lines().nth(p.line.saturating_sub(1) as usize)?;
                let start = line.char_indices().nth(p.column.saturating_sub(1) as usize)?.0;
                Some(format!(" (near `{}`)", line[start..].chars().take(40).collect::<String>()))
            });
            EngineError::statement(problem.code, format!("{problem}{}", near.unwrap_or_default()))
        }
        other => other,
    }
}
