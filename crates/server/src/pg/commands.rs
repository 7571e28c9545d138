//! Statements that are not the engine's: transactions, settings of the session, cursors, COPY.

use crate::failure::Failure;
use crate::pg::copy_options::{CopyCommand, copy_command};
use crate::pg::words::{Word, Words};

/// Words of a statement that are looked at.
const MOST_WORDS: usize = 64;

/// What a statement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Nothing but blanks and comments.
    Empty,
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// `None` is the setting's own value.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    /// `SELECT set_config(name, value, is_local)` of constants, whose answer is the value.
    SetConfig {
        name: String,
        value: String,
        local: bool,
    },
    /// SET of what a transaction is.
    SetTransaction,
    Show(String),
    ShowAll,
    Reset(String),
    ResetAll,
    /// DISCARD ALL, and its smaller forms.
    Discard {
        all: bool,
    },
    Declare {
        name: String,
        query: String,
        query_at: usize,
    },
    Fetch {
        cursor: String,
        rows: Option<u64>,
        moves: bool,
    },
    CloseCursor(Option<String>),
    Deallocate(Option<String>),
    Unlisten,
    AdvisoryUnlock,
    /// The statement of this number.
    Kill(u64),
    Copy(CopyCommand),
    /// The engine's.
    Engine,
}

impl Command {
    /// What a statement without parameters is.
    ///
    /// # Errors
    /// 42601 for one of these that is misspelt, 0A000 for one that there is not.
    pub fn of(text: &str) -> Result<Self, Failure> {
        let Some(first) = Words::of(text).next() else { return Ok(Self::Empty) };
        let Word::Bare(first) = first.1 else { return Ok(Self::Engine) };
        let known = [
            "abort",
            "begin",
            "close",
            "commit",
            "copy",
            "deallocate",
            "declare",
            "discard",
            "end",
            "fetch",
            "kill",
            "listen",
            "lock",
            "move",
            "notify",
            "release",
            "reset",
            "rollback",
            "savepoint",
            "select",
            "set",
            "show",
            "start",
            "unlisten",
            "prepare",
        ];
        if !known.contains(&first.as_str()) {
            return Ok(Self::Engine);
        }
        // SELECT is what most are; the one that is looked for is short.
        if first == "select" && text.len() > 200 {
            return Ok(Self::Engine);
        }
        let words = Words::all(text, MOST_WORDS);
        let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found.is(word));
        let wrong = |usage: &str| Failure::new("42601", format!("write {usage}"));
        let name = |at: usize, usage: &str| {
            let name = words.get(at).and_then(Word::name).map(str::to_owned);
            name.ok_or_else(|| wrong(usage))
        };
        let skip = |at: usize| if is(at, "transaction") || is(at, "work") { at + 1 } else { at };
        Ok(match first.as_str() {
            "begin" => Self::Begin,
            "start" if is(1, "transaction") => Self::Begin,
            "commit" | "end" if is(1, "prepared") => return Err(two_phases()),
            "commit" | "end" => Self::Commit,
            "abort" => Self::Rollback,
            "rollback" if is(1, "prepared") => return Err(two_phases()),
            "rollback" if is(skip(1), "to") => {
                let at = skip(1) + 1;
                let at = if is(at, "savepoint") && words.len() > at + 1 { at + 1 } else { at };
                Self::RollbackTo(name(at, "ROLLBACK TO SAVEPOINT name")?)
            }
            "rollback" => Self::Rollback,
            "savepoint" => Self::Savepoint(name(1, "SAVEPOINT name")?),
            "release" => {
                let at = if is(1, "savepoint") && words.len() > 2 { 2 } else { 1 };
                Self::Release(name(at, "RELEASE SAVEPOINT name")?)
            }
            "prepare" if is(1, "transaction") => return Err(two_phases()),
            "set" => set(&words)?,
            "show" => show(&words),
            "reset" if is(1, "all") => Self::ResetAll,
            "reset" => Self::Reset(setting(&words, 1).ok_or_else(|| wrong("RESET name"))?.0),
            "discard" => Self::Discard { all: is(1, "all") },
            "declare" => declare(text)?,
            "fetch" | "move" => fetch(&words, first == "move")?,
            "close" if is(1, "all") => Self::CloseCursor(None),
            "close" => Self::CloseCursor(Some(name(1, "CLOSE name")?)),
            "deallocate" => {
                let at = if is(1, "prepare") && words.len() > 2 { 2 } else { 1 };
                match is(at, "all") {
                    true => Self::Deallocate(None),
                    false => Self::Deallocate(Some(name(at, "DEALLOCATE name")?)),
                }
            }
            "unlisten" => Self::Unlisten,
            "kill" => {
                let id = words.get(if is(1, "query") { 2 } else { 1 });
                let id =
                    id.and_then(
                        |word| if let Word::Number(id) = word { id.parse().ok() } else { None },
                    );
                Self::Kill(id.ok_or_else(|| wrong("KILL QUERY number, one of system.running"))?)
            }
            "listen" | "notify" | "lock" => {
                let first = first.to_uppercase();
                return Err(Failure::new("0A000", format!("{first} is not supported")));
            }
            "copy" => match copy_command(text)? {
                Some(copy) => Self::Copy(copy),
                None => Self::Engine,
            },
            "select" if is(1, "pg_advisory_unlock_all") && words.len() == 4 => Self::AdvisoryUnlock,
            "select" => set_config(&words).unwrap_or(Self::Engine),
            _ => Self::Engine,
        })
    }
}

fn set_config(words: &[Word]) -> Option<Command> {
    let call = match words.get(1..)? {
        [schema, Word::Sign('.'), call @ ..] if schema.is("pg_catalog") => call,
        call => call,
    };
    let [
        function,
        Word::Sign('('),
        Word::Text(name),
        Word::Sign(','),
        value,
        Word::Sign(','),
        local,
        Word::Sign(')'),
    ] = call
    else {
        return None;
    };
    let (Word::Text(value) | Word::Number(value)) = value else { return None };
    let local = match local {
        local if local.is("true") => true,
        local if local.is("false") => false,
        _ => return None,
    };
    let (name, value) = (name.clone(), value.clone());
    function.is("set_config").then_some(Command::SetConfig { name, value, local })
}

fn two_phases() -> Failure {
    Failure::new("0A000", "prepared transactions are not supported")
}

/// A setting's name, and the place behind it.
fn setting(words: &[Word], at: usize) -> Option<(String, usize)> {
    let mut name = words.get(at)?.name()?.to_owned();
    let mut next = at + 1;
    while words.get(next) == Some(&Word::Sign('.')) {
        name = format!("{name}.{}", words.get(next + 1)?.name()?);
        next += 2;
    }
    match (name.to_lowercase().as_str(), words.get(next)) {
        ("time", Some(zone)) if zone.is("zone") => Some(("timezone".into(), next + 1)),
        ("transaction", Some(isolation)) if isolation.is("isolation") => {
            Some(("transaction_isolation".into(), words.len()))
        }
        ("session", Some(authorization)) if authorization.is("authorization") => {
            Some(("session_authorization".into(), next + 1))
        }
        _ => Some((name, next)),
    }
}

fn set(words: &[Word]) -> Result<Command, Failure> {
    let wrong = || Failure::new("42601", "write SET name = value");
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found.is(word));
    if is(1, "transaction") || (is(1, "session") && is(2, "characteristics")) {
        return Ok(Command::SetTransaction);
    }
    let local = is(1, "local");
    let at = if local || (is(1, "session") && !is(2, "authorization")) { 2 } else { 1 };
    if is(at, "constraints") {
        return Ok(Command::SetTransaction);
    }
    let (mut name, mut next) = setting(words, at).ok_or_else(wrong)?;
    let zone = name == "timezone";
    if name == "names" {
        name = "client_encoding".into();
    } else if is(next, "to") || words.get(next) == Some(&Word::Sign('=')) {
        next += 1;
    } else if !zone && !matches!(name.as_str(), "role" | "session_authorization") {
        return Err(wrong());
    }
    let values = words.get(next..).unwrap_or_default();
    if values.is_empty() {
        return Err(wrong());
    }
    if is(next, "default") || (zone && is(next, "local")) {
        return Ok(Command::Set { name, value: None, local });
    }
    // SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE, as some drivers have it.
    if is(next, "interval") {
        let value = values.get(1).and_then(Word::value).map(str::to_owned);
        return Ok(Command::Set { name, value: Some(value.ok_or_else(wrong)?), local });
    }
    let mut value = String::new();
    for word in values {
        match word {
            Word::Sign(',') => value.push_str(", "),
            Word::Sign(sign) => value.push(*sign),
            Word::Quoted(quoted) if values.len() > 1 => value.push_str(&format!("\"{quoted}\"")),
            word => value.push_str(word.value().unwrap_or_default()),
        }
    }
    Ok(Command::Set { name, value: Some(value), local })
}

fn show(words: &[Word]) -> Command {
    match setting(words, 1) {
        Some((name, _)) if name == "all" && words.len() == 2 => Command::ShowAll,
        Some((name, end)) if end == words.len() => Command::Show(name),
        _ => Command::Engine,
    }
}

fn declare(text: &str) -> Result<Command, Failure> {
    let wrong = || Failure::new("42601", "write DECLARE name CURSOR FOR SELECT …");
    let mut words = Words::of(text).skip(1);
    let name = words.next().and_then(|(_, word, _)| word.name().map(str::to_owned));
    let name = name.ok_or_else(wrong)?;
    let mut no = false;
    let mut is_cursor = false;
    for (_, word, end) in words.by_ref() {
        match word.name() {
            Some("scroll") if !no => {
                return Err(
                    Failure::new("0A000", "cursors only go forward").with_hint("leave SCROLL out")
                );
            }
            Some("binary") => return Err(Failure::new("0A000", "cursors are not binary")),
            Some("no") => no = true,
            Some("with") => {
                return Err(Failure::new("0A000", "a cursor ends with its transaction")
                    .with_hint("leave WITH HOLD out"));
            }
            Some("cursor") => is_cursor = true,
            Some("for") if is_cursor => {
                let query = text[end..].trim_start();
                let query_at = text.len() - query.len();
                return Ok(Command::Declare { name, query: query.to_owned(), query_at });
            }
            Some("asensitive" | "insensitive" | "without" | "hold" | "scroll") => no = false,
            _ => return Err(wrong()),
        }
    }
    Err(wrong())
}

fn fetch(words: &[Word], moves: bool) -> Result<Command, Failure> {
    let backward = || {
        Failure::new("55000", "cursor can only scan forward")
            .with_hint("FETCH NEXT, a number, or ALL")
    };
    let mut rows = Some(1);
    let mut at = 1;
    let word = |at: usize| words.get(at);
    if word(at).is_some_and(|found| found.is("forward")) {
        at += 1;
    }
    match word(at) {
        Some(Word::Number(number)) => {
            rows = Some(number.parse().map_err(|_| backward())?);
            at += 1;
        }
        Some(found) if found.is("next") => at += 1,
        Some(found) if found.is("all") => {
            rows = None;
            at += 1;
        }
        Some(found)
            if ["prior", "first", "last", "absolute", "relative", "backward"]
                .iter()
                .any(|word| found.is(word))
                && words.len() > at + 1 =>
        {
            return Err(backward());
        }
        _ => {}
    }
    if word(at).is_some_and(|found| (found.is("from") || found.is("in")) && words.len() > at + 1) {
        at += 1;
    }
    let cursor = word(at).and_then(Word::name).filter(|_| words.len() == at + 1);
    let cursor = cursor.ok_or_else(|| Failure::new("42601", "write FETCH number FROM cursor"))?;
    Ok(Command::Fetch { cursor: cursor.to_owned(), rows, moves })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Command {
        Command::of(text).unwrap()
    }

    fn set_to(name: &str, value: Option<&str>) -> Command {
        Command::Set { name: name.into(), value: value.map(Into::into), local: false }
    }

    #[test]
    fn statements_of_drivers_are_known() {
        for (text, expected) in [
            ("", Command::Empty),
            (" -- ping", Command::Empty),
            ("BEGIN ISOLATION LEVEL READ COMMITTED", Command::Begin),
            ("start transaction read only", Command::Begin),
            ("END", Command::Commit),
            ("ROLLBACK WORK", Command::Rollback),
            ("ROLLBACK TO SAVEPOINT a", Command::RollbackTo("a".into())),
            ("ROLLBACK WORK TO \"A\"", Command::RollbackTo("A".into())),
            ("RELEASE savepoint", Command::Release("savepoint".into())),
            ("RELEASE SAVEPOINT b", Command::Release("b".into())),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Command::SetTransaction),
            ("set extra_float_digits = 3", set_to("extra_float_digits", Some("3"))),
            ("SET TIME ZONE 'Europe/Berlin'", set_to("timezone", Some("Europe/Berlin"))),
            ("SET NAMES 'UTF8'", set_to("client_encoding", Some("UTF8"))),
            ("SET DateStyle TO ISO, MDY", set_to("datestyle", Some("iso, mdy"))),
            ("SET uplake.timeout = '5s'", set_to("uplake.timeout", Some("5s"))),
            ("SET search_path TO DEFAULT", set_to("search_path", None)),
            (
                "SELECT pg_catalog.set_config('search_path', '', false)",
                Command::SetConfig { name: "search_path".into(), value: "".into(), local: false },
            ),
            ("SELECT set_config('a', 'b', false) FROM t", Command::Engine),
            ("SHOW TRANSACTION ISOLATION LEVEL", Command::Show("transaction_isolation".into())),
            ("SHOW ID SETS", Command::Engine),
            ("SHOW TABLES", Command::Show("tables".into())),
            ("RESET ALL", Command::ResetAll),
            ("DISCARD ALL", Command::Discard { all: true }),
            ("CLOSE ALL", Command::CloseCursor(None)),
            ("UNLISTEN *", Command::Unlisten),
            ("KILL QUERY 12", Command::Kill(12)),
            ("kill 7", Command::Kill(7)),
            ("SELECT pg_advisory_unlock_all()", Command::AdvisoryUnlock),
            ("DEALLOCATE \"_pg3_0\"", Command::Deallocate(Some("_pg3_0".into()))),
            ("SELECT 1", Command::Engine),
            ("WITH a AS (SELECT 1) SELECT * FROM a", Command::Engine),
            ("COPY (SELECT 1) TO '/tmp/x.csv'", Command::Engine),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        assert_eq!(Command::of("LISTEN a").unwrap_err().code, "0A000");
        assert_eq!(Command::of("SET x").unwrap_err().code, "42601");
        assert_eq!(Command::of("KILL QUERY all").unwrap_err().code, "42601");
        assert_eq!(Command::of("PREPARE TRANSACTION 'a'").unwrap_err().code, "0A000");
    }

    #[test]
    fn cursors_are_declared_and_fetched() {
        let text = "DECLARE \"C\" NO SCROLL CURSOR WITHOUT HOLD FOR\n SELECT 1";
        let expected = Command::Declare {
            name: "C".into(),
            query: "SELECT 1".into(),
            query_at: text.len() - 8,
        };
        assert_eq!(of(text), expected);
        let fetch = |rows| Command::Fetch { cursor: "c".into(), rows, moves: false };
        for (text, rows) in [
            ("FETCH c", Some(1)),
            ("FETCH NEXT FROM c", Some(1)),
            ("FETCH FORWARD 10 FROM \"c\"", Some(10)),
            ("fetch all in c", None),
            ("FETCH FORWARD ALL FROM c", None),
        ] {
            assert_eq!(of(text), fetch(rows), "{text}");
        }
        assert_eq!(Command::of("FETCH -1 FROM c").unwrap_err().code, "55000");
        assert_eq!(Command::of("FETCH PRIOR FROM c").unwrap_err().code, "55000");
        assert_eq!(Command::of("DECLARE c SCROLL CURSOR FOR SELECT 1").unwrap_err().code, "0A000");
    }
}
