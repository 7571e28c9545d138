//! A file's columns fitted to the table's: found by name, widened, missing ones NULL.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;

use super::bad_row::{BadRow, shorten};
use crate::error::{Result, TableError};
use crate::schema::{first_cut, type_name, widens};

/// Maps batches of one file to the table's schema.
#[derive(Clone)]
pub(crate) struct Fit {
    file: String,
    table: SchemaRef,
    /// For each table column, the file's column.
    sources: Vec<Option<usize>>,
}

impl Fit {
    /// # Errors
    /// A column the table lacks, a type that does not widen, or a missing column that may not be NULL.
    pub fn new(file: &str, found: &Schema, table: &SchemaRef) -> Result<Self> {
        for field in found.fields() {
            let Ok(target) = table.field_with_name(field.name()) else {
                return Err(TableError::NewColumn {
                    file: file.to_owned(),
                    column: field.name().clone(),
                    type_name: type_name(field.data_type()),
                });
            };
            if !widens(field.data_type(), target.data_type()) {
                return Err(TableError::TypeClash {
                    file: file.to_owned(),
                    column: field.name().clone(),
                    found: type_name(field.data_type()),
                    expected: type_name(target.data_type()),
                });
            }
        }
        let mut sources = Vec::with_capacity(table.fields().len());
        for field in table.fields() {
            let source = found.index_of(field.name()).ok();
            if source.is_none() && !field.is_nullable() {
                return Err(TableError::Input {
                    file: file.to_owned(),
                    reason: format!("lacks column `{}`, which may not be NULL", field.name()),
                });
            }
            sources.push(source);
        }
        Ok(Self { file: file.to_owned(), table: SchemaRef::clone(table), sources })
    }

    /// The batch in the table's schema, without the rows that do not fit; `first_row` is the row
    /// number of the batch's first row in its file, from 1.
    pub fn apply(&self, batch: &RecordBatch, first_row: u64) -> Result<(RecordBatch, Vec<BadRow>)> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.sources.len());
        let mut good: Option<Vec<bool>> = None;
        let mut bad = Vec::new();
        for (field, source) in self.table.fields().iter().zip(&self.sources) {
            let Some(source) = source else {
                columns.push(new_null_array(field.data_type(), rows));
                continue;
            };
            let input = batch.column(*source);
            let output = convert(input, field.data_type()).map_err(|e| {
                TableError::arrow(format!("{}, column `{}`", self.file, field.name()), e)
            })?;
            if input.data_type().is_nested() {
                self.check_nested(input, &output, field.name())?;
            }
            // A column of type Null has no validity buffer, but holds nothing.
            let has_value =
                |row: usize| input.data_type() != &DataType::Null && input.is_valid(row);
            let lost = |row: usize| {
                has_value(row) && (output.is_null(row) || is_cut(input, row))
                    || output.is_null(row) && !field.is_nullable()
            };
            let suspicious = output.null_count() > input.null_count()
                || !field.is_nullable() && output.null_count() > 0
                || first_cut(input).is_some();
            if suspicious {
                for row in (0..rows).filter(|row| lost(*row)) {
                    let flags = good.get_or_insert_with(|| vec![true; rows]);
                    if std::mem::replace(&mut flags[row], false) {
                        bad.push(self.bad_row(
                            input,
                            row,
                            first_row,
                            field.name(),
                            field.data_type(),
                        ));
                    }
                }
            }
            columns.push(output);
        }
        bad.sort_by_key(|b| b.line);
        let Some(good) = good else {
            let fitted = RecordBatch::try_new(SchemaRef::clone(&self.table), columns)
                .map_err(|e| TableError::arrow(format!("reading {}", self.file), e))?;
            return Ok((fitted, bad));
        };
        let keep = BooleanArray::new(BooleanBuffer::from(good), None);
        // NOT NULL columns may hold the NULLs of bad rows until those are filtered out.
        let loose = Schema::new(
            self.table
                .fields()
                .iter()
                .map(|f| f.as_ref().clone().with_nullable(true))
                .collect::<Vec<_>>(),
        );
        let fitted = RecordBatch::try_new(loose.into(), columns)
            .and_then(|b| filter_record_batch(&b, &keep))
            .and_then(|b| RecordBatch::try_new(SchemaRef::clone(&self.table), b.columns().to_vec()))
            .map_err(|e| TableError::arrow(format!("reading {}", self.file), e))?;
        Ok((fitted, bad))
    }

    /// Values inside lists and structs are checked as a whole: what was widened must come back the same.
    fn check_nested(&self, input: &ArrayRef, output: &ArrayRef, column: &str) -> Result<()> {
        if input.data_type() == output.data_type() {
            return Ok(());
        }
        let options = CastOptions { safe: false, ..Default::default() };
        let back = cast_with_options(input, output.data_type(), &options)
            .and_then(|strict| cast_with_options(&strict, input.data_type(), &options));
        match back {
            Ok(back) if back.to_data() == input.to_data() => Ok(()),
            _ => Err(TableError::Input {
                file: self.file.clone(),
                reason: format!(
                    "column `{column}` holds values inside lists or structs that {} cannot keep \
                     without changing them; convert them first",
                    type_name(output.data_type())
                ),
            }),
        }
    }

    fn bad_row(
        &self,
        input: &ArrayRef,
        row: usize,
        first_row: u64,
        column: &str,
        wanted: &DataType,
    ) -> BadRow {
        let value = if input.is_null(row) {
            "NULL".to_owned()
        } else {
            array_value_to_string(input, row).unwrap_or_default()
        };
        let problem = if input.is_null(row) {
            "is not allowed: the column is NOT NULL".to_owned()
        } else {
            format!("does not fit {} without changing it", type_name(wanted))
        };
        BadRow {
            file: self.file.clone(),
            line: first_row + row as u64,
            is_row: true,
            column: Some(column.to_owned()),
            value: Some(shorten(&value)),
            problem,
            record: value,
        }
    }
}

fn convert(input: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, arrow::error::ArrowError> {
    if input.data_type() == wanted {
        return Ok(ArrayRef::clone(input));
    }
    cast_with_options(input, wanted, &CastOptions { safe: true, ..Default::default() })
}

/// Is the value finer than what it would be stored as?
fn is_cut(input: &ArrayRef, row: usize) -> bool {
    first_cut(&input.slice(row, 1)).is_some()
}
