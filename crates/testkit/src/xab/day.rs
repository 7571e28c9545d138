//! One day: sessions drawn, times sorted, then columns filled block by block.

use std::ops::Range;

use super::world::{User, World};
use super::{BLOCK_ROWS, EXPERIMENTS, Purpose, cents, rows_of, stream};
use crate::random::{Alias, Random, mix};
use crate::strings::push_hex;
use crate::{DAY_MS, Strings};

/// Relative number of sessions that start in each hour.
const HOURS: [f64; 24] = [
    2., 1., 1., 1., 1., 1., 2., 4., 5., 5., 5., 6., 7., 6., 5., 5., 5., 6., 7., 8., 9., 9., 7., 4.,
];
/// Share of sessions that reach visit, click, product_view, add_to_cart, pay.
const DEPTHS: [f64; 5] = [0.30, 0.25, 0.25, 0.12, 0.08];
const MAX_SESSION_EVENTS: u32 = 60;
const LAST_START_MS: u64 = 82_800_000; // 23:00, so that few sessions are cut at midnight
const LAST_MS: u64 = DAY_MS as u64 - 1;

const FIRST_ITEM: i64 = 1_000_000;

const ADD_TO_CART: u8 = 3;
const PAY: u8 = 4;
const FIRST_SIDE_EVENT: u8 = 5;
const SHARE: u8 = 6;

/// The event rows and exposure rows of one day.
#[derive(Debug, Clone, PartialEq)]
pub struct Day {
    /// What users did.
    pub events: Events,
    /// Which experiments they met.
    pub exposures: Exposures,
}

/// Event rows of one day, sorted by time. Codes index the dictionaries of [`World`].
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// The day of every row, counted from 1970-01-01.
    pub dt: i32,
    /// Milliseconds since 1970-01-01, UTC.
    pub ts_ms: Vec<i64>,
    /// Index into [`World::user_ids`].
    pub user: Vec<u32>,
    /// Code in [`World::events`].
    pub event: Vec<u8>,
    /// The page's address, about 75 bytes.
    pub page: Strings,
    /// From 1,000,000; half a million of them, of very unequal popularity.
    pub item_id: Vec<i64>,
    /// Money for `pay` and `add_to_cart`, a small positive number otherwise; two decimals.
    pub value: Vec<f64>,
    /// Time on the page, milliseconds.
    pub duration_ms: Vec<i32>,
    /// Code in [`World::cities`].
    pub city: Vec<u16>,
    /// Code in [`World::systems`].
    pub os: Vec<u8>,
    /// Code in [`World::versions`].
    pub app_version: Vec<u8>,
    /// Code in [`World::channels`].
    pub channel: Vec<u8>,
}

/// Exposure rows of one day, sorted by time. Codes index the dictionaries of [`World`].
#[derive(Debug, Clone, PartialEq)]
pub struct Exposures {
    /// The day of every row, counted from 1970-01-01.
    pub dt: i32,
    /// Milliseconds since 1970-01-01, UTC.
    pub ts_ms: Vec<i64>,
    /// Index into [`World::user_ids`].
    pub user: Vec<u32>,
    /// The experiment's id.
    pub exp_id: Vec<i32>,
    /// The user's variant in it.
    pub variant: Vec<i32>,
    /// Code in [`World::cities`].
    pub city: Vec<u16>,
    /// Code in [`World::systems`].
    pub os: Vec<u8>,
    /// Code in [`World::versions`].
    pub app_version: Vec<u8>,
}

/// A day whose sessions are drawn and whose rows are in order, but without its columns.
///
/// # Examples
/// ```
/// use uplake_testkit::xab::{World, XabOptions};
/// let world = World::new(&XabOptions { users: 100, events_per_day: 10_000, ..Default::default() });
/// let plan = world.plan(0);
/// let first = plan.events(0..1);
/// assert_eq!(first.ts_ms.len(), 8192);
/// assert_eq!(first.ts_ms[..], world.day(0).events.ts_ms[..8192]);
/// ```
#[derive(Debug)]
pub struct DayPlan<'w> {
    world: &'w World,
    day: u32,
    /// User of each session.
    sessions: Vec<u32>,
    /// Rows as packed keys in order: time, session, event code.
    events: Vec<Key>,
    /// Rows as packed keys in order: time, session, index of the experiment.
    exposures: Vec<Key>,
}

/// A row on its way through the sort: 27 bits of time, 33 bits of session, 4 bits of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

impl Key {
    #[inline]
    fn new(time_ms: u64, session: usize, code: u8) -> Self {
        Self(time_ms << 37 | (session as u64) << 4 | u64::from(code))
    }

    #[inline]
    fn time_ms(self) -> i64 {
        (self.0 >> 37) as i64
    }

    #[inline]
    fn session(self) -> usize {
        (self.0 >> 4 & 0x1_ffff_ffff) as usize
    }

    #[inline]
    fn code(self) -> u8 {
        (self.0 & 15) as u8
    }
}

/// The distributions sessions are drawn from.
struct Habits {
    hour: Alias,
    depth: Alias,
}

impl World {
    /// Draws the sessions of `day` (counted from the first day) and sorts their rows by time.
    #[must_use]
    pub fn plan(&self, day: u32) -> DayPlan<'_> {
        DayPlan::new(self, day)
    }

    /// Every row of `day`. At 80 bytes of page a row, days above 20 million rows must go by
    /// [`World::plan`] instead.
    #[must_use]
    pub fn day(&self, day: u32) -> Day {
        let plan = self.plan(day);
        Day {
            events: plan.events(0..plan.event_blocks()),
            exposures: plan.exposures(0..plan.exposure_blocks()),
        }
    }
}

impl<'w> DayPlan<'w> {
    fn new(world: &'w World, day: u32) -> Self {
        let target = world.options.events_per_day;
        assert!(target <= 1_000_000_000, "events_per_day: up to a billion, got {target}");
        let mut random = stream(world.options.seed, Purpose::Sessions, day, 0);
        let habits = Habits { hour: Alias::new(&HOURS), depth: Alias::new(&DEPTHS) };
        let mut plan = Self {
            world,
            day,
            sessions: Vec::with_capacity(target / 4),
            events: Vec::with_capacity(target + MAX_SESSION_EVENTS as usize),
            exposures: Vec::with_capacity(target / 2),
        };
        while plan.events.len() < target {
            plan.session(&habits, &mut random);
        }
        plan.events = sorted_by_time(plan.events);
        plan.exposures = sorted_by_time(plan.exposures);
        plan
    }

    /// Draws one session: its events, and the exposures it logs.
    fn session(&mut self, habits: &Habits, random: &mut Random) {
        let user = self.world.ranks[self.world.activity.sample(random)];
        let session = self.sessions.len();
        self.sessions.push(user);
        let hour = habits.hour.sample(random) as u64;
        let start = (hour * 3_600_000 + random.below(3_600_000)).min(LAST_START_MS);
        let mut depth = habits.depth.sample(random) as u32 + 1;
        // Experiment 101 lifts the funnel a little.
        if self.world.variant(&EXPERIMENTS[0], user) == Some(1) && random.chance(0.04) {
            depth = (depth + 1).min(DEPTHS.len() as u32);
        }
        let length = (depth + random.geometric(0.36) - 1).min(MAX_SESSION_EVENTS);
        let mut time = start;
        for position in 0..length {
            let mut event = (position * depth / length) as u8;
            if position > 0 {
                time += random.lognormal(10.0, 1.4).clamp(200.0, 1_500_000.0) as u64;
                if random.chance(0.22) {
                    event = FIRST_SIDE_EVENT + random.below(3) as u8;
                }
            }
            self.events.push(Key::new(time.min(LAST_MS), session, event));
        }
        for (index, experiment) in EXPERIMENTS.iter().enumerate() {
            if self.day >= experiment.first_day
                && self.world.variant(experiment, user).is_some()
                && random.chance(experiment.exposure_rate)
            {
                let time = (start + random.below(60_000)).min(LAST_MS);
                self.exposures.push(Key::new(time, session, index as u8));
            }
        }
    }

    /// The day, counted from 1970-01-01.
    #[must_use]
    pub fn dt(&self) -> i32 {
        self.world.options.first_day + self.day as i32
    }

    #[cfg(test)]
    pub(super) fn sessions_drawn(&self) -> usize {
        self.sessions.len()
    }

    /// Event rows of the day.
    #[must_use]
    pub fn event_rows(&self) -> usize {
        self.events.len()
    }

    /// Blocks of event rows; the last one may be short.
    #[must_use]
    pub fn event_blocks(&self) -> usize {
        self.events.len().div_ceil(BLOCK_ROWS)
    }

    /// Exposure rows of the day.
    #[must_use]
    pub fn exposure_rows(&self) -> usize {
        self.exposures.len()
    }

    /// Blocks of exposure rows; the last one may be short.
    #[must_use]
    pub fn exposure_blocks(&self) -> usize {
        self.exposures.len().div_ceil(BLOCK_ROWS)
    }

    /// The event rows of `blocks`, in order.
    #[must_use]
    pub fn events(&self, blocks: Range<usize>) -> Events {
        let rows = rows_of(&blocks, self.events.len());
        let mut out = Events::with_capacity(self.dt(), rows.len());
        for block in blocks {
            let random =
                stream(self.world.options.seed, Purpose::EventBlock, self.day, block as u32);
            self.fill(
                &self.events[rows_of(&(block..block + 1), self.events.len())],
                random,
                &mut out,
            );
        }
        out
    }

    /// Fills one block, a column at a time: loops this simple keep many cache misses under way,
    /// which a loop over whole rows does not.
    fn fill(&self, keys: &[Key], mut random: Random, out: &mut Events) {
        let (world, midnight) = (self.world, i64::from(self.dt()) * DAY_MS);
        let start = out.user.len();
        out.user.extend(keys.iter().map(|key| self.sessions[key.session()]));
        let users = &out.user[start..];
        let attributes: Vec<User> = users.iter().map(|&user| world.users[user as usize]).collect();
        out.ts_ms.extend(keys.iter().map(|key| midnight + key.time_ms()));
        out.event.extend(keys.iter().map(|key| key.code()));
        out.city.extend(attributes.iter().map(|user| user.city));
        out.os.extend(attributes.iter().map(|user| user.system));
        out.channel.extend(attributes.iter().map(|user| user.channel));
        out.app_version.extend(users.iter().map(|&user| world.version(self.day, user)));
        out.item_id
            .extend(keys.iter().map(|_| FIRST_ITEM + world.item_choice.sample(&mut random) as i64));
        out.duration_ms.extend(
            keys.iter().map(|_| random.lognormal(8.0, 1.2).clamp(10.0, 3_600_000.0) as i32),
        );
        out.value.extend(keys.iter().zip(users).zip(&attributes).map(|((key, &user), of_user)| {
            self.value(user, of_user.spend, key.code(), &mut random)
        }));
        for (key, item) in keys.iter().zip(&out.item_id[start..]) {
            let path = world.path_choice.sample(&mut random);
            self.push_page(*key, path, *item as u32, &mut out.page);
        }
    }

    /// Appends a page's address; one that was shared also names the session.
    #[inline]
    fn push_page(&self, key: Key, path: usize, item: u32, page: &mut Strings) {
        page.bytes.extend_from_slice(self.world.paths.slice(path));
        push_item(&mut page.bytes, item);
        if key.code() == SHARE {
            let number = key.session() as u64 + (u64::from(self.day) << 33);
            page.bytes.extend_from_slice(b"&sid=");
            push_hex(&mut page.bytes, &[mix(number ^ mix(self.world.options.seed))], 16);
        }
        page.close();
    }

    #[inline]
    fn value(&self, user: u32, spend: f32, event: u8, random: &mut Random) -> f64 {
        if event != PAY && event != ADD_TO_CART {
            return cents(random.exponential(1.0));
        }
        let price = cents(random.lognormal(4.2, 1.3) * f64::from(spend));
        let factor = match (event, self.world.variant(&EXPERIMENTS[0], user)) {
            (ADD_TO_CART, _) => 0.9,
            (_, Some(1)) => 1.02,
            _ => 1.0,
        };
        cents(price * factor).min(200_000.0)
    }

    /// The exposure rows of `blocks`, in order.
    #[must_use]
    pub fn exposures(&self, blocks: Range<usize>) -> Exposures {
        let keys = &self.exposures[rows_of(&blocks, self.exposures.len())];
        let midnight = i64::from(self.dt()) * DAY_MS;
        let mut out = Exposures::with_capacity(self.dt(), keys.len());
        for key in keys {
            let user = self.sessions[key.session()];
            let attributes = self.world.users[user as usize];
            let experiment = &EXPERIMENTS[usize::from(key.code())];
            let variant = self.world.variant(experiment, user);
            out.ts_ms.push(midnight + key.time_ms());
            out.user.push(user);
            out.exp_id.push(experiment.id);
            out.variant.push(i32::from(variant.expect("only users in an experiment are exposed")));
            out.city.push(attributes.city);
            out.os.push(attributes.system);
            out.app_version.push(self.world.version(self.day, user));
        }
        out
    }
}

impl Events {
    fn with_capacity(dt: i32, rows: usize) -> Self {
        Self {
            dt,
            ts_ms: Vec::with_capacity(rows),
            user: Vec::with_capacity(rows),
            event: Vec::with_capacity(rows),
            page: Strings::with_capacity(rows, rows * 80),
            item_id: Vec::with_capacity(rows),
            value: Vec::with_capacity(rows),
            duration_ms: Vec::with_capacity(rows),
            city: Vec::with_capacity(rows),
            os: Vec::with_capacity(rows),
            app_version: Vec::with_capacity(rows),
            channel: Vec::with_capacity(rows),
        }
    }
}

impl Exposures {
    fn with_capacity(dt: i32, rows: usize) -> Self {
        Self {
            dt,
            ts_ms: Vec::with_capacity(rows),
            user: Vec::with_capacity(rows),
            exp_id: Vec::with_capacity(rows),
            variant: Vec::with_capacity(rows),
            city: Vec::with_capacity(rows),
            os: Vec::with_capacity(rows),
            app_version: Vec::with_capacity(rows),
        }
    }
}

/// Sorts keys: one counting pass into buckets of 33 s, then each bucket, which fits the L1 cache
/// (2 million rows over 2,637 buckets is 758 keys or 6 KiB).
fn sorted_by_time(keys: Vec<Key>) -> Vec<Key> {
    const SHIFT: u32 = 15;
    const BUCKETS: usize = (LAST_MS >> SHIFT) as usize + 1;
    let bucket = |key: &Key| (key.time_ms() >> SHIFT) as usize;
    let mut ends = vec![0usize; BUCKETS];
    keys.iter().for_each(|key| ends[bucket(key)] += 1);
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    let mut sorted = vec![Key(0); keys.len()];
    for key in &keys {
        let end = &mut ends[bucket(key)];
        sorted[*end] = *key;
        *end += 1;
    }
    let mut start = 0;
    for end in ends {
        sorted[start..end].sort_unstable();
        start = end;
    }
    sorted
}

/// Appends an item id, which always has seven digits.
#[inline]
fn push_item(bytes: &mut Vec<u8>, item: u32) {
    let mut digits = [0u8; 7];
    let mut rest = item;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes.extend_from_slice(&digits);
}
