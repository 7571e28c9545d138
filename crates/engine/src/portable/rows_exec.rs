//! The operator of a plan whose rows come from elsewhere: of parts, or of a shuffle.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
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
use futures::StreamExt;

use crate::portable::elsewhere::PartRows;

/// Who has the rows.
pub(crate) trait RowSource: fmt::Debug + Send + Sync + 'static {
    /// What the operator is called in plans.
    const NAME: &'static str;

    /// What is shown behind the name.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    fn rows(&self) -> PartRows;

    /// How many rows and bytes these are, if that is known.
    fn size(&self) -> Option<(usize, usize)>;
}

/// Rows from elsewhere, as one partition.
#[derive(Debug)]
pub(crate) struct RowsExec<S> {
    source: S,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<S: RowSource> RowsExec<S> {
    pub fn new(source: S, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Self { source, properties: Arc::new(properties), metrics }
    }
}

impl<S: RowSource> DisplayAs for RowsExec<S> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", S::NAME)?;
        self.source.show(f)
    }
}

impl<S: RowSource> ExecutionPlan for RowsExec<S> {
    fn name(&self) -> &'static str {
        S::NAME
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
            return internal_err!("{} has one partition", S::NAME);
        }
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        Ok(as_planned(self.source.rows(), schema, metrics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(self.properties.eq_properties.schema());
        if let Some((rows, bytes)) = self.source.size() {
            statistics.num_rows = Precision::Exact(rows);
            statistics.total_byte_size = Precision::Inexact(bytes);
        }
        Ok(Arc::new(statistics))
    }
}

/// Rows as a plan has them: what others sent is not believed.
fn as_planned(
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
