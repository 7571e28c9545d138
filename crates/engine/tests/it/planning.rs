//! Large statements that are stopped while they are planned: nothing of them goes on.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uplake_engine::{EngineError, RunOptions, Session, SqlState, Stop, parse};

use crate::dropped::Dice;
use crate::session;

/// How often each statement is stopped, in each of two ways.
const MOMENTS: usize = 3;
/// How long a step may take on a busy machine, in a build that optimises little.
const STEP: Duration = Duration::from_secs(2);

/// Statements that are planned for a second or more, each for another reason.
fn statements() -> [(&'static str, String); 4] {
    let list = |count: usize, separator: &str, item: &dyn Fn(usize, &mut String)| {
        let mut text = String::new();
        for n in 0..count {
            if n > 0 {
                text.push_str(separator);
            }
            item(n, &mut text);
        }
        text
    };
    let union = list(500, " UNION ALL ", &|n, text| {
        write!(
            text,
            "SELECT n, n + {n} AS d, name || '{n}' FROM t WHERE n > {n} AND name LIKE '%{n}%'"
        )
        .unwrap();
    });
    let values =
        list(700, " UNION ALL ", &|n, text| write!(text, "SELECT {n} + random()").unwrap());
    let chains = list(3, ", ", &|n, text| {
        *text += &list(500, " + ", &|m, text| write!(text, "(n * {m})").unwrap());
        write!(text, " AS c{n}").unwrap();
    });
    let members = list(15_000, ", ", &|n, text| write!(text, "length(name) + {n}").unwrap());
    [
        ("scans", union),
        ("rows", values),
        ("deep expressions", format!("SELECT {chains} FROM t")),
        ("a list of expressions", format!("SELECT count(*) FROM t WHERE n IN ({members})")),
    ]
}

#[test]
fn a_statement_is_planned_no_longer_than_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(256 << 20)
        .enable_all()
        .build()
        .unwrap();
    let session: Arc<Session> = Arc::new(session(folder.path(), 1 << 30, 2));
    let rows = "CREATE TABLE t AS SELECT value AS n, concat('n', CAST(value AS TEXT)) AS name \
                FROM generate_series(1, 100) AS s(value)";
    runtime.block_on(session.query(rows)).unwrap();
    let tasks = || runtime.metrics().num_alive_tasks();
    let idle = tasks();
    let mut dice = Dice(20261126);
    let (mut worst, mut planned) = (Duration::ZERO, 0);
    for (what, text) in statements() {
        let statement = Arc::new(parse(&text).unwrap().remove(0));
        for at in 0..2 * MOMENTS {
            let moment = Duration::from_millis(dice.below(1000));
            let times_out = at % 2 == 0;
            let stop = Stop::default();
            let work = {
                let (session, statement) = (Arc::clone(&session), Arc::clone(&statement));
                let timeout = times_out.then_some(moment);
                stop.during(async move {
                    let options = RunOptions { timeout, ..RunOptions::default() };
                    session.run_with(&statement, options).await.map(drop)
                })
            };
            let began = Instant::now();
            let work = runtime.spawn(work);
            if !times_out {
                std::thread::sleep(moment);
                drop(stop);
            }
            let ended = runtime.block_on(work).unwrap();
            while tasks() > idle {
                assert!(began.elapsed() < moment + 10 * STEP, "{what} goes on");
                std::thread::sleep(Duration::from_millis(1));
            }
            let late = began.elapsed().saturating_sub(moment);
            match ended {
                Err(error @ EngineError::TimedOut { .. }) => assert!(times_out, "{error}"),
                Err(error) => {
                    assert_eq!(
                        (error.code(), times_out),
                        (SqlState::QueryCanceled, false),
                        "{error}"
                    );
                }
                Ok(()) => planned += 1,
            }
            println!("{what}, stopped after {moment:?}: {late:?} later");
            worst = worst.max(late);
        }
    }
    assert!(worst < STEP, "a step took {worst:?}");
    // Else nothing was stopped.
    assert!(planned < 2 * MOMENTS, "{planned} were planned in time");
}
