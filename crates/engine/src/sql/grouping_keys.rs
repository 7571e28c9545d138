//! The keys of GROUP BY as DataFusion understands them, and HAVING without any.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::base::error::{EngineError, Result, refuse};
use crate::base::sql_state::SqlState;

/// Writes keys and HAVING of a SELECT plainly.
///
/// # Errors
/// [`EngineError::Statement`] for what cannot be written so, or has too many sets of keys.
pub(crate) fn write_keys(select: &mut ast::Select) -> Result<()> {
    with_totals(select)?;
    if let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        let sets = keys.iter().map(grouping_sets).fold(1, usize::saturating_mul);
        if sets > MOST_SETS {
            let what = format!("more than {MOST_SETS} grouping sets");
            let error = EngineError::statement(SqlState::ProgramLimitExceeded, what);
            return Err(error.with_hint("name those that are needed with GROUPING SETS"));
        }
        keys.iter_mut().for_each(spell_out);
    }
    name_whole_group(select);
    Ok(())
}

/// `ROLLUP ((a, b), c)` is `GROUPING SETS ((a, b, c), (a, b), ())`; DataFusion knows it of single keys.
fn spell_out(key: &mut Expr) {
    let (Expr::Rollup(parts) | Expr::Cube(parts)) = &*key else { return };
    if parts.iter().all(|part| part.len() == 1) {
        return;
    }
    let count = parts.len();
    let chosen: Vec<Vec<bool>> = match &*key {
        Expr::Rollup(_) => {
            (0..=count).rev().map(|left| (0..count).map(|at| at < left).collect()).collect()
        }
        _ => {
            let of_bits = |bits: usize| (0..count).map(|at| bits >> at & 1 == 0).collect();
            (0..1 << count).map(of_bits).collect()
        }
    };
    let set = |chosen: Vec<bool>| {
        let chosen = parts.iter().zip(chosen).filter(|(_, chosen)| *chosen);
        let mut keys: Vec<Expr> = Vec::new();
        for key in chosen.flat_map(|(part, _)| part) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys
    };
    *key = Expr::GroupingSets(chosen.into_iter().map(set).collect());
}

/// What 12 keys of a CUBE have; each row is grouped once for each set.
const MOST_SETS: usize = 1 << 12;

/// For how many sets of keys one of GROUP BY stands.
fn grouping_sets(key: &Expr) -> usize {
    match key {
        Expr::Rollup(parts) => parts.len() + 1,
        Expr::Cube(parts) => 1_usize.checked_shl(parts.len() as u32).unwrap_or(usize::MAX),
        Expr::GroupingSets(sets) => sets.len(),
        _ => 1,
    }
}

/// `GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`; DataFusion leaves the words out.
fn with_totals(select: &mut ast::Select) -> Result<()> {
    use ast::{GroupByExpr, GroupByWithModifier as Modifier};
    let (keys, modifiers) = match &mut select.group_by {
        GroupByExpr::Expressions(_, modifiers) | GroupByExpr::All(modifiers)
            if modifiers.is_empty() =>
        {
            return Ok(());
        }
        GroupByExpr::Expressions(keys, modifiers) if modifiers.len() == 1 => (keys, modifiers),
        _ => return refuse!(FeatureNotSupported, "GROUP BY … WITH: write ROLLUP (…) or CUBE (…)"),
    };
    let sets = std::mem::take(keys).into_iter().map(|key| vec![key]).collect();
    let all = match modifiers.pop() {
        Some(Modifier::Rollup) => Expr::Rollup(sets),
        Some(Modifier::Cube) => Expr::Cube(sets),
        _ => {
            return Err(EngineError::unsupported("GROUP BY … WITH TOTALS is not supported")
                .with_hint("write GROUPING SETS ((…), ())"));
        }
    };
    keys.push(all);
    Ok(())
}

/// HAVING without GROUP BY makes one group of all rows, and DataFusion wants to see an aggregate then.
fn name_whole_group(select: &mut ast::Select) {
    let whole =
        matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if let Some(having) = select.having.take() {
        let counted = whole.then(is_counted).flatten();
        select.having = Some(match counted {
            Some(counted) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(having))),
                op: BinaryOperator::And,
                right: Box::new(counted),
            },
            None => having,
        });
    }
}

/// What is true of every group.
fn is_counted() -> Option<Expr> {
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql("count(*) >= 0").ok()?;
    parser.parse_expr().ok()
}
