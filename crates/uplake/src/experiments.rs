//! `uplake experiments`: what the lake's experiments are at.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use uplake_engine::{
    Definitions, EngineError, ExperimentList, LastResults, ListedExperiment, last_results,
    list_experiments,
};
use uplake_experiment::definition::State;
use uplake_experiment::past_lifts::fit;
use uplake_experiment::saved::SavedLifts;
use uplake_table::{AsOf, Lake, PutDefinition, check_experiment_name};

use crate::LakeArgs;
use crate::environment::{self, now_millis};
use crate::output::{ListFormat, error_text, say, say_source, tell};

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
    let ExperimentList { experiments, unreadable } = list_experiments(lake, now).await?;
    tell_unreadable(unreadable);
    let listed: Vec<Listed> = experiments.into_iter().map(line).collect();
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

fn line(found: ListedExperiment) -> Listed {
    let ListedExperiment { name, experiment, state, last } = found;
    let mut line = Listed { name, ..Listed::default() };
    let mut fail = |error: EngineError| {
        let error = error_text(&error.into());
        tell(&format!("warning: experiment {}: {error}", line.name));
        line.error = Some(error);
    };
    let experiment = match experiment {
        Ok(experiment) => experiment,
        Err(error) => {
            fail(error);
            return line;
        }
    };
    match state {
        Ok(state) => line.state = state,
        Err(error) => fail(error),
    }
    line.time_zone = Some(experiment.time_zone);
    if let Some(period) = experiment.period {
        line.start = Some(period.start);
        line.end = Some(period.end);
    }
    if let Some((version, saved)) = last {
        line.decision = Some(saved.verdict.decision);
        line.sentence = Some(saved.verdict.sentence);
        line.result = Some(version);
        line.saved_at = Some(saved.saved_at);
    }
    line
}

fn tell_unreadable(results: Vec<EngineError>) {
    for error in results {
        tell(&format!("warning: {}", error_text(&error.into())));
    }
}

async fn set(lake: &Lake, files: &[PathBuf], replace: bool) -> Result<()> {
    let mut read = Definitions::new(lake);
    let mut definitions: Vec<(String, String)> = Vec::new();
    // Nothing is written before all of it is known to be right.
    for file in files {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {path}"))?;
        let name = read.read(&text, &path).await?.experiment().name.clone();
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
    let LastResults { results, unreadable } = last_results(lake).await?;
    tell_unreadable(unreadable);
    if results.is_empty() {
        bail!("there are no saved results; `uplake report NAME --save` saves one");
    }
    let saved = || results.values().map(|(_, saved)| saved);
    let SavedLifts { lifts, experiments, untrusted } = SavedLifts::of(saved(), metric);
    if experiments + untrusted == 0 {
        let all = saved().flat_map(|saved| &saved.lifts);
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
}
