//! SHOW CREATE TABLE: the statements that make a table with the same columns, layout, indexes and comments.

use std::sync::Arc;

use datafusion::arrow::array::StringArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use uplake_table::{IndexKind, Snapshot};

use crate::base::answer::{Answer, rows_answer};
use crate::base::error::Result;
use crate::engine::alter::reference;
use crate::engine::session::Session;
use crate::engine::views::quoted;

impl Session {
    /// `None` for what is not a table of the lake: planning says what there is.
    pub(crate) async fn show_create_table(&self, name: &ast::ObjectName) -> Result<Option<Answer>> {
        let own = self.own_table(&reference(name)?).await?;
        if !self.engine.lake.has_table(&own).await? {
            return Ok(None);
        }
        let table = self.catalog.load(&own).await?;
        let sql = statements(table.snapshot());
        rows_answer(vec![
            ("table_name", Arc::new(StringArray::from(vec![own]))),
            ("sql", Arc::new(StringArray::from(vec![sql]))),
        ])
        .map(Some)
    }
}

fn statements(table: &Snapshot) -> String {
    let listed = |columns: &[String]| columns.iter().map(|c| spelled(c)).collect::<Vec<_>>();
    let of_schema = table.schema().fields().iter().map(|field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{not_null}", spelled(field.name()), sql_type(field.data_type()))
    });
    let mut columns: Vec<String> = of_schema.collect();
    if !table.primary_key().is_empty() {
        columns.push(format!("PRIMARY KEY ({})", listed(table.primary_key()).join(", ")));
    }
    let indexes = table.indexes().iter().map(|index| match index.kind {
        IndexKind::Ids => spelled(&index.column),
        kind => format!("{} {}", spelled(&index.column), kind.name()),
    });
    let domains = table.id_domains().iter();
    let domains = domains.map(|ids| format!("{} {}", spelled(&ids.column), spelled(&ids.domain)));
    let name = spelled(table.table());
    let mut sql = format!("CREATE TABLE {name} (\n  {}\n)", columns.join(",\n  "));
    for (clause, of) in [
        ("PARTITIONED BY", listed(table.partition_columns())),
        ("CLUSTERED BY", listed(table.cluster_by())),
        ("INDEXED BY", indexes.collect()),
        ("ID DOMAINS", domains.collect()),
    ] {
        if !of.is_empty() {
            sql += &format!("\n{clause} ({})", of.join(", "));
        }
    }
    let mut comment = |what: String, text: &str| {
        sql += &format!(";\nCOMMENT ON {what} IS '{}'", text.replace('\'', "''"));
    };
    if let Some(text) = table.comment() {
        comment(format!("TABLE {name}"), text);
    }
    for (column, text) in table.comments() {
        comment(format!("COLUMN {name}.{}", spelled(column)), text);
    }
    sql
}

/// As CREATE TABLE reads it; of a map, which only files bring, its name.
fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) => format!("{}[]", sql_type(item.data_type())),
        DataType::Struct(fields) => {
            let fields =
                fields.iter().map(|f| format!("{} {}", spelled(f.name()), sql_type(f.data_type())));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => uplake_table::type_name(other),
    }
}

/// The name, in quotes where it would be another or a word of SQL.
fn spelled(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain && !ALL_KEYWORDS.contains(&name.to_uppercase().as_str()) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
