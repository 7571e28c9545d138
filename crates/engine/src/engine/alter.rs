//! ALTER TABLE and COMMENT: what a table is, without its rows.
//!
//! # Not here
//! ALTER TABLE … HIDE and SHOW COLUMN, which are about rights: a server answers them (`added_statements`).

use datafusion::arrow::datatypes::Field;
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast;
use uplake_table::{add_columns, set_comment};

use crate::base::answer::{Answer, done};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;

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

fn reference(name: &ast::ObjectName) -> Result<TableReference> {
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

fn spelled(word: &ast::Ident) -> String {
    match word.quote_style {
        Some(_) => word.value.clone(),
        None => word.value.to_lowercase(),
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
        let schema = table.snapshot().schema();
        let mut new: Vec<Field> = Vec::new();
        for operation in &alter.operations {
            let ast::AlterTableOperation::AddColumn {
                if_not_exists,
                column_def,
                column_position,
                ..
            } = operation
            else {
                return Err(EngineError::unsupported(format!(
                    "ALTER TABLE … {operation} is not supported"
                ))
                .with_hint(
                    "ADD COLUMN is; for other columns, CREATE TABLE … AS SELECT them into another table",
                ));
            };
            if column_position.is_some() {
                return Err(EngineError::unsupported("a new column is the last one"));
            }
            let column = spelled(&column_def.name);
            let is_it = |field: &Field| field.name().to_lowercase() == column.to_lowercase();
            let is_there =
                schema.fields().iter().any(|field| is_it(field)) || new.iter().any(is_it);
            if is_there && *if_not_exists {
                continue;
            }
            if is_there {
                return refuse!(DuplicateColumn, "table `{name}` has a column `{column}` already");
            }
            for option in &column_def.options {
                match &option.option {
                    ast::ColumnOption::Null => {}
                    ast::ColumnOption::NotNull => {
                        return refuse!(
                            InvalidTableDefinition,
                            "column `{column}` must take NULL: the rows that there are have no value for it"
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
            let found = self.type_of(&column_def.data_type.to_string()).await?;
            let stored = uplake_table::stored_type(&found).map_err(|reason| {
                let message = format!("column `{column}`: {reason}");
                EngineError::statement(SqlState::InvalidTableDefinition, message)
            })?;
            new.push(Field::new(column, stored, true));
        }
        if new.is_empty() {
            return Ok(done(format!("table {name} has these columns already"), None));
        }
        let now = self.engine.budget.now_millis();
        let added = add_columns(&self.engine.lake, table.snapshot(), &new, now).await;
        self.catalog.forget(&name);
        added?;
        let names: Vec<&str> = new.iter().map(|field| field.name().as_str()).collect();
        Ok(done(format!("added {} to table {name}", names.join(", ")), None))
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
