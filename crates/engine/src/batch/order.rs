//! The order of statements in which sharers are neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::kept::Kept;

/// Places of statements, by what each reads: next is always one with most in common with those before
/// it, the first of equals, so that what is kept is used up soon.
pub(super) fn neighbours(reads: &[Vec<Arc<Kept>>]) -> Vec<usize> {
    // What each needs, down to what is read first.
    let mut needs: Vec<BTreeSet<usize>> = Vec::new();
    let mut users: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, reads) in reads.iter().enumerate() {
        let mut all = BTreeSet::new();
        reads.iter().for_each(|kept| gather(kept, &mut all));
        for need in &all {
            users.entry(*need).or_default().push(place);
        }
        needs.push(all);
    }
    let mut shared = vec![0_usize; reads.len()];
    let mut left: Vec<usize> = (0..reads.len()).collect();
    let mut begun = BTreeSet::new();
    let mut order = Vec::with_capacity(reads.len());
    while !left.is_empty() {
        let best = (0..left.len()).min_by_key(|at| (usize::MAX - shared[left[*at]], left[*at]));
        let place = left.swap_remove(best.unwrap_or_default());
        order.push(place);
        for need in &needs[place] {
            if begun.insert(*need) {
                users[need].iter().for_each(|user| shared[*user] += 1);
            }
        }
    }
    order
}

fn gather(kept: &Arc<Kept>, all: &mut BTreeSet<usize>) {
    if !all.insert(kept.part * 2) {
        return;
    }
    kept.reads().iter().for_each(|read| gather(read, all));
    // A reading for several is something to have in common as well.
    if let Some(together) = kept.together() {
        all.insert(together.number * 2 + 1);
    }
}
