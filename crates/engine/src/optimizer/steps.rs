//! The steps of planning, before each of which it is asked whether anybody still wants the plan.
//!
//! | step | how many there are |
//! |---|---|
//! | a table of FROM, an operator of the text | as the statement has; of each kind |
//! | a rule of analysis, a physical rule | one for the whole plan; of DataFusion's `type_coercion`, which takes time with the square of how deep expressions nest, one for each part of an expression |
//! | a logical rule | one for each operator of the plan, or for the whole plan if the rule sees to its inputs itself |
//!
//! Scans are steps, too: they ask for themselves. So are the queries of a long chain of UNIONs (`engine::unions`). What
//! DataFusion does with one list of a SELECT before its rules is one step: of 4 expressions of 900 operators 0.3 s, and `sql::statement_size` refuses more than a little more.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRewriter};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RelationPlanner, RelationPlannerContext,
    RelationPlanning,
};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{DmlStatement, Expr, ExprSchemable, LogicalPlan, WriteOp};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
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

/// DataFusion's `type_coercion`, in as many steps as expressions have parts.
#[derive(Debug)]
pub(crate) struct Coercion(pub Arc<dyn AnalyzerRule + Send + Sync>);

impl AnalyzerRule for Coercion {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let merges = |dml: &DmlStatement| matches!(dml.op, WriteOp::MergeInto(_));
        let is_merge = matches!(&plan, LogicalPlan::Dml(dml) if merges(dml));
        if config.optimizer.expand_views_at_output || is_merge {
            return self.0.analyze(plan, config);
        }
        Ok(plan.transform_up_with_subqueries(coerced)?.data)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

/// As DataFusion 55.2 has it for a node whose inputs have their types.
fn coerced(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    stop::check()?;
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let (name, fields) = (scan.table_name.clone(), scan.source.schema());
        schema.merge(&DFSchema::try_from_qualified_schema(name, &fields)?);
    }
    let plan = match plan {
        LogicalPlan::Filter(mut filter) => {
            filter.predicate = filter.predicate.cast_to(&DataType::Boolean, &schema)?;
            LogicalPlan::Filter(filter)
        }
        other => other,
    };
    let mut coercer = Coercer(TypeCoercionRewriter::new(&schema));
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(expr.rewrite(&mut coercer)?.update_data(|expr| name.restore(expr)))
    })?
    .map_data(|plan| coercer.0.coerce_plan(plan))?
    .map_data(|plan| plan.recompute_schema())
}

struct Coercer<'a>(TypeCoercionRewriter<'a>);

impl TreeNodeRewriter for Coercer<'_> {
    type Node = Expr;

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        stop::check()?;
        self.0.f_up(expr)
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
