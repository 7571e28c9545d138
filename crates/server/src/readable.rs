//! What of a table a role may read, as the engine asks for it.
//!
//! # Invariants
//! - Policies and hidden columns of a name count for every table whose name differs from it in case alone: who has
//!   left quotes out has not left a table open.
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
    let lower = table.to_lowercase();
    let rows = [table, &lower].map(|name| rights.rows(name));
    rows.into_iter().find_map(|rows| match rows {
        RowFilter::All => None,
        RowFilter::Nothing => Some("false".to_owned()),
        RowFilter::AnyOf(conditions) => {
            // A comment in one ends with its line.
            let each: Vec<String> = conditions.iter().map(|c| format!("({c}\n)")).collect();
            Some(each.join(" OR "))
        }
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
