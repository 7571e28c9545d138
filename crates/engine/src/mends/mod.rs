//! What mends DataFusion 55's wrong answers: one file a fault, each of which goes when DataFusion is right.
//!
//! | file | without it |
//! |---|---|
//! | `in_subquery` | `x IN (SELECT …)` is false where it is NULL, and refused outside WHERE |
//! | `scalar_subquery` | `(SELECT x FROM t WHERE false)` of an `x` that is never NULL ends with an error, and is not IS NULL |
//! | `correlated` | conditions on outer columns leave aggregates, windows and outer joins of subqueries |
//! | `float_zero` | 0.0 and -0.0 are two values of `count(DISTINCT)`, IN lists and CASE |
//! | `nan_sign` | the NaN of `0.0 / 0.0` is below every number, and -0.0 is put before 0.0 |
//! | `nested_order` | `ORDER BY list LIMIT k` loses rows, and `<`, `min` and `max` of lists put a NULL in one here and there |
//! | `float_bounds` | a NaN is lost where a Parquet file's bounds leave it out |
//! | `fences` | a condition without columns, or of constant columns only, goes below an aggregate, which then has a row all the same |
//! | `null_equality` | `=` beside IS NOT DISTINCT FROM is true of two NULLs |
//! | `aggregate_statistics` | an aggregate with FILTER takes the value of another one below it |
//! | `equivalences` | a constant of an outer join's other side is taken for constant above it; `coalesce(x, 0) = 0` rewrites every 0 |
//! | `filter_pushdown` | a condition reaches another table's column of the same name; lists of lists cannot be joined by |
//! | `filter_projections` | a condition above a join moves to another column of the same name and number |
//! | `checked_arithmetic`, `checked_formula`, `sum` | whole numbers wrap round beyond their type's range |
//! | `missing_sorts` | plans are refused whose inputs are not in the order that an operator needs |
//! | `text_casts` | `CAST(CAST(n AS TEXT) AS BIGINT) > 7` is refused |
//! | `min_max` | min and max of a group forget what came before a NaN, and windows of them are taken for sorted |
//! | `comparisons` | `x = 'a'` and `'a' = x` together are taken for false, `x = 0.0` and `x = -0.0`, too |
//! | `in_lists` | conditions on one column are merged as if it had no NULL |
//! | `count_distinct` | `count(DISTINCT text)` of 155,000 groups takes 20 KB a group, and most of a minute |
//! | `percentile` | `percentile_cont` interpolates with six digits, and forgets NaN |
//! | `grouping_sets` | `ROLLUP (k + 1)` of a constant k is refused |
//! | `group_keys` | a primary key says nothing to GROUP BY |
//! | `null_lists` | lists that CASE or `nullif` makes NULL still hold values, which `array_append` reads; `CAST(CAST(NULL AS TEXT) AS BIGINT[])` is [NULL] |
//! | `correlated_keys` | a subquery is refused whose expression, not column, must equal the outer row's |
//! | `aggregate_order` | the same key twice in an aggregate's ORDER BY panics, `any_value` does not heed it, and `array_agg(DISTINCT x ORDER BY x)` is turned round |
//! | `dates_as_times` | `coalesce(time, DATE '9999-12-31')` and `date_trunc` of a date end in 2262 |
//! | `decimals` | decimals beyond 38 digits are cut to a tenth, and their sums wrap round |
//! | `date_intervals` | a date plus an interval of hours is a date |
//! | `intervals` | 30 hours are less than a day, and `b - a > INTERVAL '1 day'` is never true |
//! | `bare_numbers` | `'90'::INTERVAL` is 90 months, `'11'::TIME` 11 nanoseconds, and `'2026-11-05 10:00'` no time |
//! | `rounded_casts` | `CAST(2.7 AS INT)` is 2 |
//! | `texts_of_times` | `CAST(t AS TEXT)` of a time has a `T`, of an interval words |
//! | `time_spans` | `date_part('hour', b - a)` is of all days between |
//! | `time_zones` | `t AT TIME ZONE 'Europe/Berlin'` keeps the zone, so that `CAST(… AS TIMESTAMP)` is of UTC again |
//! | `bits` | `bit_and`, `bool_or` and their like have no frames that slide |
//! | `repeated_names` | `SELECT a, a` is refused, `max(t)` beside `max(CAST(t AS DATE))`, and groups of a in the order of a + 1 |
//! | `regression` | `corr` of groups loses all digits of large values, and is NULL of NaN; `regr_r2` of a constant y is NULL, or noise |
//! | `large_results` | `repeat`, `replace`, `concat`, `range` and the like to gigabytes end the process |
//! | `late_times` | `date_trunc` is refused of times before 1678 and after 2262, and `extract(year FROM t) > 3` is wrong of nanoseconds |
//! | `lists` | `array_has_all(list, NULL)` is true |
//! | `rounding` | `round(x, 1000)` is NaN |
//! | `signed` | `row_number() OVER () / 2` and `array_length(list) / 2` are decimals |
//! | `sliding_floats` | after a NaN or 1e20 `avg(x)` over frames that slide is NaN, or 0 |
//! | `sorted_subqueries` | `SELECT * FROM (SELECT … ORDER BY x) LIMIT 3` is any three rows, and `string_agg` of a sorted subquery in no order |
//! | `sorts_with_limit` | `count(*) OVER () … ORDER BY n LIMIT 2` of constant keys counts two rows |
//! | `string_agg` | two of them with other orders are refused |
//! | `struct_keys` | a join on a function of a struct's field, or on a float in one, is refused |
//! | `top_groups` | the first groups by a key of floats panic where it is NaN, and by min or max of floats they are others |
//! | `window_keys` | `PARTITION BY sqrt(x)` is refused |
//! | `timestamps` | `to_timestamp` of text fails, times end in 2262, and `now()` has more digits than a table keeps |
//!
//! `as_before`, `one_argument` and `casts_and_times` have no fault of their own: what functions in place of others leave as it
//! is, what those of one argument share, and one pass for several files.
//!
//! # Invariants
//! - Every session has all of them, with indexes and without.

mod aggregate_order;
mod aggregate_statistics;
mod as_before;
mod bare_numbers;
mod bits;
mod casts_and_times;
mod checked_arithmetic;
mod checked_formula;
mod comparisons;
mod correlated;
mod correlated_keys;
mod count_distinct;
mod date_intervals;
mod date_patterns;
mod dates_as_times;
mod decimals;
mod equivalences;
mod fences;
mod filter_projections;
mod filter_pushdown;
mod float_bounds;
mod float_zero;
mod group_keys;
mod grouping_sets;
mod in_lists;
mod in_subquery;
mod intervals;
mod large_results;
mod late_times;
mod lists;
mod min_max;
mod missing_sorts;
mod nan_sign;
mod nested_order;
mod null_equality;
mod null_lists;
mod one_argument;
mod percentile;
mod private;
mod regression;
mod repeated_names;
mod rounded_casts;
mod rounding;
mod scalar_subquery;
mod scaled_intervals;
mod signed;
mod sliding_floats;
mod sorted_subqueries;
mod sorts_with_limit;
mod string_agg;
mod struct_keys;
mod sum;
mod text_casts;
mod texts_of_times;
mod time_spans;
mod time_zones;
mod timestamps;
mod top_groups;
mod truth;
mod window_keys;

use std::sync::Arc;

use datafusion::catalog::TableFunction;
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

pub(crate) use equivalences::PlainExec;
pub(crate) use group_keys::name_decided_columns;
pub(crate) use grouping_sets::GROUP_KEY;
pub(crate) use nan_sign::is_one_number;
pub(crate) use private::{
    private_from_bytes, private_to_bytes, sorted_at_the_end, sorting_at_the_end,
};
pub(crate) use repeated_names::{name_apart, named_cast, repeats_key, shown_name, with_names};
pub(crate) use rounded_casts::rounded;
pub(crate) use sum::does_not_fit;

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// What plans parts of FROM before DataFusion does.
pub(crate) fn relation_planners() -> Vec<Arc<dyn RelationPlanner>> {
    vec![
        Arc::new(crate::sql::merged_joins::MergedColumns),
        Arc::new(crate::sql::copies::NumberedCopies),
        Arc::new(crate::sql::order_by_all::AllColumns),
    ]
}

/// What plans operators: ours before DataFusion's.
pub(crate) fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    let mut planners: Vec<Arc<dyn ExprPlanner>> =
        vec![Arc::new(date_intervals::TimesOfDays), Arc::new(scaled_intervals::ScaledIntervals)];
    planners.extend(SessionStateDefaults::default_expr_planners());
    planners
}

/// DataFusion's analysis and ours; its order is the [pipeline](crate::optimizer::pipeline)'s, as that of the others.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(sorted_subqueries::SortedSubqueries), Arc::new(dates_as_times::DatesAsTimes)];
    rules.extend(Analyzer::new().rules);
    rules.extend(rules_after_types());
    rules
}

fn rules_after_types() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(grouping_sets::SetsOfColumns),
        Arc::new(timestamps::DatesBesideTimes),
        Arc::new(correlated::CorrelatedSubqueries),
        Arc::new(casts_and_times::CastsAndTimes),
        Arc::new(intervals::ByLength),
        Arc::new(scalar_subquery::NullWithoutRows),
        Arc::new(in_subquery::ThreeValued),
        Arc::new(in_lists::NullsInLists),
        Arc::new(float_zero::OneZero),
        Arc::new(nan_sign::OneNan),
        Arc::new(nested_order::OneOrder),
        Arc::new(correlated_keys::KeysOfSubqueries),
        Arc::new(null_lists::NullLists),
        Arc::new(checked_arithmetic::CheckedArithmetic),
        Arc::new(decimals::Of38Digits),
        Arc::new(window_keys::PartitionsByColumns),
        Arc::new(large_results::BoundedCalls),
    ]
}

/// DataFusion's rules of logical plans, and ours.
pub(crate) fn logical_rules() -> Vec<LogicalRule> {
    let mut rules = Optimizer::new().rules;
    for rule in rules.iter_mut().filter(|rule| rule.name() == "extract_leaf_expressions") {
        *rule = Arc::new(struct_keys::FieldsOfKeys(Arc::clone(rule)));
    }
    rules.extend([
        Arc::new(in_subquery::Marks) as LogicalRule,
        Arc::new(null_equality::KeysOfOneKind),
        Arc::new(null_equality::JoinsApart),
        Arc::new(comparisons::ConstantsLast),
        Arc::new(fences::Fences),
        Arc::new(aggregate_order::AggregateOrder),
        Arc::new(large_results::LongConstants),
    ]);
    rules
}

/// DataFusion's rules of physical plans, or ours in place of them, and ours.
pub(crate) fn physical_rules() -> Vec<PhysicalRule> {
    let mut rules = Vec::new();
    for rule in PhysicalOptimizer::new().rules {
        match rule.name() {
            "aggregate_statistics" => {
                rules.push(Arc::new(aggregate_statistics::AggregateStatistics) as PhysicalRule);
            }
            "LimitAggregation" => rules.push(Arc::new(top_groups::TopGroups(rule))),
            "FilterPushdown" | "FilterPushdown(Post)" => {
                rules.push(Arc::new(filter_pushdown::FilterPushdown(rule)));
            }
            "ProjectionPushdown" => {
                rules.push(Arc::new(filter_projections::ProjectionPushdown(rule)));
            }
            _ => rules.push(rule),
        }
    }
    rules.extend([
        Arc::new(equivalences::NoFalseConstants) as PhysicalRule,
        Arc::new(sorts_with_limit::LIMITS_BESIDE_SORTS),
        Arc::new(missing_sorts::MISSING_SORTS),
    ]);
    rules
}

/// DataFusion's aggregates, and ours in place of them.
pub(crate) fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let mended = |function: Arc<AggregateUDF>| match function.name() {
        "count" => Arc::new(count_distinct::in_one_table(function)),
        "percentile_cont" => Arc::new(percentile::with_every_digit(function)),
        "min" | "max" => Arc::new(min_max::in_total_order(function)),
        "sum" => Arc::new(sum::in_full(function)),
        "bit_and" | "bit_or" | "bit_xor" | "bool_and" | "bool_or" => {
            Arc::new(bits::sliding(function))
        }
        "string_agg" => Arc::new(string_agg::in_any_order(function)),
        "approx_distinct" | "regr_count" => Arc::new(signed::aggregate(function)),
        "corr" => Arc::new(sliding_floats::merged(Arc::new(regression::correlation(function)))),
        "regr_intercept" | "regr_r2" | "regr_slope" => {
            Arc::new(sliding_floats::merged(Arc::new(regression::of_constants(function))))
        }
        name if of_moments(name) => Arc::new(sliding_floats::merged(function)),
        _ => function,
    };
    SessionStateDefaults::default_aggregate_functions().into_iter().map(mended).collect()
}

/// Means, variances and what else is made of sums of floats.
fn of_moments(function: &str) -> bool {
    let begins = ["avg", "covar", "regr_", "stddev", "var"];
    begins.iter().any(|begin| function.starts_with(begin))
}

/// DataFusion's functions that give tables, and ours in place of them.
pub(crate) fn table_functions() -> Vec<Arc<TableFunction>> {
    let functions = SessionStateDefaults::default_table_functions();
    functions.iter().map(|function| Arc::new(timestamps::series(function))).collect()
}

/// DataFusion's formats of files, and ours in place of them.
pub(crate) fn file_formats() -> Vec<Arc<dyn FileFormatFactory>> {
    let mended = |format: Arc<dyn FileFormatFactory>| match format.get_ext().as_str() {
        "parquet" => Arc::new(float_bounds::TrueBounds(format)) as Arc<dyn FileFormatFactory>,
        _ => format,
    };
    SessionStateDefaults::default_file_formats().into_iter().map(mended).collect()
}

/// DataFusion's functions, and ours in place of them.
pub(crate) fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let mended = |function: Arc<ScalarUDF>| match function.name() {
        name if name.starts_with("to_timestamp") => Arc::new(timestamps::zoned(function)),
        "date_trunc" => Arc::new(late_times::of_all_times(function)),
        "now" | "current_time" => Arc::new(timestamps::clock(function)),
        "array_has" | "array_has_all" | "array_has_any" => Arc::new(lists::with_nulls(function)),
        "round" => Arc::new(rounding::to_any_place(function)),
        "to_char" => {
            let of_both = Arc::new(date_patterns::of_postgres(function));
            Arc::new(large_results::bounded(of_both))
        }
        "array_dims" | "array_length" | "array_ndims" | "array_position" | "array_positions"
        | "cardinality" => Arc::new(signed::scalar(function)),
        name if large_results::grows(name) => Arc::new(large_results::bounded(function)),
        _ => function,
    };
    let mut functions: Vec<Arc<ScalarUDF>> =
        SessionStateDefaults::default_scalar_functions().into_iter().map(mended).collect();
    functions.push(Arc::new(time_zones::function()));
    functions
}

/// DataFusion's functions of windows, and ours in place of them.
pub(crate) fn window_functions() -> Vec<Arc<WindowUDF>> {
    let mended = |function: Arc<WindowUDF>| match function.name() {
        "row_number" | "rank" | "dense_rank" | "ntile" => Arc::new(signed::window(function)),
        _ => function,
    };
    SessionStateDefaults::default_window_functions().into_iter().map(mended).collect()
}
