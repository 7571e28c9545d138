//! Whether two answers are about one version of an object.

use object_store::ObjectMeta;

/// Whether two answers describe the same bytes.
pub(crate) fn is_same_version(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.size == b.size
        && match (&a.e_tag, &b.e_tag) {
            // Some providers leave the quotes out in listings.
            (Some(a), Some(b)) => a.trim_matches('"') == b.trim_matches('"'),
            _ => a.last_modified == b.last_modified,
        }
}
