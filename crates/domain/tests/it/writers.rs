//! Several writers of one domain, crashes and lost answers: every key gets one id, for everybody.
//!
//! A seed decides everything: which writer takes the next step (steps are the store's requests),
//! which of them crashes, and what the store does: answer, fail, do it and lose the answer, or do
//! it later. `UPLAKE_SOAK=n` runs n times as many seeds.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use uplake_domain::{Domain, DomainError, Options};
use uplake_testkit::random::Random;

const SEEDS: Range<u64> = 0..150;
const PROCESSES: usize = 3;
/// Threads of a process.
const TASKS: usize = 2;
const BATCHES: u64 = 4;
const KEYS: u64 = 60;
/// More means that somebody waits for ever.
const MAX_STEPS: usize = 200_000;

/// A store whose every request takes two steps, and goes wrong as a seed says.
struct Sim {
    inner: InMemory,
    random: Mutex<Random>,
    /// Share of requests that go wrong.
    faults: Mutex<f64>,
    /// Puts that will happen, long after their writer was told that they failed.
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sim")
    }
}

impl fmt::Display for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sim")
    }
}

fn failed() -> Error {
    Error::Generic { store: "Sim", source: "the answer was lost".into() }
}

/// Gives the others a turn.
async fn step() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

impl Sim {
    fn new(seed: u64) -> Self {
        let random = Mutex::new(Random::new(seed));
        Self { inner: InMemory::new(), random, faults: Mutex::new(0.15), late: Mutex::default() }
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.lock().expect("one thread").below(limit)
    }

    fn goes_wrong(&self) -> bool {
        let share = *self.faults.lock().expect("one thread");
        self.random.lock().expect("one thread").chance(share)
    }

    fn put_late(&self) {
        let mut late = self.late.lock().expect("one thread");
        if !late.is_empty() {
            let at = self.below(late.len() as u64) as usize;
            let (path, payload, options) = late.swap_remove(at);
            // It may find its name taken; nobody hears of it.
            let _ = self.inner.put_opts(&path, payload, options).now_or_never();
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for Sim {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        step().await;
        let fault = if self.goes_wrong() { 1 + self.below(3) } else { 0 };
        match fault {
            1 => return Err(failed()),
            2 => {
                let mut late = self.late.lock().expect("one thread");
                late.push((location.clone(), payload, options));
                return Err(failed());
            }
            _ => {}
        }
        let put = self.inner.put_opts(location, payload, options).await;
        step().await;
        if fault == 3 { Err(failed()) } else { put }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        step().await;
        if self.goes_wrong() {
            return Err(failed());
        }
        let got = self.inner.get_opts(location, options).await;
        step().await;
        got
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.goes_wrong() {
            return stream::once(async { Err(failed()) }).boxed();
        }
        let listing = self.inner.list(prefix);
        stream::once(step()).filter_map(|()| async { None }).chain(listing).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// All pairs that anybody was ever given.
#[derive(Default)]
struct Given {
    ids: HashMap<String, u32>,
    keys: HashMap<u32, String>,
}

impl Given {
    fn note(&mut self, key: &str, id: u32) {
        let known = *self.ids.entry(key.to_owned()).or_insert(id);
        assert_eq!(known, id, "{key} has two ids");
        let owner = self.keys.entry(id).or_insert_with(|| key.to_owned());
        assert_eq!(owner, key, "id {id} has two keys");
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct World {
    sim: Arc<Sim>,
    given: Arc<Mutex<Given>>,
    folder: tempfile::TempDir,
    /// Tasks by process; those of one process crash together.
    processes: Vec<Vec<Task>>,
    restarts: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sim = Arc::new(Sim::new(seed));
        let processes = (0..PROCESSES).map(|_| Vec::new()).collect();
        let mut world = Self { sim, given: Arc::default(), folder, processes, restarts: 0 };
        (0..PROCESSES).for_each(|process| world.start(process));
        world
    }

    /// One process of three has no local folder.
    fn local(&self, process: usize) -> Option<PathBuf> {
        (process > 0).then(|| self.folder.path().join(process.to_string()))
    }

    fn start(&mut self, process: usize) {
        self.restarts += 1;
        let mut options = Options::new(self.restarts);
        // Keys of the last process stay in the file, or are read from it late.
        options.memory_bytes =
            (process == 2).then_some(if self.restarts.is_multiple_of(2) { 0 } else { 1 << 30 });
        let opened: Arc<tokio::sync::OnceCell<Arc<Domain>>> = Arc::default();
        let tasks = (0..TASKS).map(|_| -> Task {
            let (sim, given) = (Arc::clone(&self.sim), Arc::clone(&self.given));
            let (opened, local, options) =
                (Arc::clone(&opened), self.local(process), options.clone());
            Box::pin(async move {
                let domain = loop {
                    let store = Arc::clone(&sim) as Arc<dyn ObjectStore>;
                    let root = Path::from("lake");
                    let create =
                        || Domain::create(store, &root, "users", local.clone(), options.clone());
                    match opened.get_or_try_init(create).await {
                        Ok(domain) => break Arc::clone(domain),
                        Err(error) => allowed(&error),
                    }
                };
                for _ in 0..BATCHES {
                    work(&sim, &domain, &given).await;
                }
            })
        });
        self.processes[process] = tasks.collect();
    }

    fn run(&mut self) {
        for _ in 0..MAX_STEPS {
            let live: Vec<usize> =
                (0..PROCESSES).filter(|&p| !self.processes[p].is_empty()).collect();
            if live.is_empty() {
                return;
            }
            let process = live[self.sim.below(live.len() as u64) as usize];
            match self.sim.below(1000) {
                0..=3 => {
                    self.processes[process].clear();
                    self.start(process);
                    continue;
                }
                4..=40 => self.sim.put_late(),
                _ => {}
            }
            let tasks = &mut self.processes[process];
            let at = self.sim.below(tasks.len() as u64) as usize;
            let mut context = Context::from_waker(Waker::noop());
            if tasks[at].as_mut().poll(&mut context).is_ready() {
                drop(tasks.swap_remove(at));
            }
        }
        panic!("after {MAX_STEPS} steps somebody still waits");
    }
}

/// What a fault of the store may look like.
fn allowed(error: &DomainError) {
    assert!(matches!(error, DomainError::Store { .. }), "{error}");
}

/// One thing that a process does.
async fn work(sim: &Sim, domain: &Domain, given: &Mutex<Given>) {
    let done = match sim.below(13) {
        0 => domain.compact().await.map(drop),
        1 => domain.vacuum(i64::MAX).await.map(drop),
        2 => domain.refresh().await,
        3 => domain.rebuild(None).await,
        4 => {
            domain.checkpoint().await;
            Ok(())
        }
        5 => domain.check().await.map(|report| assert_eq!(report.problems, [""; 0])),
        _ => {
            let count = 1 + sim.below(10);
            let keys: Vec<String> = (0..count).map(|_| format!("k{}", sim.below(KEYS))).collect();
            let mut ids = Vec::new();
            let done = domain.encode(&keys, &mut ids).await;
            if done.is_ok() {
                let mut given = given.lock().expect("one thread");
                keys.iter().zip(ids).for_each(|(key, id)| given.note(key, id));
            }
            done
        }
    };
    if let Err(error) = done {
        allowed(&error);
    }
}

/// A future of a store without faults, to its end.
fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    for _ in 0..MAX_STEPS {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("somebody waits for ever");
}

fn check(seed: u64) -> (usize, u32) {
    let mut world = World::new(seed);
    world.run();
    *world.sim.faults.lock().expect("one thread") = 0.0;
    let store = || Arc::clone(&world.sim) as Arc<dyn ObjectStore>;
    let given = world.given.lock().expect("one thread");
    let mut position = 0;
    for process in 0..PROCESSES {
        let root = Path::from("lake");
        let open = Domain::open(store(), &root, "users", world.local(process), Options::new(1000));
        let domain = finish(open).expect("the log is whole");
        for (key, id) in &given.ids {
            assert_eq!(domain.id_of(key.as_bytes()), Some(*id), "{key}");
            assert_eq!(domain.key_of(*id).as_deref(), Some(key.as_bytes()));
        }
        let report = finish(domain.check()).expect("check");
        assert_eq!(report.problems, [""; 0]);
        position = finish(domain.describe()).expect("describe").position;
    }
    (given.ids.len(), position)
}

#[test]
fn every_key_gets_one_id_whatever_crashes() {
    let soak = uplake_testkit::soak();
    let (mut keys, mut runs) = (0, 0);
    for seed in SEEDS.start..SEEDS.end * soak {
        let checked = std::panic::catch_unwind(|| check(seed));
        let (some_keys, some_runs) = checked.unwrap_or_else(|_| panic!("seed {seed}"));
        (keys, runs) = (keys + some_keys, runs + some_runs);
    }
    // The test must not become one of nothing.
    let seeds = (SEEDS.end * soak) as usize;
    assert!(keys > 20 * seeds && runs as usize > 5 * seeds, "{keys} keys, {runs} runs");
}
