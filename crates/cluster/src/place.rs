//! The node of each slot: rendezvous hashing with bounded load.
//!
//! A node's cache holds the columns of its slots, so a slot should stay where it is when nodes come
//! and go; and parts end together only if no node has much more than the others. Rendezvous hashing
//! moves no slot that it need not, but gives the fullest of 16 nodes 1.8 times the mean. So a node has
//! a bound, and those who fit best are placed first: then a node that comes or goes moves 0.06 to 0.09
//! of the slots more than it must.
//!
//! Slots beside each other fit a node as well as each other, since what a node reads ends where its
//! slots do: a page of each column is read by both nodes there, and small columns whole. With three
//! nodes pairs halve the borders, and move 0.01 of the slots more when a fourth comes.
//!
//! # Invariants
//! - A pure function of the nodes' names, whatever their order, and the weights: every coordinator
//!   that sees the same nodes and the same snapshot computes the same.
//! - Names are hashed, not addresses: a node that comes back with its disk gets its slots back.

use twox_hash::XxHash64;

/// A node gets no further slot that would bring it above this many times the mean weight, as long as
/// another node has room.
pub const LOAD_MAX: f64 = 1.1;

/// Slots beside each other that fit nodes alike.
const NEIGHBOURS: usize = 2;

/// The node of each slot of `domain`, as a place in `nodes`; `None` if there are no nodes.
///
/// `nodes`: names, each once, in any order. `weights`: what each slot weighs, such as its rows; the
/// answer is as long. A slot that weighs more than the bound stands alone on its node as far as others
/// have room.
///
/// # Examples
/// ```
/// use uplake_cluster::place;
/// let before = place("user_id", &["a", "b"], &[10; 8]).unwrap();
/// let turned = place("user_id", &["b", "a"], &[10; 8]).unwrap();
/// assert!(before.iter().zip(&turned).all(|(x, y)| x != y)); // the same names
/// assert_eq!(place("user_id", &[], &[10; 8]), None);
/// ```
///
/// # Source
/// Thaler & Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996; Mirrokni, Thorup &
/// Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
#[must_use]
pub fn place(domain: &str, nodes: &[&str], weights: &[u64]) -> Option<Vec<usize>> {
    if nodes.is_empty() {
        return None;
    }
    let total: f64 = weights.iter().map(|&w| w as f64).sum();
    let bound = LOAD_MAX * total / nodes.len() as f64;
    let mut placed =
        Placed { weights, loads: vec![0.0; nodes.len()], owners: vec![None; weights.len()] };
    let mut fits: Vec<(u64, usize, usize)> = Vec::new();
    for group in 0..weights.len().div_ceil(NEIGHBOURS) {
        fits.extend(
            nodes.iter().enumerate().map(|(at, name)| (score(name, domain, group), group, at)),
        );
    }
    // Two names with one score, which a hash may give, are told apart by the names themselves.
    fits.sort_unstable_by(|a, b| {
        b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| nodes[a.2].cmp(nodes[b.2]))
    });
    let slots_of = |group: usize| group * NEIGHBOURS..weights.len().min((group + 1) * NEIGHBOURS);
    // Whoever has no room anywhere comes first, so that it stands alone if it can.
    let heavy = (0..weights.len()).filter(|slot| weights[*slot] as f64 > bound);
    heavy.for_each(|slot| placed.put_where_least_is(slot, &fits));
    for &(_, group, at) in &fits {
        for slot in slots_of(group) {
            let has_room = placed.loads[at] + weights[slot] as f64 <= bound;
            if has_room && placed.owners[slot].is_none() {
                placed.put(slot, at);
            }
        }
    }
    for slot in 0..weights.len() {
        if placed.owners[slot].is_none() {
            placed.put_where_least_is(slot, &fits);
        }
    }
    placed.owners.into_iter().collect()
}

/// Slots that have owners, and what these have.
struct Placed<'a> {
    weights: &'a [u64],
    loads: Vec<f64>,
    owners: Vec<Option<usize>>,
}

impl Placed<'_> {
    fn put(&mut self, slot: usize, at: usize) {
        self.loads[at] += self.weights[slot] as f64;
        self.owners[slot] = Some(at);
    }

    /// On the node that has least, and of several such the one that it fits best.
    fn put_where_least_is(&mut self, slot: usize, fits: &[(u64, usize, usize)]) {
        let nodes = fits.iter().filter(|(_, group, _)| *group == slot / NEIGHBOURS);
        let least = nodes.min_by(|a, b| self.loads[a.2].total_cmp(&self.loads[b.2]));
        if let Some(&(_, _, at)) = least {
            self.put(slot, at);
        }
    }
}

/// How well a node and a group of slots fit each other.
fn score(node: &str, domain: &str, group: usize) -> u64 {
    // The lengths keep ("a", "bc") and ("ab", "c") apart.
    let mut bytes = Vec::with_capacity(node.len() + domain.len() + 24);
    bytes.extend_from_slice(&(node.len() as u64).to_le_bytes());
    bytes.extend_from_slice(node.as_bytes());
    bytes.extend_from_slice(&(domain.len() as u64).to_le_bytes());
    bytes.extend_from_slice(domain.as_bytes());
    bytes.extend_from_slice(&(group as u64).to_le_bytes());
    XxHash64::oneshot(0, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uplake_testkit::random::Random;

    fn names(count: usize, seed: u64) -> Vec<String> {
        (0..count).map(|n| format!("uplake-{seed}-{n}")).collect()
    }

    fn placed<'a>(names: &'a [String], domain: &str, weights: &[u64]) -> Vec<&'a str> {
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        place(domain, &nodes, weights)
            .expect("there are nodes")
            .iter()
            .map(|&at| nodes[at])
            .collect()
    }

    /// Share of slots with another owner.
    fn moved(before: &[&str], after: &[&str]) -> f64 {
        before.iter().zip(after).filter(|(x, y)| x != y).count() as f64 / before.len() as f64
    }

    #[test]
    fn the_order_of_names_does_not_matter() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut nodes = names(1 + random.below(12) as usize, seed);
            let weights: Vec<u64> = (0..64).map(|_| random.below(1000)).collect();
            let before: Vec<String> =
                placed(&nodes, "user_id", &weights).iter().map(|&n| n.to_owned()).collect();
            for at in (1..nodes.len()).rev() {
                nodes.swap(at, random.below(at as u64 + 1) as usize);
            }
            assert_eq!(before, placed(&nodes, "user_id", &weights));
        }
    }

    #[test]
    fn no_node_is_above_the_bound_while_slots_are_small() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            for count in [1, 2, 3, 5, 16] {
                let nodes = names(count, seed);
                let weights: Vec<u64> = (0..96).map(|_| 900 + random.below(200)).collect();
                let owners = placed(&nodes, "user_id", &weights);
                let mean = weights.iter().sum::<u64>() as f64 / count as f64;
                let heaviest = *weights.iter().max().expect("96") as f64;
                for name in &nodes {
                    let load: u64 = owners
                        .iter()
                        .zip(&weights)
                        .filter(|(owner, _)| *owner == name)
                        .map(|(_, weight)| weight)
                        .sum();
                    assert!(
                        load as f64 <= (LOAD_MAX * mean).max(mean + heaviest),
                        "{load} of {mean}, {count} nodes"
                    );
                }
            }
        }
    }

    /// Over sixty choices of names.
    fn mean_moved(from: usize, to: usize, slots: usize) -> f64 {
        let least = 1.0 / from.max(to) as f64;
        let shares = (0..60).map(|seed| {
            let (before, after) = (names(from, seed), names(to, seed));
            let weights = vec![1000; slots];
            let (before, after) =
                (placed(&before, "user_id", &weights), placed(&after, "user_id", &weights));
            let share = moved(&before, &after);
            assert!(share >= least * 0.5, "{from} to {to}: {share}");
            share
        });
        shares.sum::<f64>() / 60.0
    }

    #[test]
    fn few_slots_move_when_a_node_comes_or_goes() {
        for (from, to, slots, most) in [
            (3, 4, 24, 0.33),
            (3, 4, 96, 0.30),
            (4, 3, 96, 0.30),
            (16, 15, 96, 0.20),
            (15, 16, 96, 0.20),
            (16, 15, 48, 0.16),
        ] {
            let moved = mean_moved(from, to, slots);
            assert!(moved <= most, "{moved} of {slots} slots moved from {from} to {to}");
        }
    }

    #[test]
    fn what_a_node_has_lies_together() {
        let borders = (0..60).map(|seed| {
            let nodes = names(3, seed);
            let owners = placed(&nodes, "user_id", &[1000; 24]);
            owners.windows(2).filter(|two| two[0] != two[1]).count()
        });
        // Without neighbours 15.
        let mean = borders.sum::<usize>() as f64 / 60.0;
        assert!(mean <= 8.5, "{mean} borders");
    }

    #[test]
    fn a_node_that_comes_back_has_its_slots_again() {
        let all = names(5, 1);
        let weights: Vec<u64> = (0..96).map(|n| 1 + n % 7).collect();
        let before = placed(&all, "user_id", &weights);
        let without = placed(&all[..4], "user_id", &weights);
        assert!(without.iter().all(|owner| *owner != all[4]));
        assert_eq!(before, placed(&all, "user_id", &weights));
    }

    #[test]
    fn heavy_empty_and_missing_slots_have_owners() {
        let nodes = names(3, 0);
        assert_eq!(placed(&nodes, "user_id", &[]), Vec::<&str>::new());
        assert_eq!(placed(&nodes, "user_id", &[0; 8]).len(), 8);
        let owners = placed(&nodes, "user_id", &[u64::MAX, 1, 1, 1, 1, 1]);
        assert_eq!(owners.len(), 6);
        assert!(owners[1..].iter().all(|owner| *owner != owners[0]), "{owners:?}");
        assert_eq!(place("user_id", &[], &[1]), None);
    }

    #[test]
    fn domains_are_placed_apart() {
        let nodes = names(4, 0);
        let weights = [1; 96];
        let share =
            moved(&placed(&nodes, "user_id", &weights), &placed(&nodes, "device_id", &weights));
        assert!(share > 0.5, "{share}");
    }
}
