//! What does a prepared query take in process, bound to one row of values after the other?
//! Unit: milliseconds from the values to all rows. `bench/over_the_wire.py` asks the same over a connection.
//!
//!     cargo run --release -p uplake-engine --example bound -- LAKE "SELECT … $1 … $2" < values.tsv
//!
//! A line has texts, apart by tabs. All are asked once before they count; then the milliseconds of each are
//! told, and at last how many rows came.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use futures::TryStreamExt;
use uplake_engine::{Answer, Engine, Prepared, ScalarValue, Session, SessionOptions, parse};
use uplake_table::{AsOf, Lake};

const MEMORY_BYTES: usize = 8 << 30;
const ROUNDS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(lake), Some(query)) = (arguments.next(), arguments.next()) else {
        return Err("say which lake and which query".into());
    };
    let mut values = String::new();
    std::io::stdin().read_to_string(&mut values)?;
    let values: Vec<Vec<&str>> = values.lines().map(|line| line.split('\t').collect()).collect();
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
    runtime.block_on(async {
        let session = Engine::new(Lake::open(&lake)?, &options)?.session();
        let statement = parse(&query)?.pop().ok_or("there is no statement")?;
        let prepared = session.prepare(&statement).await?;
        let (mut took, mut rows) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
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
    })
}

async fn rows_of(
    session: &Session,
    prepared: &Prepared,
    values: &[&str],
) -> Result<usize, Box<dyn Error>> {
    let values: Vec<_> = values.iter().map(|text| ScalarValue::from(*text)).collect();
    match session.run(&prepared.bind(&values)?).await? {
        Answer::Done { .. } => Ok(0),
        Answer::Rows { stream, .. } => {
            let batches: Vec<_> = stream.try_collect().await?;
            Ok(batches.iter().map(|batch| batch.num_rows()).sum())
        }
    }
}
