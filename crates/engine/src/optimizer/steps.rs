//! The steps of planning, before each of which it is asked whether anybody still wants the plan.
//!
//! | step | how many there are |
//! |---|---|
//! | a table of FROM, an operator of the text | as the statement has; of each kind |
//! | a rule of analysis, a physical rule | one for the whole plan |
//! | a logical rule | one for each operator of the plan, or for the whole plan if the rule sees to its inputs itself |
//!
//! Scans are steps, too: they ask for themselves.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RelationPlanner, RelationPlannerContext,
    RelationPlanning,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizerContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::base::stop;

/// A rule.
#[derive(Debug)]
pub(crate) struct Step<R: ?Sized>(pub Arc<R>);

impl AnalyzerRule for Step<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        stop::check()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Step<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        stop::check()?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Step<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        stop::check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        stop::check()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// What plans nothing itself, and stands before all that plans parts of a text.
#[derive(Debug)]
pub(crate) struct Steps;

impl ExprPlanner for Steps {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        stop::check()?;
        Ok(PlannerResult::Original(expr))
    }
}

impl RelationPlanner for Steps {
    fn plan_relation(
        &self,
        relation: TableFactor,
        _: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        stop::check()?;
        Ok(RelationPlanning::Original(Box::new(relation)))
    }
}
