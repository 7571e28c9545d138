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
    Array, ArrayRef, AsArray, Int64Array, ListArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    DataType, Field, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::AggregateUDF;
use datafusion::logical_expr::function::AccumulatorArgs;
use uplake_functions::{Fold, Function};

/// Steps of a funnel: a bit each of a positive bigint.
pub(crate) const STEPS_MAX: usize = 62;
/// A user's rows before the first look at which can be forgotten.
const ROWS_FIRST_KEPT: usize = 16;

const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The function, to be registered with a session.
pub(crate) fn funnel() -> AggregateUDF {
    Funnel.aggregate()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Funnel;

impl Function for Funnel {
    type Fold = Self;

    fn name(&self) -> &'static str {
        "funnel"
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Timestamp(_, _) | DataType::Date32 | DataType::Null, steps]
                if steps.is_integer() || steps.is_null() =>
            {
                Ok(vec![TIME, DataType::Int64])
            }
            _ => plan_err!("funnel takes a time, and a whole number with a bit per step"),
        }
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new_list_field(TIME, false))))
    }

    fn fold(&self, _: &AccumulatorArgs) -> Result<Self> {
        Ok(self.clone())
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

impl Fold for Funnel {
    type State = FunnelRows;
    type Columns = (TimestampMicrosecondArray, Int64Array);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let times = values[0].as_primitive::<TimestampMicrosecondType>().clone();
        Ok((times, values[1].as_primitive::<Int64Type>().clone()))
    }

    fn add(&self, state: &mut FunnelRows, columns: &Self::Columns, row: usize) -> Result<()> {
        let (times, steps) = columns;
        if times.is_valid(row) && steps.is_valid(row) {
            state.add(Row { time: times.value(row), steps: steps.value(row) });
        }
        Ok(())
    }

    fn save(&self, state: &FunnelRows, bytes: &mut Vec<u8>) {
        for row in &state.rows {
            bytes.extend(row.time.to_le_bytes());
            bytes.extend(row.steps.to_le_bytes());
        }
    }

    fn merge(&self, state: &mut FunnelRows, bytes: &[u8]) -> Result<()> {
        for [time, steps] in bytes.as_chunks::<8>().0.as_chunks::<2>().0 {
            state.add(Row { time: i64::from_le_bytes(*time), steps: i64::from_le_bytes(*steps) });
        }
        Ok(())
    }

    fn finish(&self, mut states: Vec<FunnelRows>) -> Result<ArrayRef> {
        let lists: Vec<Vec<i64>> = states.iter_mut().map(|rows| passed(&mut rows.rows)).collect();
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
        let times = TimestampMicrosecondArray::from(lists.concat());
        let field = Arc::new(Field::new_list_field(TIME, false));
        Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(times), None)?))
    }

    fn heap_bytes(state: &FunnelRows) -> usize {
        state.rows.capacity() * size_of::<Row>()
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
