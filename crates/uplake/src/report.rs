//! `uplake report`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use uplake_engine::Session;
use uplake_experiment::{Experiment, Report, analyze, plan};
use uplake_table::AsOf;

use crate::LakeArgs;
use crate::environment::session;
use crate::output::{is_terminal, width, write_file};

/// Arguments of `uplake report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// A definition (.toml), or the name of one in the lake's _uplake/experiments
    experiment: String,
    /// How to write the report
    #[arg(long, value_enum, default_value = "text")]
    format: ReportFormat,
    /// Break every metric down by this dimension of the definition
    #[arg(long)]
    dimension: Option<String>,
    /// Only these metrics
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    metric: Vec<String>,
    /// Read every table as of this version: 12, 2026-11-01, "2026-11-01 08:00:00"
    #[arg(long)]
    as_of: Option<String>,
    /// Write the report here instead of to standard output
    #[arg(long, short = 'o')]
    output: Option<PathBuf>,
    /// Print the SQL that the report runs instead of running it
    #[arg(long)]
    show_sql: bool,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A table for the terminal
    Text,
    /// JSON (schema: docs/statistics/report-schema.md)
    Json,
    /// One self-contained page
    Html,
}

/// Runs the command.
pub async fn run(args: ReportArgs) -> Result<()> {
    let as_of = args.as_of.as_deref().map(AsOf::parse).transpose()?.unwrap_or(AsOf::Latest);
    let session = session(&args.lake, as_of)?;
    let path = find_definition(&args.lake.lake, &args.experiment)?;
    let experiment = read_definition(&path)?;
    let metrics = (!args.metric.is_empty()).then_some(args.metric.as_slice());
    if args.show_sql {
        let query = plan(&experiment, args.dimension.as_deref(), metrics)?;
        println!("{}", session.moments_sql(&query)?);
        return Ok(());
    }
    let report = make(&session, &experiment, args.dimension.as_deref(), metrics).await?;
    let text = match args.format {
        ReportFormat::Text => {
            let for_people = args.output.is_none() && is_terminal();
            report.to_text(width(), for_people && std::env::var_os("NO_COLOR").is_none())
        }
        ReportFormat::Json => report.to_json(),
        ReportFormat::Html => report.to_html(),
    };
    match &args.output {
        Some(path) => write_file(path, &text),
        None => {
            use std::io::Write;
            let mut out = crate::output::stdout();
            writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush())?;
            Ok(())
        }
    }
}

/// Definition to report.
pub async fn make(
    session: &Session,
    experiment: &Experiment,
    dimension: Option<&str>,
    metrics: Option<&[String]>,
) -> Result<Report> {
    let query = plan(experiment, dimension, metrics)?;
    let moments = session
        .moments(&query)
        .await
        .with_context(|| format!("experiment `{}`", experiment.name))?;
    Ok(analyze(experiment, &query, &moments)?)
}

/// Reads a definition file.
pub fn read_definition(path: &Path) -> Result<Experiment> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Experiment::parse(&text, &path.display().to_string())?)
}

/// A path to a file, or a name in the lake's folder of experiments.
fn find_definition(lake: &str, name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(name);
    if path.is_file() {
        return Ok(path);
    }
    let folder = Path::new(lake).join("_uplake/experiments");
    let in_lake = folder.join(format!("{name}.toml"));
    if in_lake.is_file() {
        return Ok(in_lake);
    }
    let mut known: Vec<String> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    known.sort();
    let hint = match known.as_slice() {
        [] => format!(
            "write a definition (see docs/experiments.md) or put it into {}",
            folder.display()
        ),
        known => format!("the lake has {}", known.join(", ")),
    };
    bail!("there is no experiment `{name}`: it is neither a file nor in the lake; {hint}")
}
