//! Moments as of the end of every day, from one pass over users.
//!
//! A user counts from the day of first exposure; later rows change the user's numbers. Adding the
//! user's new numbers and taking the old ones away is exact in 106 bits, so all days of a
//! cumulative report come from one pass instead of one pass per day.
//!
//! # Invariants
//! - [`DailyMoments::cumulative`] equals moments computed anew for each day to 1e-12.
//! - Users split over several of these in any way give the same `f64` when their days are merged,
//!   though each has a pivot of its own.
//! - A number that is not finite spoils the days from its own on, whenever its row is seen.
//!
//! # Not here
//! No calendar: days are indexes.

use crate::double::Double;
use crate::moments::{Moments, without_noise};

/// What each day adds to the moments of `k` columns.
#[derive(Debug, Clone, PartialEq)]
pub struct DailyMoments {
    columns: usize,
    /// All sums are about this: per column the number of the first row that is not all zeros and has
    /// a finite one. Until then not finite, and so are the sums.
    pivot: Vec<f64>,
    has_pivot: bool,
    days: Vec<Change>,
}

/// Changes of one day; the vectors are empty until the first.
#[derive(Debug, Clone, PartialEq, Default)]
struct Change {
    users: u64,
    /// Of them, those who came with zeros; the sums are without them.
    zeros: u64,
    sums: Vec<Double>,
    products: Vec<Double>,
}

impl Change {
    fn with_columns(&mut self, columns: usize) -> &mut Self {
        if self.sums.is_empty() {
            self.sums = vec![Double::ZERO; columns];
            self.products = vec![Double::ZERO; columns * (columns + 1) / 2];
        }
        self
    }
}

/// Its square leaves room for a hundred million more of them.
const PIVOT_MAX: f64 = 1e150;

impl DailyMoments {
    /// No users yet.
    pub fn new(columns: usize, days: usize) -> Self {
        let (pivot, days) = (vec![f64::NAN; columns], vec![Change::default(); days]);
        Self { columns, pivot, has_pivot: columns == 0, days }
    }

    /// One more user from `day` on. `values`: one number per column, as of the end of that day.
    ///
    /// # Panics
    /// If the day is out of range or `values` has another length than the columns.
    pub fn add(&mut self, day: usize, values: &[f64]) {
        assert_eq!(values.len(), self.columns, "one value per column");
        self.days[day].users += 1;
        if values.iter().all(|value| *value == 0.0) {
            self.days[day].zeros += 1;
            return;
        }
        self.take_pivot(values);
        let change = self.days[day].with_columns(self.columns);
        let mut slot = 0;
        for i in 0..self.columns {
            let from_pivot = Double::difference(values[i], self.pivot[i]);
            if from_pivot.is_zero() {
                slot += self.columns - i;
                continue;
            }
            change.sums[i] = change.sums[i] + from_pivot;
            for (value, pivot) in values[i..].iter().zip(&self.pivot[i..]) {
                let product = from_pivot * Double::difference(*value, *pivot);
                change.products[slot] = change.products[slot] + product;
                slot += 1;
            }
        }
    }

    /// From `day` on a user that was added before has other numbers.
    ///
    /// # Panics
    /// As [`DailyMoments::add`].
    pub fn change(&mut self, day: usize, old: &[f64], new: &[f64]) {
        assert!(old.len() == self.columns && new.len() == self.columns, "one value per column");
        self.take_pivot(old);
        let pivot = &self.pivot;
        let change = self.days[day].with_columns(self.columns);
        let mut slot = 0;
        for i in 0..self.columns {
            let before = Double::difference(old[i], pivot[i]);
            let after = Double::difference(new[i], pivot[i]);
            change.sums[i] = change.sums[i] + Double::difference(new[i], old[i]);
            for j in i..self.columns {
                let before = before * Double::difference(old[j], pivot[j]);
                let after = after * Double::difference(new[j], pivot[j]);
                change.products[slot] = change.products[slot] + (after - before);
                slot += 1;
            }
        }
    }

    fn take_pivot(&mut self, values: &[f64]) {
        if self.has_pivot {
            return;
        }
        for (pivot, value) in self.pivot.iter_mut().zip(values) {
            if !pivot.is_finite() {
                // About an outlier the squares of all others would be infinite.
                *pivot = if value.is_finite() && value.abs() > PIVOT_MAX { 0.0 } else { *value };
            }
        }
        self.has_pivot = self.pivot.iter().all(|pivot| pivot.is_finite());
    }

    /// The moments as of the end of each day.
    pub fn cumulative(&self) -> Vec<Moments> {
        let mut sums = vec![Double::ZERO; self.columns];
        let mut products = vec![Double::ZERO; self.columns * (self.columns + 1) / 2];
        let known = |pivot: &f64| if pivot.is_finite() { *pivot } else { 0.0 };
        let pivot: Vec<f64> = self.pivot.iter().map(known).collect();
        let mut users = 0;
        let day = |change: &Change| {
            users += change.users;
            let add = |(sum, more): (&mut Double, &Double)| {
                *sum = without_noise(*sum + *more, &[*sum, *more]);
            };
            sums.iter_mut().zip(&change.sums).for_each(add);
            products.iter_mut().zip(&change.products).for_each(add);
            let zeros = Moments::zeros_about(change.zeros, &pivot);
            sums.iter_mut().zip(&zeros.0).for_each(add);
            products.iter_mut().zip(&zeros.1).for_each(add);
            Moments::from_parts(users, &pivot, &sums, &products)
        };
        self.days.iter().map(day).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::DailyMoments;

    #[test]
    fn a_number_that_is_not_finite_leaves_earlier_days_whatever_its_row() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200] {
            let rows: [(usize, [f64; 2]); 4] =
                [(2, [bad, 1.0]), (0, [5.0, 2.0]), (1, [7.0, 3.0]), (3, [8.0, bad])];
            for first in 0..rows.len() {
                let mut daily = DailyMoments::new(2, 4);
                for place in 0..rows.len() {
                    let (day, values) = rows[(first + place) % rows.len()];
                    daily.add(day, &values);
                }
                let days = daily.cumulative();
                let finite: Vec<bool> = days.iter().map(|day| day.is_finite()).collect();
                assert_eq!(finite, [true, true, false, false], "{bad} from row {first}");
                assert_eq!((days[1].mean(0), days[1].variance(0)), (6.0, 2.0));
                assert_eq!((days[1].mean(1), days[1].variance(1)), (2.5, 0.5));
                assert_eq!((days[2].mean(1), days[2].variance(1)), (2.0, 1.0));
            }
        }
    }

    #[test]
    fn a_user_whose_number_ceases_to_be_finite_leaves_the_days_before() {
        let mut daily = DailyMoments::new(1, 3);
        daily.add(0, &[f64::NAN]);
        daily.add(1, &[3.0]);
        assert!(daily.cumulative().iter().all(|day| !day.is_finite()));
        let mut daily = DailyMoments::new(1, 3);
        daily.add(0, &[4.0]);
        daily.change(2, &[4.0], &[f64::NAN]);
        daily.add(1, &[2.0]);
        let days = daily.cumulative();
        assert_eq!((days[0].mean(0), days[1].mean(0)), (4.0, 3.0));
        assert!(days[1].is_finite() && !days[2].is_finite());
    }
}
