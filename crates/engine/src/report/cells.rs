//! The columns of a report's rows, the cells that its users are added to, and what one user is while rows come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use uplake_experiment::definition::{Transform, Unit};
use uplake_experiment::query::{Aggregate, Cell, MomentsQuery};
use uplake_experiment::{Moments, OTHERS, values_put_together};

use super::complete::{Complete, CompleteFrom, counts};
use super::decode::Table;
use super::sql::Sql;
use super::time::Times;
use super::user_row::{Change, UserRow};
use crate::functions::exact_sum::Sum;

/// Values of a dimension in one report; beyond this the breakdown says nothing anyway.
pub(super) const DIMENSION_VALUES_MAX: usize = 10_000;

/// What all threads need to know.
pub(super) struct Layout {
    pub query: MomentsQuery,
    pub times: Times,
    pub rows: Table,
    pub(super) complete: Complete,
    /// Per column the most a number can be.
    caps: Vec<f64>,
    /// Per dimension the values that are one, [`OTHERS`], while the others do not matter.
    together: Option<Vec<BTreeSet<String>>>,
    pub(super) variants: HashMap<String, usize>,
    shares: Vec<f64>,
}

impl Layout {
    pub fn new(sql: &Sql<'_>, caps: Vec<f64>) -> Self {
        let variants = sql.query.variants.iter().enumerate();
        Self {
            query: sql.query.clone(),
            times: sql.times.clone(),
            rows: Table::of(sql),
            complete: Complete::of(sql.query, sql.times),
            caps,
            together: None,
            variants: variants.map(|(i, v)| (v.value.clone(), i)).collect(),
            shares: sql.query.variants.iter().map(|v| v.share).collect(),
        }
    }

    /// The same for the cells of values that a breakdown puts together, if there are any; `None`
    /// where a unit is in one cell only, so that cells can be added up.
    pub fn of_others(sql: &Sql<'_>, caps: Vec<f64>, cells: &[Cell]) -> Option<Self> {
        let dimensions = 0..sql.query.dimensions.len();
        let together: Vec<_> = dimensions.map(|d| values_put_together(cells, d)).collect();
        let layout = Self { together: Some(together), ..Self::new(sql, caps) };
        let needed =
            layout.is_clustered() && layout.together.iter().flatten().any(|t| !t.is_empty());
        needed.then_some(layout)
    }

    /// What a value of a dimension counts as.
    pub(super) fn counted_as<'v>(&self, dimension: usize, value: &'v str) -> &'v str {
        match &self.together {
            None => value,
            Some(together) if together[dimension].contains(value) => OTHERS,
            Some(_) => "",
        }
    }

    pub(super) fn days(&self) -> usize {
        self.times.days.map_or(0, |days| days.count)
    }

    /// Are users to be activated?
    pub(super) fn activates(&self) -> bool {
        self.query.exposures.activated_by.is_some()
    }

    /// Was a user exposed, but never activated?
    pub(super) fn is_idle(&self, user: &UserRow) -> bool {
        self.activates() && user.time.is_none()
    }

    pub(super) fn is_clustered(&self) -> bool {
        matches!(self.query.exposures.unit, Unit::Cluster { .. })
    }

    /// The arm that the definition's assignment gives a unit, if it has one.
    pub fn assigned(&self, unit: &str) -> Option<usize> {
        self.query.assignment.as_ref().and_then(|a| a.arm(unit, &self.shares))
    }

    /// A column's number from what its rows add up to.
    pub(super) fn number(&self, column: usize, raw: f64) -> f64 {
        // `min` would make a number of NaN.
        let cap = self.caps[column];
        let number = if raw > cap { cap } else { raw };
        let column = &self.query.columns[column];
        let number = match column.transform {
            Some(Transform::Log1p) if number < 0.0 => f64::NAN,
            Some(Transform::Log1p) => number.ln_1p(),
            None => number,
        };
        match column.at_least {
            Some(least) => f64::from(u8::from(number >= least)),
            None => number,
        }
    }

    /// Makes a change of what a column's rows add up to.
    pub(super) fn change(&self, sum: &mut Sum, change: &Change) {
        match self.query.columns[change.column].aggregate {
            Aggregate::Days => sum.add(1.0),
            Aggregate::First | Aggregate::Last => *sum = Sum::of(change.value, 0.0),
            _ => sum.add(change.value),
        }
    }
}

/// A user in one arm.
pub(super) struct Who<'a> {
    pub variant: usize,
    /// The arm that the assignment gives.
    pub assigned: Option<usize>,
    pub cluster: Option<&'a str>,
    /// The value of each dimension, as `Collect::slice` numbers them.
    pub dimensions: &'a [usize],
}

/// A unit's numbers as of the days on which they changed.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// Indexes of days, ascending; the first is when the unit enters.
    pub(super) days: Vec<usize>,
    /// All columns per day.
    pub(super) numbers: Vec<f64>,
}

impl Path {
    pub(super) fn at(&self, place: usize) -> &[f64] {
        let width = self.numbers.len() / self.days.len();
        &self.numbers[place * width..(place + 1) * width]
    }

    pub(super) fn last(&self) -> &[f64] {
        self.at(self.days.len() - 1)
    }
}

/// Per arm users, and per arm and group moments.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    pub(super) users: Vec<u64>,
    pub(super) moments: Vec<Vec<Moments>>,
    /// Users whose numbers of a group are all 0, which the moments do not have yet.
    pub(super) zeros: Vec<Vec<u64>>,
}

impl Cells {
    pub(super) fn new(query: &MomentsQuery) -> Self {
        let groups = || query.groups.iter().map(|columns| Moments::new(columns.len())).collect();
        Self {
            users: vec![0; query.variants.len()],
            moments: query.variants.iter().map(|_| groups()).collect(),
            zeros: vec![vec![0; query.groups.len()]; query.variants.len()],
        }
    }

    pub(super) fn add(&mut self, variant: usize, grouped: &Grouped, users: u64) {
        self.users[variant] += users;
        let moments = self.moments[variant].iter_mut().zip(&mut self.zeros[variant]);
        for ((moments, zeros), numbers) in moments.zip(grouped.groups()) {
            match numbers {
                None => {}
                Some([]) => *zeros += 1,
                Some(numbers) => moments.add(numbers),
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.users.iter_mut().zip(&other.users).for_each(|(users, more)| *users += more);
        let moments = self.moments.iter_mut().flatten();
        moments.zip(other.moments.iter().flatten()).for_each(|(m, more)| m.merge(more));
        let zeros = self.zeros.iter_mut().flatten().zip(other.zeros.iter().flatten());
        zeros.for_each(|(zeros, more)| *zeros += more);
    }

    pub(super) fn into_cells(
        mut self,
        slice: Option<(usize, String)>,
    ) -> impl Iterator<Item = Cell> {
        let moments = self.moments.iter_mut().flatten().zip(self.zeros.iter().flatten());
        moments.for_each(|(moments, zeros)| moments.add_zeros(*zeros));
        let pairs = self.users.into_iter().zip(self.moments).enumerate();
        pairs.map(move |(variant, (users, groups))| Cell {
            slice: slice.clone(),
            variant,
            users,
            groups,
        })
    }
}

/// A unit's numbers, group by group.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    pub(super) numbers: Vec<f64>,
    /// Per group where its numbers are, an empty range if all are 0; `None` if it leaves the unit out.
    pub(super) places: Vec<Option<Range<usize>>>,
}

impl Grouped {
    pub(super) fn fill(&mut self, layout: &Layout, numbers: &[f64], complete: &CompleteFrom) {
        self.numbers.clear();
        self.places.clear();
        for (columns, length) in layout.query.groups.iter().zip(&layout.complete.groups) {
            if !counts(*length, complete) {
                self.places.push(None);
                continue;
            }
            let start = self.numbers.len();
            self.numbers.extend(columns.iter().map(|column| numbers[*column]));
            if self.numbers[start..].iter().all(|number| *number == 0.0) {
                self.numbers.truncate(start);
            }
            self.places.push(Some(start..self.numbers.len()));
        }
    }

    /// Per group its numbers, none if all are 0; `None` if it leaves the unit out.
    pub(super) fn groups(&self) -> impl Iterator<Item = Option<&[f64]>> {
        self.places.iter().map(|place| place.clone().map(|place| &self.numbers[place]))
    }
}

/// Cells per value of a dimension.
#[derive(Debug, Clone, Default)]
pub(super) struct Slices {
    pub(super) places: HashMap<String, usize>,
    pub(super) cells: Vec<Cells>,
}

/// Numbers of a cluster's users, added up.
#[derive(Debug, Clone)]
pub(super) struct Added {
    pub(super) users: u64,
    pub(super) sums: Vec<Sum>,
    /// By the first user who is.
    pub(super) complete: CompleteFrom,
}

impl Added {
    pub(super) fn new(columns: usize) -> Self {
        Self { users: 0, sums: vec![Sum::default(); columns], complete: Vec::new() }
    }

    pub(super) fn add_user(&mut self, numbers: &[f64], complete: &CompleteFrom) {
        self.users += 1;
        self.add(numbers);
        self.complete.resize(complete.len(), None);
        for (known, more) in self.complete.iter_mut().zip(complete) {
            *known = known.iter().chain(more).min().copied();
        }
    }

    pub(super) fn add(&mut self, numbers: &[f64]) {
        self.sums.iter_mut().zip(numbers).for_each(|(sum, number)| sum.add(*number));
    }

    pub(super) fn numbers(&self) -> Vec<f64> {
        self.sums.iter().map(|sum| sum.value().unwrap_or(0.0)).collect()
    }
}

/// The cluster and arm whose users are coming in.
#[derive(Debug)]
pub(super) struct OpenCluster {
    pub(super) name: String,
    pub(super) variant: usize,
    pub(super) all: Added,
    /// By dimension and place of its value.
    pub(super) slices: BTreeMap<(usize, usize), Added>,
    /// Per day what it changes.
    pub(super) days: BTreeMap<usize, Added>,
}

/// Room for one unit, used again and again.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) grouped: Grouped,
    pub(super) sums: Vec<Sum>,
    pub(super) old: Vec<f64>,
    pub(super) new: Vec<f64>,
    pub(super) complete: CompleteFrom,
}
