//! What our tables have in their log beside Delta's own: properties, tags of files, labels.

/// Table property: the columns rows are sorted by inside each file, comma separated.
pub(crate) const CLUSTER_BY: &str = "uplake.clusterBy";

/// Table property: the indexed columns and how, `column:kind`, comma separated.
pub(crate) const INDEXES: &str = "uplake.indexes";

/// Table property: the columns whose values are keys of an id domain, `column:domain`, comma separated.
pub(crate) const ID_DOMAINS: &str = "uplake.idDomains";

/// Table property: the columns of the primary key, comma separated.
pub(crate) const PRIMARY_KEY: &str = "uplake.primaryKey";

/// Metadata of a field in Delta's schema: what is said of the column.
pub(crate) const COMMENT: &str = "comment";

/// Tag of an Add action: where the file's ids are from, `column:domain:log`, comma separated.
pub(crate) const IDS_TAG: &str = "uplake.ids";

/// Tag of an Add action: how far the log of each of these domains went, `column:run:nonce:keys`, comma
/// separated.
pub(crate) const ID_MARKS_TAG: &str = "uplake.idMarks";

/// Tag of an Add action: the ids up to which each sixteenth of the rows goes, `column:id;id;…`, comma separated.
pub(crate) const ID_QUANTILES_TAG: &str = "uplake.idQuantiles";

/// Tag of an Add action: the file's CRC-32, eight hexadecimal digits.
pub(crate) const CRC32_TAG: &str = "uplake.crc32";

/// Parameter of a commit: the label of its load.
pub(crate) const LABEL: &str = "label";

/// The Delta transaction id under which a load's label is remembered.
pub(crate) fn label_app_id(label: &str) -> String {
    format!("uplake-load:{label}")
}
