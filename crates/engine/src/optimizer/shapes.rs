//! Which operators hand rows on, and what rules may look through to find an aggregate, a join or a scan below.
//!
//! One place for all rules: an operator that DataFusion puts around others in its next version is added here, and a
//! test fails until it is, by which time every rule that looks down would have stopped at it.
//!
//! # Invariants
//! - No layer has a limit: the rows of what is below are all of those there are to choose from.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSource;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::mends::PlainExec;
use crate::operators::build_side_cache::CachedSubplanExec;
use crate::operators::fallback::FallbackExec;

/// What an operator makes of the rows of its one input.
#[derive(Clone, Copy)]
pub(crate) enum Layer<'a> {
    /// The same rows in the same partitions.
    Same,
    /// The same rows in other partitions, or in another order.
    Dealt,
    /// Some of them, and some of their columns.
    Filter(&'a FilterExec),
    /// Columns computed of them.
    Projection(&'a ProjectionExec),
}

/// What a node that hands rows on makes of them, and where they come from; `None` of all others.
pub(crate) fn layer(node: &Arc<dyn ExecutionPlan>) -> Option<(Layer<'_>, &Arc<dyn ExecutionPlan>)> {
    let [below] = node.children()[..] else { return None };
    if node.fetch().is_some() {
        return None;
    }
    let layer = if let Some(filter) = node.downcast_ref::<FilterExec>() {
        Layer::Filter(filter)
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        Layer::Projection(projection)
    } else if node.is::<CooperativeExec>()
        || node.is::<BufferExec>()
        || node.is::<PlainExec>()
        || node.is::<FallbackExec>()
    {
        Layer::Same
    } else if node.is::<CoalescePartitionsExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<CachedSubplanExec>()
    {
        Layer::Dealt
    } else {
        return None;
    };
    Some((layer, below))
}

impl Layer<'_> {
    /// Which column of the rows below one of its own is, unless it is computed.
    pub(crate) fn column(self, column: usize) -> Option<usize> {
        match self {
            Self::Same | Self::Dealt => Some(column),
            Self::Filter(filter) => match filter.projection() {
                Some(columns) => columns.get(column).copied(),
                None => Some(column),
            },
            Self::Projection(projection) => {
                let expr = &projection.expr().get(column)?.expr;
                expr.downcast_ref::<Column>().map(Column::index)
            }
        }
    }
}

/// The column of the table that a scan hands out as its column of this number.
pub(crate) fn stored(scan: &Arc<dyn DataSource>, column: usize) -> Option<Column> {
    let config = scan.downcast_ref::<FileScanConfig>()?;
    let projection = config.file_source().projection()?;
    let expr: &Arc<dyn PhysicalExpr> = &projection.iter().nth(column)?.expr;
    expr.downcast_ref::<Column>().cloned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};

    use super::*;
    use crate::engine::session::{Session, for_tests};
    use crate::optimizer::pipeline;
    use crate::sql::statement::parse;

    /// Operators of one input that no rule looks through, and why.
    const ENDS: [(&str, &str); 17] = [
        ("AggregateExec", "groups"),
        ("ArrayAggregateExec", "groups"),
        ("BoundedWindowAggExec", "computes of several rows"),
        ("WindowAggExec", "computes of several rows"),
        ("RunningWindowExec", "computes of several rows"),
        ("GlobalLimitExec", "a limit"),
        ("LocalLimitExec", "a limit"),
        ("FilterExec", "with a limit"),
        ("SortExec(TopK)", "with a limit"),
        ("SortPreservingMergeExec", "with a limit"),
        ("CoalescePartitionsExec", "with a limit"),
        ("TopCandidatesExec", "drops rows that others need not"),
        ("WindowCandidatesExec", "drops rows that others need not"),
        ("PartitionedTopKExec", "drops rows that others need not"),
        ("UnnestExec", "makes several rows of one"),
        ("AsyncFuncExec", "computes what may fail"),
        ("ScalarSubqueryExec", "runs what its expressions ask for"),
    ];

    const TABLES: &str = "
        CREATE TABLE events (dt DATE, ts TIMESTAMP, user_id TEXT, event TEXT, page TEXT, item_id BIGINT, value DOUBLE,
            duration_ms INT, city TEXT, os TEXT, app_version TEXT, channel TEXT)
          PARTITIONED BY (dt) CLUSTERED BY (user_id, ts) ID DOMAINS (user_id users);
        CREATE TABLE exposures (dt DATE, ts TIMESTAMP, user_id TEXT, exp_id INT, variant INT, city TEXT, os TEXT,
            app_version TEXT)
          PARTITIONED BY (dt) CLUSTERED BY (exp_id, user_id) ID DOMAINS (user_id users);
        CREATE TABLE products (city_id INT, geohash TEXT, poi_id BIGINT, spu_name TEXT, price DOUBLE, sales INT)
          CLUSTERED BY (city_id, geohash, poi_id);
        INSERT INTO events SELECT DATE '2026-03-01' + CAST(v % 4 AS INT), to_timestamp(1772323200 + v % 4 * 86400 + v),
          concat('u', CAST(v % 90 AS TEXT)), CASE v % 4 WHEN 0 THEN 'view' WHEN 1 THEN 'click' ELSE 'pay' END,
          '/search/a', v, v, v, concat('c', CAST(v % 3 AS TEXT)), 'ios', '1', 'x' FROM generate_series(1, 2000) AS s(v);
        INSERT INTO exposures SELECT DATE '2026-03-01', to_timestamp(1772323200), concat('u', CAST(v AS TEXT)),
          1 + v % 2, v % 2, 'c1', 'ios', '1' FROM generate_series(1, 90) AS s(v);
        INSERT INTO products SELECT v % 9, 'w', v, 'a', v, v FROM generate_series(1, 90) AS s(v);";

    /// Shapes that those of the benchmark do not have.
    const MORE: [&str; 19] = [
        "SELECT user_id, sum(value) AS s FROM events GROUP BY user_id ORDER BY s DESC, user_id LIMIT 7",
        "SELECT count(DISTINCT user_id), count(DISTINCT event), count(DISTINCT city) FROM events",
        "SELECT min(ts), max(ts) FROM events",
        "SELECT * FROM (SELECT user_id, value, row_number() OVER (PARTITION BY user_id ORDER BY value DESC) AS place
           FROM events) WHERE place <= 2 AND value > 3",
        "SELECT user_id, sum(value) OVER (PARTITION BY user_id ORDER BY ts), sum(value) OVER () FROM events",
        "SELECT user_id, max(ts) OVER (PARTITION BY user_id ORDER BY ts ROWS UNBOUNDED PRECEDING) FROM events",
        "SELECT city, event, count(*) FROM events GROUP BY ROLLUP (city, event) ORDER BY 1, 2",
        "SELECT DISTINCT city FROM events ORDER BY city LIMIT 3 OFFSET 1",
        "SELECT city FROM events UNION ALL SELECT os FROM exposures LIMIT 4",
        "SELECT city FROM events INTERSECT SELECT city FROM exposures",
        "SELECT unnest(array_agg(city)) FROM events",
        "SELECT e.user_id, x.variant FROM events e FULL JOIN exposures x ON e.user_id = x.user_id AND e.city < x.city",
        "SELECT count(*) FROM events e JOIN products p ON e.value < p.price",
        "SELECT value, (SELECT max(price) FROM products) FROM events WHERE item_id IN (SELECT poi_id FROM products)",
        "SELECT v FROM generate_series(1, 9) AS s(v) WHERE v % 2 = 0 ORDER BY v",
        "SELECT count(*) FROM (SELECT * FROM events WHERE event = 'pay' LIMIT 9)",
        "SELECT u.k, count(*), sum(CASE WHEN e.event = 'pay' THEN e.value END) FROM
           (SELECT user_id, 'x' AS k, min(variant) AS v FROM exposures WHERE exp_id = 1 GROUP BY user_id) u
           LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.k",
        "SELECT e.value FROM events e JOIN exposures x ON e.user_id = x.user_id
           WHERE x.exp_id IN (SELECT city_id FROM products WHERE price > 3)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT max(n) FROM r",
    ];

    fn statements() -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/queries");
        let mut found: Vec<String> = Vec::new();
        for query in ["q1", "q2", "q3", "q4", "q5", "q5r", "q6.uplake", "q7", "q8", "q9"] {
            let text = std::fs::read_to_string(format!("{folder}/{query}.sql")).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("--"));
            let text = lines.collect::<Vec<_>>().join("\n");
            let values = [
                ("{a}", "2026-03-01"),
                ("{b}", "2026-03-04"),
                ("{d0}", "2026-03-01"),
                ("{d1}", "2026-03-02"),
                ("{d7}", "2026-03-04"),
                ("{exp}", "1"),
                ("{user}", "u7"),
                ("{ids}", "3,4,5"),
            ];
            found.push(values.iter().fold(text, |text, (name, value)| text.replace(name, value)));
        }
        found.extend(MORE.map(str::to_owned));
        found
    }

    fn lake(folder: &std::path::Path) -> (Session, tokio::runtime::Runtime) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder, true);
        runtime.block_on(session.query(TABLES)).unwrap();
        (session, runtime)
    }

    /// An operator of DataFusion that is new around others fails here, and not as five rules that find nothing.
    #[test]
    fn every_operator_of_one_input_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (session, runtime) = lake(folder.path());
        let (mut layers, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for text in statements() {
            let statement = parse(&text).unwrap().remove(0);
            let plan = runtime.block_on(session.physical_plan(&statement)).unwrap();
            plan.apply(|node| {
                let is_end = || ENDS.iter().any(|(name, _)| *name == node.name());
                if layer(node).is_some() {
                    layers.insert(node.name().to_owned());
                } else if node.children().len() == 1 && !is_end() {
                    unknown.insert(format!("{} in {text}", node.name()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
        }
        assert!(unknown.is_empty(), "put these into `layer` or ENDS: {unknown:#?}");
        // The statements have what rules have to look through.
        for name in ["FilterExec", "ProjectionExec", "RepartitionExec", "PlainExec"] {
            assert!(layers.contains(name), "{name} is in none of the plans");
        }
    }

    /// Each rule of speed has a statement that it changes, so that one that finds nothing any more is noticed.
    #[test]
    fn every_rule_changes_a_plan() {
        let folder = tempfile::tempdir().unwrap();
        let (session, runtime) = lake(folder.path());
        let mut changed = BTreeSet::new();
        for text in statements() {
            let rows = runtime.block_on(session.query(&format!("EXPLAIN {text}"))).unwrap();
            let shown = datafusion::arrow::util::pretty::pretty_format_batches(&rows).unwrap();
            let shown = shown.to_string();
            let rules = shown.lines().rfind(|line| line.contains("| rules")).unwrap();
            let rules = rules.split('|').nth(2).unwrap().split(',');
            changed.extend(rules.map(|rule| rule.trim().to_owned()));
        }
        // What EXPLAIN does not show, and what takes a quarter of a million rows.
        let elsewhere = ["plan_cache", "index_files", "one_scan", "build_side_cache", "id_ranges"];
        for rule in pipeline::SPEED.iter().filter(|rule| !elsewhere.contains(rule)) {
            assert!(changed.contains(*rule), "{rule} changes none of the plans: {changed:?}");
        }
    }
}
