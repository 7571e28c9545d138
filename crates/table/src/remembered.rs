//! The listing of a table's log as this machine last saw it, so that a new process can begin a
//! statement while it asks whether the table is still the same.
//!
//! ```text
//! <cache>/<lake>/logs/<table>     crc32 of the rest, a line with each object: name, size, modified, ETag
//! ```
//!
//! # Invariants
//! - A snapshot of it is believed only after [`Lake::is_latest`] said so.
//! - Nothing is lost without the file; one that is damaged is not there.

use std::fmt::Write as _;
use std::path::PathBuf;

use object_store::ObjectMeta;
use object_store::path::Path;

use crate::as_of::AsOf;
use crate::lake::Lake;
use crate::log_reader::LogReader;
use crate::names::check_table_name;
use crate::snapshot::Snapshot;

impl Lake {
    /// The newest version of a table that this machine knew of; `None` if it knew none, or if that
    /// cannot be read any more. In the best case no request is made. Only [`Lake::is_latest`] can say
    /// whether it still is the newest, or whether there is such a table.
    pub async fn remembered_snapshot(&self, table: &str) -> Option<Snapshot> {
        if !self.is_remote() || check_table_name(table).is_err() {
            return None;
        }
        let log = self.path_of(&format!("{table}/_delta_log")).ok()?;
        let text = std::fs::read_to_string(self.log_file(table)?).ok()?;
        let objects = objects(&log, &text)?;
        let log = LogReader::remembered(&self.storage().charged(), log, objects);
        Snapshot::load(self, table, &AsOf::Latest, Some(&log)).await.ok()
    }

    /// Keeps what was listed of a table's log; trouble with the local folder costs speed alone.
    pub(crate) fn remember(&self, table: &str, listed: &[ObjectMeta]) {
        let Some((file, text)) = self.log_file(table).zip(text(table, listed)) else { return };
        if std::fs::read_to_string(&file).is_ok_and(|there| there == text) {
            return;
        }
        let Some(folder) = file.parent() else { return };
        let write = || {
            std::fs::create_dir_all(folder)?;
            let staged = tempfile::NamedTempFile::new_in(folder)?;
            std::fs::write(staged.path(), &text)?;
            staged.persist(&file).map_err(std::io::Error::from)
        };
        let _ = write();
    }

    fn log_file(&self, table: &str) -> Option<PathBuf> {
        Some(self.local_folder()?.join("logs").join(table))
    }
}

/// `None` if an object has no ETag: another one of its name could not be told from it.
fn text(table: &str, listed: &[ObjectMeta]) -> Option<String> {
    let log = format!("{table}/_delta_log/");
    let mut lines = String::new();
    for object in listed {
        let (_, name) = object.location.as_ref().rsplit_once(&log)?;
        if name.contains('/') {
            return None;
        }
        let e_tag = object.e_tag.as_deref()?;
        let modified = object.last_modified.timestamp_millis();
        writeln!(lines, "{name}\t{}\t{modified}\t{e_tag}", object.size).ok()?;
    }
    let crc = crc32fast::hash(lines.as_bytes());
    Some(format!("{crc:08x}\n{lines}"))
}

/// The objects of a [`text`] in the folder `log`.
fn objects(log: &Path, text: &str) -> Option<Vec<ObjectMeta>> {
    let (crc, lines) = text.split_once('\n')?;
    if crc != format!("{:08x}", crc32fast::hash(lines.as_bytes())) {
        return None;
    }
    let object = |line: &str| {
        let mut parts = line.splitn(4, '\t');
        let mut next = || parts.next();
        let (name, size, modified, e_tag) = (next()?, next()?, next()?, next()?);
        Some(ObjectMeta {
            location: log.clone().join(name),
            size: size.parse().ok()?,
            last_modified: chrono::DateTime::from_timestamp_millis(modified.parse().ok()?)?,
            e_tag: Some(e_tag.to_owned()),
            version: None,
        })
    };
    lines.lines().map(object).collect()
}
