//! A part of a statement that another process cut.
//!
//! # Invariants
//! - A part that cannot be read as it was written, or of which a table is not as it was there, is refused before anything
//!   of it is computed: whoever sent it computes it.
//! - A plan reads tables of the lake that it names with their versions and files, and does nothing else. Bytes that are
//!   anything are an error, and never the end of the process.
//! - It takes a slot of those for parts, and waits for nobody else.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, plan_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, StreamExt, TryStreamExt};
use uplake_table::{Domain, check_table_name};

use crate::base::error::{EngineError, Result};
use crate::base::progress::watched;
use crate::engine::run::{Guarded, RunOptions, bug};
use crate::engine::session::Session;
use crate::operators::stoppable::holding;
use crate::optimizer::pipeline;
use crate::portable::elsewhere::{PartRows, Share, Shuffled};
use crate::portable::fragment::{self, Header, Kind};
use crate::portable::functions::{Codec, Pin};
use crate::portable::kind::is_repeatable;
use crate::portable::part_error::PartError;
use crate::portable::plan::from_bytes;
use crate::portable::questions::SentQuestions;
use crate::portable::share::with_share;
use crate::portable::shuffle_read::reading;
use crate::scan::lake_table::LakeTable;

/// A part that was read: a plan of tables of the lake, or questions of reports about them.
pub struct SentPart(Sent);

enum Sent {
    Plan { plan: LogicalPlan, state: Box<SessionState> },
    Report { session: Session, questions: SentQuestions, share: Share },
}

impl fmt::Debug for SentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Sent::Plan { plan, .. } => write!(f, "SentPart({})", plan.display()),
            Sent::Report { questions, .. } => write!(f, "SentPart({questions:?})"),
        }
    }
}

impl Session {
    /// Reads a part.
    ///
    /// # Errors
    /// Bytes that are no part, tables that are other ones here, and those of a lake that cannot be read.
    pub async fn read_part(
        &self,
        bytes: &[u8],
        share: &Share,
        from: &Arc<dyn Shuffled>,
    ) -> Result<SentPart> {
        // Libraries that make expressions of bytes expect some of those that they have written.
        match AssertUnwindSafe(Box::pin(self.read(bytes, share, from))).catch_unwind().await {
            Ok(part) => part,
            Err(panic) => Err(bug(panic.as_ref())),
        }
    }

    async fn read(
        &self,
        bytes: &[u8],
        share: &Share,
        from: &Arc<dyn Shuffled>,
    ) -> Result<SentPart> {
        let (header, plan) = fragment::from_bytes(bytes)?;
        if header.kind == Kind::Report {
            let tables =
                self.tables_of_part(&header).await?.into_iter().map(|(_, table)| table).collect();
            let questions = SentQuestions::read(header.domains, plan)?;
            let session = self.over_tables(tables, &header.settings)?;
            session.refuse_questions(&questions)?;
            let share = share.clone();
            return Ok(SentPart(Sent::Report { session, questions, share }));
        }
        let (codec, state) = self.codec_of_part(&header).await?;
        let plan = from_bytes(plan, &codec)?;
        plan.apply_with_subqueries(|node| match is_repeatable(node) {
            true => Ok(TreeNodeRecursion::Continue),
            // What acts, such as a function that ends statements, is computed where it was asked.
            false => plan_err!("a part has what is computed once: {}", node.display()),
        })?;
        let mut plan = reading(with_share(plan, &header.divided, share)?, from)?;
        if !pipeline::is_disabled(&state, "build_side_cache") {
            let settings = format!("{:?}", header.settings);
            plan = self.engine.plans.sides.marked(plan, &settings)?;
        }
        Ok(SentPart(Sent::Plan { plan, state: Box::new(state) }))
    }

    /// The tables that a part is about, which are what they were where it was cut.
    async fn tables_of_part(&self, header: &Header) -> Result<Vec<(Pin, Arc<LakeTable>)>> {
        let mut tables = Vec::new();
        for pin in &header.pins {
            // A path would lead to another lake.
            check_table_name(&pin.table)?;
            let table = self.catalog.at_version(&pin.table, pin.version).await?;
            if Pin::of(&table).as_ref() != Some(pin) {
                let what = format!("{} at version {} has other files", pin.table, pin.version);
                return Err(EngineError::bug(what));
            }
            tables.push((pin.clone(), table));
        }
        Ok(tables)
    }

    /// What the plan of a part is read with, and the state that it is run with.
    async fn codec_of_part(&self, header: &Header) -> Result<(Codec, SessionState)> {
        let tables = self.tables_of_part(header).await?;
        let mut domains: HashMap<String, Arc<Domain>> = HashMap::new();
        for source in &header.domains {
            let found = match source.split_once(':') {
                Some((name, log)) => self.engine.lake.domain_with_ids(name, log, None).await?,
                None => None,
            };
            domains.extend(found.map(|domain| (source.clone(), domain)));
        }
        let state = self.state_of_part(&header.settings)?;
        Ok((Codec::new(state.task_ctx(), tables, domains), state))
    }

    /// The rows of a part that was read, in the slot that this statement has.
    pub(crate) async fn rows_of_part(&self, part: &SentPart) -> Result<SendableRecordBatchStream> {
        match &part.0 {
            Sent::Plan { plan, state } => {
                let (physical, end) = self.physical(plan, state).await?;
                Ok(holding(execute_stream(physical, state.task_ctx())?, end))
            }
            Sent::Report { session, questions, share } => {
                let cells = Box::pin(session.cells_of_part(questions, share)).await?;
                let schema = cells.schema();
                let rows = futures::stream::iter([Ok(cells)]);
                Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
            }
        }
    }

    /// Runs a part for somebody else, as a statement of its own: it waits for a slot if others compute, then begins. Its
    /// first rows are there when this returns.
    ///
    /// # Errors
    /// Those of the statement.
    pub async fn run_part(
        &self,
        part: &SentPart,
        text: &str,
        options: RunOptions,
    ) -> Result<PartRows, PartError> {
        let short = |begun: &Result<_, PartError>| begun.as_ref().is_err_and(PartError::is_limit);
        let progress = options.progress.clone();
        let work = || watched(progress.clone(), Box::pin(self.begun(part)));
        let slots = &self.engine.part_admission;
        let (begun, held) = self.admitted_to(slots, text, options, work, short).await?;
        let rows = Guarded::new(begun?, held, progress);
        Ok(rows.map_err(|error| PartError::from(error).settled()).boxed())
    }

    async fn begun(&self, part: &SentPart) -> Result<SendableRecordBatchStream, PartError> {
        let work = async {
            let mut rows = self.rows_of_part(part).await?;
            let first = rows.next().await.transpose()?;
            let schema = rows.schema();
            let rows = futures::stream::iter(first.map(Ok)).chain(rows);
            let rows: SendableRecordBatchStream =
                Box::pin(RecordBatchStreamAdapter::new(schema, rows));
            Ok::<_, DataFusionError>(rows)
        };
        // A panic in a library is this part's error and nobody else's.
        match AssertUnwindSafe(Box::pin(work)).catch_unwind().await {
            Ok(rows) => rows.map_err(|error| PartError::from(error).settled()),
            Err(panic) => Err(bug(panic.as_ref()).into()),
        }
    }
}

#[cfg(test)]
mod tests;
