//! Thousands of statements at once, on one snapshot of every table.
//!
//! ```text
//! statements ─► plans ─► parts they have in common (parts) ─► what is kept, new plans (plan)
//!            ─► an order in which sharers are neighbours ─► a few at a time, each for itself ─► answers
//! ```
//!
//! # Invariants
//! - A statement's answer is the one it has when it runs by itself on that snapshot. Where anything goes
//!   wrong with what it shares, it does run by itself; if memory was the reason, with nobody beside it.
//! - A statement that fails or is cancelled is no other's business. Dropping the batch stops all of it.
//! - Answers that wait to be taken are counted in the session's memory; what is too long for that runs
//!   again when somebody reads it.

mod kept;
mod order;
mod parts;
mod plan;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{StreamExt, TryStreamExt};
use tokio::task::{AbortHandle, Id};

use crate::base::answer::{Answer, with_schema};
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::cache::computed_rows::{Room, Space};
use crate::engine::admission::Class;
use crate::engine::session::Session;
use crate::sql::statement::{IdSetStatement, Statement};
use crate::sql::view_statement::ViewStatement;
use kept::Kept;

/// Of the memory budget, what kept rows may take.
const KEPT_SHARE: usize = 4;
/// Of the memory budget, what answers may take that nobody has read yet.
const ANSWERS_SHARE: usize = 16;
/// An answer of more bytes does not wait in memory.
const LONG_ANSWER_BYTES: usize = 4 << 20;
/// With so many statements for each thread, a statement gets one.
const MANY: usize = 4;

/// How a batch runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOptions {
    /// Statements that run at once; as many as the session has threads if `None`.
    pub at_once: Option<usize>,
}

/// What a batch found to share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSummary {
    /// Statements in the batch.
    pub statements: usize,
    /// Those that differ and could be planned.
    pub different: usize,
    /// Those of them that read rows which others read, too.
    pub sharing: usize,
    /// Parts of plans that are computed once for all that have them.
    pub parts: usize,
}

/// The answers of a batch, in the order in which they come.
pub struct Batch {
    /// With all of the memory, for statements that run alone.
    whole: Arc<Session>,
    /// With the part that statements of a batch may take.
    session: Arc<Session>,
    summary: BatchSummary,
    at_once: usize,
    rooms: Rooms,
    waiting: VecDeque<Work>,
    /// Work that must have all memory for itself.
    alone: VecDeque<Work>,
    tasks: JoinSet<(Work, Outcome)>,
    running: HashMap<Id, (Vec<usize>, AbortHandle)>,
    ready: VecDeque<(usize, Result<Answer>)>,
    cancelled: HashSet<usize>,
}

/// Memory of a batch.
#[derive(Clone)]
struct Rooms {
    kept: Arc<Room>,
    answers: Arc<Room>,
}

/// A statement, wherever it stands in the batch.
struct Work {
    /// Its places; all but the first are the same statement again.
    numbers: Vec<usize>,
    statement: Statement,
    task: Task,
    /// Does it run with nobody beside it?
    alone: bool,
}

#[derive(Clone)]
enum Task {
    /// A query, and what it becomes with what is kept.
    Query { plan: LogicalPlan, shared: Option<Arc<plan::Rewritten>> },
    /// A statement about the lake or about a plan.
    Look,
}

enum Outcome {
    Rows {
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        space: Arc<Space>,
    },
    /// Too much to wait in memory.
    Long {
        schema: SchemaRef,
    },
    Done {
        message: String,
        rows: Option<u64>,
    },
    Failed(EngineError),
}

impl Session {
    /// Answers statements as if they ran one by one on one snapshot of every table. Statements that
    /// write or change settings fail.
    ///
    /// # Errors
    /// [`EngineError::Table`] if a table's snapshot cannot be read; whatever is wrong with one statement
    /// is its answer.
    pub async fn batch(&self, statements: Vec<Statement>, options: BatchOptions) -> Result<Batch> {
        self.must_be_unguarded("batches")?;
        let mut tables = HashSet::new();
        let mut statements = statements;
        for statement in &mut statements {
            // One that cannot be read is the business of its statement.
            if let Ok(Some(with_views)) = self.with_views(statement).await {
                *statement = with_views;
            }
            let state = self.context().state();
            // A statement without names that can be read fails when it is planned.
            let names = state.resolve_table_references(&statement.parsed).unwrap_or_default();
            let of_lake = names.iter().filter(|name| !self.catalog.additions.names(name));
            tables.extend(of_lake.map(|name| name.table().to_owned()));
        }
        // A table that cannot be read is the business of the statements that read it.
        let (whole, ..) = self.pinned_if_readable(tables.into_iter().collect()).await?;
        let session = whole.with_share(self.engine.budget.memory_bytes / 4 * 3)?;
        let mut batch = Batch::new(Arc::new(whole), Arc::new(session), statements.len(), options);
        batch.start(statements).await;
        Ok(batch)
    }
}

impl Batch {
    fn new(
        whole: Arc<Session>,
        session: Arc<Session>,
        statements: usize,
        options: BatchOptions,
    ) -> Self {
        let memory = session.engine.budget.memory_bytes;
        let pool = Arc::clone(&whole.context().runtime_env().memory_pool);
        let rooms = Rooms {
            kept: Room::new(memory / KEPT_SHARE, &pool),
            answers: Room::new(memory / ANSWERS_SHARE, &pool),
        };
        Self {
            at_once: options.at_once.unwrap_or(session.engine.budget.threads).max(1),
            whole,
            session,
            summary: BatchSummary { statements, ..BatchSummary::default() },
            rooms,
            waiting: VecDeque::new(),
            alone: VecDeque::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            ready: VecDeque::new(),
            cancelled: HashSet::new(),
        }
    }

    /// What was found to share.
    pub fn summary(&self) -> BatchSummary {
        self.summary
    }

    /// Plans all statements, finds what they share, and puts them in order.
    async fn start(&mut self, statements: Vec<Statement>) {
        let mut works: Vec<Work> = Vec::new();
        for (number, planned) in planned(&self.session, statements).await.into_iter().enumerate() {
            let (statement, task) = match planned {
                Ok(planned) => planned,
                Err(error) => {
                    self.ready.push_back((number, Err(error)));
                    continue;
                }
            };
            works.push(Work { numbers: vec![number], statement, task, alone: false });
        }
        let works = merged(works);
        let plans: Vec<(usize, &LogicalPlan)> = works
            .iter()
            .enumerate()
            .filter_map(|(place, work)| match &work.task {
                Task::Query { plan, .. } => Some((place, plan)),
                Task::Look => None,
            })
            .collect();
        let shared: Vec<&LogicalPlan> = plans.iter().map(|(_, plan)| *plan).collect();
        let (rewritten, parts) = plan::share(&shared);
        let places: Vec<usize> = plans.iter().map(|(place, _)| *place).collect();
        self.summary.different = works.len();
        self.summary.parts = parts.len();
        let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
        let mut reads: Vec<Vec<Arc<Kept>>> = vec![Vec::new(); works.len()];
        for (place, rewritten) in places.into_iter().zip(rewritten) {
            let (Some(new), Some(work)) = (rewritten, works[place].as_mut()) else { continue };
            reads[place].clone_from(&new.reads);
            if let Task::Query { shared, .. } = &mut work.task {
                *shared = Some(Arc::new(new));
                self.summary.sharing += 1;
            }
        }
        let order = order::neighbours(&reads);
        drop((reads, parts));
        self.waiting = order.into_iter().filter_map(|place| works[place].take()).collect();
    }

    /// The next answer and the number of its statement, from 0; `None` when all were given. Statements
    /// run while this waits and between calls, but new ones start only in here. Safe to drop.
    pub async fn next(&mut self) -> Option<(usize, Result<Answer>)> {
        loop {
            self.fill();
            if let Some(answer) = self.ready.pop_front() {
                return Some(answer);
            }
            match self.tasks.join_next_with_id().await {
                Some(Ok((id, (work, outcome)))) => {
                    self.running.remove(&id);
                    self.finished(work, outcome);
                }
                Some(Err(error)) => {
                    let failed = self.running.remove(&error.id());
                    for number in failed.map(|(numbers, _)| numbers).unwrap_or_default() {
                        let message = format!("the statement ended before its answer: {error}");
                        self.give(number, Err(EngineError::bug(message)));
                    }
                }
                None => return None,
            }
        }
    }

    /// Stops one statement; its answer is an error. One that was answered stays so.
    pub fn cancel(&mut self, number: usize) {
        let waits = self.waiting.iter().chain(&self.alone).any(|w| w.numbers.contains(&number));
        let runs = self.running.values().any(|(numbers, _)| numbers.contains(&number));
        if !(waits || runs) || !self.cancelled.insert(number) {
            return;
        }
        self.ready
            .push_back((number, Err(EngineError::execution(SqlState::QueryCanceled, "cancelled"))));
        let cancelled = &self.cancelled;
        let needed = |numbers: &[usize]| numbers.iter().any(|n| !cancelled.contains(n));
        self.waiting.retain(|work| needed(&work.numbers));
        self.alone.retain(|work| needed(&work.numbers));
        for (numbers, handle) in self.running.values() {
            if !needed(numbers) {
                handle.abort();
            }
        }
    }

    /// Starts as much as may run.
    fn fill(&mut self) {
        while self.tasks.len() < self.at_once {
            let alone = self.tasks.is_empty() && self.waiting.is_empty();
            let next = if alone { self.alone.pop_front() } else { self.waiting.pop_front() };
            let Some(mut work) = next else { return };
            work.alone = alone;
            let numbers = work.numbers.clone();
            let session = Arc::clone(if alone { &self.whole } else { &self.session });
            let rooms = self.rooms.clone();
            let one_thread = self.summary.different >= MANY * self.session.engine.budget.threads;
            let handle = self.tasks.spawn(async move {
                let one_thread = one_thread && !work.alone;
                let answered = async {
                    let slot = session.slot(&work.statement.text, Class::Batch).await?;
                    slot.within(Box::pin(run(&session, &work, &rooms, one_thread))).await?
                };
                let outcome = answered.await.unwrap_or_else(Outcome::Failed);
                (work, outcome)
            });
            self.running.insert(handle.id(), (numbers, handle));
            if alone {
                return;
            }
        }
    }

    fn finished(&mut self, mut work: Work, outcome: Outcome) {
        if let (Outcome::Failed(EngineError::Limit { .. }), Task::Query { shared, .. }, false) =
            (&outcome, &mut work.task, work.alone)
        {
            // What is kept may be what takes the memory.
            *shared = None;
            self.alone.push_back(work);
            return;
        }
        for number in work.numbers.clone() {
            let answer = match &outcome {
                Outcome::Rows { schema, batches, space } => Ok(kept_answer(schema, batches, space)),
                Outcome::Long { schema } => self.long_answer(&work, schema),
                Outcome::Done { message, rows } => {
                    Ok(Answer::Done { message: message.clone(), rows: *rows })
                }
                Outcome::Failed(error) => Err(error.copy()),
            };
            self.give(number, answer);
        }
    }

    fn give(&mut self, number: usize, answer: Result<Answer>) {
        if !self.cancelled.contains(&number) {
            self.ready.push_back((number, answer));
        }
    }

    /// An answer that is computed as it is read.
    fn long_answer(&self, work: &Work, schema: &SchemaRef) -> Result<Answer> {
        let Task::Query { plan, .. } = &work.task else {
            return Err(EngineError::bug("only a query can have a long answer"));
        };
        let (session, plan) = (Arc::clone(&self.session), plan.clone());
        let (schema, names) = (Arc::clone(schema), Arc::clone(schema));
        let rows = futures::stream::once(async move {
            let (state, _) = session.query_state();
            let stream = session.run_optimized(&plan, &state).await;
            let stream = stream.map_err(|e| DataFusionError::External(Box::new(e)))?;
            Ok::<_, DataFusionError>(with_schema(stream, names))
        });
        let stream =
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.try_flatten()));
        Ok(Answer::Rows { schema, stream })
    }
}

fn kept_answer(schema: &SchemaRef, batches: &[RecordBatch], space: &Arc<Space>) -> Answer {
    let space = Arc::clone(space);
    let rows = futures::stream::iter(batches.to_vec()).map(move |batch| {
        // Counted until the last batch is taken.
        let _ = &space;
        Ok(batch)
    });
    let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows));
    Answer::Rows { schema: Arc::clone(schema), stream }
}

/// The statements with their plans, or why there is none, by several threads.
async fn planned(
    session: &Arc<Session>,
    statements: Vec<Statement>,
) -> Vec<Result<(Statement, Task)>> {
    let statements = Arc::new(statements);
    let next = Arc::new(AtomicUsize::new(0));
    let plans: Arc<Mutex<Vec<Option<Result<Task>>>>> =
        Arc::new(Mutex::new(statements.iter().map(|_| None).collect()));
    let threads: Vec<_> = (0..session.engine.budget.threads.max(1))
        .map(|_| {
            let (session, statements) = (Arc::clone(session), Arc::clone(&statements));
            let (next, plans) = (Arc::clone(&next), Arc::clone(&plans));
            SpawnedTask::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::AcqRel);
                    let Some(statement) = statements.get(number) else { return };
                    let plan = planned_one(&session, statement).await;
                    plans.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(plan);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for thread in threads {
        // A thread that panicked leaves its statement without a plan.
        let _ = thread.join().await;
    }
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    let lost = || Err(EngineError::bug("the statement could not be planned"));
    let plan = |(statement, plan): (&Statement, &mut Option<Result<Task>>)| {
        plan.take().unwrap_or_else(lost).map(|task| (statement.clone(), task))
    };
    statements.iter().zip(plans.iter_mut()).map(plan).collect()
}

fn only_reads() -> EngineError {
    EngineError::unsupported(
        "a batch only reads: run what writes or sets something by itself, without --batch",
    )
}

async fn planned_one(session: &Session, statement: &Statement) -> Result<Task> {
    let shows_sets = matches!(statement.id_set, Some(IdSetStatement::Show));
    let shows_view = matches!(statement.view, Some(ViewStatement::Show { .. }));
    if statement.added.is_some()
        || statement.warm.is_some()
        || (statement.view.is_some() && !shows_view)
        || (statement.id_set.is_some() && !shows_sets)
    {
        return Err(only_reads());
    }
    if let DfStatement::Statement(inner) = &statement.parsed {
        match inner.as_ref() {
            ast::Statement::ShowTables { .. }
            | ast::Statement::ShowCreate { .. }
            | ast::Statement::ExplainTable { .. } => {
                return Ok(Task::Look);
            }
            ast::Statement::Query(_) => {}
            _ => return Err(only_reads()),
        }
    }
    if shows_sets || shows_view || statement.describes || statement.summarizes {
        return Ok(Task::Look);
    }
    let plan = session.plan(statement).await?;
    let mut writes = false;
    plan.apply_with_subqueries(|node| {
        writes |= matches!(
            node,
            LogicalPlan::Ddl(_)
                | LogicalPlan::Dml(_)
                | LogicalPlan::Copy(_)
                | LogicalPlan::Statement(_)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    match plan {
        _ if writes => Err(only_reads()),
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => Ok(Task::Look),
        plan => {
            let (state, _) = session.query_state();
            let plan = session.optimized(&state, plan).await?;
            Ok(Task::Query { plan, shared: None })
        }
    }
}

/// Statements of one text are one, if they answer alike each time.
fn merged(works: Vec<Work>) -> Vec<Work> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut merged: Vec<Work> = Vec::new();
    for work in works {
        let same_each_time = match &work.task {
            Task::Query { plan, .. } => !is_volatile(plan),
            Task::Look => false,
        };
        if same_each_time {
            if let Some(place) = places.get(&work.statement.text) {
                merged[*place].numbers.extend(work.numbers);
                continue;
            }
            places.insert(work.statement.text.clone(), merged.len());
        }
        merged.push(work);
    }
    merged
}

fn is_volatile(plan: &LogicalPlan) -> bool {
    let mut volatile = false;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            volatile |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    });
    volatile || visited.is_err()
}

async fn run(
    session: &Arc<Session>,
    work: &Work,
    rooms: &Rooms,
    one_thread: bool,
) -> Result<Outcome> {
    let (plan, shared) = match &work.task {
        Task::Query { plan, shared } => (plan, shared),
        Task::Look => {
            return match session.run_now(&work.statement).await? {
                Answer::Rows { schema, stream } => short(schema, stream, rooms).await,
                Answer::Done { message, rows } => Ok(Outcome::Done { message, rows }),
            };
        }
    };
    if let Some(shared) = shared
        && let Ok(outcome) = run_shared(session, work, shared, rooms, one_thread).await
    {
        return Ok(outcome);
    }
    answered(session, work, plan.clone(), rooms, one_thread).await
}

/// With what is kept; an error if that is not there.
async fn run_shared(
    session: &Arc<Session>,
    work: &Work,
    shared: &plan::Rewritten,
    rooms: &Rooms,
    one_thread: bool,
) -> Result<Outcome> {
    for kept in &shared.reads {
        if kept.rows(session, &rooms.kept).await.is_none() {
            return Err(EngineError::bug("nothing is kept"));
        }
    }
    answered(session, work, shared.plan.clone(), rooms, one_thread).await
}

async fn answered(
    session: &Session,
    work: &Work,
    plan: LogicalPlan,
    rooms: &Rooms,
    one_thread: bool,
) -> Result<Outcome> {
    let mut state = SessionState::clone(&session.query_state().0);
    if one_thread {
        state.config_mut().options_mut().execution.target_partitions = 1;
    }
    let stream = session.run_optimized(&plan, &state).await?;
    let schema = session.spell(&work.statement, &stream.schema()).await?;
    short(Arc::clone(&schema), with_schema(stream, schema), rooms).await
}

/// The whole answer, if it is short.
async fn short(
    schema: SchemaRef,
    mut stream: SendableRecordBatchStream,
    rooms: &Rooms,
) -> Result<Outcome> {
    let mut space = Space::new(&rooms.answers);
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let more = get_record_batch_memory_size(&batch);
        bytes += more;
        if bytes > LONG_ANSWER_BYTES || !space.grow(more) {
            return Ok(Outcome::Long { schema });
        }
        batches.push(batch);
    }
    Ok(Outcome::Rows { schema, batches, space: Arc::new(space) })
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;

    use super::*;
    use crate::engine::session::for_tests;
    use crate::sql::statement::parse;

    /// What is kept has ids, and one row for each where it is grouped by them: joins with it are
    /// look-ups where rows are grouped, as they are without a batch.
    #[test]
    fn joins_with_what_is_kept_are_look_ups() {
        let folder = tempfile::tempdir().unwrap();
        let session = Arc::new(for_tests(folder.path(), true));
        let of_events =
            "WITH u AS (SELECT user_id, min(variant) AS variant FROM x GROUP BY user_id)
             SELECT variant, sum(n) FROM e JOIN u ON e.user_id = u.user_id WHERE k = 1 GROUP BY 1";
        let of_users = "WITH u AS (SELECT user_id, min(variant) AS variant FROM x GROUP BY user_id)
             SELECT variant, avg(n) FROM (
               SELECT u.user_id, min(u.variant) AS variant, sum(n) AS n FROM u
               LEFT JOIN (SELECT user_id, n FROM e WHERE k = 2) e ON e.user_id = u.user_id
               GROUP BY u.user_id) GROUP BY 1";
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            session
                .query(
                    "CREATE TABLE e (user_id TEXT, k INT, n BIGINT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
                     CREATE TABLE x (user_id TEXT, variant INT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
                     INSERT INTO e SELECT concat('u', CAST(value % 900 AS TEXT)), value % 5, value FROM generate_series(1, 9000) AS s(value);
                     INSERT INTO x SELECT concat('u', CAST(value % 400 AS TEXT)), value % 2 FROM generate_series(1, 500) AS s(value)",
                )
                .await
                .unwrap();
            let mut plans = Vec::new();
            for sql in [of_events, of_users] {
                match planned_one(&session, &parse(sql).unwrap()[0]).await.unwrap() {
                    Task::Query { plan, .. } => plans.push(plan),
                    Task::Look => panic!("{sql} is a query"),
                }
            }
            let (rewritten, _) = plan::share(&plans.iter().collect::<Vec<_>>());
            let whole = Arc::clone(&session.context().runtime_env().memory_pool);
            let room = Room::new(64 << 20, &whole);
            let mut state = SessionState::clone(&session.query_state().0);
            state.config_mut().options_mut().execution.target_partitions = 1;
            for rewritten in rewritten {
                let rewritten = rewritten.unwrap();
                for kept in &rewritten.reads {
                    kept.rows(&session, &room).await.unwrap();
                }
                let planner = Arc::clone(state.query_planner());
                let physical = planner.create_physical_plan(&rewritten.plan, &state).await.unwrap();
                let shown = displayable(physical.as_ref()).indent(false).to_string();
                assert!(shown.contains("kept rows="), "{shown}");
                assert!(!shown.contains("HashJoinExec"), "{shown}");
            }
        });
    }
}
