//! Answers as people and programs read them.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use futures::StreamExt;
use uplake_engine::{Answer, EngineError};
use uplake_experiment::{escape_formula, visible};
use uplake_server::formats::{FormatError, RowFormat, RowWriter, flat_batch};

use crate::explain_tree::tree_text;
use crate::output::{Format, tell, terminal_size, visible_lines};
use crate::progress::Display;
use crate::records::{Records, records_text};

/// Rows a terminal table shows; more are counted, not shown.
const TABLE_ROWS_MAX: usize = 10_000;
const PRINTED_NULL: &str = "NULL";

/// How an answer is written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    pub format: Format,
    /// Of CSV: see [`escape_formula`].
    pub escape_formulas: bool,
    /// Columns of the terminal that tables go to, if they do.
    pub width: Option<usize>,
    pub records: Records,
}

impl Writing {
    /// Tables for whoever reads standard output.
    pub fn new(format: Format) -> Self {
        let width = terminal_size().map(|(columns, _)| columns);
        Self { format, escape_formulas: false, width, records: Records::default() }
    }
}

/// Writes an answer; returns the number of rows. The display of its progress ends before its rows come.
pub async fn write_answer(
    answer: Answer,
    writing: Writing,
    mut display: Option<Display>,
    out: &mut (dyn Write + Send),
) -> Result<u64> {
    let Writing { format, escape_formulas, .. } = writing;
    let (schema, mut stream) = match answer {
        Answer::Rows { schema, stream } => (schema, stream),
        Answer::Done { message, rows } => {
            end_display(&mut display).await;
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
    let mut writer = Writer::new(writing, &header, out)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(EngineError::from)?;
        rows += batch.num_rows() as u64;
        if format != Format::Table {
            end_display(&mut display).await;
        }
        writer.write(if escapes { escaped(&batch)? } else { batch })?;
    }
    end_display(&mut display).await;
    writer.finish(rows)?;
    Ok(rows)
}

/// Writes rows that are there.
pub fn write_batch(batch: RecordBatch, format: Format, out: &mut (dyn Write + Send)) -> Result<()> {
    let rows = batch.num_rows() as u64;
    let mut writer = Writer::new(Writing::new(format), &batch.schema(), out)?;
    writer.write(batch)?;
    writer.finish(rows)
}

async fn end_display(display: &mut Option<Display>) {
    if let Some(display) = display.take() {
        display.stop().await;
    }
}

enum Writer<'a> {
    Table {
        writing: Writing,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        held: usize,
        out: &'a mut (dyn Write + Send),
    },
    Rows(RowWriter<&'a mut (dyn Write + Send)>),
}

impl<'a> Writer<'a> {
    fn new(writing: Writing, schema: &SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Self> {
        let format = match writing.format {
            Format::Table => {
                let (schema, batches) = (Arc::clone(schema), Vec::new());
                return Ok(Self::Table { writing, schema, batches, held: 0, out });
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
            Self::Table { writing, schema, batches, held, out } => {
                let tree = writing.width.and_then(|width| plan_tree(&schema, &batches, width));
                if let Some(tree) = tree {
                    writeln!(out, "{tree}")?;
                    return Ok(());
                }
                writeln!(out, "{}", rows_text(writing, &schema, &batches)?)?;
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

/// The plan that EXPLAIN answers, as a tree; of two the one that runs.
fn plan_tree(schema: &Schema, batches: &[RecordBatch], width: usize) -> Option<String> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    if names != ["plan_type", "plan"] {
        return None;
    }
    let mut plans = Vec::new();
    for batch in batches {
        let (kinds, texts) =
            (batch.column(0).as_string_opt::<i32>()?, batch.column(1).as_string_opt::<i32>()?);
        plans.extend(kinds.iter().flatten().zip(texts.iter().flatten()));
    }
    // EXPLAIN VERBOSE has one for each step.
    let (_, plan) = match plans[..] {
        [plan @ ("physical_plan" | "Plan with Metrics" | "logical_plan", _)] => plan,
        [("logical_plan", _), plan @ ("physical_plan", _)] => plan,
        _ => return None,
    };
    let plan: Vec<String> = plan.lines().map(visible).collect();
    tree_text(&plan.join("\n"), width)
}

/// A table, or records of what does not fit.
fn rows_text(writing: Writing, schema: &Schema, batches: &[RecordBatch]) -> Result<String> {
    let table = table_text(schema, batches)?;
    // Its first line is of box characters, a column each.
    let table_width = table.lines().next().map_or(0, |line| line.chars().count());
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows == 0 || !writing.records.wanted(table_width, writing.width) {
        return Ok(table);
    }
    let names: Vec<String> = schema.fields().iter().map(|field| visible(field.name())).collect();
    let mut records = Vec::with_capacity(rows);
    each_row(batches, |cells| records.push(cells.into_iter().map(|(text, _)| text).collect()))?;
    Ok(records_text(&names, &records, writing.width))
}

/// A table for a terminal: numbers to the right, NULL shown as such.
pub fn table_text(schema: &Schema, batches: &[RecordBatch]) -> Result<String> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(schema.fields().iter().map(|f| visible(f.name())));
    each_row(batches, |cells| {
        table.add_row(cells.into_iter().map(|(text, right)| {
            let side = if right { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(side)
        }));
    })?;
    Ok(table.to_string())
}

/// The values of each row as they are shown, and whether they go to the right.
fn each_row(batches: &[RecordBatch], mut row_of: impl FnMut(Vec<(String, bool)>)) -> Result<()> {
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
                let right = column.data_type().is_numeric() && !column.is_null(row);
                (visible(&text), right)
            });
            row_of(cells.collect());
        }
    }
    Ok(())
}
