//! A data file of a table, as the log has it.

use std::collections::HashMap;
use std::sync::Arc;

use object_store::path::Path;
use uplake_domain::Mark;

use crate::checksums::Checksums;

/// One Parquet file of a snapshot.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Path from the table's folder, decoded.
    pub path: String,
    /// Path within [`crate::Lake::store`].
    pub store_path: Path,
    /// Path of its index within [`crate::Lake::store`]; there need not be one.
    pub index_path: Path,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since 1970, UTC.
    pub modified_millis: i64,
    /// Rows, when the log says.
    pub rows: Option<u64>,
    /// Partition column -> value as the log spells it; `None` is NULL.
    pub partition_values: HashMap<String, Option<String>>,
    /// The log's statistics, JSON.
    pub stats: Option<String>,
    /// CRC-32 of the file, for files we wrote.
    pub crc32: Option<u32>,
    /// Those of its parts, likewise.
    pub checksums: Option<Arc<Checksums>>,
    /// Columns whose ids are in the file for every key -> the domain and log they are from.
    pub ids: HashMap<String, String>,
    /// Of these columns, how far the domain's log went when the file was written.
    pub(crate) id_marks: HashMap<String, Mark>,
    /// Of these columns, the ids up to which each sixteenth of the rows goes.
    pub(crate) id_quantiles: HashMap<String, Vec<u32>>,
}

/// What the log says about one column of one file. Bounds hold for every value, but need not be values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnBounds {
    /// Not larger than any value, as text.
    pub min: Option<String>,
    /// Not smaller than any value, as text.
    pub max: Option<String>,
    /// NULLs.
    pub nulls: Option<u64>,
}

/// What an entry of a map takes of memory beside its texts, about.
const ENTRY_BYTES: usize = 96;

impl DataFile {
    /// What it takes of memory, about, with what Delta's reader keeps of it: paths, values and statistics once more.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_value = |(column, value): (&String, &Option<String>)| {
            ENTRY_BYTES + column.len() + value.as_ref().map_or(0, String::len)
        };
        let of_ids = |(column, source): (&String, &String)| {
            ENTRY_BYTES + 2 * column.len() + source.len() + size_of::<Mark>()
        };
        let of_quantiles = |(column, ids): (&String, &Vec<u32>)| {
            ENTRY_BYTES + column.len() + size_of_val(ids.as_slice())
        };
        let paths =
            2 * self.path.len() + self.store_path.as_ref().len() + self.index_path.as_ref().len();
        size_of::<Self>()
            + size_of::<Checksums>()
            + paths
            + 2 * self.partition_values.iter().map(of_value).sum::<usize>()
            + 2 * self.stats.as_ref().map_or(0, String::len)
            + self.ids.iter().map(of_ids).sum::<usize>()
            + self.id_quantiles.iter().map(of_quantiles).sum::<usize>()
    }

    /// The ids of a key column up to which each equal part of the file's rows goes, about, but for the last part; empty if
    /// nobody knows.
    pub fn id_quantiles(&self, column: &str) -> &[u32] {
        self.id_quantiles.get(column).map_or(&[], Vec::as_slice)
    }

    /// Bounds by column name, from the log's statistics; partition columns are not among them.
    pub fn column_bounds(&self) -> HashMap<String, ColumnBounds> {
        let parsed = self.stats.as_deref().map(serde_json::from_str::<serde_json::Value>);
        let Some(Ok(stats)) = parsed else { return HashMap::new() };
        let mut bounds: HashMap<String, ColumnBounds> = HashMap::new();
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let entries =
            |kind: &str| stats.get(kind).and_then(|v| v.as_object()).into_iter().flatten();
        for (column, value) in entries("minValues") {
            bounds.entry(column.clone()).or_default().min = text(value);
        }
        for (column, value) in entries("maxValues") {
            bounds.entry(column.clone()).or_default().max = text(value);
        }
        for (column, value) in entries("nullCount") {
            bounds.entry(column.clone()).or_default().nulls = value.as_u64();
        }
        bounds
    }
}
