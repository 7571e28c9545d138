//! Words of a statement.

use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use uplake_table::AsOf;

/// Separates a table's name from its version in the names we give to DataFusion.
pub(crate) const VERSION_MARK: char = '@';

/// The keyword that it is, unquoted.
pub(crate) fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

/// Is it that word, unquoted, in any case?
pub(crate) fn is_word(token: &TokenWithSpan, text: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

pub(crate) fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// What a name calls: unquoted ones are in lower case.
pub(crate) fn spelled(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// The column of that name: unquoted ones are in lower case.
pub(crate) fn column_name(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() }
}

/// A table name as DataFusion sees it, and the version in it.
pub(crate) fn split_version(name: &str) -> (&str, Option<AsOf>) {
    match name.split_once(VERSION_MARK) {
        Some((table, version)) => match AsOf::parse(version) {
            Ok(as_of) => (table, Some(as_of)),
            Err(_) => (name, None),
        },
        None => (name, None),
    }
}
