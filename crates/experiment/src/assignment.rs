//! Which arm a unit was meant to see, as published assignment systems compute it.
//!
//! For an analytical database exposures arrive assigned; these functions re-derive the intended
//! arm to flag exposures that differ from it, cut users into buckets, and re-salt A/A tests.
//!
//! # Invariants
//! - Ranges start where an arm's weight starts, `[lo, lo + coverage * weight)`, so that a change
//!   of coverage never moves a unit from one arm to another.
//! - Ids are hashed as the system's own SDKs hash them: UTF-8 bytes, except GrowthBook's, whose
//!   reference implementation hashes UTF-16 code units.
//!
//! # Not here
//! No targeting, no sticky buckets.

use crate::digest::{fnv1a_32_utf16, md5, murmur3_32, sha1, sha256};

/// Half-open range of a hash in `0..=1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub fn contains(&self, hash: f64) -> bool {
        hash >= self.low && hash < self.high
    }
}

/// GrowthBook's hash of a unit, in `[0, 1)`; `None` for a version that does not exist. Version 1
/// is slightly biased (1,000 steps) and kept for old experiments.
///
/// # Source
/// growthbook/growthbook, packages/sdk-js, `hash`.
pub fn growthbook_hash(seed: &str, value: &str, version: u32) -> Option<f64> {
    match version {
        1 => {
            let hash = fnv1a_32_utf16(&format!("{value}{seed}"));
            Some(f64::from(hash % 1000) / 1000.0)
        }
        2 => {
            let inner = fnv1a_32_utf16(&format!("{seed}{value}"));
            let hash = fnv1a_32_utf16(&inner.to_string());
            Some(f64::from(hash % 10_000) / 10_000.0)
        }
        _ => None,
    }
}

/// One range per variation. `coverage` is held within 0 to 1; weights of the wrong number, or
/// whose sum is off 1 by more than 0.01, are replaced by equal ones.
///
/// # Source
/// As [`growthbook_hash`], `getBucketRanges`.
pub fn growthbook_ranges(variations: usize, coverage: f64, weights: Option<&[f64]>) -> Vec<Range> {
    let coverage = coverage.clamp(0.0, 1.0);
    let equal = vec![1.0 / variations.max(1) as f64; variations];
    let usable = weights.filter(|weights| {
        weights.len() == variations && (0.99..=1.01).contains(&weights.iter().sum::<f64>())
    });
    let mut start = 0.0;
    usable
        .unwrap_or(&equal)
        .iter()
        .map(|weight| {
            let low = start;
            start += weight;
            Range { low, high: low + coverage * weight }
        })
        .collect()
}

/// The variation whose range holds the hash.
pub fn choose(hash: f64, ranges: &[Range]) -> Option<usize> {
    ranges.iter().position(|range| range.contains(hash))
}

/// Is a unit within GrowthBook's namespace, a slice of users that experiments share out?
pub fn growthbook_in_namespace(unit: &str, namespace: &str, range: Range) -> bool {
    growthbook_hash(&format!("__{namespace}"), unit, 1).is_some_and(|hash| range.contains(hash))
}

/// Optimizely's bucket, 0 to 9,999. Traffic entry `i` is taken if the bucket is below its end of
/// range and not below the one before; groups that exclude each other bucket on the group first.
///
/// # Source
/// optimizely/python-sdk, `bucketer.py`.
pub fn optimizely_bucket(bucketing_id: &str, experiment_id: &str) -> u32 {
    let hash = murmur3_32(format!("{bucketing_id}{experiment_id}").as_bytes(), 1);
    // 32 bits times 10,000 fit 46 bits, so the shift is the exact floor.
    ((u64::from(hash) * 10_000) >> 32) as u32
}

/// Unleash's normalised value, 1 to `normalizer`. A rollout of `percent` holds it if it is not
/// above `percent`, with seed 0 and normalizer 100.
///
/// # Source
/// Unleash/unleash-node-sdk, `strategy/util.ts`.
///
/// # Panics
/// If `normalizer` is 0.
pub fn unleash_value(id: &str, group: &str, normalizer: u32, seed: u32) -> u32 {
    assert!(normalizer > 0, "the normalizer divides");
    murmur3_32(format!("{group}:{id}").as_bytes(), seed) % normalizer + 1
}

/// Seed of Unleash's choice among variants; its normalizer is the sum of weights.
pub const UNLEASH_VARIANT_SEED: u32 = 86_028_157;

/// Statsig's 64-bit hash of a unit under a rule. A rule at `percent` passes units with
/// `hash % 10000 < percent * 100`.
///
/// # Source
/// statsig-io/python-sdk, `evaluator.py`; no numeric vectors are published, ours are computed
/// from that rule.
pub fn statsig_hash(salt: &str, rule_salt: &str, unit: &str) -> u64 {
    first_eight(&sha256(format!("{salt}.{rule_salt}.{unit}").as_bytes()))
}

/// Statsig's user bucket, 0 to 999.
pub fn statsig_user_bucket(salt: &str, unit: &str) -> u64 {
    first_eight(&sha256(format!("{salt}.{unit}").as_bytes())) % 1000
}

/// PlanOut's hash: 60 bits of SHA-1. A uniform choice among n is `hash % n`.
///
/// # Source
/// facebookarchive/planout, `ops/random.py`; Bakshy, Eckles & Bernstein, "Designing and Deploying
/// Online Field Experiments", WWW 2014.
pub fn planout_hash(experiment_salt: &str, parameter_salt: &str, unit: &str) -> u64 {
    first_eight(&sha1(format!("{experiment_salt}.{parameter_salt}.{unit}").as_bytes())) >> 4
}

/// PlanOut's hash scaled to `[low, high]`.
pub fn planout_uniform(hash: u64, low: f64, high: f64) -> f64 {
    low + (high - low) * (hash as f64 / 0xFFF_FFFF_FFFF_FFFF_u64 as f64)
}

/// Eppo's shard, 0 to `shards - 1` (10,000 by default), of "salt-subject".
///
/// # Source
/// Eppo-exp/python-sdk, `sharders.py`.
///
/// # Panics
/// If `shards` is 0.
pub fn eppo_shard(input: &str, shards: u32) -> u32 {
    assert!(shards > 0, "the shard count divides");
    let digest = md5(input.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % shards
}

/// How a system was told to assign units to arms.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Assignment {
    pub system: System,
    /// What makes this experiment's hash differ from others': the seed, salt, experiment id or
    /// group id.
    pub seed: String,
    /// Share of units in the experiment, above 0, at most 1.
    pub coverage: f64,
}

/// A published assignment system.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum System {
    /// `version` 1 or 2 of the hash.
    GrowthBook {
        version: u32,
    },
    Optimizely,
    Unleash,
    /// `rule`: the rule's salt.
    Statsig {
        rule: String,
    },
    /// `parameter`: the parameter's salt.
    PlanOut {
        parameter: String,
    },
    Eppo,
}

/// Buckets that systems cut their hash into; of Unleash, the sum of its variants' weights.
const BUCKETS: u32 = 10_000;
const UNLEASH_BUCKETS: u32 = 1_000;

/// The arm of a bucket, counted from 0. Arms end at whole buckets, so sums of shares are rounded to them.
fn arm_of_bucket(bucket: u32, buckets: u32, shares: &[f64], coverage: f64) -> Option<usize> {
    let whole = |share: f64| (share * f64::from(buckets)).round() as u32;
    let coverage = coverage.clamp(0.0, 1.0);
    let mut start = 0.0;
    shares.iter().position(|share| {
        let low = whole(start);
        start += share;
        let high = if coverage < 1.0 { low + whole(coverage * share) } else { whole(start) };
        (low..high).contains(&bucket)
    })
}

impl Assignment {
    /// Index of the arm that `unit` was meant to see; `None`: not in the experiment. `shares`:
    /// one per arm, relative to their sum.
    pub fn arm(&self, unit: &str, shares: &[f64]) -> Option<usize> {
        let total: f64 = shares.iter().sum();
        let of_sum: Vec<f64> = shares.iter().map(|share| share / total).collect();
        // GrowthBook takes weights as they are written if they add up to about 1.
        let written = if (0.99..=1.01).contains(&total) { shares } else { &of_sum };
        let ranges = |weights| growthbook_ranges(shares.len(), self.coverage, Some(weights));
        let of_bucket = |bucket, buckets| arm_of_bucket(bucket, buckets, &of_sum, self.coverage);
        match &self.system {
            System::GrowthBook { version } => {
                choose(growthbook_hash(&self.seed, unit, *version)?, &ranges(written))
            }
            System::Optimizely => of_bucket(optimizely_bucket(unit, &self.seed), BUCKETS),
            System::Unleash => {
                let buckets = UNLEASH_BUCKETS;
                let value = unleash_value(unit, &self.seed, buckets, UNLEASH_VARIANT_SEED);
                of_bucket(value - 1, buckets)
            }
            System::Statsig { rule } => {
                let bucket = statsig_hash(&self.seed, rule, unit) % u64::from(BUCKETS);
                of_bucket(bucket as u32, BUCKETS)
            }
            System::PlanOut { parameter } => {
                let hash = planout_uniform(planout_hash(&self.seed, parameter, unit), 0.0, 1.0);
                choose(hash, &ranges(&of_sum))
            }
            System::Eppo => {
                of_bucket(eppo_shard(&format!("{}-{unit}", self.seed), BUCKETS), BUCKETS)
            }
        }
    }
}

fn first_eight(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_end_at_whole_buckets() {
        let shares = [0.05, 0.1, 0.85];
        let arm = |bucket| arm_of_bucket(bucket, BUCKETS, &shares, 1.0);
        assert_eq!([499, 500, 1499, 1500, 9999].map(arm), [0, 1, 1, 2, 2].map(Some));
        assert_eq!(arm(10_000), None);
        // Half of each arm's range.
        let arm = |bucket| arm_of_bucket(bucket, BUCKETS, &[0.5, 0.5], 0.5);
        assert_eq!(
            [2499, 2500, 5000, 7499, 7500].map(arm),
            [Some(0), None, Some(1), Some(1), None]
        );
        // Unleash counts weights up to 1,000, whatever the shares.
        let (system, seed) = (System::Unleash, "seed".to_owned());
        let unleash = Assignment { system, seed, coverage: 1.0 };
        for user in 0..2000 {
            let user = user.to_string();
            let value = unleash_value(&user, "seed", 1000, UNLEASH_VARIANT_SEED);
            assert_eq!(unleash.arm(&user, &[1.0, 1.0]), Some(usize::from(value > 500)));
        }
    }
}
