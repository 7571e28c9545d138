//! Names of roles, tenants, policies and tokens: PostgreSQL's identifiers.
//!
//! # Invariants
//! - A [`Name`]d thing is found by the folded form: `Ann` and `ann` are one, `"Ann"` is another.

use super::error::{AccessError, Result};

/// PostgreSQL's; it cuts longer ones, which would make two names one.
pub const NAME_MAX_BYTES: usize = 63;

/// A name as it is written in SQL or on the command line: folded to lower case unless it is in double quotes,
/// in which `""` is a quote.
///
/// # Errors
/// [`AccessError::BadName`] says what is in the way.
pub fn folded(written: &str) -> Result<String> {
    let Some(rest) = written.strip_prefix('"') else {
        // ASCII only, as PostgreSQL in UTF-8.
        let name = written.to_ascii_lowercase();
        let problem = plain_problem(&name);
        return problem.map_or_else(|| checked(name), |problem| Err(bad(written, problem)));
    };
    let inner = rest.strip_suffix('"').ok_or_else(|| bad(written, "has no quote at its end"))?;
    if inner.replace("\"\"", "").contains('"') {
        return Err(bad(written, "has a single quote mark within; write it twice"));
    }
    checked(inner.replace("\"\"", "\""))
}

/// The name itself, if it can be one.
///
/// # Errors
/// [`AccessError::BadName`].
pub fn checked(name: String) -> Result<String> {
    if name.is_empty() {
        return Err(bad(&name, "is empty"));
    }
    if name.len() > NAME_MAX_BYTES {
        return Err(bad(&name, format!("is longer than {NAME_MAX_BYTES} bytes")));
    }
    if name.chars().any(char::is_control) {
        return Err(bad(&name.escape_default().to_string(), "has a control character"));
    }
    if name.starts_with("pg_") {
        return Err(bad(&name, "begins with `pg_`, which is kept for PostgreSQL's own"));
    }
    Ok(name)
}

fn plain_problem(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if !(first.is_alphabetic() || first == '_') {
        return Some("begins with neither a letter nor `_`; put it in double quotes".to_owned());
    }
    let allowed = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '$';
    let other = name.chars().find(|c| !allowed(c))?;
    Some(format!("holds `{}`; put it in double quotes", other.escape_default()))
}

fn bad(name: &str, problem: impl Into<String>) -> AccessError {
    AccessError::BadName { name: name.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fold_unless_they_are_quoted() {
        let long = "a".repeat(63);
        for (written, name) in [
            ("ann", "ann"),
            ("Ann", "ann"),
            ("_a$1", "_a$1"),
            ("été", "été"),
            ("\"Ann\"", "Ann"),
            ("\"ann.b@c.org\"", "ann.b@c.org"),
            ("\"a\"\"b\"", "a\"b"),
            (&long, &long),
        ] {
            assert_eq!(folded(written).unwrap(), name, "{written}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(64);
        // 32 letters of two bytes.
        let wide = "é".repeat(32);
        for written in
            ["", "\"\"", "1a", "a b", "a-b", "\"a", "\"a\"b\"", "\"a\nb\"", "pg_x", &long, &wide]
        {
            let error = folded(written).unwrap_err();
            assert_eq!(error.code(), "42602", "{written}");
        }
    }
}
