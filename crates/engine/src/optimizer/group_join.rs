//! Which joins are done where their rows are grouped: see [`lookup`](crate::operators::array_aggregate::group_join).
//!
//! # Invariants
//! - The other side has one row for each id, because its plan groups by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::conjunction;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_datasource::source::DataSourceExec;
use uplake_functions::EventBits;

use crate::base::can_fail::step_may_fail;
use crate::base::id_column::IdColumn;
use crate::base::one_input::EachNode;
use crate::cache::computed_rows;
use crate::operators::array_aggregate::aggregate::{ArrayAggregate, Group};
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::operators::array_aggregate::group_join::{GroupJoin, Wanted};
use crate::operators::array_aggregate::keys::Keys;
use crate::optimizer::shapes::{Layer, layer};

/// Parts of expressions, once those of projections are written where they are used; with more a join
/// stays where it is.
const MANY_PARTS: usize = 1000;

/// The rule that does joins in the aggregates above them. It must come after what tells scans about joins.
pub(crate) const GROUP_JOINS: EachNode = EachNode {
    name: "group_joins",
    other: |node| match node.downcast_ref::<ArrayAggregateExec>() {
        Some(aggregate) => Ok(joined(aggregate)?.map(|joined| Arc::new(joined) as _)),
        None => Ok(None),
    },
};

/// Expressions of an aggregate, over what is further and further down.
struct Expressions {
    what: ArrayAggregate,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
}

impl Expressions {
    /// Every expression with its columns written as `column` says.
    fn map(&mut self, column: impl Fn(&Column) -> Result<Arc<dyn PhysicalExpr>>) -> Result<()> {
        let change = |expr: &Arc<dyn PhysicalExpr>| written(expr, &column);
        for group in &mut self.what.columns {
            if let Group::Row(expr) = group {
                *expr = change(expr)?;
            }
        }
        self.what.sums = self.what.sums.iter().map(|sum| sum.map(change)).collect::<Result<_>>()?;
        self.conditions = self.conditions.iter().map(change).collect::<Result<_>>()?;
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.what.expressions().chain(&self.conditions)
    }

    fn parts(&self) -> usize {
        self.all().map(parts).sum()
    }
}

fn written(
    expr: &Arc<dyn PhysicalExpr>,
    column: impl Fn(&Column) -> Result<Arc<dyn PhysicalExpr>>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let changed = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
        Some(found) => column(found).map(Transformed::yes),
        None => Ok(Transformed::no(part)),
    })?;
    Ok(changed.data)
}

fn parts(expr: &Arc<dyn PhysicalExpr>) -> usize {
    1 + expr.children().into_iter().map(parts).sum::<usize>()
}

/// The aggregate that does the join below it, if there is one that it can do.
fn joined(aggregate: &ArrayAggregateExec) -> Result<Option<ArrayAggregateExec>> {
    if aggregate.joins() {
        return Ok(None);
    }
    let mut found = Expressions { what: aggregate.what.clone(), conditions: Vec::new() };
    let mut node = &aggregate.input;
    while let Some((layer, below)) = layer(node) {
        match layer {
            Layer::Same => {}
            Layer::Projection(projection) => {
                let below = projection.expr();
                found.map(|column| Ok(Arc::clone(&below[column.index()].expr)))?;
            }
            Layer::Filter(filter) => {
                if let Some(columns) = filter.projection() {
                    let schema = below.schema();
                    found.map(|column| Ok(plain(&schema, columns[column.index()])))?;
                }
                found.conditions.push(Arc::clone(filter.predicate()));
            }
            Layer::Dealt => return Ok(None),
        }
        if found.parts() > MANY_PARTS {
            return Ok(None);
        }
        node = below;
    }
    node.downcast_ref::<HashJoinExec>().map_or(Ok(None), |join| lookup(found, join))
}

fn plain(schema: &Schema, column: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(column).name(), column))
}

fn lookup(mut found: Expressions, join: &HashJoinExec) -> Result<Option<ArrayAggregateExec>> {
    let outer = match join.join_type() {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Ok(None),
    };
    let ([(side_key, key)], PartitionMode::CollectLeft) = (join.on(), join.partition_mode()) else {
        return Ok(None);
    };
    let (left, right) = (join.left().schema(), join.right().schema());
    let ids = IdColumn::of_column(side_key, &left);
    let of_one_log = ids.is_some() && ids == IdColumn::of_column(key, &right);
    let (Some(side_key), Some(key)) =
        (side_key.downcast_ref::<Column>(), key.downcast_ref::<Column>())
    else {
        return Ok(None);
    };
    if join.null_equality() != NullEquality::NullEqualsNothing
        || join.null_aware
        || join.fetch().is_some()
        || join.left().output_partitioning().partition_count() != 1
        || !of_one_log
        || !has_one_row_each(join.left(), side_key.index())
        // A condition above a left join would drop rows without a partner.
        || (outer && !found.conditions.is_empty())
    {
        return Ok(None);
    }
    // Over the join's columns: the side's, then the rows'.
    if let Some(columns) = &join.projection {
        let schema = join.join_schema();
        found.map(|column| Ok(plain(schema, columns[column.index()])))?;
    }
    if found.what.one_id {
        let group = found.what.columns.first().and_then(Group::expression);
        let column = group.and_then(|expr| expr.downcast_ref::<Column>()).map(Column::index);
        // Rows that an outer join adds have the other side's key alone.
        let of_rows = (!outer).then_some(left.fields().len() + key.index());
        if column.is_none_or(|column| column != side_key.index() && Some(column) != of_rows) {
            return Ok(None);
        }
        found.what.columns = vec![Group::Key];
    }
    if let Some(filter) = join.filter() {
        let at = |column: &Column| {
            let found = &filter.column_indices()[column.index()];
            let first = if found.side == JoinSide::Left { 0 } else { left.fields().len() };
            Ok(plain(join.join_schema(), first + found.index))
        };
        found.conditions.push(written(filter.expression(), at)?);
    }
    let is_safe = found.all().all(|expr| cannot_fail(expr, join.join_schema()));
    if found.all().any(is_volatile) || (found.conditions.len() > 1 && !is_safe) {
        return Ok(None);
    }
    // What the rows are grouped by of the other side need not be put beside each row.
    let (mut groups, mut types) = (Vec::new(), Vec::new());
    for (group, data_type) in found.what.columns.iter_mut().zip(&found.what.types) {
        let column = group.expression().and_then(|expr| expr.downcast_ref::<Column>());
        match column.map(Column::index).filter(|column| *column < left.fields().len()) {
            Some(column) if !found.what.one_id && Keys::takes(data_type) => {
                *group = Group::BuildSide(groups.len());
                groups.push(column);
            }
            _ => types.push(data_type.clone()),
        }
    }
    found.what.types = types;
    let mut of_key = Vec::new();
    if found.what.one_id {
        for sum in &mut found.what.sums {
            let column = sum.one_of(join.join_schema());
            if let Some(column) = column.filter(|column| *column < left.fields().len()) {
                *sum = sum.of_key(of_key.len());
                of_key.push(column);
            }
        }
    }
    let used: BTreeSet<usize> =
        found.all().flat_map(collect_columns).map(|column| column.index()).collect();
    let (of_side, of_input): (Vec<usize>, Vec<usize>) =
        used.into_iter().partition(|column| *column < left.fields().len());
    let columns: Vec<usize> = of_input.iter().chain(&of_side).copied().collect();
    let fields = columns.iter().map(|column| {
        let field = join.join_schema().field(*column).clone();
        field.with_nullable(true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let place = |column: &Column| {
        let at = columns.iter().position(|used| *used == column.index());
        Ok(plain(&schema, at.unwrap_or_default()))
    };
    found.map(place)?;
    let Expressions { mut what, conditions } = found;
    what.lookup = Some(GroupJoin {
        side: Arc::clone(join.left()),
        key: key.clone(),
        side_key: side_key.index(),
        input_columns: of_input.iter().map(|column| column - left.fields().len()).collect(),
        side_columns: of_side,
        schema,
        by_key: what.one_id,
        groups,
        of_key,
        condition: (!conditions.is_empty()).then(|| conjunction(conditions)),
        outer,
        is_safe,
        wanted: join.dynamic_expressions_produced().pop().map(|filter| Wanted {
            key: key.clone(),
            schema: right,
            filter,
        }),
    });
    Ok(Some(ArrayAggregateExec::over(what, Arc::clone(join.right()))))
}

/// Has the plan at most one row for each value of a column of ids?
fn has_one_row_each(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<ArrayAggregateExec>() {
        return aggregate.is_by_id() && column == 0;
    }
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        return computed_rows::has_one_row_each(scan, column);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        // Some of the rows of one side, once each.
        let rows = match join.join_type() {
            JoinType::LeftSemi | JoinType::LeftAnti => join.left(),
            JoinType::RightSemi | JoinType::RightAnti => join.right(),
            _ => return false,
        };
        let column = join.projection.as_ref().map_or(Some(&column), |columns| columns.get(column));
        return column.is_some_and(|column| has_one_row_each(rows, *column));
    }
    layer(plan).is_some_and(|(layer, below)| {
        layer.column(column).is_some_and(|column| has_one_row_each(below, column))
    })
}

/// Can this be computed of any row, also of one that a join would drop?
fn cannot_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let mut safe = true;
    let visited = expr.apply(|part| {
        let known = part.is::<BinaryExpr>()
            || part.is::<CastExpr>()
            || part.is::<Column>()
            || part.is::<Literal>()
            || part.is::<CaseExpr>()
            || part.is::<InListExpr>()
            || part.is::<IsNullExpr>()
            || part.is::<IsNotNullExpr>()
            || part.is::<LikeExpr>()
            || part.is::<NotExpr>()
            || part.is::<EventBits>();
        safe = known && !step_may_fail(part, schema);
        Ok(if safe { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    safe && visited.is_ok()
}
