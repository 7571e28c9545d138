//! Optimized logical plans as bytes, and back.
//!
//! Nodes are ours, expressions are `datafusion-proto`'s: its nodes are made again by builders that lose columns of empty
//! relations, the limits of scans and the form of unions, and refuse plans of some forty nodes inside one another.
//!
//! # Invariants
//! - Inputs come before what is made of them.
//! - What is read is what DataFusion's own constructors make: schemas are worked out anew, where they are not a node's
//!   own.
//! - What is read has no more operators than what is written, those of subqueries among them: whatever goes through a plan
//!   calls itself for each.
//!
//! # Not here
//! That nothing is lost: [`crate::portable::guard`].

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchemaRef, JoinConstraint, JoinType, NullEquality, NullHandling,
    RecursionUnnestOption, Result, Spans, TableReference, UnnestOptions, not_impl_err,
    plan_datafusion_err, plan_err,
};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, Filter, Join, Limit, LogicalPlan, Projection, Sort,
    SortExpr, Subquery, SubqueryAlias, TableScanBuilder, Union, Unnest, Values, Window,
};
use datafusion_proto::protobuf::DfSchema;
use prost::Message;

use crate::portable::bytes::{Reader, Writer};
use crate::portable::functions::Codec;
use crate::portable::shuffle_read::ShuffleRead;
use crate::scan::lake_table::LakeTable;

/// What stands for a subquery in an expression, with its number.
const SUBQUERY: &str = "$subquery";

/// Nodes of a plan at most: what is larger is planned for longer than it runs.
const NODES_MAX: usize = 1000;

const PROJECTION: u8 = 1;
const FILTER: u8 = 2;
const WINDOW: u8 = 3;
const AGGREGATE: u8 = 4;
const SORT: u8 = 5;
const JOIN: u8 = 6;
const UNION: u8 = 7;
const SCAN: u8 = 8;
const EMPTY: u8 = 9;
const ALIAS: u8 = 10;
const LIMIT: u8 = 11;
const VALUES: u8 = 12;
const DISTINCT: u8 = 13;
const UNNEST: u8 = 14;
const SHUFFLE_READ: u8 = 15;

const NULLS: [NullHandling; 3] =
    [NullHandling::Drop, NullHandling::Preserve, NullHandling::PreserveAndExpandEmpty];

const JOINS: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// The plan as bytes.
///
/// # Errors
/// What of it does not travel.
pub(crate) fn to_bytes(plan: &LogicalPlan, codec: &Codec) -> Result<Vec<u8>> {
    let (mut to, mut nodes) = (Writer::default(), 0);
    write(plan, codec, &mut to, &mut nodes)?;
    match codec.refused() {
        Some(what) => not_impl_err!("{what} does not travel"),
        None => Ok(to.0),
    }
}

/// The plan of which [`to_bytes`] made these.
///
/// # Errors
/// Bytes that are none, or a plan about what is not there.
pub(crate) fn from_bytes(bytes: &[u8], codec: &Codec) -> Result<LogicalPlan> {
    codec.begins();
    read_plan(Reader::new(bytes), codec)
}

fn read_plan(mut from: Reader, codec: &Codec) -> Result<LogicalPlan> {
    let mut made = Vec::new();
    while !from.is_at_end() {
        if codec.operator() > NODES_MAX {
            return plan_err!("a plan has more than {NODES_MAX} operators");
        }
        let node = read(&mut from, codec, &mut made)?;
        made.push(node);
    }
    match (made.pop(), made.is_empty()) {
        (Some(plan), true) => Ok(plan),
        _ => plan_err!("the bytes of a plan are no one plan"),
    }
}

fn write(plan: &LogicalPlan, codec: &Codec, to: &mut Writer, nodes: &mut usize) -> Result<()> {
    *nodes += 1;
    if *nodes > NODES_MAX {
        return not_impl_err!("a plan of more than {NODES_MAX} operators does not travel");
    }
    for input in plan.inputs() {
        write(input, codec, to, nodes)?;
    }
    match plan {
        LogicalPlan::Projection(node) => {
            to.byte(PROJECTION);
            write_exprs(&node.expr, codec, to)?;
        }
        LogicalPlan::Filter(node) => {
            to.byte(FILTER);
            write_expr(&node.predicate, codec, to)?;
        }
        LogicalPlan::Window(node) => {
            to.byte(WINDOW);
            write_exprs(&node.window_expr, codec, to)?;
        }
        LogicalPlan::Aggregate(node) => {
            to.byte(AGGREGATE);
            write_exprs(&node.group_expr, codec, to)?;
            write_exprs(&node.aggr_expr, codec, to)?;
        }
        LogicalPlan::Sort(node) => {
            to.byte(SORT);
            to.number(node.expr.len() as u64);
            for key in &node.expr {
                write_expr(&key.expr, codec, to)?;
                to.flag(key.asc);
                to.flag(key.nulls_first);
            }
            to.option(node.fetch.map(|rows| rows as u64));
        }
        LogicalPlan::Join(node) => write_join(node, codec, to)?,
        LogicalPlan::Union(node) => {
            to.byte(UNION);
            to.number(node.inputs.len() as u64);
            write_schema(&node.schema, to)?;
        }
        LogicalPlan::TableScan(node) => {
            let provider = source_as_provider(&node.source)?;
            let Some(table) = provider.downcast_ref::<LakeTable>() else {
                return not_impl_err!("{} is no table of the lake", node.table_name);
            };
            to.byte(SCAN);
            write_reference(&node.table_name, to);
            codec.write_table(table, to)?;
            to.flag(node.projection.is_some());
            if let Some(columns) = &node.projection {
                to.number(columns.len() as u64);
                columns.iter().for_each(|column| to.number(*column as u64));
            }
            write_exprs(&node.filters, codec, to)?;
            to.option(node.fetch.map(|rows| rows as u64));
        }
        LogicalPlan::EmptyRelation(node) => {
            to.byte(EMPTY);
            to.flag(node.produce_one_row);
            write_schema(&node.schema, to)?;
        }
        LogicalPlan::SubqueryAlias(node) => {
            to.byte(ALIAS);
            write_reference(&node.alias, to);
        }
        LogicalPlan::Limit(node) => {
            to.byte(LIMIT);
            for rows in [&node.skip, &node.fetch] {
                to.flag(rows.is_some());
                if let Some(rows) = rows {
                    write_expr(rows, codec, to)?;
                }
            }
        }
        LogicalPlan::Values(node) => {
            to.byte(VALUES);
            write_schema(&node.schema, to)?;
            to.number(node.values.len() as u64);
            node.values.iter().try_for_each(|row| write_exprs(row, codec, to))?;
        }
        LogicalPlan::Distinct(Distinct::All(_)) => to.byte(DISTINCT),
        LogicalPlan::Extension(_) => {
            let Some(read) = ShuffleRead::of(plan) else {
                return not_impl_err!("{} does not travel", name_of(plan));
            };
            to.byte(SHUFFLE_READ);
            to.number(read.shuffle.into());
            to.number(read.keys.len() as u64);
            read.keys.iter().for_each(|key| to.number(*key as u64));
            write_schema(plan.schema(), to)?;
        }
        LogicalPlan::Unnest(node) => {
            let UnnestOptions { null_handling, recursions } = &node.options;
            let Some(nulls) = NULLS.iter().position(|known| known == null_handling) else {
                return not_impl_err!("lists unnested with {null_handling:?} do not travel");
            };
            to.byte(UNNEST);
            to.byte(nulls as u8);
            to.number(node.exec_columns.len() as u64);
            node.exec_columns.iter().try_for_each(|column| write_column(column, codec, to))?;
            to.number(recursions.len() as u64);
            for recursion in recursions {
                write_column(&recursion.input_column, codec, to)?;
                write_column(&recursion.output_column, codec, to)?;
                to.number(recursion.depth as u64);
            }
        }
        other => return not_impl_err!("{} does not travel", name_of(other)),
    }
    Ok(())
}

fn write_join(node: &Join, codec: &Codec, to: &mut Writer) -> Result<()> {
    let Some(kind) = JOINS.iter().position(|known| *known == node.join_type) else {
        return not_impl_err!("a {} join does not travel", node.join_type);
    };
    to.byte(JOIN);
    to.byte(kind as u8);
    to.flag(node.join_constraint == JoinConstraint::Using);
    to.flag(node.null_equality == NullEquality::NullEqualsNull);
    to.flag(node.null_aware);
    to.number(node.on.len() as u64);
    for (left, right) in &node.on {
        write_expr(left, codec, to)?;
        write_expr(right, codec, to)?;
    }
    to.flag(node.filter.is_some());
    node.filter.iter().try_for_each(|filter| write_expr(filter, codec, to))
}

fn read(from: &mut Reader, codec: &Codec, made: &mut Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let mut input = || made.pop().map(Arc::new).ok_or_else(no_input);
    Ok(match from.byte()? {
        PROJECTION => {
            LogicalPlan::Projection(Projection::try_new(read_exprs(from, codec)?, input()?)?)
        }
        FILTER => LogicalPlan::Filter(Filter::new(read_expr(from, codec)?, input()?)),
        WINDOW => LogicalPlan::Window(Window::try_new(read_exprs(from, codec)?, input()?)?),
        AGGREGATE => {
            let (groups, functions) = (read_exprs(from, codec)?, read_exprs(from, codec)?);
            LogicalPlan::Aggregate(Aggregate::try_new(input()?, groups, functions)?)
        }
        SORT => {
            let count = from.count()?;
            let key = |from: &mut Reader| {
                let expr = read_expr(from, codec)?;
                Ok(SortExpr::new(expr, from.flag()?, from.flag()?))
            };
            let expr = (0..count).map(|_| key(from)).collect::<Result<_>>()?;
            let fetch = from.option()?.map(rows).transpose()?;
            LogicalPlan::Sort(Sort { expr, input: input()?, fetch })
        }
        JOIN => {
            let right = input()?;
            LogicalPlan::Join(read_join(from, codec, input()?, right)?)
        }
        UNION => {
            let count = from.number()? as usize;
            let schema = read_schema(from)?;
            let first = made.len().checked_sub(count).ok_or_else(no_input)?;
            let inputs = made.drain(first..).map(Arc::new).collect();
            LogicalPlan::Union(Union { inputs, schema })
        }
        SCAN => {
            let name = read_reference(from)?;
            let table = codec.read_table(from)?;
            let projection = if from.flag()? {
                let count = from.count()?;
                let columns = (0..count).map(|_| rows(from.number()?));
                Some(columns.collect::<Result<Vec<usize>>>()?)
            } else {
                None
            };
            let columns = datafusion::catalog::TableProvider::schema(table.as_ref()).fields().len();
            if projection.iter().flatten().any(|column| *column >= columns) {
                return plan_err!("a plan reads a column that {name} does not have");
            }
            let filters = read_exprs(from, codec)?;
            let fetch = from.option()?.map(rows).transpose()?;
            let scan = TableScanBuilder::new(name, provider_as_source(table));
            let scan = scan.with_projection(projection).with_filters(filters).with_fetch(fetch);
            LogicalPlan::TableScan(scan.build()?)
        }
        EMPTY => {
            let (produce_one_row, schema) = (from.flag()?, read_schema(from)?);
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row, schema })
        }
        ALIAS => {
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input()?, read_reference(from)?)?)
        }
        LIMIT => {
            let number = |from: &mut Reader| match from.flag()? {
                true => Ok(Some(Box::new(read_expr(from, codec)?))),
                false => Ok::<_, datafusion::common::DataFusionError>(None),
            };
            let (skip, fetch) = (number(from)?, number(from)?);
            LogicalPlan::Limit(Limit { skip, fetch, input: input()? })
        }
        VALUES => {
            let (schema, count) = (read_schema(from)?, from.count()?);
            let values = (0..count).map(|_| read_exprs(from, codec)).collect::<Result<_>>()?;
            LogicalPlan::Values(Values { schema, values })
        }
        DISTINCT => LogicalPlan::Distinct(Distinct::All(input()?)),
        SHUFFLE_READ => {
            let shuffle = u32::try_from(from.number()?).map_err(|_| no_input())?;
            let count = from.count()?;
            let keys = (0..count).map(|_| rows(from.number()?)).collect::<Result<_>>()?;
            ShuffleRead::plan(shuffle, keys, read_schema(from)?)
        }
        UNNEST => {
            let null_handling = *NULLS.get(usize::from(from.byte()?)).ok_or_else(no_input)?;
            let count = from.count()?;
            let columns = (0..count).map(|_| read_column(from, codec)).collect::<Result<_>>()?;
            let count = from.count()?;
            let recursion = |from: &mut Reader| {
                let input_column = read_column(from, codec)?;
                let output_column = read_column(from, codec)?;
                let depth = rows(from.number()?)?;
                Ok(RecursionUnnestOption { input_column, output_column, depth })
            };
            let recursions = (0..count).map(|_| recursion(from)).collect::<Result<_>>()?;
            let options = UnnestOptions { null_handling, recursions };
            LogicalPlan::Unnest(Unnest::try_new(input()?, columns, options)?)
        }
        other => return plan_err!("the bytes of a plan have no operator {other}"),
    })
}

fn read_join(
    from: &mut Reader,
    codec: &Codec,
    left: Arc<LogicalPlan>,
    right: Arc<LogicalPlan>,
) -> Result<Join> {
    let kind = JOINS.get(usize::from(from.byte()?)).ok_or_else(no_input)?;
    let constraint = if from.flag()? { JoinConstraint::Using } else { JoinConstraint::On };
    let equality = match from.flag()? {
        true => NullEquality::NullEqualsNull,
        false => NullEquality::NullEqualsNothing,
    };
    let null_aware = from.flag()?;
    let count = from.count()?;
    let on = (0..count).map(|_| Ok((read_expr(from, codec)?, read_expr(from, codec)?)));
    let on = on.collect::<Result<_>>()?;
    let filter = if from.flag()? { Some(read_expr(from, codec)?) } else { None };
    Join::try_new(left, right, on, filter, *kind, constraint, equality, null_aware)
}

/// An expression, behind the plans of its subqueries, for which parameters stand in it: what `datafusion-proto` makes of
/// plans is not what they were.
fn write_expr(expr: &Expr, codec: &Codec, to: &mut Writer) -> Result<()> {
    if !expr.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))? {
        to.number(0);
        return codec.write_expr(expr, to);
    }
    let mut plans = Vec::new();
    let changed = expr.clone().transform_down(|part| match part {
        Expr::ScalarSubquery(subquery) if subquery.outer_ref_columns.is_empty() => {
            let stands = Placeholder::new_with_field(format!("{SUBQUERY}{}", plans.len()), None);
            plans.push(to_bytes(&subquery.subquery, codec)?);
            Ok(Transformed::new(Expr::Placeholder(stands), true, TreeNodeRecursion::Jump))
        }
        Expr::ScalarSubquery(_) => not_impl_err!("a correlated subquery does not travel"),
        part => Ok(Transformed::no(part)),
    })?;
    to.number(plans.len() as u64);
    plans.iter().for_each(|plan| to.bytes(plan));
    codec.write_expr(&changed.data, to)
}

fn read_expr(from: &mut Reader, codec: &Codec) -> Result<Expr> {
    let count = from.count()?;
    let plans = (0..count).map(|_| read_plan(from.inner()?, codec).map(Arc::new));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let expr = codec.read_expr(from)?;
    if plans.is_empty() {
        return Ok(expr);
    }
    let read = expr.transform_down(|part| {
        let Expr::Placeholder(stands) = &part else { return Ok(Transformed::no(part)) };
        let number = stands.id.strip_prefix(SUBQUERY).and_then(|number| number.parse().ok());
        let plan = number.and_then(|number: usize| plans.get(number)).ok_or_else(no_input)?;
        let (subquery, outer_ref_columns) = (Arc::clone(plan), Vec::new());
        let subquery = Subquery { subquery, outer_ref_columns, spans: Spans::new() };
        let subquery = Expr::ScalarSubquery(subquery);
        Ok(Transformed::new(subquery, true, TreeNodeRecursion::Jump))
    })?;
    Ok(read.data)
}

fn write_exprs(exprs: &[Expr], codec: &Codec, to: &mut Writer) -> Result<()> {
    to.number(exprs.len() as u64);
    exprs.iter().try_for_each(|expr| write_expr(expr, codec, to))
}

fn read_exprs(from: &mut Reader, codec: &Codec) -> Result<Vec<Expr>> {
    let count = from.count()?;
    (0..count).map(|_| read_expr(from, codec)).collect()
}

fn write_column(column: &Column, codec: &Codec, to: &mut Writer) -> Result<()> {
    codec.write_expr(&Expr::Column(column.clone()), to)
}

fn read_column(from: &mut Reader, codec: &Codec) -> Result<Column> {
    match codec.read_expr(from)? {
        Expr::Column(column) => Ok(column),
        _ => Err(no_input()),
    }
}

fn write_schema(schema: &DFSchemaRef, to: &mut Writer) -> Result<()> {
    let schema = DfSchema::try_from(schema).map_err(|error| plan_datafusion_err!("{error}"))?;
    to.bytes(&schema.encode_to_vec());
    Ok(())
}

fn read_schema(from: &mut Reader) -> Result<DFSchemaRef> {
    let schema = DfSchema::decode(from.bytes()?)
        .map_err(|error| plan_datafusion_err!("the columns of a plan: {error}"))?;
    schema.try_into().map_err(|error| plan_datafusion_err!("the columns of a plan: {error}"))
}

fn write_reference(name: &TableReference, to: &mut Writer) {
    let parts = [name.catalog(), name.schema(), Some(name.table())];
    to.number(parts.iter().flatten().count() as u64);
    parts.into_iter().flatten().for_each(|part| to.text(part));
}

fn read_reference(from: &mut Reader) -> Result<TableReference> {
    let count = from.count()?;
    let parts = (0..count).map(|_| from.text()).collect::<Result<Vec<_>>>()?;
    Ok(match parts.as_slice() {
        [table] => TableReference::bare(*table),
        [schema, table] => TableReference::partial(*schema, *table),
        [catalog, schema, table] => TableReference::full(*catalog, *schema, *table),
        _ => return plan_err!("a table of a plan has no name"),
    })
}

fn rows(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| plan_datafusion_err!("a plan has too large a number"))
}

fn no_input() -> datafusion::common::DataFusionError {
    plan_datafusion_err!("the bytes of a plan are damaged")
}

/// An operator's name, for who asks why it stays.
fn name_of(plan: &LogicalPlan) -> String {
    let shown = plan.display().to_string();
    shown.split([':', ' ']).next().unwrap_or_default().to_owned()
}
