//! Writes that were acknowledged survive whatever the disk does; what was not appears whole or not.
//!
//! The tree's file and its log are on one simulated disk that fails at every single operation.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use uplake_btree::{
    Direction, DurableTree, MemoryFile, Options, PAGE_BYTES, Ticket, Tree, TreeError,
};

use crate::disk::{Fault, Fuse, SimulatedFile};
use crate::random::Random;

/// Keys of the tree: 30 pages of 30 entries, about as many as the frames.
const KEYS: u64 = 900;
const STEPS: usize = 40;

type Model = BTreeMap<Vec<u8>, u64>;

fn options() -> Options {
    Options { pool_bytes: 32 * PAGE_BYTES, max_pages: 1 << 12, shards: None }
}

fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(40 + number as usize % 100, b'.');
    key
}

/// The files of one tree, before and after a crash.
struct Machine {
    fuse: Arc<Fuse>,
    file: Arc<SimulatedFile>,
    log: Arc<SimulatedFile>,
}

impl Machine {
    fn new((file, log): (Vec<u8>, Vec<u8>), fail_at: Option<(usize, Fault)>, seed: u64) -> Self {
        let fuse = Fuse::new(fail_at);
        let file = Arc::new(SimulatedFile::new(file, &fuse, seed));
        let log = Arc::new(SimulatedFile::new(log, &fuse, seed + 77));
        Self { fuse, file, log }
    }

    fn open(&self) -> Result<DurableTree<[u8]>, TreeError> {
        DurableTree::open(Arc::clone(&self.file), Arc::clone(&self.log), options())
    }

    fn after_crash(&self, fail_at: Option<(usize, Fault)>, seed: u64) -> Self {
        Self::new((self.file.after_crash(), self.log.after_crash()), fail_at, seed)
    }
}

fn contents(tree: &DurableTree<[u8]>) -> Model {
    let mut found = Model::new();
    tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, |key, value| {
        found.insert(key.to_vec(), value);
        ControlFlow::Continue(())
    })
    .expect("scan");
    found
}

/// What the tree may be after a crash: as it was when the last write was acknowledged, or after any
/// of those behind it.
struct Possible {
    states: Vec<Model>,
}

impl Possible {
    fn now(&self) -> &Model {
        self.states.last().expect("there is always one")
    }

    fn acknowledge(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }
}

/// One random write; the model follows if the tree took it.
fn step(
    tree: &DurableTree<[u8]>,
    random: &mut Random,
    possible: &mut Possible,
) -> Result<Ticket, TreeError> {
    let key = key(random.next() % KEYS);
    let value = random.next();
    let mut next = possible.now().clone();
    let (expected, started) = match random.below(4) {
        0 => (next.remove(&key), tree.start_remove(&key)),
        1 => {
            let old = next.get(&key).copied();
            next.entry(key.clone()).or_insert(value);
            (old, tree.start_insert_if_absent(&key, value))
        }
        _ => (next.insert(key.clone(), value), tree.start_put(&key, value)),
    };
    let (found, ticket) = started?;
    assert_eq!(found, expected);
    possible.states.push(next);
    Ok(ticket)
}

/// Writes and checkpoints, to the end or until nothing is taken any more.
fn run(
    tree: &DurableTree<[u8]>,
    possible: &mut Possible,
    random: &mut Random,
    fault: Option<Fault>,
) {
    for number in 0..STEPS {
        let mut last = None;
        for _ in 0..1 + random.below(4) {
            match step(tree, random, possible) {
                Ok(ticket) => last = Some(ticket),
                // What could not be written has not happened.
                Err(TreeError::File { .. }) if fault.is_some() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let waited = last.map_or(Ok(()), |ticket| tree.wait(ticket));
        match waited {
            Ok(()) => possible.acknowledge(),
            Err(TreeError::File { .. }) if fault.is_some() => return refuses(tree, last),
            Err(error) => panic!("{error:?}"),
        }
        if number % 15 == 14 {
            match tree.checkpoint(number as u64) {
                Ok(()) => {}
                Err(TreeError::File { doing: "synchronizing", .. }) if fault.is_some() => {
                    return refuses(tree, None);
                }
                Err(TreeError::File { .. }) if fault.is_some() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    // A machine that has stopped may not have noticed yet.
    if fault != Some(Fault::Crash) {
        assert!(contents(tree) == *possible.now());
    }
}

/// Once it is unknown what is durable, nothing is acknowledged, even if the disk is well again.
fn refuses(tree: &DurableTree<[u8]>, waited: Option<Ticket>) {
    let poisoned = |result: Result<(), TreeError>| {
        assert!(matches!(result, Err(TreeError::Poisoned)), "{result:?}");
    };
    if let Some(ticket) = waited {
        poisoned(tree.wait(ticket));
    }
    poisoned(tree.put(&key(1), 1).map(|_| ()));
    poisoned(tree.remove(&key(1)).map(|_| ()));
    let checkpoint = tree.checkpoint(9);
    assert!(matches!(checkpoint, Err(TreeError::Poisoned | TreeError::File { .. })));
    poisoned(tree.put(&key(1), 1).map(|_| ()));
}

/// A tree with a checkpoint and some batches behind it.
fn start() -> ((Vec<u8>, Vec<u8>), Model) {
    let (file, log) = (Arc::new(MemoryFile::default()), Arc::new(MemoryFile::default()));
    let tree = DurableTree::<[u8]>::create(Arc::clone(&file), Arc::clone(&log), options());
    let tree = tree.expect("create");
    let put = |numbers: std::ops::Range<u64>| {
        let tickets = numbers.map(|i| tree.start_put(&key(i), i).expect("put").1);
        tree.wait(tickets.max().expect("some")).expect("wait");
    };
    put(0..KEYS / 2);
    tree.checkpoint(5).expect("checkpoint");
    put(KEYS / 2..KEYS - 200);
    put(KEYS - 200..KEYS - 100);
    let model = contents(&tree);
    assert_eq!(tree.log_stats().syncs, 3);
    drop(tree);
    ((file.to_vec(), log.to_vec()), model)
}

fn check(start: &((Vec<u8>, Vec<u8>), Model), fail_at: Option<(usize, Fault)>, seed: u64) -> usize {
    let context = format!("fault {fail_at:?} seed {seed}");
    let machine = Machine::new(start.0.clone(), fail_at, seed);
    let mut random = Random(seed + 11);
    let mut possible = Possible { states: vec![start.1.clone()] };
    match machine.open() {
        Ok(tree) => {
            assert!(contents(&tree) == start.1, "{context}");
            run(&tree, &mut possible, &mut random, fail_at.map(|fault| fault.1));
        }
        Err(TreeError::File { .. }) if fail_at.is_some() => {}
        Err(error) => panic!("{context}: {error:?}"),
    }
    let operations = machine.fuse.operations();
    // The machine may stop once more while it opens the tree.
    let again = machine.after_crash(Some((random.below(4), Fault::Crash)), seed);
    let _ = again.open();
    let after = again.after_crash(None, seed);
    let tree = after.open().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let found = contents(&tree);
    assert!(possible.states.contains(&found), "{context}: wrong contents");
    tree.inspect().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let mut possible = Possible { states: vec![found] };
    run(&tree, &mut possible, &mut random, None);
    drop(tree);
    let tree = after.after_crash(None, seed);
    let tree = tree.open().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(contents(&tree) == *possible.now(), "{context}: wrong afterwards");
    operations
}

/// `UPLAKE_SOAK=100` runs that many seeds.
fn seeds() -> u64 {
    std::env::var("UPLAKE_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn every_operation(fault: Fault) {
    let start = start();
    for seed in 0..seeds() {
        let operations = check(&start, None, seed + 1);
        assert!(operations > 60, "{operations}: too little was written");
        for at in 0..operations {
            check(&start, Some((at, fault)), seed + 1);
        }
    }
}

#[test]
fn a_crash_at_any_write_or_sync_loses_nothing_acknowledged() {
    every_operation(Fault::Crash);
}

#[test]
fn an_error_at_any_write_or_sync_is_never_taken_for_success() {
    every_operation(Fault::Once);
}

#[test]
fn a_failed_sync_that_forgot_its_batch_does_not_cut_later_ones_off() {
    let (bytes, model) = start();
    for seed in 0..20 {
        // The tree's sync, the last batch and its sync; then the first put's write and its sync.
        let machine = Machine::new(bytes.clone(), Some((4, Fault::Once)), seed);
        let tree = machine.open().expect("open");
        let failed = tree.put(&key(0), 1000);
        assert!(matches!(failed, Err(TreeError::File { .. })), "{failed:?}");
        drop(tree);
        // The process starts again on the machine whose memory has the batch and whose disk may not.
        let tree = machine.open().expect("open");
        assert_eq!(tree.get(&key(0)).expect("get"), Some(1000));
        tree.put(&key(1), 1001).expect("put");
        drop(tree);
        let after = machine.after_crash(None, seed);
        let mut expected = model.clone();
        expected.extend([(key(0), 1000), (key(1), 1001)]);
        assert!(contents(&after.open().expect("open")) == expected, "seed {seed}");
    }
}

#[test]
fn damage_is_an_error_or_a_shorter_log_but_never_a_wrong_value() {
    let ((file, log), model) = start();
    let checkpoint =
        DurableTree::<[u8]>::open(MemoryFile::new(file.clone()), MemoryFile::default(), options());
    let checkpoint = contents(&checkpoint.expect("open"));
    let batches = (0..log.len()).step_by(PAGE_BYTES);
    let batches: Vec<usize> = batches.filter(|at| log[*at..].starts_with(b"uplkTLG")).collect();
    assert!(batches.len() >= 2 && batches[0] == 0, "{batches:?}");
    let mut random = Random(3);
    let (mut corrupt, mut short) = (0, 0);
    for round in 0..600 {
        let mut damaged = log.clone();
        let at = random.below(damaged.len());
        damaged[at] ^= 1 << random.below(8);
        let opened = DurableTree::<[u8]>::open(
            MemoryFile::new(file.clone()),
            MemoryFile::new(damaged),
            options(),
        );
        match opened {
            Ok(tree) => {
                let found = contents(&tree);
                let is_part = found.iter().all(|(key, value)| model.get(key) == Some(value));
                assert!(is_part && found.len() >= checkpoint.len(), "round {round} at {at}");
                short += usize::from(found.len() < model.len());
                // Damage before the last batch must not pass for the log's end.
                assert!(at >= batches[1] || found == model, "round {round} at {at}");
            }
            Err(TreeError::Corrupt { .. } | TreeError::Incompatible { .. }) => corrupt += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(corrupt > 50 && short > 20, "{corrupt} {short}");
}

#[test]
fn a_log_serves_only_the_checkpoint_it_goes_on_from() {
    let ((file, log), _) = start();
    let open = |file: &[u8], log: &[u8]| {
        let (file, log) = (MemoryFile::new(file.to_vec()), MemoryFile::new(log.to_vec()));
        DurableTree::<[u8]>::open(file, log, options())
    };
    // Another tree with as many checkpoints.
    let (file2, log2) = (Arc::new(MemoryFile::default()), Arc::new(MemoryFile::default()));
    let other = DurableTree::<[u8]>::create(Arc::clone(&file2), Arc::clone(&log2), options());
    let other = other.expect("create");
    other.put(b"other", 1).expect("put");
    let early = (file2.to_vec(), log2.to_vec());
    other.checkpoint(6).expect("checkpoint");
    other.put(b"another", 2).expect("put");
    let strange = open(&file, &log2.to_vec());
    assert!(matches!(strange, Err(TreeError::Corrupt { .. })));
    // The log of a later checkpoint, and that of an earlier one.
    let later = open(&early.0, &log);
    assert!(matches!(later, Err(TreeError::Corrupt { .. })));
    let found = open(&file2.to_vec(), &early.1).expect("open");
    assert_eq!(contents(&found), Model::from([(b"other".to_vec(), 1)]));
}

#[test]
fn keys_that_look_like_batches_are_keys() {
    let (file, log) = (Arc::new(MemoryFile::default()), Arc::new(MemoryFile::default()));
    let tree = DurableTree::<[u8]>::create(Arc::clone(&file), Arc::clone(&log), options());
    let tree = tree.expect("create");
    tree.put(b"anna", 1).expect("put");
    // A whole header with a higher number, at every place of a page in turn.
    let mut forged = log.to_vec()[..40].to_vec();
    forged[16] = 9;
    let checksum = crc32fast::hash(&forged[..36]).to_le_bytes();
    forged[36..].copy_from_slice(&checksum);
    let mut last = None;
    for i in 0..600u64 {
        let mut key = vec![b'x'; i as usize % 7];
        (0..9).for_each(|_| key.extend_from_slice(&forged));
        key.extend(i.to_be_bytes());
        last = Some(tree.start_put(&key, i).expect("put").1);
    }
    tree.wait(last.expect("some")).expect("wait");
    drop(tree);
    let mut torn = log.to_vec();
    let len = torn.len();
    torn[PAGE_BYTES + 50] ^= 1;
    assert!(len > 40 * PAGE_BYTES);
    let tree = DurableTree::<[u8]>::open(file, MemoryFile::new(torn), options()).expect("open");
    assert_eq!(contents(&tree), Model::from([(b"anna".to_vec(), 1)]));
}

#[test]
fn a_tree_of_numbers_is_durable_too_and_not_of_another_kind() {
    let (file, log) = (Arc::new(MemoryFile::default()), Arc::new(MemoryFile::default()));
    let tree = DurableTree::<u64>::create(Arc::clone(&file), Arc::clone(&log), options());
    let tree = tree.expect("create");
    for number in 0..2000 {
        tree.put(&number, number * 2).expect("put");
        if number % 3 == 0 {
            assert_eq!(tree.remove(&(number / 2)).expect("remove"), Some(number / 2 * 2));
            tree.put(&(number / 2), 7).expect("put");
        }
    }
    drop(tree);
    let tree = DurableTree::<u64>::open(Arc::clone(&file), Arc::clone(&log), options());
    let tree = tree.expect("open");
    assert_eq!(tree.len(), 2000);
    assert_eq!(tree.get(&1999).expect("get"), Some(3998));
    assert_eq!(tree.get(&0).expect("get"), Some(7));
    let wrong = DurableTree::<[u8]>::open(file, log, options()).map(|_| ());
    assert!(matches!(wrong, Err(TreeError::Incompatible { .. })), "{wrong:?}");
}

/// Threads write keys of their own and one they share; the machine stops somewhere. Every key has
/// the last value that was acknowledged, or one that was written later.
fn crowd(fail_at: Option<(usize, Fault)>, seed: u64) -> usize {
    const THREADS: u64 = 8;
    const EACH: u64 = 60;
    const OWN: u64 = 20;
    let machine = Machine::new(start().0, fail_at, seed);
    let Ok(tree) = machine.open() else { return 0 };
    let is_done = AtomicBool::new(false);
    // For each key of a thread: the value acknowledged last, and the last one tried.
    let written: Vec<Vec<(Option<u64>, u64)>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(SeqCst) && tree.checkpoint(3).is_ok() {
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let mut own = vec![(None, 0); OWN as usize];
                    for value in 1..=EACH {
                        let number = value % OWN;
                        let place = &mut own[number as usize];
                        place.1 = value;
                        if tree.put(&key(10_000 + thread * OWN + number), value).is_err() {
                            break;
                        }
                        place.0 = Some(value);
                        // What another has written comes back only when it is durable.
                        if tree.insert_if_absent(&key(5000 + value), thread).is_err() {
                            break;
                        }
                    }
                    own
                })
            })
            .collect();
        let own = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        is_done.store(true, SeqCst);
        own
    });
    drop(tree);
    let operations = machine.fuse.operations();
    let after = machine.after_crash(None, seed);
    let tree = after.open().unwrap_or_else(|error| panic!("{fail_at:?} seed {seed}: {error:?}"));
    tree.inspect().expect("a whole tree");
    for (thread, own) in (0..THREADS).zip(written) {
        for (number, (acknowledged, tried)) in (0..OWN).zip(own) {
            let found = tree.get(&key(10_000 + thread * OWN + number)).expect("get");
            let context = format!("{fail_at:?} seed {seed}: {found:?} {acknowledged:?} {tried}");
            assert!(found >= acknowledged && found.is_none_or(|found| found <= tried), "{context}");
            if let Some(value) = acknowledged.filter(|value| *value < tried) {
                assert!(tree.get(&key(5000 + value)).expect("get").is_some(), "{context}");
            }
        }
    }
    operations
}

#[test]
fn threads_lose_nothing_acknowledged_when_the_machine_stops() {
    for seed in 0..4 * seeds() {
        let operations = crowd(None, seed);
        for part in 1..6 {
            crowd(Some((operations * part / 6, Fault::Crash)), seed);
            crowd(Some((operations * part / 6 + 1, Fault::Once)), seed);
        }
    }
}

#[test]
fn threads_share_syncs() {
    // A sync that takes as long as it takes the others to come.
    let log = Arc::new(MemoryFile::default());
    let tree = DurableTree::<u64>::create(MemoryFile::default(), log, options()).expect("create");
    let tickets: Vec<Ticket> = (0..500).map(|i| tree.start_put(&i, i).expect("put").1).collect();
    std::thread::scope(|scope| {
        for ticket in tickets.chunks(50) {
            let tree = &tree;
            scope.spawn(move || ticket.iter().try_for_each(|ticket| tree.wait(*ticket)));
        }
    });
    assert_eq!(tree.log_stats().syncs, 1);
}

#[test]
fn an_interrupted_creation_holds_no_checkpoint_and_no_old_log() {
    let (bytes, _) = start();
    let whole = Machine::new(bytes.clone(), None, 1);
    let create = |machine: &Machine| {
        DurableTree::<[u8]>::create(Arc::clone(&machine.file), Arc::clone(&machine.log), options())
            .map(|_| ())
    };
    create(&whole).expect("create");
    for at in 0..whole.fuse.operations() {
        for seed in 0..8 {
            let machine = Machine::new(bytes.clone(), Some((at, Fault::Crash)), seed);
            let _ = create(&machine);
            let after = machine.after_crash(None, seed);
            match after.open() {
                // The tree that was to be replaced, before it was touched.
                Ok(tree) => assert!(tree.is_empty() || at < 2, "{at} seed {seed}"),
                Err(error) => assert!(matches!(error, TreeError::NoCheckpoint), "{error:?}"),
            }
            create(&after).expect("create");
            assert!(after.open().expect("open").is_empty());
        }
    }
    // A plain tree opens the file as well, as of the checkpoint.
    let tree = Tree::<[u8]>::open(MemoryFile::new(bytes.0), options()).expect("open");
    assert_eq!(tree.len(), KEYS / 2);
}
