//! Which parts of which plans are the same rows.
//!
//! A part is a scan, filter, join or grouping, without the columns that somebody wants of it: two
//! statements that join the same rows and look at different columns have that part in common. Columns
//! have names that every plan shares (`3.0`: the first column that part 3 makes), and what a plan
//! computes of them is an expression over those names. Renaming, reordering and leaving out columns
//! make no new part.
//!
//! # Invariants
//! - Plans with one part have the same rows, whatever columns they show, in any order.
//! - What cannot be told for sure (a volatile function, a subquery in an expression, LIMIT, a file read in
//!   place) is no part: [`Parts::see`] says `None`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Expr, Join, LogicalPlan, TableProviderFilterPushDown, TableScan, TableSource, Volatility,
};

use crate::scan::lake_table::LakeTable;

/// The number of a part.
pub(super) type PartId = usize;

/// Columns by their shared names.
pub(super) type Names = BTreeSet<String>;

/// What a part does. Expressions are over the columns of its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The rows of a table for which `filters` hold, which the scan applies by itself.
    Scan {
        rows_of: (String, u64, usize),
        filters: Vec<Expr>,
    },
    Filter {
        input: PartId,
        conditions: Vec<Expr>,
    },
    /// In `filter`, columns of the sides have [`LEFT`] and [`RIGHT`] before their names.
    Join {
        sides: [PartId; 2],
        on: Vec<(Expr, Expr)>,
        filter: Option<Expr>,
        join_type: JoinType,
        nulls: NullEquality,
        null_aware: bool,
    },
    Group {
        input: PartId,
        by: Vec<Expr>,
    },
}

pub(super) const LEFT: char = 'l';
pub(super) const RIGHT: char = 'r';

/// A column that a part makes; a filter makes none, it has its input's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    /// A column of the table.
    Field(String),
    /// What is computed of a side before it is joined.
    Left(Expr),
    Right(Expr),
    /// What rows are grouped by, by its place.
    Key(usize),
    Aggregate(Expr),
}

/// A part and the columns that plans want of it.
pub(super) struct Part {
    pub kind: Kind,
    pub made: Vec<Made>,
    /// A scan's table, with its columns of ids.
    pub source: Option<Arc<dyn TableSource>>,
    places: HashMap<Made, usize>,
}

/// A plan as a part and what it shows of it, column by column.
pub(super) struct Seen {
    pub part: PartId,
    pub columns: Vec<Expr>,
}

/// All parts of a batch. Inputs have smaller numbers than what is made of them.
#[derive(Default)]
pub(super) struct Parts {
    pub all: Vec<Part>,
    known: HashMap<Kind, PartId>,
}

impl Parts {
    /// The plan as a part.
    pub fn see(&mut self, plan: &LogicalPlan) -> Option<Seen> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.see(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.see(&projection.input)?;
                let schema = projection.input.schema();
                let columns = told_all(&projection.expr, schema, &input.columns)?;
                Some(Seen { part: input.part, columns })
            }
            LogicalPlan::Filter(filter) => {
                let input = self.see(&filter.input)?;
                let schema = filter.input.schema();
                let conditions = split_conjunction(&filter.predicate)
                    .into_iter()
                    .map(|condition| told(condition, schema, &input.columns))
                    .collect::<Option<_>>()?;
                let part = self.known(Kind::Filter { input: input.part, conditions });
                Some(Seen { part, columns: input.columns })
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => {
                let input = self.see(&aggregate.input)?;
                let schema = aggregate.input.schema();
                let by = told_all(&aggregate.group_expr, schema, &input.columns)?;
                let aggregates = told_all(&aggregate.aggr_expr, schema, &input.columns)?;
                if aggregate.schema.fields().len() != by.len() + aggregates.len() {
                    return None;
                }
                let keys = (0..by.len()).map(Made::Key);
                let part = self.known(Kind::Group { input: input.part, by: by.clone() });
                let made = keys.chain(aggregates.into_iter().map(Made::Aggregate));
                let columns = made.map(|made| self.column(part, made)).collect();
                Some(Seen { part, columns })
            }
            _ => None,
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Option<Seen> {
        if scan.fetch.is_some() {
            return None;
        }
        let provider = source_as_provider(&scan.source).ok()?;
        let table = provider.downcast_ref::<LakeTable>()?;
        let filters: Vec<&Expr> = scan.filters.iter().collect();
        let applied = scan.source.supports_filters_pushdown(&filters).ok()?;
        let filters = filters
            .into_iter()
            .zip(applied)
            // The plan repeats the others above the scan.
            .filter(|(_, applied)| *applied == TableProviderFilterPushDown::Exact)
            .map(|(filter, _)| bare(filter))
            .collect::<Option<_>>()?;
        let part = self.known(Kind::Scan { rows_of: table.rows_of()?, filters });
        if self.all[part].source.is_none() {
            let has_ids = scan.source.schema().fields().len()
                == table.snapshot().stored_schema().fields().len();
            let source = match has_ids {
                true => Arc::clone(&scan.source),
                false => provider_as_source(table.with_ids()),
            };
            self.all[part].source = Some(source);
        }
        let fields = scan.projected_schema.fields().iter();
        let columns =
            fields.map(|field| self.column(part, Made::Field(field.name().clone()))).collect();
        Some(Seen { part, columns })
    }

    fn join(&mut self, join: &Join) -> Option<Seen> {
        let (shows_left, shows_right) = match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => (true, true),
            JoinType::LeftSemi | JoinType::LeftAnti => (true, false),
            JoinType::RightSemi | JoinType::RightAnti => (false, true),
            JoinType::LeftMark | JoinType::RightMark => return None,
        };
        let (left, right) = (self.see(&join.left)?, self.see(&join.right)?);
        let on = join
            .on
            .iter()
            .map(|(l, r)| {
                let l = told(l, join.left.schema(), &left.columns)?;
                Some((l, told(r, join.right.schema(), &right.columns)?))
            })
            .collect::<Option<_>>()?;
        let filter = match &join.filter {
            None => None,
            Some(filter) => {
                let schema = join.left.schema().join(join.right.schema()).ok()?;
                let sided = |side: char| move |column: &Expr| with_side(column, side);
                let columns: Vec<Expr> = left
                    .columns
                    .iter()
                    .map(sided(LEFT))
                    .chain(right.columns.iter().map(sided(RIGHT)))
                    .collect();
                Some(told(filter, &schema, &columns)?)
            }
        };
        let part = self.known(Kind::Join {
            sides: [left.part, right.part],
            on,
            filter,
            join_type: join.join_type,
            nulls: join.null_equality,
            null_aware: join.null_aware,
        });
        let lefts = left.columns.into_iter().map(Made::Left).filter(|_| shows_left);
        let rights = right.columns.into_iter().map(Made::Right).filter(|_| shows_right);
        let columns: Vec<Expr> = lefts.chain(rights).map(|made| self.column(part, made)).collect();
        (columns.len() == join.schema.fields().len()).then_some(Seen { part, columns })
    }

    fn known(&mut self, kind: Kind) -> PartId {
        let next = self.all.len();
        let part = *self.known.entry(kind.clone()).or_insert(next);
        if part == next {
            self.all.push(Part { kind, made: Vec::new(), source: None, places: HashMap::new() });
        }
        part
    }

    /// The column that a part makes so.
    pub fn column(&mut self, part: PartId, made: Made) -> Expr {
        let Part { made: all, places, .. } = &mut self.all[part];
        let place = *places.entry(made.clone()).or_insert_with(|| {
            all.push(made);
            all.len() - 1
        });
        Expr::Column(Column::new_unqualified(name_of(part, place)))
    }

    /// Any column of a part, for plans that want none.
    pub fn any_column(&mut self, part: PartId) -> String {
        let made = match &self.all[part].kind {
            Kind::Filter { input, .. } => return self.any_column(*input),
            Kind::Scan { .. } => {
                let schema = self.all[part].source.as_ref().map(|source| source.schema());
                let first = schema.and_then(|schema| schema.fields().first().cloned());
                Made::Field(first.map(|field| field.name().clone()).unwrap_or_default())
            }
            Kind::Join { join_type: JoinType::RightSemi | JoinType::RightAnti, sides, .. } => {
                let of = sides[1];
                Made::Right(Expr::Column(Column::new_unqualified(self.any_column(of))))
            }
            Kind::Join { sides, .. } => {
                let of = sides[0];
                Made::Left(Expr::Column(Column::new_unqualified(self.any_column(of))))
            }
            Kind::Group { by, .. } if !by.is_empty() => Made::Key(0),
            // A grouping by nothing has an aggregate.
            Kind::Group { .. } => return name_of(part, 0),
        };
        match self.column(part, made) {
            Expr::Column(column) => column.name,
            _ => String::new(),
        }
    }

    pub fn inputs(&self, part: PartId) -> Vec<PartId> {
        match &self.all[part].kind {
            Kind::Scan { .. } => Vec::new(),
            Kind::Filter { input, .. } | Kind::Group { input, .. } => vec![*input],
            Kind::Join { sides, .. } => sides.to_vec(),
        }
    }

    /// How a part makes the column of that name, if it is one of its own.
    pub fn made(&self, part: PartId, name: &str) -> Option<&Made> {
        let (of, place) = name.split_once('.')?;
        let own = of.parse() == Ok(part);
        self.all[part].made.get(place.parse::<usize>().ok()?).filter(|_| own)
    }
}

fn name_of(part: PartId, place: usize) -> String {
    format!("{part}.{place}")
}

/// The names of the columns in an expression.
pub(super) fn names_in(expr: &Expr) -> Names {
    expr.column_refs().into_iter().map(|column| column.name.clone()).collect()
}

/// The expression with a mark of the side before the names of its columns.
fn with_side(expr: &Expr, side: char) -> Expr {
    let marked = |expr| match expr {
        Expr::Column(column) => {
            let name = format!("{side}{}", column.name);
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        }
        other => Ok(Transformed::no(other)),
    };
    // Renaming cannot fail.
    expr.clone().transform_up(marked).map_or_else(|_| expr.clone(), |marked| marked.data)
}

fn told_all(expressions: &[Expr], schema: &DFSchema, columns: &[Expr]) -> Option<Vec<Expr>> {
    expressions.iter().map(|expr| told(expr, schema, columns)).collect()
}

/// What an expression says in terms of shared columns; `columns` are those of `schema`.
fn told(expr: &Expr, schema: &DFSchema, columns: &[Expr]) -> Option<Expr> {
    if !is_certain(expr) {
        return None;
    }
    let mut known = true;
    let expr = expr.clone().unalias_nested().data;
    let told = expr.transform_up(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        match schema.maybe_index_of_column(column).and_then(|place| columns.get(place)) {
            Some(shared) => Ok(Transformed::yes(shared.clone())),
            None => {
                known = false;
                Ok(Transformed::no(expr))
            }
        }
    });
    told.ok().map(|told| told.data).filter(|_| known)
}

/// A scan's filter, whose columns are the table's.
fn bare(filter: &Expr) -> Option<Expr> {
    let without = |expr| match expr {
        Expr::Column(Column { name, .. }) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        }
        other => Ok(Transformed::no(other)),
    };
    let filter = is_certain(filter).then(|| filter.clone().unalias_nested().data)?;
    Some(filter.transform_up(without).ok()?.data)
}

/// Is the expression's value given by its row, whenever and wherever it is computed?
fn is_certain(expr: &Expr) -> bool {
    let uncertain = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Volatile,
        Expr::AggregateFunction(call) => call.func.signature().volatility == Volatility::Volatile,
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::InList(_) => false,
        _ => true,
    };
    let mut certain = true;
    let visited = expr.apply(|expr| {
        certain &= !uncertain(expr);
        Ok(if certain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && certain
}
