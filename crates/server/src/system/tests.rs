use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use futures::TryStreamExt;
use uplake_engine::{
    Additions, Answer, Engine, RunOptions, Session, SessionOptions, SharedMemory, parse,
};
use uplake_table::AsOf;

use super::*;
use crate::access::{Access, Document, Role};
use crate::failure::Failure;
use crate::labels::Labels;
use crate::limits::Quotas;
use crate::statements::{Before, Client, Clock, Protocol};

/// 2026-11-01, 00:00 UTC.
const NOW: i64 = 1_793_491_200_000;

fn client(role: &str) -> Client {
    Client {
        by_token: false,
        role: role.into(),
        tenant: "team".into(),
        protocol: Protocol::Http,
        application: "test".into(),
        address: "127.0.0.1:1".into(),
        labels: Labels::new(),
        before: Before::default(),
    }
}

struct Server {
    statements: Arc<Statements>,
    system: Arc<System>,
    engine: Arc<Engine>,
}

impl Server {
    fn new(folder: &std::path::Path, access: Access, node: &str, history: bool) -> Self {
        Self::at(folder, access, node, history, NOW)
    }

    fn at(folder: &std::path::Path, access: Access, node: &str, history: bool, now: i64) -> Self {
        let clock: Arc<dyn Fn() -> i64 + Send + Sync> = Arc::new(move || now);
        let quotas = Quotas::new(Arc::default(), Arc::clone(&clock), Prices::default());
        let compute = tokio::runtime::Handle::current();
        let statements = Statements::new(&compute, Clock(clock), quotas);
        let document = Document { number: 1, at: 0, by: "test".into(), access };
        let lake = Lake::open(folder.to_str().unwrap()).unwrap();
        let from = Sources {
            lake: lake.clone(),
            statements: Arc::clone(&statements),
            directory: Arc::new(Directory::from(document)),
            roll: Arc::default(),
            prices: Prices { storage: None, core_hour: 3600.0 },
            settings: vec![("database", "lake".into())],
            node: node.into(),
            history,
        };
        let system = Arc::new(System::new(from).unwrap());
        let options = SessionOptions {
            memory_bytes: 256 << 20,
            threads: 2,
            as_of: AsOf::Latest,
            spill_folder: None,
            use_indexes: true,
            at_once: None,
            timeout: None,
            clock: Arc::new(move || now),
        };
        let schemas: Vec<Arc<dyn AddedSchema>> = vec![Arc::<System>::clone(&system)];
        let additions = Additions { schemas, ..Additions::default() };
        let memory = SharedMemory::new(options.memory_bytes);
        let engine = Engine::with_additions(lake, &options, &memory, additions).unwrap();
        Self { statements, system, engine }
    }

    /// Makes the lake, which nobody else does.
    async fn begin(&self) {
        self.session("admin").query("CREATE TABLE here AS SELECT 1 AS n").await.unwrap();
    }

    fn session(&self, role: &str) -> Session {
        let session = self.engine.session();
        session.set_fact(USER, Some(role));
        session
    }

    /// The rows of a query that is not listed.
    async fn look(&self, role: &str, text: &str) -> RecordBatch {
        let batches = self.session(role).query(text).await.unwrap();
        let schema = batches[0].schema();
        arrow::compute::concat_batches(&schema, &batches).unwrap()
    }

    async fn number(&self, role: &str, text: &str) -> i64 {
        let rows = self.look(role, text).await;
        rows.column(0).as_primitive::<Int64Type>().value(0)
    }

    /// Runs a statement as a client does.
    async fn run(&self, role: &str, text: &str) {
        let running = self.statements.begin(client(role), text);
        let (session, progress) = (self.session(role), running.progress());
        let text = text.to_owned();
        let rows = running.compute(async move {
            let mut rows = 0;
            for statement in parse(&text)? {
                let options =
                    RunOptions { progress: Some(progress.clone()), ..RunOptions::default() };
                if let Answer::Rows { stream, .. } = session.run_with(&statement, options).await? {
                    let batches: Vec<RecordBatch> =
                        stream.try_collect().await.map_err(EngineError::from)?;
                    rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
                }
            }
            Ok(rows)
        });
        let rows = rows.await.unwrap_or_default();
        running.sent(rows as u64, 0);
    }
}

fn users() -> Access {
    let mut access = Access::default();
    for name in ["ann", "bob", "watch"] {
        access.add_role(name, Role { login: true, ..Role::default() }).unwrap();
    }
    access.grant_role("monitor", "watch").unwrap();
    access
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_sees_its_own_rows_and_monitors_all() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), users(), "n", true);
    server.begin().await;
    let failed = server.statements.begin(client("ann"), "SELECT 1/0");
    failed.failed(&Failure::new("22012", "division by zero"));
    drop(failed);
    for is_kept in [false, true] {
        if is_kept {
            server.system.keep().await.unwrap();
            // Another process has only what is in the lake.
            let other = Server::new(folder.path(), users(), "other", true);
            // The one that failed, and the one of the round before.
            let count = other.number("ann", "SELECT count(*) FROM system.queries").await;
            assert_eq!(count, 2);
            let none = other.number("bob", "SELECT count(*) FROM system.queries").await;
            assert_eq!(none, 0);
        }
        let running = server.statements.begin(client("ann"), "SELECT 1");
        for (role, count) in [("ann", 1), ("bob", 0), ("watch", 1), ("nobody", 0)] {
            for table in ["running", "queries WHERE sqlstate = '22012'"] {
                let text = format!("SELECT count(*) FROM system.{table}");
                assert_eq!(server.number(role, &text).await, count, "{role} {table}");
            }
        }
        drop(running);
    }
    let open = Server::new(folder.path(), Access::default(), "open", false);
    drop(open.statements.begin(client("ann"), "SELECT 1"));
    assert_eq!(open.number("admin", "SELECT count(*) FROM system.queries").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_is_there_once_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), Access::default(), "one", true);
    drop(server.statements.begin(client("ann"), "-- before there is a lake"));
    server.system.keep().await.unwrap();
    assert!(!folder.path().join("_uplake").exists());
    server.begin().await;
    let mut expected = 1;
    for round in 0..3 {
        for number in 0..5 {
            drop(server.statements.begin(client("ann"), &format!("-- {round} {number}")));
            expected += 1;
            let text = "SELECT count(*), count(DISTINCT text) FROM system.queries";
            let rows = server.look("admin", text).await;
            let of = |at: usize| rows.column(at).as_primitive::<Int64Type>().value(0);
            assert_eq!((of(0), of(1)), (expected, expected), "round {round}, {number}");
        }
        server.system.keep().await.unwrap();
        assert_eq!(server.number("admin", "SELECT count(*) FROM system.queries").await, expected);
    }
    // A process that comes after it has all of them, and its own.
    let next = Server::new(folder.path(), Access::default(), "two", true);
    drop(next.statements.begin(client("ann"), "SELECT 'next'"));
    let day = "SELECT count(*) FROM system.queries WHERE dt = DATE '2026-11-01'";
    assert_eq!(next.number("admin", day).await, expected + 1);
    let no_day = "SELECT count(*) FROM system.queries WHERE dt = DATE '2026-11-02'";
    assert_eq!(next.number("admin", no_day).await, 0);
    let mine = "SELECT count(*) FROM system.queries WHERE text LIKE '%next%'";
    assert_eq!(next.number("admin", mine).await, 1);
    // The lake's own tables are what they were.
    assert_eq!(next.engine.session().lake().table_names().await.unwrap(), ["here"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_long_ago_go() {
    let folder = tempfile::tempdir().unwrap();
    let day = 86_400_000;
    let count = "SELECT count(*) FROM system.queries";
    for (node, now) in [("a", NOW), ("b", NOW + 20 * day)] {
        let server = Server::at(folder.path(), Access::default(), node, true, now);
        if node == "a" {
            server.begin().await;
        }
        for text in ["SELECT 1", "SELECT 2"] {
            drop(server.statements.begin(client("ann"), text));
            server.system.keep().await.unwrap();
        }
        server.system.tidy().await.unwrap();
    }
    let later = Server::at(folder.path(), Access::default(), "c", true, NOW + 31 * day);
    assert_eq!(later.number("admin", count).await, 4);
    later.system.tidy().await.unwrap();
    assert_eq!(later.number("admin", count).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_that_cannot_be_written_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), Access::default(), "n", true);
    server.begin().await;
    // Where the table's folder should be is a file.
    std::fs::create_dir_all(folder.path().join("_uplake/system")).unwrap();
    std::fs::write(folder.path().join("_uplake/system/queries"), "").unwrap();
    drop(server.statements.begin(client("ann"), "SELECT 1"));
    assert!(server.system.keep().await.is_err());
    assert_eq!(server.number("admin", "SELECT count(*) FROM system.queries").await, 1);
    assert_eq!(server.system.lost(), 0);
}

/// What statements are told to have cost adds up to what the process has counted.
#[tokio::test(flavor = "multi_thread")]
async fn what_statements_cost_adds_up_to_what_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    check_costs(folder.path()).await;
    // As in a bucket: a statement begins before it knows its snapshot, and a writer leaves a mark.
    check_costs(std::path::Path::new("memory:///lake")).await;
}

async fn check_costs(lake: &std::path::Path) {
    let server = Server::new(lake, Access::default(), "n", false);
    let storage = Arc::clone(server.engine.session().lake().storage());
    let before = storage.total();
    for text in [
        "CREATE TABLE t AS SELECT value AS k, value % 7 AS g, CAST(value AS TEXT) AS s \
         FROM generate_series(1, 200000)",
        "/*experiment='x',metric='m'*/ SELECT g, count(*), sum(k), min(s) FROM t GROUP BY g",
        "SELECT a.k FROM t a JOIN t b ON a.k = b.k WHERE a.g = 3 ORDER BY a.s LIMIT 10",
        "INSERT INTO t SELECT k, g, s FROM t WHERE g = 1",
        "SELECT count(DISTINCT s) FROM t",
        "SELECT nothing FROM t",
    ] {
        server.run("ann", text).await;
    }
    let counted = storage.total().since(&before);
    let sums = "SELECT sum(bytes_store), sum(bytes_written), sum(gets), sum(puts), sum(lists), \
                sum(bytes_asked), sum(rows_read), sum(memory_peak), sum(deletes) \
                FROM system.queries";
    let rows = server.look("admin", sums).await;
    let of = |at: usize| rows.column(at).as_primitive::<Int64Type>().value(0) as u64;
    for (at, expected) in [
        (0, counted.bytes_read),
        (1, counted.bytes_written),
        (2, counted.gets),
        (3, counted.puts),
        (4, counted.lists),
        (5, counted.bytes_asked),
        (8, counted.deletes),
    ] {
        assert!(of(at).abs_diff(expected) * 100 <= expected, "{at}: {} of {expected}", of(at));
    }
    assert!(of(2) > 0 && of(3) > 0);
    assert!(counted.bytes_read > 100_000 && counted.gets > 10, "{counted}");
    assert!(of(6) > 400_000 && of(7) > 0);
    let costs = "SELECT statements, compute_s, dollars, bytes FROM system.costs \
                 WHERE experiment = 'x' AND metric = 'm' AND tenant = 'team'";
    let rows = server.look("admin", costs).await;
    assert_eq!((rows.num_rows(), rows.column(0).as_primitive::<Int64Type>().value(0)), (1, 1));
    let real = |at: usize| rows.column(at).as_primitive::<Float64Type>().value(0);
    assert!(real(1) > 0.0 && (real(1) - real(2)).abs() < 1e-9, "a second costs a dollar here");
    assert!(rows.column(3).as_primitive::<Int64Type>().value(0) > 0);
    let sum = "SELECT CAST(sum(statements) AS BIGINT) FROM system.costs";
    assert_eq!(server.number("admin", sum).await, 6);
    let tables = "SELECT CAST(sum(rows) AS BIGINT) FROM system.tables";
    assert!(server.number("admin", tables).await > 200_000);
    let files = server.number("admin", "SELECT count(*) FROM system.files").await;
    let in_tables = "SELECT CAST(sum(files) AS BIGINT) FROM system.tables";
    assert_eq!(files, server.number("admin", in_tables).await);
    let failed = "SELECT sqlstate FROM system.queries WHERE error IS NOT NULL";
    let failed = server.look("admin", failed).await;
    assert_eq!(failed.column(0).as_string::<i32>().value(0), "42703");
    let noted = server.look("admin", "SELECT action FROM system.audit ORDER BY number").await;
    let noted: Vec<_> = noted.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(noted, ["ddl", "write"]);
}
