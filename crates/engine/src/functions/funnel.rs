//! `funnel(time, steps)`: when a user passed each step of a funnel, in order.
//!
//! `steps` is a bit per step that the row can be (1: the first, 2: the second, 4: the third). A
//! step is passed by the earliest row that can be it, is not earlier than the step before and has
//! not been another step. Rows of the same time may be used in any order. The answer is a list of
//! times, as long as the user came.
//!
//! # Invariants
//! - With more rows every step is passed no later than before, so a row later than the time at
//!   which a step is known to be passed can never be that step: such rows are forgotten.
//! - Rows of one time and the same steps are kept once per step at most.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use uplake_functions::{Single, no_distinct};

use crate::functions::exact_sum::passes;

/// Steps of a funnel: a bit each of a positive bigint.
pub(crate) const STEPS_MAX: usize = 62;
/// A user's rows before the first look at which can be forgotten.
const ROWS_FIRST_KEPT: usize = 16;

const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The function, to be registered with a session.
pub(crate) fn funnel() -> AggregateUDF {
    AggregateUDF::from(Funnel { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Funnel {
    signature: Signature,
}

impl AggregateUDFImpl for Funnel {
    fn name(&self) -> &'static str {
        "funnel"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Timestamp(_, _) | DataType::Date32 | DataType::Null, steps]
                if steps.is_integer() || steps.is_null() =>
            {
                Ok(vec![TIME, DataType::Int64])
            }
            _ => plan_err!("funnel takes a time, and a whole number with a bit per step"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(TIME, false))))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::<Single<Groups>>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, false)));
        Ok(vec![Arc::new(Field::new(format!("{}[rows]", args.name), list, true))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::<Groups>::default())
    }
}

/// A row that can be some steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time: i64,
    steps: i64,
}

/// When each step is passed. `rows` come back sorted.
fn passed(rows: &mut [Row]) -> Vec<i64> {
    rows.sort_unstable();
    let mut times: Vec<i64> = Vec::new();
    let mut owners = Vec::new();
    for same in rows.chunk_by(|a, b| a.time == b.time) {
        owners.clear();
        owners.resize(same.len(), None);
        while times.len() < STEPS_MAX
            && place(times.len(), same, &mut owners, &mut vec![false; same.len()])
        {
            times.push(same[0].time);
        }
    }
    times
}

/// Gives `step` a row of its own, moving other steps to other rows where that helps.
fn place(step: usize, rows: &[Row], owners: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for row in 0..rows.len() {
        if rows[row].steps >> step & 1 == 0 || tried[row] {
            continue;
        }
        tried[row] = true;
        if owners[row].is_none_or(|owner| place(owner, rows, owners, tried)) {
            owners[row] = Some(step);
            return true;
        }
    }
    false
}

/// A user's rows that may still matter.
#[derive(Debug, Default, Clone)]
struct FunnelRows {
    rows: Vec<Row>,
    /// At this many rows it is time to forget some.
    look_at: usize,
}

impl FunnelRows {
    fn add(&mut self, row: Row) {
        if row.steps <= 0 {
            return;
        }
        self.rows.push(row);
        if self.rows.len() >= self.look_at.max(ROWS_FIRST_KEPT) {
            self.forget();
            self.look_at = 2 * self.rows.len();
        }
    }

    fn forget(&mut self) {
        let times = passed(&mut self.rows);
        for row in &mut self.rows {
            for (step, time) in times.iter().enumerate() {
                if row.time > *time {
                    row.steps &= !(1 << step);
                }
            }
        }
        let (mut last, mut copies) = (None, 0);
        self.rows.sort_unstable();
        self.rows.retain(|row| {
            copies = if last == Some(*row) { copies + 1 } else { 1 };
            last = Some(*row);
            copies <= row.steps.count_ones()
        });
    }
}

#[derive(Debug, Default)]
struct Groups {
    groups: Vec<FunnelRows>,
    /// Of the inner vectors.
    bytes: usize,
}

impl Groups {
    fn add(&mut self, group: usize, row: Row) {
        let rows = &mut self.groups[group];
        let before = rows.rows.capacity();
        rows.add(row);
        self.bytes += (rows.rows.capacity() - before) * size_of::<Row>();
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<FunnelRows> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.bytes -=
            taken.iter().map(|rows| rows.rows.capacity()).sum::<usize>() * size_of::<Row>();
        taken
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
        self.groups.resize(total_num_groups, FunnelRows::default());
        let times = values[0].as_primitive::<TimestampMicrosecondType>();
        let steps = values[1].as_primitive::<Int64Type>();
        for (row, group) in group_indices.iter().enumerate() {
            if times.is_valid(row) && steps.is_valid(row) && passes(filter, row) {
                self.add(*group, Row { time: times.value(row), steps: steps.value(row) });
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let lists: Vec<Vec<i64>> =
            self.take(emit_to).iter_mut().map(|rows| passed(&mut rows.rows)).collect();
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
        let times = TimestampMicrosecondArray::from(lists.concat());
        let field = Arc::new(Field::new_list_field(TIME, false));
        Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(times), None)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let offsets = OffsetBuffer::from_lengths(groups.iter().map(|rows| 2 * rows.rows.len()));
        let flat = groups.iter().flat_map(|rows| &rows.rows).flat_map(|r| [r.time, r.steps]);
        let values = Int64Array::from_iter_values(flat);
        let field = Arc::new(Field::new_list_field(DataType::Int64, false));
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, Arc::new(values), None)?)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, FunnelRows::default());
        let Some(states) = values.first() else { return Ok(()) };
        let lists = states.as_list::<i32>();
        for (row, group) in group_indices.iter().enumerate() {
            if lists.is_null(row) {
                continue;
            }
            let flat = lists.value(row);
            for pair in flat.as_primitive::<Int64Type>().values().chunks_exact(2) {
                self.add(*group, Row { time: pair[0], steps: pair[1] });
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
        let mut each = Self::default();
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<FunnelRows>() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most steps that any choice of different rows in the order of time passes.
    fn most_steps(rows: &[Row], used: &mut Vec<usize>, after: i64) -> usize {
        let step = used.len();
        let mut most = step;
        for i in 0..rows.len() {
            if rows[i].steps >> step & 1 == 1 && rows[i].time >= after && !used.contains(&i) {
                used.push(i);
                most = most.max(most_steps(rows, used, rows[i].time));
                used.pop();
            }
        }
        most
    }

    #[test]
    fn every_order_and_split_passes_as_many_steps_as_the_best_choice_of_rows() {
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        for case in 0..4000 {
            let count = below(8) as usize;
            let (times, masks) = (1 + below(6), 2 + below(14));
            let rows: Vec<Row> = (0..count)
                .map(|_| Row { time: below(times) as i64, steps: below(masks) as i64 })
                .collect();
            // As of any time, what has been passed by then is the best of the rows so far.
            let reached = passed(&mut rows.clone());
            for until in 0..times as i64 {
                let so_far: Vec<Row> = rows.iter().filter(|r| r.time <= until).copied().collect();
                let expected = most_steps(&so_far, &mut Vec::new(), i64::MIN);
                let got = reached.iter().filter(|t| **t <= until).count();
                assert_eq!(got, expected, "case {case}: {rows:?}");
            }
            // Forgetting after any row changes nothing.
            let mut kept = FunnelRows::default();
            for row in &rows {
                kept.add(*row);
                kept.forget();
            }
            assert_eq!(passed(&mut kept.rows), reached, "case {case}: {rows:?}");
        }
    }

    #[test]
    fn a_user_who_repeats_a_finished_funnel_costs_few_rows() {
        let mut kept = FunnelRows::default();
        for time in 0..100_000 {
            kept.add(Row { time, steps: 1 << (time % 3) });
        }
        assert_eq!(passed(&mut kept.rows), [0, 1, 2]);
        assert!(kept.rows.len() <= ROWS_FIRST_KEPT, "{}", kept.rows.len());
    }
}
