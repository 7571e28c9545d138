//! `uplake sql`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use uplake_engine::{
    Answer, BatchOptions, BatchSummary, EngineError, Session, Statement, parse, parse_each,
};
use uplake_table::AsOf;

use crate::LakeArgs;
use crate::answer::{Writing, write_answer};
use crate::environment::{Limits, parse_timeout, session, until_stopped};
use crate::foreign_errors::is_closed_pipe;
use crate::output::{Format, error_text, statement_error, stdout, visible_lines};
use crate::shell::meta::{Meta, help};
use crate::shell::run::run_one;
use crate::shell::script::{Step, steps};
use crate::shell::settings::{self, Settings};
use crate::shell::{SCRIPTS_WITHIN_MAX, interactive};

/// Arguments of `uplake sql`.
#[derive(Args, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Run this SQL
    #[arg(short = 'c', long = "command", conflicts_with = "file")]
    command: Option<String>,
    /// Run the SQL in this file; - for standard input
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,
    /// Run the queries in this file all together, on one snapshot of every table: what they have in
    /// common is read and computed once; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "file"])]
    batch: Option<PathBuf>,
    /// Queries of a batch that run at once; default: the number of threads
    #[arg(long, value_name = "N", requires = "batch", conflicts_with_all = ["command", "file"])]
    at_once: Option<usize>,
    /// How to write rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Write text that a spreadsheet would take for a formula (=, +, -, @, a tab or a line's end at its
    /// beginning) with an apostrophe before it
    #[arg(long)]
    escape_formulas: bool,
    /// Write rows here instead of to standard output
    #[arg(long, short = 'o')]
    output: Option<PathBuf>,
    /// Read every table as of this version: 12, 2026-11-01, "2026-11-01 08:00:00"
    #[arg(long, value_parser = parse_as_of)]
    as_of: Option<AsOf>,
    /// What a statement may take, waiting included: 30s, 500ms, 2m; 0 is no limit
    #[arg(long, env = "UPLAKE_TIMEOUT", value_parser = parse_timeout)]
    timeout: Option<Duration>,
    /// Write `time: SECONDS` per statement to standard error
    #[arg(long)]
    timing: bool,
}

fn parse_as_of(text: &str) -> Result<AsOf, String> {
    AsOf::parse(text).map_err(|e| e.to_string())
}

/// Runs the command.
pub async fn run(args: SqlArgs) -> Result<()> {
    let has_text = args.command.is_some() || args.file.is_some() || args.batch.is_some();
    if !has_text && std::io::stdin().is_terminal() {
        let settings = Settings::new(args.writing(), true);
        return interactive(&open(&args)?, settings).await;
    }
    // From the first on: what there is to remove is removed.
    until_stopped(run_script(args)).await
}

fn open(args: &SqlArgs) -> Result<Session> {
    let as_of = args.as_of.clone().unwrap_or(AsOf::Latest);
    session(&args.lake, as_of, Limits { timeout: args.timeout, at_once: None })
}

async fn run_script(args: SqlArgs) -> Result<()> {
    let session = open(&args)?;
    let text = match (&args.command, args.file.as_ref().or(args.batch.as_ref())) {
        (Some(command), _) => {
            session.engine().allow_standard_input();
            command.clone()
        }
        (None, Some(path)) if path.as_os_str() != "-" => {
            session.engine().allow_standard_input();
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?
        }
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
            text
        }
    };
    match args.batch {
        Some(_) => run_batch(&session, &text, &args).await,
        None => run_text(&session, &text, &args).await,
    }
}

impl SqlArgs {
    fn writing(&self) -> Writing {
        let mut writing = Writing::new(self.format);
        writing.escape_formulas = self.escape_formulas;
        writing.width = writing.width.filter(|_| self.output.is_none());
        writing
    }
}

async fn run_text(session: &Session, text: &str, args: &SqlArgs) -> Result<()> {
    let found = steps(text).map_err(|e| statement_error(e, text))?;
    let mut script = Script {
        session,
        out: writer(args, found.iter().filter(|(_, step)| step.has_rows()).count())?,
        settings: Settings::new(args.writing(), args.timing),
        within: 0,
    };
    script.run(found, text).await?;
    // The next command finds on disk what this one read.
    session.lake().storage().flush_cache().await;
    Ok(())
}

/// Steps that are run one after the other, until one fails.
struct Script<'a> {
    session: &'a Session,
    out: Box<dyn Write + Send>,
    settings: Settings,
    /// So many scripts that are under way.
    within: usize,
}

impl Script<'_> {
    /// False if it says that all ends here.
    async fn run(&mut self, steps: Vec<(u64, Step)>, text: &str) -> Result<bool> {
        let count = steps.len();
        for (number, (line, step)) in steps.into_iter().enumerate() {
            let done = match step {
                Step::Sql(Ok(statement)) => self.statement(&statement, text).await.map(|()| true),
                Step::Sql(Err(error)) => Err(statement_error(error, text)),
                Step::Command(command) => self.command(command).await,
            };
            self.out.flush().context("writing rows")?;
            // What came before it is done.
            let goes_on = done.map_err(|error| match count {
                1 => error,
                _ if is_closed_pipe(&error) => error,
                _ => error.context(format!("statement {} (line {line})", number + 1)),
            })?;
            if !goes_on {
                return Ok(false);
            }
        }
        if let Some(file) = &mut self.settings.output {
            file.flush().context("writing rows")?;
        }
        Ok(true)
    }

    async fn statement(&mut self, statement: &Statement, text: &str) -> Result<()> {
        let writing = match &self.settings.output {
            None => self.settings.writing,
            Some(_) => self.settings.writing(),
        };
        let out: &mut (dyn Write + Send) = match &mut self.settings.output {
            Some(file) => file,
            None => self.out.as_mut(),
        };
        run_one(self.session, statement, text, writing, self.settings.timing, out).await
    }

    async fn command(&mut self, command: Result<Meta, String>) -> Result<bool> {
        match command.map_err(anyhow::Error::msg)? {
            Meta::Quit => return Ok(false),
            Meta::Include(path) => {
                if self.within >= SCRIPTS_WITHIN_MAX {
                    bail!("{path}: too many scripts within scripts");
                }
                let (steps, text) = settings::read_script(&path)?;
                self.within += 1;
                let goes_on = Box::pin(self.run(steps, &text)).await;
                self.within -= 1;
                return goes_on.with_context(|| format!("in {path}"));
            }
            Meta::Tables => self.look("SHOW TABLES").await?,
            Meta::Describe(table) => {
                self.look(&format!("DESCRIBE {table}")).await?;
                let size = settings::table_size(self.session.lake(), &table).await;
                if let (Some(size), Format::Table) = (size, self.settings.writing.format) {
                    writeln!(self.out, "{}", visible_lines(&size))?;
                }
            }
            Meta::Help => writeln!(self.out, "{}", help())?,
            // Nobody is there to be told of it.
            other => _ = self.settings.change(other)?,
        }
        Ok(true)
    }

    async fn look(&mut self, sql: &str) -> Result<()> {
        for statement in parse(sql).map_err(|e| statement_error(e, sql))? {
            self.statement(&statement, sql).await?;
        }
        Ok(())
    }
}

/// Where the rows of so many statements go.
fn writer(args: &SqlArgs, statements: usize) -> Result<Box<dyn Write + Send>> {
    if args.escape_formulas && args.format != Format::Csv {
        bail!("--escape-formulas is about --format csv");
    }
    if matches!(args.format, Format::Parquet | Format::Arrow) {
        if statements > 1 {
            bail!("--format parquet and arrow hold the rows of one statement");
        }
        if args.output.is_none() && std::io::stdout().is_terminal() {
            bail!("this format is not for a terminal; say where with -o FILE");
        }
    }
    Ok(match &args.output {
        Some(path) => Box::new(std::io::BufWriter::new(
            File::create(path).with_context(|| format!("writing {}", path.display()))?,
        )),
        None => Box::new(stdout()),
    })
}

/// Answers come in any order and are written in the file's; a statement that fails does not keep the
/// others from theirs.
async fn run_batch(session: &Session, text: &str, args: &SqlArgs) -> Result<()> {
    let started = Instant::now();
    let parsed = parse_each(text).map_err(|e| statement_error(e, text))?;
    let mut out = writer(args, parsed.len())?;
    let mut waiting: BTreeMap<usize, Result<Answer, EngineError>> = BTreeMap::new();
    let (mut statements, mut numbers, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (place, statement)) in parsed.into_iter().enumerate() {
        lines.push(place.line);
        match statement {
            Ok(statement) => {
                statements.push(statement);
                numbers.push(number);
            }
            Err(error) => {
                waiting.insert(number, Err(error));
            }
        }
    }
    let options = BatchOptions { at_once: args.at_once };
    let mut batch = session.batch(statements, options).await?;
    let (mut next, mut failed) = (0, 0);
    while next < lines.len() {
        if let Some(answer) = waiting.remove(&next) {
            let written = match answer {
                Ok(answer) => write_answer(answer, args.writing(), None, out.as_mut()).await,
                Err(error) => Err(statement_error(error, text)),
            };
            if let Err(error) = written {
                if is_closed_pipe(&error) {
                    return Err(error);
                }
                failed += 1;
                out.flush().context("writing rows")?;
                let (number, line, error) = (next + 1, lines[next], error_text(&error));
                crate::output::tell(&format!("error in statement {number} (line {line}): {error}"));
            }
            next += 1;
            continue;
        }
        match batch.next().await {
            Some((number, answer)) => waiting.insert(numbers[number], answer),
            None => bail!("statement {} has no answer", next + 1),
        };
    }
    out.flush().context("writing rows")?;
    for warning in session.take_warnings() {
        crate::output::tell(&format!("warning: {warning}"));
    }
    if args.timing {
        let BatchSummary { statements, different, sharing, parts, .. } = batch.summary();
        eprintln!(
            "batch: {statements} statements, {different} different, {sharing} share {parts} parts"
        );
        eprintln!("time: {:.6}", started.elapsed().as_secs_f64());
    }
    session.lake().storage().flush_cache().await;
    if failed > 0 {
        bail!("{failed} of {} statements failed", lines.len());
    }
    Ok(())
}
