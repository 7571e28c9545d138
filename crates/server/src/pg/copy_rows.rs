//! Values of COPY to rows of a table.
//!
//! # Invariants
//! - A value is read as Postgres reads it, or its line, column and text are in the error.
//! - What is held is handed out at [`BATCH_ROWS`] or [`BATCH_BYTES`].

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use uplake_engine::ScalarValue;

use crate::failure::Failure;
use crate::pg::params::decode;

/// Rows, and bytes of values, of a batch.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;
/// Characters of what was sent that an error repeats, as in Postgres.
const SHOWN: usize = 100;

/// Rows that are made of values, until they are taken.
pub(crate) struct Rows {
    table: String,
    /// Those of the table, all of which may be NULL here.
    schema: SchemaRef,
    /// Those that values come for, in the order in which they come.
    columns: Vec<Column>,
    /// Columns that are never NULL and that no values come for.
    lacking: Option<String>,
    rows: usize,
    bytes: usize,
}

struct Column {
    name: String,
    /// Its place in the table.
    place: usize,
    /// What values are read as.
    data_type: DataType,
    is_nullable: bool,
    values: Values,
}

enum Values {
    Text(StringBuilder),
    Whole(Int64Builder),
    Any(Vec<ScalarValue>),
}

impl Values {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Int64 => Self::Whole(Int64Builder::new()),
            _ => Self::Any(Vec::new()),
        }
    }
}

impl Rows {
    /// Rows of `table`, with values for `columns`. Moments without a zone are in `zone`.
    ///
    /// # Errors
    /// 42703 and 42701 for columns that are not there or come twice, 0A000 for types that Postgres has not.
    pub fn new(
        table: &str,
        schema: &Schema,
        columns: &[String],
        zone: &str,
    ) -> Result<Self, Failure> {
        let mut found: Vec<Column> = Vec::new();
        for name in columns {
            let exact = schema.fields().iter().position(|field| field.name() == name);
            let same = |field: &Arc<Field>| field.name().to_lowercase() == name.to_lowercase();
            let place = exact.or_else(|| schema.fields().iter().position(same));
            let place = place.ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
                Failure::new("42703", message)
            })?;
            if found.iter().any(|column| column.place == place) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(Failure::new("42701", message));
            }
            let field = schema.field(place);
            let data_type = match field.data_type() {
                DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(zone.into())),
                DataType::Struct(_) | DataType::Map(..) => {
                    let message = format!("COPY FROM has no form for column \"{name}\"");
                    return Err(Failure::new("0A000", message)
                        .with_hint("its type has parts: load JSON lines or Parquet over HTTP"));
                }
                other => other.clone(),
            };
            let values = Values::of(&data_type);
            let (name, is_nullable) = (field.name().clone(), field.is_nullable());
            found.push(Column { name, place, data_type, is_nullable, values });
        }
        let mut places = schema.fields().iter().enumerate();
        let lacking = places.find_map(|(place, field)| {
            let comes = found.iter().any(|column| column.place == place);
            (!comes && !field.is_nullable()).then(|| field.name().clone())
        });
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let schema = Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>());
        let (table, schema) = (table.to_owned(), Arc::new(schema));
        Ok(Self { table, schema, columns: found, lacking, rows: 0, bytes: 0 })
    }

    /// One row, of as many values as there are columns, in text (0) or binary (1).
    ///
    /// # Errors
    /// Those of its values.
    pub fn push<'v>(
        &mut self,
        line: u64,
        format: i16,
        values: impl Iterator<Item = Option<&'v [u8]>>,
    ) -> Result<(), Failure> {
        let table = &self.table;
        let no_null = |name: &str| {
            let message = format!(
                "null value in column \"{name}\" of relation \"{table}\" violates not-null constraint"
            );
            Failure::new("23502", message)
        };
        if let Some(name) = &self.lacking {
            return Err(no_null(name).with_context(format!("COPY {table}, line {line}")));
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            let added = match value {
                None if !column.is_nullable => Err(no_null(&column.name)),
                value => column.push(value, format),
            };
            added.map_err(|failure| {
                let shown = match value {
                    None => ": null input".to_owned(),
                    Some(value) if format == 0 => format!(": \"{}\"", shown(value)),
                    Some(_) => String::new(),
                };
                let name = &column.name;
                failure.with_context(format!("COPY {table}, line {line}, column {name}{shown}"))
            })?;
            self.bytes += value.map_or(0, <[u8]>::len);
        }
        self.rows += 1;
        Ok(())
    }

    /// Are there enough for a batch?
    pub fn are_many(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    pub fn are_none(&self) -> bool {
        self.rows == 0
    }

    /// The rows that are here, with all columns of the table.
    ///
    /// # Errors
    /// A bug; it is one, too, to ask for none.
    pub fn batch(&mut self) -> Result<RecordBatch, Failure> {
        let bug = |error: arrow::error::ArrowError| Failure::bug(error.to_string());
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        for column in &mut self.columns {
            let array = column.take().map_err(Failure::bug)?;
            let stored = self.schema.field(column.place).data_type();
            // A moment is the same in every zone; a list's fields may be called otherwise.
            arrays[column.place] = Some(cast(&array, stored).map_err(bug)?);
        }
        let arrays = arrays.into_iter().zip(self.schema.fields()).map(|(array, field)| {
            array.unwrap_or_else(|| new_null_array(field.data_type(), self.rows))
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect());
        (self.rows, self.bytes) = (0, 0);
        batch.map_err(bug)
    }
}

impl Column {
    fn push(&mut self, value: Option<&[u8]>, format: i16) -> Result<(), Failure> {
        let decoded = |data_type: &DataType| {
            decode(value, format, data_type, 0)
                .map_err(|error| Failure::new(error.code(), error.to_string()))
        };
        match &mut self.values {
            Values::Text(texts) => match value {
                None => texts.append_null(),
                Some(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) if !text.contains('\0') => texts.append_value(text),
                    // It says why.
                    _ => drop(decoded(&self.data_type)?),
                },
            },
            Values::Whole(numbers) => {
                let digits =
                    value.filter(|_| format == 0).and_then(|v| std::str::from_utf8(v).ok());
                match digits.and_then(|digits| digits.parse().ok()) {
                    Some(number) => numbers.append_value(number),
                    None => match decoded(&self.data_type)? {
                        ScalarValue::Int64(number) => numbers.append_option(number),
                        other => return Err(Failure::bug(format!("{other} is no bigint"))),
                    },
                }
            }
            Values::Any(values) => values.push(decoded(&self.data_type)?),
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ArrayRef, String> {
        Ok(match &mut self.values {
            Values::Text(texts) => Arc::new(texts.finish()),
            Values::Whole(numbers) => Arc::new(numbers.finish()),
            Values::Any(values) => {
                let values = std::mem::take(values);
                ScalarValue::iter_to_array(values).map_err(|error| error.to_string())?
            }
        })
    }
}

/// Bytes as an error shows them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(4 * SHOWN + 4)];
    let text = String::from_utf8_lossy(head);
    let shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() { shown + "..." } else { shown }
}
