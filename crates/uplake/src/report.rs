//! `uplake report`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use uplake_engine::{
    Definition, Definitions, EngineError, QueryProgress, ReportOptions, ReportRequest, RunOptions,
    Session, save_report,
};
use uplake_experiment::Report;
use uplake_server::{CommandNodes, DEFAULT_WAREHOUSE, Members, NodeOptions};
use uplake_table::{AsOf, check_experiment_name};

use crate::LakeArgs;
use crate::environment::{Limits, now_millis, parse_timeout, session, until_stopped};
use crate::node_trust::NodeTrustArgs;
use crate::output::{error_text, is_terminal, tell, width, write_file};
use crate::progress::Display;
use crate::serve::{parse_members, parse_warehouse};

/// Arguments of `uplake report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Definitions (.toml), or names of some in the lake's _uplake/experiments; what several read of a
    /// table is read once
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// How to write the report
    #[arg(long, value_enum, default_value = "text")]
    format: ReportFormat,
    /// Write text that a spreadsheet would take for a formula (=, +, -, @, a tab or a line's end at its
    /// beginning) with an apostrophe before it, with --format csv
    #[arg(long)]
    escape_formulas: bool,
    /// Break every metric down by these dimensions of the definition
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    dimension: Vec<String>,
    /// Also count users who are in these other experiments (as EXPERIMENT is written), break metrics
    /// down by their arms there, and test whether the experiments interact
    #[arg(long, value_delimiter = ',', value_name = "EXPERIMENTS")]
    overlap: Vec<String>,
    /// Only these metrics
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    metric: Vec<String>,
    /// Read every table as of this version: 12, 2026-11-01, "2026-11-01 08:00:00"
    #[arg(long)]
    as_of: Option<String>,
    /// Write the report here instead of to standard output; several go to NAME.txt (.json, .csv,
    /// .html) in this folder
    #[arg(long, short = 'o')]
    output: Option<PathBuf>,
    /// What the report may take, waiting included: 30s, 500ms, 2m; 0 is no limit
    #[arg(long, env = "UPLAKE_TIMEOUT", value_parser = parse_timeout)]
    timeout: Option<Duration>,
    /// Remember on this machine what data files add up to, so that the next report of these metrics
    /// reads only new ones
    #[arg(long)]
    remember: bool,
    /// Also save the report in the lake, where `uplake experiments` finds its decision
    #[arg(long, conflicts_with = "metric")]
    save: bool,
    /// Have these nodes compute, each for some of the users (`uplake serve --roles work`): ADDRESS:PORT,… or dns:NAME:PORT;
    /// the report is the same
    #[arg(long, value_name = "MEMBERS", value_parser = parse_members, conflicts_with = "remember")]
    members: Option<Members>,
    /// The warehouse of these nodes; others are not asked
    #[arg(
        long,
        value_name = "NAME",
        default_value = DEFAULT_WAREHOUSE,
        value_parser = parse_warehouse,
        requires = "members"
    )]
    warehouse: String,
    #[command(flatten)]
    trust: NodeTrustArgs,
    /// When they compute
    #[arg(long, value_enum, default_value = "auto", requires = "members")]
    elsewhere: Elsewhere,
    /// Print the SQL that the report runs instead of running it
    #[arg(long, conflicts_with = "save")]
    show_sql: bool,
}

/// When members compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Elsewhere {
    /// If a report reads more than 4 million rows, or 64 MiB of a bucket, and two of them are there
    Auto,
    /// Whatever it reads, if one of them is there
    Always,
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

impl ReportFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Json => "json",
            Self::Html => "html",
            Self::Csv => "csv",
        }
    }

    fn write(self, report: &Report, for_people: bool, escape_formulas: bool) -> String {
        match self {
            Self::Text => {
                report.to_text(width(), for_people && std::env::var_os("NO_COLOR").is_none())
            }
            Self::Json => report.to_json(),
            Self::Html => report.to_html(),
            Self::Csv if escape_formulas => report.to_csv_without_formulas(),
            Self::Csv => report.to_csv(),
        }
    }
}

/// A report that was asked for.
struct Asked {
    /// The experiment as the user wrote it.
    name: String,
    request: ReportRequest,
}

impl Asked {
    async fn new(definitions: &mut Definitions<'_>, name: &str, args: &ReportArgs) -> Result<Self> {
        let definition = find_definition(definitions, name).await?;
        if args.save {
            check_experiment_name(&definition.experiment().name)?;
        }
        let mut options = ReportOptions {
            dimensions: args.dimension.clone(),
            metrics: args.metric.clone(),
            overlap: Vec::new(),
        };
        for name in &args.overlap {
            let other = find_definition(definitions, name).await?;
            options.overlap.push(other.experiment().clone());
        }
        Ok(Self { name: name.to_owned(), request: ReportRequest::new(definition, &options)? })
    }
}

/// Runs the command.
pub async fn run(args: ReportArgs) -> Result<()> {
    until_stopped(Box::pin(report(args))).await
}

async fn report(args: ReportArgs) -> Result<()> {
    let as_of = args.as_of.as_deref().map(AsOf::parse).transpose()?.unwrap_or(AsOf::Latest);
    let several = args.experiments.len() > 1;
    if several && args.format == ReportFormat::Html && args.output.is_none() {
        bail!("several pages need a folder to go to: add --output FOLDER");
    }
    if args.escape_formulas && args.format != ReportFormat::Csv {
        bail!("--escape-formulas is about --format csv");
    }
    let limits = Limits { timeout: args.timeout, at_once: None };
    let mut session = session(&args.lake, as_of, limits)?;
    if args.remember {
        session = session.remembering();
    }
    let nodes = NodeOptions {
        listen: None,
        members: args.members.clone(),
        warehouse: args.warehouse.clone(),
        trust: args.trust.files(args.members.is_some(), "--members")?,
    };
    if args.elsewhere == Elsewhere::Always {
        session.query("SET uplake.elsewhere = 'always'").await?;
    }
    // Until the reports are made.
    let clock = Arc::new(now_millis);
    let (session, _nodes) = CommandNodes::join(session, "uplake report", &nodes, clock).await?;
    // The others are still wanted.
    let told = |error: anyhow::Error| match several {
        true => {
            tell(&format!("error: {}", error_text(&error)));
            Ok(())
        }
        false => Err(error),
    };
    let mut asked = Vec::with_capacity(args.experiments.len());
    let mut definitions = Definitions::new(session.lake());
    for name in &args.experiments {
        match Asked::new(&mut definitions, name, &args).await {
            Ok(one) => asked.push(one),
            Err(error) => told(error)?,
        }
    }
    if args.show_sql {
        for asked in &asked {
            let sql = session.moments_sql(asked.request.query()).await?;
            // Whoever runs it needs the text as it is.
            match is_terminal() {
                true => crate::output::say!("{sql}"),
                false => println!("{sql}"),
            }
        }
        return all_made(&args, asked.len());
    }
    if several && let Some(folder) = &args.output {
        create_folder(folder, &asked)?;
    }
    let (names, requests): (Vec<String>, Vec<ReportRequest>) =
        asked.into_iter().map(|asked| (asked.name, asked.request)).unzip();
    let mut made = Vec::with_capacity(requests.len());
    for (name, report) in names.iter().zip(make_all(&session, &requests).await) {
        match report {
            Ok(mut report) => {
                if let Some(reproduce) = &mut report.reproduce {
                    reproduce.command = command(&args, name);
                }
                made.push(report);
            }
            Err(error) => told(error)?,
        }
    }
    session.take_warnings().iter().for_each(|warning| tell(&format!("warning: {warning}")));
    if args.remember {
        match session.remembered() {
            (0, 0) => eprintln!(
                "remembered: nothing; it takes users with an id domain, a period that covers whole \
                 files, and metrics that never change by themselves (see docs/experiments.md)"
            ),
            (used, made) => eprintln!("remembered: {used} data files before, {made} now"),
        }
    }
    session.lake().storage().flush_cache().await;
    write_reports(&args, &made, several)?;
    if args.save {
        for report in &made {
            let result = save_report(session.lake(), report, now_millis()).await?;
            tell(&format!("saved {} as result {result}", report.experiment));
        }
    }
    all_made(&args, made.len())
}

fn all_made(args: &ReportArgs, made: usize) -> Result<()> {
    match args.experiments.len() - made {
        0 => Ok(()),
        failed => bail!("{failed} of {} reports could not be made", args.experiments.len()),
    }
}

fn write_reports(args: &ReportArgs, reports: &[Report], several: bool) -> Result<()> {
    let for_people = args.output.is_none() && is_terminal();
    let written = |report| args.format.write(report, for_people, args.escape_formulas);
    let texts = reports.iter().map(written);
    match &args.output {
        Some(folder) if several => {
            for (report, text) in reports.iter().zip(texts) {
                let name = format!("{}.{}", report.experiment, args.format.extension());
                write_file(&folder.join(name), &text)?;
            }
            Ok(())
        }
        Some(path) => texts.into_iter().try_for_each(|text| write_file(path, &text)),
        None => {
            use std::io::Write;
            let mut out = crate::output::stdout();
            let texts: Vec<String> = texts.map(|t| t.trim_end_matches('\n').to_owned()).collect();
            let text = match args.format {
                ReportFormat::Json if several => format!("[{}]", texts.join(",\n")),
                // One header.
                ReportFormat::Csv => {
                    let lines = texts.iter().enumerate();
                    let lines =
                        lines.flat_map(|(i, text)| text.split('\n').skip(usize::from(i > 0)));
                    lines.collect::<Vec<_>>().join("\n")
                }
                _ => texts.join("\n\n"),
            };
            writeln!(out, "{text}").and_then(|()| out.flush())?;
            Ok(())
        }
    }
}

/// A folder for reports that are named as their experiments.
fn create_folder(folder: &Path, asked: &[Asked]) -> Result<()> {
    let mut names = HashSet::new();
    for asked in asked {
        let name = asked.request.experiment().name.as_str();
        if name.contains(['/', '\\']) || name.starts_with('.') {
            bail!("experiment `{name}` cannot be the name of a file; report it by itself");
        }
        if !names.insert(name.to_lowercase()) {
            bail!("two experiments are called `{name}`; their reports would be one file");
        }
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

/// A report on one definition.
pub async fn make(
    session: &Session,
    definition: Definition,
    dimensions: &[String],
) -> Result<Report> {
    let options = ReportOptions { dimensions: dimensions.to_vec(), ..ReportOptions::default() };
    let request = ReportRequest::new(definition, &options)?;
    let mut made = make_all(session, std::slice::from_ref(&request)).await;
    made.pop().context("no report was made")?
}

/// Likewise of several; what keeps one from being made names its experiment.
async fn make_all(session: &Session, requests: &[ReportRequest]) -> Vec<Result<Report>> {
    let progress = QueryProgress::new();
    let display = Display::of_statement(Arc::clone(&progress));
    let options = RunOptions { progress: Some(progress), ..RunOptions::default() };
    let reports = session.report(requests, options).await.into_iter();
    display.stop().await;
    let named = |(request, report): (&ReportRequest, Result<Report, EngineError>)| {
        report.with_context(|| format!("experiment `{}`", request.experiment().name))
    };
    requests.iter().zip(reports).map(named).collect()
}

/// The command line that makes the same report of the same definition and versions again.
fn command(args: &ReportArgs, experiment: &str) -> String {
    let mut words = vec!["uplake".to_owned(), "report".into(), experiment.to_owned()];
    words.extend(["--lake".to_owned(), args.lake.lake.clone()]);
    let lists = [&args.dimension, &args.overlap, &args.metric];
    for (flag, values) in ["--dimension", "--overlap", "--metric"].into_iter().zip(lists) {
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

/// The definition in a file.
pub async fn read_definition(definitions: &mut Definitions<'_>, path: &Path) -> Result<Definition> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    Ok(definitions.read(&text, &path.display().to_string()).await?)
}

/// A path to a file, or a name in the lake's folder of experiments.
pub async fn find_definition(definitions: &mut Definitions<'_>, name: &str) -> Result<Definition> {
    let path = Path::new(name);
    if path.is_file() {
        return read_definition(definitions, path).await;
    }
    if let Some(found) = definitions.named(name).await? {
        return Ok(found);
    }
    let lake = definitions.lake();
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
