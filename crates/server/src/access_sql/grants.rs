//! GRANT and REVOKE.

use uplake_engine::{EngineError, Result, SqlState};

use super::cursor::Cursor;
use super::statement::{AccessStatement, Granting, Named, On, RoleName, Verbs};
use crate::access::{SCHEMA, Verb};

const USAGE: &str = "GRANT SELECT [(column, …)], INSERT, UPDATE, DELETE, CREATE, USAGE, EXECUTE REPORT or ALL \
                     ON TABLE t, ALL TABLES IN SCHEMA public, SCHEMA public, LAKE, ID DOMAIN d or EXPERIMENT e \
                     TO role, …; or GRANT role, … TO role, …";
/// PostgreSQL's rights that nothing here needs.
const NOT_HERE: [&str; 7] =
    ["truncate", "references", "trigger", "connect", "temporary", "temp", "maintain"];

/// What follows GRANT.
pub(super) fn grant(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    if let Some((verbs, on)) = rights(c)? {
        c.word("to", USAGE)?;
        let roles = c.list(USAGE, role)?;
        end_of_grant(c)?;
        return Ok(AccessStatement::Grant(Granting { verbs, on, roles }));
    }
    let of = c.list(USAGE, Cursor::name)?;
    c.word("to", USAGE)?;
    let to = c.list(USAGE, role)?;
    end_of_grant(c)?;
    Ok(AccessStatement::GrantRoles { of, to })
}

/// What follows REVOKE.
pub(super) fn revoke(c: &mut Cursor<'_>) -> Result<AccessStatement> {
    if c.sees_all(&["grant", "option"]) || c.sees_all(&["admin", "option"]) {
        return Err(no_option(c));
    }
    if let Some((verbs, on)) = rights(c)? {
        c.word("from", USAGE)?;
        let roles = c.list(USAGE, role)?;
        end_of_revoke(c)?;
        return Ok(AccessStatement::Revoke(Granting { verbs, on, roles }));
    }
    let of = c.list(USAGE, Cursor::name)?;
    c.word("from", USAGE)?;
    let from = c.list(USAGE, role)?;
    end_of_revoke(c)?;
    Ok(AccessStatement::RevokeRoles { of, from })
}

fn role(c: &mut Cursor<'_>, usage: &str) -> Result<RoleName> {
    if c.sees("group") && !c.sees_all(&["group", "to"]) {
        c.skip();
    }
    c.role(usage)
}

fn no_option(c: &Cursor<'_>) -> EngineError {
    c.unsupported("only members of `admin` grant: no right can be granted on")
        .with_hint("leave WITH GRANT OPTION, or ADMIN OPTION, out")
}

fn end_of_grant(c: &mut Cursor<'_>) -> Result<()> {
    if c.sees_all(&["with", "grant"]) || c.sees_all(&["with", "admin"]) {
        return Err(no_option(c));
    }
    if c.sees_all(&["granted", "by"]) {
        return Err(c.unsupported("GRANTED BY is not supported"));
    }
    c.ends(USAGE)
}

fn end_of_revoke(c: &mut Cursor<'_>) -> Result<()> {
    // Nothing was granted on, so nothing depends on it.
    if !c.takes("cascade") {
        c.takes("restrict");
    }
    end_of_grant(c)
}

/// `verbs ON objects`; `None` if roles follow.
fn rights(c: &mut Cursor<'_>) -> Result<Option<(Verbs, Vec<On>)>> {
    if let Some(word) = NOT_HERE.iter().find(|word| c.sees(word)) {
        let what = format!("there is no right {}", word.to_uppercase());
        return Err(c
            .unsupported(what)
            .with_hint("SELECT, INSERT, UPDATE, DELETE, CREATE, USAGE, EXECUTE REPORT"));
    }
    let verbs = if c.takes("all") {
        c.takes("privileges");
        Verbs::All
    } else {
        if known(c).is_none() {
            return Ok(None);
        }
        Verbs::Some(c.list(USAGE, verb)?)
    };
    c.word("on", USAGE)?;
    Ok(Some((verbs, objects(c)?)))
}

fn known(c: &Cursor<'_>) -> Option<(Verb, &'static [&'static str])> {
    let all: [(Verb, &[&str]); 7] = [
        (Verb::Select, &["select"]),
        (Verb::Insert, &["insert"]),
        (Verb::Update, &["update"]),
        (Verb::Delete, &["delete"]),
        (Verb::Create, &["create"]),
        (Verb::Usage, &["usage"]),
        (Verb::ExecuteReport, &["execute", "report"]),
    ];
    all.into_iter().find(|(_, words)| c.sees_all(words))
}

fn verb(c: &mut Cursor<'_>, usage: &str) -> Result<(Verb, Vec<Named>)> {
    let (verb, words) = known(c).ok_or_else(|| c.expected(usage))?;
    c.takes_all(words);
    let mut columns = Vec::new();
    if c.takes_symbol("(") {
        columns = c.list(usage, Cursor::named)?;
        c.symbol(")", usage)?;
    }
    Ok((verb, columns))
}

fn objects(c: &mut Cursor<'_>) -> Result<Vec<On>> {
    let name = |c: &mut Cursor<'_>, usage: &str| c.named(usage).map(|named| named.name);
    if c.takes_all(&["all", "tables", "in", "schema"]) || c.takes("schema") {
        return c.list(USAGE, schema);
    }
    if c.sees("all") {
        return Err(c.expected(USAGE));
    }
    if c.takes_all(&["id", "domain"]) {
        return Ok(c.list(USAGE, name)?.into_iter().map(On::IdDomain).collect());
    }
    for other in ["database", "sequence", "function", "language", "tablespace", "type"] {
        if c.sees(other) && !c.sees_all(&[other, "to"]) && !c.sees_all(&[other, "from"]) {
            let what = format!("nothing is granted on a {other}");
            return Err(c.unsupported(what).with_hint("on the whole lake: ON LAKE"));
        }
    }
    let ends =
        |c: &Cursor<'_>, word: &str| c.sees_all(&[word, "to"]) || c.sees_all(&[word, "from"]);
    if ends(c, "lake") {
        c.skip();
        return Ok(vec![On::Lake]);
    }
    if c.sees("experiment") && !ends(c, "experiment") {
        c.skip();
        return Ok(c.list(USAGE, name)?.into_iter().map(On::Experiment).collect());
    }
    if !ends(c, "table") {
        c.takes("table");
    }
    Ok(c.list(USAGE, Cursor::table)?.into_iter().map(On::Table).collect())
}

fn schema(c: &mut Cursor<'_>, usage: &str) -> Result<On> {
    let name = c.named(usage)?;
    if name.name == SCHEMA {
        return Ok(On::Schema);
    }
    let what = format!("tables are in schema {SCHEMA}; nothing is granted on `{}`", name.name);
    Err(c.refusal(name.at, SqlState::UndefinedObject, what))
}
