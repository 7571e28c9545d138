//! A statement is run, and its answer written.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use uplake_engine::{QueryProgress, RunOptions, Session, Statement};

use crate::answer::{Writing, write_answer};
use crate::environment::Underway;
use crate::output::statement_error;
use crate::progress::Display;

/// Runs one statement of `text`. `timing`: writes `time: SECONDS` to standard error.
pub async fn run_one(
    session: &Session,
    statement: &Statement,
    text: &str,
    writing: Writing,
    timing: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let started = Instant::now();
    let underway = Underway::begin(&statement.text);
    let progress = QueryProgress::new();
    let display = Display::of_statement(Arc::clone(&progress));
    let options = RunOptions { progress: Some(progress), ..RunOptions::default() };
    let answer = session.run_with(statement, options).await;
    let done = match answer {
        Ok(answer) => write_answer(answer, writing, Some(display), out).await,
        Err(error) => {
            display.stop().await;
            Err(statement_error(error, text))
        }
    };
    underway.end();
    done?;
    let seconds = started.elapsed().as_secs_f64();
    let warnings = session.take_warnings();
    if timing || !warnings.is_empty() {
        out.flush().context("writing rows")?;
    }
    for warning in warnings {
        crate::output::tell(&format!("warning: {warning}"));
    }
    if timing {
        eprintln!("time: {seconds:.6}");
    }
    Ok(())
}
