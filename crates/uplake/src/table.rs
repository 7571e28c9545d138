//! `uplake table list|describe|compact|reindex|vacuum|check|warm|history`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray, UInt64Array};
use clap::{Args, Subcommand};
use uplake_table::{
    AsOf, ChangedRows, Commit, CompactOptions, IndexSpec, Lake, LostIds, ReindexOptions,
    ReindexSummary, Snapshot, WarmOptions, Warmed, check, compact, reindex, type_name, vacuum,
    warm,
};

use crate::LakeArgs;
use crate::answer::write_batch;
use crate::environment::{self, now_millis, threads};
use crate::load::parse_index;
use crate::output::{Format, bytes_text, count_text, say};

/// Files that no version younger than this needs are removed; Delta's usual week.
pub(crate) const DEFAULT_RETENTION: &str = "168h";

/// Arguments of `uplake table`.
#[derive(Args, Debug)]
pub struct TableArgs {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// The tables of the lake
    List,
    /// Columns, layout and size of a table
    Describe {
        /// The table
        table: String,
    },
    /// Merge small files into large sorted ones
    Compact {
        /// The table
        table: String,
    },
    /// Add or drop indexes, and build those that files lack
    Reindex {
        /// The table
        table: String,
        /// Add an index: COLUMN (=, IN), or with :words (match), :ngrams (LIKE), :zones (<, > of doubles)
        #[arg(long = "index", value_delimiter = ',', value_name = "COLUMN[:KIND]", value_parser = parse_index)]
        add: Vec<IndexSpec>,
        /// Drop an index; repeatable
        #[arg(long = "drop-index", value_delimiter = ',', value_name = "COLUMN[:KIND]", value_parser = parse_index)]
        drop: Vec<IndexSpec>,
        /// Build all indexes anew, sound ones, too
        #[arg(long)]
        rebuild: bool,
    },
    /// Remove files that no recent version needs, and what crashed loads left
    Vacuum {
        /// The table
        table: String,
        /// Keep what versions of this long ago need: 30m, 12h, 7d
        #[arg(long, default_value = DEFAULT_RETENTION, value_parser = parse_duration)]
        retain: Duration,
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Read every file to its last page and compare it with the log
    Check {
        /// The table
        table: String,
    },
    /// Bring a table into the cache of a lake in a bucket (needs disk_cache: docs/storage.md)
    Warm {
        /// The table
        table: String,
        /// Only these columns; footers and indexes come always
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        columns: Vec<String>,
        /// Bytes per second at most: 50M
        #[arg(long, value_parser = environment::parse_bytes)]
        rate: Option<usize>,
    },
    /// The commits of a table, newest first
    History {
        /// The table
        table: String,
        /// At most so many
        #[arg(long)]
        limit: Option<usize>,
        /// How they are written
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write 30m, 12h or 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// Runs the command.
pub async fn run(args: TableArgs) -> Result<()> {
    let lake = environment::lake(&args.lake)?;
    match args.verb {
        Verb::List => list(&lake).await,
        Verb::Describe { table } => describe(&lake.snapshot(&table, &AsOf::Latest).await?),
        Verb::Compact { table } => {
            let base = lake.snapshot(&table, &AsOf::Latest).await?;
            let options = CompactOptions { threads: threads(&args.lake), now_millis: now_millis() };
            let summary = compact(&lake, &base, &options).await?;
            if summary.version.is_some() {
                environment::preload_new(&lake, &table, options.now_millis).await;
            }
            match summary.version {
                None => say!("nothing to compact in {table}"),
                Some(version) => say!(
                    "compacted {table} (version {version}): {} files of {} became {} of {}",
                    summary.files_before,
                    bytes_text(summary.bytes_before),
                    summary.files_after,
                    bytes_text(summary.bytes_after)
                ),
            }
            Ok(())
        }
        Verb::Reindex { table, add, drop, rebuild } => {
            let base = lake.snapshot(&table, &AsOf::Latest).await?;
            let (threads, now_millis) = (threads(&args.lake), now_millis());
            let options = ReindexOptions { add, drop, rebuild, threads, now_millis };
            print_reindexed(&table, &reindex(&lake, &base, &options).await?);
            Ok(())
        }
        Verb::Vacuum { table, retain, dry_run } => {
            let base = lake.snapshot(&table, &AsOf::Latest).await?;
            let summary = vacuum(&lake, &base, retain, dry_run, now_millis()).await?;
            for path in &summary.removed {
                say!("{path}");
            }
            for path in &summary.ended_uploads {
                say!("{path} (an upload in parts that nobody completed)");
            }
            let verb = if dry_run { "would remove" } else { "removed" };
            match summary.ended_uploads.len() {
                0 => say!("{verb} {} files of {table}", summary.removed.len()),
                uploads => {
                    say!("{verb} {} files and {uploads} uploads of {table}", summary.removed.len());
                }
            }
            if summary.kept_for_writers > 0 {
                say!(
                    "kept {} more: a writer is at work, or was killed less than a day ago",
                    summary.kept_for_writers
                );
            }
            if let Some(error) = summary.unlisted_uploads {
                crate::output::tell(&format!(
                    "warning: uploads in parts that nobody completed could not be listed (that needs \
                     s3:ListBucketMultipartUploads, or a rule of the bucket that ends them): {error}"
                ));
            }
            Ok(())
        }
        Verb::Check { table } => {
            if let Some(problem) = shown_problem(&lake, &table).await? {
                bail!(problem);
            }
            say!("the table is sound");
            Ok(())
        }
        Verb::Warm { table, columns, rate } => warm_up(&lake, &table, &columns, rate).await,
        Verb::History { table, limit, format } => {
            let snapshot = lake.snapshot(&table, &AsOf::Latest).await?;
            let commits = history(&snapshot.history(limit).await?)?;
            write_batch(commits, format, &mut std::io::stdout())
        }
    }
}

/// Commits as rows.
fn history(commits: &[Commit]) -> Result<RecordBatch> {
    let number = |of: fn(&ChangedRows) -> u64| -> ArrayRef {
        let rows = commits.iter().map(|commit| commit.rows.as_ref().map(of));
        Arc::new(rows.collect::<UInt64Array>())
    };
    let text = |of: fn(&Commit) -> Option<&str>| -> ArrayRef {
        Arc::new(commits.iter().map(of).collect::<StringArray>())
    };
    let times = commits.iter().map(|commit| commit.timestamp_millis);
    let times = times.collect::<TimestampMillisecondArray>().with_timezone("UTC");
    let parameters = commits.iter().map(|commit| {
        let told = commit.parameters.iter();
        // Of a table that is made: what every one has.
        let usual = |name: &str| ["location", "metadata", "protocol"].contains(&name);
        let says = |value: &str| !["", "[]", "{}"].contains(&value) && value.len() <= 80;
        let told = told.filter(|(name, value)| !usual(name) && says(value));
        Some(told.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("  "))
    });
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("version", Arc::new(commits.iter().map(|c| Some(c.version)).collect::<UInt64Array>())),
        ("time", Arc::new(times)),
        ("operation", text(|commit| Some(&commit.operation))),
        ("rows_added", number(|rows| rows.inserted)),
        ("rows_updated", number(|rows| rows.updated)),
        ("rows_removed", number(|rows| rows.deleted)),
        ("label", text(|commit| commit.label.as_deref())),
        ("user", text(|commit| commit.user.as_deref())),
        ("parameters", Arc::new(parameters.collect::<StringArray>())),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )?)
}

/// Checks a table and shows what is found; what is wrong, in short, and what to do about it.
pub(crate) async fn shown_problem(lake: &Lake, table: &str) -> Result<Option<String>> {
    let report = check(lake, &lake.snapshot(table, &AsOf::Latest).await?).await?;
    for finding in &report.findings {
        say!("{}: {}", finding.path, finding.problem);
    }
    for finding in &report.index_findings {
        say!("{}: index: {}", finding.path, finding.problem);
    }
    say!(
        "read {} files of {table}: {} rows, {}",
        report.files,
        report.rows,
        bytes_text(report.bytes)
    );
    for lost in &report.lost_ids {
        say!("{lost}");
    }
    if !report.lost_ids.is_empty() && report.findings.is_empty() {
        return Ok(Some(format!("the rows are sound, but not their ids. {}", LostIds::REMEDY)));
    }
    let (damaged, indexes) = (report.findings.len(), report.index_findings.len());
    Ok(match (damaged, indexes) {
        (0, 0) => None,
        (0, indexes) => Some(format!(
            "the rows are sound, but {indexes} of {} indexes are not; mend them with: \
             uplake table reindex {table}",
            report.files
        )),
        _ => Some(format!(
            "{damaged} files of {table} are damaged; restore them from a copy, or go back with \
             --as-of an earlier version"
        )),
    })
}

async fn warm_up(lake: &Lake, table: &str, columns: &[String], rate: Option<usize>) -> Result<()> {
    let base = lake.snapshot(table, &AsOf::Latest).await?;
    let columns = (!columns.is_empty()).then_some(columns);
    let bytes_per_second = rate.map(|bytes| bytes as u64);
    let options = WarmOptions { bytes_per_second, ..WarmOptions::default() };
    let bar = crate::progress::Line::new();
    let tell = |w: &Warmed| {
        let done = w.bytes_there + w.bytes_fetched;
        bar.show(&format!("{} of {}", bytes_text(done), bytes_text(w.bytes_wanted)));
    };
    let warmed = warm(lake, &base, base.files(), columns, options, tell).await?;
    bar.clear();
    say!(
        "cached {table}: {} of {} are kept; {} were there, {} fetched",
        bytes_text(warmed.bytes_kept),
        bytes_text(warmed.bytes_wanted),
        bytes_text(warmed.bytes_there),
        bytes_text(warmed.bytes_fetched)
    );
    if warmed.bytes_without_room > 0 {
        say!(
            "{} found no room; give disk_cache more, or name columns",
            bytes_text(warmed.bytes_without_room)
        );
    }
    match warmed.failures.first() {
        None => Ok(()),
        Some((path, reason)) => {
            bail!("{} objects were not cached; the first is {path}: {reason}", warmed.failed)
        }
    }
}

fn print_reindexed(table: &str, summary: &ReindexSummary) {
    let ReindexSummary { version, indexes, built, bytes, sound, removed } = summary;
    if let Some(version) = version {
        say!("{table} has now (version {version}) the indexes {}", index_list(indexes));
    }
    match (indexes.is_empty(), version) {
        (true, None) => say!("{table} has no indexes; add one with --index COLUMN"),
        (true, Some(_)) => say!("removed {removed} index files"),
        (false, _) => say!(
            "built {built} index files, {}; {sound} were as they should be",
            bytes_text(*bytes)
        ),
    }
}

fn index_list(indexes: &[IndexSpec]) -> String {
    match indexes {
        [] => "-".to_owned(),
        indexes => indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

async fn list(lake: &Lake) -> Result<()> {
    let names = lake.table_names().await?;
    if names.is_empty() {
        say!("no tables in {}", lake.location());
    }
    for name in names {
        match lake.snapshot(&name, &AsOf::Latest).await {
            Ok(table) => say!(
                "{name:<32}  {:>8} rows  {:>4} files  {}",
                table.rows().map_or_else(|| "?".into(), count_text),
                table.files().len(),
                bytes_text(table.size_bytes())
            ),
            Err(error) => say!("{name:<32}  {error}"),
        }
    }
    Ok(())
}

fn describe(table: &Snapshot) -> Result<()> {
    say!("table {} (version {})", table.table(), table.version());
    say!(
        "{} rows in {} files, {}",
        table.rows().map_or_else(|| "an unknown number of".into(), |n| n.to_string()),
        table.files().len(),
        bytes_text(table.size_bytes())
    );
    let list = |columns: &[String]| match columns {
        [] => "-".to_owned(),
        columns => columns.join(", "),
    };
    say!("partitioned by: {}", list(table.partition_columns()));
    say!("clustered by:   {}", list(table.cluster_by()));
    if !table.primary_key().is_empty() {
        say!("primary key:    {}", list(table.primary_key()));
    }
    say!("indexed:        {}", index_list(table.indexes()));
    if !table.id_domains().is_empty() {
        let specs: Vec<String> = table.id_domains().iter().map(ToString::to_string).collect();
        say!("id domains:     {}", specs.join(", "));
    }
    for field in table.schema().fields() {
        let null = if field.is_nullable() { "" } else { "  not null" };
        say!("  {:<30}  {}{null}", field.name(), type_name(field.data_type()));
    }
    Ok(())
}
