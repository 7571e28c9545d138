//! Who may what with the lake's tables, as Postgres' catalogs and functions have it.
//!
//! # Not here
//! What is asked when a statement runs: `users`.

use std::collections::{BTreeMap, BTreeSet};

use super::oids::oids;
use super::state::ServerState;
use super::words::quoted;
use crate::access::{Access, BUILT_IN, Object, PUBLIC, Verb};

/// Rights on tables, and Postgres' letters for them.
const OF_TABLES: [(Verb, char); 4] =
    [(Verb::Insert, 'a'), (Verb::Select, 'r'), (Verb::Update, 'w'), (Verb::Delete, 'd')];

/// A policy with all its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedPolicy {
    pub oid: i64,
    pub table: String,
    pub name: String,
    pub roles: Vec<String>,
    pub condition: String,
}

/// Roles, and what is granted to each on all of a table: by itself, by its schema and by the lake. Admins, who may
/// everything, are not among them.
pub(super) fn of_table(access: &Access, table: &str) -> BTreeMap<String, BTreeSet<Verb>> {
    let object = Object::Table(table.to_owned());
    let is_of_table = |verb: &Verb| OF_TABLES.iter().any(|(of, _)| of == verb);
    let mut all: BTreeMap<String, BTreeSet<Verb>> = BTreeMap::new();
    let built_in =
        BUILT_IN.iter().flat_map(|(role, verbs)| verbs.iter().map(move |verb| (*role, *verb)));
    let grants =
        access.grants.iter().filter(|grant| grant.columns.is_empty() && grant.on.covers(&object));
    let granted = grants.map(|grant| (grant.role.as_str(), grant.verb));
    for (role, verb) in built_in.chain(granted).filter(|(_, verb)| is_of_table(verb)) {
        all.entry(role.to_owned()).or_default().insert(verb);
    }
    all
}

/// Tables, columns of them, and the roles that may read these columns by a grant of columns.
pub(super) fn of_columns(access: &Access) -> Vec<(&str, &str, &str)> {
    let each = access.grants.iter().flat_map(|grant| {
        let table = match &grant.on {
            Object::Table(table) => Some(table.as_str()),
            _ => None,
        };
        let columns = grant.columns.iter().map(String::as_str);
        columns.filter_map(move |column| Some((table?, column, grant.role.as_str())))
    });
    let mut all: Vec<_> = each.collect();
    all.sort_unstable();
    all
}

/// `ann=r/admin`; everybody has no name.
fn item(server: &ServerState, role: &str, letters: &str) -> String {
    let name = if role == PUBLIC { String::new() } else { quoted(role) };
    format!("{name}={letters}/{}", quoted(&server.owner))
}

/// `relacl` of a table; `None` while there are no users, and everybody may everything.
pub(super) fn acl(server: &ServerState, access: &Access, table: &str) -> Option<Vec<String>> {
    if !access.has_users() {
        return None;
    }
    let letters = |verbs: &BTreeSet<Verb>| -> String {
        OF_TABLES
            .iter()
            .filter(|(verb, _)| verbs.contains(verb))
            .map(|(_, letter)| letter)
            .collect()
    };
    let all = OF_TABLES.iter().map(|(verb, _)| *verb).collect();
    let mut items = vec![item(server, &server.owner, &letters(&all))];
    let others = of_table(access, table);
    items.extend(others.iter().map(|(role, verbs)| item(server, role, &letters(verbs))));
    Some(items)
}

/// What psql's `\dp` has of a table's columns: a column, a colon, and a line for each role.
pub(super) fn column_items(server: &ServerState, access: &Access, table: &str) -> Vec<String> {
    let mut items: BTreeMap<&str, String> = BTreeMap::new();
    for (_, column, role) in of_columns(access).into_iter().filter(|(of, _, _)| *of == table) {
        let text = items.entry(column).or_insert_with(|| format!("{column}:"));
        text.push_str(&format!("\n  {}", item(server, role, "r")));
    }
    items.into_values().collect()
}

/// All policies.
pub(super) fn policies(access: &Access) -> Vec<ListedPolicy> {
    let mut all: BTreeMap<(&str, &str), ListedPolicy> = BTreeMap::new();
    for policy in &access.policies {
        let one = all.entry((&policy.table, &policy.name)).or_insert_with(|| ListedPolicy {
            oid: 0,
            table: policy.table.clone(),
            name: policy.name.clone(),
            roles: Vec::new(),
            condition: policy.condition.clone(),
        });
        one.roles.push(policy.role.clone());
    }
    let key = |policy: &ListedPolicy| format!("policy {} {}", policy.table, policy.name);
    let numbers = oids(all.values().map(key));
    let numbered = all.into_values().map(|policy| {
        let oid = numbers.get(&key(&policy)).copied().unwrap_or_default();
        ListedPolicy { oid, ..policy }
    });
    numbered.collect()
}

/// What psql's `\dp` has of a table's policies.
pub(super) fn policy_items(access: &Access, table: &str) -> Vec<String> {
    let item = |policy: ListedPolicy| {
        let is_for_all = policy.roles.iter().any(|role| role == PUBLIC);
        let to = match is_for_all {
            true => String::new(),
            false => format!("\n  to: {}", policy.roles.join(", ")),
        };
        format!("{} (r):\n  (u): {}{to}", policy.name, policy.condition)
    };
    policies(access).into_iter().filter(|policy| policy.table == table).map(item).collect()
}

/// Numbers of roles; 0 is everybody.
pub(super) fn role_oids(server: &ServerState, roles: &[String]) -> Vec<i64> {
    let known = server.roles();
    let oid = |role: &String| known.iter().find(|known| known.name == *role).map_or(0, |k| k.oid);
    roles.iter().map(oid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Grant, Role, RowPolicy};

    #[test]
    fn rights_are_listed_as_postgres_lists_them() {
        let mut access = Access::default();
        let server = ServerState::default();
        assert_eq!(acl(&server, &access, "t"), None);
        for name in ["ann", "Bob"] {
            access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
        }
        let mut grant = |role: &str, verb: Verb, on: Object, columns: &[&str]| {
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            access.grant(Grant { role: role.into(), verb, on, columns }).unwrap();
        };
        let table = || Object::Table("t".into());
        grant("ann", Verb::Select, table(), &[]);
        grant("ann", Verb::Insert, Object::Schema("public".into()), &[]);
        grant("Bob", Verb::Select, table(), &["a", "b"]);
        grant("public", Verb::Select, Object::Lake, &[]);
        let items = acl(&server, &access, "t").unwrap();
        let expected =
            ["admin=arwd/admin", "ann=ar/admin", "=r/admin", "reader=r/admin", "writer=arwd/admin"];
        assert_eq!(items, expected);
        let of_columns = column_items(&server, &access, "t");
        assert_eq!(of_columns, ["a:\n  \"Bob\"=r/admin", "b:\n  \"Bob\"=r/admin"]);
        let (table, condition) = ("t".to_owned(), "a > 1".to_owned());
        let (name, role) = ("p".to_owned(), "ann".to_owned());
        access.add_policy(RowPolicy { table, name, role, condition, made_at: 0 }).unwrap();
        access.share_policy("t", "p", "Bob").unwrap();
        assert_eq!(policies(&access)[0].roles, ["Bob", "ann"]);
        assert_eq!(policy_items(&access, "t"), ["p (r):\n  (u): a > 1\n  to: Bob, ann"]);
    }
}
