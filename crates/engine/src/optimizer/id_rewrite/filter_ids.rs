//! `WHERE user_id = 'x'` asks for the id of `x`: files are sorted by it, and it is four bytes.
//!
//! # Invariants
//! - The rows are those of the statement as it was written: in files whose ids are from one log, a row
//!   has the id of a key exactly if it has the key; a key without an id is in no file.
//! - The columns of a plan and their names do not change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Filter, LogicalPlan, Operator, Projection, in_list, lit,
};
use uplake_table::Domain;

use crate::optimizer::id_rewrite::key_ids::{WithIds, with_ids};
use crate::sql::id_set::{IdSet, InIdSet};

/// The keys that a condition compares a column with.
enum KeyList<'a> {
    Few(Vec<&'a str>),
    Set(&'a InIdSet),
}

/// The domains and logs whose ids the plan's conditions could use.
pub(crate) fn wanted_sources(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut sources = HashSet::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for part in split_conjunction(&filter.predicate) {
                let Some((key, _)) = compared_keys(part) else { continue };
                if let Ok(Some(found)) = with_ids(&filter.input, key) {
                    sources.insert(found.source);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(sources)
}

/// The plan with ids in place of keys in its conditions; domains by source.
pub(crate) fn filter_ids(
    plan: LogicalPlan,
    domains: &HashMap<String, Arc<Domain>>,
) -> Result<LogicalPlan> {
    let filtered = plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::Filter(filter) => match filtered(filter, domains) {
            Ok(Some(plan)) => Ok(Transformed::yes(plan)),
            // A plan that cannot be made is one that is not wanted: the statement's own is right.
            Ok(None) | Err(_) => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(filtered.data)
}

fn filtered(
    filter: &Filter,
    domains: &HashMap<String, Arc<Domain>>,
) -> Result<Option<LogicalPlan>> {
    let mut input = filter.input.as_ref().clone();
    let mut parts = Vec::new();
    let mut changed = false;
    for part in split_conjunction(&filter.predicate) {
        let found = match compared_keys(part) {
            Some((key, keys)) => with_ids(&input, key)?.map(|found| (found, keys)),
            None => None,
        };
        let condition = found.as_ref().and_then(|(found, keys)| condition(found, keys, domains));
        match (found, condition) {
            (Some((found, _)), Some(condition)) => {
                // An index of the keys can be asked only with them.
                parts.extend(found.indexed.then(|| part.clone()));
                parts.push(condition);
                input = found.plan;
                changed = true;
            }
            _ => parts.push(part.clone()),
        }
    }
    let Some(predicate) = conjunction(parts).filter(|_| changed) else { return Ok(None) };
    let columns: Vec<Expr> =
        filter.input.schema().columns().into_iter().map(Expr::Column).collect();
    let filter = Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, filter)?)))
}

/// The condition on ids; `None` without the domain that the files' ids are from.
fn condition(
    found: &WithIds,
    keys: &KeyList<'_>,
    domains: &HashMap<String, Arc<Domain>>,
) -> Option<Expr> {
    let domain = domains.get(&found.source)?;
    let column = Expr::Column(found.ids.clone());
    // A dictionary that turns out damaged is mended when it is opened next; keys need none.
    let look_up = |keys: &[&str]| -> Option<Vec<i32>> {
        let mut ids = Vec::new();
        domain.try_lookup_many(keys, &mut ids).ok()?;
        Some(ids.into_iter().flatten().filter_map(|id| i32::try_from(id).ok()).collect())
    };
    Some(match keys {
        KeyList::Few(keys) => match look_up(keys)?.as_slice() {
            [] => lit(false),
            [one] => column.eq(lit(*one)),
            many => in_list(column, many.iter().map(|id| lit(*id)).collect(), false),
        },
        KeyList::Set(set) => {
            let keys: Vec<&str> = set.set.texts()?.iter().map(String::as_str).collect();
            let ids: Vec<i64> = look_up(&keys)?.into_iter().map(i64::from).collect();
            if ids.is_empty() {
                return Some(lit(false));
            }
            InIdSet::of(
                format!("{}_ids", set.set_name()),
                Arc::new(IdSet::of_integers(ids)),
                column,
            )
        }
    })
}

/// The column and the keys of `column = 'x'`, `column IN ('x', 'y')` and sets of text.
fn compared_keys(expr: &Expr) -> Option<(&Column, KeyList<'_>)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (Expr::Column(key), value) | (value, Expr::Column(key)) => {
                    Some((key, KeyList::Few(vec![text(value)?])))
                }
                _ => None,
            }
        }
        Expr::InList(list) if !list.negated => match list.expr.as_ref() {
            Expr::Column(key) => {
                let keys: Option<Vec<&str>> = list.list.iter().map(text).collect();
                Some((key, KeyList::Few(keys?)))
            }
            _ => None,
        },
        Expr::ScalarFunction(call) => {
            let set = call.func.inner().downcast_ref::<InIdSet>()?;
            match call.args.as_slice() {
                [Expr::Column(key)] if set.set.texts().is_some() => Some((key, KeyList::Set(set))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}
