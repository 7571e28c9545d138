//! Strata: against regression by statsmodels, and simulated where they are small.

use crate::answers::{Random, User, close, read, report, single};
use uplake_experiment::Experiment;

const REVENUE: &str = "type = \"mean\"\nvalue = \"revenue\"";
const CUPED: &str = "type = \"mean\"\nvalue = \"revenue\"\ncuped = { pre = \"14 days\" }";

fn stratified(metric: &str) -> Experiment {
    read(&format!(
        "name = \"strata\"\nstratify = \"country\"\n[exposures]\ntable = \"exposures\"\n\
         user = \"user_id\"\nvariant = \"variant\"\ntime = \"ts\"\n[[variant]]\nname = \"A\"\n\
         share = 0.5\n[[variant]]\nname = \"B\"\nshare = 0.5\n[[dimension]]\nname = \"country\"\n\
         [[metric]]\nname = \"m\"\n{metric}"
    ))
}

fn user(random: &mut Random, variant: usize, country: &str) -> User {
    let past = 9.0 - 5.0 * random.uniform().ln();
    let revenue = 0.6 * past - 4.0 * random.uniform().ln();
    User {
        variant,
        slices: [("country".to_owned(), country.to_owned())].into(),
        numbers: [("revenue".to_owned(), revenue), ("pre_revenue".to_owned(), past)].into(),
        ..User::default()
    }
}

/// The rows of docs/statistics/strata.py, and its values: Lin's regression by statsmodels, with HC2 errors and
/// the randomness of the strata's shares.
#[test]
fn strata_of_two_categories_are_an_interacted_regression() {
    let user = |i: u32| {
        let treated = i * 7 % 5 < 2;
        let (country, platform) = (i % 3, i * 11 % 4 / 2);
        let effect = f64::from(u8::from(treated)) * (0.5 + 0.4 * f64::from(country));
        let base = 20.0 + f64::from(3 * country + 2 * platform);
        let revenue = base + f64::from(i * i * 37 % 101) / 20.0 + effect;
        User {
            variant: usize::from(treated),
            slices: [("country".to_owned(), format!("{country}, {platform}"))].into(),
            numbers: [("revenue".to_owned(), revenue)].into(),
            ..User::default()
        }
    };
    let users: Vec<User> = (0..180).map(user).collect();
    let found = report(&stratified(REVENUE), &users);
    let difference = single(&found).1.absolute.expect("an estimate");
    close(difference.value, 0.7030092592592689, 1e-9, "difference");
    close(difference.error, 0.23892419984434415, 1e-9, "error");
}

#[test]
fn strata_of_less_than_twenty_users_are_put_together() {
    let mut random = Random(5);
    let mut small: Vec<User> = (0..200).map(|i| user(&mut random, i % 2, "DE")).collect();
    for (country, count) in [("AT", 19), ("CH", 19), ("FR", 20)] {
        small.extend((0..count).map(|i| user(&mut random, i % 2, country)));
    }
    let found = single(&report(&stratified(REVENUE), &small)).1.absolute;
    let mut together = small.clone();
    for user in &mut together {
        let country = user.slices.get_mut("country").expect("a country");
        if country == "CH" || country == "AT" {
            *country = "CH and AT".into();
        }
    }
    assert_eq!(found, single(&report(&stratified(REVENUE), &together)).1.absolute);
    together.iter_mut().filter(|user| user.slices["country"] == "FR").for_each(|user| {
        user.slices.insert("country".into(), "CH and AT".into());
    });
    assert_ne!(found, single(&report(&stratified(REVENUE), &together)).1.absolute);
}

/// Strata of 6 users, compared one by one, would miss 13 % of A/A tests.
#[test]
fn many_small_strata_keep_the_level() {
    let stratified = stratified(CUPED);
    let rejects = |seed: &u64| {
        let mut random = Random(*seed);
        let users: Vec<User> = (0..600)
            .map(|i| {
                let mut user = user(&mut random, 0, &format!("{}", i / 6));
                user.variant = random.below(2);
                user
            })
            .collect();
        single(&report(&stratified, &users)).1.absolute.expect("an estimate").p < 0.05
    };
    let rejected = (0..400).filter(rejects).count() as f64 / 400.0;
    // Three standard errors are 3.3 points.
    assert!(rejected < 0.083, "{rejected}");
}
