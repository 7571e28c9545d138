//! Where a part reads what a shuffle made of others' rows: an operator without inputs.
//!
//! # Not here
//! How rows get there: [`crate::portable::elsewhere::Shuffled`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session as PlanningSession;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, FunctionalDependencies, Result, internal_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::portable::elsewhere::{PartRows, Shuffled};
use crate::portable::rows_exec::{RowSource, RowsExec};

/// The operator of a logical plan.
#[derive(Clone, Debug)]
pub(crate) struct ShuffleRead {
    /// Its number among those of a statement.
    pub shuffle: u32,
    /// The columns whose hash says in which part a row is.
    pub keys: Vec<usize>,
    schema: DFSchemaRef,
    /// What a part reads; none until it is known which part it is.
    from: Option<Arc<dyn Shuffled>>,
}

impl ShuffleRead {
    /// What reads the rows of a shuffle of `plan`.
    pub fn of_rows(shuffle: u32, keys: Vec<usize>, plan: &LogicalPlan) -> Result<LogicalPlan> {
        // What depends on what where rows come from need not do so in what is put together from there.
        let schema = DFSchema::clone(plan.schema());
        let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
        Ok(Self::plan(shuffle, keys, Arc::new(schema)))
    }

    pub fn plan(shuffle: u32, keys: Vec<usize>, schema: DFSchemaRef) -> LogicalPlan {
        let node = Arc::new(Self { shuffle, keys, schema, from: None });
        LogicalPlan::Extension(Extension { node })
    }

    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }
}

/// The shuffles that a plan reads, by their numbers.
pub(crate) fn reads(plan: &LogicalPlan) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        found.extend(ShuffleRead::of(node).map(|read| read.shuffle));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The plan of a part, which reads from here.
pub(crate) fn reading(plan: LogicalPlan, from: &Arc<dyn Shuffled>) -> Result<LogicalPlan> {
    let reading = plan.transform_up(|node| {
        let Some(read) = ShuffleRead::of(&node) else { return Ok(Transformed::no(node)) };
        let node = Arc::new(ShuffleRead { from: Some(Arc::clone(from)), ..read.clone() });
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    })?;
    Ok(reading.data)
}

impl PartialEq for ShuffleRead {
    fn eq(&self, other: &Self) -> bool {
        (self.shuffle, &self.keys, &self.schema) == (other.shuffle, &other.keys, &other.schema)
    }
}

impl Eq for ShuffleRead {}

impl PartialOrd for ShuffleRead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = (self.shuffle, &self.keys).cmp(&(other.shuffle, &other.keys));
        (order != Ordering::Equal || self == other).then_some(order)
    }
}

impl Hash for ShuffleRead {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.shuffle, &self.keys, &self.schema).hash(state);
    }
}

impl UserDefinedLogicalNodeCore for ShuffleRead {
    fn name(&self) -> &'static str {
        "ShuffleRead"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShuffleRead: {}", self.shuffle + 1)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
}

/// What plans it.
pub(crate) struct ShuffleReadPlanner;

#[async_trait]
impl ExtensionPlanner for ShuffleReadPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        _: &[Arc<dyn ExecutionPlan>],
        _: &dyn PlanningSession,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<ShuffleRead>() else { return Ok(None) };
        let Some(from) = &node.from else {
            return internal_err!("a shuffle is read by what is no part");
        };
        let bucket = Bucket { shuffle: node.shuffle, from: Arc::clone(from) };
        Ok(Some(Arc::new(RowsExec::new(bucket, Arc::clone(node.schema.inner())))))
    }
}

/// Rows that other parts have for this one.
#[derive(Debug)]
struct Bucket {
    shuffle: u32,
    from: Arc<dyn Shuffled>,
}

impl RowSource for Bucket {
    const NAME: &'static str = "ShuffleReadExec";

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shuffle={}", self.shuffle + 1)
    }

    fn rows(&self) -> PartRows {
        self.from.rows(self.shuffle)
    }

    fn size(&self) -> Option<(usize, usize)> {
        self.from.size(self.shuffle)
    }
}
