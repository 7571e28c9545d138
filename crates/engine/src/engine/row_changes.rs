//! Statements that change rows of a table: DELETE, UPDATE, MERGE. Files that hold such rows are written again.
//!
//! ```text
//! count    rows of the table that are changed, with those of the source that change them ─► files to replace
//! write    rows of these files that nothing changes, changed rows, new rows ─► one commit
//! ```
//!
//! # Invariants
//! - Of the rows of the files that are replaced each is kept or changed: they are counted before the commit. A row that
//!   several of the source change is one too many there, and the statement fails with 21000; DELETE … USING removes it
//!   once.
//! - A row for which the condition is NULL stays.
//!
//! # Not here
//! What is SQL of these statements, and their plans (`sql::row_changes`, DataFusion); who may (`guard`).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Field, Int64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::display::{PlanType, ToStringifiedPlan};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::dml::{
    MergeIntoAction, MergeIntoClause, MergeIntoClauseKind, MergeIntoOp,
};
use datafusion::logical_expr::expr_fn::{cast, when};
use datafusion::logical_expr::{
    DmlStatement, Explain, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, WriteOp,
    lit,
};
use futures::TryStreamExt;
use uplake_table::{ChangedRows, DataFile, OnConflict, StreamWriter, WriteKind};

use crate::base::answer::{Answer, done, first_count};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::ddl::cuts;
use crate::engine::returning::Returning;
use crate::engine::session::Session;
use crate::engine::subquery_columns::{SubqueryColumns, must_be_same, with_added};
use crate::scan::lake_table::{FILE_COLUMN, LakeTable, write_rows};

/// What a statement does to rows of its table.
struct RowChange {
    target: Target,
    /// What rows are changed by, if not by themselves.
    source: Option<LogicalPlan>,
    /// Is a row changed once, however many of the source it matches? Then all that match are removed, and no more.
    once: bool,
    /// Which rows are changed, and by which of the source.
    on: Expr,
    /// Of these, which stay in another form, and in which: the table's columns in their order.
    changed: Option<(Option<Expr>, Vec<Expr>)>,
    /// Rows of the source that match none of the table: by which condition, which of them are new rows, and as what.
    inserted: Option<(Expr, Expr, Vec<Expr>)>,
    /// What becomes of rows of the table that match none of the source.
    lone: Option<LoneRows>,
}

/// Rows of the table that match none of the source.
struct LoneRows {
    /// What a row of the source would have to match by.
    on: Expr,
    /// Of these, which are changed.
    applies: Expr,
    /// As in [`RowChange::changed`].
    changed: Option<(Option<Expr>, Vec<Expr>)>,
}

/// The table as the statement names it.
struct Target {
    name: TableReference,
    alias: Option<TableReference>,
    /// Columns that its rows have beside the table's: see [`SubqueryColumns`].
    added: Vec<Expr>,
}

impl Target {
    fn plan(&self, table: Arc<LakeTable>) -> Result<LogicalPlan> {
        let scan = LogicalPlanBuilder::scan(self.name.clone(), provider_as_source(table), None)?;
        let scan = match &self.alias {
            Some(alias) => scan.alias(alias.clone())?.build()?,
            None => scan.build()?,
        };
        with_added(scan, &self.added)
    }

    /// Rows of the target as the table has them.
    fn without_added(&self, rows: LogicalPlan, table: &LakeTable) -> Result<LogicalPlan> {
        if self.added.is_empty() {
            return Ok(rows);
        }
        let seen = table.schema();
        let columns = seen.fields().iter().map(|field| self.column(field.name()));
        Ok(LogicalPlanBuilder::from(rows).project(columns.collect::<Vec<_>>())?.build()?)
    }

    fn column(&self, name: &str) -> Expr {
        let relation = self.alias.as_ref().unwrap_or(&self.name).clone();
        Expr::Column(Column::new(Some(relation), name))
    }
}

impl RowChange {
    /// The rows of `table` that are changed.
    fn affected(&self, table: Arc<LakeTable>) -> Result<LogicalPlan> {
        match &self.source {
            Some(source) if self.once => {
                let target = LogicalPlanBuilder::from(self.target.plan(table)?);
                let on = [self.on.clone()];
                Ok(target.join_on(source.clone(), JoinType::LeftSemi, on)?.build()?)
            }
            _ => self.pairs(table),
        }
    }

    /// The same, each beside what changes it.
    fn pairs(&self, table: Arc<LakeTable>) -> Result<LogicalPlan> {
        let target = LogicalPlanBuilder::from(self.target.plan(table)?);
        let both = match &self.source {
            Some(source) => target.cross_join(source.clone())?,
            None => target,
        };
        Ok(both.filter(self.on.clone())?.build()?)
    }

    /// The rows of `table` that match none of the source, all of them or those that are changed.
    fn lone(&self, table: Arc<LakeTable>, changed: bool) -> Result<Option<LogicalPlan>> {
        let (Some(source), Some(lone)) = (&self.source, &self.lone) else { return Ok(None) };
        let rows = LogicalPlanBuilder::from(self.target.plan(table)?)
            .join_on(source.clone(), JoinType::LeftAnti, [lone.on.clone()])?
            .filter(match changed {
                true => lone.applies.clone().is_true(),
                false => lone.applies.clone().is_not_true(),
            })?;
        Ok(Some(rows.build()?))
    }

    /// Those that stay as they are, of `table`.
    fn kept(&self, table: Arc<LakeTable>) -> Result<Vec<LogicalPlan>> {
        let rows = self.left(Arc::clone(&table))?.into_iter();
        rows.map(|rows| self.target.without_added(rows, &table)).collect()
    }

    fn left(&self, table: Arc<LakeTable>) -> Result<Vec<LogicalPlan>> {
        let target = LogicalPlanBuilder::from(self.target.plan(Arc::clone(&table))?);
        let on = self.on.clone();
        let Some(source) = &self.source else {
            return Ok(vec![target.filter(on.is_not_true())?.build()?]);
        };
        let Some(lone) = &self.lone else {
            return Ok(vec![target.join_on(source.clone(), JoinType::LeftAnti, [on])?.build()?]);
        };
        let matched = target
            .join_on(source.clone(), JoinType::LeftSemi, [lone.on.clone()])?
            .join_on(source.clone(), JoinType::LeftAnti, [on])?
            .build()?;
        Ok([Some(matched), self.lone(table, false)?].into_iter().flatten().collect())
    }

    /// Changed rows as they are from now on; with those of the source behind them, if there is one and it is `beside`.
    fn changed(&self, table: Arc<LakeTable>, beside: bool) -> Result<Vec<LogicalPlan>> {
        let mut plans = Vec::new();
        if let Some(changed) = &self.changed {
            let sources = if beside { self.source_columns() } else { Vec::new() };
            plans.push(as_changed(self.pairs(Arc::clone(&table))?, changed, sources)?);
        }
        if let Some(changed) = self.lone.as_ref().and_then(|lone| lone.changed.as_ref())
            && let Some(rows) = self.lone(table, true)?
        {
            plans.push(as_changed(rows, changed, Vec::new())?);
        }
        Ok(plans)
    }

    /// The rows of `table` that are removed, as they were; with those of the source behind them, if it is `beside`.
    fn removed(&self, table: Arc<LakeTable>, beside: bool) -> Result<LogicalPlan> {
        let seen = table.schema();
        let own = seen.fields().iter().map(|field| self.target.column(field.name()));
        let own = own.zip(seen.fields()).map(|(column, field)| column.alias(field.name()));
        let (rows, sources) = match beside {
            true => (self.pairs(table)?, self.source_columns()),
            false => (self.affected(table)?, Vec::new()),
        };
        let columns: Vec<Expr> = own.chain(sources).collect();
        Ok(LogicalPlanBuilder::from(rows).project(columns)?.build()?)
    }

    /// The columns of the source under names that no table has.
    fn source_columns(&self) -> Vec<Expr> {
        let columns = self.source.iter().flat_map(|source| source.schema().columns());
        columns
            .enumerate()
            .map(|(at, column)| Expr::Column(column).alias(format!("__source_{at}")))
            .collect()
    }

    /// New rows.
    fn inserted(&self, table: Arc<LakeTable>) -> Result<Option<LogicalPlan>> {
        let (Some(source), Some((on, condition, columns))) = (&self.source, &self.inserted) else {
            return Ok(None);
        };
        let new = LogicalPlanBuilder::from(source.clone())
            .join_on(self.target.plan(table)?, JoinType::LeftAnti, [on.clone()])?
            .filter(condition.clone().is_true())?
            .project(columns.clone())?;
        Ok(Some(new.build()?))
    }
}

/// Rows for which the condition is true, with other values, and columns beside them.
fn as_changed(
    rows: LogicalPlan,
    (condition, columns): &(Option<Expr>, Vec<Expr>),
    beside: Vec<Expr>,
) -> Result<LogicalPlan> {
    let mut rows = LogicalPlanBuilder::from(rows);
    if let Some(condition) = condition {
        rows = rows.filter(condition.clone().is_true())?;
    }
    Ok(rows.project(columns.iter().cloned().chain(beside))?.build()?)
}

impl Session {
    /// DELETE, UPDATE or MERGE.
    pub(crate) async fn change_rows(
        &self,
        name: &str,
        dml: DmlStatement,
        returning: Option<&mut Returning>,
    ) -> Result<Answer> {
        let table = self.catalog.load(name).await?;
        let (change, verb) = change_of(&dml, &table)?;
        let rows = self.changing(&table, &change, &dml.op, returning).await;
        if self.catalog.pending.is_none() {
            self.catalog.forget(name);
        }
        let (rows, place) = (rows?, if verb == "deleted" { "from" } else { "in" });
        Ok(done(format!("{verb} {rows} rows {place} {name}"), Some(rows)))
    }

    /// EXPLAIN of such a statement: how the rows that it changes, and new ones, are found.
    pub(crate) async fn explained_change(&self, mut explain: Explain) -> Result<LogicalPlan> {
        let LogicalPlan::Dml(dml) = explain.plan.as_ref() else {
            return Err(EngineError::bug("EXPLAIN of what changes no rows"));
        };
        let name = self.own_table(&dml.table_name).await?;
        let table = self.catalog.load(&name).await?;
        let (change, _) = change_of(dml, &table)?;
        let lone = change.lone(Arc::clone(&table), true)?;
        let new = change.inserted(Arc::clone(&table))?;
        let rows = count(lit(1)).alias("rows");
        let counted = |found: LogicalPlan| {
            LogicalPlanBuilder::from(found).aggregate(Vec::<Expr>::new(), [rows.clone()])
        };
        let mut plan = counted(change.affected(table)?)?;
        for found in lone.into_iter().chain(new) {
            plan = plan.union(counted(found)?.build()?)?;
        }
        let plan = plan.build()?;
        explain.stringified_plans = vec![plan.to_stringified(PlanType::InitialLogicalPlan)];
        explain.plan = Arc::new(plan);
        Ok(LogicalPlan::Explain(explain))
    }

    /// How many rows were changed.
    async fn changing(
        &self,
        table: &Arc<LakeTable>,
        change: &RowChange,
        op: &WriteOp,
        returning: Option<&mut Returning>,
    ) -> Result<u64> {
        let keyed = !table.snapshot().primary_key().is_empty();
        if keyed && change.inserted.is_some() {
            self.must_bring_new_keys(table, change).await?;
        }
        let (replaced, affected) = self.files_of(table, change).await?;
        if replaced.is_empty() && change.inserted.is_none() {
            return Ok(0);
        }
        let budget = &self.engine.budget;
        let mut writer = StreamWriter::into_table(
            &self.engine.lake,
            table.snapshot().clone(),
            OnConflict::Replace,
            budget.write_bytes(),
            budget.threads,
            budget.now_millis(),
        )
        .await?;
        let counted = (replaced.as_slice(), affected);
        let written = self.write_changes(&mut writer, table, change, counted, returning).await;
        let (changed, new) = match written {
            Ok(rows) => rows,
            Err(error) => {
                writer.abort().await;
                return Err(error);
            }
        };
        if replaced.is_empty() && new == 0 {
            writer.abort().await;
            return Ok(0);
        }
        let predicate = match op {
            WriteOp::MergeInto(merge) => merge.on.to_string(),
            _ => change.on.to_string(),
        };
        let deleted = affected.saturating_sub(changed);
        let rows = ChangedRows { inserted: new, updated: changed, deleted };
        let kind = match op {
            _ if change.once => WriteKind::Delete { replaced, predicate, rows },
            WriteOp::Delete => WriteKind::Delete { replaced, predicate, rows },
            WriteOp::Update => WriteKind::Update { replaced, predicate, rows },
            // Which keys are new was asked of the files that there were.
            _ => WriteKind::Merge { replaced, predicate, rows, exactly: keyed && new > 0 },
        };
        match self.catalog.pending {
            Some(_) => self.replace_later(table, writer, kind).await?,
            None => drop(writer.commit(kind).await?),
        }
        Ok(affected + new)
    }

    /// The files that hold rows to change, and how many of these there are.
    async fn files_of(
        &self,
        table: &Arc<LakeTable>,
        change: &RowChange,
    ) -> Result<(Vec<DataFile>, u64)> {
        let numbered = Arc::new(table.numbered());
        let affected = change.affected(Arc::clone(&numbered))?;
        let lone = change.lone(numbered, true)?;
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for rows in std::iter::once(affected).chain(lone) {
            let file = change.target.column(FILE_COLUMN);
            let counted =
                LogicalPlanBuilder::from(rows).aggregate([file], [count(lit(1))])?.build()?;
            let batches: Vec<RecordBatch> = self.run_query(counted).await?.try_collect().await?;
            for batch in &batches {
                let files = batch.column(0).as_primitive::<Int64Type>();
                let rows = batch.column(1).as_primitive::<Int64Type>();
                for (file, rows) in files.values().iter().zip(rows.values()) {
                    let number = usize::try_from(*file).unwrap_or(usize::MAX);
                    *counts.entry(number).or_default() += u64::try_from(*rows).unwrap_or_default();
                }
            }
        }
        let affected = counts.values().sum();
        let files = counts.into_keys().map(|number| table.files().get(number).cloned());
        let files: Option<Vec<DataFile>> = files.collect();
        let files = files.ok_or_else(|| EngineError::bug("a row is in no file of its table"))?;
        Ok((files, affected))
    }

    /// Writes what comes in the place of files; how many rows of these are changed, and how many new.
    async fn write_changes(
        &self,
        writer: &mut StreamWriter,
        table: &Arc<LakeTable>,
        change: &RowChange,
        (replaced, affected): (&[DataFile], u64),
        returning: Option<&mut Returning>,
    ) -> Result<(u64, u64)> {
        let schema = table.snapshot().schema();
        let mut changed_rows = 0;
        if !replaced.is_empty() {
            let part = table.only(replaced.to_vec());
            let all = self.rows_in(&part, &change.target).await?;
            let mut kept = 0;
            for rows in change.kept(Arc::clone(&part))? {
                kept += write_rows(writer, self.run_query(rows).await?, schema).await?;
            }
            if kept + affected != all {
                return Err(not_each_once(change, table.snapshot().table()));
            }
            for changed in change.changed(Arc::clone(&part), returning.is_some())? {
                let mut changed = self.run_query(changed).await?;
                if let Some(returning) = &returning {
                    changed = returning.holding(changed, schema);
                }
                changed_rows += write_rows(writer, changed, schema).await?;
            }
            if let Some(returning) = returning {
                if change.changed.is_none() {
                    let beside = returning.asks_behind(schema.fields().len());
                    let removed = self.run_query(change.removed(part, beside)?).await?;
                    if returning.hold(removed, schema).await? != affected {
                        return Err(not_each_once(change, table.snapshot().table()));
                    }
                }
                returning.compute(self).await?;
            }
        }
        let Some(inserted) = change.inserted(Arc::clone(table))? else {
            return Ok((changed_rows, 0));
        };
        let inserted = self.run_query(inserted).await?;
        Ok((changed_rows, write_rows(writer, inserted, schema).await?))
    }

    async fn rows_in(&self, part: &Arc<LakeTable>, target: &Target) -> Result<u64> {
        if let Some(rows) = part.files().iter().map(|file| file.rows).sum::<Option<u64>>() {
            return Ok(rows);
        }
        let rows = LogicalPlanBuilder::from(target.plan(Arc::clone(part))?)
            .aggregate(Vec::<Expr>::new(), [count(lit(1))])?
            .build()?;
        let batches: Vec<RecordBatch> = self.run_query(rows).await?.try_collect().await?;
        Ok(first_count(&batches))
    }

    /// Refuses new rows whose primary keys are there, or come twice.
    async fn must_bring_new_keys(&self, table: &Arc<LakeTable>, change: &RowChange) -> Result<()> {
        if self.catalog.pending.is_some() {
            let what =
                "MERGE that inserts into a table with a primary key is not done in a transaction";
            return Err(EngineError::unsupported(what).with_hint("COMMIT first"));
        }
        let Some(new) = change.inserted(Arc::clone(table))? else { return Ok(()) };
        let (new_name, there) = (TableReference::bare("__new"), TableReference::bare("__there"));
        let new = || LogicalPlanBuilder::from(new.clone()).alias(new_name.clone());
        let keys = || table.snapshot().primary_key().iter().map(|key| key.to_lowercase());
        let of = |of: &TableReference, key: &str| Expr::Column(Column::new(Some(of.clone()), key));
        let scan = provider_as_source(Arc::clone(table) as _);
        let scan = LogicalPlanBuilder::scan(there.clone(), scan, None)?.build()?;
        let same = keys().map(|key| of(&new_name, &key).eq(of(&there, &key)));
        let known = new()?.join_on(scan, JoinType::LeftSemi, same.collect::<Vec<_>>())?;
        let rows = count(lit(1)).alias("__rows");
        let each: Vec<Expr> = keys().map(|key| of(&new_name, &key)).collect();
        let twice = new()?
            .aggregate(each, [rows])?
            .filter(Expr::Column(Column::new_unqualified("__rows")).gt(lit(1_i64)))?;
        for (plan, what) in [(known, "is there already"), (twice, "comes twice")] {
            let mut rows = self.run_query(plan.limit(0, Some(1))?.build()?).await?;
            while let Some(batch) = rows.try_next().await? {
                if batch.num_rows() > 0 {
                    return refuse!(
                        UniqueViolation,
                        "MERGE would insert a row into `{}` whose primary key {what}; nothing was written",
                        table.snapshot().table()
                    );
                }
            }
        }
        Ok(())
    }
}

/// What the statement does, and the word for it.
fn change_of(dml: &DmlStatement, table: &LakeTable) -> Result<(RowChange, &'static str)> {
    Ok(match &dml.op {
        WriteOp::Delete => (deletion(dml)?, "deleted"),
        WriteOp::Update => (update(dml, table)?, "updated"),
        WriteOp::MergeInto(merge) => match merging(dml, merge, table)? {
            change if change.once => (change, "deleted"),
            change => (change, "merged"),
        },
        other => return Err(EngineError::unsupported(format!("{other} is not supported"))),
    })
}

/// Rows that are kept and rows that are changed are not all rows.
fn not_each_once(change: &RowChange, table: &str) -> EngineError {
    if change.source.is_none() {
        return EngineError::bug(format!(
            "rows of `{table}` that the statement changes and rows that it does not are not all rows; nothing was written"
        ));
    }
    let what = match change.once {
        true => format!(
            "a row of `{table}` is removed by more than one row of the source, of which RETURNING would give back one; \
             nothing was written"
        ),
        false => format!(
            "a row of `{table}` is changed by more than one row of the source; nothing was written"
        ),
    };
    EngineError::statement(SqlState::CardinalityViolation, what)
        .with_hint("make the source's rows one for each: SELECT DISTINCT ON, GROUP BY, or a narrower condition")
}

/// The table and the condition of `… t [AS x] [WHERE …]`. Any other plan must not be mistaken for "all rows".
fn target_where(input: &LogicalPlan) -> Result<(Target, Expr)> {
    let (table, condition) = match input {
        LogicalPlan::Filter(filter) => (filter.input.as_ref(), filter.predicate.clone()),
        table => (table, lit(true)),
    };
    let target = match table {
        LogicalPlan::TableScan(scan) => {
            Target { name: scan.table_name.clone(), alias: None, added: Vec::new() }
        }
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::TableScan(scan) => {
                let (name, alias) = (scan.table_name.clone(), Some(alias.alias.clone()));
                Target { name, alias, added: Vec::new() }
            }
            _ => return Err(other_form()),
        },
        _ => return Err(other_form()),
    };
    must_be_same(&condition)?;
    Ok((target, condition))
}

fn other_form() -> EngineError {
    EngineError::unsupported("this form of DELETE or UPDATE is not supported")
}

fn deletion(dml: &DmlStatement) -> Result<RowChange> {
    let (target, on) = target_where(&dml.input)?;
    Ok(RowChange {
        target,
        source: None,
        once: false,
        on,
        changed: None,
        inserted: None,
        lone: None,
    })
}

fn update(dml: &DmlStatement, table: &LakeTable) -> Result<RowChange> {
    let LogicalPlan::Projection(columns) = dml.input.as_ref() else { return Err(other_form()) };
    let (target, on) = target_where(&columns.input)?;
    let schema = columns.input.schema();
    let fields = table.snapshot().schema().fields().iter();
    let mut set = HashSet::new();
    let mut values = Vec::new();
    for (expr, field) in columns.expr.iter().zip(fields) {
        let value = expr.clone().unalias();
        if value != target.column(&field.name().to_lowercase()) {
            set.insert(field.name().clone());
        }
        values.push(uncut(value, schema)?.alias(field.name().to_lowercase()));
    }
    must_keep_keys(table, &set)?;
    let changed = Some((None, values));
    Ok(RowChange { target, source: None, once: false, on, changed, inserted: None, lone: None })
}

/// The value without DataFusion's cast if that could cut it: the table casts it, and refuses what it cannot keep.
fn uncut(value: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::Cast(inner) = &value
        && cuts(&inner.expr.get_type(schema)?, inner.field.data_type())
    {
        return Ok(inner.expr.as_ref().clone());
    }
    Ok(value)
}

fn must_keep_keys(table: &LakeTable, set: &HashSet<String>) -> Result<()> {
    match table.snapshot().primary_key().iter().find(|key| set.contains(*key)) {
        None => Ok(()),
        Some(key) => Err(EngineError::unsupported(format!(
            "column `{key}` is of the primary key of `{}`, which UPDATE and MERGE do not change",
            table.snapshot().table()
        ))
        .with_hint("DELETE the rows, then INSERT them with their new keys")),
    }
}

fn merging(dml: &DmlStatement, merge: &MergeIntoOp, table: &LakeTable) -> Result<RowChange> {
    let source = dml.input.as_ref().clone();
    if source_as_provider(&dml.target)?.downcast_ref::<LakeTable>().is_none() {
        return Err(EngineError::unsupported("MERGE is for tables of the lake"));
    }
    let mut target = Target { name: dml.table_name.clone(), alias: None, added: Vec::new() };
    let mut is_volatile = false;
    source.apply_with_subqueries(|plan| {
        is_volatile |= plan.expressions().iter().any(Expr::is_volatile);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if is_volatile {
        return Err(EngineError::unsupported(
            "the source of a MERGE has no function that answers otherwise each time",
        )
        .with_hint("keep its rows in a table, and name that"));
    }
    let seen = table.schema();
    let of_target = DFSchema::try_from_qualified_schema(target.name.clone(), &seen)?;
    let of_source = Arc::clone(source.schema());
    let mut subqueries = SubqueryColumns::of(&of_target, &of_source);
    let on = subqueries.taken_out(&merge.on, true)?;
    let mut clauses = merge.clauses.clone();
    for clause in &mut clauses {
        let has_source = clause.kind != MergeIntoClauseKind::NotMatchedBySource;
        let predicate = clause.predicate.take();
        let taken = predicate.map(|condition| subqueries.taken_out(&condition, has_source));
        clause.predicate = taken.transpose()?;
    }
    let SubqueryColumns { target: added, source: source_columns, .. } = subqueries;
    target.added = added;
    let of = |by_source: bool| {
        let is_it = move |clause: &&MergeIntoClause| {
            (clause.kind == MergeIntoClauseKind::NotMatchedBySource) == by_source
        };
        clauses.iter().filter(is_it)
    };
    let (matched, others): (Vec<&MergeIntoClause>, Vec<_>) =
        of(false).partition(|clause| clause.kind == MergeIntoClauseKind::Matched);
    let by_source: Vec<&MergeIntoClause> = of(true).collect();
    let schema = of_target.join(source.schema())?;
    let fields: Vec<Arc<Field>> = seen.fields().to_vec();
    let changed = matched_rows(&matched, &target, table, (&fields, &schema))?;
    let inserted = match others.is_empty() {
        true => None,
        false => Some(inserted_rows(&others, &on, (&fields, &schema, &of_target))?),
    };
    let lone = match by_source.is_empty() {
        true => None,
        false => {
            must_be_of_target(&by_source, source.schema())?;
            let changed = matched_rows(&by_source, &target, table, (&fields, &schema))?;
            let applies = any_of(&by_source).unwrap_or_else(|| lit(true));
            Some(LoneRows { on: on.clone(), applies, changed })
        }
    };
    // DELETE … USING.
    let once = merge.clauses.is_empty();
    let on = match matched.is_empty() {
        true if once => on,
        true => lit(false),
        false => match any_of(&matched) {
            None => on,
            Some(applies) => on.and(applies),
        },
    };
    let source = Some(with_added(source, &source_columns)?);
    Ok(RowChange { target, source, once, on, changed, inserted, lone })
}

/// Of the source no row is there.
fn must_be_of_target(clauses: &[&MergeIntoClause], source: &DFSchema) -> Result<()> {
    for clause in clauses {
        let values: Vec<&Expr> = match &clause.action {
            MergeIntoAction::Update(set) => set.iter().map(|(_, value)| value).collect(),
            MergeIntoAction::Delete => Vec::new(),
            MergeIntoAction::Insert { .. } => {
                return refuse!(
                    SyntaxError,
                    "WHEN NOT MATCHED BY SOURCE is for UPDATE and DELETE: the row is there"
                );
            }
        };
        let exprs = values.into_iter().chain(&clause.predicate);
        let of_source = |column: &&Column| source.has_column(column);
        if let Some(column) = exprs.flat_map(Expr::column_refs).find(of_source) {
            return refuse!(
                UndefinedColumn,
                "{column} is of the source, of which no row matches there"
            );
        }
    }
    Ok(())
}

/// Does any of the clauses apply? `None` if one always does.
fn any_of(clauses: &[&MergeIntoClause]) -> Option<Expr> {
    let each: Option<Vec<Expr>> =
        clauses.iter().map(|clause| Some(clause.predicate.clone()?.is_true())).collect();
    each?.into_iter().reduce(Expr::or)
}

/// The value of the first clause that applies.
fn first_of(values: Vec<(Option<&Expr>, Expr)>) -> Result<Expr> {
    let mut values = values.into_iter();
    let Some((Some(condition), value)) = values.next() else {
        return Err(EngineError::bug("no clause has a condition"));
    };
    let mut chosen = when(condition.clone(), value);
    for (condition, value) in values {
        match condition {
            Some(condition) => chosen = chosen.when(condition.clone(), value),
            None => return Ok(chosen.otherwise(value)?),
        }
    }
    Ok(chosen.end()?)
}

/// Columns, and what they become.
type Assignments = Vec<(String, Expr)>;

/// Which of the matched rows stay, and as what; `None` if all go.
fn matched_rows(
    clauses: &[&MergeIntoClause],
    target: &Target,
    table: &LakeTable,
    (fields, schema): (&[Arc<Field>], &DFSchema),
) -> Result<Option<(Option<Expr>, Vec<Expr>)>> {
    let updates: Vec<(Option<&Expr>, Option<&Assignments>)> = clauses
        .iter()
        .map(|clause| {
            let set = match &clause.action {
                MergeIntoAction::Update(set) => Some(set),
                MergeIntoAction::Delete | MergeIntoAction::Insert { .. } => None,
            };
            (clause.predicate.as_ref(), set)
        })
        .collect();
    if updates.iter().all(|(_, set)| set.is_none()) {
        return Ok(None);
    }
    let one = updates.first().filter(|(condition, _)| condition.is_none());
    let set = |set: &Vec<(String, Expr)>, field: &Field| -> Result<Expr> {
        let name = field.name().to_lowercase();
        let given = set.iter().find(|(column, _)| *column == name);
        given.map_or_else(
            || Ok(target.column(&name)),
            |(_, value)| fitted(value.clone(), field, schema),
        )
    };
    let named: HashSet<String> = updates
        .iter()
        .flat_map(|(_, set)| set.iter().flat_map(|set| set.iter()))
        .flat_map(|(column, _)| table.stored_names(std::slice::from_ref(column)))
        .collect();
    must_keep_keys(table, &named)?;
    let mut columns = Vec::new();
    for field in fields {
        let name = field.name().to_lowercase();
        let value = match one {
            Some((_, Some(only))) => set(only, field)?,
            Some((_, None)) => target.column(&name),
            None => {
                let mut values = Vec::new();
                for (condition, update) in &updates {
                    let value = update.map_or_else(|| Ok(target.column(&name)), |u| set(u, field));
                    values.push((*condition, value?));
                }
                first_of(values)?
            }
        };
        columns.push(value.alias(name));
    }
    let condition = match one {
        Some((_, set)) => set.is_none().then(|| lit(false)),
        None => {
            let stays = updates.iter().map(|(condition, set)| (*condition, lit(set.is_some())));
            Some(first_of(stays.collect())?)
        }
    };
    Ok(Some((condition, columns)))
}

/// Which rows of the source are new ones, and as what.
fn inserted_rows(
    clauses: &[&MergeIntoClause],
    on: &Expr,
    (fields, schema, target): (&[Arc<Field>], &DFSchema, &DFSchema),
) -> Result<(Expr, Expr, Vec<Expr>)> {
    let mut inserts = Vec::new();
    for clause in clauses {
        let MergeIntoAction::Insert { columns, values } = &clause.action else {
            return refuse!(
                SyntaxError,
                "WHEN NOT MATCHED is for INSERT: there is no row of the table to change"
            );
        };
        let exprs = values.iter().chain(&clause.predicate);
        let of_target = |column: &&Column| target.has_column(column);
        if let Some(column) = exprs.flat_map(Expr::column_refs).find(of_target) {
            return refuse!(
                UndefinedColumn,
                "{column} is of the table, of which no row matches there"
            );
        }
        inserts.push((clause.predicate.as_ref(), columns, values));
    }
    let value = |columns: &[String], values: &[Expr], at: usize| -> Result<Expr> {
        let name = fields[at].name().to_lowercase();
        let place = match columns.is_empty() {
            true => Some(at),
            false => columns.iter().position(|column| *column == name),
        };
        match place.and_then(|place| values.get(place)) {
            Some(value) => fitted(value.clone(), &fields[at], schema),
            None => Ok(cast(lit(ScalarValue::Null), fields[at].data_type().clone())),
        }
    };
    let one = inserts.first().filter(|(condition, _, _)| condition.is_none());
    let mut columns = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let chosen = match one {
            Some((_, columns, values)) => value(columns, values, at)?,
            None => {
                let mut each = Vec::new();
                for (condition, columns, values) in &inserts {
                    each.push((*condition, value(columns, values, at)?));
                }
                first_of(each)?
            }
        };
        columns.push(chosen.alias(field.name().to_lowercase()));
    }
    let condition = any_of(clauses).unwrap_or_else(|| lit(true));
    Ok((on.clone(), condition, columns))
}

/// A value as its column has it, but for what that could cut.
fn fitted(value: Expr, field: &Field, schema: &DFSchema) -> Result<Expr> {
    let from = value.get_type(schema)?;
    Ok(match from == *field.data_type() || cuts(&from, field.data_type()) {
        true => value,
        false => cast(value, field.data_type().clone()),
    })
}
