//! Physical rules that are looked at while they work, in builds with debug assertions.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::{ConfigOnlyContext, PhysicalOptimizerContext};
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion_datasource::source::DataSourceExec;

use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::optimizer::shapes::layer;

/// A rule, after which, if it is one of ours, there are as many conditions as before, and every operator has the
/// partitions and order that it needs.
#[derive(Debug)]
pub(crate) struct Verified {
    pub rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    pub keeps_conditions: bool,
    /// Have partitions and order been seen to?
    pub has_requirements: bool,
}

impl Verified {
    fn checked(
        &self,
        before: usize,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let after = conditions(&plan)?;
        if self.keeps_conditions && after < before {
            return internal_err!(
                "{} lost a condition: {before} before, {after} after",
                self.name()
            );
        }
        if self.has_requirements {
            let checked = SanityCheckPlan::new().optimize(Arc::clone(&plan), options);
            checked.map_err(|error| error.context(format!("after {}", self.name())))?;
        }
        Ok(plan)
    }
}

impl PhysicalOptimizerRule for Verified {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.optimize_with_context(plan, &ConfigOnlyContext::new(options))
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let before = conditions(&plan)?;
        let plan = self.rule.optimize_with_context(plan, context)?;
        self.checked(before, plan, context.config_options())
    }
}

/// Conditions of filters, joins and scans.
fn conditions(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let parts = |expr: &Arc<dyn PhysicalExpr>| split_conjunction(expr).len();
    let mut count = 0;
    plan.apply(|node| {
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            // Several that are computed together as one column of the scan are as many as they were.
            let computed = |part| computed(filter.input(), part).map_or(1, parts);
            count += split_conjunction(filter.predicate()).into_iter().map(computed).sum::<usize>();
        } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            count += join.filter().map_or(0, |filter| parts(filter.expression()));
        } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            count += join.filter().map_or(0, |filter| parts(filter.expression()));
        } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
            count += join.filter().as_ref().map_or(0, |filter| parts(filter.expression()));
        } else if let Some(groups) = node.downcast_ref::<ArrayAggregateExec>() {
            let lookup = groups.what.lookup.as_ref();
            count += lookup.and_then(|lookup| lookup.condition.as_ref()).map_or(0, parts);
        } else if let Some(scan) = node.downcast_ref::<DataSourceExec>()
            && let Some(config) = scan.data_source().downcast_ref::<FileScanConfig>()
        {
            count += config.file_source().filter().as_ref().map_or(0, parts);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

/// What the scan below computes as this column.
fn computed<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    column: &Arc<dyn PhysicalExpr>,
) -> Option<&'a Arc<dyn PhysicalExpr>> {
    let mut column = column.downcast_ref::<Column>()?.index();
    let mut node = plan;
    while let Some((layer, below)) = layer(node) {
        column = layer.column(column)?;
        node = below;
    }
    let scan = node.downcast_ref::<DataSourceExec>()?;
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    config.file_source().projection()?.as_ref().get(column).map(|computed| &computed.expr)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::lit;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::engine::session::for_tests;
    use crate::sql::statement::parse;

    /// A rule that takes filters out.
    #[derive(Debug)]
    struct Forgetful;

    impl PhysicalOptimizerRule for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }

        fn schema_check(&self) -> bool {
            true
        }

        fn optimize(
            &self,
            plan: Arc<dyn ExecutionPlan>,
            _: &ConfigOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(plan
                .downcast_ref::<FilterExec>()
                .map_or(Arc::clone(&plan), |f| Arc::clone(f.input())))
        }
    }

    #[test]
    fn a_lost_filter_is_noticed() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int32, true)]);
        let empty: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(schema)));
        let filter = FilterExec::try_new(lit(true), Arc::clone(&empty)).unwrap();
        let rule = Arc::new(Forgetful);
        let verified = Verified { rule, keeps_conditions: true, has_requirements: true };
        let options = ConfigOptions::new();
        assert!(verified.optimize(empty, &options).is_ok());
        let error = verified.optimize(Arc::new(filter), &options).unwrap_err();
        assert!(error.to_string().contains("forgetful lost a condition"), "{error}");
    }
    /// The one condition that the scan has asked of two is as many as both, and none once it is gone.
    #[test]
    fn conditions_that_a_scan_computes_together_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder.path(), true);
        let table =
            "CREATE TABLE f (user_id TEXT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);";
        let rows = "INSERT INTO f VALUES ('a'), ('b'), (NULL), (''), ('control');";
        runtime.block_on(session.query(&format!("{table} {rows} {rows} {rows}"))).unwrap();
        let text =
            "SELECT user_id, count(*) FROM f WHERE user_id NOT IN ('', 'control') GROUP BY user_id";
        let statement = parse(text).unwrap().remove(0);
        let plan = runtime.block_on(session.physical_plan(&statement)).unwrap();
        let mut filters: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        plan.apply(|node| {
            filters.extend(node.is::<FilterExec>().then(|| Arc::clone(node)));
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        let [found] = &filters[..] else { panic!("{filters:?}") };
        let filter = found.downcast_ref::<FilterExec>().unwrap();
        assert!(filter.predicate().is::<Column>(), "{:?}", filter.predicate());
        // Two of the filter and two that the scan has for its files.
        assert_eq!(conditions(found).unwrap(), 4);
        let verified =
            Verified { rule: Arc::new(Forgetful), keeps_conditions: true, has_requirements: false };
        let error = verified.optimize(Arc::clone(found), &ConfigOptions::new()).unwrap_err();
        assert!(error.to_string().contains("4 before, 2 after"), "{error}");
    }
}
