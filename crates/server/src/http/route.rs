//! Which path does what, and what its handlers share.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::watch;

use super::here::Here;
use super::refusal::Refusal;
use super::{auth, health, load, queries, sql};
use crate::failure::Failure;
use crate::flight;
use crate::server::Shared;

/// Calls of Flight SQL, which finds out itself who asks.
const FLIGHT: &str = "/arrow.flight.protocol.FlightService/{*call}";

/// All routes of HTTP, and Flight SQL.
pub(crate) fn router(shared: Arc<Shared>, drain: watch::Receiver<bool>) -> Router {
    let flight_too = Arc::clone(&shared);
    let here = Here { shared, drain, answered: Arc::default() };
    let guarded = Router::new()
        .route("/sql", post(sql::post).get(sql::get))
        .route("/queries", get(queries::list))
        .route("/queries/{id}", get(queries::one).delete(queries::cancel))
        .route("/load/{table}", post(load::post))
        .route("/metrics", get(health::metrics))
        .route_layer(from_fn_with_state(here.clone(), known));
    Router::new()
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .merge(guarded)
        .fallback(nothing)
        .with_state(here)
        .route_service(FLIGHT, flight::service(flight_too))
}

/// Lets those through who may ask, and tells handlers who it is.
async fn known(State(here): State<Here>, mut request: Request, next: Next) -> Response {
    let client = auth::client(&here.shared, &request);
    match client.await {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(failure) => Refusal(failure).into_response(),
    }
}

async fn nothing() -> Refusal {
    let failure = Failure::new("42704", "there is nothing at this path");
    Refusal(
        failure.with_hint("/sql, /load/TABLE, /queries, /health, /ready and /metrics are there"),
    )
}
