//! Tables of `system` that are as of now: connections, tables and their files, caches, what the server was told.

use futures::{StreamExt, TryStreamExt, stream};
use uplake_table::{AsOf, Lake, Snapshot, TableError};

use super::columns::{Column, Values};
use crate::roll::Member;

use Values::{Number, Text, Time};

/// A file below this is worth merging with others: as `uplake compact` has it.
const SMALL_FILE_BYTES: u64 = 128 << 20;
/// Logs that are read at once.
const TABLES_AT_ONCE: usize = 8;

/// Those tables of a lake that may be seen, as they are now.
pub(super) async fn snapshots(
    lake: &Lake,
    may_see: impl Fn(&str) -> bool,
) -> Result<Vec<Snapshot>, TableError> {
    let names: Vec<String> = lake.table_names().await?.into_iter().filter(|n| may_see(n)).collect();
    let latest = names.iter().map(|name| async move {
        match lake.snapshot(name, &AsOf::Latest).await {
            // It went meanwhile.
            Err(TableError::NoSuchTable { .. }) => Ok(None),
            found => found.map(Some),
        }
    });
    let found: Vec<Option<Snapshot>> =
        stream::iter(latest.collect::<Vec<_>>()).buffered(TABLES_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

pub(super) fn tables() -> Vec<Column<Snapshot>> {
    vec![
        ("name", Text(|table: &Snapshot| Some(table.table().to_owned()))),
        ("version", Number(|table: &Snapshot| Some(table.version()))),
        ("rows", Number(Snapshot::rows)),
        ("files", Number(|table: &Snapshot| Some(table.files().len() as u64))),
        ("bytes", Number(|table: &Snapshot| Some(table.size_bytes()))),
        (
            "small_files",
            Number(|table: &Snapshot| {
                let small = table.files().iter().filter(|file| file.size < SMALL_FILE_BYTES);
                Some(small.count() as u64)
            }),
        ),
        ("partition_by", Text(|table: &Snapshot| joined(table.partition_columns()))),
        ("cluster_by", Text(|table: &Snapshot| joined(table.cluster_by()))),
        ("primary_key", Text(|table: &Snapshot| joined(table.primary_key()))),
    ]
}

fn joined(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(","))
}

/// A data file and its table.
pub(super) struct File(pub String, pub uplake_table::DataFile);

pub(super) fn files() -> Vec<Column<File>> {
    vec![
        ("table", Text(|File(table, _): &File| Some(table.clone()))),
        ("path", Text(|File(_, file): &File| Some(file.path.clone()))),
        (
            "partition",
            Text(|File(_, file): &File| {
                let mut values: Vec<_> = file.partition_values.iter().collect();
                values.sort();
                let shown = |(name, value): &(&String, &Option<String>)| {
                    format!("{name}={}", value.as_deref().unwrap_or("NULL"))
                };
                joined(&values.iter().map(shown).collect::<Vec<_>>())
            }),
        ),
        ("rows", Number(|File(_, file): &File| file.rows)),
        ("bytes", Number(|File(_, file): &File| Some(file.size))),
        ("written", Time(|File(_, file): &File| file.modified_millis)),
    ]
}

pub(super) fn connections() -> Vec<Column<Member>> {
    vec![
        ("id", Number(|member: &Member| Some(member.id))),
        ("protocol", Text(|member: &Member| Some(member.protocol.to_owned()))),
        ("role", Text(|member: &Member| (!member.role.is_empty()).then(|| member.role.clone()))),
        ("address", Text(|member: &Member| Some(member.address.clone()))),
        ("application", Text(|member: &Member| Some(member.application.clone()))),
        ("since", Time(|member: &Member| member.since)),
    ]
}

/// A cache, what it holds, and what it may.
pub(super) struct CacheUse(&'static str, u64, u64);

/// What is kept of the lake's bytes; a folder has no such cache.
pub(super) fn caches_of(lake: &Lake) -> Vec<CacheUse> {
    let Some(usage) = lake.storage().cache_usage() else { return Vec::new() };
    vec![
        CacheUse("memory", usage.memory_bytes, usage.memory_limit),
        CacheUse("disk", usage.disk_bytes, usage.disk_limit),
    ]
}

pub(super) fn caches() -> Vec<Column<CacheUse>> {
    vec![
        ("tier", Text(|CacheUse(tier, ..): &CacheUse| Some((*tier).to_owned()))),
        ("bytes", Number(|CacheUse(_, bytes, _): &CacheUse| Some(*bytes))),
        ("limit_bytes", Number(|CacheUse(_, _, limit): &CacheUse| Some(*limit))),
    ]
}

/// A name and a value.
pub(super) type Setting = (&'static str, String);

pub(super) fn settings() -> Vec<Column<Setting>> {
    vec![
        ("name", Text(|(name, _): &Setting| Some((*name).to_owned()))),
        ("value", Text(|(_, value): &Setting| Some(value.clone()))),
    ]
}
