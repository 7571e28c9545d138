//! What DataFusion believes to be equal and is not.
//!
//! - A column that is constant in the side of an outer join which is filled up with NULLs (`WHERE kind =
//!   'x'`, `SELECT 4 AS y`) counts as constant above the join (`EquivalenceGroup::join`): rows are not
//!   sorted by it, and groups by it come twice. [`PlainExec`] forgets it.
//! - A column that is another constant in each part of a UNION ALL is left out of the keys that parts are
//!   sorted by, rightly, but a top k has its parts tell each other which rows to drop: by the other keys alone.
//! - Columns that a join made equal count as equal above grouping sets, which fill one of them up.
//! - `coalesce(x, 0) = 0` puts the literal 0 and an expression that holds it into one class, so each 0 of a
//!   sort key becomes that expression, again and again.
//! - COPY asks for the order that its rows were believed to have, and writes it into a Parquet file's footer,
//!   before any rule sees the plan.
//!
//! # Invariants
//! - Rows are those of the plan as it was.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::datasource::physical_plan::FileSink;
use datafusion::datasource::physical_plan::parquet::ParquetSink;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{
    AcrossPartitions, EquivalenceProperties, LexRequirement, PhysicalExpr,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

use crate::base::one_input::{OneInput, OneInputExec};

/// The rule. It comes before orders and partitions are chosen.
#[derive(Debug)]
pub(super) struct NoFalseConstants;

impl PhysicalOptimizerRule for NoFalseConstants {
    fn name(&self) -> &'static str {
        "no_false_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plain = plan.transform_up(|node| {
            if (node.is::<FilterExec>() || node.is::<DataSourceExec>()) && has_circle(&node) {
                return Ok(Transformed::yes(plain(node, false)));
            }
            let fills_up = matches!(
                join_type(node.as_ref()),
                Some(JoinType::Left | JoinType::Right | JoinType::Full)
            );
            if fills_up && !node.equivalence_properties().constants().is_empty() {
                return Ok(Transformed::yes(plain(node, true)));
            }
            if (node.is::<UnionExec>() || node.is::<InterleaveExec>()) && has_other_constants(&node)
            {
                return Ok(Transformed::yes(plain(node, true)));
            }
            let has_sets = |groups: &AggregateExec| !groups.group_expr().is_single();
            if node.downcast_ref::<AggregateExec>().is_some_and(has_sets)
                && !node.equivalence_properties().eq_group().is_empty()
            {
                return Ok(Transformed::yes(plain(node, false)));
            }
            Ok(Transformed::no(node))
        })?;
        if plain.transformed {
            plain.data.transform_up(in_full_order).data()
        } else {
            Ok(plain.data)
        }
    }
}

fn plain(input: Arc<dyn ExecutionPlan>, keeps_equal: bool) -> Arc<dyn ExecutionPlan> {
    Arc::new(PlainExec::over(Plain { keeps_equal }, input))
}

/// A sink that asks for the whole order which its input has now that less is believed.
fn in_full_order(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(node) = plan.downcast_ref::<DataSinkExec>() else { return Ok(Transformed::no(plan)) };
    let order = node.input().output_ordering().cloned().map(LexRequirement::from);
    if *node.sort_order() == order {
        return Ok(Transformed::no(plan));
    }
    let sink: Arc<dyn DataSink> = match node.sink().downcast_ref::<ParquetSink>() {
        // It says nothing of the order in the footer, where readers would rely on it.
        Some(sink) => {
            Arc::new(ParquetSink::new(sink.config().clone(), sink.parquet_options().clone()))
        }
        None => Arc::new(SinkOf(node.clone())),
    };
    let input = Arc::clone(node.input());
    Ok(Transformed::yes(Arc::new(DataSinkExec::new(input, sink, order)) as _))
}

/// The sink of a node, which does not hand it out.
#[derive(Debug)]
struct SinkOf(DataSinkExec);

impl DisplayAs for SinkOf {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.sink().fmt_as(format, f)
    }
}

#[async_trait]
impl DataSink for SinkOf {
    fn metrics(&self) -> Option<MetricsSet> {
        self.0.sink().metrics()
    }

    fn schema(&self) -> &SchemaRef {
        self.0.sink().schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        self.0.sink().write_all(data, context).await
    }
}

fn join_type(plan: &dyn ExecutionPlan) -> Option<JoinType> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return Some(*join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return Some(*join.join_type());
    }
    Some(plan.downcast_ref::<SortMergeJoinExec>()?.join_type())
}

/// Does a class hold a literal, and an expression that holds it, too?
fn has_circle(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.equivalence_properties().eq_group().iter().any(|class| {
        let literals = class.iter().filter_map(|expr| expr.downcast_ref::<Literal>());
        let mut literals = literals.map(|literal| {
            move |part: &Arc<dyn PhysicalExpr>| part.downcast_ref::<Literal>() == Some(literal)
        });
        literals.any(|is_it| class.iter().any(|e| !e.is::<Literal>() && contains(e, &is_it)))
    })
}

/// Is a column constant in each partition, but not the same in all?
fn has_other_constants(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let constants = plan.equivalence_properties().constants();
    constants.iter().any(|found| found.across_partitions == AcrossPartitions::Heterogeneous)
}

fn contains(expr: &Arc<dyn PhysicalExpr>, wanted: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool) -> bool {
    wanted(expr) || expr.children().into_iter().any(|part| contains(part, wanted))
}

/// Rows of which less is said: that no column is constant, and not in which order they come. It stays in
/// the plan, because operators above look again when their inputs are replaced.
pub(crate) type PlainExec = OneInputExec<Plain>;

#[derive(Clone, Debug)]
pub(crate) struct Plain {
    /// Are columns that are equal still equal?
    keeps_equal: bool,
}

impl OneInput for Plain {
    const NAME: &'static str = "PlainExec";
    /// Or else sorting would be done below, where the constant is one.
    const KEEPS_ORDER: bool = false;
    const KEEPS_STATISTICS: bool = true;
    const CARDINALITY: CardinalityEffect = CardinalityEffect::Equal;

    fn properties(&self, input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        let known = input.equivalence_properties();
        let mut still = EquivalenceProperties::new(input.schema());
        // Two columns of one side are equal in rows that are filled up, too: both are NULL there. Of other
        // expressions nobody knows.
        for class in known.eq_group().iter().filter(|_| self.keeps_equal) {
            let mut columns = class.iter().filter(|expr| expr.is::<Column>());
            let Some(first) = columns.next() else { continue };
            for other in columns {
                // What cannot be added is not known; the rows are right all the same.
                if still.add_equal_conditions(Arc::clone(first), Arc::clone(other)).is_err() {
                    break;
                }
            }
        }
        Arc::new(PlanProperties::new(
            still,
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        ))
    }

    fn again(&self) -> Self {
        self.clone()
    }

    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        _: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        input.execute(partition, context)
    }
}
