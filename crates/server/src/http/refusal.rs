//! Failures as answers: a status, and a JSON object that says what and where.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use uplake_engine::{EngineError, SqlState};

use crate::failure::Failure;

/// What browsers show as the place that wants a password.
const CHALLENGE: &str = "Basic realm=\"uplake\", charset=\"UTF-8\"";

/// A request that is refused.
#[derive(Debug)]
pub(super) struct Refusal(pub Failure);

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self(error.into())
    }
}

/// A request with an option that it cannot have.
pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal(Failure::new("22023", message))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(failure) = self;
        let status = status_of(&failure.code);
        let body = json!({ "error": as_json(&failure) });
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static(CHALLENGE);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// A whole answer, for a connection that nobody reads requests of.
pub(super) fn whole(failure: &Failure) -> Vec<u8> {
    let body = json!({ "error": as_json(failure) }).to_string();
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        status_of(&failure.code),
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// `{code, kind, message, hint, line, column}`.
pub(super) fn as_json(failure: &Failure) -> serde_json::Value {
    json!({
        "code": failure.code,
        "kind": kind_of(&failure.code),
        "message": failure.message,
        "hint": failure.hint,
        "line": failure.position.map(|place| place.line),
        "column": failure.position.map(|place| place.column),
    })
}

/// What to do about it, in a word.
fn kind_of(code: &str) -> &'static str {
    let known = SqlState::ALL.iter().find(|state| state.as_str() == code);
    match code {
        _ if known.is_some() => known.map_or("fault", |state| state.kind().name()),
        _ if code.starts_with("53") => "limit",
        _ if code.starts_with("57") => "unavailable",
        _ if code.starts_with("XX") => "fault",
        _ => "invalid",
    }
}

fn status_of(code: &str) -> StatusCode {
    match code {
        "28000" | "28P01" => StatusCode::UNAUTHORIZED,
        "42501" => StatusCode::FORBIDDEN,
        // A body that is larger than it may be.
        "08P01" => StatusCode::PAYLOAD_TOO_LARGE,
        "53300" | "53400" => StatusCode::TOO_MANY_REQUESTS,
        "57014" => StatusCode::GATEWAY_TIMEOUT,
        "54000" | "54001" => StatusCode::BAD_REQUEST,
        code if code.starts_with("53") || code.starts_with("57") => StatusCode::SERVICE_UNAVAILABLE,
        code => match kind_of(code) {
            "missing" => StatusCode::NOT_FOUND,
            "conflict" => StatusCode::CONFLICT,
            "unavailable" | "limit" => StatusCode::SERVICE_UNAVAILABLE,
            "fault" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_a_status() {
        for (code, status) in [
            ("42601", 400),
            ("42P01", 404),
            ("28P01", 401),
            ("42501", 403),
            ("40001", 409),
            ("08P01", 413),
            ("53300", 429),
            ("53200", 503),
            ("57P01", 503),
            ("58030", 503),
            ("57014", 504),
            ("XX000", 500),
        ] {
            assert_eq!(status_of(code).as_u16(), status, "{code}");
        }
    }
}
