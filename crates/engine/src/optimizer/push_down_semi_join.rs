//! A semi-join below the joins whose rows it chooses from.
//!
//! `WHERE o_orderkey IN (SELECT …)` over several joined tables comes out of DataFusion as a semi-join above all of
//! them, as every subquery of a WHERE does: it drops rows that the joins have made. It asks for columns of one of
//! the tables alone, so it can drop that table's rows before they are joined. NOT EXISTS is an anti-join likewise.
//!
//! ```text
//! semi-join a.x = s.x            join a.k = b.k
//!   join a.k = b.k        ─►       semi-join a.x = s.x
//!     a                              a
//!     b                              s
//!   s                              b
//! ```
//!
//! Which side builds is decided afterwards, by the estimates of what is joined then.
//!
//! # Invariants
//! - Every row of the side has what the semi-join asks for, and the join drops none of them for want of a partner
//!   that it would have kept: the side is one of an inner join, or the one that an outer join keeps.
//! - The semi-join reads no more rows than it did, as far as that is known.
//! - Nothing is computed of rows that it was not computed of, if it can fail.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, JoinOn};
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::base::can_fail::may_fail;
use crate::base::one_input::EachNode;

/// The rule. It comes before sides of joins are chosen.
pub(crate) const PUSH_DOWN_SEMI_JOIN: EachNode = EachNode {
    name: "push_down_semi_join",
    other: |node| match node.downcast_ref::<HashJoinExec>() {
        Some(join) if is_semi_join(join) => SemiJoin::of(join).below(join.left()),
        _ => Ok(None),
    },
};

/// Or one that keeps the others. What NULL among the keys means for all rows is asked of all of them.
fn is_semi_join(join: &HashJoinExec) -> bool {
    matches!(join.join_type(), JoinType::LeftSemi | JoinType::LeftAnti)
        && !join.null_aware
        && join.projection.is_none()
        && join.fetch().is_none()
}

/// A semi-join apart from the rows it chooses from.
struct SemiJoin<'a> {
    join: &'a HashJoinExec,
    /// Keys and condition over the rows that are looked at now.
    on: JoinOn,
    filter: Option<JoinFilter>,
}

impl<'a> SemiJoin<'a> {
    fn of(join: &'a HashJoinExec) -> Self {
        Self { join, on: join.on().to_vec(), filter: join.filter().cloned() }
    }

    /// Those rows with the semi-join somewhere below them, if that is worth it.
    fn below(&self, rows: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(projection) = rows.downcast_ref::<ProjectionExec>() {
            let computed = projection.expr();
            if computed.iter().any(|column| is_volatile(&column.expr)) {
                return Ok(None);
            }
            let column = |column: usize| column_of(&computed.get(column)?.expr);
            let Some(semi_join) = self.over(column) else { return Ok(None) };
            let Some(below) = semi_join.below(projection.input())? else { return Ok(None) };
            return replace_children_if_necessary(Arc::clone(rows), vec![below]).map(Some);
        }
        let Some(join) = rows.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        if join.projection.is_some() || join.fetch().is_some() {
            return Ok(None);
        }
        let (of_left, of_right) = match join.join_type() {
            JoinType::Inner => {
                (self.over_side(join, JoinSide::Left), self.over_side(join, JoinSide::Right))
            }
            JoinType::Left => (self.over_side(join, JoinSide::Left), None),
            JoinType::Right => (None, self.over_side(join, JoinSide::Right)),
            _ => (None, None),
        };
        let Some(joined) = estimated_rows(rows)? else { return Ok(None) };
        let mut best: Option<(usize, JoinSide, Self)> = None;
        for (side, semi_join) in [(JoinSide::Left, of_left), (JoinSide::Right, of_right)] {
            let Some(semi_join) = semi_join else { continue };
            let Some(rows) = estimated_rows(side_of(join, side))? else { continue };
            if rows <= joined && best.as_ref().is_none_or(|(fewest, ..)| rows < *fewest) {
                best = Some((rows, side, semi_join));
            }
        }
        let Some((_, side, semi_join)) = best else { return Ok(None) };
        let chosen = semi_join.anywhere_below(side_of(join, side))?;
        let (left, right) = match side {
            JoinSide::Left => (chosen, Arc::clone(join.right())),
            _ => (Arc::clone(join.left()), chosen),
        };
        HashJoinExecBuilder::from(join)
            .with_new_children(vec![left, right])?
            .recompute_properties()
            .build_exec()
            .map(Some)
    }

    /// Those rows with the semi-join below or above them.
    fn anywhere_below(&self, rows: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(below) = self.below(rows)? {
            return Ok(below);
        }
        HashJoinExecBuilder::new(
            Arc::clone(rows),
            Arc::clone(self.join.right()),
            self.on.iter().map(|(key, of)| (named(key, rows), Arc::clone(of))).collect(),
            *self.join.join_type(),
        )
        .with_filter(self.filter.clone())
        .with_partition_mode(*self.join.partition_mode())
        .with_null_equality(self.join.null_equality())
        .build_exec()
    }

    /// The semi-join over one side of an inner or an outer join, if it asks for nothing else. What an inner join says
    /// is equal may be asked of either side.
    fn over_side(&self, join: &HashJoinExec, side: JoinSide) -> Option<Self> {
        let first = join.left().schema().fields().len();
        let of_side = |column: usize| match side {
            JoinSide::Left => (column < first).then_some(column),
            _ => column.checked_sub(first),
        };
        let is_inner = *join.join_type() == JoinType::Inner;
        let equal = |column: usize| {
            let as_other = join.on().iter().find_map(|(left, right)| {
                let (left, right) = (column_of(left)?, column_of(right)? + first);
                let is_it = is_inner
                    && join.null_equality() == NullEquality::NullEqualsNothing
                    && (column == left || column == right);
                is_it.then_some(if column == left { right } else { left })
            })?;
            let schema = join.join_schema();
            let is_of_one_type =
                schema.field(column).data_type() == schema.field(as_other).data_type();
            is_of_one_type.then_some(as_other)
        };
        self.over(|column| of_side(column).or_else(|| of_side(equal(column)?)))
    }

    /// The semi-join over other rows, in which each of its columns is the one that is told.
    fn over(&self, column: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let on = self.on.iter().map(|(key, of)| {
            let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("", column(column_of(key)?)?));
            Some((key, Arc::clone(of)))
        });
        let on = on.collect::<Option<_>>()?;
        let join = self.join;
        let Some(filter) = &self.filter else { return Some(Self { join, on, filter: None }) };
        // Of rows that the join drops it would be computed, too.
        if may_fail(filter.expression(), filter.schema()) || is_volatile(filter.expression()) {
            return None;
        }
        let columns = filter.column_indices().iter().map(|asked| match asked.side {
            JoinSide::Left => Some(ColumnIndex { index: column(asked.index)?, side: asked.side }),
            _ => Some(asked.clone()),
        });
        let columns = columns.collect::<Option<_>>()?;
        let filter =
            JoinFilter::new(Arc::clone(filter.expression()), columns, Arc::clone(filter.schema()));
        Some(Self { join, on, filter: Some(filter) })
    }
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// That column as it is called in the rows.
fn named(column: &Arc<dyn PhysicalExpr>, rows: &Arc<dyn ExecutionPlan>) -> Arc<dyn PhysicalExpr> {
    match column_of(column) {
        Some(index) => Arc::new(Column::new(rows.schema().field(index).name(), index)),
        None => Arc::clone(column),
    }
}

fn side_of(join: &HashJoinExec, side: JoinSide) -> &Arc<dyn ExecutionPlan> {
    match side {
        JoinSide::Left => join.left(),
        _ => join.right(),
    }
}

fn estimated_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    Ok(statistics.num_rows.get_value().copied())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use crate::engine::session::for_tests;

    /// `big` has as many rows as its join with `small` at least, `few` chooses from either.
    const TABLES: &str = "
        CREATE TABLE big AS SELECT CASE WHEN v % 10 > 0 THEN v % 500 END AS k, v % 37 AS x, v AS n
          FROM generate_series(1, 6000) AS s(v);
        CREATE TABLE small AS SELECT CASE WHEN v % 50 > 0 THEN v END AS k, v % 7 AS y, concat('s', CAST(v AS TEXT)) AS t
          FROM generate_series(1, 700) AS s(v);
        CREATE TABLE few AS SELECT CASE WHEN v > 1 THEN v * 3 END AS f, v % 4 AS g FROM generate_series(1, 30) AS s(v);";

    /// Statements, and whether the rule has something to do in them.
    const STATEMENTS: [(&str, bool); 18] = [
        // A column of one side, of the other, and one that both have.
        (
            "SELECT b.n, s.t FROM big b JOIN small s ON b.k = s.k WHERE s.y IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT b.n, s.t FROM big b JOIN small s ON b.k = s.k WHERE s.k IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT b.n, s.t FROM big b JOIN small s ON b.k = s.k WHERE b.k IN (SELECT f FROM few)",
            true,
        ),
        // Below two joins.
        (
            "SELECT a.n, s.t FROM big a JOIN small s ON a.k = s.k JOIN small z ON z.k = a.x WHERE s.k IN (SELECT f FROM few)",
            true,
        ),
        // Several of them, and one with a condition that cannot fail.
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k WHERE s.y IN (SELECT g FROM few) AND s.k IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k WHERE EXISTS (SELECT 1 FROM few WHERE f = s.k AND g < s.y)",
            true,
        ),
        // Two keys of one side, and one of each.
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k WHERE EXISTS (SELECT 1 FROM few WHERE f = s.k AND g = s.y)",
            true,
        ),
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k WHERE EXISTS (SELECT 1 FROM few WHERE f = b.x AND g = s.y)",
            false,
        ),
        // The side that an outer join keeps, and the one that it does not.
        (
            "SELECT s.t, b.n FROM small s LEFT JOIN big b ON b.k = s.k WHERE s.k IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT s.t, b.n FROM big b RIGHT JOIN small s ON b.k = s.k WHERE s.y IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT s.t, b.n FROM small s FULL JOIN big b ON b.k = s.k WHERE EXISTS (SELECT 1 FROM few WHERE f IS NOT DISTINCT FROM s.k)",
            false,
        ),
        (
            "SELECT s.t, x.n FROM small s LEFT JOIN (SELECT k, n FROM big) x ON x.k = s.k
            WHERE EXISTS (SELECT 1 FROM few WHERE f IS NOT DISTINCT FROM x.n)",
            false,
        ),
        // What the join leaves is fewer rows than either side has.
        (
            "SELECT b.n FROM big b JOIN (SELECT * FROM small WHERE k = 6) s ON b.n = s.k WHERE b.x IN (SELECT f FROM few)",
            false,
        ),
        // A condition that could fail of rows that the join drops.
        (
            "SELECT b.n FROM big b JOIN (SELECT * FROM small WHERE y > 0) s ON b.k = s.k
            WHERE EXISTS (SELECT 1 FROM few WHERE f = b.k AND g < b.n + 5)",
            false,
        ),
        // Columns that are computed above the join.
        (
            "SELECT * FROM (SELECT s.k AS k, b.n + 1 AS m FROM big b JOIN small s ON b.k = s.k) WHERE k IN (SELECT f FROM few)",
            true,
        ),
        (
            "SELECT * FROM (SELECT s.k + 1 AS k, b.n FROM big b JOIN small s ON b.k = s.k) WHERE k IN (SELECT f FROM few)",
            false,
        ),
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k WHERE s.k NOT IN (SELECT f FROM few WHERE f IS NOT NULL)",
            true,
        ),
        (
            "SELECT b.n FROM big b JOIN small s ON b.k = s.k
               WHERE NOT EXISTS (SELECT 1 FROM few WHERE f = s.k AND g < s.y)",
            true,
        ),
    ];

    #[test]
    fn rows_are_those_of_a_semi_join_above() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder.path(), true);
        let query = |text: &str| {
            let rows = runtime.block_on(session.query(text)).unwrap();
            pretty_format_batches(&rows).unwrap().to_string()
        };
        let sorted = |text: &str| {
            let mut lines: Vec<String> = query(text).lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        query(TABLES);
        for (text, is_pushed) in STATEMENTS {
            query("SET uplake.disabled_rules = 'push_down_semi_join'");
            let above = sorted(text);
            query("SET uplake.disabled_rules = ''");
            assert_eq!(sorted(text), above, "{text}");
            assert!(above.len() > 4, "{text} has no rows");
            let plan = query(&format!("EXPLAIN {text}"));
            assert_eq!(plan.contains("push_down_semi_join"), is_pushed, "{text}\n{plan}");
        }
    }
}
