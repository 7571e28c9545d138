//! The XAB data set: A/B experiments, user behaviour and product search.
//!
//! The same columns, types and distributions as the Python generator our peers were measured on
//! (issue 2), but not the same random bits. A few million users of very unequal activity walk
//! through sessions of about 4.2 events; twelve experiments expose them; a catalogue of products
//! belongs to points of interest ("pois", the shops of a city) in geohash cells.
//!
//! A day is made in two steps, so that memory stays bounded and threads can share the work:
//! [`World::plan`] draws the sessions and sorts the times (16 bytes a row), then
//! [`DayPlan::events`] fills the columns of any range of blocks.
//!
//! # Invariants
//! - Rows are sorted by time within a day; products by `(city_id, geohash, poi_id)`.
//! - A day depends on the options and its number only; a block of [`BLOCK_ROWS`] rows on its day
//!   and its number only. So the data is the same whatever is cut, skipped or run in parallel.
//! - User ids are distinct: their first 16 digits are a bijection of the user's index.
//!
//! # Not here
//! Files: see the command's `generate` module.

mod day;
mod params;
mod products;
mod world;

use std::ops::Range;

pub use day::{Day, DayPlan, Events, Exposures};
pub use params::Params;
pub use products::{ProductRows, Products};
pub use world::World;

/// Rows whose random columns come from one stream; 15 blocks are one row group of 122,880 rows.
pub const BLOCK_ROWS: usize = 8192;

/// Names of the event codes, in funnel order up to `pay`.
pub const EVENTS: [&str; 8] =
    ["visit", "click", "product_view", "add_to_cart", "pay", "search", "share", "scroll"];

/// Names of the operating system codes.
pub const SYSTEMS: [&str; 4] = ["Android", "iOS", "HarmonyOS", "Web"];

/// The size of the data set and its seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XabOptions {
    /// Users there are; about a fifth of them visit on a day of the default size. Up to 60 million.
    pub users: u32,
    /// Event rows a day, reached to within one session. Up to a billion.
    pub events_per_day: usize,
    /// Days to generate.
    pub days: u32,
    /// Rows of the product catalogue.
    pub products: usize,
    /// Product rows of a poi, on average.
    pub rows_per_poi: usize,
    /// Data sets of different seeds share nothing.
    pub seed: u64,
    /// The first day, counted from 1970-01-01.
    pub first_day: i32,
}

impl Default for XabOptions {
    fn default() -> Self {
        Self {
            users: 2_000_000,
            events_per_day: 2_000_000,
            days: 20,
            products: 10_000_000,
            rows_per_poi: 200,
            seed: 7,
            first_day: 20_513, // 2026-03-01
        }
    }
}

/// One of the twelve concurrent experiments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// Its id, as in `exposures.exp_id`.
    pub id: i32,
    /// Share of all users in it.
    pub traffic: f64,
    /// Number of variants, all of equal share; variant 0 is the control.
    pub variants: u8,
    /// The day it starts, counted from the first day of the data set.
    pub first_day: u32,
    /// Probability that a session of a user in it logs an exposure.
    pub exposure_rate: f64,
}

/// Every experiment. Only 101 has an effect: deeper sessions and 2 % larger payments in variant 1.
pub const EXPERIMENTS: [Experiment; 12] = [
    experiment(101, 1.00, 2, 0, 0.35),
    experiment(102, 0.50, 2, 0, 0.5),
    experiment(103, 0.50, 3, 0, 0.5),
    experiment(104, 0.30, 4, 0, 0.6),
    experiment(105, 0.20, 2, 0, 0.7),
    experiment(106, 0.20, 2, 2, 0.7),
    experiment(107, 0.15, 3, 3, 0.7),
    experiment(108, 0.10, 2, 0, 0.8),
    experiment(109, 0.10, 4, 5, 0.8),
    experiment(110, 0.05, 2, 0, 0.9),
    experiment(111, 0.05, 2, 8, 0.9),
    experiment(112, 0.02, 2, 0, 0.9),
];

const fn experiment(
    id: i32,
    traffic: f64,
    variants: u8,
    first_day: u32,
    exposure_rate: f64,
) -> Experiment {
    Experiment { id, traffic, variants, first_day, exposure_rate }
}

/// What a stream is for; with the day and the block it makes the stream's index.
#[derive(Clone, Copy)]
enum Purpose {
    Users = 1,
    Sessions = 2,
    EventBlock = 3,
    Pois = 4,
    ProductBlock = 5,
    PoiSample = 6,
}

/// The stream of one purpose, day and block: 8 bits, 24 bits and 32 bits of index.
fn stream(seed: u64, purpose: Purpose, day: u32, block: u32) -> crate::random::Random {
    assert!(day < 1 << 24, "days are numbered below 2^24");
    let index = (purpose as u64) << 56 | u64::from(day) << 32 | u64::from(block);
    crate::random::Random::stream(seed, index)
}

/// The rows of a range of blocks when there are `total` rows.
fn rows_of(blocks: &Range<usize>, total: usize) -> Range<usize> {
    let end = (blocks.end * BLOCK_ROWS).min(total);
    (blocks.start * BLOCK_ROWS).min(end)..end
}

/// `x` to two decimals, as prices are. `x` is not negative.
#[inline]
fn cents(x: f64) -> f64 {
    // The integer conversion is one instruction; `round` is a library call on baseline x86-64.
    (x * 100.0 + 0.5) as i64 as f64 / 100.0
}

#[cfg(test)]
mod tests;
