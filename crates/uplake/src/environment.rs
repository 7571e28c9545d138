//! What the command takes from the machine: clock, memory, cores, runtime.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use uplake_engine::{Session, SessionOptions};
use uplake_table::{AsOf, DataFile, Lake, WarmOptions, preload};

use crate::LakeArgs;

/// Share of the machine's memory that queries and loads use by default. The rest is for what is not
/// counted: decoding buffers, the allocator's slack, the page cache.
const MEMORY_SHARE: f64 = 0.6;
/// Assumed when the system does not say.
const MEMORY_FALLBACK_BYTES: usize = 4 << 30;

/// What a stopped command has to end its statement: threads that encode, marks in a bucket.
const STOP_TIME: Duration = Duration::from_secs(5);
/// Exit status of what Ctrl-C stopped, as shells have it: 128 and the signal's number.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// A signal ended the command.
#[derive(Debug)]
pub struct Stopped {
    /// The exit status to end with.
    pub status: u8,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Stopped {}

/// Runs a command that Ctrl-C and SIGTERM stop: it is dropped, which removes what it has on disk and
/// in a bucket. The second one ends the process at once.
pub async fn until_stopped(command: impl Future<Output = Result<()>>) -> Result<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let watch = tokio::spawn(async move {
        let status = stop_signal().await;
        // The command may be over.
        let _ = tell.send(status);
        let _ = tokio::time::timeout(STOP_TIME, stop_signal()).await;
        std::process::exit(i32::from(status));
    });
    let result = tokio::select! {
        result = command => result,
        Ok(status) = told => return Err(Stopped { status }.into()),
    };
    watch.abort();
    result
}

/// Waits for Ctrl-C or SIGTERM.
async fn stop_signal() -> u8 {
    #[cfg(unix)]
    if let Ok(mut terminate) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        return tokio::select! {
            _ = tokio::signal::ctrl_c() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
        };
    }
    let _ = tokio::signal::ctrl_c().await;
    INTERRUPTED
}

/// Statements are planned here, by functions that call themselves for each level of an expression: some KiB a
/// level, and generated statements have thousands. Only what is touched becomes memory.
const STACK_BYTES: usize = 256 << 20;
/// Of each thread that computes; tables of reports are planned there, too.
const THREAD_STACK_BYTES: usize = 16 << 20;

/// Runs a command on a runtime of its own.
pub fn run(command: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(THREAD_STACK_BYTES)
        .build()
        .context("starting the runtime")?;
    let result = stacker::grow(STACK_BYTES, || runtime.block_on(command));
    match &result {
        Err(error) if error.is::<Stopped>() => runtime.shutdown_timeout(STOP_TIME),
        // Threads that still read a file must not hold up the exit.
        _ => runtime.shutdown_background(),
    }
    result
}

/// Milliseconds since 1970, UTC. The one place where the clock is read.
pub fn now_millis() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// The budget of a command.
pub fn memory_bytes(args: &LakeArgs) -> usize {
    args.memory.unwrap_or_else(|| {
        available_memory().map_or(MEMORY_FALLBACK_BYTES, |m| (m as f64 * MEMORY_SHARE) as usize)
    })
}

/// The cores to use.
pub fn threads(args: &LakeArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    args.threads.filter(|n| *n > 0).unwrap_or_else(cores)
}

/// Bytes of memory: the machine's, or the container's limit if that is lower.
fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|l| l.starts_with("MemTotal:"))?;
    let total = line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    Some(limit.map_or(total, |l| l.min(total)))
}

/// Opens the lake; dictionaries of id domains are kept in this user's cache folder.
pub fn lake(args: &LakeArgs) -> Result<Lake> {
    let report = crate::progress::domain_report();
    let options = crate::config::storage(args, cache_folder())?;
    let lake = Lake::open_with(&args.lake, &options)?;
    for warning in lake.storage().take_warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(lake.with_cache(cache_folder(), Some(report)))
}

/// `UPLAKE_CACHE`, or `uplake` in the folder that the system has for caches.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    folder("UPLAKE_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|f| f.join("uplake")))
        .or_else(|| folder("HOME").map(|f| f.join(".cache/uplake")))
}

/// What statements may take.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    /// For each; 0 is no limit.
    pub timeout: Option<Duration>,
    /// Statements that compute at once.
    pub at_once: Option<usize>,
}

/// `30s`, `500ms`, `2m`; 0 is no limit.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    Ok(uplake_engine::parse_timeout(text)?.unwrap_or_default())
}

/// After a load or a compaction: footers and indexes of what is new go into this machine's disk cache,
/// where the next command finds them. `since`: when the command began, milliseconds since 1970, UTC.
pub async fn preload_new(lake: &Lake, table: &str, since: i64) {
    let options = lake.storage().options();
    if !lake.is_remote() || !options.preload_new || options.disk_cache.0 == 0 {
        return;
    }
    // The table is written; whatever fails here is read when it is asked for.
    if let Ok(newest) = lake.snapshot(table, &AsOf::Latest).await {
        let is_new = |file: &&DataFile| file.modified_millis >= since;
        let files: Vec<DataFile> = newest.files().iter().filter(is_new).cloned().collect();
        preload(lake, &newest, &files, WarmOptions::default()).await;
    }
}

/// Opens the lake and a session on it.
pub fn session(args: &LakeArgs, as_of: AsOf, limits: Limits) -> Result<Session> {
    let options = SessionOptions {
        memory_bytes: memory_bytes(args),
        threads: threads(args),
        as_of,
        spill_folder: None,
        use_indexes: !args.no_index,
        at_once: limits.at_once,
        timeout: limits.timeout.filter(|timeout| !timeout.is_zero()),
        clock: Arc::new(now_millis),
    };
    Ok(Session::new(lake(args)?, &options)?)
}

/// `4G`, `512M`, `1.5GiB` or a number of bytes.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let factor: u64 = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(format!("`{text}` is not a size; write 512M, 4G or a number of bytes")),
    };
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a size; write 512M, 4G or a number of bytes"))?;
    if !number.is_finite() || number <= 0.0 {
        return Err(format!("`{text}` is not a size: it must be more than 0"));
    }
    Ok((number * factor as f64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("100"), Ok(100));
        assert!(parse_bytes("lots").is_err() && parse_bytes("-1G").is_err());
        assert!(parse_bytes("5X").is_err() && parse_bytes("").is_err());
    }
}
