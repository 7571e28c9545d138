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

    /// The state as plain numbers, to carry between processes; [`DailyMoments::from_state`] reads it back unchanged.
    pub fn to_state(&self) -> Vec<f64> {
        let halves = |count: u64| [(count >> 32) as f64, (count & 0xffff_ffff) as f64];
        let mut state = self.pivot.clone();
        for day in &self.days {
            state.extend(halves(day.users));
            state.extend(halves(day.zeros));
            state.push(f64::from(u8::from(!day.sums.is_empty())));
            for sum in day.sums.iter().chain(&day.products) {
                let (high, low) = sum.parts();
                state.extend([high, low]);
            }
        }
        state
    }

    /// Reads what [`DailyMoments::to_state`] wrote of so many columns and days; `None` if it is not that long, or has
    /// counts that are none.
    pub fn from_state(columns: usize, days: usize, state: &[f64]) -> Option<Self> {
        let mut daily = Self::new(columns, days);
        let (pivot, mut rest) = state.split_at_checked(columns)?;
        daily.pivot.copy_from_slice(pivot);
        daily.has_pivot = pivot.iter().all(|pivot| pivot.is_finite());
        let half = |value: f64| {
            let whole = value.fract() == 0.0 && (0.0..4_294_967_296.0).contains(&value);
            whole.then_some(value as u64)
        };
        for day in &mut daily.days {
            let ([high, low, zeros_high, zeros_low, is_there], others) =
                rest.split_first_chunk::<5>()?;
            rest = others;
            day.users = (half(*high)? << 32) + half(*low)?;
            day.zeros = (half(*zeros_high)? << 32) + half(*zeros_low)?;
            if *is_there == 0.0 {
                continue;
            }
            day.with_columns(columns);
            for sum in day.sums.iter_mut().chain(&mut day.products) {
                let ([high, low], others) = rest.split_first_chunk::<2>()?;
                rest = others;
                *sum = Double::from_parts(*high, *low);
            }
        }
        rest.is_empty().then_some(daily)
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
    fn a_state_is_read_as_it_was_written_or_refused() {
        let mut daily = DailyMoments::new(2, 3);
        daily.add(0, &[0.0, 0.0]);
        daily.add(0, &[1e16, 0.1]);
        daily.add(2, &[0.3, -7.0]);
        daily.change(2, &[1e16, 0.1], &[1e16 + 2.0, 0.1]);
        for daily in [DailyMoments::new(2, 3), daily] {
            let state = daily.to_state();
            let again = DailyMoments::from_state(2, 3, &state).unwrap();
            assert_eq!(
                again.to_state().iter().map(|n| n.to_bits()).collect::<Vec<_>>(),
                state.iter().map(|n| n.to_bits()).collect::<Vec<_>>()
            );
            let days = |daily: &DailyMoments| format!("{:?}", daily.cumulative());
            assert_eq!(days(&again), days(&daily));
            assert_eq!(DailyMoments::from_state(2, 3, &state[1..]), None);
            assert_eq!(DailyMoments::from_state(2, 2, &state), None);
        }
        assert_eq!(DailyMoments::from_state(0, 1, &[0.5, 0.0, 0.0, 0.0, 0.0]), None);
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
