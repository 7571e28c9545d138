//! Stored sets of ids: making them, finding them in statements.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;

use crate::base::answer::{Answer, done, rows_answer};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::privileges::Privilege;
use crate::engine::session::Session;
use crate::sql::id_set::{IdSet, SetName, resolve, stored_names};
use crate::sql::statement::{IdSetStatement, Statement};

/// Ids of a stored set; it is held in memory while statements use it.
const MAX_IDS: usize = 50_000_000;
impl Session {
    /// The plan with the statement's lists and the lake's sets in place of their names.
    pub(crate) async fn resolve_id_sets(
        &self,
        plan: LogicalPlan,
        statement: &Statement,
    ) -> Result<LogicalPlan> {
        let names = stored_names(&plan)?;
        if names.is_empty() && statement.lists.is_empty() {
            return Ok(plan);
        }
        let mut stored = HashMap::new();
        for name in names {
            if let Some(guard) = &self.guard {
                guard.check(Privilege::UseIdSet, &name)?;
            }
            let set = self.stored_set(&name).await?;
            stored.insert(name, set);
        }
        let set_of = |name: &SetName| match name {
            SetName::List(number) => statement.lists.get(*number).cloned(),
            SetName::Stored(name) => stored.get(name).cloned(),
        };
        Ok(resolve(plan, &set_of)?)
    }

    async fn stored_set(&self, name: &str) -> Result<Arc<IdSet>> {
        let info = self.engine.lake.id_set_info(name).await?;
        if let Some(set) = info.as_ref().and_then(|info| self.engine.id_sets.get(name, info)) {
            return Ok(set);
        }
        let set = Arc::new(IdSet::of_array(&self.engine.lake.read_id_set(name).await?)?);
        if let Some(info) = info {
            self.engine.id_sets.keep(name, info, &set);
        }
        Ok(set)
    }

    pub(crate) async fn run_id_set(
        &self,
        about: &IdSetStatement,
        statement: &Statement,
    ) -> Result<Answer> {
        match about {
            IdSetStatement::Create { name, replace } => {
                self.must_be_latest()?;
                let ids = self.collect_ids(statement).await?;
                let count = ids.len();
                self.engine.lake.write_id_set(name, ids, *replace).await?;
                Ok(done(format!("created id set {name} with {count} ids"), Some(count as u64)))
            }
            IdSetStatement::Drop { name, if_exists } => {
                self.must_be_latest()?;
                let dropped = self.engine.lake.drop_id_set(name).await?;
                if !dropped && !if_exists {
                    let what = format!("there is no id set `{name}`");
                    return Err(EngineError::statement(SqlState::UndefinedObject, what)
                        .with_hint("SHOW ID SETS lists them"));
                }
                let verb = if dropped { "dropped" } else { "there is no" };
                Ok(done(format!("{verb} id set {name}"), None))
            }
            IdSetStatement::Show => self.show_id_sets().await,
        }
    }

    /// The distinct ids of a query of one column, sorted, without NULL.
    async fn collect_ids(&self, statement: &Statement) -> Result<ArrayRef> {
        let plan = self.plan(statement).await?;
        let fields = plan.schema().fields();
        let [field] = fields.as_ref() else {
            return refuse!(
                SyntaxError,
                "an id set is made of one column; the query has {}",
                fields.len()
            );
        };
        let data_type = field.data_type().clone();
        let is_text =
            matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        if !is_text && !data_type.is_integer() {
            return refuse!(
                DatatypeMismatch,
                "an id set is made of text or whole numbers; the query's column is {}",
                uplake_table::type_name(&data_type)
            );
        }
        let mut stream = self.run_query(plan).await?;
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut rows = 0;
        while let Some(batch) = stream.try_next().await? {
            rows += batch.num_rows();
            if rows > MAX_IDS {
                let what = format!("an id set takes {MAX_IDS} ids at most");
                return Err(EngineError::statement(SqlState::ProgramLimitExceeded, what)
                    .with_hint("write SELECT DISTINCT, or join a table"));
            }
            parts.push(Arc::clone(batch.column(0)));
        }
        let parts: Vec<&dyn datafusion::arrow::array::Array> =
            parts.iter().map(AsRef::as_ref).collect();
        let ids = match parts.as_slice() {
            [] => datafusion::arrow::array::new_empty_array(&data_type),
            parts => concat(parts).map_err(DataFusionError::from)?,
        };
        let ids = IdSet::of_array(&ids).map_err(|_| {
            let message = "an id set takes whole numbers up to 9223372036854775807";
            EngineError::statement(SqlState::NumericValueOutOfRange, message)
        })?;
        Ok(ids.to_array())
    }

    async fn show_id_sets(&self) -> Result<Answer> {
        let sets = self.engine.lake.id_sets().await?;
        let names: StringArray = sets.iter().map(|s| Some(s.name.as_str())).collect();
        let bytes: Int64Array = sets.iter().map(|s| Some(s.bytes as i64)).collect();
        let made: TimestampMillisecondArray =
            sets.iter().map(|s| Some(s.modified_millis)).collect();
        rows_answer(vec![
            ("id_set_name", Arc::new(names)),
            ("bytes", Arc::new(bytes)),
            ("created_at", Arc::new(made)),
        ])
    }
}
