//! What of a table a role may read, as the engine asks for it.
//!
//! # Invariants
//! - Policies and hidden columns of a name count for every table whose name differs from it in case alone (policies if
//!   it has none of its own): who has left quotes out has not left a table open.
//!
//! # Not here
//! How it gets into plans: the engine.

use std::collections::BTreeSet;

use uplake_engine::Readable;

use crate::access::{Denied, Rights, RowFilter};

/// What a role may read of a table.
///
/// # Errors
/// [`Denied`] if it is nothing.
pub(crate) fn readable(rights: &Rights, table: &str) -> Result<Readable, Denied> {
    rights.may_read(table, &[])?;
    let granted = rights.granted(table).map(lower);
    Ok(Readable { condition: condition(rights, table), hidden: hidden(rights, table), granted })
}

/// Are there rows or columns of a table that do not exist for a role? Then it may read the others, and no more: what
/// it would write, replace or remove could be what it does not see.
pub(crate) fn sees_a_part(rights: &Rights, table: &str) -> bool {
    condition(rights, table).is_some() || !hidden(rights, table).is_empty()
}

fn condition(rights: &Rights, table: &str) -> Option<String> {
    let of = |name: &str| match rights.rows(name) {
        RowFilter::All => None,
        RowFilter::Nothing => Some("false".to_owned()),
        RowFilter::AnyOf(conditions) => {
            // A comment in one ends with its line.
            let each: Vec<String> = conditions.iter().map(|c| format!("({c}\n)")).collect();
            Some(each.join(" OR "))
        }
    };
    of(table).or_else(|| {
        let lower = table.to_lowercase();
        let others = rights.tables_with_policies().filter(|name| name.to_lowercase() == lower);
        let each: Vec<String> = others.filter_map(of).map(|c| format!("({c})")).collect();
        (!each.is_empty()).then(|| each.join(" AND "))
    })
}

/// Columns of a table that do not exist for a role, in lower case.
pub(crate) fn hidden(rights: &Rights, table: &str) -> BTreeSet<String> {
    let name = table.to_lowercase();
    let of_table = rights.all_hidden().iter().filter(|(table, _)| table.to_lowercase() == name);
    of_table.flat_map(|(_, columns)| lower(columns)).collect()
}

fn lower(columns: &BTreeSet<String>) -> BTreeSet<String> {
    columns.iter().map(|column| column.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Role, RowPolicy};

    #[test]
    fn policies_count_whatever_the_case_of_their_table() {
        let mut access = Access::default();
        for role in ["ann", "bob"] {
            let member_of = BTreeSet::from(["reader".to_owned()]);
            access.add_role(role, Role { member_of, ..Role::default() }).unwrap();
        }
        let mut add = |table: &str, role: &str, condition: &str| {
            let [table, role, condition] = [table, role, condition].map(str::to_owned);
            let policy = RowPolicy { table, name: "p".into(), role, condition, made_at: 0 };
            access.add_policy(policy).unwrap();
        };
        add("Sales", "ann", "a = 1");
        add("users", "ann", "b = 1");
        add("USERS", "ann", "b = 2");
        let of = |role: &str, table: &str| readable(&access.of(role), table).unwrap().condition;
        for table in ["Sales", "sales", "SALES"] {
            assert!(of("ann", table).unwrap().contains("a = 1"), "{table}");
            assert_eq!(
                of("bob", table).as_deref().map(|c| c.contains("false")),
                Some(true),
                "{table}"
            );
        }
        assert_eq!(of("ann", "users").unwrap(), "(b = 1\n)");
        assert_eq!(of("ann", "Users").unwrap(), "((b = 2\n)) AND ((b = 1\n))");
        assert_eq!(of("ann", "others"), None);
    }
}
