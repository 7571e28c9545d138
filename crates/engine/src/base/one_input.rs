//! Operators over one input, and rules that look at one node: what each must say, and the rest of what DataFusion
//! asks for.
//!
//! # Invariants
//! - An operator that is given another input begins anew: nothing of a run goes with it.

use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// What an operator makes of the rows of its input.
pub(crate) trait OneInput: Debug + Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// Do rows come in the order of the input?
    const KEEPS_ORDER: bool = true;
    /// Is what is known of the input's rows known of its own?
    const KEEPS_STATISTICS: bool = false;
    const CARDINALITY: CardinalityEffect = CardinalityEffect::Unknown;

    /// What stands behind its name.
    fn details(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    fn properties(&self, input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        Arc::clone(input.properties())
    }

    /// What it computes of rows.
    fn expressions(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    /// Columns of which the input may be asked what is asked of this.
    fn asked_below(&self) -> Option<HashSet<usize>> {
        None
    }

    /// The same before it runs.
    fn again(&self) -> Self;

    /// The rows of one partition.
    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Such an operator in a plan.
#[derive(Debug)]
pub(crate) struct OneInputExec<O> {
    pub operator: O,
    pub input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<O: OneInput> OneInputExec<O> {
    pub fn over(operator: O, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = operator.properties(&input);
        Self { operator, input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl<O: OneInput> DisplayAs for OneInputExec<O> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(O::NAME)?;
        self.operator.details(f)
    }
}

impl<O: OneInput> ExecutionPlan for OneInputExec<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![O::KEEPS_ORDER]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.operator.expressions() {
            if visit(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let Some(columns) = self.operator.asked_below() else {
            return Ok(FilterDescription::all_unsupported(&filters, &self.children()));
        };
        let asked = ChildFilterDescription::from_child_with_allowed_indices(
            &filters,
            columns,
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(asked))
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(no_input::<O>)?;
        Ok(Arc::new(Self::over(self.operator.again(), input)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.operator.rows(&self.input, &self.metrics, partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        O::CARDINALITY
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![if O::KEEPS_STATISTICS { ChildStats::At(partition) } else { ChildStats::Skip }]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match O::KEEPS_STATISTICS {
            true => inputs.first().cloned().ok_or_else(no_input::<O>),
            false => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}

fn no_input<O: OneInput>() -> DataFusionError {
    DataFusionError::Internal(format!("{} has one input", O::NAME))
}

/// A rule that puts another node where there is one for it, from below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EachNode {
    pub name: &'static str,
    pub other: OtherNode,
}

/// What takes a node's place, if anything does.
type OtherNode = fn(&Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>>;

impl PhysicalOptimizerRule for EachNode {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok((self.other)(&node)?.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }
}
