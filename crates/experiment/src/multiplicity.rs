//! Corrections for looking at many comparisons at once.
//!
//! # Invariants
//! - Adjusted p-values keep the order of the input and lie in `0..=1`.
//!
//! # Not here
//! No choice of what belongs to one family of comparisons: `analyze` makes it.

/// Holm's step-down adjustment: keeps the chance of any false rejection in the family at alpha,
/// whatever the dependence. `p`: finite p-values in any order; the result keeps it.
///
/// # Source
/// Holm, "A simple sequentially rejective multiple test procedure", 1979. (What tea-tasting
/// calls its default is step-up Sidak, another method.)
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in ascending(p).into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - rank) as f64);
        adjusted[index] = largest.min(1.0);
    }
    adjusted
}

/// Benjamini and Hochberg's step-up adjustment: keeps the expected share of false rejections
/// among rejections at alpha, for independent or positively dependent tests.
///
/// # Source
/// Benjamini & Hochberg, "Controlling the false discovery rate", JRSS B 57, 1995.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest: f64 = 1.0;
    for (rank, index) in ascending(p).into_iter().enumerate().rev() {
        smallest = smallest.min(p[index] * p.len() as f64 / (rank + 1) as f64);
        adjusted[index] = smallest;
    }
    adjusted
}

/// Bonferroni's adjustment: as [`holm`], with less power.
pub fn bonferroni(p: &[f64]) -> Vec<f64> {
    let tests = p.len() as f64;
    p.iter().map(|p| (p * tests).min(1.0)).collect()
}

/// Hochberg's step-up adjustment: keeps the chance of any false rejection at alpha, for independent
/// or positively dependent tests.
///
/// # Source
/// Hochberg, "A sharper Bonferroni procedure for multiple tests of significance", Biometrika 75, 1988.
pub fn hochberg(p: &[f64]) -> Vec<f64> {
    stepped_up(p, |after| (after + 1) as f64)
}

/// Benjamini and Yekutieli's step-up adjustment: as [`benjamini_hochberg`], whatever the dependence.
///
/// # Source
/// Benjamini & Yekutieli, "The control of the false discovery rate in multiple testing under
/// dependency", Annals of Statistics 29, 2001.
pub fn benjamini_yekutieli(p: &[f64]) -> Vec<f64> {
    let harmonic: f64 = (1..=p.len()).map(|rank| 1.0 / rank as f64).sum();
    let tests = p.len() as f64;
    stepped_up(p, |after| harmonic * tests / (tests - after as f64))
}

/// From the largest p-value down, each times a factor of how many are larger, never above the one
/// before.
fn stepped_up(p: &[f64], factor: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest: f64 = 1.0;
    for (after, index) in ascending(p).into_iter().rev().enumerate() {
        smallest = smallest.min(p[index] * factor(after));
        adjusted[index] = smallest;
    }
    adjusted
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    order
}
