//! Reads through a store in bad weather, on simulated time.

#![allow(clippy::single_range_in_vec_init)] // a list of one range

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Faulty, SimClock, Weather, content};
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use uplake_objectio::{ByteSize, Clock, StorageOptions, Store};
use uplake_testkit::random::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn options() -> StorageOptions {
    StorageOptions {
        memory_cache: ByteSize(0),
        start_requests: 64,
        seed: Some(7),
        ..StorageOptions::default()
    }
}

fn open(weather: Weather, options: &StorageOptions) -> (SimClock, Arc<Faulty>, Arc<Store>) {
    let clock = SimClock::default();
    let faulty = Faulty::new(&clock, weather, 11);
    let inner: Arc<dyn ObjectStore> = Arc::<Faulty>::clone(&faulty);
    let store = Store::layered(inner, options, Arc::new(clock.clone())).expect("valid options");
    (clock, faulty, store)
}

fn big() -> Path {
    Path::from(format!("synthetic-{}", 2048 * MIB))
}

/// Simulated milliseconds and requests of one call.
fn cost(ranges: &[Range<u64>]) -> (u128, u64) {
    let (clock, faulty, store) = open(Weather::FAIR, &options());
    let bytes = clock.run(store.get_ranges(&big(), ranges)).expect("fair weather");
    for (range, bytes) in ranges.iter().zip(&bytes) {
        assert_eq!(bytes.len() as u64, range.end - range.start);
        assert_eq!(bytes[..16], content(range.start..range.start + 16));
    }
    (clock.now().as_millis(), faulty.requests())
}

#[test]
fn calls_cost_the_planned_requests_and_one_round_trip() {
    let every = |count: u64, len: u64, step: u64| {
        (0..count).map(|i| i * step..i * step + len).collect::<Vec<_>>()
    };
    // 20 ms for the first byte, then 15 ms per MiB at 70 MB/s.
    for (name, ranges, most_ms, requests) in [
        ("32 adjacent ranges", every(32, 8 * MIB, 8 * MIB), 82, 64),
        ("small gaps", every(1000, 64 * KIB, 128 * KIB), 52, 63),
        ("gaps of 256 KiB", every(1000, 64 * KIB, 320 * KIB), 185, 67),
        ("gaps of 1 MiB", every(1000, 64 * KIB, 1088 * KIB), 16 * 22, 1000),
        ("one long range", vec![3..3 + 256 * MIB], 82, 64),
    ] {
        let (ms, sent) = cost(&ranges);
        assert_eq!(sent, requests, "{name}: requests");
        assert!(ms <= most_ms, "{name}: {ms} ms");
    }
}

#[test]
fn every_kind_of_get_returns_the_same_bytes_as_the_store_below() {
    let options = StorageOptions { piece: ByteSize::kib(64), ..options() };
    let size = 300 * KIB + 7;
    let path = Path::from("a");
    let (clock, faulty, store) = open(Weather::FAIR, &options);
    clock.run(faulty.put_content("a", size));
    clock.run(faulty.put_content("empty", 0));
    for range in [
        None,
        Some(GetRange::Bounded(0..1)),
        Some(GetRange::Bounded(5..200 * KIB)),
        Some(GetRange::Bounded(size - 1..size + 100)),
        Some(GetRange::Bounded(10..10 * MIB)),
        Some(GetRange::Offset(0)),
        Some(GetRange::Offset(size - 1)),
        Some(GetRange::Suffix(1)),
        Some(GetRange::Suffix(100 * KIB)),
        Some(GetRange::Suffix(10 * MIB)),
    ] {
        let options = || GetOptions { range: range.clone(), ..GetOptions::default() };
        let ours = clock.run(store.get_opts(&path, options())).expect("a read");
        let theirs = clock.run(faulty.inner.get_opts(&path, options())).expect("a read");
        assert_eq!(ours.range, theirs.range, "{range:?}");
        assert_eq!(ours.meta, theirs.meta, "{range:?}");
        let ours = clock.run(ours.bytes()).expect("a body");
        assert!(ours == clock.run(theirs.bytes()).expect("a body"), "{range:?}");
    }
    assert!(clock.run(store.get(&Path::from("empty"))).is_ok_and(|got| got.range == (0..0)));
    assert_eq!(clock.run(store.head(&path)).expect("metadata").size, size);
    let beyond = [0..10, size - 3..size + 500 * KIB, 7..7];
    let bytes = clock.run(store.get_ranges(&path, &beyond)).expect("cut at the end");
    assert_eq!(bytes.iter().map(|part| part.len()).collect::<Vec<_>>(), [10, 3, 0]);
    for missing in [
        clock.run(store.get_range(&path, size..size + 1)),
        clock.run(store.get_range(&Path::from("b"), 0..1)),
    ] {
        let before = clock.now();
        assert!(missing.is_err());
        assert_eq!(clock.now(), before, "what is final is not tried again");
    }
}

#[test]
fn one_percent_of_slow_answers_does_not_reach_the_reader() {
    let quantile = |budget: f64| {
        let options = StorageOptions { hedge_budget: budget, ..options() };
        let (clock, faulty, store) = open(Weather::USUAL, &options);
        let path = big();
        let mut took: Vec<Duration> = clock.run(
            stream::iter(0..20_000u64)
                .map(|i| {
                    let (store, path, clock) = (&store, &path, &clock);
                    async move {
                        let begun = clock.now();
                        let at = i * 64 * KIB;
                        store.get_range(path, at..at + 64 * KIB).await.expect("an answer");
                        clock.now() - begun
                    }
                })
                .buffer_unordered(32)
                .collect(),
        );
        took.sort_unstable();
        let counts = store.counts();
        assert_eq!(faulty.requests(), 20_000 + counts.hedges);
        (took[took.len() * 999 / 1000].as_millis(), counts.hedges)
    };
    let (without, none) = quantile(0.0);
    let (with, hedges) = quantile(0.05);
    assert_eq!(none, 0);
    assert!(without > 700, "p99.9 without hedging: {without} ms");
    assert!(with <= 100, "p99.9 with hedging: {with} ms");
    assert!(hedges <= 1000 + 16, "{hedges} hedges for 20,000 reads");
}

#[test]
fn the_first_stalled_answer_costs_the_first_delay_and_not_a_timeout() {
    let (clock, faulty, store) = open(Weather { stall: 1.0, ..Weather::FAIR }, &options());
    let path = Path::from("synthetic-100");
    let reading = store.get_range(&path, 0..100);
    let turning = async {
        clock.sleep(Duration::from_millis(50)).await;
        faulty.weather.lock().stall = 0.0;
    };
    let (read, ()) = clock.run(futures::future::join(reading, turning));
    assert_eq!(read.expect("the hedge answers"), content(0..100));
    assert_eq!(clock.now().as_millis(), 220);
    assert_eq!((store.counts().hedges, store.counts().hedges_won), (1, 1));
}

#[test]
fn that_there_is_no_object_is_believed_of_whoever_answers_first() {
    let slow = Weather { tail: 1.0, tail_ms: 700.0..701.0, ..Weather::FAIR };
    let (clock, faulty, store) = open(slow, &options());
    let path = Path::from("missing");
    let turning = async {
        clock.sleep(Duration::from_millis(50)).await;
        faulty.weather.lock().tail = 0.0;
    };
    let (head, ()) = clock.run(futures::future::join(store.head(&path), turning));
    assert!(matches!(head, Err(object_store::Error::NotFound { .. })), "{head:?}");
    assert_eq!(clock.now().as_millis(), 220);
    assert_eq!((faulty.requests(), store.counts().hedges), (2, 1));
}

#[test]
fn without_hedges_a_stall_is_given_up_after_its_timeout() {
    let options = StorageOptions { hedge_budget: 0.0, ..options() };
    let (clock, faulty, store) = open(Weather { stall: 1.0, ..Weather::FAIR }, &options);
    let path = Path::from("synthetic-100");
    let reading = store.get_range(&path, 0..100);
    let turning = async {
        clock.sleep(Duration::from_millis(50)).await;
        faulty.weather.lock().stall = 0.0;
    };
    let (read, ()) = clock.run(futures::future::join(reading, turning));
    assert_eq!(read.expect("the second attempt answers"), content(0..100));
    let waited = clock.now().as_millis();
    assert!((3000..3050).contains(&waited), "{waited} ms");
    assert_eq!((store.counts().stalls, store.counts().retries), (1, 1));
}

#[test]
fn a_store_that_only_fails_gives_an_error_in_bounded_time() {
    for weather in [
        Weather { fail: 1.0, ..Weather::FAIR },
        Weather { short: 1.0, ..Weather::FAIR },
        Weather { long: 1.0, ..Weather::FAIR },
        Weather { cut: 1.0, ..Weather::FAIR },
        Weather { other: 1.0, ..Weather::FAIR },
        Weather { stall: 1.0, ..Weather::FAIR },
    ] {
        let (clock, faulty, store) = open(weather.clone(), &options());
        let read = clock.run(store.get_range(&Path::from("synthetic-5000"), 10..4000));
        assert!(read.is_err(), "{weather:?}");
        assert!(clock.now() < Duration::from_secs(150), "{weather:?}: {:?}", clock.now());
        assert_eq!(faulty.under_way.load(Ordering::Relaxed), 0, "{weather:?}");
    }
}

#[test]
fn a_hundred_thousand_faulted_reads_are_all_right() {
    // Small objects keep this in seconds; every fault is as likely for them.
    let options = StorageOptions {
        piece: ByteSize::kib(64),
        merge_gap: ByteSize::kib(2),
        bytes_under_way: ByteSize::kib(512),
        retries: 30,
        ..options()
    };
    let (clock, faulty, store) = open(Weather::FOUL, &options);
    let size = 256 * KIB;
    let path = Path::from(format!("synthetic-{size}"));
    let expected = content(0..size);
    let reads = clock.run(
        stream::iter(0..100_000u64)
            .map(|i| {
                let (store, path, expected) = (&store, &path, &expected);
                async move {
                    let mut random = Random::stream(5, i);
                    // Mostly small: what is tested is the number of reads.
                    let longest = if i % 500 == 0 { size } else { 2 * KIB };
                    let ranges: Vec<Range<u64>> = (0..1 + random.below(3))
                        .map(|_| {
                            let start = random.below(size);
                            start..(start + 1 + random.below(longest)).min(size)
                        })
                        .collect();
                    let parts = store.get_ranges(path, &ranges).await?;
                    for (range, part) in ranges.iter().zip(&parts) {
                        let right = &expected[range.start as usize..range.end as usize];
                        assert!(part == right, "read {i}: wrong bytes in {range:?}");
                    }
                    Ok::<_, object_store::Error>(1)
                }
            })
            .buffer_unordered(100)
            .try_fold(0, |sum, one| async move { Ok(sum + one) }),
    );
    assert_eq!(reads.expect("every read succeeds in the end"), 100_000);
    let counts = store.counts();
    assert!(counts.retries > 5_000 && counts.short_bodies > 1_000, "{counts}");
    assert!(counts.hedges * 20 <= counts.gets + 320, "{counts}");
    // 8 pieces of 64 KiB, or 100 small reads at most, and the hedges' own memory.
    assert!(faulty.most_under_way.load(Ordering::Relaxed) <= 8 + 16, "bounded memory");
    assert_eq!(faulty.under_way.load(Ordering::Relaxed), 0);
}

#[test]
fn dropping_a_read_drops_its_requests() {
    let (clock, faulty, store) = open(Weather::FAIR, &options());
    let path = big();
    let ranges = [0..100 * MIB];
    let reading = store.get_ranges(&path, &ranges);
    let timer = clock.sleep(Duration::from_millis(30));
    let either = clock.run(futures::future::select(reading, timer));
    assert_eq!(faulty.under_way.load(Ordering::Relaxed), 50);
    drop(either);
    assert_eq!(faulty.under_way.load(Ordering::Relaxed), 0);
}

#[test]
fn an_object_replaced_between_two_pieces_is_read_again() {
    let options = StorageOptions { piece: ByteSize::kib(64), ..options() };
    let (clock, faulty, store) = open(Weather { sigma: 0.5, ..Weather::FAIR }, &options);
    clock.run(faulty.put_content("a", 200 * KIB));
    let replacing = async {
        clock.sleep(Duration::from_millis(20)).await;
        faulty.inner.put(&Path::from("a"), vec![9u8; 200 << 10].into()).await.expect("a put");
    };
    let path = Path::from("a");
    let ranges = [0..200 * KIB];
    let (read, ()) = clock.run(futures::future::join(store.get_ranges(&path, &ranges), replacing));
    let read = read.expect("a read");
    assert!(read[0] == vec![9u8; 200 << 10] || read[0] == content(0..200 * KIB));
    assert_eq!(faulty.requests(), 8, "the first try met two versions");
}
