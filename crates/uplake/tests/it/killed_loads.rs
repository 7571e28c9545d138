//! A load into a bucket that is killed at any of its requests loses nothing and doubles nothing.
//!
//! The server falls silent after its N-th request, with and without the next one taking effect; the
//! process is killed; the server answers again. Then the table is as it was or has all rows of the
//! load, and the same load with the same label brings it to exactly one copy of them.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use uplake_faulty_s3::{Faults, Server};

const ROWS: u64 = 300;
/// More requests than a load of [`ROWS`] makes.
const MOST_REQUESTS: u64 = 200;
/// One lake of so many is tidied and checked in the end.
const CHECKED: u64 = 8;
const POLL: Duration = Duration::from_millis(1);

struct Bucket {
    server: Server,
    folder: tempfile::TempDir,
    /// Two loads: half of their users are the same.
    files: [String; 2],
}

impl Bucket {
    async fn start() -> Self {
        let server = Server::start(1, Faults::none(6)).await.expect("a free port");
        let folder = tempfile::tempdir().expect("a folder");
        let files = [0, 1].map(|load| write_rows(folder.path(), load));
        Self { server, folder, files }
    }

    fn command(&self, lake: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uplake"));
        command
            .env_clear()
            .env("AWS_ENDPOINT", self.server.endpoint())
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "anybody")
            .env("AWS_SECRET_ACCESS_KEY", "anything")
            .env("UPLAKE_CACHE", self.folder.path().join("cache"))
            .current_dir(self.folder.path())
            .args(arguments)
            .args(["--lake", lake, "--threads", "2", "--memory", "512M"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, lake: &str, arguments: &[&str]) -> String {
        // Blocks this thread; the server has two others.
        let done = self.command(lake, arguments).output();
        let Output { status, stdout, stderr } = done.expect("the command runs");
        let errors = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "uplake {arguments:?} on {lake}: {errors}");
        String::from_utf8(stdout).expect("text")
    }

    /// The table's rows, users, and sum of values.
    fn count(&self, lake: &str) -> String {
        let query = "select count(*), count(distinct user_id), sum(value) from t";
        let text = self.run(lake, &["sql", "--format", "csv", "-c", query]);
        text.lines().nth(1).expect("a row").to_owned()
    }

    /// Runs until the server is silent, then kills; false if the command was done before.
    async fn run_until_silent(&self, lake: &str, arguments: &[&str]) -> bool {
        let mut child = self.command(lake, arguments).spawn().expect("the command runs");
        loop {
            if self.server.is_silent() {
                child.kill().expect("it runs");
                child.wait().expect("it was killed");
                return true;
            }
            if let Some(status) = child.try_wait().expect("it was started") {
                assert!(status.success(), "uplake {arguments:?} failed before it was killed");
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Rows of the users of both loads, `u<n>`, and of one's own, `u<load>-<n>`.
fn write_rows(folder: &Path, load: u64) -> String {
    let mut text = String::from("user_id,day,value\n");
    for row in 0..ROWS {
        let user = if row % 2 == 0 { format!("u{row}") } else { format!("u{load}-{row}") };
        text.push_str(&format!("{user},2026-11-0{},{}\n", 1 + row % 2, row + 1));
    }
    let path = folder.join(format!("load-{load}.csv"));
    std::fs::write(&path, text).expect("space");
    path.to_str().expect("text").to_owned()
}

/// Kills a load at its first request, its second, …, until it is done before that.
async fn kill_at_every_request(bucket: &Bucket, options: &[&str], before: &str, after: &str) {
    let [first, second] = &bucket.files;
    let second = ["load", "t", second, "--label", "second"];
    for effect in [false, true] {
        for requests in 0..MOST_REQUESTS {
            let at = format!("killed at request {requests}, which took effect: {effect}");
            let lake = &format!("s3://bucket/{effect}-{requests}");
            bucket.run(lake, &[&["load", "t", first, "--label", "first"], options].concat());
            bucket.server.stop_after(requests, effect);
            let killed = bucket.run_until_silent(lake, &second).await;
            bucket.server.resume();
            let found = bucket.count(lake);
            assert!(found == after || (killed && found == before), "{at}: {found}");
            bucket.run(lake, &second);
            assert_eq!(bucket.count(lake), after, "{at}, and loaded again");
            if requests % CHECKED == 0 {
                bucket.run(lake, &["table", "compact", "t"]);
                // What was killed left a mark; it protects nothing that a commit names.
                bucket.run(lake, &["table", "vacuum", "t", "--retain", "0s"]);
                bucket.run(lake, &["table", "check", "t"]);
                assert_eq!(bucket.count(lake), after, "{at}, and tidied");
            }
            if !killed {
                assert!(requests > 10, "a load makes more than {requests} requests");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_killed_at_any_request_are_whole_or_not_there() {
    let bucket = Bucket::start().await;
    let options = ["--id-domain", "user_id=users", "--index", "user_id", "--partition-by", "day"];
    kill_at_every_request(&bucket, &options, "300,300,45150", "600,450,90300").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_loads_killed_at_any_request_keep_one_row_of_each_key() {
    let bucket = Bucket::start().await;
    let options = ["--primary-key", "user_id"];
    // Values of the users of both, 1 + 3 + … + 299, and twice those of one load's own.
    kill_at_every_request(&bucket, &options, "300,300,45150", "450,450,67800").await;
}
