//! What is read from the words of others' errors, because they have no variant for it.
//!
//! # Not here
//! Errors of ours: [`uplake_engine::EngineError`] has a code and a place.

use std::io;

/// Did the reader of our output go away (`uplake sql … | head`)?
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // The writers of CSV and JSON make text of the file system's error.
    error.chain().any(|cause| is_broken(cause) || cause.to_string().contains("Broken pipe"))
}

/// What `println!` and `eprintln!` panic with when nobody reads on.
pub fn is_closed_output(panic: &str) -> bool {
    panic.contains("failed printing to std") && panic.contains("Broken pipe")
}

/// What is wrong with a file of settings. Of a value of the wrong type it tells the value first, which may be a
/// secret: that is left out.
pub fn without_value(error: &toml::de::Error) -> String {
    let message = error.message().lines().next().unwrap_or_default();
    match message.split_once(", expected ").filter(|(what, _)| what.starts_with("invalid ")) {
        Some((_, expected)) => format!("expected {expected}"),
        None => message.to_owned(),
    }
}
