//! Answers and errors as people and programs read them.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use futures::StreamExt;
use uplake_engine::{Answer, EngineError};
use uplake_experiment::{escape_formula, visible};
use uplake_server::formats::{FormatError, RowFormat, RowWriter, flat_batch};

/// Rows a terminal table shows; more are counted, not shown.
const TABLE_ROWS_MAX: usize = 10_000;
/// Rows held back to print as one table.
const PRINTED_NULL: &str = "NULL";

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

/// Writes an answer; returns the number of rows. `escape_formulas`: of CSV, see [`escape_formula`].
pub async fn write_answer(
    answer: Answer,
    format: Format,
    escape_formulas: bool,
    out: &mut (dyn Write + Send),
) -> Result<u64> {
    let (schema, mut stream) = match answer {
        Answer::Rows { schema, stream } => (schema, stream),
        Answer::Done { message, rows } => {
            if format == Format::Table {
                writeln!(out, "{}", visible_lines(&message))?;
            } else {
                tell(&message);
            }
            return Ok(rows.unwrap_or_default());
        }
    };
    let escaped = |batch: &RecordBatch| -> Result<RecordBatch> {
        let flat = flat_batch(batch)?;
        without_formulas(&flat)
    };
    let escapes = escape_formulas && format == Format::Csv;
    let header = if escapes {
        escaped(&RecordBatch::new_empty(Arc::clone(&schema)))?.schema()
    } else {
        schema
    };
    let mut writer = Writer::new(format, &header, out)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(EngineError::from)?;
        rows += batch.num_rows() as u64;
        writer.write(if escapes { escaped(&batch)? } else { batch })?;
    }
    writer.finish(rows)?;
    Ok(rows)
}

enum Writer<'a> {
    Table {
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        held: usize,
        out: &'a mut (dyn Write + Send),
    },
    Rows(RowWriter<&'a mut (dyn Write + Send)>),
}

impl<'a> Writer<'a> {
    fn new(format: Format, schema: &SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Self> {
        let format = match format {
            Format::Table => {
                let (schema, batches) = (Arc::clone(schema), Vec::new());
                return Ok(Self::Table { schema, batches, held: 0, out });
            }
            Format::Csv => RowFormat::Csv,
            Format::Json => RowFormat::JsonLines,
            Format::Parquet => RowFormat::Parquet,
            Format::Arrow => RowFormat::Arrow,
        };
        Ok(Self::Rows(RowWriter::new(format, schema, out).map_err(cause)?))
    }

    fn write(&mut self, batch: RecordBatch) -> Result<()> {
        match self {
            Self::Table { batches, held, .. } => {
                let room = TABLE_ROWS_MAX.saturating_sub(*held);
                if room > 0 {
                    let shown = batch.slice(0, batch.num_rows().min(room));
                    *held += shown.num_rows();
                    batches.push(shown);
                }
            }
            Self::Rows(writer) => writer.write(&batch).map_err(cause)?,
        }
        Ok(())
    }

    fn finish(self, rows: u64) -> Result<()> {
        match self {
            Self::Table { schema, batches, held, out } => {
                writeln!(out, "{}", table_text(&schema, &batches)?)?;
                if rows > held as u64 {
                    writeln!(out, "(the first {held} of {rows} rows; --format csv writes all)")?;
                } else {
                    writeln!(out, "({rows} row{})", if rows == 1 { "" } else { "s" })?;
                }
            }
            Self::Rows(writer) => writer.finish().map_err(cause)?,
        }
        Ok(())
    }
}

/// What lies behind it, which may be a pipe that is closed.
fn cause(error: FormatError) -> anyhow::Error {
    match error {
        FormatError::Arrow(error) => error.into(),
        FormatError::Parquet(error) => error.into(),
        other => other.into(),
    }
}

/// Text and names of columns that a spreadsheet would compute, as text.
fn without_formulas(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let name = escape_formula(field.name()).into_owned();
        let field = field.as_ref().clone().with_name(name);
        let is_text = match field.data_type() {
            DataType::Dictionary(_, value) => value.is_string(),
            of_column => of_column.is_string(),
        };
        if !is_text {
            fields.push(field);
            columns.push(Arc::clone(column));
            continue;
        }
        let texts = arrow::compute::cast(column, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>().iter().map(|text| text.map(escape_formula));
        fields.push(field.with_data_type(DataType::Utf8));
        columns.push(Arc::new(texts.collect::<StringArray>()) as ArrayRef);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

/// A table for a terminal: numbers to the right, NULL shown as such.
pub fn table_text(schema: &Schema, batches: &[RecordBatch]) -> Result<String> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(schema.fields().iter().map(|f| visible(f.name())));
    let options = FormatOptions::default()
        .with_null(PRINTED_NULL)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
    for batch in batches {
        let formatters = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = formatters.iter().zip(batch.columns()).map(|(formatter, column)| {
                let text = formatter.value(row).try_to_string().unwrap_or_else(|e| e.to_string());
                let cell = Cell::new(visible(&text));
                let right = column.data_type().is_numeric() && !column.is_null(row);
                cell.set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left })
            });
            table.add_row(cells);
        }
    }
    Ok(table.to_string())
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
