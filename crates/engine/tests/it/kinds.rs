//! First and last values, days and caps without zeros, against numbers that were found by hand.

use uplake_engine::{Session, SessionOptions};
use uplake_experiment::query::{Cell, MomentsTable};
use uplake_experiment::{Experiment, Moments, plan};
use uplake_table::Lake;

use crate::{block_on, options, session};

/// Berlin is UTC+1 in November.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts FROM (VALUES
 ('u1','a','2026-11-02T10:00:00'), ('u2','a','2026-11-02T10:00:00'), ('u3','a','2026-11-03T10:00:00'),
 ('u4','b','2026-11-02T10:00:00'), ('u5','b','2026-11-02T10:00:00'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS price FROM (VALUES
 ('u1','2026-11-02T09:59:59',100.0), ('u1','2026-11-02T12:00:00',7.0), ('u1','2026-11-02T12:00:00',3.0), ('u1','2026-11-02T12:30:00',NULL),
 ('u1','2026-11-02T23:30:00',5.0), ('u1','2026-11-04T08:00:00',8.0), ('u1','2026-11-04T08:00:00',2.0), ('u1','2026-11-04T09:00:00',CAST('NaN' AS DOUBLE)),
 ('u2','2026-11-02T11:00:00',0.0), ('u2','2026-11-02T10:30:00',0.0),
 ('u4','2026-11-03T11:00:00',40.0), ('u4','2026-11-03T12:00:00',-4.0), ('u5','2026-11-05T00:00:00',9.0))";

const DEFINITION: &str = r#"
name = "t"
PERIOD
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "first"
type = "first"
table = "events"
value = "price"
[[metric]]
name = "last"
type = "last"
table = "events"
value = "price"
[[metric]]
name = "last of all"
type = "last"
table = "events"
value = "price"
zeros = true
[[metric]]
name = "days"
type = "unique_days"
table = "events"
[[metric]]
name = "capped"
type = "mean"
table = "events"
value = "abs(price)"
where = "price < 100"
cap = { quantile = 0.6, zeros = false }
[[metric]]
name = "log"
type = "mean"
table = "events"
value = "greatest(price, -1)"
where = "price < 9"
transform = "log1p"
"#;

/// The answer in one scan, and by SQL.
fn tables(period: &str) -> [MomentsTable; 2] {
    let definition = DEFINITION.replace("PERIOD", period);
    let experiment = Experiment::parse(&definition, "t.toml").unwrap();
    let query = plan(&experiment, &[], None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    [true, false].map(|use_indexes| {
        let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
        let options = SessionOptions { use_indexes, ..options(1 << 30, 2) };
        block_on(Session::new(lake, &options).unwrap().moments(&query)).unwrap()
    })
}

/// Sums of all numbers of one arm, to nine digits.
fn sums(cells: &[Cell], variant: usize) -> Vec<Vec<f64>> {
    let cell = cells.iter().find(|cell| cell.variant == variant && cell.slice.is_none()).unwrap();
    let rounded = |sum: f64| (sum * 1e9).round() / 1e9;
    let sums = |m: &Moments| (0..m.columns()).map(|i| rounded(m.sum(i))).collect();
    cell.groups.iter().map(sums).collect()
}

#[test]
fn values_by_time_days_and_caps_are_those_found_by_hand() {
    for table in tables("") {
        // u1 has 3 of 7 and 3 first, 8 of 8 and 2 last, u2 0 and 0; u3 has none.
        assert_eq!(sums(&table.cells, 0)[..3], [vec![3.0, 2.0], vec![8.0, 2.0], vec![8.0]]);
        assert_eq!(sums(&table.cells, 1)[..3], [vec![49.0, 2.0], vec![5.0, 2.0], vec![5.0]]);
        // u1 on 2, 3 (half past midnight in Berlin) and 4 November, u2 on one.
        assert_eq!((sums(&table.cells, 0)[3][0], sums(&table.cells, 1)[3][0]), (4.0, 2.0));
        // Numbers but 0 are 9, 25 and 44, of which 25 has rank 2 = ceil(3 x 0.6).
        assert_eq!(table.caps, [(4, 25.0)]);
        assert_eq!((sums(&table.cells, 0)[4][0], sums(&table.cells, 1)[4][0]), (25.0, 34.0));
        // u1: 7 + 3 + 5 + 8 + 2; u4's is -1, below 0, and has no log.
        let log = sums(&table.cells, 0)[5][0];
        assert!((log - 26.0_f64.ln()).abs() < 1e-8, "{log}");
        assert!(sums(&table.cells, 1)[5][0].is_nan());
    }
}

#[test]
fn each_day_has_what_was_first_or_last_by_its_end() {
    for table in tables("start = \"2026-11-02\"\nend = \"2026-11-06\"") {
        let days: Vec<(&str, Vec<Vec<f64>>)> =
            table.days.iter().map(|day| (day.day.as_str(), sums(&day.cells, 0))).collect();
        let of =
            |place: usize| -> Vec<f64> { days.iter().map(|(_, sums)| sums[place][0]).collect() };
        let names: Vec<&str> = days.iter().map(|(day, _)| *day).collect();
        assert_eq!(names, ["2026-11-02", "2026-11-03", "2026-11-04", "2026-11-05"]);
        assert_eq!(of(0), [3.0, 3.0, 3.0, 3.0]);
        assert_eq!(of(1), [7.0, 5.0, 8.0, 8.0]);
        assert_eq!(of(3), [2.0, 3.0, 4.0, 4.0]);
        assert_eq!(sums(&table.cells, 0)[1], [8.0, 2.0]);
        let with_value = |sums: &Vec<Vec<f64>>| sums[1][1];
        assert!(days.iter().all(|(_, sums)| with_value(sums) == 2.0));
    }
}
