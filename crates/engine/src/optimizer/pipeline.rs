//! The rules that a plan goes through, by name and in order: DataFusion's, what mends them, and ours.
//!
//! The tables below are the order: a rule that stands in none of them is not run, and a test fails, so that a new
//! version of DataFusion cannot add or move one unnoticed.
//!
//! ```text
//! plan ─► ANALYSIS (types, what mends them) ─► ids in place of keys ─► LOGICAL ─► physical plan ─► PHYSICAL
//! ```
//!
//! # Invariants
//! - What [`SPEED`] lists changes no answer: each may be left out (`SET uplake.disabled_rules`), all others may not.

use std::sync::Arc;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;

use crate::base::one_input::EachNode;
use crate::base::settings::Settings;
use crate::mends;
use crate::operators::build_side_cache::CacheBuildSides;
use crate::optimizer::array_aggregate::ARRAY_AGGREGATES;
use crate::optimizer::group_join::GROUP_JOINS;
use crate::optimizer::id_rewrite::join_ids::JoinIds;
use crate::optimizer::min_max_pruning::MIN_MAX_PRUNING;
use crate::optimizer::push_down_semi_join::PUSH_DOWN_SEMI_JOIN;
use crate::optimizer::range_scan::ID_RANGES;
use crate::optimizer::running_windows::RUNNING_WINDOWS;
use crate::optimizer::split_distinct::SplitDistinct;
use crate::optimizer::steps::{Coercion, Step};
use crate::optimizer::text_tests::TEXT_TESTS;
use crate::optimizer::top_candidates::TOP_CANDIDATES;
use crate::optimizer::verified::Verified;
use crate::optimizer::window_candidates::WINDOW_CANDIDATES;

type Analysis = Arc<dyn AnalyzerRule + Send + Sync>;
type Logical = Arc<dyn OptimizerRule + Send + Sync>;
pub(crate) type Physical = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A rule's name, and why it stands where it does; nothing of DataFusion's among its own.
type Place = (&'static str, &'static str);

/// The place of what needs types and nothing else.
const ANYWHERE: &str = "anywhere once types are known";

/// Once, when names are known.
const ANALYSIS: &[Place] = &[
    ("sorted_subqueries", "first: what it adds to aggregates and windows has types like all else"),
    ("dates_as_times", "before types are made alike: dates would become text beside times"),
    ("resolve_grouping_function", ""),
    ("type_coercion", ""),
    (
        "sets_of_columns",
        "first of what knows types: grouping sets of columns, which the next ones look for",
    ),
    ("dates_beside_times", ANYWHERE),
    ("correlated_subqueries", "before subqueries are rewritten below"),
    ("casts_and_times", ANYWHERE),
    ("intervals_by_length", ANYWHERE),
    ("null_without_rows", ANYWHERE),
    ("three_valued_in_subquery", "after subqueries are known, before IN lists"),
    ("nulls_in_lists", ANYWHERE),
    ("one_zero", "before NaN: both look at keys of floats"),
    ("one_nan", ANYWHERE),
    ("one_order_of_nested_values", ANYWHERE),
    ("keys_of_subqueries", ANYWHERE),
    ("null_lists", ANYWHERE),
    ("checked_arithmetic", "after the rules that write arithmetic"),
    ("decimals_of_38_digits", ANYWHERE),
    ("partitions_by_columns", ANYWHERE),
    ("bounded_calls", "last: it bounds the calls that others made"),
];

/// Again and again, until nothing changes.
const LOGICAL: &[Place] = &[
    ("rewrite_set_comparison", ""),
    ("optimize_unions", ""),
    ("unions_to_filter", ""),
    ("simplify_expressions", ""),
    ("replace_distinct_aggregate", ""),
    ("eliminate_join", ""),
    (
        "subquery_marks",
        "before DataFusion joins subqueries below WHERE: the same below everything else",
    ),
    ("decorrelate_predicate_subquery", ""),
    ("scalar_subquery_to_join", ""),
    ("decorrelate_lateral_join", ""),
    ("keys_of_one_kind", "before keys of joins are found"),
    ("extract_equijoin_predicate", ""),
    ("eliminate_duplicated_expr", ""),
    ("eliminate_filter", ""),
    ("joins_apart", "before joins are put in another order"),
    ("eliminate_cross_join", ""),
    ("eliminate_limit", ""),
    ("propagate_empty_relation", ""),
    ("filter_null_join_keys", ""),
    ("eliminate_outer_join", ""),
    ("push_down_limit", ""),
    ("constants_last", "before conditions are taken apart: x = 'a' and 'a' = x are one"),
    ("fences", "keeps conditions where they stand, just before they are pushed down"),
    ("push_down_filter", ""),
    ("split_distinct", "before one DISTINCT becomes a GROUP BY, for which it makes several"),
    ("single_distinct_aggregation_to_group_by", ""),
    ("eliminate_group_by_constant", ""),
    ("common_sub_expression_eliminate", ""),
    ("extract_leaf_expressions", ""),
    ("push_down_leaf_projections", ""),
    ("optimize_projections", ""),
    ("aggregate_order", "when columns are final"),
    ("long_constants", "after constants are computed"),
    ("join_ids", "last: joins, groups and windows by keys that there are ids for"),
];

/// Once.
const PHYSICAL: &[Place] = &[
    ("OutputRequirements", ""),
    ("aggregate_statistics", ""),
    ("push_down_semi_join", "before sides of joins are chosen"),
    ("join_selection", ""),
    ("LimitedDistinctAggregation", ""),
    ("FilterPushdown", ""),
    ("WindowTopN", ""),
    ("no_false_constants", "before order is believed"),
    ("limits_beside_sorts", "before needless sorts are dropped with their limits"),
    ("build_side_cache", "joins have their sides, and filters are not pushed into them yet"),
    ("min_max_pruning", "before files are spread over partitions"),
    ("array_aggregates", "before partitions are chosen: threads need no rows of each other"),
    ("EnsureRequirements", ""),
    ("CombinePartialFinalAggregate", ""),
    ("OptimizeAggregateOrder", ""),
    ("ProjectionPushdown", ""),
    ("OutputRequirements", ""),
    ("LimitAggregation", ""),
    ("LimitPushPastWindows", ""),
    ("HashJoinBuffering", ""),
    ("LimitPushdown", ""),
    ("TopKRepartition", ""),
    ("ProjectionPushdown", ""),
    ("PushdownSort", ""),
    ("EnsureCooperative", ""),
    ("FilterPushdown(Post)", ""),
    ("missing_sorts", "after the last rule that may lose a sort"),
    ("group_joins", "scans know of joins by now; groups of arrays take them in"),
    ("text_tests", "after joins, whose conditions it has the scan ask, too"),
    ("id_ranges", "when all that reads the scan is known"),
    ("top_candidates", "over sorts of aggregates, which are final by now"),
    ("window_candidates", "sorts are final by now"),
    ("running_windows", "after candidates, which are looked for below DataFusion's windows"),
    ("SanityCheckPlan", ""),
];

/// Those of physical plans that look at one node after the other.
const OVER_NODES: [EachNode; 9] = [
    PUSH_DOWN_SEMI_JOIN,
    MIN_MAX_PRUNING,
    ARRAY_AGGREGATES,
    GROUP_JOINS,
    TEXT_TESTS,
    ID_RANGES,
    TOP_CANDIDATES,
    WINDOW_CANDIDATES,
    RUNNING_WINDOWS,
];

/// Rules that change only how fast an answer comes.
pub(crate) const SPEED: [&str; 17] = [
    "count_ids",
    "filter_ids",
    "join_ids",
    "split_distinct",
    "push_down_semi_join",
    "build_side_cache",
    "min_max_pruning",
    "array_aggregates",
    "group_joins",
    "text_tests",
    "id_ranges",
    "top_candidates",
    "window_candidates",
    "running_windows",
    "plan_cache",
    "index_files",
    "one_scan",
];

/// What `--no-index` leaves out: all that needs ids, index files or columns that are kept.
pub(crate) const NO_INDEX: [&str; 13] = [
    "count_ids",
    "filter_ids",
    "join_ids",
    "build_side_cache",
    "array_aggregates",
    "group_joins",
    "text_tests",
    "id_ranges",
    "top_candidates",
    "window_candidates",
    "plan_cache",
    "index_files",
    "one_scan",
];

/// Names of several rules.
pub(crate) const PRESETS: [(&str, &[&str]); 1] = [("no_index", &NO_INDEX)];

/// The rules of analysis.
pub(crate) fn analysis() -> Vec<Analysis> {
    let rules = ordered(mends::analyzer_rules(), ANALYSIS, |rule| rule.name());
    let steps = rules.into_iter().map(|rule| match rule.name() {
        "type_coercion" => Arc::new(Coercion(rule)) as Analysis,
        _ => Arc::new(Step(rule)),
    });
    steps.collect()
}

/// The rules of logical plans.
pub(crate) fn logical() -> Vec<Logical> {
    let mut rules = mends::logical_rules();
    rules.push(Arc::new(SplitDistinct));
    rules.push(Arc::new(JoinIds));
    let rules = ordered(rules, LOGICAL, |rule| rule.name());
    rules.into_iter().map(|rule| Arc::new(Step(rule)) as Logical).collect()
}

/// The rules of physical plans without groups in arrays, for what spills.
pub(crate) fn physical_spilling() -> Arc<[Physical]> {
    let mut rules = mends::physical_rules();
    rules.push(Arc::new(CacheBuildSides));
    verified(ordered(rules, PHYSICAL, |rule| rule.name())).into()
}

/// The rules of physical plans.
pub(crate) fn physical() -> Vec<Physical> {
    let mut rules = mends::physical_rules();
    rules.push(Arc::new(CacheBuildSides));
    rules.extend(OVER_NODES.map(|rule| Arc::new(rule) as Physical));
    let rules = verified(ordered(rules, PHYSICAL, |rule| rule.name()));
    rules.into_iter().map(|rule| Arc::new(Step(rule)) as Physical).collect()
}

/// The rules, looked at while they work if this is a build with debug assertions.
fn verified(rules: Vec<Physical>) -> Vec<Physical> {
    if !cfg!(debug_assertions) {
        return rules;
    }
    let mut has_requirements = false;
    let verified = rules.into_iter().map(|rule| {
        // What DataFusion's rules lose of an order after EnsureRequirements, this one gives back.
        has_requirements |= rule.name() == "missing_sorts";
        // DataFusion's may answer from statistics, and drop what is below with its conditions.
        let is_ours = |(name, why): &Place| *name == rule.name() && !why.is_empty();
        let keeps_conditions = PHYSICAL.iter().any(is_ours);
        Arc::new(Verified { rule, keeps_conditions, has_requirements }) as Physical
    });
    verified.collect()
}

/// The rules in the order of the table. One that is there twice stands twice, in the order they came.
fn ordered<R>(rules: Vec<R>, table: &[Place], name: impl Fn(&R) -> &str) -> Vec<R> {
    let mut left: Vec<Option<R>> = rules.into_iter().map(Some).collect();
    let taken = table.iter().filter_map(|(wanted, _)| {
        let is_it = |rule: &&mut Option<R>| rule.as_ref().is_some_and(|rule| name(rule) == *wanted);
        left.iter_mut().find(is_it).and_then(Option::take)
    });
    taken.collect()
}

/// Is a rule of speed left out?
pub(crate) fn is_disabled(state: &SessionState, rule: &str) -> bool {
    Settings::of(state.config_options()).is_some_and(|settings| settings.disables(rule))
}

/// The state without the rules that its settings leave out.
pub(crate) fn enabled(state: SessionState) -> SessionState {
    let settings = Settings::of(state.config_options());
    if settings.is_none_or(|settings| settings.disabled_rules.is_empty()) {
        return state;
    }
    let logical = state.optimizer().rules.iter().filter(|rule| !is_disabled(&state, rule.name()));
    let logical = logical.cloned().collect();
    let physical = state.physical_optimizers().iter();
    let physical = physical.filter(|rule| !is_disabled(&state, rule.name())).cloned().collect();
    SessionStateBuilder::new_from_existing(state)
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .build()
}

#[cfg(test)]
mod tests {
    use datafusion::optimizer::{Analyzer, Optimizer};
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

    use super::*;

    fn names(table: &[Place]) -> Vec<&str> {
        table.iter().map(|(name, _)| *name).collect()
    }

    /// DataFusion's rules stand in its order, and every rule that there is stands in a table.
    #[test]
    fn every_rule_has_its_place() {
        let rules = analysis();
        assert_eq!(rules.iter().map(|rule| rule.name()).collect::<Vec<_>>(), names(ANALYSIS));
        assert_eq!(rules.len(), mends::analyzer_rules().len());
        let rules = logical();
        assert_eq!(rules.iter().map(|rule| rule.name()).collect::<Vec<_>>(), names(LOGICAL));
        assert_eq!(rules.len(), mends::logical_rules().len() + 2);
        let rules = physical();
        assert_eq!(rules.iter().map(|rule| rule.name()).collect::<Vec<_>>(), names(PHYSICAL));
        assert_eq!(rules.len(), mends::physical_rules().len() + 1 + OVER_NODES.len());
        let in_order = |table: &[Place], theirs: Vec<String>| {
            let mut places = table.iter();
            for rule in theirs {
                assert!(
                    places.any(|(name, _)| *name == rule),
                    "{rule} is not where DataFusion has it"
                );
            }
        };
        let theirs = Analyzer::new().rules;
        in_order(ANALYSIS, theirs.iter().map(|rule| rule.name().to_owned()).collect());
        let theirs = Optimizer::new().rules;
        in_order(LOGICAL, theirs.iter().map(|rule| rule.name().to_owned()).collect());
        let theirs = PhysicalOptimizer::new().rules;
        in_order(PHYSICAL, theirs.iter().map(|rule| rule.name().to_owned()).collect());
    }

    #[test]
    fn rules_of_speed_are_ours() {
        let elsewhere = ["count_ids", "filter_ids", "plan_cache", "index_files", "one_scan"];
        let ours = |name: &&&str| !elsewhere.contains(name);
        for name in SPEED.iter().filter(ours) {
            assert!(names(LOGICAL).contains(name) || names(PHYSICAL).contains(name), "{name}");
        }
        assert!(NO_INDEX.iter().all(|name| SPEED.contains(name)));
    }
}
