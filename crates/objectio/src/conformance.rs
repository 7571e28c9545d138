//! What a store must do before commits are trusted to it.
//!
//! Delta commits and id domains rest on one promise: of many writers that create one object, exactly
//! one is told that it did, and the object holds that one's bytes. Several S3 look-alikes ignore
//! `If-None-Match`, or check first and write later. [`check`] finds them.

use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use serde::Serialize;

use crate::error::StoreError;

/// How thorough a [`check`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Races.
    pub rounds: u32,
    /// Writers in each race.
    pub writers: u32,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { rounds: 1000, writers: 32 }
    }
}

/// What was found; every field was checked if there is a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conformance {
    /// Races in which exactly one writer won and its bytes were there.
    pub races_won_once: u32,
    /// Writers who lost in them, and were told so.
    pub losers: u64,
}

/// Writes, races and reads below `folder`, which should not exist, and removes what it wrote.
///
/// `progress` is called with the races done.
///
/// # Errors
/// [`StoreError::Conformance`] with the first promise that was broken, or the request that failed.
pub async fn check(
    store: &dyn ObjectStore,
    folder: &Path,
    rounds: Rounds,
    mut progress: impl FnMut(u32),
) -> Result<Conformance, StoreError> {
    let outcome = async {
        conditional_writes(store, &folder.clone().join("conditional")).await?;
        reads(store, &folder.clone().join("reads")).await?;
        lists(store, &folder.clone().join("list")).await?;
        let mut losers = 0;
        for round in 0..rounds.rounds {
            let at = folder.clone().join("race").join(format!("{round:06}"));
            losers += race(store, &at, rounds.writers).await?;
            progress(round + 1);
        }
        Ok(Conformance { races_won_once: rounds.rounds, losers })
    }
    .await;
    let written = store.list(Some(folder)).map_ok(|meta| meta.location).boxed();
    let removed = store.delete_stream(written).try_collect::<Vec<_>>().await;
    let report = outcome?;
    removed.map_err(|error| failed("removing what the check wrote", &error))?;
    let left = store.list(Some(folder)).try_collect::<Vec<_>>().await;
    match left.map_err(|error| failed("listing after removal", &error))?.len() {
        0 => Ok(report),
        left => Err(broken(format!("{left} removed objects are still listed"))),
    }
}

fn broken(promise: String) -> StoreError {
    StoreError::Conformance(promise)
}

fn failed(what: &str, error: &Error) -> StoreError {
    broken(format!("{what} failed: {error}"))
}

/// `writers` create one object at once; returns how many lost.
async fn race(store: &dyn ObjectStore, at: &Path, writers: u32) -> Result<u64, StoreError> {
    let outcomes: Vec<(u32, Result<_, Error>)> = (0..writers)
        .map(|writer| async move {
            let bytes = PutPayload::from(format!("writer {writer}").into_bytes());
            (writer, store.put_opts(at, bytes, PutMode::Create.into()).await)
        })
        .collect::<FuturesUnordered<_>>()
        .collect()
        .await;
    let mut winners = Vec::new();
    for (writer, outcome) in &outcomes {
        match outcome {
            Ok(_) => winners.push(*writer),
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(failed("creating an object in a race", error)),
        }
    }
    let [winner] = winners[..] else {
        return Err(broken(format!(
            "{} of {writers} writers were told that they created {at}; commits would be lost. \
             Do not keep tables on this store",
            winners.len()
        )));
    };
    let bytes = read(store, at).await?;
    if bytes != format!("writer {winner}").as_bytes() {
        let found = String::from_utf8_lossy(&bytes);
        return Err(broken(format!("writer {winner} created {at}, but it holds `{found}`")));
    }
    Ok(outcomes.len() as u64 - 1)
}

async fn read(store: &dyn ObjectStore, at: &Path) -> Result<bytes::Bytes, StoreError> {
    let got = store.get(at).await.map_err(|error| failed("reading", &error))?;
    got.bytes().await.map_err(|error| failed("reading", &error))
}

async fn conditional_writes(store: &dyn ObjectStore, at: &Path) -> Result<(), StoreError> {
    let put = |text: &'static str, mode: PutMode| store.put_opts(at, text.into(), mode.into());
    let first = put("one", PutMode::Create).await;
    let first = first.map_err(|error| failed("creating an object", &error))?;
    if !matches!(put("two", PutMode::Create).await, Err(Error::AlreadyExists { .. })) {
        return Err(broken("an object was created a second time".to_owned()));
    }
    if read(store, at).await? != "one" {
        return Err(broken("a refused write changed the object".to_owned()));
    }
    if first.e_tag.is_none() {
        return Ok(());
    }
    let version = UpdateVersion::from(first);
    match put("three", PutMode::Update(version.clone())).await {
        // Files on disk have no conditional updates, and nothing here needs them there.
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => return Ok(()),
        updated => updated.map_err(|error| failed("updating an object", &error))?,
    };
    if !matches!(put("four", PutMode::Update(version)).await, Err(Error::Precondition { .. })) {
        return Err(broken("an update of a version that is gone succeeded".to_owned()));
    }
    if read(store, at).await? != "three" {
        return Err(broken("a refused update changed the object".to_owned()));
    }
    Ok(())
}

async fn reads(store: &dyn ObjectStore, at: &Path) -> Result<(), StoreError> {
    let bytes: Vec<u8> =
        (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let size = bytes.len() as u64;
    let put = store.put(at, bytes.clone().into()).await;
    put.map_err(|error| failed("writing an object", &error))?;
    for range in [
        GetRange::Bounded(0..1),
        GetRange::Bounded(100..200),
        GetRange::Bounded(size - 1..size + 10),
        GetRange::Suffix(64),
        GetRange::Offset(size - 5),
    ] {
        let options = GetOptions { range: Some(range.clone()), ..GetOptions::default() };
        let got = store.get_opts(at, options).await;
        let got = got.map_err(|error| failed("reading a range", &error))?;
        let answered = got.range.clone();
        let got = got.bytes().await.map_err(|error| failed("reading a range", &error))?;
        let right = match range {
            GetRange::Bounded(range) => range.start..range.end.min(size),
            GetRange::Suffix(len) => size - len..size,
            GetRange::Offset(start) => start..size,
        };
        if answered != right || got != bytes[right.start as usize..right.end as usize] {
            return Err(broken(format!("bytes {right:?} were read wrong")));
        }
    }
    match store.get(&Path::from(format!("{at}-missing"))).await {
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed("asking for an object that does not exist", &error)),
        Ok(_) => Err(broken("an object that does not exist was read".to_owned())),
    }
}

async fn lists(store: &dyn ObjectStore, folder: &Path) -> Result<(), StoreError> {
    let name = |i: u32| folder.clone().join(format!("{:02}", i % 4)).join(format!("{i:03}"));
    for i in 0..12 {
        let put = store.put(&name(i), "x".into()).await;
        put.map_err(|error| failed("writing an object", &error))?;
    }
    let list = async |found: futures::stream::BoxStream<'static, object_store::Result<_>>| {
        let found: Result<Vec<object_store::ObjectMeta>, _> = found.try_collect().await;
        let mut found: Vec<Path> = found
            .map_err(|error| failed("listing", &error))?
            .into_iter()
            .map(|meta| meta.location)
            .collect();
        found.sort();
        Ok::<_, StoreError>(found)
    };
    let mut expected: Vec<Path> = (0..12).map(name).collect();
    expected.sort();
    if list(store.list(Some(folder))).await? != expected {
        return Err(broken("a listing right after writing misses objects".to_owned()));
    }
    let after = list(store.list_with_offset(Some(folder), &expected[5])).await?;
    if after != expected[6..] {
        return Err(broken("a listing from an offset starts elsewhere".to_owned()));
    }
    let folders = store.list_with_delimiter(Some(folder)).await;
    let folders = folders.map_err(|error| failed("listing folders", &error))?;
    if folders.common_prefixes.len() != 4 || !folders.objects.is_empty() {
        return Err(broken("a listing of folders is not the four that exist".to_owned()));
    }
    Ok(())
}
