//! Rows that can be among the first of their group, told before groups are sorted.
//!
//! ```text
//! Filter: row_number <= 2                                 Filter: row_number <= 2
//!   Window: row_number by (g) in the order of v             Window: row_number by (g) in the order of v
//!     Sort: g, v                                   ─►         Sort: g, v
//!       Repartition: hash(g)                                    Repartition: hash(g)
//!         rows                                                    rows that are not behind 2 of their group
//! ```
//!
//! The first exposure of each user, the latest state of each order: few rows are left to sort. What
//! comes above is as it was, so that a row too many changes nothing. Rows are held while there is room,
//! because later ones may come before them. Where few rows are left out, or memory is short, all others
//! go through.
//!
//! # Invariants
//! - A row is left out only if as many rows as are wanted come before it in its group, by the first
//!   expression of the order alone.
//!
//! Source: DataFusion's `WindowTopN` knows the same plans; its operator keeps the rows themselves, and
//! nothing else may be computed of the window.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{BatchCoalescer, SortOptions, cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, UInt64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use futures::{StreamExt, TryStreamExt, stream};

use crate::base::one_input::{EachNode, OneInput, OneInputExec};
use crate::optimizer::shapes::{Layer, layer};

/// More rows of a group than these are not looked for: each group keeps as many numbers.
const MANY: usize = 64;
/// So many rows decide whether it is worth looking at the next as many.
const TRIAL: usize = 1 << 17;
/// Of rows whose group has its first ones, one in so many must be left out.
const WORTH: usize = 4;
/// If most rows of a trial do not find that many before them, that says nothing of later ones: groups
/// have to fill first. So often that is waited for.
const FILLING_TRIALS: usize = 8;
/// Groups that are new with nearly every row are not waited for: all but one in so many.
const NEW_GROUPS: usize = 16;
/// More rows than these are not held until all have been seen.
const HELD_ROWS: usize = 1 << 20;

/// The rule that puts [`WindowCandidatesExec`] below windows of which the first rows are wanted.
pub(crate) const WINDOW_CANDIDATES: EachNode =
    EachNode { name: "window_candidates", other: with_candidates };

fn with_candidates(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    let bounds = split_conjunction(filter.predicate()).into_iter().filter_map(bound);
    for (column, fetch) in bounds {
        if let Some(input) = limited(filter.input(), column, fetch)? {
            return replace_children_if_necessary(Arc::clone(node), vec![input]).map(Some);
        }
    }
    Ok(None)
}

/// The column that a condition bounds from above, and the bound.
fn bound(condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, usize)> {
    let binary = condition.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (binary.left(), binary.right());
    let (column, literal, op) = match left.downcast_ref::<Column>() {
        Some(column) => (column, right.downcast_ref::<Literal>()?, *binary.op()),
        None => {
            (right.downcast_ref::<Column>()?, left.downcast_ref::<Literal>()?, binary.op().swap()?)
        }
    };
    let ScalarValue::UInt64(Some(value)) = literal.value().cast_to(&DataType::UInt64).ok()? else {
        return None;
    };
    let most = match op {
        Operator::LtEq | Operator::Eq => value,
        Operator::Lt => value.checked_sub(1)?,
        _ => return None,
    };
    let most = usize::try_from(most).ok()?;
    (literal.value().data_type().is_integer() && (1..=MANY).contains(&most))
        .then_some((column.index(), most))
}

/// The plan with candidates below the window that numbers `column`.
fn limited(
    node: &Arc<dyn ExecutionPlan>,
    column: usize,
    fetch: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some((layer @ (Layer::Same | Layer::Projection(_)), below)) = layer(node) {
        let Some(column) = layer.column(column) else { return Ok(None) };
        let input = limited(below, column, fetch)?;
        return input
            .map(|input| replace_children_if_necessary(Arc::clone(node), vec![input]))
            .transpose();
    }
    let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else { return Ok(None) };
    let Some(sort) = window.input().downcast_ref::<SortExec>() else { return Ok(None) };
    let functions = window.window_expr();
    let width = sort.schema().fields().len();
    let Some(numbers) = column.checked_sub(width).and_then(|at| functions.get(at)) else {
        return Ok(None);
    };
    // What is computed of a row has to be of the rows before it alone.
    let are_ranks = functions.iter().all(|function| {
        matches!(function_name(function).as_deref(), Some("row_number" | "rank" | "dense_rank"))
    });
    let counts_rows = function_name(numbers).is_some_and(|name| name != "dense_rank");
    let Some(first) = numbers.order_by().first().filter(|_| are_ranks && counts_rows) else {
        return Ok(None);
    };
    let schema = sort.schema();
    let groups = numbers.partition_by();
    let has_keys = |expr: &Arc<dyn PhysicalExpr>| {
        Ok::<_, DataFusionError>(is_exact(&expr.data_type(&schema)?) && !is_volatile(expr))
    };
    let fit = groups.iter().map(has_keys).collect::<Result<Vec<_>>>()?;
    let ordered = has_order_key(&first.expr.data_type(&schema)?) && !is_volatile(&first.expr);
    if groups.is_empty() || fit.contains(&false) || !ordered {
        return Ok(None);
    }
    let over = |input: &Arc<dyn ExecutionPlan>| {
        let candidates = Candidates { groups: groups.to_vec(), first: first.clone(), fetch };
        Arc::new(WindowCandidatesExec::over(candidates, Arc::clone(input)))
    };
    let below = sort.input();
    let rows = match below.downcast_ref::<RepartitionExec>() {
        Some(spread) => {
            replace_children_if_necessary(Arc::clone(below), vec![over(spread.input())])?
        }
        None => over(below),
    };
    let sorted = replace_children_if_necessary(Arc::clone(window.input()), vec![rows])?;
    replace_children_if_necessary(Arc::clone(node), vec![sorted]).map(Some)
}

fn function_name(function: &Arc<dyn WindowExpr>) -> Option<String> {
    let standard = function.as_any().downcast_ref::<StandardWindowExpr>()?;
    let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
    Some(function.fun().name().to_owned())
}

/// Do all agree on which values of the type are equal?
pub(crate) fn is_exact(data_type: &DataType) -> bool {
    use DataType::{Boolean, Date32, Decimal128, Timestamp, Utf8, Utf8View};
    data_type.is_integer()
        || matches!(data_type, Boolean | Date32 | Decimal128(..) | Timestamp(..) | Utf8 | Utf8View)
}

fn has_order_key(data_type: &DataType) -> bool {
    use DataType::{Date32, Float32, Float64, Timestamp, Utf8, Utf8View};
    data_type.is_integer()
        || matches!(data_type, Date32 | Timestamp(..) | Float32 | Float64 | Utf8 | Utf8View)
}

/// Numbers in the order of the values: a greater number is of a value that comes later, never the other
/// way round. Values close to each other may have the same one.
fn order_keys(
    values: &ArrayRef,
    SortOptions { descending, nulls_first }: SortOptions,
) -> Result<Vec<u64>> {
    const SIGN: u64 = 1 << 63;
    let turned = |key: u64| if descending { !key } else { key };
    // The ends are for NULL.
    let key = |key: u64| turned(key).clamp(1, u64::MAX - 1);
    let null = if nulls_first { 0 } else { u64::MAX };
    let of = |value: Option<u64>| value.map_or(null, key);
    let prefix = |text: &str| {
        let mut bytes = [0; 8];
        let length = text.len().min(8);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        u64::from_be_bytes(bytes)
    };
    Ok(match values.data_type() {
        DataType::UInt64 => values.as_primitive::<UInt64Type>().iter().map(of).collect(),
        DataType::Float32 | DataType::Float64 => {
            let values = cast(values, &DataType::Float64)?;
            let total = |value: f64| {
                let bits = value.to_bits();
                if bits & SIGN == 0 { bits | SIGN } else { !bits }
            };
            let values = values.as_primitive::<Float64Type>().iter();
            values.map(|value| of(value.map(total))).collect()
        }
        DataType::Utf8 => {
            values.as_string::<i32>().iter().map(|text| of(text.map(prefix))).collect()
        }
        DataType::Utf8View => {
            values.as_string_view().iter().map(|text| of(text.map(prefix))).collect()
        }
        _ => {
            let values = cast(values, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().iter();
            values.map(|value| of(value.map(|value| value as u64 ^ SIGN))).collect()
        }
    })
}

/// The rows of its input that can be among the first `fetch` of their group, and some others.
type WindowCandidatesExec = OneInputExec<Candidates>;

#[derive(Clone, Debug)]
struct Candidates {
    groups: Vec<Arc<dyn PhysicalExpr>>,
    first: PhysicalSortExpr,
    fetch: usize,
}

impl OneInput for Candidates {
    const NAME: &'static str = "WindowCandidatesExec";

    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        let groups = groups.join(", ");
        write!(f, ": by=[{groups}], {}, fetch={}", self.first, self.fetch)
    }

    fn expressions(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.groups.iter().chain([&self.first.expr]).collect()
    }

    fn again(&self) -> Self {
        self.clone()
    }

    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let name = format!("WindowCandidates[{partition}]");
        let memory = MemoryConsumer::new(name).register(context.memory_pool());
        let schema = input.schema();
        let batch_rows = context.session_config().batch_size();
        let input = input.execute(partition, context)?;
        let baseline = BaselineMetrics::new(metrics, partition);
        let mut firsts = Some(Firsts::new(
            self.groups.clone(),
            self.first.clone(),
            self.fetch,
            &schema,
            memory,
        )?);
        let rows = input.map_ok(Some).chain(stream::iter([Ok(None)])).map(move |batch| {
            let _timer = baseline.elapsed_compute().timer();
            let (batch, mut rows) = (batch?, Vec::new());
            let goes_on = match (&mut firsts, &batch) {
                (Some(looking), Some(batch)) => looking.look(batch)?,
                _ => false,
            };
            if let Some(looking) = firsts.as_mut().filter(|looking| !goes_on || looking.is_full) {
                rows = looking.hand_out(batch_rows)?;
            }
            if !goes_on {
                // Without memory, or without use: whoever comes above sorts all.
                firsts = None;
                rows.extend(batch);
            }
            baseline.record_output(rows.iter().map(RecordBatch::num_rows).sum());
            Ok::<_, DataFusionError>(stream::iter(rows.into_iter().map(Ok)))
        });
        let rows = rows.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Is looking for candidates worth it?
#[derive(Default)]
struct Trial {
    /// Rows, those of them that were left out, and those that took a place that was free.
    seen: usize,
    left_out: usize,
    filled: usize,
    /// Groups before it.
    groups: usize,
    /// Trials before it in which groups were filling.
    filling: usize,
}

impl Trial {
    /// Is it over, with too little to show? `groups`: how many there are by now.
    fn has_failed(&mut self, groups: usize) -> bool {
        if self.seen < TRIAL {
            return false;
        }
        let behind = self.seen - self.filled;
        let is_filling = self.filled * 2 > self.seen;
        let filling = self.filling + usize::from(is_filling);
        let nearly_all_new = (groups - self.groups) * NEW_GROUPS > self.seen * (NEW_GROUPS - 1);
        let failed = self.left_out * WORTH < behind || filling > FILLING_TRIALS || nearly_all_new;
        *self = Self { groups, filling, ..Self::default() };
        failed
    }
}

/// The first rows of each group so far.
struct Firsts {
    groups: Vec<Arc<dyn PhysicalExpr>>,
    by: PhysicalSortExpr,
    fetch: usize,
    values: Box<dyn GroupValues>,
    /// Of each group `fetch` places, with the first [`order_keys`] so far in order.
    keys: Vec<u64>,
    /// How many of them are taken.
    taken: Vec<u8>,
    memory: MemoryReservation,
    trial: Trial,
    /// Of each row of a batch, its group.
    of_rows: Vec<usize>,
    held: Vec<Held>,
    held_rows: usize,
    held_bytes: usize,
    /// Is there no room to hold more?
    is_full: bool,
}

/// Rows that could be among the first when they were seen, their groups and [`order_keys`].
struct Held {
    batch: RecordBatch,
    keys: Vec<(usize, u64)>,
}

impl Firsts {
    fn new(
        groups: Vec<Arc<dyn PhysicalExpr>>,
        by: PhysicalSortExpr,
        fetch: usize,
        input: &Schema,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let fields = groups.iter().enumerate().map(|(at, group)| {
            Ok(Field::new(format!("group {at}"), group.data_type(input)?, true))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        let values = new_group_values(schema, &GroupOrdering::None)?;
        Ok(Self {
            groups,
            by,
            fetch,
            values,
            keys: Vec::new(),
            taken: Vec::new(),
            memory,
            trial: Trial::default(),
            of_rows: Vec::new(),
            held: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            is_full: false,
        })
    }

    /// Holds the rows that are not behind `fetch` others of their group; false to give up, and then none
    /// of these is held.
    fn look(&mut self, batch: &RecordBatch) -> Result<bool> {
        let rows = batch.num_rows();
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(rows);
        let groups = self.groups.iter().map(evaluate).collect::<Result<Vec<_>>>()?;
        let order = order_keys(&evaluate(&self.by.expr)?, self.by.options)?;
        self.values.intern(&groups, &mut self.of_rows)?;
        self.keys.resize(self.values.len() * self.fetch, 0);
        self.taken.resize(self.values.len(), 0);
        let of_rows = std::mem::take(&mut self.of_rows);
        let kept = BooleanBuffer::collect_bool(rows, |row| self.add(of_rows[row], order[row]));
        let count = kept.count_set_bits();
        self.trial.seen += rows;
        self.trial.left_out += rows - count;
        if self.trial.has_failed(self.values.len()) {
            return Ok(false);
        }
        if count > 0 {
            let keys = kept.set_indices().map(|row| (of_rows[row], order[row])).collect();
            let batch = filter_record_batch(batch, &BooleanArray::from(kept))?;
            self.held_rows += count;
            self.held_bytes += batch.get_array_memory_size() + count * size_of::<(usize, u64)>();
            self.held.push(Held { batch, keys });
        }
        self.of_rows = of_rows;
        let size = self.size();
        let is_held = self.memory.try_resize(size + self.held_bytes).is_ok();
        self.is_full = !is_held || self.held_rows > HELD_ROWS;
        if !is_held && self.memory.try_resize(size).is_err() {
            // These go on as they are.
            self.held.pop_if(|_| count > 0);
            return Ok(false);
        }
        Ok(true)
    }

    /// The rows that are held and are still not behind `fetch` others.
    fn hand_out(&mut self, batch_rows: usize) -> Result<Vec<RecordBatch>> {
        let held = std::mem::take(&mut self.held);
        (self.held_rows, self.held_bytes, self.is_full) = (0, 0, false);
        let Some(first) = held.first() else { return Ok(Vec::new()) };
        let mut rows = BatchCoalescer::new(first.batch.schema(), batch_rows);
        for Held { batch, keys } in held {
            let is_behind = |(group, key): (usize, u64)| {
                usize::from(self.taken[group]) == self.fetch
                    && key > self.keys[(group + 1) * self.fetch - 1]
            };
            let kept = BooleanBuffer::collect_bool(keys.len(), |row| !is_behind(keys[row]));
            rows.push_batch_with_filter(batch, &BooleanArray::from(kept))?;
        }
        rows.finish_buffered_batch()?;
        Ok(std::iter::from_fn(|| rows.next_completed_batch()).collect())
    }

    /// Can a row be among the first of its group, after those before it?
    fn add(&mut self, group: usize, key: u64) -> bool {
        let places = &mut self.keys[group * self.fetch..][..self.fetch];
        let taken = usize::from(self.taken[group]);
        if taken == places.len() && key >= places[taken - 1] {
            return key == places[taken - 1];
        }
        let at = places[..taken].partition_point(|before| *before <= key);
        let last = taken.min(places.len() - 1);
        self.trial.filled += usize::from(taken < places.len());
        places.copy_within(at..last, at + 1);
        places[at] = key;
        self.taken[group] = (last + 1) as u8;
        true
    }

    /// Bytes.
    fn size(&self) -> usize {
        self.values.size() + self.keys.capacity() * size_of::<u64>() + self.taken.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{Float64Array, Int64Array, StringViewArray};
    use datafusion::arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};

    use super::*;

    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    fn firsts(
        schema: &Schema,
        options: SortOptions,
        fetch: usize,
        pool: Arc<dyn MemoryPool>,
    ) -> Firsts {
        let by = PhysicalSortExpr { expr: Arc::new(Column::new("first", 1)), options };
        let memory = MemoryConsumer::new("test").register(&pool);
        let group: Arc<dyn PhysicalExpr> = Arc::new(Column::new("group", 0));
        Firsts::new(vec![group], by, fetch, schema, memory).unwrap()
    }

    /// By group the second columns of its first rows.
    fn first_of_groups(
        all: &RecordBatch,
        options: SortOptions,
        fetch: usize,
    ) -> HashMap<i64, Vec<i64>> {
        let sorted = [
            SortColumn { values: Arc::clone(all.column(1)), options: Some(options) },
            SortColumn { values: Arc::clone(all.column(2)), options: None },
        ];
        let order = lexsort_to_indices(&sorted, None).unwrap();
        let column = |at: usize| take(all.column(at), &order, None).unwrap();
        let (groups, seconds) = (column(0), column(2));
        let mut found = HashMap::<i64, Vec<i64>>::new();
        let groups = groups.as_primitive::<Int64Type>().iter();
        for (group, second) in groups.zip(seconds.as_primitive::<Int64Type>()) {
            let rows = found.entry(group.unwrap_or(-1)).or_default();
            if rows.len() < fetch {
                rows.extend(second);
            }
        }
        found
    }

    #[test]
    fn the_first_rows_of_each_group_are_candidates() {
        let mut next = random(11);
        for (case, fetch) in [1, 2, 7, MANY].into_iter().cycle().take(64).enumerate() {
            let options = SortOptions { descending: case & 4 > 0, nulls_first: case & 8 > 0 };
            let (is_text, few) = (case & 16 > 0, case & 32 > 0);
            let data_type = if is_text { DataType::Utf8View } else { DataType::Float64 };
            let schema = Arc::new(Schema::new(vec![
                Field::new("group", DataType::Int64, true),
                Field::new("first", data_type, true),
                Field::new("second", DataType::Int64, false),
            ]));
            let mut looking =
                firsts(&schema, options, fetch, Arc::new(UnboundedMemoryPool::default()));
            let (mut all, mut candidates) = (Vec::new(), Vec::new());
            for _ in 0..10 {
                let groups = (0..200).map(|_| Some(next(5) as i64).filter(|group| *group > 0));
                let groups: ArrayRef = Arc::new(groups.collect::<Int64Array>());
                let numbers: Vec<Option<f64>> = (0..200)
                    .map(|_| match next(if few { 20 } else { 100_000 }) {
                        0 | 1 => None,
                        2 => Some(f64::NAN),
                        3 => Some(-0.0),
                        4 => Some(f64::NEG_INFINITY),
                        number => Some(number as f64 - 10.0),
                    })
                    .collect();
                let first: ArrayRef = if is_text {
                    // Longer than what a key holds.
                    let text = |number: f64| format!("{:8.1} and more \0", number.abs());
                    let texts = numbers.iter().map(|number| number.map(text));
                    Arc::new(texts.collect::<StringViewArray>())
                } else {
                    Arc::new(Float64Array::from(numbers))
                };
                let second = (0..200).map(|_| next(1 << 40) as i64);
                let second: ArrayRef = Arc::new(second.collect::<Int64Array>());
                let columns = vec![groups, first, second];
                let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
                assert!(looking.look(&batch).unwrap());
                if next(3) == 0 {
                    candidates.extend(looking.hand_out(100).unwrap());
                }
                all.push(batch);
            }
            candidates.extend(looking.hand_out(100).unwrap());
            let all = concat_batches(&schema, &all).unwrap();
            let candidates = concat_batches(&schema, &candidates).unwrap();
            let expected = first_of_groups(&all, options, fetch);
            assert_eq!(first_of_groups(&candidates, options, fetch), expected, "case {case}");
            let left_out = all.num_rows() - candidates.num_rows();
            assert!(left_out > 0 || fetch == MANY, "case {case}");
        }
    }

    #[test]
    fn whole_numbers_and_times_have_keys_in_their_order() {
        let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let values: ArrayRef = Arc::new(Int64Array::from(ends.to_vec()));
        let micros = DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, None);
        for data_type in [DataType::Int64, micros] {
            let values = cast(&values, &data_type).unwrap();
            for descending in [false, true] {
                let options = SortOptions { descending, nulls_first: false };
                let mut keys = order_keys(&values, options).unwrap();
                if descending {
                    keys.reverse();
                }
                assert!(keys.is_sorted() && keys[1] < keys[2] && keys[2] < keys[3], "{keys:?}");
            }
        }
        let most: ArrayRef = Arc::new(datafusion::arrow::array::UInt64Array::from(vec![
            1,
            i64::MAX as u64 + 1,
            u64::MAX,
        ]));
        let keys = order_keys(&most, SortOptions { descending: false, nulls_first: true }).unwrap();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    fn handed_out(looking: &mut Firsts) -> usize {
        looking.hand_out(8192).unwrap().iter().map(RecordBatch::num_rows).sum()
    }

    /// Of so many rows of an input that has `row` the group and the order of each, how many are looked at
    /// and how many of those are left out?
    fn looked_at(rows: usize, mut row: impl FnMut(usize) -> (i64, i64)) -> (usize, usize) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("group", DataType::Int64, true),
            Field::new("first", DataType::Int64, true),
        ]));
        let pool = Arc::new(UnboundedMemoryPool::default());
        let mut looking = firsts(&schema, SortOptions::default(), 2, pool);
        let (mut seen, mut left_out) = (0, 0);
        while seen < rows {
            let (groups, order): (Vec<i64>, Vec<i64>) = (seen..seen + 8192).map(&mut row).unzip();
            let columns: Vec<ArrayRef> =
                vec![Arc::new(Int64Array::from(groups)), Arc::new(Int64Array::from(order))];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
            if !looking.look(&batch).unwrap() {
                break;
            }
            seen += 8192;
            left_out += 8192;
            if looking.is_full {
                left_out -= handed_out(&mut looking);
            }
        }
        (seen, left_out - handed_out(&mut looking))
    }

    #[test]
    fn groups_that_fill_slowly_are_waited_for() {
        const ROWS: usize = 1 << 21;
        let mut next = random(5);
        let (seen, left_out) = looked_at(ROWS, |_| (next(100_000) as i64, next(1 << 40) as i64));
        assert!(seen == ROWS && left_out > ROWS / 2, "{seen} {left_out}");
        // Rows of which every one comes before the others of its group.
        let (seen, _) = looked_at(ROWS, |row| (row as i64 % 1000, -(row as i64)));
        assert!(seen < 2 * TRIAL, "{seen}");
        // Two rows of each group, and never more.
        let (seen, left_out) = looked_at(ROWS, |row| (row as i64 / 2, 0));
        let most = (FILLING_TRIALS + 2) * TRIAL;
        assert!(seen < most && left_out == 0, "{seen} {left_out}");
    }

    #[test]
    fn it_gives_up_without_use_and_without_memory() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("group", DataType::Int64, true),
            Field::new("first", DataType::Int64, true),
        ]));
        let batch = |from: i64| {
            let groups: ArrayRef = Arc::new((from..from + 8192).collect::<Int64Array>());
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(&groups), groups]).unwrap()
        };
        let options = SortOptions::default();
        let mut looking = firsts(&schema, options, 2, Arc::new(UnboundedMemoryPool::default()));
        let looks = (0..32).map(|at| looking.look(&batch(at * 8192)).unwrap());
        assert_eq!(looks.take_while(|goes_on| *goes_on).count(), TRIAL / 8192 - 1);
        // What was held before is handed out, and the batch that was too much is not.
        let rows = looking.hand_out(8192).unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), TRIAL - 8192);
        let mut looking = firsts(&schema, options, 2, Arc::new(GreedyMemoryPool::new(1000)));
        assert!(!looking.look(&batch(0)).unwrap());
        // Groups have room, and rows have not.
        let mut looking = firsts(&schema, options, 2, Arc::new(UnboundedMemoryPool::default()));
        assert!(looking.look(&batch(0)).unwrap() && !looking.is_full);
        let room = Arc::new(GreedyMemoryPool::new(looking.size() + 1000));
        let mut looking = firsts(&schema, options, 2, room);
        assert!(looking.look(&batch(0)).unwrap() && looking.is_full);
        assert_eq!(looking.hand_out(8192).unwrap(), [batch(0)]);
    }
}
