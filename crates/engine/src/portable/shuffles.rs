//! Where rows change parts: what cannot be divided by what tables have, is by the hash of what a plan joins, groups or
//! orders windows by.
//!
//! ```text
//! Aggregate by brand: sum(price)              Aggregate by brand: sum(price)
//!   Join on part = number               ─►      Join on part = number
//!     sales                                       ShuffleRead 1 ◄── sales, by part
//!     parts                                       ShuffleRead 2 ◄── parts, by number
//! ```
//!
//! A step is a plan that is divided as any other; its rows are told apart by their keys ([`crate::portable::buckets`]), and
//! each part of the plan that reads them has those of one bucket. So a statement is computed step by step, and what was
//! shuffled is as good as a table that is divided by these keys.
//!
//! # Invariants
//! - Whatever is divided as it is stays so: nothing is shuffled for it.
//! - A shuffle is read by one operator, and only has steps before it.
//!
//! # Not here
//! Whether it is worth it, and who has the rows in between: [`crate::portable::elsewhere::Elsewhere`].

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Window};

use crate::portable::buckets::is_key;
use crate::portable::choice::{Choice, Divides, choices};
use crate::portable::columns::{Together, place_of};
use crate::portable::cut::{Piece, not_looked_at};
use crate::portable::kind::{Kind, Looked, is_repeatable};
use crate::portable::partial::aggregate_halves;
use crate::portable::share::Divided;
use crate::portable::shuffle_read::ShuffleRead;
use crate::scan::lake_table::LakeTable;

/// What is computed before what reads its rows.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub piece: Piece,
    /// The columns of the piece by which its rows are told apart.
    pub keys: Vec<usize>,
}

/// The plan as one that reads what these steps make, each of which may read what is made before it; `None` if nothing of
/// it would be divided otherwise than it is. More groups than `most_groups` are not put together by one process.
pub(crate) fn shuffled(
    plan: &LogicalPlan,
    whole_rows: u64,
    most_groups: u64,
) -> Result<Option<(LogicalPlan, Vec<Step>)>> {
    if not_looked_at(plan)?.is_some() {
        return Ok(None);
    }
    let mut shuffles = Shuffles { whole_rows, most_groups, steps: Vec::new() };
    let plan = shuffles.below(plan.clone())?.data;
    Ok((!shuffles.steps.is_empty()).then_some((plan, shuffles.steps)))
}

struct Shuffles {
    whole_rows: u64,
    most_groups: u64,
    steps: Vec<Step>,
}

/// A plan whose rows are split, and how.
struct Split {
    choice: Choice,
    divided: Vec<Divided>,
    together: Vec<Together>,
}

impl Shuffles {
    fn below(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let plan = plan.map_children(|input| self.below(input))?;
        let is_new = plan.transformed;
        let plan = if is_new { plan.data.recompute_schema()? } else { plan.data };
        let before = self.steps.len();
        let now = match &plan {
            LogicalPlan::Join(join) => self.join(&plan, join)?,
            LogicalPlan::Aggregate(aggregate) => self.aggregate(&plan, aggregate)?,
            LogicalPlan::Window(window) => self.window(&plan, window)?,
            _ => None,
        };
        if let Some(now) = now
            && self.is_divided(&now)?
        {
            return Ok(Transformed::yes(now));
        }
        // What cannot be had in parts for another reason, such as `random()`, moves no rows.
        self.steps.truncate(before);
        Ok(Transformed::new_transformed(plan, is_new))
    }

    fn join(&mut self, plan: &LogicalPlan, join: &Join) -> Result<Option<LogicalPlan>> {
        if join.null_aware || self.is_divided(plan)? {
            return Ok(None);
        }
        let (left, right) = (join.left.schema(), join.right.schema());
        let keys: Vec<(usize, usize)> = join
            .on
            .iter()
            .filter_map(|(a, b)| {
                let (a, b) = (place_of(a, left)?, place_of(b, right)?);
                let (ours, theirs) = (left.field(a).data_type(), right.field(b).data_type());
                (ours == theirs && is_key(ours)).then_some((a, b))
            })
            .collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let (Some(ours), Some(theirs)) = (self.split(&join.left)?, self.split(&join.right)?) else {
            return Ok(None);
        };
        let other_way: Vec<(usize, usize)> = keys.iter().map(|(a, b)| (*b, *a)).collect();
        let (left, right) = if let Some(partners) = partners(&ours, &keys) {
            (join.left.as_ref().clone(), self.shuffle(&join.right, theirs, partners)?)
        } else if let Some(partners) = partners(&theirs, &other_way) {
            (self.shuffle(&join.left, ours, partners)?, join.right.as_ref().clone())
        } else {
            let (a, b) = keys.into_iter().unzip();
            (self.shuffle(&join.left, ours, a)?, self.shuffle(&join.right, theirs, b)?)
        };
        let join = Join { left: Arc::new(left), right: Arc::new(right), ..join.clone() };
        LogicalPlan::Join(join).recompute_schema().map(Some)
    }

    fn aggregate(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &Aggregate,
    ) -> Result<Option<LogicalPlan>> {
        let Aggregate { input, group_expr, .. } = aggregate;
        let is_plain = !group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        if group_expr.is_empty() || !is_plain || self.is_divided(plan)? {
            return Ok(None);
        }
        let Some(split) = self.split(input)? else { return Ok(None) };
        let halves = aggregate_halves(aggregate, &split.together)?;
        let Some((half, above)) = halves else {
            let keys = group_expr.iter().filter_map(|expr| place_of(expr, input.schema()));
            let keys = keys.filter(|key| is_key(input.schema().field(*key).data_type())).collect();
            return self.over_shuffled(plan, input, split, keys);
        };
        let keys: Vec<usize> = (0..group_expr.len())
            .filter(|key| is_key(half.schema().field(*key).data_type()))
            .collect();
        let may_travel = is_repeatable(&half) && split.looked(self.whole_rows).may_ask(&half)?;
        if keys.is_empty() || !may_travel || !self.has_many_groups(aggregate)? {
            return Ok(None);
        }
        above(self.shuffle(&half, split, keys)?).map(Some)
    }

    fn window(&mut self, plan: &LogicalPlan, window: &Window) -> Result<Option<LogicalPlan>> {
        if self.is_divided(plan)? {
            return Ok(None);
        }
        let (input, schema) = (&window.input, window.input.schema());
        let mut keys: Option<Vec<usize>> = None;
        for expr in &window.window_expr {
            let Expr::WindowFunction(function) = expr.clone().unalias() else { return Ok(None) };
            let by = function.params.partition_by.iter();
            let by: Vec<usize> = by
                .filter_map(|key| place_of(key, schema))
                .filter(|key| is_key(schema.field(*key).data_type()))
                .collect();
            let of_all = keys.unwrap_or_else(|| by.clone()).into_iter();
            keys = Some(of_all.filter(|key| by.contains(key)).collect());
        }
        let Some(split) = self.split(input)? else { return Ok(None) };
        self.over_shuffled(plan, input, split, keys.unwrap_or_default())
    }

    /// An operator over its only input, once that is shuffled.
    fn over_shuffled(
        &mut self,
        plan: &LogicalPlan,
        input: &LogicalPlan,
        split: Split,
        keys: Vec<usize>,
    ) -> Result<Option<LogicalPlan>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let read = self.shuffle(input, split, keys)?;
        plan.with_new_exprs(plan.expressions(), vec![read]).map(Some)
    }

    /// Is a plan divided as it is, or small enough to be computed by every part?
    fn is_divided(&self, plan: &LogicalPlan) -> Result<bool> {
        for choice in choices(plan)? {
            if !matches!(Looked::at(plan, &choice, self.whole_rows)?.0, Kind::Here) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn split(&self, plan: &LogicalPlan) -> Result<Option<Split>> {
        for choice in choices(plan)? {
            let (kind, looked) = Looked::at(plan, &choice, self.whole_rows)?;
            if let Kind::Split(together) = kind {
                let divided = looked.divided;
                return Ok(Some(Split { choice, divided, together }));
            }
        }
        Ok(None)
    }

    fn shuffle(
        &mut self,
        plan: &LogicalPlan,
        split: Split,
        keys: Vec<usize>,
    ) -> Result<LogicalPlan> {
        let number = self.steps.len() as u32;
        let read = ShuffleRead::of_rows(number, keys.clone(), plan)?;
        let piece = Piece::new(plan.clone(), split.divided, split.choice, false);
        self.steps.push(Step { piece, keys });
        Ok(read)
    }

    /// May there be more groups than one process had better put together?
    fn has_many_groups(&self, aggregate: &Aggregate) -> Result<bool> {
        let mut is_known = true;
        for key in &aggregate.group_expr {
            let values = match place_of(key, aggregate.input.schema()) {
                Some(place) => most_values(&aggregate.input, place)?,
                None => None,
            };
            match values {
                Some(values) if values > self.most_groups => return Ok(true),
                Some(_) => {}
                None => is_known = false,
            }
        }
        // What is left of `count(DISTINCT …)`: nobody asks that of a few values.
        Ok(aggregate.aggr_expr.is_empty() && !is_known)
    }
}

impl Split {
    fn looked(&self, whole_rows: u64) -> Looked<'_> {
        Looked::new(Some(&self.choice), whole_rows)
    }
}

/// The columns that have to tell the other side's rows apart, so that they meet those of a side that was shuffled.
fn partners(side: &Split, keys: &[(usize, usize)]) -> Option<Vec<usize>> {
    if !matches!(side.choice.divides, Divides::Shuffles) {
        return None;
    }
    let partner = |column: &usize| keys.iter().find(|(a, _)| a == column).map(|(_, b)| *b);
    let of = |columns: &Together| columns.iter().map(partner).collect::<Option<Vec<usize>>>();
    side.together.iter().find_map(of)
}

/// How many values a column can have, as the bounds of files say.
fn most_values(plan: &LogicalPlan, place: usize) -> Result<Option<u64>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let table = provider.downcast_ref::<LakeTable>();
            Ok(table.and_then(|table| table.most_values(scan.projected_schema.field(place).name())))
        }
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().first().map_or(Ok(None), |input| most_values(input, place))
        }
        LogicalPlan::Projection(node) => match place_of(&node.expr[place], node.input.schema()) {
            Some(place) => most_values(&node.input, place),
            None => Ok(None),
        },
        LogicalPlan::Join(node) => {
            let of_left = node.left.schema().fields().len();
            match node.join_type {
                // A mark stands behind the columns.
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    if place < node.right.schema().fields().len() {
                        most_values(&node.right, place)
                    } else {
                        Ok(None)
                    }
                }
                // Of a mark nobody knows.
                JoinType::LeftMark if place >= of_left => Ok(None),
                _ if place >= of_left => most_values(&node.right, place - of_left),
                _ => most_values(&node.left, place),
            }
        }
        _ => Ok(None),
    }
}
