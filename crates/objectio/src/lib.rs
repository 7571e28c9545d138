#![forbid(unsafe_code)]
mod budget;
mod clock;
mod conditional;
mod connect;
mod counted;
mod counters;
mod dice;
mod error;
mod open;
mod options;
mod ranges;
mod store;
pub mod conformance;
pub use clock::{Clock, RealClock};
pub use counters::{Counters, Counts, Prices};
pub use error::StoreError;
pub use options::{ByteSize, StorageOptions};
pub use store::Store;
