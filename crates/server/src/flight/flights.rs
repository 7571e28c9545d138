//! Statements of clients from their texts to tickets, rows and counts; what all calls share.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::sql::{
    ActionCreatePreparedStatementResult, Any, Command, CommandStatementIngest, ProstMessageExt,
};
use arrow_flight::{
    CancelStatus, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryFutureExt, TryStreamExt, stream};
use prost::Message;
use tonic::{Request, Response, Status};
use uplake_engine::{Answer, Prepared, ScalarValue, Session, Statement, parse};

use super::auth::{Caller, Sessions};
use super::ingest::{self, Target};
use super::prepared::{Handles, Held, values};
use super::rows::{self, DoGet, Fetched, failure_of, given, sent_schema};
use super::status::status;
use super::tickets::{Id, Tickets};
use crate::access_sql::token_columns;
use crate::failure::Failure;
use crate::loads::Loaded;
use crate::server::Shared;
use crate::statements::Cause;

/// The service.
pub(crate) struct Flight {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Sessions,
    pub(super) tickets: Tickets,
    pub(super) handles: Handles,
    fetched: Arc<Fetched>,
}

/// The one statement of a text.
pub(super) fn one(text: &str) -> Result<Statement, Failure> {
    let mut statements = parse(text)?;
    match (statements.pop(), statements.pop()) {
        (Some(statement), None) => Ok(statement),
        (None, _) => Err(Failure::new("42601", "there is no statement")),
        (Some(_), Some(_)) => Err(Failure::new("42601", "there are several statements")
            .with_hint("send them one after the other")),
    }
}

/// Does it only list what there is, without being a query? Its columns are known once it has run, which is cheap.
fn lists(statement: &Statement) -> bool {
    let word: String = statement.text.chars().take_while(char::is_ascii_alphabetic).collect();
    ["show", "describe", "desc"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// A statement's columns, and its parameters if it is a query, an INSERT or a DELETE. What changes something has no columns.
async fn planned(
    session: &Session,
    statement: &Statement,
) -> Result<(SchemaRef, Option<Prepared>), Failure> {
    if statement.can_be_prepared() {
        let prepared = session.prepare(statement).await?;
        return Ok((Arc::clone(prepared.schema()), Some(prepared)));
    }
    if let Some(schema) = token_columns(&statement.text) {
        return Ok((schema, None));
    }
    if lists(statement)
        && let Answer::Rows { schema, .. } = session.run(statement).await?
    {
        return Ok((schema, None));
    }
    Ok((Arc::new(Schema::empty()), None))
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Failure> {
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &IpcWriteOptions::default()));
    Ok(message.map_err(|error| Failure::bug(error.to_string()))?.0)
}

pub(super) fn bug(error: FlightError) -> Failure {
    Failure::bug(error.to_string())
}

impl Flight {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let key = || {
            let mut key = [0; 32];
            (shared.options.random)(&mut key);
            key
        };
        Self {
            sessions: Sessions::new(Arc::clone(&shared), &key()),
            tickets: Tickets::new(&key()),
            handles: Handles::default(),
            fetched: Arc::default(),
            shared,
        }
    }

    pub(super) fn now(&self) -> i64 {
        (self.shared.options.clock)()
    }

    pub(super) fn id(&self) -> Id {
        let mut id = Id::default();
        (self.shared.options.random)(&mut id);
        id
    }

    pub(super) fn caller<'a, T>(
        &'a self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<Caller, Status>> + Send + use<'a, T> {
        self.sessions.caller(request).map_err(|failure| status(&failure))
    }

    /// What the rows of `ticket` will be.
    pub(super) fn flight(
        &self,
        caller: &Caller,
        ticket: Bytes,
        schema: &Schema,
        descriptor: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let mut info = FlightInfo::new()
            .with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket)))
            .with_descriptor(descriptor)
            .with_ordered(true);
        info.schema = schema_bytes(schema).map_err(|failure| status(&failure))?;
        Ok(caller.told(Response::new(info)))
    }

    /// A flight whose ticket is what was asked.
    pub(super) async fn named<C: ProstMessageExt + Sync>(
        &self,
        command: &C,
        schema: &Schema,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.caller(&request).await?;
        let ticket = command.as_any().encode_to_vec().into();
        self.flight(&caller, ticket, schema, request.into_inner())
    }

    /// A few rows that are known.
    pub(super) async fn known(
        &self,
        request: &Request<Ticket>,
        rows: impl Future<Output = Result<RecordBatch, Failure>> + Send + 'static,
    ) -> Result<Response<DoGet>, Status> {
        let caller = self.caller(request).await?;
        self.told(&caller, rows).await
    }

    /// The same for a caller that is known.
    pub(super) async fn told(
        &self,
        caller: &Caller,
        rows: impl Future<Output = Result<RecordBatch, Failure>> + Send + 'static,
    ) -> Result<Response<DoGet>, Status> {
        let batch = self.shared.statements.compute(self.shared.own.clone().during(rows)).await;
        let batch = batch.map_err(|failure| status(&failure))?;
        Ok(caller.told(Response::new(given(batch.schema(), batch))))
    }

    pub(super) async fn plan(
        &self,
        caller: &Caller,
        statement: Statement,
    ) -> Result<(SchemaRef, Option<Prepared>), Failure> {
        let session = Arc::clone(&caller.session);
        let work = async move { planned(&session, &statement).await };
        self.shared.statements.compute(self.shared.own.clone().during(work)).await
    }

    pub(super) async fn statement_rows(
        &self,
        caller: &Caller,
        sealed: &[u8],
        views: bool,
    ) -> Result<DoGet, Failure> {
        let now = self.now();
        let ticket = self.tickets.open(sealed, now)?;
        if ticket.role != caller.client.role {
            return Err(Failure::new("42501", "the ticket is another user's"));
        }
        let statement = one(&ticket.text)?;
        let is_new = match statement.only_asks() || lists(&statement) {
            true => !self.tickets.is_used(&ticket),
            false => self.tickets.use_up(&ticket, now)?,
        };
        if !is_new {
            return Err(Failure::new("26000", "the ticket has been run, or was cancelled")
                .with_hint("run the statement again"));
        }
        self.rows(caller, ticket.id, statement, views).await
    }

    pub(super) async fn prepared_rows(
        &self,
        caller: &Caller,
        handle: &[u8],
        views: bool,
    ) -> Result<DoGet, Failure> {
        let (id, held) = self.handles.get(handle, &caller.client.role, self.now())?;
        let mut bound = held.bound()?;
        match (bound.pop(), bound.is_empty()) {
            (Some(statement), true) => self.rows(caller, id, statement, views).await,
            _ => Err(Failure::new("0A000", "a query takes one row of values")
                .with_hint("run it once for each")),
        }
    }

    pub(super) async fn rows(
        &self,
        caller: &Caller,
        id: Id,
        statement: Statement,
        views: bool,
    ) -> Result<DoGet, Failure> {
        let running = self.shared.admit(caller.client.clone(), &statement.text).await?;
        let listed = self.fetched.add(id, running.id());
        let session = Arc::clone(&caller.session);
        rows::run(&self.shared, running, listed, session, statement, views).await
    }

    /// Runs statements one after the other; the rows that they changed.
    pub(super) async fn update(
        &self,
        caller: &Caller,
        all: Vec<Statement>,
    ) -> Result<i64, Failure> {
        let mut rows: i64 = 0;
        for statement in all {
            if token_columns(&statement.text).is_some() {
                // An update's answer is a number.
                return Err(Failure::new("0A000", "CREATE TOKEN answers with the token")
                    .with_hint("send it as a query"));
            }
            let running = self.shared.admit(caller.client.clone(), &statement.text).await?;
            let session = Arc::clone(&caller.session);
            rows = rows
                .saturating_add(rows::update(&self.shared, &running, session, statement).await?);
        }
        Ok(rows)
    }

    pub(super) async fn prepare(
        &self,
        caller: &Caller,
        text: &str,
        views: bool,
    ) -> Result<ActionCreatePreparedStatementResult, Failure> {
        let statement = one(text)?;
        let (schema, query) = self.plan(caller, statement.clone()).await?;
        let role = caller.client.role.clone();
        let schema = sent_schema(&schema, views);
        let held = Held::new(role, caller.owner.clone(), statement, query, Arc::clone(&schema));
        let parameter_schema = schema_bytes(&held.parameters())?;
        let id = self.id();
        self.handles.add(id, held, self.now())?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: id.to_vec().into(),
            dataset_schema: schema_bytes(&schema)?,
            parameter_schema,
        })
    }

    pub(super) async fn ingest(
        &self,
        caller: &Caller,
        command: CommandStatementIngest,
        data: PeekableFlightDataStream,
    ) -> Result<i64, Failure> {
        let target = Target::new(command, &self.shared.options.database)?;
        let running = self.shared.admit(caller.client.clone(), &target.text()).await?;
        let (shared, now) = (Arc::clone(&self.shared), self.now());
        let session = Arc::clone(&caller.session);
        let role = caller.client.role.clone();
        let (table, label) = (target.table.clone(), target.label.clone());
        let done = running.compute(async move {
            shared.may_load(&role, &target.table).await?;
            let batches = Box::pin(batches(data));
            Box::pin(ingest::ingest(&shared, &session, &role, target, batches, now)).await
        });
        let summary = done.await?;
        running.loaded(&Loaded { table: &table, label: label.as_deref(), summary: &summary });
        Ok(i64::try_from(summary.rows).unwrap_or(i64::MAX))
    }

    /// The rows of values that come with a call.
    pub(super) async fn values(
        &self,
        data: PeekableFlightDataStream,
    ) -> Result<Vec<Vec<ScalarValue>>, Failure> {
        // What a client sends may be anything: a panic over it is an error there.
        self.shared.statements.compute(values(Box::pin(batches(data)))).await
    }

    /// Stops what is fetched with these tickets; those that nobody has fetched run no more.
    pub(super) fn cancel(
        &self,
        caller: &Caller,
        info: &FlightInfo,
    ) -> Result<CancelStatus, Failure> {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let mut found = CancelStatus::NotCancellable;
        for ticket in tickets {
            let wrong = || Failure::new("26000", "the ticket is not one of this server");
            let any = Any::decode(&*ticket.ticket).map_err(|_| wrong())?;
            let id = match Command::try_from(any).map_err(|_| wrong())? {
                Command::TicketStatementQuery(ticket) => {
                    let ticket = self.tickets.open(&ticket.statement_handle, self.now())?;
                    if ticket.role != caller.client.role {
                        return Err(Failure::new("42501", "the ticket is another user's"));
                    }
                    self.tickets.use_up(&ticket, self.now())?;
                    ticket.id
                }
                Command::CommandPreparedStatementQuery(query) => {
                    let handle = &query.prepared_statement_handle;
                    self.handles.get(handle, &caller.client.role, self.now())?.0
                }
                _ => continue,
            };
            for running in self.fetched.of(id) {
                self.shared.statements.stop(running, Cause::Client);
            }
            found = CancelStatus::Cancelled;
        }
        Ok(found)
    }
}

/// The batches that a client sends. One without rows comes first if no other does, for its columns.
fn batches(
    data: PeekableFlightDataStream,
) -> impl Stream<Item = Result<RecordBatch, Failure>> + Send {
    // A first message may name the command alone.
    let data = data.try_filter(|data| std::future::ready(!data.data_header.is_empty()));
    let data = data.map_err(FlightError::from);
    let decoded = FlightRecordBatchStream::new_from_flight_data(data);
    stream::unfold((decoded, false), |(mut decoded, any)| async move {
        match decoded.next().await {
            Some(batch) => Some((batch.map_err(failure_of), (decoded, true))),
            None if any => None,
            None => {
                let empty = RecordBatch::new_empty(Arc::clone(decoded.schema()?));
                Some((Ok(empty), (decoded, true)))
            }
        }
    })
}

/// Refuses a change in a transaction, which could not be undone.
pub(super) fn no_transaction(id: Option<&Bytes>, statement: &Statement) -> Result<(), Failure> {
    match id.is_some() && !statement.only_asks() && !lists(statement) {
        true => Err(Failure::new("0A000", "transactions only read")
            .with_hint("send what changes something without one")),
        false => Ok(()),
    }
}
