//! Cells of a part's users as bytes, for who puts parts together.
//!
//! # Invariants
//! - Every bit of every sum arrives. Names go by value, because each part has numbers of its own for them.
//! - Both sides have the same layout, which says how many of everything there are; what does not fit it is refused.

use std::sync::Arc;

use datafusion::common::{DataFusionError, plan_datafusion_err};
use uplake_experiment::{DailyMoments, Moments};

use super::cells::{Cells, Layout};
use super::collect::Collect;
use crate::base::error::Result;
use crate::portable::bytes::{Reader, Writer};

/// What was collected.
pub(super) fn to_bytes(mut collect: Collect) -> Vec<u8> {
    collect.close_cluster();
    let mut to = Writer::default();
    counters(&mut collect).into_iter().for_each(|count| to.number(*count));
    write_cells(&collect.total, &mut to);
    write_cells(&collect.idle, &mut to);
    for (moments, zeros) in collect.since.iter().flatten() {
        to.floats(&moments.to_state());
        to.number(*zeros);
    }
    for slices in &collect.slices {
        to.number(slices.places.len() as u64);
        for (value, place) in &slices.places {
            to.text(value);
            write_cells(&slices.cells[*place], &mut to);
        }
    }
    // Without groups they hold nothing.
    let parts = if collect.layout.query.groups.is_empty() { 0 } else { collect.daily.len() };
    to.number(parts as u64);
    for daily in collect.daily.iter().flatten().flatten() {
        to.floats(&daily.to_state());
    }
    to.option(collect.last_day.map(|day| day as u64));
    to.number(collect.unknown_variants.len() as u64);
    for (name, users) in &collect.unknown_variants {
        to.text(name);
        to.number(*users);
    }
    to.number(collect.first_exposures.len() as u64);
    for ((day, variant), users) in &collect.first_exposures {
        to.number(u64::from(*day as u32));
        to.number(*variant as u64);
        to.number(*users);
    }
    to.0
}

/// What [`to_bytes`] wrote of something of the same layout.
///
/// # Errors
/// Bytes that are of none.
pub(super) fn from_bytes(layout: &Arc<Layout>, bytes: &[u8]) -> Result<Collect> {
    let mut from = Reader::new(bytes);
    let mut collect = Collect::new(Arc::clone(layout));
    for count in counters(&mut collect) {
        *count = from.number()?;
    }
    read_cells(&mut collect.total, &mut from)?;
    read_cells(&mut collect.idle, &mut from)?;
    for (place, since) in layout.query.since.iter().enumerate() {
        for (moments, zeros) in &mut collect.since[place] {
            *moments = read_moments(since.columns.len(), &mut from)?;
            *zeros = from.number()?;
        }
    }
    for dimension in 0..layout.query.dimensions.len() {
        for _ in 0..from.count()? {
            let place = collect.slice(dimension, from.text()?)?;
            read_cells(&mut collect.slices[dimension].cells[place], &mut from)?;
        }
    }
    let days = layout.days();
    let daily = |from: &mut Reader| -> Result<Vec<Vec<DailyMoments>>> {
        let group = |columns: &Vec<usize>, from: &mut Reader| {
            DailyMoments::from_state(columns.len(), days, &from.floats()?).ok_or_else(damaged)
        };
        let arm = |from: &mut Reader| {
            let groups = layout.query.groups.iter().map(|columns| group(columns, from));
            groups.collect::<std::result::Result<Vec<_>, DataFusionError>>()
        };
        Ok(layout
            .query
            .variants
            .iter()
            .map(|_| arm(from))
            .collect::<std::result::Result<_, _>>()?)
    };
    collect.daily = (0..from.count()?).map(|_| daily(&mut from)).collect::<Result<_>>()?;
    collect.last_day = from.option()?.map(|day| day as usize).filter(|day| *day < days.max(1));
    for _ in 0..from.count()? {
        let name = from.text()?.to_owned();
        collect.unknown_variants.insert(name, from.number()?);
    }
    for _ in 0..from.count()? {
        let day = u32::try_from(from.number()?).map_err(|_| damaged())? as i32;
        let variant = from.number()? as usize;
        if variant >= layout.query.variants.len() {
            return Err(damaged().into());
        }
        collect.first_exposures.insert((day, variant), from.number()?);
    }
    if from.is_at_end() { Ok(collect) } else { Err(damaged().into()) }
}

/// The numbers of which the layout says how many there are.
fn counters(collect: &mut Collect) -> Vec<&mut u64> {
    let Collect {
        entering,
        active,
        users_in_many_variants,
        users_excluded,
        users_assigned_otherwise,
        users_exposed_before,
        clusters,
        in_progress,
        ..
    } = collect;
    let by_two = entering.iter_mut().chain(active).chain(in_progress).flatten();
    let all = by_two.chain(users_excluded).chain(clusters);
    let single = [users_in_many_variants, users_assigned_otherwise, users_exposed_before];
    all.chain(single).collect()
}

fn write_cells(cells: &Cells, to: &mut Writer) {
    cells.users.iter().chain(cells.zeros.iter().flatten()).for_each(|count| to.number(*count));
    cells.moments.iter().flatten().for_each(|moments| to.floats(&moments.to_state()));
}

fn read_cells(cells: &mut Cells, from: &mut Reader) -> Result<()> {
    for count in cells.users.iter_mut().chain(cells.zeros.iter_mut().flatten()) {
        *count = from.number()?;
    }
    for moments in cells.moments.iter_mut().flatten() {
        *moments = read_moments(moments.columns(), from)?;
    }
    Ok(())
}

fn read_moments(columns: usize, from: &mut Reader) -> Result<Moments> {
    Ok(Moments::from_state(columns, &from.floats()?).ok_or_else(damaged)?)
}

fn damaged() -> DataFusionError {
    plan_datafusion_err!("the cells of a part are damaged")
}
