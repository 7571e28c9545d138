//! How fast does the XAB data set come out, without files?
//! Floor: 4 million event rows a second on 2 cores, twice what writing Parquet is asked for.
//! Run: cargo run --release -p uplake-testkit --example xab_speed -- [DAYS] [THREADS]
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use uplake_testkit::xab::{World, XabOptions};

fn main() {
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse().ok());
    let (days, threads) = (argument(1).unwrap_or(8u32), argument(2).unwrap_or(2u32));
    let start = Instant::now();
    let world = World::new(&XabOptions::default());
    println!("world: {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let (next, events, exposures) = (AtomicU32::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let day = next.fetch_add(1, Ordering::Relaxed);
                    if day >= days {
                        break;
                    }
                    let plan = world.plan(day);
                    for block in (0..plan.event_blocks()).step_by(15) {
                        let blocks = block..(block + 15).min(plan.event_blocks());
                        events.fetch_add(plan.events(blocks).user.len(), Ordering::Relaxed);
                    }
                    let rows = plan.exposures(0..plan.exposure_blocks()).user.len();
                    exposures.fetch_add(rows, Ordering::Relaxed);
                }
            });
        }
    });
    let (seconds, events) = (start.elapsed().as_secs_f64(), events.into_inner());
    println!(
        "{events} events, {} exposures: {seconds:.2} s, {:.2} M event rows/s on {threads} threads",
        exposures.into_inner(),
        events as f64 / seconds / 1e6
    );
}
