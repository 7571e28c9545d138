//! Many statements at once: they wait for slots and memory, and none of them fails for the others.

use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use uplake_engine::{
    Answer, EngineError, RunOptions, Session, SessionOptions, SqlState, Usage, parse,
};
use uplake_table::Lake;

use crate::{block_on, options};

const ROWS: &str = "SELECT value FROM generate_series(1, 100000) AS s(value)";

fn session(folder: &tempfile::TempDir, memory_bytes: usize, slots: usize) -> Session {
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let options = SessionOptions { at_once: Some(slots), ..options(memory_bytes, 2) };
    Session::new(lake, &options).unwrap()
}

async fn run(session: &Session, text: &str, timeout: Option<Duration>) -> Result<u64, EngineError> {
    let statement = parse(text)?.remove(0);
    let options = RunOptions { timeout, ..RunOptions::default() };
    let Answer::Rows { mut stream, .. } = session.run_with(&statement, options).await? else {
        return Ok(0);
    };
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows() as u64;
    }
    Ok(rows)
}

#[test]
fn a_thousand_statements_at_once_are_answered_two_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder, 64 << 20, 2);
    block_on(async {
        let texts = [
            "SELECT value % 1000, count(*), sum(value) FROM generate_series(1, 4000) AS s(value) GROUP BY 1",
            "SELECT * FROM generate_series(1, 2000) AS s(value) ORDER BY value % 7, value DESC",
        ];
        let most = std::sync::atomic::AtomicUsize::new(0);
        let one = |number: usize| {
            let (session, most) = (&session, &most);
            async move {
                let rows = run(session, texts[number % 2], None).await;
                let running = session.queue().running.len();
                most.fetch_max(running, std::sync::atomic::Ordering::Relaxed);
                rows
            }
        };
        let all = join_all((0..1000).map(one)).await;
        for (number, rows) in all.into_iter().enumerate() {
            assert_eq!(rows.unwrap(), [1000, 2000][number % 2]);
        }
        assert!(most.into_inner() <= 2);
        assert_eq!(session.usage().waiting + session.usage().running, 0);
    });
}

/// Each needs more than half of the memory, and cannot spill.
#[test]
fn what_does_not_fit_beside_others_is_done_alone() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder, 48 << 20, 4);
    let text = "SELECT array_length(array_agg(concat('a long string to be kept ', CAST(value AS VARCHAR)))) \
                FROM generate_series(1, 300000) AS s(value)";
    block_on(async {
        for rows in join_all((0..8).map(|_| run(&session, text, None))).await {
            assert_eq!(rows.unwrap(), 1);
        }
        // Alone, too much is too much.
        let error = run(&session, &text.replace("300000", "9000000"), None).await.unwrap_err();
        assert!(matches!(error, EngineError::Limit { .. }), "{error}");
    });
}

#[test]
fn a_time_out_says_where_the_time_went() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder, 64 << 20, 1);
    block_on(async {
        let Answer::Rows { stream, .. } = session.run(&parse(ROWS).unwrap()[0]).await.unwrap()
        else {
            panic!("rows")
        };
        // The slot is taken as long as the answer is read.
        let error = run(&session, ROWS, Some(Duration::from_millis(20))).await.unwrap_err();
        assert!(matches!(error, EngineError::TimedOut { place: Some((1, 1)), .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("20 ms") && text.contains("number 1 of 1 in the queue"), "{text}");
        assert_eq!(error.code(), SqlState::QueryCanceled);
        assert!(error.hint().is_some_and(|hint| hint.starts_with("run fewer at once")), "{text}");
        // What computes nothing does not wait.
        assert_eq!(run(&session, "SHOW TABLES", None).await.unwrap(), 0);
        drop(stream);

        run(&session, "SET uplake.timeout = '30ms'", None).await.unwrap();
        let endless = "SELECT max(value % 7) FROM generate_series(1, 1000000000000) AS s(value)";
        let error = run(&session, endless, None).await.unwrap_err();
        assert!(matches!(error, EngineError::TimedOut { place: None, .. }), "{error}");
        assert!(error.to_string().contains("of execution"), "{error}");
        run(&session, "SET uplake.timeout = '0'", None).await.unwrap();
        assert_eq!(run(&session, ROWS, None).await.unwrap(), 100_000);
        let error = run(&session, "SET uplake.timeout = 'soon'", None).await.unwrap_err();
        assert!(error.to_string().contains("30s"), "{error}");
    });
}

/// A time-out while rows come.
#[test]
fn an_answer_that_is_read_too_slowly_ends_with_the_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder, 64 << 20, 1);
    block_on(async {
        let statement = parse(&ROWS.replace("100000", "100000000000")).unwrap().remove(0);
        let options =
            RunOptions { timeout: Some(Duration::from_millis(50)), ..RunOptions::default() };
        let Answer::Rows { mut stream, .. } = session.run_with(&statement, options).await.unwrap()
        else {
            panic!("rows")
        };
        let error = loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break EngineError::from(error),
                None => panic!("a hundred billion rows in 50 ms"),
            }
        };
        assert!(matches!(error, EngineError::TimedOut { place: None, .. }), "{error}");
        assert!(stream.next().await.is_none());
        // The slot is free although the stream is still there.
        assert_eq!(run(&session, ROWS, None).await.unwrap(), 100_000);
    });
}

#[test]
fn the_queue_shows_who_waits_and_forgets_who_left() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder, 64 << 20, 1);
    block_on(async {
        let statement = &parse(ROWS).unwrap()[0];
        let Answer::Rows { stream, .. } = session.run(statement).await.unwrap() else {
            panic!("rows")
        };
        let mut second = Box::pin(run(&session, "SELECT 2", None));
        let mut third = Box::pin(run(&session, "SELECT 3", None));
        assert!(
            second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none()
        );
        let queue = session.queue();
        let texts: Vec<&str> = queue.waiting.iter().map(|listed| &*listed.text).collect();
        assert_eq!((queue.running[0].text.as_ref(), texts), (ROWS, vec!["SELECT 2", "SELECT 3"]));
        drop(second);
        assert_eq!(session.queue().waiting.len(), 1);
        drop(stream);
        assert_eq!(third.await.unwrap(), 1);
        let usage = session.usage();
        assert_eq!((usage.running, usage.waiting, usage.memory_bytes), (0, 0, 0));
        assert_eq!(usage, Usage::default());
    });
}
