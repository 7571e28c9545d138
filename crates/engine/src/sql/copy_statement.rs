//! COPY as tokens: `COPY t FROM 'file'`, which the parser does not know, and options in all the forms that they have.
//!
//! ```text
//! COPY t FROM 'a.csv', 'b/*.csv' [STORED AS CSV] [[WITH | OPTIONS] (header true, …)]   INSERT INTO t, taken out
//! COPY t TO 'a.csv' WITH (FORMAT csv, HEADER, DELIMITER ';')                            … OPTIONS ('header' 'true', …)
//! ```
//!
//! # Not here
//! What options mean (`copy_formats`); COPY of a server's clients, to STDOUT and from STDIN.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::{is_space, is_word, keyword};

/// `COPY t FROM 'file'`: rows of files, into the table of the INSERT that is parsed in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyFrom {
    pub files: Vec<String>,
    pub stored_as: Option<String>,
    pub options: Vec<(String, String)>,
}

const USAGE: &str = "write COPY table FROM 'file', or COPY table TO 'file', and then options as \
                     (header true, delimiter ';', null '-', format csv)";

fn malformed(token: Option<&TokenWithSpan>) -> EngineError {
    let place = token.map(|token| token.span.start);
    let place = place.map(|at| Position { line: at.line, column: at.column });
    EngineError::statement(SqlState::SyntaxError, USAGE).at(place)
}

/// Tokens that are not blank, with their places among all.
struct Solid<'t> {
    tokens: Vec<(usize, &'t TokenWithSpan)>,
    next: usize,
}

impl<'t> Solid<'t> {
    fn of(tokens: &'t [TokenWithSpan]) -> Self {
        let solid = tokens.iter().enumerate();
        let solid = solid.filter(|(_, token)| !is_space(token) && token.token != Token::EOF);
        Self { tokens: solid.collect(), next: 0 }
    }

    fn peek(&self) -> Option<&'t TokenWithSpan> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn take(&mut self) -> Option<&'t TokenWithSpan> {
        let token = self.peek();
        self.next += usize::from(token.is_some());
        token
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_it = self.peek().is_some_and(|token| is_word(token, word));
        self.next += usize::from(is_it);
        is_it
    }

    fn takes_sign(&mut self, sign: &Token) -> bool {
        let is_it = self.peek().is_some_and(|token| token.token == *sign);
        self.next += usize::from(is_it);
        is_it
    }

    fn text(&mut self) -> Result<String> {
        match self.peek().map(|token| &token.token) {
            Some(Token::SingleQuotedString(text)) => {
                self.next += 1;
                Ok(text.clone())
            }
            _ => Err(malformed(self.peek())),
        }
    }

    /// What stands behind the bracket that opens here.
    fn skip_brackets(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.take() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// `(a 1, b = 'x', 'format.c' true, d)`: an option without a value is true.
    fn options(&mut self) -> Result<Vec<(String, String)>> {
        let mut options = Vec::new();
        if !self.takes_sign(&Token::LParen) {
            return Err(malformed(self.peek()));
        }
        while !self.takes_sign(&Token::RParen) {
            let name = self.option_name()?;
            self.takes_sign(&Token::Eq);
            self.takes("as");
            let ends = |token: &TokenWithSpan| matches!(token.token, Token::Comma | Token::RParen);
            let value = match self.peek() {
                Some(token) if ends(token) => "true".to_owned(),
                _ => self.option_value()?,
            };
            options.push((name, value));
            let is_last = self.peek().is_some_and(|token| token.token == Token::RParen);
            if !self.takes_sign(&Token::Comma) && !is_last {
                return Err(malformed(self.peek()));
            }
        }
        Ok(options)
    }

    fn option_name(&mut self) -> Result<String> {
        let at = self.peek();
        let mut name = match at.map(|token| &token.token) {
            Some(Token::Word(word)) => word.value.clone(),
            Some(Token::SingleQuotedString(name)) => name.clone(),
            _ => return Err(malformed(at)),
        };
        self.next += 1;
        while self.takes_sign(&Token::Period) {
            let Some(Token::Word(word)) = self.take().map(|token| &token.token) else {
                return Err(malformed(at));
            };
            name = format!("{name}.{}", word.value);
        }
        Ok(name)
    }

    fn option_value(&mut self) -> Result<String> {
        let at = self.peek();
        let minus = if self.takes_sign(&Token::Minus) { "-" } else { "" };
        let value = match self.take().map(|token| &token.token) {
            Some(Token::SingleQuotedString(text)) => text.clone(),
            // E'\t'
            Some(Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::Number(number, _)) => format!("{minus}{number}"),
            Some(Token::Word(word)) => word.value.clone(),
            _ => return Err(malformed(at)),
        };
        Ok(value)
    }
}

/// Takes COPY … FROM a file for the INSERT that it is.
///
/// # Errors
/// 42601 with its place for what is misspelt, 0A000 for COPY FROM STDIN, which has no client here.
pub(crate) fn take_copy_from(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<CopyFrom>> {
    let mut solid = Solid::of(tokens);
    if !solid.takes("copy") || solid.peek().is_none_or(|token| token.token == Token::LParen) {
        return Ok(None);
    }
    let from = solid.next;
    while solid.peek().is_some_and(|token| {
        matches!(token.token, Token::Word(_) | Token::Period)
            && !is_word(token, "from")
            && !is_word(token, "to")
    }) {
        solid.next += 1;
    }
    let to = solid.next;
    if solid.peek().is_some_and(|token| token.token == Token::LParen) {
        let at = solid.peek();
        solid.skip_brackets();
        if solid.takes("from") {
            refuse_standard_input(&solid)?;
            let place = at.map(|token| token.span.start);
            let place = place.map(|at| Position { line: at.line, column: at.column });
            let refused = EngineError::unsupported("COPY … FROM takes all columns of a table");
            return Err(refused
                .with_hint("name the columns of a file in its first line")
                .at(place));
        }
        return Ok(None);
    }
    if !solid.takes("from") {
        return Ok(None);
    }
    refuse_standard_input(&solid)?;
    let mut copy = CopyFrom { files: vec![solid.text()?], ..CopyFrom::default() };
    while solid.takes_sign(&Token::Comma) {
        copy.files.push(solid.text()?);
    }
    while let Some(token) = solid.peek() {
        if solid.takes("stored") && solid.takes("as") && copy.stored_as.is_none() {
            let Some(Token::Word(format)) = solid.take().map(|token| &token.token) else {
                return Err(malformed(Some(token)));
            };
            copy.stored_as = Some(format.value.clone());
        } else if copy.options.is_empty() {
            let _ = solid.takes("with") || solid.takes("options");
            copy.options = solid.options()?;
        } else {
            return Err(malformed(Some(token)));
        }
    }
    let span = tokens[0].span;
    let word = |word: &str| TokenWithSpan { token: Token::make_keyword(word), span };
    let space = || TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
    let table: Vec<TokenWithSpan> =
        solid.tokens[from..to].iter().map(|(_, token)| (*token).clone()).collect();
    if table.is_empty() {
        return Err(malformed(solid.tokens.first().map(|(_, token)| *token)));
    }
    let mut insert = vec![word("INSERT"), space(), word("INTO"), space()];
    insert.extend(table);
    insert.extend([space(), word("DEFAULT"), space(), word("VALUES")]);
    *tokens = insert;
    Ok(Some(copy))
}

fn refuse_standard_input(solid: &Solid<'_>) -> Result<()> {
    match solid.peek() {
        Some(token) if is_word(token, "stdin") => {
            Err(EngineError::unsupported("COPY … FROM STDIN is for clients of a server")
                .with_hint("name a file, or use: uplake load TABLE -"))
        }
        _ => Ok(()),
    }
}

/// Options of COPY … TO a file as the parser knows them.
///
/// # Errors
/// As [`take_copy_from`].
pub(crate) fn spell_copy_options(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut solid = Solid::of(&tokens);
    if !solid.takes("copy") {
        return Ok(tokens);
    }
    let mut is_after_target = false;
    while let Some(token) = solid.peek() {
        if token.token == Token::LParen && !is_after_target {
            solid.skip_brackets();
            continue;
        }
        let begins = is_after_target
            && (token.token == Token::LParen
                || matches!(keyword(token), Some(Keyword::WITH | Keyword::OPTIONS)));
        if !begins {
            is_after_target |= matches!(token.token, Token::SingleQuotedString(_));
            // PARTITIONED BY (a, b)
            if solid.takes("by") {
                solid.skip_brackets();
            } else {
                solid.next += 1;
            }
            continue;
        }
        let start = solid.tokens[solid.next].0;
        let _ = solid.takes("with") || solid.takes("options");
        let options = solid.options()?;
        let end = solid.tokens[solid.next - 1].0;
        let span = token.span;
        let mut spelled = vec![Token::make_keyword("OPTIONS"), Token::LParen];
        for (at, (name, value)) in options.into_iter().enumerate() {
            if at > 0 {
                spelled.push(Token::Comma);
            }
            spelled.extend([Token::SingleQuotedString(name), Token::SingleQuotedString(value)]);
        }
        spelled.push(Token::RParen);
        let mut all = tokens[..start].to_vec();
        all.extend(spelled.into_iter().map(|token| TokenWithSpan { token, span }));
        all.extend(tokens[end + 1..].iter().cloned());
        return Ok(all);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    #[test]
    fn copies_from_files_are_inserts() {
        let of = |text: &str| {
            let statement = parse(text).unwrap().pop().unwrap();
            (statement.parsed.to_string(), statement.command(), statement.copy_from.unwrap())
        };
        let (parsed, command, copy) = of("COPY public.T FROM 'a.csv'");
        assert_eq!((parsed.as_str(), command), ("INSERT INTO public.T DEFAULT VALUES", "COPY"));
        assert_eq!(copy, CopyFrom { files: vec!["a.csv".into()], ..CopyFrom::default() });
        let (_, _, copy) = of(
            "copy \"from\" from 'a', 'b/*' stored as csv with (HEADER, delimiter = ';', null as '-', format.quote '\"')",
        );
        let options =
            [("HEADER", "true"), ("delimiter", ";"), ("null", "-"), ("format.quote", "\"")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let stored_as = Some("csv".to_owned());
        assert_eq!(copy, CopyFrom { files: vec!["a".into(), "b/*".into()], stored_as, options });
        for (text, column) in [
            ("COPY t FROM a.csv", 13),
            ("COPY t FROM 'a' WITH header", 22),
            ("COPY t FROM 'a' (header true delimiter ';')", 30),
            ("COPY t FROM 'a' (header true) x", 31),
            ("COPY t (a) FROM 'a'", 8),
        ] {
            let position = parse(text).unwrap_err().position();
            assert_eq!(position, Some(Position { line: 1, column }), "{text}");
        }
        for text in ["COPY t FROM STDIN", "COPY t (a, b) FROM STDIN"] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains("for clients of a server"), "{refused}");
        }
    }

    #[test]
    fn options_of_copies_to_files_are_spelled_as_they_are_parsed() {
        for (text, expected) in [
            (
                "COPY t TO 'a.csv' WITH (HEADER false, DELIMITER ';')",
                "COPY t TO a.csv STORED AS CSV OPTIONS ('has_header' 'false', 'delimiter' ';')",
            ),
            (
                "COPY (SELECT 'x' AS a) TO 'a.x' (FORMAT tsv)",
                "COPY (SELECT 'x' AS a) TO a.x STORED AS CSV OPTIONS ('delimiter' '\t')",
            ),
            (
                "COPY t TO 'a/' STORED AS CSV PARTITIONED BY (b) OPTIONS (null '-')",
                "COPY t TO a/ STORED AS CSV PARTITIONED BY (b) OPTIONS ('null_value' '-')",
            ),
        ] {
            let parsed = parse(text).unwrap().pop().unwrap().parsed.to_string();
            assert_eq!(parsed, expected, "{text}");
        }
    }
}
