//! Random operations on the tree and on a `BTreeMap`: they never differ.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use uplake_btree::{Direction, Key, MemoryFile, Options, PAGE_BYTES, Tree, TreeError};

use crate::random::Random;

/// 40 frames: a tree of a few hundred pages is evicted all the time.
fn small() -> Options {
    Options { pool_bytes: 40 * PAGE_BYTES, max_pages: 1 << 16, shards: None }
}

/// A key of one of the shapes that are hard: numbers, long common prefixes, zeros, empty, long.
fn bytes_key(random: &mut Random, shape: usize, space: u64) -> Vec<u8> {
    let number = random.next() % space;
    match shape {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("user_{:027x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes(),
        2 => {
            let mut state = Random(number + 1);
            (0..state.below(6)).map(|_| [0, 1, 255][state.below(3)]).collect()
        }
        _ => {
            let mut key = vec![b'x'; (number % 512) as usize];
            key.extend(number.to_be_bytes());
            key.truncate(512);
            key
        }
    }
}

struct Run<K: Key + ?Sized> {
    tree: Tree<K>,
    model: BTreeMap<Vec<u8>, u64>,
}

/// Calls `with` with the key these bytes mean.
trait Keyed {
    fn with<R>(bytes: &[u8], f: impl FnOnce(&Self) -> R) -> R;
    fn bytes(&self) -> Vec<u8>;
}

impl Keyed for [u8] {
    fn with<R>(bytes: &[u8], f: impl FnOnce(&Self) -> R) -> R {
        f(bytes)
    }
    fn bytes(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Keyed for u64 {
    fn with<R>(bytes: &[u8], f: impl FnOnce(&Self) -> R) -> R {
        f(&u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
    }
    fn bytes(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }
}

impl<K: Key + Keyed + ?Sized> Run<K> {
    fn one(&mut self, random: &mut Random, key: &[u8], weight: u64) {
        let value = random.next();
        let (tree, model) = (&self.tree, &mut self.model);
        K::with(key, |k| match random.next() % 10 {
            0..=2 => assert_eq!(tree.get(k).expect("get"), model.get(key).copied()),
            3 => {
                let present = model.get(key).copied();
                assert_eq!(tree.insert_if_absent(k, value).expect("insert"), present);
                model.entry(key.to_vec()).or_insert(value);
            }
            n if n < 3 + weight => {
                assert_eq!(tree.put(k, value).expect("put"), model.insert(key.to_vec(), value));
            }
            _ => assert_eq!(tree.remove(k).expect("remove"), model.remove(key)),
        });
    }

    fn scan(&self, random: &mut Random, a: &[u8], b: &[u8]) {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let bound = |random: &mut Random, key: &[u8]| match random.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key.to_vec()),
            _ => Bound::Excluded(key.to_vec()),
        };
        let (lower, upper) = (bound(random, a), bound(random, b));
        let is_empty =
            a == b && !matches!((&lower, &upper), (Bound::Included(_), Bound::Included(_)));
        if is_empty {
            return;
        }
        let limit = if random.below(2) == 0 { usize::MAX } else { random.below(300) + 1 };
        let range = self.model.range((lower.clone(), upper.clone())).map(|(k, v)| (k.clone(), *v));
        let is_forward = random.below(2) == 0;
        let (direction, expected): (_, Vec<_>) = if is_forward {
            (Direction::Forward, range.take(limit).collect())
        } else {
            (Direction::Backward, range.rev().take(limit).collect())
        };
        let mut found = Vec::new();
        let mut visit = |key: &K, value| {
            found.push((key.bytes(), value));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        with_bound(&lower, |lower| {
            with_bound(&upper, |upper| self.tree.scan(lower, upper, direction, &mut visit))
        })
        .expect("scan");
        assert_eq!(found, expected);
    }

    fn batch(&mut self, random: &mut Random, keys: Vec<Vec<u8>>)
    where
        K: ToOwned,
        K::Owned: std::borrow::Borrow<K>,
    {
        let owned: Vec<K::Owned> = keys.iter().map(|key| K::with(key, K::to_owned)).collect();
        let mut values = vec![None; keys.len()];
        self.tree.get_many(&owned, &mut values).expect("get_many");
        let expected: Vec<_> = keys.iter().map(|key| self.model.get(key).copied()).collect();
        assert_eq!(values, expected);
        let mut sorted = keys;
        sorted.sort();
        sorted.dedup();
        let entries: Vec<(K::Owned, u64)> =
            sorted.iter().map(|key| (K::with(key, K::to_owned), random.next())).collect();
        let expected: Vec<_> = sorted.iter().map(|key| self.model.get(key).copied()).collect();
        let mut previous = vec![Some(1); entries.len()];
        if random.below(2) == 0 {
            self.tree.put_sorted(&entries, &mut previous).expect("put_sorted");
            let new = sorted.into_iter().zip(entries.iter().map(|entry| entry.1));
            self.model.extend(new);
        } else {
            self.tree.insert_sorted_if_absent(&entries, &mut previous).expect("insert_sorted");
            for (key, entry) in sorted.into_iter().zip(entries) {
                self.model.entry(key).or_insert(entry.1);
            }
        }
        assert_eq!(previous, expected);
    }

    fn same(&self) {
        let mut found = Vec::new();
        let visit = |key: &K, value| {
            found.push((key.bytes(), value));
            ControlFlow::Continue(())
        };
        self.tree
            .scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, visit)
            .expect("scan");
        assert!(found.into_iter().eq(self.model.iter().map(|(k, v)| (k.clone(), *v))));
        let stats = self.tree.inspect().expect("a whole tree");
        assert_eq!(stats.entries, self.model.len() as u64);
    }
}

fn with_bound<K: Keyed + ?Sized, R>(bound: &Bound<Vec<u8>>, f: impl FnOnce(Bound<&K>) -> R) -> R {
    match bound {
        Bound::Unbounded => f(Bound::Unbounded),
        Bound::Included(key) => K::with(key, |key| f(Bound::Included(key))),
        Bound::Excluded(key) => K::with(key, |key| f(Bound::Excluded(key))),
    }
}

fn check<K>(seed: u64, steps: usize, key: impl Fn(&mut Random) -> Vec<u8>)
where
    K: Key + Keyed + ToOwned + ?Sized,
    K::Owned: std::borrow::Borrow<K>,
{
    let file = std::sync::Arc::new(MemoryFile::default());
    let tree = Tree::<K>::create(std::sync::Arc::clone(&file), small()).expect("create");
    let mut run = Run { tree, model: BTreeMap::new() };
    run.tree.checkpoint(0).expect("checkpoint");
    let mut saved = BTreeMap::new();
    let mut random = Random(seed);
    for step in 0..steps {
        // Grows, shrinks, grows again.
        let weight = [5, 5, 1, 3][step * 4 / steps];
        let one = key(&mut random);
        run.one(&mut random, &one, weight);
        if step % 97 == 0 {
            let two = key(&mut random);
            run.scan(&mut random, &one, &two);
        }
        if step % 211 == 0 {
            let keys = (0..random.below(60)).map(|_| key(&mut random)).collect();
            run.batch(&mut random, keys);
        }
        if step % 5003 == 0 {
            run.same();
            let position = step as u64;
            run.tree.checkpoint(position).expect("checkpoint");
            saved = run.model.clone();
            if random.below(2) == 0 {
                run.tree = Tree::open(std::sync::Arc::clone(&file), small()).expect("open");
                assert_eq!(run.tree.position(), position);
            }
        }
    }
    run.same();
    // What was not part of a checkpoint is gone.
    drop(run.tree);
    run.tree = Tree::open(file, small()).expect("open");
    run.model = saved;
    run.same();
}

#[test]
fn numbers_behave_like_a_map() {
    for (seed, space) in [(1, 2000), (2, 20_000), (3, u64::MAX)] {
        check::<u64>(seed, 60_000, |random| (random.next() % space).to_be_bytes().to_vec());
    }
}

#[test]
fn bytes_behave_like_a_map() {
    for shape in 0..4 {
        let space = if shape == 3 { 3000 } else { 20_000 };
        check::<[u8]>(10 + shape as u64, 40_000, |random| bytes_key(random, shape, space));
    }
}

#[test]
fn mixed_shapes_behave_like_a_map() {
    check::<[u8]>(77, 40_000, |random| {
        let shape = random.below(4);
        bytes_key(random, shape, 5000)
    });
}

#[test]
fn keys_in_order_leave_full_pages_both_ways() {
    for is_ascending in [true, false] {
        let tree = Tree::<u64>::create(MemoryFile::default(), Options::default()).expect("create");
        for i in 0..200_000u64 {
            let key = if is_ascending { i } else { 200_000 - i };
            tree.put(&key, i).expect("put");
        }
        let stats = tree.inspect().expect("a whole tree");
        let least = if is_ascending { 0.93 } else { 0.6 };
        assert!(stats.fill[0] > least, "{is_ascending} {:?}", stats.fill);
    }
}

#[test]
fn bulk_load_equals_inserting() {
    for count in [0usize, 1, 2, 300, 5000, 40_000] {
        for shape in 0..4 {
            let mut random = Random(count as u64 + 5);
            let mut model = BTreeMap::new();
            while model.len() < count.min(if shape >= 2 { 300 } else { count }) {
                model.insert(bytes_key(&mut random, shape, 1 << 40), random.next());
            }
            let mut tree = Tree::<[u8]>::create(MemoryFile::default(), small()).expect("create");
            let loaded = tree.bulk_load(model.iter().map(|(k, v)| (k.as_slice(), *v)));
            assert_eq!(loaded.expect("load"), model.len() as u64);
            let mut run = Run { tree, model };
            run.same();
            for _ in 0..2000 {
                let key = bytes_key(&mut random, shape, 1 << 40);
                run.one(&mut random, &key, 4);
            }
            run.same();
        }
    }
}

#[test]
fn wrong_input_is_refused_before_anything_is_written() {
    let mut tree = Tree::<[u8]>::create(MemoryFile::default(), small()).expect("create");
    let long = vec![1; 513];
    assert!(matches!(tree.put(&long, 1), Err(TreeError::KeyTooLong { found: 513, limit: 512 })));
    let entries = [(&b"b"[..], 1), (b"a", 2)];
    let unsorted = tree.put_sorted(&entries, &mut [None; 2]);
    assert!(matches!(unsorted, Err(TreeError::Unsorted { position: 1 })));
    let many = (0..100_000u64).map(|i| (i.to_be_bytes(), i)).chain([([0; 8], 0)]);
    let keys: Vec<([u8; 8], u64)> = many.collect();
    let unsorted = tree.bulk_load(keys.iter().map(|(key, value)| (key.as_slice(), *value)));
    assert!(matches!(unsorted, Err(TreeError::Unsorted { position: 100_000 })));
    assert!(tree.is_empty());
    let stats = tree.inspect().expect("a whole tree");
    assert_eq!(stats.pages, [1]);
    tree.put(b"a", 1).expect("put");
    let full = tree.bulk_load([(&b"b"[..], 1)]);
    assert!(matches!(full, Err(TreeError::NotEmpty)));
}

#[test]
fn the_file_does_not_grow_by_checkpoints() {
    let tree = Tree::<u64>::create(MemoryFile::default(), small()).expect("create");
    let mut random = Random(6);
    let mut blocks = Vec::new();
    for round in 0..40u64 {
        for _ in 0..3000 {
            tree.put(&(random.next() % 20_000), round).expect("put");
        }
        tree.checkpoint(round).expect("checkpoint");
        blocks.push(tree.inspect().expect("a whole tree").blocks);
    }
    let pages: u64 = tree.inspect().expect("a whole tree").pages.iter().sum();
    assert!(u64::from(blocks[39]) < 3 * pages, "{pages} pages, blocks {blocks:?}");
    assert!(blocks[39] <= blocks[20] + 20, "{blocks:?}");
    for key in 0..20_000u64 {
        tree.remove(&key).expect("remove");
    }
    for position in 0..3 {
        tree.checkpoint(position).expect("checkpoint");
    }
    let stats = tree.inspect().expect("a whole tree");
    assert!(stats.height == 1 && stats.entries == 0 && stats.blocks < 20, "{stats:?}");
}

#[test]
fn a_pool_without_room_says_so() {
    let file = MemoryFile::default();
    let tiny = Options { pool_bytes: 31 * PAGE_BYTES, ..small() };
    assert!(matches!(Tree::<u64>::create(file, tiny), Err(TreeError::Options { .. })));
    let few = Options { max_pages: 8, ..small() };
    let tree = Tree::<u64>::create(MemoryFile::default(), few).expect("create");
    let error = (0..100_000u64).find_map(|key| tree.put(&key, key).err());
    assert!(matches!(error, Some(TreeError::TooManyPages { limit: 8 })), "{error:?}");
    // The tree is as it was, and goes on.
    let stats = tree.inspect().expect("a whole tree");
    assert_eq!(tree.get(&(stats.entries - 1)).expect("get"), Some(stats.entries - 1));
    assert_eq!(tree.remove(&0).expect("remove"), Some(0));
}

/// Leaves of eight keys that are nearly as long as keys get, with common beginnings of any length:
/// two of them gave each other an entry for ever, because none had room for the new one after it.
#[test]
fn neighbours_of_few_long_keys_make_room() {
    for seed in 1..400 {
        let mut random = Random(seed);
        let tree = Tree::<[u8]>::create(MemoryFile::default(), small()).expect("create");
        let mut model = BTreeMap::new();
        for value in 0..120 {
            let mut key = vec![random.below(2) as u8];
            if key[0] == 1 {
                key.extend([0, 1, 2, 3, u64::MAX - 1, u64::MAX][random.below(6)].to_be_bytes());
            }
            key.extend(vec![b'x'; [0, 3, 479, 480, 500][random.below(5)]]);
            key.extend(vec![random.below(3) as u8; random.below(2)]);
            assert_eq!(tree.put(&key, value).expect("put"), model.insert(key, value));
        }
        for (key, value) in model {
            assert_eq!(tree.get(&key).expect("get"), Some(value), "seed {seed}");
        }
        tree.inspect().expect("in order");
    }
}
