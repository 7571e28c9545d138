//! Which columns of a table have ids of which domain.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use uplake_domain::{Mark, check_name};

use crate::error::{Result, TableError};
use crate::schema::type_name;

/// What the names of id columns start with; no column of a user may.
pub const ID_PREFIX: &str = "__id_";

/// A column and the domain that its values are keys of: `user_id=users`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdDomainSpec {
    /// The column, as the table spells it.
    pub column: String,
    /// The domain's name.
    pub domain: String,
}

impl FromStr for IdDomainSpec {
    type Err = TableError;

    /// Parses `column=domain`.
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('=').map(|(c, d)| (c.trim(), d.trim()));
        match parts {
            Some((column, domain)) if !column.is_empty() && !domain.is_empty() => {
                Ok(Self { column: column.to_owned(), domain: domain.to_owned() })
            }
            _ => Err(TableError::Invalid(format!(
                "`{text}` is not COLUMN=DOMAIN; example: user_id=users"
            ))),
        }
    }
}

impl fmt::Display for IdDomainSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.column, self.domain)
    }
}

/// The name of the column that holds the ids of a column's keys.
pub fn id_column(column: &str) -> String {
    format!("{ID_PREFIX}{column}")
}

/// Does the name belong to an id column?
pub(crate) fn is_id_column(name: &str) -> bool {
    name.to_lowercase().starts_with(ID_PREFIX)
}

/// The column of ids itself: an INT that may be NULL.
pub(crate) fn id_field(column: &str) -> FieldRef {
    Arc::new(Field::new(id_column(column), DataType::Int32, true))
}

/// The columns a table has in the log: those of users, then the ids.
pub(crate) fn stored_schema(schema: &SchemaRef, id_domains: &[IdDomainSpec]) -> SchemaRef {
    if id_domains.is_empty() {
        return Arc::clone(schema);
    }
    let ids = id_domains.iter().map(|spec| id_field(&spec.column));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain(ids).collect::<Vec<_>>()))
}

/// The specs as the table's property holds them: `user_id:users,item_id:items`.
pub(crate) fn property(specs: &[IdDomainSpec]) -> String {
    let one = |spec: &IdDomainSpec| format!("{}:{}", spec.column, spec.domain);
    specs.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The specs of a property whose id columns the table has.
pub(crate) fn parse_property(text: &str, stored: &Schema) -> Vec<IdDomainSpec> {
    let one = |part: &str| {
        let (column, domain) = part.split_once(':')?;
        let (column, domain) = (column.trim().to_owned(), domain.trim().to_owned());
        let keys = stored.field_with_name(&column).ok()?;
        let ids = stored.field_with_name(&id_column(&column)).ok()?;
        let usable = keys.data_type() == &DataType::Utf8
            && ids.data_type() == &DataType::Int32
            && check_name(&domain).is_ok();
        usable.then_some(IdDomainSpec { column, domain })
    };
    text.split(',').filter_map(one).collect()
}

/// The tag of a data file: which log the ids of each column are from.
pub(crate) fn tag<'a>(ids: impl Iterator<Item = (&'a IdDomainSpec, u128)>) -> String {
    let one =
        |(spec, log): (&IdDomainSpec, u128)| format!("{}:{}:{log:032x}", spec.column, spec.domain);
    ids.map(one).collect::<Vec<_>>().join(",")
}

/// Column to `domain:log` of a tag.
pub(crate) fn parse_tag(text: &str) -> HashMap<String, String> {
    let one = |part: &str| {
        let (column, source) = part.split_once(':')?;
        Some((column.to_owned(), source.to_owned()))
    };
    text.split(',').filter_map(one).collect()
}

/// Column to mark of a tag that has `column:mark`, comma separated.
pub(crate) fn parse_marks(text: &str) -> HashMap<String, Mark> {
    let marks = parse_tag(text).into_iter();
    marks.filter_map(|(column, mark)| Some((column, mark.parse().ok()?))).collect()
}

/// Can these columns have ids?
pub(crate) fn check_specs(
    specs: &[IdDomainSpec],
    schema: &Schema,
    partition_columns: &[String],
) -> Result<()> {
    for (at, IdDomainSpec { column, domain }) in specs.iter().enumerate() {
        check_name(domain)?;
        let refuse = |reason: String| {
            Err(TableError::Invalid(format!("column `{column}` cannot have ids: {reason}")))
        };
        let Ok(field) = schema.field_with_name(column) else {
            let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            return refuse(format!("it is not in the table; its columns are {}", known.join(", ")));
        };
        if column.contains([',', ':']) {
            return refuse("its name holds `,` or `:`".into());
        }
        if partition_columns.contains(column) {
            return refuse("it is a partition column, the same in a whole file".into());
        }
        if field.data_type() != &DataType::Utf8 {
            return refuse(format!(
                "it is {}, and the keys of an id domain are text; declare it text with --schema",
                type_name(field.data_type())
            ));
        }
        if specs[..at].iter().any(|other| other.column == *column) {
            return refuse("it is named twice".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("user_id", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
            Field::new("dt", DataType::Utf8, true),
        ])
    }

    fn specs(texts: &[&str]) -> Vec<IdDomainSpec> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn specs_are_read_as_they_are_written() {
        let specs = specs(&["user_id=users"]);
        assert_eq!(property(&specs), "user_id:users");
        let given = schema();
        let fields = given.fields().iter().cloned().chain([id_field("user_id")]);
        let stored = Schema::new(fields.collect::<Vec<_>>());
        assert_eq!(parse_property("user_id:users,n:ns,of_later", &stored), specs);
        assert!(parse_property("user_id:users", &schema()).is_empty(), "without its id column");
        for bad in ["", "user_id", "=users", "user_id="] {
            assert!(bad.parse::<IdDomainSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_names_the_log_of_each_column() {
        let specs = specs(&["user_id=users", "item=items"]);
        let text = tag(specs.iter().zip([7, 8]));
        let read = parse_tag(&text);
        assert_eq!(read["item"], format!("items:{:032x}", 8));
        assert_eq!(read.len(), 2);
        assert!(parse_tag("").is_empty());
    }

    #[test]
    fn only_text_columns_of_files_have_ids() {
        let check = |texts: &[&str]| check_specs(&specs(texts), &schema(), &["dt".to_owned()]);
        assert!(check(&["user_id=users"]).is_ok());
        for bad in [["n=users"], ["dt=days"], ["nothing=users"], ["user_id=no/name"]] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert!(check(&["user_id=a", "user_id=b"]).is_err());
    }
}
