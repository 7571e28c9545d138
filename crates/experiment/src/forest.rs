//! Where an interval is drawn: one axis per table of effects, in cells or pixels.
//!
//! # Invariants
//! - The axis always shows 0 and is symmetric about it, so up and down look alike.
//! - An interval beyond the axis is clipped and says so; it is never drawn shorter in silence.
//!
//! # Not here
//! No characters and no SVG.

use crate::effect::Estimate;

/// One very wide interval must not flatten the others to dots: the axis ends at four times the
/// median reach.
const WIDEST_OVER_MEDIAN: f64 = 4.0;

/// A symmetric axis about 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Axis {
    /// The axis runs from `-reach` to `reach`; above 0.
    pub(crate) reach: f64,
}

/// An interval on an axis, positions from 0 (left end) to 1 (right end).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) low: f64,
    pub(crate) value: f64,
    pub(crate) high: f64,
    pub(crate) low_clipped: bool,
    pub(crate) high_clipped: bool,
    /// The value itself lies beyond the axis and is not drawn.
    pub(crate) value_clipped: bool,
}

impl Axis {
    pub(crate) fn over<'e>(estimates: impl Iterator<Item = &'e Estimate>) -> Self {
        let mut reaches: Vec<f64> =
            estimates.map(|estimate| estimate.low.abs().max(estimate.high.abs())).collect();
        reaches.sort_by(f64::total_cmp);
        let Some(widest) = reaches.last().copied().filter(|reach| *reach > 0.0) else {
            return Self { reach: 1.0 };
        };
        let median = reaches[(reaches.len() - 1) / 2];
        let limit = WIDEST_OVER_MEDIAN * median;
        Self { reach: if limit > 0.0 { widest.min(limit) } else { widest } }
    }

    /// Position of `x`, from 0 to 1, held inside the axis.
    pub(crate) fn position(&self, x: f64) -> f64 {
        (0.5 + 0.5 * (x / self.reach)).clamp(0.0, 1.0)
    }

    pub(crate) fn draw(&self, estimate: &Estimate) -> Drawn {
        Drawn {
            low: self.position(estimate.low),
            value: self.position(estimate.value),
            high: self.position(estimate.high),
            low_clipped: estimate.low < -self.reach,
            high_clipped: estimate.high > self.reach,
            value_clipped: estimate.value.abs() > self.reach,
        }
    }

    /// The interval as `cells` characters, with the zero line in the middle. `cells` is odd.
    pub(crate) fn characters(&self, estimate: &Estimate, cells: usize) -> String {
        let drawn = self.draw(estimate);
        let cell = |position: f64| (position * (cells - 1) as f64).round() as usize;
        let mut line = vec![' '; cells];
        line[cells / 2] = '│';
        let (low, value, high) = (cell(drawn.low), cell(drawn.value), cell(drawn.high));
        for (index, slot) in line.iter_mut().enumerate().take(high + 1).skip(low) {
            *slot = if index == cells / 2 { '┼' } else { '─' };
        }
        line[low] = if drawn.low_clipped { '◄' } else { '├' };
        line[high] = if drawn.high_clipped { '►' } else { '┤' };
        if !drawn.value_clipped {
            line[value] = '●';
        }
        line.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Axis;
    use crate::effect::Estimate;

    fn interval(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, error: 1.0, df: 10.0, low, high, p: 0.5 }
    }

    #[test]
    fn drawn_ends_read_back_as_the_interval() {
        let estimates = [interval(-0.02, 0.05, 0.12), interval(0.01, 0.03, 0.05)];
        let axis = Axis::over(estimates.iter());
        let cells = 41;
        let width_of_a_cell = 2.0 * axis.reach / (cells - 1) as f64;
        for estimate in &estimates {
            let line: Vec<char> = axis.characters(estimate, cells).chars().collect();
            assert_eq!(line.len(), cells);
            for (mark, expected) in
                [('├', estimate.low), ('●', estimate.value), ('┤', estimate.high)]
            {
                let index = line.iter().position(|c| *c == mark).expect("drawn");
                let read = index as f64 * width_of_a_cell - axis.reach;
                assert!((read - expected).abs() <= width_of_a_cell / 2.0 + 1e-12, "{mark}");
            }
        }
    }

    #[test]
    fn a_very_wide_interval_is_clipped_and_says_so() {
        let mut estimates = vec![interval(-0.01, 0.0, 0.01); 5];
        estimates.push(interval(-3.0, 0.1, 3.0));
        let axis = Axis::over(estimates.iter());
        assert!((axis.reach - 0.04).abs() < 1e-12);
        let line = axis.characters(&estimates[5], 21);
        assert!(line.starts_with('◄') && line.ends_with('►'), "{line}");
    }

    #[test]
    fn an_axis_without_intervals_still_has_a_middle() {
        assert_eq!(Axis::over([].iter()).position(0.0), 0.5);
    }
}
