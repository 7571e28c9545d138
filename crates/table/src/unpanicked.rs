//! Panics of the libraries that read files, as errors: damaged bytes are no reason to die.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::{ParquetError, Result};

/// How parquet begins to say that, with types as Rust has them.
const OF_TWO_SCHEMAS: &str = "incompatible arrow schema";

/// What `work`, which reads a Parquet file, comes to; a panic is an error like any other of a damaged
/// file. What `work` was at must not be used after an error.
///
/// # Errors
/// Those of `work`; [`ParquetError::General`] after a panic.
pub fn unpanicked<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(ParquetError::General(format!("it is damaged ({})", panic_text(panic.as_ref()))))
    })
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic",
    }
}

/// What an error of a library says, without its kind before it and the dump of values that some have behind it.
pub fn reason(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("Parquet error: ").unwrap_or(&text);
    if text.contains(OF_TWO_SCHEMAS) {
        return "its two schemas, Arrow's and Parquet's, differ".to_owned();
    }
    text.split(" {").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_what_it_said() {
        let panics = |message: &'static str| unpanicked::<()>(move || panic!("{message} {}", 1));
        assert!(panics("bit").unwrap_err().to_string().contains("damaged (bit 1)"));
        assert_eq!(unpanicked(|| Ok(1)).unwrap(), 1);
        let two =
            ParquetError::ArrowError("incompatible arrow schema, expected x got Int64".into());
        assert!(reason(&two).ends_with("differ"));
        let dump = ParquetError::General("no schema: Utf8Error { error: 1 }".into());
        assert_eq!(reason(&dump), "no schema: Utf8Error");
    }
}
