//! [`RowSet`] against `BTreeSet`, which is obviously right, and the `roaring` crate, which is
//! independent. Every failure prints the seed it needs.

use std::collections::BTreeSet;
use std::ops::Range;

use roaring::RoaringBitmap;
use uplake_postings::{MAX_ROWS, Mask, RowSet, Run, Selection, portable::View};
use uplake_testkit::{random::Random, soak};

/// Rows that the random sets are drawn from: five chunks, not a multiple of 64.
const SPAN: u32 = 5 * 65_536 - 37;
fn seeds() -> Range<u64> {
    0..if cfg!(miri) { 2 } else { 60 * soak() }
}

/// A random set of some shape: empty, a few rows, scattered, dense, runs, all, or a mixture.
fn draw(random: &mut Random) -> BTreeSet<u32> {
    let base = if random.below(4) == 0 { MAX_ROWS - SPAN } else { 0 };
    let mut set = BTreeSet::new();
    let most = if cfg!(miri) { 60 } else { 30_000 };
    for _ in 0..random.below(3) + 1 {
        match random.below(8) {
            0 => {}
            1 => set
                .extend((0..random.below(40)).map(|_| base + random.below(u64::from(SPAN)) as u32)),
            2 => set.extend((0..most).map(|_| base + random.below(u64::from(SPAN)) as u32)),
            // One chunk, so full that only a bitmap or runs fit.
            3 => {
                let chunk = base + random.below(4) as u32 * 65_536;
                set.extend((0..2 * most).map(|_| chunk + random.below(65_536) as u32));
            }
            4 | 5 => {
                let length = 1 << random.below(if cfg!(miri) { 6 } else { 10 });
                for _ in 0..random.below(if cfg!(miri) { 9 } else { 900 }) {
                    let start = random.below(u64::from(SPAN)) as u32;
                    let end = (start + random.below(length) as u32 + 1).min(SPAN);
                    set.extend(base + start..base + end);
                }
            }
            6 if !cfg!(miri) => set.extend(base + 65_536..base + 3 * 65_536),
            _ => {
                let step = random.below(9) as usize + 1;
                let start = random.below(65_536) as u32;
                set.extend((base + start..base + SPAN).step_by(step).take(3 * most as usize));
            }
        }
    }
    set
}

fn set_of(model: &BTreeSet<u32>) -> RowSet {
    model.iter().copied().collect()
}

fn optimized(model: &BTreeSet<u32>) -> RoaringBitmap {
    let mut peer: RoaringBitmap = model.iter().copied().collect();
    peer.optimize();
    peer
}

fn runs_of(model: &BTreeSet<u32>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &row in model {
        match runs.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => runs.push(Run::new(row, row + 1)),
        }
    }
    runs
}

#[test]
fn questions_have_the_answers_of_a_btree_set() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let model = draw(&mut random);
        let set = set_of(&model);
        assert_eq!(set.cardinality(), model.len() as u64, "seed {seed}");
        assert_eq!(set.is_empty(), model.is_empty(), "seed {seed}");
        assert!(set.rows().eq(model.iter().copied()), "seed {seed}: rows");
        let runs = runs_of(&model);
        assert_eq!(set.run_count(), runs.len(), "seed {seed}");
        assert!(set.runs().eq(runs), "seed {seed}: runs");
        let sorted: Vec<u32> = model.iter().copied().collect();
        let bytes = set.to_bytes();
        let view = View::parse(&bytes).expect("our own bytes");
        for _ in 0..50 {
            let near = sorted.get(random.below(sorted.len() as u64 + 1) as usize).copied();
            let row = near.unwrap_or(7).saturating_add(random.below(3) as u32);
            let rank = sorted.partition_point(|&at| at < row);
            assert_eq!(set.contains(row), model.contains(&row), "seed {seed}, row {row}");
            assert_eq!(view.contains(row), Ok(model.contains(&row)), "seed {seed}, row {row}");
            assert_eq!(set.rank(row), rank as u64, "seed {seed}, row {row}");
            assert_eq!(
                set.select(rank as u64),
                sorted.get(rank).copied(),
                "seed {seed}, row {row}"
            );
        }
        assert_eq!(set.select(sorted.len() as u64), None);
    }
}

#[test]
fn skipping_leaves_out_exactly_the_rows_below() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let model = draw(&mut random);
        let set = set_of(&model);
        let (mut rows, mut runs) = (set.rows(), set.runs());
        let (mut at, mut at_runs) = (0u32, 0u32);
        for _ in 0..100 {
            let bits = random.below(18);
            let step = random.below(1 << bits) as u32;
            let target = at.saturating_add(step);
            rows.skip_to(target);
            at = at.max(target);
            let expected = model.range(at..).next().copied();
            assert_eq!(rows.next(), expected, "seed {seed}: skip to {target}");
            at = expected.map_or(at, |row| row + 1);

            let target = at_runs.saturating_add(step);
            runs.skip_to(target);
            at_runs = at_runs.max(target);
            let found = runs.next();
            let first = model.range(at_runs..).next().copied();
            assert_eq!(found.map(|run| run.start), first, "seed {seed}: runs skip to {target}");
            let Some(run) = found else { break };
            assert!((run.start..run.end).all(|row| model.contains(&row)), "seed {seed}");
            assert!(!model.contains(&run.end), "seed {seed}: {run:?} is not maximal");
            at_runs = run.end;
        }
    }
}

#[test]
fn algebra_is_that_of_btree_sets_and_gives_canonical_values() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let (a, b, c) = (draw(&mut random), draw(&mut random), draw(&mut random));
        let (x, y, z) = (set_of(&a), set_of(&b), set_of(&c));
        // Equality of values includes the choice of every container.
        assert_eq!(x.or(&y), set_of(&(&a | &b)), "seed {seed}: or");
        assert_eq!(x.and(&y), set_of(&(&a & &b)), "seed {seed}: and");
        assert_eq!(x.and_not(&y), set_of(&(&a - &b)), "seed {seed}: and not");
        assert_eq!(
            RowSet::union([&x, &y, &z, &x]),
            set_of(&(&(&a | &b) | &c)),
            "seed {seed}: union"
        );
    }
}

#[test]
fn bytes_are_those_of_roaring_and_come_back() {
    for seed in seeds() {
        let model = draw(&mut Random::new(seed));
        let set = set_of(&model);
        let bytes = set.to_bytes();
        let peer = optimized(&model);
        let theirs = RoaringBitmap::deserialize_from(&bytes[..]).expect("Roaring reads our bytes");
        assert_eq!(theirs, peer, "seed {seed}");
        assert_eq!(RowSet::from_bytes(&bytes).as_ref(), Ok(&set), "seed {seed}");
        // Their containers may be any, ours are the smallest.
        for peer in [peer, model.iter().copied().collect()] {
            let mut theirs = Vec::new();
            peer.serialize_into(&mut theirs).expect("a vector takes bytes");
            assert!(bytes.len() <= theirs.len(), "seed {seed}: {} > {}", bytes.len(), theirs.len());
            assert_eq!(RowSet::from_bytes(&theirs).as_ref(), Ok(&set), "seed {seed}");
        }
    }
}

#[test]
fn masks_hold_the_same_rows() {
    for seed in seeds() {
        let model: BTreeSet<u32> =
            draw(&mut Random::new(seed)).into_iter().filter(|&row| row < SPAN).collect();
        let set = set_of(&model);
        let mask = set.to_mask(SPAN);
        assert_eq!(mask.cardinality(), model.len() as u64, "seed {seed}");
        assert_eq!(mask.to_runs(), runs_of(&model), "seed {seed}");
        assert_eq!(RowSet::from_mask(&mask), set, "seed {seed}");
        let mut from_bytes = Mask::new(SPAN);
        let bytes = set.to_bytes();
        View::parse(&bytes).and_then(|view| view.set_in(&mut from_bytes)).expect("our own bytes");
        assert_eq!(from_bytes, mask, "seed {seed}");
        if let Some(&last) = model.last() {
            let mut short = Mask::new(last);
            let result = View::parse(&bytes).and_then(|view| view.set_in(&mut short));
            assert!(result.is_err(), "seed {seed}: row {last} is beyond the file");
        }
    }
}

#[test]
fn the_last_row_is_one_below_the_limit() {
    let set: RowSet = [MAX_ROWS - 1, MAX_ROWS].into_iter().collect();
    assert_eq!(set.rows().collect::<Vec<_>>(), [MAX_ROWS - 1]);
    let scattered: RowSet = (0..200).map(|i| MAX_ROWS - 1 - 3 * i).collect();
    assert_eq!(scattered.rows().last(), Some(MAX_ROWS - 1));
    assert_eq!(RowSet::from_bytes(&scattered.to_bytes()), Ok(scattered));
    let mut bytes = Vec::new();
    let peer = RoaringBitmap::from_iter([u32::MAX]);
    peer.serialize_into(&mut bytes).expect("a vector takes bytes");
    assert!(RowSet::from_bytes(&bytes).is_err());
}

/// The same rows, as whoever builds a selection by hand may put them.
fn selections(model: &BTreeSet<u32>) -> [Selection; 2] {
    let mut mask = Mask::new(SPAN);
    model.iter().for_each(|&row| assert!(mask.set(row)));
    [Selection::Runs(runs_of(model)), Selection::Mask(mask)]
}

#[test]
fn selections_are_btree_sets_whatever_their_form() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let [a, b] = [0, 1].map(|_| {
            let model = draw(&mut random).into_iter().filter(|&row| row < SPAN);
            model.collect::<BTreeSet<u32>>()
        });
        let both: BTreeSet<u32> = &a & &b;
        let expected = set_of(&both).into_selection(SPAN);
        for x in selections(&a) {
            for y in selections(&b) {
                assert_eq!(x.clone().and(y, SPAN), expected, "seed {seed}");
            }
            let runs = runs_of(&a);
            assert_eq!(x.is_empty(), a.is_empty(), "seed {seed}");
            assert_eq!(x.cardinality(), a.len() as u64, "seed {seed}");
            assert_eq!(x.run_count(), runs.len(), "seed {seed}");
            assert!(x.runs().eq(runs.iter().copied()), "seed {seed}: runs");
            assert_eq!(Selection::from_runs(runs, SPAN), set_of(&a).into_selection(SPAN));
            let (mut skipping, mut at) = (x.runs(), 0);
            for _ in 0..100 {
                let bits = random.below(15);
                at += random.below(1 << bits) as u32;
                skipping.skip_to(at);
                let found = skipping.next();
                let first = a.range(at..).next().copied();
                assert_eq!(found.map(|run| run.start), first, "seed {seed}: skip to {at}");
                let Some(run) = found else { break };
                assert!((run.start..run.end).all(|row| a.contains(&row)), "seed {seed}");
                assert!(!a.contains(&run.end), "seed {seed}: {run:?} is not maximal");
                at = run.end;
            }
        }
    }
}
