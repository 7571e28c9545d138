//! Ids that a table has and its domain has no more.

use std::fmt;

/// Ids that a table has and its domain has no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostIds {
    /// The table.
    pub table: String,
    /// The domain.
    pub domain: String,
    /// Keys that the domain had when the table was written last.
    pub keys: u64,
    /// The last of its runs then.
    pub run: u32,
}

impl LostIds {
    /// What to do about it.
    pub const REMEDY: &str = "Restore the folder of the domain, _uplake/domains/NAME, from a copy that is not \
         older than the tables; if there is none, remove the folder and run `uplake table compact` on the \
         tables, which gives ids anew";
}

impl fmt::Display for LostIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, domain, keys, run } = self;
        write!(
            f,
            "table `{table}` has ids of id domain `{domain}` as of its run {run}, when it had {keys} \
             keys; the domain has that run no more: its newest runs were lost, or it was restored from \
             a copy that is older than the table"
        )
    }
}
