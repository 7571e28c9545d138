//! Many threads: histories are linearizable, and the tree is whole afterwards.
//!
//! Every operation is recorded with the moments it began and ended. Operations on different keys do
//! not depend on each other, so a history is linearizable if that of every key is: there is an order
//! that respects time in which each operation returns what a plain variable would.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use uplake_btree::{Direction, MemoryFile, Options, PAGE_BYTES, Tree};

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    Put(u64),
    Insert(u64),
    Remove,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    began: u64,
    ended: u64,
    operation: Operation,
    returned: Option<u64>,
}

/// Whether some order of the events explains what they returned (Wing and Gong 1993). The search
/// keeps its own stack: a history of one key has thousands of events.
fn is_linearizable(events: &[Event], state: Option<u64>) -> bool {
    /// A place in the search: what came before is `done`.
    struct Place {
        first: usize,
        state: Option<u64>,
        /// Events that may come next, from the last to the first to try.
        next: Vec<usize>,
        /// The one that was taken.
        taken: Option<usize>,
    }
    let mut done = vec![false; events.len()];
    let mut seen: HashSet<(Vec<usize>, Option<u64>)> = HashSet::new();
    let mut enter = |done: &[bool], first: usize, state: Option<u64>| -> Option<Place> {
        // Only what began before the first of the rest has ended can come next.
        let pending = || (first..events.len()).filter(|i| !done[*i]);
        let horizon = pending().map(|i| events[i].ended).min().unwrap_or(u64::MAX);
        let mut next: Vec<usize> = pending().take_while(|i| events[*i].began <= horizon).collect();
        next.reverse();
        // Everything before `first` is done, so this and what is done behind it tell where we are.
        let ahead =
            (first + 1..events.len()).take_while(|i| events[*i].began <= events[first].ended);
        let place = std::iter::once(first).chain(ahead.filter(|i| done[*i])).collect();
        seen.insert((place, state)).then_some(Place { first, state, next, taken: None })
    };
    if events.is_empty() {
        return true;
    }
    let mut path: Vec<Place> = enter(&done, 0, state).into_iter().collect();
    while let Some(place) = path.last_mut() {
        if let Some(taken) = place.taken.take() {
            done[taken] = false;
        }
        let Some(i) = place.next.pop() else {
            path.pop();
            continue;
        };
        if events[i].returned != place.state {
            continue;
        }
        let after = match events[i].operation {
            Operation::Get => place.state,
            Operation::Put(value) => Some(value),
            Operation::Insert(value) => place.state.or(Some(value)),
            Operation::Remove => None,
        };
        done[i] = true;
        place.taken = Some(i);
        let mut first = place.first;
        while first < events.len() && done[first] {
            first += 1;
        }
        if first == events.len() {
            return true;
        }
        path.extend(enter(&done, first, after));
    }
    false
}

fn event(began: u64, ended: u64, operation: Operation, returned: Option<u64>) -> Event {
    Event { began, ended, operation, returned }
}

#[test]
fn the_checker_tells_right_histories_from_wrong_ones() {
    use Operation::{Get, Insert, Put, Remove};
    let right = [
        event(1, 6, Put(1), None),
        event(2, 3, Get, None),
        event(4, 5, Get, Some(1)),
        event(7, 10, Insert(2), Some(1)),
        event(8, 9, Remove, Some(1)),
    ];
    assert!(is_linearizable(&right[..3], None));
    // The insert saw 1, so it came before the removal, and both before this.
    assert!(is_linearizable(&right, None));
    let stale = [event(1, 2, Put(1), None), event(3, 4, Get, None)];
    assert!(!is_linearizable(&stale, None));
    let backwards = [event(1, 9, Put(1), None), event(2, 3, Get, Some(1)), event(4, 5, Get, None)];
    assert!(!is_linearizable(&backwards, None));
    let lost = [event(1, 4, Put(1), None), event(2, 5, Put(2), None)];
    assert!(!is_linearizable(&lost, None));
}

/// Key number `i`, so that neighbours are in one leaf and leaves hold few keys.
fn key(i: u64) -> Vec<u8> {
    let mut key = i.to_be_bytes().to_vec();
    key.resize(200, b'.');
    key
}

struct Setting {
    threads: u64,
    operations: u64,
    /// Keys that are recorded; as many more are only there to split and merge leaves.
    keys: u64,
    frames: usize,
}

fn check(setting: &Setting, seed: u64) {
    let options = Options {
        pool_bytes: setting.frames * PAGE_BYTES,
        max_pages: 1 << 14,
        shards: Some((setting.frames / 32).max(1)),
    };
    let file = Arc::new(MemoryFile::default());
    let tree = Tree::<[u8]>::create(Arc::clone(&file), options).expect("create");
    for i in (0..setting.keys * 64).step_by(2) {
        tree.put(&key(i), i).expect("put");
    }
    let (clock, is_done) = (AtomicU64::new(1), AtomicBool::new(false));
    let mut histories: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    std::thread::scope(|scope| {
        let (tree, clock, is_done) = (&tree, &clock, &is_done);
        let recorders: Vec<_> = (0..setting.threads)
            .map(|thread| scope.spawn(move || record(tree, clock, setting, seed * 1000 + thread)))
            .collect();
        let disturbers = [
            scope.spawn(move || churn(tree, is_done, setting, seed + 77)),
            scope.spawn(move || {
                let mut position = 0;
                while !is_done.load(SeqCst) {
                    position += 1;
                    tree.checkpoint(position).expect("checkpoint");
                    scan_all(tree, setting);
                }
            }),
        ];
        for recorder in recorders {
            for (key, event) in recorder.join().expect("a recorder") {
                histories.entry(key).or_default().push(event);
            }
        }
        is_done.store(true, SeqCst);
        disturbers.into_iter().for_each(|thread| thread.join().expect("a disturber"));
    });
    for (number, mut events) in histories {
        events.sort_by_key(|event| event.began);
        let i = number * 64;
        assert!(is_linearizable(&events, Some(i)), "seed {seed} key {i}: {events:?}");
    }
    tree.inspect().expect("a whole tree");
    tree.checkpoint(u64::MAX).expect("checkpoint");
    let found = contents(&tree);
    drop(tree);
    let tree = Tree::<[u8]>::open(file, options).expect("open");
    assert_eq!(contents(&tree), found);
}

fn contents(tree: &Tree<[u8]>) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, |key, value| {
        found.push((key.to_vec(), value));
        ControlFlow::Continue(())
    })
    .expect("scan");
    found
}

fn record(tree: &Tree<[u8]>, clock: &AtomicU64, setting: &Setting, seed: u64) -> Vec<(u64, Event)> {
    let mut random = Random(seed + 1);
    let mut events = Vec::new();
    for step in 0..setting.operations {
        let number = random.next() % setting.keys;
        let key = key(number * 64);
        let value = seed << 32 | step;
        let kind = random.below(6);
        let began = clock.fetch_add(1, SeqCst);
        let (operation, returned) = match kind {
            0 => (Operation::Get, tree.get(&key)),
            1 => {
                let mut values = [None; 1];
                tree.get_many(&[&key[..]], &mut values).expect("get_many");
                (Operation::Get, Ok(values[0]))
            }
            2 => (Operation::Put(value), tree.put(&key, value)),
            3 => (Operation::Insert(value), tree.insert_if_absent(&key, value)),
            4 => {
                let mut previous = [None; 1];
                tree.put_sorted(&[(&key[..], value)], &mut previous).expect("put_sorted");
                (Operation::Put(value), Ok(previous[0]))
            }
            _ => (Operation::Remove, tree.remove(&key)),
        };
        let ended = clock.fetch_add(1, SeqCst);
        let returned = returned.expect("an operation");
        events.push((number, Event { began, ended, operation, returned }));
    }
    events
}

/// Fills and empties the leaves between the recorded keys.
fn churn(tree: &Tree<[u8]>, is_done: &AtomicBool, setting: &Setting, seed: u64) {
    let mut random = Random(seed);
    while !is_done.load(SeqCst) {
        let start = random.next() % setting.keys * 64;
        let end = start + 64 * (1 + random.next() % 4);
        let is_filling = random.below(2) == 0;
        for i in (start..end).filter(|i| i % 64 != 0) {
            let key = key(i);
            if is_filling {
                tree.put(&key, i).expect("put");
            } else {
                tree.remove(&key).expect("remove");
            }
        }
    }
}

/// A scan is in order, and keys nobody touches are in it.
fn scan_all(tree: &Tree<[u8]>, setting: &Setting) {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut last: Option<Vec<u8>> = None;
        tree.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, _| {
            if let Some(last) = &last {
                assert_eq!(last.as_slice() < key, direction == Direction::Forward);
            }
            last = Some(key.to_vec());
            ControlFlow::Continue(())
        })
        .expect("scan");
        assert!(setting.keys > 0);
    }
}

/// `UPLAKE_SOAK=100` runs that many seeds.
fn seeds() -> u64 {
    std::env::var("UPLAKE_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn histories_are_linearizable_when_all_is_in_memory() {
    for seed in 0..seeds() {
        check(&Setting { threads: 4, operations: 6000, keys: 40, frames: 2000 }, seed);
    }
}

#[test]
fn histories_are_linearizable_while_pages_come_and_go() {
    for seed in 0..seeds() {
        check(&Setting { threads: 4, operations: 6000, keys: 40, frames: 40 }, seed + 500);
    }
}

#[test]
fn histories_are_linearizable_on_one_hot_leaf() {
    for seed in 0..seeds() {
        check(&Setting { threads: 6, operations: 3000, keys: 3, frames: 64 }, seed + 900);
    }
}

#[test]
fn no_key_is_lost_when_all_insert_at_once() {
    for frames in [64, 4000] {
        let options = Options { pool_bytes: frames * PAGE_BYTES, max_pages: 1 << 14, shards: None };
        let tree = Tree::<u64>::create(MemoryFile::default(), options).expect("create");
        const THREADS: u64 = 4;
        // Miri takes some 1000 times as long.
        const EACH: u64 = if cfg!(miri) { 300 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for i in 0..EACH {
                        // In order, interleaved: all threads want the same leaf.
                        let key = i * THREADS + thread;
                        assert_eq!(tree.insert_if_absent(&key, key).expect("insert"), None);
                    }
                });
            }
        });
        assert_eq!(tree.inspect().expect("a whole tree").entries, THREADS * EACH);
        for key in 0..THREADS * EACH {
            assert_eq!(tree.get(&key).expect("get"), Some(key));
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let key = i * THREADS + thread;
                        assert_eq!(tree.remove(&key).expect("remove"), Some(key));
                    }
                });
            }
        });
        let stats = tree.inspect().expect("a whole tree");
        assert_eq!(stats.entries, 0);
        assert!(stats.pages[0] < 8, "{stats:?}");
    }
}
