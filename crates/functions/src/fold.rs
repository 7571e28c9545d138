//! Aggregates that fold rows into a value per group: what a function must say, and the rest of
//! what DataFusion asks for.
//!
//! # Invariants
//! - The partial state of a group is one value of bytes; merging states in any order gives what
//!   folding all rows gives.
//! - The bytes that groups hold are counted as they change.

use std::fmt::Debug;
use std::hash::Hash;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, LargeBinaryArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use crate::arguments::{no_distinct, passes};
use crate::single::Single;

/// A function: its name, its types, and how to fold.
pub trait Function: Debug + Clone + Eq + Hash + Send + Sync + 'static {
    type Fold: Fold;

    /// As SQL calls it.
    fn name(&self) -> &'static str;

    /// The types arguments are cast to; an error says what the function takes.
    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>>;

    /// The answer's type.
    fn output(&self, arguments: &[DataType]) -> Result<DataType>;

    /// How to fold the arguments of one call.
    fn fold(&self, args: &AccumulatorArgs) -> Result<Self::Fold>;

    /// The answer without rows, where it is not NULL.
    fn of_nothing(&self) -> Option<ScalarValue> {
        None
    }

    /// As DataFusion registers it.
    fn aggregate(self) -> AggregateUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::from(FoldFunction { function: self, signature })
    }
}

/// How rows become the value of a group.
pub trait Fold: Debug + Clone + Send + Sync + 'static {
    /// Of a group; without rows the default.
    type State: Default + Debug + Send + Sync;
    /// The arguments of a batch, ready to be read row by row.
    type Columns;

    /// Those of a batch.
    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns>;

    /// Adds a row of them.
    fn add(&self, state: &mut Self::State, columns: &Self::Columns, row: usize) -> Result<()>;

    /// Writes the state behind what is there.
    fn save(&self, state: &Self::State, bytes: &mut Vec<u8>);

    /// Adds what `save` wrote.
    fn merge(&self, state: &mut Self::State, bytes: &[u8]) -> Result<()>;

    /// The answers of groups.
    fn finish(&self, states: Vec<Self::State>) -> Result<ArrayRef>;

    /// Bytes of a state outside itself; asked for each row, so it must be cheap.
    fn heap_bytes(state: &Self::State) -> usize;
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FoldFunction<F> {
    function: F,
    signature: Signature,
}

impl<F: Function> AggregateUDFImpl for FoldFunction<F> {
    fn name(&self) -> &'static str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce(given)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.function.output(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.function.of_nothing().is_none()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.function.of_nothing().map_or_else(|| ScalarValue::try_from(data_type), Ok)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::new(Single::new(Groups::new(self.function.fold(&args)?))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[state]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::LargeBinary, true))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::new(Groups::new(self.function.fold(&args)?)))
    }
}

#[derive(Debug)]
struct Groups<F: Fold> {
    fold: F,
    groups: Vec<F::State>,
    heap_bytes: usize,
}

impl<F: Fold> Groups<F> {
    fn new(fold: F) -> Self {
        Self { fold, groups: Vec::new(), heap_bytes: 0 }
    }

    fn change(
        &mut self,
        group: usize,
        change: impl FnOnce(&F, &mut F::State) -> Result<()>,
    ) -> Result<()> {
        let state = &mut self.groups[group];
        let before = F::heap_bytes(state);
        let done = change(&self.fold, state);
        self.heap_bytes = self.heap_bytes + F::heap_bytes(state) - before;
        done
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<F::State> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.heap_bytes -= taken.iter().map(F::heap_bytes).sum::<usize>();
        taken
    }
}

impl<F: Fold> GroupsAccumulator for Groups<F> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize_with(total_num_groups, F::State::default);
        let columns = self.fold.columns(values)?;
        for (row, group) in group_indices.iter().enumerate() {
            if passes(filter, row) {
                self.change(*group, |fold, state| fold.add(state, &columns, row))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let states = self.take(emit_to);
        self.fold.finish(states)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut bytes = Vec::new();
        let mut offsets = vec![0];
        for state in self.take(emit_to) {
            self.fold.save(&state, &mut bytes);
            offsets.push(bytes.len() as i64);
        }
        let offsets = OffsetBuffer::new(offsets.into());
        Ok(vec![Arc::new(LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize_with(total_num_groups, F::State::default);
        let Some(states) = values.first() else { return Ok(()) };
        for (bytes, group) in states.as_binary::<i64>().iter().zip(group_indices) {
            if let Some(bytes) = bytes {
                self.change(*group, |fold, state| fold.merge(state, bytes))?;
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::new(self.fold.clone());
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<F::State>() + self.heap_bytes
    }
}

/// For tests: the answers of `rows` of (group, row of the arguments), split over several partial
/// accumulators and merged, some of them twice.
#[cfg(test)]
pub(crate) fn answers_of_split<F: Fold>(
    fold: &F,
    values: &[ArrayRef],
    group_of: &[usize],
    groups: usize,
    random: &mut crate::random::Random,
) -> ArrayRef {
    use arrow::compute::take;

    let parts = 1 + random.below(4) as usize;
    let mut rows_of = vec![Vec::new(); parts];
    for row in 0..group_of.len() {
        rows_of[random.below(parts as u64) as usize].push(row);
    }
    let mut last = Groups::new(fold.clone());
    let mut middle = Groups::new(fold.clone());
    for rows in rows_of {
        let indices = arrow::array::UInt64Array::from_iter_values(rows.iter().map(|r| *r as u64));
        let part: Vec<ArrayRef> =
            values.iter().map(|column| take(column, &indices, None).unwrap()).collect();
        let its_groups: Vec<usize> = rows.iter().map(|row| group_of[*row]).collect();
        let (state, its_groups) = if random.below(3) == 0 {
            (last.convert_to_state(&part, None).unwrap(), its_groups)
        } else {
            let mut partial = Groups::new(fold.clone());
            partial.update_batch(&part, &its_groups, None, groups).unwrap();
            (partial.state(EmitTo::All).unwrap(), (0..groups).collect())
        };
        let target = if random.below(2) == 0 { &mut middle } else { &mut last };
        target.merge_batch(&state, &its_groups, groups).unwrap();
    }
    middle.merge_batch(&[], &[], groups).unwrap();
    let state = middle.state(EmitTo::All).unwrap();
    last.merge_batch(&state, &(0..groups).collect::<Vec<_>>(), groups).unwrap();
    assert_eq!(middle.heap_bytes, 0, "what is handed out is no longer counted");
    last.evaluate(EmitTo::All).unwrap()
}
