//! Whether the process lives, whether it can answer, and what it has counted.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::here::Here;
use crate::failure::Failure;
use crate::metrics::CONTENT_TYPE;

/// The lake is not asked again before this.
const FRESH: Duration = Duration::from_secs(5);
/// Nor is it gone before this.
const STALE: Duration = Duration::from_secs(30);
/// What it may take to answer.
const LOOK: Duration = Duration::from_secs(5);

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(here): State<Here>) -> Response {
    let no = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    if *here.drain.borrow() {
        return no("the server is shutting down\n");
    }
    // One look for all who ask at once.
    let mut answered = here.answered.lock().await;
    if answered.is_none_or(|at| at.elapsed() > FRESH) {
        let engine = here.shared.engine.clone();
        let own = here.shared.own.clone();
        let look = here.shared.statements.compute(own.during(async move {
            let session = engine.session();
            let names = session.lake().table_names().await;
            names.map(drop).map_err(|error| Failure::new("58030", error.to_string()))
        }));
        if matches!(tokio::time::timeout(LOOK, look).await, Ok(Ok(()))) {
            *answered = Some(Instant::now());
        }
    }
    match *answered {
        Some(at) if at.elapsed() < STALE => "ready\n".into_response(),
        _ => no("the lake does not answer\n"),
    }
}

pub(super) async fn metrics(State(here): State<Here>) -> Response {
    let text = here.shared.metrics.text(&here.shared.now());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}
