//! Rows of `system` tables in the lake, `_uplake/system/*`: appended each minute, kept for 30 days, merged each hour.
//!
//! # Invariants
//! - They are ordinary Delta tables with a partition a day; who may read the lake's folder may read them.
//! - A lake that cannot be written, or has not been written to yet by anybody, serves all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{Array, RecordBatch, new_null_array};
use arrow::datatypes::SchemaRef;
use uplake_table::{
    AsOf, ChangedRows, CompactOptions, Lake, OnConflict, Snapshot, StreamWriter, TableDefinition,
    TableError, WriteKind, compact, vacuum,
};

use super::columns::day;
use super::kept::DAY;

/// Where the tables are in the lake.
const FOLDER: &str = "_uplake/system";
/// Days that rows are kept.
const KEPT_DAYS: i32 = 30;
/// Files that were replaced stay for statements that read them.
const VACUUM_AFTER: Duration = Duration::from_secs(3600);
/// Memory of a writer: rows of a minute are few.
const WRITER_BYTES: usize = 16 << 20;

/// The tables in the lake.
#[derive(Debug)]
pub(super) struct History {
    pub lake: Lake,
    /// As they were last seen.
    seen: Mutex<HashMap<&'static str, Snapshot>>,
}

impl History {
    /// That of a lake.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a lake whose paths cannot be made.
    pub fn of(lake: &Lake) -> Result<Self, TableError> {
        Ok(Self { lake: lake.within(FOLDER)?, seen: Mutex::default() })
    }

    /// A table's newest version; `None` if there is none yet.
    ///
    /// # Errors
    /// Those of a lake that cannot be read.
    pub async fn newest(&self, table: &'static str) -> Result<Option<Snapshot>, TableError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(table).cloned();
        if let Some(seen) = seen
            && self.lake.is_latest(&seen).await?
        {
            return Ok(Some(seen));
        }
        match self.lake.snapshot(table, &AsOf::Latest).await {
            Ok(found) => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.insert(table, found.clone());
                Ok(Some(found))
            }
            Err(TableError::NoSuchTable { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds rows in one commit; the table is made if it is not there.
    ///
    /// # Errors
    /// Those of a lake that cannot be written.
    pub async fn append(
        &self,
        table: &'static str,
        rows: RecordBatch,
        now_millis: i64,
    ) -> Result<(), TableError> {
        let (mut writer, rows, kind) = match self.newest(table).await? {
            Some(base) => {
                let rows = as_stored(&rows, base.schema())?;
                let on_conflict = OnConflict::default();
                let writer = StreamWriter::into_table(
                    &self.lake,
                    base,
                    on_conflict,
                    WRITER_BYTES,
                    1,
                    now_millis,
                );
                (writer.await?, rows, WriteKind::Append)
            }
            None => {
                let definition = TableDefinition {
                    schema: rows.schema(),
                    partition_columns: vec![DAY.to_owned()],
                    cluster_by: Vec::new(),
                    indexes: Vec::new(),
                    id_domains: Vec::new(),
                    primary_key: Vec::new(),
                };
                let lake = &self.lake;
                let writer = StreamWriter::into_new_table(
                    lake,
                    table,
                    definition,
                    WRITER_BYTES,
                    1,
                    now_millis,
                );
                (writer.await?, rows, WriteKind::Create)
            }
        };
        writer.write(rows).await?;
        writer.commit(kind).await.map(drop)
    }

    /// Lets go of days that are over, and merges files of the others.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn tidy(&self, table: &'static str, now_millis: i64) -> Result<(), TableError> {
        let Some(base) = self.newest(table).await? else { return Ok(()) };
        let first = day(now_millis) - KEPT_DAYS;
        let is_over = |value: &Option<String>| {
            value.as_deref().and_then(day_of).is_some_and(|day| day < first)
        };
        let files = base.files().iter();
        let replaced: Vec<_> = files
            .filter(|file| file.partition_values.get(DAY).is_some_and(is_over))
            .cloned()
            .collect();
        if !replaced.is_empty() {
            let predicate = format!("{DAY} is more than {KEPT_DAYS} days ago");
            let on_conflict = OnConflict::default();
            let writer = StreamWriter::into_table(
                &self.lake,
                base,
                on_conflict,
                WRITER_BYTES,
                1,
                now_millis,
            );
            let deleted = replaced.iter().filter_map(|file| file.rows).sum();
            let rows = ChangedRows { deleted, ..ChangedRows::default() };
            writer.await?.commit(WriteKind::Delete { replaced, predicate, rows }).await?;
        }
        let Some(base) = self.newest(table).await? else { return Ok(()) };
        compact(&self.lake, &base, &CompactOptions { threads: 1, now_millis }).await?;
        let Some(base) = self.newest(table).await? else { return Ok(()) };
        vacuum(&self.lake, &base, VACUUM_AFTER, false, now_millis).await.map(drop)
    }
}

/// Rows with the columns of a table that an earlier version has made: those that it does not have are left out.
fn as_stored(rows: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch, TableError> {
    let wrong = |error: arrow::error::ArrowError| TableError::Invalid(error.to_string());
    let column = |field: &Arc<arrow::datatypes::Field>| match rows.column_by_name(field.name()) {
        Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
        _ => new_null_array(field.data_type(), rows.num_rows()),
    };
    let columns = stored.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::clone(stored), columns).map_err(wrong)
}

/// The number of a day that is written as the log has it, `2026-11-26`.
fn day_of(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, of_month) = (parts.next()??, parts.next()??, parts.next()??);
    // Howard Hinnant's days_from_civil: years begin in March, so that the day that some have is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + of_month - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    i32::try_from(era * 146_097 + days - 719_468).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_numbered_from_1970() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("1969-12-31", Some(-1)),
            ("2000-02-29", Some(11_016)),
            ("2026-11-26", Some(20_783)),
            ("__HIVE_DEFAULT_PARTITION__", None),
            ("2026-11", None),
        ] {
            assert_eq!(day_of(text), expected, "{text}");
        }
    }
}
