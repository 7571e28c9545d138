//! Users whose window is not over, and metrics by days since exposure.

use uplake_experiment::definition::{Cap, InProgress};
use uplake_experiment::query::{Cell, Window};
use uplake_experiment::{Experiment, Moments, MomentsQuery, MomentsTable, Report, analyze, plan};

const DAY_MS: i64 = 86_400_000;

fn parse(top: &str, metrics: &str) -> Result<Experiment, String> {
    let text = format!(
        "name = \"t\"\nstart = \"2026-11-01\"\nend = \"2026-11-15\"\n{top}\n[exposures]\n\
         table = \"exposures\"\nuser = \"user_id\"\nvariant = \"variant\"\ntime = \"ts\"\n\
         [[variant]]\nname = \"control\"\nshare = 0.5\n[[variant]]\nname = \"free\"\nshare = 0.5\n\
         {metrics}"
    );
    Experiment::parse(&text, "t.toml").map_err(|error| error.to_string())
}

fn metric(keys: &str) -> String {
    format!("[[metric]]\nname = \"m\"\ntable = \"events\"\n{keys}\n")
}

fn planned(top: &str, keys: &str) -> MomentsQuery {
    let experiment = parse(top, &metric(keys)).expect("it is right");
    plan(&experiment, &[], None).expect("names exist")
}

const MEAN: &str = "type = \"mean\"\nvalue = \"amount\"";

#[test]
fn what_cannot_be_meant_is_refused() {
    let refused = |top: &str, keys: &str, part: &str| {
        let error = parse(top, &metric(keys)).expect_err(keys);
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    };
    let with = |keys: &str| format!("{MEAN}\n{keys}");
    refused("", &with("in_progress = \"exclude\""), "needs a window that ends");
    let endless = "window = { from = \"1 day\" }\nin_progress = \"include\"";
    refused("", &with(endless), "needs a window that ends");
    refused("in_progress = \"later\"", MEAN, "include, exclude");
    refused("observed_until = \"soon\"", MEAN, "2026-11-01");
    for days in ["0", "61", "2.5", "-1"] {
        refused("", &with(&format!("days_since_exposure = {days}")), "a whole number from 1 to 60");
        refused(&format!("days_since_exposure = {days}"), MEAN, "a whole number from 1 to 60");
    }
    let quantile = "type = \"quantile\"\nvalue = \"ms\"\nlevel = 0.9\ndays_since_exposure = 3";
    refused("", quantile, "has no meaning here");
    let looks = "inference = \"group_sequential\"\nplanned_users = 1000\nlooks = 4";
    let windowed = with("window = \"7 days\"\nin_progress = \"exclude\"");
    refused(looks, &windowed, "plans looks at all users");
    assert!(parse(looks, &metric(&with("window = \"7 days\""))).is_ok());
    // What all metrics share holds where it has a meaning.
    assert!(parse(&format!("in_progress = \"exclude\"\n{looks}"), &metric(MEAN)).is_ok());
}

#[test]
fn a_metric_says_otherwise_than_all() {
    let top = "in_progress = \"exclude\"\ndays_since_exposure = 3";
    let own = "window = \"7 days\"\nin_progress = \"include\"\ndays_since_exposure = 2";
    let metrics = [
        metric(&format!("{MEAN}\nwindow = \"7 days\"")),
        metric(&format!("{MEAN}\n{own}")).replace("\"m\"", "\"own\""),
        metric(MEAN).replace("\"m\"", "\"endless\""),
    ];
    let experiment = parse(top, &metrics.concat()).expect("it is right");
    let found: Vec<(InProgress, u32)> =
        experiment.metrics.iter().map(|m| (m.in_progress, m.days_since_exposure)).collect();
    use InProgress::{Exclude, Include};
    assert_eq!(found, [(Exclude, 3), (Include, 2), (Include, 3)]);
}

#[test]
fn all_numbers_of_a_metric_are_of_complete_users() {
    let keys = format!(
        "{MEAN}\nwindow = \"7 days\"\nin_progress = \"exclude\"\ncuped = {{ pre = \"3 days\" }}"
    );
    let query = planned("", &keys);
    let lengths: Vec<_> = query.columns.iter().map(|column| column.complete_ms).collect();
    assert_eq!(lengths, [Some(7 * DAY_MS); 2]);
    assert_eq!(query.complete_ms(0), Some(7 * DAY_MS));
    let query = planned("", &format!("{MEAN}\nwindow = \"7 days\""));
    assert_eq!((query.complete_ms(0), query.window_end_ms(0)), (None, Some(7 * DAY_MS)));
    assert!(query.needs_end_of_data());
    assert!(!planned("", MEAN).needs_end_of_data());
    // A quantile's numbers are no columns.
    let quantile = "type = \"quantile\"\nvalue = \"ms\"\nlevel = 0.9\nwindow = \"1 day\"";
    let query = planned("in_progress = \"exclude\"", quantile);
    assert_eq!(query.complete_ms(0), Some(DAY_MS));
}

#[test]
fn days_since_exposure_lie_in_the_window_as_a_whole() {
    let days = |keys: &str| -> Vec<u32> {
        let query = planned("days_since_exposure = 4", &format!("{MEAN}\n{keys}"));
        for since in &query.since {
            let column = &query.columns[since.columns[0]];
            let start_ms = i64::from(since.day) * DAY_MS;
            let end_ms = start_ms + DAY_MS;
            assert_eq!(column.window, Some(Window { start_ms, end_ms: Some(end_ms) }));
            assert_eq!((column.complete_ms, since.columns.len()), (Some(end_ms), 1));
        }
        query.since.iter().map(|since| since.day).collect()
    };
    assert_eq!(days(""), [0, 1, 2, 3]);
    assert_eq!(days("window = \"36 hours\""), [0]);
    assert_eq!(days("window = { from = \"36 hours\", to = \"4 days\" }"), [2, 3]);
    assert_eq!(days("window = { from = \"1 day\" }\ncuped = { pre = \"2 days\" }"), [1, 2, 3]);
}

#[test]
fn a_day_is_capped_as_the_whole() {
    let query = planned("days_since_exposure = 2", &format!("{MEAN}\ncap = \"99 %\""));
    let caps: Vec<_> = query.columns.iter().map(|column| column.cap).collect();
    let of_whole = Some(Cap::OfColumn(0));
    assert_eq!(caps, [Some(Cap::Quantile { level: 0.99, zeros: true }), of_whole, of_whole]);
    let query = planned("days_since_exposure = 2", &format!("{MEAN}\ncap = 5"));
    assert!(query.columns.iter().all(|column| column.cap == Some(Cap::Value(5.0))));
}

/// Of 1,000 users an arm the metric leaves 200 and 250 out; each has spent 10 or 11, deviation 4.
fn report(top: &str) -> Report {
    let keys = format!("{MEAN}\nwindow = \"7 days\"");
    let metrics = metric(&keys) + &metric(MEAN).replace("\"m\"", "\"all\"");
    let experiment = parse(top, &metrics).expect("it is right");
    let query = plan(&experiment, &[], None).expect("names exist");
    let arm = |users: u64, mean: f64| Moments::from_summary(users, &[mean], &[16.0]);
    let excluded = query.complete_ms(0).is_some();
    let cell = |variant: usize, left_out: u64, mean: f64| Cell {
        slice: None,
        variant,
        users: 1000,
        groups: vec![arm(if excluded { 1000 - left_out } else { 1000 }, mean), arm(1000, mean)],
    };
    let since = |day: u32| {
        let users = 900 - 100 * u64::from(day);
        vec![arm(users, 5.0), arm(users, 5.0 + 1.0 / f64::from(day + 1))]
    };
    let table = MomentsTable {
        cells: vec![cell(0, 200, 10.0), cell(1, 250, 11.0)],
        observed_until: Some("2026-11-10T08:00:00".into()),
        in_progress: vec![(0, 0, 200), (0, 1, 250)],
        since: query.since.iter().map(|of| since(of.day)).collect(),
        ..MomentsTable::default()
    };
    analyze(&experiment, &query, &table).expect("the table answers the query")
}

#[test]
fn users_in_progress_are_counted_and_said() {
    let report = report("");
    let found = report.metrics[0].in_progress.as_ref().expect("its window has an end");
    assert_eq!((found.excluded, found.users.as_slice()), (false, [200, 250].as_slice()));
    assert_eq!(report.metrics[1].in_progress, None);
    assert_eq!(report.metrics[0].values[0].users, 1000);
    let words =
        "the window of 22.50 % of users (450) is not over; they count with what they did so far.";
    assert_eq!(report.metrics[0].notes, [words]);
    assert!(report.to_text(200, false).contains(words));
    assert!(report.to_html().contains(words));
    assert!(report.to_json().contains("\"observed_until\": \"2026-11-10T08:00:00\""));
}

#[test]
fn users_in_progress_are_left_out_of_their_metric_only() {
    let report = report("in_progress = \"exclude\"");
    let users = |metric: usize| report.metrics[metric].values.iter().map(|value| value.users);
    assert!(users(0).eq([800, 750]) && users(1).eq([1000, 1000]));
    // Arms are compared with their planned shares by everyone.
    assert_eq!((report.arms[0].units, report.arms[1].units), (1000, 1000));
    assert_eq!(report.health.sample_ratio.p, Some(1.0));
    let error = report.metrics[0].comparisons[0].absolute.expect("there is an effect").error;
    assert!((error - (16.0_f64 / 800.0 + 16.0 / 750.0).sqrt()).abs() < 1e-12);
    let words = "22.50 % of users (450), whose window is not over, are left out.";
    assert_eq!(report.metrics[0].notes, [words]);
}

#[test]
fn days_since_exposure_are_shown_where_asked_for() {
    let plain = report("");
    assert!(!plain.to_json().contains("since_exposure"));
    assert!(
        !plain.to_html().contains("ince exposure") && !plain.to_text(100, false).contains("since")
    );
    let report = report("days_since_exposure = 3");
    let since = &report.metrics[0].since_exposure;
    assert_eq!((since.len(), since[0].arm, since[0].points.len()), (1, 1, 3));
    let last = since[0].points[2];
    assert_eq!((last.day, last.users), (2, [700, 700]));
    let effect = last.effect.expect("there is one");
    assert!((effect - 1.0 / 15.0).abs() < 1e-12, "{effect}");
    // SciPy 1.17, brentq: where Welch's t of m2 - (1 + L) m1 is its 97.5 % quantile.
    let (low, high) = (last.low.expect("an end"), last.high.expect("an end"));
    assert!((low + 0.016527262920188416).abs() < 1e-9, "{low}");
    assert!((high - 0.15739447590761543).abs() < 1e-9, "{high}");
    let text = report.to_text(100, false);
    assert!(text.contains("  m, free: day 0 +20.0 % █▅▃ day 2 +6.67 %"), "{text}");
    let page = report.to_html();
    assert!(page.contains("<section id=\"since\"") && page.contains("href=\"#since\""));
    assert!(page.contains("<small>700 users</small>"));
}
