//! A domain with a limit of memory: its keys are read late, page by page if they do not fit, and
//! whatever happens to the files meanwhile, an answer is right or an error that a refresh mends.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use tempfile::TempDir;
use uplake_domain::{Domain, DomainError, LocalState, Options};
use uplake_testkit::random::Random;

const UNLIMITED: Option<u64> = None;
/// Everything fits, and is read when it is asked for.
const ROOMY: Option<u64> = Some(1 << 30);
/// Nothing fits: keys stay in the file.
const TIGHT: Option<u64> = Some(0);

struct Place {
    store: Arc<dyn ObjectStore>,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let store = Arc::new(InMemory::new());
        Self { store, folder: tempfile::tempdir().expect("a folder") }
    }

    fn local(&self) -> PathBuf {
        self.folder.path().join("local")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.local().join(name)
    }

    async fn open(&self, writer: u128, memory_bytes: Option<u64>) -> Arc<Domain> {
        self.open_in(&self.local(), writer, memory_bytes).await
    }

    async fn open_in(&self, folder: &Path, writer: u128, limit: Option<u64>) -> Arc<Domain> {
        let (store, root) = (Arc::clone(&self.store), StorePath::default());
        let mut options = Options::new(writer);
        options.memory_bytes = limit;
        let local = Some(folder.to_owned());
        Domain::create(store, &root, "users", local, options).await.expect("open")
    }
}

/// Keys of the kinds that pages have: of one length, of several, longer than a page.
fn key(n: usize) -> Vec<u8> {
    match n % 1000 {
        17 => format!("{n}{}", "x".repeat(4000 + n % 300)).into_bytes(),
        18 => format!("{n}{}", "y".repeat(30_000 + n % 35_000)).into_bytes(),
        _ if (n / 1000).is_multiple_of(2) => format!("user_{n:011}").into_bytes(),
        _ => format!("u{n}").into_bytes(),
    }
}

fn keys(range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    range.map(key).collect()
}

async fn encode(domain: &Domain, keys: &[Vec<u8>]) -> Vec<u32> {
    let mut ids = Vec::new();
    domain.encode(keys, &mut ids).await.expect("encode");
    ids
}

/// Whether the domain answers at all: what it answers is compared with the model.
fn answers(domain: &Domain, known: &[Vec<u8>], asked: &[usize]) -> Result<(), DomainError> {
    for &id in asked {
        assert!(domain.try_key_of(id as u32)?.as_ref() == known.get(id), "id {id}");
        let expected = (id < known.len()).then_some(id as u32);
        assert_eq!(domain.try_id_of(known.get(id).map_or(b"nobody", Vec::as_slice))?, expected);
    }
    let ids: Vec<u32> = asked.iter().map(|id| *id as u32).collect();
    let mut at = 0;
    domain.try_keys_of(&ids, |key| {
        assert!(key == known.get(asked[at]).map(Vec::as_slice), "id {}", asked[at]);
        at += 1;
    })?;
    let mut batch: Vec<&[u8]> = Vec::new();
    batch.extend(asked.iter().map(|id| known.get(*id).map_or(&b"nobody"[..], Vec::as_slice)));
    let mut found = Vec::new();
    domain.try_lookup_many(&batch, &mut found)?;
    let expected = asked.iter().map(|id| (*id < known.len()).then_some(*id as u32));
    assert!(found.into_iter().eq(expected));
    Ok(())
}

#[tokio::test]
async fn keys_in_files_have_the_ids_they_have_in_memory() {
    let place = Place::new();
    let known = keys(0..40_000);
    {
        let users = place.open(1, UNLIMITED).await;
        for batch in known.chunks(9_000) {
            encode(&users, batch).await;
        }
        users.checkpoint().await;
    }
    for limit in [UNLIMITED, ROOMY, TIGHT, Some(600_000)] {
        let users = place.open(2, limit).await;
        let all: Vec<usize> = (0..known.len() + 3).collect();
        for asked in [&all[..3], &all[39_990..], &all[15_000..17_000], &all] {
            answers(&users, &known, asked).expect("files are whole");
        }
        assert!(encode(&users, &known).await.into_iter().eq(0..40_000));
        assert_eq!(users.check().await.expect("check").problems, [""; 0], "{limit:?}");
        let described = users.describe().await.expect("describe");
        assert_eq!((described.warning, described.keys), (None, 40_000));
        assert_eq!(described.is_paged, limit.is_some_and(|limit| limit < 1 << 30), "{limit:?}");
        if described.is_paged {
            let (memory, keys) = (described.table_bytes, described.key_bytes);
            assert!(memory < keys / 2, "{memory} bytes for {keys} of keys");
        }
    }
}

#[tokio::test]
async fn opening_with_a_checkpoint_reads_neither_keys_nor_index() {
    let place = Place::new();
    let known = keys(0..32_768 * 2);
    {
        let users = place.open(1, UNLIMITED).await;
        encode(&users, &known).await;
    }
    // 65,536 new keys were worth a checkpoint.
    let users = place.open(2, ROOMY).await;
    let described = users.describe().await.expect("describe");
    assert_eq!((described.index_bytes, described.keys), (0, 65_536));
    assert!(described.table_bytes < 64 << 10, "{} bytes", described.table_bytes);
    assert_eq!(users.try_id_of(&known[40_000]).expect("whole"), Some(40_000));
    let described = users.describe().await.expect("describe");
    assert!((1..64 << 10).contains(&described.index_bytes), "one shard");
    assert!(described.table_bytes < described.key_bytes / 2, "one segment");
}

#[tokio::test]
async fn a_byte_flipped_anywhere_is_an_error_that_a_refresh_mends() {
    let place = Place::new();
    let known: Vec<Vec<u8>> = [keys(0..16), vec![Vec::new()], keys(3_100..3_140)].concat();
    {
        let users = place.open(1, UNLIMITED).await;
        encode(&users, &known[..20]).await;
        encode(&users, &known[20..]).await;
        users.checkpoint().await;
    }
    let asked: Vec<usize> = (0..known.len() + 1).collect();
    for name in ["keys.log", "index"] {
        let whole = fs::read(place.file(name)).expect("the file");
        let other = if name == "index" { "keys.log" } else { "index" };
        let other_bytes = fs::read(place.file(other)).expect("the file");
        // The table of shards is 256 entries alike.
        let step = if name == "index" { 29 } else { 3 };
        for at in (0..whole.len()).step_by(step) {
            let mut wrong = whole.clone();
            wrong[at] ^= 1 << (at % 8);
            // Every second time the file ends there.
            wrong.truncate(if at % 2 == 0 { whole.len() } else { at });
            for limit in [UNLIMITED, ROOMY, TIGHT] {
                fs::write(place.file(name), &wrong).expect("flip");
                fs::write(place.file(other), &other_bytes).expect("as it was");
                let users = place.open(2, limit).await;
                let answered = answers(&users, &known, &asked);
                let is_local = |error: DomainError| matches!(error, DomainError::Local { .. });
                assert!(answered.map_or_else(is_local, |()| true), "{name} {at} {limit:?}");
                users.refresh().await.expect("refresh");
                answers(&users, &known, &asked).expect("mended");
                if at % 10 == 0 {
                    let problems = users.check().await.expect("check").problems;
                    assert_eq!(problems, [""; 0], "{name} {at} {limit:?}");
                }
            }
        }
    }
}

/// Batches, openings with any limit, checkpoints, rebuilds and damage in any order.
async fn any_course(seed: u64) {
    let mut random = Random::new(seed);
    let place = Place::new();
    let (mut known, mut ids): (Vec<Vec<u8>>, HashMap<Vec<u8>, u32>) = Default::default();
    let mut old_files: Vec<(String, Vec<u8>)> = Vec::new();
    for session in 0..12u128 {
        let limit = [UNLIMITED, ROOMY, TIGHT, Some(random.below(2_000_000))];
        let limit = limit[random.below(4) as usize];
        let users = place.open(session + 1, limit).await;
        // Somebody else's keys, which the files here do not have.
        let elsewhere = place.open_in(&place.folder.path().join("b"), 100 + session, TIGHT).await;
        for _ in 0..random.below(5) {
            let users = if random.below(4) == 0 { &elsewhere } else { &users };
            let first = random.below(known.len() as u64 + 10) as usize;
            let count = [1, 30, 2_000, 20_000][random.below(4) as usize];
            let batch = keys(first..first + count);
            let given = encode(users, &batch).await;
            for (key, id) in batch.into_iter().zip(given) {
                if id as usize == known.len() {
                    known.push(key.clone());
                    ids.insert(key.clone(), id);
                }
                assert_eq!(ids.get(&key), Some(&id), "seed {seed}");
            }
            match random.below(8) {
                0 => users.checkpoint().await,
                1 => users.rebuild(None).await.expect("rebuild"),
                2 => users.refresh().await.expect("refresh"),
                _ => {}
            }
        }
        users.refresh().await.expect("refresh");
        for _ in 0..3 {
            let count = [20, 3_000][random.below(2) as usize];
            let asked: Vec<usize> =
                (0..count).map(|_| random.below(known.len() as u64 + 2) as usize).collect();
            if let Err(error) = answers(&users, &known, &asked) {
                assert!(matches!(error, DomainError::Local { .. }), "seed {seed}: {error}");
                assert!(limit.is_some(), "seed {seed}: all was read when it was opened");
                users.refresh().await.expect("refresh");
                answers(&users, &known, &asked).expect("mended");
            }
            damage(&place, &mut random, &mut old_files);
        }
        if random.below(3) == 0 {
            users.rebuild(None).await.expect("rebuild");
            assert_eq!(users.check().await.expect("check").problems, [""; 0], "seed {seed}");
        }
    }
}

/// Sometimes harms the files below whoever has them open, or puts older ones in their place.
fn damage(place: &Place, random: &mut Random, old_files: &mut Vec<(String, Vec<u8>)>) {
    let name = ["keys.log", "index"][random.below(2) as usize];
    let Ok(mut bytes) = fs::read(place.file(name)) else { return };
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(12) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => bytes[at..].fill(0),
        3 => return fs::remove_file(place.file(name)).expect("remove"),
        4 => return old_files.push((name.to_owned(), bytes)),
        5 => match old_files.pop() {
            Some((name, bytes)) => return fs::write(place.file(&name), bytes).expect("write"),
            None => return,
        },
        _ => return,
    }
    fs::write(place.file(name), bytes).expect("write");
}

#[tokio::test]
async fn whatever_happens_to_the_files_answers_are_right() {
    let soak = std::env::var("UPLAKE_SOAK").ok().and_then(|text| text.parse().ok());
    for seed in 0..soak.unwrap_or(4) {
        any_course(seed).await;
    }
}

#[tokio::test]
async fn a_reader_keeps_its_answers_while_the_writer_starts_anew() {
    let place = Place::new();
    let known = keys(0..20_000);
    let writer = place.open(1, TIGHT).await;
    encode(&writer, &known).await;
    let reader = place.open(2, TIGHT).await;
    assert_eq!(reader.describe().await.expect("describe").local_state, LocalState::Reader);
    let asked: Vec<usize> = (0..known.len()).step_by(7).collect();
    answers(&reader, &known, &asked).expect("whole");
    writer.rebuild(None).await.expect("rebuild");
    answers(&reader, &known, &asked).expect("the file it has open is whole");
    answers(&writer, &known, &asked).expect("whole");
    let more = keys(20_000..40_000);
    assert!(encode(&reader, &more).await.into_iter().eq(20_000..40_000));
    assert!(encode(&writer, &more).await.into_iter().eq(20_000..40_000));
    for domain in [&reader, &writer] {
        assert_eq!(domain.check().await.expect("check").problems, [""; 0]);
    }
}
