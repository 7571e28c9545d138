//! One JSON object for a whole answer: `{"columns": […], "rows": […], …, "complete": true}`.
//!
//! # Invariants
//! - Values have the bytes that JSON lines have for them.
//! - `"complete": true` is the last member, so that an object that was cut anywhere is no JSON.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};
use serde_json::json;
use uplake_table::type_name;

use super::non_finite::NonFinite;

/// Writes such an object, part by part.
#[derive(Debug)]
pub(crate) struct Document {
    options: EncoderOptions,
    rows: u64,
}

impl Document {
    /// Begins with the columns.
    pub fn begin(schema: &Schema, out: &mut Vec<u8>) -> Self {
        let columns = schema.fields().iter().map(|field| {
            json!({
                "name": field.name(),
                "type": type_name(field.data_type()),
                "nullable": field.is_nullable(),
            })
        });
        let columns = serde_json::Value::Array(columns.collect());
        out.extend_from_slice(format!("{{\"columns\":{columns},\"rows\":[").as_bytes());
        let options = EncoderOptions::default()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(NonFinite));
        Self { options, rows: 0 }
    }

    /// Writes rows, each an array in the order of the columns.
    ///
    /// # Errors
    /// A type that JSON cannot hold.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let schema = batch.schema();
        let mut encoders = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| make_encoder(field, column.as_ref(), &self.options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            out.extend_from_slice(if self.rows == 0 { b"\n[" } else { b",\n[" });
            self.rows += 1;
            for (at, encoder) in encoders.iter_mut().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                match encoder.is_null(row) {
                    true => out.extend_from_slice(b"null"),
                    false => encoder.encode(row, out),
                }
            }
            out.push(b']');
        }
        Ok(())
    }

    /// Ends it; `is_cut`: there are more rows than were asked for.
    pub fn finish(self, is_cut: bool, out: &mut Vec<u8>) {
        let rows = self.rows;
        let end = format!("\n],\"row_count\":{rows},\"truncated\":{is_cut},\"complete\":true}}\n");
        out.extend_from_slice(end.as_bytes());
    }

    /// The object of a statement without rows.
    pub fn done(message: &str, rows: Option<u64>) -> Vec<u8> {
        let message = json!(message);
        let affected = json!(rows);
        format!(
            "{{\"columns\":[],\"rows\":[],\"message\":{message},\"rows_affected\":{affected},\"complete\":true}}\n"
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn an_answer_is_one_object_with_its_values_in_rows() {
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![Some(i64::MAX), None])) as ArrayRef),
            ("x", Arc::new(Float64Array::from(vec![f64::NAN, 0.5])) as ArrayRef),
            ("s", Arc::new(StringArray::from(vec!["a\"b", "\n"])) as ArrayRef),
        ])
        .unwrap();
        let mut out = Vec::new();
        let mut document = Document::begin(&batch.schema(), &mut out);
        document.write(&batch, &mut out).unwrap();
        let cut = out.clone();
        document.finish(false, &mut out);
        assert!(serde_json::from_slice::<serde_json::Value>(&cut).is_err());
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("[9223372036854775807,\"NaN\",\"a\\\"b\"]"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["rows"][1], json!([null, 0.5, "\n"]));
        assert_eq!(read["columns"][0]["name"], "n");
        assert_eq!(read["complete"], true);
    }
}
