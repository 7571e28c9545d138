//! What is planted can be found, by the plainest statistics there are.

use std::collections::HashMap;

use super::*;

/// A user's numbers during the experiments (and revenue before them).
#[derive(Clone, Copy, Default)]
struct Totals {
    revenue: f64,
    orders: f64,
    revenue_before: f64,
    load_sum: f64,
    loads: f64,
    events: u32,
}

/// Users per variant of one experiment, without those seen in both.
fn groups(shop: &Shop, experiment: u8) -> ([Vec<u32>; 2], usize) {
    let mut seen: HashMap<u32, u8> = HashMap::new();
    let rows = &shop.exposures;
    for row in 0..rows.user.len() {
        if rows.experiment[row] == experiment {
            *seen.entry(rows.user[row]).or_default() |= 1 << rows.variant[row];
        }
    }
    let of = |bits| {
        let mut users: Vec<u32> =
            seen.iter().filter(|(_, seen)| **seen == bits).map(|(user, _)| *user).collect();
        users.sort_unstable();
        users
    };
    ([of(1), of(2)], of(3).len())
}

fn totals(shop: &Shop) -> Vec<Totals> {
    let mut totals = vec![Totals::default(); shop.user_ids.len()];
    let rows = &shop.events;
    for row in 0..rows.user.len() {
        let user = &mut totals[rows.user[row] as usize];
        let bought = if rows.event[row] == PURCHASE { rows.amount[row] } else { 0.0 };
        user.events += 1;
        if rows.ts_ms[row] < shop.planted.start_ms {
            user.revenue_before += bought;
            continue;
        }
        user.revenue += bought;
        user.orders += f64::from(u8::from(rows.event[row] == PURCHASE));
        user.load_sum += f64::from(rows.load_ms[row]);
        user.loads += f64::from(u8::from(rows.event[row] == PAGE_LOAD));
    }
    totals
}

/// Ratio of sums with its delta-method variance: a mean if all denominators are 1.
fn ratio(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len() as f64;
    let (top, bottom) = pairs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let value = top / bottom;
    let residual: f64 = pairs.iter().map(|(x, y)| (x - value * y).powi(2)).sum();
    (value, residual / (n - 1.0) / n / (bottom / n).powi(2))
}

/// Relative lift of treatment over control and its z score.
fn lift(
    totals: &[Totals],
    groups: &[Vec<u32>; 2],
    metric: impl Fn(&Totals) -> (f64, f64),
) -> (f64, f64) {
    let side = |users: &[u32]| {
        ratio(&users.iter().map(|&user| metric(&totals[user as usize])).collect::<Vec<_>>())
    };
    let ((control, control_var), (treatment, treatment_var)) = (side(&groups[0]), side(&groups[1]));
    let error = (control_var + treatment_var).sqrt();
    (treatment / control - 1.0, (treatment - control) / error)
}

const CONVERSION: fn(&Totals) -> (f64, f64) = |t| (f64::from(u8::from(t.orders > 0.0)), 1.0);
const REVENUE: fn(&Totals) -> (f64, f64) = |t| (t.revenue, 1.0);
const ORDER_VALUE: fn(&Totals) -> (f64, f64) = |t| (t.revenue, t.orders);
const LOAD_TIME: fn(&Totals) -> (f64, f64) = |t| (t.load_sum, t.loads);

/// |z| beyond this is p < 0.01, two-sided.
const P_BELOW_1_PERCENT: f64 = 2.5758;

#[test]
fn planted_effects_show_at_the_default_size_and_seed() {
    let shop = Shop::new(&ShopOptions::default());
    let (totals, planted) = (totals(&shop), &shop.planted);
    let (users, _) = groups(&shop, FREE_SHIPPING);
    for (name, metric, expected) in [
        ("conversion", CONVERSION, planted.conversion_lift),
        ("revenue", REVENUE, planted.revenue_lift),
        ("order value", ORDER_VALUE, planted.order_value_lift),
    ] {
        let (value, z) = lift(&totals, &users, metric);
        println!("free_shipping {name}: {value:+.4} (planted {expected:+.4}), z {z:.2}");
        assert!(z.abs() > P_BELOW_1_PERCENT, "{name}: lift {value}, z {z}");
        // z is about lift / error, so this is three standard errors.
        assert!((value - expected).abs() < 3.0 * (value / z).abs(), "{name}: {value}");
    }
    let (value, z) = lift(&totals, &users, LOAD_TIME);
    println!("free_shipping load time: {value:+.4}, z {z:.2}");
    assert!(z.abs() < 1.96, "load time must not move: {value}, z {z}");
    let platforms = platforms(&shop);
    let by_platform = [MOBILE, 1].map(|platform| {
        let keep = |users: &Vec<u32>| {
            let on_platform = |user: &u32| platforms[*user as usize] == platform;
            users.iter().copied().filter(on_platform).collect::<Vec<u32>>()
        };
        lift(&totals, &[keep(&users[0]), keep(&users[1])], CONVERSION).0
    });
    println!("free_shipping conversion by platform: {by_platform:?}");
    assert!(by_platform[0] > by_platform[1], "mobile is lifted more: {by_platform:?}");
    let (idle, _) = groups(&shop, NEW_CHECKOUT);
    for (name, metric) in [("conversion", CONVERSION), ("revenue", REVENUE)] {
        let (value, z) = lift(&totals, &idle, metric);
        println!("new_checkout {name}: {value:+.4}, z {z:.2}");
        assert!(z.abs() < 1.96, "new_checkout does nothing: {name} {value}, z {z}");
    }
}

fn platforms(shop: &Shop) -> Vec<u8> {
    let mut platforms = vec![u8::MAX; shop.user_ids.len()];
    let rows = &shop.exposures;
    (0..rows.user.len()).for_each(|row| platforms[rows.user[row] as usize] = rows.platform[row]);
    platforms
}

/// Chi-square of an equal split.
fn mismatch(groups: &[Vec<u32>; 2]) -> f64 {
    let (a, b) = (groups[0].len() as f64, groups[1].len() as f64);
    (a - b).powi(2) / (a + b)
}

#[test]
fn only_new_checkout_has_a_sample_ratio_mismatch() {
    let shop = Shop::new(&ShopOptions::default());
    let (healthy, crossed) = groups(&shop, FREE_SHIPPING);
    assert_eq!(crossed as u32, shop.planted.crossed_users[0]);
    assert_eq!(crossed, CROSSED_USERS[0]);
    assert!(mismatch(&healthy) < 6.6, "p > 0.01 expected, chi-square {}", mismatch(&healthy));
    let (broken, crossed) = groups(&shop, NEW_CHECKOUT);
    assert_eq!(crossed, CROSSED_USERS[1]);
    assert!(mismatch(&broken) > 24.0, "p < 1e-6 expected, chi-square {}", mismatch(&broken));
    println!("chi-square: {} and {}", mismatch(&healthy), mismatch(&broken));
    let treated = (broken[1].len() + crossed) as f64;
    let lost = f64::from(shop.planted.lost_users);
    assert!((lost / (lost + treated) - LOST_TREATMENT_SHARE).abs() < 0.004);
}

#[test]
fn buying_before_predicts_buying_during() {
    let shop = Shop::new(&ShopOptions { users: 30_000, ..ShopOptions::default() });
    let totals = totals(&shop);
    let (users, _) = groups(&shop, FREE_SHIPPING);
    let pairs: Vec<(f64, f64)> = users[0]
        .iter()
        .map(|&user| (totals[user as usize].revenue_before, totals[user as usize].revenue))
        .collect();
    let n = pairs.len() as f64;
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>() / n;
    let (before, during) = (mean(&|p| p.0), mean(&|p| p.1));
    let covariance = mean(&|p| (p.0 - before) * (p.1 - during));
    let correlation =
        covariance / (mean(&|p| (p.0 - before).powi(2)) * mean(&|p| (p.1 - during).powi(2))).sqrt();
    println!("correlation of revenue before and during: {correlation:.3}");
    assert!(correlation > 0.35, "CUPED would gain little: correlation {correlation}");
}

#[test]
fn counts_of_the_planted_agree_with_the_rows() {
    let shop = Shop::new(&ShopOptions { users: 5000, ..ShopOptions::default() });
    let totals = totals(&shop);
    let (users, _) = groups(&shop, FREE_SHIPPING);
    let exposed: usize = users.iter().map(Vec::len).sum::<usize>() + CROSSED_USERS[0];
    assert_eq!(exposed as u32 + shop.planted.absent_users, 5000);
    let idle = platforms(&shop)
        .iter()
        .zip(&totals)
        .filter(|(platform, totals)| **platform != u8::MAX && totals.events == 0)
        .count();
    assert_eq!(idle as u32, shop.planted.exposed_without_events);
    assert!(idle > 50);
    assert!(shop.exposures.user.len() > exposed * 2 + 1000, "exposures repeat");
}

#[test]
fn rows_are_sorted_and_within_their_periods() {
    let shop = Shop::new(&ShopOptions { users: 5000, ..ShopOptions::default() });
    let (planted, events) = (&shop.planted, &shop.events);
    assert!(events.ts_ms.is_sorted() && shop.exposures.ts_ms.is_sorted());
    assert!(events.ts_ms[0] >= planted.before_ms);
    assert!(events.ts_ms[events.ts_ms.len() - 1] < planted.end_ms);
    assert!(shop.exposures.ts_ms[0] >= planted.start_ms);
    let mut first: HashMap<u32, i64> = HashMap::new();
    for row in 0..shop.exposures.user.len() {
        if shop.exposures.experiment[row] == FREE_SHIPPING {
            first.entry(shop.exposures.user[row]).or_insert(shop.exposures.ts_ms[row]);
        }
    }
    let during = (0..events.user.len()).filter(|&row| events.ts_ms[row] >= planted.start_ms);
    for row in during {
        assert!(first[&events.user[row]] <= events.ts_ms[row], "nobody acts before exposure");
    }
    assert_eq!(shop, Shop::new(&ShopOptions { users: 5000, ..ShopOptions::default() }));
}
/// One seed can be lucky; ten cannot, so a bias in the planting would show here.
#[test]
fn lifts_average_to_the_planted_values_over_seeds() {
    let mut sums = [0.0; 3];
    let mut variances = [0.0; 3];
    let metrics = [CONVERSION, REVENUE, ORDER_VALUE];
    for seed in 100..110 {
        let shop = Shop::new(&ShopOptions { users: 40_000, seed, ..ShopOptions::default() });
        let (totals, (users, _)) = (totals(&shop), groups(&shop, FREE_SHIPPING));
        for (index, metric) in metrics.into_iter().enumerate() {
            let (value, z) = lift(&totals, &users, metric);
            sums[index] += value / 10.0;
            variances[index] += (value / z).powi(2) / 100.0;
        }
    }
    for (index, expected) in [0.06, 0.0388, -0.02].into_iter().enumerate() {
        let (found, error) = (sums[index], variances[index].sqrt());
        assert!((found - expected).abs() < 3.5 * error, "{found}±{error}, expected {expected}");
    }
}
