//! Functions about who asks, the server and its settings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{DataType, TimeUnit};
use uplake_engine::{AddedFunction, EngineError, Result, SessionFacts, SqlState};

use super::arguments::{Arguments, Looked, function, number, text, truth};
use super::lists::{lists_of, texts};
use crate::catalog::settings;
use crate::catalog::shared::Shared;
use crate::catalog::state::{ADDRESS, PID, PORT, Stop, USER};
use crate::catalog::tables::{CATALOG, PUBLIC};

pub(super) fn functions(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let mut all = names(shared);
    all.extend(of_settings());
    all.extend(of_server(shared));
    all.push(stops(shared, "pg_cancel_backend", &["n"], Stop::Statement));
    // The second argument is how long to wait for the end, which is not waited for.
    all.push(stops(shared, "pg_terminate_backend", &["n", "nn"], Stop::Connection));
    all
}

/// A function of a connection's number that does something to it; true if there is such a connection.
fn stops(shared: &Arc<Shared>, name: &'static str, takes: &[&str], what: Stop) -> AddedFunction {
    let shared = Arc::clone(shared);
    let made = truth(name, takes, move |a| {
        let Some(process) = a.number(0) else { return Ok(None) };
        let (Some(stops), Ok(process)) = (shared.stops.get(), i32::try_from(process)) else {
            return Ok(Some(false));
        };
        stops(a.facts(), process, what).map(Some)
    });
    AddedFunction { acts: true, ..made }
}

fn user(shared: &Shared, facts: &SessionFacts) -> String {
    facts.get(USER).map_or_else(|| shared.server().owner.clone(), str::to_owned)
}

/// Schemas that names are looked up in, of which there is one for tables.
fn search_path(facts: &SessionFacts) -> Vec<&'static str> {
    let path = settings::setting(facts, "search_path").unwrap_or_default();
    let has = |schema: &str| path.split(',').any(|part| part.trim().trim_matches('"') == schema);
    if has(PUBLIC) { vec![PUBLIC] } else { Vec::new() }
}

fn names(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let mut all = Vec::new();
    for name in ["current_user", "session_user", "user", "current_role"] {
        let shared = Arc::clone(shared);
        all.push(text(name, &[""], move |a| Ok(Some(user(&shared, a.facts())))));
    }
    for name in ["current_database", "current_catalog"] {
        let shared = Arc::clone(shared);
        all.push(text(name, &[""], move |_| Ok(Some(shared.server().database.clone()))));
    }
    all.push(text("current_schema", &[""], |a| {
        Ok(search_path(a.facts()).first().map(|schema| (*schema).to_owned()))
    }));
    all.push(function("current_schemas", &["b"], texts(), |call| {
        let row = |row: usize| {
            let mut schemas = search_path(call.facts);
            if (Arguments { call, row, looked: &Looked::new() }).truth(0) == Some(true) {
                schemas.insert(0, CATALOG);
            }
            schemas
        };
        Ok(lists_of((0..call.rows).map(row)))
    }));
    all
}

fn of_settings() -> Vec<AddedFunction> {
    vec![
        text("current_setting", &["t", "tb"], |a| {
            let Some(name) = a.text(0) else { return Ok(None) };
            match settings::setting(a.facts(), name) {
                None if a.truth(1) != Some(true) => {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    Err(EngineError::execution(SqlState::UndefinedObject, message))
                }
                value => Ok(value),
            }
        }),
        // Says what it was told; nothing that a client sets by it means anything here.
        text("set_config", &["ttb"], |a| Ok(a.text(1).map(str::to_owned))),
    ]
}

fn of_server(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    let started = {
        let shared = Arc::clone(shared);
        function("pg_postmaster_start_time", &[""], instant, move |call| {
            let micros = vec![shared.server().started_micros; call.rows];
            Ok(Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("+00:00")))
        })
    };
    let (of_version, of_transactions) = (Arc::clone(shared), Arc::clone(shared));
    let fact = |a: &Arguments<'_>, name: &str| -> Result<Option<i64>> {
        Ok(a.facts().get(name).and_then(|value| value.parse().ok()))
    };
    vec![
        started,
        text("version", &[""], move |_| Ok(Some(of_version.server().version.clone()))),
        number("pg_backend_pid", &[""], move |a| Ok(Some(fact(a, PID)?.unwrap_or_default()))),
        number("inet_server_port", &[""], move |a| fact(a, PORT)),
        text("inet_server_addr", &[""], |_| Ok(None)),
        text("inet_client_addr", &[""], |a| Ok(a.facts().get(ADDRESS).map(str::to_owned))),
        number("txid_current", &[""], move |_| {
            Ok(Some(of_transactions.transactions.fetch_add(1, Ordering::Relaxed)))
        }),
        truth("pg_is_in_recovery", &[""], |_| Ok(Some(false))),
        number("pg_my_temp_schema", &[""], |_| Ok(Some(0))),
        truth("pg_is_other_temp_schema", &["n"], |_| Ok(Some(false))),
        text("pg_advisory_unlock_all", &[""], |_| Ok(Some(String::new()))),
        text("getdatabaseencoding", &[""], |_| Ok(Some("UTF8".into()))),
        text("pg_client_encoding", &[""], |_| Ok(Some("UTF8".into()))),
    ]
}
