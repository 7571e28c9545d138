//! Clusters, switchbacks, planned assignment and published summaries, by hand.

use uplake_experiment::assignment::{Assignment, System};
use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, OTHERS, plan};

use crate::{block_on, session};

const ARMS: &str = r#"
[[variant]]
name = "a"
share = 0.5
control = true
[[variant]]
name = "b"
share = 0.5
"#;

fn run(data: &str, definition: &str, dimensions: &[String]) -> MomentsTable {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(data)).unwrap();
    let text = format!("{definition}{ARMS}");
    let experiment = Experiment::parse(&text, "t.toml").unwrap();
    let query = plan(&experiment, dimensions, None).unwrap();
    block_on(session.moments(&query)).unwrap()
}

fn cell<'t>(table: &'t MomentsTable, slice: Option<(usize, &str)>, variant: usize) -> &'t Cell {
    let slice = slice.map(|(dimension, value)| (dimension, value.to_owned()));
    table.cells.iter().find(|c| c.slice == slice && c.variant == variant).unwrap()
}

const SHOPS: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
cluster = "shop"
[[dimension]]
name = "country"
[[dimension]]
name = "device"
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
cap = 10
[[metric]]
name = "rate"
type = "ratio"
table = "events"
numerator = { value = "amount" }
denominator = { value = "1" }
"#;

const SHOP_DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts, column4 AS shop, column5 AS country, column6 AS device FROM (VALUES
 ('u1','a','2026-11-02T01:00:00','s1','DE','phone'), ('u1','a','2026-11-03T01:00:00','s2','FR','web'),
 ('u2','a','2026-11-02T02:00:00','s1','FR','web'), ('u3','a','2026-11-03T02:00:00','s2','DE','web'),
 ('u4','b','2026-11-02T02:00:00','s3','DE','web'), ('u5','b','2026-11-02T02:00:00',NULL,'DE','web'),
 ('u6','b','2026-11-02T02:00:00','s1','DE','phone'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS amount FROM (VALUES
 ('u1','2026-11-02T03:00:00',6.0), ('u1','2026-11-03T03:00:00',7.0), ('u2','2026-11-04T03:00:00',4.0),
 ('u3','2026-11-03T03:00:00',5.0), ('u6','2026-11-02T03:00:00',1.0))";

#[test]
fn a_cluster_is_one_unit_of_the_numbers_of_its_users() {
    let dimensions = ["country".to_owned(), "device".to_owned()];
    let table = run(SHOP_DATA, SHOPS, &dimensions);
    // a: s1 has u1 (13, capped at 10) and u2 (4); s2 has u3 (5): u1 stays where it was seen first.
    let a = cell(&table, None, 0);
    assert_eq!((a.users, a.groups[0].count()), (3, 2));
    assert_eq!((a.groups[0].sum(0), a.groups[0].sum(1)), (19.0, 3.0));
    // (14, 2 users) and (5, 1 user).
    assert_eq!(a.groups[0].covariance(0, 1), 4.5);
    // A ratio is not capped: 17 in 3 rows, 5 in 1 row.
    assert_eq!((a.groups[1].sum(0), a.groups[1].sum(1)), (22.0, 4.0));
    assert_eq!(a.groups[1].covariance(0, 0), 72.0);
    // b: s1 in the other arm is a unit of its own, and users without a shop are one together.
    let b = cell(&table, None, 1);
    assert_eq!((b.users, b.groups[0].count(), b.groups[0].sum(0)), (3, 3, 1.0));
    // Germans of arm a: u1 in s1, u3 in s2; French: u2 in s1. On a phone: u1 alone.
    let german = cell(&table, Some((0, "DE")), 0);
    assert_eq!((german.users, german.groups[0].count(), german.groups[0].sum(0)), (2, 2, 15.0));
    let french = cell(&table, Some((0, "FR")), 0);
    assert_eq!((french.users, french.groups[0].count(), french.groups[0].sum(0)), (1, 1, 4.0));
    let phone = cell(&table, Some((1, "phone")), 0);
    assert_eq!((phone.users, phone.groups[0].sum(0)), (1, 10.0));
    // Day by day: s1 6 | + s2 with 5, s1 10 (6 + 7, capped) | s1 14.
    let sums: Vec<(u64, u64, f64)> = table
        .days
        .iter()
        .map(|day| {
            (day.cells[0].users, day.cells[0].groups[0].count(), day.cells[0].groups[0].sum(0))
        })
        .collect();
    assert_eq!(sums, [(2, 1, 6.0), (3, 2, 15.0), (3, 2, 19.0)]);
}

#[test]
fn a_cluster_is_one_unit_of_the_values_that_a_breakdown_puts_together() {
    let mut rows = vec!["('w','b','2026-11-02T01:00:00','s1','c00','web')".to_owned()];
    for country in 0..22 {
        // The first 19 have a second user, so that the last three are put together.
        let shops = if country < 19 { &["s1", "s2"][..] } else { &["s1"] };
        rows.extend(shops.iter().map(|shop| {
            format!("('{country} {shop}','a','2026-11-02T01:00:00','{shop}','c{country:02}','web')")
        }));
    }
    let (exposures, events) = SHOP_DATA.split_once(';').unwrap();
    let before = exposures.split_once("(VALUES").unwrap().0;
    let columns = events.split_once("(VALUES").unwrap().0;
    let data = format!(
        "{before}(VALUES {}); {columns}(VALUES ('19 s1','2026-11-02T03:00:00',1.0),
         ('20 s1','2026-11-03T03:00:00',2.0), ('21 s1','2026-11-03T03:00:00',4.0),
         ('3 s1','2026-11-03T03:00:00',8.0))",
        rows.join(", ")
    );
    let table = run(&data, SHOPS, &["country".to_owned(), "device".to_owned()]);
    assert_eq!(cell(&table, Some((0, "c21")), 0).groups[0].count(), 1);
    let others: Vec<_> = table.others.iter().map(|c| (c.slice.clone(), c.variant)).collect();
    let key = Some((0, OTHERS.to_owned()));
    assert_eq!(others, [(key.clone(), 0), (key, 1)]);
    let others = &table.others[0];
    assert_eq!((others.users, others.groups[0].count()), (3, 1));
    assert_eq!((others.groups[0].sum(0), others.groups[0].sum(1)), (7.0, 3.0));
    assert_eq!((others.groups[1].sum(0), others.groups[1].sum(1)), (7.0, 3.0));
    assert_eq!(table.others[1].users, 0);
}

/// `is_vip` becomes a condition on users.
const CONDITIONS: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
where = "user_id is_vip OR device = 'phone'"
user = "user_id"
variant = "variant"
time = "ts"
[[metric]]
name = "paid"
type = "proportion"
table = "events"
where = "user_id is_vip"
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
where = "amount > 4 OR user_id is_vip"
[[metric]]
name = "rate"
type = "ratio"
table = "events"
numerator = { value = "amount", where = "user_id is_vip" }
denominator = { value = "1" }
[[metric]]
name = "amounts"
type = "distinct"
table = "events"
value = "amount"
where = "user_id is_vip"
[[metric]]
name = "way"
type = "funnel"
table = "events"
steps = [{ name = "any", where = "amount > 0" }, { name = "vip", where = "user_id is_vip" }]
"#;

const ROWS_IN_THE_MIDDLE: &str = r#"
[[metric]]
name = "middle"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
per = "row"
where = "user_id is_vip"
"#;

#[test]
fn a_condition_may_be_a_subquery() {
    let data = format!(
        "{SHOP_DATA}; CREATE TABLE vip AS SELECT column1 AS who, column2 AS gold FROM (VALUES
         ('u1', true), ('u3', true), ('u6', true), ('u2', false), ('u4', false), ('u6', NULL))"
    );
    let figures = |definition: &str, is_vip: &str| -> Vec<String> {
        let table = run(&data, &definition.replace("is_vip", is_vip), &[]);
        let days = table.days.iter().flat_map(|day| &day.cells);
        let cells = table.cells.iter().chain(days).map(|cell| {
            let sums = |m: &Moments| -> Vec<f64> {
                (0..m.columns()).map(|column| m.sum(column)).collect()
            };
            let sums: Vec<_> = cell.groups.iter().map(sums).collect();
            format!("{:?} {} {} {sums:?}", cell.slice, cell.variant, cell.users)
        });
        let quantiles = table.quantiles.iter().map(|q| format!("{} {:?}", q.variant, q.band));
        cells.chain(quantiles).collect()
    };
    let by_shop = CONDITIONS.replacen("time =", "cluster = \"shop\"\ntime =", 1);
    for definition in [&format!("{CONDITIONS}{ROWS_IN_THE_MIDDLE}"), &by_shop] {
        for (subquery, list) in [
            ("IN (SELECT who FROM vip WHERE gold)", "IN ('u1', 'u3', 'u6')"),
            ("NOT IN (SELECT who FROM vip WHERE NOT gold)", "NOT IN ('u2', 'u4')"),
        ] {
            let expected = figures(definition, list);
            assert!(expected.len() >= 6 && expected[0].contains(" 2 ["), "{expected:?}");
            assert_eq!(figures(definition, subquery), expected, "{subquery}");
        }
    }
}

const CITIES: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-03"
[switchback]
region = "city"
every = "4 hours"
[exposures]
table = "exposures"
variant = "variant"
time = "ts"
[[metric]]
name = "trips"
type = "count"
table = "trips"
[[metric]]
name = "fare"
type = "ratio"
table = "trips"
numerator = { value = "fare" }
denominator = { value = "1" }
"#;

const TRIP_DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS city, column2 AS variant, arrow_cast(column3, 'Timestamp(Microsecond, None)') AS ts FROM (VALUES
 ('Bonn','a','2026-11-02T01:00:00'), ('Bonn','a','2026-11-02T03:59:59'), ('Bonn','b','2026-11-02T04:00:00'),
 ('Köln','b','2026-11-02T00:00:00'), ('Köln','a','2026-11-02T05:00:00'), ('Köln','b','2026-11-02T08:00:00'),
 ('Köln','a','2026-11-02T09:00:00'), (NULL,'a','2026-11-02T09:00:00'), ('Bonn','a','2026-11-01T23:59:59'));
CREATE TABLE trips AS SELECT column1 AS city, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS fare FROM (VALUES
 ('Bonn','2026-11-02T00:00:00',5.0), ('Bonn','2026-11-02T02:00:00',7.0), ('Bonn','2026-11-02T04:00:00',1.0),
 ('Bonn','2026-11-01T23:59:00',99.0), ('Köln','2026-11-02T00:30:00',2.0), ('Köln','2026-11-02T03:30:00',2.5),
 ('Köln','2026-11-02T08:30:00',50.0), ('Köln','2026-11-02T12:30:00',60.0))";

#[test]
fn a_switchback_counts_regions_and_stretches_of_time() {
    let table = run(TRIP_DATA, CITIES, &[]);
    // Köln's stretch from 8 to 12 was in both arms; nobody was exposed after it.
    assert_eq!(table.users_in_many_variants, 1);
    assert_eq!(table.users_assigned_otherwise, None);
    // a: Bonn 0-4 (trips before the exposure count: 2 for 12) and Köln 4-8 (none).
    let a = cell(&table, None, 0);
    assert_eq!((a.users, a.groups[0].count(), a.groups[0].sum(0)), (2, 2, 2.0));
    assert_eq!((a.groups[1].sum(0), a.groups[1].sum(1)), (12.0, 2.0));
    // b: Bonn 4-8 (1 for 1) and Köln 0-4 (2 for 4.5).
    let b = cell(&table, None, 1);
    assert_eq!((b.users, b.groups[0].count(), b.groups[0].sum(0)), (2, 2, 3.0));
    assert_eq!(b.groups[1].sum(0), 5.5);
    assert_eq!(table.days.len(), 1);
    assert_eq!(table.days[0].cells[0].groups[1].sum(0), 12.0);
}

#[test]
fn users_in_another_arm_than_planned_are_counted() {
    let data = "CREATE TABLE exposures AS SELECT value AS user_id, \
                CASE WHEN value % 2 = 0 THEN 'a' ELSE 'b' END AS variant FROM generate_series(1, 1000) AS s(value); \
                CREATE TABLE events AS SELECT 1 AS user_id, 1.0 AS amount";
    let definition = r#"
name = "t"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
"#;
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(data)).unwrap();
    let experiment = Experiment::parse(&format!("{definition}{ARMS}"), "t.toml").unwrap();
    let mut query = plan(&experiment, &[], None).unwrap();
    assert_eq!(block_on(session.moments(&query)).unwrap().users_assigned_otherwise, None);
    let assignment =
        Assignment { system: System::GrowthBook { version: 2 }, seed: "s".into(), coverage: 1.0 };
    let otherwise = (1..=1000)
        .filter(|user: &u32| {
            let arm = assignment.arm(&user.to_string(), &[0.5, 0.5]);
            arm != Some(usize::try_from(user % 2).unwrap())
        })
        .count() as u64;
    query.assignment = Some(assignment);
    assert!(otherwise > 300);
    let found = block_on(session.moments(&query)).unwrap();
    assert_eq!(found.users_assigned_otherwise, Some(otherwise));
}
