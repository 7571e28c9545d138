//! What the command takes from the machine: clock, memory, cores, runtime.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use uplake_engine::{Session, SessionOptions};
use uplake_table::{AsOf, DataFile, Lake, WarmOptions, preload};

use crate::{LakeArgs, memory, spill};

/// Share of the machine's memory that queries and loads use by default. The rest is for what is not
/// counted: decoding buffers, the allocator's slack, the page cache.
const MEMORY_SHARE: f64 = 0.6;
/// Assumed when the system does not say.
const MEMORY_FALLBACK_BYTES: usize = 4 << 30;

/// What a stopped command has to end its statement and say so; then it ends however busy its threads are.
const STOP_TIME: Duration = Duration::from_millis(50);
/// The same while rows are written: files that are begun and marks in buckets are removed.
const WRITERS_STOP_TIME: Duration = Duration::from_millis(450);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Exit status of what Ctrl-C stopped, as shells have it: 128 and the signal's number.
pub const INTERRUPTED: u8 = 130;
pub const TERMINATED: u8 = 143;
/// And of what held too much memory.
const FAILED: u8 = 1;
/// Characters of a statement that a message names it by.
const STATEMENT_SHOWN: usize = 60;

/// A signal ended the command, or its memory.
#[derive(Debug)]
pub struct Stopped {
    /// The exit status to end with.
    pub status: u8,
    /// The statement that was under way, and for how long.
    statement: Option<(String, Duration)>,
}

impl Stopped {
    /// With the statement that is under way.
    pub fn now(status: u8) -> Self {
        let underway = UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { status, statement: underway.map(|(text, since)| (text, since.elapsed())) }
    }
}

/// The first words of the statement that is under way, and since when.
static UNDERWAY: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// A statement that is under way until it is said to be over: one that is dropped was stopped, and is named.
pub struct Underway(());

impl Underway {
    /// From now on.
    pub fn begin(text: &str) -> Self {
        let begun = Some((first_words(text), Instant::now()));
        *UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        Self(())
    }

    pub fn end(self) {
        *UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// As much of a statement as a line of a message has room for.
fn first_words(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_whitespace() {
        if shown.chars().count() + word.chars().count() >= STATEMENT_SHOWN {
            let room = STATEMENT_SHOWN.saturating_sub(shown.chars().count());
            // One long word is better cut than left out.
            let part: String = word.chars().take(if shown.is_empty() { room } else { 0 }).collect();
            return format!("{shown}{part}…");
        }
        shown.push_str(word);
        shown.push(' ');
    }
    shown.trim_end().to_owned()
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            FAILED => f.write_str(&memory::error_text()),
            _ => {
                f.write_str("cancelled")?;
                match &self.statement {
                    None => Ok(()),
                    Some((text, after)) => write!(f, " after {:.1} s: {text}", after.as_secs_f64()),
                }
            }
        }
    }
}

impl std::error::Error for Stopped {}

/// Has the reason of the end been told?
static TOLD: AtomicBool = AtomicBool::new(false);

/// True for the first who asks: whoever tells the user why the command ends.
pub fn is_first_to_tell() -> bool {
    !TOLD.swap(true, Ordering::SeqCst)
}

/// Runs a command that Ctrl-C and SIGTERM stop: it is dropped, which removes what it has on disk and
/// in a bucket. One whose threads are too busy to notice ends soon all the same, and the second signal
/// ends the process at once.
///
/// Signals have a thread and a runtime of their own: that of the command may have no thread to look at them.
pub async fn until_stopped(command: impl Future<Output = Result<()>>) -> Result<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let (begun, begins) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(stop_at_signal(tell, begun));
        }
    });
    // Without such a thread a signal does what it does by default.
    let _ = begins.recv();
    tokio::select! {
        result = command => result,
        Ok(status) = told => Err(Stopped::now(status).into()),
    }
}

/// Ctrl-C while a shell's statements run, watched by a thread of its own.
#[derive(Default)]
pub struct Interrupts {
    came: tokio::sync::Notify,
    /// Those that no statement has ended by.
    unheard: AtomicUsize,
    /// They are for another program.
    elsewhere: AtomicBool,
}

impl Interrupts {
    /// Begins to watch. Of two that come while a statement does not end, the second ends the process.
    pub fn watch() -> Arc<Self> {
        let interrupts = Arc::new(Self::default());
        let tell = Arc::clone(&interrupts);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if tell.elsewhere.load(Ordering::SeqCst) {
                        continue;
                    }
                    if tell.unheard.fetch_add(1, Ordering::SeqCst) > 0 {
                        spill::remove();
                        std::process::exit(i32::from(INTERRUPTED));
                    }
                    tell.came.notify_waiters();
                }
            });
        });
        interrupts
    }

    /// Does `work`, a program on the same terminal, which Ctrl-C is for meanwhile.
    pub fn unheard<T>(&self, work: impl FnOnce() -> T) -> T {
        self.elsewhere.store(true, Ordering::SeqCst);
        let done = work();
        self.elsewhere.store(false, Ordering::SeqCst);
        done
    }

    /// `work`, unless Ctrl-C stops it, or its memory.
    pub async fn until<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        self.unheard.store(0, Ordering::SeqCst);
        let done = tokio::select! {
            done = work => Ok(done),
            () = self.came.notified() => Err(Stopped::now(INTERRUPTED)),
            () = memory::exceeded() => Err(Stopped::now(FAILED)),
        };
        self.unheard.store(0, Ordering::SeqCst);
        done
    }
}

/// Waits for a signal, tells the command, and ends the process if that does not.
async fn stop_at_signal(
    tell: tokio::sync::oneshot::Sender<u8>,
    begun: std::sync::mpsc::SyncSender<()>,
) {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    // Whoever waits for it is there.
    let _ = begun.send(());
    let mut stop = async || {
        tokio::select! {
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
            () = memory::exceeded() => FAILED,
        }
    };
    let status = stop().await;
    // The command may be over.
    let _ = tell.send(status);
    let ends = async {
        // What takes memory takes some MiB in each millisecond.
        if status != FAILED {
            tokio::time::sleep(STOP_TIME).await;
        }
        writers_end().await;
    };
    tokio::select! {
        _ = stop() => {}
        () = ends => {}
    }
    if is_first_to_tell() {
        crate::output::tell(&format!("error: {}", Stopped::now(status)));
    }
    spill::remove();
    std::process::exit(i32::from(status));
}

/// Waits for writers that were dropped, which remove what they have begun; not for long.
pub async fn writers_end() {
    let mut waited = Duration::ZERO;
    while uplake_table::writers_at_work() > 0 && waited < WRITERS_STOP_TIME {
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
    }
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
        // The thread that watches signals sees to it that this does not take long.
        Err(error) if error.is::<Stopped>() => {
            if is_first_to_tell() {
                crate::output::tell(&format!("error: {error}"));
            }
            runtime.shutdown_timeout(WRITERS_STOP_TIME);
        }
        // Threads that still read a file must not hold up the exit; the system ends all of them. They are not told to
        // end before, either: `pthread_detach` of glibc looks at a thread once more when it is nobody's, and one that
        // has ended by then, with a stack as large as these, is not there to be looked at (seen with 2.36: SIGSEGV).
        _ => std::mem::forget(runtime),
    }
    spill::remove();
    result
}

/// Milliseconds since 1970, UTC. The one place where the clock is read.
pub fn now_millis() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// Libraries panic where they ask a clock that is before 1970 for the time; commits would be older than all others.
pub fn check_clock() -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "whether it can be asked at all")]
    let now = std::time::SystemTime::now();
    if now < std::time::UNIX_EPOCH {
        bail!("the clock of this machine says that it is before 1970: set it");
    }
    Ok(())
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
        crate::output::tell(&format!("warning: {warning}"));
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

/// Opens the lake and a session on it, which may do everything, also change who may connect to a server of it.
pub fn session(args: &LakeArgs, as_of: AsOf, limits: Limits) -> Result<Session> {
    let (lake, options) = session_options(args, as_of, limits)?;
    Ok(uplake_server::owner_session(lake, &options)?)
}

/// Opens the lake; how sessions on it are made.
pub fn session_options(
    args: &LakeArgs,
    as_of: AsOf,
    limits: Limits,
) -> Result<(Lake, SessionOptions)> {
    memory::watch(memory_bytes(args));
    let options = SessionOptions {
        memory_bytes: memory_bytes(args),
        threads: threads(args),
        as_of,
        spill_folder: Some(spill::folder().context("making a folder to spill to")?),
        use_indexes: !args.no_index,
        at_once: limits.at_once,
        timeout: limits.timeout.filter(|timeout| !timeout.is_zero()),
        clock: Arc::new(now_millis),
    };
    Ok((lake(args)?, options))
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

    #[test]
    fn a_statement_is_named_by_its_first_words() {
        assert_eq!(first_words("SELECT\n  1"), "SELECT 1");
        let long = "SELECT user_id, count(*) FROM events JOIN exposures USING (user_id) GROUP BY 1";
        assert_eq!(
            first_words(long),
            "SELECT user_id, count(*) FROM events JOIN exposures USING …"
        );
        assert_eq!(first_words(&"x".repeat(100)), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn what_is_stopped_is_said() {
        let statement = Some(("SELECT 1".to_owned(), Duration::from_millis(3210)));
        let stopped = Stopped { status: INTERRUPTED, statement };
        assert_eq!(stopped.to_string(), "cancelled after 3.2 s: SELECT 1");
        assert_eq!(Stopped { status: TERMINATED, statement: None }.to_string(), "cancelled");
    }
}
