//! Which rows of an operator a part has, if tables are divided in one way.
//!
//! # Invariants
//! - Rows that are equal in a list of columns of [`Kind::Split`] are in one part: what groups, joins or orders windows by
//!   these is complete in a part.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Volatility};

use crate::mends;
use crate::portable::choice::{Choice, Divides};
use crate::portable::columns::{Together, is_at, moved, places_of};
use crate::portable::partial::half;
use crate::portable::share::Divided;
use crate::portable::shuffle_read::ShuffleRead;
use crate::scan::lake_table::LakeTable;

/// Which rows of an operator a part has.
#[derive(Clone)]
pub(crate) enum Kind {
    /// Some of them, and no other part has those.
    Split(Vec<Together>),
    /// All of them, and so has every other part.
    Whole,
    /// It cannot be had in parts.
    Here,
}

/// A plan as it is looked at.
pub(crate) struct Looked<'a> {
    choice: Option<&'a Choice>,
    whole_rows: u64,
    scans: usize,
    pub divided: Vec<Divided>,
    /// The first operator that cannot be had in parts.
    pub why: Option<String>,
}

impl<'a> Looked<'a> {
    pub fn at(plan: &LogicalPlan, choice: &'a Choice, whole_rows: u64) -> Result<(Kind, Self)> {
        let mut looked = Self::new(Some(choice), whole_rows);
        Ok((looked.kind(plan)?, looked))
    }

    pub fn new(choice: Option<&'a Choice>, whole_rows: u64) -> Self {
        Self { choice, whole_rows, scans: 0, divided: Vec::new(), why: None }
    }

    /// Scans are numbered in the order in which plans are gone through.
    fn kind(&mut self, plan: &LogicalPlan) -> Result<Kind> {
        let inputs = plan.inputs().into_iter().map(|input| self.kind(input));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let kind = self.kind_over(plan, &inputs)?;
        if matches!(kind, Kind::Here) || !is_repeatable(plan) || !self.may_ask(plan)? {
            let is_first = !inputs.iter().any(|input| matches!(input, Kind::Here));
            if is_first && self.why.is_none() {
                self.why = Some(format!("{} needs all rows", plan.display()));
            }
            return Ok(Kind::Here);
        }
        Ok(kind)
    }

    fn kind_over(&mut self, plan: &LogicalPlan, inputs: &[Kind]) -> Result<Kind> {
        Ok(match (plan, inputs) {
            (LogicalPlan::TableScan(scan), _) => {
                let number = self.scans;
                self.scans += 1;
                let provider = source_as_provider(&scan.source)?;
                match provider.downcast_ref::<LakeTable>() {
                    Some(table) if table.is_plain() && scan.fetch.is_none() => {
                        self.kind_of_scan(table, number, &scan.projected_schema)
                    }
                    _ => Kind::Here,
                }
            }
            (LogicalPlan::Unnest(node), [Kind::Split(together)]) => {
                let unnested = node.list_type_columns.iter().map(|(place, _)| place);
                let unnested: Vec<_> = unnested.chain(&node.struct_type_columns).collect();
                let now_at = |before: usize| {
                    let of = node.dependency_indices.iter().enumerate();
                    let kept = of.filter(|(_, of)| **of == before && !unnested.contains(of));
                    kept.map(|(place, _)| place).collect()
                };
                Kind::Split(moved(together, now_at))
            }
            (LogicalPlan::Unnest(_), [Kind::Whole]) => Kind::Whole,
            (LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_), _) => Kind::Whole,
            (LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_), [input]) => input.clone(),
            (LogicalPlan::Projection(node), [Kind::Split(together)]) => {
                let schema = node.input.schema();
                Kind::Split(moved(together, |before| places_of(&node.expr, schema, before)))
            }
            (LogicalPlan::Projection(_), [Kind::Whole]) => Kind::Whole,
            (LogicalPlan::Aggregate(node), [Kind::Split(together)]) => {
                let schema = node.input.schema();
                let complete =
                    moved(together, |before| places_of(&node.group_expr, schema, before));
                if complete.is_empty() { Kind::Here } else { Kind::Split(complete) }
            }
            (LogicalPlan::Aggregate(node), [Kind::Whole]) => {
                let is_same = |expr: &Expr| half(expr, &node.input, &[]).is_ok_and(|h| h.is_some());
                match node.aggr_expr.iter().all(is_same) && !adds_floats(node)? {
                    true => Kind::Whole,
                    false => Kind::Here,
                }
            }
            (LogicalPlan::Window(node), [Kind::Split(together)]) => {
                let schema = node.input.schema();
                let is_complete = |expr: &Expr| match expr.clone().unalias() {
                    Expr::WindowFunction(function) => {
                        let by = &function.params.partition_by;
                        let is_key = |place: &usize| !places_of(by, schema, *place).is_empty();
                        together.iter().any(|columns| columns.iter().all(is_key))
                    }
                    _ => false,
                };
                match node.window_expr.iter().all(is_complete) {
                    true => Kind::Split(together.clone()),
                    false => Kind::Here,
                }
            }
            (LogicalPlan::Union(_), [first, rest @ ..]) => {
                let Kind::Split(mut together) = first.clone() else {
                    let all = inputs.iter().all(|input| matches!(input, Kind::Whole));
                    return Ok(if all { Kind::Whole } else { Kind::Here });
                };
                for input in rest {
                    let Kind::Split(other) = input else { return Ok(Kind::Here) };
                    together.retain(|columns| other.contains(columns));
                }
                Kind::Split(together)
            }
            (LogicalPlan::Join(node), [left, right]) => {
                let places = node.left.schema().fields().len();
                let shifted = |together: &[Together]| moved(together, |at| vec![at + places]);
                use JoinType::{
                    Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark,
                    RightSemi,
                };
                match (left, right) {
                    (Kind::Whole, Kind::Whole) => Kind::Whole,
                    (Kind::Split(left), Kind::Split(right)) => {
                        // NOT IN asks of all rows whether one is NULL.
                        if !meet(node, left, right) || node.null_aware {
                            return Ok(Kind::Here);
                        }
                        Kind::Split(match node.join_type {
                            Inner => [left.clone(), shifted(right)].concat(),
                            Left | LeftSemi | LeftAnti | LeftMark => left.clone(),
                            Right => shifted(right),
                            RightSemi | RightAnti | RightMark => right.clone(),
                            Full => Vec::new(),
                        })
                    }
                    (Kind::Split(left), Kind::Whole) => match node.join_type {
                        Inner | Left | LeftSemi | LeftAnti | LeftMark => Kind::Split(left.clone()),
                        _ => Kind::Here,
                    },
                    (Kind::Whole, Kind::Split(right)) => match node.join_type {
                        Inner | Right => Kind::Split(shifted(right)),
                        RightSemi | RightAnti | RightMark => Kind::Split(right.clone()),
                        _ => Kind::Here,
                    },
                    _ => Kind::Here,
                }
            }
            (LogicalPlan::Extension(node), _) => {
                let read = node.node.as_any().downcast_ref::<ShuffleRead>();
                match (read, self.choice.map(|choice| &choice.divides)) {
                    (Some(read), Some(Divides::Shuffles)) => Kind::Split(vec![read.keys.clone()]),
                    _ => Kind::Here,
                }
            }
            _ => Kind::Here,
        })
    }

    fn kind_of_scan(&mut self, table: &LakeTable, number: usize, columns: &DFSchema) -> Kind {
        let rows = table.rows().unwrap_or(u64::MAX);
        let whole = if rows <= self.whole_rows { Kind::Whole } else { Kind::Here };
        let source = match self.choice.map(|choice| &choice.divides) {
            Some(Divides::Ids(source)) => source,
            Some(Divides::Bytes { scan }) if *scan == number => {
                self.divided.push(Divided { scan: number, ids: None });
                return Kind::Split(Vec::new());
            }
            _ => return whole,
        };
        let mut ids = table.id_columns().into_iter().filter(|(of, _)| of == source);
        let Some((_, name)) = ids.next() else { return whole };
        let fields = columns.fields().iter().enumerate();
        let places = fields.filter(|(_, field)| *field.name() == name);
        let places = places.map(|(place, _)| vec![place]).collect();
        self.divided.push(Divided { scan: number, ids: Some(name) });
        Kind::Split(places)
    }

    /// Do an operator's subqueries, if it has any, read small tables alone?
    pub fn may_ask(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut may = true;
        plan.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarSubquery(subquery) = part {
                    let mut asked = Looked::new(None, self.whole_rows);
                    may &= matches!(asked.kind(&subquery.subquery)?, Kind::Whole);
                }
                Ok(if may { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })?;
        Ok(may)
    }
}

/// Do its expressions say the same of a row whoever asks?
pub(crate) fn is_repeatable(plan: &LogicalPlan) -> bool {
    let mut repeatable = true;
    let look = plan.apply_expressions(|expr| {
        expr.apply(|part| {
            repeatable &= match part {
                Expr::ScalarFunction(call) => {
                    call.func.signature().volatility != Volatility::Volatile
                        || mends::private_to_bytes(&call.func).is_some()
                }
                Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::ScalarVariable(..) => false,
                _ => true,
            };
            Ok(TreeNodeRecursion::Continue)
        })
    });
    look.is_ok() && repeatable
}

fn adds_floats(aggregate: &Aggregate) -> Result<bool> {
    let added = aggregate
        .schema
        .fields()
        .iter()
        .skip(aggregate.schema.fields().len() - aggregate.aggr_expr.len());
    Ok(added.into_iter().any(|field| field.data_type().is_floating()))
}

/// Are rows that a join brings together in one part?
fn meet(join: &Join, left: &[Together], right: &[Together]) -> bool {
    let (ours, theirs) = (join.left.schema(), join.right.schema());
    let is_joined = |(a, b): (&usize, &usize)| {
        let is_one_type = ours.field(*a).data_type() == theirs.field(*b).data_type();
        is_one_type && join.on.iter().any(|(l, r)| is_at(l, ours, *a) && is_at(r, theirs, *b))
    };
    let all = |a: &Together, b: &Together| a.len() == b.len() && a.iter().zip(b).all(is_joined);
    left.iter().any(|a| right.iter().any(|b| all(a, b)))
}
