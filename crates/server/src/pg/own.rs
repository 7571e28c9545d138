//! Statements that the connection answers itself: transactions, settings, cursors.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use uplake_engine::within;

use crate::catalog::rewrite;
use crate::failure::Failure;
use crate::pg::commands::Command;
use crate::pg::connection::{Connection, Kind, Portal, Table, located, session_for};
use crate::pg::encoders::Form;
use crate::pg::rows::{Ask, Begun, description, named};
use crate::pg::session::Settings;
use crate::pg::transaction::State;
use crate::pg::wire::{Step, Stop};

const NO_TRANSACTION: &str = "there is no transaction in progress";

/// What came of it.
pub(crate) enum Own {
    Tag(String),
    Rows(Table, &'static str),
    /// It is the engine's after all.
    Engine,
}

fn tag(tag: &str) -> Step<Own> {
    Ok(Own::Tag(tag.to_owned()))
}

/// Is it a setting of the engine?
fn is_of_engine(name: &str) -> bool {
    let name = name.to_lowercase();
    name.starts_with("uplake.") || name.starts_with("datafusion.")
}

/// The columns that a statement of these answers with, beside FETCH.
pub(crate) fn columns(command: &Command) -> Option<Vec<String>> {
    let one = |name: &str| Some(vec![name.to_owned()]);
    match command {
        Command::Show(name) if Settings::knows(name) => one(Settings::spelled(name)),
        Command::ShowAll => Some(["name", "setting", "description"].map(String::from).into()),
        Command::AdvisoryUnlock => one("pg_advisory_unlock_all"),
        Command::SetConfig { .. } => one("set_config"),
        _ => None,
    }
}

impl Connection {
    /// May it run now?
    ///
    /// # Errors
    /// 25P02 in a transaction that failed, unless it ends it.
    pub fn check(&self, command: &Command) -> Result<(), Failure> {
        match command {
            Command::Empty | Command::Commit | Command::Rollback | Command::RollbackTo(_) => Ok(()),
            _ => self.transaction.check(),
        }
    }

    /// Answers one of these statements, of which COPY and FETCH are none.
    ///
    /// # Errors
    /// Its own, with places in `text`.
    pub async fn own(&mut self, command: Command, text: &str) -> Step<Own> {
        self.check(&command)?;
        match command {
            Command::Begin => {
                if self.transaction.begin() {
                    self.notice("WARNING", "25001", "there is already a transaction in progress");
                }
                tag("BEGIN")
            }
            Command::Commit => Ok(Own::Tag(self.commit().await?.to_owned())),
            Command::Rollback => {
                if self.end_transaction() == State::None {
                    self.notice("WARNING", "25P01", NO_TRANSACTION);
                } else {
                    self.give_up().await?;
                }
                tag("ROLLBACK")
            }
            Command::Savepoint(name) => {
                self.transaction.check_savepoint()?;
                let session = self.transaction_session()?;
                let work = Box::pin(async move { Ok(session.savepoint().await?) });
                let savepoint = self.plan("SAVEPOINT", work).await?;
                self.transaction.save(name, savepoint);
                tag("SAVEPOINT")
            }
            Command::Release(name) => {
                self.transaction.release(&name)?;
                tag("RELEASE")
            }
            Command::RollbackTo(name) => {
                let savepoint = self.transaction.go_back(&name)?;
                let session = self.transaction_session()?;
                let work = Box::pin(async move { Ok(session.rollback_to(&savepoint).await?) });
                self.plan("ROLLBACK TO SAVEPOINT", work).await?;
                tag("ROLLBACK")
            }
            Command::SetTransaction => tag("SET"),
            Command::Set { name, value, local } => self.set(&name, value.as_deref(), local),
            Command::SetConfig { name, value, local } => {
                let value = match is_of_engine(&name) {
                    true => {
                        self.set_engine(&name, &value).await?;
                        value
                    }
                    false => {
                        let local = local && self.transaction.is_open();
                        let told = self.settings.set(&name, Some(&value), local)?;
                        self.tell(told);
                        self.settings.get(&name).unwrap_or(value)
                    }
                };
                Ok(Own::Rows(Table::one("set_config", value), "SELECT 1"))
            }
            Command::Show(name) => Ok(match self.settings.get(&name) {
                Some(value) => Own::Rows(Table::one(Settings::spelled(&name), value), "SHOW"),
                None => Own::Engine,
            }),
            Command::ShowAll => {
                let columns = ["name", "setting", "description"].map(String::from).into();
                let all = self.settings.all().into_iter();
                let rows = all.map(|(name, value)| vec![name.to_owned(), value, String::new()]);
                Ok(Own::Rows(Table { columns, rows: rows.collect() }, "SHOW"))
            }
            Command::Reset(name) if Settings::knows(&name) => {
                let told = self.settings.set(&name, None, false)?;
                self.tell(told);
                tag("RESET")
            }
            Command::ResetAll => {
                self.reset_all().await?;
                tag("RESET")
            }
            Command::Discard { all: true } => {
                if self.transaction.is_open() {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(Failure::new("25001", message).into());
                }
                let told = self.settings.reset_all();
                self.tell(told);
                self.engine_settings.clear();
                self.statements.clear();
                self.portals.clear();
                self.reading = None;
                let process = self.cancellable.process;
                let session = session_for(&self.shared, &self.client, process, &self.settings);
                self.session = Arc::new(session);
                tag("DISCARD ALL")
            }
            Command::Discard { all: false } => tag("DISCARD"),
            Command::Declare { name, query, query_at } => {
                let declared = self.declare(name, query).await;
                declared.map_err(|stop| stop.map(|failure| located(failure, text, query_at)))?;
                tag("DECLARE CURSOR")
            }
            Command::CloseCursor(None) => {
                self.portals.clear();
                tag("CLOSE CURSOR ALL")
            }
            Command::CloseCursor(Some(name)) => match self.portals.remove(&name) {
                Some(_) => tag("CLOSE CURSOR"),
                None => Err(no_cursor(&name).into()),
            },
            Command::Deallocate(None) => {
                self.statements.clear();
                Ok(Own::Engine)
            }
            Command::Deallocate(Some(name)) => match self.statements.remove(&name) {
                Some(_) => tag("DEALLOCATE"),
                None => Ok(Own::Engine),
            },
            Command::Unlisten => tag("UNLISTEN"),
            Command::Kill(id) => match self.shared.stop_statement(&self.client, id) {
                true => tag("KILL"),
                false => {
                    let message = format!("there is no statement {id} that you may stop");
                    Err(Failure::new("42704", message)
                        .with_hint("SELECT * FROM system.running")
                        .into())
                }
            },
            Command::AdvisoryUnlock => {
                Ok(Own::Rows(Table::one("pg_advisory_unlock_all", ""), "SELECT 1"))
            }
            Command::Empty
            | Command::Engine
            | Command::Reset(_)
            | Command::Copy(_)
            | Command::Fetch { .. } => Ok(Own::Engine),
        }
    }

    async fn commit(&mut self) -> Step<&'static str> {
        match self.end_transaction() {
            State::None => {
                self.notice("WARNING", "25P01", NO_TRANSACTION);
                Ok("COMMIT")
            }
            State::Failed => {
                self.give_up().await?;
                Ok("ROLLBACK")
            }
            State::Open => {
                if let Some(session) = self.reading.clone() {
                    // It is listed, a server that goes down waits for it, and who waits no longer hears whether it was
                    // sent.
                    let running = self.shared.statements.begin(self.client.clone(), "COMMIT");
                    let _marked = self.cancellable.mark(running.id());
                    let timeout = self.settings.timeout();
                    let commit = async move { within(timeout, Box::pin(session.commit())).await? };
                    let work = async move { Ok(commit.await?) };
                    self.wire.unless_gone(running.compute(work)).await?;
                }
                Ok("COMMIT")
            }
        }
    }

    /// What the transaction has written goes.
    async fn give_up(&mut self) -> Step {
        match self.reading.clone() {
            None => Ok(()),
            Some(session) => {
                let work = Box::pin(async move { Ok(session.rollback().await?) });
                match self.plan("ROLLBACK", work).await {
                    // What was written is given up; that its files go is not waited for any more.
                    Err(Stop::Failed(failure)) if failure.code == "57014" => Ok(()),
                    done => done,
                }
            }
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Step<Own> {
        if is_of_engine(name) && !local {
            self.engine_settings.insert(name.to_lowercase());
            return Ok(Own::Engine);
        }
        let local = local && self.transaction.is_open();
        let told = self.settings.set(name, value, local)?;
        self.tell(told);
        tag("SET")
    }

    /// Sets a setting of the engine.
    ///
    /// # Errors
    /// The engine's.
    pub async fn set_engine(&mut self, name: &str, value: &str) -> Step {
        self.engine_settings.insert(name.to_lowercase());
        let text = format!("SET {name} = '{}'", value.replace('\'', "''"));
        self.begin(&text, Ask::Text(text.clone()), Form::Rows(Vec::new())).await?;
        Ok(())
    }

    async fn reset_all(&mut self) -> Step {
        let told = self.settings.reset_all();
        self.tell(told);
        for name in std::mem::take(&mut self.engine_settings) {
            let text = format!("RESET {name}");
            self.begin(&text, Ask::Text(text.clone()), Form::Rows(Vec::new())).await?;
        }
        Ok(())
    }

    /// May a cursor of that name be declared?
    ///
    /// # Errors
    /// 25P01 outside of a transaction, 42P03 if there is one already, 54000 if there are too many.
    pub fn check_cursor(&self, name: &str) -> Result<(), Failure> {
        if !self.transaction.is_open() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Failure::new("25P01", message).with_hint("BEGIN"));
        }
        if self.portals.contains_key(name) {
            return Err(Failure::new("42P03", format!("cursor \"{name}\" already exists")));
        }
        self.check_portals()
    }

    async fn declare(&mut self, name: String, query: String) -> Step {
        self.check_cursor(&name)?;
        let session = self.session_of(&query)?;
        let text = query.clone();
        let plan = async move {
            let mut statements = uplake_engine::parse(&rewrite(&text))?;
            let statement = statements.pop().filter(|_| statements.is_empty());
            let statement = statement.filter(|statement| statement.command() == "SELECT");
            let statement = statement.ok_or_else(no_query)?;
            let prepared = session.prepare(&statement).await?;
            let schema = named(&statement, prepared.schema());
            Ok((prepared.bind(&[])?, schema))
        };
        let (statement, schema) = self.plan(&query, Box::pin(plan)).await?;
        self.put_cursor(name, query, Ask::Bound(Box::new(statement)), schema);
        Ok(())
    }

    /// A cursor whose query has its values.
    pub fn put_cursor(&mut self, name: String, query: String, ask: Ask, schema: SchemaRef) {
        let portal = Portal {
            text: query,
            kind: Kind::Text,
            ask: Some(ask),
            formats: Vec::new(),
            schema: Some(schema),
            rows: None,
            is_over: false,
        };
        self.portals.insert(name, portal);
    }

    /// FETCH and MOVE: up to `most` rows of a cursor, and how many these were.
    ///
    /// # Errors
    /// 34000 if there is no such cursor; those of its query.
    pub async fn fetch(
        &mut self,
        cursor: &str,
        most: Option<u64>,
        moves: bool,
        formats: Option<&[i16]>,
    ) -> Step<u64> {
        let mut portal = self.portals.remove(cursor).ok_or_else(|| no_cursor(cursor))?;
        if portal.rows.is_none()
            && let Some(ask) = portal.ask.take()
        {
            // MOVE says nothing of how rows are to be written, and Bind has said it of its own portal.
            if let Some(formats) = formats.filter(|_| !moves && matches!(portal.kind, Kind::Text)) {
                portal.formats = formats.to_vec();
            }
            let form = Form::Rows(portal.formats.clone());
            match self.begin(&portal.text, ask, form).await? {
                Begun::Rows(rows) => portal.rows = Some(rows),
                Begun::Done { .. } => portal.is_over = true,
            }
        }
        if formats.is_none()
            && !moves
            && let Some(schema) = &portal.schema
        {
            self.wire.put(&description(schema, &portal.formats));
        }
        let most = most.unwrap_or(u64::MAX);
        let mut fetched = 0;
        if let Some(rows) = portal.rows.as_deref_mut().filter(|_| !portal.is_over) {
            if moves {
                while fetched < most && !portal.is_over {
                    match self.wire.unless_gone(rows.next(most - fetched)).await? {
                        Some((_, count)) => fetched += count,
                        None => portal.is_over = true,
                    }
                }
            } else {
                (fetched, portal.is_over) = self.send(rows, most).await?;
            }
        }
        if portal.is_over {
            // What it held is free, though the cursor stays.
            portal.rows = None;
        }
        self.portals.insert(cursor.to_owned(), portal);
        Ok(fetched)
    }
}

pub(crate) fn no_query() -> Failure {
    Failure::new("42601", "a cursor is made of one query")
}

fn no_cursor(name: &str) -> Failure {
    Failure::new("34000", format!("cursor \"{name}\" does not exist"))
}
