//! A disk that fails at every single operation: short writes, lost writes, torn sectors, errors.
//!
//! Whatever happens, opening gives the last checkpoint that was reported, or the one that was under
//! way, whole and with its position; and the tree goes on from there.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use uplake_btree::{Direction, MemoryFile, Options, PAGE_BYTES, Tree, TreeError};

use crate::disk::{Fault, Fuse, SimulatedFile};
use crate::random::Random;

/// Keys of the tree: 41 pages, more than the frames.
const KEYS: u64 = 9000;

type Model = BTreeMap<u64, u64>;

fn options() -> Options {
    Options { pool_bytes: 32 * PAGE_BYTES, max_pages: 1 << 12, shards: None }
}

fn contents(tree: &Tree<u64>) -> Result<Model, TreeError> {
    let mut found = Model::new();
    tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, |key, value| {
        found.insert(*key, value);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A tree as it was when position `at` was saved.
struct Saved {
    position: u64,
    model: Model,
}

/// Operations until the first error of the tree, or to the end. Gives the last checkpoint that was
/// reported and the one under way.
fn run(
    tree: &Tree<u64>,
    mut model: Model,
    random: &mut Random,
    fault: Option<Fault>,
) -> (Saved, Option<Saved>) {
    let mut saved = Saved { position: tree.position(), model: model.clone() };
    for step in 0..600u64 {
        let key = random.next() % KEYS;
        let value = random.next();
        let result = if random.below(3) == 0 {
            tree.remove(&key).map(|old| assert_eq!(old, model.remove(&key)))
        } else {
            tree.put(&key, value).map(|old| assert_eq!(old, model.insert(key, value)))
        };
        match (result, fault) {
            (Ok(()), _) => {}
            (Err(TreeError::File { .. }), Some(Fault::Crash)) => return (saved, None),
            // What failed has not happened.
            (Err(TreeError::File { .. }), Some(Fault::Once)) => {
                assert_eq!(tree.get(&key).expect("get"), model.get(&key).copied());
            }
            (Err(error), _) => panic!("{error:?}"),
        }
        if step % 200 == 199 {
            let position = saved.position + 1;
            let next = Saved { position, model: model.clone() };
            match tree.checkpoint(position) {
                Ok(()) => saved = next,
                Err(_) if fault == Some(Fault::Crash) => return (saved, Some(next)),
                Err(TreeError::File { doing: "synchronizing", .. }) if fault.is_some() => {
                    // Nobody knows; the tree must not write on.
                    let later = tree.checkpoint(position + 1);
                    assert!(matches!(later, Err(TreeError::Poisoned)), "{later:?}");
                    return (saved, Some(next));
                }
                Err(TreeError::File { .. }) if fault.is_some() => {
                    assert_eq!(tree.position(), saved.position);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert_eq!(contents(tree).expect("scan"), model);
    (saved, None)
}

/// A file with a checkpoint of a full tree.
fn start() -> (Vec<u8>, Model) {
    let file = Arc::new(MemoryFile::default());
    let mut tree = Tree::<u64>::create(Arc::clone(&file), options()).expect("create");
    let model: Model = (0..KEYS).map(|key| (key, key)).collect();
    tree.bulk_load(model.iter().map(|(k, v)| (*k, *v))).expect("load");
    tree.checkpoint(1).expect("checkpoint");
    (file.to_vec(), model)
}

fn check(bytes: &[u8], model: &Model, fail_at: Option<(usize, Fault)>, seed: u64) -> usize {
    let fuse = Fuse::new(fail_at);
    let file = Arc::new(SimulatedFile::new(bytes.to_vec(), &fuse, seed));
    let tree = match Tree::open(Arc::clone(&file), options()) {
        Ok(tree) => tree,
        Err(TreeError::File { .. }) if fail_at.is_some_and(|(at, _)| at == 0) => return 0,
        Err(error) => panic!("{error:?}"),
    };
    let mut random = Random(seed + 11);
    let (saved, next) = run(&tree, model.clone(), &mut random, fail_at.map(|fault| fault.1));
    let operations = fuse.operations();
    drop(tree);
    let after = Arc::new(MemoryFile::new(file.after_crash()));
    let context = format!("fault {fail_at:?} seed {seed}");
    let tree = Tree::<u64>::open(Arc::clone(&after), options())
        .unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let expected = match next {
        Some(next) if tree.position() == next.position => next,
        _ => saved,
    };
    assert_eq!(tree.position(), expected.position, "{context}");
    let found = contents(&tree).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(found == expected.model, "{context}: wrong contents");
    tree.inspect().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    // Life goes on, also through the next restart.
    let (saved, _) = run(&tree, found, &mut random, None);
    drop(tree);
    let tree = Tree::<u64>::open(after, options()).expect("open");
    assert!(contents(&tree).expect("scan") == saved.model, "{context}: wrong afterwards");
    operations
}

/// `UPLAKE_SOAK=100` runs that many seeds.
fn seeds() -> u64 {
    std::env::var("UPLAKE_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn every_operation(fault: Fault) {
    let (bytes, model) = start();
    for seed in 0..seeds() {
        let operations = check(&bytes, &model, None, seed + 1);
        assert!(operations > 100, "{operations}: nothing was written");
        for at in 0..operations {
            check(&bytes, &model, Some((at, fault)), seed + 1);
        }
    }
}

#[test]
fn a_crash_at_any_write_or_sync_gives_the_last_checkpoint() {
    every_operation(Fault::Crash);
}

#[test]
fn an_error_at_any_write_or_sync_changes_nothing_that_was_reported() {
    every_operation(Fault::Once);
}

#[test]
fn an_interrupted_creation_holds_no_checkpoint() {
    let file = Arc::new(SimulatedFile::new(start().0, &Fuse::new(None), 5));
    let tree = Tree::<u64>::create(Arc::clone(&file), options()).expect("create");
    tree.put(&1, 1).expect("put");
    drop(tree);
    let opened = Tree::<u64>::open(MemoryFile::new(file.after_crash()), options());
    assert!(matches!(opened.map(|_| ()), Err(TreeError::NoCheckpoint)));
}
