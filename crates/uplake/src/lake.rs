//! `uplake lake check|backup|restore|probe`.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use uplake_engine::{Definitions, MetricCatalogue, saved_report};
use uplake_table::conformance::{self, Rounds};
use uplake_table::{AsOf, CopyOptions, CopySummary, Lake, Versioned, copy_lake, vacuum};

use crate::LakeArgs;
use crate::environment::{self, now_millis};
use crate::output::{bytes_text, count_text, say};
use crate::progress::Line;
use crate::table::{DEFAULT_RETENTION, parse_duration};
use crate::{domain, table};

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
    /// Read all that the lake holds, and say what is damaged, lost or left over
    Check,
    /// Copy the lake to another folder or bucket; again, what is new
    Backup {
        /// Where to: a folder, or a URL
        to: String,
    },
    /// Copy a backup back: into an empty place, or over a lake that was damaged
    Restore {
        /// Where from: a folder, or a URL
        from: String,
    },
    /// Let writers race for objects: of each race exactly one may win, or commits would be lost
    Probe {
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
    let at = |url: String| environment::lake(&LakeArgs { lake: url, ..args.lake.clone() });
    let here = || environment::lake(&args.lake);
    match args.verb {
        Verb::Check => check(&here()?).await,
        Verb::Backup { to } => copy(&here()?, &at(to)?, CopyOptions::default()).await,
        Verb::Restore { from } => copy(&at(from)?, &here()?, CopyOptions { compare: true }).await,
        Verb::Probe { url, rounds, writers } => {
            let lake = url.map_or_else(here, at)?;
            probe(&lake, Rounds { rounds, writers }).await
        }
    }
}

/// Every part is looked at, whatever is wrong with the others.
async fn check(lake: &Lake) -> Result<()> {
    let mut problems = Vec::new();
    let mut note = |what: &str, name: &str, found: Result<Option<String>>| match found {
        Ok(None) => say!("{what} {name} is sound"),
        Ok(Some(problem)) => problems.push(problem),
        Err(error) => problems.push(format!("{what} {name}: {error:#}")),
    };
    let tables = lake.table_names().await?;
    for name in &tables {
        note("table", name, table::shown_problem(lake, name).await);
    }
    let domains = lake.domain_names().await?;
    for name in &domains {
        note("id domain", name, domain::shown_problem(lake, name).await);
    }
    let sets = lake.id_sets().await?;
    for set in &sets {
        let read = lake.read_id_set(&set.name).await;
        note("id set", &set.name, read.map(|_| None).map_err(Into::into));
    }
    let catalogue = MetricCatalogue::read(lake).await?;
    let metrics = catalogue.versions();
    for name in metrics.keys() {
        note("metric", name, catalogue.problem(name).await.map_err(Into::into));
    }
    let names = lake.experiments().await?;
    let mut definitions = Definitions::new(lake);
    for name in &names {
        let read = definitions.named(name).await;
        note("definition", name, read.map(|_| None).map_err(Into::into));
    }
    let saved = lake.versions(Versioned::Result).await?;
    for (name, versions) in &saved {
        note("saved results of", name, saved_results(lake, name, versions).await);
    }
    for name in &tables {
        // What cannot be read was named above.
        let Ok(left) = left_over(lake, name).await else { continue };
        if left > 0 {
            say!(
                "table {name} has {left} files that no version of the last week needs; remove them \
                 with: uplake table vacuum {name}"
            );
        }
    }
    say!(
        "{} tables, {} id domains, {} id sets, {} definitions, {} metrics, {} saved results",
        tables.len(),
        domains.len(),
        sets.len(),
        names.len(),
        metrics.len(),
        saved.values().map(Vec::len).sum::<usize>()
    );
    if problems.is_empty() {
        say!("the lake is sound");
        return Ok(());
    }
    for problem in &problems {
        say!("- {problem}");
    }
    match problems.len() {
        1 => bail!("one part of {} is not sound", lake.location()),
        parts => bail!("{parts} parts of {} are not sound", lake.location()),
    }
}

async fn saved_results(lake: &Lake, name: &str, versions: &[u32]) -> Result<Option<String>> {
    for version in versions {
        let saved = saved_report(lake, name, *version).await?;
        if saved.experiment != name {
            return Ok(Some(format!("result {version} of {name} is of `{}`", saved.experiment)));
        }
    }
    Ok(None)
}

/// Files and uploads that a vacuum would remove.
async fn left_over(lake: &Lake, name: &str) -> Result<usize> {
    let base = lake.snapshot(name, &AsOf::Latest).await?;
    let retain = parse_duration(DEFAULT_RETENTION).map_err(anyhow::Error::msg)?;
    let summary = vacuum(lake, &base, retain, true, now_millis()).await?;
    Ok(summary.removed.len() + summary.ended_uploads.len())
}

async fn copy(from: &Lake, to: &Lake, options: CopyOptions) -> Result<()> {
    let line = Line::new();
    let show = |done: &CopySummary| {
        let bytes = bytes_text(done.copied_bytes);
        line.show(&format!("copied {} objects, {bytes}", count_text(done.copied)));
    };
    let copied = copy_lake(from, to, options, show).await;
    line.clear();
    let copied = copied?;
    say!(
        "copied {} objects of {} to {}: {} tables; {} were there already",
        count_text(copied.copied),
        bytes_text(copied.copied_bytes),
        to.location(),
        copied.tables,
        count_text(copied.kept)
    );
    if !copied.others.is_empty() {
        say!(
            "{} keeps what {} has not: {}",
            to.location(),
            from.location(),
            copied.others.join(", ")
        );
    }
    if copied.damaged.is_empty() {
        return Ok(());
    }
    for damaged in &copied.damaged {
        say!("- {damaged}");
    }
    bail!(
        "{} parts of {} are damaged: of their tables the newest version was not copied",
        copied.damaged.len(),
        from.location()
    )
}

async fn probe(lake: &Lake, asked: Rounds) -> Result<()> {
    let folder = format!("_uplake/check-{}-{}", now_millis(), std::process::id());
    let folder = folder.split('/').fold(lake.root().clone(), |path, part| path.join(part));
    let line = Line::new();
    let Rounds { rounds, writers } = asked;
    let show = |done: u32| line.show(&format!("{done} of {rounds} races"));
    let found = conformance::check(lake.storage().as_ref(), &folder, asked, show).await;
    line.clear();
    let found = found.with_context(|| format!("{} cannot hold a lake", lake.location()))?;
    say!(
        "{} can hold a lake: {} races of {writers} writers had one winner each, {} losers were told",
        lake.location(),
        found.races_won_once,
        found.losers
    );
    say!("{}", lake.storage().total());
    Ok(())
}
