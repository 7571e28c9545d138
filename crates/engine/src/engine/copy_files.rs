//! COPY … FROM files: the decoder of loads, in SQL.
//!
//! # Invariants
//! - All rows of the files are there, in one commit, or none of them.
//! - A file is read only if the session's guard lets it be, by the name that it has once patterns are looked up.

use std::sync::{Arc, PoisonError};

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use uplake_table::{Header, InputStores, LoadOptions, Progress, TextOptions, load};

use crate::base::answer::{Answer, done};
use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::alter::reference;
use crate::engine::privileges::Privilege;
use crate::engine::session::Session;
use crate::sql::copy_formats::read_options;
use crate::sql::copy_statement::CopyFrom;
use crate::sql::statement::Statement;

impl Session {
    pub(crate) async fn copy_from(&self, copy: &CopyFrom, statement: &Statement) -> Result<Answer> {
        self.must_be_latest()?;
        if self.catalog.pending.is_some() {
            return Err(EngineError::unsupported(
                "COPY … FROM a file is a commit of its own, and not done in a transaction",
            )
            .with_hint("COMMIT first, or send the rows: COPY … FROM STDIN"));
        }
        let options = read_options(copy)?;
        let name = self.own_table(&reference(&target(statement)?)?).await?;
        if !self.engine.lake.has_table(&name).await? {
            let what = format!("there is no table `{name}`");
            let missing = EngineError::statement(SqlState::UndefinedTable, what);
            let hint = "CREATE TABLE … AS SELECT * FROM 'file' makes one of a file's rows";
            return Err(missing.with_hint(hint));
        }
        if copy.files.iter().any(|file| file == "-") {
            return refuse!(InvalidParameterValue, "COPY … FROM takes files: `-` is none");
        }
        let files = InputStores::new(&self.engine.lake).inputs(&copy.files).await?;
        if let Some(guard) = &self.guard {
            for file in &files {
                self.check_file(guard.as_ref(), Privilege::ReadFiles, &file.name)?;
            }
        }
        if let Some(expected) = options.is_parquet {
            for file in &files {
                if file.is_parquet().await? != expected {
                    let what = if expected { "is not" } else { "is" };
                    return refuse!(
                        InvalidParameterValue,
                        "{} {what} a Parquet file; leave the format out, which the file says itself",
                        file.name
                    );
                }
            }
        }
        let budget = &self.engine.budget;
        let header = match options.header {
            None => Header::Find,
            Some(true) => Header::Yes,
            Some(false) => Header::No,
        };
        let text = TextOptions { delimiter: options.delimiter, header, null: options.null };
        let memory_bytes = budget.write_bytes();
        let options = LoadOptions {
            text,
            ..LoadOptions::new(memory_bytes, budget.threads, budget.now_millis())
        };
        let progress = Arc::new(Progress::default());
        let loaded = load(&self.engine.lake, &name, &files, &options, &progress).await;
        self.catalog.forget(&name);
        let loaded = loaded?;
        let notes = progress.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let notes: Vec<String> = notes.iter().map(|note| format!("\nnote: {note}")).collect();
        let rows = loaded.rows;
        let message = format!("copied {rows} rows into {name}{}", notes.concat());
        Ok(done(message, Some(rows)))
    }
}

/// The table that is written.
fn target(statement: &Statement) -> Result<ast::ObjectName> {
    if let DfStatement::Statement(inner) = &statement.parsed
        && let ast::Statement::Insert(insert) = inner.as_ref()
        && let ast::TableObject::TableName(name) = &insert.table
    {
        return Ok(name.clone());
    }
    Err(EngineError::bug("COPY is parsed as an INSERT into its table"))
}
