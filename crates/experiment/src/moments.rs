//! Count, means and centred cross-products of a few numbers per user: the one state from which
//! every figure of a report is computed.
//!
//! # Invariants
//! - Sums are taken about a pivot, the first row seen. A row of the data lies within
//!   `sqrt(n)` standard deviations of the mean, so centring about the mean afterwards loses at
//!   most `log2(n)` of the 106 bits held: 30 bits at a billion users. A plain sum of squares in
//!   `f64` loses everything when the mean is large: 1,000 values near 1e9 then have variance
//!   131.2 instead of 8.3244.
//! - Any order of adding and merging the same rows rounds to the same `f64` in
//!   [`mean`](Moments::mean) and [`covariance`](Moments::covariance).
//! - One row that is not finite makes every figure of its columns NaN; [`Moments::is_finite`]
//!   says so, and `analyze` reports it by name.
//!
//! # Not here
//! No estimates (`effect`), no rows, no SQL.
//!
//! # Source
//! Chan, Golub & LeVeque, "Algorithms for computing the sample variance", 1983 (shifted sums and
//! pairwise merging).

use std::ops::Add;

use crate::double::Double;

/// Residues of centring below this share of the terms are rounding noise and count as zero. A
/// true variance is at least `1/n` of them, and `n` stays below 2^63 by its type.
const CENTRING_NOISE: f64 = 1.0 / (1u128 << 90) as f64;

/// What is left of `terms` that were added up, or zero if it is noise: its sign and size would
/// depend on the order of adding.
pub(crate) fn without_noise(sum: Double, terms: &[Double]) -> Double {
    let scale: f64 = terms.iter().map(|term| term.abs().to_f64()).sum();
    if sum.abs().to_f64() <= scale * CENTRING_NOISE { Double::ZERO } else { sum }
}

/// Count, means and centred cross-products of `k` columns; mergeable in any order.
///
/// # Examples
/// ```
/// use uplake_experiment::Moments;
/// let mut moments = Moments::new(2);
/// moments.add(&[1.0, 10.0]);
/// moments.add(&[3.0, 30.0]);
/// assert_eq!(moments.count(), 2);
/// assert_eq!(moments.mean(0), 2.0);
/// assert_eq!(moments.covariance(0, 1), 20.0);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    columns: usize,
    users: u64,
    /// The row the sums are taken about; empty until the first row.
    pivot: Vec<f64>,
    /// Per column, the sum of `value - pivot`.
    sums: Vec<Double>,
    /// Per pair `i <= j`, row by row, the sum of `(x_i - pivot_i)(x_j - pivot_j)`.
    products: Vec<Double>,
}

impl Moments {
    /// No users yet, `columns` numbers per user.
    pub fn new(columns: usize) -> Self {
        Self {
            columns,
            users: 0,
            pivot: Vec::new(),
            sums: vec![Double::ZERO; columns],
            products: vec![Double::ZERO; columns * (columns + 1) / 2],
        }
    }

    /// Sums about `pivot`, which may be empty without users.
    pub(crate) fn from_parts(
        users: u64,
        pivot: &[f64],
        sums: &[Double],
        products: &[Double],
    ) -> Self {
        let mut moments = Self::new(sums.len());
        if users > 0 {
            moments.users = users;
            moments.pivot = pivot.to_vec();
            moments.sums.copy_from_slice(sums);
            moments.products.copy_from_slice(products);
        }
        moments
    }

    /// One more user. `values`: one number per column.
    ///
    /// # Panics
    /// If `values` has another length than the columns.
    pub fn add(&mut self, values: &[f64]) {
        assert_eq!(values.len(), self.columns, "one value per column");
        if self.users == 0 {
            self.pivot = values.to_vec();
        }
        self.users += 1;
        let mut slot = 0;
        for i in 0..self.columns {
            let from_pivot = Double::difference(values[i], self.pivot[i]);
            if from_pivot.is_zero() {
                slot += self.columns - i;
                continue;
            }
            self.sums[i] = self.sums[i] + from_pivot;
            for (value, pivot) in values[i..].iter().zip(&self.pivot[i..]) {
                let other = Double::difference(*value, *pivot);
                self.products[slot] = self.products[slot] + from_pivot * other;
                slot += 1;
            }
        }
    }

    /// Sums and products about `pivot` of so many users with zero in every column.
    pub(crate) fn zeros_about(users: u64, pivot: &[f64]) -> (Vec<Double>, Vec<Double>) {
        let users = Double::from_count(users);
        let away: Vec<Double> = pivot.iter().map(|pivot| Double::difference(0.0, *pivot)).collect();
        let sums = away.iter().map(|away| users * *away).collect();
        let pairs = away.iter().enumerate().flat_map(|(i, a)| away[i..].iter().map(|b| *a * *b));
        (sums, pairs.map(|product| users * product).collect())
    }

    /// `users` more users with zero in every column: the exposed users without events.
    pub fn add_zeros(&mut self, users: u64) {
        if users == 0 {
            return;
        }
        let mut zeros = Self::new(self.columns);
        zeros.users = users;
        zeros.pivot = vec![0.0; self.columns];
        self.merge(&zeros);
    }

    /// Adds all users of `other`.
    ///
    /// # Panics
    /// If the column counts differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.columns, other.columns, "moments of the same columns");
        if other.users == 0 {
            return;
        }
        if self.users == 0 {
            self.clone_from(other);
            return;
        }
        let other_users = Double::from_count(other.users);
        let mut slot = 0;
        for i in 0..self.columns {
            let shift_i = Double::difference(other.pivot[i], self.pivot[i]);
            for j in i..self.columns {
                let shift_j = Double::difference(other.pivot[j], self.pivot[j]);
                let product = other.products[slot];
                let (left, right) = (shift_i * other.sums[j], shift_j * other.sums[i]);
                let square = other_users * (shift_i * shift_j);
                let moved = product + left + right + square;
                let moved = without_noise(moved, &[product, left, right, square]);
                self.products[slot] = self.products[slot] + moved;
                slot += 1;
            }
        }
        for i in 0..self.columns {
            let shift = other_users * Double::difference(other.pivot[i], self.pivot[i]);
            let moved = without_noise(other.sums[i] + shift, &[other.sums[i], shift]);
            self.sums[i] = self.sums[i] + moved;
        }
        self.users += other.users;
    }

    /// Numbers per user.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Users seen.
    pub fn count(&self) -> u64 {
        self.users
    }

    /// Mean of column `i`; NaN without users.
    pub fn mean(&self, i: usize) -> f64 {
        if self.users == 0 {
            return f64::NAN;
        }
        let centred = self.sums[i].divide(Double::from_count(self.users));
        let pivot = Double::from(self.pivot[i]);
        without_noise(pivot + centred, &[pivot, centred]).to_f64()
    }

    /// Sum of column `i`; 0 without users.
    pub fn sum(&self, i: usize) -> f64 {
        if self.users == 0 {
            return 0.0;
        }
        self.total(i).to_f64()
    }

    fn total(&self, i: usize) -> Double {
        let base = Double::from(self.pivot[i]) * Double::from_count(self.users);
        without_noise(base + self.sums[i], &[base, self.sums[i]])
    }

    /// Sample covariance (divisor `n - 1`) of columns `i` and `j`; NaN below two users.
    pub fn covariance(&self, i: usize, j: usize) -> f64 {
        if self.users < 2 {
            return f64::NAN;
        }
        self.shared(i, j).to_f64()
    }

    fn shared(&self, i: usize, j: usize) -> Double {
        let users = Double::from_count(self.users);
        let raw = users * self.products[self.slot(i, j)];
        let shift = self.sums[i] * self.sums[j];
        let centred = without_noise(raw - shift, &[raw, shift]);
        centred.divide(users * Double::from_count(self.users - 1))
    }

    /// Sample covariance of `m - r d` and `p - s q` per user, where r and s are the ratios of the sums, and the
    /// size of the terms that it is the sum of: they may cancel out, so they are added in 106 bits. NaN below
    /// two users and where a sum of denominators is 0.
    pub(crate) fn ratio_covariance(&self, [m, d]: [usize; 2], [p, q]: [usize; 2]) -> (f64, f64) {
        if self.users < 2 {
            return (f64::NAN, f64::NAN);
        }
        let (r, s) = (self.ratio(m, d), self.ratio(p, q));
        let terms = [
            self.shared(m, p),
            -(r * self.shared(d, p)),
            -(s * self.shared(m, q)),
            r * s * self.shared(d, q),
        ];
        let sum = terms.into_iter().fold(Double::ZERO, Add::add).to_f64();
        (sum, terms.map(|term| term.abs().to_f64()).iter().sum())
    }

    fn ratio(&self, numerator: usize, denominator: usize) -> Double {
        self.total(numerator).divide(self.total(denominator))
    }

    /// Sample variance (divisor `n - 1`) of column `i`; NaN below two users.
    pub fn variance(&self, i: usize) -> f64 {
        self.covariance(i, i)
    }

    /// False if a row, or a square of one, was not finite.
    pub fn is_finite(&self) -> bool {
        self.sums.iter().chain(&self.products).all(|sum| sum.to_f64().is_finite())
            && self.pivot.iter().all(|value| value.is_finite())
    }

    /// The state as plain numbers, to carry between processes: users, pivot, then the high and
    /// low half of every sum and product. [`Moments::from_state`] reads it back unchanged.
    pub fn to_state(&self) -> Vec<f64> {
        let high_bits = self.users >> 32;
        let mut state = vec![high_bits as f64, (self.users - (high_bits << 32)) as f64];
        if self.users == 0 {
            state.extend(std::iter::repeat_n(0.0, self.columns));
        } else {
            state.extend(&self.pivot);
        }
        for sum in self.sums.iter().chain(&self.products) {
            let (high, low) = sum.parts();
            state.extend([high, low]);
        }
        state
    }

    /// Reads what [`Moments::to_state`] wrote; `None` if the length or the count is not one it
    /// writes.
    pub fn from_state(columns: usize, state: &[f64]) -> Option<Self> {
        let mut moments = Self::new(columns);
        let pairs = moments.sums.len() + moments.products.len();
        if state.len() != 2 + columns + 2 * pairs {
            return None;
        }
        let half = |value: f64| {
            let whole = value.fract() == 0.0 && (0.0..4_294_967_296.0).contains(&value);
            whole.then_some(value as u64)
        };
        moments.users = (half(state[0])? << 32) + half(state[1])?;
        if moments.users > 0 {
            moments.pivot = state[2..2 + columns].to_vec();
        }
        let halves = state[2 + columns..].chunks_exact(2);
        let slots = moments.sums.iter_mut().chain(&mut moments.products);
        for (slot, pair) in slots.zip(halves) {
            *slot = Double::from_parts(pair[0], pair[1]);
        }
        Some(moments)
    }

    /// From published raw sums, for sources that give nothing better. `products`: the sum of
    /// `x_i * x_j` per pair `i <= j`, row by row. Where means are large next to standard
    /// deviations the figures inherit the cancellation of those sums.
    ///
    /// # Panics
    /// If `products` has another length than `k * (k + 1) / 2`.
    pub fn from_raw_sums(users: u64, sums: &[f64], products: &[f64]) -> Self {
        let mut moments = Self::new(sums.len());
        assert_eq!(products.len(), moments.products.len(), "one product per pair of columns");
        if users > 0 {
            moments.users = users;
            moments.pivot = vec![0.0; sums.len()];
            moments.sums = sums.iter().copied().map(Double::from).collect();
            moments.products = products.iter().copied().map(Double::from).collect();
        }
        moments
    }

    /// From published means and covariances (divisor `n - 1`), per pair `i <= j`, row by row.
    ///
    /// # Panics
    /// If `covariances` has another length than `k * (k + 1) / 2`.
    pub fn from_summary(users: u64, means: &[f64], covariances: &[f64]) -> Self {
        let mut moments = Self::new(means.len());
        assert_eq!(covariances.len(), moments.products.len(), "one covariance per pair of columns");
        if users > 0 {
            let divisor = Double::from_count(users - 1);
            moments.users = users;
            moments.pivot = means.to_vec();
            moments.products = covariances.iter().map(|&c| Double::from(c) * divisor).collect();
        }
        moments
    }

    fn slot(&self, i: usize, j: usize) -> usize {
        let (i, j) = (i.min(j), i.max(j));
        i * (2 * self.columns - i + 1) / 2 + (j - i)
    }
}

#[cfg(test)]
mod tests {
    use super::Moments;

    /// SplitMix64: a seeded source, so that a failure can be repeated.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }

        fn below(&mut self, end: u64) -> usize {
            (self.next() % end) as usize
        }

        fn value(&mut self) -> f64 {
            let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
            match self.next() % 4 {
                0 => 0.0,
                1 => unit * 1e6,
                2 => 1e9 + unit,
                _ => (unit - 0.5) * 0.1,
            }
        }
    }

    fn figures(moments: &Moments) -> Vec<u64> {
        let k = moments.columns();
        let means = (0..k).map(|i| moments.mean(i).to_bits());
        let pairs = (0..k).flat_map(|i| (0..k).map(move |j| (i, j)));
        means.chain(pairs.map(|(i, j)| moments.covariance(i, j).to_bits())).collect()
    }

    fn shuffle<T>(items: &mut [T], random: &mut Random) {
        for i in (1..items.len()).rev() {
            items.swap(i, random.below(i as u64 + 1));
        }
    }

    #[test]
    fn any_order_of_adding_and_merging_gives_the_same_bits() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let columns = 1 + random.below(3);
            let mut rows: Vec<Vec<f64>> = (0..2 + random.below(60))
                .map(|_| (0..columns).map(|_| random.value()).collect())
                .collect();
            let mut in_order = Moments::new(columns);
            rows.iter().for_each(|row| in_order.add(row));
            for _ in 0..5 {
                shuffle(&mut rows, &mut random);
                let mut parts = vec![Moments::new(columns); 1 + random.below(6)];
                for row in &rows {
                    let part = random.below(parts.len() as u64);
                    parts[part].add(row);
                }
                shuffle(&mut parts, &mut random);
                let merged = parts.iter().fold(Moments::new(columns), |mut all, part| {
                    all.merge(part);
                    all
                });
                assert_eq!(figures(&in_order), figures(&merged), "seed {seed}");
            }
        }
    }

    #[test]
    fn variance_of_a_thousand_values_near_a_billion_keeps_its_digits() {
        let mut moments = Moments::new(1);
        (0..1000).for_each(|i| moments.add(&[1e9 + f64::from(i % 10)]));
        // Digits 0..9, a hundred times each: 82,500 / 999 / 10.
        assert_eq!(moments.variance(0), 8250.0 / 999.0);
    }

    #[test]
    fn zeros_added_in_bulk_equal_zeros_added_one_by_one() {
        let (mut bulk, mut single) = (Moments::new(2), Moments::new(2));
        for moments in [&mut bulk, &mut single] {
            moments.add(&[3.0, 0.1]);
            moments.add(&[5.5, -0.2]);
        }
        bulk.add_zeros(1000);
        (0..1000).for_each(|_| single.add(&[0.0, 0.0]));
        assert_eq!(bulk.count(), 1002);
        assert_eq!(figures(&bulk), figures(&single));
    }

    #[test]
    fn equal_values_have_exactly_zero_variance() {
        let mut moments = Moments::new(1);
        (0..97).for_each(|_| moments.add(&[0.1]));
        assert_eq!((moments.mean(0), moments.variance(0)), (0.1, 0.0));
    }

    /// Amounts near a billion in both, and one user without: what is left is a millionth of the terms.
    #[test]
    fn covariance_of_ratios_is_what_whole_numbers_give() {
        const N: i128 = 1_000_000_000;
        let rows = [
            [N + 2, 1, 1, 1],
            [3 * N + 1, 3, 2 * N + 7, 2],
            [2 * N + 9, 2, N + 1, 1],
            [N, 1, 5 * N + 3, 5],
        ];
        let mut moments = Moments::new(4);
        rows.iter().for_each(|row| moments.add(&row.map(|value| value as f64)));
        let total = |i: usize| rows.iter().map(|row| row[i]).sum::<i128>();
        let [m, d, p, q] = [0, 1, 2, 3].map(total);
        let products = rows.iter().map(|row| (row[0] * d - m * row[1]) * (row[2] * q - p * row[3]));
        let exact = products.sum::<i128>() as f64 / (d * q * 3) as f64;
        let (sum, size) = moments.ratio_covariance([0, 1], [2, 3]);
        assert!((sum / exact - 1.0).abs() < 1e-14, "{sum} {exact}");
        assert!(size > 1e8 * sum.abs());
    }

    #[test]
    fn state_survives_the_journey_between_processes() {
        let mut moments = Moments::new(2);
        moments.add(&[0.1, 7e8]);
        moments.add(&[0.2, 3.0]);
        for original in [moments, Moments::new(3)] {
            let state = original.to_state();
            assert_eq!(Moments::from_state(original.columns(), &state), Some(original.clone()));
            assert_eq!(Moments::from_state(original.columns() + 1, &state), None);
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_noticed() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200] {
            let mut moments = Moments::new(1);
            moments.add(&[1.0]);
            moments.add(&[bad]);
            assert!(!moments.is_finite(), "{bad}");
        }
    }

    #[test]
    fn one_user_has_a_mean_and_no_variance() {
        let mut moments = Moments::new(1);
        moments.add(&[4.0]);
        assert_eq!(moments.mean(0), 4.0);
        assert!(moments.variance(0).is_nan());
    }
}
