//! Which rules changed a plan, for EXPLAIN.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::display::{PlanType, StringifiedPlan, ToStringifiedPlan};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::explain::ExplainExec;

/// The plan after a rule of ours that is not one of DataFusion's kind; EXPLAIN will name the rule if it changed the
/// plan.
pub(crate) fn noted(
    plan: LogicalPlan,
    rule: &str,
    change: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let mut changed = change(plan)?;
    if let LogicalPlan::Explain(explain) = &mut changed {
        let plan_type = PlanType::OptimizedLogicalPlan { optimizer_name: rule.to_owned() };
        explain.stringified_plans.push(explain.plan.to_stringified(plan_type));
    }
    Ok(changed)
}

/// A row that names the rules, for the end of what EXPLAIN shows; `None` if it shows every step, or no steps are known.
pub(crate) fn row_of_rules(plan: &Arc<dyn ExecutionPlan>) -> Option<RecordBatch> {
    let explain = explain_of(plan)?;
    row(explain.schema(), "rules", &rules_that_changed(explain.stringified_plans()).join(", "))
}

/// A row that says why a plan is not computed in parts, for the same.
pub(crate) fn row_of_parts(plan: &Arc<dyn ExecutionPlan>, why: &str) -> Option<RecordBatch> {
    row(explain_of(plan)?.schema(), "parts", &format!("none: {why}"))
}

fn explain_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&ExplainExec> {
    let explain = plan.downcast_ref::<ExplainExec>().filter(|explain| !explain.verbose())?;
    let is_step = |step: &StringifiedPlan| step.plan_type == PlanType::InitialPhysicalPlan;
    explain.stringified_plans().iter().any(is_step).then_some(explain)
}

fn row(schema: SchemaRef, what: &str, text: &str) -> Option<RecordBatch> {
    let column = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    RecordBatch::try_new(schema, vec![column(what), column(text)]).ok()
}

/// Names of rules after which the plan was another, each once, in their order.
fn rules_that_changed(steps: &[StringifiedPlan]) -> Vec<&str> {
    let (mut before, mut names): (Option<&str>, Vec<&str>) = (None, Vec::new());
    for step in steps {
        let name = match &step.plan_type {
            PlanType::InitialLogicalPlan | PlanType::InitialPhysicalPlan => None,
            PlanType::AnalyzedLogicalPlan { analyzer_name: name }
            | PlanType::OptimizedLogicalPlan { optimizer_name: name }
            | PlanType::OptimizedPhysicalPlan { optimizer_name: name } => Some(name.as_str()),
            _ => continue,
        };
        if let Some(name) = name
            && before.is_some_and(|before| before != *step.plan)
            && !names.contains(&name)
        {
            names.push(name);
        }
        before = Some(&step.plan);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_named_once_if_the_plan_is_another_after_it() {
        let logical = |name: &str, plan: &str| {
            let plan_type = PlanType::OptimizedLogicalPlan { optimizer_name: name.into() };
            StringifiedPlan::new(plan_type, plan)
        };
        let physical = |name: &str, plan: &str| {
            let plan_type = PlanType::OptimizedPhysicalPlan { optimizer_name: name.into() };
            StringifiedPlan::new(plan_type, plan)
        };
        let steps = [
            StringifiedPlan::new(PlanType::InitialLogicalPlan, "a"),
            logical("nothing", "a"),
            logical("first", "b"),
            StringifiedPlan::new(PlanType::FinalAnalyzedLogicalPlan, "elsewhere"),
            logical("nothing", "b"),
            logical("second", "c"),
            logical("first", "d"),
            StringifiedPlan::new(PlanType::InitialPhysicalPlan, "p"),
            physical("third", "p"),
            physical("fourth", "q"),
        ];
        assert_eq!(rules_that_changed(&steps), ["first", "second", "fourth"]);
    }
}
