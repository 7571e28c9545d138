//! What runs, what ran, and its end.
//!
//! # Invariants
//! - A role sees and stops its own statements; whoever may monitor sees all, admins stop all.

use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::here::Here;
use super::refusal::{Refusal, as_json, invalid};
use crate::access::{Object, Verb};
use crate::failure::Failure;
use crate::statements::{Client, Listed};

/// Options of `GET /queries`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListOptions {
    /// So many of those that are over, the newest first.
    #[serde(default)]
    recent: usize,
}

pub(super) async fn list(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    options: Result<Query<ListOptions>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, Refusal> {
    let Query(options) = options.map_err(|error| invalid(error.body_text()))?;
    let all = may_with(&here, &client, Verb::Monitor);
    let sees = |listed: &Listed| all || listed.client.role == client.role;
    let running = here.shared.statements.running();
    let running: Vec<Value> = running.iter().filter(|l| sees(l)).map(|l| shown(l, true)).collect();
    let mut answer = json!({ "running": running });
    if options.recent > 0 {
        let over = here.shared.statements.over();
        let recent = over.iter().rev().filter(|l| sees(l)).take(options.recent);
        answer["recent"] = recent.map(|l| shown(l, false)).collect();
    }
    Ok(Json(answer))
}

pub(super) async fn one(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let id = number(&id)?;
    let statements = &here.shared.statements;
    let all = may_with(&here, &client, Verb::Monitor);
    let is_it = |listed: &Listed| listed.id == id && (all || listed.client.role == client.role);
    if let Some(listed) = statements.running().into_iter().find(is_it) {
        return Ok(Json(shown(&listed, true)));
    }
    let over = statements.over().into_iter().find(is_it);
    over.map(|listed| Json(shown(&listed, false))).ok_or_else(|| none(id))
}

pub(super) async fn cancel(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let id = number(&id)?;
    match here.shared.stop_statement(&client, id) {
        true => Ok(Json(json!({ "id": id, "cancelled": true }))),
        false => Err(none(id)),
    }
}

fn number(id: &str) -> Result<u64, Refusal> {
    id.parse().map_err(|_| invalid("a query's id is a whole number"))
}

fn none(id: u64) -> Refusal {
    Refusal(Failure::new("42704", format!("there is no query {id}")))
}

/// Has the client a right to what others run?
fn may_with(here: &Here, client: &Client, verb: Verb) -> bool {
    here.shared.rights(&client.role).may(verb, &Object::Lake).is_ok()
}

fn shown(listed: &Listed, runs: bool) -> Value {
    let state = if runs { listed.stage.name() } else { "over" };
    let cost = &listed.cost;
    json!({
        "id": listed.id,
        "state": state,
        "role": listed.client.role,
        "protocol": listed.client.protocol.name(),
        "application": listed.client.application,
        "address": listed.client.address,
        "text": &*listed.text,
        "began_millis": listed.began_millis,
        "seconds": cost.total.as_secs_f64(),
        "files_planned": cost.counts.files_planned,
        "files_done": cost.counts.files_done,
        "rows_read": cost.counts.rows_read,
        "bytes_read": cost.counts.bytes_read,
        "rows_sent": cost.rows_out,
        "bytes_sent": cost.bytes_out,
        "error": listed.failed.as_ref().map(as_json),
    })
}
