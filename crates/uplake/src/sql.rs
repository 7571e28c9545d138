//! `uplake sql`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper, Highlighter, Hinter};
use uplake_engine::{
    Answer, BatchOptions, BatchSummary, EngineError, QueryProgress, RunOptions, Session, Statement,
    parse, parse_each,
};
use uplake_table::AsOf;

use crate::LakeArgs;
use crate::environment::{Interrupts, Limits, parse_timeout, session, until_stopped};
use crate::foreign_errors::is_closed_pipe;
use crate::output::{Format, error_text, statement_error, stdout, write_answer};
use crate::progress::Display;

const HISTORY_LINES: usize = 10_000;

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
        return interactive(&open(&args)?, &args).await;
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
        (Some(command), _) => command.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => {
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

async fn run_text(session: &Session, text: &str, args: &SqlArgs) -> Result<()> {
    let statements = parse_each(text).map_err(|e| statement_error(e, text))?;
    let count = statements.len();
    let mut out = writer(args, count)?;
    for (number, (place, statement)) in statements.into_iter().enumerate() {
        let done = match statement {
            Ok(statement) => run_one(session, &statement, text, args, out.as_mut()).await,
            Err(error) => Err(statement_error(error, text)),
        };
        out.flush().context("writing rows")?;
        // What came before it is done.
        done.map_err(|error| match count {
            1 => error,
            _ if is_closed_pipe(&error) => error,
            _ => error.context(format!("statement {} (line {})", number + 1, place.line)),
        })?;
    }
    // The next command finds on disk what this one read.
    session.lake().storage().flush_cache().await;
    Ok(())
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
                Ok(answer) => {
                    write_answer(answer, args.format, args.escape_formulas, out.as_mut()).await
                }
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

async fn run_one(
    session: &Session,
    statement: &Statement,
    text: &str,
    args: &SqlArgs,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let started = Instant::now();
    let progress = QueryProgress::new();
    let display = Display::of_statement(Arc::clone(&progress));
    let options = RunOptions { progress: Some(progress), ..RunOptions::default() };
    let answer = session.run_with(statement, options).await;
    display.stop().await;
    let answer = answer.map_err(|e| statement_error(e, text))?;
    write_answer(answer, args.format, args.escape_formulas, out).await?;
    let seconds = started.elapsed().as_secs_f64();
    let warnings = session.take_warnings();
    if args.timing || !warnings.is_empty() {
        out.flush().context("writing rows")?;
    }
    for warning in warnings {
        crate::output::tell(&format!("warning: {warning}"));
    }
    if args.timing {
        eprintln!("time: {seconds:.6}");
    }
    Ok(())
}

async fn interactive(session: &Session, args: &SqlArgs) -> Result<()> {
    let lake = session.lake();
    println!(
        "uplake {} on {}. End statements with `;`, quit with \\q or Ctrl-D.",
        env!("CARGO_PKG_VERSION"),
        lake.location()
    );
    let config = Config::builder().max_history_size(HISTORY_LINES)?.auto_add_history(true).build();
    // Ends with the shell.
    let (_preload, _repair) = (session.preload(), session.repair_indexes());
    let mut editor: Editor<SqlHelper, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(SqlHelper { tables: Vec::new() }));
    let history = history_path();
    if let Some(path) = &history {
        // No history yet is no error.
        let _ = editor.load_history(path);
    }
    let interrupts = Interrupts::watch();
    loop {
        if let Some(helper) = editor.helper_mut() {
            // Without names nothing is completed.
            helper.tables = lake.table_names().await.unwrap_or_default();
        }
        match editor.readline("uplake> ") {
            Ok(line) => {
                if matches!(line.trim().trim_end_matches(';'), "\\q" | "quit" | "exit") {
                    break;
                }
                if let Err(error) = run_line(session, &line, args, &interrupts).await {
                    crate::output::tell(&format!("error: {}", crate::output::error_text(&error)));
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(path) = &history {
        let folder = path.parent().map(std::fs::create_dir_all).transpose();
        if let Err(error) = folder.map_err(Into::into).and_then(|_| editor.save_history(path)) {
            eprintln!("the history was not kept in {}: {error}", path.display());
        }
    }
    Ok(())
}

/// Runs what was typed; Ctrl-C drops the query, which stops it.
async fn run_line(
    session: &Session,
    line: &str,
    args: &SqlArgs,
    interrupts: &Interrupts,
) -> Result<()> {
    let work = async {
        let mut out = stdout();
        for statement in parse(line).map_err(|e| statement_error(e, line))? {
            let started = Instant::now();
            run_one(session, &statement, line, args, &mut out).await?;
            out.flush()?;
            if !args.timing {
                println!("{:.3} s", started.elapsed().as_secs_f64());
            }
        }
        Ok(())
    };
    interrupts.until(work).await?
}

fn history_path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/state"));
    Some(state.or_else(home)?.join("uplake/history"))
}

/// Completes table names and the words that begin statements.
#[derive(Helper, Highlighter, Hinter)]
struct SqlHelper {
    tables: Vec<String>,
}

const WORDS: [&str; 25] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "ON",
    "AS",
    "WITH",
    "COUNT(*)",
    "DISTINCT",
    "BETWEEN",
    "LIKE",
    "INSERT INTO",
    "VALUES",
    "CREATE TABLE",
    "DROP TABLE",
    "DELETE FROM",
    "SHOW TABLES",
    "DESCRIBE",
    "EXPLAIN",
    "VERSION AS OF",
    "ID SET",
];

impl Completer for SqlHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let boundary = |c: char| !(c.is_alphanumeric() || c == '_');
        let start = line[..position]
            .rfind(boundary)
            .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
        let typed = line[start..position].to_lowercase();
        if typed.is_empty() {
            return Ok((start, Vec::new()));
        }
        let words = WORDS.iter().map(|w| (*w).to_owned());
        let candidates = self
            .tables
            .iter()
            .cloned()
            .chain(words)
            .filter(|w| w.to_lowercase().starts_with(&typed))
            .map(|w| Pair { display: w.clone(), replacement: w })
            .collect();
        Ok((start, candidates))
    }
}

impl Validator for SqlHelper {
    /// A statement goes on until a semicolon ends it.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input().trim();
        let complete =
            input.is_empty() || input.ends_with(';') || matches!(input, "\\q" | "quit" | "exit");
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}
