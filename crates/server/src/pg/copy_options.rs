//! What COPY says: what is copied, which way, and how it is written.

use crate::failure::Failure;
use crate::pg::encode::copy::{CopyFormat, CopyOptions, ForceQuote};
use crate::pg::words::{Word, Words};

/// COPY to or from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyCommand {
    pub what: What,
    /// The client sends rows.
    pub from: bool,
    pub format: CopyFormat,
    pub delimiter: Option<u8>,
    pub null: Option<String>,
    pub header: Header,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    /// Columns, or `*` for all.
    pub force_quote: Vec<String>,
    pub force_null: Vec<String>,
    pub force_not_null: Vec<String>,
}

/// Is the first line one of names?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    No,
    Yes,
    /// And they are those of the columns.
    Match,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A table as its name is written, its name, and columns.
    Table { written: String, name: String, columns: Vec<String> },
    /// A query, and the byte of the statement at which it begins.
    Query { text: String, at: usize },
}

fn wrong(usage: &str) -> Failure {
    Failure::new("42601", format!("write {usage}"))
}

/// `None` if it is COPY of a file, which is the engine's.
///
/// # Errors
/// 42601 for what is misspelt, 0A000 for what there is not.
pub(crate) fn copy_command(text: &str) -> Result<Option<CopyCommand>, Failure> {
    let usage = "COPY table FROM STDIN, or COPY table TO STDOUT, or COPY (query) TO STDOUT";
    let mut words = Words::of(text).skip(1).peekable();
    let Some((start, first, end)) = words.next() else { return Err(wrong(usage)) };
    let what = if first == Word::Sign('(') {
        let mut depth = 1;
        let mut close = None;
        for (at, word, _) in words.by_ref() {
            match word {
                Word::Sign('(') => depth += 1,
                Word::Sign(')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                close = Some(at);
                break;
            }
        }
        let query = &text[end..close.ok_or_else(|| wrong(usage))?];
        let at = end + (query.len() - query.trim_start().len());
        What::Query { text: query.trim().to_owned(), at }
    } else {
        let mut name = first.name().ok_or_else(|| wrong(usage))?.to_owned();
        let mut written_end = end;
        while words.next_if(|(_, word, _)| *word == Word::Sign('.')).is_some() {
            let (_, word, end) = words.next().ok_or_else(|| wrong(usage))?;
            name = word.name().ok_or_else(|| wrong(usage))?.to_owned();
            written_end = end;
        }
        let mut columns = Vec::new();
        if words.next_if(|(_, word, _)| *word == Word::Sign('(')).is_some() {
            for (_, word, _) in words.by_ref() {
                match word {
                    Word::Sign(',') => {}
                    Word::Sign(')') => break,
                    word => columns.push(word.name().ok_or_else(|| wrong(usage))?.to_owned()),
                }
            }
        }
        What::Table { written: text[start..written_end].to_owned(), name, columns }
    };
    let way = words.next().map(|(_, word, _)| word);
    let from = match way {
        Some(word) if word.is("to") => false,
        Some(word) if word.is("from") => true,
        _ => return Err(wrong(usage)),
    };
    match words.next().map(|(_, word, _)| word) {
        Some(word) if word.is(if from { "stdin" } else { "stdout" }) => {}
        Some(Word::Text(_)) => return Ok(None),
        _ => return Err(wrong(usage)),
    }
    if from && matches!(what, What::Query { .. }) {
        return Err(wrong(usage));
    }
    let rest: Vec<Word> = words.map(|(_, word, _)| word).collect();
    let mut command = CopyCommand {
        what,
        from,
        format: CopyFormat::Text,
        delimiter: None,
        null: None,
        header: Header::No,
        quote: None,
        escape: None,
        force_quote: Vec::new(),
        force_null: Vec::new(),
        force_not_null: Vec::new(),
    };
    options(&mut command, &rest)?;
    command.check()?;
    Ok(Some(command))
}

/// Both forms: `WITH (FORMAT csv, HEADER true)` and `WITH CSV HEADER DELIMITER AS ','`.
fn options(command: &mut CopyCommand, words: &[Word]) -> Result<(), Failure> {
    let mut at = 0;
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found.is(word));
    if is(at, "with") {
        at += 1;
    }
    let in_brackets = words.get(at) == Some(&Word::Sign('('));
    at += usize::from(in_brackets);
    while let Some(word) = words.get(at) {
        if matches!(word, Word::Sign(',' | ')')) {
            at += 1;
            continue;
        }
        let name = word.name().unwrap_or_default().to_owned();
        at += 1;
        if is(at, "as") {
            at += 1;
        }
        let value = words.get(at).and_then(Word::value).map(str::to_owned);
        let mut given = |what: &str| {
            at += 1;
            value.clone().ok_or_else(|| wrong(&format!("{what} value")))
        };
        match name.as_str() {
            "format" => match given("FORMAT")?.to_lowercase().as_str() {
                "text" => command.format = CopyFormat::Text,
                "csv" => command.format = CopyFormat::Csv,
                "binary" => command.format = CopyFormat::Binary,
                other => {
                    let message = format!("COPY format \"{other}\" not recognized");
                    return Err(Failure::new("22023", message));
                }
            },
            "csv" => command.format = CopyFormat::Csv,
            "binary" => command.format = CopyFormat::Binary,
            "header" => {
                let value = value.as_deref().filter(|_| in_brackets).map(str::to_lowercase);
                command.header = match value.as_deref() {
                    Some("true" | "on" | "1") => Header::Yes,
                    Some("match") => Header::Match,
                    Some("false" | "off" | "0") => Header::No,
                    _ => {
                        command.header = Header::Yes;
                        continue;
                    }
                };
                at += 1;
            }
            "delimiter" | "delimiters" => command.delimiter = Some(one(&given("DELIMITER")?)?),
            "null" => command.null = Some(given("NULL")?),
            "quote" => command.quote = Some(one(&given("QUOTE")?)?),
            "escape" => command.escape = Some(one(&given("ESCAPE")?)?),
            "encoding" => {
                let encoding = given("ENCODING")?.to_lowercase();
                if !matches!(encoding.as_str(), "utf8" | "utf-8") {
                    return Err(Failure::new("0A000", "everything is UTF8 here"));
                }
            }
            "freeze" => at += usize::from(in_brackets && value.is_some()),
            "on_error" => {
                if !given("ON_ERROR")?.eq_ignore_ascii_case("stop") {
                    return Err(Failure::new("0A000", "COPY ends at the first row that is wrong")
                        .with_hint("ON_ERROR stop; /load over HTTP has on_error=skip"));
                }
            }
            "force_quote" | "force_null" | "force_not_null" | "force" => {
                let forced = match name.as_str() {
                    "force_quote" => &mut command.force_quote,
                    "force_null" => &mut command.force_null,
                    "force_not_null" => &mut command.force_not_null,
                    _ => {
                        let (quote, not) = (is(at, "quote"), is(at, "not"));
                        at += if not { 2 } else { 1 };
                        match (quote, not) {
                            (true, _) => &mut command.force_quote,
                            (_, true) => &mut command.force_not_null,
                            _ => &mut command.force_null,
                        }
                    }
                };
                let bracket = words.get(at) == Some(&Word::Sign('('));
                at += usize::from(bracket);
                while let Some(word) = words.get(at) {
                    match (word, word.name()) {
                        (Word::Sign('*'), _) => forced.push("*".into()),
                        (_, Some(name)) => forced.push(name.to_owned()),
                        _ => break,
                    }
                    at += 1;
                    // Between brackets of options a comma ends the list, unless it has its own.
                    let goes_on = bracket || !in_brackets;
                    if !goes_on || words.get(at) != Some(&Word::Sign(',')) {
                        break;
                    }
                    at += 1;
                }
                at += usize::from(bracket);
            }
            other => {
                let message = format!("COPY option \"{other}\" is not supported");
                return Err(Failure::new("0A000", message));
            }
        }
    }
    Ok(())
}

fn one(text: &str) -> Result<u8, Failure> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ if matches!(text, "\\t") => Ok(b'\t'),
        _ => Err(Failure::new("22023", "COPY takes a single one-byte character there")),
    }
}

impl CopyCommand {
    /// Do the options go together, and with the way?
    fn check(&self) -> Result<(), Failure> {
        let refuse = |what: &str| Err(Failure::new("0A000", what));
        let is_csv = self.format == CopyFormat::Csv;
        let forces = !self.force_null.is_empty() || !self.force_not_null.is_empty();
        if !self.from {
            if forces {
                return refuse("FORCE NULL and FORCE NOT NULL are for COPY FROM");
            }
            if self.header == Header::Match {
                return refuse("HEADER MATCH is for COPY FROM");
            }
            return Ok(());
        }
        if !self.force_quote.is_empty() {
            return refuse("FORCE QUOTE is for COPY TO");
        }
        if !is_csv && (forces || self.quote.is_some() || self.escape.is_some()) {
            return refuse("QUOTE, ESCAPE, FORCE NULL and FORCE NOT NULL are for CSV");
        }
        let checked = self.writer(&[]).check();
        checked.map_err(|error| Failure::new(error.code(), error.to_string()))
    }

    /// How rows of these columns are written.
    pub fn writer(&self, names: &[String]) -> CopyOptions {
        let mut options = CopyOptions::new(self.format);
        options.delimiter = self.delimiter.unwrap_or(options.delimiter);
        options.null = self.null.clone().unwrap_or(options.null);
        options.header = self.header != Header::No;
        options.quote = self.quote.unwrap_or(options.quote);
        options.escape = self.escape.or(self.quote).unwrap_or(options.escape);
        if self.force_quote.iter().any(|name| name == "*") {
            options.force_quote = ForceQuote::All;
        } else if !self.force_quote.is_empty() {
            let places = names.iter().enumerate();
            let forced = places.filter(|(_, name)| self.force_quote.contains(name));
            options.force_quote = ForceQuote::Columns(forced.map(|(at, _)| at).collect());
        }
        options
    }

    /// The query whose rows are copied, and the byte of the statement at which it begins.
    pub fn query(&self) -> (String, usize) {
        match &self.what {
            What::Query { text, at } => (text.clone(), *at),
            What::Table { written, columns, .. } => {
                let quoted =
                    columns.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
                let columns = match columns.is_empty() {
                    true => "*".to_owned(),
                    false => quoted.collect::<Vec<_>>().join(", "),
                };
                (format!("SELECT {columns} FROM {written}"), 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> CopyCommand {
        copy_command(text).unwrap().unwrap()
    }

    #[test]
    fn both_forms_of_options_are_read() {
        for text in [
            "COPY (SELECT ')' FROM (SELECT 1)) TO STDOUT WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'x')",
            "copy (SELECT ')' FROM (SELECT 1)) to stdout with csv header delimiter as ';' null as 'x'",
        ] {
            let copy = of(text);
            assert_eq!(copy.query(), ("SELECT ')' FROM (SELECT 1)".into(), 6), "{text}");
            assert_eq!(
                (copy.format, copy.header, copy.delimiter),
                (CopyFormat::Csv, Header::Yes, Some(b';'))
            );
            assert_eq!(copy.null.as_deref(), Some("x"));
        }
        let copy = of("COPY public.\"T\" (a, \"B\") FROM STDIN (FORMAT text)");
        assert!(copy.from);
        assert_eq!(copy.query().0, "SELECT \"a\", \"B\" FROM public.\"T\"");
        let What::Table { name, .. } = copy.what else { panic!() };
        assert_eq!(name, "T");
        let copy = of("COPY t TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (b, c), QUOTE '|')");
        assert_eq!(copy.header, Header::Yes);
        let options = copy.writer(&["a".into(), "b".into()]);
        assert_eq!(options.force_quote, ForceQuote::Columns(vec![1]));
        assert_eq!((options.quote, options.escape), (b'|', b'|'));
        assert_eq!(copy_command("COPY t TO '/tmp/x'").unwrap(), None);
        assert_eq!(copy_command("COPY t FROM STDIN (ON_ERROR ignore)").unwrap_err().code, "0A000");
        for text in [
            "COPY t FROM STDIN (FORMAT csv, FORCE_NULL (a, b), FORCE_NOT_NULL *, HEADER match)",
            "COPY t FROM STDIN CSV FORCE NULL a, b FORCE NOT NULL *",
        ] {
            let copy = of(text);
            let forced = (copy.force_null.as_slice(), copy.force_not_null.as_slice());
            assert_eq!(forced, (&["a".to_owned(), "b".to_owned()][..], &["*".to_owned()][..]));
        }
        for text in [
            "COPY t FROM STDIN (FORCE_NULL (a))",
            "COPY t FROM STDIN (FORMAT csv, FORCE_QUOTE (a))",
            "COPY t TO STDOUT (FORMAT csv, HEADER match)",
        ] {
            assert_eq!(copy_command(text).unwrap_err().code, "0A000", "{text}");
        }
        let both = "COPY t FROM STDIN (DELIMITER ',', NULL 'a,b')";
        assert_eq!(copy_command(both).unwrap_err().code, "22023");
        assert_eq!(copy_command("COPY t").unwrap_err().code, "42601");
    }
}
