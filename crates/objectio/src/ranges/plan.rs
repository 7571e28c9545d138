//! Which requests a call of many ranges becomes: near ranges merged, long ones cut.
//!
//! # Invariants
//! - Every wanted byte is in exactly one piece; no piece is empty or longer than the cap.
//! - Bytes nobody wants are read only in gaps of at most `gap` between two wanted ranges.
//!
//! # Not here
//! No I/O: ranges in, ranges out.

use std::ops::Range;

/// One buffer of neighbouring bytes, and the requests that fill it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// What the buffer holds.
    pub(crate) range: Range<u64>,
    /// Cuts `range` without holes, in order.
    pub(crate) pieces: Vec<Range<u64>>,
    /// Bytes of `range` that were asked for.
    pub(crate) wanted: u64,
}

/// The requests of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Sorted and disjoint.
    pub(crate) groups: Vec<Group>,
    /// For each asked range, in the caller's order, the group that holds it; `None` if it is empty.
    pub(crate) places: Vec<Option<usize>>,
}

/// Plans `ranges` (any order, overlaps allowed): gaps up to `gap` bytes are read through if the
/// piece stays within `cap` bytes, and ranges longer than `cap` are cut into equal parts.
pub(crate) fn plan(ranges: &[Range<u64>], gap: u64, cap: u64) -> Plan {
    let cap = cap.max(1);
    let mut order: Vec<usize> = (0..ranges.len()).filter(|&i| !ranges[i].is_empty()).collect();
    order.sort_unstable_by_key(|&i| (ranges[i].start, ranges[i].end));

    let mut groups: Vec<Group> = Vec::new();
    let mut places = vec![None; ranges.len()];
    for i in order {
        let range = &ranges[i];
        match groups.last_mut() {
            Some(last) if joins(&last.range, range, gap, cap) => {
                last.wanted += range.end.saturating_sub(range.start.max(last.range.end));
                last.range.end = last.range.end.max(range.end);
            }
            _ => groups.push(Group {
                range: range.clone(),
                pieces: Vec::new(),
                wanted: range.end - range.start,
            }),
        }
        places[i] = Some(groups.len() - 1);
    }
    for group in &mut groups {
        group.pieces = cut(&group.range, cap);
    }
    Plan { groups, places }
}

/// Whether `next` goes into the buffer that ends with `last`. Overlapping ranges always do, so that
/// no byte is read twice.
fn joins(last: &Range<u64>, next: &Range<u64>, gap: u64, cap: u64) -> bool {
    next.start < last.end || (next.start - last.end <= gap && next.end - last.start <= cap)
}

/// Equal parts of at most `cap` bytes.
pub(crate) fn cut(range: &Range<u64>, cap: u64) -> Vec<Range<u64>> {
    let len = range.end - range.start;
    let parts = len.div_ceil(cap.max(1)).max(1);
    let at = |i: u64| range.start + (u128::from(len) * u128::from(i) / u128::from(parts)) as u64;
    (0..parts).map(|i| at(i)..at(i + 1)).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of one range
mod tests {
    use super::*;
    use uplake_testkit::random::Random;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn pieces(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let plan = plan(ranges, 256 * KIB, 8 * MIB);
        plan.groups.iter().flat_map(|group| group.pieces.clone()).collect()
    }

    #[test]
    fn adjacent_long_ranges_stay_apart() {
        let ranges: Vec<_> = (0..32).map(|i| i * 8 * MIB..(i + 1) * 8 * MIB).collect();
        assert_eq!(pieces(&ranges), ranges);
    }

    #[test]
    fn small_gaps_are_read_through_up_to_the_cap() {
        let ranges: Vec<_> = (0..1000).map(|i| i * 128 * KIB..i * 128 * KIB + 64 * KIB).collect();
        let pieces = pieces(&ranges);
        assert_eq!(pieces.len(), 16);
        assert!(pieces.iter().all(|piece| piece.end - piece.start <= 8 * MIB));
    }

    #[test]
    fn wide_gaps_are_not_read() {
        let ranges: Vec<_> = (0..1000).map(|i| i * 1088 * KIB..i * 1088 * KIB + 64 * KIB).collect();
        assert_eq!(pieces(&ranges), ranges);
    }

    #[test]
    fn a_long_range_is_cut_into_equal_parts() {
        assert_eq!(pieces(&[5..5 + 9 * MIB]), [5..5 + 9 * MIB / 2, 5 + 9 * MIB / 2..5 + 9 * MIB]);
        assert_eq!(pieces(&[0..8 * MIB]), [0..8 * MIB]);
    }

    #[test]
    fn empty_ranges_ask_for_nothing() {
        let plan = plan(&[7..7, 3..5, 9..9], 10, 100);
        assert_eq!(plan.places, [None, Some(0), None]);
        assert_eq!(plan.groups.len(), 1);
    }

    #[test]
    fn every_plan_covers_what_was_asked_once() {
        for seed in 0..2000 {
            let mut random = Random::stream(41, seed);
            let gap = random.below(40);
            let cap = 1 + random.below(100);
            let ranges: Vec<Range<u64>> = (0..random.below(12))
                .map(|_| {
                    let start = random.below(600);
                    start..start + random.below(150)
                })
                .collect();
            let plan = plan(&ranges, gap, cap);
            let mut asked = vec![false; 1000];
            ranges.iter().flat_map(Clone::clone).for_each(|byte| asked[byte as usize] = true);
            let mut read = vec![0; 1000];
            for group in &plan.groups {
                assert_eq!(group.pieces.first().map(|p| p.start), Some(group.range.start));
                assert_eq!(group.pieces.last().map(|p| p.end), Some(group.range.end));
                assert!(group.pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
                for piece in &group.pieces {
                    assert!(!piece.is_empty() && piece.end - piece.start <= cap, "seed {seed}");
                    piece.clone().for_each(|byte| read[byte as usize] += 1);
                }
                let wanted = group.range.clone().filter(|&byte| asked[byte as usize]).count();
                assert_eq!(group.wanted, wanted as u64, "seed {seed}");
            }
            assert!(read.iter().all(|&times| times <= 1), "seed {seed}: a byte is read twice");
            assert!((0..1000).all(|i| !asked[i] || read[i] == 1), "seed {seed}: a byte is missing");
            // A run of unwanted bytes that is read is never longer than the gap.
            let mut run = 0;
            for byte in 0..1000 {
                run = if read[byte] == 1 && !asked[byte] { run + 1 } else { 0 };
                assert!(run <= gap, "seed {seed}: {run} unwanted bytes in a row");
            }
            for (range, place) in ranges.iter().zip(&plan.places) {
                let group = place.map(|at| &plan.groups[at].range);
                assert_eq!(group.is_none(), range.is_empty());
                assert!(group.is_none_or(|g| g.start <= range.start && range.end <= g.end));
            }
        }
    }
}
