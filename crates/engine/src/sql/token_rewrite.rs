//! What the parser would read otherwise, or refuse: words, operators and brackets put right while they are tokens.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::words::{is_space, keyword};

/// Words that are names here and something else to the parser.
///
/// `match(` is a function, not MySQL's MATCH … AGAINST; `top` is a column, not T-SQL's TOP n.
pub(crate) fn name_words(tokens: &mut [TokenWithSpan]) {
    for at in 0..tokens.len() {
        let called = tokens[at + 1..].iter().find(|t| !is_space(t));
        let called = called.is_some_and(|t| t.token == Token::LParen);
        let is_name = match keyword(&tokens[at]) {
            Some(Keyword::MATCH) => called,
            Some(Keyword::TOP) => true,
            _ => false,
        };
        if let (true, Token::Word(word)) = (is_name, &mut tokens[at].token) {
            word.keyword = Keyword::NoKeyword;
        }
    }
}

/// `ALTER TABLE t RESET (a, b)`, which the parser does not know, is `SET (a = NULL, b = NULL)`.
pub(crate) fn set_for_reset(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = |from: usize| (from..tokens.len()).find(|at| !is_space(&tokens[*at]));
    let opens = |at: usize| solid(at + 1).filter(|at| tokens[*at].token == Token::LParen);
    let found = (0..tokens.len())
        .filter(|at| keyword(&tokens[*at]) == Some(Keyword::RESET))
        .find_map(|at| Some((at, closing(&tokens, opens(at)?)?)));
    let Some((reset, end)) = found else { return tokens };
    let mut set = Vec::with_capacity(tokens.len() + 4);
    for (at, token) in tokens.iter().enumerate() {
        let span = token.span;
        let ends =
            (reset..=end).contains(&at) && matches!(token.token, Token::Comma | Token::RParen);
        if ends {
            let null = [Token::Eq, Token::make_keyword("NULL")];
            set.extend(null.map(|token| TokenWithSpan { token, span }));
        }
        match at == reset {
            true => set.push(TokenWithSpan { token: Token::make_keyword("SET"), span }),
            false => set.push(token.clone()),
        }
    }
    set
}

/// `WITH q AS [NOT] MATERIALIZED (…)` without the words, which say how and not what; the parser does not know them. And
/// `'1 day'::interval PRECEDING` as `INTERVAL '1 day' PRECEDING`, the one form of a frame's bound that it knows.
pub(crate) fn plain_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    use Keyword::{AS, FOLLOWING, INTERVAL, MATERIALIZED, NOT, PRECEDING};
    let concerns = |token: &TokenWithSpan| {
        matches!(keyword(token), Some(MATERIALIZED | PRECEDING | FOLLOWING))
    };
    if !tokens.iter().any(concerns) {
        return tokens;
    }
    let solid = |from: usize| (from..tokens.len()).find(|at| !is_space(&tokens[*at]));
    let word_at = |at: Option<usize>| keyword(&tokens[at?]);
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        if keyword(token) == Some(AS) {
            plain.push(token.clone());
            let next = solid(at);
            let last =
                if word_at(next) == Some(NOT) { next.and_then(|at| solid(at + 1)) } else { next };
            let query = last.and_then(|at| solid(at + 1));
            if let (Some(MATERIALIZED), Some(last), Some(query)) = (word_at(last), last, query)
                && tokens[query].token == Token::LParen
            {
                at = last + 1;
            }
            continue;
        }
        let cast = solid(at).filter(|at| tokens[*at].token == Token::DoubleColon);
        let to = cast.and_then(|at| solid(at + 1));
        let bound = to.and_then(|at| solid(at + 1));
        if let (Token::SingleQuotedString(_), Some(INTERVAL), Some(to)) =
            (&token.token, word_at(to), to)
            && matches!(word_at(bound), Some(PRECEDING | FOLLOWING))
        {
            let before = [Token::make_keyword("INTERVAL"), token.token.clone()];
            plain.extend(before.map(|word| TokenWithSpan { token: word, span: token.span }));
            at = to + 1;
            continue;
        }
        plain.push(token.clone());
    }
    plain
}

/// What stands for IS [NOT] DISTINCT FROM while a statement is parsed.
pub(super) const DISTINCT_FROM: &str = "IS DISTINCT FROM";
pub(super) const NOT_DISTINCT_FROM: &str = "IS NOT DISTINCT FROM";

/// `a IS DISTINCT FROM b AND c` compares a with b; the parser takes all that follows for the right side. An
/// operator of PostgreSQL's own kind binds as IS does.
pub(crate) fn name_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = |from: usize, words: &[Keyword]| {
        let solid = tokens[from..].iter().enumerate().filter(|(_, t)| !is_space(t));
        let mut places = solid.clone().zip(words).filter(|((_, t), k)| keyword(t) == Some(**k));
        (places.by_ref().count() == words.len())
            .then(|| solid.take(words.len()).last().map_or(from, |(at, _)| from + at))
    };
    let mut named = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        use Keyword::{DISTINCT, FROM, IS, NOT};
        let found = match words(at, &[IS, DISTINCT, FROM]) {
            Some(end) => Some((DISTINCT_FROM, end)),
            None => words(at, &[IS, NOT, DISTINCT, FROM]).map(|end| (NOT_DISTINCT_FROM, end)),
        };
        match found {
            Some((name, end)) => {
                let span = token.span.union(&tokens[end].span);
                named.push(TokenWithSpan { token: Token::CustomBinaryOperator(name.into()), span });
                at = end + 1;
            }
            None => {
                named.push(token.clone());
                at += 1;
            }
        }
    }
    named
}

/// `NOT EXISTS (…) IS NULL` is `NOT (EXISTS (…) IS NULL)`; the parser takes NOT EXISTS for one word, whatever
/// follows. With EXISTS in brackets it reads NOT as any other.
pub(crate) fn separate_not_exists(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = |from: usize| (from..tokens.len()).find(|at| !is_space(&tokens[*at]));
    let exists = |at: usize| -> Option<(usize, usize)> {
        keyword(&tokens[at]).filter(|word| *word == Keyword::NOT)?;
        let begin = solid(at + 1).filter(|at| keyword(&tokens[*at]) == Some(Keyword::EXISTS))?;
        let end = closing(&tokens, solid(begin + 1)?)?;
        binds_before_not(&tokens[solid(end + 1)?]).then_some((begin, end))
    };
    let found: Vec<(usize, usize)> = (0..tokens.len()).filter_map(exists).collect();
    in_brackets(tokens, &found)
}

/// `ROLLUP ((a) IS NULL, b)`: the parser takes a bracket at the beginning for a list of keys, whatever follows.
pub(crate) fn bracket_grouping_keys(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = |from: usize| (from..tokens.len()).find(|at| !is_space(&tokens[*at]));
    let keys_at = |at: usize| -> Option<usize> {
        let last = match keyword(&tokens[at])? {
            Keyword::ROLLUP | Keyword::CUBE => at,
            Keyword::GROUPING => {
                solid(at + 1).filter(|at| keyword(&tokens[*at]) == Some(Keyword::SETS))?
            }
            _ => return None,
        };
        solid(last + 1).filter(|at| tokens[*at].token == Token::LParen)
    };
    let mut found = Vec::new();
    for open in (0..tokens.len()).filter_map(keys_at) {
        let Some(end) = closing(&tokens, open) else { continue };
        let mut begin = open + 1;
        while begin < end {
            let (first, after) = (solid(begin).unwrap_or(end), key_end(&tokens, begin, end));
            let list = (tokens[first].token == Token::LParen).then(|| closing(&tokens, first));
            let is_subquery = || {
                let word = solid(first + 1).and_then(|at| keyword(&tokens[at]));
                matches!(word, Some(Keyword::SELECT | Keyword::WITH))
            };
            let is_value =
                |close: usize| solid(close + 1).is_some_and(|next| next < after) || is_subquery();
            if list.flatten().is_some_and(is_value) {
                found.push((first, after - 1));
            }
            begin = after + 1;
        }
    }
    in_brackets(tokens, &found)
}

/// Where the key that begins here ends: at a comma, or the bracket around all.
fn key_end(tokens: &[TokenWithSpan], begin: usize, end: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().take(end).skip(begin) {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => return at,
            _ => {}
        }
    }
    end
}

/// With brackets around these parts, each from its first to its last token.
fn in_brackets(tokens: Vec<TokenWithSpan>, parts: &[(usize, usize)]) -> Vec<TokenWithSpan> {
    let mut bracketed = Vec::with_capacity(tokens.len() + 2 * parts.len());
    for (at, token) in tokens.into_iter().enumerate() {
        let bracket =
            |token: &TokenWithSpan, bracket| TokenWithSpan { token: bracket, span: token.span };
        let opened = parts.iter().filter(|(begin, _)| *begin == at).count();
        let closed = parts.iter().filter(|(_, end)| *end == at).count();
        let (open, close) = (bracket(&token, Token::LParen), bracket(&token, Token::RParen));
        bracketed.extend(std::iter::repeat_n(open, opened));
        bracketed.push(token);
        bracketed.extend(std::iter::repeat_n(close, closed));
    }
    bracketed
}

/// Where the bracket that opens here is closed.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > open).then_some(at);
        }
    }
    None
}

fn binds_before_not(token: &TokenWithSpan) -> bool {
    use Keyword::{BETWEEN, ILIKE, IN, IS, LIKE, NOT};
    matches!(keyword(token), Some(BETWEEN | ILIKE | IN | IS | LIKE | NOT))
        || matches!(
            token.token,
            Token::Eq
                | Token::DoubleEq
                | Token::Neq
                | Token::Lt
                | Token::LtEq
                | Token::Gt
                | Token::GtEq
                | Token::CustomBinaryOperator(_)
        )
}

/// What a query's brackets hold so far.
#[derive(Default)]
struct Level {
    /// The last token, without space.
    last: Option<Token>,
    /// WITH or INSERT has been read, and its query not yet.
    waits: bool,
    /// UNION and the like have been read, and the query after them not yet.
    after_set: bool,
    /// Did it wait before the WITH that was the last word?
    waited: Option<bool>,
}

impl Level {
    /// Does a query begin with the next token, if that is FROM?
    fn begins_query(&self, is_statement: bool) -> bool {
        use Keyword::{ANALYZE, AS, DELETE, EXPLAIN, VERBOSE};
        match &self.last {
            None => true,
            _ if self.after_set => true,
            Some(Token::Word(word)) if word.quote_style.is_none() => match word.keyword {
                AS | EXPLAIN | ANALYZE | VERBOSE => is_statement,
                DELETE => false,
                _ => self.waits,
            },
            Some(_) => self.waits,
        }
    }

    fn read(&mut self, token: &TokenWithSpan) {
        use Keyword::{
            ALL, BY, CUBE, DISTINCT, EXCEPT, FROM, INSERT, INTERSECT, NAME, ORDINALITY, ROLLUP,
            SELECT, TIES, TIME, TOTALS, UNION, VALUES, WITH,
        };
        let word = keyword(token);
        if let (Some(waited), Some(CUBE | ORDINALITY | ROLLUP | TIES | TIME | TOTALS)) =
            (self.waited.take(), word)
        {
            self.waits = waited;
        }
        match word {
            Some(UNION | EXCEPT | INTERSECT) => self.after_set = true,
            Some(ALL | DISTINCT | BY | NAME) => {}
            Some(WITH) => {
                self.waited = Some(self.waits);
                self.waits = true;
            }
            Some(INSERT) => self.waits = true,
            Some(SELECT | VALUES | FROM) => (self.waits, self.after_set) = (false, false),
            _ => self.after_set = false,
        }
        self.last = Some(token.token.clone());
    }
}

/// `FROM t WHERE …` is `SELECT * FROM t WHERE …`; the parser ends such a query after its tables. `FROM t SELECT a`
/// it knows.
pub(crate) fn select_before_from(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut levels = vec![Level::default()];
    let mut places = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !is_space(token)) {
        let is_statement = levels.len() == 1;
        let Some(level) = levels.last_mut() else { return tokens };
        let begins = keyword(token) == Some(Keyword::FROM) && level.begins_query(is_statement);
        if begins && !has_select(&tokens[at + 1..]) {
            places.push(at);
        }
        level.read(token);
        match token.token {
            Token::LParen => levels.push(Level::default()),
            Token::RParen if !is_statement => {
                levels.pop();
                if let Some(around) = levels.last_mut() {
                    around.last = Some(Token::RParen);
                }
            }
            _ => {}
        }
    }
    let mut named = tokens;
    for at in places.into_iter().rev() {
        let span = named[at].span;
        let words = [Token::make_keyword("SELECT"), Token::Mul];
        named.splice(at..at, words.map(|token| TokenWithSpan { token, span }));
    }
    named
}

/// Has the query that these tokens go on with a SELECT of its own?
fn has_select(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    for token in tokens {
        match (&token.token, keyword(token)) {
            (Token::LParen, _) => depth += 1,
            (Token::RParen, _) if depth == 0 => return false,
            (Token::RParen, _) => depth -= 1,
            (_, Some(Keyword::SELECT)) if depth == 0 => return true,
            (_, Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)) if depth == 0 => {
                return false;
            }
            _ => {}
        }
    }
    false
}
