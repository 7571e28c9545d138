//! Where parts stand in a plan: an operator without inputs, whose rows others compute.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session as PlanningSession;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, DataFusionError, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::StreamExt;

use crate::portable::elsewhere::{Asked, Elsewhere, PartRows};

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
        let node = node.as_any().downcast_ref::<PartsNode>();
        Ok(node.map(|node| Arc::new(PartsExec::new(Arc::clone(&node.parts))) as _))
    }
}

/// Rows that parts have computed.
#[derive(Debug)]
struct PartsExec {
    parts: Arc<Parts>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PartsExec {
    fn new(parts: Arc<Parts>) -> Self {
        let schema = Arc::clone(&parts.asked.fragment.schema);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Self { parts, properties: Arc::new(properties), metrics }
    }
}

impl DisplayAs for PartsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { shuffles, fragment, parts, told, .. } = &self.parts.asked;
        write!(f, "PartsExec: parts={}, fragment={} bytes", parts.len(), fragment.bytes.len())?;
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
}

impl ExecutionPlan for PartsExec {
    fn name(&self) -> &'static str {
        "PartsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("parts have one partition");
        }
        let Parts { asked, elsewhere } = self.parts.as_ref();
        let schema = Arc::clone(&asked.fragment.schema);
        let rows = elsewhere.rows(asked.clone());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        Ok(as_planned(rows, schema, metrics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Rows of parts as a plan has them: what others sent is not believed.
pub(crate) fn as_planned(
    rows: PartRows,
    schema: SchemaRef,
    metrics: BaselineMetrics,
) -> SendableRecordBatchStream {
    let expected = Arc::clone(&schema);
    let rows = rows.map(move |batch| {
        let batch = batch.map_err(DataFusionError::from)?;
        let types = |schema: &Schema| {
            schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>()
        };
        if types(batch.schema_ref()) != types(&expected) {
            return internal_err!("a part has other columns than its plan");
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let batch = RecordBatch::try_new_with_options(Arc::clone(&expected), columns, &rows)?;
        Ok::<_, DataFusionError>(batch.record_output(&metrics))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}
