//! Per-user rows to cells.
//!
//! A user's numbers become a [`Path`]: what they were on the day of first exposure and after every
//! later day that changed them. The whole answer takes the end of the path, the daily cells take
//! all of it.
//!
//! # Invariants
//! - Caps and thresholds are applied to the number as of each day.
//! - A group of complete users takes a user in on the day of completion, with the number of the end.
//! - With clusters, rows come ordered by cluster and arm, and one cluster is held at a time. A
//!   cluster whose users are in several arms is a unit of its own in each.

use std::collections::BTreeMap;
use std::sync::Arc;

use uplake_experiment::definition::Unit;
use uplake_experiment::left_out::LeftOut;
use uplake_experiment::query::{Cell, DayCells, MomentsQuery, MomentsTable};
use uplake_experiment::{DailyMoments, Moments};

use super::cells::{
    Added, Cells, DIMENSION_VALUES_MAX, Layout, OpenCluster, Path, Room, Slices, Who,
};
use super::complete::{CompleteFrom, counts};
use super::sql::EXCLUDED;
use super::user_row::UserRow;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::functions::exact_sum::Sum;
use crate::functions::local_day::{LocalDays, day_text};

/// Cells of the users seen so far.
pub(super) struct Collect {
    pub(super) layout: Arc<Layout>,
    local_days: LocalDays,
    /// Clusters, and users if there is no dimension: otherwise a user has one value of each, and in the
    /// end the cells of one dimension, put together, are everyone's.
    pub(super) total: Cells,
    /// Per dimension.
    pub(super) slices: Vec<Slices>,
    /// Per arm and group; one of these per thread in the end.
    pub(super) daily: Vec<Vec<Vec<DailyMoments>>>,
    /// Per arm and day, users who enter.
    pub(super) entering: Vec<Vec<u64>>,
    /// Per table and day.
    pub(super) active: Vec<Vec<u64>>,
    pub(super) last_day: Option<usize>,
    open: Option<OpenCluster>,
    path: Path,
    room: Room,
    pub(super) users_in_many_variants: u64,
    pub(super) users_excluded: Vec<u64>,
    /// Users who were never activated.
    pub(super) idle: Cells,
    pub(super) users_assigned_otherwise: u64,
    /// Of the arms.
    pub(super) users_exposed_before: u64,
    pub(super) unknown_variants: BTreeMap<String, u64>,
    pub(super) first_exposures: BTreeMap<(i32, usize), u64>,
    /// Per arm, if units are clusters.
    pub(super) clusters: Vec<u64>,
    /// Per window that has an end, and arm.
    pub(super) in_progress: Vec<Vec<u64>>,
    /// Per day since exposure and arm, and units whose numbers are all 0, which the moments lack.
    pub(super) since: Vec<Vec<(Moments, u64)>>,
}

impl Collect {
    pub fn new(layout: Arc<Layout>) -> Self {
        let query = &layout.query;
        let days = layout.days();
        let daily = || query.groups.iter().map(|columns| DailyMoments::new(columns.len(), days));
        let daily = query.variants.iter().map(|_| daily().collect()).collect();
        Self {
            local_days: LocalDays::new(layout.times.zone),
            total: Cells::new(query),
            slices: vec![Slices::default(); query.dimensions.len()],
            daily: vec![daily],
            entering: vec![vec![0; days]; query.variants.len()],
            active: vec![vec![0; days]; layout.rows.tables.len()],
            last_day: None,
            open: None,
            path: Path::default(),
            room: Room::default(),
            users_in_many_variants: 0,
            users_excluded: vec![0; query.exposures.exclude.len()],
            idle: Cells::new(query),
            users_assigned_otherwise: 0,
            users_exposed_before: 0,
            unknown_variants: BTreeMap::new(),
            first_exposures: BTreeMap::new(),
            clusters: vec![0; query.variants.len()],
            in_progress: vec![vec![0; query.variants.len()]; layout.complete.windows.len()],
            since: query
                .since
                .iter()
                .map(|since| vec![(Moments::new(since.columns.len()), 0); query.variants.len()])
                .collect(),
            layout,
        }
    }

    /// Takes in a batch of per-user rows.
    pub fn add(&mut self, batch: &datafusion::arrow::array::RecordBatch) -> Result<()> {
        let layout = Arc::clone(&self.layout);
        let rows = layout.rows.decode(batch)?;
        let mut user = UserRow::default();
        let mut dimensions = Vec::new();
        for row in 0..rows.len() {
            let variants = (rows.first_variant.value(row), rows.last_variant.value(row));
            let Some(variant) = self.variant(variants) else { continue };
            rows.read(row, &layout.query, &mut self.local_days, &mut user);
            let cluster = rows.cluster.as_ref().map(|clusters| clusters.value(row));
            let assigned = layout.assigned(cluster.unwrap_or_else(|| rows.user.value(row)));
            dimensions.clear();
            // Who was never activated makes no row of a breakdown.
            let is_shown = !layout.is_idle(&user);
            for (dimension, values) in rows.dimensions.iter().enumerate().filter(|_| is_shown) {
                let value = layout.counted_as(dimension, values.value(row));
                dimensions.push(self.slice(dimension, value)?);
            }
            let who = Who { variant, assigned, cluster, dimensions: &dimensions };
            self.add_user(&who, &mut user)?;
        }
        Ok(())
    }

    /// Takes in a user who is in one arm.
    pub fn add_user(&mut self, who: &Who<'_>, user: &mut UserRow) -> Result<()> {
        let layout = Arc::clone(&self.layout);
        let mut complete = std::mem::take(&mut self.room.complete);
        layout.complete.find(user.time, &layout.times, &mut self.local_days, &mut complete);
        self.count(&layout, who, user, &complete);
        if layout.is_idle(user) {
            let numbers = user.known.iter().enumerate();
            let numbers: Vec<f64> = numbers.map(|(i, raw)| layout.number(i, *raw)).collect();
            self.room.grouped.fill(&layout, &numbers, &complete);
            self.idle.add(who.variant, &self.room.grouped, 1);
            self.room.complete = complete;
            return Ok(());
        }
        let mut path = std::mem::take(&mut self.path);
        self.follow(&layout, who.variant, user, &mut path);
        if layout.is_clustered() {
            self.add_to_cluster(&layout, who, &path, &complete);
        } else {
            self.add_path(&layout, who.variant, &path, &complete);
            self.add_since(&layout, who.variant, path.last(), &complete);
            if who.dimensions.is_empty() {
                self.total.add(who.variant, &self.room.grouped, 1);
            }
            for (slices, place) in self.slices.iter_mut().zip(who.dimensions) {
                slices.cells[*place].add(who.variant, &self.room.grouped, 1);
            }
        }
        self.path = path;
        self.room.complete = complete;
        Ok(())
    }

    /// The arm of a user, from the first and the last name of one; `None`, and counted, unless there
    /// is exactly one that the definition has.
    pub fn variant(&mut self, (first, last): (&str, &str)) -> Option<usize> {
        let excluded = first.strip_prefix(EXCLUDED).and_then(|number| number.parse::<usize>().ok());
        if let Some(users) = excluded.and_then(|number| self.users_excluded.get_mut(number)) {
            *users += 1;
            return None;
        }
        if first != last {
            self.users_in_many_variants += 1;
            return None;
        }
        let variant = self.layout.variants.get(first).copied();
        if variant.is_none() {
            *self.unknown_variants.entry(first.to_owned()).or_default() += 1;
        }
        variant
    }

    pub(super) fn count(
        &mut self,
        layout: &Layout,
        who: &Who<'_>,
        user: &UserRow,
        complete: &CompleteFrom,
    ) {
        if let Some(day) = user.time.and_then(|time| self.local_days.day(time)) {
            *self.first_exposures.entry((day, who.variant)).or_default() += 1;
        }
        if layout.query.assignment.is_some() && who.assigned != Some(who.variant) {
            self.users_assigned_otherwise += 1;
        }
        // The window of who was never activated has not begun.
        if !layout.is_idle(user) {
            for ((_, window), users) in layout.complete.windows.iter().zip(&mut self.in_progress) {
                users[who.variant] += u64::from(!layout.complete.is_over(user.time, *window));
            }
        }
        let Some(days) = layout.times.days else { return };
        let entries = layout.complete.entries(complete).map(|(_, day)| day);
        self.last_day = self.last_day.max(entries.max());
        for (table, day) in user.active.iter().filter(|(_, day)| *day >= days.first) {
            let day = days.index(*day);
            self.active[*table][day] += 1;
            self.last_day = self.last_day.max(Some(day));
        }
    }

    /// A user's path. Rows before the day of entry (of a window that reaches back, or of a
    /// switchback's stretch) are known on that day.
    fn follow(&mut self, layout: &Layout, variant: usize, user: &mut UserRow, path: &mut Path) {
        path.days.clear();
        path.numbers.clear();
        let Some(days) = layout.times.days else {
            path.days.push(0);
            let numbers = user.known.iter().enumerate();
            path.numbers.extend(numbers.map(|(column, raw)| layout.number(column, *raw)));
            return;
        };
        let entry = user.time.and_then(|time| self.local_days.day(time));
        let entry = entry.map_or(0, |day| days.index(day));
        self.entering[variant][entry] += 1;
        user.changes.sort_by_key(|change| (change.day, change.column));
        let sums = &mut self.room.sums;
        sums.clear();
        sums.extend(user.known.iter().map(|raw| Sum::of(*raw, 0.0)));
        let mut changes = user.changes.iter().peekable();
        let mut day = entry;
        loop {
            while let Some(change) = changes.next_if(|change| days.index(change.day) <= day) {
                layout.change(&mut sums[change.column], change);
            }
            path.days.push(day);
            let numbers = sums.iter().map(|sum| sum.value().unwrap_or(0.0)).enumerate();
            path.numbers.extend(numbers.map(|(column, raw)| layout.number(column, raw)));
            match changes.peek() {
                Some(change) => day = days.index(change.day),
                None => break,
            }
        }
        self.last_day = self.last_day.max(Some(day));
    }

    /// Adds a unit of randomness to the days, and groups its last numbers.
    fn add_path(&mut self, layout: &Layout, variant: usize, path: &Path, complete: &CompleteFrom) {
        let Room { grouped, old, new, .. } = &mut self.room;
        grouped.fill(layout, path.last(), complete);
        if layout.times.days.is_none() {
            return;
        }
        for (group, columns) in layout.query.groups.iter().enumerate() {
            let (enters, first) = match layout.complete.groups[group] {
                None => (path.days[0], 0),
                Some(length) => {
                    let Some(day) = complete[length] else { continue };
                    (day, path.days.iter().rposition(|known| *known <= day).unwrap_or(0))
                }
            };
            let daily = &mut self.daily[0][variant][group];
            for (place, day) in path.days.iter().enumerate().skip(first) {
                let numbers = path.at(place);
                new.clear();
                new.extend(columns.iter().map(|column| numbers[*column]));
                if place == first {
                    daily.add(enters, new);
                } else if old != new {
                    daily.change(*day, old, new);
                }
                std::mem::swap(old, new);
            }
        }
    }

    /// Adds a unit to the days since exposure that are over for it.
    fn add_since(
        &mut self,
        layout: &Layout,
        variant: usize,
        numbers: &[f64],
        complete: &CompleteFrom,
    ) {
        let days = layout.query.since.iter().zip(&layout.complete.since).zip(&mut self.since);
        for ((since, _), arms) in days.filter(|((_, length), _)| counts(**length, complete)) {
            let (moments, zeros) = &mut arms[variant];
            let new = &mut self.room.new;
            new.clear();
            new.extend(since.columns.iter().map(|column| numbers[*column]));
            if new.iter().all(|number| *number == 0.0) {
                *zeros += 1;
            } else {
                moments.add(new);
            }
        }
    }

    /// The place of a value among those of a dimension.
    ///
    /// # Errors
    /// [`EngineError::Report`] if there are too many.
    pub fn slice(&mut self, dimension: usize, value: &str) -> Result<usize> {
        let slices = &mut self.slices[dimension];
        if let Some(place) = slices.places.get(value) {
            return Ok(*place);
        }
        let query = &self.layout.query;
        check_values(&query.dimensions[dimension].name, slices.cells.len() + 1)?;
        slices.places.insert(value.to_owned(), slices.cells.len());
        slices.cells.push(Cells::new(query));
        Ok(slices.cells.len() - 1)
    }

    fn add_to_cluster(
        &mut self,
        layout: &Layout,
        who: &Who<'_>,
        path: &Path,
        complete: &CompleteFrom,
    ) {
        let (name, variant) = (who.cluster.unwrap_or(""), who.variant);
        let same = |open: &OpenCluster| open.name == name && open.variant == variant;
        if !self.open.as_ref().is_some_and(same) {
            self.close_cluster();
        }
        let columns = layout.query.columns.len();
        let open = self.open.get_or_insert_with(|| OpenCluster {
            name: name.to_owned(),
            variant,
            all: Added::new(columns),
            slices: BTreeMap::new(),
            days: BTreeMap::new(),
        });
        // The numbers of columns of which it is so, and 0 of the others.
        let only = |numbers: &[f64], is_so: &dyn Fn(Option<usize>) -> bool| -> Vec<f64> {
            let columns = numbers.iter().zip(&layout.complete.columns);
            columns.map(|(number, length)| if is_so(*length) { *number } else { 0.0 }).collect()
        };
        let now = only(path.last(), &|length| counts(length, complete));
        open.all.add_user(&now, complete);
        for (dimension, place) in who.dimensions.iter().enumerate() {
            let added =
                open.slices.entry((dimension, *place)).or_insert_with(|| Added::new(columns));
            added.add_user(&now, complete);
        }
        for (place, day) in path.days.iter().enumerate() {
            let added = open.days.entry(*day).or_insert_with(|| Added::new(columns));
            added.add(&only(path.at(place), &|length| length.is_none()));
            if place > 0 {
                let before = only(path.at(place - 1), &|length| length.is_none());
                added.add(&before.iter().map(|number| -number).collect::<Vec<_>>());
            }
        }
        for (length, day) in layout.complete.entries(complete) {
            let added = open.days.entry(day).or_insert_with(|| Added::new(columns));
            added.add(&only(path.last(), &|of| of == Some(length)));
        }
    }

    /// Turns the open cluster into one unit.
    pub(super) fn close_cluster(&mut self) {
        let Some(open) = self.open.take() else { return };
        let layout = Arc::clone(&self.layout);
        let mut path = Path::default();
        let mut sums = vec![Sum::default(); layout.query.columns.len()];
        for (day, added) in open.days {
            sums.iter_mut().zip(&added.sums).for_each(|(sum, more)| sum.merge(more.sum, more.lost));
            path.days.push(day);
            path.numbers.extend(sums.iter().map(|sum| sum.value().unwrap_or(0.0)));
        }
        // The end of the path is the sum of all users itself, not of all changes.
        let width = sums.len();
        let end = path.numbers.len() - width;
        path.numbers[end..].copy_from_slice(&open.all.numbers());
        self.clusters[open.variant] += 1;
        self.add_path(&layout, open.variant, &path, &open.all.complete);
        self.add_since(&layout, open.variant, path.last(), &open.all.complete);
        self.total.add(open.variant, &self.room.grouped, open.all.users);
        for ((dimension, place), added) in open.slices {
            let cells = &mut self.slices[dimension].cells[place];
            self.room.grouped.fill(&layout, &added.numbers(), &added.complete);
            cells.add(open.variant, &self.room.grouped, added.users);
        }
    }

    /// Adds what another thread has seen.
    pub fn merge(&mut self, mut other: Self) -> Result<()> {
        other.close_cluster();
        self.total.merge(&other.total);
        for (dimension, values) in other.slices.iter().enumerate() {
            for (value, place) in &values.places {
                let mine = self.slice(dimension, value)?;
                self.slices[dimension].cells[mine].merge(&values.cells[*place]);
            }
        }
        self.daily.append(&mut other.daily);
        let counts = self.entering.iter_mut().chain(&mut self.active);
        let counts = counts.chain(&mut self.in_progress).flatten().chain(&mut self.clusters);
        let more = other.entering.iter().chain(&other.active);
        let more = more.chain(&other.in_progress).flatten().chain(&other.clusters);
        counts.zip(more).for_each(|(count, more)| *count += more);
        let since = self.since.iter_mut().flatten().zip(other.since.iter().flatten());
        since.for_each(|((moments, zeros), (more, more_zeros))| {
            moments.merge(more);
            *zeros += more_zeros;
        });
        self.last_day = self.last_day.max(other.last_day);
        self.users_in_many_variants += other.users_in_many_variants;
        let excluded = self.users_excluded.iter_mut().zip(&other.users_excluded);
        excluded.for_each(|(users, more)| *users += more);
        self.idle.merge(&other.idle);
        self.users_assigned_otherwise += other.users_assigned_otherwise;
        self.users_exposed_before += other.users_exposed_before;
        for (name, users) in other.unknown_variants {
            *self.unknown_variants.entry(name).or_default() += users;
        }
        for (day, users) in other.first_exposures {
            *self.first_exposures.entry(day).or_default() += users;
        }
        Ok(())
    }

    /// The answer, without quantiles and caps.
    pub fn finish(mut self) -> Result<MomentsTable> {
        self.close_cluster();
        let query = &self.layout.query;
        let days = self.day_cells();
        let active_users = self.active_users();
        if !self.layout.is_clustered()
            && let Some(values) = self.slices.first()
        {
            values.cells.iter().for_each(|cells| self.total.merge(cells));
        }
        let mut cells: Vec<Cell> = self.total.into_cells(None).collect();
        for (dimension, Slices { places, cells: values }) in self.slices.into_iter().enumerate() {
            let mut values: Vec<Option<Cells>> = values.into_iter().map(Some).collect();
            for (value, place) in places.into_iter().collect::<BTreeMap<_, _>>() {
                let of_value = values[place].take().into_iter();
                cells.extend(of_value.flat_map(|c| c.into_cells(Some((dimension, value.clone())))));
            }
        }
        let first_exposures = self.first_exposures.into_iter();
        let windows = self.layout.complete.windows.iter().zip(&self.in_progress);
        let in_progress = windows.flat_map(|((metric, _), arms)| {
            arms.iter().enumerate().map(|(variant, users)| (*metric, variant, *users))
        });
        let in_progress = in_progress.filter(|(.., users)| *users > 0).collect();
        let clusters = if self.layout.is_clustered() { self.clusters } else { Vec::new() };
        let with_zeros = |(mut moments, zeros): (Moments, u64)| {
            moments.add_zeros(zeros);
            moments
        };
        let since = self.since.into_iter();
        Ok(MomentsTable {
            clusters,
            observed_until: self.layout.times.observed_text(),
            in_progress,
            since: since.map(|arms| arms.into_iter().map(with_zeros).collect()).collect(),
            cells,
            days,
            users_in_many_variants: self.users_in_many_variants,
            users_excluded: self.users_excluded,
            never_activated: match self.layout.activates() {
                true => self.idle.into_cells(None).collect(),
                false => Vec::new(),
            },
            unknown_variants: self.unknown_variants.into_iter().collect(),
            first_exposures: first_exposures
                .map(|((day, variant), users)| (day_text(day), variant, users))
                .collect(),
            users_assigned_otherwise: query
                .assignment
                .as_ref()
                .map(|_| self.users_assigned_otherwise),
            active_users,
            left_out: LeftOut {
                users_exposed_before: knows_before(query).then_some(self.users_exposed_before),
                ..LeftOut::default()
            },
            ..MomentsTable::default()
        })
    }

    fn day_cells(&self) -> Vec<DayCells> {
        let (Some(days), Some(last)) = (self.layout.times.days, self.last_day) else {
            return Vec::new();
        };
        let variants = self.layout.query.variants.len();
        let day = |day: usize| DayCells {
            day: day_text(days.first + day as i32),
            cells: (0..variants)
                .map(|variant| Cell {
                    slice: None,
                    variant,
                    users: self.entering[variant][..=day].iter().sum(),
                    groups: Vec::with_capacity(self.layout.query.groups.len()),
                })
                .collect(),
        };
        let mut cells: Vec<DayCells> = (0..=last).map(day).collect();
        for variant in 0..variants {
            for group in 0..self.layout.query.groups.len() {
                let mut parts = self.daily.iter().map(|part| part[variant][group].cumulative());
                let mut whole = parts.next().unwrap_or_default();
                for part in parts {
                    whole.iter_mut().zip(&part).for_each(|(moments, more)| moments.merge(more));
                }
                for (day, moments) in cells.iter_mut().zip(whole) {
                    day.cells[variant].groups.push(moments);
                }
            }
        }
        cells
    }

    fn active_users(&self) -> Vec<(String, String, u64)> {
        let Some(days) = self.layout.times.days else { return Vec::new() };
        let mut rows = Vec::new();
        for (table, users) in self.layout.rows.tables.iter().zip(&self.active) {
            for (day, users) in users.iter().enumerate().filter(|(_, users)| **users > 0) {
                rows.push((table.clone(), day_text(days.first + day as i32), *users));
            }
        }
        rows
    }
}

/// # Errors
/// [`EngineError::Report`] if a dimension has too many values.
pub(super) fn check_values(dimension: &str, values: usize) -> Result<()> {
    if values <= DIMENSION_VALUES_MAX {
        return Ok(());
    }
    let message = format!("dimension `{dimension}` has more than {DIMENSION_VALUES_MAX} values");
    Err(EngineError::report(SqlState::ProgramLimitExceeded, message).with_hint("group them first"))
}

/// Can a first exposure within the period be another than the first?
pub(super) fn knows_before(query: &MomentsQuery) -> bool {
    query.period.is_some()
        && query.exposures.time.is_some()
        && matches!(query.exposures.unit, Unit::User | Unit::Cluster { .. })
}
