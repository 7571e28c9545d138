//! Changes sound bytes at random and asks everything of them, for as long as wanted.
//! Run: cargo run --release -p uplake-postings --example fuzz -- [SECONDS] [SEED]
//!
//! A panic prints the seed and the round to start again from. Built with `--release` it still
//! checks arithmetic if `RUSTFLAGS="-C overflow-checks=on -C debug-assertions=on"`.
#![forbid(unsafe_code)]

mod hostile;

use std::time::{Duration, Instant};

use uplake_testkit::random::Random;

fn main() {
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse().ok());
    let (seconds, seed) = (argument(1).unwrap_or(60), argument(2).unwrap_or(1));
    let corpus = hostile::Corpus::new();
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        let caught = std::panic::catch_unwind(|| corpus.try_one(&mut Random::stream(seed, round)));
        if let Err(panic) = caught {
            eprintln!("seed {seed}, round {round}");
            std::panic::resume_unwind(panic);
        }
        round += 1;
    }
    println!("{round} rounds of seed {seed} without a panic or a broken promise");
}
