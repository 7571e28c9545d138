//! `uplake experiments`: what the lake's experiments are at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use futures::StreamExt;
use serde::Serialize;
use uplake_experiment::Experiment;
use uplake_experiment::definition::State;
use uplake_experiment::past_lifts::{PastLift, fit};
use uplake_table::{AsOf, Lake, PutDefinition, Versioned, check_experiment_name};

use crate::LakeArgs;
use crate::catalogue::CatalogueReader;
use crate::environment::{self, now_millis};
use crate::output::{ListFormat, error_text, say, say_source, tell};
use crate::results::{self, Lift, Saved};

/// Objects that are read at once.
const READS_AT_ONCE: usize = 16;
/// What a report decides where arms are not as planned.
const UNTRUSTED: &str = "do_not_trust";

/// Arguments of `uplake experiments`.
#[derive(Args, Debug)]
pub struct ExperimentsArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// As of this time instead of now: 2026-11-01, "2026-11-01 08:00:00", UTC
    #[arg(long)]
    now: Option<String>,
    /// How to write the list
    #[arg(long, value_enum)]
    format: Option<ListFormat>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Put definitions into the lake, each under its name
    Set {
        /// Definitions (docs/experiments.md)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Also in place of another definition of that name
        #[arg(long)]
        replace: bool,
    },
    /// The definition of an experiment
    Show {
        /// The experiment
        experiment: String,
    },
    /// A prior for a metric's lifts, from the last saved result of every experiment
    Prior {
        /// Its name in reports, or in the catalogue
        #[arg(long)]
        metric: String,
    },
}

/// Runs the command.
pub async fn run(args: ExperimentsArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    if args.verb.is_some() && (args.list.now.is_some() || args.list.format.is_some()) {
        bail!("--now and --format are of the list: `uplake experiments` alone");
    }
    match args.verb {
        None => list(&lake, &args.list).await,
        Some(Verb::Set { files, replace }) => set(&lake, &files, replace).await,
        Some(Verb::Show { experiment }) => show(&lake, &experiment).await,
        Some(Verb::Prior { metric }) => prior(&lake, &metric).await,
    }
}

/// A line of the list.
#[derive(Default, Serialize)]
struct Listed {
    name: String,
    /// Absent without a period.
    state: Option<State>,
    start: Option<String>,
    end: Option<String>,
    time_zone: Option<String>,
    /// Of the last saved result.
    decision: Option<String>,
    sentence: Option<String>,
    result: Option<u32>,
    saved_at: Option<String>,
    /// Why the definition cannot be read.
    error: Option<String>,
}

async fn list(lake: &Lake, args: &ListArgs) -> Result<()> {
    let now = match args.now.as_deref().map(AsOf::parse).transpose()? {
        None => now_millis(),
        Some(AsOf::TimestampMillis(now)) => now,
        Some(_) => bail!("--now is a time: 2026-11-01, or \"2026-11-01 08:00:00\""),
    };
    let (names, saved) = futures::future::join(lake.experiments(), last_results(lake)).await;
    let (names, saved) = (names?, saved?);
    let mut reader = CatalogueReader::new(lake);
    let read = |name: String| async move { (lake.experiment(&name).await, name) };
    let mut definitions =
        futures::stream::iter(names.into_iter().map(read)).buffered(READS_AT_ONCE);
    let mut listed = Vec::new();
    while let Some((text, name)) = definitions.next().await {
        // One that was removed meanwhile is none.
        let Some((text, path)) = text? else { continue };
        listed.push(match experiment(&mut reader, &text, &path).await {
            Ok(experiment) => line(name, &experiment, now, &saved),
            Err(error) => {
                let error = error_text(&error);
                tell(&format!("warning: experiment {name}: {error}"));
                Listed { name, error: Some(error), ..Listed::default() }
            }
        });
    }
    if args.format == Some(ListFormat::Json) {
        println!("{}", serde_json::to_string_pretty(&listed)?);
        return Ok(());
    }
    if listed.is_empty() {
        say!(
            "no experiments in {}; `uplake experiments set FILE` puts definitions there",
            lake.location()
        );
    }
    for line in listed {
        let state = match (line.state, &line.error) {
            (_, Some(_)) => "unreadable",
            (None, None) => "no period",
            (Some(State::NotStarted), _) => "not started",
            (Some(State::Running), _) => "running",
            (Some(State::Over), _) => "over",
        };
        let period = line
            .start
            .zip(line.end)
            .map_or_else(|| "-".to_owned(), |(start, end)| format!("{start} to {end}"));
        let decision = line.decision.map_or_else(
            || "-".to_owned(),
            |decision| {
                format!("{} ({})", decision.replace('_', " "), line.saved_at.unwrap_or_default())
            },
        );
        say!("{:<32}  {state:<11}  {period:<24}  {decision}", line.name);
    }
    Ok(())
}

fn line(
    name: String,
    experiment: &Experiment,
    now_millis: i64,
    saved: &BTreeMap<String, (u32, Saved)>,
) -> Listed {
    let mut line = Listed { name, ..Listed::default() };
    line.time_zone = Some(experiment.time_zone.clone());
    if let Some(period) = &experiment.period {
        line.start = Some(period.start.clone());
        line.end = Some(period.end.clone());
        match local_time(&experiment.time_zone, now_millis) {
            Ok(local) => line.state = Some(period.state(&local)),
            Err(error) => {
                tell(&format!("warning: experiment {}: {error}", line.name));
                line.error = Some(error.to_string());
            }
        }
    }
    if let Some((version, saved)) = saved.get(&experiment.name) {
        line.decision = Some(saved.verdict.decision.clone());
        line.sentence = Some(saved.verdict.sentence.clone());
        line.result = Some(*version);
        line.saved_at = Some(saved.saved_at.clone());
    }
    line
}

/// `YYYY-MM-DDTHH:MM:SS` where the experiment's days begin and end.
fn local_time(zone: &str, millis: i64) -> Result<String> {
    let known: chrono_tz::Tz = zone
        .parse()
        .ok()
        .with_context(|| format!("`{zone}` is no time zone; write one like Europe/Berlin"))?;
    let utc = chrono::DateTime::from_timestamp_millis(millis).context("a time out of range")?;
    Ok(utc.with_timezone(&known).format("%Y-%m-%dT%H:%M:%S").to_string())
}

/// The last saved result of each experiment; those that cannot be read are told.
async fn last_results(lake: &Lake) -> Result<BTreeMap<String, (u32, Saved)>> {
    let versions = lake.versions(Versioned::Result).await?.into_iter();
    let last = versions.filter_map(|(name, all)| Some((name, *all.last()?)));
    let read = |(name, version): (String, u32)| async move {
        (results::read(lake, &name, version).await, name, version)
    };
    let mut reads = futures::stream::iter(last.map(read)).buffered(READS_AT_ONCE);
    let mut found = BTreeMap::new();
    while let Some((saved, name, version)) = reads.next().await {
        match saved {
            Ok(saved) => drop(found.insert(name, (version, saved))),
            Err(error) => tell(&format!("warning: {}", error_text(&error))),
        }
    }
    Ok(found)
}

/// Reads a definition with the lake's catalogue.
pub async fn experiment(
    reader: &mut CatalogueReader<'_>,
    text: &str,
    path: &str,
) -> Result<Experiment> {
    let catalogue = reader.catalogue_of(text, path).await?;
    Ok(Experiment::parse_with(text, path, &catalogue)?)
}

async fn set(lake: &Lake, files: &[PathBuf], replace: bool) -> Result<()> {
    let mut reader = CatalogueReader::new(lake);
    let mut definitions: Vec<(String, String)> = Vec::new();
    // Nothing is written before all of it is known to be right.
    for file in files {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {path}"))?;
        let name = experiment(&mut reader, &text, &path).await?.name;
        check_experiment_name(&name).with_context(|| path.clone())?;
        if definitions.iter().any(|(other, _)| *other == name) {
            bail!("{path}: experiment `{name}` is in another of these files, too");
        }
        definitions.push((name, text));
    }
    for (name, text) in &definitions {
        match lake.put_experiment(name, text, replace).await? {
            PutDefinition::Created => say!("set {name}"),
            PutDefinition::Replaced => say!("replaced {name}"),
            PutDefinition::Unchanged => say!("{name} is as it was"),
        }
    }
    Ok(())
}

async fn show(lake: &Lake, name: &str) -> Result<()> {
    let Some((text, _)) = lake.experiment(name).await? else {
        let known = lake.experiments().await?;
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        bail!("there is no experiment `{name}` in {}; it has {known}", lake.location());
    };
    say_source(text.trim_end());
    Ok(())
}

async fn prior(lake: &Lake, metric: &str) -> Result<()> {
    let saved = last_results(lake).await?;
    if saved.is_empty() {
        bail!("there are no saved results; `uplake report NAME --save` saves one");
    }
    let (mut lifts, mut experiments, mut untrusted) = (Vec::new(), 0, 0);
    for (_, saved) in saved.values() {
        let found = lifts_of(&saved.lifts, metric);
        if found.is_empty() {
            continue;
        }
        if saved.verdict.decision == UNTRUSTED {
            untrusted += 1;
            continue;
        }
        experiments += 1;
        lifts.extend(found);
    }
    if experiments + untrusted == 0 {
        let all = saved.values().flat_map(|(_, saved)| &saved.lifts);
        let names: BTreeSet<&str> = all.map(|lift| lift.metric.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        bail!("no saved result has a lift of `{metric}`; they have {}", names.join(", "));
    }
    if untrusted > 0 {
        tell(&format!("left out: {untrusted} experiments that are not to be trusted"));
    }
    let found = fit(&lifts).with_context(|| format!("a prior of `{metric}`"))?;
    let from = format!("{} lifts of {metric} in {experiments} experiments", lifts.len());
    if found.deviation == 0.0 {
        bail!(
            "errors explain all differences between {from}: how far true lifts are spread cannot be told, only \
             that their deviation is at most {} (95 %)",
            digits(found.deviation_high)
        );
    }
    say!(
        "# From {from}; the deviation lies between {} and {} (95 %).\nprior = {{ mean = {}, deviation = {} }}",
        digits(found.deviation_low),
        digits(found.deviation_high),
        digits(found.mean),
        digits(found.deviation)
    );
    Ok(())
}

/// Each arm's lift of the metric of that name, or else of the first that is that of the catalogue.
fn lifts_of(lifts: &[Lift], metric: &str) -> Vec<PastLift> {
    let named = |lift: &&Lift| lift.metric == metric;
    let mut found: Vec<&Lift> = lifts.iter().filter(named).collect();
    if found.is_empty() {
        let is_it = |lift: &&Lift| lift.catalogue.as_deref() == Some(metric);
        let first = lifts.iter().find(is_it).map(|lift| lift.metric.as_str());
        found = lifts.iter().filter(|lift| Some(lift.metric.as_str()) == first).collect();
    }
    found.into_iter().map(|lift| PastLift { value: lift.value, error: lift.error }).collect()
}

/// Four digits that count.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (3 - value.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_have_four_digits_that_count() {
        for (value, text) in [
            (0.009_310_41, "0.00931"),
            (-0.023_456, "-0.02346"),
            (1.5, "1.5"),
            (123_456.0, "123456"),
            (0.0, "0"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn days_are_those_of_the_zone() {
        // 2026-11-01 00:30 in Berlin, where it is an hour later.
        let millis = 1_793_489_400_000;
        assert_eq!(local_time("UTC", millis).unwrap(), "2026-10-31T23:30:00");
        assert_eq!(local_time("Europe/Berlin", millis).unwrap(), "2026-11-01T00:30:00");
        assert!(local_time("Europe/Nowhere", millis).is_err());
    }

    #[test]
    fn a_metric_counts_once_in_each_arm() {
        let lift = |metric: &str, catalogue: Option<&str>, arm: &str, value: f64| Lift {
            metric: metric.into(),
            catalogue: catalogue.map(str::to_owned),
            arm: arm.into(),
            value,
            error: 0.1,
        };
        let lifts = [
            lift("first week", Some("revenue"), "b", 1.0),
            lift("first week", Some("revenue"), "c", 2.0),
            lift("second week", Some("revenue"), "b", 3.0),
            lift("visits", None, "b", 4.0),
        ];
        let values = |metric| lifts_of(&lifts, metric).iter().map(|l| l.value).collect::<Vec<_>>();
        assert_eq!(values("revenue"), [1.0, 2.0]);
        assert_eq!(values("second week"), [3.0]);
        assert_eq!(values("visits"), [4.0]);
        assert!(values("x").is_empty());
    }
}
