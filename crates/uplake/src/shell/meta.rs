//! Commands of the shell that are no SQL: a line that begins with a backslash, and `help`, `exit` and `quit`.

use crate::records::Records;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meta {
    Help,
    Tables,
    Describe(String),
    /// Without a word it is the other way round from now on; so are those below.
    Timing(Option<bool>),
    Records(Option<Records>),
    Pager(Option<bool>),
    /// Without a file: to where rows went at first.
    Output(Option<String>),
    Include(String),
    Quit,
}

/// Name, what follows it, and what it does.
pub const COMMANDS: [(&str, &str, &str); 9] = [
    ("\\d", "[TABLE]", "list tables, or a table's columns, layout, indexes and size"),
    ("\\dt", "", "list tables"),
    ("\\i", "FILE", "run the statements in a file"),
    ("\\o", "[FILE]", "write rows to a file; without one, to the terminal again"),
    ("\\pset", "pager on|off", "show what does not fit the terminal with $PAGER"),
    ("\\timing", "[on|off]", "tell how long each statement takes"),
    ("\\x", "[on|off|auto]", "show each row as a record; auto: rows that are too wide"),
    ("\\?", "", "show this; so does help"),
    ("\\q", "", "quit; so do exit, quit and Ctrl-D"),
];

/// The command of a line; none if it is SQL.
pub fn meta_of(line: &str) -> Option<Result<Meta, String>> {
    let line = line.trim();
    let words = line.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    match words.to_ascii_lowercase().as_str() {
        "help" => return Some(Ok(Meta::Help)),
        "exit" | "quit" => return Some(Ok(Meta::Quit)),
        _ => {}
    }
    line.starts_with('\\').then(|| read(words))
}

fn read(words: &str) -> Result<Meta, String> {
    let (name, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let rest = rest.trim();
    let some = |rest: &str| (!rest.is_empty()).then(|| unquoted(rest).to_owned());
    let none = |meta: Meta| match rest {
        "" => Ok(meta),
        _ => Err(format!("{name} takes nothing after it")),
    };
    match name {
        "\\?" | "\\h" | "\\help" => none(Meta::Help),
        "\\q" | "\\quit" => none(Meta::Quit),
        "\\dt" | "\\l" => none(Meta::Tables),
        "\\d" if rest.is_empty() => Ok(Meta::Tables),
        "\\d" => Ok(Meta::Describe(rest.to_owned())),
        "\\timing" => Ok(Meta::Timing(switch(name, rest)?)),
        "\\x" if rest.eq_ignore_ascii_case("auto") => Ok(Meta::Records(Some(Records::Auto))),
        "\\x" => {
            let on = switch(name, rest).map_err(|_| "\\x takes on, off or auto".to_owned())?;
            Ok(Meta::Records(on.map(|on| if on { Records::On } else { Records::Off })))
        }
        "\\pset" => match rest.split_once(char::is_whitespace).unwrap_or((rest, "")) {
            ("pager", value) => Ok(Meta::Pager(switch("\\pset pager", value.trim())?)),
            _ => Err("\\pset knows pager: \\pset pager on, \\pset pager off".to_owned()),
        },
        "\\o" => Ok(Meta::Output(some(rest))),
        "\\i" => some(rest).map(Meta::Include).ok_or("\\i needs a file: \\i FILE".to_owned()),
        _ => {
            let names: Vec<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
            Err(format!("there is no command {name}; there are {}", names.join(", ")))
        }
    }
}

fn switch(name: &str, word: &str) -> Result<Option<bool>, String> {
    match word.to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "on" | "true" | "1" => Ok(Some(true)),
        "off" | "false" | "0" => Ok(Some(false)),
        _ => Err(format!("{name} takes on or off")),
    }
}

/// A file's name may be in quotes.
fn unquoted(text: &str) -> &str {
    let within = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    within('\'').or_else(|| within('"')).unwrap_or(text)
}

/// What `help` shows.
pub fn help() -> String {
    let mut text = String::from(
        "Statements end with `;` and may go over several lines; Ctrl-C drops one, or stops it while it runs.\n\
         Tab completes names, Ctrl-R searches the history.\n\n",
    );
    for (name, arguments, purpose) in COMMANDS {
        text.push_str(&format!("  {:<21} {purpose}\n", format!("{name} {arguments}")));
    }
    text.push_str(
        "\nSome statements:\n\
         \x20 SHOW TABLES;  DESCRIBE t;  SELECT * FROM t LIMIT 10;\n\
         \x20 SELECT * FROM 'folder/*.csv' LIMIT 10;      files in place\n\
         \x20 EXPLAIN ANALYZE SELECT …;                   what it read, and where time went",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_sql() {
        let cases = [
            ("\\d", Meta::Tables),
            ("\\dt;", Meta::Tables),
            (" \\d  \"My Table\" ", Meta::Describe("\"My Table\"".into())),
            ("\\timing", Meta::Timing(None)),
            ("\\timing OFF", Meta::Timing(Some(false))),
            ("\\x", Meta::Records(None)),
            ("\\x auto", Meta::Records(Some(Records::Auto))),
            ("\\x on", Meta::Records(Some(Records::On))),
            ("\\pset pager off", Meta::Pager(Some(false))),
            ("\\o", Meta::Output(None)),
            ("\\o 'a b.txt'", Meta::Output(Some("a b.txt".into()))),
            ("\\i q.sql", Meta::Include("q.sql".into())),
            ("help", Meta::Help),
            ("\\?", Meta::Help),
            ("EXIT;", Meta::Quit),
            ("quit", Meta::Quit),
            ("\\q", Meta::Quit),
        ];
        for (line, meta) in cases {
            assert_eq!(meta_of(line), Some(Ok(meta)), "{line}");
        }
        for line in ["", "SELECT 1;", "helpful", "exit now", "SELECT '\\q'"] {
            assert_eq!(meta_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_says_what_is() {
        let error = |line: &str| match meta_of(line) {
            Some(Err(error)) => error,
            other => panic!("{line}: {other:?}"),
        };
        assert!(error("\\foo").contains("no command \\foo; there are \\d, \\dt, \\i"));
        assert!(error("\\timing maybe").contains("on or off"));
        assert!(error("\\x sometimes").contains("on, off or auto"));
        assert!(error("\\i").contains("needs a file"));
        assert!(error("\\q now").contains("nothing after it"));
        assert!(error("\\pset border 2").contains("pager"));
    }

    #[test]
    fn help_names_every_command() {
        for (name, ..) in COMMANDS {
            assert!(help().contains(&format!("  {name} ")), "{name}");
        }
    }
}
