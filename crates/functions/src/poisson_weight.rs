//! `poisson_weight(key, replicate [, seed])`: how often a user counts in one replicate of a bootstrap.
//!
//! Drawing n of n users again makes each count about Poisson(1) times; drawing each weight by itself
//! needs no pass over all users, and a hash of key, replicate and seed gives the same one wherever
//! and whenever it is asked for. So any statistic that takes weights can be bootstrapped in SQL, and
//! all rows of a user weigh alike.
//!
//! # Invariants
//! - Equal arguments give equal weights on every machine and in every version.
//!
//! # Source
//! Chamandy, Muralidharan, Najmi & Naidu, "Estimating uncertainty for massive data streams", Google
//! 2012; Hanley & MacGibbon, "Creating non-parametric bootstrap samples using Poisson frequencies",
//! 2006. Bits: SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), started from FNV-1a of text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::Result;
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::refuse;

/// The function, to be registered with a session.
pub(crate) fn function() -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(PoissonWeight { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PoissonWeight {
    signature: Signature,
}

impl ScalarUDFImpl for PoissonWeight {
    fn name(&self) -> &str {
        "poisson_weight"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let whole = |given: &DataType| given.is_integer() || given.is_null();
        match given {
            [key, numbers @ ..] if matches!(numbers, [_] | [_, _]) && numbers.iter().all(whole) => {
                let key = match key {
                    DataType::UInt64 => DataType::UInt64,
                    key if whole(key) => DataType::Int64,
                    DataType::Dictionary(_, of) if of.is_string() => DataType::Utf8,
                    key if key.is_string() => DataType::Utf8,
                    _ => return self.wrong(),
                };
                Ok([key].into_iter().chain(vec![DataType::Int64; numbers.len()]).collect())
            }
            _ => self.wrong(),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let replicates = columns[1].as_primitive::<Int64Type>();
        let seeds = columns.get(2).map(|seeds| seeds.as_primitive::<Int64Type>());
        let weights = Weights::new();
        let weight = |(row, key): (usize, Option<u64>)| {
            let replicate = replicates.is_valid(row).then(|| replicates.value(row))?;
            let seed = match seeds {
                None => 0,
                Some(seeds) => seeds.is_valid(row).then(|| seeds.value(row))?,
            };
            Some(weights.of(bits(key?, replicate as u64, seed as u64)))
        };
        let found: Int64Array = keys(&columns[0]).into_iter().enumerate().map(weight).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

impl PoissonWeight {
    fn wrong<T>(&self) -> Result<T> {
        refuse!(
            Call,
            "poisson_weight takes (key of a user, whole number of the replicate [, seed])"
        )
    }
}

/// A number for each key; whole numbers are their own.
fn keys(column: &ArrayRef) -> Vec<Option<u64>> {
    match column.data_type() {
        DataType::UInt64 => column.as_primitive::<UInt64Type>().iter().collect(),
        DataType::Int64 => {
            column.as_primitive::<Int64Type>().iter().map(|key| key.map(|key| key as u64)).collect()
        }
        _ => column.as_string::<i32>().iter().map(|key| key.map(fnv1a)).collect(),
    }
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// SplitMix64's step from one number of a stream to the next, and its last mixing.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The replicate's number in the stream of a key and seed.
fn bits(key: u64, replicate: u64, seed: u64) -> u64 {
    // Not the sum of key and seed, which other pairs have, too.
    let start = mix(mix(key.wrapping_add(GAMMA)).wrapping_add(seed.wrapping_mul(GAMMA)));
    mix(start.wrapping_add(replicate.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// P(X > 18) is 3e-18, less than one number of the 2^53.
const LARGEST: usize = 18;

/// Numbers of 53 bits below which a weight is 0, 1, 2, …
struct Weights([u64; LARGEST]);

impl Weights {
    fn new() -> Self {
        let mut chance = (-1.0_f64).exp();
        let mut below = 0.0;
        Self(std::array::from_fn(|weight| {
            below += chance;
            chance /= (weight + 1) as f64;
            (below * (1_u64 << 53) as f64) as u64
        }))
    }

    fn of(&self, bits: u64) -> i64 {
        let number = bits >> 11;
        self.0.iter().position(|end| number < *end).unwrap_or(LARGEST) as i64
    }
}

#[cfg(test)]
mod tests {
    use uplake_experiment::distribution::chi2_sf;

    use super::*;

    const USERS: u64 = 100_000;

    fn weights_of(replicate: u64, seed: u64, key: impl Fn(u64) -> u64) -> Vec<f64> {
        let weights = Weights::new();
        (0..USERS).map(|user| weights.of(bits(key(user), replicate, seed)) as f64).collect()
    }

    fn text(user: u64) -> u64 {
        fnv1a(&format!("user-{user}"))
    }

    fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
        values.clone().sum::<f64>() / values.count() as f64
    }

    /// With 100,000 users five standard errors of a mean of Poisson(1) are 0.0158; of its variance,
    /// whose own variance is 3, they are 0.0274.
    #[test]
    fn weights_are_poisson_of_mean_one() {
        for seed in 0..20 {
            for (replicate, key) in [(0, (|user| user) as fn(u64) -> u64), (seed * 37, text)] {
                let weights = weights_of(replicate, seed, key);
                let centre = mean(weights.iter().copied());
                let variance = mean(weights.iter().map(|w| (w - centre).powi(2)));
                assert!((centre - 1.0).abs() < 0.0158, "seed {seed}: mean {centre}");
                assert!((variance - 1.0).abs() < 0.0274, "seed {seed}: variance {variance}");
                let mut expected = USERS as f64 * (-1.0_f64).exp();
                let (mut chi_square, mut left) = (0.0, USERS as f64);
                for value in 0..7 {
                    let seen = weights.iter().filter(|w| **w == f64::from(value)).count() as f64;
                    chi_square += (seen - expected).powi(2) / expected;
                    left -= expected;
                    expected /= f64::from(value + 1);
                }
                let above = weights.iter().filter(|w| **w > 6.0).count() as f64;
                chi_square += (above - left).powi(2) / left;
                // Of 40 tests the least p is below this in one of 2,500.
                assert!(chi2_sf(chi_square, 7.0) > 1e-5, "seed {seed}: {chi_square}");
            }
        }
    }

    /// Correlations of 100,000 users have a standard error of 0.0032.
    #[test]
    fn replicates_seeds_and_users_do_not_know_of_each_other() {
        let base = weights_of(1, 0, text);
        let covariance =
            |other: &[f64]| mean(base.iter().zip(other).map(|(a, b)| (a - 1.0) * (b - 1.0)));
        for replicate in [0, 2, 3, 1000, u64::MAX] {
            let shared = covariance(&weights_of(replicate, 0, text));
            assert!(shared.abs() < 0.016, "replicate {replicate}: {shared}");
        }
        for seed in [1, 2, 7, u64::MAX] {
            let shared = covariance(&weights_of(1, seed, text));
            assert!(shared.abs() < 0.016, "seed {seed}: {shared}");
        }
        for distance in [1, 2, 3, 64] {
            let shared = covariance(&base[distance..]);
            assert!(shared.abs() < 0.016, "distance {distance}: {shared}");
        }
        // Seed and key are not one number: 7 of seed 3 is not 3 of seed 7.
        let of =
            |key, seed| (0..20).map(|replicate| bits(key, replicate, seed)).collect::<Vec<_>>();
        assert_ne!(of(7, 3), of(3, 7));
        assert_ne!(of(8, 0), of(7, 1));
    }

    /// The error of a mean by 2,000 replicates is that of its formula; its own error is 1.6 %.
    #[test]
    fn a_bootstrap_finds_the_error_of_a_mean() {
        let weights = Weights::new();
        let users: Vec<(u64, f64)> = (0..1000)
            .map(|user| {
                let uniform = (mix(user * 977) >> 11) as f64 / (1_u64 << 53) as f64;
                (text(user), -(1.0 - uniform).ln() * 30.0)
            })
            .collect();
        let values = users.iter().map(|(_, value)| *value);
        let centre = mean(values.clone());
        let variance = values.map(|value| (value - centre).powi(2)).sum::<f64>() / 999.0;
        let error = (variance / 1000.0).sqrt();
        let replicates: Vec<f64> = (0..2000)
            .map(|replicate| {
                let weighed = users
                    .iter()
                    .map(|(key, value)| (weights.of(bits(*key, replicate, 42)) as f64, *value));
                let (sum, users) = weighed.fold((0.0, 0.0), |(sum, users), (weight, value)| {
                    (sum + weight * value, users + weight)
                });
                sum / users
            })
            .collect();
        let of_replicates = mean(replicates.iter().copied());
        let spread = mean(replicates.iter().map(|mean| (mean - of_replicates).powi(2))).sqrt();
        assert!((spread / error - 1.0).abs() < 0.03, "{spread} and not {error}");
    }

    /// By the same steps in Python: a weight that changes would change every bootstrap that was published.
    #[test]
    fn weights_stay_what_they_are() {
        let weights = Weights::new();
        let of = |key: u64, seed: u64| -> Vec<i64> {
            (0..12).map(|replicate| weights.of(bits(key, replicate, seed))).collect()
        };
        assert_eq!(of(1, 0), [1, 1, 1, 2, 0, 0, 2, 1, 2, 3, 3, 2]);
        assert_eq!(of(fnv1a("user-1"), 7), [1, 1, 1, 1, 1, 2, 1, 1, 0, 0, 1, 2]);
    }
}
