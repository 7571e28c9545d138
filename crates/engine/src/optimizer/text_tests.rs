//! What an aggregate asks of text is asked by the scan, which lends it the rest of its columns.
//!
//! ```text
//! sum(CASE WHEN event = 'pay' …)         sum(CASE WHEN __test_0 …)
//!   Filter event IN ('pay', 'click') ─►    Filter __test_1
//!     scan: event, value                     scan: value, event = 'pay', event IN (…)
//! ```
//!
//! Kept columns have text of few different values as small numbers: the scan asks each value once,
//! and the text need not be put beside each row to be compared there.
//!
//! # Invariants
//! - Only questions that cannot fail are asked of rows that a filter would drop.
//! - Where an outer join adds rows without text, only those are asked whose answer is NULL for them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use uplake_functions::EventBits;

use crate::base::one_input::EachNode;
use crate::operators::array_aggregate::exec::{ArrayAggregateExec, SIDE_COLUMNS};
use crate::operators::array_aggregate::expressions::{asks, with_columns};
use crate::optimizer::shapes::{Layer, layer};
use crate::scan::indexed::lent;

/// The rule. It comes after all that moves columns.
pub(crate) const TEXT_TESTS: EachNode = EachNode {
    name: "text_tests",
    other: |node| match node.downcast_ref::<ArrayAggregateExec>() {
        Some(aggregate) => Ok(asked_below(aggregate)?.map(|asked| Arc::new(asked) as _)),
        None => Ok(None),
    },
};

/// The aggregate over a scan that asks its text for it.
fn asked_below(aggregate: &ArrayAggregateExec) -> Result<Option<ArrayAggregateExec>> {
    let mut expressions = aggregate.input_expressions()?;
    let mut conditions: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    let mut node = &aggregate.input;
    while let Some((layer, below)) = layer(node) {
        match layer {
            Layer::Same => {}
            Layer::Filter(filter) => {
                if let Some(columns) = filter.projection() {
                    let schema = below.schema();
                    for expr in expressions.iter_mut().chain(&mut conditions) {
                        *expr = moved(expr, &schema, |column| columns[column])?;
                    }
                }
                conditions.insert(0, Arc::clone(filter.predicate()));
            }
            Layer::Projection(_) | Layer::Dealt => return Ok(None),
        }
        node = below;
    }
    let Some(scan) = node.downcast_ref::<DataSourceExec>() else { return Ok(None) };
    let schema = scan.schema();
    let mut tests: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    let asks_bits = !aggregate.is_outer();
    for expr in expressions.iter().chain(&conditions) {
        find_tests(expr, &schema, asks_bits, &mut tests)?;
    }
    if aggregate.is_outer() {
        tests.retain(is_null_of_null);
    }
    // What is left of the scan's columns, and the tests after them.
    let replaced = |expr: &Arc<dyn PhysicalExpr>| {
        let place = |test: &Arc<dyn PhysicalExpr>| tests.iter().position(|other| other == test);
        let changed = Arc::clone(expr).transform_down(|part| match place(&part) {
            Some(test) => {
                let column = Column::new(&name(test), schema.fields().len() + test);
                Ok(Transformed::new(Arc::new(column) as _, true, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(part)),
        });
        Ok(changed?.data)
    };
    let mut expressions = expressions.iter().map(replaced).collect::<Result<Vec<_>>>()?;
    let mut conditions = conditions.iter().map(replaced).collect::<Result<Vec<_>>>()?;
    let mut used: Vec<usize> = expressions
        .iter()
        .chain(&conditions)
        .flat_map(collect_columns)
        .map(|column| column.index())
        .filter(|column| *column < SIDE_COLUMNS)
        .collect();
    used.sort_unstable();
    used.dedup();
    let column = |column: &usize| match column.checked_sub(schema.fields().len()) {
        Some(test) => ProjectionExpr::new(Arc::clone(&tests[test]), name(test)),
        None => {
            let found = schema.field(*column).name();
            ProjectionExpr::new(Arc::new(Column::new(found, *column)), found)
        }
    };
    let projection = ProjectionExprs::new(used.iter().map(column));
    let Some(mut source) = scan.data_source().try_swapping_with_projection(&projection)? else {
        return Ok(None);
    };
    if aggregate.forgets_rows() {
        source = lent(source);
    }
    let mut input: Arc<dyn ExecutionPlan> = Arc::new(DataSourceExec::new(source));
    let schema = input.schema();
    let place = |column: usize| used.partition_point(|used| *used < column);
    for expr in expressions.iter_mut().chain(&mut conditions) {
        *expr = moved(expr, &schema, place)?;
    }
    if !conditions.is_empty() {
        let filter = FilterExecBuilder::new(conjunction(conditions), input);
        input = Arc::new(filter.build()?);
    }
    Ok(Some(aggregate.over_other_columns(input, expressions)?))
}

fn name(test: usize) -> String {
    format!("__test_{test}")
}

/// The expression with the input's columns elsewhere.
fn moved(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    place: impl Fn(usize) -> usize,
) -> Result<Arc<dyn PhysicalExpr>> {
    with_columns(expr, |column| match column.index() {
        of_side @ SIDE_COLUMNS.. => Column::new(column.name(), of_side),
        found => Column::new(schema.field(place(found)).name(), place(found)),
    })
}

/// Adds the largest parts that are questions about one column of text; with `asks_bits` some at once, too.
fn find_tests(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    asks_bits: bool,
    tests: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<()> {
    expr.apply(|part| {
        if !is_test(part, schema, asks_bits) {
            return Ok(TreeNodeRecursion::Continue);
        }
        if !tests.contains(part) {
            tests.push(Arc::clone(part));
        }
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(())
}

fn is_test(expr: &Arc<dyn PhysicalExpr>, schema: &Schema, asks_bits: bool) -> bool {
    let columns = collect_columns(expr);
    let mut columns = columns.iter();
    let (Some(column), None) = (columns.next(), columns.next()) else { return false };
    column.index() < SIDE_COLUMNS
        && schema.field(column.index()).data_type() == &DataType::Utf8View
        && match expr.downcast_ref::<EventBits>() {
            Some(bits) => asks_bits && bits.conditions().iter().all(asks),
            None => asks(expr),
        }
}

/// Is the answer NULL where there is no text?
fn is_null_of_null(test: &Arc<dyn PhysicalExpr>) -> bool {
    let schema = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8View, true)]));
    let nothing = RecordBatch::try_new(schema, vec![new_null_array(&DataType::Utf8View, 1)]);
    let asked = with_columns(test, |_| Column::new("text", 0)).ok().zip(nothing.ok());
    let answer = asked.and_then(|(test, nothing)| test.evaluate(&nothing).ok());
    answer.and_then(|answer| answer.into_array(1).ok()).is_some_and(|answer| answer.is_null(0))
}
