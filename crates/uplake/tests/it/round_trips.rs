//! What a statement asks of a bucket, request by request: how many there are decides how long it takes.

use std::path::Path;
use std::process::{Command, Stdio};

use uplake_faulty_s3::{Asked, Faults, Server};

const DAYS: usize = 6;
const ROWS_A_DAY: u64 = 30_000;

struct Bucket {
    server: Server,
    folder: tempfile::TempDir,
}

impl Bucket {
    async fn start() -> Self {
        // Late enough that what is asked at once is under way at once.
        let faults = Faults { median_ms: 20.0, ..Faults::none(9) };
        let server = Server::start(1, faults).await.expect("a free port");
        Self { server, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Runs a command on the machine that keeps its caches in `machine`, and returns what it said and
    /// asked.
    fn run(&self, machine: &str, arguments: &[&str]) -> (String, Vec<Asked>) {
        self.server.take_log();
        let done = Command::new(env!("CARGO_BIN_EXE_uplake"))
            .env_clear()
            .env("AWS_ENDPOINT", self.server.endpoint())
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "anybody")
            .env("AWS_SECRET_ACCESS_KEY", "anything")
            .env("UPLAKE_CACHE", self.folder.path().join(machine))
            // Without hedges the number of requests does not depend on the machine's load.
            .env("UPLAKE_STORAGE_HEDGE_BUDGET", "0")
            .env("UPLAKE_STORAGE_DISK_CACHE", "256MiB")
            .current_dir(self.folder.path())
            .args(arguments)
            .args(["--lake", "s3://bucket/lake", "--threads", "2", "--memory", "1G"])
            .stdin(Stdio::null())
            .output()
            .expect("the command runs");
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "uplake {arguments:?}: {errors}");
        (String::from_utf8(done.stdout).expect("text"), self.server.take_log())
    }

    fn sql(&self, machine: &str, sql: &str) -> (String, Vec<Asked>) {
        self.run(machine, &["sql", "--format", "csv", "-c", sql])
    }

    /// A table of a file per day, each with columns of some hundred KiB.
    fn load(&self, table: &str, options: &[&str]) {
        let path = write_rows(self.folder.path());
        let load = ["load", table, &path, "--partition-by", "day"];
        self.run("loader", &[&load, options].concat());
    }
}

fn write_rows(folder: &Path) -> String {
    let mut text = String::from("user,day,value,other\n");
    for row in 0..ROWS_A_DAY * DAYS as u64 {
        let random = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let day = 1 + row as usize % DAYS;
        text.push_str(&format!("{},2026-11-0{day},{},{}\n", random % 5000, random, random ^ row));
    }
    let path = folder.join("rows.csv");
    std::fs::write(&path, text).expect("space");
    path.to_str().expect("text").to_owned()
}

fn count(asked: &[Asked], method: &str, part: &str) -> usize {
    asked.iter().filter(|a| a.method == method && a.key.contains(part)).count()
}

fn counter(explained: &str, name: &str) -> u64 {
    let row = explained.lines().find(|line| line.contains("Storage")).expect("a row of the store");
    let mut parts = row.split([' ', ',', '"']);
    let text = parts.find_map(|part| part.strip_prefix(name));
    text.map_or(0, |number| number.parse().expect("a number"))
}

const SUM: &str = "select sum(value % 1000), count(distinct \"user\") from t";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_read_once_and_its_commits_are_kept() {
    let bucket = Bucket::start().await;
    bucket.load("t", &[]);
    bucket.load("t", &[]);
    let (first, asked) = bucket.sql("reader", SUM);
    let log = |asked: &[Asked], method: &str| count(asked, method, "_delta_log");
    // The list, what is not there (`_last_checkpoint`), and each commit once.
    assert_eq!((log(&asked, "GET"), log(&asked, "HEAD")), (4, 0), "{asked:#?}");
    assert_eq!(count(&asked, "GET", "lake.json"), 1);
    let (again, asked) = bucket.sql("reader", SUM);
    assert_eq!(first, again);
    // Is the last commit still that one, and is there no next?
    let what = "the list and the commits are kept";
    assert_eq!((log(&asked, "GET"), log(&asked, "HEAD")), (0, 2), "{what}: {asked:#?}");
    assert_eq!(count(&asked, "GET", ".parquet"), 0, "and so are the files");
    assert_eq!(asked.len(), 3, "{asked:#?}");

    bucket.load("t", &[]);
    let (more, asked) = bucket.sql("reader", SUM);
    assert_ne!(more, first);
    let looks = (log(&asked, "GET"), log(&asked, "HEAD"));
    assert_eq!(looks, (3, 2), "there is a next; then as at first, with one commit: {asked:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_made_again_is_read_anew() {
    let bucket = Bucket::start().await;
    for round in 0..3 {
        bucket.sql("writer", "create table t (k int)");
        bucket.sql("writer", &format!("insert into t values ({round}), (7)"));
        let (rows, _) = bucket.sql("reader", "select k from t order by k");
        assert_eq!(rows, format!("k\n{round}\n7\n"), "as it is now");
        bucket.sql("writer", "drop table t");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn footers_and_columns_of_all_files_are_asked_for_at_once() {
    let bucket = Bucket::start().await;
    bucket.load("t", &["--index", "user"]);
    let explained = format!("explain analyze {SUM}");
    let (cold, asked) = bucket.sql("reader", &explained);
    let files = DAYS;
    // A footer and the two columns of each file; nothing twice, nothing else.
    assert_eq!(count(&asked, "GET", ".parquet"), 2 * files, "{asked:#?}");
    assert_eq!(counter(&cold, "requests="), 2 * files as u64, "{cold}");
    assert!(counter(&cold, "rounds=") <= 3, "one after the other: {cold}");
    let (warm, _) = bucket.sql("reader", &explained);
    assert_eq!(counter(&warm, "requests="), 0, "{warm}");

    // With an index: footers of files and indexes, then dictionaries, then pages.
    let few = format!("explain analyze {SUM} where \"user\" = 17");
    let (cold, asked) = bucket.sql("other", &few);
    assert!(counter(&cold, "rounds=") <= 5, "one after the other: {cold}, {asked:#?}");
    // And answers are those of one who reads all.
    let few = format!("{SUM} where \"user\" = 17");
    let (found, _) = bucket.sql("other", &few);
    assert_eq!(found, bucket.run("third", &["sql", "--no-index", "--format", "csv", "-c", &few]).0);
    let (found, _) = bucket.sql("fourth", SUM);
    assert_eq!(found, bucket.run("third", &["sql", "--no-index", "--format", "csv", "-c", SUM]).0);
}
