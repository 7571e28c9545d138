//! What the catalog says of the server and its sessions, and the names of the facts that sessions are told.
//!
//! # Not here
//! What is in the lake: `listing`.

use std::sync::Arc;

use uplake_engine::SessionFacts;

use super::oids::oids;

/// The version of Postgres that clients are told, which decides what they send.
pub(crate) const SERVER_VERSION: &str = "16.0";
pub(super) const SERVER_VERSION_NUMBER: &str = "160000";

/// Who owns everything.
pub(super) const OWNER: i64 = 10;
/// Functions count from here, in the order of their names.
pub(super) const FIRST_FUNCTION: i64 = 14_000;

/// The fact of a session that is its user's name.
pub(crate) const USER: &str = "user";
/// The fact that is its number, which a client cancels by.
pub(crate) const PID: &str = "pid";
/// The fact that is the client's address.
pub(crate) const ADDRESS: &str = "client_address";
/// The fact that is the server's port.
pub(crate) const PORT: &str = "server_port";
/// What the name of a fact begins with that is a setting's value; the setting's name follows in lower case.
pub(crate) const SETTING: &str = "setting.";
/// The key of a field's metadata that marks a column of Postgres' type `"char"`, whose values are texts here.
pub(crate) const ONE_CHARACTER: &str = "postgres.char";
/// The key of the metadata of a list's items that marks it as Postgres' type `oid[]`.
pub(crate) const OF_OIDS: &str = "postgres.oid";

/// A role, for `pg_roles`.
#[derive(Clone, Debug)]
pub(crate) struct ListedRole {
    pub name: String,
    pub is_admin: bool,
    pub may_log_in: bool,
}

/// A connection, for `pg_stat_activity`.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub pid: i32,
    pub user: String,
    pub application: String,
    pub address: Option<String>,
    /// `active`, `idle`, `idle in transaction`.
    pub state: &'static str,
    /// The text that runs, or ran last.
    pub query: String,
    /// When it began, in microseconds since 1970.
    pub since_micros: i64,
}

/// What is to be stopped of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Statement,
    Connection,
}

/// Stops a connection's statement, or ends it, by its number, for a session that may. False if there is none.
pub(crate) type Stops =
    dyn Fn(&SessionFacts, i32, Stop) -> uplake_engine::Result<bool> + Send + Sync;

type Connections = dyn Fn() -> Vec<Connection> + Send + Sync;

/// What the catalog says of the server.
#[derive(Clone)]
pub(crate) struct ServerState {
    /// The name of the only database.
    pub database: String,
    /// Who owns everything, and whom a session is used by that was told nobody.
    pub owner: String,
    /// What `version()` says.
    pub version: String,
    /// When the server began, in microseconds since 1970.
    pub started_micros: i64,
    pub roles: Vec<ListedRole>,
    pub connections: Option<Arc<Connections>>,
    /// Names of functions, how many arguments they take, and their types' numbers.
    pub(super) functions: Vec<(&'static str, usize, i64)>,
}

impl Default for ServerState {
    fn default() -> Self {
        Self {
            database: "lake".into(),
            owner: "admin".into(),
            version: format!("PostgreSQL {SERVER_VERSION} (Uplake {})", env!("CARGO_PKG_VERSION")),
            started_micros: 0,
            roles: Vec::new(),
            connections: None,
            functions: Vec::new(),
        }
    }
}

impl ServerState {
    /// Names and numbers of roles: the owner first.
    pub(super) fn role_oids(&self) -> impl Iterator<Item = (&str, i64)> {
        let others =
            self.roles.iter().map(|role| role.name.as_str()).filter(|name| *name != self.owner);
        let oids = oids(others.clone().map(|name| format!("role {name}")));
        let oid = move |name: &str| oids.get(&format!("role {name}")).copied().unwrap_or_default();
        let others = others.map(move |name| (name, oid(name)));
        [(self.owner.as_str(), OWNER)].into_iter().chain(others)
    }

    pub(super) fn role_name(&self, oid: i64) -> Option<String> {
        self.role_oids().find(|(_, known)| *known == oid).map(|(name, _)| name.to_owned())
    }

    pub(super) fn function(&self, oid: i64) -> Option<&(&'static str, usize, i64)> {
        self.functions.get(usize::try_from(oid - FIRST_FUNCTION).ok()?)
    }
}
