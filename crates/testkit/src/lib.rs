//! Seeded data with known answers, for tests, benchmarks and the demo.
//!
//! - [`random`]: the seeded source of random numbers everything here draws from.
//! - [`xab`]: the XAB benchmark: behaviour events, experiment exposures and a shop search catalogue.
//! - [`shop`]: a shop's A/B test whose effects are planted, so that a report can be checked.
//!
//! # Invariants
//! - Everything is a function of its options: no clock, no thread, no global state. The same
//!   options give the same data on one operating system, however the work is cut.
//! - Data comes as plain columns; strings are Arrow-shaped `(offsets, bytes)` ([`Strings`]).
//!
//! # Not here
//! Files and Arrow: the command's `generate` module turns these columns into Parquet.
#![forbid(unsafe_code)]

pub mod random;
pub mod shop;
pub mod xab;

mod date;
mod strings;

pub use date::date_text;
pub use strings::Strings;

/// How many times as many seeds a test draws as it does at a push: `UPLAKE_SOAK`, or 1.
pub fn soak() -> u64 {
    std::env::var("UPLAKE_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Milliseconds in a day.
pub const DAY_MS: i64 = 86_400_000;
