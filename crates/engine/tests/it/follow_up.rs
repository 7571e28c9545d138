//! Users whose window is not over, and days since exposure, by hand.

use uplake_engine::Session;
use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, plan};

use crate::{block_on, session};

/// The last row of all is one of nobody who is exposed, on the 4th at 20:00.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts, column4 AS shop FROM (VALUES
 ('u1','a','2026-11-02T00:00:00','s1'), ('u2','a','2026-11-03T18:00:00','s1'),
 ('u3','a','2026-11-04T06:00:00','s2'), ('u4','b','2026-11-02T12:00:00','s3'),
 ('u5','b','2026-11-02T20:00:00.000001','s4'), ('u6','b','2026-11-02T20:00:00.005','s4'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS amount FROM (VALUES
 ('u1','2026-11-02T03:00:00',6.0), ('u1','2026-11-03T03:00:00',7.0), ('u1','2026-11-04T03:00:00',100.0),
 ('u2','2026-11-03T19:00:00',4.0), ('u2','2026-11-04T19:00:00',5.0), ('u3','2026-11-04T07:00:00',3.0),
 ('u5','2026-11-02T21:00:00',8.0), ('u6','2026-11-02T21:00:00',9.0), ('x','2026-11-04T20:00:00',1.0))";

const DEFINITION: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-06"
TOP
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
UNIT
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
window = "2 days"
days_since_exposure = 2
[[metric]]
name = "rate"
type = "ratio"
table = "events"
numerator = { value = "amount" }
denominator = { value = "1" }
window = "2 days"
[[metric]]
name = "endless"
type = "mean"
table = "events"
value = "amount"
"#;

fn run(top: &str, unit: &str) -> MomentsTable {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    answer(&session, &DEFINITION.replace("TOP", top).replace("UNIT", unit))
}

fn answer(session: &Session, definition: &str) -> MomentsTable {
    let experiment = Experiment::parse(definition, "t.toml").unwrap();
    let query = plan(&experiment, &[], None).unwrap();
    block_on(session.moments(&query)).unwrap()
}

fn arm(cells: &[Cell], variant: usize) -> &Cell {
    cells.iter().find(|cell| cell.slice.is_none() && cell.variant == variant).unwrap()
}

/// Units and the sum of each number.
fn sums(moments: &Moments) -> (u64, Vec<f64>) {
    (moments.count(), (0..moments.columns()).map(|column| moments.sum(column)).collect())
}

const EXCLUDE: &str = "in_progress = \"exclude\"";

#[test]
fn data_end_just_after_the_last_row_of_anybody() {
    let table = run("", "");
    assert_eq!(table.observed_until.as_deref(), Some("2026-11-04T20:00:01"));
    // The window of u5 ends with the data, that of u6 later by more than the millisecond that files' bounds have.
    assert_eq!(table.in_progress, [(0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 1, 1)]);
    assert_eq!(sums(&arm(&table.cells, 0).groups[0]), (3, vec![13.0 + 9.0 + 3.0]));
    assert_eq!(sums(&arm(&table.cells, 0).groups[2]), (3, vec![113.0 + 9.0 + 3.0]));
    let table = run("observed_until = \"2026-11-04T12:00:00\"", "");
    assert_eq!(table.observed_until.as_deref(), Some("2026-11-04T12:00:00"));
    assert_eq!(table.in_progress, [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]);
    let table = run("observed_until = \"2027-01-01\"", "");
    assert_eq!(table.observed_until.as_deref(), Some("2026-11-06T00:00:00"), "the period ends");
    assert_eq!(table.in_progress, [(0, 0, 1), (1, 0, 1)]);
}

#[test]
fn users_in_progress_are_left_out_of_metrics_whose_window_ends() {
    let table = run(EXCLUDE, "");
    let (a, b) = (arm(&table.cells, 0), arm(&table.cells, 1));
    assert_eq!((a.users, b.users), (3, 3));
    assert_eq!(sums(&a.groups[0]), (1, vec![13.0]));
    assert_eq!(sums(&b.groups[0]), (2, vec![8.0]));
    assert_eq!(sums(&a.groups[1]), (1, vec![13.0, 2.0]));
    assert_eq!(sums(&a.groups[2]), (3, vec![125.0]));
    // Whole windows, from the day on which they are over.
    let days: Vec<_> = table
        .days
        .iter()
        .map(|day| (day.day.as_str(), [0, 1].map(|of| sums(&arm(&day.cells, of).groups[0]).0)))
        .collect();
    let expected = [("2026-11-02", [0, 0]), ("2026-11-03", [1, 0]), ("2026-11-04", [1, 2])];
    assert_eq!(days, expected);
}

#[test]
fn a_cluster_has_its_complete_users_only() {
    let table = run(EXCLUDE, "cluster = \"shop\"");
    assert_eq!(table.clusters, [2, 2]);
    let (a, b) = (arm(&table.cells, 0), arm(&table.cells, 1));
    // s1 without u2; s2 is none. s4 without u6.
    assert_eq!(sums(&a.groups[0]), (1, vec![13.0, 1.0]));
    assert_eq!(sums(&b.groups[0]), (2, vec![8.0, 2.0]));
    assert_eq!(sums(&a.groups[1]), (1, vec![13.0, 2.0, 1.0]));
    assert_eq!(sums(&a.groups[2]), (2, vec![125.0, 3.0]));
    let last = &table.days[table.days.len() - 1].cells;
    assert_eq!(sums(&arm(last, 0).groups[0]), (1, vec![13.0, 1.0]));
    assert_eq!(sums(&arm(last, 1).groups[0]), (2, vec![8.0, 2.0]));
}

#[test]
fn a_day_since_exposure_has_users_for_whom_it_is_over() {
    let table = run("", "");
    // u1 6 | 7, u2 4 | not over, u3 not over.
    assert_eq!(sums(&table.since[0][0]), (2, vec![10.0]));
    assert_eq!(sums(&table.since[1][0]), (1, vec![7.0]));
    assert_eq!(sums(&table.since[0][1]), (3, vec![17.0]));
    assert_eq!(sums(&table.since[1][1]), (2, vec![0.0]));
    let table = run("", "cluster = \"shop\"");
    assert_eq!(sums(&table.since[0][0]), (1, vec![10.0, 2.0]));
    assert_eq!(sums(&table.since[1][1]), (2, vec![0.0, 2.0]));
}
