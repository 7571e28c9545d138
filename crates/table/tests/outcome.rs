//! A commit whose answer is lost and that cannot be read back: the error says that nobody knows, nothing
//! that it may name is thrown away, and the same load again brings the table to one copy of its rows.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::RetryConfig;
use object_store::aws::AmazonS3Builder;
use uplake_faulty_s3::{Faults, Server};
use uplake_objectio::Clock;
use uplake_table::{
    AsOf, InputFile, Lake, LoadOptions, LoadSummary, Progress, Result, StorageOptions, Store,
    TableError, expand_inputs, load,
};

/// Time runs so many times faster: a commit is given up after a minute.
const FASTER: u32 = 40;

#[derive(Debug)]
struct FastClock(Instant);

impl Clock for FastClock {
    fn now(&self) -> Duration {
        self.0.elapsed() * FASTER
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        async move { tokio::time::sleep(wait / FASTER).await }.boxed()
    }
}

/// A lake in a bucket of `server`, as a process of its own would see it.
fn lake(server: &Server) -> Lake {
    let client = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_access_key_id("anybody")
        .with_secret_access_key("anything")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .expect("a client");
    // Requests are neither hedged nor given up as stalled: only the clock of the commit matters here.
    let options = StorageOptions {
        hedge_budget: 0.0,
        stall_timeout_ms: 600_000,
        ..StorageOptions::default()
    };
    let clock = Arc::new(FastClock(Instant::now()));
    let store = Store::layered(Arc::new(client), &options, clock).expect("a store");
    Lake::over(store).expect("a lake")
}

fn input(folder: &Path, name: &str, rows: std::ops::Range<u32>) -> Vec<InputFile> {
    let mut text = String::from("id\n");
    rows.for_each(|row| text.push_str(&format!("{row}\n")));
    let path = folder.join(name);
    std::fs::write(&path, text).expect("space");
    expand_inputs(&[path.to_str().expect("text").to_owned()]).expect("a file")
}

async fn load_once(lake: &Lake, files: &[InputFile], label: &str) -> Result<LoadSummary> {
    let label = Some(label.to_owned());
    let options = LoadOptions { label, ..LoadOptions::new(256 << 20, 2, 1_790_000_000_000) };
    load(lake, "t", files, &options, &Arc::new(Progress::default())).await
}

async fn rows(lake: &Lake) -> Option<u64> {
    lake.snapshot("t", &AsOf::Latest).await.expect("a table").rows()
}

fn data_files(server: &Server) -> usize {
    server.keys("bucket").iter().filter(|key| key.ends_with(".parquet")).count()
}

async fn lose_the_commit(takes_effect: bool) {
    let server = Server::start(1, Faults::none(4)).await.expect("a free port");
    let folder = tempfile::tempdir().expect("a folder");
    let first = input(folder.path(), "first.csv", 0..100);
    let second = input(folder.path(), "second.csv", 100..150);
    let writer = lake(&server);
    load_once(&writer, &first, "first").await.expect("nothing is wrong yet");

    server.hide("_delta_log/00000000000000000001.json", takes_effect);
    let lost = load_once(&writer, &second, "second").await;
    assert!(matches!(lost, Err(TableError::OutcomeUnknown { .. })), "{takes_effect}: {lost:?}");
    assert_eq!(data_files(&server), 2, "what a commit may name stays");
    server.resume();

    let expected = if takes_effect { 150 } else { 100 };
    assert_eq!(rows(&lake(&server)).await, Some(expected), "read by another");
    // By the process that was told nothing, and by another one.
    for again in [&writer, &lake(&server)] {
        let done = load_once(again, &second, "second").await.expect("the same label again");
        assert!(!takes_effect || done.version.is_none(), "it was there");
        assert_eq!(rows(again).await, Some(150), "{takes_effect}: one copy of its rows");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_took_effect_unseen_is_not_made_twice() {
    lose_the_commit(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_had_no_effect_unseen_is_made_by_the_same_load() {
    lose_the_commit(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_conditions_gets_no_commit() {
    let faults = Faults { ignores_conditions: 1.0, ..Faults::none(5) };
    let server = Server::start(1, faults).await.expect("a free port");
    let folder = tempfile::tempdir().expect("a folder");
    let files = input(folder.path(), "a.csv", 0..10);
    let refused = load_once(&lake(&server), &files, "a").await.expect_err("it is not safe");
    assert!(matches!(refused, TableError::UnsafeStore { .. }), "{refused}");
    assert!(refused.to_string().contains("uplake lake probe"), "{refused}");
    let keys = server.keys("bucket");
    assert!(!keys.iter().any(|key| key.contains("/_delta_log/")), "{keys:?}");
}
