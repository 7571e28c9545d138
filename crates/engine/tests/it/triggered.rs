//! Users who count from an activation on, by hand.

use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, MomentsTable, plan};

use crate::{block_on, session};

/// When each was exposed and put something into the cart: u1 before, at once and later; u2 a day later;
/// u3 before only; u4 never; u5 after the end; u6 is seen in two arms; u7 at the end of the period; u8
/// has no time of exposure within it.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts, column4 AS country FROM (VALUES
 ('u1','a','2026-11-02T01:00:00','DE'), ('u1','a','2026-11-03T01:00:00','FR'), ('u2','a','2026-11-02T02:00:00','FR'),
 ('u3','a','2026-11-02T02:00:00','IT'), ('u4','a','2026-11-02T02:00:00','DE'), ('u5','b','2026-11-02T02:00:00','IT'),
 ('u6','a','2026-11-02T02:00:00','DE'), ('u6','b','2026-11-02T02:00:00','DE'), ('u7','b','2026-11-02T02:00:00','DE'),
 ('u8','b','2026-11-01T02:00:00','DE'));
CREATE TABLE carts AS SELECT column1 AS buyer, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS at, column3 AS kind FROM (VALUES
 ('u1','2026-11-01T23:00:00','cart'), ('u1','2026-11-02T01:00:00','cart'), ('u1','2026-11-04T01:00:00','cart'),
 ('u2','2026-11-02T03:00:00','list'), ('u2','2026-11-03T03:00:00','cart'), ('u3','2026-11-02T01:00:00','cart'),
 ('u5','2026-11-05T00:00:00','cart'), ('u6','2026-11-03T00:00:00','cart'), ('u7','2026-11-04T23:59:59','cart'),
 ('u8','2026-11-03T00:00:00','cart'), (NULL,'2026-11-03T00:00:00','cart'), ('u4',NULL,'cart'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS amount FROM (VALUES
 ('u1','2026-11-02T00:30:00',1.0), ('u1','2026-11-02T01:00:00',2.0), ('u1','2026-11-03T02:00:00',4.0),
 ('u2','2026-11-02T01:00:00',8.0), ('u2','2026-11-02T03:00:00',16.0), ('u2','2026-11-03T04:00:00',32.0), ('u2','2026-11-04T05:00:00',64.0),
 ('u3','2026-11-02T03:00:00',128.0), ('u4','2026-11-04T03:00:00',256.0), ('u5','2026-11-02T03:00:00',512.0),
 ('u7','2026-11-02T03:00:00',1024.0), ('u7','2026-11-04T23:59:59',2048.0), ('u7','2026-11-05T00:00:00',4096.0))";

const DEFINITION: &str = r#"
name = "cart"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
activated_by = { table = "carts", user = "buyer", time = "at", where = "kind = 'cart'" }
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[dimension]]
name = "country"
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
cuped = { pre = "1 day" }
[[metric]]
name = "first day"
type = "mean"
table = "events"
value = "amount"
window = "1 day"
cap = "99 %"
[[metric]]
name = "bought"
type = "proportion"
table = "events"
[[metric]]
name = "kinds"
type = "distinct"
table = "events"
value = "amount"
[[metric]]
name = "middle"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
per = "row"
[[metric]]
name = "middle user"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
"#;

fn run(definition: &str) -> MomentsTable {
    run_over(DATA, definition)
}

fn run_over(data: &str, definition: &str) -> MomentsTable {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(data)).unwrap();
    let experiment = Experiment::parse(definition, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    for statement in block_on(session.moments_sql(&query)).unwrap().split(';') {
        block_on(session.query(statement)).unwrap();
    }
    block_on(session.moments(&query)).unwrap()
}

/// Of a group, the sums of its columns.
fn sums(cell: &Cell, group: usize) -> Vec<f64> {
    (0..cell.groups[group].columns()).map(|column| cell.groups[group].sum(column)).collect()
}

fn cell<'t>(table: &'t MomentsTable, value: Option<&str>, variant: usize) -> &'t Cell {
    let slice = value.map(|value| (0, value.to_owned()));
    table.cells.iter().find(|c| c.slice == slice && c.variant == variant).unwrap()
}

#[test]
fn users_count_from_their_first_activation_after_exposure() {
    let table = run(DEFINITION);
    assert_eq!(table.users_in_many_variants, 1);
    // u1 at once (6.0), u2 a day later (96.0). Before exposure 1 and 8; from exposure on 6 and 112.
    let a = cell(&table, None, 0);
    assert_eq!((a.users, sums(a, 0)), (2, vec![102.0, 9.0, 118.0]));
    // u7 at the very end of the period: one row counts, one came before, one after the end.
    let b = cell(&table, None, 1);
    assert_eq!((b.users, sums(b, 0)), (1, vec![2048.0, 0.0, 3072.0]));
    // Within a day of the activation: 2 and 32; u1's second row came a day and an hour later.
    assert_eq!((sums(a, 1), sums(b, 1)), (vec![34.0], vec![2048.0]));
    assert_eq!(table.caps, [(3, 2048.0)]);
    assert_eq!((sums(a, 2), sums(a, 3)), (vec![2.0], vec![4.0]));
    // Shares and distinct counts, too, are known per day of activation.
    let activated: Vec<(&str, usize, u64)> = table
        .first_exposures
        .iter()
        .map(|(day, arm, users)| (day.as_str(), *arm, *users))
        .collect();
    assert_eq!(activated, [("2026-11-02", 0, 1), ("2026-11-03", 0, 1), ("2026-11-04", 1, 1)]);
    let per_day: Vec<(u64, f64, f64)> = (table.days.iter())
        .map(|day| &day.cells[0])
        .map(|cell| (cell.users, sums(cell, 0)[0], sums(cell, 2)[0]))
        .collect();
    assert_eq!(per_day, [(1, 2.0, 1.0), (2, 38.0, 2.0), (2, 102.0, 2.0)]);
}

#[test]
fn users_who_are_never_activated_are_counted_with_what_they_have_from_exposure_on() {
    let table = run(DEFINITION);
    let [a, b] = table.never_activated.as_slice() else { panic!("a cell per arm") };
    // u3 and u4; u5, whose activation comes at the instant that no longer counts.
    assert_eq!((a.users, sums(a, 0)), (2, vec![0.0, 0.0, 384.0]));
    assert_eq!((b.users, sums(b, 0)), (1, vec![0.0, 0.0, 512.0]));
    assert_eq!(a.groups[0].count(), 2);
    // Countries are of first exposure, and Italy has nobody who was activated.
    let mut countries: Vec<(&str, usize, u64)> = (table.cells.iter())
        .filter_map(|cell| Some((cell.slice.as_ref()?.1.as_str(), cell.variant, cell.users)))
        .filter(|(_, _, users)| *users > 0)
        .collect();
    countries.sort_unstable();
    assert_eq!(countries, [("DE", 0, 1), ("DE", 1, 1), ("FR", 0, 1)]);
    assert!(!table.cells.iter().any(|cell| cell.slice == Some((0, "IT".into()))));
}

#[test]
fn quantiles_are_of_activated_users() {
    let table = run(DEFINITION);
    let of = |quantile: usize, variant: usize| {
        let cell = table.quantiles.iter().find(|cell| {
            cell.quantile == quantile && cell.slice.is_none() && cell.variant == variant
        });
        let cell = cell.unwrap();
        (cell.values, cell.band.unwrap().quantile)
    };
    // Rows 2, 4, 32, 64 of u1 and u2.
    assert_eq!((of(0, 0), of(0, 1)), ((4, 4.0), (1, 2048.0)));
    // 6 and 96.
    assert_eq!((of(1, 0), of(1, 1)), ((2, 6.0), (1, 2048.0)));
}

#[test]
fn without_a_period_every_activation_after_exposure_counts() {
    let timeless = DEFINITION.replace("start = \"2026-11-02\"\nend = \"2026-11-05\"\n", "");
    let table = run(&timeless);
    let users: Vec<u64> = (0..2).map(|arm| cell(&table, None, arm).users).collect();
    // Now u5 and u8 are, too; u8 was exposed before the period.
    assert_eq!(users, [2, 3]);
    let idle: Vec<u64> = table.never_activated.iter().map(|cell| cell.users).collect();
    assert_eq!(idle, [2, 0]);
}

/// By hand: windows of a day are over for u1 and u2, and not for u7, who is activated a second before the
/// end. Who was exposed before the start, too: u2, and u4, who is never activated.
#[test]
fn windows_are_over_by_activation_and_rows_are_left_out_by_exposure() {
    let more = "'DE'), ('u2','a','2026-11-01T06:00:00','FR'), ('u4','a','2026-11-01T07:00:00','IT'), \
                (NULL,'a','2026-11-02T03:00:00','DE'), ('u1','a',NULL,'DE'))";
    let data = DATA.replacen("'DE'))", more, 1);
    let exclusive = "cap = \"99 %\"\nin_progress = \"exclude\"\ndays_since_exposure = 2";
    let table = run_over(&data, &DEFINITION.replace("cap = \"99 %\"", exclusive));
    assert_eq!(table.observed_until.as_deref(), Some("2026-11-05T00:00:00"));
    assert_eq!(table.in_progress, [(1, 1, 1)]);
    let (a, b) = (cell(&table, None, 0), cell(&table, None, 1));
    // The cap is of complete users: 2 and 32.
    assert_eq!((a.users, a.groups[1].count(), sums(a, 1)), (2, 2, vec![34.0]));
    assert_eq!((b.users, b.groups[1].count(), b.groups[0].count()), (1, 0, 1));
    assert_eq!(table.caps, [(3, 32.0)]);
    let of_days: Vec<u64> = table.days.iter().map(|day| day.cells[0].groups[1].count()).collect();
    assert_eq!(of_days, [0, 1, 2]);
    let idle = &table.never_activated[0];
    assert_eq!((idle.users, idle.groups[1].count(), idle.groups[0].count()), (2, 0, 2));
    // The first day is the whole window; the second is not in it.
    let [day] = table.since.as_slice() else { panic!("one day") };
    assert_eq!((day[0].count(), day[0].sum(0), day[1].count()), (2, 34.0, 0));
    let left_out = &table.left_out;
    assert_eq!(left_out.users_exposed_before, Some(2));
    assert_eq!((left_out.exposures_without_user, left_out.exposures_without_time), (1, 1));
    assert_eq!(left_out.no_exposures, None);
}

#[test]
fn nobody_activated_is_not_nobody_exposed() {
    let data = DATA.replacen("('u6','b','2026-11-02T02:00:00','DE'), ", "", 1);
    let table = run_over(&data, &DEFINITION.replace("kind = 'cart'", "kind = 'nothing'"));
    assert_eq!(table.users_in_many_variants, 0);
    assert!(table.cells.iter().all(|cell| cell.users == 0));
    assert_eq!(table.never_activated.iter().map(|cell| cell.users).sum::<u64>(), 7);
    assert_eq!(table.left_out.no_exposures, None);
}
