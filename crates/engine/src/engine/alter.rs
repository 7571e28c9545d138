//! ALTER TABLE and COMMENT: what a table is beside its rows.
//!
//! # Invariants
//! - Columns that go or get other names are gone from all files: their rows are written again, counted, in one commit.
//!
//! # Not here
//! ALTER TABLE … HIDE and SHOW COLUMN, which are about rights: a server answers them (`added_statements`).

use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr_fn::cast;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use uplake_table::{
    AsOf, IndexKind, IndexSpec, NewColumns, ReindexOptions, Snapshot, StreamWriter, TableError,
    WriteKind, add_columns, reindex, set_cluster_by, set_comment,
};

use crate::base::answer::{Answer, done, first_count};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::scan::lake_table::{LakeTable, write_rows};
use crate::sql::words::spelled;

/// The table, and the column if it is about one, of COMMENT ON.
pub(crate) fn commented(
    object_type: &ast::CommentObject,
    name: &ast::ObjectName,
) -> (ast::ObjectName, Option<ast::Ident>) {
    let mut table = name.clone();
    let column = match object_type {
        ast::CommentObject::Column if table.0.len() > 1 => table.0.pop(),
        _ => None,
    };
    (table, column.and_then(|column| column.as_ident().cloned()))
}

pub(crate) fn reference(name: &ast::ObjectName) -> Result<TableReference> {
    let parts: Option<Vec<String>> =
        name.0.iter().map(|part| part.as_ident().map(spelled)).collect();
    match parts.as_deref() {
        Some([table]) => Ok(TableReference::bare(table.as_str())),
        Some([schema, table]) => Ok(TableReference::partial(schema.as_str(), table.as_str())),
        Some([catalog, schema, table]) => {
            Ok(TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()))
        }
        _ => refuse!(InvalidName, "`{name}` is not a table of the lake"),
    }
}

/// A property of a table, and its new value; `None` takes it away.
type Property = (String, Option<String>);

/// What SET and RESET name; `None` if the statement does something else.
fn properties(operations: &[ast::AlterTableOperation]) -> Result<Option<Vec<Property>>> {
    use ast::AlterTableOperation::{SetOptionsParens, SetTblProperties};
    let mut found = Vec::new();
    let mut others = 0;
    for operation in operations {
        let (SetOptionsParens { options } | SetTblProperties { table_properties: options }) =
            operation
        else {
            others += 1;
            continue;
        };
        for option in options {
            let ast::SqlOption::KeyValue { key, value } = option else {
                return refuse!(SyntaxError, "write SET (clustered_by = 'column, …')");
            };
            let value = match value {
                ast::Expr::Value(value) => match &value.value {
                    ast::Value::Null => None,
                    other => other.clone().into_string(),
                },
                ast::Expr::Identifier(column) => Some(spelled(column)),
                other => {
                    return refuse!(
                        SyntaxError,
                        "`{other}` is no list of columns: write '…', with commas between them"
                    );
                }
            };
            found.push((key.value.to_lowercase(), value));
        }
    }
    match (found.is_empty(), others) {
        (true, _) => Ok(None),
        (false, 0) => Ok(Some(found)),
        (false, _) => {
            Err(EngineError::unsupported("SET and RESET stand in an ALTER TABLE of their own"))
        }
    }
}

/// A column as the table spells it.
fn stored_name(base: &Snapshot, column: &str) -> Result<String> {
    let fields = base.schema().fields().iter();
    let mut same = fields.filter(|field| field.name().to_lowercase() == column.to_lowercase());
    match same.next() {
        Some(field) => Ok(field.name().clone()),
        None => refuse!(UndefinedColumn, "table `{}` has no column `{column}`", base.table()),
    }
}

/// Rows that are there have no value for a new column.
fn must_take_null(column: &ast::ColumnDef) -> Result<()> {
    for option in &column.options {
        match &option.option {
            ast::ColumnOption::Null => {}
            ast::ColumnOption::NotNull => {
                return refuse!(
                    InvalidTableDefinition,
                    "column `{}` must take NULL: the rows that there are have no value for it",
                    spelled(&column.name)
                );
            }
            other => {
                return Err(EngineError::unsupported(format!(
                    "{other} of a column that is added is not supported"
                ))
                .with_hint("add it without, then UPDATE the rows"));
            }
        }
    }
    Ok(())
}

/// The columns that a table is to have, each with the name that it has now; new ones have none.
struct Columns {
    table: String,
    all: Vec<(Option<String>, Field)>,
}

impl Columns {
    fn of(table: &LakeTable) -> Self {
        let fields = table.snapshot().schema().fields().iter();
        let all = fields.map(|field| (Some(field.name().clone()), field.as_ref().clone()));
        Self { table: table.snapshot().table().to_owned(), all: all.collect() }
    }

    fn place(&self, column: &str) -> Option<usize> {
        let column = column.to_lowercase();
        self.all.iter().position(|(_, field)| field.name().to_lowercase() == column)
    }

    fn must_lack(&self, column: &str) -> Result<()> {
        match self.place(column) {
            None => Ok(()),
            Some(_) => {
                refuse!(DuplicateColumn, "table `{}` has a column `{column}` already", self.table)
            }
        }
    }

    fn lacks(&self, column: &str) -> EngineError {
        let what = format!("table `{}` has no column `{column}`", self.table);
        let names: Vec<&str> = self.all.iter().map(|(_, field)| field.name().as_str()).collect();
        EngineError::statement(SqlState::UndefinedColumn, what)
            .with_hint(format!("it has {}", names.join(", ")))
    }
}

impl Session {
    /// The lake's own name of a table that is there.
    async fn there(&self, name: &ast::ObjectName, if_exists: bool) -> Result<Option<String>> {
        self.must_be_latest()?;
        let own = self.own_table(&reference(name)?).await?;
        if self.engine.lake.has_table(&own).await? {
            return Ok(Some(own));
        }
        match if_exists {
            true => Ok(None),
            false => refuse!(UndefinedTable, "there is no table `{own}`"),
        }
    }

    pub(crate) async fn alter_table(&self, alter: &ast::AlterTable) -> Result<Answer> {
        let Some(name) = self.there(&alter.name, alter.if_exists).await? else {
            return Ok(done(format!("there is no table {}", alter.name), None));
        };
        let table = self.catalog.load(&name).await?;
        if let Some(properties) = properties(&alter.operations)? {
            let set = self.set_properties(table.snapshot(), &properties).await;
            self.catalog.forget(&name);
            return Ok(done(set?, None));
        }
        let mut columns = Columns::of(&table);
        for operation in &alter.operations {
            match operation {
                ast::AlterTableOperation::AddColumn {
                    if_not_exists,
                    column_def,
                    column_position,
                    ..
                } => {
                    if column_position.is_some() {
                        return Err(EngineError::unsupported("a new column is the last one"));
                    }
                    must_take_null(column_def)?;
                    let column = spelled(&column_def.name);
                    if columns.place(&column).is_some() && *if_not_exists {
                        continue;
                    }
                    columns.must_lack(&column)?;
                    let found = self.type_of(&column_def.data_type.to_string()).await?;
                    let stored = uplake_table::stored_type(&found).map_err(|reason| {
                        let message = format!("column `{column}`: {reason}");
                        EngineError::statement(SqlState::InvalidTableDefinition, message)
                    })?;
                    columns.all.push((None, Field::new(column, stored, true)));
                }
                ast::AlterTableOperation::DropColumn {
                    column_names,
                    if_exists,
                    drop_behavior,
                    ..
                } => {
                    if *drop_behavior == Some(ast::DropBehavior::Cascade) {
                        return Err(EngineError::unsupported(
                            "DROP COLUMN … CASCADE is not supported",
                        )
                        .with_hint("drop what reads the column first"));
                    }
                    for column in column_names {
                        match columns.place(&spelled(column)) {
                            Some(place) => drop(columns.all.remove(place)),
                            None if *if_exists => {}
                            None => return Err(columns.lacks(&spelled(column))),
                        }
                    }
                }
                ast::AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                    let (old, new) = (spelled(old_column_name), spelled(new_column_name));
                    let Some(place) = columns.place(&old) else { return Err(columns.lacks(&old)) };
                    if columns.place(&new).is_some_and(|other| other != place) {
                        columns.must_lack(&new)?;
                    }
                    self.must_be_nameless(&name, &old)?;
                    let field = &mut columns.all[place].1;
                    *field = field.clone().with_name(new);
                }
                ast::AlterTableOperation::RenameTable { table_name } => {
                    return Err(EngineError::unsupported(format!(
                        "ALTER TABLE … RENAME {table_name} is not supported: files, rights, views and saved definitions \
                         go by a table's name, and a bucket cannot rename a folder in one step"
                    ))
                    .with_hint(
                        "CREATE TABLE … AS SELECT * FROM it, then DROP TABLE; or CREATE VIEW of the new name",
                    ));
                }
                other => {
                    return Err(EngineError::unsupported(format!(
                        "ALTER TABLE … {other} is not supported"
                    ))
                    .with_hint(
                        "ADD, DROP and RENAME COLUMN and SET (…) are; for others, CREATE TABLE … AS SELECT",
                    ));
                }
            }
        }
        let changed = self.change_columns(&table, &columns.all).await;
        self.catalog.forget(&name);
        Ok(done(changed?, None))
    }

    /// Gives a table these columns, each with the name that it has now; what was done.
    async fn change_columns(
        &self,
        table: &Arc<LakeTable>,
        columns: &[(Option<String>, Field)],
    ) -> Result<String> {
        let snapshot = table.snapshot();
        let (name, fields) = (snapshot.table(), snapshot.schema().fields());
        let (lake, budget) = (&self.engine.lake, &self.engine.budget);
        let old: Vec<(Option<String>, Field)> =
            fields.iter().map(|f| (Some(f.name().clone()), f.as_ref().clone())).collect();
        if *columns == *old {
            return Ok(format!("table {name} has these columns already"));
        }
        if let Some(new) = columns.strip_prefix(old.as_slice()) {
            let new: Vec<Field> = new.iter().map(|(_, field)| field.clone()).collect();
            add_columns(lake, snapshot, &new, budget.now_millis()).await?;
            let names: Vec<&str> = new.iter().map(|field| field.name().as_str()).collect();
            return Ok(format!("added {} to table {name}", names.join(", ")));
        }
        let new = NewColumns::new(snapshot, columns).map_err(|error| match error {
            TableError::Invalid(what) => EngineError::unsupported(what),
            other => other.into(),
        })?;
        let (bytes, now) = (budget.write_bytes(), budget.now_millis());
        let mut writer = StreamWriter::into_new_columns(
            lake,
            snapshot.clone(),
            &new,
            bytes,
            budget.threads,
            now,
        )
        .await?;
        let rows = match self.write_columns(&mut writer, table, columns, &new).await {
            Ok(rows) => rows,
            Err(error) => {
                writer.abort().await;
                return Err(error);
            }
        };
        writer.commit(WriteKind::Columns(new)).await?;
        Ok(format!("changed columns of table {name}: {rows} rows are written again"))
    }

    /// Writes all rows in other columns; how many they are.
    async fn write_columns(
        &self,
        writer: &mut StreamWriter,
        table: &Arc<LakeTable>,
        columns: &[(Option<String>, Field)],
        new: &NewColumns,
    ) -> Result<u64> {
        let name = TableReference::bare(table.snapshot().table());
        let source = provider_as_source(Arc::clone(table) as _);
        let scan = || LogicalPlanBuilder::scan(name.clone(), Arc::clone(&source), None);
        let column = |(old, field): &(Option<String>, Field)| {
            let value = match old {
                Some(old) => Expr::Column(Column::new(Some(name.clone()), old.to_lowercase())),
                None => cast(lit(ScalarValue::Null), field.data_type().clone()),
            };
            value.alias(field.name())
        };
        let rows = scan()?.project(columns.iter().map(column))?.build()?;
        let written = write_rows(writer, self.run_query(rows).await?, new.schema()).await?;
        let all = match table.snapshot().rows() {
            Some(rows) => rows,
            None => {
                let counted = scan()?.aggregate(Vec::<Expr>::new(), [count(lit(1))])?.build()?;
                first_count(&self.run_query(counted).await?.try_collect::<Vec<_>>().await?)
            }
        };
        match written == all {
            true => Ok(written),
            false => Err(EngineError::bug(format!(
                "table {name} has {all} rows, and {written} were written again; nothing was changed"
            ))),
        }
    }

    /// Refuses a column of another name where what is kept of rights names it.
    fn must_be_nameless(&self, table: &str, column: &str) -> Result<()> {
        match &self.guard {
            Some(guard) if guard.hides(table, column) => Err(EngineError::unsupported(format!(
                "column `{column}` of `{table}` is hidden from a role by its name"
            ))
            .with_hint("ALTER TABLE … SHOW COLUMN, rename it, then HIDE COLUMN by its new name")),
            _ => Ok(()),
        }
    }

    /// SET and RESET of what a table has beside columns and rows; what was done.
    async fn set_properties(
        &self,
        base: &Snapshot,
        properties: &[(String, Option<String>)],
    ) -> Result<String> {
        let (lake, budget, name) = (&self.engine.lake, &self.engine.budget, base.table());
        let now_millis = budget.now_millis();
        let mut clusters = None;
        let mut indexes = None;
        for (property, value) in properties {
            let parts = value.iter().flat_map(|value| value.split(',')).map(str::trim);
            let parts = || parts.clone().filter(|part| !part.is_empty());
            match property.as_str() {
                "clustered_by" => {
                    clusters =
                        Some(parts().map(|c| stored_name(base, c)).collect::<Result<Vec<_>>>()?);
                }
                "indexed_by" => {
                    let index = |part: &str| -> Result<IndexSpec> {
                        let (column, kind) = part
                            .split_once([':', ' '])
                            .map_or((part, None), |(c, k)| (c, Some(k.trim())));
                        let column = stored_name(base, column.trim())?;
                        match kind {
                            None => Ok(IndexSpec { column, kind: IndexKind::Ids }),
                            Some(kind) => Ok(format!("{column}:{kind}").parse::<IndexSpec>()?),
                        }
                    };
                    indexes = Some(parts().map(index).collect::<Result<Vec<_>>>()?);
                }
                "partitioned_by" | "primary_key" | "id_domains" => {
                    return Err(EngineError::unsupported(format!(
                        "`{property}` is fixed when a table is made"
                    ))
                    .with_hint("CREATE TABLE … AS SELECT its rows into another table"));
                }
                other => {
                    return refuse!(
                        InvalidParameterValue,
                        "a table has no property `{other}`; there are clustered_by and indexed_by"
                    );
                }
            }
        }
        let mut said = Vec::new();
        if let Some(columns) = clusters {
            let how = if columns.is_empty() {
                "is not sorted".to_owned()
            } else {
                format!("is sorted by {}", columns.join(", "))
            };
            if columns != base.cluster_by() {
                set_cluster_by(lake, base, columns, now_millis).await?;
            }
            said.push(format!(
                "table {name} {how} in new files, and in others once they are compacted"
            ));
        }
        if let Some(specs) = indexes {
            // The one before was a commit, too.
            let base = lake.snapshot(name, &AsOf::Latest).await?;
            let has = base.indexes();
            let options = ReindexOptions {
                add: specs.iter().filter(|spec| !has.contains(spec)).cloned().collect(),
                drop: has.iter().filter(|spec| !specs.contains(spec)).cloned().collect(),
                threads: budget.threads,
                now_millis,
                ..ReindexOptions::default()
            };
            let built = reindex(lake, &base, &options).await?;
            let specs: Vec<String> = built.indexes.iter().map(ToString::to_string).collect();
            let specs = if specs.is_empty() { "nothing".to_owned() } else { specs.join(", ") };
            said.push(format!(
                "table {name} is indexed by {specs}; {} index files are new",
                built.built
            ));
        }
        Ok(said.join("; "))
    }

    /// COMMENT ON TABLE and COMMENT ON COLUMN.
    pub(crate) async fn comment(
        &self,
        (table, column): (ast::ObjectName, Option<ast::Ident>),
        text: Option<&str>,
        if_exists: bool,
    ) -> Result<Answer> {
        let Some(name) = self.there(&table, if_exists).await? else {
            return Ok(done(format!("there is no table {table}"), None));
        };
        let loaded = self.catalog.load(&name).await?;
        let column = column.as_ref().map(spelled);
        let stored = column.map(|column| loaded.stored_names(&[column]).concat());
        let now = self.engine.budget.now_millis();
        let (lake, base) = (&self.engine.lake, loaded.snapshot());
        let said = set_comment(lake, base, stored.as_deref(), text, now).await;
        self.catalog.forget(&name);
        said?;
        let about = stored.map_or_else(|| format!("table {name}"), |c| format!("{name}.{c}"));
        Ok(done(format!("noted about {about}"), None))
    }
}
