//! Loads that were done, for `system.loads`.

use uplake_table::LoadSummary;

use crate::log::Row;

/// Loads that are kept in memory for who asks, and until they are in the lake.
pub(crate) const KEPT: usize = 10_000;

/// A load that was done.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The statement that it was.
    pub statement: u64,
    /// When it was done, in milliseconds since 1970, UTC.
    pub at: i64,
    pub role: String,
    pub table: String,
    pub label: Option<String>,
    /// `None` if its label had been loaded before.
    pub version: Option<u64>,
    pub rows: u64,
    pub bad_rows: u64,
    pub replaced_rows: u64,
    pub files: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl Row for Load {
    fn memory_bytes(&self) -> usize {
        let label = self.label.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.role.len() + self.table.len() + label
    }
}

/// What was loaded where.
pub(crate) struct Loaded<'a> {
    pub table: &'a str,
    pub label: Option<&'a str>,
    pub summary: &'a LoadSummary,
}
