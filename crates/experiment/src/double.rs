//! A number held as an unevaluated sum of two `f64`: about 106 bits of precision.
//!
//! Sums of centred squares in `f64` depend on the order of adding in their last digits; sums in
//! 106 bits do not, once they are rounded back to `f64`. That is why a report is the same byte
//! for byte whatever the partitions and nodes that fed it.
//!
//! # Invariants
//! - `high` is the sum rounded to `f64`, so `low` is at most half a unit in the last place of it.
//!
//! # Not here
//! No division and no roots beyond what the moments need; no infinities: they become NaN.
//!
//! # Source
//! Dekker, "A floating-point technique for extending the available precision", 1971; Joldes,
//! Muller & Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
//! arithmetic", 2017 (algorithms 6, 12 and 17).

use std::ops::{Add, Mul, Neg, Sub};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Double {
    high: f64,
    low: f64,
}

/// The exact sum of two numbers as rounded sum and error.
fn two_sum(a: f64, b: f64) -> Double {
    let high = a + b;
    let b_part = high - a;
    Double { high, low: (a - (high - b_part)) + (b - b_part) }
}

/// As [`two_sum`], for `|a| >= |b|`.
fn quick_two_sum(a: f64, b: f64) -> Double {
    let high = a + b;
    Double { high, low: b - (high - a) }
}

/// The exact product of two numbers as rounded product and error.
fn two_product(a: f64, b: f64) -> Double {
    let high = a * b;
    Double { high, low: a.mul_add(b, -high) }
}

impl Double {
    pub(crate) const ZERO: Self = Self { high: 0.0, low: 0.0 };

    /// Adding this, or a product with it, changes nothing.
    pub(crate) fn is_zero(self) -> bool {
        self.high == 0.0 && self.low == 0.0
    }

    /// The exact difference of two `f64`.
    pub(crate) fn difference(a: f64, b: f64) -> Self {
        two_sum(a, -b)
    }

    /// Exact for counts below 2^106.
    pub(crate) fn from_count(count: u64) -> Self {
        let high_bits = count >> 32 << 32;
        two_sum(high_bits as f64, (count - high_bits) as f64)
    }

    pub(crate) fn from_parts(high: f64, low: f64) -> Self {
        two_sum(high, low)
    }

    pub(crate) fn parts(self) -> (f64, f64) {
        (self.high, self.low)
    }

    /// The nearest `f64`.
    pub(crate) fn to_f64(self) -> f64 {
        self.high
    }

    pub(crate) fn abs(self) -> Self {
        if self.high < 0.0 { -self } else { self }
    }

    pub(crate) fn divide(self, by: Self) -> Self {
        let first = self.high / by.high;
        let rest = self - by * Self::from(first);
        quick_two_sum(first, rest.high / by.high)
    }
}

impl From<f64> for Double {
    fn from(high: f64) -> Self {
        Self { high, low: 0.0 }
    }
}

impl Add for Double {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let high = two_sum(self.high, other.high);
        let low = two_sum(self.low, other.low);
        let sum = quick_two_sum(high.high, high.low + low.high);
        quick_two_sum(sum.high, sum.low + low.low)
    }
}

impl Neg for Double {
    type Output = Self;
    fn neg(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }
}

impl Sub for Double {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Double {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let product = two_product(self.high, other.high);
        let cross = self.high.mul_add(other.low, self.low * other.high);
        quick_two_sum(product.high, product.low + cross)
    }
}

#[cfg(test)]
mod tests {
    use super::Double;

    #[test]
    fn a_small_number_survives_beside_a_large_one() {
        let sum = Double::from(1e16) + Double::from(1e-10) - Double::from(1e16);
        assert_eq!(sum.to_f64(), 1e-10);
    }

    #[test]
    fn division_undoes_multiplication_to_thirty_digits() {
        let third = Double::from(1.0).divide(Double::from(3.0));
        let error = (third * Double::from(3.0) - Double::from(1.0)).to_f64();
        assert!(error.abs() < 1e-31, "{error}");
    }

    #[test]
    fn a_count_beyond_53_bits_is_exact() {
        let count = Double::from_count((1 << 60) + 1) - Double::from_count(1 << 60);
        assert_eq!(count.to_f64(), 1.0);
    }
}
