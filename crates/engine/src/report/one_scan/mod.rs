//! Moments of several experiments from one scan of each table.
//!
//! ```text
//! exposures ─► per experiment: user ─► variant, first time, dimensions     (keys, exposed)
//!                    └─► per user the experiments
//! each metric table, once ─► runs of rows of one user and day              (passes, runs)
//! funnels and distinct counts, by SQL ─► a row per user                    (aside)
//! all by user ─► numbers per user and experiment ─► cells                  (users, collect)
//! ```
//!
//! Cost grows with rows, and with users in experiments; not with rows times metrics times experiments:
//! a run of rows is added up once.
//!
//! # Invariants
//! - The answer is the SQL path's, byte for byte: the same sums in 106 bits, rounded at the same places.
//! - It is used where users are units that count from first exposure, and ids of one log, text or whole
//!   numbers in all tables of the experiment; everything else is answered by SQL.
//! - Memory is reserved batch by batch; if there is not enough, SQL answers, which can spill.

mod aside;
mod exposed;
mod in_parts;
mod keys;
mod passes;
mod remembered;
mod runs;
#[cfg(test)]
mod tests;
mod users;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::{Column, DataFusionError};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use futures::{FutureExt, StreamExt, TryStreamExt};
use uplake_experiment::definition::Unit;
use uplake_experiment::query::{MomentsQuery, MomentsTable};

use super::cells::Layout;
use super::collect::Collect;
use super::collect_bytes;
use super::sql::{Source, Sql};
use super::time::Times;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::{ErrorKind, SqlState};
use crate::engine::catalog::with_table;
use crate::engine::session::Session;
use crate::optimizer::id_rewrite::key_ids::with_ids;
use crate::portable::bytes::{Reader, Writer};
use crate::portable::elsewhere::Share;
use crate::portable::share::condition_of;
use aside::Aside;
use exposed::{Exposed, Members};

pub(super) use keys::KeyKind;
use keys::Keys;
use passes::{Pass, passes};
use remembered::ByFile;
use runs::{Found, Runs};
use users::{Scanned, Users};

/// The key as text, in plans.
const KEY_TEXT: &str = "__up_key";
/// Ids that a thread takes at a time.
const IDS_AT_A_TIME: usize = 1 << 12;
/// Experiments whose users are looked for at once: while one waits for its plan or its last part,
/// another keeps a thread busy.
const EXPERIMENTS_A_THREAD: usize = 2;

/// An experiment that can be answered with others.
pub(super) struct ScanQuery<'a> {
    pub query: &'a MomentsQuery,
    pub times: &'a Times,
    /// Per column the most a number can be.
    pub caps: Vec<f64>,
}

impl Session {
    /// What the users of a query are told apart by; `None` if it cannot be answered by
    /// [`Session::one_scan`].
    ///
    /// # Errors
    /// Those of a definition that does not fit the tables.
    pub(super) async fn key_kind(
        &self,
        query: &MomentsQuery,
        times: &Times,
    ) -> Result<Option<KeyKind>> {
        // A run of rows ends where rows begin to count for a user, and that is one time per user here; with
        // an activation there are two, first exposure and that, and SQL answers.
        let is_plain = query.exposures.unit == Unit::User && query.exposures.activated_by.is_none();
        if !self.is_on("one_scan") || !is_plain {
            return Ok(None);
        }
        let sql = Sql::new(query, times)?;
        let exposures = self.definition_plan(&sql.exposure_rows()).await?;
        for pass in passes(std::slice::from_ref(&sql)).unwrap_or_default() {
            self.definition_plan(&pass.sql()).await?;
        }
        Ok(match self.ids_of_users(&sql).await? {
            Some(source) => Some(KeyKind::Ids(source)),
            None => KeyKind::of(exposures.schema().field(0).data_type()),
        })
    }

    /// The domain and log that all tables of a query have their users' ids from.
    async fn ids_of_users(&self, sql: &Sql<'_>) -> Result<Option<String>> {
        let exposures = (&sql.query.exposures.table, &sql.query.exposures.user);
        let metrics = sql.sources.iter().map(|source| {
            let first = &sql.query.columns[source.columns[0]];
            (&first.table, &first.user)
        });
        let mut same: Option<String> = None;
        for (table, user) in std::iter::once(exposures).chain(metrics) {
            let Some(found) = self.catalog.find(table).await? else { return Ok(None) };
            let snapshot = found.snapshot();
            let mut columns = snapshot.id_domains().iter().map(|spec| spec.column.as_str());
            let column = columns.find(|column| column.eq_ignore_ascii_case(user));
            let Some(source) = column.and_then(|column| snapshot.ids_of(column)) else {
                return Ok(None);
            };
            if same.get_or_insert_with(|| source.to_owned()) != source {
                return Ok(None);
            }
        }
        Ok(same)
    }

    /// Answers questions whose users are told apart by the same; `None` if a table's are not after all,
    /// or there is too much to tell apart.
    ///
    /// # Errors
    /// [`EngineError::Limit`] if it does not fit into memory, and whatever the tables say.
    pub(super) async fn one_scan(
        &self,
        kind: &KeyKind,
        questions: &[ScanQuery<'_>],
    ) -> Result<Option<Vec<MomentsTable>>, NotScanned> {
        let counted = match self.report_in_parts(kind, questions).await? {
            Some(parts) => {
                Box::pin(self.of_parts(questions, parts)).await.map_err(NotScanned::in_parts)?
            }
            None => Box::pin(self.one_part(kind, questions, None)).await?,
        };
        let tables = counted.map(|all| all.into_iter().map(Counted::finish).collect());
        Ok(tables.transpose()?)
    }

    /// Cells of the users of a share, or of all.
    async fn one_part(
        &self,
        kind: &KeyKind,
        questions: &[ScanQuery<'_>],
        share: Option<&Share>,
    ) -> Result<Option<Vec<Counted>>> {
        let kind = &Divided { kind, share };
        let sql: Vec<Sql<'_>> =
            questions.iter().map(|q| Sql::new(q.query, q.times)).collect::<Result<_>>()?;
        let Some(passes) = passes(&sql) else { return Ok(None) };
        let layouts: Vec<Arc<Layout>> = sql
            .iter()
            .zip(questions)
            .map(|(sql, question)| Arc::new(Layout::new(sql, question.caps.clone())))
            .collect();
        let keys = Arc::new(SharedKeys::new(Keys::new(kind.kind), self.memory("users' keys")));
        let asked = sql.iter().zip(&layouts);
        // Begun when they are polled. In a list, because what makes them is no part of this future then.
        let asked: Vec<_> =
            asked.map(|(sql, layout)| self.exposed(kind, &keys, sql, layout).boxed()).collect();
        let mut asked = futures::stream::iter(asked)
            .buffered(EXPERIMENTS_A_THREAD * self.engine.budget.threads);
        let mut held = Vec::new();
        let mut exposed = Vec::with_capacity(sql.len());
        while let Some(found) = asked.try_next().await? {
            let Some((found, memory)) = found else { return Ok(None) };
            exposed.push(found);
            held.push(memory);
        }
        drop(asked);
        let (keys, memory) = SharedKeys::into_inner(keys)?;
        held.push(memory);
        let of_members = self.memory("exposed users");
        reserve(&of_members, Members::bytes_of(&exposed))?;
        held.push(of_members);
        let (keys, members) = (Arc::new(keys), Arc::new(Members::of(&exposed)));
        let mut asides = Vec::with_capacity(sql.len());
        for (experiment, sql) in sql.iter().enumerate() {
            let mut of_experiment = Vec::new();
            for source in passes::asides(sql) {
                let users = (experiment, exposed[experiment].users.len());
                let found = self.aside(kind, &keys, &members, users, sql, &source).await?;
                let Some((aside, memory)) = found else { return Ok(None) };
                of_experiment.push(aside);
                held.push(memory);
            }
            asides.push(of_experiment);
        }
        let mut found = Vec::with_capacity(passes.len());
        for pass in passes {
            let scanned = self.scan(kind, Arc::new(pass), &keys, &members).await?;
            let Some((pass, parts)) = scanned else { return Ok(None) };
            let (parts, memory): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            found.push((pass, parts));
            held.extend(memory);
        }
        let scanned = Scanned { layouts, exposed, members, passes: found, asides };
        Ok(Some(self.count_users(Arc::new(scanned)).await?))
    }

    fn memory(&self, name: &str) -> MemoryReservation {
        let pool = &self.context().runtime_env().memory_pool;
        MemoryConsumer::new(name).register(pool)
    }

    /// The users of an experiment.
    async fn exposed(
        &self,
        kind: &Divided<'_>,
        keys: &Arc<SharedKeys>,
        sql: &Sql<'_>,
        layout: &Arc<Layout>,
    ) -> Result<Option<(Exposed, MemoryReservation)>> {
        let plan = self.definition_plan(&sql.all_exposure_rows()).await?;
        let with_text = layout.query.assignment.is_some();
        let Some(plan) = key_first(kind, plan, with_text)? else { return Ok(None) };
        let mut tasks = JoinSet::new();
        for mut stream in self.run_partitions(&plan).await? {
            let (keys, layout) = (Arc::clone(keys), Arc::clone(layout));
            let memory = self.memory("exposed users");
            tasks.spawn(async move {
                let mut exposed = Exposed::new(&layout);
                while let Some(batch) = stream.try_next().await? {
                    let numbers = keys.give(batch.column(0))?;
                    exposed.add(&batch, &numbers, &layout)?;
                    reserve(&memory, exposed.bytes())?;
                }
                Ok::<_, EngineError>((exposed, memory))
            });
        }
        let (mut exposed, memory) = (Exposed::new(layout), self.memory("exposed users"));
        while let Some(part) = tasks.join_next().await {
            let (part, _memory) = joined(part)?;
            // Elsewhere, so that the next experiments are planned meanwhile.
            let merged = SpawnedTask::spawn(async move {
                exposed.merge(part);
                exposed
            });
            exposed = joined(merged.join().await.map(Ok))?;
            reserve(&memory, exposed.bytes())?;
        }
        let exposed = exposed.finished();
        reserve(&memory, exposed.bytes())?;
        Ok(Some((exposed, memory)))
    }

    /// What SQL says of the users of an experiment: `users` is its number and how many there are.
    async fn aside(
        &self,
        kind: &Divided<'_>,
        keys: &Keys,
        members: &Members,
        users: (usize, usize),
        sql: &Sql<'_>,
        source: &Source,
    ) -> Result<Option<(Aside, MemoryReservation)>> {
        let text = format!("WITH exposed AS (\n{}\n)\n{}", sql.exposed(), sql.source(source));
        let Some(plan) = key_first(kind, self.definition_plan(&text).await?, false)? else {
            return Ok(None);
        };
        let mut rows = self.run_query(plan).await?;
        let memory = self.memory("numbers of users");
        let mut aside = Aside::new(sql, source, users);
        reserve(&memory, aside.bytes())?;
        while let Some(batch) = rows.try_next().await? {
            reserve(&memory, memory.size() + batch.get_array_memory_size())?;
            aside.add(&batch, keys, members)?;
        }
        Ok(Some((aside, memory)))
    }

    /// The runs of a pass, as each thread found them, and the memory they are in.
    async fn scan(
        &self,
        kind: &Divided<'_>,
        pass: Arc<Pass>,
        keys: &Arc<Keys>,
        members: &Arc<Members>,
    ) -> Result<Option<(Arc<Pass>, Vec<(Found, MemoryReservation)>)>> {
        let sql = pass.sql();
        // What files add up to is known of all users.
        let by_file = match kind.share {
            None => self.by_file(kind.kind, &pass, keys, members).await?,
            Some(_) => None,
        };
        let (mut parts, plan) = match by_file {
            Some(ByFile { found, others, .. }) if others.files().is_empty() => {
                return Ok(Some((pass, found)));
            }
            Some(ByFile { found, others, name }) => {
                (found, with_table(&name, others, Box::pin(self.definition_plan(&sql))).await?)
            }
            None => (Vec::new(), self.definition_plan(&sql).await?),
        };
        let Some(plan) = key_first(kind, plan, false)? else { return Ok(None) };
        let mut tasks = JoinSet::new();
        for stream in self.run_partitions(&plan).await? {
            let runs = Runs::new(Arc::clone(&pass), Arc::clone(keys), Arc::clone(members));
            tasks.spawn(find_runs(stream, runs, self.memory("runs of rows")));
        }
        while let Some(part) = tasks.join_next().await {
            let Some(part) = joined(part)? else { return Ok(None) };
            parts.push(part);
        }
        Ok(Some((pass, parts)))
    }

    /// Cells of all users. Every thread takes the next ids that nobody has; no sum depends on who.
    async fn count_users(&self, scanned: Arc<Scanned>) -> Result<Vec<Counted>> {
        let mut tasks = JoinSet::new();
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..self.engine.budget.threads {
            let (next, end) = (Arc::clone(&next), scanned.members.ids());
            let mut users = Users::new(Arc::clone(&scanned));
            tasks.spawn(async move {
                loop {
                    let from = next.fetch_add(IDS_AT_A_TIME, Ordering::Relaxed);
                    if from >= end {
                        return Ok(users.collects);
                    }
                    users.add(from..end.min(from + IDS_AT_A_TIME))?;
                    tokio::task::yield_now().await;
                }
            });
        }
        let mut whole: Vec<Collect> =
            scanned.layouts.iter().map(|layout| Collect::new(Arc::clone(layout))).collect();
        while let Some(part) = tasks.join_next().await {
            for (whole, part) in whole.iter_mut().zip(joined(part)?) {
                whole.merge(part)?;
            }
        }
        let counted = whole.into_iter().zip(&scanned.exposed).map(|(collect, exposed)| Counted {
            collect,
            without_user: exposed.left_out.without_user,
            without_time: exposed.left_out.without_time,
        });
        Ok(counted.collect())
    }
}

/// Why one scan has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotScanned {
    /// It may be had in another way.
    #[error(transparent)]
    Failed(#[from] EngineError),
    /// Nodes that computed parts were lost or told to stop, or answered what nobody had asked. No other way is tried,
    /// which may end other nodes as well, or hide a fault of ours.
    #[error(transparent)]
    Lost(EngineError),
}

impl NotScanned {
    fn in_parts(error: EngineError) -> Self {
        match (error.code(), error.kind()) {
            (SqlState::QueryCanceled, _) | (_, ErrorKind::Unavailable | ErrorKind::Fault) => {
                Self::Lost(error)
            }
            // Too little memory, or an expression that fails.
            _ => Self::Failed(error),
        }
    }
}

/// Whose users are asked about: told apart by what, and which share of them, if not all.
struct Divided<'a> {
    kind: &'a KeyKind,
    share: Option<&'a Share>,
}

/// Cells of an experiment's users, and rows that are of nobody.
struct Counted {
    collect: Collect,
    without_user: u64,
    without_time: u64,
}

impl Counted {
    fn into_bytes(self) -> Vec<u8> {
        let mut to = Writer::default();
        to.number(self.without_user);
        to.number(self.without_time);
        to.bytes(&collect_bytes::to_bytes(self.collect));
        to.0
    }

    /// # Errors
    /// Bytes that [`Self::into_bytes`] did not write of the same layout.
    fn from_bytes(layout: &Arc<Layout>, bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let (without_user, without_time) = (from.number()?, from.number()?);
        let collect = collect_bytes::from_bytes(layout, from.bytes()?)?;
        match from.is_at_end() {
            true => Ok(Self { collect, without_user, without_time }),
            false => Err(EngineError::bug("there are bytes after the cells of a part")),
        }
    }

    /// Takes in other users of the experiment.
    fn merge(&mut self, other: Self) -> Result<()> {
        self.without_user += other.without_user;
        self.without_time += other.without_time;
        self.collect.merge(other.collect)
    }

    fn finish(self) -> Result<MomentsTable> {
        let mut table = self.collect.finish()?;
        table.left_out.exposures_without_user = self.without_user;
        table.left_out.exposures_without_time = self.without_time;
        Ok(table)
    }
}

/// What a thread found, and the memory it is in; `None` for too much.
async fn find_runs(
    mut stream: SendableRecordBatchStream,
    mut runs: Runs,
    memory: MemoryReservation,
) -> Result<Option<(Found, MemoryReservation)>> {
    while let Some(batch) = stream.try_next().await? {
        runs.add(&batch)?;
        reserve(&memory, runs.bytes())?;
    }
    reserve(&memory, runs.bytes())?;
    Ok(runs.finish().map(|found| (found, memory)))
}

/// The plan with what its first column, a key, is told apart by; `with_text`: and the key as text
/// behind all others. `None` if the key is not of that kind.
fn key_first(
    divided: &Divided<'_>,
    plan: LogicalPlan,
    with_text: bool,
) -> Result<Option<LogicalPlan>> {
    let kind = divided.kind;
    let key = Column::from(plan.schema().qualified_field(0));
    let others: Vec<Column> = plan.schema().columns().into_iter().skip(1).collect();
    let (plan, first) = match kind {
        KeyKind::Ids(source) => match with_ids(&plan, &key)? {
            Some(found) if found.source == *source => (found.plan, found.ids),
            _ => return Ok(None),
        },
        _ if KeyKind::of(plan.schema().field(0).data_type()).as_ref() == Some(kind) => {
            (plan, key.clone())
        }
        _ => return Ok(None),
    };
    let mut plan = LogicalPlanBuilder::from(plan);
    if let Some(share) = divided.share {
        let Some(condition) = condition_of(&Expr::Column(first.clone()), share) else {
            return Ok(None);
        };
        plan = plan.filter(condition)?;
    }
    let mut columns = vec![Expr::Column(first)];
    columns.extend(others.into_iter().map(Expr::Column));
    if with_text {
        columns.push(cast(Expr::Column(key), DataType::Utf8View).alias(KEY_TEXT));
    }
    Ok(Some(plan.project(columns)?.build()?))
}

/// Keys that several tasks number, and the memory they are in.
struct SharedKeys {
    keys: Mutex<Keys>,
    memory: MemoryReservation,
}

impl SharedKeys {
    fn new(keys: Keys, memory: MemoryReservation) -> Self {
        Self { keys: Mutex::new(keys), memory }
    }

    /// See [`Keys::give`].
    fn give(&self, column: &ArrayRef) -> Result<Vec<u32>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = keys.give(column)?;
        reserve(&self.memory, keys.bytes())?;
        Ok(numbers)
    }

    /// When all tasks are done.
    fn into_inner(shared: Arc<Self>) -> Result<(Keys, MemoryReservation)> {
        let shared = Arc::into_inner(shared);
        let shared = shared.ok_or_else(|| EngineError::bug("a task is not done"))?;
        Ok((shared.keys.into_inner().unwrap_or_else(PoisonError::into_inner), shared.memory))
    }
}

fn reserve(memory: &MemoryReservation, bytes: usize) -> Result<()> {
    Ok(memory.try_resize(bytes)?)
}

fn joined<T>(done: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.map_err(|e| EngineError::from(DataFusionError::External(Box::new(e))))?
}
