//! What the log says of each file's columns, as DataFusion prunes by it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Int32Type, Schema};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column, ColumnStatistics, Result, ScalarValue};
use uplake_table::{DataFile, Snapshot};

pub(super) fn partition_scalar(
    file: &DataFile,
    column: &str,
    data_type: &DataType,
) -> Result<ScalarValue> {
    // An empty text is NULL, says the protocol.
    let value = file.partition_values.get(column).cloned().flatten();
    match value.filter(|text| !text.is_empty()) {
        Some(text) => ScalarValue::try_from_string(text, data_type),
        None => ScalarValue::try_from(data_type),
    }
}

/// The latest time that a bound stands for: others' logs cut times to milliseconds.
fn up_to(last: ScalarValue) -> ScalarValue {
    match last {
        ScalarValue::TimestampMicrosecond(Some(last), zone) => {
            ScalarValue::TimestampMicrosecond(Some(last.saturating_add(999)), zone)
        }
        other => other,
    }
}

/// Rows of a file, or some of it, and from which id to which theirs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIds {
    pub lowest: u32,
    pub highest: u32,
    pub rows: u64,
}

impl FileIds {
    /// Parts of as many rows each, by the ids up to which all but the last go; the whole if these say nothing.
    pub(super) fn divided(self, up_to: &[u32]) -> impl Iterator<Item = Self> {
        let is_within = |id: &u32| (self.lowest..=self.highest).contains(id);
        let up_to = if up_to.iter().all(is_within) { up_to } else { &[] };
        let parts = up_to.len() as u64 + 1;
        let (mut next, mut before) = (self.lowest, 0);
        (1..=parts).zip(up_to.iter().copied().chain([self.highest])).map(move |(part, highest)| {
            let until = self.rows / parts * part + self.rows % parts * part / parts;
            let rows = until - before;
            // Several parts may be of one id.
            let lowest = next.min(highest);
            (next, before) = (highest.saturating_add(1), until);
            Self { lowest, highest, rows }
        })
    }
}

/// The highest id of files, if there are files.
pub(crate) fn highest_id(files: &[FileIds]) -> Option<u32> {
    files.iter().map(|file| file.highest).max()
}

/// The log's bounds of every file as one array per column and kind.
#[derive(Debug)]
pub(super) struct FileBounds {
    pub(super) files: usize,
    pub(super) min: HashMap<String, ArrayRef>,
    pub(super) max: HashMap<String, ArrayRef>,
    pub(super) nulls: HashMap<String, UInt64Array>,
    pub(super) rows: UInt64Array,
}

impl FileBounds {
    /// `exact`: the columns of `schema` as they are stored.
    pub(super) fn new(
        schema: &Schema,
        exact: &Schema,
        snapshot: &Snapshot,
        files: &[DataFile],
    ) -> Self {
        let per_file: Vec<_> = files.iter().map(DataFile::column_bounds).collect();
        let (mut min, mut max, mut nulls) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (exact, field) in exact.fields().iter().zip(schema.fields()) {
            let (exact, name) = (exact.name(), field.name());
            let data_type = field.data_type();
            if snapshot.partition_columns().contains(exact) {
                let values: Vec<ScalarValue> = files
                    .iter()
                    .map(|f| partition_scalar(f, exact, data_type))
                    .collect::<Result<_>>()
                    .unwrap_or_default();
                if let Ok(array) = ScalarValue::iter_to_array(values) {
                    min.insert(name.clone(), Arc::clone(&array));
                    max.insert(name.clone(), array);
                }
                let count = |f: &DataFile| match f.partition_values.get(exact) {
                    Some(Some(text)) if !text.is_empty() => Some(0),
                    _ => f.rows,
                };
                nulls.insert(name.clone(), files.iter().map(count).collect());
                continue;
            }
            // NaN has no place in Parquet's bounds, so float bounds do not hold for every value; those of
            // decimals come through floats.
            let bounded = !data_type.is_floating() && !data_type.is_decimal();
            let scalar = |text: Option<&String>| {
                text.filter(|_| bounded)
                    .and_then(|t| ScalarValue::try_from_string(t.clone(), data_type).ok())
                    .or_else(|| ScalarValue::try_from(data_type).ok())
            };
            let lows: Option<Vec<ScalarValue>> = per_file
                .iter()
                .map(|b| scalar(b.get(exact).and_then(|c| c.min.as_ref())))
                .collect();
            let highs: Option<Vec<ScalarValue>> = per_file
                .iter()
                .zip(files)
                .map(|(b, file)| {
                    let last = scalar(b.get(exact).and_then(|c| c.max.as_ref()))?;
                    // Ours have a checksum.
                    Some(if file.crc32.is_some() { last } else { up_to(last) })
                })
                .collect();
            for (bounds, values) in [(&mut min, lows), (&mut max, highs)] {
                if let Some(Ok(array)) = values.map(ScalarValue::iter_to_array) {
                    bounds.insert(name.clone(), array);
                }
            }
            nulls.insert(
                name.clone(),
                per_file.iter().map(|b| b.get(exact).and_then(|c| c.nulls)).collect(),
            );
        }
        let rows = files.iter().map(|f| f.rows).collect();
        Self { files: files.len(), min, max, nulls, rows }
    }

    /// The ids of each file in a column of theirs; `None` if a file does not say.
    pub(super) fn ids(&self, column: &str) -> Option<Vec<FileIds>> {
        let known = |bounds: &HashMap<String, ArrayRef>| {
            let ids = bounds.get(column)?.as_primitive_opt::<Int32Type>()?;
            (ids.null_count() == 0).then(|| ids.values().to_vec())
        };
        let (least, most) = (known(&self.min)?, known(&self.max)?);
        let id = |id: i32| u32::try_from(id).ok();
        let of_file = |((least, most), rows): ((i32, i32), Option<u64>)| {
            let (lowest, highest) = (id(least)?, id(most)?);
            Some(FileIds { lowest, highest, rows: rows.unwrap_or_default() })
        };
        least.into_iter().zip(most).zip(&self.rows).map(of_file).collect()
    }

    /// The bounds of a column over several files; unknown if one of them has none.
    pub(super) fn over_files(&self, column: &str, files: &[usize]) -> ColumnStatistics {
        let mut parts = files.iter().map(|file| self.column_statistics(column, *file));
        let Some(mut whole) = parts.next() else { return ColumnStatistics::new_unknown() };
        for part in parts {
            whole.min_value = whole.min_value.min(&part.min_value);
            whole.max_value = whole.max_value.max(&part.max_value);
            whole.null_count = whole.null_count.add(&part.null_count);
        }
        whole
    }

    pub(super) fn column_statistics(&self, column: &str, file: usize) -> ColumnStatistics {
        let bound = |arrays: &HashMap<String, ArrayRef>| {
            arrays
                .get(column)
                .and_then(|array| ScalarValue::try_from_array(array, file).ok())
                .filter(|value| !value.is_null())
                .map_or(Precision::Absent, Precision::Inexact)
        };
        let nulls = self.nulls.get(column).filter(|n| n.is_valid(file));
        ColumnStatistics {
            null_count: nulls
                .map_or(Precision::Absent, |n| Precision::Inexact(n.value(file) as usize)),
            min_value: bound(&self.min),
            max_value: bound(&self.max),
            ..ColumnStatistics::new_unknown()
        }
    }
}

impl PruningStatistics for FileBounds {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.min.get(&column.name).cloned()
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.max.get(&column.name).cloned()
    }

    fn num_containers(&self) -> usize {
        self.files
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        self.nulls.get(&column.name).map(|n| Arc::new(n.clone()) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.rows.clone()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_divided_by_its_quantiles() {
        let ids = |lowest, highest, rows| FileIds { lowest, highest, rows };
        let divided = |up_to: &[u32]| ids(10, 99, 11).divided(up_to).collect::<Vec<_>>();
        assert_eq!(divided(&[]), [ids(10, 99, 11)]);
        assert_eq!(divided(&[20, 49]), [ids(10, 20, 3), ids(21, 49, 4), ids(50, 99, 4)]);
        // Most rows are of one id.
        assert_eq!(divided(&[10, 10]), [ids(10, 10, 3), ids(10, 10, 4), ids(11, 99, 4)]);
        assert_eq!(divided(&[99, 99]), [ids(10, 99, 3), ids(99, 99, 4), ids(99, 99, 4)]);
        // Of another file.
        assert_eq!(divided(&[9, 20]), [ids(10, 99, 11)]);
        assert_eq!(divided(&[20, 100]), [ids(10, 99, 11)]);
        let large = ids(0, u32::MAX, u64::MAX).divided(&[7, u32::MAX]).collect::<Vec<_>>();
        assert_eq!(large.iter().map(|part| part.rows).sum::<u64>(), u64::MAX);
    }
}
