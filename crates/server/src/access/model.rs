//! Who there is and what is granted: roles, grants, row policies, hidden columns, tenants, tokens.
//!
//! # Invariants
//! - Built-in roles are not among [`Access::roles`]; nobody can log in as one by a password.
//! - Equal state, equal JSON: everything is sorted.
//!
//! # Not here
//! How the state changes (`change`), what follows from it for a role (`check`), where it lies (`store`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::passwords::Verifier;
use super::tokens::Token;

/// Who may do everything; who connects while there are no users.
pub const ADMIN: &str = "admin";
/// All roles are members of it, as in PostgreSQL.
pub const PUBLIC: &str = "public";
/// The schema that the lake's tables are in.
pub const SCHEMA: &str = "public";

/// Roles that are always there, and what members of them may.
pub const BUILT_IN: [(&str, &[Verb]); 7] = [
    (ADMIN, &[]), // everything, without a list
    (PUBLIC, &[]),
    ("reader", &[Verb::Select, Verb::ExecuteReport, Verb::Usage]),
    (
        "writer",
        &[
            Verb::Select,
            Verb::ExecuteReport,
            Verb::Usage,
            Verb::Insert,
            Verb::Update,
            Verb::Delete,
            Verb::Create,
        ],
    ),
    ("monitor", &[Verb::Monitor]),
    ("read_files", &[Verb::ReadFiles]),
    ("write_files", &[Verb::WriteFiles]),
];

/// Is it a role that is always there?
pub fn is_built_in(role: &str) -> bool {
    BUILT_IN.iter().any(|(name, _)| *name == role)
}

/// Something that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Read rows.
    Select,
    /// Add rows, by SQL or a load.
    Insert,
    /// Remove rows.
    Delete,
    /// Change rows.
    Update,
    /// Make tables, change and drop them.
    Create,
    /// Ask an id domain for keys: `key_of`.
    Usage,
    /// Compute the report of an experiment.
    ExecuteReport,
    /// See what others run: the system tables of all.
    Monitor,
    /// Read files of the server's disk.
    ReadFiles,
    /// Write files of the server's disk.
    WriteFiles,
    /// Change access and tenants, stop statements of others.
    Administer,
}

impl Verb {
    /// In SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Delete => "DELETE",
            Self::Update => "UPDATE",
            Self::Create => "CREATE",
            Self::Usage => "USAGE",
            Self::ExecuteReport => "EXECUTE REPORT",
            Self::Monitor => "MONITOR",
            Self::ReadFiles => "READ FILES",
            Self::WriteFiles => "WRITE FILES",
            Self::Administer => "ADMINISTER",
        }
    }

    /// Can it be granted on that? What cannot be is had by being a member of a built-in role.
    pub const fn goes_with(self, object: &Object) -> bool {
        match self {
            Self::Select | Self::Insert | Self::Delete | Self::Update => {
                matches!(object, Object::Lake | Object::Schema(_) | Object::Table(_))
            }
            Self::Create => matches!(object, Object::Lake | Object::Schema(_)),
            Self::Usage => matches!(object, Object::Lake | Object::IdDomain(_)),
            Self::ExecuteReport => matches!(object, Object::Lake | Object::Experiment(_)),
            Self::Monitor | Self::ReadFiles | Self::WriteFiles | Self::Administer => false,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that it is done to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// All that the lake has and will have, and the server around it.
    Lake,
    /// The tables of a schema, those to come as well.
    Schema(String),
    /// A table of schema `public`.
    Table(String),
    IdDomain(String),
    Experiment(String),
}

impl Object {
    /// Is what is granted on it granted on the other?
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lake, _) => true,
            (Self::Schema(schema), Self::Table(_)) => schema == SCHEMA,
            _ => self == other,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lake => f.write_str("the lake"),
            Self::Schema(name) => write!(f, "schema `{name}`"),
            Self::Table(name) => write!(f, "table `{name}`"),
            Self::IdDomain(name) => write!(f, "id domain `{name}`"),
            Self::Experiment(name) => write!(f, "experiment `{name}`"),
        }
    }
}

/// A user, or a group of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Role {
    /// May it connect?
    pub login: bool,
    /// What is kept of its password.
    pub password: Option<Verifier>,
    /// Roles whose rights it has.
    pub member_of: BTreeSet<String>,
    /// The last moment at which its password counts, milliseconds since 1970, UTC.
    pub valid_until: Option<i64>,
    /// Connections at once.
    pub connection_limit: Option<u32>,
    /// Who its statements are counted for.
    pub tenant: Option<String>,
}

/// A right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub role: String,
    pub verb: Verb,
    pub on: Object,
    /// Of a table for SELECT; all without.
    #[serde(default)]
    pub columns: BTreeSet<String>,
}

/// Rows of a table that members of a role may read. Who is in several roles reads what any lets it; a table
/// that has policies shows no rows to whom none is for, but to admins all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPolicy {
    pub table: String,
    /// Its own among the table's.
    pub name: String,
    /// [`PUBLIC`] for everybody.
    pub role: String,
    /// A condition of SQL over the table's columns.
    pub condition: String,
    /// When it was made, milliseconds since 1970, UTC.
    pub made_at: i64,
}

/// Columns of a table that do not exist for members of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenColumns {
    pub table: String,
    pub role: String,
    pub columns: BTreeSet<String>,
}

/// Who shares a part of the server; no limit where none is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenant {
    /// Its share when others wait, too.
    pub weight: u32,
    /// Statements that compute at once.
    pub slots: Option<u32>,
    /// Memory of these.
    pub memory_bytes: Option<u64>,
    /// Disk for rows that clients have not taken yet.
    pub spool_bytes: Option<u64>,
    /// Statements that wait.
    pub queue: Option<u32>,
    pub scan_bytes_per_day: Option<u64>,
    pub compute_seconds_per_hour: Option<u64>,
    /// In millionths of a dollar.
    pub microdollars_per_day: Option<u64>,
    pub ingest_bytes_per_second: Option<u64>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            weight: 1,
            slots: None,
            memory_bytes: None,
            spool_bytes: None,
            queue: None,
            scan_bytes_per_day: None,
            compute_seconds_per_hour: None,
            microdollars_per_day: None,
            ingest_bytes_per_second: None,
        }
    }
}

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    pub roles: BTreeMap<String, Role>,
    pub grants: BTreeSet<Grant>,
    pub policies: BTreeSet<RowPolicy>,
    pub hidden: BTreeSet<HiddenColumns>,
    pub tenants: BTreeMap<String, Tenant>,
    pub tokens: Vec<Token>,
}

impl Access {
    /// Names of tables that anything is said of, whether they are there or not.
    pub fn tables(&self) -> BTreeSet<&str> {
        let granted = self.grants.iter().filter_map(|grant| match &grant.on {
            Object::Table(table) => Some(table.as_str()),
            _ => None,
        });
        let policies = self.policies.iter().map(|policy| policy.table.as_str());
        let hidden = self.hidden.iter().map(|hidden| hidden.table.as_str());
        granted.chain(policies).chain(hidden).collect()
    }

    /// Is there anybody who could log in?
    pub fn has_users(&self) -> bool {
        self.roles.values().any(|role| role.login)
    }

    /// Is there such a role, built-in ones among them?
    pub fn has_role(&self, name: &str) -> bool {
        is_built_in(name) || self.roles.contains_key(name)
    }

    /// The role itself and all that it is a member of, directly or not; nothing if there is no such role.
    pub fn memberships<'a>(&'a self, role: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        if !self.has_role(role) {
            return found;
        }
        let mut next = vec![role, PUBLIC];
        while let Some(name) = next.pop() {
            // One that was met before is not followed again: circles end here.
            if found.insert(name) {
                let above = self.roles.get(name).map(|role| role.member_of.iter());
                next.extend(above.into_iter().flatten().map(String::as_str));
            }
        }
        found
    }

    /// The verifier that a login with this name and a password is checked with: `None` if nobody can log in so,
    /// now, which is told at the end of the login.
    pub fn verifier_of(&self, name: &str, now: i64) -> Option<&Verifier> {
        let role = self.roles.get(name).filter(|role| role.login)?;
        let has_ended = role.valid_until.is_some_and(|end| now > end);
        role.password.as_ref().filter(|_| !has_ended)
    }

    /// Whose token it is, if the role can log in and the token is valid now.
    pub fn role_of_token(&self, text: &str, now: i64) -> Option<&str> {
        let token = super::tokens::find(&self.tokens, text, now)?;
        let role = self.roles.get(&token.role)?;
        role.login.then_some(token.role.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(member_of: &[&str]) -> Role {
        let member_of = member_of.iter().map(|name| (*name).to_owned()).collect();
        Role { login: true, member_of, ..Role::default() }
    }

    fn access(roles: &[(&str, &[&str])]) -> Access {
        let roles = roles.iter().map(|(name, of)| ((*name).to_owned(), role(of))).collect();
        Access { roles, ..Access::default() }
    }

    #[test]
    fn memberships_are_followed_and_circles_end() {
        let access = access(&[("a", &["b"]), ("b", &["c", "reader"]), ("c", &["a"]), ("d", &[])]);
        let all = BTreeSet::from(["a", "b", "c", "public", "reader"]);
        for start in ["a", "b", "c"] {
            assert_eq!(access.memberships(start), all, "{start}");
        }
        assert_eq!(access.memberships("d"), BTreeSet::from(["d", "public"]));
        assert!(access.memberships("nobody").is_empty());
        assert_eq!(access.memberships("admin"), BTreeSet::from(["admin", "public"]));
    }

    #[test]
    fn who_cannot_log_in_has_no_verifier() {
        let mut access = access(&[("ann", &[])]);
        assert!(access.verifier_of("ann", 0).is_none(), "no password");
        let verifier = Verifier::new("pencil", [1; 16]).unwrap();
        let ann = access.roles.get_mut("ann").unwrap();
        ann.password = Some(verifier.clone());
        ann.valid_until = Some(100);
        assert_eq!(access.verifier_of("ann", 100), Some(&verifier));
        assert_eq!(access.verifier_of("ann", 101), None, "expired");
        assert_eq!(access.verifier_of("admin", 0), None);
        access.roles.get_mut("ann").unwrap().login = false;
        assert_eq!(access.verifier_of("ann", 100), None);
        assert!(!access.has_users());
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = serde_json::to_string(&access(&[("ann", &["reader"])])).unwrap();
        assert_eq!(serde_json::from_str::<Access>(&text).unwrap().roles.len(), 1);
        for other in [text.replacen('{', "{\"x\":1,", 1), text.replace("\"login\"", "\"logs\"")] {
            assert!(serde_json::from_str::<Access>(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_schema_covers_its_tables_and_the_lake_everything() {
        let table = Object::Table("t".into());
        let public = Object::Schema("public".into());
        assert!(Object::Lake.covers(&table) && public.covers(&table) && table.covers(&table));
        assert!(!table.covers(&public) && !public.covers(&Object::Lake));
        assert!(!Object::Schema("system".into()).covers(&table));
        assert!(!public.covers(&Object::IdDomain("t".into())));
    }
}
