//! How many rows a commit added, changed and removed, where Delta's log keeps that: its operation metrics.
//!
//! # Invariants
//! - Rows that were only written again count nowhere.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What a commit did to rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedRows {
    /// New ones.
    pub inserted: u64,
    /// Those that have other values.
    pub updated: u64,
    /// Those that are gone.
    pub deleted: u64,
}

/// Where a commit's information has them.
pub(crate) const METRICS: &str = "operationMetrics";

impl ChangedRows {
    /// These and those of another statement.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            inserted: self.inserted + other.inserted,
            updated: self.updated + other.updated,
            deleted: self.deleted + other.deleted,
        }
    }

    /// As an operation's metrics have them, which are texts.
    pub(crate) fn metrics(self, operation: &str) -> Value {
        let Self { inserted, updated, deleted } = self;
        let all: &[(&str, u64)] = match operation {
            "DELETE" => &[("numDeletedRows", deleted)],
            "UPDATE" => &[("numUpdatedRows", updated)],
            "MERGE" => &[
                ("numTargetRowsInserted", inserted),
                ("numTargetRowsUpdated", updated),
                ("numTargetRowsDeleted", deleted),
            ],
            _ => &[("numOutputRows", inserted + updated), ("numUpdatedRows", updated)],
        };
        let text = |(name, rows): &(&str, u64)| ((*name).to_owned(), rows.to_string().into());
        let is_told = |(name, rows): &&(&str, u64)| *rows > 0 || *name != "numUpdatedRows";
        Value::Object(all.iter().filter(is_told).map(text).collect::<Map<_, _>>())
    }

    /// What a commit's information says, of whichever writer.
    pub(crate) fn of(operation: &str, info: &HashMap<String, Value>) -> Option<Self> {
        let metrics = info.get(METRICS)?.as_object()?;
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
        let first = |names: &[&str]| names.iter().find_map(|name| number(metrics.get(*name)?));
        let updated = first(&[
            "numUpdatedRows",
            "numTargetRowsUpdated",
            "num_updated_rows",
            "num_target_rows_updated",
        ]);
        let deleted = first(&[
            "numDeletedRows",
            "numTargetRowsDeleted",
            "num_deleted_rows",
            "num_target_rows_deleted",
        ]);
        let output = match operation {
            "DELETE" | "UPDATE" | "MERGE" => {
                first(&["numTargetRowsInserted", "num_target_rows_inserted"])
            }
            "WRITE" => first(&["numOutputRows", "num_added_rows"]),
            _ if operation.starts_with("CREATE") => first(&["numOutputRows", "num_added_rows"]),
            _ => None,
        };
        output.or(updated).or(deleted)?;
        let (updated, deleted) = (updated.unwrap_or_default(), deleted.unwrap_or_default());
        let inserted = match operation {
            "DELETE" | "UPDATE" | "MERGE" => output.unwrap_or_default(),
            _ => output.unwrap_or_default().saturating_sub(updated),
        };
        Some(Self { inserted, updated, deleted })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows = |inserted, updated, deleted| ChangedRows { inserted, updated, deleted };
        for (operation, rows) in [
            ("WRITE", rows(7, 0, 0)),
            ("WRITE", rows(7, 2, 0)),
            ("CREATE TABLE", rows(3, 0, 0)),
            ("DELETE", rows(0, 0, 4)),
            ("UPDATE", rows(0, 5, 0)),
            ("MERGE", rows(1, 2, 3)),
        ] {
            let info = HashMap::from([(METRICS.to_owned(), rows.metrics(operation))]);
            assert_eq!(ChangedRows::of(operation, &info), Some(rows), "{operation}");
        }
    }

    #[test]
    fn metrics_of_other_writers_are_understood_and_copied_rows_are_not_counted() {
        let of = |operation: &str, metrics: Value| {
            let info = HashMap::from([(METRICS.to_owned(), metrics)]);
            let rows = ChangedRows::of(operation, &info)?;
            Some((rows.inserted, rows.updated, rows.deleted))
        };
        let spark = json!({"numOutputRows": "90", "numTargetRowsInserted": "1",
            "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "0", "numTargetRowsCopied": "87"});
        assert_eq!(of("MERGE", spark), Some((1, 2, 0)));
        assert_eq!(of("WRITE", json!({"num_added_rows": 5})), Some((5, 0, 0)));
        assert_eq!(
            of("DELETE", json!({"num_deleted_rows": 6, "num_copied_rows": 9})),
            Some((0, 0, 6))
        );
        assert_eq!(of("OPTIMIZE", json!({"numOutputRows": "9"})), None);
        assert_eq!(of("WRITE", json!({"numFiles": "9"})), None);
        assert_eq!(ChangedRows::of("WRITE", &HashMap::new()), None);
    }
}
