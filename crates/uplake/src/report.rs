//! `uplake report`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use uplake_engine::Session;
use uplake_experiment::report::Reproduce;
use uplake_experiment::{Experiment, MomentsQuery, Report, alternatives, analyze, plan};
use uplake_table::{AsOf, Lake};

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
    /// Break every metric down by these dimensions of the definition
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    dimension: Vec<String>,
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
    /// One line per comparison
    Csv,
}

/// Runs the command.
pub async fn run(args: ReportArgs) -> Result<()> {
    let as_of = args.as_of.as_deref().map(AsOf::parse).transpose()?.unwrap_or(AsOf::Latest);
    let session = session(&args.lake, as_of)?;
    let definition = find_definition(session.lake(), &args.experiment).await?;
    let experiment = definition.parse()?;
    let metrics = (!args.metric.is_empty()).then_some(args.metric.as_slice());
    let query = plan(&experiment, &args.dimension, metrics)?;
    if args.show_sql {
        println!("{}", session.moments_sql(&query)?);
        return Ok(());
    }
    let mut report = make(&session, &experiment, &query).await?;
    if let Some(reproduce) = &mut report.reproduce {
        reproduce.definition = definition.text;
        reproduce.command = command(&args);
    }
    session.lake().storage().flush_cache().await;
    let text = match args.format {
        ReportFormat::Text => {
            let for_people = args.output.is_none() && is_terminal();
            report.to_text(width(), for_people && std::env::var_os("NO_COLOR").is_none())
        }
        ReportFormat::Json => report.to_json(),
        ReportFormat::Html => report.to_html(),
        ReportFormat::Csv => report.to_csv(),
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

/// Question to report, with everything that a page can switch to. All numbers are from one version
/// of each table.
pub async fn make(
    session: &Session,
    experiment: &Experiment,
    query: &MomentsQuery,
) -> Result<Report> {
    let context = || format!("experiment `{}`", experiment.name);
    let (session, tables) = session.pinned(&query.tables()).await.with_context(context)?;
    let moments = session.moments(query).await.with_context(context)?;
    let mut report = analyze(experiment, query, &moments)?;
    report.alternatives = alternatives(experiment, query, &moments)?;
    report.reproduce = Some(Reproduce {
        command: String::new(),
        definition: String::new(),
        sql: session.moments_sql(query)?,
        tables,
    });
    Ok(report)
}

/// The command line that makes the same report of the same definition and versions again.
fn command(args: &ReportArgs) -> String {
    let mut words = vec!["uplake".to_owned(), "report".into(), args.experiment.clone()];
    words.extend(["--lake".to_owned(), args.lake.lake.clone()]);
    for (flag, values) in [("--dimension", &args.dimension), ("--metric", &args.metric)] {
        if !values.is_empty() {
            words.extend([flag.to_owned(), values.join(",")]);
        }
    }
    if let Some(as_of) = &args.as_of {
        words.extend(["--as-of".to_owned(), as_of.clone()]);
    }
    let plain = |word: &str| word.chars().all(|c| c.is_alphanumeric() || "-_./,:=".contains(c));
    let quote = |word: &String| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A definition as it was found.
pub struct Definition {
    /// Where, for messages.
    name: String,
    text: String,
}

impl Definition {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { name: path.display().to_string(), text })
    }

    /// What it defines.
    pub fn parse(&self) -> Result<Experiment> {
        Ok(Experiment::parse(&self.text, &self.name)?)
    }
}

/// A path to a file, or a name in the lake's folder of experiments.
async fn find_definition(lake: &Lake, name: &str) -> Result<Definition> {
    let path = PathBuf::from(name);
    if path.is_file() {
        return Definition::read(&path);
    }
    if let Some((text, name)) = lake.experiment(name).await? {
        return Ok(Definition { name, text });
    }
    let known = lake.experiments().await?;
    let hint = match known.as_slice() {
        [] => format!(
            "write a definition (see docs/experiments.md) or put it into {}/_uplake/experiments",
            lake.location()
        ),
        known => format!("the lake has {}", known.join(", ")),
    };
    bail!("there is no experiment `{name}`: it is neither a file nor in the lake; {hint}")
}
