//! Plans of queries that were asked before: the same text about the same tables is not planned again.
//!
//! # Invariants
//! - A plan is used only while every table that its text names is the snapshot that it was made of.
//! - Kept is only what text and tables decide: nothing that changes by itself (`now()`, `random()`,
//!   domains, sets of ids), and nothing that is no table of the lake.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::scan::lake_table::{LakeTable, Tables};
use crate::sql::statement::Statement;

/// Plans kept; a platform's dashboard asks some dozens of queries.
const KEPT: usize = 256;
/// Bytes of a text whose plan is kept: a longer one has long lists, and is made by a program.
const LONG_TEXT: usize = 16 << 10;

/// A query as it is run but for the keys of ids, which are looked up in the domains of each run.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub optimized: LogicalPlan,
    /// The same before DataFusion optimized it.
    pub before: LogicalPlan,
    /// Could all domains be read?
    pub whole: bool,
}

/// Plans by their texts.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<String, Known>>);

struct Known {
    plan: Prepared,
    tables: Tables,
}

impl Plans {
    /// The plan of a query about these tables, with these settings.
    pub fn of(&self, settings: &str, text: &str, tables: &Tables) -> Option<Prepared> {
        let known = self.lock();
        known
            .get(&key(settings, text))
            .filter(|known| are_same(&known.tables, tables))
            .map(|k| k.plan.clone())
    }

    pub fn keep(&self, settings: &str, text: &str, tables: Tables, plan: Prepared) {
        let mut known = self.lock();
        // Old snapshots are not kept for plans that nobody can use.
        let is_old = |(name, table): &(String, Arc<LakeTable>)| {
            tables.iter().any(|(named, now)| named == name && !Arc::ptr_eq(now, table))
        };
        known.retain(|_, known| !known.tables.iter().any(is_old));
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key(settings, text), Known { plan, tables });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A statement's text begins with no such character.
fn key(settings: &str, text: &str) -> String {
    format!("{settings}\0{text}")
}

fn are_same(tables: &Tables, others: &Tables) -> bool {
    let is_same = |((name, table), (other, now)): (&(String, _), &(String, _))| {
        name == other && Arc::ptr_eq(table, now)
    };
    tables.len() == others.len() && tables.iter().zip(others).all(is_same)
}

/// Can the statement's plan be kept, as far as its text says?
pub(crate) fn may_be_kept(statement: &Statement) -> bool {
    statement.only_asks() && statement.lists.is_empty() && statement.text.len() <= LONG_TEXT
}

/// Is the plan decided by its text and `tables`? It is what DataFusion made of the text.
pub(crate) fn is_decided(plan: &LogicalPlan, tables: &Tables) -> Result<bool> {
    let is_known = |node: &LogicalPlan| match node {
        LogicalPlan::TableScan(scan) => {
            let Ok(provider) = source_as_provider(&scan.source) else { return false };
            let table = provider.downcast_ref::<LakeTable>();
            table.is_some_and(|table| tables.iter().any(|(_, known)| ptr::eq(&**known, table)))
        }
        LogicalPlan::Explain(_)
        | LogicalPlan::Analyze(_)
        | LogicalPlan::Extension(_)
        | LogicalPlan::Statement(_)
        | LogicalPlan::Dml(_)
        | LogicalPlan::Ddl(_)
        | LogicalPlan::Copy(_)
        | LogicalPlan::DescribeTable(_) => false,
        _ => true,
    };
    let is_constant = |expr: &Expr| {
        let volatility = match expr {
            Expr::ScalarFunction(call) => call.func.signature().volatility,
            Expr::AggregateFunction(call) => call.func.signature().volatility,
            Expr::WindowFunction(call) => call.fun.signature().volatility,
            Expr::HigherOrderFunction(_) | Expr::Placeholder(_) | Expr::ScalarVariable(..) => {
                Volatility::Volatile
            }
            _ => Volatility::Immutable,
        };
        volatility == Volatility::Immutable
    };
    let mut decided = true;
    plan.apply_with_subqueries(|node| {
        decided &= is_known(node);
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                decided &= is_constant(expr);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if decided { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use super::key;
    use crate::engine::session::for_tests;

    #[test]
    fn plans_are_kept_while_they_are_right() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let run = |sql: &str| runtime.block_on(session.query(sql)).unwrap();
        let plans = &session.engine.plans;
        let kept = || {
            let known = plans.lock();
            let mut texts: Vec<String> = known.keys().map(|key| key.replace('\0', "|")).collect();
            texts.sort_unstable();
            texts
        };
        run("CREATE TABLE t AS SELECT 1 AS k; CREATE TABLE other AS SELECT 2 AS k");
        let (of_t, of_other) = ("SELECT k FROM t", "SELECT sum(k) FROM other");
        for sql in
            [of_t, of_t, of_other, "SELECT k, now() FROM t", "SELECT 1", "EXPLAIN SELECT k FROM t"]
        {
            run(sql);
        }
        assert_eq!(kept(), ["|SELECT 1", "|SELECT k FROM t", "|SELECT sum(k) FROM other"]);
        let tables_of = |text: &str| plans.lock().get(&key("", text)).unwrap().tables.clone();
        assert!(plans.of("", of_t, &tables_of(of_t)).is_some());
        assert!(plans.of("a=1;", of_t, &tables_of(of_t)).is_none(), "other settings");
        let other = tables_of(of_other)[0].1.clone();
        assert!(plans.of("", of_t, &vec![("t".into(), other)]).is_none());
        // Snapshots guard them: what is of another table stays.
        run("INSERT INTO t VALUES (3); SELECT k FROM t");
        assert_eq!(kept().len(), 3);
        run("SET datafusion.execution.batch_size = 100; SELECT k FROM t");
        let set = "datafusion.execution.batch_size=\"100\";|SELECT k FROM t".to_owned();
        assert!(kept().contains(&set) && kept().len() == 4, "{:?}", kept());
        run("RESET datafusion.execution.batch_size; SET uplake.timeout = '1h'; SELECT k FROM t");
        assert_eq!(kept().len(), 4);
    }
}
