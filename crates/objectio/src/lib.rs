//! Every byte from and to object storage.
//!
//! [`Store`] implements `object_store::ObjectStore`, so that DataFusion, Delta and the index reader
//! share one cache, one limit and one set of counters, whether tables lie in `s3://`, `gs://`,
//! `az://`, `file://` or `memory://`. Between a reader and the provider's client lie, from outside in:
//!
//! | layer | module | what it does |
//! |---|---|---|
//! | metering | `counters` | counts requests, bytes, retries, hedges, hits, for a query and in total |
//! | cache | `cache` | keeps what was read in memory and on disk, under hard limits |
//! | ranges | `ranges` | merges near ranges, cuts long ones, limits, hedges, checks every length |
//! | writes | `conditional` | reads back who won when a conditional write's answer is lost |
//! | budget | `budget` | slows down when the store refuses, instead of failing |
//! | connections | `connect` | chooses among a name's addresses, leaves silent ones out |
//!
//! Files and memory have neither round trips nor lost answers: there only the counting remains.
//!
//! # Invariants
//! - A read returns exactly the bytes asked of one version of the object, or an error: no short body,
//!   no other range, no mixture.
//! - A conditional write is never hedged and never blindly made again. `Ok` means we wrote,
//!   `AlreadyExists` or `Precondition` that we did not, and [`StoreError::OutcomeUnknown`] that it
//!   cannot be known.
//! - Bounded: requests and bytes under way, hedges, retries, cache bytes in each tier, queues.
//! - Dropping a read's future drops its requests.
//! - Time and randomness are arguments ([`Clock`], [`StorageOptions::seed`]); tests run on simulated
//!   time.
//!
//! # Not here
//! What the bytes mean. HTTP/2 and redirects, which S3 does not have.
//!
//! # Examples
//! A query's own counts, on the cache and the limits of all:
//! ```
//! use object_store::{ObjectStoreExt, path::Path};
//! use uplake_objectio::{StorageOptions, Store};
//! # futures::executor::block_on(async {
//! let options = StorageOptions::default().with_environment(std::env::vars())?;
//! let store = Store::open("memory:///lake", &options)?;
//! let at = store.prefix().clone().join("part-1.parquet");
//! store.put(&at, "0123456789".into()).await?;
//! let query = store.scoped();
//! assert_eq!(query.get_range(&at, 2..5).await?, "234");
//! assert_eq!((query.counts().gets, query.counts().bytes_read), (1, 3));
//! assert_eq!((store.total().gets, store.total().puts), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod budget;
mod cache;
mod clock;
mod conditional;
pub mod conformance;
mod connect;
mod counted;
mod counters;
mod dice;
mod durable;
mod error;
mod open;
mod options;
mod private;
mod ranges;
mod store;
mod threads;
mod uploads;
mod version;
mod warm;

pub use clock::{Clock, RealClock};
pub use counters::{Counters, Counts, Payer, Prices};
pub use error::{StoreError, missing_credentials};
pub use options::{ByteSize, StorageOptions};
pub use store::{CacheUsage, Store};
pub use threads::io_threads;
pub use uploads::UnfinishedUpload;
pub use warm::{Warm, WarmOptions, Warmed};
