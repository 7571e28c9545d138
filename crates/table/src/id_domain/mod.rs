//! Id columns: beside `user_id`, `__id_user_id` with the key's number in an id domain.
//!
//! ```text
//! rows to write ─► IdColumns::append ─► rows with ids ─► sort, encode; the file's Add action is tagged
//!                        └─► OpenDomains ─► uplake_domain::Domain
//! ```
//!
//! # Invariants
//! - A NULL key has a NULL id; every other key of a tagged file has the id its domain gives it.
//! - The tag of a data file names domain and log. Files without it, or of another log, may be
//!   written by anybody: their ids are not believed, and compaction makes them anew.
//! - A second tag has how far each log went. Nothing is numbered in a domain that has lost ids of a
//!   table, and the ids of that table are not believed.
//! - A third tag has how the rows are spread over the ids (`quantiles`): no answer depends on it.
//! - The local folder of a domain is derived; whatever is wrong with it is a warning.
//!
//! # Not here
//! How ids are given (`uplake-domain`); who uses them in a query (`engine`).

mod column;
mod domains;
mod lost_ids;
mod marks;
mod open;
mod quantiles;
mod spec;

pub(crate) use column::IdColumns;
pub use lost_ids::LostIds;
pub(crate) use open::{DomainMark, OpenDomains};
pub use open::{DomainProgress, ReportDomain};
pub(crate) use quantiles::{IdSample, parse as parse_quantiles};
pub use spec::{ID_PREFIX, IdDomainSpec, id_column};
pub(crate) use spec::{
    check_specs, id_field, is_id_column, parse_marks, parse_property, parse_tag, property,
    stored_schema, tag,
};
