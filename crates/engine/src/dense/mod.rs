//! Groups found by arrays instead of hash tables.
//!
//! Ids are dense and dimensions have few values, so the group of a row stands in an array. Every
//! thread groups the rows it reads, and the threads' groups are merged; rows are not handed from thread
//! to thread first.
//!
//! # Invariants
//! - Rows, names and types are those of the aggregate that was there.
//! - What does not fit fails with `ResourcesExhausted` before a row is given out; the session then runs
//!   the plan without this.

mod exec;
mod joins;
mod keys;
mod lookup;
mod ranges;
mod rows;
mod sums;
mod text_tests;
mod unions;
mod whole_sums;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use uplake_table::ID_PREFIX;

pub(crate) use exec::DenseAggregateExec;
pub(crate) use joins::LookupJoins;
use keys::Keys;
pub(crate) use lookup::AmongIds;
pub(crate) use ranges::IdRanges;
use sums::Plan;
pub(crate) use sums::true_only;
pub(crate) use text_tests::TextTests;
pub(crate) use unions::GroupsBeforeUnions;

/// The rule that puts [`DenseAggregateExec`] in place of aggregates it can do. It must come before
/// partitions are chosen.
#[derive(Debug, Default)]
pub(crate) struct DenseAggregates {
    /// Columns by which there were too many groups before.
    pub too_many: Arc<Mutex<HashSet<String>>>,
}

/// The rule before which [`DenseAggregates`] has its place.
pub(crate) const PLACE: &str = "EnsureRequirements";
/// That of [`LookupJoins`], [`TextTests`], [`IdRanges`] and [`GroupsBeforeUnions`]: scans know of joins by then.
pub(crate) const LAST_PLACE: &str = "SanityCheckPlan";

impl PhysicalOptimizerRule for DenseAggregates {
    fn name(&self) -> &'static str {
        "dense_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let too_many = self.too_many.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fits = |dense: &DenseAggregateExec| !too_many.contains(&dense.group_names());
        rewritten(plan, |node| Ok(dense(node).filter(fits)))
    }
}

/// The plan with an aggregate in place of every node for which there is one, from below.
fn rewritten(
    plan: Arc<dyn ExecutionPlan>,
    aggregate: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Option<DenseAggregateExec>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let replaced = plan.transform_up(|node| {
        Ok(match aggregate(&node)? {
            Some(aggregate) => Transformed::yes(Arc::new(aggregate) as _),
            None => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}

/// The same aggregate with groups in arrays.
fn dense(node: &Arc<dyn ExecutionPlan>) -> Option<DenseAggregateExec> {
    let last = node.downcast_ref::<AggregateExec>()?;
    let first = match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => last,
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let first = last.input().downcast_ref::<AggregateExec>()?;
            (*first.mode() == AggregateMode::Partial).then_some(first)?
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => return None,
    };
    let group_by = first.group_expr();
    let limited = last.limit_options().is_some() || first.limit_options().is_some();
    if limited || group_by.expr().is_empty() || !group_by.is_single() {
        return None;
    }
    let schema = first.input().schema();
    let columns: Vec<_> = group_by.expr().iter().map(|(expr, _)| Arc::clone(expr)).collect();
    // A statement may call anything by such a name.
    let is_id = |expr: &&Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Column>().is_some_and(|c| c.name().starts_with(ID_PREFIX))
            && expr.data_type(&schema).is_ok_and(|found| found == DataType::Int32)
    };
    let ids = columns.iter().filter(is_id).count();
    if ids > 0 && columns.len() > 1 {
        return None;
    }
    let types: Option<Vec<_>> =
        columns.iter().map(|column| column.data_type(&schema).ok().filter(Keys::takes)).collect();
    let sums: Option<Vec<Plan>> = first
        .aggr_expr()
        .iter()
        .zip(first.filter_expr())
        .map(|(function, filter)| Plan::new(function, filter.as_ref(), &schema))
        .collect();
    Some(DenseAggregateExec::new(node, first.input(), columns, types?, ids == 1, sums?))
}

/// Does it compare two values, and nothing else?
fn compares(op: &Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// The expression with every column written as `column` says.
fn with_columns(
    expr: &Arc<dyn PhysicalExpr>,
    column: impl Fn(&Column) -> Column,
) -> Result<Arc<dyn PhysicalExpr>> {
    let changed = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
        Some(found) => Ok(Transformed::yes(Arc::new(column(found)) as _)),
        None => Ok(Transformed::no(part)),
    })?;
    Ok(changed.data)
}

/// The error of a plan that is better run without arrays; memory is not the reason.
const NOT_FOR_ARRAYS: &str = "groups that are not for arrays";

/// `columns`: what the rows are grouped by.
pub(crate) fn too_many(columns: &str) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("{NOT_FOR_ARRAYS}: {columns}"))
}

/// The columns of [`too_many`], if an error is that.
pub(crate) fn too_many_by(error: &DataFusionError) -> Option<String> {
    let DataFusionError::ResourcesExhausted(message) = error.find_root() else { return None };
    message.strip_prefix(NOT_FOR_ARRAYS)?.strip_prefix(": ").map(str::to_owned)
}
