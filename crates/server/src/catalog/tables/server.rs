//! Rows about the server: databases, schemas, roles, functions, connections.

use super::rows::{Row, Value, row};
use super::system::SCHEMAS;
use super::view::View;
use crate::catalog::listing::Object;
use crate::catalog::rights::{self, ListedPolicy};
use crate::catalog::state::{Connection, FIRST_FUNCTION, ListedRole, OWNER};

/// The lake as a database, and where it lies.
const DATABASE: i64 = 5;
const TABLESPACE: i64 = 1663;
/// UTF8
const ENCODING: i64 = 6;

/// The rows of a table of `pg_catalog`, if it is about these.
pub(super) fn rows(view: &View<'_>, table: &str) -> Option<Vec<Row>> {
    Some(match table {
        "pg_namespace" => SCHEMAS
            .iter()
            .map(|(oid, name)| row! {"oid" => *oid, "nspname" => *name, "nspowner" => OWNER})
            .collect(),
        "pg_database" => vec![row! {
            "oid" => DATABASE, "datname" => view.server.database.clone(), "datdba" => OWNER,
            "encoding" => ENCODING, "datlocprovider" => "c", "datallowconn" => true,
            "datconnlimit" => -1_i64, "dattablespace" => TABLESPACE, "datcollate" => "C.UTF-8",
            "datctype" => "C.UTF-8",
        }],
        "pg_tablespace" => {
            vec![row! {"oid" => TABLESPACE, "spcname" => "pg_default", "spcowner" => OWNER}]
        }
        "pg_collation" => vec![row! {
            "oid" => 100_i64, "collname" => "default", "collnamespace" => 11_i64, "collowner" => OWNER,
            "collprovider" => "d", "collisdeterministic" => true, "collencoding" => -1_i64,
        }],
        "pg_roles" => roles(view),
        "pg_auth_members" => members(view),
        "pg_policy" => policies(view),
        "pg_user" => users(view),
        "pg_proc" => functions(view),
        "pg_stat_activity" => activity(view),
        "pg_timezone_names" => vec![row! {
            "name" => "UTC", "abbrev" => "UTC", "utc_offset" => "00:00:00", "is_dst" => false,
        }],
        _ => return None,
    })
}

fn roles(view: &View<'_>) -> Vec<Row> {
    let row = |role: ListedRole| {
        row! {
            "rolname" => role.name, "rolsuper" => role.is_admin, "rolinherit" => true,
            "rolcreaterole" => role.is_admin, "rolcreatedb" => false, "rolcanlogin" => role.may_log_in,
            "rolreplication" => false, "rolconnlimit" => role.connection_limit,
            "rolpassword" => "********", "rolvaliduntil" => role.until_micros.map(Value::Time),
            "rolbypassrls" => role.is_admin, "oid" => role.oid,
        }
    };
    view.server.roles().into_iter().map(row).collect()
}

fn members(view: &View<'_>) -> Vec<Row> {
    let roles = view.server.roles();
    let oid = |name: &str| roles.iter().find(|role| role.name == name).map(|role| role.oid);
    let each = roles.iter().flat_map(|role| {
        role.member_of.iter().filter_map(move |of| {
            Some(row! {
                "roleid" => oid(of)?, "member" => role.oid, "grantor" => OWNER, "admin_option" => false,
            })
        })
    });
    each.collect()
}

fn policies(view: &View<'_>) -> Vec<Row> {
    let document = view.server.document();
    let row = |policy: ListedPolicy| {
        let table = view.listing.oid(&Object::Table(policy.table));
        row! {
            "oid" => policy.oid, "polname" => policy.name, "polrelid" => table, "polcmd" => "r",
            "polpermissive" => true, "polqual" => policy.condition,
            "polroles" => Value::Numbers(rights::role_oids(view.server, &policy.roles)),
        }
    };
    let listed = rights::policies(&document.access);
    listed.into_iter().filter(|policy| !view.listing.hides(&policy.table)).map(row).collect()
}

fn users(view: &View<'_>) -> Vec<Row> {
    let users = view.server.roles().into_iter().filter(|role| role.may_log_in);
    users
        .map(|role| {
            row! {
                "usename" => role.name, "usesysid" => role.oid, "usecreatedb" => false,
                "usesuper" => role.is_admin, "userepl" => false, "usebypassrls" => role.is_admin,
                "passwd" => "********", "valuntil" => role.until_micros.map(Value::Time),
            }
        })
        .collect()
}

fn functions(view: &View<'_>) -> Vec<Row> {
    let row = |(place, (name, arguments, gives)): (usize, &(&str, usize, i64))| {
        row! {
            "oid" => FIRST_FUNCTION + place as i64, "proname" => *name, "pronamespace" => 11_i64,
            "proowner" => OWNER, "prolang" => 12_i64, "procost" => 1_i64, "prokind" => "f",
            "provolatile" => "s", "proparallel" => "s", "pronargs" => *arguments as i64,
            "prorettype" => *gives, "prosrc" => *name,
        }
    };
    view.server.functions.iter().enumerate().map(row).collect()
}

fn activity(view: &View<'_>) -> Vec<Row> {
    let Some(connections) = &view.server.connections else { return Vec::new() };
    let row = |connection: Connection| {
        row! {
            "datid" => DATABASE, "datname" => view.server.database.clone(),
            "pid" => i64::from(connection.pid), "usename" => connection.user,
            "application_name" => connection.application, "client_addr" => connection.address,
            "state" => connection.state, "query" => connection.query,
            "backend_start" => Value::Time(connection.since_micros),
            "backend_type" => "client backend",
        }
    };
    connections().into_iter().map(row).collect()
}
