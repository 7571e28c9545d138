//! Lists, errors and messages as people and programs read them.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use comfy_table::Table;
use uplake_engine::EngineError;
use uplake_experiment::visible;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table to read
    Table,
    /// Comma-separated values with a header line; NULL is empty
    Csv,
    /// One JSON object a line
    Json,
    /// A Parquet file
    Parquet,
    /// An Arrow IPC stream
    Arrow,
}

/// How a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// One line each
    Text,
    /// JSON
    Json,
}

/// An error as the last line of a command: the message, the causes that add something.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A statement's error with the line of SQL and a mark under the place.
pub fn statement_error(error: EngineError, sql: &str) -> anyhow::Error {
    let Some(place) = error.position() else { return error.into() };
    let Some(line) = sql.lines().nth(place.line.saturating_sub(1) as usize) else {
        return error.into();
    };
    let column = place.column.saturating_sub(1) as usize;
    // A long line is cut around the place.
    let from = column.saturating_sub(60);
    let shown: String = line.chars().skip(from).take(120).collect();
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    anyhow::anyhow!(
        "{error}\n{margin} |\n{number} | {shown}\n{margin} | {}^",
        " ".repeat(column - from)
    )
}

/// Lines on standard error, with names and values of others made visible; one that is closed is no reason to do
/// anything else.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", visible_lines(text));
}

/// `println!` with names and values of others made visible.
macro_rules! say {
    ($($text:tt)*) => {
        println!("{}", $crate::output::visible_lines(&format!($($text)*)))
    };
}
pub(crate) use say;

pub(crate) fn visible_lines(text: &str) -> String {
    let lines: Vec<String> =
        text.split('\n').map(|line| visible(&line.replace('\t', " "))).collect();
    lines.join("\n")
}

/// A text that can be read and written back: only what moves the cursor is made visible.
pub fn say_source(text: &str) {
    let line = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    println!("{}", text.lines().map(line).collect::<Vec<_>>().join("\n"));
}

/// Should text be coloured and drawn for a person?
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal, or of a page if there is none.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let measured = || Table::new().width().map(usize::from);
    columns.or_else(measured).unwrap_or(100).clamp(60, 200)
}

/// Columns and lines of the terminal that standard output is, if it is one.
pub fn terminal_size() -> Option<(usize, usize)> {
    if !is_terminal() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let measured = terminal_size::terminal_size();
    let (columns, lines) = measured
        .map(|(width, height)| (usize::from(width.0), usize::from(height.0)))
        .filter(|(columns, lines)| *columns > 0 && *lines > 0)
        .unwrap_or((80, 24));
    Some((number("COLUMNS").unwrap_or(columns), number("LINES").unwrap_or(lines)))
}

/// 1234567 as `1.23M`.
pub fn count_text(n: u64) -> String {
    let x = n as f64;
    match n {
        0..=9_999 => n.to_string(),
        10_000..=999_999 => format!("{:.0}k", x / 1e3),
        1_000_000..=999_999_999 => format!("{:.2}M", x / 1e6),
        _ => format!("{:.2}G", x / 1e9),
    }
}

/// Bytes in binary units.
pub fn bytes_text(n: u64) -> String {
    let x = n as f64;
    match n {
        0..=1023 => format!("{n} B"),
        1024..=1_048_575 => format!("{:.0} KiB", x / 1024.0),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", x / 1_048_576.0),
        _ => format!("{:.2} GiB", x / 1_073_741_824.0),
    }
}

/// Standard output with a buffer.
pub fn stdout() -> std::io::BufWriter<std::io::Stdout> {
    std::io::BufWriter::with_capacity(1 << 16, std::io::stdout())
}

/// Writes a text file, with the path in the error.
pub fn write_file(path: &std::path::Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
