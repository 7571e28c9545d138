//! `uplake lake check`.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use uplake_table::conformance::{self, Rounds};

use crate::LakeArgs;
use crate::environment::{self, now_millis};
use crate::progress::Line;

/// Arguments of `uplake lake`.
#[derive(Args, Debug)]
pub struct LakeCommand {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Let writers race for objects: of each race exactly one may win, or commits would be lost
    Check {
        /// Where a lake is or shall be (default: --lake)
        url: Option<String>,
        /// Races
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        /// Writers in each
        #[arg(long, default_value_t = 32)]
        writers: u32,
    },
}

/// Runs the command.
pub async fn run(args: LakeCommand) -> Result<()> {
    let Verb::Check { url, rounds, writers } = args.verb;
    let lake = match url {
        Some(url) => environment::lake(&LakeArgs { lake: url, ..args.lake })?,
        None => environment::lake(&args.lake)?,
    };
    let folder = format!("_uplake/check-{}-{}", now_millis(), std::process::id());
    let folder = folder.split('/').fold(lake.root().clone(), |path, part| path.join(part));
    let line = Line::new();
    let show = |done: u32| line.show(&format!("{done} of {rounds} races"));
    let asked = Rounds { rounds, writers };
    let found = conformance::check(lake.storage().as_ref(), &folder, asked, show).await;
    line.clear();
    let found = found.with_context(|| format!("{} cannot hold a lake", lake.location()))?;
    println!(
        "{} can hold a lake: {} races of {writers} writers had one winner each, {} losers were told",
        lake.location(),
        found.races_won_once,
        found.losers
    );
    println!("{}", lake.storage().total());
    Ok(())
}
