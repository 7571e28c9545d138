//! The rows of a file that its statistics cannot rule out, as the Parquet scan finds them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, ParquetFileMetrics, RowGroupAccess,
    RowGroupAccessPlanFilter,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::expressions::InListExpr;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_adapter::replace_columns_with_literals;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

/// DataFusion compares no longer list with bounds, but looks at each value of it all the same; a join
/// sends the bounds of its list beside it.
const LONG_LIST: usize = 20;

/// What is left of a condition to ask bounds of, as it is now: without long lists. `None` if there is none in it.
pub(super) fn without_long_lists(
    condition: &Arc<dyn PhysicalExpr>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let now = snapshot_physical_expr(Arc::clone(condition))?;
    let parts = split_conjunction(&now);
    let short: Vec<_> = parts.iter().filter(|part| !is_long(part)).collect();
    Ok((short.len() < parts.len()).then(|| conjunction(short.into_iter().copied().cloned())))
}

fn is_long(condition: &Arc<dyn PhysicalExpr>) -> bool {
    condition.downcast_ref::<InListExpr>().is_some_and(|list| list.len() > LONG_LIST)
}

/// What a scan's condition asks of bounds, made once for all files of which it asks the same.
#[derive(Default)]
pub(crate) struct Pruner(Mutex<Option<Arc<OfBounds>>>);

struct OfBounds {
    predicate: Arc<dyn PhysicalExpr>,
    groups: PruningPredicate,
    pages: PagePruningAccessPlanFilter,
}

impl Pruner {
    fn of_bounds(
        &self,
        predicate: Arc<dyn PhysicalExpr>,
        schema: &SchemaRef,
    ) -> Result<Arc<OfBounds>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = last.as_ref().filter(|last| last.predicate.eq(&predicate)) {
            return Ok(Arc::clone(same));
        }
        let groups = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(schema))
            .try_build(Arc::clone(&predicate))?;
        let pages = PagePruningAccessPlanFilter::new(&predicate, Arc::clone(schema));
        Ok(Arc::clone(last.insert(Arc::new(OfBounds { predicate, groups, pages }))))
    }

    /// By row group, ranges of row numbers within it. Row groups whose start is not in the file's range
    /// are another thread's.
    pub fn rows(
        &self,
        file: &PartitionedFile,
        metadata: &ParquetMetaData,
        table: &TableSchema,
        predicate: Option<&Arc<dyn PhysicalExpr>>,
    ) -> Result<Vec<(usize, Vec<Range<usize>>)>> {
        let groups = metadata.row_groups();
        let mut filter = RowGroupAccessPlanFilter::new(ParquetAccessPlan::new_all(groups.len()));
        if let Some(range) = &file.range {
            filter.prune_by_range(groups, range);
        }
        let mut plan = filter.build();
        if let Some(predicate) = predicate {
            // The counts of the scan itself are of what it reads.
            let metrics = ParquetFileMetrics::new(0, "", &ExecutionPlanMetricsSet::new());
            let short = without_long_lists(predicate)?;
            let predicate = match short {
                Some(short) => short,
                None => snapshot_physical_expr(Arc::clone(predicate))?,
            };
            // A column that is not in the file would be taken for one of NULLs.
            let partition = table.table_partition_cols().iter().map(|field| field.name().as_str());
            let values: HashMap<&str, &ScalarValue> =
                partition.zip(&file.partition_values).collect();
            let predicate = replace_columns_with_literals(predicate, &values)?;
            let schema = table.table_schema();
            let parquet = metadata.file_metadata().schema_descr();
            let of_bounds = self.of_bounds(predicate, schema)?;
            let (pruning, pages) = (&of_bounds.groups, &of_bounds.pages);
            if !pruning.always_true() {
                let mut filter = RowGroupAccessPlanFilter::new(plan);
                filter.prune_by_statistics(schema, parquet, groups, pruning, &metrics);
                plan = filter.build();
            }
            if pages.filter_number() > 0 && metadata.column_index().is_some() {
                plan = pages.prune_plan_with_page_index(plan, schema, parquet, metadata, &metrics);
            }
        }
        let mut wanted = Vec::new();
        for (number, (access, group)) in plan.into_inner().into_iter().zip(groups).enumerate() {
            let all = usize::try_from(group.num_rows()).unwrap_or_default();
            let ranges = match access {
                RowGroupAccess::Skip => continue,
                RowGroupAccess::Scan => std::iter::once(0..all).collect(),
                RowGroupAccess::Selection(selection) => {
                    let mut next = 0;
                    let mut ranges = Vec::new();
                    for part in selection.iter() {
                        if !part.skip && part.row_count > 0 {
                            ranges.push(next..next + part.row_count);
                        }
                        next += part.row_count;
                    }
                    ranges
                }
            };
            if !ranges.is_empty() {
                wanted.push((number, ranges));
            }
        }
        Ok(wanted)
    }
}
