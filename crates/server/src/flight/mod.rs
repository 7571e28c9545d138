//! Flight SQL: statements, prepared statements, names and bulk ingest over gRPC, as Arrow.
//!
//! A statement is planned when a client asks for its schema, and runs when its rows are fetched: a ticket that nobody
//! fetches costs nothing. Rows are encoded where they are computed, and cross to the network through a spool.
//!
//! # Invariants
//! - A ticket names the role that it was made for, and opens for no other.
//! - What runs for a call is dropped with it.
//!
//! # Not here
//! Who may connect (`access`; one function of `auth` asks it); listeners and TLS.

mod auth;
mod flights;
mod info;
mod ingest;
mod listing;
mod prepared;
mod rows;
mod service;
mod status;
#[cfg(test)]
mod tests;
mod tickets;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;

use crate::server::Shared;

pub(crate) use flights::Flight;

/// Bytes of one message from a client: batches of ingest, and texts of statements.
const MESSAGE_BYTES: usize = 64 << 20;

/// What answers `/arrow.flight.protocol.FlightService/…`.
pub(crate) fn service(shared: Arc<Shared>) -> FlightServiceServer<Flight> {
    FlightServiceServer::new(Flight::new(shared))
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(usize::MAX)
}
