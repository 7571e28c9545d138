//! Row policies, and columns that are hidden.

use uplake_engine::Result;

use super::cursor::Cursor;
use super::statement::{AccessStatement, Condition, Named, PolicyChange, RoleName};
use crate::access::PUBLIC;

const USAGE: &str = "CREATE POLICY name ON table [FOR SELECT] [TO role, …] USING (condition)";
const ALTER_USAGE: &str = "ALTER POLICY name ON table [TO role, …] [USING (condition)]";
const DROP_USAGE: &str = "DROP POLICY [IF EXISTS] name ON table";
const COLUMN_USAGE: &str =
    "ALTER TABLE table HIDE COLUMN column, … FROM role, …, or SHOW COLUMN column, … TO role, …";

/// What follows CREATE POLICY.
pub(super) fn create(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let (name, table) = name_and_table(c, USAGE)?;
    if c.sees_all(&["as", "restrictive"]) {
        let hint = "what a role may read is what any of its policies lets it";
        return Err(c.unsupported("restrictive policies are not supported").with_hint(hint));
    }
    c.takes_all(&["as", "permissive"]);
    if c.takes("for") && !c.takes("select") {
        return Err(c
            .unsupported("policies say which rows are read: FOR SELECT")
            .with_hint("who may add or remove rows: GRANT"));
    }
    let roles = match c.takes("to") {
        true => c.list(USAGE, Cursor::role)?,
        false => vec![RoleName::Named(PUBLIC.to_owned())],
    };
    c.word("using", USAGE)?;
    let condition = condition(c, USAGE)?;
    end(c, USAGE)?;
    Ok(AccessStatement::CreatePolicy { name, table, roles, condition })
}

/// What follows ALTER POLICY.
pub(super) fn alter(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let (name, table) = name_and_table(c, ALTER_USAGE)?;
    if c.sees("rename") {
        return Err(c
            .unsupported("a policy keeps its name")
            .with_hint("drop it, and make another"));
    }
    let mut change = PolicyChange::default();
    if c.takes("to") {
        change.roles = Some(c.list(ALTER_USAGE, Cursor::role)?);
    }
    if c.takes("using") {
        change.condition = Some(condition(c, ALTER_USAGE)?);
    }
    if change == PolicyChange::default() {
        return Err(c.expected(ALTER_USAGE));
    }
    end(c, ALTER_USAGE)?;
    Ok(AccessStatement::AlterPolicy { name, table, change })
}

/// What follows DROP POLICY.
pub(super) fn drop_policy(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let if_exists = c.takes_all(&["if", "exists"]);
    let (name, table) = name_and_table(c, DROP_USAGE)?;
    if !c.takes("cascade") {
        c.takes("restrict");
    }
    c.ends(DROP_USAGE)?;
    Ok(AccessStatement::DropPolicy { name, table, if_exists })
}

/// What follows ALTER TABLE, of which the engine knows that it is this one.
pub(super) fn columns(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    let table = c.table(COLUMN_USAGE)?;
    let hides = c.takes("hide");
    if !hides {
        c.word("show", COLUMN_USAGE)?;
    }
    c.word("column", COLUMN_USAGE)?;
    let columns = c.list(COLUMN_USAGE, Cursor::named)?;
    c.word(if hides { "from" } else { "to" }, COLUMN_USAGE)?;
    let roles = c.list(COLUMN_USAGE, Cursor::role)?;
    c.ends(COLUMN_USAGE)?;
    Ok(AccessStatement::Columns { table, columns, roles, hides })
}

fn name_and_table(c: &mut Cursor<'_>, usage: &str) -> Result<(String, Named)> {
    let name = c.name(usage)?;
    c.word("on", usage)?;
    Ok((name, c.table(usage)?))
}

fn condition(c: &mut Cursor<'_>, usage: &str) -> Result<Condition> {
    let (text, at) = c.in_brackets(usage)?;
    // What is kept begins where something stands.
    let inner = text.trim_start();
    let at = at + text.len() - inner.len();
    Ok(Condition { text: inner.trim_end().to_owned(), at })
}

fn end(c: &Cursor<'_>, usage: &str) -> Result<()> {
    if c.sees_all(&["with", "check"]) {
        return Err(c.unsupported("WITH CHECK is not supported: policies say which rows are read"));
    }
    c.ends(usage)
}
