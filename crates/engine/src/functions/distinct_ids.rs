//! How many different ids: one bit for each, or two bytes where they are few.
//!
//! Ids are dense, so the bits of two million users are 240 KiB, whatever the number of rows, and two
//! sets are merged by OR. [`count_ids`](crate::optimizer::id_rewrite::count_ids) puts it into plans; statements cannot name it.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, LargeBinaryArray, LargeBinaryBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use uplake_functions::{Single, passes};

/// Ids of a chunk, as a power of two: 8 KiB of bits.
const CHUNK_SHIFT: u32 = 16;
const CHUNK_WORDS: usize = (1 << CHUNK_SHIFT) / 64;
/// More ids of a chunk than these are smaller as bits.
const FEW_MAX: usize = CHUNK_WORDS * 8 / size_of::<u16>();
/// So many ids of a chunk need no order.
const UNTIDY_MIN: usize = 32;
/// More ids of a chunk than these are bits as well while there is room: a bit is set without sorting.
const SOME: usize = 64;
/// That room, in chunks: 32 MiB.
const EARLY_BITS: usize = 4096;

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
        Ok(Box::<Single<Groups>>::default())
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::<Groups>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[ids]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, false))])
    }
}

/// Ids of one chunk: two bytes each while they are few, one bit for each when that is smaller.
#[derive(Debug)]
enum Chunk {
    Few(Few),
    Bits(Box<[u64; CHUNK_WORDS]>),
}

/// Ids as they come, put in order when half of them are not.
#[derive(Debug, Default)]
struct Few {
    ids: Vec<u16>,
    /// The first are in order, and each is there once.
    in_order: usize,
}

impl Few {
    fn push(&mut self, low: u16) {
        // Rows are often sorted by id.
        if self.in_order == self.ids.len() && self.ids.last().is_none_or(|last| *last < low) {
            self.in_order += 1;
        }
        self.ids.push(low);
    }

    fn is_untidy(&self) -> bool {
        self.ids.len() - self.in_order > self.in_order.max(UNTIDY_MIN)
    }

    fn tidy(&mut self) -> &[u16] {
        if self.in_order < self.ids.len() {
            // The stable sort knows what is in order already.
            self.ids.sort();
            self.ids.dedup();
            self.in_order = self.ids.len();
        }
        &self.ids
    }
}

impl Chunk {
    /// `room`: chunks that may become bits early.
    fn insert(&mut self, low: u16, room: &mut usize) {
        match self {
            Self::Bits(bits) => bits[usize::from(low) / 64] |= 1 << (low % 64),
            Self::Few(few) => {
                few.push(low);
                if few.ids.len() > SOME && *room > 0 {
                    *room -= 1;
                    self.make_bits();
                } else if (few.is_untidy() || few.in_order > FEW_MAX) && few.tidy().len() > FEW_MAX
                {
                    self.make_bits();
                }
            }
        }
    }

    fn make_bits(&mut self) -> &mut [u64; CHUNK_WORDS] {
        if let Self::Few(few) = self {
            let mut bits = Box::new([0; CHUNK_WORDS]);
            few.ids.iter().for_each(|low| bits[usize::from(*low) / 64] |= 1 << (low % 64));
            *self = Self::Bits(bits);
        }
        match self {
            Self::Bits(bits) => bits,
            Self::Few(_) => unreachable!("made bits above"),
        }
    }

    fn count(&mut self) -> u64 {
        match self {
            Self::Few(few) => few.tidy().len() as u64,
            Self::Bits(bits) => bits.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Few(few) => few.ids.capacity() * size_of::<u16>(),
            Self::Bits(_) => CHUNK_WORDS * 8,
        }
    }
}

/// A set of ids. Chunks that no id was in are not there.
#[derive(Debug, Default)]
struct Ids {
    chunks: Vec<Option<Chunk>>,
    last: Option<i32>,
}

impl Ids {
    fn chunk(&mut self, number: usize) -> &mut Chunk {
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, || None);
        }
        self.chunks[number].get_or_insert_with(|| Chunk::Few(Few::default()))
    }

    fn insert(&mut self, id: i32, room: &mut usize) {
        // Rows are often sorted by id: a user's other rows change nothing.
        if self.last != Some(id) {
            self.last = Some(id);
            self.chunk((id as u32 >> CHUNK_SHIFT) as usize).insert(id as u16, room);
        }
    }

    fn count(&mut self) -> u64 {
        self.chunks.iter_mut().flatten().map(Chunk::count).sum()
    }

    /// Chunk numbers, each with how many ids and the ids, or with no number and the bits; all
    /// little-endian.
    fn encode(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            let Some(chunk) = chunk else { continue };
            bytes.extend_from_slice(&(number as u32).to_le_bytes());
            match chunk {
                Chunk::Few(few) => {
                    let few = few.tidy();
                    bytes.extend_from_slice(&(few.len() as u32).to_le_bytes());
                    few.iter().for_each(|low| bytes.extend_from_slice(&low.to_le_bytes()));
                }
                Chunk::Bits(bits) => {
                    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
                    bits.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                }
            }
        }
        bytes
    }

    /// Adds what [`Ids::encode`] wrote.
    fn merge(&mut self, mut bytes: &[u8], room: &mut usize) -> Result<()> {
        let cut = || DataFusionError::Internal("a set of ids is cut off".into());
        let number = |bytes: &mut &[u8]| {
            let (number, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
            *bytes = rest;
            Ok::<u32, DataFusionError>(u32::from_le_bytes(*number))
        };
        while !bytes.is_empty() {
            let (at, few) = (number(&mut bytes)? as usize, number(&mut bytes)?);
            let length = if few == u32::MAX { CHUNK_WORDS * 8 } else { few as usize * 2 };
            let (part, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
            bytes = rest;
            let chunk = self.chunk(at);
            if few == u32::MAX {
                let words = part.as_chunks::<8>().0;
                for (word, more) in chunk.make_bits().iter_mut().zip(words) {
                    *word |= u64::from_le_bytes(*more);
                }
            } else {
                part.as_chunks::<2>()
                    .0
                    .iter()
                    .for_each(|low| chunk.insert(u16::from_le_bytes(*low), room));
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let chunks: usize = self.chunks.iter().flatten().map(Chunk::size).sum();
        size_of::<Self>() + self.chunks.capacity() * size_of::<Option<Chunk>>() + chunks
    }
}

#[derive(Debug)]
struct Groups {
    groups: Vec<Ids>,
    /// Chunks that may become bits early.
    room: usize,
    /// As of the last time it was measured.
    bytes: usize,
    /// Chunks there were then, and rows since.
    chunks: usize,
    rows: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self { groups: Vec::new(), room: EARLY_BITS, bytes: 0, chunks: 0, rows: 0 }
    }
}

impl Groups {
    fn resize(&mut self, groups: usize) {
        if self.groups.len() < groups {
            self.groups.resize_with(groups, Ids::default);
        }
    }

    /// Counts bytes when there were as many rows as there are chunks, so that it costs a row little.
    fn measure(&mut self, rows: usize) {
        self.rows += rows;
        if self.rows >= self.chunks {
            self.bytes = self.groups.iter().map(Ids::size).sum();
            self.chunks = self.groups.iter().map(|ids| ids.chunks.len() + 1).sum();
            self.rows = 0;
        }
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let ids = values[0].as_primitive::<Int32Type>();
        if ids.null_count() == 0 && filter.is_none() {
            for (id, group) in ids.values().iter().zip(group_indices) {
                self.groups[*group].insert(*id, &mut self.room);
            }
        } else {
            for (row, group) in group_indices.iter().enumerate() {
                if ids.is_valid(row) && passes(filter, row) {
                    self.groups[*group].insert(ids.value(row), &mut self.room);
                }
            }
        }
        self.measure(group_indices.len());
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut groups = emit_to.take_needed(&mut self.groups);
        Ok(Arc::new(groups.iter_mut().map(|ids| ids.count() as i64).collect::<Int64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut groups = emit_to.take_needed(&mut self.groups);
        let states = groups.iter_mut().map(Ids::encode);
        Ok(vec![Arc::new(LargeBinaryArray::from_iter_values(states))])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let Some(states) = states.first() else { return Ok(()) };
        for (state, group) in states.as_binary::<i64>().iter().zip(group_indices) {
            self.groups[*group].merge(state.unwrap_or_default(), &mut self.room)?;
        }
        self.measure(group_indices.len() * CHUNK_WORDS);
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let ids = values[0].as_primitive::<Int32Type>();
        let mut states = LargeBinaryBuilder::with_capacity(ids.len(), ids.len() * 10);
        for row in 0..ids.len() {
            let mut set = Ids::default();
            if ids.is_valid(row) && passes(filter, row) {
                set.insert(ids.value(row), &mut 0);
            }
            states.append_value(set.encode());
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn size(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::array::Int32Array;

    use super::*;

    fn set(ids: impl IntoIterator<Item = i32>, mut room: usize) -> Ids {
        let mut set = Ids::default();
        ids.into_iter().for_each(|id| set.insert(id, &mut room));
        set
    }

    #[test]
    fn ids_are_counted_once_and_sets_merge() {
        let mut a = set([0, 0, 5, 70_000, 5, i32::MAX], 0);
        let mut b = set([5, 6, 0], 0);
        assert_eq!((a.count(), b.count()), (4, 3));
        a.merge(&b.encode(), &mut 0).unwrap();
        assert_eq!(a.count(), 5);
        a.merge(&[], &mut 0).unwrap();
        assert!(a.merge(&[1, 2, 3], &mut 0).is_err());
        assert!(a.merge(&[1, 0, 0, 0, 9, 0, 0, 0, 1], &mut 0).is_err());
        assert_eq!(Ids::default().count(), 0);
    }

    #[test]
    fn few_and_many_ids_in_any_order_are_what_a_set_holds() {
        let mut random = 7u64;
        for (count, range) in [(10, 40), (5000, 3 << 16), (20_000, 1 << 17), (9000, 9000)] {
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as i32 % range
            };
            let (left, right): (Vec<i32>, Vec<i32>) =
                ((0..count).map(|_| next()).collect(), (0..count).map(|_| next()).collect());
            let expected: BTreeSet<i32> = left.iter().chain(&right).copied().collect();
            for room in [0, 1, EARLY_BITS] {
                let (mut merged, mut other) = (set(left.clone(), room), set(right.clone(), 0));
                other.merge(&merged.encode(), &mut 0).unwrap();
                merged.merge(&set(right.clone(), room).encode(), &mut 1).unwrap();
                assert_eq!(merged.count(), expected.len() as u64);
                assert_eq!(other.count(), expected.len() as u64);
            }
        }
    }

    #[test]
    fn groups_leave_out_null_and_rows_that_do_not_pass() {
        let mut groups = Groups::default();
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(2), Some(1)]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), None, Some(true)]);
        groups.update_batch(&[Arc::clone(&ids)], &[0, 0, 1, 1], Some(&filter), 3).unwrap();
        groups.update_batch(&[ids], &[1, 1, 1, 1], None, 3).unwrap();
        let mut merged = Groups::default();
        let state = groups.state(EmitTo::All).unwrap();
        merged.merge_batch(&state, &[0, 1, 1], 2).unwrap();
        let counts = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            counts.as_primitive::<datafusion::arrow::datatypes::Int64Type>().values(),
            &[1, 2]
        );
    }
}
