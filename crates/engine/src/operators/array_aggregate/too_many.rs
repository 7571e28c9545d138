//! Too many groups for arrays: the statement runs again without.

use datafusion::common::DataFusionError;

/// The error of a plan that is better run without arrays; memory is not the reason.
const NOT_FOR_ARRAYS: &str = "groups that are not for arrays";

/// `columns`: what the rows are grouped by.
pub(crate) fn too_many(columns: &str) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("{NOT_FOR_ARRAYS}: {columns}"))
}

/// The columns of [`too_many`], if an error is that.
pub(crate) fn too_many_by(error: &DataFusionError) -> Option<String> {
    let DataFusionError::ResourcesExhausted(message) = error.find_root() else { return None };
    message.strip_prefix(NOT_FOR_ARRAYS)?.strip_prefix(": ").map(str::to_owned)
}
