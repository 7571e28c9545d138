//! `uplake load`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use uplake_table::{
    Header, IdDomainSpec, IndexSpec, InputStores, LoadOptions, LoadSummary, OnConflict, OnError,
    Progress, TableError, TextOptions, describe_schema, load, parse_schema,
};

use crate::LakeArgs;
use crate::environment::{self, memory_bytes, now_millis, threads};
use crate::output::{bytes_text, count_text};
use crate::progress::Display;

/// Loads use at most this much of the budget: more does not make them faster.
const LOAD_MEMORY_MAX: usize = 6 << 30;

/// Arguments of `uplake load`.
#[derive(Args, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// The table; it is made if there is none
    table: String,
    /// CSV, JSON lines or Parquet, also .gz and .zst; patterns like 'logs/*.csv'; addresses (s3://, gs://, az://,
    /// https://); - for standard input
    #[arg(required = true)]
    files: Vec<String>,
    /// Column types, overriding what is found: "ts timestamp, user_id text not null, …"
    #[arg(long)]
    schema: Option<String>,
    /// New table: columns that split the files, usually the day
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    partition_by: Vec<String>,
    /// New table: columns that rows are sorted by within a file, usually the user and the time
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    cluster_by: Vec<String>,
    /// New table: index a column: COLUMN (=, IN), or with :words (match), :ngrams (LIKE), :zones (<, > of doubles)
    #[arg(long = "index", value_delimiter = ',', value_name = "COLUMN[:KIND]", value_parser = parse_index)]
    indexes: Vec<IndexSpec>,
    /// New table: give the keys in a column ids of an id domain, such as user_id=users; repeatable
    #[arg(long = "id-domain", value_delimiter = ',', value_name = "COLUMN=DOMAIN", value_parser = parse_id_domain)]
    id_domains: Vec<IdDomainSpec>,
    /// New table: columns of which no two rows have the same values; they hold the partition columns
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    primary_key: Vec<String>,
    /// Table with a primary key: what becomes of rows whose keys are there
    #[arg(long, value_enum, default_value = "replace", value_name = "WHAT")]
    on_conflict: OnConflictArg,
    /// Add columns that the table does not have yet
    #[arg(long)]
    allow_new_columns: bool,
    /// A load with this label happens once, however often it is tried
    #[arg(long)]
    label: Option<String>,
    /// What to do with rows that cannot be read
    #[arg(long, value_enum, default_value = "abort")]
    on_error: OnErrorArg,
    /// With --on-error skip: where to write the bad rows and their reasons
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// CSV field separator (default: found in the first line)
    #[arg(long, value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// The CSV files have a header line (default: found in the first lines)
    #[arg(long, conflicts_with = "no_header")]
    header: bool,
    /// The CSV files have no header line; columns come in the order of the table or --schema
    #[arg(long)]
    no_header: bool,
    /// CSV text that means NULL, beside an empty field
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// No progress, no summary
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnConflictArg {
    /// They take the place of the others: the last load, the last row wins
    Replace,
    /// They are left out: the first row of a key stays
    Ignore,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnErrorArg {
    /// Stop; nothing is loaded
    Abort,
    /// Load the others; write the bad ones to --rejects
    Skip,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        text if text.len() == 1 && !matches!(text, "\"" | "\n" | "\r") => Ok(text.as_bytes()[0]),
        _ => Err("one ASCII character, or tab".into()),
    }
}

/// `poi_id` or `name:ngrams`.
pub fn parse_index(text: &str) -> Result<IndexSpec, String> {
    text.parse().map_err(|e: TableError| e.to_string())
}

fn parse_id_domain(text: &str) -> Result<IdDomainSpec, String> {
    text.parse().map_err(|e: TableError| e.to_string())
}

/// Runs the command.
pub async fn run(args: LoadArgs) -> Result<()> {
    let on_error = match (args.on_error, &args.rejects) {
        (OnErrorArg::Abort, None) => OnError::Abort,
        (OnErrorArg::Skip, Some(path)) => OnError::Skip { rejects: path.clone() },
        (OnErrorArg::Skip, None) => bail!("--on-error skip needs --rejects FILE for the bad rows"),
        (OnErrorArg::Abort, Some(_)) => bail!("--rejects is used with --on-error skip"),
    };
    let header = match (args.header, args.no_header) {
        (true, _) => Header::Yes,
        (false, true) => Header::No,
        (false, false) => Header::Find,
    };
    let schema = args.schema.as_deref().map(parse_schema).transpose()?.map(Arc::new);
    let options = LoadOptions {
        schema,
        partition_by: args.partition_by,
        cluster_by: args.cluster_by,
        indexes: args.indexes,
        id_domains: args.id_domains,
        primary_key: args.primary_key,
        on_conflict: match args.on_conflict {
            OnConflictArg::Replace => OnConflict::Replace,
            OnConflictArg::Ignore => OnConflict::Ignore,
        },
        allow_new_columns: args.allow_new_columns,
        label: args.label,
        on_error,
        text: TextOptions { delimiter: args.delimiter, header, null: args.null },
        ..LoadOptions::new(
            memory_bytes(&args.lake).min(LOAD_MEMORY_MAX),
            threads(&args.lake),
            now_millis(),
        )
    };
    let lake = environment::lake(&args.lake)?;
    let files = InputStores::new(&lake).inputs(&args.files).await?;
    let progress = Arc::new(Progress::default());
    let started = Instant::now();
    let display = Display::start(Arc::clone(&progress), args.quiet);
    let result = load(&lake, &args.table, &files, &options, &progress).await;
    display.stop().await;
    if !args.quiet {
        for note in progress.notes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            eprintln!("note: {note}");
        }
    }
    let summary = result?;
    if summary.version.is_some() {
        environment::preload_new(&lake, &args.table, options.now_millis).await;
    }
    if !args.quiet {
        eprintln!(
            "{}",
            summary_text(&args.table, &options, &summary, started.elapsed().as_secs_f64())
        );
    }
    Ok(())
}

fn summary_text(table: &str, options: &LoadOptions, summary: &LoadSummary, seconds: f64) -> String {
    let Some(version) = summary.version else {
        return format!(
            "label {} is loaded already: table {table} is unchanged",
            options.label.as_deref().unwrap_or_default()
        );
    };
    let mut text = if summary.created {
        format!("created table {table} ({})\n", describe_schema(&summary.schema))
    } else {
        String::new()
    };
    if !summary.new_columns.is_empty() {
        text.push_str(&format!("new columns: {}\n", summary.new_columns.join(", ")));
    }
    text.push_str(&format!(
        "loaded {} rows into {table} (version {version}): {} file{}, {}, {seconds:.1} s, {} rows/s",
        summary.rows,
        summary.files,
        if summary.files == 1 { "" } else { "s" },
        bytes_text(summary.bytes),
        count_text((summary.rows as f64 / seconds.max(1e-3)) as u64),
    ));
    if summary.replaced_rows > 0 {
        let verb = match options.on_conflict {
            OnConflict::Replace => "replaced by later ones of the same key",
            OnConflict::Ignore => "left out, the keys being there",
        };
        let rows = summary.replaced_rows;
        text.push_str(&format!("\n{rows} row{} {verb}", if rows == 1 { "" } else { "s" }));
    }
    if let (OnError::Skip { rejects }, bad @ 1..) = (&options.on_error, summary.bad_rows) {
        text.push_str(&format!(
            "\nrejected {bad} bad row{}; see {}",
            if bad == 1 { "" } else { "s" },
            rejects.display()
        ));
    }
    text
}
