//! What does a prepared query take in process, bound to one row of values after the other?
//! Unit: milliseconds from the values to all rows. `bench/over_the_wire.py` asks the same over a connection.
//!
//!     cargo run --release -p uplake-engine --example bound -- LAKE "SELECT … $1 … $2" 10 < values.tsv
//!
//! A line has texts, apart by tabs. All are asked as often as the number says; then the milliseconds of each
//! are told, when it was asked last, and how many rows came then.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use futures::TryStreamExt;
use uplake_engine::{Answer, Engine, Prepared, ScalarValue, Session, SessionOptions, parse};
use uplake_table::{AsOf, Lake};

const MEMORY_BYTES: usize = 8 << 30;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let (Some(lake), Some(query), Some(times)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("say which lake, which query, and how often".into());
    };
    let times = times.parse()?;
    let mut values = String::new();
    std::io::stdin().read_to_string(&mut values)?;
    let options = SessionOptions {
        memory_bytes: MEMORY_BYTES,
        threads: std::thread::available_parallelism()?.get(),
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes: true,
        at_once: None,
        timeout: None,
        clock: Arc::new(|| 0),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let session = Engine::new(Lake::open(&lake)?, &options)?.session();
    // On a thread of the runtime, as a server's statements are: another one is woken for each answer.
    runtime.block_on(runtime.spawn(asked(session, query, lines(&values), times)))??;
    Ok(())
}

fn lines(values: &str) -> Vec<Vec<ScalarValue>> {
    let line = |line: &str| line.split('\t').map(ScalarValue::from).collect();
    values.lines().map(line).collect()
}

async fn asked(
    session: Session,
    query: String,
    values: Vec<Vec<ScalarValue>>,
    times: usize,
) -> Result<(), Failed> {
    let statement = parse(&query)?.pop().ok_or("there is no statement")?;
    let prepared = session.prepare(&statement).await?;
    let (mut took, mut rows) = (Vec::new(), 0);
    for _ in 0..times {
        took.clear();
        rows = 0;
        for values in &values {
            let begun = Instant::now();
            rows += rows_of(&session, &prepared, values).await?;
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    for milliseconds in took {
        println!("{milliseconds}");
    }
    println!("{rows} rows");
    Ok(())
}

async fn rows_of(
    session: &Session,
    prepared: &Prepared,
    values: &[ScalarValue],
) -> Result<usize, Failed> {
    match session.run(&prepared.bind(values)?).await? {
        Answer::Done { .. } => Ok(0),
        Answer::Rows { stream, .. } => {
            let batches: Vec<_> = stream.try_collect().await?;
            Ok(batches.iter().map(|batch| batch.num_rows()).sum())
        }
    }
}
