//! Users in other experiments, and users whom a definition excludes, by hand.

use uplake_engine::{Session, SessionOptions};
use uplake_experiment::{Experiment, MomentsQuery, MomentsTable, plan};
use uplake_table::Lake;

use crate::{block_on, options, session};

/// Experiment 1 is reported. u1 to u8 are in it; what they are in 2 and in the holdout:
/// u1 arm x, u2 arm y, u3 nothing, u4 both arms, u5 arm x but after the other's end, u6 an arm without a
/// name, u7 a holdout, u8 a holdout and arm y.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS user_id, column2 AS exp, column3 AS variant, arrow_cast(column4, 'Timestamp(Microsecond, None)') AS ts FROM (VALUES
 ('u1',1,'a','2026-11-02T01:00:00'), ('u2',1,'a','2026-11-02T02:00:00'), ('u3',1,'a','2026-11-03T01:00:00'),
 ('u4',1,'b','2026-11-02T01:00:00'), ('u5',1,'b','2026-11-02T01:00:00'), ('u6',1,'b','2026-11-02T01:00:00'),
 ('u7',1,'a','2026-11-02T01:00:00'), ('u8',1,'b','2026-11-02T01:00:00'), ('u8',1,'a','2026-11-02T05:00:00'),
 ('u1',2,'1','2026-11-02T00:00:00'), ('u1',2,'1','2026-11-04T00:00:00'), ('u2',2,'2','2026-11-04T00:00:00'),
 ('u4',2,'1','2026-11-02T00:00:00'), ('u4',2,'2','2026-11-03T00:00:00'), ('u5',2,'1','2026-11-05T00:00:00'),
 ('u6',2,'3','2026-11-02T00:00:00'), ('u8',2,'2','2026-11-02T00:00:00'), ('u9',2,'2','2026-11-02T00:00:00'));
CREATE TABLE holdout AS SELECT column1 AS uid, column2 AS quarter FROM (VALUES ('u7', 4), ('u8', 4), ('u1', 3), (NULL, 4), ('u7', 4));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS amount FROM (VALUES
 ('u1','2026-11-02T03:00:00',1.0), ('u2','2026-11-02T03:00:00',2.0), ('u3','2026-11-03T03:00:00',4.0),
 ('u4','2026-11-03T03:00:00',8.0), ('u5','2026-11-02T03:00:00',16.0), ('u6','2026-11-02T03:00:00',32.0),
 ('u7','2026-11-02T03:00:00',64.0), ('u8','2026-11-02T03:00:00',128.0))";

fn experiment(number: u32, exposures: &str, values: [&str; 2], names: [&str; 2]) -> Experiment {
    let arm = |i: usize| {
        format!("[[variant]]\nname = \"{}\"\nvalue = \"{}\"\nshare = 0.5\n", names[i], values[i])
    };
    let text = format!(
        r#"
name = "e{number}"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "exp = {number}"
{exposures}
{}{}
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
cap = "99 %"
[[metric]]
name = "middle"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
per = "row"
"#,
        arm(0),
        arm(1)
    );
    Experiment::parse(&text, "t.toml").unwrap()
}

/// By the scan that experiments share, and by SQL.
fn answers(query: &MomentsQuery) -> [MomentsTable; 2] {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let fast = block_on(session.moments(query)).unwrap();
    // The statement that people are shown runs, too.
    for statement in block_on(session.moments_sql(query)).unwrap().split(';') {
        block_on(session.query(statement)).unwrap();
    }
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let without = SessionOptions { use_indexes: false, ..options(1 << 30, 2) };
    let by_sql = Session::new(lake, &without).unwrap();
    let slow = block_on(by_sql.moments(query)).unwrap();
    [fast, slow]
}

/// Users and their sum, per value of the dimension (or everyone) and arm.
fn sums(table: &MomentsTable) -> Vec<(&str, usize, u64, f64)> {
    let mut found: Vec<_> = (table.cells.iter())
        .filter(|cell| cell.users > 0)
        .map(|cell| {
            let value = cell.slice.as_ref().map_or("", |(_, value)| value.as_str());
            (value, cell.variant, cell.users, cell.groups[0].sum(0))
        })
        .collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    found
}

#[test]
fn arms_in_another_experiment_are_a_dimension() {
    let mut query = plan(&experiment(1, "", ["a", "b"], ["a", "b"]), &[], None).unwrap();
    query.tell_apart(&experiment(2, "", ["1", "2"], ["x", "it's y"])).unwrap();
    for table in answers(&query) {
        assert_eq!(
            sums(&table),
            [
                ("", 0, 4, 71.0),
                ("", 1, 3, 56.0),
                ("(not in it)", 0, 2, 68.0),
                ("(not in it)", 1, 2, 48.0),
                ("(several)", 1, 1, 8.0),
                ("it's y", 0, 1, 2.0),
                ("x", 0, 1, 1.0),
            ]
        );
        assert_eq!(table.users_in_many_variants, 1);
        let values = table.quantiles.iter().filter(|cell| cell.slice.is_some()).count();
        assert_eq!(values, 5, "quantiles are told apart, too");
    }
}

#[test]
fn users_who_are_found_in_a_holdout_are_left_out() {
    let exclude = r#"exclude = [{ table = "holdout", user = "uid", where = "quarter = 4" }, { table = "exposures", where = "exp = 2 AND variant <> '1'" }]"#;
    let query = plan(&experiment(1, exclude, ["a", "b"], ["a", "b"]), &[], None).unwrap();
    for table in answers(&query) {
        // u7 and u8 are in the holdout, u2, u4 and u6 (and u8) in the second.
        assert_eq!(sums(&table), [("", 0, 2, 5.0), ("", 1, 1, 16.0)]);
        assert_eq!(table.users_excluded, [2, 3]);
        // u8 would be in both arms.
        assert_eq!((table.users_in_many_variants, table.unknown_variants.len()), (0, 0));
        let exposed: u64 = table.first_exposures.iter().map(|(_, _, users)| users).sum();
        assert_eq!(exposed, 3);
        // Of nobody else: the cap of all is 16.
        assert_eq!(table.caps, [(0, 16.0)]);
        let quantiles: Vec<_> = table.quantiles.iter().map(|cell| cell.values).collect();
        assert_eq!(quantiles, [2, 1]);
    }
}
