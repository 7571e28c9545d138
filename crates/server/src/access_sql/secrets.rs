//! Statements as they may be listed and logged: without passwords.
//!
//! # Invariants
//! - What follows the word PASSWORD is left out, and of a statement that makes or changes a role every text but the
//!   one after UNTIL: also when it is misspelt, and no statement at all.

use std::borrow::Cow;

use crate::catalog::{Kind, Token, tokens};

/// What stands in a secret's place.
const HIDDEN: &str = "'***'";
const SIGNS: [&str; 4] = ["password", "role", "user", "group"];

/// The text with its passwords left out; most are handed back as they are.
pub(crate) fn without_secrets(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    if !SIGNS.iter().any(|sign| lower.contains(sign)) {
        return Cow::Borrowed(text);
    }
    let Some(found) = tokens(text) else { return cut(text, &lower) };
    let mut shown = String::new();
    let (mut from, mut is_about_role) = (0, false);
    for (at, token) in found.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| found.get(at));
        if before.is_none_or(|before| before.is_symbol(";")) {
            is_about_role = begins_role(&found[at..]);
        }
        if is_secret(before, token, is_about_role) {
            shown.push_str(&text[from..token.at]);
            shown.push_str(HIDDEN);
            from = token.range().end;
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

fn begins_role(found: &[Token<'_>]) -> bool {
    let is = |at: usize, words: &[&str]| {
        found.get(at).is_some_and(|token| words.iter().any(|word| token.is_word(word)))
    };
    is(0, &["create", "alter"]) && is(1, &["role", "user", "group"])
}

fn is_secret(before: Option<&Token<'_>>, token: &Token<'_>, is_about_role: bool) -> bool {
    let follows = |word: &str| before.is_some_and(|before| before.is_word(word));
    if token.kind == Kind::Text {
        return follows("password") || (is_about_role && !follows("until"));
    }
    is_about_role && follows("password") && !token.is_word("null") && token.kind != Kind::Symbol
}

/// A text that does not end: nothing is left of it from where a secret may begin.
fn cut<'a>(text: &'a str, lower: &str) -> Cow<'a, str> {
    let of_role = ["role", "user", "group"].iter().any(|word| {
        ["create", "alter"].iter().any(|verb| {
            let rest = lower.trim_start().strip_prefix(verb);
            rest.is_some_and(|rest| rest.trim_start().starts_with(word))
        })
    });
    let password = lower.find("password").map(|at| at + "password".len());
    let quote = lower.find(['\'', '"', '$']).filter(|_| of_role);
    match password.into_iter().chain(quote).min() {
        Some(end) => Cow::Owned(format!("{} {HIDDEN}", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_left_out() {
        for (text, expected) in [
            (
                "CREATE USER ann PASSWORD 'it''s' VALID UNTIL '2027-01-31'",
                "CREATE USER ann PASSWORD '***' VALID UNTIL '2027-01-31'",
            ),
            ("alter role ann password E'a\\'b'", "alter role ann password '***'"),
            ("ALTER USER ann PASSWORD $$x y$$ LOGIN", "ALTER USER ann PASSWORD '***' LOGIN"),
            ("ALTER USER ann PASSWORD /* c */ 'x'", "ALTER USER ann PASSWORD /* c */ '***'"),
            ("ALTER USER ann PASSWORD \"x\"", "ALTER USER ann PASSWORD '***'"),
            ("ALTER USER ann PASSWORD pencil", "ALTER USER ann PASSWORD '***'"),
            ("ALTER USER ann PASSWORD NULL", "ALTER USER ann PASSWORD NULL"),
            ("CREATE USER ann PASSWRD 'x'", "CREATE USER ann PASSWRD '***'"),
            ("SELECT 1; create user a password 'x'", "SELECT 1; create user a password '***'"),
            ("CRATE USER ann PASSWORD 'x'", "CRATE USER ann PASSWORD '***'"),
            ("ALTER USER ann PASSWORD 'not ended", "ALTER USER ann PASSWORD '***'"),
            ("CREATE USER ann PASSWRD 'not ended", "CREATE USER ann PASSWRD  '***'"),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "SELECT * FROM users WHERE password = 'x'",
            "SELECT 'password' AS role",
            "SELECT user_id FROM t WHERE country = 'DE'",
            "CREATE TABLE users AS SELECT 'a' AS password",
            "SELECT user, 'cut off",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }
}
