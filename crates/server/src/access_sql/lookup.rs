//! What a statement about access names, looked up: tables, columns, conditions.

use std::collections::BTreeSet;
use std::sync::Weak;

use uplake_engine::{EngineError, Position, Result, SqlState};
use uplake_table::AsOf;

use super::cursor::place;
use super::run::{AccessStatements, Asker};
use super::statement::{Condition, Named};

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

    /// The table of that name, as it is spelled. What takes rights away may name one that is gone.
    pub(super) async fn table(
        &self,
        named: &Named,
        asker: &Asker<'_>,
        must_be: bool,
    ) -> Result<String> {
        let all = self.lake.table_names().await?;
        match spelled(named, all.iter().map(String::as_str)) {
            Some(name) => Ok(name),
            None if !must_be => Ok(named.name.clone()),
            None => {
                let what = format!("there is no table `{}`", named.name);
                Err(asker.refusal(named.at, SqlState::UndefinedTable, what))
            }
        }
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

/// The exact name, or the only one in another case.
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
