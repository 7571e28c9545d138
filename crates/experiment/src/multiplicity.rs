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

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    order
}
