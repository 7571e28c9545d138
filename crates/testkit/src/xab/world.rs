//! Who lives in the data set: users, their attributes, and the dictionaries of the columns.

use super::{EVENTS, Experiment, Purpose, SYSTEMS, XabOptions, stream};
use crate::Strings;
use crate::random::{Alias, Random, mix, zipf_weights};
use crate::strings::push_hex;

const CITIES: usize = 340;
const CHANNELS: usize = 20;
const VERSIONS: usize = 40;
const PATHS: usize = 6000;
const ITEMS: usize = 500_000;
/// The longest user id is 32 bytes, and 60 million of them still fit 31-bit offsets.
const MAX_USERS: u32 = 60_000_000;

const SECTIONS: [&str; 12] = [
    "home",
    "list",
    "detail",
    "cart",
    "pay",
    "search",
    "live",
    "campaign",
    "community",
    "member",
    "help",
    "topic",
];
const WORDS: [&str; 34] = [
    "campaign-618",
    "double-eleven",
    "flash-sale",
    "new-arrival",
    "phone",
    "laptop",
    "tv",
    "watch",
    "earbuds",
    "band",
    "router",
    "scooter",
    "vacuum",
    "fridge",
    "aircon",
    "camera",
    "lamp",
    "shoes",
    "bags",
    "kids",
    "beauty",
    "snacks",
    "coupon",
    "gift",
    "rank",
    "brand",
    "outlet",
    "second-hand",
    "trade-in",
    "repair",
    "review",
    "compare",
    "spec",
    "photo",
];

/// The static side of the data set: users and dictionaries. Made once, shared by all days.
#[derive(Debug)]
pub struct World {
    /// What the world was made from.
    pub options: XabOptions,
    /// Dictionary of `user_id`: 16 to 32 hexadecimal digits, by user index.
    pub user_ids: Strings,
    /// Dictionary of `event`.
    pub events: Strings,
    /// Dictionary of `city`.
    pub cities: Strings,
    /// Dictionary of `os`.
    pub systems: Strings,
    /// Dictionary of `app_version`.
    pub versions: Strings,
    /// Dictionary of `channel`.
    pub channels: Strings,
    pub(super) users: Vec<User>,
    pub(super) ranks: Vec<u32>,
    pub(super) activity: Alias,
    pub(super) paths: Strings,
    pub(super) path_choice: Alias,
    pub(super) item_choice: Alias,
}

/// A user's attributes, side by side because a row needs all of them: one cache miss, not four.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub spend: f32,
    pub city: u16,
    pub system: u8,
    pub channel: u8,
}

impl World {
    /// Makes the users and dictionaries (about 0.3 s for 2 million users).
    ///
    /// # Panics
    /// If there are no users or more than 60 million.
    #[must_use]
    pub fn new(options: &XabOptions) -> Self {
        let count = options.users;
        assert!((1..=MAX_USERS).contains(&count), "users: 1 to {MAX_USERS}, got {count}");
        let mut random = stream(options.seed, Purpose::Users, 0, 0);
        let mut ranks: Vec<u32> = (0..count).collect();
        random.shuffle(&mut ranks);
        Self {
            options: options.clone(),
            user_ids: user_ids(options),
            events: EVENTS.iter().collect(),
            cities: (0..CITIES).map(|i| format!("city_{i:03}")).collect(),
            systems: SYSTEMS.iter().collect(),
            versions: (0..VERSIONS)
                .map(|i| format!("{}.{}.{}", 8 + i / 10, i % 10, i * 7 % 10))
                .collect(),
            channels: (0..CHANNELS).map(|i| format!("ch_{i:02}")).collect(),
            users: users(count, &mut random),
            ranks,
            activity: Alias::new(&zipf_weights(count as usize, 50.0, 0.55)),
            paths: (0..PATHS).map(|i| path(i, &mut random)).collect(),
            path_choice: Alias::new(&zipf_weights(PATHS, 1.0, 0.8)),
            item_choice: Alias::new(&zipf_weights(ITEMS, 20.0, 0.8)),
        }
    }

    /// The variant of `user` in `experiment`, or `None` if the user is not in it.
    #[inline]
    #[must_use]
    pub fn variant(&self, experiment: &Experiment, user: u32) -> Option<u8> {
        let key = u64::from(user) * 1_000_003 + experiment.id as u64;
        let bits = mix(key ^ mix(self.options.seed));
        let in_traffic = (bits >> 40) % 10_000 < (experiment.traffic * 10_000.0) as u64;
        in_traffic.then(|| (bits % u64::from(experiment.variants)) as u8)
    }

    /// Code of the app version `user` has on `day` (counted from the first day).
    #[inline]
    pub(super) fn version(&self, day: u32, user: u32) -> u8 {
        (8 + day / 2 + user % 13).min(VERSIONS as u32 - 1) as u8
    }
}

fn user_ids(options: &XabOptions) -> Strings {
    let mut ids = Strings::with_capacity(options.users as usize, options.users as usize * 24);
    for user in 0..u64::from(options.users) {
        let high = mix(user.wrapping_add(options.seed << 40));
        let low = mix(high);
        push_hex(&mut ids.bytes, &[high, low], 16 + 4 * (mix(low) % 5) as usize);
        ids.close();
    }
    ids
}

fn users(count: u32, random: &mut Random) -> Vec<User> {
    let city = Alias::new(&zipf_weights(CITIES, 1.0, 0.9));
    let system = Alias::new(&[0.52, 0.25, 0.15, 0.08]);
    let channel = Alias::new(&zipf_weights(CHANNELS, 1.0, 1.0));
    (0..count)
        .map(|_| User {
            spend: random.lognormal(0.0, 0.8) as f32,
            city: city.sample(random) as u16,
            system: system.sample(random) as u8,
            channel: channel.sample(random) as u8,
        })
        .collect()
}

fn path(index: usize, random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    let words: Vec<&str> = (0..depth)
        .map(|_| WORDS[(random.exponential(11.0) as usize).min(WORDS.len() - 1)])
        .collect();
    let section = SECTIONS[random.below(SECTIONS.len() as u64) as usize];
    format!("https://m.example.com/{section}/{}/{index:04}.html?item=", words.join("/"))
}
