//! `uplake bench-concurrent` (hidden): many statements at once in one process, for bench/allocator.py
//! and bench/concurrent.py.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::StreamExt;
use uplake_engine::{Answer, EngineError, Session, Statement, parse};
use uplake_table::AsOf;

use crate::LakeArgs;
use crate::environment::{Limits, session};

/// Linux counts CPU time in these.
const TICKS_PER_SECOND: f64 = 100.0;

/// Arguments of `uplake bench-concurrent`.
#[derive(Args, Debug)]
pub struct BenchConcurrentArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Statements, run round-robin
    #[arg(long)]
    queries: PathBuf,
    /// Statements at once
    #[arg(long, default_value_t = 24)]
    at_once: usize,
    /// Start no statement after this long
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// End after so many, too
    #[arg(long, default_value_t = usize::MAX)]
    statements: usize,
    /// Of them, those that compute (default: what a session has)
    #[arg(long)]
    slots: Option<usize>,
}

/// Runs the command; prints one JSON object.
pub async fn run(args: BenchConcurrentArgs) -> Result<()> {
    let text = std::fs::read_to_string(&args.queries)
        .with_context(|| format!("reading {}", args.queries.display()))?;
    let statements: Arc<Vec<Statement>> = Arc::new(parse(&text)?);
    if statements.is_empty() {
        bail!("{} holds no statement", args.queries.display());
    }
    let limits = Limits { timeout: None, at_once: args.slots };
    let session = Arc::new(session(&args.lake, AsOf::Latest, limits)?);
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let cpu_before = cpu_seconds();
    let until = started + Duration::from_secs_f64(args.seconds);
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..args.at_once {
        let (session, statements, next) =
            (Arc::clone(&session), Arc::clone(&statements), Arc::clone(&next));
        workers.spawn(async move {
            let (mut times, mut errors) = (Vec::new(), 0);
            while Instant::now() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= args.statements {
                    break;
                }
                let number = number % statements.len();
                let begun = Instant::now();
                match drain(&session, &statements[number]).await {
                    Ok(()) => times.push(begun.elapsed().as_secs_f64()),
                    Err(error) => {
                        eprintln!("statement {}: {error}", number + 1);
                        errors += 1;
                    }
                }
            }
            (times, errors)
        });
    }
    let (mut times, mut errors) = (Vec::new(), 0);
    while let Some(done) = workers.join_next().await {
        let (some, failed) = done.context("a worker panicked")?;
        times.extend(some);
        errors += failed;
    }
    times.sort_by(f64::total_cmp);
    let percentile = |share: f64| {
        let at = (share * times.len() as f64) as usize;
        times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    let report = serde_json::json!({
        "statements": times.len(),
        "seconds": started.elapsed().as_secs_f64(),
        "cpu_seconds": cpu_seconds() - cpu_before,
        "mean": times.iter().sum::<f64>() / times.len().max(1) as f64,
        "p50": percentile(0.5),
        "p95": percentile(0.95),
        "errors": errors,
    });
    println!("{report}");
    Ok(())
}

async fn drain(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    if let Answer::Rows { mut stream, .. } = session.run(statement).await? {
        while let Some(batch) = stream.next().await {
            batch.map_err(EngineError::from)?;
        }
    }
    Ok(())
}

/// User and system time of this process, 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name, in brackets, may hold spaces.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}
