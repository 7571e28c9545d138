//! Rows that can be among the first, told before the keys of their ids are looked up.
//!
//! ```text
//! first 20 by c DESC, user_id            first 20 by c DESC, user_id
//!   user_id: the key of the id    ─►       user_id: the key of the id
//!     groups by id                           rows that are not behind the 20 largest c so far
//!                                              groups by id
//! ```
//!
//! # Invariants
//! - A row is left out only if as many rows as are wanted come before it by the first expression alone.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use datafusion::arrow::compute::{SortOptions, concat, filter, filter_record_batch, sort_limit};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

use uplake_functions::holds as true_only;

use crate::base::one_input::{EachNode, OneInput, OneInputExec};
use crate::mends::is_one_number;
use crate::optimizer::id_rewrite::id_keys::looks_up_keys;

/// More rows than these are not looked for: they would have to be put in order again with every batch.
const MANY: usize = 1024;

/// The rule that puts [`TopCandidatesExec`] below keys of ids that are sorted by something else first.
pub(crate) const TOP_CANDIDATES: EachNode =
    EachNode { name: "top_candidates", other: with_candidates };

fn with_candidates(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(fetch) = sort.fetch().filter(|fetch| (1..=MANY).contains(fetch)) else {
        return Ok(None);
    };
    let Some(projection) = sort.input().downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let PhysicalSortExpr { expr, options } = sort.expr().first();
    let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| is_one_number(call.fun()));
    let of = call.and_then(|call| call.args().first()).unwrap_or(expr);
    let Some(column) = of.downcast_ref::<Column>() else { return Ok(None) };
    let of = Arc::clone(&projection.expr()[column.index()].expr);
    let first = if call.is_some() { Arc::clone(expr).with_new_children(vec![of])? } else { of };
    let first = &first;
    let has_keys = |expr: &Arc<dyn PhysicalExpr>| {
        let is_keys = |part: &Arc<dyn PhysicalExpr>| {
            part.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| looks_up_keys(call.fun()))
        };
        expr.exists(|part| Ok(is_keys(part)))
    };
    let input = projection.input();
    if !first.data_type(&input.schema())?.is_primitive() || is_volatile(first) || has_keys(first)? {
        return Ok(None);
    }
    let mut looked_up = false;
    for projected in projection.expr() {
        looked_up |= has_keys(&projected.expr)?;
    }
    if !looked_up {
        return Ok(None);
    }
    let first = PhysicalSortExpr { expr: Arc::clone(first), options: *options };
    let candidates = TopCandidatesExec::over(Candidates { first, fetch }, Arc::clone(input));
    let keys = replace_children_if_necessary(Arc::clone(sort.input()), vec![Arc::new(candidates)])?;
    Ok(Some(replace_children_if_necessary(Arc::clone(node), vec![keys])?))
}

/// The rows of its input that can be among the first `fetch` of their partition, and some others.
type TopCandidatesExec = OneInputExec<Candidates>;

#[derive(Clone, Debug)]
struct Candidates {
    first: PhysicalSortExpr,
    fetch: usize,
}

impl OneInput for Candidates {
    const NAME: &'static str = "TopCandidatesExec";

    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ": {}, fetch={}", self.first, self.fetch)
    }

    fn expressions(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.first.expr]
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
        let schema = input.schema();
        let input = input.execute(partition, context)?;
        let baseline = BaselineMetrics::new(metrics, partition);
        let mut first = First { by: self.first.clone(), fetch: self.fetch, found: None };
        let rows = input.map(move |batch| {
            let _timer = baseline.elapsed_compute().timer();
            let candidates = first.candidates(&batch?)?;
            baseline.record_output(candidates.num_rows());
            Ok(candidates)
        });
        let rows = rows.try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The first values seen so far.
struct First {
    by: PhysicalSortExpr,
    fetch: usize,
    /// In order, at most `fetch`.
    found: Option<ArrayRef>,
}

impl First {
    /// The rows that are not behind `fetch` others.
    fn candidates(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let values = self.by.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        let more = filter(&values, &self.not_behind(&values)?)?;
        if more.is_empty() {
            return Ok(batch.slice(0, 0));
        }
        let all = match &self.found {
            Some(found) => concat(&[found.as_ref(), more.as_ref()])?,
            None => more,
        };
        self.found = Some(sort_limit(&all, Some(self.by.options), Some(self.fetch))?);
        Ok(filter_record_batch(batch, &self.not_behind(&values)?)?)
    }

    /// Which values do not come after the last that was found?
    fn not_behind(&self, values: &ArrayRef) -> Result<BooleanArray> {
        let SortOptions { descending, nulls_first } = self.by.options;
        let all = || BooleanBuffer::new_set(values.len());
        let is_null = || values.nulls().map(|valid| !valid.inner());
        let full = self.found.as_ref().filter(|found| found.len() == self.fetch);
        let held = match full.map(|found| found.slice(self.fetch - 1, 1)) {
            None => all(),
            Some(last) if last.is_null(0) && nulls_first => {
                is_null().unwrap_or_else(|| BooleanBuffer::new_unset(values.len()))
            }
            Some(last) if last.is_null(0) => all(),
            Some(last) => {
                let compare = if descending { gt_eq } else { lt_eq };
                let level = true_only(&compare(values, &Scalar::new(last))?);
                match is_null().filter(|_| nulls_first) {
                    Some(nulls) => &level | &nulls,
                    None => level,
                }
            }
        };
        Ok(held.into())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Float64Array, Int64Array};
    use datafusion::arrow::compute::{SortColumn, lexsort_to_indices, take};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    /// The first rows of all batches are the first rows of the candidates, whatever comes second.
    #[test]
    fn the_first_rows_are_candidates() {
        let mut random = 11u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("first", DataType::Float64, true),
            Field::new("second", DataType::Int64, false),
        ]));
        for (case, fetch) in [1, 7, 60, 1000].into_iter().cycle().take(32).enumerate() {
            let options = SortOptions { descending: case & 4 > 0, nulls_first: case & 8 > 0 };
            let (values, mut left_out) = (if case & 16 > 0 { 20 } else { 100_000 }, 0);
            let by = PhysicalSortExpr { expr: Arc::new(Column::new("first", 0)), options };
            let mut first = First { by, fetch, found: None };
            let (mut all, mut candidates) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                let numbers = (0..100).map(|_| match next(values) {
                    0 | 1 => None,
                    2 => Some(f64::NAN),
                    3 => Some(-0.0),
                    number => Some(number as f64 - 10.0),
                });
                let numbers: ArrayRef = Arc::new(numbers.collect::<Float64Array>());
                let others: ArrayRef =
                    Arc::new((0..100).map(|_| next(1 << 40) as i64).collect::<Int64Array>());
                let batch =
                    RecordBatch::try_new(Arc::clone(&schema), vec![numbers, others]).unwrap();
                let some = first.candidates(&batch).unwrap();
                left_out += batch.num_rows() - some.num_rows();
                all.push(batch);
                candidates.push(some);
            }
            let seconds_of_first = |batches: &[RecordBatch]| {
                let all = datafusion::arrow::compute::concat_batches(&schema, batches).unwrap();
                let sorted = [
                    SortColumn { values: Arc::clone(all.column(0)), options: Some(options) },
                    SortColumn { values: Arc::clone(all.column(1)), options: None },
                ];
                let order = lexsort_to_indices(&sorted, Some(fetch)).unwrap();
                take(all.column(1), &order, None).unwrap().as_primitive::<Int64Type>().clone()
            };
            assert_eq!(seconds_of_first(&candidates), seconds_of_first(&all), "case {case}");
            assert!(left_out > 0 || fetch == 1000 || values == 20, "case {case}");
        }
    }
}
