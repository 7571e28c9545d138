//! The calls of Flight SQL, each from its message to its answer.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionCancelQueryRequest,
    ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionEndTransactionRequest, CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, FlightDescriptor,
    FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use bytes::Bytes;
use futures::stream;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::flights::{Flight, bug, no_transaction, one};
use super::rows::{DoGet, sent_schema};
use super::status::status;
use super::{info, listing, tickets};
use crate::failure::Failure;

/// Asks for texts as views, as they are computed.
const VIEWS: &str = "x-uplake-views";
/// Actions beside those of Flight SQL.
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
const CLOSE_SESSION: &str = "CloseSession";

fn wants_views(metadata: &MetadataMap) -> bool {
    metadata.get(VIEWS).is_some_and(|value| value.as_bytes() == b"1")
}

#[tonic::async_trait]
impl FlightSqlService for Flight {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<<Self as FlightService>::HandshakeStream>, Status> {
        let caller = self.caller(&request).await?;
        let payload = Bytes::from(caller.token().unwrap_or_default().to_owned());
        let answer = Ok(HandshakeResponse { protocol_version: 0, payload });
        let answer: <Self as FlightService>::HandshakeStream = Box::pin(stream::iter([answer]));
        Ok(caller.told(Response::new(answer)))
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.caller(&request).await?;
        let views = wants_views(request.metadata());
        let asked = async {
            let statement = one(&query.query)?;
            no_transaction(query.transaction_id.as_ref(), &statement)?;
            self.plan(&caller, statement).await
        };
        let (schema, _) = asked.await.map_err(|failure| status(&failure))?;
        let role = caller.client.role.clone();
        let made = self.now();
        let ticket = tickets::Ticket { id: self.id(), made, role, text: query.query };
        let ticket = TicketStatementQuery { statement_handle: self.tickets.seal(&ticket) };
        let ticket = ticket.as_any().encode_to_vec().into();
        self.flight(&caller, ticket, &sent_schema(&schema, views), request.into_inner())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.caller(&request).await?;
        let handle = &query.prepared_statement_handle;
        let held = self.handles.get(handle, &caller.client.role, self.now());
        let (_, held) = held.map_err(|failure| status(&failure))?;
        let ticket = query.as_any().encode_to_vec().into();
        self.flight(&caller, ticket, &held.schema, request.into_inner())
    }

    async fn get_flight_info_catalogs(
        &self,
        asked: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.named(&asked, &asked.into_builder().schema(), request).await
    }

    async fn get_flight_info_schemas(
        &self,
        asked: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.named(&asked, &asked.clone().into_builder().schema(), request).await
    }

    async fn get_flight_info_tables(
        &self,
        asked: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.named(&asked, &asked.clone().into_builder().schema(), request).await
    }

    async fn get_flight_info_table_types(
        &self,
        asked: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.named(&asked, &asked.into_builder().schema(), request).await
    }

    async fn get_flight_info_sql_info(
        &self,
        asked: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let known = info::sql_info().map_err(bug).map_err(|failure| status(&failure))?;
        self.named(&asked, &known.schema(), request).await
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        asked: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let known = info::types().map_err(bug).map_err(|failure| status(&failure))?;
        self.named(&asked, &known.schema(), request).await
    }

    async fn get_flight_info_primary_keys(
        &self,
        asked: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.named(&asked, &listing::primary_key_schema(), request).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let caller = self.caller(&request).await?;
        let views = wants_views(request.metadata());
        let rows = self.statement_rows(&caller, &ticket.statement_handle, views).await;
        Ok(caller.told(Response::new(rows.map_err(|failure| status(&failure))?)))
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let caller = self.caller(&request).await?;
        let views = wants_views(request.metadata());
        let rows = self.prepared_rows(&caller, &query.prepared_statement_handle, views).await;
        Ok(caller.told(Response::new(rows.map_err(|failure| status(&failure))?)))
    }

    async fn do_get_catalogs(
        &self,
        asked: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let catalog = self.shared.options.database.clone();
        self.known(&request, async move { listing::catalogs(asked, &catalog) }).await
    }

    async fn do_get_schemas(
        &self,
        asked: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let catalog = self.shared.options.database.clone();
        self.known(&request, async move { listing::schemas(asked, &catalog) }).await
    }

    async fn do_get_tables(
        &self,
        asked: CommandGetTables,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let (shared, caller) = (Arc::clone(&self.shared), self.caller(&request).await?);
        let rights = shared.rights(&caller.client.role);
        let rows = async move {
            let session = shared.engine.session();
            listing::tables(&session, asked, &shared.options.database, &rights).await
        };
        self.told(&caller, rows).await
    }

    async fn do_get_table_types(
        &self,
        asked: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let rows = async move {
            let mut builder = asked.into_builder();
            builder.append(listing::TABLE);
            builder.append(listing::VIEW);
            builder.build().map_err(bug)
        };
        self.known(&request, rows).await
    }

    async fn do_get_sql_info(
        &self,
        asked: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let rows = async move {
            info::sql_info().and_then(|known| known.record_batch(asked.info)).map_err(bug)
        };
        self.known(&request, rows).await
    }

    async fn do_get_xdbc_type_info(
        &self,
        asked: CommandGetXdbcTypeInfo,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let rows = async move {
            info::types().and_then(|known| known.record_batch(asked.data_type)).map_err(bug)
        };
        self.known(&request, rows).await
    }

    async fn do_get_primary_keys(
        &self,
        asked: CommandGetPrimaryKeys,
        request: Request<Ticket>,
    ) -> Result<Response<DoGet>, Status> {
        let (shared, caller) = (Arc::clone(&self.shared), self.caller(&request).await?);
        let rights = shared.rights(&caller.client.role);
        let rows = Box::pin(async move {
            let session = shared.engine.session();
            listing::primary_keys(session.lake(), &asked, &shared.options.database, &rights).await
        });
        self.told(&caller, rows).await
    }

    async fn do_put_statement_update(
        &self,
        update: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = self.caller(&request).await?;
        let done = async {
            let statement = one(&update.query)?;
            no_transaction(update.transaction_id.as_ref(), &statement)?;
            self.update(&caller, vec![statement]).await
        };
        done.await.map_err(|failure| status(&failure))
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = self.caller(&request).await?;
        let done = self.ingest(&caller, command, request.into_inner()).await;
        done.map_err(|failure| status(&failure))
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let caller = self.caller(&request).await?;
        let handle = query.prepared_statement_handle;
        let rows = self.values(request.into_inner()).await;
        let bound = rows.and_then(|rows| self.handles.bind(&handle, &caller.client.role, rows));
        bound.map_err(|failure| status(&failure))?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let caller = self.caller(&request).await?;
        let handle = query.prepared_statement_handle;
        let done = async {
            // Values may come with the call, or have come before it.
            let rows = self.values(request.into_inner()).await?;
            if !rows.is_empty() {
                self.handles.bind(&handle, &caller.client.role, rows)?;
            }
            let (_, held) = self.handles.get(&handle, &caller.client.role, self.now())?;
            self.update(&caller, held.bound()?).await
        };
        done.await.map_err(|failure: Failure| status(&failure))
    }

    async fn do_action_create_prepared_statement(
        &self,
        asked: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let caller = self.caller(&request).await?;
        let views = wants_views(request.metadata());
        let made = self.prepare(&caller, &asked.query, views).await;
        made.map_err(|failure| status(&failure))
    }

    async fn do_action_close_prepared_statement(
        &self,
        asked: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let caller = self.caller(&request).await?;
        self.handles.close(&asked.prepared_statement_handle, &caller.client.role);
        Ok(())
    }

    async fn do_action_begin_transaction(
        &self,
        _asked: ActionBeginTransactionRequest,
        request: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        self.caller(&request).await?;
        Ok(ActionBeginTransactionResult { transaction_id: self.id().to_vec().into() })
    }

    async fn do_action_end_transaction(
        &self,
        _asked: ActionEndTransactionRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.caller(&request).await.map(|_| ())
    }

    async fn do_action_cancel_query(
        &self,
        asked: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let caller = self.caller(&request).await?;
        let info = FlightInfo::decode(&*asked.info);
        let info = info.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let found = self.cancel(&caller, &info).map_err(|failure| status(&failure))?;
        // The numbers are the same.
        Ok(ActionCancelQueryResult { result: found as i32 })
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let caller = self.caller(&request).await?;
        let body = match request.get_ref().r#type.as_str() {
            CANCEL_FLIGHT_INFO => {
                let asked = CancelFlightInfoRequest::decode(&*request.get_ref().body);
                let asked = asked.map_err(|error| Status::invalid_argument(error.to_string()))?;
                let info = asked.info.unwrap_or_default();
                let found = self.cancel(&caller, &info).map_err(|failure| status(&failure))?;
                CancelFlightInfoResult::new(found).encode_to_vec()
            }
            CLOSE_SESSION => {
                self.sessions.end(request.metadata());
                // `CloseSessionResult { status: CLOSED }`
                vec![0x08, 0x01]
            }
            other => return Err(Status::unimplemented(format!("there is no action {other}"))),
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(arrow_flight::Result::new(body))]))))
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let action = |name: &str, what: &str| {
            Ok(ActionType { r#type: name.to_owned(), description: what.to_owned() })
        };
        Some(vec![
            action(CANCEL_FLIGHT_INFO, "Stops what is fetched with the tickets of a FlightInfo."),
            action(CLOSE_SESSION, "Ends the session of the token."),
        ])
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
