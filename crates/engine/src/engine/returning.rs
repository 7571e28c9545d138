//! RETURNING: rows that a statement writes or removes are held, and asked what it gives back before it commits.
//!
//! ```text
//! rows as they are stored, beside those that change them ─► held ─► SELECT … FROM these ─► commit ─► answer
//! ```
//!
//! # Invariants
//! - What cannot be given back is said before anything is committed.
//! - Subqueries read the tables as they were before the statement.
//! - What is seen of the table (`seen`) is seen of its new rows: one that does not exist for the user is not written.
//! - Held rows and the answer are memory of the statement; only columns that are asked for are held.
//!
//! # Not here
//! The query (`sql::returning`); who writes (`row_changes`, `transaction`).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, WriteOp, lit,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

use crate::base::answer::Answer;
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::scan::lake_table::stored_batch;
use crate::sql::statement::Statement;

/// What a statement gives back.
pub(crate) struct Returning {
    statement: Statement,
    query: LogicalPlan,
    held: Arc<Mutex<Held>>,
    answer: Option<(SchemaRef, Vec<RecordBatch>)>,
}

/// Rows that were written or removed.
struct Held {
    /// Of the columns of these rows, those that the query asks for, in their order.
    kept: Vec<usize>,
    /// What these are called, and their types.
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
    memory: MemoryReservation,
}

impl Held {
    fn push(&mut self, batch: &RecordBatch, sources: &[ArrayRef]) -> DfResult<()> {
        let columns: Vec<&ArrayRef> = batch.columns().iter().chain(sources).collect();
        let kept = self.kept.iter().zip(self.schema.fields()).map(|(at, field)| {
            let column = columns.get(*at).copied().ok_or_else(|| {
                EngineError::bug("RETURNING asks for a column that no written row has")
            })?;
            Ok(cast_with_options(column, field.data_type(), &CastOptions::default())?)
        });
        let kept = kept.collect::<DfResult<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let kept = RecordBatch::try_new_with_options(Arc::clone(&self.schema), kept, &options)?;
        self.memory.try_grow(kept.get_array_memory_size())?;
        self.rows.push(kept);
        Ok(())
    }
}

impl Session {
    /// INSERT, UPDATE or DELETE with RETURNING, of which `returned` is the query.
    pub(crate) async fn run_returning(
        &self,
        plan: LogicalPlan,
        returned: Statement,
    ) -> Result<Answer> {
        self.must_be_latest()?;
        let LogicalPlan::Dml(dml) = plan else {
            return Err(EngineError::bug("RETURNING of what writes no rows"));
        };
        let name = self.own_table(&dml.table_name).await?;
        let query = self.plan(&returned).await?;
        let (state, _) = self.query_state();
        // Wrong types, and columns that may not be read, are said before anything is written.
        self.optimized(&state, query.clone()).await?;
        let pool = &self.context().runtime_env().memory_pool;
        let memory = MemoryConsumer::new("rows for RETURNING").register(pool);
        let mut returning = Returning::new(returned, query, memory)?;
        match dml.op {
            WriteOp::Insert(_) => drop(self.insert(&name, dml, Some(&mut returning)).await?),
            _ => drop(Box::pin(self.change_rows(&name, dml, Some(&mut returning))).await?),
        }
        if returning.answer.is_none() {
            returning.compute(self).await?;
        }
        returning.into_answer()
    }
}

impl Returning {
    fn new(statement: Statement, query: LogicalPlan, memory: MemoryReservation) -> Result<Self> {
        let rows = rows_of(&query)?;
        let asked = columns_in(&query)?;
        // Of one table a name says enough; a part of it has another qualifier than the query has.
        let of_one = rows.iter().all(|(table, _)| table == rows.qualified_field(0).0);
        let is_asked = |table: Option<&TableReference>, field: &Field| {
            asked.iter().any(|column| {
                let relation = column.relation.as_ref();
                column.name == *field.name() && (of_one || relation.is_none() || relation == table)
            })
        };
        let kept: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter_map(|(at, (table, field))| is_asked(table, field).then_some(at))
            .collect();
        // One of no columns would be no relation.
        let kept = if kept.is_empty() { vec![0] } else { kept };
        let field =
            |at: &usize| Field::new(format!("c{at}"), rows.field(*at).data_type().clone(), true);
        let schema = Arc::new(Schema::new(kept.iter().map(field).collect::<Vec<_>>()));
        let held = Held { kept, schema, rows: Vec::new(), memory };
        Ok(Self { statement, query, held: Arc::new(Mutex::new(held)), answer: None })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows as a table of `schema` stores them, each of which is held with the columns behind these, if there are any.
    pub fn holding(
        &self,
        rows: SendableRecordBatchStream,
        schema: &SchemaRef,
    ) -> SendableRecordBatchStream {
        let (held, stored) = (Arc::clone(&self.held), Arc::clone(schema));
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let own = stored_batch(&batch, &stored)?;
            let sources = batch.columns().get(own.num_columns()..).unwrap_or_default();
            held.lock().unwrap_or_else(PoisonError::into_inner).push(&own, sources)?;
            Ok(own)
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
    }

    /// Does it ask for columns behind the first `own`?
    pub fn asks_behind(&self, own: usize) -> bool {
        self.held().kept.iter().any(|at| *at >= own)
    }

    /// Rows that are removed, and how many.
    pub async fn hold(&self, rows: SendableRecordBatchStream, schema: &SchemaRef) -> Result<u64> {
        let (mut rows, mut count) = (self.holding(rows, schema), 0);
        while let Some(batch) = rows.try_next().await? {
            count += batch.num_rows() as u64;
        }
        Ok(count)
    }

    /// Refuses rows of which two have one key: the later one would replace the other.
    pub async fn must_have_each_once(&self, session: &Session, keys: &[usize]) -> Result<()> {
        let (table, kept) = (self.table()?, self.held().kept.clone());
        let named = |at: &usize| Column::new_unqualified(format!("c{at}"));
        debug_assert!(keys.iter().all(|key| kept.contains(key)));
        let twice = LogicalPlanBuilder::scan("__held", provider_as_source(table), None)?
            .aggregate(
                keys.iter().map(|key| Expr::Column(named(key))),
                [count(lit(1)).alias("__rows")],
            )?
            .filter(Expr::Column(Column::new_unqualified("__rows")).gt(lit(1_i64)))?
            .limit(0, Some(1))?;
        let mut twice = session.run_query(twice.build()?).await?;
        while let Some(batch) = twice.try_next().await? {
            if batch.num_rows() > 0 {
                let what =
                    "INSERT … RETURNING has two rows of one primary key; nothing was written";
                return Err(EngineError::statement(SqlState::CardinalityViolation, what)
                    .with_hint("without RETURNING the later one is kept"));
            }
        }
        Ok(())
    }

    /// The columns of this table that are held whatever the query asks for.
    pub fn holds_too(&mut self, columns: &[usize]) -> Result<()> {
        let rows = rows_of(&self.query)?;
        let mut held = self.held();
        let mut kept: Vec<usize> = held.kept.iter().chain(columns).copied().collect();
        kept.sort_unstable();
        kept.dedup();
        let field =
            |at: &usize| Field::new(format!("c{at}"), rows.field(*at).data_type().clone(), true);
        held.schema = Arc::new(Schema::new(kept.iter().map(field).collect::<Vec<_>>()));
        held.kept = kept;
        Ok(())
    }

    fn table(&self) -> Result<Arc<dyn TableProvider>> {
        let held = self.held();
        let table = MemTable::try_new(Arc::clone(&held.schema), vec![held.rows.clone()])?;
        Ok(Arc::new(table))
    }

    /// What is given back: the last that can fail before the commit.
    pub async fn compute(&mut self, session: &Session) -> Result<()> {
        let (table, kept) = (self.table()?, self.held().kept.clone());
        let count: usize = self.held().rows.iter().map(RecordBatch::num_rows).sum();
        let rows = HeldRows { table, kept };
        let stream = session.run_query(rows.put_into(self.query.clone())?).await?;
        let schema = session.spell(&self.statement, &stream.schema()).await?;
        let mut stream = crate::base::answer::with_schema(stream, Arc::clone(&schema));
        let mut answer = Vec::new();
        while let Some(batch) = stream.try_next().await? {
            self.held()
                .memory
                .try_grow(batch.get_array_memory_size())
                .map_err(EngineError::from)?;
            answer.push(batch);
        }
        if answer.iter().map(RecordBatch::num_rows).sum::<usize>() != count {
            return refuse!(
                InsufficientPrivilege,
                "permission denied: a row policy hides a row that RETURNING would give back; nothing was written"
            );
        }
        self.answer = Some((schema, answer));
        Ok(())
    }

    fn into_answer(self) -> Result<Answer> {
        let (schema, batches) =
            self.answer.ok_or_else(|| EngineError::bug("nothing is given back"))?;
        let held = self.held;
        let rows = futures::stream::iter(batches).map(move |batch| {
            // Its memory goes with the last row.
            let _ = &held;
            Ok(batch)
        });
        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows));
        Ok(Answer::Rows { schema, stream })
    }
}

/// The relation that a query of RETURNING is asked of.
fn rows_of(query: &LogicalPlan) -> Result<&DFSchema> {
    match query {
        LogicalPlan::Projection(projection) => rows_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => {
            // Of a part of a table, what it is a part of.
            match scan_below(&alias.input) {
                Some(scan) if !is_plain(&alias.input) => Ok(scan.schema()),
                _ => Ok(query.schema()),
            }
        }
        LogicalPlan::TableScan(_) | LogicalPlan::Join(_) => Ok(query.schema()),
        LogicalPlan::Aggregate(_) => {
            refuse!(GroupingError, "aggregate functions are not allowed in RETURNING")
        }
        LogicalPlan::Window(_) => {
            refuse!(WindowingError, "window functions are not allowed in RETURNING")
        }
        _ => Err(EngineError::unsupported("RETURNING takes expressions over the row alone")),
    }
}

/// Is it a table as it is, whatever its name?
fn is_plain(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_plain(&alias.input),
        _ => false,
    }
}

fn scan_below(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::TableScan(_) => Some(plan),
        other => match other.inputs().as_slice() {
            [one] => scan_below(one),
            _ => None,
        },
    }
}

/// Columns that a plan has anywhere, also in subqueries.
fn columns_in(query: &LogicalPlan) -> Result<HashSet<Column>> {
    let mut columns = HashSet::new();
    query.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = expr {
                    columns.insert(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(columns)
}

/// Rows in the place of the table that a query was planned on.
struct HeldRows {
    table: Arc<dyn TableProvider>,
    kept: Vec<usize>,
}

impl HeldRows {
    fn put_into(&self, query: LogicalPlan) -> Result<LogicalPlan> {
        match query {
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let input = Arc::new(self.put_into(Arc::unwrap_or_clone(input))?);
                Ok(LogicalPlan::Projection(Projection::try_new(expr, input)?))
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) if !is_plain(&input) => {
                let put = Arc::unwrap_or_clone(input).transform_down(|node| match node {
                    LogicalPlan::TableScan(_) => Ok(Transformed::new(
                        self.called(node.schema())?,
                        true,
                        TreeNodeRecursion::Jump,
                    )),
                    other => Ok(Transformed::no(other)),
                })?;
                let put = SubqueryAlias::try_new(Arc::new(put.data), alias)?;
                Ok(LogicalPlan::SubqueryAlias(put))
            }
            rows => Ok(self.called(rows.schema())?),
        }
    }

    /// The rows under the names that a relation of that schema has for them.
    fn called(&self, schema: &DFSchema) -> DfResult<LogicalPlan> {
        let source = provider_as_source(Arc::clone(&self.table));
        let named = self.kept.iter().map(|at| {
            let (qualifier, field) = schema.qualified_field(*at);
            let held = Expr::Column(Column::new_unqualified(format!("c{at}")));
            held.alias_qualified(qualifier.cloned(), field.name())
        });
        LogicalPlanBuilder::scan(TableReference::bare("__held"), source, None)?
            .project(named.collect::<Vec<_>>())?
            .build()
    }
}
