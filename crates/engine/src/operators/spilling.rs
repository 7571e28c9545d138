//! Plans in the form that spills: of the same rows, in the same partitions and order.
//!
//! ```text
//! hash join                   ─► merge join of sorted sides
//! groups in arrays            ─► groups in hash tables, as they were planned
//! a sort on many threads      ─► a sort on one, which has all the memory there is for its merge
//! ```

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::expressions::{Column, UnKnownColumn};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::ConfigOnlyContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use crate::operators::array_aggregate::aggregate::Otherwise;
use crate::operators::array_aggregate::exec::ArrayAggregateExec;

/// Has this node another form of the same rows, but for groups in arrays? What is below it can be computed again
/// then, with the same rows.
pub(crate) fn can_spill(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let has_form = match node.downcast_ref::<HashJoinExec>() {
        Some(join) => !join.null_aware && keeps(node),
        None => sorted(node).is_some() && keeps(node),
    };
    Ok(has_form && is_repeatable(node)?)
}

/// Can the node's partitions and order be had of other rows, too?
fn keeps(node: &Arc<dyn ExecutionPlan>) -> bool {
    let orders = node.equivalence_properties().oeq_class().len();
    !matches!(node.output_partitioning(), Partitioning::Range(_)) && orders <= 1
}

/// What a node sorts, or merges, on several threads, and by what. The first rows of many are looked for in little
/// memory.
fn sorted(node: &Arc<dyn ExecutionPlan>) -> Option<(&Arc<dyn ExecutionPlan>, &LexOrdering)> {
    let plain = |sort: &&SortExec| sort.fetch().is_none();
    let (input, order) = match node.downcast_ref::<SortPreservingMergeExec>() {
        Some(merge) if merge.fetch().is_some() => return None,
        Some(merge) => match merge.input().downcast_ref::<SortExec>().filter(plain) {
            Some(sort) => (sort.input(), merge.expr()),
            None => (merge.input(), merge.expr()),
        },
        None => {
            let sort = node.downcast_ref::<SortExec>().filter(plain)?;
            sort.preserve_partitioning().then(|| (sort.input(), sort.expr()))?
        }
    };
    (input.output_partitioning().partition_count() > 1).then_some((input, order))
}

/// Are the rows the same when they are computed again? A sort that has found its first rows has told the scan to
/// leave out others, and the scan would.
fn is_repeatable(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut repeatable = true;
    plan.apply(|node| {
        repeatable &= node.downcast_ref::<SortExec>().is_none_or(|sort| sort.fetch().is_none());
        node.apply_expressions(&mut |expr| {
            repeatable &= !is_volatile(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if repeatable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(repeatable)
}

/// The plan in the form that spills, with nothing of what a run of it has left behind. `rules`: of plans without
/// groups in arrays.
///
/// # Errors
/// Those of rules.
pub(crate) fn spilling(
    plan: &Arc<dyn ExecutionPlan>,
    rules: &[Arc<dyn PhysicalOptimizerRule + Send + Sync>],
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let below = |plan: &Arc<dyn ExecutionPlan>| spilling(plan, rules, options);
    let changed = Arc::clone(plan).transform_down(|node| {
        let other = if let Some(groups) = node.downcast_ref::<ArrayAggregateExec>() {
            let plain = match &groups.what.otherwise {
                Otherwise::AnyOrder(arrays) => below(arrays)?,
                Otherwise::Hashes(planned) => {
                    let planned = reset_plan_states(Arc::clone(planned))?;
                    below(&optimized(planned, rules, options)?)?
                }
            };
            alike(plain, &node)?
        } else if let Some((input, order)) = sorted(&node) {
            let input = Arc::new(CoalescePartitionsExec::new(below(input)?));
            alike(Arc::new(SortExec::new(order.clone(), input)), &node)?
        } else if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && !join.null_aware
            && keeps(&node)
        {
            let threads = options.execution.target_partitions.max(1);
            alike(merge_join(join, below(join.left())?, below(join.right())?, threads)?, &node)?
        } else {
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::new(other, true, TreeNodeRecursion::Jump))
    })?;
    reset_plan_states(changed.data)
}

fn optimized(
    plan: Arc<dyn ExecutionPlan>,
    rules: &[Arc<dyn PhysicalOptimizerRule + Send + Sync>],
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let context = ConfigOnlyContext::new(options);
    rules.iter().try_fold(plan, |plan, rule| rule.optimize_with_context(plan, &context))
}

/// The rows of `plan` in the partitions and in the order of `node`.
fn alike(
    mut plan: Arc<dyn ExecutionPlan>,
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let wanted = node.output_partitioning();
    // Nobody can count on a hash of columns that are not there.
    let hashed = match wanted {
        Partitioning::Hash(keys, _) => !keys.iter().any(|key| key.is::<UnKnownColumn>()),
        _ => false,
    };
    let is_same = match hashed {
        true => plan.output_partitioning() == wanted,
        false => plan.output_partitioning().partition_count() == wanted.partition_count(),
    };
    if !is_same {
        plan = match wanted.partition_count() {
            1 => Arc::new(CoalescePartitionsExec::new(plan)),
            count => {
                let dealt = match hashed {
                    true => wanted.clone(),
                    false => Partitioning::RoundRobinBatch(count),
                };
                Arc::new(RepartitionExec::try_new(plan, dealt)?)
            }
        };
    }
    let Some(order) = node.output_ordering() else { return Ok(plan) };
    if plan.equivalence_properties().ordering_satisfy(order.iter().cloned())? {
        return Ok(plan);
    }
    Ok(Arc::new(SortExec::new(order.clone(), plan).with_preserve_partitioning(true)))
}

/// The join of sorted sides.
fn merge_join(
    join: &HashJoinExec,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    threads: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let (of_left, of_right): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
    let merge = SortMergeJoinExec::try_new(
        side(left, of_left, threads)?,
        side(right, of_right, threads)?,
        join.on().to_vec(),
        join.filter().cloned(),
        *join.join_type(),
        vec![SortOptions::default(); join.on().len()],
        join.null_equality(),
    )?;
    let mut plan: Arc<dyn ExecutionPlan> = Arc::new(merge);
    if let Some(columns) = &join.projection {
        let schema = plan.schema();
        let column = |at: &usize| {
            let alias = schema.field(*at).name().clone();
            ProjectionExpr { expr: Arc::new(Column::new(&alias, *at)), alias }
        };
        plan = Arc::new(ProjectionExec::try_new(columns.iter().map(column), plan)?);
    }
    if let Some(rows) = join.fetch() {
        plan = Arc::new(LocalLimitExec::new(plan, rows));
    }
    Ok(plan)
}

/// One side, whose rows with equal keys are in one partition, sorted by their keys.
fn side(
    plan: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    threads: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let order = keys.iter().cloned().map(PhysicalSortExpr::new_default);
    let no_keys = || DataFusionError::Internal("a hash join has no keys".into());
    let order = LexOrdering::new(order).ok_or_else(no_keys)?;
    let wanted = Partitioning::Hash(keys, threads);
    let dealt = match plan.downcast_ref::<CoalescePartitionsExec>() {
        // Dealt out twice, one queue fills while the other's reader waits.
        _ if *plan.output_partitioning() == wanted => plan,
        Some(all) if all.fetch().is_none() => {
            Arc::new(RepartitionExec::try_new(Arc::clone(all.input()), wanted)?)
        }
        _ => Arc::new(RepartitionExec::try_new(plan, wanted)?),
    };
    Ok(Arc::new(SortExec::new(order, dealt).with_preserve_partitioning(true)))
}
