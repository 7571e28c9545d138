//! What one statement sees of each table that it names: the whole table, or a part of it in its place.
//!
//! ```text
//! a part:  Projection: columns that exist; not_granted(c) in place of one that may not be read
//!            Filter: the condition of the rows that exist
//!              TableScan
//! ```
//!
//! # Invariants
//! - A name of a guarded session means what its statement's rights say, which were asked for once, before anything
//!   was planned; a table that they do not name cannot be planned at all.
//! - Plans about parts are made for one statement: `plan_cache` and `build_side_cache` do not see them. What is kept
//!   below them (columns, indexes, sets of rows) is of data files, whoever asks.
//!
//! # Not here
//! Who sees what (`guard`); what is pushed below the condition, where it can fail but not answer (docs/access.md).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::{Column, DataFusionError, Result as DfResult};
use datafusion::datasource::TableType;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::catalog::LakeCatalog;
use crate::engine::privileges::Readable;
use crate::functions::calls::each_call;
use crate::scan::lake_table::LakeTable;

tokio::task_local! {
    /// What the names in the statement of this task mean, if its session is guarded.
    static SEEN: Seen;
}

/// What a statement sees, by the names that it has for tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<HashMap<String, Sight>>);

/// What is seen of a table.
#[derive(Clone, Debug)]
pub(crate) enum Sight {
    Whole,
    Part(Arc<TablePart>),
}

impl From<HashMap<String, Sight>> for Seen {
    fn from(names: HashMap<String, Sight>) -> Self {
        Self(Arc::new(names))
    }
}

impl Seen {
    /// Is any of it only a part of a table?
    pub fn has_parts(&self) -> bool {
        self.0.values().any(|sight| matches!(sight, Sight::Part(_)))
    }

    /// Does `work`, in which names mean this.
    pub async fn during<F: Future>(self, work: F) -> F::Output {
        SEEN.scope(self, work).await
    }
}

/// Does the statement of this task see a part of which `test` is true?
fn any_part(test: impl Fn(&TablePart) -> bool) -> bool {
    let is_it = |sight: &Sight| matches!(sight, Sight::Part(part) if test(part));
    SEEN.try_with(|seen| seen.0.values().any(is_it)).unwrap_or(false)
}

/// Does the statement of this task see only a part of a table?
pub(crate) fn sees_parts() -> bool {
    any_part(|_| true)
}

/// Is it a column that does not exist for the statement of this task?
pub(crate) fn is_hidden(table: &LakeTable, column: &str) -> bool {
    let (name, column) = (table.snapshot().table(), column.to_lowercase());
    any_part(|part| part.table.snapshot().table() == name && part.hidden.contains(&column))
}

/// The rows and columns of a table that exist for a user.
#[derive(Debug)]
pub(crate) struct TablePart {
    table: Arc<LakeTable>,
    hidden: BTreeSet<String>,
    plan: LogicalPlan,
    schema: SchemaRef,
}

impl TablePart {
    /// What is readable of `rows`: the plan of all columns of the rows of `table` that exist.
    pub fn new(table: Arc<LakeTable>, rows: LogicalPlan, readable: Readable) -> DfResult<Self> {
        let Readable { hidden, granted, .. } = readable;
        let name: Arc<str> = table.snapshot().table().into();
        let columns = rows.schema().iter().filter(|(_, field)| !hidden.contains(field.name()));
        let columns = columns.map(|(qualifier, field)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            let is_granted = granted.as_ref().is_none_or(|granted| granted.contains(field.name()));
            match is_granted {
                true => column,
                false => not_granted(&name, field.name()).call(vec![column]).alias(field.name()),
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
        let schema = Arc::clone(plan.schema().inner());
        Ok(Self { table, hidden, plan, schema })
    }
}

#[async_trait]
impl TableProvider for TablePart {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.plan))
    }

    /// Its plan stands wherever it is read.
    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Err(EngineError::bug("a part of a table was read as a whole").into())
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.table.insert_into(state, input, op).await
    }
}

impl TablePart {
    /// Are there columns that do not exist for the user?
    pub fn hides_columns(&self) -> bool {
        !self.hidden.is_empty()
    }
}

/// The table of the lake that rows are written into, of which the statement may see a part.
pub(crate) fn written_table(target: &dyn TableProvider) -> Option<&LakeTable> {
    let part = || target.downcast_ref::<TablePart>().map(|part| part.table.as_ref());
    target.downcast_ref::<LakeTable>().or_else(part)
}

/// The lake's tables for guarded sessions.
#[derive(Debug)]
pub(crate) struct SeenTables(pub Arc<LakeCatalog>);

#[async_trait]
impl SchemaProvider for SeenTables {
    fn table_names(&self) -> Vec<String> {
        self.0.table_names()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        match SEEN.try_with(|seen| seen.0.get(name).cloned()) {
            Ok(Some(Sight::Whole)) => self.0.table(name).await,
            Ok(Some(Sight::Part(part))) => Ok(Some(part)),
            Ok(None) | Err(_) => match self.0.find(name).await {
                Ok(None) => Ok(self.0.additions.searched(name)),
                Ok(Some(_)) | Err(_) => Err(denied(format!("SELECT on table `{name}`")).into()),
            },
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.table_exist(name)
    }
}

/// What is missing.
fn denied(what: String) -> EngineError {
    let what = format!("permission denied: {what}");
    EngineError::statement(SqlState::InsufficientPrivilege, what)
        .with_hint("who may grant it is an admin: docs/access.md")
}

/// The error without the value that it may name: conditions are computed of rows as well that do not exist for whoever
/// asks.
pub(crate) fn without_values(error: EngineError) -> EngineError {
    let code = error.code();
    let is_of_value = ["22", "XX"].iter().any(|class| code.as_str().starts_with(class));
    match error {
        EngineError::Statement(_) | EngineError::Execution(_) if is_of_value => {
            EngineError::execution(code, "a value cannot be computed").with_hint(
                "which is not told, because it may be of a row that this role does not see",
            )
        }
        other => other,
    }
}

/// Refuses an optimized plan that still uses columns that may not be read.
///
/// # Errors
/// 42501, with the first table of which there are such columns.
pub(crate) fn check_granted(plan: &LogicalPlan) -> Result<()> {
    let mut used: BTreeMap<Arc<str>, BTreeSet<String>> = BTreeMap::new();
    each_call(plan, |call| {
        if let Some(NotGranted { table, column, .. }) = call.func.inner().downcast_ref() {
            used.entry(Arc::clone(table)).or_default().insert(column.clone());
        }
        Ok(())
    })?;
    match used.into_iter().next() {
        None => Ok(()),
        Some((table, columns)) => {
            let columns = columns.into_iter().collect::<Vec<_>>().join(", ");
            Err(denied(format!("SELECT on table `{table}`, columns {columns}")))
        }
    }
}

fn not_granted(table: &Arc<str>, column: &str) -> ScalarUDF {
    // Volatile, so that no rule computes it, or moves it where it could not be found.
    let signature = Signature::any(1, Volatility::Volatile);
    ScalarUDF::from(NotGranted { table: Arc::clone(table), column: column.to_owned(), signature })
}

/// A column that may not be read.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NotGranted {
    table: Arc<str>,
    column: String,
    signature: Signature,
}

impl ScalarUDFImpl for NotGranted {
    fn name(&self) -> &str {
        "not_granted"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        let first = arguments.first().cloned();
        first.ok_or_else(|| DataFusionError::Internal("not_granted takes a column".into()))
    }

    /// Plans with it are not run.
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Self { table, column, .. } = self;
        Err(denied(format!("SELECT on table `{table}`, columns {column}")).into())
    }
}
