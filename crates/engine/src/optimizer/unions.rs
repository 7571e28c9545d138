//! Groups in arrays below a UNION come to their ends before a row of it is handed out.
//!
//! What fails in arrays fails before a row is given out, and the statement runs again without them. Other
//! parts of a UNION would have handed out rows by then.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{BoxFuture, Shared, try_join_all};
use futures::{FutureExt, TryFutureExt, TryStreamExt};

use crate::operators::array_aggregate::exec::DenseAggregateExec;
use crate::operators::build_sides::KeptSideExec;

/// The rule. It comes after all that makes or changes groups in arrays.
#[derive(Debug, Default)]
pub(crate) struct GroupsBeforeUnions;

impl PhysicalOptimizerRule for GroupsBeforeUnions {
    fn name(&self) -> &'static str {
        "groups_before_unions"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_down(|node| {
            // What is recursive runs many times.
            if node.is::<RecursiveQueryExec>() {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            let is_union = node.is::<UnionExec>() || node.is::<InterleaveExec>();
            if !is_union || groups_below(&node).is_empty() {
                return Ok(Transformed::no(node));
            }
            let union: Arc<dyn ExecutionPlan> = Arc::new(UnionOfGroupsExec::new(node));
            Ok(Transformed::new(union, true, TreeNodeRecursion::Jump))
        })?;
        Ok(changed.data)
    }
}

/// The topmost groups in arrays below a plan, those that somebody may have kept left out.
fn groups_below(plan: &Arc<dyn ExecutionPlan>) -> Vec<&DenseAggregateExec> {
    let (mut found, mut nodes) = (Vec::new(), vec![plan]);
    while let Some(node) = nodes.pop() {
        if let Some(groups) = node.downcast_ref::<DenseAggregateExec>() {
            found.push(groups);
        } else if !node.is::<KeptSideExec>() && !node.is::<RecursiveQueryExec>() {
            nodes.extend(node.children());
        }
    }
    found
}

/// Rows of its input once the groups below it are whole.
#[derive(Debug)]
struct UnionOfGroupsExec {
    input: Arc<dyn ExecutionPlan>,
    begun: Arc<Mutex<Option<Whole>>>,
}

/// Ready when the groups are.
type Whole = Shared<BoxFuture<'static, Result<(), Arc<DataFusionError>>>>;

impl UnionOfGroupsExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, begun: Arc::default() }
    }
}

fn begin(
    input: &Arc<dyn ExecutionPlan>,
    begun: &Mutex<Option<Whole>>,
    context: &Arc<TaskContext>,
) -> Result<Whole> {
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(whole) = begun.as_ref() {
        return Ok(whole.clone());
    }
    let groups = groups_below(input).into_iter().map(|groups| groups.begin(context));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let whole = try_join_all(groups).map_ok(drop).map_err(Arc::new).boxed().shared();
    *begun = Some(whole.clone());
    Ok(whole)
}

impl DisplayAs for UnionOfGroupsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnionOfGroupsExec")
    }
}

impl ExecutionPlan for UnionOfGroupsExec {
    fn name(&self) -> &'static str {
        "UnionOfGroupsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let missing = || DataFusionError::Internal("a union of groups has one input".into());
        Ok(Arc::new(Self::new(children.pop().ok_or_else(missing)?)))
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
        let (input, begun) = (Arc::clone(&self.input), Arc::clone(&self.begun));
        // Not before somebody asks: joins and subqueries above may first have to find what rows need.
        let rows = async move {
            let whole = begin(&input, &begun, &context)?;
            whole.await.map_err(DataFusionError::Shared)?;
            input.execute(partition, context)
        };
        let rows = futures::stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
