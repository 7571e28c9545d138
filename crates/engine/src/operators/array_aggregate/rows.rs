//! The groups of a batch's rows: one for each row, or for each run of rows that are alike.
//!
//! Tables are sorted by user, so that a user's rows stand together, and a file is of one day. A run's
//! group is looked for once, and what a run adds up to is added once.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array, downcast_primitive_array};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use uplake_functions::RowRun;

use crate::operators::array_aggregate::keys::Keys;

/// Runs are worth it if they have so many rows.
const RUN_ROWS: usize = 3;
/// So many bytes of at most 1 add up to a byte.
const ADDED_TOGETHER: usize = 240;
/// The first rows of a batch say whether others are looked at.
const SAMPLE_ROWS: usize = 256;

/// Reused from batch to batch.
#[derive(Default)]
pub(crate) struct RowGroups {
    count: usize,
    /// Of each row; of runs they are written out when somebody asks.
    groups: Vec<usize>,
    runs: Vec<RowRun>,
    changes: Vec<u8>,
    of_runs: Vec<usize>,
}

impl RowGroups {
    /// Finds the groups of rows by `columns`, see [`Keys::find`].
    pub fn find(&mut self, keys: &mut Keys, columns: &[ArrayRef]) -> Result<()> {
        self.count = columns.first().map_or(0, |column| column.len());
        self.groups.clear();
        self.runs.clear();
        let Some(starts) = self.starts(columns) else {
            return keys.find(columns, &mut self.groups);
        };
        let firsts = UInt32Array::from(starts);
        let alike = columns.iter().map(|column| take(column, &firsts, None));
        keys.find(&alike.collect::<Result<Vec<_>, _>>()?, &mut self.of_runs)?;
        let ends = firsts.values().iter().skip(1).map(|end| *end as usize).chain([self.count]);
        let runs = ends.zip(&self.of_runs).map(|(end, group)| RowRun { end, group: *group });
        self.runs.extend(runs);
        Ok(())
    }

    /// Where runs begin, if they are long.
    fn starts(&mut self, columns: &[ArrayRef]) -> Option<Vec<u32>> {
        if self.count < RUN_ROWS {
            return None;
        }
        let sample = self.count.min(SAMPLE_ROWS);
        if self.runs_of_first(sample, columns)? * RUN_ROWS > sample {
            return None;
        }
        let runs = self.runs_of_first(self.count, columns)?;
        if runs * RUN_ROWS > self.count {
            return None;
        }
        // Without a branch: where a run ends is hard to foresee.
        let (mut starts, mut found) = (vec![0; runs + 1], 0);
        for (row, change) in self.changes.iter().enumerate() {
            starts[found] = row as u32;
            found += usize::from(*change);
        }
        starts.truncate(runs);
        Some(starts)
    }

    /// How many runs the first rows are in; marks where they begin.
    fn runs_of_first(&mut self, rows: usize, columns: &[ArrayRef]) -> Option<usize> {
        self.changes.clear();
        self.changes.resize(rows, 0);
        self.changes[0] = 1;
        for column in columns {
            let column = &column.slice(0, rows);
            downcast_primitive_array!(
                column => changes_of(column.values(), column.nulls(), &mut self.changes),
                DataType::Utf8View => {
                    let texts = column.as_string_view();
                    changes_of(texts.views(), texts.nulls(), &mut self.changes);
                }
                _ => return None
            );
        }
        // Bytes are added at once as long as their sum is one.
        let few = self.changes.chunks(ADDED_TOGETHER);
        Some(few.map(|few| usize::from(few.iter().sum::<u8>())).sum())
    }

    /// Rows there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Runs, if rows are in runs.
    pub fn runs(&self) -> Option<&[RowRun]> {
        (!self.runs.is_empty()).then_some(&self.runs)
    }

    /// The group of each row.
    pub fn groups(&mut self) -> &[usize] {
        if self.groups.is_empty() {
            for run in &self.runs {
                self.groups.resize(run.end, run.group);
            }
        }
        &self.groups
    }

    /// Calls `add` with each row of `rows`, in order, and its group.
    pub fn each_of(&self, rows: &BooleanBuffer, mut add: impl FnMut(usize, usize)) {
        let Some(runs) = self.runs() else {
            return rows.set_indices().for_each(|row| add(row, self.groups[row]));
        };
        let mut runs = runs.iter();
        let Some(mut run) = runs.next() else { return };
        for row in rows.set_indices() {
            while row >= run.end {
                match runs.next() {
                    Some(next) => run = next,
                    None => return,
                }
            }
            add(row, run.group);
        }
    }

    /// Adds so much for each row to its group.
    pub fn add_to_each(&self, counts: &mut [i64], by: i64) {
        match self.runs() {
            Some(runs) => {
                let mut start = 0;
                for run in runs {
                    counts[run.group] += by * (run.end - start) as i64;
                    start = run.end;
                }
            }
            None => self.groups.iter().for_each(|group| counts[*group] += by),
        }
    }
}

/// Marks rows that are not like the one before.
fn changes_of<T: PartialEq>(values: &[T], nulls: Option<&NullBuffer>, changes: &mut [u8]) {
    let ([_, changes @ ..], [_, later @ ..]) = (changes, values) else { return };
    // Slices of one length: several are compared at once.
    for ((change, a), b) in changes.iter_mut().zip(&values[..later.len()]).zip(later) {
        *change |= u8::from(a != b);
    }
    if let Some(nulls) = nulls {
        let pairs = nulls.iter().zip(nulls.iter().skip(1));
        changes.iter_mut().zip(pairs).for_each(|(change, (a, b))| *change |= u8::from(a != b));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Date32Array, Int32Array, StringViewArray};

    use super::*;
    use crate::operators::array_aggregate::keys::BuildRowKeys;

    /// Groups by runs are the groups row by row, whatever the lengths of runs.
    #[test]
    fn runs_have_the_groups_of_their_rows() {
        let mut random = 5u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for longest in [1, 3, 20, 300] {
            let (mut ids, mut partners) = (Vec::new(), Vec::new());
            while ids.len() < 1000 {
                let (id, partner) = (next(40) as i32, next(3) as u32);
                for _ in 0..=next(longest) {
                    ids.push((id > 0).then_some(id));
                    partners.push(if partner == 0 {
                        super::super::keys::NO_MATCH
                    } else {
                        id as u32
                    });
                }
            }
            let rows = ids.len();
            let texts: StringViewArray =
                ids.iter().map(|id| id.map(|id| format!("text {}", id % 3))).collect();
            let ids: ArrayRef = Arc::new(Int32Array::from(ids));
            let days: ArrayRef = Arc::new(Date32Array::from(vec![7; rows]));
            let few: [ArrayRef; 2] = [days, Arc::new(texts)];
            let by_id = [Arc::clone(&ids)];
            let by_partner: [ArrayRef; 1] = [Arc::new(UInt32Array::from(partners))];
            for columns in [&by_id[..], &by_partner[..], &few[..]] {
                let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
                let keys = || match types.as_slice() {
                    [DataType::UInt32] => {
                        Keys::Partner(BuildRowKeys { rows: 0..40, ids: Arc::clone(&ids) })
                    }
                    types => Keys::new(types, types.len() == 1),
                };
                let (mut by_row, mut expected) = (keys(), Vec::new());
                by_row.find(columns, &mut expected).unwrap();
                let mut found = RowGroups::default();
                found.find(&mut keys(), columns).unwrap();
                assert!(longest < 300 || found.runs().is_some());
                let wanted = BooleanBuffer::collect_bool(rows, |row| row % 7 == 3);
                let mut counts = vec![0; 50];
                found.each_of(&wanted, |row, group| {
                    assert_eq!(group, expected[row]);
                    counts[group] -= 1;
                });
                found.add_to_each(&mut counts, 1);
                for (group, count) in counts.iter().enumerate() {
                    let of_group = |row: &usize| expected[*row] == group && row % 7 != 3;
                    assert_eq!(*count, (0..rows).filter(of_group).count() as i64);
                }
                assert_eq!(found.groups(), expected);
            }
        }
    }
}
