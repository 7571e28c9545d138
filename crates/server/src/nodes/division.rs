//! Which part of a statement is whose: ids in slots, slots to nodes.

use uplake_cluster::place;
use uplake_engine::{Placed, Share};

/// Slots of a domain, at least: nodes are then within an eighth of each other, and a part has few ranges. At most twice as
/// many, because slots are as wide as a power of two, so that borders stay where they are while ids are added.
const SLOTS: u32 = 16;
/// More nodes have more slots: so many each at least.
const SLOTS_OF_NODE: u32 = 3;

/// Parts by ids of a domain up to the highest; nodes are given by their names, in their order.
pub(super) fn by_ids(source: &str, highest: u32, nodes: &[&str]) -> Vec<Placed> {
    let (width, weights) = slots(highest, nodes.len());
    let Some(owners) = place(source, nodes, &weights) else { return Vec::new() };
    let part = |(at, node): (usize, &&str)| {
        let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
        for slot in (0..owners.len()).filter(|slot| owners[*slot] == at) {
            let from = slot as u32 * width;
            let is_last = slot + 1 == owners.len();
            let to = if is_last { u32::MAX } else { from + width };
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

/// Parts by the bytes of a table.
pub(super) fn by_bytes(nodes: &[&str]) -> Vec<Placed> {
    let parts = nodes.len() as u32;
    let part = |(part, node): (u32, &&str)| Placed {
        share: Share::Stretch { part, parts },
        node: (*node).to_owned(),
    };
    (0..).zip(nodes).map(part).collect()
}

/// How many ids a slot has, and how many ids there are in each.
fn slots(highest: u32, nodes: usize) -> (u32, Vec<u64>) {
    let least = u32::try_from(nodes).unwrap_or(u32::MAX).saturating_mul(SLOTS_OF_NODE).max(SLOTS);
    // Ids are positive numbers of 32 bits with a sign.
    let ids = highest.min(i32::MAX as u32) + 1;
    let width = (ids / least).max(1);
    let width = 1 << width.ilog2();
    let count = ids.div_ceil(width);
    let weights = (0..count).map(|slot| u64::from((ids - slot * width).min(width))).collect();
    (width, weights)
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
                let parts = by_ids("users:1", highest, &nodes);
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
        for highest in [100, 5000, 999_999, 12_345_678, i32::MAX as u32] {
            for nodes in [1, 2, 3, 5, 16] {
                let (width, weights) = slots(highest, nodes);
                let least = (nodes as u64 * 3).max(16);
                let count = weights.len() as u64;
                assert!((least..=2 * least + 1).contains(&count), "{count} of {highest}, {nodes}");
                assert_eq!(weights.iter().sum::<u64>(), u64::from(highest) + 1);
                assert!(width.is_power_of_two());
            }
        }
        let nodes = ["a", "b", "c"];
        let (before, after) =
            (by_ids("u:1", 1 << 20, &nodes), by_ids("u:1", (1 << 20) + 4000, &nodes));
        assert_eq!(before, after);
        let loads: Vec<u64> = before
            .iter()
            .map(|part| match &part.share {
                Share::Ids { ranges, .. } => {
                    ranges.iter().map(|r| u64::from(r.end.min(1 << 20) - r.start)).sum()
                }
                Share::Stretch { .. } => 0,
            })
            .collect();
        let most = loads.iter().max().unwrap();
        assert!(*most as f64 <= 1.2 * f64::from(1 << 20) / 3.0, "{loads:?}");
    }

    #[test]
    fn bytes_are_divided_among_all() {
        let parts = by_bytes(&["a", "b"]);
        assert_eq!(parts[1].share, Share::Stretch { part: 1, parts: 2 });
        assert_eq!(parts.len(), 2);
        assert!(by_bytes(&[]).is_empty() && by_ids("u:1", 10, &[]).is_empty());
    }
}
