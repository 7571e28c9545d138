//! Whose windows are over, by when: users whom a metric leaves out until then, and counts of those of
//! whom it is not over yet.

use uplake_experiment::query::MomentsQuery;

use super::time::Times;
use crate::functions::local_day::LocalDays;

/// What a query asks about completeness.
pub(super) struct Complete {
    /// Exclusive, microseconds since 1970.
    observed: i64,
    /// The different times after exposure at which users become complete, microseconds.
    lengths: Vec<i64>,
    /// So many of them, the first, matter to groups.
    of_groups: usize,
    /// Per column, group and day since exposure, which of them matters.
    pub columns: Vec<Option<usize>>,
    pub groups: Vec<Option<usize>>,
    pub since: Vec<Option<usize>>,
    /// Metrics whose window has an end, and it.
    pub windows: Vec<(usize, i64)>,
}

/// Per length, the place of the day on which a unit became complete (0 if nobody asks for days);
/// `None`: it is not yet.
pub(super) type CompleteFrom = Vec<Option<usize>>;

impl Complete {
    pub fn of(query: &MomentsQuery, times: &Times) -> Self {
        let mut lengths = Vec::new();
        let mut place = |length: Option<i64>| {
            let micros = length?.saturating_mul(1000);
            let known = lengths.iter().position(|known| *known == micros);
            Some(known.unwrap_or_else(|| {
                lengths.push(micros);
                lengths.len() - 1
            }))
        };
        let groups = (0..query.groups.len()).map(|group| place(query.complete_ms(group)));
        let groups: Vec<_> = groups.collect();
        let of_groups = groups.iter().flatten().max().map_or(0, |last| last + 1);
        let columns = query.columns.iter().map(|column| place(column.complete_ms)).collect();
        let first = |columns: &[usize]| query.columns.get(*columns.first()?)?.complete_ms;
        let since = query.since.iter().map(|since| place(first(&since.columns))).collect();
        let window = |metric| Some((metric, query.window_end_ms(metric)?.saturating_mul(1000)));
        let windows = (0..query.groups.len()).filter_map(window).collect();
        let observed = times.observed_micros();
        Self { observed, lengths, of_groups, columns, groups, since, windows }
    }

    /// Is it over so long after a first exposure?
    pub fn is_over(&self, exposed: Option<i64>, micros: i64) -> bool {
        exposed.is_some_and(|exposed| exposed.saturating_add(micros) <= self.observed)
    }

    /// The days on which a unit enters groups that wait for it, by length.
    pub fn entries(&self, complete: &[Option<usize>]) -> impl Iterator<Item = (usize, usize)> {
        let of_groups = complete.iter().take(self.of_groups).enumerate();
        of_groups.filter_map(|(length, day)| Some((length, (*day)?)))
    }

    /// From when on a user is complete.
    pub fn find(
        &self,
        exposed: Option<i64>,
        times: &Times,
        local_days: &mut LocalDays,
        found: &mut CompleteFrom,
    ) {
        found.clear();
        found.extend(self.lengths.iter().map(|length| {
            let over = exposed.filter(|_| self.is_over(exposed, *length))?.saturating_add(*length);
            // The window's last instant is before its end.
            let day = local_days.day(over - 1)?;
            Some(times.days.map_or(0, |days| days.index(day)))
        }));
    }
}

/// Does a group, column or day count, of a unit complete from then on?
pub(super) fn counts(length: Option<usize>, complete: &[Option<usize>]) -> bool {
    length.is_none_or(|length| complete[length].is_some())
}
