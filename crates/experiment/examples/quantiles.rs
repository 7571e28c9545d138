//! How often do tests of quantiles call one of two equal arms higher, and lower, when users are few?
//!
//! Run: `cargo run --release -p uplake-experiment --example quantiles [experiments]` (default 10,000; seeded; a
//! minute). Floor: at most 2.5 % a side plus three standard errors where arms are alike in size; `!` marks what is
//! above. Beside it the errors as gbstats makes them, by the width that the band was planned to have.

use uplake_experiment::effect::absolute;
use uplake_experiment::quantile::{Band, Width, of_users, ranks};

/// SplitMix64.
struct Random(u64);

impl Random {
    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Normal,
    Lognormal,
    Exponential,
}

impl Shape {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Normal => random.normal(),
            Self::Lognormal => random.normal().exp(),
            Self::Exponential => -random.uniform().ln(),
        }
    }
}

fn band(random: &mut Random, users: usize, level: f64, shape: Shape) -> Band {
    let mut values: Vec<f64> = (0..users).map(|_| shape.draw(random)).collect();
    values.sort_unstable_by(f64::total_cmp);
    let ranks = ranks(users as u64, level).expect("users");
    let at = |rank: u64| values[rank as usize - 1];
    Band { low: at(ranks.low), quantile: at(ranks.quantile), high: at(ranks.high) }
}

/// Per cent of A/A tests in which the second arm is called higher, and lower, by each width; `None` if the users
/// are too few for a test.
fn calls(users: [usize; 2], level: f64, shape: Shape, experiments: u64) -> Option<[[f64; 2]; 2]> {
    let mut calls = [[0.0; 2]; 2];
    for seed in 0..experiments {
        let mut random = Random(seed.wrapping_mul(0xD605_BBB5_8C8A_BFD5));
        let bands = users.map(|users| band(&mut random, users, level, shape));
        for (width, calls) in [Width::OfRanks, Width::Planned].into_iter().zip(&mut calls) {
            let figure = |arm: usize| of_users(users[arm] as u64, level, &bands[arm], width).ok();
            let found = absolute(&figure(0)?, &figure(1)?, 0.05).ok()?;
            if found.p < 0.05 {
                calls[usize::from(found.value < 0.0)] += 100.0 / experiments as f64;
            }
        }
    }
    Some(calls)
}

fn main() {
    let experiments = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("a number"));
    let floor = 2.5 + 300.0 * (0.025f64 * 0.975 / experiments as f64).sqrt();
    println!("higher/lower in % of {experiments} A/A tests; by planned width in brackets");
    let sizes = [20, 36, 50, 70, 100, 140, 200, 300, 500, 1000].map(|users| [users, users]);
    let uneven = [[20, 200], [36, 1000], [70, 1000]];
    for level in [0.5, 0.75, 0.9] {
        for users in sizes.into_iter().chain(uneven) {
            let mut line =
                format!("p{:<3} {:>4} and {:>4} users", 100.0 * level, users[0], users[1]);
            for shape in [Shape::Normal, Shape::Lognormal, Shape::Exponential] {
                let Some([[up, down], planned]) = calls(users, level, shape, experiments) else {
                    line.push_str("  too few users");
                    break;
                };
                let mark = if users[0] == users[1] && up.max(down) > floor { "!" } else { " " };
                let planned = format!("({:.1}/{:.1})", planned[0], planned[1]);
                line.push_str(&format!("  {shape:?} {up:.1}/{down:.1}{mark} {planned}"));
            }
            println!("{line}");
        }
    }
}
