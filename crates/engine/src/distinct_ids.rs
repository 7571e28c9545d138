//! How many different ids: one bit for each.
//!
//! Ids are dense, so the bits of two million users are 240 KiB, whatever the number of rows, and two
//! sets are merged by OR. [`count_ids`](crate::count_ids) puts it into plans; statements cannot name it.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

/// Ids of a chunk, as a power of two: 8 KiB of bits.
const CHUNK_SHIFT: u32 = 16;
const CHUNK_WORDS: usize = (1 << CHUNK_SHIFT) / 64;
const CHUNK_BYTES: usize = CHUNK_WORDS * 8;

/// The function. It takes a column of ids: INT, not negative.
pub(crate) fn distinct_ids() -> AggregateUDF {
    AggregateUDF::from(DistinctIds {
        signature: Signature::exact(vec![DataType::Int32], Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DistinctIds {
    signature: Signature,
}

impl AggregateUDFImpl for DistinctIds {
    fn name(&self) -> &'static str {
        "distinct_ids"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::<Bits>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[bits]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, false))])
    }
}

/// A set of ids. Chunks that no id was in are not there.
#[derive(Debug, Default)]
struct Bits {
    chunks: Vec<Option<Box<[u64; CHUNK_WORDS]>>>,
}

impl Bits {
    fn chunk(&mut self, number: usize) -> &mut [u64; CHUNK_WORDS] {
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, || None);
        }
        self.chunks[number].get_or_insert_with(|| Box::new([0; CHUNK_WORDS]))
    }

    fn insert(&mut self, id: i32) {
        let id = id as u32;
        let bit = id & ((1 << CHUNK_SHIFT) - 1);
        self.chunk((id >> CHUNK_SHIFT) as usize)[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn add(&mut self, ids: &Int32Array) {
        if ids.null_count() > 0 {
            ids.iter().flatten().for_each(|id| self.insert(id));
            return;
        }
        // Rows are often sorted by id: a user's other rows change nothing.
        let mut last = None;
        for &id in ids.values() {
            if last != Some(id) {
                self.insert(id);
                last = Some(id);
            }
        }
    }

    fn count(&self) -> u64 {
        let ones = |chunk: &[u64; CHUNK_WORDS]| {
            chunk.iter().map(|w| u64::from(w.count_ones())).sum::<u64>()
        };
        self.chunks.iter().flatten().map(|chunk| ones(chunk)).sum()
    }

    /// Chunk numbers, each with its bits; all little-endian.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            bytes.extend_from_slice(&(number as u32).to_le_bytes());
            chunk.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        bytes
    }

    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        let (parts, rest) = bytes.as_chunks::<{ CHUNK_BYTES + 4 }>();
        let wrong = || DataFusionError::Internal("a set of ids is cut off".into());
        for part in parts {
            let (number, words) = part.split_first_chunk::<4>().ok_or_else(wrong)?;
            let chunk = self.chunk(u32::from_le_bytes(*number) as usize);
            for (word, more) in chunk.iter_mut().zip(words.as_chunks::<8>().0) {
                *word |= u64::from_le_bytes(*more);
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

impl Accumulator for Bits {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].as_primitive::<Int32Type>());
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states = states[0].as_binary::<i64>();
        states.iter().flatten().try_for_each(|bytes| self.merge(bytes))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::LargeBinary(Some(self.to_bytes()))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.count() as i64)))
    }

    fn size(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count();
        size_of::<Self>() + self.chunks.len() * size_of::<usize>() + chunks * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_counted_once_and_sets_merge() {
        let (mut a, mut b) = (Bits::default(), Bits::default());
        a.add(&Int32Array::from(vec![0, 0, 5, 70_000, 5, i32::MAX]));
        b.add(&Int32Array::from(vec![Some(5), None, Some(6), Some(0)]));
        assert_eq!((a.count(), b.count()), (4, 3));
        a.merge(&b.to_bytes()).unwrap();
        assert_eq!(a.count(), 5);
        a.merge(&[]).unwrap();
        assert!(a.merge(&[1, 2, 3]).is_err());
        assert_eq!(Bits::default().count(), 0);
    }
}
