//! How long is something left of statements that are stopped at any moment?
//! Unit: milliseconds from the stop to nothing left. Floor: 100 ms.
//!
//!     cargo run --release -p uplake-engine --example dropped -- [MOMENTS] [FIRST SEED]

#[path = "../tests/it/dropped.rs"]
#[allow(clippy::unwrap_used, reason = "a program that cannot go on should stop")]
mod dropped;

use std::time::{Duration, Instant};

/// What is asked for.
const FLOOR: Duration = Duration::from_millis(100);
const SLOWEST_SHOWN: usize = 10;

fn main() -> std::io::Result<()> {
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse().ok());
    let (moments, first) = (argument(1).unwrap_or(10_000u64), argument(2).unwrap_or(0u64));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let ground = dropped::Ground::new().await;
        let begun = Instant::now();
        let mut outcomes = Vec::new();
        for seed in first..first + moments {
            outcomes.push(ground.one(seed).await);
        }
        outcomes.sort_by_key(|outcome| outcome.gone_after);
        let at = |share: f64| {
            let place = (share * outcomes.len() as f64) as usize;
            let outcome = outcomes.get(place.min(outcomes.len().saturating_sub(1)));
            outcome.map_or(0.0, |outcome| outcome.gone_after.as_secs_f64() * 1000.0)
        };
        let late = outcomes.iter().filter(|outcome| outcome.gone_after > FLOOR).count();
        let spilled = outcomes.iter().filter(|outcome| outcome.spilled).count();
        let refused = outcomes.iter().filter(|outcome| outcome.refused.is_some()).count();
        println!(
            "{moments} moments in {:.0} s, {spilled} of them while spilling, {refused} with too little \
             memory; gone after p50 {:.1}, p99 {:.1}, p99.9 {:.1}, at most {:.1} ms; {late} later than \
             100 ms",
            begun.elapsed().as_secs_f64(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
        for outcome in outcomes.iter().rev().take(SLOWEST_SHOWN) {
            println!("  {outcome}");
        }
    });
    Ok(())
}
