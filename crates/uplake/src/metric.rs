//! `uplake metric list|show|set|history`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use uplake_engine::{MetricCatalogue, MetricSet};
use uplake_experiment::definition::{Direction, NewMetric, Stored, Use, metrics_of};
use uplake_table::{Lake, Versioned};

use crate::LakeArgs;
use crate::environment::{self, now_millis};
use crate::output::{ListFormat, error_text, say, say_source, tell};

/// Arguments of `uplake metric`.
#[derive(Args, Debug)]
pub struct MetricArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// The metrics of the catalogue, at their newest versions
    List {
        /// Only those with this tag
        #[arg(long)]
        tag: Option<String>,
        /// How to write the list
        #[arg(long, value_enum, default_value = "text")]
        format: ListFormat,
    },
    /// How a metric is defined
    Show {
        /// The metric, or METRIC@VERSION
        metric: String,
    },
    /// Put the metrics of files into the catalogue; what has changed becomes a new version
    Set {
        /// Files of [[metric]] tables (docs/experiments.md)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// The versions of a metric, newest first
    History {
        /// The metric
        metric: String,
    },
}

/// Runs the command.
pub async fn run(args: MetricArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    match args.verb {
        Verb::List { tag, format } => list(&lake, tag.as_deref(), format).await,
        Verb::Show { metric } => show(&lake, &metric).await,
        Verb::Set { files } => set(&lake, &files).await,
        Verb::History { metric } => history(&lake, &metric).await,
    }
}

/// What `--format json` says of a metric.
#[derive(Serialize)]
struct Listed {
    name: String,
    version: u32,
    r#type: &'static str,
    role: &'static str,
    direction: &'static str,
    minimum_effect: Option<f64>,
    owner: Option<String>,
    tags: Vec<String>,
    description: Option<String>,
    set_at: Option<String>,
}

impl Listed {
    fn new(metric: Stored, version: u32) -> Self {
        Self {
            name: metric.name,
            version,
            r#type: metric.kind,
            role: if metric.guardrail { "guardrail" } else { "goal" },
            direction: match metric.direction {
                Direction::Increase => "increase",
                Direction::Decrease => "decrease",
            },
            minimum_effect: metric.minimum_effect,
            owner: metric.about.owner,
            tags: metric.about.tags,
            description: metric.about.description,
            set_at: metric.set_at,
        }
    }
}

async fn list(lake: &Lake, tag: Option<&str>, format: ListFormat) -> Result<()> {
    let catalogue = MetricCatalogue::read(lake).await?;
    let is_empty = catalogue.versions().is_empty();
    let mut listed = Vec::new();
    for (name, version, found) in catalogue.metrics().await {
        match found {
            Ok(metric) => {
                let has = |tag: &str| metric.about.tags.iter().any(|other| other == tag);
                if tag.is_none_or(has) {
                    listed.push(Listed::new(metric, version));
                }
            }
            // The others are still wanted.
            Err(error) => tell(&format!("warning: metric {name}: {}", error_text(&error.into()))),
        }
    }
    if format == ListFormat::Json {
        println!("{}", serde_json::to_string_pretty(&listed)?);
        return Ok(());
    }
    if is_empty {
        say!("no metrics in the catalogue of {}", lake.location());
    }
    for metric in listed {
        let Listed { name, version, r#type: kind, role, direction, .. } = metric;
        let arrow = if direction == "increase" { "up" } else { "down" };
        let least = metric.minimum_effect.map_or_else(|| "-".to_owned(), percent);
        let owner = metric.owner.unwrap_or_else(|| "-".into());
        let tags = metric.tags.join(", ");
        say!(
            "{name:<32}  {version:>4}  {kind:<10}  {role:<9}  {arrow:<4}  {least:>7}  {owner:<16}  {tags}"
        );
    }
    Ok(())
}

/// A fraction in percent, as it was written.
fn percent(fraction: f64) -> String {
    format!("{} %", (fraction * 1e14).round() / 1e12)
}

async fn show(lake: &Lake, asked: &str) -> Result<()> {
    let used = Use::parse(asked).with_context(|| {
        format!("`{asked}` is no metric; write its name, or NAME@VERSION with a version from 1")
    })?;
    let (version, metric) = MetricCatalogue::read(lake).await?.find(&used).await?;
    let set_at = metric.set_at.map_or_else(String::new, |time| format!(", set {time}"));
    say_source(&format!("# {}, version {version}{set_at}\n\n{}", used.name, metric.text));
    Ok(())
}

async fn history(lake: &Lake, name: &str) -> Result<()> {
    for (version, found) in MetricCatalogue::read(lake).await?.history(name).await? {
        match found {
            Ok(metric) => {
                let set_at = metric.set_at.unwrap_or_else(|| "-".into());
                let owner = metric.about.owner.unwrap_or_else(|| "-".into());
                say!("{version:>6}  {set_at}  {:<10}  {owner}", metric.kind);
            }
            Err(error) => say!("{version:>6}  {}", error_text(&error.into())),
        }
    }
    Ok(())
}

async fn set(lake: &Lake, files: &[PathBuf]) -> Result<()> {
    let mut metrics: Vec<NewMetric> = Vec::new();
    // Nothing is written before all of it is known to be right.
    for file in files {
        let path = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {path}"))?;
        for metric in metrics_of(&text, &path)? {
            Versioned::Metric.check_name(&metric.name).with_context(|| path.clone())?;
            if metrics.iter().any(|other| other.name == metric.name) {
                bail!("{path}: metric `{}` is in another of these files, too", metric.name);
            }
            metrics.push(metric);
        }
    }
    let catalogue = MetricCatalogue::read(lake).await?;
    for metric in &metrics {
        let name = &metric.name;
        let MetricSet { version, is_new } = catalogue.set(metric, now_millis()).await?;
        match is_new {
            true => say!("set {name}, version {version}"),
            false => say!("{name} is as it was in version {version}"),
        }
    }
    Ok(())
}
