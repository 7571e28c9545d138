//! The data set is what it says: repeatable, sorted, and distributed as the peers' data was.

use std::collections::HashSet;

use super::*;
use crate::DAY_MS;

fn small() -> XabOptions {
    XabOptions {
        users: 20_000,
        events_per_day: 100_000,
        days: 3,
        products: 50_000,
        rows_per_poi: 20,
        ..XabOptions::default()
    }
}

/// Share of `items` for which `yes` holds.
fn share<T>(items: &[T], yes: impl Fn(&T) -> bool) -> f64 {
    items.iter().filter(|item| yes(item)).count() as f64 / items.len() as f64
}

fn assert_near(what: &str, found: f64, expected: f64, allowed: f64) {
    assert!((found - expected).abs() <= allowed, "{what}: {found}, expected {expected}±{allowed}");
}

#[test]
fn days_repeat_and_differ_by_seed() {
    let day = World::new(&small()).day(1);
    assert_eq!(day, World::new(&small()).day(1));
    let other = World::new(&XabOptions { seed: 8, ..small() }).day(1);
    assert_ne!(day.events.user, other.events.user);
    assert_ne!(day.events.user, World::new(&small()).day(2).events.user);
}

#[test]
fn slices_join_to_the_whole_day() {
    let world = World::new(&small());
    let (plan, day) = (world.plan(2), world.day(2));
    let (mut pages, mut values, mut exposed) = (Vec::new(), Vec::new(), Vec::new());
    for block in (0..plan.event_blocks()).rev() {
        let events = plan.events(block..block + 1);
        pages.splice(0..0, (0..events.page.len()).map(|i| events.page.get(i).to_owned()));
        values.splice(0..0, events.value);
    }
    for block in 0..plan.exposure_blocks() {
        exposed.extend(plan.exposures(block..block + 1).user);
    }
    assert_eq!(pages.len(), plan.event_rows());
    assert!((0..pages.len()).all(|i| pages[i] == day.events.page.get(i)));
    assert_eq!(values, day.events.value);
    assert_eq!(exposed, day.exposures.user);
    assert_eq!(plan.exposure_rows(), exposed.len());
}

#[test]
fn rows_are_sorted_by_time_within_their_day() {
    let world = World::new(&small());
    let day = world.day(2);
    assert_eq!(date_text_of(&day), "2026-03-03");
    let midnight = i64::from(day.events.dt) * DAY_MS;
    for times in [&day.events.ts_ms, &day.exposures.ts_ms] {
        assert!(times.is_sorted());
        assert!(times[0] >= midnight && times[times.len() - 1] < midnight + DAY_MS);
    }
}

fn date_text_of(day: &Day) -> String {
    crate::date_text(day.events.dt)
}

#[test]
fn users_are_distinct_and_distributed() {
    let world = World::new(&small());
    let ids: HashSet<&[u8]> = (0..20_000).map(|i| &world.user_ids.slice(i)[..16]).collect();
    assert_eq!(ids.len(), 20_000);
    for (system, expected) in [0.52, 0.25, 0.15, 0.08].into_iter().enumerate() {
        let found = share(&world.users, |user| usize::from(user.system) == system);
        assert_near(SYSTEMS[system], found, expected, 0.02);
    }
    for experiment in &EXPERIMENTS {
        let users: Vec<Option<u8>> =
            (0..20_000).map(|user| world.variant(experiment, user)).collect();
        let inside: Vec<u8> = users.iter().flatten().copied().collect();
        assert_near("traffic", inside.len() as f64 / 2e4, experiment.traffic, 0.015);
        for variant in 0..experiment.variants {
            let expected = 1.0 / f64::from(experiment.variants);
            let allowed = 5.0 * (expected / inside.len() as f64).sqrt();
            assert_near("variant", share(&inside, |&v| v == variant), expected, allowed);
        }
    }
}

/// Event shares, first city and channel as counted in nine days of bench/gen_xab.py, 200,000 rows
/// a day, seeds 7 and 8; means of duration and value from its formulas.
#[test]
fn events_are_distributed_like_the_peers_data() {
    let world = World::new(&XabOptions { events_per_day: 200_000, ..small() });
    let events = world.day(0).events;
    let rows = events.event.len();
    assert!((200_000..200_060).contains(&rows), "{rows}");
    let expected = [0.4516, 0.1998, 0.1168, 0.0468, 0.0170, 0.0560, 0.0560, 0.0560];
    for (code, expected) in expected.into_iter().enumerate() {
        let found = share(&events.event, |&event| usize::from(event) == code);
        assert_near(EVENTS[code], found, expected, 0.004);
    }
    let mean_duration = events.duration_ms.iter().map(|&d| f64::from(d)).sum::<f64>() / rows as f64;
    assert_near("duration", mean_duration, 2981.0 * (0.72f64).exp(), 150.0);
    let small_values: Vec<f64> =
        (0..rows).filter(|&i| events.event[i] == 0).map(|i| events.value[i]).collect();
    assert_near("value", small_values.iter().sum::<f64>() / small_values.len() as f64, 1.0, 0.02);
    assert_near("first city", share(&events.city, |&city| city == 0), 0.120, 0.02);
    assert_near("first channel", share(&events.channel, |&channel| channel == 0), 0.273, 0.03);
    assert!(events.app_version.iter().all(|&version| (8..21).contains(&version)));
    assert!(events.item_id.iter().all(|item| (1_000_000..1_500_000).contains(item)));
}

#[test]
fn pages_name_their_item_and_shares_their_session() {
    let events = World::new(&small()).day(0).events;
    for row in 0..events.page.len() {
        let page = events.page.get(row);
        let (path, item) = page.split_once(".html?item=").expect("every page has an item");
        assert!(path.starts_with("https://m.example.com/"), "{page}");
        let item = item.split_once("&sid=").map_or(item, |(item, session)| {
            assert_eq!((events.event[row], session.len()), (6, 16), "{page}");
            item
        });
        assert_eq!(item.parse(), Ok(events.item_id[row]));
    }
}

#[test]
fn exposures_show_running_experiments_and_the_users_variant() {
    let world = World::new(&small());
    let exposures = world.day(0).exposures;
    for row in 0..exposures.user.len() {
        let id = exposures.exp_id[row];
        let experiment = EXPERIMENTS.iter().find(|e| e.id == id).expect("a known experiment");
        assert_eq!(experiment.first_day, 0);
        let variant = world.variant(experiment, exposures.user[row]).map(i32::from);
        assert_eq!(variant, Some(exposures.variant[row]));
    }
    assert!(world.day(2).exposures.exp_id.contains(&106), "106 starts on day 2");
    // Expected per session: the sum of traffic times exposure rate over running experiments.
    let sessions = world.plan(0).sessions_drawn() as f64;
    let rate: f64 =
        EXPERIMENTS.iter().filter(|e| e.first_day == 0).map(|e| e.traffic * e.exposure_rate).sum();
    assert_near("exposures", exposures.user.len() as f64 / sessions, rate, 0.02);
}

#[test]
fn products_are_sorted_complete_and_the_same_in_any_cut() {
    let world = World::new(&small());
    let products = world.products();
    let whole = products.chunk(0..products.blocks());
    assert_eq!(whole.poi_id.len(), 50_000);
    let key = |row: usize| (whole.city_id[row], whole.geohash.get(row), whole.poi_id[row]);
    assert!((1..50_000).all(|row| key(row - 1) <= key(row)));
    let last = products.chunk(products.blocks() - 1..products.blocks());
    let start = 50_000 - last.price.len();
    assert_eq!(last.price[..], whole.price[start..]);
    assert_eq!(last.poi_id[..], whole.poi_id[start..]);
    assert!(last.spu_name.get(3) == whole.spu_name.get(start + 3));
    let pois: HashSet<i64> = whole.poi_id.iter().copied().collect();
    assert_eq!(pois.len(), 2500, "every poi has a row and its own id");
    assert_near("price", whole.price.iter().sum::<f64>() / 5e4, (3.2 + 0.245f64).exp(), 1.0);
}

#[test]
fn params_agree_with_the_data() {
    let world = World::new(&small());
    let params = world.params();
    assert_eq!(params.days, ["2026-03-01", "2026-03-02", "2026-03-03"]);
    assert_eq!((params.exp, params.exps[11]), (101, (112, 2, 0)));
    let products = world.products();
    let rows = products.chunk(0..products.blocks());
    assert_eq!(rows.city_id.iter().filter(|&&city| city == 1).count(), params.city1_rows);
    assert!(params.poi_ids.is_sorted());
    assert_eq!(params.poi_ids.len(), params.city1_pois.min(10_000));
    assert!((0..20_000).any(|user| world.user_ids.get(user) == params.point_user));
}
