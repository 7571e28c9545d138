//! `uplake report`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use uplake_engine::Session;
use uplake_experiment::definition::{Catalogue, pinned};
use uplake_experiment::report::Reproduce;
use uplake_experiment::{
    Experiment, MomentsQuery, MomentsTable, Report, alternatives, analyze, plan,
};
use uplake_table::{AsOf, Lake, check_experiment_name};

use crate::LakeArgs;
use crate::catalogue::CatalogueReader;
use crate::environment::{Limits, now_millis, parse_timeout, session, until_stopped};
use crate::output::{error_text, is_terminal, tell, width, write_file};
use crate::results;

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
    /// Print the SQL that the report runs instead of running it
    #[arg(long, conflicts_with = "save")]
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

/// An experiment and what to ask of the tables for it.
pub struct Asked {
    /// As the user wrote it.
    name: String,
    definition: Definition,
    experiment: Experiment,
    query: MomentsQuery,
}

impl Asked {
    async fn new(reader: &mut CatalogueReader<'_>, name: &str, args: &ReportArgs) -> Result<Self> {
        let definition = find_definition(reader, name).await?;
        let experiment = definition.parse()?;
        if args.save {
            check_experiment_name(&experiment.name)?;
        }
        let metrics = (!args.metric.is_empty()).then_some(args.metric.as_slice());
        let mut query = plan(&experiment, &args.dimension, metrics)?;
        for name in &args.overlap {
            let other = find_definition(reader, name).await?.parse()?;
            // Of several experiments that are all asked about each other.
            if other.name != experiment.name {
                query.tell_apart(&other)?;
            }
        }
        Ok(Self { name: name.to_owned(), definition, experiment, query })
    }
}

/// Runs the command.
pub async fn run(args: ReportArgs) -> Result<()> {
    until_stopped(report(args)).await
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
    // The others are still wanted.
    let told = |error: anyhow::Error| match several {
        true => {
            tell(&format!("error: {}", error_text(&error)));
            Ok(())
        }
        false => Err(error),
    };
    let mut asked = Vec::with_capacity(args.experiments.len());
    let mut reader = CatalogueReader::new(session.lake());
    for name in &args.experiments {
        match Asked::new(&mut reader, name, &args).await {
            Ok(one) => asked.push(one),
            Err(error) => told(error)?,
        }
    }
    if args.show_sql {
        for asked in &asked {
            let sql = session.moments_sql(&asked.query).await?;
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
    let mut made = Vec::with_capacity(asked.len());
    for (asked, report) in asked.iter().zip(make_all(&session, &asked).await?) {
        match report {
            Ok(mut report) => {
                if let Some(reproduce) = &mut report.reproduce {
                    reproduce.definition = asked.definition.pinned()?;
                    reproduce.command = command(&args, &asked.name);
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
            let result = results::save(session.lake(), report, now_millis()).await?;
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
        let name = asked.experiment.name.as_str();
        if name.contains(['/', '\\']) || name.starts_with('.') {
            bail!("experiment `{name}` cannot be the name of a file; report it by itself");
        }
        if !names.insert(name.to_lowercase()) {
            bail!("two experiments are called `{name}`; their reports would be one file");
        }
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

/// Question to report, with everything that a page can switch to. All numbers are from one version
/// of each table.
pub async fn make(
    session: &Session,
    definition: Definition,
    dimensions: &[String],
) -> Result<Report> {
    let experiment = definition.parse()?;
    let query = plan(&experiment, dimensions, None)?;
    let name = experiment.name.clone();
    let asked = Asked { name, definition, experiment, query };
    let mut made = make_all(session, std::slice::from_ref(&asked)).await?;
    let mut report = made.pop().context("no report was made")??;
    if let Some(reproduce) = &mut report.reproduce {
        reproduce.definition = asked.definition.pinned()?;
    }
    Ok(report)
}

/// A definition by name or path, and its report now.
pub async fn of_history(session: &Session, name: &str) -> Result<(Experiment, Report)> {
    let mut reader = CatalogueReader::new(session.lake());
    let definition = find_definition(&mut reader, name).await?;
    let experiment = definition.parse()?;
    Ok((experiment, make(session, definition, &[]).await?))
}

/// Likewise of several experiments, from one version of each table; each can fail alone.
async fn make_all(session: &Session, asked: &[Asked]) -> Result<Vec<Result<Report>>> {
    let mut tables: Vec<String> = asked.iter().flat_map(|asked| asked.query.tables()).collect();
    tables.sort();
    tables.dedup();
    let (session, versions) = session.pinned(&tables).await?;
    let queries: Vec<&MomentsQuery> = asked.iter().map(|asked| &asked.query).collect();
    let moments = session.moments_together(&queries).await;
    let mut sql = Vec::with_capacity(asked.len());
    for query in &queries {
        sql.push(session.moments_sql(query).await);
    }
    let report = |((asked, moments), sql): ((&Asked, _), uplake_engine::Result<String>)| {
        let moments: uplake_engine::Result<MomentsTable> = moments;
        let Asked { experiment, query, .. } = asked;
        let moments = moments.with_context(|| format!("experiment `{}`", experiment.name))?;
        let mut report = analyze(experiment, query, &moments)?;
        report.alternatives = alternatives(experiment, query, &moments)?;
        let read = query.tables();
        report.reproduce = Some(Reproduce {
            command: String::new(),
            definition: String::new(),
            sql: sql?,
            tables: versions.iter().filter(|(table, _)| read.contains(table)).cloned().collect(),
        });
        Ok(report)
    };
    Ok(asked.iter().zip(moments).zip(sql).map(report).collect())
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

/// A definition as it was found.
pub struct Definition {
    /// Where, for messages.
    name: String,
    text: String,
    /// What it uses of the lake's.
    catalogue: Catalogue,
}

impl Definition {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { name: path.display().to_string(), text, catalogue: Catalogue::default() })
    }

    /// What it defines.
    fn parse(&self) -> Result<Experiment> {
        Ok(Experiment::parse_with(&self.text, &self.name, &self.catalogue)?)
    }

    /// The text that means the same for ever.
    fn pinned(&self) -> Result<String> {
        Ok(pinned(&self.text, &self.name, &self.catalogue)?)
    }
}

/// A path to a file, or a name in the lake's folder of experiments; with what it uses of the catalogue.
async fn find_definition(reader: &mut CatalogueReader<'_>, name: &str) -> Result<Definition> {
    let mut definition = found_definition(reader.lake(), name).await?;
    definition.catalogue = reader.catalogue_of(&definition.text, &definition.name).await?;
    Ok(definition)
}

async fn found_definition(lake: &Lake, name: &str) -> Result<Definition> {
    let path = PathBuf::from(name);
    if path.is_file() {
        return Definition::read(&path);
    }
    if let Some((text, name)) = lake.experiment(name).await? {
        return Ok(Definition { name, text, catalogue: Catalogue::default() });
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
