//! What a statement about access names, looked up: tables, columns, conditions.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use uplake_engine::{EngineError, Position, Result, SqlState};
use uplake_table::{AsOf, table_called};

use super::cursor::{place, refused};
use super::run::{AccessStatements, Asker};
use super::statement::{Condition, Named};
use crate::access::{Document, newest};

impl Asker<'_> {
    fn refusal(&self, at: usize, code: SqlState, what: String) -> EngineError {
        EngineError::statement(code, what).at(place(self.text, at))
    }
}

impl AccessStatements {
    /// Can rows of the table be asked for the condition?
    pub(super) async fn check_condition(
        &self,
        table: &str,
        condition: &Condition,
        asker: &Asker<'_>,
    ) -> Result<()> {
        let engine = self.engine.get().and_then(Weak::upgrade);
        let gone = || EngineError::execution(SqlState::InternalError, "the engine is gone");
        let session = engine.ok_or_else(gone)?.session();
        // On the heap: it plans.
        let checked = Box::pin(session.check_condition(table, &condition.text)).await;
        checked.map_err(|error| {
            let begins = place(asker.text, condition.at);
            let within = error.position().zip(begins).map(|(within, begins)| match within.line {
                1 => Position { line: begins.line, column: begins.column + within.column - 1 },
                line => Position { line: begins.line + line - 1, column: within.column },
            });
            error.at(within.or(begins))
        })
    }

    /// What counts of access now.
    async fn document(&self) -> Result<Arc<Document>> {
        match &self.directory {
            Some(directory) => Ok(directory.current()),
            None => newest(&self.lake).await.map(Arc::new).map_err(refused),
        }
    }

    /// The table that a query would mean by that name, as it is spelled. What takes rights away may name one that is
    /// gone, as it was spelled then.
    pub(super) async fn table(
        &self,
        named: &Named,
        asker: &Asker<'_>,
        must_be: bool,
    ) -> Result<String> {
        let name = named.name.as_str();
        let all = self.lake.table_names().await?;
        if let Some(table) = table_called(name, all.iter().map(String::as_str)) {
            return Ok(table.to_owned());
        }
        if !must_be {
            let document = self.document().await?;
            let known = document.access.tables();
            return Ok(table_called(name, known).unwrap_or(name).to_owned());
        }
        let others: Vec<&String> =
            all.iter().filter(|other| other.to_lowercase() == name.to_lowercase()).collect();
        let hint = match (others.as_slice(), all.is_empty()) {
            ([], true) => "the lake is empty: CREATE TABLE first".to_owned(),
            ([], false) => format!("the lake has {}", all.join(", ")),
            (others, _) => {
                let others: Vec<String> =
                    others.iter().map(|other| format!("\"{other}\"")).collect();
                format!("it can be {}: write which, in double quotes", others.join(" or "))
            }
        };
        let what = format!("there is no table `{name}`");
        Err(asker.refusal(named.at, SqlState::UndefinedTable, what).with_hint(hint))
    }

    pub(super) async fn columns_of(
        &self,
        table: &str,
        named: &[Named],
        asker: &Asker<'_>,
        must_be: bool,
    ) -> Result<BTreeSet<String>> {
        if named.is_empty() {
            return Ok(BTreeSet::new());
        }
        let snapshot = match self.lake.snapshot(table, &AsOf::Latest).await {
            Ok(snapshot) => Some(snapshot),
            Err(_) if !must_be => None,
            Err(error) => return Err(error.into()),
        };
        let fields = || snapshot.iter().flat_map(|snapshot| snapshot.schema().fields().iter());
        let each = named.iter().map(|named| {
            match spelled(named, fields().map(|field| field.name().as_str())) {
                Some(name) => Ok(name),
                None if !must_be => Ok(named.name.clone()),
                None => {
                    let what = format!("table `{table}` has no column `{}`", named.name);
                    Err(asker.refusal(named.at, SqlState::UndefinedColumn, what))
                }
            }
        });
        each.collect()
    }
}

/// The exact name of a column, or the only one in another case.
fn spelled<'a>(named: &Named, all: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(exact) = all.clone().find(|name| *name == named.name) {
        return Some(exact.to_owned());
    }
    let mut others = all.filter(|name| !named.is_exact && name.to_lowercase() == named.name);
    match (others.next(), others.next()) {
        (Some(only), None) => Some(only.to_owned()),
        _ => None,
    }
}
