//! Who may what, as tables of schema `system`: roles, grants, policies, hidden columns, tenants, tokens.
//!
//! # Invariants
//! - A role sees what is said of itself and of roles that it is a member of; whoever has the right `monitor`, and
//!   admins, all.
//! - Nothing that a password or a token is checked with.
//!
//! # Not here
//! What statements change: `access_sql`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::access::{Access, BUILT_IN, Object, Role};

/// The tables.
pub(crate) const TABLES: [&str; 6] =
    ["grants", "hidden_columns", "policies", "roles", "tenants", "tokens"];

/// What a role sees of access.
pub(crate) struct Seen<'a> {
    pub access: &'a Access,
    /// Whose are shown; all without.
    pub roles: Option<BTreeSet<&'a str>>,
}

impl Seen<'_> {
    fn has(&self, role: &str) -> bool {
        self.roles.as_ref().is_none_or(|roles| roles.contains(role))
    }
}

/// The columns of a table; `None` if it is none of these.
pub(crate) fn columns(table: &str) -> Option<SchemaRef> {
    let access = Access::default();
    rows(table, &Seen { access: &access, roles: None })?.ok().map(|rows| rows.schema())
}

/// The rows of a table; `None` if it is none of these.
pub(crate) fn rows(table: &str, seen: &Seen<'_>) -> Option<Result<RecordBatch, ArrowError>> {
    let columns = match table {
        "grants" => grants(seen),
        "hidden_columns" => hidden_columns(seen),
        "policies" => policies(seen),
        "roles" => roles(seen),
        "tenants" => tenants(seen),
        "tokens" => tokens(seen),
        _ => return None,
    };
    let columns = columns.into_iter().map(|(name, values)| (name, values, true));
    Some(RecordBatch::try_from_iter_with_nullable(columns))
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn text(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn number(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Arc::new(values.map(|value| value.map(number)).collect::<Int64Array>())
}

fn time(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    let micros = values.map(|millis| millis.map(|millis| millis.saturating_mul(1000)));
    Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}

fn truth(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<BooleanArray>())
}

/// Names with commas; nothing for none.
fn names(names: &BTreeSet<String>) -> Option<String> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn roles(seen: &Seen<'_>) -> Columns {
    let own = seen.access.roles.iter().map(|(name, role)| (name.as_str(), role));
    let none = Role::default();
    let built_in = BUILT_IN.iter().map(|(name, _)| (*name, &none));
    let mut all: Vec<(&str, &Role)> =
        own.chain(built_in).filter(|(name, _)| seen.has(name)).collect();
    all.sort_by_key(|(name, _)| *name);
    let each = || all.iter();
    let tokens = |name: &str| seen.access.tokens.iter().filter(|token| token.role == name).count();
    vec![
        ("name", text(each().map(|(name, _)| Some((*name).to_owned())))),
        ("login", truth(each().map(|(_, role)| role.login))),
        ("is_built_in", truth(each().map(|(name, _)| crate::access::is_built_in(name)))),
        ("has_password", truth(each().map(|(_, role)| role.password.is_some()))),
        ("member_of", text(each().map(|(_, role)| names(&role.member_of)))),
        ("tenant", text(each().map(|(_, role)| role.tenant.clone()))),
        ("valid_until", time(each().map(|(_, role)| role.valid_until))),
        ("connection_limit", number(each().map(|(_, role)| role.connection_limit.map(u64::from)))),
        ("tokens", number(each().map(|(name, _)| Some(tokens(name) as u64)))),
    ]
}

fn grants(seen: &Seen<'_>) -> Columns {
    let each = || seen.access.grants.iter().filter(|grant| seen.has(&grant.role));
    let object = |on: &Object| match on {
        Object::Lake => ("lake", None),
        Object::Schema(name) => ("schema", Some(name.clone())),
        Object::Table(name) => ("table", Some(name.clone())),
        Object::IdDomain(name) => ("id domain", Some(name.clone())),
        Object::Experiment(name) => ("experiment", Some(name.clone())),
    };
    vec![
        ("role", text(each().map(|grant| Some(grant.role.clone())))),
        ("privilege", text(each().map(|grant| Some(grant.verb.name().to_owned())))),
        ("kind", text(each().map(|grant| Some(object(&grant.on).0.to_owned())))),
        ("object", text(each().map(|grant| object(&grant.on).1))),
        ("columns", text(each().map(|grant| names(&grant.columns)))),
    ]
}

fn policies(seen: &Seen<'_>) -> Columns {
    let each = || seen.access.policies.iter().filter(|policy| seen.has(&policy.role));
    vec![
        ("table_name", text(each().map(|policy| Some(policy.table.clone())))),
        ("name", text(each().map(|policy| Some(policy.name.clone())))),
        ("role", text(each().map(|policy| Some(policy.role.clone())))),
        ("condition", text(each().map(|policy| Some(policy.condition.clone())))),
        ("made", time(each().map(|policy| Some(policy.made_at)))),
    ]
}

fn hidden_columns(seen: &Seen<'_>) -> Columns {
    let each = || seen.access.hidden.iter().filter(|hidden| seen.has(&hidden.role));
    vec![
        ("table_name", text(each().map(|hidden| Some(hidden.table.clone())))),
        ("role", text(each().map(|hidden| Some(hidden.role.clone())))),
        ("columns", text(each().map(|hidden| names(&hidden.columns)))),
    ]
}

fn tenants(seen: &Seen<'_>) -> Columns {
    let of_roles: Option<BTreeSet<&str>> = seen.roles.as_ref().map(|roles| {
        let found = roles.iter().filter_map(|role| seen.access.roles.get(*role));
        found.filter_map(|role| role.tenant.as_deref()).collect()
    });
    let is_seen = |name: &str| of_roles.as_ref().is_none_or(|tenants| tenants.contains(name));
    let each = || seen.access.tenants.iter().filter(|(name, _)| is_seen(name));
    let limits = || each().map(|(_, tenant)| tenant);
    vec![
        ("name", text(each().map(|(name, _)| Some(name.clone())))),
        ("weight", number(limits().map(|tenant| Some(u64::from(tenant.weight))))),
        ("slots", number(limits().map(|tenant| tenant.slots.map(u64::from)))),
        ("queue", number(limits().map(|tenant| tenant.queue.map(u64::from)))),
        ("memory_bytes", number(limits().map(|tenant| tenant.memory_bytes))),
        ("spool_bytes", number(limits().map(|tenant| tenant.spool_bytes))),
        ("scan_bytes_per_day", number(limits().map(|tenant| tenant.scan_bytes_per_day))),
        (
            "compute_seconds_per_hour",
            number(limits().map(|tenant| tenant.compute_seconds_per_hour)),
        ),
        ("microdollars_per_day", number(limits().map(|tenant| tenant.microdollars_per_day))),
        ("ingest_bytes_per_second", number(limits().map(|tenant| tenant.ingest_bytes_per_second))),
    ]
}

fn tokens(seen: &Seen<'_>) -> Columns {
    let each = || seen.access.tokens.iter().filter(|token| seen.has(&token.role));
    vec![
        ("name", text(each().map(|token| Some(token.name.clone())))),
        ("role", text(each().map(|token| Some(token.role.clone())))),
        ("made", time(each().map(|token| Some(token.made_at)))),
        ("valid_until", time(each().map(|token| token.valid_until))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Token, TokenHash};

    #[test]
    fn a_role_sees_itself_and_what_it_is_a_member_of() {
        let mut access = Access::default();
        for name in ["ann", "bob", "team"] {
            access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
        }
        access.grant_role("team", "ann").unwrap();
        let hash = TokenHash::of("x");
        let (name, role) = ("ci".to_owned(), "bob".to_owned());
        access.add_token(Token { name, role, hash, made_at: 0, valid_until: None }).unwrap();
        let count = |table: &str, roles: Option<BTreeSet<&str>>| {
            let seen = Seen { access: &access, roles };
            rows(table, &seen).unwrap().unwrap().num_rows()
        };
        // Itself, the team and `public`.
        assert_eq!(count("roles", Some(access.memberships("ann"))), 3);
        assert_eq!(count("roles", None), 3 + BUILT_IN.len());
        assert_eq!(
            (count("tokens", Some(access.memberships("ann"))), count("tokens", None)),
            (0, 1)
        );
        for table in TABLES {
            assert!(columns(table).is_some(), "{table}");
        }
        assert!(columns("nothing").is_none());
        let all = rows("tokens", &Seen { access: &access, roles: None }).unwrap().unwrap();
        assert!(!format!("{all:?}").contains(&String::from(hash)));
    }
}
