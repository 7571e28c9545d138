//! A seeded source of random numbers, and the distributions our generators draw from.
//!
//! The generator is xoshiro256++ (Blackman & Vigna 2019), its state filled by splitmix64 as its
//! authors advise. It is written here, not taken from a crate, so that a seed printed by a failing
//! test means the same numbers after any upgrade.
//!
//! # Invariants
//! - The same `(seed, index)` gives the same numbers, on any number of threads, in any order.
//! - Every sample but [`Random::below`] draws exactly one `u64`, so adding a column to a generator
//!   moves only what is drawn after it.
//!
//! # Not here
//! Nothing cryptographic. Floating-point samples use the platform's `ln` and `exp`; their last bit
//! may differ between operating systems.

/// The splitmix64 step: a bijection of `u64` whose outputs look random.
///
/// Distinct inputs give distinct outputs, which is what makes ids built from it unique.
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// One stream of random numbers.
///
/// # Examples
/// ```
/// use uplake_testkit::random::Random;
/// let mut day_3 = Random::stream(7, 3);
/// let dice = day_3.below(6) + 1;
/// assert!((1..=6).contains(&dice));
/// assert_eq!(Random::stream(7, 3).below(6) + 1, dice);
/// ```
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream 0 of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::stream(seed, 0)
    }

    /// The stream `index` of `seed`; streams of one seed are independent of each other.
    #[must_use]
    pub fn stream(seed: u64, index: u64) -> Self {
        // Mixing the seed first keeps (1, 2) and (2, 1) apart.
        let mut x = mix(mix(seed) ^ mix(index.wrapping_add(0x5851_F42D_4C95_7F2D)));
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(x)
        });
        Self { state }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..limit`, without bias (Lemire 2019). `limit` must not be 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "below(0) has no value to return");
        loop {
            let product = u128::from(self.bits()) * u128::from(limit);
            let low = product as u64;
            if low >= limit || low >= limit.wrapping_neg() % limit {
                return (product >> 64) as u64;
            }
        }
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Normal with the given mean and standard deviation.
    #[inline]
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        // The half step keeps the argument away from 0, where the quantile is infinite.
        let p = ((self.bits() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64);
        mean + deviation * normal_quantile(p)
    }

    /// `exp` of a normal with mean `mu` and standard deviation `sigma`: median `exp(mu)`.
    #[inline]
    pub fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        self.normal(mu, sigma).exp()
    }

    /// Exponential with the given mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Lomax ("Pareto II"): `P(X > x) = (1 + x)^-shape`, from 0.
    #[inline]
    pub fn lomax(&mut self, shape: f64) -> f64 {
        (1.0 - self.unit()).powf(-1.0 / shape) - 1.0
    }

    /// Trials up to and including the first success, at least 1. `p` is in `(0, 1]`.
    #[inline]
    pub fn geometric(&mut self, p: f64) -> u32 {
        if p >= 1.0 {
            return 1;
        }
        1 + ((1.0 - self.unit()).ln() / (1.0 - p).ln()) as u32
    }

    /// Puts `items` in a uniformly random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// `1 / (rank + shift)^exponent` for the ranks `0..count`: weights of a Zipf-like distribution.
#[must_use]
pub fn zipf_weights(count: usize, shift: f64, exponent: f64) -> Vec<f64> {
    (0..count).map(|rank| (rank as f64 + shift).powf(-exponent)).collect()
}

/// Samples indexes in proportion to weights, in constant time (Walker 1977, Vose 1991).
///
/// # Examples
/// ```
/// use uplake_testkit::random::{Alias, Random};
/// let loaded_coin = Alias::new(&[0.9, 0.1]);
/// let mut random = Random::new(1);
/// let heads = (0..1000).filter(|_| loaded_coin.sample(&mut random) == 0).count();
/// assert!((850..950).contains(&heads));
/// ```
#[derive(Debug, Clone)]
pub struct Alias {
    cells: Vec<Cell>,
}

/// One column of the alias table: below the threshold the column itself, else the other index.
#[derive(Debug, Clone, Copy)]
struct Cell {
    threshold: u32,
    other: u32,
}

impl Alias {
    /// `weights`: non-negative, finite, at least one above 0, fewer than 2^32 of them.
    #[must_use]
    pub fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        assert!(total > 0.0 && total.is_finite(), "weights must have a positive finite sum");
        assert!(
            u32::try_from(weights.len()).is_ok(),
            "an alias table holds fewer than 2^32 weights"
        );
        let mut share: Vec<f64> =
            weights.iter().map(|w| w / total * weights.len() as f64).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|&i| share[i as usize] < 1.0);
        let mut cells: Vec<Cell> =
            (0..weights.len() as u32).map(|other| Cell { threshold: u32::MAX, other }).collect();
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            let threshold = (share[poor as usize] * 4_294_967_296.0) as u32;
            cells[poor as usize] = Cell { threshold, other: rich };
            share[rich as usize] -= 1.0 - share[poor as usize];
            if share[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Self { cells }
    }

    /// An index, with probability proportional to its weight (to within 2^-32).
    #[inline]
    pub fn sample(&self, random: &mut Random) -> usize {
        let bits = random.bits();
        let column = (((bits >> 32) * self.cells.len() as u64) >> 32) as usize;
        let cell = self.cells[column];
        if (bits as u32) < cell.threshold { column } else { cell.other as usize }
    }
}

/// The standard normal's quantile, to about 1e-16.
///
/// # Source
/// Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
/// Statistics 37(3), 1988 (the same rational functions as CPython's `NormalDist.inv_cdf`).
#[inline]
fn normal_quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * polynomial(r, &CENTRE.0) / polynomial(r, &CENTRE.1);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = (-tail.ln()).sqrt();
    let x = if r <= 5.0 {
        polynomial(r - 1.6, &TAIL.0) / polynomial(r - 1.6, &TAIL.1)
    } else {
        polynomial(r - 5.0, &FAR.0) / polynomial(r - 5.0, &FAR.1)
    };
    if q < 0.0 { -x } else { x }
}

#[inline]
fn polynomial(x: f64, coefficients: &[f64; 8]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// Numerator and denominator for `|p - 0.5| <= 0.425`, lowest power first.
const CENTRE: ([f64; 8], [f64; 8]) = (
    [
        3.387_132_872_796_366_6,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_3e3,
        1.373_169_376_550_946e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
);

/// The same for tails down to about exp(-25).
const TAIL: ([f64; 8], [f64; 8]) = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_4e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);

/// The same beyond.
const FAR: ([f64; 8], [f64; 8]) = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    /// Checks the mean and variance of `DRAWS` samples, to five standard errors of the mean and to
    /// 5 % of the variance.
    fn check(what: &str, mean: f64, variance: f64, mut draw: impl FnMut(&mut Random) -> f64) {
        let mut random = Random::new(11);
        let samples: Vec<f64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
        let found = samples.iter().sum::<f64>() / DRAWS as f64;
        let spread = samples.iter().map(|x| (x - found).powi(2)).sum::<f64>() / DRAWS as f64;
        let error = (variance / DRAWS as f64).sqrt();
        assert!((found - mean).abs() < 5.0 * error, "{what}: mean {found}, expected {mean}");
        assert!((spread / variance - 1.0).abs() < 0.05, "{what}: {spread}, expected {variance}");
    }

    #[test]
    fn moments_match_the_textbook() {
        check("unit", 0.5, 1.0 / 12.0, Random::unit);
        check("below", 4.5, 8.25, |r| r.below(10) as f64);
        check("normal", 3.0, 4.0, |r| r.normal(3.0, 2.0));
        check("exponential", 2.0, 4.0, |r| r.exponential(2.0));
        check("geometric", 4.0, 12.0, |r| f64::from(r.geometric(0.25)));
        check("certain success", 1.0, 1e-9, |r| {
            f64::from(r.geometric(1.0)) + r.normal(0.0, 3.16e-5)
        });
        check("chance", 0.3, 0.21, |r| f64::from(u8::from(r.chance(0.3))));
        check("lomax", 0.25, 5.0 / 48.0, |r| r.lomax(5.0));
        let e = std::f64::consts::E;
        check("lognormal", (0.125f64).exp(), (e.powf(0.25) - 1.0) * e.powf(0.25), |r| {
            r.lognormal(0.0, 0.5)
        });
    }

    #[test]
    fn normal_quantiles_match_python() {
        // Python: statistics.NormalDist().inv_cdf of the same arguments.
        for (p, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.9, 1.281_551_565_544_600_8),
            (0.001, -3.090_232_306_167_813),
            (1e-12, -7.034_483_825_301_131),
            (1e-14, -7.650_628_092_935_268),
        ] {
            let found = normal_quantile(p);
            assert!((found - expected).abs() < 1e-9, "{p}: {found}, expected {expected}");
        }
    }

    #[test]
    fn alias_samples_follow_their_weights() {
        let weights = [5.0, 0.0, 1.0, 3.0, 0.5, 0.5];
        let alias = Alias::new(&weights);
        let mut random = Random::new(3);
        let mut counts = [0usize; 6];
        (0..DRAWS).for_each(|_| counts[alias.sample(&mut random)] += 1);
        for (count, weight) in counts.iter().zip(weights) {
            let expected = weight / 10.0 * DRAWS as f64;
            let allowed = 5.0 * expected.sqrt() + 0.5;
            assert!((*count as f64 - expected).abs() < allowed, "{counts:?}");
        }
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, index| Random::stream(seed, index).bits();
        assert_eq!(first(1, 2), first(1, 2));
        let firsts: std::collections::HashSet<u64> =
            (0..100).flat_map(|s| (0..100).map(move |i| first(s, i))).collect();
        assert_eq!(firsts.len(), 10_000);
    }

    #[test]
    fn shuffle_keeps_every_item_and_moves_most() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random::new(5).shuffle(&mut items);
        let stayed = items.iter().enumerate().filter(|(i, x)| *i as u32 == **x).count();
        assert!(stayed < 10, "{stayed} of 1000 items did not move");
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..1000));
    }
}
