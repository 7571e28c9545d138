//! Statements that the engine does not answer itself: who may connect, and who may what. Whoever makes an engine
//! adds what answers them ([`AddedStatements`](crate::AddedStatements)).
//!
//! # Not here
//! What is behind their first words: who answers them reads the text.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::Position;
use crate::sql::words::{is_space, is_word};

/// What is known of such a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddedStatement {
    /// In PostgreSQL's words of a command tag.
    pub command: &'static str,
    /// Where it begins in the whole text.
    pub begins: Position,
}

/// The second word, and the command tags with CREATE, ALTER and DROP before it.
const ABOUT: [(&str, [&str; 3]); 6] = [
    ("role", ["CREATE ROLE", "ALTER ROLE", "DROP ROLE"]),
    ("user", ["CREATE ROLE", "ALTER ROLE", "DROP ROLE"]),
    ("group", ["CREATE ROLE", "ALTER ROLE", "DROP ROLE"]),
    ("policy", ["CREATE POLICY", "ALTER POLICY", "DROP POLICY"]),
    ("tenant", ["CREATE TENANT", "ALTER TENANT", "DROP TENANT"]),
    ("token", ["CREATE TOKEN", "ALTER TOKEN", "DROP TOKEN"]),
];

/// Leaves a statement that says nothing in its place, because the parser needs one.
pub(crate) fn take_added(tokens: &mut Vec<TokenWithSpan>) -> Option<AddedStatement> {
    let solid: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_space(token)).collect();
    let command = command(&solid)?;
    let span = solid.first()?.span;
    let begins = Position { line: span.start.line, column: span.start.column };
    let nothing = [Token::make_keyword("SELECT"), Token::Number("1".into(), false)];
    *tokens = nothing.map(|token| TokenWithSpan { token, span }).into();
    Some(AddedStatement { command, begins })
}

fn command(solid: &[&TokenWithSpan]) -> Option<&'static str> {
    let is = |at: usize, word: &str| solid.get(at).is_some_and(|token| is_word(token, word));
    let has_on = || solid.iter().any(|token| is_word(token, "on"));
    if is(0, "grant") {
        return Some(if has_on() { "GRANT" } else { "GRANT ROLE" });
    }
    if is(0, "revoke") {
        return Some(if has_on() { "REVOKE" } else { "REVOKE ROLE" });
    }
    if is(0, "alter") && is(1, "table") {
        // A name, maybe with its schema and its catalog.
        let is_dot = |at: usize| solid.get(at).is_some_and(|token| token.token == Token::Period);
        let verb = 3 + 2 * [3, 5].into_iter().take_while(|at| is_dot(*at)).count();
        let shows = (is(verb, "hide") || is(verb, "show")) && is(verb + 1, "column");
        return shows.then_some("ALTER TABLE");
    }
    let verb = ["create", "alter", "drop"].iter().position(|word| is(0, word))?;
    let (_, commands) = ABOUT.iter().find(|(word, _)| is(1, word))?;
    Some(commands[verb])
}

#[cfg(test)]
mod tests {
    use crate::base::error::Position;
    use crate::sql::statement::parse;

    #[test]
    fn statements_about_access_are_known_by_their_first_words() {
        for (text, expected) in [
            ("CREATE USER ann PASSWORD 'x;y' $1 nonsense", "CREATE ROLE"),
            ("alter role ann nologin", "ALTER ROLE"),
            ("DROP GROUP IF EXISTS a", "DROP ROLE"),
            ("CREATE POLICY p ON t USING (a > 1)", "CREATE POLICY"),
            ("ALTER TENANT t WITH (weight 3)", "ALTER TENANT"),
            ("/* new */ CREATE TOKEN FOR ann", "CREATE TOKEN"),
            ("GRANT SELECT ON t TO ann", "GRANT"),
            ("GRANT reader TO ann", "GRANT ROLE"),
            ("REVOKE reader FROM ann", "REVOKE ROLE"),
            ("ALTER TABLE t SHOW COLUMN c TO ann", "ALTER TABLE"),
            ("ALTER TABLE public.t HIDE COLUMN c FROM ann", "ALTER TABLE"),
            ("ALTER TABLE lake.public.t HIDE COLUMN c FROM ann", "ALTER TABLE"),
        ] {
            let statement = parse(text).unwrap().remove(0);
            assert_eq!(statement.command(), expected, "{text}");
            assert!(!statement.only_asks() && !statement.can_be_prepared(), "{text}");
            assert_eq!(statement.text, text.trim_start_matches("/* new */ "));
        }
        let both = parse("SELECT 1;\n  GRANT a TO b").unwrap();
        assert_eq!(both[1].added.unwrap().begins, Position { line: 2, column: 3 });
        for text in ["CREATE TABLE role (a INT)", "DROP TABLE token", "SELECT 1 AS grant_on"] {
            assert!(parse(text).unwrap()[0].added.is_none(), "{text}");
        }
    }
}
