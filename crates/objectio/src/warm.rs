//! Filling the cache before anybody asks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::Mutex;

use crate::cache::{Admit, Cache};
use crate::ranges::cut;
use crate::store::Store;

/// Failures that are told by name; all are counted.
const MOST_FAILURES: usize = 16;

/// What to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warm {
    /// Of the object, within the store.
    pub path: Path,
    /// Which bytes; `None` for the whole object, whose size is then asked for.
    pub ranges: Option<Vec<Range<u64>>>,
    /// Of the object, if it is known: then nothing is asked for what is there.
    pub size: Option<u64>,
}

/// How fast to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmOptions {
    /// Bytes per second; `None` for as fast as it goes.
    pub bytes_per_second: Option<u64>,
    /// Objects at once.
    pub at_once: usize,
}

impl Default for WarmOptions {
    fn default() -> Self {
        Self { bytes_per_second: None, at_once: 8 }
    }
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Objects that were looked at, the failed ones included.
    pub objects: u64,
    /// Bytes that were asked for, as far as the objects reach.
    pub bytes_wanted: u64,
    /// Bytes that were in the cache already.
    pub bytes_there: u64,
    /// Bytes that were fetched.
    pub bytes_fetched: u64,
    /// Bytes that were not fetched because they would have pushed others out.
    pub bytes_without_room: u64,
    /// Bytes of those wanted that are in the cache at the end: looked up, not assumed.
    pub bytes_kept: u64,
    /// Objects that could not be read, or whose names the cache does not take.
    pub failed: u64,
    /// The first of them, and why.
    pub failures: Vec<(Path, String)>,
}

impl Store {
    /// Fetches `items` into the cache, up to its limit and pushing nothing out, and counts what is
    /// there in the end. `progress` is told after every piece. Dropping the future stops it.
    pub async fn warm(
        &self,
        items: Vec<Warm>,
        options: WarmOptions,
        progress: impl Fn(&Warmed) + Send + Sync,
    ) -> Warmed {
        let state = Mutex::new((Warmed::default(), self.clock().now()));
        let Some(cache) = self.cache() else {
            let failed = items.len() as u64;
            let why = "there is no cache: set memory_cache or disk_cache".to_owned();
            let failures = items.into_iter().take(1).map(|item| (item.path, why.clone())).collect();
            return Warmed { objects: failed, failed, failures, ..Warmed::default() };
        };
        let wanted: Vec<(Path, Vec<Range<u64>>)> = stream::iter(items)
            .map(|item| {
                let (state, progress, path) = (&state, &progress, item.path.clone());
                async move {
                    let outcome = self.warm_one(cache, item, options, state, progress).await;
                    let mut state = state.lock();
                    state.0.objects += 1;
                    match outcome {
                        Ok(ranges) => Some((path, ranges)),
                        Err(why) => {
                            state.0.failed += 1;
                            if state.0.failures.len() < MOST_FAILURES {
                                state.0.failures.push((path, why));
                            }
                            None
                        }
                    }
                }
            })
            .buffer_unordered(options.at_once.max(1))
            .filter_map(|item| async move { item })
            .collect()
            .await;
        cache.flush().await;
        let mut warmed = state.into_inner().0;
        let covered = |(path, ranges): &(Path, Vec<Range<u64>>)| {
            ranges.iter().map(|range| cache.covered(path, range)).sum::<u64>()
        };
        warmed.bytes_kept = wanted.iter().map(covered).sum();
        progress(&warmed);
        warmed
    }

    /// Returns the ranges of the object that were wanted, cut at its end.
    async fn warm_one(
        &self,
        cache: &Arc<Cache>,
        item: Warm,
        options: WarmOptions,
        state: &Mutex<(Warmed, Duration)>,
        progress: &(impl Fn(&Warmed) + Send + Sync),
    ) -> Result<Vec<Range<u64>>, String> {
        let Warm { path, ranges, size } = item;
        if !cache.takes(&path) {
            return Err("its name is not one of `immutable_suffixes`".to_owned());
        }
        let size = match size {
            Some(size) => size,
            None => self.head(&path).await.map_err(|error| error.to_string())?.size,
        };
        let whole = std::iter::once(0..size).collect();
        let ranges: Vec<Range<u64>> = ranges
            .unwrap_or(whole)
            .into_iter()
            .map(|range| range.start.min(size)..range.end.min(size))
            .filter(|range| !range.is_empty())
            .collect();
        for step in ranges.iter().flat_map(|range| cut(range, self.options().piece.0)) {
            let len = step.end - step.start;
            let there = cache.covered(&path, &step);
            let missing = len - there;
            let has_room = cache.room() >= missing;
            let wait = {
                let mut state = state.lock();
                let (warmed, due) = &mut *state;
                warmed.bytes_wanted += len;
                warmed.bytes_there += there;
                if !has_room {
                    warmed.bytes_without_room += missing;
                }
                let now = self.clock().now();
                let begin = (*due).max(now);
                if let Some(rate) = options.bytes_per_second.filter(|_| has_room) {
                    *due = begin + Duration::from_secs_f64(missing as f64 / rate.max(1) as f64);
                }
                begin - now
            };
            if missing == 0 || !has_room {
                continue;
            }
            if options.bytes_per_second.is_some() && !wait.is_zero() {
                self.clock().sleep(wait).await;
            }
            let read = self.run(cache.read(&path, std::slice::from_ref(&step), Admit::Asked)).await;
            read.map_err(|error| error.to_string())?;
            let mut state = state.lock();
            state.0.bytes_fetched += missing;
            progress(&state.0);
        }
        Ok(ranges)
    }
}
