//! The cache's promises: fewer requests, never a wrong byte, never beyond its limits.

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::{fs, thread};

use crate::support::{Faulty, SimClock, Weather, content};
use futures::future::join_all;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use uplake_objectio::{ByteSize, Payer, RealClock, StorageOptions, Store, Warm, WarmOptions};
use uplake_testkit::random::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn memory(bytes: u64) -> StorageOptions {
    StorageOptions { memory_cache: ByteSize(bytes), seed: Some(1), ..StorageOptions::default() }
}

fn disk(folder: &FilePath, bytes: u64) -> StorageOptions {
    let disk_cache_path = Some(folder.to_owned());
    StorageOptions { disk_cache: ByteSize(bytes), disk_cache_path, ..memory(0) }
}

/// A store over memory with objects of checkable bytes.
async fn lake(objects: &[(&str, u64)]) -> Arc<InMemory> {
    let inner = Arc::new(InMemory::new());
    for (path, len) in objects {
        inner.put(&Path::from(*path), content(0..*len).into()).await.expect("a put");
    }
    inner
}

fn open(inner: &Arc<InMemory>, options: &StorageOptions) -> Arc<Store> {
    let inner: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(inner);
    Store::layered(inner, options, Arc::new(RealClock::default())).expect("valid options")
}

async fn read(store: &Store, path: &str, range: Range<u64>) {
    let bytes = store.get_range(&Path::from(path), range.clone()).await.expect("a read");
    assert!(bytes == content(range.clone()), "wrong bytes in {path} {range:?}");
}

fn folder_bytes(folder: &FilePath) -> u64 {
    let entries = fs::read_dir(folder).expect("the folder exists");
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

#[tokio::test]
async fn a_second_read_asks_for_nothing_and_an_overlapping_one_for_the_rest() {
    let inner = lake(&[("a.parquet", 10 * MIB)]).await;
    let store = open(&inner, &memory(64 * MIB));
    let cost = async |range: Range<u64>| {
        let before = store.counts();
        read(&store, "a.parquet", range).await;
        let spent = store.counts().since(&before);
        (spent.gets, spent.bytes_read, spent.bytes_from_memory)
    };
    assert_eq!(cost(MIB..3 * MIB).await, (1, 2 * MIB, 0));
    assert_eq!(cost(MIB..3 * MIB).await, (0, 0, 2 * MIB));
    assert_eq!(cost(MIB + 5..MIB + 9).await, (0, 0, 4));
    assert_eq!(cost(2 * MIB..4 * MIB).await, (1, MIB, MIB));
    assert_eq!(cost(0..5 * MIB).await, (2, 2 * MIB, 3 * MIB));
    let before = store.counts();
    let ranges = [0..10, 4 * MIB..4 * MIB + 10, 9 * MIB..9 * MIB + 10];
    let parts = store.get_ranges(&Path::from("a.parquet"), &ranges).await.expect("a read");
    assert!(parts.iter().zip(&ranges).all(|(part, range)| *part == content(range.clone())));
    assert_eq!(store.counts().since(&before).bytes_read, 10);
    // A footer, before and after the size is known.
    let suffix = || GetOptions { range: Some(GetRange::Suffix(8)), ..GetOptions::default() };
    for gets in [1, 0] {
        let before = store.counts();
        let got = store.get_opts(&Path::from("a.parquet"), suffix()).await.expect("a read");
        assert_eq!((got.range.clone(), got.meta.size), (10 * MIB - 8..10 * MIB, 10 * MIB));
        assert!(got.bytes().await.expect("bytes") == content(10 * MIB - 8..10 * MIB));
        assert_eq!(store.counts().since(&before).gets, gets);
    }
}

#[test]
fn readers_of_the_same_bytes_share_one_request() {
    let clock = SimClock::default();
    let faulty = Faulty::new(&clock, Weather::FAIR, 1);
    let inner: Arc<dyn ObjectStore> = Arc::<Faulty>::clone(&faulty);
    let store = Store::layered(inner, &memory(64 * MIB), Arc::new(clock.clone())).expect("valid");
    clock.run(faulty.put_content("a.parquet", MIB));
    let path = Path::from("a.parquet");
    let payers: Vec<Arc<Payer>> = (0..10).map(|_| Arc::default()).collect();
    let reads = payers
        .iter()
        .zip(0..)
        .map(|(payer, i)| Arc::clone(payer).pays_for(store.get_range(&path, i * KIB..100 * KIB)));
    let all = clock.run(join_all(reads));
    for (i, bytes) in all.into_iter().enumerate() {
        assert!(bytes.expect("a read") == content(i as u64 * KIB..100 * KIB));
    }
    assert_eq!((faulty.requests(), store.counts().reads_shared), (1, 9));
    // They pay for it together, whoever polled it.
    let paid: Vec<_> = payers.iter().map(|payer| payer.counts()).collect();
    let sum = |of: fn(&uplake_objectio::Counts) -> u64| paid.iter().map(of).sum::<u64>();
    assert_eq!((sum(|c| c.gets), sum(|c| c.bytes_read)), (1, 100 * KIB));
    for (counts, i) in paid.iter().zip(0..) {
        assert_eq!(counts.bytes_asked, (100 - i) * KIB);
        // All asked for 955 KiB.
        let share = 100 * KIB * (100 - i) / 955;
        assert!(counts.bytes_read.abs_diff(share) <= 1, "{i}: {counts}");
    }
    // The first reader goes away; the second is not left alone.
    let first = Box::pin(store.get_range(&path, 500 * KIB..600 * KIB));
    let second = store.get_range(&path, 500 * KIB..600 * KIB);
    let second = clock.run(async {
        let timer = uplake_objectio::Clock::sleep(&clock, std::time::Duration::from_millis(5));
        let first = futures::future::select(first, timer);
        let (first, second) = futures::future::join(first, second).await;
        drop(first);
        second
    });
    assert!(second.expect("a read") == content(500 * KIB..600 * KIB));
    assert_eq!(faulty.requests(), 2);
    // An error reaches everybody who waited, and nobody afterwards.
    faulty.weather.lock().fail = 1.0;
    let reads = (0..3).map(|_| store.get_range(&path, 700 * KIB..701 * KIB));
    assert!(clock.run(join_all(reads)).iter().all(Result::is_err));
    faulty.weather.lock().fail = 0.0;
    assert!(clock.run(store.get_range(&path, 700 * KIB..701 * KIB)).is_ok());
}

#[tokio::test]
async fn only_objects_that_never_change_are_kept() {
    let names =
        ["t/a.parquet", "t/_delta_log/0.checkpoint.parquet", "t/_delta_log/0.json", "x.toml"];
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (*name, 1000)).collect();
    let inner = lake(&objects).await;
    let store = open(&inner, &memory(64 * MIB));
    for (name, gets) in names.iter().zip([1, 2, 2, 2]) {
        let before = store.counts();
        read(&store, name, 0..100).await;
        read(&store, name, 0..100).await;
        assert_eq!(store.counts().since(&before).gets, gets, "{name}");
    }
}

#[tokio::test]
async fn what_is_written_through_the_store_is_read_as_written() {
    let inner = lake(&[("a.parquet", 1000), ("b.parquet", 500)]).await;
    let store = open(&inner, &memory(64 * MIB));
    let (a, b) = (Path::from("a.parquet"), Path::from("b.parquet"));
    read(&store, "a.parquet", 0..100).await;
    store.put(&a, vec![1; 1000].into()).await.expect("a put");
    assert_eq!(store.get_range(&a, 0..100).await.expect("a read"), vec![1; 100]);
    store.copy(&b, &a).await.expect("a copy");
    read(&store, "a.parquet", 0..100).await;
    store.delete(&a).await.expect("a delete");
    assert!(store.get_range(&a, 0..100).await.is_err());
    let mut upload = store.put_multipart(&b).await.expect("an upload");
    read(&store, "b.parquet", 0..100).await;
    upload.put_part(vec![2; 700].into()).await.expect("a part");
    upload.complete().await.expect("completed");
    assert_eq!(store.get_range(&b, 0..100).await.expect("a read"), vec![2; 100]);
    // Behind the store's back: noticed as soon as the store is asked for anything of the object.
    inner.put(&b, vec![3; 700].into()).await.expect("a put");
    let parts = store.get_ranges(&b, &[0..100, 600..700]).await.expect("a read");
    assert_eq!((parts[0].as_ref(), parts[1].as_ref()), (&[3u8; 100][..], &[3u8; 100][..]));
}

#[tokio::test]
async fn a_scan_does_not_push_out_what_is_used() {
    let inner = lake(&[("hot.parquet", 3 * MIB), ("cold.parquet", 40 * MIB)]).await;
    let store = open(&inner, &memory(8 * MIB));
    for _ in 0..2 {
        read(&store, "hot.parquet", 0..3 * MIB).await;
    }
    for start in 0..10 {
        read(&store, "cold.parquet", start * 4 * MIB..(start + 1) * 4 * MIB).await;
        let usage = store.cache_usage().expect("a cache");
        assert!(usage.memory_bytes <= usage.memory_limit, "{usage:?}");
    }
    let before = store.counts();
    read(&store, "hot.parquet", 0..3 * MIB).await;
    assert_eq!(store.counts().since(&before).gets, 0);
}

#[tokio::test]
async fn a_restart_keeps_the_disk_tier_and_its_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = lake(&[("a.parquet", 10 * MIB), ("b.parquet", 10 * MIB)]).await;
    let options = disk(folder.path(), 64 * MIB);
    let store = open(&inner, &options);
    for start in 0..10 {
        read(&store, "a.parquet", start * MIB..(start + 1) * MIB).await;
    }
    read(&store, "b.parquet", 77..5 * MIB).await;
    store.flush_cache().await;
    let used = store.cache_usage().expect("a cache").disk_bytes;
    drop(store);
    assert!(folder_bytes(folder.path()) <= used);
    let store = open(&inner, &options);
    for start in 0..10 {
        read(&store, "a.parquet", start * MIB + 3..(start + 1) * MIB - 3).await;
    }
    read(&store, "b.parquet", 100..5 * MIB).await;
    let counts = store.counts();
    assert_eq!((counts.gets, counts.bytes_missed), (0, 0), "{counts}");
    assert!(store.take_warnings().is_empty());
    // A crash leaves a segment without its index and half of a record.
    drop(store);
    for entry in fs::read_dir(folder.path()).expect("the folder").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|suffix| suffix == "idx") {
            fs::remove_file(&path).expect("removed");
        } else if path.extension().is_some_and(|suffix| suffix == "seg") {
            let len = entry.metadata().expect("a file").len();
            let file = fs::OpenOptions::new().write(true).open(&path).expect("a file");
            file.set_len(len - 1000).expect("cut");
        }
    }
    let store = open(&inner, &options);
    for start in 0..10 {
        read(&store, "a.parquet", start * MIB..(start + 1) * MIB).await;
    }
    let counts = store.counts();
    assert!(counts.bytes_from_disk >= 5 * MIB && counts.gets > 0, "{counts}");
}

#[tokio::test]
async fn flipped_bytes_are_misses_and_never_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = lake(&[("a.parquet", 12 * MIB)]).await;
    let options = disk(folder.path(), 64 * MIB);
    let store = open(&inner, &options);
    read(&store, "a.parquet", 0..12 * MIB).await;
    store.flush_cache().await;
    drop(store);
    let mut random = Random::new(5);
    for entry in fs::read_dir(folder.path()).expect("the folder").flatten() {
        if entry.path().extension().is_some_and(|suffix| suffix == "seg") {
            let mut bytes = fs::read(entry.path()).expect("a file");
            for _ in 0..3 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            fs::write(entry.path(), bytes).expect("written");
        }
    }
    let store = open(&inner, &options);
    for _ in 0..2 {
        for start in 0..12 {
            read(&store, "a.parquet", start * MIB..(start + 1) * MIB).await;
        }
    }
    let counts = store.counts();
    assert!(counts.cache_corrupt > 0 && counts.bytes_from_disk > 12 * MIB, "{counts}");
    store.flush_cache().await;
    let before = store.counts();
    read(&store, "a.parquet", 0..12 * MIB).await;
    let spent = store.counts().since(&before);
    assert_eq!((spent.gets, spent.cache_corrupt), (0, 0), "what was bad has been replaced");
}

#[tokio::test]
async fn random_reads_within_tight_limits_are_right_and_the_limits_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..6).map(|i| format!("{i}.parquet")).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 8 * MIB)).collect();
    let inner = lake(&objects).await;
    let options =
        StorageOptions { memory_cache: ByteSize::mib(2), ..disk(folder.path(), 16 * MIB) };
    let mut store = open(&inner, &options);
    let mut random = Random::new(99);
    let (mut from_disk, mut dropped) = (0, 0);
    for step in 0..600 {
        let name = &names[random.below(6) as usize];
        let ranges: Vec<Range<u64>> = (0..1 + random.below(4))
            .map(|_| {
                let start = random.below(8 * MIB - 1);
                let longest = if random.chance(0.2) { 3 * MIB } else { 100 * KIB };
                start..(start + 1 + random.below(longest)).min(8 * MIB)
            })
            .collect();
        let parts = store.get_ranges(&Path::from(name.as_str()), &ranges).await.expect("a read");
        for (range, part) in ranges.iter().zip(&parts) {
            assert!(*part == content(range.clone()), "step {step}: {name} {range:?}");
        }
        let usage = store.cache_usage().expect("a cache");
        assert!(usage.memory_bytes <= usage.memory_limit, "step {step}: {usage:?}");
        assert!(usage.disk_bytes <= usage.disk_limit, "step {step}: {usage:?}");
        if step % 20 == 0 {
            // Without writes under way: a file that goes and one that comes while the folder is being
            // listed would both be counted.
            store.flush_cache().await;
            assert!(folder_bytes(folder.path()) <= 16 * MIB, "step {step}");
        }
        if step % 150 == 149 {
            from_disk += store.counts().bytes_from_disk;
            dropped += store.counts().cache_dropped;
            drop(store);
            store = open(&inner, &options);
        }
    }
    assert!(from_disk > 10 * MIB, "{from_disk} bytes came from disk");
    assert_eq!(dropped, 0, "the queue never filled");
}

#[tokio::test]
async fn a_failing_disk_turns_the_tier_off_with_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = lake(&[("a.parquet", 40 * MIB)]).await;
    let store = open(&inner, &disk(&folder.path().join("cache"), 32 * MIB));
    read(&store, "a.parquet", 0..MIB).await;
    store.flush_cache().await;
    // No new segment can be made.
    fs::remove_dir_all(folder.path().join("cache")).expect("removed");
    for start in 0..40 {
        read(&store, "a.parquet", start * MIB..(start + 1) * MIB).await;
        store.flush_cache().await;
    }
    let warnings = store.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is off") && warnings[0].contains("No such file"), "{warnings:?}");
    // Where a folder cannot be made, or is used, the store opens without the tier.
    fs::write(folder.path().join("file"), "x").expect("written");
    let store = open(&inner, &disk(&folder.path().join("file"), 32 * MIB));
    read(&store, "a.parquet", 0..MIB).await;
    assert!(store.take_warnings()[0].contains("is not used"));
    let first = open(&inner, &disk(&folder.path().join("shared"), 32 * MIB));
    let second = open(&inner, &disk(&folder.path().join("shared"), 32 * MIB));
    assert!(second.take_warnings()[0].contains("another process uses it"));
    assert!(first.take_warnings().is_empty());
    read(&second, "a.parquet", 0..MIB).await;
}

#[tokio::test]
async fn warming_fills_up_to_the_limit_and_tells_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner =
        lake(&[("a.parquet", 10 * MIB), ("b.parquet", 10 * MIB), ("c.parquet", 10 * MIB)]).await;
    let store = open(&inner, &disk(folder.path(), 24 * MIB));
    let item = |name: &str, ranges| Warm { path: Path::from(name), ranges, size: None };
    let one = WarmOptions { at_once: 1, ..WarmOptions::default() };
    let items = vec![
        item("a.parquet", Some(vec![0..100, 9 * MIB..20 * MIB])),
        item("missing.parquet", None),
        item("log.json", None),
        item("b.parquet", None),
    ];
    let warmed = store.warm(items, one, |_| ()).await;
    assert_eq!((warmed.objects, warmed.failed), (4, 2), "{warmed:?}");
    assert_eq!(warmed.bytes_wanted, 100 + MIB + 10 * MIB);
    assert_eq!((warmed.bytes_fetched, warmed.bytes_kept), (100 + 11 * MIB, 100 + 11 * MIB));
    let before = store.counts();
    read(&store, "b.parquet", 0..10 * MIB).await;
    assert_eq!(store.counts().since(&before).gets, 0);
    let again = vec![item("a.parquet", None), item("c.parquet", None)];
    let warmed = store.warm(again, one, |_| ()).await;
    assert_eq!(warmed.bytes_wanted, 20 * MIB);
    assert!(warmed.bytes_there == 100 + MIB && warmed.bytes_without_room > 0, "{warmed:?}");
    assert_eq!(
        warmed.bytes_there + warmed.bytes_fetched + warmed.bytes_without_room,
        warmed.bytes_wanted
    );
    assert_eq!(warmed.bytes_kept, warmed.bytes_there + warmed.bytes_fetched, "{warmed:?}");
    let before = store.counts();
    read(&store, "b.parquet", 0..10 * MIB).await;
    assert_eq!(store.counts().since(&before).gets, 0, "nothing was pushed out");
    assert!(store.cache_usage().is_some_and(|usage| usage.disk_bytes <= usage.disk_limit));
}

#[test]
fn threads_share_a_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let inner = runtime.block_on(lake(&[("a.parquet", 8 * MIB)]));
    let options =
        StorageOptions { memory_cache: ByteSize::mib(2), ..disk(folder.path(), 16 * MIB) };
    let store = open(&inner, &options);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (store, runtime) = (&store, &runtime);
            scope.spawn(move || {
                let mut random = Random::stream(1, seed);
                for _ in 0..300 {
                    let start = random.below(8 * MIB - 300 * KIB);
                    let range = start..start + 1 + random.below(300 * KIB);
                    runtime.block_on(read(store, "a.parquet", range));
                }
            });
        }
    });
}
