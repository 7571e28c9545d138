//! The audit log: who came, who was not let in, what was changed, loaded, taken out, and stopped.
//!
//! [`Audit::note`] writes a line of JSON at the end of a file of this machine, which is brought to the disk within a
//! second, and keeps the entry for `system.audit`, which is shipped to the lake each minute.
//!
//! # Invariants
//! - An entry is in the file, as the system has it, when [`Audit::note`] returns.
//! - No password is in it: texts of statements have gone through `access_sql::without_secrets`.
//! - A statement about access is told of by who answers it (`access_sql`), others by their first words.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;

use crate::log::{Log, Row};

/// The facts of a session that are its client's address and protocol, for who notes what it does.
pub(crate) const PEER: &str = "peer";
pub(crate) const PROTOCOL: &str = "protocol";
/// Entries that are kept in memory for who asks, and until they are in the lake.
const KEPT: usize = 10_000;
/// The file is set aside as `….1` when it has so many bytes, and the one before is gone.
const FILE_BYTES: u64 = 256 << 20;
/// The disk has an entry after so long.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Login,
    /// Roles, rights, policies, tenants, tokens.
    Access,
    /// Tables.
    Ddl,
    Write,
    Load,
    /// Many rows, or a file.
    Export,
    /// Somebody else's statement.
    Cancel,
    Setting,
}

impl Action {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Access => "access",
            Self::Ddl => "ddl",
            Self::Write => "write",
            Self::Load => "load",
            Self::Export => "export",
            Self::Cancel => "cancel",
            Self::Setting => "setting",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Note {
    /// Milliseconds since 1970, UTC.
    pub at: i64,
    pub action: Action,
    /// Who did it, as it says.
    pub role: String,
    pub address: String,
    pub protocol: String,
    /// A statement's text, a table, a number.
    pub what: String,
    /// `None` if it was done.
    pub sqlstate: Option<String>,
}

impl Row for Note {
    fn memory_bytes(&self) -> usize {
        let texts = [&self.role, &self.address, &self.protocol, &self.what];
        size_of::<Self>() + texts.map(String::len).iter().sum::<usize>()
    }
}

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Mutex<Option<Writing>>,
    is_synced: AtomicBool,
    pub notes: Arc<Mutex<Log<Note>>>,
}

#[derive(Debug)]
struct Writing {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Writing {
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, path: path.to_owned(), bytes })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= FILE_BYTES {
            self.file.sync_data()?;
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            std::fs::rename(&self.path, before)?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

impl Default for Audit {
    /// In memory alone.
    fn default() -> Self {
        Self {
            file: Mutex::default(),
            is_synced: AtomicBool::new(true),
            notes: Arc::new(Mutex::new(Log::new(KEPT))),
        }
    }
}

impl Audit {
    /// From now on entries are written to a file, too.
    ///
    /// # Errors
    /// Those of the file and of the thread that brings it to the disk.
    pub fn write_to(self: &Arc<Self>, path: &Path) -> io::Result<()> {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(Writing::open(path)?);
        let audit = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || sync_each_second(&audit)).map(drop)
    }

    /// Something was done.
    pub fn note(&self, note: Note) {
        {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(writing) = file.as_mut() {
                let mut line = serde_json::to_vec(&note).unwrap_or_default();
                line.push(b'\n');
                if let Err(error) = writing.write(&line) {
                    eprintln!("warning: the audit log {}: {error}", writing.path.display());
                }
                self.is_synced.store(false, Ordering::Release);
            }
        }
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Brings entries to the disk.
    pub fn sync(&self) {
        if self.is_synced.swap(true, Ordering::AcqRel) {
            return;
        }
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = file.as_ref().map(|writing| writing.file.try_clone());
        drop(file);
        // What cannot be brought there is said by who writes next.
        let _ = synced.transpose().map(|file| file.map(|file| file.sync_data()));
    }
}

/// Until nobody has the log any more.
fn sync_each_second(audit: &Weak<Audit>) {
    loop {
        std::thread::sleep(SYNC_EVERY);
        match audit.upgrade() {
            Some(audit) => audit.sync(),
            None => return,
        }
    }
}

/// What a statement did, if it is to be told of: by its first words.
pub(crate) fn action_of(text: &str, rows_out: u64) -> Option<Action> {
    /// Rows that are worth an entry.
    const EXPORT_ROWS: u64 = 1_000_000;

    let upper = without_comments(text)
        .get(..80)
        .map_or_else(|| without_comments(text).to_uppercase(), str::to_uppercase);
    let mut words =
        upper.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let of_access = ["ROLE", "USER", "GROUP", "POLICY", "TENANT", "TOKEN"].contains(&second)
        || second == "TABLE" && words.any(|word| word == "HIDE" || word == "SHOW");
    Some(match first {
        "CREATE" | "ALTER" | "DROP" if of_access => return None,
        "CREATE" | "ALTER" | "DROP" | "TRUNCATE" | "COMMENT" => Action::Ddl,
        "INSERT" | "DELETE" | "UPDATE" | "MERGE" => Action::Write,
        "LOAD" | "INGEST" => Action::Load,
        "COPY" if upper.contains(" FROM STDIN") => Action::Load,
        "COPY" if !upper.contains(" TO STDOUT") => Action::Export,
        "SET" | "RESET" => Action::Setting,
        _ if rows_out > EXPORT_ROWS => Action::Export,
        _ => return None,
    })
}

fn without_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let after = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(line), _) => line.split_once('\n').map(|(_, after)| after),
            (_, Some(comment)) => comment.split_once("*/").map(|(_, after)| after),
            _ => return rest,
        };
        rest = after.unwrap_or("").trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/audit.jsonl");
        let note = |what: &str| Note {
            at: 7,
            action: Action::Ddl,
            role: "ann".into(),
            address: "1.2.3.4:5".into(),
            protocol: "http".into(),
            what: what.into(),
            sqlstate: None,
        };
        let audit = Arc::new(Audit::default());
        audit.note(note("before the file"));
        audit.write_to(&path).unwrap();
        audit.note(note("DROP TABLE \"a\nb\""));
        audit.sync();
        let again = Arc::new(Audit::default());
        again.write_to(&path).unwrap();
        again.note(note("x"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["what"]), (2, &"DROP TABLE \"a\nb\"".into()));
        assert_eq!((&lines[1]["action"], &lines[1]["at"]), (&"ddl".into(), &7.into()));
        assert_eq!(audit.notes.lock().unwrap().all().count(), 2);
    }

    #[test]
    fn statements_are_told_of_by_what_they_do() {
        use Action::{Ddl, Export, Load, Setting, Write};

        for (text, rows, expected) in [
            ("SELECT 1", 10, None),
            ("SELECT 1", 1_000_001, Some(Export)),
            ("/* a */ -- b\n create user u", 0, None),
            ("ALTER TABLE t HIDE COLUMN a FROM u", 0, None),
            ("ALTER TABLE t ADD COLUMN a INT", 0, Some(Ddl)),
            ("CREATE TABLE t (a INT)", 0, Some(Ddl)),
            ("INSERT INTO t VALUES (1)", 0, Some(Write)),
            ("COPY t FROM STDIN", 0, Some(Load)),
            ("COPY t TO STDOUT", 0, None),
            ("COPY t TO STDOUT", 2_000_000, Some(Export)),
            ("COPY (SELECT 1) TO '/tmp/x'", 0, Some(Export)),
            ("LOAD t", 0, Some(Load)),
            ("SET x = 1", 0, Some(Setting)),
            ("", 0, None),
            ("äääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääää", 0, None),
        ] {
            assert_eq!(action_of(text, rows), expected, "{text}");
        }
    }
}
