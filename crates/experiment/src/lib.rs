//! Pure experiment statistics.
#![forbid(unsafe_code)]

pub mod distribution;
mod double;
pub mod moments;

pub use moments::Moments;
