//! Assignment functions in SQL, against published vectors and on NULL and nonsense.

use uplake_engine::Session;

use crate::{block_on, session};

/// One value as text; "" for NULL.
fn value(session: &Session, sql: &str) -> Result<String, String> {
    let sql = format!("SELECT coalesce(CAST({sql} AS VARCHAR), '')");
    let batches = block_on(session.query(&sql)).map_err(|e| e.to_string())?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).ok_or("no row")?;
    let text = datafusion::arrow::compute::cast(
        batch.column(0),
        &datafusion::arrow::datatypes::DataType::Utf8,
    );
    Ok(datafusion::arrow::array::AsArray::as_string::<i32>(&text.unwrap()).value(0).to_owned())
}

/// Published by the systems' own tests: growthbook sdk-js cases.json, optimizely python-sdk
/// test_bucketing.py, unleash-node-sdk util.test.ts, Eppo python-sdk sharders_test.py, planout
/// test_assignment.py. Statsig publishes none; these are of its rule, computed with Python's hashlib.
#[test]
fn published_vectors_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let check = |sql: &str, expected: &str| {
        assert_eq!(value(&session, sql).as_deref(), Ok(expected), "{sql}")
    };
    check("gb_bucket('', 'a', 1)", "0.22");
    check("gb_bucket('b', 'a', 1)", "0.946");
    check("gb_bucket('seed', 'a', 2)", "0.0505");
    check("gb_bucket('90850943850283058242805', 123, 2)", "0.7516");
    check("gb_variation('seed', 'b', 2, 1.0, [0.5, 0.5])", "0");
    check("gb_variation('90850943850283058242805', '123', 2, 1, [0.5, 0.5])", "1");
    check("gb_variation('90850943850283058242805', '123', 2, 0.5, [0.5, 0.5])", "");
    check("gb_in_namespace('1', 'namespace1', 0, 0.4)", "false");
    check("gb_in_namespace('1', 'namespace1', 0.4, 1)", "true");
    check("optimizely_bucket('ppid1', '1886780721')", "5254");
    check("optimizely_bucket('ppid2', '1886780721')", "4299");
    check("unleash_value('123', 'gr1', 100, 0)", "73");
    check("unleash_value('999', 'groupX', 100, 0)", "25");
    check("eppo_shard('test-input', 10000)", "5619");
    check("eppo_shard('alice', 10000)", "3170");
    check("planout_hash('test_salt', 'foo', '4') % 2", "1");
    check("planout_hash('test_salt', 'bar', '4') % 2", "0");
    check("statsig_hash('salt', 'rule', '1')", "5870333665503101779");
    check("statsig_hash('salt', 'rule', 'user_42')", "10839099470524464031");
    // Of RFC-less MurmurHash3's own verification: the empty text hashes to its seed's avalanche.
    check("murmur3_32('', 0)", "0");
    check("murmur3_32('', 1)", "1364076727");
}

#[test]
fn arrays_and_literals_mix_and_null_stays_null() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let rows = "FROM (VALUES ('alice', 10000), (NULL, 10000), ('bob', NULL), ('bob', 10000)) AS t(name, shards)";
    let sums = format!(
        "(SELECT concat(sum(eppo_shard(name, 10000)), ' ', count(eppo_shard(name, shards))) {rows})"
    );
    assert_eq!(value(&session, &sums).unwrap(), "18010 2");
    for sql in [
        "gb_bucket(NULL, 'a', 1)",
        "gb_variation('s', 'a', 2, 1, NULL)",
        "murmur3_32('a', NULL)",
        "statsig_user_bucket('a', NULL)",
        "planout_hash('a', NULL, 'b')",
        "unleash_value('a', 'g', NULL, 0)",
    ] {
        assert_eq!(value(&session, sql).as_deref(), Ok(""), "{sql}");
    }
}

#[test]
fn nonsense_is_an_error_that_names_the_argument() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    for (sql, expected) in [
        ("gb_bucket('s', 'a', 3)", "`version` is 3; it must be 1 or 2"),
        ("unleash_value('a', 'g', 0, 0)", "`normalizer` is 0"),
        ("eppo_shard('a', 0)", "`shards` is 0"),
        ("eppo_shard('a', -1)", "`shards` is -1"),
        ("murmur3_32('a', 4294967296)", "`seed` is 4294967296"),
        ("gb_variation('s', 'a', 2, 1, [])", "`weights` holds NULL or nothing"),
        ("eppo_shard('a')", "eppo_shard takes text (text), shards (a whole number)"),
        ("gb_bucket('s', 1.5, 2)", "gb_bucket takes "),
        ("local_day(TIMESTAMP '2026-11-01', 'Mars/Base')", "unknown time zone `Mars/Base`"),
    ] {
        let error = value(&session, sql).unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}
