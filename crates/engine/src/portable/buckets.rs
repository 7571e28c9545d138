//! Rows told apart by the hash of their keys: which part of the next step of a statement has them.

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// Not what DataFusion's own operators begin with: they tell the rows of a bucket apart once more.
const SEED: RandomState = RandomState::with_seed(0x7570_6c61_6b65);

/// How rows are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The columns, by their places.
    pub keys: Vec<u32>,
    pub count: u32,
}

impl Buckets {
    /// The rows of a batch with their buckets, of those that have some.
    ///
    /// # Errors
    /// Keys that are no columns of the batch, and those that cannot be hashed.
    pub fn of(&self, batch: &RecordBatch) -> Result<Vec<(u32, RecordBatch)>> {
        if self.count <= 1 || batch.num_rows() == 0 {
            return Ok((batch.num_rows() > 0).then(|| (0, batch.clone())).into_iter().collect());
        }
        let places: Vec<usize> = self.keys.iter().map(|key| *key as usize).collect();
        let keys = batch.project(&places)?;
        let mut hashes = vec![0; batch.num_rows()];
        create_hashes(keys.columns(), &SEED, &mut hashes)?;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.count as usize];
        for (row, hash) in (0..).zip(&hashes) {
            rows[(hash % u64::from(self.count)) as usize].push(row);
        }
        let taken = (0..).zip(rows).filter(|(_, rows)| !rows.is_empty()).map(|(bucket, rows)| {
            Ok((bucket, take_record_batch(batch, &UInt32Array::from(rows))?))
        });
        taken.collect()
    }
}

/// Have values of this type that are equal the same hash? Of floats, 0 and -0 are equal.
pub(crate) fn is_key(kind: &DataType) -> bool {
    kind.is_integer()
        || kind.is_temporal()
        || matches!(
            kind,
            DataType::Boolean
                | DataType::Decimal128(..)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn equal_keys_are_in_one_bucket_and_every_row_in_one() {
        let numbers = Int64Array::from_iter((0..1000).map(|n| (n % 7 != 0).then_some(n % 50)));
        let texts =
            StringViewArray::from_iter((0..1000).map(|n| (n % 3 != 0).then(|| "x".repeat(n % 20))));
        let row = Int64Array::from_iter_values(0..1000);
        let columns: [(&str, ArrayRef); 3] =
            [("n", Arc::new(numbers)), ("t", Arc::new(texts)), ("row", Arc::new(row))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        for (keys, count) in [(vec![0], 3), (vec![1, 0], 7), (vec![0], 1)] {
            let buckets = Buckets { keys: keys.clone(), count };
            let mut seen = [0; 1000];
            let mut owners = std::collections::HashMap::new();
            for (bucket, rows) in buckets.of(&batch).unwrap() {
                for (at, row) in
                    rows.column(2).as_primitive::<Int64Type>().values().iter().enumerate()
                {
                    seen[*row as usize] += 1;
                    let key: Vec<String> = keys
                        .iter()
                        .map(|key| {
                            let column = rows.column(*key as usize).slice(at, 1);
                            format!("{column:?}")
                        })
                        .collect();
                    assert_eq!(*owners.entry(key).or_insert(bucket), bucket);
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{count}");
            let used: std::collections::HashSet<_> = owners.values().collect();
            assert_eq!(used.len(), count as usize);
        }
        assert!(Buckets { keys: vec![9], count: 2 }.of(&batch).is_err());
    }
}
