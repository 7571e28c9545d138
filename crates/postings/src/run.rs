//! Runs of rows, and the algebra of sorted run lists.
//!
//! # Invariants
//! - A list is sorted, its runs are disjoint, never empty and never adjacent, so equal sets are
//!   equal lists.
//!
//! # Not here
//! The choice between runs and containers: that is [`crate::RowSet`].

use std::ops::Range;

/// The rows `start..end` of one file; never empty where this crate hands one out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// First row.
    pub start: u32,
    /// The row after the last one.
    pub end: u32,
}

impl Run {
    /// The rows `start..end`.
    #[must_use]
    #[inline]
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Number of rows; 0 if `end` is not above `start`.
    #[must_use]
    #[inline]
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no row in it.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether `row` is in it.
    #[must_use]
    #[inline]
    pub const fn contains(self, row: u32) -> bool {
        self.start <= row && row < self.end
    }
}

impl From<Range<u32>> for Run {
    fn from(rows: Range<u32>) -> Self {
        Self::new(rows.start, rows.end)
    }
}

/// Appends `run`, which does not start before the last one, and joins the two if they touch.
#[inline]
pub(crate) fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
        _ => runs.push(run),
    }
}

/// Number of rows in a list.
pub(crate) fn rows(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.len())).sum()
}

/// Index of the first run that ends after `row`, looking from `from` on.
///
/// Gallops, so that a walk with ascending rows costs the logarithm of each step.
pub(crate) fn seek(runs: &[Run], from: usize, row: u32) -> usize {
    let rest = &runs[from.min(runs.len())..];
    if rest.first().is_none_or(|run| run.end > row) {
        return from;
    }
    let mut step = 1;
    while step < rest.len() && rest[step].end <= row {
        step *= 2;
    }
    let (low, high) = (step / 2, step.min(rest.len()));
    from + low + rest[low..high].partition_point(|run| run.end <= row)
}

pub(crate) fn or(a: &[Run], b: &[Run]) -> Vec<Run> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].start <= b[j].start {
            push(&mut out, a[i]);
            i += 1;
        } else {
            push(&mut out, b[j]);
            j += 1;
        }
    }
    for &run in a[i..].iter().chain(&b[j..]) {
        push(&mut out, run);
    }
    out
}

pub(crate) fn and(a: &[Run], b: &[Run]) -> Vec<Run> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (start, end) = (a[i].start.max(b[j].start), a[i].end.min(b[j].end));
        if start < end {
            out.push(Run::new(start, end));
        }
        if a[i].end <= b[j].end {
            i = seek(a, i + 1, b[j].start);
        } else {
            j = seek(b, j + 1, a[i].start);
        }
    }
    out
}

pub(crate) fn and_not(a: &[Run], b: &[Run]) -> Vec<Run> {
    let mut out = Vec::with_capacity(a.len());
    let mut j = 0;
    for &run in a {
        let mut start = run.start;
        j = seek(b, j, start);
        while let Some(hole) = b.get(j).filter(|hole| hole.start < run.end) {
            if start < hole.start {
                out.push(Run::new(start, hole.start));
            }
            start = hole.end;
            if hole.end >= run.end {
                break; // The hole may reach into the next run.
            }
            j += 1;
        }
        if start < run.end {
            out.push(Run::new(start, run.end));
        }
    }
    out
}

/// A run as one number that sorts by start, then end.
#[inline]
pub(crate) fn pack(run: Run) -> u64 {
    u64::from(run.start) << 32 | u64::from(run.end)
}

#[inline]
pub(crate) fn unpack(packed: u64) -> Run {
    Run::new((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(u32, u32)]) -> Vec<Run> {
        pairs.iter().map(|&(start, end)| Run::new(start, end)).collect()
    }

    #[test]
    fn algebra_of_small_lists() {
        type Pairs<'a> = &'a [(u32, u32)];
        let cases: [(Pairs<'_>, Pairs<'_>, Pairs<'_>, Pairs<'_>, Pairs<'_>); 6] = [
            (&[], &[], &[], &[], &[]),
            (&[(1, 3)], &[], &[(1, 3)], &[], &[(1, 3)]),
            (&[(1, 3)], &[(3, 5)], &[(1, 5)], &[], &[(1, 3)]),
            (&[(1, 9)], &[(2, 3), (5, 6)], &[(1, 9)], &[(2, 3), (5, 6)], &[(1, 2), (3, 5), (6, 9)]),
            (&[(1, 4), (6, 9)], &[(3, 7)], &[(1, 9)], &[(3, 4), (6, 7)], &[(1, 3), (7, 9)]),
            (&[(0, 1), (2, 3), (4, 5)], &[(0, 5)], &[(0, 5)], &[(0, 1), (2, 3), (4, 5)], &[]),
        ];
        for (a, b, expected_or, expected_and, expected_and_not) in cases {
            let (a, b) = (list(a), list(b));
            assert_eq!(or(&a, &b), list(expected_or), "{a:?} or {b:?}");
            assert_eq!(and(&a, &b), list(expected_and), "{a:?} and {b:?}");
            assert_eq!(and_not(&a, &b), list(expected_and_not), "{a:?} and not {b:?}");
        }
    }

    #[test]
    fn seek_finds_what_a_scan_finds() {
        let runs: Vec<Run> = (0..25).map(|i| Run::new(i * 5, i * 5 + 2)).collect();
        for from in 0..=runs.len() {
            for row in 0..130 {
                let scan = (from..runs.len()).find(|&i| runs[i].end > row).unwrap_or(runs.len());
                assert_eq!(seek(&runs, from, row), scan, "from {from}, row {row}");
            }
        }
    }
}
