//! Statements that change the lake or look at it: CREATE, DROP, SHOW TABLES, DESCRIBE.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Constraint, Constraints, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DdlStatement, DmlStatement, Expr, ExprSchemable, LogicalPlan, Projection, SetVariable,
    Statement as PlanStatement, WriteOp,
};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use uplake_table::{
    IdDomainSpec, IndexKind, IndexSpec, StreamWriter, TableDefinition, WriteKind, create_table,
};

use crate::base::answer::{Answer, done, first_count, rows_answer};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::settings::no_setting;
use crate::base::sql_state::SqlState;
use crate::engine::alter::commented;
use crate::engine::catalog::{CATALOG, SCHEMA};
use crate::engine::returning::Returning;
use crate::engine::seen;
use crate::engine::session::Session;
use crate::scan::lake_table::{LakeTable, write_stream};
use crate::sql::statement::Statement;
use crate::sql::words::split_version;

/// DataFusion's settings that would have no effect here, or wrong answers for one: the scan leaves it to the
/// plan to drop rows, and pruning by what `min` has seen so far forgets NULLs (`session_config`).
const FIXED: [&str; 9] = [
    "datafusion.execution.parquet.coerce_int96",
    "datafusion.execution.parquet.pushdown_filters",
    "datafusion.execution.parquet.schema_force_view_types",
    "datafusion.execution.skip_physical_aggregate_schema_check",
    "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown",
    "datafusion.optimizer.enable_window_topn",
    "datafusion.sql_parser.collect_spans",
    "datafusion.sql_parser.dialect",
    "datafusion.sql_parser.recursion_limit",
];

/// Does the plan change rows that are there?
fn changes_rows(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)))
}

fn is_fixed(variable: &str) -> bool {
    FIXED.contains(&variable.to_lowercase().as_str())
}

impl Session {
    /// Statements that DataFusion need not plan.
    pub(crate) async fn run_own(&self, statement: &Statement) -> Result<Option<Answer>> {
        if let Some(added) = &statement.added {
            return self.run_added(added, statement).await.map(Some);
        }
        if let Some(copy) = &statement.copy_from {
            return self.copy_from(copy, statement).await.map(Some);
        }
        if let Some(about) = &statement.id_set {
            return self.run_id_set(about, statement).await.map(Some);
        }
        if let Some(about) = &statement.view {
            return self.run_view(about, statement).await.map(Some);
        }
        if let Some(answer) = self.run_prepare(statement).await? {
            return Ok(Some(answer));
        }
        if statement.describes {
            return self.describe_query(statement).await.map(Some);
        }
        if statement.summarizes {
            return self.summarize(statement).await.map(Some);
        }
        if let Some(about) = &statement.warm {
            return self.run_warm(about, statement).await.map(Some);
        }
        let DfStatement::Statement(inner) = &statement.parsed else { return Ok(None) };
        match inner.as_ref() {
            ast::Statement::ShowTables { .. } => self.show_tables().await.map(Some),
            ast::Statement::ExplainTable { table_name, .. } => {
                self.describe(&table_name.to_string()).await
            }
            ast::Statement::ShowCreate { obj_type, obj_name } => {
                if !matches!(obj_type, ast::ShowCreateObject::Table) {
                    return Err(EngineError::unsupported("SHOW CREATE is for TABLE and VIEW"));
                }
                self.show_create_table(obj_name).await
            }
            // Over a connection it is the server's.
            ast::Statement::Set(ast::Set::SetTimeZone { value, .. }) => {
                let zone = value.to_string().to_lowercase();
                match zone.trim_matches('\'') {
                    "utc" | "+00:00" | "0" | "default" | "local" => Ok(Some(done("done".into(), None))),
                    _ => Err(EngineError::unsupported("times are in UTC here").with_hint(
                        "for others write … AT TIME ZONE 'Europe/Berlin', or SET TIME ZONE of a server's connection",
                    )),
                }
            }
            ast::Statement::CreateTable(create) => {
                if create.or_replace {
                    return Err(EngineError::unsupported(
                        "CREATE OR REPLACE TABLE is not supported",
                    )
                    .with_hint("DROP TABLE, then CREATE TABLE"));
                }
                self.must_be_latest()?;
                let plan = self.plan(statement).await?;
                self.create(statement, plan).await.map(Some)
            }
            ast::Statement::AlterTable(alter) => self.alter_table(alter).await.map(Some),
            ast::Statement::Comment { object_type, object_name, comment, if_exists } => {
                use ast::CommentObject::{Column, Table};
                if !matches!(object_type, Table | Column) {
                    return Err(EngineError::unsupported("COMMENT ON is for TABLE and COLUMN"));
                }
                let about = commented(object_type, object_name);
                self.comment(about, comment.as_deref(), *if_exists).await.map(Some)
            }
            ast::Statement::Delete(delete) => {
                if delete.limit.is_some() || !delete.order_by.is_empty() {
                    return Err(EngineError::unsupported(
                        "DELETE takes USING and WHERE: no LIMIT and no ORDER BY",
                    ));
                }
                Ok(None)
            }
            ast::Statement::Update(update) => {
                if update.limit.is_some()
                    || !update.order_by.is_empty()
                    || !update.table.joins.is_empty()
                {
                    return Err(EngineError::unsupported(
                        "UPDATE takes one table, SET, FROM and WHERE: no JOIN, LIMIT and ORDER BY",
                    ));
                }
                Ok(None)
            }
            ast::Statement::Merge(merge) if merge.output.is_some() => {
                Err(EngineError::unsupported("MERGE … RETURNING is not supported")
                    .with_hint("INSERT, UPDATE and DELETE have RETURNING"))
            }
            _ => Ok(None),
        }
    }

    pub(crate) async fn run_plan(&self, plan: LogicalPlan) -> Result<Answer> {
        if matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Dml(_)) {
            self.must_be_latest()?;
        }
        match plan {
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => {
                let name = self.own_table(&drop.name).await?;
                if drop.if_exists && !self.engine.lake.has_table(&name).await? {
                    return Ok(done(format!("there is no table {name}"), None));
                }
                self.engine.lake.drop_table(&name).await?;
                self.catalog.forget(&name);
                Ok(done(format!("dropped table {name}"), None))
            }
            LogicalPlan::Ddl(other) => {
                Err(EngineError::unsupported(format!("{} is not supported", other.name())))
            }
            LogicalPlan::Explain(explain) if changes_rows(&explain.plan) => {
                let stream = self.run_query(self.explained_change(explain).await?).await?;
                Ok(Answer::Rows { schema: stream.schema(), stream })
            }
            LogicalPlan::Analyze(analyze) if changes_rows(&analyze.input) => {
                Err(EngineError::unsupported(
                    "EXPLAIN ANALYZE of DELETE, UPDATE and MERGE, which would change rows, is not supported",
                )
                .with_hint("EXPLAIN shows how their rows are found"))
            }
            LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)) => {
                let name = self.own_table(&dml.table_name).await?;
                Box::pin(self.change_rows(&name, dml, None)).await
            }
            LogicalPlan::Dml(dml) => {
                let name = self.own_table(&dml.table_name).await?;
                let rows = self.insert(&name, dml, None).await?;
                Ok(done(format!("inserted {rows} rows into {name}"), Some(rows)))
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) if is_fixed(&set.variable) => {
                refuse!(InvalidParameterValue, "{} cannot be changed", set.variable)
            }
            LogicalPlan::Statement(PlanStatement::Prepare(_) | PlanStatement::Execute(_)) => {
                Err(EngineError::unsupported("PREPARE and EXECUTE stand alone"))
            }
            LogicalPlan::Statement(statement) => {
                let (statement, change) = match statement {
                    PlanStatement::SetVariable(set) => {
                        let change = (set.variable.clone(), Some(set.value.clone()));
                        (PlanStatement::SetVariable(set), Some(change))
                    }
                    PlanStatement::ResetVariable(reset) => {
                        let name = reset.variable.clone();
                        // DataFusion resets its own alone.
                        let statement = match self.engine.own_setting(&name) {
                            Some(value) => {
                                let variable = name.clone();
                                PlanStatement::SetVariable(SetVariable { variable, value })
                            }
                            None if name.to_lowercase().starts_with("uplake.") => {
                                return Err(no_setting(&name));
                            }
                            None => PlanStatement::ResetVariable(reset),
                        };
                        (statement, Some((name, None)))
                    }
                    other => (other, None),
                };
                let plan = LogicalPlan::Statement(statement);
                let frame = self.context().execute_logical_plan(plan).await?;
                frame.collect().await?;
                if let Some((name, value)) = change {
                    self.note_change(&name, value);
                }
                Ok(done("done".into(), None))
            }
            query => {
                let stream = self.run_query(query).await?;
                Ok(Answer::Rows { schema: stream.schema(), stream })
            }
        }
    }

    /// INSERT: how many rows.
    pub(crate) async fn insert(
        &self,
        name: &str,
        dml: DmlStatement,
        returning: Option<&mut Returning>,
    ) -> Result<u64> {
        if dml.op != WriteOp::Insert(InsertOp::Append) {
            return Err(EngineError::unsupported(format!("{} is not supported", dml.op)));
        }
        let insert = without_cutting(dml)?;
        if self.catalog.pending.is_some() || returning.is_some() {
            return Box::pin(self.insert_rows(insert, returning)).await;
        }
        let stream = self.run_query(LogicalPlan::Dml(insert)).await?;
        let written = stream.try_collect::<Vec<_>>().await;
        self.catalog.forget(name);
        Ok(first_count(&written?))
    }

    /// An INSERT that leaves out rows whose keys are there.
    pub(crate) fn ignoring_conflicts(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        // EXPLAIN of one shows the same plan.
        let LogicalPlan::Dml(mut insert) = plan else { return Ok(plan) };
        let table = source_as_provider(&insert.target)?;
        let Some(table) = table.downcast_ref::<LakeTable>() else {
            return Err(EngineError::unsupported("ON CONFLICT is for tables of the lake"));
        };
        if table.snapshot().primary_key().is_empty() {
            return refuse!(
                InvalidColumnReference,
                "table `{}` has no primary key, so no row is in conflict with another",
                table.snapshot().table()
            );
        }
        let table = LakeTable::new(self.engine.lake.clone(), table.snapshot().clone());
        insert.target = provider_as_source(Arc::new(table.ignoring_conflicts()));
        Ok(LogicalPlan::Dml(insert))
    }

    /// What changes the lake builds on the newest version.
    pub(crate) fn must_be_latest(&self) -> Result<()> {
        if self.catalog.is_historic() {
            return Err(EngineError::unsupported("--as-of is for reading")
                .with_hint("leave it out to change tables"));
        }
        Ok(())
    }

    /// A name that must be a table of this lake, not a file.
    pub(crate) async fn own_table(&self, reference: &TableReference) -> Result<String> {
        if let (table, Some(_)) = split_version(reference.table()) {
            let what = format!("an old version of `{table}` cannot be changed");
            return Err(EngineError::unsupported(what).with_hint("leave AS OF out"));
        }
        let ours = reference.catalog().is_none_or(|c| c == CATALOG)
            && reference.schema().is_none_or(|s| s == SCHEMA);
        if !ours {
            return refuse!(UndefinedTable, "`{reference}` is not a table of the lake");
        }
        Ok(self.catalog.exact_name(reference.table()).await?)
    }

    /// The columns of a query with the types that they have in the end: a UNION finds its own late, and says
    /// those of its first part until then.
    pub(crate) fn columns_of(&self, query: &LogicalPlan) -> Result<Schema> {
        let state = self.context().state();
        let typed =
            state.analyzer().execute_and_check(query.clone(), state.config_options(), |_, _| {});
        // What cannot be planned says so itself when it is run.
        let Ok(typed) = typed else { return Ok(query.schema().as_arrow().clone()) };
        let fields = query.schema().fields().iter().zip(typed.schema().fields());
        let field = |(named, typed): (&Arc<Field>, &Arc<Field>)| {
            let nullable = named.is_nullable() || typed.is_nullable();
            let data_type = typed.data_type().clone();
            named.as_ref().clone().with_data_type(data_type).with_nullable(nullable)
        };
        Ok(Schema::new(fields.map(field).collect::<Vec<_>>()))
    }

    async fn create(&self, statement: &Statement, plan: LogicalPlan) -> Result<Answer> {
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = plan else {
            return Err(EngineError::unsupported("this form of CREATE TABLE is not supported"));
        };
        let name = self.own_table(&create.name).await?;
        if !create.column_defaults.is_empty() || create.temporary {
            return Err(EngineError::unsupported("DEFAULT and TEMPORARY are not supported"));
        }
        if create.if_not_exists && self.engine.lake.has_table(&name).await? {
            return Ok(done(format!("table {name} exists already"), None));
        }
        let empty =
            matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(e) if !e.produce_one_row);
        let input = Arc::new(self.columns_of(&create.input)?);
        let schema = stored_schema(self.spell(statement, &input).await?.as_ref(), !empty)?;
        let mut schema = schema;
        let primary_key = primary_key(&create.constraints, &mut schema)?;
        let definition = TableDefinition {
            primary_key,
            partition_columns: spelled(&statement.partitioned_by, &schema),
            cluster_by: spelled(&statement.clustered_by, &schema),
            indexes: index_specs(&statement.indexed_by, &schema)?,
            id_domains: domain_specs(&statement.id_domains, &schema)?,
            schema: Arc::new(schema),
        };
        if empty {
            create_table(&self.engine.lake, &name, &definition, self.engine.budget.now_millis())
                .await?;
            return Ok(done(format!("created table {name}"), None));
        }
        let schema = Arc::clone(&definition.schema);
        let writer = StreamWriter::into_new_table(
            &self.engine.lake,
            &name,
            definition,
            self.engine.budget.write_bytes(),
            self.engine.budget.threads,
            self.engine.budget.now_millis(),
        )
        .await?;
        let stream = match self.run_query(create.input.as_ref().clone()).await {
            Ok(stream) => stream,
            Err(error) => {
                writer.abort().await;
                return Err(error);
            }
        };
        let rows = write_stream(writer, stream, &schema, WriteKind::Create).await?;
        Ok(done(format!("created table {name} with {rows} rows"), Some(rows)))
    }

    async fn show_tables(&self) -> Result<Answer> {
        let mut names = self.listed_tables().await?;
        let (mut rows, mut files, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for name in &names {
            let table = self.catalog.load(name).await;
            let snapshot = table.as_ref().map(|t| t.snapshot()).ok();
            rows.push(snapshot.and_then(|s| s.rows()).map(|n| n as i64));
            files.push(snapshot.map(|s| s.files().len() as i64));
            bytes.push(snapshot.map(|s| s.size_bytes() as i64));
        }
        for view in self.listed_views().await? {
            let at = names.partition_point(|name| *name < view);
            names.insert(at, view);
            [&mut rows, &mut files, &mut bytes].into_iter().for_each(|of| of.insert(at, None));
        }
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("table_name", Arc::new(StringArray::from(names.clone()))),
            ("rows", Arc::new(Int64Array::from(rows))),
            ("files", Arc::new(Int64Array::from(files))),
            ("bytes", Arc::new(Int64Array::from(bytes))),
        ];
        rows_answer(columns)
    }

    /// The columns of a query, which is not run.
    async fn describe_query(&self, statement: &Statement) -> Result<Answer> {
        let plan = self.plan(statement).await?;
        let schema = self.spell(statement, &Arc::new(self.columns_of(&plan)?)).await?;
        let fields = || schema.fields().iter();
        let names: StringArray = fields().map(|field| Some(field.name())).collect();
        let types: StringArray =
            fields().map(|field| Some(uplake_table::type_name(field.data_type()))).collect();
        let nullable: BooleanArray = fields().map(|field| Some(field.is_nullable())).collect();
        rows_answer(vec![
            ("column_name", Arc::new(names)),
            ("data_type", Arc::new(types)),
            ("nullable", Arc::new(nullable)),
        ])
    }

    /// `None` for what is not a table of the lake: DataFusion describes files.
    async fn describe(&self, name: &str) -> Result<Option<Answer>> {
        let name = self.catalog.exact_name(name.trim_matches('"')).await?;
        if !self.engine.lake.has_table(&name).await? {
            return Ok(None);
        }
        let table = self.catalog.load(&name).await?;
        let snapshot = table.snapshot();
        let fields = snapshot.schema().fields().iter();
        let fields: Vec<&Arc<Field>> =
            fields.filter(|field| !seen::is_hidden(&table, field.name())).collect();
        let said = snapshot.comments();
        let role = |column: &String| {
            let mut roles = Vec::new();
            if snapshot.partition_columns().contains(column) {
                roles.push("partition".to_owned());
            }
            if let Some(at) = snapshot.cluster_by().iter().position(|c| c == column) {
                roles.push(format!("cluster {}", at + 1));
            }
            let indexes = snapshot.indexes().iter().filter(|spec| spec.column == *column);
            if snapshot.primary_key().contains(column) {
                roles.push("primary key".to_owned());
            }
            roles.extend(indexes.map(|spec| format!("index {}", spec.kind.name())));
            let domains = snapshot.id_domains().iter().filter(|spec| spec.column == *column);
            roles.extend(domains.map(|spec| format!("ids of {}", spec.domain)));
            (!roles.is_empty()).then(|| roles.join(", "))
        };
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "column_name",
                Arc::new(fields.iter().map(|f| Some(f.name())).collect::<StringArray>()),
            ),
            (
                "data_type",
                Arc::new(
                    fields
                        .iter()
                        .map(|f| Some(uplake_table::type_name(f.data_type())))
                        .collect::<StringArray>(),
                ),
            ),
            (
                "nullable",
                Arc::new(fields.iter().map(|f| Some(f.is_nullable())).collect::<BooleanArray>()),
            ),
            ("layout", Arc::new(fields.iter().map(|f| role(f.name())).collect::<StringArray>())),
            (
                "comment",
                Arc::new(fields.iter().map(|f| said.get(f.name())).collect::<StringArray>()),
            ),
        ];
        rows_answer(columns).map(Some)
    }
}

/// The INSERT without DataFusion's casts of times and dates that could cut values: the table casts them, and
/// refuses what it cannot keep.
fn without_cutting(mut insert: DmlStatement) -> Result<DmlStatement> {
    let LogicalPlan::Projection(columns) = insert.input.as_ref() else { return Ok(insert) };
    let uncast = |expr: &Expr| -> Result<Expr> {
        if let Expr::Alias(alias) = expr
            && let Expr::Cast(cast) = alias.expr.as_ref()
            && cuts(&cast.expr.get_type(columns.input.schema())?, cast.field.data_type())
        {
            return Ok(cast.expr.as_ref().clone().alias(alias.name.clone()));
        }
        Ok(expr.clone())
    };
    let exprs = columns.expr.iter().map(uncast).collect::<Result<Vec<_>>>()?;
    let input = Projection::try_new(exprs, Arc::clone(&columns.input))?;
    insert.input = Arc::new(LogicalPlan::Projection(input));
    Ok(insert)
}

/// Is it a cast to the kind of type that such values are stored as?
pub(crate) fn cuts(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, LargeList, List, Struct, Timestamp};
    let is_of_kind = matches!(
        (from, to),
        (Timestamp(..), Timestamp(..))
            | (Date64, Date32)
            | (List(_) | LargeList(_), List(_))
            | (Struct(_), Struct(_))
    );
    is_of_kind && uplake_table::may_be_cut(from)
}

/// The columns of the key, which are not NULL from then on.
fn primary_key(constraints: &Constraints, schema: &mut Schema) -> Result<Vec<String>> {
    let mut key = Vec::new();
    for constraint in constraints.iter() {
        match constraint {
            Constraint::PrimaryKey(columns) => key = columns.clone(),
            Constraint::Unique(_) => {
                return Err(EngineError::unsupported("UNIQUE is not supported")
                    .with_hint("use PRIMARY KEY"));
            }
        }
    }
    let field = |(at, field): (usize, &Arc<Field>)| {
        let nullable = field.is_nullable() && !key.contains(&at);
        field.as_ref().clone().with_nullable(nullable)
    };
    *schema = Schema::new(schema.fields().iter().enumerate().map(field).collect::<Vec<_>>());
    Ok(key.iter().map(|at| schema.field(*at).name().clone()).collect())
}

fn index_specs(columns: &[(String, Option<String>)], schema: &Schema) -> Result<Vec<IndexSpec>> {
    let spec = |(column, kind): &(String, Option<String>)| {
        let column = spelled(std::slice::from_ref(column), schema).concat();
        Ok(match kind {
            None => IndexSpec { column, kind: IndexKind::Ids },
            Some(kind) => format!("{column}:{kind}").parse()?,
        })
    };
    columns.iter().map(spec).collect()
}

fn domain_specs(
    columns: &[(String, Option<String>)],
    schema: &Schema,
) -> Result<Vec<IdDomainSpec>> {
    let spec = |(column, domain): &(String, Option<String>)| match domain {
        Some(domain) => {
            let column = spelled(std::slice::from_ref(column), schema).concat();
            Ok(IdDomainSpec { column, domain: domain.clone() })
        }
        None => {
            let what = format!("column `{column}` lacks the name of its domain");
            Err(EngineError::statement(SqlState::SyntaxError, what)
                .with_hint(format!("write ID DOMAINS ({column} users)")))
        }
    };
    columns.iter().map(spec).collect()
}

/// Layout columns as the table spells them.
fn spelled(columns: &[String], schema: &Schema) -> Vec<String> {
    let exact = |name: &String| {
        let same = |f: &&Arc<Field>| f.name() == name || f.name().to_lowercase() == *name;
        schema.fields().iter().find(same).map_or_else(|| name.clone(), |f| f.name().clone())
    };
    columns.iter().map(exact).collect()
}

/// The stored types of a query's columns. What a query happens to know (that a count is never NULL,
/// that a rank is unsigned) is no promise about the table.
fn stored_schema(schema: &Schema, of_query: bool) -> Result<Schema> {
    let mut fields = Vec::new();
    for field in schema.fields() {
        if of_query && field.data_type() == &DataType::UInt64 {
            fields.push(Field::new(field.name(), DataType::Int64, true));
            continue;
        }
        let data_type = uplake_table::stored_type(field.data_type()).map_err(|reason| {
            let message = format!("column `{}`: {reason}", field.name());
            EngineError::statement(SqlState::InvalidTableDefinition, message)
        })?;
        fields.push(Field::new(field.name(), data_type, of_query || field.is_nullable()));
    }
    Ok(Schema::new(fields))
}
