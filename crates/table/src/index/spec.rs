//! Which columns of a table are indexed, and how.

use std::fmt;
use std::str::FromStr;

use arrow::datatypes::{DataType, Schema};
use uplake_index::Kind;

use crate::error::{Result, TableError};
use crate::schema::type_name;

/// What an index of a column answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// `=` and `IN`, of whole numbers or text.
    Ids,
    /// `match(column, 'words')`, of text.
    Words,
    /// `LIKE '%…%'`, of text.
    Ngrams,
    /// `<`, `>`, `BETWEEN`, of doubles, for which Parquet's statistics do not hold (NaN).
    Zones,
}

impl IndexKind {
    const ALL: [(&'static str, Self); 4] = [
        ("ids", Self::Ids),
        ("words", Self::Words),
        ("ngrams", Self::Ngrams),
        ("zones", Self::Zones),
    ];

    /// Its name in options and statements.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::Words => "words",
            Self::Ngrams => "ngrams",
            Self::Zones => "zones",
        }
    }

    /// The kind of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Does an index file of that kind of column answer what this asks for?
    pub(crate) fn is_file_kind(self, kind: Kind) -> bool {
        match self {
            Self::Ids => matches!(kind, Kind::Integers | Kind::Strings),
            Self::Words => kind == Kind::Words,
            Self::Ngrams => kind == Kind::Grams,
            Self::Zones => kind == Kind::Zones,
        }
    }

    fn takes(self, data_type: &DataType) -> bool {
        let is_text = data_type == &DataType::Utf8;
        match self {
            Self::Ids => is_text || data_type.is_signed_integer(),
            Self::Words | Self::Ngrams => is_text,
            Self::Zones => matches!(data_type, DataType::Float32 | DataType::Float64),
        }
    }
}

/// One index of a table: `poi_id`, `name:words`, `name:ngrams`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// The column, as the table spells it.
    pub column: String,
    /// What it answers.
    pub kind: IndexKind,
}

impl FromStr for IndexSpec {
    type Err = TableError;

    /// Parses `column` (an index of ids) or `column:kind`.
    fn from_str(text: &str) -> Result<Self> {
        let (column, kind) = match text.rsplit_once(':') {
            None => (text, IndexKind::Ids),
            Some((column, name)) => {
                let kind = IndexKind::of_name(name).ok_or_else(|| {
                    let known: Vec<&str> = IndexKind::ALL.iter().map(|(name, _)| *name).collect();
                    TableError::Invalid(format!(
                        "`{name}` is no kind of index; write {column}:{}",
                        known.join(&format!(" or {column}:"))
                    ))
                })?;
                (column, kind)
            }
        };
        match column {
            "" => Err(TableError::Invalid(format!("`{text}` names no column to index"))),
            column => Ok(Self { column: column.to_owned(), kind }),
        }
    }
}

impl fmt::Display for IndexSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.column, self.kind.name())
    }
}

/// The specs as the table's property holds them.
pub(crate) fn property(specs: &[IndexSpec]) -> String {
    specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The specs of a property. What a later version may have written there is left out: the index of
/// a kind that we do not know is one that we do not use.
pub(crate) fn parse_property(text: &str) -> Vec<IndexSpec> {
    text.split(',').filter_map(|part| part.parse().ok()).collect()
}

/// Does the table still have such a column? Another writer may have changed it.
pub(crate) fn fits(spec: &IndexSpec, schema: &Schema, partition_columns: &[String]) -> bool {
    check_specs(std::slice::from_ref(spec), schema, partition_columns).is_ok()
}

/// Can these columns be indexed like that?
pub(crate) fn check_specs(
    specs: &[IndexSpec],
    schema: &Schema,
    partition_columns: &[String],
) -> Result<()> {
    for (at, spec) in specs.iter().enumerate() {
        let IndexSpec { column, kind } = spec;
        let Ok(field) = schema.field_with_name(column) else {
            return Err(TableError::no_such_column("index column", column, schema));
        };
        if column.contains([',', ':']) {
            return Err(TableError::Invalid(format!(
                "cannot index `{column}`: its name holds `,` or `:`"
            )));
        }
        if partition_columns.contains(column) {
            return Err(TableError::Invalid(format!(
                "cannot index `{column}`: it is a partition column, the same in a whole file"
            )));
        }
        if !kind.takes(field.data_type()) {
            let wanted = match kind {
                IndexKind::Ids => "text or whole numbers",
                IndexKind::Words | IndexKind::Ngrams => "text",
                IndexKind::Zones => "float or double",
            };
            return Err(TableError::Invalid(format!(
                "cannot index `{column}` by {}: it is {}, not {wanted}",
                kind.name(),
                type_name(field.data_type())
            )));
        }
        if specs[..at].contains(spec) {
            return Err(TableError::Invalid(format!("index `{spec}` is named twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn specs_are_read_as_they_are_written() {
        let specs: Vec<IndexSpec> =
            ["poi_id", "name:words", "name:ngrams"].map(|t| t.parse().unwrap()).into();
        assert_eq!(property(&specs), "poi_id:ids,name:words,name:ngrams");
        assert_eq!(parse_property(&property(&specs)), specs);
        assert_eq!(parse_property("a:ids,b:of_later,c:ids").len(), 2);
        for bad in ["", ":ids", "a:b", "a:"] {
            assert!(bad.parse::<IndexSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_columns_that_can_be_indexed_are() {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("name", DataType::Utf8, true),
            Field::new("price", DataType::Float64, true),
            Field::new("dt", DataType::Utf8, true),
        ]);
        let check = |texts: &[&str]| {
            let specs: Vec<IndexSpec> = texts.iter().map(|t| t.parse().unwrap()).collect();
            check_specs(&specs, &schema, &["dt".to_owned()])
        };
        assert!(check(&["id", "name", "name:words", "name:ngrams", "price:zones"]).is_ok());
        for bad in [["price"], ["id:words"], ["id:zones"], ["dt"], ["nothing"]] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert!(check(&["id", "id:ids"]).is_err());
    }
}
