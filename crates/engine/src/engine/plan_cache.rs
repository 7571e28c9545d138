//! Plans of queries that were asked before: the same text about the same tables is not planned again.
//!
//! # Invariants
//! - A plan is used only while every table that its text names is the snapshot that it was made of.
//! - A snapshot that the catalog lets go of takes its plans with it ([`PlanCache::forget`]): none is kept for plans
//!   alone, which do not count it.
//! - Kept is only what text and tables decide: nothing that changes by itself (`now()`, `random()`,
//!   domains, sets of ids), views with the texts that they have, and nothing that is no table of the lake.

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::operators::build_side_cache::BuildSideCache;
use crate::scan::lake_table::{LakeTable, Tables};
use crate::sql::statement::Statement;

/// Bytes of plans that are kept at most; a dashboard's dozens of queries take some hundred KB.
const KEPT_BYTES: usize = 64 << 20;
/// Of them, what one plan may have.
const PLAN_SHARE: usize = 8;
/// Of them, what is let go when they are full, so that the oldest are not looked for with each plan.
const LET_GO_SHARE: usize = 16;
/// What a node, a column of its schema and an expression take besides names and values, about. Measured: 3.5 KB for
/// `SELECT name FROM numbers WHERE id = 5`.
const NODE_BYTES: usize = 600;
const FIELD_BYTES: usize = 100;

/// A query as it is run but for the keys of ids, which are looked up in the domains of each run.
#[derive(Clone)]
pub(crate) struct CachedPlan {
    pub optimized: LogicalPlan,
    /// The same before DataFusion optimized it, if it takes keys from domains: it is what is left if one is not there.
    pub before: Option<LogicalPlan>,
    /// Could all domains be read?
    pub whole: bool,
}

/// Plans by their texts.
pub(crate) struct PlanCache {
    limit_bytes: usize,
    state: Mutex<State>,
    /// Sides of joins, which are known by plans, too.
    pub sides: BuildSideCache,
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanCache").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    known: HashMap<String, Known>,
    bytes: usize,
    /// Goes up with every use of a plan.
    clock: u64,
}

struct Known {
    plan: CachedPlan,
    tables: Tables,
    bytes: usize,
    used: u64,
}

impl State {
    /// Keeps those alone of which it says so.
    fn retain(&mut self, stays: impl Fn(&Known) -> bool) {
        self.known.retain(|_, known| stays(known));
        self.bytes = self.known.values().map(|known| known.bytes).sum();
    }

    /// Lets go of at least so many bytes, of what was not used for longest.
    fn let_go(&mut self, bytes: usize) {
        let mut by_use: Vec<(u64, usize)> =
            self.known.values().map(|known| (known.used, known.bytes)).collect();
        by_use.sort_unstable();
        let mut freed = 0;
        let stays = by_use.iter().find(|(_, bytes_of_it)| {
            let enough = freed >= bytes;
            freed += bytes_of_it;
            enough
        });
        let first = stays.map_or(u64::MAX, |(used, _)| *used);
        self.retain(|known| known.used >= first);
    }
}

impl PlanCache {
    /// Room for so many bytes, or less.
    pub fn new(limit_bytes: usize) -> Self {
        let (state, sides) = (Mutex::default(), BuildSideCache::default());
        Self { limit_bytes: limit_bytes.min(KEPT_BYTES), state, sides }
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The plan of a statement about these tables, with these settings.
    pub fn of(&self, settings: &str, statement: &Statement, tables: &Tables) -> Option<CachedPlan> {
        let state = &mut *self.lock();
        let known = state.known.get_mut(&key(settings, statement))?;
        if !are_same(&known.tables, tables) {
            return None;
        }
        state.clock += 1;
        known.used = state.clock;
        Some(known.plan.clone())
    }

    /// Keeps a plan of tables that the catalog keeps; those that were not used for longest make room.
    pub fn keep(&self, settings: &str, statement: &Statement, tables: Tables, plan: CachedPlan) {
        let key = key(settings, statement);
        let Ok(bytes) = bytes_of(&plan).map(|bytes| bytes + key.len()) else { return };
        if bytes > self.limit_bytes / PLAN_SHARE {
            return;
        }
        let state = &mut *self.lock();
        state.bytes -= state.known.remove(&key).map_or(0, |before| before.bytes);
        if state.bytes + bytes > self.limit_bytes {
            state.let_go(bytes.max(self.limit_bytes / LET_GO_SHARE));
        }
        state.clock += 1;
        state.bytes += bytes;
        state.known.insert(key, Known { plan, tables, bytes, used: state.clock });
    }

    /// Nobody will be given this snapshot again: its plans go.
    pub fn forget(&self, table: &Arc<LakeTable>) {
        let is_it = |(_, known): &(String, Arc<LakeTable>)| Arc::ptr_eq(known, table);
        self.lock().retain(|known| !known.tables.iter().any(is_it));
        self.sides.forget(table);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(plan: &CachedPlan) -> Result<usize> {
    let mut bytes = 0;
    for plan in std::iter::once(&plan.optimized).chain(&plan.before) {
        plan.apply_with_subqueries(|node| {
            bytes += NODE_BYTES + FIELD_BYTES * node.schema().fields().len();
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    bytes += size_of::<Expr>();
                    bytes += match part {
                        Expr::Literal(value, _) => value.size(),
                        Expr::Column(column) => column.name.len(),
                        _ => 0,
                    };
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
    }
    Ok(bytes)
}

/// A statement's text begins with no such character.
fn key(settings: &str, statement: &Statement) -> String {
    let mut key = format!("{settings}\0{}", statement.text);
    for value in &statement.values {
        key.push_str(&format!("\0{value:?}"));
    }
    for view in statement.views.iter().flat_map(|views| &views.all) {
        key.push_str(&format!("\0{}", view.text));
    }
    key
}

fn are_same(tables: &Tables, others: &Tables) -> bool {
    let is_same = |((name, table), (other, now)): (&(String, _), &(String, _))| {
        name == other && Arc::ptr_eq(table, now)
    };
    tables.len() == others.len() && tables.iter().zip(others).all(is_same)
}

/// Can the statement's plan be kept, as far as its text says?
pub(crate) fn may_be_kept(statement: &Statement) -> bool {
    statement.only_asks() && statement.lists.is_empty()
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
    use super::*;
    use crate::engine::session::for_tests;
    use crate::sql::statement;

    #[test]
    fn plans_are_kept_while_they_are_right() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let run = |sql: &str| runtime.block_on(session.query(sql)).unwrap();
        let plans = &session.engine.plans;
        let kept = || {
            let known = plans.lock();
            let mut texts: Vec<String> =
                known.known.keys().map(|key| key.replace('\0', "|")).collect();
            texts.sort_unstable();
            texts
        };
        run("CREATE TABLE t AS SELECT 1 AS k; CREATE TABLE other AS SELECT 2 AS k");
        let (of_t, of_other) = ("SELECT k FROM t", "SELECT sum(k) FROM other");
        let parsed = |text: &str| statement::parse(text).unwrap().pop().unwrap();
        for sql in
            [of_t, of_t, of_other, "SELECT k, now() FROM t", "SELECT 1", "EXPLAIN SELECT k FROM t"]
        {
            run(sql);
        }
        assert_eq!(kept(), ["|SELECT 1", "|SELECT k FROM t", "|SELECT sum(k) FROM other"]);
        let tables_of =
            |text: &str| plans.lock().known.get(&key("", &parsed(text))).unwrap().tables.clone();
        assert!(plans.of("", &parsed(of_t), &tables_of(of_t)).is_some());
        assert!(plans.of("a=1;", &parsed(of_t), &tables_of(of_t)).is_none(), "other settings");
        let other = tables_of(of_other)[0].1.clone();
        assert!(plans.of("", &parsed(of_t), &vec![("t".into(), other)]).is_none());
        // Snapshots guard them: what is of another table stays.
        run("INSERT INTO t VALUES (3); SELECT k FROM t");
        assert_eq!(kept().len(), 3);
        run("SET datafusion.execution.batch_size = 100; SELECT k FROM t");
        let set = "datafusion.execution.batch_size=\"100\";|SELECT k FROM t".to_owned();
        assert!(kept().contains(&set) && kept().len() == 4, "{:?}", kept());
        run("RESET datafusion.execution.batch_size; SET uplake.timeout = '1h'; SELECT k FROM t");
        assert_eq!(kept().len(), 4);
    }

    #[test]
    fn what_is_dropped_or_old_leaves_no_plan() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let run = |sql: &str| runtime.block_on(session.query(sql)).unwrap();
        let kept = || {
            let state = session.engine.plans.lock();
            (state.known.len(), state.bytes)
        };
        for n in 0..50 {
            run(&format!("CREATE TABLE t{n} AS SELECT {n} AS k; SELECT k FROM t{n}"));
            assert_eq!(kept().0, 1);
            run(&format!("DROP TABLE t{n}"));
            assert_eq!((kept(), session.engine.catalog.kept_tables()), ((0, 0), 0));
        }
        run("CREATE TABLE t AS SELECT 1 AS k");
        for n in 0..5 {
            run(&format!("INSERT INTO t VALUES ({n}); SELECT k FROM t; SELECT sum(k) FROM t"));
            assert_eq!(kept().0, 2);
            // Nobody is given this snapshot again.
            run("SELECT k FROM t VERSION AS OF 0");
            assert_eq!((kept().0, session.engine.catalog.kept_tables()), (2, 1));
        }
    }

    #[test]
    fn plans_that_were_not_used_for_longest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(session.query("SELECT 1")).unwrap();
        let parsed = |text: &str| statement::parse(text).unwrap().pop().unwrap();
        let tables = Tables::new();
        let plan = session.engine.plans.of("", &parsed("SELECT 1"), &tables).unwrap();
        // Each counts with its text.
        let long = |bytes: usize| {
            let mut statement = parsed("SELECT 1");
            statement.text = "x".repeat(bytes);
            statement
        };
        const LIMIT: usize = 1 << 20;
        let plans = PlanCache::new(LIMIT);
        let text = |n: usize| long((80 << 10) + n);
        for n in 0..30 {
            plans.keep("", &text(n), tables.clone(), plan.clone());
            assert!(plans.of("", &text(0), &tables).is_some(), "in use, after {n}");
            let state = plans.lock();
            assert!(state.bytes <= LIMIT && state.known.len() >= 10.min(n));
            assert_eq!(state.bytes, state.known.values().map(|known| known.bytes).sum::<usize>());
        }
        assert!(plans.of("", &text(1), &tables).is_none());
        assert!(plans.of("", &text(29), &tables).is_some());
        // The same again is there once.
        let before = plans.lock().bytes;
        plans.keep("", &text(29), tables.clone(), plan.clone());
        assert_eq!(plans.lock().bytes, before);
        plans.keep("", &long(LIMIT / PLAN_SHARE + 1), tables, plan);
        assert_eq!(plans.lock().bytes, before, "too long to be kept");
        assert_eq!(PlanCache::new(usize::MAX).limit_bytes, KEPT_BYTES);
    }
}
