//! The functions: each goes over the rows of a step, and keeps what the next step has to know.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, AsArray, Float64Array, Int64Array, PrimitiveArray,
    UInt32Array, downcast_primitive, new_empty_array,
};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float64Type, Int64Type};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;

use crate::mends::does_not_fit;

/// A function of a window, with the frame from the partition's first row to the row, or to the last of its peers.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub function: Function,
    pub argument: Option<Arc<dyn PhysicalExpr>>,
    /// Does the frame end with the last of the row's peers?
    pub to_last_peer: bool,
}

/// See SQL:2016, 4.16 and 10.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    RowNumber,
    Rank,
    DenseRank,
    /// The value so many rows before, NULL where there is none.
    Lag(usize),
    /// The value so many rows later.
    Lead(usize),
    FirstValue,
    Count,
    Sum,
    Min,
    Max,
}

impl Call {
    /// How many rows after a row it looks at.
    pub(super) fn rows_ahead(&self) -> usize {
        match self.function {
            Function::Lead(rows) => rows,
            _ => 0,
        }
    }

    /// Does it count which rows are peers?
    pub fn looks_at_peers(&self) -> bool {
        self.to_last_peer || matches!(self.function, Function::Rank | Function::DenseRank)
    }

    /// Is `argument` of a type that the function is computed of here, with this result?
    pub fn is_of(&self, argument: Option<&DataType>, result: &DataType) -> bool {
        let same = argument.is_some_and(|argument| argument == result && !argument.is_nested());
        match self.function {
            Function::RowNumber | Function::Rank | Function::DenseRank => {
                *result == DataType::Int64
            }
            Function::Lag(_) | Function::Lead(_) | Function::FirstValue => same,
            Function::Count => argument.is_some() && *result == DataType::Int64,
            // Sums of doubles are in the order of the rows, which those of peers are not in DataFusion.
            Function::Sum => {
                let is_double = *result == DataType::Float64 && !self.to_last_peer;
                same && (*result == DataType::Int64 || is_double)
            }
            // Floats have an order of their own.
            Function::Min | Function::Max => {
                use DataType::{Date32, Date64, Decimal128, Timestamp};
                let has_order = result.is_integer()
                    || matches!(result, Date32 | Date64 | Decimal128(..) | Timestamp(..));
                same && has_order
            }
        }
    }

    pub(super) fn running(&self, result: &DataType) -> Result<Box<dyn Running>> {
        let is_spread = self.to_last_peer;
        macro_rules! best {
            ($t:ty, $is_better:ident) => {
                Box::new(Best::<$t> {
                    best: None,
                    is_better: |a, b| a.$is_better(b),
                    is_spread,
                    data_type: result.clone(),
                }) as Box<dyn Running>
            };
        }
        Ok(match self.function {
            Function::RowNumber => Box::new(RowNumber),
            Function::Rank => Box::new(Rank::default()),
            Function::DenseRank => Box::new(DenseRank::default()),
            Function::Lag(rows) => Box::new(Lag { rows, before: new_empty_array(result) }),
            Function::Lead(rows) => Box::new(Lead { rows }),
            Function::FirstValue => Box::new(First { of_last: new_empty_array(result) }),
            Function::Count => Box::new(Count { count: 0, is_spread }),
            Function::Sum if *result == DataType::Float64 => Box::new(SumOfDoubles { sum: None }),
            Function::Sum => Box::new(Sum { sum: None, is_spread }),
            Function::Min => downcast_primitive! {
                result => (best, is_lt),
                _ => return Err(no_function(self, result))
            },
            Function::Max => downcast_primitive! {
                result => (best, is_gt),
                _ => return Err(no_function(self, result))
            },
        })
    }
}

fn no_function(call: &Call, result: &DataType) -> DataFusionError {
    internal_datafusion_err!("{:?} of {result} is not computed so", call.function)
}

/// Rows of an array, copied with their texts: else those of views would keep what all views before them had.
pub(super) fn copied(values: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    let taken = take(values, rows, None)?;
    Ok(match taken.data_type() {
        DataType::Utf8View => Arc::new(taken.as_string_view().gc()),
        DataType::BinaryView => Arc::new(taken.as_binary_view().gc()),
        _ => taken,
    })
}

pub(super) fn too_many(_: std::num::TryFromIntError) -> DataFusionError {
    internal_datafusion_err!("a batch of 2^32 rows")
}

/// Rows that are handed out together.
pub(super) struct Step<'a> {
    /// Of each row, how many of its partition are before it; also of rows after those of the step.
    position: &'a [u64],
    /// The rows of the step that are no peers of the row before; empty if nobody looks at them.
    peers: &'a [usize],
    rows: usize,
}

impl<'a> Step<'a> {
    pub fn new(position: &'a [u64], peers: &'a [usize], rows: usize) -> Self {
        Self { position, peers: &peers[..peers.partition_point(|start| *start < rows)], rows }
    }

    /// Each row's position, with whether it is the first of its peers.
    fn with_peers(&self) -> impl Iterator<Item = (u64, bool)> {
        let mut peers = self.peers.iter().copied().peekable();
        self.positions()
            .iter()
            .enumerate()
            .map(move |(row, position)| (*position, peers.next_if_eq(&row).is_some()))
    }

    fn positions(&self) -> &[u64] {
        &self.position[..self.rows]
    }

    /// Gives every row the value of the last of its peers. All of them are in the step.
    fn spread<T: Copy>(&self, values: &mut [T]) {
        let ends = self.peers.iter().skip(1).copied().chain([self.rows]);
        for (start, end) in self.peers.iter().copied().zip(ends) {
            let last = values[end - 1];
            values[start..end].fill(last);
        }
    }
}

/// A function on its way through the rows of a partition of the plan.
pub(super) trait Running: Send {
    /// Its values for the rows of a step; `values` are the argument's, also of rows after them.
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef>;
}

fn given(values: Option<&ArrayRef>) -> Result<&ArrayRef> {
    values.ok_or_else(|| internal_datafusion_err!("a function of a window without its argument"))
}

struct RowNumber;

impl Running for RowNumber {
    fn next(&mut self, step: &Step, _: Option<&ArrayRef>) -> Result<ArrayRef> {
        let numbers = step.positions().iter().map(|position| (position + 1).cast_signed());
        Ok(Arc::new(Int64Array::from_iter_values(numbers)))
    }
}

#[derive(Default)]
struct Rank {
    rank: u64,
}

impl Running for Rank {
    fn next(&mut self, step: &Step, _: Option<&ArrayRef>) -> Result<ArrayRef> {
        let ranks = step.with_peers().map(|(position, is_first)| {
            if is_first {
                self.rank = position + 1;
            }
            self.rank
        });
        Ok(Arc::new(Int64Array::from_iter_values(ranks.map(u64::cast_signed))))
    }
}

#[derive(Default)]
struct DenseRank {
    rank: u64,
}

impl Running for DenseRank {
    fn next(&mut self, step: &Step, _: Option<&ArrayRef>) -> Result<ArrayRef> {
        let ranks = step.with_peers().map(|(position, is_first)| {
            match (position, is_first) {
                (0, _) => self.rank = 1,
                (_, true) => self.rank += 1,
                (_, false) => {}
            }
            self.rank
        });
        Ok(Arc::new(Int64Array::from_iter_values(ranks.map(u64::cast_signed))))
    }
}

struct Lag {
    rows: usize,
    /// The argument's values of the last rows before the step, at most `rows`.
    before: ArrayRef,
}

impl Running for Lag {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let all = concat(&[&self.before, given(values)?])?;
        let before = self.before.len();
        let of = |(row, position): (usize, &u64)| {
            // Rows of the partition before it are among those that are kept.
            let is_there = *position >= self.rows as u64;
            is_there.then(|| u32::try_from(before + row - self.rows)).transpose()
        };
        let places = step.positions().iter().enumerate().map(of).collect::<Result<Vec<_>, _>>();
        let lagged = copied(&all, &UInt32Array::from(places.map_err(too_many)?))?;
        let end = before + step.rows;
        let kept = self.rows.min(end);
        let kept = (end - kept..end).map(u32::try_from).collect::<Result<Vec<_>, _>>();
        self.before = copied(&all, &UInt32Array::from(kept.map_err(too_many)?))?;
        Ok(lagged)
    }
}

struct Lead {
    rows: usize,
}

impl Running for Lead {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let of = |(row, position): (usize, &u64)| {
            let later = row + self.rows;
            let is_there = step.position.get(later) == Some(&(position + self.rows as u64));
            is_there.then(|| u32::try_from(later)).transpose()
        };
        let places = step.positions().iter().enumerate().map(of).collect::<Result<Vec<_>, _>>();
        copied(given(values)?, &UInt32Array::from(places.map_err(too_many)?))
    }
}

struct First {
    /// The first value of the last row's partition, once there is one.
    of_last: ArrayRef,
}

impl Running for First {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let all = concat(&[&self.of_last, given(values)?])?;
        let before = self.of_last.len();
        let mut first = 0;
        let places = step.positions().iter().enumerate().map(|(row, position)| {
            if *position == 0 {
                first = before + row;
            }
            u32::try_from(first)
        });
        let places =
            UInt32Array::from_iter_values(places.collect::<Result<Vec<_>, _>>().map_err(too_many)?);
        let firsts = copied(&all, &places)?;
        self.of_last = copied(&all, &places.slice(places.len() - 1, 1))?;
        Ok(firsts)
    }
}

struct Count {
    count: i64,
    is_spread: bool,
}

impl Running for Count {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let values = given(values)?;
        let nulls = values.logical_nulls();
        let counts = step.positions().iter().enumerate().map(|(row, position)| {
            if *position == 0 {
                self.count = 0;
            }
            self.count += i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
            self.count
        });
        let mut counts: Vec<i64> = counts.collect();
        if self.is_spread {
            step.spread(&mut counts);
        }
        Ok(Arc::new(Int64Array::from(counts)))
    }
}

/// Whole numbers, in 128 bits: what a frame comes to has to fit, not what is on the way there.
struct Sum {
    sum: Option<i128>,
    is_spread: bool,
}

impl Running for Sum {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let values = given(values)?.as_primitive::<Int64Type>();
        let mut sums =
            running(step, values, &mut self.sum, |sum, x| sum.unwrap_or(0) + i128::from(x));
        if self.is_spread {
            step.spread(&mut sums);
        }
        let fitting = |sum: Option<i128>| sum.map(i64::try_from).transpose();
        let sums = sums.into_iter().map(fitting).collect::<Result<Vec<_>, _>>();
        Ok(Arc::new(Int64Array::from(sums.map_err(|_| does_not_fit())?)))
    }
}

struct SumOfDoubles {
    sum: Option<f64>,
}

impl Running for SumOfDoubles {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let values = given(values)?.as_primitive::<Float64Type>();
        let sums = running(step, values, &mut self.sum, |sum, x| sum.unwrap_or(0.0) + x);
        Ok(Arc::new(Float64Array::from(sums)))
    }
}

/// The least or the greatest value.
struct Best<T: ArrowPrimitiveType> {
    best: Option<T::Native>,
    is_better: fn(T::Native, T::Native) -> bool,
    is_spread: bool,
    data_type: DataType,
}

impl<T: ArrowPrimitiveType> Running for Best<T> {
    fn next(&mut self, step: &Step, values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let values = given(values)?.as_primitive::<T>();
        let is_better = self.is_better;
        let mut all = running(step, values, &mut self.best, |best, x| match best {
            Some(best) if !is_better(x, best) => best,
            _ => x,
        });
        if self.is_spread {
            step.spread(&mut all);
        }
        let best: PrimitiveArray<T> = all.into_iter().collect();
        Ok(Arc::new(best.with_data_type(self.data_type.clone())))
    }
}

/// What `add` has made of the values so far, NULLs left out, beginning anew with each partition.
fn running<T: ArrowPrimitiveType, S: Copy>(
    step: &Step,
    values: &PrimitiveArray<T>,
    state: &mut Option<S>,
    add: impl Fn(Option<S>, T::Native) -> S,
) -> Vec<Option<S>> {
    let mut next = |position: u64, value: Option<T::Native>| {
        if position == 0 {
            *state = None;
        }
        if let Some(value) = value {
            *state = Some(add(*state, value));
        }
        *state
    };
    let positions = step.positions().iter();
    match values.nulls() {
        None => positions.zip(values.values()).map(|(at, x)| next(*at, Some(*x))).collect(),
        Some(_) => positions.zip(values.iter()).map(|(at, x)| next(*at, x)).collect(),
    }
}
