//! Statements that the engine does not answer itself, on their way to who does.

use std::sync::Arc;

use datafusion::physical_plan::memory::MemoryStream;

use crate::base::answer::{Answer, done};
use crate::base::error::{EngineError, Position, Result};
use crate::engine::additions::{AddedAnswer, SessionFacts};
use crate::engine::session::Session;
use crate::sql::added_statement::AddedStatement;
use crate::sql::statement::Statement;

impl Session {
    pub(crate) async fn run_added(
        &self,
        added: &AddedStatement,
        statement: &Statement,
    ) -> Result<Answer> {
        let Some(statements) = &self.catalog.additions.statements else {
            let what = format!("{} is not answered here", added.command);
            return Err(EngineError::unsupported(what)
                .with_hint("send it to a server of the lake, or see `uplake user --help`"));
        };
        let facts = {
            let state = self.context().state_ref();
            let state = state.read();
            SessionFacts::of(state.config_options())
        };
        match statements.run(&statement.text, facts).await {
            Ok(AddedAnswer::Done(message)) => Ok(done(message, None)),
            Ok(AddedAnswer::Rows(batch)) => {
                let schema = batch.schema();
                let stream = MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?;
                Ok(Answer::Rows { schema, stream: Box::pin(stream) })
            }
            Err(error) => {
                let place = error.position().map(|within| moved(added.begins, within));
                Err(error.at(place))
            }
        }
    }
}

/// A place within a statement, as one of the whole text.
fn moved(begins: Position, within: Position) -> Position {
    match within.line {
        1 => Position { line: begins.line, column: begins.column + within.column - 1 },
        line => Position { line: begins.line + line - 1, column: within.column },
    }
}
