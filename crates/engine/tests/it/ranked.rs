//! Caps and quantiles against sorting in memory.

use std::collections::BTreeMap;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use uplake_engine::Session;
use uplake_experiment::quantile::ranks;
use uplake_experiment::{Experiment, Moments, plan};

use crate::{block_on, session};

const DEFINITION: &str = r#"
name = "t"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
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
cap = "90 %"
[[metric]]
name = "p75 of users"
type = "quantile"
table = "events"
value = "amount"
level = 0.75
[[metric]]
name = "p90 of events"
type = "quantile"
table = "events"
value = "amount"
level = 0.9
per = "row"
[[dimension]]
name = "country"
"#;

const DATA: &str = "
CREATE TABLE exposures AS SELECT value AS user_id, CASE WHEN value % 2 = 0 THEN 'a' ELSE 'b' END AS variant,
  CASE WHEN value % 7 = 0 THEN NULL WHEN value % 3 = 0 THEN 'D''E' ELSE 'FR' END AS country FROM generate_series(1, 900) AS s(value);
CREATE TABLE events AS SELECT (value * 104729) % 1000 AS user_id,
  CASE WHEN value % 13 = 0 THEN NULL ELSE CAST((value * 7907) % 1009 AS DOUBLE) / 7.0 - 3.0 END AS amount
  FROM generate_series(1, 2500) AS s(value)";

/// Variant, country, and values per exposed user.
fn users(session: &Session) -> Vec<(usize, String, Vec<f64>)> {
    let mut users = BTreeMap::new();
    let sql = "SELECT user_id, variant, coalesce(country, '(null)') FROM exposures";
    for batch in block_on(session.query(sql)).unwrap() {
        let text = |i: usize| {
            let text = datafusion::arrow::compute::cast(
                batch.column(i),
                &datafusion::arrow::datatypes::DataType::Utf8,
            );
            text.unwrap().as_string::<i32>().clone()
        };
        let (ids, arms, countries) =
            (batch.column(0).as_primitive::<Int64Type>(), text(1), text(2));
        for row in 0..batch.num_rows() {
            let arm = usize::from(arms.value(row) == "b");
            users.insert(ids.value(row), (arm, countries.value(row).to_owned(), Vec::new()));
        }
    }
    let sql = "SELECT CAST(user_id AS BIGINT), amount FROM events WHERE amount IS NOT NULL";
    for batch in block_on(session.query(sql)).unwrap() {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let amounts = batch.column(1).as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            if let Some((_, _, values)) = users.get_mut(&ids.value(row)) {
                values.push(amounts.value(row));
            }
        }
    }
    users.into_values().collect()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

#[test]
fn caps_and_quantiles_are_values_at_their_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    let table = block_on(session.moments(&query)).unwrap();
    let users = users(&session);

    let sums = sorted(users.iter().map(|(_, _, values)| values.iter().sum()));
    let cap = sums[(0.9 * sums.len() as f64).ceil() as usize - 1];
    assert_eq!(table.caps.len(), 1);
    assert!(near(table.caps[0].1, cap), "{:?} {cap}", table.caps);
    let capped = |of: &f64| of.min(cap);
    let cell = &table.cells[0];
    let of_arm = users.iter().filter(|(arm, _, _)| *arm == 0);
    let mean =
        of_arm.clone().map(|(_, _, v)| capped(&v.iter().sum())).sum::<f64>() / cell.users as f64;
    assert!((cell.groups[0].mean(0) - mean).abs() < 1e-10);

    assert_eq!(
        table.quantiles.len(),
        2 * 2 * 4,
        "two quantiles, two arms, everyone and three values"
    );
    for found in &table.quantiles {
        let of = |(arm, country, _): &&(usize, String, Vec<f64>)| {
            *arm == found.variant && found.slice.as_ref().is_none_or(|(_, value)| value == country)
        };
        let inside: Vec<_> = users.iter().filter(of).collect();
        let per_row = query.quantiles[found.quantile].per_row;
        let values = if per_row {
            sorted(inside.iter().flat_map(|(_, _, values)| values.iter().copied()))
        } else {
            sorted(inside.iter().map(|(_, _, values)| values.iter().sum()))
        };
        assert_eq!(found.values, values.len() as u64, "{found:?}");
        let ranks = ranks(found.values, query.quantiles[found.quantile].level).unwrap();
        let band = found.band.unwrap();
        let at = |rank: u64| values[rank as usize - 1];
        assert!(near(band.low, at(ranks.low)), "{found:?}");
        assert!(near(band.quantile, at(ranks.quantile)), "{found:?}");
        assert!(near(band.high, at(ranks.high)), "{found:?}");
        assert_eq!(found.clusters.is_some(), per_row);
        let Some(clusters) = &found.clusters else { continue };
        let mut expected = Moments::new(2);
        for (_, _, values) in inside.iter().filter(|(_, _, values)| !values.is_empty()) {
            let below = values.iter().filter(|value| **value <= band.quantile).count();
            expected.add(&[below as f64, values.len() as f64]);
        }
        assert_eq!(clusters.count(), expected.count());
        for (i, j) in [(0, 0), (0, 1), (1, 1)] {
            assert!(near(clusters.covariance(i, j), expected.covariance(i, j)), "{found:?}");
        }
    }
}

/// Everything that is printed for people parses and runs.
#[test]
fn the_sql_of_a_report_runs() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let experiment = Experiment::parse(DEFINITION, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    let sql = block_on(session.moments_sql(&query)).unwrap();
    let statements = uplake_engine::parse(&sql).unwrap();
    assert_eq!(statements.len(), 7, "{sql}");
    assert_eq!(sql.matches("\n\n-- ").count() + 1, statements.len(), "a comment each");
    for statement in &statements {
        let rows = block_on(session.query(&statement.text)).unwrap();
        assert!(rows.iter().any(|batch| batch.num_rows() > 0), "{}", statement.text);
    }
}
