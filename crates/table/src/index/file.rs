//! Which index file belongs to which data file.

use object_store::path::Path;
use uplake_index::DataFile as IndexedFile;

use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::names::store_path;

/// Folder of a table's index files.
pub(crate) const FOLDER: &str = "_uplake_index";

const EXTENSION: &str = "idx";

/// Where the index of a data file is; `relative` is the data file's path from the table's folder.
pub(crate) fn index_path(table: &str, prefix: &Path, relative: &str) -> Result<Path> {
    store_path(table, prefix, &format!("{FOLDER}/{relative}.{EXTENSION}"))
}

/// The data file that an index file belongs to; both paths are from the table's folder.
pub(crate) fn data_file_of(index: &str) -> Option<&str> {
    index.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(EXTENSION)?.strip_suffix('.')
}

/// How an index file names its data file.
pub(super) fn identity(relative: &str, bytes: u64, rows: u64) -> Result<IndexedFile> {
    let rows = u32::try_from(rows).map_err(|_| {
        TableError::Invalid(format!("{relative} has {rows} rows; an index takes 2^32 at most"))
    })?;
    Ok(IndexedFile { name: relative.to_owned(), bytes, rows })
}

/// How the index of `file` must name it; `rows` are those the index has, for a log that does not say.
pub(super) fn identity_of(file: &DataFile, rows: u32) -> Option<IndexedFile> {
    identity(&file.path, file.size, file.rows.unwrap_or(u64::from(rows))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_file_names_its_data_file() {
        let path = index_path("t", &Path::from("lake/t"), "dt=1/part-0.parquet").unwrap();
        assert_eq!(path.as_ref(), "lake/t/_uplake_index/dt=1/part-0.parquet.idx");
        let relative = "_uplake_index/dt=1/part-0.parquet.idx";
        assert_eq!(data_file_of(relative), Some("dt=1/part-0.parquet"));
        for other in ["dt=1/part-0.parquet", "_uplake_index/x", "_uplake_indexes/a.idx"] {
            assert_eq!(data_file_of(other), None, "{other}");
        }
    }
}
