//! From a statement to the plan that is run: names, sets and domains resolved, ids in place of keys, optimized.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use futures::future::join_all;
use uplake_table::{Domain, unknown_address};

use crate::base::answer::{Answer, with_schema};
use crate::base::error::{EngineError, Result};
use crate::base::foreign_errors::{self, missing_table};
use crate::base::progress;
use crate::base::sql_state::SqlState;
use crate::base::stop::{self, Stop};
use crate::engine::cast_columns;
use crate::engine::catalog::{CATALOG, SCHEMA};
use crate::engine::execution::{constant_row, one_batch};
use crate::engine::plan_cache::{self, CachedPlan};
use crate::engine::plan_size;
use crate::engine::privileges::Privilege;
use crate::engine::seen;
use crate::engine::session::Session;
use crate::engine::unions::Chain;
use crate::functions::domain_functions;
use crate::mends::{self};
use crate::optimizer::changes::noted;
use crate::optimizer::id_rewrite::count_ids::count_ids;
use crate::optimizer::id_rewrite::filter_ids::{self, filter_ids};
use crate::optimizer::id_rewrite::id_keys;
use crate::optimizer::id_rewrite::join_ids::JoinIds;
use crate::optimizer::id_rewrite::key_ids::highest_ids;
use crate::optimizer::pipeline;
use crate::scan::lake_table::Tables;
use crate::sql::inner_functions::use_first_names;
use crate::sql::order_by_all::sorted_by_all;
use crate::sql::result_names::written_names;
use crate::sql::returning;
use crate::sql::row_changes::{as_deletion, is_deletion_by_other_name, plannable};
use crate::sql::statement::{self, Statement, with_lower_case};
use crate::sql::with_queries;
use crate::sql::words::split_version;

impl Session {
    /// Runs one statement now, whoever else computes.
    pub(crate) async fn run_now(&self, statement: &Statement) -> Result<Answer> {
        self.catalog.begin_statement();
        // On the heap: a thread of 2 MiB may poll this.
        let bound = Box::pin(self.executed(statement)).await?;
        let statement = bound.as_ref().unwrap_or(statement);
        let with_views = Box::pin(self.with_views(statement)).await?;
        let statement = with_views.as_ref().unwrap_or(statement);
        let seen = self.check_rights(statement).await?;
        let has_parts = seen.has_parts();
        let answer = Box::pin(seen.during(self.run_seeing(statement))).await;
        if !has_parts {
            return answer;
        }
        Ok(match answer.map_err(seen::without_values)? {
            Answer::Rows { schema, stream } => {
                let rows = stream.map_err(|error| seen::without_values(error.into()).into());
                let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), rows);
                Answer::Rows { schema, stream: Box::pin(stream) }
            }
            done @ Answer::Done { .. } => done,
        })
    }

    /// The same, once it is known what the statement sees.
    async fn run_seeing(&self, statement: &Statement) -> Result<Answer> {
        Box::pin(self.settle(statement)).await?;
        if let Some(answer) = Box::pin(self.run_own(statement)).await? {
            return Ok(answer);
        }
        if statement.only_asks() && self.engine.lake.is_remote() {
            let references = self.references_of_lake(&statement.parsed)?;
            // An error, too, can come from what a table was.
            if let Some(belief) = self.catalog.believe(references.iter().map(|r| r.table())).await
                && let Some(answer) =
                    self.catalog.during(belief, Box::pin(self.answer(statement))).await
            {
                return answer;
            }
        }
        Box::pin(self.answer(statement)).await
    }

    async fn answer(&self, statement: &Statement) -> Result<Answer> {
        let mut tables = None;
        let answer = if plan_cache::may_be_kept(statement) && !seen::sees_parts() {
            let named = tables.insert(self.tables_of(&statement.parsed).await?);
            Box::pin(self.ask(statement, named)).await?
        } else {
            let plan = Box::pin(self.plan(statement)).await?;
            if let Some(returned) = statement.returned() {
                return Box::pin(self.run_returning(plan, returned)).await;
            }
            Box::pin(self.run_plan(copied_as_written(plan, statement)?)).await?
        };
        match answer {
            Answer::Rows { schema, stream } => {
                let schema = match &tables {
                    Some(tables) => spelled(statement, &schema, &mixed_case_columns(tables)),
                    None => self.spell(statement, &schema).await?,
                };
                Ok(Answer::Rows { stream: with_schema(stream, Arc::clone(&schema)), schema })
            }
            done @ Answer::Done { .. } => Ok(done),
        }
    }

    /// A query's answer, by the plan that it had before if nothing has changed.
    async fn ask(&self, statement: &Statement, tables: &Tables) -> Result<Answer> {
        let settings = self.settings();
        let known = self.engine.plans.of(&settings, statement, tables);
        if let Some(cached) = &known
            && let Some(row) = constant_row(&cached.optimized)
        {
            // Its state, which is copied for each plan, would take longer than all else.
            progress::is_planned();
            let stream = one_batch(row);
            return Ok(Answer::Rows { schema: stream.schema(), stream });
        }
        let (state, _) = self.query_state();
        let cached = match known {
            Some(cached) => cached,
            None => {
                let plan = self.parsed_plan(statement).await?;
                let decided = plan_cache::is_decided(&plan, tables)?;
                let plan = self.resolved(plan, statement).await?;
                if !decided {
                    return Box::pin(self.run_plan(plan)).await;
                }
                let mut cached = self.planned(&state, plan).await?;
                let is_on = |rule: &str| !pipeline::is_disabled(&state, rule);
                if cached.whole {
                    if is_on("build_side_cache") {
                        let sides = &self.engine.plans.sides;
                        cached.optimized = sides.marked(cached.optimized, &settings)?;
                    }
                    if is_on("plan_cache") {
                        let plan = cached.clone();
                        self.engine.catalog.keep_plan(&settings, statement, tables, plan);
                    }
                }
                cached
            }
        };
        let plan = self.with_keys(&state, cached).await?;
        let stream = self.run_optimized(&plan, &state).await?;
        Ok(Answer::Rows { schema: stream.schema(), stream })
    }

    /// The row of a query that is literals alone and was asked before: at once, without a slot. Connection pools ask such
    /// ones (`SELECT 1`) before each use. `None` of all others.
    pub fn known_row(&self, statement: &Statement) -> Option<RecordBatch> {
        if !plan_cache::may_be_kept(statement) || !statement.values.is_empty() {
            return None;
        }
        let known = self.engine.plans.of(&self.settings(), statement, &Tables::new())?;
        let row = constant_row(&known.optimized)?;
        let schema = spelled(statement, &row.schema(), &HashMap::new());
        RecordBatch::try_new(schema, row.columns().to_vec()).ok()
    }

    /// Runs a text of statements and returns the rows of the last one.
    ///
    /// # Errors
    /// The first statement that fails ends it.
    pub async fn query(&self, text: &str) -> Result<Vec<RecordBatch>> {
        let mut last = Vec::new();
        for statement in statement::parse(text)? {
            last = match self.run(&statement).await? {
                Answer::Rows { stream, .. } => stream.try_collect().await?,
                Answer::Done { .. } => Vec::new(),
            };
        }
        Ok(last)
    }

    pub(crate) async fn plan(&self, statement: &Statement) -> Result<LogicalPlan> {
        let plan = self.parsed_plan(statement).await?;
        self.resolved(plan, statement).await
    }

    /// What the text says.
    pub(crate) async fn parsed_plan(&self, statement: &Statement) -> Result<LogicalPlan> {
        let exact = mixed_case_columns(&self.tables_of(&statement.parsed).await?);
        let state = self.context().state();
        let first_name = |name: &str| {
            let called = state.scalar_functions().get(name)?;
            (called.name() != name).then(|| called.name().to_owned())
        };
        let spelled = || -> Result<_> {
            let mut parsed = match exact.is_empty() {
                true => statement.parsed.clone(),
                false => with_lower_case(statement, &exact.values().cloned().collect())?,
            };
            use_first_names(&mut parsed, &first_name);
            Ok(match statement.is_returned {
                true => returning::query_of(&parsed).unwrap_or(parsed),
                false => returning::without(parsed),
            })
        };
        let parsed = spelled()?;
        with_queries::check(&parsed)?;
        let about_all = |r: &TableReference| r.schema() == Some(INFORMATION_SCHEMA);
        if self.references_of_lake(&parsed)?.iter().any(about_all) {
            self.catalog.read_names().await?;
        }
        let is_deletion = is_deletion_by_other_name(&parsed);
        let in_pieces = match Chain::of(&parsed) {
            Some(chain) => Box::pin(chain.plan(&state)).await?,
            None => None,
        };
        let planned = match in_pieces {
            Some(plan) => Ok(plan),
            None => state.statement_to_plan(plannable(parsed)).await,
        };
        let planned = if is_deletion { planned.map(as_deletion) } else { planned };
        let (lacks_group, repeats_name) = match &planned {
            Ok(plan) => {
                plan_size::check(plan)?;
                (false, mends::repeats_key(plan)?)
            }
            Err(error) => (foreign_errors::lacks_group(error), foreign_errors::repeats_name(error)),
        };
        let mended = match lacks_group || repeats_name {
            true => self.plan_otherwise(spelled()?, lacks_group, repeats_name).await?,
            false => None,
        };
        let plan = match (mended, planned) {
            (Some(plan), _) | (None, Ok(plan)) => plan,
            (None, Err(error)) => return Err(self.explain(error, statement).await),
        };
        let mut plan = sorted_by_all(crate::sql::merged_joins::without_marks(plan)?)?;
        if !statement.values.is_empty() {
            plan = plan.with_param_values(statement.values.clone())?;
        }
        if statement.ignores_conflicts { self.ignoring_conflicts(plan) } else { Ok(plan) }
    }

    /// The plan of a statement that was refused because it groups by primary keys, or because two of its
    /// columns have one name.
    async fn plan_otherwise(
        &self,
        mut parsed: datafusion::sql::parser::Statement,
        mut lacks_group: bool,
        mut repeats_name: bool,
    ) -> Result<Option<LogicalPlan>> {
        let mut state = self.context().state();
        state.register_udf(mends::named_cast())?;
        // One may only show when the other has been mended.
        for _ in 0..2 {
            if lacks_group {
                let tables = self.tables_of(&parsed).await?;
                let is_aggregate = |name: &str| state.aggregate_functions().contains_key(name);
                if !mends::name_decided_columns(&mut parsed, &tables, &is_aggregate) {
                    mends::name_apart(&mut parsed, true);
                }
            } else if repeats_name {
                mends::name_apart(&mut parsed, false);
            } else {
                return Ok(None);
            }
            match state.statement_to_plan(parsed.clone()).await {
                Ok(plan) => {
                    plan_size::check(&plan)?;
                    return Ok(Some(mends::with_names(plan)?));
                }
                Err(error) => {
                    lacks_group = !lacks_group && foreign_errors::lacks_group(&error);
                    repeats_name = !repeats_name && foreign_errors::repeats_name(&error);
                }
            }
        }
        Ok(None)
    }

    /// The plan with the sets of ids and the domains that it names.
    async fn resolved(&self, plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
        let plan = self.resolve_id_sets(plan, statement).await?;
        self.resolve_domains(plan).await
    }

    /// The plan with the domains that its functions name, each read to the end of its log.
    async fn resolve_domains(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let names = domain_functions::named_domains(&plan)?;
        if names.is_empty() {
            return Ok(plan);
        }
        if let Some(guard) = &self.guard {
            names.iter().try_for_each(|name| guard.check(Privilege::AskDomain, name))?;
        }
        let mut domains = HashMap::new();
        for name in names {
            let domain = self.engine.lake.domain(&name).await?;
            domains.insert(name, domain);
        }
        Ok(domain_functions::resolve(plan, &domains)?)
    }

    /// The answer's schema with columns spelled as their tables spell them: `userid` comes out as `UserId`.
    pub(crate) async fn spell(
        &self,
        statement: &Statement,
        schema: &SchemaRef,
    ) -> Result<SchemaRef> {
        let tables = self.tables_of(&statement.parsed).await?;
        Ok(spelled(statement, schema, &mixed_case_columns(&tables)))
    }

    /// The lake's tables that a statement names, by the names that it has for them.
    async fn tables_of(&self, parsed: &datafusion::sql::parser::Statement) -> Result<Tables> {
        let references = self.references_of_lake(parsed)?;
        // All at once: in a bucket each is some round trips. All to their ends, because one that is
        // dropped while the log is read leaves a thread that panics.
        let find = references.iter().map(|reference| self.catalog.find(reference.table()));
        let found = references.iter().zip(join_all(find).await);
        let named = found.filter_map(|(reference, table)| {
            let name = reference.table().to_owned();
            Some(table.transpose()?.map(|table| (name, table)))
        });
        Ok(named.collect::<Result<_, _>>()?)
    }

    /// The names in a statement that may be the lake's tables.
    fn references_of_lake(
        &self,
        parsed: &datafusion::sql::parser::Statement,
    ) -> Result<Vec<TableReference>> {
        let mut references = self.references(parsed)?;
        references.retain(|reference| !self.catalog.additions.names(reference));
        Ok(references)
    }

    /// The names of tables in a statement.
    pub(crate) fn references(
        &self,
        parsed: &datafusion::sql::parser::Statement,
    ) -> Result<Vec<TableReference>> {
        Ok(self.context().state_ref().read().resolve_table_references(parsed)?)
    }

    /// A missing table's message names the tables there are; an unknown type has its place.
    async fn explain(&self, error: DataFusionError, statement: &Statement) -> EngineError {
        let missing = missing_table(&error);
        let unknown = foreign_errors::unknown_type(&error);
        let error = EngineError::from(error);
        if let Some(name) = unknown {
            return error.at(statement.place_of_type(&name));
        }
        let Some(name) = missing else { return error };
        let prefix = format!("{CATALOG}.{SCHEMA}.");
        let name = split_version(name.strip_prefix(&prefix).unwrap_or(&name)).0;
        let known = self.listed_tables().await.unwrap_or_default();
        let is_file = name.contains('/')
            || [".parquet", ".csv", ".json", ".gz", ".zst"].iter().any(|e| name.ends_with(e));
        let unknown = unknown_address(name).filter(|_| !name.starts_with("file://"));
        let refused = if let Some(message) = unknown {
            EngineError::statement(SqlState::InvalidParameterValue, message)
        } else if is_file {
            let message = format!(
                "no file matches '{name}' (Parquet, CSV and JSON files can be read in place)"
            );
            EngineError::statement(SqlState::UndefinedFile, message)
        } else if self.listed_views().await.is_ok_and(|views| views.iter().any(|view| view == name))
        {
            let what = format!("`{name}` is a view, and reports read tables");
            let hint = format!("make a table of it: CREATE TABLE … AS SELECT * FROM {name}");
            EngineError::unsupported(what).with_hint(hint)
        } else {
            let hint = match known.is_empty() {
                true => format!(
                    "the lake {} is empty, load a file first: uplake load {name} FILE",
                    self.engine.lake.location()
                ),
                false => format!("the lake has {}", known.join(", ")),
            };
            let message = format!("there is no table `{name}`");
            EngineError::statement(SqlState::UndefinedTable, message).with_hint(hint)
        };
        refused.at(error.position())
    }

    /// The plan as it is run, with ids in place of keys where that changes nothing but the speed.
    pub(crate) async fn optimized(
        &self,
        state: &SessionState,
        plan: LogicalPlan,
    ) -> Result<LogicalPlan> {
        let cached = self.planned(state, plan).await?;
        self.with_keys(state, cached).await
    }

    /// That plan, which still has to be told the domains that it takes keys from.
    async fn planned(&self, state: &SessionState, plan: LogicalPlan) -> Result<CachedPlan> {
        let is_on = |rule: &str| !pipeline::is_disabled(state, rule);
        let mut before = match is_on("count_ids") {
            true => noted(plan, "count_ids", count_ids)?,
            false => plan,
        };
        stop::check()?;
        let sources = match is_on("filter_ids") {
            true => filter_ids::wanted_sources(&before)?,
            false => HashSet::new(),
        };
        let wanted = sources.len();
        // A domain that cannot be read makes the statement slower, no more.
        let domains = self.domains_of(sources, &before).await?;
        if !domains.is_empty() {
            before = noted(before, "filter_ids", |plan| filter_ids(plan, &domains))?;
        }
        let whole = domains.len() == wanted;
        let optimized = optimize(state.clone(), before.clone()).await?;
        if self.guard.is_some() {
            seen::check_granted(&optimized)?;
        }
        let takes_keys = !id_keys::wanted_sources(&optimized)?.is_empty();
        Ok(CachedPlan { optimized, before: takes_keys.then_some(before), whole })
    }

    async fn with_keys(&self, state: &SessionState, cached: CachedPlan) -> Result<LogicalPlan> {
        let CachedPlan { optimized, before, .. } = cached;
        let Some(before) = before else { return Ok(optimized) };
        let sources = id_keys::wanted_sources(&optimized)?;
        let wanted = sources.len();
        let domains = self.domains_of(sources, &before).await?;
        if domains.len() < wanted {
            // The keys are in the data files, too.
            return self.without_ids(state, before).await;
        }
        Ok(id_keys::resolve(optimized, &domains)?)
    }

    /// The domains and logs of that name that can be read, with every id that the plan's tables have.
    async fn domains_of(
        &self,
        sources: HashSet<String>,
        plan: &LogicalPlan,
    ) -> Result<HashMap<String, Arc<Domain>>> {
        if sources.is_empty() {
            return Ok(HashMap::new());
        }
        let highest = highest_ids(plan)?;
        let mut domains = HashMap::new();
        for source in sources {
            let Some((name, log)) = source.split_once(':') else { continue };
            let highest = highest.get(&source).copied().flatten();
            if let Ok(domain) = self.engine.lake.domain_with_ids(name, log, highest).await {
                domains.extend(domain.map(|domain| (source, domain)));
            }
        }
        Ok(domains)
    }

    /// The plan with keys compared where ids could be.
    async fn without_ids(&self, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
        let rules = state.optimizer().rules.iter().filter(|rule| rule.name() != JoinIds.name());
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_optimizer_rules(rules.cloned().collect())
            .build();
        optimize(state, plan).await
    }
}

/// The plan as it is run. It takes seconds of large statements; it ends with its next step once nobody waits for it.
async fn optimize(state: SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let stop = Stop::default();
    let work = SpawnedTask::spawn(stop.inherited(async move {
        let optimized = state.optimize(&plan).map_err(|error| cast_columns::named(error, &plan))?;
        // EXPLAIN shows the error of a step instead of failing with it.
        stop::check()?;
        Ok::<_, EngineError>(optimized)
    }));
    match work.join().await {
        Ok(optimized) => optimized,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(EngineError::bug(error.to_string())),
        },
    }
}

/// Columns of tables whose names are not lower case, by lower-case name.
fn mixed_case_columns(tables: &Tables) -> HashMap<String, String> {
    let is_mixed = |field: &&Arc<Field>| field.name().chars().any(|c| c.to_lowercase().ne([c]));
    let mixed = tables.iter().flat_map(|(_, table)| {
        let fields = table.snapshot().schema().fields().iter().filter(is_mixed);
        fields.filter(|field| !seen::is_hidden(table, field.name()))
    });
    mixed.map(|field| (field.name().to_lowercase(), field.name().clone())).collect()
}

/// A COPY, whose columns are called as those of its query are.
fn copied_as_written(plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
    let LogicalPlan::Copy(mut copy) = plan else { return Ok(plan) };
    let columns = copy.input.schema().columns();
    let written = written_names(&statement.named, columns.len());
    let names = columns.iter().zip(&written);
    let names: HashSet<&String> =
        names.map(|(column, written)| written.as_ref().unwrap_or(&column.name)).collect();
    // Those that are called alike have two names in a file.
    if written.iter().all(Option::is_none) || names.len() < columns.len() {
        return Ok(LogicalPlan::Copy(copy));
    }
    let named = columns.into_iter().zip(written).map(|(column, written)| match written {
        Some(name) => Expr::Column(column).alias(name),
        None => Expr::Column(column),
    });
    let named: Vec<Expr> = named.collect();
    let input = LogicalPlanBuilder::from(copy.input.as_ref().clone()).project(named)?.build()?;
    copy.input = Arc::new(input);
    Ok(LogicalPlan::Copy(copy))
}

/// The schema with these columns as their tables spell them, and others as the statement has them.
fn spelled(
    statement: &Statement,
    schema: &SchemaRef,
    exact: &HashMap<String, String>,
) -> SchemaRef {
    let name = |(field, written): (&Arc<Field>, Option<String>)| -> String {
        let shown = mends::shown_name(field.name());
        let exact = || exact.get(shown).map_or(shown, String::as_str).to_owned();
        written.unwrap_or_else(exact)
    };
    let written = written_names(&statement.named, schema.fields().len());
    let names: Vec<String> = schema.fields().iter().zip(written).map(name).collect();
    let fields = || schema.fields().iter().zip(&names);
    if fields().all(|(field, name)| name == field.name()) {
        return Arc::clone(schema);
    }
    let named = |(field, name): (&Arc<Field>, &String)| {
        Arc::new(field.as_ref().clone().with_name(name.clone()))
    };
    let fields: Vec<_> = fields().map(named).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
