//! Input files to rows: what a file is, its columns, and its bad rows named.
//!
//! A file is cut into *units* that threads decode on their own: a Parquet row group, or a few MiB
//! of whole text records. Text is read, decompressed and cut by whichever thread asks next; parsing
//! happens in parallel.
//!
//! # Invariants
//! - Memory is bounded by the unit size, whatever the file's size.
//! - The format comes from the content, not the name: a `.csv` that is Parquet loads as Parquet.
//! - A row that cannot be read is either the error that stops the load or one [`BadRow`]; it is
//!   never dropped in silence, and no value is changed to make it fit.

mod addresses;
mod bad_row;
mod fit;
mod infer;
mod input;
mod json_array;
mod json_columns;
mod objects;
mod parquet_file;
mod progress;
mod records;
mod source;
mod strict;
mod text;
mod web_files;

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};

pub use addresses::{InputStores, is_address, is_address_within, unknown_address};
pub use bad_row::BadRow;
pub(crate) use fit::Fit;
pub(crate) use input::{Decoder, Input, KnownInput, Unit};
pub use progress::Progress;
pub use source::{InputFile, Place, expand_inputs, keep_standard_input};
pub use text::{Header, TextOptions};
pub use web_files::WebFiles;

use crate::schema::type_name;

/// `name type, name type`, as a load prints the schema it found.
pub fn describe_schema(schema: &Schema) -> String {
    let column = |f: &Arc<Field>| {
        let not_null = if f.is_nullable() { "" } else { " not null" };
        format!("{} {}{not_null}", f.name(), type_name(f.data_type()))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}
