//! Delta's per-file statistics, from the Parquet footer that was just written.
//!
//! # Source
//! Delta protocol, "Per-file Statistics": `numRecords`, `minValues`, `maxValues`, `nullCount`.

use arrow::datatypes::{DataType, Schema, TimeUnit};
use chrono::DateTime;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use serde_json::{Map, Number, Value, json};

/// Delta readers index this many leading columns by default (`delta.dataSkippingNumIndexedCols`).
const INDEXED_COLUMNS: usize = 32;
/// Longer string bounds are cut; a cut maximum is rounded up by one code point.
const STRING_BOUND_CHARS: usize = 32;

/// The `stats` JSON of a file.
pub(crate) fn delta_stats(metadata: &ParquetMetaData, schema: &Schema) -> String {
    let (mut min, mut max, mut nulls) = (Map::new(), Map::new(), Map::new());
    let flat = schema.fields().iter().all(|f| !f.data_type().is_nested());
    if flat {
        for (i, field) in schema.fields().iter().enumerate().take(INDEXED_COLUMNS) {
            let column = ColumnBounds::collect(metadata, i, field.data_type());
            if let Some(count) = column.nulls {
                nulls.insert(field.name().clone(), json!(count));
            }
            if let (Some(low), Some(high)) = (column.min, column.max) {
                min.insert(field.name().clone(), low);
                max.insert(field.name().clone(), high);
            }
        }
    }
    json!({
        "numRecords": metadata.file_metadata().num_rows(),
        "minValues": min,
        "maxValues": max,
        "nullCount": nulls,
    })
    .to_string()
}

struct ColumnBounds {
    min: Option<Value>,
    max: Option<Value>,
    nulls: Option<u64>,
}

impl ColumnBounds {
    fn collect(metadata: &ParquetMetaData, column: usize, data_type: &DataType) -> Self {
        let mut merged: Option<(Bound, Bound)> = None;
        let (mut nulls, mut known, mut nulls_known) = (0, true, true);
        for group in metadata.row_groups() {
            let chunk = group.column(column);
            let statistics = chunk.statistics();
            match statistics.and_then(Statistics::null_count_opt) {
                Some(n) => nulls += n,
                None => nulls_known = false,
            }
            let all_null =
                statistics.and_then(Statistics::null_count_opt) == Some(group.num_rows() as u64);
            if all_null {
                continue;
            }
            match statistics.and_then(|s| bounds(s, data_type)) {
                Some((low, high)) => {
                    merged = Some(match merged {
                        None => (low, high),
                        Some((a, b)) => (a.smaller(low), b.larger(high)),
                    });
                }
                None => known = false,
            }
        }
        let (min, max) = match merged {
            Some((low, high)) if known => (low.lower_json(data_type), high.upper_json(data_type)),
            _ => (None, None),
        };
        Self { min, max, nulls: nulls_known.then_some(nulls) }
    }
}

#[derive(Clone)]
enum Bound {
    Integer(i64),
    Float(f64),
    Text(String),
}

fn bounds(statistics: &Statistics, data_type: &DataType) -> Option<(Bound, Bound)> {
    match (statistics, data_type) {
        (_, DataType::Decimal128(_, _) | DataType::Boolean | DataType::Binary) => None,
        (Statistics::Int32(s), _) => Some((
            Bound::Integer(i64::from(*s.min_opt()?)),
            Bound::Integer(i64::from(*s.max_opt()?)),
        )),
        (Statistics::Int64(s), _) => {
            Some((Bound::Integer(*s.min_opt()?), Bound::Integer(*s.max_opt()?)))
        }
        (Statistics::Float(s), _) => {
            Some((Bound::Float(f64::from(*s.min_opt()?)), Bound::Float(f64::from(*s.max_opt()?))))
        }
        (Statistics::Double(s), _) => {
            Some((Bound::Float(*s.min_opt()?), Bound::Float(*s.max_opt()?)))
        }
        (Statistics::ByteArray(s), DataType::Utf8) => Some((
            Bound::Text(valid_prefix(s.min_opt()?.data())),
            // A truncated maximum was already rounded up by the Parquet writer.
            Bound::Text(std::str::from_utf8(s.max_opt()?.data()).ok()?.to_owned()),
        )),
        _ => None,
    }
}

/// The longest valid UTF-8 prefix: never larger than the bytes, so still a lower bound.
fn valid_prefix(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(e) => String::from_utf8_lossy(&bytes[..e.valid_up_to()]).into_owned(),
    }
}

impl Bound {
    fn smaller(self, other: Self) -> Self {
        if self.is_below(&other) { self } else { other }
    }

    fn larger(self, other: Self) -> Self {
        if self.is_below(&other) { other } else { self }
    }

    fn is_below(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a < b,
            (Self::Float(a), Self::Float(b)) => a < b,
            (Self::Text(a), Self::Text(b)) => a < b,
            _ => false,
        }
    }

    fn lower_json(self, data_type: &DataType) -> Option<Value> {
        match self {
            Self::Text(text) => {
                Some(Value::String(text.chars().take(STRING_BOUND_CHARS).collect()))
            }
            other => other.number_json(data_type, false),
        }
    }

    fn upper_json(self, data_type: &DataType) -> Option<Value> {
        match self {
            Self::Text(text) => upper_text(&text).map(Value::String),
            other => other.number_json(data_type, true),
        }
    }

    fn number_json(self, data_type: &DataType, upper: bool) -> Option<Value> {
        match (self, data_type) {
            (Self::Integer(days), DataType::Date32) => {
                let instant = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?;
                Some(Value::String(instant.format("%Y-%m-%d").to_string()))
            }
            (Self::Integer(micros), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
                // Readers may take milliseconds: bounds are widened to whole ones.
                let millis =
                    if upper { micros.div_euclid(1000) + 1 } else { micros.div_euclid(1000) };
                let instant = DateTime::from_timestamp_millis(millis)?;
                let suffix = if zone.is_some() { "Z" } else { "" };
                Some(Value::String(format!("{}{suffix}", instant.format("%Y-%m-%dT%H:%M:%S%.3f"))))
            }
            (Self::Integer(n), _) => Some(Value::Number(n.into())),
            (Self::Float(x), _) => Number::from_f64(x).map(Value::Number),
            (Self::Text(_), _) => None,
        }
    }
}

/// A string not smaller than `text`, of at most [`STRING_BOUND_CHARS`] characters.
fn upper_text(text: &str) -> Option<String> {
    if text.chars().count() <= STRING_BOUND_CHARS {
        return Some(text.to_owned());
    }
    let mut head: Vec<char> = text.chars().take(STRING_BOUND_CHARS).collect();
    while let Some(last) = head.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            head.push(next);
            return Some(head.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_maximum_is_still_a_maximum() {
        let long = "é".repeat(40);
        let bound = upper_text(&long).unwrap();
        assert!(bound.as_str() > long.as_str());
        assert_eq!(bound.chars().count(), STRING_BOUND_CHARS);
        let top = char::MAX.to_string().repeat(40);
        assert_eq!(upper_text(&top), None);
        assert_eq!(upper_text("short").as_deref(), Some("short"));
    }

    #[test]
    fn timestamp_bounds_are_widened_to_whole_milliseconds() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let low = Bound::Integer(-1).lower_json(&utc).unwrap();
        let high = Bound::Integer(-1).upper_json(&utc).unwrap();
        assert_eq!(low, "1969-12-31T23:59:59.999Z");
        assert_eq!(high, "1970-01-01T00:00:00.000Z");
    }
}
