//! What a data file adds up to for a pass, remembered between reports: data files never change.
//!
//! ```text
//! data file ─► runs of all its users ─┬─► those that count in this report
//!                                     └─► <cache>/<lake>/runs/<hash of the key>: magic, key, runs, CRC-32
//! ```
//!
//! The key is everything that the runs come from: the file, the values, the day's time zone, the table's
//! columns and the log that ids are from. Runs end where rows begin or cease to count for a user (see
//! [`runs`](super::runs)), so they serve every later report in which no first exposure, or other bound,
//! has moved into one; where one has, the file is read again, and its runs end there, too.
//!
//! # Invariants
//! - Reports are the same, byte for byte, with what is remembered and without.
//! - Only expressions whose value never changes are remembered: no `now()`, no subqueries, no sets.
//! - What is damaged, of another version or not all there is not there.
//! - At most [`SHELF_BYTES`] a lake; what was used longest ago goes first.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use futures::future::try_join_all;
use futures::{FutureExt, StreamExt, TryStreamExt};
use uplake_table::DataFile;

use super::exposed::Members;
use super::keys::{KeyKind, Keys};
use super::passes::Pass;
use super::runs::{Found, Item, Log, Run, Runs};
use super::{Divided, joined, key_first, reserve};
use crate::base::error::Result;
use crate::cache::shelf::Shelf;
use crate::engine::catalog::with_table;
use crate::engine::session::Session;
use crate::scan::lake_table::LakeTable;
use crate::sql::words::split_version;

/// The last byte is the version of the format, and of what expressions mean: since 3 casts to whole numbers round.
const MAGIC: &[u8; 8] = b"UPRUNS\n\x03";
/// Runs that are kept of a lake.
const SHELF_BYTES: u64 = 16 << 30;

impl Shelf {
    /// Hands over the runs of a key. `None` if they are not there, or `take` wants no more of them.
    fn load(
        &self,
        key: &str,
        now_millis: i64,
        take: impl FnMut(Run, &[Item]) -> bool,
    ) -> Option<()> {
        let path = self.path(key);
        let bytes = std::fs::read(&path).ok()?;
        decode(&bytes, key, take)?;
        if let Ok(file) = std::fs::File::options().append(true).open(&path) {
            // It says when it was used; without, it goes earlier.
            let since = Duration::from_millis(u64::try_from(now_millis).unwrap_or_default());
            let _ = file.set_modified(SystemTime::UNIX_EPOCH + since);
        }
        self.used.fetch_add(1, Ordering::Relaxed);
        Some(())
    }

    /// Ids and times at which the runs of a key end within a day, sorted.
    fn cuts(&self, key: &str) -> Vec<(u32, i64)> {
        let mut starts = Vec::new();
        let whole = std::fs::read(self.path(key)).ok().and_then(|bytes| {
            decode(&bytes, key, |run, _| {
                starts.push((run.id, run.day, run.first));
                true
            })
        });
        if whole.is_none() {
            return Vec::new();
        }
        starts.sort_unstable();
        let days = starts.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
        let mut cuts: Vec<(u32, i64)> =
            days.flat_map(|day| day[1..].iter().map(|(id, _, first)| (*id, *first))).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Keeps the runs of a key.
    ///
    /// # Errors
    /// If they cannot be written; then nothing is kept.
    fn save(&self, key: &str, logs: &[&Log]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let bytes = encode(key, logs);
        let mut staged = tempfile::NamedTempFile::new_in(&self.folder)?;
        staged.write_all(&bytes)?;
        staged.persist(self.path(key))?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes room.
    fn tidy(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let facts = entries.flatten().filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), entry.path()))
        });
        let mut files: Vec<(SystemTime, u64, PathBuf)> = facts.collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, of_file, path) in files {
            if bytes <= SHELF_BYTES {
                return;
            }
            if std::fs::remove_file(path).is_ok() {
                bytes -= of_file;
            }
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        // Keys that share a name push each other out, no more.
        self.folder.join(format!("{:08x}-{:x}", crc32fast::hash(key.as_bytes()), key.len()))
    }
}

/// What a pass found in some files, and the memory it is in; and its table with the other files.
pub(super) struct ByFile {
    pub found: Vec<(Found, MemoryReservation)>,
    pub others: Arc<LakeTable>,
    /// The table's, as plans have it.
    pub name: String,
}

impl Session {
    /// The runs of files one by one, remembered ones and those that will be. `None` if nothing is to be
    /// remembered, or that cannot be.
    pub(super) async fn by_file(
        &self,
        kind: &KeyKind,
        pass: &Arc<Pass>,
        keys: &Arc<Keys>,
        members: &Arc<Members>,
    ) -> Result<Option<ByFile>> {
        let (Some(shelf), KeyKind::Ids(ids)) = (&self.shelf, kind) else { return Ok(None) };
        if split_version(&pass.table).1.is_some() {
            return Ok(None);
        }
        let plan = self.definition_as_written(&pass.sql_of_all_times()).await?;
        let Some(name) = lasting_table(&plan) else { return Ok(None) };
        let Some(table) = self.catalog.find(&name).await? else { return Ok(None) };
        let times = match &pass.time {
            Some(time) => table.times(time),
            None => vec![None; table.files().len()],
        };
        let (mut alone, mut others) = (Vec::new(), Vec::new());
        for (file, times) in table.files().iter().zip(times) {
            if pass.takes_all_of(times) { &mut alone } else { &mut others }.push(file.clone());
        }
        let files = alone.into_iter().map(|file| {
            let key = key_of(pass, &table, ids, &file);
            let (pass, keys, members) = (Arc::clone(pass), Arc::clone(keys), Arc::clone(members));
            let runs =
                move || Runs::new(Arc::clone(&pass), Arc::clone(&keys), Arc::clone(&members));
            self.runs_of_file(kind, shelf, key, (&name, &table), file, runs).boxed()
        });
        let files: Vec<_> = files.collect();
        let logs: Vec<Option<Vec<(Log, MemoryReservation)>>> =
            futures::stream::iter(files).buffered(self.engine.budget.threads).try_collect().await?;
        let tidied = Arc::clone(shelf);
        SpawnedTask::spawn(async move { tidied.tidy() }).join().await.ok();
        let Some(logs) = logs.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut shares: Vec<(Vec<Log>, Vec<MemoryReservation>)> = Vec::new();
        shares.resize_with(self.engine.budget.threads, Default::default);
        for (log, memory) in logs.into_iter().flatten() {
            let bytes = |share: &(Vec<Log>, _)| share.0.iter().map(Log::bytes).sum::<usize>();
            if let Some(least) = shares.iter_mut().min_by_key(|share| bytes(share)) {
                least.0.push(log);
                least.1.push(memory);
            }
        }
        let sorted = shares.into_iter().map(|(logs, held)| {
            let (memory, ids) = (self.memory("runs of rows"), members.ids());
            async move {
                let bytes: usize = logs.iter().map(Log::bytes).sum();
                reserve(&memory, Found::bytes_besides(&logs, ids))?;
                let found = SpawnedTask::spawn(async move { Found::of_logs(logs, ids) });
                let found = joined(found.join().await.map(Ok))?;
                drop(held);
                reserve(&memory, memory.size() + bytes)?;
                Ok::<_, crate::base::error::EngineError>(found.map(|found| (found, memory)))
            }
        });
        let found = try_join_all(sorted).await?.into_iter().collect::<Option<Vec<_>>>();
        Ok(found.map(|found| ByFile { found, others: table.only(others), name }))
    }

    /// The runs of one file, from the shelf or else from its rows, whose runs are put there. `runs`
    /// makes what takes them in.
    async fn runs_of_file(
        &self,
        kind: &KeyKind,
        shelf: &Arc<Shelf>,
        key: Key,
        (name_in_plans, table): (&str, &LakeTable),
        file: DataFile,
        runs: impl Fn() -> Runs,
    ) -> Result<Option<Vec<(Log, MemoryReservation)>>> {
        let memory = self.memory("runs of rows");
        let (from, name, mut taken) = (Arc::clone(shelf), key.text.clone(), runs());
        let now = self.engine.budget.now_millis();
        let remembered = SpawnedTask::spawn(async move {
            let mut refused = Ok(());
            let mut count = 0;
            let take = |run: Run, items: &[Item]| {
                count += 1;
                if count % RUNS_A_RESERVATION == 0 {
                    refused = reserve(&memory, taken.bytes());
                }
                refused.is_ok() && taken.add_run(run, items)
            };
            let whole = from.load(&name, now, take);
            refused?;
            reserve(&memory, taken.bytes())?;
            Ok(whole.map(|()| (taken.into_logs().0, memory)))
        });
        if let Some(found) = joined(remembered.join().await)? {
            return Ok(Some(vec![found]));
        }
        // Where other reports' experiments have cut, so that they find what they need next time.
        let (from, name) = (Arc::clone(shelf), key.text.clone());
        let cuts = SpawnedTask::spawn(async move { Arc::new(from.cuts(&name)) });
        let cuts = joined(cuts.join().await.map(Ok))?;
        let of_file = Box::pin(self.definition_plan(&key.sql));
        let plan = with_table(name_in_plans, table.only(vec![file]), of_file).await?;
        let all = Divided { kind, share: None };
        let Some(plan) = key_first(&all, plan, false)? else { return Ok(None) };
        let mut tasks = Vec::new();
        for mut stream in self.run_partitions(&plan).await? {
            let mut runs = runs().of_everyone(Arc::clone(&cuts));
            let memory = self.memory("runs of rows");
            tasks.push(SpawnedTask::spawn(async move {
                while let Some(batch) = stream.try_next().await? {
                    runs.add(&batch)?;
                    reserve(&memory, runs.bytes())?;
                }
                Ok((runs.into_logs(), memory))
            }));
        }
        let mut parts = Vec::new();
        for task in tasks {
            parts.push(joined(task.join().await)?);
        }
        let to = Arc::clone(shelf);
        let kept = SpawnedTask::spawn(async move {
            let logs: Vec<&Log> =
                parts.iter().flat_map(|((log, others), _)| [log, others]).collect();
            let saved = to.save(&key.text, &logs);
            (parts, saved)
        });
        let (parts, saved) = joined(kept.join().await.map(Ok))?;
        if let Err(error) = saved {
            let folder = shelf.folder.display();
            let message = format!(
                "nothing can be remembered for the next report in {folder} ({error}); \
                 UPLAKE_CACHE names another folder"
            );
            self.warn("runs", &message);
        }
        let counting = parts.into_iter().map(|((log, others), memory)| {
            drop(others);
            memory.try_resize(log.bytes())?;
            Ok((log, memory))
        });
        counting.collect::<Result<Vec<_>>>().map(Some)
    }
}

/// Runs that are taken in before memory for more of them is asked for.
const RUNS_A_RESERVATION: usize = 1 << 14;

/// What the runs of a file come from.
struct Key {
    /// All of it.
    text: String,
    /// The statement.
    sql: String,
}

/// `ids`: the domain and log.
fn key_of(pass: &Pass, table: &LakeTable, ids: &str, file: &DataFile) -> Key {
    let DataFile { path, size, modified_millis, .. } = file;
    let snapshot = table.snapshot();
    let columns: Vec<String> = snapshot
        .schema()
        .fields()
        .iter()
        .map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect();
    let mut partition: Vec<_> = file.partition_values.iter().collect();
    partition.sort();
    let version = env!("CARGO_PKG_VERSION");
    let table = snapshot.table();
    let of_file = format!("{version}\n{table}\n{path} {size} {modified_millis}\n{partition:?}");
    let text = format!("{of_file}\n{columns:?}\n{ids}\n{}", pass.identity());
    Key { text, sql: pass.sql_of_all_times() }
}

/// The name of the table that a plan reads, if it reads nothing else and says the same of its rows for ever.
fn lasting_table(plan: &LogicalPlan) -> Option<String> {
    let mut tables = Vec::new();
    let mut lasting = true;
    let visited = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => tables.push(scan.table_name.table().to_owned()),
            LogicalPlan::Subquery(_) => lasting = false,
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                lasting &= match expr {
                    Expr::ScalarFunction(call) => {
                        call.func.signature().volatility == Volatility::Immutable
                    }
                    Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => false,
                    Expr::ScalarVariable(..) | Expr::Placeholder(_) => false,
                    _ => true,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    let [name] = <[String; 1]>::try_from(tables).ok()?;
    (visited.is_ok() && lasting).then_some(name)
}

/// How an item's sum is written.
const WHOLE: u64 = 0;
const PLAIN: u64 = 1;
const IN_TWO: u64 = 2;
const WAYS: u64 = 4;
/// Whole numbers below this are exact.
const WHOLE_MAX: f64 = (1u64 << 52) as f64;

fn encode(key: &str, logs: &[&Log]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put(&mut bytes, key.len() as u64);
    bytes.extend_from_slice(key.as_bytes());
    let runs: usize = logs.iter().map(|log| log.runs().count()).sum();
    put(&mut bytes, runs as u64);
    let mut before = Run::default();
    for (run, items) in logs.iter().flat_map(|log| log.runs()) {
        put(&mut bytes, folded(i64::from(run.id) - i64::from(before.id)));
        put(&mut bytes, folded(i64::from(run.day) - i64::from(before.day)));
        put(&mut bytes, folded(run.first.wrapping_sub(before.first)));
        put(&mut bytes, folded(run.last.wrapping_sub(run.first)));
        put(&mut bytes, items.len() as u64);
        for item in items {
            let value = u64::from(item.value) * WAYS;
            if item.lost == 0.0 && item.sum.fract() == 0.0 && item.sum.abs() < WHOLE_MAX {
                put(&mut bytes, value + WHOLE);
                put(&mut bytes, folded(item.sum as i64));
            } else if item.lost == 0.0 {
                put(&mut bytes, value + PLAIN);
                bytes.extend_from_slice(&item.sum.to_le_bytes());
            } else {
                put(&mut bytes, value + IN_TWO);
                bytes.extend_from_slice(&item.sum.to_le_bytes());
                bytes.extend_from_slice(&item.lost.to_le_bytes());
            }
        }
        before = *run;
    }
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], key: &str, mut take: impl FnMut(Run, &[Item]) -> bool) -> Option<()> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let mut rest = body.strip_prefix(MAGIC.as_slice())?;
    let length = usize::try_from(get(&mut rest)?).ok()?;
    let (its_key, mut rest) = rest.split_at_checked(length)?;
    if its_key != key.as_bytes() || crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut run = Run::default();
    let mut items = Vec::new();
    for _ in 0..get(&mut rest)? {
        run.id = u32::try_from(i64::from(run.id) + unfolded(get(&mut rest)?)).ok()?;
        run.day = i32::try_from(i64::from(run.day) + unfolded(get(&mut rest)?)).ok()?;
        run.first = run.first.wrapping_add(unfolded(get(&mut rest)?));
        run.last = run.first.wrapping_add(unfolded(get(&mut rest)?));
        items.clear();
        for _ in 0..get(&mut rest)? {
            let what = get(&mut rest)?;
            let value = u16::try_from(what / WAYS).ok()?;
            let (sum, lost) = match what % WAYS {
                WHOLE => (unfolded(get(&mut rest)?) as f64, 0.0),
                PLAIN => (number(&mut rest)?, 0.0),
                IN_TWO => (number(&mut rest)?, number(&mut rest)?),
                _ => return None,
            };
            items.push(Item { value, sum, lost });
        }
        if !take(run, &items) {
            return None;
        }
    }
    rest.is_empty().then_some(())
}

/// Small numbers of either sign as small ones.
fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// LEB128.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn number(bytes: &mut &[u8]) -> Option<f64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(f64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::one_scan::passes::NO_TIME;

    type Seen = Vec<(u32, i32, i64, i64, Vec<(u16, f64, f64)>)>;

    fn seen(bytes: &[u8], key: &str) -> Option<Seen> {
        let mut all = Vec::new();
        decode(bytes, key, |run, items| {
            let items = items.iter().map(|item| (item.value, item.sum, item.lost)).collect();
            all.push((run.id, run.day, run.first, run.last, items));
            true
        })?;
        Some(all)
    }

    fn log(runs: &Seen) -> Log {
        let mut log = Log::default();
        for (id, day, first, last, items) in runs {
            let mut run = Run::default();
            (run.id, run.day, run.first, run.last) = (*id, *day, *first, *last);
            let items = items.iter().map(|&(value, sum, lost)| Item { value, sum, lost });
            log.push(run, items);
        }
        log
    }

    #[test]
    fn runs_come_back_bit_by_bit_and_never_from_damaged_bytes() {
        let first: Seen = vec![
            (7, 20_000, 5, 9, vec![(0, 3.0, 0.0), (2, 0.1, 0.0), (u16::MAX, 1e300, -1e-40)]),
            (8, -3, NO_TIME, NO_TIME, vec![]),
            (0, i32::MIN, i64::MAX - 1, i64::MAX - 1, vec![(1, -0.5, 0.0), (2, -7.0, 1e-30)]),
        ];
        let second: Seen = vec![
            (u32::MAX - 1, i32::MAX, i64::MIN + 1, i64::MAX, vec![(3, f64::INFINITY, 0.0)]),
            (3, 0, 0, 0, vec![(0, WHOLE_MAX, 0.0), (1, WHOLE_MAX - 1.0, 0.0), (2, 1e22, 0.0)]),
        ];
        let bytes = encode("key", &[&log(&first), &log(&second)]);
        let all: Seen = first.into_iter().chain(second).collect();
        assert_eq!(seen(&bytes, "key"), Some(all));
        assert_eq!(seen(&bytes, "kez"), None);
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert_eq!(seen(&damaged, "key"), None, "byte {place}");
            assert_eq!(seen(&bytes[..place], "key"), None, "{place} bytes");
        }
        assert_eq!(decode(&bytes, "key", |_, _| false), None, "nobody wants it");
    }

    #[test]
    fn not_a_number_comes_back() {
        let runs = vec![(1, 2, 3, 4, vec![(5, f64::NAN, f64::NAN)])];
        let found = seen(&encode("k", &[&log(&runs)]), "k").expect("it is whole");
        assert!(found[0].4[0].1.is_nan() && found[0].4[0].2.is_nan());
    }
}
