//! Long keys: random operations on the tree and on a `BTreeMap`, many threads, forged entries.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use uplake_btree::{
    Direction, LongTree, MAX_LONG_KEY_BYTES, MemoryFile, Options, PAGE_BYTES, Tree, TreeError,
};

use crate::random::Random;

/// 40 frames: pages are evicted all the time.
fn small() -> Options {
    Options { pool_bytes: 40 * PAGE_BYTES, max_pages: 1 << 16, shards: None }
}

/// Keys that share long beginnings and end around the borders of slices.
fn key(random: &mut Random) -> Vec<u8> {
    let lengths = [0, 1, 8, 479, 480, 481, 482, 512, 959, 960, 961, 1440, 5000, 65_535, 65_536];
    let length = lengths[random.below(lengths.len())];
    let mut key = vec![[b'x', 0, 255][random.below(3)]; length];
    for _ in 0..random.below(3) {
        if let Some(byte) = key.iter_mut().rev().nth([0, 1, 479, 480, 481, 700][random.below(6)]) {
            *byte = [0, 1, b'y', 255][random.below(4)];
        }
    }
    key
}

/// What a bound of the tree's scan is made of.
fn bound(random: &mut Random, key: Vec<u8>) -> Bound<Vec<u8>> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn scan_like_the_model(random: &mut Random, tree: &LongTree, model: &BTreeMap<Vec<u8>, u64>) {
    let (mut a, mut b) = (key(random), key(random));
    if a > b {
        (a, b) = (b, a);
    }
    let is_empty = a == b;
    let (lower, upper) = (bound(random, a), bound(random, b));
    if is_empty && !matches!((&lower, &upper), (Bound::Included(_), Bound::Included(_))) {
        return;
    }
    let limit = if random.below(2) == 0 { usize::MAX } else { random.below(30) + 1 };
    let range = model.range((lower.clone(), upper.clone())).map(|(key, value)| (key, *value));
    let is_forward = random.below(2) == 0;
    let (direction, expected): (_, Vec<_>) = if is_forward {
        (Direction::Forward, range.take(limit).collect())
    } else {
        (Direction::Backward, range.rev().take(limit).collect())
    };
    let mut found = Vec::new();
    let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
    tree.scan(lower, upper, direction, |key, value| {
        found.push((key.to_vec(), value));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .expect("scan");
    assert!(found.iter().map(|(key, value)| (key, *value)).eq(expected), "scans differ");
}

fn check(seed: u64) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let file = Arc::new(MemoryFile::default());
    let mut tree = LongTree::create(Arc::clone(&file), small()).expect("create");
    let mut model = BTreeMap::new();
    for step in 0..2500 {
        let (key, value) = (key(&mut random), random.next());
        match random.below(20) {
            0..=3 => assert_eq!(tree.get(&key).expect("get"), model.get(&key).copied()),
            4..=6 => assert_eq!(tree.remove(&key).expect("remove"), model.remove(&key)),
            7..=9 => {
                let present = model.get(&key).copied();
                assert_eq!(tree.insert_if_absent(&key, value).expect("insert"), present);
                model.entry(key).or_insert(value);
            }
            10 => scan_like_the_model(&mut random, &tree, &model),
            11 => {
                let keys: Vec<Vec<u8>> = (0..30).map(|_| self::key(&mut random)).collect();
                let mut values = vec![Some(1); keys.len()];
                tree.get_many(&keys, &mut values).expect("get");
                assert!(values.into_iter().eq(keys.iter().map(|key| model.get(key).copied())));
            }
            12 if step % 5 == 0 => {
                tree.checkpoint(step).expect("checkpoint");
                drop(tree);
                tree = LongTree::open(Arc::clone(&file), small()).expect("open");
                assert_eq!(tree.position(), step);
            }
            _ => assert_eq!(tree.put(&key, value).expect("put"), model.insert(key, value)),
        }
    }
    tree.inspect().expect("its pages are in order");
    let mut all = Vec::new();
    tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, |key, value| {
        all.push((key.to_vec(), value));
        ControlFlow::Continue(())
    })
    .expect("scan");
    assert!(model.len() > 100 && all.into_iter().eq(model));
}

#[test]
fn long_keys_are_those_of_the_model() {
    let soak = std::env::var("UPLAKE_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for seed in 0..soak {
        let checked = std::panic::catch_unwind(|| check(seed));
        assert!(checked.is_ok(), "seed {seed}");
    }
}

#[test]
fn keys_over_the_limit_are_refused() {
    let tree = LongTree::create(MemoryFile::default(), small()).expect("create");
    let key = vec![7; MAX_LONG_KEY_BYTES + 1];
    let refused = tree.put(&key, 1);
    assert!(matches!(refused, Err(TreeError::KeyTooLong { found: 65_537, limit: 65_536 })));
    assert_eq!(tree.insert_if_absent(&key[1..], 1).expect("the longest"), None);
    assert_eq!((tree.get(&key).expect("get"), tree.get(&key[1..]).expect("get")), (None, Some(1)));
    assert_eq!(tree.remove(&key).expect("remove"), None);
}

/// Threads make the same layers at once, with checkpoints between: every key is there once, and
/// layers made after a checkpoint was opened are not those of keys in it.
#[test]
fn threads_share_layers() {
    let file = Arc::new(MemoryFile::default());
    let key = |n: u64| {
        let mut key = vec![b'a' + (n % 7) as u8; 1000 + (n % 3) as usize * 480];
        key.extend(n.to_be_bytes());
        key
    };
    let mut done = 0;
    for round in 1..=4 {
        let tree = if round == 1 {
            LongTree::create(Arc::clone(&file), Options::default())
        } else {
            LongTree::open(Arc::clone(&file), Options::default())
        };
        let tree = tree.expect("open");
        for n in 0..done {
            assert_eq!(tree.get(&key(n)).expect("get"), Some(n), "round {round}");
        }
        let end = round * 1500;
        let winners: usize = std::thread::scope(|scope| {
            let insert = |thread: u64| {
                let absent = |n: &u64| {
                    let n = if thread.is_multiple_of(2) { *n } else { done + end - 1 - *n };
                    tree.insert_if_absent(&key(n), n).expect("insert").is_none()
                };
                (done..end).filter(absent).count()
            };
            let threads: Vec<_> =
                (0..4).map(|thread| scope.spawn(move || insert(thread))).collect();
            for _ in 0..3 {
                tree.checkpoint(round).expect("checkpoint");
            }
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(winners as u64, end - done, "each key is new to one thread");
        // Some of the next round's layers are in no checkpoint.
        tree.checkpoint(round).expect("checkpoint");
        for n in end..end + 200 {
            tree.put(&[&key(n)[..], &[n as u8; 600]].concat(), n).expect("put");
        }
        done = end;
    }
}

#[test]
fn other_trees_are_refused() {
    for layers in [None, Some(0), Some(1 << 63), Some(u64::MAX)] {
        let file = Arc::new(MemoryFile::default());
        let tree = Tree::<[u8]>::create(Arc::clone(&file), small()).expect("create");
        layers.map(|layers| tree.put(&[2][..], layers).expect("put"));
        tree.checkpoint(1).expect("checkpoint");
        let opened = LongTree::open(file, small());
        assert!(matches!(opened, Err(TreeError::Corrupt { .. })), "{layers:?}");
    }
}

#[test]
fn forged_entries_are_errors_or_answers() {
    let mut random = Random(11);
    for _ in 0..300 {
        let file = Arc::new(MemoryFile::default());
        let tree = Tree::<[u8]>::create(Arc::clone(&file), small()).expect("create");
        tree.put(&[2][..], [1, 2, 9][random.below(3)]).expect("put");
        for _ in 0..40 {
            let layer = [0, 1, 2, 3, u64::MAX - 1, u64::MAX][random.below(6)];
            let mut entry = if random.below(2) == 0 { vec![0] } else { vec![1] };
            if entry[0] == 1 {
                entry.extend(layer.to_be_bytes());
            }
            entry.extend(vec![b'x'; [0, 3, 479, 480, 481][random.below(5)]]);
            entry.extend(vec![[0, 1, 2][random.below(3)]; random.below(2)]);
            let value = [0, 1, 2, 3, 4, u64::MAX - 1, u64::MAX][random.below(7)];
            tree.put(&entry[..entry.len() - random.below(2)], value).expect("put");
        }
        tree.checkpoint(1).expect("checkpoint");
        drop(tree);
        let tree = LongTree::open(file, small()).expect("open");
        let (mut shown, mut errors) = (0, 0);
        for length in [0, 3, 480, 481, 960, 1440, 2000, 65_536] {
            let key = vec![b'x'; length];
            let results = [tree.get(&key), tree.put(&key, 1), tree.remove(&key)];
            for result in results {
                let is_corrupt = matches!(result, Err(TreeError::Corrupt { .. }));
                assert!(result.is_ok() || is_corrupt);
                errors += usize::from(is_corrupt);
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let _ = tree.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, _| {
                assert!(key.len() <= MAX_LONG_KEY_BYTES + 480);
                shown += 1;
                ControlFlow::Continue(())
            });
        }
        assert!(shown + errors > 0);
    }
}
