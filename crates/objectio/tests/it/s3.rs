//! The whole stack over HTTP against the fault-injecting server.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use uplake_faulty_s3::{Address, Faults, Server, content};
use uplake_objectio::conformance::{self, Rounds};
use uplake_objectio::{ByteSize, StorageOptions, Store};
use uplake_testkit::random::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A server of `addresses` addresses behind one name, and settings to reach it.
async fn start(addresses: u8, faults: Faults) -> (Server, StorageOptions) {
    let server = Server::start(addresses, faults).await.expect("loopback addresses");
    let port = server.addresses()[0].port();
    let mut options = StorageOptions {
        memory_cache: ByteSize(0),
        seed: Some(3),
        // Small ones, so that a test meets many.
        stall_timeout_ms: 1000,
        ..StorageOptions::default()
    };
    let ips = server.addresses().iter().map(|address| address.ip()).collect();
    options.addresses.insert("s3.test".to_owned(), ips);
    for (key, value) in [
        ("endpoint", format!("http://s3.test:{port}")),
        ("allow_http", "true".to_owned()),
        ("region", "us-east-1".to_owned()),
        ("access_key_id", "test".to_owned()),
        ("secret_access_key", "secret".to_owned()),
    ] {
        options.provider.insert(key.to_owned(), value);
    }
    (server, options)
}

fn open(options: &StorageOptions) -> Arc<Store> {
    Store::open("s3://bucket", options).expect("valid options")
}

#[tokio::test]
async fn uploads_that_nobody_completed_are_found_and_ended() {
    let (_server, options) = start(1, Faults::none(1)).await;
    let store = open(&options);
    let place = |number: usize| Path::from(format!("a lake/t&/part-{number}.parquet"));
    for number in 0..5 {
        let mut upload = store.put_multipart(&place(number)).await.expect("begun");
        upload.put_part(PutPayload::from_static(b"some")).await.expect("sent");
        if number == 4 {
            upload.complete().await.expect("complete");
        }
    }
    drop(store.put_multipart(&Path::from("a lake/other/x")).await.expect("begun"));
    let folder = Path::from("a lake/t&");
    let found = store.unfinished_uploads(&folder).await.expect("listed");
    let places: Vec<_> = found.iter().map(|upload| upload.location.clone()).collect();
    assert_eq!(places, (0..4).map(place).collect::<Vec<_>>());
    for upload in &found {
        store.end_upload(upload).await.expect("ended");
        store.end_upload(upload).await.expect("gone already");
    }
    assert_eq!(store.unfinished_uploads(&folder).await.expect("listed"), []);
    assert_eq!(store.unfinished_uploads(&Path::from("a lake")).await.expect("listed").len(), 1);
    assert_eq!(store.get(&place(4)).await.expect("whole").meta.size, 4);
}

#[tokio::test]
async fn stores_conform_over_http_files_and_memory() {
    let (_server, options) = start(2, Faults::none(1)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("file://{}", folder.path().display());
    for (url, rounds) in [("s3://bucket/lake", 40), (file.as_str(), 40), ("memory:///", 1000)] {
        let store = Store::open(url, &options).expect(url);
        let at = store.prefix().clone().join("check");
        let mut seen = 0;
        let rounds = Rounds { rounds, writers: 32 };
        let report = conformance::check(&*store, &at, rounds, |done| seen = done).await;
        let report = report.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!((report.races_won_once, seen), (rounds.rounds, rounds.rounds), "{url}");
        assert_eq!(report.losers, u64::from(rounds.rounds) * 31, "{url}");
    }
}

#[tokio::test]
async fn every_race_has_one_winner_when_answers_are_lost() {
    let faults =
        Faults { lost: 0.2, reset: 0.1, unavailable: 0.05, internal: 0.05, ..Faults::none(5) };
    let (server, options) = start(2, faults).await;
    let store = open(&options);
    for round in 0..40 {
        let at = Path::from(format!("commit/{round}"));
        let outcomes: Vec<(usize, Result<_, Error>)> = (0..16)
            .map(|writer| {
                let (store, at) = (&store, &at);
                async move {
                    let payload = PutPayload::from(format!("writer {writer}").into_bytes());
                    (writer, store.put_opts(at, payload, PutMode::Create.into()).await)
                }
            })
            .collect::<FuturesUnordered<_>>()
            .collect()
            .await;
        let mut winners = Vec::new();
        for (writer, outcome) in outcomes {
            match outcome {
                Ok(put) => winners.push((writer, put)),
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => panic!("round {round}: writer {writer} does not know: {error}"),
            }
        }
        let [(winner, put)] = &winners[..] else { panic!("round {round}: {winners:?}") };
        let got = store.get(&at).await.expect("readable");
        assert_eq!(got.meta.e_tag, put.e_tag, "round {round}: the winner knows the version");
        let bytes = got.bytes().await.expect("readable");
        assert_eq!(bytes, format!("writer {winner}"), "round {round}");
    }
    assert_eq!(server.keys("bucket").len(), 40);
    assert!(store.total().read_backs > 40, "{}", store.total());
}

#[tokio::test]
async fn updates_whose_answer_is_lost_are_recognised() {
    let (server, options) = start(1, Faults::none(9)).await;
    let store = open(&options);
    let at = Path::from("pointer");
    let mut version = store.put(&at, "0".into()).await.expect("a put");
    server.set_faults(|faults| faults.lost = 0.5);
    for i in 1..30 {
        let mode = PutMode::Update(UpdateVersion::from(version.clone()));
        let text = i.to_string();
        version = store
            .put_opts(&at, text.clone().into(), mode.into())
            .await
            .unwrap_or_else(|error| panic!("update {i}: {error}"));
        assert_eq!(store.get(&at).await.expect("a get").bytes().await.expect("bytes"), text);
    }
    let stale = PutMode::Update(UpdateVersion { e_tag: Some("\"old\"".to_owned()), version: None });
    server.set_faults(|faults| faults.lost = 0.0);
    let refused = store.put_opts(&at, "x".into(), stale.into()).await;
    assert!(matches!(refused, Err(Error::Precondition { .. })), "{refused:?}");
}

#[tokio::test]
async fn uploads_survive_resets_refusals_and_lost_answers() {
    let faults =
        Faults { reset: 0.1, unavailable: 0.1, internal: 0.1, lost: 0.1, ..Faults::none(21) };
    let (server, options) = start(2, faults).await;
    let store = open(&options);
    for object in 0..8u64 {
        let at = Path::from(format!("data/{object}"));
        let mut upload = store.put_multipart(&at).await.expect("an upload");
        for part in 0..5u64 {
            let bytes = content(part * 100 * KIB..(part + 1) * 100 * KIB);
            upload.put_part(bytes.into()).await.expect("a part");
        }
        upload.complete().await.expect("completed");
        let bytes = store.get(&at).await.expect("a get").bytes().await.expect("bytes");
        assert!(bytes == content(0..500 * KIB), "object {object}");
    }
    assert_eq!(server.keys("bucket").len(), 8, "nothing lost, nothing doubled");
    let found: Vec<_> = store.list(None).try_collect().await.expect("a listing");
    assert_eq!(found.len(), 8);
    let all = store.list(None).map_ok(|meta| meta.location).boxed();
    let deleted: Vec<_> = store.delete_stream(all).try_collect().await.expect("deleted");
    assert_eq!((deleted.len(), server.keys("bucket").len()), (8, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulted_reads_are_right() {
    let faults = Faults {
        median_ms: 1.0,
        sigma: 0.5,
        reset: 0.02,
        unavailable: 0.02,
        internal: 0.02,
        cut: 0.02,
        short: 0.02,
        stall: 0.002,
        ..Faults::none(13)
    };
    let (_server, options) = start(4, faults).await;
    let options = StorageOptions { piece: ByteSize::kib(128), retries: 20, ..options };
    let store = open(&options);
    let size = 64 * MIB;
    let path = Path::from(format!("t/synthetic-{size}"));
    stream::iter(0..5_000u64)
        .map(|i| {
            let (store, path) = (&store, &path);
            async move {
                let mut random = Random::stream(5, i);
                let longest = if i % 100 == 0 { MIB } else { 8 * KIB };
                let ranges: Vec<Range<u64>> = (0..1 + random.below(3))
                    .map(|_| {
                        let start = random.below(size - 1);
                        start..(start + 1 + random.below(longest)).min(size)
                    })
                    .collect();
                let parts = store.get_ranges(path, &ranges).await.expect("a read");
                for (range, part) in ranges.iter().zip(&parts) {
                    assert!(*part == content(range.clone()), "read {i}: wrong bytes in {range:?}");
                }
            }
        })
        .buffer_unordered(64)
        .collect::<()>()
        .await;
    let counts = store.total();
    assert!(counts.retries > 100 && counts.short_bodies > 20 && counts.throttled > 20, "{counts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_address_gets_a_handful_of_requests() {
    let (server, options) = start(8, Faults { median_ms: 5.0, ..Faults::none(2) }).await;
    server.set_address(3, Address::Dead);
    // Hedges answer for the dead; a stall time-out would be a failure of this test.
    let options = StorageOptions { stall_timeout_ms: 60_000, ..options };
    let store = open(&options);
    let path = Path::from(format!("synthetic-{}", 64 * MIB));
    stream::iter(0..2_000u64)
        .map(|i| {
            let (store, path) = (&store, &path);
            async move {
                let at = i * KIB;
                let bytes = store.get_range(path, at..at + KIB).await.expect("a read");
                assert!(bytes == content(at..at + KIB));
            }
        })
        .buffer_unordered(32)
        .collect::<()>()
        .await;
    let asked = server.stats()[3].requests;
    assert!(asked <= 12, "the dead address was asked {asked} times");
    assert_eq!(store.total().stalls, 0);
    // What nobody hedges goes round the dead address too.
    for _ in 0..20 {
        let listed: Vec<_> = store.list(None).try_collect().await.expect("a listing");
        assert!(listed.is_empty());
        store.put(&Path::from("a"), "x".into()).await.expect("a put");
        store.delete(&Path::from("a")).await.expect("a delete");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_store_answers_everything() {
    let faults = Faults { median_ms: 2.0, requests_per_second: 400.0, ..Faults::none(2) };
    let (_server, options) = start(1, faults).await;
    let store = open(&options);
    let path = Path::from(format!("synthetic-{}", 64 * MIB));
    let read = stream::iter(0..600u64)
        .map(|i| {
            let (store, path) = (&store, &path);
            async move { store.get_range(path, i * KIB..(i + 1) * KIB).await }
        })
        .buffer_unordered(64)
        .try_collect::<Vec<_>>()
        .await;
    assert_eq!(read.expect("no failures").len(), 600);
    let counts = store.total();
    assert!(counts.throttled > 0 && counts.hedges <= 30, "{counts}");
}

#[tokio::test]
async fn counts_are_what_the_server_saw() {
    let (server, options) = start(1, Faults::none(1)).await;
    let store = open(&options);
    let query = store.scoped();
    let at = Path::from("a/b");
    query.put(&at, vec![7u8; 1000].into()).await.expect("a put");
    query.put_opts(&at, "x".into(), PutMode::Create.into()).await.expect_err("it exists");
    query.get_ranges(&at, &[0..10, 900..1000]).await.expect("a read");
    query.head(&at).await.expect("metadata");
    let _: Vec<_> = query.list(None).try_collect().await.expect("a listing");
    query.delete(&at).await.expect("a delete");
    let counts = query.counts();
    assert_eq!((counts.puts, counts.gets, counts.lists, counts.deletes), (2, 2, 1, 1));
    assert_eq!((counts.bytes_written, counts.bytes_asked), (1001 + 96, 110));
    assert_eq!(counts.requests(), server.requests());
    assert_eq!(store.total(), counts);
    assert_eq!((counts.retries, counts.hedges, counts.connects), (0, 0, 1));
    assert_eq!(counts.rounds, 2, "a read and metadata, one after the other");
}
