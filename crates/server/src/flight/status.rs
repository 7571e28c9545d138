//! A failure as gRPC says it: a code that clients branch on, the SQLSTATE beside it.

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use uplake_engine::{ErrorKind, SqlState};

use crate::failure::Failure;

/// Where a client finds the SQLSTATE.
pub(super) const SQLSTATE: &str = "x-uplake-sqlstate";
/// Characters of a message: headers of HTTP/2 are bounded, and gRPC sends it in one.
const MESSAGE_CHARACTERS: usize = 2048;

/// What the client hears of a failure.
pub(super) fn status(failure: &Failure) -> Status {
    let mut message = failure.message.clone();
    if let Some(position) = failure.position {
        message.push_str(&format!(" (line {}, column {})", position.line, position.column));
    }
    if let Some(hint) = &failure.hint {
        message.push_str("; ");
        message.push_str(hint);
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let message: String = message.chars().map(plain).take(MESSAGE_CHARACTERS).collect();
    let mut metadata = MetadataMap::new();
    if let Ok(state) = MetadataValue::try_from(failure.code.as_ref()) {
        metadata.insert(SQLSTATE, state);
    }
    Status::with_metadata(code(&failure.code), message, metadata)
}

/// Codes are told apart by SQLSTATE, then by class, then by what there is to do about it.
fn code(state: &str) -> Code {
    match state {
        "0A000" => return Code::Unimplemented,
        "42501" => return Code::PermissionDenied,
        "42P05" | "42P07" | "42710" => return Code::AlreadyExists,
        "57014" => return Code::Cancelled,
        _ => {}
    }
    match state.get(..2) {
        Some("28") => return Code::Unauthenticated,
        Some("3D" | "3F") => return Code::NotFound,
        Some("40") => return Code::Aborted,
        Some("53" | "54") => return Code::ResourceExhausted,
        Some("57" | "58") if state != "58P01" => return Code::Unavailable,
        Some("08" | "22") => return Code::InvalidArgument,
        _ => {}
    }
    let known = SqlState::ALL.iter().find(|known| known.as_str() == state);
    match known.map(|known| known.kind()) {
        Some(ErrorKind::Invalid) => Code::InvalidArgument,
        Some(ErrorKind::Missing) => Code::NotFound,
        Some(ErrorKind::Conflict) => Code::Aborted,
        Some(ErrorKind::Unavailable) => Code::Unavailable,
        Some(ErrorKind::Limit) => Code::ResourceExhausted,
        Some(ErrorKind::Fault) | None => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_to_do() {
        for (state, expected) in [
            ("42601", Code::InvalidArgument),
            ("22P02", Code::InvalidArgument),
            ("42P01", Code::NotFound),
            ("58P01", Code::NotFound),
            ("42P07", Code::AlreadyExists),
            ("40001", Code::Aborted),
            ("53200", Code::ResourceExhausted),
            ("53400", Code::ResourceExhausted),
            ("57014", Code::Cancelled),
            ("57P01", Code::Unavailable),
            ("58030", Code::Unavailable),
            ("28000", Code::Unauthenticated),
            ("42501", Code::PermissionDenied),
            ("0A000", Code::Unimplemented),
            ("XX000", Code::Internal),
        ] {
            assert_eq!(code(state), expected, "{state}");
        }
    }

    #[test]
    fn a_status_has_the_state_the_place_and_the_hint() {
        let failure = Failure {
            position: Some(uplake_engine::Position { line: 2, column: 3 }),
            ..Failure::new("42601", "no\nSQL").with_hint("write SQL")
        };
        let status = status(&failure);
        assert_eq!(status.message(), "no SQL (line 2, column 3); write SQL");
        assert_eq!(status.metadata().get(SQLSTATE).unwrap(), "42601");
    }
}
