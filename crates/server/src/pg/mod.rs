//! The Postgres wire, protocol 3.0 and 3.2.

mod encode;
mod params;
mod types;
