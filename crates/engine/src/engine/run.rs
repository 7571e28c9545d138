//! A statement's way from its sender: a slot, a deadline, an answer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, Stream};
use uplake_experiment::query::{MomentsQuery, MomentsTable};
use uplake_table::{Payer, panic_text};

use crate::base::alarm::{Alarm, within};
use crate::base::answer::Answer;
use crate::base::error::{EngineError, Result};
use crate::base::progress::{QueryProgress, watched};
use crate::cache::memory::MemoryShare;
use crate::engine::admission::{Admission, Class, Queue, Tenant, Ticket};
use crate::engine::session::Session;
use crate::sql::statement::{IdSetStatement, Statement};

/// How long a statement that computes alone waits for what others, stopped a moment ago, still hold.
const OTHERS_END: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How one statement is run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// What it may take, in the queue and computing; `None` is what the session has (`SET uplake.timeout`).
    pub timeout: Option<Duration>,
    pub class: Class,
    /// Whose it is, where several share the engine.
    pub tenant: Tenant,
    /// What is to know how far the statement is.
    pub progress: Option<Arc<QueryProgress>>,
}

/// A cache of an engine: what it is of, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptBytes {
    pub of: &'static str,
    pub bytes: usize,
}

/// What the statements of a session hold, as of now. All of it is 0 when none computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Statements that compute.
    pub running: usize,
    /// Statements that wait.
    pub waiting: usize,
    /// Bytes that operators have taken, without columns kept decoded; of all engines that share memory.
    pub memory_bytes: usize,
    /// Files in the folder for spilling.
    pub spill_files: usize,
    /// Reads of a bucket that are under way.
    pub reads: usize,
}

impl Session {
    /// Runs one statement: it waits for a slot if it computes and others do, then begins.
    ///
    /// The slot is given back when the answer has been read to its end or is dropped, so an answer that
    /// nobody reads makes others wait. Dropping this future leaves the queue, or stops the statement.
    ///
    /// # Errors
    /// See [`EngineError`]; an error while rows stream comes through the stream.
    pub async fn run(&self, statement: &Statement) -> Result<Answer> {
        self.run_with(statement, RunOptions::default()).await
    }

    /// [`Self::run`] with a time-out or a class of its own, or progress.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_with(&self, statement: &Statement, mut options: RunOptions) -> Result<Answer> {
        if options.progress.is_none() && Payer::current().is_none() && is_write(statement) {
            // Which knows whether a commit was sent.
            options.progress = Some(QueryProgress::new());
        }
        watched(options.progress.clone(), Box::pin(self.run_watched(statement, options))).await
    }

    async fn run_watched(&self, statement: &Statement, options: RunOptions) -> Result<Answer> {
        if let Some(payer) = Payer::current() {
            payer.begins();
        }
        if !computes(statement) {
            // It may wait for the store as long as others.
            let timeout = options.timeout.or_else(|| self.timeout());
            return within(timeout, caught(Box::pin(self.run_now(statement)))).await?;
        }
        let short = |answer: &Result<Answer>| matches!(answer, Err(EngineError::Limit { .. }));
        let progress = options.progress.clone();
        let work = || watched(progress.clone(), caught(Box::pin(self.run_now(statement))));
        let (answer, held) = self.admitted(&statement.text, options, work, short).await?;
        Ok(match answer? {
            Answer::Rows { schema, stream } => {
                let stream = Box::pin(Guarded::new(stream, held, progress));
                Answer::Rows { schema, stream }
            }
            done @ Answer::Done { .. } => done,
        })
    }

    /// Runs a moments query, as one statement.
    ///
    /// # Errors
    /// [`EngineError::Report`] for an expression or a column of the definition that the tables do not
    /// have, and for a time zone or a period that cannot be read.
    pub async fn moments(&self, query: &MomentsQuery) -> Result<MomentsTable> {
        let mut answers = self.moments_together(&[query]).await;
        answers.pop().unwrap_or_else(|| Err(EngineError::bug("no answer")))
    }

    /// Runs moments queries as one statement, in one scan of each table where that is possible. Answers
    /// are in the order of the queries; each can fail alone.
    pub async fn moments_together(&self, queries: &[&MomentsQuery]) -> Vec<Result<MomentsTable>> {
        self.moments_together_with(queries, RunOptions::default()).await
    }

    /// [`Self::moments_together`] with a time-out or a class of its own, or progress.
    pub async fn moments_together_with(
        &self,
        queries: &[&MomentsQuery],
        options: RunOptions,
    ) -> Vec<Result<MomentsTable>> {
        let is_limit = |answer: &Result<_>| matches!(answer, Err(EngineError::Limit { .. }));
        let short = |answers: &Vec<Result<MomentsTable>>| answers.iter().any(is_limit);
        let progress = options.progress.clone();
        let work = || watched(progress.clone(), Box::pin(self.moments_now(queries)));
        match self.admitted("report", options, work, short).await {
            Ok((answers, _)) => answers,
            Err(error) => queries.iter().map(|_| Err(error.copy())).collect(),
        }
    }

    /// Who computes and who waits.
    pub fn queue(&self) -> Queue {
        self.engine.admission.queue()
    }

    /// What the engine keeps in memory for statements to come.
    pub fn caches(&self) -> [KeptBytes; 5] {
        let engine = &self.engine;
        [
            ("footers", engine.footers.memory_used()),
            ("indexes", engine.indexes.kept_bytes()),
            ("plans", engine.plans.bytes()),
            ("tables", engine.catalog.kept_bytes()),
            ("columns", engine.memory.columns().bytes()),
        ]
        .map(|(of, bytes)| KeptBytes { of, bytes })
    }

    /// What statements hold.
    pub fn usage(&self) -> Usage {
        let (queue, parts) = (self.queue(), self.engine.part_admission.queue());
        let runtime = self.context().runtime_env();
        Usage {
            running: queue.running.len() + parts.running.len(),
            waiting: queue.waiting.len() + parts.waiting.len(),
            memory_bytes: runtime.memory_pool.reserved(),
            spill_files: runtime.disk_manager.spilling_progress().active_files_count,
            reads: self.engine.lake.storage().reads_under_way(),
        }
    }

    /// Does `work` in a slot and before the deadline. Work that was `short` of memory beside others is
    /// done again, alone: it has handed nothing out and committed nothing.
    async fn admitted<T, F: Future<Output = T>>(
        &self,
        text: &str,
        options: RunOptions,
        work: impl Fn() -> F,
        short: impl Fn(&T) -> bool,
    ) -> Result<(T, (Ticket, SlotTime))> {
        self.admitted_to(&self.engine.admission, text, options, work, short).await
    }

    /// The same in a slot of these.
    pub(super) async fn admitted_to<T, F: Future<Output = T>>(
        &self,
        slots: &Arc<Admission>,
        text: &str,
        options: RunOptions,
        work: impl Fn() -> F,
        short: impl Fn(&T) -> bool,
    ) -> Result<(T, (Ticket, SlotTime))> {
        let timeout = options.timeout.or_else(|| self.timeout());
        let mut ticket = slots.join(text, options.class, &options.tenant, timeout);
        let slot = SlotTime(options.progress);
        let came = Instant::now();
        ticket.granted().await?;
        slot.begins(came.elapsed());
        let refusals = || self.share.as_ref().map_or(0, MemoryShare::refusals);
        let before = refusals();
        let done = ticket.within(work()).await?;
        // Engines that share memory do not know what the others do, and a share is not larger for one that is alone.
        let alone = ticket.is_alone() && !self.engine.memory.is_shared() || refusals() > before;
        if !short(&done) || alone {
            return Ok((done, (ticket, slot)));
        }
        drop(done);
        slot.ends();
        let again = Instant::now();
        ticket.granted_alone().await?;
        slot.begins(again.elapsed());
        let pool = &self.context().runtime_env().memory_pool;
        for _ in 0..OTHERS_END.div_duration_f64(LOOK_EVERY) as usize {
            if pool.reserved() == 0 {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let done = ticket.within(work()).await?;
        Ok((done, (ticket, slot)))
    }

    /// A slot for work that sees to its memory itself.
    pub(crate) async fn slot(&self, text: &str, class: Class) -> Result<Ticket> {
        let mut ticket =
            self.engine.admission.join(text, class, &Tenant::default(), self.timeout());
        ticket.granted().await?;
        Ok(ticket)
    }
}

/// The same, where a panic in a library, such as text of more than 2 GB in Arrow, is this statement's error
/// and nobody else's.
async fn caught(work: impl Future<Output = Result<Answer>>) -> Result<Answer> {
    match AssertUnwindSafe(Box::pin(work)).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => Err(bug(panic.as_ref())),
    }
}

pub(super) fn bug(panic: &(dyn Any + Send)) -> EngineError {
    EngineError::bug(format!("the statement could not be computed: {}", panic_text(panic)))
}

/// May it commit something?
fn is_write(statement: &Statement) -> bool {
    !matches!(statement.command(), "SELECT" | "SHOW" | "SET")
}

/// Is it worth a slot? What only looks at the lake's list of tables is not.
fn computes(statement: &Statement) -> bool {
    if let Some(about) = &statement.id_set {
        return matches!(about, IdSetStatement::Create { .. });
    }
    if statement.prepare.is_some()
        || statement.view.is_some()
        || statement.describes
        || statement.added.is_some()
    {
        return false;
    }
    match &statement.parsed {
        DfStatement::Explain(explain) => explain.options.analyze,
        DfStatement::Statement(inner) => match inner.as_ref() {
            ast::Statement::CreateTable(create) => create.query.is_some(),
            ast::Statement::ShowTables { .. }
            | ast::Statement::ExplainTable { .. }
            | ast::Statement::ShowCreate { .. }
            | ast::Statement::ShowVariable { .. }
            | ast::Statement::Set(_)
            | ast::Statement::Deallocate { .. }
            | ast::Statement::AlterTable(_)
            | ast::Statement::Comment { .. }
            | ast::Statement::Drop { .. } => false,
            _ => true,
        },
        _ => true,
    }
}

/// Tells whoever wants to know how long a statement has its slot, until it is dropped.
pub(super) struct SlotTime(Option<Arc<QueryProgress>>);

impl SlotTime {
    fn begins(&self, queued: Duration) {
        if let Some(progress) = &self.0 {
            progress.begins(queued);
        }
    }

    fn ends(&self) {
        if let Some(progress) = &self.0 {
            progress.ends();
        }
    }
}

impl Drop for SlotTime {
    fn drop(&mut self) {
        self.ends();
    }
}

/// Rows until the deadline; the slot is given back with the last of them.
pub(super) struct Guarded {
    schema: SchemaRef,
    /// Stopped before its slot is given back.
    running: Option<(SendableRecordBatchStream, Ticket, SlotTime)>,
    deadline: Option<Alarm>,
    progress: Option<Arc<QueryProgress>>,
}

impl Guarded {
    pub fn new(
        stream: SendableRecordBatchStream,
        (ticket, slot): (Ticket, SlotTime),
        progress: Option<Arc<QueryProgress>>,
    ) -> Self {
        let deadline = ticket.deadline().map(Alarm::at);
        Self { schema: stream.schema(), running: Some((stream, ticket, slot)), deadline, progress }
    }
}

impl Stream for Guarded {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some((stream, ticket, _)) = &mut this.running else { return Poll::Ready(None) };
        let mut poll = || stream.as_mut().poll_next(context);
        let next = catch_unwind(AssertUnwindSafe(|| match &this.progress {
            Some(progress) => progress.run(poll),
            None => poll(),
        }));
        let next = next.unwrap_or_else(|panic| {
            Poll::Ready(Some(Err(DataFusionError::External(Box::new(bug(panic.as_ref()))))))
        });
        // Rows that come without a wait end at the deadline, too.
        let is_late = this.deadline.as_mut().is_some_and(|deadline| match next.is_pending() {
            true => Pin::new(deadline).poll(context).is_ready(),
            false => deadline.is_over(),
        });
        if is_late && !matches!(next, Poll::Ready(None | Some(Err(_)))) {
            let error = DataFusionError::External(Box::new(ticket.timed_out()));
            (this.running, this.deadline) = (None, None);
            return Poll::Ready(Some(Err(error)));
        }
        match (&next, &this.progress) {
            (Poll::Ready(None | Some(Err(_))), _) => this.running = None,
            (Poll::Ready(Some(Ok(batch))), Some(progress)) => progress.answered(batch.num_rows()),
            _ => {}
        }
        next
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
