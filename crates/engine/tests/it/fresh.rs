//! Statements begin on the tables as they were last seen, and answer from the newest ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use uplake_engine::Session;
use uplake_faulty_s3::{Faults, Server};
use uplake_table::StorageOptions;

use crate::{block_on, bucket_session};

fn session(server: &Server, local: Option<&Path>) -> Session {
    bucket_session(server, StorageOptions::default(), local.map(Path::to_owned))
}

/// The number that a statement answers, or its error.
async fn number(session: &Session, sql: &str) -> Result<i64, String> {
    let rows = session.query(sql).await.map_err(|error| error.to_string())?;
    Ok(rows[0].column(0).as_primitive::<Int64Type>().value(0))
}

async fn run(session: &Session, sql: &str) {
    session.query(sql).await.unwrap();
}

fn requests(server: &Server) -> Vec<(String, String)> {
    server.take_log().into_iter().map(|asked| (asked.method, asked.key)).collect()
}

const COUNT: &str = "SELECT count(*) FROM t";
const SUM: &str = "SELECT sum(k) FROM t WHERE k > 0";
const MOST: &str = "SELECT CAST(max(k) AS BIGINT) FROM t WHERE k > 0";
/// Rows that the writer beside readers writes.
const LAST: i64 = 25;

#[test]
fn a_statement_sees_what_others_have_done_before_it() {
    block_on(async {
        let server = Server::start(1, Faults::none(5)).await.unwrap();
        let (reader, writer) = (session(&server, None), session(&server, None));
        run(&writer, "CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await;
        assert_eq!(number(&reader, COUNT).await, Ok(1));
        for k in 2..6 {
            run(&writer, &format!("INSERT INTO t VALUES ({k})")).await;
            assert_eq!(number(&reader, COUNT).await, Ok(k));
            assert_eq!(number(&reader, SUM).await, Ok(k * (k + 1) / 2));
        }
        run(&reader, "INSERT INTO t VALUES (6)").await;
        assert_eq!(number(&reader, COUNT).await, Ok(6), "one's own rows");
        run(&writer, "DELETE FROM t WHERE k < 3").await;
        assert_eq!(number(&reader, SUM).await, Ok(18));

        // Another table of that name, with as many commits, one column less and one more.
        run(&writer, "DROP TABLE t").await;
        let error = number(&reader, COUNT).await.unwrap_err();
        assert!(error.contains("there is no table `t`"), "{error}");
        run(&writer, "CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await;
        assert_eq!(number(&reader, COUNT).await, Ok(1));
        run(&writer, "DROP TABLE t; CREATE TABLE t (n INT); INSERT INTO t VALUES (7)").await;
        assert_eq!(number(&reader, "SELECT sum(n) FROM t").await, Ok(7), "once there was no n");
        run(&writer, "DROP TABLE t; CREATE TABLE t (k INT); INSERT INTO t VALUES (8)").await;
        let error = number(&reader, "SELECT sum(n) FROM t").await.unwrap_err();
        assert!(error.contains("column 'n' not found"), "{error}");
        assert_eq!(number(&reader, SUM).await, Ok(8));
    });
}

#[test]
fn an_unchanged_table_takes_two_looks_a_statement() {
    block_on(async {
        let server = Server::start(1, Faults::none(5)).await.unwrap();
        let session = session(&server, None);
        run(&session, "CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await;
        number(&session, SUM).await.unwrap();
        server.take_log();
        number(&session, COUNT).await.unwrap();
        let mut looks = requests(&server);
        looks.sort();
        let commit = |number| ("HEAD".to_owned(), format!("lake/t/_delta_log/{number:020}.json"));
        assert_eq!(looks, [commit(1), commit(2)]);
    });
}

#[test]
fn a_new_process_begins_with_the_log_that_its_machine_remembers() {
    block_on(async {
        let server = Server::start(1, Faults::none(5)).await.unwrap();
        let (machine, writer) = (tempfile::tempdir().unwrap(), session(&server, None));
        run(&writer, "CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await;
        let new = || session(&server, Some(machine.path()));
        assert_eq!(number(&new(), COUNT).await, Ok(1));

        server.take_log();
        assert_eq!(number(&new(), COUNT).await, Ok(1));
        let lists = |server: &Server| {
            let is_list = |(_, key): &&(String, String)| key.ends_with("_delta_log/");
            requests(server).iter().filter(is_list).count()
        };
        assert_eq!(lists(&server), 0, "nothing is listed");

        run(&writer, "INSERT INTO t VALUES (2)").await;
        assert_eq!(number(&new(), SUM).await, Ok(3), "it has grown");
        server.take_log();
        assert_eq!(number(&new(), SUM).await, Ok(3));
        assert_eq!(lists(&server), 0, "that is remembered, too");

        run(&writer, "DROP TABLE t; CREATE TABLE t (k INT); INSERT INTO t VALUES (5)").await;
        run(&writer, "INSERT INTO t VALUES (6)").await;
        assert_eq!(number(&new(), SUM).await, Ok(11), "another one, with as many commits");

        let remembered: Vec<_> = std::fs::read_dir(machine.path()).unwrap().collect();
        let file = remembered[0].as_ref().unwrap().path().join("logs/t");
        let whole = std::fs::read(&file).unwrap();
        for place in [0, 9, whole.len() / 2, whole.len() - 2] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            std::fs::write(&file, &damaged).unwrap();
            assert_eq!(number(&new(), SUM).await, Ok(11), "a bit of byte {place}");
            assert_eq!(std::fs::read(&file).unwrap(), whole, "written anew");
        }
        std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(number(&new(), SUM).await, Ok(11));

        run(&writer, "DROP TABLE t").await;
        let error = number(&new(), COUNT).await.unwrap_err();
        assert!(error.contains("there is no table `t`"), "{error}");
    });
}

#[test]
fn readers_beside_a_writer_never_go_back() {
    block_on(async {
        let slow = Faults { median_ms: 3.0, sigma: 1.0, ..Faults::none(5) };
        let server = Server::start(2, slow).await.unwrap();
        let (reader, writer) = (Arc::new(session(&server, None)), session(&server, None));
        run(&writer, "CREATE TABLE t (k INT); INSERT INTO t VALUES (1)").await;
        let committed = Arc::new(AtomicI64::new(1));
        let readers: Vec<_> = (0..4)
            .map(|place| {
                let (reader, committed) = (Arc::clone(&reader), Arc::clone(&committed));
                tokio::spawn(async move {
                    loop {
                        let before = committed.load(Ordering::Acquire);
                        let sql = if place % 2 == 0 { COUNT } else { MOST };
                        let seen = number(&reader, sql).await.unwrap();
                        assert!(seen >= before, "{seen} of at least {before} rows");
                        if before == LAST {
                            return;
                        }
                    }
                })
            })
            .collect();
        for k in 2..=LAST {
            run(&writer, &format!("INSERT INTO t VALUES ({k})")).await;
            committed.store(k, Ordering::Release);
        }
        for reader in readers {
            reader.await.unwrap();
        }
    });
}
