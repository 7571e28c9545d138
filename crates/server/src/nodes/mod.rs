//! Parts of statements on other nodes: who there is, what they are sent, and what is done when one is lost.
//!
//! ```text
//! coordinator                                         worker
//! session ─► warehouse: divide ─► division            worker: DoGet ─► read_part, run_part
//!            statement ─► attempt ─► ticket ────────►          rows as messages of Flight,
//!            rows ◄─ decoded ◄──── messages ◄────────          then how it ended
//!            peers: hello every 2 s ────────────────►          DoAction hello, cancel
//! ```
//!
//! A part is one call of Flight's `DoGet`. Its ticket is the fragment and what the part takes; the answer is its rows and
//! a last message that says how it ended. A call that is dropped stops the part.
//!
//! # Invariants
//! - An answer without that last message is no answer: a part whose node was lost is never taken for one that is done.
//! - Rows of a part that are groups or few are handed on when the part has ended, so that it can be computed again.
//! - Connections are driven by the network's runtime, which never computes: a busy node still answers pings.
//! - A worker makes only plans of tables of its lake, at the version and with the files that the coordinator has.
//! - Beyond one machine nodes show each other certificates (`trust`, `wire`), and what is asked has a token (`token`).
//!
//! # Not here
//! Where plans are cut (`engine`), and which slots are whose (`cluster`).

mod attempt;
mod channels;
mod command;
mod division;
mod messages;
mod peers;
mod row_messages;
mod shuffle_rows;
mod shuffle_store;
mod statement;
mod steps;
mod token;
mod trust;
mod warehouse;
mod wire;
mod worker;

pub use command::CommandNodes;
pub(crate) use trust::Trust;
pub use trust::TrustError;
pub(crate) use warehouse::Warehouse;
pub(crate) use wire::check_names;
pub(crate) use worker::{Me, Worker, serve};
