//! Indexes from the engine's side: the same rows with and without, and nothing kept.

use futures::TryStreamExt;
use uplake_engine::{Answer, parse};
use uplake_table::{AsOf, DataFile, IndexCache, Lake, Question, key_of_i64};

use crate::{block_on, session};

/// A table of 10,000 rows in two files, indexed in every way.
const SETUP: &str = "
    CREATE TABLE t (id BIGINT, shop INT, name TEXT, price DOUBLE)
    INDEXED BY (id, shop, name, name words, name ngrams, price zones);
    INSERT INTO t SELECT value, value / 7, 'Cup ' || (value % 97) || ' No ' || value,
        CASE value WHEN 4000 THEN 'NaN' WHEN 5000 THEN '-NaN' WHEN 20 THEN '-0' WHEN 30 THEN NULL ELSE value - 2000 END
    FROM generate_series(1, 6000);
    INSERT INTO t SELECT value, NULL AS shop, NULL AS name, 0.5 FROM generate_series(6001, 10000);";

const CONDITIONS: [&str; 17] = [
    "price > 3990",
    "price BETWEEN -1 AND 0",
    "price = 0",
    "3.5 >= price AND price >= 3",
    "price > 'Infinity' OR price IN (17)",
    "price < -1990",
    "id = 17",
    "id IN (5, 6, 7, 9999, 20000)",
    "shop = 3 OR shop IN (4, 800)",
    "shop IN (1, 2) AND name LIKE '%No 1%'",
    "match(name, 'cup 96')",
    "name ILIKE '%cup 42 NO%'",
    "contains(name, '50 No') AND NOT id IN (50)",
    "id IN (SELECT shop FROM t WHERE id BETWEEN 100 AND 140)",
    "name = 'Cup 5 No 5' OR name = 'nothing'",
    "shop IN (3) AND (id > 25 OR name IS NULL)",
    "CASE shop WHEN 1 THEN id = 8 WHEN 2 THEN id = 9 ELSE id = 30 END",
];

/// The answer as text, three times: columns are kept from the second on.
async fn answers(text: &str, session: &uplake_engine::Session) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..3 {
        let batches = session.query(text).await.unwrap();
        found.push(
            datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string(),
        );
    }
    found
}

#[test]
fn answers_are_those_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let indexed = session(folder.path(), 1 << 30, 2);
        indexed.query(SETUP).await.unwrap();
        let ids: Vec<String> = (0..300).map(|n| (n * 31).to_string()).collect();
        let long = format!("id IN ({})", ids.join(","));
        for condition in CONDITIONS.into_iter().chain([long.as_str()]) {
            for columns in ["count(*)", "id, name", "sum(shop), min(name)"] {
                let order = if columns.starts_with("id") { " ORDER BY id" } else { "" };
                let text = format!("SELECT {columns} FROM t WHERE {condition}{order}");
                // The condition in a CASE cannot be looked up.
                let plain = text.replace(condition, &format!("({condition}) IS TRUE"));
                let found = answers(&text, &indexed).await;
                let expected = answers(&plain, &indexed).await;
                assert_eq!(found, expected, "{text}");
            }
        }
        assert_eq!(indexed.take_warnings(), Vec::<String>::new());
    });
}

#[test]
fn a_missing_index_is_a_warning_and_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let session = session(folder.path(), 1 << 30, 1);
        session.query(SETUP).await.unwrap();
        let text = "SELECT count(*) FROM t WHERE id IN (1, 2, 7000)";
        let before = answers(text, &session).await;
        std::fs::remove_dir_all(folder.path().join("lake/t/_uplake_index")).unwrap();
        let again = crate::session(folder.path(), 1 << 30, 1);
        assert_eq!(answers(text, &again).await, before);
        let warnings = again.take_warnings();
        assert!(
            warnings.len() == 1 && warnings[0].contains("uplake table reindex t"),
            "{warnings:?}"
        );
    });
}

#[test]
fn planning_takes_a_list_as_one_thing() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let session = session(folder.path(), 1 << 30, 1);
        session.query(SETUP).await.unwrap();
        let ids: Vec<String> = (0..200_000).map(|n| n.to_string()).collect();
        let text = format!("EXPLAIN SELECT count(*) FROM t WHERE id IN ({})", ids.join(","));
        let plan = answers(&text, &session).await.remove(0);
        assert!(plan.len() < 10_000 && plan.contains("in_list_0(id"), "{plan}");
    });
}

#[test]
fn a_dropped_query_and_a_thousand_snapshots_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let session = session(folder.path(), 1 << 30, 2);
        session.query(SETUP).await.unwrap();
        let statement = &parse("SELECT * FROM t WHERE id IN (1, 2, 3)").unwrap()[0];
        for _ in 0..3 {
            let Answer::Rows { mut stream, .. } = session.run(statement).await.unwrap() else {
                panic!("rows")
            };
            stream.try_next().await.unwrap();
        }
        drop(session);

        let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
        let cache = IndexCache::new(64 << 10);
        let mut most = 0;
        for n in 0..1000 {
            let snapshot = lake.snapshot("t", &AsOf::Latest).await.unwrap();
            let files: &[DataFile] = snapshot.files();
            let keys = std::sync::Arc::new(vec![key_of_i64(n)]);
            let question = [Question::Integers { column: "id".into(), keys }];
            for file in files {
                let found = cache.rows(lake.store().as_ref(), file, &question).await;
                assert!(found.rows.unwrap().cardinality() <= 1);
            }
            most = most.max(cache.kept_bytes());
        }
        // Both files' dictionaries do not fit, so one goes when the other comes.
        assert!(most <= cache.limit_bytes(), "{most}");
    });
}
