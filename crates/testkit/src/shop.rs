//! A shop's A/B test whose true effects are known, for the demo and for checks of the report.
//!
//! Two experiments run over the same customers for `days` days, after an equally long period
//! without them. `free_shipping` is healthy: more customers buy, for a little less each, and the
//! more so on mobile. `new_checkout` does nothing, but loses the exposures of some of its treatment
//! users, as a crash before logging would. [`Planted`] has every true value.
//!
//! How a customer buys: with a probability of their own (very unequal between customers), they are
//! a buyer in a period; a buyer places 1 to 3 orders in sessions of theirs, of amounts around a
//! level of their own. Treatment multiplies the probability and the amounts. So buying before the
//! experiment predicts buying during it, which gives CUPED something to use.
//!
//! # Invariants
//! - Rows are sorted by time, then by user; nobody acts in the experiment before being exposed.
//! - A customer's rows depend on the seed and their index only.
//!
//! # Not here
//! Statistics beyond what the tests need to show that the effects can be found.

use crate::random::{Alias, Random, mix};
use crate::strings::push_hex;
use crate::{DAY_MS, Strings};

/// Names of the experiment codes.
pub const EXPERIMENTS: [&str; 2] = ["free_shipping", "new_checkout"];
/// Names of the variant codes.
pub const VARIANTS: [&str; 2] = ["control", "treatment"];
/// Names of the event codes.
pub const EVENTS: [&str; 5] = ["view", "add_to_cart", "purchase", "refund", "page_load"];
/// Names of the country codes, with [`COUNTRY_SHARES`].
pub const COUNTRIES: [&str; 6] = ["US", "DE", "FR", "GB", "JP", "BR"];
/// Share of customers per country.
pub const COUNTRY_SHARES: [f64; 6] = [0.34, 0.20, 0.16, 0.14, 0.09, 0.07];
/// Names of the platform codes.
pub const PLATFORMS: [&str; 2] = ["mobile", "desktop"];

const FREE_SHIPPING: u8 = 0;
const NEW_CHECKOUT: u8 = 1;
const VIEW: u8 = 0;
const ADD_TO_CART: u8 = 1;
const PURCHASE: u8 = 2;
const REFUND: u8 = 3;
const PAGE_LOAD: u8 = 4;
const MOBILE: u8 = 0;

const MOBILE_SHARE: f64 = 0.6;
/// Relative change of the probability to buy under `free_shipping`, per platform. With 60 % of
/// customers on mobile the average is 0.6 x 8 % + 0.4 x 3 % = 6 %.
const CONVERSION_LIFTS: [f64; 2] = [0.08, 0.03];
const ORDER_VALUE_LIFT: f64 = -0.02;
/// Nobody buys with a higher probability untreated, so that the treated one stays below 1.
const MAX_BUY_PROBABILITY: f64 = 0.9;
const LOST_TREATMENT_SHARE: f64 = 0.04;
/// Visitors who are exposed and leave before their first event, in both periods.
const BOUNCER_SHARE: f64 = 0.03;
const CROSSED_USERS: [usize; 2] = [37, 21];
const MAX_USERS: u32 = 10_000_000;
const MAX_DAYS: u32 = 365;

/// The size of the test and its seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopOptions {
    /// Customers, exposed or not. Up to 10 million; effects are sure to show from 120,000.
    pub users: u32,
    /// Days of the experiments, and as many before. Up to 365.
    pub days: u32,
    /// Shops of different seeds share nothing.
    pub seed: u64,
    /// First day of the experiments, counted from 1970-01-01.
    pub first_day: i32,
}

impl Default for ShopOptions {
    fn default() -> Self {
        // Seed 14 draws estimates near the planted values (+6.1 %, +3.7 %, -2.0 %), as most seeds
        // do; seed 7 for one shows +7.8 % conversion. The first day is 2026-03-15.
        Self { users: 120_000, days: 14, seed: 14, first_day: 20_527 }
    }
}

/// The shop's data and the truth about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shop {
    /// Dictionary of user ids: 16 hexadecimal digits, by user index.
    pub user_ids: Strings,
    /// Who met which variant when, sorted by time.
    pub exposures: Exposures,
    /// What customers did before and during the experiments, sorted by time.
    pub events: Events,
    /// The true values.
    pub planted: Planted,
}

/// Exposure rows; a user's first row per experiment is the exposure, later ones repeat it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposures {
    /// Milliseconds since 1970-01-01, UTC.
    pub ts_ms: Vec<i64>,
    /// Index into [`Shop::user_ids`].
    pub user: Vec<u32>,
    /// Code in [`EXPERIMENTS`].
    pub experiment: Vec<u8>,
    /// Code in [`VARIANTS`].
    pub variant: Vec<u8>,
    /// Code in [`COUNTRIES`].
    pub country: Vec<u8>,
    /// Code in [`PLATFORMS`].
    pub platform: Vec<u8>,
}

/// Event rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    /// Milliseconds since 1970-01-01, UTC.
    pub ts_ms: Vec<i64>,
    /// Index into [`Shop::user_ids`].
    pub user: Vec<u32>,
    /// Code in [`EVENTS`].
    pub event: Vec<u8>,
    /// Money paid (`purchase`) or paid back (`refund`), both positive; 0 for other events.
    pub amount: Vec<f64>,
    /// Time a page took to load (`page_load`), milliseconds; 0 for other events.
    pub load_ms: Vec<i32>,
    /// Code in [`COUNTRIES`].
    pub country: Vec<u8>,
    /// Code in [`PLATFORMS`].
    pub platform: Vec<u8>,
}

/// The true values a report of the shop should find. Lifts are relative: 0.06 means +6 %.
#[derive(Debug, Clone, PartialEq)]
pub struct Planted {
    /// Start of the experiments and end of the period before, milliseconds since 1970-01-01.
    pub start_ms: i64,
    /// End of the experiments, exclusive.
    pub end_ms: i64,
    /// Start of the period before.
    pub before_ms: i64,
    /// `free_shipping`: share of users with at least one purchase.
    pub conversion_lift: f64,
    /// The same per platform code.
    pub conversion_lift_by_platform: [f64; 2],
    /// `free_shipping`: mean amount of a purchase.
    pub order_value_lift: f64,
    /// `free_shipping`: purchase amounts per exposed user.
    pub revenue_lift: f64,
    /// `free_shipping`: page load time.
    pub load_time_lift: f64,
    /// `new_checkout`: share of treatment users whose exposures were lost.
    pub lost_treatment_share: f64,
    /// Per experiment code: users with exposures in both variants.
    pub crossed_users: [u32; 2],
    /// Customers without any exposure or event in the experiments' period.
    pub absent_users: u32,
    /// Users exposed to `free_shipping` who have no event at all.
    pub exposed_without_events: u32,
    /// `new_checkout`: treatment users whose exposures were lost.
    pub lost_users: u32,
}

impl Shop {
    /// Makes the shop (about 0.5 s for 120,000 users).
    ///
    /// # Panics
    /// If there are fewer than 1,000 or more than 10 million users, or not 1 to 365 days.
    #[must_use]
    pub fn new(options: &ShopOptions) -> Self {
        let users = options.users;
        assert!((1000..=MAX_USERS).contains(&users), "users: 1,000 to {MAX_USERS}, got {users}");
        assert!((1..=MAX_DAYS).contains(&options.days), "days: 1 to {MAX_DAYS}");
        let mut user_ids = Strings::with_capacity(users as usize, users as usize * 16);
        for user in 0..u64::from(users) {
            push_hex(&mut user_ids.bytes, &[mix(user ^ mix(options.seed))], 16);
            user_ids.close();
        }
        let mut story = Story::new(options);
        (0..users).for_each(|user| story.live(user));
        Self {
            user_ids,
            planted: story.planted(),
            exposures: exposures(story.exposures),
            events: events(story.events),
        }
    }
}

/// A customer, drawn once and the same in both periods.
struct Customer {
    index: u32,
    country: u8,
    platform: u8,
    variants: [u8; 2],
    bounces: bool,
    /// Probability to buy in a period, untreated.
    buy: f64,
    /// Mean of the sessions in a period beyond the first.
    extra_sessions: f64,
    /// Natural logarithm of the median order amount.
    spend: f64,
    /// Natural logarithm of the median load time.
    load: f64,
}

struct ExposureRow {
    ts_ms: i64,
    user: u32,
    experiment: u8,
    variant: u8,
    country: u8,
    platform: u8,
}

struct EventRow {
    ts_ms: i64,
    user: u32,
    event: u8,
    amount: f64,
    load_ms: i32,
    country: u8,
    platform: u8,
}

/// Plays the customers one after the other and collects their rows.
struct Story {
    options: ShopOptions,
    hours: Alias,
    countries: Alias,
    exposures: Vec<ExposureRow>,
    events: Vec<EventRow>,
    crossed: [usize; 2],
    absent: u32,
    bounced: u32,
    lost: u32,
}

impl Story {
    fn new(options: &ShopOptions) -> Self {
        let hours = [
            2., 1., 1., 1., 1., 1., 2., 4., 5., 5., 5., 6., 7., 6., 5., 5., 5., 6., 7., 8., 9., 9.,
            7., 4.,
        ];
        Self {
            options: options.clone(),
            hours: Alias::new(&hours),
            countries: Alias::new(&COUNTRY_SHARES),
            exposures: Vec::new(),
            events: Vec::new(),
            crossed: [0; 2],
            absent: 0,
            bounced: 0,
            lost: 0,
        }
    }

    fn start_ms(&self) -> i64 {
        i64::from(self.options.first_day) * DAY_MS
    }

    fn period_ms(&self) -> i64 {
        i64::from(self.options.days) * DAY_MS
    }

    fn planted(&self) -> Planted {
        let conversion_lift =
            MOBILE_SHARE * CONVERSION_LIFTS[0] + (1.0 - MOBILE_SHARE) * CONVERSION_LIFTS[1];
        Planted {
            start_ms: self.start_ms(),
            end_ms: self.start_ms() + self.period_ms(),
            before_ms: self.start_ms() - self.period_ms(),
            conversion_lift,
            conversion_lift_by_platform: CONVERSION_LIFTS,
            order_value_lift: ORDER_VALUE_LIFT,
            revenue_lift: (1.0 + conversion_lift) * (1.0 + ORDER_VALUE_LIFT) - 1.0,
            load_time_lift: 0.0,
            lost_treatment_share: LOST_TREATMENT_SHARE,
            crossed_users: self.crossed.map(|count| count as u32),
            absent_users: self.absent,
            exposed_without_events: self.bounced,
            lost_users: self.lost,
        }
    }

    /// Both periods of one customer.
    fn live(&mut self, index: u32) {
        let mut random = Random::stream(self.options.seed, u64::from(index) + 1);
        let customer = self.customer(index, &mut random);
        // Most customers come in either period; who comes in one is more likely to in the other.
        let loyal = random.chance(0.8);
        for (start, treated) in
            [(self.start_ms() - self.period_ms(), false), (self.start_ms(), true)]
        {
            let visits = random.chance(if loyal { 0.96 } else { 0.76 });
            if visits {
                self.period(&customer, start, treated, &mut random);
            } else if treated {
                self.absent += 1;
            }
        }
    }

    fn customer(&self, index: u32, random: &mut Random) -> Customer {
        let platform = u8::from(!random.chance(MOBILE_SHARE));
        let interest = random.normal(0.0, 1.0);
        let odds = (-0.8 + 3.5 * interest).exp();
        Customer {
            index,
            country: self.countries.sample(random) as u8,
            platform,
            variants: [u8::from(random.chance(0.5)), u8::from(random.chance(0.5))],
            bounces: random.chance(BOUNCER_SHARE),
            buy: (odds / (1.0 + odds)).min(MAX_BUY_PROBABILITY),
            extra_sessions: (0.3 * interest).exp(),
            spend: 3.6 + random.normal(0.0, 0.4),
            load: if platform == MOBILE { 7.0 } else { 6.6 } + random.normal(0.0, 0.2),
        }
    }

    /// One period of a customer: sessions, orders among them, and exposures if `treated`.
    fn period(&mut self, customer: &Customer, start: i64, treated: bool, random: &mut Random) {
        let count = random.geometric(1.0 / (1.0 + customer.extra_sessions)).min(12);
        let mut sessions: Vec<i64> = (0..count)
            .map(|_| {
                let day = random.below(u64::from(self.options.days)) as i64;
                let hour = self.hours.sample(random) as i64;
                start + day * DAY_MS + hour * 3_600_000 + random.below(3_540_000) as i64
            })
            .collect();
        sessions.sort_unstable();
        if treated {
            self.expose(customer, &sessions, random);
        }
        if customer.bounces {
            self.bounced += u32::from(treated);
            return;
        }
        let free_shipping = treated && customer.variants[usize::from(FREE_SHIPPING)] == 1;
        let lift = CONVERSION_LIFTS[usize::from(customer.platform)];
        let probability = customer.buy * if free_shipping { 1.0 + lift } else { 1.0 };
        // Drawn for everybody, so that treatment moves no other number of the customer.
        let (buys, orders) = (random.chance(probability), random.unit());
        let orders = if !buys { 0 } else { 1 + u32::from(orders > 0.6) + u32::from(orders > 0.9) };
        let factor = if free_shipping { 1.0 + ORDER_VALUE_LIFT } else { 1.0 };
        let last = start + self.period_ms();
        let mut placed = 0;
        for (number, &time) in sessions.iter().enumerate() {
            let left = sessions.len() - number;
            // Spread the orders over the sessions; the last session takes what is left.
            let now = if left == 1 { orders - placed } else { (orders - placed).min(1) };
            placed += now;
            self.browse(customer, time, now > 0, random);
            for order in 0..i64::from(now) {
                let amount = random.lognormal(customer.spend, 0.3) * factor;
                self.order(customer, time + 30_000 + order * 9_000, amount, last, random);
            }
        }
    }

    /// Logs the exposures: one at the first session, repeats at some of the later ones.
    fn expose(&mut self, customer: &Customer, sessions: &[i64], random: &mut Random) {
        for experiment in [FREE_SHIPPING, NEW_CHECKOUT] {
            let variant = customer.variants[usize::from(experiment)];
            let lost = random.chance(LOST_TREATMENT_SHARE);
            if experiment == NEW_CHECKOUT && variant == 1 && lost {
                self.lost += 1;
                continue;
            }
            for (number, &time) in sessions.iter().enumerate() {
                if number == 0 || random.chance(0.5) {
                    self.log_exposure(customer, experiment, variant, time);
                }
                if random.chance(0.02) {
                    self.log_exposure(customer, experiment, variant, time); // a client's retry
                }
            }
            // Spread over all customers: the index is no part of what a customer does.
            let crossed = &mut self.crossed[usize::from(experiment)];
            let wanted = CROSSED_USERS[usize::from(experiment)];
            let due = u64::from(customer.index + 1) * wanted as u64 / u64::from(self.options.users);
            if (*crossed as u64) < due {
                *crossed += 1;
                let last = sessions[sessions.len() - 1];
                self.log_exposure(customer, experiment, 1 - variant, last + 20_000);
            }
        }
    }

    fn log_exposure(&mut self, customer: &Customer, experiment: u8, variant: u8, ts_ms: i64) {
        self.exposures.push(ExposureRow {
            ts_ms,
            user: customer.index,
            experiment,
            variant,
            country: customer.country,
            platform: customer.platform,
        });
    }

    /// A session without its orders: pages load and are viewed, things go to the cart.
    fn browse(&mut self, customer: &Customer, start: i64, buys: bool, random: &mut Random) {
        let pages = random.geometric(0.55).min(8);
        let mut time = start;
        for _ in 0..pages {
            let load_ms = random.lognormal(customer.load, 0.4).clamp(50.0, 20_000.0) as i32;
            self.log_event(customer, time, PAGE_LOAD, 0.0, load_ms);
            self.log_event(customer, time + i64::from(load_ms) / 10, VIEW, 0.0, 0);
            time += 500 + random.below(2_500) as i64; // at most 8 x 3 s: before the first order
        }
        if buys || random.chance(0.2) {
            self.log_event(customer, start + 26_000, ADD_TO_CART, 0.0, 0);
        }
    }

    fn order(
        &mut self,
        customer: &Customer,
        time: i64,
        amount: f64,
        period_end: i64,
        random: &mut Random,
    ) {
        let amount = (amount * 100.0).round() / 100.0;
        self.log_event(customer, time, PURCHASE, amount, 0);
        let refund = time + DAY_MS + random.below(3 * DAY_MS as u64) as i64;
        if random.chance(0.05) && refund < period_end {
            self.log_event(customer, refund, REFUND, amount, 0);
        }
    }

    fn log_event(&mut self, customer: &Customer, ts_ms: i64, event: u8, amount: f64, load_ms: i32) {
        self.events.push(EventRow {
            ts_ms,
            user: customer.index,
            event,
            amount,
            load_ms,
            country: customer.country,
            platform: customer.platform,
        });
    }
}

fn exposures(mut rows: Vec<ExposureRow>) -> Exposures {
    rows.sort_by_key(|row| (row.ts_ms, row.user, row.experiment, row.variant));
    Exposures {
        ts_ms: rows.iter().map(|row| row.ts_ms).collect(),
        user: rows.iter().map(|row| row.user).collect(),
        experiment: rows.iter().map(|row| row.experiment).collect(),
        variant: rows.iter().map(|row| row.variant).collect(),
        country: rows.iter().map(|row| row.country).collect(),
        platform: rows.iter().map(|row| row.platform).collect(),
    }
}

fn events(mut rows: Vec<EventRow>) -> Events {
    rows.sort_by_key(|row| (row.ts_ms, row.user)); // stable: a user's rows stay as logged
    Events {
        ts_ms: rows.iter().map(|row| row.ts_ms).collect(),
        user: rows.iter().map(|row| row.user).collect(),
        event: rows.iter().map(|row| row.event).collect(),
        amount: rows.iter().map(|row| row.amount).collect(),
        load_ms: rows.iter().map(|row| row.load_ms).collect(),
        country: rows.iter().map(|row| row.country).collect(),
        platform: rows.iter().map(|row| row.platform).collect(),
    }
}

#[cfg(test)]
mod tests;
