//! How a file's rows are spread over its ids: quantiles, from a sample of the rows as they are written.
//!
//! Ids are numbered as users come, and who came first comes most often: the lowest tenth of all ids has a quarter of a
//! day's rows. Who divides rows by their ids has to know (`uplake-engine`, parts of statements).
//!
//! # Invariants
//! - They say nothing of which ids are in a file: what is read never depends on them.

use std::collections::HashMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int32Type;

use crate::id_domain::spec::{id_column, parse_tag};

/// Parts of as many rows each, about.
const PARTS: usize = 16;
/// One of so many rows is looked at. A prime, since rows may repeat themselves.
const EVERY: usize = 61;
/// Ids that say enough: with fewer, bounds do.
const LEAST: usize = 16 * PARTS;

/// The ids of some rows of a file, of each key column.
pub(crate) struct IdSample {
    columns: Vec<(String, Vec<i32>)>,
    /// Rows of the next batch before the next one that is looked at.
    skipped: usize,
}

impl IdSample {
    pub fn new<'a>(columns: impl Iterator<Item = &'a str>) -> Self {
        Self {
            columns: columns.map(|column| (column.to_owned(), Vec::new())).collect(),
            skipped: 0,
        }
    }

    pub fn look_at(&mut self, rows: &RecordBatch) {
        let places = (self.skipped..rows.num_rows()).step_by(EVERY);
        self.skipped = (self.skipped + places.len() * EVERY) - rows.num_rows();
        for (column, found) in &mut self.columns {
            let Some(ids) = rows.column_by_name(&id_column(column)) else { continue };
            let Some(ids) = ids.as_primitive_opt::<Int32Type>() else { continue };
            found.extend(places.clone().filter(|row| ids.is_valid(*row)).map(|row| ids.value(row)));
        }
    }

    /// The tag of the file, `column:id;id;…`, comma separated: the ids up to which one, two, … sixteenths of the rows go.
    /// `None` of few rows.
    pub fn tag(self) -> Option<String> {
        let enough = self.columns.into_iter().filter(|(_, ids)| ids.len() >= LEAST);
        let one = |(column, mut ids): (String, Vec<i32>)| {
            ids.sort_unstable();
            let up_to = (1..PARTS).map(|part| ids[ids.len() * part / PARTS - 1].to_string());
            format!("{column}:{}", up_to.collect::<Vec<_>>().join(";"))
        };
        let all: Vec<String> = enough.map(one).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

/// Column to ids of a tag, as far as they are in order.
pub(crate) fn parse(text: &str) -> HashMap<String, Vec<u32>> {
    let ids = |text: &str| {
        let ids: Vec<u32> = text.split(';').map(str::parse).collect::<Result<_, _>>().ok()?;
        ids.is_sorted().then_some(ids)
    };
    let columns = parse_tag(text).into_iter();
    columns.filter_map(|(column, text)| Some((column, ids(&text)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array};

    use super::*;

    /// A batch of these ids of `user`, and of `item` without any.
    fn batch(ids: impl IntoIterator<Item = Option<i32>>) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int32Array::from_iter(ids));
        let none: ArrayRef = Arc::new(Int32Array::new_null(ids.len()));
        RecordBatch::try_from_iter([(id_column("user"), ids), (id_column("item"), none)]).unwrap()
    }

    #[test]
    fn quantiles_are_those_of_rows() {
        // Three of four rows have the ids below 100, in saws; every fifth has none.
        let id = |row: i32| if row % 4 < 3 { row / 7 % 100 } else { 100 + row / 3 % 900 };
        let rows: Vec<_> = (0..100_000).map(|row| (row % 5 > 0).then(|| id(row))).collect();
        let mut of_rows: Vec<i32> = rows.iter().flatten().copied().collect();
        of_rows.sort_unstable();
        for lengths in [[100_000, 1, 1], [1, 63, 64], [8192, 65, 7]] {
            let mut sample = IdSample::new(["user", "item", "other"].into_iter());
            let (mut from, mut lengths) = (0, lengths.into_iter().cycle());
            while from < rows.len() {
                let to = (from + lengths.next().unwrap()).min(rows.len());
                sample.look_at(&batch(rows[from..to].iter().copied()));
                from = to;
            }
            assert_eq!(sample.columns[0].1.len(), 1312, "four of five have one");
            let found = parse(&sample.tag().unwrap());
            assert_eq!(found.keys().collect::<Vec<_>>(), ["user"]);
            let found = &found["user"];
            assert_eq!(found.len(), 15);
            for (number, id) in found.iter().enumerate() {
                let below = of_rows.partition_point(|of_row| (*of_row as u32) <= *id);
                let share = below as f64 / of_rows.len() as f64;
                assert!(
                    (share - (number + 1) as f64 / 16.0).abs() < 0.03,
                    "{number}: {id} {share}"
                );
            }
        }
    }

    #[test]
    fn few_rows_have_no_tag() {
        let tag = |rows: usize| {
            let mut sample = IdSample::new(["user"].into_iter());
            sample.look_at(&batch(vec![Some(7); rows]));
            sample.tag()
        };
        assert_eq!(tag(255 * EVERY), None);
        let seven = ["7"; 15].join(";");
        assert_eq!(tag(256 * EVERY), Some(format!("user:{seven}")));
    }

    #[test]
    fn a_tag_that_is_none_says_nothing() {
        let parsed = [("user".to_owned(), vec![1, 2, 2]), ("item".to_owned(), vec![7])];
        assert_eq!(parse("user:1;2;2,item:7"), parsed.into());
        for wrong in ["", "u", "u:", "u:1;", "u:2;1", "u:-1", "u:x", "u:4294967296"] {
            assert_eq!(parse(wrong), HashMap::new(), "{wrong}");
        }
    }
}
