//! A client that has logged in: what it has set and prepared, and what it is told.
//!
//! # Not here
//! What its messages do (`simple`, `extended`, `copy`), and their order (`conversation`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::BufMut;
use pgwire::messages::data::{FieldDescription, RowDescription};
use pgwire::messages::response::{
    CommandComplete, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus,
};
use pgwire::messages::startup::ParameterStatus;
use uplake_engine::{Position, Prepared, RunOptions, Session, parse_labels, within};

use crate::catalog;
use crate::failure::Failure;
use crate::limits::Seat;
use crate::metrics::Connected;
use crate::pg::cancel::{Cancellable, Marked};
use crate::pg::commands::Command;
use crate::pg::encoders::Form;
use crate::pg::rows::{self, Ask, Begun, Rows};
use crate::pg::session::{Changed, Settings};
use crate::pg::tags::changes_tables;
use crate::pg::transaction::{AT_ONCE, State, Transaction};
use crate::pg::types;
use crate::pg::wire::{Step, Wire};
use crate::pg::words::Words;
use crate::roll::Membership;
use crate::server::Shared;
use crate::statements::{Client, Running};
use crate::traceparent::TRACEPARENT;

/// Prepared statements of a connection.
pub(crate) const MOST_STATEMENTS: usize = 1000;
/// Portals and cursors of a connection.
pub(crate) const MOST_PORTALS: usize = 256;
/// Characters of a message, and of a hint.
const MESSAGE_CHARACTERS: usize = 4000;
const HINT_CHARACTERS: usize = 2000;

/// A client that has logged in.
pub(crate) struct Connection {
    pub shared: Arc<Shared>,
    pub wire: Wire,
    pub session: Arc<Session>,
    /// The session of transactions, once there was one.
    pub reading: Option<Arc<Session>>,
    pub settings: Settings,
    /// Settings of the engine that were changed.
    pub engine_settings: BTreeSet<String>,
    pub transaction: Transaction,
    pub statements: HashMap<String, Arc<Parsed>>,
    pub portals: HashMap<String, Portal>,
    /// Rows that are answered in full, kept until the answer is sent: their statement is noted as over then.
    pub over: Option<Box<Rows>>,
    pub cancellable: Cancellable,
    pub client: Client,
    pub membership: Membership,
    pub _connected: Connected,
    pub _seat: Seat,
}

/// A statement that has been parsed.
pub(crate) struct Parsed {
    pub text: String,
    pub kind: Kind,
    /// Of its parameters.
    pub oids: Vec<u32>,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// Planned, and to be given values.
    Prepared(Box<Prepared>),
    /// DECLARE of a cursor: its name, and its query.
    Cursor(String, Box<Prepared>),
    /// Run as it is written.
    Text,
    Own(Command),
}

/// A statement with its values, or a cursor.
pub(crate) struct Portal {
    pub text: String,
    pub kind: Kind,
    pub ask: Option<Ask>,
    pub formats: Vec<i16>,
    /// Of the columns that the client was told of.
    pub schema: Option<SchemaRef>,
    pub rows: Option<Box<Rows>>,
    pub is_over: bool,
}

/// Rows of text that are made here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn one(column: &str, value: impl Into<String>) -> Self {
        Self { columns: vec![column.to_owned()], rows: vec![vec![value.into()]] }
    }

    /// Text is the same in both formats.
    pub fn description(columns: &[String], formats: &[i16]) -> RowDescription {
        let format = |at: usize| match formats {
            [] => 0,
            [all] => *all,
            each => each.get(at).copied().unwrap_or(0),
        };
        let field = |(at, name): (usize, &String)| {
            FieldDescription::new(name.clone(), 0, 0, types::TEXT, -1, -1, format(at))
        };
        RowDescription::new(columns.iter().enumerate().map(field).collect())
    }
}

/// What is left of a message once it can be shown on one line.
fn shown(text: &str, most: usize) -> String {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().take(most).map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// The fields of an error or a notice.
pub(crate) fn fields(severity: &str, failure: &Failure) -> Vec<(u8, String)> {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', failure.code.to_string()),
        (b'M', shown(&failure.message, MESSAGE_CHARACTERS)),
    ];
    fields.extend(failure.hint.as_ref().map(|hint| (b'H', shown(hint, HINT_CHARACTERS))));
    fields.extend(failure.context.as_ref().map(|context| (b'W', shown(context, HINT_CHARACTERS))));
    fields.extend(failure.position.map(|position| (b'P', position.column.to_string())));
    fields
}

/// The failure of a statement that begins at byte `at` of a text, with its place in characters of that text, which is
/// seen as one line.
pub(crate) fn located(mut failure: Failure, text: &str, at: usize) -> Failure {
    failure.position = failure.position.and_then(|Position { line, column }| {
        let before = text.get(..at)?;
        let mut rest = text.get(at..)?;
        let mut characters = before.chars().count() as u64;
        for _ in 1..line {
            let end = rest.find('\n')? + 1;
            characters += rest[..end].chars().count() as u64;
            rest = &rest[end..];
        }
        Some(Position { line: 1, column: characters + column.max(1) })
    });
    failure
}

/// A session of the engine that knows whose it is, and what the login has set.
pub(crate) fn session_for(
    shared: &Shared,
    client: &Client,
    process: i32,
    settings: &Settings,
) -> Session {
    let session = shared.session_of(client);
    for (name, value) in settings.of_login() {
        session.set_fact(&format!("{}{name}", catalog::SETTING), Some(value));
    }
    session.set_fact(catalog::PID, Some(&process.to_string()));
    if let Some((host, _)) = client.address.rsplit_once(':') {
        session.set_fact(catalog::ADDRESS, Some(host.trim_matches(['[', ']'])));
    }
    if let Some(address) = shared.options.pg {
        session.set_fact(catalog::PORT, Some(&address.port().to_string()));
    }
    session
}

impl Connection {
    /// The statement failed: so does the transaction.
    pub fn fail(&mut self, failure: &Failure) {
        self.transaction.fail();
        self.wire.put(&ErrorResponse::new(fields("ERROR", failure)));
    }

    pub fn notice(&mut self, severity: &str, code: &'static str, message: &str) {
        let failure = Failure::new(code, message);
        self.wire.put(&NoticeResponse::new(fields(severity, &failure)));
    }

    /// Functions find what was set, and the client hears of it where it must.
    pub fn tell(&mut self, changed: impl IntoIterator<Item = Changed>) {
        for Changed { name, value, is_reported } in changed {
            let fact = format!("{}{}", catalog::SETTING, name.to_lowercase());
            for session in [Some(&self.session), self.reading.as_ref()].into_iter().flatten() {
                session.set_fact(&fact, Some(&value));
            }
            if is_reported {
                self.wire.put(&ParameterStatus::new(name.to_owned(), value));
            }
        }
        self.client.application = self.settings.application();
        self.membership.rename(&self.client.application);
    }

    pub fn complete(&mut self, tag: impl Into<String>) {
        self.wire.put(&CommandComplete::new(tag.into()));
    }

    pub fn ready(&mut self) {
        self.session.rest();
        let status: TransactionStatus = self.transaction.status();
        self.wire.put(&ReadyForQuery::new(status));
    }

    /// What the engine wants its users to hear.
    pub fn warnings(&mut self) {
        for warning in self.session.take_warnings() {
            self.notice("WARNING", "01000", &warning);
        }
    }

    /// Rows of text that are made here, without their description.
    pub fn put_rows(&mut self, table: &Table) {
        let out = &mut self.wire.out;
        for row in &table.rows {
            let length: usize = row.iter().map(|value| 4 + value.len()).sum();
            out.put_u8(b'D');
            out.put_u32((6 + length) as u32);
            out.put_u16(row.len() as u16);
            for value in row {
                out.put_u32(value.len() as u32);
                out.put_slice(value.as_bytes());
            }
        }
    }

    fn mark(&self, rows: &Rows) -> Marked {
        self.cancellable.mark(rows.running.id())
    }

    /// The session of a statement: that of the transaction, if it is in one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn session_of(&mut self, text: &str) -> Result<Arc<Session>, Failure> {
        match self.transaction.is_open() && !is_of_connection(text) {
            true => self.transaction_session(),
            false => Ok(Arc::clone(&self.session)),
        }
    }

    /// The session of the transaction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn transaction_session(&mut self) -> Result<Arc<Session>, Failure> {
        if let Some(reading) = &self.reading {
            return Ok(Arc::clone(reading));
        }
        let reading = Arc::new(self.session.transaction()?);
        Ok(Arc::clone(self.reading.insert(reading)))
    }

    /// Runs a statement of the engine until its first rows are there, or it is done.
    ///
    /// # Errors
    /// Its own; [`Stop::Gone`] if the client goes meanwhile.
    pub async fn begin(&mut self, text: &str, ask: Ask, form: Form) -> Step<Begun> {
        let session = self.session_of(text)?;
        let running = self.admit(text).await?;
        let _marked = self.cancellable.mark(running.id());
        let options =
            RunOptions { timeout: self.settings.timeout(), ..self.shared.run_options(&running) };
        let encoding = self.settings.encoding();
        let begun = rows::begin(&self.shared, session, running, ask, options, form, encoding);
        let begun = self.wire.unless_gone(begun).await?;
        if let Begun::Done { command, .. } = &begun {
            self.done(command)?;
        }
        Ok(begun)
    }

    /// A statement of this client, once it may have it.
    ///
    /// # Errors
    /// 53400; [`Stop::Gone`] if the client goes meanwhile.
    pub async fn admit(&mut self, text: &str) -> Step<Running> {
        self.client.labels = parse_labels(&self.session.labels()).unwrap_or_default();
        let trace = self.session.traceparent();
        if !trace.is_empty() {
            self.client.labels.insert(TRACEPARENT.to_owned(), trace);
        }
        // It may wait for a while.
        self.session.rest();
        let shared = Arc::clone(&self.shared);
        self.wire.unless_gone(shared.admit(self.client.clone(), text)).await
    }

    /// A statement without rows is done.
    fn done(&mut self, command: &str) -> Result<(), Failure> {
        if self.transaction.is_open() && changes_tables(command) {
            self.notice("NOTICE", "01000", AT_ONCE);
        }
        if !matches!(command, "INSERT" | "DELETE" | "UPDATE" | "MERGE")
            && let Some(reading) = &self.reading
        {
            // It may have changed settings.
            self.reading = Some(Arc::new(self.session.in_transaction_of(reading)?));
        }
        Ok(())
    }

    /// Sends up to `most` rows; how many these were, and are there no more?
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn send(&mut self, rows: &mut Rows, most: u64) -> Step<(u64, bool)> {
        let _marked = self.mark(rows);
        let mut sent = 0;
        while sent < most {
            let is_whole = rows.is_whole();
            let next = self.wire.unless_gone(rows.next(most - sent)).await?;
            let Some((chunk, count)) = next else { return Ok((sent, true)) };
            sent += count;
            self.wire.put_bytes(chunk);
            if !is_whole {
                let wire = &mut self.wire;
                let flush = async { Ok::<Step, Failure>(wire.flush().await) };
                rows.running.unless_stopped(flush).await??;
            }
        }
        // As in Postgres, a portal of exactly so many rows is suspended: nobody looks for its end.
        Ok((sent, false))
    }

    /// All rows of a statement, after their description: its tag's count.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn send_all(&mut self, rows: &mut Rows) -> Step<u64> {
        let (sent, _) = self.send(rows, u64::MAX).await?;
        if rows.cut_nanoseconds() {
            self.notice("NOTICE", "01000", "times were cut to microseconds");
        }
        Ok(sent)
    }

    /// Plans a statement, which is listed and can be cancelled meanwhile.
    ///
    /// # Errors
    /// Its own; [`Stop::Gone`] if the client goes meanwhile.
    pub async fn plan<T: Send + 'static>(
        &mut self,
        text: &str,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Step<T> {
        let running = self.shared.statements.begin_plan(self.client.clone(), text);
        let _marked = self.cancellable.mark(running.id());
        let timeout = self.settings.timeout();
        let work = async move { within(timeout, work).await? };
        self.wire.unless_gone(running.compute(work)).await
    }

    /// The transaction ends, and with it what lives in it, but for what it has written.
    pub fn end_transaction(&mut self) -> State {
        self.portals.clear();
        let told = self.settings.end_transaction();
        self.tell(told);
        self.transaction.end()
    }

    /// # Errors
    /// 54000 if there are as many portals as may be.
    pub fn check_portals(&self) -> Result<(), Failure> {
        if self.portals.len() < MOST_PORTALS {
            return Ok(());
        }
        let message = format!("a connection has at most {MOST_PORTALS} portals and cursors");
        Err(Failure::new("54000", message).with_hint("CLOSE some"))
    }
}

/// Is it about the connection, whatever transaction there is? By its first word alone.
fn is_of_connection(text: &str) -> bool {
    let first = Words::of(text).next();
    first.is_some_and(|(_, word, _)| word.is("set") || word.is("reset"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_characters_of_the_whole_text() {
        let text = "SELECT 'ä';\nSELECT\n x";
        let at = text.rfind("SELECT").unwrap();
        let failure = |line, column| {
            let mut failure = Failure::new("42703", "no");
            failure.position = Some(Position { line, column });
            located(failure, text, at).position.unwrap().column
        };
        assert_eq!(failure(1, 1), 13);
        // `x` is the 21st character.
        assert_eq!(failure(2, 2), 21);
    }

    #[test]
    fn messages_have_no_control_characters() {
        let failure = Failure::new("22023", "a\u{1b}[31m\0b\nc").with_hint("h");
        let fields = fields("ERROR", &failure);
        assert!(fields.contains(&(b'M', "a\u{fffd}[31m\u{fffd}b\nc".into())));
        assert!(fields.contains(&(b'H', "h".into())));
        assert!(fields.iter().all(|(kind, _)| *kind != b'P'));
    }
}
