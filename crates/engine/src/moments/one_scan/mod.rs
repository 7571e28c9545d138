//! Moments of several experiments from one scan of each table.
//!
//! ```text
//! exposures ─► per experiment: user ─► variant, first time, dimensions     (exposed)
//!                    └─► per id its experiments
//! each metric table, once ─► runs of rows of one user and day              (passes, runs)
//! runs by id ─► numbers per user and experiment ─► cells                   (users, collect)
//! ```
//!
//! Cost grows with rows, and with users in experiments; not with rows times metrics times experiments:
//! a run of rows is added up once, and only rows around a user's first exposure (or another bound that
//! lies within a run) are looked at for one experiment alone.
//!
//! # Invariants
//! - The answer is the SQL path's, byte for byte: the same sums in 106 bits, rounded at the same places.
//! - It is used where users are units with ids of one log in all tables of the experiment, and no
//!   metric counts different values or orders steps; everything else is answered by SQL.
//! - Memory is reserved before it is filled, batch by batch; if there is not enough, SQL answers.

mod exposed;
mod passes;
mod runs;
#[cfg(test)]
mod tests;
mod users;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::{Column, DataFusionError};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use futures::TryStreamExt;
use tokio::task::JoinSet;
use uplake_experiment::definition::Unit;
use uplake_experiment::query::{MomentsQuery, MomentsTable};

use super::collect::{Collect, Layout};
use super::sql::{Sql, USER, VARIANT};
use super::time::Times;
use crate::error::{EngineError, Result};
use crate::key_ids::with_ids;
use crate::session::Session;
use exposed::{Exposed, Members};
use passes::{Pass, passes};
use runs::{Found, Runs};
use users::{Scanned, Users};

/// Ids between two looks whether the report is still wanted.
const IDS_AT_A_TIME: usize = 1 << 12;

/// An experiment that can be answered with others.
pub(super) struct Question<'a> {
    pub query: &'a MomentsQuery,
    pub times: &'a Times,
    /// Per column the most a number can be.
    pub caps: Vec<f64>,
}

impl Session {
    /// The domain and log that all tables of a query have their users' ids from; `None` if it cannot be
    /// answered by [`Session::one_scan`].
    pub(super) async fn ids_for(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<Option<String>> {
        let sql = Sql::new(query, times)?;
        if !self.uses_indexes() || query.exposures.unit != Unit::User || !passes::is_possible(&sql)
        {
            return Ok(None);
        }
        let exposures = (&query.exposures.table, &query.exposures.user);
        let metrics = sql.sources.iter().map(|source| {
            let first = &query.columns[source.columns[0]];
            (&first.table, &first.user)
        });
        let mut same: Option<String> = None;
        for (table, user) in std::iter::once(exposures).chain(metrics) {
            let Some(found) = self.catalog.find(table).await? else { return Ok(None) };
            let snapshot = found.snapshot();
            let column = snapshot.id_domains().iter().map(|spec| spec.column.as_str());
            let column = { column }.find(|column| column.eq_ignore_ascii_case(user));
            let Some(source) = column.and_then(|column| snapshot.ids_of(column)) else {
                return Ok(None);
            };
            if same.get_or_insert_with(|| source.to_owned()) != source {
                return Ok(None);
            }
        }
        Ok(same)
    }

    /// Answers questions whose ids are from one log; `None` if a plan turns out to have no ids after
    /// all, or there is too much to tell apart.
    ///
    /// # Errors
    /// [`EngineError::Limit`] if it does not fit into memory, and whatever the tables say.
    pub(super) async fn one_scan(
        &self,
        questions: &[Question<'_>],
    ) -> Result<Option<Vec<MomentsTable>>> {
        let sql: Vec<Sql<'_>> =
            questions.iter().map(|q| Sql::new(q.query, q.times)).collect::<Result<_>>()?;
        let Some(passes) = passes(&sql) else { return Ok(None) };
        let layouts: Vec<Arc<Layout>> = sql
            .iter()
            .zip(questions)
            .map(|(sql, question)| Arc::new(Layout::new(sql, question.caps.clone())))
            .collect();
        let memory = self.memory("exposed users");
        let mut exposed = Vec::with_capacity(sql.len());
        for (sql, layout) in sql.iter().zip(&layouts) {
            let Some(found) = self.exposed(sql, layout).await? else { return Ok(None) };
            reserve(&memory, memory.size() + found.bytes())?;
            exposed.push(found);
        }
        let members = Arc::new(Members::of(&exposed));
        let users: usize = exposed.iter().map(Exposed::bytes).sum();
        reserve(&memory, users + members.bytes())?;
        let mut found = Vec::with_capacity(passes.len());
        let mut held = Vec::with_capacity(passes.len());
        for pass in passes {
            let Some((runs, memory)) = self.scan(Arc::new(pass), &members).await? else {
                return Ok(None);
            };
            found.push(runs);
            held.push(memory);
        }
        let scanned = Scanned { layouts, exposed, members, passes: found };
        Ok(Some(self.count_users(Arc::new(scanned)).await?))
    }

    fn memory(&self, name: &str) -> MemoryReservation {
        let pool = &self.context.runtime_env().memory_pool;
        MemoryConsumer::new(name).register(pool)
    }

    /// The users of an experiment.
    async fn exposed(&self, sql: &Sql<'_>, layout: &Arc<Layout>) -> Result<Option<Exposed>> {
        let plan = self.definition_plan(&sql.exposure_rows()).await?;
        let wanted: Vec<Column> = plan.schema().columns().into_iter().skip(1).collect();
        debug_assert_eq!(wanted.first().map(|c| c.name.as_str()), Some(VARIANT));
        let key = layout.query.assignment.is_some();
        let Some(plan) = ids_first(plan, wanted, key)? else { return Ok(None) };
        let exposed = Arc::new(Mutex::new(Exposed::new(layout)));
        let mut tasks = JoinSet::new();
        for mut stream in self.run_partitions(&plan, false).await? {
            let (exposed, layout) = (Arc::clone(&exposed), Arc::clone(layout));
            tasks.spawn(async move {
                while let Some(batch) = stream.try_next().await? {
                    let mut exposed = exposed.lock().unwrap_or_else(PoisonError::into_inner);
                    exposed.add(&batch, &layout)?;
                }
                Ok::<_, EngineError>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            joined(done)?;
        }
        let exposed = std::mem::replace(
            &mut *exposed.lock().unwrap_or_else(PoisonError::into_inner),
            Exposed::new(layout),
        );
        Ok(Some(exposed.finished()))
    }

    /// The runs of a pass, and the memory they are in.
    async fn scan(
        &self,
        pass: Arc<Pass>,
        members: &Arc<Members>,
    ) -> Result<Option<((Arc<Pass>, Found), Vec<MemoryReservation>)>> {
        let plan = self.definition_plan(&pass.sql()).await?;
        let wanted = plan.schema().columns().into_iter().skip(1).collect();
        let Some(plan) = ids_first(plan, wanted, false)? else { return Ok(None) };
        let mut tasks = JoinSet::new();
        for (number, stream) in self.run_partitions(&plan, false).await?.into_iter().enumerate() {
            let runs = Runs::new(Arc::clone(&pass), Arc::clone(members));
            let memory = self.memory("runs of rows");
            tasks.spawn(async move { Ok((number, find_runs(stream, runs, memory).await?)) });
        }
        let mut parts = Vec::with_capacity(tasks.len());
        while let Some(part) = tasks.join_next().await {
            parts.push(joined(part)?);
        }
        parts.sort_by_key(|(number, _)| *number);
        let (parts, mut memory): (Vec<Runs>, Vec<_>) =
            parts.into_iter().map(|(_, part)| part).unzip();
        let order = self.memory("runs of rows");
        reserve(&order, 2 * size_of::<u32>() * (members.ids() + members.members.len()))?;
        memory.push(order);
        Ok(Found::of(parts, members).map(|found| ((pass, found), memory)))
    }

    /// Cells of all users, counted by as many tasks as there are threads.
    async fn count_users(&self, scanned: Arc<Scanned>) -> Result<Vec<MomentsTable>> {
        let mut tasks = JoinSet::new();
        for (number, ids) in parts(&scanned.members, self.budget.threads).into_iter().enumerate() {
            let mut users = Users::new(Arc::clone(&scanned));
            tasks.spawn(async move {
                for from in ids.clone().step_by(IDS_AT_A_TIME) {
                    users.add(from..ids.end.min(from + IDS_AT_A_TIME))?;
                    tokio::task::yield_now().await;
                }
                Ok((number, users.collects))
            });
        }
        let mut parts = Vec::with_capacity(tasks.len());
        while let Some(part) = tasks.join_next().await {
            parts.push(joined(part)?);
        }
        parts.sort_by_key(|(number, _)| *number);
        let mut whole: Vec<Collect> =
            scanned.layouts.iter().map(|layout| Collect::new(Arc::clone(layout))).collect();
        for (_, part) in parts {
            for (whole, part) in whole.iter_mut().zip(part) {
                whole.merge(part)?;
            }
        }
        whole.into_iter().map(Collect::finish).collect()
    }
}

async fn find_runs(
    mut stream: SendableRecordBatchStream,
    mut runs: Runs,
    memory: MemoryReservation,
) -> Result<(Runs, MemoryReservation)> {
    while let Some(batch) = stream.try_next().await? {
        runs.add(&batch)?;
        reserve(&memory, runs.bytes())?;
    }
    Ok((runs, memory))
}

/// Ranges of ids with about as many members each.
fn parts(members: &Members, count: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::with_capacity(count);
    let mut from = 0;
    for part in 1..=count {
        let end = match part == count {
            true => members.ids(),
            false => members.id_at(members.members.len() * part / count).max(from),
        };
        parts.push(from..end);
        from = end;
    }
    parts
}

/// A plan of which the first column is a key, as a plan with the key's ids first, then `wanted`, and the
/// key last if it is `with_key`.
fn ids_first(
    plan: LogicalPlan,
    wanted: Vec<Column>,
    with_key: bool,
) -> Result<Option<LogicalPlan>> {
    let key = Column::from(plan.schema().qualified_field(0));
    debug_assert_eq!(key.name, USER);
    let Some(found) = with_ids(&plan, &key)? else { return Ok(None) };
    let mut columns = vec![Expr::Column(found.ids)];
    columns.extend(wanted.into_iter().map(Expr::Column));
    columns.extend(with_key.then_some(Expr::Column(key)));
    Ok(Some(LogicalPlanBuilder::from(found.plan).project(columns)?.build()?))
}

fn reserve(memory: &MemoryReservation, bytes: usize) -> Result<()> {
    Ok(memory.try_resize(bytes)?)
}

fn joined<T>(done: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.map_err(|e| EngineError::from(DataFusionError::External(Box::new(e))))?
}
