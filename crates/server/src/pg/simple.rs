//! A text of statements: each is run and its rows sent before the next begins; an error ends the text.
//!
//! The statements of one text are no transaction: those before one that fails have taken effect.

use pgwire::messages::response::EmptyQueryResponse;

use crate::failure::Failure;
use crate::pg::commands::Command;
use crate::pg::connection::{Connection, Table, located};
use crate::pg::encoders::Form;
use crate::pg::own::Own;
use crate::pg::rows::{Ask, Begun, description};
use crate::pg::tags::tag;
use crate::pg::wire::{Step, Stop};
use crate::pg::words::Words;

/// The statements of a text, each with the byte at which it begins.
///
/// # Errors
/// 42601 if it cannot be split, as after a quote that is not closed.
pub(crate) fn split(text: &str) -> Result<Vec<(usize, &str)>, Failure> {
    let start = text.len() - text.trim_start().len();
    let one = text.trim().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    if !one.contains(';') {
        let is_there = Words::of(one).next().is_some();
        return Ok(is_there.then_some((start, one)).into_iter().collect());
    }
    Ok(uplake_engine::split(text)?)
}

impl Connection {
    /// Answers a Query message.
    ///
    /// # Errors
    /// [`Stop::Gone`] and [`Stop::Fatal`].
    pub async fn query(&mut self, text: &str) -> Step {
        self.statements.remove("");
        self.portals.remove("");
        match self.texts(text).await {
            Ok(()) => {}
            Err(Stop::Failed(failure)) => self.fail(&failure),
            Err(stop) => return Err(stop),
        }
        self.warnings();
        self.ready();
        self.flush().await
    }

    async fn texts(&mut self, text: &str) -> Step {
        let parts = split(text).map_err(|failure| located(failure, text, 0))?;
        if parts.is_empty() {
            self.wire.put(&EmptyQueryResponse::new());
        }
        for (at, part) in parts {
            let done = Box::pin(self.statement(part)).await;
            done.map_err(|stop| stop.map(|failure| located(failure, text, at)))?;
        }
        Ok(())
    }

    async fn statement(&mut self, text: &str) -> Step {
        self.over = None;
        let command = Command::of(text)?;
        self.check(&command)?;
        match command {
            Command::Empty => self.wire.put(&EmptyQueryResponse::new()),
            Command::Engine => self.text(text).await?,
            Command::Copy(copy) => {
                let tag = self.copy(copy, text).await?;
                self.complete(tag);
            }
            Command::Fetch { cursor, rows, moves } => {
                let count = self.fetch(&cursor, rows, moves, None).await?;
                let word = if moves { "MOVE" } else { "FETCH" };
                self.complete(format!("{word} {count}"));
            }
            command => match self.own(command, text).await? {
                Own::Tag(tag) => self.complete(tag),
                Own::Rows(table, tag) => {
                    self.wire.put(&Table::description(&table.columns, &[]));
                    self.put_rows(&table);
                    self.complete(tag);
                }
                Own::Engine => self.text(text).await?,
            },
        }
        Ok(())
    }

    async fn text(&mut self, text: &str) -> Step {
        let ask = Ask::Text(text.to_owned());
        match self.begin(text, ask, Form::Rows(Vec::new())).await? {
            Begun::Done { command, rows } => self.complete(tag(command, rows)),
            Begun::Rows(mut rows) => {
                self.wire.put(&description(&rows.schema, &[]));
                let count = self.send_all(&mut rows).await?;
                self.complete(tag(rows.command, Some(count)));
                self.over = Some(rows);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_into_statements() {
        let parts = |text: &'static str| split(text).unwrap();
        assert_eq!(parts(" SELECT 1 ; ; "), [(1, "SELECT 1")]);
        assert_eq!(parts("SELECT ';'; SELECT 2"), [(0, "SELECT ';'"), (12, "SELECT 2")]);
        // Labels are in comments.
        let text = "/* a */ SELECT 1; -- b;\nSELECT 2; -- nothing";
        assert_eq!(parts(text), [(0, "/* a */ SELECT 1"), (18, "-- b;\nSELECT 2")]);
        assert!(parts("").is_empty());
        assert!(parts(" ; ").is_empty());
        assert!(parts("-- ping").is_empty());
        assert_eq!(split("SELECT 'a; b").unwrap_err().code, "42601");
    }
}
