//! What the engine answers, from the outside: SQL text files, budgets, and moments against a slow count.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod arrays;
mod assignment;
mod batch;
mod budget;
mod days;
mod definitions;
mod domains;
mod driver;
mod dropped;
mod error_codes;
mod follow_up;
mod fresh;
mod indexes;
mod kinds;
mod moments;
mod overlap;
mod parts;
mod planning;
mod plans;
mod preload;
mod queue;
mod ranked;
mod repair;
mod reports_in_parts;
mod running_windows;
mod sessions;
mod show_create;
mod sql_records;
mod triggered;
mod units;

use std::path::PathBuf;
use std::sync::Arc;

use uplake_engine::{Session, SessionOptions};
use uplake_faulty_s3::Server;
use uplake_table::{AsOf, Lake, StorageOptions, Store};

/// A session on a fresh lake in `folder`, with this much memory. The clock ticks one second a call from
/// 2026-11-01, so that commits have different times.
fn session(folder: &std::path::Path, memory_bytes: usize, threads: usize) -> Session {
    let lake = Lake::open(folder.join("lake").to_str().unwrap()).unwrap();
    Session::new(lake, &options(memory_bytes, threads)).unwrap()
}

fn options(memory_bytes: usize, threads: usize) -> SessionOptions {
    let ticks = std::sync::atomic::AtomicI64::new(1_793_491_200);
    SessionOptions {
        memory_bytes,
        threads,
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes: true,
        at_once: None,
        timeout: None,
        clock: Arc::new(move || ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * 1000),
    }
}

/// A session on a lake in a simulated bucket. `local`: where its machine keeps what it knows of the lake.
fn bucket_session(server: &Server, storage: StorageOptions, local: Option<PathBuf>) -> Session {
    // Without hedges the number of requests does not depend on the machine's load.
    let mut storage = StorageOptions { hedge_budget: 0.0, ..storage };
    for (key, value) in [
        ("endpoint", server.endpoint().as_str()),
        ("allow_http", "true"),
        ("region", "us-east-1"),
        ("access_key_id", "anybody"),
        ("secret_access_key", "anything"),
    ] {
        storage.provider.insert(key.to_owned(), value.to_owned());
    }
    let lake = Lake::over(Store::open("s3://bucket/lake", &storage).unwrap()).unwrap();
    Session::new(lake.with_cache(local, None), &options(256 << 20, 2)).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // What a test awaits is large in builds that optimise little.
    runtime.block_on(Box::pin(work))
}
