//! Every day of a cumulative report from one pass over users: the same as one pass per day.

use crate::answers::{Random, User, close, daily, golden, golden_users, read};
use uplake_experiment::{Experiment, Moments, MomentsTable, analyze, plan};

const DAYS: usize = 28;
const COLUMNS: usize = 3;

/// A user's first day and what every later day adds to each column.
fn user(random: &mut Random) -> Vec<(usize, Vec<f64>)> {
    let first = random.below(DAYS as u64);
    // Values near a billion, whose squares cancel in an ordinary float.
    let near_a_billion = random.below(4) == 0;
    let mut changes = vec![(first, Vec::new())];
    let later = (first + 1..DAYS).filter(|_| random.below(3) == 0).collect::<Vec<_>>();
    changes.extend(later.into_iter().map(|day| (day, Vec::new())));
    for (index, (_, more)) in changes.iter_mut().enumerate() {
        let base = if near_a_billion && index == 0 { 1e9 } else { 0.0 };
        *more =
            (0..COLUMNS).map(|_| base + (random.uniform() * 20.0).floor() * 0.25 - 1.0).collect();
    }
    changes
}

/// As of the end of `day`, from the users' numbers of that day alone.
fn anew(users: &[Vec<(usize, Vec<f64>)>], day: usize) -> Moments {
    let mut moments = Moments::new(COLUMNS);
    for changes in users.iter().filter(|changes| changes[0].0 <= day) {
        let mut now = vec![0.0; COLUMNS];
        for (_, more) in changes.iter().filter(|(when, _)| *when <= day) {
            now.iter_mut().zip(more).for_each(|(now, more)| *now += more);
        }
        moments.add(&now);
    }
    moments
}

#[test]
fn twenty_eight_days_from_one_pass_equal_twenty_eight_passes() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let users: Vec<_> = (0..400).map(|_| user(&mut random)).collect();
        let found = daily(&users, COLUMNS, DAYS);
        assert_eq!(found.len(), DAYS);
        for (day, found) in found.iter().enumerate() {
            let expected = anew(&users, day);
            let what = format!("seed {seed}, day {day}");
            assert_eq!(found.count(), expected.count(), "{what}");
            if expected.count() < 2 {
                continue;
            }
            for i in 0..COLUMNS {
                close(found.mean(i), expected.mean(i), 1e-12, &format!("{what}: mean"));
                for j in i..COLUMNS {
                    let (found, expected) = (found.covariance(i, j), expected.covariance(i, j));
                    close(found, expected, 1e-12, &format!("{what}: covariance {i} {j}"));
                }
            }
        }
    }
}

#[test]
fn users_that_return_to_their_old_numbers_leave_no_trace() {
    let mut random = Random(4);
    let mut users: Vec<_> = (0..200).map(|_| user(&mut random)).collect();
    let before = daily(&users, COLUMNS, DAYS);
    for changes in &mut users {
        let day = changes[changes.len() - 1].0;
        changes.push((day, vec![1e9 / 3.0; COLUMNS]));
        changes.push((day, vec![-1e9 / 3.0; COLUMNS]));
    }
    let after = daily(&users, COLUMNS, DAYS);
    for (before, after) in before.iter().zip(&after).skip(1) {
        // 1e9/3 and back moves a number by an ulp of 1e9/3, not of itself: 6e-8.
        close(after.variance(0), before.variance(0), 1e-6, "variance");
    }
}

/// Threads see the users in their own order and take sums about pivots of their own. On the first
/// days nobody has spent: the variance is zero, not what is left of pivots of later days.
#[test]
fn users_split_over_threads_in_any_way_give_the_same_bytes() {
    let days = 6;
    let user = |random: &mut Random| {
        let first = random.below(days as u64);
        let mut spent =
            |day: usize| if day < 3 { 0.0 } else { 0.1 + random.uniform() * 97.0 / 3.0 };
        (first, (first..days).map(&mut spent).collect::<Vec<f64>>())
    };
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut users: Vec<_> = (0..60).map(|_| user(&mut random)).collect();
        let mut figures = |parts: usize| {
            let mut threads = vec![uplake_experiment::DailyMoments::new(1, days); parts];
            for at in (1..users.len()).rev() {
                users.swap(at, random.below(at as u64 + 1));
            }
            for (first, numbers) in &users {
                let thread = &mut threads[random.below(parts as u64)];
                thread.add(*first, &numbers[..1]);
                for (place, pair) in numbers.windows(2).enumerate() {
                    thread.change(first + place + 1, &pair[..1], &pair[1..]);
                }
            }
            let mut whole = vec![Moments::new(1); days];
            for thread in &threads {
                whole.iter_mut().zip(thread.cumulative()).for_each(|(day, more)| day.merge(&more));
            }
            let bits = |day: &Moments| {
                (
                    day.count(),
                    day.mean(0).to_bits(),
                    day.variance(0).to_bits(),
                    day.sum(0).to_bits(),
                )
            };
            whole.iter().map(bits).collect::<Vec<_>>()
        };
        let one = figures(1);
        assert_eq!(f64::from_bits(one[1].2), 0.0, "seed {seed}: nobody has spent");
        for parts in [1, 2, 3, 7] {
            assert_eq!(one, figures(parts), "seed {seed}, {parts} threads");
        }
    }
}

/// A day without a new user or a row is the day before.
#[test]
fn quiet_days_repeat_the_day_before() {
    let users = vec![vec![(2, vec![1.0])], vec![(2, vec![4.0]), (5, vec![3.0])]];
    let found = daily(&users, 1, 8);
    let counts: Vec<u64> = found.iter().map(Moments::count).collect();
    assert_eq!(counts, [0, 0, 2, 2, 2, 2, 2, 2]);
    let means: Vec<f64> = found[2..].iter().map(|moments| moments.mean(0)).collect();
    assert_eq!(means, [2.5, 2.5, 2.5, 4.0, 4.0, 4.0]);
    assert_eq!(found[7].variance(0), 18.0);
}

fn definition(top: &str) -> Experiment {
    read(&format!(
        "name = \"d\"\nstart = \"2026-11-01\"\nend = \"2026-11-15\"\n{top}\n[exposures]\n\
         table = \"e\"\nuser = \"u\"\nvariant = \"v\"\ntime = \"ts\"\n[[variant]]\nname = \"A\"\n\
         share = 0.5\n[[variant]]\nname = \"B\"\nshare = 0.5\n[[metric]]\nname = \"m\"\n\
         type = \"mean\"\nvalue = \"revenue\"\n"
    ))
}

fn answered(experiment: &Experiment, users: &[User], days: usize) -> uplake_experiment::Report {
    let query = plan(experiment, &[], None).expect("no names");
    assert!(query.days);
    let table = crate::answers::answer(&query, users, days);
    analyze(experiment, &query, &table).expect("fits")
}

#[test]
fn the_series_of_a_report_agrees_with_gbstats_day_by_day() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let report = answered(
        &definition("lift = \"delta\"\ninference = \"anytime\"\nplanned_users = 5000"),
        &users,
        14,
    );
    let [series] = &report.metrics[0].series[..] else { panic!("one treatment arm") };
    assert_eq!((series.arm, series.points.len(), report.days.len()), (1, 14, 14));
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let expected = golden["cumulative_revenue_A_vs_B_by_exposure_day"].as_array().expect("days");
    for expected in expected {
        let day = number(&expected["day"]) as usize;
        let point = series.points[day].expect("an estimate");
        let what = format!("day {day}");
        close(point.effect, number(&expected["lift"]), 1e-10, &what);
        close(point.low, number(&expected["ci_fixed"][0]), 1e-9, &what);
        close(point.high, number(&expected["ci_fixed"][1]), 1e-9, &what);
        close(point.anytime_low, number(&expected["cs"][0]), 1e-9, &what);
        close(point.anytime_high, number(&expected["cs"][1]), 1e-9, &what);
        assert!(point.detectable > 0.0 && point.anytime_low < point.low, "{what}");
        close(point.treatment / point.control - 1.0, point.effect, 1e-10, &what);
    }
    // The last day is the report.
    let last = report.metrics[0].comparisons[0].relative.expect("an estimate");
    let point = series.points[13].expect("an estimate");
    assert_eq!((point.anytime_low, point.anytime_high), (last.low, last.high));
}

#[test]
fn days_without_an_estimate_are_absent() {
    let mut users: Vec<User> = golden_like(60);
    users.iter_mut().for_each(|user| user.day = user.day.max(3));
    let report = answered(&definition(""), &users, 14);
    let points = &report.metrics[0].series[0].points;
    assert!(points[..3].iter().all(Option::is_none), "nobody was exposed");
    assert!(points[13].is_some());
    let fixed = report.metrics[0].comparisons[0].relative.expect("an estimate");
    let last = points[13].expect("an estimate");
    assert_eq!((last.low, last.high), (fixed.low, fixed.high));
}

fn golden_like(count: usize) -> Vec<User> {
    let mut random = Random(2);
    let numbers = |random: &mut Random| [("revenue".to_owned(), 9.0 - random.uniform().ln())];
    (0..count)
        .map(|index| User {
            variant: index % 2,
            day: random.below(14),
            numbers: numbers(&mut random).into(),
            ..User::default()
        })
        .collect()
}

#[test]
fn days_that_do_not_fit_the_question_have_no_points() {
    let experiment = definition("");
    let query = plan(&experiment, &[], None).expect("no names");
    let mut table: MomentsTable = crate::answers::answer(&query, &golden_like(60), 14);
    table.days[5].cells[0].groups.clear();
    let report = analyze(&experiment, &query, &table).expect("the whole still fits");
    let points = &report.metrics[0].series[0].points;
    assert!(points[5].is_none() && points[6].is_some());
}
