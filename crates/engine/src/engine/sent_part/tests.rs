//! What a worker refuses, whoever sends it: everything that is not a plan of tables of its lake at their versions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion_proto::protobuf::logical_expr_node::ExprType;
use datafusion_proto::protobuf::logical_plan_node::LogicalPlanType;
use datafusion_proto::protobuf::{
    ListingTableScanNode, LogicalExprNode, LogicalPlanNode, ScalarSubqueryExprNode, SubqueryNode,
};
use prost::Message;

use super::*;
use crate::engine::parts::HereInParts;
use crate::engine::session::for_tests;
use crate::portable::bytes::Writer;
use crate::portable::elsewhere::{Asked, Elsewhere, NothingShuffled, Placed, Undivided, Wanted};
use crate::portable::fragment::Header;
use crate::portable::share::Divided;

const DATA: [&str; 4] = [
    "CREATE TABLE events (user_id TEXT, kind TEXT, n BIGINT, ts TIMESTAMP) \
     CLUSTERED BY (user_id) ID DOMAINS (user_id users)",
    "INSERT INTO events SELECT 'u' || (x % 97), CASE WHEN x % 3 = 0 THEN 'buy' ELSE 'view' END, x, \
     TIMESTAMP '2026-11-01 00:00:00' FROM generate_series(1, 3000) g(x)",
    "CREATE TABLE plain AS SELECT x % 7 AS kind, x * 1.5 AS amount FROM generate_series(1, 500) g(x)",
    "CREATE TABLE kinds AS SELECT * FROM (VALUES ('buy'), ('other')) k(kind)",
];
const STATEMENTS: [&str; 6] = [
    "SELECT kind, count(*), sum(n), count(DISTINCT user_id), avg(n) FROM events GROUP BY kind",
    "SELECT user_id, count(*) c FROM events WHERE n > 5 GROUP BY user_id ORDER BY c DESC, user_id LIMIT 4",
    "SELECT lag(n) OVER (PARTITION BY user_id ORDER BY n) FROM events WHERE kind IN ('buy', 'x')",
    "SELECT kind, sum(amount) FROM plain GROUP BY kind",
    "SELECT e.kind, count(*) FROM events e LEFT JOIN kinds k ON e.kind = k.kind GROUP BY e.kind",
    "SELECT count(*) FROM events WHERE n > (SELECT max(amount) FROM plain) OR upper(kind) LIKE 'B%'",
];

/// Hears what parts are told.
#[derive(Debug)]
struct Heard {
    here: HereInParts,
    told: Mutex<Vec<(Bytes, Vec<Share>)>>,
}

impl Elsewhere for Heard {
    fn whole_rows(&self) -> u64 {
        self.here.whole_rows()
    }

    fn divide(&self, wanted: &Wanted<'_>) -> Result<Vec<Placed>, Undivided> {
        self.here.divide(wanted)
    }

    fn of(&self, warehouse: &str) -> Arc<dyn Elsewhere> {
        self.here.of(warehouse)
    }

    fn too_little(&self, rows: u64, remote_bytes: u64) -> Option<String> {
        self.here.too_little(rows, remote_bytes)
    }

    fn rows(&self, asked: Asked) -> PartRows {
        let shares = asked.parts.iter().map(|part| part.share.clone()).collect();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push((asked.fragment.bytes.clone(), shares));
        drop(told);
        self.here.rows(asked)
    }
}

/// What parts of these statements are told, and a session that computes some for others.
async fn told(folder: &std::path::Path) -> (Vec<(Bytes, Vec<Share>)>, Session) {
    let first = for_tests(folder, true);
    for sql in DATA {
        first.query(sql).await.unwrap();
    }
    let here = HereInParts { parts: 3, whole_rows: 100 };
    let heard = Arc::new(Heard { here, told: Mutex::default() });
    let asks = for_tests(folder, true).with_elsewhere(Arc::<Heard>::clone(&heard));
    for sql in STATEMENTS {
        asks.query(sql).await.unwrap();
    }
    let told = std::mem::take(&mut *heard.told.lock().unwrap());
    assert_eq!(told.len(), STATEMENTS.len(), "each is computed in parts");
    (told, for_tests(folder, true).for_parts())
}

fn nothing() -> Arc<dyn Shuffled> {
    Arc::new(NothingShuffled)
}

/// The rows of a part, or why there are none.
async fn answer(worker: &Session, bytes: &[u8], share: &Share) -> Result<String, String> {
    answer_within(Duration::from_secs(20), worker, bytes, share).await
}

async fn answer_within(
    limit: Duration,
    worker: &Session,
    bytes: &[u8],
    share: &Share,
) -> Result<String, String> {
    let part =
        worker.read_part(bytes, share, &nothing()).await.map_err(|error| error.to_string())?;
    let options = RunOptions { timeout: Some(limit), ..Default::default() };
    let rows =
        worker.run_part(&part, "a part", options).await.map_err(|error| error.to_string())?;
    let rows: Vec<_> = rows.try_collect().await.map_err(|error| error.to_string())?;
    let shown = pretty_format_batches(&rows).map_err(|error| error.to_string())?.to_string();
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

/// An expression with DataFusion's own plan of a file.
fn reads_a_file(path: &str) -> Vec<u8> {
    let scan = ListingTableScanNode { paths: vec![path.to_owned()], ..Default::default() };
    let plan = LogicalPlanNode { logical_plan_type: Some(LogicalPlanType::ListingScan(scan)) };
    let subquery = SubqueryNode { subquery: Some(Box::new(plan)), ..Default::default() };
    let subquery = ScalarSubqueryExprNode { subquery: Some(Box::new(subquery)) };
    let expr = ExprType::ScalarSubqueryExpr(Box::new(subquery));
    LogicalExprNode { expr_type: Some(expr) }.encode_to_vec()
}

type Change = fn(&mut Header, &mut Vec<u8>);

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_anything_but_tables_of_the_lake_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lake = folder.path().join("lake");
    let (told, worker) = told(&lake).await;
    let (bytes, shares) = &told[0];
    answer(&worker, bytes, &shares[0]).await.unwrap();
    // Another lake beside it, with the same table.
    let other = for_tests(&folder.path().join("other"), true);
    for sql in &DATA[..2] {
        other.query(sql).await.unwrap();
    }
    std::fs::write(lake.join("secret.csv"), "a,b\n1,2\n").unwrap();
    let changes: Vec<(&str, Change, &str)> = vec![
        ("another lake", |h, _| h.pins[0].table = "../other/events".into(), "holds `.`"),
        ("a folder of the machine", |h, _| h.pins[0].table = "/etc".into(), "holds `/`"),
        ("a file of the machine", |h, _| h.pins[0].table = "/etc/passwd".into(), "holds `/`"),
        ("a URL", |h, _| h.pins[0].table = "file:///etc/passwd".into(), "holds `:`"),
        ("a bucket", |h, _| h.pins[0].table = "s3://other/events".into(), "holds `:`"),
        ("a file in place", |h, _| h.pins[0].table = "secret.csv".into(), "holds `.`"),
        ("the lake's own folder", |h, _| h.pins[0].table = "_uplake".into(), "starts with `_`"),
        ("a name with a version", |h, _| h.pins[0].table = "events@1".into(), "holds `@`"),
        ("no name", |h, _| h.pins[0].table = String::new(), "is empty"),
        ("a table that is not there", |h, _| h.pins[0].table = "nothing".into(), "nothing"),
        ("another spelling", |h, _| h.pins[0].table = "EVENTS".into(), ""),
        ("a version that is not there", |h, _| h.pins[0].version = 99, ""),
        ("an earlier version", |h, _| h.pins[0].version -= 1, "other files"),
        ("other files", |h, _| h.pins[0].files ^= 1, "other files"),
        ("a domain that is a path", |h, _| h.domains = vec!["../other/users:00".into()], ".."),
        ("a setting that is none", |h, _| h.settings.push(("a.b".into(), "c".into())), "namespace"),
        ("a table that it does not name", |h, _| h.pins.clear(), "not there"),
        ("a scan that is not there", |h, _| h.divided[0].scan = 7, "0 are there"),
        (
            "all rows in each part",
            |h, _| h.divided.push(Divided { scan: 9, ids: None }),
            "1 are there",
        ),
        ("a column of ids that is none", |h, _| h.divided[0].ids = Some("__no".into()), "__no"),
        ("questions in place of a plan", |h, _| h.kind = Kind::Report, "damaged"),
        ("no plan", |_, plan| plan.clear(), "no one plan"),
        ("two plans", |_, plan| plan.extend(plan.clone()), "no one plan"),
        ("an operator that is none", |_, plan| plan.push(200), "no operator 200"),
        ("a plan that is cut off", |_, plan| plan.truncate(plan.len() - 1), ""),
        (
            "a long plan",
            |_, plan| {
                let alias = [10, 1, 1, b'a'];
                (0..100_000).for_each(|_| plan.extend(alias));
            },
            "more than 1000 operators",
        ),
        (
            "a filter that reads a file",
            |_, plan| {
                let mut to = Writer::default();
                // A filter, whose expression has no plan of ours.
                to.byte(2);
                to.number(0);
                to.bytes(&reads_a_file("/etc/passwd"));
                plan.extend(to.0);
            },
            "",
        ),
    ];
    for (what, change, says) in changes {
        let (mut header, plan) = fragment::from_bytes(bytes).unwrap();
        let mut plan = plan.to_vec();
        change(&mut header, &mut plan);
        let changed = fragment::write(&header, &plan);
        let error = match answer(&worker, &changed, &shares[0]).await {
            Ok(rows) => panic!("{what} is answered: {rows}"),
            Err(error) => error,
        };
        assert!(error.contains(says), "{what}: {error}");
        assert!(!error.contains("root:"), "{what}: {error}");
    }
    let stretch = Share::Stretch { part: 0, parts: 2 };
    let error = answer(&worker, bytes, &stretch).await.unwrap_err();
    assert!(error.contains("not divided in this way"), "{error}");
    answer(&worker, bytes, &shares[0]).await.unwrap();
}

/// What acts, or says something else each time, is computed once, where it was asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_does_something_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (told, worker) = told(&folder.path().join("lake")).await;
    let (bytes, shares) = &told[1];
    let (header, plan) = fragment::from_bytes(bytes).unwrap();
    for sql in ["random() < 2.0", "uuid() <> ''"] {
        let (codec, _) = worker.codec_of_part(&header).await.unwrap();
        let read = from_bytes(plan, &codec).unwrap();
        let context = datafusion::prelude::SessionContext::new();
        let expr = context.parse_sql_expr(sql, &datafusion::common::DFSchema::empty()).unwrap();
        let filter = datafusion::logical_expr::Filter::try_new(expr, Arc::new(read)).unwrap();
        let plan = crate::portable::plan::to_bytes(&LogicalPlan::Filter(filter), &codec).unwrap();
        let error =
            answer(&worker, &fragment::write(&header, &plan), &shares[0]).await.unwrap_err();
        assert!(error.contains("computed once"), "{sql}: {error}");
    }
}

/// Numbers that a seed gives, each as likely as others.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % limit.max(1) as u64) as usize
    }

    fn changed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(8)).min(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
                2 => drop(bytes.drain(at..end)),
                3 => bytes.truncate(at),
                4 => {
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    drop(bytes.splice(to..to, piece));
                }
                _ => bytes.insert(at, self.below(256) as u8),
            }
        }
        bytes
    }
}

/// What a part that was changed may take.
const LIMIT: Duration = Duration::from_secs(1);

/// A few thousand changes, more with `UPLAKE_SOAK`. Changed numbers in a plan may make another plan, which is why tickets
/// have a sum; here it is about what is read when that is right.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_changed_end_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let (told, worker) = told(&folder.path().join("lake")).await;
    let mut expected = Vec::new();
    for (bytes, shares) in &told {
        expected.push(answer(&worker, bytes, &shares[1]).await.unwrap());
    }
    let soak = std::env::var("UPLAKE_SOAK").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let (mut refused, mut panics) = (0, Vec::new());
    for seed in 0..3000 * soak {
        let mut numbers = Numbers(seed);
        let (bytes, shares) = &told[numbers.below(told.len())];
        let changed = numbers.changed(bytes);
        // Each is read, and one in five computed, if it is a part.
        let work = async {
            match seed % 5 {
                0 => answer_within(LIMIT, &worker, &changed, &shares[1]).await.err(),
                _ => worker
                    .read_part(&changed, &shares[1], &nothing())
                    .await
                    .err()
                    .map(|e| e.to_string()),
            }
        };
        let error = tokio::time::timeout(Duration::from_secs(30), work).await;
        let error = error.unwrap_or_else(|_| panic!("seed {seed} is still being read"));
        if let Some(error) = error {
            refused += 1;
            if error.contains("could not be computed") {
                panics.push(format!("seed {seed}: {error}"));
            }
        }
    }
    println!(
        "{refused} of {} are refused, {} by a panic that was caught",
        3000 * soak,
        panics.len()
    );
    println!("{}", panics.join("\n"));
    assert!(refused > 300 * soak, "{refused}");
    for ((bytes, shares), expected) in told.iter().zip(expected) {
        assert_eq!(answer(&worker, bytes, &shares[1]).await.unwrap(), expected);
    }
    assert_eq!(worker.usage().memory_bytes, 0);
}
