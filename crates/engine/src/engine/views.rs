//! Views: queries that are kept in the lake and planned anew wherever they are named.
//!
//! # Invariants
//! - A view is planned as if its query stood there: with the rights, the policies and the snapshots of who asks.
//! - A name is a table or a view; where both are there, which two writers at once can bring about, it is the table.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::StringArray;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::TableReference;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use uplake_table::{check_table_name, table_called};

use crate::base::answer::{Answer, done, rows_answer};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::catalog::{CATALOG, SCHEMA};
use crate::engine::parameter_types::parameter_types;
use crate::engine::session::Session;
use crate::sql::result_names::NamedBy;
use crate::sql::statement::{self, Statement};
use crate::sql::view_statement::ViewStatement;
use crate::sql::views::{Meaning, View, Views, expanded};
use crate::sql::words::split_version;

/// Views that may read one another in a row.
const MOST_DEEP: usize = 50;

/// A view as it is described.
#[derive(Clone, Debug)]
pub struct ViewDescription {
    pub name: String,
    /// Its query as it was written.
    pub query: String,
    pub schema: SchemaRef,
    /// The tables that it reads, also by other views.
    pub tables: Vec<String>,
}

/// What is known of views while a statement is looked at.
#[derive(Default)]
struct Found {
    /// Once they were listed.
    names: Option<Vec<String>>,
    views: Vec<View>,
    /// The views around the one that is read.
    path: Vec<String>,
}

impl Session {
    /// The statement with the queries of the views that it names; `None` if it names none.
    pub(crate) async fn with_views(&self, statement: &Statement) -> Result<Option<Statement>> {
        if statement.added.is_some() || statement.views.is_some() {
            return Ok(None);
        }
        let mut found = Found::default();
        let (mut targets, hint) = targets(&statement.parsed);
        targets.retain(|name| check_table_name(name).is_ok());
        for target in &targets {
            if !self.is_table(target).await?
                && let Some(view) = self.view_called(target, &mut found).await?
            {
                let refused = EngineError::unsupported(format!("`{view}` is a view"));
                return Err(refused.with_hint(hint));
            }
        }
        let meaning = Box::pin(self.meaning(&statement.parsed, &mut found)).await?;
        if meaning.views.is_empty() {
            return Ok(None);
        }
        let views = Views { all: found.views, meaning, place: [CATALOG, SCHEMA] };
        let mut statement = statement.clone();
        statement.views = Some(Arc::new(views));
        if let DfStatement::Statement(inner) = &statement.parsed
            && let ast::Statement::ExplainTable { table_name, .. } = inner.as_ref()
        {
            let text = format!("SELECT * FROM {table_name}");
            let query = statement::parse_as_is(&text)?;
            (statement.parsed, statement.tokens) = (query.parsed, query.tokens);
            statement.describes = true;
        }
        if let Some(views) = &statement.views {
            statement.parsed = expanded(statement.parsed, views, |view| Ok(view.body.clone()))?;
        }
        Ok(Some(statement))
    }

    /// What the names of a statement mean; the views among them are found.
    async fn meaning(&self, parsed: &DfStatement, found: &mut Found) -> Result<Meaning> {
        let mut meaning = Meaning::default();
        for reference in self.references(parsed)? {
            if !self.may_be_stored(&reference) {
                continue;
            }
            let asked = reference.table();
            let (name, version) = split_version(asked);
            if self.is_table(name).await? {
                meaning.tables.insert(asked.to_owned());
                continue;
            }
            let Some(view) = self.view_called(name, found).await? else {
                let Some(around) = found.path.last() else { continue };
                let what = format!("view `{around}` reads `{name}`, which is not there");
                return Err(EngineError::statement(SqlState::UndefinedTable, what)
                    .with_hint("make that table again, or replace the view"));
            };
            if version.is_some() {
                let refused = EngineError::unsupported(format!("`{view}` is a view"));
                let hint = "AS OF is for tables: --as-of sets it for those of a view, too";
                return Err(refused.with_hint(hint));
            }
            Box::pin(self.read_view(&view, found)).await?;
            meaning.views.insert(asked.to_owned(), view);
        }
        Ok(meaning)
    }

    /// Can it be a table or a view of the lake by its name?
    fn may_be_stored(&self, reference: &TableReference) -> bool {
        let name = split_version(reference.table()).0;
        reference.schema() != Some(INFORMATION_SCHEMA)
            && reference.catalog().is_none_or(|catalog| catalog == CATALOG)
            && reference.schema().is_none_or(|schema| schema == SCHEMA)
            && !self.catalog.additions.names(reference)
            && !self.is_no_table(name)
            && check_table_name(name).is_ok()
    }

    async fn is_table(&self, name: &str) -> Result<bool> {
        // One that cannot be read is there, too.
        Ok(self.catalog.is_table(name).await.unwrap_or(true))
    }

    /// The view of that name, or the only one that differs from it in case alone.
    async fn view_called(&self, name: &str, found: &mut Found) -> Result<Option<String>> {
        if found.names.is_none() {
            found.names = Some(self.engine.lake.view_names().await?);
        }
        let names = found.names.iter().flatten().map(String::as_str);
        Ok(table_called(name, names).map(str::to_owned))
    }

    /// Reads a view and those that it reads.
    async fn read_view(&self, name: &str, found: &mut Found) -> Result<()> {
        if found.path.iter().any(|around| around == name) {
            let path = found.path.join(" reads ");
            return refuse!(InvalidTableDefinition, "view {path} reads {name}, which is a circle");
        }
        if found.views.iter().any(|view| view.name == name) {
            return Ok(());
        }
        if found.path.len() >= MOST_DEEP {
            return refuse!(ProgramLimitExceeded, "more than {MOST_DEEP} views read one another");
        }
        let Some(text) = self.engine.lake.view(name).await? else {
            let what = format!("view `{name}` was dropped a moment ago");
            return Err(EngineError::statement(SqlState::UndefinedTable, what));
        };
        let body = body_of(name, &text)?;
        found.path.push(name.to_owned());
        let meaning = self.meaning(&body.parsed, found).await?;
        found.path.pop();
        let (body, tokens) = (body.parsed, body.tokens);
        found.views.push(View { name: name.to_owned(), text, body, tokens, meaning });
        Ok(())
    }

    /// CREATE VIEW, DROP VIEW, SHOW CREATE VIEW.
    pub(crate) async fn run_view(
        &self,
        about: &ViewStatement,
        statement: &Statement,
    ) -> Result<Answer> {
        let lake = &self.engine.lake;
        match about {
            ViewStatement::Create { name, columns, replace, if_not_exists, query } => {
                self.must_be_latest()?;
                let name = self.own_view(name).await?;
                if *if_not_exists && lake.view(&name).await?.is_some() {
                    return Ok(done(format!("view {name} exists already"), None));
                }
                let mut read = statement.views.iter().flat_map(|views| &views.all);
                if read.any(|view| view.name == name) {
                    return refuse!(InvalidTableDefinition, "view `{name}` would read itself");
                }
                let plan = self.plan(statement).await?;
                if !parameter_types(&plan)?.is_empty() {
                    return refuse!(InvalidTableDefinition, "a view has no parameters");
                }
                let types = Arc::new(self.columns_of(&plan)?);
                let schema = self.spell(statement, &types).await?;
                let shown = schema.fields().iter().map(|field| field.name().clone());
                let shown: Vec<String> = shown.collect();
                check_columns(&shown, columns)?;
                // Its columns are called as those of the query are when it is asked by itself.
                let is_written = |named: &NamedBy| matches!(named, NamedBy::Text(_));
                let has_star = statement.named.contains(&NamedBy::Star);
                let columns = match statement.named.iter().any(is_written) && !has_star {
                    true if columns.is_empty() => &shown,
                    _ => columns,
                };
                let text = text_of(&name, columns, query);
                // What cannot be read again is not written.
                body_of(&name, &text)?;
                lake.write_view(&name, &text, *replace).await?;
                Ok(done(format!("created view {name}"), None))
            }
            ViewStatement::Drop { name, if_exists } => {
                self.must_be_latest()?;
                let name = self.own_view(name).await?;
                let dropped = lake.drop_view(&name).await?;
                if dropped {
                    return Ok(done(format!("dropped view {name}"), None));
                }
                if lake.has_table(&name).await? {
                    return Err(EngineError::unsupported(format!("`{name}` is a table"))
                        .with_hint("DROP TABLE drops it"));
                }
                match if_exists {
                    true => Ok(done(format!("there is no view {name}"), None)),
                    false => Err(no_view(&name)),
                }
            }
            ViewStatement::Show { name } => {
                let name = self.own_view(name).await?;
                let text = lake.view(&name).await?.ok_or_else(|| no_view(&name))?;
                rows_answer(vec![
                    ("view_name", Arc::new(StringArray::from(vec![name]))),
                    ("sql", Arc::new(StringArray::from(vec![text.trim_end().to_owned()]))),
                ])
            }
        }
    }

    /// The name that a view has in the lake, or is to have.
    pub(crate) async fn own_view(&self, name: &str) -> Result<String> {
        let called = self.view_called(name, &mut Found::default()).await?;
        Ok(called.unwrap_or_else(|| name.to_owned()))
    }

    /// The views whose tables are all listed to this session, by name.
    pub(crate) async fn listed_views(&self) -> Result<Vec<String>> {
        let names = self.engine.lake.view_names().await?;
        let Some(guard) = &self.guard else { return Ok(names) };
        let mut listed = Vec::new();
        for name in names {
            let mut found = Found::default();
            let is_read = Box::pin(self.read_view(&name, &mut found)).await.is_ok();
            if is_read && self.tables_below(&found).await?.iter().all(|table| guard.lists(table)) {
                listed.push(name);
            }
        }
        Ok(listed)
    }

    /// The lake's tables that views read, by the names that they have.
    async fn tables_below(&self, found: &Found) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for table in found.views.iter().flat_map(|view| &view.meaning.tables) {
            names.push(self.catalog.exact_name(split_version(table).0).await?);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Each view of the lake that can be planned now.
    ///
    /// # Errors
    /// [`EngineError::Table`] if they cannot be listed.
    pub async fn views(&self) -> Result<Vec<ViewDescription>> {
        let mut described = Vec::new();
        for name in self.engine.lake.view_names().await? {
            // Who reads one that cannot be planned hears why.
            if let Ok(view) = Box::pin(self.described(&name)).await {
                described.push(view);
            }
        }
        Ok(described)
    }

    async fn described(&self, name: &str) -> Result<ViewDescription> {
        let mut found = Found::default();
        Box::pin(self.read_view(name, &mut found)).await?;
        let tables = self.tables_below(&found).await?;
        let text = found.views.last().map(|view| view.text.clone()).unwrap_or_default();
        let statement = statement::parse_as_is(&format!("SELECT * FROM \"{name}\""))?;
        let statement = self.with_views(&statement).await?.unwrap_or(statement);
        let plan = self.plan(&statement).await?;
        let schema = self.spell(&statement, &Arc::new(self.columns_of(&plan)?)).await?;
        let query = match statement::parse_as_is(&text)?.view {
            Some(ViewStatement::Create { query, .. }) => query,
            _ => text,
        };
        Ok(ViewDescription { name: name.to_owned(), query, schema, tables })
    }
}

fn no_view(name: &str) -> EngineError {
    let what = format!("there is no view `{name}`");
    EngineError::statement(SqlState::UndefinedTable, what).with_hint("SHOW TABLES lists them")
}

/// The query of a view by the statement that makes it, with the names that it gives to columns.
fn body_of(name: &str, text: &str) -> Result<Statement> {
    let damaged = |error: EngineError| {
        let message = format!("view `{name}` cannot be read: {}", error.message());
        EngineError::statement(error.code(), message)
            .with_hint("make it again with CREATE OR REPLACE VIEW")
    };
    let made = statement::parse_as_is(text).map_err(damaged)?;
    let Some(ViewStatement::Create { columns, query, .. }) = &made.view else {
        return refuse!(SyntaxError, "view `{name}` cannot be read: it is no CREATE VIEW");
    };
    if columns.is_empty() {
        return Ok(made);
    }
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    // The query may end with a comment.
    let named = format!("SELECT * FROM (\n{query}\n) AS {} ({})", quoted(name), columns.join(", "));
    statement::parse_as_is(&named).map_err(damaged)
}

fn text_of(name: &str, columns: &[String], query: &str) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
    let columns = match columns.is_empty() {
        true => String::new(),
        false => format!(" ({})", columns.join(", ")),
    };
    format!("CREATE VIEW {}{columns} AS\n{query}\n", quoted(name))
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Each column of a view has a name of its own.
fn check_columns(of_query: &[String], named: &[String]) -> Result<()> {
    if !named.is_empty() && named.len() != of_query.len() {
        let (names, columns) = (named.len(), of_query.len());
        return refuse!(
            InvalidTableDefinition,
            "the query has {columns} columns, and the view names {names}"
        );
    }
    let names = match named.is_empty() {
        true => of_query,
        false => named,
    };
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        None => Ok(()),
        Some(twice) => {
            let what = format!("two columns of the view are called `{twice}`");
            Err(EngineError::statement(SqlState::InvalidTableDefinition, what)
                .with_hint("give one an alias, or name the columns: CREATE VIEW v (a, b) AS …"))
        }
    }
}

/// The tables that a statement changes or shows, and what to do if one is a view.
fn targets(parsed: &DfStatement) -> (Vec<String>, &'static str) {
    const CHANGE: &str = "change the tables that it reads: SHOW CREATE VIEW names them";
    let inner = match parsed {
        DfStatement::Statement(inner) => inner.as_ref(),
        DfStatement::Explain(explain) => return targets(&explain.statement),
        _ => return (Vec::new(), CHANGE),
    };
    let of_factor = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { name, .. } => last_of(name),
        _ => None,
    };
    let one = |name: Option<String>| name.into_iter().collect();
    match inner {
        ast::Statement::Insert(insert) => match &insert.table {
            ast::TableObject::TableName(name) => (one(last_of(name)), CHANGE),
            _ => (Vec::new(), CHANGE),
        },
        ast::Statement::Delete(delete) => {
            let (ast::FromTable::WithFromKeyword(tables) | ast::FromTable::WithoutKeyword(tables)) =
                &delete.from;
            (tables.iter().filter_map(|table| of_factor(&table.relation)).collect(), CHANGE)
        }
        ast::Statement::Update(update) => (one(of_factor(&update.table.relation)), CHANGE),
        ast::Statement::Merge(merge) => (one(of_factor(&merge.table)), CHANGE),
        ast::Statement::Drop { names, .. } => {
            (names.iter().filter_map(last_of).collect(), "DROP VIEW drops it")
        }
        ast::Statement::ShowCreate { obj_name, .. } => {
            (one(last_of(obj_name)), "SHOW CREATE VIEW shows it")
        }
        _ => (Vec::new(), CHANGE),
    }
}

fn last_of(name: &ast::ObjectName) -> Option<String> {
    let name = name.0.last().and_then(ast::ObjectNamePart::as_ident)?;
    Some(match name.quote_style {
        Some(_) => split_version(&name.value).0.to_owned(),
        None => name.value.to_lowercase(),
    })
}
