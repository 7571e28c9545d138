//! A disk that fails at every single operation: short writes, lost writes, torn sectors, errors.
//!
//! Whatever happens, opening gives the last checkpoint that was reported, or the one that was under
//! way, whole and with its position; and the tree goes on from there.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};

use uplake_btree::{Direction, MemoryFile, Options, PAGE_BYTES, PageFile, Tree, TreeError};

mod random;
use random::Random;

const SECTOR: usize = 512;
/// Keys of the tree: 41 pages, more than the frames.
const KEYS: u64 = 9000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The machine stops: this operation and all later ones fail.
    Crash,
    /// This operation fails, the next ones do not.
    Once,
}

struct Disk {
    /// What survives for sure.
    synced: Vec<u8>,
    /// What the running system sees.
    seen: Vec<u8>,
    /// Writes since the last sync; `None` cuts the file.
    pending: Vec<(u64, Option<Vec<u8>>)>,
    operations: usize,
    fail_at: Option<(usize, Fault)>,
    random: Random,
}

struct SimulatedFile(Mutex<Disk>);

impl SimulatedFile {
    fn new(bytes: Vec<u8>, fail_at: Option<(usize, Fault)>, seed: u64) -> Self {
        Self(Mutex::new(Disk {
            synced: bytes.clone(),
            seen: bytes,
            pending: Vec::new(),
            operations: 0,
            fail_at,
            random: Random(seed * 2 + 1),
        }))
    }

    /// What is on the disk after the machine stopped: any of the writes since the last sync, any
    /// sectors of them.
    fn after_crash(&self) -> Vec<u8> {
        let mut disk = self.0.lock().expect("lock");
        let disk = &mut *disk;
        let mut bytes = disk.synced.clone();
        let style = disk.random.below(4);
        for (offset, written) in std::mem::take(&mut disk.pending) {
            let is_kept = match style {
                0 => false,
                1 => true,
                _ => disk.random.below(2) == 0,
            };
            if !is_kept {
                continue;
            }
            let Some(written) = written else {
                bytes.resize(offset as usize, 0);
                continue;
            };
            for (i, sector) in written.chunks(SECTOR).enumerate() {
                if style == 3 && disk.random.below(3) == 0 {
                    continue;
                }
                let at = offset as usize + i * SECTOR;
                write(&mut bytes, at, sector);
            }
        }
        bytes
    }
}

fn write(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Disk {
    /// Whether this operation fails.
    fn fails(&mut self) -> bool {
        self.operations += 1;
        match self.fail_at {
            Some((at, Fault::Crash)) => self.operations > at,
            Some((at, Fault::Once)) => self.operations == at + 1,
            None => false,
        }
    }
}

impl PageFile for SimulatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().expect("lock");
        let seen = disk.seen.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(seen.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().expect("lock");
        let is_failing = disk.fails();
        // A failing write has still written a part.
        let len = if is_failing { disk.random.below(bytes.len() + 1) } else { bytes.len() };
        write(&mut disk.seen, offset as usize, &bytes[..len]);
        disk.pending.push((offset, Some(bytes[..len].to_vec())));
        if is_failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.0.lock().expect("lock");
        if disk.fails() {
            return Err(io::Error::other("sync failed"));
        }
        disk.pending.clear();
        disk.synced = disk.seen.clone();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().expect("lock").seen.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.0.lock().expect("lock");
        if disk.fails() {
            return Err(io::Error::other("cutting failed"));
        }
        disk.seen.resize(len as usize, 0);
        disk.pending.push((len, None));
        Ok(())
    }
}

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
    let file = Arc::new(SimulatedFile::new(bytes.to_vec(), fail_at, seed));
    let tree = Tree::open(Arc::clone(&file), options()).expect("open");
    let mut random = Random(seed + 11);
    let (saved, next) = run(&tree, model.clone(), &mut random, fail_at.map(|fault| fault.1));
    let operations = file.0.lock().expect("lock").operations;
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
    let file = Arc::new(SimulatedFile::new(start().0, None, 5));
    let tree = Tree::<u64>::create(Arc::clone(&file), options()).expect("create");
    tree.put(&1, 1).expect("put");
    drop(tree);
    let opened = Tree::<u64>::open(MemoryFile::new(file.after_crash()), options());
    assert!(matches!(opened.map(|_| ()), Err(TreeError::NoCheckpoint)));
}
