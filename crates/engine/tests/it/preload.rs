//! What a session that lives long brings into its cache before anybody asks.

use std::time::{Duration, Instant};

use futures::StreamExt;
use uplake_engine::{Answer, Session, parse};
use uplake_faulty_s3::{Faults, Server};
use uplake_table::StorageOptions;

use crate::{block_on, bucket_session};

const PATIENCE: Duration = Duration::from_secs(60);

/// A session of a machine of its own.
fn session(server: &Server, preload: bool, preload_new: bool) -> Session {
    let storage = StorageOptions { preload, preload_new, ..StorageOptions::default() };
    bucket_session(server, storage, None)
}

/// GETs of data files and of indexes since the last call.
fn files_read(server: &Server) -> (usize, usize) {
    let log = server.take_log();
    let ends = |end: &str| {
        log.iter().filter(|asked| asked.method == "GET" && asked.key.ends_with(end)).count()
    };
    (ends(".parquet"), ends(".idx"))
}

/// Waits until so many data files and as many indexes were asked for.
async fn wait_for(server: &Server, files: usize) {
    let (began, mut seen) = (Instant::now(), (0, 0));
    while seen != (files, files) {
        assert!(began.elapsed() < PATIENCE, "{seen:?} were read, not {files} of each");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let (data, indexes) = files_read(server);
        seen = (seen.0 + data, seen.1 + indexes);
    }
}

async fn texts_of(session: &Session, key: u32) -> usize {
    let found = session.query(&format!("SELECT v FROM t WHERE k = {key}")).await.unwrap();
    found.iter().map(|batch| batch.num_rows()).sum()
}

// The files are so small that their end, which is read for the footer, is all of them.
#[test]
fn footers_and_indexes_are_there_before_the_first_statement_and_new_ones_when_they_are_noticed() {
    block_on(async {
        let server = Server::start(1, Faults::none(3)).await.unwrap();
        let writer = session(&server, false, false);
        let statements = "CREATE TABLE t (k INT, v TEXT) INDEXED BY (k);
            INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO t VALUES (1, 'c'), (3, 'd')";
        writer.query(statements).await.unwrap();
        server.take_log();

        let reader = session(&server, true, true);
        let _work = reader.preload().expect("it is a bucket, and both are on");
        wait_for(&server, 2).await;
        assert_eq!(texts_of(&reader, 1).await, 2);
        assert_eq!(files_read(&server), (0, 0), "all was there");

        writer.query("INSERT INTO t VALUES (1, 'e')").await.unwrap();
        server.take_log();
        // Counted by what the log says of files: it notices the new one and reads none.
        reader.query("SELECT count(*) FROM t").await.unwrap();
        wait_for(&server, 1).await;
        assert_eq!(texts_of(&reader, 1).await, 3);
        assert_eq!(files_read(&server), (0, 0), "all was there");

        let other = session(&server, false, true);
        let _work = other.preload().expect("what is new");
        assert_eq!(texts_of(&other, 1).await, 3);
        let (data, indexes) = files_read(&server);
        assert!(data >= 3 && indexes >= 3, "a lake's tables are not read before: {data} {indexes}");

        let none = session(&server, false, false);
        assert!(none.preload().is_none());
    });
}

#[test]
fn what_is_read_ahead_goes_with_the_statement_that_wanted_it() {
    block_on(async {
        let server = Server::start(1, Faults::none(3)).await.unwrap();
        let writer = session(&server, false, false);
        writer.query("CREATE TABLE t (k INT, v TEXT)").await.unwrap();
        for file in 0..30 {
            writer.query(&format!("INSERT INTO t VALUES ({file}, 'some text')")).await.unwrap();
        }
        let reader = session(&server, false, false);
        let held = || reader.usage().memory_bytes;
        // A batch of each file, of which the two readers have a few before anybody asks for more.
        let statement = parse("SELECT v FROM t").unwrap().remove(0);
        let Answer::Rows { mut stream, .. } = reader.run(&statement).await.unwrap() else {
            panic!("rows")
        };
        stream.next().await.unwrap().unwrap();
        until("files that are not open yet are fetched", || held() > 0).await;
        drop(stream);
        until("nothing is left of what was fetched", || held() == 0).await;
    });
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
