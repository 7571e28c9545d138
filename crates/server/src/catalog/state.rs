//! What the catalog says of the server and its sessions, and the names of the facts that sessions are told.
//!
//! # Not here
//! What is in the lake: `listing`.

use std::sync::Arc;

use uplake_engine::SessionFacts;

use super::oids::oids;
use crate::access::{ADMIN, Access, BUILT_IN, Directory, Document, PUBLIC};

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
pub(super) struct ListedRole {
    pub name: String,
    pub oid: i64,
    pub is_admin: bool,
    pub may_log_in: bool,
    pub member_of: Vec<String>,
    /// -1 is none.
    pub connection_limit: i64,
    pub until_micros: Option<i64>,
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
    /// Who there is; without, the owner alone.
    pub directory: Option<Arc<Directory>>,
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
            directory: None,
            connections: None,
            functions: Vec::new(),
        }
    }
}

impl ServerState {
    /// What counts of access now.
    pub(super) fn document(&self) -> Arc<Document> {
        self.directory.as_ref().map_or_else(Arc::default, |directory| directory.current())
    }

    /// The owner first; everybody is a member of `public`, which is no role to Postgres.
    pub(super) fn roles(&self) -> Vec<ListedRole> {
        let document = self.document();
        let access = &document.access;
        let built_in = BUILT_IN.iter().map(|(name, _)| *name);
        let others = built_in.chain(access.roles.keys().map(String::as_str));
        let names = others.filter(|name| *name != PUBLIC && *name != self.owner);
        let names: Vec<&str> = match self.directory {
            Some(_) => names.collect(),
            None => Vec::new(),
        };
        let numbers = oids(names.iter().map(|name| role_key(name)));
        let mut all = vec![listed(access, &self.owner, OWNER)];
        all.extend(names.into_iter().map(|name| {
            listed(access, name, numbers.get(&role_key(name)).copied().unwrap_or_default())
        }));
        all
    }

    pub(super) fn role_name(&self, oid: i64) -> Option<String> {
        // Who owns everything is asked for most.
        if oid == OWNER {
            return Some(self.owner.clone());
        }
        self.roles().into_iter().find(|role| role.oid == oid).map(|role| role.name)
    }

    pub(super) fn function(&self, oid: i64) -> Option<&(&'static str, usize, i64)> {
        self.functions.get(usize::try_from(oid - FIRST_FUNCTION).ok()?)
    }
}

fn role_key(name: &str) -> String {
    format!("role {name}")
}

fn listed(access: &Access, name: &str, oid: i64) -> ListedRole {
    let role = access.roles.get(name);
    let member_of = role.map(|role| role.member_of.iter().cloned().collect()).unwrap_or_default();
    ListedRole {
        name: name.to_owned(),
        oid,
        is_admin: access.memberships(name).contains(ADMIN),
        // The built-in one does as long as there are no users.
        may_log_in: role.map_or(name == ADMIN && !access.has_users(), |role| role.login),
        member_of,
        connection_limit: role.and_then(|role| role.connection_limit).map_or(-1, i64::from),
        until_micros: role
            .and_then(|role| role.valid_until)
            .map(|millis| millis.saturating_mul(1000)),
    }
}
