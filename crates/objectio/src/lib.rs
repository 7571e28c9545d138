#![forbid(unsafe_code)]
mod budget;
mod clock;
mod conditional;
pub mod conformance;
mod connect;
mod counted;
mod counters;
mod dice;
mod error;
mod open;
mod options;
mod ranges;
mod store;
pub use clock::{Clock, RealClock};
pub use counters::{Counters, Counts, Prices};
pub use error::StoreError;
pub use options::{ByteSize, StorageOptions};
pub use store::Store;
