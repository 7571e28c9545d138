//! What whoever makes an engine adds to it: schemas whose tables are made when they are asked for, and functions
//! that know who asks.
//!
//! # Invariants
//! - A bare name is the lake's table of that name, if there is one, before it is one of ours.
//! - A table or function of these is never part of a plan that is kept, so that what one session has set is never
//!   seen by another.
//!
//! # Not here
//! What they say: a server has catalogs, for example.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, InformationSchemaProvider};
use datafusion::catalog::{CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result as DfResult, TableReference, plan_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TableProviderFilterPushDown, TableType, Volatility, col, lit,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::engine::stored_rows::StoredRows;

/// Tables that are made when they are asked for.
#[async_trait]
pub trait AddedSchema: fmt::Debug + Send + Sync {
    /// Its name, in lower case.
    fn name(&self) -> &str;

    /// May its tables be named without it?
    fn is_searched(&self) -> bool;

    /// The names of its tables.
    fn tables(&self) -> Vec<String>;

    /// The columns of a table; `None` if there is no such table.
    fn columns(&self, table: &str) -> Option<SchemaRef>;

    /// The rows of a table, with [`Self::columns`], for the session with these facts.
    ///
    /// # Errors
    /// Whatever the statement shall fail with.
    async fn rows(&self, table: &str, facts: &SessionFacts) -> Result<AddedRows>;

    /// What another table of the schema adds up to, if the table is that.
    fn summary(&self, _table: &str) -> Option<Summary> {
        None
    }
}

/// Rows of an added table.
pub struct AddedRows {
    pub made: RecordBatch,
    /// Further ones.
    pub stored: Option<StoredRows>,
}

/// A table that is another one's rows, added up.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The other.
    pub of: &'static str,
    /// Names and the columns whose values each group has one of.
    pub groups: &'static [(&'static str, &'static str)],
    /// The column with the number of rows.
    pub count: &'static str,
    /// Names and the columns that are added up.
    pub sums: &'static [(&'static str, &'static str)],
}

impl Summary {
    /// What it is of the rows of `table`.
    fn plan(&self, table: Arc<dyn TableProvider>) -> DfResult<LogicalPlan> {
        let groups: Vec<Expr> = self.groups.iter().map(|(_, column)| col(*column)).collect();
        let sums = self.sums.iter().map(|(name, column)| sum(col(*column)).alias(*name));
        let sums: Vec<Expr> = [count(lit(1)).alias(self.count)].into_iter().chain(sums).collect();
        let names = self.groups.iter().map(|(name, column)| col(*column).alias(*name));
        let sum_names = self.sums.iter().map(|(name, _)| *name);
        let columns = names.chain([self.count].into_iter().chain(sum_names).map(col));
        LogicalPlanBuilder::scan(self.of, provider_as_source(table), None)?
            .aggregate(groups, sums)?
            .project(columns.collect::<Vec<_>>())?
            .build()
    }
}

/// What a session is told about who uses it, by name: functions and tables that are added see it.
#[derive(Clone, Debug, Default)]
pub struct SessionFacts(Arc<BTreeMap<String, String>>);

impl SessionFacts {
    /// The fact of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, name: &str, value: Option<&str>) {
        let facts = Arc::make_mut(&mut self.0);
        match value {
            Some(value) => facts.insert(name.to_owned(), value.to_owned()),
            None => facts.remove(name),
        };
    }
}

impl<const N: usize> From<[(&str, &str); N]> for SessionFacts {
    fn from(facts: [(&str, &str); N]) -> Self {
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(Arc::new(facts.into()))
    }
}

impl ConfigExtension for SessionFacts {
    const PREFIX: &'static str = "uplake_facts";
}

impl ExtensionOptions for SessionFacts {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    /// Who uses a session is not for a statement to say.
    fn set(&mut self, key: &str, _: &str) -> DfResult<()> {
        let message = format!("there is no setting {}.{key}", Self::PREFIX);
        Err(EngineError::statement(SqlState::UndefinedObject, message).into())
    }

    /// They are no settings.
    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// What an argument of an added function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Text,
    /// A whole number, or a text of one.
    Number,
    Truth,
    /// A text, or a whole number.
    TextOrNumber,
    /// Whatever it is.
    Anything,
}

/// The arguments of one call, each with a value for every row.
pub struct Call<'a> {
    pub values: Vec<ArrayRef>,
    pub rows: usize,
    pub facts: &'a SessionFacts,
}

type Compute = dyn Fn(&Call<'_>) -> Result<ArrayRef> + Send + Sync;

/// A function of rows that knows who asks.
#[derive(Clone)]
pub struct AddedFunction {
    /// Its name in lower case, by which it is called also with the schema before it.
    pub name: &'static str,
    pub schema: &'static str,
    /// What it takes: one list for each way to call it.
    pub takes: Vec<Vec<Takes>>,
    pub gives: DataType,
    /// It does something, so it is called once for each row, and not before a statement runs.
    pub acts: bool,
    pub compute: Arc<Compute>,
}

impl fmt::Debug for AddedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// What somebody else has done.
#[derive(Clone, Debug)]
pub enum AddedAnswer {
    /// What it was, in words.
    Done(String),
    Rows(RecordBatch),
}

/// Answers the statements that the engine does not: who may connect, and who may what.
#[async_trait]
pub trait AddedStatements: fmt::Debug + Send + Sync {
    /// Answers one of them for the session with these facts. It sees to it itself who may run it.
    ///
    /// # Errors
    /// Whatever the statement shall fail with, with places in `text`.
    async fn run(&self, text: &str, facts: SessionFacts) -> Result<AddedAnswer>;
}

/// All that is added to an engine.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    pub schemas: Vec<Arc<dyn AddedSchema>>,
    pub functions: Vec<AddedFunction>,
    pub statements: Option<Arc<dyn AddedStatements>>,
}

impl Additions {
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        self.schemas.iter().any(|schema| schema.name() == name)
    }

    /// Is it a name with one of the schemas?
    pub(crate) fn names(&self, reference: &TableReference) -> bool {
        reference.schema().is_some_and(|schema| self.has_schema(schema))
    }

    pub(crate) fn scalar_functions(&self) -> Vec<Arc<ScalarUDF>> {
        let made = self.functions.iter().cloned().map(Function::new);
        made.map(|function| Arc::new(ScalarUDF::from(function))).collect()
    }

    /// The table of a bare name.
    pub(crate) fn searched(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let mut searched = self.schemas.iter().filter(|schema| schema.is_searched());
        searched.find_map(|schema| Table::of(schema, name))
    }

    /// The schemas for a context's catalog, by name.
    pub(crate) fn providers(
        &self,
        catalogs: &Arc<dyn CatalogProviderList>,
    ) -> Vec<(String, Arc<dyn SchemaProvider>)> {
        let provider = |schema: &Arc<dyn AddedSchema>| {
            let others = (schema.name() == INFORMATION_SCHEMA).then(|| Arc::downgrade(catalogs));
            let provider = Provider { schema: Arc::clone(schema), others };
            (schema.name().to_owned(), Arc::new(provider) as Arc<dyn SchemaProvider>)
        };
        self.schemas.iter().map(provider).collect()
    }
}

/// A schema for DataFusion.
#[derive(Debug)]
struct Provider {
    schema: Arc<dyn AddedSchema>,
    /// Where DataFusion's own tables about catalogs are from: SHOW reads them. The list holds this provider.
    others: Option<Weak<dyn CatalogProviderList>>,
}

#[async_trait]
impl SchemaProvider for Provider {
    fn table_names(&self) -> Vec<String> {
        self.schema.tables()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if let Some(summary) = self.schema.summary(name)
            && let Some(table) = Table::of(&self.schema, summary.of)
        {
            return Ok(Some(Arc::new(ViewTable::new(summary.plan(table)?, None))));
        }
        if let Some(table) = Table::of(&self.schema, name) {
            return Ok(Some(table));
        }
        let Some(catalogs) = self.others.as_ref().and_then(Weak::upgrade) else { return Ok(None) };
        InformationSchemaProvider::new(catalogs).table(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.schema.columns(name).is_some()
    }
}

#[derive(Debug)]
struct Table {
    schema: Arc<dyn AddedSchema>,
    name: String,
    columns: SchemaRef,
}

impl Table {
    fn of(schema: &Arc<dyn AddedSchema>, name: &str) -> Option<Arc<dyn TableProvider>> {
        let columns = schema.columns(name)?;
        Some(Arc::new(Self { schema: Arc::clone(schema), name: name.to_owned(), columns }))
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let facts = SessionFacts::of(state.config_options());
        let rows = self.schema.rows(&self.name, &facts).await?;
        let columns = Arc::clone(&self.columns);
        let made: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![rows.made]], columns, projection.cloned())?;
        let Some(stored) = rows.stored else { return Ok(made) };
        let stored = stored.scan(state, &made.schema(), filters).await?;
        UnionExec::try_new(vec![made, stored])
    }

    /// Files can be left out by them.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// A function for DataFusion.
struct Function {
    added: AddedFunction,
    aliases: Vec<String>,
    signature: Signature,
}

impl Function {
    fn new(added: AddedFunction) -> Self {
        let aliases = vec![format!("{}.{}", added.schema, added.name)];
        // Not immutable: plans with it are not kept.
        let volatility = if added.acts { Volatility::Volatile } else { Volatility::Stable };
        Self { added, aliases, signature: Signature::user_defined(volatility) }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.added.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.added.name == other.added.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.added.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.added.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> DfResult<Vec<DataType>> {
        let taken = |form: &Vec<Takes>| -> Option<Vec<DataType>> {
            (form.len() == given.len()).then_some(())?;
            form.iter().zip(given).map(|(takes, given)| coerced(*takes, given)).collect()
        };
        match self.added.takes.iter().find_map(taken) {
            Some(types) => Ok(types),
            None => {
                let given: Vec<String> = given.iter().map(ToString::to_string).collect();
                plan_err!("there is no function {}({})", self.added.name, given.join(", "))
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.added.gives.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let values = args.args.iter().map(|value| value.to_array(rows));
        let values = values.collect::<DfResult<Vec<_>>>()?;
        let facts = SessionFacts::of(&args.config_options);
        let computed = (self.added.compute)(&Call { values, rows, facts: &facts })?;
        if constant {
            let value = datafusion::common::ScalarValue::try_from_array(&computed, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(computed))
    }
}

/// The type that a value of type `given` is brought to; `None` if it is not taken.
fn coerced(takes: Takes, given: &DataType) -> Option<DataType> {
    let is_text = given.is_string() || given.is_null();
    let is_number = given.is_integer();
    match takes {
        Takes::Text if is_text => Some(DataType::Utf8),
        Takes::Number if is_text || is_number => Some(DataType::Int64),
        Takes::Truth if matches!(given, DataType::Boolean | DataType::Null) => {
            Some(DataType::Boolean)
        }
        Takes::TextOrNumber if is_number => Some(DataType::Int64),
        Takes::TextOrNumber if is_text => Some(DataType::Utf8),
        Takes::Anything => Some(given.clone()),
        _ => None,
    }
}
