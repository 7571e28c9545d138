//! Where a plan is cut: below, parts that never talk to each other; above, this process.
//!
//! ```text
//! Sort c DESC LIMIT 3                       Sort c DESC LIMIT 3
//!   Aggregate by country: count(*) c   ─►     Aggregate by country: final_count(p) c
//!     Join on id                                Parts ◄── Aggregate by country: count(*) p
//!       users, events                                       Join on id
//!                                                             users, events (ids of a part)
//! ```
//!
//! # Invariants
//! - Every row of the cut's plan comes from exactly one part: tables are divided by the ids of one domain, or one table
//!   by its bytes, and what is not divided is read whole by every part, where that makes no row twice.
//! - Rows with equal ids are in one part, those without an id in the first, so what groups, joins or orders windows by
//!   these ids is complete in a part.
//! - What answers otherwise when it is asked again (limits without order, `random()`) is never below a cut.
//!
//! # Not here
//! Whether it is worth it: [`Elsewhere::divide`](crate::portable::elsewhere::Elsewhere::divide).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, FetchType, Limit, LogicalPlan, Projection,
    SkipType, Volatility, lit,
};

use crate::base::id_column::IdColumn;
use crate::functions::halves::{Argument, merged, partial};
use crate::mends;
use crate::portable::share::Divided;
use crate::scan::file_bounds::{FileIds, highest_id};
use crate::scan::lake_table::LakeTable;

/// Scans and operators of a plan that is looked at, at most: each operator is looked at once for each above it.
const SCANS_MAX: usize = 64;
const NODES_MAX: usize = 400;

/// Aggregates that are as they are, whatever the order in which states are merged, beside those of [`half`].
const MERGEABLE: [&str; 34] = [
    "sum",
    "avg",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "var",
    "var_pop",
    "var_samp",
    "var_population",
    "var_sample",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "covar",
    "covar_pop",
    "covar_samp",
    "corr",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "exact_sum",
    "approx_distinct",
    "bitmap_agg",
    "bitmap_union",
    "bitmap_union_count",
    "distinct_ids",
];

/// A plan that is computed in parts.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What each part computes, of its share.
    pub plan: LogicalPlan,
    pub divided: Vec<Divided>,
    /// The ids that tell parts apart; `None` if one table is divided by its bytes.
    pub source: Option<IdColumn>,
    pub highest_id: Option<u32>,
    /// Of the table with the most rows.
    pub files: Vec<FileIds>,
    /// Rows of the tables that are divided.
    pub rows: u64,
    /// Are rows answered as they are read?
    pub is_raw: bool,
}

/// A plan, or why there is none.
pub(crate) type Cut = std::result::Result<LogicalPlan, String>;

/// What makes the plan that was cut of the rows of its parts.
type Above = Box<dyn FnOnce(LogicalPlan) -> Result<LogicalPlan>>;

/// The plan with `parts` of pieces in it, or why there is none; where `parts` says why it has none, what is below is
/// looked at.
pub(crate) fn cut(
    plan: &LogicalPlan,
    whole_rows: u64,
    parts: &mut dyn FnMut(Piece) -> Result<Cut>,
) -> Result<Cut> {
    let (mut nodes, mut scans) = (0, 0);
    plan.apply(|node| {
        nodes += 1;
        scans += usize::from(matches!(node, LogicalPlan::TableScan(_)));
        let is_much = nodes > NODES_MAX || scans > SCANS_MAX;
        Ok(if is_much { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if scans > SCANS_MAX || nodes > NODES_MAX {
        let why = format!("it has more than {SCANS_MAX} scans or {NODES_MAX} operators");
        return Ok(Err(why));
    }
    if scans == 0 {
        return Ok(Err("it reads no table".to_owned()));
    }
    let mut why = None;
    let cut = cut_below(plan, whole_rows, parts, &mut why)?;
    Ok(cut.ok_or_else(|| why.unwrap_or_else(|| "it reads no table of the lake".to_owned())))
}

fn cut_below(
    plan: &LogicalPlan,
    whole_rows: u64,
    parts: &mut dyn FnMut(Piece) -> Result<Cut>,
    why: &mut Option<String>,
) -> Result<Option<LogicalPlan>> {
    match piece_of(plan, whole_rows)? {
        Ok((piece, above)) => match parts(piece)? {
            Ok(rows) => return above(rows).map(Some),
            // That there is a piece says more than what is above it.
            Err(reason) => *why = Some(reason),
        },
        Err(reason) => {
            *why = why.take().or(reason);
        }
    }
    let mut changed = false;
    let mut inputs = Vec::new();
    for input in plan.inputs() {
        let cut = cut_below(input, whole_rows, parts, why)?;
        changed |= cut.is_some();
        inputs.push(cut.unwrap_or_else(|| input.clone()));
    }
    if !changed {
        return Ok(None);
    }
    let mut inputs = inputs.into_iter();
    let plan = plan.clone().map_children(|child| {
        let next = inputs.next().unwrap_or(child);
        Ok(datafusion::common::tree_node::Transformed::yes(next))
    })?;
    Ok(Some(plan.data))
}

/// The piece that ends with this operator, or which operator cannot be in one.
fn piece_of(
    plan: &LogicalPlan,
    whole_rows: u64,
) -> Result<std::result::Result<(Piece, Above), Option<String>>> {
    let mut why = None;
    for choice in choices(plan)? {
        let (kind, mut looked) = Looked::at(plan, &choice, whole_rows)?;
        why = why.or(looked.why.take());
        if matches!(kind, Kind::Split(_)) {
            let is_raw = !has_groups(plan)?;
            let above: Above = Box::new(Ok);
            return Ok(Ok((looked.piece(plan.clone(), &choice, is_raw), above)));
        }
        let [input] = plan.inputs()[..] else { continue };
        let (Kind::Split(ids), looked) = Looked::at(input, &choice, whole_rows)? else { continue };
        if !is_repeatable(plan) || !looked.may_ask(plan)? {
            continue;
        }
        let Some((half, above)) = halves(plan, &ids)? else { continue };
        return Ok(Ok((looked.piece(half, &choice, false), above)));
    }
    Ok(Err(why))
}

fn has_groups(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))
}

/// What tables are divided by.
struct Choice {
    /// `None`: by bytes.
    source: Option<IdColumn>,
    /// The scan that is divided by its bytes.
    scan: usize,
    rows: u64,
    highest_id: Option<u32>,
    files: Vec<FileIds>,
}

/// The tables that have ids of a domain, together.
#[derive(Default)]
struct WithIds {
    rows: u64,
    highest_id: Option<u32>,
    /// Of the table with the most rows, and how many these are.
    files: Vec<FileIds>,
    most_rows: u64,
}

/// The ids and the table that a plan could be divided by, those of the most rows first.
fn choices(plan: &LogicalPlan) -> Result<Vec<Choice>> {
    let mut by_ids: HashMap<IdColumn, WithIds> = HashMap::new();
    let (mut largest, mut number): (Option<(u64, usize)>, usize) = (None, 0);
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            if let Some(table) = provider.downcast_ref::<LakeTable>().filter(|t| t.is_plain()) {
                let rows = table.rows().unwrap_or(u64::MAX);
                let mut of_files = table.file_ids();
                for (source, _) in table.id_columns() {
                    let files = of_files.remove(&source.source()).flatten();
                    let most = files.as_deref().and_then(highest_id);
                    let unknown = || WithIds { highest_id: most, ..WithIds::default() };
                    let known = by_ids.entry(source).or_insert_with(unknown);
                    known.rows = known.rows.saturating_add(rows);
                    known.highest_id = known.highest_id.zip(most).map(|(a, b)| a.max(b));
                    if rows > known.most_rows {
                        (known.files, known.most_rows) = (files.unwrap_or_default(), rows);
                    }
                }
                if largest.is_none_or(|(most, _)| rows > most) {
                    largest = Some((rows, number));
                }
            }
            number += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut choices: Vec<Choice> = by_ids
        .into_iter()
        .map(|(source, WithIds { rows, highest_id, files, .. })| Choice {
            source: Some(source),
            scan: 0,
            rows,
            highest_id,
            files,
        })
        .collect();
    // The same one whoever asks.
    choices.sort_by_key(|choice| {
        let source = choice.source.as_ref().map(IdColumn::source);
        (std::cmp::Reverse(choice.rows), source)
    });
    choices.extend(largest.map(|(rows, scan)| Choice {
        source: None,
        scan,
        rows,
        highest_id: None,
        files: Vec::new(),
    }));
    Ok(choices)
}

/// Which rows of an operator a part has.
enum Kind {
    /// Some of them, and no other part has those; all with the same ids, which are in these of its columns.
    Split(Vec<usize>),
    /// All of them, and so has every other part.
    Whole,
    /// It cannot be had in parts.
    Here,
}

/// A plan as it is looked at.
struct Looked<'a> {
    choice: Option<&'a Choice>,
    whole_rows: u64,
    scans: usize,
    divided: Vec<Divided>,
    /// The first operator that cannot be had in parts.
    why: Option<String>,
}

impl<'a> Looked<'a> {
    fn at(plan: &LogicalPlan, choice: &'a Choice, whole_rows: u64) -> Result<(Kind, Self)> {
        let choice = Some(choice);
        let mut looked = Self { choice, whole_rows, scans: 0, divided: Vec::new(), why: None };
        Ok((looked.kind(plan)?, looked))
    }

    fn piece(self, plan: LogicalPlan, choice: &Choice, is_raw: bool) -> Piece {
        Piece {
            plan,
            divided: self.divided,
            source: choice.source.clone(),
            highest_id: choice.highest_id,
            files: choice.files.clone(),
            rows: choice.rows,
            is_raw,
        }
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
            (LogicalPlan::Unnest(node), [Kind::Split(ids)]) => {
                let unnested = node.list_type_columns.iter().map(|(place, _)| place);
                let unnested: Vec<_> = unnested.chain(&node.struct_type_columns).collect();
                let of = node.dependency_indices.iter().enumerate();
                let kept = of.filter(|(_, of)| ids.contains(of) && !unnested.contains(of));
                Kind::Split(kept.map(|(place, _)| place).collect())
            }
            (LogicalPlan::Unnest(_), [Kind::Whole]) => Kind::Whole,
            (LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_), _) => Kind::Whole,
            (LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_), [input]) => input.copy(),
            (LogicalPlan::Projection(node), [Kind::Split(ids)]) => {
                let kept = node.expr.iter().enumerate().filter(|(_, expr)| {
                    let place = plain_column(expr)
                        .and_then(|column| node.input.schema().maybe_index_of_column(column));
                    place.is_some_and(|place| ids.contains(&place))
                });
                Kind::Split(kept.map(|(place, _)| place).collect())
            }
            (LogicalPlan::Projection(_), [Kind::Whole]) => Kind::Whole,
            (LogicalPlan::Aggregate(node), [Kind::Split(ids)]) => {
                let place = |(at, expr): (usize, &Expr)| {
                    is_one_of(expr, node.input.schema(), ids).then_some(at)
                };
                let complete: Vec<usize> =
                    node.group_expr.iter().enumerate().filter_map(place).collect();
                if complete.is_empty() { Kind::Here } else { Kind::Split(complete) }
            }
            (LogicalPlan::Aggregate(node), [Kind::Whole]) => {
                let is_same = |expr: &Expr| half(expr, &node.input, &[]).is_ok_and(|h| h.is_some());
                match node.aggr_expr.iter().all(is_same) && !adds_floats(node)? {
                    true => Kind::Whole,
                    false => Kind::Here,
                }
            }
            (LogicalPlan::Window(node), [Kind::Split(ids)]) => {
                let schema = node.input.schema();
                let is_complete = |expr: &Expr| match expr.clone().unalias() {
                    Expr::WindowFunction(function) => {
                        let by = &function.params.partition_by;
                        by.iter().any(|key| is_one_of(key, schema, ids))
                    }
                    _ => false,
                };
                match node.window_expr.iter().all(is_complete) {
                    true => Kind::Split(ids.clone()),
                    false => Kind::Here,
                }
            }
            (LogicalPlan::Union(_), [first, rest @ ..]) => {
                let Kind::Split(mut ids) = first.copy() else {
                    let all = inputs.iter().all(|input| matches!(input, Kind::Whole));
                    return Ok(if all { Kind::Whole } else { Kind::Here });
                };
                for input in rest {
                    let Kind::Split(other) = input else { return Ok(Kind::Here) };
                    ids.retain(|place| other.contains(place));
                }
                Kind::Split(ids)
            }
            (LogicalPlan::Join(node), [left, right]) => {
                let places = node.left.schema().fields().len();
                let shifted =
                    |ids: &[usize]| ids.iter().map(|id| id + places).collect::<Vec<usize>>();
                use JoinType::{
                    Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark,
                    RightSemi,
                };
                match (left, right) {
                    (Kind::Whole, Kind::Whole) => Kind::Whole,
                    (Kind::Split(left), Kind::Split(right)) => {
                        let (ours, theirs) = (node.left.schema(), node.right.schema());
                        let by_ids = node
                            .on
                            .iter()
                            .any(|(a, b)| is_one_of(a, ours, left) && is_one_of(b, theirs, right));
                        // NOT IN asks of all rows whether one is NULL.
                        if !by_ids || node.null_aware {
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
            _ => Kind::Here,
        })
    }

    fn kind_of_scan(&mut self, table: &LakeTable, number: usize, columns: &DFSchema) -> Kind {
        let rows = table.rows().unwrap_or(u64::MAX);
        let whole = if rows <= self.whole_rows { Kind::Whole } else { Kind::Here };
        let Some(choice) = self.choice else { return whole };
        let Some(source) = &choice.source else {
            if number != choice.scan {
                return whole;
            }
            self.divided.push(Divided { scan: number, ids: None });
            return Kind::Split(Vec::new());
        };
        let mut ids = table.id_columns().into_iter().filter(|(of, _)| of == source);
        let Some((_, name)) = ids.next() else { return whole };
        let fields = columns.fields().iter().enumerate();
        let places = fields.filter(|(_, field)| *field.name() == name).map(|(place, _)| place);
        let places = places.collect();
        self.divided.push(Divided { scan: number, ids: Some(name) });
        Kind::Split(places)
    }

    /// Do an operator's subqueries, if it has any, read small tables alone?
    fn may_ask(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut may = true;
        plan.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarSubquery(subquery) = part {
                    let (whole_rows, divided) = (self.whole_rows, Vec::new());
                    let mut asked =
                        Looked { choice: None, whole_rows, scans: 0, divided, why: None };
                    may &= matches!(asked.kind(&subquery.subquery)?, Kind::Whole);
                }
                Ok(if may { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })?;
        Ok(may)
    }
}

impl Kind {
    fn copy(&self) -> Self {
        match self {
            Self::Split(ids) => Self::Split(ids.clone()),
            Self::Whole => Self::Whole,
            Self::Here => Self::Here,
        }
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

fn plain_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

fn is_one_of(expr: &Expr, schema: &DFSchema, ids: &[usize]) -> bool {
    let place = plain_column(expr).and_then(|column| schema.maybe_index_of_column(column));
    place.is_some_and(|place| ids.contains(&place))
}

/// What a part computes of an operator over rows that are split, and what makes the operator's rows of the parts'.
/// `None` if there is no such thing. `ids` are the columns of ids below.
fn halves(plan: &LogicalPlan, ids: &[usize]) -> Result<Option<(LogicalPlan, Above)>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate_halves(aggregate, ids),
        LogicalPlan::Sort(sort) if sort.fetch.is_some() => {
            let whole = sort.clone();
            let above: Above = Box::new(move |rows| {
                let mut sort = whole;
                sort.input = Arc::new(rows);
                Ok(LogicalPlan::Sort(sort))
            });
            Ok(Some((plan.clone(), above)))
        }
        LogicalPlan::Limit(limit) => {
            let (Ok(SkipType::Literal(skip)), Ok(FetchType::Literal(Some(fetch)))) =
                (limit.get_skip_type(), limit.get_fetch_type())
            else {
                return Ok(None);
            };
            let Ok(most) = i64::try_from(skip.saturating_add(fetch)) else { return Ok(None) };
            let half = Limit {
                skip: None,
                fetch: Some(Box::new(lit(most))),
                input: Arc::clone(&limit.input),
            };
            let whole = limit.clone();
            let above: Above = Box::new(move |rows| {
                Ok(LogicalPlan::Limit(Limit { input: Arc::new(rows), ..whole }))
            });
            Ok(Some((LogicalPlan::Limit(half), above)))
        }
        _ => Ok(None),
    }
}

fn aggregate_halves(aggregate: &Aggregate, ids: &[usize]) -> Result<Option<(LogicalPlan, Above)>> {
    let (mut below, mut above) = (Vec::new(), Vec::new());
    for (place, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Some((part, merged)) = half(expr, &aggregate.input, ids)? else { return Ok(None) };
        let name = format!("__part_{place}");
        below.push(Expr::AggregateFunction(part).alias(&name));
        above.push((merged, Column::new_unqualified(name)));
    }
    let (input, groups) = (Arc::clone(&aggregate.input), aggregate.group_expr.clone());
    let part = Aggregate::try_new(input, groups, below)?;
    let whole = aggregate.clone();
    let grouped: Vec<Column> =
        part.schema.columns().into_iter().take(part.schema.fields().len() - above.len()).collect();
    let above: Above = Box::new(move |rows| {
        let call = |(function, column): (AggregateUDF, Column)| function.call(vec![column.into()]);
        let functions = above.into_iter().map(call).collect();
        let groups = grouped.into_iter().map(Expr::Column).collect();
        let merged = Aggregate::try_new(Arc::new(rows), groups, functions)?;
        let named = |(new, old): (Column, Column)| match new == old {
            true => Expr::Column(new),
            false => Expr::Column(new).alias_qualified(old.relation, old.name),
        };
        let names = merged.schema.columns().into_iter().zip(whole.schema.columns());
        let columns = names.map(named).collect();
        let merged = Arc::new(LogicalPlan::Aggregate(merged));
        Ok(LogicalPlan::Projection(Projection::try_new(columns, merged)?))
    });
    Ok(Some((LogicalPlan::Aggregate(part), above)))
}

/// What a part computes of an aggregate, and what merges that; `None` if it is not known to be the same.
fn half(
    expr: &Expr,
    input: &LogicalPlan,
    ids: &[usize],
) -> Result<Option<(AggregateFunction, AggregateUDF)>> {
    let Expr::AggregateFunction(function) = expr.clone().unalias() else { return Ok(None) };
    let params = &function.params;
    if !params.order_by.is_empty() || params.null_treatment.is_some() {
        return Ok(None);
    }
    let of_ids = |args: &[Expr]| match args {
        [only] => is_one_of(only, input.schema(), ids),
        _ => false,
    };
    let mut arguments = Vec::new();
    for arg in &params.args {
        let field = arg.to_field(input.schema().as_ref())?.1;
        let value = match arg {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        arguments.push((field, value));
    }
    let count = || -> Vec<Argument> {
        let number = datafusion::arrow::datatypes::Field::new(
            "counted",
            datafusion::arrow::datatypes::DataType::Int64,
            true,
        );
        vec![(Arc::new(number), None)]
    };
    let merged = match function.func.name() {
        // Ids are in one part each.
        "count" if params.distinct && !of_ids(&params.args) => return Ok(None),
        "count" => merged(Arc::clone(&function.func), count(), false),
        "distinct_ids" if of_ids(&params.args) => {
            merged(datafusion::functions_aggregate::count::count_udaf(), count(), false)
        }
        "min" | "max" => merged(Arc::clone(&function.func), arguments, false),
        name if MERGEABLE.contains(&name) && !params.distinct => {
            let of = Arc::clone(&function.func);
            let mut part = function.clone();
            part.func = Arc::new(partial(Arc::clone(&of)));
            return Ok(Some((part, merged(of, arguments, true))));
        }
        _ => return Ok(None),
    };
    Ok(Some((function, merged)))
}
