//! Runs to users: what each user's rows say to each experiment.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::aside::Aside;
use super::exposed::{Exposed, Member, Members, NOWHERE};
use super::passes::{Group, NO_TIME, Pass, Use};
use super::runs::{Found, Item};
use crate::base::error::Result;
use crate::functions::exact_sum::Sum;
use crate::functions::local_day::LocalDays;
use crate::report::cells::{Layout, Who};
use crate::report::collect::Collect;
use crate::report::user_row::{Change, UserRow, without_rows};

/// Ids that are touched together; what is read of them fits into a second-level cache.
const IDS_TOUCHED: usize = 32;

/// Everything that users are put together from.
pub(super) struct Scanned {
    pub layouts: Vec<Arc<Layout>>,
    pub exposed: Vec<Exposed>,
    pub members: Arc<Members>,
    /// Per pass what its threads found.
    pub passes: Vec<(Arc<Pass>, Vec<Found>)>,
    /// Per experiment.
    pub asides: Vec<Vec<Aside>>,
}

impl Scanned {
    /// See [`Found::touch`].
    fn touch(&self, ids: Range<usize>) -> usize {
        let members = self.members.range(ids.start).start..self.members.range(ids.end - 1).end;
        let of_member = |member: &Member| {
            let exposed = &self.exposed[member.experiment as usize];
            let place = member.place as usize;
            exposed.users[place].id as usize + exposed.dimensions(place).sum::<usize>()
        };
        let of_members: usize = self.members.members[members].iter().map(of_member).sum();
        let found = self.passes.iter().flat_map(|(_, parts)| parts);
        found.map(|found| found.touch(ids.clone())).fold(of_members, usize::wrapping_add)
    }
}

/// What a part of all users comes to, for every experiment.
pub(super) struct Users {
    scanned: Arc<Scanned>,
    pub collects: Vec<Collect>,
    local_days: Vec<LocalDays>,
    /// Per experiment what is known of a user without rows.
    without_rows: Vec<Vec<f64>>,
    /// Per experiment, dimension and name, where its cells are; [`NOWHERE`] if nobody asked yet.
    slices: Vec<Vec<Vec<usize>>>,
    // Room for one user.
    user: UserRow,
    daily: Vec<(i32, usize, Sum)>,
    known: Vec<(usize, Sum)>,
    first_days: Vec<(usize, i32)>,
    /// Days with rows, of columns that count them.
    days: Vec<(usize, i32)>,
    values: Vec<OneValue>,
}

/// A value that is the first or last of a run, for a column.
#[derive(Debug, Clone, Copy)]
struct OneValue {
    column: usize,
    last: bool,
    /// `None` if it is known at first exposure, or at the end only.
    day: Option<i32>,
    of_time: (i64, f64),
}

impl Users {
    pub fn new(scanned: Arc<Scanned>) -> Self {
        let layouts = &scanned.layouts;
        Self {
            collects: layouts.iter().map(|layout| Collect::new(Arc::clone(layout))).collect(),
            local_days: layouts.iter().map(|layout| LocalDays::new(layout.times.zone)).collect(),
            without_rows: layouts.iter().map(|layout| without_rows(&layout.query)).collect(),
            slices: scanned.exposed.iter().map(Exposed::by_name).collect(),
            user: UserRow::default(),
            daily: Vec::new(),
            known: Vec::new(),
            first_days: Vec::new(),
            days: Vec::new(),
            values: Vec::new(),
            scanned,
        }
    }

    /// Takes in the users of some ids.
    pub fn add(&mut self, ids: Range<usize>) -> Result<()> {
        let scanned = Arc::clone(&self.scanned);
        let mut dimensions = Vec::new();
        for id in ids.clone() {
            if (id - ids.start).is_multiple_of(IDS_TOUCHED) {
                std::hint::black_box(scanned.touch(id..ids.end.min(id + IDS_TOUCHED)));
            }
            for member in &scanned.members.members[scanned.members.range(id)] {
                let (experiment, place) = (member.experiment as usize, member.place as usize);
                let exposed = &scanned.exposed[experiment];
                let user = &exposed.users[place];
                let variants = exposed.variants(user);
                let Some(variant) = self.collects[experiment].variant(variants) else { continue };
                if exposed.left_out.has_before(user.id) {
                    self.collects[experiment].users_exposed_before += 1;
                }
                self.user.time = member.time();
                self.user.known.clone_from(&self.without_rows[experiment]);
                self.user.changes.clear();
                self.user.active.clear();
                for (pass, parts) in &scanned.passes {
                    for found in parts {
                        self.read(&pass.groups[experiment], found, id, member.time());
                    }
                }
                for aside in &scanned.asides[experiment] {
                    aside.read(place, &mut self.local_days[experiment], &mut self.user);
                }
                self.finish_user();
                dimensions.clear();
                for (dimension, name) in exposed.dimensions(place).enumerate() {
                    let known = &mut self.slices[experiment][dimension][name];
                    if *known == NOWHERE {
                        *known = self.collects[experiment].slice(dimension, exposed.name(name))?;
                    }
                    dimensions.push(*known);
                }
                let assigned = user.assigned();
                let who = Who { variant, assigned, cluster: None, dimensions: &dimensions };
                self.collects[experiment].add_user(&who, &mut self.user)?;
            }
        }
        Ok(())
    }

    /// Reads the runs of one pass for one experiment of a user.
    fn read(&mut self, groups: &[Group], found: &Found, id: usize, time: Option<i64>) {
        for group in groups {
            let Some((low, high)) = group.when.bounds(time) else { continue };
            for (block, place) in found.of_id(id) {
                let run = &block.runs[place];
                if (low..high).contains(&run.first) {
                    let day = (run.first != NO_TIME).then_some(run.day);
                    block.items(place).iter().for_each(|item| self.take(group, day, item));
                }
            }
        }
    }

    /// `in_time`: the day, if rows have a time.
    fn take(&mut self, group: &Group, in_time: Option<i32>, item: &Item) {
        let day = in_time.unwrap_or_default();
        let uses = group.uses.get(usize::from(item.value)).map_or(&[][..], Vec::as_slice);
        let sum = Sum::of(item.sum, item.lost);
        for feeds in uses {
            match *feeds {
                Use::Known { column } => self.known.push((column, sum)),
                Use::KnownAny { column } => self.user.known[column] = 1.0,
                Use::KnownDays { column } => {
                    self.days.extend(in_time.map(|day| (column, day)));
                }
                Use::KnownValue { column, last } => {
                    self.values.push(OneValue { column, last, day: None, of_time: item.at_time() });
                }
                Use::DailyValue { column, last } => {
                    let (day, of_time) = (Some(day), item.at_time());
                    self.values.push(OneValue { column, last, day, of_time });
                }
                Use::Daily { column } => self.daily.push((day, column, sum)),
                Use::FirstDay { column } => self.first_days.push((column, day)),
                Use::Active { table } => self.user.active.push((table, day)),
            }
        }
    }

    /// Adds up what the runs said.
    fn finish_user(&mut self) {
        let Self { user, daily, known, first_days, days, values, .. } = self;
        known.sort_unstable_by_key(|(column, _)| *column);
        for same in known.chunk_by(|a, b| a.0 == b.0) {
            user.known[same[0].0] = together(same.iter().map(|(_, sum)| sum));
        }
        daily.sort_unstable_by_key(|(day, column, _)| (*day, *column));
        for same in daily.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (day, column, _) = same[0];
            let value = together(same.iter().map(|(_, _, sum)| sum));
            if value != 0.0 {
                user.changes.push(Change { day, column, value });
            }
        }
        first_days.sort_unstable();
        for same in first_days.chunk_by(|a, b| a.0 == b.0) {
            let (column, day) = same[0];
            user.changes.push(Change { day, column, value: 1.0 });
        }
        days.sort_unstable();
        days.dedup();
        days.iter().for_each(|(column, _)| user.known[*column] += 1.0);
        finish_values(values, user);
        user.active.sort_unstable();
        user.active.dedup();
        known.clear();
        daily.clear();
        first_days.clear();
        days.clear();
        values.clear();
    }
}

/// The value that is first or last of all runs, and of each day: later days do not change which is first.
fn finish_values(values: &mut [OneValue], user: &mut UserRow) {
    values.sort_unstable_by(|a, b| {
        let by_time = a.of_time.partial_cmp(&b.of_time).unwrap_or(Ordering::Equal);
        (a.column, a.day).cmp(&(b.column, b.day)).then(by_time)
    });
    for of_column in values.chunk_by(|a, b| a.column == b.column) {
        for of_day in of_column.chunk_by(|a, b| a.day == b.day) {
            let one = if of_day[0].last { of_day[of_day.len() - 1] } else { of_day[0] };
            let (column, value) = (one.column, one.of_time.1);
            match one.day {
                None => user.known[column] = value,
                Some(day) => user.changes.push(Change { day, column, value }),
            }
            if !one.last {
                break;
            }
        }
    }
}

fn together<'s>(sums: impl Iterator<Item = &'s Sum>) -> f64 {
    let mut all = Sum::default();
    sums.for_each(|sum| all.merge(sum.sum, sum.lost));
    all.value().unwrap_or(0.0)
}
