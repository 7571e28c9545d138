//! Checks whether commits may be trusted to a store:
//! `cargo run -p uplake-objectio --example conformance -- s3://bucket/folder [ROUNDS]`,
//! with the provider's usual environment variables.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use uplake_objectio::conformance::{Rounds, check};
use uplake_objectio::{StorageOptions, Store, StoreError};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(url) = arguments.first() else {
        eprintln!("usage: conformance URL [ROUNDS]");
        return ExitCode::from(2);
    };
    let rounds = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    match run(url, Rounds { rounds, ..Rounds::default() }).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(url: &str, rounds: Rounds) -> Result<(), StoreError> {
    let options = StorageOptions::default().with_environment(std::env::vars())?;
    let store = Store::open(url, &options)?;
    let folder = store.prefix().clone().join("_conformance");
    let report = check(&*store, &folder, rounds, |done| {
        if done % 100 == 0 {
            eprintln!("{done} races");
        }
    })
    .await?;
    println!(
        "{} races of {} writers had one winner each; {} requests, {} read back",
        report.races_won_once,
        rounds.writers,
        store.total().requests(),
        store.total().read_backs
    );
    Ok(())
}
