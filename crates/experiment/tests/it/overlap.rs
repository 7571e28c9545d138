//! Users who are in two experiments: tables of arms, and by how much effects differ.

use uplake_experiment::expression::Expression;
use uplake_experiment::health::independence;
use uplake_experiment::query::{Cell, NOT_THERE, SEVERAL_ARMS};
use uplake_experiment::report::Overlap;
use uplake_experiment::{Experiment, Moments, MomentsQuery, MomentsTable, Report, analyze, plan};

use crate::answers::{close, read};

fn definition(name: &str, more: &str) -> String {
    format!(
        r#"
name = "{name}"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
{more}
[[variant]]
name = "old"
share = 0.5
[[variant]]
name = "new"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
"#
    )
}

fn query(experiment: &Experiment, others: &[&Experiment]) -> MomentsQuery {
    let mut query = plan(experiment, &[], None).expect("no names");
    for other in others {
        query.tell_apart(other).expect("both have users");
    }
    query
}

/// A user: arm, value of the dimension, number.
type User = (usize, &'static str, f64);

fn report(users: &[User]) -> Report {
    let experiment = read(&definition("a", ""));
    let other = read(&definition("b", ""));
    let query = query(&experiment, &[&other]);
    let mut cells: Vec<Cell> = Vec::new();
    for (variant, value, number) in users {
        for slice in [None, Some((0, (*value).to_owned()))] {
            let same = |cell: &Cell| cell.slice == slice && cell.variant == *variant;
            let place = cells.iter().position(same).unwrap_or_else(|| {
                let (slice, groups) = (slice.clone(), vec![Moments::new(1)]);
                cells.push(Cell { slice, variant: *variant, users: 0, groups });
                cells.len() - 1
            });
            cells[place].users += 1;
            cells[place].groups[0].add(&[*number]);
        }
    }
    let table = MomentsTable { cells, ..MomentsTable::default() };
    analyze(&experiment, &query, &table).expect("the table answers the query")
}

fn overlap(report: &Report) -> &Overlap {
    assert_eq!(report.overlaps.len(), 1);
    &report.overlaps[0]
}

/// 600 users in both experiments.
fn planted() -> Vec<User> {
    (0..600u64)
        .map(|i| {
            let (a, b) = (u64::from(i * 37 % 100 < 50), u64::from(i * i % 91 < 30));
            let number = (i * 7919 % 101) as f64 / 10.0
                + (2 * a * (i * 31 % 7)) as f64 / 6.0
                + (b * (i * 17 % 5) + 3 * a * b * (i * 13 % 3)) as f64;
            (a as usize, if b == 1 { "new" } else { "old" }, number)
        })
        .collect()
}

/// statsmodels 0.15: `OLS(y, [1, a, b, a b]).fit(cov_type="HC2")`, whose errors are those of cells with
/// variances of their own; degrees of freedom and p by SciPy's t, as the formula of Satterthwaite.
#[test]
fn an_interaction_is_that_of_a_regression_with_robust_errors() {
    let report = report(&planted());
    let overlap = overlap(&report);
    assert_eq!(overlap.interactions.len(), 1);
    let found = &overlap.interactions[0];
    assert_eq!((found.metric.as_str(), found.arm, found.other_arm), ("spend", 1, 1));
    let estimate = found.difference.expect("an estimate");
    close(estimate.value, 2.973293488390946, 1e-12, "interaction");
    close(estimate.error, 0.5957671025367512, 1e-12, "error");
    close(estimate.df, 358.11272925006034, 1e-9, "degrees of freedom");
    close(estimate.p, 9.407720252885976e-7, 1e-9, "p");
    close(estimate.low, 1.801651697240181, 1e-10, "low end");
    // The only one of the report.
    assert_eq!(found.p_adjusted, Some(estimate.p));
}

/// SciPy: `chi2_contingency(table, correction=False)`.
#[test]
fn arms_of_both_are_counted_and_tested_for_independence() {
    let mut users = planted();
    users.extend((0..40).map(|i| (0, NOT_THERE, f64::from(i % 7))));
    users.extend((0..60).map(|i| (1, NOT_THERE, f64::from(i % 7))));
    users.push((1, SEVERAL_ARMS, 1.0));
    let report = report(&users);
    let overlap = overlap(&report);
    assert_eq!(overlap.users, [[185, 184], [115, 116]]);
    assert_eq!((&overlap.several, &overlap.not_there), (&vec![0, 1], &vec![40, 60]));
    assert_eq!(overlap.users_in_both(), 600);
    let arms = overlap.arms_independent.expect("two arms of each");
    close(arms.chi_square, 0.007039031429275332, 1e-9, "chi-square");
    close(arms.p, 0.93313678568324, 1e-12, "p");
    let presence = overlap.presence_independent.expect("some are not there");
    let expected = independence(&[vec![300, 301], vec![40, 60]]).expect("a table");
    assert_eq!(presence, expected);
    let known = independence(&[vec![300, 300], vec![40, 60]]).expect("a table");
    close(known.chi_square, 3.4313725490196045, 1e-12, "chi-square of presence");
    close(known.p, 0.06396891699082902, 1e-12, "p of presence");
    assert!(!overlap.alarm);
    let text = report.to_text(120, false);
    assert!(text.contains("600 users are also in b"), "{text}");
    assert!(text.contains("The difference of new in new less that in old: +2.973 ["), "{text}");
}

#[test]
fn assignments_that_depend_on_each_other_are_an_alarm() {
    // Everybody who is new here is new there.
    let users: Vec<User> =
        (0..400).map(|i| (i % 2, ["old", "new"][i % 2], (i % 9) as f64)).collect();
    let report = report(&users);
    let overlap = overlap(&report);
    assert!(overlap.alarm && overlap.arms_independent.is_some_and(|test| test.p < 1e-50));
    // Two of the four cells are empty.
    let interaction = &overlap.interactions[0];
    assert_eq!(interaction.difference.map_err(|error| error.code()), Err("empty_arm"));
    assert_eq!(interaction.p_adjusted, None);
    let text = report.to_text(120, false);
    assert!(text.contains("arms and presence there depend on these arms"), "{text}");
}

#[test]
fn whoever_is_not_there_is_no_arm_whose_effect_may_differ() {
    let mut users: Vec<User> = (0..400)
        .map(|i| (i % 2, ["old", "new"][i / 2 % 2], 10.0 + (i * 31 % 17) as f64 / 4.0))
        .collect();
    let same = report(&users);
    // Outside the other experiment the effect is huge.
    users.extend((0..400).map(|i| (i % 2, NOT_THERE, (i % 2 * 50 + i * 31 % 17) as f64)));
    let with_others = report(&users);
    let q = |report: &Report| {
        let [only] = report.breakdowns[0].differences.as_slice() else { panic!("one test") };
        assert_eq!(only.df, 1);
        only.q
    };
    assert_eq!(report_rows(&with_others), [NOT_THERE, "new", "old"]);
    assert_eq!(q(&same), q(&with_others));
}

fn report_rows(report: &Report) -> Vec<&str> {
    assert_eq!(report.breakdowns[0].dimension, "arm in b");
    report.breakdowns[0].rows.iter().map(|row| row.value.as_str()).collect()
}

#[test]
fn a_query_with_another_experiment_reads_its_table_too() {
    let experiment = read(&definition("a", ""));
    let other = definition("b", "").replace("table = \"exposures\"", "table = \"assigned\"");
    let query = query(&experiment, &[&read(&other)]);
    assert_eq!(query.tables(), ["assigned", "events", "exposures"]);
    let of_other = |one: &&Expression| one.place == "[exposures] of experiment `b`";
    let keys = query.expressions.iter().filter(of_other);
    let keys: Vec<(&str, &str)> = keys.map(|one| (one.key.as_str(), one.sql.as_str())).collect();
    assert!(keys.contains(&("variant", "variant")), "{keys:?}");
    assert!(query.expressions.iter().filter(of_other).all(|one| one.table == "assigned"));
}

#[test]
fn regions_and_figures_have_no_overlap_of_users() {
    let users = read(&definition("a", ""));
    let regions = definition("b", "").replace(
        "[[variant]]\nname = \"old\"",
        "[switchback]\nregion = \"city\"\nevery = \"4 hours\"\n[[variant]]\nname = \"old\"",
    );
    let regions = read(&regions);
    for (one, other, name) in [(&users, &regions, "b"), (&regions, &users, "this experiment")] {
        let mut query = plan(one, &[], None).expect("no names");
        let error = query.tell_apart(other).expect_err("no users").to_string();
        assert!(error.starts_with(&format!("{name} has no users of its own")), "{error}");
        assert!(query.others.is_empty());
    }
}
