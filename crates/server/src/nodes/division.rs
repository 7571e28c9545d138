//! Which part of a statement is whose: ids in slots, neighbouring slots in stretches, stretches to nodes.
//!
//! ```text
//! slots       |.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|    as many ids each
//! stretches   |   |     |     |       |       |    as many rows each, about
//! nodes       | a |  a  |  c  |   b   |   b   |
//! ```
//!
//! Ids are numbered as users come: who was there first has several times the rows of who came last, in each file, too.

use std::ops::Range;

use uplake_cluster::place;
use uplake_engine::{FileIds, Placed, Share};

/// Stretches of a domain: a part of three then has some three ranges, each of which costs a page more of each column and
/// file.
const STRETCHES: usize = 24;
/// More nodes have more: so many each at least.
const STRETCHES_OF_NODE: usize = 3;
/// Slots of a stretch, at least: the fullest of three nodes then has 1.01 times the mean on average, with four 1.05. At most
/// twice as many, because slots are as wide as a power of two, so that borders stay where they are while ids are added.
const SLOTS_OF_STRETCH: usize = 16;

/// Parts by ids of a domain up to the highest; nodes are given by their names, in their order. A slot weighs what `files`
/// say of its rows, or its ids if they say nothing.
pub(super) fn by_ids(source: &str, highest: u32, files: &[FileIds], nodes: &[&str]) -> Vec<Placed> {
    let count = STRETCHES.max(nodes.len() * STRETCHES_OF_NODE);
    let (width, by_ids) = slots(highest, count * SLOTS_OF_STRETCH);
    let by_rows = rows_of_slots(files, width, by_ids.len());
    let weights = if by_rows.iter().all(|rows| *rows == 0) { by_ids } else { by_rows };
    let stretches = stretches(&weights, count);
    let of_stretch = |slots: &Range<usize>| weights[slots.clone()].iter().sum();
    let of_stretches: Vec<u64> = stretches.iter().map(of_stretch).collect();
    let Some(owners) = place(source, nodes, &of_stretches) else { return Vec::new() };
    let border = |slot: usize| match slot < weights.len() {
        true => slot as u32 * width,
        false => u32::MAX,
    };
    let part = |(at, node): (usize, &&str)| {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for (slots, _) in stretches.iter().zip(&owners).filter(|(_, owner)| **owner == at) {
            let (from, to) = (border(slots.start), border(slots.end));
            match ranges.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => ranges.push(from..to),
            }
        }
        let without_id = owners.first() == Some(&at);
        let share = Share::Ids { ranges, without_id };
        owners.contains(&at).then(|| Placed { share, node: (*node).to_owned() })
    };
    nodes.iter().enumerate().filter_map(part).collect()
}

/// So many stretches of slots that weigh about the same, or fewer where one slot weighs as much as several stretches.
fn stretches(weights: &[u64], count: usize) -> Vec<Range<usize>> {
    let total: f64 = weights.iter().map(|weight| *weight as f64).sum();
    let (mut found, mut start, mut before): (Vec<Range<usize>>, _, _) = (Vec::new(), 0, 0.0);
    for (slot, weight) in weights.iter().enumerate() {
        let end = total * (found.len() + 1) as f64 / count as f64;
        // The border that is nearer to where the stretch should end.
        if slot > start && before + *weight as f64 - end > end - before {
            found.push(start..slot);
            start = slot;
        }
        before += *weight as f64;
    }
    found.push(start..weights.len());
    found
}

/// Parts by the bytes of a table.
pub(super) fn by_bytes(nodes: &[&str]) -> Vec<Placed> {
    let parts = nodes.len() as u32;
    let part = |(part, node): (u32, &&str)| Placed {
        share: Share::Stretch { part, parts },
        node: (*node).to_owned(),
    };
    (0..).zip(nodes).map(part).collect()
}

/// How many ids a slot has, and how many ids there are in each of at least so many slots, as far as there are ids.
fn slots(highest: u32, least: usize) -> (u32, Vec<u64>) {
    // Ids are positive numbers of 32 bits with a sign.
    let ids = highest.min(i32::MAX as u32) + 1;
    let width = (ids / u32::try_from(least).unwrap_or(u32::MAX)).max(1);
    let width = 1 << width.ilog2();
    let count = ids.div_ceil(width);
    let weights = (0..count).map(|slot| u64::from((ids - slot * width).min(width))).collect();
    (width, weights)
}

/// The rows of each slot, if those of a file are spread evenly from its lowest to its highest id.
fn rows_of_slots(files: &[FileIds], width: u32, slots: usize) -> Vec<u64> {
    let mut rows = vec![0.0; slots];
    // What is added to the rows of each slot from this one on: a file fills those between its first and its last.
    let mut from_here = vec![0.0; slots + 1];
    for file in files.iter().filter(|file| file.lowest <= file.highest) {
        let of_id = file.rows as f64 / (f64::from(file.highest - file.lowest) + 1.0);
        let slot = |id: u32| ((id / width) as usize).min(slots - 1);
        let (first, last) = (slot(file.lowest), slot(file.highest));
        if first == last {
            rows[first] += file.rows as f64;
            continue;
        }
        let (second, last_begins) = ((first + 1) as f64, last as f64);
        rows[first] += of_id * (second * f64::from(width) - f64::from(file.lowest));
        rows[last] += of_id * (f64::from(file.highest) + 1.0 - last_begins * f64::from(width));
        from_here[first + 1] += of_id * f64::from(width);
        from_here[last] -= of_id * f64::from(width);
    }
    let mut between = 0.0;
    let all = rows.iter().zip(&from_here).map(|(ends, more)| {
        between += more;
        (ends + between).round() as u64
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(parts: &[Placed], id: u32) -> Vec<&str> {
        let owns = |part: &&Placed| match &part.share {
            Share::Ids { ranges, .. } => {
                ranges.iter().any(|r| r.contains(&id) || r.end == u32::MAX && id >= r.start)
            }
            Share::Stretch { .. } => false,
        };
        parts.iter().filter(owns).map(|part| part.node.as_str()).collect()
    }

    #[test]
    fn every_id_is_in_one_part_and_rows_without_one_are_too() {
        let names: Vec<String> = (0..40).map(|n| format!("127.0.0.1:{}", 19001 + n)).collect();
        for count in [1, 2, 3, 7, 40] {
            let nodes: Vec<&str> = names[..count].iter().map(String::as_str).collect();
            for highest in [0, 1, 15, 16, 17, 1000, 999_999, i32::MAX as u32, u32::MAX] {
                let parts = by_ids("users:1", highest, &[], &nodes);
                for id in [0, 1, highest / 3, highest / 2, highest - highest / 7, highest, u32::MAX]
                {
                    assert_eq!(owners(&parts, id).len(), 1, "{id} of {highest}, {count} nodes");
                }
                let nulls = parts
                    .iter()
                    .filter(|part| matches!(part.share, Share::Ids { without_id: true, .. }));
                assert_eq!(nulls.count(), 1);
            }
        }
    }

    #[test]
    fn slots_are_even_and_stay_while_ids_are_added() {
        for highest in [1000, 5000, 999_999, 12_345_678, i32::MAX as u32] {
            for least in [96, 240] {
                let (width, weights) = slots(highest, least);
                let count = weights.len();
                assert!((least..=2 * least + 1).contains(&count), "{count} of {highest}, {least}");
                assert_eq!(weights.iter().sum::<u64>(), u64::from(highest) + 1);
                assert!(width.is_power_of_two());
            }
        }
        let nodes = ["a", "b", "c"];
        let (before, after) =
            (by_ids("u:1", 1 << 20, &[], &nodes), by_ids("u:1", (1 << 20) + 4000, &[], &nodes));
        let most = loads(&before, |_| 1).into_iter().max().unwrap();
        assert!(most as f64 <= 1.15 * f64::from(1 << 20) / 3.0, "{most}");
        // Stretches may end a slot later, and one go elsewhere.
        let moved = (0..1 << 10).filter(|n| owners(&before, n << 10) != owners(&after, n << 10));
        let moved = moved.count();
        assert!(moved <= 100, "{moved} of 1024");
    }

    /// What parts weigh, of ids below 2^20 that weigh this much.
    fn loads(parts: &[Placed], weight: impl Fn(u32) -> u64) -> Vec<u64> {
        let of_range = |range: &Range<u32>| -> u64 {
            (range.start..range.end.min(1 << 20)).map(&weight).sum()
        };
        let of_part = |part: &Placed| match &part.share {
            Share::Ids { ranges, .. } => ranges.iter().map(of_range).sum(),
            Share::Stretch { .. } => 0,
        };
        parts.iter().map(of_part).collect()
    }

    /// Those who come each day and were not there before get new ids; all come again.
    #[test]
    fn nodes_have_as_many_rows_where_early_ids_have_more() {
        let day = |n: u32| FileIds { lowest: 0, highest: n * (1 << 20) / 20, rows: 1_000_000 };
        let files: Vec<FileIds> = (1..=20).map(day).collect();
        // A day's rows are those of its users.
        let of_days = |id: u32| {
            files
                .iter()
                .zip(1..)
                .filter(move |(file, _)| id <= file.highest)
                .map(|(_, day)| 1_000_000 / day)
        };
        let rows_of = |id: u32| of_days(id).sum::<u64>();
        let names: Vec<String> = (0..40).map(|n| format!("127.0.0.1:{}", 19001 + n)).collect();
        let mut worst = [0.0_f64; 2];
        for nodes in names.chunks(3).filter(|nodes| nodes.len() == 3) {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            for (worst, files) in worst.iter_mut().zip([&files[..], &[]]) {
                let loads = loads(&by_ids("u:1", 1 << 20, files, &nodes), rows_of);
                let mean = loads.iter().sum::<u64>() as f64 / 3.0;
                *worst = worst.max(*loads.iter().max().unwrap() as f64 / mean);
            }
        }
        let [by_rows, by_ids] = worst;
        assert!(by_rows <= 1.12 && by_ids > 1.2, "{by_rows}, by ids {by_ids}");
    }

    #[test]
    fn stretches_weigh_about_the_same() {
        assert_eq!(stretches(&[5, 5, 5, 5], 2), [0..2, 2..4]);
        assert_eq!(stretches(&[9, 1, 1, 1, 1, 1, 1, 1, 1, 1], 2), [0..1, 1..10]);
        // A slot is not divided, and those that weigh nothing are somebody's.
        assert_eq!(stretches(&[90, 5, 5], 4), [0..1, 1..2, 2..3]);
        assert_eq!(stretches(&[0, 0, 7, 0], 3), [0..2, 2..3, 3..4]);
        assert_eq!(stretches(&[1], 24).len(), 1);
    }

    #[test]
    fn rows_of_files_are_those_of_their_slots() {
        let file = |lowest, highest, rows| FileIds { lowest, highest, rows };
        assert_eq!(rows_of_slots(&[file(5, 34, 300)], 10, 4), [50, 100, 100, 50]);
        assert_eq!(rows_of_slots(&[file(5, 6, 7), file(10, 10, 1)], 10, 4), [7, 1, 0, 0]);
        // What is above all slots is in the last, and a file whose bounds make no sense says nothing.
        assert_eq!(rows_of_slots(&[file(30, u32::MAX, 9), file(3, 2, 9)], 10, 4), [0, 0, 0, 9]);
        assert_eq!(rows_of_slots(&[], 10, 2), [0, 0]);
    }

    #[test]
    fn bytes_are_divided_among_all() {
        let parts = by_bytes(&["a", "b"]);
        assert_eq!(parts[1].share, Share::Stretch { part: 1, parts: 2 });
        assert_eq!(parts.len(), 2);
        assert!(by_bytes(&[]).is_empty() && by_ids("u:1", 10, &[], &[]).is_empty());
    }
}
