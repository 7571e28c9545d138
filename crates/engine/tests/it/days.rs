//! Cells as of the end of every day against as many runs with an earlier end.

use std::collections::BTreeSet;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use uplake_engine::Session;
use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, plan};

use crate::{block_on, session};

/// Every aggregate, windows that end and that start late, caps, thresholds and covariates. The clock
/// of Berlin falls back on the 25th of October, a day of 25 hours.
const DEFINITION: &str = r#"
name = "t"
start = "2026-10-12"
end = "END"
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
UNIT
[[variant]]
name = "a"
share = 0.5
control = true
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
where = "event = 'buy'"
CUPED
[[metric]]
name = "capped in three days"
type = "mean"
table = "events"
value = "amount"
window = "3 days"
cap = 40
[[metric]]
name = "bought"
type = "proportion"
table = "events"
where = "event = 'buy'"
[[metric]]
name = "back"
type = "retention"
table = "events"
window = { from = "2 days", to = "5 days" }
[[metric]]
name = "spent 30"
type = "threshold"
table = "events"
value = "amount"
at_least = 30
[[metric]]
name = "price"
type = "ratio"
table = "events"
numerator = { value = "amount", where = "event = 'buy'" }
denominator = { value = "1", where = "event = 'buy'" }
[[metric]]
name = "products"
type = "distinct"
table = "events"
value = "product"
[[metric]]
name = "way"
type = "funnel"
table = "events"
steps = [{ name = "view", where = "event = 'view'" }, { name = "cart", where = "event = 'cart'" }, { name = "buy", where = "event = 'buy'" }]
[[metric]]
name = "calls"
type = "count"
table = "calls"
time = "called"
[[dimension]]
name = "country"
"#;

/// 700 users over four weeks from 2026-10-11 22:00 UTC, some in both arms; events also before.
const DATA: &str = "
CREATE TABLE exposures AS SELECT value % 700 AS user_id,
  CASE WHEN (value % 700) % 97 = 5 AND value > 700 THEN 'b' WHEN (value % 700) % 2 = 0 THEN 'a' ELSE 'b' END AS variant,
  to_timestamp_micros(1791756000000000 + ((value * 7919) % 2419200) * 1000000) AS ts,
  CASE WHEN value % 3 = 0 THEN 'DE' ELSE 'FR' END AS country, concat('shop', CAST((value % 700) % 60 AS VARCHAR)) AS shop
  FROM generate_series(1, 1500) AS s(value);
CREATE TABLE events AS SELECT (value * 104729) % 800 AS user_id,
  to_timestamp_micros(1791756000000000 - 604800000000 + ((value * 15485863) % 3024000) * 1000000) AS ts,
  CASE (value * 31) % 5 WHEN 0 THEN 'buy' WHEN 1 THEN 'cart' ELSE 'view' END AS event,
  CASE WHEN value % 11 = 0 THEN NULL ELSE 0.1 + CAST((value * 7907) % 10007 AS DOUBLE) / 300.0 END AS amount,
  (value * 13) % 17 AS product FROM generate_series(1, 20000) AS s(value);
CREATE TABLE calls AS SELECT user_id, ts AS called FROM events WHERE product = 3";

fn definition(end: &str, unit: &str) -> String {
    let cuped = if unit.contains("region") { "" } else { "cuped = { pre = \"7 days\" }" };
    DEFINITION.replace("END", end).replace("CUPED", cuped).replace("UNIT", unit)
}

fn run(session: &Session, definition: &str) -> MomentsTable {
    let experiment = Experiment::parse(definition, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    block_on(session.moments(&query)).unwrap()
}

fn total(cells: &[Cell]) -> Vec<&Cell> {
    cells.iter().filter(|cell| cell.slice.is_none()).collect()
}

fn assert_close(a: &Moments, b: &Moments, what: &str) {
    assert_eq!(a.count(), b.count(), "{what}: units");
    let near = |x: f64, y: f64| {
        x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-12 * x.abs().max(y.abs())
    };
    for i in 0..a.columns() {
        assert!(near(a.mean(i), b.mean(i)), "{what}: mean {i}: {} {}", a.mean(i), b.mean(i));
        for j in i..a.columns() {
            // A covariance near zero is as exact as the variances it comes from.
            let scale = (a.variance(i) * a.variance(j)).sqrt().max(b.covariance(i, j).abs());
            let (x, y) = (a.covariance(i, j), b.covariance(i, j));
            let same = near(x, y) || (x - y).abs() <= 1e-12 * scale;
            assert!(same, "{what}: covariance {i} {j}: {x} {y}");
        }
    }
}

fn assert_cells_close(a: &[&Cell], b: &[&Cell], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.variant, a.users), (b.variant, b.users), "{what}");
        for (group, (a, b)) in a.groups.iter().zip(&b.groups).enumerate() {
            assert_close(a, b, &format!("{what}, group {group}"));
        }
    }
}

/// `top`: further keys of the definition.
fn every_day_equals_a_run_that_ends_with_it(top: &str, unit: &str) {
    let definition = |end: &str| format!("{top}\n{}", definition(end, unit));
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(&format!("{DATA};{ONE_ARM}"))).unwrap();
    let table = run(&session, &definition("2026-11-09"));
    assert_eq!(table.days.len(), 28);
    assert_eq!(table.days[0].day, "2026-10-12");
    assert!(total(&table.cells)[0].users > 100, "there are users");
    for (number, day) in table.days.iter().enumerate() {
        let next = table.days.get(number + 1).map_or("2026-11-09", |day| day.day.as_str());
        let alone = run(&session, &definition(next));
        let cells: Vec<&Cell> = day.cells.iter().collect();
        assert_cells_close(&cells, &total(&alone.cells), &format!("day {}", day.day));
    }
    let last: Vec<&Cell> = table.days[27].cells.iter().collect();
    assert_cells_close(&last, &total(&table.cells), "the last day and the whole");
}

/// Users of several arms by a later day are left out of all days of the long run, so there are none.
const ONE_ARM: &str = "DELETE FROM exposures WHERE user_id % 97 = 5";

#[test]
fn every_day_of_users_equals_a_run_that_ends_with_it() {
    every_day_equals_a_run_that_ends_with_it("", "");
}

#[test]
fn every_day_of_clusters_equals_a_run_that_ends_with_it() {
    every_day_equals_a_run_that_ends_with_it("", "cluster = \"shop\"");
}

#[test]
fn every_day_without_users_in_progress_equals_a_run_that_ends_with_it() {
    for unit in ["", "cluster = \"shop\""] {
        every_day_equals_a_run_that_ends_with_it("in_progress = \"exclude\"", unit);
    }
}

#[test]
fn days_and_cells_are_the_same_bytes_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    for unit in ["", "cluster = \"shop\""] {
        let bits = |threads: usize| -> Vec<u64> {
            let session = session(folder.path(), 1 << 30, threads);
            let table = run(&session, &definition("2026-11-09", unit));
            let days = table.days.iter().flat_map(|day| &day.cells);
            let groups = days.chain(&table.cells).flat_map(|cell| &cell.groups);
            let figures = |m: &Moments| {
                let means = (0..m.columns()).map(|i| m.mean(i).to_bits());
                means.chain([m.count(), m.covariance(0, 0).to_bits()]).collect::<Vec<_>>()
            };
            groups.flat_map(figures).collect()
        };
        let one = bits(1);
        for threads in [2, 3, 7] {
            assert_eq!(one, bits(threads), "{threads} threads, {unit}");
        }
    }
}

#[test]
fn numbers_are_the_same_with_days_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let experiment = Experiment::parse(&definition("2026-11-09", ""), "t.toml").unwrap();
    let mut query = plan(&experiment, &["country".to_owned()], None).unwrap();
    assert!(query.days);
    let with = block_on(session.moments(&query)).unwrap();
    query.days = false;
    let without = block_on(session.moments(&query)).unwrap();
    assert!(without.days.is_empty() && without.active_users.is_empty());
    assert_eq!(with.cells.len(), 6);
    let (with, without): (Vec<&Cell>, Vec<&Cell>) =
        (with.cells.iter().collect(), without.cells.iter().collect());
    assert_cells_close(&with, &without, "with days and without");
}

#[test]
fn a_user_is_active_on_days_with_rows_that_count() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(&format!("{DATA};{ONE_ARM}"))).unwrap();
    let table = run(&session, &definition("2026-11-09", ""));
    let tables: BTreeSet<&str> = table.active_users.iter().map(|(t, _, _)| t.as_str()).collect();
    assert_eq!(tables, BTreeSet::from(["calls", "events"]));
    let sql = "SELECT count(DISTINCT e.user_id) FROM calls e JOIN (SELECT user_id, min(ts) AS t0 FROM exposures \
               WHERE ts >= '2026-10-11T22:00:00' AND ts < '2026-11-08T23:00:00' GROUP BY 1) f ON f.user_id = e.user_id \
               WHERE e.called >= f.t0 AND e.called >= '2026-10-24T22:00:00' AND e.called < '2026-10-25T23:00:00'";
    let batches = block_on(session.query(sql)).unwrap();
    let batch = batches.iter().find(|b| b.num_rows() > 0).unwrap();
    let expected = batch.column(0).as_primitive::<Int64Type>().value(0) as u64;
    assert!(expected > 5);
    let long_day = ("calls".to_owned(), "2026-10-25".to_owned(), expected);
    assert!(table.active_users.contains(&long_day), "{long_day:?} in {:?}", table.active_users);
}

#[test]
fn days_after_the_data_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let table = run(&session, &definition("2026-12-24", ""));
    assert_eq!(table.days.last().unwrap().day, "2026-11-08");
}
