//! One lake for many connections: the Postgres wire, HTTP and Flight SQL over one engine.
//!
//! # Not here
//! SQL and its answers (`engine`), files and commits (`table`), the command line (`uplake`).

#![forbid(unsafe_code)]

mod access;
mod access_sql;
mod audit;
mod catalog;
mod cause;
mod certificate_dates;
mod client;
mod cost;
mod drivers;
mod failure;
mod fair_share;
mod flight;
pub mod formats;
mod gate;
mod health_check;
mod http;
mod labels;
mod lanes;
mod limits;
mod loads;
mod log;
mod logins;
mod metrics;
mod node_options;
mod nodes;
mod pg;
mod process;
mod random;
mod readable;
mod roll;
mod serve;
mod server;
mod sockets;
mod spool;
mod stage;
mod statements;
mod stops;
mod system;
mod system_access;
mod tls;
mod traceparent;
#[cfg(feature = "otel")]
mod traces;
mod users;

pub use access::{
    Access, AccessError, Change, Document, Role, SALT_BYTES, Tenant, Verifier, change, folded,
    newest,
};
pub use access_sql::owner_session;
pub use health_check::{HealthError, ask_health};
pub use limits::Limits;
pub use node_options::{Beyond, DEFAULT_WAREHOUSE, NodeOptions, NodeTlsFiles, TrustFiles};
pub use nodes::{CommandNodes, TrustError};
pub use random::system_random;
pub use serve::{ServeError, Server};
pub use server::ServerOptions;
pub use tls::TlsError;
pub use uplake_cluster::members::{Members, MembersError};
