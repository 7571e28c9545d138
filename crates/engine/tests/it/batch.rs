//! A batch against the same statements one by one.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use uplake_engine::{Answer, Batch, BatchOptions, Session, parse, parse_each};

use crate::{block_on, session};

const MEMORY: usize = 256 << 20;

/// Two tables of one domain in several files and partitions, with NULL everywhere it can be. Numbers
/// are multiples of 0.25, so that sums do not depend on the order of rows.
const DATA: &str = "
CREATE TABLE events (dt DATE, user_id TEXT, n BIGINT, event TEXT, value DOUBLE, small SMALLINT, city TEXT,
  \"Os\" TEXT) PARTITIONED BY (dt) CLUSTERED BY (user_id, n) ID DOMAINS (user_id users);
CREATE TABLE exposures (dt DATE, user_id TEXT, exp INT, variant INT, t BIGINT)
  PARTITIONED BY (dt) CLUSTERED BY (exp, user_id) ID DOMAINS (user_id users);
CREATE TABLE plain (k BIGINT, words TEXT, amount DOUBLE) INDEXED BY (words);
INSERT INTO events SELECT DATE '2026-11-01' + CAST(value % 4 AS INT), CASE WHEN value % 50 = 7 THEN NULL
  ELSE concat('user number ', CAST((value * 7919) % 3001 AS VARCHAR)) END, value,
  CASE value % 7 WHEN 0 THEN NULL WHEN 1 THEN 'pay' WHEN 2 THEN 'an event with a longer name'
    WHEN 3 THEN 'share' ELSE 'click' END,
  CASE WHEN value % 11 = 0 THEN NULL ELSE CAST((value * 31) % 1000 AS DOUBLE) / 4 END,
  CASE WHEN value % 13 = 0 THEN NULL ELSE CAST(value % 5 - 2 AS SMALLINT) END,
  CASE WHEN value % 17 = 0 THEN NULL ELSE concat('city ', CAST(value % 9 AS VARCHAR)) END,
  CASE value % 3 WHEN 0 THEN 'android' ELSE 'ios' END
  FROM generate_series(1, 12000) AS s(value);
INSERT INTO exposures SELECT DATE '2026-11-01' + CAST(value % 4 AS INT), CASE WHEN value % 97 = 0 THEN NULL
  ELSE concat('user number ', CAST((value * 31) % 4000 AS VARCHAR)) END,
  CAST(value % 3 AS INT), CASE WHEN value % 19 = 0 THEN NULL ELSE CAST(value % 2 AS INT) END, value
  FROM generate_series(1, 9000) AS s(value);
INSERT INTO plain SELECT value, concat('word ', CAST(value % 40 AS VARCHAR)), value / 4.0
  FROM generate_series(1, 2000) AS s(value)";

fn filled(folder: &std::path::Path, memory_bytes: usize) -> Session {
    let session = session(folder, memory_bytes, 2);
    block_on(session.query(DATA)).unwrap();
    session
}

/// A small source of numbers: the same ones from the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// A statement of a report: counts of users, sums by variant, or moments from first exposure on.
fn of_report(numbers: &mut Numbers) -> String {
    let (from, days) = (1 + numbers.below(3), numbers.below(2));
    let range = match days {
        0 => format!("dt = DATE '2026-11-0{from}'"),
        _ => format!("dt BETWEEN DATE '2026-11-0{from}' AND DATE '2026-11-0{}'", from + 1),
    };
    let exp = numbers.below(4);
    let dim = numbers.one_of(&["", "city", "\"Os\"", "os", "small"]);
    let event = numbers.one_of(&["pay", "click", "share", "an event with a longer name", "none"]);
    let value = numbers.one_of(&["e.value", "1.0", "CAST(e.small AS DOUBLE)"]);
    let first = format!(
        "SELECT user_id, MIN(variant) AS variant, MIN(t) AS first FROM exposures WHERE exp = {exp} AND {range} \
         GROUP BY user_id"
    );
    let by = |table: &str| match dim {
        "" => String::new(),
        dim => format!(", {table}{dim}"),
    };
    match numbers.below(4) {
        0 => format!(
            "SELECT variant, COUNT(DISTINCT user_id) AS users, COUNT(*) AS n FROM exposures \
             WHERE exp = {exp} AND {range} GROUP BY variant"
        ),
        1 => format!(
            "WITH u AS ({first}) SELECT u.variant{0}, COUNT(*) AS n, SUM({value}) AS s, AVG({value}) AS m \
             FROM events e JOIN u ON e.user_id = u.user_id WHERE e.{range} AND e.event = '{event}' \
             GROUP BY u.variant{0}",
            by("e.")
        ),
        2 => format!(
            "WITH fe AS ({first}), pu AS (SELECT fe.user_id AS user_id, MIN(fe.variant) AS variant, \
             SUM(CASE WHEN e.n >= fe.first THEN {value} ELSE 0.0 END) AS x, \
             SUM(CASE WHEN e.n >= fe.first THEN 1.0 ELSE 0.0 END) AS y FROM fe LEFT JOIN \
             (SELECT user_id, n, value, small FROM events WHERE {range} AND event = '{event}') e \
             ON e.user_id = fe.user_id GROUP BY fe.user_id) SELECT variant, COUNT(*) AS n, SUM(x) AS sx, \
             SUM(y) AS sy, round(VAR_SAMP(x), 6) AS vx, round(COVAR_SAMP(x, y), 6) AS cxy FROM pu GROUP BY variant"
        ),
        _ => format!(
            "SELECT event{0}, COUNT(*) AS n, COUNT(DISTINCT user_id) AS users, MAX(value) FROM events e \
             WHERE {range} AND {1} GROUP BY event{0}",
            by("e."),
            numbers.one_of(&[
                "small > 0",
                "value IS NULL",
                "small > 0 OR value < 3.0",
                "city LIKE '%7'"
            ]),
        ),
    }
}

/// Statements that share with each other and with those of a report, in other shapes.
const ODD: &[&str] = &[
    "SELECT count(*) FROM events",
    "SELECT count(*) AS again FROM events",
    "SELECT 1 AS one, 'x' AS x",
    "SELECT * FROM plain WHERE words = 'word 7' ORDER BY k LIMIT 5",
    "SELECT * FROM plain WHERE words = 'word 8' ORDER BY k LIMIT 5",
    "SELECT k, sum(amount) OVER (PARTITION BY words ORDER BY k) AS s FROM plain WHERE k < 300",
    "SELECT words, rank() OVER (ORDER BY sum(amount)) AS r FROM plain WHERE k < 300 GROUP BY words",
    "SELECT event, count(*) FROM events WHERE n < 0 GROUP BY event",
    "SELECT count(*), sum(value) FROM events WHERE n < 0",
    "SELECT event FROM events WHERE small > 0 GROUP BY event HAVING count(*) > 900 ORDER BY 1",
    "SELECT DISTINCT city FROM events WHERE small > 0",
    "SELECT DISTINCT city, \"Os\" FROM events WHERE small > 0",
    "SELECT Os, count(*) AS \"MixedCase\" FROM events WHERE small > 0 GROUP BY Os",
    "SELECT a.city, b.city, count(*) FROM (SELECT city, n FROM events WHERE small > 0) a
       JOIN (SELECT city, n FROM events WHERE small > 0) b ON a.n = b.n + 5 GROUP BY 1, 2",
    "SELECT a.city, count(*) FROM (SELECT city, n, value FROM events WHERE small > 0) a
       JOIN (SELECT city, n, value FROM events WHERE small > 0) b ON a.n = b.n + 5 AND a.value < b.value GROUP BY 1",
    "SELECT b.words, count(*) FROM events a RIGHT JOIN plain b ON a.n = b.k AND a.value > b.amount AND a.small > 0
       GROUP BY b.words",
    "SELECT b.words, count(a.n) FROM events a RIGHT JOIN plain b ON a.n = b.k AND a.value > b.amount AND a.small > 0
       GROUP BY b.words",
    "SELECT count(*) FROM plain WHERE k IN (SELECT n FROM events WHERE small > 0)",
    "SELECT count(*), sum(k) FROM plain WHERE k NOT IN (SELECT n FROM events WHERE small > 0)",
    "SELECT sum(amount) FROM plain p WHERE EXISTS (SELECT 1 FROM events e WHERE e.n = p.k AND e.small > 0)",
    "SELECT k, flag FROM plain LEFT JOIN (SELECT n, 1 AS flag FROM events WHERE small > 0) e ON n = k WHERE k < 50",
    "SELECT k, coalesce(flag, 0) FROM plain LEFT JOIN (SELECT n, 1 AS flag FROM events WHERE small > 0) e ON n = k
       WHERE k < 50",
    "SELECT k FROM plain LEFT JOIN (SELECT n, 1 AS flag FROM events WHERE small > 0) e ON n = k
       WHERE k < 50 AND flag IS NULL",
    "SELECT event, count(*) FROM events WHERE value > (SELECT avg(amount) FROM plain) GROUP BY event",
    "SELECT event, max(value) FROM events WHERE value > (SELECT avg(amount) FROM plain) GROUP BY event",
    "SELECT count(*) FROM (SELECT user_id FROM events WHERE small > 0 UNION ALL SELECT user_id FROM exposures
       WHERE variant = 1)",
    "SELECT user_id FROM events WHERE small > 0 INTERSECT SELECT user_id FROM exposures WHERE variant = 1",
    "SELECT city, \"Os\", count(*) FROM events WHERE small > 0 GROUP BY ROLLUP (city, \"Os\")",
    "SELECT user_id, count(*) AS c FROM events WHERE small > 0 GROUP BY user_id ORDER BY c DESC, user_id LIMIT 9",
    "SELECT user_id, sum(value) AS c FROM events WHERE small > 0 GROUP BY user_id ORDER BY c DESC, user_id LIMIT 9",
    "WITH a AS (SELECT city, count(*) AS n FROM events WHERE small > 0 GROUP BY city)
       SELECT x.city, x.n, y.n FROM a x JOIN a y ON x.n = y.n",
    "SELECT e.city, array_agg(e.n ORDER BY e.n) FROM events e WHERE e.n < 200 AND small > 0 GROUP BY e.city",
    "SELECT count(*) FILTER (WHERE small > 1), sum(value) FILTER (WHERE city IS NULL) FROM events WHERE small > 0",
    "SELECT user_id, user_id || '!' AS loud FROM events WHERE small > 0 AND n < 900 ORDER BY n LIMIT 3",
    "SELECT max(n) FROM events VERSION AS OF 1 WHERE small > 0",
    "SELECT approx_distinct(user_id) FROM events WHERE small > 0",
    "SELECT a.n FROM events a FULL JOIN plain b ON a.n = b.k WHERE (a.small > 0 OR a.n IS NULL) AND b.k < 40",
    // What is asked of the partition is false once it is simplified.
    "SELECT c1, count(*) FROM (SELECT CASE WHEN dt > DATE '2026-11-02' THEN 'late' ELSE 'early' END AS c1 FROM events
       WHERE small > 0 GROUP BY dt) q GROUP BY c1 HAVING c1 = 'never'",
    "SHOW TABLES",
    "DESCRIBE plain",
    // These fail, each for itself.
    "SELECT nothing FROM events",
    "SELECT * FROM nowhere",
    "SELECT CAST(city AS BIGINT) FROM events WHERE small > 0",
    "SELECT sum(CAST(city AS BIGINT)) AS bad, count(*) FROM events WHERE small > 0 GROUP BY event",
    "SELECT event, 1 / (small - small) FROM events WHERE small > 0",
];

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let row = |batch: &RecordBatch, row: usize| {
        let cell = |column| array_value_to_string(column, row).unwrap();
        // What rounding leaves of zero has either sign, as rows come in either order.
        let cell =
            |column| Some(cell(column)).filter(|text| text != "-0.0").unwrap_or("0.0".into());
        batch.columns().iter().map(|c| cell(c)).collect::<Vec<_>>().join(" | ")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|n| row(batch, n))).collect()
}

/// Names, types and rows of an answer, or that there is none.
async fn told(sql: &str, answer: uplake_engine::Result<Answer>) -> Result<Vec<String>, String> {
    match answer {
        Err(error) => Err(error.to_string()),
        Ok(Answer::Done { message, .. }) => Ok(vec![message]),
        Ok(Answer::Rows { schema, stream }) => {
            let batches: Vec<RecordBatch> = stream
                .try_collect()
                .await
                .map_err(|e| uplake_engine::EngineError::from(e).to_string())?;
            let mut rows = lines(&batches);
            // Orders inside brackets are not the answer's.
            if !sql.rsplit(')').next().unwrap().contains("ORDER BY") {
                rows.sort();
            }
            let field = |f: &datafusion::arrow::datatypes::FieldRef| {
                format!("{} {}", f.name(), f.data_type())
            };
            rows.insert(0, schema.fields().iter().map(field).collect::<Vec<_>>().join(", "));
            Ok(rows)
        }
    }
}

async fn batch(session: &Session, texts: &[String], options: BatchOptions) -> Batch {
    let statements = texts.iter().map(|text| parse(text).unwrap().remove(0)).collect();
    session.batch(statements, options).await.unwrap()
}

async fn one_by_one(session: &Session, texts: &[String]) -> Vec<Result<Vec<String>, String>> {
    let mut answers = Vec::new();
    for text in texts {
        let statement = parse(text).unwrap().remove(0);
        answers.push(told(text, session.run(&statement).await).await);
    }
    answers
}

/// Runs all as a batch and compares; gives what was shared.
fn check(
    session: &Session,
    texts: &[String],
    expected: &[Result<Vec<String>, String>],
) -> uplake_engine::BatchSummary {
    block_on(async {
        let mut batch = batch(session, texts, BatchOptions::default()).await;
        let mut answered = vec![false; texts.len()];
        while let Some((number, answer)) = batch.next().await {
            let sql = &texts[number];
            assert!(!std::mem::replace(&mut answered[number], true), "twice: {sql}");
            match (told(sql, answer).await, &expected[number]) {
                (Err(_), Err(_)) => {}
                (found, expected) => assert_eq!(found, *expected, "{sql}"),
            }
        }
        assert_eq!(answered.iter().position(|answered| !answered), None);
        batch.summary()
    })
}

fn statements(seed: u64, of_reports: usize) -> Vec<String> {
    let mut numbers = Numbers(seed);
    let mut texts: Vec<String> = (0..of_reports).map(|_| of_report(&mut numbers)).collect();
    for odd in ODD {
        texts.insert(numbers.below(texts.len() + 1), (*odd).to_owned());
    }
    texts
}

#[test]
fn a_batch_answers_what_each_statement_answers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), MEMORY);
    for seed in [1, 2] {
        println!("seed {seed}");
        let texts = statements(seed, 150);
        let expected = block_on(one_by_one(&session, &texts));
        assert_eq!(expected.iter().filter(|answer| answer.is_err()).count(), 5);
        let summary = check(&session, &texts, &expected);
        assert!(summary.different < texts.len() && summary.sharing > 100, "{summary:?}");
    }
}

#[test]
fn a_batch_without_room_answers_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), MEMORY);
    let texts = statements(3, 40);
    let expected = block_on(one_by_one(&session, &texts));
    drop(session);
    // Little of what is shared fits, and then nothing.
    for memory in [24 << 20, 12 << 20] {
        let session = crate::session(folder.path(), memory, 2);
        check(&session, &texts, &expected);
    }
}

#[test]
fn answers_that_are_too_long_to_wait_come_whole() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), 32 << 20);
    let all = "SELECT a.n, a.user_id, b.\"Os\", b.city FROM events a JOIN events b ON a.n % 1000 = b.n % 1000 \
               WHERE a.small > 0";
    let texts =
        vec![all.to_owned(), "SELECT count(*) FROM events WHERE small > 0".into(), all.to_owned()];
    let expected = block_on(one_by_one(&session, &texts));
    assert!(expected[0].as_ref().unwrap().len() > 50_000);
    check(&session, &texts, &expected);
}

#[test]
fn a_batch_reads_one_snapshot_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), MEMORY);
    let count = "SELECT count(*) FROM plain";
    let texts: Vec<String> = [
        count,
        "INSERT INTO plain VALUES (1, 'x', 1.0)",
        "CREATE TABLE new AS SELECT 1 AS a",
        "DELETE FROM plain WHERE k = 1",
        "DROP TABLE plain",
        "EXPLAIN ANALYZE INSERT INTO plain VALUES (1, 'x', 1.0)",
        "CREATE ID SET s AS SELECT k FROM plain",
        "SET datafusion.execution.batch_size = 1",
        "EXPLAIN SELECT 1",
    ]
    .map(str::to_owned)
    .into();
    block_on(async {
        let mut batch = batch(&session, &texts, BatchOptions::default()).await;
        // Planned by now; the batch does not see what comes after.
        session.query("INSERT INTO plain VALUES (1, 'x', 1.0)").await.unwrap();
        let mut answers = vec![None; texts.len()];
        while let Some((number, answer)) = batch.next().await {
            answers[number] = Some(told(&texts[number], answer).await);
        }
        let answers: Vec<_> = answers.into_iter().map(Option::unwrap).collect();
        assert_eq!(answers[0].as_ref().unwrap()[1], "2000");
        for refused in &answers[1..8] {
            assert!(refused.as_ref().unwrap_err().contains("a batch only reads"), "{refused:?}");
        }
        assert!(answers[8].is_ok());
    });
    let now = block_on(session.query(count)).unwrap();
    assert_eq!(lines(&now), ["2001"]);
}

#[test]
fn one_statement_is_cancelled_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), MEMORY);
    let texts = statements(5, 30);
    let expected = block_on(one_by_one(&session, &texts));
    for at_once in [1, 3] {
        block_on(async {
            let mut batch = batch(&session, &texts, BatchOptions { at_once: Some(at_once) }).await;
            let mut numbers = Numbers(7);
            let mut answers = vec![None; texts.len()];
            let mut cancelled = Vec::new();
            while let Some((number, answer)) = batch.next().await {
                let told = told(&texts[number], answer).await;
                assert!(answers[number].replace(told).is_none(), "twice: {}", texts[number]);
                let next = numbers.below(texts.len());
                if answers[next].is_none() && !cancelled.contains(&next) {
                    batch.cancel(next);
                    cancelled.push(next);
                }
            }
            for (number, answer) in answers.into_iter().enumerate() {
                match answer.unwrap() {
                    Err(message) if message == "cancelled" => assert!(cancelled.contains(&number)),
                    Err(_) => assert!(expected[number].is_err(), "{}", texts[number]),
                    found => assert_eq!(found, expected[number], "{}", texts[number]),
                }
            }
            assert!(cancelled.len() > 5);
        });
    }
}

#[test]
fn a_dropped_batch_gives_back_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let session = filled(folder.path(), MEMORY);
    let texts = statements(9, 40);
    for taken in [0, 1, 7, 30] {
        block_on(async {
            let mut batch = batch(&session, &texts, BatchOptions::default()).await;
            for _ in 0..taken {
                batch.next().await.unwrap().1.ok();
            }
            drop(batch);
            // Tasks end where they wait next.
            let ended = async {
                while session.usage().memory_bytes > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.unwrap();
        });
    }
}

#[test]
fn statements_that_cannot_be_parsed_have_their_places() {
    let parsed = parse_each("SELECT 1;\n\n  SELEC 2;\nSELECT (3; SELECT 4").unwrap();
    let places: Vec<_> =
        parsed.iter().map(|(place, s)| (place.line, place.column, s.is_ok())).collect();
    assert_eq!(places, [(1, 1, true), (3, 3, false), (4, 1, false), (4, 12, true)]);
    assert!(parse_each("SELECT 1; SELECT 'x").is_err());
}
