//! Moments by SQL against a count by hand over the same rows.

use std::collections::BTreeMap;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Float64Type;
use uplake_experiment::{Experiment, plan};

use crate::{block_on, session};

const DEFINITION: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-05"
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
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
[[metric]]
name = "bought"
type = "proportion"
table = "events"
where = "event = 'buy'"
[[metric]]
name = "first_day"
type = "mean"
table = "events"
value = "amount"
window = "1 day"
cap = 5
[[dimension]]
name = "country"
"#;

/// Berlin is UTC+1 in November: the period is 11-01T23:00 to 11-04T23:00 UTC.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts, column4 AS country FROM (VALUES
 ('u1','a','2026-11-01T22:59:59','too early'), ('u1','a','2026-11-01T23:00:00','DE'), ('u1','a','2026-11-03T00:00:00','FR'),
 ('u2','b','2026-11-02T12:00:00','DE'), ('u3','b','2026-11-04T22:59:59',NULL), ('u4','b','2026-11-04T23:00:00','DE'),
 ('u5','a','2026-11-02T00:00:00','DE'), ('u5','b','2026-11-03T00:00:00','DE'), ('u6','c','2026-11-03T00:00:00','DE'),
 ('u7','a','2026-11-02T00:00:00','DE'), (NULL,'a','2026-11-02T00:00:00','DE'), ('u8',NULL,'2026-11-02T00:00:00','DE'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS event, column4 AS amount FROM (VALUES
 ('u1','2026-11-01T22:59:59','buy',100.0), ('u1','2026-11-01T23:00:00','buy',1.0), ('u1','2026-11-04T22:59:59','buy',2.5), ('u1','2026-11-04T23:00:00','buy',50.0),
 ('u2','2026-11-02T11:59:59','buy',9.0), ('u2','2026-11-02T12:00:00','view',9.0), ('u2','2026-11-03T11:59:59','buy',4.0), ('u2','2026-11-03T12:00:00','buy',NULL),
 ('u7','2026-11-02T00:00:00','view',3.0), ('u9','2026-11-02T00:00:00','buy',77.0))";

fn table(threads: usize) -> uplake_experiment::MomentsTable {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, threads);
    block_on(session.query(DATA)).unwrap();
    let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    block_on(session.moments(&query)).unwrap()
}

#[test]
fn windows_are_half_open_zeros_count_and_strays_are_left_out() {
    let table = table(2);
    assert_eq!(table.users_in_many_variants, 1);
    let unknown: BTreeMap<_, _> = table.unknown_variants.iter().cloned().collect();
    assert_eq!(unknown, BTreeMap::from([("(null)".to_owned(), 1), ("c".to_owned(), 1)]));
    let total = |variant: usize| {
        let cell = table.cells.iter().find(|c| c.variant == variant && c.slice.is_none()).unwrap();
        let means: Vec<f64> = cell.groups.iter().map(|m| m.mean(0)).collect();
        (cell.groups[0].count(), means)
    };
    // a: u1 (spend 1 + 2.5, bought, first day 1) and u7 (spend 0, first day 3 of a view).
    assert_eq!(total(0), (2, vec![1.75, 0.5, 2.0]));
    // b: u2 (spend 4; first day 9 + 4 capped at 5) and u3 (nothing).
    assert_eq!(total(1), (2, vec![2.0, 0.5, 2.5]));
    assert_eq!(
        table.first_exposures,
        [
            ("2026-11-02".to_owned(), 0, 2),
            ("2026-11-02".to_owned(), 1, 1),
            ("2026-11-04".to_owned(), 1, 1)
        ]
    );
}

#[test]
fn a_dimension_is_taken_at_first_exposure_within_the_period() {
    let table = table(2);
    let users: BTreeMap<(String, usize), u64> = table
        .cells
        .iter()
        .filter_map(|c| Some(((c.slice.clone()?.1, c.variant), c.groups[0].count())))
        .filter(|(_, users)| *users > 0)
        .collect();
    let expected = [(("(null)", 1), 1), (("DE", 0), 2), (("DE", 1), 1)];
    assert_eq!(users, expected.into_iter().map(|((v, i), n)| ((v.to_owned(), i), n)).collect());
}

#[test]
fn the_same_snapshot_gives_the_same_bytes_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let fill = "CREATE TABLE exposures AS SELECT CAST(value % 5000 AS VARCHAR) AS user_id, CASE WHEN value % 5000 % 2 = 0 THEN 'a' ELSE 'b' END AS variant, \
                to_timestamp_micros(1793600000000000 + value) AS ts, 'x' AS country FROM generate_series(1, 20000) AS s(value); \
                CREATE TABLE events AS SELECT CAST((value * 7919) % 5000 AS VARCHAR) AS user_id, to_timestamp_micros(1793600100000000 + value * 100000) AS ts, 'buy' AS event, \
                0.1 + CAST((value * 104729) % 100003 AS DOUBLE) / 7.0 AS amount FROM generate_series(1, 300000) AS s(value)";
    block_on(session(folder.path(), 1 << 30, 2).query(fill)).unwrap();
    let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
    let query = plan(&experiment, &[], None).unwrap();
    let tables: Vec<_> = [1, 2, 3, 7]
        .into_iter()
        .map(|threads| block_on(session(folder.path(), 1 << 30, threads).moments(&query)).unwrap())
        .collect();
    let bits = |t: &uplake_experiment::MomentsTable| -> Vec<u64> {
        let values = |m: &uplake_experiment::Moments| {
            vec![m.count(), m.mean(0).to_bits(), m.covariance(0, 0).to_bits()]
        };
        t.cells.iter().flat_map(|c| c.groups.iter().flat_map(values)).collect()
    };
    assert!(tables[0].cells[0].groups[0].mean(0) > 1.0, "the events are found");
    for other in &tables[1..] {
        assert_eq!(bits(&tables[0]), bits(other));
    }
}

#[test]
fn moments_equal_what_plain_sql_says() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let sql = "WITH f AS (SELECT user_id, min(variant) AS v, min(ts) AS t0 FROM exposures \
               WHERE ts >= '2026-11-01T23:00:00' AND ts < '2026-11-04T23:00:00' AND user_id IS NOT NULL \
               GROUP BY user_id HAVING count(DISTINCT variant) = 1), \
               s AS (SELECT f.user_id, f.v, sum(CASE WHEN e.event = 'buy' AND e.ts >= f.t0 AND e.ts < '2026-11-04T23:00:00' THEN e.amount ELSE 0 END) AS x \
               FROM f LEFT JOIN events e ON e.user_id = f.user_id GROUP BY 1, 2) \
               SELECT avg(coalesce(x, 0)), var_samp(coalesce(x, 0)) FROM s WHERE v = 'a'";
    let batches = block_on(session.query(sql)).unwrap();
    let batch = batches.iter().find(|b| b.num_rows() > 0).unwrap();
    let value = |i: usize| batch.column(i).as_primitive::<Float64Type>().value(0);
    let table = table(2);
    let cell = table.cells.iter().find(|c| c.variant == 0 && c.slice.is_none()).unwrap();
    assert!((cell.groups[0].mean(0) - value(0)).abs() < 1e-12);
    assert!((cell.groups[0].covariance(0, 0) - value(1)).abs() < 1e-12);
}
