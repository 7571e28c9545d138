//! Where parts stand in a plan: an operator without inputs, whose rows others compute.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session as PlanningSession;
use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::portable::elsewhere::{Asked, Elsewhere, PartRows};
use crate::portable::rows_exec::{RowSource, RowsExec};

/// What is computed in parts, by whom.
#[derive(Debug)]
pub(crate) struct Parts {
    pub asked: Asked,
    pub elsewhere: Arc<dyn Elsewhere>,
}

/// The operator of a logical plan.
#[derive(Clone, Debug)]
struct PartsNode {
    parts: Arc<Parts>,
    schema: DFSchemaRef,
}

/// The operator whose rows the parts compute.
pub(crate) fn parts_node(parts: Parts, schema: DFSchemaRef) -> LogicalPlan {
    let node = Arc::new(PartsNode { parts: Arc::new(parts), schema });
    LogicalPlan::Extension(Extension { node })
}

impl PartialEq for PartsNode {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.parts.asked, &other.parts.asked);
        ours.fragment.bytes == theirs.fragment.bytes && ours.parts == theirs.parts
    }
}

impl Eq for PartsNode {}

impl PartialOrd for PartsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = self.parts.asked.fragment.bytes.cmp(&other.parts.asked.fragment.bytes);
        (order != Ordering::Equal || self == other).then_some(order)
    }
}

impl Hash for PartsNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.asked.fragment.bytes.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for PartsNode {
    fn name(&self) -> &'static str {
        "Parts"
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
        write!(f, "Parts: {}", self.parts.asked.parts.len())
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
}

/// What plans it.
pub(crate) struct PartsPlanner;

#[async_trait]
impl ExtensionPlanner for PartsPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        _: &[Arc<dyn ExecutionPlan>],
        _: &dyn PlanningSession,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<PartsNode>() else { return Ok(None) };
        let schema = Arc::clone(&node.parts.asked.fragment.schema);
        Ok(Some(Arc::new(RowsExec::new(Arc::clone(&node.parts), schema))))
    }
}

impl RowSource for Arc<Parts> {
    const NAME: &'static str = "PartsExec";

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { shuffles, fragment, parts, told, .. } = &self.asked;
        write!(f, "parts={}, fragment={} bytes", parts.len(), fragment.bytes.len())?;
        if !shuffles.is_empty() {
            write!(f, ", shuffles={}", shuffles.len())?;
        }
        let mut nodes: Vec<&str> = parts.iter().map(|part| part.node.as_str()).collect();
        nodes.dedup();
        if !nodes.concat().is_empty() {
            write!(f, ", nodes=[{}]", nodes.join(", "))?;
        }
        // Once it has run.
        for told in told.all() {
            let ms = told.took.as_secs_f64() * 1e3;
            let of = told.shuffle.map(|shuffle| format!("shuffle {} at ", shuffle + 1));
            let of = of.unwrap_or_default();
            write!(f, ", {of}{}: {} rows, {} bytes, {ms:.1} ms", told.node, told.rows, told.bytes)?;
            if told.others > 0 {
                write!(f, " ({} others were asked)", told.others)?;
            }
        }
        Ok(())
    }

    fn rows(&self) -> PartRows {
        self.elsewhere.rows(self.asked.clone())
    }

    fn size(&self) -> Option<(usize, usize)> {
        None
    }
}
